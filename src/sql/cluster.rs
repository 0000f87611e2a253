//! `snowflake_check_cluster()`: asks servers what they are, and compares their answers.
//!
//! The queries are fixed: `cluster/facts.sql` and `cluster/sequences.sql` go to each
//! server, and `cluster/findings.sql` compares the answers on this one. Servers are asked one after
//! the other, each for [`TIMEOUT`] at most: a backend has one thread, and a cluster has
//! few servers that do not answer.
//!
//! The function's `search_path` is that of PostgreSQL's own schemas, as in
//! `snowflake_set_default()`, and so is that of the other servers' sessions.

use std::time::{Duration, Instant};

use pgrx::pg_sys;
use pgrx::spi::quote_literal;
use serde_json::{Value, json};

use crate::postgres::{backend_wait::Backend, compat, encoding::DatabaseText, size_limit, spi};
use crate::server::os_clock;
use crate::sql::call::{c_function, columns};
use crate::sql::{cluster_error as refuse, error::Error};
use snowflake_core::id::{Nanos, UnixNanos};
use snowflake_registry_client::libpq::{self, Connection, Conninfo, ResultRows};

/// What a server may cost in all: the connection and all answers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The clock is asked for this often; the answer with the shortest round trip counts.
const CLOCK_READINGS: usize = 3;

/// What a server says of itself, in one row with one object. It needs no extension.
const FACTS: &str = include_str!("cluster/facts.sql");

/// Which sequences of the database were made for IDs, and which tables use them. It needs no
/// extension: so it asks the catalogs, not `_snowflake.defaults`.
/// `$is_distributed$` stands for the condition that a table is one of Citus.
const SEQUENCES: &str = include_str!("cluster/sequences.sql");

/// The condition where Citus is installed.
const IS_DISTRIBUTED: &str =
    "EXISTS (SELECT FROM pg_dist_partition AS it WHERE it.logicalrelid = adrelid)";

/// Compares the answers; `$answers$` stands for them, and `$are_nodes$` for whether the
/// servers are the nodes of one cluster of Citus.
const FINDINGS: &str = include_str!("cluster/findings.sql");

/// Runs before [`FACTS`] on other servers. Names and intervals are printed alike by all.
const SETTINGS: &str = "SELECT pg_catalog.set_config('search_path', 'pg_catalog', false),
    pg_catalog.set_config('statement_timeout', '5s', false),
    pg_catalog.set_config('default_transaction_read_only', 'on', false),
    pg_catalog.set_config('IntervalStyle', 'postgres', false)";

// `snowflake_check_cluster(servers) -> findings`. Not STRICT.
c_function!(snowflake_check_cluster, |call| {
    let are_nodes = call.is_null(0);
    let targets = match are_nodes {
        false => named(&call.texts(0, "servers", &size_limit::SERVERS)?)?,
        true => citus_nodes()?,
    };
    let mut answers = vec![NodeAnswer::of_this_server()?];
    answers.extend(targets.iter().map(ClusterNode::ask));
    let answers = quote_literal(Value::Array(answers).to_string());
    let findings = FINDINGS.replace("$are_nodes$", &are_nodes.to_string());
    let findings = spi::read(&findings.replace("$answers$", &answers))?;
    call.rows(findings.iter().map(|row| {
        let column = |name| row.get(name).map(|text| DatabaseText(text.to_string()));
        columns![
            column("severity"),
            column("finding"),
            column("server"),
            column("other_server"),
            column("detail"),
            column("hint"),
        ]
    }));
    Ok(())
});

/// A server to be asked, and its name in the findings.
struct ClusterNode {
    name: String,
    server: Conninfo,
    /// The name of the server that this one follows until it becomes one beside it.
    clone_of: Option<String>,
}

/// Whether the role in force is a superuser. Only a superuser chooses an address: this
/// server connects to it with the passwords and the files of its operating system user.
fn is_superuser() -> bool {
    // SAFETY: in a transaction.
    unsafe { pg_sys::superuser() }
}

/// The servers of the argument: conninfos, URLs and names of foreign servers.
fn named(servers: &[Option<String>]) -> Result<Vec<ClusterNode>, Error> {
    let target = |(at, server): (usize, &Option<String>)| {
        let server = server.as_deref().ok_or_else(refuse::null_server)?;
        let is_url = ["postgresql://", "postgres://"]
            .iter()
            .any(|scheme| server.starts_with(scheme));
        if !is_url && !server.contains('=') {
            return foreign_server(server);
        }
        if !is_superuser() {
            return Err(refuse::not_superuser());
        }
        let server = Conninfo::parse(server).map_err(|_| refuse::not_a_server(at + 1))?;
        let name = match server.describe() {
            name if name.is_empty() => format!("servers[{}]", at + 1),
            name => name,
        };
        Ok(ClusterNode {
            name,
            server,
            clone_of: None,
        })
    };
    servers.iter().enumerate().map(target).collect()
}

/// A foreign server, with the options of the caller's user mapping or else of PUBLIC's,
/// as postgres_fdw and dblink use them. The catalogs are read as the bootstrap superuser,
/// since nobody else sees the options of PUBLIC's mapping; the caller needs USAGE on the
/// server. For who is no superuser, a superuser has made the server, and the caller's own
/// mapping gives a user and a password only.
fn foreign_server(name: &str) -> Result<ClusterNode, Error> {
    let (caller, may_choose) = (compat::user().to_u32(), is_superuser());
    let query = format!(
        "SELECT has_server_privilege({caller}, server.oid, 'USAGE') AS may_use,
             {may_choose} OR (SELECT rolsuper FROM pg_authid WHERE oid = server.srvowner) AS is_chosen,
             (SELECT jsonb_object_agg(o.name, o.value) FROM (
                  SELECT option_name, option_value FROM pg_options_to_table(server.srvoptions)
                  UNION ALL SELECT option_name, option_value FROM pg_options_to_table(mapping.umoptions)
                  WHERE {may_choose} OR mapping.umuser = 0 OR option_name IN ('user', 'password'))
                  AS o (name, value)) AS options
         FROM pg_foreign_server AS server
         LEFT JOIN LATERAL (
             SELECT umuser, umoptions FROM pg_user_mapping
             WHERE umserver = server.oid AND umuser IN (0, {caller})
             ORDER BY umuser DESC LIMIT 1) AS mapping ON true
         WHERE server.srvname = {}",
        quote_literal(name)
    );
    let row = spi::read_one_as(&query, pg_sys::BOOTSTRAP_SUPERUSERID.into())?;
    let row = row.ok_or_else(|| refuse::no_foreign_server(name))?;
    if !row.is("may_use") {
        return Err(refuse::foreign_server_denied(name));
    }
    if !row.is("is_chosen") {
        return Err(refuse::foreign_server_of_others(name));
    }
    let options = parsed(row.get("options"));
    let options = options.as_object().into_iter().flatten();
    let options = options.filter_map(|(keyword, value)| Some((keyword.as_str(), value.as_str()?)));
    Ok(ClusterNode {
        name: name.to_string(),
        server: Conninfo::from_options(options).map_err(|_| refuse::no_foreign_server(name))?,
        clone_of: None,
    })
}

/// All nodes of Citus, in this database and as this user, with the options that Citus
/// itself connects with.
fn citus_nodes() -> Result<Vec<ClusterNode>, Error> {
    let found =
        spi::read_one("SELECT 1 AS one WHERE to_regclass('pg_catalog.pg_dist_node') IS NOT NULL")?;
    found.ok_or_else(refuse::no_servers)?;
    // Citus has clones since 13.2. Before, its table has no columns for them.
    let nodes = spi::read(
        "SELECT nodename, nodeport, current_database() AS database, current_user AS user,
             current_setting('citus.node_conninfo', true) AS options,
             (SELECT format('%s:%s', origin.nodename, origin.nodeport)
              FROM pg_catalog.pg_dist_node AS origin, to_jsonb(node) AS it
              WHERE (it->>'nodeisclone')::boolean
                AND origin.nodeid = (it->>'nodeprimarynodeid')::bigint) AS clone_of
         FROM pg_catalog.pg_dist_node AS node ORDER BY nodeid",
    )?;
    let target = |row: &spi::SpiRow| {
        let options = Conninfo::parse(&row.text("options")).map_err(|_| refuse::citus_options())?;
        let (host, port) = (row.text("nodename"), row.text("nodeport"));
        let own = [
            ("host", host.as_str()),
            ("port", port.as_str()),
            ("dbname", &row.text("database")),
            ("user", &row.text("user")),
        ];
        Ok(ClusterNode {
            name: format!("{host}:{port}"),
            server: options.with(own).map_err(|_| refuse::citus_options())?,
            clone_of: row.get("clone_of").map(str::to_string),
        })
    };
    nodes.iter().map(target).collect()
}

/// What a server says; what it does not say is null.
#[derive(Default)]
struct NodeAnswer {
    facts: Value,
    generators: Value,
    sequences: Value,
    /// How far its clock is ahead of this server's.
    offset: Nanos,
    /// By how much `offset` may be wrong.
    uncertainty: Nanos,
}

impl NodeAnswer {
    /// The answer of this server, which is asked without a connection.
    fn of_this_server() -> Result<Value, Error> {
        let ask = |query: &str| -> Result<Value, Error> {
            let row = spi::read_one(query)?;
            Ok(row.map_or(Value::Null, |row| parsed(row.get("answer"))))
        };
        let mut answer = Self {
            facts: ask(FACTS)?,
            ..Self::default()
        };
        if let Some(query) = generators_query(&answer.facts) {
            answer.generators = ask(&query)?;
        }
        answer.sequences = ask(&sequences_query(&answer.facts))?;
        Ok(answer.into_json("this server", None, None))
    }

    /// As `cluster/findings.sql` takes it, in microseconds.
    fn into_json(self, server: &str, clone_of: Option<&str>, error: Option<String>) -> Value {
        json!({
            "server": server,
            "clone_of": clone_of,
            "error": error,
            "facts": self.facts,
            "generators": self.generators,
            "sequences": self.sequences,
            "offset": self.offset.get() / 1000,
            "uncertainty": self.uncertainty.get() / 1000,
        })
    }
}

/// The query of the view of generators, if the extension is there, and of the one row
/// about the worker ID, if the library is preloaded.
fn generators_query(facts: &Value) -> Option<String> {
    let view = facts.get("view")?.as_str()?;
    let worker = facts.get("worker_view").and_then(Value::as_str);
    let worker = worker.map_or_else(
        || "NULL".to_string(),
        |view| format!("(SELECT to_jsonb(w) FROM {view} AS w)"),
    );
    Some(format!(
        "SELECT jsonb_build_object('clock', clock_timestamp(), 'worker', {worker},
             'rows', (SELECT jsonb_agg(to_jsonb(g)) FROM {view} AS g)) AS answer"
    ))
}

fn sequences_query(facts: &Value) -> String {
    let has_citus = facts.get("has_citus").and_then(Value::as_bool);
    let condition = match has_citus {
        Some(true) => IS_DISTRIBUTED,
        _ => "false",
    };
    SEQUENCES.replace("$is_distributed$", condition)
}

/// A jsonb as another server sent it; null if it is none.
fn parsed(text: Option<&str>) -> Value {
    text.and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

impl ClusterNode {
    /// The answer of the server, or why there is none: with libpq's message.
    fn ask(&self) -> Value {
        let mut answer = NodeAnswer::default();
        let error = self.ask_into(&mut answer).err();
        answer.into_json(&self.name, self.clone_of.as_deref(), error)
    }

    /// Adds to `answer` what the server says, as far as it does.
    fn ask_into(&self, answer: &mut NodeAnswer) -> Result<(), String> {
        let _file = ExternalFile::acquire()?;
        let mut ask = || -> Result<(), libpq::LibpqError> {
            let mut session = NodeSession::open(&self.server)?;
            session.query(SETTINGS)?;
            (answer.offset, answer.uncertainty) = session.clock_offset()?;
            answer.facts = parsed(session.query(FACTS)?.first_value());
            if let Some(query) = generators_query(&answer.facts) {
                answer.generators = parsed(session.query(&query)?.first_value());
            }
            let query = sequences_query(&answer.facts);
            answer.sequences = parsed(session.query(&query)?.first_value());
            Ok(())
        };
        ask().map_err(|error| error.to_string())
    }
}

/// A connection, with all the time that its server may still cost.
struct NodeSession {
    connection: Connection,
    until: Instant,
}

impl NodeSession {
    fn open(server: &Conninfo) -> Result<Self, libpq::LibpqError> {
        let until = Instant::now() + TIMEOUT;
        let connection = Connection::open(server, TIMEOUT, &mut Backend)?;
        Ok(Self { connection, until })
    }

    fn query(&mut self, sql: &str) -> Result<ResultRows, libpq::LibpqError> {
        let left = self.until.saturating_duration_since(Instant::now());
        let answer = self.connection.query(sql, &[], left, &mut Backend);
        answer.map_err(|error| match error {
            libpq::LibpqError::TimedOut(_) => libpq::LibpqError::TimedOut(TIMEOUT),
            error => error,
        })
    }

    /// How far the server's clock is ahead of this one's, and by how much that may be
    /// wrong: the server read its clock at some moment of the round trip.
    fn clock_offset(&mut self) -> Result<(Nanos, Nanos), libpq::LibpqError> {
        let mut best: Option<(Nanos, Nanos)> = None;
        for _ in 0..CLOCK_READINGS {
            let before = os_clock::wall();
            let answer =
                self.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")?;
            let half = Nanos::new(os_clock::wall().since(before).get() / 2);
            let theirs: Option<i64> = answer.first_value().and_then(|text| text.parse().ok());
            let theirs = UnixNanos::new(theirs.unwrap_or_default().saturating_mul(1000));
            let offset = Nanos::new(theirs.since(before).get().saturating_sub(half.get()));
            if best.is_none_or(|(_, uncertainty)| half < uncertainty) {
                best = Some((offset, half));
            }
        }
        Ok(best.unwrap_or_default())
    }
}

/// A file that PostgreSQL counts among those that this backend has open.
struct ExternalFile;

impl ExternalFile {
    fn acquire() -> Result<Self, String> {
        // SAFETY: counts only.
        if unsafe { pg_sys::AcquireExternalFD() } {
            Ok(Self)
        } else {
            Err("this session has too many files open".to_string())
        }
    }
}

impl Drop for ExternalFile {
    fn drop(&mut self) {
        // SAFETY: counts only.
        unsafe { pg_sys::ReleaseExternalFD() };
    }
}
