//! A keyed permutation of 64 bits: IDs that tell no time, server or count without the
//! key.
//!
//! It is a balanced Feistel network, which is a permutation whatever its round function
//! is, of [`ROUNDS`] rounds:
//!
//! ```text
//! left, right = high and low 32 bits of the ID
//! for round in 0..10:
//!     left, right = right, left ^ low 32 bits of SipHash-2-4(key, right || round)
//! mask = left || right
//! ```
//!
//! `right` and `round` are hashed as four bytes each, the lowest first; the key is the 16
//! bytes that SipHash takes.
//!
//! This is the structure of FF1 (NIST SP 800-38G), with SipHash-2-4 as the pseudorandom
//! function instead of AES in CBC mode. Its key and output fit, and no dependency is new. It
//! needs no key schedule, so that a call costs a fraction of a microsecond without a cache
//! of keys. Four rounds make such a network a pseudorandom permutation, also
//! against an attacker who may mask and unmask (Luby and Rackoff, 1988), but only below
//! 2^16 pairs of ID and mask, the square root of the number of halves. From six rounds
//! on, the limit is near 2^32 pairs (Patarin, 2004). FF1 has ten rounds, as a margin, and
//! so has this.
//!
//! Masks are stored outside of the database, in links and by other systems, so nothing
//! here may ever change; another construction would get another name.

use siphasher::sip::SipHasher24;

use crate::id::SnowflakeId;
use crate::id::text::{Alphabet, TextError};

const ROUNDS: u32 = 10;

/// The size of a key, in bytes.
pub const KEY_BYTES: usize = 16;

/// A key, without a form that could be printed.
pub struct MaskKey(SipHasher24);

impl MaskKey {
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(SipHasher24::new_with_key(bytes))
    }

    pub fn mask(&self, id: SnowflakeId) -> SnowflakeId {
        let start = halves(id);
        let end = (0..ROUNDS).fold(start, |(left, right), round| {
            (right, left ^ self.hash(right, round))
        });
        joined(end)
    }

    /// The inverse of [`Self::mask`].
    pub fn unmask(&self, mask: SnowflakeId) -> SnowflakeId {
        let end = halves(mask);
        let start = (0..ROUNDS).rev().fold(end, |(left, right), round| {
            (right ^ self.hash(left, round), left)
        });
        joined(start)
    }

    fn hash(&self, half: u32, round: u32) -> u32 {
        let message = u64::from(round) << 32 | u64::from(half);
        halves_of(self.0.hash(&message.to_le_bytes())).1
    }
}

fn halves(id: SnowflakeId) -> (u32, u32) {
    halves_of(id.get().cast_unsigned())
}

/// The high and the low 32 bits.
fn halves_of(bits: u64) -> (u32, u32) {
    // Each is what is left of 64 bits.
    #[allow(clippy::cast_possible_truncation)]
    ((bits >> 32) as u32, bits as u32)
}

fn joined((left, right): (u32, u32)) -> SnowflakeId {
    SnowflakeId::new((u64::from(left) << 32 | u64::from(right)).cast_signed())
}

/// Which key a text was masked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u8);

impl Version {
    /// 0 is left out: keys are elements of an array, which begins at 1.
    pub const MIN: u8 = 1;
    /// The greatest digit of base32.
    pub const MAX: u8 = 31;

    pub fn new(number: i32) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (Self::MIN..=Self::MAX)
            .contains(&number)
            .then_some(Self(number))
    }

    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Masks as text: the version of the key as a digit of base32, then the mask in base32.
pub const ALPHABET: Alphabet = Alphabet::Base32;

/// The characters of a mask as text.
pub const LENGTH: usize = 1 + ALPHABET.length();

pub fn write(mask: SnowflakeId, version: Version) -> String {
    let digit = ALPHABET.characters().chars().nth(version.0.into());
    digit
        .into_iter()
        .chain(ALPHABET.write(mask).chars())
        .collect()
}

/// The inverse of [`write()`].
pub fn read(text: &str) -> Result<(SnowflakeId, Version), MaskError> {
    let length = text.chars().count();
    let first = text.chars().next().filter(|_| length == LENGTH);
    let first = first.ok_or(MaskError::Text(TextError::Length(length)))?;
    let digit = ALPHABET.digit(first).and_then(|it| i32::try_from(it).ok());
    let digit = digit.ok_or(MaskError::Text(TextError::Character(first, 1)))?;
    let rest = text.get(first.len_utf8()..).unwrap_or_default();
    let mask = ALPHABET.read(rest).map_err(|error| {
        MaskError::Text(match error {
            TextError::Character(character, place) => TextError::Character(character, place + 1),
            other => other,
        })
    })?;
    let version = Version::new(digit).ok_or(MaskError::NoVersion)?;
    Ok((mask, version))
}

/// Why a text is not a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskError {
    Text(TextError),
    /// It begins with 0.
    NoVersion,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(id: i64) -> SnowflakeId {
        SnowflakeId::new(id)
    }

    const ASCENDING: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    /// The masks of another implementation, with a SipHash of its own: docs/text.md has
    /// one in JavaScript. Masks are stored outside of the database: no version may make
    /// others.
    #[test]
    fn masks_stay_as_they_are() {
        let other = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff_u128.to_be_bytes();
        let pinned = [
            (
                i64::MIN,
                -4_744_140_768_022_664_520,
                3_741_311_922_869_304_896,
                4_448_181_486_440_664_173,
            ),
            (
                -1,
                3_117_165_265_154_540_362,
                -2_159_966_045_719_588_413,
                3_644_858_933_030_466_450,
            ),
            (
                0,
                -9_179_098_714_814_648_028,
                -2_519_364_345_498_346_158,
                -3_508_951_319_652_644_598,
            ),
            (
                1,
                -1_781_397_491_479_320_352,
                7_465_904_141_618_778_394,
                3_004_942_553_871_816_240,
            ),
            (
                249_722_523_258_744_845,
                4_039_223_349_829_058_890,
                9_042_782_855_989_469_569,
                659_097_961_497_850_268,
            ),
            (
                249_722_523_258_744_846,
                -5_745_417_798_030_381_165,
                -1_457_242_818_633_055_949,
                8_658_313_576_559_323_561,
            ),
            (
                i64::MAX,
                -1_557_638_502_597_475_875,
                -4_822_811_353_561_048_537,
                -5_989_785_031_778_332_246,
            ),
        ];
        for (number, zeros, ascending, others) in pinned {
            for (key, mask) in [([0; 16], zeros), (ASCENDING, ascending), (other, others)] {
                let key = MaskKey::new(&key);
                assert_eq!(key.mask(id(number)), id(mask));
                assert_eq!(key.unmask(id(mask)), id(number));
            }
        }
        let text = write(id(9_042_782_855_989_469_569), Version(1));
        assert_eq!(text, "1FTZKB3343X8C1");
    }

    #[test]
    fn neighbours_have_masks_without_a_pattern() {
        // A bit that is changed changes half of the bits of the mask, on average.
        let key = MaskKey::new(&ASCENDING);
        let start = 249_722_523_258_744_845_i64;
        let changed: u32 = (0..64)
            .flat_map(|bit| (0..100).map(move |n| (start + n * 4096, 1 << bit)))
            .map(|(one, bit)| {
                let masks = (key.mask(id(one)), key.mask(id(one ^ bit)));
                (masks.0.get() ^ masks.1.get()).count_ones()
            })
            .sum();
        let average = f64::from(changed) / 6400.0;
        assert!((31.0..33.0).contains(&average), "{average}");
    }

    #[test]
    fn texts_that_are_no_masks_are_refused() {
        let text = |error| Err(MaskError::Text(error));
        assert_eq!(read(""), text(TextError::Length(0)));
        assert_eq!(read("8000000000000"), text(TextError::Length(13)));
        assert_eq!(read("18000000000000"), Ok((id(0), Version(1))));
        assert_eq!(read("iooooooooooooo"), Ok((id(i64::MIN), Version(1))));
        assert_eq!(read("08000000000000"), Err(MaskError::NoVersion));
        assert_eq!(read("U8000000000000"), text(TextError::Character('U', 1)));
        assert_eq!(read("é8000000000000"), text(TextError::Character('é', 1)));
        assert_eq!(read("180000000000é0"), text(TextError::Character('é', 13)));
        assert_eq!(read("1G000000000000"), text(TextError::TooLarge));
    }

    #[test]
    fn versions_are_1_to_31() {
        assert_eq!(Version::new(0), None);
        assert_eq!(Version::new(32), None);
        assert_eq!(Version::new(-1), None);
        assert_eq!(Version::new(257), None);
        for number in 1..=31 {
            let version = Version::new(number).unwrap();
            assert_eq!(i32::from(version.get()), number);
            assert_eq!(read(&write(id(7), version)), Ok((id(7), version)));
        }
    }

    proptest! {
        // With an inverse on both sides, the mask is a permutation.
        #[test]
        fn unmasking_and_masking_are_inverses(number: i64, key: [u8; 16]) {
            let key = MaskKey::new(&key);
            prop_assert_eq!(key.unmask(key.mask(id(number))), id(number));
            prop_assert_eq!(key.mask(key.unmask(id(number))), id(number));
        }

        #[test]
        fn another_key_makes_another_mask(number: i64, key: [u8; 16], bit in 0_u32..128) {
            let other = (u128::from_ne_bytes(key) ^ 1_u128 << bit).to_ne_bytes();
            prop_assert_ne!(MaskKey::new(&key).mask(id(number)), MaskKey::new(&other).mask(id(number)));
        }

        #[test]
        fn a_mask_is_read_as_it_was_written(number: i64, version in 1..=31) {
            let version = Version::new(version).unwrap();
            let text = write(id(number), version);
            prop_assert_eq!(text.len(), LENGTH);
            prop_assert_eq!(read(&text), Ok((id(number), version)));
        }
    }
}
