//! IDs as text of fixed length that sorts as the IDs do.
//!
//! The text is the number `id + 2^63`, which is never negative, in the digits of an
//! [`Alphabet`], the highest digit first and zeros in front. So the order of the texts,
//! byte by byte, is the order of the IDs, those below zero included.
//!
//! The digits are numbers of an alphabet, not groups of bits: in Crockford's base32 the
//! number is right-aligned and 13 characters have room for 65 bits. Crates that encode
//! bytes align to the left, and have no base 62; a division by a constant is shorter.

use crate::id::SnowflakeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alphabet {
    /// Crockford's: without I, L, O and U. Reads lower case as upper case, O as 0, and
    /// I and L as 1.
    Base32,
    /// Digits, upper case, lower case, which is their order in ASCII.
    Base62,
}

/// Why a text is not an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The number of its characters, which must be [`Alphabet::length`].
    Length(usize),
    /// A character that the alphabet does not have, and its place, counted from 1.
    Character(char, usize),
    /// The number is above those that 64 bits can hold.
    TooLarge,
}

const BASE32: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The digits that 64 bits take.
const LENGTH32: usize = 13;
const LENGTH62: usize = 11;

const SIGN: u64 = 1 << 63;

impl Alphabet {
    pub const ALL: [Self; 2] = [Self::Base32, Self::Base62];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Base32 => "base32",
            Self::Base62 => "base62",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// The characters of a text.
    pub const fn length(self) -> usize {
        match self {
            Self::Base32 => LENGTH32,
            Self::Base62 => LENGTH62,
        }
    }

    /// The characters that are written, in ascending order.
    pub fn characters(self) -> &'static str {
        let ascii: &[u8] = match self {
            Self::Base32 => BASE32,
            Self::Base62 => BASE62,
        };
        std::str::from_utf8(ascii).unwrap_or_default()
    }

    const fn base(self) -> u64 {
        match self {
            Self::Base32 => 32,
            Self::Base62 => 62,
        }
    }

    pub fn write(self, id: SnowflakeId) -> String {
        let number = id.get().cast_unsigned() ^ SIGN;
        match self {
            Self::Base32 => digits::<32, LENGTH32>(number, BASE32),
            Self::Base62 => digits::<62, LENGTH62>(number, BASE62),
        }
    }

    /// The inverse of [`Self::write`].
    pub fn read(self, text: &str) -> Result<SnowflakeId, TextError> {
        let length = text.chars().count();
        if length != self.length() {
            return Err(TextError::Length(length));
        }
        let mut number = Some(0_u64);
        for (place, character) in (1..).zip(text.chars()) {
            let digit = self.digit(character);
            let digit = digit.ok_or(TextError::Character(character, place))?;
            number = number
                .and_then(|number| number.checked_mul(self.base()))
                .and_then(|number| number.checked_add(digit));
        }
        let number = number.ok_or(TextError::TooLarge)?;
        Ok(SnowflakeId::new((number ^ SIGN).cast_signed()))
    }

    /// The value of a character.
    pub fn digit(self, character: char) -> Option<u64> {
        let byte = u8::try_from(character).ok()?;
        let byte = match self {
            Self::Base32 => byte.to_ascii_uppercase(),
            Self::Base62 => byte,
        };
        let from = |first: u8, value: u8| Some(u64::from(byte - first + value));
        match (self, byte) {
            (_, b'0'..=b'9') => from(b'0', 0),
            (Self::Base32, b'O') => Some(0),
            (Self::Base32, b'I' | b'L') => Some(1),
            (Self::Base32, b'A'..=b'H') => from(b'A', 10),
            (Self::Base32, b'J'..=b'K') => from(b'J', 18),
            (Self::Base32, b'M'..=b'N') => from(b'M', 20),
            (Self::Base32, b'P'..=b'T') => from(b'P', 22),
            (Self::Base32, b'V'..=b'Z') => from(b'V', 27),
            (Self::Base62, b'A'..=b'Z') => from(b'A', 10),
            (Self::Base62, b'a'..=b'z') => from(b'a', 36),
            _ => None,
        }
    }
}

/// A number in the digits of a base, with zeros in front.
fn digits<const BASE: usize, const LENGTH: usize>(number: u64, of: &[u8; BASE]) -> String {
    let mut rest = number;
    let mut text = [0; LENGTH];
    for place in text.iter_mut().rev() {
        let (next, digit) = (rest / BASE as u64, rest % BASE as u64);
        let digit = usize::try_from(digit).ok().and_then(|digit| of.get(digit));
        *place = digit.copied().unwrap_or_default();
        rest = next;
    }
    text.iter().copied().map(char::from).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(id: i64) -> SnowflakeId {
        SnowflakeId::new(id)
    }

    /// These texts are stored outside of the database: no version may read or write
    /// others.
    #[test]
    fn texts_stay_as_they_are() {
        let pinned = [
            (i64::MIN, "0000000000000", "00000000000"),
            (-1, "7ZZZZZZZZZZZZ", "AzL8n0Y58m7"),
            (0, "8000000000000", "AzL8n0Y58m8"),
            (1, "8000000000001", "AzL8n0Y58m9"),
            (249_722_523_258_744_845, "86XSH9Z9M0W0D", "BHmsA4NnHK9"),
            (i64::MAX, "FZZZZZZZZZZZZ", "LygHa16AHYF"),
        ];
        for (number, base32, base62) in pinned {
            assert_eq!(Alphabet::Base32.write(id(number)), base32);
            assert_eq!(Alphabet::Base62.write(id(number)), base62);
            assert_eq!(Alphabet::Base32.read(base32), Ok(id(number)));
            assert_eq!(Alphabet::Base62.read(base62), Ok(id(number)));
        }
    }

    #[test]
    fn each_character_is_read_as_its_place_in_the_alphabet() {
        for alphabet in Alphabet::ALL {
            let characters = alphabet.characters();
            assert_eq!(characters.len() as u64, alphabet.base());
            assert!(characters.as_bytes().is_sorted_by(|one, other| one < other));
            let mut read = 0;
            for code in 0..=0x2FF {
                let character = char::from_u32(code).unwrap();
                let written = match (alphabet, character) {
                    (Alphabet::Base32, 'o' | 'O') => '0',
                    (Alphabet::Base32, 'i' | 'I' | 'l' | 'L') => '1',
                    (Alphabet::Base32, _) => character.to_ascii_uppercase(),
                    (Alphabet::Base62, _) => character,
                };
                let place = characters.find(written).map(|place| place as u64);
                assert_eq!(alphabet.digit(character), place, "{character}");
                read += usize::from(place.is_some());
            }
            let expected = match alphabet {
                Alphabet::Base32 => 10 + 25 + 25,
                Alphabet::Base62 => 10 + 26 + 26,
            };
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let base32 = |text| Alphabet::Base32.read(text).unwrap_err();
        let base62 = |text| Alphabet::Base62.read(text).unwrap_err();
        assert_eq!(base32(""), TextError::Length(0));
        assert_eq!(base32("800000000000"), TextError::Length(12));
        assert_eq!(base32("80000000000000"), TextError::Length(14));
        assert_eq!(base32("800000000000u"), TextError::Character('u', 13));
        assert_eq!(base32("8000-00000000"), TextError::Character('-', 5));
        assert_eq!(base32("8é00000000000"), TextError::Character('é', 2));
        assert_eq!(base32("G000000000000"), TextError::TooLarge);
        assert_eq!(base32("ZZZZZZZZZZZZZ"), TextError::TooLarge);
        // The wrong character is told before the size.
        assert_eq!(base32("Z00000000000 "), TextError::Character(' ', 13));
        assert_eq!(base62("LygHa16AHYG"), TextError::TooLarge);
        assert_eq!(base62("zzzzzzzzzzz"), TextError::TooLarge);
        assert_eq!(base62("000000000000"), TextError::Length(12));
        assert_eq!(base62("0000000000_"), TextError::Character('_', 11));
    }

    #[test]
    fn aliases_of_base32_are_read() {
        let written = Alphabet::Base32.read("8011ABCDEFGHJ");
        assert_eq!(Alphabet::Base32.read("8oilabcdefghj"), written);
        assert_eq!(Alphabet::Base32.read("8OILABCDEFGHJ"), written);
        assert!(written.is_ok());
    }

    #[test]
    fn alphabets_are_named() {
        for alphabet in Alphabet::ALL {
            assert_eq!(Alphabet::named(alphabet.name()), Some(alphabet));
        }
        assert_eq!(Alphabet::named("BASE32"), None);
    }

    proptest! {
        #[test]
        fn a_text_is_read_as_the_id_that_was_written(number: i64) {
            for alphabet in Alphabet::ALL {
                let text = alphabet.write(id(number));
                prop_assert_eq!(text.len(), alphabet.length());
                prop_assert_eq!(alphabet.read(&text), Ok(id(number)));
            }
        }

        #[test]
        fn texts_sort_as_their_ids(one: i64, other: i64, near in -70_i64..70) {
            for alphabet in Alphabet::ALL {
                for other in [other, one.saturating_add(near)] {
                    let texts = alphabet.write(id(one)).cmp(&alphabet.write(id(other)));
                    prop_assert_eq!(texts, one.cmp(&other));
                }
            }
        }

        #[test]
        fn what_is_read_is_written_the_same_way(text in "[0-9A-Za-z]{11}|[0-9A-Za-z]{13}") {
            if let Ok(read) = Alphabet::Base62.read(&text) {
                prop_assert_eq!(Alphabet::Base62.write(read), text.clone());
            }
            if let Ok(read) = Alphabet::Base32.read(&text) {
                let plain = text.to_ascii_uppercase().replace('O', "0").replace(['I', 'L'], "1");
                prop_assert_eq!(Alphabet::Base32.write(read), plain);
            }
        }
    }
}
