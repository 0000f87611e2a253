//! The core: what an ID is and which one comes next.
//!
//! Pure Rust that does not know PostgreSQL. Clocks, disk, locks and sleep belong to a
//! [`server::Host`]; errors are values, and the only shared state is atomics whose
//! owner is elsewhere. `crate::pg` is the other half.
//!
//! | module | decides |
//! |---|---|
//! | [`id`] | the numbers that everything else is made of |
//! | [`duration`] | how a length of time reads as text |
//! | [`layout`] | which bit means what, and which instant a tick is |
//! | [`label`] | layout and policy as text |
//! | [`presets`] | the texts of the schemes that people run |
//! | [`explain`] | an ID, for a person to read |
//! | [`policy`] | how far a generator may go, and where a tick's sequence numbers start |
//! | [`generator`] | what a generator is made of: layout and policy |
//! | [`shuffle`] | a tick's sequence numbers in an unpredictable order |
//! | [`clock`] | which time a generator believes |
//! | [`identity`] | who the server is: under which worker ID it issues, and within which time |
//! | [`word`] | the next position: issue, wait or reserve |
//! | [`clocks`] | which clock numbers have been used, for policies that change them |
//! | [`reservation`] | how far IDs may be issued before the next durable mark |
//! | [`slot`] | all shared state of a generator |
//! | [`stats`] | what a generator has done |
//! | [`wait`] | how long a call waits for a clock |
//! | [`server`] | the protocol: how an ID is issued, how a mark is raised |
//! | [`block`] | which positions are consecutive IDs |
//! | [`lease`] | which server has which worker ID |
#![forbid(unsafe_code)]

pub mod block;
pub mod clock;
pub mod clocks;
pub mod duration;
pub mod explain;
pub mod generator;
pub mod id;
pub mod identity;
pub mod label;
pub mod layout;
pub mod lease;
pub mod policy;
pub mod presets;
pub mod reservation;
pub mod server;
pub mod shuffle;
pub mod slot;
pub mod stats;
pub mod sync;
pub mod wait;
pub mod word;

#[cfg(all(test, not(loom)))]
mod label_tests;
#[cfg(test)]
mod tests;
