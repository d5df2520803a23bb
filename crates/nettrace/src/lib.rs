//! The `.netperf` / `.nettrace` trace format of .NET's EventPipe, versions 1 to 6, in both directions.
//!
//! All events of a file, with their names and values:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("trace.nettrace")?;
//! let mut reader = nettrace::Reader::new(file)?;
//! while let Some(event) = reader.next_event()? {
//!     let (provider, schema) = (&event.metadata().provider, event.schema());
//!     print!("{} thread {} {provider}/{}", event.timestamp(), event.thread_id(), schema.event_name());
//!     for (name, value) in schema.fields(event.payload()) {
//!         print!(" {name}={value:?}");
//!     }
//!     println!();
//! }
//! println!("{} events lost", reader.losses().total());
//! # Ok(())
//! # }
//! ```
//!
//! # What it is
//!
//! [`Reader`] reads any version from any [`std::io::Read`], a pipe or a socket too, in bounded memory, and lends each
//! [`Event`] out of the block that holds it; nothing is copied. Events come in the order of the file;
//! [`Reader::dispatch_order`] gives them by time, as TraceEvent dispatches them. [`Losses`] says what the traced
//! program could not keep. A file that was cut off gives everything that is whole and then one [`Error`], which says
//! what is wrong at which offset; with [`ReaderOptions::recover`] damage in the middle is skipped and noted.
//! [`Reader::with_read_ahead`] is for large files: a second thread fetches bytes while events are looked at.
//! [`Reader::in_place`] is for traces that lie in memory already, as those of mapped files do: nothing is copied.
//!
//! [`TraceWriter`] writes V4 and V6 into memory that the caller moves on, without std. [`rewrite`] makes a trace anew:
//! in another format, cut by time, provider or thread, joined with others, or whole again.
//!
//! [`Event::schema`] names and decodes events by their descriptions, or by the tables of [`runtime_events`] for the
//! runtimes' own, which have none; [`payload`] has the values, [`views`] typed structs for the events that tools need.
//!
//! # What it is not
//!
//! It opens no file and knows no process: give it bytes. It turns no address into a name and adds nothing up; that is
//! the crate `nettrace-analysis`.
//!
//! # Traces from anywhere
//!
//! Files are taken to be hostile: no byte makes the reader panic, recurse without bound, run in more than linear time
//! or take memory that the file does not justify (64 MiB are enough for any input of 1 MB). The crate has no unsafe
//! code.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `std` | yes | the reader, rewriting, and `v6`. Without it: the writer, payloads, names, for `no_std` with `alloc` |
//! | `v6` | with `std` | writing of version 6. Without it [`TraceWriter`] writes V4 whatever it is asked for |
//!
//! The sections that the documentation of items names (nettrace.md) are those of this project's own description of the format. Microsoft's is
//! public: [`NetTraceFormat.md`](https://github.com/microsoft/perfview/blob/main/src/TraceEvent/EventPipe/NetTraceFormat.md) and its neighbours in
//! the repository of PerfView, whose TraceEvent library reads the format too.

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
pub mod pattern;
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
    DispatchOrder, Event, Item, Losses, ReadAhead, Reader, ReaderOptions, SequencePoint, Skipped,
    Stack, Statistics, ThreadLosses, Window,
};
pub use schema::Schema;
pub use thread_row::ThreadRow;
pub use write::{
    EventRecord, FORGET_METADATA, FORGET_THREADS, NetPerfWriter, TraceWriter, UNKNOWN_PROCESSOR,
    WriteError, WriteFormat,
};

/// The example of the README compiles.
#[cfg(all(doctest, feature = "std"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The highest version of the format that is read.
pub const MAX_FORMAT: u32 = 6;
/// The deepest nesting of types in a field list; an array counts for four levels.
pub const MAX_NESTING: usize = 32;
