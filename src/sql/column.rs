//! What `snowflake_set_default()` needs and SQL cannot have. The function itself is in
//! `sql/set_default.sql`.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::postgres::{catalog, compat, encoding::DatabaseText, size_limit, spi, time};
use crate::server::{os_clock, shmem};
use crate::session;
use crate::session::{generator::SessionGenerator, label::ParsedLabel, mark};
use crate::sql::call::{c_function, columns};
use crate::sql::error::{self, Error};
use snowflake_core::id::{SnowflakeId, WorkerId};
use snowflake_core::label::generator::Generator;

// `snowflake_internal_next_id_range(generator, value) -> row`. It locks the generator, for
// which NULL is the default one. The IDs reach the value at the instant `reached`, or
// never, if no layout has an ID with this value.
c_function!(snowflake_internal_next_id_range, |call| {
    let default = session::default_relation()?;
    let relation = call.get(0).unwrap_or(default);
    let entry = session::of_named(relation)?;
    entry.lock_for(catalog::ANY_USE)?;
    let described = entry.learn()?.described;
    let Generator { layout, policy } = described.generator;
    if layout.takes_fields() {
        return Err(error::no_default(&entry.name(), &described.label));
    }
    let (next, sorted) = next(entry, described)?;
    let value: Option<i64> = call.get(1);
    let reached = value
        .and_then(|value| layout.decode(SnowflakeId::new(value)).ok())
        .map(|fields| layout.instant_of(fields.tick));
    // As far as snowflake_advance() can go.
    let limit = os_clock::wall().millis().plus(policy.max_advance());
    Ok(call.row(columns![
        relation,
        relation == default,
        layout.width().cast_signed(),
        next.get(),
        sorted,
        reached.map(|at| DatabaseText(time::display(at))),
        reached.is_some_and(|at| at < limit),
    ]))
});

/// The next ID, and whether all further IDs of this server are at or above it.
///
/// A generator that runs has a cursor and a clock that only grow; a wall clock ahead of
/// them would give a wrong answer. A generator that has issued nothing since the server
/// started will start at its mark or now.
fn next(entry: &SessionGenerator, described: &ParsedLabel) -> Result<(SnowflakeId, bool), Error> {
    let generator = &described.generator;
    let layout = generator.layout;
    let running = entry.running_at(generator);
    let position = match running {
        Some(position) => position,
        None => {
            let wall = os_clock::wall().millis();
            let mark = mark::stored(entry.relation(), generator)?.unwrap_or(wall);
            layout.at(0, layout.offset_of(layout.tick_within(mark.max(wall))))
        }
    };
    let worker = shmem::shared()
        .ok()
        .and_then(|shared| shared.server().generation().worker());
    let stamp = worker.and_then(|worker| layout.stamp(worker).ok());
    let tick = layout.tick_of(position);
    let range = layout.range_of(tick);
    if let Ok((least, _)) = range
        && (running.is_none() || stamp.is_none())
    {
        return Ok((least, true));
    }
    // Other IDs of this tick may be anywhere in it.
    let position = match generator.is_random() {
        true => layout.at(0, layout.offset_of(tick.next())),
        false => position,
    };
    let stamp = stamp.map_or_else(|| layout.stamp(WorkerId::NONE), Ok)?;
    Ok((layout.compose_in(position, stamp, None), range.is_ok()))
}

// `snowflake_internal_warn_if_not_ready(generator)`. Without preloading, no server
// setting can be wrong yet.
c_function!(snowflake_internal_warn_if_not_ready, |call| {
    call.entry(0)?.warn_if_not_ready()
});

// `snowflake_internal_read_as_owner(relation, query) -> text`. Under REPEATABLE READ, the
// transaction's snapshot would not show what others committed before the caller got its
// lock.
c_function!(snowflake_internal_read_as_owner, |call| {
    let relation = call.get(0).unwrap_or(pg_sys::InvalidOid);
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    // SAFETY: looks up the catalogs.
    if !unsafe { pg_sys::has_privs_of_role(compat::user(), owner) } {
        return Err(error::not_the_owner(&catalog::relation_name(relation)));
    }
    let query = call.measured(1, &size_limit::QUERY).cast_mut_ptr();
    // SAFETY: a text; the copy of it is NUL-terminated.
    let query = unsafe { CStr::from_ptr(pg_sys::text_to_cstring(query)) };
    Ok(spi::read_as(query, owner)?.map(DatabaseText))
});
