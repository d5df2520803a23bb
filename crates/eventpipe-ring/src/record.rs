//! What goes in and what comes out: keys, payloads, options, records, and why an event was lost.

use crate::layout::{self, Entry, HEADER, Head, aligned};
use crate::sync::{AHEAD, AtomicU32, AtomicU64, Ordering, fetch};

/// How many sessions there can be at once: one bit of a mask each.
pub const SESSIONS: u32 = if cfg!(shuttle) {
    4
} else if cfg!(loom) {
    2
} else {
    64
};

/// The largest payload in bytes; a larger one is dropped and counted as [`LossReason::TooLarge`].
pub const MAX_PAYLOAD: usize = if cfg!(loom) { 32 } else { 65_536 };

/// How many frames a record keeps; further ones (the outermost) are cut off.
pub const MAX_FRAMES: usize = 512;

/// What writers know of an event: who wants it. Lives for ever (static or leaked), as writers look
/// at it at any time.
///
/// Who changes the masks keeps this order: *set* a session's bit after everything that the session
/// needs is in place; after *clearing* it call [`Ring::quiesce`](crate::Ring::quiesce): from then
/// on no record with that bit is written.
#[derive(Debug)]
#[repr(C)]
pub struct EventKey {
    /// Bit `s`: session `s` wants the event.
    pub mask: AtomicU64,
    /// Bit `s`: session `s` wants stacks with it. Not used by the ring: whoever calls `write` walks
    /// the stack if `mask & stack_mask` is not zero.
    pub stack_mask: AtomicU64,
    /// Handed back in [`Record::event_index`].
    pub index: AtomicU32,
}

impl EventKey {
    /// A key with the given mask, without stacks, index 0.
    #[cfg(not(loom))]
    pub const fn new(mask: u64) -> Self {
        Self {
            mask: AtomicU64::new(mask),
            stack_mask: AtomicU64::new(0),
            index: AtomicU32::new(0),
        }
    }

    /// A key with the given mask, without stacks, index 0.
    #[cfg(loom)]
    pub fn new(mask: u64) -> Self {
        Self {
            mask: AtomicU64::new(mask),
            stack_mask: AtomicU64::new(0),
            index: AtomicU32::new(0),
        }
    }

    /// Whether any session wants the event: one relaxed load.
    #[inline(always)]
    pub fn is_enabled(&self) -> bool {
        self.mask.load(Ordering::Relaxed) != 0
    }
}

/// The arguments of an event, as they go into the file.
///
/// Both functions run in the middle of the write path, with the thread marked as writing: they must
/// not call foreign code (a `Display`, an allocator that traces itself, a lock), must not panic and
/// must agree on the length.
#[allow(
    clippy::len_without_is_empty,
    reason = "nobody asks a payload whether it is empty"
)]
pub trait Payload {
    /// The length in bytes, at most [`MAX_PAYLOAD`] to be written.
    fn len(&self) -> usize;
    /// Fills `out`, which is exactly [`len`](Self::len) bytes long (its contents before are
    /// unspecified).
    fn copy_to(&self, out: &mut [u8]);
}

impl Payload for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }
    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }
}

impl<const N: usize> Payload for [u8; N] {
    #[inline]
    fn len(&self) -> usize {
        N
    }
    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }
}

/// Pieces that follow each other without gaps.
impl Payload for [&[u8]] {
    #[inline]
    fn len(&self) -> usize {
        self.iter().map(|piece| piece.len()).sum()
    }
    #[inline]
    fn copy_to(&self, out: &mut [u8]) {
        let mut rest = out;
        for piece in self {
            let Some((here, after)) = rest.split_at_mut_checked(piece.len()) else {
                return;
            };
            here.copy_from_slice(piece);
            rest = after;
        }
    }
}

/// What else a record can carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordOptions<'a> {
    /// The activity id.
    pub activity: Option<&'a [u8; 16]>,
    /// The related activity id.
    pub related: Option<&'a [u8; 16]>,
    /// Return addresses, innermost first; at most [`MAX_FRAMES`] are kept.
    pub frames: &'a [usize],
    /// The thread that the event is about, when it is not the writing one.
    pub event_thread: Option<u64>,
}

impl RecordOptions<'_> {
    /// Nothing else.
    pub(crate) const NONE: RecordOptions<'static> = RecordOptions {
        activity: None,
        related: None,
        frames: &[],
        event_thread: None,
    };
}

/// A record as the drain gives it: borrowed from the block.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// [`EventKey::index`] at the time of writing.
    pub event_index: u32,
    /// When it was written ([`eventpipe_os::clock::ticks`]), never less than the tick of the
    /// thread's record before.
    pub ticks: u64,
    /// Bit `s`: session `s` wanted it.
    pub sessions: u64,
    /// The activity id.
    pub activity: Option<&'a [u8; 16]>,
    /// The related activity id.
    pub related: Option<&'a [u8; 16]>,
    /// The thread that the event is about, when it is not the writing one.
    pub event_thread: Option<u64>,
    /// Return addresses, innermost first, in the processor's size and byte order.
    pub frames: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// Records of one thread that follow one another, without losses in between.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    until: u64,
    given: u64,
}

impl<'a> Records<'a> {
    /// Those that stand in `bytes` and are not younger than `until`.
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], until: u64) -> Self {
        Self {
            bytes,
            until,
            given: 0,
        }
    }

    /// The next one, if it is for exactly these sessions (a mask).
    #[inline(always)]
    pub fn next_for(&mut self, sessions: u64) -> Option<Record<'a>> {
        let mut after = self.clone();
        let record = after.step()?;
        if record.sessions != sessions {
            return None;
        }
        *self = after;
        Some(record)
    }

    /// Takes off the front what is for exactly these sessions (a mask), until that is so many bytes: for
    /// a sink that goes through the same records several times.
    pub fn take_for(&mut self, sessions: u64, bytes: usize) -> Records<'a> {
        let all = self.bytes;
        while all.len() - self.bytes.len() < bytes {
            let Some((head, next)) = self.peek() else {
                break;
            };
            if !head.is_record_for(sessions) {
                break;
            }
            self.bytes = self.bytes.get(next..).unwrap_or_default();
            self.given += 1;
        }
        let taken = all.len() - self.bytes.len();
        Records::new(all.get(..taken).unwrap_or_default(), self.until)
    }

    /// The head of the next one or of what was lost before it, and where the one after it begins.
    #[inline(always)]
    fn peek(&self) -> Option<(Head, usize)> {
        let head = Head::of(self.bytes).filter(|head| head.ticks <= self.until)?;
        Some((head, aligned(head.size()) as usize))
    }

    /// Tick and payload of the next one, if all else of it is that of `like`.
    #[inline(always)]
    pub fn next_like(&mut self, like: &Like<'_>) -> Option<(u64, &'a [u8])> {
        let (record, rest) = self.bytes.split_at_checked(like.stride)?;
        let head = Head::of(record)?;
        let is_like = head.word == like.word && head.sessions == like.sessions;
        if !is_like || head.ticks > self.until {
            return None;
        }
        if !like.frames.is_empty() && record.get(HEADER..like.payload_at)? != like.frames {
            return None;
        }
        let payload = record.get(like.payload_at..like.size)?;
        self.fetch_ahead(like.stride);
        self.bytes = rest;
        self.given += 1;
        Some((head.ticks, payload))
    }

    /// Passes over so many for which [`next_like`](Self::next_like) gave something.
    #[inline(always)]
    pub fn skip_like(&mut self, like: &Like<'_>, count: usize) {
        self.bytes = self.bytes.get(count * like.stride..).unwrap_or_default();
        self.given += count as u64;
    }

    /// Asks for as much of what will be read as is being read.
    #[inline(always)]
    fn fetch_ahead(&self, length: usize) {
        fetch(self.bytes.as_ptr().wrapping_add(AHEAD as usize), length);
    }

    #[inline(always)]
    fn step(&mut self) -> Option<Record<'a>> {
        let mut after = self.clone();
        let Entry::Record(record) = after.step_entry()? else {
            return None;
        };
        self.fetch_ahead(self.bytes.len() - after.bytes.len());
        *self = after;
        self.given += 1;
        Some(record)
    }

    #[inline(always)]
    fn step_entry(&mut self) -> Option<Entry<'a>> {
        let (head, next) = self.peek()?;
        let rest = self.bytes.get(HEADER..head.size() as usize)?;
        self.bytes = self.bytes.get(next..).unwrap_or_default();
        layout::decode(head, rest)
    }

    /// The next one or what was lost before it.
    #[inline(never)]
    pub(crate) fn next_entry(&mut self) -> Option<Entry<'a>> {
        self.step_entry()
    }

    /// How many have been given.
    pub(crate) fn given(&self) -> u64 {
        self.given
    }

    /// Bytes that are left, those of younger ones included.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }
}

/// What records are looked for that differ from one in their tick and their payload's bytes alone; see [`Records::next_like`].
#[derive(Clone, Copy, Debug)]
pub struct Like<'a> {
    word: u64,
    sessions: u64,
    frames: &'a [u8],
    payload_at: usize,
    size: usize,
    /// The size with what is between it and the next one.
    stride: usize,
}

impl<'a> Like<'a> {
    /// Records like this one; `None` where there is more to compare than kind, sizes and stack.
    #[inline(always)]
    pub fn of(record: &Record<'a>) -> Option<Self> {
        let has_ids = record.activity.is_some() || record.related.is_some();
        if has_ids || record.event_thread.is_some() {
            return None;
        }
        let payload_at = HEADER + record.frames.len();
        let size = payload_at + record.payload.len();
        Some(Self {
            word: layout::word(record.event_index, size, record.frames.len()),
            sessions: record.sessions,
            frames: record.frames,
            payload_at,
            size,
            stride: aligned(size as u32) as usize,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    // Not inlined, as opposed to `next_for`: the loop that has to be fast is that of one session.
    #[inline(never)]
    fn next(&mut self) -> Option<Record<'a>> {
        self.step()
    }
}

/// Why events were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LossReason {
    /// No block could be had, whatever the payload's size: none was free, as the drain could not
    /// keep up; or the outputs of all who wanted the event were full ([`Ring::hold`](crate::Ring::hold)).
    BufferFull = 0,
    /// The payload had more than [`MAX_PAYLOAD`] bytes, and there was a block.
    TooLarge = 1,
    /// Written inside an event inside an event (a signal handler that interrupted one which
    /// interrupted a writer).
    Reentered = 2,
}

impl LossReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::BufferFull, Self::TooLarge, Self::Reentered];
}

/// Who wrote the records that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// Unique in the process for ever; 0 for writers that could not be told apart (the system had
    /// no memory for a slot).
    pub uid: u64,
    /// The kernel's thread id; may be used again by a later thread.
    pub os_thread_id: u64,
}

/// Where a round of the drain puts what it finds. The calls of one round:
///
/// for each thread with something to tell, the one with the oldest record first: `thread`, then
/// `records` or `record`, and `lost`, in the order in which they happened, then perhaps `thread_ended`; last
/// `boundary`. The sink must not write events into the same ring.
pub trait Sink {
    /// The records and losses that follow are this thread's.
    fn thread(&mut self, thread: ThreadInfo);
    /// One event. `sorted`: nothing older than this record will follow, in this round or later,
    /// from any thread.
    fn record(&mut self, record: &Record<'_>, sorted: bool);
    /// Events, of which the first is `sorted` or not, and the others are not: what a sink implements
    /// that does better with many than with one after the other. What it leaves in `records` is
    /// passed over.
    #[inline]
    fn records(&mut self, records: &mut Records<'_>, mut sorted: bool) {
        for record in records {
            self.record(&record, sorted);
            sorted = false;
        }
    }
    /// So many events of the current thread that session `session` (a bit number) wanted are lost,
    /// exactly here.
    fn lost(&mut self, session: u32, count: u64, reason: LossReason);
    /// Nothing of this thread will ever come again. Comes once for each thread that was told by
    /// `thread` and has ended.
    fn thread_ended(&mut self, uid: u64);
    /// Everything with ticks up to this has been given. Never goes back.
    fn boundary(&mut self, ticks: u64);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Adds a record whose payload, of 1 to 8 bytes, is its tick.
    fn put(block: &mut Vec<u8>, event: u32, ticks: u64, sessions: u64, options: RecordOptions<'_>) {
        let payload = ticks.to_ne_bytes();
        let payload = payload.get(..1 + event as usize % 8).unwrap();
        let shape = layout::Shape::of(payload.len(), &options);
        let at = block.len();
        block.resize(at + shape.aligned_size() as usize, 0xAA);
        let out = &mut block[at..at + shape.size() as usize];
        layout::encode(out, shape, event, ticks, sessions, &options, payload);
    }

    #[test]
    fn records_are_alike_that_differ_in_tick_and_payload_alone() {
        let frames = [1_usize, 2, 3];
        let none = RecordOptions::default();
        let stack = RecordOptions {
            frames: &frames,
            ..none
        };
        let other_stack = RecordOptions {
            frames: &[1, 2, 4],
            ..none
        };
        let id = [7; 16];
        let with_id = RecordOptions {
            activity: Some(&id),
            ..none
        };
        let with_thread = RecordOptions {
            event_thread: Some(7),
            ..none
        };
        let next = [
            (7, 1, none, true),
            (6, 1, none, false),
            (8, 1, none, false),
            (15, 1, none, false),
            (7, 3, none, false),
            (7, 1, stack, false),
            (7, 1, with_id, false),
            (7, 1, with_thread, false),
        ];
        let same = [
            (stack, stack, true),
            (stack, other_stack, false),
            (stack, none, false),
        ];
        let cases = next
            .into_iter()
            .map(|(event, sessions, options, is_like)| (none, event, sessions, options, is_like))
            .chain(same.map(|(first, second, is_like)| (first, 7, 1, second, is_like)));
        for (first, event, sessions, options, is_like) in cases {
            let mut block = Vec::new();
            put(&mut block, 7, 10, 1, first);
            put(&mut block, event, 11, sessions, options);
            put(&mut block, 7, 12, 1, first);
            let mut records = Records::new(&block, 12);
            let record = records.next().unwrap();
            let like = Like::of(&record).unwrap();
            let mut after = records.clone();
            let expected = 11_u64.to_ne_bytes();
            let found = after.next_like(&like);
            assert_eq!(found, is_like.then_some((11, &expected[..])), "{options:?}");
            if is_like {
                assert_eq!(after.next_like(&like).map(|(ticks, _)| ticks), Some(12));
                assert_eq!(after.next_like(&like), None, "the end");
                records.skip_like(&like, 2);
                assert_eq!((records.left(), records.given()), (0, 3));
                let mut older = Records::new(&block, 11);
                older.skip_like(&like, 1);
                assert!(older.next_like(&like).is_some());
                assert_eq!(older.next_like(&like), None, "too young");
            }
        }
        for options in [with_id, with_thread] {
            let mut block = Vec::new();
            put(&mut block, 7, 10, 1, options);
            let record = Records::new(&block, 10).next().unwrap();
            assert!(Like::of(&record).is_none());
        }
    }
}
