//! What a thread has in the ring: its slot. Slots live for ever and are used again by later
//! threads.
//!
//! Invariants:
//! * S1: a slot belongs to one thread at a time: from being popped off the free slots until it is
//!   pushed there again (by that thread, or by the drain when the thread left debts). Memory of
//!   slots is never freed or moved.
//! * S2: `inflight` of a lane is odd exactly while its thread is in a section of that lane. Both
//!   the entry and the exit store release, so that who sees any later value (acquire) sees
//!   everything that the earlier sections did.
//! * S3: lane 0 is for the thread, lane 1 for what interrupts it in a section of lane 0. `level`
//!   counts how many of its sections a thread is in; it is written by the thread and restored by
//!   interrupters, so it is always what the code at hand left there.
//! * S4: who does *store, light barrier, load* in a section pairs with *store, heavy barrier, load*
//!   of quiescence and drain: of a cleared mask (or emptied lane) and a running section, at least
//!   one is seen by the other.
//! * S5: a section that does not end (its thread was taken out of it by `siglongjmp`, or cannot run)
//!   is given up by quiescence or the drain after some seconds, and then holds up neither. It may
//!   still go on: so its block stays its own, and the pool's memory stays where it is, until it has
//!   ended, which its thread's end is too. What can come of it is one record, late, with the bits
//!   that its event had, and older than what was marked sorted.

use crate::arena::OpenBlock;
use crate::record::{LossReason, SESSIONS};
use crate::stack::Links;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Private32, Private64, const_unless_loom, now};
#[cfg(not(loom))]
use crate::{ring::Ring, sync::AtomicPtr};

/// `[expr; SESSIONS]` for values that are not `Copy`, also where constants of them are impossible
/// (loom).
macro_rules! const_array {
    ($value:expr) => {{
        #[cfg(not(loom))]
        {
            [const { $value }; SESSIONS as usize]
        }
        #[cfg(loom)]
        {
            core::array::from_fn(|_| $value)
        }
    }};
}

/// Whether sections are given up (S5). Models have none that do not end, and a runtime that links an
/// engine without std takes no thread out of an event.
pub(crate) const GIVES_UP: bool = cfg!(feature = "std") && !cfg!(loom);

/// The thread's own, and one for what interrupts it. (Models have no signals.)
pub(crate) const LANES: usize = if cfg!(loom) { 1 } else { 2 };

/// A place to write blocks in order: a cache line for the writer, and one for the drain's notes.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Lane {
    /// Odd: in a section (S2).
    pub(crate) inflight: AtomicU32,
    /// Index + 1 of the block that is written to; 0: none. Put in by the owner, taken out by the
    /// owner or the drain, by swaps.
    pub(crate) block: AtomicU32,
    /// Where the next record goes, and where the block ends.
    pub(crate) position: Private32,
    pub(crate) limit: Private32,
    /// That block's addresses.
    pub(crate) open: OpenBlock,
    /// The tick of the last record; read by the drain to know what a section at work cannot be
    /// older than.
    pub(crate) last_tick: AtomicU64,
    /// Number of the thread's last block.
    pub(crate) ordinal: Private64,
    /// When that block was taken.
    pub(crate) taken_ticks: Private64,
    /// 1 between the swap of blocks and the push of the old one.
    pub(crate) switching: AtomicU32,
    pub(crate) notes: LaneNotes,
}

impl Lane {
    /// The tick of the event in the making: never less than that of the one before.
    #[inline(always)]
    pub(crate) fn tick(&self) -> u64 {
        let ticks = now().max(self.last_tick.load(Ordering::Relaxed));
        self.last_tick.store(ticks, Ordering::Relaxed);
        ticks
    }

    /// Whether the lane is still in a section that was given up.
    pub(crate) fn is_given_up(&self, inflight: u32) -> bool {
        GIVES_UP && inflight & 1 == 1 && self.notes.given_up.load(Ordering::Relaxed) == inflight
    }
}

/// What the drain keeps of a lane, on a line that the writer does not touch.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct LaneNotes {
    pub(crate) seen: Private32,
    pub(crate) quiet: Private32,
    pub(crate) stuck_at: Private32,
    pub(crate) stuck_since: Private64,
    /// The odd value of `inflight` of a section that nobody waits for any more (S5). Written by
    /// whoever gave it up.
    pub(crate) given_up: AtomicU32,
}

/// See the module.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Slot {
    pub(crate) lanes: [Lane; LANES],
    pub(crate) level: Private32,
    pub(crate) index: Private32,
    /// 1: the thread does not wait for room.
    pub(crate) no_wait: Private32,
    /// 1: the thread waits for room.
    pub(crate) waits: Private32,
    /// 1: the thread has had a block.
    pub(crate) had_block: Private32,
    /// How many events the thread has lost for want of room since it last gave way to the drain.
    pub(crate) lost_in_turn: Private32,
    /// Sessions whose losses no lost record has told yet.
    pub(crate) owed: AtomicU64,
    /// The ring that the slot belongs to.
    #[cfg(not(loom))]
    pub(crate) ring: AtomicPtr<Ring>,
    /// The thread; 0: none.
    pub(crate) uid: AtomicU64,
    pub(crate) os_thread_id: AtomicU64,
    /// Whether this thread has lost anything: then the drain has the last word on the slot.
    pub(crate) has_lost: AtomicU32,
    /// Whether any thread of this slot has: its losses are worth a look.
    pub(crate) ever_lost: AtomicU32,
    /// The thread that ended and left the slot to the drain.
    pub(crate) debtor: AtomicU64,
    link: AtomicU64,
    // The drain's own notes.
    pub(crate) scanned_uid: Private64,
    /// The thread whose records were given last, until its end was told.
    pub(crate) told_uid: Private64,
    /// The thread whose losses were told last.
    pub(crate) lost_uid: Private64,
    pub(crate) next_debt: Private32,
    pub(crate) scan_flags: Private32,
}

/// Numbers by reason and session.
type Table<T> = [[T; SESSIONS as usize]; LossReason::ALL.len()];

/// Totals of lost events, for the life of the slot.
///
/// Releases: who acquires a total sees the entry into the section that added to it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Losses {
    /// Lost by the thread itself: it alone stores here.
    own: Table<AtomicU64>,
    /// What the drain has told its sink of both.
    told: Table<Private64>,
    /// Lost by what interrupted it, or by several threads: added to in one step.
    shared: Table<AtomicU64>,
}

macro_rules! table {
    ($value:expr) => {
        [
            const_array!($value),
            const_array!($value),
            const_array!($value),
        ]
    };
}

impl Losses {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                own: table!(AtomicU64::new(0)),
                told: table!(Private64::new(0)),
                shared: table!(AtomicU64::new(0)),
            }
        }
    }

    /// One more, counted by the slot's thread in a section of lane 0.
    #[inline]
    pub(crate) fn add_own(&self, session: u32, reason: LossReason) {
        if let Some(total) = place(&self.own, session, reason) {
            total.store(total.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
    }

    /// One more, counted by anybody.
    #[inline]
    pub(crate) fn add_shared(&self, session: u32, reason: LossReason) {
        if let Some(total) = place(&self.shared, session, reason) {
            total.fetch_add(1, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn total(&self, session: u32, reason: LossReason) -> u64 {
        let load = |table| {
            place(table, session, reason)
                .map_or(0, |total: &AtomicU64| total.load(Ordering::Acquire))
        };
        load(&self.own) + load(&self.shared)
    }

    /// Takes note that the total was told; how many more that are than before. For the drain.
    pub(crate) fn tell(&self, session: u32, reason: LossReason, total: u64) -> u64 {
        let Some(told) = place(&self.told, session, reason) else {
            return 0;
        };
        let new = total.saturating_sub(told.get());
        if new != 0 {
            told.set(total);
        }
        new
    }

    /// Whether the totals of a session are more than was told. For the drain.
    pub(crate) fn has_untold(&self, session: u32) -> bool {
        LossReason::ALL.into_iter().any(|reason| {
            place(&self.told, session, reason)
                .is_some_and(|told| self.total(session, reason) > told.get())
        })
    }

    /// Takes everything for told. In the child of a fork.
    #[cfg(not(loom))]
    pub(crate) fn forget(&self) {
        for session in 0..SESSIONS {
            for reason in LossReason::ALL {
                self.tell(session, reason, self.total(session, reason));
            }
        }
    }
}

#[inline(always)]
fn place<T>(table: &Table<T>, session: u32, reason: LossReason) -> Option<&T> {
    table.get(reason as usize)?.get(session as usize)
}

pub(crate) use table::Slots;

impl Links for Slots {
    fn link(&self, index: u32) -> &AtomicU64 {
        &self.slot(index).link
    }
}

impl Slots {
    /// Every slot there is: call the heavy barrier first, then a thread that is not among them has
    /// not entered a section yet.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Slot> {
        (0..self.count()).filter_map(|index| self.try_slot(index))
    }

    pub(crate) fn slot(&self, index: u32) -> &Slot {
        match self.try_slot(index) {
            Some(slot) => slot,
            // Indexes come from slots that exist.
            None => self.missing(),
        }
    }
}

#[cfg(not(loom))]
mod table {
    use super::{Losses, Slot};
    use crate::sync::{AtomicPtr, AtomicU32, Ordering};
    use core::ptr;
    use eventpipe_os::memory::Reservation;

    /// Slots in the first segment; each further one has twice as many.
    const FIRST: u32 = 64;
    const SEGMENTS: usize = 20;

    /// All slots ever made, in segments: an array of slots, then an array of as many [`Losses`]
    /// (pages that nobody touches until the first loss).
    #[derive(Debug)]
    pub(crate) struct Slots {
        segments: [AtomicPtr<Slot>; SEGMENTS],
        count: AtomicU32,
    }

    fn place(index: u32) -> (usize, usize) {
        let segment = (index / FIRST + 1).ilog2();
        let before = FIRST * ((1 << segment) - 1);
        (segment as usize, (index - before) as usize)
    }

    fn slots_in(segment: usize) -> usize {
        (FIRST as usize) << segment
    }

    impl Slots {
        pub(crate) const fn new() -> Self {
            Self {
                segments: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS],
                count: AtomicU32::new(0),
            }
        }

        pub(crate) fn count(&self) -> u32 {
            self.count.load(Ordering::Acquire)
        }

        /// `None`: the thread that made the slot has not got its memory yet, so it is in no
        /// section.
        pub(crate) fn try_slot(&self, index: u32) -> Option<&Slot> {
            let (segment, position) = place(index);
            let slots = self.segments.get(segment)?.load(Ordering::Acquire);
            if slots.is_null() {
                return None;
            }
            // SAFETY: a segment that is published has `slots_in(segment)` slots, and `position` is
            // below that.
            let slot = unsafe { slots.add(position) };
            // SAFETY: zeroed memory is a valid slot (atomics and null pointers), never freed (S1).
            Some(unsafe { &*slot })
        }

        pub(super) fn missing(&self) -> &Slot {
            static NOBODY: Slot = Slot::nobody();
            debug_assert!(false, "a slot index without a slot");
            &NOBODY
        }

        pub(crate) fn losses(&self, index: u32) -> &Losses {
            let (segment, position) = place(index);
            let slots = self
                .segments
                .get(segment)
                .map_or(ptr::null_mut(), |s| s.load(Ordering::Acquire));
            if slots.is_null() {
                static NOBODY: Losses = Losses::new();
                debug_assert!(false, "a slot index without a slot");
                return &NOBODY;
            }
            // SAFETY: the losses of a segment follow its slots, in the same mapping.
            let losses = unsafe { slots.add(slots_in(segment)) }.cast::<Losses>();
            // SAFETY: as many losses as slots, and `position` is below that.
            let losses = unsafe { losses.add(position) };
            // SAFETY: zeroed memory is a valid value, never freed (S1).
            unsafe { &*losses }
        }

        /// A slot that nobody had before. `None`: no memory, or too many.
        pub(crate) fn make(&self) -> Option<&Slot> {
            let mut index = self.count.load(Ordering::Relaxed);
            loop {
                let (segment, _) = place(index);
                let pointer = self.segments.get(segment)?;
                if pointer.load(Ordering::Acquire).is_null() {
                    let count = slots_in(segment);
                    let bytes = count * (size_of::<Slot>() + size_of::<Losses>());
                    let memory = Reservation::new(bytes).ok()?;
                    let address = memory.address().as_ptr().cast::<Slot>();
                    // Who loses the race unmaps its own.
                    if pointer
                        .compare_exchange(
                            ptr::null_mut(),
                            address,
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        )
                        .is_ok()
                    {
                        memory.leak();
                    }
                }
                match self.count.compare_exchange(
                    index,
                    index + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let slot = self.try_slot(index)?;
                        slot.index.set(index);
                        return Some(slot);
                    }
                    Err(now) => index = now,
                }
            }
        }
    }

    impl Slot {
        const fn nobody() -> Self {
            use crate::sync::{AtomicU64, Private32, Private64};
            const fn lane() -> super::Lane {
                super::Lane {
                    inflight: AtomicU32::new(0),
                    block: AtomicU32::new(0),
                    position: Private32::new(0),
                    limit: Private32::new(0),
                    open: super::OpenBlock::none(),
                    last_tick: AtomicU64::new(0),
                    ordinal: Private64::new(0),
                    taken_ticks: Private64::new(0),
                    switching: AtomicU32::new(0),
                    notes: super::LaneNotes {
                        seen: Private32::new(0),
                        quiet: Private32::new(0),
                        stuck_at: Private32::new(0),
                        stuck_since: Private64::new(0),
                        given_up: AtomicU32::new(0),
                    },
                }
            }
            Self {
                lanes: [lane(), lane()],
                level: Private32::new(0),
                index: Private32::new(0),
                no_wait: Private32::new(0),
                waits: Private32::new(0),
                had_block: Private32::new(0),
                lost_in_turn: Private32::new(0),
                owed: AtomicU64::new(0),
                ring: AtomicPtr::new(ptr::null_mut()),
                uid: AtomicU64::new(0),
                os_thread_id: AtomicU64::new(0),
                has_lost: AtomicU32::new(0),
                ever_lost: AtomicU32::new(0),
                debtor: AtomicU64::new(0),
                link: AtomicU64::new(0),
                scanned_uid: Private64::new(0),
                told_uid: Private64::new(0),
                lost_uid: Private64::new(0),
                next_debt: Private32::new(0),
                scan_flags: Private32::new(0),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn slots_have_places_of_their_own_across_segments() {
            let mut last = (0, usize::MAX);
            for index in 0..5000 {
                let (segment, position) = place(index);
                assert!(position < slots_in(segment));
                if segment == last.0 {
                    assert_eq!(position, last.1.wrapping_add(1));
                } else {
                    assert_eq!((segment, position), (last.0 + 1, 0));
                }
                last = (segment, position);
            }
            let slots = Slots::new();
            for index in 0..200 {
                let slot = slots.make().unwrap();
                assert_eq!(slot.index.get(), index);
                assert!(ptr::eq(slot, slots.slot(index)));
                slots
                    .losses(index)
                    .add_shared(63, crate::LossReason::Reentered);
                assert_eq!(
                    slots.losses(index).total(63, crate::LossReason::Reentered),
                    1
                );
            }
        }

        #[test]
        fn the_words_of_a_write_lie_on_few_cache_lines() {
            assert_eq!(size_of::<super::super::Lane>(), 128);
            assert_eq!(size_of::<Slot>(), 384);
        }
    }
}

#[cfg(loom)]
mod table {
    use super::{Losses, Slot};
    use crate::sync::{AtomicU32, Ordering};
    use std::vec::Vec;

    /// The slots of a model: a few.
    #[derive(Debug)]
    pub(crate) struct Slots {
        slots: Vec<(Slot, Losses)>,
        count: AtomicU32,
    }

    impl Slots {
        pub(crate) fn new(count: u32) -> Self {
            let slots: Vec<_> = (0..count)
                .map(|_| (Slot::default(), Losses::new()))
                .collect();
            for (index, (slot, _)) in slots.iter().enumerate() {
                slot.index.set(index as u32);
            }
            Self {
                slots,
                count: AtomicU32::new(0),
            }
        }
        pub(crate) fn count(&self) -> u32 {
            self.count.load(Ordering::Acquire)
        }
        pub(crate) fn try_slot(&self, index: u32) -> Option<&Slot> {
            Some(&self.slots[index as usize].0)
        }
        pub(super) fn missing(&self) -> &Slot {
            unreachable!()
        }
        pub(crate) fn losses(&self, index: u32) -> &Losses {
            &self.slots[index as usize].1
        }
        pub(crate) fn make(&self) -> Option<&Slot> {
            let index = self.count.fetch_add(1, Ordering::AcqRel);
            Some(
                &self
                    .slots
                    .get(index as usize)
                    .expect("a model with too few slots")
                    .0,
            )
        }
    }
}
