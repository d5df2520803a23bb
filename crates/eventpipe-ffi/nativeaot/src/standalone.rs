//! What a static library without std must bring along: memory from the C library, and an end for panics.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

struct CAllocator;

#[global_allocator]
static ALLOCATOR: CAllocator = CAllocator;

/// What `malloc` aligns to on every 64-bit system.
const MALLOC_ALIGN: usize = 16;

// SAFETY: memory comes from `malloc`, `calloc`, `realloc` and `posix_memalign`, which keep what the trait asks for up to the
// alignment that is tested here.
unsafe impl GlobalAlloc for CAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: no preconditions.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut memory = core::ptr::null_mut();
        // SAFETY: a valid place for the pointer; the alignment is a power of two and a multiple of a pointer's size.
        match unsafe { libc::posix_memalign(&mut memory, layout.align(), layout.size()) } {
            0 => memory.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _layout: Layout) {
        // SAFETY: the caller's memory is one of ours, and all of ours may be given to `free`.
        unsafe { libc::free(memory.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: no preconditions.
            return unsafe { libc::calloc(layout.size(), 1) }.cast();
        }
        // SAFETY: the caller's layout.
        let memory = unsafe { self.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: as much was just allocated.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: the caller's memory is one of ours.
            return unsafe { libc::realloc(memory.cast(), new_size) }.cast();
        }
        // SAFETY: the caller promises that the new size is not 0 and does not overflow when rounded up to the alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        // SAFETY: a layout of the size that the caller promises to be valid.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both are at least so long, and they are different allocations.
            unsafe { new.copy_from_nonoverlapping(memory, layout.size().min(new_size)) };
            // SAFETY: the caller's memory, which nobody uses any more.
            unsafe { self.dealloc(memory, layout) };
        }
        new
    }
}

/// A panic is a mistake in the engine. It is not formatted, because the machinery for that is larger than the engine.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    eventpipe_os::process::write_standard_error(b"eventpipe: internal error\n");
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

/// The precompiled parts of `core` name this symbol in their unwind tables. Nothing unwinds (N1), so nothing calls it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
