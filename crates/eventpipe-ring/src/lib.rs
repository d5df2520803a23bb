//! The event buffer of EventPipe.
//!
//! Each thread writes each event *once*, tagged with the 64-bit set of sessions that want it, into
//! a block leased from a bounded arena that was made present beforehand. One drain collects what
//! was written, thread by thread, and gives the blocks back. Writers take no lock, make no system
//! call, allocate nothing and reach nothing that is ever freed.
//!
//! This crate knows no provider, no session but a bit number, no file format and no thread of its
//! own.
//!
//! Start with [`Ring`] (one for the process), [`EventKey`] (one per event) and [`Drain`] (one at a
//! time).
//!
//! ```
//! use eventpipe_ring::{EventKey, LossReason, Record, RecordOptions, Ring, Sink, ThreadInfo};
//!
//! static RING: Ring = Ring::new();
//! static HELLO: EventKey = EventKey::new(0b1); // session 0 wants it
//!
//! #[derive(Default)]
//! struct Count(usize);
//! impl Sink for Count {
//!     fn thread(&mut self, _: ThreadInfo) {}
//!     fn record(&mut self, record: &Record<'_>, _: bool) {
//!         assert_eq!(record.payload, b"hello");
//!         self.0 += 1;
//!     }
//!     fn lost(&mut self, _: u32, _: u64, _: LossReason) {}
//!     fn thread_ended(&mut self, _: u64) {}
//!     fn boundary(&mut self, _: u64) {}
//! }
//!
//! RING.start(1 << 20).unwrap();
//! RING.write(&HELLO, b"hello", &RecordOptions::default());
//! HELLO.mask.store(0, core::sync::atomic::Ordering::Relaxed);
//! RING.quiesce(); // nothing with the bit of session 0 is written any more
//! let mut count = Count::default();
//! let stopped = eventpipe_os::clock::ticks();
//! let mut drain = RING.drain().unwrap();
//! while drain.round(&mut count).boundary_ticks < stopped {}
//! assert_eq!(count.0, 1);
//! ```
//!
//! | feature | |
//! |---|---|
//! | `std` (default) | the calling thread's slot is found through a `thread_local!` instead of a pthread key |

#![no_std]

#[cfg(any(feature = "std", test, loom))]
extern crate std;

// In reading order; the blank lines keep it.
mod record;

mod ring;

mod write;

mod room;

mod drain;

mod slot;

mod arena;

mod layout;

mod stack;

mod sync;

#[cfg(not(loom))]
mod thread;

#[cfg(loom)]
pub mod model;

pub use drain::{Drain, Round};
pub use record::{
    EventKey, Like, LossReason, MAX_FRAMES, MAX_PAYLOAD, Payload, Record, RecordOptions, Records,
    SESSIONS, Sink, ThreadInfo,
};
pub use ring::{Ring, Statistics};
