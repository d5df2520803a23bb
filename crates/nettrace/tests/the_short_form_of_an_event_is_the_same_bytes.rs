//! `TraceWriter::similar_event` and `TraceWriter::like_events` write what `TraceWriter::event` would have written, byte for byte, wherever
//! they write anything.

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

/// How events are written that have a short form.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Short {
    /// As all others.
    Never,
    /// One by one.
    Similar,
    /// Those of one kind together, the others one by one.
    Like,
}

/// Every length of the number, and what is no short one.
fn elapsed() -> impl Strategy<Value = u64> {
    (0u32..34, any::<u64>()).prop_map(|(bits, value)| value & ((1 << bits) - 1))
}

/// A step, and some that differ from it in time alone.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (step(), prop::collection::vec(elapsed(), 0..20)).prop_map(|(first, more)| {
        let mut steps = vec![first.clone()];
        steps.extend(more.into_iter().map(|elapsed| Step {
            elapsed,
            other: None,
            ..first.clone()
        }));
        steps
    })
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
        elapsed(),
        prop_oneof![30 => Just(4usize), 30 => Just(8), 60 => 0usize..300, 10 => 1_000usize..1_050, 10 => 16_000usize..17_000, 1 => Just(1 << 21)],
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
    short: Short,
) -> (Vec<u8>, usize) {
    let mut writer = TraceWriter::new(format, &support::generate::info(8));
    writer.set_block_size(block);
    writer.set_compressed(compressed);
    let bytes: Vec<u8> = (0..4 << 20).map(|at| (at % 251) as u8).collect();
    let mut event = EventRecord {
        thread_id: 1,
        capture_thread_id: 1,
        timestamp: 1 << 50,
        ..EventRecord::default()
    };
    let mut count = 0;
    let mut rest = steps;
    while let Some((step, after)) = rest.split_first() {
        rest = after;
        let mut may_be_short = short != Short::Never;
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
        event.payload = &bytes[step.payload..step.payload * 2];
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
        if short == Short::Like {
            // What follows, and differs in time and payload alone.
            let mut timestamp = event.timestamp;
            let like = rest.iter().take_while(|next| {
                (next.metadata_id, next.stack) == (step.metadata_id, step.stack)
                    && next.other.is_none()
            });
            let events: Vec<(u64, &[u8])> = like
                .map(|next| {
                    timestamp += next.elapsed;
                    (timestamp, &bytes[next.payload..next.payload * 2])
                })
                .collect();
            let written = writer.like_events(&events);
            if let Some((timestamp, payload)) = events[..written].last() {
                (event.timestamp, event.payload) = (*timestamp, payload);
            }
            event.sequence_number += written as u32;
            count += written;
            rest = &rest[written..];
        }
    }
    writer.finish();
    (core::mem::take(writer.output()), count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_events(steps in prop::collection::vec(steps(), 1..30), v6: bool, compressed in prop::bool::weighted(0.8), block in 1usize..20_000) {
        let format = if v6 { WriteFormat::V6 } else { WriteFormat::V4 };
        let steps = steps.concat();
        let (long, _) = write(format, compressed, block, &steps, Short::Never);
        for way in [Short::Similar, Short::Like] {
            let (short, _) = write(format, compressed, block, &steps, way);
            prop_assert!(short == long, "{:?} at {:?}", way, short.iter().zip(&long).position(|(a, b)| a != b));
        }
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
        for way in [Short::Similar, Short::Like] {
            let (_, count) = write(format, true, 100 << 10, &steps, way);
            assert_eq!(count, 999, "{way:?}: all but the first of the block");
            let (_, count) = write(format, false, 100 << 10, &steps, way);
            assert_eq!(count, 0, "{way:?}: there is none without compression");
        }
    }
}
