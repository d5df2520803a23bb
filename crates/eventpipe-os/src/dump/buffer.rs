//! A list that grows in memory of its own: the copy of a process must not touch the heap, whose
//! locks may be held.

use core::ptr::NonNull;

use crate::Error;

const FIRST: usize = 1 << 16;

/// Elements are never dropped, and the memory is never given back: the process ends soon.
pub(super) struct Buffer<T: Copy> {
    base: NonNull<T>,
    length: usize,
    capacity: usize,
}

impl<T: Copy> Buffer<T> {
    pub(super) const fn new() -> Self {
        Buffer {
            base: NonNull::dangling(),
            length: 0,
            capacity: 0,
        }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `length` elements have been written, and the memory is ours; dangling with length
        // 0 is an empty slice.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; `self` is borrowed alone.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }

    pub(super) fn push(&mut self, element: T) -> Result<(), Error> {
        if self.length == self.capacity {
            self.grow()?;
        }
        // SAFETY: `length` is below `capacity`, so the place is inside the memory.
        let place = unsafe { self.base.as_ptr().add(self.length) };
        // SAFETY: the place is ours, aligned (mappings begin at pages), and holds nothing that
        // would need a drop.
        unsafe { place.write(element) };
        self.length += 1;
        Ok(())
    }

    pub(super) fn extend(&mut self, elements: &[T]) -> Result<(), Error> {
        for element in elements {
            self.push(*element)?;
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), Error> {
        use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap};
        let old = self.capacity * size_of::<T>();
        let new = if old == 0 { FIRST } else { old * 2 };
        let base = if old == 0 {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: new memory at an address that the kernel chooses.
            unsafe { mmap_anonymous(core::ptr::null_mut(), new, protection, MapFlags::PRIVATE) }
        } else {
            let pages = old.next_multiple_of(4096);
            // SAFETY: the whole mapping that an earlier call made; no reference to it is alive,
            // since `self` is borrowed alone.
            unsafe { mremap(self.base.as_ptr().cast(), pages, new, MremapFlags::MAYMOVE) }
        };
        let base = base.map_err(|errno| Error::new("mmap", errno.raw_os_error()))?;
        self.base = NonNull::new(base.cast()).ok_or(Error::out_of_memory("mmap"))?;
        self.capacity = new / size_of::<T>();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn elements_stay_while_the_buffer_grows() {
        let mut buffer = Buffer::new();
        assert!(buffer.as_slice().is_empty());
        for number in 0..100_000_u64 {
            buffer.push([number, !number, 7]).expect("memory");
        }
        for (number, element) in (0..).zip(buffer.as_slice()) {
            assert_eq!(*element, [number, !number, 7]);
        }
        assert_eq!(buffer.as_slice().len(), 100_000);
    }
}
