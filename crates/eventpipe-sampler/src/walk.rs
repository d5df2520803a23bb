//! The walk along saved frame pointers.
//!
//! Invariant W1: every address that is read is 8-byte aligned, lies in the readable mapping of the
//! stack that the walking thread runs on, and above the frame where the walk began. Memory there is
//! in use by our own callers, so it stays while we look.

use eventpipe_os::thread::{StackBounds, stack_bounds};

/// What a function with a frame pointer leaves at the place that it points to.
type Frame = [usize; 2];

/// Writes the return addresses on the calling thread's stack into `frames`, innermost first,
/// beginning with the one in the caller of `walk`; how many there were. When all of `frames` was
/// filled there may be more: pass one place more than you keep to know whether the stack was cut.
///
/// About 1–2 ns a frame, and some microseconds the first time on a thread. Allocates nothing;
/// async-signal-safe. Empty on processors other than x86-64 and AArch64.
#[inline(never)]
pub fn walk(frames: &mut [usize]) -> usize {
    let frame = own_frame();
    match stack_bounds(frame.addr()) {
        Some(bounds) => follow(frame, bounds, frames),
        None => 0,
    }
}

/// The frame of the function that this is inlined into.
#[inline(always)]
fn own_frame() -> *const Frame {
    let frame: *const Frame;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("mov {}, rbp", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) frame, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        frame = core::ptr::null();
    }
    frame
}

fn follow(mut frame: *const Frame, bounds: StackBounds, frames: &mut [usize]) -> usize {
    let mut count = 0;
    // The lowest address that the next frame may have.
    let mut lowest = bounds.low;
    let Some(highest) = bounds.high.checked_sub(size_of::<Frame>()) else {
        return 0;
    };
    for place in frames {
        let address = frame.addr();
        if address < lowest || address > highest || !address.is_multiple_of(align_of::<Frame>()) {
            break;
        }
        // SAFETY: W1: aligned and inside the mapping. Volatile, as the compiler knows nothing of
        // this memory.
        let [caller, return_address] = unsafe { frame.read_volatile() };
        if return_address == 0 {
            break;
        }
        *place = return_address;
        count += 1;
        // Frames of callers lie higher, so every walk ends.
        lowest = address + size_of::<Frame>();
        frame = frame.with_addr(caller);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[inline(never)]
    fn deeper(levels: u32, frames: &mut [usize]) -> usize {
        let count = if levels == 0 {
            walk(frames)
        } else {
            deeper(levels - 1, frames)
        };
        // Not a tail call.
        std::hint::black_box(count)
    }

    fn range_of(function: usize) -> impl Fn(&usize) -> bool {
        move |address| (function..function + 4096).contains(address)
    }

    #[test]
    fn a_walk_finds_its_callers_innermost_first() {
        let mut frames = [0; 64];
        let count = deeper(10, &mut frames);
        let inside = frames[..count]
            .iter()
            .filter(|f| range_of(deeper as *const () as usize)(f))
            .count();
        assert!(
            count >= 12 && inside >= 11,
            "{count} frames, {inside} of them ours"
        );
        let repeated: Vec<usize> = frames[1..11].to_vec();
        assert!(
            repeated.iter().all(|f| *f == repeated[0]),
            "the recursion returns to the same place"
        );
    }

    #[test]
    fn a_walk_stops_when_the_buffer_is_full() {
        let mut frames = [0; 3];
        assert_eq!(deeper(10, &mut frames), 3);
        assert_eq!(walk(&mut []), 0);
    }

    #[test]
    fn a_walk_works_on_every_thread() {
        for _ in 0..20 {
            let count = std::thread::spawn(|| deeper(5, &mut [0; 64]))
                .join()
                .unwrap();
            assert!(count >= 6);
        }
    }

    #[test]
    fn a_broken_chain_ends_the_walk() {
        let mut stack: [Frame; 4] = [[0, 11], [0, 22], [0, 33], [1, 44]];
        let start = stack.as_ptr();
        let at = |index: usize| start.addr() + index * size_of::<Frame>();
        stack[0][0] = at(1);
        stack[1][0] = at(3);
        let bounds = StackBounds {
            low: at(0),
            high: at(4),
        };
        let mut frames = [0; 8];
        let start = stack.as_ptr();
        assert_eq!(follow(start, bounds, &mut frames), 3);
        assert_eq!(frames[..3], [11, 22, 44]);
        // Downwards, unaligned, outside: the end.
        stack[1][0] = at(0);
        assert_eq!(follow(stack.as_ptr(), bounds, &mut frames), 2);
        stack[1][0] = at(2) + 1;
        assert_eq!(follow(stack.as_ptr(), bounds, &mut frames), 2);
        stack[1][0] = at(4);
        assert_eq!(follow(stack.as_ptr(), bounds, &mut frames), 2);
        assert_eq!(follow(core::ptr::null(), bounds, &mut frames), 0);
    }
}
