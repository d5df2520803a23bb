//! `report stat`, `activities`, `gc`, `alloc`, `exceptions`, `contention`, `counters` as a person reads them. (Their figures are compared with TraceEvent's in nettrace-analysis.)

mod support;

use nettrace::{
    EventRecord, FormatVersion, Metadata, SystemTime, TraceInfo, TraceWriter, WriteFormat,
};
use std::path::PathBuf;
use support::{Scratch, run};
use unicode_width::UnicodeWidthStr as _;

#[test]
fn in_a_line_and_a_table() {
    let Some(shared) = peers::shared_for_test("in_a_line_and_a_table") else {
        return;
    };
    for (report, sample, line, row) in [
        (
            "gc",
            "gc-verbose",
            "5 collections: 1 of generation 0, 1 of 1, 3 of 2",
            &["1", "0", "0.189", "1.47 ms", "NonConcurrent", "Induced"][..],
        ),
        (
            "alloc",
            "gc-verbose",
            "8.35 MB allocated, by 75 events",
            &["85.89", "7.17 MB", "64", "System.Byte[]"],
        ),
        (
            "exceptions",
            "exceptions",
            "9 exceptions thrown",
            &["2", "EventPipeWorkload.WorkloadException", "outer"],
        ),
        (
            "counters",
            "metrics",
            " counters",
            &[
                "8",
                "requests ({request} in an interval) [method=GET,status=200]",
                "EventPipe.Workload.Metrics",
            ],
        ),
        (
            "contention",
            "contention",
            "4 waits for a lock: 711 ms in all, longest 406 ms",
            &["21076", "1", "406 ms"],
        ),
    ] {
        let file = shared.join(format!("samples/net10.0/{sample}.nettrace"));
        let file = file.to_str().unwrap();
        let (code, out, error) = run(&["report", report, file]);
        assert_eq!(code, 0, "{error}");
        assert!(
            out.lines().next().unwrap().ends_with(line) || out.contains(line),
            "{out}"
        );
        let is_row = |text: &str| row.iter().all(|cell| text.contains(cell));
        assert!(out.lines().any(is_row), "{row:?}\n{out}");
        // The first row only, and that there are more.
        let (code, short, _) = run(&["report", report, file, "-n", "1"]);
        assert_eq!(code, 0);
        assert_eq!(
            out.lines().count() - rows(&out) + 2,
            short.lines().count(),
            "{short}"
        );
        assert!(short.ends_with(" more (-n N shows N)\n"), "{short}");
        // A trace without such events says how to have them.
        let other = shared.join("samples/net10.0/idle.nettrace");
        let (code, out, _) = run(&["report", report, other.to_str().unwrap()]);
        assert_eq!(code, 0);
        assert!(
            out.contains(": no ") && out.contains(" records them)"),
            "{out}"
        );
        assert_eq!(out.lines().count(), 1, "{out}");
    }
}

/// The lines of the table.
fn rows(out: &str) -> usize {
    out.lines().skip_while(|line| !line.is_empty()).count() - 2
}

#[test]
fn a_damaged_trace_is_reported_up_to_the_damage() {
    let Some(shared) = peers::shared_for_test("a_damaged_trace_is_reported_up_to_the_damage")
    else {
        return;
    };
    let scratch = Scratch::new("runtime-damaged");
    let bytes = std::fs::read(shared.join("samples/net10.0/exceptions.nettrace")).unwrap();
    let whole = bytes.len();
    let cut = scratch.file("cut.nettrace");
    std::fs::write(&cut, &bytes[..whole - 100]).unwrap();
    let (code, out, error) = run(&["report", "exceptions", cut.to_str().unwrap(), "--json"]);
    assert_eq!(code, 7, "{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["thrown"], 9, "{error}");
}

#[test]
fn activities_of_a_native_program_have_their_times() {
    let scratch = Scratch::new("activities");
    let output = support::tool()
        .current_dir(scratch.path())
        .args(["demo", "--duration", "500ms"])
        .output()
        .unwrap();
    let (code, _, error) = support::answer(&output);
    assert_eq!(code, 0, "{error}");
    let trace = scratch.file("demo.nettrace");
    let (_, report) = support::report(&trace);
    let stops = report["events"].as_array().unwrap().iter();
    let mut stops = stops.filter(|row| row["event"] == "Request/Stop");
    let stopped = stops.next().unwrap()["count"].as_u64().unwrap();
    let (code, out, _) = run(&["report", "activities", trace.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let mut rows = report["activities"].as_array().unwrap().iter();
    let row = rows.find(|row| row["activity"] == "Request").unwrap();
    assert_eq!(
        (&row["provider"], &row["count"]),
        (&"Demo-Requests".into(), &stopped.into())
    );
    let ms = |key: &str| row[key].as_f64().unwrap();
    assert!(
        0.0 < ms("median_ms") && ms("median_ms") <= ms("p95_ms") && ms("p95_ms") <= ms("max_ms")
    );
    let (code, out, _) = run(&["report", "activities", trace.to_str().unwrap()]);
    assert_eq!(code, 0);
    assert!(
        out.contains("Request") && out.contains("with a start and a stop"),
        "{out}"
    );
}

/// A trace with one event of each of these: provider, number, name.
fn trace_of(scratch: &Scratch, events: &[(&str, u32, &str)]) -> PathBuf {
    let info = TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(0),
        sync_ticks: 0,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(77),
        processor_count: Some(2),
        sampling_period_ns: None,
        pairs: Vec::new(),
    };
    let mut writer = TraceWriter::new(WriteFormat::V4, &info);
    for (id, (provider, event_id, name)) in (1..).zip(events) {
        let metadata = Metadata {
            id,
            provider: (*provider).into(),
            event_id: *event_id,
            name: (*name).into(),
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
        let record = EventRecord {
            metadata_id: id,
            sequence_number: id,
            thread_id: 7,
            capture_thread_id: 7,
            timestamp: 1_000_000,
            ..EventRecord::default()
        };
        writer.event(&record).unwrap();
    }
    writer.finish();
    let file = scratch.file("names.nettrace");
    std::fs::write(&file, writer.output()).unwrap();
    file
}

/// At 80 columns a report tells providers and events apart whose names are long and begin, or end, alike.
#[test]
fn a_report_at_80_columns_names_what_it_counts() {
    const TEST: &str = "a_report_at_80_columns_names_what_it_counts";
    let scratch = Scratch::new("narrow-names");
    let runtime = "Microsoft-Windows-DotNETRuntime";
    let rundown = "Microsoft-Windows-DotNETRuntimeRundown";
    // Of the runtime's own numbers the names are known.
    let events = [
        (runtime, 9001, "ThreadPoolWorkerThreadAdjustmentSample"),
        (runtime, 9002, "ThreadPoolWorkerThreadAdjustmentAdjustment"),
        (rundown, 9003, "MethodDCEndILToNativeMap"),
    ];
    let file = trace_of(&scratch, &events);
    let line = format!(
        "stty rows 50 cols 80 && '{}' report stat '{}'",
        support::tool().get_program().display(),
        file.display(),
    );
    let Some((shown, _)) = support::in_a_terminal(TEST, &line, &[]) else {
        return;
    };
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains('…')).collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert!(rows.iter().all(|row| row.width() <= 80), "{shown}");
    let has = |words: &[&str]| {
        rows.iter()
            .any(|row| words.iter().all(|word| row.contains(word)))
    };
    assert!(has(&[runtime, "ThreadPool", "Sample"]), "{shown}");
    assert!(has(&[runtime, "ThreadPool", "…Adjustment"]), "{shown}");
    assert!(
        has(&["DotNETRuntimeRundown", "MethodDC", "NativeMap"]),
        "{shown}"
    );
}

/// As .NET describes its counters: one name, another payload.
#[test]
fn events_of_one_name_are_told_apart_by_their_number() {
    let scratch = Scratch::new("one-name");
    let events = [
        ("Shop", 4, "Count"),
        ("Shop", 5, "Count"),
        ("Shop", 6, "Other"),
    ];
    let file = trace_of(&scratch, &events);
    let (code, out, error) = run(&["report", "stat", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    for row in [
        "Shop      Count (id 4)",
        "Shop      Count (id 5)",
        "Shop      Other\n",
    ] {
        assert!(out.contains(row), "{row}: {out}");
    }
}

#[test]
fn what_stands_behind_the_end_of_a_trace_is_told() {
    let scratch = Scratch::new("behind");
    let trace = trace_of(&scratch, &[("A", 1, "One"), ("A", 2, "Two")]);
    let one = std::fs::read(&trace).unwrap();
    let file = scratch.file("two.nettrace");
    std::fs::write(&file, [&one[..], &one[..]].concat()).unwrap();
    let file = file.to_str().unwrap();
    let copy = scratch.file("copy.nettrace");
    let copy = copy.to_str().unwrap();
    let told = format!(
        "two.nettrace: the trace ends at offset {}; {} bytes behind it were not read",
        one.len(),
        one.len()
    );
    for command in [
        &["info", file][..],
        &["events", file],
        &["report", "stat", file],
        &["report", "topn", file],
        &["report", "exceptions", file],
        &["repair", file, "-o", copy],
    ] {
        let (code, _, error) = run(command);
        assert_eq!(code, 0, "{error}");
        assert!(error.contains(&told), "{command:?}: {error}");
        let whole: Vec<&str> = command
            .iter()
            .map(|word| match *word {
                word if word == file => trace.to_str().unwrap(),
                "repair" => "info",
                word => word,
            })
            .filter(|word| !["-o", copy].contains(word))
            .collect();
        let (code, _, error) = run(&whole);
        assert_eq!(code, 0, "{error}");
        assert!(!error.contains("behind"), "{whole:?}: {error}");
    }
}
