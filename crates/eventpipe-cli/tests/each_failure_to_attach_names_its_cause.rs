//! No such process, no socket, another user's, a stale socket, no answer, not ready yet, not supported by the version:
//! each is told apart, in one line, with its exit code and what to do about it.

mod support;

use dotnet_diagnostics::codec::{ErrorCode, Request, encode_error};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::fake::{Fake, Sleeper, dotnet10};
use support::{Scratch, answer, tool};

/// `collect` of a process, with sockets in the folder of the test; the exit code and the one line that was said.
#[track_caller]
fn collect(scratch: &Scratch, pid: u32, more: &[&str]) -> (i32, String) {
    let pid = pid.to_string();
    let (code, out, error) = answer(
        &tool()
            .env("TMPDIR", scratch.path())
            .args(["collect", "-p", &pid, "-o"])
            .arg(scratch.file("a.nettrace"))
            .args(more)
            .output()
            .unwrap(),
    );
    assert!(out.is_empty(), "{out}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(!scratch.file("a.nettrace").exists(), "nothing was recorded");
    (code, error)
}

#[track_caller]
fn says(said: &(i32, String), code: i32, words: &[&str]) {
    assert_eq!(said.0, code, "{}", said.1);
    for word in words {
        assert!(said.1.contains(word), "'{word}' is not in: {}", said.1);
    }
}

#[test]
fn no_such_process() {
    let scratch = Scratch::new("no-process");
    // The highest id that the kernel gives out is below 2^22.
    says(
        &collect(&scratch, 4_194_304, &[]),
        1,
        &["no process 4194304"],
    );
}

#[test]
fn a_process_that_has_ended() {
    let scratch = Scratch::new("zombie");
    let mut ended = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", ended.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let said = collect(&scratch, ended.id(), &[]);
    ended.wait().unwrap();
    says(&said, 1, &["has ended (zombie)"]);
}

#[test]
fn a_kernel_thread() {
    let stat = fs::read_to_string("/proc/2/stat").unwrap_or_default();
    if !stat.contains("(kthreadd)") {
        return peers::skipped("a_kernel_thread", "in a container there is none");
    }
    let scratch = Scratch::new("kernel");
    says(
        &collect(&scratch, 2, &[]),
        1,
        &["process 2 is a kernel thread"],
    );
}

#[test]
fn no_socket() {
    let scratch = Scratch::new("no-socket");
    let process = Sleeper::start();
    let folder = scratch.path().display().to_string();
    says(
        &collect(&scratch, process.pid(), &[]),
        1,
        &[
            "has no diagnostics socket (looked in",
            &folder,
            "it is no program with EventPipe",
        ],
    );
}

#[test]
fn another_users_process_is_refused_and_the_user_named() {
    const TEST: &str = "another_users_process_is_refused_and_the_user_named";
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        return peers::skipped(TEST, "only root can start programs as another user");
    }
    let scratch = Scratch::new("user");
    // Where another user may read it.
    let copy = scratch.file("eventpipe");
    support::copy_of_the_tool(&copy);
    let target = support::Target::at_work();
    let output = Command::new(&copy)
        .args([
            "collect",
            "-p",
            &target.pid().to_string(),
            "-o",
            "/dev/null",
            "--force",
        ])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .output()
        .unwrap();
    let (code, _, error) = answer(&output);
    assert_eq!(code, 1, "{error}");
    assert!(error.contains("belongs to another user (uid 0)"), "{error}");
    assert!(
        error.contains("run the tool as that user or as root"),
        "{error}"
    );
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

#[test]
fn a_stale_socket() {
    let scratch = Scratch::new("stale");
    // Of a process that had the same id before.
    let process = Sleeper::start();
    let socket = process.stale_socket(scratch.path());
    drop(UnixListener::bind(&socket).unwrap());
    let path = socket.display().to_string();
    says(
        &collect(&scratch, process.pid(), &[]),
        1,
        &[&path, "is stale"],
    );
    // Its own, but nobody listens any more.
    let process = Sleeper::start();
    let socket = process.socket(scratch.path());
    drop(UnixListener::bind(&socket).unwrap());
    let path = socket.display().to_string();
    says(
        &collect(&scratch, process.pid(), &[]),
        1,
        &[&path, "is stale"],
    );
}

#[test]
fn no_answer() {
    let scratch = Scratch::new("silent");
    let process = Sleeper::start();
    let server = Fake::at(&process.socket(scratch.path()), |_| None);
    let began = Instant::now();
    let said = collect(&scratch, process.pid(), &["--profile", "gc-verbose"]);
    says(
        &said,
        1,
        &["not answering", "took longer than", "it may be suspended"],
    );
    // Microsoft's tools wait for ever; this one gives up the first request that is not answered.
    assert!(began.elapsed() >= Duration::from_secs(10), "{said:?}");
    assert!(!server.requests().is_empty());
}

/// It would be silent for 15 s, and only then say that there was no answer.
#[test]
fn stopped() {
    let scratch = Scratch::new("stopped");
    let process = Sleeper::start();
    let _server = Fake::at(&process.socket(scratch.path()), |request| match request {
        // Who waits for this is served by the kernel of a real process, not by the process.
        Request::ProcessInfo(_) => None,
        other => Some(dotnet10(other, &[])),
    });
    support::send(process.pid(), Signal::STOP);
    process.wait_until_stopped();
    let told = format!("it is stopped (kill -CONT {} lets it go on)", process.pid());
    let asked = |words: &[&str]| {
        let mut tool = tool();
        answer(
            &tool
                .env("TMPDIR", scratch.path())
                .args(words)
                .output()
                .unwrap(),
        )
    };
    let (code, list, said) = asked(&["ps"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&told), "{list}{said}");
    let pid = process.pid().to_string();
    let mut waiting = tool()
        .env("TMPDIR", scratch.path())
        .args(["env", "-p", &pid])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(waiting.stderr.take().unwrap())
        .read_line(&mut said)
        .unwrap();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    assert_eq!(said, format!("waiting for process {pid}: {told}\n"));
}

#[test]
fn not_ready_yet() {
    let scratch = Scratch::new("not-ready");
    let process = Sleeper::start();
    let _server = Fake::at(&process.socket(scratch.path()), |request| {
        Some(match request {
            Request::CollectTracing(_) => encode_error(ErrorCode::NOT_YET_AVAILABLE).to_vec(),
            other => dotnet10(other, &[]),
        })
    });
    let said = collect(&scratch, process.pid(), &["--profile", "gc-verbose"]);
    says(&said, 1, &["was refused", "try again in a moment"]);
}

#[test]
fn not_supported_by_the_runtimes_version() {
    let scratch = Scratch::new("unsupported");
    let process = Sleeper::start();
    let _server = Fake::at(&process.socket(scratch.path()), |request| {
        Some(match request {
            Request::CollectTracing(_) => encode_error(ErrorCode::UNKNOWN_COMMAND).to_vec(),
            other => dotnet10(other, &[]),
        })
    });
    let blocking = ["--profile", "gc-verbose", "--buffering-mode", "Block"];
    let said = collect(&scratch, process.pid(), &blocking);
    let what = "blocking when the buffer is full is not supported by this process's version";
    says(&said, 4, &[what]);
    let said = collect(&scratch, process.pid(), &["--profile", "gc-verbose"]);
    says(&said, 4, &["is not supported by this process's version"]);
}
