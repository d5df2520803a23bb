//! Stack walks for EventPipe: by frame pointers, within the bounds of the thread's stack.
//!
//! No unwinding tables are read and nothing is allocated. Code that was compiled without frame
//! pointers (`-C force-frame-pointers=yes` keeps them) hides its callers or shows wrong ones; it
//! cannot make a walk leave the stack it runs on.
//!
//! ```
//! use core::mem::MaybeUninit;
//!
//! let mut place = [MaybeUninit::uninit(); 64];
//! let frames = eventpipe_sampler::walk(&mut place);
//! assert!(frames.len() <= 64);
//! ```
//!
//! | feature | |
//! |---|---|
//! | `std` (default) | a thread remembers its last walk, which makes the next one up to twice as fast |

#![no_std]

#[cfg(any(feature = "std", test))]
extern crate std;

mod walk;

pub use walk::walk;
