//! IDs as text, and masked.

use std::ffi::c_char;

use pgrx::{FromDatum, pg_sys};

use super::super::encoding::DatabaseText;
use super::super::error::{self, Error};
use super::call::{Call, c_function};
use super::limit;
use snowflake_core::id::SnowflakeId;
use snowflake_core::mask::{self, MaskKey, Version};
use snowflake_core::text::Alphabet;

fn alphabet(call: &Call) -> Result<Alphabet, Error> {
    let name = call.text(1, &limit::ID);
    Alphabet::named(&name).ok_or_else(|| error::unknown_alphabet(&name))
}

// `snowflake_to_text(id, alphabet) -> text`.
c_function!(snowflake_to_text, |call| {
    let id = SnowflakeId::new(call.number(0));
    Ok(DatabaseText(alphabet(call)?.write(id)))
});

// `snowflake_from_text(id_text, alphabet) -> bigint`.
c_function!(snowflake_from_text, |call| {
    let (text, alphabet) = (call.text(0, &limit::ID), alphabet(call)?);
    let id = alphabet.read(&text);
    let id = id.map_err(|error| error::not_a_text(&text, alphabet, error))?;
    Ok(id.get())
});

/// The argument that is a key.
fn key(call: &Call, index: usize) -> Result<MaskKey, Error> {
    key_of(call.bytes(index, &limit::KEYS))
}

fn key_of(bytes: &[u8]) -> Result<MaskKey, Error> {
    let bytes = bytes
        .try_into()
        .map_err(|_| error::not_a_key(bytes.len()))?;
    Ok(MaskKey::new(bytes))
}

// `snowflake_mask(id, key) -> bigint`.
c_function!(snowflake_mask, |call| {
    let id = SnowflakeId::new(call.number(0));
    Ok(key(call, 1)?.mask(id).get())
});

// `snowflake_unmask(masked, key) -> bigint`.
c_function!(snowflake_unmask, |call| {
    let mask = SnowflakeId::new(call.number(0));
    Ok(key(call, 1)?.unmask(mask).get())
});

// `snowflake_mask_text(id, key, version) -> text`.
c_function!(snowflake_mask_text, |call| {
    let id = SnowflakeId::new(call.number(0));
    let number = call.get(2).unwrap_or_default();
    let version = Version::new(number).ok_or_else(|| error::version_range(number))?;
    Ok(DatabaseText(mask::write(key(call, 1)?.mask(id), version)))
});

// `snowflake_unmask_text(masked, keys) -> bigint`.
c_function!(snowflake_unmask_text, |call| {
    let keys = call.list(1, "keys", &limit::KEYS)?;
    let text = call.text(0, &limit::ID);
    let (mask, version) = mask::read(&text).map_err(|error| error::not_a_mask(&text, error))?;
    let mut is_null = false;
    let mut subscript = i32::from(version.get());
    // SAFETY: the argument is a bytea[], as the SQL function declares: elements of any
    // length, by reference, aligned like an integer. One outside the array is NULL.
    let element = unsafe {
        pg_sys::array_get_element(
            keys,
            1,
            &raw mut subscript,
            -1,
            -1,
            false,
            c_char::from_ne_bytes([pg_sys::TYPALIGN_INT]),
            &raw mut is_null,
        )
    };
    // SAFETY: an element of a bytea[] is a bytea.
    let bytes: Option<&[u8]> = unsafe { FromDatum::from_datum(element, is_null) };
    let bytes = bytes.ok_or_else(|| error::no_key(version))?;
    Ok(key_of(bytes)?.unmask(mask).get())
});
