//! Starts foreign .NET programs, and ends them whatever happens.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use dotnet_diagnostics::client::Client;
use dotnet_diagnostics::discovery;
use peers::{Peers, Runtime};

/// A running program that waits for [`Target::go`].
pub(crate) struct Target {
    pub(crate) child: Child,
    pub(crate) runtime: Runtime,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

/// The program of a runtime that all tests use: `stress` on 3.1, `workload` on the others.
pub(crate) fn command(peers: &Peers, runtime: Runtime) -> Command {
    let mut command;
    if runtime == Runtime::Net3 {
        command = peers.program(runtime, "stress");
        command.args([
            "--threads",
            "2",
            "--count",
            "500",
            "--kind",
            "sequenced",
            "--rate",
            "1000",
            "--wait",
        ]);
    } else {
        command = peers.program(runtime, "workload");
        command.args([
            "stress",
            "--threads",
            "2",
            "--count",
            "500",
            "--kind",
            "seq",
        ]);
        command.args(["--wait", "--hold"]);
    }
    command
}

/// The provider of that program and how many events it writes.
pub(crate) fn provider(runtime: Runtime) -> (&'static str, u64, usize) {
    match runtime {
        // Named keywords: `Sequenced` goes only to sessions with one of the bits 44 to 47 on some runtimes.
        Runtime::Net3 => ("EventPipeStress", u64::MAX, 1000),
        _ => ("EventPipe-Workload-Stress", u64::MAX, 1000),
    }
}

impl Target {
    /// Starts the program; does not wait for it, because it may be suspended.
    pub(crate) fn spawn(mut command: Command, runtime: Runtime) -> Target {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the program starts");
        Target {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            runtime,
        }
    }

    /// Starts the usual program and waits until it is ready.
    pub(crate) fn start(peers: &Peers, runtime: Runtime) -> Target {
        let mut target = Target::spawn(command(peers, runtime), runtime);
        target.wait_for("ready");
        target
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        let process = discovery::find(self.pid()).expect("it has a socket");
        Client::new(process.endpoint())
    }

    /// Reads lines up to one that begins so.
    pub(crate) fn wait_for(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).expect("a line");
            assert!(count > 0, "{}: ended before {start:?}", self.runtime.name());
            if line.starts_with(start) {
                return line;
            }
        }
    }

    /// Lets the program do its work.
    pub(crate) fn go(&mut self) {
        // .NET 11 answers before its providers are on (shared/peers/README.md), and the `stress` program of 3.1 can be
        // through with its work, and gone, before that old engine's stream has begun.
        if matches!(self.runtime, Runtime::Net3 | Runtime::Net11) {
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        let input = self.input.as_mut().expect("its input");
        input.write_all(b"\n").expect("it reads");
    }

    /// Waits for the end of the work; `workload` stays, `stress` ends by itself.
    pub(crate) fn wait_for_work(&mut self) {
        match self.runtime {
            Runtime::Net3 => {
                let mut rest = String::new();
                self.output.read_to_string(&mut rest).expect("its report");
            }
            _ => drop(self.wait_for("done")),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A killed runtime leaves its files behind.
        let prefixes =
            ["dotnet-diagnostic", "clr-debug-pipe"].map(|p| format!("{p}-{}-", self.pid()));
        for file in std::fs::read_dir("/tmp").into_iter().flatten().flatten() {
            let name = file.file_name();
            if prefixes
                .iter()
                .any(|p| name.to_string_lossy().starts_with(p))
            {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// A folder or file of the test under the temporary folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dd-live-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let _ = std::fs::remove_file(&path);
    path
}
