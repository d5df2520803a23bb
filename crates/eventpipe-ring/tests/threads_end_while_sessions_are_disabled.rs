//! The historic defect: a thread goes away while a session is being disabled. 10,000 threads come
//! and go under ceaseless stops; every event is accounted for, and nothing of a thread comes after
//! its end.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, repetitions, session_key};
use eventpipe_ring::RecordOptions;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn ten_thousand_times() {
    let threads = repetitions(10_000) / 4 * 4;
    let ring = leak_ring(1 << 20);
    // Session 0 stays, so that every event is accounted for; the others come and go.
    let key = session_key(1, 1);
    let attempted = AtomicU64::new(0);
    let running = AtomicU64::new(4);
    let mut collector = Collector::default();
    collector.exact = 1;
    let mut stops = 0u64;
    let (attempted, running) = (&attempted, &running);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..threads / 4 {
                    // Joined, so that the thread has run its exit hook and not only its closure.
                    let thread = std::thread::Builder::new().spawn_scoped(scope, || {
                        let mut model = Model::new();
                        for _ in 0..3 {
                            ring.write(key, model.next(8), &RecordOptions::default());
                        }
                        attempted.fetch_add(3, Ordering::Relaxed);
                    });
                    thread.unwrap().join().unwrap();
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut drain = ring.drain().unwrap();
        while running.load(Ordering::Acquire) != 0 {
            let session = 1u64 << (1 + stops % 63);
            key.mask.fetch_or(session, Ordering::Relaxed);
            drain.round(&mut collector);
            key.mask.fetch_and(!session, Ordering::Relaxed);
            ring.quiesce();
            let stopped = eventpipe_os::clock::ticks();
            while drain.round(&mut collector).boundary_ticks < stopped {}
            drain.collect_lost(session, &mut collector);
            collector.forbid(session);
            drain.round(&mut collector);
            collector.allow(session);
            collector.end_sessions(session);
            stops += 1;
        }
    });
    let mut drain = ring.drain().unwrap();
    let now = eventpipe_os::clock::ticks();
    while drain.round(&mut collector).boundary_ticks < now {}
    drain.collect_lost(1, &mut collector);
    assert!(stops > 10);
    assert_eq!(attempted.load(Ordering::Relaxed), threads * 3);
    assert_eq!(collector.grand_total(0), threads * 3);
    assert_eq!(collector.thread_count() as u64, threads);
    assert!(collector.alive_threads().is_empty(), "every end was told");
    assert!(
        ring.statistics().slots < threads / 2,
        "slots are used again: {:?}",
        ring.statistics()
    );
}
