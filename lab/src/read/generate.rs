//! Traces made for readers to be measured by.
//!
//! Events lie in the file as a runtime leaves them (nettrace.md 5.4, 7.1): several times a second it writes what each
//! thread has, one thread after another, the first event of each run marked as sorted; so the times of different
//! threads overlap, and a reader that wants them by time has to merge. A sequence point comes every few megabytes.

use std::io::Write;

use anyhow::{Context, Result};
use nettrace::{
    EventRecord, Field, FieldType, FormatVersion, Guid, Metadata, SystemTime, ThreadRow, TraceInfo,
    TraceWriter, UNKNOWN_PROCESSOR, WriteFormat,
};

/// What a trace is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// Events with a text of 100 characters, about 205 bytes each: what the stress program writes.
    Text,
    /// What a web service's recording holds: eleven types of event with numbers, text, GUIDs, times, arrays of pairs,
    /// some with an activity; samples, allocations, exceptions and methods of the runtime are not described in the file.
    Service,
}

/// Writing threads.
const THREADS: u64 = 2;
/// Events of a thread that a runtime under load writes at a time.
const RUN: u64 = 8_000;
/// Runs between two sequence points: about 6 MB of text.
const RUNS_PER_POINT: u64 = 4;
/// Ticks of the clock between two events of a thread, on average.
const PACE: u64 = 1_000;

/// One kind of event that a mix holds.
struct Kind {
    metadata: Metadata,
    payloads: Vec<Vec<u8>>,
    has_activity: bool,
}

/// Makes the events of a trace one after another.
pub(super) struct Events {
    pub(super) writer: TraceWriter,
    kinds: Vec<Kind>,
    /// Which kind comes when; repeated.
    order: Vec<usize>,
    stacks: Vec<Vec<u8>>,
    numbers: [u32; THREADS as usize],
    /// Of the batch: all threads' events lie between this and the next one.
    batch_start: u64,
    clock: u64,
    /// Events made.
    pub(super) count: u64,
}

impl Events {
    /// A trace with its header and descriptions.
    pub(super) fn new(mix: Mix, format: WriteFormat) -> Result<Events> {
        let (kinds, order) = match mix {
            Mix::Text => (text(), vec![0]),
            Mix::Service => service(),
        };
        let mut writer = TraceWriter::new(format, &info());
        for kind in &kinds {
            writer.define_event(&kind.metadata)?;
        }
        for thread in 1..=THREADS {
            let row = ThreadRow {
                thread_id: Some(thread),
                ..ThreadRow::default()
            };
            writer.define_thread(thread, &row)?;
        }
        // A few hundred different stacks of 8 to 39 frames, as a program has that does the same things again and again.
        let stacks = (0..256_u64).map(|stack| {
            (0..8 + stack % 32)
                .flat_map(|frame| (0x7f00_0000_0000 + stack * 64 + frame * 4096).to_le_bytes())
                .collect()
        });
        Ok(Events {
            writer,
            kinds,
            order,
            stacks: stacks.collect(),
            numbers: [0; THREADS as usize],
            batch_start: 1_000_000,
            clock: 0,
            count: 0,
        })
    }

    /// Writes one more event.
    pub(super) fn next(&mut self) -> Result<()> {
        let (in_run, run) = (self.count % RUN, self.count / RUN);
        let thread = (run % THREADS) as usize;
        if in_run == 0 {
            if thread == 0 {
                // Nothing of this batch is older than the point.
                self.batch_start += RUN * PACE * 2;
                if run.is_multiple_of(RUNS_PER_POINT) && run > 0 {
                    let threads = (1..=THREADS).zip(self.numbers);
                    self.writer.sequence_point(self.batch_start - 1, 0, threads);
                }
            }
            // The runs begin one after another in time as in the file: the marks promise that.
            self.clock = self.batch_start + thread as u64 * 7;
        } else {
            self.clock += PACE / 2 + self.count * 7919 % PACE;
        }
        self.numbers[thread] += 1;
        let kind = &self.kinds[self.order[(self.count % self.order.len() as u64) as usize]];
        let stack = &self.stacks[(self.count / 16 * 31) as usize % self.stacks.len()];
        let activity_id = if kind.has_activity {
            guid(self.count / 512)
        } else {
            Guid::ZERO
        };
        let record = EventRecord {
            metadata_id: kind.metadata.id,
            sequence_number: self.numbers[thread],
            thread_id: thread as u64 + 1,
            capture_thread_id: thread as u64 + 1,
            processor_number: UNKNOWN_PROCESSOR,
            stack_id: self.writer.stack(stack)?,
            timestamp: self.clock,
            activity_id,
            related_activity_id: Guid::ZERO,
            is_sorted: in_run == 0,
            label_list: 0,
            payload: &kind.payloads[(self.count / 3) as usize % kind.payloads.len()],
        };
        self.writer.event(&record)?;
        self.count += 1;
        Ok(())
    }
}

/// Writes a trace of about `size` bytes: how many events it has.
///
/// # Errors
/// The file cannot be written.
pub fn generate(mix: Mix, size: u64, out: &mut impl Write) -> Result<u64> {
    let mut events = Events::new(mix, WriteFormat::V4)?;
    let mut written = 0;
    while written < size {
        events.next()?;
        if events.writer.output().len() > 1 << 20 {
            written += events.writer.output().len() as u64;
            out.write_all(events.writer.output())
                .context("writing the trace")?;
            events.writer.output().clear();
        }
    }
    events.writer.finish();
    out.write_all(events.writer.output())
        .context("writing the trace")?;
    Ok(events.count)
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

fn text() -> Vec<Kind> {
    let text = "x".repeat(100);
    vec![kind(
        1,
        ("EventPipeStress", 1, "Text"),
        4,
        &[("payload", FieldType::String)],
        vec![Payload::default().text(&text).0],
    )]
}

const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";

/// The kinds of [`Mix::Service`], and how often each comes in a hundred events.
#[rustfmt::skip]
fn service() -> (Vec<Kind>, Vec<usize>) {
    use FieldType::{Boolean, Byte, DateTime, Double, Int32, Int64, String};
    let each = |make: &dyn Fn(u64) -> Payload| (0..16).map(|n| make(n).0).collect::<Vec<_>>();
    let path = |n: u64| format!("/api/v1/customers/{}/orders?page={n}", 10_000 + n * 37);
    let shares = [
        // Described by the readers' tables, as the runtime's own events are.
        (24, kind(1, ("Microsoft-DotNETCore-SampleProfiler", 0, ""), 0, &[], each(&|n| Payload::default().u32(1 + (n % 2) as u32)))),
        (18, kind(2, (RUNTIME, 10, ""), 4, &[], each(&|n| {
            Payload::default().u32(106_496).u32(0).u16(9).u64(106_496 + n).u64(0x7f12_3456_7890)
                .text("System.Collections.Generic.Dictionary`2[System.String,System.Object]")
                .u32(n as u32).u64(0x7f99_0000_0000 + n * 64).u64(88 + n * 8)
        }))),
        (4, kind(3, (RUNTIME, 143, ""), 1, &[], each(&|n| {
            Payload::default().u64(0x7f12_0000_0000 + n).u64(0x7f12_1111_0000).u64(0x7f12_2222_0000 + n * 512)
                .u32(317).u32(0x0600_0123).u32(9)
                .text("Microsoft.AspNetCore.Server.Kestrel.Core.Internal.Http.HttpProtocol")
                .text("ProcessRequestsAsync").text("instance class System.Threading.Tasks.Task (!!0)").u16(9).u64(0)
        }))),
        (2, kind(4, (RUNTIME, 80, ""), 1, &[], each(&|n| {
            Payload::default().text("System.InvalidOperationException")
                .text(&format!("Order {n} was changed by somebody else.")).u64(0x7f12_3333_0000).u32(0x8013_1509).u16(16).u16(9)
        }))),
        (10, activity(kind(5, ("System.Net.Http", 1, "RequestStart"), 0,
            &[("scheme", String), ("host", String), ("port", Int32), ("pathAndQuery", String), ("versionMajor", Byte),
              ("versionMinor", Byte), ("versionPolicy", Int32)],
            each(&|n| Payload::default().text("https").text("orders.example.org").u32(443).text(&path(n)).u8(1).u8(1).u32(0))))),
        (10, activity(kind(6, ("System.Net.Http", 2, "RequestStop"), 1, &[("statusCode", Int32)],
            each(&|n| Payload::default().u32(200 + n as u32 % 2))))),
        (8, activity(kind(7, ("Example-Orders", 1, "OrderPlaced"), 0,
            &[("order", FieldType::Guid), ("customer", Int64), ("placed", DateTime), ("total", Double), ("express", Boolean),
              ("country", String)],
            each(&|n| Payload::default().guid(n).u64(10_000 + n).u64(134_000_000_000_000_000 + n).u64((99.5_f64 + n as f64).to_bits())
                .u32((n % 2) as u32).text("Germany"))))),
        (8, activity(kind(8, ("Example-Data", 3, "CommandExecuted"), 0,
            &[("command", String), ("milliseconds", Double), ("rows", Int32)],
            each(&|n| Payload::default()
                .text("SELECT o.Id, o.Customer, o.Placed, o.Total FROM Orders AS o WHERE o.Customer = @p0 ORDER BY o.Placed DESC LIMIT @p1")
                .u64((1.25_f64 + n as f64).to_bits()).u32(n as u32))))),
        (6, activity(kind(9, ("Microsoft-Extensions-Logging", 2, "MessageJson"), 0,
            &[("Level", Int32), ("FactoryID", Int32), ("LoggerName", String), ("EventID", Int32), ("EventName", String),
              ("ExceptionJson", String), ("ArgumentsJson", String), ("FormattedMessage", String)],
            each(&|n| Payload::default().u32(2).u32(1).text("Example.Orders.Controllers.OrderController").u32(14).text("Placed").text("{}")
                .text(&format!("{{\"customer\":\"{n}\",\"{{OriginalFormat}}\":\"Customer {{customer}} placed an order\"}}"))
                .text(&format!("Customer {n} placed an order")))))),
        (4, kind(10, ("Microsoft-Diagnostics-DiagnosticSource", 1, "Event"), 0, &[],
            each(&|n| Payload::default().text("Microsoft.AspNetCore").text("Microsoft.AspNetCore.Hosting.HttpRequestIn.Start").u16(3)
                .text("Method").text("GET").text("Path").text(&path(n)).text("TraceIdentifier").text("0HN4CKQ2D9F1A:00000002")))),
        (6, kind(11, ("System.Diagnostics.Metrics", 6, "HistogramValuePublished"), 1,
            &[("sessionId", String), ("meterName", String), ("meterVersion", String), ("instrumentName", String), ("unit", String),
              ("tags", String), ("quantiles", String), ("count", Int32), ("sum", Double)],
            each(&|n| Payload::default().text("SHARED").text("Microsoft.AspNetCore.Hosting").text("").text("http.server.request.duration")
                .text("s").text("http.request.method=GET,http.response.status_code=200").text("0.5=0.01;0.95=0.09;0.99=0.3")
                .u32(n as u32).u64((0.25_f64 * n as f64).to_bits())))),
    ];
    let counts: Vec<usize> = shares.iter().map(|(count, _)| *count).collect();
    // Spread evenly: a stride that has no factor in common with the length visits every place once.
    let sorted: Vec<usize> = counts
        .iter()
        .enumerate()
        .flat_map(|(kind, count)| std::iter::repeat_n(kind, *count))
        .collect();
    let order = (0..sorted.len()).map(|place| sorted[place * 37 % sorted.len()]);
    let order = order.collect();
    (shares.into_iter().map(|(_, kind)| kind).collect(), order)
}

fn kind(
    id: u32,
    (provider, event_id, name): (&str, u32, &str),
    version: u32,
    fields: &[(&str, FieldType)],
    payloads: Vec<Vec<u8>>,
) -> Kind {
    let fields = fields.iter().map(|(name, field_type)| Field {
        name: (*name).to_owned(),
        field_type: field_type.clone(),
    });
    Kind {
        metadata: Metadata {
            id,
            provider: provider.to_owned(),
            event_id,
            name: name.to_owned(),
            version,
            level: 4,
            fields: fields.collect(),
            ..Metadata::default()
        },
        payloads,
        has_activity: false,
    }
}

fn activity(kind: Kind) -> Kind {
    Kind {
        has_activity: true,
        ..kind
    }
}

fn guid(number: u64) -> Guid {
    let mut bytes = [0x5a; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Guid(bytes)
}

/// A payload under construction.
#[derive(Default)]
struct Payload(Vec<u8>);

impl Payload {
    fn bytes(mut self, bytes: &[u8]) -> Payload {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u8(self, value: u8) -> Payload {
        self.bytes(&[value])
    }

    fn u16(self, value: u16) -> Payload {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Payload {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Payload {
        self.bytes(&value.to_le_bytes())
    }

    fn guid(self, number: u64) -> Payload {
        self.bytes(&guid(number).0)
    }

    fn text(mut self, text: &str) -> Payload {
        let units = text.encode_utf16().chain([0]);
        self.0.extend(units.flat_map(u16::to_le_bytes));
        self
    }
}
