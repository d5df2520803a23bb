//! However a recording ends (by time, by a signal, by the death of either side, by a full disk), its
//! file is readable up to the last complete block, the exit code says what happened, and the traced
//! program can be traced again.

mod support;

use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;
use support::{
    Scratch, Target, collect_command, collecting, finish, in_a_terminal, report, run,
    wait_for_bytes,
};

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
    let lost = "an unknown number lost (only the end of the stream would tell)";
    assert!(error.contains(lost), "{error}");
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
    let mut limited = support::with_small_files(&collect_command(target.pid(), &file, &[]));
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

/// The words that record the demo program into a file, for a shell.
fn shell_words(target: &Target, file: &Path) -> String {
    format!(
        "'{}' collect -p {} --providers Demo-Requests:ff:5 -o '{}'",
        support::tool().get_program().display(),
        target.pid(),
        file.display()
    )
}

/// What was drawn in place, and what stood there at the end. Each drawing begins by taking away the one before.
#[track_caller]
fn live_line(shown: &str) -> (&str, &str) {
    let live = &shown[shown.find("\r\x1b[2K").unwrap()..];
    live.trim_end().rsplit_once("\r\x1b[2K").unwrap()
}

#[test]
fn by_ctrl_c_in_a_terminal_which_is_left_tidy() {
    const TEST: &str = "by_ctrl_c_in_a_terminal_which_is_left_tidy";
    let scratch = Scratch::new("terminal");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let line = format!("exec {}", shell_words(&target, &file));
    let ctrl_c = [("Enter or Ctrl+C stops", "\x03")];
    let Some((shown, went_well)) = in_a_terminal(TEST, &line, &ctrl_c) else {
        return;
    };
    assert!(went_well, "{shown:?}");
    assert!(complete(&file) > 0);
    // The echo of ^C, wherever it fell, has begun no new line.
    let (drawn, last) = live_line(&shown);
    for part in ["Ctrl+C stops", "^C", "stopping: "] {
        assert!(drawn.contains(part), "{shown:?}");
    }
    assert!(!drawn.contains('\n'), "{shown:?}");
    assert!(
        last.contains(" events, ") && last.contains(" lost"),
        "{shown:?}"
    );
}

#[test]
fn by_enter_in_a_terminal_which_is_left_tidy() {
    const TEST: &str = "by_enter_in_a_terminal_which_is_left_tidy";
    let scratch = Scratch::new("enter");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    // A line that follows the first is not the tool's.
    let line = format!(
        "{}; read rest; echo \"rest=$rest.\"",
        shell_words(&target, &file)
    );
    let enter = [("Enter or Ctrl+C stops", "\n"), (" lost, ", "kept\n")];
    let Some((shown, went_well)) = in_a_terminal(TEST, &line, &enter) else {
        return;
    };
    assert!(went_well && shown.contains("rest=kept."), "{shown:?}");
    assert!(complete(&file) > 0);
    // Where the echo has begun a new line, the old one is taken away before the next is drawn.
    let recorded = &shown[..shown.find("a.nettrace: ").unwrap()];
    let (drawn, _) = live_line(recorded);
    assert_eq!(drawn.matches('\n').count(), 1, "{shown:?}");
    assert!(drawn.contains("\r\x1b[2K\x1b[A\r\x1b[2K"), "{shown:?}");
}

#[test]
fn by_a_signal_in_the_background_where_enter_is_the_shells() {
    const TEST: &str = "by_a_signal_in_the_background_where_enter_is_the_shells";
    let scratch = Scratch::new("background");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    // With -m each job has its own process group, and the shell keeps the terminal.
    let line = format!(
        "set -m; {} & for i in 1 2 3; do read line; echo \"got=$line.\"; done; jobs; kill -INT $!; kill -CONT $!; wait $!; echo \"code=$?.\"",
        shell_words(&target, &file)
    );
    let typed = [
        (" into ", "one\n"),
        ("got=one.", "\n"),
        ("got=.", "three\n"),
    ];
    let Some((shown, _)) = in_a_terminal(TEST, &line, &typed) else {
        return;
    };
    assert!(
        shown.contains("got=three.") && shown.contains("code=0."),
        "{shown:?}"
    );
    assert!(!shown.contains("Stopped"), "{shown:?}");
    // No live line over what is typed.
    assert!(!shown.contains("\x1b[2K"), "{shown:?}");
    assert!(complete(&file) > 0);
}

#[test]
fn by_its_duration_where_somebody_typed_ahead() {
    const TEST: &str = "by_its_duration_where_somebody_typed_ahead";
    let scratch = Scratch::new("ahead");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let line = format!(
        "echo now; read first; {} --duration 500ms; read line; echo \"got=$line.\"",
        shell_words(&target, &file)
    );
    let typed = [("now", "first\nahead\n"), (" lost, ", "late\n")];
    let Some((shown, went_well)) = in_a_terminal(TEST, &line, &typed) else {
        return;
    };
    assert!(went_well && shown.contains("got=ahead."), "{shown:?}");
    assert!(!shown.contains("Enter or"), "{shown:?}");
    assert!(complete(&file) > 0);
}

#[test]
fn but_not_on_a_terminal() {
    const TEST: &str = "but_not_on_a_terminal";
    let target = Target::at_work();
    let words = shell_words(&target, Path::new("-"));
    let Some((shown, _)) = in_a_terminal(TEST, &format!("{words}; echo \"code=$?.\""), &[]) else {
        return;
    };
    assert!(
        shown.contains("not written to a terminal") && shown.contains("code=8."),
        "{shown:?}"
    );
    assert!(!shown.contains("Nettrace"), "{shown:?}");
}
