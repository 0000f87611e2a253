//! The core: what an ID is and which one comes next.
//!
//! Pure Rust. Nothing here knows PostgreSQL, sleeps, or reads a clock: time is
//! an argument, errors are values, and the only shared state is a handful of
//! atomics whose owner is somewhere else. `crate::pg` is the other half.
//!
//! | module | decides |
//! |---|---|
//! | [`id`] | the numbers that everything else is made of |
//! | [`duration`] | durations in words |
//! | [`layout`] | which bit means what, and what instant a tick is |
//! | [`label`] | layout and policy as text |
//! | [`presets`] | the texts of the schemes that people run |
//! | [`explain`] | an ID, for a person to read |
//! | [`clock`] | what time a generator believes it is |
//! | [`policy`] | how far a generator may go, and where a tick's numbers start |
//! | [`shuffle`] | a tick's numbers in an order that nobody can tell |
//! | [`generator`] | the next position: issue, wait or reserve |
//! | [`watch`] | the same, where a rollback is to be seen at once; and what to do then |
//! | [`account`] | which clocks have been used, for policies that change them |
//! | [`reservation`] | how far IDs may be issued before the next durable mark |
#![forbid(unsafe_code)]

pub mod account;
pub mod clock;
pub mod duration;
pub mod explain;
pub mod generator;
pub mod id;
pub mod label;
pub mod layout;
pub mod policy;
pub mod presets;
pub mod reservation;
pub mod shuffle;
pub mod sync;
pub mod watch;

#[cfg(all(test, not(loom)))]
mod behaviour_tests;
#[cfg(all(test, not(loom)))]
mod evenness_tests;
#[cfg(all(test, not(loom)))]
mod label_tests;
#[cfg(all(test, not(loom)))]
mod model;
#[cfg(all(test, not(loom)))]
mod policy_walk_tests;
#[cfg(all(test, not(loom)))]
mod preset_tests;
#[cfg(all(test, not(loom)))]
mod scripted;
#[cfg(all(test, not(loom)))]
mod thread_tests;
#[cfg(all(test, not(loom)))]
mod walk_tests;
