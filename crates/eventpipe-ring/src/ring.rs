//! The ring itself: what it consists of, its memory, the one quiescence function, what happens in
//! the child of a fork.

use crate::arena::{Arena, WEIGHT_BYTES};
use crate::record::{LossReason, SESSIONS};
use crate::room::Room;
use crate::slot::{GIVES_UP, Losses, Slots};
use crate::stack::TaggedStack;
use crate::sync::{AtomicU32, AtomicU64, Ordering, Private32, Private64, heavy, negative, relax};
#[cfg(not(loom))]
use crate::{slot::Slot, sync::AtomicPtr};
#[cfg(not(loom))]
use core::ptr;
#[cfg(not(loom))]
use eventpipe_os::{
    Error,
    sync::{Mutex, Signal},
};

/// How often a section that does not end is looked at before it is given up; most looks are 50 µs to
/// 100 µs apart, so these are a second or more in which this thread had a processor.
const PATIENCE: u32 = 10_000;

/// How often the next ones are looked at once one was given up: there may be many, and that time is not
/// spent on each.
const LESS_PATIENCE: u32 = 102;

/// The buffer. One per process, in a static; it is never destroyed.
#[derive(Debug)]
pub struct Ring {
    pub(crate) arena: Arena,
    pub(crate) slots: Slots,
    pub(crate) free_slots: TaggedStack,
    /// Slots of threads that ended after losing events; the drain tells the rest and frees them.
    pub(crate) debts: TaggedStack,
    pub(crate) uids: AtomicU64,
    pub(crate) wake: Wake,
    pub(crate) room: Room,
    /// A block that fills within so many ticks is followed by a big one.
    pub(crate) busy_ticks: AtomicU64,
    /// Losses of threads for which the system had no memory, and how many threads are adding to
    /// them.
    pub(crate) orphans: Losses,
    pub(crate) orphans_inflight: AtomicU32,
    /// 1: there is a `Drain`.
    pub(crate) draining: AtomicU32,
    pub(crate) notes: DrainNotes,
    /// Whether the pool has its memory.
    #[cfg(not(loom))]
    open: Mutex<bool>,
}

/// What the drain remembers between rounds; for the holder of the `Drain` only.
#[derive(Debug)]
pub(crate) struct DrainNotes {
    /// How many blocks wait in the list.
    pub(crate) pending: Private32,
    /// Index + 1 of the first slot in debt.
    pub(crate) debts: Private32,
    /// Everything up to this was given to the sink.
    pub(crate) boundary: Private64,
    /// Up to this, threads that were not in the middle of an event have been given (at least
    /// `boundary`).
    pub(crate) target: Private64,
}

/// How writers wake the drain.
#[derive(Debug)]
pub(crate) struct Wake {
    /// 1: the drain sleeps and wants to know of the next event.
    pub(crate) idle: AtomicU32,
    #[cfg(not(loom))]
    signal: AtomicPtr<Signal>,
    /// How often a model's drain was woken.
    #[cfg(loom)]
    pub(crate) woken: AtomicU32,
}

impl Wake {
    /// Called by a writer in its section after it did something of interest (S4).
    #[inline]
    pub(crate) fn if_idle(&self) {
        if self.idle.load(Ordering::Relaxed) != 0 && self.idle.swap(0, Ordering::AcqRel) != 0 {
            self.set();
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn set(&self) {
        let signal = self.signal.load(Ordering::Acquire);
        if !signal.is_null() {
            // SAFETY: only `set_wake` stores here, from a reference that lives for ever.
            unsafe { &*signal }.set();
        }
    }

    #[cfg(loom)]
    pub(crate) fn set(&self) {
        self.woken.fetch_add(1, Ordering::AcqRel);
    }
}

/// Figures of a ring, each exact at some moment close to the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Bytes in all blocks of the pool; 0 when its memory is given back.
    pub pool_bytes: u64,
    /// Bytes in free blocks.
    pub free_bytes: u64,
    /// Bytes in blocks that wait to be drained.
    pub full_bytes: u64,
    /// Slots ever made: the largest number of threads that had events at the same time.
    pub slots: u64,
    /// Threads that wrote events so far.
    pub threads: u64,
    /// Events lost since the process started: summed over sessions, so one event counts once for
    /// each session that wanted it.
    pub lost: u64,
}

impl Ring {
    /// A ring without memory.
    #[allow(clippy::new_without_default, reason = "belongs in a static")]
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            arena: Arena::new(),
            slots: Slots::new(),
            free_slots: TaggedStack::new(),
            debts: TaggedStack::new(),
            uids: AtomicU64::new(0),
            wake: Wake {
                idle: AtomicU32::new(0),
                signal: AtomicPtr::new(ptr::null_mut()),
            },
            room: Room::new(),
            busy_ticks: AtomicU64::new(0),
            orphans: Losses::new(),
            orphans_inflight: AtomicU32::new(0),
            draining: AtomicU32::new(0),
            notes: DrainNotes {
                pending: Private32::new(0),
                debts: Private32::new(0),
                boundary: Private64::new(0),
                target: Private64::new(0),
            },
            open: Mutex::new(false),
        }
    }

    /// Takes memory for blocks of `pool_bytes` in all, headers included, and makes the pages
    /// present. Less than 256 KiB counts as 256 KiB. Does nothing when the ring has its memory
    /// already, whatever the size then was. 64 MiB take about 40 ms.
    ///
    /// Before any session's bit is set in a mask: what is written without memory is lost (and
    /// counted).
    ///
    /// # Errors
    /// The system has not that much memory, or `pool_bytes` is more than 64 GiB or half of the
    /// machine's memory: the pages are made present, and a system that has promised too much ends
    /// processes. Or a writer has not come out of its section for seconds.
    #[cfg(not(loom))]
    pub fn start(&'static self, pool_bytes: usize) -> Result<(), Error> {
        const MAX: usize = 64 << 30;
        let mut open = self.open.lock();
        if *open {
            return Ok(());
        }
        let half = match eventpipe_os::memory::physical_bytes() {
            0 => u64::MAX,
            bytes => bytes / 2,
        };
        if pool_bytes > MAX || pool_bytes as u64 > half {
            return Err(Error::out_of_memory("mmap"));
        }
        self.prepare_threads();
        eventpipe_os::barrier::prepare();
        eventpipe_os::clock::note_start();
        // The memory may be replaced: nobody may be looking for a block in what was there before.
        if !self.quiesce() {
            return Err(Error::busy("quiesce"));
        }
        self.arena.prepare(pool_bytes.max(256 << 10))?;
        self.busy_ticks.store(
            eventpipe_os::clock::ticks_per_us() * 100_000,
            Ordering::Relaxed,
        );
        self.arena.open();
        *open = true;
        Ok(())
    }

    /// Gives the pool's memory back to the system; the next [`start`](Self::start) takes it again,
    /// perhaps with another size. For some time after the last session: no mask has a bit,
    /// [`quiesce`](Self::quiesce) has returned, the drain has given everything and taken the
    /// threads' blocks back ([`Drain::prepare_idle`](crate::Drain::prepare_idle) returned `true`)
    /// and was dropped. `false`, and nothing changed, when a block is still in use, a section does not
    /// end, or a `Drain` exists.
    #[cfg(not(loom))]
    pub fn release(&'static self) -> bool {
        let mut open = self.open.lock();
        if !*open {
            return true;
        }
        let Some(drain) = self.drain() else {
            return false;
        };
        let complete = self.arena.close();
        // A writer may be in the middle of a failing attempt to take a block.
        let unused = complete && self.quiesce();
        if unused {
            self.arena.give_back();
            *open = false;
        } else if complete {
            self.arena.open();
        }
        drop(drain);
        unused
    }

    /// Names the signal that writers set: when a block is taken, an event is lost or an indebted
    /// thread ends while the drain sleeps idle
    /// ([`Drain::prepare_idle`](crate::Drain::prepare_idle)); and each time an eighth of the pool,
    /// or 1 MiB, waits to be drained. A system call only when somebody waits for it.
    #[cfg(not(loom))]
    pub fn set_wake(&self, signal: &'static Signal) {
        self.wake
            .signal
            .store(ptr::from_ref(signal).cast_mut(), Ordering::Release);
    }

    /// Returns when every section that was running at the call has ended. This is the one
    /// quiescence function: whoever takes something away from writers (a mask bit, an event, the
    /// pool's memory) calls it between taking and reusing.
    ///
    /// After mask bits were cleared and this has returned `true`, no record with those bits is written
    /// and no loss is counted for them. Waits for writers only (nanoseconds, unless one is preempted in
    /// its section) and holds no lock.
    ///
    /// `false`: a section has not ended, and is given up (S5): the calling thread's own (a signal
    /// handler that interrupted it would wait for ever), or one that went on for seconds. Who only
    /// gives bits to others may go on; memory must stay.
    pub fn quiesce(&self) -> bool {
        let mut ended = true;
        let mut patience = PATIENCE;
        if negative!("count_before_barrier") {
            let count = self.slots.count();
            heavy();
            for index in 0..count {
                ended &= self.wait_for_slot(index, &mut patience);
            }
            return ended;
        }
        if !negative!("no_heavy_barrier") {
            heavy();
        }
        for index in 0..self.slots.count() {
            ended &= self.wait_for_slot(index, &mut patience);
        }
        let mut attempt = 0;
        while ended && self.orphans_inflight.load(Ordering::Acquire) != 0 {
            relax(attempt);
            attempt += 1;
            ended = !GIVES_UP || attempt < PATIENCE;
        }
        ended
    }

    fn wait_for_slot(&self, index: u32, patience: &mut u32) -> bool {
        let Some(slot) = self.slots.try_slot(index) else {
            return true;
        };
        let is_own = self.is_own(slot);
        if is_own && !GIVES_UP {
            return true;
        }
        let mut ended = true;
        for lane in &slot.lanes {
            let seen = lane.inflight.load(Ordering::Acquire);
            let mut attempt = 0;
            // Odd and unchanged: still the section that was running. Any other value: it has ended
            // (S2).
            while seen & 1 == 1 && lane.inflight.load(Ordering::Acquire) == seen {
                if GIVES_UP && attempt >= *patience {
                    *patience = LESS_PATIENCE;
                } else if !is_own && !lane.is_given_up(seen) {
                    relax(attempt);
                    attempt = attempt.saturating_add(1);
                    continue;
                }
                lane.notes.given_up.store(seen, Ordering::Relaxed);
                ended = false;
                break;
            }
        }
        ended
    }

    /// Figures that can be read at any time.
    pub fn statistics(&self) -> Statistics {
        #[cfg(not(loom))]
        let open = *self.open.lock();
        #[cfg(loom)]
        let open = true;
        let bytes = |weight: u32| {
            if open {
                u64::from(weight) * WEIGHT_BYTES
            } else {
                0
            }
        };
        let lost_by = |losses: &Losses| -> u64 {
            (0..SESSIONS)
                .map(|s| {
                    LossReason::ALL
                        .iter()
                        .map(|r| losses.total(s, *r))
                        .sum::<u64>()
                })
                .sum()
        };
        let lost = (0..self.slots.count())
            .filter(|index| {
                self.slots
                    .try_slot(*index)
                    .is_some_and(|s| s.ever_lost.load(Ordering::Relaxed) != 0)
            })
            .map(|index| lost_by(self.slots.losses(index)))
            .sum::<u64>();
        Statistics {
            pool_bytes: bytes(self.arena.total_weight()),
            free_bytes: bytes(if open { self.arena.free_weight() } else { 0 }),
            full_bytes: bytes(if open {
                self.arena.stacks().full.weight(&self.arena)
            } else {
                0
            }),
            slots: self.slots.count().into(),
            threads: self.uids.load(Ordering::Relaxed),
            lost: lost + lost_by(&self.orphans),
        }
    }

    /// Forgets everything that was written and every thread but the calling one, and leaves the
    /// pool with all its blocks free. Only in the child of a fork, from an at-fork handler (no
    /// other thread exists yet), after every mask was set to zero. Takes no lock and allocates
    /// nothing.
    #[cfg(not(loom))]
    pub fn forked_child(&'static self) {
        // Whoever held these does not exist here. An arena that was just being prepared may be half
        // made.
        let certain = self.open.try_lock().map(|open| *open);
        // SAFETY: we are the only thread.
        unsafe { self.open.force_unlock() };
        self.arena.force_unlock();
        self.draining.store(0, Ordering::Relaxed);
        self.notes.pending.set(0);
        self.notes.debts.set(0);
        self.wake.idle.store(0, Ordering::Relaxed);
        self.room.forget();
        self.orphans_inflight.store(0, Ordering::Relaxed);
        self.free_slots.reset();
        self.debts.reset();
        let own = self.own_slot();
        for index in 0..self.slots.count() {
            let Some(slot) = self.slots.try_slot(index) else {
                continue;
            };
            if slot.ever_lost.load(Ordering::Relaxed) != 0 {
                self.slots.losses(index).forget();
            }
            let ours = own.is_some_and(|own| ptr::eq(own, slot));
            slot.forget(ours);
            if ours {
                slot.os_thread_id
                    .store(eventpipe_os::thread::os_thread_id(), Ordering::Relaxed);
                slot.uid.store(
                    self.uids.fetch_add(1, Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
            } else {
                slot.index.set(index);
                self.free_slots.push(&self.slots, index, 1);
            }
        }
        match certain {
            Some(true) => self.arena.open(),
            Some(false) => {}
            None => self.arena.abandon(),
        }
    }
}

#[cfg(not(loom))]
impl Slot {
    /// Leaves nothing of what was going on; for a slot whose thread does not exist here, or
    /// (`ours`) has nothing to give any more.
    fn forget(&self, ours: bool) {
        for lane in &self.lanes {
            let inflight = lane.inflight.load(Ordering::Relaxed);
            if !ours {
                lane.inflight
                    .store(inflight.wrapping_add(inflight & 1), Ordering::Relaxed);
            }
            lane.block.store(0, Ordering::Relaxed);
            lane.switching.store(0, Ordering::Relaxed);
            lane.notes.quiet.set(0);
            lane.notes.stuck_at.set(0);
        }
        if !ours {
            self.level.set(0);
        }
        self.owed.store(0, Ordering::Relaxed);
        self.has_lost.store(0, Ordering::Relaxed);
        self.debtor.store(0, Ordering::Relaxed);
        self.uid.store(0, Ordering::Relaxed);
        self.told_uid.set(0);
        self.scanned_uid.set(0);
    }
}
