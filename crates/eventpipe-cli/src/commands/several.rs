//! Several processes recorded at once: `collect --all`, a pattern for `-n`, `-p PID --tree`. Those that dial in are
//! another matter ([`super::dialled`]).
//!
//! Each has its own session and its own file; one that fails does not end the others.

use crate::attach::{Channel, Signals};
use crate::cli::Collect;
use crate::commands::collect::record;
use crate::enter;
use crate::exit_code::{ExitCode, Failure};
use crate::output;
use crate::profiles::Asked;
use crate::reach::Reached;
use crate::table::printable;
use crate::target::{self, Described};
use crate::terminal::note;
use dotnet_diagnostics::client::Client;
use nettrace::pattern::matches_case;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::thread;

/// Whether the options name a set of processes rather than one.
pub(crate) fn is_asked(arguments: &Collect) -> bool {
    arguments.all || arguments.tree || arguments.target.name.as_deref().is_some_and(is_pattern)
}

/// Records them all; gives the exit code of the first that did not go well.
pub(crate) fn collect(arguments: &Collect, asked: &Asked<'_>) -> anyhow::Result<u8> {
    refuse_standard_output(arguments)?;
    let found = chosen(arguments)?;
    let signals = Signals::listen(true)?;
    note(format_args!(
        "recording {} process{} ({} ends)",
        found.len(),
        if found.len() == 1 { "" } else { "es" },
        enter::keys()
    ));
    let channels: Vec<Channel> = found.iter().map(|_| signals.channel()).collect();
    let codes: Vec<u8> = thread::scope(|scope| {
        let recorders: Vec<_> = found
            .into_iter()
            .zip(channels)
            .map(|(described, channel)| {
                scope.spawn(move || one(arguments, asked, &described, channel))
            })
            .collect();
        recorders
            .into_iter()
            .map(|recorder| recorder.join().unwrap_or(ExitCode::Unexpected as u8))
            .collect()
    });
    Ok(codes
        .into_iter()
        .find(|&code| code != ExitCode::Ok as u8)
        .unwrap_or(ExitCode::Ok as u8))
}

fn one(arguments: &Collect, asked: &Asked<'_>, described: &Described, channel: Channel) -> u8 {
    let pid = described.process.pid;
    let name = described.name();
    let client = Client::new(described.process.endpoint());
    let reached = Reached::found(client, name, pid, described.is_native());
    let output = own_output(arguments, &reached);
    record_one(arguments, asked, reached, channel, &output)
}

/// Records one of several; gives the exit code, and says itself what went wrong.
pub(crate) fn record_one(
    arguments: &Collect,
    asked: &Asked<'_>,
    reached: Reached,
    channel: Channel,
    output: &Path,
) -> u8 {
    let called = format!("{} (process {})", printable(&reached.name), reached.pid);
    match record(arguments, asked, reached, channel, Some(output), false) {
        Ok(code) => code,
        Err(error) => {
            note(format_args!("eventpipe: {called}: {error:#}"));
            Failure::code_of(&error) as u8
        }
    }
}

/// The file of one of several processes.
pub(crate) fn own_output(arguments: &Collect, reached: &Reached) -> PathBuf {
    match &arguments.output {
        Some(path) => with_pid(path, reached.pid),
        None => PathBuf::from(format!(
            "{}.nettrace",
            output::default_stem(&format!("{}_{}", reached.name, reached.pid))
        )),
    }
}

/// Several recordings have several files.
pub(crate) fn refuse_standard_output(arguments: &Collect) -> Result<(), Failure> {
    if arguments.output.as_deref() == Some(Path::new("-")) {
        let text = "several processes are recorded into several files, and standard output is one";
        return Err(Failure::new(ExitCode::Arguments, text));
    }
    Ok(())
}

/// The processes that are asked for.
fn chosen(arguments: &Collect) -> anyhow::Result<Vec<Described>> {
    let all = target::all()?;
    let (found, what): (Vec<Described>, String) = if arguments.all {
        (all, "no process can be traced".into())
    } else if let Some(pattern) = &arguments.target.name {
        let named = all
            .into_iter()
            .filter(|d| d.has_name(|name| matches_case(pattern, name)));
        (
            named.collect(),
            format!("no process named '{pattern}' can be traced"),
        )
    } else {
        let root = arguments.target.process_id.unwrap_or(0);
        let parents = parents();
        let inside = all
            .into_iter()
            .filter(|d| is_below(d.process.pid, root, &parents));
        (
            inside.collect(),
            format!("neither process {root} nor one below it can be traced"),
        )
    };
    if found.is_empty() {
        let text = format!("{what} (see `eventpipe ps`)");
        return Err(Failure::new(ExitCode::Session, text).into());
    }
    Ok(found)
}

/// The parent of each process.
fn parents() -> HashMap<u32, u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // The name before may hold anything; behind its last parenthesis come state and parent.
            let (_, rest) = stat.rsplit_once(')')?;
            Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect()
}

fn is_below(pid: u32, root: u32, parents: &HashMap<u32, u32>) -> bool {
    let mut at = pid;
    // The table is no snapshot, so it may even have a ring.
    for _ in 0..=parents.len() {
        if at == root {
            return true;
        }
        match parents.get(&at) {
            Some(&parent) => at = parent,
            None => return false,
        }
    }
    false
}

/// `a/b.nettrace` as `a/b.4711.nettrace`.
fn with_pid(path: &Path, pid: u32) -> PathBuf {
    output::with_infix(path, &pid.to_string(), None)
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_its_root_and_all_below() {
        let parents = HashMap::from([(2, 1), (3, 2), (4, 3), (5, 1), (7, 8), (8, 7)]);
        let below: Vec<u32> = (1..9).filter(|&pid| is_below(pid, 2, &parents)).collect();
        assert_eq!(below, [2, 3, 4]);
        assert_eq!(
            with_pid(Path::new("a/b.nettrace"), 7),
            Path::new("a/b.7.nettrace")
        );
    }
}
