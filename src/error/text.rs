//! Texts that are no IDs, and keys that are none.

use pgrx::PgSqlErrorCode::*;

use super::{Code, Error, invalid, out_of_range};
use snowflake_core::id::SnowflakeId;
use snowflake_core::id::mask::{self, KEY_BYTES, MaskError};
use snowflake_core::id::text::{Alphabet, TextError};
use snowflake_core::label::excerpt::excerpt;

pub fn unknown_alphabet(name: &str) -> Error {
    let name = excerpt(name);
    let names = Alphabet::ALL.map(Alphabet::name).join(" and ");
    invalid(format!("unknown alphabet \"{name}\"")).hint(format!("The alphabets are {names}."))
}

pub fn not_a_text(text: &str, alphabet: Alphabet, error: TextError) -> Error {
    let name = alphabet.name();
    let what = format!("ID in {name}");
    refused(text, &what, alphabet, alphabet.length(), error)
}

pub fn not_a_mask(text: &str, error: MaskError) -> Error {
    match error {
        MaskError::Text(error) => refused(text, "masked ID", mask::ALPHABET, mask::LENGTH, error),
        MaskError::NoVersion => ERRCODE_INVALID_TEXT_REPRESENTATION
            .error(format!("invalid masked ID: \"{}\"", excerpt(text)))
            .detail("It begins with 0, which is the version of no key.")
            .hint(VERSIONS_HINT),
    }
}

/// SQLSTATE 22P02, as for a bigint with other characters than digits, or 22003.
fn refused(text: &str, what: &str, alphabet: Alphabet, length: usize, error: TextError) -> Error {
    let name = alphabet.name();
    let text = excerpt(text);
    let syntax =
        || ERRCODE_INVALID_TEXT_REPRESENTATION.error(format!("invalid {what}: \"{text}\""));
    match error {
        TextError::Length(found) => syntax()
            .detail(format!("It has {found} characters."))
            .hint(format!("It must have {length} characters.")),
        TextError::Character(character, place) => {
            let also = match alphabet {
                Alphabet::Base32 => " Lower case is read as upper case, O as 0, and I and L as 1.",
                Alphabet::Base62 => "",
            };
            syntax()
                .detail(format!("Its character {place} is \"{character}\"."))
                .hint(format!(
                    "The characters of {name} are {}.{also}",
                    alphabet.characters()
                ))
        }
        TextError::TooLarge => {
            let greatest = alphabet.write(SnowflakeId::new(i64::MAX));
            out_of_range(format!("{what} is out of range: \"{text}\""))
                .detail("An ID has 64 bits.")
                .hint(format!("The greatest ID is {greatest} in {name}."))
        }
    }
}

const VERSIONS_HINT: &str = "Versions of keys are 1 to 31.";

/// The key itself is not shown.
pub fn not_a_key(bytes: usize) -> Error {
    invalid(format!("a key for masks cannot have {bytes} bytes")).hint(format!(
        "A key has {KEY_BYTES} random bytes. To make one: SELECT uuid_send(gen_random_uuid())"
    ))
}

pub fn version_range(version: i32) -> Error {
    out_of_range(format!("version {version} of a key is out of range")).hint(VERSIONS_HINT)
}

pub fn not_a_list(name: &str, dimensions: i32) -> Error {
    ERRCODE_ARRAY_ELEMENT_ERROR
        .error(format!(
            "{name} must be a one-dimensional array, and has {dimensions} dimensions"
        ))
        .hint("Give a list, as in ARRAY['a', 'b'].")
}
