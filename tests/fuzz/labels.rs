//! Feeds texts to the label parser and holds what comes out to its laws.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../src/snowflake/mod.rs"]
mod snowflake;

mod laws;

fuzz_target!(|text: &str| laws::hold(text));
