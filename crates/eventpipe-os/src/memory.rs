//! Memory that the engine takes from the system directly, never through the program's allocator.
//!
//! Invariant M1: a [`Reservation`] is one private anonymous mapping that is readable, writable and
//! zero where never written, and that lives until the `Reservation` is dropped.

use crate::Error;
use core::ptr::{self, NonNull};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// The page size taken for granted (the smallest one of the supported processors; larger pages only
/// waste a little).
pub const PAGE: usize = 4096;

/// The memory of the machine; 0: not known.
pub fn physical_bytes() -> u64 {
    // SAFETY: no preconditions.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => 0,
    }
}

/// How much address space the process may still take (`ulimit -v`); `None`: as much as there is.
#[cfg(feature = "std")]
pub fn address_space_left() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let mut text = [0; 128];
    let length = crate::process::read_file(c"/proc/self/statm", &mut text).ok()?;
    // The first number is the size of the process in pages.
    let digits = text.get(..length)?.split(|byte| *byte == b' ').next()?;
    let pages = crate::text::number(digits, 10)?;
    Some(limit.saturating_sub(pages.saturating_mul(PAGE as u64)))
}

/// What a processor fetches at a time.
const CACHE_LINE: usize = 64;

/// Asks the processor for bytes that will be looked at soon. Nothing else changes.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(CACHE_LINE) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, whatever the address.
        unsafe {
            use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a hint, whatever the address.
        unsafe {
            core::arch::asm!("prfm pldl1keep, [{}]", in(reg) line.as_ptr(), options(nostack, readonly, preserves_flags));
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
    }
}

/// Copies words of this process from an address where perhaps nothing is mapped, by a system call;
/// `false`: not all of them can be read (or a sandbox forbids the call). Async-signal-safe.
pub fn read_words(address: usize, words: &mut [usize]) -> bool {
    let bytes = size_of_val(words);
    let local = libc::iovec {
        iov_base: words.as_mut_ptr().cast(),
        iov_len: bytes,
    };
    let remote = libc::iovec {
        iov_base: ptr::without_provenance_mut(address),
        iov_len: bytes,
    };
    let own = crate::process::pid() as libc::pid_t;
    // SAFETY: `local` is a place for so many bytes, any of which make words; the kernel checks `remote`.
    let read = unsafe { libc::process_vm_readv(own, &local, 1, &remote, 1, 0) };
    usize::try_from(read) == Ok(bytes)
}

/// The size and alignment of a huge page on x86-64 and with AArch64's smallest pages.
const HUGE_PAGE: usize = 2 << 20;

/// A range of address space, whole pages. Memory is used only where it was touched or
/// [committed](Self::commit).
#[derive(Debug)]
pub struct Reservation {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; the methods that change it are system
// calls.
unsafe impl Send for Reservation {}
// SAFETY: as above; contents are reached through raw pointers, whose users answer for races.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `bytes` (rounded up to pages) of zeroed memory.
    ///
    /// # Errors
    /// The system refused (address space or commit limit).
    pub fn new(bytes: usize) -> Result<Self, Error> {
        let bytes = bytes
            .max(1)
            .checked_next_multiple_of(PAGE)
            .filter(|b| *b <= isize::MAX as usize)
            .ok_or(Error::new("mmap", rustix::io::Errno::NOMEM.raw_os_error()))?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of
        // anybody.
        let address = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }
        .map_err(|e| Error::new("mmap", e.raw_os_error()))?;
        let address = NonNull::new(address.cast::<u8>()).ok_or(Error::new("mmap", 0))?;
        Ok(Self { address, bytes })
    }

    /// The same, begun where a huge page can begin, and in huge pages where the system has them: for
    /// memory that will be committed as a whole. They are made present four times as fast, and a
    /// first look at a page costs a tenth (docs/design/event-buffer.md).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn new_huge(bytes: usize) -> Result<Self, Error> {
        if bytes < HUGE_PAGE {
            return Self::new(bytes);
        }
        let invalid = Error::new("mmap", rustix::io::Errno::NOMEM.raw_os_error());
        let whole = Self::new(bytes.checked_add(HUGE_PAGE).ok_or(invalid)?)?;
        let before = whole
            .address
            .as_ptr()
            .align_offset(HUGE_PAGE)
            .min(HUGE_PAGE);
        let bytes = whole.bytes - HUGE_PAGE;
        let (start, end) = (whole.address, before + bytes);
        let after = whole.bytes - end;
        core::mem::forget(whole);
        // SAFETY: inside the mapping, as `before` is at most what it was made longer by.
        let address = unsafe { start.add(before) };
        // SAFETY: as above.
        let tail = unsafe { address.add(bytes) };
        // What is not needed is given back; if the system refuses, it stays as address space.
        for (place, bytes) in [(start, before), (tail, after)] {
            if bytes > 0 {
                // SAFETY: a part of our own mapping (M1) that nobody has seen yet.
                let _ = unsafe { munmap(place.as_ptr().cast(), bytes) };
            }
        }
        let place = Self { address, bytes };
        // SAFETY: within the mapping; the advice changes no contents. Without effect where there are
        // no huge pages.
        let _ = unsafe { madvise(address.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Ok(place)
    }

    /// The first byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// The size in bytes, whole pages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes the pages of a range present, so that a first touch costs no page fault. What they
    /// hold is kept.
    ///
    /// # Errors
    /// The system has not that much memory, or the range is not inside the reservation.
    pub fn commit(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        let (start, bytes) = self.pages("madvise", offset, bytes)?;
        // SAFETY: the range lies within the mapping (checked by `pages`, M1); populating changes no
        // contents.
        match unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) } {
            Ok(()) => Ok(()),
            // Kernels before 5.14 do not know the advice: touch each page.
            Err(rustix::io::Errno::INVAL) => {
                for page in (0..bytes).step_by(PAGE) {
                    // SAFETY: within the mapping (M1).
                    let byte = unsafe { start.as_ptr().add(page) };
                    // SAFETY: the byte is mapped and valid for atomics; adding zero changes
                    // nothing, whoever else writes it.
                    let byte = unsafe { core::sync::atomic::AtomicU8::from_ptr(byte) };
                    byte.fetch_add(0, core::sync::atomic::Ordering::Relaxed);
                }
                Ok(())
            }
            Err(e) => Err(Error::new("madvise", e.raw_os_error())),
        }
    }

    /// Gives the pages of a range back to the system.
    ///
    /// # Safety
    /// Whatever the range held is zero afterwards: nobody may rely on its contents or access it
    /// meanwhile.
    ///
    /// # Errors
    /// The range is not inside the reservation.
    pub unsafe fn give_back(&self, offset: usize, bytes: usize) -> Result<(), Error> {
        let (start, bytes) = self.pages("madvise", offset, bytes)?;
        // SAFETY: the range lies within the mapping (M1) and the caller answers for its contents.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }
            .map_err(|e| Error::new("madvise", e.raw_os_error()))
    }

    /// Gives up ownership: the mapping stays for ever.
    pub fn leak(self) -> NonNull<u8> {
        let address = self.address;
        core::mem::forget(self);
        address
    }

    fn pages(
        &self,
        call: &'static str,
        offset: usize,
        bytes: usize,
    ) -> Result<(NonNull<u8>, usize), Error> {
        let invalid = Error::new(call, rustix::io::Errno::INVAL.raw_os_error());
        let end = offset
            .checked_add(bytes)
            .filter(|end| *end <= self.bytes)
            .ok_or(invalid)?;
        let start = offset / PAGE * PAGE;
        // SAFETY: `start` is inside the mapping (M1), as `start <= offset <= self.bytes`.
        Ok((unsafe { self.address.add(start) }, end - start))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours (M1) and, as we are being dropped, nobody uses it any more.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
