//! A generator's sequence stays logged: a crash would reset an unlogged one, and a standby has
//! none of its marks.

use pgrx::{PgList, pg_sys};

use crate::hooks::error::{self, Error};
use crate::postgres::catalog;
use crate::session;

/// Whether one of these commands of ALTER TABLE or ALTER SEQUENCE makes a relation unlogged.
///
/// # Safety
/// `commands` is a list from PostgreSQL's parser.
pub unsafe fn is_in(commands: *mut pg_sys::List) -> bool {
    // SAFETY: as the caller guarantees.
    unsafe {
        let commands = PgList::<pg_sys::AlterTableCmd>::from_pg(commands);
        let mut kinds = commands.iter_ptr().map(|command| (*command).subtype);
        kinds.any(|kind| kind == pg_sys::AlterTableType::AT_SetUnLogged)
    }
}

/// Refuses to make a generator unlogged, also through the table that owns it.
///
/// # Safety
/// `name` is from PostgreSQL's parser.
pub unsafe fn check(name: *mut pg_sys::RangeVar) -> Result<(), Error> {
    // SAFETY: as the caller guarantees. Without a lock: the command checks the owner and takes
    // its lock; a generator that comes to the table meanwhile is refused at its first ID.
    let relation = unsafe { catalog::find(name, pg_sys::NoLock, None) };
    let Some(relation) = relation else {
        return Ok(());
    };
    let of_table = |table| {
        // SAFETY: reads the catalogs; a list of OIDs in the memory of the command.
        let owned = unsafe { PgList::<pg_sys::Oid>::from_pg(pg_sys::getOwnedSequences(table)) };
        owned.iter_oid().collect::<Vec<_>>()
    };
    let sequences = match catalog::kind(relation) {
        pg_sys::RELKIND_SEQUENCE => vec![relation],
        _ => of_table(relation),
    };
    match sequences.into_iter().find(|it| session::is_generator(*it)) {
        Some(generator) => Err(error::stays_logged(&catalog::relation_name(generator))),
        None => Ok(()),
    }
}
