//! Memory for data that waits: one reservation in huge pages, lent in chunks of one size.
//!
//! A queue that grows over fresh pages of a usual allocator pays more for the pages than for its data
//! (3–5 µs for each 4 KiB on a virtual machine; a seventh of that in huge pages). Chunks that come
//! back are lent first, the last one first, and fresh ones in the order of their addresses.
//!
//! Invariant C1: an index below `fresh` is either in the list of free ones, once, or in one
//! [`Chunk`]; its range of the reservation belongs to whoever has it.

use crate::Error;
use crate::memory::Reservation;
use crate::sync::Mutex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

/// See the module.
#[derive(Debug)]
pub struct Chunks {
    memory: Reservation,
    bytes: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    free: Vec<u32>,
    /// Indexes from here on were never lent, or were given back to the system.
    fresh: u32,
}

impl Chunks {
    /// Address space for so many chunks of `bytes` each; memory is taken when they are filled.
    ///
    /// # Errors
    /// The system has not that much address space.
    pub fn new(bytes: usize, count: u32) -> Result<Arc<Self>, Error> {
        let all = bytes.saturating_mul(count as usize);
        Ok(Arc::new(Self {
            memory: Reservation::new_huge(all)?,
            bytes,
            places: Mutex::new(Places::default()),
        }))
    }

    /// An empty chunk; `None` when all are lent.
    pub fn take(self: &Arc<Self>) -> Option<Chunk> {
        let mut places = self.places.lock();
        let index = match places.free.pop() {
            Some(index) => index,
            None => {
                let fresh = places.fresh;
                let end = (fresh as usize + 1).checked_mul(self.bytes)?;
                if end > self.memory.bytes() {
                    return None;
                }
                places.fresh = fresh + 1;
                fresh
            }
        };
        drop(places);
        Some(Chunk {
            chunks: self.clone(),
            index,
            length: 0,
        })
    }

    /// Bytes of memory that chunks hold which are not lent.
    pub fn spare(&self) -> usize {
        self.places.lock().free.len().saturating_mul(self.bytes)
    }

    /// Gives memory beyond the first `keep` bytes back to the system, when no chunk is lent.
    pub fn trim(&self, keep: usize) {
        let mut places = self.places.lock();
        let keep = u32::try_from(keep.div_ceil(self.bytes.max(1))).unwrap_or(u32::MAX);
        if places.free.len() != places.fresh as usize || places.fresh <= keep {
            return;
        }
        let start = keep as usize * self.bytes;
        let length = self.memory.bytes() - start;
        places.free.retain(|index| *index < keep);
        places.fresh = keep;
        // SAFETY: no chunk is lent (C1), and those that are given back count as fresh from here on,
        // whose contents nobody relies on. The lock is held, so none is lent meanwhile.
        let _ = unsafe { self.memory.give_back(start, length) };
    }
}

/// Bytes in a lent range; gives it back when it is dropped.
#[derive(Debug)]
pub struct Chunk {
    chunks: Arc<Chunks>,
    index: u32,
    length: usize,
}

impl Chunk {
    /// Replaces what it holds by as much of `bytes` as there is room for; how much that was.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.chunks.bytes);
        // SAFETY: the range is ours (C1), `&mut self` makes this the only use of it, it is inside the
        // reservation (checked when the chunk was lent), initialised (M1) and at least `length` long.
        let place = unsafe { core::slice::from_raw_parts_mut(self.start(), length) };
        place.copy_from_slice(bytes.get(..length).unwrap_or_default());
        self.length = length;
        length
    }

    /// How much it can hold.
    pub fn capacity(&self) -> usize {
        self.chunks.bytes
    }

    fn start(&self) -> *mut u8 {
        let offset = self.index as usize * self.chunks.bytes;
        // SAFETY: inside the reservation, checked when the chunk was lent.
        unsafe { self.chunks.memory.address().as_ptr().add(offset) }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range is ours (C1), initialised (M1), and not changed while it is borrowed.
        unsafe { core::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.chunks.places.lock().free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_is_not_lent_again_and_what_came_back_is_lent_first() {
        let chunks = Chunks::new(4096, 3).unwrap();
        let mut lent: Vec<Chunk> = core::iter::from_fn(|| chunks.take()).collect();
        assert!(lent.len() >= 3, "the reservation has whole pages");
        for (number, chunk) in lent.iter_mut().enumerate() {
            assert_eq!(chunk.fill(&[number as u8; 5000]), 4096);
        }
        for (number, chunk) in lent.iter().enumerate() {
            assert!(chunk.len() == 4096 && chunk.iter().all(|byte| *byte == number as u8));
        }
        let middle = lent.remove(1);
        let place = middle.start();
        drop(middle);
        assert_eq!(chunks.spare(), 4096);
        let again = chunks.take().unwrap();
        assert_eq!((again.start(), again.len()), (place, 0));
        assert!(chunks.take().is_none());
    }

    #[test]
    fn memory_is_given_back_when_nothing_is_lent() {
        let chunks = Chunks::new(4096, 4).unwrap();
        let mut first = chunks.take().unwrap();
        let second = chunks.take().unwrap();
        first.fill(b"kept");
        drop(second);
        chunks.trim(0);
        assert_eq!((&*first, chunks.spare()), (&b"kept"[..], 4096));
        drop(first);
        chunks.trim(4096);
        assert_eq!(chunks.spare(), 4096);
        chunks.trim(0);
        assert_eq!(chunks.spare(), 0);
        let mut one = chunks.take().unwrap();
        assert_eq!(one.fill(b"again"), 5);
        assert_eq!(&*one, b"again");
    }
}
