//! The protocol: how IDs are issued, and how a mark is raised before. Its whole order stands in
//! [`issue()`] and [`reserve()`]; what a server does for it is a [`host::Host`].

pub mod block; // which positions are consecutive IDs
pub mod host; // what a server is to the protocol
pub mod issue; // the order of a call
pub mod reserve; // the steps of a reservation
pub mod wait; // how long a call waits for a clock

pub use issue::{advance_to_now, demand, issue, issue_after, observe};
pub use reserve::reserve;

#[cfg(test)]
pub use reserve::step_by_step;
