//! The write path. Read `slot.rs` (S1–S4) and `arena.rs` (I1–I4) first.
//!
//! 1. The mask, one relaxed load: nobody wants it, return.
//! 2. The thread's slot.
//! 3. Into a section: `inflight` odd, light barrier.
//! 4. The mask again: what it says now holds for this event.
//! 5. Room, if need be in a new block.
//! 6. The tick.
//! 7. The copy.
//! 8. `committed`, then `inflight` even.

use crate::arena::SMALL;
use crate::layout::{self, Shape, bits};
use crate::record::{EventKey, LossReason, MAX_PAYLOAD, Payload, RecordOptions};
use crate::ring::Ring;
use crate::room::{LOST_IN_TURN, Wait};
use crate::slot::{GIVES_UP, LANES, Lane, Slot};
use crate::sync::{Ordering, light, negative, now};
use core::sync::atomic::compiler_fence;

/// A block with at least so much room is kept although an event did not fit and no other block
/// could be had.
const WORTH_KEEPING: u32 = 256;

/// A thread that fills a block so much faster than a busy one gets a big block even when the pool is
/// more than half full: it will not hold it for long.
const VERY: u64 = 100;

/// The drain is woken when so many threads have ended in debt.
const MANY_DEBTS: u32 = 256;

impl Ring {
    /// Writes an event: one copy, tagged with `event.mask` as it is now; or nothing, when no
    /// session wants it; or a loss, counted for each session that wanted it.
    ///
    /// Never locks or allocates, and waits only for a session in [block
    /// mode](Self::set_blocking). Calls the system only for a thread's first event (its slot
    /// and id), to wake a drain that sleeps, to wait, and to let others run before every 512th
    /// event that is lost for want of room. Works in signal handlers, inside itself (one level;
    /// a second level is counted as lost), after the destruction of thread-locals, in exit
    /// handlers, and without [`start`](Self::start) (then everything is lost, and counted).
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn write<P: Payload + ?Sized>(
        &'static self,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        if event.is_enabled() {
            self.write_enabled(event, payload, options);
        }
    }

    /// [`write`](Self::write) without options, for an event that was found to be wanted: what most
    /// events are, in one piece of code at the place of the call.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn write_plain<P: Payload + ?Sized>(&'static self, event: &EventKey, payload: &P) {
        match self.own_slot() {
            Some(slot) if slot.level.get() == 0 => {
                self.write_at::<P, true>(slot, 0, event, payload, &RecordOptions::NONE);
            }
            _ => self.write_enabled(event, payload, &RecordOptions::NONE),
        }
    }

    /// Counts an event as lost if there is no block for it, before something is prepared for it that
    /// costs more than the loss does: the walk of a stack. `false`: it is not lost, or not yet.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn lose_for_want_of_a_block(&'static self, event: &EventKey) -> bool {
        if !self.room.is_tight() {
            return false;
        }
        match self.own_slot() {
            Some(slot) if slot.level.get() < 2 => {
                let level = slot.level.get();
                // A look without a section: what the drain takes back a moment later was there.
                let lane = &slot.lanes[level as usize % LANES];
                lane.block.load(Ordering::Relaxed) == 0 && self.lose_if_no_block(slot, level, event)
            }
            _ => false,
        }
    }

    #[cfg(not(loom))]
    #[cold]
    #[inline(never)]
    fn lose_if_no_block(&self, slot: &Slot, level: u32, event: &EventKey) -> bool {
        let section = Section::enter(slot, level);
        let sessions = event.mask.load(Ordering::Acquire);
        let is_lost = sessions != 0
            && section.lane.block.load(Ordering::Relaxed) == 0
            && self.has_no_block(slot, sessions)
            && self.lose_unless_it_waits(slot, sessions);
        section.leave();
        is_lost
    }

    #[cfg(not(loom))]
    #[inline(never)]
    fn write_enabled<P: Payload + ?Sized>(
        &'static self,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        match self.own_slot() {
            Some(slot) if slot.level.get() < 2 => self.write_in(slot, event, payload, options),
            _ => self.write_without_slot(event, payload, options),
        }
    }

    #[cfg(not(loom))]
    #[cold]
    #[inline(never)]
    fn write_without_slot<P: Payload + ?Sized>(
        &'static self,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        let nested = self.own_slot().is_some_and(|slot| slot.level.get() >= 2);
        if !nested && let Some(slot) = self.attach_thread() {
            return self.write_in(slot, event, payload, options);
        }
        if nested {
            // Too deep in its own events.
            let Some(slot) = self.attach() else {
                return self.lose_without_slot(event);
            };
            self.lose_in(slot, event, LossReason::Reentered);
            self.detach(slot);
        } else {
            self.write_once(event, payload, options);
        }
    }

    /// Writes like a thread that has only this one event: takes a slot, writes, gives the slot back
    /// and its block to the drain. What a thread does whose exit hook has run; public so that its
    /// cost can be measured.
    #[cfg(not(loom))]
    pub fn write_once<P: Payload + ?Sized>(
        &'static self,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        let Some(slot) = self.attach() else {
            return self.lose_without_slot(event);
        };
        self.write_in(slot, event, payload, options);
        self.detach(slot);
    }

    /// Steps 3 to 8, for a slot of the calling thread with `level` below 2.
    #[inline(always)]
    pub(crate) fn write_in<P: Payload + ?Sized>(
        &self,
        slot: &Slot,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        self.write_at::<P, false>(slot, slot.level.get(), event, payload, options);
    }

    /// The same, with the slot's level. `PLAIN`: without options, whatever `options` says.
    #[inline(always)]
    fn write_at<P: Payload + ?Sized, const PLAIN: bool>(
        &self,
        slot: &Slot,
        level: u32,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) {
        let mut wait = Wait::NONE;
        loop {
            let section = Section::enter(slot, level);
            // Partner: the heavy barrier of `quiesce` (S4).
            let sessions = event.mask.load(Ordering::Acquire);
            let done = sessions == 0
                || self.append::<P, PLAIN>(slot, section.lane, sessions, event, payload, options);
            section.leave();
            if done {
                break;
            }
            wait = self.wait_for_room(slot, event, wait);
        }
        if wait != Wait::NONE {
            self.end_wait(slot, wait);
        }
    }

    /// `false`: there is no room, and the event is one that waits for it.
    #[inline(always)]
    fn append<P: Payload + ?Sized, const PLAIN: bool>(
        &self,
        slot: &Slot,
        lane: &Lane,
        sessions: u64,
        event: &EventKey,
        payload: &P,
        options: &RecordOptions<'_>,
    ) -> bool {
        // Known when this is compiled, so that nothing of them is looked at.
        let options = if PLAIN { &RecordOptions::NONE } else { options };
        let mut block = lane.block.load(Ordering::Relaxed);
        if block == 0 && self.has_no_block(slot, sessions) {
            // Before the payload is looked at: the length of a text costs more than all the rest.
            return self.lose_unless_it_waits(slot, sessions);
        }
        let length = payload.len();
        if length > MAX_PAYLOAD {
            self.lose(slot, sessions, LossReason::TooLarge);
            return true;
        }
        let shape = Shape::of(length, options);
        let need = shape.aligned_size();
        let room = lane.limit.get().wrapping_sub(lane.position.get());
        let mut ticks = 0;
        if block == 0 || room < need || slot.owed.load(Ordering::Relaxed) != 0 {
            (block, ticks) = self.prepare(slot, lane, need, sessions);
            if block == 0 {
                return self.lose_unless_it_waits(slot, sessions);
            }
        }
        // SAFETY: the lane held it (index + 1) a moment ago, and whoever takes it away since waits
        // for our section.
        let block = unsafe { lane.open.block(&self.arena, block - 1) };
        if ticks == 0 {
            ticks = lane.tick();
        }
        let mut at = lane.position.get();
        let index = event.index.load(Ordering::Relaxed);
        block.data.fetch_ahead(at, shape.size(), lane.limit.get());
        // SAFETY: the lane holds the block and we are in its section (I2); there are at
        // least `need` bytes after `position`, and nothing beyond `position` is committed.
        unsafe {
            block.data.write(at, shape.size(), |out| {
                layout::encode(out, shape, index, ticks, sessions, options, payload);
            });
        }
        at += shape.aligned_size();
        lane.position.set(at);
        block.commit(at);
        true
    }

    /// Makes room for `need` bytes in the lane's open block or a new one, after a lost record if the
    /// thread owes one. The block's index + 1, or 0: no room, nothing written; and the tick of the
    /// lost record, if any. The event after it must have the same: runs are put into order by the
    /// tick of whatever comes first in them, and what is marked sorted is the first event.
    #[cold]
    #[inline(never)]
    fn prepare(&self, slot: &Slot, lane: &Lane, need: u32, sessions: u64) -> (u32, u64) {
        let mut block = lane.block.load(Ordering::Relaxed);
        let owed = slot.owed.load(Ordering::Relaxed);
        let lost = if owed == 0 {
            0
        } else {
            layout::lost_size(owed)
        };
        if block == 0 || lane.limit.get() - lane.position.get() < lost + need {
            block = self.make_room(slot, lane, lost + need, sessions);
            if block == 0 {
                return (0, 0);
            }
        }
        let mut ticks = 0;
        if owed != 0 {
            ticks = lane.tick();
            self.append_losses(slot, lane, block - 1, ticks, owed);
        }
        (block, ticks)
    }

    /// Whether an event without an open block gets none.
    #[cold]
    #[inline(never)]
    fn has_no_block(&self, slot: &Slot, sessions: u64) -> bool {
        self.arena.is_exhausted()
            || self.is_refused(slot, sessions)
            || self.is_reined(slot, sessions)
    }

    /// Whether writers are on a short rein, and enough waits for the drain.
    fn is_reined(&self, slot: &Slot, sessions: u64) -> bool {
        self.room.is_reined()
            && self.arena.has_enough_full()
            && slot.had_block.get() != 0
            && !self.room.is_blocking(sessions)
    }

    /// Whether an event is lost although there are blocks: nobody who wants it has room for it.
    fn is_refused(&self, slot: &Slot, sessions: u64) -> bool {
        self.room.is_refused(sessions) && slot.had_block.get() != 0
    }

    fn append_losses(&self, slot: &Slot, lane: &Lane, block: u32, ticks: u64, owed: u64) {
        // First cleared, then read: what a signal handler loses in between is owed again.
        slot.owed.fetch_and(!owed, Ordering::AcqRel);
        let losses = self.slots.losses(slot.index.get());
        let at = lane.position.get();
        let size = layout::lost_size(owed);
        // SAFETY: as in `append`; `prepare` made the room.
        unsafe {
            self.arena.block(block).data.write(at, size, |out| {
                layout::encode_lost(out, ticks, owed, |session, reason| {
                    losses.total(session, reason)
                });
            });
        }
        // Committed with the event that follows.
        lane.position.set(at + size);
    }

    /// Gives the lane a new block of at least `need` bytes; its index + 1, or 0.
    #[cold]
    #[inline(never)]
    fn make_room(&self, slot: &Slot, lane: &Lane, need: u32, sessions: u64) -> u32 {
        let arena = &self.arena;
        let waits = self.waits(slot, sessions);
        let current = lane.block.load(Ordering::Relaxed);
        let ticks = if current == 0 && !waits { 0 } else { now() };
        let busy_ticks = self.busy_ticks.load(Ordering::Relaxed);
        let filled_in = ticks.wrapping_sub(lane.taken_ticks.get());
        let busy = current != 0
            && filled_in < busy_ticks
            && (filled_in < busy_ticks / VERY || arena.free_weight() > arena.total_weight() / 2);
        let refused = if waits {
            self.room.is_held(sessions)
                || arena.is_nearly_empty()
                || self.room.was_wanted(busy_ticks, ticks) && arena.has_enough_full()
        } else {
            self.is_refused(slot, sessions) || self.is_reined(slot, sessions)
        };
        let free = (!refused).then(|| arena.take_free(need as usize, busy));
        let Some(block) = free.flatten() else {
            // What is left of the open block is of little use: the drain may have it, and give it
            // to whoever comes first. So it is when this is the second event in a row that does not
            // fit: those that follow are lost before anything of them is looked at. And who waits
            // holds no block (R2).
            if current != 0
                && (waits
                    || slot.owed.load(Ordering::Relaxed) != 0
                    || need as usize <= SMALL
                        && lane.limit.get() - lane.position.get() < WORTH_KEEPING)
            {
                self.change_block(lane, 0);
            }
            return 0;
        };
        slot.had_block.set(1);
        let header = block.header;
        header.committed.store(0, Ordering::Relaxed);
        header.consumed.set(0);
        header.drain_flags.set(0);
        let lane_number = u32::from(!core::ptr::eq(lane, &slot.lanes[0]));
        header.origin.set(slot.index.get() << 1 | lane_number);
        header.thread_uid.set(slot.uid.load(Ordering::Relaxed));
        header
            .os_thread_id
            .set(slot.os_thread_id.load(Ordering::Relaxed));
        lane.ordinal.set(lane.ordinal.get() + 1);
        header.ordinal.set(lane.ordinal.get());
        lane.position.set(0);
        lane.limit.set(arena.capacity(block.index));
        lane.open.note(&block);
        lane.taken_ticks.set(if ticks == 0 { now() } else { ticks });
        self.change_block(lane, block.index + 1);
        self.wake.if_idle();
        block.index + 1
    }

    /// Puts `new` (index + 1, or 0) into the lane and hands what was there to the drain; in a
    /// section of the lane.
    fn change_block(&self, lane: &Lane, new: u32) {
        // Seen (acquire) by a drain that sees the new block: the old one may be on no stack yet.
        lane.switching.store(1, Ordering::Relaxed);
        // The drain swaps too: exactly one of both ends up with the old block (I1). Release: the
        // header is complete.
        let old = if negative!("store_instead_of_swap") {
            let old = lane.block.load(Ordering::Acquire);
            lane.block.store(new, Ordering::Release);
            old
        } else {
            lane.block.swap(new, Ordering::AcqRel)
        };
        if old != 0 && self.arena.push_full(old - 1) {
            self.wake.set();
        }
        lane.switching.store(0, Ordering::Release);
    }

    /// For an event without room: `false` if it is one that waits, or one before which the drain is
    /// to be woken or given way to.
    #[cold]
    #[inline(never)]
    fn lose_unless_it_waits(&self, slot: &Slot, sessions: u64) -> bool {
        if self.waits(slot, sessions) {
            self.wake.if_idle();
            return false;
        }
        if self.room.lacks_a_note()
            && !self.room.is_blocking(sessions)
            && !self.is_refused(slot, sessions)
        {
            self.room.note_scarcity();
            return false;
        }
        let lost = slot.lost_in_turn.get() + 1;
        slot.lost_in_turn.set(lost);
        if lost >= LOST_IN_TURN {
            return self.lose_unless_it_gives_way(slot, sessions);
        }
        self.lose(slot, sessions, LossReason::BufferFull);
        true
    }

    /// For the last event of a turn: `false` if the thread gives way before it is lost. Not one that
    /// must not wait: what it holds is wanted by others. And not for a reader that stands still, as
    /// nobody makes room then.
    #[cold]
    #[inline(never)]
    fn lose_unless_it_gives_way(&self, slot: &Slot, sessions: u64) -> bool {
        let must_not = slot.level.get() != 1 || slot.no_wait.get() != 0;
        if !cfg!(loom) && !must_not && !self.is_refused(slot, sessions) {
            return false;
        }
        slot.lost_in_turn.set(0);
        self.lose(slot, sessions, LossReason::BufferFull);
        true
    }

    /// Counts an event as lost for each of the sessions; in a section of the slot.
    #[cold]
    #[inline(never)]
    fn lose(&self, slot: &Slot, sessions: u64, reason: LossReason) {
        let losses = self.slots.losses(slot.index.get());
        for session in bits(sessions) {
            if slot.level.get() == 1 {
                losses.add_own(session, reason);
            } else {
                losses.add_shared(session, reason);
            }
        }
        // First counted, then owed; see `append_losses`.
        if slot.owed.load(Ordering::Relaxed) & sessions != sessions {
            slot.owed.fetch_or(sessions, Ordering::AcqRel);
            slot.has_lost.store(1, Ordering::Relaxed);
            slot.ever_lost.store(1, Ordering::Relaxed);
        }
        self.wake.if_idle();
    }

    /// A section in which nothing is written but a loss is counted.
    #[cfg_attr(loom, allow(dead_code, reason = "models do not nest"))]
    pub(crate) fn lose_in(&self, slot: &Slot, event: &EventKey, reason: LossReason) {
        let section = Section::enter(slot, slot.level.get());
        let sessions = event.mask.load(Ordering::Acquire);
        if sessions != 0 {
            self.lose(slot, sessions, reason);
        }
        section.leave();
    }

    #[cfg(not(loom))]
    fn lose_without_slot(&self, event: &EventKey) {
        // A section of many threads at a time: a count instead of a parity.
        self.orphans_inflight.fetch_add(1, Ordering::AcqRel);
        light();
        for session in bits(event.mask.load(Ordering::Acquire)) {
            self.orphans.add_shared(session, LossReason::BufferFull);
        }
        self.orphans_inflight.fetch_sub(1, Ordering::AcqRel);
    }

    // ---- attach and detach

    /// A slot for the calling thread, or for one event of it.
    pub(crate) fn attach(&self) -> Option<&Slot> {
        let slot = match self.free_slots.pop(&self.slots) {
            Some(index) => self.slots.slot(index),
            None => self.slots.make()?,
        };
        slot.no_wait.set(0);
        slot.had_block.set(0);
        let ticks = now();
        for lane in &slot.lanes {
            // Not older than what the thread before wrote, nor than this moment.
            lane.last_tick.store(
                ticks.max(lane.last_tick.load(Ordering::Relaxed)),
                Ordering::Relaxed,
            );
        }
        #[cfg(not(loom))]
        {
            slot.ring
                .store(core::ptr::from_ref(self).cast_mut(), Ordering::Relaxed);
            slot.os_thread_id
                .store(eventpipe_os::thread::os_thread_id(), Ordering::Relaxed);
        }
        let uid = self.uids.fetch_add(1, Ordering::AcqRel) + 1;
        #[cfg(loom)]
        slot.os_thread_id.store(uid + 1000, Ordering::Relaxed);
        slot.uid.store(uid, Ordering::Release);
        Some(slot)
    }

    /// Gives a slot back: its blocks to the drain, and itself to the next thread, or to the drain
    /// when there are losses to tell.
    pub(crate) fn detach(&self, slot: &Slot) {
        if slot.level.get() != 0 {
            // The thread ends inside an event that it was taken out of (`siglongjmp`, or a signal handler
            // that never returned).
            if !GIVES_UP {
                // The slot stays as it is, for ever.
                return;
            }
            // What it had committed counts. A block that it was about to take or to hand over is lost.
            slot.level.set(0);
            for lane in &slot.lanes {
                lane.switching.store(0, Ordering::Relaxed);
                let inflight = lane.inflight.load(Ordering::Relaxed);
                lane.inflight
                    .store(inflight.wrapping_add(inflight & 1), Ordering::Release);
            }
        }
        if GIVES_UP && slot.waits.get() != 0 {
            // It was taken out of a wait for room in the same way.
            self.end_wait(slot, Wait::NONE);
        }
        let section = Section::enter(slot, slot.level.get());
        if negative!("early_end") {
            slot.uid.store(0, Ordering::Release);
        }
        for lane in &slot.lanes {
            self.change_block(lane, 0);
        }
        let in_debt = slot.has_lost.load(Ordering::Relaxed) != 0 && !negative!("forgotten_debt");
        if in_debt {
            slot.debtor
                .store(slot.uid.load(Ordering::Relaxed), Ordering::Release);
        }
        // Release: who sees that the thread has gone sees its blocks on the full stack, and its
        // debt.
        slot.uid.store(0, Ordering::Release);
        if in_debt {
            self.wake.if_idle();
        }
        section.leave();
        if in_debt {
            // Each holds a slot until the drain has looked at it.
            if self.debts.push(&self.slots, slot.index.get(), 1) == MANY_DEBTS {
                self.wake.set();
            }
        } else {
            self.free_slots.push(&self.slots, slot.index.get(), 1);
        }
    }
}

/// The time in which a writer may touch a block (S2, S3).
struct Section<'a> {
    slot: &'a Slot,
    lane: &'a Lane,
    level: u32,
    inside: u32,
}

impl<'a> Section<'a> {
    /// `level` is the slot's.
    #[inline(always)]
    fn enter(slot: &'a Slot, level: u32) -> Self {
        // What interrupts us from here on uses the next lane; what interrupted us before left
        // everything as it was (S3).
        slot.level.set(level + 1);
        compiler_fence(Ordering::SeqCst);
        let lane = &slot.lanes[level as usize % LANES];
        let inside = lane.inflight.load(Ordering::Relaxed).wrapping_add(1);
        // Release, although nothing was written yet: see S2.
        let order = if negative!("relaxed_entry") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        lane.inflight.store(inside, order);
        light();
        Self {
            slot,
            lane,
            level,
            inside,
        }
    }

    #[inline(always)]
    fn leave(self) {
        let order = if negative!("relaxed_exit") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.lane.inflight.store(self.inside.wrapping_add(1), order);
        compiler_fence(Ordering::SeqCst);
        self.slot.level.set(self.level);
    }
}
