//! A drain that goes to sleep and a writer that writes at this moment: either the drain sees the
//! event, or the writer the sleeper.

use crate::common::{Checker, check, drain_all, key, must_fail, ring, small};
use loom::thread;

#[test]
fn no_event_is_slept_over() {
    check(3, || {
        let (ring, key) = (ring(1, 1), key());
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let thread = ring.thread();
                thread.write(&key, &small(0));
            })
        };
        let mut drain = ring.drain().unwrap();
        let asleep = drain.prepare_idle();
        writer.join().unwrap();
        if asleep {
            assert_eq!(ring.woken(), 1, "slept over an event");
        }
        drop(drain);
        let mut checker = Checker::default();
        drain_all(&ring, &mut checker);
        assert_eq!(checker.accounted(), 1);
    });
}

#[test]
fn not_when_the_drain_does_not_look_again() {
    must_fail(
        "idle_without_look",
        "sleeping_drains_are_woken::no_event_is_slept_over",
    );
}

#[test]
fn not_without_the_writers_barrier() {
    must_fail(
        "no_light_barrier",
        "sleeping_drains_are_woken::no_event_is_slept_over",
    );
}
