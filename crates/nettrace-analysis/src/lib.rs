//! A trace made into answers: what the tool `eventpipe` prints about one, for programs.
//!
//! * [`activities`]: what begins with a start and ends with a stop event, and how long it took.
//! * [`events`]: every event as a line of JSON or CSV, with the names and values that TraceEvent shows. The keys, their types and units are
//!   listed in docs/json.md of the project.
//! * [`runtime`]: what the .NET runtime did: collections, allocations, exceptions, waits for locks, counters.
//! * [`statistics`]: counts, bytes, times and losses by event and by thread.
//! * [`stacks`]: stacks with names, and where a program's time goes: a table of functions, lines for flame graphs, a file for speedscope.app.
//!
//! ```no_run
//! use nettrace_analysis::events::{JsonLines, Options};
//! use nettrace_analysis::statistics::Collector;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = nettrace::Reader::new(std::fs::File::open("trace.nettrace")?)?;
//! let mut lines = JsonLines::new(reader.info(), Options::default());
//! let mut statistics = Collector::new();
//! let mut out = Vec::new();
//! while let Some(event) = reader.next_event()? {
//!     statistics.add(&event);
//!     lines.append(&event, &mut out); // one line with its end
//! }
//! println!("{}", String::from_utf8_lossy(&out));
//! for event in statistics.finish(&reader).events {
//!     println!("{:>8} {}/{}", event.count, event.provider, event.event);
//! }
//! # Ok(()) }
//! ```
//!
//! Nothing here opens a file or prints. But for [`activities`], [`stacks`] and what [`runtime`] lists, memory does not grow with the number of events.
#![forbid(unsafe_code)]

pub mod activities;
pub mod events;
pub mod runtime;
pub mod stacks;
pub mod statistics;
