//! A sequence that looks like a generator's and has no label gets the one that it has on the
//! coordinator of a cluster: software that copies sequences to the nodes, as Citus does, does not
//! know labels. sql/citus.sql knows what they are.

use pgrx::pg_sys;

use crate::hooks::error::Error;
use crate::postgres::own_tables::{Guard, Purpose};
use crate::postgres::{catalog, spi};
use crate::session;

/// Gives a sequence the label of a generator that it has elsewhere, if it looks like one
/// that came without. This server may be a node of a cluster whose manager copies
/// sequences, but no labels: SQL knows.
///
/// # Safety
/// `name` is from PostgreSQL's parser.
pub unsafe fn label(name: *mut pg_sys::RangeVar) -> Result<(), Error> {
    // SAFETY: reads shared memory and a variable of this process; the name is valid.
    let relation = unsafe {
        if pg_sys::RecoveryInProgress()
            || pg_sys::IsBinaryUpgrade
            || !session::is_extension_here()
            || !catalog::has_extension(c"citus")
        {
            return Ok(());
        }
        pg_sys::CommandCounterIncrement();
        catalog::find(name, pg_sys::NoLock, None)
    };
    let Some(relation) = relation else {
        return Ok(());
    };
    if catalog::kind(relation) != pg_sys::RELKIND_SEQUENCE
        || catalog::sequence_form(relation)?.seqincrement != catalog::STEP
        || session::is_generator(relation)
    {
        return Ok(());
    }
    // The function is run as the user in force: it must be the extension's.
    if Guard::take(Purpose::Read)?.is_none() {
        return Ok(());
    }
    let oid = relation.to_u32().to_string();
    spi::value(
        "SELECT _snowflake.adopt_label($1::pg_catalog.oid::pg_catalog.regclass)",
        &[&oid],
    )
    .map(drop)
}
