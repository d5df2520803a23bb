//! The diagnostics codec on bytes from anywhere.
#![no_main]

#[path = "../../crates/dotnet-diagnostics/tests/common/property.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|data: &[u8]| property::holds(data));
