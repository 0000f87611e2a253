//! Contenders: servers that claim a worker ID which another server holds.
//!
//! The registry refuses them. It also notes one of them on the row, and the holder's
//! renewals bring that to the holder, so that the logs of both servers tell. Nothing here
//! decides who gets what.
//!
//! Only claims of a fixed worker ID are refused because of one row, so only they are
//! noted, whether the holder claims it or leases it. A server that takes any worker ID is
//! granted another one.
//!
//! A row has room for one contender. Several take turns, in the order of a hash: when the
//! holder has renewed since one was noted, the next one takes its place. So a holder
//! hears of all of them, and [`Contenders`] tells of each once.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::super::id::Millis;
use super::{Named, Pool, RegistryMillis, Row, Terms};

/// A holder tells of so many contenders at most, until one of them has gone away.
const KNOWN: usize = 16;

/// A server whose claim of a worker ID is refused, since another server holds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Contender {
    pub by: Named,
    /// From when on the row has noted this server without a break: the first refusal, or
    /// the first one after it had gone away, or after the row has told of others.
    pub since: RegistryMillis,
    /// The latest refusal, exact to a third of the patience.
    pub latest: RegistryMillis,
    /// The hash of the one that had its turn before.
    pub after: u64,
}

impl Contender {
    /// The contender that the row notes, unless it has gone away.
    #[must_use]
    pub fn of(row: &Row, pool: &Pool, now: RegistryMillis) -> Option<Box<Self>> {
        let gone = gone(pool.patience(), pool.hold);
        let known = row.contender.clone();
        known.filter(|known| now.since(known.latest).abs() <= gone)
    }

    /// What to note of a claim that is refused now; `None` if the row keeps what it has.
    #[must_use]
    pub fn noted(row: &Row, by: Named, pool: &Pool, now: RegistryMillis) -> Option<Self> {
        let new = |after| Self {
            by: by.clone(),
            since: now,
            latest: now,
            after,
        };
        let Some(known) = Self::of(row, pool, now) else {
            return Some(new(0));
        };
        if known.by == by {
            let third = Millis::new(pool.patience().get() / 3);
            let latest = now;
            let is_due = now.since(known.latest).abs() >= third;
            return is_due.then_some(Self { latest, ..*known });
        }
        if row.renewed && known.since < row.heard {
            return Some(new(hash(&known.by)));
        }
        let turn = |by| hash(by).wrapping_sub(known.after).wrapping_sub(1);
        (turn(&by) < turn(&known.by)).then(|| new(known.after))
    }
}

fn hash(by: &Named) -> u64 {
    let mut hasher = DefaultHasher::new();
    by.hash(&mut hasher);
    hasher.finish()
}

/// A server that was not refused for so long has gone away. Longer than a grace period, in
/// which no claim is refused because of a row.
fn gone(patience: Millis, hold: Millis) -> Millis {
    patience.plus(hold).times(2)
}

/// The contenders of which a holder has told its log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contenders(Vec<Contender>);

impl Contenders {
    /// Takes the contender that a renewal brings. Returns whether to tell the log: it is
    /// another one, or has come back after it had gone away.
    #[must_use]
    pub fn note(&mut self, contender: &Contender, terms: &Terms) -> bool {
        // Several take turns on the row, so each is heard of less often.
        let turns = i64::try_from(self.0.len().max(1)).unwrap_or(i64::MAX);
        let gone = gone(terms.patience, terms.hold).times(turns);
        if let Some(known) = self.0.iter_mut().find(|known| known.by == contender.by) {
            let is_back = contender.since.since(known.latest) > gone;
            known.clone_from(contender);
            return is_back;
        }
        self.0
            .retain(|known| contender.latest.since(known.latest) <= gone);
        let is_told = self.0.len() < KNOWN;
        if is_told {
            self.0.push(contender.clone());
        }
        is_told
    }
}
