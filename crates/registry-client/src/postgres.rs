//! The way to a registry in PostgreSQL: one connection, by libpq.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::libpq::wait::{Stop, Thread};
use crate::libpq::{Connection, Conninfo, LibpqError};
use crate::wire::{self, MessageError};
use snowflake_core::lease::{Reply, Request};

/// Sets what the registry's function needs, whatever the role or the database has set,
/// and finds its schema. A statement ends on the other server when this one no longer
/// waits for it; a commit that waits for a synchronous standby does not. Also tells when the
/// other postmaster started, in microseconds: only this server itself did so at the same
/// one.
const SET_UP: &str = "SELECT s.name, \
    (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) \
        OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, \
    pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
    pg_catalog.set_config('default_transaction_read_only', 'off', false), \
    pg_catalog.set_config('statement_timeout', '5s', false), \
    pg_catalog.set_config('lock_timeout', '5s', false), \
    pg_catalog.quote_literal(pg_catalog.concat(s.name, '.snowflake_lease(pg_catalog.text,pg_catalog.jsonb)')) \
    FROM (SELECT (SELECT pg_catalog.quote_ident(n.nspname) \
        FROM pg_catalog.pg_extension AS e \
        JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace \
        WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id')) AS s (name)";

/// Calls the registry with the name of the pool and the request, unless the function is
/// not the extension's. The owner of that database may have put one of its name in its
/// place. That one would be run with the rights of this server's role, and answer what its
/// owner wants. He can make no function in C, and none of a superuser's.
///
/// Both names, that of the last literal and that of the call, are looked up when the statement
/// is parsed, and nothing that others do may come in between. A session learns of changes when
/// it locks a table, which it also does to read a catalog row that it has not cached. So what
/// stands in FROM, which is parsed first, has all tables, all types and the same comparison:
/// from the last literal to the call, everything is in the caches.
const CALL: &str = "SELECT CASE WHEN a.ours OPERATOR(pg_catalog.@>) ARRAY[@function@::pg_catalog.regprocedure::pg_catalog.oid] \
    THEN @schema@.snowflake_lease(a.pool, a.request) END \
    FROM (SELECT $1::pg_catalog.text, $2::pg_catalog.jsonb, \
        ARRAY(SELECT f.oid FROM pg_catalog.pg_proc AS f \
            JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) f.proowner \
            JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) f.prolang \
            WHERE f.proname OPERATOR(pg_catalog.=) 'snowflake_lease' AND o.rolsuper \
                AND l.lanname OPERATOR(pg_catalog.=) 'c'), \
        ARRAY[0::pg_catalog.oid] OPERATOR(pg_catalog.@>) ARRAY[@function@::pg_catalog.regprocedure::pg_catalog.oid]) \
        AS a (pool, request, ours, is_cached)";

/// The other server, of which only one that takes writes will do.
fn server(registry: &str) -> Result<Conninfo, LibpqError> {
    Conninfo::parse(registry)?.with([("target_session_attrs", "read-write")])
}

/// A registry in PostgreSQL.
pub struct PostgresRegistry {
    server: Result<Conninfo, LibpqError>,
    pool: String,
    stop: Stop,
    session: Option<RegistrySession>,
    /// When this server's postmaster started.
    started: i64,
    here: Arc<AtomicBool>,
}

/// A connection that is set up.
struct RegistrySession {
    connection: Connection,
    /// The statement that calls the registry.
    call: String,
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
        let parameters = [Some(self.pool.as_str()), Some(request.as_str())];
        let answer = session.connection.query(
            &session.call,
            &parameters,
            until.saturating_duration_since(Instant::now()),
            &mut Thread(&self.stop),
        );
        let has_warned = session.connection.has_warned();
        if session.connection.is_usable() {
            self.session = Some(session);
        }
        let rows = answer?;
        // The wait for a synchronous standby was ended: the reply could be lost.
        if has_warned {
            return Err(PostgresError::NotDurable);
        }
        let text = rows.first_value().ok_or(PostgresError::ForeignFunction)?;
        wire::decode(text).map_err(PostgresError::Unreadable)
    }

    fn connect(&self, until: Instant) -> Result<RegistrySession, PostgresError> {
        let server = self.server.as_ref().map_err(Clone::clone)?;
        let mut waiter = Thread(&self.stop);
        let left = || until.saturating_duration_since(Instant::now());
        let mut connection = Connection::open(server, left(), &mut waiter)?;
        let rows = connection.query(SET_UP, &[], left(), &mut waiter)?;
        let schema = rows.first_value().ok_or(PostgresError::NoExtension)?;
        let started = rows.rows.first().and_then(|row| row.get(1)?.as_deref());
        let is_here = started.and_then(|text| text.parse().ok()) == Some(self.started);
        self.here.store(is_here, Ordering::Relaxed);
        let function = rows.rows.first().and_then(|row| row.last()?.as_deref());
        let call = CALL
            .replace("@schema@", schema)
            .replace("@function@", function.unwrap_or_default());
        Ok(RegistrySession { connection, call })
    }
}
