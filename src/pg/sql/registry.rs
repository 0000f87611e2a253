//! The registry of worker IDs.

use super::super::encoding::Json;
use super::super::{registry, time};
use super::call::c_function;

// `snowflake_lease(pool, request) -> jsonb`.
c_function!(snowflake_lease, |call| {
    registry::lease(&call.text(0), &call.json(1)).map(Json)
});

// `snowflake_revoke_worker(pool, worker_id) -> timestamptz`.
c_function!(snowflake_revoke_worker, |call| {
    let worker = call.get(1).unwrap_or_default();
    registry::revoke(&call.text(0), worker).map(time::to_datum)
});

// `snowflake_end_quiet_time()`.
c_function!(snowflake_end_quiet_time, |_| registry::end_quiet());

// `snowflake_declare_registry()`.
c_function!(snowflake_declare_registry, |_| registry::declare());

// `snowflake_internal_lock_registry() -> timestamptz`.
c_function!(snowflake_internal_lock_registry, |_| {
    registry::lock_or_make().map(time::to_datum)
});
