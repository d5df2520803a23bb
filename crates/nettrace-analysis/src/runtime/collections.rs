//! Garbage collections and their pauses.

use super::milliseconds;
use nettrace::views::{GcEnd, GcHeapStats, GcRestartEnd, GcStart, GcSuspendBegin, View};
use nettrace::{Event, TraceInfo};
use serde::Serialize;
use std::collections::HashMap;

/// All collections of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CollectionReport {
    /// How many.
    pub count: u64,
    /// How many collected which generation as the oldest one: 0, 1, 2.
    pub count_per_generation: [u64; 3],
    /// The sum of their pauses.
    pub pause_total_ms: f64,
    /// Half of the pauses are shorter.
    pub pause_median_ms: f64,
    /// The longest.
    pub pause_max_ms: f64,
    /// Bytes that survived, all collections together.
    pub promoted_bytes: u64,
    /// The collections by time.
    pub collections: Vec<Collection>,
}

/// One collection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collection {
    /// The process, 0 if the trace does not say.
    pub process_id: u64,
    /// The runtime's number of the collection, from 1.
    pub number: u32,
    /// The oldest generation that was collected; `None` where an old runtime does not say.
    pub generation: Option<u32>,
    /// `NonConcurrent`, `Background`, `Foreground` (blocking, during one in the background), or a number.
    pub kind: String,
    /// Why, in the runtime's words, or a number.
    pub reason: String,
    /// When the runtime began to stop its threads for it.
    pub pause_start_ms: f64,
    /// How long threads stood still for it; of one in the background both pauses together. Where two share a pause each has its part, so the sum of
    /// all is the time that threads stood still. `None`: the end is not in the trace.
    pub pause_ms: Option<f64>,
    /// When it began.
    pub start_ms: f64,
    /// How long it took; `None`: its end is not in the trace.
    pub duration_ms: Option<f64>,
    /// Bytes of all generations afterwards.
    pub size_after: Option<u64>,
    /// Bytes that survived.
    pub promoted: Option<u64>,
}

/// Gathers collections. It needs the keyword GC (0x1) at level Informational.
#[derive(Debug, Default)]
pub struct Collections {
    found: Vec<Collection>,
    processes: HashMap<u64, State>,
}

/// What is going on in a process.
#[derive(Debug, Default)]
struct State {
    /// Since when threads are being stopped, or stand still, for a collection.
    suspended_ms: Option<f64>,
    /// The collection that began since then.
    paused_for: Option<usize>,
    /// The one in the background.
    background: Option<usize>,
    /// Places of those that run, and the last one, by their numbers.
    by_number: HashMap<u32, usize>,
    last_ended: Option<usize>,
}

/// The runtime's numbers of a collection in the background, and of suspensions for a collection and for the preparation of one.
const BACKGROUND: u32 = 1;
const FOR_COLLECTION: u32 = 1;
const FOR_PREPARATION: u32 = 6;

impl Collections {
    /// Nothing gathered yet.
    pub fn new() -> Collections {
        Collections::default()
    }

    /// Takes an event.
    pub fn add(&mut self, info: &TraceInfo, event: &Event<'_>) {
        let (metadata, payload) = (event.metadata(), event.payload());
        let now = milliseconds(info, event);
        let process_id = event.process_id();
        if GcSuspendBegin::matches(metadata) {
            let Some(begin) = GcSuspendBegin::of(metadata, event.schema(), payload) else {
                return;
            };
            let state = self.processes.entry(process_id).or_default();
            let is_ours = matches!(begin.reason, FOR_COLLECTION | FOR_PREPARATION);
            state.suspended_ms = is_ours.then_some(now);
            state.paused_for = None;
        } else if GcStart::matches(metadata) {
            if let Some(start) = GcStart::of(metadata, event.schema(), payload) {
                self.begin(process_id, now, &start);
            }
        } else if GcEnd::matches(metadata) {
            let Some(end) = GcEnd::of(metadata, event.schema(), payload) else {
                return;
            };
            let state = self.processes.entry(process_id).or_default();
            let place = state.by_number.remove(&end.number);
            state.last_ended = place;
            if let Some(collection) = place.and_then(|place| self.found.get_mut(place)) {
                collection.duration_ms = Some(now - collection.start_ms);
            }
            if state.background == place {
                state.background = None;
            }
        } else if GcHeapStats::matches(metadata) {
            let Some(stats) = GcHeapStats::of(metadata, event.schema(), payload) else {
                return;
            };
            let state = self.processes.entry(process_id).or_default();
            let place = state.last_ended.take();
            if let Some(collection) = place.and_then(|place| self.found.get_mut(place)) {
                collection.size_after = Some(stats.total_size());
                let promoted = [
                    stats.promoted_0,
                    stats.promoted_1,
                    stats.promoted_2,
                    stats.promoted_3,
                    stats.promoted_4.unwrap_or(0),
                ];
                collection.promoted = Some(
                    promoted
                        .iter()
                        .fold(0, |sum, part| part.saturating_add(sum)),
                );
            }
        } else if GcRestartEnd::matches(metadata) {
            let state = self.processes.entry(process_id).or_default();
            let Some(since) = state.suspended_ms.take() else {
                return;
            };
            // A pause in which none begins is the second one of that in the background.
            let place = state.paused_for.take().or(state.background);
            if let Some(collection) = place.and_then(|place| self.found.get_mut(place)) {
                *collection.pause_ms.get_or_insert(0.0) += now - since;
            }
        }
    }

    fn begin(&mut self, process_id: u64, now: f64, start: &GcStart<'_>) {
        let state = self.processes.entry(process_id).or_default();
        // One in the background may have a blocking one done first, while threads stand still already: then that one's pause begins here.
        if let (Some(before), Some(since)) = (state.paused_for, state.suspended_ms) {
            if let Some(collection) = self.found.get_mut(before) {
                *collection.pause_ms.get_or_insert(0.0) += now - since;
            }
            state.suspended_ms = Some(now);
        }
        let place = self.found.len();
        self.found.push(Collection {
            process_id,
            number: start.number,
            generation: start.generation,
            kind: kind(start.kind),
            reason: reason(start.reason),
            pause_start_ms: state.suspended_ms.unwrap_or(now),
            pause_ms: None,
            start_ms: now,
            duration_ms: None,
            size_after: None,
            promoted: None,
        });
        state.by_number.insert(start.number, place);
        state.paused_for = state.suspended_ms.map(|_| place);
        if start.kind == Some(BACKGROUND) {
            state.background = Some(place);
        }
    }

    /// The report.
    pub fn finish(self) -> CollectionReport {
        let mut report = CollectionReport {
            count: self.found.len() as u64,
            ..CollectionReport::default()
        };
        let mut pauses: Vec<f64> = self.found.iter().filter_map(|one| one.pause_ms).collect();
        pauses.sort_by(f64::total_cmp);
        report.pause_total_ms = pauses.iter().sum();
        report.pause_max_ms = pauses.last().copied().unwrap_or(0.0);
        report.pause_median_ms = pauses.get(pauses.len() / 2).copied().unwrap_or(0.0);
        for collection in &self.found {
            let generation = collection
                .generation
                .and_then(|it| usize::try_from(it).ok());
            let count = generation.and_then(|it| report.count_per_generation.get_mut(it));
            if let Some(count) = count {
                *count += 1;
            }
            let promoted = collection.promoted.unwrap_or(0);
            report.promoted_bytes = report.promoted_bytes.saturating_add(promoted);
        }
        report.collections = self.found;
        report
    }
}

fn kind(number: Option<u32>) -> String {
    match number {
        None | Some(0) => "NonConcurrent".to_owned(),
        Some(BACKGROUND) => "Background".to_owned(),
        Some(2) => "Foreground".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// The runtime's words.
fn reason(number: u32) -> String {
    const REASONS: [&str; 18] = [
        "AllocSmall",
        "Induced",
        "LowMemory",
        "Empty",
        "AllocLarge",
        "OutOfSpaceSOH",
        "OutOfSpaceLOH",
        "InducedNotForced",
        "Internal",
        "InducedLowMemory",
        "InducedCompacting",
        "LowMemoryHost",
        "PMFullGC",
        "LowMemoryHostBlocking",
        "BgcTuningSOH",
        "BgcTuningLOH",
        "BgcStepping",
        "InducedAggressive",
    ];
    let name = usize::try_from(number)
        .ok()
        .and_then(|number| REASONS.get(number));
    name.map_or_else(|| number.to_string(), |name| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nettrace::{
        EventRecord, FormatVersion, Metadata, Reader, SystemTime, TraceWriter, WriteFormat,
    };

    /// A blocking collection comes first in the pause with which one in the background begins; that has a second pause of its own, in which
    /// no other begins. The sampler's suspension is nobody's.
    #[test]
    fn pauses_belong_to_whom_threads_stood_still_for() {
        let info = TraceInfo {
            format: FormatVersion::V4,
            start: SystemTime::from_unix_ns(0),
            sync_ticks: 0,
            ticks_per_second: 1_000_000_000,
            pointer_size: 8,
            process_id: None,
            processor_count: None,
            sampling_period_ns: None,
            pairs: Vec::new(),
        };
        let mut writer = TraceWriter::new(WriteFormat::V4, &info);
        for event_id in [1, 2, 3, 9] {
            let metadata = Metadata {
                id: event_id,
                provider: "Microsoft-Windows-DotNETRuntime".into(),
                event_id,
                version: 1,
                ..Metadata::default()
            };
            writer.define_event(&metadata).unwrap();
        }
        let (suspend, start, end, restart) = (9, 1, 2, 3);
        let events: [(u32, u64, &[u32]); 12] = [
            (suspend, 1, &[0, 0]),
            (restart, 2, &[]),
            (suspend, 10, &[FOR_COLLECTION, 8]),
            (start, 12, &[8, 2, 0, BACKGROUND]),
            (start, 15, &[9, 1, 0, 0]),
            (end, 19, &[9, 1]),
            (restart, 20, &[]),
            (suspend, 30, &[FOR_PREPARATION, 8]),
            (restart, 34, &[]),
            (end, 40, &[8, 2]),
            (suspend, 50, &[FOR_COLLECTION, 10]),
            (start, 51, &[10, 0, 1, 0]),
        ];
        for (number, (metadata_id, ms, numbers)) in (1..).zip(events) {
            let mut payload: Vec<u8> = numbers.iter().flat_map(|it| it.to_le_bytes()).collect();
            payload.extend_from_slice(&7_u16.to_le_bytes());
            let event = EventRecord {
                metadata_id,
                sequence_number: number,
                thread_id: 1,
                capture_thread_id: 1,
                timestamp: ms * 1_000_000,
                payload: &payload,
                ..EventRecord::default()
            };
            writer.event(&event).unwrap();
        }
        writer.finish();
        let mut reader = Reader::new(writer.output().as_slice()).unwrap();
        let info = reader.info().clone();
        let mut collections = Collections::new();
        while let Some(event) = reader.next_event().unwrap() {
            collections.add(&info, &event);
        }
        let report = collections.finish();
        let found: Vec<_> = report
            .collections
            .iter()
            .map(|one| (one.number, one.kind.as_str(), one.pause_ms, one.duration_ms))
            .collect();
        assert_eq!(
            found,
            [
                (8, "Background", Some(9.0), Some(28.0)),
                (9, "NonConcurrent", Some(5.0), Some(4.0)),
                (10, "NonConcurrent", None, None),
            ]
        );
        assert_eq!((report.pause_total_ms, report.pause_max_ms), (14.0, 9.0));
        assert_eq!(report.count_per_generation, [1, 1, 1]);
    }
}
