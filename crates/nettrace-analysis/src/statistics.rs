//! The report "stat": what a trace holds, counted by event and by thread.
//!
//! [`Collector::add`] takes every event once, in any order; [`Collector::finish`] makes the report.
//! Memory grows with the number of event types and threads, not with the number of events.

use nettrace::{Event, FormatVersion, Losses, Metadata, Reader, Schema, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Read;

/// What a trace holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceStatistics {
    /// Version of the format, 1 to 6.
    pub format: u32,
    /// The traced process, if the trace says and there is one only.
    pub process_id: Option<u64>,
    /// UTC at the start of the trace, RFC 3339 to the millisecond.
    pub start: String,
    /// Milliseconds from the start of the trace to its last event.
    pub duration_ms: f64,
    /// All events.
    pub total_events: u64,
    /// Bytes of all payloads.
    pub total_payload_bytes: u64,
    /// Events that the writer could not keep.
    pub lost: LostEvents,
    /// Whether the trace was read to its end tag.
    pub complete: bool,
    /// Per provider and event, the most frequent first.
    pub events: Vec<EventStatistics>,
    /// Per thread, the busiest first.
    pub threads: Vec<ThreadStatistics>,
}

/// Events that are not in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LostEvents {
    /// All that the trace can tell.
    pub total: u64,
    /// Missing between events or before a sequence point: what TraceEvent counts.
    pub gaps: u64,
    /// Missing before the first event of a thread.
    pub at_start: u64,
    /// Whether there may be more than the trace can tell.
    pub at_least: bool,
}

/// One kind of event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventStatistics {
    /// The provider.
    pub provider: String,
    /// The event's name as TraceEvent has it.
    pub event: String,
    /// The provider's number for the event.
    pub id: u32,
    /// How many.
    pub count: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Milliseconds from the start of the trace to the first of them.
    pub first_ms: f64,
    /// The same to the last.
    pub last_ms: f64,
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStatistics {
    /// The operating system's number.
    pub thread_id: u64,
    /// Events about this thread.
    pub events: u64,
    /// Events that this thread wrote (a sampler writes events about other threads).
    pub written: u64,
    /// Events that this thread tried to write and that were lost.
    pub lost: u64,
    /// Bytes of the payloads of the events about this thread.
    pub payload_bytes: u64,
    /// Milliseconds from the start of the trace to the first event about the thread.
    pub first_ms: Option<f64>,
    /// The same to the last.
    pub last_ms: Option<f64>,
}

/// Counts the events of one trace.
#[derive(Debug, Default)]
pub struct Collector {
    kinds: Vec<Kind>,
    /// Metadata id to place in `kinds`; `usize::MAX` while unknown.
    by_metadata: HashMap<u32, usize>,
    /// The same by provider, name and event id, for ids that change their meaning to and fro.
    by_name: HashMap<(String, String, u32), usize>,
    threads: HashMap<u64, Tally>,
    total: Tally,
}

#[derive(Debug)]
struct Kind {
    provider: String,
    name: String,
    event: String,
    id: u32,
    tally: Tally,
    /// `None` for a kind that a payload made.
    schema: Option<Schema>,
    /// The kind of those whose payload gives them another name.
    refined: Option<usize>,
}

/// Count, bytes, first and last time stamp.
#[derive(Clone, Copy, Debug)]
struct Tally {
    count: u64,
    bytes: u64,
    first: i64,
    last: i64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally {
            count: 0,
            bytes: 0,
            first: i64::MAX,
            last: i64::MIN,
        }
    }
}

impl Tally {
    fn add(&mut self, bytes: u64, timestamp: i64) {
        self.count += 1;
        self.bytes += bytes;
        self.first = self.first.min(timestamp);
        self.last = self.last.max(timestamp);
    }
}

impl Collector {
    /// Nothing counted yet.
    pub fn new() -> Collector {
        Collector::default()
    }

    /// Counts an event.
    pub fn add(&mut self, event: &Event<'_>) {
        let (payload, timestamp) = (event.payload(), event.timestamp());
        let bytes = payload.len() as u64;
        let kind = self.kind(event.metadata(), event.pointer_size());
        let kind = self.refined_kind(kind, payload);
        self.kinds[kind].tally.add(bytes, timestamp);
        self.threads
            .entry(event.thread_id())
            .or_default()
            .add(bytes, timestamp);
        self.total.add(bytes, timestamp);
    }

    /// Events counted so far.
    pub fn events(&self) -> u64 {
        self.total.count
    }

    /// The report over what was counted, with what the reader found out beside the events.
    pub fn finish<R: Read>(self, reader: &Reader<R>) -> TraceStatistics {
        let info = reader.info();
        let losses = reader.losses();
        let ms = |timestamp: i64| info.nanoseconds(timestamp) as f64 / 1e6;
        // One event may have several descriptions (nettrace.md 9): they are one row.
        let mut rows: Vec<EventStatistics> = Vec::new();
        let mut row_of: HashMap<(String, String, u32), usize> = HashMap::new();
        for kind in self.kinds.into_iter().filter(|kind| kind.tally.count > 0) {
            let (first_ms, last_ms) = (ms(kind.tally.first), ms(kind.tally.last));
            let key = (kind.provider.clone(), kind.event.clone(), kind.id);
            if let Some(&row) = row_of.get(&key) {
                let row = &mut rows[row];
                row.count += kind.tally.count;
                row.payload_bytes += kind.tally.bytes;
                row.first_ms = row.first_ms.min(first_ms);
                row.last_ms = row.last_ms.max(last_ms);
            } else {
                row_of.insert(key, rows.len());
                rows.push(EventStatistics {
                    provider: kind.provider,
                    event: kind.event,
                    id: kind.id,
                    count: kind.tally.count,
                    payload_bytes: kind.tally.bytes,
                    first_ms,
                    last_ms,
                });
            }
        }
        rows.sort_by(|a, b| {
            b.count
                .cmp(&a.count)
                .then_with(|| (&a.provider, a.id, &a.event).cmp(&(&b.provider, b.id, &b.event)))
        });
        TraceStatistics {
            format: version_number(info.format),
            process_id: info.process_id,
            start: start_text(info),
            duration_ms: if self.total.count == 0 {
                0.0
            } else {
                ms(self.total.last)
            },
            total_events: self.total.count,
            total_payload_bytes: self.total.bytes,
            lost: LostEvents {
                total: losses.total(),
                gaps: losses.gaps,
                at_start: losses.at_start,
                at_least: losses.is_lower_bound,
            },
            complete: reader.is_complete(),
            events: rows,
            threads: thread_rows(&self.threads, losses, ms),
        }
    }

    fn kind(&mut self, metadata: &Metadata, pointer_size: u32) -> usize {
        let place = self.by_metadata.entry(metadata.id).or_insert(usize::MAX);
        // V6 may give an id a new meaning: the description decides, the id is only a shortcut.
        let fits = |kind: &Kind| {
            kind.id == metadata.event_id
                && kind.provider == metadata.provider
                && kind.name == metadata.name
        };
        if !self.kinds.get(*place).is_some_and(fits) {
            let (provider, name) = (metadata.provider.clone(), metadata.name.clone());
            let key = (provider.clone(), name.clone(), metadata.event_id);
            *place = *self.by_name.entry(key).or_insert_with(|| {
                let schema = Schema::new(metadata, pointer_size);
                self.kinds.push(Kind {
                    provider,
                    name,
                    event: schema.event_name().to_owned(),
                    id: metadata.event_id,
                    tally: Tally::default(),
                    schema: Some(schema),
                    refined: None,
                });
                self.kinds.len() - 1
            });
        }
        *place
    }

    /// The kind of a particular event: where the payload decides its name, a kind of its own.
    fn refined_kind(&mut self, base: usize, payload: &[u8]) -> usize {
        let Some(schema) = &self.kinds[base].schema else {
            return base;
        };
        let refined = schema.of_payload(payload);
        if std::ptr::eq(refined, schema) {
            return base;
        }
        if let Some(place) = self.kinds[base].refined {
            return place;
        }
        let place = self.kinds.len();
        let kind = &self.kinds[base];
        self.kinds.push(Kind {
            provider: kind.provider.clone(),
            name: kind.name.clone(),
            event: refined.event_name().to_owned(),
            id: kind.id,
            tally: Tally::default(),
            schema: None,
            refined: None,
        });
        self.kinds[base].refined = Some(place);
        place
    }
}

/// The number of a format version.
pub fn version_number(version: FormatVersion) -> u32 {
    match version {
        FormatVersion::V1 => 1,
        FormatVersion::V2 => 2,
        FormatVersion::V3 => 3,
        FormatVersion::V4 => 4,
        FormatVersion::V5 => 5,
        FormatVersion::V6 => 6,
    }
}

/// The start of a trace as RFC 3339 in UTC, to the millisecond, exactly as the file holds it.
pub fn start_text(info: &TraceInfo) -> String {
    let start = info.start;
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        start.year,
        start.month,
        start.day,
        start.hour,
        start.minute,
        start.second,
        start.millisecond
    )
}

fn thread_rows(
    tallies: &HashMap<u64, Tally>,
    losses: &Losses,
    ms: impl Fn(i64) -> f64,
) -> Vec<ThreadStatistics> {
    let mut rows: HashMap<u64, ThreadStatistics> = HashMap::new();
    let empty = |thread_id| ThreadStatistics {
        thread_id,
        events: 0,
        written: 0,
        lost: 0,
        payload_bytes: 0,
        first_ms: None,
        last_ms: None,
    };
    for (&thread_id, tally) in tallies {
        let row = rows.entry(thread_id).or_insert_with(|| empty(thread_id));
        row.events = tally.count;
        row.payload_bytes = tally.bytes;
        row.first_ms = Some(ms(tally.first));
        row.last_ms = Some(ms(tally.last));
    }
    for thread in losses.threads() {
        let row = rows
            .entry(thread.thread_id)
            .or_insert_with(|| empty(thread.thread_id));
        // In V6 a thread number may be used by several threads, one after the other.
        row.written += thread.delivered;
        row.lost += thread.gaps + thread.at_start;
    }
    let mut rows: Vec<ThreadStatistics> = rows.into_values().collect();
    rows.sort_by(|a, b| b.events.cmp(&a.events).then(a.thread_id.cmp(&b.thread_id)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use nettrace::{EventRecord, FORGET_METADATA, SystemTime, ThreadRow, TraceWriter, WriteFormat};

    fn info() -> TraceInfo {
        TraceInfo {
            format: FormatVersion::V6,
            start: SystemTime::from_unix_ns(0),
            sync_ticks: 0,
            ticks_per_second: 1_000_000_000,
            pointer_size: 8,
            process_id: None,
            processor_count: None,
            sampling_period_ns: None,
            pairs: Vec::new(),
        }
    }

    fn statistics(trace: &[u8]) -> TraceStatistics {
        let mut reader = Reader::new(trace).unwrap();
        let mut collector = Collector::new();
        while let Some(event) = reader.next_event().unwrap() {
            collector.add(&event);
        }
        collector.finish(&reader)
    }

    /// A name that implies an opcode, and the same with the opcode said, are one event to who reads the report.
    #[test]
    fn events_that_are_called_the_same_are_one_row() {
        let mut writer = TraceWriter::new(WriteFormat::V6, &info());
        for (id, name, opcode) in [(1, "Request", 1), (2, "RequestStart", 0)] {
            let metadata = Metadata {
                id,
                provider: "P".into(),
                name: name.into(),
                event_id: 7,
                opcode,
                ..Metadata::default()
            };
            writer.define_event(&metadata).unwrap();
        }
        for (number, (metadata_id, ms)) in
            [(1, 20), (2, 10), (1, 30), (2, 40)].into_iter().enumerate()
        {
            let event = EventRecord {
                metadata_id,
                sequence_number: number as u32 + 1,
                thread_id: 1,
                capture_thread_id: 1,
                timestamp: ms * 1_000_000,
                payload: &[0; 3],
                ..EventRecord::default()
            };
            writer.event(&event).unwrap();
        }
        writer.finish();
        let report = statistics(writer.output());
        assert_eq!(
            report.events,
            [EventStatistics {
                provider: "P".into(),
                event: "Request/Start".into(),
                id: 7,
                count: 4,
                payload_bytes: 12,
                first_ms: 10.0,
                last_ms: 40.0,
            }]
        );
    }

    /// The system gives the number of a thread that ended to the next one: two threads, of which the first wrote 2 of 6
    /// events and the second 1 of 2, about another one.
    #[test]
    fn threads_of_one_number_add_up() {
        let mut writer = TraceWriter::new(WriteFormat::V6, &info());
        let metadata = Metadata {
            id: 1,
            provider: "P".into(),
            event_id: 1,
            ..Metadata::default()
        };
        writer.define_event(&metadata).unwrap();
        for (index, thread_id) in [(1, 500), (2, 500), (3, 600)] {
            let row = ThreadRow {
                thread_id: Some(thread_id),
                ..ThreadRow::default()
            };
            writer.define_thread(index, &row).unwrap();
        }
        for (index, sequence_number) in [(1, 3), (1, 6), (2, 2)] {
            let event = EventRecord {
                metadata_id: 1,
                sequence_number,
                thread_id: 3,
                capture_thread_id: index,
                timestamp: 5_000_000,
                ..EventRecord::default()
            };
            writer.event(&event).unwrap();
        }
        writer.finish();
        let report = statistics(writer.output());
        let lost = LostEvents {
            total: 5,
            gaps: 2,
            at_start: 3,
            at_least: false,
        };
        assert_eq!(report.lost, lost);
        let thread = |thread_id, events, written, lost| ThreadStatistics {
            thread_id,
            events,
            written,
            lost,
            payload_bytes: 0,
            first_ms: Some(5.0).filter(|_| events > 0),
            last_ms: Some(5.0).filter(|_| events > 0),
        };
        assert_eq!(report.threads, [thread(600, 3, 0, 0), thread(500, 0, 3, 5)]);
    }

    #[test]
    fn an_id_that_changes_its_meaning_to_and_fro_takes_no_more_room() {
        let info = info();
        let mut writer = TraceWriter::new(WriteFormat::V6, &info);
        for round in 0..100 {
            let metadata = Metadata {
                id: 1,
                provider: "P".into(),
                name: ["A", "B"][round % 2].into(),
                event_id: 1,
                ..Metadata::default()
            };
            writer.define_event(&metadata).unwrap();
            let event = EventRecord {
                metadata_id: 1,
                sequence_number: round as u32 + 1,
                thread_id: 1,
                is_sorted: true,
                ..EventRecord::default()
            };
            writer.event(&event).unwrap();
            writer.sequence_point(0, FORGET_METADATA, [(1, round as u32 + 1)]);
        }
        writer.finish();
        let mut reader = Reader::new(writer.output().as_slice()).unwrap();
        let mut collector = Collector::new();
        while let Some(event) = reader.next_event().unwrap() {
            collector.add(&event);
        }
        assert_eq!(collector.kinds.len(), 2);
        let report = collector.finish(&reader);
        let counts: Vec<u64> = report.events.iter().map(|row| row.count).collect();
        assert_eq!((report.total_events, counts), (100, vec![50, 50]));
    }
}
