//! `ps` and `collect` against .NET Core 3.1, .NET 8, 10 and 11: the events that TraceEvent finds in the file are
//! those that the program says it wrote, also when the tool starts the program and catches its first event.

mod support;

use peers::{Peers, Runtime};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;
use support::{Scratch, answer, finish, run, tool};

/// Starts a program that waits for a line, and gives its pid.
fn start(
    peers: &Peers,
    runtime: Runtime,
    name: &str,
    arguments: &[&str],
) -> (Child, BufReader<std::process::ChildStdout>, u32) {
    let mut program = peers.program(runtime, name);
    let (child, output, line) = support::started(program.args(arguments).arg("--wait"));
    let pid = line
        .trim()
        .strip_prefix("ready ")
        .unwrap_or_else(|| panic!("{line}"));
    let pid = pid.parse().unwrap();
    (child, output, pid)
}

fn oracle_count(peers: &Peers, trace: &Path, event: &str) -> u64 {
    let summary = peers.oracle_summary(trace);
    assert_eq!(summary["events_lost"], 0, "{}", trace.display());
    let counts = summary["counts"].as_object().unwrap().iter();
    counts
        .filter(|(name, _)| name.split_once(" #").unwrap().0 == event)
        .map(|(_, row)| row["n"].as_u64().unwrap())
        .sum()
}

#[test]
fn by_their_pid() {
    let Some(peers) = Peers::for_test("by_their_pid") else {
        return;
    };
    for runtime in Runtime::ALL {
        let scratch = Scratch::new("dotnet");
        let trace = scratch.file("a.nettrace");
        let arguments = [
            "--threads",
            "3",
            "--count",
            "5000",
            "--size",
            "40",
            "--kind",
            "sequenced",
        ];
        let (mut child, mut output, pid) = start(&peers, runtime, "stress", &arguments);

        let (code, list, error) = run(&["ps", "--json"]);
        assert_eq!(code, 0, "{error}");
        let list: Value = serde_json::from_str(&list).unwrap();
        let row = list
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["pid"] == pid);
        let row = row.unwrap_or_else(|| panic!("{runtime:?} is not listed: {list:?}"));
        assert_eq!(row["name"], "stress");
        assert!(
            row["runtime"].as_str().unwrap().starts_with(".NET "),
            "{row}"
        );
        assert_eq!(row["error"], Value::Null);

        let recording = tool()
            .args(["collect", "-p", &pid.to_string(), "-o"])
            .arg(&trace)
            .args(["--providers", "EventPipeStress:FFFFFFFFFFFFFFFF:5"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The header is in the file as soon as the session runs; .NET 11 says so before its providers are on.
        support::wait_for_bytes(&trace, 1);
        sleep(Duration::from_millis(800));
        writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["attempted"], 15_000);
        // The program ends and the stream with it.
        drop(child.stdin.take());
        let (code, _, error) = finish(recording);
        child.wait().unwrap();
        assert_eq!(code, 0, "{runtime:?}: {error}");
        assert_eq!(
            oracle_count(&peers, &trace, "EventPipeStress/Sequenced"),
            15_000,
            "{runtime:?}"
        );

        let (code, report) = support::report(&trace);
        assert_eq!(code, 0);
        let rows = report["events"].as_array().unwrap();
        let row = rows
            .iter()
            .find(|row| row["provider"] == "EventPipeStress")
            .unwrap();
        assert_eq!(
            (row["event"].as_str(), row["count"].as_u64()),
            (Some("Sequenced"), Some(15_000))
        );
        assert_eq!(report["lost"]["total"], 0);
        let threads = report["threads"].as_array().unwrap();
        let writers = threads
            .iter()
            .filter(|row| row["written"].as_u64() >= Some(5_000))
            .count();
        assert_eq!(writers, 3, "{runtime:?}: {threads:?}");
    }
}

#[test]
fn from_their_first_event_when_the_tool_starts_them() {
    let Some(peers) = Peers::for_test("from_their_first_event_when_the_tool_starts_them") else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net10, Runtime::Net11] {
        let scratch = Scratch::new("dotnet-child");
        let trace = scratch.file("a.nettrace");
        let output = tool()
            .args(["collect", "--show-child-io", "-o"])
            .arg(&trace)
            .args([
                "--providers",
                "EventPipe-Workload-Log:FFFFFFFFFFFF:5",
                "--clrevents",
                "loader",
                "--",
            ])
            .arg(peers.dotnet(runtime))
            .arg(peers.program_path("workload"))
            .args(["log", "--count", "1"])
            .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            .output()
            .unwrap();
        let (code, out, error) = answer(&output);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        let said: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();

        let events = peers.oracle_events(&trace);
        let mine: Vec<&Value> = events
            .iter()
            .filter(|event| event["provider"] == "EventPipe-Workload-Log")
            .collect();
        let emitted: u64 = total(&said);
        assert_eq!(mine.len() as u64, emitted, "{runtime:?}: {said}");
        // The runtime's very first module is loaded long before the program's first line.
        assert!(
            events
                .iter()
                .any(|event| event["event"] == "Loader/ModuleLoad"),
            "{runtime:?}"
        );
    }
}

/// All events that the workload says it wrote.
fn total(said: &Value) -> u64 {
    let events = said["results"][0]["events"]
        .as_object()
        .unwrap_or_else(|| panic!("{said}"));
    events.values().map(|count| count.as_u64().unwrap()).sum()
}

#[test]
fn with_the_commands_own_exit_code() {
    let Some(peers) = Peers::for_test("with_the_commands_own_exit_code") else {
        return;
    };
    let scratch = Scratch::new("dotnet-code");
    let trace = scratch.file("a.nettrace");
    let failing = tool()
        .args(["collect", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(peers.dotnet(Runtime::Net8))
        .arg(peers.program_path("workload"))
        .arg("no-such-mode")
        .output()
        .unwrap();
    let directly = peers
        .program(Runtime::Net8, "workload")
        .arg("no-such-mode")
        .output()
        .unwrap();
    let code = directly.status.code().unwrap();
    assert_ne!(code, 0);
    let (got, _, error) = answer(&failing);
    assert_eq!(got, code, "{error}");
    let (code, _) = support::report(&trace);
    assert_eq!(code, 0);

    // One that is stopped by time is ended, and that is no failure. The port's file goes too.
    let trace = scratch.file("b.nettrace");
    let stopped = tool()
        .env("TMPDIR", scratch.path())
        .args(["collect", "--duration", "1s", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(peers.dotnet(Runtime::Net8))
        .arg(peers.program_path("workload"))
        .args(["idle", "--seconds", "600"])
        .output()
        .unwrap();
    let (code, _, error) = answer(&stopped);
    assert_eq!(code, 0, "{error}");
    let left = std::fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let left: Vec<String> = left
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    assert!(
        !left.iter().any(|name| name.starts_with("eventpipe-")),
        "{left:?}"
    );
}

#[test]
fn the_first_of_several_while_the_others_go_on_untraced() {
    const TEST: &str = "the_first_of_several_while_the_others_go_on_untraced";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    let scratch = Scratch::new("dotnet-tree");
    let trace = scratch.file("a.nettrace");
    // The second inherits the variable that suspends the first, and would wait for ever.
    let output = tool()
        .args([
            "collect",
            "--show-child-io",
            "--providers",
            "EventPipe-Workload-Log:ff:5",
            "-o",
        ])
        .arg(&trace)
        .args([
            "--",
            "sh",
            "-c",
            "\"$0\" \"$1\" log --count 1 && \"$0\" \"$1\" log --count 1",
        ])
        .arg(peers.dotnet(Runtime::Net8))
        .arg(peers.program_path("workload"))
        .output()
        .unwrap();
    let (code, out, error) = answer(&output);
    assert_eq!(code, 0, "{error}");
    assert_eq!(out.lines().filter(|line| line.starts_with('{')).count(), 2);
    assert!(error.contains("is not traced"), "{error}");
}

#[test]
fn with_the_profiles_of_dotnet_trace() {
    let Some(peers) = Peers::for_test("with_the_profiles_of_dotnet_trace") else {
        return;
    };
    let scratch = Scratch::new("dotnet-profiles");
    for (profile, runtime) in [
        ("gc-collect", Runtime::Net8),
        ("gc-collect", Runtime::Net10),
        ("gc-verbose", Runtime::Net11),
    ] {
        let trace = scratch.file("a.nettrace");
        let output = tool()
            .args(["collect", "--force", "--profile", profile, "-o"])
            .arg(&trace)
            .arg("--")
            .arg(peers.dotnet(runtime))
            .arg(peers.program_path("workload"))
            .args(["gc", "--rounds", "2"])
            .output()
            .unwrap();
        let (code, _, error) = answer(&output);
        assert_eq!(code, 0, "{error}");
        assert!(
            oracle_count(&peers, &trace, "Microsoft-Windows-DotNETRuntime/GC/Start") > 0,
            "{profile}"
        );
        // A rundown of the GC alone is what .NET 9 and later can do, and .NET 8 goes without.
        let says_so = error.contains("there is no rundown");
        assert_eq!(says_so, runtime == Runtime::Net8, "{error}");
    }
}
