//! The bounded queue between the drain and the thread that sends one session's stream.
//!
//! The drain never waits here: it asks [`Queue::has_room`] before it encodes an event, and an event without room is lost
//! for this session alone. Pieces are whole blocks of the format, so a stream that is cut between pieces stays readable.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use eventpipe_os::chunks::{Chunk, Chunks};
use eventpipe_os::clock;
use eventpipe_os::sync::Mutex;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::encoder::PIECE;
use crate::engine::ENGINE;
use crate::output::out_of_the_way;

/// So much of the memory of pieces that were sent is kept when the stream has paused. While it flows all of it is, because fresh pages
/// cost more than the events that go there.
const SPARE_BYTES: usize = 4 << 20;

/// A queue of so much is long: what comes behind the drain is slower than it. In block mode it does not grow while there is more than its
/// reader can take. In both modes writers that were held go on when so much has been sent.
const LONG_BYTES: usize = 4 << 20;
const RESUME_BYTES: usize = 2 << 20;

/// Room for a block of the writer's usual size, whole pages.
const CHUNK_BYTES: usize = 104 << 10;

/// Address space that a queue asks for at most: beyond it pieces lie in usual memory.
const MOST_CHUNKS: usize = (64 << 30) / CHUNK_BYTES;

/// Blocks on their way out: what fits a chunk, and the rest.
#[derive(Debug)]
pub(crate) struct Piece {
    chunk: Option<Chunk>,
    rest: Vec<u8>,
}

impl Piece {
    /// The bytes, in order.
    pub(crate) fn parts(&self) -> [&[u8]; 2] {
        [self.chunk.as_deref().unwrap_or_default(), &self.rest]
    }

    pub(crate) fn length(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// The memory that it takes.
    fn cost(&self) -> usize {
        let chunk = self.chunk.as_ref().map_or(0, Chunk::capacity);
        chunk.saturating_add(self.rest.len())
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Where large pieces lie, if the system has the address space.
    chunks: Option<Arc<Chunks>>,
    limit: usize,
    /// The drain waits (`drain_waits`) until no more than this waits for the reader.
    backlog_limit: usize,
    /// Bytes that wait, the piece being sent included.
    used: AtomicUsize,
    aborted: AtomicBool,
    /// The drain has something to say as soon as less than this waits; 0: it has not.
    drain_waits: AtomicUsize,
    /// When [`Queue::close`] was called, on the monotonic clock; 0 = not yet.
    closed_at: AtomicU64,
    /// An eventfd that wakes the sender out of `poll`.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Piece>,
    open: bool,
    closing: bool,
    /// The sender sleeps, or is about to.
    sleeping: bool,
}

/// What the sender is to do next.
#[derive(Debug)]
pub(crate) enum Next {
    Send(Piece),
    /// Nothing for now: poll [`Queue::wake_fd`].
    Wait,
    /// The stream is complete, or it was given up.
    End,
}

impl Queue {
    /// For at most `limit` bytes; `backlog_limit`: so many should wait at most.
    pub(crate) fn new(limit: usize, backlog_limit: usize) -> Result<Self, rustix::io::Errno> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Queue {
            state: Mutex::new(State::default()),
            chunks: u32::try_from((limit / CHUNK_BYTES + 1).min(MOST_CHUNKS))
                .ok()
                .and_then(|count| Chunks::new(CHUNK_BYTES, count).ok()),
            limit,
            backlog_limit,
            used: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
            drain_waits: AtomicUsize::new(0),
            closed_at: AtomicU64::new(0),
            wake: out_of_the_way(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
        })
    }

    /// Whether so many bytes more than those that wait are within the limit.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.limit
            && !self.aborted.load(Ordering::Relaxed)
    }

    /// How many bytes more than those that wait are within the limit.
    pub(crate) fn room(&self) -> usize {
        if self.is_aborted() {
            return 0;
        }
        self.limit.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Whether so many are, with a tenth more, for events that are worth it.
    pub(crate) fn has_room_for_a_first(&self, bytes: usize) -> bool {
        self.has_room(bytes.saturating_sub(self.limit / 10))
    }

    /// Whether more waits for the reader than there should.
    pub(crate) fn has_backlog(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.backlog_limit
    }

    /// Whether there is room; if not, the drain is woken when there is.
    pub(crate) fn has_room_or_wakes(&self) -> bool {
        self.is_down_to_or_wakes(self.backlog_limit)
    }

    /// Whether no more than `mark` waits; if not, the drain is woken when it is so.
    pub(crate) fn is_down_to_or_wakes(&self, mark: usize) -> bool {
        if self.used.load(Ordering::Relaxed) <= mark && !self.is_aborted() {
            return true;
        }
        self.drain_waits
            .store(mark.saturating_add(1), Ordering::SeqCst);
        // Looked at again after the request was made, as the sender looks for the request after making room.
        self.used.load(Ordering::SeqCst) <= mark && !self.is_aborted()
    }

    /// For a session in block mode: whether its writers are to be held now, and down to what the queue must be sent before they go on. That
    /// is a good deal less than now, so that they do not sleep and wake for each piece.
    ///
    /// Too much waits; or more is written than can be read, and the queue would have to take fresh memory: which costs more than the
    /// events that go there, and would only make the queue longer.
    pub(crate) fn held_until(&self) -> Option<usize> {
        let used = self.used.load(Ordering::Relaxed);
        (used > self.backlog_limit || self.grows() && ENGINE.ring.is_overloaded())
            .then(|| used - (used / 4).min(RESUME_BYTES))
    }

    /// Whether a good deal waits.
    pub(crate) fn is_long(&self) -> bool {
        self.used.load(Ordering::Relaxed) > LONG_BYTES
    }

    /// Whether a good deal waits, and the next piece takes fresh memory.
    fn grows(&self) -> bool {
        self.is_long() && self.chunks.as_ref().is_some_and(|c| c.spare() == 0)
    }

    /// For a session that drops events: down to what a queue without room must be sent before writers need no longer lose the events
    /// themselves.
    pub(crate) fn resume_mark(&self) -> usize {
        self.limit - (self.limit / 4).min(RESUME_BYTES)
    }

    /// Appends what stands in `bytes` and leaves them empty.
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if !self.is_aborted() {
            let piece = self.piece(bytes);
            self.used.fetch_add(piece.cost(), Ordering::Relaxed);
            let mut state = self.state.lock();
            if self.is_aborted() {
                self.used.store(0, Ordering::Relaxed);
            } else {
                state.pieces.push_back(piece);
            }
            let wake = state.open && core::mem::take(&mut state.sleeping);
            drop(state);
            if wake {
                self.wake();
            }
        }
        bytes.clear();
    }

    /// A copy, so that the drain always writes where it wrote before, in its cache. A few bytes do not take a chunk.
    fn piece(&self, bytes: &[u8]) -> Piece {
        let mut chunk = match &self.chunks {
            Some(chunks) if bytes.len() >= PIECE => chunks.take(),
            _ => None,
        };
        let filled = chunk.as_mut().map_or(0, |chunk| chunk.fill(bytes));
        Piece {
            chunk,
            rest: bytes.get(filled..).unwrap_or_default().to_vec(),
        }
    }

    /// Lets the sender begin.
    pub(crate) fn open(&self) {
        let mut state = self.state.lock();
        state.open = true;
        state.sleeping = false;
        drop(state);
        self.wake();
    }

    /// The stream is complete: the sender ends when it has sent everything.
    pub(crate) fn close(&self) {
        self.closed_at
            .store(clock::monotonic_ns(), Ordering::Relaxed);
        let mut state = self.state.lock();
        state.open = true;
        state.closing = true;
        drop(state);
        self.wake();
    }

    /// Gives the stream up: whatever waits is thrown away.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
        let pieces = core::mem::take(&mut self.state.lock().pieces);
        drop(pieces);
        self.used.store(0, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    /// When the stream was completed, on the monotonic clock.
    pub(crate) fn closed_at(&self) -> Option<u64> {
        Some(self.closed_at.load(Ordering::Relaxed)).filter(|at| *at != 0)
    }

    pub(crate) fn next(&self) -> Next {
        if self.is_aborted() {
            return Next::End;
        }
        let mut state = self.state.lock();
        if !state.open {
            state.sleeping = true;
            return Next::Wait;
        }
        match state.pieces.pop_front() {
            Some(piece) => Next::Send(piece),
            None if state.closing => Next::End,
            None => {
                state.sleeping = true;
                Next::Wait
            }
        }
    }

    /// A piece has been sent.
    pub(crate) fn sent(&self, piece: Piece) {
        let cost = piece.cost();
        // First the chunk, then the room that it made.
        drop(piece);
        // Saturating, because an abort in between has set the count to zero.
        let _ = self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                Some(used.saturating_sub(cost))
            });
        if self.used.load(Ordering::SeqCst) < self.drain_waits.load(Ordering::SeqCst) {
            self.drain_waits.store(0, Ordering::Relaxed);
            ENGINE.drain.set();
        }
    }

    /// Whether there is more spare memory than a pause is worth.
    pub(crate) fn has_much_to_spare(&self) -> bool {
        self.chunks
            .as_ref()
            .is_some_and(|chunks| chunks.spare() > SPARE_BYTES)
    }

    /// Gives spare memory back, in a pause.
    pub(crate) fn trim(&self) {
        if let Some(chunks) = &self.chunks {
            chunks.trim(SPARE_BYTES);
        }
    }

    pub(crate) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// After [`Queue::wake_fd`] became readable.
    pub(crate) fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    pub(crate) fn wake(&self) {
        // Fails only when the counter is about to overflow, and then the sender is being woken anyway.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}
