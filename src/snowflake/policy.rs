//! Policies: what a generator does when the clock goes back, when a tick is used
//! up, and where a fresh tick's sequence numbers start.

use super::layout::Tick;

/// What a generator does when its clock and its load disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When the wall clock is found set back.
    pub on_rollback: OnRollback,
    /// How far, in milliseconds, the generator's clock may be ahead of the
    /// wall clock. A rollback or a stored mark beyond it is refused.
    pub max_rollback_millis: i64,
    /// How long, in milliseconds, [`OnRollback::Wait`] and
    /// [`OnRollback::NextWorker`] wait for the clock.
    pub max_wait_millis: i64,
    /// How many ticks the word may run ahead of the generator's clock once a
    /// tick's sequence numbers are used up.
    pub max_borrow_ticks: u64,
    /// When they are, and no more may be borrowed.
    pub on_exhausted: OnExhausted,
    /// Where the sequence numbers of a fresh tick start.
    pub sequence_start: SequenceStart,
}

/// What to do when the wall clock is found set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnRollback {
    /// Go on ahead of it, at half speed, until it has caught up.
    Continue,
    /// Wait until it has.
    Wait,
    /// Refuse.
    Error,
    /// Go on in the next clock of the layout.
    NextClock,
    /// Wait, then go on as another worker.
    NextWorker,
}

/// What to do when a tick's sequence numbers are used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExhausted {
    /// Wait for the next tick.
    Wait,
    /// Refuse.
    Error,
}

/// Where the sequence numbers of a fresh tick start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStart {
    /// At `tick & mask`, the mask being one less than a power of two. Always
    /// from 0, `id % 2^n` would be constant at low rates, and sharding by it
    /// would pile up on one shard. Counting up from the start keeps the order;
    /// as many numbers as the mask says are unused at the most.
    Masked(u64),
    /// At `tick % modulus`, for the other moduli.
    Modulo(u64),
    /// Where nobody can tell.
    Random,
}

/// A part of a policy that generators do not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// A reaction to a rollback.
    OnRollback(OnRollback),
    /// A reaction to a tick that is used up.
    OnExhausted(OnExhausted),
    /// A start of the sequence.
    SequenceStart(SequenceStart),
}

impl Policy {
    /// The policy of the default generator: 100 ms of borrowing, one day of
    /// rollback, 64 starts (so `id % 64` is even, and at most 63 of 4096
    /// numbers, 1.6 %, are unused).
    pub const DEFAULT: Self = Self {
        on_rollback: OnRollback::Continue,
        max_rollback_millis: 24 * 60 * 60 * 1000,
        max_wait_millis: 10,
        max_borrow_ticks: 100,
        on_exhausted: OnExhausted::Wait,
        sequence_start: SequenceStart::vibrate(63),
    };

    /// What of it generators do not have yet: they refuse to issue.
    pub fn unsupported(&self) -> impl Iterator<Item = Unsupported> {
        let on_rollback = Some(self.on_rollback)
            .filter(|it| *it != OnRollback::Continue)
            .map(Unsupported::OnRollback);
        let on_exhausted = Some(self.on_exhausted)
            .filter(|it| *it != OnExhausted::Wait)
            .map(Unsupported::OnExhausted);
        let sequence_start = Some(self.sequence_start)
            .filter(|it| *it == SequenceStart::Random)
            .map(Unsupported::SequenceStart);
        on_rollback
            .into_iter()
            .chain(on_exhausted)
            .chain(sequence_start)
    }
}

impl SequenceStart {
    /// At `tick % (last + 1)`; from 0 if `last` is 0.
    #[must_use]
    pub const fn vibrate(last: u32) -> Self {
        let modulus = last as u64 + 1;
        if modulus.is_power_of_two() {
            Self::Masked(modulus - 1)
        } else {
            Self::Modulo(modulus)
        }
    }

    /// The first sequence number of a fresh tick.
    #[must_use]
    #[inline]
    pub const fn of(self, tick: Tick) -> u64 {
        match self {
            Self::Masked(mask) => tick.get() & mask,
            other => other.of_others(tick),
        }
    }

    /// Out of the path of the common ones, for which each instruction counts.
    #[cold]
    const fn of_others(self, tick: Tick) -> u64 {
        match self {
            Self::Masked(mask) => tick.get() & mask,
            Self::Modulo(modulus) => tick.get() % modulus,
            Self::Random => 0,
        }
    }

    /// The largest number that a fresh tick may start with.
    #[must_use]
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
    fn starts_go_round() {
        for last in [0, 1, 2, 63, 99] {
            let start = SequenceStart::vibrate(last);
            assert_eq!(start.last(), u64::from(last));
            for tick in 0..300 {
                assert_eq!(start.of(Tick::new(tick)), tick % (u64::from(last) + 1));
            }
        }
        assert_eq!(SequenceStart::vibrate(63), SequenceStart::Masked(63));
        assert_eq!(SequenceStart::vibrate(99), SequenceStart::Modulo(100));
    }

    #[test]
    fn what_generators_do_not_have_yet() {
        let unsupported = |change: fn(&mut Policy)| {
            let mut policy = Policy::DEFAULT;
            change(&mut policy);
            policy.unsupported().collect::<Vec<_>>()
        };
        assert_eq!(unsupported(|_| {}), []);
        assert_eq!(
            unsupported(|it| it.sequence_start = SequenceStart::vibrate(99)),
            []
        );
        assert_eq!(
            unsupported(|it| it.sequence_start = SequenceStart::Random),
            [Unsupported::SequenceStart(SequenceStart::Random)]
        );
        assert_eq!(
            unsupported(|it| it.on_exhausted = OnExhausted::Error),
            [Unsupported::OnExhausted(OnExhausted::Error)]
        );
        for on_rollback in [
            OnRollback::Wait,
            OnRollback::Error,
            OnRollback::NextClock,
            OnRollback::NextWorker,
        ] {
            let policy = Policy {
                on_rollback,
                on_exhausted: OnExhausted::Error,
                ..Policy::DEFAULT
            };
            assert_eq!(
                policy.unsupported().collect::<Vec<_>>(),
                [
                    Unsupported::OnRollback(on_rollback),
                    Unsupported::OnExhausted(OnExhausted::Error)
                ]
            );
        }
    }
}
