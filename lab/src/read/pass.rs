//! One pass of our reader over a trace, in a process of its own, so that its peak memory is that of the pass.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use eventpipe_os::mapped_file::MappedFile;
use nettrace::payload::{Fields, Value};
use nettrace::{Event, ReadAhead, Reader, ReaderOptions, WriteFormat};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::generate::{Events, Mix};

/// What is done with the events of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// Every event, in the order of the file.
    Walk,
    /// The same, a second thread reading ahead.
    WalkAhead,
    /// The same, the file mapped.
    WalkMapped,
    /// The same from a pipe that another thread fills.
    WalkPipe,
    /// From a pipe, and a thread reads ahead.
    WalkPipeAhead,
    /// Every event by time, in the order in which TraceEvent gives them.
    WalkByTime,
    /// The same, a second thread reading ahead.
    WalkByTimeAhead,
    /// The same, the file mapped.
    WalkByTimeMapped,
    /// Every value of every event decoded; text stays where it lies.
    Values,
    /// The same, a second thread reading ahead.
    ValuesAhead,
    /// The same, the file mapped.
    ValuesMapped,
    /// As `values`, all text turned into UTF-8.
    ValuesText,
    /// The same, a second thread reading ahead.
    ValuesTextAhead,
    /// The same, the file mapped.
    ValuesTextMapped,
    /// As `values-text`, by time: what TraceEvent does when it makes a string of every text.
    ValuesTextByTime,
    /// The same, a second thread reading ahead.
    ValuesTextByTimeAhead,
    /// The same, the file mapped.
    ValuesTextByTimeMapped,
    /// The frames of every stack.
    Stacks,
    /// Writing: as many events as the trace has, in V4, thrown away.
    Write,
    /// A trace of the size given that takes no room: memory must not grow with it.
    Endless,
    /// The same, a second thread reading ahead.
    EndlessAhead,
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
    /// On a processor: of the thread that reads, and of the one that reads ahead of it; of TraceEvent's whole process.
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
    let open = || {
        let opened = File::open(file).map(Source::File);
        opened.with_context(|| format!("opening {}", file.display()))
    };
    let how = pass.how();
    let start = Clock::now(how != How::Alone);
    let mut text = Vec::new();
    let mut values = 0;
    let (bytes, events) = match pass {
        Pass::Walk | Pass::WalkAhead | Pass::WalkMapped => walk(open()?, how, |event| {
            black_box(event.timestamp());
        })?,
        Pass::WalkPipe | Pass::WalkPipeAhead => {
            let (reader, mut writer) = io::pipe().context("making a pipe")?;
            let mut file = open()?;
            let copy = std::thread::spawn(move || io::copy(&mut file, &mut writer));
            let read = walk(Source::Other(Box::new(reader)), how, |event| {
                black_box(event.timestamp());
            })?;
            copy.join()
                .map_err(|_| anyhow::anyhow!("the writer of the pipe panicked"))?
                .context("filling the pipe")?;
            read
        }
        Pass::WalkByTime | Pass::WalkByTimeAhead | Pass::WalkByTimeMapped => {
            by_time(open()?, how, |event| {
                black_box(event.timestamp());
            })?
        }
        Pass::Values | Pass::ValuesAhead | Pass::ValuesMapped => walk(open()?, how, |event| {
            values += decode(event);
        })?,
        Pass::ValuesText | Pass::ValuesTextAhead | Pass::ValuesTextMapped => {
            walk(open()?, how, |event| {
                values += decode_as_text(event, &mut text);
            })?
        }
        Pass::ValuesTextByTime | Pass::ValuesTextByTimeAhead | Pass::ValuesTextByTimeMapped => {
            by_time(open()?, how, |event| {
                values += decode_as_text(event, &mut text);
            })?
        }
        Pass::Stacks => walk(open()?, how, |event| {
            black_box(event.stack().frames().sum::<u64>());
        })?,
        Pass::Write => write(size)?,
        Pass::Endless | Pass::EndlessAhead => endless(size, how)?,
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

/// Who fetches the bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// The thread that reads.
    Alone,
    /// One of its own.
    Ahead,
    /// Nobody: the file is mapped, and a thread only has its pages made present.
    Mapped,
}

impl Pass {
    fn how(self) -> How {
        match self {
            Pass::WalkAhead
            | Pass::WalkPipeAhead
            | Pass::WalkByTimeAhead
            | Pass::ValuesAhead
            | Pass::ValuesTextAhead
            | Pass::ValuesTextByTimeAhead
            | Pass::EndlessAhead => How::Ahead,
            Pass::WalkMapped
            | Pass::WalkByTimeMapped
            | Pass::ValuesMapped
            | Pass::ValuesTextMapped
            | Pass::ValuesTextByTimeMapped => How::Mapped,
            Pass::Walk
            | Pass::WalkPipe
            | Pass::WalkByTime
            | Pass::Values
            | Pass::ValuesText
            | Pass::ValuesTextByTime
            | Pass::Stacks
            | Pass::Write
            | Pass::Endless => How::Alone,
        }
    }
}

/// A source of a trace.
enum Source {
    File(File),
    Mapped(MappedFile),
    Other(Box<dyn Read + Send>),
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Source::File(file) => file.read(out),
            Source::Mapped(file) => file.read(out),
            Source::Other(other) => other.read(out),
        }
    }
}

impl Source {
    fn window(&mut self, offset: u64, length: usize) -> io::Result<Option<Bytes>> {
        match self {
            Source::Mapped(file) => file.window(offset, length),
            Source::File(_) | Source::Other(_) => Ok(None),
        }
    }
}

fn reader(source: Source, how: How) -> Result<Reader<Source>> {
    let ahead = ReadAhead::default();
    let options = ReaderOptions {
        prefetch: (how != How::Alone).then_some(eventpipe_os::memory::prefetch),
        ..ReaderOptions::default()
    };
    Ok(match (how, source) {
        (How::Alone, source) => Reader::with_options(source, options)?,
        (How::Mapped, Source::File(file)) => {
            let file = MappedFile::new(file);
            ensure!(
                file.is_mapped(),
                "the file cannot be mapped: it is small, of somebody else, or being written"
            );
            Reader::in_place(Source::Mapped(file), Source::window, options, ahead)?
        }
        (How::Ahead | How::Mapped, source) => Reader::with_read_ahead(source, options, ahead)?,
    })
}

fn walk(source: Source, how: How, mut each: impl FnMut(&Event<'_>)) -> Result<(u64, u64)> {
    let mut reader = reader(source, how)?;
    while let Some(event) = reader.next_event()? {
        each(&event);
    }
    Ok((reader.offset(), reader.statistics().events))
}

fn by_time(source: Source, how: How, mut each: impl FnMut(&Event<'_>)) -> Result<(u64, u64)> {
    let mut order = reader(source, how)?.dispatch_order();
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

fn endless(size: u64, how: How) -> Result<(u64, u64)> {
    let (head, block) = parts()?;
    let blocks = size / block.len() as u64;
    let whole = head.len() as u64 + blocks * block.len() as u64 + END.len() as u64;
    let source = Repeat {
        head,
        block,
        blocks,
        in_head: true,
        at: 0,
    };
    let (bytes, events) = walk(Source::Other(Box::new(source)), how, |event| {
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
struct Repeat {
    head: Vec<u8>,
    block: Vec<u8>,
    in_head: bool,
    blocks: u64,
    at: usize,
}

impl Read for Repeat {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let source = match (self.in_head, self.blocks) {
            (true, _) => &self.head[..],
            (false, 0) => &END[..],
            _ => &self.block[..],
        };
        let count = (&source[self.at.min(source.len())..]).read(out)?;
        self.at += count;
        if self.in_head && self.at == self.head.len() {
            (self.in_head, self.at) = (false, 0);
        } else if self.blocks > 0 && self.at == self.block.len() {
            self.blocks -= 1;
            self.at = 0;
        }
        Ok(count)
    }
}

/// Both clocks at one moment.
struct Clock {
    wall: Instant,
    id: ClockId,
    cpu: Duration,
}

impl Clock {
    /// Time on a processor is that of this thread, or of the whole process.
    fn now(whole: bool) -> Clock {
        let id = if whole {
            ClockId::ProcessCPUTime
        } else {
            ClockId::ThreadCPUTime
        };
        Clock {
            wall: Instant::now(),
            id,
            cpu: on_processor(id),
        }
    }

    fn cpu_seconds(&self) -> f64 {
        (on_processor(self.id) - self.cpu).as_secs_f64()
    }
}

fn on_processor(id: ClockId) -> Duration {
    let now = clock_gettime(id);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
