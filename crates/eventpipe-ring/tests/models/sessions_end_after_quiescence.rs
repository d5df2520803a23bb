//! A session ends: bit cleared, quiescence, a round. Nothing of it comes later, and nothing of it
//! is missing.

use crate::common::{Checker, check, drain_to_now, key, must_fail, nothing_more, ring, small};
use loom::sync::atomic::Ordering;
use loom::thread;

#[test]
fn nothing_comes_after_the_end() {
    check(3, || {
        let (ring, key) = (ring(1, 1), key());
        let writer = {
            let (ring, key) = (ring.clone(), key.clone());
            let thread_slot = ring.clone();
            thread::spawn(move || {
                let _ = ring;
                let thread = thread_slot.thread();
                thread.write(&key, &small(0));
                thread.write(&key, &small(1));
            })
        };
        key.mask.store(0, Ordering::Relaxed);
        ring.quiesce();
        let mut checker = Checker::default();
        drain_to_now(&ring, &mut checker);
        ring.drain().unwrap().collect_lost(1, &mut checker);
        nothing_more(&ring, &mut checker, writer);
    });
}

#[test]
fn not_without_the_writers_barrier() {
    must_fail(
        "no_light_barrier",
        "sessions_end_after_quiescence::nothing_comes_after_the_end",
    );
}

#[test]
fn not_without_the_heavy_barrier() {
    must_fail(
        "no_heavy_barrier",
        "sessions_end_after_quiescence::nothing_comes_after_the_end",
    );
}

#[test]
fn not_with_a_relaxed_exit() {
    must_fail(
        "relaxed_exit",
        "sessions_end_after_quiescence::nothing_comes_after_the_end",
    );
}
