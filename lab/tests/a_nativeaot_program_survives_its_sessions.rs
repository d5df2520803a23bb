//! Promise: sessions come and go, programs end, fork and are held at their start, and readers die, while managed threads write and
//! collections run, and a NativeAOT program with this project's engine neither crashes nor hangs, and every event is delivered or counted.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Folder, HUNG, Program, reading, short_session};
use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks};
use dotnet_diagnostics::codec::{CollectTracing, ProviderConfig};
use dotnet_diagnostics::port::Listener;
use lab::account::Account;
use lab::nativeaot::{self, App, Extras, NativeEngine, Net};
use lab::process::Running;
use peers::Peers;

fn program(test: &str, app: App) -> Option<(Folder, PathBuf)> {
    program_with(test, app, Net::Net10, &[])
}

fn program_with(test: &str, app: App, net: Net, objects: &[PathBuf]) -> Option<(Folder, PathBuf)> {
    Peers::for_test(test)?;
    peers::shared_for_test(test)?;
    let folder = Folder::new(test);
    let program = folder.file("program");
    let extras = Extras {
        objects,
        ..Extras::HEAP_WALK
    };
    nativeaot::link(&program, app, net, NativeEngine::Rust, extras).expect("the program links");
    Some((folder, program))
}

/// A program in which threads allocate and collections run until the test ends it: no session outlasts the work.
fn collecting(path: &Path, threads: &str) -> Program {
    let arguments = ["gc", "--threads", threads, "--seconds", "100000", "--wait"];
    let mut program = Program::start_command(Command::new(path).args(arguments));
    program.go();
    program
}

/// The number of rounds: the full one where everything is tested.
fn rounds(full: u64) -> u64 {
    match std::env::var_os("EVENTPIPE_TEST_FULL") {
        Some(_) => full,
        None => full / 10,
    }
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
    let test = "a_thousand_sessions_under_eight_threads_and_collections";
    many_sessions_under_eight_threads_and_collections(test, Net::Net10, 1000);
}

#[test]
fn a_hundred_sessions_under_eight_threads_and_collections_on_net_11() {
    let test = "a_hundred_sessions_under_eight_threads_and_collections_on_net_11";
    many_sessions_under_eight_threads_and_collections(test, Net::Net11, 100);
}

fn many_sessions_under_eight_threads_and_collections(test: &str, net: Net, sessions: u64) {
    let Some((_folder, path)) = program_with(test, App::Epapp, net, &[]) else {
        return;
    };
    let program = collecting(&path, "8");
    let client = program.client();
    let mut events = 0_u64;
    for round in 0..sessions {
        let trace = short_session(&client, &request(), Duration::from_millis(round % 5));
        let mut reader = nettrace::Reader::new(trace.as_slice()).expect("a trace");
        while reader.next_event().expect("readable to its end").is_some() {
            events += 1;
        }
    }
    assert!(events > sessions, "{events} events in {sessions} sessions");
    let _ = client.process_info().expect("it still answers");
}

/// The format numbers the events of a thread, lost ones too, and so does the program: what the two numbers of an event differ by is how
/// many there were before the session, and must be the same for all events of a thread. That is attempted = delivered + lost, at each.
#[test]
fn each_of_a_thousand_sessions_accounts_for_every_event_of_eight_threads() {
    let test = "each_of_a_thousand_sessions_accounts_for_every_event_of_eight_threads";
    let Some((_folder, path)) = program(test, App::Stress) else {
        return;
    };
    let mut program = Program::start_command(
        Command::new(&path)
            .args("--wait --threads 8 --kind sequenced --rate 2000 --seconds 100000".split(' ')),
    );
    program.go();
    let client = program.client();
    // Only these: a thread that collects would raise other events too, which the format numbers with them.
    let mut request = CollectTracing::new([ProviderConfig::new("EventPipeStress", u64::MAX, 5)]);
    request.buffer_mb = 1;
    let mut events = 0;
    for round in 0..rounds(1000) {
        let trace = short_session(&client, &request, Duration::from_millis(round % 20));
        let mut before = BTreeMap::new();
        let account = Account::with(
            trace.as_slice(),
            "EventPipeStress",
            |thread, number, event| {
                let difference = number.wrapping_sub(u64::from(event.sequence_number()));
                let first = *before.entry(thread).or_insert(difference);
                assert_eq!(first, difference, "session {round}, thread {thread}");
            },
        );
        assert_eq!(account.error, None, "session {round}");
        assert!(account.is_complete, "session {round}: the trace has no end");
        events += account.delivered();
    }
    assert!(events > rounds(1000), "{events} events");
}

#[test]
fn a_program_that_forks_is_traced_on_and_its_children_end() {
    let test = "a_program_that_forks_is_traced_on_and_its_children_end";
    let objects = Folder::new("forks");
    let object = objects.file("forks.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/forks.c");
    let compiled = Command::new("cc")
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(compiled.expect("cc starts").success());
    let Some((folder, path)) = program_with(test, App::Stress, Net::Net10, &[object]) else {
        return;
    };
    let (start, said) = (folder.file("start"), folder.file("said"));
    let forks = rounds(200);
    let mut program = Program::start_command(
        Command::new(&path)
            .args("--wait --threads 4 --kind sequenced --rate 20000 --seconds 3".split(' '))
            .env("FORKS", forks.to_string())
            .env("FORKS_START", &start)
            .stderr(std::fs::File::create(&said).expect("a file")),
    );
    let reader = reading(program.session("EventPipeStress", 16));
    program.go();
    std::fs::write(&start, "").expect("a file");
    let attempted: serde_json::Value =
        serde_json::from_str(&program.line()).expect("the program says what it wrote");
    let trace = reader.join().expect("the reader ends");
    assert!(program.end().success());
    assert_eq!(
        std::fs::read_to_string(&said).expect("a file"),
        format!("forks {forks} good {forks}\n")
    );
    let account = Account::of(trace.as_slice(), "EventPipeStress");
    assert_eq!((account.error, account.is_complete), (None, true));
    assert_eq!(
        attempted["attempted"].as_u64(),
        Some(account.delivered() + account.lost())
    );
    assert_eq!(account.faults(), Vec::<String>::new());
}

/// The trace has what happened before the first managed code, and everything that the program wrote.
fn has_everything_from_the_start(mut session: impl Read) {
    let mut trace = Vec::new();
    session.read_to_end(&mut trace).expect("the stream is read");
    let mut reader = nettrace::Reader::new(trace.as_slice()).expect("a trace");
    let mut numbers: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    while let Some(event) = reader.next_event().expect("readable to its end") {
        let metadata = event.metadata();
        let known = numbers.entry(metadata.provider.clone()).or_default();
        known.push(metadata.event_id);
    }
    assert!(reader.is_complete());
    let of = |provider: &str, id: u32| {
        let numbers = numbers.get(provider).into_iter().flatten();
        numbers.filter(|number| **number == id).count()
    };
    // The heap's first segments.
    assert!(of("Microsoft-Windows-DotNETRuntime", 5) > 0);
    for id in 1..=10 {
        assert_eq!(of("EpApp", id), 1, "event {id}");
    }
}

/// All that is asked for before a program runs.
fn early_request() -> CollectTracing {
    CollectTracing::new([
        ProviderConfig::new("Microsoft-Windows-DotNETRuntime", 0x1, 4),
        ProviderConfig::new("EpApp", u64::MAX, 5),
    ])
}

/// The program, whose start is held, with a way to hold it in its environment.
fn held(path: &Path, variable: &str, value: impl AsRef<std::ffi::OsStr>) -> Running {
    let child = Command::new(path)
        .args(["types", "--seconds", "1"])
        .env(variable, value)
        .stdout(Stdio::null())
        .spawn();
    Running(child.expect("the program starts"))
}

/// A session sees everything from the start of a program that is held until then.
fn goes_on_when_resumed(endpoint: Endpoint, mut running: Running) {
    let client = Client::new(endpoint);
    let session = client
        .collect(&early_request(), Fallbacks::NONE)
        .expect("a session");
    client.resume_runtime().expect("it goes on");
    has_everything_from_the_start(session);
    assert!(running.wait_without_reaping(HUNG), "the program hangs");
    assert!(running.0.wait().expect("our child").success());
}

#[test]
fn a_start_held_on_the_own_socket_goes_on_when_resumed() {
    let test = "a_start_held_on_the_own_socket_goes_on_when_resumed";
    let Some((_folder, path)) = program(test, App::Epapp) else {
        return;
    };
    let mut running = held(&path, "DOTNET_DefaultDiagnosticPortSuspend", "1");
    let process = loop {
        match dotnet_diagnostics::discovery::find(running.pid()) {
            Ok(process) => break process,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        assert!(
            running.0.try_wait().expect("our child").is_none(),
            "it did not wait"
        );
    };
    goes_on_when_resumed(process.endpoint(), running);
}

#[test]
fn a_start_held_by_a_port_that_the_program_dials_goes_on_when_resumed() {
    let test = "a_start_held_by_a_port_that_the_program_dials_goes_on_when_resumed";
    let Some((folder, path)) = program(test, App::Epapp) else {
        return;
    };
    let listener = Listener::bind(folder.file("port")).expect("a port");
    let running = held(&path, "DOTNET_DiagnosticPorts", listener.path());
    let runtime = listener
        .next_runtime(HUNG)
        .expect("a port")
        .expect("a process dials");
    assert_eq!(runtime.process_id(), u64::from(running.pid()));
    goes_on_when_resumed(Endpoint::Runtime(runtime), running);
}

/// What the program's EventSource is told while two sessions come and go is the same with either engine: one command for each change.
#[test]
fn callbacks_are_those_of_the_runtimes_own_engine() {
    let test = "callbacks_are_those_of_the_runtimes_own_engine";
    if Peers::for_test(test).is_none() || peers::shared_for_test(test).is_none() {
        return;
    }
    let folder = Folder::new(test);
    let told = [NativeEngine::C, NativeEngine::Rust].map(|engine| {
        let path = folder.file("program");
        nativeaot::link(&path, App::Epapp, Net::Net10, engine, Extras::HEAP_WALK)
            .expect("the program links");
        let said = folder.file("said");
        let mut program = Program::start_command(
            Command::new(&path)
                .args(["idle", "--seconds", "0", "--verbose", "--wait"])
                .stderr(std::fs::File::create(&said).expect("a file")),
        );
        let client = program.client();
        let open = |arguments: Option<&str>, level| {
            let mut provider = ProviderConfig::new("EpApp", 3, level);
            provider.arguments = arguments.map(str::to_owned);
            let session = client
                .collect(&CollectTracing::new([provider]), Fallbacks::NONE)
                .expect("a session");
            (session.stopper(), reading(session))
        };
        for _ in 0..2 {
            let first = open(Some("EventCounterIntervalSec=1"), 4);
            let second = open(None, 5);
            for (stopper, reader) in [first, second] {
                stopper.stop().expect("the stop is answered");
                reader.join().expect("the stream ends");
            }
        }
        program.go();
        let line = program.line();
        assert_eq!(line, "done idle");
        assert!(program.end().success());
        let said = std::fs::read_to_string(&said).expect("a file");
        said.lines()
            // Which thread it was does not matter.
            .map(|line| line.split(" tid=").next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    });
    let [c, rust] = told;
    assert!(c.len() >= 8, "{c:?}");
    assert_eq!(c, rust);
}

#[test]
fn two_hundred_ends_in_the_midst_of_a_session() {
    let test = "two_hundred_ends_in_the_midst_of_a_session";
    many_ends_in_the_midst_of_a_session(test, Net::Net10, 200);
}

#[test]
fn thirty_ends_in_the_midst_of_a_session_on_net_11() {
    let test = "thirty_ends_in_the_midst_of_a_session_on_net_11";
    many_ends_in_the_midst_of_a_session(test, Net::Net11, 30);
}

fn many_ends_in_the_midst_of_a_session(test: &str, net: Net, ends: u64) {
    let Some((_folder, path)) = program_with(test, App::Stress, net, &[]) else {
        return;
    };
    let mut delivered = 0;
    for round in 0..ends {
        let mut program = Program::start_command(Command::new(&path).args([
            "--wait",
            "--threads",
            "4",
            "--count",
            "2000",
        ]));
        let reader = reading(program.session("EventPipeStress", 16));
        program.go();
        let trace = reader.join().expect("the reader ends");
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
    assert!(delivered > ends * 4000, "{delivered} events delivered");
}

#[test]
fn readers_that_vanish_cost_nothing() {
    let Some((_folder, path)) = program("readers_that_vanish_cost_nothing", App::Epapp) else {
        return;
    };
    let program = collecting(&path, "4");
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
