//! SQL statements of the extension's own: text in, rows of text out.
//!
//! This file does three things that pgrx's Spi does not. Queries read as of now: under
//! REPEATABLE READ the transaction's snapshot would not show what others committed
//! before we got our lock. Names are converted between Rust's UTF-8 and the database's
//! encoding: unconverted, a name could be that of another table. And rows that a policy
//! hides are an error.
//!
//! Callers qualify and quote every name.

use std::ffi::CStr;

use pgrx::pg_sys;

use super::encoding::{from_server, to_server_exactly};
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

    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// A column as an OID; invalid for NULL.
    pub fn oid(&self, name: &str) -> pg_sys::Oid {
        let oid = self.get(name).and_then(|text| text.parse::<u32>().ok());
        oid.map_or(pg_sys::InvalidOid, pg_sys::Oid::from)
    }
}

/// The rows of a query of the catalogs, as of now.
pub fn read(query: &str) -> Result<Vec<Row>, Error> {
    execute(query, true, false, None)
}

/// The first row of such a query, if there is one.
pub fn read_one(query: &str) -> Result<Option<Row>, Error> {
    Ok(read(query)?.into_iter().next())
}

/// The first row of a query that reads all rows of a user's table, as of now. The query
/// runs as `user`, the table's owner, and can do no lasting harm: even planning it may
/// call functions that the owner wrote, in an index or a constraint.
pub fn read_all_as(query: &str, user: pg_sys::Oid) -> Result<Option<Row>, Error> {
    Ok(execute(query, true, true, Some(user))?.into_iter().next())
}

/// The same for a query that reads no table by itself.
pub fn read_one_as(query: &str, user: pg_sys::Oid) -> Result<Option<Row>, Error> {
    Ok(execute(query, true, false, Some(user))?.into_iter().next())
}

/// Runs a statement that changes something.
pub fn run(statement: &str) -> Result<(), Error> {
    execute(statement, false, false, None).map(drop)
}

fn execute(
    sql: &str,
    reads: bool,
    all_rows: bool,
    user: Option<pg_sys::Oid>,
) -> Result<Vec<Row>, Error> {
    report::keeping_errors(|| execute_inside(sql, reads, all_rows, user))
}

fn execute_inside(
    sql: &str,
    reads: bool,
    all_rows: bool,
    user: Option<pg_sys::Oid>,
) -> Result<Vec<Row>, Error> {
    let sql = to_server_exactly(sql).map_err(|_| error::untranslatable())?;
    // SAFETY: in a transaction. Everything set here is put back below, or by the abort
    // if a statement raises an error, which nobody here catches.
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
        let plan = pg_sys::SPI_prepare(sql, 0, std::ptr::null_mut());
        let result = if plan.is_null() {
            Err(pg_sys::SPI_result)
        } else {
            let no_values = std::ptr::null_mut();
            let run = || pg_sys::SPI_execute_plan(plan, no_values, std::ptr::null(), reads, 0);
            let status = match user {
                Some(user) => as_user(user, pg_sys::SECURITY_RESTRICTED_OPERATION, run),
                None => run(),
            };
            if status < 0 { Err(status) } else { Ok(rows()) }
        };
        if reads {
            pg_sys::PopActiveSnapshot();
        }
        pg_sys::AtEOXact_GUC(true, settings);
        pg_sys::SPI_finish();
        result.map_err(error::spi)
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
