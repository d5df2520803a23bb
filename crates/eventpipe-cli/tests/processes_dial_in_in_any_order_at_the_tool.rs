//! `collect --dport PATH` where the tool listens: the tool first, the process first, either of them started again, two
//! programs at once, and nobody at all. Each program is recorded from its first event on; waiting costs nothing.

mod support;

use peers::{Peers, Runtime};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Scratch, finish, report, run, tool};

/// `collect` at a port of the tool, with what it says captured.
fn listening(scratch: &Scratch, more: &[&str]) -> Child {
    let mut command = tool();
    command
        .args(["collect", "--dport"])
        .arg(scratch.file("s"))
        .args([
            "--providers",
            "EventPipe-Workload-Log:ff:5,Demo-Requests:ff:5",
            "-o",
        ])
        .arg(scratch.file("a.nettrace"))
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for(&scratch.file("s"));
    child
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !path.exists() {
        assert!(Instant::now() < deadline, "no {}", path.display());
        sleep(Duration::from_millis(10));
    }
}

/// A program that dials in, waits there, and then writes its events and ends.
fn dialling(mut command: Command, scratch: &Scratch) -> Ended {
    command
        .env(
            "DOTNET_DiagnosticPorts",
            format!("{},suspend", scratch.file("s").display()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ended(command.spawn().unwrap())
}

/// A program that is ended with the test, also where it waits to be resumed.
struct Ended(Child);

impl std::ops::Deref for Ended {
    type Target = Child;
    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Ended {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn workload(peers: &Peers, runtime: Runtime) -> Command {
    let mut command = peers.program(runtime, "workload");
    command.args(["log", "--count", "1"]);
    command
}

/// The demo program, whose input is at its end at once.
fn demo() -> Command {
    let mut command = tool();
    command.arg("demo-program");
    command
}

/// Events of the workload in a complete file.
fn logged(file: &Path) -> u64 {
    let (code, report) = report(file);
    assert_eq!(
        (code, report["complete"].as_bool()),
        (0, Some(true)),
        "{}",
        file.display()
    );
    let rows = report["events"].as_array().unwrap().iter();
    rows.filter(|row| row["provider"] == "EventPipe-Workload-Log")
        .map(|row| row["count"].as_u64().unwrap())
        .sum()
}

fn file_of(scratch: &Scratch, child: &Child) -> PathBuf {
    scratch.file(&format!("a.{}.nettrace", child.id()))
}

#[test]
fn the_process_first_and_the_tool_later_and_again() {
    const TEST: &str = "the_process_first_and_the_tool_later_and_again";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net11] {
        let scratch = Scratch::new("late");
        let mut process = dialling(workload(&peers, runtime), &scratch);
        sleep(Duration::from_millis(300));
        // Two tools see it suspended and leave it so; the third records it from its first event on.
        for _ in 0..2 {
            let port = scratch.file("s");
            let (code, out, error) = run(&["env", "--dport", port.to_str().unwrap()]);
            assert_eq!(code, 0, "{runtime:?}: {error}");
            assert!(
                out.contains("DOTNET_DiagnosticPorts="),
                "{runtime:?}: {out}"
            );
            assert!(
                process.try_wait().unwrap().is_none(),
                "{runtime:?}: it went on"
            );
        }
        let (code, _, error) = finish(listening(&scratch, &["--force"]));
        assert_eq!(code, 0, "{runtime:?}: {error}");
        assert!(process.wait().unwrap().success());
        assert!(logged(&scratch.file("a.nettrace")) > 0, "{error}");
        assert!(!scratch.file("s").exists());
    }
}

#[test]
fn the_tool_first_and_several_programs_each_started_again() {
    const TEST: &str = "the_tool_first_and_several_programs_each_started_again";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    let scratch = Scratch::new("several-dial");
    let recording = listening(&scratch, &["--all"]);
    let mut files = Vec::new();
    for _ in 0..2 {
        let programs = [
            workload(&peers, Runtime::Net8),
            workload(&peers, Runtime::Net10),
            workload(&peers, Runtime::Net11),
            demo(),
        ];
        let mut programs = programs.map(|program| dialling(program, &scratch));
        for program in &mut programs {
            assert!(program.wait().unwrap().success());
        }
        let [first, second, third, _] = &programs;
        files.extend([first, second, third].map(|child| file_of(&scratch, child)));
        assert!(file_of(&scratch, &programs[3]).exists());
    }
    support::send(recording.id(), Signal::INT);
    let (code, _, error) = finish(recording);
    assert_eq!(code, 0, "{error}");
    let counts: Vec<u64> = files.iter().map(|file| logged(file)).collect();
    assert!(
        counts.iter().all(|&count| count > 0 && count == counts[0]),
        "{counts:?}"
    );
    assert_eq!(error.matches("0 lost").count(), 8, "{error}");
    assert!(!scratch.file("s").exists());
}

#[test]
fn a_program_of_ours_in_any_order() {
    let scratch = Scratch::new("ours-dial");
    for round in 0..2 {
        // The tool first; then the program first.
        let (recording, mut program) = if round == 0 {
            let recording = listening(&scratch, &["--force"]);
            (recording, dialling(demo(), &scratch))
        } else {
            let program = dialling(demo(), &scratch);
            sleep(Duration::from_millis(300));
            (listening(&scratch, &["--force"]), program)
        };
        let (code, _, error) = finish(recording);
        assert_eq!(code, 0, "{error}");
        assert!(program.wait().unwrap().success());
        let (code, report) = report(&scratch.file("a.nettrace"));
        assert_eq!(
            (code, report["complete"].as_bool()),
            (0, Some(true)),
            "{error}"
        );
    }
}

#[test]
fn the_first_only_and_the_others_are_named() {
    let scratch = Scratch::new("first");
    let mut recording = listening(&scratch, &[]);
    let port = format!("{},nosuspend", scratch.file("s").display());
    let start = || {
        let mut command = demo();
        command
            .env("DOTNET_DiagnosticPorts", &port)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Ended(command.spawn().unwrap())
    };
    let programs = [start(), start()];
    let mut said = BufReader::new(recording.stderr.take().unwrap()).lines();
    let (mut recorded, mut named) = (None, None);
    while recorded.is_none() || named.is_none() {
        let line = said.next().expect("both are named").unwrap();
        let is_in = |program: &&Ended| line.contains(&format!("process {}", program.id()));
        let program = programs.iter().find(is_in).map(|program| program.id());
        if line.contains("is not recorded (--all") {
            named = program;
        } else {
            recorded = recorded.or(program);
        }
    }
    assert_ne!(recorded, named);
    support::send(recording.id(), Signal::INT);
    assert!(recording.wait().unwrap().success());
    assert!(!scratch.file("s").exists());
}

#[test]
fn a_port_in_this_directory_is_named_for_processes_in_others() {
    let scratch = Scratch::new("relative");
    let mut command = tool();
    command.args([
        "collect",
        "--dport",
        "p.sock",
        "--all",
        "--duration",
        "100ms",
    ]);
    let (code, _, error) = support::answer(&command.current_dir(scratch.path()).output().unwrap());
    assert_eq!(code, 1, "{error}");
    let path = scratch.file("p.sock");
    assert!(
        error.contains(&format!("DOTNET_DiagnosticPorts={} ", path.display())),
        "{error}"
    );
}

#[test]
fn connect_is_not_for_several() {
    let (code, _, error) = run(&["collect", "--dport", "/tmp/none,connect", "--all"]);
    assert_eq!(code, 3, "{error}");
    assert!(error.contains("one process listens"), "{error}");
}

/// Nanoseconds that the threads of a process ran.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten();
    let times = tasks.map(|task| {
        let line = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        line.split_whitespace()
            .next()
            .and_then(|ns| ns.parse::<u64>().ok())
            .unwrap_or(0)
    });
    times.sum()
}

#[test]
fn nobody_and_waiting_takes_a_hundredth_of_a_processor_at_most() {
    for more in [&[][..], &["--all"]] {
        let scratch = Scratch::new("never");
        let waiting = listening(&scratch, more);
        sleep(Duration::from_millis(500));
        let (before, began) = (cpu_ns(waiting.id()), Instant::now());
        sleep(Duration::from_secs(4));
        let (used, passed) = (cpu_ns(waiting.id()) - before, began.elapsed().as_nanos());
        println!("{more:?}: {used} ns of {passed} ns");
        assert!(u128::from(used) * 100 <= passed, "{used} ns of {passed} ns");
        support::send(waiting.id(), Signal::INT);
        let (code, _, error) = finish(waiting);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("before a process dialled in"), "{error}");
        assert_eq!(
            std::fs::read_dir(scratch.path()).unwrap().count(),
            0,
            "nothing is left"
        );
    }
}
