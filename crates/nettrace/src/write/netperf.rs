//! Writing V3, called NetPerf: what clients get that ask for format 0 (nettrace.md 4). It has no table of stacks, no numbers of events and
//! so no losses; nothing is written in it that need not be.

use alloc::vec::Vec;

use super::ids::DefinedIds;
use super::{EventRecord, WriteError};
use crate::format::container::{self, BlockKind, ObjectHeader, TAG_END, TAG_NULL};
use crate::format::event::{self, EventHeader};
use crate::format::{description, metadata};
use crate::wire::{put_u32, put_utf16z};
use crate::{FormatVersion, Metadata, TraceInfo};

/// Writes a trace of V3 into memory; the caller moves [`output`](NetPerfWriter::output) to where it belongs, at any time.
///
/// Readers dispatch the events of this version as they find them, so the caller gives them in the order of their time.
#[derive(Debug)]
pub struct NetPerfWriter {
    output: Vec<u8>,
    /// Offset in the stream of the end of `output`.
    offset: u64,
    /// Records of the block under construction.
    content: Vec<u8>,
    timestamp: u64,
    defined: DefinedIds,
}

/// Records are gathered up to here, as in the other formats.
const BLOCK_SIZE: usize = 100 << 10;
/// The largest payload: blocks have a signed size.
const MAX_PAYLOAD: usize = i32::MAX as usize / 2;
/// The largest stack that TraceEvent takes.
const MAX_STACK: usize = 65_527;

impl NetPerfWriter {
    /// A trace with its header in the output. `info.format` is ignored.
    pub fn new(info: &TraceInfo) -> Self {
        let mut output = container::FAST_SERIALIZATION.to_vec();
        ObjectHeader::encode_v3(&mut output, BlockKind::Trace);
        description::encode(&mut output, info, FormatVersion::V3);
        output.push(TAG_END);
        NetPerfWriter {
            offset: output.len() as u64,
            output,
            content: Vec::new(),
            timestamp: info.sync_ticks as u64,
            defined: DefinedIds::default(),
        }
    }

    /// See [`crate::TraceWriter::define_event`].
    pub fn define_event(&mut self, metadata: &Metadata) {
        let mut record = Vec::new();
        metadata::encode_v4(&mut record, metadata);
        self.define(metadata.id, &record);
    }

    /// See [`crate::TraceWriter::define_encoded`].
    pub fn define_encoded(&mut self, metadata_id: u32, provider: &str, description: &[u8]) {
        let mut record = Vec::new();
        put_u32(&mut record, metadata_id);
        put_utf16z(&mut record, provider);
        record.extend_from_slice(description);
        self.define(metadata_id, &record);
    }

    fn define(&mut self, metadata_id: u32, record: &[u8]) {
        let header = EventHeader {
            timestamp: self.timestamp,
            ..EventHeader::BLOCK_START
        };
        event::encode_with_stack(&mut self.content, &header, record, &[]);
        self.defined.insert(metadata_id);
    }

    /// See [`crate::TraceWriter::is_defined`].
    pub fn is_defined(&self, metadata_id: u32) -> bool {
        self.defined.contains(metadata_id)
    }

    /// Writes an event with its stack: pointers of the trace's size, innermost frame first. Of the record the ids of metadata, thread and
    /// activities count, the time and the payload.
    ///
    /// # Errors
    /// The payload or the stack is larger than the format or its readers take.
    pub fn event(&mut self, event: &EventRecord<'_>, stack: &[u8]) -> Result<(), WriteError> {
        if event.payload.len() > MAX_PAYLOAD {
            return Err(WriteError::EventTooLarge);
        }
        if stack.len() > MAX_STACK {
            return Err(WriteError::ListTooLarge);
        }
        let header = EventHeader {
            metadata_id: event.metadata_id,
            thread_id: event.thread_id,
            timestamp: event.timestamp,
            activity_id: event.activity_id,
            related_activity_id: event.related_activity_id,
            ..EventHeader::BLOCK_START
        };
        self.timestamp = event.timestamp;
        event::encode_with_stack(&mut self.content, &header, event.payload, stack);
        if self.content.len() >= BLOCK_SIZE {
            self.flush();
        }
        Ok(())
    }

    /// Closes the open block: everything written so far is in the output afterwards.
    pub fn flush(&mut self) {
        if self.content.is_empty() {
            return;
        }
        let before = self.output.len();
        ObjectHeader::encode_v3(&mut self.output, BlockKind::Event);
        put_u32(&mut self.output, self.content.len() as u32);
        let written = self.output.len().wrapping_sub(before) as u64;
        let padding = container::padding(self.offset.wrapping_add(written));
        let padded = self.output.len().saturating_add(padding);
        self.output.resize(padded, 0);
        self.output.append(&mut self.content);
        self.output.push(TAG_END);
        let written = self.output.len().wrapping_sub(before) as u64;
        self.offset = self.offset.wrapping_add(written);
    }

    /// Closes the open block and writes the end of the stream. Nothing may be written after it.
    pub fn finish(&mut self) {
        self.flush();
        self.output.push(TAG_NULL);
        self.offset = self.offset.wrapping_add(1);
    }

    /// What was written and not taken yet.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }
}
