//! What the .NET runtime did, by its own events: collections, allocations, exceptions, waits for locks; and counters of the
//! runtime and of programs.
//!
//! Each is a collector that takes every event of a trace once, by time, and then makes a report:
//!
//! ```no_run
//! use nettrace_analysis::runtime::Collections;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let reader = nettrace::Reader::new(std::fs::File::open("trace.nettrace")?)?;
//! let (info, mut events) = (reader.info().clone(), reader.dispatch_order());
//! let mut collections = Collections::new();
//! while let Some(event) = events.next_event()? {
//!     collections.add(&info, &event);
//! }
//! for collection in collections.finish().collections {
//!     println!("#{}: {:?} ms", collection.number, collection.pause_ms);
//! }
//! # Ok(()) }
//! ```
//!
//! A report is as good as the session that was recorded: which keywords and levels each needs stands with it. Times are milliseconds since the
//! start of the trace, sizes bytes. Memory grows with what is listed: collections, types, different exceptions, counters.

mod allocations;
mod collections;
mod contention;
mod counters;
mod exceptions;

pub use allocations::{AllocatedType, AllocationReport, Allocations};
pub use collections::{Collection, CollectionReport, Collections};
pub use contention::{Contention, ContentionReport, Waits};
pub use counters::{CounterReport, CounterSeries, Counters};
pub use exceptions::{ExceptionReport, Exceptions, Thrown};

use nettrace::{Event, TraceInfo};

/// When an event was, in milliseconds since the start of the trace.
fn milliseconds(info: &TraceInfo, event: &Event<'_>) -> f64 {
    info.nanoseconds(event.timestamp()) as f64 / 1e6
}
