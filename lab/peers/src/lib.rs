//! The foreign programs that tests run against: .NET runtimes, Microsoft's tools, the TraceEvent oracle, samples.
//!
//! They lie outside the repository. A test that needs them starts with
//!
//! ```no_run
//! let Some(peers) = peers::Peers::for_test("dotnet_trace_opens_our_file") else { return };
//! ```
//!
//! which says `skipped: …` and ends the test where they are missing, and fails it when `CI=true`: on the build server
//! nothing may be skipped.

#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The unpacked foreign programs (`shared/peers/unpack.sh`).
#[derive(Clone, Debug)]
pub struct Peers {
    programs: PathBuf,
}

/// A generation of the .NET runtime that the peers hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// .NET Core 3.1: the C++ engine. Runs `stress` only.
    Net3,
    /// .NET 8: the C engine.
    Net8,
    /// .NET 10.
    Net10,
    /// .NET 11.
    Net11,
}

impl Runtime {
    /// All of them, oldest first.
    pub const ALL: [Runtime; 4] = [Runtime::Net3, Runtime::Net8, Runtime::Net10, Runtime::Net11];

    /// The folder's name: `net3.1`, `net8`, `net10`, `net11`.
    pub fn name(self) -> &'static str {
        match self {
            Runtime::Net3 => "net3.1",
            Runtime::Net8 => "net8",
            Runtime::Net10 => "net10",
            Runtime::Net11 => "net11",
        }
    }
}

impl Peers {
    /// The peers under `$PEERS_DIR`, else under `target/peers` of the workspace; `None` where they are not unpacked.
    pub fn find() -> Option<Peers> {
        let candidates = [
            std::env::var_os("PEERS_DIR").map(PathBuf::from),
            Some(workspace().join("target/peers")),
        ];
        candidates
            .into_iter()
            .flatten()
            .find(|dir| dir.join(".unpacked").is_file())
            .map(|dir| {
                let programs = dir.canonicalize().unwrap_or(dir);
                Peers { programs }
            })
    }

    /// As [`Peers::find`] for the named test: says that it is skipped, or fails it when `CI=true`.
    pub fn for_test(test: &str) -> Option<Peers> {
        let found = Peers::find();
        if found.is_none() {
            skipped(
                test,
                "no peers (run ../shared/peers/unpack.sh target/peers)",
            );
        }
        found
    }

    /// `dotnet` of a runtime.
    pub fn dotnet(&self, runtime: Runtime) -> PathBuf {
        self.programs.join(runtime.name()).join("dotnet")
    }

    /// A command that runs one of the tools (`dotnet-trace`, `dotnet-counters`, `oracle`, `driver`, …) on .NET 8, its own
    /// diagnostic port switched off so that it is not taken for a traced program.
    pub fn tool(&self, name: &str) -> Command {
        // A shell starts background jobs with SIGINT ignored, and .NET leaves it so: Ctrl+C would do nothing to the tool.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT");
        command.arg(self.dotnet(Runtime::Net8));
        self.host(&mut command, name);
        command.env("DOTNET_EnableDiagnostics", "0");
        command
    }

    /// A command that runs one of the traced programs (`workload`, `stress`) on a runtime, its diagnostic port open.
    pub fn program(&self, runtime: Runtime, name: &str) -> Command {
        let mut command = Command::new(self.dotnet(runtime));
        self.host(&mut command, name);
        command
    }

    fn host(&self, command: &mut Command, name: &str) {
        command
            .arg(self.program_path(name))
            .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
            .env("DOTNET_NOLOGO", "1")
            .env("DOTNET_CLI_TELEMETRY_OPTOUT", "1");
    }

    /// The path of a program's assembly.
    pub fn program_path(&self, name: &str) -> PathBuf {
        self.programs.join(name).join(format!("{name}.dll"))
    }

    /// What TraceEvent reads in a trace: one JSON value per event, in the order of dispatch (`oracle events`).
    ///
    /// # Panics
    /// When the oracle does not run or reports a damaged file: in a test that is the finding.
    pub fn oracle_events(&self, trace: &Path) -> Vec<serde_json::Value> {
        let mut events = Vec::new();
        self.for_each_oracle_event(trace, |event| events.push(event));
        events
    }

    /// The same one by one: a value takes a hundred times the memory of its event.
    ///
    /// # Panics
    /// As [`Peers::oracle_events`].
    pub fn for_each_oracle_event(&self, trace: &Path, event: impl FnMut(serde_json::Value)) {
        self.for_each_oracle_line("events", trace, event);
    }

    /// The activities that TraceEvent makes of the events, in the order of their starts (`oracle activities`).
    ///
    /// # Panics
    /// As [`Peers::oracle_events`].
    pub fn oracle_activities(&self, trace: &Path) -> Vec<serde_json::Value> {
        let mut activities = Vec::new();
        self.for_each_oracle_line("activities", trace, |activity| activities.push(activity));
        activities
    }

    fn for_each_oracle_line(
        &self,
        mode: &str,
        trace: &Path,
        mut each: impl FnMut(serde_json::Value),
    ) {
        let mut oracle = self
            .tool("oracle")
            .arg(mode)
            .arg(trace)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("oracle starts");
        let lines = oracle.stdout.take().expect("its output is a pipe");
        for line in BufReader::new(lines).lines() {
            let line = line.expect("the oracle prints text");
            if !line.is_empty() {
                each(serde_json::from_str(&line).expect("the oracle prints JSON"));
            }
        }
        // It says little on standard error, at its end.
        let output = oracle.wait_with_output().expect("oracle ends");
        assert!(
            output.status.success(),
            "oracle {mode} {}: {}",
            trace.display(),
            stderr(&output)
        );
    }

    /// TraceEvent's summary of a trace (`oracle summary`).
    ///
    /// # Panics
    /// As [`Peers::oracle_events`].
    pub fn oracle_summary(&self, trace: &Path) -> serde_json::Value {
        let output = self
            .tool("oracle")
            .arg("summary")
            .arg(trace)
            .output()
            .expect("oracle starts");
        assert!(
            output.status.success(),
            "oracle summary {}: {}",
            trace.display(),
            stderr(&output)
        );
        serde_json::from_slice(&output.stdout).expect("the oracle prints JSON")
    }
}

/// The folder of shared facts and samples: `$EVENTPIPE_SHARED`, else `../shared` beside the workspace.
pub fn shared() -> Option<PathBuf> {
    let dir = std::env::var_os("EVENTPIPE_SHARED")
        .map(PathBuf::from)
        .unwrap_or_else(|| workspace().join("../shared"));
    dir.is_dir().then_some(dir)
}

/// As [`shared`] for the named test: says that it is skipped, or fails it when `CI=true`.
pub fn shared_for_test(test: &str) -> Option<PathBuf> {
    let found = shared();
    if found.is_none() {
        skipped(test, "no ../shared (set EVENTPIPE_SHARED)");
    }
    found
}

/// Says that a test is skipped and why.
///
/// # Panics
/// When `CI=true`: there nothing may be skipped.
pub fn skipped(test: &str, why: &str) {
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "{test}: {why}, and CI=true skips nothing"
    );
    eprintln!("skipped: {test}: {why}");
}

/// What a finished program wrote to standard error, as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
