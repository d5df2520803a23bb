//! A trace from anywhere: every version, both orders, recovery, and writing it anew.
#![no_main]

#[path = "../../crates/nettrace/tests/support/property.rs"]
#[allow(dead_code, reason = "each target tries one of its properties")]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::reader_holds(data));
