//! SQL statements that the extension runs.
//!
//! This file does two things that pgrx's Spi does not. Names are converted between
//! Rust's UTF-8 and the database's encoding: unconverted, a name could be that of
//! another table. And a query can be read as of now and as another user.
//!
//! Callers qualify and quote every name.

use std::ffi::CStr;

use pgrx::{IntoDatum, pg_sys};

use super::encoding::{Text, from_server, to_server_exactly};
use super::error::{self, Error};
use super::report;

/// One row of a result. Its columns have the names that the query gives them. To ask
/// for another name is a mistake of ours, which ends the statement as an internal error
/// instead of passing for NULL.
pub struct Row(Vec<(String, Option<String>)>);

impl Row {
    /// A column, if it is not NULL.
    pub fn get(&self, name: &str) -> Option<&str> {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value.as_deref(),
            None => pgrx::error!("snowflake_id: a query has no column \"{name}\""),
        }
    }

    /// A column, empty for NULL.
    pub fn text(&self, name: &str) -> String {
        self.get(name).unwrap_or_default().to_string()
    }

    pub fn is(&self, name: &str) -> bool {
        self.get(name) == Some("t")
    }
}

/// The rows of a query of the catalogs, as of now.
pub fn read(query: &str) -> Result<Vec<Row>, Error> {
    read_rows(query, None)
}

/// The first row of such a query, if there is one.
pub fn read_one(query: &str) -> Result<Option<Row>, Error> {
    Ok(read(query)?.into_iter().next())
}

/// The same, run as `user`.
pub fn read_one_as(query: &str, user: pg_sys::Oid) -> Result<Option<Row>, Error> {
    Ok(read_rows(query, Some(user))?.into_iter().next())
}

fn read_rows(query: &str, user: Option<pg_sys::Oid>) -> Result<Vec<Row>, Error> {
    report::keeping_errors(|| {
        let sql = to_server_exactly(query).map_err(|_| error::untranslatable())?;
        // SAFETY: as in `run`.
        unsafe {
            pg_sys::SPI_connect();
            pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
            let plan = pg_sys::SPI_prepare(sql, 0, std::ptr::null_mut());
            let no_values = std::ptr::null_mut();
            let run = || pg_sys::SPI_execute_plan(plan, no_values, std::ptr::null(), true, 0);
            let status = match user {
                _ if plan.is_null() => pg_sys::SPI_result,
                Some(user) => as_user(user, pg_sys::SECURITY_RESTRICTED_OPERATION, run),
                None => run(),
            };
            let result = if status < 0 {
                Err(error::spi(status))
            } else {
                Ok(rows())
            };
            pg_sys::PopActiveSnapshot();
            pg_sys::SPI_finish();
            result
        }
    })
}

/// The rows of the statement that has just run.
///
/// # Safety
/// The session is connected to SPI, right after a statement that succeeded.
unsafe fn rows() -> Vec<Row> {
    // SAFETY: as the caller guarantees; the table has `numvals` rows, and columns count
    // from 1. The results of SPI_fname and SPI_getvalue are NUL-terminated, and
    // SPI_fname does not return NULL for a column that exists.
    unsafe {
        let Some(table) = pg_sys::SPI_tuptable.as_ref() else {
            return Vec::new();
        };
        let count = usize::try_from(table.numvals).unwrap_or(0);
        let tuples = std::slice::from_raw_parts(table.vals, count);
        let row = |tuple: &pg_sys::HeapTuple| {
            let columns = (1..=(*table.tupdesc).natts).map(|column| {
                let name = CStr::from_ptr(pg_sys::SPI_fname(table.tupdesc, column));
                let value = pg_sys::SPI_getvalue(*tuple, table.tupdesc, column);
                let value = (!value.is_null()).then(|| from_server(CStr::from_ptr(value)));
                (from_server(name), value)
            });
            Row(columns.collect())
        };
        tuples.iter().map(row).collect()
    }
}

/// Runs a statement that changes something.
pub fn run(statement: &str) -> Result<(), Error> {
    report::keeping_errors(|| {
        let sql = to_server_exactly(statement).map_err(|_| error::untranslatable())?;
        // SAFETY: in a transaction; the statement is NUL-terminated. Everything set here
        // is put back below, or by the abort if a statement raises an error, which
        // nobody here catches.
        unsafe {
            pg_sys::SPI_connect();
            let status = pg_sys::SPI_execute(sql, false, 0);
            pg_sys::SPI_finish();
            if status < 0 {
                return Err(error::spi(status));
            }
            Ok(())
        }
    })
}

/// Runs a statement of the extension's own, with texts as its parameters. Returns the
/// first value, if there is one that is not NULL. Under READ COMMITTED it sees what
/// others have committed by now.
pub fn value(statement: &str, values: &[&str]) -> Result<Option<String>, Error> {
    report::keeping_errors(|| {
        let sql = to_server_exactly(statement).map_err(|_| error::untranslatable())?;
        let mut types = vec![pg_sys::TEXTOID; values.len()];
        let values = values.iter().map(|value| Text(value).into_datum());
        let mut values: Vec<_> = values.map(|value| value.unwrap_or(0.into())).collect();
        let count = i32::try_from(values.len()).unwrap_or(0);
        // SAFETY: as in `run`; there are as many types and values as are counted.
        unsafe {
            pg_sys::SPI_connect();
            let (types, values) = (types.as_mut_ptr(), values.as_mut_ptr());
            let nulls = std::ptr::null();
            let status = pg_sys::SPI_execute_with_args(sql, count, types, values, nulls, false, 0);
            let value = (status >= 0).then(|| first_value()).flatten().flatten();
            pg_sys::SPI_finish();
            if status < 0 {
                return Err(error::spi(status));
            }
            Ok(value)
        }
    })
}

/// The first value that a query returns. The query is in the database's encoding, and
/// reads as of now: under REPEATABLE READ, the transaction's snapshot is older. It runs
/// as `user`, and can do no lasting harm: even planning it may call functions that
/// somebody wrote, in an index or a constraint.
pub fn read_as(query: &CStr, user: pg_sys::Oid) -> Result<Option<String>, Error> {
    report::keeping_errors(|| {
        // SAFETY: as in `run`.
        unsafe {
            pg_sys::SPI_connect();
            pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
            // Names are looked up as the caller; planning runs functions.
            let plan = pg_sys::SPI_prepare(query.as_ptr(), 0, std::ptr::null_mut());
            let no_values = std::ptr::null_mut();
            let run = || pg_sys::SPI_execute_plan(plan, no_values, std::ptr::null(), true, 0);
            let is_run =
                !plan.is_null() && as_user(user, pg_sys::SECURITY_RESTRICTED_OPERATION, run) >= 0;
            let value = is_run.then(|| first_value()).flatten();
            pg_sys::PopActiveSnapshot();
            pg_sys::SPI_finish();
            value.ok_or_else(error::no_query)
        }
    })
}

/// The first column of the first row of the query that has just run, if there is one.
///
/// # Safety
/// The session is connected to SPI, right after a statement that succeeded.
unsafe fn first_value() -> Option<Option<String>> {
    // SAFETY: as the caller guarantees; columns count from 1. A result of SPI_getvalue
    // that is not NULL is NUL-terminated.
    unsafe {
        let table = pg_sys::SPI_tuptable.as_ref()?;
        if table.numvals == 0 || (*table.tupdesc).natts == 0 {
            return None;
        }
        let value = pg_sys::SPI_getvalue(*table.vals, table.tupdesc, 1);
        Some((!value.is_null()).then(|| from_server(CStr::from_ptr(value))))
    }
}

/// Runs `f` as another user, under further restrictions. If `f` raises an error, the
/// abort puts the user back.
pub fn as_user<T>(user: pg_sys::Oid, restrictions: u32, f: impl FnOnce() -> T) -> T {
    let restrictions = (pg_sys::SECURITY_LOCAL_USERID_CHANGE | restrictions).cast_signed();
    let (mut before, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: in a transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut before, &raw mut context);
        pg_sys::SetUserIdAndSecContext(user, context | restrictions);
        let result = f();
        pg_sys::SetUserIdAndSecContext(before, context);
        result
    }
}
