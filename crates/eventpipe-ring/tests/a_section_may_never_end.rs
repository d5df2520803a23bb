//! A thread that does not come out of an event (it was taken out of it by a jump, or cannot run): quiescence gives it up and says so, the
//! drain's boundary goes on without it, and the pool stays where it is. If it comes out after all, its record is delivered and everything
//! is as before.
#![cfg(not(loom))]

mod common;

use common::{Model, Stuck, leak_ring, session_key};
use eventpipe_ring::{LossReason, Payload, Record, RecordOptions, Ring, Sink, ThreadInfo};
use std::sync::atomic::{AtomicBool, Ordering};

/// How many records came. (The collector of the other tests would not have one that is older than the boundary.)
struct Records(u64);

impl Sink for Records {
    fn thread(&mut self, _: ThreadInfo) {}
    fn record(&mut self, _: &Record<'_>, _: bool) {
        self.0 += 1;
    }
    fn lost(&mut self, _: u32, count: u64, _: LossReason) {
        assert_eq!(count, 0);
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}

#[test]
fn and_is_given_up() {
    let ring = leak_ring(1 << 20);
    let key = session_key(1, 1);
    let (inside, go_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut records = Records(0);
    let mut drain = ring.drain().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut model = Model::new();
            let payload = Stuck {
                payload: model.next(2),
                inside: &inside,
                go_on: &go_on,
            };
            ring.write(key, &payload, &RecordOptions::default());
        });
        while !inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        key.mask.store(0, Ordering::Relaxed);
        assert!(!ring.quiesce(), "it has not ended");
        let cut = eventpipe_os::clock::ticks();
        while drain.round(&mut records).boundary_ticks < cut {}
        assert!(drain.round(&mut records).all_sorted, "nobody is held up");
        assert_eq!(records.0, 0);

        let mut drain = Some(drain);
        assert!(
            !rests(ring, &mut drain, &mut records),
            "its block is its own"
        );
        go_on.store(true, Ordering::Release);
        while !rests(ring, &mut drain, &mut records) {}
    });
    assert!(ring.quiesce());
    assert_eq!(records.0, 1);
    assert_eq!(ring.statistics().pool_bytes, 0);
}

/// Whether the pool could be given back.
fn rests(
    ring: &'static Ring,
    drain: &mut Option<eventpipe_ring::Drain<'static>>,
    records: &mut Records,
) -> bool {
    let mut draining = drain.take().or_else(|| ring.drain()).unwrap();
    for _ in 0..10 {
        draining.prepare_idle();
        draining.round(records);
    }
    drop(draining);
    ring.release()
}

/// A signal handler that asks for quiescence in the middle of its own thread's event does not wait for itself.
#[test]
fn nobody_waits_for_his_own() {
    struct Asking(&'static Ring);
    impl Payload for Asking {
        fn len(&self) -> usize {
            4
        }
        fn copy_to(&self, out: &mut [u8]) {
            out.fill(0);
            assert!(!self.0.quiesce());
        }
    }
    let ring = leak_ring(1 << 20);
    ring.write(session_key(1, 1), &Asking(ring), &RecordOptions::default());
    assert!(ring.quiesce());
}
