//! The command that `collect -- COMMAND` starts and ends.

use crate::exit_code::{ExitCode, Failure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// How long a command may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A started command. Dropped while it runs, it is killed.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Child,
    status: Option<ExitStatus>,
    /// Whether it is the first of a process group of its own.
    has_group: bool,
}

impl Launched {
    /// Starts a command that dials in at `port` and waits there to be resumed.
    ///
    /// Without the terminal the command gets its own process group: Ctrl+C then reaches the tool
    /// alone, which ends the recording in order before it ends the command.
    pub(crate) fn start(
        command: &[OsString],
        port: &Path,
        show_io: bool,
    ) -> Result<Launched, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Err(Failure::new(ExitCode::Arguments, "no command after '--'"));
        };
        let mut ports = port.as_os_str().to_owned();
        ports.push(",suspend,connect");
        let mut process = Command::new(program);
        process.args(arguments).env("DOTNET_DiagnosticPorts", ports);
        let name = program.to_string_lossy();
        if !show_io {
            let failure = |error| {
                let text = format!("cannot start '{name}': nowhere for its output: {error}");
                Failure::new(ExitCode::Session, text)
            };
            process
                .stdin(no_input().map_err(failure)?)
                .stdout(no_output().map_err(failure)?)
                .stderr(no_output().map_err(failure)?);
            process.process_group(0);
        }
        let child = process.spawn().map_err(|error| {
            let cause = match error.kind() {
                io::ErrorKind::NotFound => "no such command".to_owned(),
                _ => error.to_string(),
            };
            Failure::new(ExitCode::Session, format!("cannot start '{name}': {cause}"))
        })?;
        Ok(Launched {
            child,
            status: None,
            has_group: !show_io,
        })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for its end at most so long.
    pub(crate) fn wait_at_most(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        while self.status().is_none() && Instant::now() < deadline {
            sleep(Duration::from_millis(10));
        }
        self.status
    }

    /// Ends it and what it started: SIGTERM, and after three seconds SIGKILL.
    pub(crate) fn end(&mut self) {
        if self.status().is_some() {
            return;
        }
        // Not waited for yet, so the id is still this child's.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // What it started goes with it, where it is a group of its own.
            let _ = if self.has_group {
                kill_process_group(pid, Signal::TERM)
            } else {
                kill_process(pid, Signal::TERM)
            };
        }
        if self.wait_at_most(GRACE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether there is a `/dev/null`: an empty root has none.
fn has_null() -> bool {
    Path::new("/dev/null").exists()
}

fn no_input() -> io::Result<Stdio> {
    if has_null() {
        return Ok(Stdio::null());
    }
    // Nobody writes there, so it is at its end.
    io::pipe().map(|(reader, _)| reader.into())
}

fn no_output() -> io::Result<Stdio> {
    if has_null() {
        return Ok(Stdio::null());
    }
    let (mut reader, writer) = io::pipe()?;
    thread::Builder::new()
        .name("output".into())
        .spawn(move || io::copy(&mut reader, &mut io::sink()))?;
    Ok(writer.into())
}

impl Drop for Launched {
    fn drop(&mut self) {
        if self.status().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The exit code that stands for how a command ended: its own, or 128 + n after signal n.
pub(crate) fn exit_code_of(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(ExitCode::Unexpected as u8)
}
