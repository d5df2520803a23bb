//! Writing traces: V4 (with the tags called V5) and V6, and V3 for clients that want it. Works without std, does no I/O.

mod block;
mod ids;
mod interner;
mod netperf;
mod record;

use alloc::string::String;
use alloc::vec::Vec;

use crate::format::container::{self, BlockKind, MAX_V6_BLOCK, ObjectHeader, TAG_END, TAG_NULL};
use crate::format::event::{BlockHeader, EventHeader};
use crate::format::{description, labels, metadata, sequence_point, stacks, threads};
use crate::wire::{Cursor, put_u16, put_u32, put_utf16z};
use crate::{FormatVersion, Guid, Label, Metadata, ThreadRow, TraceInfo};
use block::Block;
use ids::DefinedIds;
use interner::Interner;
pub use netperf::NetPerfWriter;
pub use record::{
    EventRecord, FORGET_METADATA, FORGET_THREADS, UNKNOWN_PROCESSOR, WriteError, WriteFormat,
};

/// Writes a trace into memory; the caller moves [`output`](TraceWriter::output) to where it belongs.
///
/// Nothing but bytes of whole blocks ever appears in the output, so it can be taken at any time. Order of calls:
/// [`define_event`](Self::define_event), [`stack`](Self::stack) and V6's [`define_thread`](Self::define_thread)
/// before the first [`event`](Self::event) that names them. Memory grows with the stacks and label lists between two
/// sequence points, and with what the caller leaves in the output.
#[derive(Debug)]
pub struct TraceWriter {
    format: WriteFormat,
    is_compressed: bool,
    block_size: usize,
    output: Vec<u8>,
    /// Offset in the stream of the end of `output`; alignment counts from the first byte of the stream.
    offset: u64,
    events: Block,
    metadata: Block,
    stacks: Interner,
    labels: Interner,
    /// V6: rows of threads and entries of removed threads.
    threads: Vec<u8>,
    removed: Vec<u8>,
    defined: DefinedIds,
    /// The activity ids that `activity_labels` is the list of.
    activity: (Guid, Guid),
    activity_labels: u32,
    scratch: Vec<u8>,
}

/// Size of event blocks unless set: what the runtime uses.
const BLOCK_SIZE: usize = 100 << 10;

impl TraceWriter {
    /// A trace with its header in the output. `info.format` is ignored. Without the feature `v6` every trace has V4.
    pub fn new(format: WriteFormat, info: &TraceInfo) -> TraceWriter {
        let mut writer = TraceWriter {
            format,
            is_compressed: true,
            block_size: BLOCK_SIZE,
            output: Vec::new(),
            offset: 0,
            events: Block::new(),
            metadata: Block::new(),
            stacks: Interner::default(),
            labels: Interner::default(),
            threads: Vec::new(),
            removed: Vec::new(),
            defined: DefinedIds::default(),
            activity: (Guid::ZERO, Guid::ZERO),
            activity_labels: 0,
            scratch: Vec::new(),
        };
        writer.output.extend_from_slice(container::MAGIC);
        match writer.format() {
            WriteFormat::V4 => {
                writer
                    .output
                    .extend_from_slice(container::FAST_SERIALIZATION);
                ObjectHeader::encode(&mut writer.output, BlockKind::Trace);
                description::encode(&mut writer.output, info, FormatVersion::V4);
                writer.output.push(TAG_END);
                writer.offset = writer.output.len() as u64;
            }
            WriteFormat::V6 => {
                for part in [0, 6, 0] {
                    put_u32(&mut writer.output, part);
                }
                description::encode(&mut writer.scratch, info, FormatVersion::V6);
                writer.put_scratch(BlockKind::Trace);
            }
        }
        writer
    }

    /// The format that is written.
    #[inline]
    pub fn format(&self) -> WriteFormat {
        if cfg!(feature = "v6") {
            self.format
        } else {
            WriteFormat::V4
        }
    }

    /// Size in bytes of event blocks before they are closed on their own, 102,400 in the beginning. A V6 block is
    /// closed before it reaches its limit of 16,777,215 bytes whatever is set.
    pub fn set_block_size(&mut self, bytes: usize) {
        self.block_size = bytes;
    }

    /// Whether headers of events are compressed, which they are in the beginning. Closes the open blocks. No runtime
    /// ever wrote uncompressed ones; every reader should know them.
    pub fn set_compressed(&mut self, is_compressed: bool) {
        self.flush();
        self.is_compressed = is_compressed;
    }

    /// Describes the events of one metadata id. Ids count from 1; each is defined once. What the format has no place
    /// for is left out: see [`crate::unrepresentable`].
    ///
    /// # Errors
    /// [`WriteError::RowTooLarge`]: in V6 the names alone take more than 65,535 bytes.
    pub fn define_event(&mut self, metadata: &Metadata) -> Result<(), WriteError> {
        self.scratch.clear();
        match self.format() {
            WriteFormat::V4 => {
                metadata::encode_v4(&mut self.scratch, metadata);
                let record = core::mem::take(&mut self.scratch);
                self.add_metadata_record(&record);
                self.scratch = record;
            }
            WriteFormat::V6 => {
                metadata::encode_v6_row(&mut self.scratch, metadata);
                if self.scratch.len() > usize::from(u16::MAX) {
                    // Descriptive text goes first.
                    let mut bare = metadata.clone();
                    (bare.message_template, bare.description) = (None, None);
                    bare.key_values.clear();
                    self.scratch.clear();
                    metadata::encode_v6_row(&mut self.scratch, &bare);
                    if self.scratch.len() > usize::from(u16::MAX) {
                        bare.fields.clear();
                        self.scratch.clear();
                        metadata::encode_v6_row(&mut self.scratch, &bare);
                    }
                }
                let Ok(size) = u16::try_from(self.scratch.len()) else {
                    return Err(WriteError::RowTooLarge);
                };
                if self.metadata.content.len() > MAX_V6_BLOCK / 2 {
                    self.flush();
                }
                put_u16(&mut self.metadata.content, size);
                self.metadata.content.extend_from_slice(&self.scratch);
            }
        }
        self.defined.insert(metadata.id);
        Ok(())
    }

    /// As [`define_event`](Self::define_event) with a description that is encoded already, the way runtimes keep it: a metadata
    /// record of V4 without its first two fields, which are the metadata id and the provider's name (nettrace.md 5.4). V4 takes it
    /// as it is, whatever it holds. V6 takes what can be read of it.
    ///
    /// # Errors
    /// Those of [`define_event`](Self::define_event), in V6.
    pub fn define_encoded(
        &mut self,
        metadata_id: u32,
        provider: &str,
        description: &[u8],
    ) -> Result<(), WriteError> {
        let mut record = Vec::new();
        put_u32(&mut record, metadata_id);
        put_utf16z(&mut record, provider);
        record.extend_from_slice(description);
        match self.format() {
            WriteFormat::V4 => self.add_metadata_record(&record),
            WriteFormat::V6 => {
                let decoded = metadata::decode_v3_to_v5(&mut Cursor::new(&record, 0));
                let metadata = match decoded {
                    Ok(decoded) => decoded.metadata,
                    Err(_) => Metadata {
                        id: metadata_id,
                        provider: String::from(provider),
                        ..Metadata::default()
                    },
                };
                return self.define_event(&metadata);
            }
        }
        self.defined.insert(metadata_id);
        Ok(())
    }

    fn add_metadata_record(&mut self, record: &[u8]) {
        let header = EventHeader {
            timestamp: self.events.previous.timestamp,
            payload_size: record.len() as u32,
            is_sorted: true,
            ..EventHeader::BLOCK_START
        };
        self.metadata.add::<false>(&header, record, true);
    }

    /// Whether [`define_event`](Self::define_event) was called for this id.
    #[inline]
    pub fn is_defined(&self, metadata_id: u32) -> bool {
        self.defined.contains(metadata_id)
    }

    /// The number of a stack, given as pointers of the trace's size, innermost frame first. The same stack has the
    /// same number until the next sequence point. An empty one is 0.
    ///
    /// # Errors
    /// [`WriteError::ListTooLarge`]: more than half of the largest block, about 8 MB.
    #[inline]
    pub fn stack(&mut self, frames: &[u8]) -> Result<u32, WriteError> {
        if frames.is_empty() {
            return Ok(0);
        }
        if frames.len() > MAX_V6_BLOCK / 2 {
            return Err(WriteError::ListTooLarge);
        }
        Ok(self.stacks.number(frames))
    }

    /// V6: the number of a list of labels, until the next sequence point. An empty list is 0, and so is every list
    /// in V4.
    ///
    /// # Errors
    /// [`WriteError::ListTooLarge`]: more than half of the largest block, about 8 MB.
    pub fn label_list(&mut self, labels: &[Label<'_>]) -> Result<u32, WriteError> {
        if labels.is_empty() || self.format() == WriteFormat::V4 {
            return Ok(0);
        }
        self.scratch.clear();
        labels::encode(&mut self.scratch, labels);
        if self.scratch.len() > MAX_V6_BLOCK / 2 {
            return Err(WriteError::ListTooLarge);
        }
        Ok(self.labels.number(&self.scratch))
    }

    /// V6: names a thread. Nothing in V4, where threads are known by their id.
    ///
    /// # Errors
    /// [`WriteError::RowTooLarge`]: name and pairs take more than 65,535 bytes.
    pub fn define_thread(&mut self, index: u64, row: &ThreadRow) -> Result<(), WriteError> {
        if self.format() == WriteFormat::V4 {
            return Ok(());
        }
        // The index may be one that was removed: the removal comes first then.
        if !self.removed.is_empty() || self.threads.len() > MAX_V6_BLOCK / 2 {
            self.flush();
        }
        self.scratch.clear();
        threads::encode_row(&mut self.scratch, index, row);
        let Ok(size) = u16::try_from(self.scratch.len()) else {
            return Err(WriteError::RowTooLarge);
        };
        put_u16(&mut self.threads, size);
        self.threads.extend_from_slice(&self.scratch);
        Ok(())
    }

    /// V6: a thread ended, after having tried to write that many events. Nothing in V4.
    pub fn remove_thread(&mut self, index: u64, sequence_number: u32) {
        if self.format() == WriteFormat::V6 {
            threads::encode_removed(&mut self.removed, index, sequence_number);
            if self.removed.len() > MAX_V6_BLOCK / 2 {
                self.flush();
            }
        }
    }

    /// Writes an event.
    ///
    /// # Errors
    /// [`WriteError::EventTooLarge`]: the payload does not fit into a block of the format. Nothing is written.
    #[inline]
    pub fn event(&mut self, event: &EventRecord<'_>) -> Result<(), WriteError> {
        // TraceEvent takes a change of the capture thread from sorted events and from the first event of a block only: elsewhere it
        // files the event under the thread before, and its order and its count of losses break.
        if !event.is_sorted
            && event.capture_thread_id != self.events.previous.capture_thread_id
            && !self.events.content.is_empty()
        {
            self.flush();
        }
        if self.events.content.is_empty() {
            self.open_events();
        }
        let mut header = EventHeader {
            metadata_id: event.metadata_id,
            sequence_number: event.sequence_number,
            thread_id: event.thread_id,
            capture_thread_id: event.capture_thread_id,
            processor_number: event.processor_number,
            stack_id: event.stack_id,
            timestamp: event.timestamp,
            activity_id: event.activity_id,
            related_activity_id: event.related_activity_id,
            label_list: 0,
            payload_size: event.payload.len() as u32,
            is_sorted: event.is_sorted,
        };
        match self.format() {
            WriteFormat::V4 => {
                if event.payload.len() > MAX_V4_EVENT {
                    return Err(WriteError::EventTooLarge);
                }
                self.events
                    .add::<false>(&header, event.payload, self.is_compressed);
            }
            WriteFormat::V6 => {
                if event.payload.len() > MAX_V6_EVENT {
                    return Err(WriteError::EventTooLarge);
                }
                header.label_list = match event.label_list {
                    0 => self.activity_labels(event.activity_id, event.related_activity_id),
                    list => list,
                };
                if self.events.length().saturating_add(event.payload.len()) > MAX_V6_EVENT {
                    self.flush();
                    self.open_events();
                }
                self.events
                    .add::<true>(&header, event.payload, self.is_compressed);
            }
        }
        if self.events.length() >= self.block_size {
            self.flush();
        }
        Ok(())
    }

    /// Writes an event that differs from the one before it in its kind, stack, time and payload alone, has the next sequence number, and
    /// is not marked sorted. `false`, and nothing is written, where there is no short form for that, as at the beginning of a block: then
    /// it takes [`event`](Self::event), which writes the same bytes, and slower.
    // A library that is built small compiles this crate for speed (the profile `nativeaot`): then not into code that is not.
    #[cfg_attr(feature = "std", inline(always))]
    #[cfg_attr(not(feature = "std"), inline(never))]
    pub fn similar_event(
        &mut self,
        metadata_id: u32,
        stack_id: u32,
        timestamp: u64,
        payload: &[u8],
    ) -> bool {
        let length = self.events.length();
        let is_possible = self.is_compressed && length != 0 && length < MAX_V6_BLOCK / 2;
        if !is_possible
            || !self
                .events
                .add_similar(metadata_id, stack_id, timestamp, payload)
        {
            return false;
        }
        if self.events.length() >= self.block_size {
            self.flush();
        }
        true
    }

    /// Writes events that are like the last one in everything but time and payload, of which the size is the same, and have the next
    /// sequence numbers; how many of them. Where it stops it takes [`event`](Self::event), as at the beginning of a block.
    #[inline(never)]
    pub fn like_events(&mut self, events: &[(u64, &[u8])]) -> usize {
        let block = &mut self.events;
        let full = self.block_size.min(MAX_V6_BLOCK / 2);
        if !self.is_compressed || !(1..full).contains(&block.length()) {
            return 0;
        }
        let written = block.add_like(block.records_at.saturating_add(full), events);
        if block.length() >= self.block_size {
            self.flush();
        }
        written
    }

    /// Begins an event block: frame and header, both still without their values, so that the block need not be moved when it is closed.
    #[inline(never)]
    fn open_events(&mut self) {
        let format = self.format();
        let block = &mut self.events;
        block.content.clear();
        block
            .content
            .reserve(self.block_size.min(BLOCK_SIZE).saturating_add(SPARE));
        block.offset = self.offset;
        put_frame(&mut block.content, format, BlockKind::Event, 0, self.offset);
        block.content.extend_from_slice(&[0; BlockHeader::LENGTH]);
        block.records_at = block.content.len();
    }

    /// Completes the event block that is open: to the output by exchange where it is the only thing to go there, else by copying.
    fn close_events(&mut self) {
        let header = self.events.header(self.is_compressed);
        self.scratch.clear();
        if self.events.offset != self.offset {
            // Other blocks have come between, and with them perhaps another padding.
            header.encode(&mut self.scratch);
            let content = core::mem::take(&mut self.events.content);
            let records = content.get(self.events.records_at..).unwrap_or_default();
            self.put_block(BlockKind::Event, records);
            self.events.content = content;
            self.events.restart();
            return;
        }
        let format = self.format();
        let size = self.events.length().saturating_add(BlockHeader::LENGTH);
        put_frame(
            &mut self.scratch,
            format,
            BlockKind::Event,
            size,
            self.offset,
        );
        header.encode(&mut self.scratch);
        let content = &mut self.events.content;
        if let Some(place) = content.get_mut(..self.scratch.len()) {
            place.copy_from_slice(&self.scratch);
        }
        if format == WriteFormat::V4 {
            content.push(TAG_END);
        }
        self.offset = self.offset.wrapping_add(content.len() as u64);
        if self.output.is_empty() {
            core::mem::swap(&mut self.output, content);
        } else {
            self.output.extend_from_slice(content);
        }
        self.events.restart();
    }

    /// V6: the list of labels that says what the two ids say in V4.
    #[inline]
    fn activity_labels(&mut self, activity_id: Guid, related_activity_id: Guid) -> u32 {
        if (activity_id, related_activity_id) != self.activity {
            self.activity = (activity_id, related_activity_id);
            self.scratch.clear();
            match (activity_id.is_zero(), related_activity_id.is_zero()) {
                (true, true) => {}
                (false, true) => {
                    labels::encode(&mut self.scratch, &[Label::ActivityId(activity_id)])
                }
                (true, false) => labels::encode(
                    &mut self.scratch,
                    &[Label::RelatedActivityId(related_activity_id)],
                ),
                (false, false) => {
                    let both = [
                        Label::ActivityId(activity_id),
                        Label::RelatedActivityId(related_activity_id),
                    ];
                    labels::encode(&mut self.scratch, &both);
                }
            }
            self.activity_labels = if self.scratch.is_empty() {
                0
            } else {
                self.labels.number(&self.scratch)
            };
        }
        self.activity_labels
    }

    /// Closes all blocks and writes a sequence point: every event so far is not newer than `timestamp`, every later
    /// one is not older, and each thread tried to write at least so many events. Stacks and label lists are
    /// forgotten. `flags` is written in V6 only: see [`FORGET_THREADS`] and [`FORGET_METADATA`].
    pub fn sequence_point<I>(&mut self, timestamp: u64, flags: u32, threads: I)
    where
        I: IntoIterator<Item = (u64, u32)>,
    {
        self.list_threads(timestamp, flags, &mut threads.into_iter());
    }

    /// [`sequence_point`](Self::sequence_point), once for all kinds of lists.
    fn list_threads(
        &mut self,
        timestamp: u64,
        flags: u32,
        threads: &mut dyn Iterator<Item = (u64, u32)>,
    ) {
        self.flush();
        let format = self.format_version();
        let mut threads = threads.peekable();
        loop {
            // A block has room for about a million threads; more of them take several points at the same time, of
            // which the last has the flags.
            self.scratch.clear();
            sequence_point::encode(
                &mut self.scratch,
                format,
                timestamp,
                0,
                &mut threads.by_ref().take(MAX_LISTED),
            );
            let is_last = threads.peek().is_none();
            if is_last && self.format() == WriteFormat::V6 {
                sequence_point::set_flags(&mut self.scratch, flags);
            }
            self.put_scratch(BlockKind::SequencePoint);
            if is_last {
                break;
            }
        }
        self.stacks.forget();
        self.labels.forget();
        (self.activity, self.activity_labels) = ((Guid::ZERO, Guid::ZERO), 0);
        if self.format() == WriteFormat::V6 && flags & FORGET_METADATA != 0 {
            self.defined = DefinedIds::default();
        }
    }

    /// Closes all open blocks: everything written so far is in the output afterwards.
    pub fn flush(&mut self) {
        self.flush_metadata();
        if !self.threads.is_empty() {
            self.scratch.clear();
            core::mem::swap(&mut self.scratch, &mut self.threads);
            self.put_scratch(BlockKind::Thread);
            core::mem::swap(&mut self.scratch, &mut self.threads);
            self.threads.clear();
        }
        while self.stacks.pending_bytes() > 0 {
            self.flush_list(BlockKind::Stack);
        }
        while self.labels.pending_bytes() > 0 {
            self.flush_list(BlockKind::LabelList);
        }
        // An event that was refused leaves an open block without records.
        if self.events.length() > 0 {
            self.close_events();
        }
        if !self.removed.is_empty() {
            self.scratch.clear();
            core::mem::swap(&mut self.scratch, &mut self.removed);
            self.put_scratch(BlockKind::RemoveThread);
            core::mem::swap(&mut self.scratch, &mut self.removed);
            self.removed.clear();
        }
    }

    fn flush_metadata(&mut self) {
        if self.metadata.content.is_empty() {
            return;
        }
        self.scratch.clear();
        match self.format() {
            WriteFormat::V4 => self.metadata.header(true).encode(&mut self.scratch),
            WriteFormat::V6 => put_u16(&mut self.scratch, 0),
        }
        let content = core::mem::take(&mut self.metadata.content);
        self.put_block(BlockKind::Metadata, &content);
        self.metadata.content = content;
        self.metadata.restart();
    }

    /// Writes a block with as many of the pending stacks or label lists as fit into one.
    fn flush_list(&mut self, kind: BlockKind) {
        self.scratch.clear();
        let list = if kind == BlockKind::Stack {
            &mut self.stacks
        } else {
            &mut self.labels
        };
        let first = list.pending().map_or(1, |(number, _)| number);
        stacks::encode_header(&mut self.scratch, first, 0);
        let mut count = 0u32;
        while let Some((_, string)) = list.pending() {
            if count > 0 && self.scratch.len().saturating_add(string.len()) > MAX_V6_BLOCK - 64 {
                break;
            }
            if kind == BlockKind::Stack {
                stacks::encode(&mut self.scratch, string);
            } else {
                self.scratch.extend_from_slice(string);
            }
            list.mark_written();
            count = count.wrapping_add(1);
        }
        if let Some(place) = self.scratch.get_mut(4..8) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        self.put_scratch(kind);
    }

    /// Closes all blocks and writes the end of the stream. Nothing may be written after it.
    pub fn finish(&mut self) {
        self.flush();
        match self.format() {
            WriteFormat::V4 => {
                self.output.push(TAG_NULL);
                self.offset = self.offset.wrapping_add(1);
            }
            WriteFormat::V6 => {
                self.scratch.clear();
                self.put_scratch(BlockKind::EndOfStream);
            }
        }
    }

    /// What was written and not taken yet. The caller may drain or take it whenever it likes.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    fn format_version(&self) -> FormatVersion {
        match self.format() {
            WriteFormat::V4 => FormatVersion::V4,
            WriteFormat::V6 => FormatVersion::V6,
        }
    }

    /// Writes a block whose content is in `scratch`.
    fn put_scratch(&mut self, kind: BlockKind) {
        self.put_block(kind, &[]);
    }

    /// Writes a block whose content begins in `scratch` and goes on in `rest`.
    fn put_block(&mut self, kind: BlockKind, rest: &[u8]) {
        let before = self.output.len();
        let size = self.scratch.len().saturating_add(rest.len());
        self.output.reserve(size.saturating_add(64));
        let format = self.format();
        put_frame(&mut self.output, format, kind, size, self.offset);
        self.output.extend_from_slice(&self.scratch);
        self.output.extend_from_slice(rest);
        if self.format() == WriteFormat::V4 {
            self.output.push(TAG_END);
        }
        self.offset = self
            .offset
            .wrapping_add(self.output.len().wrapping_sub(before) as u64);
    }
}

/// Writes what stands before the `size` bytes of a block that begins at `offset` of the stream.
fn put_frame(out: &mut Vec<u8>, format: WriteFormat, kind: BlockKind, size: usize, offset: u64) {
    match format {
        WriteFormat::V4 => {
            let before = out.len();
            ObjectHeader::encode(out, kind);
            put_u32(out, size as u32);
            let here = offset.wrapping_add(out.len().wrapping_sub(before) as u64);
            let padded = out.len().saturating_add(container::padding(here));
            out.resize(padded, 0);
        }
        WriteFormat::V6 => container::put_v6_header(out, kind, size),
    }
}

/// What an event block may need beside its records, and the record that is one too many.
const SPARE: usize = 2 << 10;

/// Threads in one sequence point: each takes at most fifteen bytes.
const MAX_LISTED: usize = 1 << 20;
/// The largest payload of an event in V6: a block less its header and the longest header of a record.
const MAX_V6_EVENT: usize = MAX_V6_BLOCK - 256;
/// The largest payload of an event in V4, whose blocks have a signed size.
const MAX_V4_EVENT: usize = i32::MAX as usize / 2;
