//! What `snowflake_convert()` needs and SQL cannot have. The functions that call these are
//! in `convert/`, which is an extension of its own, with these functions; `sql/partition.sql`
//! calls the first of them.
//!
//! Statements about a table can run code of its owner: conditions of constraints, functions
//! in expressions of indexes, even while a query is planned. So they run as the owner, as
//! REINDEX does.

use std::ffi::{CStr, c_char, c_void};

use pgrx::{IntoDatum, PgBox, PgList, pg_sys};

use crate::postgres::{catalog, compat, size_limit, spi};
use crate::sql::call::{Call, c_function};
use crate::sql::error::{self, Error};

// `snowflake_internal_run_as_owner(relation, statement) -> bigint`. A caller who owns the
// table runs the statement as usual: also deferred triggers, which a restricted operation
// forbids.
c_function!(snowflake_internal_run_as_owner, |call| {
    spi::run_as_owner(owner_of(call)?, text(call))
});

// `snowflake_internal_rows_as_owner(relation, query) -> SETOF (key bigint, at timestamptz)`.
// Reads as of now, as `snowflake_internal_read_as_owner` does.
c_function!(snowflake_internal_rows_as_owner, |call| {
    let owner = owner_of(call)?;
    let query = text(call);
    let relation = call.get(0).unwrap_or(pg_sys::InvalidOid);
    spi::pairs_as(query, owner, relation, call.store())
});

// `snowflake_internal_index_expression(index, place, names) -> text`. PostgreSQL writes the
// expression as for an alias of the table with these names of columns, which come from the
// numbers of the columns and not from a text. Who calls this sees what pg_get_indexdef()
// shows to everybody.
c_function!(snowflake_internal_index_expression, |call| {
    let index = call.get(0).unwrap_or(pg_sys::InvalidOid);
    let place: i32 = call.get(1).unwrap_or_default();
    let names = names(call.measured(2, &size_limit::NAMES));
    // SAFETY: looks up the catalogs; the tuple is given back. pg_index has the table in
    // `indrelid`, and expressions as PostgreSQL has written them.
    unsafe {
        let cache = compat::cache(pg_sys::SysCacheIdentifier::INDEXRELID);
        let tuple = pg_sys::SearchSysCache1(cache, index.into());
        if tuple.is_null() {
            return Ok(None);
        }
        let column = match place {
            0 => pg_sys::Anum_pg_index_indpred,
            _ => pg_sys::Anum_pg_index_indexprs,
        };
        let mut is_null = false;
        let number = i16::try_from(column).unwrap_or_default();
        let stored = pg_sys::SysCacheGetAttr(cache, tuple, number, &raw mut is_null);
        let relation = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_index>()).indrelid;
        let node = (!is_null).then(|| {
            let stored = pg_sys::text_to_cstring(stored.cast_mut_ptr());
            pg_sys::stringToNode(stored).cast::<pg_sys::Node>()
        });
        pg_sys::ReleaseSysCache(tuple);
        let node = node.and_then(|node| match usize::try_from(place) {
            Ok(0) => Some(node),
            Ok(place) => PgList::<pg_sys::Node>::from_pg(node.cast()).get_ptr(place - 1),
            Err(_) => None,
        });
        Ok(node.map(|node| WrittenQuery(written(node, relation, names))))
    }
});

/// An expression as SQL, with `names` for the names of the columns of `relation`.
///
/// # Safety
/// The expression has no columns but those of the relation, as the first of its tables;
/// `names` is a list of strings.
unsafe fn written(
    node: *mut pg_sys::Node,
    relation: pg_sys::Oid,
    names: *mut pg_sys::List,
) -> *mut c_char {
    // SAFETY: as the caller guarantees. The context is that of a plan with one table.
    unsafe {
        let alias = pg_sys::makeAlias(c"t".as_ptr(), names);
        let mut entry =
            PgBox::<pg_sys::RangeTblEntry>::alloc_node(pg_sys::NodeTag::T_RangeTblEntry);
        entry.rtekind = pg_sys::RTEKind::RTE_RELATION;
        entry.relid = relation;
        entry.relkind = pg_sys::get_rel_relkind(relation);
        entry.rellockmode = pg_sys::AccessShareLock.cast_signed();
        entry.alias = alias;
        entry.eref = alias;
        entry.inFromCl = true;
        let mut plan = PgBox::<pg_sys::PlannedStmt>::alloc_node(pg_sys::NodeTag::T_PlannedStmt);
        let mut tables = PgList::<pg_sys::RangeTblEntry>::new();
        tables.push(entry.into_pg());
        plan.rtable = tables.into_pg();
        let mut aliases = PgList::<c_char>::new();
        aliases.push(c"t".as_ptr().cast_mut());
        let context = pg_sys::deparse_context_for_plan_tree(plan.into_pg(), aliases.into_pg());
        pg_sys::deparse_expression(node, context, false, false)
    }
}

/// A text in the database's encoding.
struct WrittenQuery(*mut c_char);

impl IntoDatum for WrittenQuery {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        // SAFETY: made by `written`, and NUL-terminated.
        Some(unsafe { pg_sys::cstring_to_text(self.0) }.into())
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::TEXTOID
    }
}

/// The elements of an array of names as a list of strings.
fn names(array: pg_sys::Datum) -> *mut pg_sys::List {
    let (mut values, mut nulls, mut count) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
    let length = i32::try_from(pg_sys::NAMEDATALEN).unwrap_or_default();
    // SAFETY: declared as name[]; a name has NAMEDATALEN bytes and is NUL-terminated, so
    // that the copies are.
    unsafe {
        let array = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        pg_sys::deconstruct_array(
            array,
            pg_sys::NAMEOID,
            length,
            false,
            compat::character(pg_sys::TYPALIGN_CHAR),
            &raw mut values,
            &raw mut nulls,
            &raw mut count,
        );
        let mut list = PgList::<c_void>::new();
        let count = usize::try_from(count).unwrap_or(0);
        for index in 0..count {
            let name = match *nulls.add(index) {
                true => c"".as_ptr(),
                false => (*values.add(index)).cast_mut_ptr::<c_char>().cast_const(),
            };
            list.push(pg_sys::makeString(pg_sys::pstrdup(name)).cast());
        }
        list.into_pg()
    }
}

/// The owner of the table that the first argument names, whose rights the caller must have.
fn owner_of(call: &Call) -> Result<pg_sys::Oid, Error> {
    let relation = call.get(0).unwrap_or(pg_sys::InvalidOid);
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    // SAFETY: looks up the catalogs.
    match unsafe { pg_sys::has_privs_of_role(compat::user(), owner) } {
        true => Ok(owner),
        false => Err(error::not_the_owner(&catalog::relation_name(relation))),
    }
}

/// The second argument, as a text that ends with NUL.
fn text(call: &Call) -> &CStr {
    // SAFETY: declared as text; the copy is NUL-terminated, and lives as long as the call.
    unsafe {
        let text = pg_sys::text_to_cstring(call.measured(1, &size_limit::QUERY).cast_mut_ptr());
        CStr::from_ptr(text)
    }
}
