//! The registry of worker IDs.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::postgres::encoding::{DatabaseText, Json};
use crate::postgres::{size_limit, time};
use crate::registry::{self, Place, WantedPool, etcd_admin};
use crate::server::{guc, shmem};
use crate::sql::call::{Call, c_function, columns};
use crate::sql::error;
use snowflake_core::lease::state::{RegistryInput, State};

// `_snowflake.lease(pool, request) -> jsonb`.
c_function!(snowflake_internal_lease, |call| {
    registry::lease(&call.name(0), &call.json(1, &size_limit::JSON)?).map(Json)
});

// `snowflake_revoke_worker(pool, worker_id, registry) -> timestamptz`.
c_function!(snowflake_revoke_worker, |call| {
    let (pool, worker) = (call.name(0), call.get(1).unwrap_or_default());
    let free = match Place::of(&call.name(2))? {
        Place::Here => registry::revoke(&pool, worker),
        Place::Etcd(url) => etcd_admin::revoke(url, &pool, worker),
    };
    free.map(time::to_datum)
});

// `snowflake_end_grace_period(registry)`.
c_function!(snowflake_end_grace_period, |call| change(
    call,
    c"snowflake_end_grace_period()",
    State::end_grace
));

// `snowflake_declare_registry(registry)`.
c_function!(snowflake_declare_registry, |call| change(
    call,
    c"snowflake_declare_registry()",
    State::declare
));

fn change(
    call: &Call,
    function: &CStr,
    f: fn(&mut State, &RegistryInput),
) -> Result<(), error::Error> {
    match Place::of(&call.name(0))? {
        Place::Here => registry::change(function, f),
        Place::Etcd(url) => etcd_admin::change(url, f),
    }
}

// `snowflake_create_registry(role)`. It is not STRICT: without a role, nobody is granted anything.
c_function!(snowflake_create_registry, |call| {
    let role = (!call.is_null(0)).then(|| call.name(0));
    registry::create_registry(role.as_deref())
});

// `snowflake_create_pool(name, worker_ids, lease, hold, max_ahead, except_ids, namespace,
// unused, registry)`. It is not STRICT: an argument that is NULL is an error, but for
// `unused`.
c_function!(snowflake_create_pool, |call| {
    if (0..call.count()).any(|index| index != 7 && call.is_null(index)) {
        return Err(error::no_null());
    }
    let wanted = WantedPool {
        name: &call.name(0),
        namespace: &call.name(6),
        unused: call.get(7),
        values: [
            (pg_sys::INT8RANGEOID, call.measured(1, &size_limit::RANGES)),
            (
                pg_sys::INT8MULTIRANGEOID,
                call.measured(5, &size_limit::RANGES),
            ),
            (pg_sys::INTERVALOID, call.datum(2)),
            (pg_sys::INTERVALOID, call.datum(3)),
            (pg_sys::INTERVALOID, call.datum(4)),
        ],
    };
    registry::create_pool(&wanted, Place::of(&call.name(8))?)
});

// `snowflake_drop_pool(name, registry)`.
c_function!(snowflake_drop_pool, |call| {
    let name = call.name(0);
    match Place::of(&call.name(1))? {
        Place::Here => registry::drop_pool(&name),
        Place::Etcd(url) => etcd_admin::drop_pool(url, &name),
    }
});

// `_snowflake.read_registry() -> jsonb`.
c_function!(snowflake_internal_read_registry, |_| {
    Ok::<_, error::Error>(registry::read_here()?.map(Json))
});

// `_snowflake.read_elsewhere() -> jsonb`.
c_function!(snowflake_internal_read_elsewhere, |_| {
    Ok::<_, error::Error>(registry::read_elsewhere()?.map(Json))
});

// `_snowflake.ask_registry() -> rows`: what each host has stored, and the worker ID that the
// settings ask for.
c_function!(snowflake_internal_ask_registry, |call| {
    shmem::shared()?;
    let fixed = guc::worker_id().map(|worker| worker.get().cast_signed());
    let rows = registry::ask_hosts()?.into_iter().map(|answer| {
        let (stored, problem) = match answer.stored {
            Ok(stored) => (stored, None),
            Err(why) => (None, Some(why)),
        };
        columns![
            DatabaseText(answer.host),
            stored.map(Json),
            problem.map(DatabaseText),
            fixed,
        ]
    });
    call.rows(rows);
    Ok(())
});
