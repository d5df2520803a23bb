//! An event as the reader lends it.

use crate::format::event::EventHeader;
use crate::format::labels;
use crate::read::tables::{Overrides, Tables};
use crate::wire::Cursor;
use crate::{Guid, Label, Metadata, Schema, UNKNOWN_PROCESSOR};

/// An event, borrowed from the reader until the next one is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub(crate) header: &'a EventHeader,
    pub(crate) metadata: &'a Metadata,
    pub(crate) payload: &'a [u8],
    /// V1–V3: the stack in the record.
    pub(crate) inline_stack: &'a [u8],
    pub(crate) tables: &'a Tables,
    pub(crate) process_id: u64,
    pub(crate) thread_id: u64,
    pub(crate) offset: u64,
    pub(crate) place: u32,
}

impl<'a> Event<'a> {
    /// Its description. Of an event whose description is missing from the file everything but the id is empty.
    #[inline]
    pub fn metadata(&self) -> &'a Metadata {
        self.metadata
    }

    /// How to name and decode it. Made once for all events of a description.
    #[inline]
    pub fn schema(&self) -> &'a Schema {
        let schema = self
            .tables
            .metadata
            .schema(self.place, self.tables.info.pointer_size);
        schema.of_payload(self.payload)
    }

    /// The payload's bytes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Clock at the event, in ticks: see [`crate::TraceInfo::nanoseconds`].
    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.header.timestamp as i64
    }

    /// The thread that the event is about: the operating system's number, 0 if the file does not say.
    #[inline]
    pub fn thread_id(&self) -> u64 {
        self.thread_id
    }

    /// Its process; 0 if the file does not say.
    #[inline]
    pub fn process_id(&self) -> u64 {
        self.process_id
    }

    /// The thread that wrote the event: operating system's number, in V6 its index. V1–V3: the same as the thread.
    #[inline]
    pub fn capture_thread_id(&self) -> u64 {
        self.header.capture_thread_id
    }

    /// V6: index of the thread that the event is about.
    pub fn thread_index(&self) -> Option<u64> {
        self.tables.is_v6().then_some(self.header.thread_id)
    }

    /// Number of the event among those that the capture thread tried to write. V1–V3: 0.
    #[inline]
    pub fn sequence_number(&self) -> u32 {
        self.header.sequence_number
    }

    /// Processor, if known.
    pub fn processor_number(&self) -> Option<u32> {
        let number = self.header.processor_number;
        (number != UNKNOWN_PROCESSOR).then_some(number)
    }

    /// The stack, possibly empty. A stack that is missing from the file is empty too.
    #[inline]
    pub fn stack(&self) -> Stack<'a> {
        let bytes = match self.inline_stack {
            [] => self
                .tables
                .stacks
                .get(self.header.stack_id)
                .unwrap_or_default(),
            inline => inline,
        };
        Stack {
            bytes,
            pointer_size: self.tables.info.pointer_size,
        }
    }

    /// Activity, zero if none.
    pub fn activity_id(&self) -> Guid {
        if self.header.label_list == 0 {
            self.header.activity_id
        } else {
            self.overrides().activity_id
        }
    }

    /// Related activity, zero if none.
    pub fn related_activity_id(&self) -> Guid {
        if self.header.label_list == 0 {
            self.header.related_activity_id
        } else {
            self.overrides().related_activity_id
        }
    }

    /// Whether the writer promised that no later event in the stream is older than this one. V1–V3 promise nothing.
    #[inline]
    pub fn is_sorted(&self) -> bool {
        self.header.is_sorted
    }

    /// V6: all labels, the activity ids included. None before V6.
    pub fn labels(&self) -> impl Iterator<Item = Label<'a>> + use<'a> {
        let list = match self.header.label_list {
            0 => &[],
            number => self.tables.labels.get(number).unwrap_or_default(),
        };
        let mut cursor = Cursor::new(list, 0);
        std::iter::from_fn(move || {
            if cursor.is_empty() {
                return None;
            }
            labels::decode(&mut cursor).ok().map(|(label, _)| label)
        })
    }

    /// Whether it has labels.
    pub(crate) fn has_labels(&self) -> bool {
        self.header.label_list != 0
    }

    /// Number of the system and process of a thread that the event names.
    pub(crate) fn names(&self, thread: u64) -> (u64, Option<u64>) {
        let process_id = self.tables.info.process_id;
        if !self.tables.is_v6() {
            return (thread, process_id);
        }
        match self.tables.threads.get(&thread) {
            Some(row) => (row.thread_id.unwrap_or(0), row.process_id.or(process_id)),
            None => (thread, process_id),
        }
    }

    /// What the file calls the thread that the event is about: number of the system, in V6 index.
    pub(crate) fn subject(&self) -> u64 {
        self.header.thread_id
    }

    fn overrides(&self) -> Overrides {
        let mut found = Overrides::default();
        for label in self.labels() {
            match label {
                Label::ActivityId(id) => found.activity_id = id,
                Label::RelatedActivityId(id) => found.related_activity_id = id,
                Label::OpCode(value) => found.opcode = Some(value),
                Label::Keywords(value) => found.keywords = Some(value),
                Label::Level(value) => found.level = Some(value),
                Label::Version(value) => found.version = Some(value),
                _ => {}
            }
        }
        found
    }

    /// Opcode: the label's if there is one, else the metadata's. The same for the next three.
    pub fn opcode(&self) -> u8 {
        self.overrides().opcode.unwrap_or(self.metadata.opcode)
    }

    /// Keywords.
    pub fn keywords(&self) -> u64 {
        self.overrides().keywords.unwrap_or(self.metadata.keywords)
    }

    /// Level.
    pub fn level(&self) -> u32 {
        self.overrides()
            .level
            .map_or(self.metadata.level, u32::from)
    }

    /// Version.
    pub fn version(&self) -> u32 {
        self.overrides()
            .version
            .map_or(self.metadata.version, u32::from)
    }

    /// Size of pointers in the payload and the stack.
    #[inline]
    pub fn pointer_size(&self) -> u32 {
        self.tables.info.pointer_size
    }

    /// Offset of the event's record in the file.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
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
        self.len() == 0
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames().len()
    }

    /// The addresses, innermost first. All but the first are return addresses.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        self.bytes
            .chunks_exact(self.frame_size())
            .map(|frame| match *frame {
                [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
                [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                _ => 0,
            })
    }

    /// The pointers as they lie in the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn frame_size(&self) -> usize {
        if self.pointer_size == 4 { 4 } else { 8 }
    }
}
