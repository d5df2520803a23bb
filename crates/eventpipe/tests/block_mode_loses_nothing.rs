//! Promise: a session in block mode loses nothing, however slow its reader; its writers go on when the reader is killed (within
//! two seconds), when the session is stopped, and the process can end while they wait. A session beside that drops is not hurt.
//!
//! This program has its own `main`: started with an argument it is one of the processes of a scenario, with a pool of 1 MB.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Trace, client, everything_of};
use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks, Session};
use dotnet_diagnostics::codec::{BufferingMode, CollectTracing, CollectVersion};
use eventpipe::{Buffering, Format, Listener, ProviderRequest, SessionError, SessionRequest};

eventpipe::provider! {
    mod blocking = "Blocking";

    #[event(id = 1, level = Informational, stack = false)]
    fn work(number: u64, bytes: &[u8]);
}

eventpipe::provider! {
    mod beside = "Beside";

    #[event(id = 1, level = Informational, stack = false)]
    fn step(number: u64);
}

const WRITERS: u64 = 4;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match arguments.as_slice() {
        ["slow-readers"] => slow_readers(),
        ["listener"] => listener(),
        ["stop"] => stop(),
        ["writers", how] => writers(how),
        ["reader", socket] => reader(socket),
        ["environment"] => {
            eventpipe::start();
            (0..20_000).for_each(|n| write(n, 500));
        }
        _ => {
            // Names of cases, as the test harness takes them; all without.
            for (name, case) in CASES {
                if arguments.is_empty() || arguments.iter().any(|wanted| name.contains(wanted)) {
                    case();
                    println!("test {name} ... ok");
                }
            }
        }
    }
}

const CASES: [(&str, fn()); 6] = [
    ("slow_readers_lose_nothing", || run("slow-readers")),
    ("a_slow_listener_loses_nothing", || run("listener")),
    ("stopping_a_session_releases_its_writers", || run("stop")),
    ("a_killed_reader_releases_all_writers", killed_reader),
    (
        "the_process_ends_while_its_reader_is_stalled",
        exit_while_stalled,
    ),
    ("the_environment_asks_for_it", environment),
];

fn program(arguments: &[&str]) -> Command {
    let mut program = Command::new(std::env::current_exe().expect("known"));
    program
        .args(arguments)
        .env("EVENTPIPE_EventPipePoolMB", "1")
        .stdin(Stdio::null());
    program
}

fn run(scenario: &str) {
    let status = program(&[scenario]).status().expect("starts");
    assert!(status.success(), "{scenario}: {status}");
}

fn write(number: u64, length: usize) {
    blocking::work(number, &[number as u8; 1000][..length]);
}

/// All of it, as fast as it goes.
fn write_all(per_writer: u64) {
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..per_writer).for_each(|n| write(n, 10 + (n % 900) as usize)));
        }
    });
}

/// Every event of every writer, in order.
fn check_complete(trace: &Trace, per_writer: u64) {
    assert_eq!(trace.total_lost(), 0);
    let mut next = BTreeMap::<u64, u64>::new();
    for event in trace.of("Blocking") {
        let expected = next.entry(event.thread).or_default();
        let number = u64::from_le_bytes(event.payload[..8].try_into().expect("eight bytes"));
        assert_eq!(number, *expected);
        assert_eq!(event.payload.len() as u64, 8 + 2 + 10 + number % 900);
        *expected += 1;
    }
    assert_eq!(
        next.into_values().collect::<Vec<_>>(),
        vec![per_writer; WRITERS as usize]
    );
}

fn request(provider: &str, mode: BufferingMode) -> CollectTracing {
    let mut request = everything_of(provider);
    request.version = CollectVersion::V6;
    request.buffering_mode = mode;
    request.buffer_mb = 1;
    request
}

fn collect(client: &Client, provider: &str, mode: BufferingMode) -> Session {
    client
        .collect(&request(provider, mode), Fallbacks::NONE)
        .expect("block mode is there")
}

/// A socket, a function and a file, the first two slow; and a reader of another provider beside, whose session drops.
fn slow_readers() {
    const EVENTS: u64 = 10_000;
    let slow = |mut session: Session| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut piece = vec![0; 32 << 10];
            loop {
                match session.read(&mut piece).expect("readable") {
                    0 => return bytes,
                    count => bytes.extend_from_slice(&piece[..count]),
                }
                std::thread::sleep(Duration::from_micros(500));
            }
        })
    };
    let session = collect(&client(), "Blocking", BufferingMode::Block);
    let stopper = session.stopper();
    let stream = slow(session);
    let other = collect(&client(), "Beside", BufferingMode::Drop);
    let other_stopper = other.stopper();
    let other_stream = slow(other);
    let pieces: std::sync::Arc<std::sync::Mutex<Vec<u8>>> = Default::default();
    let sink = pieces.clone();
    let path = std::env::temp_dir().join(format!("eventpipe-block-{}", std::process::id()));
    let ours = || {
        SessionRequest::new()
            .provider(ProviderRequest::new("Blocking"))
            .buffering(Buffering::Block)
            .buffer_mb(1)
    };
    let function = ours()
        .format(Format::V6)
        .start_callback(move |piece| {
            std::thread::sleep(Duration::from_millis(1));
            // Its thread must not wait for itself.
            blocking::work(u64::MAX, &[]);
            sink.lock().expect("no panic").extend_from_slice(piece);
        })
        .expect("starts");
    let file = ours()
        .start_file(path.to_str().expect("a plain path"))
        .expect("starts");
    let done = AtomicBool::new(false);
    let steps = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut steps = 0;
            while !done.load(Ordering::Relaxed) {
                (0..20).for_each(|n| beside::step(steps + n));
                steps += 20;
                std::thread::sleep(Duration::from_millis(1));
            }
            steps
        });
        write_all(EVENTS);
        done.store(true, Ordering::Relaxed);
        beside.join().expect("no panic")
    });
    stopper.stop().expect("answered");
    other_stopper.stop().expect("answered");
    assert!(function.stop() && file.stop());
    let mut traces = [
        Trace::read(&stream.join().expect("no panic")),
        Trace::read(&pieces.lock().expect("no panic")),
        Trace::read(&std::fs::read(&path).expect("there")),
    ];
    std::fs::remove_file(&path).expect("removable");
    for trace in &mut traces {
        // The events of the function's own thread are not part of this.
        let own = |event: &common::Seen| event.payload[..8] == u64::MAX.to_le_bytes();
        let others: std::collections::BTreeSet<u64> = trace
            .events
            .iter()
            .filter(|event| event.provider == "Blocking" && own(event))
            .map(|event| event.thread)
            .collect();
        trace
            .events
            .retain(|event| event.provider != "Blocking" || !own(event));
        trace.lost.retain(|thread, _| !others.contains(thread));
        check_complete(trace, EVENTS);
    }
    let other = Trace::read(&other_stream.join().expect("no panic"));
    assert_eq!(
        (other.of("Beside").count() as u64, other.total_lost()),
        (steps, 0),
        "the session beside"
    );
}

fn listen() -> Listener {
    SessionRequest::new()
        .provider(ProviderRequest::new("Blocking"))
        .buffering(Buffering::Block)
        .buffer_mb(1)
        .listen()
        .expect("starts")
}

fn listener() {
    const EVENTS: u64 = 5_000;
    eventpipe::start();
    let listener = listen();
    let heard = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write_all(EVENTS));
        let mut heard = 0;
        loop {
            let finished = writing.is_finished();
            while let Some(event) = listener.next() {
                heard += 1;
                drop(event);
                if heard % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(300));
                }
            }
            if finished {
                listener.stop();
                while !listener.session().has_ended() {
                    listener.wait(Some(1_000_000));
                }
                heard += std::iter::from_fn(|| listener.next()).count() as u64;
                return heard;
            }
            listener.wait(Some(10_000_000));
        }
    });
    assert_eq!(listener.session().statistics().lost, 0);
    assert_eq!(heard, WRITERS * EVENTS);
    // One that nobody reads, and then nobody has any more: its writers are released.
    let unread = listen();
    let progress = Progress::default();
    std::thread::scope(|scope| {
        progress.write_in(scope);
        progress.wait_until_stuck();
        drop(unread);
        progress.wait_until_all_have_moved();
        progress.end.store(true, Ordering::Relaxed);
    });
    // What is only written at the end cannot block.
    let refused = SessionRequest::new().buffering(Buffering::Block).listen();
    assert_eq!(refused.err(), Some(SessionError::NoProviders));
}

/// Writers that never end by themselves, and how far each is.
#[derive(Default)]
struct Progress {
    written: [AtomicU64; WRITERS as usize],
    end: AtomicBool,
}

impl Progress {
    fn write_in<'scope>(&'scope self, scope: &'scope std::thread::Scope<'scope, '_>) {
        for written in &self.written {
            scope.spawn(|| {
                while !self.end.load(Ordering::Relaxed) {
                    write(written.fetch_add(1, Ordering::Relaxed), 900);
                }
            });
        }
    }

    fn now(&self) -> Vec<u64> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.written.iter().map(load).collect()
    }

    /// Until nobody has moved for a while: all wait.
    fn wait_until_stuck(&self) {
        loop {
            let before = self.now();
            std::thread::sleep(Duration::from_millis(300));
            if before == self.now() && !before.contains(&0) {
                return;
            }
        }
    }

    fn wait_until_all_have_moved(&self) {
        let before = self.now();
        while self
            .now()
            .iter()
            .zip(&before)
            .any(|(now, before)| now == before)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A session whose reader stalls is stopped by another client.
fn stop() {
    let session = collect(&client(), "Blocking", BufferingMode::Block);
    let stopper = session.stopper();
    let progress = Progress::default();
    std::thread::scope(|scope| {
        progress.write_in(scope);
        progress.wait_until_stuck();
        let stopping = scope.spawn(move || stopper.stop());
        progress.wait_until_all_have_moved();
        progress.end.store(true, Ordering::Relaxed);
        // Now the reader reads, and everything that was written before the stop is there.
        let mut session = session;
        let mut bytes = Vec::new();
        session.read_to_end(&mut bytes).expect("readable");
        stopping.join().expect("no panic").expect("answered");
        assert_eq!(Trace::read(&bytes).total_lost(), 0);
    });
}

/// The traced process of a reader that does not read: says when its writers are stuck, and what comes then.
fn writers(how: &str) {
    let socket = common::socket();
    println!("{}", socket.display());
    let progress: &'static Progress = Box::leak(Box::default());
    std::thread::scope(|scope| {
        // Not before somebody listens.
        while !blocking::work::is_enabled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // In threads that outlive this function.
        for written in &progress.written {
            std::thread::spawn(|| {
                loop {
                    write(written.fetch_add(1, Ordering::Relaxed), 900);
                }
            });
        }
        scope.spawn(|| progress.wait_until_stuck());
    });
    println!("stuck");
    if how == "exit" {
        return;
    }
    progress.wait_until_all_have_moved();
    println!("released");
    std::process::exit(0);
}

/// A reader that takes the session and nothing of it.
fn reader(socket: &str) {
    let client = Client::new(Endpoint::Socket(socket.into()));
    let session = collect(&client, "Blocking", BufferingMode::Block);
    std::thread::sleep(Duration::from_secs(600));
    drop(session);
}

struct Scenario {
    traced: Child,
    lines: BufReader<ChildStdout>,
    reader: Child,
}

fn stuck_scenario(how: &str) -> Scenario {
    let mut traced = program(&["writers", how])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(traced.stdout.take().expect("piped"));
    let socket = line(&mut lines);
    let reader = program(&["reader", &socket]).spawn().expect("starts");
    assert_eq!(line(&mut lines), "stuck");
    Scenario {
        traced,
        lines,
        reader,
    }
}

fn line(lines: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    lines.read_line(&mut line).expect("readable");
    line.trim_end().to_owned()
}

fn killed_reader() {
    let mut scenario = stuck_scenario("wait");
    let killed = Instant::now();
    scenario.reader.kill().expect("kill -9");
    assert_eq!(line(&mut scenario.lines), "released");
    let took = killed.elapsed();
    println!("all {WRITERS} writers go on {took:?} after their reader was killed");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!(scenario.traced.wait().expect("ends").success());
    scenario.reader.wait().expect("ends");
}

fn exit_while_stalled() {
    let mut scenario = stuck_scenario("exit");
    let ended = Instant::now();
    assert!(scenario.traced.wait().expect("ends").success());
    let took = ended.elapsed();
    println!("the process ends {took:?} after the return of main");
    // Two seconds without progress are the limit; twenty in all.
    assert!(took < Duration::from_secs(20), "{took:?}");
    scenario.reader.kill().expect("kill");
    scenario.reader.wait().expect("ends");
}

fn environment() {
    let folder = std::env::temp_dir().join(format!("eventpipe-block-env-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("trace.nettrace");
    for (mode, streaming, expected) in [("1", "1", true), ("2", "1", false), ("1", "0", false)] {
        let output = program(&["environment"])
            .env("EVENTPIPE_EnableEventPipe", "1")
            .env("EVENTPIPE_EventPipeConfig", "Blocking::5")
            .env("EVENTPIPE_EventPipeOutputPath", &file)
            .env("EVENTPIPE_EventPipeCircularMB", "1")
            .env("EVENTPIPE_EventPipeBufferingMode", mode)
            .env("EVENTPIPE_EventPipeOutputStreaming", streaming)
            .output()
            .expect("starts");
        assert!(output.status.success());
        let trace = std::fs::read(&file).ok().filter(|bytes| !bytes.is_empty());
        assert_eq!(
            trace.is_some(),
            expected,
            "mode {mode}, streaming {streaming}"
        );
        if let Some(bytes) = trace {
            let trace = Trace::read(&bytes);
            assert_eq!(
                (trace.of("Blocking").count(), trace.total_lost()),
                (20_000, 0)
            );
            std::fs::remove_file(&file).expect("removable");
        } else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("no session"), "{said}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("removable");
}
