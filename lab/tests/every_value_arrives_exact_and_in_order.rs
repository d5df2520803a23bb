//! Promise: what a program writes is what a reader gets, value by value, in each thread's order; and what is missing is counted.
//!
//! `lab emit` writes 4 × 50,000 events of all argument types, whose values follow from thread and running number. Our reader checks
//! every payload byte and every sequence number; TraceEvent (the oracle) checks every decoded value.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use common::{Folder, Program};
use lab::account::Account;
use lab::emit::{self, PROVIDER, Values};
use lab::process::Running;
use peers::Peers;
use serde_json::Value;

const THREADS: u64 = 4;
const COUNT: u64 = 50_000;

fn emit() -> Program {
    Program::start(&["emit", "--wait", "--hold"])
}

/// Our reader's account: every payload byte for byte, order, numbers, and attempted = delivered + lost.
fn check(trace: &[u8], losses: bool) -> Account {
    let mut wrong = Vec::new();
    let account = Account::with(trace, PROVIDER, |thread, number, event| {
        let values = emit::values(thread, number);
        let metadata = event.metadata();
        if metadata.event_id != values.event_id()
            || event.payload() != values.payload(thread, number)
        {
            wrong.push((thread, number));
        }
    });
    assert_eq!(account.error, None);
    assert!(account.is_complete, "the trace has no end");
    assert_eq!(wrong, [], "payloads that differ");
    assert_eq!(account.faults(), [""; 0]);
    let threads = account.threads.len() + account.silent.len();
    assert_eq!(threads as u64, THREADS);
    assert!(account.silent.values().all(|lost| *lost == COUNT));
    for (number, thread) in &account.threads {
        assert_eq!(
            thread.delivered + thread.lost,
            COUNT,
            "thread {number}: {thread:?}"
        );
    }
    assert_eq!(account.lost() > 0, losses, "lost: {}", account.lost());
    account
}

/// TraceEvent's account of the same file.
fn check_with_the_oracle(peers: &Peers, file: &Path, ours: &Account) {
    let mut child = Running(
        peers
            .tool("oracle")
            .arg("events")
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle starts"),
    );
    let lines = BufReader::new(child.0.stdout.take().expect("standard output")).lines();
    let mut threads: BTreeMap<u64, (u64, i64)> = BTreeMap::new();
    for line in lines {
        let event: Value = serde_json::from_str(&line.expect("text")).expect("JSON");
        if event["provider"] != PROVIDER {
            continue;
        }
        let payload = &event["payload"];
        let thread = payload["thread"].as_u64().expect("a thread number");
        let number = unsigned(&payload["number"]);
        let state = threads.entry(thread).or_insert((0, -1));
        assert!(
            state.1 < number as i64,
            "thread {thread}: {number} after {}",
            state.1
        );
        *state = (state.0 + 1, number as i64);
        let own = &ours.threads[&(thread as u32)];
        assert_eq!(event["tid"].as_u64(), own.os_threads.first().copied());
        check_values(&event, &emit::values(thread as u32, number));
    }
    assert!(
        child.0.wait().expect("our child").success(),
        "the oracle reports damage"
    );
    for (thread, (delivered, _)) in &threads {
        assert_eq!(
            *delivered,
            ours.threads[&(*thread as u32)].delivered,
            "thread {thread}"
        );
    }
    assert_eq!(threads.len(), ours.threads.len());
    // Attempted = delivered + lost by TraceEvent's own account, which leaves out what a thread lost before its first delivered event.
    let summary = peers.oracle_summary(file);
    let delivered: u64 = threads.values().map(|(delivered, _)| delivered).sum();
    assert_eq!(
        summary["events_lost"].as_u64(),
        Some(THREADS * COUNT - delivered - ours.lost_at_start()),
        "{summary}"
    );
}

fn unsigned(value: &Value) -> u64 {
    value
        .as_str()
        .expect("64-bit numbers are strings")
        .parse()
        .expect("a number")
}

fn check_values(event: &Value, values: &Values) {
    let payload = &event["payload"];
    assert_eq!(event["id"], values.event_id(), "{event}");
    let same = match values {
        Values::Integers {
            i8,
            u8,
            i16,
            u16,
            i32,
            u32,
            i64,
            u64,
        } => {
            payload["i8"] == *i8
                && payload["u8"] == *u8
                && payload["i16"] == *i16
                && payload["u16"] == *u16
                && payload["i32"] == *i32
                && payload["u32"] == *u32
                && payload["i64"] == i64.to_string().as_str()
                && payload["u64"] == u64.to_string().as_str()
        }
        Values::Reals {
            single,
            double,
            truth,
        } => {
            payload["single"].as_f64().map(|value| value as f32) == Some(*single)
                && payload["double"].as_f64() == Some(*double)
                && payload["truth"] == *truth
        }
        Values::Text(text) => payload["text"] == text.as_str(),
        Values::Blob { guid, bytes } => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let same_guid = payload["guid"]
                .as_str()
                .is_some_and(|text| text.eq_ignore_ascii_case(&nettrace::Guid(*guid).to_string()));
            same_guid
                && payload["bytes"]
                    .as_str()
                    .is_some_and(|text| text.eq_ignore_ascii_case(&hex))
        }
    };
    assert!(same, "{event} is not {values:?}");
}

/// Records a run with our client; `late`: nothing is read before all is written.
fn record(buffer_mb: u32, late: bool) -> Vec<u8> {
    let mut program = emit();
    let mut session = program.session(PROVIDER, buffer_mb);
    let stopper = session.stopper();
    let (finished, wait) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut trace = Vec::new();
        if late {
            wait.recv().expect("the writer tells");
        }
        session.read_to_end(&mut trace).expect("the stream is read");
        trace
    });
    program.go();
    program.line();
    assert_eq!(program.line(), "done");
    finished.send(()).ok();
    stopper.stop().expect("the session stops");
    let trace = reader.join().expect("the reader ends");
    program.go();
    assert!(program.end().success());
    trace
}

#[test]
fn into_a_session_of_our_client() {
    let trace = record(256, false);
    let ours = check(&trace, false);
    let Some(peers) = Peers::for_test("into_a_session_of_our_client") else {
        return;
    };
    let folder = Folder::new("ours");
    let file = folder.file("trace.nettrace");
    std::fs::write(&file, trace).expect("written");
    check_with_the_oracle(&peers, &file, &ours);
}

#[test]
fn into_a_session_that_loses_events() {
    let trace = record(1, true);
    let ours = check(&trace, true);
    let Some(peers) = Peers::for_test("into_a_session_that_loses_events") else {
        return;
    };
    let folder = Folder::new("lossy");
    let file = folder.file("trace.nettrace");
    std::fs::write(&file, trace).expect("written");
    check_with_the_oracle(&peers, &file, &ours);
}

#[test]
fn into_a_session_of_microsofts_client() {
    let Some(peers) = Peers::for_test("into_a_session_of_microsofts_client") else {
        return;
    };
    let folder = Folder::new("microsoft");
    let file = folder.file("trace.nettrace");
    let mut program = emit();
    let mut driver = Running(
        peers
            .tool("driver")
            .args([
                "--pid",
                &program.pid().to_string(),
                "start-session",
                "--provider",
            ])
            .arg(format!("{PROVIDER}:FFFFFFFFFFFFFFFF:5"))
            .args(["--until-stdin", "--out"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the driver starts"),
    );
    let mut lines = BufReader::new(driver.0.stdout.take().expect("standard output")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["started"], true);
    program.go();
    program.line();
    assert_eq!(program.line(), "done");
    let mut input = driver.0.stdin.take().expect("standard input");
    input.write_all(b"stop\n").expect("the driver listens");
    let result = next();
    assert_eq!(result["ok"], true, "{result}");
    assert_eq!(result["result"]["stop_error"], Value::Null, "{result}");
    assert!(driver.0.wait().expect("our child").success());
    program.go();
    assert!(program.end().success());
    let trace = std::fs::read(&file).expect("a trace");
    let ours = check(&trace, false);
    check_with_the_oracle(&peers, &file, &ours);
}
