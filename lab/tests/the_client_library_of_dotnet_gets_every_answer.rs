//! Promise: every public call of Microsoft's client library gets from our process what a native process can give, over its
//! default port, and over one that it dials itself.

mod common;

use std::process::{Command, Stdio};

use common::{Folder, NUMBERS, Program};
use dotnet_diagnostics::client::Endpoint;
use lab::process::Running;
use lab::stress::PROVIDER;
use peers::{Peers, stderr};
use serde_json::Value;

/// A verb with its arguments; None: it succeeds, else what the error says.
type Case = (Vec<String>, Option<&'static str>);

fn cases(folder: &Folder) -> Vec<Case> {
    const REFUSED: Option<&str> = Some("Not supported");
    const CLASS: &str = "11111111-2222-3333-4444-555555555555";
    let core = folder.file("core").display().to_string();
    let trace = folder.file("trace.nettrace").display().to_string();
    let case = |text: &str, error| {
        let words = text.split(' ').map(|word| match word {
            "CORE" => core.clone(),
            "TRACE" => trace.clone(),
            word => word.to_string(),
        });
        (words.collect(), error)
    };
    let profiler = |verb: &str| format!("{verb} --guid {CLASS} --path /nowhere.so");
    let session =
        |options: &str| format!("start-session --provider {PROVIDER} --seconds 1 {options}");
    vec![
        case("wait --seconds 60", None),
        case("process-info", None),
        case("resume", None),
        case("environment", None),
        case("set-env EVENTPIPE_LAB value", None),
        case("set-env EVENTPIPE_LAB", None),
        case("enable-perfmap All", None),
        case("enable-perfmap PerfMap", None),
        case("disable-perfmap", None),
        case("write-dump --path CORE --type Normal", None),
        case("write-dump --path CORE --type Triage", None),
        case("write-dump --path CORE --type WithHeap", None),
        case("write-dump --path CORE --type Full", None),
        case("write-dump --path CORE --type Normal --flags 7", None),
        case(
            "write-dump --path /nowhere/core --type Full",
            Some("/nowhere/core"),
        ),
        // What a native process cannot do.
        case("enable-perfmap JitDump", REFUSED),
        case(&profiler("attach-profiler"), REFUSED),
        case(
            &format!(
                "{} --timeout-ms 10 --data 0102",
                profiler("attach-profiler")
            ),
            REFUSED,
        ),
        case(&profiler("startup-profiler"), REFUSED),
        case("apply-startup-hook /nowhere.dll", REFUSED),
        case(
            "start-session --provider Microsoft-DotNETCore-SampleProfiler --seconds 1",
            REFUSED,
        ),
        // Each command that starts a session, and each way in which one ends.
        case(&session("--event-filter on:4 --stackwalk false"), None),
        case(&session("--event-filter off:1,2"), None),
        case(&session("--stackwalk false --mb 1"), None),
        case(&session("--rundown-keyword 1 --end close"), None),
        case(&session("--block"), None),
        case(&session("--sessions 5 --end none"), None),
        case(&session("--resume"), None),
        case(
            &format!(
                "start-session --provider {PROVIDER}:FFFFFFFFFFFFFFFF:5 --seconds 1 --out TRACE --end stop"
            ),
            None,
        ),
        case(
            &format!(
                "start-session --provider {PROVIDER} --seconds 1 --end stop-async --rundown false"
            ),
            None,
        ),
    ]
}

fn answers(driver: &mut Command, cases: &[Case]) {
    for (index, (words, _)) in cases.iter().enumerate() {
        if index > 0 {
            driver.arg("--then");
        }
        driver.args(words);
    }
    let output = driver.stdin(Stdio::null()).output().expect("driver starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .filter(|answer: &Value| {
            let connected = answer["verb"] == "connect" && answer["ok"] == true;
            answer["started"] != true && !connected
        })
        .collect();
    assert_eq!(answers.len(), cases.len(), "{text}\n{}", stderr(&output));
    for ((words, error), answer) in cases.iter().zip(&answers) {
        assert_eq!(answer["verb"], words[0], "{text}");
        match error {
            None => assert_eq!(answer["ok"], true, "{words:?}: {answer}"),
            Some(error) => {
                assert_eq!(answer["ok"], false, "{words:?}: {answer}");
                let message = answer["message"].as_str().unwrap_or_default();
                assert!(message.contains(error), "{words:?}: {answer}");
            }
        }
    }
    let session = &answers[answers.len() - 2]["result"];
    assert!(session["bytes"].as_u64() > Some(10_000), "{session}");
}

/// Asks everything of a process that is reached in this way, with a folder for what is written.
fn through<P>(test: &str, reached: impl FnOnce(&Folder, &mut Command) -> (P, u32)) {
    let Some(peers) = Peers::for_test(test) else {
        return;
    };
    let folder = Folder::new(test);
    let mut driver = peers.tool("driver");
    let (program, pid) = reached(&folder, &mut driver);
    answers(&mut driver, &cases(&folder));
    let summary = peers.oracle_summary(&folder.file("trace.nettrace"));
    assert_eq!(summary["events_lost"], 0, "{summary}");
    drop(program);
    drop(std::fs::remove_file(format!("/tmp/perf-{pid}.map")));
}

#[test]
fn over_the_default_port() {
    through("over_the_default_port", |_, driver| {
        let program = Program::start(&NUMBERS);
        let pid = program.pid();
        driver.args(["--pid", &pid.to_string()]);
        (program, pid)
    });
}

#[test]
fn over_the_socket_by_its_path() {
    through("over_the_socket_by_its_path", |_, driver| {
        let program = Program::start(&NUMBERS);
        let pid = program.pid();
        let process = dotnet_diagnostics::discovery::find(pid).expect("it has a socket");
        let Endpoint::Socket(path) = process.endpoint() else {
            panic!("a process is found by its socket");
        };
        driver.arg("--socket").arg(path);
        (program, pid)
    });
}

/// The library listens, and our process dials; it is held at its start until the library resumes it.
#[test]
fn over_a_port_that_the_process_dials() {
    through("over_a_port_that_the_process_dials", |folder, driver| {
        let socket = folder.file("port.sock");
        let mut target = Command::new(env!("CARGO_BIN_EXE_lab"));
        target
            .args(NUMBERS)
            .env("DOTNET_DiagnosticPorts", &socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        driver.arg("--listen").arg(&socket);
        let running = Running(target.spawn().expect("the program starts"));
        let pid = running.pid();
        (running, pid)
    });
}

#[test]
fn it_is_among_the_published_processes() {
    let Some(peers) = Peers::for_test("it_is_among_the_published_processes") else {
        return;
    };
    let program = Program::start(&NUMBERS);
    let output = peers
        .tool("driver")
        .arg("ps")
        .output()
        .expect("driver starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("a JSON line");
    let processes = answer["result"].as_array().expect("a list");
    assert!(processes.contains(&program.pid().into()), "{answer}");
}
