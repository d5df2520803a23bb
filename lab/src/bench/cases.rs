//! The cases.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use eventpipe::{Buffering, Level, ProviderRequest, Session, SessionError, SessionRequest};
use eventpipe_ring::{EventKey, LossReason, Record, RecordOptions, Ring, Sink, ThreadInfo};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::statistics::Spread;

eventpipe::provider! {
    /// The measured events.
    pub mod events = "EventPipeLabEngine";

    /// Eight bytes.
    #[event(id = 1)]
    fn number(value: u64);

    /// A counted piece: two bytes more than the slice.
    #[event(id = 2)]
    fn bytes(data: &[u8]);

    /// Text, which is widened to UTF-16.
    #[event(id = 3)]
    fn text(text: &str);
}

const PROVIDER: &str = "EventPipeLabEngine";

type Samples = BTreeMap<&'static str, Vec<f64>>;

/// Runs all cases `rounds` times and gives the samples of each.
pub(super) fn run(rounds: usize, os_clock: bool) -> Result<Samples> {
    // The engine's own threads were started by the caller; the pinned thread's mask is not theirs.
    std::thread::Builder::new()
        .name("measured".into())
        .spawn(move || {
            pin()?;
            let mut samples = Samples::new();
            for _ in 0..rounds {
                round(os_clock, &mut |name, value| {
                    samples.entry(name).or_default().push(value)
                })?;
            }
            Ok(samples)
        })
        .context("starting the measured thread")?
        .join()
        .map_err(|_| anyhow::anyhow!("the measured thread panicked"))?
}

/// Keeps this thread on the last core it may use: interrupts tend to go to the first.
fn pin() -> Result<()> {
    let all = sched_getaffinity(None).context("reading the processors of this thread")?;
    if let Some(last) = (0..CpuSet::MAX_CPU).rev().find(|cpu| all.is_set(*cpu)) {
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).context("pinning")?;
    }
    Ok(())
}

fn round(os_clock: bool, note: &mut dyn FnMut(&'static str, f64)) -> Result<()> {
    let hundred = [7_u8; 98];
    let kibi = [7_u8; 1022];
    let text = "x".repeat(49);
    if os_clock {
        note(
            "event_8b_os_clock_ns",
            traced(1, false, PIECES, events::number)?,
        );
        let write = |_| events::bytes(black_box(&hundred));
        note("event_100b_os_clock_ns", traced(1, false, PIECES, write)?);
        return Ok(());
    }
    note(
        "disabled_ns",
        burst(2_000_000, PIECE, events::number, || ()),
    );
    note("event_8b_ns", traced(1, false, PIECES, events::number)?);
    let write = |_| events::bytes(black_box(&hundred));
    note("event_100b_ns", traced(1, false, PIECES, write)?);
    let flood = traced(1, false, Rhythm::Flood(100_000), write)?;
    note("event_100b_flood_ns", flood);
    let (one, flood) = (
        in_block_mode(PIECES, write)?,
        in_block_mode(Rhythm::Flood(1_000_000), write)?,
    );
    note("event_100b_block_ns", one);
    note("event_100b_block_flood_ns", flood);
    for (name, sessions) in [
        ("event_100b_1_session_ns", 1),
        ("event_100b_8_sessions_ns", 8),
        ("event_100b_64_sessions_ns", 64),
    ] {
        note(name, traced(sessions, false, AT_REST, write)?);
    }
    note(
        "event_1kib_ns",
        traced(1, false, PIECES, |_| events::bytes(black_box(&kibi)))?,
    );
    note(
        "event_text_49_chars_ns",
        traced(1, false, PIECES, |_| events::text(black_box(&text)))?,
    );
    for (name, frames) in [
        ("event_100b_16_frames_ns", 16),
        ("event_100b_30_frames_ns", 30),
    ] {
        note(
            name,
            at_depth(frames, &mut || traced(1, true, PIECES, write))?,
        );
    }
    note("dropped_ns", dropped());
    note("attach_detach_ns", attach_detach());
    let (enable, disable) = with_threads(1_000)?;
    note("enable_1000_threads_us", enable);
    note("disable_1000_threads_us", disable);
    Ok(())
}

/// Calls in one go: little enough that the blocks they fill stay in the core's cache.
const PIECE: u64 = 2_000;

/// Nanoseconds per call: the median over pieces, so that a piece in which other work took the core does not count. `between` runs after each
/// piece, untimed.
#[inline(never)]
fn burst(count: u64, piece: u64, write: impl Fn(u64), mut between: impl FnMut()) -> f64 {
    let pieces = (0..count.div_ceil(piece)).map(|index| {
        let numbers = index * piece..count.min((index + 1) * piece);
        let calls = (numbers.end - numbers.start) as f64;
        let start = Instant::now();
        for number in numbers {
            write(black_box(number));
        }
        let elapsed = start.elapsed();
        between();
        elapsed.as_nanos() as f64 / calls
    });
    Spread::of(pieces).map_or(f64::NAN, |spread| spread.median)
}

/// Enough for a median, quick enough for many rounds.
const PIECES: Rhythm = Rhythm::Pieces(20);
const AT_REST: Rhythm = Rhythm::AtRest(12);

/// How the events of a case follow each other.
#[derive(Clone, Copy)]
enum Rhythm {
    /// So many pieces, with time for the drain in between: the writer finds the blocks that it filled before, still in the cache.
    Pieces(u64),
    /// So many pieces, each after the drain has given the one before to every session and each session's sender sleeps: what the event
    /// costs its writer, and not what many readers on the same cores do meanwhile.
    AtRest(u64),
    /// So many events without a pause: more than the drain takes meanwhile, so each block is one that has long left the cache.
    Flood(u64),
}

/// The same while sessions listen that throw everything away. All events must have been delivered.
fn traced(sessions: usize, stacks: bool, rhythm: Rhythm, write: impl Fn(u64)) -> Result<f64> {
    let sessions = (0..sessions).map(|_| open(stacks)).collect::<Result<_>>()?;
    traced_by(sessions, rhythm, write)
}

/// The same with one session for which writers wait when there is no room.
fn in_block_mode(rhythm: Rhythm, write: impl Fn(u64)) -> Result<f64> {
    let session = request(false)
        .buffering(Buffering::Block)
        .start_callback(|_| {});
    traced_by(vec![session.map_err(not_started)?], rhythm, write)
}

fn traced_by(sessions: Vec<Session>, rhythm: Rhythm, write: impl Fn(u64)) -> Result<f64> {
    const WARM_UP: u64 = 2_000;
    let mut written = 0;
    let mut rest = || {
        written += PIECE;
        match rhythm {
            Rhythm::AtRest(_) => settle(&sessions, written),
            Rhythm::Pieces(_) | Rhythm::Flood(_) => settle(&[], 0),
        }
    };
    burst(WARM_UP, PIECE, &write, &mut rest);
    let (count, ns) = match rhythm {
        Rhythm::Pieces(pieces) | Rhythm::AtRest(pieces) => {
            let count = pieces * PIECE;
            (count, burst(count, PIECE, &write, &mut rest))
        }
        Rhythm::Flood(count) => (count, burst(count, PIECE, &write, || ())),
    };
    for session in &sessions {
        session.stop();
        let figures = session.statistics();
        ensure!(
            (figures.delivered, figures.lost) == (count + WARM_UP, 0),
            "a session got {} events and lost {} of {}: the burst does not fit the buffer",
            figures.delivered,
            figures.lost,
            count + WARM_UP
        );
    }
    Ok(ns)
}

/// A pause in which the engine's threads come to rest: all sessions have been given so many events.
fn settle(sessions: &[Session], written: u64) {
    for _ in 0..1_000 {
        std::thread::sleep(Duration::from_millis(2));
        let has_all = |session: &Session| {
            let figures = session.statistics();
            figures.delivered + figures.lost >= written
        };
        if sessions.iter().all(has_all) {
            break;
        }
    }
    if !sessions.is_empty() {
        // And their senders have passed it on.
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open(stacks: bool) -> Result<Session> {
    loop {
        match request(stacks).start_callback(|_| {}) {
            // Sessions of the case before: stopped, but their places are not free yet.
            Err(SessionError::TooManySessions) => settle(&[], 0),
            other => return other.map_err(not_started),
        }
    }
}

fn request(stacks: bool) -> SessionRequest {
    SessionRequest::new()
        .provider(ProviderRequest::new(PROVIDER).level(Level::Verbose))
        .buffer_mb(64)
        .stacks(stacks)
}

fn not_started(error: SessionError) -> anyhow::Error {
    anyhow::anyhow!("starting a session: {}", error.text())
}

/// Runs `work` under a stack of (about) `frames` frames.
fn at_depth<T>(frames: usize, work: &mut dyn FnMut() -> T) -> T {
    // The event's own frames on top of this one: burst, the closure, and what the compiler keeps of the event's function.
    const ABOVE: usize = 3;
    let mut place = [MaybeUninit::uninit(); 256];
    let here = eventpipe_sampler::walk(&mut place).len() + ABOVE;
    deeper(frames.saturating_sub(here), work)
}

#[inline(never)]
fn deeper<T>(levels: usize, work: &mut dyn FnMut() -> T) -> T {
    let result = if levels == 0 {
        work()
    } else {
        deeper(levels - 1, work)
    };
    // Not a tail call: the frame stays.
    black_box(levels);
    result
}

/// Events for which no block is free: a ring without anybody who drains it.
fn dropped() -> f64 {
    static RING: Ring = Ring::new();
    static KEY: EventKey = EventKey::new(1);
    if RING.start(256 << 10).is_err() {
        return f64::NAN;
    }
    let payload = [7_u8; 100];
    let write = |_| RING.write_plain(&KEY, black_box(&payload));
    // Ten times what it holds.
    burst(20_000, PIECE, write, || ());
    let before = RING.statistics().lost;
    let ns = burst(100_000, PIECE, write, || ());
    if RING.statistics().lost - before == 100_000 {
        ns
    } else {
        f64::NAN
    }
}

/// What a thread with a single event costs: a place in the buffer taken, the event, the place and its block given back.
fn attach_detach() -> f64 {
    static RING: Ring = Ring::new();
    static KEY: EventKey = EventKey::new(1);
    if RING.start(64 << 20).is_err() {
        return f64::NAN;
    }
    let payload = [7_u8; 100];
    let Some(mut drain) = RING.drain() else {
        return f64::NAN;
    };
    let mut count = Count::default();
    let write = |_| RING.write_once(&KEY, black_box(&payload), &RecordOptions::default());
    // Each takes a block of its own: a hundred of them fit the cache.
    let ns = burst(4_000, 100, write, || while !drain.round(&mut count).idle {});
    if count.records == 4_000 { ns } else { f64::NAN }
}

#[derive(Default)]
struct Count {
    records: u64,
}

impl Sink for Count {
    fn thread(&mut self, _: ThreadInfo) {}
    fn record(&mut self, _: &Record<'_>, _: bool) {
        self.records += 1;
    }
    fn lost(&mut self, _: u32, _: u64, _: LossReason) {}
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}

/// Microseconds of starting and of stopping a session (its last bytes included) while so many threads hold a place in the buffer.
fn with_threads(threads: usize) -> Result<(f64, f64)> {
    // Keeps the memory present, so that it is not the price of pages that is measured.
    let base = open(false)?;
    let barrier = Arc::new(Barrier::new(threads + 1));
    let (leave, left) = mpsc::channel::<()>();
    let left = Arc::new(std::sync::Mutex::new(left));
    let workers: Vec<_> = (0..threads)
        .map(|_| {
            let (barrier, left) = (Arc::clone(&barrier), Arc::clone(&left));
            std::thread::Builder::new()
                .stack_size(64 << 10)
                .spawn(move || {
                    events::number(1);
                    barrier.wait();
                    // Ends when the sender is dropped.
                    drop(left.lock().map(|left| left.recv()));
                })
        })
        .collect::<std::io::Result<_>>()
        .context("starting threads")?;
    barrier.wait();
    settle(&[], 0);
    let start = Instant::now();
    let session = open(false)?;
    let enable = start.elapsed();
    let start = Instant::now();
    session.stop();
    let disable = start.elapsed();
    drop(leave);
    for worker in workers {
        worker
            .join()
            .map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    }
    base.stop();
    Ok((
        enable.as_nanos() as f64 / 1e3,
        disable.as_nanos() as f64 / 1e3,
    ))
}
