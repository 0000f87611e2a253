//! Talks to registries of worker IDs, and to other servers.
//!
//! - This crate cannot call PostgreSQL, since it does not know it. So a thread of a background
//!   worker may run all that is here. What waits in a session is given by it: a
//!   [`libpq::wait::Waiter`].
//! - It decides nothing about worker IDs: requests, replies and what is stored are
//!   `snowflake_core`'s.
//! - Its errors are values. Only what a library, the system or another server has said, and
//!   what is wrong with a URL, is text. The extension makes messages of them, in files with `error` in their names.
//!
//! # Why it is no library of its own
//!
//! PostgreSQL keeps libpq in libpqwalreceiver, which only a standby loads. This crate could be
//! a second shared library too, which only the keeper and the few functions that ask other
//! servers would load. That was refused, since a backend has almost nothing of it. Measured on
//! PostgreSQL 15 of Debian 12, where postgres itself links OpenSSL, GSSAPI and LDAP:
//!
//! | | with HTTP and TLS | without |
//! |---|---|---|
//! | text and data of the library, without LTO | 6.8 MB | 4.6 MB |
//! | relocated pages, which all backends share with the postmaster | 168 kB | 87 kB |
//! | private pages of a backend, library preloaded | 4 kB | 4 kB |
//! | its share of the library's pages, library preloaded | 36 kB | 34 kB |
//! | private pages of a session that loads the library by itself | 172 kB | 92 kB |
//!
//! libpq adds no private page to a backend of a server that preloads the library, and 20 kB to
//! a session that loads it by itself. The start of a server with and without the library differs
//! by less than its noise, some 50 ms. A second library has this price. It needs an interface in C
//! for what is Rust on both sides, and has Rust's standard library and the core twice. Each
//! package and image has one more file, and two files must be of one version. A keeper that
//! starts anew after the files were replaced would find a new one beside the old one that the
//! postmaster has loaded. And the postmaster needs libpq in any case, to check
//! `snowflake_id.registry`.

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
