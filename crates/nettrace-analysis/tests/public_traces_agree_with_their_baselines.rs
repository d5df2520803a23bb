//! The public traces of .NET Core 2.0 to .NET 6 (formats 1 to 5, 32 and 64 bits) read as TraceEvent's own baselines
//! say: how many events of which name, and the first of each name value by value. `data/baselines/README.md` has the
//! names that differ, with reasons.

mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nettrace::Reader;
use nettrace_analysis::events::{JsonLines, Options};
use serde_json::Value;

/// A line of a baseline.
struct Baseline {
    name: String,
    count: u64,
    /// Attributes of the first event.
    first: BTreeMap<String, String>,
}

/// Names in a baseline to ours, and names of ours that no baseline has.
#[derive(Default)]
struct Names {
    ours: BTreeMap<String, Vec<String>>,
    unlisted: BTreeSet<String>,
    /// Event and field that the text of the baselines does not have.
    fields: BTreeSet<(String, String)>,
}

#[test]
fn public_traces_agree_with_their_baselines() {
    let Some(shared) = peers::shared_for_test("public_traces_agree_with_their_baselines") else {
        return;
    };
    let files = samples::files(&shared.join("samples/public"));
    let baselines: Vec<PathBuf> = files
        .into_iter()
        .filter(|path| path.to_string_lossy().ends_with(".baseline.txt"))
        .collect();
    assert_eq!(baselines.len(), 8, "the public traces with a baseline");
    let names = names();
    let reports = samples::in_parallel(&baselines, |path| compare(path, &names));
    let report: String = reports.into_iter().collect();
    assert!(
        report.is_empty(),
        "differences from the baselines:\n{report}"
    );
}

fn names() -> Names {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/baselines");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("the lists");
    let mut names = Names::default();
    for row in read("fields.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (event, field) = row.split_once('\t').expect("two columns");
        names.fields.insert((event.to_string(), field.to_string()));
    }
    for row in read("names.tsv")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let [theirs, ours, _reason] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {row}")
        };
        if theirs == "-" {
            names.unlisted.insert(ours.to_string());
        } else {
            names.ours.insert(
                theirs.to_string(),
                ours.split(' ').map(String::from).collect(),
            );
        }
    }
    names
}

/// Everything that differs, a line each.
fn compare(path: &Path, names: &Names) -> String {
    let name = path
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .replace(".baseline.txt", "");
    let trace = path.with_file_name(format!("{name}.xz"));
    let baseline: Vec<Baseline> = samples::text(path).lines().map(parse).collect();
    // The moments of the first events: only these are kept as JSON.
    let moments: BTreeSet<&str> = baseline
        .iter()
        .map(|line| line.first["MSec"].as_str())
        .collect();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let mut kept: BTreeMap<String, Vec<Value>> = BTreeMap::new();

    let mut reader = Reader::new(samples::open(&trace)).expect("a trace");
    let mut lines = JsonLines::new(
        reader.info(),
        Options {
            raw: false,
            ..Options::default()
        },
    );
    let (sync, frequency) = (reader.info().sync_ticks, reader.info().ticks_per_second);
    let mut line = Vec::new();
    while let Some(event) = reader
        .next_event()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
    {
        let schema = event.schema();
        let event_name = format!("{}/{}", event.metadata().provider, schema.event_name());
        *counts.entry(event_name.clone()).or_default() += 1;
        let moment = (event.timestamp() - sync) as f64 * 1000.0 / frequency as f64;
        if moments.contains(format!("{moment:.4}").as_str()) {
            line.clear();
            lines.append(&event, &mut line);
            kept.entry(event_name)
                .or_default()
                .push(serde_json::from_slice(&line).expect("JSON"));
        } else {
            lines.pass(&event);
        }
    }

    let mut report = String::new();
    let mut listed: BTreeSet<&str> = names.unlisted.iter().map(String::as_str).collect();
    for line in &baseline {
        let same = [line.name.clone()];
        let renamed = names.ours.get(&line.name);
        // A name is only looked up when the file does not have it, so that the list cannot hide anything.
        let ours = match renamed {
            Some(ours) if !counts.contains_key(&line.name) => ours.as_slice(),
            _ => &same,
        };
        let count: u64 = ours.iter().filter_map(|name| counts.get(name)).sum();
        listed.extend(
            ours.iter()
                .filter_map(|name| counts.get_key_value(name))
                .map(|(name, _)| name.as_str()),
        );
        if count != line.count {
            report += &format!("{name}: {}: {count}, not {}\n", line.name, line.count);
        }
        let candidates: Vec<&Value> = ours
            .iter()
            .filter_map(|name| kept.get(name))
            .flatten()
            .collect();
        let differences = candidates
            .iter()
            .map(|event| differences(event, &line.first, renamed.is_some(), names));
        match differences.min_by_key(Vec::len) {
            None => report += &format!("{name}: no {} at {} ms\n", line.name, line.first["MSec"]),
            Some(differences) if differences.is_empty() => {}
            Some(differences) => {
                report += &format!("{name}: {}: {}\n", line.name, differences.join(", "))
            }
        }
    }
    for (event, count) in counts
        .iter()
        .filter(|(event, _)| !listed.contains(event.as_str()))
    {
        report += &format!("{name}: {count} events {event}, which the baseline does not have\n");
    }
    report
}

/// `name, count, <Event A="…" B="…">`.
fn parse(line: &str) -> Baseline {
    let line = line.trim_start_matches('\u{feff}').trim_end();
    let (name, rest) = line.split_once(", ").expect("a name");
    let (count, rest) = rest.split_once(", ").expect("a count");
    let mut first = BTreeMap::new();
    // What follows the first element are elements of arrays.
    let mut rest = rest
        .trim_start_matches("<Event")
        .split_once('>')
        .map_or(rest, |(element, _)| element);
    while let Some((key, tail)) = rest.split_once('=') {
        let value = tail.trim_start().strip_prefix('"');
        let Some((value, tail)) = value.and_then(|tail| tail.split_once('"')) else {
            break;
        };
        first
            .entry(key.trim().to_string())
            .or_insert_with(|| unescape(value.trim()));
        rest = tail;
    }
    Baseline {
        name: name.to_string(),
        count: count.parse().expect("a number"),
        first,
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&apos;", "'")
        .replace("&amp;", "&")
}

/// The values of an event that differ from the attributes.
fn differences(
    event: &Value,
    attributes: &BTreeMap<String, String>,
    renamed: bool,
    names: &Names,
) -> Vec<String> {
    let text = |key: &str| event[key].as_str().unwrap_or_default().to_string();
    let mut found = Vec::new();
    if Some(attributes["TID"].as_str()) != event["tid"].as_u64().map(|id| id.to_string()).as_deref()
    {
        found.push(format!("TID {} not {}", event["tid"], attributes["TID"]));
    }
    let Some(payload) = event["payload"].as_object() else {
        panic!("a payload is an object")
    };
    for (name, value) in payload {
        match attributes.get(name) {
            Some(expected) if agree(value, expected) => {}
            Some(expected) => found.push(format!("{name} {value} not {expected}")),
            // Arrays and nested objects are elements of their own or left out; renamed events have other fields.
            None if renamed || !name.is_ascii() || value.is_null() || name.is_empty() => {}
            None if names.fields.contains(&(text("event"), name.clone())) => {}
            None => found.push(format!("{name} is not in the baseline")),
        }
    }
    found
}

/// Whether a value is what the text says: a number with commas or in hexadecimal, or the text itself.
fn agree(value: &Value, text: &str) -> bool {
    let as_text = match value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => return value.to_string().eq_ignore_ascii_case(text),
        value => value.to_string(),
    };
    if as_text == text {
        return true;
    }
    let plain = text.replace(',', "");
    let number: Option<f64> = match plain.strip_prefix("0x") {
        Some(digits) => {
            // Signed numbers are written in hexadecimal as 32 bits.
            let bits = u64::from_str_radix(digits, 16).ok();
            let ours: Option<i64> = as_text.parse().ok();
            if let (Some(bits), Some(ours)) = (bits, ours) {
                let ours = ours.to_le_bytes();
                let short = u64::from(u32::from_le_bytes([ours[0], ours[1], ours[2], ours[3]]));
                return u64::from_le_bytes(ours) == bits || short == bits;
            }
            bits.map(|bits| bits as f64)
        }
        None => plain.parse().ok(),
    };
    match (number, as_text.parse::<f64>()) {
        // The baselines have fewer digits.
        (Some(theirs), Ok(ours)) => (theirs - ours).abs() <= ours.abs() * 1e-12,
        // An enumeration's word.
        (None, Ok(_)) => value.is_number(),
        // White space and unprintable characters were changed.
        (None, Err(_)) => {
            value.is_array() || value.is_object() || squeezed(&as_text) == squeezed(text)
        }
        (Some(_), Err(_)) => false,
    }
}

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
