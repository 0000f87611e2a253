//! The way into schema `_snowflake`, whose tables nobody but their owner, a superuser, may
//! read or change. A function of the extension does so on behalf of a caller who may
//! execute it: it switches to the owner of the tables, for one statement at a time.
//!
//! No function of the extension is SECURITY DEFINER. The statements of such a function would
//! name tables, and names are looked up while the function runs. The owner of the database
//! may drop the extension at any moment, also between two statements, and make a schema,
//! tables and triggers of the same names. The triggers would then run with the rights of the
//! owner of the extension's tables. So a [`Guard`] comes first:
//!
//! 1. It locks table `_snowflake.state`, until the transaction ends. From here on, nobody
//!    can drop the extension, its schema or its tables.
//! 2. Then it looks at what it has locked: a table of the extension `snowflake_id`, whose
//!    owner is a superuser and owns its schema too. Only a superuser may rename such a
//!    schema, or put an object into it.
//!
//! The order matters: what was looked at before the lock may be another table since.
//! Statements run as the owner through a [`Guard`] only, and there is no other way to make
//! one.
//!
//! The session keeps the plans of these statements, over transactions and over extensions: what
//! was dropped and made again since has other OIDs, and a plan whose objects are gone is made
//! anew, by name, before it runs. As that happens under the lock, the names are those of 2.

use pgrx::pg_sys;

use super::catalog;
use super::error::{self, Error};
use super::spi::{self, SpiRow};

/// Proof that `_snowflake` is the extension's own, and stays so until the transaction ends.
#[derive(Clone, Copy)]
pub struct Guard {
    /// The superuser who owns the tables.
    owner: pg_sys::Oid,
    /// Table `_snowflake.state`.
    table: pg_sys::Oid,
}

/// What the caller is going to do with the tables.
#[derive(Clone, Copy)]
pub enum Purpose {
    Read,
    Change,
}

impl Guard {
    /// Locks the extension's schema; `None` if this database does not have the extension.
    pub fn take(purpose: Purpose) -> Result<Option<Self>, Error> {
        if !catalog::has_extension(c"snowflake_id") {
            return Ok(None);
        }
        let lock = match purpose {
            Purpose::Read => pg_sys::AccessShareLock,
            Purpose::Change => pg_sys::RowExclusiveLock,
        };
        let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
        // SAFETY: in a transaction; the names are copied to its memory, NUL-terminated.
        // The function looks the name up again until the relation that it has locked is
        // the one of that name.
        let table = unsafe {
            let (schema, name) = (c"_snowflake".as_ptr(), c"state".as_ptr());
            let range = pg_sys::makeRangeVar(pg_sys::pstrdup(schema), pg_sys::pstrdup(name), -1);
            let no_argument = std::ptr::null_mut();
            pg_sys::RangeVarGetRelidExtended(
                range,
                lock.cast_signed(),
                missing_ok,
                None,
                no_argument,
            )
        };
        let Some(table) = catalog::valid(table) else {
            return Ok(None);
        };
        let owner = catalog::owner_of(table).filter(|owner| is_ours(table, *owner));
        owner
            .map(|owner| Some(Self { owner, table }))
            .ok_or_else(error::foreign_schema)
    }

    /// The table that is locked.
    pub const fn table(self) -> pg_sys::Oid {
        self.table
    }

    /// Runs a statement as the owner of the tables, with texts as its parameters. Returns
    /// the first row.
    pub fn row(self, statement: &'static str, values: &[&str]) -> Result<Option<SpiRow>, Error> {
        spi::row_as(self.owner, statement, values)
    }

    /// Runs a statement as the owner of the tables, such as GRANT, which has no parameters: the
    /// caller quotes what it puts in.
    pub fn run(self, statement: &str) -> Result<(), Error> {
        spi::as_user(self.owner, 0, || spi::run(statement))
    }

    /// Runs such a statement. Returns the first value, if there is one that is not NULL.
    pub fn value(self, statement: &'static str, values: &[&str]) -> Result<Option<String>, Error> {
        Ok(self.row(statement, values)?.and_then(SpiRow::first))
    }
}

/// Whether a locked relation is a table of this extension, whose owner is a superuser and
/// owns its schema.
fn is_ours(table: pg_sys::Oid, owner: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups, in a transaction.
    let (extension, is_superuser) = unsafe {
        (
            pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, table),
            pg_sys::superuser_arg(owner),
        )
    };
    is_superuser
        && catalog::kind(table) == pg_sys::RELKIND_RELATION
        && catalog::valid(extension).is_some()
        && catalog::extension(c"snowflake_id") == Some(extension)
        && catalog::owner_of_schema(table) == Some(owner)
}
