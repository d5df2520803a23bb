//! Every recorded trace that has TraceEvent's reading beside it: the same events in the same order, the same losses,
//! and the counts of the independent checker.

mod support;

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use nettrace::{Event, Reader};
use serde_json::Value;
use support::{Sample, read, samples};

/// Where TraceEvent's reading is another, case by case with reasons: the list that the crate nettrace-analysis keeps,
/// whose test compares every key and counts how often each case occurs.
const EXCEPTIONS: &str = "../nettrace-analysis/tests/data/traceevent/exceptions.tsv";

/// Trace, event as TraceEvent names it, key.
struct Exceptions(HashSet<(String, String, String)>);

impl Exceptions {
    fn read() -> Exceptions {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(EXCEPTIONS);
        let text = std::fs::read_to_string(path).unwrap();
        let rows = text.lines().filter(|line| !line.starts_with('#'));
        Exceptions(
            rows.map(|row| {
                let mut columns = row.split('\t').map(str::to_owned);
                let mut next = || columns.next().unwrap();
                (next(), next(), next())
            })
            .collect(),
        )
    }

    fn has(&self, trace: &str, event: &str, key: &str) -> bool {
        self.0
            .contains(&(trace.to_owned(), event.to_owned(), key.to_owned()))
    }

    /// TraceEvent stops in the middle of a trace without an end tag: its reading is a beginning of ours.
    fn is_without_end(&self, trace: &str) -> bool {
        self.has(trace, "", "more events")
    }
}

#[test]
fn every_event_is_the_same_in_the_order_of_dispatch() {
    let Some(samples) = samples("every_event_is_the_same_in_the_order_of_dispatch") else {
        return;
    };
    let exceptions = Exceptions::read();
    let mut compared = 0;
    for sample in samples {
        let expected = sample.beside("events.jsonl.xz");
        if !expected.exists() {
            continue;
        }
        let expected = String::from_utf8(read(&expected)).unwrap();
        let mut expected = expected.lines();
        let bytes = sample.bytes();
        let mut events = Reader::new(&bytes[..]).unwrap().dispatch_order();
        let without_end = exceptions.is_without_end(&sample.name);
        let mut index = 0;
        loop {
            let event = match events.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) if without_end => {
                    assert!(!events.reader().is_complete(), "{error}");
                    break;
                }
                Err(error) => panic!("{}: {error}", sample.name),
            };
            match expected.next() {
                Some(line) => {
                    let line = serde_json::from_str(line).unwrap();
                    compare(&sample, index, &event, &line, &exceptions);
                }
                None => assert!(without_end, "{}: more than {index} events", sample.name),
            }
            index += 1;
        }
        assert_eq!(expected.next(), None, "{}: {index} events", sample.name);
        compared += 1;
    }
    assert!(compared > 140, "{compared} traces compared");
}

/// How many bytes of a payload TraceEvent's reading shows.
const RAW: usize = 256;

fn compare(
    sample: &Sample,
    index: usize,
    event: &Event<'_>,
    expected: &Value,
    exceptions: &Exceptions,
) {
    let metadata = event.metadata();
    let found = [
        ("provider", metadata.provider.clone()),
        ("id", metadata.event_id.to_string()),
        ("version", event.version().to_string()),
        ("level", event.level().to_string()),
        ("keywords", format!("{:#x}", event.keywords())),
        ("ts_qpc", event.timestamp().to_string()),
        ("pid", event.process_id().to_string()),
        ("tid", event.thread_id().to_string()),
        ("activity", event.activity_id().to_string()),
        ("related", event.related_activity_id().to_string()),
        (
            "raw",
            hex(&event.payload()[..event.payload().len().min(RAW)]),
        ),
        ("raw_len", event.payload().len().to_string()),
    ];
    for (key, found) in found {
        let value = &expected[key];
        // The traces of the web service were taken without raw bytes.
        if key.starts_with("raw") && value.is_null() {
            continue;
        }
        let value = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        if found == value {
            continue;
        }
        let text = |key: &str| expected[key].as_str().unwrap_or_default();
        let name = format!("{}/{}#{}", text("provider"), text("event"), expected["id"]);
        assert!(
            exceptions.has(&sample.name, &name, key),
            "{}: event {index}: {key} is {found}, not {value}: {expected}",
            sample.name
        );
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn losses_and_counts_are_those_of_traceevent_and_of_the_checker() {
    let Some(samples) = samples("losses_and_counts_are_those_of_traceevent_and_of_the_checker")
    else {
        return;
    };
    let (mut summaries, mut checks) = (0, 0);
    for sample in samples {
        let bytes = sample.bytes();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        let mut with_stacks = 0u64;
        let damage = loop {
            match reader.next_event() {
                Ok(Some(event)) => with_stacks += u64::from(!event.stack().is_empty()),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        assert_eq!(damage.is_none(), reader.is_complete(), "{}", sample.name);
        let statistics = reader.statistics();
        assert_eq!(statistics.undescribed_events, 0, "{}", sample.name);
        assert_eq!(statistics.unreadable_descriptions, 0, "{}", sample.name);
        assert_eq!(statistics.trailing_bytes, 0, "{}", sample.name);
        assert_eq!(
            statistics.unknown_blocks + statistics.duplicates,
            0,
            "{}",
            sample.name
        );
        let losses = reader.losses();
        let delivered: u64 = losses.threads().iter().map(|thread| thread.delivered).sum();
        assert_eq!(delivered, statistics.events, "{}", sample.name);

        let summary = sample.beside("summary.json");
        if summary.exists() && reader.is_complete() {
            let summary: Value = serde_json::from_slice(&read(&summary)).unwrap();
            assert_eq!(summary["events"], statistics.events, "{}", sample.name);
            assert_eq!(summary["events_lost"], losses.gaps, "{}", sample.name);
            assert_eq!(
                summary["pointer_size"],
                reader.info().pointer_size,
                "{}",
                sample.name
            );
            summaries += 1;
        }
        let (folder, name) = sample.name.split_once('/').unwrap_or(("", &sample.name));
        let manifest = sample.path.with_file_name("manifest.json");
        if !folder.is_empty() && manifest.exists() {
            let manifest: Value = serde_json::from_slice(&read(&manifest)).unwrap();
            let entry = manifest
                .as_array()
                .unwrap()
                .iter()
                .find(|entry| entry["name"] == name)
                .unwrap();
            let check = &entry["check"];
            assert_eq!(check["events"], statistics.events, "{}", sample.name);
            assert_eq!(check["with_stacks"], with_stacks, "{}", sample.name);
            assert_eq!(check["dropped"], losses.gaps, "{}", sample.name);
            assert_eq!(
                check["dropped_at_thread_start"], losses.at_start,
                "{}",
                sample.name
            );
            checks += 1;
        }
    }
    assert!(
        summaries > 130 && checks > 110,
        "{summaries} summaries, {checks} manifest entries"
    );
}

/// The counts of the public traces, from their README.
const PUBLIC: [(&str, u64); 10] = [
    ("eventpipe-dotnetcore2.0-linux-objver1", 86_669),
    ("eventpipe-dotnetcore2.0-linux-objver2", 272_332),
    ("eventpipe-dotnetcore2.1-linux-x64-objver3", 26_146),
    ("eventpipe-dotnetcore2.1-linux-x64-tracelogging", 12),
    ("eventpipe-dotnetcore2.1-win-x86-objver3", 28_689),
    ("eventpipe-dotnetcore3.0-win-x64-objver4", 105_540),
    ("eventpipe-dotnetcore5.0-win-x64-arraytypes", 1_970),
    ("eventpipe-dotnetcore6.0-win-x64-executioncheckpoints", 3),
    ("mixed_managed_external_samples", 32_247),
    ("only_managed_samples", 37_603),
];

#[test]
fn the_public_traces_of_old_runtimes_have_the_published_counts() {
    let Some(samples) = samples("the_public_traces_of_old_runtimes_have_the_published_counts")
    else {
        return;
    };
    for (name, events) in PUBLIC {
        let sample = samples
            .iter()
            .find(|sample| sample.name == format!("public/{name}"))
            .unwrap();
        let bytes = sample.bytes();
        let mut reader = Reader::new(&bytes[..]).unwrap();
        while reader.next_event().unwrap().is_some() {}
        assert_eq!(reader.statistics().events, events, "{name}");
        assert!(reader.is_complete(), "{name}");
    }
}
