//! The fuzz target `validate`; `bodies.rs` states the properties that it checks.

#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::validate(bytes));
