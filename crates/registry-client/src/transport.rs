//! A way to a registry, which only the thread of [`crate::io`] uses.

use std::time::Duration;

use snowflake_core::lease::{Reply, Request};

/// A request of the keeper.
pub struct Job {
    pub number: u64,
    pub request: Request,
    pub timeout: Duration,
}

/// A way to a registry.
pub trait Transport {
    /// The reply to a request; or why there is none, as a sentence. Takes no longer than
    /// the job's time-out, but for a look-up of a host name.
    fn answer(&mut self, job: &Job) -> Result<Reply, String>;
}
