//! A writer loses events while the drain works: each gap is told once, between the records around
//! it; a thread that ends in debt is settled.

use crate::common::{Checker, check, check_blocks, drain_all, key, large, must_fail, ring, small};
use loom::thread;

#[test]
fn a_gap_is_told_between_its_records() {
    check(3, || {
        // One block, and one record to a block: the second event is lost unless the drain was
        // quick.
        let (ring, key) = (ring(1, 1), key());
        let thread = ring.thread();
        thread.write(&key, &large(0));
        thread.write(&key, &large(1));
        let mut checker = Checker::default();
        let drain = {
            let ring = ring.clone();
            thread::spawn(move || {
                // Gives the first, frees the block; the loss may be told by this round, a later
                // one, or a lost record.
                ring.drain().unwrap().round(&mut checker);
                checker
            })
        };
        thread.write(&key, &small(2));
        thread.write(&key, &large(3));
        let mut checker = drain.join().unwrap();
        thread.end();
        drain_all(&ring, &mut checker);
        assert_eq!(checker.accounted(), 4);
        assert!(checker.lost() >= 1);
        assert!(checker.all_ended());
        check_blocks(&ring);
    });
}

#[test]
fn a_thread_that_only_lost_is_settled() {
    check(2, || {
        let (ring, key) = (ring(0, 1), key());
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let thread = ring.thread();
                thread.write(&key, &small(0));
                thread.write(&key, &small(1));
                thread.end();
            })
        };
        let mut checker = Checker::default();
        ring.drain().unwrap().round(&mut checker);
        writer.join().unwrap();
        drain_all(&ring, &mut checker);
        assert_eq!((checker.accounted(), checker.lost()), (2, 2));
        assert!(checker.all_ended());
    });
}

#[test]
fn not_when_totals_are_taken_from_a_thread_at_work() {
    must_fail(
        "unchecked_losses",
        "losses_are_told_where_they_happened::a_gap_is_told_between_its_records",
    );
}

#[test]
fn not_when_a_debt_is_forgotten() {
    must_fail(
        "forgotten_debt",
        "losses_are_told_where_they_happened::a_thread_that_only_lost_is_settled",
    );
}
