//! A writer publishes, the drain reads at the same time: complete records, in order, each once.

use crate::common::{Checker, check, drain_all, key, must_fail, ring, small};
use loom::thread;

#[test]
fn records_are_complete_when_they_are_seen() {
    check(2, || {
        let (ring, key) = (ring(1, 1), key());
        let writer = {
            let ring = ring.clone();
            thread::spawn(move || {
                let thread = ring.thread();
                thread.write(&key, &small(0));
                thread.write(&key, &small(1));
            })
        };
        let mut checker = Checker::default();
        ring.drain().unwrap().round(&mut checker);
        ring.drain().unwrap().round(&mut checker);
        writer.join().unwrap();
        drain_all(&ring, &mut checker);
        assert_eq!(checker.accounted(), 2);
        assert_eq!(checker.lost(), 0);
    });
}

#[test]
fn not_with_a_relaxed_commit() {
    must_fail(
        "relaxed_commit",
        "published_records_are_read::records_are_complete_when_they_are_seen",
    );
}
