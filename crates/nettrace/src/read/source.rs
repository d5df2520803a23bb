//! The bytes of a trace as they come in.
//!
//! Invariant: memory grows with the bytes that arrived, never with a size that the file claims. Nothing is asked of
//! the source beyond what is needed unless it is there anyway, so a live stream is read without waiting for more than
//! the block at hand.

use std::io::{self, Read};
use std::ops::Deref;
use std::vec::Vec;

use bytes::Bytes;

use super::ahead::{Ahead, Message, ReadAhead};
use crate::{Error, ErrorKind};

/// A buffered reader that shows as many bytes in a row as a block needs.
#[derive(Debug)]
pub(crate) struct Source<R> {
    input: Input<R>,
    /// Until it shows nothing more. The input is here then.
    window: Option<Window<R>>,
    plan: Option<Plan<R>>,
    /// The bytes that arrived are `start..filled`.
    buffer: Buffer,
    start: usize,
    filled: usize,
    /// Offset in the file of the first byte of `buffer`.
    base: u64,
    /// The source said that nothing more comes.
    is_at_end: bool,
    /// Bytes that were consumed are still needed: if the buffer is to be used again, this one takes its place.
    replacement: Option<Vec<u8>>,
    kept: Option<Kept>,
    prefetch: Option<fn(&[u8])>,
    /// From which position on more bytes are to be asked for.
    prefetch_at: usize,
}

/// Who reads.
#[derive(Debug)]
enum Input<R> {
    /// The caller's thread, when bytes are missing.
    Here(R),
    /// A thread of its own.
    Ahead(Ahead<R>),
    /// Nobody: reading panicked.
    Gone,
}

/// When a thread is to read ahead, and how it is made: only who asks for it needs a source that can go to a thread.
#[derive(Clone, Copy, Debug)]
struct Plan<R> {
    how: ReadAhead,
    start: fn(R, ReadAhead) -> Result<Ahead<R>, R>,
}

/// Shows bytes of a source where they lie in memory, instead of copying them out; see [`crate::Reader::in_place`].
///
/// From an offset in the trace on, so many bytes at least. What is shown must not change as long as the [`Bytes`] are
/// there. `None` if that cannot be: then they are read from the source, whose next byte must be the one at that offset,
/// and nothing is asked for here any more. An error is not the end, but is passed on, and the same asked for again.
pub type Window<R> = fn(&mut R, offset: u64, length: usize) -> io::Result<Option<Bytes>>;

/// Where the bytes are.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// Ours, zeros up to the capacity in use.
    own: Vec<u8>,
    /// The source's, if they are shown where they lie.
    shown: Option<Bytes>,
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match &self.shown {
            Some(bytes) => bytes,
            None => &self.own,
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(own: Vec<u8>) -> Buffer {
        Buffer { own, shown: None }
    }
}

impl Buffer {
    /// Ours, to be changed. What was shown is seen no more.
    fn own(&mut self) -> &mut Vec<u8> {
        self.shown = None;
        &mut self.own
    }

    /// Ours, to be used again.
    pub(crate) fn into_own(self) -> Vec<u8> {
        self.own
    }
}

/// A buffer that was given away with the bytes in it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Buffer,
    /// Offset in the file of the first one.
    pub(crate) base: u64,
}

/// The smallest buffer.
const CHUNK: usize = 64 << 10;
/// How far it grows while the source fills it, for blocks that need less. Few calls of the system, few bytes moved to the
/// front, and all of it stays in the second cache of a processor while it is read.
const BUFFER: usize = 512 << 10;
/// How far in front bytes are asked for: about as long as memory takes to answer.
const PREFETCH: usize = 4096;
/// How much at a time: an event is not to pay for a call of its own.
const PREFETCH_STEP: usize = 512;
/// How much more than a large block is asked for: the header of the next one.
const SLACK: usize = 64;

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R, prefetch: Option<fn(&[u8])>) -> Source<R> {
        Source {
            input: Input::Here(inner),
            window: None,
            plan: None,
            buffer: Buffer::default(),
            start: 0,
            filled: 0,
            base: 0,
            is_at_end: false,
            replacement: None,
            kept: None,
            prefetch,
            prefetch_at: prefetch.map_or(usize::MAX, |_| 0),
        }
    }

    /// The same, and a thread reads ahead.
    pub(crate) fn with_read_ahead(
        inner: R,
        how: ReadAhead,
        prefetch: Option<fn(&[u8])>,
    ) -> Source<R>
    where
        R: Send + 'static,
    {
        let start = Ahead::start;
        Source {
            plan: Some(Plan { how, start }),
            ..Source::new(inner, prefetch)
        }
    }

    /// The same, and what `window` shows is not read at all.
    pub(crate) fn in_place(
        inner: R,
        window: Window<R>,
        how: ReadAhead,
        prefetch: Option<fn(&[u8])>,
    ) -> Source<R>
    where
        R: Send + 'static,
    {
        Source {
            window: Some(window),
            ..Source::with_read_ahead(inner, how, prefetch)
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
        if self.window.is_some() && self.look(length)? {
            return Ok(true);
        }
        let arrived = self.offset_of(self.filled);
        if let Some(plan) = self.plan.take_if(|plan| arrived >= plan.how.after)
            && let Input::Here(inner) = std::mem::replace(&mut self.input, Input::Gone)
        {
            self.input = match (plan.start)(inner, plan.how) {
                Ok(ahead) => Input::Ahead(ahead),
                Err(inner) => Input::Here(inner),
            };
        }
        if let Input::Ahead(_) = self.input {
            return self.take(length);
        }
        let enough = self.prepare(length);
        let wanted = self.most(length);
        while self.filled < enough {
            if self.is_at_end {
                return Ok(false);
            }
            if self.filled == self.buffer.len() {
                self.grow(0, wanted);
            }
            let end = wanted.min(self.buffer.len());
            let own = self.buffer.own();
            let room = own.get_mut(self.filled..end).unwrap_or_default();
            let Input::Here(inner) = &mut self.input else {
                return Err(self.failed(io::ErrorKind::BrokenPipe));
            };
            match inner.read(room) {
                Ok(0) => self.is_at_end = true,
                Ok(count) => self.filled = self.filled.saturating_add(count).min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error.kind())),
            }
        }
        Ok(true)
    }

    /// Looks at the next bytes where they lie, those not consumed among them. `false`: from now on they are read.
    fn look(&mut self, length: usize) -> Result<bool, Error> {
        let offset = self.offset();
        let (Some(window), Input::Here(inner)) = (self.window, &mut self.input) else {
            return Ok(false);
        };
        let shown = window(inner, offset, length).and_then(|shown| match shown {
            // Who shows too little has not said that it has to be read.
            Some(bytes) if bytes.len() < length => Err(io::ErrorKind::InvalidData.into()),
            shown => Ok(shown),
        });
        let shown = shown.map_err(|error| Error {
            offset,
            kind: ErrorKind::Source(error.kind()),
        })?;
        let is_shown = shown.is_some();
        if !is_shown {
            self.window = None;
        }
        let filled = shown.as_ref().map_or(0, Bytes::len);
        let own = self.replacement.take();
        let is_kept = own.is_some();
        let next = Buffer {
            own: own.unwrap_or_default(),
            shown,
        };
        let before = std::mem::replace(&mut self.buffer, next);
        if is_kept {
            self.kept = Some(Kept {
                bytes: before,
                base: self.base,
            });
        }
        (self.base, self.start, self.filled) = (offset, 0, filled);
        self.prefetch_anew();
        Ok(is_shown)
    }

    /// The same, of what the thread has read.
    fn take(&mut self, length: usize) -> Result<bool, Error> {
        while self.bytes().len() < length {
            let Input::Ahead(ahead) = &mut self.input else {
                return Ok(false);
            };
            match ahead.next() {
                Some(Message::Bytes(bytes, end)) => self.take_over(bytes, end, length),
                Some(Message::Ended(inner, error)) => {
                    self.input = Input::Here(inner);
                    match error {
                        Some(kind) => return Err(self.failed(kind)),
                        None => self.is_at_end = true,
                    }
                }
                None => {
                    self.input = Input::Gone;
                    return Err(self.failed(io::ErrorKind::BrokenPipe));
                }
            }
        }
        Ok(true)
    }

    /// Puts the unread bytes and those of `next` up to `end` together, by copying whichever are fewer if possible.
    fn take_over(&mut self, mut next: Vec<u8>, end: usize, length: usize) {
        let Input::Ahead(ahead) = &self.input else {
            return;
        };
        let (rest, head) = (self.bytes(), ahead.head);
        let more = end.saturating_sub(head);
        let start = head.saturating_sub(rest.len());
        if rest.len() <= head.min(more)
            && let Some(place) = next.get_mut(start..head)
        {
            place.copy_from_slice(rest);
            let before = std::mem::replace(self.buffer.own(), next);
            match self.replacement.take() {
                Some(replacement) => {
                    self.kept = Some(Kept {
                        bytes: before.into(),
                        base: self.base,
                    });
                    ahead.give_back(replacement);
                }
                None => ahead.give_back(before),
            }
            // Modular: the room in front of the first bytes of a file has no offset.
            self.base = self.offset().wrapping_sub(start as u64);
            (self.start, self.filled) = (start, end);
            self.prefetch_anew();
            return;
        }
        self.prepare(length.max(rest.len().saturating_add(more)));
        let filled = self.filled.saturating_add(more);
        if filled > self.buffer.len() {
            self.grow(filled, self.most(length));
        }
        let from = next.get(head..end).unwrap_or_default();
        if let Some(place) = self.buffer.own().get_mut(self.filled..filled) {
            place.copy_from_slice(from);
            self.filled = filled;
        }
        if let Input::Ahead(ahead) = &self.input {
            ahead.give_back(next);
        }
    }

    #[cold]
    fn failed(&self, kind: io::ErrorKind) -> Error {
        Error {
            offset: self.offset_of(self.filled),
            kind: ErrorKind::Source(kind),
        }
    }

    /// Makes room for `length` bytes in a row where that is cheap; where they end.
    fn prepare(&mut self, length: usize) -> usize {
        let there = self.filled.saturating_sub(self.start);
        // Moving bytes to the front is paid for by those that were consumed before them.
        if self.start.saturating_add(length) > self.buffer.len().min(BUFFER)
            && (there <= self.start || there < CHUNK)
        {
            self.make_room();
        }
        self.start.saturating_add(length)
    }

    /// How large the buffer may become for a block of `length` bytes.
    fn most(&self, length: usize) -> usize {
        self.start
            .saturating_add(length)
            .saturating_add(SLACK)
            .max(self.start.saturating_add(CHUNK))
            .max(BUFFER)
    }

    /// Twice the buffer, `most` at the most: as many bytes have arrived as there are new ones. `least` have.
    fn grow(&mut self, least: usize, most: usize) {
        let twice = self.buffer.len().saturating_mul(2).max(CHUNK);
        let grown = twice.min(most).max(least);
        let own = self.buffer.own();
        own.reserve_exact(grown.saturating_sub(own.len()));
        own.resize(grown.max(own.len()), 0);
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
                    bytes: std::mem::replace(&mut self.buffer, next.into()),
                    base: self.base,
                });
            }
            None => self.buffer.own().copy_within(self.start..self.filled, 0),
        }
        self.base = self.base.wrapping_add(self.start as u64);
        self.filled = self.filled.saturating_sub(self.start);
        self.start = 0;
        if was_full && self.buffer.len() < BUFFER {
            self.grow(0, BUFFER);
        }
    }

    /// The reader comes to a position: what lies a little behind it is asked for.
    #[inline(always)]
    pub(crate) fn comes_to(&mut self, position: usize) {
        if position >= self.prefetch_at {
            self.prefetch_behind(position);
        }
    }

    #[inline(never)]
    fn prefetch_behind(&mut self, position: usize) {
        let Some(prefetch) = self.prefetch else {
            return;
        };
        // At first all of it, then what was added.
        let from = match self.prefetch_at {
            0 => position,
            _ => position.saturating_add(PREFETCH),
        };
        let to = position
            .saturating_add(PREFETCH + PREFETCH_STEP)
            .min(self.filled);
        prefetch(self.buffer.get(from..to).unwrap_or_default());
        self.prefetch_at = position.saturating_add(PREFETCH_STEP);
    }

    /// The same for bytes that wait in a buffer, of which a part was passed.
    #[inline(always)]
    pub(crate) fn prefetch_behind_part(&self, bytes: &[u8], (start, end): (usize, usize)) {
        if let Some(prefetch) = self.prefetch {
            let part = start.saturating_add(PREFETCH)..end.saturating_add(PREFETCH);
            prefetch(bytes.get(part).unwrap_or_default());
        }
    }

    /// Other bytes are in the buffer.
    fn prefetch_anew(&mut self) {
        if self.prefetch.is_some() {
            self.prefetch_at = 0;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_thread_can_be_made_reading_goes_on_without() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let how = ReadAhead {
            after: 1000,
            ..ReadAhead::default()
        };
        let mut source = Source {
            plan: Some(Plan {
                how,
                start: |source, _| Err(source),
            }),
            ..Source::new(&bytes[..], None)
        };
        let mut at = 0;
        while source.require(700_001).unwrap() {
            assert_eq!(source.offset(), at as u64);
            assert!(source.bytes()[..700_001] == bytes[at..at + 700_001]);
            at += 700_001;
            source.consume_to(source.start() + 700_001);
        }
        assert!(source.bytes() == &bytes[at..]);
        assert!(source.plan.is_none(), "it was tried");
    }
}
