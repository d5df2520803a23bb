//! Before, between and after: in destructors of thread-locals, in those of pthread keys, in exit
//! handlers.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, leak_ring, session_key};
use eventpipe_ring::{EventKey, RecordOptions, Ring, Sink};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static RING: OnceLock<(&'static Ring, &'static EventKey)> = OnceLock::new();
static WRITTEN: AtomicU64 = AtomicU64::new(0);

fn write_one() {
    let (ring, key) = *RING.get().unwrap();
    ring.write(key, Model::new().next(40), &RecordOptions::default());
    WRITTEN.fetch_add(1, Ordering::Relaxed);
}

/// What was delivered or lost, counted only.
#[derive(Debug, Default)]
struct Count {
    records: u64,
    told: u64,
    ended: u64,
}

impl Sink for Count {
    fn thread(&mut self, _: eventpipe_ring::ThreadInfo) {
        self.told += 1;
    }
    fn record(&mut self, _: &eventpipe_ring::Record<'_>, _: bool) {
        self.records += 1;
    }
    fn lost(&mut self, _: u32, _: u64, reason: eventpipe_ring::LossReason) {
        panic!("lost: {reason:?}");
    }
    fn thread_ended(&mut self, _: u64) {
        self.ended += 1;
    }
    fn boundary(&mut self, _: u64) {}
}

fn drain(ring: &'static Ring, sink: &mut impl Sink) {
    let mut drain = ring.drain().unwrap();
    let now = eventpipe_os::clock::ticks();
    while drain.round(sink).boundary_ticks < now {}
}

extern "C" fn key_destructor(value: *mut c_void) {
    write_one();
    // Again and again, until the C library has enough of it: long after the ring's own hook.
    let key = KEY.load(Ordering::Relaxed) as libc::pthread_key_t;
    // SAFETY: a key that was made below and a value that nobody dereferences.
    unsafe { libc::pthread_setspecific(key, value) };
}

static KEY: AtomicU64 = AtomicU64::new(0);

#[test]
fn in_every_destructor() {
    RING.set((leak_ring(4 << 20), session_key(1, 1))).unwrap();
    let (ring, _) = *RING.get().unwrap();
    let mut key: libc::pthread_key_t = 0;
    // SAFETY: a valid place and a function that fits.
    let result = unsafe { libc::pthread_key_create(&mut key, Some(key_destructor)) };
    assert_eq!(result, 0);
    KEY.store(key.into(), Ordering::Relaxed);

    struct Last(RefCell<Vec<u8>>);
    impl Drop for Last {
        fn drop(&mut self) {
            write_one();
            assert!(self.0.borrow().is_empty());
        }
    }
    std::thread_local!(static LAST: Last = const { Last(RefCell::new(Vec::new())) });

    let before = ring.statistics().slots;
    for _ in 0..50 {
        std::thread::spawn(move || {
            LAST.with(|last| last.0.borrow_mut().clear());
            write_one();
            // SAFETY: the key exists.
            unsafe { libc::pthread_setspecific(key, std::ptr::without_provenance(1)) };
        })
        .join()
        .unwrap();
    }
    let mut count = Count::default();
    drain(ring, &mut count);
    let written = WRITTEN.load(Ordering::Relaxed);
    assert!(
        written >= 50 * 3,
        "{written} events: one in the thread, one in the thread-local, some in the key"
    );
    assert_eq!(count.records, written);
    // Slots were given back each time, whatever was written after the thread's life with us.
    assert!(
        ring.statistics().slots <= before + 2,
        "{:?}",
        ring.statistics()
    );
    assert!(count.ended > 0 && count.ended == ring.statistics().threads);
}

#[test]
fn ring_instances_do_not_disturb_each_other() {
    let (first, second) = (leak_ring(0), leak_ring(0));
    let key = session_key(1, 1);
    let (mut one, mut other) = (Model::new(), Model::new());
    for _ in 0..20 {
        first.write(key, one.next(3), &RecordOptions::default());
        second.write(key, other.next(5), &RecordOptions::default());
    }
    for ring in [first, second] {
        let mut collector = Collector::default();
        drain(ring, &mut collector);
        assert_eq!(collector.delivered_total(), 20);
    }
}
