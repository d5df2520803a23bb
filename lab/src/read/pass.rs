//! One pass of our reader over a trace, in a process of its own, so that its peak memory is that of the pass.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nettrace::payload::{Fields, Value};
use nettrace::{Event, Reader, WriteFormat};
use serde::{Deserialize, Serialize};

use super::generate::{Events, Mix};

/// What is done with the events of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// Every event, in the order of the file.
    Walk,
    /// The same from a pipe that another thread fills.
    WalkPipe,
    /// Every event by time, in the order in which TraceEvent gives them.
    WalkByTime,
    /// Every value of every event decoded; text stays where it lies.
    Values,
    /// The same, all text turned into UTF-8.
    ValuesText,
    /// The same by time: what TraceEvent does when it makes a string of every text.
    ValuesTextByTime,
    /// The frames of every stack.
    Stacks,
    /// Writing: as many events as the trace has, in V4, thrown away.
    Write,
    /// A trace of the size given that takes no room: memory must not grow with it.
    Endless,
}

/// What it took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes of the trace.
    pub bytes: u64,
    /// Events in it.
    pub events: u64,
    /// Values decoded.
    pub values: u64,
    /// By the clock.
    pub seconds: f64,
    /// Of this thread on a processor, or of the whole process where that is all that is known.
    pub cpu_seconds: f64,
    /// The most memory that the process had present.
    pub peak_kib: u64,
}

impl Figures {
    /// The fastest of two goes over the same trace.
    pub(super) fn fastest(self, other: Figures) -> Figures {
        Figures {
            seconds: self.seconds.min(other.seconds),
            cpu_seconds: self.cpu_seconds.min(other.cpu_seconds),
            peak_kib: self.peak_kib.max(other.peak_kib),
            ..self
        }
    }
}

/// Runs one pass.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub(super) fn run(pass: Pass, file: &Path, size: u64) -> Result<Figures> {
    let open = || File::open(file).with_context(|| format!("opening {}", file.display()));
    let start = Clock::now();
    let mut text = Vec::new();
    let mut values = 0;
    let (bytes, events) = match pass {
        Pass::Walk => walk(open()?, |event| {
            black_box(event.timestamp());
        })?,
        Pass::WalkPipe => {
            let (reader, mut writer) = io::pipe().context("making a pipe")?;
            let mut file = open()?;
            let copy = std::thread::spawn(move || io::copy(&mut file, &mut writer));
            let read = walk(reader, |event| {
                black_box(event.timestamp());
            })?;
            copy.join()
                .map_err(|_| anyhow::anyhow!("the writer of the pipe panicked"))?
                .context("filling the pipe")?;
            read
        }
        Pass::WalkByTime => by_time(open()?, |event| {
            black_box(event.timestamp());
        })?,
        Pass::Values => walk(open()?, |event| {
            values += decode(event);
        })?,
        Pass::ValuesText => walk(open()?, |event| {
            values += decode_as_text(event, &mut text);
        })?,
        Pass::ValuesTextByTime => by_time(open()?, |event| {
            values += decode_as_text(event, &mut text);
        })?,
        Pass::Stacks => walk(open()?, |event| {
            black_box(event.stack().frames().sum::<u64>());
        })?,
        Pass::Write => write(size)?,
        Pass::Endless => endless(size)?,
    };
    Ok(Figures {
        bytes,
        events,
        values,
        seconds: start.wall.elapsed().as_secs_f64(),
        cpu_seconds: start.cpu_seconds(),
        peak_kib: crate::process::peak_rss(std::process::id()) / 1024,
    })
}

fn walk(source: impl Read, mut each: impl FnMut(&Event<'_>)) -> Result<(u64, u64)> {
    let mut reader = Reader::new(source)?;
    while let Some(event) = reader.next_event()? {
        each(&event);
    }
    Ok((reader.offset(), reader.statistics().events))
}

fn by_time(source: impl Read, mut each: impl FnMut(&Event<'_>)) -> Result<(u64, u64)> {
    let mut order = Reader::new(source)?.dispatch_order();
    while let Some(event) = order.next_event()? {
        each(&event);
    }
    let reader = order.reader();
    Ok((reader.offset(), reader.statistics().events))
}

/// Reads every value, nested ones too. How many outer ones there were: what TraceEvent's loop counts.
fn visit(fields: Fields<'_>, text: &mut impl FnMut(nettrace::payload::Utf16<'_>) -> u64) -> u64 {
    let mut count = 0;
    fields.for_each(|(_, value)| {
        black_box(touch(&value, text));
        count += 1;
    });
    count
}

#[inline(always)]
fn touch(value: &Value<'_>, text: &mut impl FnMut(nettrace::payload::Utf16<'_>) -> u64) -> u64 {
    match *value {
        Value::String(found) => text(found),
        Value::Utf8(bytes) | Value::Bytes(bytes) => bytes.len() as u64,
        Value::Object(object) => nested(object.fields().map(|(_, value)| value), text),
        Value::Array(elements) => nested(elements, text),
        Value::Double(value) => value.to_bits(),
        ref value => value.as_u64().unwrap_or(1),
    }
}

#[inline(never)]
fn nested<'a>(
    values: impl Iterator<Item = Value<'a>>,
    text: &mut dyn FnMut(nettrace::payload::Utf16<'_>) -> u64,
) -> u64 {
    let mut text = text;
    values.fold(0, |sum, value| sum.wrapping_add(touch(&value, &mut text)))
}

/// Every value of an event, text left where it lies: how many there were.
#[inline]
pub fn decode(event: &Event<'_>) -> u64 {
    let fields = event.schema().fields(event.payload());
    visit(fields, &mut |text| text.len() as u64)
}

/// Every value of an event, text as UTF-8 in a buffer that is used again.
#[inline]
pub fn decode_as_text(event: &Event<'_>, buffer: &mut Vec<u8>) -> u64 {
    let fields = event.schema().fields(event.payload());
    visit(fields, &mut |text| {
        buffer.clear();
        text.append_to(buffer);
        buffer.len() as u64
    })
}

fn write(count: u64) -> Result<(u64, u64)> {
    let mut events = Events::new(Mix::Text, WriteFormat::V4)?;
    let mut bytes = 0;
    while events.count < count {
        events.next()?;
        if events.writer.output().len() > 256 << 10 {
            bytes += events.writer.output().len() as u64;
            events.writer.output().clear();
        }
    }
    Ok((bytes, count))
}

fn endless(size: u64) -> Result<(u64, u64)> {
    let (head, block) = parts()?;
    let blocks = size / block.len() as u64;
    let whole = head.len() as u64 + blocks * block.len() as u64 + END.len() as u64;
    let source = Repeat {
        head: &head,
        block: &block,
        blocks,
        at: 0,
    };
    let (bytes, events) = walk(source, |event| {
        black_box(event.timestamp());
    })?;
    ensure!(
        bytes == whole,
        "{bytes} bytes read of {whole}: offsets are wrong"
    );
    Ok((bytes, events))
}

/// The end tag of V6.
const END: [u8; 4] = [0; 4];

/// A trace's beginning, and a block of events that can follow any number of times.
fn parts() -> Result<(Vec<u8>, Vec<u8>)> {
    let mut events = Events::new(Mix::Text, WriteFormat::V6)?;
    while events.count < 400 {
        events.next()?;
    }
    events.writer.flush();
    let whole = std::mem::take(events.writer.output());
    let mut at = 20;
    while at < whole.len() {
        let length = 4 + u32::from_le_bytes([whole[at], whole[at + 1], whole[at + 2], 0]) as usize;
        if at + length == whole.len() {
            break;
        }
        at += length;
    }
    Ok((whole[..at].to_vec(), whole[at..].to_vec()))
}

/// A trace of any length that takes no room.
struct Repeat<'a> {
    head: &'a [u8],
    block: &'a [u8],
    blocks: u64,
    at: usize,
}

impl Read for Repeat<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.head.is_empty() {
            let count = self.head.read(out)?;
            return Ok(count);
        }
        let source = if self.blocks > 0 {
            self.block
        } else {
            &END[..]
        };
        let count = (&source[self.at.min(source.len())..]).read(out)?;
        self.at += count;
        if self.blocks > 0 && self.at == self.block.len() {
            self.at = 0;
            self.blocks -= 1;
        }
        Ok(count)
    }
}

/// Both clocks at one moment.
struct Clock {
    wall: Instant,
    cpu: Option<u64>,
}

impl Clock {
    fn now() -> Clock {
        Clock {
            wall: Instant::now(),
            cpu: on_processor_ns(),
        }
    }

    fn cpu_seconds(&self) -> f64 {
        match (on_processor_ns(), self.cpu) {
            (Some(now), Some(before)) => (now - before) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

/// How long this thread has been on a processor, where the system tells.
fn on_processor_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}
