//! What EventPipe needs of the operating system, without `std`.
//!
//! Everything here is a small safe function over one or two system calls. The crate knows nothing
//! of events. It is written for Linux (x86-64 and AArch64); nothing outside this crate asks the
//! system for anything but sockets, files and `poll`, which go through `rustix`.
//!
//! * [`clock`]: ticks of the processor, and their place on `CLOCK_MONOTONIC`
//! * [`thread`]: ids, names, stack bounds, threads of our own, one pointer per thread with an exit
//!   hook
//! * [`sync`]: a lock, an event, a once-cell on futexes
//! * [`memory`]: address space that is reserved once and filled or emptied on demand
//! * [`barrier`]: a fence whose cost is on the rare side
//! * [`order`]: sorting in little code
//! * [`text`]: strings and numbers of bytes, in little code
//! * `dump` (feature): a core file of the running process
//! * `mapped_file` (feature): a file looked at where it lies in the system's memory
//! * [`signal`]: whether the calling code runs in a signal handler
//! * [`process`]: pid, start time, command line, environment, exit and fork hooks
//!
//! ```
//! use eventpipe_os::clock::{self, Clock};
//! let mut clock = Clock::new();
//! let ticks = clock::ticks();
//! assert!(clock.to_ns(ticks) <= clock::monotonic_ns() + 1_000_000);
//! ```
//!
//! | feature | |
//! |---|---|
//! | `std` (default) | the per-thread pointer is a `thread_local!` instead of a thread-local variable defined in assembly (x86-64; both 0.7 ns) or a pthread key (elsewhere; 2.6 ns) |

#![no_std]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod barrier;
pub mod chunks;
pub mod clock;
#[cfg(feature = "dump")]
pub mod dump;
mod error;
#[cfg(feature = "mapped-file")]
pub mod mapped_file;
pub mod memory;
pub mod order;
pub mod process;
pub mod signal;
pub mod sync;
pub mod text;
pub mod thread;

pub use error::Error;
