//! The one error of this crate: which call failed, and with what number.

use core::fmt;

/// A system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was attempted, e.g. `"mmap"`.
    pub call: &'static str,
    /// The error number (`errno`) of the system.
    pub number: i32,
}

impl Error {
    /// A request that no system could fulfil.
    pub const fn out_of_memory(call: &'static str) -> Self {
        Self {
            call,
            number: libc::ENOMEM,
        }
    }

    /// Something that somebody else uses, and for too long to be waited for.
    pub const fn busy(call: &'static str) -> Self {
        Self {
            call,
            number: libc::EBUSY,
        }
    }

    pub(crate) const fn new(call: &'static str, number: i32) -> Self {
        Self { call, number }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed with error {}", self.call, self.number)
    }
}

impl core::error::Error for Error {}
