//! `eventpipe join`: the files of a rolling recording become the recording again, those of several programs one trace
//! in which each thread is still somebody's; and what cannot be joined is named.

mod support;

use rustix::process::Signal;
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use support::{Scratch, Target, collecting, finish, report, run};

fn join(files: &[PathBuf], more: &[&str]) -> (i32, String, String) {
    let files = files.iter().map(|file| file.to_str().unwrap());
    let words: Vec<&str> = ["join"]
        .into_iter()
        .chain(files)
        .chain(more.iter().copied())
        .collect();
    run(&words)
}

fn traces(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Events by thread.
fn by_thread(reports: &[Value]) -> std::collections::BTreeMap<u64, u64> {
    let mut sums = std::collections::BTreeMap::new();
    for report in reports {
        for row in report["threads"].as_array().unwrap() {
            let thread = row["thread_id"].as_u64().unwrap();
            *sums.entry(thread).or_default() += row["events"].as_u64().unwrap();
        }
    }
    sums
}

#[test]
fn the_files_of_a_rolling_recording() {
    let scratch = Scratch::new("join");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let recording = collecting(target.pid(), &file, &["--roll", "150KB"]);
    support::wait_for_bytes(&scratch.file("a.0004.nettrace"), 1);
    support::send(recording.id(), Signal::INT);
    let (code, _, error) = finish(recording);
    assert_eq!(code, 0, "{error}");
    let files = traces(scratch.path());
    let parts: Vec<Value> = files.iter().map(|file| report(file).1).collect();

    let (code, out, error) = join(&files, &[]);
    assert_eq!((code, out.as_str()), (0, ""), "{error}");
    assert_eq!(error.lines().count(), 1, "nothing to remark: {error}");
    let joined = scratch.file("a.0001.joined.nettrace");
    let (code, whole) = report(&joined);
    assert_eq!((code, &whole["complete"]), (0, &Value::Bool(true)));
    assert_eq!(whole["lost"]["total"], 0);
    assert_eq!(by_thread(&[whole]), by_thread(&parts));

    let path = joined.to_str().unwrap();
    let (code, _, error) = join(&files, &["-o", path]);
    assert_eq!(code, 8, "{error}");
    let (code, out, error) = join(&files, &["-o", path, "--force", "--to", "v6", "--json"]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    let said: Value = serde_json::from_str(&out).unwrap();
    let events: u64 = parts
        .iter()
        .map(|part| part["total_events"].as_u64().unwrap())
        .sum();
    assert_eq!(
        (&said["events"], &said["format_version"]),
        (&events.into(), &6.into()),
        "{said}"
    );
    assert_eq!(said["bytes"], std::fs::metadata(&joined).unwrap().len());
    assert_eq!(said["sources"].as_array().unwrap().len(), files.len());
    assert_eq!(by_thread(&[report(&joined).1]), by_thread(&parts));
}

#[test]
fn the_traces_of_several_programs() {
    let scratch = Scratch::new("join-programs");
    let targets = [Target::at_work(), Target::at_work()];
    for target in &targets {
        let file = scratch.file(&format!("{}.nettrace", target.pid()));
        let (code, _, error) = finish(collecting(target.pid(), &file, &["--duration", "300ms"]));
        assert_eq!(code, 0, "{error}");
    }
    let files = traces(scratch.path());
    let parts: Vec<Value> = files.iter().map(|file| report(file).1).collect();
    let all = scratch.file("all");
    let (code, _, error) = join(&files, &["-o", all.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let whole = report(&all).1;
    assert_eq!(whole["format"], 6, "V4 cannot tell the processes apart");
    assert_eq!(by_thread(&[whole]), by_thread(&parts));
}

#[test]
fn or_not_with_the_reason() {
    let scratch = Scratch::new("join-wrong");
    let target = Target::at_work();
    let good = scratch.file("good.nettrace");
    let (code, _, error) = finish(collecting(target.pid(), &good, &["--duration", "300ms"]));
    assert_eq!(code, 0, "{error}");
    let bytes = std::fs::read(&good).unwrap();
    let cut = scratch.file("cut.nettrace");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let out = scratch.file("out").to_str().unwrap().to_owned();
    let missing = scratch.file("none.nettrace");
    for (files, more, expected, words) in [
        (vec![], &["-o", &out][..], 3, "FILE"),
        (
            vec![good.clone(), missing],
            &["-o", &out],
            6,
            "no such file",
        ),
        (
            vec!["-".into(), "-".into()],
            &["-o", &out],
            3,
            "standard input",
        ),
        (
            vec![good.clone()],
            &["-o", "-", "--json"],
            3,
            "standard output",
        ),
    ] {
        let (code, _, error) = join(&files, more);
        assert_eq!(code, expected, "{error}");
        assert!(error.contains(words), "{error}");
        assert!(!Path::new(&out).exists());
    }
    // What is good of a damaged one is used.
    let (code, _, error) = join(&[cut.clone(), good.clone()], &["-o", &out]);
    assert_eq!(code, 7, "{error}");
    assert!(
        error.contains("cut.nettrace") && error.contains("everything before was used"),
        "{error}"
    );
    let events = |path: &Path| report(path).1["total_events"].as_u64().unwrap();
    assert_eq!(events(Path::new(&out)), events(&cut) + events(&good));
}

/// A trace that is still being read when the tool is told to end: there is no half of a file, under any name.
#[test]
fn nothing_is_left_by_a_signal() {
    let scratch = Scratch::new("join-signal");
    let target = Target::at_work();
    let trace = scratch.file("a.nettrace");
    let (code, _, error) = finish(collecting(target.pid(), &trace, &["--duration", "200ms"]));
    assert_eq!(code, 0, "{error}");
    let bytes = std::fs::read(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let mut joining = support::tool()
            .args(["join", "-", "-o"])
            .arg(scratch.file("b.nettrace"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = joining.stdin.take().unwrap();
        // Not to its end.
        input.write_all(&bytes[..bytes.len() - 4]).unwrap();
        while traces(scratch.path()).is_empty() {
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(joining.try_wait().unwrap().is_none(), "it waits for more");
        }
        support::send(joining.id(), signal);
        let status = joining.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!(traces(scratch.path()), [] as [PathBuf; 0]);
    }
}
