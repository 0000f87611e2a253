//! Tests of the core as a whole.
//!
//! A [`model`] is a server in miniature, [`scripted`] one whose wall clock reads what
//! a script says, [`threads`] one that threads share, [`sessions`] one in loom's memory model.
//! These are hosts of the protocol; none has a step of its own. [`interleavings`] explores
//! single steps by loom.
//! [`lease`] is a world of servers and registries, hosts of the leases.
//! [`explorer`] searches through the events of walks.

#[cfg(not(loom))]
mod behaviour;
#[cfg(not(loom))]
mod block;
#[cfg(not(loom))]
mod cursor;
#[cfg(not(loom))]
mod evenness;
#[cfg(not(loom))]
mod explorer;
#[cfg(not(loom))]
mod horizon;
#[cfg(loom)]
mod horizon_interleavings;
#[cfg(loom)]
mod interleavings;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod lease_claims;
#[cfg(not(loom))]
mod lease_etcd;
#[cfg(not(loom))]
mod lease_events;
#[cfg(not(loom))]
mod lease_long;
#[cfg(not(loom))]
mod lease_look;
#[cfg(not(loom))]
mod lease_losses;
#[cfg(not(loom))]
mod lease_memory;
#[cfg(not(loom))]
mod lease_queue;
#[cfg(not(loom))]
mod lease_search;
#[cfg(not(loom))]
mod lease_table;
#[cfg(not(loom))]
mod lease_traces;
#[cfg(not(loom))]
#[cfg(not(loom))]
mod lease_walks;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod observe;
#[cfg(loom)]
mod observe_interleavings;
#[cfg(not(loom))]
mod one_call;
#[cfg(not(loom))]
pub mod places;
#[cfg(not(loom))]
mod policy_walks;
#[cfg(not(loom))]
mod presets;
#[cfg(loom)]
mod rotation_interleavings;
#[cfg(not(loom))]
mod rotation_walks;
#[cfg(loom)]
mod scaffold;
#[cfg(not(loom))]
mod scripted;
#[cfg(loom)]
mod sessions;
#[cfg(not(loom))]
mod short_leases;
#[cfg(not(loom))]
mod tenures;
#[cfg(not(loom))]
mod threads;
#[cfg(not(loom))]
mod walks;

/// A server that has written this many marks reserves without an end: no test needs as many.
#[cfg(not(loom))]
const MARKS_MAX: u32 = 100_000;
