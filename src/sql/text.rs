//! IDs as text, and masked.

use crate::postgres::{encoding::DatabaseText, size_limit};
use crate::sql::call::{Call, c_function};
use crate::sql::error::{self, Error};
use snowflake_core::id::SnowflakeId;
use snowflake_core::id::mask::{self, MaskKey, Version};
use snowflake_core::id::text::Alphabet;

fn alphabet(call: &Call) -> Result<Alphabet, Error> {
    let name = call.text(1, &size_limit::ID);
    Alphabet::named(&name).ok_or_else(|| error::unknown_alphabet(&name))
}

// `snowflake_to_text(id, alphabet) -> text`.
c_function!(snowflake_to_text, |call| {
    let id = SnowflakeId::new(call.number(0));
    Ok(DatabaseText(alphabet(call)?.write(id)))
});

// `snowflake_from_text(id_text, alphabet) -> bigint`.
c_function!(snowflake_from_text, |call| {
    let (text, alphabet) = (call.text(0, &size_limit::ID), alphabet(call)?);
    let id = alphabet.read(&text);
    let id = id.map_err(|error| error::not_a_text(&text, alphabet, error))?;
    Ok(id.get())
});

/// The argument that is a key.
fn key(call: &Call, index: usize) -> Result<MaskKey, Error> {
    key_of(call.bytes(index, &size_limit::KEY))
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

/// The argument that is the version of a key.
fn version(call: &Call) -> Result<Version, Error> {
    let number = call.get(2).unwrap_or_default();
    Version::new(number).ok_or_else(|| error::version_range(number))
}

// `snowflake_mask(id, key, version) -> text`.
c_function!(snowflake_mask_text, |call| {
    let id = SnowflakeId::new(call.number(0));
    Ok(DatabaseText(mask::write(
        key(call, 1)?.mask(id),
        version(call)?,
    )))
});

// `snowflake_unmask(masked, key, version) -> bigint`; NULL if the key has another version.
c_function!(snowflake_unmask_text, |call| {
    let (text, key, version) = (call.text(0, &size_limit::ID), key(call, 1)?, version(call)?);
    let (mask, its) = mask::read(&text).map_err(|error| error::not_a_mask(&text, error))?;
    Ok((its == version).then(|| key.unmask(mask).get()))
});
