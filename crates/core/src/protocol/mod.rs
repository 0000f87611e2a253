//! The protocol: how IDs are issued, and how a mark is raised before. Its whole order stands in
//! [`issue`]; what a server does for it is a [`host::Host`].

pub mod block; // which positions are consecutive IDs
pub mod host; // what a server is to the protocol
pub mod issue; // the order of its steps
pub mod plan; // how far IDs may be issued before the next durable mark
pub mod wait; // how long a call waits for a clock

pub use issue::{advance_to_now, demand, issue, issue_after, observe, reserve};

#[cfg(test)]
pub use issue::step_by_step;
