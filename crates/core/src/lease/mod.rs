//! Leases of worker IDs: how a worker ID is never live on two servers.
//!
//! A **registry** keeps a [`Row`] for each worker ID of its pools. A server, the
//! **node**, asks it for one, and asks again every few seconds. [`registry`]
//! decides what is granted, [`node`] what is asked and concluded. Both are arithmetic on
//! what they are given: the hosts store, carry and wait.
//!
//! # Safe by the bound, live by patience and hold
//!
//! The **bound** of a worker ID is an instant. Its holder issues no ID whose tick begins
//! at or after a bound that has not been stored before. Who gets the worker ID next gets
//! that bound as its **floor**, and issues no ID whose tick begins before it. So the IDs
//! of two holders lie in different times, whatever clocks, pauses and lost messages do.
//!
//! | length | says |
//! |---|---|
//! | **lease** | how far a bound may lie ahead: for so long a server does without the registry |
//! | **patience** | how long a holder may be silent: the lease, but 30 s at most |
//! | **hold** | how much longer its worker ID is kept for it; then anybody may have it |
//!
//! Who takes a worker ID over before its bound has passed leads its clock. So a young lease is
//! short (its age, or else the patience), and servers take worker IDs whose bound has passed: a
//! pool has room for that.
//!
//! # What is promised, and when
//!
//! No position of a worker ID is issued twice as long as the registry keeps what it has
//! stored. A registry that has lost grants (a promoted standby that lagged, a snapshot
//! that was restored) is told by its [`Era`], and this is promised of it too, except:
//!
//! - **A server that led by more than `max_ahead`** (its clock was wrong by as much, or
//!   was set back) and whose grant is lost with the registry's writes. If only renewals of it are
//!   lost, one of these must be true as well: the registry has kept none with that clock; the
//!   server's clock was set back since; or the registry's clock was slow by more than `hold` at
//!   the loss.
//! - **Two clocks that are slow at the loss**, that of the registry and that of the
//!   server that asks, both by more than `hold`. Or both by any time, if that of the server was
//!   set back since the registry had heard it last.
//! - **A registry's clock that jumps** by more than `hold` within a lease and a hold of
//!   the loss.
//! - **Two live servers of one [`ServerKey`]**, which are copies of a running machine: each
//!   may issue up to the bound that was in its memory when it was copied. When the registry
//!   has heard both, at most one has that worker ID. If one has taken it from the other, and the
//!   registry loses that, the other one is renewed as if nothing had happened.
//! - **A registry that lives on for some nodes** after another was promoted, as long as no
//!   node has asked both.
//! - **A loss that the registry cannot notice**, until the first node asks that knows
//!   better. Such are a backup of a cleanly stopped server that is started in its place,
//!   the disk of an etcd's only member that is set back, and a registry that an administrator
//!   makes anew in the place of another one. A running machine that is set back together with
//!   its memory notices nothing even then.
//! - **A registry in etcd whose keys were all deleted**: a holder that cannot reach etcd issues up
//!   to its bound, and one that asks later than a lease and a hold after the next registry
//!   was made tells that too late. And if the pool had a longer lease, hold or `max_ahead` than
//!   [`Pool::default_at`], or left out worker IDs that others use, and no administrator has
//!   made that pool anew.

pub mod etcd;
mod hex;
pub mod node;
pub mod registry;
pub mod state;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::state::Lengths;
use crate::id::{BootNanos, Millis, UnixMillis, WorkerId};

/// An instant by the clock of the registry, in milliseconds since 1970-01-01 UTC. The
/// clocks of nodes may differ from it, so the two kinds do not compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[must_use]
pub struct RegistryMillis(i64);

impl RegistryMillis {
    /// From a number of milliseconds since 1970-01-01 UTC.
    pub const fn new(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The instant that is this much later.
    pub const fn plus(self, time: Millis) -> Self {
        Self(self.0.saturating_add(time.get()))
    }

    /// How far this is after `earlier`; negative if it is before.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis::new(self.0.saturating_sub(earlier.0))
    }

    /// The same number as an instant of a node's clock. Used where the protocol takes
    /// one clock for the other and leaves room for their difference.
    pub const fn as_nodes_clock(self) -> UnixMillis {
        UnixMillis::new(self.0)
    }
}

/// The 128 random bits that an incarnation of a server draws when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Nonce(#[serde(with = "hex")] pub u128);

/// What makes two incarnations the same server. Two live servers have different ones
/// unless one is a copy of a running machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServerKey {
    /// The system identifier of the database cluster.
    pub system: u64,
    /// The boot ID of the kernel: it is drawn anew at each boot.
    #[serde(with = "hex")]
    pub boot: u128,
    /// The device of the data directory.
    pub device: u64,
    /// The inode of the data directory.
    pub inode: u64,
}

/// The longest text of a [`Holder`], but for the path: host names have 253 bytes at most.
const TEXT_MAX: usize = 255;
/// The longest path of a [`Holder`]. PostgreSQL's paths have 1023 bytes at most.
const PATH_MAX: usize = 1023;

/// Who asks for a worker ID, or has one. Only `identity` and `started` decide anything;
/// the rest is for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Holder {
    pub identity: ServerKey,
    /// When this incarnation started, by the boot clock: shared memory was made. Of two
    /// incarnations of one identity, the later one is the one that runs.
    pub started: BootNanos,
    pub host: String,
    pub address: String,
    pub port: u16,
    pub data_directory: String,
}

/// Why a text of a request is not stored: other servers print it into their logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderError {
    /// The text of this name has a character that moves a cursor, ends a line, or the like.
    Control(&'static str),
    /// The text of this name has more bytes than this.
    Long(&'static str, usize),
}

impl Holder {
    /// Looks whether people can be shown the texts.
    ///
    /// # Errors
    /// The first text that is not fit for it.
    pub fn fits(&self) -> Result<(), HolderError> {
        let texts = [
            ("host", &self.host, TEXT_MAX),
            ("address", &self.address, TEXT_MAX),
            ("data_directory", &self.data_directory, PATH_MAX),
        ];
        for (name, text, most) in texts {
            if text.len() > most {
                return Err(HolderError::Long(name, most));
            }
            if text.chars().any(char::is_control) {
                return Err(HolderError::Control(name));
            }
        }
        Ok(())
    }
}

/// What others are told of a holder: enough for people to find it. Without its
/// [`ServerKey`], by which a request could take its worker ID over.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HolderName {
    pub host: String,
    pub address: String,
    pub port: u16,
    pub data_directory: String,
}

impl From<&Holder> for HolderName {
    fn from(holder: &Holder) -> Self {
        Self {
            host: holder.host.clone(),
            address: holder.address.clone(),
            port: holder.port,
            data_directory: holder.data_directory.clone(),
        }
    }
}

/// Where a registry's state lies. It changes with a promotion and with a dump and
/// restore; then grants may have been lost. For etcd, `system` is the cluster ID and the
/// rest is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    pub system: u64,
    pub timeline: u64,
    pub database: u64,
}

/// The time between two losses of a registry: what consensus protocols call a term or an epoch,
/// the latter of which is the beginning of a layout's time here. Nodes remember the newest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Era {
    /// One more each time an administrator declares that a registry counts.
    pub declared: u64,
    /// One more with each loss.
    pub counter: u64,
    /// Where the state lay when the era began.
    pub origin: Origin,
    /// Tells two eras with the same counter apart.
    #[serde(with = "hex")]
    pub random: u128,
}

/// How an era that somebody has seen relates to that of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraRelation {
    /// The same one.
    Same,
    /// An earlier one of this registry, or of one that this one has replaced.
    Before,
    /// One of a registry that has replaced this one.
    After,
    /// One of another copy of this registry; nothing tells which of them counts.
    Rival,
}

impl Era {
    /// What an era that a node has seen is to this one. What an administrator declares
    /// wins; then a later timeline, for the promotion that made it may have lost the other
    /// era and those before it; then the count of losses.
    #[must_use]
    pub fn judge(&self, seen: &Self) -> EraRelation {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let promoted = if seen.origin.system == self.origin.system {
            seen.origin.timeline.cmp(&self.origin.timeline)
        } else {
            Equal
        };
        let declared = seen.declared.cmp(&self.declared);
        let counted = seen.counter.cmp(&self.counter);
        match declared.then(promoted).then(counted) {
            Less => EraRelation::Before,
            Greater => EraRelation::After,
            Equal if seen == self => EraRelation::Same,
            Equal => EraRelation::Rival,
        }
    }
}

/// What a node knows of its registry, from the newest reply: a registry that knows less
/// has lost something. The node sends back what it was told, as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Memory {
    /// See [`state::State::registry`].
    #[serde(with = "hex")]
    pub registry: u128,
    pub era: Era,
    /// How many changes of its state the registry had stored.
    pub serial: u64,
    /// The node's token was granted in this era, or renewed, with the bound that it knows.
    pub held: Option<LastReport>,
}

/// What a registry has noted of a holder when it was heard last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LastReport {
    /// See [`Row::leased_until`].
    pub until: RegistryMillis,
    /// See [`Row::clock`].
    pub clock: UnixMillis,
}

/// The longest patience of a pool.
pub const PATIENCE: Millis = Millis::new(30_000);

/// A pool of worker IDs: what `snowflake_create_pool()` was told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    pub name: String,
    /// The worker IDs: from 0, and at most 2^31.
    pub ids: Range<i64>,
    /// Worker IDs of the range that are never granted.
    pub except: Vec<Range<i64>>,
    /// How far a bound may lie ahead of its holder's clock: for so long a holder does without
    /// the registry. See also [`Pool::patience`].
    pub lease: Millis,
    /// How long nobody else gets a worker ID after the patience has passed. Also how far
    /// clocks may differ when a registry loses grants.
    pub hold: Millis,
    /// How far a generator may lead its server's clock.
    pub max_ahead: Millis,
    /// When the pool was made.
    pub made: RegistryMillis,
    /// Nobody had used these worker IDs when the pool was made.
    #[serde(default)]
    pub unused: bool,
}

/// What a holder must know of its pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// All worker IDs that this server may ever get. The worker field of each generator
    /// must hold all of them, see [`Terms::fit`].
    pub ids: Range<i64>,
    pub lease: Millis,
    pub patience: Millis,
    pub hold: Millis,
    /// No single generator leads the clock by more.
    pub max_ahead: Millis,
}

impl Terms {
    /// Whether a worker field whose greatest value is `greatest` holds every worker ID of
    /// the pool, not only the one that is leased today.
    #[must_use]
    pub const fn fit(&self, greatest: i64) -> bool {
        self.ids.end <= greatest.saturating_add(1)
    }
}

impl Pool {
    /// What `snowflake_create_pool()` makes without arguments.
    pub fn default_at(made: RegistryMillis) -> Self {
        Self {
            name: etcd::DEFAULT_POOL.to_string(),
            ids: 0..1024,
            except: Vec::new(),
            lease: Millis::new(600_000),
            hold: Millis::new(30_000),
            max_ahead: Millis::new(60_000),
            made,
            unused: true,
        }
    }

    /// How long a holder may be silent before the hold begins, after which another server gets
    /// its worker ID.
    pub fn patience(&self) -> Millis {
        self.lease.min(PATIENCE)
    }

    /// The lengths of the pool's terms.
    pub fn lengths(&self) -> Lengths {
        Lengths {
            lease: self.lease,
            patience: self.patience(),
            hold: self.hold,
            max_ahead: self.max_ahead,
        }
    }

    /// How many worker IDs servers can get: those that are not excepted.
    #[must_use]
    pub fn size(&self) -> i64 {
        let excepted = self.except.iter().map(|ids| {
            let (from, to) = (ids.start.max(self.ids.start), ids.end.min(self.ids.end));
            to.saturating_sub(from).max(0)
        });
        (self.ids.end - self.ids.start - excepted.sum::<i64>()).max(0)
    }

    /// `None` if the pool makes no sense: no worker ID, one outside 0 to 2^31 - 1,
    /// or a duration that is not positive.
    #[must_use]
    pub fn checked(self) -> Option<Self> {
        let ids = self.ids.start >= 0 && self.ids.end <= 1 << 31 && self.ids.start < self.ids.end;
        let times = self.lease > Millis::ZERO && self.hold > Millis::ZERO;
        (ids && times && self.max_ahead >= Millis::ZERO).then_some(self)
    }

    /// Whether a worker ID is one of this pool.
    #[must_use]
    pub fn has(&self, worker: WorkerId) -> bool {
        let id = i64::from(worker.get());
        self.ids.contains(&id) && !self.except.iter().any(|ids| ids.contains(&id))
    }

    /// What a holder must know.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            ids: self.ids.clone(),
            lease: self.lease,
            patience: self.patience(),
            hold: self.hold,
            max_ahead: self.max_ahead,
        }
    }
}

/// What a registry stores for a worker ID, from its first grant on. Rows are never
/// deleted, and `counter` never goes back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    pub worker: WorkerId,
    /// The first part of the token: one more with each grant.
    pub counter: u64,
    /// The second part of the token: the incarnation that has it.
    pub nonce: Nonce,
    /// The token is ended: the holder has stopped cleanly.
    pub released: bool,
    /// An administrator has revoked the token, or its holder has a copy: it is not
    /// renewed.
    pub revoked: Option<RegistryMillis>,
    pub holder: Holder,
    /// The grant was of a fixed worker ID.
    #[serde(default)]
    pub claimed: bool,
    /// When the token was granted.
    pub since: RegistryMillis,
    /// The floor of the grant.
    pub floor: UnixMillis,
    /// The floor, or the holder's clock at the grant if that was later.
    pub start: UnixMillis,
    /// The token was renewed since the grant.
    pub renewed: bool,
    /// When the holder was heard last.
    pub heard: RegistryMillis,
    /// The end of the holder's patience: a hold later, another server gets the worker ID. Or when
    /// the token was released.
    pub leased_until: RegistryMillis,
    /// No ID whose tick begins at or after it has been issued under this worker ID.
    pub bound: UnixMillis,
    /// The number of the holder's latest request.
    pub number: u64,
    /// The holder's clock in that request.
    pub clock: UnixMillis,
    /// The counter of the era in which the row was last granted or renewed.
    pub era: u64,
}

/// A request of a node. One that was sent once can arrive late, twice, or never.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    pub asker: Holder,
    /// The incarnation that asks. With a counter it is a token.
    pub nonce: Nonce,
    /// One more with each request of an incarnation.
    pub number: u64,
    /// The node's clock.
    pub clock: UnixMillis,
    /// The newest that the node knows of the registry. A registry that is another one, and no
    /// copy of it, does not believe it.
    pub memory: Option<Memory>,
    pub ask: RequestKind,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// A worker ID: this one, or any.
    Acquire {
        fixed: Option<WorkerId>,
        /// What this incarnation had before.
        last: Option<WorkerId>,
        /// What this incarnation has, and keeps until it gets another one: after a clock
        /// rollback. The floor must not be after the node's clock; the node does not accept a
        /// later one, whatever the registry grants.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holding: Option<WorkerId>,
    },
    /// To keep a worker ID, with a later bound.
    Renew {
        worker: WorkerId,
        counter: u64,
        /// The bound that the node knows, of the grant or the latest renewal.
        bound: UnixMillis,
        /// No ID whose tick begins at or after it has been issued by this incarnation.
        furthest: UnixMillis,
    },
    /// To give a worker ID back. Nothing is issued under it from then on.
    Release {
        worker: WorkerId,
        counter: u64,
        /// As in [`RequestKind::Renew`].
        bound: UnixMillis,
        /// No ID whose tick begins at or after it has been issued by this incarnation.
        end: UnixMillis,
    },
}

impl RequestKind {
    /// What changes no lease, whatever a registry has stored: to renew a token that nobody has,
    /// since counters begin with 1. The reply tells what to remember of the registry.
    #[must_use]
    pub const fn look() -> Self {
        Self::Renew {
            worker: WorkerId::NONE,
            counter: 0,
            bound: UnixMillis::new(0),
            furthest: UnixMillis::new(0),
        }
    }

    /// The token of which it is, and the bound that the node knows.
    #[must_use]
    pub const fn token(&self) -> Option<(WorkerId, u64, UnixMillis)> {
        match *self {
            Self::Acquire { .. } => None,
            Self::Renew {
                worker,
                counter,
                bound,
                ..
            }
            | Self::Release {
                worker,
                counter,
                bound,
                ..
            } => Some((worker, counter, bound)),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reply {
    /// The nonce of the request.
    pub nonce: Nonce,
    /// The number of the request.
    pub number: u64,
    /// What the registry has come to, this answer included.
    pub memory: Memory,
    /// The clock of the registry.
    pub now: RegistryMillis,
    pub answer: Answer,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Granted(Grant),
    /// The bound is stored, and the patience begins again.
    Renewed {
        bound: UnixMillis,
        /// See [`Row::leased_until`].
        until: RegistryMillis,
        /// When to renew next, from the request on.
        again: Millis,
    },
    /// The worker ID is free.
    Released,
    /// A later request of the same incarnation has arrived before this one. If this one
    /// is the latest that the incarnation has sent, it has a copy.
    Ignored,
    Refused(RegistryError),
}

/// A worker ID is granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant {
    pub worker: WorkerId,
    /// With the nonce of the request, the token.
    pub counter: u64,
    /// The first tick that may be used is the first one that begins at or after it.
    pub floor: UnixMillis,
    /// No tick that begins at or after it may be used.
    pub bound: UnixMillis,
    /// The latest bound of all rows: no mark that a server of this registry has written under a
    /// lease lies past it.
    pub reached: UnixMillis,
    /// Why the floor is where it is: for people, where it lies ahead.
    pub because: FloorCause,
    /// See [`Row::leased_until`].
    pub until: RegistryMillis,
    /// When to renew next, from the request on.
    pub again: Millis,
    pub terms: Terms,
}

/// What a floor follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorCause {
    /// Another server had the worker ID, and used it up to there, or may have.
    Used,
    /// A server of the same system identifier had it, the one that asks as a rule.
    Own,
    /// The registry has lost grants.
    Loss,
    /// The pool is new, and its worker IDs may have been used before.
    NewPool,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistryError {
    /// The token no longer counts; another worker ID has to be acquired. What
    /// was issued below its bound stands.
    Fenced {
        why: Fence,
        /// The server that took over; otherwise the one that has the worker ID now, if
        /// that is another one.
        by: Option<Box<HolderName>>,
        /// Since when it has been the holder. Without one, the time of the refusal.
        since: RegistryMillis,
    },
    /// The fixed worker ID belongs to another server.
    Held {
        worker: WorkerId,
        by: Box<HolderName>,
        since: RegistryMillis,
        /// When it becomes free, unless the holder renews its lease.
        retry: Millis,
    },
    /// All worker IDs of the pool belong to other servers.
    NoneFree {
        /// When the first one becomes free, unless its holder renews the lease.
        retry: Millis,
    },
    /// Each other free worker ID of the pool may have been used at this instant or after it.
    NonePassed { latest: UnixMillis },
    /// The registry may have lost grants, and waits until it knows who lives.
    Grace { cause: Cause, retry: Millis },
    /// The server's clock is so far ahead that the registry takes it for wrong.
    TooFarAhead {
        /// The server's clock.
        asked: UnixMillis,
        limit: UnixMillis,
        /// The registry's clock, which may be the wrong one.
        now: RegistryMillis,
    },
    /// The node remembers another registry: it has asked that one before, or this one was made
    /// anew. What the node had there does not count here.
    Foreign,
    /// The worker ID is not one of the pool.
    NotInPool { worker: WorkerId },
    /// Another registry has taken over from this one, so this one serves nobody until an
    /// administrator declares that it counts.
    Stopped(Stoppage),
}

/// Why a token no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fence {
    /// Another incarnation has the worker ID.
    TakenOver,
    /// It was released.
    Released,
    /// An administrator has revoked it, or two copies of its holder have asked.
    Revoked,
    /// Another request with the same number has been answered: the holder is one of two
    /// copies of a running machine.
    Copied,
    /// The registry does not know the token: it has lost the grant.
    Lost,
    /// The lease had expired when the registry lost grants. So another server may have
    /// had the worker ID.
    Doubtful,
}

/// Why a registry may have lost grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The state lies somewhere else: a promotion, or a dump that was restored.
    Origin,
    /// Crash recovery. A snapshot that was restored looks the same.
    Recovery,
    /// A node has seen more than the registry knows.
    Serial,
    /// A node has a token that the registry no longer knows.
    Token,
    /// The registry was just made, and a node has asked another one before: this one has
    /// taken its place.
    Foreign,
    /// An administrator says so.
    Declared,
    /// A server has made the registry where there was none, or none was left.
    New,
}

/// Why and since when a registry serves nobody.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stoppage {
    pub since: RegistryMillis,
    /// The era that a node has seen elsewhere.
    pub seen: Era,
    /// The node that has seen that era.
    pub by: Box<HolderName>,
}

impl ServerKey {
    /// A text that is different for each identity, to store servers by.
    #[must_use]
    pub fn text(&self) -> String {
        let ServerKey {
            system,
            boot,
            device,
            inode,
        } = self;
        format!("{system:016x}-{boot:032x}-{device:x}-{inode:x}")
    }
}
