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

pub mod horizon; // before which instant no ID can appear any more
pub mod id; // what an ID is made of
pub mod label; // what a generator is made of, as text
pub mod lease; // which server has which worker ID
pub mod protocol; // how an ID is issued, how a mark is raised
pub mod sync;

#[cfg(test)]
mod tests;
