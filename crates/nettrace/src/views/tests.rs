use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::metadata::{Field, FieldType};
use crate::runtime_events::RUNTIME;

fn text(text: &str) -> Vec<u8> {
    text.encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect()
}

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.to_string(),
        field_type,
    }
}

fn runtime(event_id: u32, version: u32) -> (Metadata, Schema) {
    let metadata = Metadata {
        provider: RUNTIME.into(),
        event_id,
        version,
        ..Metadata::default()
    };
    let schema = Schema::new(&metadata, 8);
    (metadata, schema)
}

#[test]
fn a_runtime_event_is_read_in_every_version() {
    let (metadata, schema) = runtime(1, 2);
    let mut payload = Vec::new();
    [5u32, 1, 0, 2]
        .iter()
        .for_each(|number| payload.extend_from_slice(&number.to_le_bytes()));
    payload.extend_from_slice(&[9, 0]);
    payload.extend_from_slice(&77u64.to_le_bytes());
    let start = GcStart::of(&metadata, &schema, &payload).unwrap();
    assert_eq!(
        (start.number, start.generation, start.kind),
        (5, Some(1), Some(2))
    );
    assert_eq!(start.client_sequence_number, Some(77));
    assert!(GcEnd::of(&metadata, &schema, &payload).is_none());

    let (metadata, schema) = runtime(1, 0);
    let start = GcStart::of(&metadata, &schema, &payload[..8]).unwrap();
    assert_eq!((start.number, start.reason, start.generation), (5, 1, None));
    assert!(GcStart::of(&metadata, &schema, &payload[..7]).is_none());
}

#[test]
fn an_exception_shows_its_code_as_bits() {
    let (metadata, schema) = runtime(80, 1);
    let mut payload = text("System.Exception");
    payload.extend(text("no"));
    payload.extend_from_slice(&[0; 8]);
    payload.extend_from_slice(&0x8013_1500u32.to_le_bytes());
    payload.extend_from_slice(&[16, 0, 9, 0]);
    let thrown = ExceptionThrown::of(&metadata, &schema, &payload).unwrap();
    assert!(thrown.exception_type == *"System.Exception" && thrown.message == *"no");
    assert_eq!((thrown.hresult, thrown.flags), (0x8013_1500, 16));
}

#[test]
fn a_map_pairs_both_arrays() {
    let (metadata, schema) = runtime(190, 0);
    let mut payload = vec![0; 16];
    payload.extend_from_slice(&[0, 2, 0]);
    [-2i32, 3]
        .iter()
        .for_each(|offset| payload.extend_from_slice(&offset.to_le_bytes()));
    [0u32, 8]
        .iter()
        .for_each(|offset| payload.extend_from_slice(&offset.to_le_bytes()));
    payload.extend_from_slice(&[0, 0]);
    let map = IlToNativeMap::of(&metadata, &schema, &payload).unwrap();
    assert_eq!(map.entries().collect::<Vec<_>>(), [(-2, 0), (3, 8)]);
}

#[test]
fn tags_are_split_by_the_rule_of_their_version() {
    let pairs = |tags: &str, escaped| -> Vec<(String, String)> {
        let bytes: Vec<u8> = tags.encode_utf16().flat_map(u16::to_le_bytes).collect();
        Tags {
            text: Utf16::new(&bytes),
            escaped,
        }
        .pairs()
    };
    let pair = |key: &str, value: &str| (key.to_string(), value.to_string());
    assert_eq!(pairs("", false), []);
    assert_eq!(pairs("a=1,b=2", false), [pair("a", "1"), pair("b", "2")]);
    // Without escapes a comma belongs to the value unless a key follows.
    assert_eq!(
        pairs("route=/a,b,q=x=1", false),
        [pair("route", "/a,b"), pair("q", "x=1")]
    );
    assert_eq!(pairs(r"p=c:\x", false), [pair("p", r"c:\x")]);
    assert_eq!(
        pairs(r"a\=b=1\,2\\,c=", true),
        [pair("a=b", r"1,2\"), pair("c", "")]
    );
    assert!(!super::metrics_escapes(4, 2) && super::metrics_escapes(4, 3));
    assert!(!super::metrics_escapes(7, 3) && super::metrics_escapes(7, 4));
}

#[test]
fn counters_are_read_by_the_names_of_their_fields() {
    let inner = FieldType::Object(vec![
        field("Name", FieldType::String),
        field("Increment", FieldType::Double),
        field("IntervalSec", FieldType::Single),
        field("Series", FieldType::String),
    ]);
    let outer = FieldType::Object(vec![field("Payload", inner)]);
    let metadata = Metadata {
        name: "EventCounters".into(),
        fields: vec![field("", outer)],
        ..Metadata::default()
    };
    let schema = Schema::new(&metadata, 8);
    let mut payload = text("requests");
    payload.extend_from_slice(&2.5f64.to_le_bytes());
    payload.extend_from_slice(&1.0f32.to_le_bytes());
    payload.extend(text("Interval=1000"));
    let counter = Counter::of(&metadata, &schema, &payload).unwrap();
    assert!(counter.name == *"requests");
    assert_eq!(counter.series_interval_ms(), Some(1000));
    assert!(matches!(
        counter.value,
        CounterValue::Sum { increment: 2.5, .. }
    ));
}

#[test]
fn a_metric_value_is_read_with_its_tags() {
    let names = [
        "sessionId",
        "meterName",
        "meterVersion",
        "instrumentName",
        "unit",
        "tags",
        "lastValue",
    ];
    let mut fields: Vec<Field> = names
        .iter()
        .map(|name| field(name, FieldType::String))
        .collect();
    fields.push(field("instrumentId", FieldType::Int32));
    let metadata = Metadata {
        provider: METRICS.into(),
        event_id: 5,
        version: 2,
        fields,
        ..Metadata::default()
    };
    let schema = Schema::new(&metadata, 8);
    let mut payload: Vec<u8> = ["S", "M", "1", "g", "V", "a=1", "42"]
        .iter()
        .flat_map(|one| text(one))
        .collect();
    payload.extend_from_slice(&3i32.to_le_bytes());
    let Some(MetricsEvent::Value(value)) = MetricsEvent::of(&metadata, &schema, &payload) else {
        panic!("no value")
    };
    assert_eq!(value.tags.pairs(), [("a".to_string(), "1".to_string())]);
    assert_eq!(value.instrument_id, Some(3));
    assert!(matches!(value.kind, ValueKind::Gauge { last_value } if last_value == *"42"));
}
