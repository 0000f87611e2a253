//! The core: what an ID is and which one comes next.
//!
//! Pure Rust that does not know PostgreSQL. Clocks, disk, locks and sleep belong to a
//! [`protocol::host::Host`]; errors are values, and the only shared state is atomics whose
//! owner is elsewhere. The extension, which is the root package, is one host; the models,
//! scripts and threads of the tests are others.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod clock; // which time a generator believes
pub mod clock_seq; // which clock sequences have been used, for policies that change them
pub mod cursor; // the next position: issue, wait or reserve
pub mod duration; // how a length of time reads as text
pub mod excerpt; // what a message shows of a text
pub mod explain; // an ID, for a person to read
pub mod generator; // what a generator is made of: layout and policy
pub mod horizon; // before which instant no ID can appear any more
pub mod id; // the numbers that everything else is made of
pub mod label; // layout and policy as text
pub mod layout; // which bit means what, and which instant a tick is
pub mod lease; // which server has which worker ID
pub mod lock_list; // by which locks transactions hold generators
pub mod mask; // IDs that tell nothing without a key
pub mod plan; // how far IDs may be issued before the next durable mark
pub mod policy; // how far a generator may go, and where a tick's sequence numbers start
pub mod presets; // the texts of the schemes that people run
pub mod protocol; // how an ID is issued, how a mark is raised
pub mod rotation; // how a generator goes back in time under another worker ID
pub mod shuffle; // a tick's sequence numbers in an unpredictable order
pub mod slot; // all shared state of a generator
pub mod stats; // what a generator has done
pub mod sync;
pub mod tenure; // who the server is: its worker ID, and within which time it issues
pub mod text; // IDs as text

#[cfg(all(test, not(loom)))]
mod label_tests;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod laws; // what is true of every text that is taken for a label
#[cfg(test)]
mod tests;
