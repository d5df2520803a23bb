//! 100,000 threads come and go, a hundred at a time, half of them only losing events: every event
//! is accounted for, slots are used again, and memory does not grow with the number of threads.
#![cfg(not(loom))]

mod common;

use common::{leak_ring, repetitions, session_key};
use eventpipe_ring::{LossReason, Record, RecordOptions, Sink, ThreadInfo};
use std::sync::atomic::{AtomicBool, Ordering};

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[derive(Debug, Default)]
struct Count {
    told: u64,
    last: u64,
    records: u64,
    lost: u64,
    ended: u64,
}

impl Sink for Count {
    fn thread(&mut self, thread: ThreadInfo) {
        self.told += u64::from(thread.uid != self.last);
        self.last = thread.uid;
    }
    fn record(&mut self, _: &Record<'_>, _: bool) {
        self.records += 1;
    }
    fn lost(&mut self, _: u32, count: u64, _: LossReason) {
        self.lost += count;
    }
    fn thread_ended(&mut self, _: u64) {
        self.ended += 1;
    }
    fn boundary(&mut self, _: u64) {}
}

#[test]
fn neither_memory_nor_doubt() {
    let threads = repetitions(100_000) / 200 * 200;
    let ring = leak_ring(4 << 20);
    let key = session_key(1, 1);
    let stop = AtomicBool::new(false);
    let mut count = Count::default();
    let mut grown = 0;
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            let mut count = Count::default();
            let mut drain = ring.drain().unwrap();
            loop {
                let ending = stop.load(Ordering::Acquire);
                let now = eventpipe_os::clock::ticks();
                while drain.round(&mut count).boundary_ticks < now && ending {}
                if ending {
                    drain.round(&mut count);
                    return count;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        let mut before = 0;
        for batch in 0..threads / 100 {
            let spawn = |number: u64| {
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                let run = move || {
                    if number.is_multiple_of(2) {
                        ring.write(key, &[0u8; 70], &RecordOptions::default());
                    } else {
                        ring.write(key, &TooLarge, &RecordOptions::default());
                    }
                };
                thread.spawn(run).unwrap()
            };
            // Joined, so that each has run its exit hook and not only its closure.
            let alive: Vec<_> = (0..100).map(spawn).collect();
            alive.into_iter().for_each(|thread| thread.join().unwrap());
            if batch == threads / 1000 {
                before = resident();
            }
        }
        grown = resident().saturating_sub(before);
        stop.store(true, Ordering::Release);
        count = drainer.join().unwrap();
    });
    assert_eq!(count.records + count.lost, threads, "{count:?}");
    assert!(count.lost >= threads / 2);
    assert_eq!(count.ended, threads, "{count:?}");
    let statistics = ring.statistics();
    assert_eq!(statistics.threads, threads);
    assert!(statistics.slots < 10_000, "{statistics:?}");
    assert!(grown < 50 << 20, "{grown} bytes more");
}

struct TooLarge;

impl eventpipe_ring::Payload for TooLarge {
    fn len(&self) -> usize {
        100_000
    }
    fn copy_to(&self, _: &mut [u8]) {
        unreachable!("too large to be copied");
    }
}
