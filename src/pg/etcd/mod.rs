//! etcd as the registry of worker IDs, by its JSON gateway (etcd 3.4 and later).
//!
//! [`url`] reads the setting, [`gateway`] carries calls to one member after the other,
//! and [`host`] reads, asks the core ([`crate::snowflake::lease::etcd`]), and writes.
//! Nothing but [`admin`] calls PostgreSQL, so that the keeper's thread can use it all.

pub mod admin;
#[cfg(feature = "etcd")]
mod gateway;
#[cfg(feature = "etcd")]
pub mod host;
pub mod url;
