//! Taking in blocks: filling the tables, counting, and making the records of an event block current.

use std::io::Read;

use super::load::{Block, NoBlock};
use super::{Notice, Reader, RecordForm, State, names};
use crate::format::container::BlockKind;
use crate::format::event::{BlockHeader, EventHeader};
use crate::format::metadata::{self, Decoded};
use crate::format::{labels, sequence_point, stacks, threads};
use crate::wire::Cursor;
use crate::write::{FORGET_METADATA, FORGET_THREADS};
use crate::{Error, ErrorKind, FormatVersion};

impl<R: Read> Reader<R> {
    /// Loads the next block and takes it in. `false` at the end.
    #[inline(never)]
    pub(super) fn next_block(&mut self) -> Result<bool, Error> {
        match self.load_next()? {
            Some(block) => {
                self.apply(block)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Loads the next block, which [`Reader::apply`] must get. `None` at the end.
    pub(super) fn load_next(&mut self) -> Result<Option<Block>, Error> {
        loop {
            match self.state {
                State::Reading => {}
                State::Cut(error) => return self.end_early(error).map(|()| None),
                State::Ended { .. } => return Ok(None),
            }
            // What lies before the records' end was lent out; now it is gone.
            self.leave_block();
            self.complete_length = self.source.offset();
            let loaded = self.load();
            self.leave_nothing();
            match loaded {
                Ok(block) => return Ok(Some(block)),
                Err(NoBlock::End) => {
                    self.end();
                    return Ok(None);
                }
                Err(NoBlock::Damaged(error)) => {
                    let went_on = self.damaged_container(error);
                    // Looking for the next block may have moved what is in the buffer.
                    self.leave_nothing();
                    went_on?;
                }
            }
        }
    }

    /// The events of the block at hand were lent out; now they are gone.
    pub(super) fn leave_block(&mut self) {
        let end = self.records.block_end.max(self.source.start());
        self.source.consume_to(end);
        self.leave_nothing();
    }

    /// No block is at hand.
    pub(super) fn leave_nothing(&mut self) {
        let start = self.source.start();
        let records = &mut self.records;
        (records.position, records.end, records.block_end) = (start, start, start);
    }

    fn end(&mut self) {
        self.state = State::Ended { is_complete: true };
        self.statistics.trailing_bytes = self.source.bytes().len() as u64;
        let format = self.tables.info.format;
        let may_hide_more = match format {
            FormatVersion::V1 | FormatVersion::V2 | FormatVersion::V3 => true,
            FormatVersion::V4 | FormatVersion::V5 => {
                self.losses.total() > 0 || !self.skipped.is_empty()
            }
            FormatVersion::V6 => !self.skipped.is_empty(),
        };
        self.losses.conclude(may_hide_more);
    }

    /// Takes in a block that was loaded.
    pub(super) fn apply(&mut self, block: Block) -> Result<(), Error> {
        // Until it turns out to have events the block is behind us.
        self.pass(block);
        if let Some(error) = block.cut {
            self.state = State::Cut(error);
        }
        let taken = match block.kind {
            BlockKind::Event => self.apply_events(block),
            BlockKind::Metadata => self.apply_metadata(block),
            BlockKind::Stack => self.apply_stacks(block),
            BlockKind::SequencePoint => self.apply_sequence_point(block),
            BlockKind::Thread => self.apply_threads(block),
            BlockKind::RemoveThread => self.apply_removed(block),
            BlockKind::LabelList => self.apply_labels(block),
            BlockKind::Trace
            | BlockKind::EndOfStream
            | BlockKind::EventPipeFile
            | BlockKind::Unknown => {
                self.statistics.unknown_blocks = self.statistics.unknown_blocks.wrapping_add(1);
                Ok(())
            }
        };
        match (taken, block.cut) {
            (Err(_), Some(_)) | (Ok(()), _) => Ok(()),
            (Err(error), None) => {
                self.pass(block);
                self.damaged_block(error, block)
            }
        }
    }

    /// Puts a block behind us.
    fn pass(&mut self, block: Block) {
        let records = &mut self.records;
        (records.position, records.end, records.block_end) = (block.end, block.end, block.end);
    }

    fn apply_events(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.event_blocks = self.statistics.event_blocks.wrapping_add(1);
        let (start, end) = block.content;
        let records = &mut self.records;
        // The thread, activity and so on of a record of V1–V3 stand in the record itself.
        records.header = EventHeader::BLOCK_START;
        records.header.processor_number = u32::MAX;
        self.current.place = self.tables.metadata.place(0);
        if !self.tables.is_v6() {
            self.current.thread_id = 0;
        }
        if self.tables.info.format <= FormatVersion::V3 {
            (records.form, records.position, records.end) = (RecordForm::WithStack, start, end);
            return Ok(());
        }
        records.header.processor_number = 0;
        let mut cursor = cursor_of(&self.source, block);
        let header = BlockHeader::decode(&mut cursor)?;
        self.losses.leave();
        self.current.can_repeat = false;
        records.form = match (header.is_compressed, self.tables.info.format) {
            (false, _) => RecordForm::Uncompressed,
            (true, FormatVersion::V6) => RecordForm::CompressedV6,
            (true, _) => RecordForm::CompressedV4,
        };
        self.current.inline_stack = (0, 0);
        records.position = start.saturating_add(cursor.position());
        records.end = end;
        Ok(())
    }

    fn apply_metadata(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.metadata_blocks = self.statistics.metadata_blocks.wrapping_add(1);
        if self.tables.is_v6() {
            let mut position = 0;
            loop {
                let mut cursor = cursor_of(&self.source, block);
                if position == 0 {
                    let header = cursor.u16()?;
                    cursor.take(usize::from(header))?;
                } else {
                    cursor.take(position)?;
                }
                if cursor.is_empty() {
                    return Ok(());
                }
                let decoded = metadata::decode_v6_row(&mut cursor)?;
                position = cursor.position();
                self.define(decoded);
            }
        }
        let mut cursor = cursor_of(&self.source, block);
        let block_header = BlockHeader::decode(&mut cursor)?;
        let mut position = cursor.position();
        let mut header = EventHeader::BLOCK_START;
        loop {
            let (start, end) = block.content;
            let bytes = self.source.buffer().get(start..end).unwrap_or_default();
            if position >= bytes.len() {
                return Ok(());
            }
            let offset = self.source.offset_of(start.wrapping_add(position));
            let payload = if block_header.is_compressed {
                let (payload, _) = header
                    .decode_compressed::<false>(bytes, position)
                    .map_err(|kind| Error { offset, kind })?;
                payload
            } else {
                let mut cursor = Cursor::new(bytes.get(position..).unwrap_or_default(), offset);
                let payload = header.decode_uncompressed(&mut cursor, false)?;
                position.wrapping_add(payload)
            };
            let payload_end = payload.wrapping_add(header.payload_size as usize);
            let Some(content) = bytes.get(payload..payload_end) else {
                return Err(Error {
                    offset,
                    kind: ErrorKind::RecordOverrun,
                });
            };
            let mut description =
                Cursor::new(content, self.source.offset_of(start.wrapping_add(payload)));
            let decoded = metadata::decode_v3_to_v5(&mut description)?;
            position = if block_header.is_compressed {
                payload_end
            } else {
                let size = Cursor::new(bytes.get(position..).unwrap_or_default(), offset).u32()?;
                position.wrapping_add(size as usize).wrapping_add(4)
            };
            self.define(decoded);
        }
    }

    /// A record of V1–V3 that describes events; it begins at `start`.
    pub(super) fn define_from_record(&mut self, start: usize) -> Result<(), Error> {
        let (payload, end) = self.current.payload;
        let bytes = self.source.buffer().get(payload..end).unwrap_or_default();
        let mut cursor = Cursor::new(bytes, self.source.offset_of(payload));
        let decoded = match self.tables.info.format {
            format @ (FormatVersion::V1 | FormatVersion::V2) => {
                metadata::decode_v1_v2(&mut cursor, format, self.source.offset_of(start))?
            }
            _ => metadata::decode_v3_to_v5(&mut cursor)?,
        };
        self.define(decoded);
        Ok(())
    }

    fn define(&mut self, decoded: Decoded) {
        let Decoded {
            metadata,
            unreadable,
            has_tags,
        } = decoded;
        let statistics = &mut self.statistics;
        statistics.descriptions = statistics.descriptions.wrapping_add(1);
        statistics.unreadable_descriptions = statistics
            .unreadable_descriptions
            .wrapping_add(u64::from(unreadable));
        if has_tags && self.tables.info.format == FormatVersion::V4 {
            self.tables.info.format = FormatVersion::V5;
        }
        let (place, is_new) = self.tables.metadata.insert(metadata);
        statistics.duplicates = statistics.duplicates.wrapping_add(u64::from(!is_new));
        self.notices.push_back(Notice::Metadata(place));
    }

    fn apply_stacks(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.stack_blocks = self.statistics.stack_blocks.wrapping_add(1);
        let (table, statistics) = (&mut self.tables.stacks, &mut self.statistics);
        stacks::decode(cursor_of(&self.source, block), |id, frames| {
            statistics.stacks = statistics.stacks.wrapping_add(1);
            table.insert(id, frames);
        })
    }

    fn apply_labels(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.label_blocks = self.statistics.label_blocks.wrapping_add(1);
        let table = &mut self.tables.labels;
        labels::decode_block(cursor_of(&self.source, block), |index, list| {
            table.insert(index, list)
        })
    }

    fn apply_threads(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.thread_blocks = self.statistics.thread_blocks.wrapping_add(1);
        self.current.resolved = None;
        let mut cursor = cursor_of(&self.source, block);
        while !cursor.is_empty() {
            let (index, row, _) = threads::decode_row(&mut cursor)?;
            // One that is about to go may be defined anew.
            let was_removed = self.removed_threads.remove(&index);
            if self.tables.threads.insert(index, row).is_some() && !was_removed {
                self.statistics.duplicates = self.statistics.duplicates.wrapping_add(1);
            }
            self.notices.push_back(Notice::ThreadDefined(index));
        }
        Ok(())
    }

    fn apply_removed(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.thread_blocks = self.statistics.thread_blocks.wrapping_add(1);
        self.current.resolved = None;
        let mut cursor = cursor_of(&self.source, block);
        while !cursor.is_empty() {
            let (index, sequence_number) = threads::decode_removed(&mut cursor)?;
            let process_id = self.tables.info.process_id.unwrap_or(0);
            let names = names(self.tables.threads.get(&index), process_id);
            self.losses.tried(index, sequence_number, names);
            if self.keeps_removed_threads {
                self.removed_threads.insert(index);
            } else {
                self.tables.threads.remove(&index);
            }
            self.losses.forget(index);
            self.notices
                .push_back(Notice::ThreadRemoved(index, sequence_number));
        }
        Ok(())
    }

    fn apply_sequence_point(&mut self, block: Block) -> Result<(), Error> {
        self.statistics.sequence_points = self.statistics.sequence_points.wrapping_add(1);
        let format = self.tables.info.format;
        let cursor = cursor_of(&self.source, block);
        self.point = sequence_point::decode(cursor, format, &mut self.point_threads)?;
        let process = self.tables.info.process_id.unwrap_or(0);
        for &(thread, number) in &self.point_threads {
            let names = match format {
                FormatVersion::V6 => names(self.tables.threads.get(&thread), process),
                _ => (thread, process),
            };
            self.losses.tried(thread, number, names);
        }
        self.tables.stacks.forget();
        self.tables.labels.forget();
        for index in self.removed_threads.drain() {
            self.tables.threads.remove(&index);
        }
        let (_, flags) = self.point;
        if flags & FORGET_THREADS != 0 {
            self.tables.threads.clear();
            self.losses.forget_all();
            self.current.resolved = None;
        }
        if flags & FORGET_METADATA != 0 {
            self.tables.metadata.forget();
        }
        self.notices.push_back(Notice::SequencePoint);
        Ok(())
    }
}

fn cursor_of<'a, R: Read>(source: &'a super::Source<R>, block: Block) -> Cursor<'a> {
    let (start, end) = block.content;
    Cursor::new(
        source.buffer().get(start..end).unwrap_or_default(),
        source.offset_of(start),
    )
}
