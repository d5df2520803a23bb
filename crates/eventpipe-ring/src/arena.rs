//! The pool: one reservation cut into small and big blocks, with their headers beside them, and the
//! three stacks they move on.
//!
//! A block of 4 KiB serves a thread that writes now and then; one of 72 KiB takes the largest legal
//! event, and serves a thread that writes much. Half of the pool's bytes are of each kind, and each
//! kind stands in for the other when it runs out.
//!
//! Invariants:
//! * I1: a block is at any time in one place: on a free stack, in one lane's `block` word (or with
//!   the writer that is about to put it there), on the full stack, or with the drain.
//! * I2: only the thread whose lane holds a block, inside a section of that lane, writes to it, and
//!   only beyond `committed`.
//! * I3: bytes below `committed` (acquire) do not change until the drain frees the block, which it
//!   does only when no writer can be in it.
//! * I4: the reservation is replaced or emptied only when every block was taken off the free stacks
//!   and writers have been waited for (`Ring::release`, `Ring::start`): nobody can hold or get a
//!   block then.
//!
//! The headers are not in the blocks, so that giving the pages back leaves the stacks' links alone.

use crate::stack::{Links, TaggedStack};
use crate::sync::{
    AtomicU32, AtomicU64, Ordering, Private32, Private64, const_unless_loom, negative,
};

/// Bytes of a small block.
pub(crate) const SMALL: usize = if cfg!(loom) { 96 } else { 4096 };
/// Bytes of a big block.
pub(crate) const BIG: usize = if cfg!(loom) { 160 } else { 72 * 1024 };
/// Weights on the stacks, in units of 4 KiB.
const SMALL_WEIGHT: u32 = 1;
const BIG_WEIGHT: u32 = 18;
pub(crate) const WEIGHT_BYTES: u64 = 4096;
/// 1 MiB.
const MUCH_WEIGHT: u32 = 256;
/// 512 KiB: as much again is being read and encoded meanwhile.
const ENOUGH_WEIGHT: u32 = 128;

/// What a block says about itself, on its own cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct BlockHeader {
    /// Bytes that are written completely; stored (release) by the writer, loaded (acquire) by the
    /// drain.
    pub(crate) committed: AtomicU32,
    /// Which lane of which slot wrote it (slot index × 2 + lane), and who that was: set before the
    /// block is put into the lane.
    pub(crate) origin: Private32,
    pub(crate) thread_uid: Private64,
    pub(crate) os_thread_id: Private64,
    /// The lane's blocks of this thread are numbered in order.
    pub(crate) ordinal: Private64,
    link: AtomicU64,
    // The drain's own notes.
    pub(crate) consumed: Private32,
    pub(crate) drain_flags: Private32,
    /// The odd value of `inflight` that must pass before a block that was taken back is the drain's
    /// alone.
    pub(crate) limbo: Private32,
}

impl BlockHeader {
    #[inline(always)]
    pub(crate) fn slot(&self) -> u32 {
        self.origin.get() >> 1
    }
    #[inline(always)]
    pub(crate) fn lane(&self) -> usize {
        (self.origin.get() & 1) as usize % crate::slot::LANES
    }
}

/// A block and its header.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) index: u32,
    pub(crate) header: &'a BlockHeader,
    pub(crate) data: Data<'a>,
}

impl Block<'_> {
    /// Publishes everything up to `end`; partner: the acquire in [`Self::committed`].
    #[inline(always)]
    pub(crate) fn commit(&self, end: u32) {
        let order = if negative!("relaxed_commit") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.header.committed.store(end, order);
    }

    #[inline(always)]
    pub(crate) fn committed(&self) -> u32 {
        self.header.committed.load(Ordering::Acquire)
    }
}

pub(crate) use memory::{Arena, Data, OpenBlock};

impl Links for Arena {
    #[inline(always)]
    fn link(&self, index: u32) -> &AtomicU64 {
        &self.header(index).link
    }
}

impl Arena {
    fn weight_of(&self, index: u32) -> u32 {
        if index < self.small_count() {
            SMALL_WEIGHT
        } else {
            BIG_WEIGHT
        }
    }

    /// A free block of at least `need` bytes; a big one if `prefer_big` and there is one.
    pub(crate) fn take_free(&self, need: usize, prefer_big: bool) -> Option<Block<'_>> {
        let small_fits = need <= SMALL;
        let mut index = None;
        if prefer_big || !small_fits {
            index = self.stacks().free_big.pop(self);
        }
        if index.is_none() && small_fits {
            index = self.stacks().free_small.pop(self);
            if index.is_none() && !prefer_big {
                index = self.stacks().free_big.pop(self);
            }
        }
        index.map(|index| self.block(index))
    }

    /// Puts a block back. The caller has it alone (I1).
    pub(crate) fn free(&self, index: u32) {
        let weight = self.weight_of(index);
        let stacks = self.stacks();
        let stack = if weight == SMALL_WEIGHT {
            &stacks.free_small
        } else {
            &stacks.free_big
        };
        stack.push(self, index, weight);
    }

    /// Hands a block that is not written to any more to the drain; `true` when this made an eighth
    /// of the pool wait, or as much as a processor's cache holds: what is drained while it is there
    /// costs half.
    pub(crate) fn push_full(&self, index: u32) -> bool {
        let weight = self.weight_of(index);
        let before = self.stacks().full.push(self, index, weight);
        let much = self.at_most_an_eighth(MUCH_WEIGHT);
        before < much && before + weight >= much
    }

    /// Whether as much waits to be drained as should while there is more than can be.
    pub(crate) fn has_enough_full(&self) -> bool {
        self.stacks().full.weight(self) >= self.at_most_an_eighth(ENOUGH_WEIGHT)
    }

    fn at_most_an_eighth(&self, weight: u32) -> u32 {
        (self.total_weight() / 8).clamp(1, weight)
    }

    /// Whether there is no free block at all (it may be a moment later).
    pub(crate) fn is_exhausted(&self) -> bool {
        let stacks = self.stacks();
        stacks.free_small.is_empty() && stacks.free_big.is_empty()
    }

    /// Weight of the free blocks, in units of [`WEIGHT_BYTES`].
    pub(crate) fn free_weight(&self) -> u32 {
        let stacks = self.stacks();
        stacks.free_small.weight(self) + stacks.free_big.weight(self)
    }

    /// Whether only the last eighth is free, which is for events that cannot wait.
    pub(crate) fn is_nearly_empty(&self) -> bool {
        self.free_weight() <= self.total_weight() / 8
    }

    /// Weight of all blocks.
    pub(crate) fn total_weight(&self) -> u32 {
        self.small_count() * SMALL_WEIGHT + (self.block_count() - self.small_count()) * BIG_WEIGHT
    }

    #[inline(always)]
    pub(crate) fn capacity(&self, index: u32) -> u32 {
        (if index < self.small_count() {
            SMALL
        } else {
            BIG
        }) as u32
    }

    /// Takes every block away from writers. `false`, and as before, when one of them is not free;
    /// only the caller may free blocks meanwhile.
    #[cfg(not(loom))]
    pub(crate) fn close(&self) -> bool {
        let stacks = self.stacks();
        if self.free_weight() != self.total_weight() {
            return false;
        }
        let taken = [
            stacks.free_small.take_all(self),
            stacks.free_big.take_all(self),
        ];
        let weight = taken
            .iter()
            .cloned()
            .flatten()
            .map(|index| self.weight_of(index))
            .sum::<u32>();
        if weight == self.total_weight() {
            return true;
        }
        taken
            .into_iter()
            .flatten()
            .for_each(|index| self.free(index));
        false
    }

    /// Makes every block free. Nobody may hold one.
    pub(crate) fn open(&self) {
        let stacks = self.stacks();
        stacks.full.reset();
        stacks.free_small.reset();
        stacks.free_big.reset();
        // Backwards, so that the first blocks are used first.
        for index in (0..self.block_count()).rev() {
            self.header(index).drain_flags.set(0);
            self.free(index);
        }
    }
}

/// The three stacks of blocks.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) free_small: TaggedStack,
    pub(crate) free_big: TaggedStack,
    pub(crate) full: TaggedStack,
}

impl Stacks {
    const_unless_loom! {
        fn new() -> Self {
            Self { free_small: TaggedStack::new(), free_big: TaggedStack::new(), full: TaggedStack::new() }
        }
    }
}

#[cfg(not(loom))]
mod memory {
    use super::{BIG, Block, BlockHeader, SMALL, Stacks};
    use crate::sync::{AHEAD, AtomicPtr, AtomicU32, Ordering, fetch_to_write};
    use core::marker::PhantomData;
    use core::ptr::{self, NonNull};
    use eventpipe_os::Error;
    use eventpipe_os::memory::{PAGE, Reservation};
    use eventpipe_os::sync::Mutex;

    /// See the module. All words are zero and all pointers null until the first `prepare`.
    #[derive(Debug)]
    pub(crate) struct Arena {
        stacks: Stacks,
        headers: AtomicPtr<BlockHeader>,
        data: AtomicPtr<u8>,
        scratch: AtomicPtr<u32>,
        small: AtomicU32,
        total: AtomicU32,
        reservation: Mutex<Option<Reservation>>,
    }

    impl Arena {
        pub(crate) const fn new() -> Self {
            Self {
                stacks: Stacks::new(),
                headers: AtomicPtr::new(ptr::null_mut()),
                data: AtomicPtr::new(ptr::null_mut()),
                scratch: AtomicPtr::new(ptr::null_mut()),
                small: AtomicU32::new(0),
                total: AtomicU32::new(0),
                reservation: Mutex::new(None),
            }
        }

        #[inline(always)]
        pub(crate) fn stacks(&self) -> &Stacks {
            &self.stacks
        }

        #[inline(always)]
        pub(super) fn small_count(&self) -> u32 {
            self.small.load(Ordering::Relaxed)
        }

        #[inline(always)]
        pub(crate) fn block_count(&self) -> u32 {
            self.total.load(Ordering::Relaxed)
        }

        /// The drain's lists: room for every block, twice.
        pub(crate) fn scratch(&self) -> *mut u32 {
            self.scratch.load(Ordering::Relaxed)
        }

        #[inline(always)]
        pub(crate) fn header(&self, index: u32) -> &BlockHeader {
            debug_assert!(index < self.block_count());
            let headers = self.headers.load(Ordering::Relaxed);
            // SAFETY: who names a block got its index from a stack or a lane, so it is below the
            // count, and the array of headers has that many (I4: it is replaced only while nobody
            // can name a block).
            let header = unsafe { headers.add(index as usize) };
            // SAFETY: zeroed memory is a valid header (atomic integers), it is aligned and lives as
            // long as the reservation (I4).
            unsafe { &*header }
        }

        #[inline(always)]
        pub(crate) fn block(&self, index: u32) -> Block<'_> {
            let small = self.small_count() as usize;
            let position = index as usize;
            let (offset, bytes) = if position < small {
                (position * SMALL, SMALL)
            } else {
                (small * SMALL + (position - small) * BIG, BIG)
            };
            let data = self.data.load(Ordering::Relaxed);
            // SAFETY: as in `header`: the index is below the count, and the data area holds that
            // many blocks.
            let start = unsafe { data.add(offset) };
            Block {
                index,
                header: self.header(index),
                data: Data {
                    start,
                    bytes: bytes as u32,
                    arena: PhantomData,
                },
            }
        }

        /// Makes memory for blocks of about `bytes` in all present, replacing memory of another
        /// size. Call only while the arena is closed and nobody holds a block (I4).
        pub(crate) fn prepare(&self, bytes: usize) -> Result<(), Error> {
            let big = (bytes / 2 / BIG).max(1);
            let each = SMALL + size_of::<BlockHeader>() + 8;
            let small = (bytes.saturating_sub(big * (BIG + each - SMALL)) / each).max(8);
            let total = big + small;
            let headers = (total * size_of::<BlockHeader>()).next_multiple_of(PAGE);
            let data = small * SMALL + big * BIG;
            let scratch = (total * 8).next_multiple_of(PAGE);
            let needed = headers + scratch + data;
            let mut place = self.reservation.lock();
            if place.as_ref().is_none_or(|have| have.bytes() != needed) {
                self.abandon();
                *place = None;
                *place = Some(Reservation::new_huge(needed)?);
            }
            let Some(reservation) = place.as_ref() else {
                return Ok(());
            };
            reservation.commit(0, needed)?;
            let start: NonNull<u8> = reservation.address();
            self.headers.store(start.as_ptr().cast(), Ordering::Relaxed);
            // SAFETY: within the reservation.
            self.scratch.store(
                unsafe { start.add(headers) }.as_ptr().cast(),
                Ordering::Relaxed,
            );
            // SAFETY: within the reservation.
            self.data.store(
                unsafe { start.add(headers + scratch) }.as_ptr(),
                Ordering::Relaxed,
            );
            self.small.store(small as u32, Ordering::Relaxed);
            self.total.store(total as u32, Ordering::Release);
            Ok(())
        }

        /// Gives the pages back. Call only while the arena is closed and nobody holds a block (I4).
        pub(crate) fn give_back(&self) {
            if let Some(reservation) = self.reservation.lock().as_ref() {
                // SAFETY: closed and nobody holds a block: neither blocks nor headers nor the
                // drain's lists are in use.
                let _ = unsafe { reservation.give_back(0, reservation.bytes()) };
            }
        }

        /// Forgets where the blocks are. Only while nobody can name one.
        pub(crate) fn abandon(&self) {
            self.stacks.full.reset();
            self.stacks.free_small.reset();
            self.stacks.free_big.reset();
            self.total.store(0, Ordering::Relaxed);
            self.small.store(0, Ordering::Relaxed);
            self.scratch.store(ptr::null_mut(), Ordering::Relaxed);
        }

        /// For the child of a fork: the thread that held the lock does not exist.
        pub(crate) fn force_unlock(&self) {
            // SAFETY: the caller is the only thread, and the value is changed in one assignment.
            unsafe { self.reservation.force_unlock() };
        }
    }

    /// Where the open block of a lane lies, so that an event need not ask the arena. For the lane's
    /// owner alone.
    #[derive(Debug, Default)]
    pub(crate) struct OpenBlock {
        header: AtomicPtr<BlockHeader>,
        start: AtomicPtr<u8>,
    }

    impl OpenBlock {
        pub(crate) const fn none() -> Self {
            Self {
                header: AtomicPtr::new(ptr::null_mut()),
                start: AtomicPtr::new(ptr::null_mut()),
            }
        }

        /// The block that goes into the lane next.
        pub(crate) fn note(&self, block: &Block<'_>) {
            let header = ptr::from_ref(block.header).cast_mut();
            self.header.store(header, Ordering::Relaxed);
            self.start.store(block.data.start, Ordering::Relaxed);
        }

        /// The block that was noted last.
        ///
        /// # Safety
        /// Its index is `index`, and the caller is in a section in which the lane held it.
        #[inline(always)]
        pub(crate) unsafe fn block<'a>(&self, arena: &'a Arena, index: u32) -> Block<'a> {
            let header = self.header.load(Ordering::Relaxed);
            debug_assert!(ptr::eq(header, arena.header(index)));
            Block {
                index,
                // SAFETY: the header of a block that somebody holds (the caller) lives on (I4).
                header: unsafe { &*header },
                data: Data {
                    start: self.start.load(Ordering::Relaxed),
                    bytes: BIG as u32,
                    arena: PhantomData,
                },
            }
        }
    }

    /// The bytes of a block.
    #[derive(Clone, Copy)]
    pub(crate) struct Data<'a> {
        start: *mut u8,
        bytes: u32,
        arena: PhantomData<&'a Arena>,
    }

    impl Data<'_> {
        /// Lends `at .. at + length` for writing.
        ///
        /// # Safety
        /// The caller is the block's writer (I2) and the range lies beyond `committed` and within
        /// the block.
        #[inline(always)]
        pub(crate) unsafe fn write(self, at: u32, length: u32, fill: impl FnOnce(&mut [u8])) {
            debug_assert!(at + length <= self.bytes);
            // SAFETY: within the block, by the caller.
            let start = unsafe { self.start.add(at as usize) };
            // SAFETY: initialised memory (M1), and nobody else looks at it: the drain stays below
            // `committed` (I2, I3).
            fill(unsafe { core::slice::from_raw_parts_mut(start, length as usize) });
        }

        /// Asks for what will be written after so many bytes more, if that is below `limit`: what lies
        /// behind may be another writer's.
        #[inline(always)]
        pub(crate) fn fetch_ahead(self, at: u32, length: u32, limit: u32) {
            let ahead = at + AHEAD;
            if ahead + length <= limit {
                fetch_to_write(self.start.wrapping_add(ahead as usize), length as usize);
            }
        }

        /// Lends `at .. at + length` for reading.
        ///
        /// # Safety
        /// The range lies below a `committed` that was loaded (acquire), or the caller has the
        /// block alone.
        #[inline(always)]
        pub(crate) unsafe fn read<R>(
            self,
            at: u32,
            length: u32,
            look: impl FnOnce(&[u8]) -> R,
        ) -> R {
            debug_assert!(at + length <= self.bytes);
            // SAFETY: within the block, by the caller.
            let start = unsafe { self.start.add(at as usize) };
            // SAFETY: initialised memory that does not change while it is lent (I3).
            look(unsafe { core::slice::from_raw_parts(start, length as usize) })
        }
    }
}

#[cfg(loom)]
mod memory {
    use super::{BIG, Block, BlockHeader, SMALL, Stacks};
    use crate::sync::cell::UnsafeCell;
    use std::vec;
    use std::vec::Vec;

    /// The arena of a model: a few blocks whose bytes loom watches word by word.
    #[derive(Debug)]
    pub(crate) struct Arena {
        stacks: Stacks,
        headers: Vec<BlockHeader>,
        data: Vec<Vec<UnsafeCell<u64>>>,
        small: u32,
        scratch: core::cell::UnsafeCell<Vec<u32>>,
    }

    // SAFETY: only the drain uses the scratch; everything else is loom's.
    unsafe impl Sync for Arena {}
    // SAFETY: as above.
    unsafe impl Send for Arena {}

    impl Arena {
        pub(crate) fn new(small: u32, big: u32) -> Self {
            let total = small + big;
            let words = |index| if index < small { SMALL / 8 } else { BIG / 8 };
            Self {
                stacks: Stacks::new(),
                headers: (0..total).map(|_| BlockHeader::default()).collect(),
                data: (0..total)
                    .map(|index| (0..words(index)).map(|_| UnsafeCell::new(0)).collect())
                    .collect(),
                small,
                scratch: core::cell::UnsafeCell::new(vec![0; 2 * total as usize]),
            }
        }

        pub(crate) fn stacks(&self) -> &Stacks {
            &self.stacks
        }
        pub(super) fn small_count(&self) -> u32 {
            self.small
        }
        pub(crate) fn block_count(&self) -> u32 {
            self.headers.len() as u32
        }
        pub(crate) fn scratch(&self) -> *mut u32 {
            // SAFETY: the vector is never resized.
            unsafe { (*self.scratch.get()).as_mut_ptr() }
        }
        pub(crate) fn header(&self, index: u32) -> &BlockHeader {
            &self.headers[index as usize]
        }
        pub(crate) fn block(&self, index: u32) -> Block<'_> {
            Block {
                index,
                header: self.header(index),
                data: Data {
                    words: &self.data[index as usize],
                },
            }
        }
    }

    /// In a model the arena is asked.
    #[derive(Debug, Default)]
    pub(crate) struct OpenBlock;

    impl OpenBlock {
        pub(crate) fn note(&self, _: &Block<'_>) {}

        /// # Safety
        /// As on the machine; here nothing depends on it.
        pub(crate) unsafe fn block<'a>(&self, arena: &'a Arena, index: u32) -> Block<'a> {
            arena.block(index)
        }
    }

    /// The bytes of a block.
    #[derive(Clone, Copy)]
    pub(crate) struct Data<'a> {
        words: &'a [UnsafeCell<u64>],
    }

    impl Data<'_> {
        pub(crate) fn fetch_ahead(self, _: u32, _: u32, _: u32) {}

        /// # Safety
        /// As on the machine; here loom checks it.
        pub(crate) unsafe fn write(self, at: u32, length: u32, fill: impl FnOnce(&mut [u8])) {
            let mut bytes = vec![0u8; (length as usize).next_multiple_of(8)];
            fill(&mut bytes[..length as usize]);
            for (word, bytes) in self.words[at as usize / 8..].iter().zip(bytes.chunks(8)) {
                // SAFETY: loom checks that nobody else uses the word now.
                word.with_mut(|word| unsafe {
                    *word = u64::from_ne_bytes(bytes.try_into().unwrap())
                });
            }
        }

        /// # Safety
        /// As on the machine; here loom checks it.
        pub(crate) unsafe fn read<R>(
            self,
            at: u32,
            length: u32,
            look: impl FnOnce(&[u8]) -> R,
        ) -> R {
            let count = (length as usize).div_ceil(8);
            let mut bytes = Vec::new();
            for word in &self.words[at as usize / 8..][..count] {
                // SAFETY: loom checks that nobody writes the word now.
                bytes.extend(word.with(|word| unsafe { *word }).to_ne_bytes());
            }
            look(&bytes[..length as usize])
        }
    }
}
