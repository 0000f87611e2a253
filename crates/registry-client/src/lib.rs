//! Talks to registries of worker IDs, and to other servers.
//!
//! - This crate cannot call PostgreSQL, since it does not know it. So a thread of a background
//!   worker may run all that is here. What waits in a session is given by it: a
//!   [`libpq::wait::Waiter`].
//! - It decides nothing about worker IDs: requests, replies and what is stored are
//!   `snowflake_core`'s.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)
)]

pub mod etcd; // a client of registries in etcd
pub mod libpq; // a client of other servers
pub mod mailbox; // how a thread that waits for other servers hands over
pub mod postgres; // a registry in PostgreSQL
pub mod request; // requests to a registry, and the thread that carries them
pub mod wire; // messages between servers and a registry
