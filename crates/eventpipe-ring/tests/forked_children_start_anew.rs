//! A child of a fork has an empty ring of its own; the parent's goes on as if nothing had happened.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, session_key};
use eventpipe_ring::{EventKey, RecordOptions, Ring};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static RING: OnceLock<(&'static Ring, &'static EventKey)> = OnceLock::new();

fn in_child() {
    if let Some((ring, key)) = RING.get() {
        key.mask.store(0, Ordering::Relaxed);
        ring.forked_child();
    }
}

fn drain(ring: &'static Ring, collector: &mut Collector) {
    let mut drain = ring.drain().unwrap();
    let now = eventpipe_os::clock::ticks();
    while drain.round(collector).boundary_ticks < now {}
}

/// What the child does; a number that tells what went wrong.
fn child(model: &mut Model) -> i32 {
    let (ring, key) = *RING.get().unwrap();
    // No allocation and no panic machinery before this point: other threads of the parent may have
    // held the allocator's lock at the fork; the C library's own is usable in a child.
    let mut collector = Collector::default();
    drain(ring, &mut collector);
    if collector.delivered_total() + collector.lost_total() != 0 {
        return 1;
    }
    let statistics = ring.statistics();
    if statistics.free_bytes != statistics.pool_bytes || statistics.full_bytes != 0 {
        return 2;
    }
    key.mask.store(1, Ordering::Relaxed);
    for _ in 0..100 {
        ring.write(key, model.next(30), &RecordOptions::default());
    }
    drain(ring, &mut collector);
    if collector.delivered_total() != 100 || collector.lost_total() != 0 {
        return 3;
    }
    if collector.thread_count() != 1 {
        return 4;
    }
    0
}

#[test]
fn while_other_threads_write() {
    RING.set((leak_ring(2 << 20), session_key(1, 1))).unwrap();
    let (ring, key) = *RING.get().unwrap();
    eventpipe_os::process::at_fork_child(in_child).unwrap();
    let stop = AtomicBool::new(false);
    let mut collector = Collector::exact();
    let attempted: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut model = Model::new();
                    let mut count = 0;
                    while !stop.load(Ordering::Relaxed) {
                        ring.write(key, model.next(20), &RecordOptions::default());
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut own = Model::new();
        let mut mine = 0;
        for _ in 0..20 {
            ring.write(key, own.next(20), &RecordOptions::default());
            mine += 1;
            let mut for_child = Model::new();
            // SAFETY: the child allocates (which the C library allows), uses the ring, and leaves
            // by `_exit`.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let code = child(&mut for_child);
                // SAFETY: ends the child.
                unsafe { libc::_exit(code) };
            }
            assert!(pid > 0);
            drain(ring, &mut collector);
            let mut status = 0;
            // SAFETY: our child and a valid place.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert_eq!(status, 0, "the child's step {}", status >> 8);
        }
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .sum::<u64>()
            + mine
    });
    drain(ring, &mut collector);
    drain(ring, &mut collector);
    ring.drain().unwrap().collect_lost(1, &mut collector);
    assert_eq!(collector.grand_total(0), attempted);
}
