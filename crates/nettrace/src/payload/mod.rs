//! What an event carries, decoded by its description (nettrace.md 8).
//!
//! A [`Layout`] is made once per metadata row. [`Layout::fields`] walks over one payload and yields names and
//! [`Value`]s that borrow from it: no allocation, every access checked against the payload's end, time proportional
//! to the payload whatever the description claims. Descriptions may be wrong (nettrace.md 8.4): a payload that ends
//! early gives the fields before its end, bytes behind the last field are [`Fields::rest`].
//!
//! The runtimes' own events have no description in the stream; [`crate::runtime_events`] knows theirs.

mod fields;
mod file_time;
mod layout;
mod owned;
mod utf16;

pub use fields::{Elements, Fields, Object, Value};
pub use file_time::FileTime;
pub use layout::Layout;
pub(crate) use layout::{Count, Kind, LayoutField};
pub use owned::{OwnedFields, OwnedValue};
pub use utf16::Utf16;

#[cfg(test)]
mod tests;
