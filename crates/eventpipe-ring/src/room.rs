//! Waiting for room: sessions that would rather have writers wait than lose events (*block mode*).
//!
//! An event that such a session wants waits while the pool is nearly empty, or while the session's
//! output is full (*held*). Its writer leaves its section first, so nobody who waits for sections
//! ever waits for a waiting writer, and gives its open block to the drain. The last eighth of the
//! pool is left to events that no such session wants: they are lost when the pool is empty, and
//! should not be lost because somebody who could wait took it all.
//!
//! Once writers have had to wait, they are kept on a short rein for a while: no more waits for the
//! drain than a processor's cache holds, instead of the whole pool. Whoever is slower than its writers
//! is not made faster by a full pool, but reading from memory what could have been read from the cache
//! costs it a fifth of its time.
//!
//! Writers that lose events are on the same rein, but not at once: the pool is there to take a burst. Only
//! when it has been filled, and what comes behind the drain begins to grow too (`Ring::rein_in`), is it
//! a flood, of which a part is lost whatever is done, and more of it if all that is read is cold. The
//! rein is loose again some milliseconds after the last such loss: not sooner, as rounds are short then,
//! and a thread that only has no processor for a while would fill the whole pool when it is back.
//!
//! A thread that loses event after event is a thread that has a processor, and whoever could make room
//! for it may have none. So after some hundred losses it gives its turn to whoever else can run
//! (`sched_yield`): it does not wait, and goes on at once if there is nobody.
//!
//! A session that drops events and whose output is full is *held* too: an event that only such
//! sessions want is lost where it is written, as soon as it would take a block, instead of being
//! written, read and only then thrown away. So a stalled reader costs its writers a failed look, and
//! the others neither the drain's time nor the pool. A thread's first events are still written,
//! because a reader may count a thread's losses only from the first event that it has seen of it.
//!
//! Nobody waits who could keep the drain from making room: an event inside an event, a signal
//! handler (of whatever it interrupted), a thread that was told not to ([`Ring::never_wait`],
//! [`Ring::exempt`]). Their events take what there is, the last eighth too, or are lost and counted.
//!
//! Invariants:
//! * R1: who makes room (frees a block, lifts a hold, clears a mask) does that, then a full fence,
//!   then looks at `waiters`; if there are any it changes `generation`, then wakes. Who waits is
//!   counted in `waiters`, then a full fence, then reads `generation`, then tries, then sleeps while
//!   `generation` is what it was. So either the room is found by that try, or the sleeper is seen.
//! * R2: a waiter is in no section and holds no block.

use crate::record::EventKey;
use crate::ring::Ring;
use crate::slot::Slot;
use crate::sync::{
    AtomicU32, AtomicU64, Ordering, Sleepers, const_unless_loom, full_fence, negative, now,
};

/// So many rounds after the last loss for want of blocks it is a flood: one may have begun before it.
const SCARCE_ROUNDS: u32 = 2;

/// The rein is loose again after this part of the time in which a busy thread fills a block: 25 ms.
pub(crate) const CALM: u64 = 4;

/// A thread that has lost so many events for want of room gives way before the next one: that is some
/// microseconds of them, so the call costs each a nanosecond.
pub(crate) const LOST_IN_TURN: u32 = 512;

/// See the module.
#[derive(Debug)]
pub(crate) struct Room {
    /// Sessions in block mode, by bit.
    blocking: AtomicU64,
    /// Sessions whose outputs are full, in block mode or not.
    held: AtomicU64,
    /// The one thread that must not wait for now; 0: none.
    exempt: AtomicU64,
    generation: AtomicU32,
    waiters: AtomicU32,
    /// When somebody last began to wait.
    last_wait: AtomicU64,
    /// For how many rounds of the drain more events count as lost in a flood. (A hint, without order.)
    scarce: AtomicU32,
    /// 1: writers that lose events in a flood are on a short rein. (A hint too.)
    reined: AtomicU32,
    /// The end of the last round with such a loss.
    last_scarce: AtomicU64,
    sleepers: Sleepers,
}

impl Room {
    const_unless_loom! {
        pub(crate) fn new() -> Self {
            Self {
                blocking: AtomicU64::new(0),
                held: AtomicU64::new(0),
                exempt: AtomicU64::new(0),
                generation: AtomicU32::new(0),
                waiters: AtomicU32::new(0),
                last_wait: AtomicU64::new(0),
                scarce: AtomicU32::new(0),
                reined: AtomicU32::new(0),
                last_scarce: AtomicU64::new(0),
                sleepers: Sleepers::new(),
            }
        }
    }

    /// Whether an event for these sessions waits rather than be lost, if it can.
    pub(crate) fn is_blocking(&self, sessions: u64) -> bool {
        sessions & self.blocking.load(Ordering::Relaxed) != 0
    }

    /// Whether an event for these sessions waits for an output.
    pub(crate) fn is_held(&self, sessions: u64) -> bool {
        self.is_blocking(sessions & self.held.load(Ordering::Relaxed))
    }

    /// Whether all of these sessions drop events, and have no room for one.
    pub(crate) fn is_refused(&self, sessions: u64) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        // Nearly always zero.
        held != 0 && sessions & !(held & !self.blocking.load(Ordering::Relaxed)) == 0
    }

    /// Whether nobody has said since the last round that there is no block for an event.
    #[inline(always)]
    pub(crate) fn lacks_a_note(&self) -> bool {
        !cfg!(loom) && self.scarce.load(Ordering::Relaxed) != SCARCE_ROUNDS
    }

    /// There is no block for an event.
    pub(crate) fn note_scarcity(&self) {
        self.scarce.store(SCARCE_ROUNDS, Ordering::Relaxed);
    }

    /// Whether events were lost for want of blocks, just now.
    #[inline(always)]
    pub(crate) fn is_scarce(&self) -> bool {
        !cfg!(loom) && self.scarce.load(Ordering::Relaxed) != 0
    }

    /// Whether writers are on a short rein.
    #[inline(always)]
    pub(crate) fn is_reined(&self) -> bool {
        !cfg!(loom) && self.reined.load(Ordering::Relaxed) != 0
    }

    /// Whether an event may be lost for want of room: of events that were, all but the first after a
    /// quiet time found this. (A hint.)
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn is_tight(&self) -> bool {
        self.is_scarce() || self.is_reined() || self.held.load(Ordering::Relaxed) != 0
    }

    /// A round of the drain is over. The rein is loose when none within so many ticks has had such a loss.
    pub(crate) fn end_round(&self, within: u64) {
        let left = self.scarce.load(Ordering::Relaxed);
        if cfg!(loom) || left == 0 && !self.is_reined() {
            return;
        }
        let now = now();
        if left != 0 {
            self.scarce.store(left - 1, Ordering::Relaxed);
            self.last_scarce.store(now, Ordering::Relaxed);
        } else if now.saturating_sub(self.last_scarce.load(Ordering::Relaxed)) >= within {
            self.reined.store(0, Ordering::Relaxed);
        }
    }

    /// Whether anybody has begun to wait within so many ticks before `now`.
    pub(crate) fn was_wanted(&self, within: u64, now: u64) -> bool {
        within != 0 && now.saturating_sub(self.last_wait.load(Ordering::Relaxed)) < within
    }

    /// Whether anybody waits. (For decisions that may be late; R1 has its own look.)
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiters.load(Ordering::Relaxed) != 0
    }

    /// Room was made: has everybody who waits try again (R1).
    pub(crate) fn tell(&self) {
        if !negative!("no_room_fence") {
            full_fence();
        }
        if self.is_wanted() {
            self.generation.fetch_add(1, Ordering::AcqRel);
            self.sleepers.wake(&self.generation);
        }
    }

    /// Counts the caller among those who wait; the generation that it sees (R1).
    fn begin(&self) -> u32 {
        if !cfg!(loom) {
            self.last_wait.store(now(), Ordering::Relaxed);
        }
        self.waiters.fetch_add(1, Ordering::AcqRel);
        full_fence();
        self.generation.load(Ordering::Acquire)
    }

    /// Sleeps until something has changed since a generation; the present one.
    fn sleep(&self, generation: u32) -> u32 {
        let seen = if negative!("late_generation") {
            self.generation.load(Ordering::Acquire)
        } else {
            generation
        };
        self.sleepers.sleep_while(&self.generation, seen);
        self.generation.load(Ordering::Acquire)
    }

    fn end(&self) {
        self.waiters.fetch_sub(1, Ordering::AcqRel);
    }

    /// In the child of a fork: there are no sessions and no other threads.
    #[cfg(not(loom))]
    pub(crate) fn forget(&self) {
        for word in [&self.blocking, &self.held, &self.exempt] {
            word.store(0, Ordering::Relaxed);
        }
        self.waiters.store(0, Ordering::Relaxed);
    }
}

impl Ring {
    /// Puts a session (a bit number) into block mode or out of it: its events wait for room instead
    /// of being lost. Before its bit is set in any mask; and again, `false`, before the bit is used
    /// for another session, whatever its mode: that also lifts a [hold](Self::hold).
    pub fn set_blocking(&self, session: u32, blocking: bool) {
        let bit = 1 << session;
        if blocking {
            self.room.blocking.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.room.blocking.fetch_and(!bit, Ordering::Relaxed);
            if !negative!("held_for_ever") {
                self.lift(session);
            }
        }
    }

    /// The output of a session is full. In block mode, writers of its events wait for
    /// [`lift`](Self::lift) as soon as they need another block. What they have written is theirs to
    /// finish, so at most the pool's size comes after this. Otherwise an event that nobody else wants
    /// is lost when it would need another block, unless it is among its thread's first.
    pub fn hold(&self, session: u32) {
        self.room.held.fetch_or(1 << session, Ordering::Relaxed);
    }

    /// The output has room again.
    pub fn lift(&self, session: u32) {
        let before = self.room.held.fetch_and(!(1 << session), Ordering::Relaxed);
        if before >> session & 1 == 1 {
            self.room.tell();
        }
    }

    /// Whether events were lost for want of blocks since the round before this one, or writers are on a
    /// short rein: the drain is slower than writers that do not wait.
    pub fn is_flooded(&self) -> bool {
        self.room.is_scarce() || self.room.is_reined()
    }

    /// Until the flood is over (25 ms without such a loss), writers lose events rather than have more wait
    /// for the drain than a processor's cache holds.
    pub fn rein_in(&self) {
        if !self.room.is_reined() {
            self.room.reined.store(1, Ordering::Relaxed);
        }
    }

    /// Whether writers have had to wait in the last tenth of a second: more is written than drained and
    /// read.
    pub fn is_overloaded(&self) -> bool {
        let within = self.busy_ticks.load(Ordering::Relaxed);
        self.room.was_wanted(within, now())
    }

    /// Has everybody who waits look at the masks again: for whoever has cleared some.
    pub fn tell_waiting(&self) {
        self.room.tell();
    }

    /// How many writers wait.
    pub fn waiting(&self) -> u32 {
        self.room.waiters.load(Ordering::Relaxed)
    }

    /// A thread (the system's id) that does not wait until this is called with 0: because it holds a
    /// lock that whoever makes room may want. One at a time.
    pub fn exempt(&self, os_thread_id: u64) {
        self.room.exempt.store(os_thread_id, Ordering::Relaxed);
    }

    /// The calling thread never waits: because others wait for it to make room.
    #[cfg(not(loom))]
    pub fn never_wait(&'static self) {
        if let Some(slot) = self.own_slot().or_else(|| self.attach_thread()) {
            slot.no_wait.set(1);
        }
    }

    /// Whether an event for these sessions, for which there is no room, is to wait. `true` may still
    /// turn out to be wrong (`may_wait`), as that takes longer to find out.
    pub(crate) fn waits(&self, slot: &Slot, sessions: u64) -> bool {
        self.room.is_blocking(sessions) && slot.level.get() == 1 && slot.no_wait.get() == 0
    }

    /// Whether the calling thread may wait here.
    fn may_wait(&self, slot: &Slot) -> bool {
        #[cfg(not(loom))]
        let handler = eventpipe_os::signal::in_handler();
        #[cfg(loom)]
        let handler = false;
        // A handler that interrupts a wait finds that there is one.
        slot.waits.get() == 0
            && self.room.exempt.load(Ordering::Relaxed) != slot.os_thread_id.load(Ordering::Relaxed)
            && !handler
    }

    /// What to do before the next attempt at an event, after one that found no room.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_for_room(&self, slot: &Slot, event: &EventKey, before: Wait) -> Wait {
        let sessions = event.mask.load(Ordering::Relaxed);
        let must_not = slot.level.get() != 0 || slot.no_wait.get() != 0;
        if before == Wait::NONE && (must_not || !self.room.is_blocking(sessions)) {
            // It is lost if it finds no room again. The drain is woken here and not where that was
            // found out: it may take the processor of the one who wakes it, and would wait for a
            // thread in the middle of an event.
            self.wake.set();
            if slot.lost_in_turn.get() >= LOST_IN_TURN {
                slot.lost_in_turn.set(0);
                #[cfg(not(loom))]
                eventpipe_os::thread::yield_now();
            }
            return before;
        }
        match before.generation() {
            None if self.may_wait(slot) => {
                slot.waits.set(1);
                Wait::since(self.room.begin())
            }
            None => {
                // Not 1 already: else the attempt would not have asked.
                slot.no_wait.set(1);
                Wait::FORBIDDEN
            }
            Some(generation) => {
                if !self.room.is_held(sessions) {
                    // The drain can make room, so it should now.
                    self.wake.set();
                }
                Wait::since(self.room.sleep(generation))
            }
        }
    }

    /// After the attempt that succeeded.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_wait(&self, slot: &Slot, wait: Wait) {
        if wait == Wait::FORBIDDEN {
            slot.no_wait.set(0);
        } else {
            self.room.end();
            slot.waits.set(0);
        }
    }
}

/// How far a writer is with waiting. One word, so that the write path keeps it in a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait(u64);

impl Wait {
    /// Not begun.
    pub(crate) const NONE: Self = Self(0);
    /// It must not wait; its next attempt is the last.
    const FORBIDDEN: Self = Self(1);

    fn since(generation: u32) -> Self {
        Self(1 << 32 | u64::from(generation))
    }

    fn generation(self) -> Option<u32> {
        (self.0 >> 32 != 0).then_some(self.0 as u32)
    }
}
