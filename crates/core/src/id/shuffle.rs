//! `sequence_start=random`: a tick's sequence numbers in an order that is
//! unpredictable without the key.
//!
//! The n-th ID of a tick gets the sequence number `a * n + b`, modulo the size of the
//! sequence field. `a` is odd, so that each number is used once: the whole tick stays
//! usable. Both come from a keyed hash of the tick and the clock, so that any number of
//! sessions need to know only the key. With `b` alone, a rotation, two IDs of a tick
//! would tell how many lie between them.
//!
//! The key belongs to one life of the server and is never stored. That is safe because
//! every start, and every change of label or worker ID, begins at a fresh tick: two
//! keys never meet in one tick.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// The order of one generator in one life of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shuffle {
    key: (u64, u64),
}

// Debug output does not show the key.
impl std::fmt::Debug for Shuffle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shuffle")
    }
}

impl Shuffle {
    /// Made from the server's secret and from what distinguishes this generator from
    /// the others, so that each has an order of its own.
    pub fn new(secret: (u64, u64), generator: u64) -> Self {
        let part = |which: u8| {
            let mut hash = SipHasher13::new_with_keys(secret.0, secret.1);
            hash.write_u64(generator);
            hash.write_u8(which);
            hash.finish()
        };
        Self {
            key: (part(0), part(1)),
        }
    }

    /// The sequence number of the `nth` ID of a tick. The low bits count, up to 32: as
    /// many as the sequence field has.
    pub fn number(&self, tick: u64, clock: u64, nth: u64) -> u64 {
        let mut hash = SipHasher13::new_with_keys(self.key.0, self.key.1);
        hash.write_u64(tick);
        hash.write_u64(clock);
        let hash = hash.finish();
        let (odd, first) = (hash >> 32 | 1, hash);
        nth.wrapping_mul(odd).wrapping_add(first)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const S: (u64, u64) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);

    #[test]
    fn each_number_of_a_tick_comes_once() {
        for bits in [1, 2, 3, 8, if cfg!(miri) { 9 } else { 12 }] {
            let size = 1u64 << bits;
            for tick in 0..if cfg!(miri) { 1 } else { 50 } {
                let mut seen: Vec<_> = (0..size)
                    .map(|nth| Shuffle::new(S, 7).number(tick, 0, nth) & (size - 1))
                    .collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..size).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn tick_clock_generator_and_secret_each_make_another_order() {
        let order = |secret, generator, tick, clock| {
            (0..64)
                .map(|nth| Shuffle::new(secret, generator).number(tick, clock, nth) & 63)
                .collect::<Vec<_>>()
        };
        let one = order(S, 1, 1, 0);
        assert_eq!(one, order(S, 1, 1, 0));
        assert_ne!(one, order(S, 1, 2, 0));
        assert_ne!(one, order(S, 1, 1, 1));
        assert_ne!(one, order(S, 2, 1, 0));
        assert_ne!(one, order((S.0, S.1 + 1), 1, 1, 0));
    }

    #[test]
    fn two_ids_of_a_tick_do_not_tell_how_many_are_between() {
        // The difference of the first and the second ID is seldom the same.
        let ticks = if cfg!(miri) { 50 } else { 1000usize };
        let differences: std::collections::BTreeSet<_> = (0..ticks as u64)
            .map(|tick| {
                let number = |nth| Shuffle::new(S, 1).number(tick, 0, nth);
                number(1).wrapping_sub(number(0)) & 4095
            })
            .collect();
        assert!(differences.len() > ticks * 7 / 10, "{}", differences.len());
    }

    #[test]
    fn it_does_not_print_its_key() {
        assert_eq!(format!("{:?}", Shuffle::new(S, 1)), "Shuffle");
    }
}
