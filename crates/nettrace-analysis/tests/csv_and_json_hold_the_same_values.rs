//! A trace made here, as JSON lines and as CSV: the exact text of both, with keys in their documented order.

use nettrace::{
    EventRecord, Field, FieldType, FormatVersion, Guid, Metadata, Reader, SystemTime, TraceInfo,
    TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};
use nettrace_analysis::events::{CsvRows, JsonLines, Options};

#[test]
fn csv_and_json_hold_the_same_values() {
    let trace = trace();
    let options = Options {
        stacks: true,
        ..Options::default()
    };
    let mut reader = Reader::new(&trace[..]).unwrap();
    let mut lines = JsonLines::new(reader.info(), options);
    let mut rows = CsvRows::new(reader.info(), options);
    let (mut json, mut csv) = (Vec::new(), Vec::new());
    rows.append_heading(&mut csv).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        lines.append(&event, &mut json);
        rows.append(&event, &mut csv).unwrap();
    }
    let expected = [
        r#"{"i":0,"provider":"Demo","event":"Job/Start","id":7,"version":2,"opcode":1,"level":4,"keywords":"0x30","#,
        r#""ts_rel_ms":0.001500,"ts_qpc":"2500","pid":77,"tid":9,"proc":0,"#,
        r#""activity":"04030201-0000-0000-0000-000000000000","related":"00000000-0000-0000-0000-000000000000","#,
        r#""payload":{"text":"a \"b\", c","number":"-5"},"#,
        r#""raw":"6100200022006200220"#,
    ];
    let json = String::from_utf8(json).unwrap();
    assert!(json.starts_with(&expected.concat()), "{json}");
    let end = "\"raw_len\":28,\"template\":\"DynamicTraceEventData\",\"stack\":[\"0x1000\",\"0x2000\"]}\n";
    assert!(json.ends_with(end), "{json}");

    let mut table = csv::Reader::from_reader(&csv[..]);
    let heading = table.headers().unwrap().clone();
    let row = table.records().next().unwrap().unwrap();
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(heading.len(), object.len());
    for (column, cell) in heading.iter().zip(&row) {
        let value = &object[column];
        match value.as_str() {
            Some(text) => assert_eq!(cell, text, "{column}"),
            None => assert_eq!(
                serde_json::from_str::<serde_json::Value>(cell).unwrap(),
                *value,
                "{column}"
            ),
        }
    }
}

fn trace() -> Vec<u8> {
    let info = TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(0),
        sync_ticks: 1000,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(77),
        processor_count: Some(1),
        sampling_period_ns: None,
        pairs: Vec::new(),
    };
    let field = |name: &str, field_type| Field {
        name: name.to_string(),
        field_type,
    };
    let metadata = Metadata {
        id: 1,
        provider: "Demo".to_string(),
        event_id: 7,
        name: "JobStart".to_string(),
        version: 2,
        level: 4,
        keywords: 0x30,
        fields: vec![
            field("text", FieldType::String),
            field("number", FieldType::Int64),
        ],
        ..Metadata::default()
    };
    let mut payload: Vec<u8> = "a \"b\", c"
        .encode_utf16()
        .chain([0])
        .flat_map(u16::to_le_bytes)
        .collect();
    payload.extend_from_slice(&(-5i64).to_le_bytes());
    payload.extend_from_slice(&[0xee, 0xff]);
    let mut activity = [0; 16];
    activity[..4].copy_from_slice(&[1, 2, 3, 4]);

    let mut writer = TraceWriter::new(WriteFormat::V4, &info);
    writer.define_event(&metadata).unwrap();
    let frames: Vec<u8> = [0x1000u64, 0x2000]
        .iter()
        .flat_map(|frame| frame.to_le_bytes())
        .collect();
    let stack_id = writer.stack(&frames).unwrap();
    writer
        .event(&EventRecord {
            metadata_id: 1,
            sequence_number: 1,
            thread_id: 9,
            capture_thread_id: 9,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id,
            timestamp: 2500,
            activity_id: Guid(activity),
            related_activity_id: Guid::ZERO,
            is_sorted: true,
            label_list: 0,
            payload: &payload,
        })
        .unwrap();
    writer.finish();
    std::mem::take(writer.output())
}
