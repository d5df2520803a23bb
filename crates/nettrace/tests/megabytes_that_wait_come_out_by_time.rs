//! The order of dispatch where much waits: several times what a reader holds at once, blocks of every size, a source
//! that gives pieces of any length and fails in between.

use std::io::{self, Read};

use nettrace::{
    ErrorKind, EventRecord, FormatVersion, Guid, Metadata, Reader, SystemTime, ThreadRow,
    TraceInfo, TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};

const THREADS: u64 = 5;
const PER_RUN: u64 = 1500;
const RUNS: u64 = 3;

#[test]
fn blocks_that_are_smaller_than_what_is_read_at_once() {
    check(WriteFormat::V4, 1_000);
    check(WriteFormat::V6, 30_000);
}

#[test]
fn blocks_that_are_larger_than_what_is_read_at_once() {
    check(WriteFormat::V4, 2 << 20);
    check(WriteFormat::V6, 700_000);
}

fn check(format: WriteFormat, block: usize) {
    let (bytes, expected) = trace(format, block);
    assert!(bytes.len() > 5 << 20, "{} bytes", bytes.len());
    for piece in [usize::MAX, 70_001, 4096] {
        let source = Pieces {
            bytes: &bytes,
            piece,
            turn: 0,
        };
        let mut order = Reader::new(source).unwrap().dispatch_order();
        let mut found = Vec::new();
        let mut failures = 0;
        loop {
            match order.next_event() {
                Ok(Some(event)) => {
                    // The payload names the event, at both ends.
                    let payload = event.payload();
                    let number = u64::from_le_bytes(payload[..8].try_into().unwrap());
                    assert!(payload[8..].iter().all(|byte| *byte == number as u8));
                    assert_eq!(payload.len(), 8 + number as usize * 131 % 900);
                    assert_eq!(event.thread_id(), number % THREADS + 1);
                    found.push((event.timestamp(), number));
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::Source(io::ErrorKind::WouldBlock));
                    failures += 1;
                }
            }
        }
        assert!(failures > 0 || piece == usize::MAX);
        assert_eq!(found.len(), expected.len());
        assert!(
            found == expected,
            "{format:?}, blocks of {block}, pieces of {piece}: another order"
        );
        let reader = order.reader();
        assert_eq!(reader.losses().total(), 0);
        assert_eq!(reader.offset(), bytes.len() as u64);
    }
}

/// Each thread's events in one piece, the times of all threads interleaved; nothing goes out before the point behind
/// each run. And what is to come out.
fn trace(format: WriteFormat, block: usize) -> (Vec<u8>, Vec<(i64, u64)>) {
    let info = TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(0),
        sync_ticks: 0,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(1),
        processor_count: Some(2),
        sampling_period_ns: None,
        pairs: Vec::new(),
    };
    let mut writer = TraceWriter::new(format, &info);
    writer.set_block_size(block);
    let metadata = Metadata {
        id: 1,
        provider: "Provider".to_owned(),
        event_id: 1,
        name: "Event".to_owned(),
        ..Metadata::default()
    };
    writer.define_event(&metadata).unwrap();
    for thread in 1..=THREADS {
        let row = ThreadRow {
            thread_id: Some(thread),
            ..ThreadRow::default()
        };
        writer.define_thread(thread, &row).unwrap();
    }
    let mut expected = Vec::new();
    let mut numbers = [0u32; THREADS as usize];
    for run in 0..RUNS {
        let base = 1_000_000 * (run + 1);
        for thread in 0..THREADS {
            for index in 0..PER_RUN {
                let number = (run * PER_RUN + index) * THREADS + thread;
                let timestamp = base + index * 60 + (thread * 37 + index * index) % 50;
                let mut payload = number.to_le_bytes().to_vec();
                payload.resize(8 + number as usize * 131 % 900, number as u8);
                numbers[thread as usize] += 1;
                let record = EventRecord {
                    metadata_id: 1,
                    sequence_number: numbers[thread as usize],
                    thread_id: thread + 1,
                    capture_thread_id: thread + 1,
                    processor_number: UNKNOWN_PROCESSOR,
                    stack_id: 0,
                    timestamp,
                    activity_id: Guid::ZERO,
                    related_activity_id: Guid::ZERO,
                    is_sorted: false,
                    label_list: 0,
                    payload: &payload,
                };
                writer.event(&record).unwrap();
                expected.push((timestamp as i64, number));
            }
        }
        let threads = (1..=THREADS).zip(numbers);
        writer.sequence_point(base + 900_000, 0, threads);
    }
    writer.finish();
    // Of equal times the thread that was seen first comes first.
    expected.sort_by_key(|&(timestamp, number)| (timestamp, number % THREADS));
    (std::mem::take(writer.output()), expected)
}

/// Gives the header at once, then pieces, and nothing for now before every third of them.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
    turn: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.piece != usize::MAX && self.turn > 1 && self.turn.is_multiple_of(3) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = self.piece.min(out.len()).min(self.bytes.len());
        out[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}
