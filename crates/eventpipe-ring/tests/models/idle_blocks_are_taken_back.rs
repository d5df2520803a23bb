//! The drain takes an open block away while its owner writes to it, or changes it.

use crate::common::{Checker, check, check_blocks, drain_all, key, large, must_fail, ring, small};
use loom::thread;

#[test]
fn from_an_owner_that_goes_on_writing_to_it() {
    check(3, || {
        let (ring, key) = (ring(2, 1), key());
        let thread = ring.thread();
        thread.write(&key, &small(0));
        let drain = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut checker = Checker::default();
                let mut drain = ring.drain().unwrap();
                drain.take_back_idle();
                drain.round(&mut checker);
                drop(drain);
                checker
            })
        };
        thread.write(&key, &small(1));
        thread.write(&key, &small(2));
        let mut checker = drain.join().unwrap();
        thread.end();
        drain_all(&ring, &mut checker);
        assert_eq!((checker.accounted(), checker.lost()), (3, 0));
        check_blocks(&ring);
    });
}

#[test]
fn from_an_owner_that_changes_blocks() {
    check(2, || {
        let (ring, key) = (ring(2, 1), key());
        let thread = ring.thread();
        thread.write(&key, &large(0));
        let mut checker = Checker::default();
        let other = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut drain = ring.drain().unwrap();
                drain.take_back_idle();
                drain.round(&mut checker);
                drop(drain);
                checker
            })
        };
        thread.write(&key, &large(1));
        thread.end();
        let mut checker = other.join().unwrap();
        drain_all(&ring, &mut checker);
        assert_eq!((checker.accounted(), checker.lost()), (2, 0));
        check_blocks(&ring);
    });
}

#[test]
fn not_when_the_owner_stores_instead_of_swapping() {
    must_fail(
        "store_instead_of_swap",
        "idle_blocks_are_taken_back::from_an_owner_that_changes_blocks",
    );
}

#[test]
fn not_when_the_section_at_work_is_ignored() {
    must_fail(
        "no_limbo",
        "idle_blocks_are_taken_back::from_an_owner_that_goes_on_writing_to_it",
    );
}

#[test]
fn not_without_the_writers_barrier() {
    must_fail(
        "no_light_barrier",
        "idle_blocks_are_taken_back::from_an_owner_that_goes_on_writing_to_it",
    );
}

#[test]
fn not_with_a_relaxed_entry() {
    must_fail(
        "relaxed_entry",
        "idle_blocks_are_taken_back::from_an_owner_that_goes_on_writing_to_it",
    );
}
