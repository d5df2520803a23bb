//! Under construction.

#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod guid;
mod metadata;

pub use guid::Guid;
pub use metadata::{Field, FieldType, Metadata};
