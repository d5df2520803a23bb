//! The second half of a round: records and losses to the sink, thread by thread, and blocks to
//! whoever needs them.

use super::{Drain, GONE, LIMBO, Round, SEALED, SKIP, Scan};
use crate::arena::Block;
use crate::layout::{Entry, HEADER, Head, bits};
use crate::record::{LossReason, Records, Sink, ThreadInfo};
use crate::slot::Slot;
use crate::sync::{Ordering, negative};
use core::cmp::Ordering as Compared;

impl Drain<'_> {
    pub(super) fn compare(&self, a: u32, b: u32) -> Compared {
        let key = |index| {
            let header = self.ring.arena.header(index);
            (header.thread_uid.get(), header.lane(), header.ordinal.get())
        };
        key(a).cmp(&key(b))
    }

    pub(super) fn uid_of(&self, index: u32) -> u64 {
        self.ring.arena.header(index).thread_uid.get()
    }

    /// How many blocks at the front belong to the same thread (those of the threads behind may have
    /// gone).
    pub(super) fn run_length(&self, list: &[u32]) -> usize {
        let Some(first) = list.first() else { return 0 };
        let uid = self.uid_of(*first);
        list.iter()
            .take_while(|index| **index != GONE && self.uid_of(**index) == uid)
            .count()
    }

    pub(super) fn find_runs<'r>(&self, list: &[u32], runs: &'r mut [u32]) -> &'r mut [u32] {
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
    pub(super) fn first_tick(&self, list: &[u32]) -> (u64, u64) {
        let length = self.run_length(list);
        let list = list.get(..length).unwrap_or_default();
        let mut oldest = u64::MAX;
        for lane in 0..2 {
            let mut blocks = list.iter().map(|index| self.ring.arena.block(*index));
            if let Some(ticks) = blocks
                .by_ref()
                .filter(|block| block.header.lane() == lane)
                .find_map(|block| peek(&block))
            {
                oldest = oldest.min(ticks);
            }
        }
        (oldest, list.first().map_or(0, |index| self.uid_of(*index)))
    }

    pub(super) fn has_blocks(&self, list: &[u32], uid: u64) -> bool {
        list.binary_search_by_key(&uid, |index| self.uid_of(*index))
            .is_ok()
    }

    /// Gives what one thread has up to the target. `list`: its blocks, those of lane 0 first, in
    /// order.
    pub(super) fn give_run<S: Sink + ?Sized>(
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
        // What stands at the front of `bytes` and is old enough; how many bytes that is.
        let mut give = |bytes: &[u8], until: u64| {
            let mut records = Records::new(bytes, until);
            while let Some(entry) = records.clone().next_entry() {
                if !told {
                    told = true;
                    self.tell_predecessor(slot, thread.uid, sink);
                    sink.thread(thread);
                }
                if let Entry::Lost { sessions, totals } = entry {
                    totals.for_each(sessions, |session, reason, total| {
                        let new = ring.slots.losses(slot_index).tell(session, reason, total);
                        if new != 0 {
                            sink.lost(session, new, reason);
                            round.lost += new;
                        }
                    });
                    _ = records.next_entry();
                } else {
                    sink.records(&mut records, sorted);
                    sorted = false;
                    records.by_ref().for_each(drop);
                }
            }
            round.records += records.given();
            bytes.len() - records.left()
        };
        let [own, nested] = &mut lanes;
        loop {
            // What interrupted the thread is merged by time: the one lane up to where the other goes on.
            let (first, other) = if nested.list.is_empty() {
                (None, None)
            } else {
                (own.peek(self), nested.peek(self))
            };
            let (lane, until) = match (first, other) {
                (Some(own_ticks), Some(ticks)) if ticks < own_ticks => {
                    (&mut *nested, own_ticks - 1)
                }
                (Some(_), Some(ticks)) => (&mut *own, ticks),
                (None, Some(_)) => (&mut *nested, u64::MAX),
                (_, None) => (&mut *own, u64::MAX),
            };
            // Nothing is left that is old enough once the only lane that has something has been read.
            if !lane.give(self, until.min(scan.target), &mut give) || until == u64::MAX {
                break;
            }
        }
        let left = own.free_read(self) | nested.free_read(self);
        // With the last block of a thread that has gone (D: its uid left the slot before we looked
        // at it, so every block was on the list).
        if !left
            && slot.scanned_uid.get() != thread.uid
            && slot.debtor.load(Ordering::Acquire) != thread.uid
            && slot.told_uid.get() == thread.uid
        {
            slot.told_uid.set(0);
            sink.thread_ended(thread.uid);
        }
    }

    /// A slot's next thread is about to be told of: the one before has ended, and everything of it
    /// was given, as it is older.
    pub(super) fn tell_predecessor<S: Sink + ?Sized>(&self, slot: &Slot, uid: u64, sink: &mut S) {
        let before = slot.told_uid.get();
        if before != 0 && before != uid {
            sink.thread_ended(before);
        }
        slot.told_uid.set(uid);
    }

    /// Removes freed and open blocks from the list; how many stay.
    pub(super) fn compact(&self, list: &mut [u32]) -> usize {
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
    pub(super) fn give_losses<S: Sink + ?Sized>(
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
                        // Its end will be told when its debt is settled; every thread that lost
                        // something leaves one.
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

    pub(super) fn give_orphans<S: Sink + ?Sized>(
        &self,
        sessions: u64,
        sink: &mut S,
        lost: &mut u64,
    ) {
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

    /// After the runs: threads that have ended quietly, and losses of threads that wrote nothing
    /// afterwards. `list`: the blocks that wait. Whether losses remain untold.
    pub(super) fn give_leftovers<S: Sink + ?Sized>(
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
    pub(super) fn has_untold(&self, slot: &Slot) -> bool {
        let losses = self.ring.slots.losses(slot.index.get());
        bits(slot.owed.load(Ordering::Relaxed)).any(|session| losses.has_untold(session))
    }

    /// Tells the losses of a thread, if it did nothing since the look at the slots and all its
    /// records have been given: then they come after its last record.
    pub(super) fn give_owed<S: Sink + ?Sized>(
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
                    let seen = lane.notes.seen.get();
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
        // A copy first: it is good if the thread has not moved meanwhile. (Each total acquires, so
        // a total of a later section makes `still` see that section.)
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

    /// Tells the rest of what ended threads lost, once all their blocks are read, and frees their
    /// slots. Whether some remain.
    pub(super) fn settle_debts<S: Sink + ?Sized>(
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
    pub(super) fn anything_open(&self, list: &[u32]) -> bool {
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

/// Where a lane's blocks have been read to.
struct Cursor<'l> {
    list: &'l mut [u32],
    at: usize,
}

impl Cursor<'_> {
    /// The tick of the lane's next record or lost record; frees sealed blocks on the way. `None`:
    /// nothing more for now.
    fn peek(&mut self, drain: &Drain<'_>) -> Option<u64> {
        loop {
            let place = self.list.get_mut(self.at)?;
            let block = drain.ring.arena.block(*place);
            if let Some(ticks) = peek(&block) {
                return Some(ticks);
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

    /// Gives what the lane's blocks hold that is not younger than `until`; frees sealed blocks on
    /// the way. Whether there was anything.
    fn give(
        &mut self,
        drain: &Drain<'_>,
        until: u64,
        give: &mut impl FnMut(&[u8], u64) -> usize,
    ) -> bool {
        let mut any = false;
        while let Some(place) = self.list.get(self.at) {
            let block = drain.ring.arena.block(*place);
            let at = block.header.consumed.get();
            let length = block.committed().saturating_sub(at);
            if length != 0 {
                // SAFETY: below `committed` (I3).
                let read = unsafe { block.data.read(at, length, |bytes| give(bytes, until)) };
                block.header.consumed.set(at + read as u32);
                any |= read != 0;
                if read != length as usize {
                    // The rest is too young.
                    break;
                }
            }
            let before = self.at;
            if self.peek(drain).is_none() || self.at == before {
                // The end of what is there, or the open block, in which more stands by now.
                break;
            }
        }
        any
    }

    /// Frees the sealed blocks that have been read; whether some are left that are sealed or in
    /// limbo.
    fn free_read(&mut self, drain: &Drain<'_>) -> bool {
        let _ = self.peek(drain);
        self.list
            .get(self.at..)
            .unwrap_or_default()
            .iter()
            .any(|index| drain.ring.arena.header(*index).drain_flags.get() & (SEALED | LIMBO) != 0)
    }
}

/// The tick of the next unread record of a block.
fn peek(block: &Block<'_>) -> Option<u64> {
    let at = block.header.consumed.get();
    if at >= block.committed() {
        return None;
    }
    // SAFETY: below `committed` (I3): every record has at least its three words.
    let head = unsafe { block.data.read(at, HEADER as u32, Head::of) }?;
    Some(head.ticks)
}
