//! What `snowflake_status()` needs and no view shows. The function itself is in
//! `sql/status.sql`.
//!
//! It works without preloading, on a standby, and for a role without any privilege.

use crate::postgres::{encoding::DatabaseText, time};
use crate::server::{guc, lease_error, os_clock, shmem};
use crate::sql::call::{c_function, columns};

/// As the extension's versions are written.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR")
);

// `snowflake_internal_library()`: one row. All but the first two columns are NULL without
// preloading.
c_function!(snowflake_internal_library, |call| {
    let shared = shmem::shared().ok();
    let reading = os_clock::read();
    let found = shared.map(|shared| {
        shared.with_lease(|trusted, state| {
            let jumped = reading.jumped_from(trusted.trusted_offset);
            let grown = state.shown.grown.get();
            (Some(jumped), state.shown.failure.clone(), grown)
        })
    });
    let (jumped, failure, grown) = found.unwrap_or_default();
    let limit = guc::settings().max_clock_jump;
    Ok(call.row(columns![
        DatabaseText(VERSION),
        shared.is_some(),
        shared.map(shmem::Shared::has_keeper),
        failure.as_ref().map(|it| time::to_datum(it.since)),
        failure
            .as_ref()
            .map(|it| DatabaseText(lease_error::seen_by_caller(it))),
        failure.as_ref().map(|it| it.is_unreachable),
        failure.map(|it| DatabaseText(it.remedy.get())),
        jumped.filter(|by| *by > limit).map(time::interval),
        (!grown.is_empty()).then_some(DatabaseText(grown)),
    ]))
});
