//! Promise: sessions come and go, programs end and readers die while managed threads write and collections run, and a NativeAOT program
//! with this project's engine neither crashes nor hangs, and every event is delivered or counted.

mod common;

use std::io::Read;
use std::process::Command;
use std::time::Duration;

use common::{Folder, Program};
use dotnet_diagnostics::client::Fallbacks;
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use lab::account::Account;
use lab::nativeaot::{self, App, NativeEngine, Net};
use peers::Peers;

fn program(test: &str, app: App) -> Option<(Folder, std::path::PathBuf)> {
    Peers::for_test(test)?;
    peers::shared_for_test(test)?;
    let folder = Folder::new(test);
    let program = folder.file("program");
    nativeaot::link(&program, app, Net::Net10, NativeEngine::Rust, true)
        .expect("the program links");
    Some((folder, program))
}

/// Collections, and everything that the program itself has.
fn request() -> CollectTracing {
    let mut request = CollectTracing::new([
        ProviderConfig::new("Microsoft-Windows-DotNETRuntime", 0x1, 5),
        ProviderConfig::new("EpApp", u64::MAX, 5),
    ]);
    request.buffer_mb = 16;
    request
}

#[test]
fn a_thousand_sessions_under_eight_threads_and_collections() {
    let Some((_folder, path)) = program(
        "a_thousand_sessions_under_eight_threads_and_collections",
        App::Epapp,
    ) else {
        return;
    };
    // Ends when the test ends it: the work would outlast any session.
    let mut program = Program::start_command(Command::new(&path).args([
        "gc",
        "--threads",
        "8",
        "--seconds",
        "100000",
        "--wait",
    ]));
    program.go();
    let client = program.client();
    let mut events = 0_u64;
    for round in 0..1000 {
        let mut session = client
            .collect(&request(), Fallbacks::NONE)
            .unwrap_or_else(|error| panic!("session {round}: {error}"));
        let stopper = session.stopper();
        let reader = std::thread::spawn(move || {
            let mut trace = Vec::new();
            session.read_to_end(&mut trace).expect("the stream is read");
            trace
        });
        std::thread::sleep(Duration::from_millis(round % 5));
        stopper.stop().expect("the stop is answered");
        let trace = reader.join().expect("the reader ends");
        let mut reader = nettrace::Reader::new(trace.as_slice()).expect("a trace");
        while reader.next_event().expect("readable to its end").is_some() {
            events += 1;
        }
    }
    assert!(events > 1000, "{events} events in a thousand sessions");
    let _ = client.process_info().expect("it still answers");
}

#[test]
fn two_hundred_ends_in_the_midst_of_a_session() {
    let Some((_folder, path)) = program("two_hundred_ends_in_the_midst_of_a_session", App::Stress)
    else {
        return;
    };
    let mut delivered = 0;
    for round in 0..200 {
        let mut program = Program::start_command(Command::new(&path).args([
            "--wait",
            "--threads",
            "4",
            "--count",
            "2000",
        ]));
        let mut session = program.session("EventPipeStress", 16);
        program.go();
        let mut trace = Vec::new();
        session.read_to_end(&mut trace).expect("the stream is read");
        let attempted: serde_json::Value =
            serde_json::from_str(&program.line()).expect("the program says what it wrote");
        let status = program.end();
        assert!(status.success(), "round {round}: {status}");
        let account = Account::of(trace.as_slice(), "EventPipeStress");
        assert_eq!(account.error, None, "round {round}");
        assert!(account.is_complete, "round {round}: the trace has no end");
        assert_eq!(
            attempted["attempted"].as_u64(),
            Some(account.delivered() + account.lost()),
            "round {round}"
        );
        delivered += account.delivered();
    }
    assert!(delivered > 200 * 4000, "{delivered} events delivered");
}

#[test]
fn readers_that_vanish_cost_nothing() {
    let Some((_folder, path)) = program("readers_that_vanish_cost_nothing", App::Epapp) else {
        return;
    };
    let mut program = Program::start_command(Command::new(&path).args([
        "gc",
        "--threads",
        "4",
        "--seconds",
        "100000",
        "--wait",
    ]));
    program.go();
    let client = program.client();
    for round in 0..100 {
        let mut session = client
            .collect(&request(), Fallbacks::NONE)
            .unwrap_or_else(|error| panic!("session {round}: {error}"));
        let mut start = [0; 64];
        session.read_exact(&mut start).expect("the stream begins");
        // Gone without a word, in the midst of the stream.
        drop(session);
    }
    // All their sessions ended by themselves: as many as there can be start again.
    let mut open = Vec::new();
    for _ in 0..200 {
        match client.collect(&request(), Fallbacks::NONE) {
            Ok(session) => open.push(session),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
        if open.len() == 32 {
            break;
        }
    }
    assert_eq!(open.len(), 32, "sessions after a hundred vanished readers");
}
