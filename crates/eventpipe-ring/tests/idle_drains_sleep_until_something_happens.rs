//! A drain that sleeps idle is woken by the first event, once; and by nothing else.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, repetitions, session_key};
use eventpipe_os::sync::Signal;
use eventpipe_ring::{Drain, RecordOptions, Ring};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn fall_asleep(drain: &mut Drain<'_>, collector: &mut Collector) {
    for _ in 0..1000 {
        drain.round(collector);
        if drain.prepare_idle() {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    panic!("the ring does not come to rest: {collector:?}");
}

#[test]
fn the_first_event_wakes_and_the_next_ones_do_not() {
    static SIGNAL: Signal = Signal::new();
    let ring: &'static Ring = leak_ring(1 << 20);
    ring.set_wake(&SIGNAL);
    let key = session_key(1, 1);
    let mut model = Model::new();
    let mut collector = Collector::exact();
    let mut drain = ring.drain().unwrap();
    for _ in 0..10 {
        fall_asleep(&mut drain, &mut collector);
        assert!(!SIGNAL.wait(Some(0)));
        ring.write(key, model.next(10), &RecordOptions::default());
        assert!(SIGNAL.wait(Some(0)), "the first event wakes");
        ring.write(key, model.next(10), &RecordOptions::default());
        assert!(!SIGNAL.wait(Some(0)), "the next ones do not");
    }
    fall_asleep(&mut drain, &mut collector);
    assert_eq!(collector.delivered_total(), 20);
    assert_eq!(ring.statistics().free_bytes, ring.statistics().pool_bytes);
}

#[test]
fn a_loss_without_a_block_wakes_too() {
    static SIGNAL: Signal = Signal::new();
    let ring: &'static Ring = leak_ring(1 << 20);
    ring.set_wake(&SIGNAL);
    let key = session_key(1, 1);
    let mut collector = Collector::default();
    let mut drain = ring.drain().unwrap();
    fall_asleep(&mut drain, &mut collector);
    ring.write(key, &vec![0u8; 70_000][..], &RecordOptions::default());
    assert!(SIGNAL.wait(Some(0)));
    fall_asleep(&mut drain, &mut collector);
    assert_eq!(collector.lost_total(), 1);
}

#[test]
fn a_thread_that_loses_event_after_event_does_not_end_the_pauses() {
    static SIGNAL: Signal = Signal::new();
    let ring: &'static Ring = leak_ring(1 << 20);
    ring.set_wake(&SIGNAL);
    let key = session_key(1, 1);
    let mut collector = Collector::default();
    let mut drain = ring.drain().unwrap();
    let stop = AtomicBool::new(false);
    let (mut pauses, mut ended) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ring.write(key, &[0u8; 70_000][..], &RecordOptions::default());
            }
        });
        let wanted = repetitions(1000);
        while pauses < wanted {
            drain.round(&mut collector);
            // Asleep, it is to be woken.
            let asleep = drain.prepare_idle();
            let woken = SIGNAL.wait(Some(20_000));
            if !asleep {
                pauses += 1;
                ended += u64::from(woken);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(ended * 4 <= pauses, "{ended} of {pauses} pauses were ended");
    fall_asleep(&mut drain, &mut collector);
    assert_eq!(
        collector.lost_total(),
        ring.statistics().lost,
        "and all of them are told"
    );
}

#[test]
fn an_eighth_of_the_pool_wakes_a_drain_that_polls() {
    static SIGNAL: Signal = Signal::new();
    let ring: &'static Ring = leak_ring(1 << 20);
    ring.set_wake(&SIGNAL);
    let key = session_key(1, 1);
    let mut model = Model::new();
    let mut written = 0;
    while !SIGNAL.wait(Some(0)) {
        ring.write(key, model.next(1000), &RecordOptions::default());
        written += 1;
        assert!(written < 10_000);
    }
    assert!(ring.statistics().full_bytes * 8 >= ring.statistics().pool_bytes);
    assert!(ring.statistics().full_bytes * 4 < ring.statistics().pool_bytes);
}
