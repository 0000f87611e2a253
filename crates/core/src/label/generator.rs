//! What a generator is made of.

use crate::id::layout::{Layout, OrderError};
use crate::id::{Millis, Offset, Tick};
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};

/// Why the IDs of a generator need not ascend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// They do not sort by time.
    Layout(OrderError),
    /// After a clock rollback they resume at an earlier time, with another clock sequence or
    /// worker ID.
    Rollback,
}

/// All that a step is decided from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    pub layout: Layout,
    pub policy: Policy,
}

impl Generator {
    /// The built-in generator. **Frozen**, like its layout.
    pub const DEFAULT: Self = Self {
        layout: Layout::DEFAULT,
        policy: Policy::DEFAULT,
    };

    /// Whether IDs are [`Layout::compose`] of what [`crate::protocol::cursor::Live::issue`] yields
    /// without watching the wall clock: so in the default generator and its like.
    pub const fn is_plain(&self) -> bool {
        !self.policy.on_rollback.watches() && self.ascends_in_tick()
    }

    /// Whether the IDs of one tick are in the order of their positions, if those of a server are
    /// from tick to tick.
    pub const fn ascends_in_tick(&self) -> bool {
        !matches!(self.policy.on_exhausted, OnExhausted::NextClock) && !self.is_random()
    }

    /// Whether the sequence numbers of a tick are shuffled.
    pub const fn is_random(&self) -> bool {
        matches!(self.policy.sequence_start, SequenceStart::Random)
    }

    /// Whether IDs resume in another clock after a rollback.
    pub const fn changes_clocks(&self) -> bool {
        matches!(self.policy.on_rollback, OnRollback::NextClock)
    }

    /// Whether the generator continues in another rotation after a rollback, under the next worker
    /// ID of the server, see [`crate::protocol::rotation`].
    pub const fn rotates_worker(&self) -> bool {
        matches!(self.policy.on_rollback, OnRollback::NextWorker)
    }

    /// Whether a rollback and an exhausted tick take clocks from one clock history.
    pub const fn shares_clocks(&self) -> bool {
        self.changes_clocks() && matches!(self.policy.on_exhausted, OnExhausted::NextClock)
    }

    /// Why IDs of later positions need not be greater, but for those of one tick; `None`
    /// if they are. Only then there is a horizon, see [`crate::horizon`].
    pub const fn descends(&self) -> Option<Descent> {
        match self.layout.disorder() {
            Some(OrderError::NegativeFrom(_)) | None => {}
            Some(disorder) => return Some(Descent::Layout(disorder)),
        }
        if self.changes_clocks() || self.rotates_worker() {
            return Some(Descent::Rollback);
        }
        None
    }

    /// Where the sequence numbers of a fresh tick start.
    #[inline]
    pub const fn fresh(&self, tick: Tick) -> Offset {
        let first = self.policy.sequence_start.first_in(tick);
        Offset::new(self.layout.offset_of(tick).get() | first)
    }

    /// How far the generator may run ahead of its clock.
    pub fn max_borrow(&self) -> Millis {
        self.layout.lasting(self.policy.max_borrow_ticks)
    }

    /// The generator of a server whose generators may lead its clock by no more than
    /// `max_ahead`, if that is limited.
    pub fn within(mut self, max_ahead: Option<Millis>) -> Self {
        if let Some(most) = max_ahead {
            let ticks = most.get().max(0) / self.layout.tick().get();
            let ticks = self.policy.max_borrow_ticks.min(ticks.cast_unsigned());
            self.policy.max_borrow_ticks = ticks;
        }
        self
    }

    /// The largest batch that is issued at once: a quarter of the borrow window, at
    /// least one tick. So a batch never uses up at once what single calls of other
    /// sessions may borrow. Without borrowing, it is what is left of a tick wherever it
    /// starts.
    pub fn max_chunk(&self) -> u64 {
        let tick = 1 << self.layout.within_bits();
        match self.policy.max_borrow_ticks {
            0 => tick - self.policy.sequence_start.last(),
            ticks => tick.saturating_mul((ticks / 4).max(1)),
        }
    }
}
