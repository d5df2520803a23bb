//! One run: start the program, open the session, let it go, read to the end, ask the kernel what it cost.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dotnet_diagnostics::client::{Client, Fallbacks};
use dotnet_diagnostics::codec::{
    BufferingMode, CollectTracing, DEFAULT_RUNDOWN_KEYWORD, Format, ProviderConfig,
};
use serde::{Deserialize, Serialize};

use super::options::word;
use super::reader::{self, PROVIDER, Pace, ReaderMode, Reading};
use super::{Full, OnOff, Options, Pattern, StreamFormat};
use crate::Engine;
use crate::process::{self, Running, cpu_seconds, peak_rss, spawn_pinned};

/// How long a program may take to start, and to end after its work, before it is called hung. Not a measure of speed.
const HUNG: Duration = Duration::from_secs(120);
/// What an engine that answers early is given before the work starts.
const EARLY_ANSWER: Duration = Duration::from_millis(500);

/// What became of the events of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Whose engine.
    pub engine: Engine,
    /// What became of events for which there was no room.
    #[serde(default)]
    pub buffering: Full,
    /// What the program calls its runtime.
    pub runtime: String,
    /// Cores that it was pinned to.
    pub cores: Option<usize>,
    /// Writing threads.
    pub threads: usize,
    /// Events that the program wrote.
    pub attempted: u64,
    /// The same for each of its threads.
    pub attempted_per_thread: Vec<u64>,
    /// Events read; unknown when the stream was thrown away.
    pub read: Option<u64>,
    /// Events that the trace says are lost.
    pub lost: Option<u64>,
    /// Attempted, not read, and not said to be lost. Below zero: the trace says more are lost than there were.
    pub unaccounted: Option<i64>,
    /// Seconds from the start of the work to the last byte of the stream.
    pub seconds: f64,
    /// Seconds that the threads wrote.
    pub writing_seconds: f64,
    /// Events read per second, up to the last byte.
    pub events_per_second: Option<f64>,
    /// Events attempted per second of writing.
    pub attempted_per_second: f64,
    /// Bytes of the stream per second, in 10^6.
    pub mb_per_second: f64,
    /// Read by attempted.
    pub efficiency: Option<f64>,
    /// Processor time of the traced process from the start of the work to its end.
    pub cpu_seconds: f64,
    /// The same until the threads were done writing.
    #[serde(default)]
    pub writing_cpu_seconds: f64,
    /// The same by kind of thread, looked at every 50 ms while the program ran.
    #[serde(default)]
    pub thread_seconds: Vec<ThreadTime>,
    /// What our reader took of the processors meanwhile, by the kernel's account.
    #[serde(default)]
    pub reader: ThreadTime,
    /// Cores that program and reader kept busy, on average from the start of the work to the last byte.
    #[serde(default)]
    pub busy_cores: Option<f64>,
    /// The same for each million events attempted.
    pub cpu_seconds_per_million: f64,
    /// The same for each million events read.
    pub cpu_seconds_per_million_read: Option<f64>,
    /// The most memory the traced process had present, in bytes.
    pub peak_rss: u64,
    /// Frames on the average stack.
    pub frames_per_event: Option<f64>,
    /// The stream.
    pub reading: Reading,
}

/// What threads of one name took of the processors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ThreadTime {
    /// The threads' name, without a number at its end.
    pub name: String,
    /// Seconds in the program.
    pub user: f64,
    /// Seconds in the kernel.
    pub system: f64,
}

/// The program's closing line.
#[derive(Debug, Deserialize)]
struct Closing {
    runtime: String,
    seconds: f64,
    attempted: u64,
    per_thread: Vec<u64>,
}

/// Runs the stress program of an engine once, traced, on `cores` cores (all when `None`). `lab` is this program's file.
///
/// # Errors
/// The program or the session does not start, or the program hangs: a finding, not a figure.
pub fn run_once(
    engine: Engine,
    options: &Options,
    cores: Option<usize>,
    lab: &Path,
) -> Result<Outcome> {
    if options.stacks == OnOff::Off && !engine.can_omit_stacks() {
        bail!("{} cannot leave stacks out", engine.title());
    }
    let threads = threads(options, cores);
    let mut command = engine.program(lab)?;
    command
        .args(program_arguments(options, threads))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if options.stacks == OnOff::Off && !engine.switches_stacks_by_request() {
        command.env("DOTNET_EventPipeEnableStackwalk", "0");
    }
    let mut program = Running(spawn_pinned(&mut command, cores)?);
    let pid = program.pid();
    let mut input = program.0.stdin.take().context("no standard input")?;
    let mut lines = BufReader::new(program.0.stdout.take().context("no standard output")?).lines();
    let peak = Arc::new(AtomicU64::new(0));
    let work = Arc::new(AtomicBool::new(false));
    let watch = Watch::start(pid, Duration::from_secs_f64(options.duration), &peak, &work);

    let ready = lines
        .next()
        .context("the program ended before it was ready")??;
    if ready != format!("ready {pid}") {
        bail!("the program said {ready:?} instead of being ready");
    }
    let client = Client::new(dotnet_diagnostics::discovery::find(pid)?.endpoint());
    let session = client
        .collect(&request(engine, options), Fallbacks::NONE)
        .context("opening the session")?;
    if engine.answers_early() {
        std::thread::sleep(EARLY_ANSWER);
    }

    let released = Arc::new(AtomicBool::new(false));
    let file = trace_file(options, pid);
    let cpu_before = cpu_seconds(pid)?;
    let threads_before = process::thread_seconds(pid);
    work.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let pace = pace(options, start, &released);
    let (mode, path) = (options.reader, file.clone());
    let reading = std::thread::Builder::new()
        .name("reader".into())
        .spawn(move || {
            let reading = reader::read(session, mode, pace, &path);
            (reading, own_time())
        })
        .context("starting the reader")?;
    input.write_all(b"go\n").context("letting the program go")?;
    let closing = lines.next();
    // A program that has ended at once is still there, because nobody has waited for it.
    let writing_cpu = cpu_seconds(pid)? - cpu_before;
    released.store(true, Ordering::Relaxed);
    let (reading, reader) = reading
        .join()
        .map_err(|_| anyhow::anyhow!("the reader panicked"))?;
    if options.keep.is_none() {
        drop(std::fs::remove_file(&file));
    }
    let ended = program.wait_without_reaping(HUNG);
    let threads_after = watch.stop();
    let cpu = cpu_seconds(pid)? - cpu_before;
    if !ended {
        bail!("the program still runs {} s after its work", HUNG.as_secs());
    }
    let status = program.0.wait()?;
    let closing =
        closing.with_context(|| format!("no closing line; the program ended with {status}"))??;
    let closing: Closing = serde_json::from_str(&closing)
        .with_context(|| format!("the program's closing line {closing:?}"))?;
    if !status.success() {
        bail!("the program ended with {status} after its closing line");
    }
    let reading = reading?;
    Ok(outcome(
        engine,
        (options.buffering, cores, threads),
        (start, cpu, writing_cpu, peak.load(Ordering::Relaxed)),
        by_name(&threads_before, threads_after),
        reader,
        closing,
        reading,
    ))
}

fn outcome(
    engine: Engine,
    (buffering, cores, threads): (Full, Option<usize>, usize),
    (start, cpu, writing_cpu_seconds, peak_rss): (Instant, f64, f64, u64),
    thread_seconds: Vec<ThreadTime>,
    reader: ThreadTime,
    closing: Closing,
    reading: Reading,
) -> Outcome {
    let counts = reading.counts.as_ref();
    let read = counts.map(|counts| counts.delivered);
    let lost = counts.map(|counts| counts.lost);
    let seconds = reading
        .last_byte
        .map_or(f64::NAN, |moment| (moment - start).as_secs_f64());
    let attempted = closing.attempted as f64;
    Outcome {
        engine,
        buffering,
        runtime: closing.runtime,
        cores,
        threads,
        attempted: closing.attempted,
        attempted_per_thread: closing.per_thread,
        read,
        lost,
        unaccounted: read
            .zip(lost)
            .map(|(read, lost)| closing.attempted as i64 - read as i64 - lost as i64),
        seconds,
        writing_seconds: closing.seconds,
        events_per_second: read.map(|read| read as f64 / seconds),
        attempted_per_second: attempted / closing.seconds,
        mb_per_second: reading.bytes as f64 / seconds / 1e6,
        efficiency: read.map(|read| read as f64 / attempted),
        cpu_seconds: cpu,
        writing_cpu_seconds,
        thread_seconds,
        busy_cores: Some((cpu + reader.user + reader.system) / seconds),
        reader,
        cpu_seconds_per_million: cpu / attempted * 1e6,
        cpu_seconds_per_million_read: read.map(|read| cpu / read as f64 * 1e6),
        peak_rss,
        frames_per_event: counts.map(|counts| counts.frames as f64 / counts.delivered as f64),
        reading,
    }
}

/// What the calling thread took so far.
fn own_time() -> ThreadTime {
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    process::thread_seconds(std::process::id())
        .into_iter()
        .find(|(id, ..)| *id == own)
        .map(|(_, name, user, system)| ThreadTime { name, user, system })
        .unwrap_or_default()
}

/// What threads of each name took since `before`.
fn by_name(before: &[(u32, String, f64, f64)], after: Threads) -> Vec<ThreadTime> {
    let mut kinds: Vec<ThreadTime> = Vec::new();
    for (id, (name, user, system)) in after {
        let earlier = before.iter().find(|(earlier, ..)| *earlier == id);
        let (user_before, system_before) =
            earlier.map_or((0.0, 0.0), |(.., user, system)| (*user, *system));
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
        let index = match kinds.iter().position(|kind| kind.name == name) {
            Some(index) => index,
            None => {
                kinds.push(ThreadTime {
                    name: name.to_owned(),
                    ..ThreadTime::default()
                });
                kinds.len() - 1
            }
        };
        kinds[index].user += user - user_before;
        kinds[index].system += system - system_before;
    }
    kinds.sort_by(|a, b| (b.user + b.system).total_cmp(&(a.user + a.system)));
    kinds
}

fn threads(options: &Options, cores: Option<usize>) -> usize {
    options
        .threads
        .or(cores)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

fn program_arguments(options: &Options, threads: usize) -> Vec<String> {
    let mut arguments = vec![
        "--wait".to_owned(),
        "--threads".to_owned(),
        threads.to_string(),
        "--size".to_owned(),
        options.event_size.to_string(),
        "--kind".to_owned(),
        word(options.kind),
    ];
    match options.count {
        Some(count) => arguments.extend(["--count".to_owned(), count.to_string()]),
        None => arguments.extend(["--seconds".to_owned(), options.duration.to_string()]),
    }
    if options.rate > 0.0 {
        arguments.extend(["--rate".to_owned(), options.rate.to_string()]);
    }
    if options.pattern != Pattern::None {
        arguments.extend(["--pattern".to_owned(), word(options.pattern)]);
    }
    arguments
}

fn request(engine: Engine, options: &Options) -> CollectTracing {
    let mut request = CollectTracing::new([ProviderConfig::new(PROVIDER, u64::MAX, 5)]);
    request.buffer_mb = options.buffer_mb;
    request.format = match options.format {
        StreamFormat::Netperf => Format::NetPerf,
        StreamFormat::Nettrace => Format::NetTrace,
    };
    request.rundown_keyword = if options.rundown {
        DEFAULT_RUNDOWN_KEYWORD
    } else {
        0
    };
    request.stack_walk = options.stacks == OnOff::On || !engine.switches_stacks_by_request();
    if options.buffering == Full::Block {
        request.buffering_mode = BufferingMode::Block;
    }
    request
}

fn pace(options: &Options, start: Instant, released: &Arc<AtomicBool>) -> Pace {
    let mut pace = Pace {
        released: Arc::clone(released),
        ..Pace::default()
    };
    match options.reader {
        ReaderMode::Slow => pace.bytes_per_second = Some((options.slow_rate * 1e6).max(1.0)),
        ReaderMode::Stalled => {
            let stall = options.stall.unwrap_or(options.duration / 2.0);
            pace.not_before = Some(start + Duration::from_secs_f64(stall.clamp(0.0, 1e6)));
        }
        ReaderMode::Discard | ReaderMode::Parse | ReaderMode::File => {}
    }
    pace
}

fn trace_file(options: &Options, pid: u32) -> std::path::PathBuf {
    if let Some(file) = &options.keep {
        return file.clone();
    }
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    folder.join(format!("lab-stress-{pid}.nettrace"))
}

/// What was last seen of each thread: name, user and system time.
type Threads = BTreeMap<u32, (String, f64, f64)>;

/// Notes the peak memory and what the threads take while the process runs, and kills it when it hangs, so that its streams end.
struct Watch {
    done: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Threads>,
}

impl Watch {
    fn start(
        pid: u32,
        work: Duration,
        peak: &Arc<AtomicU64>,
        has_begun: &Arc<AtomicBool>,
    ) -> Watch {
        let done = Arc::new(AtomicBool::new(false));
        let (flag, peak, has_begun) = (Arc::clone(&done), Arc::clone(peak), Arc::clone(has_begun));
        let limit = work + 2 * HUNG;
        let thread = std::thread::spawn(move || {
            let start = Instant::now();
            let mut threads = Threads::new();
            while !flag.load(Ordering::Relaxed) {
                peak.fetch_max(peak_rss(pid), Ordering::Relaxed);
                if has_begun.load(Ordering::Relaxed) {
                    for (id, name, user, system) in process::thread_seconds(pid) {
                        threads.insert(id, (name, user, system));
                    }
                }
                if start.elapsed() > limit
                    && let Some(pid) = rustix::process::Pid::from_raw(pid as i32)
                {
                    eprintln!("the program hangs and is killed");
                    // It may have ended in this moment.
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    return threads;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            threads
        });
        Watch { done, thread }
    }

    fn stop(self) -> Threads {
        self.done.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
