//! `snowflake_set_default()`: makes a generator the default of a key column.
//!
//! In this order, all in the caller's transaction and with at most the caller's
//! rights:
//!
//! 1. is this a table, whole and the caller's? Before any lock, so that
//!    strangers cannot take one; and again under it;
//! 2. lock it with all its descendants, as ALTER TABLE would: nobody inserts
//!    until the transaction ends, and names stay what they are, but for those of
//!    schemas, which nothing locks; step 5 would find out;
//! 3. find the column and refuse what cannot be;
//! 4. refuse existing values at or above the IDs to come, which are read as the
//!    table's owner: what is attached to the table is the owner's code;
//! 5. ALTER TABLE, which reaches all descendants, and read back what is there.
//!
//! The function's `search_path` has no schema in which others may create, so
//! unqualified names and operators below are PostgreSQL's own. Names of users'
//! objects are qualified and quoted. The price: so is that of event triggers
//! that fire on our ALTER TABLE, which need a `search_path` of their own.

use std::ffi::CStr;

use pgrx::spi::quote_literal;
use pgrx::{pg_guard, pg_sys};

use super::super::entry::{self, Entry};
use super::super::error::{self, Error, column as refuse};
use super::super::label::Described;
use super::super::spi::{self, Row};
use super::super::{mark, notice, os_clock, shmem};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{SnowflakeId, WorkerId};
use crate::snowflake::policy::SequenceStart;

// Written without #[pg_extern], which knows no type for `name`.

/// The V1 calling convention.
#[unsafe(no_mangle)]
pub extern "C" fn pg_finfo_snowflake_set_default() -> &'static pg_sys::Pg_finfo_record {
    const V1: pg_sys::Pg_finfo_record = pg_sys::Pg_finfo_record { api_version: 1 };
    &V1
}

/// `snowflake_set_default(relation, column_name, generator, drop_sequence) -> text`.
///
/// # Safety
/// Called by PostgreSQL with the four arguments that its declaration says.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_set_default(
    fcinfo: pg_sys::FunctionCallInfo,
) -> pg_sys::Datum {
    // SAFETY: the caller's; a name is NUL-terminated.
    let (relation, column, generator, drop_sequence) = unsafe {
        (
            pgrx::pg_getarg::<pg_sys::Oid>(fcinfo, 0),
            pgrx::pg_getarg::<&CStr>(fcinfo, 1).map(spi::from_server),
            pgrx::pg_getarg::<pg_sys::Oid>(fcinfo, 2),
            pgrx::pg_getarg::<bool>(fcinfo, 3).unwrap_or(false),
        )
    };
    match set_default(relation, column.as_deref(), generator, drop_sequence) {
        // SAFETY: a NUL-terminated string, copied.
        Ok(done) => unsafe { pg_sys::Datum::from(pg_sys::cstring_to_text(spi::to_server(&done))) },
        Err(error) => error.raise(),
    }
}

fn set_default(
    relation: Option<pg_sys::Oid>,
    column: Option<&str>,
    generator: Option<pg_sys::Oid>,
    drop_sequence: bool,
) -> Result<String, Error> {
    let relation = relation.ok_or_else(refuse::null_table)?;
    entry::prevent_where_nextval_is(c"snowflake_set_default()");
    Table::find(relation, column)?;
    let generator = Source::find(generator)?;
    let table = lock(relation, column)?;
    let column = Column::find(&table, column)?;
    let before = column.family(&generator)?;
    let sequences = column.sequences(&generator)?;

    let mut done = Vec::new();
    if before.iter().all(|member| member.is_set) {
        done.push(format!(
            "{}: default is {} already",
            column.name, generator.expression
        ));
    } else {
        let next = generator.next()?;
        let greatest = column.check_values(&generator, &next)?;
        column.check_domain(&generator, next.id)?;
        column.check_partitions(&generator, next.id)?;
        column.alter(&generator)?;
        done.push(column.changed(&generator, &before)?);
        done.push(match greatest {
            Some(value) => format!("greatest value so far {value}"),
            None => "no values so far".to_string(),
        });
        generator.notice_missing_usage(&table);
        generator.warn_if_it_issues_nothing();
        column.notice_foreign_keys()?;
    }
    for sequence in &sequences {
        // Whoever else uses it stops the drop, with an error that says who.
        let fate = if sequence.of_identity {
            "dropped with the identity"
        } else if drop_sequence {
            spi::run(&format!("DROP SEQUENCE {}", sequence.statement))?;
            "dropped"
        } else {
            "kept"
        };
        done.push(format!("sequence {} {fate}", sequence.name));
    }
    if drop_sequence && sequences.is_empty() {
        done.push("no sequence is owned by the column".to_string());
    }
    Ok(done.join("; "))
}

/// How to show a relation, and how to name it in a statement: they differ for
/// temporary tables, whose schema has a number.
const NAMES: &str =
    "CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END
        || '.' || quote_ident(c.relname) AS name,
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS statement";

/// Where these come from.
const RELATIONS: &str = "pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace";

/// The first of them, of an OID; empty if it is gone.
fn name_of(oid: &str) -> Result<String, Error> {
    let row = spi::read_one(&format!(
        "SELECT {NAMES} FROM {RELATIONS} WHERE c.oid = {oid}"
    ))?;
    Ok(row.map_or_else(String::new, |row| row.text("name")))
}

struct Table {
    oid: pg_sys::Oid,
    name: String,
    statement: String,
    owner: pg_sys::Oid,
    owner_name: String,
}

impl Table {
    /// Looks at a relation and refuses it if it is no table, a part of one, or
    /// not the caller's. The column is for the hint.
    fn find(relation: pg_sys::Oid, column: Option<&str>) -> Result<Self, Error> {
        let row = spi::read_one(&format!(
            "SELECT {NAMES}, c.relkind AS kind, c.relispartition AS is_partition,
                    c.relowner AS owner, quote_ident(pg_get_userbyid(c.relowner)) AS owner_name,
                    pg_has_role(c.relowner, 'USAGE') AS is_mine,
                    c.relpersistence = 't' AND n.oid <> pg_my_temp_schema() AS is_elsewhere
             FROM {RELATIONS} WHERE c.oid = {relation}"
        ))?
        .ok_or_else(|| error::no_such_relation(relation))?;
        let table = Self {
            oid: relation,
            name: row.text("name"),
            statement: row.text("statement"),
            owner: row.oid("owner"),
            owner_name: row.text("owner_name"),
        };
        match row.get("kind") {
            Some("r" | "p") => {}
            Some("v") => return Err(refuse::view(&table.name)),
            Some("f") => return Err(refuse::foreign(&table.name)),
            _ => return Err(refuse::no_table(&table.name)),
        }
        // SAFETY: compares numbers.
        if unsafe { pg_sys::IsCatalogRelationOid(relation) } {
            return Err(refuse::system_catalog(&table.name));
        }
        if !row.is("is_mine") {
            return Err(refuse::not_owner(&table.name, &table.owner_name));
        }
        if row.is("is_elsewhere") {
            return Err(refuse::other_session(&table.name));
        }
        if row.is("is_partition") {
            let root = name_of(&format!("pg_partition_root({relation})"))?;
            return Err(refuse::partition(&table.name, &root, column));
        }
        Ok(table)
    }

    /// A column, as stored, in the words of an error.
    fn column(&self, stored: &str) -> String {
        format!("column \"{stored}\" of table {}", self.name)
    }
}

/// Locks a table with all its descendants, as ALTER TABLE would.
fn lock(relation: pg_sys::Oid, column: Option<&str>) -> Result<Table, Error> {
    // SAFETY: in a transaction, which keeps the lock.
    unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::LockRelationOid(relation, pg_sys::AccessExclusiveLock as i32);
    }
    // It may have been dropped, renamed or given away while we waited.
    let table = Table::find(relation, column)?;
    spi::run(&format!(
        "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE",
        table.statement
    ))?;
    Ok(table)
}

/// Where IDs shall come from.
struct Source {
    entry: &'static Entry,
    described: &'static Described,
    name: String,
    /// The function that the default calls.
    function: pg_sys::Oid,
    /// The default, as PostgreSQL shows it where nothing is in the search path.
    expression: String,
}

impl Source {
    fn find(generator: Option<pg_sys::Oid>) -> Result<Self, Error> {
        let default = entry::default_relation()?;
        let relation = generator.unwrap_or(default);
        let entry = entry::of_sequence(relation);
        entry.lock();
        let described = entry.learn()?.described;
        let is_default = relation == default;
        let name = name_of(&relation.to_string())?;
        // The extension's own function, wherever it was moved to. In pg_catalog,
        // PostgreSQL shows no schema.
        let arguments = if is_default {
            "p.pronargs = 0"
        } else {
            "p.pronargs = 1 AND p.proargtypes[0] = 'regclass'::regtype"
        };
        let function = spi::read_one(&format!(
            "SELECT p.oid AS function,
                    CASE WHEN n.nspname = 'pg_catalog' THEN '' ELSE quote_ident(n.nspname) || '.' END
                    || 'snowflake_nextval' AS name
             FROM pg_extension AS e
             JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass
                 AND d.refobjid = e.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
             JOIN pg_proc AS p ON p.oid = d.objid
             JOIN pg_namespace AS n ON n.oid = p.pronamespace
             WHERE e.extname = 'snowflake_id' AND p.proname = 'snowflake_nextval' AND {arguments}"
        ))?
        .ok_or_else(refuse::no_nextval_function)?;
        let argument = if is_default {
            String::new()
        } else {
            format!("{}::regclass", quote_literal(&name))
        };
        Ok(Self {
            entry,
            described,
            name,
            function: function.oid("function"),
            expression: format!("{}({argument})", function.text("name")),
        })
    }

    /// The next ID.
    ///
    /// A generator that runs has a word and a clock that only grow; the wall
    /// clock would be wrong where it is ahead of them. One that has not started
    /// since the server did will start at its mark or now.
    fn next(&self) -> Result<Next, Error> {
        let generator = &self.described.generator;
        let layout = generator.layout;
        let (position, runs) = match self.entry.running_at(generator) {
            Some(position) => (position, true),
            None => {
                let wall = os_clock::read().wall.millis();
                let start =
                    mark::stored(self.entry, generator)?.map_or(wall, |mark| mark.max(wall));
                (
                    layout.at(0, layout.place_of(layout.tick_within(start))),
                    false,
                )
            }
        };
        let worker = shmem::shared().ok().and_then(|shared| shared.worker_id());
        let stamp = worker.and_then(|worker| layout.stamp(worker).ok());
        let tick = layout.tick_of(position);
        let range = layout.range_of(tick);
        // What else comes in this tick may be anywhere in it.
        let position = match generator.policy.sequence_start {
            SequenceStart::Random => layout.at(0, layout.place_of(tick.next())),
            _ => position,
        };
        Ok(Next {
            id: match (&range, stamp) {
                (Ok((least, _)), stamp) if !runs || stamp.is_none() => *least,
                (_, Some(stamp)) => layout.compose_in(position, stamp, None),
                (_, None) => layout.compose_in(position, layout.stamp(WorkerId::NONE)?, None),
            },
            sorts: range.is_ok(),
        })
    }

    /// A table may be set up before its server is, but somebody should know.
    fn warn_if_it_issues_nothing(&self) {
        if let Ok(shared) = shmem::shared()
            && let Err(error) = self.entry.check_can_issue(self.described, shared)
        {
            error.warning();
        }
    }

    /// Inserting needs USAGE, setting a default does not: a table may be set up
    /// before its users are. But its owner, at least, is expected to insert.
    fn notice_missing_usage(&self, table: &Table) {
        let usage = spi::read_one(&format!(
            "SELECT has_sequence_privilege({}::oid, {}::oid, 'USAGE, UPDATE') AS is_there",
            table.owner,
            self.entry.relation()
        ));
        if let Ok(Some(row)) = usage
            && !row.is("is_there")
        {
            notice::owner_lacks_usage(&table.name, &table.owner_name, &self.name).notice();
        }
    }
}

/// What a generator will issue next.
struct Next {
    id: SnowflakeId,
    /// No further ID of this server is less.
    sorts: bool,
}

/// A column that can have the default.
struct Column<'a> {
    table: &'a Table,
    number: i64,
    /// As stored.
    stored: String,
    /// As in a statement.
    identifier: String,
    /// With its table.
    name: String,
    /// The type, and how it was declared, if it is a domain.
    domain: Option<(pg_sys::Oid, String)>,
    identity: bool,
}

impl<'a> Column<'a> {
    fn find(table: &'a Table, named: Option<&str>) -> Result<Self, Error> {
        let stored = match named {
            Some(name) => name.to_string(),
            None => Self::of_primary_key(table)?,
        };
        let found = spi::read_one(&format!(
            "SELECT attnum AS number, quote_ident(attname) AS identifier, atttypid AS type,
                    format_type(atttypid, atttypmod) AS declared,
                    attidentity AS identity, attgenerated AS generated
             FROM pg_attribute
             WHERE attrelid = {} AND attname = {} AND NOT attisdropped",
            table.oid,
            quote_literal(&stored)
        ))?;
        let named = table.column(&stored);
        let Some(row) = found else {
            return Err(refuse::missing(&named));
        };
        let identifier = row.text("identifier");
        let number = row.number("number").unwrap_or(0);
        if number < 1 {
            return Err(refuse::system_column(&named));
        }
        let alter = format!("ALTER TABLE {} ALTER COLUMN {identifier}", table.name);
        let generated = row.text("generated");
        if !generated.is_empty() {
            let alter = (generated == "s").then_some(alter.as_str());
            return Err(refuse::generated(&named, alter));
        }
        let (of_type, declared) = (row.oid("type"), row.text("declared"));
        // SAFETY: a type that a column has.
        let base = unsafe { pg_sys::getBaseType(of_type) };
        if base != pg_sys::INT8OID {
            let widens = [pg_sys::INT4OID, pg_sys::INT2OID].contains(&of_type);
            let alter = widens.then_some(alter.as_str());
            return Err(refuse::wrong_type(&named, &declared, alter));
        }
        Ok(Self {
            table,
            number,
            name: format!("{}.{identifier}", table.name),
            identifier,
            // A domain holds IDs unless it refuses them, which is tried.
            domain: (of_type != base).then_some((of_type, declared)),
            identity: !row.text("identity").is_empty(),
            stored,
        })
    }

    /// The one column of the primary key.
    fn of_primary_key(table: &Table) -> Result<String, Error> {
        let keys = spi::read(&format!(
            "SELECT a.attname AS stored, a.atttypid AS type,
                    quote_ident(a.attname) || ' ' || format_type(a.atttypid, a.atttypmod) AS declared
             FROM pg_constraint AS k
             CROSS JOIN unnest(k.conkey) WITH ORDINALITY AS u (number, place)
             JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number
             WHERE k.conrelid = {} AND k.contype = 'p' ORDER BY u.place",
            table.oid
        ))?;
        match keys.as_slice() {
            [] => Err(refuse::no_primary_key(&table.name)),
            [key] => Ok(key.text("stored")),
            [first, ..] => {
                // SAFETY: types that columns have.
                let fits =
                    |key: &&Row| unsafe { pg_sys::getBaseType(key.oid("type")) } == pg_sys::INT8OID;
                let example = keys.iter().rfind(fits).unwrap_or(first).text("stored");
                let columns: Vec<_> = keys.iter().map(|key| key.text("declared")).collect();
                Err(refuse::composite_key(
                    &table.name,
                    &columns.join(", "),
                    &example,
                ))
            }
        }
    }

    /// The column in its table, which comes first, and in all descendants.
    fn family(&self, generator: &Source) -> Result<Vec<Member>, Error> {
        let rows = spi::read(&format!(
            "WITH RECURSIVE family (oid) AS (
                 SELECT {0}::oid
                 UNION
                 SELECT i.inhrelid FROM pg_inherits AS i JOIN family AS f ON i.inhparent = f.oid)
             SELECT {NAMES}, a.attidentity AS identity,
                    pg_get_expr(d.adbin, d.adrelid) AS expression,
                    EXISTS (SELECT FROM pg_depend AS p
                        WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                          AND p.refclassid = 'pg_proc'::regclass AND p.refobjid = {1}) AS calls_it
             FROM family AS f
             JOIN pg_class AS c ON c.oid = f.oid
             JOIN pg_namespace AS n ON n.oid = c.relnamespace
             JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = {2} AND NOT a.attisdropped
             LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
             ORDER BY c.oid <> {0}, n.nspname, c.relname",
            self.table.oid,
            generator.function,
            quote_literal(&self.stored)
        ))?;
        Ok(rows
            .iter()
            .map(|row| Member {
                name: row.text("name"),
                statement: row.text("statement"),
                identity: !row.text("identity").is_empty(),
                default: row.get("expression").map(str::to_string),
                // What is not in pg_catalog is shown qualified.
                is_set: row.is("calls_it")
                    && row.get("expression") == Some(generator.expression.as_str()),
            })
            .collect())
    }

    /// The sequences that would be dropped with the column.
    fn sequences(&self, generator: &Source) -> Result<Vec<Sequence>, Error> {
        let rows = spi::read(&format!(
            "SELECT {NAMES}, d.deptype = 'i' AS of_identity
             FROM pg_depend AS d
             JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
             JOIN pg_namespace AS n ON n.oid = c.relnamespace
             WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
               AND d.refobjid = {} AND d.refobjsubid = {} AND d.deptype IN ('a', 'i')
               AND c.oid <> {}
             ORDER BY n.nspname, c.relname",
            self.table.oid,
            self.number,
            generator.entry.relation(),
        ))?;
        Ok(rows
            .iter()
            .map(|row| Sequence {
                name: row.text("name"),
                statement: row.text("statement"),
                of_identity: row.is("of_identity"),
            })
            .collect())
    }

    /// Refuses values that IDs to come could repeat, or would sort before.
    /// Returns the greatest, which the primary key's index has at its end.
    fn check_values(&self, generator: &Source, next: &Next) -> Result<Option<i64>, Error> {
        let query = format!(
            "SELECT max({}) AS greatest FROM {}",
            self.identifier, self.table.statement
        );
        let row = spi::read_all_as(&query, self.table.owner)?;
        let Some(value) = row.and_then(|row| row.number("greatest")) else {
            return Ok(None);
        };
        let least = next.id;
        if !next.sorts {
            notice::values_not_compared(&self.name, &generator.name).notice();
        }
        if !next.sorts || value < least.get() {
            return Ok(Some(value));
        }
        let Source {
            described, name, ..
        } = generator;
        let Generator { layout, policy } = described.generator;
        let reached = layout.decode(SnowflakeId::new(value)).ok();
        let reached = reached.map(|fields| layout.instant_of(fields.tick));
        let now = os_clock::read().wall.millis();
        // As far as snowflake_advance() goes.
        let limit = now.plus(policy.max_advance());
        Err(refuse::value_above(
            &self.table.column(&self.stored),
            value,
            least.get(),
            name,
            reached,
            reached.is_some_and(|at| at < limit),
        ))
    }

    /// Refuses a domain that refuses IDs, or that is one over such a domain. Its
    /// conditions are looked at one by one, those of the innermost first: a cast
    /// would raise an error.
    fn check_domain(&self, generator: &Source, least: SnowflakeId) -> Result<(), Error> {
        let Some((domain, declared)) = &self.domain else {
            return Ok(());
        };
        let checks = spi::read(&format!(
            "WITH RECURSIVE domains AS (
                 SELECT oid, typbasetype, 0 AS depth FROM pg_type
                 WHERE oid = {domain} AND typtype = 'd'
                 UNION ALL
                 SELECT t.oid, t.typbasetype, d.depth + 1
                 FROM domains AS d JOIN pg_type AS t ON t.oid = d.typbasetype AND t.typtype = 'd')
             SELECT format_type(d.typbasetype, NULL) AS base, pg_get_expr(k.conbin, 0) AS condition
             FROM domains AS d JOIN pg_constraint AS k ON k.contypid = d.oid AND k.contype = 'c'
             ORDER BY d.depth DESC, k.conname"
        ))?;
        for check in &checks {
            // What is neither true nor false is no reason.
            let condition = format!("({}) IS NOT FALSE", check.text("condition"));
            if !self.holds(&condition, least, &check.text("base"), "value")? {
                let named = self.table.column(&self.stored);
                let id = least.get();
                return Err(refuse::domain(&named, declared, id, &generator.name));
            }
        }
        Ok(())
    }

    /// Whether a condition that the table's owner wrote holds for an ID, of this
    /// type and under this name.
    fn holds(
        &self,
        condition: &str,
        id: SnowflakeId,
        of_type: &str,
        name: &str,
    ) -> Result<bool, Error> {
        let row = spi::read_one_as(
            &format!(
                "SELECT {condition} AS holds FROM (SELECT '{}'::{of_type} AS {name}) AS row",
                id.get()
            ),
            self.table.owner,
        )?;
        Ok(row.is_some_and(|row| row.is("holds")))
    }

    /// Refuses a table that is partitioned by this column and has no partition
    /// for IDs: the next INSERT would fail. Of sub-partitions, and of keys of
    /// more than one column, nothing is known before.
    fn check_partitions(&self, generator: &Source, least: SnowflakeId) -> Result<(), Error> {
        let bounds = spi::read(&format!(
            "SELECT CASE WHEN i.inhrelid IS NOT NULL
                    THEN coalesce(pg_get_partition_constraintdef(i.inhrelid), 'true') END AS bound
             FROM pg_partitioned_table AS p
             LEFT JOIN pg_inherits AS i ON i.inhparent = p.partrelid
             WHERE p.partrelid = {} AND p.partstrat IN ('l', 'r')
               AND p.partnatts = 1 AND p.partattrs[0] = {}",
            self.table.oid, self.number
        ))?;
        if bounds.is_empty() {
            return Ok(());
        }
        for bound in bounds.iter().filter_map(|row| row.get("bound")) {
            if self.holds(bound, least, "bigint", &self.identifier)? {
                return Ok(());
            }
        }
        Err(refuse::no_partition(
            &self.table.name,
            &self.stored,
            least.get(),
            &generator.name,
        ))
    }

    /// Tells of foreign keys that new IDs will not fit: they are no reason to
    /// refuse, since there may never be such rows, or the keys change next.
    fn notice_foreign_keys(&self) -> Result<(), Error> {
        let found = spi::read(&format!(
            "SELECT quote_ident(k.conname) AS key, k.conrelid = {0} AS is_own, {NAMES},
                    quote_ident(a.attname) AS identifier,
                    format_type(a.atttypid, a.atttypmod) AS declared
             FROM pg_constraint AS k
             CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
             JOIN pg_class AS c ON c.oid = k.conrelid
             JOIN pg_namespace AS n ON n.oid = c.relnamespace
             JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
             WHERE k.contype = 'f' AND k.conparentid = 0
               AND (k.conrelid = {0} AND u.here = {1}
                    OR k.confrelid = {0} AND u.there = {1}
                       AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype))
             ORDER BY k.conname",
            self.table.oid, self.number
        ))?;
        for row in &found {
            let constraint = row.text("key");
            if row.is("is_own") {
                notice::is_foreign_key(&self.name, &constraint)
            } else {
                let column = format!("{}.{}", row.text("name"), row.text("identifier"));
                notice::narrow_foreign_key(&column, &row.text("declared"), &constraint)
            }
            .notice();
        }
        Ok(())
    }

    fn alter(&self, generator: &Source) -> Result<(), Error> {
        let drop_identity = |table: &str| {
            spi::run(&format!(
                "ALTER TABLE {table} ALTER COLUMN {} DROP IDENTITY",
                self.identifier
            ))
        };
        if self.identity {
            drop_identity(&self.table.statement)?;
        }
        // From 17 on a partitioned table's identity goes with that of its
        // partitions; any other is a table's own.
        for member in self.family(generator)?.iter().filter(|m| m.identity) {
            drop_identity(&member.statement)?;
        }
        spi::run(&format!(
            "ALTER TABLE {} ALTER COLUMN {} SET DEFAULT {}",
            self.table.statement, self.identifier, generator.expression
        ))
    }

    /// What was changed, from what was there and what is there.
    fn changed(&self, generator: &Source, before: &[Member]) -> Result<String, Error> {
        let after = self.family(generator)?;
        let (Some((old, children)), true) = (
            before.split_first(),
            after.iter().all(|member| member.is_set),
        ) else {
            return Err(refuse::default_not_set(&self.name));
        };
        let mut text = format!("{}: {}", self.name, old.replaced_by(&generator.expression));
        if !children.is_empty() {
            let tables = if children.len() == 1 {
                "table"
            } else {
                "tables"
            };
            text.push_str(&format!(", also in {} child {tables}", children.len()));
        }
        for child in children {
            let own = child.identity && !old.identity
                || child.default.is_some() && child.default != old.default && !child.is_set;
            if own {
                text.push_str(&format!(
                    "; {}.{}: {}",
                    child.name,
                    self.identifier,
                    child.replaced_by(&generator.expression)
                ));
            }
        }
        Ok(text)
    }
}

/// A column in one table of a hierarchy.
struct Member {
    name: String,
    statement: String,
    identity: bool,
    default: Option<String>,
    /// Its default is the one that is wanted.
    is_set: bool,
}

impl Member {
    fn replaced_by(&self, expression: &str) -> String {
        match &self.default {
            _ if self.identity => format!("identity replaced by default {expression}"),
            _ if self.is_set => format!("default {expression} kept"),
            Some(old) => format!("default {old} replaced by {expression}"),
            None => format!("default set to {expression}"),
        }
    }
}

/// A sequence that belongs to the column.
struct Sequence {
    name: String,
    statement: String,
    of_identity: bool,
}
