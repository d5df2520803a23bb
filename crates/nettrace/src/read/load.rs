//! Finding the next block: the containers of all versions (nettrace.md sections 1, 2, 3, 6).
//!
//! Invariant: nothing is consumed before a block is there as a whole, so a source that fails can be asked again.

use std::collections::VecDeque;
use std::io::Read;
use std::vec::Vec;

use hashbrown::HashSet;

use super::{
    Current, Losses, Reader, ReaderOptions, RecordForm, Records, Source, State, Statistics, Tables,
};
use crate::format::container::{
    self, BlockKind, FAST_SERIALIZATION, MAGIC, ObjectHeader, Partial, TAG_BEGIN,
    TAG_BEGIN_PRIVATE, TAG_END, TAG_NULL,
};
use crate::format::description;
use crate::format::event::EventHeader;
use crate::wire::Cursor;
use crate::{Error, ErrorKind, FormatVersion, MAX_FORMAT};

/// A block in the source's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// Its content, as positions.
    pub(crate) content: (usize, usize),
    /// Position behind it, its end tag included.
    pub(crate) end: usize,
    /// The file ends inside it.
    pub(crate) cut: Option<Error>,
}

/// Why there is no block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoBlock {
    /// The end tag was there.
    End,
    Damaged(Error),
}

impl From<Error> for NoBlock {
    fn from(error: Error) -> NoBlock {
        NoBlock::Damaged(error)
    }
}

/// The longest table of forward references that is believed at the end of V1 and V2; real ones have one entry.
const MAX_REFERENCES: u32 = 1024;

impl<R: Read> Reader<R> {
    /// Reads everything up to the first block.
    pub(super) fn open(mut source: Source<R>, options: ReaderOptions) -> Result<Reader<R>, Error> {
        let truncated = |source: &Source<R>| Error {
            offset: source.bytes().len() as u64,
            kind: ErrorKind::HeaderTruncated,
        };
        let not_a_trace = Error {
            offset: 0,
            kind: ErrorKind::NotATrace,
        };
        if !source.require(12)? {
            let there = source.bytes();
            let matches = |start: &[u8]| there.iter().zip(start).all(|(a, b)| a == b);
            return Err(if matches(MAGIC) || matches(FAST_SERIALIZATION) {
                truncated(&source)
            } else {
                not_a_trace
            });
        }
        let has_magic = source.bytes().starts_with(MAGIC);
        if has_magic && source.bytes().get(8..12) == Some(&[0; 4]) {
            return Reader::open_v6(source, options);
        }
        let prefix = if has_magic { MAGIC.len() } else { 0 };
        let start = prefix.saturating_add(FAST_SERIALIZATION.len());
        let is_there = source.require(start)?;
        let there = source.bytes().get(prefix..).unwrap_or_default();
        if !there.iter().zip(FAST_SERIALIZATION).all(|(a, b)| a == b) {
            return Err(Error {
                offset: prefix as u64,
                ..not_a_trace
            });
        }
        if !is_there {
            return Err(truncated(&source));
        }
        let begin = if has_magic {
            TAG_BEGIN_PRIVATE
        } else {
            TAG_BEGIN
        };
        let header = loop {
            let bytes = source.bytes().get(start..).unwrap_or_default();
            match ObjectHeader::decode(bytes, start as u64, begin)? {
                Partial::Complete(header) => break header,
                Partial::Needs(more) => {
                    if !source.require(start.saturating_add(more))? {
                        // As in `load_object`.
                        let bytes = source.bytes().get(start..).unwrap_or_default();
                        ObjectHeader::decode(bytes, start as u64, begin)?;
                        return Err(truncated(&source));
                    }
                }
            }
        };
        let format = match (header.kind, header.version, has_magic) {
            (BlockKind::EventPipeFile, 1, false) => FormatVersion::V1,
            (BlockKind::EventPipeFile, 2, false) => FormatVersion::V2,
            (BlockKind::Trace, ..=3, false) => FormatVersion::V3,
            (BlockKind::Trace, ..=5, true) => FormatVersion::V4,
            (BlockKind::Trace | BlockKind::EventPipeFile, version, _) => {
                let kind = ErrorKind::UnsupportedVersion {
                    needed: u32::try_from(version).unwrap_or(0),
                };
                return Err(Error {
                    offset: (start as u64).wrapping_add(3),
                    kind,
                });
            }
            _ => {
                return Err(Error {
                    offset: start as u64,
                    kind: ErrorKind::NoTraceObject,
                });
            }
        };
        let is_legacy = format < FormatVersion::V3;
        let body = start.saturating_add(header.length);
        let length = body
            .saturating_add(if is_legacy { 4 } else { 1 })
            .saturating_add(description::body_length(format));
        if !source.require(length)? {
            return Err(truncated(&source));
        }
        let bytes = source.bytes().get(body..length).unwrap_or_default();
        let mut cursor = Cursor::new(bytes, body as u64);
        let forward_reference = if is_legacy { cursor.u32()? } else { 0 };
        let info = description::decode(&mut cursor, format)?;
        if !is_legacy {
            expect_end(cursor.offset(), cursor.u8()?)?;
        }
        source.consume_to(source.start().saturating_add(length));
        Ok(Reader::start(
            source,
            options,
            begin,
            forward_reference,
            Tables::new(info),
        ))
    }

    fn open_v6(mut source: Source<R>, options: ReaderOptions) -> Result<Reader<R>, Error> {
        const HEADER: usize = 20;
        if !source.require(HEADER + 4)? {
            return Err(Error {
                offset: source.bytes().len() as u64,
                kind: ErrorKind::HeaderTruncated,
            });
        }
        let mut cursor = Cursor::new(source.bytes(), 0);
        cursor.take(12)?;
        let major = cursor.u32()?;
        if major < MAX_FORMAT {
            return Err(Error {
                offset: 12,
                kind: ErrorKind::InvalidVersion { major },
            });
        }
        if major > MAX_FORMAT {
            return Err(Error {
                offset: 12,
                kind: ErrorKind::UnsupportedVersion { needed: major },
            });
        }
        cursor.u32()?;
        let word = cursor.u32()?;
        let (size, kind) = container::decode_v6_header(word.to_le_bytes());
        if kind != BlockKind::Trace {
            return Err(Error {
                offset: HEADER as u64,
                kind: ErrorKind::NoTraceObject,
            });
        }
        let length = size.saturating_add(HEADER + 4);
        if !source.require(length)? {
            return Err(Error {
                offset: source.bytes().len() as u64,
                kind: ErrorKind::HeaderTruncated,
            });
        }
        let content = source.bytes().get(HEADER + 4..length).unwrap_or_default();
        let info = description::decode(&mut Cursor::new(content, 24), FormatVersion::V6)?;
        source.consume_to(source.start().saturating_add(length));
        Ok(Reader::start(source, options, 0, 0, Tables::new(info)))
    }

    fn start(
        source: Source<R>,
        options: ReaderOptions,
        begin: u8,
        forward_reference: u32,
        tables: Tables,
    ) -> Reader<R> {
        let start = source.start();
        let complete_length = source.offset();
        let mut losses = Losses::default();
        losses.is_lower_bound = true;
        let current = Current {
            process_id: tables.info.process_id.unwrap_or(0),
            ..Current::default()
        };
        Reader {
            source,
            options,
            begin,
            forward_reference,
            tables,
            losses,
            statistics: Statistics::default(),
            skipped: Vec::new(),
            state: State::Reading,
            records: Records {
                form: RecordForm::WithStack,
                position: start,
                end: start,
                block_end: start,
                header: EventHeader::BLOCK_START,
            },
            current,
            notices: VecDeque::new(),
            keeps_removed_threads: false,
            removed_threads: HashSet::new(),
            point: (0, 0),
            point_threads: Vec::new(),
            complete_length,
        }
    }

    /// Waits for the next block.
    pub(super) fn load(&mut self) -> Result<Block, NoBlock> {
        match self.tables.info.format {
            FormatVersion::V1 | FormatVersion::V2 => self.load_record(),
            FormatVersion::V6 => self.load_v6(),
            _ => self.load_object(),
        }
    }

    /// What the source's end means after `there` bytes of a block.
    fn cut(&self, there: usize) -> Error {
        let offset = self.source.offset().wrapping_add(there as u64);
        Error {
            offset,
            kind: if there == 0 {
                ErrorKind::Truncated
            } else {
                ErrorKind::TruncatedBlock
            },
        }
    }

    /// V3–V5: an object.
    fn load_object(&mut self) -> Result<Block, NoBlock> {
        if !self.source.require(1)? {
            return Err(self.cut(0).into());
        }
        if self.source.bytes().first() == Some(&TAG_NULL) {
            self.source
                .consume_to(self.source.start().saturating_add(1));
            return Err(NoBlock::End);
        }
        let header = loop {
            match ObjectHeader::decode(self.source.bytes(), self.source.offset(), self.begin)? {
                Partial::Complete(header) => break header,
                Partial::Needs(more) => {
                    if !self.source.require(more)? {
                        // A wrong byte among those that came is told before those that are missing, however few came at a time.
                        ObjectHeader::decode(
                            self.source.bytes(),
                            self.source.offset(),
                            self.begin,
                        )?;
                        return Err(self.cut(self.source.bytes().len()).into());
                    }
                }
            }
        };
        let offset = self.source.offset();
        let size_at = header.length;
        let size_end = size_at.saturating_add(4);
        if !self.source.require(size_end)? {
            return Err(self.cut(self.source.bytes().len()).into());
        }
        if matches!(header.kind, BlockKind::Trace | BlockKind::EventPipeFile) {
            return Err(Error {
                offset,
                kind: ErrorKind::UnknownObject,
            }
            .into());
        }
        let mut cursor = Cursor::new(self.source.bytes(), offset);
        cursor.take(size_at)?;
        let size_offset = cursor.offset();
        let size = cursor.u32()?;
        self.check_size(u64::from(size), size_offset)?;
        let content =
            size_end.saturating_add(container::padding(offset.wrapping_add(size_end as u64)));
        let content_end = content.saturating_add(size as usize);
        let length = content_end.saturating_add(1);
        let is_whole = self.source.require(length)?;
        let start = self.source.start();
        let at = |position: usize| start.saturating_add(position);
        let mut block = Block {
            kind: header.kind,
            content: (at(content), at(content_end)),
            end: at(length),
            cut: None,
        };
        if !is_whole {
            return self.cut_block(block);
        }
        let tag = self
            .source
            .bytes()
            .get(content_end)
            .copied()
            .unwrap_or_default();
        let tag_offset = offset.wrapping_add(content_end as u64);
        if let Err(error) = expect_end(tag_offset, tag) {
            // Of an object that is not known it is a guess that it is a block.
            let kind = if header.kind == BlockKind::Unknown {
                ErrorKind::UnknownObject
            } else {
                error.kind
            };
            return Err(Error { kind, ..error }.into());
        }
        block.cut = None;
        Ok(block)
    }

    /// A block that the file ends in: of events those that are there whole can be given.
    fn cut_block(&mut self, block: Block) -> Result<Block, NoBlock> {
        let there = self.source.bytes().len();
        let error = self.cut(there);
        let end = self.source.start().saturating_add(there);
        let (start, content_end) = block.content;
        if block.kind != BlockKind::Event || start >= end {
            return Err(error.into());
        }
        Ok(Block {
            content: (start, content_end.min(end)),
            end,
            cut: Some(error),
            ..block
        })
    }

    fn check_size(&self, size: u64, offset: u64) -> Result<(), Error> {
        let limit = u64::from(self.options.max_block_size);
        if size > limit {
            return Err(Error {
                offset,
                kind: ErrorKind::BlockTooLarge { size, limit },
            });
        }
        Ok(())
    }

    fn load_v6(&mut self) -> Result<Block, NoBlock> {
        const HEADER: usize = 4;
        if !self.source.require(HEADER)? {
            return Err(self.cut(self.source.bytes().len()).into());
        }
        let word = self
            .source
            .bytes()
            .first_chunk()
            .copied()
            .unwrap_or_default();
        let (size, kind) = container::decode_v6_header(word);
        if kind == BlockKind::EndOfStream {
            self.source
                .consume_to(self.source.start().saturating_add(HEADER));
            return Err(NoBlock::End);
        }
        self.check_size(size as u64, self.source.offset())?;
        let length = size.saturating_add(HEADER);
        let is_whole = self.source.require(length)?;
        let start = self.source.start();
        let end = start.saturating_add(length);
        let block = Block {
            kind,
            content: (start.saturating_add(HEADER), end),
            end,
            cut: None,
        };
        if is_whole {
            Ok(block)
        } else {
            self.cut_block(block)
        }
    }

    /// V1 and V2: a record, or the end of them. The table behind the events says where they end, but can be found
    /// only from the end of the file, which a stream does not have; so at each record it is tried whether the table
    /// lies here, which its own numbers prove.
    fn load_record(&mut self) -> Result<Block, NoBlock> {
        if !self.source.require(4)? {
            return Err(self.cut(self.source.bytes().len()).into());
        }
        if self.source.bytes().first() == Some(&TAG_END) && self.is_trailer()? {
            return Err(NoBlock::End);
        }
        let offset = self.source.offset();
        let size = Cursor::new(self.source.bytes(), offset).u32()?;
        self.check_size(u64::from(size), offset)?;
        let length = (size as usize).saturating_add(4);
        if !self.source.require(length)? {
            return Err(self.cut(self.source.bytes().len()).into());
        }
        let start = self.source.start();
        let end = start.saturating_add(length);
        Ok(Block {
            kind: BlockKind::Event,
            content: (start, end),
            end,
            cut: None,
        })
    }

    /// Whether the end tag, the table of forward references and the trailer lie at the next byte; they are consumed
    /// then.
    fn is_trailer(&mut self) -> Result<bool, Error> {
        if !self.source.require(5)? {
            return Ok(false);
        }
        let here = self.source.offset();
        let mut cursor = Cursor::new(self.source.bytes(), here);
        cursor.u8()?;
        let count = cursor.u32()?;
        if count > MAX_REFERENCES || self.forward_reference >= count {
            return Ok(false);
        }
        let table = (count as usize).saturating_mul(4);
        let length = table.saturating_add(5 + 8);
        if !self.source.require(length)? {
            return Ok(false);
        }
        let mut cursor = Cursor::new(self.source.bytes(), here);
        cursor.take(5)?;
        let mut entries = cursor.part(table)?;
        entries.take((self.forward_reference as usize).saturating_mul(4))?;
        let table_offset = here.wrapping_add(1) as u32;
        let is_it = entries.u32()? == here as u32
            && cursor.u32()? == table_offset
            && cursor.u32()? == table_offset.wrapping_add(table as u32).wrapping_add(4);
        if is_it {
            self.source
                .consume_to(self.source.start().saturating_add(length));
        }
        Ok(is_it)
    }
}

fn expect_end(offset: u64, found: u8) -> Result<(), Error> {
    if found == TAG_END {
        return Ok(());
    }
    Err(Error {
        offset,
        kind: ErrorKind::UnexpectedTag {
            expected: TAG_END,
            found,
        },
    })
}
