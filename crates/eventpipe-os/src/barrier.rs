//! A pair of barriers whose cost is on the rare side.
//!
//! [`light`] and [`heavy`] together act like two sequentially consistent fences: of two threads of
//! which one does *store A, light, load B* and the other *store B, heavy, load A*, at least one
//! sees the other's store. Where the kernel has `membarrier`, `light` is only a compiler fence and
//! `heavy` makes every running thread of the process pass a full fence; elsewhere both are full
//! fences.
//!
//! Invariant B1: the state goes from unknown to *expedited* or *plain* once and stays there;
//! `light` omits the fence only in state *expedited*, and `heavy` omits the system call only in
//! state *plain*. So no pair ever lacks its half.

use core::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};
use rustix::thread::{MembarrierCommand, membarrier};

const UNKNOWN: u8 = 0;
const EXPEDITED: u8 = 1;
const PLAIN: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The cheap half, for the path that runs often.
#[inline(always)]
pub fn light() {
    if STATE.load(Ordering::Relaxed) == EXPEDITED {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The dear half (0.1–10 µs), for the path that runs rarely. Async-signal-safe.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if prepare() {
        // A registered process cannot be refused; a sandbox that forbids the call later on leaves
        // us with the fence.
        let _ = membarrier(MembarrierCommand::PrivateExpedited);
    }
    fence(Ordering::SeqCst);
}

/// Asks the kernel for the fast kind; `true` when it is in use. Called by [`heavy`]; calling it
/// early (before the first event) only moves the cost of about 20 µs.
pub fn prepare() -> bool {
    match STATE.load(Ordering::Acquire) {
        EXPEDITED => true,
        PLAIN => false,
        _ => {
            let new = match membarrier(MembarrierCommand::RegisterPrivateExpedited) {
                Ok(()) => EXPEDITED,
                Err(_) => PLAIN,
            };
            match STATE.compare_exchange(UNKNOWN, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => new == EXPEDITED,
                Err(other) => other == EXPEDITED,
            }
        }
    }
}

/// Forbids `membarrier`: both halves are full fences from now on. For measuring the difference; has
/// an effect only before the first [`heavy`] or [`prepare`] of the process. `true` when full fences
/// are in use.
pub fn use_plain_fences() -> bool {
    match STATE.compare_exchange(UNKNOWN, PLAIN, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => true,
        Err(state) => state == PLAIN,
    }
}
