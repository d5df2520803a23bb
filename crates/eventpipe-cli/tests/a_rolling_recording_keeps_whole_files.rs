//! `collect --roll`: each kept file is complete by itself, no event is missing between neighbours, and both hold when
//! the tool is killed at any moment.

mod support;

use peers::{Peers, Runtime};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;
use support::{Scratch, Target, collect_command, collecting, finish, report, run, tool};

/// The complete files of a recording, in their order.
fn kept(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "nettrace")
        })
        .collect();
    files.sort();
    files
}

/// The numbers that each thread of the program gave its events, in the order of the file.
fn numbers(file: &Path) -> BTreeMap<String, Vec<u64>> {
    let path = file.to_str().unwrap();
    let (code, out, error) = run(&["events", path, "--json", "--event", "Sequenced"]);
    let expected = if path.ends_with(".part") {
        &[0, 7][..]
    } else {
        &[0]
    };
    assert!(expected.contains(&code), "{error}");
    let mut threads: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in out.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let number = &event["payload"]["number"];
        let number = number.as_u64().or_else(|| number.as_str()?.parse().ok());
        let number = number.unwrap_or_else(|| panic!("{line}"));
        let thread = event["payload"]["thread"].to_string();
        threads.entry(thread).or_default().push(number);
    }
    threads
}

/// The independent checker, which knows the rules of the format, has nothing to say against a file.
fn checked(file: &Path) {
    let Some(shared) = peers::shared_for_test("also_when_the_tool_is_killed") else {
        return;
    };
    let output = std::process::Command::new("python3")
        .arg(shared.join("tools/nettrace_check.py"))
        .arg(file)
        .output()
        .unwrap();
    let (code, out, error) = support::answer(&output);
    assert_eq!(code, 0, "{}: {out}{error}", file.display());
}

/// Every file is complete, with no loss of its own. Gives the sum of their events.
fn all_complete(files: &[PathBuf]) -> u64 {
    let mut events = 0;
    for file in files {
        let (code, report) = report(file);
        assert_eq!(code, 0, "{}", file.display());
        assert_eq!(report["complete"], true);
        assert_eq!(report["lost"]["total"], 0, "{}", file.display());
        events += report["total_events"].as_u64().unwrap();
    }
    events
}

#[test]
fn and_together_they_hold_what_was_written() {
    let scratch = Scratch::new("roll");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let mut recording = collecting(target.pid(), &file, &["--roll", "200KB"]);
    support::wait_for_bytes(&scratch.file("a.0006.nettrace"), 1);
    support::send(recording.id(), Signal::INT);
    let _ = recording.try_wait();
    let (code, _, error) = finish(recording);
    assert_eq!(code, 0, "{error}");
    let files = kept(scratch.path());
    assert!(files.len() >= 6, "{files:?}");
    let events = all_complete(&files);
    assert!(
        error
            .replace(',', "")
            .contains(&format!(" {events} events 0 lost")),
        "{events}: {error}"
    );
    for file in &files {
        let length = std::fs::metadata(file).unwrap().len();
        assert!(length < 400_000, "{}: {length}", file.display());
    }
    assert!(error.contains("/a.0001.nettrace and so on"), "{error}");
    assert!(!scratch.file("a.nettrace").exists());
    // A second recording does not touch them.
    let again = collecting(target.pid(), &file, &["--roll", "200KB"]);
    let (code, _, error) = finish(again);
    assert_eq!(code, 8, "{error}");
    assert!(
        error.contains("a.0001.nettrace") && error.contains("exists already"),
        "{error}"
    );
}

#[test]
fn the_newest_only_where_so_many_are_to_be_kept() {
    let scratch = Scratch::new("keep");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let recording = collecting(target.pid(), &file, &["--roll", "100KB", "--keep", "3"]);
    // The first has come and gone when the fifth is there.
    support::wait_for_bytes(&scratch.file("a.0005.nettrace"), 1);
    support::send(recording.id(), Signal::INT);
    let (code, _, error) = finish(recording);
    assert_eq!(code, 0, "{error}");
    let files = kept(scratch.path());
    assert_eq!(files.len(), 3, "{files:?}");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 3);
    all_complete(&files);
    let out = scratch.file("-x");
    let both = ["--keep", "3", "--duration", "1s"];
    let (code, _, _) = finish(collecting(target.pid(), &out, &both));
    assert_eq!(code, 3, "--keep alone");
}

/// The last file takes no more in its midst: what it holds is complete all the same.
#[test]
fn where_the_disk_is_full_too() {
    let scratch = Scratch::new("roll-full");
    let target = Target::at_work();
    // A limit on the size of files, instead of a small disk: smaller than what is asked for.
    let tool = collect_command(
        target.pid(),
        &scratch.file("a.nettrace"),
        &["--roll", "10MB"],
    );
    let (code, _, error) = finish(support::with_small_files(&tool).spawn().unwrap());
    assert_eq!(code, 8, "{error}");
    let first = scratch.file("a.0001.nettrace");
    let cause = format!("cannot write {}: File too large", first.display());
    assert!(error.contains(&cause), "{error}");
    assert!(
        error.contains("the files hold every complete block"),
        "{error}"
    );
    // The stream goes on to its end, and its end says what was lost.
    assert!(error.contains(" events, 0 lost, "), "{error}");
    assert!(all_complete(&[first]) > 0);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

/// Megabytes of a file: 200 MB of events in files of 10 MB, of which five are kept; in a plain run of the tests a tenth.
fn file_megabytes() -> u32 {
    if std::env::var_os("EVENTPIPE_TEST_FULL").is_some() {
        10
    } else {
        1
    }
}

/// The tool is killed while it writes this file, or one of the next.
const LAST: u32 = 21;

#[test]
fn also_when_the_tool_is_killed() {
    const TEST: &str = "also_when_the_tool_is_killed";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net11] {
        killed(&peers, runtime, file_megabytes());
    }
}

/// Records a program that numbers its events, kills the tool at some moment, and looks at what is left.
fn killed(peers: &Peers, runtime: Runtime, megabytes: u32) {
    let scratch = Scratch::new("roll-killed");
    let mut program = peers.program(runtime, "stress");
    program
        .args(["--threads", "3", "--count", "200000", "--size", "400"])
        .args(["--kind", "sequenced", "--wait"]);
    let (mut child, _output, _) = support::started(&mut program);
    let mut recording = tool()
        .args(["collect", "-p", &child.id().to_string(), "-o"])
        .arg(scratch.file("a.nettrace"))
        .args(["--providers", "EventPipeStress:FFFFFFFFFFFFFFFF:5"])
        .args(["--roll", &format!("{megabytes}MB"), "--keep", "5"])
        .args(["--buffersize", "512"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    support::wait_for_bytes(&scratch.file("a.0001.nettrace.part"), 1);
    sleep(Duration::from_millis(800));
    writeln!(child.stdin.as_mut().unwrap(), "go").unwrap();
    // Files come and go between two looks.
    while number_of_newest(scratch.path()) < LAST {
        if recording.try_wait().unwrap().is_some() {
            panic!("{runtime:?}: the tool ended: {:?}", finish(recording));
        }
        sleep(Duration::from_millis(1));
    }
    let moment = random() % 150_000;
    sleep(Duration::from_micros(moment));
    recording.kill().unwrap();
    recording.wait().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let context = format!("{runtime:?}, killed after {moment} us");

    let mut files = kept(scratch.path());
    assert!((5..=6).contains(&files.len()), "{context}: {files:?}");
    let limit = u64::from(megabytes) * 1_000_000;
    for file in &files {
        checked(file);
        let length = std::fs::metadata(file).unwrap().len();
        assert!(
            length < limit * 3 / 2,
            "{context}: {}: {length}",
            file.display()
        );
        let summary = peers.oracle_summary(file);
        let (code, report) = report(file);
        assert_eq!(
            (code, &report["complete"]),
            (0, &Value::Bool(true)),
            "{context}"
        );
        let seen: u64 = summary["counts"]
            .as_object()
            .unwrap()
            .values()
            .map(|row| row["n"].as_u64().unwrap())
            .sum();
        assert_eq!(summary["events_lost"], report["lost"]["total"], "{context}");
        assert!(
            seen >= report["total_events"].as_u64().unwrap(),
            "{context}: {}",
            file.display()
        );
    }
    // The unfinished one goes on where the last complete one ends, as far as it got.
    let unfinished = std::fs::read_dir(scratch.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let unfinished = unfinished.filter(|path| path.extension().is_some_and(|end| end == "part"));
    files.extend(unfinished.filter(|path| std::fs::metadata(path).unwrap().len() > 0));

    let mut whole: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut lost = 0;
    for file in &files {
        lost += report(file).1["lost"]["total"].as_u64().unwrap();
        for (thread, numbers) in numbers(file) {
            whole.entry(thread).or_default().extend(numbers);
        }
    }
    // The runtime sends the events of one thread after another, megabytes at a time.
    assert!(
        (1..=3).contains(&whole.len()),
        "{context}: {:?}",
        whole.keys()
    );
    let mut missing = 0;
    for numbers in whole.values() {
        for pair in numbers.windows(2) {
            assert!(pair[1] > pair[0], "{context}: given twice: {pair:?}");
            missing += pair[1] - pair[0] - 1;
        }
    }
    // What the process itself lost is counted in the file where the gap is, and nothing else is missing.
    assert!(missing <= lost, "{context}: {missing} missing, {lost} lost");
    let seen: usize = whole.values().map(Vec::len).sum();
    println!(
        "{context}: {} files, {seen} events, {missing} missing, {lost} lost",
        files.len()
    );
}

/// The number of the newest file, complete or not.
fn number_of_newest(directory: &Path) -> u32 {
    let names = std::fs::read_dir(directory).unwrap().flatten();
    let numbers = names.filter_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        name.split('.').nth(1)?.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// Another number at each run.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0)
}
