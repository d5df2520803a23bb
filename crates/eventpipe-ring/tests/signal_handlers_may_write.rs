//! Events inside events: what interrupts a writer in the middle of a record writes its own; one
//! level deeper it is counted.
#![cfg(not(loom))]

mod common;

use common::{leak_ring, session_key};
use eventpipe_ring::{
    EventKey, LossReason, Payload, Record, RecordOptions, Ring, Sink, ThreadInfo,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static RING: OnceLock<(&'static Ring, &'static EventKey)> = OnceLock::new();
static IN_HANDLERS: AtomicU64 = AtomicU64::new(0);

fn ring() -> (&'static Ring, &'static EventKey) {
    *RING.get_or_init(|| (leak_ring(2 << 20), session_key(1, 1)))
}

/// A payload whose copying is interrupted by signals.
struct Interrupted {
    mark: u8,
    signals: &'static [i32],
}

impl Payload for Interrupted {
    fn len(&self) -> usize {
        16
    }
    fn copy_to(&self, out: &mut [u8]) {
        out[..8].fill(self.mark);
        for signal in self.signals {
            // SAFETY: the handlers are installed and only write events.
            unsafe { libc::raise(*signal) };
        }
        out[8..].fill(self.mark);
    }
}

extern "C" fn first_handler(_: i32) {
    let (ring, key) = ring();
    ring.write(
        key,
        &Interrupted {
            mark: 2,
            signals: &[libc::SIGUSR2],
        },
        &RecordOptions::default(),
    );
}

extern "C" fn second_handler(_: i32) {
    let (ring, key) = ring();
    ring.write(
        key,
        &Interrupted {
            mark: 3,
            signals: &[],
        },
        &RecordOptions::default(),
    );
}

extern "C" fn timer_handler(_: i32) {
    let (ring, key) = ring();
    ring.write(
        key,
        &Interrupted {
            mark: 4,
            signals: &[],
        },
        &RecordOptions::default(),
    );
    IN_HANDLERS.fetch_add(1, Ordering::Relaxed);
}

fn install(signal: i32, handler: extern "C" fn(i32)) {
    // SAFETY: all zero is a valid action: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: a complete action.
    let result = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
    assert_eq!(result, 0);
}

#[derive(Debug, Default)]
struct Marks {
    records: BTreeMap<u8, u64>,
    lost: BTreeMap<u32, u64>,
    /// By thread: the tick of its last record that nothing older was to follow. Where a round did not wait any longer for a thread that
    /// was preempted inside of an event, what interrupted that event is given before it, and not marked sorted.
    sorted_from: BTreeMap<u64, u64>,
    current: u64,
}

impl Sink for Marks {
    fn thread(&mut self, thread: ThreadInfo) {
        // Identity by kernel id: what is too deep has a slot of its own.
        self.current = thread.os_thread_id;
    }
    fn record(&mut self, record: &Record<'_>, sorted: bool) {
        let mark = record.payload[0];
        assert!(
            record.payload.iter().all(|byte| *byte == mark),
            "torn by an interruption"
        );
        let sorted_from = self.sorted_from.entry(self.current).or_default();
        assert!(*sorted_from <= record.ticks, "back in time");
        if sorted {
            *sorted_from = record.ticks;
        }
        *self.records.entry(mark).or_default() += 1;
    }
    fn lost(&mut self, _: u32, count: u64, reason: LossReason) {
        *self.lost.entry(reason as u32).or_default() += count;
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}

/// A failure in the thread that drains ends the thread that writes, too.
struct LetGo;

impl Drop for LetGo {
    fn drop(&mut self) {
        IN_HANDLERS.fetch_max(ENOUGH, Ordering::Relaxed);
    }
}

/// So many signals at any point of the write path.
const ENOUGH: u64 = 300;

#[test]
fn every_level_is_delivered_or_counted() {
    install(libc::SIGUSR1, first_handler);
    install(libc::SIGUSR2, second_handler);
    install(libc::SIGALRM, timer_handler);
    let (ring, key) = ring();
    let mut marks = Marks::default();
    let nested = 2_000;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The first event of a thread may also be one in a handler.
            // SAFETY: the handler is installed.
            unsafe { libc::raise(libc::SIGALRM) };
            let payload = Interrupted {
                mark: 1,
                signals: &[libc::SIGUSR1],
            };
            for _ in 0..nested {
                ring.write(key, &payload, &RecordOptions::default());
            }
        });
    });
    // Then signals at any point of the write path, not only in the copy.
    let handle = AtomicU64::new(0);
    let plain = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no preconditions.
            handle.store(unsafe { libc::pthread_self() } as u64, Ordering::Release);
            while IN_HANDLERS.load(Ordering::Relaxed) < ENOUGH {
                let payload = Interrupted {
                    mark: 5,
                    signals: &[],
                };
                ring.write(key, &payload, &RecordOptions::default());
                plain.fetch_add(1, Ordering::Relaxed);
            }
            handle.store(0, Ordering::Release);
        });
        let _let_go = LetGo;
        let mut drain = ring.drain().unwrap();
        while IN_HANDLERS.load(Ordering::Relaxed) < ENOUGH {
            for _ in 0..20 {
                match handle.load(Ordering::Acquire) {
                    0 => {}
                    // SAFETY: the thread is joined by the end of the scope, so its handle is valid.
                    handle => unsafe {
                        libc::pthread_kill(handle as libc::pthread_t, libc::SIGALRM);
                    },
                }
                // Some events between two signals.
                for _ in 0..500 {
                    std::hint::spin_loop();
                }
            }
            drain.round(&mut marks);
        }
    });
    key.mask.store(0, Ordering::Relaxed);
    ring.quiesce();
    let now = eventpipe_os::clock::ticks();
    let mut drain = ring.drain().unwrap();
    while drain.round(&mut marks).boundary_ticks < now {}
    drain.collect_lost(1, &mut marks);
    let lost = |reason: LossReason| marks.lost.get(&(reason as u32)).copied().unwrap_or(0);
    let delivered: u64 = marks.records.values().sum();
    let attempted =
        3 * nested + plain.load(Ordering::Relaxed) + IN_HANDLERS.load(Ordering::Relaxed);
    assert_eq!(
        delivered + marks.lost.values().sum::<u64>(),
        attempted,
        "{marks:?}"
    );
    // The third level is never written.
    assert_eq!(lost(LossReason::Reentered), nested, "{marks:?}");
    assert_eq!(marks.records.get(&3), None);
    assert!(marks.records.contains_key(&4), "{marks:?}");
}
