//! The tagged stack: every index has one holder, who sees what the holder before did.

use crate::common::{check, must_fail};
use eventpipe_ring::model::Stack;
use loom::sync::Arc;
use loom::thread;

#[test]
fn an_index_has_one_holder_at_a_time() {
    check(5, || {
        let stack = Arc::new(Stack::new(2));
        let other = {
            let stack = stack.clone();
            thread::spawn(move || {
                let first = stack.pop();
                let second = stack.pop();
                if let Some(index) = first {
                    stack.touch(index);
                    // Back on top while the one below stays out: the head looks as before (ABA).
                    stack.push(index);
                }
                if let Some(index) = second {
                    stack.touch(index);
                    stack.touch(index);
                }
            })
        };
        if let Some(index) = stack.pop() {
            stack.touch(index);
            if let Some(next) = stack.pop() {
                stack.touch(next);
            }
        }
        other.join().unwrap();
    });
}

#[test]
fn not_without_tags() {
    must_fail(
        "untagged_stack",
        "stacks_hand_over::an_index_has_one_holder_at_a_time",
    );
}

#[test]
fn not_with_a_relaxed_push() {
    must_fail(
        "relaxed_push",
        "stacks_hand_over::an_index_has_one_holder_at_a_time",
    );
}
