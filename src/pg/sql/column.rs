//! `snowflake_set_default()`: makes a generator the default of a key column.
//!
//! The steps, all in the caller's transaction and with at most the caller's rights:
//!
//! 1. check that this is a whole table and the caller's: before any lock, so that
//!    strangers cannot take one, and again under the lock;
//! 2. lock the table with all its descendants, as ALTER TABLE would: nobody inserts
//!    until the transaction ends, and names stay the same, except those of schemas,
//!    which nothing locks; step 5 would notice that;
//! 3. find the column; refuse what is impossible, here and in columns that refer to it;
//! 4. refuse existing values at or above the IDs to come; they are read as the table's
//!    owner, since code attached to the table is the owner's;
//! 5. ALTER TABLE, which reaches all descendants; read back the result.
//!
//! The function's `search_path` has no schema in which others may create, so
//! unqualified names and operators below are PostgreSQL's own. Names of users' objects
//! are qualified and quoted. The price: event triggers that fire on our ALTER TABLE run
//! with this `search_path`, and need one of their own.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::spi::quote_literal;

use super::super::encoding::{Text, from_server};
use super::super::entry::{self, Entry};
use super::super::error::{self, Error, column as refuse};
use super::super::label::Described;
use super::super::spi::{self, Row};
use super::super::{mark, notice, os_clock, shmem};
use super::call::c_function;
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{SnowflakeId, WorkerId};

// `snowflake_set_default(relation, column_name, generator, drop_sequence) -> text`.
c_function!(snowflake_set_default, |call| {
    let relation = call.get(0).ok_or_else(refuse::null_table)?;
    let named = call.get::<&CStr>(1).map(from_server);
    let named = named.as_deref();
    let drop_sequence = call.get(3).unwrap_or(false);
    entry::prevent_where_nextval_is(c"snowflake_set_default()");
    look(relation, named)?;
    let generator = Source::find(call.get(2))?;
    let column = Column::lock(relation, named, &generator)?;
    let before = column.family()?;
    let sequences = column.sequences()?;

    let mut done = Vec::new();
    if before.iter().all(|member| member.is("is_set")) {
        done.push(format!(
            "{}: default is {} already",
            column.name, generator.expression
        ));
    } else {
        column.check_referring()?;
        let (next, sorts) = generator.next()?;
        let greatest = column.check_values(next, sorts)?;
        column.check_takes(next.get())?;
        column.alter()?;
        done.push(column.changed(&before)?);
        done.push(match greatest {
            Some(value) => format!("greatest value so far {value}"),
            None => "no values so far".to_string(),
        });
        column.tell(&before)?;
    }
    for sequence in &sequences {
        // Another object that uses the sequence stops the drop; the error names it.
        let fate = if sequence.is("of_identity") {
            "dropped with the identity"
        } else if drop_sequence {
            spi::run(&format!("DROP SEQUENCE {}", sequence.text("statement")))?;
            "dropped"
        } else {
            "kept"
        };
        done.push(format!("sequence {} {fate}", sequence.text("name")));
    }
    if drop_sequence && sequences.is_empty() {
        done.push("no sequence is owned by the column".to_string());
    }
    Ok(Text(done.join("; ")))
});

/// `pg_class` with a relation's name for people (`name`) and for SQL (`statement`): they
/// differ for temporary tables, whose schema has a number.
const RELATIONS: &str = "(SELECT c.*, n.nspname,
        CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END
            || '.' || quote_ident(c.relname) AS name,
        quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS statement
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace)";

/// Looks at a relation, and refuses it if it is no table, a part of one, or not the
/// caller's. Returns a row for the column of this name, or for each of the primary key;
/// if there is none, a row without a column.
fn look(relation: pg_sys::Oid, named: Option<&str>) -> Result<Vec<Row>, Error> {
    let wanted = match named {
        Some(name) => format!("a.attname = {}", quote_literal(name)),
        None => "k.conkey IS NOT NULL".to_string(),
    };
    let rows = spi::read(&format!(
        "SELECT c.oid, c.name, c.statement, c.relkind AS kind, c.relispartition AS is_partition,
                r.name AS root, c.relowner AS owner,
                quote_ident(pg_get_userbyid(c.relowner)) AS owner_name,
                pg_has_role(c.relowner, 'USAGE') AS is_mine,
                c.relpersistence = 't' AND c.relnamespace <> pg_my_temp_schema() AS is_elsewhere,
                a.attname AS stored, a.attnum AS number, quote_ident(a.attname) AS identifier,
                a.atttypid AS type, format_type(a.atttypid, a.atttypmod) AS declared,
                a.attgenerated AS generated
         FROM {RELATIONS} AS c
         LEFT JOIN {RELATIONS} AS r ON c.relispartition AND r.oid = pg_partition_root(c.oid)
         LEFT JOIN (pg_attribute AS a
                    LEFT JOIN pg_constraint AS k
                      ON k.conrelid = a.attrelid AND k.contype = 'p' AND a.attnum = ANY (k.conkey))
           ON a.attrelid = c.oid AND NOT a.attisdropped AND {wanted}
         WHERE c.oid = {relation}
         ORDER BY array_position(k.conkey, a.attnum)"
    ))?;
    let Some(row) = rows.first() else {
        return Err(error::no_such_relation(relation));
    };
    let name = row.text("name");
    // SAFETY: compares numbers.
    let is_system = unsafe { pg_sys::IsCatalogRelationOid(relation) };
    Err(match row.text("kind").as_str() {
        "v" => refuse::view(&name),
        "f" => refuse::foreign(&name),
        kind if kind != "r" && kind != "p" => refuse::no_table(&name),
        _ if is_system => refuse::system_catalog(&name),
        _ if !row.is("is_mine") => refuse::not_owner(&name, &row.text("owner_name")),
        _ if row.is("is_elsewhere") => refuse::other_session(&name),
        _ if row.is("is_partition") => refuse::partition(&name, &row.text("root"), named),
        _ => return Ok(rows),
    })
}

/// Where IDs shall come from: a generator, and the default that calls it.
struct Source {
    entry: &'static Entry,
    described: &'static Described,
    name: String,
    /// The function that the default calls.
    function: pg_sys::Oid,
    /// The default, as PostgreSQL shows it with an empty search path.
    expression: String,
}

impl Source {
    fn find(generator: Option<pg_sys::Oid>) -> Result<Self, Error> {
        let default = entry::default_relation()?;
        let relation = generator.unwrap_or(default);
        let entry = entry::of_named(relation)?;
        entry.lock();
        let described = entry.learn()?.described;
        if described.generator.layout.takes_fields() {
            return Err(error::no_default(&entry.name(), &described.label));
        }
        let arguments = if relation == default { "" } else { "regclass" };
        // The extension's own function, in whatever schema: its signature, with the
        // value of its argument in place of the type.
        let row = spi::read_one(&format!(
            "SELECT c.name, p.oid AS function,
                    left(p.oid::regprocedure::text, - length('{arguments})'))
                    || CASE p.pronargs WHEN 0 THEN '' ELSE quote_literal(c.name) || '::regclass' END
                    || ')' AS expression
             FROM {RELATIONS} AS c
             CROSS JOIN pg_extension AS e
             JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass
                 AND d.refobjid = e.oid AND d.deptype = 'e' AND d.classid = 'pg_proc'::regclass
             JOIN pg_proc AS p ON p.oid = d.objid
             WHERE c.oid = {relation} AND e.extname = 'snowflake_id'
               AND p.proname = 'snowflake_nextval'
               AND oidvectortypes(p.proargtypes) = '{arguments}'"
        ))?
        .ok_or_else(refuse::no_nextval_function)?;
        Ok(Self {
            entry,
            described,
            name: row.text("name"),
            function: row.oid("function"),
            expression: row.text("expression"),
        })
    }

    /// The next ID, and whether all further IDs of this server are at or above it.
    ///
    /// A generator that runs has a word and a clock that only grow; a wall clock ahead
    /// of them would give a wrong answer. A generator that has issued nothing since the
    /// server started will start at its mark or now.
    fn next(&self) -> Result<(SnowflakeId, bool), Error> {
        let generator = &self.described.generator;
        let layout = generator.layout;
        let running = self.entry.running_at(generator);
        let position = match running {
            Some(position) => position,
            None => {
                let wall = os_clock::wall().millis();
                let mark = mark::stored(self.entry, generator)?.unwrap_or(wall);
                layout.at(0, layout.place_of(layout.tick_within(mark.max(wall))))
            }
        };
        let worker = shmem::shared().ok().and_then(|shared| shared.worker_id());
        let stamp = worker.and_then(|worker| layout.stamp(worker).ok());
        let tick = layout.tick_of(position);
        let range = layout.range_of(tick);
        if let Ok((least, _)) = range
            && (running.is_none() || stamp.is_none())
        {
            return Ok((least, true));
        }
        // Other IDs of this tick may be anywhere in it.
        let position = match generator.is_random() {
            true => layout.at(0, layout.place_of(tick.next())),
            false => position,
        };
        let stamp = stamp.map_or_else(|| layout.stamp(WorkerId::NONE), Ok)?;
        Ok((layout.compose_in(position, stamp, None), range.is_ok()))
    }
}

/// The type of a column, with domains replaced by their base types.
fn base_type(row: &Row) -> pg_sys::Oid {
    // SAFETY: a type that a column has.
    unsafe { pg_sys::getBaseType(row.oid("type")) }
}

/// Types that hold no IDs and can become bigint.
const NARROW: [pg_sys::Oid; 2] = [pg_sys::INT4OID, pg_sys::INT2OID];

/// The column of a table that is most likely meant for IDs, if there is one: a number
/// that refers to no other table, of the primary key if there is one. A column that
/// counts comes first, then a bigint, then the last of a key and the first of a table.
fn likely(relation: pg_sys::Oid) -> Result<Option<String>, Error> {
    let rows = spi::read(&format!(
        "SELECT a.attname AS stored, a.atttypid AS type,
                a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%' AS counts
         FROM pg_attribute AS a
         LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         LEFT JOIN pg_constraint AS k ON k.conrelid = a.attrelid AND k.contype = 'p'
         WHERE a.attrelid = {relation} AND a.attnum > 0 AND NOT a.attisdropped
           AND a.attgenerated = '' AND (k.conkey IS NULL OR a.attnum = ANY (k.conkey))
           AND NOT EXISTS (
               SELECT FROM pg_constraint AS f
               WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey))
         ORDER BY array_position(k.conkey, a.attnum) DESC, a.attnum"
    ))?;
    let is_wide = |row: &Row| base_type(row) == pg_sys::INT8OID;
    let numbers = rows
        .iter()
        .filter(|row| is_wide(row) || NARROW.contains(&base_type(row)));
    let best = numbers.min_by_key(|row| (!row.is("counts"), !is_wide(row)));
    Ok(best.map(|row| row.text("stored")))
}

/// A column that can have the default.
struct Column<'a> {
    generator: &'a Source,
    /// The row that [`look`] returns for the column.
    row: Row,
    table: String,
    /// The column's name in a statement.
    identifier: String,
    /// The column's name with its table.
    name: String,
    /// The same, as an error says it.
    described: String,
}

impl<'a> Column<'a> {
    /// Locks the table with all its descendants, as ALTER TABLE would, and chooses the
    /// column. Whether a domain refuses IDs is found out later, by a trial.
    fn lock(
        relation: pg_sys::Oid,
        named: Option<&str>,
        generator: &'a Source,
    ) -> Result<Self, Error> {
        // SAFETY: in a transaction, which keeps the lock.
        unsafe {
            #[allow(clippy::cast_possible_wrap)]
            pg_sys::LockRelationOid(relation, pg_sys::AccessExclusiveLock as i32);
        }
        // The table may have been dropped, renamed or given away while we waited.
        let mut rows = look(relation, named)?;
        if let [first, _, ..] = rows.as_slice() {
            let example = likely(relation)?;
            let declared = |row: &Row| row.text("identifier") + " " + &row.text("declared");
            let columns = rows.iter().map(declared).collect::<Vec<_>>().join(", ");
            let table = first.text("name");
            return Err(refuse::composite_key(&table, &columns, example.as_deref()));
        }
        let Some(row) = rows.pop() else {
            return Err(error::no_such_relation(relation));
        };
        let statement = row.text("statement");
        spi::run(&format!("LOCK TABLE {statement} IN ACCESS EXCLUSIVE MODE"))?;
        let (table, identifier) = (row.text("name"), row.text("identifier"));
        let described = |stored: &str| format!("column \"{stored}\" of table {table}");
        let Some(stored) = row.get("stored") else {
            return Err(match named {
                Some(name) => refuse::missing(&described(name)),
                None => refuse::no_primary_key(&table, likely(relation)?.as_deref()),
            });
        };
        let (described, generated) = (described(stored), row.text("generated"));
        let alter = format!("ALTER TABLE {table} ALTER COLUMN {identifier}");
        let alter_if = |it: bool| it.then_some(alter.as_str());
        if row.number("number") < Some(1) {
            return Err(refuse::system_column(&described));
        } else if !generated.is_empty() {
            return Err(refuse::generated(&described, alter_if(generated == "s")));
        } else if base_type(&row) != pg_sys::INT8OID {
            let widens = NARROW.contains(&row.oid("type"));
            let declared = row.text("declared");
            return Err(refuse::wrong_type(&described, &declared, alter_if(widens)));
        }
        Ok(Self {
            generator,
            name: format!("{table}.{identifier}"),
            table,
            identifier,
            described,
            row,
        })
    }

    /// The column in its table, which comes first, and in all descendants; `is_set`
    /// tells whether the default there is already the wanted one.
    fn family(&self) -> Result<Vec<Row>, Error> {
        // Names outside pg_catalog are shown qualified.
        spi::read(&format!(
            "WITH RECURSIVE family (oid) AS (
                 SELECT {0}::oid
                 UNION
                 SELECT i.inhrelid FROM pg_inherits AS i JOIN family AS f ON i.inhparent = f.oid)
             SELECT c.name, c.statement, a.attidentity <> '' AS identity,
                    a.attidentity = 'a' AS is_always,
                    pg_get_expr(d.adbin, d.adrelid) AS expression,
                    pg_get_expr(d.adbin, d.adrelid) = {1} AND EXISTS (
                        SELECT FROM pg_depend AS p
                        WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                          AND p.refclassid = 'pg_proc'::regclass AND p.refobjid = {2}) AS is_set
             FROM family AS f
             JOIN {RELATIONS} AS c ON c.oid = f.oid
             JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = {3} AND NOT a.attisdropped
             LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
             ORDER BY c.oid <> {0}, c.nspname, c.relname",
            self.row.text("oid"),
            quote_literal(&self.generator.expression),
            self.generator.function,
            quote_literal(self.row.text("stored"))
        ))
    }

    /// The sequences that would be dropped with the column.
    fn sequences(&self) -> Result<Vec<Row>, Error> {
        spi::read(&format!(
            "SELECT c.name, c.statement, d.deptype = 'i' AS of_identity
             FROM pg_depend AS d
             JOIN {RELATIONS} AS c ON c.oid = d.objid AND c.relkind = 'S'
             WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
               AND d.refobjid = {} AND d.refobjsubid = {} AND d.deptype IN ('a', 'i')
               AND c.oid <> {}
             ORDER BY c.nspname, c.relname",
            self.row.text("oid"),
            self.row.text("number"),
            self.generator.entry.relation(),
        ))
    }

    /// Refuses a column if other columns refer to it that cannot hold IDs: no row of
    /// theirs could refer to a new row.
    fn check_referring(&self) -> Result<(), Error> {
        let referring = spi::read(&format!(
            "SELECT DISTINCT c.name AS table_name, quote_ident(a.attname) AS identifier, a.attnum,
                    a.atttypid AS type, format_type(a.atttypid, a.atttypmod) AS declared
             FROM pg_constraint AS k
             CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
             JOIN {RELATIONS} AS c ON c.oid = k.conrelid
             JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
             WHERE k.contype = 'f' AND k.conparentid = 0 AND k.confrelid = {} AND u.there = {}
             ORDER BY c.name, a.attnum",
            self.row.text("oid"),
            self.row.text("number")
        ))?;
        let bits = self.generator.described.generator.layout.width();
        let narrow: Vec<_> = referring
            .iter()
            .filter(|row| match base_type(row) {
                pg_sys::INT4OID => bits > 31,
                pg_sys::INT2OID => bits > 15,
                _ => false,
            })
            .map(|row| ["table_name", "identifier", "declared"].map(|name| row.text(name)))
            .collect();
        if narrow.is_empty() {
            return Ok(());
        }
        Err(refuse::narrow_foreign_keys(
            &self.described,
            &narrow,
            &self.generator.name,
            bits,
        ))
    }

    /// Refuses values that IDs to come could repeat or, if these IDs sort, would sort
    /// before. Returns the greatest value, which is at the end of the primary key's
    /// index.
    fn check_values(&self, least: SnowflakeId, sorts: bool) -> Result<Option<i64>, Error> {
        let query = format!(
            "SELECT max({}) AS greatest FROM {}",
            self.identifier,
            self.row.text("statement")
        );
        let row = spi::read_all_as(&query, self.row.oid("owner"))?;
        let Some(value) = row.and_then(|row| row.number("greatest")) else {
            return Ok(None);
        };
        let generator = &self.generator.name;
        if !sorts {
            notice::values_not_compared(&self.name, generator).notice();
        }
        if !sorts || value < least.get() {
            return Ok(Some(value));
        }
        let Generator { layout, policy } = self.generator.described.generator;
        let reached = layout.decode(SnowflakeId::new(value)).ok();
        let reached = reached.map(|fields| layout.instant_of(fields.tick));
        // As far as snowflake_advance() can go.
        let limit = os_clock::wall().millis().plus(policy.max_advance());
        Err(refuse::value_above(
            &self.described,
            value,
            least.get(),
            generator,
            reached,
            reached.is_some_and(|at| at < limit),
        ))
    }

    /// Refuses a domain that refuses IDs, or whose base domain does; and a table that
    /// is partitioned by this column and has no partition for IDs.
    fn check_takes(&self, next: i64) -> Result<(), Error> {
        // Conditions of domains are tried one by one, the innermost domain's first: a
        // cast would raise an error. A condition that is neither true nor false is no
        // reason to refuse. The conditions of partitions form one condition, of which
        // the next INSERT needs a part to hold. Sub-partitions, and keys of more than
        // one column, are not checked.
        let conditions = spi::read(&format!(
            "WITH RECURSIVE domains AS (
                 SELECT oid, typbasetype, 0 AS depth FROM pg_type
                 WHERE oid = {} AND typtype = 'd'
                 UNION ALL
                 SELECT t.oid, t.typbasetype, d.depth + 1
                 FROM domains AS d JOIN pg_type AS t ON t.oid = d.typbasetype AND t.typtype = 'd')
             SELECT 'value' AS name, format_type(d.typbasetype, NULL) AS type, d.depth, k.conname,
                    '(' || pg_get_expr(k.conbin, 0) || ') IS NOT FALSE' AS condition
             FROM domains AS d JOIN pg_constraint AS k ON k.contypid = d.oid AND k.contype = 'c'
             UNION ALL
             SELECT {}, 'bigint', NULL, NULL,
                    coalesce(string_agg(coalesce(
                        '(' || pg_get_partition_constraintdef(i.inhrelid) || ')', 'true'), ' OR ')
                        FILTER (WHERE i.inhrelid IS NOT NULL), 'false')
             FROM pg_partitioned_table AS p
             LEFT JOIN pg_inherits AS i ON i.inhparent = p.partrelid
             WHERE p.partrelid = {} AND p.partstrat IN ('l', 'r')
               AND p.partnatts = 1 AND p.partattrs[0] = {}
             GROUP BY p.partrelid
             ORDER BY depth DESC NULLS LAST, conname",
            self.row.text("type"),
            quote_literal(&self.identifier),
            self.row.text("oid"),
            self.row.text("number")
        ))?;
        for row in &conditions {
            let (condition, name) = (row.text("condition"), row.text("name"));
            // The table's owner wrote the condition, so it runs as the owner.
            let query = format!(
                "SELECT {condition} AS holds FROM (SELECT '{next}'::{} AS {name}) AS row",
                row.text("type")
            );
            let found = spi::read_one_as(&query, self.row.oid("owner"))?;
            if found.is_some_and(|row| row.is("holds")) {
                continue;
            }
            let generator = &self.generator.name;
            return Err(match row.get("depth") {
                Some(_) => {
                    refuse::domain(&self.described, &self.row.text("declared"), next, generator)
                }
                None => {
                    refuse::no_partition(&self.table, &self.row.text("stored"), next, generator)
                }
            });
        }
        Ok(())
    }

    /// Reports what does not prevent setting the default, but keeps rows or users from
    /// using it, or changes what users may do. `before` is the family as it was.
    fn tell(&self, before: &[Row]) -> Result<(), Error> {
        let generator = self.generator;
        // Inserting needs USAGE, setting a default does not: a table may be set up
        // before its users are. But at least the table's owner is expected to insert.
        let usage = spi::read_one(&format!(
            "SELECT has_sequence_privilege({}::oid, {}::oid, 'USAGE, UPDATE') AS is_there",
            self.row.text("owner"),
            generator.entry.relation()
        ))?;
        if usage.is_some_and(|row| !row.is("is_there")) {
            let owner = self.row.text("owner_name");
            notice::owner_lacks_usage(&self.table, &owner, &generator.name).notice();
        }
        // A table may be set up before its server is, but the user should know.
        if let Ok(shared) = shmem::shared()
            && let Err(error) = generator.entry.check_can_issue(generator.described, shared)
        {
            error.warning();
        }
        // If the column refers to another table's key, all rows may give its value.
        let found = spi::read(&format!(
            "SELECT quote_ident(conname) AS key FROM pg_constraint
             WHERE contype = 'f' AND conparentid = 0 AND conrelid = {} AND {} = ANY (conkey)
             ORDER BY conname",
            self.row.text("oid"),
            self.row.text("number")
        ))?;
        for row in &found {
            notice::is_foreign_key(&self.name, &row.text("key")).notice();
        }
        // Reported for the table, including its descendants, or for some of these.
        let is_always = |member: &&Row| member.is("is_always");
        let count = if before.first().is_some_and(|it| is_always(&it)) {
            1
        } else {
            before.len()
        };
        for member in before.iter().take(count).filter(is_always) {
            let name = format!("{}.{}", member.text("name"), self.identifier);
            notice::no_longer_always(&name).notice();
        }
        Ok(())
    }

    /// Drops the identity of the table and its descendants, and sets the default.
    fn alter(&self) -> Result<(), Error> {
        let alter = |table: &Row, what: &str| {
            let (table, column) = (table.text("statement"), &self.identifier);
            spi::run(&format!("ALTER TABLE {table} ALTER COLUMN {column} {what}"))
        };
        // One by one, the table first: from 17 on, a partitioned table's identity goes
        // with those of its partitions; any other identity belongs to one table.
        while let Some(member) = self.family()?.iter().find(|member| member.is("identity")) {
            alter(member, "DROP IDENTITY")?;
        }
        let default = format!("SET DEFAULT {}", self.generator.expression);
        alter(&self.row, &default)
    }

    /// A text that says what was changed.
    fn changed(&self, before: &[Row]) -> Result<String, Error> {
        let is_done = self.family()?.iter().all(|member| member.is("is_set"));
        let (Some((old, children)), true) = (before.split_first(), is_done) else {
            return Err(refuse::default_not_set(&self.name));
        };
        let mut text = format!("{}: {}", self.name, self.replaced(old));
        match children.len() {
            0 => {}
            1 => text.push_str(", also in 1 child table"),
            count => text.push_str(&format!(", also in {count} child tables")),
        }
        for child in children {
            let default = child.get("expression");
            let is_own = child.is("identity") && !old.is("identity")
                || default.is_some() && default != old.get("expression") && !child.is("is_set");
            if is_own {
                let (table, done) = (child.text("name"), self.replaced(child));
                text.push_str(&format!("; {table}.{}: {done}", self.identifier));
            }
        }
        Ok(text)
    }

    /// A text that says what becomes of the default in one table of the family.
    fn replaced(&self, before: &Row) -> String {
        let expression = &self.generator.expression;
        match before.get("expression") {
            _ if before.is("identity") => format!("identity replaced by default {expression}"),
            _ if before.is("is_set") => format!("default {expression} kept"),
            Some(old) => format!("default {old} replaced by {expression}"),
            None => format!("default set to {expression}"),
        }
    }
}
