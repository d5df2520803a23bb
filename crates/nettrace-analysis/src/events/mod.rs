//! The events of a trace as text for programs: JSON lines and CSV.
//!
//! Keys and encodings are those in which the TraceEvent library's reading of a trace is published beside our sample
//! traces, so that the two can be compared line by line: integers of 64 bits and addresses as decimal strings,
//! keywords as hexadecimal strings, byte arrays as hexadecimal digits, dates in ISO 8601 (UTC), infinities and NaN as
//! strings. Names of events and of their fields are TraceEvent's. Where its values are wrong, ours differ; the data of
//! the test `events_are_those_that_traceevent_reads` names each case.

mod csv_rows;
mod json_lines;
mod number;
mod value;

pub use csv_rows::CsvRows;
pub use json_lines::{JsonLines, Options, append_payload};
pub use value::append_json as append_json_value;
