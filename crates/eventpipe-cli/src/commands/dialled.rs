//! Every process that dials in at a port, recorded from its first event on into a file of its own:
//! `collect --tree -- COMMAND`, whose processes all inherit the port, and `collect --diagnostic-port PATH --all`.
//!
//! Processes come and go in any order, also again; a recording that fails does not end the others. The whole ends by a
//! signal, by its duration, or when the command has ended and nothing is recorded any more.

use crate::attach::Signals;
use crate::child::{Launched, exit_code_of};
use crate::cli::Collect;
use crate::commands::several::{own_output, record_one, refuse_standard_output};
use crate::enter;
use crate::exit_code::{ExitCode, Failure};
use crate::launch::{self, Others, own_listener};
use crate::profiles::Asked;
use crate::reach::{Reached, full_path, parse_port};
use crate::target::attach_failure;
use crate::terminal::note;
use dotnet_diagnostics::client::{Client, Endpoint};
use dotnet_diagnostics::port::{Listener, Runtime};
use dotnet_diagnostics::port_config::PortMode;
use std::collections::HashSet;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often signals, time and the command are looked after.
const POLL: Duration = Duration::from_millis(50);

/// Whether the options ask for every process that dials in.
pub(crate) fn is_asked(arguments: &Collect) -> bool {
    arguments.tree && !arguments.command.is_empty()
        || arguments.all && arguments.target.diagnostic_port.is_some()
}

/// Records them all; gives the exit code.
pub(crate) fn collect(arguments: &Collect, asked: &Asked<'_>) -> anyhow::Result<u8> {
    refuse_standard_output(arguments)?;
    let signals = Signals::listen(!arguments.show_child_io)?;
    let listener = match &arguments.target.diagnostic_port {
        Some(port) => listen(port)?,
        None => own_listener()?,
    };
    let mut command = match arguments.command.as_slice() {
        [] => None,
        words => Some(Launched::start(
            words,
            listener.path(),
            arguments.show_child_io,
        )?),
    };
    let deadline = arguments.duration.map(|limit| Instant::now() + limit);
    let whole = Whole {
        arguments,
        asked,
        signals,
        deadline,
        files: Mutex::default(),
    };
    let (codes, status) = whole.run(listener, command.as_mut())?;
    let worst = codes
        .iter()
        .copied()
        .find(|&code| code != ExitCode::Ok as u8);
    match (&arguments.command.first(), status) {
        (Some(name), status) if codes.is_empty() => {
            let name = name.to_string_lossy();
            let how = status.map_or(String::new(), |status| format!(" ({status})"));
            let hint = launch::hint(arguments);
            let text =
                format!("'{name}' ended{how} before any process of it could be traced{hint}");
            Err(Failure::new(ExitCode::Session, text).into())
        }
        (None, _) if codes.is_empty() => {
            let text = "ended before a process dialled in";
            Err(Failure::new(ExitCode::Session, text).into())
        }
        // The command's own code says most, also where one that was killed broke its recording off.
        (_, Some(status)) if worst.is_none_or(|code| code == ExitCode::Tracing as u8) => {
            let code = exit_code_of(status);
            Ok(if code == 0 { worst.unwrap_or(0) } else { code })
        }
        _ => Ok(worst.unwrap_or(ExitCode::Ok as u8)),
    }
}

fn listen(port: &str) -> anyhow::Result<Listener> {
    let port = parse_port(port)?;
    if port.mode != PortMode::Listen {
        let text =
            "--all is for processes that dial in; one process listens at a port with 'connect'";
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let listener = Listener::bind(PathBuf::from(&port.path)).map_err(attach_failure)?;
    note(format_args!(
        "recording every process that dials in: DOTNET_DiagnosticPorts={} ({} ends)",
        full_path(&listener).display(),
        enter::keys()
    ));
    Ok(listener)
}

struct Whole<'a> {
    arguments: &'a Collect,
    asked: &'a Asked<'a>,
    signals: Signals,
    deadline: Option<Instant>,
    /// Files of this run: in containers many processes have the same id.
    files: Mutex<HashSet<PathBuf>>,
}

impl Whole<'_> {
    /// Gives the exit code of each recording, and how the command ended if it did so by itself.
    fn run(
        &self,
        listener: Listener,
        mut command: Option<&mut Launched>,
    ) -> anyhow::Result<(Vec<u8>, Option<ExitStatus>)> {
        thread::scope(|scope| {
            let mut recorders: Vec<thread::ScopedJoinHandle<'_, u8>> = Vec::new();
            let mut ended_by_itself = None;
            while !self.is_over() {
                if let Some(runtime) = listener.next_runtime(POLL).map_err(attach_failure)? {
                    recorders.push(scope.spawn(move || self.one(runtime)));
                    continue;
                }
                ended_by_itself = command.as_deref_mut().and_then(Launched::status);
                if ended_by_itself.is_some() && recorders.iter().all(|one| one.is_finished()) {
                    break;
                }
            }
            enter::ignore();
            // Whoever dials in while the recordings end must not wait for ever.
            let others = Others::go_on(listener)?;
            let codes = recorders
                .into_iter()
                .map(|one| one.join().unwrap_or(ExitCode::Unexpected as u8))
                .collect();
            if let Some(command) = command {
                command.end();
            }
            drop(others);
            Ok((codes, ended_by_itself))
        })
    }

    /// The first Ctrl+C of a command that has the terminal is the command's.
    fn is_over(&self) -> bool {
        self.signals.count() > u32::from(self.arguments.show_child_io)
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn one(&self, runtime: Runtime) -> u8 {
        let pid = runtime.process_id();
        let client = Client::new(Endpoint::Runtime(runtime.clone()));
        let code = match Reached::dialled(runtime) {
            Ok(mut reached) => {
                let left = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
                reached.duration = self.deadline.map(left);
                let output = self.free(own_output(self.arguments, &reached));
                let channel = self.signals.channel();
                record_one(self.arguments, self.asked, reached, channel, &output)
            }
            Err(error) => {
                note(format_args!("eventpipe: process {pid}: {error:#}"));
                Failure::code_of(&error) as u8
            }
        };
        let was_recorded = code == ExitCode::Ok as u8 || code == ExitCode::Tracing as u8;
        if !was_recorded && self.arguments.resume_runtime {
            let _ = client.resume_runtime();
        }
        code
    }

    /// The path, with `_2` and so on behind its name if this run has it already.
    fn free(&self, path: PathBuf) -> PathBuf {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = path.clone();
        let mut number = 2;
        while !files.insert(free.clone()) {
            let mut name = path.file_stem().unwrap_or_default().to_owned();
            name.push(format!("_{number}."));
            name.push(path.extension().unwrap_or("nettrace".as_ref()));
            free = path.with_file_name(name);
            number += 1;
        }
        free
    }
}
