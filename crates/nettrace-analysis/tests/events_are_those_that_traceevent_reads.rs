//! Event for event the JSON lines are those in which TraceEvent's reading of the samples was recorded: provider,
//! name, id, version, opcode, level, keywords, times, process, thread, activities, every field, raw bytes, order.
//!
//! What differs is listed in `data/traceevent/exceptions.tsv`, case by case with the number of times it occurs; the
//! README there says why. A difference that is not listed fails the test, and so does a listed one that is gone.

mod samples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nettrace::Reader;
use nettrace_analysis::events::{JsonLines, Options};
use serde_json::Value;

/// The samples were recorded with so many bytes of each payload.
const RAW_LIMIT: usize = 256;

/// Trace, event and key that differ, to how often.
type Differences = BTreeMap<(String, String, String), u64>;

#[test]
fn events_are_those_that_traceevent_reads() {
    let Some(shared) = peers::shared_for_test("events_are_those_that_traceevent_reads") else {
        return;
    };
    let samples = shared.join("samples");
    let recorded: Vec<PathBuf> = samples::files(&samples)
        .into_iter()
        .filter(|path| path.to_string_lossy().ends_with(SUFFIX))
        .collect();
    assert!(
        !recorded.is_empty(),
        "no samples below {}",
        samples.display()
    );
    let results = samples::in_parallel(&recorded, |path| compare(&samples, path));
    let events: u64 = results.iter().map(|(_, events)| events).sum();
    let found: Differences = results
        .into_iter()
        .flat_map(|(differences, _)| differences)
        .collect();
    println!("{} traces, {events} events compared", recorded.len());

    let expected = exceptions();
    let mut report = String::new();
    for (case, count) in &found {
        let (trace, event, key) = case;
        if expected.get(case) != Some(count) {
            let listed = expected.get(case).copied().unwrap_or(0);
            report += &format!("{trace}\t{event}\t{key}\t{count}\t(listed: {listed})\n");
        }
    }
    for (trace, event, key) in expected.keys().filter(|case| !found.contains_key(case)) {
        report +=
            &format!("{trace}\t{event}\t{key}\t0\t(listed, but there is no such difference)\n");
    }
    assert!(report.is_empty(), "differences from TraceEvent:\n{report}");
}

const SUFFIX: &str = ".events.jsonl.xz";

fn exceptions() -> Differences {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/traceevent/exceptions.tsv");
    let text = std::fs::read_to_string(path).expect("the list of exceptions");
    let rows = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.map(|row| {
        let [trace, event, key, count, _reason] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not five columns: {row}")
        };
        let count = count.parse().expect("a number in the fourth column");
        (
            (trace.to_string(), event.to_string(), key.to_string()),
            count,
        )
    })
    .collect()
}

/// The differences of one trace, and how many events were compared.
fn compare(samples: &Path, recorded: &Path) -> (Differences, u64) {
    let name = recorded
        .strip_prefix(samples)
        .expect("a path below the samples")
        .display()
        .to_string();
    let name = name.trim_end_matches(SUFFIX).to_string();
    let trace = samples::trace(&samples.join(&name)).unwrap_or_else(|| panic!("{name}: no trace"));
    let expected = samples::text(recorded);
    let mut differences = Differences::new();
    let mut note = |event: &str, key: &str| {
        *differences
            .entry((name.clone(), event.to_string(), key.to_string()))
            .or_default() += 1;
    };

    let reader =
        Reader::new(samples::open(&trace)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let options = Options {
        raw_limit: RAW_LIMIT,
        ..Options::default()
    };
    let mut lines = JsonLines::new(reader.info(), options);
    let mut events = reader.dispatch_order();
    let mut expected = expected.lines();
    let mut line = Vec::new();
    let mut count = 0;
    loop {
        line.clear();
        match events.next_event() {
            Ok(Some(event)) => lines.append(&event, &mut line),
            Ok(None) => break,
            Err(error) => {
                note("", &format!("error: {}", error.kind));
                break;
            }
        }
        let ours = std::str::from_utf8(&line)
            .expect("JSON is UTF-8")
            .trim_end();
        let Some(theirs) = expected.next() else {
            note("", "more events");
            continue;
        };
        count += 1;
        if ours != theirs {
            diff(&parse(ours), &parse(theirs), &mut note);
        }
    }
    expected.for_each(|_| note("", "missing events"));
    (differences, count)
}

fn parse(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Notes each key whose values differ. Keys that only we write are differences unless the recording left them out.
fn diff(ours: &Value, theirs: &Value, note: &mut impl FnMut(&str, &str)) {
    let text = |key: &str| theirs[key].as_str().unwrap_or_default().to_string();
    let event = format!("{}/{}#{}", text("provider"), text("event"), theirs["id"]);
    let (Some(ours), Some(theirs)) = (ours.as_object(), theirs.as_object()) else {
        panic!("an event is an object")
    };
    let without_raw = !theirs.contains_key("raw");
    for (key, value) in ours {
        match theirs.get(key) {
            Some(other) if key == "payload" => payload_diff("payload", value, other, &event, note),
            Some(other) if same(value, other) => {}
            None if without_raw && key.starts_with("raw") => {}
            _ => note(&event, key),
        }
    }
    theirs
        .keys()
        .filter(|key| !ours.contains_key(*key))
        .for_each(|key| note(&event, key));
}

fn payload_diff(
    path: &str,
    ours: &Value,
    theirs: &Value,
    event: &str,
    note: &mut impl FnMut(&str, &str),
) {
    let (Some(a), Some(b)) = (ours.as_object(), theirs.as_object()) else {
        if !same(ours, theirs) {
            note(event, path);
        }
        return;
    };
    for (key, value) in a {
        let path = format!("{path}.{key}");
        match b.get(key) {
            Some(other) => payload_diff(&path, value, other, event, note),
            None => note(event, &path),
        }
    }
    b.keys()
        .filter(|key| !a.contains_key(*key))
        .for_each(|key| note(event, &format!("{path}.{key}")));
}

/// Numbers are equal when they are the same double: 5 and 5.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.to_bits() == b.to_bits() || a == b,
        _ => a == b,
    }
}
