//! The bytes of a trace as they come in.
//!
//! Invariant: memory grows with the bytes that arrived, never with a size that the file claims. Nothing is asked of
//! the source beyond what is needed unless it is there anyway, so a live stream is read without waiting for more than
//! the block at hand.

use std::io::{self, Read};
use std::vec::Vec;

use crate::{Error, ErrorKind};

/// A buffered reader that shows as many bytes in a row as a block needs.
#[derive(Debug)]
pub(crate) struct Source<R> {
    inner: R,
    /// Zeros up to the capacity in use; the bytes that arrived are `start..filled`.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    /// Offset in the file of the first byte of `buffer`.
    base: u64,
    /// The source said that nothing more comes.
    is_at_end: bool,
    /// Bytes that were consumed are still needed: if the buffer is to be used again, this one takes its place.
    replacement: Option<Vec<u8>>,
    kept: Option<Kept>,
}

/// A buffer that was given away with the bytes in it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// Offset in the file of the first one.
    pub(crate) base: u64,
}

/// The smallest buffer.
const CHUNK: usize = 64 << 10;
/// How far it grows while the source fills it, for blocks that need less. Few calls of the system, few bytes moved to the
/// front, and all of it stays in the second cache of a processor while it is read.
const BUFFER: usize = 512 << 10;
/// How much more than a large block is asked for: the header of the next one.
const SLACK: usize = 64;

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R) -> Source<R> {
        Source {
            inner,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            base: 0,
            is_at_end: false,
            replacement: None,
            kept: None,
        }
    }

    /// Waits until `length` bytes are there. `false` if the source ends before that.
    #[inline]
    pub(crate) fn require(&mut self, length: usize) -> Result<bool, Error> {
        if self.filled.saturating_sub(self.start) >= length {
            return Ok(true);
        }
        self.fill(length)
    }

    #[inline(never)]
    fn fill(&mut self, length: usize) -> Result<bool, Error> {
        let there = self.filled.saturating_sub(self.start);
        // Moving bytes to the front is paid for by those that were consumed before them.
        if self.start.saturating_add(length) > self.buffer.len().min(BUFFER)
            && (there <= self.start || there < CHUNK)
        {
            self.make_room();
        }
        let enough = self.start.saturating_add(length);
        let wanted = enough
            .saturating_add(SLACK)
            .max(self.start.saturating_add(CHUNK))
            .max(BUFFER);
        while self.filled < enough {
            if self.is_at_end {
                return Ok(false);
            }
            if self.filled == self.buffer.len() {
                self.grow(wanted);
            }
            let end = wanted.min(self.buffer.len());
            let room = self.buffer.get_mut(self.filled..end).unwrap_or_default();
            match self.inner.read(room) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.filled = self.filled.saturating_add(count).min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let offset = self.base.wrapping_add(self.filled as u64);
                    return Err(Error {
                        offset,
                        kind: ErrorKind::Source(error.kind()),
                    });
                }
            }
        }
        Ok(true)
    }

    /// Twice the buffer: as many bytes have arrived as there are new ones.
    fn grow(&mut self, most: usize) {
        let grown = self.buffer.len().saturating_mul(2).max(CHUNK).min(most);
        let more = grown.saturating_sub(self.buffer.len());
        self.buffer.reserve_exact(more);
        self.buffer.resize(grown.max(self.buffer.len()), 0);
    }

    /// Brings the unread bytes to the front, of another buffer if those before them are needed.
    fn make_room(&mut self) {
        let was_full = self.filled == self.buffer.len();
        match self.replacement.take() {
            Some(mut next) => {
                let rest = self.buffer.get(self.start..self.filled).unwrap_or_default();
                if next.len() < rest.len() {
                    next.resize(rest.len().max(CHUNK), 0);
                }
                if let Some(place) = next.get_mut(..rest.len()) {
                    place.copy_from_slice(rest);
                }
                self.kept = Some(Kept {
                    bytes: std::mem::replace(&mut self.buffer, next),
                    base: self.base,
                });
            }
            None => self.buffer.copy_within(self.start..self.filled, 0),
        }
        self.base = self.base.wrapping_add(self.start as u64);
        self.filled = self.filled.saturating_sub(self.start);
        self.start = 0;
        if was_full && self.buffer.len() < BUFFER {
            self.grow(BUFFER);
        }
    }

    /// Moves on. The bytes before are gone.
    #[inline]
    pub(crate) fn consume_to(&mut self, position: usize) {
        self.start = position.min(self.filled);
    }

    /// What was consumed is still needed. `replacement` is used when there is no room left.
    pub(crate) fn keep(&mut self, replacement: Vec<u8>) {
        self.replacement = Some(replacement);
    }

    /// Ends [`Source::keep`]: the buffer with what was needed, if another one took its place, else the replacement.
    pub(crate) fn end_keeping(&mut self) -> Result<Kept, Option<Vec<u8>>> {
        let unused = self.replacement.take();
        self.kept.take().ok_or(unused)
    }

    /// Where the unread bytes begin in [`Source::buffer`].
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Offset in the file of a position in the buffer.
    pub(crate) fn offset_of(&self, position: usize) -> u64 {
        self.base.wrapping_add(position as u64)
    }

    /// Offset in the file of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.offset_of(self.start)
    }

    /// Everything that is there and not consumed.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    /// The buffer, for positions in it.
    #[inline(always)]
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }
}
