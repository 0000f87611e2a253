//! Look-ups of keys and their sequences, by OID, for [`crate::hooks::new_keys`]. Those of a relation need a
//! lock on it, which the command that has made or altered it holds.

use std::ffi::c_char;
use std::ptr::NonNull;

use pgrx::datum::FromDatum;
use pgrx::{PgList, pg_sys};

use crate::postgres::{catalog, compat, encoding};

/// A column of a table, by its number.
pub type Column = (pg_sys::Oid, i16);

/// The column that owns a sequence, by its serial type or its identity.
pub fn owned_by(sequence: pg_sys::Oid) -> Option<Column> {
    let (table, column) = catalog::owner_column(sequence)?;
    Some((table, i16::try_from(column).ok()?))
}

/// The row of a column.
pub fn attribute(table: pg_sys::Oid, column: i16) -> Option<pg_sys::FormData_pg_attribute> {
    let cache = compat::cache(pg_sys::SysCacheIdentifier::ATTNUM);
    // SAFETY: a catalog look-up, in a transaction; rows of pg_attribute are of this form, and stay
    // until they are released.
    unsafe {
        let tuple = pg_sys::SearchSysCache2(cache, table.into(), column.into());
        if tuple.is_null() {
            return None;
        }
        let row = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_attribute>();
        let row = row.read();
        pg_sys::ReleaseSysCache(tuple);
        Some(row)
    }
}

/// The columns of the primary key of a table, and its constraint.
pub fn primary_key(table: pg_sys::Oid) -> (Vec<i16>, pg_sys::Oid) {
    let mut constraint = pg_sys::InvalidOid;
    let mut columns = Vec::new();
    // SAFETY: in a transaction. A set that is NULL has no members; a member is the number of a
    // column, from the least of all on.
    unsafe {
        let set = pg_sys::get_primary_key_attnos(table, true, &raw mut constraint);
        let mut member = pg_sys::bms_next_member(set, -1);
        while member >= 0 {
            let column = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
            columns.extend(i16::try_from(column));
            member = pg_sys::bms_next_member(set, member);
        }
    }
    (columns, constraint)
}

/// An object that depends on another one.
pub struct Dependent {
    class: pg_sys::Oid,
    object: pg_sys::Oid,
    kind: u8,
}

impl Dependent {
    /// The name of the CHECK constraint that this is.
    pub fn check_constraint(&self) -> Option<String> {
        if self.class != pg_sys::ConstraintRelationId {
            return None;
        }
        let row = constraint(self.object)?;
        let name = Some(quoted(row.conname.data.as_ptr()));
        name.filter(|_| compat::byte(row.contype) == pg_sys::CONSTRAINT_CHECK)
    }
}

/// The column whose default this is.
pub fn column_of_default(default: pg_sys::Oid) -> Option<Column> {
    // SAFETY: a catalog look-up, in a transaction.
    let column = unsafe { pg_sys::GetAttrDefaultColumnAddress(default) };
    Some((column.objectId, i16::try_from(column.objectSubId).ok()?))
}

/// The columns of the primary key of the table that has a constraint.
pub fn key_beside(oid: pg_sys::Oid) -> Vec<Column> {
    let table = constraint(oid).map_or(pg_sys::InvalidOid, |row| row.conrelid);
    let columns = primary_key(table).0.into_iter();
    columns.map(|column| (table, column)).collect()
}

fn constraint(oid: pg_sys::Oid) -> Option<pg_sys::FormData_pg_constraint> {
    // SAFETY: rows of pg_constraint are of this form.
    unsafe { catalog::row(pg_sys::SysCacheIdentifier::CONSTROID, oid) }
}

/// The condition that a column of a catalog equals a value, by this function.
fn equal(column: u32, function: u32, value: pg_sys::Datum) -> pg_sys::ScanKeyData {
    let mut key = pg_sys::ScanKeyData::default();
    let column = i16::try_from(column).unwrap_or_default();
    let strategy = u16::try_from(pg_sys::BTEqualStrategyNumber).unwrap_or_default();
    // SAFETY: fills the key in.
    unsafe { pg_sys::ScanKeyInit(&raw mut key, column, strategy, function.into(), value) };
    key
}

/// What depends on an object, or on one column of it.
pub fn dependents(class: pg_sys::Oid, object: pg_sys::Oid, column: Option<i16>) -> Vec<Dependent> {
    let mut found = Vec::new();
    let lock = pg_sys::AccessShareLock.cast_signed();
    let on_object = [
        equal(
            pg_sys::Anum_pg_depend_refclassid,
            pg_sys::F_OIDEQ,
            class.into(),
        ),
        equal(
            pg_sys::Anum_pg_depend_refobjid,
            pg_sys::F_OIDEQ,
            object.into(),
        ),
    ];
    let on_column = column.map(|column| {
        let column = i32::from(column).into();
        equal(pg_sys::Anum_pg_depend_refobjsubid, pg_sys::F_INT4EQ, column)
    });
    let mut keys: Vec<_> = on_object.into_iter().chain(on_column).collect();
    let count = i32::try_from(keys.len()).unwrap_or(0);
    // SAFETY: in a transaction; there are as many keys as are counted, and rows of pg_depend are
    // of this form.
    unsafe {
        let catalog = pg_sys::table_open(pg_sys::DependRelationId, lock);
        let now = std::ptr::null_mut();
        let index = pg_sys::DependReferenceIndexId.into();
        let keys = keys.as_mut_ptr();
        let scan = pg_sys::systable_beginscan(catalog, index, true, now, count, keys);
        loop {
            let tuple = pg_sys::systable_getnext(scan);
            if tuple.is_null() {
                break;
            }
            let row = &*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_depend>();
            found.push(Dependent {
                class: row.classid,
                object: row.objid,
                kind: compat::byte(row.deptype),
            });
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, lock);
    }
    found
}

/// What uses a sequence, and is no part of a column that owns it: the columns whose defaults draw
/// from it; `None` for anything else.
pub fn users(sequence: pg_sys::Oid) -> Vec<Option<Column>> {
    let users = dependents(pg_sys::RelationRelationId, sequence, None).into_iter();
    let users = users.filter(|it| u32::from(it.kind) == pg_sys::DependencyType::DEPENDENCY_NORMAL);
    let is_default = |it: &Dependent| it.class == pg_sys::AttrDefaultRelationId;
    let column = |it: Dependent| is_default(&it).then(|| column_of_default(it.object))?;
    users.map(column).collect()
}

pub fn is_partition(table: pg_sys::Oid) -> bool {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::get_rel_relispartition(table) }
}

/// Whether a table is partitioned by ranges or lists of a column.
pub fn is_ranged_by(table: pg_sys::Oid, column: i16) -> bool {
    // SAFETY: rows of pg_partitioned_table are of this form.
    let row = unsafe { catalog::row(pg_sys::SysCacheIdentifier::PARTRELID, table) };
    let row = row
        .filter(|row: &pg_sys::FormData_pg_partitioned_table| compat::byte(row.partstrat) != b'h');
    let has_column = || {
        catalog::with_relation(table, |relation| {
            let member = i32::from(column) - pg_sys::FirstLowInvalidHeapAttributeNumber;
            let mut is_expression = false;
            // SAFETY: the relation is open, and partitioned.
            unsafe {
                let columns = pg_sys::bms_make_singleton(member);
                pg_sys::has_partition_attrs(relation, columns, &raw mut is_expression)
            }
        })
    };
    row.is_some() && has_column().unwrap_or(false)
}

/// Whether a table has space for rows, and so may have some.
pub fn has_blocks(table: pg_sys::Oid) -> bool {
    if catalog::kind(table) != pg_sys::RELKIND_RELATION {
        return false;
    }
    catalog::with_relation(table, |relation| {
        let fork = pg_sys::ForkNumber::MAIN_FORKNUM;
        // SAFETY: the relation is open, and has a file.
        unsafe { pg_sys::RelationGetNumberOfBlocksInFork(relation, fork) > 0 }
    })
    .unwrap_or(false)
}

/// The name of a column, as SQL.
pub fn column_name(table: pg_sys::Oid, column: i16) -> String {
    // SAFETY: a catalog look-up.
    quoted(unsafe { pg_sys::get_attname(table, column, true) })
}

/// The name of a schema, as SQL.
pub fn schema_name(schema: pg_sys::Oid) -> String {
    // SAFETY: a catalog look-up.
    quoted(unsafe { pg_sys::get_namespace_name(schema) })
}

/// A name of the catalogs, as SQL; `?` if there is none.
fn quoted(name: *const c_char) -> String {
    let name = NonNull::new(name.cast_mut()).and_then(|name| {
        // SAFETY: a name that is not NULL is NUL-terminated.
        unsafe { encoding::read(pg_sys::quote_identifier(name.as_ptr())) }
    });
    name.unwrap_or_else(|| String::from("?"))
}

pub fn schema_of_function(function: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a catalog look-up.
    unsafe { pg_sys::get_func_namespace(function) }
}

/// The function of an extension that issues IDs: of the default generator, or of one that is given.
pub fn issuer(extension: pg_sys::Oid, of_default: bool) -> Option<pg_sys::Oid> {
    let schema = catalog::extension_schema(extension)?;
    let arguments: &[pg_sys::Oid] = match of_default {
        true => &[],
        false => &[pg_sys::REGCLASSOID],
    };
    let cache = compat::cache(pg_sys::SysCacheIdentifier::PROCNAMEARGSNSP);
    // SAFETY: a catalog look-up, in a transaction, of a constant, NUL-terminated name; there are as
    // many arguments as are counted.
    let found = catalog::valid(unsafe {
        let count = i32::try_from(arguments.len()).unwrap_or(0);
        let arguments = pg_sys::buildoidvector(arguments.as_ptr(), count);
        let name = c"snowflake_nextval".as_ptr();
        pg_sys::GetSysCacheOid(
            cache,
            i16::try_from(pg_sys::Anum_pg_proc_oid).unwrap_or_default(),
            pg_sys::Datum::from(name),
            pg_sys::Datum::from(arguments),
            schema.into(),
            0.into(),
        )
    })?;
    // Others may have made one in this schema.
    // SAFETY: a catalog look-up, in a transaction.
    let owner = unsafe { pg_sys::getExtensionOfObject(pg_sys::ProcedureRelationId, found) };
    (owner == extension).then_some(found)
}

/// Whether a function of an extension issues IDs.
pub fn is_issuer(extension: pg_sys::Oid, function: pg_sys::Oid) -> bool {
    [true, false]
        .into_iter()
        .any(|of_default| issuer(extension, of_default) == Some(function))
}

/// The default of a column that exists, without the casts to its type; a copy, in the memory of the
/// command.
fn default_of(table: pg_sys::Oid, column: i16) -> Option<&'static pg_sys::Node> {
    // SAFETY: the relation is open. Nothing is evaluated.
    let node = catalog::with_relation(table, |relation| unsafe {
        pg_sys::strip_implicit_coercions(pg_sys::build_column_default(relation, column.into()))
    })?;
    // SAFETY: NULL, or a node.
    unsafe { node.as_ref() }
}

/// A node of this kind, if it is one.
fn node_as<T>(node: &pg_sys::Node, tag: pg_sys::NodeTag) -> Option<&T> {
    // SAFETY: a node is what its tag says.
    (node.type_ == tag).then(|| unsafe { &*std::ptr::from_ref(node).cast() })
}

/// The function that the default of a column calls.
pub fn default_function(table: pg_sys::Oid, column: i16) -> Option<pg_sys::Oid> {
    let node = default_of(table, column)?;
    node_as(node, pg_sys::NodeTag::T_FuncExpr).map(|call: &pg_sys::FuncExpr| call.funcid)
}

/// The sequence from which a column gets its numbers, by an identity or a default; no valid one if
/// the default finds it by a text.
pub fn numbers_from(table: pg_sys::Oid, column: i16) -> Option<pg_sys::Oid> {
    use pg_sys::NodeTag::{T_Const, T_FuncExpr, T_NextValueExpr};
    let node = default_of(table, column)?;
    if let Some(identity) = node_as::<pg_sys::NextValueExpr>(node, T_NextValueExpr) {
        return Some(identity.seqid);
    }
    let call: &pg_sys::FuncExpr = node_as(node, T_FuncExpr)?;
    // SAFETY: the arguments of a call are a list of nodes; a regclass is an OID.
    let given = unsafe {
        let argument = PgList::<pg_sys::Node>::from_pg(call.args).get_ptr(0);
        let argument = argument.and_then(|it| node_as::<pg_sys::Const>(&*it, T_Const));
        argument.and_then(|it| pg_sys::Oid::from_datum(it.constvalue, it.constisnull))
    };
    let is_nextval = call.funcid == pg_sys::F_NEXTVAL.into();
    is_nextval.then(|| given.unwrap_or(pg_sys::InvalidOid))
}

/// The type of a column that exists, if it is not bigint.
pub fn type_but_bigint(table: pg_sys::Oid, column: i16) -> Option<String> {
    let type_ = attribute(table, column)?.atttypid;
    // SAFETY: a catalog look-up; returns a NUL-terminated text.
    let name = || unsafe { encoding::read(pg_sys::format_type_be(type_)) };
    (type_ != pg_sys::INT8OID).then(|| name().unwrap_or_default())
}

/// The columns of a foreign key with those that they refer to; none if the constraint is another
/// one, or a copy of one for a partition.
pub fn foreign_key(oid: pg_sys::Oid) -> Vec<(Column, Column)> {
    let row = constraint(oid).filter(|row| {
        compat::byte(row.contype) == pg_sys::CONSTRAINT_FOREIGN
            && row.conparentid == pg_sys::InvalidOid
    });
    let Some(row) = row else {
        return Vec::new();
    };
    let columns = catalog::with_relation(row.conrelid, |relation| {
        // SAFETY: the relation is open; the list has nodes of this kind, with as many columns as
        // each says.
        unsafe {
            let keys = pg_sys::RelationGetFKeyList(relation);
            let keys = PgList::<pg_sys::ForeignKeyCacheInfo>::from_pg(keys);
            let mut keys = keys.iter_ptr().map(|key| &*key);
            let key = keys.find(|key| key.conoid == oid);
            key.map(|key| {
                let count = usize::try_from(key.nkeys).unwrap_or(0);
                let pairs = key.conkey.iter().zip(key.confkey.iter()).take(count);
                let place =
                    |(own, other): (&i16, &i16)| ((key.conrelid, *own), (key.confrelid, *other));
                pairs.map(place).collect()
            })
        }
    });
    columns.flatten().unwrap_or_default()
}
