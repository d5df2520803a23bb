//! Writing traces: V4 (with the tags called V5) and V6. Works without std, does no I/O.

use alloc::vec::Vec;

use crate::{Guid, Label, Metadata, ThreadRow, TraceInfo};

/// The versions that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFormat {
    /// V4, with the metadata tags of V5 where a description needs them. Every reader takes it.
    V4,
    /// V6.
    V6,
}

/// An event as it goes into a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventRecord<'a> {
    /// Which description it follows; defined before with [`TraceWriter::define_event`].
    pub metadata_id: u32,
    /// Number of the event among those that the capture thread tried to write, from 1, counting those that were lost.
    pub sequence_number: u32,
    /// The thread that the event is about: its id of the operating system (V4) or its index (V6).
    pub thread_id: u64,
    /// The thread that wrote the event, likewise.
    pub capture_thread_id: u64,
    /// Processor, [`UNKNOWN_PROCESSOR`] if unknown.
    pub processor_number: u32,
    /// The stack, from [`TraceWriter::stack`]; 0 is none.
    pub stack_id: u32,
    /// Clock at the event, in ticks.
    pub timestamp: u64,
    /// Activity, zero for none.
    pub activity_id: Guid,
    /// Related activity, zero for none.
    pub related_activity_id: Guid,
    /// Promise that no event after this one in the stream is older than it (nettrace.md 7.1).
    pub is_sorted: bool,
    /// V6: labels, from [`TraceWriter::label_list`]; 0 is none. When it is not 0, the two activity ids above are
    /// not written: put them into the list.
    pub label_list: u32,
    /// The payload.
    pub payload: &'a [u8],
}

/// The processor number of an event whose processor is not known.
pub const UNKNOWN_PROCESSOR: u32 = u32::MAX;

/// What a writer refuses. Nothing was written then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A V6 block holds at most 16,777,215 bytes, and the event alone is larger.
    #[error("the event does not fit into a block")]
    EventTooLarge,
    /// A V6 row holds at most 65,535 bytes, and the description is larger even without what can be left out.
    #[error("the description does not fit into a row")]
    RowTooLarge,
    /// A V6 block holds at most 16,777,215 bytes, and the stack or label list alone is larger.
    #[error("the stack or label list does not fit into a block")]
    ListTooLarge,
}

/// Writes a trace into memory; the caller moves [`output`](TraceWriter::output) to where it belongs.
///
/// Nothing but bytes of whole blocks ever appears in the output, so it can be taken at any time. Order of calls:
/// [`define_event`](Self::define_event), [`stack`](Self::stack) and V6's [`define_thread`](Self::define_thread)
/// before the first [`event`](Self::event) that names them.
#[derive(Debug)]
pub struct TraceWriter {
    output: Vec<u8>,
}

impl TraceWriter {
    /// A trace with its header in the output. `info.format` is ignored.
    pub fn new(_format: WriteFormat, _info: &TraceInfo) -> TraceWriter {
        unimplemented!()
    }
    /// The format that is written.
    pub fn format(&self) -> WriteFormat {
        unimplemented!()
    }
    /// Size in bytes of event blocks before they are closed on their own, 102,400 in the beginning.
    pub fn set_block_size(&mut self, _bytes: usize) {
        unimplemented!()
    }
    /// Describes the events of one metadata id. Ids count from 1; each is defined once. What the format has no place
    /// for is left out: see [`crate::unrepresentable`].
    pub fn define_event(&mut self, _metadata: &Metadata) -> Result<(), WriteError> {
        unimplemented!()
    }
    /// Whether [`define_event`](Self::define_event) was called for this id.
    pub fn is_defined(&self, _metadata_id: u32) -> bool {
        unimplemented!()
    }
    /// The number of a stack, given as pointers of the trace's size, innermost frame first. The same stack has the
    /// same number until the next sequence point. An empty one is 0.
    pub fn stack(&mut self, _frames: &[u8]) -> Result<u32, WriteError> {
        unimplemented!()
    }
    /// V6: the number of a list of labels, until the next sequence point. An empty list is 0, and so is every list
    /// in V4.
    pub fn label_list(&mut self, _labels: &[Label<'_>]) -> Result<u32, WriteError> {
        unimplemented!()
    }
    /// V6: names a thread. Nothing in V4, where threads are known by their id.
    pub fn define_thread(&mut self, _index: u64, _row: &ThreadRow) -> Result<(), WriteError> {
        unimplemented!()
    }
    /// V6: a thread ended, after having tried to write that many events. Nothing in V4.
    pub fn remove_thread(&mut self, _index: u64, _sequence_number: u32) {
        unimplemented!()
    }
    /// Writes an event.
    pub fn event(&mut self, _event: &EventRecord<'_>) -> Result<(), WriteError> {
        unimplemented!()
    }
    /// Closes all blocks and writes a sequence point: every event so far is not newer than `timestamp`, every later
    /// one is not older, and each thread tried to write at least so many events. Stacks and label lists are
    /// forgotten. `flags` is written in V6 only: see [`FORGET_THREADS`] and [`FORGET_METADATA`].
    pub fn sequence_point<I>(&mut self, _timestamp: u64, _flags: u32, _threads: I)
    where
        I: IntoIterator<Item = (u64, u32)>,
    {
        unimplemented!()
    }
    /// Closes all open blocks: everything written so far is in the output afterwards.
    pub fn flush(&mut self) {
        unimplemented!()
    }
    /// Closes all blocks and writes the end of the stream. Nothing may be written after it.
    pub fn finish(&mut self) {
        unimplemented!()
    }
    /// What was written and not taken yet. The caller may drain or take it whenever it likes.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }
}

/// Flag of a V6 sequence point: thread indexes are forgotten and may be defined anew.
pub const FORGET_THREADS: u32 = 1;
/// Flag of a V6 sequence point: metadata ids are forgotten and may be defined anew.
pub const FORGET_METADATA: u32 = 2;
