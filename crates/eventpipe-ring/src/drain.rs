//! The drain: collects what was written, thread by thread, tells losses where they happened, and frees blocks.
//!
//! A round takes a cut *T* a microsecond ago, passes the heavy barrier, and looks at every slot. A section that began later can only hold a
//! younger event (S4); one that is still running is waited for a few microseconds, and if it stays (preempted), *T* is lowered to what its
//! thread had reached. After 20 ms of that the others' events go on, no longer marked sorted, and the boundary waits for the straggler.
//!
//! Invariants:
//! * D1: one `Drain` at a time (`Ring::draining`); it alone uses `DrainNotes`, the lists, and the drain's notes in slots and headers.
//! * D2: a block is on the list at most once (`LISTED`). `SEALED`: it came from the full stack or was taken back and its writer has gone, so
//!   `committed` is final and the block is the drain's to free. `LIMBO`: taken back, but a section that began before may still add one record.
//! * D3: blocks of a lane are read in the order of their ordinals, and none is passed over: a block that a straggler is about to push is
//!   announced by `switching`.

use crate::arena::Block;
use crate::layout::{self, Entry, bits};
use crate::record::{LossReason, Sink, ThreadInfo};
use crate::ring::Ring;
use crate::slot::{Lane, Slot};
use crate::sync::{Ordering, heavy, margin_ticks, negative, now, relax};
use core::cmp::Ordering as Compared;
use eventpipe_os::order::heap_sort;

const LISTED: u32 = 1;
const SEALED: u32 = 2;
const LIMBO: u32 = 4;

/// In `Slot::scan_flags`: the thread is stuck between two blocks, give nothing of it in this round.
const SKIP: u32 = 1;

/// A place on the list that is not needed any more.
const GONE: u32 = u32::MAX;

/// How long a section that is still running is waited for within a round, and after how long the others go on without it.
const LOOK_AGAIN_US: u64 = 5;
const STUCK_US: u64 = 20_000;

/// What a round did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Round {
    /// Everything with ticks up to this has been given. Never goes back.
    pub boundary_ticks: u64,
    /// Records given in this round.
    pub records: u64,
    /// Losses given in this round.
    pub lost: u64,
    /// Whether the runs of this round were marked sorted; `false` while a thread is stuck in the middle of an event for more than 20 ms. Then
    /// `boundary_ticks` stays behind.
    pub all_sorted: bool,
    /// Nothing is left that the next round would give (no record younger than the cut, no event in the making, no loss untold).
    pub idle: bool,
}

/// The right to drain a ring; there is one at a time.
#[derive(Debug)]
pub struct Drain<'a> {
    ring: &'a Ring,
}

/// What the look at the slots found.
struct Scan {
    /// Give what is not younger.
    target: u64,
    /// How far stuck threads let the boundary go.
    hold: u64,
    sorted: bool,
    in_flight: bool,
    /// Whether a slot has an ended thread that was told of, or untold losses.
    leftovers: bool,
}

impl Ring {
    /// The right to drain; `None` while somebody has it. Dropping it gives it back; what it knew stays in the ring.
    pub fn drain(&self) -> Option<Drain<'_>> {
        self.draining
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Drain { ring: self })
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.ring.wake.idle.store(0, Ordering::Relaxed);
        self.ring.draining.store(0, Ordering::Release);
    }
}

impl Drain<'_> {
    /// Gives everything that was written up to about a microsecond ago to `sink`; see [`Sink`] for the order. Blocks are freed as they
    /// are read, so writers go on meanwhile; what they write is left for the next round.
    pub fn round<S: Sink + ?Sized>(&mut self, sink: &mut S) -> Round {
        let ring = self.ring;
        ring.wake.idle.store(0, Ordering::Relaxed);
        let start = now();
        self.take_debts();
        heavy();
        let scan = self.scan(start);
        self.take_full();

        let mut round = Round {
            all_sorted: scan.sorted,
            ..Round::default()
        };
        let (list, runs) = self.lists();
        // SAFETY: D1; `&mut self` is held for as long as the list is used, and nothing is put on it meanwhile.
        let list = unsafe { &mut *list };
        // SAFETY: D1; the other half of the memory.
        let runs = unsafe { &mut *runs };
        let count = (ring.notes.pending.get() as usize).min(list.len());
        let list = list.get_mut(..count).unwrap_or_default();
        heap_sort(list, |a, b| self.compare(*a, *b).is_lt());
        let runs = self.find_runs(list, runs);
        let first = |run: &u32| self.first_tick(list.get(*run as usize..).unwrap_or_default());
        heap_sort(runs, |a, b| first(a) < first(b));
        for run in runs {
            let list = list.get_mut(*run as usize..).unwrap_or_default();
            let length = self.run_length(list);
            self.give_run(
                list.get_mut(..length).unwrap_or_default(),
                &scan,
                sink,
                &mut round,
            );
        }
        let left = self.compact(list);
        ring.notes.pending.set(left as u32);
        let list = list.get(..left).unwrap_or_default();
        let untold = self.give_leftovers(list, &scan, sink, &mut round);
        let indebted = self.settle_debts(list, sink, &mut round);
        if !cfg!(loom) {
            self.give_orphans(u64::MAX, sink, &mut round.lost);
        }

        let target = scan.target.max(ring.notes.target.get());
        ring.notes.target.set(target);
        let boundary = ring.notes.boundary.get().max(target.min(scan.hold));
        ring.notes.boundary.set(boundary);
        sink.boundary(boundary);
        round.boundary_ticks = boundary;
        if cfg!(loom) {
            // What follows is policy, and would double the work of the models.
            return round;
        }
        round.idle = !(scan.in_flight || untold || indebted || self.anything_open(list));
        if ring.arena.free_weight() < ring.arena.total_weight() / 4 {
            self.take_back_idle();
        }
        round
    }

    /// Tells `sink` the losses of the given sessions (a mask) that no record has told yet, of every thread; how many. For the end of a session:
    /// bits cleared, [`Ring::quiesce`], rounds up to a boundary after that, then this. After it the bits can be used again: nothing of the
    /// old session is told to the new one.
    pub fn collect_lost<S: Sink + ?Sized>(&mut self, sessions: u64, sink: &mut S) -> u64 {
        let mut lost = 0;
        for index in 0..self.ring.slots.count() {
            let Some(slot) = self.ring.slots.try_slot(index) else {
                continue;
            };
            if slot.ever_lost.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // A slot with untold losses has a thread, or had one and is in debt.
            let uid = match slot.uid.load(Ordering::Acquire) {
                0 => slot.debtor.load(Ordering::Acquire),
                uid => uid,
            };
            let thread = ThreadInfo {
                uid,
                os_thread_id: slot.os_thread_id.load(Ordering::Relaxed),
            };
            let given = self.give_losses(index, thread, sessions, sink, |session, reason| {
                self.ring.slots.losses(index).total(session, reason)
            });
            lost += given;
        }
        if !cfg!(loom) {
            self.give_orphans(sessions, sink, &mut lost);
        }
        lost
    }

    /// Takes the open blocks from the threads that wrote nothing between the two rounds before, so that their next event takes a new one (and wakes
    /// a sleeping drain). Their records come with the next round.
    pub fn take_back_idle(&mut self) {
        let ring = self.ring;
        let (list, _) = self.lists();
        // SAFETY: D1.
        let list = unsafe { &mut *list };
        let first = ring.notes.pending.get() as usize;
        let mut count = first;
        for lane in ring.slots.all().flat_map(|slot| &slot.lanes) {
            if (lane.quiet.get() == 0 && !cfg!(loom)) || lane.block.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // (Only a matter of taste: a model takes the blocks of busy threads, too.) The owner swaps too: exactly one of both
            // ends up with the block (I1).
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
                // Whatever enters from here on finds the lane empty (S4), and whatever was written before is visible (S2).
                header.drain_flags.set(LISTED | SEALED);
            }
        }
    }

    /// To be called before a long sleep. `true`: nothing is pending anywhere and no thread holds a block; the next event, loss or indebted thread end
    /// sets the wake signal (once; until the next round). `false`: not yet; the blocks of idle threads have been taken back, so call
    /// [`round`](Self::round) some milliseconds later and try again.
    pub fn prepare_idle(&mut self) -> bool {
        let ring = self.ring;
        self.take_back_idle();
        ring.wake.idle.store(1, Ordering::Relaxed);
        heavy();
        let busy = ring.notes.pending.get() != 0
            || !ring.arena.stacks().full.is_empty()
            || !ring.debts.is_empty()
            || ring.notes.debts.get() != 0
            || ring.slots.all().any(|slot| {
                let told = slot.told_uid.get();
                slot.lanes.iter().any(|lane| {
                    lane.inflight.load(Ordering::Acquire) & 1 == 1
                        || lane.block.load(Ordering::Acquire) != 0
                }) || (told != 0 && told != slot.uid.load(Ordering::Acquire))
                    || self.has_untold(slot)
            });
        if busy && !negative!("idle_without_look") {
            ring.wake.idle.store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    // ---- collecting

    fn lists(&self) -> (*mut [u32], *mut [u32]) {
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
    fn enlist(&self, index: u32, flags: u32) {
        let ring = self.ring;
        let header = ring.arena.header(index);
        if header.drain_flags.get() & LISTED == 0 {
            let (list, _) = self.lists();
            let count = ring.notes.pending.get();
            // SAFETY: D1, and no other reference into the list is in use while blocks are collected.
            if let Some(place) = unsafe { &mut *list }.get_mut(count as usize) {
                *place = index;
                ring.notes.pending.set(count + 1);
            }
        }
        header
            .drain_flags
            .set(header.drain_flags.get() & !LIMBO | LISTED | flags);
    }

    fn take_debts(&mut self) {
        let ring = self.ring;
        for index in ring.debts.take_all(&ring.slots) {
            ring.slots.slot(index).next_debt.set(ring.notes.debts.get());
            ring.notes.debts.set(index + 1);
        }
    }

    fn take_full(&mut self) {
        for index in self.ring.arena.stacks().full.take_all(&self.ring.arena) {
            self.enlist(index, SEALED);
        }
    }

    fn lane_of(&self, index: u32) -> &Lane {
        let header = self.ring.arena.header(index);
        &self.ring.slots.slot(header.slot()).lanes[header.lane()]
    }

    fn scan(&mut self, start: u64) -> Scan {
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

    /// Seals the blocks that were taken back from a section that has ended since. After the look at the lanes, so that a section that
    /// was waited for there counts as ended here: it may have gone on in another block.
    fn leave_limbo(&mut self) {
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

    /// Lists the lane's open block, and lowers the target when a section that may hold an older event does not end.
    ///
    /// Two things can hide records that are old enough: a section that was running at the barrier, until it has ended; and
    /// a block that is being changed, as the old one may be on no stack yet. Both are over in no time, or their thread is preempted.
    fn scan_lane(
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
            // In this order: what that section did (if it has ended), then the block, then whether its predecessor is on its way.
            let block = lane.block.load(Ordering::Acquire);
            let switching = lane.switching.load(Ordering::Acquire) != 0;
            if ended && !switching {
                break (inflight, block, None);
            }
            let reached = lane.last_tick.load(Ordering::Acquire);
            // Still the same section at the end: all of the above was read while it ran. Else look again, now it has ended.
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
        // The event in the making is at least as young as the thread's last one (`reached`), and younger than what earlier
        // rounds gave, as they would have seen its section.
        if let Some(bound) = hidden {
            scan.in_flight = true;
            if lane.stuck_at.get() != inflight {
                lane.stuck_at.set(inflight);
                lane.stuck_since.set(start);
            }
            let late =
                start.saturating_sub(lane.stuck_since.get()) > margin.saturating_mul(STUCK_US);
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
        lane.quiet
            .set(u32::from(inflight & 1 == 0 && inflight == lane.seen.get()));
        lane.seen.set(inflight);
        if let Some(index) = block.checked_sub(1) {
            let header = self.ring.arena.header(index);
            if header.committed.load(Ordering::Acquire) > header.consumed.get() {
                self.enlist(index, 0);
            }
        }
    }

    // ---- ordering

    fn compare(&self, a: u32, b: u32) -> Compared {
        let key = |index| {
            let header = self.ring.arena.header(index);
            (header.thread_uid.get(), header.lane(), header.ordinal.get())
        };
        key(a).cmp(&key(b))
    }

    fn uid_of(&self, index: u32) -> u64 {
        self.ring.arena.header(index).thread_uid.get()
    }

    /// How many blocks at the front belong to the same thread (those of the threads behind may have gone).
    fn run_length(&self, list: &[u32]) -> usize {
        let Some(first) = list.first() else { return 0 };
        let uid = self.uid_of(*first);
        list.iter()
            .take_while(|index| **index != GONE && self.uid_of(**index) == uid)
            .count()
    }

    fn find_runs<'r>(&self, list: &[u32], runs: &'r mut [u32]) -> &'r mut [u32] {
        let (mut at, mut count) = (0, 0);
        while let Some(rest) = list.get(at..).filter(|rest| !rest.is_empty()) {
            if let Some(place) = runs.get_mut(count) {
                *place = at as u32;
                count += 1;
            }
            at += self.run_length(rest);
        }
        runs.get_mut(..count).unwrap_or_default()
    }

    /// The tick of the oldest record of the thread whose blocks are at the front of the list.
    fn first_tick(&self, list: &[u32]) -> (u64, u64) {
        let length = self.run_length(list);
        let list = list.get(..length).unwrap_or_default();
        let mut oldest = u64::MAX;
        for lane in 0..2 {
            let mut blocks = list.iter().map(|index| self.ring.arena.block(*index));
            if let Some((_, _, ticks)) = blocks
                .by_ref()
                .filter(|block| block.header.lane() == lane)
                .find_map(|block| peek(&block))
            {
                oldest = oldest.min(ticks);
            }
        }
        (oldest, list.first().map_or(0, |index| self.uid_of(*index)))
    }

    fn has_blocks(&self, list: &[u32], uid: u64) -> bool {
        list.binary_search_by_key(&uid, |index| self.uid_of(*index))
            .is_ok()
    }

    // ---- giving

    /// Gives what one thread has up to the target. `list`: its blocks, those of lane 0 first, in order.
    fn give_run<S: Sink + ?Sized>(
        &self,
        list: &mut [u32],
        scan: &Scan,
        sink: &mut S,
        round: &mut Round,
    ) {
        let ring = self.ring;
        let Some(first) = list.first().map(|index| ring.arena.header(*index)) else {
            return;
        };
        let slot_index = first.slot();
        let slot = ring.slots.slot(slot_index);
        if slot.scan_flags.get() & SKIP != 0 {
            return;
        }
        let thread = ThreadInfo {
            uid: first.thread_uid.get(),
            os_thread_id: first.os_thread_id.get(),
        };
        let lane_of = |index: &u32| ring.arena.header(*index).lane();
        let split = list
            .iter()
            .position(|index| lane_of(index) == 1)
            .unwrap_or(list.len());
        let (own, nested) = list.split_at_mut(split);
        let mut lanes = [
            Cursor { list: own, at: 0 },
            Cursor {
                list: nested,
                at: 0,
            },
        ];
        let mut told = false;
        let mut sorted = scan.sorted;
        loop {
            let [own, nested] = &mut lanes;
            let mut next = own.peek(self);
            if !nested.list.is_empty() {
                // What interrupted the thread: merged by time.
                let other = nested.peek(self);
                if next
                    .as_ref()
                    .is_none_or(|next| other.as_ref().is_some_and(|other| other.ticks < next.ticks))
                {
                    next = other;
                }
            }
            let Some(next) = next.filter(|next| next.ticks <= scan.target) else {
                break;
            };
            if !told {
                told = true;
                self.tell_predecessor(slot, thread.uid, sink);
                sink.thread(thread);
            }
            let look = |bytes: &[u8]| match layout::decode(bytes) {
                Some(Entry::Record(record)) => {
                    sink.record(&record, sorted);
                    sorted = false;
                    round.records += 1;
                }
                Some(Entry::Lost { sessions, totals }) => {
                    totals.for_each(sessions, |session, reason, total| {
                        let new = ring.slots.losses(slot_index).tell(session, reason, total);
                        if new != 0 {
                            sink.lost(session, new, reason);
                            round.lost += new;
                        }
                    });
                }
                None => {}
            };
            // SAFETY: below `committed` (I3), which `peek` loaded.
            unsafe { next.block.data.read(next.at, next.size, look) };
            next.block
                .header
                .consumed
                .set(next.at + layout::aligned(next.size));
        }
        let [own, nested] = &mut lanes;
        let left = own.free_read(self) | nested.free_read(self);
        // With the last block of a thread that has gone (D: its uid left the slot before we looked at it, so every block was on the list).
        if !left
            && slot.scanned_uid.get() != thread.uid
            && slot.debtor.load(Ordering::Acquire) != thread.uid
            && slot.told_uid.get() == thread.uid
        {
            slot.told_uid.set(0);
            sink.thread_ended(thread.uid);
        }
    }

    /// A slot's next thread is about to be told of: the one before has ended, and everything of it was given, as it is older.
    fn tell_predecessor<S: Sink + ?Sized>(&self, slot: &Slot, uid: u64, sink: &mut S) {
        let before = slot.told_uid.get();
        if before != 0 && before != uid {
            sink.thread_ended(before);
        }
        slot.told_uid.set(uid);
    }

    /// Removes freed and open blocks from the list; how many stay.
    fn compact(&self, list: &mut [u32]) -> usize {
        let mut left = 0;
        for from in 0..list.len() {
            let Some(index) = list.get(from).copied().filter(|index| *index != GONE) else {
                continue;
            };
            let header = self.ring.arena.header(index);
            if header.drain_flags.get() & (SEALED | LIMBO) == 0 {
                header.drain_flags.set(0);
            } else if let Some(place) = list.get_mut(left) {
                *place = index;
                left += 1;
            }
        }
        left
    }

    /// Tells of losses since `told`; how many. `total` may come from a copy.
    fn give_losses<S: Sink + ?Sized>(
        &self,
        slot_index: u32,
        thread: ThreadInfo,
        sessions: u64,
        sink: &mut S,
        total: impl Fn(u32, LossReason) -> u64,
    ) -> u64 {
        let mut lost = 0;
        for session in bits(sessions) {
            for reason in LossReason::ALL {
                let new = self.ring.slots.losses(slot_index).tell(
                    session,
                    reason,
                    total(session, reason),
                );
                if new != 0 {
                    if lost == 0 {
                        // Its end will be told when its debt is settled; every thread that lost something leaves one.
                        self.ring.slots.slot(slot_index).lost_uid.set(thread.uid);
                        sink.thread(thread);
                    }
                    lost += new;
                    sink.lost(session, new, reason);
                }
            }
        }
        lost
    }

    fn give_orphans<S: Sink + ?Sized>(&self, sessions: u64, sink: &mut S, lost: &mut u64) {
        let nobody = ThreadInfo {
            uid: 0,
            os_thread_id: 0,
        };
        let mut first = true;
        for session in bits(sessions) {
            let new = self.ring.orphans.tell(
                session,
                LossReason::BufferFull,
                self.ring.orphans.total(session, LossReason::BufferFull),
            );
            if new != 0 {
                if core::mem::take(&mut first) {
                    sink.thread(nobody);
                }
                sink.lost(session, new, LossReason::BufferFull);
                *lost += new;
            }
        }
    }

    /// After the runs: threads that have ended quietly, and losses of threads that wrote nothing afterwards. `list`: the blocks that wait.
    /// Whether losses remain untold.
    fn give_leftovers<S: Sink + ?Sized>(
        &self,
        list: &[u32],
        scan: &Scan,
        sink: &mut S,
        round: &mut Round,
    ) -> bool {
        let mut untold = false;
        if !scan.leftovers {
            return untold;
        }
        for index in 0..self.ring.slots.count() {
            let Some(slot) = self.ring.slots.try_slot(index) else {
                continue;
            };
            let (told, scanned) = (slot.told_uid.get(), slot.scanned_uid.get());
            if told != 0
                && told != scanned
                && told != slot.debtor.load(Ordering::Acquire)
                && !self.has_blocks(list, told)
            {
                slot.told_uid.set(0);
                sink.thread_ended(told);
            }
            if scanned != 0
                && self.has_untold(slot)
                && !self.give_owed(index, slot, list, sink, round)
            {
                untold = true;
            }
        }
        untold
    }

    /// Whether the slot's thread has lost something that was not told (by its own account).
    fn has_untold(&self, slot: &Slot) -> bool {
        let losses = self.ring.slots.losses(slot.index.get());
        bits(slot.owed.load(Ordering::Relaxed)).any(|session| losses.has_untold(session))
    }

    /// Tells the losses of a thread, if it did nothing since the look at the slots and all its records have been given: then they come
    /// after its last record.
    fn give_owed<S: Sink + ?Sized>(
        &self,
        index: u32,
        slot: &Slot,
        list: &[u32],
        sink: &mut S,
        round: &mut Round,
    ) -> bool {
        let uid = slot.scanned_uid.get();
        let still = || {
            slot.uid.load(Ordering::Acquire) == uid
                && slot.lanes.iter().all(|lane| {
                    let seen = lane.seen.get();
                    seen & 1 == 0 && lane.inflight.load(Ordering::Acquire) == seen
                })
        };
        let all_given = || {
            slot.lanes.iter().all(
                |lane| match lane.block.load(Ordering::Acquire).checked_sub(1) {
                    None => true,
                    Some(block) => {
                        let header = self.ring.arena.header(block);
                        header.committed.load(Ordering::Acquire) == header.consumed.get()
                    }
                },
            )
        };
        if !still() || self.has_blocks(list, uid) || !all_given() {
            return false;
        }
        let sessions = slot.owed.load(Ordering::Acquire);
        let losses = self.ring.slots.losses(index);
        // A copy first: it is good if the thread has not moved meanwhile. (Each total acquires, so a total of a later section makes `still`
        // see that section.)
        let mut copy = [[0u64; LossReason::ALL.len()]; crate::SESSIONS as usize];
        for session in bits(sessions) {
            for reason in LossReason::ALL {
                if let Some(place) = copy
                    .get_mut(session as usize)
                    .and_then(|row| row.get_mut(reason as usize))
                {
                    *place = losses.total(session, reason);
                }
            }
        }
        if !still() && !negative!("unchecked_losses") {
            return false;
        }
        let thread = ThreadInfo {
            uid,
            os_thread_id: slot.os_thread_id.load(Ordering::Relaxed),
        };
        let given = self.give_losses(index, thread, sessions, sink, |session, reason| {
            copy.get(session as usize)
                .and_then(|row| row.get(reason as usize))
                .copied()
                .unwrap_or(0)
        });
        round.lost += given;
        true
    }

    /// Tells the rest of what ended threads lost, once all their blocks are read, and frees their slots. Whether some remain.
    fn settle_debts<S: Sink + ?Sized>(
        &self,
        list: &[u32],
        sink: &mut S,
        round: &mut Round,
    ) -> bool {
        let ring = self.ring;
        let mut next = ring.notes.debts.get();
        ring.notes.debts.set(0);
        while let Some(index) = next.checked_sub(1) {
            let slot = ring.slots.slot(index);
            next = slot.next_debt.get();
            let uid = slot.debtor.load(Ordering::Acquire);
            if self.has_blocks(list, uid) {
                slot.next_debt.set(ring.notes.debts.get());
                ring.notes.debts.set(index + 1);
                continue;
            }
            let thread = ThreadInfo {
                uid,
                os_thread_id: slot.os_thread_id.load(Ordering::Relaxed),
            };
            let losses = ring.slots.losses(index);
            let all = if crate::SESSIONS == 64 {
                u64::MAX
            } else {
                (1 << crate::SESSIONS) - 1
            };
            let given = self.give_losses(index, thread, all, sink, |session, reason| {
                losses.total(session, reason)
            });
            round.lost += given;
            let told = slot.told_uid.get() == uid;
            if told {
                slot.told_uid.set(0);
            }
            if told || slot.lost_uid.get() == uid {
                sink.thread_ended(uid);
            }
            slot.owed.store(0, Ordering::Relaxed);
            slot.has_lost.store(0, Ordering::Relaxed);
            slot.debtor.store(0, Ordering::Relaxed);
            ring.free_slots.push(&ring.slots, index, 1);
        }
        ring.notes.debts.get() != 0
    }

    /// Whether records wait: too young for this round, or written meanwhile.
    fn anything_open(&self, list: &[u32]) -> bool {
        let ring = self.ring;
        list.iter().any(|index| {
            let header = ring.arena.header(*index);
            header.committed.load(Ordering::Acquire) > header.consumed.get()
        }) || !ring.arena.stacks().full.is_empty()
            || ring.slots.all().flat_map(|slot| &slot.lanes).any(|lane| {
                lane.block
                    .load(Ordering::Acquire)
                    .checked_sub(1)
                    .is_some_and(|index| {
                        let header = ring.arena.header(index);
                        header.committed.load(Ordering::Acquire) > header.consumed.get()
                    })
            })
    }
}

/// What comes next in a lane.
struct Next<'a> {
    block: Block<'a>,
    at: u32,
    size: u32,
    ticks: u64,
}

/// Where a lane's blocks have been read to.
struct Cursor<'l> {
    list: &'l mut [u32],
    at: usize,
}

impl Cursor<'_> {
    /// The lane's next record or lost record; frees sealed blocks on the way. `None`: nothing more for now.
    fn peek<'a>(&mut self, drain: &Drain<'a>) -> Option<Next<'a>> {
        loop {
            let place = self.list.get_mut(self.at)?;
            let block = drain.ring.arena.block(*place);
            if let Some((at, size, ticks)) = peek(&block) {
                return Some(Next {
                    block,
                    at,
                    size,
                    ticks,
                });
            }
            if block.header.drain_flags.get() & SEALED == 0 {
                // Open, or in limbo: its writer may add to it, so the blocks after it wait (D3).
                return None;
            }
            let index = core::mem::replace(place, GONE);
            self.at += 1;
            block.header.drain_flags.set(0);
            drain.ring.arena.free(index);
        }
    }

    /// Frees the sealed blocks that have been read; whether some are left that are sealed or in limbo.
    fn free_read(&mut self, drain: &Drain<'_>) -> bool {
        let _ = self.peek(drain);
        self.list
            .get(self.at..)
            .unwrap_or_default()
            .iter()
            .any(|index| drain.ring.arena.header(*index).drain_flags.get() & (SEALED | LIMBO) != 0)
    }
}

/// Place, size and tick of the next unread record of a block.
fn peek(block: &Block<'_>) -> Option<(u32, u32, u64)> {
    let at = block.header.consumed.get();
    if at >= block.committed() {
        return None;
    }
    // SAFETY: below `committed` (I3): every record has at least its three words.
    let words = unsafe {
        block.data.read(at, 16, |bytes| {
            let mut words = bytes
                .chunks_exact(8)
                .map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
            (words.next(), words.next())
        })
    };
    let (Some(first), Some(ticks)) = words else {
        return None;
    };
    Some((at, layout::size_in(first), ticks))
}
