//! What writing an event costs its thread: nanoseconds per event, best and median of some rounds,
//! beside the targets.
//!
//! `cargo bench -p eventpipe-ring --bench write [-- os]` (`os`: with the system's clock instead of
//! the processor's counter). Not a criterion bench: each round must stop before the pool is full,
//! and drain outside of the measured time.

use eventpipe_ring::{EventKey, LossReason, Record, RecordOptions, Ring, Sink, ThreadInfo};
use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::time::Instant;

static RING: Ring = Ring::new();
static EVENT: EventKey = EventKey::new(0);

#[derive(Debug, Default)]
struct Discard(u64);

impl Sink for Discard {
    fn thread(&mut self, _: ThreadInfo) {}
    fn record(&mut self, record: &Record<'_>, _: bool) {
        self.0 = self
            .0
            .wrapping_add(record.ticks ^ u64::from(*record.payload.last().unwrap_or(&0)));
    }
    fn lost(&mut self, _: u32, count: u64, _: LossReason) {
        self.0 += count;
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}

/// Gives everything to a sink that looks at each record; nanoseconds and records.
fn drain() -> (f64, u64) {
    let mut drain = RING.drain().expect("the only drain");
    let mut sink = Discard::default();
    let now = eventpipe_os::clock::ticks();
    let start = Instant::now();
    let mut records = 0;
    loop {
        let round = drain.round(&mut sink);
        records += round.records;
        if round.boundary_ticks >= now {
            break;
        }
    }
    black_box(sink.0);
    (start.elapsed().as_nanos() as f64, records)
}

fn measure(name: &str, target: f64, events: u32, mut event: impl FnMut()) {
    let mut samples = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..events {
            event();
        }
        samples.push(start.elapsed().as_nanos() as f64 / f64::from(events));
        drain();
    }
    report(name, target, samples);
}

fn report(name: &str, target: f64, mut samples: Vec<f64>) {
    samples.sort_by(f64::total_cmp);
    println!(
        "{name:<44} best {:>7.2}   median {:>7.2}   target {target:>6.1}",
        samples[0],
        samples[samples.len() / 2]
    );
}

#[inline(never)]
fn deeper(levels: u32, run: &mut dyn FnMut()) {
    if levels == 0 {
        run();
    } else {
        deeper(levels - 1, run);
        black_box(levels);
    }
}

fn main() {
    let os_clock = std::env::args().any(|argument| argument == "os");
    let plain = std::env::args().any(|argument| argument == "plain");
    if os_clock {
        eventpipe_os::clock::use_os_clock();
    }
    if plain {
        eventpipe_os::barrier::use_plain_fences();
    }
    RING.start(64 << 20).expect("64 MiB");
    println!(
        "clock: {:?}; barrier: {}",
        eventpipe_os::clock::source(),
        if eventpipe_os::barrier::prepare() {
            "membarrier"
        } else {
            "full fences"
        }
    );
    let options = RecordOptions::default();
    let hundred = [7u8; 100];

    measure("disabled", 1.0, 1_000_000, || {
        RING.write(black_box(&EVENT), black_box(&hundred), &options)
    });

    EVENT.mask.store(1, Ordering::Relaxed);
    let (small, large) = if os_clock { (45.0, 45.0) } else { (25.0, 25.0) };
    measure("8 B", small, 4_000, || {
        RING.write(&EVENT, black_box(&[7u8; 8]), &options)
    });
    measure("100 B", large, 4_000, || {
        RING.write(&EVENT, black_box(&hundred), &options)
    });
    measure("1 KiB", 60.0, 1_000, || {
        RING.write(&EVENT, black_box(&[7u8; 1024]), &options)
    });
    deeper(30, &mut || {
        measure("100 B and a walk of 30 frames", 90.0, 4_000, || {
            let mut place = [core::mem::MaybeUninit::uninit(); 30];
            let frames = eventpipe_sampler::walk(&mut place);
            assert_eq!(frames.len(), 30);
            let options = RecordOptions {
                frames,
                ..RecordOptions::default()
            };
            RING.write(&EVENT, black_box(&hundred), &options);
        });
    });
    EVENT.mask.store(u64::MAX, Ordering::Relaxed);
    measure("100 B, 64 sessions", large, 4_000, || {
        RING.write(&EVENT, black_box(&hundred), &options)
    });
    EVENT.mask.store(1, Ordering::Relaxed);

    measure(
        "a thread's slot, one event of 100 B, its end",
        200.0,
        5_000,
        || {
            RING.write_once(&EVENT, black_box(&hundred), &options);
        },
    );

    // Nobody drains any more: dropped.
    for _ in 0..2_000_000 {
        RING.write(&EVENT, &hundred, &options);
    }
    let mut samples = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        for _ in 0..4_000 {
            RING.write(&EVENT, black_box(&hundred), &options);
        }
        samples.push(start.elapsed().as_nanos() as f64 / 4_000.0);
    }
    report("100 B, dropped", 10.0, samples);
    drain();

    // The drain alone.
    let mut samples = Vec::new();
    for _ in 0..10 {
        for _ in 0..300_000 {
            RING.write(&EVENT, &hundred, &options);
        }
        let (ns, records) = drain();
        samples.push(ns / records as f64);
    }
    report("drained, 100 B, one thread's blocks", 40.0, samples);
}
