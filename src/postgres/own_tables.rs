//! Keeps the extension while something looks its names up, and is the way into the tables of
//! schema `_snowflake`.
//!
//! Names are looked up while SQL runs: those in PL/pgSQL, and those in the statements of this
//! library. The owner of the database may drop the extension at any moment, also between two
//! statements, and make a schema, functions, tables and triggers of the same names: they would run
//! with the rights of whoever calls the next one. So a guard comes first, and it looks nothing up
//! by a name that others can have made:
//!
//! 1. It finds the extension: the one to which a function belongs, by its OID, or the one that
//!    is called snowflake_id, a name that only its script can give.
//! 2. It locks the extension, an object in itself. Each command that drops it (DROP EXTENSION, a
//!    schema or a role with CASCADE, DROP OWNED) takes a lock against this one before it deletes
//!    anything, and `ALTER EXTENSION ... DROP` is for the owners of its objects, superusers.
//! 3. Then it looks at what it has locked: the function is still the extension's, and so are the
//!    schemas, which a superuser owns. Only a superuser may rename such a schema, or put an object
//!    into it.
//!
//! The order matters: what was looked at before the lock may be another object since.
//!
//! A lock is against other sessions. What the call runs as the owner of a table, in a condition or in an
//! expression, runs in this one, and the owner may drop the extension there, too. So while this
//! session has the lock, code of another role than the session's drops no extension of ours:
//! [`check_drop`].
//!
//! The lock lasts until the transaction ends; for a procedure that commits, for its whole call. A
//! standby replays only locks of relations: there, the guard locks a table of each schema
//! too, so that the replay of a drop waits for the transaction, or cancels it.
//!
//! Nobody but their owner, a superuser, may read or change the tables of `_snowflake`. A function
//! of the extension does so on behalf of a caller who may execute it: it switches to the owner of
//! the tables, for one statement at a time. No function of the extension is SECURITY DEFINER.
//! Statements run as the owner through a [`Guard`] only, and there is no other way to make one.
//!
//! The session keeps the plans of these statements, over transactions and over extensions: what
//! was dropped and made again since has other OIDs, and a plan whose objects are gone is made
//! anew, by name, before it runs. As that happens under the lock, the names are those of 3.

use std::ffi::CStr;

use pgrx::pg_sys;

use crate::postgres::error::{self, Error};
use crate::postgres::spi::{self, SpiRow};
use crate::postgres::{catalog, compat};

/// The extensions, each with its schema and a table in it.
const EXTENSIONS: [(&CStr, &CStr, &CStr); 2] = [
    (c"snowflake_id", c"_snowflake", c"state"),
    (
        c"snowflake_id_convert",
        c"_snowflake_convert",
        c"conversions",
    ),
];

/// Until when an extension is kept.
#[derive(Clone, Copy)]
pub enum Until {
    EndOfTransaction,
    /// Over transactions; an abort gives it back too. [`HeldExtension::give_back`] ends it.
    GivenBack,
}

/// An extension that nobody can drop.
pub struct HeldExtension {
    tag: pg_sys::LOCKTAG,
    /// The schema of its internal functions.
    pub schema: &'static CStr,
}

impl HeldExtension {
    /// Ends what lasts over transactions.
    pub fn give_back(mut self) {
        // SAFETY: the session has this lock, unless its transaction was aborted.
        unsafe { pg_sys::LockRelease(&raw mut self.tag, LOCK, true) };
    }
}

const LOCK: i32 = pg_sys::AccessShareLock.cast_signed();

/// Keeps the extension to which a function belongs.
pub fn hold(function: pg_sys::Oid, until: Until) -> Result<HeldExtension, Error> {
    let extension = extension_of(pg_sys::ProcedureRelationId, function);
    let extension = extension.ok_or_else(error::extension_is_gone)?;
    let tag = lock(extension, until);
    if extension_of(pg_sys::ProcedureRelationId, function) != Some(extension) {
        return Err(error::extension_is_gone());
    }
    let known = |(name, ..): &(&CStr, &CStr, &CStr)| catalog::extension(name) == Some(extension);
    let place = EXTENSIONS.iter().position(known);
    let place = place.ok_or_else(error::extension_is_gone)?;
    // The functions of the second one call those of the first, which cannot be dropped without it.
    let used = EXTENSIONS.get(..=place).unwrap_or_default();
    for (name, schema, table) in used {
        check_schema(name, schema)?;
        // SAFETY: reads shared memory.
        if unsafe { pg_sys::RecoveryInProgress() } {
            let table = lock_table(schema, table, pg_sys::AccessShareLock);
            let table = table.ok_or_else(error::extension_is_gone)?;
            if extension_of(pg_sys::RelationRelationId, table) != catalog::extension(name) {
                return Err(error::extension_is_gone());
            }
        }
    }
    let (.., schema, _) = used.last().ok_or_else(error::extension_is_gone)?;
    Ok(HeldExtension { tag, schema })
}

/// Keeps the extension until the transaction ends; `None` if this database does not have it.
pub fn keep() -> Result<Option<pg_sys::Oid>, Error> {
    let [(name, schema, _), _] = EXTENSIONS;
    let Some(extension) = catalog::extension(name) else {
        return Ok(None);
    };
    lock(extension, Until::EndOfTransaction);
    if catalog::extension(name) != Some(extension) {
        return Ok(None);
    }
    check_schema(name, schema)?;
    Ok(Some(extension))
}

/// The extension to which an object belongs.
fn extension_of(class: pg_sys::Oid, object: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: a catalog look-up, in a transaction.
    catalog::valid(unsafe { pg_sys::getExtensionOfObject(class, object) })
}

/// The lock on an extension, as its object.
fn tag_of(extension: pg_sys::Oid) -> pg_sys::LOCKTAG {
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId };
    // What says the type has one byte.
    #[allow(clippy::cast_possible_truncation)]
    pg_sys::LOCKTAG {
        locktag_field1: database.to_u32(),
        locktag_field2: pg_sys::ExtensionRelationId.to_u32(),
        locktag_field3: extension.to_u32(),
        locktag_field4: 0,
        locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
        locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
    }
}

/// Locks an extension for the transaction, or for the session.
fn lock(extension: pg_sys::Oid, until: Until) -> pg_sys::LOCKTAG {
    let mut tag = tag_of(extension);
    let is_session = matches!(until, Until::GivenBack);
    // SAFETY: in a transaction; the tag is copied. What has changed until the lock was there is
    // read before the next look-up.
    unsafe {
        pg_sys::LockAcquire(&raw mut tag, LOCK, is_session, false);
        pg_sys::AcceptInvalidationMessages();
    }
    tag
}

/// Refuses to drop an extension that this session keeps, if code of another role does that: a
/// SECURITY DEFINER function, or what runs in a restricted operation.
pub fn check_drop(extension: pg_sys::Oid) -> Result<(), Error> {
    // SAFETY: variables of this process.
    let is_of_other =
        unsafe { pg_sys::InLocalUserIdChange() || pg_sys::InSecurityRestrictedOperation() };
    let name = || EXTENSIONS.into_iter().map(|(name, ..)| name);
    let ours = || name().find(|name| catalog::extension(name) == Some(extension));
    match is_of_other && is_kept(extension) {
        true => ours().map_or(Ok(()), |name| Err(error::extension_is_kept(name))),
        false => Ok(()),
    }
}

/// Whether this session has the lock.
fn is_kept(extension: pg_sys::Oid) -> bool {
    compat::has_lock(&tag_of(extension), LOCK)
}

/// Refuses a schema that is not that of the extension, or is not a superuser's.
fn check_schema(extension: &CStr, schema: &CStr) -> Result<(), Error> {
    // SAFETY: a catalog look-up, in a transaction, of a NUL-terminated name.
    let found = catalog::valid(unsafe { pg_sys::get_namespace_oid(schema.as_ptr(), true) });
    let is_ours = |schema: pg_sys::Oid| {
        let owner = catalog::owner_of_namespace(schema);
        extension_of(pg_sys::NamespaceRelationId, schema) == catalog::extension(extension)
            // SAFETY: a catalog look-up, in a transaction.
            && owner.is_some_and(|owner| unsafe { pg_sys::superuser_arg(owner) })
    };
    match found.is_some_and(is_ours) {
        true => Ok(()),
        false => Err(error::foreign_schema(schema, extension)),
    }
}

/// Locks a table by its name; `None` if there is none. The name is looked up again until the
/// relation that is locked is the one of that name.
fn lock_table(schema: &CStr, table: &CStr, mode: u32) -> Option<pg_sys::Oid> {
    // SAFETY: in a transaction; the names are copied to its memory, NUL-terminated.
    unsafe {
        let (schema, table) = (schema.as_ptr(), table.as_ptr());
        let range = pg_sys::makeRangeVar(pg_sys::pstrdup(schema), pg_sys::pstrdup(table), -1);
        catalog::find(range, mode, None)
    }
}

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
    /// Keeps the extension; `None` if this database does not have it.
    pub fn take(purpose: Purpose) -> Result<Option<Self>, Error> {
        let Some(extension) = keep()? else {
            return Ok(None);
        };
        let [(name, schema, table), _] = EXTENSIONS;
        let mode = match purpose {
            Purpose::Read => pg_sys::AccessShareLock,
            Purpose::Change => pg_sys::RowExclusiveLock,
        };
        let table = lock_table(schema, table, mode);
        let ours = table.filter(|table| {
            extension_of(pg_sys::RelationRelationId, *table) == Some(extension)
                && catalog::kind(*table) == pg_sys::RELKIND_RELATION
        });
        let guard = ours.and_then(|table| {
            let owner = catalog::owner_of(table)?;
            // SAFETY: a catalog look-up, in a transaction.
            unsafe { pg_sys::superuser_arg(owner) }.then_some(Self { owner, table })
        });
        guard
            .map(Some)
            .ok_or_else(|| error::foreign_schema(schema, name))
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
