//! Sessions in block mode: their writers wait for room and lose nothing; nobody waits who could keep
//! the drain from making room; a session beside keeps its events.
#![cfg(not(loom))]

mod common;

use common::{Collector, Model, Rng, leak_ring, repetitions, session_key};
use eventpipe_ring::{EventKey, LossReason, RecordOptions, Ring};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn write(ring: &'static Ring, key: &'static EventKey, model: &mut Model, extra: u64) {
    ring.write(key, model.next(extra), &RecordOptions::default());
}

/// Everything up to now.
fn drain_to_now(ring: &'static Ring, collector: &mut Collector) {
    let now = eventpipe_os::clock::ticks();
    let mut drain = ring.drain().expect("the only drain");
    while drain.round(collector).boundary_ticks < now {}
}

/// Fills the pool with events that are lost when it is full, so that the next one finds no room.
fn fill(ring: &'static Ring) {
    let key = session_key(0b10, 0);
    thread::spawn(move || {
        let mut model = Model::new();
        while ring.statistics().lost == 0 {
            write(ring, key, &mut model, 4_000);
        }
        while ring.statistics().free_bytes > 0 {
            write(ring, key, &mut model, 60_000);
        }
    })
    .join()
    .unwrap();
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_slow_drain_slows_writers_and_costs_no_event() {
    let ring = leak_ring(0);
    ring.set_blocking(0, true);
    let key = session_key(0b1, 0);
    let (threads, events) = (8, repetitions(3_000));
    let running = AtomicU64::new(threads);
    let mut collector = Collector::exact();
    thread::scope(|scope| {
        for writer in 0..threads {
            let running = &running;
            scope.spawn(move || {
                let mut random = Rng::new(writer + 1);
                let mut model = Model::new();
                for number in 0..events {
                    // Some need a big block, of which this pool has one.
                    let largest = if number % 50 == 0 { 60_000 } else { 300 };
                    write(ring, key, &mut model, random.below(largest));
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut drain = ring.drain().unwrap();
        let mut waited = 0;
        while running.load(Ordering::Acquire) != 0 {
            drain.round(&mut collector);
            waited += ring.waiting();
            thread::sleep(Duration::from_micros(100));
        }
        assert_ne!(waited, 0, "the pool was to be too small");
    });
    drain_to_now(ring, &mut collector);
    assert_eq!(
        (collector.grand_total(0), collector.lost_total()),
        (threads * events, 0)
    );
    assert_eq!(ring.waiting(), 0);
}

#[test]
fn a_session_beside_keeps_its_part_of_the_pool() {
    let ring = leak_ring(8 << 20);
    ring.set_blocking(0, true);
    let (blocking, dropping) = (session_key(0b1, 0), session_key(0b10, 1));
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let mut collector = Collector::exact();
    let running = AtomicU64::new(3);
    let beside = thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut model = Model::new();
                while !stop.load(Ordering::Relaxed) {
                    write(ring, blocking, &mut model, 200);
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        // Never more than a few blocks between two rounds of the drain: they are always there, however much the others
        // write.
        let beside = scope.spawn(|| {
            let mut model = Model::new();
            for _ in 0..repetitions(200) {
                for _ in 0..100 {
                    write(ring, dropping, &mut model, 100);
                }
                let now = rounds.load(Ordering::Acquire);
                wait_until(|| rounds.load(Ordering::Acquire) > now + 1);
            }
            repetitions(200) * 100
        });
        let mut drain = ring.drain().unwrap();
        while !beside.is_finished() {
            // Slow: the pool is used up most of the time.
            wait_until(|| ring.waiting() > 0 || beside.is_finished());
            drain.round(&mut collector);
            rounds.fetch_add(1, Ordering::Release);
        }
        stop.store(true, Ordering::Relaxed);
        // Each may write once more, and wait for it.
        while running.load(Ordering::Acquire) > 0 {
            drain.round(&mut collector);
        }
        beside.join().unwrap()
    });
    drain_to_now(ring, &mut collector);
    assert_eq!(
        (collector.grand_total(1), collector.lost_total()),
        (beside, 0)
    );
}

#[test]
fn the_end_of_a_session_releases_its_writers() {
    let ring = leak_ring(0);
    ring.set_blocking(0, true);
    let key = session_key(0b1, 0);
    fill(ring);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| write(ring, key, &mut Model::new(), 10));
        }
        wait_until(|| ring.waiting() == 8);
        key.mask.store(0, Ordering::SeqCst);
        ring.tell_waiting();
    });
    ring.quiesce();
    let mut collector = Collector::default();
    drain_to_now(ring, &mut collector);
    // They have not been written for a session that has gone, and not been counted.
    assert_eq!(collector.grand_total(0), 0);
}

#[test]
fn a_full_output_holds_its_own_writers_only() {
    let ring = leak_ring(1 << 20);
    ring.set_blocking(0, true);
    ring.set_blocking(1, true);
    let (held, free) = (session_key(0b1, 0), session_key(0b10, 1));
    ring.hold(0);
    let mut collector = Collector::exact();
    thread::scope(|scope| {
        scope.spawn(|| write(ring, held, &mut Model::new(), 10));
        wait_until(|| ring.waiting() == 1);
        scope
            .spawn(|| write(ring, free, &mut Model::new(), 10))
            .join()
            .unwrap();
        assert_eq!(ring.waiting(), 1);
        drain_to_now(ring, &mut collector);
        assert_eq!(ring.waiting(), 1, "a round does not release it");
        ring.lift(0);
    });
    drain_to_now(ring, &mut collector);
    assert_eq!((collector.grand_total(0), collector.grand_total(1)), (1, 1));
}

static IN_HANDLER: std::sync::OnceLock<(&'static Ring, &'static EventKey)> =
    std::sync::OnceLock::new();

extern "C" fn handler(_: i32) {
    if let Some((ring, key)) = IN_HANDLER.get() {
        ring.write(key, &[0_u8; 24], &RecordOptions::default());
    }
}

fn install(signal: i32) {
    // SAFETY: all zero is a valid action: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // SAFETY: a complete action.
    let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// Each of these would hang.
#[test]
fn nobody_waits_who_must_not() {
    let ring = leak_ring(0);
    ring.set_blocking(0, true);
    let key = session_key(0b1, 0);
    IN_HANDLER.set((ring, key)).expect("the only test of this");
    install(libc::SIGUSR1);
    fill(ring);
    let mut expected = 0;
    // A signal handler: of a thread that does something else,
    thread::spawn(|| {
        // SAFETY: the handler is installed.
        unsafe { libc::raise(libc::SIGUSR1) };
    })
    .join()
    .unwrap();
    expected += 1;
    // and of one that waits.
    let waiter = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no preconditions.
            waiter.store(unsafe { libc::pthread_self() } as u64, Ordering::Release);
            ring.write(key, &[0_u8; 24], &RecordOptions::default());
        });
        wait_until(|| ring.waiting() == 1);
        let lost = || ring.statistics().lost;
        let before = lost();
        let waiter = waiter.load(Ordering::Acquire) as libc::pthread_t;
        // SAFETY: the thread waits, so it is alive.
        unsafe { libc::pthread_kill(waiter, libc::SIGUSR1) };
        wait_until(|| lost() > before);
        assert_eq!(ring.waiting(), 1, "it waits on");
        expected += 1;
        // A thread that was told not to, for ever or for now.
        thread::spawn(|| {
            ring.never_wait();
            ring.write(key, &[0_u8; 24], &RecordOptions::default());
        })
        .join()
        .unwrap();
        thread::spawn(|| {
            ring.exempt(eventpipe_os::thread::os_thread_id());
            ring.write(key, &[0_u8; 24], &RecordOptions::default());
            ring.exempt(0);
        })
        .join()
        .unwrap();
        expected += 2;
        key.mask.store(0, Ordering::SeqCst);
        ring.tell_waiting();
    });
    ring.quiesce();
    let mut lost = Lost::default();
    let now = eventpipe_os::clock::ticks();
    let mut drain = ring.drain().unwrap();
    while drain.round(&mut lost).boundary_ticks < now {}
    drain.collect_lost(1, &mut lost);
    assert_eq!(lost.0, expected);
}

/// Losses of session 0.
#[derive(Default)]
struct Lost(u64);

impl eventpipe_ring::Sink for Lost {
    fn thread(&mut self, _: eventpipe_ring::ThreadInfo) {}
    fn record(&mut self, record: &eventpipe_ring::Record<'_>, _: bool) {
        assert_eq!(record.sessions & 1, 0, "there was no room");
    }
    fn lost(&mut self, session: u32, count: u64, _: LossReason) {
        self.0 += if session == 0 { count } else { 0 };
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}
