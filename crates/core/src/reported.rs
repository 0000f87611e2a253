//! How far this server has told its registry that no ID can appear any more.
//!
//! [`super::lease::cluster_horizon`] has the rules for all servers; this file makes what one of them
//! reports. Unlike a reader of [`super::horizon`], the one who reports moves no cursor: it has
//! no database, and knows no generator. It announces an instant instead, and sessions keep
//! to it.
//!
//! 1. The one who reports raises [`Reported`] to the instant, and looks at all holds
//!    afterwards, first the places of sessions, then the locks. It reports
//!    the least of these and the instant.
//! 2. A session publishes its hold, and loads the instant afterwards. If the cursor lies before
//!    that, it moves the cursor there ([`Need::Reported`](super::protocol::host::Need::Reported))
//!    before it takes an ID.
//!
//! Between the store and the look, both have a SeqCst fence: so at least one of the two
//! sees the other. A session that holds by a lock lists it ([`super::lock_list`]) before its
//! fence. Either the report is no later than the hold, or the session takes no ID
//! that lies before the instant. Later IDs of its transaction do not lie before either: the
//! cursor only grows where somebody holds the horizon.
//!
//! An ID that comes from elsewhere ([`super::horizon::Held::insert`]) is refused if it lies
//! before the instant, by the same order of steps.
//!
//! An ID lies before an instant if its tick ends at or before it. So generators with long
//! ticks need not leave the rest of a tick out after each report. A hold is the beginning of
//! a tick; a session that reads rows takes the tick in which the least report lies.
//!
//! The instant is not past the bound that the registry has stored. So a server that has
//! crashed, whose shared memory is made anew, starts at or after all that it has reported.
//! One that returns its worker ID may come back with a floor that lies before it, see rule 5
//! there.
//!
//! Generators that go back in time keep to none of this. They have no horizon.

use super::horizon::{Announced, Horizon, ProcessHolds, Processes, database_of};
use super::id::UnixMillis;
use super::layout::Layout;
use super::sync::Ordering::{Relaxed, SeqCst};
use super::sync::{AtomicI64, fence};

/// See the head of the file.
#[derive(Debug)]
pub struct Reported {
    at: AtomicI64,
}

impl Default for Reported {
    fn default() -> Self {
        Self {
            at: AtomicI64::new(0),
        }
    }
}

impl Reported {
    /// For a session that has published a hold: it takes no ID of a tick that begins before
    /// this.
    pub fn announced(&self) -> UnixMillis {
        // See the head of the file.
        fence(SeqCst);
        self.get()
    }

    /// What was announced, for a caller that has had a fence of its own.
    fn get(&self) -> UnixMillis {
        UnixMillis::new(self.at.load(Relaxed))
    }

    /// Announces an instant, and returns what is to be reported. `counts` says of which
    /// databases, by the high half of a key; `search` finds the least hold by a lock in them.
    pub fn report(
        &self,
        now: UnixMillis,
        processes: &impl Processes,
        counts: impl Fn(u64) -> bool,
        search: impl FnOnce() -> Option<UnixMillis>,
    ) -> UnixMillis {
        let before = self.at.fetch_max(now.get(), Relaxed);
        let announced = now.max(UnixMillis::new(before));
        // See the head of the file.
        fence(SeqCst);
        // The places first: a transaction that is prepared moves its hold.
        let held = held(processes, counts);
        let held = held.into_iter().chain(search()).min();
        held.map_or(announced, |held| held.min(announced))
    }
}

/// The greater of what the generator has announced and what the server has reported. The latter
/// counts as the beginning of a tick.
impl Announced for (&Horizon, &Reported, Layout) {
    fn announced(&self) -> UnixMillis {
        let (horizon, reported, layout) = *self;
        let reported = layout.instant_of(layout.tick_within(reported.get()));
        horizon.announced().max(reported)
    }
}

/// The least hold of sessions in the databases that count.
pub fn held(processes: &impl Processes, counts: impl Fn(u64) -> bool) -> Option<UnixMillis> {
    let shown = processes.holders().iter().flat_map(ProcessHolds::shown);
    let counted = shown.filter(|shown| counts(database_of(shown.key)));
    counted.map(|shown| shown.at).min()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::horizon::Held;
    use super::super::tests::places::Places;
    use super::*;

    const SHOP: u64 = 7 << 32;
    const OTHER: u64 = 8 << 32;

    fn at(millis: i64) -> UnixMillis {
        UnixMillis::new(millis)
    }

    #[test]
    fn the_databases_that_count_hold_the_report_back() {
        let places: [ProcessHolds; 3] = Default::default();
        let holders = &places[..];
        let (mut shop, mut other) = (Held::default(), Held::default());
        shop.hold(&Places(&holders[0]), SHOP | 1, at(50)).unwrap();
        other.hold(&Places(&holders[2]), OTHER | 1, at(20)).unwrap();
        let reported = Reported::default();
        let counts = |database| database == SHOP;
        let report = |now, locked: Option<i64>| {
            let search = || locked.map(UnixMillis::new);
            reported.report(at(now), &holders, counts, search)
        };
        assert_eq!(report(40, None), at(40));
        assert_eq!(report(60, None), at(50));
        assert_eq!(report(60, Some(45)), at(45));
        assert_eq!(held(&holders, counts), Some(at(50)));
        shop.withdraw(&holders[0]);
        // What was announced stays so when the clock is set back.
        assert_eq!(report(55, None), at(60));
        assert_eq!(reported.announced(), at(60));
        assert_eq!(held(&holders, counts), None);
        assert_eq!(held(&holders, |_| true), Some(at(20)));
    }
}
