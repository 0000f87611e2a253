//! PostgreSQL as the host of a registry of worker IDs: reads the tables of
//! `sql/registry.sql` for the core, which decides, and stores what it says.
//!
//! Each function takes the [`Guard`] first: statements run as the owner of the tables, whose
//! names are the extension's own from there on. Then it locks the row of the state, and
//! stores it in the end, also if it refuses something. The row lock excludes all others until the transaction ends. Under
//! READ COMMITTED, which is required, each statement after the lock sees what the
//! holders before have committed; and the clock is read after the lock, so that registry
//! time does not go back from one holder to the next.
//!
//! A renewal, which each server asks for three times in each lease, runs three statements: one
//! locks and reads the state, one reads all else ([`READ`]), and one stores all that has changed
//! ([`WRITE`]). What [`RegistryTable`] has read by then is as it was stored: the core keeps what
//! it changes.
//!
//! While the row is locked, no server can renew its lease. So no function that locks it
//! runs inside a transaction block, which somebody could leave open.
//!
//! A reply counts when the transaction is durable. So `synchronous_commit` is raised to
//! `on` for the rest of the transaction: a server that has crashed, or a synchronous
//! standby that is promoted, has the grant.

mod place;
mod pools;
mod servers;

pub use place::{Place, read_elsewhere, read_here};
pub use pools::{WantedPool, create_pool, create_registry, drop_pool};
pub use servers::{drop_server, horizon};

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys;
use serde::Deserialize;

use super::error::{self, Error};
use super::guard::{Guard, Purpose};
use super::{compat, encoding, server_key, session_generator, time};
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::cluster_horizon::{Changes, Reports, Server, Servers};
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::registry::{self, Free, Rows, Vouchers, vouchers_of};
use snowflake_core::lease::seal::SealKey;
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    Answer, Ask, Era, Origin, Pool, RegistryError, RegistryMillis, Request, Role, Row, ServerKey,
};
use snowflake_registry_client::wire::{self, MessageError};

thread_local! {
    /// The era of the state that was read last.
    static READ_ERA: Cell<Option<Era>> = const { Cell::new(None) };
    /// The last transaction in which this session has begun an era.
    static BEGAN_ERA: Cell<u32> = const { Cell::new(0) };
}

/// Reads a pool, the row of a worker ID, and a server. `ordinary` are the worker IDs that are
/// neither excepted nor spare; `has_longer`: a lease of the pool ends later than one that begins
/// now, as a rule none does. Asked for in an order, the planner looks into the index of that order.
/// A row may be that of a worker ID that is no longer in the pool: its holder is not unknown.
const READ: &str = "SELECT p.pool, l.lease, s.server, \
        int8multirange(int8range(lower(p.worker_ids), upper(p.worker_ids) - (p.pool -> 'spares')::bigint)) \
            - p.except_ids AS ordinary, \
        (SELECT true FROM _snowflake.leases AS o \
            WHERE o.namespace = p.namespace AND o.worker_id::bigint <@ p.worker_ids \
            AND o.leased_until > $4::bigint + least((p.pool -> 'lease')::bigint, 30000) \
            ORDER BY o.leased_until DESC LIMIT 1) AS has_longer, \
        pg_catalog.host(pg_catalog.inet_client_addr()) AS address \
    FROM _snowflake.pools AS p \
    LEFT JOIN _snowflake.leases AS l ON l.namespace = p.namespace AND l.worker_id = $2::integer \
    LEFT JOIN _snowflake.servers AS s ON s.identity = $3 \
    WHERE p.name = $1";

/// Stores the state, a row and a server. The JSON `null` stands for a row that has not changed, and
/// for a server that is to go.
const WRITE: &str = "WITH put_row AS ( \
        INSERT INTO _snowflake.leases (namespace, lease) SELECT $2, $3::jsonb WHERE $3 <> 'null' \
        ON CONFLICT (namespace, worker_id) DO UPDATE SET lease = excluded.lease), \
    put_server AS ( \
        INSERT INTO _snowflake.servers (identity, server) SELECT $4, $5::jsonb WHERE $5 <> 'null' \
        ON CONFLICT (identity) DO UPDATE SET server = excluded.server), \
    removed AS (DELETE FROM _snowflake.servers WHERE identity = $4 AND $5 = 'null') \
    UPDATE _snowflake.state SET state = $1::jsonb WHERE id = 1";

/// Answers the request of a server; both are JSON.
pub fn lease(pool: &str, request: &str) -> Result<String, Error> {
    let mut request: Request = wire::decode(request).map_err(|why| match why {
        MessageError::Format(format) => error::other_format(format),
        MessageError::Content(why) => error::request_not_read(&why),
    })?;
    request.asker.fits().map_err(error::request_not_fit)?;
    let function = c"_snowflake.lease()";
    let registry = Registry::lock(function)?;
    // A caller who aborts the transaction would know of an era that is never stored.
    if BEGAN_ERA.get() == compat::transaction() {
        return Err(error::needs_own_transaction(&function.to_string_lossy()));
    }
    let mut state = registry.state()?.ok_or_else(|| error::no_pool(pool))?;
    let input = registry_input(Some(request.asker.identity))?;
    // These two are not what the request says.
    request.asker.identity.role = caller();
    let worker = match request.ask {
        Ask::Acquire { fixed, .. } => fixed,
        ask => ask.worker(),
    };
    let (mut table, address) = registry.table(pool, worker, request.asker.identity, &input)?;
    request.asker.address = address;
    let kept = table.pool.clone();
    let (reply, changes) = registry::handle(&mut state, &kept, &mut table, &request, &input);
    registry.write(&state, &table.namespace, &changes)?;
    if matches!(reply.answer, Answer::Refused(RegistryError::Foreign)) {
        error::foreign_memory(&request.asker).log("");
    }
    Ok(wire::encode(&reply))
}

/// Revokes the lease of a worker ID. Returns from when another server can have it.
pub fn revoke(pool: &str, worker: i32) -> Result<UnixMillis, Error> {
    let registry = Registry::lock(c"snowflake_revoke_worker()")?;
    let mut state = registry.state()?.ok_or_else(|| error::no_pool(pool))?;
    let input = registry_input(None)?;
    let id = WorkerId::new(worker);
    let (mut table, _) = registry.table(pool, id, server_key::server_key(), &input)?;
    let id = id.filter(|id| table.pool.has(*id));
    let id = id.ok_or_else(|| error::not_in_pool(pool, worker))?;
    let row = registry::revoke(&mut state, &mut table, id, &input);
    let row = row.ok_or_else(|| error::never_leased(pool, worker))?;
    let free = if row.released {
        row.leased_until
    } else {
        row.leased_until.plus(table.pool.hold)
    };
    let changes = Changes {
        row: Some(row),
        state: true,
        ..Changes::default()
    };
    registry.write(&state, &table.namespace, &changes)?;
    Ok(free.as_nodes_clock())
}

/// Ends the grace period, or declares that this registry counts.
pub fn change(function: &CStr, f: fn(&mut State, &RegistryInput)) -> Result<(), Error> {
    let registry = Registry::lock(function)?;
    let mut state = registry.state()?.ok_or_else(error::no_registry)?;
    f(&mut state, &registry_input(None)?);
    registry.write(&state, "", &Changes::default())
}

/// The role that has called the function: its leases are that role's.
fn caller() -> Role {
    // SAFETY: in a transaction; the name is NUL-terminated, and that of a role that exists.
    let name = unsafe {
        let name = pg_sys::GetUserNameFromId(compat::user(), false);
        encoding::from_server(CStr::from_ptr(name))
    };
    // No name of PostgreSQL is longer than a role's can be.
    Role::named(&name).unwrap_or_default()
}

/// Strong random bytes.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut random = [0; N];
    // SAFETY: as many bytes as there are.
    let filled = unsafe { pg_sys::pg_strong_random(random.as_mut_ptr().cast(), N as pg_sys::Size) };
    filled
        .then_some(random)
        .ok_or_else(error::no_random_numbers)
}

/// What is around the registry. Its lock is held.
fn registry_input(asker: Option<ServerKey>) -> Result<RegistryInput, Error> {
    // SAFETY: not in recovery, so WAL is inserted.
    let (now, timeline, database) = unsafe {
        (
            pg_sys::GetCurrentTimestamp(),
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::MyDatabaseId,
        )
    };
    let host = server_key::server_key();
    Ok(RegistryInput {
        now: RegistryMillis::new(time::unix_millis(now).get()),
        origin: Origin {
            system: host.system,
            timeline: timeline.into(),
            database: database.to_u32().into(),
        },
        start: server_key::start(),
        clean_since: server_key::clean_since(),
        revocable: true,
        asker_hosts: asker == Some(host),
        random: u128::from_ne_bytes(random()?),
    })
}

/// The tables of a registry.
#[derive(Clone, Copy)]
struct Registry {
    guard: Guard,
}

impl Registry {
    /// Checks that the caller's transaction can lock and change the registry, and ends soon.
    fn lock(function: &CStr) -> Result<Self, Error> {
        let registry = Self::to_change(function)?;
        if is_in_block() {
            return Err(error::needs_own_transaction(&function.to_string_lossy()));
        }
        commit_at_once();
        Ok(registry)
    }

    /// Checks that the caller's transaction can change the registry.
    fn to_change(function: &CStr) -> Result<Self, Error> {
        session_generator::prevent_where_nextval_is(function);
        // SAFETY: a variable of this process.
        let isolation = unsafe { pg_sys::XactIsoLevel };
        if isolation >= pg_sys::XACT_REPEATABLE_READ.cast_signed() {
            return Err(error::needs_read_committed(&function.to_string_lossy()));
        }
        commit_durably();
        Self::with(Purpose::Change)
    }

    fn with(purpose: Purpose) -> Result<Self, Error> {
        let guard = Guard::take(purpose)?.ok_or_else(error::no_registry)?;
        Ok(Self { guard })
    }

    fn value(self, statement: &'static str, values: &[&str]) -> Result<Option<String>, Error> {
        self.guard.value(statement, values)
    }

    /// The state; waits for the lock of its row.
    fn state(self) -> Result<Option<State>, Error> {
        let state = self.value(
            "SELECT state FROM _snowflake.state WHERE id = 1 FOR UPDATE",
            &[],
        )?;
        let state: Option<State> = parsed_if(state.as_deref())?;
        READ_ERA.set(state.as_ref().map(|state| state.era));
        Ok(state)
    }

    /// Makes the state; `false` if there is one.
    fn make(self) -> Result<bool, Error> {
        let made = self.value(
            "INSERT INTO _snowflake.state VALUES (1, $1::jsonb) ON CONFLICT DO NOTHING \
             RETURNING id",
            &[&json(&State::new(
                &registry_input(None)?,
                SealKey::new(random()?),
            ))],
        )?;
        Ok(made.is_some())
    }

    /// A pool and its leases, with the row of a worker ID and a server. Also returns the address
    /// of the client of this session, which is empty if it is on this machine.
    fn table(
        self,
        pool: &str,
        worker: Option<WorkerId>,
        server: ServerKey,
        input: &RegistryInput,
    ) -> Result<(RegistryTable, String), Error> {
        let id = worker
            .map_or(-1, |worker| i64::from(worker.get()))
            .to_string();
        let now = input.now.get().to_string();
        let found = self.guard.row(READ, &[pool, &id, &server.text(), &now])?;
        let found = found.ok_or_else(|| error::no_pool(pool))?;
        let stored: StoredPool = parsed(&found.text("pool"))?;
        let pool = stored.pool.checked();
        let pool = pool.ok_or_else(|| error::registry_not_read("a pool that makes no sense"))?;
        let row = parsed_if(found.get("lease"))?;
        let table = RegistryTable {
            registry: self,
            namespace: stored.namespace,
            all: format!("[{},{})", pool.ids.start, pool.ids.end),
            ordinary: found.text("ordinary"),
            latest: (!found.is("has_longer")).then(|| input.now.plus(pool.patience())),
            row: worker.map(|worker| (worker, row)),
            server: (server, parsed_if(found.get("server"))?),
            pool,
        };
        Ok((table, found.text("address")))
    }

    /// All servers.
    fn servers(self) -> Result<Vec<Server>, Error> {
        let servers = self.value(
            "SELECT coalesce(jsonb_agg(server), '[]') FROM _snowflake.servers",
            &[],
        )?;
        parsed(&servers.unwrap_or_default())
    }

    /// Stores the state, and what has changed besides. The row is one of this namespace.
    fn write(self, state: &State, namespace: &str, changes: &Changes) -> Result<(), Error> {
        if READ_ERA.get() != Some(state.era) {
            BEGAN_ERA.set(compat::transaction());
        }
        let (identity, server) = match &changes.server {
            Some((identity, server)) => (identity.text(), server.as_ref()),
            None => (String::new(), None),
        };
        let (state, row, server) = (json(state), json(&changes.row), json(&server));
        let values = [&*state, namespace, &row, &identity, &server];
        self.value(WRITE, &values).map(drop)
    }
}

/// A pool, its leases, and the servers of all pools.
struct RegistryTable {
    registry: Registry,
    pool: Pool,
    namespace: String,
    /// The range of its worker IDs.
    all: String,
    /// Its worker IDs that are neither excepted nor spare, as a multirange.
    ordinary: String,
    /// All leases end at this instant at the latest.
    latest: Option<RegistryMillis>,
    /// What was read with the pool.
    row: Option<(WorkerId, Option<Row>)>,
    server: (ServerKey, Option<Server>),
}

impl RegistryTable {
    /// Runs a statement whose first parameter is the namespace. The core has no errors, so
    /// this one ends the statement.
    fn run(&self, statement: &'static str, values: &[&str]) -> Option<String> {
        let mut all = vec![self.namespace.as_str()];
        all.extend(values);
        or_raise(self.registry.value(statement, &all))
    }

    /// Runs a statement that returns a row.
    fn search(&self, statement: &'static str, values: &[&str]) -> Option<Row> {
        let text = self.run(statement, values);
        or_raise(parsed_if(text.as_deref()))
    }
}

impl Servers for RegistryTable {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        if self.server.0 != *identity {
            let text = or_raise(self.registry.value(
                "SELECT server FROM _snowflake.servers WHERE identity = $1",
                &[&identity.text()],
            ));
            self.server = (*identity, or_raise(parsed_if(text.as_deref())));
        }
        self.server.1.clone()
    }

    fn reports(&mut self, without: Option<&ServerKey>) -> Reports {
        let servers = or_raise(self.registry.servers());
        let servers = servers.iter();
        Reports::of(servers.filter(|server| Some(&server.holder.identity) != without))
    }

    fn count(&mut self, role: &Role) -> (usize, usize) {
        let mut servers = or_raise(self.registry.servers());
        servers.retain(|server| server.dropped.is_none());
        let all = servers.len();
        servers.retain(|server| server.holder.identity.role == *role);
        (servers.len(), all)
    }
}

impl Rows for RegistryTable {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        match &self.row {
            Some((known, row)) if *known == worker => row.clone(),
            _ => self.search(
                "SELECT lease FROM _snowflake.leases WHERE namespace = $1 AND worker_id = $2::integer",
                &[&worker.get().to_string()],
            ),
        }
    }

    fn held_by(&mut self, identity: &ServerKey) -> Vec<Row> {
        let rows = self.run(
            "SELECT jsonb_agg(lease) FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND system_identifier = ($3::jsonb -> 'system')::numeric \
             AND lease #> '{holder,identity}' = $3::jsonb",
            &[&self.all, &json(identity)],
        );
        or_raise(parsed_if(rows.as_deref())).unwrap_or_default()
    }

    fn unused(&mut self) -> Option<WorkerId> {
        // The first one is the beginning of a range, or follows one that has a row.
        let id = self.run(
            "SELECT min(c.id) FROM ( \
                 SELECT lower(u.ids) AS id FROM unnest($2::int8multirange) AS u (ids) \
                 UNION ALL SELECT l.worker_id::bigint + 1 \
                 FROM _snowflake.leases AS l WHERE l.namespace = $1) AS c \
             WHERE $2::int8multirange @> c.id AND NOT EXISTS ( \
                 SELECT FROM _snowflake.leases AS l \
                 WHERE l.namespace = $1 AND l.worker_id = c.id)",
            &[&self.ordinary],
        );
        WorkerId::new(id?.parse().ok()?)
    }

    fn longest_free(&mut self, free: &Free) -> Option<Row> {
        let [expired, bound, era, settled] = free_values(free);
        self.search(
            "SELECT lease FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange \
             AND bound <= $4::bigint AND (released OR leased_until <= $3::bigint) \
             AND ((lease -> 'era')::numeric >= $5::numeric OR released AND leased_until <= $6::bigint) \
             ORDER BY leased_until, worker_id LIMIT 1",
            &[&self.ordinary, &expired, &bound, &era, &settled],
        )
    }

    fn least_bound(&mut self, free: &Free) -> Option<Row> {
        let [expired, bound, era, settled] = free_values(free);
        self.search(
            "SELECT lease FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange \
             AND bound <= $4::bigint AND (released OR leased_until <= $3::bigint) \
             AND ((lease -> 'era')::numeric >= $5::numeric OR released AND leased_until <= $6::bigint) \
             ORDER BY bound, worker_id LIMIT 1",
            &[&self.ordinary, &expired, &bound, &era, &settled],
        )
    }

    fn count_free(&mut self, free: &Free, with_unused: bool, most: i64) -> i64 {
        let [expired, bound, era, settled] = free_values(free);
        let count = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let rows: i64 = count(self.run(
            "SELECT count(*) FROM (SELECT FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange \
             AND bound <= $4::bigint AND (released OR leased_until <= $3::bigint) \
             AND ((lease -> 'era')::numeric >= $5::numeric OR released AND leased_until <= $6::bigint) \
             LIMIT $7::bigint) AS f",
            &[&self.ordinary, &expired, &bound, &era, &settled, &most.to_string()],
        ));
        if !with_unused || rows >= most {
            return rows;
        }
        let known: i64 = count(self.run(
            "SELECT count(*) FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange",
            &[&self.ordinary],
        ));
        rows.saturating_add(self.pool.ordinary().saturating_sub(known))
    }

    fn latest_heard(&mut self) -> Option<RegistryMillis> {
        let heard = or_raise(self.registry.value(
            "SELECT max((lease -> 'heard')::bigint) FROM _snowflake.leases",
            &[],
        ));
        Some(RegistryMillis::new(heard?.parse().ok()?))
    }

    fn is_later(&mut self, latest: RegistryMillis) -> bool {
        self.latest.is_none_or(|known| known > latest)
    }

    fn clamp(&mut self, latest: RegistryMillis) {
        if self.latest.is_some_and(|known| known <= latest) {
            return;
        }
        self.run(
            "UPDATE _snowflake.leases \
             SET lease = jsonb_set(lease, '{leased_until}', to_jsonb($3::bigint)) \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND leased_until > $3::bigint",
            &[&self.all, &latest.get().to_string()],
        );
        self.latest = Some(latest);
        self.row = None;
    }

    fn vouchers(&mut self, asker: &ServerKey, now: RegistryMillis) -> Vouchers {
        let rows = or_raise(self.registry.value(
            "SELECT jsonb_agg(lease) FROM _snowflake.leases \
             WHERE (lease -> 'heard')::bigint BETWEEN $1::bigint - $2::bigint AND $1::bigint + $2::bigint",
            &[&now.get().to_string(), &registry::VOUCH_TIME.get().to_string()],
        ));
        let rows: Vec<Row> = or_raise(parsed_if(rows.as_deref())).unwrap_or_default();
        vouchers_of(rows.iter(), asker, now)
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let bound = or_raise(self.registry.value(
            "SELECT max(bound) FROM _snowflake.leases WHERE system_identifier = $1::numeric",
            &[&system.to_string()],
        ));
        Some(UnixMillis::new(bound?.parse().ok()?))
    }
}

/// The parameters of a search for free rows.
fn free_values(free: &Free) -> [String; 4] {
    let (era, settled) = match free.known {
        Some((era, settled)) => (era, settled.get()),
        None => (0, i64::MIN),
    };
    [
        free.expired.get().to_string(),
        free.bound.get().to_string(),
        era.to_string(),
        settled.to_string(),
    ]
}

fn or_raise<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| error.raise())
}

/// Whether the transaction continues after this statement.
fn is_in_block() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::IsInTransactionBlock(true) }
}

/// Lets the transaction end with this statement. A client that sends statements without a
/// Sync message would leave it open, as in a transaction block.
fn commit_at_once() {
    let flag = pg_sys::XACT_FLAGS_NEEDIMMEDIATECOMMIT.cast_signed();
    // SAFETY: a variable of this process, of the present transaction.
    unsafe { pg_sys::MyXactFlags |= flag };
}

/// Reads what the registry has stored.
fn parsed<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| error::registry_not_read(&why.to_string()))
}

fn parsed_if<T: for<'a> Deserialize<'a>>(text: Option<&str>) -> Result<Option<T>, Error> {
    text.map(parsed).transpose()
}

/// What the registry stores.
fn json(value: &impl serde::Serialize) -> String {
    // The core's types have no content that JSON lacks.
    serde_json::to_string(value).unwrap_or_default()
}

/// Makes the commit of this transaction wait until it is durable.
fn commit_durably() {
    let on = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_REMOTE_FLUSH.cast_signed();
    // SAFETY: NUL-terminated constants, of a setting that each user can set. As SET LOCAL
    // does, it holds until the transaction ends, not only until the function does.
    unsafe {
        if pg_sys::synchronous_commit < on {
            pg_sys::set_config_option(
                c"synchronous_commit".as_ptr(),
                c"on".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_LOCAL,
                true,
                0,
                false,
            );
        }
    }
}
