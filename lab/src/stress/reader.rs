//! How the session's stream is read: the same code for every engine, so that a comparison compares engines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The provider of the stress program.
pub const PROVIDER: &str = "EventPipeStress";

/// What is done with the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReaderMode {
    /// Bytes are counted and thrown away: the least that a client can do. What was delivered and lost stays unknown.
    Discard,
    /// The trace is read event by event as it comes.
    Parse,
    /// The stream is copied to a file, which is read event by event afterwards: what a recording tool does.
    File,
    /// As parse, but taking only so many MB a second (--slow-rate) as long as the program runs.
    Slow,
    /// As parse, but nothing is taken for some time at first (--stall).
    Stalled,
}

/// What was read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// Bytes of the stream.
    pub bytes: u64,
    /// What was found in it; `None` when it was thrown away.
    pub counts: Option<Counts>,
    /// When the last byte came.
    #[serde(skip)]
    pub last_byte: Option<Instant>,
}

/// What the events of the stress program's provider add up to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Events of the provider.
    pub delivered: u64,
    /// Their payloads' bytes.
    pub payload_bytes: u64,
    /// Frames on their stacks.
    pub frames: u64,
    /// Events that the trace itself says are missing, of whatever provider.
    pub lost: u64,
    /// Whether more may be missing than the trace can tell.
    pub lost_is_lower_bound: bool,
    /// Events of other providers.
    pub other_events: u64,
    /// Per writing thread as the operating system counts threads: delivered events of the provider.
    pub per_thread: BTreeMap<u64, u64>,
    /// Per thread number in the event Sequenced: its delivered events, and how often the number did not rise.
    pub sequenced: BTreeMap<i32, Sequenced>,
    /// Why the trace could not be read to its end.
    pub error: Option<String>,
}

/// One thread's Sequenced events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequenced {
    /// Events.
    pub delivered: u64,
    /// The largest number seen.
    pub last: i64,
    /// How often a number was not larger than the one before.
    pub disorder: u64,
}

/// Limits on how the stream is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Nothing is read before this moment.
    pub(crate) not_before: Option<Instant>,
    /// Bytes a second, until `released`.
    pub(crate) bytes_per_second: Option<f64>,
    /// Set when the program has done its work: from then on the stream is taken as fast as it comes.
    pub(crate) released: Arc<AtomicBool>,
}

/// Reads the stream to its end.
///
/// # Errors
/// The file of [`ReaderMode::File`] cannot be written. A damaged trace is not an error here but a finding: [`Counts::error`].
pub(crate) fn read(
    stream: impl Read,
    mode: ReaderMode,
    pace: Pace,
    file: &Path,
) -> Result<Reading> {
    let mut metered = Metered::new(stream, pace);
    let counts = match mode {
        ReaderMode::Discard => {
            copy(&mut metered, &mut io::sink()).context("reading the stream")?;
            None
        }
        ReaderMode::File => {
            let mut out =
                File::create(file).with_context(|| format!("creating {}", file.display()))?;
            copy(&mut metered, &mut out).context("copying the stream to a file")?;
            drop(out);
            Some(count(File::open(file)?))
        }
        ReaderMode::Parse | ReaderMode::Slow | ReaderMode::Stalled => {
            let counts = count(&mut metered);
            if counts.error.is_some() {
                // Whatever is wrong with the trace, the program must be able to end.
                copy(&mut metered, &mut io::sink()).context("reading the stream")?;
            }
            Some(counts)
        }
    };
    Ok(Reading {
        bytes: metered.bytes,
        counts,
        last_byte: metered.last_byte,
    })
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A program that is killed resets the connection: that is an end, too.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Counts what a trace holds.
pub fn count(trace: impl Read) -> Counts {
    let mut counts = Counts::default();
    if let Err(error) = count_into(&mut counts, trace) {
        counts.error = Some(error.to_string());
    }
    counts
}

fn count_into(counts: &mut Counts, trace: impl Read) -> Result<(), nettrace::Error> {
    let mut reader = nettrace::Reader::new(trace)?;
    // Runs of one thread are long: its count is kept aside until another thread comes.
    let mut current = (0_u64, 0_u64);
    let result = loop {
        let event = match reader.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let metadata = event.metadata();
        if metadata.provider != PROVIDER {
            counts.other_events += 1;
            continue;
        }
        let payload = event.payload();
        counts.delivered += 1;
        counts.payload_bytes += payload.len() as u64;
        counts.frames += event.stack().len() as u64;
        let thread = event.thread_id();
        if thread != current.0 {
            *counts.per_thread.entry(current.0).or_default() += current.1;
            current = (thread, 0);
        }
        current.1 += 1;
        if metadata.event_id == 4
            && let Some((number, rest)) = payload.split_first_chunk::<4>()
            && let Some((running, _)) = rest.split_first_chunk::<8>()
        {
            let entry = counts.sequenced.entry(i32::from_le_bytes(*number));
            let running = i64::from_le_bytes(*running);
            let thread = entry.or_insert(Sequenced {
                last: -1,
                ..Sequenced::default()
            });
            thread.delivered += 1;
            thread.disorder += u64::from(running <= thread.last);
            thread.last = running;
        }
    };
    *counts.per_thread.entry(current.0).or_default() += current.1;
    counts.per_thread.retain(|_, events| *events > 0);
    let losses = reader.losses();
    counts.lost = losses.total();
    counts.lost_is_lower_bound = losses.is_lower_bound;
    result
}

/// Counts bytes, notes when the last one came, and holds back as told.
struct Metered<R> {
    source: R,
    pace: Pace,
    started: Option<Instant>,
    bytes: u64,
    last_byte: Option<Instant>,
}

impl<R> Metered<R> {
    fn new(source: R, pace: Pace) -> Metered<R> {
        Metered {
            source,
            pace,
            started: None,
            bytes: 0,
            last_byte: None,
        }
    }

    /// Sleeps until the next read is due; says how much it may take.
    fn wait(&mut self) -> usize {
        if let Some(pause) = self
            .pace
            .not_before
            .and_then(|moment| moment.checked_duration_since(Instant::now()))
        {
            std::thread::sleep(pause);
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        let Some(rate) = self.pace.bytes_per_second else {
            return usize::MAX;
        };
        if self.pace.released.load(Ordering::Relaxed) {
            return usize::MAX;
        }
        let due = Duration::from_secs_f64(self.bytes as f64 / rate);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
        // About ten portions a second.
        (rate / 10.0).max(1.0) as usize
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.wait().min(buffer.len());
        let count = self.source.read(&mut buffer[..most])?;
        if count > 0 {
            self.bytes += count as u64;
            self.last_byte = Some(Instant::now());
        }
        Ok(count)
    }
}
