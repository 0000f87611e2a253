//! Policies: what a generator does after a clock rollback and when a tick is exhausted,
//! and where a fresh tick's sequence numbers start.

use crate::id::layout::Layout;
use crate::id::{Millis, Tick};

/// Most bits of the clock field of a generator that changes clocks: the mark has no
/// room for more.
pub const CLOCK_BITS_MAX: u32 = 6;

/// What a generator does when its clock and its load disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub on_rollback: OnRollback,
    /// How far the generator's clock may be ahead of the wall clock. A rollback or a
    /// stored mark beyond that is refused.
    pub max_rollback: Millis,
    /// How long a call waits for a clock that was set back, if [`OnRollback::waits`].
    pub max_wait: Millis,
    /// How many ticks the cursor may run ahead of the generator's clock once a tick is
    /// exhausted.
    pub max_borrow_ticks: u64,
    /// How far ahead of the generator's clock an ID may be that it observes, if that is less
    /// than it may borrow.
    pub max_observe: Option<Millis>,
    /// What to do when a tick is exhausted and no more ticks may be borrowed.
    pub on_exhausted: OnExhausted,
    pub sequence_start: SequenceStart,
}

/// What to do when the wall clock is found set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRollback {
    /// Go on ahead of it, at half speed, until it has caught up.
    Continue,
    /// Wait until it has caught up.
    Wait,
    Error,
    /// Go on in the next clock of the layout.
    NextClock,
    /// Go on when the server has its next worker ID.
    NextWorker,
}

/// What to do when a tick is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// Wait for the next tick.
    Wait,
    Error,
    /// Go on in the next clocks of the layout, then wait.
    NextClock,
}

/// Where the sequence numbers of a fresh tick start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStart {
    /// At `tick & mask`, the mask being one less than a power of two. If every tick
    /// started from 0, `id % 2^n` would be constant at low rates, and sharding by it
    /// would pile up on one shard. Counting up from the start keeps the order; at most
    /// as many sequence numbers as the mask says are unused.
    Masked(u64),
    /// At `tick % modulus`, for the other moduli. This evens out the sequence numbers,
    /// but not `id % modulus`, which the time above them changes as well.
    Modulo(u64),
    /// At a secret random number, and onward in a secret order.
    Random,
}

impl OnRollback {
    /// Whether generators look at the wall clock for each ID.
    pub const fn watches(self) -> bool {
        !matches!(self, Self::Continue)
    }

    /// Whether a call may wait for a clock that was set back.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Wait | Self::NextClock | Self::NextWorker)
    }
}

impl Policy {
    /// The policy of the default generator: 100 ms of borrowing, one day of rollback,
    /// 64 starts. All values of `id % 64` are equally frequent, and at most 63 of 4096
    /// sequence numbers, 1.6 %, are unused.
    pub const DEFAULT: Self = Self {
        on_rollback: OnRollback::Continue,
        max_rollback: Millis::new(24 * 60 * 60 * 1000),
        max_wait: Millis::new(10),
        max_borrow_ticks: 100,
        max_observe: None,
        on_exhausted: OnExhausted::Wait,
        sequence_start: SequenceStart::usual(Layout::DEFAULT.sequence_bits()),
    };

    /// How far ahead of the wall clock a generator may be moved, by borrowing or at
    /// once: half of what is forgiven, so that a clock rollback on top of that is still
    /// forgiven.
    pub const fn max_advance(&self) -> Millis {
        self.max_rollback.half()
    }
}

impl SequenceStart {
    /// At `tick % (last + 1)`; from 0 if `last` is 0.
    pub const fn vibrate(last: u32) -> Self {
        let modulus = last as u64 + 1;
        if modulus.is_power_of_two() {
            Self::Masked(modulus - 1)
        } else {
            Self::Modulo(modulus)
        }
    }

    /// The start of a generator whose label gives none, by the width of its sequence
    /// field: 64 starts, or fewer if 64 would leave more than a 64th of a tick's
    /// sequence numbers unused.
    pub const fn usual(sequence_bits: u32) -> Self {
        let bits = sequence_bits.saturating_sub(6);
        Self::vibrate((1 << if bits < 6 { bits } else { 6 }) - 1)
    }

    /// The first sequence number of a fresh tick.
    #[inline]
    pub const fn first_in(self, tick: Tick) -> u64 {
        match self {
            Self::Masked(mask) => tick.get() & mask,
            other => other.first_in_others(tick),
        }
    }

    /// Kept out of the path of the common starts, in which each instruction counts.
    #[cold]
    const fn first_in_others(self, tick: Tick) -> u64 {
        match self {
            Self::Masked(mask) => tick.get() & mask,
            Self::Modulo(modulus) => tick.get() % modulus,
            Self::Random => 0,
        }
    }

    /// The largest sequence number that a fresh tick may start with.
    pub const fn last(self) -> u64 {
        match self {
            Self::Masked(mask) => mask,
            Self::Modulo(modulus) => modulus - 1,
            Self::Random => 0,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_on_top_of_an_advance_is_forgiven() {
        let half = Millis::new(12 * 60 * 60 * 1000);
        assert_eq!(Policy::DEFAULT.max_advance(), half);
    }

    #[test]
    fn starts_go_round() {
        for last in [0, 1, 2, 63, 99] {
            let start = SequenceStart::vibrate(last);
            assert_eq!(start.last(), u64::from(last));
            for tick in 0..300 {
                assert_eq!(
                    start.first_in(Tick::new(tick)),
                    tick % (u64::from(last) + 1)
                );
            }
        }
        assert_eq!(Policy::DEFAULT.sequence_start, SequenceStart::Masked(63));
        assert_eq!(SequenceStart::vibrate(99), SequenceStart::Modulo(100));
    }
}
