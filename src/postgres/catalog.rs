//! Look-ups of sequences in the catalogs. Nothing here is kept; [`crate::session::generator`] has
//! what a session keeps.

use std::ffi::{CStr, c_char};

use pgrx::{PgList, pg_sys};

use crate::postgres::compat::{self, SequenceForm};
use crate::postgres::encoding;
use crate::postgres::error::{self, Error};

/// START, MAXVALUE and INCREMENT of a generator's sequence, so that plain `nextval()`
/// can never step from a mark to another value.
pub const STEP: i64 = i64::MAX;

/// Runs `f` with a locked relation; `None` if the relation is gone.
pub fn with_relation<T>(oid: pg_sys::Oid, f: impl FnOnce(pg_sys::Relation) -> T) -> Option<T> {
    let no_lock = pg_sys::NoLock.cast_signed();
    // SAFETY: the caller holds a lock; the relation is closed below, or by an abort.
    unsafe {
        let relation = pg_sys::try_relation_open(oid, no_lock);
        if relation.is_null() {
            return None;
        }
        let result = f(relation);
        pg_sys::relation_close(relation, no_lock);
        Some(result)
    }
}

/// Whether a relation, which the caller has locked, exists. Other look-ups keep the
/// answer "no" in PostgreSQL's memory: this one does not.
pub fn is_there(oid: pg_sys::Oid) -> bool {
    // SAFETY: in a transaction; the relation that is found is given back.
    unsafe {
        let relation = pg_sys::RelationIdGetRelation(oid);
        if relation.is_null() {
            return false;
        }
        pg_sys::RelationClose(relation);
        true
    }
}

/// The relation of a name, if there is one, checked and locked.
///
/// # Safety
/// `name` is from PostgreSQL's parser, and `check` is a check of PostgreSQL's.
pub unsafe fn find(
    name: *mut pg_sys::RangeVar,
    lock: u32,
    check: pg_sys::RangeVarGetRelidCallback,
) -> Option<pg_sys::Oid> {
    let missing_ok = pg_sys::RVROption::RVR_MISSING_OK;
    let no_argument = std::ptr::null_mut();
    // SAFETY: as the caller guarantees.
    valid(unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::RangeVarGetRelidExtended(name, lock as i32, missing_ok, check, no_argument)
    })
}

/// The kind of a relation, as pg_class has it; 0 if there is none.
pub fn kind(oid: pg_sys::Oid) -> u8 {
    // SAFETY: looks up the catalogs.
    compat::byte(unsafe { pg_sys::get_rel_relkind(oid) })
}

/// Whether a relation is permanent, unlogged or temporary, as pg_class has it.
pub fn persistence(oid: pg_sys::Oid) -> u8 {
    // SAFETY: looks up the catalogs.
    compat::byte(unsafe { pg_sys::get_rel_persistence(oid) })
}

/// The current file of a locked relation.
pub fn file(oid: pg_sys::Oid) -> Result<compat::File, Error> {
    // SAFETY: the relation is open.
    with_relation(oid, |relation| compat::file(unsafe { &*relation }))
        .ok_or_else(|| error::no_such_relation(oid))
}

/// The current number of a relation's file; 0 if it is gone. No lock is needed.
pub fn file_number(oid: pg_sys::Oid) -> u32 {
    // SAFETY: rows of pg_class are of this form.
    let row = unsafe { row(pg_sys::SysCacheIdentifier::RELOID, oid) };
    row.map_or(0, |row: pg_sys::FormData_pg_class| row.relfilenode.to_u32())
}

/// A row by its OID, if there is one.
///
/// # Safety
/// Rows of this cache are of the form `T`, and found by an OID.
pub unsafe fn row<T>(cache: pg_sys::SysCacheIdentifier::Type, oid: pg_sys::Oid) -> Option<T> {
    // SAFETY: as the caller guarantees; the row stays until it is released.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(compat::cache(cache), pg_sys::Datum::from(oid));
        if tuple.is_null() {
            return None;
        }
        let row = pg_sys::GETSTRUCT(tuple).cast::<T>().read();
        pg_sys::ReleaseSysCache(tuple);
        Some(row)
    }
}

/// Refuses a relation that cannot hold a mark. A mark is safe only in a sequence that
/// is bigint and logged and that `nextval()` cannot move. The relation is locked.
pub fn check_fits(oid: pg_sys::Oid) -> Result<(), Error> {
    match persistence(oid) {
        pg_sys::RELPERSISTENCE_PERMANENT => check_bounds(oid),
        pg_sys::RELPERSISTENCE_TEMP => Err(error::temporary_sequence(&relation_name(oid))),
        _ => Err(error::unlogged_sequence(&relation_name(oid))),
    }
}

/// The part of [`check_fits`] that looks at type and bounds.
pub fn check_bounds(oid: pg_sys::Oid) -> Result<(), Error> {
    let bad = |reason| Err(error::unfit_sequence(&relation_name(oid), reason, FIT));
    let form = sequence_form(oid)?;
    if form.seqtypid != pg_sys::INT8OID {
        return bad("Its type is not bigint.");
    }
    if form.seqincrement != STEP || form.seqstart != STEP || form.seqmax != STEP {
        return bad("Its INCREMENT, START and MAXVALUE are not all 9223372036854775807.");
    }
    if form.seqmin != 1 || form.seqcycle {
        return bad("Its MINVALUE is not 1, or it may CYCLE.");
    }
    Ok(())
}

/// Gives a sequence the type and bounds of a generator's; `restart` also takes it back
/// to its start. The relation is locked, and the user in force owns it.
///
/// The command passes by the hooks of other extensions: one that keeps its own books of
/// sequences may refuse it, or send it to other servers.
pub fn make_fit(oid: pg_sys::Oid, restart: bool) -> Result<(), Error> {
    let (name, restart) = (relation_name(oid), if restart { "RESTART" } else { "" });
    let statement = format!("ALTER SEQUENCE {name} {FIT} {restart}");
    let text = encoding::to_server_exactly(&statement).map_err(|_| error::untranslatable())?;
    // SAFETY: in a transaction. The text is one statement of this kind, so the list
    // has one element, with a node of this kind.
    unsafe {
        let parsed = PgList::<pg_sys::RawStmt>::from_pg(pg_sys::pg_parse_query(text));
        if let Some(parsed) = parsed.get_ptr(0) {
            compat::run_without_hooks((*parsed).stmt, text);
            pg_sys::CommandCounterIncrement();
        }
    }
    Ok(())
}

/// The options of ALTER SEQUENCE that give a sequence the bounds of a generator's.
pub const FIT: &str = "AS bigint INCREMENT BY 9223372036854775807 MINVALUE 1 \
                       MAXVALUE 9223372036854775807 START WITH 9223372036854775807 NO CYCLE";

/// The column that owns a sequence, by its serial type, its identity or OWNED BY: its table and
/// its number.
pub fn owner_column(oid: pg_sys::Oid) -> Option<(pg_sys::Oid, i32)> {
    let (mut table, mut column) = (pg_sys::InvalidOid, 0);
    let kinds = [
        pg_sys::DependencyType::DEPENDENCY_AUTO,
        pg_sys::DependencyType::DEPENDENCY_INTERNAL,
    ];
    let owns = |kind: &u32| {
        let kind = c_char::try_from(*kind).unwrap_or_default();
        // SAFETY: a catalog look-up.
        unsafe { pg_sys::sequenceIsOwned(oid, kind, &raw mut table, &raw mut column) }
    };
    let is_owned = kinds.iter().any(owns);
    is_owned.then_some((table, column))
}

/// The same, with its name.
pub fn owning_column(oid: pg_sys::Oid) -> Option<(pg_sys::Oid, String)> {
    let (table, column) = owner_column(oid)?;
    // SAFETY: a catalog look-up; a name that is not NULL is NUL-terminated.
    let name = unsafe { pg_sys::get_attname(table, i16::try_from(column).ok()?, true) };
    // SAFETY: the same.
    Some((table, unsafe { encoding::read(name) }?))
}

/// A name for a generator beside a relation, in its schema, quoted where needed.
pub fn name_beside(oid: pg_sys::Oid) -> Option<String> {
    // SAFETY: catalog look-ups; names that are not NULL are NUL-terminated.
    unsafe {
        let name = pg_sys::get_rel_name(oid);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(oid));
        if name.is_null() || schema.is_null() {
            return None;
        }
        let name = pg_sys::psprintf(c"%s_ids".as_ptr(), name);
        encoding::read(pg_sys::quote_qualified_identifier(schema, name))
    }
}

pub fn sequence_form(oid: pg_sys::Oid) -> Result<SequenceForm, Error> {
    // SAFETY: pg_sequence has a row of this form for every sequence.
    let form = unsafe { row(pg_sys::SysCacheIdentifier::SEQRELID, oid) };
    form.ok_or_else(|| error::no_such_relation(oid))
}

/// The role that owns a relation; `None` if the relation is gone. No lock is needed.
pub fn owner_of(oid: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: rows of pg_class are of this form.
    let row = unsafe { row(pg_sys::SysCacheIdentifier::RELOID, oid) };
    row.map(|row: pg_sys::FormData_pg_class| row.relowner)
}

/// The name of a role, or its OID if it is gone.
pub fn role_name(role: pg_sys::Oid) -> String {
    // SAFETY: returns NULL or a NUL-terminated name.
    let name = unsafe { encoding::read(pg_sys::GetUserNameFromId(role, true)) };
    name.unwrap_or_else(|| role.to_u32().to_string())
}

/// Whether there is a database with this OID.
pub fn is_database(database: u32) -> bool {
    // SAFETY: a catalog look-up, in a transaction.
    !unsafe { pg_sys::get_database_name(database.into()) }.is_null()
}

/// The privileges of roles that may take IDs of a generator, or see how far it is.
pub const ANY_USE: u32 = pg_sys::ACL_USAGE | pg_sys::ACL_SELECT | pg_sys::ACL_UPDATE;

/// Checks that the user in force has one of the privileges.
pub fn check_privilege(oid: pg_sys::Oid, any_of: u32) -> Result<(), Error> {
    if has_privilege(oid, any_of) {
        return Ok(());
    }
    if kind(oid) == 0 {
        return Err(error::no_such_relation(oid));
    }
    let needed = match any_of {
        pg_sys::ACL_UPDATE => "UPDATE",
        _ => "USAGE",
    };
    let owner = owner_of(oid).map_or_else(|| String::from("?"), role_name);
    Err(error::no_privilege(needed, &relation_name(oid), &owner))
}

/// Whether the user in force has one of the privileges on a relation that may be gone.
pub fn has_privilege(oid: pg_sys::Oid, any_of: u32) -> bool {
    has_privilege_of(oid, compat::user(), any_of)
}

/// Whether a role has one of the privileges on a relation that may be gone.
pub fn has_privilege_of(oid: pg_sys::Oid, role: pg_sys::Oid, any_of: u32) -> bool {
    // 32 bits in 15, 64 since.
    #[allow(clippy::useless_conversion)]
    let mode = pg_sys::AclMode::from(any_of);
    let mut is_missing = false;
    // SAFETY: looks up the catalogs.
    let result = unsafe { pg_sys::pg_class_aclcheck_ext(oid, role, mode, &raw mut is_missing) };
    result == pg_sys::AclResult::ACLCHECK_OK
}

/// A relation's name as a user would write it.
pub fn relation_name(oid: pg_sys::Oid) -> String {
    // SAFETY: regclassout takes an OID and returns a NUL-terminated string.
    let name = unsafe {
        let function = pg_sys::F_REGCLASSOUT.into();
        encoding::read(pg_sys::OidOutputFunctionCall(function, oid.into()))
    };
    name.unwrap_or_default()
}

/// The name of a relation with its schema, as SQL.
pub fn qualified_name(relation: pg_sys::Oid) -> String {
    // SAFETY: catalog look-ups; names that are not NULL are NUL-terminated.
    let name = unsafe {
        let name = pg_sys::get_rel_name(relation);
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(relation));
        match name.is_null() || schema.is_null() {
            true => None,
            false => encoding::read(pg_sys::quote_qualified_identifier(schema, name)),
        }
    };
    name.unwrap_or_else(|| relation.to_u32().to_string())
}

/// The default generator: the extension's own sequence `snowflake_default`.
pub fn default_relation() -> Option<pg_sys::Oid> {
    let extension = extension(c"snowflake_id")?;
    let schema = extension_schema(extension)?;
    // SAFETY: catalog look-ups with a constant name, in a transaction.
    unsafe {
        let name = c"snowflake_default".as_ptr();
        let relation = valid(pg_sys::get_relname_relid(name, schema))?;
        // In a schema where others may create objects, a sequence of the same name that
        // is not the extension's is not the default generator.
        let owner = pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, relation);
        (owner == extension).then_some(relation)
    }
}

/// The extension of this name, if this database has it.
pub fn extension(name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: a catalog look-up, in a transaction, of a NUL-terminated name.
    valid(unsafe { pg_sys::get_extension_oid(name.as_ptr(), true) })
}

/// Whether this database has an extension of this name.
pub fn has_extension(name: &CStr) -> bool {
    extension(name).is_some()
}

/// The role that owns a schema; `None` if it is gone.
pub fn owner_of_namespace(schema: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: a catalog look-up, in a transaction; rows of pg_namespace are of this form.
    let row = unsafe { row(pg_sys::SysCacheIdentifier::NAMESPACEOID, schema) };
    row.map(|row: pg_sys::FormData_pg_namespace| row.nspowner)
}

/// The schema of this extension, as SQL.
pub fn schema_of_extension() -> Option<String> {
    let schema = extension_schema(extension(c"snowflake_id")?)?;
    // SAFETY: catalog look-ups, in a transaction; the name of a schema that exists, and
    // its quoted form, are NUL-terminated.
    unsafe {
        let name = std::ptr::NonNull::new(pg_sys::get_namespace_name(schema))?;
        encoding::read(pg_sys::quote_identifier(name.as_ptr()))
    }
}

pub fn valid(oid: pg_sys::Oid) -> Option<pg_sys::Oid> {
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// The schema of an extension; `get_extension_schema` is not exported before 16.
pub fn extension_schema(extension: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: in a transaction. The catalog is open while the row is copied.
    unsafe {
        let lock = pg_sys::AccessShareLock.cast_signed();
        let catalog = pg_sys::table_open(pg_sys::ExtensionRelationId, lock);
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        let key = pg_sys::Anum_pg_extension_oid as i16;
        let tuple = pg_sys::get_catalog_object_by_oid(catalog, key, extension);
        pg_sys::table_close(catalog, lock);
        (!tuple.is_null()).then(|| {
            let row = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_extension>();
            (*row).extnamespace
        })
    }
}
