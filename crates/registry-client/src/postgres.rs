//! The way to a registry in PostgreSQL: one connection, by libpq.
//!
//! If the setting names several hosts, they are those of one registry, of which one takes writes.
//! One host after the other is asked, until one has an answer that counts: a primary of before,
//! which serves nobody, captures no server. Then that host is asked first. [`watch`] looks at the
//! others.

#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::libpq::wait::{Stop, Thread, Waiter};
use crate::libpq::{Connection, Conninfo, LibpqError, hosts};
use crate::wire::{self, MessageError};
use snowflake_core::lease::{Answer, RegistryError, Reply, Request};
use watch::Watch;
pub use watch::{Finding, OtherHost};

/// The function of schema `_snowflake` with this name that is the extension's: the owner of that
/// database can make no function in C, and none of a superuser's.
macro_rules! find {
    ($name:literal) => {
        concat!(
            "SELECT f.oid FROM pg_catalog.pg_proc AS f \
                JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) f.pronamespace \
                JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) f.proowner \
                JOIN pg_catalog.pg_language AS l ON l.oid OPERATOR(pg_catalog.=) f.prolang \
                WHERE n.nspname OPERATOR(pg_catalog.=) '_snowflake' \
                    AND f.proname OPERATOR(pg_catalog.=) '",
            $name,
            "' AND o.rolsuper AND l.lanname OPERATOR(pg_catalog.=) 'c' LIMIT 1"
        )
    };
}

/// Sets what the registry's functions need, whatever the role or the database has set, and
/// looks for the extension. A statement ends on the other server when this one no longer
/// waits for it; a commit that waits for a synchronous standby does not. Also tells when the
/// other postmaster started, in microseconds: only this server itself did so at the same
/// one.
const SET_UP: &str = concat!(
    "SELECT (SELECT e.extname FROM pg_catalog.pg_extension AS e \
            WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'), \
        (extract(epoch FROM pg_catalog.pg_postmaster_start_time()) \
            OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, (",
    find!("lease"),
    "), pg_catalog.set_config('default_transaction_isolation', 'read committed', false), \
        pg_catalog.set_config('default_transaction_read_only', 'off', false), \
        pg_catalog.set_config('statement_timeout', '5s', false), \
        pg_catalog.set_config('lock_timeout', '5s', false), \
        pg_catalog.current_database()"
);

/// How often the registry is called before its function is looked for again. PostgreSQL gives an
/// OID anew after four billion others.
const USES: u32 = 100;

/// A call of a function of schema `_snowflake`, unless it is another one than `find!` has found:
/// then NULL. The owner of that database may have put one of its name in its place, which would be
/// run with the rights of this server's role, and answer what its owner wants.
///
/// The condition is a constant, so PostgreSQL drops a call that does not count before it plans
/// it: to plan a call of an immutable function is to run it.
///
/// Both names, that of the last literal and that of the call, are looked up when the statement
/// is parsed, and nothing that others do may come in between. A session learns of changes when
/// it locks a table, which it also does to read a catalog row that it has not cached. So what
/// stands in FROM, which is parsed first, has all types and the same comparison: from the last
/// literal to the call, everything is in the caches.
fn call_of(function: &str, types: &str, arguments: &str, found: u32) -> String {
    let is_ours = format!(
        "'_snowflake.{function}({types})'::pg_catalog.regprocedure::pg_catalog.oid \
         OPERATOR(pg_catalog.=) '{found}'::pg_catalog.oid"
    );
    format!(
        "SELECT CASE WHEN {is_ours} THEN _snowflake.{function}({arguments}) END \
         FROM (SELECT $1::pg_catalog.text, $2::pg_catalog.jsonb, {is_ours}) \
             AS a (pool, request, is_cached)"
    )
}

/// The other server, of which only one that takes writes will do.
fn server(registry: &str) -> Result<Conninfo, LibpqError> {
    Conninfo::parse(registry)?.with([("target_session_attrs", "read-write")])
}

/// A registry in PostgreSQL: see the head of the file.
pub struct PostgresRegistry {
    server: Result<Conninfo, LibpqError>,
    pool: String,
    stop: Stop,
    /// The hosts, as of the latest connection.
    hosts: Vec<Conninfo>,
    /// The place of the host that is asked first.
    first: usize,
    /// The connection to that host.
    session: Option<OpenConnection>,
    /// When this server's postmaster started.
    started: i64,
    here: Arc<AtomicBool>,
    watch: Watch,
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

/// What a host has said to a request.
#[derive(Debug)]
pub struct HostReply {
    /// The host, as libpq's messages name it; empty if a message of libpq's names it, or if none
    /// was asked.
    pub host: String,
    pub reply: Result<Reply, PostgresError>,
}

impl HostReply {
    fn nothing(why: impl Into<PostgresError>) -> Self {
        Self {
            host: String::new(),
            reply: Err(why.into()),
        }
    }

    /// How much it says: 4 if no other host is asked. What a host has stored for a request that
    /// it has answered with less is nothing.
    ///
    /// A server that remembers a registry asks another one where this one fails, for an older one
    /// stops then. A server that remembers none does not: it could get a worker ID from an old
    /// one. Only a database without the extension is no registry.
    const fn weight(&self, remembers: bool) -> u8 {
        match &self.reply {
            Ok(Reply {
                answer: Answer::Refused(RegistryError::Stopped(_)),
                ..
            }) => 3,
            Ok(Reply {
                answer: Answer::Refused(RegistryError::Foreign),
                ..
            }) => 2,
            Err(PostgresError::NoExtension) => 1,
            Err(
                PostgresError::ForeignFunction | PostgresError::Libpq(LibpqError::Statement(_)),
            ) if remembers => 1,
            Err(PostgresError::Libpq(LibpqError::Connect(_))) => 0,
            _ => 4,
        }
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
            hosts: Vec::new(),
            first: 0,
            session: None,
            started,
            here,
            watch: Watch::default(),
        }
    }

    /// What became of a request, and what hosts have said whose answer does not count. Takes no
    /// longer, but for a look-up of a host name.
    pub fn ask(&mut self, request: &Request, until: Instant) -> (HostReply, Vec<HostReply>) {
        if let Some(newer) = self.watch.newer() {
            (self.first, self.session) = (newer, None);
        }
        let remembers = request.memory.is_some();
        if self.session.is_none() {
            match self.server.as_ref().map_err(Clone::clone).and_then(hosts) {
                Ok(hosts) => self.hosts = hosts,
                Err(why) => return (HostReply::nothing(why), Vec::new()),
            }
            if self.has_several_hosts() && !remembers {
                let waiter = &mut Thread(&self.stop);
                self.first = watch::newest(&self.hosts, &self.pool, request, until, waiter);
            }
        }
        let count = self.hosts.len();
        let (first, mut all) = (self.first, Vec::new());
        for turn in 0..count {
            self.first = (first + turn) % count;
            let said = self.ask_first((until, count - turn), request);
            let counts = said.weight(remembers) == 4;
            if counts {
                self.watch_others(&said, request, until);
            } else {
                self.session = None;
            }
            // One that hangs is not asked first again.
            if let Err(PostgresError::Libpq(LibpqError::TimedOut(_))) = said.reply {
                self.first += 1;
            }
            all.push(said);
            if counts {
                break;
            }
        }
        let weights = all.iter().map(|said| said.weight(remembers)).enumerate();
        let best = weights.max_by_key(|(_, weight)| *weight);
        let best = best.map_or(0, |(at, _)| at);
        (all.remove(best), all)
    }

    pub const fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// What was found at other hosts since the last call.
    pub fn findings(&mut self) -> Vec<Finding> {
        self.watch.findings()
    }

    /// Looks at the other hosts now and then, if this one has replied.
    fn watch_others(&mut self, said: &HostReply, request: &Request, until: Instant) {
        if let (Ok(reply), Some(there)) = (&said.reply, &self.session)
            && self.has_several_hosts()
        {
            let used = (self.first, said.host.clone(), there.started);
            let request = Request {
                memory: Some(reply.memory),
                ..request.clone()
            };
            let look = watch::Look {
                hosts: self.hosts.clone(),
                used,
                pool: self.pool.clone(),
                request,
                stop: self.stop.clone(),
            };
            self.watch.start(look, until);
        }
    }

    /// Asks the host that is first.
    fn ask_first(&mut self, share: (Instant, usize), request: &Request) -> HostReply {
        if let Some(session) = self.session.take() {
            let said = self.ask_in(session, request, share.0);
            // A connection that was made for an earlier request may be gone since long.
            // A request may be sent twice.
            if !matches!(said.reply, Err(PostgresError::Libpq(LibpqError::Lost(_)))) {
                return said;
            }
        }
        let Some(host) = self.hosts.get(self.first) else {
            return HostReply::nothing(LibpqError::Conninfo);
        };
        match OpenConnection::of_host(host, share, &mut Thread(&self.stop)) {
            Ok(there) => {
                let is_here = there.started == Some(self.started);
                self.here.store(is_here, Ordering::Relaxed);
                self.ask_in(there, request, share.0)
            }
            Err((host, why)) => HostReply {
                host,
                reply: Err(why),
            },
        }
    }

    /// Asks, and keeps the connection if it can be used further.
    fn ask_in(
        &mut self,
        mut session: OpenConnection,
        request: &Request,
        until: Instant,
    ) -> HostReply {
        let reply = session.ask(&self.pool, request, until, &mut Thread(&self.stop));
        let host = session.connection.place();
        if session.connection.is_usable() {
            self.session = Some(session);
        }
        HostReply { host, reply }
    }
}

/// A connection that is set up, and where it leads.
struct OpenConnection {
    connection: Connection,
    /// The OID of the extension's function, or that of none.
    found: u32,
    /// How often it is called still before it is looked for again.
    uses: u32,
    /// When the postmaster started.
    started: Option<i64>,
    database: String,
}

impl OpenConnection {
    /// Connects to the first host that will do.
    fn of(
        server: &Conninfo,
        until: Instant,
        waiter: &mut dyn Waiter,
    ) -> Result<Self, PostgresError> {
        Self::set_up(
            Connection::open(server, left(until), waiter)?,
            until,
            waiter,
        )
    }

    /// Connects to one host, in its share of the time; or else names it.
    fn of_host(
        host: &Conninfo,
        share: (Instant, usize),
        waiter: &mut dyn Waiter,
    ) -> Result<Self, (String, PostgresError)> {
        let connection = Connection::open_host(host, share, waiter);
        let connection = connection.map_err(|why| (String::new(), why.into()))?;
        let place = connection.place();
        let left = u32::try_from(share.1).unwrap_or(u32::MAX).max(1);
        let now = Instant::now();
        let until = now + share.0.saturating_duration_since(now) / left;
        Self::set_up(connection, until, waiter).map_err(|why| match why {
            PostgresError::Libpq(late @ LibpqError::TimedOut(_)) => {
                let why = LibpqError::Connect(format!("connection to {place} failed: {late}"));
                (String::new(), why.into())
            }
            why => (place, why),
        })
    }

    fn set_up(
        mut connection: Connection,
        until: Instant,
        waiter: &mut dyn Waiter,
    ) -> Result<Self, PostgresError> {
        let rows = connection.query(SET_UP, &[], left(until), waiter)?;
        rows.first_value().ok_or(PostgresError::NoExtension)?;
        let row = rows.rows.first();
        let started = row.and_then(|row| row.get(1)?.as_deref()?.parse().ok());
        let database = row.and_then(|row| row.last()?.clone());
        Ok(Self {
            connection,
            found: oid_in(row.and_then(|row| row.get(2)?.as_deref())),
            uses: USES,
            started,
            database: database.unwrap_or_default(),
        })
    }

    fn ask(
        &mut self,
        pool: &str,
        request: &Request,
        until: Instant,
        waiter: &mut dyn Waiter,
    ) -> Result<Reply, PostgresError> {
        let request = wire::encode(request);
        let parameters = [Some(pool), Some(&*request)];
        let types = "pg_catalog.text,pg_catalog.jsonb";
        let text = loop {
            if self.uses == 0 {
                self.found = self.find(find!("lease"), until, waiter)?;
                self.uses = USES;
            }
            let is_new = self.uses == USES;
            self.uses -= 1;
            let call = call_of("lease", types, "a.pool, a.request", self.found);
            let rows = self
                .connection
                .query(&call, &parameters, left(until), waiter)?;
            if let Some(text) = rows.first_value() {
                break text.to_string();
            }
            if is_new {
                self.uses = 0;
                return Err(PostgresError::ForeignFunction);
            }
            // The extension may have been made anew.
            self.uses = 0;
        };
        // The wait for a synchronous standby was ended: the reply could be lost.
        if self.connection.has_warned() {
            return Err(PostgresError::NotDurable);
        }
        wire::decode(&text).map_err(PostgresError::Unreadable)
    }

    fn find(
        &mut self,
        statement: &str,
        until: Instant,
        waiter: &mut dyn Waiter,
    ) -> Result<u32, LibpqError> {
        let rows = self.connection.query(statement, &[], left(until), waiter)?;
        Ok(oid_in(rows.first_value()))
    }
}

/// The OID of what was found, or else that of nothing.
fn oid_in(found: Option<&str>) -> u32 {
    found.and_then(|oid| oid.parse().ok()).unwrap_or_default()
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
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
    match OpenConnection::of(&server(registry)?, until, waiter) {
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
    let mut there = OpenConnection::of(host, until, waiter)?;
    let found = there.find(find!("read_registry"), until, waiter)?;
    let call = call_of("read_registry", "", "", found);
    // The parameters are of no use.
    let parameters = [Some(""), Some("{}")];
    let rows = there
        .connection
        .query(&call, &parameters, left(until), waiter)?;
    Ok(rows.first_value().map(str::to_string))
}
