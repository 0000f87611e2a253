//! PostgreSQL as the host of a registry of worker IDs: reads the tables of
//! `sql/registry.sql` for the core, which decides, and stores what it says.
//!
//! Each function locks the row of the state first, and stores it in the end, also if it
//! refuses something. The row lock excludes all others until the transaction ends. Under
//! READ COMMITTED, which is required, each statement after the lock sees what the
//! holders before have committed; and the clock is read after the lock, so that registry
//! time does not go back from one holder to the next.
//!
//! A reply counts when the transaction is durable. So `synchronous_commit` is raised to
//! `on` for the rest of the transaction: a server that has crashed, or a synchronous
//! standby that is promoted, has the grant.

mod servers;

pub use servers::{drop_server, horizon};

use pgrx::pg_sys;
use serde::Deserialize;

use super::error::{self, Error};
use super::wire::{self, Unreadable};
use super::{catalog, entry, identity, spi, time};
use crate::snowflake::id::{UnixMillis, WorkerId};
use crate::snowflake::lease::registry::{self, Rows, Scene, State};
use crate::snowflake::lease::{Identity, Place, Pool, RegistryMillis, Request, Row};

/// Instants beyond these are stored and compared as infinite: see
/// `snowflake_internal_instant()`.
const INSTANTS: std::ops::RangeInclusive<i64> = -190_000_000_000_000..=9_000_000_000_000_000;

/// The columns of a lease that are not its key, in the order of [`VALUES`].
const COLUMNS: &str = "counter, nonce, released, revoked, system_identifier, boot_id, device, \
    inode, generator, started, host, address, port, data_directory, since, floor, start, renewed, \
    leased_until, bound, number, clock, era, contender";

/// Their values, from `r`, the JSON of a [`Row`].
const VALUES: &str = "(r ->> 'counter')::bigint, (r ->> 'nonce')::uuid, \
    (r ->> 'released')::boolean, @schema@.snowflake_internal_instant((r ->> 'revoked')::bigint), \
    (r #>> '{holder,identity,system}')::numeric, (r #>> '{holder,identity,boot}')::uuid, \
    (r #>> '{holder,identity,device}')::numeric, (r #>> '{holder,identity,inode}')::numeric, \
    (r #>> '{holder,identity,generator}')::numeric, \
    (r #>> '{holder,started}')::bigint, r #>> '{holder,host}', r #>> '{holder,address}', \
    (r #>> '{holder,port}')::integer, r #>> '{holder,data_directory}', \
    @schema@.snowflake_internal_instant((r ->> 'since')::bigint), (r ->> 'floor')::bigint, \
    (r ->> 'start')::bigint, (r ->> 'renewed')::boolean, \
    @schema@.snowflake_internal_instant((r ->> 'leased_until')::bigint), \
    (r ->> 'bound')::bigint, (r ->> 'number')::bigint, (r ->> 'clock')::bigint, (r ->> 'era')::bigint, \
    nullif(r -> 'contender', 'null')";

/// A lease as the JSON of a [`Row`].
const SELECT: &str = "SELECT jsonb_build_object('worker', worker_id, 'counter', counter, \
    'nonce', replace(nonce::text, '-', ''), 'released', released, \
    'revoked', @schema@.snowflake_internal_millis(revoked), \
    'holder', jsonb_build_object('identity', jsonb_build_object('system', system_identifier, \
        'boot', replace(boot_id::text, '-', ''), 'device', device, 'inode', inode, \
        'generator', generator), \
        'started', started, 'host', host, 'address', address, 'port', port, \
        'data_directory', data_directory), \
    'since', @schema@.snowflake_internal_millis(since), 'floor', floor, 'start', start, \
    'renewed', renewed, 'leased_until', @schema@.snowflake_internal_millis(leased_until), \
    'bound', bound, 'number', number, 'clock', clock, 'era', era, 'contender', contender) \
    FROM @schema@.snowflake_registry_leases WHERE namespace = $1";

/// Answers the request of a server; both are JSON.
pub fn lease(pool: &str, request: &str) -> Result<String, Error> {
    let request: Request = wire::decode(request).map_err(|why| match why {
        Unreadable::Format(format) => error::other_format(format),
        Unreadable::Content(why) => error::request_not_read(&why),
    })?;
    // The whole registry is locked until the transaction ends.
    // SAFETY: reads the state of the transaction.
    if unsafe { pg_sys::IsInTransactionBlock(true) } {
        return Err(error::needs_own_transaction());
    }
    let registry = Registry::lock(c"snowflake_lease()")?;
    let (Some(mut state), Some(mut table)) = (registry.state()?, registry.pool(pool)?) else {
        return Err(error::no_pool(pool));
    };
    let scene = scene(Some(request.asker.identity))?;
    let kept = table.pool.clone();
    let reply = registry::handle(&mut state, &kept, &mut table, &request, &scene);
    registry.store(&state)?;
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

/// Makes the registry if there is none, and locks it. Returns its time.
pub fn lock_or_make() -> Result<UnixMillis, Error> {
    let registry = Registry::lock(c"snowflake_create_pool()")?;
    let state = match registry.state()? {
        Some(state) => state,
        None => registry.make()?,
    };
    // A pool is not made earlier than what has been stored, though the clock was set back.
    Ok(scene(None)?.now.max(state.top).as_nodes_clock())
}

/// What is around the registry. Its lock is held.
fn scene(asker: Option<Identity>) -> Result<Scene, Error> {
    let mut random = [0; size_of::<u128>()];
    // SAFETY: as many bytes as there are. Not in recovery, so WAL is inserted.
    let (filled, now, timeline, database) = unsafe {
        (
            pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len() as pg_sys::Size),
            pg_sys::GetCurrentTimestamp(),
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::MyDatabaseId,
        )
    };
    if !filled {
        return Err(error::no_random_numbers());
    }
    let host = identity::identity();
    Ok(Scene {
        now: RegistryMillis::new(time::unix_millis(now).get()),
        place: Place {
            system: host.system,
            timeline: timeline.into(),
            database: database.to_u32().into(),
        },
        start: identity::start(),
        recovered: identity::recovered(),
        asker_hosts: asker == Some(host),
        random: u128::from_ne_bytes(random),
    })
}

/// The tables of a registry.
#[derive(Clone)]
struct Registry {
    /// The extension's schema, as SQL.
    schema: String,
}

impl Registry {
    /// Checks that the caller's transaction can lock and change the registry.
    fn lock(function: &std::ffi::CStr) -> Result<Self, Error> {
        entry::prevent_where_nextval_is(function);
        // SAFETY: a variable of this process.
        let isolation = unsafe { pg_sys::XactIsoLevel };
        if isolation >= pg_sys::XACT_REPEATABLE_READ.cast_signed() {
            return Err(error::needs_read_committed(&function.to_string_lossy()));
        }
        commit_durably();
        Self::of_this_database()
    }

    fn of_this_database() -> Result<Self, Error> {
        let schema = catalog::schema_of_extension().ok_or_else(error::no_registry)?;
        Ok(Self { schema })
    }

    fn value(&self, statement: &str, values: &[&str]) -> Result<Option<String>, Error> {
        spi::value(&statement.replace("@schema@", &self.schema), values)
    }

    /// The state; waits for the lock of its row.
    fn state(&self) -> Result<Option<State>, Error> {
        let state = self.value(
            "SELECT state FROM @schema@.snowflake_registry_state WHERE id = 1 FOR UPDATE",
            &[],
        )?;
        state.map(|text| parsed(&text)).transpose()
    }

    /// Makes the state, unless somebody else is quicker.
    fn make(&self) -> Result<State, Error> {
        self.value(
            "INSERT INTO @schema@.snowflake_registry_state VALUES (1, $1::jsonb) \
             ON CONFLICT DO NOTHING",
            &[&json(&State::new(&scene(None)?))],
        )?;
        self.state()?.ok_or_else(error::no_registry)
    }

    fn store(&self, state: &State) -> Result<(), Error> {
        let update = "UPDATE @schema@.snowflake_registry_state SET state = $1::jsonb WHERE id = 1";
        self.value(update, &[&json(state)]).map(drop)
    }

    /// A pool and its leases. Before ALTER EXTENSION UPDATE, any role that may create tables in
    /// the extension's schema could make one with the name of the table of servers, whose
    /// triggers would run as the owner of the registry: so the owner counts.
    fn pool(&self, name: &str) -> Result<Option<Table<'_>>, Error> {
        let found = self.value(
            "SELECT jsonb_build_object('name', name, \
             'ids', jsonb_build_object('start', lower(worker_ids), 'end', upper(worker_ids)), \
             'except', ARRAY(SELECT jsonb_build_object('start', lower(u.ids), 'end', upper(u.ids)) \
                 FROM unnest(except_ids) AS u (ids)), \
             'spares', spares, 'lease', (extract(epoch FROM lease) * 1000)::bigint, \
             'hold', (extract(epoch FROM hold) * 1000)::bigint, \
             'max_ahead', (extract(epoch FROM max_ahead) * 1000)::bigint, \
             'made', @schema@.snowflake_internal_millis(made), \
             'namespace', namespace, 'all', worker_ids::text, 'ordinary', \
             (int8multirange(int8range(lower(worker_ids), upper(worker_ids) - spares)) - except_ids)::text, \
             'counts_servers', EXISTS (SELECT FROM pg_class AS s, pg_class AS p \
                 WHERE s.relname = 'snowflake_registry_servers' \
                 AND s.relnamespace = p.relnamespace AND p.oid = pools.tableoid \
                 AND s.relkind = 'r' AND (s.relowner = p.relowner OR \
                     (SELECT rolsuper FROM pg_roles AS r WHERE r.oid = s.relowner)))) \
             FROM @schema@.snowflake_registry_pools AS pools WHERE name = $1",
            &[name],
        )?;
        let Some(text) = found else { return Ok(None) };
        let pool: Pool = parsed(&text)?;
        let pool = pool.checked();
        Ok(Some(Table {
            registry: self,
            pool: pool.ok_or_else(|| error::registry_not_read("a pool that makes no sense"))?,
            more: parsed(&text)?,
        }))
    }
}

/// The leases of a pool.
struct Table<'a> {
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
    /// Whether the registry has a table of servers: version 0.1.0 of the script makes none,
    /// and leases go on without until ALTER EXTENSION UPDATE, which waits for our lock.
    counts_servers: bool,
}

impl Table<'_> {
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

impl Rows for Table<'_> {
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
            "INSERT INTO @schema@.snowflake_registry_leases (namespace, worker_id, {COLUMNS}) \
             SELECT $1, (r ->> 'worker')::integer, {VALUES} FROM (SELECT $2::jsonb) AS v (r) \
             ON CONFLICT (namespace, worker_id) DO UPDATE SET ({COLUMNS}) = ROW({excluded})"
        );
        self.run(&statement, &[&json(&row)]);
    }

    fn last_held_by(&mut self, identity: &Identity) -> Option<Row> {
        self.row(
            "worker_id::bigint <@ $2::int8range AND system_identifier = $3::numeric \
             AND boot_id = $4::uuid AND device = $5::numeric AND inode = $6::numeric \
             AND generator = $7::numeric \
             ORDER BY since DESC, started DESC, worker_id",
            &[
                &self.more.all,
                &identity.system.to_string(),
                &format!("{:032x}", identity.boot),
                &identity.device.to_string(),
                &identity.inode.to_string(),
                &identity.generator.to_string(),
            ],
        )
    }

    fn unused(&mut self) -> Option<WorkerId> {
        // The first one is the beginning of a range, or follows one that has a row.
        let id = self.run(
            "SELECT min(c.id) FROM ( \
                 SELECT lower(u.ids) AS id FROM unnest($2::int8multirange) AS u (ids) \
                 UNION ALL SELECT l.worker_id::bigint + 1 \
                 FROM @schema@.snowflake_registry_leases AS l WHERE l.namespace = $1) AS c \
             WHERE $2::int8multirange @> c.id AND NOT EXISTS ( \
                 SELECT FROM @schema@.snowflake_registry_leases AS l \
                 WHERE l.namespace = $1 AND l.worker_id = c.id)",
            &[&self.more.ordinary],
        );
        WorkerId::new(id?.parse().ok()?)
    }

    fn longest_free(&mut self, expired: RegistryMillis, bound: UnixMillis) -> Option<Row> {
        self.row(
            "worker_id::bigint <@ $2::int8multirange AND bound <= $4::bigint \
             AND (released OR leased_until <= @schema@.snowflake_internal_instant($3::bigint)) \
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
            "UPDATE @schema@.snowflake_registry_leases \
             SET leased_until = @schema@.snowflake_internal_instant($3::bigint) \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND leased_until > @schema@.snowflake_internal_instant($3::bigint)",
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
            "SELECT max(bound) FROM @schema@.snowflake_registry_leases \
             WHERE system_identifier = $1::numeric",
            &[&system.to_string()],
        );
        let bound = bound.unwrap_or_else(|error| error.raise());
        Some(UnixMillis::new(bound?.parse().ok()?))
    }
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
