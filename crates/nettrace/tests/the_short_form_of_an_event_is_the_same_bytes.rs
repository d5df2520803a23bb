//! `TraceWriter::similar_event` writes what `TraceWriter::event` would have written, byte for byte, wherever it writes anything.

mod support;

use nettrace::{EventRecord, Guid, TraceWriter, WriteFormat};
use proptest::prelude::*;

/// What may differ from one event to the next, and sometimes does.
#[derive(Clone, Debug)]
struct Step {
    metadata_id: u32,
    stack: u8,
    elapsed: u64,
    payload: usize,
    /// Something happened that is not told by the short form.
    other: Option<Other>,
}

#[derive(Clone, Debug)]
enum Other {
    Thread(u64),
    Lost(u32),
    Sorted,
    Activity(u8),
    Flush,
    SequencePoint,
}

fn step() -> impl Strategy<Value = Step> {
    let other = prop_oneof![
        (1u64..1 << 40).prop_map(Other::Thread),
        (1u32..1 << 30).prop_map(Other::Lost),
        Just(Other::Sorted),
        any::<u8>().prop_map(Other::Activity),
        Just(Other::Flush),
        Just(Other::SequencePoint),
    ];
    (
        prop_oneof![4 => Just(1u32), 1 => 2u32..1 << 30],
        0u8..3,
        // Every length of the number, and what is no short one.
        (0u32..34, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1)),
        prop_oneof![90 => 0usize..300, 10 => 16_000usize..17_000, 1 => Just(1 << 21)],
        prop_oneof![6 => Just(None), 1 => other.prop_map(Some)],
    )
        .prop_map(|(metadata_id, stack, elapsed, payload, other)| Step {
            metadata_id,
            stack,
            elapsed,
            payload,
            other,
        })
}

/// The bytes, and how many events had the short form.
fn write(
    format: WriteFormat,
    compressed: bool,
    block: usize,
    steps: &[Step],
    short: bool,
) -> (Vec<u8>, usize) {
    let mut writer = TraceWriter::new(format, &support::generate::info(8));
    writer.set_block_size(block);
    writer.set_compressed(compressed);
    let bytes = vec![7; 1 << 21];
    let mut event = EventRecord {
        thread_id: 1,
        capture_thread_id: 1,
        timestamp: 1 << 50,
        ..EventRecord::default()
    };
    let mut count = 0;
    for step in steps {
        let mut may_be_short = short;
        event.is_sorted = false;
        event.sequence_number += 1;
        if let Some(other) = &step.other {
            may_be_short &= matches!(other, Other::Flush | Other::SequencePoint);
            match other {
                Other::Thread(id) => (event.thread_id, event.capture_thread_id) = (*id, *id),
                Other::Lost(lost) => {
                    event.sequence_number = event.sequence_number.wrapping_add(*lost)
                }
                Other::Sorted => event.is_sorted = true,
                Other::Activity(id) => event.activity_id = Guid([*id; 16]),
                Other::Flush => writer.flush(),
                Other::SequencePoint => writer.sequence_point(event.timestamp, 0, [(1, 1)]),
            }
        }
        event.metadata_id = step.metadata_id;
        let frames = [step.stack; 16];
        event.stack_id = writer
            .stack(&frames[..usize::from(step.stack) * 8])
            .unwrap();
        event.timestamp += step.elapsed;
        event.payload = &bytes[..step.payload];
        if may_be_short
            && writer.similar_event(
                event.metadata_id,
                event.stack_id,
                event.timestamp,
                event.payload,
            )
        {
            count += 1;
        } else {
            writer.event(&event).unwrap();
        }
    }
    writer.finish();
    (core::mem::take(writer.output()), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_events(steps in prop::collection::vec(step(), 1..60), v6: bool, compressed in prop::bool::weighted(0.8), block in 1usize..20_000) {
        let format = if v6 { WriteFormat::V6 } else { WriteFormat::V4 };
        let (long, _) = write(format, compressed, block, &steps, false);
        let (short, _) = write(format, compressed, block, &steps, true);
        prop_assert!(short == long, "at {:?}", short.iter().zip(&long).position(|(a, b)| a != b));
    }
}

#[test]
fn most_events_have_it() {
    let step = Step {
        metadata_id: 1,
        stack: 1,
        elapsed: 100,
        payload: 50,
        other: None,
    };
    for format in [WriteFormat::V4, WriteFormat::V6] {
        let steps = vec![step.clone(); 1000];
        let (_, count) = write(format, true, 100 << 10, &steps, true);
        assert_eq!(count, 999, "all but the first of the block");
        let (_, count) = write(format, false, 100 << 10, &steps, true);
        assert_eq!(count, 0, "there is none without compression");
    }
}
