//! The arguments of the commands that read traces: `events`, `info`, `report`, `convert`, `rewrite`, `repair`, `join`.

use crate::human::{Moment, parse_moment};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `eventpipe events`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("form").multiple(false))]
pub(crate) struct Events {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// One JSON object per line (keys: docs/json.md).
    #[arg(long, group = "form")]
    pub(crate) json: bool,

    /// Comma separated values (RFC 4180).
    #[arg(long, group = "form")]
    pub(crate) csv: bool,

    /// Include the payload's bytes in hexadecimal.
    #[arg(long)]
    pub(crate) raw: bool,

    /// Include the addresses of the stack, innermost first.
    #[arg(long)]
    pub(crate) stacks: bool,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// The order of the events: as they lie in the file, or by time across threads.
    #[arg(long, value_enum, default_value_t = Order::Dispatch)]
    pub(crate) order: Order,
}

/// Which events of a trace.
#[derive(Debug, Default, Args)]
pub(crate) struct Selection {
    /// Only this provider (may be given several times; '*' stands for any characters, '?' for one).
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Vec<String>,

    /// Only events of this name or id (may be given several times; with '*' and '?' as above).
    #[arg(long, value_name = "NAME|ID")]
    pub(crate) event: Vec<String>,

    /// Only events of this thread id (may be given several times).
    #[arg(long, value_name = "ID", value_parser = parse_thread, allow_negative_numbers = true)]
    pub(crate) thread: Vec<u64>,

    /// Only events whose payload field has this value (several must all hold).
    #[arg(long = "where", value_name = "FIELD=VALUE", value_parser = parse_condition)]
    pub(crate) conditions: Vec<(String, String)>,

    /// Only events from here on: time since the start (1.5s) or a date and time (RFC 3339).
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,

    /// Only events up to here.
    #[arg(long, visible_alias = "until", value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) to: Option<Moment>,
}

/// The order of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// As they lie in the file.
    File,
    /// By time, as TraceEvent delivers them.
    Dispatch,
}

fn parse_condition(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((field, value)) if !field.is_empty() => Ok((field.into(), value.into())),
        _ => Err(format!("'{text}' is not of the form FIELD=VALUE")),
    }
}

fn parse_thread(text: &str) -> Result<u64, String> {
    let parsed = text.parse();
    parsed.map_err(|_| {
        format!("'{text}' is not the number of a thread (`eventpipe report stat` lists them)")
    })
}

/// `eventpipe info`
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// Print JSON (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe report`
#[derive(Debug, Subcommand)]
pub(crate) enum Report {
    /// Events counted by provider and name, and by thread, with sizes, times and losses.
    Stat(Stat),
    /// The functions with the most thread time or events on their stacks [alias: topN].
    #[command(alias = "topN", alias = "top")]
    Topn(Topn),
    /// How long activities took, which begin with a start and end with a stop event: requests, spans.
    Activities(Rows),
    /// Garbage collections of .NET with their pauses (recorded with `--profile gc-collect` or `gc-verbose`).
    Gc(Rows),
    /// Allocations of .NET by type (`--profile gc-verbose`).
    Alloc(Rows),
    /// Exceptions of .NET by type and message (`--clrevents exception`).
    Exceptions(Rows),
    /// Waits for locks of .NET by thread (`--clrevents contention`).
    Contention(Rows),
    /// Counters and metrics over the recording (`--providers System.Runtime:0:4:EventCounterIntervalSec=1`).
    Counters(Rows),
}

/// `eventpipe report activities`, `gc`, `alloc`, `exceptions`, `contention`, `counters`
#[derive(Debug, Args)]
pub(crate) struct Rows {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// How many rows [default: 20].
    #[arg(short, long, value_name = "N")]
    pub(crate) number: Option<usize>,

    /// Print JSON, with all rows unless -n is given (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe report topn`
#[derive(Debug, Args)]
#[command(after_help = "\
Of a trace with samples of the .NET sample profiler it is thread time: of every
managed thread, whether it ran or waited. --managed leaves out what lies outside
of managed code: waiting, and native code. Of other traces, and with --event or
--provider, events are counted.

Methods of .NET are named by the trace's rundown, native functions by the files
of their modules, if they are on this machine and have the same build id.

Examples:
  eventpipe report topn trace.nettrace --managed
  eventpipe report topn trace.nettrace --event GC/AllocationTick --inclusive")]
pub(crate) struct Topn {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// How many functions [default: 20].
    #[arg(short, long, value_name = "N")]
    pub(crate) number: Option<usize>,

    /// By what is in a function and in all that it calls, not in itself alone.
    #[arg(long)]
    pub(crate) inclusive: bool,

    /// Only time in managed code.
    #[arg(long)]
    pub(crate) managed: bool,

    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Print JSON, with all functions unless -n is given (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe convert`
#[derive(Debug, Args)]
#[command(after_help = "\
What is converted are stacks: thread time of the .NET sample profiler, or one for
each event, as `eventpipe report topn --help` says.

  speedscope  for https://speedscope.app: each thread by time
  flamegraph  a picture (SVG) for a browser
  folded      a line for each stack, with microseconds or events

Other versions of the trace format: `eventpipe rewrite`; events as JSON or CSV:
`eventpipe events`.")]
pub(crate) struct Convert {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// What to make of it.
    #[arg(long, value_enum, ignore_case = true, value_name = "FORMAT")]
    pub(crate) format: Conversion,

    /// Where to write; '-' for standard output [default: FILE with .speedscope.json, .svg or .folded.txt for its ending].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write over an existing file.
    #[arg(long)]
    pub(crate) force: bool,

    /// Only time in managed code.
    #[arg(long)]
    pub(crate) managed: bool,

    #[command(flatten)]
    pub(crate) selection: Selection,
}

/// What a trace can be made into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conversion {
    /// A file for speedscope.app.
    Speedscope,
    /// A flame graph.
    Flamegraph,
    /// Folded stacks.
    Folded,
}

/// `eventpipe report stat`
#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// Print JSON (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe rewrite`
#[derive(Debug, Args)]
pub(crate) struct Rewrite {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// The format to write.
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: TargetFormat,

    /// Keep only this provider (may be given several times; '*' stands for any characters, '?' for one).
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Vec<String>,

    /// Keep only events of this thread id (may be given several times).
    #[arg(long, value_name = "ID", value_parser = parse_thread, allow_negative_numbers = true)]
    pub(crate) thread: Vec<u64>,

    /// Keep only events from here on: time since the start (1.5s) or a date and time (RFC 3339).
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) from: Option<Moment>,

    /// Keep only events up to here.
    #[arg(long, value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    pub(crate) until: Option<Moment>,

    /// The file to write; '-' for standard output. Default: FILE with the version in its name.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write over an existing output file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// The formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TargetFormat {
    /// Version 4, read by every tool.
    V4,
    /// Version 6, the newest.
    V6,
}

/// `eventpipe repair`
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// The trace; '-' for standard input.
    pub(crate) file: PathBuf,

    /// The file to write; '-' for standard output. Default: FILE with '.repaired' in its name.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write over an existing output file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// `eventpipe join`
#[derive(Debug, Args)]
#[command(after_help = "\
The earliest trace describes the result. Clocks of one machine are taken as
they are; others are laid side by side by UTC, to the millisecond.

Examples:
  eventpipe join app.0003.nettrace app.0004.nettrace app.0005.nettrace -o app.nettrace
  eventpipe join web.*.nettrace --to v6 -o all.nettrace")]
pub(crate) struct Join {
    /// The traces; '-' for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// The format to write. Default: version 6 where a trace has it or the processes differ, which
    /// version 4 cannot tell apart; else version 4.
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: Option<TargetFormat>,

    /// The file to write; '-' for standard output. Default: the first FILE with '.joined' in its name.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write over an existing output file.
    #[arg(long)]
    pub(crate) force: bool,

    /// Print what became of the traces as JSON (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}
