//! `lab floor`: what an event costs without an engine. Its writer reads the clock and copies the payload into a block, a second thread
//! sends whole blocks over a socket, a process of its own throws away what comes. Nothing is looked for, filtered, numbered, encoded or
//! counted, so an engine that serves the protocol from another thread than its writers' cannot cost less.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use eventpipe_os::clock;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::process::Running;
use crate::statistics::Spread;
use crate::stress::Kind;

/// What of a block is handed over and sent at once, in KiB. Small ones are in the cache when they are sent, large ones wake threads less often.
const UNITS_KIB: [usize; 3] = [64, 256, 1024];

/// Blocks of each writer: while one is filled the others are sent.
const BLOCKS: usize = 8;

const TEXT: &[u8] = &[b'x'; 100];

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Rounds.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of writing in each run.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub duration: f64,
    /// One JSON document instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The event.
    pub kind: Kind,
    /// Writing threads.
    pub threads: usize,
    /// What is handed over at once.
    pub unit_kib: usize,
    /// Events per second.
    pub events_per_second: f64,
    /// Processor time of the whole process per event, in nanoseconds.
    pub cpu_ns: f64,
    /// The writers' part of it.
    pub writers_ns: f64,
}

/// The least of an event: that of the unit which costs least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Least {
    /// What is handed over at once.
    pub unit_kib: usize,
    /// Processor time per event, in nanoseconds.
    pub cpu_ns: Spread,
    /// The writers' part of it.
    pub writers_ns: Spread,
    /// Events per second.
    pub events_per_second: Spread,
}

/// The events and numbers of threads that are measured.
pub const CASES: [(Kind, usize); 4] = [
    (Kind::Text, 1),
    (Kind::Text, 2),
    (Kind::Number, 1),
    (Kind::Number, 2),
];

/// Each case with each unit once.
///
/// # Errors
/// The reader does not start or breaks off.
pub fn round(seconds: f64, lab: &Path) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for (kind, threads) in CASES {
        for unit_kib in UNITS_KIB {
            runs.push(run_once(kind, threads, unit_kib, seconds, lab)?);
        }
    }
    Ok(runs)
}

/// What the runs of a case say; `None` when there are none.
pub fn least(runs: &[Run], kind: Kind, threads: usize) -> Option<Least> {
    let of_unit = |unit_kib| {
        let spread = |value: fn(&Run) -> f64| {
            let runs = runs
                .iter()
                .filter(|run| (run.kind, run.threads, run.unit_kib) == (kind, threads, unit_kib));
            Spread::of(runs.map(value))
        };
        Some(Least {
            unit_kib,
            cpu_ns: spread(|run| run.cpu_ns)?,
            writers_ns: spread(|run| run.writers_ns)?,
            events_per_second: spread(|run| run.events_per_second)?,
        })
    };
    let units = UNITS_KIB.into_iter().filter_map(of_unit);
    units.min_by(|a, b| a.cpu_ns.median.total_cmp(&b.cpu_ns.median))
}

/// Measures and prints.
///
/// # Errors
/// The reader does not start or breaks off, or the output does.
pub fn run(arguments: &Arguments, lab: &Path, out: &mut impl Write) -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..arguments.rounds {
        runs.extend(round(arguments.duration, lab)?);
    }
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&runs)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "ns of processor time per event without an engine: the clock, one copy, the socket; medians of {} rounds\n",
        arguments.rounds
    )?;
    writeln!(
        out,
        "event, threads  unit      whole process          writers    M events/s"
    )?;
    for (kind, threads) in CASES {
        let Some(least) = least(&runs, kind, threads) else {
            continue;
        };
        writeln!(
            out,
            "{:<8} {threads:<6} {:>5} KiB  {:>5.1} ({:.1}–{:.1})  {:>12.1}  {:>12.1}",
            format!("{kind:?}").to_lowercase(),
            least.unit_kib,
            least.cpu_ns.median,
            least.cpu_ns.min,
            least.cpu_ns.max,
            least.writers_ns.median,
            least.events_per_second.median * 1e-6,
        )?;
    }
    Ok(())
}

/// Takes everything from standard input: the reader's process.
///
/// # Errors
/// Standard input cannot be read.
pub fn sink() -> Result<()> {
    let mut input = io::stdin().lock();
    let mut bytes = vec![0; 1 << 20];
    while input.read(&mut bytes).context("reading")? > 0 {}
    Ok(())
}

fn run_once(kind: Kind, threads: usize, unit_kib: usize, seconds: f64, lab: &Path) -> Result<Run> {
    let (socket, other_end) = UnixStream::pair().context("making a socket")?;
    let mut command = Command::new(lab);
    command
        .arg("sink")
        .stdin(Stdio::from(OwnedFd::from(other_end)));
    let mut reader = Running(command.spawn().context("starting the reader")?);
    // It holds the reader's end of the socket, and would hide that the reader has gone.
    drop(command);
    clock::source();
    let (filled, to_send) = sync_channel(threads * BLOCKS);
    let mut homes = Vec::new();
    let mut writers = Vec::new();
    for number in 0..threads {
        let (home, empty) = sync_channel(BLOCKS);
        for _ in 0..BLOCKS {
            // Not zeros, which the kernel would only promise.
            home.send(vec![1; unit_kib << 10])?;
        }
        homes.push(home);
        writers.push((number, empty, filled.clone()));
    }
    drop(filled);
    let cpu = seconds_of(ClockId::ProcessCPUTime);
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    let (events, writers_cpu) = std::thread::scope(|scope| -> Result<(u64, f64)> {
        let sender = scope.spawn(move || send(socket, &to_send, &homes));
        let handles: Vec<_> = writers
            .into_iter()
            .map(|(number, empty, filled)| {
                scope.spawn(move || match kind {
                    Kind::Number => write(number, &empty, &filled, end, put_number),
                    _ => write(number, &empty, &filled, end, put_text),
                })
            })
            .collect();
        let (mut events, mut cpu) = (0, 0.0);
        for handle in handles {
            let (count, seconds) = handle.join().unwrap_or_default();
            events += count;
            cpu += seconds;
        }
        match sender.join() {
            Ok(sent) => sent.context("sending")?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok((events, cpu))
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    let cpu = seconds_of(ClockId::ProcessCPUTime) - cpu;
    let status = reader.0.wait().context("waiting for the reader")?;
    anyhow::ensure!(status.success(), "the reader ended with {status}");
    Ok(Run {
        kind,
        threads,
        unit_kib,
        events_per_second: events as f64 / elapsed,
        cpu_ns: cpu * 1e9 / events as f64,
        writers_ns: writers_cpu * 1e9 / events as f64,
    })
}

type Block = Vec<u8>;

/// Fills blocks until the time is over; how many events that were, and the thread's processor time in seconds.
fn write(
    number: usize,
    empty: &Receiver<Block>,
    filled: &SyncSender<(usize, Block)>,
    end: Instant,
    put: fn(&mut Block) -> u64,
) -> (u64, f64) {
    let mut events = 0;
    while Instant::now() < end
        && let Ok(mut block) = empty.recv()
    {
        events += put(&mut block);
        if filled.send((number, block)).is_err() {
            break;
        }
    }
    (events, seconds_of(ClockId::ThreadCPUTime))
}

/// Sends whole blocks and gives them back to their writers.
fn send(
    mut socket: UnixStream,
    to_send: &Receiver<(usize, Block)>,
    homes: &[SyncSender<Block>],
) -> io::Result<()> {
    while let Ok((number, block)) = to_send.recv() {
        socket.write_all(&block)?;
        if let Some(home) = homes.get(number) {
            // Its writer may have ended.
            let _ = home.send(block);
        }
    }
    Ok(())
}

/// The header that stands for the encoded one: as long as the usual ones of version 4, of which two bytes are the time.
const HEADER: usize = 7;

fn put_text(block: &mut Block) -> u64 {
    const EVENT: usize = HEADER + 2 * (TEXT.len() + 1);
    let text = std::hint::black_box(TEXT);
    let mut events = 0;
    for place in block.chunks_exact_mut(EVENT) {
        let (header, payload) = place.split_at_mut(HEADER);
        header.copy_from_slice(&clock::ticks().to_le_bytes()[..HEADER]);
        for (unit, byte) in payload.chunks_exact_mut(2).zip(text) {
            unit.copy_from_slice(&u16::from(*byte).to_le_bytes());
        }
        events += 1;
    }
    events
}

fn put_number(block: &mut Block) -> u64 {
    // What is left of a header behind the first event of a run, and the number.
    const EVENT: usize = 2 + 8;
    let mut events = 0_u64;
    for place in block.chunks_exact_mut(EVENT) {
        let (header, payload) = place.split_at_mut(2);
        header.copy_from_slice(&clock::ticks().to_le_bytes()[..2]);
        payload.copy_from_slice(&std::hint::black_box(events).to_le_bytes());
        events += 1;
    }
    events
}

fn seconds_of(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_the_unit_with_the_cheapest_median() {
        let run = |unit_kib, cpu_ns| Run {
            kind: Kind::Text,
            threads: 1,
            unit_kib,
            events_per_second: 1e6,
            cpu_ns,
            writers_ns: cpu_ns / 2.0,
        };
        let runs = [
            run(64, 50.0),
            run(64, 10.0),
            run(64, 51.0),
            run(256, 40.0),
            run(256, 41.0),
            run(256, 90.0),
        ];
        let least = least(&runs, Kind::Text, 1).unwrap();
        assert_eq!((least.unit_kib, least.cpu_ns.median), (256, 41.0));
        assert_eq!(super::least(&runs, Kind::Text, 2), None);
        assert_eq!(super::least(&runs, Kind::Number, 1), None);
    }

    #[test]
    fn a_block_is_full_of_events() {
        let mut block = vec![1; 1 << 10];
        assert_eq!(put_text(&mut block), 1024 / 209);
        // A text in UTF-16 with its end (which stays as it was: nobody reads it).
        assert_eq!(block[HEADER..HEADER + 4], *b"x\0x\0");
        assert_eq!(put_number(&mut block), 1024 / 10);
        assert_eq!(block[12..20], 1_u64.to_le_bytes());
    }
}
