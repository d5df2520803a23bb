//! A session that drops events and whose output is full is not written for: its writers lose what only such sessions want, count it,
//! and take no block for it. Everybody else's events are as before.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, repetitions, session_key};
use eventpipe_ring::{EventKey, LossReason, RecordOptions, Ring};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn write(ring: &'static Ring, key: &'static EventKey, model: &mut Model, count: u64) {
    for _ in 0..count {
        ring.write(key, model.next(400), &RecordOptions::default());
    }
}

/// Everything up to now.
fn drain_to_now(ring: &'static Ring, collector: &mut Collector) {
    let now = eventpipe_os::clock::ticks();
    let mut drain = ring.drain().expect("the only drain");
    while drain.round(collector).boundary_ticks < now {}
    drain.collect_lost(u64::MAX, collector);
}

/// On a thread of its own.
fn written(ring: &'static Ring, keys: &[&'static EventKey], count: u64) {
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut model = Model::new();
            for key in keys {
                write(ring, key, &mut model, count);
            }
        });
        writer.join().expect("no panic");
    });
}

/// More than any block holds.
const MANY: u64 = 1_000;

#[test]
fn its_own_events_are_lost_where_they_are_written() {
    let ring = leak_ring(4 << 20);
    let mut collector = Collector::exact();
    let full = session_key(0b1, 0);
    ring.hold(0);
    written(ring, &[full], MANY);
    let first = ring.statistics();
    drain_to_now(ring, &mut collector);
    let delivered = collector.delivered_total();
    // A thread's first events are written, up to the end of its block.
    assert!((1..MANY / 2).contains(&delivered), "{delivered}");
    assert!(first.pool_bytes - first.free_bytes <= 72 << 10, "{first:?}");
    assert_eq!(collector.grand_total(0), MANY);
    assert_eq!(
        collector.lost_by_reason(LossReason::BufferFull),
        MANY - delivered
    );

    ring.lift(0);
    written(ring, &[full], MANY);
    drain_to_now(ring, &mut collector);
    assert_eq!(collector.delivered_total(), delivered + MANY);
    assert_eq!(collector.grand_total(0), 2 * MANY);
}

#[test]
fn events_that_somebody_else_wants_are_written() {
    let ring = leak_ring(4 << 20);
    let (full, other, both) = (
        session_key(0b01, 0),
        session_key(0b10, 1),
        session_key(0b11, 2),
    );
    ring.hold(0);
    let mut collector = Collector::default();
    written(ring, &[full], MANY);
    drain_to_now(ring, &mut collector);
    let (delivered, lost) = (collector.delivered_total(), collector.lost_total());
    assert_ne!(lost, 0);

    written(ring, &[other, both], MANY);
    drain_to_now(ring, &mut collector);
    assert_eq!(collector.delivered_total(), delivered + 2 * MANY);
    assert_eq!(collector.lost_total(), lost);
    // Also when the other is in block mode: then its writers do not wait for the output of the first.
    ring.set_blocking(1, true);
    written(ring, &[both], MANY);
    drain_to_now(ring, &mut collector);
    assert_eq!(collector.delivered_total(), delivered + 3 * MANY);
    // And when both are full nobody wants them.
    ring.set_blocking(1, false);
    ring.hold(1);
    written(ring, &[both], MANY);
    drain_to_now(ring, &mut collector);
    assert!(collector.delivered_total() < delivered + 3 * MANY + MANY / 2);
    assert_eq!(collector.grand_total(0), 4 * MANY);
    assert_eq!(collector.grand_total(1), 4 * MANY);
}

#[test]
fn every_event_is_accounted_for_while_outputs_fill_and_empty() {
    let ring = leak_ring(1 << 20);
    let keys = [
        session_key(0b01, 0),
        session_key(0b10, 1),
        session_key(0b11, 2),
    ];
    let (threads, count) = (4, repetitions(20_000));
    let running = AtomicU64::new(threads);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut model = Model::new();
                    for number in 0..count {
                        let key = keys[number as usize / 7 % 3];
                        write(ring, key, &mut model, 1);
                    }
                    running.fetch_sub(1, Ordering::Release);
                })
            })
            .collect();
        let mut drain = ring.drain().unwrap();
        let mut counted = Counter::default();
        let mut round = 0;
        while running.load(Ordering::Acquire) != 0 {
            drain.round(&mut counted);
            round += 1;
            for session in 0..2 {
                if round >> session & 1 == 1 {
                    ring.hold(session);
                } else {
                    ring.lift(session);
                }
            }
        }
        for writer in writers {
            writer.join().expect("no panic");
        }
        let now = eventpipe_os::clock::ticks();
        while drain.round(&mut counted).boundary_ticks < now {}
        drain.collect_lost(u64::MAX, &mut counted);
        let mut expected = [0; 2];
        for number in 0..count {
            match number / 7 % 3 {
                0 => expected[0] += threads,
                1 => expected[1] += threads,
                _ => expected.iter_mut().for_each(|events| *events += threads),
            }
        }
        assert_eq!(counted.0, expected);
    });
}

/// Delivered + lost by session.
#[derive(Default)]
struct Counter([u64; 2]);

impl eventpipe_ring::Sink for Counter {
    fn thread(&mut self, _: eventpipe_ring::ThreadInfo) {}
    fn record(&mut self, record: &eventpipe_ring::Record<'_>, _: bool) {
        for session in 0..2 {
            self.0[session] += record.sessions >> session & 1;
        }
    }
    fn lost(&mut self, session: u32, count: u64, _: LossReason) {
        self.0[session as usize] += count;
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}
