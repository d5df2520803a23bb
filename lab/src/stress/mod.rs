//! The stress suite: a program that writes events as fast as it can, a session of our client, and an exact account of what became
//! of every event. The same for every engine.

mod options;
mod reader;
mod report;
mod run;

pub use options::{Full, Kind, OnOff, Options, Pattern, StreamFormat};
pub use reader::{Counts, PROVIDER, ReaderMode, Reading, Sequenced, count};
pub use report::{Summary, print_outcome, print_summary, summarize};
pub use run::{Outcome, ThreadTime, run_once};
