//! However a recording ends (by time, by a signal, by the death of either side, by a full disk), its
//! file is readable up to the last complete block, the exit code says what happened, and the traced
//! program can be traced again.

mod support;

use rustix::process::Signal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;
use support::{Scratch, Target, collect_command, collecting, finish, report, run, wait_for_bytes};

/// Enough to be in the middle of a recording.
const SOME: u64 = 300_000;

/// The file is a complete trace with events; gives their number.
#[track_caller]
fn complete(path: &Path) -> u64 {
    let (code, report) = report(path);
    assert_eq!(code, 0);
    assert_eq!(report["complete"], true);
    let events = report["total_events"].as_u64().unwrap();
    assert!(events > 0);
    events
}

#[track_caller]
fn can_be_traced_again(target: &Target, scratch: &Scratch) {
    let again = scratch.file("again.nettrace");
    let (code, _, error) = finish(collecting(target.pid(), &again, &["--duration", "200ms"]));
    assert_eq!(code, 0, "{error}");
    complete(&again);
}

#[test]
fn by_its_duration() {
    let scratch = Scratch::new("duration");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let (code, out, error) = finish(collecting(target.pid(), &file, &["--duration", "300ms"]));
    assert_eq!(code, 0, "{error}");
    assert!(out.is_empty());
    assert!(
        error.contains("Demo-Requests") && error.contains("0xff"),
        "{error}"
    );
    assert!(error.contains(" 0 lost"), "{error}");
    complete(&file);
}

#[test]
fn by_a_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let scratch = Scratch::new("signal");
        let target = Target::at_work();
        let file = scratch.file("a.nettrace");
        let tool = collecting(target.pid(), &file, &[]);
        wait_for_bytes(&file, SOME);
        support::send(tool.id(), signal);
        let (code, _, error) = finish(tool);
        assert_eq!(code, 0, "{signal:?}: {error}");
        complete(&file);
    }
}

#[test]
fn by_a_second_signal_while_the_target_does_not_answer() {
    let scratch = Scratch::new("second");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let tool = collecting(target.pid(), &file, &[]);
    wait_for_bytes(&file, SOME);
    target.signal(Signal::STOP);
    support::send(tool.id(), Signal::INT);
    sleep(Duration::from_millis(300));
    support::send(tool.id(), Signal::INT);
    // The target never answers, so an end is the doing of the second signal.
    let (code, _, error) = finish(tool);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("cut short"), "{error}");
    complete(&file);
    target.signal(Signal::CONT);
    can_be_traced_again(&target, &scratch);
}

#[test]
fn by_the_death_of_the_target() {
    let scratch = Scratch::new("target");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let tool = collecting(target.pid(), &file, &[]);
    wait_for_bytes(&file, SOME);
    target.signal(Signal::KILL);
    let (code, _, error) = finish(tool);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("broke off"), "{error}");
    complete(&file);
}

#[test]
fn by_the_end_of_the_target() {
    let scratch = Scratch::new("end");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let tool = collecting(target.pid(), &file, &[]);
    wait_for_bytes(&file, SOME);
    let written: serde_json::Value = serde_json::from_str(&target.end()).unwrap();
    assert!(written["requests"].as_u64().unwrap() > 0);
    // Its process is killed by now, but may have sent its last block before.
    let (code, _, error) = finish(tool);
    assert!(matches!(code, 0 | 2), "{error}");
    complete(&file);
}

#[test]
fn by_the_death_of_the_tool() {
    let scratch = Scratch::new("tool");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let mut tool = collecting(target.pid(), &file, &[]);
    wait_for_bytes(&file, SOME);
    tool.kill().unwrap();
    tool.wait().unwrap();
    let (code, cut) = report(&file);
    assert_eq!(code, 7, "damaged, but read");
    assert_eq!(cut["complete"], false);
    let events = cut["total_events"].as_u64().unwrap();
    assert!(events > 0);

    let repaired = scratch.file("a.repaired.nettrace");
    let (code, _, error) = run(&["repair", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(complete(&repaired), events);
    can_be_traced_again(&target, &scratch);
}

#[test]
fn by_a_file_that_takes_no_more() {
    let scratch = Scratch::new("full");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    // A limit on the size of files, instead of a small disk: the write fails in the same way. In
    // blocks of 512 or 1024 bytes, whatever the shell thinks.
    let tool = collect_command(target.pid(), &file, &[]);
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 300; exec \"$@\"", "sh"])
        .arg(tool.get_program())
        .args(tool.get_args())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    let (code, _, error) = finish(limited.spawn().unwrap());
    assert_eq!(code, 8, "{error}");
    assert!(
        error.contains("cannot write") && error.contains("too large"),
        "{error}"
    );
    let events = complete(&file);
    assert!(
        error
            .replace(',', "")
            .contains(&format!("first {events} events")),
        "{error}"
    );
    can_be_traced_again(&target, &scratch);
}

#[test]
fn by_a_device_that_is_full() {
    let full = Path::new("/dev/full");
    if !fs::metadata(full).is_ok_and(|found| found.file_type().is_char_device()) {
        return peers::skipped("by_a_device_that_is_full", "no /dev/full on this system");
    }
    let scratch = Scratch::new("device");
    let target = Target::at_work();
    let (code, _, error) = finish(collecting(target.pid(), full, &["--force"]));
    assert_eq!(code, 8, "{error}");
    assert!(error.contains("No space left"), "{error}");
    can_be_traced_again(&target, &scratch);
}

#[test]
fn into_a_pipe_that_is_closed() {
    let scratch = Scratch::new("pipe");
    let target = Target::at_work();
    let mut tool = collecting(target.pid(), Path::new("-"), &[]);
    drop(tool.stdout.take());
    let (code, _, error) = finish(tool);
    assert_eq!(code, 8, "{error}");
    can_be_traced_again(&target, &scratch);
}

#[test]
fn through_a_pipe_into_the_reader() {
    let scratch = Scratch::new("through");
    let target = Target::at_work();
    let mut tool = collecting(target.pid(), Path::new("-"), &["--duration", "300ms"]);
    let stream = tool.stdout.take().unwrap();
    let reader = support::tool()
        .args(["report", "stat", "-", "--json"])
        .stdin(stream)
        .output()
        .unwrap();
    let (code, out, error) = support::answer(&reader);
    assert_eq!(code, 0, "{error}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(report["total_events"].as_u64().unwrap() > 0);
    assert_eq!(finish(tool).0, 0);
    drop(scratch);
}

#[test]
fn by_ctrl_c_in_a_terminal_which_is_left_tidy() {
    const TEST: &str = "by_ctrl_c_in_a_terminal_which_is_left_tidy";
    let scratch = Scratch::new("terminal");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let tool = support::tool().get_program().to_str().unwrap().to_owned();
    let line = format!(
        "exec '{tool}' collect -p {} --providers Demo-Requests:ff:5 -o '{}'",
        target.pid(),
        file.display()
    );
    // Gives the command a terminal, and passes on what comes here.
    let script = Command::new("script")
        .args(["-qfec", &line, "/dev/null"])
        .env("TERM", "xterm")
        // Some shells stay in between, and die of the signal that the command obeys.
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        return peers::skipped(TEST, "there is no program 'script'");
    };
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    let mut output = script.stdout.take().unwrap();
    let mut input = script.stdin.take().unwrap();
    let mut has_stopped = false;
    loop {
        let count = output.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if !has_stopped && shown.contains("Ctrl+C stops") {
            has_stopped = true;
            input.write_all(b"\x03").unwrap();
        }
    }
    assert!(script.wait().unwrap().success(), "{shown:?}");
    assert!(complete(&file) > 0);
    // Each drawing begins by taking away the one before, and the echo of ^C, wherever it fell, has begun no new line.
    let live = &shown[shown.find("\r\x1b[2K").unwrap()..];
    let (drawn, last) = live.trim_end().rsplit_once("\r\x1b[2K").unwrap();
    for part in ["Ctrl+C stops", "^C", "stopping: "] {
        assert!(drawn.contains(part), "{shown:?}");
    }
    assert!(!drawn.contains('\n'), "{shown:?}");
    assert!(
        last.contains(" events, ") && last.contains(" lost"),
        "{shown:?}"
    );
}
