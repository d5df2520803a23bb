//! What the tests of the tool share.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod fake;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A directory of its own for a test, removed at the end.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("eventpipe-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The tool.
pub(crate) fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_eventpipe"))
}

/// Runs the tool with arguments and gives code, standard output, standard error.
pub(crate) fn run(arguments: &[&str]) -> (i32, String, String) {
    answer(&tool().args(arguments).output().unwrap())
}

/// Code, standard output, standard error.
pub(crate) fn answer(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Starts a program, and gives it, its output, and the first line of that.
pub(crate) fn started(program: &mut Command) -> (Child, BufReader<ChildStdout>, String) {
    program.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = program.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    (child, output, line)
}

/// Copies the tool. By another process: a file that a test beside this one may hold open for writing cannot be started.
pub(crate) fn copy_of_the_tool(path: &Path) {
    let copied = Command::new("cp")
        .arg(tool().get_program())
        .arg(path)
        .status();
    assert!(copied.unwrap().success());
}

/// The demo program, as a process that the tool can trace.
#[derive(Debug)]
pub(crate) struct Target {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Target {
    /// Starts it; it is at work when this returns.
    pub(crate) fn at_work() -> Target {
        let mut target = Target::ready(&mut tool());
        target.tell("begin");
        target
    }

    /// Starts the tool, or a copy of it, as the demo program; it can be traced when this returns, and waits.
    pub(crate) fn ready(tool: &mut Command) -> Target {
        let (mut child, output, line) = started(tool.arg("demo-program"));
        assert!(line.starts_with("ready "), "{line}");
        Target {
            input: child.stdin.take(),
            child,
            output,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
        // The signal goes to one thread, which stops the others when it is next scheduled.
        while signal == Signal::STOP && !self.is_stopped() {
            sleep(Duration::from_millis(1));
        }
    }

    /// Whether each of its threads stands still.
    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Ends its work; gives the line that says what it wrote.
    pub(crate) fn end(mut self) -> String {
        self.tell("end");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.input = None;
        // It may be stopped or at work.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a child that was not waited for.
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// `eventpipe collect` of everything that the demo program has, running.
pub(crate) fn collecting(pid: u32, output: &Path, more: &[&str]) -> Child {
    collect_command(pid, output, more).spawn().unwrap()
}

/// The same before it runs, with its standard error captured.
pub(crate) fn collect_command(pid: u32, output: &Path, more: &[&str]) -> Command {
    let mut command = tool();
    command
        .args(["collect", "-p", &pid.to_string(), "-o"])
        .arg(output)
        .args(["--providers", "Demo-Requests:ff:5,Demo-Internals:ff:5"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A command of the tool that finds no room for more than some 100 KB in a file: a limit on the size of files, instead
/// of a small disk; the write fails in the same way. In blocks of 512 or 1024 bytes, whatever the shell thinks.
pub(crate) fn with_small_files(tool: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 300; exec \"$@\"", "sh"])
        .arg(tool.get_program())
        .args(tool.get_args())
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    limited
}

/// Waits until a file has grown to so many bytes.
pub(crate) fn wait_for_bytes(path: &Path, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::metadata(path).map_or(0, |found| found.len()) < bytes {
        assert!(
            Instant::now() < deadline,
            "{} does not grow",
            path.display()
        );
        sleep(Duration::from_millis(10));
    }
}

/// Waits for an end of the tool and gives code, standard output, standard error.
pub(crate) fn finish(tool: Child) -> (i32, String, String) {
    answer(&tool.wait_with_output().unwrap())
}

/// The report of a trace as JSON, and the exit code.
pub(crate) fn report(path: &Path) -> (i32, serde_json::Value) {
    let (code, out, error) = run(&["report", "stat", path.to_str().unwrap(), "--json"]);
    let report = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{code}: {out}{error}"));
    (code, report)
}

/// Runs a line of the shell in a terminal; types each text as soon as what was typed before is done and its mark is
/// shown. Gives what was shown, and whether it went well; `None` where there is no terminal to be had.
pub(crate) fn in_a_terminal(
    test: &str,
    line: &str,
    typed: &[(&str, &str)],
) -> Option<(String, bool)> {
    // Gives the command a terminal, and passes on what comes here.
    let script = Command::new("script")
        .args(["-qfec", line, "/dev/null"])
        .env("TERM", "xterm")
        // Some shells stay in between, and die of the signal that the command obeys.
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        peers::skipped(test, "there is no program 'script'");
        return None;
    };
    let (mut shown, mut buffer) = (String::new(), [0; 4096]);
    let mut output = script.stdout.take().unwrap();
    let mut input = script.stdin.take().unwrap();
    let mut typed = typed.iter();
    let mut next = typed.next();
    let mut seen = 0;
    loop {
        let count = output.read(&mut buffer).unwrap();
        if count == 0 {
            break;
        }
        shown.push_str(&String::from_utf8_lossy(&buffer[..count]));
        while let Some((mark, text)) = next {
            let Some(at) = shown[seen..].find(mark) else {
                break;
            };
            seen += at + mark.len();
            input.write_all(text.as_bytes()).unwrap();
            next = typed.next();
        }
    }
    Some((shown, script.wait().unwrap().success()))
}
