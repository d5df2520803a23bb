//! Payloads and their descriptions of any bytes.
#![no_main]

#[path = "../../crates/nettrace-analysis/tests/common/payload_property.rs"]
mod payload_property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| payload_property::holds(data));
