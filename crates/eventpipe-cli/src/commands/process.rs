//! `eventpipe env`, `set-env`, `resume`, `perfmap` and `session stop`: one question or command each.

use crate::cli::{Env, PerfMap, PerfMapKind, Resume, SessionStop, SetEnv};
use crate::exit_code::{ExitCode, Failure};
use crate::reach::reach_once;
use crate::table::printable;
use crate::target::attach_failure;
use crate::terminal::{self, note};
use dotnet_diagnostics::Error;
use dotnet_diagnostics::codec::{ErrorCode, PerfMapType, SessionId};
use dotnet_diagnostics::port_config::{PortConfig, PortMode};
use std::io::Write as _;

/// Prints the environment as the process sees it now.
pub(crate) fn env(arguments: &Env) -> anyhow::Result<()> {
    let reached = reach_once(&arguments.target)?;
    let mut entries = reached.client.environment().map_err(attach_failure)?;
    entries.sort_unstable();
    let mut out = terminal::out();
    if arguments.json {
        let pairs: Vec<serde_json::Value> = entries
            .iter()
            .map(|entry| match entry.split_once('=') {
                Some((name, value)) => serde_json::json!({"name": name, "value": value}),
                None => serde_json::json!({"name": entry, "value": null}),
            })
            .collect();
        serde_json::to_writer_pretty(&mut out, &pairs)?;
        writeln!(out)?;
    } else {
        for entry in &entries {
            writeln!(out, "{}", printable(entry))?;
        }
    }
    out.flush()?;
    Ok(())
}

/// Sets and removes variables.
pub(crate) fn set_env(arguments: &SetEnv) -> anyhow::Result<()> {
    if arguments.assignments.is_empty() && arguments.unset.is_empty() {
        return Err(Failure::new(
            ExitCode::Arguments,
            "nothing to do: say NAME=VALUE, or --unset NAME",
        )
        .into());
    }
    let is_unset = |name: &String| arguments.unset.contains(name);
    if let Some((name, _)) = arguments
        .assignments
        .iter()
        .find(|(name, _)| is_unset(name))
    {
        let text = format!("{name} cannot both be set and removed");
        return Err(Failure::new(ExitCode::Arguments, text).into());
    }
    let reached = reach_once(&arguments.target)?;
    let set = arguments
        .assignments
        .iter()
        .map(|(name, value)| (name.as_str(), Some(value.as_str())));
    let unset = arguments.unset.iter().map(|name| (name.as_str(), None));
    for (name, value) in set.chain(unset) {
        reached
            .client
            .set_environment_variable(name, value)
            .map_err(|error| in_words(error, name))?;
    }
    Ok(())
}

fn in_words(error: Error, name: &str) -> Failure {
    let is_missing =
        matches!(&error, Error::Refused { code, .. } if *code == ErrorCode::ENVVAR_NOT_FOUND);
    let failure = attach_failure(error);
    if is_missing {
        let text = format!("{name}: the process has no such variable");
        return Failure::new(failure.code(), text);
    }
    Failure::new(failure.code(), format!("{name}: {failure}"))
}

/// Lets a process go on that waits at its start.
pub(crate) fn resume(arguments: &Resume) -> anyhow::Result<()> {
    let reached = reach_once(&arguments.target)?;
    reached.client.resume_runtime().map_err(attach_failure)?;
    if !reached.by_port {
        // .NET answers, and goes on waiting at each other port that suspends it.
        for port in suspending_ports(&reached.client.environment().unwrap_or_default()) {
            note(format_args!(
                "if {} (process {}) still waits, it does so for another port: eventpipe resume --dport {port}",
                reached.name, reached.pid
            ));
        }
    }
    Ok(())
}

/// The ports of an environment at which a process dials in and waits to be resumed.
fn suspending_ports(environment: &[String]) -> Vec<String> {
    let list = environment
        .iter()
        .find_map(|entry| entry.strip_prefix("DOTNET_DiagnosticPorts="));
    let ports = PortConfig::parse_list(list.unwrap_or_default());
    ports
        .into_iter()
        .filter(|port| port.suspend && port.mode == PortMode::Connect)
        .map(|port| port.address)
        .collect()
}

/// Has the process write files for perf, or no longer.
pub(crate) fn perf_map(arguments: &PerfMap) -> anyhow::Result<()> {
    match arguments {
        PerfMap::Enable(enable) => {
            let reached = reach_once(&enable.target)?;
            let kind = match enable.kind {
                PerfMapKind::All => PerfMapType::ALL,
                PerfMapKind::Jitdump => PerfMapType::JIT_DUMP,
                PerfMapKind::Perfmap => PerfMapType::PERF_MAP,
            };
            reached
                .client
                .enable_perf_map(kind)
                .map_err(attach_failure)?;
            note(format_args!(
                "{} (process {}) writes its map into its temporary directory (/tmp)",
                reached.name, reached.pid
            ));
        }
        PerfMap::Disable(disable) => {
            let reached = reach_once(&disable.target)?;
            reached.client.disable_perf_map().map_err(attach_failure)?;
        }
    }
    Ok(())
}

/// Ends a session by its id.
pub(crate) fn session_stop(arguments: &SessionStop) -> anyhow::Result<()> {
    let reached = reach_once(&arguments.target)?;
    reached
        .client
        .stop_tracing(SessionId(arguments.id))
        .map_err(attach_failure)?;
    note(format_args!(
        "{} (process {}) has no session {:#x} any more",
        reached.name, reached.pid, arguments.id
    ));
    Ok(())
}
