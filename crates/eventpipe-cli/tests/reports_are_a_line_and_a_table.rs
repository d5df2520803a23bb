//! `report activities`, `gc`, `alloc`, `exceptions`, `contention`, `counters` as a person reads them. (Their figures are compared with TraceEvent's in nettrace-analysis.)

mod support;

use support::{Scratch, run};

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
