//! `ps` and `collect` over the borders of pid and mount namespaces: a target in its own, with a private `/tmp`, by the
//! pid that it has here; a target with another `TMPDIR`; all targets from inside a container. Needs the privilege to
//! make namespaces.

mod support;

use peers::{Peers, Runtime};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use support::{Scratch, Target, answer, report, run, started, tool};

fn is_root(test: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        peers::skipped(test, "it takes root to make namespaces");
    }
    is_root
}

/// A shell script in namespaces of its own, as the first process of them.
fn in_namespaces(script: &str) -> Command {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--mount", "--fork", "--mount-proc"])
        .args(["sh", "-c", script]);
    unshare
}

/// A program in its own namespaces; all of them end with it.
struct Contained {
    unshare: Child,
    input: ChildStdin,
    /// Of the program, as it is seen here.
    pid: u32,
}

impl Contained {
    /// Runs a shell script, whose last word is the program; it must say "ready" first.
    fn start(script: &str, words: &[&str]) -> Contained {
        let (mut unshare, output, line) = started(
            in_namespaces(script)
                .args(words)
                .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
                .env_remove("TMPDIR"),
        );
        let input = unshare.stdin.take().unwrap();
        assert_eq!(line.trim(), "ready 1", "the first process of its namespace");
        // Its output goes on being read, or it would end.
        std::thread::spawn(move || for _ in output.lines() {});
        let outer = unshare.id();
        let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"));
        let pid = children.unwrap().trim().parse().unwrap();
        Contained {
            unshare,
            input,
            pid,
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // The first process of a pid namespace takes the others with it.
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        let _ = kill_process(pid, Signal::KILL);
        let _ = self.unshare.wait();
    }
}

/// The row of `ps --json` of a process, and its line of the table.
fn listed(pid: u32) -> (Value, String) {
    let (code, out, error) = run(&["ps", "--json"]);
    assert_eq!(code, 0, "{error}");
    let list: Value = serde_json::from_str(&out).unwrap();
    let row = list
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["pid"] == pid);
    let row = row
        .unwrap_or_else(|| panic!("{pid} is not in {out}"))
        .clone();
    let (_, out, _) = run(&["ps"]);
    let own = |line: &&str| line.split_whitespace().next() == Some(&pid.to_string());
    let line = out.lines().find(own).unwrap_or_else(|| panic!("{out}"));
    assert!(out.lines().next().unwrap().contains("INNER"), "{out}");
    (row, line.to_owned())
}

#[test]
fn a_program_with_our_engine_by_the_pid_that_it_has_here() {
    if !is_root("a_program_with_our_engine_by_the_pid_that_it_has_here") {
        return;
    }
    let scratch = Scratch::new("contained");
    // Where the program lies may be hidden by the private /tmp.
    let script =
        "mount --bind \"$0\" /mnt && mount -t tmpfs none /tmp && exec /mnt/eventpipe demo-program";
    let program = tool().get_program().to_owned();
    let folder = std::path::Path::new(&program)
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let mut target = Contained::start(script, &[&folder]);
    target.tell("begin");

    let (row, line) = listed(target.pid);
    assert_eq!(row["container_pid"], 1, "{row}");
    assert_eq!(row["kind"], "EventPipe", "{row}");
    assert_eq!(row["user"], "root", "{row}");
    let socket = Path::new(row["socket"].as_str().unwrap());
    let seen_from_here: PathBuf = ["/proc", &target.pid.to_string(), "root", "tmp"]
        .iter()
        .collect();
    assert!(socket.starts_with(seen_from_here), "{row}");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[1..4], ["1", "root", "eventpipe"], "{line}");

    let file = scratch.file("a.nettrace");
    let pid = target.pid.to_string();
    let path = file.to_str().unwrap();
    let (code, _, error) = run(&["collect", "-p", &pid, "--duration", "500ms", "-o", path]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains(&format!("(process {pid},")), "{error}");
    let (code, report) = report(&file);
    assert_eq!((code, report["complete"].as_bool()), (0, Some(true)));
    assert!(report["total_events"].as_u64().unwrap() > 100, "{error}");
}

#[test]
fn a_dotnet_program_by_the_pid_that_it_has_here() {
    const TEST: &str = "a_dotnet_program_by_the_pid_that_it_has_here";
    let Some(peers) = Peers::for_test(TEST) else {
        return;
    };
    if !is_root(TEST) {
        return;
    }
    let scratch = Scratch::new("contained-dotnet");
    let dotnet = peers.dotnet(Runtime::Net10);
    let all = dotnet.parent().and_then(|folder| folder.parent()).unwrap();
    let script = "mount --bind \"$0\" /mnt && mount -t tmpfs none /tmp && \
                  exec /mnt/net10/dotnet /mnt/workload/workload.dll log --count 1 --wait --hold";
    let mut target = Contained::start(script, &[all.to_str().unwrap()]);
    let (row, _) = listed(target.pid);
    assert_eq!(
        (&row["container_pid"], &row["kind"]),
        (&Value::from(1), &Value::from(".NET"))
    );
    assert_eq!(row["name"], "workload");

    let file = scratch.file("a.nettrace");
    let mut recording = tool()
        .args(["collect", "-p", &target.pid.to_string(), "-o"])
        .arg(&file)
        .args([
            "--providers",
            "EventPipe-Workload-Log:ff:5",
            "--duration",
            "3s",
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    support::wait_for_bytes(&file, 1);
    target.tell("");
    let (code, _, error) = answer(&{
        let _ = recording.try_wait();
        recording.wait_with_output().unwrap()
    });
    assert_eq!(code, 0, "{error}");
    let (_, report) = report(&file);
    let rows = report["events"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["provider"] == "EventPipe-Workload-Log"),
        "{report}"
    );
}

#[test]
fn a_program_with_another_temporary_folder() {
    let (scratch, elsewhere) = (Scratch::new("tmpdir"), Scratch::new("elsewhere"));
    let target = Target::ready(tool().env("TMPDIR", elsewhere.path()));
    let (file, pid) = (scratch.file("a.nettrace"), target.pid().to_string());
    let (_, list, _) = run(&["ps", "--json"]);
    assert!(
        list.contains(&*elsewhere.path().to_string_lossy()),
        "{list}"
    );
    let path = file.to_str().unwrap();
    let (code, _, error) = run(&["collect", "-p", &pid, "--duration", "200ms", "-o", path]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(report(&file).0, 0);
}

#[test]
fn all_of_a_container_from_inside() {
    if !is_root("all_of_a_container_from_inside") {
        return;
    }
    let scratch = Scratch::new("inside");
    // The private /tmp would hide the test's folder, and the tool where that has been built below /tmp.
    let script = "mount --bind \"$0\" /mnt && mount -t tmpfs none /tmp || exit 99; tool=/mnt/tool/eventpipe; \
        sleep 1000 | $tool demo-program >/dev/null & first=$!; sleep 1000 | $tool demo-program >/dev/null & \
        until [ \"$($tool ps --json | grep -c '\"container_pid\"')\" = 2 ]; do \
          kill -0 $first $! || exit 98; sleep 0.05; done; \
        $tool collect --all --duration 300ms -o /mnt/traces/a.nettrace";
    let [traces, copy] = ["traces", "tool"].map(|name| scratch.file(name));
    std::fs::create_dir(&traces).unwrap();
    std::fs::create_dir(&copy).unwrap();
    support::copy_of_the_tool(&copy.join("eventpipe"));
    let output = in_namespaces(script)
        .arg(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (code, _, error) = answer(&output);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("recording 2 processes"), "{error}");
    let files: Vec<_> = std::fs::read_dir(&traces).unwrap().flatten().collect();
    assert_eq!(files.len(), 2, "{error}");
    for file in files {
        let (code, report) = report(&file.path());
        assert_eq!((code, report["complete"].as_bool()), (0, Some(true)));
    }
}
