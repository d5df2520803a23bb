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
        .args(PROVIDERS)
        .arg("-o")
        .arg(scratch.file("a.nettrace"))
        .args(which)
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
fn or_one_by_its_name_unless_there_are_two() {
    let (scratch, files) = (Scratch::new("name"), Scratch::new("name-files"));
    let name = format!("named-{}", std::process::id());
    let program = scratch.file(&name);
    support::copy_of_the_tool(&program);
    let first = Target::ready(&mut Command::new(&program));
    let words = ["-n", &name, "--duration", "200ms", "--force"];
    let (code, _, error) = finish(command(&files, &words).spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    assert!(
        error.contains(&format!("recording {name} (process {}", first.pid())),
        "{error}"
    );
    let second = Target::ready(&mut Command::new(&program));
    let (code, _, error) = finish(command(&files, &words).spawn().unwrap());
    for pid in [first.pid(), second.pid()] {
        assert!(error.contains(&pid.to_string()), "both are named: {error}");
    }
    assert_eq!(code, 3, "{error}");
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

/// What is in each file that was made.
fn all_events(scratch: &Scratch) -> Vec<u64> {
    let files = std::fs::read_dir(scratch.path()).unwrap();
    files.map(|file| events(&file.unwrap().path())).collect()
}

#[test]
fn a_command_and_everything_that_it_starts() {
    let scratch = Scratch::new("command-tree");
    let script = "\"$0\" demo-program </dev/null & \"$0\" demo-program </dev/null; wait; exit 7";
    let program = tool().get_program().to_str().unwrap().to_owned();
    let words = ["--tree", "--", "sh", "-c", script, &program];
    let (code, _, error) = finish(command(&scratch, &words).spawn().unwrap());
    assert_eq!(code, 7, "the command's own: {error}");
    let events = all_events(&scratch);
    assert_eq!(events.len(), 2, "{error}");
    assert!(!error.contains("not traced"), "{error}");

    // Ended by time, it is ended with everything that it started.
    let scratch = Scratch::new("command-tree-time");
    let script = "sleep 1000 | \"$0\" demo-program & sleep 1000 | \"$0\" demo-program";
    let words = [
        "--tree",
        "--duration",
        "2s",
        "--",
        "sh",
        "-c",
        script,
        &program,
    ];
    let (code, _, error) = finish(command(&scratch, &words).spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    assert_eq!(all_events(&scratch).len(), 2, "{error}");
}

#[test]
fn dotnet_programs_of_a_script_from_their_first_events() {
    const TEST: &str = "dotnet_programs_of_a_script_from_their_first_events";
    let Some(peers) = peers::Peers::for_test(TEST) else {
        return;
    };
    let scratch = Scratch::new("dotnet-tree");
    let script = "\"$0\" \"$2\" log --count 1 && \"$1\" \"$2\" log --count 1";
    let [old, new] =
        [peers::Runtime::Net8, peers::Runtime::Net11].map(|runtime| peers.dotnet(runtime));
    let workload = peers.program_path("workload");
    let words = [&old, &new, &workload].map(|path| path.to_str().unwrap().to_owned());
    let mut command = command(
        &scratch,
        &["--providers", "EventPipe-Workload-Log:ff:5", "--tree", "--"],
    );
    command.args(["sh", "-c", script]).args(words);
    let (code, _, error) = finish(command.spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    let events = all_events(&scratch);
    assert_eq!(events.len(), 2, "{error}");
    assert!(events.iter().all(|&count| count > 5), "{events:?}: {error}");
}

#[test]
fn or_none_where_none_is_like_that() {
    let scratch = Scratch::new("none");
    for (which, code, cause) in [
        (&["-n", "no such*"][..], 1, "no process named 'no such*'"),
        (&["-p", "1", "--all"], 3, ""),
        (
            &["--tree", "--", "true"],
            1,
            "'true' ended (exit status: 0) before any process of it",
        ),
        (&["--tree"], 3, ""),
        (&["-n", "x*", "--tree"], 3, ""),
    ] {
        let (got, _, error) = finish(command(&scratch, which).spawn().unwrap());
        assert_eq!(got, code, "{which:?}: {error}");
        assert!(error.contains(cause), "{error}");
    }
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
    for which in [&["--all"][..], &["--tree", "--", "true"]] {
        let (code, _, error) = finish(
            tool()
                .args(["collect", "-o", "-"])
                .args(which)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        assert_eq!(code, 3, "{error}");
        assert!(error.contains("standard output is one"), "{error}");
    }
}

/// A process is called what its file is called, which may be anything.
#[test]
fn each_under_a_name_that_does_nothing_to_the_terminal() {
    let scratch = Scratch::new("hostile-name");
    let path = scratch.file("x\x1b[2Jy\nz\u{202e}");
    support::copy_of_the_tool(&path);
    let target = Target::ready(&mut Command::new(&path));
    let pid = target.pid().to_string();
    let mut recording = tool();
    recording
        .args(["collect", "-p", &pid, "--duration", "100ms"])
        .args(PROVIDERS)
        .current_dir(scratch.path());
    let (code, _, error) = support::answer(&recording.output().unwrap());
    let (_, listed, _) = support::run(&["ps"]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains(&format!("recording x·[2Jy·z· (process {pid}, ")));
    assert!(error.contains("\nx_[2Jy_z__"), "{error}");
    assert!(listed.contains("x·[2Jy·z·"), "{listed}");
    for text in [&error, &listed] {
        assert!(!text.contains(['\x1b', '\u{202e}']), "{text:?}");
    }
}
