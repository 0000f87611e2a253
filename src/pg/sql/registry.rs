//! The registry of worker IDs.

use super::super::encoding::Json;
use super::super::{etcd::admin, registry, time};
use super::call::c_function;

// `snowflake_lease(pool, request) -> jsonb`.
c_function!(snowflake_lease, |call| {
    registry::lease(&call.text(0), &call.json(1)).map(Json)
});

// `snowflake_revoke_worker(pool, worker_id, registry) -> timestamptz`.
c_function!(snowflake_revoke_worker, |call| {
    let (pool, worker) = (call.text(0), call.get(1).unwrap_or_default());
    let free = match &*call.text(2) {
        "" => registry::revoke(&pool, worker),
        registry => admin::revoke(registry, &pool, worker),
    };
    free.map(time::to_datum)
});

// `snowflake_end_quiet_time(registry)`.
c_function!(snowflake_end_quiet_time, |call| match &*call.text(0) {
    "" => registry::end_quiet(),
    registry => admin::end_quiet(registry),
});

// `snowflake_declare_registry(registry)`.
c_function!(snowflake_declare_registry, |call| match &*call.text(0) {
    "" => registry::declare(),
    registry => admin::declare(registry),
});

// `snowflake_internal_create_etcd_pool(registry, pool)`.
c_function!(snowflake_internal_create_etcd_pool, |call| {
    admin::create_pool(&call.text(0), &call.json(1))
});

// `snowflake_internal_drop_etcd_pool(registry, name)`.
c_function!(snowflake_internal_drop_etcd_pool, |call| {
    admin::drop_pool(&call.text(0), &call.text(1))
});

// `snowflake_internal_lock_registry() -> timestamptz`.
c_function!(snowflake_internal_lock_registry, |_| {
    registry::lock_or_make().map(time::to_datum)
});

// `snowflake_internal_read_etcd(registry) -> jsonb`.
c_function!(snowflake_internal_read_etcd, |call| {
    admin::read_all(&call.text(0)).map(Json)
});
