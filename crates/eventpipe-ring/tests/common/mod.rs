//! What the stress tests share: a sink that checks everything it is told, and payloads that tell
//! who wrote them.
#![allow(dead_code, reason = "each test uses a part")]

use eventpipe_ring::{EventKey, LossReason, Payload, Record, Ring, Sink, ThreadInfo};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) fn leak_ring(pool: usize) -> &'static Ring {
    let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
    ring.start(pool).expect("memory for the pool");
    ring
}

pub(crate) fn session_key(mask: u64, index: u32) -> &'static EventKey {
    let key: &'static EventKey = Box::leak(Box::new(EventKey::new(mask)));
    key.index.store(index, Ordering::Relaxed);
    key
}

/// A payload that is being copied for as long as it is told to.
pub(crate) struct Stuck<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) inside: &'a AtomicBool,
    pub(crate) go_on: &'a AtomicBool,
}

impl Payload for Stuck<'_> {
    fn len(&self) -> usize {
        self.payload.len()
    }
    fn copy_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self.payload);
        self.inside.store(true, Ordering::Release);
        while !self.go_on.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A number of repetitions, or a part of it under a sanitizer or emulator
/// (`EVENTPIPE_STRESS_DIVISOR`).
pub(crate) fn repetitions(count: u64) -> u64 {
    let divisor = std::env::var("EVENTPIPE_STRESS_DIVISOR")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    (count / divisor).max(2)
}

/// A small random generator (xorshift), so that failures can be repeated.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }
}

static WRITERS: AtomicU64 = AtomicU64::new(1);

/// The payloads of one writer: number of the writer, number of the event, length, then bytes that
/// follow from these.
#[derive(Debug)]
pub(crate) struct Model {
    writer: u64,
    sequence: u64,
    buffer: Vec<u8>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            writer: WRITERS.fetch_add(1, Ordering::Relaxed),
            sequence: 0,
            buffer: Vec::new(),
        }
    }
    pub(crate) fn id(&self) -> u64 {
        self.writer
    }
    pub(crate) fn next(&mut self, extra: u64) -> &[u8] {
        self.buffer.clear();
        self.buffer.extend(self.writer.to_le_bytes());
        self.buffer.extend(self.sequence.to_le_bytes());
        self.buffer.extend(extra.to_le_bytes());
        let fill = (self.writer ^ self.sequence) as u8;
        self.buffer.resize(24 + extra as usize, fill);
        self.sequence += 1;
        &self.buffer
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[derive(Debug, Default)]
struct PerThread {
    ended: bool,
    last_ticks: u64,
    /// The writer as told by its payloads.
    writer: Option<u64>,
    /// Per session: delivered + lost so far.
    sequence: BTreeMap<u32, u64>,
    /// Per session: the number of the thread's first event that it wanted, by its first record.
    first: BTreeMap<u32, u64>,
}

/// Checks order, contents and accounting as it goes.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    threads: BTreeMap<u64, PerThread>,
    current: u64,
    delivered: u64,
    lost: BTreeMap<u32, u64>,
    boundary: u64,
    /// The oldest tick that may still come, by the sorted marks.
    sorted_from: u64,
    forbidden: u64,
    /// Sessions that wanted every event from each thread's start on.
    pub(crate) exact: u64,
}

impl Collector {
    pub(crate) fn exact() -> Self {
        Self {
            exact: u64::MAX,
            ..Self::default()
        }
    }
    pub(crate) fn delivered_total(&self) -> u64 {
        self.delivered
    }
    pub(crate) fn lost_total(&self) -> u64 {
        self.lost.values().sum()
    }
    pub(crate) fn lost_by_reason(&self, reason: LossReason) -> u64 {
        self.lost.get(&(reason as u32)).copied().unwrap_or(0)
    }
    /// Delivered + lost of a writer (by its payloads) and session. Threads that only lost are not
    /// known by their payloads: see `anonymous`.
    pub(crate) fn total(&self, writer: u64, session: u32) -> u64 {
        self.threads
            .values()
            .filter(|thread| thread.writer == Some(writer))
            .map(|thread| thread.sequence.get(&session).copied().unwrap_or(0))
            .sum()
    }
    /// Delivered + lost of everybody.
    pub(crate) fn grand_total(&self, session: u32) -> u64 {
        self.threads
            .values()
            .map(|thread| thread.sequence.get(&session).copied().unwrap_or(0))
            .sum()
    }
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.len()
    }
    pub(crate) fn alive_threads(&self) -> Vec<u64> {
        self.threads
            .iter()
            .filter(|(_, thread)| !thread.ended)
            .map(|(uid, _)| *uid)
            .collect()
    }
    pub(crate) fn forbid(&mut self, sessions: u64) {
        self.forbidden |= sessions;
    }
    /// The sessions have ended and will start anew.
    pub(crate) fn end_sessions(&mut self, sessions: u64) {
        for thread in self.threads.values_mut() {
            thread
                .sequence
                .retain(|session, _| sessions >> session & 1 == 0);
            thread
                .first
                .retain(|session, _| sessions >> session & 1 == 0);
        }
    }
    pub(crate) fn allow(&mut self, sessions: u64) {
        self.forbidden &= !sessions;
    }
}

impl Sink for Collector {
    fn thread(&mut self, thread: ThreadInfo) {
        self.current = thread.uid;
        let entry = self.threads.entry(thread.uid).or_default();
        assert!(!entry.ended, "thread {} was told to have ended", thread.uid);
    }

    fn record(&mut self, record: &Record<'_>, sorted: bool) {
        self.delivered += 1;
        assert!(record.ticks > self.boundary, "older than the boundary");
        assert!(
            record.ticks >= self.sorted_from,
            "older than a record that was marked sorted"
        );
        if sorted {
            self.sorted_from = record.ticks;
        }
        assert_eq!(
            record.sessions & self.forbidden,
            0,
            "a record of a session that has ended"
        );
        let payload = record.payload;
        let (writer, sequence, extra) = (word(payload, 0), word(payload, 8), word(payload, 16));
        assert_eq!(payload.len() as u64, 24 + extra);
        assert!(
            payload[24..]
                .iter()
                .all(|byte| *byte == (writer ^ sequence) as u8),
            "torn payload"
        );
        let thread = self
            .threads
            .get_mut(&self.current)
            .expect("thread() comes first");
        assert!(
            thread.last_ticks <= record.ticks,
            "a thread went back in time"
        );
        thread.last_ticks = record.ticks;
        assert_eq!(
            *thread.writer.get_or_insert(writer),
            writer,
            "two writers on one thread"
        );
        for session in (0..64).filter(|session| record.sessions >> session & 1 == 1) {
            let count = thread.sequence.entry(session).or_default();
            // Events are numbered by their writer, so every gap must have been told, exactly here.
            let first = *thread
                .first
                .entry(session)
                .or_insert(sequence.wrapping_sub(*count));
            assert_eq!(
                first.wrapping_add(*count),
                sequence,
                "a gap that was not told, or told elsewhere"
            );
            assert!(
                self.exact >> session & 1 == 0 || first == 0,
                "the beginning is missing"
            );
            *count += 1;
        }
    }

    fn lost(&mut self, session: u32, count: u64, reason: LossReason) {
        assert_ne!(count, 0);
        assert_eq!(
            1 << session & self.forbidden,
            0,
            "a loss of a session that has ended"
        );
        let thread = self
            .threads
            .get_mut(&self.current)
            .expect("thread() comes first");
        *thread.sequence.entry(session).or_default() += count;
        *self.lost.entry(reason as u32).or_default() += count;
    }

    fn thread_ended(&mut self, uid: u64) {
        let thread = self
            .threads
            .get_mut(&uid)
            .expect("a thread that was told of");
        assert!(!thread.ended, "ended twice");
        thread.ended = true;
    }

    fn boundary(&mut self, ticks: u64) {
        assert!(ticks >= self.boundary, "the boundary went back");
        self.boundary = ticks;
    }
}
