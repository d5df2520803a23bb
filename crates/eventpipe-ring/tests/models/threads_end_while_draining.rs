//! A thread ends while the drain works and while its session is stopped: its events come, then its
//! end, then nothing.

use crate::common::{
    Checker, check, check_blocks, drain_all, drain_to_now, key, must_fail, ring, small,
};
use loom::sync::atomic::Ordering;
use loom::thread;

#[test]
fn the_end_is_told_once_and_last() {
    check(3, || {
        let (ring, key) = (ring(2, 1), key());
        let thread = ring.thread();
        thread.write(&key, &small(0));
        let mut checker = Checker::default();
        ring.drain().unwrap().round(&mut checker);
        let drain = {
            let ring = ring.clone();
            thread::spawn(move || {
                ring.drain().unwrap().round(&mut checker);
                checker
            })
        };
        thread.write(&key, &small(1));
        thread.end();
        let mut checker = drain.join().unwrap();
        drain_all(&ring, &mut checker);
        assert_eq!((checker.accounted(), checker.lost()), (2, 0));
        assert!(checker.all_ended());
        check_blocks(&ring);
    });
}

#[test]
fn a_stop_at_the_same_time_is_waited_for() {
    check(2, || {
        let (ring, key) = (ring(2, 2), key());
        let writer = {
            let (ring, key) = (ring.clone(), key.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    let thread = ring.thread();
                    thread.write(&key, &small(0));
                    thread.end();
                }
            })
        };
        key.mask.store(0, Ordering::Relaxed);
        ring.quiesce();
        let mut checker = Checker::default();
        drain_to_now(&ring, &mut checker);
        let at_the_end = checker.accounted();
        writer.join().unwrap();
        drain_all(&ring, &mut checker);
        assert_eq!(checker.accounted(), at_the_end);
        assert!(checker.all_ended());
        check_blocks(&ring);
    });
}

#[test]
fn not_when_the_end_is_told_before_the_blocks_are_handed_over() {
    must_fail(
        "early_end",
        "threads_end_while_draining::the_end_is_told_once_and_last",
    );
}

#[test]
fn not_without_the_writers_barrier() {
    must_fail(
        "no_light_barrier",
        "threads_end_while_draining::a_stop_at_the_same_time_is_waited_for",
    );
}
