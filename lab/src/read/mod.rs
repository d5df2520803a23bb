//! `lab read`: how fast traces are read, beside the TraceEvent library.
//!
//! Each round runs every pass of ours and TraceEvent's `bench` over the same file, one after another, so that a slow
//! spell of the machine falls on all; ratios are taken within a round. Every pass is a process of its own, which goes
//! through the file several times; only the fastest counts: by then TraceEvent's code is compiled, and memory is there.
//!
//! TraceEvent's two passes, of one process: *walk*, an empty handler for all events, which it gives by time; *values*,
//! the same with `PayloadValue` called for each field, which makes an object of each value and a string of each text.

mod generate;
mod pass;
mod report;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use peers::Peers;
use serde::{Deserialize, Serialize};

use crate::stress::{self, OnOff, ReaderMode};
use crate::{Engine, statistics::Spread};

pub use generate::{Mix, generate};
pub use pass::{Figures, Pass, decode as values, decode_as_text as values_as_text};
pub use report::print;

/// How to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Traces to read instead of those that are made: two generated ones, and one recorded from the stress program on .NET 8.
    files: Vec<PathBuf>,
    /// Size of the generated trace of text events; the one of a web service's events has a quarter of it.
    #[arg(long, value_name = "MB", default_value_t = 1_000)]
    size: u64,
    /// Events of each of the stress program's two threads: 1,270,000 make 520 MB.
    #[arg(long, value_name = "N", default_value_t = 1_270_000)]
    count: u64,
    /// How often every pass is run, interleaved.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// How often every process goes through its file, ours and TraceEvent's; the fastest counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    warm: usize,
    /// Where the traces are made, in a folder that is removed afterwards [default: the folder for temporary files].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Only make a trace of this mix, as the one file given, and read nothing.
    #[arg(long, value_name = "MIX")]
    generate: Option<Mix>,
    /// One JSON document instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Only run one pass over the one file, in this process.
    #[arg(long, hide = true)]
    pass: Option<Pass>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Trace by trace.
    pub traces: Vec<Trace>,
    /// Peak memory, in KiB, of reading a trace of so many bytes that takes no room.
    pub endless: BTreeMap<u64, u64>,
    /// The same, a second thread reading ahead.
    pub endless_ahead: BTreeMap<u64, u64>,
    /// How often every pass was run, and how often each went through its file.
    pub rounds: usize,
    /// See `rounds`.
    pub warm: usize,
    /// How long it all took, by the clock.
    pub seconds: f64,
}

/// One trace.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Where it comes from.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its events.
    pub events: u64,
    /// What each reader took, ours and TraceEvent's.
    pub lines: Vec<Line>,
    /// What is missing, and why.
    pub notes: Vec<String>,
}

/// One reader's pass over a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// `TraceEvent` or `nettrace`.
    pub reader: &'static str,
    /// The pass.
    pub pass: String,
    /// 10^6 bytes a second by the clock.
    pub mb_per_second: Spread,
    /// The same for each second on a processor.
    pub mb_per_cpu_second: Spread,
    /// 10^6 events a second by the clock.
    pub million_events_per_second: Spread,
    /// Values decoded.
    pub values: u64,
    /// Peak memory of the process.
    pub peak_kib: u64,
    /// By how much it is faster than TraceEvent's pass of the same kind, by the clock.
    pub ratio: Option<Spread>,
    /// The same by time on the processor.
    pub cpu_ratio: Option<Spread>,
}

/// One reader's figures in one round.
type Round = BTreeMap<(&'static str, String), Figures>;

const OURS: &str = "nettrace";
const THEIRS: &str = "TraceEvent";

/// The passes over every trace, and TraceEvent's pass that each is compared with.
const PASSES: [(Pass, Option<&str>); 18] = [
    (Pass::Walk, Some("walk")),
    (Pass::WalkAhead, Some("walk")),
    (Pass::WalkMapped, Some("walk")),
    (Pass::WalkByTime, Some("walk")),
    (Pass::WalkByTimeAhead, Some("walk")),
    (Pass::WalkByTimeMapped, Some("walk")),
    (Pass::WalkPipe, None),
    (Pass::WalkPipeAhead, None),
    (Pass::Values, Some("values")),
    (Pass::ValuesAhead, Some("values")),
    (Pass::ValuesMapped, Some("values")),
    (Pass::ValuesText, Some("values")),
    (Pass::ValuesTextAhead, Some("values")),
    (Pass::ValuesTextMapped, Some("values")),
    (Pass::ValuesTextByTime, Some("values")),
    (Pass::ValuesTextByTimeAhead, Some("values")),
    (Pass::ValuesTextByTimeMapped, Some("values")),
    (Pass::Stacks, None),
];

/// Runs what the arguments ask for; `None` when they ask for something that has no outcome to print.
///
/// # Errors
/// A trace cannot be made or read, or the readers disagree on how many events it has.
pub fn run(arguments: &Arguments, lab: &Path) -> Result<Option<Outcome>> {
    if let Some(pass) = arguments.pass {
        let file = arguments.files.first().map(PathBuf::as_path);
        let file = file.unwrap_or(Path::new(""));
        let mut figures = pass::run(pass, file, arguments.size)?;
        for _ in 1..arguments.warm {
            figures = figures.fastest(pass::run(pass, file, arguments.size)?);
        }
        println!("{}", serde_json::to_string(&figures)?);
        return Ok(None);
    }
    if let Some(mix) = arguments.generate {
        let [file] = arguments.files.as_slice() else {
            bail!("--generate takes the name of one file");
        };
        let events = make(mix, arguments.size * 1_000_000, file)?;
        println!("{events} events");
        return Ok(None);
    }
    let start = Instant::now();
    let folder = Folder::new(arguments.folder.as_deref())?;
    let mut traces = Vec::new();
    if arguments.files.is_empty() {
        for (mix, name, part) in [
            (Mix::Text, "generated: text of 100 characters", 1),
            (Mix::Service, "generated: a web service", 4),
        ] {
            let file = folder.0.join("generated.nettrace");
            make(mix, arguments.size * 1_000_000 / part, &file)?;
            traces.push(measure(name, &file, arguments, lab)?);
            std::fs::remove_file(&file)?;
        }
        let file = folder.0.join("stress.nettrace");
        let name = "recorded: stress on .NET 8";
        match record(&file, arguments.count, lab) {
            Ok(()) => traces.push(measure(name, &file, arguments, lab)?),
            Err(error) => traces.push(Trace {
                name: name.to_owned(),
                bytes: 0,
                events: 0,
                lines: Vec::new(),
                notes: vec![format!("left out: {error:#}")],
            }),
        }
    }
    for file in &arguments.files {
        traces.push(measure(&file.display().to_string(), file, arguments, lab)?);
    }
    let memory = |pass| -> Result<BTreeMap<u64, u64>> {
        let sizes = [1_000_000_000, 5_000_000_000].into_iter();
        let figures = sizes.map(|size| ours(pass, Path::new(""), size, 1, lab));
        figures
            .map(|figures| figures.map(|figures| (figures.bytes, figures.peak_kib)))
            .collect()
    };
    let (endless, endless_ahead) = (memory(Pass::Endless)?, memory(Pass::EndlessAhead)?);
    Ok(Some(Outcome {
        traces,
        endless,
        endless_ahead,
        rounds: arguments.rounds.max(1),
        warm: arguments.warm.max(1),
        seconds: start.elapsed().as_secs_f64(),
    }))
}

fn make(mix: Mix, size: u64, file: &Path) -> Result<u64> {
    let out = File::create(file).with_context(|| format!("creating {}", file.display()))?;
    generate(mix, size, &mut BufWriter::with_capacity(1 << 20, out))
}

/// Records the stress program as fast as it writes, stacks included.
fn record(file: &Path, count: u64, lab: &Path) -> Result<()> {
    let options = stress::Options {
        threads: Some(2),
        count: Some(count),
        reader: ReaderMode::File,
        stacks: OnOff::On,
        keep: Some(file.to_owned()),
        ..stress::Options::default()
    };
    stress::run_once(Engine::Net8, &options, None, lab).map(drop)
}

fn measure(name: &str, file: &Path, arguments: &Arguments, lab: &Path) -> Result<Trace> {
    let bytes = std::fs::metadata(file)
        .with_context(|| format!("looking at {}", file.display()))?
        .len();
    let peers = Peers::find();
    let mut notes = Vec::new();
    if peers.is_none() {
        notes.push("no TraceEvent: no peers (../shared/peers/unpack.sh target/peers)".to_owned());
    }
    // From the disk once: everybody reads from memory afterwards.
    ours(Pass::Walk, file, 0, 1, lab)?;
    let mut rounds = Vec::new();
    for number in 1..=arguments.rounds.max(1) {
        eprintln!("{name}: round {number} of {}", arguments.rounds.max(1));
        let mut round = Round::new();
        for (pass, _) in PASSES {
            let figures = ours(pass, file, 0, arguments.warm, lab)?;
            round.insert((OURS, pass_name(pass)), figures);
        }
        if let Some(peers) = &peers {
            for (name, figures) in theirs(peers, file, arguments.warm)? {
                round.insert((THEIRS, name), figures);
            }
        }
        let events = round[&(OURS, pass_name(Pass::Walk))].events;
        for ((reader, pass), figures) in &round {
            ensure!(
                figures.events == events,
                "{reader}, {pass}: {} events, but {events} in our walk",
                figures.events
            );
        }
        let events = round[&(OURS, pass_name(Pass::Walk))].events;
        round.insert(
            (OURS, pass_name(Pass::Write)),
            ours(Pass::Write, file, events, arguments.warm, lab)?,
        );
        rounds.push(round);
    }
    Ok(Trace {
        name: name.to_owned(),
        bytes,
        events: rounds[0][&(OURS, pass_name(Pass::Walk))].events,
        lines: lines(&rounds),
        notes,
    })
}

fn lines(rounds: &[Round]) -> Vec<Line> {
    let theirs = ["walk", "values"].map(|pass| (THEIRS, pass.to_owned(), None));
    let ours = PASSES.map(|(pass, against)| (OURS, pass_name(pass), against));
    let write = [(OURS, pass_name(Pass::Write), None)];
    let all = theirs.into_iter().chain(ours).chain(write);
    all.filter_map(|(reader, pass, against): (_, _, Option<&str>)| {
        let key = (reader, pass.clone());
        let of = |figure: &dyn Fn(&Figures) -> f64| {
            Spread::of(
                rounds
                    .iter()
                    .filter_map(|round| round.get(&key))
                    .map(figure),
            )
        };
        let over =
            |figure: fn(&Figures) -> f64| {
                let other = (THEIRS, against?.to_owned());
                Spread::of(rounds.iter().filter_map(|round| {
                    Some(figure(round.get(&other)?) / figure(round.get(&key)?))
                }))
            };
        let last = rounds.last()?.get(&key)?;
        Some(Line {
            reader,
            pass: pass.clone(),
            mb_per_second: of(&|figures| figures.bytes as f64 / figures.seconds / 1e6)?,
            mb_per_cpu_second: of(&|figures| figures.bytes as f64 / figures.cpu_seconds / 1e6)?,
            million_events_per_second: of(&|figures| {
                figures.events as f64 / figures.seconds / 1e6
            })?,
            values: last.values,
            peak_kib: rounds
                .iter()
                .filter_map(|round| round.get(&key))
                .map(|figures| figures.peak_kib)
                .max()?,
            ratio: over(|figures| figures.seconds),
            cpu_ratio: over(|figures| figures.cpu_seconds),
        })
    })
    .collect()
}

fn pass_name(pass: Pass) -> String {
    use clap::ValueEnum;
    let value = pass.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Runs a pass of ours several times in a process of its own.
fn ours(pass: Pass, file: &Path, size: u64, times: usize, lab: &Path) -> Result<Figures> {
    let mut command = Command::new(lab);
    command.args(["read", "--pass", &pass_name(pass)]);
    command.args(["--size", &size.to_string(), "--warm", &times.to_string()]);
    // A trace without a file has no name.
    command.args((!file.as_os_str().is_empty()).then_some(file));
    let output = command.output().context("starting a pass")?;
    ensure!(
        output.status.success(),
        "the pass {}: {}",
        pass_name(pass),
        peers::stderr(&output)
    );
    serde_json::from_slice(&output.stdout).context("reading the figures of a pass")
}

/// A line of the oracle's `bench`.
#[derive(Debug, Deserialize)]
struct Bench {
    kind: String,
    events: u64,
    values: u64,
    seconds: f64,
    cpu_seconds: f64,
    peak_rss_kb: u64,
}

/// The fastest of TraceEvent's passes of each kind.
fn theirs(peers: &Peers, file: &Path, times: usize) -> Result<BTreeMap<String, Figures>> {
    let bytes = std::fs::metadata(file)?.len();
    let output = peers
        .tool("oracle")
        .arg("bench")
        .arg(file)
        .arg(times.max(1).to_string())
        .output()
        .context("starting the oracle")?;
    ensure!(
        output.status.success(),
        "oracle bench {}: {}",
        file.display(),
        peers::stderr(&output)
    );
    let mut fastest: BTreeMap<String, Figures> = BTreeMap::new();
    for line in output.stdout.split(|byte| *byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let bench: Bench = serde_json::from_slice(line).context("reading the oracle's figures")?;
        let pass = if bench.kind == "empty" {
            "walk"
        } else {
            "values"
        };
        let figures = Figures {
            bytes,
            events: bench.events,
            values: bench.values,
            seconds: bench.seconds,
            cpu_seconds: bench.cpu_seconds,
            peak_kib: bench.peak_rss_kb,
        };
        let known = fastest.remove(pass);
        let figures = match known {
            Some(known) => known.fastest(figures),
            None => figures,
        };
        fastest.insert(pass.to_owned(), figures);
    }
    Ok(fastest)
}

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(parent: Option<&Path>) -> Result<Folder> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = parent.join(format!("lab-read-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Folder(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
