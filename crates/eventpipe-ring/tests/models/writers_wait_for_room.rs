//! Block mode: a writer that finds no room sleeps until there is some. Whoever makes room at that
//! moment (the drain, a session's output, the end of the session) sees the sleeper, or the writer
//! the room. A wake-up that is lost is a deadlock here, which loom reports.

use crate::common::{Checker, Shared, check, drain_all, key, large, must_fail, ring};
use eventpipe_ring::{EventKey, Ring};
use loom::sync::atomic::Ordering;
use loom::thread::{self, JoinHandle};

/// A ring whose only block is full, with session 0 in block mode, and a writer of one event.
fn full_ring() -> (Shared<Ring>, Shared<EventKey>) {
    let (ring, key) = (ring(1, 2), key());
    let thread = ring.thread();
    thread.write(&key, &large(0));
    thread.end();
    ring.set_blocking(0, true);
    (ring, key)
}

fn writer(ring: &Shared<Ring>, key: &Shared<EventKey>) -> JoinHandle<()> {
    let (ring, key) = (ring.clone(), key.clone());
    thread::spawn(move || {
        let thread = ring.thread();
        thread.write(&key, &large(0));
        thread.end();
    })
}

fn nothing_is_lost(ring: &Ring, events: u64) {
    let mut checker = Checker::default();
    drain_all(ring, &mut checker);
    assert_eq!((checker.accounted(), checker.lost()), (events, 0));
}

#[test]
fn until_the_drain_frees_a_block() {
    check(3, || {
        let (ring, key) = full_ring();
        let writer = writer(&ring, &key);
        let mut checker = Checker::default();
        ring.drain().unwrap().round(&mut checker);
        writer.join().unwrap();
        assert_eq!(ring.waiting(), 0);
        let before = checker.accounted();
        drain_all(&ring, &mut checker);
        assert!(before >= 1);
        assert_eq!((checker.accounted(), checker.lost()), (2, 0));
    });
}

#[test]
fn until_the_output_has_room() {
    check(3, || {
        let (ring, key) = (ring(1, 1), key());
        ring.set_blocking(0, true);
        ring.hold(0);
        let writer = writer(&ring, &key);
        ring.lift(0);
        writer.join().unwrap();
        nothing_is_lost(&ring, 1);
    });
}

/// There is a free block. But writers are ahead of the drain, and it is to take what is full first.
#[test]
fn until_the_drain_takes_what_is_full() {
    check(3, || {
        let (ring, key) = (ring(2, 2), key());
        let thread = ring.thread();
        thread.write(&key, &large(0));
        thread.end();
        ring.set_blocking(0, true);
        ring.overload();
        let writer = writer(&ring, &key);
        let mut checker = Checker::default();
        ring.drain().unwrap().round(&mut checker);
        writer.join().unwrap();
        assert_eq!(ring.waiting(), 0);
        drain_all(&ring, &mut checker);
        assert_eq!((checker.accounted(), checker.lost()), (2, 0));
    });
}

#[test]
fn until_the_session_ends() {
    check(3, || {
        let (ring, key) = full_ring();
        let writer = writer(&ring, &key);
        key.mask.store(0, Ordering::Relaxed);
        ring.tell_waiting();
        writer.join().unwrap();
        // The event that waited was never in the session.
        nothing_is_lost(&ring, 1);
    });
}

#[test]
fn not_when_room_is_made_without_a_fence() {
    must_fail(
        "no_room_fence",
        "writers_wait_for_room::until_the_session_ends",
    );
    must_fail(
        "no_room_fence",
        "writers_wait_for_room::until_the_output_has_room",
    );
}

#[test]
fn not_when_the_generation_is_read_after_the_attempt() {
    for test in [
        "until_the_drain_frees_a_block",
        "until_the_drain_takes_what_is_full",
        "until_the_output_has_room",
        "until_the_session_ends",
    ] {
        must_fail("late_generation", &format!("writers_wait_for_room::{test}"));
    }
}
