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
//! While the row is locked, no server can renew its lease. So no function that locks it
//! runs inside a transaction block, which somebody could leave open.
//!
//! A reply counts when the transaction is durable. So `synchronous_commit` is raised to
//! `on` for the rest of the transaction: a server that has crashed, or a synchronous
//! standby that is promoted, has the grant.

mod pools;
mod servers;

pub use pools::{WantedPool, create_pool, drop_pool};
pub use servers::{drop_server, horizon};

use std::cell::Cell;
use std::ffi::CStr;

use pgrx::pg_sys;
use serde::Deserialize;

use super::error::{self, Error};
use super::guard::{Guard, Purpose};
use super::{compat, encoding, entry, identity, time};
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::registry::{self, Rows};
use snowflake_core::lease::seal::SealKey;
use snowflake_core::lease::state::{Scene, State};
use snowflake_core::lease::{
    Answer, Era, LeaseRefused, Place, Pool, RegistryMillis, Request, Role, Row, ServerKey,
};
use snowflake_registry_client::wire::{self, UnreadableMessage};

thread_local! {
    /// The era of the state that was read last.
    static READ: Cell<Option<Era>> = const { Cell::new(None) };
    /// The last transaction in which this session has begun an era.
    static BEGAN_ERA: Cell<u32> = const { Cell::new(0) };
}

/// Instants beyond these are stored and compared as infinite: see
/// `_snowflake.instant()`.
const INSTANTS: std::ops::RangeInclusive<i64> = -190_000_000_000_000..=9_000_000_000_000_000;

/// The columns of a lease that are not its key, in the order of [`VALUES`].
const COLUMNS: &str = "counter, nonce, released, revoked, system_identifier, boot_id, device, \
    inode, generator, role, started, host, address, port, data_directory, since, floor, start, renewed, \
    leased_until, bound, number, clock, era, contender";

/// Their values, from `r`, the JSON of a [`Row`].
const VALUES: &str = "(r ->> 'counter')::bigint, (r ->> 'nonce')::uuid, \
    (r ->> 'released')::boolean, _snowflake.instant((r ->> 'revoked')::bigint), \
    (r #>> '{holder,identity,system}')::numeric, (r #>> '{holder,identity,boot}')::uuid, \
    (r #>> '{holder,identity,device}')::numeric, (r #>> '{holder,identity,inode}')::numeric, \
    (r #>> '{holder,identity,generator}')::numeric, r #>> '{holder,identity,role}', \
    (r #>> '{holder,started}')::bigint, r #>> '{holder,host}', r #>> '{holder,address}', \
    (r #>> '{holder,port}')::integer, r #>> '{holder,data_directory}', \
    _snowflake.instant((r ->> 'since')::bigint), (r ->> 'floor')::bigint, \
    (r ->> 'start')::bigint, (r ->> 'renewed')::boolean, \
    _snowflake.instant((r ->> 'leased_until')::bigint), \
    (r ->> 'bound')::bigint, (r ->> 'number')::bigint, (r ->> 'clock')::bigint, (r ->> 'era')::bigint, \
    nullif(r -> 'contender', 'null')";

/// A lease as the JSON of a [`Row`].
const SELECT: &str = "SELECT jsonb_build_object('worker', worker_id, 'counter', counter, \
    'nonce', replace(nonce::text, '-', ''), 'released', released, \
    'revoked', _snowflake.millis(revoked), \
    'holder', jsonb_build_object('identity', jsonb_build_object('system', system_identifier, \
        'boot', replace(boot_id::text, '-', ''), 'device', device, 'inode', inode, \
        'generator', generator, 'role', role), \
        'started', started, 'host', host, 'address', address, 'port', port, \
        'data_directory', data_directory), \
    'since', _snowflake.millis(since), 'floor', floor, 'start', start, \
    'renewed', renewed, 'leased_until', _snowflake.millis(leased_until), \
    'bound', bound, 'number', number, 'clock', clock, 'era', era, 'contender', contender) \
    FROM _snowflake.leases WHERE namespace = $1";

/// Answers the request of a server; both are JSON.
pub fn lease(pool: &str, request: &str) -> Result<String, Error> {
    let mut request: Request = wire::decode(request).map_err(|why| match why {
        UnreadableMessage::Format(format) => error::other_format(format),
        UnreadableMessage::Content(why) => error::request_not_read(&why),
    })?;
    request.asker.fits().map_err(error::request_not_fit)?;
    let function = c"snowflake_lease()";
    let registry = Registry::lock(function)?;
    // A caller who aborts the transaction would know of an era that is never stored.
    if BEGAN_ERA.get() == compat::transaction() {
        return Err(error::needs_own_transaction(&function.to_string_lossy()));
    }
    let (Some(mut state), Some(mut table)) = (registry.state()?, registry.pool(pool)?) else {
        return Err(error::no_pool(pool));
    };
    let scene = scene(Some(request.asker.identity))?;
    // These two are not what the request says.
    request.asker.identity.role = caller();
    request.asker.address = registry.address()?;
    let kept = table.pool.clone();
    let reply = registry::handle(&mut state, &kept, &mut table, &request, &scene);
    registry.store(&state)?;
    if matches!(reply.answer, Answer::Refused(LeaseRefused::Foreign)) {
        error::foreign_memory(&request.asker).log("");
    }
    Ok(wire::encode(&reply))
}

/// Revokes the lease of a worker ID. Returns from when another server can have it.
pub fn revoke(pool: &str, worker: i32) -> Result<UnixMillis, Error> {
    let registry = Registry::lock(c"snowflake_revoke_worker()")?;
    let (Some(mut state), Some(mut table)) = (registry.state()?, registry.pool(pool)?) else {
        return Err(error::no_pool(pool));
    };
    let id = WorkerId::new(worker).filter(|id| table.pool.has(*id));
    let id = id.ok_or_else(|| error::not_in_pool(pool, worker))?;
    let scene = scene(None)?;
    let row = registry::revoke(&mut state, &mut table, id, &scene);
    let row = row.ok_or_else(|| error::never_leased(pool, worker))?;
    registry.store(&state)?;
    let free = if row.released {
        row.leased_until
    } else {
        row.leased_until.plus(table.pool.hold)
    };
    Ok(free.as_nodes_clock())
}

/// Ends the quiet time.
pub fn end_quiet() -> Result<(), Error> {
    change(c"snowflake_end_quiet_time()", State::end_quiet)
}

/// Declares that this registry counts.
pub fn declare() -> Result<(), Error> {
    change(c"snowflake_declare_registry()", State::declare)
}

fn change(function: &std::ffi::CStr, f: impl FnOnce(&mut State, &Scene)) -> Result<(), Error> {
    let registry = Registry::lock(function)?;
    let mut state = registry.state()?.ok_or_else(error::no_registry)?;
    f(&mut state, &scene(None)?);
    registry.store(&state)
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
fn scene(asker: Option<ServerKey>) -> Result<Scene, Error> {
    // SAFETY: not in recovery, so WAL is inserted.
    let (now, timeline, database) = unsafe {
        (
            pg_sys::GetCurrentTimestamp(),
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::MyDatabaseId,
        )
    };
    let host = identity::identity();
    Ok(Scene {
        now: RegistryMillis::new(time::unix_millis(now).get()),
        place: Place {
            system: host.system,
            timeline: timeline.into(),
            database: database.to_u32().into(),
        },
        start: identity::start(),
        clean_since: identity::clean_since(),
        revocable: true,
        asker_hosts: asker == Some(host),
        random: u128::from_ne_bytes(random()?),
    })
}

/// The tables of a registry.
#[derive(Clone)]
struct Registry {
    guard: Guard,
}

impl Registry {
    /// Checks that the caller's transaction can lock and change the registry, and ends soon.
    fn lock(function: &std::ffi::CStr) -> Result<Self, Error> {
        let registry = Self::to_change(function)?;
        if is_in_block() {
            return Err(error::needs_own_transaction(&function.to_string_lossy()));
        }
        commit_at_once();
        Ok(registry)
    }

    /// Checks that the caller's transaction can change the registry.
    fn to_change(function: &std::ffi::CStr) -> Result<Self, Error> {
        entry::prevent_where_nextval_is(function);
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

    fn value(&self, statement: &str, values: &[&str]) -> Result<Option<String>, Error> {
        self.guard.value(statement, values)
    }

    /// The address of the client of this session; empty if it is on this machine.
    fn address(&self) -> Result<String, Error> {
        let address = self.value("SELECT pg_catalog.host(pg_catalog.inet_client_addr())", &[])?;
        Ok(address.unwrap_or_default())
    }

    /// The state; waits for the lock of its row.
    fn state(&self) -> Result<Option<State>, Error> {
        let state = self.value(
            "SELECT state FROM _snowflake.state WHERE id = 1 FOR UPDATE",
            &[],
        )?;
        let state: Option<State> = state.map(|text| parsed(&text)).transpose()?;
        READ.set(state.as_ref().map(|state| state.era));
        Ok(state)
    }

    /// Makes the state; `false` if there is one.
    fn make(&self) -> Result<bool, Error> {
        let made = self.value(
            "INSERT INTO _snowflake.state VALUES (1, $1::jsonb) ON CONFLICT DO NOTHING \
             RETURNING id",
            &[&json(&State::new(&scene(None)?, SealKey::new(random()?)))],
        )?;
        Ok(made.is_some())
    }

    fn store(&self, state: &State) -> Result<(), Error> {
        if READ.get() != Some(state.era) {
            BEGAN_ERA.set(compat::transaction());
        }
        let update = "UPDATE _snowflake.state SET state = $1::jsonb WHERE id = 1";
        self.value(update, &[&json(state)]).map(drop)
    }

    /// A pool and its leases.
    fn pool(&self, name: &str) -> Result<Option<RegistryTable<'_>>, Error> {
        let found = self.value(
            "SELECT jsonb_build_object('name', name, \
             'ids', jsonb_build_object('start', lower(worker_ids), 'end', upper(worker_ids)), \
             'except', ARRAY(SELECT jsonb_build_object('start', lower(u.ids), 'end', upper(u.ids)) \
                 FROM unnest(except_ids) AS u (ids)), \
             'spares', spares, 'lease', (extract(epoch FROM lease) * 1000)::bigint, \
             'hold', (extract(epoch FROM hold) * 1000)::bigint, \
             'max_ahead', (extract(epoch FROM max_ahead) * 1000)::bigint, \
             'made', _snowflake.millis(made), \
             'namespace', namespace, 'all', worker_ids::text, 'ordinary', \
             (int8multirange(int8range(lower(worker_ids), upper(worker_ids) - spares)) - except_ids)::text) \
             FROM _snowflake.pools AS pools WHERE name = $1",
            &[name],
        )?;
        let Some(text) = found else { return Ok(None) };
        let pool: Pool = parsed(&text)?;
        let pool = pool.checked();
        Ok(Some(RegistryTable {
            registry: self,
            pool: pool.ok_or_else(|| error::registry_not_read("a pool that makes no sense"))?,
            more: parsed(&text)?,
        }))
    }
}

/// The leases of a pool.
struct RegistryTable<'a> {
    registry: &'a Registry,
    pool: Pool,
    more: More,
}

/// What else a statement needs to know of a pool.
#[derive(Deserialize)]
struct More {
    namespace: String,
    /// The range of its worker IDs.
    all: String,
    /// Those that are neither excepted nor spare, as a multirange.
    ordinary: String,
}

impl RegistryTable<'_> {
    /// Runs a statement whose first parameter is the namespace. The core has no errors,
    /// so this one ends the statement.
    fn run(&self, statement: &str, values: &[&str]) -> Option<String> {
        let namespace = self.more.namespace.as_str();
        let values: Vec<&str> = std::iter::once(namespace)
            .chain(values.iter().copied())
            .collect();
        let result = self.registry.value(statement, &values);
        result.unwrap_or_else(|error| error.raise())
    }

    /// The first row of those that fit.
    fn row(&self, condition: &str, values: &[&str]) -> Option<Row> {
        let text = self.run(&format!("{SELECT} AND {condition} LIMIT 1"), values)?;
        Some(parsed(&text).unwrap_or_else(|error| error.raise()))
    }
}

impl Rows for RegistryTable<'_> {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        // Also one that is no worker ID of the pool any more: its holder is not unknown.
        self.row("worker_id = $2::integer", &[&worker.get().to_string()])
    }

    fn put(&mut self, row: Row) {
        let excluded = COLUMNS
            .split(", ")
            .map(|column| format!("excluded.{column}"));
        let excluded = excluded.collect::<Vec<_>>().join(", ");
        let statement = format!(
            "INSERT INTO _snowflake.leases (namespace, worker_id, {COLUMNS}) \
             SELECT $1, (r ->> 'worker')::integer, {VALUES} FROM (SELECT $2::jsonb) AS v (r) \
             ON CONFLICT (namespace, worker_id) DO UPDATE SET ({COLUMNS}) = ROW({excluded})"
        );
        self.run(&statement, &[&json(&row)]);
    }

    fn last_held_by(&mut self, identity: &ServerKey) -> Option<Row> {
        self.row(
            "worker_id::bigint <@ $2::int8range AND system_identifier = $3::numeric \
             AND boot_id = $4::uuid AND device = $5::numeric AND inode = $6::numeric \
             AND generator = $7::numeric AND role = $8 \
             ORDER BY since DESC, started DESC, worker_id",
            &[
                &self.more.all,
                &identity.system.to_string(),
                &format!("{:032x}", identity.boot),
                &identity.device.to_string(),
                &identity.inode.to_string(),
                &identity.generator.to_string(),
                identity.role.name(),
            ],
        )
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
            &[&self.more.ordinary],
        );
        WorkerId::new(id?.parse().ok()?)
    }

    fn longest_free(&mut self, expired: RegistryMillis, bound: UnixMillis) -> Option<Row> {
        self.row(
            "worker_id::bigint <@ $2::int8multirange AND bound <= $4::bigint \
             AND (released OR leased_until <= _snowflake.instant($3::bigint)) \
             ORDER BY leased_until, worker_id",
            &[
                &self.more.ordinary,
                &within(expired).to_string(),
                &bound.get().to_string(),
            ],
        )
    }

    fn cut(&mut self, latest: RegistryMillis) {
        self.run(
            "UPDATE _snowflake.leases \
             SET leased_until = _snowflake.instant($3::bigint) \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND leased_until > _snowflake.instant($3::bigint)",
            &[&self.more.all, &within(latest).to_string()],
        );
    }

    fn greatest_bound(&mut self) -> Option<Row> {
        self.row(
            "worker_id::bigint <@ $2::int8range ORDER BY bound DESC, worker_id",
            &[&self.more.all],
        )
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let bound = self.registry.value(
            "SELECT max(bound) FROM _snowflake.leases \
             WHERE system_identifier = $1::numeric",
            &[&system.to_string()],
        );
        let bound = bound.unwrap_or_else(|error| error.raise());
        Some(UnixMillis::new(bound?.parse().ok()?))
    }
}

/// Whether the transaction goes on after this statement.
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

/// Milliseconds that `timestamptz` can hold.
fn within(at: RegistryMillis) -> i64 {
    at.get().clamp(*INSTANTS.start(), *INSTANTS.end())
}

/// Reads what the registry has stored.
fn parsed<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| error::registry_not_read(&why.to_string()))
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
