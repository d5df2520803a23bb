//! Stack walks for EventPipe: by frame pointers, within the bounds of the thread's stack.
//!
//! No unwinding tables are read and nothing is allocated. Code that was compiled without frame
//! pointers (`-C force-frame-pointers=yes` keeps them) hides its callers or shows wrong ones; it
//! cannot make a walk leave the stack it runs on.
//!
//! ```
//! let mut frames = [0usize; 64];
//! let count = eventpipe_sampler::walk(&mut frames);
//! assert!(count <= 64);
//! ```

#![no_std]

#[cfg(any(feature = "std", test))]
extern crate std;

mod walk;

pub use walk::walk;
