//! A session that drops events and whose output is full: its writers lose them without a block. That ends with the session: the next
//! one of the same bit has all of its events, because who sees its mask sees the end of the hold too.

use crate::common::{check, key, large, must_fail, ring, small};
use loom::sync::atomic::Ordering;
use loom::thread;

#[test]
fn the_next_session_of_the_bit_is_not_refused() {
    check(3, || {
        let (ring, key) = (ring(3, 1), key());
        let writer = {
            let (ring, key) = (ring.clone(), key.clone());
            thread::spawn(move || {
                let thread = ring.thread();
                // The first takes a block in any case, the second needs another, and the third one too, if there was a hold
                // and it is over.
                thread.write(&key, &large(0));
                thread.write(&key, &large(1));
                thread.write(&key, &small(2));
                thread.end();
            })
        };
        ring.hold(0);
        key.mask.store(0, Ordering::Relaxed);
        ring.quiesce();
        // Of the session that has ended: nothing is added to this any more.
        let lost = ring.statistics().lost;
        ring.set_blocking(0, false);
        key.mask.store(1, Ordering::Release);
        writer.join().unwrap();
        assert_eq!(ring.statistics().lost, lost, "there were blocks enough");
    });
}

#[test]
fn not_when_a_hold_outlives_its_session() {
    must_fail(
        "held_for_ever",
        "full_outputs_refuse::the_next_session_of_the_bit_is_not_refused",
    );
}
