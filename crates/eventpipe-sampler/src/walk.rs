//! The walk along saved frame pointers.
//!
//! Invariant W1: every address that is read is 8-byte aligned, lies on the walking thread's own stack,
//! and above the frame where the walk began. So it stays mapped while we look, whatever a register
//! without a frame pointer holds.
//!
//! Of another stack (a fibre's, a signal handler's) nobody knows where it ends or what will be unmapped
//! beside it. There the system is asked to copy what the walk wants to see, which costs some hundred
//! nanoseconds for a few frames.
//!
//! A walk is a chain of loads, each of which waits for the one before: about five cycles a frame.
//! Most walks of a thread find the frames of its last walk again, so each step compares what it
//! loads with what was there last time and goes on with that: the processor predicts the comparison
//! and need not wait for the load. What was remembered is never taken unseen.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use eventpipe_os::thread::{StackBounds, stack_bounds};

/// What a function with a frame pointer leaves at the place that it points to.
type Frame = [usize; 2];

/// Finds the return addresses on the calling thread's stack, innermost first, beginning with the one
/// in the caller of `walk`. When all of `place` was filled there may be more: pass one more than you
/// keep to know whether the stack was cut.
///
/// About 1–2 ns a frame, and some microseconds the first time on a thread. On a stack that is not the
/// thread's own 100 ns a frame, and without `std` nothing is found there. Allocates nothing;
/// async-signal-safe. Empty on processors other than x86-64 and AArch64.
#[inline(never)]
pub fn walk(place: &mut [MaybeUninit<usize>]) -> &[usize] {
    let frame = own_frame();
    match stack_bounds(frame.addr()) {
        Some(bounds) => with_last(|last| follow(frame, bounds, place, last)),
        None => follow_elsewhere(frame, place),
    }
}

/// The walk on a stack that may be unmapped where the next frame seems to be.
#[cfg(feature = "std")]
#[cold]
#[inline(never)]
fn follow_elsewhere(frame: *const Frame, place: &mut [MaybeUninit<usize>]) -> &[usize] {
    use eventpipe_os::memory::{PAGE, read_words};

    let mut window = [0; 64];
    // What the window shows: from where, and how many words.
    let (mut start, mut length) = (0, 0);
    let (mut at, mut lowest) = (frame.addr(), 1);
    let mut count = 0;
    for place in place.iter_mut() {
        if at < lowest || !at.is_multiple_of(align_of::<Frame>()) {
            break;
        }
        let mut index = at.wrapping_sub(start) / size_of::<usize>();
        if index + 1 >= length {
            // Not into the next page, unless the frame does: it may be another mapping, or none.
            let in_page = (PAGE - at % PAGE) / size_of::<usize>();
            length = in_page.clamp(2, window.len());
            if !window
                .get_mut(..length)
                .is_some_and(|words| read_words(at, words))
            {
                break;
            }
            (start, index) = (at, 0);
        }
        let Some([caller, return_address]) =
            window.get(index..index + 2).and_then(|f| f.first_chunk())
        else {
            break;
        };
        if *return_address == 0 {
            break;
        }
        place.write(*return_address);
        count += 1;
        lowest = at + size_of::<Frame>();
        at = *caller;
    }
    // SAFETY: so many places were written, one after another, from the first on.
    unsafe { core::slice::from_raw_parts(place.as_ptr().cast(), count) }
}

#[cfg(not(feature = "std"))]
fn follow_elsewhere(_: *const Frame, _: &mut [MaybeUninit<usize>]) -> &'static [usize] {
    &[]
}

/// How many frames are remembered.
#[cfg(feature = "std")]
const REMEMBERED: usize = 64;

/// Lends the addresses of the frames that the calling thread's last walk found. A signal handler's
/// walk in the middle of another may change them: they are only guesses.
#[cfg(feature = "std")]
#[inline(always)]
fn with_last<R>(use_them: impl FnOnce(&[AtomicUsize]) -> R) -> R {
    std::thread_local! {
        static LAST: [AtomicUsize; REMEMBERED] = const { [const { AtomicUsize::new(0) }; REMEMBERED] };
    }
    LAST.with(|last| use_them(last))
}

/// Without `std` nothing is remembered.
#[cfg(not(feature = "std"))]
#[inline(always)]
fn with_last<R>(use_them: impl FnOnce(&[AtomicUsize]) -> R) -> R {
    use_them(&[])
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

/// The same number, of which the compiler does not know where it came from.
#[inline(always)]
fn opaque(mut number: usize) -> usize {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction at all.
    unsafe {
        core::arch::asm!("/* {} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// Where a walk is.
struct Position {
    frame: *const Frame,
    /// The lowest and the highest address that the frame may have.
    lowest: usize,
    highest: usize,
}

impl Position {
    /// What the frame, an aligned address, holds: its caller's frame and the return address. `None`: the
    /// walk ends here.
    #[inline(always)]
    fn look(&self) -> Option<Frame> {
        let address = self.frame.addr();
        if address < self.lowest || address > self.highest {
            return None;
        }
        // SAFETY: W1: aligned and inside the mapping. Volatile, as the compiler knows nothing of
        // this memory.
        let frame = unsafe { self.frame.read_volatile() };
        (frame[1] != 0).then_some(frame)
    }

    #[inline(always)]
    fn go_to(&mut self, caller: usize) {
        // Frames of callers lie higher, so every walk ends.
        self.lowest = self.frame.addr() + size_of::<Frame>();
        self.frame = self.frame.with_addr(caller);
    }
}

#[inline(always)]
fn follow<'f>(
    frame: *const Frame,
    bounds: StackBounds,
    place: &'f mut [MaybeUninit<usize>],
    last: &[AtomicUsize],
) -> &'f [usize] {
    let Some(highest) = bounds.high.checked_sub(size_of::<Frame>()) else {
        return &[];
    };
    let is_aligned = |address: usize| address.is_multiple_of(align_of::<Frame>());
    if !is_aligned(frame.addr()) {
        return &[];
    }
    let mut position = Position {
        frame,
        lowest: bounds.low,
        highest,
    };
    let mut count = 0;
    let (near, far) = place.split_at_mut(last.len().min(place.len()));
    'walk: {
        for (place, last) in near.iter_mut().zip(last) {
            let guess = last.load(Ordering::Relaxed);
            let Some([caller, return_address]) = position.look() else {
                break 'walk;
            };
            place.write(return_address);
            count += 1;
            // The same address in either case. But in the first one it does not depend on what was just loaded, and the
            // compiler, which sees that both are the same, must not make it so.
            if caller == guess {
                // Aligned, as everything that is remembered.
                position.go_to(opaque(guess));
            } else if !is_aligned(caller) {
                break 'walk;
            } else {
                last.store(caller, Ordering::Relaxed);
                position.go_to(caller);
            }
        }
        for place in far {
            let Some([caller, return_address]) = position.look() else {
                break;
            };
            place.write(return_address);
            count += 1;
            if !is_aligned(caller) {
                break;
            }
            position.go_to(caller);
        }
    }
    // SAFETY: so many places were written, one after another, from the first on.
    unsafe { core::slice::from_raw_parts(place.as_ptr().cast(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// What a walk below so many calls finds, and again with the same depth.
    #[inline(never)]
    fn deeper(levels: u32, most: usize) -> Vec<usize> {
        let frames = if levels == 0 {
            walk(&mut std::vec![MaybeUninit::uninit(); most]).to_vec()
        } else {
            deeper(levels - 1, most)
        };
        // Not a tail call.
        std::hint::black_box(frames)
    }

    fn is_in(function: usize) -> impl Fn(&&usize) -> bool {
        move |address| (function..function + 4096).contains(*address)
    }

    #[test]
    fn a_walk_finds_its_callers_innermost_first() {
        let frames = deeper(10, 64);
        let inside = frames
            .iter()
            .filter(is_in(deeper as *const () as usize))
            .count();
        assert!(
            frames.len() >= 12 && inside >= 11,
            "{} frames, {inside} of them ours",
            frames.len()
        );
        let repeated: Vec<usize> = frames[1..11].to_vec();
        assert!(
            repeated.iter().all(|f| *f == repeated[0]),
            "the recursion returns to the same place"
        );
    }

    #[test]
    fn what_is_remembered_of_one_stack_does_not_show_in_another() {
        std::thread::spawn(|| {
            let base = deeper(0, 200).len();
            for round in 0..3 {
                for depth in [3, 90, 7, 7, 61, 0, 2] {
                    let frames = deeper(depth, 200);
                    assert_eq!(frames.len(), base + depth as usize, "in round {round}");
                    let same = frames[1..=depth as usize].iter().all(|f| *f == frames[1]);
                    assert!(same, "{depth} calls of one function, in round {round}");
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_walk_stops_when_the_buffer_is_full() {
        assert_eq!(deeper(10, 3).len(), 3);
        assert!(walk(&mut []).is_empty());
    }

    #[test]
    fn a_walk_works_on_every_thread() {
        for _ in 0..20 {
            let count = std::thread::spawn(|| deeper(5, 64).len()).join().unwrap();
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
        let last = [const { AtomicUsize::new(0) }; 2];
        // Nothing remembered, remembered in part, remembered wrongly.
        for guesses in [[0, 0], [at(1), at(2)], [at(1), at(3)], [at(8), at(0)]] {
            let found = |start| {
                for (last, guess) in last.iter().zip(guesses) {
                    last.store(guess, Ordering::Relaxed);
                }
                follow(start, bounds, &mut [MaybeUninit::uninit(); 8], &last).to_vec()
            };
            stack[1][0] = at(3);
            let start = stack.as_ptr();
            assert_eq!(found(start), [11, 22, 44]);
            // Downwards, unaligned, outside: the end.
            for wrong in [at(0), at(2) + 1, at(4)] {
                stack[1][0] = wrong;
                assert_eq!(found(stack.as_ptr()), [11, 22]);
            }
            assert!(found(core::ptr::null()).is_empty());
        }
    }
}
