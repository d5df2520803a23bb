//! TraceEvent, the reference reader, takes files that our writer made: recorded traces written anew in V4 and V6 have
//! the events that it reads in the originals, and a trace with everything in it is read to its end.

mod support;

use std::path::PathBuf;

use nettrace::rewrite::{RewriteOptions, join, rewrite};
use nettrace::{
    EventRecord, FORGET_THREADS, Field, FieldType, FormatVersion, Guid, Label, Metadata,
    NetPerfWriter, Reader, ThreadRow, TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};
use peers::Peers;
use serde_json::Value;
use support::generate::info;
use support::samples;

struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> File {
        let path =
            std::env::temp_dir().join(format!("nettrace-{}-{name}.nettrace", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const SAMPLES: [&str; 7] = [
    "net10.0/types",
    "net10.0/activity",
    "net11.0/churn",
    "net10.0/gcdump",
    "net9.0/exceptions",
    "net10.0/threadpool",
    "net8.0.34/cpu-rundown",
];

#[test]
fn a_trace_written_anew_is_the_same_to_traceevent() {
    let test = "a_trace_written_anew_is_the_same_to_traceevent";
    let (Some(peers), Some(samples)) = (Peers::for_test(test), samples(test)) else {
        return;
    };
    for name in SAMPLES {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let bytes = sample.bytes();
        let original = peers.oracle_events(&File::new("original", &bytes).0);
        assert!(!original.is_empty());
        for format in [WriteFormat::V4, WriteFormat::V6] {
            let mut out = Vec::new();
            let mut reader = Reader::new(&bytes[..]).unwrap();
            rewrite(&mut reader, &RewriteOptions::new(format), &mut out).unwrap();
            compare(&peers, &format!("{name} {format:?}"), &original, &out);
            // By way of a join, which orders the events by time itself.
            let mut out = Vec::new();
            let reader = Reader::new(&bytes[..]).unwrap();
            join(vec![reader], &RewriteOptions::new(format), &mut out).unwrap();
            compare(
                &peers,
                &format!("{name} joined {format:?}"),
                &original,
                &out,
            );
        }
    }
}

fn compare(peers: &Peers, name: &str, original: &[Value], bytes: &[u8]) {
    let file = File::new("written", bytes);
    let written = peers.oracle_events(&file.0);
    assert_eq!(written.len(), original.len(), "{name}");
    for (written, original) in written.iter().zip(original) {
        assert_eq!(written, original, "{name}");
    }
    let summary = peers.oracle_summary(&file.0);
    assert_eq!(summary["events_lost"], 0, "{name}");
}

#[test]
fn losses_are_the_same_to_traceevent() {
    let test = "losses_are_the_same_to_traceevent";
    let (Some(peers), Some(samples)) = (Peers::for_test(test), samples(test)) else {
        return;
    };
    let sample = samples
        .iter()
        .find(|sample| sample.name == "net11.0/stress-lost")
        .unwrap();
    let bytes = sample.bytes();
    for (format, lost) in [(WriteFormat::V4, 14_166), (WriteFormat::V6, 14_166 + 9_728)] {
        let mut out = Vec::new();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        rewrite(&mut reader, &RewriteOptions::new(format), &mut out).unwrap();
        let summary = peers.oracle_summary(&File::new("lost", &out).0);
        // Of V4 TraceEvent does not count what is missing before the first event of a thread.
        let seen = summary["events_lost"].as_u64().unwrap();
        if format == WriteFormat::V4 {
            assert_eq!(seen, lost);
        } else {
            // Of threads that are named by a sequence point only, it counts nothing in V6 either.
            assert!((14_166..=lost).contains(&seen), "{seen}");
        }
    }
}

#[test]
fn everything_that_can_be_written_is_read_by_traceevent() {
    let Some(peers) = Peers::for_test("everything_that_can_be_written_is_read_by_traceevent")
    else {
        return;
    };
    for (format, compressed) in [
        (WriteFormat::V4, true),
        (WriteFormat::V4, false),
        (WriteFormat::V6, true),
        (WriteFormat::V6, false),
    ] {
        let bytes = everything(format, compressed);
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let mut ours = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            ours.push([
                event.metadata().provider.clone(),
                event.metadata().event_id.to_string(),
                event.timestamp().to_string(),
                event.thread_id().to_string(),
                event.activity_id().to_string(),
                event.related_activity_id().to_string(),
                event.level().to_string(),
                event
                    .payload()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect(),
            ]);
        }
        let theirs = peers.oracle_events(&File::new("everything", &bytes).0);
        let theirs: Vec<[String; 8]> = theirs
            .iter()
            .map(|event| {
                [
                    "provider", "id", "ts_qpc", "tid", "activity", "related", "level", "raw",
                ]
                .map(|key| {
                    let value = &event[key];
                    value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned)
                })
            })
            .collect();
        assert_eq!(theirs, ours, "{format:?} compressed: {compressed}");
        assert_eq!(reader.losses().total(), 0);
    }
}

/// Events in order of time with all that a header can say, descriptions with all types that TraceEvent has, threads
/// that come and go, labels, sequence points.
fn everything(format: WriteFormat, compressed: bool) -> Vec<u8> {
    let v6 = format == WriteFormat::V6;
    let mut writer = TraceWriter::new(format, &info(8));
    writer.set_compressed(compressed);
    let field = |name: &str, field_type| Field {
        name: name.to_owned(),
        field_type,
    };
    let nested = FieldType::Object(vec![
        field("a", FieldType::Int32),
        field("b", FieldType::String),
    ]);
    let array = FieldType::Array(Box::new(FieldType::Int16));
    for (id, fields) in [
        (
            1,
            vec![
                field("number", FieldType::Int32),
                field("text", FieldType::String),
            ],
        ),
        (2, vec![field("object", nested)]),
        (3, vec![field("array", array)]),
        (4, vec![]),
    ] {
        let metadata = Metadata {
            id,
            provider: "Everything".to_owned(),
            event_id: 100 + id,
            name: format!("Event{id}"),
            keywords: 1 << id,
            level: id,
            version: id,
            opcode: if id == 4 { 11 } else { 0 },
            fields,
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
    }
    let mut numbers = [0u32; 3];
    let mut clock = 2000;
    for round in 0..3u64 {
        for thread in 1..=2u64 {
            let row = ThreadRow {
                process_id: Some(4711),
                thread_id: Some(thread),
                name: Some("worker".to_owned()),
                key_values: vec![("k".to_owned(), "v".to_owned())],
            };
            writer.define_thread(thread, &row).unwrap();
        }
        for event in 0..40u64 {
            let thread = event / 5 % 2 + 1;
            clock += 1 + event % 300;
            numbers[thread as usize] += 1;
            let metadata_id = (event % 4 + 1) as u32;
            let mut payload = Vec::new();
            match metadata_id {
                1 => payload.extend([7, 0, 0, 0, b'x', 0, 0, 0]),
                2 => payload.extend([7, 0, 0, 0, b'y', 0, b'z', 0, 0, 0]),
                3 => payload.extend([2, 0, 1, 0, 2, 0]),
                _ => {}
            }
            let activity = Guid([event as u8; 16]);
            let labels = match (v6, event % 6) {
                (true, 1) => vec![
                    Label::ActivityId(activity),
                    Label::TraceId([1; 16]),
                    Label::SpanId(5),
                    Label::String {
                        key: "k".into(),
                        value: "v".into(),
                    },
                    Label::Number {
                        key: "n".into(),
                        value: -3,
                    },
                    Label::Level(2),
                ],
                _ => vec![],
            };
            let frames: Vec<u8> = (0..event % 4)
                .flat_map(|frame| (0x1000 + frame).to_le_bytes())
                .collect();
            let record = EventRecord {
                metadata_id,
                sequence_number: numbers[thread as usize],
                thread_id: thread,
                capture_thread_id: thread,
                processor_number: if event % 2 == 0 { UNKNOWN_PROCESSOR } else { 1 },
                stack_id: writer.stack(&frames).unwrap(),
                timestamp: clock,
                activity_id: if event % 5 == 0 { activity } else { Guid::ZERO },
                related_activity_id: if event % 7 == 0 { activity } else { Guid::ZERO },
                is_sorted: true,
                label_list: writer.label_list(&labels).unwrap(),
                payload: &payload,
            };
            writer.event(&record).unwrap();
        }
        if round == 1 {
            writer.remove_thread(1, numbers[1]);
            writer.remove_thread(2, numbers[2]);
            if v6 {
                numbers = [0; 3];
            }
        }
        // A thread that was removed is not named any more.
        let all = if round == 1 && v6 {
            vec![]
        } else {
            vec![(1, numbers[1]), (2, numbers[2])]
        };
        writer.sequence_point(clock, if round == 0 { FORGET_THREADS } else { 0 }, all);
        if round == 0 && v6 {
            numbers = [0; 3];
        }
    }
    writer.finish();
    std::mem::take(writer.output())
}

/// Recorded traces as V3: the same events by time, threads, activities, payloads; to our reader also stacks and related activities, in place
/// of which TraceEvent (3.2.8) shows bytes of the payload in every trace of V3, a runtime's own too.
#[test]
fn a_trace_in_version_3_has_the_same_events() {
    let test = "a_trace_in_version_3_has_the_same_events";
    let (Some(peers), Some(samples)) = (Peers::for_test(test), samples(test)) else {
        return;
    };
    for name in ["net10.0/types", "net10.0/activity", "net9.0/exceptions"] {
        let sample = samples.iter().find(|sample| sample.name == name).unwrap();
        let bytes = sample.bytes();
        let mut writer = NetPerfWriter::new(Reader::new(&bytes[..]).unwrap().info());
        let mut stacks = Vec::new();
        let mut events = Reader::new(&bytes[..]).unwrap().dispatch_order();
        let mut written = Vec::new();
        while let Some(event) = events.next_event().unwrap() {
            let metadata = event.metadata();
            if !writer.is_defined(metadata.id) {
                writer.define_event(metadata);
            }
            let record = EventRecord {
                metadata_id: metadata.id,
                sequence_number: 0,
                thread_id: event.thread_id(),
                capture_thread_id: 0,
                processor_number: UNKNOWN_PROCESSOR,
                stack_id: 0,
                timestamp: event.timestamp() as u64,
                activity_id: event.activity_id(),
                related_activity_id: event.related_activity_id(),
                is_sorted: true,
                label_list: 0,
                payload: event.payload(),
            };
            writer.event(&record, event.stack().bytes()).unwrap();
            stacks.push((event.related_activity_id(), event.stack().bytes().to_vec()));
            written.append(writer.output());
        }
        writer.finish();
        written.append(writer.output());

        let mut reader = Reader::new(&written[..]).unwrap();
        assert_eq!(reader.info().format, FormatVersion::V3);
        let mut read = Vec::new();
        while let Some(event) = reader.next_event().unwrap() {
            read.push((event.related_activity_id(), event.stack().bytes().to_vec()));
        }
        assert_eq!(read, stacks, "{name}");

        let (original, written) = (File::new("v4", &bytes), File::new("v3", &written));
        let original = peers.oracle_events(&original.0);
        let written = peers.oracle_events(&written.0);
        assert_eq!(written.len(), original.len(), "{name}");
        for (written, original) in written.iter().zip(&original) {
            for key in ["provider", "event", "ts_qpc", "tid", "activity", "payload"] {
                assert_eq!(written[key], original[key], "{name} {key}: {original}");
            }
        }
    }
}
