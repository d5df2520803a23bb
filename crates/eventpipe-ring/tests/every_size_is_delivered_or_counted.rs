//! Payloads of any size: delivered whole up to 65,536 bytes, counted with their reason above;
//! neighbours unaffected.
#![cfg(not(loom))]

mod common;

use common::leak_ring;
use eventpipe_ring::{
    EventKey, LossReason, MAX_FRAMES, MAX_PAYLOAD, Payload, Record, RecordOptions, Ring, Sink,
    ThreadInfo,
};
use std::sync::atomic::Ordering;

/// A payload of any length, of bytes that follow from it.
struct Sized(usize);

impl Payload for Sized {
    fn len(&self) -> usize {
        self.0
    }
    fn copy_to(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.0, "exactly as long as was said");
        for (position, byte) in out.iter_mut().enumerate() {
            *byte = (position ^ self.0) as u8;
        }
    }
}

#[derive(Debug, Default)]
struct Log(Vec<Result<usize, (u64, LossReason)>>);

impl Sink for Log {
    fn thread(&mut self, _: ThreadInfo) {}
    fn record(&mut self, record: &Record<'_>, _: bool) {
        let length = record.payload.len();
        assert!(
            record
                .payload
                .iter()
                .enumerate()
                .all(|(position, byte)| *byte == (position ^ length) as u8)
        );
        assert_eq!(
            record.frames.len(),
            if record.event_index == 2 {
                MAX_FRAMES * size_of::<usize>()
            } else {
                0
            }
        );
        self.0.push(Ok(length));
    }
    fn lost(&mut self, session: u32, count: u64, reason: LossReason) {
        assert_eq!(session, 5);
        self.0.push(Err((count, reason)));
    }
    fn thread_ended(&mut self, _: u64) {}
    fn boundary(&mut self, _: u64) {}
}

fn drain(ring: &'static Ring, log: &mut Log) {
    let mut drain = ring.drain().unwrap();
    let now = eventpipe_os::clock::ticks();
    while drain.round(log).boundary_ticks < now {}
}

#[test]
fn from_nothing_to_a_hundred_megabytes() {
    let ring = leak_ring(1 << 20);
    let key = EventKey::new(1 << 5);
    let sizes = [
        0,
        1,
        7,
        4072,
        4073,
        65_535,
        65_536,
        65_537,
        1 << 20,
        100 << 20,
        3,
    ];
    for size in sizes {
        ring.write(&key, &Sized(size), &RecordOptions::default());
    }
    let mut log = Log::default();
    drain(ring, &mut log);
    let expected: Vec<_> = [0, 1, 7, 4072, 4073, 65_535, 65_536]
        .into_iter()
        .map(Ok)
        .chain([Err((3, LossReason::TooLarge)), Ok(3)])
        .collect();
    assert_eq!(log.0, expected);
    assert_eq!(ring.statistics().lost, 3);
}

#[test]
fn the_largest_payload_with_everything_beside_it() {
    let ring = leak_ring(1 << 20);
    let key = EventKey::new(1 << 5);
    key.index.store(2, Ordering::Relaxed);
    let frames = vec![0x1234_5678_9abc_usize; MAX_FRAMES + 100];
    let id = [3u8; 16];
    let options = RecordOptions {
        activity: Some(&id),
        related: Some(&id),
        frames: &frames,
        event_thread: Some(u64::MAX),
    };
    // A loss before it: its lost record needs room in the same block.
    ring.write(&key, &Sized(MAX_PAYLOAD + 1), &options);
    ring.write(&key, &Sized(MAX_PAYLOAD), &options);
    let mut log = Log::default();
    drain(ring, &mut log);
    assert_eq!(log.0, [Err((1, LossReason::TooLarge)), Ok(MAX_PAYLOAD)]);
}

#[test]
fn without_any_memory_everything_is_counted() {
    let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
    let key = EventKey::new(1 << 5);
    for size in [0, 100, 70_000] {
        ring.write(&key, &Sized(size), &RecordOptions::default());
    }
    let mut log = Log::default();
    drain(ring, &mut log);
    // Whatever its size: nobody has looked at the payload.
    assert_eq!(log.0, [Err((3, LossReason::BufferFull))]);
}
