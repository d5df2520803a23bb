//! A thread that is preempted in the middle of an event: the others' events go on after 20 ms, no
//! longer marked sorted, and the boundary waits for the straggler. (The collector checks that
//! nothing comes from before the boundary, nor older than what was marked sorted.)
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, Stuck, leak_ring, session_key};
use eventpipe_ring::RecordOptions;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn while_the_others_go_on() {
    let ring = leak_ring(1 << 20);
    let key = session_key(1, 1);
    let (inside, go_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut collector = Collector::exact();
    let mut drain = ring.drain().unwrap();
    let mut model = Model::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut model = Model::new();
            ring.write(key, model.next(1), &RecordOptions::default());
            let payload = Stuck {
                payload: model.next(2),
                inside: &inside,
                go_on: &go_on,
            };
            ring.write(key, &payload, &RecordOptions::default());
        });
        while !inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        ring.write(key, model.next(3), &RecordOptions::default());
        let written = eventpipe_os::clock::ticks();

        // At first nothing that is younger than the event in the making is given.
        let round = drain.round(&mut collector);
        assert!(round.all_sorted && !round.idle && round.boundary_ticks < written);

        // Then the other thread's events come, unsorted, and the boundary waits.
        let unsorted = loop {
            let round = drain.round(&mut collector);
            if !round.all_sorted {
                break round;
            }
            assert!(round.boundary_ticks < written);
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(unsorted.boundary_ticks < written);
        assert_eq!(collector.delivered_total(), 2);
        for _ in 0..100 {
            ring.write(key, model.next(3), &RecordOptions::default());
        }
        let now = eventpipe_os::clock::ticks();
        while collector.delivered_total() < 102 {
            assert!(drain.round(&mut collector).boundary_ticks < written);
        }

        // And when it has left, everything is as before.
        go_on.store(true, Ordering::Release);
        while drain.round(&mut collector).boundary_ticks < now {}
        assert_eq!(collector.delivered_total(), 103);
        assert!(drain.round(&mut collector).all_sorted);
    });
}
