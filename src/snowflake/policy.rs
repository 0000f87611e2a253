//! Policies: how far a generator may run ahead, how large a clock step it
//! forgives, and where a fresh tick's sequence numbers start.

use super::layout::Tick;

/// What a generator does when its clock and its load disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How many ticks the word may run ahead of the generator's clock once a
    /// tick's sequence numbers are used up.
    pub max_borrow_ticks: u64,
    /// How far, in milliseconds, the generator's clock may be ahead of the
    /// wall clock. A rollback or a stored mark beyond it is refused.
    pub max_rollback_millis: i64,
    /// Where the sequence numbers of a fresh tick start.
    pub sequence_start: SequenceStart,
}

/// Where the sequence numbers of a fresh tick start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStart {
    /// At `tick % 2^bits`. Always from 0, `id % 2^n` would be constant at low
    /// rates, and sharding by it would pile up on one shard. Counting up from
    /// the start keeps the order; `2^bits - 1` numbers of a tick are unused at
    /// the most.
    VibrateBits(u32),
}

impl Policy {
    /// The policy of the default generator: 100 ms of borrowing, one day of
    /// rollback, 64 starts (so `id % 64` is even, and at most 63 of 4096
    /// numbers, 1.6 %, are unused).
    pub const DEFAULT: Self = Self {
        max_borrow_ticks: 100,
        max_rollback_millis: 24 * 60 * 60 * 1000,
        sequence_start: SequenceStart::VibrateBits(6),
    };
}

impl SequenceStart {
    /// The first sequence number of a fresh tick.
    #[must_use]
    #[inline]
    pub const fn of(self, tick: Tick) -> u64 {
        match self {
            Self::VibrateBits(bits) => tick.get() & ((1 << bits) - 1),
        }
    }
}
