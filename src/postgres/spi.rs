//! SQL statements that the extension runs.
//!
//! This file does two things that pgrx's Spi does not. Names are converted between
//! Rust's UTF-8 and the database's encoding: unconverted, a name could be that of
//! another table. And a query can be read as of now and as another user.
//!
//! Callers qualify and quote every name. No other file runs SQL, and each statement has a path of its
//! own, without schemas of others: [`connected`]; but for a procedure that may commit ([`call`]), which
//! sets its own.
//!
//! [`as_user`] is the only place that switches the user. What runs there may be code of
//! that user, so it is kept apart in all that core keeps apart for REINDEX: the rights, the
//! settings, and what it may leave behind. Parsing a query is part of it: the constants of
//! an array, a range or a row are read by input functions, which check domains.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};

use pgrx::{IntoDatum, PgList, pg_sys};

use crate::postgres::encoding::{DatabaseText, from_server, to_server_exactly};
use crate::postgres::error::{self, Error};
use crate::postgres::size_limit::{self, Limit};
use crate::postgres::{catalog, compat};

/// How many rows a query hands over at a time.
const BATCH: std::ffi::c_long = 1000;

thread_local! {
    static KEPT_PLANS: RefCell<HashMap<&'static str, pg_sys::SPIPlanPtr>> = RefCell::default();
}

/// One row of a result. Its columns have the names that the query gives them. To ask
/// for another name is a mistake of ours, which ends the statement as an internal error
/// instead of passing for NULL.
pub struct SpiRow(Vec<(String, Option<String>)>);

impl SpiRow {
    /// A column, if it is not NULL.
    pub fn get(&self, name: &str) -> Option<&str> {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, value)) => value.as_deref(),
            None => pgrx::error!("snowflake_id: a query has no column \"{name}\""),
        }
    }

    /// The first column, if it is not NULL.
    pub fn first(self) -> Option<String> {
        self.0.into_iter().next().and_then(|(_, value)| value)
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
pub fn read(query: &str) -> Result<Vec<SpiRow>, Error> {
    read_rows(query, None)
}

/// The first row of such a query, if there is one.
pub fn read_one(query: &str) -> Result<Option<SpiRow>, Error> {
    Ok(read(query)?.into_iter().next())
}

/// As [`read_one`], run as `user`.
pub fn read_one_as(query: &str, user: pg_sys::Oid) -> Result<Option<SpiRow>, Error> {
    Ok(read_rows(query, Some(user))?.into_iter().next())
}

fn read_rows(query: &str, user: Option<pg_sys::Oid>) -> Result<Vec<SpiRow>, Error> {
    connected(|| {
        let sql = in_servers_encoding(query)?;
        // SAFETY: connected, with a snapshot; the text is NUL-terminated. The rows are read
        // right after the query.
        as_of_now(|| unsafe { succeeded(parse_and_run(sql, user, None)?).and_then(|()| rows()) })
    })
}

/// A statement in the database's encoding, NUL-terminated, in the current memory context.
fn in_servers_encoding(statement: &str) -> Result<*mut c_char, Error> {
    to_server_exactly(statement).map_err(|_| error::untranslatable())
}

/// Runs `f` connected to SPI, with a path in which nobody else has anything: the operators of a
/// statement may not be those of the session that calls. An error that a statement raises ends
/// the connection by its abort, which puts the path back, and nobody here catches it.
fn connected<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // SAFETY: in a transaction. All that is allocated in between goes with the connection.
    unsafe {
        pg_sys::SPI_connect();
        let level = pg_sys::NewGUCNestLevel();
        set(c"search_path", c"pg_catalog, pg_temp");
        let result = f();
        pg_sys::AtEOXact_GUC(true, level);
        pg_sys::SPI_finish();
        result
    }
}

/// Sets a parameter until the level of settings ends.
///
/// # Safety
/// There is such a level.
unsafe fn set(name: &CStr, value: &CStr) {
    use pg_sys::{GucAction::GUC_ACTION_SAVE, GucContext::PGC_USERSET, GucSource::PGC_S_SESSION};
    let (name, value) = (name.as_ptr(), value.as_ptr());
    // SAFETY: as the caller guarantees.
    unsafe {
        pg_sys::set_config_option(
            name,
            value,
            PGC_USERSET,
            PGC_S_SESSION,
            GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// Runs `f` with a snapshot of now: under REPEATABLE READ, that of the transaction is older.
fn as_of_now<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: in a transaction; an abort pops the snapshot, too.
    unsafe {
        pg_sys::PushActiveSnapshot(pg_sys::GetLatestSnapshot());
        let result = f();
        pg_sys::PopActiveSnapshot();
        result
    }
}

/// What SPI says of a statement: negative after a failure.
fn succeeded(status: i32) -> Result<(), Error> {
    match status {
        ..0 => Err(error::spi(status)),
        _ => Ok(()),
    }
}

/// Parses, plans and runs a query; all three as `user`, if there is one. If a relation is given, the
/// query may read no other one. Returns the status of SPI.
///
/// # Safety
/// The session is connected to SPI, with a snapshot; `sql` is NUL-terminated.
unsafe fn parse_and_run(
    sql: *const c_char,
    user: Option<pg_sys::Oid>,
    relation: Option<pg_sys::Oid>,
) -> Result<c_int, Error> {
    // SAFETY: as the caller guarantees.
    let run = || unsafe {
        let plan = pg_sys::SPI_prepare(sql, 0, std::ptr::null_mut());
        if plan.is_null() {
            return Ok(pg_sys::SPI_result);
        }
        if relation.is_some_and(|relation| !reads_only(plan, relation)) {
            return Err(error::renamed());
        }
        let none = std::ptr::null_mut();
        Ok(pg_sys::SPI_execute_plan(
            plan,
            none,
            std::ptr::null(),
            true,
            0,
        ))
    };
    match user {
        Some(user) => as_user(user, pg_sys::SECURITY_RESTRICTED_OPERATION, run),
        None => run(),
    }
}

/// Whether the relation that a query names, if it names one, is this one: the query is parsed, and not
/// yet planned, and the owner of a schema may give the name to a view of his at any moment. PostgreSQL
/// lists what a query reads from the outside in. The locks that parsing took are kept, and a plan that
/// is not saved is not parsed again.
///
/// # Safety
/// The plan was made by SPI, and not saved.
unsafe fn reads_only(plan: pg_sys::SPIPlanPtr, relation: pg_sys::Oid) -> bool {
    // A catalog of PostgreSQL, or a sequence, which is a constant, and has no code.
    let is_harmless = |oid: &pg_sys::Oid| {
        oid.to_u32() < pg_sys::FirstNormalObjectId
            || catalog::kind(*oid) == pg_sys::RELKIND_SEQUENCE
    };
    // SAFETY: as the caller guarantees; the lists have these elements.
    unsafe {
        let sources = pg_sys::SPI_plan_get_plan_sources(plan);
        let sources = PgList::<pg_sys::CachedPlanSource>::from_pg(sources);
        sources.iter_ptr().all(|source| {
            let read = PgList::<pg_sys::Oid>::from_pg((*source).relationOids);
            let mut named = read.iter_oid().filter(|oid| !is_harmless(oid));
            named.next().is_none_or(|oid| oid == relation)
        })
    }
}

/// The rows of the statement that has just run.
///
/// # Safety
/// The session is connected to SPI, right after a statement that succeeded.
unsafe fn rows() -> Result<Vec<SpiRow>, Error> {
    // SAFETY: as the caller guarantees; the table has `numvals` rows, and columns count
    // from 1. The results of SPI_fname and SPI_getvalue are NUL-terminated, and
    // SPI_fname does not return NULL for a column that exists.
    unsafe {
        let Some(table) = pg_sys::SPI_tuptable.as_ref() else {
            return Ok(Vec::new());
        };
        let count = usize::try_from(table.numvals).unwrap_or(0);
        let tuples = std::slice::from_raw_parts(table.vals, count);
        let row = |tuple: &pg_sys::HeapTuple| {
            let columns = (1..=(*table.tupdesc).natts).map(|column| {
                let name = CStr::from_ptr(pg_sys::SPI_fname(table.tupdesc, column));
                let value = pg_sys::SPI_getvalue(*tuple, table.tupdesc, column);
                Ok((from_server(name), measured(value, &size_limit::VALUE)?))
            });
            Ok(SpiRow(columns.collect::<Result<_, Error>>()?))
        };
        tuples.iter().map(row).collect()
    }
}

/// Runs a statement that changes something. Event triggers of others see this path, too.
pub fn run(statement: &str) -> Result<(), Error> {
    connected(|| {
        let sql = in_servers_encoding(statement)?;
        // SAFETY: connected; the statement is NUL-terminated.
        succeeded(unsafe { pg_sys::SPI_execute(sql, false, 0) })
    })
}

/// Runs a statement about a table as its owner, and returns the number of rows. A caller who is the
/// owner runs it as usual: also deferred triggers, which a restricted operation forbids.
pub fn run_as_owner(owner: pg_sys::Oid, statement: &CStr) -> Result<i64, Error> {
    connected(|| {
        // SAFETY: connected; the statement is NUL-terminated.
        let run = || unsafe { pg_sys::SPI_execute(statement.as_ptr(), false, 0) };
        let status = match owner == compat::user() {
            true => run(),
            false => as_user(owner, pg_sys::SECURITY_RESTRICTED_OPERATION, run),
        };
        succeeded(status).map_err(|_| error::no_statement())?;
        // SAFETY: a variable of this process.
        Ok(unsafe { pg_sys::SPI_processed }.cast_signed())
    })
}

/// Runs CALL for a procedure that is named with its schema, with parameters of any types. Such a
/// procedure may commit, so nothing is set for it here, and it sets its path itself.
pub fn call(
    statement: &str,
    values: impl ExactSizeIterator<Item = (pg_sys::Oid, Option<pg_sys::Datum>)>,
    may_commit: bool,
) -> Result<(), Error> {
    let sql = in_servers_encoding(statement)?;
    // SAFETY: in a transaction; the statement is NUL-terminated, and the list has a place for each
    // value. What SPI and this function allocate lasts longer than the transactions of the procedure
    // if it may commit: SPI sees to that, and the list is in the memory of the call.
    unsafe {
        let list = pg_sys::makeParamList(i32::try_from(values.len()).unwrap_or(0));
        for (place, (type_, value)) in values.enumerate() {
            let parameter = &mut *(*list).params.as_mut_ptr().add(place);
            parameter.isnull = value.is_none();
            parameter.value = value.unwrap_or(0.into());
            parameter.ptype = type_;
        }
        let options = if may_commit {
            pg_sys::SPI_OPT_NONATOMIC
        } else {
            0
        };
        pg_sys::SPI_connect_ext(options.cast_signed());
        let options = pg_sys::SPIExecuteOptions {
            params: list,
            allow_nonatomic: may_commit,
            ..Default::default()
        };
        let result = succeeded(pg_sys::SPI_execute_extended(sql, &raw const options));
        pg_sys::SPI_finish();
        result
    }
}

/// Runs a statement of the extension's own, with texts as its parameters. Returns the
/// first value, if there is one that is not NULL. Under READ COMMITTED it sees what
/// others have committed by now.
pub fn value(statement: &str, values: &[&str]) -> Result<Option<String>, Error> {
    value_of(statement, &texts(values))
}

/// Runs such a statement as `user`, and returns the first row. Only [`crate::postgres::own_tables`] may:
/// `user` is the owner of the tables that the statement names.
///
/// The session parses and plans the statement once, whatever the values: planning takes longer
/// than running. PostgreSQL's cache of plans plans it again, by name, when an object that the plan
/// uses has changed, so a plan outlives the extension, and is that of the next one.
pub fn row_as(
    user: pg_sys::Oid,
    statement: &'static str,
    values: &[&str],
) -> Result<Option<SpiRow>, Error> {
    connected(|| {
        let (mut types, mut values): (Vec<_>, Vec<_>) = texts(values).into_iter().unzip();
        as_user(user, 0, || {
            hide_trees();
            let kept = KEPT_PLANS.with_borrow(|plans| plans.get(statement).copied());
            let (values, nulls) = (values.as_mut_ptr(), std::ptr::null());
            // SAFETY: connected; the plan has as many parameters as there are values, none of
            // which is NULL.
            unsafe {
                let plan = kept.map_or_else(|| keep_plan(statement, &mut types), Ok)?;
                succeeded(pg_sys::SPI_execute_plan(plan, values, nulls, false, 0))
            }
        })?;
        // SAFETY: right after a statement that succeeded.
        Ok(unsafe { rows() }?.into_iter().next())
    })
}

/// Makes the plan of a statement, which this session keeps.
///
/// # Safety
/// The session is connected to SPI, and runs as the user who uses the plan.
unsafe fn keep_plan(
    statement: &'static str,
    types: &mut [pg_sys::Oid],
) -> Result<pg_sys::SPIPlanPtr, Error> {
    let sql = in_servers_encoding(statement)?;
    let count = i32::try_from(types.len()).unwrap_or(0);
    // SAFETY: as the caller guarantees; the statement is NUL-terminated, and there are as many
    // types as are counted.
    let plan = unsafe {
        let generic = pg_sys::CURSOR_OPT_GENERIC_PLAN.cast_signed();
        let plan = pg_sys::SPI_prepare_cursor(sql, count, types.as_mut_ptr(), generic);
        if plan.is_null() {
            return Err(error::spi(pg_sys::SPI_result));
        }
        pg_sys::SPI_keepplan(plan);
        plan
    };
    KEPT_PLANS.with_borrow_mut(|plans| plans.insert(statement, plan));
    Ok(plan)
}

/// Runs such a statement with parameters of any types: the types, and the values, none of
/// which is NULL.
pub fn value_of(
    statement: &str,
    values: &[(pg_sys::Oid, pg_sys::Datum)],
) -> Result<Option<String>, Error> {
    connected(|| {
        let sql = in_servers_encoding(statement)?;
        let (mut types, mut values): (Vec<_>, Vec<_>) = values.iter().copied().unzip();
        let count = i32::try_from(values.len()).unwrap_or(0);
        let (types, values, nulls) = (types.as_mut_ptr(), values.as_mut_ptr(), std::ptr::null());
        // SAFETY: connected; there are as many types and values as are counted.
        unsafe {
            let status = pg_sys::SPI_execute_with_args(sql, count, types, values, nulls, false, 0);
            succeeded(status)?;
            first_value(&size_limit::VALUE).map(Option::flatten)
        }
    })
}

fn texts(values: &[&str]) -> Vec<(pg_sys::Oid, pg_sys::Datum)> {
    let text = |value: &&str| {
        let datum = DatabaseText(value).into_datum();
        (pg_sys::TEXTOID, datum.unwrap_or(0.into()))
    };
    values.iter().map(text).collect()
}

/// Prints no trees of statements until the level of settings ends. Each session may have
/// them printed to its client, with the parameters, and the key of a registry is one.
fn hide_trees() {
    // SAFETY: variables of this process, and NUL-terminated constants; within a level of
    // settings, which undoes the change.
    unsafe {
        for (is_on, name) in [
            (pg_sys::Debug_print_parse, c"debug_print_parse"),
            (pg_sys::Debug_print_rewritten, c"debug_print_rewritten"),
            (pg_sys::Debug_print_plan, c"debug_print_plan"),
        ] {
            if is_on {
                set(name, c"off");
            }
        }
    }
}

/// The first value that a query returns. The query is in the database's encoding, and
/// reads as of now: under REPEATABLE READ, the transaction's snapshot is older. It runs
/// as `user`, and can do no lasting harm: even parsing and planning it may call functions
/// that somebody wrote, in a domain, an index or a constraint.
pub fn read_as(
    query: &CStr,
    user: pg_sys::Oid,
    relation: pg_sys::Oid,
) -> Result<Option<String>, Error> {
    connected(|| {
        // SAFETY: connected, with a snapshot; the value is read right after the query.
        let value = as_of_now(|| unsafe {
            let status = parse_and_run(query.as_ptr(), Some(user), Some(relation))?;
            succeeded(status).map_or(Ok(None), |()| first_value(&size_limit::VALUE))
        });
        value?.ok_or_else(error::no_query)
    })
}

/// Puts the rows of such a query of a relation into a store: pairs of a bigint and a timestamptz.
pub fn pairs_as(
    query: &CStr,
    user: pg_sys::Oid,
    relation: pg_sys::Oid,
    store: *mut pg_sys::Tuplestorestate,
) -> Result<(), Error> {
    let are_pairs = connected(|| {
        // SAFETY: connected, with a snapshot.
        let read = || unsafe { read_pairs(query.as_ptr(), relation, store) };
        let restrictions = pg_sys::SECURITY_RESTRICTED_OPERATION;
        as_of_now(|| as_user(user, restrictions, read))
    })?;
    match are_pairs {
        true => Ok(()),
        false => Err(error::no_pairs()),
    }
}

/// Puts the rows of a query into a store, unless they are no pairs of a bigint and a
/// timestamptz.
///
/// # Safety
/// The session is connected to SPI, with a snapshot; `query` is NUL-terminated.
unsafe fn read_pairs(
    query: *const c_char,
    relation: pg_sys::Oid,
    store: *mut pg_sys::Tuplestorestate,
) -> Result<bool, Error> {
    // SAFETY: as the caller guarantees. A portal and a table of results are ours until they
    // are given back, and the table has `numvals` rows.
    unsafe {
        let plan = pg_sys::SPI_prepare(query, 0, std::ptr::null_mut());
        if plan.is_null() || !pg_sys::SPI_is_cursor_plan(plan) {
            return Ok(false);
        }
        if !reads_only(plan, relation) {
            return Err(error::renamed());
        }
        let no_values = std::ptr::null_mut();
        let cursor =
            pg_sys::SPI_cursor_open(std::ptr::null(), plan, no_values, std::ptr::null(), true);
        let row_type = (*cursor).tupDesc;
        let are_pairs = !row_type.is_null()
            && (*row_type).natts == 2
            && pg_sys::SPI_gettypeid(row_type, 1) == pg_sys::INT8OID
            && pg_sys::SPI_gettypeid(row_type, 2) == pg_sys::TIMESTAMPTZOID;
        loop {
            if !are_pairs {
                break;
            }
            pg_sys::SPI_cursor_fetch(cursor, true, BATCH);
            let table = pg_sys::SPI_tuptable;
            let count = usize::try_from(pg_sys::SPI_processed).unwrap_or(0);
            if table.is_null() || count == 0 {
                break;
            }
            for tuple in std::slice::from_raw_parts((*table).vals, count) {
                pg_sys::tuplestore_puttuple(store, *tuple);
            }
            pg_sys::SPI_freetuptable(table);
        }
        pg_sys::SPI_cursor_close(cursor);
        Ok(are_pairs)
    }
}

/// The first column of the first row of the query that has just run, if there is one.
///
/// # Safety
/// The session is connected to SPI, right after a statement that succeeded.
unsafe fn first_value(limit: &Limit) -> Result<Option<Option<String>>, Error> {
    // SAFETY: as the caller guarantees; columns count from 1. A result of SPI_getvalue
    // that is not NULL is NUL-terminated.
    unsafe {
        let table = pg_sys::SPI_tuptable.as_ref();
        let Some(table) = table.filter(|it| it.numvals > 0 && (*it.tupdesc).natts > 0) else {
            return Ok(None);
        };
        let value = pg_sys::SPI_getvalue(*table.vals, table.tupdesc, 1);
        measured(value, limit).map(Some)
    }
}

/// A value as UTF-8, unless it is NULL. It is measured before it is copied: it may be what
/// somebody's function has returned.
///
/// # Safety
/// NULL or NUL-terminated.
unsafe fn measured(value: *const c_char, limit: &Limit) -> Result<Option<String>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller guarantees.
    let value = unsafe { CStr::from_ptr(value) };
    limit.check(value.count_bytes())?;
    Ok(Some(from_server(value)))
}

/// Runs `f` as another user, under further restrictions, and undoes what `f` sets: a
/// setting that stayed, such as a search_path, would choose what the caller runs next. If
/// `f` raises an error, the abort puts the user and the settings back.
pub fn as_user<T>(user: pg_sys::Oid, restrictions: u32, f: impl FnOnce() -> T) -> T {
    let restrictions = (pg_sys::SECURITY_LOCAL_USERID_CHANGE | restrictions).cast_signed();
    let (mut before, mut context) = (pg_sys::InvalidOid, 0);
    // SAFETY: in a transaction.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&raw mut before, &raw mut context);
        pg_sys::SetUserIdAndSecContext(user, context | restrictions);
        let level = pg_sys::NewGUCNestLevel();
        let result = f();
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(before, context);
        result
    }
}
