//! What a registry stores beside its pools and rows, and what its host finds around it: the
//! ground of [`super::registry`], which has the rules.

use serde::{Deserialize, Serialize};

use super::{
    Cause, Era, LastReport, Memory, Origin, Pool, RegistryMillis, ServerKey, Stoppage, hex,
};
use crate::id::{Millis, UnixMillis};

/// How far a bound may be past all clocks, and how long a worker ID rests before one
/// that was never granted is not preferred to it.
pub const DAY: Millis = Millis::new(86_400_000);
/// By how much the registry's clock passes [`State::top`] before a renewal raises that.
const TOP_STEP: Millis = Millis::new(300_000);
/// A registry that has heard nobody for so long was not silent: who waits asks once a second, and
/// some patiences are as short.
const SILENCE_LEAST: Millis = Millis::new(3_000);

/// What a registry stores beside its pools and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct State {
    /// Tells registries apart: random, drawn when the registry was made. Its copies have it, too.
    #[serde(with = "hex")]
    pub registry: u128,
    pub era: Era,
    /// How many changes have been stored: grants, releases, revocations, losses. A renewal changes
    /// its row, and not the state.
    pub serial: u64,
    /// See [`RegistryInput::clean_since`].
    #[serde(with = "hex")]
    pub clean_since: u128,
    /// When the registry was made.
    pub made: RegistryMillis,
    /// The greatest time that the registry's clock has shown, as of the latest request that has
    /// changed the state: the rows tell of later ones.
    pub top: RegistryMillis,
    /// The latest time in which the registry heard nobody.
    pub gap: Option<Gap>,
    /// The longest terms of the pools that were asked.
    pub longest: Lengths,
    pub loss: Option<Loss>,
    pub stopped: Option<Stoppage>,
}

/// A time in which the registry heard nobody: that somebody was silent means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gap {
    pub from: RegistryMillis,
    pub to: RegistryMillis,
}

/// The lengths of a pool, or the longest ones of several pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lengths {
    pub lease: Millis,
    pub patience: Millis,
    pub hold: Millis,
    pub max_ahead: Millis,
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
    /// For how long before `top` grants and renewals may be lost; a day if nothing tells.
    pub lost: Millis,
    /// The same, with what an earlier loss has taken whose grace period has ended. Such a grant
    /// is in use still only if it led, so `top` is past what it got by the clock.
    pub lost_in_all: Millis,
    /// While `top` is ahead of the registry's clock: who has renewed since with a clock that agrees
    /// with the registry's. The second one ends that.
    pub agreed: Option<ServerKey>,
}

/// What a registry's host finds around it at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryInput {
    /// The registry's clock, read when the lock is held.
    pub now: RegistryMillis,
    /// Where the state lies.
    pub origin: Origin,
    /// Names the last start of that server that has gone through crash recovery: all stops
    /// since were clean. A restart in between is noticed at the first request after it.
    pub clean_since: u128,
    /// Random bits, for a new era or a new registry.
    pub random: u128,
}

impl State {
    /// The state of a new registry.
    #[must_use]
    pub fn new(input: &RegistryInput) -> Self {
        Self {
            registry: input.random,
            era: Era {
                declared: 0,
                counter: 1,
                origin: input.origin,
                random: input.random,
            },
            serial: 0,
            clean_since: input.clean_since,
            made: input.now,
            top: input.now,
            gap: None,
            longest: Lengths::default(),
            loss: None,
            stopped: None,
        }
    }

    /// What nodes remember; `held` as in [`Memory::held`].
    #[must_use]
    pub const fn memory(&self, held: Option<LastReport>) -> Memory {
        Memory {
            registry: self.registry,
            era: self.era,
            serial: self.serial,
            held,
        }
    }

    /// An administrator declares that this registry counts, whatever other ones there
    /// are: nodes that have asked it serve no other. What others have granted is treated
    /// as lost.
    pub fn declare(&mut self, input: &RegistryInput) {
        self.change(input, None);
        let seen = self
            .stopped
            .take()
            .map_or(0, |stopped| stopped.seen.declared);
        self.era.declared = seen.max(self.era.declared).saturating_add(1);
        self.lose(Cause::Declared, input, None);
    }

    /// An administrator ends the grace period: servers that live may lose their worker IDs
    /// to others. Floors stay.
    pub fn end_grace(&mut self, input: &RegistryInput) {
        self.change(input, None);
        if let Some(loss) = &mut self.loss {
            loss.grace_from = None;
        }
        self.gap = None;
        self.serial += 1;
    }

    /// When a pool is made. Its worker IDs are not granted for times before: if somebody may have
    /// used them, of all times that were stored, though the clock was set back.
    pub fn making(&self, unused: bool, now: RegistryMillis) -> RegistryMillis {
        if unused { now } else { now.max(self.top) }
    }

    /// How long the grace period of a pool lasts; `None` if it has none.
    #[must_use]
    pub fn grace(&self, pool: &Pool, now: RegistryMillis) -> Option<(Cause, Millis)> {
        let loss = self.loss?;
        let until = loss.grace_from?.plus(loss.quiet(&pool.lengths()));
        (now < until).then(|| (loss.cause, until.since(now)))
    }

    /// A request that changes the state in any case, by an administrator or of a worker ID: notes
    /// the time.
    pub(super) fn change(&mut self, input: &RegistryInput, heard: Option<RegistryMillis>) {
        self.notice(input, heard);
        self.top = self.top.max(input.now);
    }

    /// Notices what shows a loss by itself, and that the clock has gone back or on. `heard` is
    /// when a holder was heard last, as far as the rows tell.
    pub(super) fn notice(&mut self, input: &RegistryInput, heard: Option<RegistryMillis>) {
        let clean_since = std::mem::replace(&mut self.clean_since, input.clean_since);
        let known = Some(self.top.max(heard.unwrap_or(self.top)));
        if self.era.origin != input.origin {
            self.lose(Cause::Origin, input, known);
        } else if clean_since != input.clean_since {
            self.lose(Cause::Recovery, input, known);
        }
        if let Some(from) = self.loss.as_mut().and_then(|loss| loss.grace_from.as_mut()) {
            *from = input.now.min(*from);
        }
        // A clock that has gone back makes nobody wait for longer.
        if let Some(gap) = self.gap.as_mut() {
            gap.to = input.now.min(gap.to);
        }
        if input.now.since(self.top) > TOP_STEP {
            self.top = input.now;
        }
    }

    /// Notices that nobody was heard for longer than the patience of a pool. `heard` as in
    /// [`State::notice`]: without it, the host knows of no silence.
    pub(super) fn notice_gap(
        &mut self,
        pool: &Pool,
        now: RegistryMillis,
        heard: Option<RegistryMillis>,
    ) {
        let Some(heard) = heard.map(|heard| heard.max(self.top)) else {
            return;
        };
        // Somebody was heard at the end of a gap.
        let heard = self.gap.map_or(heard, |gap| gap.to.max(heard));
        if now.since(heard) <= pool.patience().max(SILENCE_LEAST) {
            return;
        }
        // Between two gaps, nobody had the time to be missed.
        let before = self.gap.filter(|gap| gap.reaches(pool, heard));
        let from = before.map_or(heard, |gap| gap.from);
        self.gap = Some(Gap { from, to: now });
    }

    /// Grants may be lost: a new era begins. `known` is the latest time of which the registry
    /// still knows; `None` if what is lost may have begun at any time.
    pub(super) fn lose(
        &mut self,
        cause: Cause,
        input: &RegistryInput,
        known: Option<RegistryMillis>,
    ) {
        self.era = Era {
            declared: self.era.declared,
            counter: self.era.counter + 1,
            origin: input.origin,
            random: input.random,
        };
        let top = self.top.max(known.unwrap_or(self.top));
        let top = input.now.max(top.min(input.now.plus(DAY)));
        // A clock that has gone back by more than clocks differ does not measure what is lost.
        let hold = self.longest.hold;
        let known = known.filter(|known| known.since(input.now) <= hold);
        // What an earlier loss has taken may be in use still.
        let in_use = self.longest.lease.plus(hold);
        let earlier = self.loss.filter(|loss| input.now <= loss.top.plus(in_use));
        let open = earlier.filter(|loss| !loss.is_over(&self.longest, input.now));
        let begin = |loss: Loss, lost: Millis| loss.top.plus(Millis::ZERO.minus(lost));
        let lost_since = |earlier: Option<RegistryMillis>| {
            let from = known.map(|known| earlier.map_or(known, |earlier| known.min(earlier)));
            from.map_or(DAY, |from| top.since(from).max(Millis::ZERO).min(DAY))
        };
        self.loss = Some(Loss {
            cause,
            at: input.now,
            grace_from: Some(input.now),
            top,
            lost: lost_since(open.map(|loss| begin(loss, loss.lost))),
            lost_in_all: lost_since(earlier.map(|loss| begin(loss, loss.lost_in_all))),
            agreed: None,
        });
        self.serial += 1;
    }
}

impl Loss {
    /// A holder has renewed with this clock. The time that the registry knew at the loss may have
    /// been that of a wrong clock, by which each new lease would lead: it counts until two holders
    /// agree with the registry's clock of now. Returns whether they do.
    pub(super) fn agrees(
        &mut self,
        by: ServerKey,
        clock: UnixMillis,
        now: RegistryMillis,
        hold: Millis,
    ) -> bool {
        let is_wrong = self.top.since(now) > hold;
        if !is_wrong || clock.since(now.as_nodes_clock()).abs() > hold {
            return false;
        }
        let others = self.agreed.filter(|agreed| *agreed != by);
        self.agreed = Some(by);
        if others.is_some() {
            self.top = self.at;
        }
        others.is_some()
    }

    /// How far a bound can lie ahead of its holder's clock by what is lost, if the lease was granted
    /// so long before the loss: see [`Lengths::span`]. Both clocks that count may be slow by a hold.
    pub(super) fn growth(&self, lengths: &Lengths, age: Millis) -> Millis {
        lengths.span(self.lost.plus(lengths.hold).max(age))
    }

    /// Whether the grace period has ended, and no administrator has ended it.
    pub(super) fn is_over(&self, lengths: &Lengths, now: RegistryMillis) -> bool {
        let from = self.grace_from;
        from.is_some_and(|from| now >= from.plus(self.quiet(lengths)))
    }

    /// How long the grace period lasts.
    pub(super) fn quiet(&self, lengths: &Lengths) -> Millis {
        self.growth(lengths, Millis::ZERO).plus(lengths.hold)
    }
}

impl Lengths {
    /// How far the bound of a lease that is so old lies ahead of its holder's clock: a young lease
    /// is short.
    pub(super) fn span(&self, age: Millis) -> Millis {
        self.lease.min(self.patience.max(age))
    }

    /// A pool with these terms is asked.
    pub(super) fn hear(&mut self, other: &Self) {
        self.lease = self.lease.max(other.lease);
        self.patience = self.patience.max(other.patience);
        self.hold = self.hold.max(other.hold);
        self.max_ahead = self.max_ahead.max(other.max_ahead);
    }
}

impl Gap {
    /// Whether nobody is missed yet who was not free before the gap: each that lives asks within a
    /// patience of its end.
    pub(super) fn reaches(&self, pool: &Pool, now: RegistryMillis) -> bool {
        now < self.to.plus(pool.patience())
    }
}
