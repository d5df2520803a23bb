//! The tool `eventpipe`: attach to running programs, record, read, report.
//!
//! The way of a command: [`cli`] (argument types) → `commands` (one module each) → the libraries.
//! This is the only crate of the workspace that prints. Every error is one line that names its
//! cause, and ends in one of the numbers of [`exit_code`].
#![forbid(unsafe_code)]

mod absent;
mod attach;
mod child;
mod cli;
mod commands;
mod demo_program;
mod drive;
mod enter;
mod exit_code;
mod filter;
mod human;
mod input;
mod launch;
mod live;
mod meanwhile;
mod native_names;
mod output;
mod profile;
mod profiles;
mod providers;
mod reach;
mod recording;
mod response;
mod roll;
mod signals;
mod table;
mod target;
mod terminal;
mod tips;
mod users;

use clap::Parser as _;
use clap::error::ErrorKind;
use cli::{Cli, Command};
use exit_code::{ExitCode, Failure};

fn main() -> std::process::ExitCode {
    let words = match response::expand(std::env::args_os()) {
        Ok(words) => words,
        Err(failure) => return std::process::ExitCode::from(report(&failure.into())),
    };
    let code = match Cli::try_parse_from(&words) {
        Ok(cli) => match run(&cli) {
            Ok(code) => code,
            Err(error) => report(&error),
        },
        Err(mut error) => match (error.kind(), print(tips::with_tip(&mut error, &words))) {
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Ok(())) => ExitCode::Ok as u8,
            (ErrorKind::DisplayHelp | ErrorKind::DisplayVersion, Err(error)) => {
                report(&terminal::cannot_write(error).into())
            }
            // What is wrong goes to standard error, and where that takes nothing the code still says it.
            _ => ExitCode::Arguments as u8,
        },
    };
    std::process::ExitCode::from(code)
}

fn run(cli: &Cli) -> anyhow::Result<u8> {
    match &cli.command {
        Command::Completions(arguments) => commands::completions::completions(arguments)?,
        Command::Man(arguments) => commands::completions::manual(arguments)?,
        Command::Info(arguments) => return commands::info::info(arguments),
        Command::Report(cli::Report::Stat(arguments)) => return commands::report::stat(arguments),
        Command::Report(cli::Report::Topn(arguments)) => return commands::topn::topn(arguments),
        Command::Report(cli::Report::Activities(arguments)) => {
            return commands::rows::activities(arguments);
        }
        Command::Report(cli::Report::Gc(arguments)) => return commands::rows::gc(arguments),
        Command::Report(cli::Report::Alloc(arguments)) => {
            return commands::rows::allocations(arguments);
        }
        Command::Report(cli::Report::Exceptions(arguments)) => {
            return commands::rows::exceptions(arguments);
        }
        Command::Report(cli::Report::Contention(arguments)) => {
            return commands::rows::contention(arguments);
        }
        Command::Report(cli::Report::Counters(arguments)) => {
            return commands::rows::counters(arguments);
        }
        Command::Convert(arguments) => return commands::convert::convert(arguments),
        Command::Rewrite(arguments) => return commands::rewrite::rewrite_to(arguments),
        Command::Repair(arguments) => return commands::rewrite::repair(arguments),
        Command::Join(arguments) => return commands::join::join_files(arguments),
        Command::Ps(arguments) => commands::ps::ps(arguments)?,
        Command::Collect(arguments) => return commands::collect::collect(arguments),
        Command::Events(arguments) => return commands::events::events(arguments),
        Command::Env(arguments) => commands::process::env(arguments)?,
        Command::SetEnv(arguments) => commands::process::set_env(arguments)?,
        Command::Resume(arguments) => commands::process::resume(arguments)?,
        Command::Perfmap(arguments) => commands::process::perf_map(arguments)?,
        Command::Session(cli::Session::Stop(arguments)) => {
            commands::process::session_stop(arguments)?;
        }
        Command::Counters(arguments) => return commands::counters::counters(arguments),
        Command::Stack(arguments) => commands::stack::stack(arguments)?,
        Command::Dump(arguments) => commands::dump::dump(arguments)?,
        Command::ListProfiles => commands::list_profiles::list_profiles()?,
        Command::Demo(arguments) => return commands::demo::demo(arguments),
        Command::DemoProgram(arguments) => demo_program::run(arguments)?,
    }
    Ok(ExitCode::Ok as u8)
}

/// Prints help, or what is wrong with the command line: as the library does where its lines fit the terminal.
fn print(error: &clap::Error) -> std::io::Result<()> {
    let text = error.render().to_string();
    let text = text.trim_end();
    let width = table::stderr_columns();
    if error.use_stderr() && table::wrapped(text, width, 2) != text {
        terminal::note(text);
        return Ok(());
    }
    error.print()
}

/// Says what went wrong, in one line, and gives the exit code.
fn report(error: &anyhow::Error) -> u8 {
    if terminal::is_broken_pipe(error) {
        return ExitCode::Ok as u8;
    }
    let text = format!("{error:#}");
    let text = text.trim_end().replace('\n', "; ");
    terminal::note(format_args!("eventpipe: {}", table::printable(&text)));
    Failure::code_of(error) as u8
}
