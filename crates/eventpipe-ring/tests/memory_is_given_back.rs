//! The pool's pages: taken at the start, given back after the last session, taken again with
//! another size; a thread's use of it is bounded.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, session_key};
use eventpipe_ring::{RecordOptions, Ring};
use std::sync::atomic::Ordering;

/// Resident pages of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn come_to_rest(ring: &'static Ring, collector: &mut Collector) {
    let mut drain = ring.drain().unwrap();
    for _ in 0..1000 {
        drain.round(collector);
        if drain.prepare_idle() {
            return;
        }
    }
    panic!("the ring does not come to rest");
}

#[test]
fn and_taken_again() {
    const MIB: u64 = 1 << 20;
    let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
    let key = session_key(0, 1);
    let mut model = Model::new();
    let mut collector = Collector::default();
    for size in [32 * MIB, 32 * MIB, 8 * MIB, 64 * MIB] {
        let before = resident();
        ring.start(size as usize).unwrap();
        let grown = resident() - before;
        assert!(
            grown >= size * 9 / 10,
            "the pages are present: {grown} of {size}"
        );
        assert!(
            grown <= size * 11 / 10,
            "and not more than that: {grown} of {size}"
        );
        assert_eq!(ring.start(1 << 20), Ok(()), "already there");
        key.mask.store(1, Ordering::Relaxed);
        for _ in 0..1000 {
            ring.write(key, model.next(100), &RecordOptions::default());
        }
        assert!(!ring.release(), "a block is in use");
        key.mask.store(0, Ordering::Relaxed);
        ring.quiesce();
        come_to_rest(ring, &mut collector);
        assert!(ring.release());
        assert_eq!(ring.statistics().pool_bytes, 0);
        assert!(
            resident() < before + 2 * MIB,
            "given back: {} more than before",
            resident() - before
        );
    }
    assert_eq!(
        (collector.delivered_total(), collector.lost_total()),
        (4000, 0)
    );
}

#[test]
fn absurd_sizes_are_refused_or_raised() {
    let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
    assert!(ring.start(usize::MAX).is_err());
    assert!(ring.start(1 << 40).is_err());
    assert!(ring.start(0).is_ok());
    assert!(ring.statistics().pool_bytes >= 200 << 10);
}
