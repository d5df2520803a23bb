//! Promise: a process that exits while it is traced, with threads writing as fast as they can, does not crash, does not hang and
//! loses no event that was written before the exit began. Every session's trace is complete.
//!
//! This program has its own `main`: started with an argument it is the process that exits.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

use common::{Trace, everything_of};
use dotnet_diagnostics::client::{Client, Endpoint, Fallbacks};

eventpipe::provider! {
    mod exiting = "Exiting";

    #[event(id = 1, level = Informational, stack = false)]
    fn work(number: u64, text: &str);

    #[event(id = 2, level = Informational)]
    fn last(number: u64);
}

const WRITERS: u64 = 8;

/// How often each way to exit is tried: 200 exits with `EVENTPIPE_TEST_FULL`, as `.ci/run` sets it.
fn rounds() -> usize {
    if std::env::var_os("EVENTPIPE_TEST_FULL").is_some() {
        50
    } else {
        5
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(how @ ("return" | "exit" | "other" | "twice")) => child(how),
        Some("starting") => child_that_ends_in_a_callback(),
        _ => parent(),
    }
}

fn child(how: &str) {
    eventpipe::start();
    println!("ready");
    std::io::stdin()
        .read_exact(&mut [0])
        .expect("the parent says when");
    for _ in 0..WRITERS {
        std::thread::spawn(|| {
            for number in 0.. {
                exiting::work(number, "as fast as it goes");
            }
        });
    }
    std::thread::sleep(Duration::from_millis(5));
    exiting::last(42);
    match how {
        "return" => {}
        "exit" => std::process::exit(0),
        "other" => {
            std::thread::spawn(|| std::process::exit(0));
            std::thread::sleep(Duration::from_secs(600));
        }
        _ => {
            let threads: Vec<_> = (0..3)
                .map(|_| std::thread::spawn(eventpipe::shutdown))
                .collect();
            eventpipe::shutdown();
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("no panic"));
        }
    }
}

/// The process ends while a session starts: its provider's callback returns after everything has been delivered.
fn child_that_ends_in_a_callback() {
    static SESSION_STARTS: Barrier = Barrier::new(2);
    static PROCESS_ENDED: Barrier = Barrier::new(2);
    exiting::PROVIDER.on_change(|_| {
        SESSION_STARTS.wait();
        PROCESS_ENDED.wait();
    });
    eventpipe::start();
    println!("ready");
    SESSION_STARTS.wait();
    exiting::last(42);
    eventpipe::shutdown();
    PROCESS_ENDED.wait();
}

fn parent() {
    let folder = std::env::temp_dir().join(format!("eventpipe-exit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the traces");
    for how in ["return", "exit", "other", "twice"] {
        for round in 0..rounds() {
            exit_once(how, round, &folder);
        }
    }
    exit_while_a_session_starts(&folder);
    std::fs::remove_dir_all(&folder).expect("removable");
    println!("{} exits while traced: complete every time", 4 * rounds());
}

fn exit_while_a_session_starts(folder: &Path) {
    let (mut child, socket) = start("starting", folder, &[]);
    let client = Client::new(Endpoint::Socket(socket));
    let mut session = client
        .collect(&everything_of("Exiting"), Fallbacks::NONE)
        .expect("the answer comes before the stream");
    let mut stream = Vec::new();
    session
        .read_to_end(&mut stream)
        .expect("the stream ends in order");
    assert!(child.wait().expect("ends").success());
    check(&stream, u64::from(child.id()), "starting", 0);
}

/// The child, and its socket.
fn start(how: &str, folder: &Path, environment: &[(&str, &str)]) -> (Child, PathBuf) {
    let mut child = Command::new(std::env::current_exe().expect("known"))
        .arg(how)
        .envs(environment.iter().copied())
        .env("TMPDIR", folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("ready");
    let socket = std::fs::read_dir(folder)
        .expect("readable")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with("-socket"))
        .expect("the child has a socket");
    (child, socket)
}

fn exit_once(how: &str, round: usize, folder: &Path) {
    let file = folder.join("trace.nettrace");
    let file_name = file.to_str().expect("a name in UTF-8");
    let environment = [
        ("EVENTPIPE_EnableEventPipe", "1"),
        ("EVENTPIPE_EventPipeConfig", "Exiting::5"),
        ("EVENTPIPE_EventPipeOutputPath", file_name),
        ("EVENTPIPE_EventPipePoolMB", "1"),
        ("EVENTPIPE_EventPipeCircularMB", "1"),
    ];
    let (mut child, socket) = start(how, folder, &environment);
    let client = Client::new(Endpoint::Socket(socket.clone()));
    let mut request = everything_of("Exiting");
    request.buffer_mb = 1;
    let mut session = client.collect(&request, Fallbacks::NONE).expect("starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"\n")
        .expect("listens");
    let mut stream = Vec::new();
    session
        .read_to_end(&mut stream)
        .expect("the stream ends in order");
    let status = child.wait().expect("ends");
    assert!(status.success(), "{how} {round}: {status}");
    assert!(
        !socket.exists(),
        "{how} {round}: the socket disappears with its process"
    );
    let main_thread = u64::from(child.id());
    check(&stream, main_thread, how, round);
    check(
        &std::fs::read(&file).expect("there"),
        main_thread,
        how,
        round,
    );
}

fn check(bytes: &[u8], main_thread: u64, how: &str, round: usize) {
    let trace = Trace::read(bytes);
    let lasts: Vec<_> = trace.of("Exiting").filter(|event| event.id == 2).collect();
    let lost = trace.lost.get(&main_thread).copied().unwrap_or(0);
    assert_eq!(
        lasts.len() as u64 + lost,
        1,
        "{how} {round}: what was written before the exit is there, or counted"
    );
    let mut next = std::collections::BTreeMap::<u64, u64>::new();
    let mut delivered = std::collections::BTreeMap::<u64, u64>::new();
    for event in trace.of("Exiting").filter(|event| event.id == 1) {
        let number = u64::from_le_bytes(event.payload[..8].try_into().expect("eight bytes"));
        let expected = next.entry(event.thread).or_default();
        assert!(number >= *expected, "{how} {round}: in order");
        *expected = number + 1;
        *delivered.entry(event.thread).or_default() += 1;
    }
    for (thread, next) in next {
        let counted = delivered[&thread] + trace.lost.get(&thread).copied().unwrap_or(0);
        assert!(
            counted >= next,
            "{how} {round}: {next} written by {thread}, {counted} accounted for"
        );
    }
}
