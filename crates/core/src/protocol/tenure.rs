//! Who the server is: the worker ID under which it issues, and within which time.
//!
//! A [`Tenure`] is what a server may do under a worker ID. Without a registry it is
//! set once, from a setting, and has no limits. Under a registry it is a grant. No ID
//! is of a tick that begins before the **floor**, since another server may have had the
//! worker ID until then. No ID is of a tick that begins at or after the **bound**,
//! which the registry has stored. A renewal moves the bound of the same tenure. A new
//! grant, a return to a setting, and the end of a grant each make a new tenure.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | [`Tenure`] of a server | changed and read under the clock lock |
//! | [`Generation`] of a server | a copy that is read without a lock, to compose IDs for its worker ID; stored with Release under the clock lock, after the tenure |
//! | `Bounds::generation` of a slot | the tenure for which the bound of the slot was published, see [`crate::protocol::cursor`] |
//!
//! # How a slot comes to a new tenure
//!
//! A session composes IDs for the generation that it has entered with, its own. The
//! slot's bound holds for the slot's generation. An ID may be issued if both are the
//! same, and if the position lies below the bound of that generation: [`crate::protocol::cursor`]
//! shows that nothing else is ever issued, whatever session is stopped between any two
//! steps. If they differ, the session reserves. The reserver enters anew if the server
//! has another tenure than the session, and plans for that tenure only. If the slot
//! has the older one, the reservation is a start: at the floor, at the generator's own
//! mark or now, whichever is the latest. All IDs that the slot has issued before lie
//! before that mark.
//!
//! A slot may continue under an older generation than the server's for as long as sessions
//! find room below its bound. That bound was stored in the registry for the older
//! worker ID, or there was no registry.
//!
//! # How a grant is given back
//!
//! The registry may lower a bound in one case: the server tells where its IDs end. So
//! nothing may be issued from then on. In this order:
//!
//! 1. the server gets a tenure without the right to issue ([`Tenure::closed`]), so
//!    that no reserver plans for the old one from now on;
//! 2. each slot is closed ([`crate::protocol::slot::Slot::close`]): its bound is swapped for
//!    [`crate::protocol::cursor::CLOSED`], and its cursor is raised to the mark;
//! 3. the end is the latest of the instant that a cursor had reached before it was raised,
//!    the server's clock, and the floor of the grant ([`Tenure::end`]). A server that
//!    has issued little knows nothing of those who had the worker ID before.
//!
//! A reserver that planned before step 1 has seen a bound of before step 2, or opened a
//! slot that had been closed earlier, which leaves zero. It publishes by
//! compare-and-swap from there: the swap fails after step 2. If it succeeds before, step
//! 2 takes that bound away, too. An issuer that loaded the old
//! bound fails after the raise, because no position from the mark on lies below a bound.
//! So whatever is issued was issued before the raise, which returns a cursor past it.

use crate::id::{Millis, UnixMillis, WorkerId};

/// Stands for "no worker ID" in a generation.
const NO_WORKER: u32 = u32::MAX;

/// The number of a tenure, and its worker ID: what composing an ID depends on.
/// Never used twice in the life of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(u64);

impl Generation {
    /// The generation of a slot for which nothing was published yet.
    pub const NONE: Self = Self(0);

    /// The generation after this one.
    #[must_use]
    fn next(self, worker: Option<WorkerId>) -> Self {
        let number = (self.0 >> 32) + 1;
        let worker = worker.map_or(NO_WORKER, WorkerId::get);
        Self(number << 32 | u64::from(worker))
    }

    /// From its stored form.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The stored form.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The worker ID, if there is one.
    #[must_use]
    #[inline]
    pub fn worker(self) -> Option<WorkerId> {
        #[allow(clippy::cast_possible_truncation)]
        let number = self.0 as u32;
        WorkerId::new(number.cast_signed())
    }
}

/// See the head of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tenure {
    pub generation: Generation,
    /// No ID is of a tick that begins before this. `Some` if the worker ID was granted.
    pub floor: Option<UnixMillis>,
    /// No ID is of a tick that begins at or after this. `None` without a registry.
    pub bound: Option<UnixMillis>,
    /// How far one generator may lead the server's clock; `None` without a registry.
    pub max_ahead: Option<Millis>,
    /// The latest bound that this server has had before, as far as it and the registry
    /// know. `None` if it never had one.
    pub high_water: Option<UnixMillis>,
}

impl Tenure {
    /// A server that does not know yet who it is.
    pub const NONE: Self = Self {
        generation: Generation::NONE,
        floor: None,
        bound: None,
        max_ahead: None,
        high_water: None,
    };

    /// The tenure after this one, without a registry: the worker ID of a setting.
    /// Without a worker ID, generators issue whose IDs carry none.
    #[must_use]
    pub fn unregistered(self, worker: Option<WorkerId>) -> Self {
        Self {
            generation: self.generation.next(worker),
            high_water: self.high_water.max(self.bound),
            ..Self::NONE
        }
    }

    /// The tenure after this one: the registry has granted a worker ID.
    #[must_use]
    pub fn granted(
        self,
        worker: WorkerId,
        floor: UnixMillis,
        bound: UnixMillis,
        reached: UnixMillis,
        max_ahead: Millis,
    ) -> Self {
        Self {
            generation: self.generation.next(Some(worker)),
            floor: Some(floor),
            bound: Some(bound),
            max_ahead: Some(max_ahead),
            high_water: self.high_water.max(self.bound).max(Some(reached)),
        }
    }

    /// The same tenure: the registry has stored another bound. An earlier one changes
    /// nothing, as late replies may bring.
    #[must_use]
    pub fn renewed(self, bound: UnixMillis) -> Self {
        Self {
            bound: self.bound.max(Some(bound)),
            ..self
        }
    }

    /// Where the IDs of this tenure end, once slots are closed: `slots` is the latest
    /// instant that one of them returned. Nothing was issued from there on, by this
    /// server or by those that had the worker ID before.
    pub fn end(self, slots: Option<UnixMillis>, now: UnixMillis) -> UnixMillis {
        now.max(slots.unwrap_or(now)).max(self.floor.unwrap_or(now))
    }

    /// The tenure after this one: under a registry, and without the right to issue.
    #[must_use]
    pub fn closed(self) -> Self {
        Self {
            generation: self.generation.next(None),
            floor: None,
            bound: Some(UnixMillis::new(i64::MIN)),
            high_water: self.high_water.max(self.bound),
            ..self
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_tenure_has_a_generation_of_its_own() {
        let worker = WorkerId::new;
        let (floor, bound) = (UnixMillis::new(10), UnixMillis::new(20));
        let first = Tenure::NONE.unregistered(worker(7));
        assert_eq!(first.generation.worker(), worker(7));
        assert_eq!(
            (first.floor, first.bound, first.max_ahead),
            (None, None, None)
        );
        let granted = first.granted(worker(7).unwrap(), floor, bound, floor, Millis::new(5));
        assert_ne!(first.generation, granted.generation);
        assert_eq!(granted.generation.worker(), worker(7));
        let renewed = granted.renewed(UnixMillis::new(30));
        assert_eq!(renewed.generation, granted.generation);
        assert_eq!(renewed.bound, Some(UnixMillis::new(30)));
        // What was reached stays known, whatever comes after.
        let reached = |tenure: Tenure| tenure.high_water.map(UnixMillis::get);
        assert_eq!((reached(first), reached(granted)), (None, Some(10)));
        assert_eq!(reached(renewed.closed()), Some(30));
        assert_eq!(reached(renewed.closed().unregistered(None)), Some(30));
        let (next, late) = (UnixMillis::new(15), UnixMillis::new(12));
        let again = renewed
            .closed()
            .granted(worker(8).unwrap(), floor, next, late, Millis::new(5));
        assert_eq!((reached(again), again.bound), (Some(30), Some(next)));
        // A late reply.
        assert_eq!(renewed.renewed(bound), renewed);
        let closed = renewed.closed();
        assert_eq!(closed.generation.worker(), None);
        assert!(closed.bound < Some(UnixMillis::new(0)));
        let last = closed.unregistered(worker(i32::MAX));
        assert_eq!(last.generation.worker(), worker(i32::MAX));
        let all = [Tenure::NONE, first, granted, closed, last];
        let numbers = all.map(|tenure| tenure.generation.bits() >> 32);
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert_eq!(
            Generation::from_bits(last.generation.bits()),
            last.generation
        );
    }

    #[test]
    fn without_a_worker_id() {
        let tenure = Tenure::NONE.unregistered(None);
        assert_eq!(tenure.generation.worker(), None);
        assert_ne!(tenure.generation, Generation::NONE);
    }
}
