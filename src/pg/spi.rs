//! SQL statements of our own: text in, rows of text out.
//!
//! Three things that pgrx's Spi does not do. Reading is as of now: under
//! REPEATABLE READ the transaction's snapshot would not show what others
//! committed before we got our lock. Names are converted between UTF-8, which
//! Rust has, and the database's encoding: a name that is not the same in both
//! would be that of another table. And rows that a policy hides are an error.
//!
//! Callers qualify and quote every name.

use std::ffi::{CStr, c_char};

use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};

use super::error::Error;

/// One row of a result; a column that is not there is NULL.
pub struct Row(Vec<Option<String>>);

impl Row {
    /// A column, if it is not NULL.
    pub fn get(&self, column: usize) -> Option<&str> {
        self.0.get(column).and_then(Option::as_deref)
    }

    /// A column, empty for NULL.
    pub fn text(&self, column: usize) -> String {
        self.get(column).unwrap_or_default().to_string()
    }

    /// A boolean.
    pub fn is(&self, column: usize) -> bool {
        self.get(column) == Some("t")
    }

    /// A number.
    pub fn number(&self, column: usize) -> Option<i64> {
        self.get(column)?.parse().ok()
    }

    /// An OID.
    pub fn oid(&self, column: usize) -> pg_sys::Oid {
        self.get(column)
            .and_then(|text| text.parse::<u32>().ok())
            .map_or(pg_sys::InvalidOid, pg_sys::Oid::from)
    }
}

/// What a query of the catalogs gives, as of now.
pub fn read(query: &str) -> Result<Vec<Row>, Error> {
    execute(query, true, false, None)
}

/// What a query of a user's table gives, as of now, and of all its rows. It runs
/// as `user`, the table's owner, and can do no lasting harm: planning it already
/// may call functions that the owner wrote, in an index or a constraint.
pub fn read_as(query: &str, user: pg_sys::Oid) -> Result<Vec<Row>, Error> {
    execute(query, true, true, Some(user))
}

/// Runs a statement that changes something.
pub fn run(statement: &str) -> Result<(), Error> {
    execute(statement, false, false, None).map(drop)
}

/// Whether a query gets by without violating a constraint. Its names are looked
/// up as the user in force; else it is as [`read_as`].
pub fn passes(query: &str, user: pg_sys::Oid) -> Result<bool, Error> {
    PgTryBuilder::new(|| execute(query, true, false, Some(user)).map(|_| true))
        .catch_when(PgSqlErrorCode::ERRCODE_CHECK_VIOLATION, |_| Ok(false))
        .execute()
}

fn execute(
    sql: &str,
    reads: bool,
    all_rows: bool,
    as_user: Option<pg_sys::Oid>,
) -> Result<Vec<Row>, Error> {
    // SAFETY: in a transaction. Whatever is set here is put back below, or by
    // the abort if a statement raises an error: callers let it end the
    // statement, or raise another one.
    unsafe {
        pg_sys::SPI_connect();
        let settings = pg_sys::NewGUCNestLevel();
        if all_rows {
            pg_sys::set_config_option(
                c"row_security".as_ptr(),
                c"off".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_SAVE,
                true,
                0,
                false,
            );
        }
        if reads {
            pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        }
        let plan = pg_sys::SPI_prepare(to_server(sql), 0, std::ptr::null_mut());
        let result = if plan.is_null() {
            Err(pg_sys::SPI_result)
        } else {
            let mut user = pg_sys::InvalidOid;
            let mut context = 0;
            pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
            if let Some(other) = as_user {
                #[allow(clippy::cast_possible_wrap)]
                let restricted = (pg_sys::SECURITY_LOCAL_USERID_CHANGE
                    | pg_sys::SECURITY_RESTRICTED_OPERATION)
                    as i32;
                pg_sys::SetUserIdAndSecContext(other, context | restricted);
            }
            let status =
                pg_sys::SPI_execute_plan(plan, std::ptr::null_mut(), std::ptr::null(), reads, 0);
            pg_sys::SetUserIdAndSecContext(user, context);
            if status < 0 { Err(status) } else { Ok(rows()) }
        };
        if reads {
            pg_sys::PopActiveSnapshot();
        }
        pg_sys::AtEOXact_GUC(true, settings);
        pg_sys::SPI_finish();
        result.map_err(|status| Error::Spi { status })
    }
}

/// The rows of the statement that has just run.
///
/// # Safety
/// Connected to SPI, right after a statement that succeeded.
unsafe fn rows() -> Vec<Row> {
    // SAFETY: the caller's; the table has `numvals` rows, and columns count
    // from 1. What SPI_getvalue returns is NUL-terminated.
    unsafe {
        let Some(table) = pg_sys::SPI_tuptable.as_ref() else {
            return Vec::new();
        };
        let columns = (*table.tupdesc).natts;
        let count = usize::try_from(table.numvals).unwrap_or(0);
        (0..count)
            .map(|row| {
                let tuple = *table.vals.add(row);
                let values = (1..=columns).map(|column| {
                    let value = pg_sys::SPI_getvalue(tuple, table.tupdesc, column);
                    (!value.is_null()).then(|| from_server(CStr::from_ptr(value)))
                });
                Row(values.collect())
            })
            .collect()
    }
}

const UTF8: i32 = {
    #[allow(clippy::cast_possible_wrap)]
    let utf8 = pg_sys::pg_enc::PG_UTF8 as i32;
    utf8
};

/// Text in the database's encoding, as UTF-8. Raises an error if it has none.
pub fn from_server(text: &CStr) -> String {
    let length = i32::try_from(text.to_bytes().len()).unwrap_or(i32::MAX);
    // SAFETY: `length` bytes are there; returns the argument or a converted
    // copy, NUL-terminated both.
    let utf8 = unsafe { CStr::from_ptr(pg_sys::pg_server_to_any(text.as_ptr(), length, UTF8)) };
    utf8.to_string_lossy().into_owned()
}

/// UTF-8 in the database's encoding, NUL-terminated, in the current memory
/// context. Raises an error if it has none, which what a query gave cannot.
pub fn to_server(text: &str) -> *const c_char {
    let length = i32::try_from(text.len()).unwrap_or(i32::MAX);
    // SAFETY: copies `text`; the conversion gets a NUL-terminated string.
    unsafe {
        let copy = pg_sys::pnstrdup(text.as_ptr().cast(), text.len() as pg_sys::Size);
        pg_sys::pg_any_to_server(copy, length, UTF8)
    }
}
