//! Reading traces of every version from any [`Read`].

use std::io::Read;
use std::marker::PhantomData;

use crate::{Error, ErrorKind, Guid, Label, Metadata, TraceInfo};

/// How to read.
#[derive(Clone, Copy, Debug)]
pub struct ReaderOptions {
    /// Skip damaged blocks and go on behind them, noting what was skipped, instead of stopping with an error.
    pub recover: bool,
    /// The largest block that is read, 256 MiB unless changed; memory grows with what arrives, not with what a block
    /// claims.
    pub max_block_size: u32,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions {
            recover: false,
            max_block_size: 256 << 20,
        }
    }
}

/// Reads a trace as a stream: bounded memory, no seeking, events in the order of the file.
#[derive(Debug)]
pub struct Reader<R> {
    source: PhantomData<R>,
}

impl<R: Read> Reader<R> {
    /// Reads the header.
    pub fn new(source: R) -> Result<Reader<R>, Error> {
        Reader::with_options(source, ReaderOptions::default())
    }
    /// The same with options.
    pub fn with_options(_source: R, _options: ReaderOptions) -> Result<Reader<R>, Error> {
        unimplemented!()
    }
    /// What the trace says about itself.
    pub fn info(&self) -> &TraceInfo {
        unimplemented!()
    }
    /// The next event in the order of the file; `None` after the end, and after an error.
    ///
    /// Of a file that was cut off every complete event is given, then one error.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        unimplemented!()
    }
    /// The next thing in the order of the file. Blocks of stacks and labels are taken in silently.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Error> {
        unimplemented!()
    }
    /// Events that the writer could not keep, as far as read.
    pub fn losses(&self) -> &Losses {
        unimplemented!()
    }
    /// The description with this id.
    pub fn metadata(&self, _id: u32) -> Option<&Metadata> {
        unimplemented!()
    }
    /// All descriptions so far, in the order of the file.
    pub fn all_metadata(&self) -> &[Metadata] {
        unimplemented!()
    }
    /// Counts of what was read, and of oddities that were tolerated.
    pub fn statistics(&self) -> &Statistics {
        unimplemented!()
    }
    /// What was skipped in recover mode.
    pub fn skipped(&self) -> &[Skipped] {
        unimplemented!()
    }
    /// Whether the end tag was read: the trace is complete.
    pub fn is_complete(&self) -> bool {
        unimplemented!()
    }
    /// Bytes consumed so far.
    pub fn offset(&self) -> u64 {
        unimplemented!()
    }
    /// Changes the order to that in which TraceEvent dispatches events: by time. Before the first event is read.
    pub fn dispatch_order(self) -> DispatchOrder<R> {
        unimplemented!()
    }
}

/// What [`Reader::next_item`] gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A description.
    Metadata(&'a Metadata),
    /// An event.
    Event(Event<'a>),
    /// A sequence point.
    SequencePoint(SequencePoint<'a>),
    /// V6: a thread was given an index.
    ThreadDefined {
        /// The index.
        index: u64,
        /// Who it is.
        row: &'a crate::ThreadRow,
    },
    /// V6: a thread ended.
    ThreadRemoved {
        /// The index.
        index: u64,
        /// How many events it had tried to write.
        sequence_number: u32,
    },
}

/// A sequence point (nettrace.md 5.6, 6.7).
#[derive(Clone, Copy, Debug)]
pub struct SequencePoint<'a> {
    /// No event before it in the stream is newer, no later one older.
    pub timestamp: i64,
    /// V6: see [`crate::FORGET_THREADS`], [`crate::FORGET_METADATA`].
    pub flags: u32,
    /// Capture thread (V6: its index) and how many events it had tried to write.
    pub threads: &'a [(u64, u32)],
}

/// An event, borrowed from the reader until the next one is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    metadata: &'a Metadata,
}

impl<'a> Event<'a> {
    /// Its description. Of an event whose description is missing from the file everything but the id is empty.
    pub fn metadata(&self) -> &'a Metadata {
        self.metadata
    }
    /// The payload's bytes.
    pub fn payload(&self) -> &'a [u8] {
        unimplemented!()
    }
    /// Clock at the event, in ticks: see [`TraceInfo::nanoseconds`].
    pub fn timestamp(&self) -> i64 {
        unimplemented!()
    }
    /// The thread that the event is about: the operating system's number.
    pub fn thread_id(&self) -> u64 {
        unimplemented!()
    }
    /// Its process; 0 when the file does not say.
    pub fn process_id(&self) -> u64 {
        unimplemented!()
    }
    /// The thread that wrote the event: operating system's number, in V6 its index. V1–V3: the same as the thread.
    pub fn capture_thread_id(&self) -> u64 {
        unimplemented!()
    }
    /// V6: index of the thread.
    pub fn thread_index(&self) -> Option<u64> {
        unimplemented!()
    }
    /// Number of the event among those that the capture thread tried to write. V1–V3: 0.
    pub fn sequence_number(&self) -> u32 {
        unimplemented!()
    }
    /// Processor, if known.
    pub fn processor_number(&self) -> Option<u32> {
        unimplemented!()
    }
    /// The stack, possibly empty.
    pub fn stack(&self) -> Stack<'a> {
        unimplemented!()
    }
    /// Activity, zero if none.
    pub fn activity_id(&self) -> Guid {
        unimplemented!()
    }
    /// Related activity, zero if none.
    pub fn related_activity_id(&self) -> Guid {
        unimplemented!()
    }
    /// Whether the writer promised that no later event in the stream is older than this one.
    pub fn is_sorted(&self) -> bool {
        unimplemented!()
    }
    /// V6: all labels, the activity ids included. Empty before V6.
    pub fn labels(&self) -> impl Iterator<Item = Label<'a>> + use<'a> {
        core::iter::empty()
    }
    /// Opcode: the label's if there is one, else the metadata's. The same for the next three.
    pub fn opcode(&self) -> u8 {
        unimplemented!()
    }
    /// Keywords.
    pub fn keywords(&self) -> u64 {
        unimplemented!()
    }
    /// Level.
    pub fn level(&self) -> u32 {
        unimplemented!()
    }
    /// Version.
    pub fn version(&self) -> u32 {
        unimplemented!()
    }
    /// Size of pointers in the payload and the stack.
    pub fn pointer_size(&self) -> u32 {
        unimplemented!()
    }
    /// Offset of the event's record in the file.
    pub fn offset(&self) -> u64 {
        unimplemented!()
    }
}

/// The frames of an event, innermost first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack<'a> {
    bytes: &'a [u8],
    pointer_size: u32,
}

impl<'a> Stack<'a> {
    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames().len()
    }
    /// The addresses, innermost first. All but the first are return addresses.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        core::iter::empty()
    }
    /// The pointers as they lie in the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Events that were not delivered, from the numbers of those that were (nettrace.md 7.2).
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Missing between events, and between the last event of a thread and a sequence point: what TraceEvent counts.
    pub gaps: u64,
    /// Missing before the first event seen of a thread, and all events of threads of which none was seen.
    pub at_start: u64,
    /// Whether more may be lost than the file can tell: say "at least".
    pub is_lower_bound: bool,
}

impl Losses {
    /// All.
    pub fn total(&self) -> u64 {
        self.gaps.saturating_add(self.at_start)
    }
    /// Per capture thread, in the order of first appearance. Threads that V6 removed stay in the list.
    pub fn threads(&self) -> &[ThreadLosses] {
        &[]
    }
}

/// Deliveries and losses of one capture thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadLosses {
    /// The operating system's number of the thread.
    pub thread_id: u64,
    /// Events in the file.
    pub delivered: u64,
    /// See [`Losses::gaps`].
    pub gaps: u64,
    /// See [`Losses::at_start`].
    pub at_start: u64,
}

/// What a reader saw.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Events given.
    pub events: u64,
}

/// A part of the file that recover mode left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it begins.
    pub offset: u64,
    /// Its size in bytes.
    pub length: u64,
    /// Why.
    pub reason: ErrorKind,
}

/// Gives the events of a [`Reader`] by time, in the order in which TraceEvent dispatches them (nettrace.md 7.1).
///
/// Memory is bounded by what the writer puts between two events marked as sorted, or two sequence points. V1–V3 know
/// neither: their events come in the order of the file.
#[derive(Debug)]
pub struct DispatchOrder<R> {
    reader: Reader<R>,
}

impl<R: Read> DispatchOrder<R> {
    /// The next event by time.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, Error> {
        unimplemented!()
    }
    /// The reader, for its tables and figures. They run ahead of the events given.
    pub fn reader(&self) -> &Reader<R> {
        &self.reader
    }
}
