//! The law of the buffer: per thread and session, attempted = delivered + lost, in order, whatever
//! happens.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, Rng, leak_ring, repetitions, session_key};
// Not the standard library's lock: that is not instrumented for sanitizers.
use eventpipe_os::sync::Mutex;
use eventpipe_ring::{RecordOptions, Ring};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Drains until told to stop and everything up to the stop was given.
fn drain_until(ring: &'static Ring, stop: &AtomicBool, collector: &Mutex<Collector>) {
    let mut drain = ring.drain().expect("the only drain");
    loop {
        let ending = stop.load(Ordering::Acquire);
        let now = eventpipe_os::clock::ticks();
        loop {
            let round = drain.round(&mut *collector.lock());
            if round.boundary_ticks >= now || !ending {
                break;
            }
        }
        if ending {
            drain.collect_lost(u64::MAX, &mut *collector.lock());
            break;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn stress(pool: usize, threads: u64, events: u64, lives: u64, largest: u64) -> Collector {
    let (events, lives) = (
        repetitions(events),
        if lives == 1 { 1 } else { repetitions(lives) },
    );
    let ring = leak_ring(pool);
    let collector = Arc::new(Mutex::new(Collector::exact()));
    let stop = Arc::new(AtomicBool::new(false));
    let drainer = {
        let (collector, stop) = (collector.clone(), stop.clone());
        thread::spawn(move || drain_until(ring, &stop, &collector))
    };
    let key = session_key(0b101, 3);
    let attempted = Arc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..threads)
        .map(|writer| {
            let attempted = attempted.clone();
            thread::spawn(move || {
                for life in 0..lives {
                    let attempted = attempted.clone();
                    thread::spawn(move || {
                        let mut random = Rng::new(writer * 1000 + life + 1);
                        let mut model = Model::new();
                        for _ in 0..events {
                            let payload = model.next(random.below(largest));
                            ring.write(key, payload, &RecordOptions::default());
                        }
                        attempted.lock().push((model.id(), events));
                    })
                    .join()
                    .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    key.mask.store(0, Ordering::SeqCst);
    ring.quiesce();
    stop.store(true, Ordering::Release);
    drainer.join().unwrap();
    let collector = std::mem::take(&mut *collector.lock());
    let attempted = attempted.lock();
    for session in [0, 2] {
        for (writer, events) in attempted.iter() {
            // A thread of which no record came is known by its number only: it counts in the sum
            // below.
            let total = collector.total(*writer, session);
            assert!(
                total == *events || total == 0,
                "writer {writer} session {session}: {total} of {events}"
            );
        }
        let all = attempted.iter().map(|(_, events)| events).sum::<u64>();
        assert_eq!(collector.grand_total(session), all, "session {session}");
    }
    assert_eq!(collector.grand_total(1), 0);
    assert_eq!(collector.thread_count(), attempted.len());
    assert!(
        collector.alive_threads().is_empty(),
        "every thread's end was told: {:?}",
        collector.alive_threads()
    );
    collector
}

#[test]
fn with_room_for_everything() {
    let collector = stress(32 << 20, 4, 20_000, 1, 100);
    assert_eq!(collector.lost_total(), 0);
}

#[test]
fn with_a_pool_that_is_far_too_small() {
    let collector = stress(0, 4, 100_000, 1, 300);
    assert!(collector.lost_total() > 0, "the pool was to be exhausted");
}

#[test]
fn with_threads_that_come_and_go() {
    stress(1 << 20, 4, 500, 100, 200);
}

#[test]
fn with_events_that_need_big_blocks_or_are_too_large() {
    let collector = stress(1 << 20, 2, 3_000, 2, 80_000);
    assert!(collector.lost_by_reason(eventpipe_ring::LossReason::TooLarge) > 0);
}

#[test]
fn while_sessions_come_and_go() {
    let ring = leak_ring(1 << 20);
    let collector = Arc::new(Mutex::new(Collector::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let key = session_key(0, 9);
    // Which events a session wanted is not known outside; but each thread numbers its events, so
    // between the first and the last one that a session got of a thread, every number must have
    // been delivered or told as lost (the collector checks that).
    let writers_done = Arc::new(AtomicU64::new(0));
    // The sessions' changes so far: a writer has four lives for each, or the more there are the longer the next change
    // would take, and the more would come meanwhile.
    let turns = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..3u64)
        .map(|writer| {
            let (stop, done, turns) = (stop.clone(), writers_done.clone(), turns.clone());
            thread::spawn(move || {
                let mut random = Rng::new(writer + 77);
                let mut lives = 0;
                while !stop.load(Ordering::Relaxed) {
                    if lives >= 4 * (turns.load(Ordering::Relaxed) + 1) {
                        thread::sleep(Duration::from_micros(50));
                        continue;
                    }
                    lives += 1;
                    let mut lengths = Rng::new(random.below(1 << 40));
                    thread::spawn(move || {
                        let mut model = Model::new();
                        for _ in 0..repetitions(200) {
                            let payload = model.next(lengths.below(120));
                            ring.write(key, payload, &RecordOptions::default());
                        }
                    })
                    .join()
                    .unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut drain = ring.drain().unwrap();
    let mut random = Rng::new(4711);
    for _ in 0..repetitions(300) {
        let sessions = random.below(63) + 1;
        key.mask.fetch_or(sessions, Ordering::SeqCst);
        for _ in 0..random.below(4) {
            drain.round(&mut *collector.lock());
            thread::sleep(Duration::from_micros(random.below(300)));
        }
        let leaving = sessions & random.below(64);
        key.mask.fetch_and(!leaving, Ordering::SeqCst);
        ring.quiesce();
        let stopped = eventpipe_os::clock::ticks();
        let mut collector = collector.lock();
        while drain.round(&mut *collector).boundary_ticks < stopped {}
        drain.collect_lost(leaving, &mut *collector);
        collector.forbid(leaving);
        drain.round(&mut *collector);
        collector.allow(leaving);
        collector.end_sessions(leaving);
        turns.fetch_add(1, Ordering::Relaxed);
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(writers_done.load(Ordering::Relaxed) > 0);
    assert!(collector.lock().delivered_total() > 0);
}
