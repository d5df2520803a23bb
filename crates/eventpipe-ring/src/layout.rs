//! What a block holds: records and lost records, 8-byte aligned, one after the other. Safe code
//! over byte slices; explicit offsets.
//!
//! Record: one word (exact size in bits 0–16, flags in 17–21, number of frames in 22–31, event
//! index in 32–63), ticks, session mask; then if flagged: activity id (16), related activity id
//! (16), event thread (8); the frames (8 each on 64-bit machines); the payload.
//!
//! Lost record: the same three words with the mask of the sessions it tells about; then for each
//! bit, lowest first, the thread's total of lost events so far by reason (3 words).

use crate::record::{LossReason, MAX_FRAMES, MAX_PAYLOAD, Payload, Record, RecordOptions};

pub(crate) const HEADER: usize = 24;
const REASONS: usize = LossReason::ALL.len();
const FRAME: usize = size_of::<usize>();

const SIZE_MASK: u32 = (1 << 17) - 1;
const ACTIVITY: u32 = 1 << 17;
const RELATED: u32 = 1 << 18;
const EVENT_THREAD: u32 = 1 << 19;
const LOST: u32 = 1 << 20;
const FRAMES_SHIFT: u32 = 22;

/// The largest record and the largest lost record, together, fit a big block.
const _: () = assert!(
    HEADER + 16 + 16 + 8 + FRAME * MAX_FRAMES + MAX_PAYLOAD + 8 + HEADER + 64 * REASONS * 8
        <= crate::arena::BIG
        || cfg!(loom)
);
const _: () =
    assert!(crate::arena::BIG <= SIZE_MASK as usize && MAX_FRAMES < 1 << (32 - FRAMES_SHIFT));

pub(crate) const fn aligned(size: u32) -> u32 {
    (size + 7) & !7
}

/// Size and flags of a record to be written.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    word: u32,
}

impl Shape {
    /// `payload` is at most [`MAX_PAYLOAD`].
    #[inline(always)]
    pub(crate) fn of(payload: usize, options: &RecordOptions<'_>) -> Self {
        let frames = options.frames.len().min(MAX_FRAMES);
        let mut size = HEADER + payload + frames * FRAME;
        let mut flags = 0;
        if options.activity.is_some() {
            size += 16;
            flags |= ACTIVITY;
        }
        if options.related.is_some() {
            size += 16;
            flags |= RELATED;
        }
        if options.event_thread.is_some() {
            size += 8;
            flags |= EVENT_THREAD;
        }
        Self {
            word: size as u32 | flags | (frames as u32) << FRAMES_SHIFT,
        }
    }

    #[inline(always)]
    pub(crate) fn size(self) -> u32 {
        self.word & SIZE_MASK
    }

    #[inline(always)]
    pub(crate) fn aligned_size(self) -> u32 {
        aligned(self.size())
    }
}

/// The first word of a record without ids, of which `frames` bytes are its stack.
#[inline(always)]
pub(crate) fn word(event_index: u32, size: usize, frames: usize) -> u64 {
    let frames = (frames / FRAME) as u32;
    u64::from(event_index) << 32 | u64::from(size as u32 | frames << FRAMES_SHIFT)
}

/// Takes `N` bytes off the front of `out` for writing.
#[inline(always)]
fn put<const N: usize>(out: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((place, rest)) = core::mem::take(out).split_first_chunk_mut::<N>() {
        *place = bytes;
        *out = rest;
    }
}

/// Writes a record into `out`, which has exactly `shape.size()` bytes.
#[inline(always)]
pub(crate) fn encode<P: Payload + ?Sized>(
    mut out: &mut [u8],
    shape: Shape,
    event_index: u32,
    ticks: u64,
    sessions: u64,
    options: &RecordOptions<'_>,
    payload: &P,
) {
    let out = &mut out;
    put(
        out,
        (u64::from(event_index) << 32 | u64::from(shape.word)).to_ne_bytes(),
    );
    put(out, ticks.to_ne_bytes());
    put(out, sessions.to_ne_bytes());
    if let Some(id) = options.activity {
        put(out, *id);
    }
    if let Some(id) = options.related {
        put(out, *id);
    }
    if let Some(thread) = options.event_thread {
        put(out, thread.to_ne_bytes());
    }
    let frames = options.frames.get(..MAX_FRAMES).unwrap_or(options.frames);
    if let Some((place, rest)) = core::mem::take(out).split_at_mut_checked(frames.len() * FRAME) {
        let (places, _) = place.as_chunks_mut::<FRAME>();
        for (place, frame) in places.iter_mut().zip(frames) {
            *place = frame.to_ne_bytes();
        }
        payload.copy_to(rest);
    }
}

pub(crate) fn lost_size(sessions: u64) -> u32 {
    HEADER as u32 + sessions.count_ones() * (REASONS * 8) as u32
}

/// Writes a lost record into `out`, which has exactly [`lost_size`] bytes.
pub(crate) fn encode_lost(
    mut out: &mut [u8],
    ticks: u64,
    sessions: u64,
    total: impl Fn(u32, LossReason) -> u64,
) {
    let out = &mut out;
    put(out, u64::from(lost_size(sessions) | LOST).to_ne_bytes());
    put(out, ticks.to_ne_bytes());
    put(out, sessions.to_ne_bytes());
    for session in bits(sessions) {
        for reason in LossReason::ALL {
            put(out, total(session, reason).to_ne_bytes());
        }
    }
}

/// The numbers of the set bits, lowest first.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let bit = mask.trailing_zeros();
        mask &= mask - 1;
        Some(bit)
    })
}

/// What stands at a place in a block.
pub(crate) enum Entry<'a> {
    Record(Record<'a>),
    Lost { sessions: u64, totals: Totals<'a> },
}

/// The totals of a lost record.
pub(crate) struct Totals<'a>(&'a [u8]);

impl Totals<'_> {
    /// Calls back with session, reason and total.
    pub(crate) fn for_each(&self, sessions: u64, mut each: impl FnMut(u32, LossReason, u64)) {
        let mut words = self.0.chunks_exact(8);
        for session in bits(sessions) {
            for reason in LossReason::ALL {
                let total = words
                    .next()
                    .and_then(|word| word.try_into().ok())
                    .map_or(0, u64::from_ne_bytes);
                each(session, reason, total);
            }
        }
    }
}

/// The three words that every record and lost record begins with.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    pub(crate) word: u64,
    pub(crate) ticks: u64,
    pub(crate) sessions: u64,
}

impl Head {
    /// The one at the front.
    #[inline(always)]
    pub(crate) fn of(mut bytes: &[u8]) -> Option<Self> {
        let mut head = &take::<HEADER>(&mut bytes)?[..];
        Some(Self {
            word: u64::from_ne_bytes(*take(&mut head)?),
            ticks: u64::from_ne_bytes(*take(&mut head)?),
            sessions: u64::from_ne_bytes(*take(&mut head)?),
        })
    }

    /// The exact size of the record.
    #[inline(always)]
    pub(crate) fn size(self) -> u32 {
        self.word as u32 & SIZE_MASK
    }

    /// Whether it begins an event, for exactly these sessions (a mask).
    #[inline(always)]
    pub(crate) fn is_record_for(self, sessions: u64) -> bool {
        self.word as u32 & LOST == 0 && self.sessions == sessions
    }
}

#[inline(always)]
fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(taken)
}

/// Reads what [`encode`] or [`encode_lost`] wrote: its head, and what stands between that and its
/// exact size. `None` cannot happen with such bytes.
#[inline(always)]
pub(crate) fn decode(head: Head, mut rest: &[u8]) -> Option<Entry<'_>> {
    let flags = head.word as u32;
    let mut options = Options::default();
    if flags & (ACTIVITY | RELATED | EVENT_THREAD | LOST) != 0 {
        if flags & LOST != 0 {
            return Some(Entry::Lost {
                sessions: head.sessions,
                totals: Totals(rest),
            });
        }
        options = decode_options(flags, &mut rest)?;
    }
    let (frames, payload) = rest.split_at_checked((flags >> FRAMES_SHIFT) as usize * FRAME)?;
    Some(Entry::Record(Record {
        event_index: (head.word >> 32) as u32,
        ticks: head.ticks,
        sessions: head.sessions,
        activity: options.activity,
        related: options.related,
        event_thread: options.event_thread,
        frames,
        payload,
    }))
}

/// What few records have.
#[derive(Default)]
struct Options<'a> {
    activity: Option<&'a [u8; 16]>,
    related: Option<&'a [u8; 16]>,
    event_thread: Option<u64>,
}

#[inline(never)]
fn decode_options<'a>(flags: u32, rest: &mut &'a [u8]) -> Option<Options<'a>> {
    let mut options = Options::default();
    if flags & ACTIVITY != 0 {
        options.activity = Some(take(rest)?);
    }
    if flags & RELATED != 0 {
        options.related = Some(take(rest)?);
    }
    if flags & EVENT_THREAD != 0 {
        options.event_thread = Some(u64::from_ne_bytes(*take(rest)?));
    }
    Some(options)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn every_combination_of_options_comes_back_as_it_was_written() {
        let (a, b) = ([7u8; 16], [9u8; 16]);
        let frames = [1usize, usize::MAX, 3];
        for combination in 0..16u32 {
            for payload in [&b""[..], b"x", b"12345678", b"123456789"] {
                let options = RecordOptions {
                    activity: (combination & 1 != 0).then_some(&a),
                    related: (combination & 2 != 0).then_some(&b),
                    event_thread: (combination & 4 != 0).then_some(77),
                    frames: if combination & 8 != 0 { &frames } else { &[] },
                };
                let shape = Shape::of(payload.len(), &options);
                let mut bytes = vec![0xAA; shape.size() as usize];
                encode(
                    &mut bytes,
                    shape,
                    5,
                    1234,
                    0x8000_0000_0000_0001,
                    &options,
                    payload,
                );
                let head = Head::of(&bytes).expect("a head");
                assert_eq!((head.size(), head.ticks), (shape.size(), 1234));
                let Some(Entry::Record(record)) = decode(head, &bytes[HEADER..]) else {
                    panic!("a record")
                };
                assert_eq!(
                    (record.event_index, record.ticks, record.sessions),
                    (5, 1234, 0x8000_0000_0000_0001)
                );
                assert_eq!(
                    (record.activity, record.related),
                    (options.activity, options.related)
                );
                assert_eq!(
                    (record.event_thread, record.payload),
                    (options.event_thread, payload)
                );
                let back: Vec<usize> = record
                    .frames
                    .chunks(FRAME)
                    .map(|f| usize::from_ne_bytes(f.try_into().unwrap()))
                    .collect();
                assert_eq!(back, options.frames);
            }
        }
    }

    #[test]
    fn a_lost_record_tells_its_totals() {
        let sessions = 1 << 63 | 1 << 3;
        let mut bytes = vec![0; lost_size(sessions) as usize];
        encode_lost(&mut bytes, 99, sessions, |session, reason| {
            u64::from(session) * 10 + reason as u64
        });
        let Some(Entry::Lost {
            sessions: back,
            totals,
        }) = Head::of(&bytes).and_then(|head| decode(head, &bytes[HEADER..]))
        else {
            panic!("a lost record")
        };
        assert_eq!(back, sessions);
        let mut seen = Vec::new();
        totals.for_each(sessions, |s, r, n| seen.push((s, r as u32, n)));
        assert_eq!(
            seen,
            [
                (3, 0, 30),
                (3, 1, 31),
                (3, 2, 32),
                (63, 0, 630),
                (63, 1, 631),
                (63, 2, 632)
            ]
        );
    }

    #[test]
    fn too_many_frames_are_cut_off_at_the_outer_end() {
        let frames: Vec<usize> = (0..MAX_FRAMES + 10).collect();
        let options = RecordOptions {
            frames: &frames,
            ..RecordOptions::default()
        };
        let shape = Shape::of(1, &options);
        let mut bytes = vec![0; shape.size() as usize];
        encode(&mut bytes, shape, 0, 1, 1, &options, b"p");
        let head = Head::of(&bytes).expect("a head");
        let Some(Entry::Record(record)) = decode(head, &bytes[HEADER..]) else {
            panic!("a record")
        };
        assert_eq!(
            (record.frames.len(), record.payload),
            (MAX_FRAMES * FRAME, &b"p"[..])
        );
    }
}
