//! Promise: a process that exits while eight threads write into a session ends normally, and the trace is complete up to its
//! end: no crash, no hang, no lost tail. The existing engine asserted there once.

mod common;

use std::io::Read;

use common::{Folder, Program};
use lab::account::Account;
use lab::emit::PROVIDER;

/// Writes from eight threads, exits after some milliseconds in the midst of it; `read` says how the stream is read.
fn run(exit_after_ms: u64) -> Account {
    let mut program = Program::start(&[
        "emit",
        "--wait",
        "--threads",
        "8",
        "--count",
        "0",
        "--exit-after",
        &exit_after_ms.to_string(),
    ]);
    let mut session = program.session(PROVIDER, 64);
    program.go();
    let mut trace = Vec::new();
    session.read_to_end(&mut trace).expect("the stream is read");
    let status = program.end();
    assert!(status.success(), "after {exit_after_ms} ms: {status}");
    Account::of(trace.as_slice(), PROVIDER)
}

#[test]
fn two_hundred_times_with_eight_writers() {
    let mut delivered = 0;
    for round in 0..200 {
        let account = run(round % 20);
        assert_eq!(account.error, None, "round {round}");
        assert!(account.is_complete, "round {round}: the trace has no end");
        assert_eq!(account.faults(), [""; 0], "round {round}");
        delivered += account.delivered();
    }
    assert!(delivered > 200_000, "the writers wrote: {delivered} events");
}

#[test]
fn while_the_reader_takes_nothing() {
    let mut program = Program::start(&[
        "emit",
        "--wait",
        "--threads",
        "8",
        "--count",
        "0",
        "--exit-after",
        "300",
    ]);
    let mut session = program.session(PROVIDER, 16);
    program.go();
    // Ends by its own deadline although nobody reads.
    let status = program.end();
    assert!(status.success(), "{status}");
    // What was sent before is a readable trace, cut off at most in its last block.
    let mut trace = Vec::new();
    session.read_to_end(&mut trace).expect("the stream is read");
    let account = Account::of(trace.as_slice(), PROVIDER);
    assert!(account.delivered() > 0);
    assert!(account.is_readable_prefix(), "{:?}", account.error);
    for (number, thread) in &account.threads {
        assert_eq!(
            (thread.disorder, thread.misnumbered),
            (0, 0),
            "thread {number}"
        );
    }
}

#[test]
fn the_program_goes_on_when_its_reader_is_killed() {
    let folder = Folder::new("killed");
    let mut program = Program::start(&[
        "emit",
        "--wait",
        "--threads",
        "4",
        "--count",
        "0",
        "--exit-on-line",
    ]);
    let pid = program.pid().to_string();
    for (round, stalled) in [false, true, false, true].into_iter().enumerate() {
        let file = folder.file(&format!("{round}.nettrace"));
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lab"));
        command
            .args(["record", "--pid", &pid, "--provider", PROVIDER, "--output"])
            .arg(&file)
            .args(stalled.then_some("--stalled"))
            .stdout(std::process::Stdio::piped());
        let mut recorder = lab::process::Running(command.spawn().expect("the recorder starts"));
        let mut line = String::new();
        let mut output =
            std::io::BufReader::new(recorder.0.stdout.take().expect("standard output"));
        std::io::BufRead::read_line(&mut output, &mut line).expect("a line");
        assert_eq!(line, "recording\n");
        if round == 0 {
            program.go();
        }
        if stalled {
            std::thread::sleep(std::time::Duration::from_millis(200));
        } else {
            while std::fs::metadata(&file).map_or(0, |file| file.len()) < 200_000 {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        recorder.0.kill().expect("our child");
        recorder.0.wait().expect("our child");
        if !stalled {
            let trace = std::fs::read(&file).expect("a file");
            let account = Account::of(trace.as_slice(), PROVIDER);
            assert!(account.delivered() > 0, "round {round}");
            assert!(account.is_readable_prefix(), "{:?}", account.error);
        }
    }
    // A new session works, to the program's end.
    let mut session = program.session(PROVIDER, 64);
    let mut trace = vec![0; 200_000];
    session.read_exact(&mut trace).expect("the stream is read");
    program.go();
    session.read_to_end(&mut trace).expect("the stream is read");
    let status = program.end();
    assert!(status.success(), "{status}");
    let account = Account::of(trace.as_slice(), PROVIDER);
    assert_eq!(account.error, None);
    assert!(account.is_complete);
    assert!(account.delivered() > 0);
    assert!(account.threads.values().all(|thread| thread.disorder == 0));
}
