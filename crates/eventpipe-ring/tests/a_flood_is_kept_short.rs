//! Writers that do not wait may fill the pool once. When that is not enough, and what comes behind the drain grows, no more
//! waits for the drain than a processor's cache holds, until the flood is over. Every event is accounted for meanwhile.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, session_key};
use eventpipe_ring::{EventKey, RecordOptions, Ring};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const POOL: usize = 16 << 20;
const PAYLOAD: u64 = 400;
/// More than the pool holds.
const FLOOD: u64 = (2 * POOL) as u64 / PAYLOAD;

fn flood(ring: &'static Ring, key: &'static EventKey, model: &mut Model) -> u64 {
    for _ in 0..FLOOD {
        ring.write(key, model.next(PAYLOAD), &RecordOptions::default());
    }
    let statistics = ring.statistics();
    statistics.pool_bytes - statistics.free_bytes
}

#[test]
fn but_a_burst_has_the_whole_pool() {
    let ring = leak_ring(POOL);
    let key = session_key(0b1, 0);
    let mut model = Model::new();
    let mut collector = Collector::exact();
    let mut drain = ring.drain().expect("the only drain");
    let most = POOL as u64 * 9 / 10;

    assert!(!ring.is_flooded());
    assert!(flood(ring, key, &mut model) > most);
    assert!(ring.is_flooded());
    drain.round(&mut collector);
    // Nothing behind the drain has grown.
    assert!(flood(ring, key, &mut model) > most);

    ring.rein_in();
    drain.round(&mut collector);
    let held = flood(ring, key, &mut model);
    assert!((512 << 10..1 << 20).contains(&held), "{held}");
    drain.round(&mut collector);
    let held = flood(ring, key, &mut model);
    assert!((512 << 10..1 << 20).contains(&held), "{held}");

    // Some rounds without a loss are not the end of it, some time without is.
    let mut rounds = 0;
    while ring.is_flooded() {
        drain.round(&mut collector);
        rounds += 1;
    }
    assert!(rounds > 2, "{rounds}");
    assert!(flood(ring, key, &mut model) > most);

    let now = eventpipe_os::clock::ticks();
    while drain.round(&mut collector).boundary_ticks < now {}
    drain.collect_lost(u64::MAX, &mut collector);
    assert_eq!(collector.grand_total(0), 5 * FLOOD);
}

fn pin_to(processor: usize) {
    // SAFETY: zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a number that the system gave; a larger one than the set has would be a panic.
    unsafe { libc::CPU_SET(processor, &mut set) };
    // SAFETY: the set lives for as long as the call.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(result, 0);
}

/// The drain may have no processor because writers have them all: here one, for a writer and for whoever could make room.
#[test]
fn and_who_loses_gives_way() {
    const TURNS: u64 = 100;
    let ring = leak_ring(POOL);
    let key = session_key(0b1, 0);
    let mut model = Model::new();
    flood(ring, key, &mut model);

    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    let turns = AtomicU64::new(0);
    // SAFETY: no arguments; the processor is one that this thread may run on.
    let processor = usize::try_from(unsafe { libc::sched_getcpu() }).expect("a processor");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_to(processor);
            begun.store(true, Ordering::Release);
            while !done.load(Ordering::Acquire) {
                turns.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        pin_to(processor);
        while !begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        let before = turns.load(Ordering::Relaxed);
        // That takes a fraction of a millisecond, and the system gives turns of some milliseconds.
        for _ in 0..TURNS * 512 {
            ring.write(key, &[0; 8][..], &RecordOptions::default());
        }
        let given = turns.load(Ordering::Relaxed) - before;
        done.store(true, Ordering::Release);
        assert!(given > TURNS / 2, "{given}");
    });
}

/// A session in block mode waits for what the pool has room for, as before.
#[test]
fn and_who_waits_is_not_concerned() {
    let ring = leak_ring(POOL);
    ring.set_blocking(1, true);
    let (drops, waits) = (session_key(0b01, 0), session_key(0b10, 1));
    let mut model = Model::new();
    let mut collector = Collector::exact();
    let mut drain = ring.drain().expect("the only drain");
    flood(ring, drops, &mut model);
    ring.rein_in();
    drain.round(&mut collector);
    flood(ring, drops, &mut model);
    let lost = ring.statistics().lost;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut model = Model::new();
            for _ in 0..POOL as u64 / 2 / PAYLOAD {
                ring.write(waits, model.next(PAYLOAD), &RecordOptions::default());
            }
        });
    });
    assert_eq!(ring.statistics().lost, lost);
    let now = eventpipe_os::clock::ticks();
    while drain.round(&mut collector).boundary_ticks < now {}
    drain.collect_lost(u64::MAX, &mut collector);
    assert_eq!(collector.grand_total(0), 2 * FLOOD);
    assert_eq!(collector.grand_total(1), POOL as u64 / 2 / PAYLOAD);
}
