//! `eventpipe completions SHELL` and the hidden `eventpipe man`: both are made from the argument
//! definitions, so they cannot go stale.

use crate::cli::{Cli, Completions, Manual};
use crate::exit_code::{ExitCode, Failure};
use crate::profiles::{CLR_EVENTS, PROFILES};
use crate::terminal;
use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory as _, ValueHint};
use std::io::Write as _;

/// Prints the completion script.
pub(crate) fn completions(arguments: &Completions) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut for_people(&Cli::command()),
        "eventpipe",
        &mut script,
    );
    let mut out = terminal::out();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Without the commands that `--help` does not show: the shells' scripts would offer them.
fn for_people(all: &Command) -> Command {
    let shown = all.get_subcommands().filter(|one| !one.is_hide_set());
    let command = Command::new("eventpipe").subcommands(shown.cloned());
    // A shell needs to know of `--version`, not which it is.
    with_values(command.version("-"))
}

/// Names where they are known, and no files where none are meant: a shell offers them where nothing is said.
fn with_values(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let names: Vec<&str> = match argument.get_id().as_str() {
            "profile" => PROFILES.iter().map(|profile| profile.name).collect(),
            "clr_events" => CLR_EVENTS.iter().map(|(name, _)| *name).collect(),
            _ => Vec::new(),
        };
        if !names.is_empty() {
            argument.value_parser(PossibleValuesParser::new(names))
        } else if argument.get_action().takes_values()
            && argument.get_possible_values().is_empty()
            && argument.get_value_hint() == ValueHint::Unknown
        {
            argument.value_hint(ValueHint::Other)
        } else {
            argument
        }
    });
    command.mut_subcommands(with_values)
}

/// Prints the tool's manual page, or writes one page per command into a directory.
pub(crate) fn manual(arguments: &Manual) -> anyhow::Result<()> {
    if let Some(directory) = &arguments.directory {
        let failure = || {
            Failure::new(
                ExitCode::Output,
                format!("cannot write into {}", directory.display()),
            )
        };
        return clap_mangen::generate_to(Cli::command(), directory).with_context(failure);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    let mut out = terminal::out();
    out.write_all(&page)?;
    Ok(out.flush()?)
}
