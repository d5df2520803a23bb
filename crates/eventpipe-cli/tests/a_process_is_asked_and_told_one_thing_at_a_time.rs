//! `env`, `set-env`, `resume`, `perfmap`, `session stop` and `dump` do what they say to running processes, by id and
//! through diagnostic ports in both directions, and say what went wrong where they cannot.

mod support;

use dotnet_diagnostics::codec::Request;
use peers::{Peers, Runtime};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::fake::{Fake, dial_in, dotnet10};
use support::{Scratch, Target, collecting, finish, run, tool};

/// The value of a variable of a process; `None` if it has none.
fn variable(target: &[&str], name: &str) -> Option<String> {
    let arguments: Vec<&str> = ["env", "--json"].iter().chain(target).copied().collect();
    let (code, out, error) = run(&arguments);
    assert_eq!(code, 0, "{error}");
    let pairs: Value = serde_json::from_str(&out).unwrap();
    let pairs = pairs.as_array().unwrap();
    let pair = pairs.iter().find(|pair| pair["name"] == name)?;
    Some(pair["value"].as_str().unwrap().to_owned())
}

fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < deadline, "no {}", path.display());
        sleep(Duration::from_millis(10));
    }
}

/// A program that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn its_environment_is_printed() {
    let target = Target::at_work();
    let pid = target.pid().to_string();
    let (code, out, error) = run(&["env", "-p", &pid]);
    assert_eq!(code, 0, "{error}");
    assert!(out.lines().any(|line| line.starts_with("PATH=")), "{out}");
    let path = std::env::var("PATH").unwrap();
    assert_eq!(variable(&["-p", &pid], "PATH"), Some(path));
    assert_eq!(variable(&["-p", &pid], "EVENTPIPE_TEST"), None);
    for wrong in [&["set-env", "-p", &pid][..], &["set-env", "-p", &pid, "=x"]] {
        assert_eq!(run(wrong).0, 3, "{wrong:?}");
    }
}

#[test]
fn a_session_is_ended_by_its_id() {
    let scratch = Scratch::new("session");
    let target = Target::at_work();
    let file = scratch.file("a.nettrace");
    let mut recording = collecting(target.pid(), &file, &[]);
    let mut said = BufReader::new(recording.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("session 0x") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "no id was printed");
    }
    let id = line.split("session ").nth(1).unwrap();
    let id = id.split(')').next().unwrap();
    support::wait_for_bytes(&file, 100_000);
    let pid = target.pid().to_string();
    let (code, _, error) = run(&["session", "stop", "-p", &pid, id]);
    assert_eq!(code, 0, "{error}");
    assert!(
        error.contains(&format!("has no session {id} any more")),
        "{error}"
    );
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(finish(recording).0, 0, "{rest}");
    let (code, report) = support::report(&file);
    assert_eq!((code, &report["complete"]), (0, &Value::Bool(true)));
    assert_eq!(run(&["session", "stop", "-p", &pid, "0xzz"]).0, 3);
}

#[test]
fn it_is_reached_through_a_port_of_its_own() {
    let target = Target::at_work();
    let pid = target.pid().to_string();
    let (_, list, _) = run(&["ps", "--json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let row = list.as_array().unwrap().iter();
    let row = row
        .into_iter()
        .find(|row| row["pid"] == target.pid())
        .unwrap();
    let port = format!("{},connect", row["socket"].as_str().unwrap());
    assert!(variable(&["--dport", &port], "PATH").is_some());

    let scratch = Scratch::new("port");
    let file = scratch.file("a.nettrace");
    let file = file.to_str().unwrap();
    let (code, _, error) = run(&[
        "collect",
        "--diagnostic-port",
        &port,
        "--providers",
        "Demo-Requests",
        "--duration",
        "300ms",
        "-o",
        file,
    ]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains(&format!("process {pid},")), "{error}");
    assert!(
        support::report(Path::new(file)).1["total_events"]
            .as_u64()
            .unwrap()
            > 0
    );
}

#[test]
fn it_dials_in_at_a_port_of_the_tool() {
    let scratch = Scratch::new("dial");
    let socket = scratch.file("s");
    let port = socket.to_str().unwrap();
    let asking = tool()
        .args(["env", "--dport", port])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&socket);
    let _target = Ended(
        tool()
            .arg("demo-program")
            .env("DOTNET_DiagnosticPorts", format!("{port},nosuspend"))
            .env("EVENTPIPE_TEST", "dialled")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let (code, out, error) = finish(asking);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("EVENTPIPE_TEST=dialled"), "{out}");
    assert!(
        !socket.exists(),
        "the port's file goes with the tool that made it"
    );
}

#[test]
fn nobody_dials_in_and_the_user_gives_up() {
    let scratch = Scratch::new("giveup");
    let socket = scratch.file("s");
    for verb in ["env", "resume", "collect"] {
        let mut waiting = tool();
        waiting
            .args([verb, "--dport", socket.to_str().unwrap()])
            .current_dir(scratch.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let waiting = waiting.spawn().unwrap();
        wait_for(&socket);
        support::send(waiting.id(), Signal::INT);
        let (code, _, error) = finish(waiting);
        assert_eq!(code, 1, "{verb}: {error}");
        assert!(
            error.contains("interrupted before a process dialled in"),
            "{error}"
        );
        assert_eq!(
            std::fs::read_dir(scratch.path()).unwrap().count(),
            0,
            "nothing is left"
        );
    }
}

#[test]
fn wrong_ports_are_named() {
    let scratch = Scratch::new("wrong");
    let missing = format!("{},connect", scratch.file("none").display());
    let (code, _, error) = run(&["env", "--dport", &missing]);
    assert_eq!(code, 1);
    assert!(error.contains("there is no socket"), "{error}");
    for (port, cause) in [
        ("x,what", "path,listen"),
        (",connect", "no path"),
        ("namedpipe:x", "only sockets"),
    ] {
        let (code, _, error) = run(&["resume", "--dport", port]);
        assert_eq!(code, 3, "{error}");
        assert!(error.contains(cause), "{error}");
    }
    let nowhere = scratch.file("none/port");
    let (code, _, error) = run(&["env", "--dport", nowhere.to_str().unwrap()]);
    assert_eq!(code, 1);
    let cause = format!("cannot listen at {}: No such file", nowhere.display());
    assert!(error.contains(&cause), "{error}");
    let file = scratch.file("file");
    std::fs::write(&file, "no socket").unwrap();
    for (path, mode) in [
        (&*file, "listen"),
        (&*file, "connect"),
        (scratch.path(), "connect"),
    ] {
        let (code, _, error) = run(&["env", "--dport", &format!("{},{mode}", path.display())]);
        assert_eq!(code, 1);
        let cause = format!("{} is not a socket\n", path.display());
        assert!(error.ends_with(&cause), "{error}");
    }
    assert_eq!(run(&["env"]).0, 3);
    assert_eq!(run(&["env", "-p", "1", "--dport", "x"]).0, 3);
}

#[test]
fn dotnet_processes_are_told() {
    let Some(peers) = Peers::for_test("dotnet_processes_are_told") else {
        return;
    };
    for runtime in [Runtime::Net8, Runtime::Net10, Runtime::Net11] {
        let scratch = Scratch::new("dotnet-told");
        let socket = scratch.file("s");
        let port = socket.to_str().unwrap();
        let child = peers
            .program(runtime, "workload")
            .args(["idle", "--seconds", "600"])
            .env("DOTNET_DiagnosticPorts", format!("{port},suspend"))
            .env("TMPDIR", scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id().to_string();
        let _child = Ended(child);
        // The same process at the port of one tool after another.
        let told = ["--dport", port];
        let (code, _, error) = run(&["set-env", "--dport", port, "EVENTPIPE_TEST=a=b c"]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        assert_eq!(variable(&told, "EVENTPIPE_TEST").as_deref(), Some("a=b c"));
        let unset = ["set-env", "--dport", port, "--unset", "EVENTPIPE_TEST"];
        let (code, _, error) = run(&unset);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        assert_eq!(variable(&told, "EVENTPIPE_TEST"), None);
        let (code, _, error) = run(&unset);
        assert_eq!(code, 1, "{runtime:?}: {error}");
        let cause = "EVENTPIPE_TEST: the process has no such variable";
        assert!(error.contains(cause), "{error}");
        let trace = scratch.file("a.nettrace");
        let (code, _, error) = run(&[
            "collect",
            "--dport",
            port,
            "--clrevents",
            "loader",
            "--duration",
            "2s",
            "-o",
            trace.to_str().unwrap(),
        ]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        // Collecting has let it go on: its first module was loaded in front of the recorder.
        let loaded = peers.oracle_events(&trace);
        let loaded = loaded
            .iter()
            .any(|event| event["event"] == "Loader/ModuleLoad");
        assert!(loaded, "{runtime:?}");

        let (code, _, error) = run(&["perfmap", "enable", "-p", &pid, "--type", "perfmap"]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        // Where the map goes: the process's TMPDIR, or /tmp.
        let map = format!("perf-{pid}.map");
        let places = [scratch.file(&map), Path::new("/tmp").join(&map)];
        assert!(places.iter().any(|map| map.exists()), "{runtime:?}");
        let (code, _, error) = run(&["perfmap", "disable", "-p", &pid]);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        let _ = std::fs::remove_file(&places[1]);

        let core = scratch.file("core");
        let path = core.to_str().unwrap();
        let dump = [
            "dump",
            "-p",
            &pid,
            "--type",
            "mini",
            "--crashreport",
            "-o",
            path,
        ];
        let (code, _, error) = run(&dump);
        assert_eq!(code, 0, "{runtime:?}: {error}");
        assert_eq!(&std::fs::read(&core).unwrap()[..4], b"\x7fELF");
        let report = std::fs::read(scratch.file("core.crashreport.json")).unwrap();
        serde_json::from_slice::<Value>(&report).unwrap();
        let names = std::fs::read_dir(scratch.path()).unwrap().flatten();
        let parts = names.filter(|name| name.file_name().to_string_lossy().contains(".part"));
        assert_eq!(parts.count(), 0, "nothing is left under another name");
        let (code, _, error) = run(&dump);
        assert_eq!(code, 8, "{error}");
        assert!(error.contains("exists already"), "{error}");
    }
}

/// Nothing stops a process that writes a dump of itself, and what it has written must not stay behind unnamed.
#[test]
fn a_dump_that_is_interrupted_is_removed_or_named() {
    for signals in [1, 2] {
        let scratch = Scratch::new(&format!("interrupted-dump-{signals}"));
        let (go_on, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let server = Fake::at(&scratch.file("s"), move |request| {
            if let Request::GenerateCoreDump(dump) = request {
                std::fs::write(&dump.path, "begun").unwrap();
                let _ = wait.lock().unwrap().recv();
            }
            Some(dotnet10(request, &[]))
        });
        let core = scratch.file("core");
        let mut dump = tool()
            .args(["dump", "--dport", &server.port(), "-o"])
            .arg(&core)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(dump.stderr.take().unwrap());
        let mut said = said.lines().map(Result::unwrap);
        assert!(said.next().unwrap().starts_with("dumping "));
        let part = scratch.file(&format!(".core.{}.part", dump.id()));
        wait_for(&part);
        support::send(dump.id(), Signal::INT);
        let line = said.next().unwrap();
        assert!(line.contains("is removed when it is done"), "{line}");
        if signals == 2 {
            support::send(dump.id(), Signal::INT);
            let line = said.next().unwrap();
            assert!(
                line.ends_with(&format!("goes on writing {}", part.display())),
                "{line}"
            );
        } else {
            go_on.send(()).unwrap();
            let line = said.next().unwrap();
            assert!(line.contains("there is no dump"), "{line}");
        }
        let status = dump.wait().unwrap();
        assert_eq!(status.signal(), Some(2), "{status}");
        assert_eq!(part.exists(), signals == 2);
        assert!(!core.exists());
    }
}

/// The socket of a port is removed whichever way the tool ends, or the next one would find the path taken.
#[test]
fn a_dump_that_is_left_to_itself_leaves_no_port() {
    let scratch = Scratch::new("dump-port");
    let socket = scratch.file("s");
    let mut dump = tool()
        .args(["dump", "--dport", socket.to_str().unwrap(), "-o"])
        .arg(scratch.file("core"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&socket);
    // Answers what is asked, but never says that a dump is done.
    dial_in(&socket, |request| match request {
        Request::GenerateCoreDump(_) => None,
        request => Some(dotnet10(request, &[])),
    });
    let said = BufReader::new(dump.stderr.take().unwrap());
    let mut said = said.lines().map(Result::unwrap);
    assert!(said.next().unwrap().starts_with("waiting "));
    assert!(said.next().unwrap().starts_with("dumping "));
    for expected in ["is removed when it is done", "goes on writing"] {
        support::send(dump.id(), Signal::INT);
        let line = said.next().unwrap();
        assert!(line.contains(expected), "{line}");
    }
    let status = dump.wait().unwrap();
    assert_eq!(status.signal(), Some(2), "{status}");
    assert!(!socket.exists());
}

#[test]
fn a_suspended_dotnet_process_is_resumed() {
    let Some(peers) = Peers::for_test("a_suspended_dotnet_process_is_resumed") else {
        return;
    };
    let scratch = Scratch::new("dotnet-resumed");
    let socket = scratch.file("s");
    let port = socket.to_str().unwrap();
    let child = peers
        .program(Runtime::Net10, "workload")
        .args(["log", "--count", "1"])
        .env("DOTNET_DiagnosticPorts", format!("{port},suspend"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (code, _, error) = run(&["resume", "--dport", port]);
    assert_eq!(code, 0, "{error}");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("results"));
}
