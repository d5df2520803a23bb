//! `eventpipe counters`: values of EventCounters and of instruments, as lines of JSON, as a table at the end, and on a terminal drawn anew.

mod support;

use peers::{Peers, Runtime};
use serde_json::Value;
use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdout};
use support::{in_a_terminal, run, started};

/// The workload in a mode, traced when this returns; it ends when this is dropped.
struct Workload(
    Child,
    #[expect(dead_code, reason = "the program's output stays open")] BufReader<ChildStdout>,
);

impl Workload {
    fn start(peers: &Peers, runtime: Runtime, mode: &str, seconds: &str) -> Workload {
        let mut program = peers.program(runtime, "workload");
        program.args([mode, "--seconds", seconds, "--wait"]);
        let (mut child, output, line) = started(&mut program);
        assert!(line.starts_with("ready "), "{line}");
        // It begins when it has a line, and would wait for another one.
        let mut input = child.stdin.take().unwrap();
        writeln!(input).unwrap();
        Workload(child, output)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The counter of this name in the last line.
fn last<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    let rows = lines.last().expect("a line")["counters"]
        .as_array()
        .unwrap();
    let found = rows.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {rows:?}"))
}

fn lines(out: &str) -> Vec<Value> {
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn those_of_eventcounters() {
    let Some(peers) = Peers::for_test("those_of_eventcounters") else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net10, Runtime::Net11] {
        let workload = Workload::start(&peers, runtime, "counters", "60");
        let pid = workload.pid();
        let only = "EventPipe-Workload-Counters[answer,requests]";
        let (code, out, error) = run(&[
            "counters",
            "-p",
            &pid,
            "--counters",
            only,
            "--duration",
            "3500ms",
            "--json",
        ]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        let seen = lines(&out);
        assert!(seen.len() >= 2, "a line for each interval: {out}");
        let answer = last(&seen, "answer");
        assert_eq!(
            (&answer["last"], &answer["kind"]),
            (&42.0.into(), &"mean".into())
        );
        assert_eq!(last(&seen, "requests")["kind"], "increment");
        assert_eq!(
            seen[0]["counters"].as_array().unwrap().len(),
            2,
            "no others: {out}"
        );
        // Each time there are more values.
        assert!(
            seen.is_sorted_by_key(|line| line["values"].as_u64().unwrap()),
            "{out}"
        );

        let (code, out, error) = run(&["counters", "-p", &pid, "--duration", "1500ms"]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        let is_row =
            |line: &str| line.contains("CPU Usage (%)") && line.ends_with("System.Runtime");
        assert_eq!(out.lines().filter(|line| is_row(line)).count(), 1, "{out}");

        let (code, _, error) = run(&[
            "counters",
            "-p",
            &pid,
            "--counters",
            "Nothing",
            "--duration",
            "500ms",
        ]);
        assert_eq!(code, 0);
        assert!(
            error.contains("no value has come: Nothing may not exist"),
            "{error}"
        );
    }
}

#[test]
fn those_of_meters_until_the_process_ends() {
    let Some(peers) = Peers::for_test("those_of_meters_until_the_process_ends") else {
        return;
    };
    let workload = Workload::start(&peers, Runtime::Net10, "metrics", "6");
    let pid = workload.pid();
    let (code, out, error) = run(&[
        "counters",
        "-p",
        &pid,
        "--counters",
        "EventPipe.Workload.Metrics[latency,queue-length]",
        "--refresh-interval",
        "1",
        "--json",
    ]);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("has ended"), "{error}");
    let seen = lines(&out);
    assert_eq!(last(&seen, "latency p95")["last"], 100.0);
    let length = last(&seen, "queue-length");
    assert_eq!(
        (&length["kind"], &length["tags"]),
        (&"value".into(), &"queue=q1".into())
    );
    // The same keys as in the report.
    let report = include_str!("../../../docs/json.md");
    let section = report
        .split("## `eventpipe report counters --json`")
        .nth(1)
        .unwrap();
    for key in length.as_object().unwrap().keys() {
        assert!(section.contains(&format!("`counters[].{key}`")), "{key}");
    }
}

#[test]
fn on_a_terminal_until_ctrl_c() {
    const TEST: &str = "on_a_terminal_until_ctrl_c";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    let workload = Workload::start(&peers, Runtime::Net8, "counters", "60");
    let tool = env!("CARGO_BIN_EXE_eventpipe");
    let line = format!(
        "exec {tool} counters -p {} --interval 500ms",
        workload.pid()
    );
    // Drawn a second time before it is ended: the lines of the first are taken away.
    let typed = [("\x1b[J", "\x03")];
    let Some((shown, went_well)) = in_a_terminal(TEST, &line, &typed) else {
        return;
    };
    assert!(went_well, "{shown}");
    let tables = shown.matches("CPU Usage (%)").count();
    assert!(tables >= 2, "{shown}");
    assert!(shown.contains("F\x1b[J"), "{shown}");
}
