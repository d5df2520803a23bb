//! What a reader gives beside events, and what it says about a trace.

use crate::{Event, Metadata, ThreadRow};

/// What [`crate::Reader::next_item`] gives.
#[derive(Debug)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A description.
    Metadata(&'a Metadata),
    /// An event.
    Event(Event<'a>),
    /// A sequence point. The stacks and labels before it, and what its flags name, are forgotten already.
    SequencePoint(SequencePoint<'a>),
    /// V6: a thread was given an index.
    ThreadDefined {
        /// The index.
        index: u64,
        /// Who it is.
        row: &'a ThreadRow,
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

/// What a reader saw: sizes of the file, and oddities that it tolerated (nettrace.md section 9).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Events given.
    pub events: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Time stamps of the oldest and the newest of them; (0, 0) if there is none.
    pub timestamps: (i64, i64),
    /// Blocks by kind. In V1 and V2, which know no blocks, event records.
    pub event_blocks: u64,
    /// Metadata blocks.
    pub metadata_blocks: u64,
    /// Stack blocks.
    pub stack_blocks: u64,
    /// Sequence points.
    pub sequence_points: u64,
    /// V6: thread, remove-thread and label list blocks.
    pub thread_blocks: u64,
    /// V6: label list blocks.
    pub label_blocks: u64,
    /// Stacks that were defined.
    pub stacks: u64,
    /// Descriptions.
    pub descriptions: u64,
    /// Blocks of kinds that are not known, skipped.
    pub unknown_blocks: u64,
    /// Events without a description.
    pub undescribed_events: u64,
    /// V6: events of threads that no row describes.
    pub unknown_threads: u64,
    /// Descriptions, or rows of threads, whose number was in use.
    pub duplicates: u64,
    /// Descriptions whose list of fields made no sense.
    pub unreadable_descriptions: u64,
    /// Bytes behind the end of the trace that are there to see; the reader does not look for more.
    pub trailing_bytes: u64,
}
