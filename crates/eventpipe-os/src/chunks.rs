//! Memory for data that waits: one reservation in huge pages, lent in chunks of one size.
//!
//! A queue that grows over fresh pages of a usual allocator pays more for the pages than for its data
//! (3–5 µs for each 4 KiB on a virtual machine; a seventh of that in huge pages). Chunks that come
//! back are lent first, the last one first, and fresh ones in the order of their addresses.
//!
//! What was read last by another processor lies in that one's cache. To write over it there costs many
//! times as much as in one's own (`benches/chunks.rs`), because each line is asked for, and the reader
//! would have to get it back. Such a chunk is filled past the caches.
//!
//! Invariant C1: an index below `fresh` is either in the list of free ones, once, or in one
//! [`Chunk`]; its range of the reservation belongs to whoever has it.

use crate::Error;
use crate::memory::Reservation;
use crate::sync::Mutex;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use rustix::thread::sched_getcpu;

/// See the module.
#[derive(Debug)]
pub struct Chunks {
    memory: Reservation,
    bytes: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    free: Vec<Free>,
    /// Indexes from here on were never lent, or were given back to the system.
    fresh: u32,
}

#[derive(Clone, Copy, Debug)]
struct Free {
    index: u32,
    /// Where it was given back.
    processor: usize,
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
        let (index, is_far) = match places.free.pop() {
            Some(Free { index, processor }) => (index, processor != sched_getcpu()),
            None => {
                let fresh = places.fresh;
                let end = (fresh as usize + 1).checked_mul(self.bytes)?;
                if end > self.memory.bytes() {
                    return None;
                }
                places.fresh = fresh + 1;
                (fresh, false)
            }
        };
        drop(places);
        Some(Chunk {
            chunks: self.clone(),
            index,
            length: 0,
            is_far,
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
        places.free.retain(|free| free.index < keep);
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
    /// Another processor had it last. (The thread may have moved since; then it was a bad guess.)
    is_far: bool,
}

impl Chunk {
    /// Replaces what it holds by as much of `bytes` as there is room for; how much that was.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.chunks.bytes);
        // SAFETY: the range is ours (C1), `&mut self` makes this the only use of it, it is inside the
        // reservation (checked when the chunk was lent), initialised (M1) and at least `length` long.
        let place = unsafe { core::slice::from_raw_parts_mut(self.start(), length) };
        let bytes = bytes.get(..length).unwrap_or_default();
        let done = match self.is_far {
            true => copy_past_caches(place, bytes),
            false => 0,
        };
        let rest = place.get_mut(done..).unwrap_or_default();
        rest.copy_from_slice(bytes.get(done..).unwrap_or_default());
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
        let free = Free {
            index: self.index,
            processor: sched_getcpu(),
        };
        self.chunks.places.lock().free.push(free);
    }
}

/// A line of the cache.
#[cfg(target_arch = "x86_64")]
#[repr(align(64))]
struct Line([u8; 64]);

/// Copies whole lines, from the front on, which are neither brought into this processor's caches for that nor
/// left there; how many bytes. None if the target does not begin with a line.
#[cfg(target_arch = "x86_64")]
fn copy_past_caches(to: &mut [u8], from: &[u8]) -> usize {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    // SAFETY: any bytes are a line.
    let (head, lines, _) = unsafe { to.align_to_mut::<Line>() };
    if !head.is_empty() {
        return 0;
    }
    let (from, _) = from.as_chunks::<64>();
    for (line, bytes) in lines.iter_mut().zip(from) {
        for quarter in 0..4 {
            let from = bytes.as_ptr().cast::<__m128i>().wrapping_add(quarter);
            let to = line.0.as_mut_ptr().cast::<__m128i>().wrapping_add(quarter);
            // SAFETY: a quarter of 64 bytes; SSE2 is part of this architecture.
            let bits = unsafe { _mm_loadu_si128(from) };
            // SAFETY: a quarter of a line, and aligned as a line is.
            unsafe { _mm_stream_si128(to, bits) };
        }
    }
    // Such stores are not ordered with others: whoever is told of the bytes must find them.
    // SAFETY: no memory is named.
    unsafe { _mm_sfence() };
    lines.len().min(from.len()) * size_of::<Line>()
}

/// Where nobody has measured what it brings.
#[cfg(not(target_arch = "x86_64"))]
fn copy_past_caches(_: &mut [u8], _: &[u8]) -> usize {
    0
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
    fn what_another_processor_had_is_filled_with_the_same_bytes() {
        let chunks = Chunks::new(4096, 1).unwrap();
        let bytes: Vec<u8> = (0..4200_u32)
            .map(|number| ((number * 7) >> 3) as u8)
            .collect();
        for length in (0..200).chain(4000..4100) {
            for start in [0, 1, 16, 63] {
                let mut chunk = chunks.take().unwrap();
                chunk.fill(&[0; 4096]);
                chunk.is_far = true;
                let wanted = bytes.get(start..start + length).unwrap();
                assert_eq!(chunk.fill(wanted), length.min(4096));
                assert_eq!(&*chunk, wanted.get(..length.min(4096)).unwrap());
            }
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn only_whole_lines_are_copied_past_the_caches() {
        let mut target = [const { Line([0; 64]) }; 3];
        // SAFETY: bytes, all initialised.
        let (_, bytes, _) = unsafe { target.align_to_mut::<u8>() };
        for (length, copied) in [(0, 0), (63, 0), (64, 64), (191, 128), (192, 192)] {
            bytes.fill(0);
            let done = copy_past_caches(bytes, &[7; 192][..length]);
            assert_eq!(done, copied);
            assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), copied);
            assert!(bytes.iter().take(copied).all(|byte| *byte == 7));
        }
        assert_eq!(copy_past_caches(&mut bytes[1..], &[8; 100]), 0);
        assert!(!bytes.contains(&8));
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
