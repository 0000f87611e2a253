//! The horizon as one call of the protocol holds it, for hosts whose every call is a
//! transaction of its own: looks whether the call keeps to the order of [`server`].
//!
//! [`server`]: crate::protocol

use std::cell::Cell;

use crate::id::UnixMillis;
use crate::label::generator::Generator;
use crate::protocol::slot::Slot;

#[derive(Debug, Default)]
pub struct OneCall {
    /// Where the call holds the horizon, until it has taken IDs.
    at: Cell<Option<UnixMillis>>,
    /// The transaction has taken IDs before, so that it holds the horizon.
    pub has_taken: bool,
}

impl OneCall {
    /// A call begins; one before may have failed.
    pub fn begins(&self) {
        self.at.set(None);
    }

    /// The hold lies at or before the cursor, which only grows from here on.
    pub fn hold(&self, generator: &Generator, slot: &Slot, at: UnixMillis) {
        let (layout, cursor) = (generator.layout, slot.live().cursor().position());
        assert!(at <= layout.instant_of(layout.tick_of(cursor)));
        self.at.set(Some(at));
    }

    /// The call has taken IDs of this tick and later.
    pub fn narrow_hold(&self, slot: &Slot, at: UnixMillis) {
        let held = self.at.take();
        assert!(
            held.is_some_and(|held| held <= at),
            "{held:?} does not hold {at:?}"
        );
        // No horizon that was returned goes back. The mark is where a generator starts.
        let announced = slot.horizon().announced();
        assert!(held >= Some(announced), "{held:?} before {announced:?}");
    }

    /// The call returns IDs.
    pub fn returns(&self) {
        let held = self.at.get();
        assert!(held.is_none(), "{held:?} is not raised to the first ID");
    }
}

/// A part of a [`Host`] of one thread with one generator, as which its fields `generator`, `slot`,
/// `trusted`, `tenure` and `held` serve.
///
/// [`Host`]: crate::protocol::host::Host
macro_rules! whose_calls_are_transactions {
    () => {
        fn entered(&self) -> Option<(&Slot, &Generator)> {
            Some((&self.slot, &self.generator))
        }

        fn generation(&self) -> Generation {
            self.tenure.get().generation
        }

        fn has_taken(&self) -> bool {
            self.held.has_taken
        }

        fn hold(&self, slot: &Slot, at: UnixMillis) -> Result<(), Self::Error> {
            self.held.hold(&self.generator, slot, at);
            Ok(())
        }

        fn narrow_hold(&self, at: UnixMillis) {
            self.held.narrow_hold(&self.slot, at);
        }

        fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
            f(&Reserving::the_lock_is_held())
        }

        fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
            let mut trusted = self.trusted.get();
            let result = f(&mut trusted, self.tenure.get());
            self.trusted.set(trusted);
            result
        }
    };
}
pub(super) use whose_calls_are_transactions;
