//! A trace written anew: in another format, cut, joined, or whole again after damage.
//!
//! Events keep their payload, time, threads, stack, activity ids and labels. What the target cannot hold is counted
//! in [`RewriteReport`], never dropped silently. Ids are given anew: those of descriptions from 1 in the order of the
//! source (V1 and V2 use file offsets, V6 may use an id again). Sequence numbers are counted on in each thread, so
//! that the losses are the same, and stay the same where a system gave a thread's number to another one.
//!
//! V4 to V6 keep the order of the file, with its marks and sequence points. V1–V3 have neither, so their events are
//! sorted by time, as far as [`RewriteOptions::window_bytes`] reaches.

mod descriptions;
mod join;
mod pieces;
mod threads;
mod window;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::string::String;
use std::vec::Vec;

use crate::{
    Error, Event, EventRecord, FORGET_METADATA, FORGET_THREADS, FormatVersion, Guid, Item, Label,
    Reader, TraceInfo, TraceWriter, UNKNOWN_PROCESSOR, Unrepresentable, WriteError, WriteFormat,
    pattern,
};
use descriptions::Descriptions;
pub use join::join;
pub use pieces::Pieces;
use threads::Threads;
use window::Window;

/// What to write.
#[derive(Clone, Debug)]
pub struct RewriteOptions {
    /// The format.
    pub format: WriteFormat,
    /// Which events: all by default.
    pub filter: Filter,
    /// How many bytes of events of V1–V3 are held to be sorted, 256 MiB by default. An event that comes later than
    /// this allows is written out of order, and counted in [`RewriteReport::events_out_of_order`].
    pub window_bytes: usize,
}

impl RewriteOptions {
    /// Everything, in a format.
    pub fn new(format: WriteFormat) -> RewriteOptions {
        RewriteOptions {
            format,
            filter: Filter::default(),
            window_bytes: 256 << 20,
        }
    }
}

/// Which events are kept. Events that are not do not count as lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Time stamps from this one on. Losses outside of the times are not kept.
    pub from: Option<i64>,
    /// Time stamps up to this one, inclusive.
    pub to: Option<i64>,
    /// Providers by name or [pattern](crate::pattern::matches); empty for all.
    pub providers: Vec<String>,
    /// Threads by the operating system's number; empty for all.
    pub threads: Vec<u64>,
}

impl Filter {
    fn is_everything(&self) -> bool {
        *self == Filter::default()
    }

    fn has_time(&self, timestamp: i64) -> bool {
        self.from.is_none_or(|from| timestamp >= from) && self.to.is_none_or(|to| timestamp <= to)
    }

    fn has_provider(&self, name: &str) -> bool {
        let is_it = |wanted: &String| pattern::matches(wanted, name);
        self.providers.is_empty() || self.providers.iter().any(is_it)
    }

    fn has_event(&self, event: &Event<'_>) -> bool {
        self.has_provider(&event.metadata().provider)
            && (self.threads.is_empty() || self.threads.contains(&event.thread_id()))
    }
}

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RewriteReport {
    /// Events written.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Events that the filter left out.
    pub events_filtered: u64,
    /// Events that were too large for the target and were left out; they count as lost there.
    pub events_left_out: u64,
    /// Stacks and label lists that were too large for the target and were left out.
    pub lists_left_out: u64,
    /// V1–V3: events that came later than the window allows.
    pub events_out_of_order: u64,
    /// Labels other than activity ids, which V4 cannot hold. Opcodes, keywords, levels and versions of single events
    /// are not among them: they become descriptions of their own.
    pub labels_left_out: u64,
    /// Names and pairs of threads, which V4 cannot hold.
    pub thread_names_left_out: u64,
    /// Events of other processes than the trace's: V4 cannot say so.
    pub foreign_processes: u64,
    /// Threads that had to get another number in V4, since two of different processes had the same.
    pub threads_renamed: u64,
    /// Pairs of the trace's description, which V4 cannot hold.
    pub pairs_left_out: u64,
    /// Parts of descriptions of events that the target cannot hold.
    pub descriptions_reduced: u64,
    /// Where [`Filter::providers`] names some: the providers that the source describes.
    pub providers: BTreeSet<String>,
}

/// Why a rewrite could not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The output could not be written.
    #[error("cannot write the trace")]
    Output(#[from] std::io::Error),
    /// A description of an event or a thread that the target cannot hold at all.
    #[error(transparent)]
    Unwritable(#[from] WriteError),
    /// Traces with pointers of different sizes cannot become one.
    #[error("one trace has pointers of {0} bytes, another of {1}")]
    PointerSizes(u32, u32),
    /// There is nothing to join.
    #[error("no trace to join")]
    NoTrace,
}

/// Bytes gathered before they are handed to the output.
const CHUNK: usize = 1 << 20;

/// Writes what `reader` has yet to give to `out`, with an end tag.
///
/// An error of the *source* does not fail the rewrite: what came before it makes a complete trace, and the error is
/// the second part of the answer. With a reader that recovers this is a repair.
///
/// # Errors
/// If the output cannot be written, or a description does not fit into the target.
pub fn rewrite<R: Read, W: Write>(
    reader: &mut Reader<R>,
    options: &RewriteOptions,
    out: &mut W,
) -> Result<(RewriteReport, Option<Error>), RewriteError> {
    let is_numbered = reader.info().format >= FormatVersion::V4;
    let mut rewriter = Rewriter::new(reader.info(), options);
    let mut window = (!is_numbered).then(|| Window::new(options.window_bytes));
    let damage = loop {
        let item = match reader.next_item() {
            Ok(Some(item)) => item,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        match (&mut window, item) {
            (Some(window), Item::Event(event)) => {
                window.hold(&event);
                while let Some(place) = window.overfull() {
                    rewriter.held(window, place)?;
                }
            }
            (_, item) => rewriter.item(&item)?,
        }
        rewriter.pass_on(out, CHUNK)?;
    };
    if let Some(window) = &mut window {
        while let Some(place) = window.oldest() {
            rewriter.held(window, place)?;
            rewriter.pass_on(out, CHUNK)?;
        }
        rewriter.point_at_end();
    }
    Ok((rewriter.finish(out)?, damage))
}

/// A trace in the making.
#[derive(Debug)]
struct Rewriter {
    writer: TraceWriter,
    filter: Filter,
    process_id: Option<u64>,
    descriptions: Descriptions,
    threads: Threads,
    /// Capture thread of the event before: readers take a new one from an event that is marked, or a new block.
    capture_thread: Option<u64>,
    /// Time of the newest event or sequence point.
    newest: i64,
    /// Bytes written since the last sequence point that this made on its own.
    since_point: u64,
    report: RewriteReport,
}

/// An event's values where they differ from what the source's reader says.
struct Change {
    source: u32,
    timestamp: i64,
    is_sorted: bool,
}

/// How much is written without a sequence point where the source gives none: stacks are remembered in between.
const POINT_EVERY: u64 = 64 << 20;

impl Rewriter {
    fn new(info: &TraceInfo, options: &RewriteOptions) -> Rewriter {
        let mut report = RewriteReport::default();
        let mut info = info.clone();
        if options.format == WriteFormat::V4 {
            report.pairs_left_out = info.pairs.len() as u64;
            // Where the source does not say, V4 has no way to say so either: 0 is "unknown".
            info.process_id = info.process_id.or(Some(0));
        }
        Rewriter {
            writer: TraceWriter::new(options.format, &info),
            filter: options.filter.clone(),
            process_id: info.process_id,
            descriptions: Descriptions::default(),
            threads: Threads::new(options.format, info.process_id),
            capture_thread: None,
            newest: info.sync_ticks,
            since_point: 0,
            report,
        }
    }

    fn pass_on(&mut self, out: &mut impl Write, at_least: usize) -> Result<(), RewriteError> {
        let output = self.writer.output();
        if output.len() < at_least {
            return Ok(());
        }
        out.write_all(output)?;
        self.report.bytes = self.report.bytes.wrapping_add(output.len() as u64);
        self.since_point = self.since_point.wrapping_add(output.len() as u64);
        output.clear();
        Ok(())
    }

    fn finish(mut self, out: &mut impl Write) -> Result<RewriteReport, RewriteError> {
        self.writer.finish();
        self.pass_on(out, 0)?;
        self.report.threads_renamed = self.threads.renamed();
        Ok(self.report)
    }

    /// Writes an item of a source that numbers its events, or an item of another one that is not an event.
    fn item(&mut self, item: &Item<'_>) -> Result<(), RewriteError> {
        if let Item::Metadata(metadata) = item
            && !self.filter.providers.is_empty()
            && !self.report.providers.contains(&metadata.provider)
        {
            self.report.providers.insert(metadata.provider.clone());
        }
        match item {
            // With a filter only what is used is described.
            Item::Metadata(metadata) if self.filter.is_everything() => {
                self.descriptions.forget(0, metadata.id);
                let defined = self
                    .descriptions
                    .define(0, metadata, None, &mut self.writer)?;
                self.count_reduced(&defined.1);
            }
            Item::Metadata(metadata) => self.descriptions.forget(0, metadata.id),
            Item::Event(event) => {
                let change = Change {
                    source: 0,
                    timestamp: event.timestamp(),
                    is_sorted: event.is_sorted(),
                };
                self.event(event, &change)?;
            }
            Item::SequencePoint(point) => {
                let counts_losses = self.filter.has_time(point.timestamp);
                let mut listed = Vec::with_capacity(point.threads.len());
                for &(thread, number) in point.threads {
                    let names = self.threads.names_of(0, thread);
                    let place = self.threads.capture(0, thread, names, &mut self.writer)?;
                    listed.push((
                        place.target,
                        self.threads.tried(0, thread, number, counts_losses),
                    ));
                }
                // Ids of descriptions are never used again in the target.
                let flags = point.flags & FORGET_THREADS;
                self.writer
                    .sequence_point(point.timestamp as u64, flags, listed);
                if point.flags & FORGET_THREADS != 0 {
                    self.threads.forget_all();
                }
                if point.flags & FORGET_METADATA != 0 {
                    self.descriptions.forget_all();
                }
                // A point is newer than what is before it, and so must be the one that ends a piece here.
                self.newest = self.newest.max(point.timestamp);
                self.capture_thread = None;
            }
            Item::ThreadDefined { index, row } => {
                if self.writer.format() == WriteFormat::V4
                    && (row.name.is_some() || !row.key_values.is_empty())
                {
                    self.report.thread_names_left_out =
                        self.report.thread_names_left_out.wrapping_add(1);
                }
                self.threads.define(0, *index, row, &mut self.writer)?;
            }
            Item::ThreadRemoved {
                index,
                sequence_number,
            } => {
                self.threads
                    .remove(0, *index, *sequence_number, &mut self.writer);
            }
        }
        Ok(())
    }

    /// Writes an event out of the window.
    fn held(&mut self, window: &mut Window, place: window::Place) -> Result<(), RewriteError> {
        let timestamp = place.timestamp();
        if timestamp < self.newest && self.report.events > 0 {
            self.report.events_out_of_order = self.report.events_out_of_order.wrapping_add(1);
        }
        self.newest = self.newest.max(timestamp);
        let Some(held) = window.take(place) else {
            return Ok(());
        };
        let filter = &self.filter;
        let is_wanted = filter.has_time(timestamp)
            && filter.has_provider(&held.metadata.provider)
            && (filter.threads.is_empty() || filter.threads.contains(&held.thread_id));
        if !is_wanted {
            self.report.events_filtered = self.report.events_filtered.wrapping_add(1);
            return Ok(());
        }
        let (metadata_id, reduced) =
            self.descriptions
                .define(0, &held.metadata, None, &mut self.writer)?;
        self.count_reduced(&reduced);
        let names = (held.thread_id, self.process_id);
        let thread = self
            .threads
            .capture(0, held.thread_id, names, &mut self.writer)?
            .target;
        let sequence_number = self.threads.number(0, held.thread_id, 0);
        let stack_id = self.stack(held.stack());
        self.put(&EventRecord {
            metadata_id,
            sequence_number,
            thread_id: thread,
            capture_thread_id: thread,
            stack_id,
            is_sorted: true,
            ..held.record()
        });
        if self.since_point > POINT_EVERY {
            self.point_at_end();
        }
        Ok(())
    }

    fn stack(&mut self, frames: &[u8]) -> u32 {
        self.writer.stack(frames).unwrap_or_else(|_| {
            self.report.lists_left_out = self.report.lists_left_out.wrapping_add(1);
            0
        })
    }

    fn put(&mut self, record: &EventRecord<'_>) {
        match self.writer.event(record) {
            Ok(()) => self.report.events = self.report.events.wrapping_add(1),
            // Its number is used all the same, so that the target shows the loss.
            Err(_) => self.report.events_left_out = self.report.events_left_out.wrapping_add(1),
        }
    }

    /// Writes an event of a source that numbers them.
    fn event(&mut self, event: &Event<'_>, change: &Change) -> Result<(), RewriteError> {
        let source = change.source;
        let (capture, number) = (event.capture_thread_id(), event.sequence_number());
        let capture_thread_id = self
            .threads
            .capture(source, capture, event.names(capture), &mut self.writer)?
            .target;
        let is_timely = self.filter.has_time(change.timestamp);
        if !is_timely || !self.filter.has_event(event) {
            self.threads.skip(source, capture, number, is_timely);
            self.report.events_filtered = self.report.events_filtered.wrapping_add(1);
            return Ok(());
        }
        let sequence_number = self.threads.number(source, capture, number);
        let thread_id = match self.writer.format() {
            WriteFormat::V4 => event.thread_id(),
            WriteFormat::V6 => {
                let subject = event.subject();
                self.threads
                    .subject(source, subject, event.names(subject), &mut self.writer)?
            }
        };
        if self.writer.format() == WriteFormat::V4 && self.process_id != Some(event.process_id()) {
            self.report.foreign_processes = self.report.foreign_processes.wrapping_add(1);
        }
        let (metadata_id, label_list) = self.describe(event, source)?;
        let mut activity = (event.activity_id(), event.related_activity_id());
        if label_list != 0 {
            activity = (Guid::ZERO, Guid::ZERO);
        }
        if !change.is_sorted
            && self
                .capture_thread
                .is_some_and(|before| before != capture_thread_id)
        {
            self.writer.flush();
        }
        self.capture_thread = Some(capture_thread_id);
        let stack_id = self.stack(event.stack().bytes());
        self.newest = self.newest.max(change.timestamp);
        self.put(&EventRecord {
            metadata_id,
            sequence_number,
            thread_id,
            capture_thread_id,
            processor_number: event.processor_number().unwrap_or(UNKNOWN_PROCESSOR),
            stack_id,
            timestamp: change.timestamp as u64,
            activity_id: activity.0,
            related_activity_id: activity.1,
            is_sorted: change.is_sorted,
            label_list,
            payload: event.payload(),
        });
        Ok(())
    }

    /// The target's description and label list of an event.
    fn describe(&mut self, event: &Event<'_>, source: u32) -> Result<(u32, u32), RewriteError> {
        let (mut overrides, mut label_list) = (None, 0);
        if event.has_labels() {
            if self.writer.format() == WriteFormat::V6 {
                let labels: Vec<Label<'_>> = event.labels().collect();
                label_list = self.writer.label_list(&labels).unwrap_or_else(|_| {
                    self.report.lists_left_out = self.report.lists_left_out.wrapping_add(1);
                    0
                });
            } else {
                for label in event.labels() {
                    match label {
                        Label::ActivityId(_) | Label::RelatedActivityId(_) => {}
                        Label::OpCode(_)
                        | Label::Keywords(_)
                        | Label::Level(_)
                        | Label::Version(_) => {
                            overrides = Some((
                                event.opcode(),
                                event.keywords(),
                                event.level(),
                                event.version(),
                            ));
                        }
                        _ => {
                            self.report.labels_left_out =
                                self.report.labels_left_out.wrapping_add(1)
                        }
                    }
                }
            }
        }
        let (id, reduced) =
            self.descriptions
                .define(source, event.metadata(), overrides, &mut self.writer)?;
        self.count_reduced(&reduced);
        Ok((id, label_list))
    }

    fn count_reduced(&mut self, lost: &[Unrepresentable]) {
        self.report.descriptions_reduced = self
            .report
            .descriptions_reduced
            .wrapping_add(lost.len() as u64);
    }

    /// A sequence point where everything so far is not newer than the newest event or point.
    fn point_at_end(&mut self) {
        self.writer
            .sequence_point(self.newest as u64, 0, self.threads.all());
        self.since_point = 0;
        self.capture_thread = None;
    }
}
