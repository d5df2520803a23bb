//! A trace made into answers: reports, JSON, converters.
#![forbid(unsafe_code)]

pub mod events;
pub mod statistics;
