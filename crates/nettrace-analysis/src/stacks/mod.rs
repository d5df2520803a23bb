//! Stacks with names, and where a program's time goes.
//!
//! * [`CodeNames`] knows which function an address is in: methods of .NET by the runtime's events, native functions by the modules that a
//!   process told of and by whatever is known of their files.
//! * [`CallTree`] holds each stack once, whatever number of events has it.
//! * [`Samples`] adds up thread time by stack, from the runtime's sample profiler, or counts events by stack.
//! * [`functions`] makes a table of functions of that, [`folded`] lines for flame graphs, [`speedscope`] a file for <https://speedscope.app>.
//!
//! A trace tells the names at its end, so frames are addresses until it has been read:
//!
//! ```no_run
//! use nettrace_analysis::stacks::{self, CodeNames, Measure, Samples};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut reader = nettrace::Reader::new(std::fs::File::open("trace.nettrace")?)?.dispatch_order();
//! let (mut names, mut samples) = (CodeNames::new(), Samples::new(Measure::ThreadTime));
//! let info = reader.reader().info().clone();
//! while let Some(event) = reader.next_event()? {
//!     names.add(&event);
//!     samples.add(&info, &event);
//! }
//! for function in stacks::functions(&samples, &names).rows.iter().take(10) {
//!     println!("{:>6.2} % {}", function.exclusive_percent, function.name);
//! }
//! # Ok(()) }
//! ```
//!
//! Memory grows with the number of different stacks and of methods, and with the number of samples where their order is kept, as
//! [`speedscope`] needs it.

mod folded;
mod functions;
mod names;
mod samples;
mod speedscope;
mod tree;

pub use folded::folded;
pub use functions::{Function, Functions, functions};
pub use names::{CodeNames, Module};
pub use samples::{Kind, Measure, Samples};
pub use speedscope::speedscope;
pub use tree::{CallTree, Frame, Node};
