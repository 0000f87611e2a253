//! What a registry stores beside its pools and rows, and what its host finds around it: the
//! ground of [`super::registry`] and [`super::horizon`], which have the rules.

use serde::{Deserialize, Serialize};

use super::super::id::{Millis, UnixMillis};
use super::seal::{Seal, SealKey};
use super::{Cause, Era, Memory, Place, Pool, RegistryMillis, ServerKey, Stopped, hex};

/// How far a bound may be past all clocks, and how long a worker ID rests before one
/// that was never granted is not preferred to it.
pub const DAY: Millis = Millis::new(86_400_000);
/// So many earlier starts are remembered.
const STARTS: usize = 8;

/// What a registry stores beside its pools and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    pub era: Era,
    /// How many changes have been stored.
    pub serial: u64,
    /// The server start by which the state was last used, see [`Scene::start`].
    #[serde(with = "hex")]
    pub start: u128,
    /// Earlier ones, at most 8, at which nothing was lost and that ended with a clean stop.
    pub earlier: Vec<Start>,
    /// See [`Scene::clean_since`].
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
    /// From when the quiet time counts: `at`, or earlier if the clock has gone back;
    /// `None` if an administrator has ended it.
    pub quiet_from: Option<RegistryMillis>,
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
pub struct Scene {
    /// The registry's clock, read when the lock is held.
    pub now: RegistryMillis,
    /// Where the state lies.
    pub place: Place,
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
    pub fn new(scene: &Scene, key: SealKey) -> Self {
        Self {
            era: Era {
                declared: 0,
                counter: 1,
                place: scene.place,
                random: scene.random,
            },
            serial: 0,
            start: scene.start,
            earlier: Vec::new(),
            clean_since: scene.clean_since,
            made: scene.now,
            key,
            top: scene.now,
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
    pub fn declare(&mut self, scene: &Scene) {
        self.notice(scene);
        let seen = self
            .stopped
            .take()
            .map_or(0, |stopped| stopped.seen.declared);
        self.era.declared = seen.max(self.era.declared).saturating_add(1);
        self.lose(Cause::Declared, scene);
    }

    /// An administrator ends the quiet time: servers that live may lose their worker IDs
    /// to others. Floors stay.
    pub fn end_quiet(&mut self, scene: &Scene) {
        self.notice(scene);
        if let Some(loss) = &mut self.loss {
            loss.quiet_from = None;
        }
        self.serial += 1;
    }

    /// How long the registry is quiet in a pool; `None` if it is not.
    #[must_use]
    pub fn quiet(&self, pool: &Pool, now: RegistryMillis) -> Option<(Cause, Millis)> {
        let loss = self.loss?;
        let until = loss.quiet_from?.plus(pool.lease).plus(pool.hold);
        (now < until).then(|| (loss.cause, until.since(now)))
    }

    /// Notices what shows a loss by itself, and that the clock has gone back or on.
    pub(super) fn notice(&mut self, scene: &Scene) {
        let before = std::mem::replace(&mut self.start, scene.start);
        let clean_since = std::mem::replace(&mut self.clean_since, scene.clean_since);
        let recovered = clean_since != scene.clean_since;
        if before != scene.start && !recovered && self.era.place == scene.place {
            self.earlier.push(Start(before));
            let more = self.earlier.len().saturating_sub(STARTS);
            self.earlier.drain(..more);
        }
        if self.era.place != scene.place {
            self.lose(Cause::Place, scene);
        } else if recovered {
            self.lose(Cause::Recovery, scene);
        }
        if let Some(from) = self.loss.as_mut().and_then(|loss| loss.quiet_from.as_mut()) {
            *from = scene.now.min(*from);
        }
        self.top = self.top.max(scene.now);
    }

    /// Grants may be lost: a new era begins.
    pub(super) fn lose(&mut self, cause: Cause, scene: &Scene) {
        self.era = Era {
            declared: self.era.declared,
            counter: self.era.counter + 1,
            place: scene.place,
            random: scene.random,
        };
        self.loss = Some(Loss {
            cause,
            at: scene.now,
            quiet_from: Some(scene.now),
            top: scene.now.max(self.top.min(scene.now.plus(DAY))),
        });
        self.horizon.due = true;
        self.serial += 1;
    }
}
