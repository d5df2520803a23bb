//! How fast traces are walked and written: `cargo bench -p nettrace --bench walk -- [GIGABYTES] [FILE…]`.
//!
//! With `-- GIGABYTES generate FILE` it only writes the trace, for other readers to be measured by.
//!
//! Makes a trace of the events that `stress` of the peers writes (text of 100 characters, about 213 bytes in the
//! file; half a dozen stacks), and reads it from a file, from a pipe, and from memory without end, where five times
//! the size must take the same memory. Files given are walked too. Best of five rounds, by the time on the processor.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use nettrace::payload::{Fields, Value};
use nettrace::{
    EventRecord, Field, FieldType, FormatVersion, Guid, Metadata, Reader, SystemTime, TraceInfo,
    TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};

const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"));
    let gigabytes: f64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0.25);
    let size = (gigabytes * 1e9) as u64;
    let mut arguments: Vec<std::path::PathBuf> = arguments.map(Into::into).collect();
    if let [word, file] = arguments.as_slice()
        && word.as_os_str() == "generate"
    {
        let events = generate(size, &mut File::create(file).unwrap());
        return println!("{events} events");
    }
    let (head, block) = parts();
    for factor in [1, 5] {
        best(&format!("walk, {factor} × the size from memory"), || {
            let blocks = size * factor / block.len() as u64;
            let mut endless = Repeat {
                head: &head,
                block: &block,
                blocks,
                at: 0,
            };
            let walk = walk(&mut endless, |event| {
                black_box(event.timestamp());
            });
            let whole = head.len() as u64 + blocks * block.len() as u64 + 4;
            assert_eq!(walk.bytes, whole, "offsets count beyond 4 GiB");
            walk
        });
        println!(
            "{:48} {} KiB",
            "  highest memory of the process so far",
            resident_kib()
        );
    }
    let path = std::env::temp_dir().join(format!("nettrace-walk-{}.nettrace", std::process::id()));
    let events = generate(size, &mut File::create(&path).unwrap());
    println!(
        "{events} events, {} bytes",
        std::fs::metadata(&path).unwrap().len()
    );
    type Run = fn(&mut dyn FnMut() -> Box<dyn Read>) -> Walk;
    let walks: [(&str, Run); 6] = [
        ("walk", |open| {
            walk(&mut *open(), |event| {
                black_box(event.timestamp());
            })
        }),
        ("walk, touching every payload byte", |open| {
            walk(&mut *open(), |event| {
                black_box(
                    event
                        .payload()
                        .iter()
                        .fold(0u8, |sum, byte| sum.wrapping_add(*byte)),
                );
            })
        }),
        ("walk, every value decoded", |open| {
            walk(&mut *open(), |event| {
                black_box(visit(event.schema().fields(event.payload())));
            })
        }),
        ("walk, every value decoded, text as UTF-8", |open| {
            let mut text = Vec::new();
            walk(&mut *open(), |event| {
                black_box(visit_text(
                    event.schema().fields(event.payload()),
                    &mut text,
                ));
            })
        }),
        ("walk, every stack", |open| {
            walk(&mut *open(), |event| {
                black_box(event.stack().frames().sum::<u64>());
            })
        }),
        ("dispatch order", |open| dispatch(&mut *open())),
    ];
    let mut files: Vec<std::path::PathBuf> = vec![path.clone()];
    files.append(&mut arguments);
    for file in &files {
        for (name, walk) in walks {
            best(&format!("{name}, from a file"), || {
                walk(&mut || Box::new(File::open(file).unwrap()))
            });
        }
        best("walk, from a pipe", || {
            let (reader, mut writer) = io::pipe().unwrap();
            let mut file = File::open(file).unwrap();
            let copy = std::thread::spawn(move || io::copy(&mut file, &mut writer));
            let walk = walk(&mut { reader }, |event| {
                black_box(event.timestamp());
            });
            copy.join().unwrap().unwrap();
            walk
        });
    }
    std::fs::remove_file(&path).unwrap();

    for (format, name) in [(WriteFormat::V4, "write V4"), (WriteFormat::V6, "write V6")] {
        best(name, || write(format, 1_000_000));
    }
}

struct Walk {
    bytes: u64,
    events: u64,
    time: Duration,
    /// Time on a processor: on a busy machine the only one that says something.
    cpu: Duration,
}

fn best(name: &str, mut run: impl FnMut() -> Walk) {
    let best = (0..ROUNDS)
        .map(|_| run())
        .min_by_key(|walk| walk.cpu)
        .unwrap();
    let (wall, cpu) = (best.time.as_secs_f64(), best.cpu.as_secs_f64());
    println!(
        "{name:48} {:6.2} GB/s ({:5.2} by the clock) {:7.2} Mevents/s {:6.1} ns/event",
        best.bytes as f64 / cpu / 1e9,
        best.bytes as f64 / wall / 1e9,
        best.events as f64 / cpu / 1e6,
        cpu * 1e9 / best.events as f64
    );
}

struct Clock {
    time: Instant,
    cpu: Option<u64>,
}

impl Clock {
    fn now() -> Clock {
        Clock {
            time: Instant::now(),
            cpu: on_processor_ns(),
        }
    }

    fn cpu(&self) -> Duration {
        match (on_processor_ns(), self.cpu) {
            (Some(now), Some(before)) => Duration::from_nanos(now - before),
            _ => self.time.elapsed(),
        }
    }
}

/// How long this thread has been on a processor, where the system tells.
fn on_processor_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// Reads every value, nested ones too; a sum of them keeps the compiler honest.
fn visit(fields: Fields<'_>) -> u64 {
    fields.fold(0, |sum, (_, value)| sum.wrapping_add(touch(&value)))
}

fn touch(value: &Value<'_>) -> u64 {
    match *value {
        Value::String(text) => text.len() as u64,
        Value::Utf8(bytes) | Value::Bytes(bytes) => bytes.len() as u64,
        Value::Object(object) => visit(object.fields()),
        Value::Array(elements) => elements.fold(0, |sum, one| sum.wrapping_add(touch(&one))),
        Value::Double(value) => value.to_bits(),
        ref value => value.as_u64().unwrap_or(1),
    }
}

/// The same, with the outer texts turned into UTF-8.
fn visit_text(fields: Fields<'_>, scratch: &mut Vec<u8>) -> u64 {
    fields.fold(0, |sum, (_, value)| {
        sum.wrapping_add(match value {
            Value::String(text) => {
                scratch.clear();
                text.append_to(scratch);
                scratch.len() as u64
            }
            ref value => touch(value),
        })
    })
}

fn walk<R: Read>(source: R, mut each: impl FnMut(&nettrace::Event<'_>)) -> Walk {
    let start = Clock::now();
    let mut reader = Reader::new(source).unwrap();
    let mut events = 0;
    while let Some(event) = reader.next_event().unwrap() {
        each(&event);
        events += 1;
    }
    Walk {
        bytes: reader.offset(),
        events,
        time: start.time.elapsed(),
        cpu: start.cpu(),
    }
}

fn dispatch<R: Read>(source: R) -> Walk {
    let start = Clock::now();
    let mut order = Reader::new(source).unwrap().dispatch_order();
    let mut events = 0;
    while let Some(event) = order.next_event().unwrap() {
        black_box(event.timestamp());
        events += 1;
    }
    Walk {
        bytes: order.reader().offset(),
        events,
        time: start.time.elapsed(),
        cpu: start.cpu(),
    }
}

fn info() -> TraceInfo {
    TraceInfo {
        format: FormatVersion::V4,
        start: SystemTime::from_unix_ns(0),
        sync_ticks: 0,
        ticks_per_second: 1_000_000_000,
        pointer_size: 8,
        process_id: Some(1),
        processor_count: Some(2),
        sampling_period_ns: Some(1_000_000),
        pairs: Vec::new(),
    }
}

fn metadata() -> Metadata {
    Metadata {
        id: 1,
        provider: "EventPipeStress".to_owned(),
        event_id: 1,
        name: "Text".to_owned(),
        level: 4,
        fields: vec![Field {
            name: "text".to_owned(),
            field_type: FieldType::String,
        }],
        ..Metadata::default()
    }
}

/// Events as two threads write them: runs of a thread, the first of a run marked as sorted.
struct Events {
    writer: TraceWriter,
    payload: Vec<u8>,
    stacks: Vec<Vec<u8>>,
    numbers: [u32; 2],
    clock: u64,
    count: u64,
}

/// Events of one thread in a row.
const RUN: u64 = 400;

impl Events {
    fn new(format: WriteFormat) -> Events {
        let mut writer = TraceWriter::new(format, &info());
        writer.define_event(&metadata()).unwrap();
        for thread in 1..=2 {
            let row = nettrace::ThreadRow {
                thread_id: Some(thread),
                ..Default::default()
            };
            writer.define_thread(thread, &row).unwrap();
        }
        let payload = "x"
            .repeat(100)
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        let stacks = (0..6u64).map(|stack| {
            (0..20u64)
                .flat_map(|frame| (stack * 100 + frame).to_le_bytes())
                .collect()
        });
        Events {
            writer,
            payload,
            stacks: stacks.collect(),
            numbers: [0; 2],
            clock: 1_000_000,
            count: 0,
        }
    }

    fn next(&mut self) {
        let thread = (self.count / RUN % 2) as usize;
        self.numbers[thread] += 1;
        self.clock += 300 + self.count % 64;
        let stack_id = self
            .writer
            .stack(&self.stacks[(self.count / 16) as usize % self.stacks.len()])
            .unwrap();
        let record = EventRecord {
            metadata_id: 1,
            sequence_number: self.numbers[thread],
            thread_id: thread as u64 + 1,
            capture_thread_id: thread as u64 + 1,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id,
            timestamp: self.clock,
            activity_id: Guid::ZERO,
            related_activity_id: Guid::ZERO,
            is_sorted: self.count.is_multiple_of(RUN),
            label_list: 0,
            payload: &self.payload,
        };
        self.writer.event(&record).unwrap();
        self.count += 1;
    }
}

/// Writes a trace of about `size` bytes: events written.
fn generate(size: u64, out: &mut impl Write) -> u64 {
    let mut events = Events::new(WriteFormat::V4);
    let mut written = 0;
    while written < size {
        events.next();
        if events.count.is_multiple_of(40_000) {
            let threads = [(1, events.numbers[0]), (2, events.numbers[1])];
            events.writer.sequence_point(events.clock, 0, threads);
        }
        if events.writer.output().len() > 1 << 20 {
            written += events.writer.output().len() as u64;
            out.write_all(events.writer.output()).unwrap();
            events.writer.output().clear();
        }
    }
    events.writer.finish();
    out.write_all(events.writer.output()).unwrap();
    events.count
}

fn write(format: WriteFormat, count: u64) -> Walk {
    let mut events = Events::new(format);
    let mut bytes = 0;
    let start = Clock::now();
    while events.count < count {
        events.next();
        if events.writer.output().len() > 256 << 10 {
            bytes += events.writer.output().len() as u64;
            events.writer.output().clear();
        }
    }
    Walk {
        bytes,
        events: count,
        time: start.time.elapsed(),
        cpu: start.cpu(),
    }
}

/// A trace's beginning, and a block of events that can follow any number of times.
fn parts() -> (Vec<u8>, Vec<u8>) {
    let mut events = Events::new(WriteFormat::V6);
    while events.count < RUN {
        events.next();
    }
    events.writer.flush();
    let whole = std::mem::take(events.writer.output());
    let head = whole.len() - block_length(&whole);
    (whole[..head].to_vec(), whole[head..].to_vec())
}

/// Length of the last block of a V6 stream.
fn block_length(stream: &[u8]) -> usize {
    let mut at = 20;
    loop {
        let length =
            4 + u32::from_le_bytes([stream[at], stream[at + 1], stream[at + 2], 0]) as usize;
        if at + length == stream.len() {
            return length;
        }
        at += length;
    }
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
        let source = if self.head.is_empty() {
            &self.block[self.at..]
        } else {
            self.head
        };
        if self.blocks == 0 {
            let count = out.len().min(4_usize.saturating_sub(self.at));
            out[..count].fill(0);
            self.at += count;
            return Ok(count);
        }
        let count = out.len().min(source.len());
        out[..count].copy_from_slice(&source[..count]);
        if !self.head.is_empty() {
            self.head = &self.head[count..];
        } else {
            self.at += count;
            if self.at == self.block.len() {
                self.at = 0;
                self.blocks -= 1;
            }
        }
        Ok(count)
    }
}

/// The most memory that this process ever had in use, in KiB; 0 where it cannot be asked.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0)
}
