//! The `.netperf` / `.nettrace` trace format of .NET's EventPipe, versions 1 to 6, in both directions.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("trace.nettrace")?;
//! let mut reader = nettrace::Reader::new(file)?;
//! while let Some(event) = reader.next_event()? {
//!     let metadata = event.metadata();
//!     println!("{} {}/{} {} bytes", event.timestamp(), metadata.provider, metadata.name, event.payload().len());
//! }
//! # Ok(())
//! # }
//! ```

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "std"), allow(dead_code, reason = "reading needs std"))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::todo,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod error;
mod format;
mod guid;
mod info;
mod label;
mod metadata;
pub mod names;
pub mod payload;
#[cfg(feature = "std")]
mod read;
#[cfg(feature = "std")]
pub mod rewrite;
pub mod runtime_events;
mod schema;
mod thread_row;
pub mod views;
mod wire;
mod write;

pub use error::{Error, ErrorKind};
pub use format::metadata::{Unrepresentable, unrepresentable};
pub use guid::Guid;
pub use info::{FormatVersion, SystemTime, TraceInfo};
pub use label::Label;
pub use metadata::{Field, FieldType, Metadata};
#[cfg(feature = "std")]
pub use read::{
    DispatchOrder, Event, Item, Losses, Reader, ReaderOptions, SequencePoint, Skipped, Stack,
    Statistics, ThreadLosses,
};
pub use schema::Schema;
pub use thread_row::ThreadRow;
pub use write::{
    EventRecord, FORGET_METADATA, FORGET_THREADS, TraceWriter, UNKNOWN_PROCESSOR, WriteError,
    WriteFormat,
};

/// The highest version of the format that is read.
pub const MAX_FORMAT: u32 = 6;
/// The deepest nesting of types in a field list; an array counts for four levels.
pub const MAX_NESTING: usize = 32;
