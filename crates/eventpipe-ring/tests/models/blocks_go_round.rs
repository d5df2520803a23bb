//! A block's way: free, with a writer, full, drained, free, with a writer again.

use crate::common::{Checker, check, check_blocks, drain_all, key, large, must_fail, ring, small};
use loom::thread;

#[test]
fn a_block_is_used_again_after_it_was_read() {
    check(3, || {
        // One block, and one large record to a block.
        let (ring, key) = (ring(1, 1), key());
        let thread = ring.thread();
        thread.write(&key, &large(0));
        let drain = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut checker = Checker::default();
                ring.drain().unwrap().round(&mut checker);
                checker
            })
        };
        // Hands the block over and finds no other; then finds the same one, if the drain has read
        // it meanwhile.
        thread.write(&key, &large(1));
        thread.write(&key, &small(2));
        let mut checker = drain.join().unwrap();
        thread.end();
        drain_all(&ring, &mut checker);
        assert_eq!(checker.accounted(), 3);
        assert!(checker.all_ended());
        check_blocks(&ring);
    });
}

#[test]
fn not_with_a_relaxed_push() {
    must_fail(
        "relaxed_push",
        "blocks_go_round::a_block_is_used_again_after_it_was_read",
    );
}
