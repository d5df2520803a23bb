//! Threads as V6 describes them (nettrace.md 6.5).

use alloc::string::String;
use alloc::vec::Vec;

/// A row of the thread table of V6.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadRow {
    /// The process, if the row says.
    pub process_id: Option<u64>,
    /// The operating system's number of the thread; 0 stands for the process as a whole.
    pub thread_id: Option<u64>,
    /// Name.
    pub name: Option<String>,
    /// Anything else.
    pub key_values: Vec<(String, String)>,
}
