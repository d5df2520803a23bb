//! The drain: collects what was written, thread by thread, tells losses where they happened, and
//! frees blocks.
//!
//! A round takes a cut *T* a microsecond ago, passes the heavy barrier, and looks at every slot. A
//! section that began later can only hold a younger event (S4); one that is still running is waited
//! for a few microseconds, and if it stays (preempted), *T* is lowered to what its thread had
//! reached. After 20 ms of that the others' events go on, no longer marked sorted, and the boundary
//! waits for the straggler.
//!
//! Invariants:
//! * D1: one `Drain` at a time (`Ring::draining`); it alone uses `DrainNotes`, the lists, and the
//!   drain's notes in slots and headers.
//! * D2: a block is on the list at most once (`LISTED`). `SEALED`: it came from the full stack or
//!   was taken back and its writer has gone, so `committed` is final and the block is the drain's
//!   to free. `LIMBO`: taken back, but a section that began before may still add one record.
//! * D3: blocks of a lane are read in the order of their ordinals, and none is passed over: a block
//!   that a straggler is about to push is announced by `switching`.

mod collect;
mod give;

use crate::record::{Sink, ThreadInfo};
use crate::ring::Ring;
use crate::room::CALM;
use crate::sync::{Ordering, heavy, negative, now};
use eventpipe_os::order::heap_sort;

const LISTED: u32 = 1;
const SEALED: u32 = 2;
const LIMBO: u32 = 4;

/// In `Slot::scan_flags`: the thread is stuck between two blocks, give nothing of it in this round.
const SKIP: u32 = 1;

/// A place on the list that is not needed any more.
const GONE: u32 = u32::MAX;

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
    /// Whether the runs of this round were marked sorted; `false` while a thread is stuck in the
    /// middle of an event for more than 20 ms. Then `boundary_ticks` stays behind.
    pub all_sorted: bool,
    /// Writers wait for room in the pool, and there is none yet: call again soon.
    pub starved: bool,
    /// Nothing is left that the next round would give (no record younger than the cut, no event in
    /// the making, no loss untold).
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
    /// The right to drain; `None` while somebody has it. Dropping it gives it back; what it knew
    /// stays in the ring.
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
    /// Gives everything that was written up to about a microsecond ago to `sink`; see [`Sink`] for
    /// the order. Blocks are freed as they are read, so writers go on meanwhile; what they write is
    /// left for the next round.
    pub fn round<S: Sink + ?Sized>(&mut self, sink: &mut S) -> Round {
        let ring = self.ring;
        ring.wake.idle.store(0, Ordering::Relaxed);
        let start = now();
        self.take_debts();
        heavy();
        let scan = self.scan(start);
        self.take_full();
        if !cfg!(loom)
            && ring.room.is_wanted()
            && ring.is_overloaded()
            && !ring.arena.is_nearly_empty()
        {
            // What is being read does not wait any more: writers fill the next blocks meanwhile.
            ring.room.tell();
        }

        let mut round = Round {
            all_sorted: scan.sorted,
            ..Round::default()
        };
        let (list, runs) = self.lists();
        // SAFETY: D1; `&mut self` is held for as long as the list is used, and nothing is put on it
        // meanwhile.
        let list = unsafe { &mut *list };
        // SAFETY: D1; the other half of the memory.
        let runs = unsafe { &mut *runs };
        let count = (ring.notes.pending.get() as usize).min(list.len());
        let list = list.get_mut(..count).unwrap_or_default();
        if !list.is_sorted_by(|a, b| self.compare(*a, *b).is_le()) {
            heap_sort(list, |a, b| self.compare(*a, *b).is_lt());
        }
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
            let free = ring.arena.free_weight();
            if !cfg!(loom) && ring.room.is_wanted() && free > ring.arena.total_weight() / 4 {
                // There is room for many already, before the round is over.
                ring.room.tell();
            }
        }
        let left = self.compact(list);
        ring.notes.pending.set(left as u32);
        let list = list.get(..left).unwrap_or_default();
        let untold = self.give_leftovers(list, &scan, sink, &mut round);
        let indebted = self.settle_debts(list, sink, &mut round);
        if !ring.arena.is_nearly_empty() {
            ring.room.tell();
        } else {
            round.starved = ring.room.is_wanted();
        }
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
        ring.room
            .end_round(ring.busy_ticks.load(Ordering::Relaxed) / CALM);
        round.idle = !(scan.in_flight || untold || indebted || self.anything_open(list));
        if ring.arena.free_weight() < ring.arena.total_weight() / 4 {
            self.take_back_idle();
        }
        round
    }

    /// Tells `sink` the losses of the given sessions (a mask) that no record has told yet, of every
    /// thread; how many. For the end of a session: bits cleared, [`Ring::quiesce`], rounds up to a
    /// boundary after that, then this. After it the bits can be used again: nothing of the old
    /// session is told to the new one.
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

    /// To be called before a long sleep. `true`: nothing is pending anywhere and no thread holds a
    /// block; the next event, loss or indebted thread end sets the wake signal (once; until the
    /// next round). `false`: not yet; the blocks of idle threads have been taken back, so call
    /// [`round`](Self::round) some milliseconds later and try again.
    pub fn prepare_idle(&mut self) -> bool {
        let ring = self.ring;
        self.take_back_idle();
        // Looked at before `idle` is set, too: a thread that loses event after event would find it set,
        // and end the pause that comes when this returns `false`. (A model has no pauses.)
        for asks in if cfg!(loom) { 1..2 } else { 0..2 } {
            ring.wake.idle.store(asks, Ordering::Relaxed);
            if asks != 0 {
                heavy();
            }
            if self.is_busy() && !negative!("idle_without_look") {
                ring.wake.idle.store(0, Ordering::Relaxed);
                return false;
            }
        }
        true
    }

    /// Whether there is something to give, or a thread has a block or is in the middle of an event.
    fn is_busy(&self) -> bool {
        let ring = self.ring;
        ring.notes.pending.get() != 0
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
            })
    }
}
