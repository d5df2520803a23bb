//! Descriptions from anywhere, in the layouts of V4 and V6.
#![no_main]

#[path = "../../crates/nettrace/tests/support/property.rs"]
#[allow(dead_code, reason = "each target tries one of its properties")]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::metadata_holds(data));
