//! The whole buffer under random schedules: writers that come and go, three sessions of which two
//! are switched on and off, a pool of three blocks, a drain. Per thread and session, attempted =
//! delivered + lost, in order, every gap told where it is, nothing after a session's end; and in
//! block mode nothing is lost.
//!
//! Run with `RUSTFLAGS="--cfg loom --cfg shuttle" cargo test --release -p eventpipe-ring --test
//! schedules` (`.ci/models` does). A failure prints the schedule, which `shuttle::replay` repeats.
#![cfg(shuttle)]

use eventpipe_ring::model::ticks;
use eventpipe_ring::{EventKey, LossReason, Record, Ring, Sink, ThreadInfo};
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shuttle::thread;
use std::collections::BTreeMap;

/// So many writers, of so many lives of so many events.
#[derive(Clone, Copy)]
struct Size {
    writers: u64,
    lives: u64,
    events: u64,
    blocks: u32,
    /// Session 0 loses nothing: its writers wait.
    block: bool,
}

const LARGE: Size = Size {
    writers: 4,
    lives: 2,
    events: 5,
    blocks: 3,
    block: false,
};
const SMALL: Size = Size {
    writers: 2,
    lives: 1,
    events: 4,
    blocks: 4,
    block: false,
};
const WAITING: Size = Size {
    blocks: 2,
    block: true,
    ..LARGE
};

#[derive(Debug, Default)]
struct PerThread {
    ended: bool,
    ticks: u64,
    /// Delivered + lost so far, and the number of the first event, by session.
    counts: BTreeMap<u32, (u64, Option<u64>)>,
}

#[derive(Debug, Default)]
struct Checker {
    threads: BTreeMap<u64, PerThread>,
    current: u64,
    boundary: u64,
    sorted_from: u64,
    ended_sessions: u64,
    /// By session.
    lost: [u64; 4],
}

impl Sink for Checker {
    fn thread(&mut self, thread: ThreadInfo) {
        self.current = thread.uid;
        assert!(
            !self.threads.entry(thread.uid).or_default().ended,
            "a thread that has ended"
        );
    }
    fn record(&mut self, record: &Record<'_>, sorted: bool) {
        assert!(record.ticks > self.boundary && record.ticks >= self.sorted_from);
        if sorted {
            self.sorted_from = record.ticks;
        }
        assert_eq!(
            record.sessions & self.ended_sessions,
            0,
            "after the end of its session"
        );
        let number = u64::from_ne_bytes(record.payload[..8].try_into().unwrap());
        assert!(
            record.payload[8..].iter().all(|byte| *byte == number as u8),
            "torn"
        );
        let thread = self.threads.get_mut(&self.current).unwrap();
        assert!(record.ticks >= thread.ticks, "back in time");
        thread.ticks = record.ticks;
        for session in (0..4).filter(|session| record.sessions >> session & 1 == 1) {
            let (count, first) = thread.counts.entry(session).or_default();
            let first = *first.get_or_insert(number.wrapping_sub(*count));
            assert_eq!(
                first.wrapping_add(*count),
                number,
                "a gap that was not told"
            );
            assert!(session != 0 || first == 0, "session 0 wants everything");
            *count += 1;
        }
    }
    fn lost(&mut self, session: u32, count: u64, _: LossReason) {
        assert_eq!(
            1 << session & self.ended_sessions,
            0,
            "a loss after the end of its session"
        );
        self.lost[session as usize] += count;
        self.threads
            .get_mut(&self.current)
            .unwrap()
            .counts
            .entry(session)
            .or_default()
            .0 += count;
    }
    fn thread_ended(&mut self, uid: u64) {
        assert!(!std::mem::replace(
            &mut self.threads.get_mut(&uid).unwrap().ended,
            true
        ));
    }
    fn boundary(&mut self, ticks: u64) {
        assert!(ticks >= self.boundary);
        self.boundary = ticks;
    }
}

fn scenario(size: Size) {
    let Size {
        writers,
        lives,
        events,
        blocks,
        block,
    } = size;
    let ring = Arc::new(Ring::model(blocks, 1, (writers + 1) as u32 * lives as u32));
    ring.set_blocking(0, block);
    let key = Arc::new(EventKey::new(1));
    let checker = Arc::new(std::sync::Mutex::new(Checker::default()));
    let running = Arc::new(AtomicU32::new(writers as u32));
    let attempted = Arc::new(AtomicU64::new(0));
    let mut threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (ring, key, running, attempted) = (
                ring.clone(),
                key.clone(),
                running.clone(),
                attempted.clone(),
            );
            thread::spawn(move || {
                for _ in 0..lives {
                    let thread = ring.thread();
                    for number in 0..events {
                        let mut payload = [number as u8; 32];
                        payload[..8].copy_from_slice(&number.to_ne_bytes());
                        thread.write(&key, &payload[..8 + 8 * ((number + writer) % 4) as usize]);
                        attempted.fetch_add(1, Ordering::SeqCst);
                    }
                    thread.end();
                }
                running.fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    threads.push({
        let (ring, key, running, checker) =
            (ring.clone(), key.clone(), running.clone(), checker.clone());
        thread::spawn(move || {
            let mut turn = 0u32;
            while running.load(Ordering::SeqCst) != 0 {
                let session = 1u64 << (1 + turn % 2);
                let mut drain = ring.drain().unwrap();
                match turn % 4 {
                    0 | 1 => {
                        key.mask.fetch_or(session, Ordering::SeqCst);
                        checker.lock().unwrap().ended_sessions &= !session;
                        drain.take_back_idle();
                        drain.round(&mut *checker.lock().unwrap());
                    }
                    _ => {
                        key.mask.fetch_and(!session, Ordering::SeqCst);
                        ring.quiesce();
                        let mut checker = checker.lock().unwrap();
                        // What is in the making for others may hold a round back.
                        let stopped = ticks();
                        while drain.round(&mut *checker).boundary_ticks < stopped {
                            thread::yield_now();
                        }
                        drain.collect_lost(session, &mut *checker);
                        checker.ended_sessions |= session;
                        for thread in checker.threads.values_mut() {
                            thread.counts.retain(|number, _| 1 << number != session);
                        }
                    }
                }
                turn += 1;
                drop(drain);
                thread::yield_now();
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    let checker = &mut *checker.lock().unwrap();
    let mut drain = ring.drain().unwrap();
    drain.round(checker);
    drain.round(checker);
    drain.collect_lost(1, checker);
    let accounted: u64 = checker
        .threads
        .values()
        .map(|thread| thread.counts.get(&0).map_or(0, |c| c.0))
        .sum();
    assert_eq!(accounted, attempted.load(Ordering::SeqCst));
    assert_eq!(accounted, writers * lives * events);
    assert!(!block || checker.lost[0] == 0, "lost although it waits");
    assert_eq!(ring.waiting(), 0);
    assert!(
        checker.threads.values().all(|thread| thread.ended),
        "{checker:?}"
    );
    let statistics = ring.statistics();
    assert_eq!(statistics.free_bytes, statistics.pool_bytes);
}

/// How many schedules of the large scenario; the small one gets four times as many.
fn schedules() -> usize {
    std::env::var("EVENTPIPE_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000)
}

#[test]
fn conservation_holds_under_random_schedules() {
    shuttle::check_random(|| scenario(LARGE), schedules());
}

#[test]
fn conservation_holds_under_few_preemptions() {
    shuttle::check_pct(|| scenario(SMALL), 4 * schedules(), 4);
}

#[test]
fn nothing_is_lost_in_block_mode_under_random_schedules() {
    shuttle::check_random(|| scenario(WAITING), schedules());
}

/// Runs a test of this program again with the protocol weakened; it must fail.
fn must_fail(control: &str, test: &str) {
    if std::env::var_os("NEGATIVE_CONTROL").is_some() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env("NEGATIVE_CONTROL", control)
        .env("EVENTPIPE_SCHEDULES", "20000")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test"));
    assert!(!output.status.success(), "{control} was not noticed");
}

#[test]
fn not_when_the_section_at_work_is_ignored() {
    must_fail("no_limbo", "conservation_holds_under_few_preemptions");
}

#[test]
fn not_when_the_end_is_told_before_the_blocks_are_handed_over() {
    must_fail("early_end", "conservation_holds_under_random_schedules");
}
