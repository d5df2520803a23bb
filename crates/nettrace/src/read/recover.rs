//! What happens when a trace is damaged: an error and the end, or, on request, going on behind the damage.

use std::io::Read;

use super::load::Block;
use super::{Reader, State};
use crate::format::container::{
    BlockKind, ObjectHeader, Partial, TAG_BEGIN, TAG_BEGIN_PRIVATE, TAG_NULL,
};
use crate::{Error, ErrorKind, FormatVersion};

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

/// Skipped parts that are noted one by one.
const MAX_SKIPPED: usize = 1000;

impl<R: Read> Reader<R> {
    /// A record of the block at hand is damaged: nothing behind it in the block can be told apart.
    #[cold]
    pub(super) fn damaged_record(&mut self, error: Error) -> Result<(), Error> {
        let end = self.records.end;
        self.records.position = end;
        if let State::Cut(_) = self.state {
            // That is where the file ends; the error is on its way.
            return Ok(());
        }
        self.damaged(error, self.source.offset_of(end))
    }

    /// A block is damaged, but its size is known.
    #[cold]
    pub(super) fn damaged_block(&mut self, error: Error, block: Block) -> Result<(), Error> {
        self.damaged(error, self.source.offset_of(block.end))
    }

    fn damaged(&mut self, error: Error, end: u64) -> Result<(), Error> {
        if !self.options.recover {
            return Err(self.stop(error));
        }
        self.skip(error.offset, end, error.kind);
        Ok(())
    }

    /// The file ended without its end tag.
    pub(super) fn end_early(&mut self, error: Error) -> Result<(), Error> {
        let error = self.stop(error);
        if !self.options.recover {
            return Err(error);
        }
        self.skip(error.offset, error.offset, error.kind);
        Ok(())
    }

    /// Nothing comes after this error.
    fn stop(&mut self, error: Error) -> Error {
        self.state = State::Ended { is_complete: false };
        if !self.options.recover {
            self.notices.clear();
        }
        error
    }

    fn skip(&mut self, start: u64, end: u64, reason: ErrorKind) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(Skipped {
                offset: start,
                length: end.saturating_sub(start),
                reason,
            });
        }
    }

    /// There is no block where one is due.
    #[cold]
    pub(super) fn damaged_container(&mut self, error: Error) -> Result<(), Error> {
        match error.kind {
            ErrorKind::Source(_) => Err(error),
            ErrorKind::Truncated | ErrorKind::TruncatedBlock if !self.options.recover => {
                self.end_early(error)
            }
            ErrorKind::Truncated => self.end_early(error),
            _ if self.options.recover => self.find_next_block(error),
            _ => Err(self.stop(error)),
        }
    }

    /// Looks for the beginning of a block behind the damage. Each byte is looked at a bounded number of times.
    fn find_next_block(&mut self, error: Error) -> Result<(), Error> {
        let start = self.source.offset();
        // The block whose header is damaged, if that is what it is, is not found again.
        self.source
            .consume_to(self.source.start().saturating_add(1));
        loop {
            let is_more = self.source.require(WINDOW)?;
            let bytes = self.source.bytes();
            // Without more to come the last bytes are looked at too.
            let last = if is_more {
                bytes.len().saturating_sub(WINDOW - 1)
            } else {
                bytes.len()
            };
            let found = (0..last).find(|&at| {
                let tail = bytes.get(at..).unwrap_or_default();
                match self.tables.info.format {
                    FormatVersion::V1 | FormatVersion::V2 => false,
                    FormatVersion::V6 => is_v6_event_block(tail, self.tables.info.sync_ticks),
                    _ => is_object(tail, self.begin),
                }
            });
            let position = self.source.start();
            match found {
                Some(at) => {
                    self.source.consume_to(position.saturating_add(at));
                    self.skip(start, self.source.offset(), error.kind);
                    return Ok(());
                }
                None => self.source.consume_to(position.saturating_add(last)),
            }
            if !is_more {
                self.skip(start, self.source.offset(), error.kind);
                self.state = State::Ended { is_complete: false };
                return Ok(());
            }
        }
    }
}

/// Bytes that show whether a block begins.
const WINDOW: usize = 64;

/// Whether the header of an object of a known kind stands here.
fn is_object(bytes: &[u8], begin: u8) -> bool {
    if !matches!(bytes, [TAG_BEGIN | TAG_BEGIN_PRIVATE, _, TAG_NULL, ..]) {
        return false;
    }
    match ObjectHeader::decode(bytes, 0, begin) {
        Ok(Partial::Complete(header)) => !matches!(
            header.kind,
            BlockKind::Unknown | BlockKind::Trace | BlockKind::EventPipeFile
        ),
        _ => false,
    }
}

/// Whether a V6 event block stands here: kind, header size and flags are as always, and its times make sense. Other
/// kinds have nothing that would tell them from chance.
fn is_v6_event_block(bytes: &[u8], sync_ticks: i64) -> bool {
    match *bytes {
        [
            _,
            _,
            _,
            2,
            20,
            0,
            0 | 1,
            0,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
            l,
            m,
            n,
            o,
            p,
            ..,
        ] => {
            let min = i64::from_le_bytes([a, b, c, d, e, f, g, h]);
            let max = i64::from_le_bytes([i, j, k, l, m, n, o, p]);
            min <= max && min >= sync_ticks.min(0)
        }
        _ => false,
    }
}
