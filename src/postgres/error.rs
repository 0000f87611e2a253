//! Objects and statements of PostgreSQL that are not as they have to be.

use std::ffi::CStr;

use pgrx::PgSqlErrorCode::*;
use pgrx::pg_sys;

pub use crate::error::*;

pub fn no_such_relation(oid: pg_sys::Oid) -> Error {
    ERRCODE_UNDEFINED_TABLE.error(format!("relation with OID {oid} does not exist"))
}

/// `fit` has the options of ALTER SEQUENCE that make the sequence fit.
pub fn unfit_sequence(name: &str, reason: &str, fit: &str) -> Error {
    cannot_hold_mark(name)
        .detail(reason)
        .hint(format!("Its owner can run: ALTER SEQUENCE {name} {fit}"))
}

pub fn unlogged_sequence(name: &str) -> Error {
    cannot_hold_mark(name)
        .detail("It is unlogged: its mark would not survive a crash.")
        .hint(format!(
            "Its owner can run: ALTER SEQUENCE {name} SET LOGGED"
        ))
}

pub fn temporary_sequence(name: &str) -> Error {
    cannot_hold_mark(name)
        .detail("It is temporary: its mark would not survive the session.")
        .hint("Make a generator in a schema that is not temporary, with snowflake_create_generator().")
}

fn cannot_hold_mark(name: &str) -> Error {
    not_ready(format!(
        "sequence {name} cannot hold the mark of a generator"
    ))
}

pub fn no_privilege(privilege: &str, name: &str, owner: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!("permission denied for generator {name}"))
        .hint(format!(
            "Its owner, role {owner}, can run: GRANT {privilege} ON SEQUENCE {name} TO ..."
        ))
}

pub fn spi(status: i32) -> Error {
    ERRCODE_INTERNAL_ERROR.error(format!("could not run a statement: SPI status {status}"))
}

pub fn untranslatable() -> Error {
    ERRCODE_UNTRANSLATABLE_CHARACTER.error(
        "could not run a statement: a name has characters that the database's encoding lacks",
    )
}

pub fn no_query() -> Error {
    invalid("only a query that returns a row can be read")
}

pub fn no_statement() -> Error {
    invalid("only a statement that can run within a transaction can run as the owner of a table")
}

pub fn no_pairs() -> Error {
    invalid("only a query that returns rows of a bigint and a timestamptz can be read")
}

pub fn not_the_owner(relation: &str) -> Error {
    ERRCODE_INSUFFICIENT_PRIVILEGE.error(format!("must be owner of relation {relation}"))
}

pub fn foreign_schema(schema: &CStr, extension: &CStr) -> Error {
    let (schema, extension) = (schema.to_string_lossy(), extension.to_string_lossy());
    ERRCODE_INSUFFICIENT_PRIVILEGE
        .error(format!(
            "schema \"{schema}\" is not that of extension {extension}"
        ))
        .detail("It does not belong to the extension, with its tables, and to a superuser.")
        .hint("Drop the schema, and create the extension again.")
}

pub fn extension_is_kept(extension: &CStr) -> Error {
    let extension = extension.to_string_lossy();
    ERRCODE_OBJECT_IN_USE
        .error(format!("cannot drop extension {extension} now"))
        .detail("Code of a different role than the session's would drop it, in a transaction that uses the extension.")
        .hint("Drop it in a transaction of its own.")
}

pub fn extension_is_gone() -> Error {
    ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
        .error("the extension of this function was dropped or changed meanwhile")
        .hint("If the extension is still there, try again.")
}
