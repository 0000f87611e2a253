//! The protocol: how IDs are issued, and how a mark is raised before. Its whole order stands in
//! [`issue()`] and [`reserve()`]; what a server does for it is a [`host::Host`].

pub mod block; // which positions are consecutive IDs
pub mod clock; // which time a generator believes
pub mod clock_seq; // which clock sequences have been used, for policies that change them
pub mod cursor; // the next position: issue, wait or reserve
pub mod host; // what a server is to the protocol
pub mod issue; // the order of a call
pub mod plan; // how far IDs may be issued before the next durable mark
pub mod reserve; // the steps of a reservation
pub mod rotation; // how a generator goes back in time under another worker ID
pub mod slot; // all shared state of a generator
pub mod stats; // what a generator has done
pub mod tenure; // who the server is: its worker ID, and within which time it issues
pub mod wait; // how long a call waits for a clock

pub use issue::{advance_to_now, demand, issue, issue_after, observe};
pub use reserve::reserve;

#[cfg(test)]
pub use reserve::step_by_step;
