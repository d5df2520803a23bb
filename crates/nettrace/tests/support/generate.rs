//! Traces with everything in them, for property tests: a script of what to write, the bytes it makes, and what a
//! reader must give back.

use nettrace::{
    Event, EventRecord, Field, FieldType, FormatVersion, Guid, Item, Label, Metadata, Reader,
    SystemTime, ThreadRow, TraceInfo, TraceWriter, WriteFormat,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A step of a script. Numbers that name something are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Define(Metadata),
    DefineThread(ThreadRow),
    RemoveThread(u32),
    Event(EventStep),
    SequencePoint {
        timestamp: u64,
        flags: u32,
        threads: Vec<(u64, u32)>,
    },
    Flush,
    Uncompressed(bool),
}

#[derive(Clone, Debug)]
pub(crate) struct EventStep {
    pub(crate) metadata: usize,
    pub(crate) sequence_number: u32,
    pub(crate) thread: u64,
    pub(crate) capture_thread: u64,
    pub(crate) processor_number: u32,
    pub(crate) stack: Vec<u64>,
    pub(crate) timestamp: u64,
    pub(crate) activity_id: Guid,
    pub(crate) related_activity_id: Guid,
    pub(crate) is_sorted: bool,
    pub(crate) labels: Vec<Label<'static>>,
    pub(crate) payload: Vec<u8>,
}

/// What a reader gives, as text: it is compared, and shown when it differs.
pub(crate) type Transcript = Vec<String>;

pub(crate) fn info(pointer_size: u32) -> TraceInfo {
    TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(1_796_000_000_123_000_000),
        sync_ticks: 1000,
        ticks_per_second: 1_000_000_000,
        pointer_size,
        process_id: Some(4711),
        processor_count: Some(2),
        sampling_period_ns: Some(1_000_000),
        pairs: Vec::new(),
    }
}

/// Writes a script. What the format cannot hold must not be in it, see [`steps`].
pub(crate) fn write(
    format: WriteFormat,
    info: &TraceInfo,
    block_size: usize,
    steps: &[Step],
) -> (Vec<u8>, Transcript) {
    let mut writer = TraceWriter::new(format, info);
    writer.set_block_size(block_size);
    let v6 = format == WriteFormat::V6;
    let (mut bytes, mut expected) = (Vec::new(), Transcript::new());
    let mut described: Vec<Metadata> = Vec::new();
    let mut next_metadata = 1;
    let mut threads: Vec<(u64, ThreadRow)> = Vec::new();
    let mut next_thread = 1;
    for step in steps {
        // Definitions come out before the events of their block: a block for each keeps the order comparable.
        let is_definition = !matches!(step, Step::Event(_) | Step::Flush);
        if is_definition {
            writer.flush();
        }
        match step {
            Step::Define(metadata) => {
                let metadata = Metadata {
                    id: next_metadata,
                    ..metadata.clone()
                };
                next_metadata += 1;
                writer.define_event(&metadata).unwrap();
                assert!(writer.is_defined(metadata.id));
                expected.push(format!("{metadata:?}"));
                described.push(metadata);
            }
            Step::DefineThread(row) => {
                writer.define_thread(next_thread, row).unwrap();
                if v6 {
                    expected.push(format!("thread {next_thread} {row:?}"));
                }
                threads.push((next_thread, row.clone()));
                next_thread += 1;
            }
            Step::RemoveThread(number) => {
                if !threads.is_empty() {
                    let place = *number as usize % threads.len();
                    let (index, _) = threads.remove(place);
                    writer.remove_thread(index, *number);
                    if v6 {
                        expected.push(format!("removed {index} {number}"));
                    }
                }
            }
            Step::Event(event) => {
                if described.is_empty() || threads.is_empty() {
                    continue;
                }
                let metadata = &described[event.metadata % described.len()];
                let (thread, row) = &threads[event.thread as usize % threads.len()];
                let frames: Vec<u8> = match info.pointer_size {
                    4 => event
                        .stack
                        .iter()
                        .flat_map(|frame| (*frame as u32).to_le_bytes())
                        .collect(),
                    _ => event
                        .stack
                        .iter()
                        .flat_map(|frame| frame.to_le_bytes())
                        .collect(),
                };
                let label_list = writer.label_list(&event.labels).unwrap();
                let record = EventRecord {
                    metadata_id: metadata.id,
                    sequence_number: event.sequence_number,
                    thread_id: if v6 { *thread } else { event.thread },
                    capture_thread_id: event.capture_thread,
                    processor_number: event.processor_number,
                    stack_id: writer.stack(&frames).unwrap(),
                    timestamp: event.timestamp,
                    activity_id: event.activity_id,
                    related_activity_id: event.related_activity_id,
                    is_sorted: event.is_sorted,
                    label_list,
                    payload: &event.payload,
                };
                writer.event(&record).unwrap();
                expected.push(expect_event(event, metadata, row, v6, info.pointer_size));
            }
            Step::SequencePoint {
                timestamp,
                flags,
                threads: listed,
            } => {
                writer.sequence_point(*timestamp, *flags, listed.iter().copied());
                let flags = if v6 { *flags } else { 0 };
                expected.push(format!("point {} {flags} {listed:?}", *timestamp as i64));
                if flags & nettrace::FORGET_THREADS != 0 {
                    threads.clear();
                }
                if flags & nettrace::FORGET_METADATA != 0 {
                    described.clear();
                    next_metadata = 1;
                }
            }
            Step::Flush => writer.flush(),
            Step::Uncompressed(on) => writer.set_compressed(!on),
        }
        if is_definition {
            writer.flush();
        }
        bytes.append(writer.output());
    }
    writer.finish();
    bytes.append(writer.output());
    (bytes, expected)
}

fn expect_event(
    event: &EventStep,
    metadata: &Metadata,
    row: &ThreadRow,
    v6: bool,
    pointer_size: u32,
) -> String {
    let mut labels = if v6 { event.labels.clone() } else { Vec::new() };
    if v6 && labels.is_empty() {
        if !event.activity_id.is_zero() {
            labels.push(Label::ActivityId(event.activity_id));
        }
        if !event.related_activity_id.is_zero() {
            labels.push(Label::RelatedActivityId(event.related_activity_id));
        }
    }
    let (mut activity, mut related) = (Guid::ZERO, Guid::ZERO);
    let (mut opcode, mut keywords) = (metadata.opcode, metadata.keywords);
    let (mut level, mut version) = (metadata.level, metadata.version);
    for label in &labels {
        match label {
            Label::ActivityId(id) => activity = *id,
            Label::RelatedActivityId(id) => related = *id,
            Label::OpCode(value) => opcode = *value,
            Label::Keywords(value) => keywords = *value,
            Label::Level(value) => level = u32::from(*value),
            Label::Version(value) => version = u32::from(*value),
            _ => {}
        }
    }
    if !v6 {
        (activity, related) = (event.activity_id, event.related_activity_id);
    }
    let (thread, process) = match v6 {
        true => (row.thread_id.unwrap_or(0), row.process_id.unwrap_or(4711)),
        false => (event.thread, 4711),
    };
    let mask = if pointer_size == 4 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    let stack: Vec<u64> = event.stack.iter().map(|frame| frame & mask).collect();
    format!(
        "event {} {} {} {thread} {process} {} {:?} {stack:x?} {activity} {related} {} {labels:?} {opcode} {keywords:x} {level} {version} {:x?}",
        metadata.id,
        event.timestamp as i64,
        event.sequence_number,
        event.capture_thread,
        Some(event.processor_number).filter(|&number| number != u32::MAX),
        event.is_sorted,
        event.payload,
    )
}

pub(crate) fn show_event(event: &Event<'_>) -> String {
    format!(
        "event {} {} {} {} {} {} {:?} {:x?} {} {} {} {:?} {} {:x} {} {} {:x?}",
        event.metadata().id,
        event.timestamp(),
        event.sequence_number(),
        event.thread_id(),
        event.process_id(),
        event.capture_thread_id(),
        event.processor_number(),
        event.stack().frames().collect::<Vec<_>>(),
        event.activity_id(),
        event.related_activity_id(),
        event.is_sorted(),
        event.labels().collect::<Vec<_>>(),
        event.opcode(),
        event.keywords(),
        event.level(),
        event.version(),
        event.payload(),
    )
}

/// Everything that a reader gives.
pub(crate) fn read(bytes: &[u8]) -> (Transcript, Option<nettrace::Error>) {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut found = Transcript::new();
    loop {
        match reader.next_item() {
            Ok(Some(item)) => found.push(show(&item)),
            Ok(None) => return (found, None),
            Err(error) => return (found, Some(error)),
        }
    }
}

pub(crate) fn show(item: &Item<'_>) -> String {
    match item {
        Item::Metadata(metadata) => format!("{metadata:?}"),
        Item::Event(event) => show_event(event),
        Item::SequencePoint(point) => {
            format!(
                "point {} {} {:?}",
                point.timestamp, point.flags, point.threads
            )
        }
        Item::ThreadDefined { index, row } => format!("thread {index} {row:?}"),
        Item::ThreadRemoved {
            index,
            sequence_number,
        } => {
            format!("removed {index} {sequence_number}")
        }
        other => panic!("{other:?}"),
    }
}

/// Scripts that a format can hold.
pub(crate) fn steps(format: WriteFormat) -> impl Strategy<Value = Vec<Step>> {
    let v6 = format == WriteFormat::V6;
    let step = prop_oneof![
        2 => metadata(v6).prop_map(Step::Define),
        2 => thread_row().prop_map(Step::DefineThread),
        1 => any::<u32>().prop_map(Step::RemoveThread),
        20 => event().prop_map(Step::Event),
        2 => (any::<u64>(), 0u32..4, vec((any::<u64>(), any::<u32>()), 0..5)).prop_map(
            |(timestamp, flags, threads)| Step::SequencePoint { timestamp, flags, threads }
        ),
        1 => Just(Step::Flush),
        1 => any::<bool>().prop_map(Step::Uncompressed),
    ];
    // A beginning that lets events follow.
    (metadata(v6), thread_row(), vec(step, 0..60)).prop_map(|(metadata, row, mut steps)| {
        steps.splice(0..0, [Step::Define(metadata), Step::DefineThread(row)]);
        steps
    })
}

fn text() -> impl Strategy<Value = String> {
    "[^\\x00]{0,12}"
}

fn guid() -> impl Strategy<Value = Guid> {
    prop_oneof![Just(Guid::ZERO), any::<[u8; 16]>().prop_map(Guid)]
}

fn metadata(v6: bool) -> impl Strategy<Value = Metadata> {
    let numbers = (
        any::<u32>(),
        any::<u64>(),
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
    );
    let annotations = (
        option::of(text()),
        option::of(text()),
        vec((text(), text()), 0..3),
        option::of(guid()),
    );
    (text(), text(), numbers, fields(v6), annotations).prop_map(
        move |(provider, name, numbers, fields, annotations)| {
            let (event_id, keywords, version, level, opcode) = numbers;
            let plain = Metadata {
                provider,
                event_id,
                name,
                keywords,
                version,
                level,
                opcode,
                fields,
                ..Metadata::default()
            };
            if !v6 {
                return plain;
            }
            let (message_template, description, key_values, provider_guid) = annotations;
            Metadata {
                version: version & 255,
                level: level & 255,
                message_template,
                description,
                key_values,
                provider_guid,
                ..plain
            }
        },
    )
}

fn fields(v6: bool) -> impl Strategy<Value = Vec<Field>> {
    vec((text(), field_type(v6)), 0..5).prop_map(|fields| {
        fields
            .into_iter()
            .map(|(name, field_type)| Field { name, field_type })
            .collect()
    })
}

fn field_type(v6: bool) -> impl Strategy<Value = FieldType> {
    use FieldType as F;
    let old = vec![
        F::Boolean,
        F::Char,
        F::SByte,
        F::Byte,
        F::Int16,
        F::UInt16,
        F::Int32,
        F::UInt32,
        F::Int64,
        F::UInt64,
        F::Single,
        F::Double,
        F::Decimal,
        F::DateTime,
        F::Guid,
        F::String,
    ];
    let new = [F::VarInt, F::VarUInt, F::Utf8CodeUnit, F::Boolean8];
    let scalars: Vec<F> = if v6 {
        old.iter().cloned().chain(new).collect()
    } else {
        old.clone()
    };
    let sized = proptest::sample::select(old[..15].to_vec());
    proptest::sample::select(scalars).prop_recursive(4, 16, 4, move |inner| {
        let object = vec((text(), inner.clone()), 0..4).prop_map(|fields| {
            F::Object(
                fields
                    .into_iter()
                    .map(|(name, field_type)| Field { name, field_type })
                    .collect(),
            )
        });
        let array = inner
            .clone()
            .prop_map(|element| F::Array(Box::new(element)));
        if !v6 {
            return prop_oneof![object, array].boxed();
        }
        let fixed = (inner, any::<u16>())
            .prop_map(|(element, count)| F::FixedLengthArray(Box::new(element), count));
        let rel = sized
            .clone()
            .prop_map(|element| F::RelLoc(Box::new(element)));
        let data = sized
            .clone()
            .prop_map(|element| F::DataLoc(Box::new(element)));
        prop_oneof![object, array, fixed, rel, data].boxed()
    })
}

fn thread_row() -> impl Strategy<Value = ThreadRow> {
    (
        option::of(any::<u64>()),
        option::of(any::<u64>()),
        option::of(text()),
        vec((text(), text()), 0..3),
    )
        .prop_map(|(process_id, thread_id, name, key_values)| ThreadRow {
            process_id,
            thread_id,
            name,
            key_values,
        })
}

fn label() -> impl Strategy<Value = Label<'static>> {
    prop_oneof![
        guid().prop_map(Label::ActivityId),
        guid().prop_map(Label::RelatedActivityId),
        any::<[u8; 16]>().prop_map(Label::TraceId),
        any::<u64>().prop_map(Label::SpanId),
        (text(), text()).prop_map(|(key, value)| Label::String {
            key: key.into(),
            value: value.into()
        }),
        (text(), any::<i64>()).prop_map(|(key, value)| Label::Number {
            key: key.into(),
            value
        }),
        any::<u8>().prop_map(Label::OpCode),
        any::<u64>().prop_map(Label::Keywords),
        any::<u8>().prop_map(Label::Level),
        any::<u8>().prop_map(Label::Version),
    ]
}

fn event() -> impl Strategy<Value = EventStep> {
    let small = prop_oneof![0u64..4, any::<u64>()];
    let stack = prop_oneof![
        Just(Vec::new()),
        Just(vec![1, 2, 3]),
        vec(any::<u64>(), 0..6)
    ];
    let place = (
        any::<usize>(),
        prop_oneof![0u32..9, any::<u32>()],
        small.clone(),
        small,
        any::<u32>(),
    );
    let labels = prop_oneof![3 => Just(Vec::new()), 1 => vec(label(), 0..5)];
    let rest = (
        stack,
        prop_oneof![0u64..100, any::<u64>()],
        guid(),
        guid(),
        any::<bool>(),
        labels,
    );
    (place, rest, vec(any::<u8>(), 0..200)).prop_map(|(place, rest, payload)| {
        let (metadata, sequence_number, thread, capture_thread, processor_number) = place;
        let (stack, timestamp, activity_id, related_activity_id, is_sorted, labels) = rest;
        EventStep {
            metadata,
            sequence_number,
            thread,
            capture_thread,
            processor_number,
            stack,
            timestamp,
            activity_id,
            related_activity_id,
            is_sorted,
            labels,
            payload,
        }
    })
}
