//! Feeds texts to the label parser and holds what comes out to its laws.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| snowflake_core::label::laws::hold(text));
