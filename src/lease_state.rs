//! What the keeper has in shared memory: what must outlive it, and what others are shown.
//!
//! All of it is plain data without pointers, under the clock lock of [`super::shmem`].

use snowflake_core::id::{BootNanos, UnixMillis, WorkerId};
use snowflake_core::identity::Generation;
use snowflake_core::lease::node::KeptNode;
use snowflake_core::lease::{Nonce, RegistryMillis};

/// See the head of the file.
#[derive(Default)]
pub struct LeaseState {
    /// The node, for a keeper that takes over from one that has ended. `None` if the
    /// server has no registry.
    pub link: Option<KeptLink>,
    /// The server's identity that the latest grant has made.
    pub granted: Generation,
    pub shown: Shown,
}

impl LeaseState {
    /// That of a server that starts at this instant.
    pub fn new(now: UnixMillis) -> Self {
        let mut state = Self::default();
        state.shown.since = Some(now);
        state
    }
}

/// A node and its registry.
#[derive(Clone)]
pub struct KeptLink {
    /// A hash of the registry's address and the pool: another keeper takes over only if
    /// these are the same.
    pub target: u64,
    /// The incarnation began, by the boot clock.
    pub started: BootNanos,
    pub node: KeptNode,
}

/// What views and errors show.
#[derive(Clone, Default)]
pub struct Shown {
    /// The registry without its secrets, and the pool. Empty without a registry.
    pub registry: Short<200>,
    pub pool: Short<64>,
    /// The nonce of the lease.
    pub nonce: Option<Nonce>,
    pub counter: u64,
    /// Since when the server has its worker ID.
    pub since: Option<UnixMillis>,
    /// When the lease ends, by the registry's clock.
    pub leased_until: Option<RegistryMillis>,
    /// The latest reply, by the server's clock.
    pub last_contact: Option<UnixMillis>,
    /// What is in the way.
    pub trouble: Option<Obstacle>,
    /// Since when the server waits for a worker ID of the registry.
    pub waits_since: Option<BootNanos>,
}

/// Why the registry does not give the server what it asks for.
#[derive(Clone)]
pub struct Obstacle {
    pub since: UnixMillis,
    pub began: BootNanos,
    /// The fixed worker ID, if another server holds it.
    pub held: Option<WorkerId>,
    /// The registry says so itself. Other texts may tell its address.
    pub is_refusal: bool,
    /// A sentence, or several.
    pub text: Short<600>,
}

/// A text of at most N bytes.
#[derive(Clone, Copy)]
pub struct Short<const N: usize> {
    length: usize,
    bytes: [u8; N],
}

impl<const N: usize> Default for Short<N> {
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; N],
        }
    }
}

impl<const N: usize> Short<N> {
    /// The beginning of a text, as far as there is room.
    pub fn new(text: &str) -> Self {
        let mut short = Self::default();
        for char in text.chars() {
            let end = short.length + char.len_utf8();
            let Some(place) = short.bytes.get_mut(short.length..end) else {
                break;
            };
            char.encode_utf8(place);
            short.length = end;
        }
        short
    }

    pub fn get(&self) -> String {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    }
}
