//! What holds for payloads and descriptions of any bytes: shared by the fuzz target `payload` and the test that
//! replays its corpus.
//!
//! Input: a mode byte; for mode 0 and 1 a `u8` length of a description and the description, for others the number of a
//! provider, a `u16` event id and a version; then the payload. Odd modes have 32-bit pointers.

use nettrace::payload::{Fields, OwnedFields, Value};
use nettrace::runtime_events::{
    EVENT_PIPE, PRIVATE, RUNDOWN, RUNTIME, SAMPLE_PROFILER, STRESS, TypeNames, UNIVERSAL_SYSTEM,
};
use nettrace::views::{self, View};
use nettrace::{Field, FieldType, Metadata, Schema};
use nettrace_analysis::events::append_payload;

const PROVIDERS: [&str; 9] = [
    RUNTIME,
    RUNDOWN,
    PRIVATE,
    STRESS,
    SAMPLE_PROFILER,
    UNIVERSAL_SYSTEM,
    EVENT_PIPE,
    views::METRICS,
    "Microsoft-Diagnostics-DiagnosticSource",
];

/// Decoding ends, stays within the payload and within bounds, and what it gives is JSON.
pub(crate) fn holds(data: &[u8]) {
    let Some((mode, data)) = data.split_first() else {
        return;
    };
    let Some((metadata, payload)) = event(*mode, data) else {
        return;
    };
    let schema = Schema::new(&metadata, if mode & 1 == 0 { 8 } else { 4 });
    let described = count(&metadata.fields);
    let schema = schema.of_payload(payload);

    let mut fields = schema.fields(payload);
    let mut values = 0;
    for (_, value) in fields.by_ref() {
        visit(&value, &mut values);
    }
    // Every value in an array takes a byte, at each of at most 32 levels; located data may be shown 64 times.
    assert!(
        values <= described + 64 + payload.len() * 33 * 65,
        "{values} values"
    );
    assert!(payload.ends_with(fields.rest()));
    assert_eq!(fields.next(), None);

    let owned = OwnedFields::new(schema.fields(payload));
    assert!(owned.rest.len() <= payload.len());

    let mut types = TypeNames::default();
    types.learn(1, schema.fields(payload));
    let mut json = Vec::new();
    append_payload(schema, payload, 1, &types, &mut json);
    // serde_json stops at 128 levels, the layouts at 32.
    let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&json);
    assert!(
        parsed.is_ok(),
        "{parsed:?}: {}",
        String::from_utf8_lossy(&json)
    );

    if metadata.fields.is_empty() {
        a_prefix_gives_the_first_fields(schema, payload);
    }
    read_all(&metadata, schema, payload);
}

fn a_prefix_gives_the_first_fields(schema: &Schema, payload: &[u8]) {
    let all: Vec<String> = schema
        .fields(payload)
        .map(|field| format!("{field:?}"))
        .collect();
    let middle = payload.len() / 2;
    for end in [0, middle, payload.len().saturating_sub(1)] {
        let cut: Fields<'_> = schema.fields(&payload[..end]);
        for (index, field) in cut.enumerate() {
            assert_eq!(format!("{field:?}"), all[index]);
        }
    }
}

/// Every view of every event: none may panic.
fn read_all(metadata: &Metadata, schema: &Schema, payload: &[u8]) {
    macro_rules! read {
        ($($view:ident)*) => {$(
            let _ = views::$view::read(schema.fields(payload));
            let _ = views::$view::of(metadata, schema, payload);
        )*};
    }
    read!(GcStart GcEnd GcSuspendBegin GcRestartEnd GcTriggered GcHeapStats AllocationTick AllocationSampled);
    read!(ModuleLoad DomainModuleLoad AssemblyLoad AppDomainLoad MethodLoad MethodJittingStarted);
    read!(ThreadSample ExceptionThrown ContentionStart ContentionStop ThreadCreated ThreadPoolWorkers);
    read!(ThreadPoolAdjustment ProcessInfo RuntimeInformation RundownMark ExecutionCheckpoint);
    read!(ProcessStart ProcessMapping ProcessSymbol ProcessMappingMetadata);
    if let Some(map) = views::IlToNativeMap::read(schema.fields(payload)) {
        map.entries().for_each(drop);
    }
    if let Some(counter) = views::Counter::read(schema.fields(payload)) {
        let _ = counter.series_interval_ms();
    }
    for escaped in [false, true] {
        let text = nettrace::payload::Utf16::new(payload);
        let _ = views::Tags { text, escaped }.pairs();
    }
    let _ = views::MetricsEvent::of(metadata, schema, payload);
}

fn visit(value: &Value<'_>, values: &mut usize) {
    *values += 1;
    match *value {
        Value::Object(object) => object.fields().for_each(|(_, value)| visit(&value, values)),
        Value::Array(elements) => elements.for_each(|value| visit(&value, values)),
        _ => {}
    }
}

fn count(fields: &[Field]) -> usize {
    fields
        .iter()
        .map(|field| 1 + count_type(&field.field_type))
        .sum()
}

fn count_type(field_type: &FieldType) -> usize {
    match field_type {
        FieldType::Object(fields) => count(fields),
        _ => 0,
    }
}

fn event(mode: u8, data: &[u8]) -> Option<(Metadata, &[u8])> {
    let mut metadata = Metadata {
        name: "Event".into(),
        ..Metadata::default()
    };
    if mode >> 1 == 0 {
        let (length, data) = data.split_first()?;
        let (mut description, payload) = data.split_at_checked(usize::from(*length))?;
        metadata.fields = fields(&mut description, 0);
        return Some((metadata, payload));
    }
    let (&[provider, low, high, version], payload) = data.split_first_chunk::<4>()?;
    metadata.provider = PROVIDERS[usize::from(provider) % PROVIDERS.len()].into();
    metadata.event_id = u32::from(u16::from_le_bytes([low, high]));
    metadata.version = u32::from(version);
    Some((metadata, payload))
}

/// Codes of the format's types, with a count behind objects and arrays of fixed length.
fn fields(description: &mut &[u8], depth: usize) -> Vec<Field> {
    let mut found = Vec::new();
    while let Some(field_type) = field_type(description, depth) {
        found.push(Field {
            name: "f".repeat(found.len() % 3),
            field_type,
        });
    }
    found
}

fn field_type(description: &mut &[u8], depth: usize) -> Option<FieldType> {
    let (code, rest) = description.split_first()?;
    *description = rest;
    let mut inner = || {
        let inner = if depth < 40 {
            field_type(description, depth + 1)
        } else {
            None
        };
        Box::new(inner.unwrap_or(FieldType::Byte))
    };
    Some(match code % 27 {
        0 => FieldType::Empty,
        1 => {
            let (count, rest) = description.split_first()?;
            let (mut inside, rest) = rest.split_at_checked(usize::from(*count))?;
            *description = rest;
            FieldType::Object(if depth < 40 {
                fields(&mut inside, depth + 1)
            } else {
                Vec::new()
            })
        }
        19 => FieldType::Array(inner()),
        22 => {
            let element = inner();
            let (count, rest) = description.split_first()?;
            *description = rest;
            FieldType::FixedLengthArray(element, u16::from(*count) * 7)
        }
        24 => FieldType::RelLoc(inner()),
        25 => FieldType::DataLoc(inner()),
        code => FieldType::of_code(code.into()).unwrap_or(FieldType::Int32),
    })
}
