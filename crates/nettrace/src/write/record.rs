//! What goes into a trace, and what is refused.

use crate::Guid;

/// The versions that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFormat {
    /// V4, with the metadata tags of V5 where a description needs them. Every reader takes it.
    V4,
    /// V6.
    V6,
}

/// An event as it goes into a trace. The default is one without a stack, activities, labels and payload, whose processor is
/// number 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EventRecord<'a> {
    /// Which description it follows; defined before with [`crate::TraceWriter::define_event`].
    pub metadata_id: u32,
    /// Number of the event among those that the capture thread tried to write, from 1, counting those that were lost.
    pub sequence_number: u32,
    /// The thread that the event is about: its id of the operating system (V4) or its index (V6).
    pub thread_id: u64,
    /// The thread that wrote the event, likewise.
    pub capture_thread_id: u64,
    /// Processor, [`UNKNOWN_PROCESSOR`] if unknown.
    pub processor_number: u32,
    /// The stack, from [`crate::TraceWriter::stack`]; 0 is none.
    pub stack_id: u32,
    /// Clock at the event, in ticks.
    pub timestamp: u64,
    /// Activity, zero for none.
    pub activity_id: Guid,
    /// Related activity, zero for none.
    pub related_activity_id: Guid,
    /// Promise that no event after this one in the stream is older than it (nettrace.md 7.1).
    pub is_sorted: bool,
    /// V6: labels, from [`crate::TraceWriter::label_list`]; 0 is none. When it is not 0, the two activity ids above are
    /// not written: put them into the list.
    pub label_list: u32,
    /// The payload.
    pub payload: &'a [u8],
}

/// The processor number of an event whose processor is not known.
pub const UNKNOWN_PROCESSOR: u32 = u32::MAX;

/// Flag of a V6 sequence point: thread indexes are forgotten and may be defined anew.
pub const FORGET_THREADS: u32 = 1;
/// Flag of a V6 sequence point: metadata ids are forgotten and may be defined anew.
pub const FORGET_METADATA: u32 = 2;

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
