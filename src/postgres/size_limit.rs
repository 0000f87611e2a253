//! How long the arguments of SQL functions may be.
//!
//! A role without any privilege chooses them, up to 1 GB. PostgreSQL answers a failed
//! allocation with an error, but Rust ends the process, and with it all sessions. So an
//! argument is measured before anything copies it: `sql::call::Call` measures all that
//! it gives out, and nothing else reads an argument of variable length.

use pgrx::PgSqlErrorCode::{
    self, ERRCODE_INVALID_PARAMETER_VALUE, ERRCODE_INVALID_TEXT_REPRESENTATION,
};
use pgrx::{pg_sys, varlena};

use crate::postgres::error::{Code, Error};
use snowflake_core::label::TEXT_MAX;

/// The most bytes of an argument.
pub struct Limit {
    /// How the error begins.
    what: &'static str,
    /// The named argument, behind it.
    argument: &'static str,
    most: usize,
    code: PgSqlErrorCode,
}

/// An ID as text, also a masked one, and the name of its alphabet.
pub const ID: Limit = Limit {
    what: "invalid ID",
    argument: "",
    most: 64,
    code: ERRCODE_INVALID_TEXT_REPRESENTATION,
};

/// A label.
pub const LABEL: Limit = Limit::new("invalid label", TEXT_MAX);

/// The fields of an ID, as JSON.
pub const FIELDS: Limit = Limit::new("invalid fields", 8 << 10);

/// A key.
pub const KEY: Limit = Limit::new("invalid key", 8 << 10);

/// A request to a registry, and all else that is JSON.
pub const JSON: Limit = Limit::new("invalid JSON", 64 << 10);

/// The name of an object, or of a pool, and the address of a registry.
pub const NAME: Limit = Limit::new("invalid argument", 4 << 10);

/// The worker IDs of a pool.
pub const RANGES: Limit = Limit::new("invalid worker IDs", 64 << 10);

/// All servers that one call asks.
pub const SERVERS: Limit = Limit::new("invalid list of servers", 64 << 10);

/// The names of all columns of a table.
pub const NAMES: Limit = Limit::new("invalid list of names", 128 << 10);

/// A statement of the extension's own, with conditions of the catalogs.
pub const QUERY: Limit = Limit::new("invalid statement", 16 << 20);

/// What a query returns: of the catalogs and the extension's tables, and also what the code
/// of a table's owner makes.
pub const VALUE: Limit = Limit::new("invalid value", 16 << 20);

impl Limit {
    pub const fn new(what: &'static str, most: usize) -> Self {
        Self {
            what,
            argument: "",
            most,
            code: ERRCODE_INVALID_PARAMETER_VALUE,
        }
    }

    /// A named argument that is a key of a label.
    pub const fn of_key(key: &'static str) -> Self {
        Self {
            argument: key,
            ..Self::new("invalid argument ", TEXT_MAX)
        }
    }

    /// Refuses more bytes.
    pub fn check(&self, bytes: usize) -> Result<(), Error> {
        if bytes <= self.most {
            return Ok(());
        }
        let Self {
            what,
            argument,
            most,
            code,
        } = self;
        let error = code.error(format!("{what}{argument}: it has {bytes} bytes"));
        Err(error.hint(format!("It can have up to {most}.")))
    }

    /// Refuses a value of variable length that has more bytes, before it is decompressed or
    /// read from another table.
    ///
    /// # Safety
    /// The value is of such a type, and not NULL.
    pub unsafe fn check_datum(&self, datum: pg_sys::Datum) -> Result<(), Error> {
        // SAFETY: as the caller guarantees.
        self.check(unsafe { bytes_of(datum) })
    }

    /// Checks a jsonb, whose stored form is longer than its text, by less than this
    /// factor unless the text repeats itself, and shorter if it has numbers such as 1e9999.
    /// The text is to be checked as well.
    ///
    /// # Safety
    /// As for [`Self::check_datum`].
    pub unsafe fn check_jsonb(&self, datum: pg_sys::Datum) -> Result<(), Error> {
        const GROWTH: usize = 8;
        // SAFETY: as the caller guarantees.
        let bytes = unsafe { bytes_of(datum) };
        if bytes <= self.most.saturating_mul(GROWTH) {
            return Ok(());
        }
        self.check(bytes)
    }
}

/// How many bytes a value has without its header.
///
/// # Safety
/// The value is of variable length, and not NULL.
unsafe fn bytes_of(datum: pg_sys::Datum) -> usize {
    // SAFETY: as the caller guarantees.
    unsafe {
        let value = datum.cast_mut_ptr::<pg_sys::varlena>();
        if varlena::varatt_is_1b_e(value) || varlena::varatt_is_4b_c(value) {
            return pg_sys::toast_raw_datum_size(datum).saturating_sub(pg_sys::VARHDRSZ);
        }
        varlena::varsize_any_exhdr(value)
    }
}
