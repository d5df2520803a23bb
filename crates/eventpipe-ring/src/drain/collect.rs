//! The first half of a round: which blocks are there, and up to which tick everything can be given.

use super::{Drain, LIMBO, LISTED, SEALED, SKIP, Scan};
use crate::slot::{GIVES_UP, Lane, Slot};
use crate::sync::{Ordering, heavy, margin_ticks, negative, now, relax};

/// How long a section that is still running is waited for within a round, and after how long the
/// others go on without it.
const LOOK_AGAIN_US: u64 = 5;
const STUCK_US: u64 = 20_000;

/// After how long it is given up (S5). Quiescence, which somebody waits for, does so sooner.
const GIVEN_UP_US: u64 = 10_000_000;

impl Drain<'_> {
    pub(super) fn lists(&self) -> (*mut [u32], *mut [u32]) {
        let count = self.ring.arena.block_count() as usize;
        let scratch = self.ring.arena.scratch();
        if scratch.is_null() || count == 0 {
            return (&mut [], &mut []);
        }
        // SAFETY: the arena has room for twice as many words as it has blocks.
        let second = unsafe { scratch.add(count) };
        (
            core::ptr::slice_from_raw_parts_mut(scratch, count),
            core::ptr::slice_from_raw_parts_mut(second, count),
        )
    }

    /// Puts a block on the list, unless it is there.
    pub(super) fn enlist(&self, index: u32, flags: u32) {
        let ring = self.ring;
        let header = ring.arena.header(index);
        if header.drain_flags.get() & LISTED == 0 {
            let (list, _) = self.lists();
            let count = ring.notes.pending.get();
            // SAFETY: D1, and no other reference into the list is in use while blocks are
            // collected.
            if let Some(place) = unsafe { &mut *list }.get_mut(count as usize) {
                *place = index;
                ring.notes.pending.set(count + 1);
            }
        }
        header
            .drain_flags
            .set(header.drain_flags.get() & !LIMBO | LISTED | flags);
    }

    pub(super) fn take_debts(&mut self) {
        let ring = self.ring;
        for index in ring.debts.take_all(&ring.slots) {
            ring.slots.slot(index).next_debt.set(ring.notes.debts.get());
            ring.notes.debts.set(index + 1);
        }
    }

    pub(super) fn take_full(&mut self) {
        let ring = self.ring;
        let first = ring.notes.pending.get() as usize;
        for index in ring.arena.stacks().full.take_all(&ring.arena) {
            self.enlist(index, SEALED);
        }
        // Into the order in which they were filled, which for one thread is that of the list.
        let (list, _) = self.lists();
        // SAFETY: D1; nothing is added to the list while this reference is in use.
        let list = unsafe { &mut *list };
        if let Some(new) = list.get_mut(first..ring.notes.pending.get() as usize) {
            new.reverse();
        }
    }

    pub(super) fn lane_of(&self, index: u32) -> &Lane {
        let header = self.ring.arena.header(index);
        &self.ring.slots.slot(header.slot()).lanes[header.lane()]
    }

    pub(super) fn scan(&mut self, start: u64) -> Scan {
        let ring = self.ring;
        let margin = margin_ticks();
        let mut scan = Scan {
            target: start.saturating_sub(margin),
            hold: u64::MAX,
            sorted: true,
            in_flight: false,
            leftovers: false,
        };
        let patience = start.saturating_add(margin.saturating_mul(LOOK_AGAIN_US));
        for index in 0..ring.slots.count() {
            let Some(slot) = ring.slots.try_slot(index) else {
                continue;
            };
            let uid = slot.uid.load(Ordering::Acquire);
            slot.scanned_uid.set(uid);
            slot.scan_flags.set(0);
            let told = slot.told_uid.get();
            scan.leftovers |= (told != 0 && told != uid) || slot.owed.load(Ordering::Relaxed) != 0;
            for lane in &slot.lanes {
                self.scan_lane(slot, lane, start, patience, margin, &mut scan);
            }
        }
        self.leave_limbo();
        scan
    }

    /// Seals the blocks that were taken back from a section that has ended since. After the look at
    /// the lanes, so that a section that was waited for there counts as ended here: it may have
    /// gone on in another block.
    pub(super) fn leave_limbo(&mut self) {
        let ring = self.ring;
        let (list, _) = self.lists();
        let pending = ring.notes.pending.get() as usize;
        // SAFETY: D1; nothing is added to the list while this reference is in use.
        let list = unsafe { &*list };
        for index in list.get(..pending).unwrap_or_default() {
            let header = ring.arena.header(*index);
            if header.drain_flags.get() & LIMBO != 0
                && self.lane_of(*index).inflight.load(Ordering::Acquire) != header.limbo.get()
            {
                header.drain_flags.set(LISTED | SEALED);
            }
        }
    }

    /// Lists the lane's open block, and lowers the target when a section that may hold an older
    /// event does not end.
    ///
    /// Two things can hide records that are old enough: a section that was running at the barrier,
    /// until it has ended; and a block that is being changed, as the old one may be on no stack
    /// yet. Both are over in no time, or their thread is preempted.
    pub(super) fn scan_lane(
        &self,
        slot: &Slot,
        lane: &Lane,
        start: u64,
        patience: u64,
        margin: u64,
        scan: &mut Scan,
    ) {
        let at_barrier = lane.inflight.load(Ordering::Acquire);
        let mut attempt = 0;
        let (inflight, block, hidden) = loop {
            let inflight = if attempt == 0 {
                at_barrier
            } else {
                lane.inflight.load(Ordering::Acquire)
            };
            let ended = at_barrier & 1 == 0 || inflight != at_barrier;
            // In this order: what that section did (if it has ended), then the block, then whether
            // its predecessor is on its way.
            let block = lane.block.load(Ordering::Acquire);
            let switching = lane.switching.load(Ordering::Acquire) != 0;
            if ended && !switching || lane.is_given_up(inflight) {
                break (inflight, block, None);
            }
            let reached = lane.last_tick.load(Ordering::Acquire);
            // Still the same section at the end: all of the above was read while it ran. Else look
            // again, now it has ended.
            if attempt != 0
                && now() >= patience
                && lane.inflight.load(Ordering::Acquire) == inflight
            {
                break (
                    inflight,
                    block,
                    Some(if switching {
                        0
                    } else {
                        reached.saturating_sub(1)
                    }),
                );
            }
            relax(attempt.min(99));
            attempt += 1;
        };
        // The event in the making is at least as young as the thread's last one (`reached`), and
        // younger than what earlier rounds gave, as they would have seen its section.
        if let Some(bound) = hidden {
            scan.in_flight = true;
            if lane.notes.stuck_at.get() != inflight {
                lane.notes.stuck_at.set(inflight);
                lane.notes.stuck_since.set(start);
            }
            let stuck = start.saturating_sub(lane.notes.stuck_since.get());
            let late = stuck > margin.saturating_mul(STUCK_US);
            if stuck > margin.saturating_mul(GIVEN_UP_US) && GIVES_UP {
                lane.notes.given_up.store(inflight, Ordering::Relaxed);
            }
            if late && !cfg!(loom) {
                scan.sorted = false;
                scan.hold = scan.hold.min(bound);
                if bound == 0 {
                    slot.scan_flags.set(SKIP);
                }
            } else {
                scan.target = scan.target.min(bound.max(self.ring.notes.target.get()));
            }
        }
        lane.notes.quiet.set(u32::from(
            inflight & 1 == 0 && inflight == lane.notes.seen.get(),
        ));
        lane.notes.seen.set(inflight);
        if let Some(index) = block.checked_sub(1) {
            let header = self.ring.arena.header(index);
            if header.committed.load(Ordering::Acquire) > header.consumed.get() {
                self.enlist(index, 0);
            }
        }
    }

    /// Takes the open blocks from the threads that wrote nothing between the two rounds before, so
    /// that their next event takes a new one (and wakes a sleeping drain). Their records come with
    /// the next round.
    pub fn take_back_idle(&mut self) {
        let ring = self.ring;
        let (list, _) = self.lists();
        // SAFETY: D1.
        let list = unsafe { &mut *list };
        let first = ring.notes.pending.get() as usize;
        let mut count = first;
        for lane in ring.slots.all().flat_map(|slot| &slot.lanes) {
            // Only a matter of taste: when writers wait for room (and in models) the blocks of busy
            // threads are taken, too.
            let quiet = lane.notes.quiet.get() != 0 || ring.room.is_wanted() || cfg!(loom);
            if !quiet || lane.block.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // The owner swaps too: exactly one of both ends up with the block (I1).
            let taken = lane.block.swap(0, Ordering::AcqRel);
            if let (Some(index), Some(place)) = (taken.checked_sub(1), list.get_mut(count)) {
                ring.arena.header(index).drain_flags.set(LISTED | LIMBO);
                *place = index;
                count += 1;
            }
        }
        if count == first {
            return;
        }
        ring.notes.pending.set(count as u32);
        heavy();
        for index in list.get(first..count).unwrap_or_default() {
            let header = ring.arena.header(*index);
            let inflight = self.lane_of(*index).inflight.load(Ordering::Acquire);
            header.limbo.set(inflight);
            if inflight & 1 == 0 || negative!("no_limbo") {
                // Whatever enters from here on finds the lane empty (S4), and whatever was written
                // before is visible (S2).
                header.drain_flags.set(LISTED | SEALED);
            }
        }
    }
}
