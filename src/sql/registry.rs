//! The registry of worker IDs.

use pgrx::pg_sys;

use super::super::encoding::Json;
use super::super::registry::WantedPool;
use super::super::{error, etcd_admin, registry, time};
use super::call::c_function;
use super::limit;

// `snowflake_lease(pool, request) -> jsonb`.
c_function!(snowflake_lease, |call| {
    registry::lease(&call.name(0), &call.json(1, &limit::JSON)?).map(Json)
});

// `snowflake_revoke_worker(pool, worker_id, registry) -> timestamptz`.
c_function!(snowflake_revoke_worker, |call| {
    let (pool, worker) = (call.name(0), call.get(1).unwrap_or_default());
    let free = match &*call.name(2) {
        "" => registry::revoke(&pool, worker),
        registry => etcd_admin::revoke(registry, &pool, worker),
    };
    free.map(time::to_datum)
});

// `snowflake_end_grace_period(registry)`.
c_function!(snowflake_end_grace_period, |call| match &*call.name(0) {
    "" => registry::end_grace(),
    registry => etcd_admin::end_grace(registry),
});

// `snowflake_declare_registry(registry)`.
c_function!(snowflake_declare_registry, |call| match &*call.name(0) {
    "" => registry::declare(),
    registry => etcd_admin::declare(registry),
});

// `snowflake_create_pool(name, worker_ids, lease, hold, max_ahead, except_ids, spares,
// namespace, registry)`. It is not STRICT: an argument that is NULL is an error.
c_function!(snowflake_create_pool, |call| {
    if (0..call.count()).any(|index| call.is_null(index)) {
        return Err(error::no_null());
    }
    let wanted = WantedPool {
        name: &call.name(0),
        namespace: &call.name(7),
        spares: call.get(6).unwrap_or_default(),
        values: [
            (pg_sys::INT8RANGEOID, call.measured(1, &limit::RANGES)),
            (pg_sys::INT8MULTIRANGEOID, call.measured(5, &limit::RANGES)),
            (pg_sys::INTERVALOID, call.datum(2)),
            (pg_sys::INTERVALOID, call.datum(3)),
            (pg_sys::INTERVALOID, call.datum(4)),
        ],
    };
    registry::create_pool(&wanted, &call.name(8))
});

// `snowflake_drop_pool(name, registry)`.
c_function!(snowflake_drop_pool, |call| {
    let name = call.name(0);
    match &*call.name(1) {
        "" => registry::drop_pool(&name),
        registry => etcd_admin::drop_pool(registry, &name),
    }
});

// `snowflake_internal_read_etcd(registry) -> jsonb`.
c_function!(snowflake_internal_read_etcd, |call| {
    etcd_admin::read_all(&call.name(0)).map(Json)
});
