//! Promise: Microsoft's `dotnet-trace` sees, records and opens our process as one of .NET.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{Folder, NUMBERS, Program};
use lab::process::Running;
use lab::stress::PROVIDER;
use peers::{Peers, stderr};

fn target() -> Program {
    Program::start(&NUMBERS)
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the tool starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

fn succeeds(command: &mut Command) -> String {
    let (output, text) = output(command);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        stderr(&output)
    );
    text
}

/// TraceEvent reads it, it holds events of both threads, none is lost, and dotnet-trace's own report and converter open it.
fn opens(peers: &Peers, file: &Path) {
    let events = peers.oracle_events(file);
    let ours: Vec<_> = events
        .iter()
        .filter(|event| event["provider"] == PROVIDER)
        .collect();
    assert!(ours.len() > 1_000, "{} events", ours.len());
    for thread in [0, 1] {
        let numbers: Vec<i64> = ours
            .iter()
            .filter(|event| event["payload"]["thread"] == thread)
            .map(|event| {
                event["payload"]["number"]
                    .as_str()
                    .expect("a string")
                    .parse()
                    .expect("a number")
            })
            .collect();
        assert!(numbers.len() > 100, "thread {thread}: {}", numbers.len());
        assert!(
            numbers.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "thread {thread} has gaps"
        );
    }
    assert_eq!(peers.oracle_summary(file)["events_lost"], 0);
    let report = succeeds(
        peers
            .tool("dotnet-trace")
            .arg("report")
            .arg(file)
            .args(["topN", "-n", "5"]),
    );
    assert!(report.contains("Top 5 Functions"), "{report}");
    let converted = file.with_extension("speedscope.json");
    let convert = succeeds(
        peers
            .tool("dotnet-trace")
            .arg("convert")
            .arg(file)
            .args(["--format", "Speedscope"]),
    );
    assert!(convert.contains("Conversion complete"), "{convert}");
    let text = std::fs::read_to_string(&converted).expect("the converted file");
    serde_json::from_str::<serde_json::Value>(&text).expect("JSON");
}

#[test]
fn ps_lists_it() {
    let Some(peers) = Peers::for_test("ps_lists_it") else {
        return;
    };
    let program = target();
    let text = succeeds(peers.tool("dotnet-trace").arg("ps"));
    let pid = program.pid().to_string();
    let line = text
        .lines()
        .find(|line| line.split_whitespace().next() == Some(&pid))
        .unwrap_or_else(|| panic!("no line for {pid}:\n{text}"));
    assert!(line.contains("lab") && line.contains("target"), "{line}");
}

#[test]
fn collect_by_duration() {
    let Some(peers) = Peers::for_test("collect_by_duration") else {
        return;
    };
    let folder = Folder::new("duration");
    let file = folder.file("trace.nettrace");
    let program = target();
    let text = succeeds(collect(&peers, &program, &file).args(["--duration", "00:00:02"]));
    assert!(text.contains("Trace completed"), "{text}");
    opens(&peers, &file);
}

#[test]
fn collect_until_ctrl_c() {
    let Some(peers) = Peers::for_test("collect_until_ctrl_c") else {
        return;
    };
    let folder = Folder::new("ctrl-c");
    let file = folder.file("trace.nettrace");
    let program = target();
    let mut command = collect(&peers, &program, &file);
    let mut tool = Running(
        command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tool starts"),
    );
    // It handles Ctrl+C once it records, which the growing file shows: by now with about twice the events that `opens` asks for.
    let recording = || std::fs::metadata(&file).is_ok_and(|file| file.len() > 400_000);
    while !recording() {
        assert!(
            tool.0.try_wait().expect("our child").is_none(),
            "it ended by itself"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(tool.pid() as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("the signal is sent");
    assert!(tool.wait_without_reaping(common::HUNG), "the tool hangs");
    let status = tool.0.wait().expect("our child");
    assert!(status.success(), "{status}");
    opens(&peers, &file);
}

fn collect(peers: &Peers, program: &Program, file: &Path) -> Command {
    let mut command = peers.tool("dotnet-trace");
    command
        .args(["collect", "-p", &program.pid().to_string(), "--providers"])
        .arg(format!("{PROVIDER}:FFFFFFFFFFFFFFFF:5"))
        .arg("-o")
        .arg(file)
        .stdin(Stdio::null());
    command
}
