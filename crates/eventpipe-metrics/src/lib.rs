//! Counters of a program, as `dotnet-counters` shows them and dashboards of .NET read them: the shape is that of EventCounters
//! (nettrace.md 11.5).
//!
//! ```
//! use eventpipe_metrics::{About, Counters, Samples, Sum};
//!
//! static REQUESTS: Sum = Sum::new();
//! static LATENCY: Samples = Samples::new();
//!
//! fn main() {
//!     eventpipe::start();
//!     Counters::new("Demo-Counters")
//!         .sum(About::new("requests").display_name("Requests").units("requests"), &REQUESTS)
//!         .samples(About::new("latency").display_name("Latency").units("ms"), &LATENCY)
//!         .value(About::new("answer"), || 42.0)
//!         .register();
//!
//!     REQUESTS.add(1);
//!     LATENCY.record(0.8);
//! }
//! ```
//!
//! `dotnet-counters monitor -p PID --counters Demo-Counters` shows a row for each, every second.
//!
//! A counter costs nothing while nobody asks for it: [`Sum::add`] is one relaxed addition, [`Samples::record`] one relaxed load. While
//! a session asks for a group with the argument `EventCounterIntervalSec=SECONDS`, one thread for the whole program publishes at that
//! interval; without such a session there is no thread. Sessions with different intervals each get their own, which they tell apart by
//! the field `Series`.

#![forbid(unsafe_code)]

mod counter;
mod group;
mod payload;
mod process;
mod publisher;

pub use counter::{About, Samples, Sum};
pub use group::Counters;
pub use process::process_counters;
