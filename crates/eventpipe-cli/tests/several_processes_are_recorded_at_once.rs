//! `collect --all`, a pattern of names, a tree of processes: each process into a file of its own, all ended by one
//! signal, and one that fails does not end the others.

mod support;

use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Scratch, Target, finish, report, tool};

const PROVIDERS: [&str; 2] = ["--providers", "Demo-Requests:ff:5"];

fn events(path: &Path) -> u64 {
    let (code, report) = report(path);
    assert_eq!(
        (code, &report["complete"]),
        (0, &serde_json::Value::Bool(true))
    );
    report["total_events"].as_u64().unwrap()
}

fn command(scratch: &Scratch, which: &[&str]) -> Command {
    let mut command = tool();
    command
        .arg("collect")
        .args(which)
        .args(PROVIDERS)
        .arg("-o")
        .arg(scratch.file("a.nettrace"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn by_a_pattern_of_names_and_until_one_signal() {
    let scratch = Scratch::new("pattern");
    let targets = [Target::at_work(), Target::at_work()];
    let recording = command(&scratch, &["-n", "event?ip*"]).spawn().unwrap();
    let files = targets
        .iter()
        .map(|target| scratch.file(&format!("a.{}.nettrace", target.pid())));
    let files: Vec<_> = files.collect();
    for file in &files {
        support::wait_for_bytes(file, 50_000);
    }
    support::send(recording.id(), Signal::INT);
    let (code, _, error) = finish(recording);
    for file in &files {
        assert!(events(file) > 0, "{error}");
    }
    // Programs of other tests have the same name, and may end at any time.
    assert!(matches!(code, 0..=2), "{error}");
}

#[test]
fn a_whole_tree() {
    let scratch = Scratch::new("tree");
    let (inside, outside) = (Target::at_work(), Target::at_work());
    // The tests' own process is the root of both; the first program's tree is itself.
    let pid = inside.pid().to_string();
    let one = ["-p", &pid, "--tree", "--duration", "500ms"];
    let (code, _, error) = finish(command(&scratch, &one).spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(events(&scratch.file(&format!("a.{pid}.nettrace"))) > 0);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);

    let root = std::process::id().to_string();
    let both = ["-p", &root, "--tree", "--duration", "500ms", "--force"];
    let (_, _, error) = finish(command(&scratch, &both).spawn().unwrap());
    for target in [&inside, &outside] {
        let file = scratch.file(&format!("a.{}.nettrace", target.pid()));
        assert!(events(&file) > 0, "{error}");
    }
}

#[test]
fn or_none_where_none_is_like_that() {
    let scratch = Scratch::new("none");
    for (which, code, cause) in [
        (&["-n", "no such*"][..], 1, "no process named 'no such*'"),
        (&["-p", "1", "--all"], 3, ""),
        (&["--tree"], 3, ""),
        (&["-n", "x*", "--tree"], 3, ""),
    ] {
        let (got, _, error) = finish(command(&scratch, which).spawn().unwrap());
        assert_eq!(got, code, "{which:?}: {error}");
        assert!(error.contains(cause), "{error}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
