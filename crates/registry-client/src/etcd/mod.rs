//! etcd as the registry of worker IDs, by its JSON gateway (etcd 3.4 and later).
//!
//! [`url`] reads the setting, [`gateway`] carries calls to one member after the other,
//! and [`host`] reads, asks the core ([`snowflake_core::lease::etcd`]), and writes.

mod gateway;
pub mod host;
#[cfg(test)]
mod tests;
pub mod url;
