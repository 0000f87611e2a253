//! What a registry stores beside its pools and rows, and what its host finds around it: the
//! ground of [`super::registry`] and [`super::cluster_horizon`], which have the rules.

use serde::{Deserialize, Serialize};

use super::super::id::{Millis, UnixMillis};
use super::seal::{Seal, SealKey};
use super::{Cause, Era, Memory, Origin, Pool, RegistryMillis, ServerKey, Stopped, hex};

/// How far a bound may be past all clocks, and how long a worker ID rests before one
/// that was never granted is not preferred to it.
pub const DAY: Millis = Millis::new(86_400_000);
/// How many earlier starts are remembered.
const STARTS: usize = 8;

/// What a registry stores beside its pools and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    pub era: Era,
    /// How many changes have been stored.
    pub serial: u64,
    /// The server start by which the state was last used, see [`RegistryInput::start`].
    #[serde(with = "hex")]
    pub start: u128,
    /// Earlier ones, at most 8, at which nothing was lost and that ended with a clean stop.
    pub earlier: Vec<Start>,
    /// See [`RegistryInput::clean_since`].
    #[serde(with = "hex")]
    pub clean_since: u128,
    /// When the registry was made.
    pub made: RegistryMillis,
    /// By which the registry seals what it tells nodes to remember.
    pub key: SealKey,
    /// The greatest time that the registry's clock has shown.
    pub top: RegistryMillis,
    pub loss: Option<Loss>,
    pub stopped: Option<Stopped>,
    /// Who has renewed a lease lately: the latest of each voucher, at most 16.
    pub heard: Vec<Heard>,
    pub horizon: KeptHorizon,
}

/// The latest loss of a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Loss {
    pub cause: Cause,
    /// When it was noticed.
    pub at: RegistryMillis,
    /// From when the grace period counts: `at`, or earlier if the clock has gone back;
    /// `None` if an administrator has ended it.
    pub grace_from: Option<RegistryMillis>,
    /// The greatest time that the registry knew at the loss.
    pub top: RegistryMillis,
}

/// A start of the server that hosts the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Start(#[serde(with = "hex")] pub(super) u128);

/// The clock of a server that has renewed its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Heard {
    pub by: ServerKey,
    pub clock: UnixMillis,
    pub at: RegistryMillis,
}

/// What a registry's host finds around it at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryInput {
    /// The registry's clock, read when the lock is held.
    pub now: RegistryMillis,
    /// Where the state lies.
    pub origin: Origin,
    /// Names this start of the server that hosts the state: different at each start.
    pub start: u128,
    /// Names the last start of that server that has gone through crash recovery: all stops
    /// since were clean. A restart in between is noticed at the first request after it.
    pub clean_since: u128,
    /// Who asks can undo what is stored for the answer, and has read the answer.
    pub revocable: bool,
    /// The server that asks is the one that hosts the state.
    pub asker_hosts: bool,
    /// Random bits, for a new era.
    pub random: u128,
}

/// What a registry keeps beside its servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeptHorizon {
    /// The greatest horizon that may have been returned before the servers changed last.
    pub greatest: Option<UnixMillis>,
    /// The longest lease and hold of the pools that were asked.
    pub patience: Millis,
    /// A loss was noticed by who does not see the servers. Who sees them next keeps the
    /// least report, before they change.
    pub due: bool,
}

impl State {
    /// The state of a new registry, with a key that is new, too.
    #[must_use]
    pub fn new(input: &RegistryInput, key: SealKey) -> Self {
        Self {
            era: Era {
                declared: 0,
                counter: 1,
                origin: input.origin,
                random: input.random,
            },
            serial: 0,
            start: input.start,
            earlier: Vec::new(),
            clean_since: input.clean_since,
            made: input.now,
            key,
            top: input.now,
            loss: None,
            stopped: None,
            heard: Vec::new(),
            horizon: KeptHorizon::default(),
        }
    }

    /// What nodes remember. `token` proves that the node's token was granted.
    #[must_use]
    pub fn memory(&self, token: Option<Seal>) -> Memory {
        self.key.seal(Memory {
            era: self.era,
            serial: self.serial,
            start: self.start,
            token,
            seal: Seal::NONE,
        })
    }

    /// An administrator declares that this registry counts, whatever other ones there
    /// are: nodes that have asked it serve no other. What others have granted is treated
    /// as lost.
    pub fn declare(&mut self, input: &RegistryInput) {
        self.notice(input);
        let seen = self
            .stopped
            .take()
            .map_or(0, |stopped| stopped.seen.declared);
        self.era.declared = seen.max(self.era.declared).saturating_add(1);
        self.lose(Cause::Declared, input);
    }

    /// An administrator ends the grace period: servers that live may lose their worker IDs
    /// to others. Floors stay.
    pub fn end_grace(&mut self, input: &RegistryInput) {
        self.notice(input);
        if let Some(loss) = &mut self.loss {
            loss.grace_from = None;
        }
        self.serial += 1;
    }

    /// How long the grace period of a pool lasts; `None` if it has none.
    #[must_use]
    pub fn grace(&self, pool: &Pool, now: RegistryMillis) -> Option<(Cause, Millis)> {
        let loss = self.loss?;
        let until = loss.grace_from?.plus(pool.lease).plus(pool.hold);
        (now < until).then(|| (loss.cause, until.since(now)))
    }

    /// Notices what shows a loss by itself, and that the clock has gone back or on.
    pub(super) fn notice(&mut self, input: &RegistryInput) {
        let before = std::mem::replace(&mut self.start, input.start);
        let clean_since = std::mem::replace(&mut self.clean_since, input.clean_since);
        let recovered = clean_since != input.clean_since;
        if before != input.start && !recovered && self.era.origin == input.origin {
            self.earlier.push(Start(before));
            let more = self.earlier.len().saturating_sub(STARTS);
            self.earlier.drain(..more);
        }
        if self.era.origin != input.origin {
            self.lose(Cause::Origin, input);
        } else if recovered {
            self.lose(Cause::Recovery, input);
        }
        if let Some(from) = self.loss.as_mut().and_then(|loss| loss.grace_from.as_mut()) {
            *from = input.now.min(*from);
        }
        self.top = self.top.max(input.now);
    }

    /// Grants may be lost: a new era begins.
    pub(super) fn lose(&mut self, cause: Cause, input: &RegistryInput) {
        self.era = Era {
            declared: self.era.declared,
            counter: self.era.counter + 1,
            origin: input.origin,
            random: input.random,
        };
        self.loss = Some(Loss {
            cause,
            at: input.now,
            grace_from: Some(input.now),
            top: input.now.max(self.top.min(input.now.plus(DAY))),
        });
        self.horizon.due = true;
        self.serial += 1;
    }
}
