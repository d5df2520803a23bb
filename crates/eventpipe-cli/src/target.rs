//! Which process to trace, and what it is called.

use crate::exit_code::{ExitCode, Failure};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::client::{Client, Timeouts};
use dotnet_diagnostics::codec::ProcessInfo;
use dotnet_diagnostics::discovery::{self, Process};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// A process with what it says of itself.
#[derive(Debug)]
pub(crate) struct Described {
    /// Where it was found.
    pub(crate) process: Process,
    /// Its answer, if it gave one.
    pub(crate) info: Result<ProcessInfo, Error>,
}

/// Time for a process to answer when many are asked.
const LIST_LIMIT: Duration = Duration::from_secs(1);

impl Described {
    /// What people call it: the managed program, else the executable, else the kernel's name.
    pub(crate) fn name(&self) -> String {
        let assembly = self.info.as_ref().map(|info| info.entry_assembly.as_str());
        if let Some(name) = assembly.ok().filter(|name| !name.is_empty()) {
            return name.to_owned();
        }
        managed_name(&self.process)
            .or_else(|| executable_name(&self.process))
            .unwrap_or_else(|| self.process.name.clone())
    }

    /// The runtime and its version without build metadata: `.NET 8.0.4`.
    pub(crate) fn runtime(&self) -> String {
        match &self.info {
            Ok(info) => runtime_name(info),
            Err(error) if error.is_unsupported() => ".NET Core 3".to_owned(),
            Err(_) => "?".to_owned(),
        }
    }

    /// Whose engine it has; `None` if it does not say.
    pub(crate) fn kind(&self) -> Option<&'static str> {
        match &self.info {
            Ok(info) if is_native(info) => Some("EventPipe"),
            Ok(_) => Some(".NET"),
            Err(error) if error.is_unsupported() => Some(".NET"),
            Err(_) => None,
        }
    }

    /// Why the process did not say more; `None` where it could not be expected to (ipc.md 2: .NET
    /// Core 3 does not know the question).
    pub(crate) fn trouble(&self) -> Option<String> {
        let error = self
            .info
            .as_ref()
            .err()
            .filter(|error| !error.is_unsupported());
        error.map(|error| match stopped(self.process.pid) {
            Some(stopped) => format!("{error}; {stopped}"),
            None => error.to_string(),
        })
    }

    /// Whether it has this project's engine, which knows nothing of a .NET runtime's providers.
    pub(crate) fn is_native(&self) -> bool {
        self.info.as_ref().is_ok_and(is_native)
    }

    /// The command line in one string.
    pub(crate) fn command_line(&self) -> String {
        let words = self.process.command_line();
        if words.is_empty() {
            return self
                .info
                .as_ref()
                .map(|info| info.command_line.clone())
                .unwrap_or_default();
        }
        let words: Vec<String> = words.iter().map(quoted).collect();
        words.join(" ")
    }

    fn is_called(&self, name: &str) -> bool {
        self.has_name(|own| own == name)
    }

    /// Whether one of its names is as wanted.
    pub(crate) fn has_name(&self, is_wanted: impl Fn(&str) -> bool) -> bool {
        is_wanted(&self.name())
            || is_wanted(&self.process.name)
            || executable_name(&self.process).is_some_and(|name| is_wanted(&name))
    }
}

/// Whether a process has this project's engine rather than a .NET runtime: .NET says its version
/// from 5.0 on (older ones do not know the question), the engine says its own.
pub(crate) fn is_native(info: &ProcessInfo) -> bool {
    let major = info.product_version.split('.').next().unwrap_or_default();
    major.parse::<u32>().is_ok_and(|major| major < 5)
}

/// The runtime and its version as a person says it.
fn runtime_name(info: &ProcessInfo) -> String {
    let version = info.product_version.split('+').next().unwrap_or_default();
    let runtime = if is_native(info) { "EventPipe" } else { ".NET" };
    format!("{runtime} {version}").trim_end().to_owned()
}

/// All processes that can be traced, sorted by name, without this one.
pub(crate) fn all() -> anyhow::Result<Vec<Described>> {
    let processes = discovery::processes().map_err(attach_failure)?;
    let own = std::process::id();
    // Asked at the same time: a process that does not answer costs the others nothing.
    let mut described: Vec<Described> = std::thread::scope(|scope| {
        let asked: Vec<_> = processes
            .into_iter()
            .filter(|process| process.pid != own)
            .map(|process| {
                scope.spawn(move || {
                    let timeouts = Timeouts {
                        connect: LIST_LIMIT,
                        reply: LIST_LIMIT,
                        ..Timeouts::default()
                    };
                    let client = Client::new(process.endpoint()).with_timeouts(timeouts);
                    let info = client.process_info();
                    Described { process, info }
                })
            })
            .collect();
        asked
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    });
    described.sort_by_cached_key(|d| (d.name(), d.process.pid));
    Ok(described)
}

/// A process with its own words about itself, asked through `client`.
pub(crate) fn describe(process: Process, client: &Client) -> Described {
    let info = client.process_info();
    Described { process, info }
}

/// The process with this id.
pub(crate) fn by_id(pid: u32) -> anyhow::Result<Process> {
    Ok(discovery::find(pid).map_err(attach_failure)?)
}

/// The only process of this name.
pub(crate) fn by_name(name: &str) -> anyhow::Result<Process> {
    let mut found: Vec<Described> = all()?.into_iter().filter(|d| d.is_called(name)).collect();
    match found.len() {
        0 => Err(Failure::new(
            ExitCode::Session,
            format!("no process named '{name}' can be traced (see `eventpipe ps`)"),
        )
        .into()),
        1 => Ok(found.remove(0).process),
        _ => {
            let list: Vec<String> = found
                .iter()
                .map(|d| format!("{} ({})", d.process.pid, d.command_line()))
                .collect();
            Err(Failure::new(
                ExitCode::Arguments,
                format!(
                    "several processes are named '{name}', choose by -p: {}",
                    list.join(", ")
                ),
            )
            .into())
        }
    }
}

/// Why a process cannot answer that stands still, and what lets it go on; `None` where it does not.
pub(crate) fn stopped(pid: u32) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    match stat.get(end + 2)? {
        b'T' => Some(format!("it is stopped (kill -CONT {pid} lets it go on)")),
        b't' => Some("a debugger has stopped it".to_owned()),
        _ => None,
    }
}

/// An error of attaching as one of this tool, with its exit code.
pub(crate) fn attach_failure(error: Error) -> Failure {
    let code = match &error {
        error if error.is_unsupported() => ExitCode::Unsupported,
        Error::BadRequest(_) => ExitCode::Arguments,
        _ => ExitCode::Session,
    };
    let hint = match &error {
        Error::NoSocket { .. } => {
            "; it is no program with EventPipe, or its diagnostics are switched off"
        }
        Error::OtherUser { .. } => "; run the tool as that user or as root",
        Error::StaleSocket { .. } => "; the process is gone or about to end",
        Error::NotAnswering { .. } => {
            "; it may be suspended, stopped, or busy with another tool's request"
        }
        error if error.is_not_ready() => "; try again in a moment",
        _ => "",
    };
    Failure::new(code, format!("{error}{hint}"))
}

/// The program of a command line `dotnet PROGRAM.dll …`.
fn managed_name(process: &Process) -> Option<String> {
    let words = process.command_line();
    let host = Path::new(words.first()?).file_stem()?;
    let program = Path::new(words.get(1)?);
    let is_managed = host == "dotnet" && program.extension()?.eq_ignore_ascii_case("dll");
    is_managed.then(|| {
        program
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    })
}

fn executable_name(process: &Process) -> Option<String> {
    let path = process.executable()?;
    let name = Path::new(&path).file_name()?.to_string_lossy().into_owned();
    Some(
        name.strip_suffix(" (deleted)")
            .map_or(name.clone(), str::to_owned),
    )
}

/// A word of a command line, quoted where a shell would need it.
fn quoted(word: &OsString) -> String {
    let word = word.to_string_lossy();
    if word.is_empty() || word.contains(|c: char| c.is_whitespace() || "'\"\\$`;&|<>()".contains(c))
    {
        format!("'{}'", word.replace('\'', "'\\''"))
    } else {
        word.into_owned()
    }
}
