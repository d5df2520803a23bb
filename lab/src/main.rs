//! The lab: stress programs and measurements. `lab --help` lists them.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use lab::{
    Engine, bench, compare, counters, emit, floor, instructions, nativeaot, read, record, size,
    stress, target,
};

/// Stress programs and measurements for EventPipe.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the stress program on one or several engines, traced by our client, and account for every event.
    Stress(Stress),
    /// Measure what an event costs its writer on this project's engine, beside the targets.
    Engine(bench::Arguments),
    /// Measure what an event costs without an engine: the clock, one copy and the socket, which no engine can leave out.
    Floor(floor::Arguments),
    /// Run the same work on every engine that is found, and write down the comparison.
    Compare(compare::Arguments),
    /// Measure how fast traces are read, beside the TraceEvent library: generated ones and one recorded from .NET 8.
    Read(read::Arguments),
    /// Run the NativeAOT stress program with the C engine and with this project's, in turn; or only link a NativeAOT program.
    Nativeaot(nativeaot::Arguments),
    /// Measure what the engine adds to a program, in bytes, beside the C engine.
    Size {
        /// One JSON document instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// The stress program on this project's engine.
    ///
    /// Options, provider, events, the `ready PID` line and the closing JSON line are those of the .NET program `stress`, so that
    /// whatever drives one drives the other.
    Target(target::Arguments),
    /// A program that writes a known sequence of events with every type of argument (for tests).
    #[command(hide = true)]
    Emit(emit::Arguments),
    /// A program with counters (for tests).
    #[command(hide = true)]
    Counters(counters::Arguments),
    /// Run one path of the engine for callgrind to count (.ci/instructions).
    #[command(hide = true)]
    Instructions(instructions::Arguments),
    /// Take everything from standard input (the reader of `floor`).
    #[command(hide = true)]
    Sink,
    /// Record a process until it ends (for tests, which kill it).
    #[command(hide = true)]
    Record(record::Arguments),
}

#[derive(Debug, clap::Args)]
struct Stress {
    /// The engines, interleaved.
    #[arg(
        long,
        alias = "engine",
        value_enum,
        value_delimiter = ',',
        default_value = "ours"
    )]
    target: Vec<Engine>,
    /// How often.
    #[arg(long, value_name = "N", default_value_t = 1)]
    iterations: usize,
    /// Pin the program to the first N cores, for each N of the list; threads follow unless --threads is given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cores: Vec<usize>,
    /// One JSON document instead of tables.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: stress::Options,
}

const OWN_FILE: &str = "finding this program's file";

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        // `lab … | head` is no failure.
        Err(error)
            if error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let mut out = io::stdout();
    match command {
        Command::Stress(arguments) => run_stress(&arguments),
        Command::Engine(arguments) => {
            let figures = bench::measure(&arguments)?;
            if arguments.json {
                writeln!(out, "{}", serde_json::to_string_pretty(&figures)?)?;
            } else {
                bench::print(&mut out, &figures)?;
            }
            Ok(())
        }
        Command::Floor(arguments) => floor::run(
            &arguments,
            &std::env::current_exe().context(OWN_FILE)?,
            &mut out,
        ),
        Command::Sink => floor::sink(),
        Command::Compare(arguments) => {
            compare::run(&arguments, &std::env::current_exe().context(OWN_FILE)?)
        }
        Command::Read(arguments) => {
            let lab = std::env::current_exe().context(OWN_FILE)?;
            match read::run(&arguments, &lab)? {
                Some(outcome) if arguments.json => {
                    writeln!(out, "{}", serde_json::to_string_pretty(&outcome)?)?;
                }
                Some(outcome) => read::print(&mut out, &outcome)?,
                None => {}
            }
            Ok(())
        }
        Command::Nativeaot(arguments) => nativeaot::run(
            &arguments,
            &std::env::current_exe().context(OWN_FILE)?,
            &mut out,
        ),
        Command::Size { json } => {
            let sizes = size::measure()?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&sizes)?)?;
            } else {
                let mut text = String::new();
                sizes.describe(&mut text);
                out.write_all(text.as_bytes())?;
            }
            Ok(())
        }
        Command::Target(arguments) => target::run(&arguments),
        Command::Counters(arguments) => counters::run(&arguments),
        Command::Emit(arguments) => emit::run(&arguments),
        Command::Instructions(arguments) => instructions::run(&arguments),
        Command::Record(arguments) => record::run(&arguments),
    }
}

fn run_stress(arguments: &Stress) -> Result<()> {
    let mut out = io::stdout();
    let lab = std::env::current_exe().context(OWN_FILE)?;
    let cores: Vec<Option<usize>> = match arguments.cores.as_slice() {
        [] => vec![None],
        list => list.iter().copied().map(Some).collect(),
    };
    let mut outcomes = Vec::new();
    for _ in 0..arguments.iterations {
        for &cores in &cores {
            for &engine in &arguments.target {
                let outcome = stress::run_once(engine, &arguments.options, cores, &lab)
                    .with_context(|| format!("stress on {engine}"))?;
                if !arguments.json {
                    stress::print_outcome(&mut out, &outcome, outcomes.is_empty())?;
                }
                outcomes.push(outcome);
            }
        }
    }
    let summary = stress::summarize(&outcomes);
    if arguments.json {
        let document = serde_json::json!({
            "options": arguments.options,
            "iterations": outcomes,
            "summary": summary,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&document)?)?;
    } else {
        stress::print_summary(&mut out, &summary)?;
    }
    Ok(())
}
