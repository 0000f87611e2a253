//! The way to a registry in PostgreSQL: one connection, by libpq.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::libpq::wait::{Stop, Thread, Waiter};
use crate::libpq::{Connection, Conninfo, LibpqError};
use crate::wire::{self, MessageError};
use snowflake_core::lease::{Reply, Request};

/// Sets what the registry's functions need, whatever the role or the database has set, and
/// looks for the extension. A statement ends on the other server when this one no longer
/// waits for it; a commit that waits for a synchronous standby does not. Also tells when the
/// other postmaster started, in microseconds: only this server itself did so at the same
/// one.
const SET_UP: &str = "SELECT (SELECT e.extname FROM pg_catalog.pg_extension AS e \
        WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'), \
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) \
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, \
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
    pg_catalog.set_config('default_transaction_read_only', 'off', false), \
    pg_catalog.set_config('statement_timeout', '5s', false), \
    pg_catalog.set_config('lock_timeout', '5s', false), \
    pg_catalog.current_database()";

/// A call of a function of schema `_snowflake`, unless the function is not the extension's. The
/// owner of that database may have put one of its name in its place. That one would be run with
/// the rights of this server's role, and answer what its owner wants. He can make no function in
/// C, and none of a superuser's.
///
/// Both names, that of the last literal and that of the call, are looked up when the statement
/// is parsed, and nothing that others do may come in between. A session learns of changes when
/// it locks a table, which it also does to read a catalog row that it has not cached. So what
/// stands in FROM, which is parsed first, has all tables, all types and the same comparison:
/// from the last literal to the call, everything is in the caches.
macro_rules! if_ours {
    ($function:literal, $types:literal, $arguments:literal) => {
        concat!(
            "SELECT CASE WHEN a.ours OPERATOR(pg_catalog.@>) ARRAY['_snowflake.",
            $function,
            "(",
            $types,
            ")'::pg_catalog.regprocedure::pg_catalog.oid] \
            THEN _snowflake.",
            $function,
            "(",
            $arguments,
            ") END \
            FROM (SELECT $1::pg_catalog.text, $2::pg_catalog.jsonb, \
                ARRAY(SELECT f.oid FROM pg_catalog.pg_proc AS f \
                    JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) f.proowner \
                    JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) f.prolang \
                    WHERE f.proname OPERATOR(pg_catalog.=) '",
            $function,
            "' AND o.rolsuper \
                        AND l.lanname OPERATOR(pg_catalog.=) 'c'), \
                ARRAY[0::pg_catalog.oid] OPERATOR(pg_catalog.@>) ARRAY['_snowflake.",
            $function,
            "(",
            $types,
            ")'::pg_catalog.regprocedure::pg_catalog.oid]) \
                AS a (pool, request, ours, is_cached)"
        )
    };
}
/// Calls the registry with the name of the pool and the request. See [`if_ours`].
const LEASE: &str = if_ours!(
    "lease",
    "pg_catalog.text,pg_catalog.jsonb",
    "a.pool, a.request"
);

/// Reads what the registry has stored; the parameters are of no use. See [`if_ours`].
const READ: &str = if_ours!("read_registry", "", "");

/// The other server, of which only one that takes writes will do.
fn server(registry: &str) -> Result<Conninfo, LibpqError> {
    Conninfo::parse(registry)?.with([("target_session_attrs", "read-write")])
}

/// A registry in PostgreSQL.
pub struct PostgresRegistry {
    server: Result<Conninfo, LibpqError>,
    pool: String,
    stop: Stop,
    session: Option<Connection>,
    /// When this server's postmaster started.
    started: i64,
    here: Arc<AtomicBool>,
}

/// Why a registry in PostgreSQL has not replied.
#[derive(Debug)]
pub enum PostgresError {
    Libpq(LibpqError),
    /// The registry's database does not have the extension.
    NoExtension,
    /// The function of the registry's database is not the extension's.
    ForeignFunction,
    /// The registry's server has warned that its reply could be lost.
    NotDurable,
    Unreadable(MessageError),
}

impl From<LibpqError> for PostgresError {
    fn from(error: LibpqError) -> Self {
        Self::Libpq(error)
    }
}

impl PostgresRegistry {
    /// `registry` is a conninfo or a URL; `here` tells then whether the latest connection
    /// was to this server itself, whose postmaster started at `started`.
    pub fn new(
        registry: &str,
        pool: String,
        stop: Stop,
        here: Arc<AtomicBool>,
        started: i64,
    ) -> Self {
        Self {
            server: server(registry),
            pool,
            stop,
            session: None,
            started,
            here,
        }
    }

    /// The reply to a request. Takes no longer, but for a look-up of a host name.
    pub fn ask(&mut self, request: &Request, until: Instant) -> Result<Reply, PostgresError> {
        let is_old = self.session.is_some();
        match self.ask_once(request, until) {
            // A connection that was made for an earlier request may be gone since long.
            // A request may be sent twice.
            Err(PostgresError::Libpq(LibpqError::Lost(_))) if is_old => {
                self.ask_once(request, until)
            }
            outcome => outcome,
        }
    }

    fn ask_once(&mut self, request: &Request, until: Instant) -> Result<Reply, PostgresError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.connect(until)?,
        };
        let request = wire::encode(request);
        let mut waiter = Thread(&self.stop);
        let answer = call(
            &mut session,
            LEASE,
            [&self.pool, &request],
            until,
            &mut waiter,
        );
        let has_warned = session.has_warned();
        if session.is_usable() {
            self.session = Some(session);
        }
        let text = answer?.ok_or(PostgresError::ForeignFunction)?;
        // The wait for a synchronous standby was ended: the reply could be lost.
        if has_warned {
            return Err(PostgresError::NotDurable);
        }
        wire::decode(&text).map_err(PostgresError::Unreadable)
    }

    fn connect(&self, until: Instant) -> Result<Connection, PostgresError> {
        let server = self.server.as_ref().map_err(Clone::clone)?;
        let there = connect(server, until, &mut Thread(&self.stop))?;
        let is_here = there.started == Some(self.started);
        self.here.store(is_here, Ordering::Relaxed);
        Ok(there.connection)
    }
}

/// A connection that is set up, and where it leads.
struct There {
    connection: Connection,
    /// When the postmaster started.
    started: Option<i64>,
    database: String,
}

fn connect(
    server: &Conninfo,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<There, PostgresError> {
    let left = || until.saturating_duration_since(Instant::now());
    let mut connection = Connection::open(server, left(), waiter)?;
    let rows = connection.query(SET_UP, &[], left(), waiter)?;
    rows.first_value().ok_or(PostgresError::NoExtension)?;
    let row = rows.rows.first();
    let started = row.and_then(|row| row.get(1)?.as_deref()?.parse().ok());
    let database = row.and_then(|row| row.last()?.clone());
    Ok(There {
        connection,
        started,
        database: database.unwrap_or_default(),
    })
}

/// What a function of the registry returns; `None` if it returns nothing, or is not the
/// extension's.
fn call(
    connection: &mut Connection,
    statement: &str,
    parameters: [&str; 2],
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<Option<String>, LibpqError> {
    let left = until.saturating_duration_since(Instant::now());
    let rows = connection.query(statement, &parameters.map(Some), left, waiter)?;
    Ok(rows.first_value().map(str::to_string))
}

/// Whether a conninfo or a URL leads to this database of the server whose postmaster started at
/// `started`.
///
/// # Errors
/// Why that is not known by this instant.
pub fn is_database(
    registry: &str,
    (started, database): (i64, &str),
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<bool, PostgresError> {
    match connect(&server(registry)?, until, waiter) {
        Ok(there) => Ok(there.started == Some(started) && there.database == database),
        Err(PostgresError::NoExtension) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What the registry of a conninfo or a URL has stored, as JSON; `None` if it has no pool.
///
/// # Errors
/// Why it cannot be read, by this instant or at all.
pub fn read_stored(
    registry: &str,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<Option<String>, PostgresError> {
    read_host(&server(registry)?, until, waiter)
}

/// What the registry at one of its hosts has stored, be it one that takes writes or not.
///
/// # Errors
/// As [`read_stored`].
pub fn read_any(
    host: &Conninfo,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<Option<String>, PostgresError> {
    let any = host.clone().with([("target_session_attrs", "any")])?;
    read_host(&any, until, waiter)
}

fn read_host(
    host: &Conninfo,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<Option<String>, PostgresError> {
    let mut there = connect(host, until, waiter)?;
    Ok(call(
        &mut there.connection,
        READ,
        ["", "{}"],
        until,
        waiter,
    )?)
}
