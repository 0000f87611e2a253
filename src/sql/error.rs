//! Texts that are no IDs, keys that are none, and calls that cannot be answered.

use pgrx::PgSqlErrorCode::*;

pub use crate::registry::error::*;
use snowflake_core::id::SnowflakeId;
use snowflake_core::id::mask::{self, KEY_BYTES, MaskError};
use snowflake_core::id::text::{Alphabet, TextError};
use snowflake_core::label::excerpt::excerpt;
use snowflake_core::label::generator::Generator;

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

/// The SQL function is that of a different version than the library.
pub fn other_columns(declared: i32, given: usize) -> Error {
    not_ready("the library of snowflake_id is of a different version than this function")
        .detail(format!(
            "The function is declared with {declared} columns, and the library gives {given}."
        ))
        .hint(
            "If a later version was installed, restart the server. If an earlier one was, install \
             the later one again.",
        )
}

pub fn locked(name: &str) -> Error {
    ERRCODE_LOCK_NOT_AVAILABLE
        .error(format!("generator {name} is locked"))
        .detail(
            "Another transaction changes the generator, or waits to change it. Calls wait until \
             that transaction ends, and what the sequence holds is not shown.",
        )
        .hint("View pg_locks shows which transaction that is.")
}

pub fn batch_count(count: i32, max: i32) -> Error {
    out_of_range(format!("count {count} is out of range"))
        .hint(format!("A batch has 1 to {max} IDs."))
}

pub fn block_count(count: i32, max: u64, name: &str) -> Error {
    out_of_range(format!("count {count} is out of range")).hint(format!(
        "A block of generator {name} has 1 to {max} IDs, as many as every tick holds."
    ))
}

pub fn no_blocks(name: &str, generator: &Generator) -> Error {
    let why = if generator.is_random() {
        "Its label says sequence_start=random: the numbers of a tick have no order."
    } else {
        "The lowest field of its layout is not the sequence: the next number is not the next \
         integer."
    };
    invalid(format!("generator {name} has no consecutive IDs"))
        .detail(why)
        .hint("Call snowflake_nextval_batch(): it returns many IDs, which need not be consecutive.")
}

pub fn no_currval(name: &str) -> Error {
    not_ready(format!(
        "snowflake_currval of generator {name} is not yet defined in this session"
    ))
    .hint("Call snowflake_nextval() first.")
}

/// A procedure that commits its steps was called where nothing can be committed.
pub fn needs_to_commit(procedure: &str) -> Error {
    ERRCODE_INVALID_TRANSACTION_TERMINATION
        .error(format!("{procedure}() cannot run inside a transaction block"))
        .detail("It commits its steps one by one.")
        .hint(
            "Send CALL alone, without BEGIN: statements that are sent in one string are a transaction \
             block. Settings for it go into statements before it, or into PGOPTIONS.",
        )
}
