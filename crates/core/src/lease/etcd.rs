//! A registry in etcd, where the server that asks is the host of the protocol: what it stores, what
//! time it is, and what shows a loss.
//!
//! The **registry's time** is the clock of the member of etcd that has answered (HTTP's `Date`,
//! rounded up to its next second), and never that of a server that asks. It may go back, or jump by
//! what the members' clocks differ; [`registry`](super::registry) bears that of the clock of any
//! registry. Members whose clocks differ by more than a hold let servers take worker IDs from others
//! that live, which then get other ones.
//!
//! # What shows a loss
//!
//! | what happens | what shows it |
//! |---|---|
//! | a new cluster with the content of another one | its cluster ID: [`Origin::system`] |
//! | a snapshot that is restored, under the same names too | [`Position`] goes back, or comes closer to the revision: raft's log begins anew, and the revision does not |
//! | a member's disk that is set back, under a cluster of one | the first server that knows better, as in [`super`] |
//! | an empty cluster, a prefix that was deleted | a registry that a server makes begins as a loss; servers know the era of the other one if an administrator makes a new one |
//! | a new leader, members that crash or freeze | nothing is lost, so nothing is shown |
//!
//! # The first registry
//!
//! The first server that asks makes the registry: see [`first`]. It stores state and pool in one
//! transaction, which etcd refuses if there is any key under the prefix. A server that comes
//! second finds them, and takes the pool as it is. An emptied prefix looks like a new one, and
//! the servers of the lost registry may issue up to their bounds. So the registry begins as a
//! loss ([`Cause::New`]): it has a grace period, and floors that follow from the terms of the
//! default pool. If the lost pool had longer terms, or fewer worker IDs because others use the rest,
//! an administrator makes it anew before a server asks.

use serde::{Deserialize, Serialize};

use super::state::{RegistryInput, State};
use super::{Cause, Origin, Pool, RegistryMillis};

/// The pool of servers whose settings name no other one.
pub const DEFAULT_POOL: &str = "default";

/// How far raft has come: it never goes back, unless the cluster is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Position {
    pub term: u64,
    pub index: u64,
}

impl Position {
    #[must_use]
    pub const fn is_behind(self, other: Self) -> bool {
        self.term < other.term || self.index < other.index
    }
}

/// What is stored beside pools and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredState {
    pub state: State,
    /// Where raft was when the state was about to be stored.
    pub position: Position,
}

/// A pool, and the namespace in which its worker IDs are different from those of others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredPool {
    pub namespace: String,
    #[serde(flatten)]
    pub pool: Pool,
}

/// What a server finds around it when it has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EtcdInput {
    /// The time of the member that has answered.
    pub now: RegistryMillis,
    /// The ID of the cluster.
    pub cluster: u64,
    /// The revision that was read.
    pub revision: u64,
    /// The revision at which the state was stored; 0 if there is none.
    pub stored_at: u64,
    /// Where raft is, asked of that member after it has answered.
    pub position: Position,
    pub random: u128,
}

impl EtcdInput {
    /// Whether raft's log has begun anew since the state was stored.
    ///
    /// The log may have come further since than it was then: what is stored of renewals has no
    /// position. But each revision is an entry of the log. So the log is ahead of the revision by
    /// as much as then, or more. The position was asked before the state was stored, and is
    /// asked now after the reading, so what is compared errs on the side of no loss.
    fn is_behind(&self, stored: &StoredState) -> bool {
        let was = stored.position;
        let ahead =
            |position: Position, revision| i128::from(position.index) - i128::from(revision);
        self.position.is_behind(was)
            || ahead(self.position, self.revision) < ahead(was, self.stored_at)
    }

    /// The input for what is stored; for a new registry `None`.
    #[must_use]
    pub fn registry_input(&self, stored: Option<&StoredState>) -> RegistryInput {
        let is_behind = stored.is_some_and(|stored| self.is_behind(stored));
        let clean_since = stored.map_or(0, |stored| stored.state.clean_since);
        RegistryInput {
            now: self.now,
            origin: Origin {
                system: self.cluster,
                timeline: 0,
                database: 0,
            },
            // A restart that has lost something is one at which raft has gone back.
            clean_since: if is_behind { self.random } else { clean_since },
            random: self.random,
        }
    }

    /// What is to be stored with a state that has noticed what the input shows. A change
    /// that leaves the state alone leaves the position alone too: a loss is still to be
    /// noticed.
    pub const fn stored(&self, state: State) -> StoredState {
        StoredState {
            state,
            position: self.position,
        }
    }
}

/// What a server stores that finds no key under the prefix: a registry with the default pool.
/// `None` if that is left to an administrator. A server whose settings name another prefix or
/// pool may have a slip of the pen in them, and a registry of its own would give it the worker
/// IDs of others.
#[must_use]
pub fn first(
    pool: &str,
    is_default_prefix: bool,
    etcd_input: &EtcdInput,
) -> Option<(StoredState, StoredPool)> {
    if pool != DEFAULT_POOL || !is_default_prefix {
        return None;
    }
    let input = etcd_input.registry_input(None);
    let mut state = State::new(&input);
    state.lose(Cause::New, &input, Some(input.now));
    let pool = StoredPool {
        namespace: "default".to_string(),
        pool: Pool::default_at(input.now),
    };
    Some((etcd_input.stored(state), pool))
}
