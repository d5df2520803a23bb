//! Doors for the models in `tests/`: a ring of a few small blocks, threads with explicit slots.
//! Exists with `--cfg loom` only.

use crate::arena::Arena;
use crate::record::{EventKey, Payload, RecordOptions};
use crate::ring::{DrainNotes, Ring, Wake};
use crate::room::Room;
use crate::slot::{Losses, Slot, Slots};
use crate::stack::{Links, TaggedStack};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Private32, Private64};
use std::vec::Vec;

impl Ring {
    /// A ring with so many blocks and at most so many slots.
    pub fn model(small: u32, big: u32, slots: u32) -> Self {
        let ring = Self {
            arena: Arena::new(small, big),
            slots: Slots::new(slots),
            free_slots: TaggedStack::new(),
            debts: TaggedStack::new(),
            uids: AtomicU64::new(0),
            wake: Wake {
                idle: AtomicU32::new(0),
                woken: AtomicU32::new(0),
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
        };
        ring.arena.open();
        ring
    }

    /// Attaches a writer.
    pub fn thread(&self) -> Thread<'_> {
        Thread {
            ring: self,
            slot: self.attach().expect("a slot"),
        }
    }

    /// From now on writers that can wait do so while anything is full ([`Ring::is_overloaded`]).
    pub fn overload(&self) {
        self.busy_ticks.store(u64::MAX, Ordering::Relaxed);
    }

    /// How often writers woke the drain.
    pub fn woken(&self) -> u32 {
        self.wake.woken.load(Ordering::Acquire)
    }

    pub(crate) fn is_own(&self, _: &Slot) -> bool {
        false
    }
}

/// The tick of this moment.
pub fn ticks() -> u64 {
    crate::sync::now()
}

/// A writer of a model.
#[derive(Debug)]
pub struct Thread<'a> {
    ring: &'a Ring,
    slot: &'a Slot,
}

impl Thread<'_> {
    /// The number of the thread.
    pub fn uid(&self) -> u64 {
        self.slot.uid.load(Ordering::Relaxed)
    }

    /// See [`Ring`]: the write path from the section on.
    pub fn write<P: Payload + ?Sized>(&self, event: &EventKey, payload: &P) {
        if event.is_enabled() {
            self.ring
                .write_in(self.slot, event, payload, &RecordOptions::default());
        }
    }

    /// The thread ends.
    pub fn end(self) {
        self.ring.detach(self.slot);
    }
}

struct Table(Vec<AtomicU64>);

impl Links for Table {
    fn link(&self, index: u32) -> &AtomicU64 {
        &self.0[index as usize]
    }
}

/// A tagged stack with links of its own, all indexes on it; each index has a value that only its
/// holder uses.
#[allow(missing_debug_implementations, reason = "for models")]
pub struct Stack {
    stack: TaggedStack,
    links: Table,
    values: Vec<Private64>,
}

impl Stack {
    /// With the indexes below `count` on it, 0 on top.
    pub fn new(count: u32) -> Self {
        let stack = TaggedStack::new();
        let links = Table((0..count).map(|_| AtomicU64::new(0)).collect());
        for index in (0..count).rev() {
            stack.push(&links, index, 1);
        }
        Self {
            stack,
            links,
            values: (0..count).map(|_| Private64::new(0)).collect(),
        }
    }

    /// Pops an index.
    pub fn pop(&self) -> Option<u32> {
        self.stack.pop(&self.links)
    }

    /// Pushes an index.
    pub fn push(&self, index: u32) {
        self.stack.push(&self.links, index, 1);
    }

    /// Uses what the holder of an index may use: loom reports a second user.
    pub fn touch(&self, index: u32) -> u64 {
        let value = &self.values[index as usize];
        value.set(value.get() + 1);
        value.get()
    }
}
