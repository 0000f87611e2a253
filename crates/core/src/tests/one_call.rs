//! The horizon as one call of the protocol holds it, for hosts whose every call is a
//! transaction of its own: looks whether the call keeps to the order of [`server`].
//!
//! [`server`]: super::super::server

use std::cell::Cell;

use super::super::generator::Generator;
use super::super::id::UnixMillis;
use super::super::slot::Slot;

/// Where the call holds the horizon, until it has taken IDs.
#[derive(Debug, Default)]
pub struct OneCall(Cell<Option<UnixMillis>>);

impl OneCall {
    /// The hold lies at or before the word, which only grows from here on.
    pub fn hold(&self, generator: &Generator, slot: &Slot, at: UnixMillis) {
        let (layout, word) = (generator.layout, slot.live().word().position());
        assert!(at <= layout.instant_of(layout.tick_of(word)));
        self.0.set(Some(at));
    }

    /// The call loads what was reported.
    pub fn reported(&self, reported: &Cell<UnixMillis>) -> UnixMillis {
        assert!(
            self.0.get().is_some(),
            "the report is loaded before the hold"
        );
        reported.get()
    }

    /// The call has taken IDs of this tick and later.
    pub fn took(&self, generator: &Generator, reported: UnixMillis, at: UnixMillis) {
        let held = self.0.take();
        assert!(
            held.is_some_and(|held| held <= at),
            "{held:?} does not hold {at:?}"
        );
        let layout = generator.layout;
        assert!(
            at >= layout.instant_of(layout.tick_within(reported)),
            "{at:?} was reported"
        );
    }
}
