//! Makes and drops pools of worker IDs.

use pgrx::pg_sys;
use serde::Deserialize;

use super::super::error::{self, Error};
use super::super::{etcd_admin, spi};
use super::{Registry, commit_at_once, is_in_block, parsed, scene};

/// The greatest length of the name of a pool or of a namespace, in bytes.
pub const NAME_LIMIT: usize = 255;

/// The arguments of `snowflake_create_pool()`, none of which is NULL.
pub struct WantedPool<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub spares: i32,
    /// `worker_ids`, `except_ids`, `lease`, `hold` and `max_ahead`, with their types.
    pub values: [(pg_sys::Oid, pg_sys::Datum); 5],
}

/// What PostgreSQL says of [`WantedPool::values`].
const FACTS: &str = "SELECT jsonb_build_object('ids', $1::text, 'empty', isempty($1), \
    'infinite', lower_inf($1) OR upper_inf($1), 'start', lower($1), 'end', upper($1), \
    'except', ARRAY(SELECT jsonb_build_object('start', lower(u.ids), 'end', upper(u.ids)) \
        FROM unnest($2) AS u (ids)), \
    'except_ids', $2::text, \
    'beyond', CASE WHEN NOT $2 <@ $1 THEN ($2 - int8multirange($1))::text END, \
    'durations', ARRAY(SELECT jsonb_build_object('name', v.name, 'text', v.value::text, \
            'at_least', v.at_least::text, 'fits', c.fits, \
            'stored', date_trunc('milliseconds', v.value)::text, \
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
    except_ids: String,
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
    stored: String,
    millis: i64,
}

/// Makes a pool in this database, or in the registry in etcd with this URL.
pub fn create_pool(wanted: &WantedPool, registry: &str) -> Result<(), Error> {
    let WantedPool {
        name,
        namespace,
        spares,
        ..
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
    let (start, end) = check(name, spares, &facts)?;
    let [lease, hold, max_ahead] = &facts.durations;
    if !registry.is_empty() {
        let pool = serde_json::json!({
            "name": name, "namespace": namespace, "spares": spares,
            "ids": {"start": start, "end": end}, "except": facts.except,
            "lease": lease.millis, "hold": hold.millis, "max_ahead": max_ahead.millis, "made": 0,
        });
        return etcd_admin::create_pool(registry, &pool.to_string());
    }

    let registry = Registry::to_change(c"snowflake_create_pool()")?;
    // Nobody waits for the lock of a registry that does not exist yet, so the first pool
    // can be made in a transaction block, with the extension, for example.
    if is_in_block() {
        if !registry.make()? {
            return Err(error::needs_own_transaction("snowflake_create_pool()"));
        }
    } else {
        registry.make()?;
        commit_at_once();
    }
    let state = registry.state()?.ok_or_else(error::no_registry)?;
    // A pool is not made earlier than what has been stored, though the clock was set back.
    let now = scene(None)?.now.max(state.top);
    if registry
        .value("SELECT name FROM _snowflake.pools WHERE name = $1", &[name])?
        .is_some()
    {
        return Err(error::pool_exists(name));
    }
    let other = registry.value(
        "SELECT jsonb_build_object('name', name, 'both', (worker_ids * $2::int8range)::text) \
         FROM _snowflake.pools WHERE namespace = $1 AND worker_ids && $2::int8range \
         ORDER BY worker_ids LIMIT 1",
        &[namespace, &facts.ids],
    )?;
    if let Some(other) = other {
        let other: Overlap = parsed(&other)?;
        return Err(error::pools_overlap(
            name,
            &other.name,
            &other.both,
            namespace,
        ));
    }
    registry
        .value(
            "INSERT INTO _snowflake.pools \
                 (name, namespace, worker_ids, except_ids, spares, lease, hold, max_ahead, made) \
             VALUES ($1, $2, $3::int8range, $4::int8multirange, $5::integer, $6::interval, \
                 $7::interval, $8::interval, _snowflake.instant($9::bigint))",
            &[
                name,
                namespace,
                &facts.ids,
                &facts.except_ids,
                &spares.to_string(),
                &lease.stored,
                &hold.stored,
                &max_ahead.stored,
                &now.get().to_string(),
            ],
        )
        .map(drop)
}

#[derive(Deserialize)]
struct Overlap {
    name: String,
    both: String,
}

/// Refuses what makes no pool. Returns its worker IDs: the first one, and the one after
/// the last one.
fn check(pool: &str, spares: i32, facts: &PoolFacts) -> Result<(i64, i64), Error> {
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
    let spare = i64::from(spares);
    if spare < 0 || spare >= end - start {
        return Err(error::bad_spares(pool, spares, end - start));
    }
    // Ranges of a multirange do not overlap.
    let ordinary = end - spare;
    let excepted = facts.except.iter().map(|ids| match (ids.start, ids.end) {
        (Some(from), Some(to)) => (to.min(ordinary) - from.min(ordinary)).max(0),
        _ => 0,
    });
    if excepted.sum::<i64>() >= ordinary - start {
        return Err(error::nothing_to_lease(pool));
    }
    match facts.durations.iter().find(|duration| !duration.fits) {
        Some(it) => Err(error::bad_duration(pool, &it.name, &it.text, &it.at_least)),
        None => Ok((start, end)),
    }
}

#[derive(Deserialize)]
struct HeldWorker {
    worker: i32,
    whose: String,
}

/// Drops a pool of this database that no server uses. The rows of its leases stay.
pub fn drop_pool(name: &str) -> Result<(), Error> {
    let registry = Registry::lock(c"snowflake_drop_pool()")?;
    let state = registry.state()?.ok_or_else(error::no_registry)?;
    let now = scene(None)?.now.max(state.top).get().to_string();
    if registry
        .value("SELECT name FROM _snowflake.pools WHERE name = $1", &[name])?
        .is_none()
    {
        return Err(error::unknown_pool(name));
    }
    let held = registry.value(
        "SELECT jsonb_build_object('worker', l.worker_id, 'whose', \
             format('%s%s, port %s, data directory \"%s\", until %s', \
                 l.host, ' (' || nullif(l.address, '') || ')', l.port, l.data_directory, l.leased_until)) \
         FROM _snowflake.pools AS p JOIN _snowflake.leases AS l \
             ON l.namespace = p.namespace AND p.worker_ids @> l.worker_id::bigint \
         WHERE p.name = $1 AND NOT l.released \
             AND l.leased_until + p.hold > _snowflake.instant($2::bigint) \
         ORDER BY l.leased_until DESC, l.worker_id LIMIT 1",
        &[name, &now],
    )?;
    if let Some(held) = held {
        let held: HeldWorker = parsed(&held)?;
        return Err(error::pool_in_use(name, held.worker, &held.whose));
    }
    registry
        .value("DELETE FROM _snowflake.pools WHERE name = $1", &[name])
        .map(drop)
}
