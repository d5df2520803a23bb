//! A thread gets its slot while a session begins and ends: it is either seen by quiescence, or sees
//! the cleared bit.

use crate::common::{
    Checker, Shared, check, drain_all, drain_to_now, key, must_fail, nothing_more, ring, small,
};
use eventpipe_ring::{EventKey, Ring};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

/// A thread that attaches and writes; whether it knew before that the session is on.
fn writer(
    ring: &Shared<Ring>,
    key: &Shared<EventKey>,
    enabled: &Arc<AtomicU32>,
) -> thread::JoinHandle<bool> {
    let (ring, key, enabled) = (ring.clone(), key.clone(), enabled.clone());
    thread::spawn(move || {
        let promised = enabled.load(Ordering::Acquire) == 1;
        let thread = ring.thread();
        thread.write(&key, &small(0));
        promised
    })
}

#[test]
fn a_thread_that_attaches_is_either_seen_or_sees() {
    check(3, || {
        let (ring, key) = (ring(1, 1), key());
        key.mask.store(0, Ordering::Relaxed);
        let enabled = Arc::new(AtomicU32::new(0));
        let writer = writer(&ring, &key, &enabled);
        key.mask.store(1, Ordering::Relaxed);
        enabled.store(1, Ordering::Release);
        key.mask.store(0, Ordering::Relaxed);
        ring.quiesce();
        let mut checker = Checker::default();
        drain_to_now(&ring, &mut checker);
        nothing_more(&ring, &mut checker, writer);
    });
}

#[test]
fn an_event_after_the_promise_is_delivered() {
    check(3, || {
        let (ring, key) = (ring(1, 1), key());
        key.mask.store(0, Ordering::Relaxed);
        let enabled = Arc::new(AtomicU32::new(0));
        let writer = writer(&ring, &key, &enabled);
        key.mask.store(1, Ordering::Relaxed);
        enabled.store(1, Ordering::Release);
        let promised = writer.join().unwrap();
        let mut checker = Checker::default();
        drain_all(&ring, &mut checker);
        assert!(
            !promised || checker.accounted() == 1,
            "written after the promise, and gone"
        );
    });
}

#[test]
fn not_when_the_slots_are_counted_before_the_barrier() {
    must_fail(
        "count_before_barrier",
        "enabling_races_attach::a_thread_that_attaches_is_either_seen_or_sees",
    );
}

#[test]
fn not_without_the_writers_barrier() {
    must_fail(
        "no_light_barrier",
        "enabling_races_attach::a_thread_that_attaches_is_either_seen_or_sees",
    );
}
