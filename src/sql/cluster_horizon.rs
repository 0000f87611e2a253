//! The horizon of a cluster.

use pgrx::pg_sys;

use super::super::error;
use super::super::etcd_admin;
use super::super::registry::Place;
use super::super::{generator_horizon, registry, session_generator};
use super::call::c_function;

// `snowflake_cluster_horizon([generator [, registry]]) -> bigint`.
c_function!(snowflake_cluster_horizon, |call| {
    // SAFETY: reads shared memory, and a variable of this process.
    if unsafe { pg_sys::RecoveryInProgress() } {
        return Err(error::cluster_horizon::in_recovery());
    }
    session_generator::prevent_where_nextval_is(c"snowflake_cluster_horizon()");
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ.cast_signed() {
        return Err(error::no_horizon::old_snapshot("snowflake_cluster_horizon"));
    }
    let entry = call.entry(0)?;
    generator_horizon::check_ascends(entry)?;
    let named = match call.count() {
        2 => call.name(1),
        _ => "".into(),
    };
    let at = match Place::of(&named)? {
        Place::Here => registry::horizon()?,
        Place::Etcd(url) => etcd_admin::horizon(url)?,
    };
    let layout = entry.describe()?.generator.layout;
    let tick = layout.tick_within(at);
    Ok(layout.range_of(tick)?.0.get())
});

// `snowflake_drop_server(server, registry)`.
c_function!(snowflake_drop_server, |call| {
    let server = call.name(0);
    match Place::of(&call.name(1))? {
        Place::Here => registry::drop_server(&server),
        Place::Etcd(url) => etcd_admin::drop_server(url, &server),
    }
});
