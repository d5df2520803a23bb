//! A trace written anew in format 4 or 6: for tools that read only one of them, and to repair.
//!
//! Events keep their description, payload, time, thread, stack, activity ids and order; sequence
//! numbers keep the losses. What the target cannot hold is counted in [`RewriteReport`], never
//! dropped silently. Reading in recover mode turns a rewrite into a repair.
//!
//! Ids of descriptions are given anew, from 1 in the order of the source: formats 1 and 2 use file
//! offsets, and format 6 may reuse an id. Format 4 knows threads by the operating system's number
//! where format 6 has an index; what one thread number wrote under several indexes is numbered on.

use nettrace::{
    EventRecord, FORGET_METADATA, Guid, Item, Label, Metadata, Reader, ThreadRow, TraceWriter,
    UNKNOWN_PROCESSOR, WriteError, WriteFormat,
};
use std::collections::HashMap;
use std::io::{self, Read, Write};

/// What became of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RewriteReport {
    /// Events written.
    pub events: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Events that were too large for the target and were left out.
    pub events_left_out: u64,
    /// Labels other than activity ids, which format 4 cannot hold.
    pub labels_left_out: u64,
    /// Opcodes, keywords, levels or versions of single events, which format 4 cannot hold.
    pub overrides_left_out: u64,
    /// Names and pairs of threads, which format 4 cannot hold.
    pub thread_names_left_out: u64,
    /// Events of other processes than the trace's, whose process format 4 cannot hold.
    pub foreign_processes: u64,
}

/// Why a rewrite could not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// The output could not be written.
    #[error("cannot write the trace")]
    Output(#[from] io::Error),
    /// An event description or table row that the target cannot hold.
    #[error("{0}")]
    Unwritable(WriteError),
}

/// Bytes gathered before they are handed to the output.
const CHUNK: usize = 1 << 20;

/// Writes what `reader` gives to `out` in the format `to`, with an end tag.
///
/// An error of the *source* does not fail the rewrite: what came before it makes a complete trace,
/// and the error is the second part of the answer.
///
/// # Errors
/// If the output cannot be written.
pub fn rewrite<R: Read, W: Write>(
    reader: &mut Reader<R>,
    to: WriteFormat,
    out: &mut W,
) -> Result<(RewriteReport, Option<nettrace::Error>), RewriteError> {
    let mut info = reader.info().clone();
    if to == WriteFormat::V4 {
        // Where the source does not say, format 4 has no way to say so either: 0 is "unknown".
        info.process_id = info.process_id.or(Some(0));
    }
    let mut rewriter = Rewriter {
        writer: TraceWriter::new(to, &info),
        to,
        process_id: info.process_id,
        has_numbers: info.format >= nettrace::FormatVersion::V4,
        source_is_indexed: info.format == nettrace::FormatVersion::V6,
        metadata: HashMap::new(),
        defined: 0,
        threads: HashMap::new(),
        indexes: HashMap::new(),
        written: HashMap::new(),
        report: RewriteReport::default(),
    };
    let damage = loop {
        match reader.next_item() {
            Ok(Some(item)) => rewriter.item(&item)?,
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
        if rewriter.writer.output().len() >= CHUNK {
            rewriter.pass_on(out)?;
        }
    };
    rewriter.writer.finish();
    rewriter.pass_on(out)?;
    Ok((rewriter.report, damage))
}

struct Rewriter {
    writer: TraceWriter,
    to: WriteFormat,
    process_id: Option<u64>,
    /// Whether the source numbers its events.
    has_numbers: bool,
    /// Whether the source knows threads by index.
    source_is_indexed: bool,
    /// Id of a description in the source to that in the target.
    metadata: HashMap<u32, u32>,
    defined: u32,
    /// Source format 6: what an index stands for.
    threads: HashMap<u64, SourceThread>,
    /// Target format 6 from an older source: index of a thread number.
    indexes: HashMap<u64, u64>,
    /// Numbers given so far, by the target's thread: for sources without numbers, and as the base
    /// of a thread number that format 6 uses again.
    written: HashMap<u64, u32>,
    report: RewriteReport,
}

#[derive(Clone, Copy, Debug)]
struct SourceThread {
    os_thread_id: u64,
    /// Events that earlier threads of this number tried to write.
    base: u32,
}

impl Rewriter {
    fn pass_on(&mut self, out: &mut impl Write) -> Result<(), RewriteError> {
        let output = self.writer.output();
        out.write_all(output)?;
        self.report.bytes += output.len() as u64;
        output.clear();
        Ok(())
    }

    fn item(&mut self, item: &Item<'_>) -> Result<(), RewriteError> {
        match item {
            Item::Metadata(metadata) => self.define(metadata),
            Item::Event(event) => self.event(event),
            Item::SequencePoint(point) => {
                let threads: Vec<(u64, u32)> = if self.has_numbers {
                    let threads = point.threads.iter();
                    threads
                        .map(|&(thread, number)| self.target_thread(thread, number))
                        .collect()
                } else {
                    Vec::new()
                };
                // Ids of descriptions are never reused in the target.
                let flags = point.flags & !FORGET_METADATA;
                self.writer
                    .sequence_point(point.timestamp.max(0) as u64, flags, threads);
                Ok(())
            }
            Item::ThreadDefined { index, row } => self.thread_defined(*index, row),
            Item::ThreadRemoved {
                index,
                sequence_number,
            } => {
                if self.to == WriteFormat::V6 {
                    self.writer.remove_thread(*index, *sequence_number);
                } else if let Some(thread) = self.threads.get(index) {
                    let last = thread.base.wrapping_add(*sequence_number);
                    self.written.insert(thread.os_thread_id, last);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn define(&mut self, source: &Metadata) -> Result<(), RewriteError> {
        self.defined += 1;
        let metadata = Metadata {
            id: self.defined,
            ..source.clone()
        };
        self.writer
            .define_event(&metadata)
            .map_err(RewriteError::Unwritable)?;
        self.metadata.insert(source.id, self.defined);
        Ok(())
    }

    fn event(&mut self, event: &nettrace::Event<'_>) -> Result<(), RewriteError> {
        let source_id = event.metadata().id;
        let metadata_id = match self.metadata.get(&source_id) {
            Some(&id) => id,
            None => {
                // An event without description: its id is all there is.
                self.define(&event.metadata().clone())?;
                self.defined
            }
        };
        let stack_id = self.writer.stack(event.stack().bytes());
        let labels: Vec<Label<'_>> = event.labels().collect();
        let label_list = if self.to == WriteFormat::V6 {
            self.writer.label_list(&labels)
        } else {
            self.count_lost_labels(&labels);
            if self
                .process_id
                .is_some_and(|pid| pid != 0 && pid != event.process_id())
            {
                self.report.foreign_processes += 1;
            }
            Ok(0)
        };
        let (capture, mut number) =
            self.target_thread(event.capture_thread_id(), event.sequence_number());
        if !self.has_numbers {
            let written = self.written.entry(capture).or_insert(0);
            *written = written.wrapping_add(1);
            number = *written;
        }
        let thread = match event.thread_index().filter(|_| self.to == WriteFormat::V6) {
            Some(index) => index,
            None if self.to == WriteFormat::V6 => self.index_of(event.thread_id())?,
            None => event.thread_id(),
        };
        let written = match (stack_id, label_list) {
            (Ok(stack_id), Ok(label_list)) => self.writer.event(&EventRecord {
                metadata_id,
                sequence_number: number,
                thread_id: thread,
                capture_thread_id: capture,
                processor_number: event.processor_number().unwrap_or(UNKNOWN_PROCESSOR),
                stack_id,
                timestamp: event.timestamp().max(0) as u64,
                activity_id: if label_list == 0 {
                    event.activity_id()
                } else {
                    Guid::default()
                },
                related_activity_id: if label_list == 0 {
                    event.related_activity_id()
                } else {
                    Guid::default()
                },
                is_sorted: event.is_sorted(),
                label_list,
                payload: event.payload(),
            }),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        match written {
            Ok(()) => self.report.events += 1,
            // The number is used all the same, so that the target shows the loss.
            Err(_) => self.report.events_left_out += 1,
        }
        Ok(())
    }

    fn count_lost_labels(&mut self, labels: &[Label<'_>]) {
        for label in labels {
            match label {
                Label::ActivityId(_) | Label::RelatedActivityId(_) => {}
                Label::OpCode(_) | Label::Keywords(_) | Label::Level(_) | Label::Version(_) => {
                    self.report.overrides_left_out += 1;
                }
                _ => self.report.labels_left_out += 1,
            }
        }
    }

    fn thread_defined(&mut self, index: u64, row: &ThreadRow) -> Result<(), RewriteError> {
        if self.to == WriteFormat::V6 {
            return self
                .writer
                .define_thread(index, row)
                .map_err(RewriteError::Unwritable);
        }
        if row.name.is_some() || !row.key_values.is_empty() {
            self.report.thread_names_left_out += 1;
        }
        let os_thread_id = row.thread_id.unwrap_or(0);
        let base = self.written.get(&os_thread_id).copied().unwrap_or(0);
        self.threads
            .insert(index, SourceThread { os_thread_id, base });
        Ok(())
    }

    /// The target's name of a capture thread, and the number as the target counts.
    fn target_thread(&mut self, source: u64, number: u32) -> (u64, u32) {
        match (self.source_is_indexed, self.to) {
            (true, WriteFormat::V4) => {
                let unknown = SourceThread {
                    os_thread_id: 0,
                    base: 0,
                };
                let thread = self.threads.get(&source).copied().unwrap_or(unknown);
                (thread.os_thread_id, thread.base.wrapping_add(number))
            }
            (true, WriteFormat::V6) | (false, WriteFormat::V4) => (source, number),
            (false, WriteFormat::V6) => (self.index_of(source).unwrap_or(0), number),
        }
    }

    /// The index in the target of a thread known by its number; given on first sight.
    fn index_of(&mut self, thread_id: u64) -> Result<u64, RewriteError> {
        if let Some(&index) = self.indexes.get(&thread_id) {
            return Ok(index);
        }
        let index = self.indexes.len() as u64 + 1;
        let row = ThreadRow {
            process_id: self.process_id,
            thread_id: Some(thread_id),
            ..ThreadRow::default()
        };
        self.writer
            .define_thread(index, &row)
            .map_err(RewriteError::Unwritable)?;
        self.indexes.insert(thread_id, index);
        Ok(index)
    }
}
