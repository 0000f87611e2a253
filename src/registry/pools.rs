//! Makes and drops pools of worker IDs.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::spi::quote_identifier;
use serde::Deserialize;

use crate::postgres::spi;
use crate::registry::error::{self, Error};
use crate::registry::{
    Changes, Lock, Place, Pool, Registry, RegistryMillis, StoredPool, commit_at_once, etcd_admin,
    is_in_block, json, parsed, place::has_pools,
};
use crate::server::{guc, shmem};
use snowflake_registry_client::etcd::url::Url;

/// The greatest length of the name of a pool or of a namespace, in bytes.
pub const NAME_LIMIT: usize = 255;

/// The arguments of `snowflake_create_pool()`.
pub struct WantedPool<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    /// Nobody has used the worker IDs before; `None`: if this makes the registry.
    pub unused: Option<bool>,
    /// `worker_ids`, `except_ids`, `lease`, `hold` and `max_ahead`, with their types.
    pub values: [(pg_sys::Oid, pg_sys::Datum); 5],
}

/// What PostgreSQL says of [`WantedPool::values`].
const FACTS: &str = "SELECT jsonb_build_object('ids', $1::text, 'empty', isempty($1), \
    'infinite', lower_inf($1) OR upper_inf($1), 'start', lower($1), 'end', upper($1), \
    'except', ARRAY(SELECT jsonb_build_object('start', lower(u.ids), 'end', upper(u.ids)) \
        FROM unnest($2) AS u (ids)), \
    'beyond', CASE WHEN NOT $2 <@ $1 THEN ($2 - int8multirange($1))::text END, \
    'durations', ARRAY(SELECT jsonb_build_object('name', v.name, 'text', v.value::text, \
            'at_least', v.at_least::text, 'fits', c.fits, \
            'millis', CASE WHEN c.fits THEN floor(extract(epoch FROM v.value) * 1000)::bigint ELSE 0 END) \
        FROM (VALUES (1, 'lease', $3, interval '1 s'), (2, 'hold', $4, '1 s'), \
            (3, 'max_ahead', $5, '0')) AS v (number, name, value, at_least) \
        CROSS JOIN LATERAL (SELECT v.value BETWEEN v.at_least AND interval '1 day') AS c (fits) \
        ORDER BY v.number))";

#[derive(Deserialize)]
struct PoolFacts {
    ids: String,
    empty: bool,
    infinite: bool,
    start: Option<i64>,
    end: Option<i64>,
    except: Vec<Ids>,
    beyond: Option<String>,
    durations: [Duration; 3],
}

/// Worker IDs from `start` up to but excluding `end`; `None` where there is no limit.
#[derive(Deserialize, serde::Serialize)]
struct Ids {
    start: Option<i64>,
    end: Option<i64>,
}

#[derive(Deserialize)]
struct Duration {
    name: String,
    text: String,
    at_least: String,
    fits: bool,
    millis: i64,
}

/// Makes a pool.
pub fn create_pool(wanted: &WantedPool, place: Place) -> Result<(), Error> {
    let WantedPool {
        name, namespace, ..
    } = *wanted;
    for name in [name, namespace] {
        if name.is_empty() {
            return Err(error::empty_name());
        } else if name.len() > NAME_LIMIT {
            return Err(error::long_name(NAME_LIMIT));
        }
    }
    let facts = spi::value_of(FACTS, &wanted.values)?.unwrap_or_default();
    let facts: PoolFacts = parsed(&facts)?;
    let (start, end) = check(name, &facts)?;
    let [lease, hold, max_ahead] = &facts.durations;
    let pool = serde_json::json!({
        "name": name, "namespace": namespace,
        "ids": {"start": start, "end": end}, "except": facts.except,
        "lease": lease.millis, "hold": hold.millis, "max_ahead": max_ahead.millis,
        "made": 0,
    });
    let mut pool: StoredPool = parsed(&pool.to_string())?;
    match place {
        Place::Here => {
            let (registry, is_new) = to_make(c"snowflake_create_pool()")?;
            pool.pool.unused = wanted.unused.unwrap_or(is_new);
            put(registry, pool)
        }
        Place::Etcd(url) => {
            // Where a registry was whose keys are gone, its leases may be in force.
            let unused = wanted.unused.or(has_leased_from(&url).then_some(false));
            etcd_admin::create_pool(url, pool, unused)
        }
    }
}

/// Whether this server has had a worker ID of the registry in this etcd since it was started.
fn has_leased_from(url: &Url) -> bool {
    let of_setting = Url::parse(&guc::registry());
    let is_used = of_setting.is_ok_and(|used| used.describe() == url.describe());
    is_used
        && shmem::shared().is_ok_and(|shared| {
            shared.with_lease(|_, state| {
                let kept = state.link.as_ref();
                kept.is_some_and(|kept| kept.node.right().is_some())
            })
        })
}

/// Makes the default pool if this database has no pool, and lets a role lease worker IDs.
pub fn create_registry(role: Option<&str>) -> Result<(), Error> {
    let function = c"snowflake_create_registry()";
    let registry = Registry::to_change(function)?;
    if let Some(role) = role {
        let known = registry.value(
            "SELECT true FROM pg_catalog.pg_roles WHERE rolname = $1",
            &[role],
        );
        known?.ok_or_else(|| error::no_such_role(role))?;
    }
    if !has_pools()? {
        let (registry, is_new) = to_make(function)?;
        // Another session may have made one meanwhile.
        if !has_pools()? {
            let mut pool = Pool::default_at(RegistryMillis::new(0));
            pool.unused = is_new;
            let namespace = "default".to_string();
            put(registry, StoredPool { namespace, pool })?;
        }
    }
    let Some(role) = role else { return Ok(()) };
    registry.guard.run(&format!(
        "GRANT EXECUTE ON FUNCTION _snowflake.lease(pg_catalog.text, pg_catalog.jsonb), \
             _snowflake.read_registry() TO {}",
        quote_identifier(role)
    ))
}

/// Makes the registry if there is none. Returns whether there was none.
fn to_make(function: &CStr) -> Result<(Registry, bool), Error> {
    let registry = Registry::to_change(function)?;
    // Nobody sees a registry that does not exist yet, so the first pool can be made without a lock
    // in a transaction block, with the extension, for example.
    let is_new = registry.make()?;
    if !is_in_block() {
        commit_at_once();
        registry.lock(Lock::Alone);
    } else if !is_new {
        return Err(error::needs_own_transaction(&function.to_string_lossy()));
    }
    Ok((registry, is_new))
}

/// Stores a pool, which is made now.
fn put(registry: Registry, mut stored: StoredPool) -> Result<(), Error> {
    let (state, input) = registry.state()?;
    let (name, namespace) = (stored.pool.name.clone(), stored.namespace.clone());
    if registry
        .value(
            "SELECT name FROM _snowflake.pools WHERE name = $1",
            &[&name],
        )?
        .is_some()
    {
        return Err(error::pool_exists(&name));
    }
    let ids = format!("[{},{})", stored.pool.ids.start, stored.pool.ids.end);
    let other = registry.guard.row(
        "SELECT name, worker_ids * $2::int8range AS both FROM _snowflake.pools \
         WHERE namespace = $1 AND worker_ids && $2::int8range ORDER BY worker_ids LIMIT 1",
        &[&namespace, &ids],
    )?;
    if let Some(other) = other {
        let (other, both) = (other.text("name"), other.text("both"));
        return Err(error::pools_overlap(&name, &other, &both, &namespace));
    }
    let pool = &mut stored.pool;
    pool.made = state.making(pool.unused, input.now);
    if pool.made.since(input.now) > pool.hold {
        error::made_ahead(&name, pool.made).warning();
    }
    registry.value(
        "INSERT INTO _snowflake.pools (pool) VALUES ($1::jsonb)",
        &[&json(&stored)],
    )?;
    registry.write(&state, Lock::Alone, "", &Changes::default())
}

/// Refuses what makes no pool. Returns its worker IDs: the first one, and the one after
/// the last one.
fn check(pool: &str, facts: &PoolFacts) -> Result<(i64, i64), Error> {
    if facts.empty {
        return Err(error::no_worker_ids(pool));
    }
    let (start, end) = match (facts.start, facts.end) {
        (Some(start), Some(end)) if !facts.infinite => (start, end),
        _ => return Err(error::infinitely_many(pool, &facts.ids)),
    };
    if start < 0 || end > i64::from(i32::MAX) + 1 {
        return Err(error::worker_ids_out_of_range(pool, &facts.ids));
    }
    if let Some(beyond) = &facts.beyond {
        return Err(error::excepts_others(pool, &facts.ids, beyond));
    }
    // Ranges of a multirange do not overlap.
    let excepted = facts.except.iter().map(|ids| match (ids.start, ids.end) {
        (Some(from), Some(to)) => to - from,
        _ => 0,
    });
    if excepted.sum::<i64>() >= end - start {
        return Err(error::nothing_to_lease(pool));
    }
    match facts.durations.iter().find(|duration| !duration.fits) {
        Some(it) => Err(error::bad_duration(pool, &it.name, &it.text, &it.at_least)),
        None => Ok((start, end)),
    }
}

/// Drops a pool of this database that no server uses. The rows of its leases stay.
pub fn drop_pool(name: &str) -> Result<(), Error> {
    let registry = Registry::alone(c"snowflake_drop_pool()")?;
    let (state, input) = registry.state()?;
    let name_of = "SELECT name FROM _snowflake.pools WHERE name = $1";
    if registry.value(name_of, &[name])?.is_none() {
        return Err(error::unknown_pool(name));
    }
    let found = registry.read(name, None)?;
    let now = input.now.max(state.top);
    if let Some(row) = found.rows.in_use(&found.pool, now) {
        return Err(error::pool_in_use(name, row));
    }
    registry.value("DELETE FROM _snowflake.pools WHERE name = $1", &[name])?;
    registry.write(&state, Lock::Alone, "", &Changes::default())
}
