//! The argument types, and nothing else; those of the commands that read traces are in [`traces`].

mod traces;

pub(crate) use traces::*;

use crate::exit_code;
use crate::human::parse_duration;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Attach to running programs, record their events, read and report traces.
///
/// Works with every process that serves the .NET diagnostics protocol: programs on the .NET runtime
/// and programs with the EventPipe engine. No root, no restart, no daemon.
#[derive(Debug, Parser)]
#[command(name = "eventpipe", version, after_help = exit_code::TABLE, max_term_width = 100,
          next_line_help = crate::table::stdout_is_narrow())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the processes that can be traced.
    Ps(Ps),
    /// Record a trace from a running process, or from a command started for it.
    #[command(visible_alias = "record")]
    Collect(Collect),
    /// List the built-in sets of providers for `collect --profile`.
    ListProfiles,
    /// Print the environment of a running process, as it sees it now.
    Env(Env),
    /// Set or remove variables in the environment of a running process.
    SetEnv(SetEnv),
    /// Let a process go on that waits at its start: through the port with 'suspend' for which it waits.
    Resume(Resume),
    /// Have a process write perf maps, for perf and other native profilers.
    #[command(subcommand)]
    Perfmap(PerfMap),
    /// Sessions of a process.
    #[command(subcommand)]
    Session(Session),
    /// Show the counters of a process as they change [alias: monitor].
    #[command(alias = "monitor")]
    Counters(Monitor),
    /// Print what each managed thread of a .NET process is doing now.
    Stack(Stack),
    /// Have a process write a core dump of itself.
    Dump(Dump),
    /// Print the events of a trace.
    Events(Events),
    /// Say what a trace file is: format, machine, duration, counts, losses.
    Info(Info),
    /// Reports over a trace.
    #[command(subcommand)]
    Report(Report),
    /// Make a flame graph, a file for speedscope.app or folded stacks of a trace.
    Convert(Convert),
    /// Write a trace in another format version.
    Rewrite(Rewrite),
    /// Make a complete trace out of a damaged or unfinished one.
    Repair(Repair),
    /// Make one trace of several, by time: the files of `collect --roll`, or of several processes.
    Join(Join),
    /// The whole thing in one command: start an instrumented program, attach, record, report.
    Demo(Demo),
    /// Print a completion script for a shell.
    Completions(Completions),
    /// Print the manual page, or write the pages of all commands into a directory.
    #[command(hide = true)]
    Man(Manual),
    /// The program that `demo` traces.
    #[command(hide = true)]
    DemoProgram(DemoProgram),
}

/// `eventpipe ps`
#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Print JSON: an array of objects (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe collect`
#[derive(Debug, Args)]
#[command(after_help = "\
Providers: Name[:Keywords[:Level[:key=value;key2=\"v;2\"]]], joined by commas.
  Keywords: hexadecimal, default 0. Level: name or number, default 4.
  '*' alone is every provider, with all keywords and Verbose by default.
  In double quotes , ; = : are plain characters, and \\n \\r \\t \\\\ are escapes.

Ctrl+C, Enter on the terminal or SIGTERM ends the recording properly, a second
Ctrl+C within a second. The file is readable in either case.

Examples:
  eventpipe collect -p 1234 --duration 10s
  eventpipe collect -n myapp --profile gc-verbose -o gc.nettrace
  eventpipe collect -p 1234 --providers 'My-Provider:ff:Verbose,Other'
  eventpipe collect --clrevents gc+exception -- dotnet run.dll --fast")]
pub(crate) struct Collect {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Every process that can be traced, each into its own file. So does a pattern such as 'web*' for -n.
    /// With --diagnostic-port: every process that dials in, until Ctrl+C or Enter.
    #[arg(long, conflicts_with_all = ["process_id", "name", "command"])]
    pub(crate) all: bool,

    /// With -p: the process and all below it that can be traced now, each into its own file. With a
    /// command: it and everything that it starts, from their first events on.
    #[arg(long, requires = "root", conflicts_with_all = ["name", "all", "diagnostic_port"])]
    pub(crate) tree: bool,

    /// Providers to enable, comma separated; the grammar stands below.
    #[arg(long, value_name = "LIST")]
    pub(crate) providers: Vec<String>,

    /// Built-in sets of providers, comma separated: dotnet-common, dotnet-sampled-thread-time,
    /// gc-verbose, gc-collect, database. The first two are the default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) profile: Vec<String>,

    /// Event groups of the .NET runtime joined by '+', such as gc+exception+contention.
    #[arg(long = "clrevents", alias = "clr-events", value_name = "NAMES")]
    pub(crate) clr_events: Option<String>,

    /// Level for --clrevents: a name or number.
    #[arg(
        long = "clreventlevel",
        alias = "clr-event-level",
        value_name = "LEVEL"
    )]
    pub(crate) clr_event_level: Option<String>,

    /// Stop after this time: 10s, 1m30s, or dd:hh:mm:ss.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,

    /// Stop when an event of this provider comes ('*' stands for any characters, '?' for one).
    #[arg(
        long = "stopping-event-provider-name",
        value_name = "NAME",
        help_heading = "Stopping on an event"
    )]
    pub(crate) stopping_provider: Option<String>,

    /// Stop when an event of this name comes, such as GC/Start (with '*' and '?' as above).
    #[arg(
        long = "stopping-event-event-name",
        value_name = "NAME",
        requires = "stopping_provider",
        help_heading = "Stopping on an event"
    )]
    pub(crate) stopping_event: Option<String>,

    /// Stop when an event comes whose fields have these values.
    #[arg(long = "stopping-event-payload-filter", value_name = "FIELD:VALUE,…",
          value_delimiter = ',', value_parser = parse_payload_filter,
          requires = "stopping_event", help_heading = "Stopping on an event")]
    pub(crate) stopping_fields: Vec<(String, String)>,

    /// Size of a file, such as 100MB: a new one is begun when it is full, FILE.0001.nettrace and so on,
    /// each complete in itself. Names of methods are in the last one, with the rundown.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub(crate) roll: Option<u64>,

    /// Keep so many files and remove the oldest.
    #[arg(long, value_name = "COUNT", requires = "roll", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keep: Option<u32>,

    /// What the threads of the process do when the buffer is full: drop the event, or wait (.NET 11).
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true, default_value_t = Buffering::Drop)]
    pub(crate) buffering_mode: Buffering,

    /// Let a process that waits at its start go on.
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
          default_value_t = true, default_missing_value = "true")]
    pub(crate) resume_runtime: bool,

    /// Cut the recording off when the process goes on sending so long after it was asked to stop.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) rundown_timeout: Option<Duration>,

    /// Size of the buffer in the traced process, in megabytes.
    #[arg(long = "buffersize", alias = "buffer-size", value_name = "MB", default_value_t = 256,
          allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) buffer_mb: u32,

    /// Whether the runtime lists methods and modules at the end (needed for names in stacks).
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
          default_missing_value = "true")]
    pub(crate) rundown: Option<bool>,

    /// The file to write; '-' for standard output. Default: NAME_yyyyMMdd_HHmmss.nettrace.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// NetTrace, or Speedscope: then a file for speedscope.app is made beside the recording.
    #[arg(long, value_enum, ignore_case = true, default_value_t = TraceFormat::NetTrace)]
    pub(crate) format: TraceFormat,

    /// Not supported: start dotnet-dsrouter yourself, and give its process id to -p.
    #[arg(long, hide = true, value_name = "DEVICE")]
    pub(crate) dsrouter: Option<String>,

    /// Write over an existing output file.
    #[arg(long)]
    pub(crate) force: bool,

    /// End with exit code 9 if any event was lost.
    #[arg(long)]
    pub(crate) fail_on_drop: bool,

    /// Let the started command use the terminal (its input, its output, Enter, Ctrl+C); no live line.
    #[arg(long, requires = "command")]
    pub(crate) show_child_io: bool,

    /// The command to start and trace from its first event on.
    #[arg(last = true, value_name = "COMMAND", groups = ["what", "root"])]
    pub(crate) command: Vec<OsString>,
}

/// Formats of `dotnet-trace collect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// The stream as it comes.
    #[value(name = "NetTrace")]
    NetTrace,
    /// And a file for speedscope.app.
    #[value(name = "Speedscope")]
    Speedscope,
    /// For the trace viewer of Chromium.
    #[value(name = "Chromium", hide = true)]
    Chromium,
}

/// What happens to events when the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Buffering {
    /// They are lost, and counted.
    #[value(alias = "0")]
    Drop,
    /// They wait for room.
    #[value(alias = "1")]
    Block,
}

fn parse_payload_filter(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((field, value)) if !field.is_empty() => Ok((field.into(), value.into())),
        _ => Err(format!("'{text}' is not of the form FIELD:VALUE")),
    }
}

/// The smallest size of a file of `--roll`.
const MIN_ROLL: u64 = 100_000;

fn parse_size(text: &str) -> Result<u64, String> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let wrong = || format!("'{text}' is not a size such as 100MB");
    if number.is_empty() {
        return Err(wrong());
    }
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(format!("'{unit}' is no unit: KB, MB, GB, KiB, MiB or GiB")),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let size = (number * factor as f64) as u64;
    if size < MIN_ROLL {
        return Err("a file must have room for 100 KB".into());
    }
    Ok(size)
}

/// Which process.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The process id.
    #[arg(
        short,
        long = "process-id",
        visible_alias = "pid",
        value_name = "PID",
        groups = ["what", "root"],
        allow_negative_numbers = true,
        value_parser = parse_pid
    )]
    pub(crate) process_id: Option<u32>,

    /// The process name; exactly one traceable process must have it.
    #[arg(short, long, value_name = "NAME", group = "what")]
    pub(crate) name: Option<String>,

    /// A diagnostic port. With 'listen' (the default) processes started with
    /// DOTNET_DiagnosticPorts=PATH dial in there and the first is taken; with 'connect' one listens there.
    #[arg(
        long,
        visible_alias = "dport",
        value_name = "PATH[,connect|listen]",
        group = "what"
    )]
    pub(crate) diagnostic_port: Option<String>,
}

fn parse_pid(text: &str) -> Result<u32, String> {
    let wrong = || {
        format!(
            "'{text}' is not the number of a process (`eventpipe ps` lists them, -n takes a name)"
        )
    };
    text.parse().map_err(|_| wrong())
}

/// `eventpipe env`
#[derive(Debug, Args)]
pub(crate) struct Env {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Print JSON: an array of objects with 'name' and 'value' (docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe set-env`
#[derive(Debug, Args)]
pub(crate) struct SetEnv {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Remove this variable (may be given several times).
    #[arg(long, value_name = "NAME", value_parser = parse_variable)]
    pub(crate) unset: Vec<String>,

    /// What to set; the first '=' splits.
    #[arg(value_name = "NAME=VALUE", value_parser = parse_assignment)]
    pub(crate) assignments: Vec<(String, String)>,
}

fn parse_variable(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('=') {
        return Err(format!("'{text}' is not the name of a variable"));
    }
    Ok(text.to_owned())
}

fn parse_assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("'{text}' is not of the form NAME=VALUE")),
    }
}

/// `eventpipe resume`
#[derive(Debug, Args)]
pub(crate) struct Resume {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// `eventpipe perfmap`
#[derive(Debug, Subcommand)]
pub(crate) enum PerfMap {
    /// Begin to write. Do not ask this of a .NET 8 or 9 that is suspended at its start: it crashes.
    Enable(PerfMapEnable),
    /// Write no more.
    Disable(PerfMapDisable),
}

/// `eventpipe perfmap enable`
#[derive(Debug, Args)]
pub(crate) struct PerfMapEnable {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Which files.
    #[arg(long = "type", value_enum, default_value_t = PerfMapKind::All)]
    pub(crate) kind: PerfMapKind,
}

/// `eventpipe perfmap disable`
#[derive(Debug, Args)]
pub(crate) struct PerfMapDisable {
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Kinds of files for perf.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PerfMapKind {
    /// Both.
    All,
    /// jit-PID.dump, for `perf inject`.
    Jitdump,
    /// perf-PID.map, which perf reads as it is.
    Perfmap,
}

/// `eventpipe session`
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// End a session, also one that another tool began. Its recorder must go on reading meanwhile.
    Stop(SessionStop),
}

/// `eventpipe session stop`
#[derive(Debug, Args)]
pub(crate) struct SessionStop {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The session's id as `collect` prints it (0x… is hexadecimal).
    #[arg(value_name = "ID", value_parser = parse_session_id)]
    pub(crate) id: u64,
}

fn parse_session_id(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is no session id: a number, 0x… in hexadecimal"))
}

/// `eventpipe dump`
#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) target: Target,

    /// The file to write, by a path as the process sees it. Default: core_yyyyMMdd_HHmmss.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// How much of the process.
    #[arg(long = "type", value_enum, ignore_case = true, default_value_t = DumpKind::Full)]
    pub(crate) kind: DumpKind,

    /// The process logs what the dump does (on its own output).
    #[arg(long)]
    pub(crate) diag: bool,

    /// The process also writes a crash report (FILE.crashreport.json).
    #[arg(long = "crashreport")]
    pub(crate) crash_report: bool,

    /// Write over an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Kinds of dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpKind {
    /// All memory, with the images of modules.
    Full,
    /// Modules, threads, stacks, exceptions, handles and all memory but mapped images.
    Heap,
    /// Modules, threads, stacks, exceptions.
    Mini,
    /// As mini, without personal information such as paths.
    Triage,
}

/// `eventpipe counters`
#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal the table is drawn anew with each interval, until Ctrl+C; otherwise
it is printed once at the end. EventCounters and instruments of meters are shown
alike: an increment is that of an interval, and min, mean and max are those of
the values so far.

Examples:
  eventpipe counters -p 1234
  eventpipe counters -n web --counters System.Runtime[cpu-usage],My.Meter
  eventpipe counters -p 1234 --json | jq '.counters[] | {name, last}'")]
pub(crate) struct Monitor {
    #[command(flatten)]
    pub(crate) target: Target,

    /// Providers and meters, joined by commas; in brackets some of their counters [default: System.Runtime].
    #[arg(long, value_name = "NAMES")]
    pub(crate) counters: Vec<String>,

    /// How often values come.
    #[arg(long, visible_alias = "refresh-interval", value_name = "TIME", default_value = "1s", value_parser = parse_interval, allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// End after this time.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,

    /// Print JSON: a line for each interval (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// Microsoft's tool takes a number of seconds.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let is_number = text.parse::<u32>().is_ok();
    let duration = match is_number {
        true => parse_duration(&format!("{text}s"))?,
        false => parse_duration(text)?,
    };
    match duration {
        duration if duration < Duration::from_millis(100) => Err(format!(
            "'{text}' is less than 100ms, which runtimes do not keep"
        )),
        duration => Ok(duration),
    }
}

/// `eventpipe stack`
#[derive(Debug, Args)]
#[command(after_help = "\
Threads are sampled for the time given, and the last sample of each is printed,
innermost frame first. Threads that never ran managed code are not seen.

For threads over time: `eventpipe collect --profile dotnet-sampled-thread-time`,
then `eventpipe report topn`.")]
pub(crate) struct Stack {
    #[command(flatten)]
    pub(crate) target: Target,

    /// How long threads are sampled: 50ms, 1s.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration, allow_hyphen_values = true)]
    pub(crate) duration: Duration,

    /// Print JSON: an array of objects (keys: docs/json.md).
    #[arg(long)]
    pub(crate) json: bool,
}

/// `eventpipe demo`
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// How long to record: 3s, 500ms, 1m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true, default_value = "3s")]
    pub(crate) duration: Duration,

    /// The file to write (an older demo's file is replaced).
    #[arg(short, long, value_name = "FILE", default_value = "demo.nettrace")]
    pub(crate) output: PathBuf,
}

/// `eventpipe demo-program`
#[derive(Debug, Args)]
pub(crate) struct DemoProgram {
    /// Threads that serve requests.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) threads: u32,
}

/// `eventpipe man`
#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Where to write the pages of all commands.
    pub(crate) directory: Option<PathBuf>,
}

/// `eventpipe completions`
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_other_tools_call_it_is_understood() {
        let parse = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Collect(collect) => collect,
            other => panic!("{other:?}"),
        };
        for pid in ["-p 7", "-p7", "--pid 7", "--pid=7", "--process-id 7"] {
            let collect = parse(&format!("eventpipe record {pid}"));
            assert_eq!(collect.target.process_id, Some(7), "{pid}");
        }
        let error = Cli::try_parse_from(["eventpipe", "collect", "-p", "app"]).unwrap_err();
        assert!(error.to_string().contains("-n takes a name"), "{error}");
        let words = "--dport a --clr-events gc --clr-event-level 5 --buffer-size 9";
        let collect = parse(&format!("eventpipe collect {words}"));
        assert_eq!(collect.clr_events.as_deref(), Some("gc"));
        assert_eq!(collect.clr_event_level.as_deref(), Some("5"));
        assert_eq!(collect.buffer_mb, 9);
        assert_eq!(collect.target.diagnostic_port.as_deref(), Some("a"));
    }

    #[test]
    fn exactly_one_target_is_accepted() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("eventpipe collect -p 1 -n a").is_err());
        assert!(parse("eventpipe collect -p 1 -- a").is_err());
        assert!(parse("eventpipe collect -p -1").is_err());
        assert!(parse("eventpipe collect -p 1 --all").is_err());
        assert!(parse("eventpipe collect --all -- a").is_err());
        assert!(parse("eventpipe collect --tree").is_err());
        assert!(parse("eventpipe collect --tree --dport a").is_err());
        assert!(parse("eventpipe collect --tree -p 1").is_ok());
        assert!(parse("eventpipe collect --tree -- a").is_ok());
        assert!(parse("eventpipe collect --dport a --all").is_ok());
        let Command::Collect(collect) = parse("eventpipe collect -- a -p 1").unwrap().command
        else {
            panic!("not collect");
        };
        assert_eq!(collect.command, ["a", "-p", "1"]);
    }
}
