//! Writers that do not wait may fill the pool once. When that is not enough, and what comes behind the drain grows, no more
//! waits for the drain than a processor's cache holds, until the flood is over. Every event is accounted for meanwhile.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, session_key};
use eventpipe_ring::{EventKey, RecordOptions, Ring};

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

    // A round with losses, which began before, and one without.
    drain.round(&mut collector);
    assert!(ring.is_flooded());
    drain.round(&mut collector);
    assert!(!ring.is_flooded());
    assert!(flood(ring, key, &mut model) > most);

    let now = eventpipe_os::clock::ticks();
    while drain.round(&mut collector).boundary_ticks < now {}
    drain.collect_lost(u64::MAX, &mut collector);
    assert_eq!(collector.grand_total(0), 5 * FLOOD);
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
