//! What the reports on the runtime say is what TraceEvent's analysis of the samples was recorded to say.

mod samples;

use std::path::{Path, PathBuf};

use nettrace::{Event, Reader, TraceInfo};
use nettrace_analysis::activities::Activities;
use nettrace_analysis::runtime::{Allocations, Collections, Contention, Counters, Exceptions};
use serde_json::{Value, json};

/// The samples with this kind of analysis: trace and analysis. Empty: there are no samples here.
fn recorded(test: &str, infix: &str) -> Vec<(PathBuf, Value)> {
    let Some(shared) = peers::shared_for_test(test) else {
        return Vec::new();
    };
    let found: Vec<_> = samples::files(&shared.join("samples"))
        .into_iter()
        .filter_map(|path| {
            let stem = path.to_str()?.strip_suffix(infix)?;
            let golden = serde_json::from_str(&samples::text(&path)).expect("JSON");
            Some((samples::trace(Path::new(stem))?, golden))
        })
        .collect();
    assert!(!found.is_empty(), "no samples {infix}");
    found
}

fn read(trace: &Path, mut each: impl FnMut(&TraceInfo, &Event<'_>)) {
    let reader = Reader::new(samples::open(trace)).expect("a trace");
    let info = reader.info().clone();
    let mut ordered = reader.dispatch_order();
    while let Some(event) = ordered.next_event().expect("a whole trace") {
        each(&info, &event);
    }
}

fn near(ours: Option<f64>, theirs: &Value) -> bool {
    let (Some(ours), Some(theirs)) = (ours, theirs.as_f64()) else {
        return false;
    };
    // Nanoseconds, and sizes of which they print megabytes.
    (ours - theirs).abs() < 2e-6
}

#[test]
fn collections_and_their_pauses() {
    let mut compared = 0;
    for (trace, golden) in recorded("collections_and_their_pauses", ".gcstats.json") {
        let mut collections = Collections::new();
        read(&trace, |info, event| collections.add(info, event));
        let report = collections.finish();
        let process = &golden["processes"][0];
        let (totals, theirs) = (&process["gc_totals"], process["gcs"].as_array());
        let theirs = theirs.map_or(&[][..], Vec::as_slice);
        assert_eq!(report.collections.len(), theirs.len(), "{trace:?}");
        if theirs.is_empty() {
            continue;
        }
        assert_eq!(
            json!(report.count_per_generation),
            totals["count_per_generation"]
        );
        assert!(near(Some(report.pause_total_ms), &totals["pause_total_ms"]));
        assert!(near(Some(report.pause_max_ms), &totals["pause_max_ms"]));
        let megabytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e6);
        assert!(near(
            megabytes(Some(report.promoted_bytes)),
            &totals["promoted_mb"]
        ));
        for (ours, theirs) in report.collections.iter().zip(theirs) {
            let place = format!("{}: {ours:?} {theirs}", trace.display());
            assert_eq!(json!(ours.number), theirs["number"], "{place}");
            assert_eq!(json!(ours.generation), theirs["generation"], "{place}");
            let (kind, reason) = (&theirs["type"], &theirs["reason"]);
            assert!(kind.as_str().unwrap().contains(&ours.kind), "{place}");
            let named = format!(" {}", ours.reason);
            assert!(reason.as_str().unwrap().ends_with(&named), "{place}");
            assert!(
                near(Some(ours.pause_start_ms), &theirs["pause_start_rel_ms"]),
                "{place}"
            );
            assert!(near(ours.pause_ms, &theirs["pause_ms"]), "{place}");
            assert!(
                near(Some(ours.start_ms), &theirs["start_rel_ms"]),
                "{place}"
            );
            assert!(near(ours.duration_ms, &theirs["duration_ms"]), "{place}");
            assert!(
                near(megabytes(ours.size_after), &theirs["size_after_mb"]),
                "{place}"
            );
            assert!(
                near(megabytes(ours.promoted), &theirs["promoted_mb"]),
                "{place}"
            );
            compared += 1;
        }
    }
    println!("{compared} collections");
}

#[test]
fn allocations_by_type() {
    for (trace, golden) in recorded("allocations_by_type", ".alloc.json") {
        let mut allocations = Allocations::new();
        read(&trace, |_, event| allocations.add(event));
        let report = allocations.finish();
        assert_eq!(
            json!([report.ticks, report.bytes]),
            json!([golden["ticks"], golden["bytes"]])
        );
        let by_name = |rows: &Value| {
            let mut rows = rows.as_array().unwrap().clone();
            rows.sort_by_key(|row| row["type"].as_str().unwrap().to_owned());
            rows
        };
        assert_eq!(
            by_name(&json!(report.types)),
            by_name(&golden["types"]),
            "{trace:?}"
        );
        assert!(report.types.is_sorted_by(|a, b| a.bytes >= b.bytes));
    }
}

#[test]
fn exceptions_by_type_and_message() {
    for (trace, golden) in recorded("exceptions_by_type_and_message", ".exceptions.json") {
        let mut exceptions = Exceptions::new();
        read(&trace, |info, event| exceptions.add(info, event));
        let report = exceptions.finish();
        assert_eq!(json!(report.thrown), golden["thrown"], "{trace:?}");
        let mut ours: Vec<Value> = report
            .exceptions
            .iter()
            .map(|row| json!({"type": row.exception_type, "message": row.message, "count": row.count}))
            .collect();
        let mut theirs = golden["exceptions"].as_array().unwrap().clone();
        for rows in [&mut ours, &mut theirs] {
            rows.sort_by_key(|row| (row["type"].to_string(), row["message"].to_string()));
        }
        assert_eq!(ours, theirs, "{trace:?}");
        assert!(
            report
                .exceptions
                .iter()
                .all(|row| row.first_ms <= row.last_ms)
        );
    }
}

#[test]
fn waits_for_locks() {
    for (trace, golden) in recorded("waits_for_locks", ".contention.json") {
        let mut contention = Contention::new();
        read(&trace, |info, event| contention.add(info, event));
        let report = contention.finish();
        assert_eq!(
            json!([report.starts, report.stops]),
            json!([golden["starts"], golden["stops"]])
        );
        assert!(
            near(Some(report.wait_total_ms), &golden["duration_ms"]),
            "{trace:?}"
        );
        assert!(
            near(Some(report.wait_max_ms), &golden["duration_max_ms"]),
            "{trace:?}"
        );
        let starts: u64 = report.threads.iter().map(|row| row.starts).sum();
        assert_eq!(starts, report.starts);
    }
}

/// Values by provider, name and tags as they stand in TraceEvent's reading: how many, sum, last.
type Values = std::collections::BTreeMap<(String, String, String), (u64, f64, f64)>;

#[test]
fn counters_and_metrics() {
    let Some(shared) = peers::shared_for_test("counters_and_metrics") else {
        return;
    };
    for name in ["net10.0/counters", "net10.0/metrics", "net11.0/metrics"] {
        let stem = shared.join("samples").join(name);
        let mut expected = Values::new();
        let events = stem.with_extension("events.jsonl.xz");
        for line in samples::text(&events).lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let payload = &event["payload"];
            let mut put = |provider: &Value, name: &str, tags: &Value, value: Option<f64>| {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let Some(value) = value else { return };
                let key = (text(provider), name.to_owned(), text(tags));
                let row = expected.entry(key).or_insert((0, 0.0, 0.0));
                *row = (row.0 + 1, row.1 + value, value);
            };
            let number = |value: &Value| value.as_str()?.parse().ok();
            let counter = &payload[""]["Payload"];
            let (meter, tags) = (&payload["meterName"], &payload["tags"]);
            let instrument = payload["instrumentName"].as_str().unwrap_or_default();
            match event["event"].as_str().unwrap() {
                "EventCounters" => {
                    let value = counter["Mean"].as_f64().or(counter["Increment"].as_f64());
                    let name = counter["Name"].as_str().unwrap();
                    put(&event["provider"], name, &counter["Metadata"], value);
                }
                "CounterRateValuePublished" => {
                    put(meter, instrument, tags, number(&payload["rate"]))
                }
                "UpDownCounterRateValuePublished" => {
                    put(meter, instrument, tags, number(&payload["value"]));
                }
                "GaugeValuePublished" => {
                    put(meter, instrument, tags, number(&payload["lastValue"]));
                }
                "HistogramValuePublished" => {
                    for pair in payload["quantiles"].as_str().unwrap().split(';') {
                        let Some((quantile, value)) = pair.split_once('=') else {
                            continue;
                        };
                        let percent = quantile.parse::<f64>().unwrap() * 100.0;
                        let name = format!("{instrument} p{percent:.0}");
                        put(meter, &name, tags, value.parse().ok());
                    }
                }
                _ => {}
            }
        }
        let mut counters = Counters::new();
        let trace = samples::trace(&stem).unwrap();
        read(&trace, |info, event| {
            counters.add(info, event);
        });
        let report = counters.report();
        assert!(expected.len() > 5, "{name}: {}", expected.len());
        let found = report.counters.iter().map(|row| {
            let key = (row.provider.clone(), row.name.clone(), row.tags.clone());
            assert!(row.min <= row.mean && row.mean <= row.max, "{row:?}");
            (key, (row.count, row.mean * row.count as f64, row.last))
        });
        let found: Values = found.collect();
        assert_eq!(found.len(), report.counters.len(), "{name}");
        for (key, (count, sum, last)) in &expected {
            let row = found
                .get(key)
                .unwrap_or_else(|| panic!("{name}: no {key:?}"));
            // Their decimal digits, read again, may be one bit off.
            let is_same = |a: f64, b: f64| (a - b).abs() <= b.abs() * 1e-9;
            assert_eq!(row.0, *count, "{name}: {key:?}");
            assert!(
                is_same(row.1, *sum) && is_same(row.2, *last),
                "{name}: {key:?}: {row:?}"
            );
        }
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}

#[test]
fn activities_with_ids() {
    let Some(shared) = peers::shared_for_test("activities_with_ids") else {
        return;
    };
    let mut compared = 0;
    for name in [
        "net8.0.34/activity",
        "net10.0/activity",
        "net11.0/activity",
        "aspnet10/http-activities",
    ] {
        let stem = shared.join("samples").join(name);
        let plain = stem.with_extension("activities.jsonl");
        let golden = match plain.exists() {
            true => plain,
            false => stem.with_extension("activities.jsonl.xz"),
        };
        let mut expected: std::collections::BTreeMap<(String, String), Vec<f64>> =
            std::collections::BTreeMap::new();
        for line in samples::text(&golden).lines() {
            let one: Value = serde_json::from_str(line).unwrap();
            let text = |key: &str| one[key].as_str().unwrap().to_owned();
            // It makes an activity of each exception, too.
            if text("event_activity").starts_with("00000000-0000")
                || text("task") == "ExceptionHandling"
            {
                continue;
            }
            assert_eq!(one["stopped"], true, "{line}");
            let named = one["fields"]["ActivityName"].as_str();
            let key = (
                text("provider"),
                named.map_or_else(|| text("task"), str::to_owned),
            );
            let took = one["duration_ms"].as_f64().unwrap();
            expected.entry(key).or_default().push(took);
        }
        let mut activities = Activities::new();
        let trace = samples::trace(&stem).unwrap();
        read(&trace, |info, event| activities.add(info, event));
        let report = activities.finish();
        for ((provider, activity), mut took) in expected {
            took.sort_by(f64::total_cmp);
            let place = format!("{name}: {provider} {activity} {took:?}");
            let mut rows = report.activities.iter();
            let row = rows.find(|row| (&row.provider, &row.activity) == (&provider, &activity));
            let row = row.unwrap_or_else(|| panic!("{place}\n{:#?}", report.activities));
            let near = |a: f64, b: f64| (a - b).abs() < 1e-5 * took.len() as f64;
            assert_eq!((row.count, row.open), (took.len() as u64, 0), "{place}");
            assert!(near(row.total_ms, took.iter().sum()), "{place} {row:?}");
            assert!(near(row.max_ms, took[took.len() - 1]), "{place} {row:?}");
            assert!(
                near(row.median_ms, took[(took.len() - 1) / 2]),
                "{place} {row:?}"
            );
            compared += took.len();
        }
    }
    assert!(compared > 90, "{compared}");
}
