//! The way from the words of the command line to a process that can be asked: by id, by name, or through a
//! diagnostic port.

use crate::attach::Channel;
use crate::cli::Target;
use crate::exit_code::{ExitCode, Failure};
use crate::launch::Others;
use crate::target::{self, attach_failure};
use crate::terminal::note;
use dotnet_diagnostics::client::{Client, Endpoint};
use dotnet_diagnostics::port::{Listener, Runtime};
use dotnet_diagnostics::port_config::{PortMode, ToolPort};
use std::path::PathBuf;
use std::time::Duration;

/// How often the wait for a process to dial in looks for a signal.
const POLL: Duration = Duration::from_millis(200);

/// A process that can be asked.
#[derive(Debug)]
pub(crate) struct Reached {
    /// Asks it.
    pub(crate) client: Client,
    /// What people call it.
    pub(crate) name: String,
    /// Its id: as seen here, or as it says where it was reached through a port. 0 if it does not say.
    pub(crate) pid: u32,
    /// Whether it has this project's engine.
    pub(crate) is_native: bool,
    /// Whether it was reached through a port, where it may be waiting to be resumed.
    pub(crate) by_port: bool,
    /// How long to record it, where that is not what the options say.
    pub(crate) duration: Option<Duration>,
    /// Open as long as the process is asked: it dials in anew for each command.
    listener: Option<Listener>,
    others: Option<Others>,
}

impl Reached {
    /// A process that was found otherwise.
    pub(crate) fn found(client: Client, name: String, pid: u32, is_native: bool) -> Reached {
        Reached {
            client,
            name,
            pid,
            is_native,
            by_port: false,
            duration: None,
            listener: None,
            others: None,
        }
    }

    /// The socket at which it listens for the process, which is to be removed if the tool ends without dropping this.
    pub(crate) fn port_file(&self) -> Option<PathBuf> {
        let listener = self.listener.as_ref()?;
        Some(listener.path().to_owned())
    }

    /// From now on says who else dials in.
    pub(crate) fn tell_of_others(&mut self) -> anyhow::Result<()> {
        if let Some(listener) = self.listener.take() {
            self.others = Some(Others::leave(listener)?);
        }
        Ok(())
    }

    /// A process that has dialled in.
    pub(crate) fn dialled(runtime: Runtime) -> anyhow::Result<Reached> {
        let pid = u32::try_from(runtime.process_id()).unwrap_or(0);
        described(Client::new(Endpoint::Runtime(runtime)), Some(pid), None)
    }
}

/// Finds the process. A signal on `channel` ends the wait for one that dials in.
pub(crate) fn reach(target: &Target, channel: &Channel) -> anyhow::Result<Reached> {
    if let Some(port) = &target.diagnostic_port {
        return through_port(&parse_port(port)?, channel);
    }
    let process = match (target.process_id, &target.name) {
        (Some(pid), _) => target::by_id(pid)?,
        (None, Some(name)) => target::by_name(name)?,
        (None, None) => return Err(no_target().into()),
    };
    let client = Client::new(process.endpoint());
    let pid = process.pid;
    if let Some(stopped) = target::stopped(pid) {
        note(format_args!("waiting for process {pid}: {stopped}"));
    }
    let described = target::describe(process, &client);
    // Who does not answer this will not answer a request for a session either.
    if described.trouble().is_some()
        && let Err(error) = described.info
    {
        return Err(attach_failure(error).into());
    }
    Ok(Reached::found(
        client,
        described.name(),
        pid,
        described.is_native(),
    ))
}

/// The same for a command that asks once: Ctrl+C ends the tool at any time.
pub(crate) fn reach_once(target: &Target) -> anyhow::Result<Reached> {
    let listens = target
        .diagnostic_port
        .as_deref()
        .map(parse_port)
        .transpose()?
        .is_some_and(|port| port.mode == PortMode::Listen);
    // Only a listener leaves something behind if the tool is ended by the signal itself.
    let channel = if listens {
        Channel::with_signals()?
    } else {
        Channel::without_signals()
    };
    reach(target, &channel)
}

/// A port argument that was understood.
pub(crate) fn parse_port(text: &str) -> Result<ToolPort, Failure> {
    ToolPort::parse(text).map_err(|error| {
        Failure::new(
            ExitCode::Arguments,
            format!("--diagnostic-port '{text}': {error}"),
        )
    })
}

fn through_port(port: &ToolPort, channel: &Channel) -> anyhow::Result<Reached> {
    let path = PathBuf::from(&port.path);
    match port.mode {
        PortMode::Connect => {
            let client = Client::new(Endpoint::Socket(path));
            described(client, None, None)
        }
        PortMode::Listen => {
            let listener = Listener::bind(path).map_err(attach_failure)?;
            note(format_args!(
                "waiting for a process to dial in: DOTNET_DiagnosticPorts={} (Ctrl+C ends)",
                full_path(&listener).display()
            ));
            let runtime = dialled_in(&listener, channel)?;
            let pid = u32::try_from(runtime.process_id()).unwrap_or(0);
            let client = Client::new(Endpoint::Runtime(runtime));
            described(client, Some(pid), Some(listener))
        }
    }
}

/// The path of a port as a process in another directory needs it.
pub(crate) fn full_path(listener: &Listener) -> PathBuf {
    std::path::absolute(listener.path()).unwrap_or_else(|_| listener.path().to_owned())
}

fn dialled_in(listener: &Listener, channel: &Channel) -> anyhow::Result<Runtime> {
    loop {
        if let Some(runtime) = listener.next_runtime(POLL).map_err(attach_failure)? {
            return Ok(runtime);
        }
        if channel.was_signalled() {
            let text = "interrupted before a process dialled in";
            return Err(Failure::new(ExitCode::Session, text).into());
        }
    }
}

/// What the process says of itself. .NET Core 3 does not know the question, and that is no failure; but
/// whoever does not answer at all is not worth going on with.
fn described(
    client: Client,
    pid: Option<u32>,
    listener: Option<Listener>,
) -> anyhow::Result<Reached> {
    let info = match client.process_info() {
        Ok(info) => Some(info),
        Err(error) if error.is_unsupported() => None,
        Err(error) => return Err(attach_failure(error).into()),
    };
    let said = info.as_ref().map(|info| info.process_id);
    let pid = said
        .and_then(|pid| u32::try_from(pid).ok())
        .or(pid)
        .unwrap_or(0);
    let name = info
        .as_ref()
        .map(|info| info.entry_assembly.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("process-{pid}"));
    Ok(Reached {
        client,
        name,
        pid,
        is_native: info.as_ref().is_some_and(target::is_native),
        by_port: true,
        duration: None,
        listener,
        others: None,
    })
}

pub(crate) fn no_target() -> Failure {
    Failure::new(
        ExitCode::Arguments,
        "say which process: -p PID, -n NAME or --diagnostic-port PATH (`eventpipe ps` lists processes)",
    )
}
