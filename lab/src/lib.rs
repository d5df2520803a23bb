//! The lab measures this project's engine beside the C++ and the C engine of .NET, and stresses all of them the same way.
//!
//! * [`Engine`] is an engine with a stress program; [`stress::run_once`] runs and accounts for it once.
//! * [`target`] is the stress program on this project's engine, [`emit`] one with every type of argument.
//! * [`mod@bench`] measures what an event costs its writer.
//! * [`account::Account`] says of each thread in a trace what was delivered and lost.
//! * [`compare`] runs a matrix on all engines and writes the document; [`size`] measures code size.
//! * [`read`] measures how fast traces are read, beside TraceEvent.
//! * [`floor`] measures what an event costs without an engine.
//! * [`process`] asks the kernel what a program cost.
//!
//! It is not part of the product: nothing depends on it. BENCHMARKING.md tells how to use the program `lab`.
#![forbid(unsafe_code)]

pub mod account;
pub mod bench;
pub mod compare;
pub mod counters;
pub mod emit;
mod engines;
pub mod floor;
pub mod instructions;
pub mod nativeaot;
pub mod process;
pub mod read;
pub mod record;
pub mod size;
pub mod statistics;
pub mod stress;
pub mod target;

pub use engines::Engine;
