//! `snowflake_id.new_keys`: keys of new tables get snowflake IDs by themselves, so that nobody has to
//! change a model or a migration.
//!
//! While a CREATE TABLE, ALTER TABLE or CREATE SCHEMA runs, the relations, constraints and defaults
//! that it makes are noted by their OIDs ([`note`]), and the defaults that it drops
//! ([`note_drop`]). After it, each key whose sequence it has made gets a default in its place:
//!
//! 1. Where the setting is off, nothing is noted, and nothing else is done.
//! 2. A key is touched only if this command has made the sequence that its column owns, and the
//!    primary key is there. pg_dump makes the sequence before the key, by separate commands, and so
//!    does pg_upgrade: their setval() finds its sequence. Nothing that was there before changes.
//!    Every other key that the command leaves with numbers of a sequence, or without the default
//!    that gave it IDs, is told: nobody sees later that a second server repeats its numbers.
//! 3. Nothing is looked up by a name that this command did not resolve, nothing is evaluated, and no
//!    statement is run: the catalogs are changed by PostgreSQL's own functions, for objects by their
//!    OIDs. So no code of others runs, whoever owns the table or the database.
//! 4. The default draws from a generator of a superuser, or of a role whose rights the owner of the
//!    table has and is no superuser, and the caller may use it: a setting of the database gives
//!    nobody's tables away.
//!
//! A command that runs within another one, in somebody's event trigger, has notes of its own
//! ([`Frame`]), or takes none. One that fails ends them by the abort of its transaction, or of the part it is in.
//!
//! Within a function that runs as another role, the setting counts only if it is that of the server
//! or of the database: what the session has set is the choice of a role that has no say there, and is
//! taken for off.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::sync::Once;

use pgrx::spi::quote_literal;
use pgrx::{PgBox, PgList, pg_sys};

use crate::hooks::error::{self, Error};
use crate::hooks::key_catalog::{self as keys, Column, Dependent};
use crate::hooks::new_keys_error as messages;
use crate::postgres::{catalog, compat, own_tables};
use crate::server::guc::{self, NewKeys};
use crate::session;
use crate::session::generator::SessionGenerator;

/// What a command that is running has made.
#[derive(Default)]
struct Frame {
    /// How deep the transaction was nested where the command began.
    level: c_int,
    /// Where its keys come from; `None` if they stay as they are.
    wanted: Option<NewKeys>,
    relations: Vec<pg_sys::Oid>,
    /// Columns that it has added to tables.
    columns: Vec<Column>,
    constraints: Vec<pg_sys::Oid>,
    /// Columns to which it has given a default.
    defaults: Vec<Column>,
    /// Columns whose default it has dropped, with the function that the default called.
    dropped: Vec<(Column, pg_sys::Oid)>,
    /// Its tables may have had rows before.
    alters: bool,
}

thread_local! {
    /// The commands that run now, the innermost last.
    static FRAMES: RefCell<Vec<Frame>> = const { RefCell::new(Vec::new()) };
}

/// Called when an object is made, or a part of one: a column has its number, all else 0.
pub fn note(class: pg_sys::Oid, object: pg_sys::Oid, part: c_int) {
    FRAMES.with_borrow_mut(|frames| {
        let Some(frame) = frames.last_mut().filter(|frame| frame.wanted.is_some()) else {
            return;
        };
        // SAFETY: a variable of this process. What the script of an extension makes is its own.
        if unsafe { pg_sys::creating_extension } {
        } else if class == pg_sys::RelationRelationId {
            match i16::try_from(part) {
                Ok(0) => frame.relations.push(object),
                Ok(column) => frame.columns.push((object, column)),
                Err(_) => {}
            }
        } else if class == pg_sys::ConstraintRelationId {
            frame.constraints.push(object);
        } else if class == pg_sys::AttrDefaultRelationId
            && let Ok(column) = i16::try_from(part)
        {
            frame.defaults.push((object, column));
        }
    });
}

/// Called before an object is dropped. A default is, where another one takes its place; and a change
/// of an identity's type drops the constraint of the key.
pub fn note_drop(class: pg_sys::Oid, object: pg_sys::Oid) {
    let is_noted = |frame: &Frame| frame.wanted.is_some();
    if !FRAMES.with_borrow(|frames| frames.last().is_some_and(is_noted)) {
        return;
    }
    let mut called = Vec::new();
    if class == pg_sys::AttrDefaultRelationId {
        let place = keys::column_of_default(object);
        called.extend(place.and_then(|it| Some((it, keys::default_function(it.0, it.1)?))));
    } else if class == pg_sys::ConstraintRelationId {
        let has_identity =
            |it: &Column| keys::attribute(it.0, it.1).is_some_and(|row| row.attidentity != 0);
        let keys = keys::key_beside(object).into_iter().filter(has_identity);
        called.extend(keys.map(|it| (it, pg_sys::F_NEXTVAL.into())));
    }
    FRAMES.with_borrow_mut(|frames| {
        if let Some(frame) = frames.last_mut() {
            frame.dropped.append(&mut called);
        }
    });
}

/// The part before a command: whether its notes are taken, or those of the command around it are
/// kept from it.
///
/// # Safety
/// `node` is a command from PostgreSQL.
pub unsafe fn begin(
    node: *const pg_sys::Node,
    context: pg_sys::ProcessUtilityContext::Type,
) -> bool {
    use pg_sys::NodeTag::{T_AlterTableStmt, T_CreateSchemaStmt, T_CreateStmt};
    // SAFETY: as the caller guarantees.
    let tag = unsafe { (*node).type_ };
    let is_watched = matches!(tag, T_CreateStmt | T_AlterTableStmt | T_CreateSchemaStmt);
    // The parts of such a command are commands too.
    let is_part = context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_SUBCOMMAND;
    let is_within = FRAMES.with_borrow(|frames| !frames.is_empty());
    if is_part || !(is_within || is_watched && guc::new_keys_is_set()) {
        return false;
    }
    let wanted = guc::new_keys(is_within_function_of_other()).filter(|_| {
        // SAFETY: variables of this process, and shared memory.
        let is_ready = unsafe {
            pg_sys::IsTransactionState()
                && !pg_sys::IsBinaryUpgrade
                && !pg_sys::creating_extension
                && !pg_sys::RecoveryInProgress()
        };
        is_watched && is_ready && session::is_extension_here()
    });
    watch_for_aborts();
    FRAMES.with_borrow_mut(|frames| {
        let counts = wanted.is_some() || is_within;
        if counts {
            frames.push(Frame {
                // SAFETY: reads a variable of this process.
                level: unsafe { pg_sys::GetCurrentTransactionNestLevel() },
                wanted,
                alters: tag == T_AlterTableStmt,
                ..Frame::default()
            });
        }
        counts
    })
}

/// Whether the user in force is not the one that the session chose: a SECURITY DEFINER function of
/// another role runs.
fn is_within_function_of_other() -> bool {
    // SAFETY: reads variables of this process.
    compat::user() != unsafe { pg_sys::GetOuterUserId() }
}

/// Notes of commands that have failed end with the transaction, or with the part of it that is
/// aborted. A session that makes no such notes is not asked.
fn watch_for_aborts() {
    static ONCE: Once = Once::new();
    // SAFETY: functions that live as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
    });
}

/// Called when the transaction ends. No command runs over its end.
unsafe extern "C-unwind" fn on_transaction(_event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    FRAMES.with_borrow_mut(Vec::clear);
}

/// Called when a subtransaction ends.
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _mine: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut c_void,
) {
    if event == pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        // SAFETY: reads a variable of this process: the level of the part that is aborted.
        let level = unsafe { pg_sys::GetCurrentTransactionNestLevel() };
        FRAMES.with_borrow_mut(|frames| frames.retain(|frame| frame.level < level));
    }
}

/// The part after a command that [`begin`] has noted.
pub fn finish() -> Result<(), Error> {
    let Some(frame) = FRAMES.with_borrow_mut(Vec::pop) else {
        return Ok(());
    };
    let Some(wanted) = &frame.wanted else {
        return Ok(());
    };
    let columns = frame.columns_with_keys();
    if columns.is_empty() && frame.constraints.is_empty() {
        return Ok(());
    }
    // SAFETY: in a transaction.
    unsafe { pg_sys::CommandCounterIncrement() };
    // Nobody drops the extension from here on.
    let Some(extension) = own_tables::keep()? else {
        return Ok(());
    };
    let keys = columns.into_iter();
    let keys = keys.filter_map(|it| Key::of(it, &frame, extension));
    let keys: Vec<_> = keys.collect();
    if !keys.is_empty() {
        let source = Source::find(wanted, extension);
        let mut is_done = false;
        for key in keys {
            let name = name_of((key.table, key.column));
            let from = key.sequence.map_or("a sequence".to_string(), |it| {
                format!("sequence {}", catalog::qualified_name(it))
            });
            match key.obstacle(&frame, &source)? {
                Some(why) => {
                    let named = source.as_ref().ok().and_then(Source::name);
                    let table = catalog::qualified_name(key.table);
                    messages::left(&name, &table, &from, named.as_deref(), &why).warning();
                }
                None => {
                    let source = source.as_ref().map_err(|_| error::extension_is_gone())?;
                    key.change(&frame, source)?;
                    messages::changed(&name, &source.text(), &from, key.identity).notice();
                    is_done = true;
                }
            }
        }
        if let Ok(source) = source
            && is_done
        {
            source.entry.warn_if_not_ready()?;
        }
    }
    warn_of_small_references(&frame, extension);
    Ok(())
}

impl Frame {
    /// The columns that may be keys whose numbers this command decides: those that own a sequence of
    /// its, are in a primary key of its, or have got or lost a default.
    fn columns_with_keys(&self) -> Vec<Column> {
        let sequences = self.relations.iter().copied();
        let sequences = sequences.filter(|it| catalog::kind(*it) == pg_sys::RELKIND_SEQUENCE);
        let keys = self.constraints.iter().copied();
        let keys = keys.flat_map(keys::key_beside);
        let mut found: Vec<_> = sequences.filter_map(keys::owned_by).chain(keys).collect();
        found.extend(&self.defaults);
        found.extend(self.dropped.iter().map(|it| it.0));
        let mut seen = BTreeSet::new();
        found.retain(|column| seen.insert((column.0.to_u32(), column.1)));
        found
    }
}

/// A key whose numbers a command decides.
struct Key {
    /// Where they come from; `None` if that is not known, or nowhere.
    sequence: Option<pg_sys::Oid>,
    table: pg_sys::Oid,
    column: i16,
    /// As pg_attribute has it: 0 for none.
    identity: u8,
    /// It had a default that issues IDs before the command.
    had_ids: bool,
    /// What is against IDs whatever the table is like.
    why: Option<messages::Why>,
}

impl Key {
    fn of(place: Column, frame: &Frame, extension: pg_sys::Oid) -> Option<Self> {
        let (table, column) = place;
        let (columns, constraint) = keys::primary_key(table);
        if columns != [column]
            || keys::is_partition(table)
            || catalog::persistence(table) == pg_sys::RELPERSISTENCE_TEMP
        {
            return None;
        }
        let attribute = keys::attribute(table, column)?;
        let mut dropped = frame.dropped.iter();
        let before = dropped.find(|it| it.0 == place).map(|it| it.1);
        let had_ids = before.is_some_and(|function| keys::is_issuer(extension, function));
        let found = keys::numbers_from(table, column);
        let sequence = found.and_then(catalog::valid);
        let is_made = sequence
            .is_some_and(|it| frame.relations.contains(&it) && keys::owned_by(it) == Some(place));
        // A change of the type makes the default and the key again.
        let is_as_before = before == Some(pg_sys::F_NEXTVAL.into());
        let is_new = frame.constraints.contains(&constraint) || frame.defaults.contains(&place);
        let is_told = match found {
            // What another function does, nobody knows.
            None => had_ids && keys::default_function(table, column).is_none(),
            Some(_) => is_made || is_new && !is_as_before,
        };
        is_told.then_some(Self {
            sequence,
            table,
            column,
            identity: compat::byte(attribute.attidentity),
            had_ids,
            why: match keys::type_but_bigint(table, column) {
                _ if found.is_none() => Some(messages::Why::Dropped),
                None if is_made => None,
                None => Some(messages::Why::Apart),
                Some(type_) => Some(messages::Why::Type(type_)),
            },
        })
    }

    /// The column in the table and in all partitions and child tables.
    fn family(&self) -> Vec<Column> {
        // SAFETY: in a transaction; the list has OIDs. A name that is NULL is of a column that is
        // gone.
        unsafe {
            let members = compat::find_all_inheritors(self.table);
            let members = PgList::<pg_sys::Oid>::from_pg(members);
            let name = pg_sys::get_attname(self.table, self.column, true);
            let members = members.iter_oid().filter(|_| !name.is_null());
            let members = members.map(|table| (table, pg_sys::get_attnum(table, name)));
            members.filter(|it| it.1 > 0).collect()
        }
    }

    /// Why the key stays as it is, if it does.
    fn obstacle(
        &self,
        frame: &Frame,
        source: &Result<Source, messages::Why>,
    ) -> Result<Option<messages::Why>, Error> {
        use messages::Why;
        let (None, Some(sequence)) = (&self.why, self.sequence) else {
            return Ok(self.why.clone());
        };
        let form = catalog::sequence_form(sequence)?;
        let numbers = (form.seqstart, form.seqincrement, form.seqmin, form.seqmax);
        if numbers != (1, 1, 1, i64::MAX) || form.seqcycle {
            return Ok(Some(Why::Options));
        }
        let family = self.family();
        if family.iter().any(|it| keys::is_ranged_by(it.0, it.1)) {
            return Ok(Some(Why::Partitioned));
        }
        for (table, column) in &family {
            // One that depends on no column has the whole row in it, as a rule.
            for part in [*column, 0] {
                let on = keys::dependents(pg_sys::RelationRelationId, *table, Some(part));
                if let Some(check) = on.iter().find_map(Dependent::check_constraint) {
                    return Ok(Some(Why::Checked(check)));
                }
            }
        }
        let is_other = |user: &Option<Column>| user.is_none_or(|user| !family.contains(&user));
        if keys::users(sequence).iter().any(is_other) {
            return Ok(Some(Why::Shared));
        }
        let has_rows = || family.iter().any(|it| keys::has_blocks(it.0));
        if frame.alters && !self.had_ids && has_rows() {
            return Ok(Some(Why::Rows));
        }
        let owner = catalog::owner_of(self.table).unwrap_or(pg_sys::InvalidOid);
        // SAFETY: a catalog look-up, in a transaction.
        if !unsafe { pg_sys::has_privs_of_role(compat::user(), owner) } {
            return Ok(Some(Why::OtherOwner(catalog::role_name(owner))));
        }
        Ok(match source {
            Err(why) => Some(why.clone()),
            Ok(source) => source.obstacle(owner),
        })
    }

    /// The columns that get the default: those that drew from the sequence; and those in
    /// partitions and child tables that this command has made, and have no default or value
    /// of their own.
    fn targets(&self, frame: &Frame) -> Vec<Column> {
        let users = self.sequence.map(keys::users).unwrap_or_default();
        let is_made = |(table, column): Column| {
            let is_new =
                frame.relations.contains(&table) || frame.columns.contains(&(table, column));
            keys::attribute(table, column).is_some_and(|attribute| {
                let has_identity = attribute.attidentity != 0;
                // A partition has the identity of its table.
                let shares = has_identity && keys::is_partition(table);
                let is_bare = !attribute.atthasdef && attribute.attgenerated == 0;
                is_bare && (shares || is_new && !has_identity)
            })
        };
        let family = self.family().into_iter();
        let own = (self.table, self.column);
        family
            .filter(|it| *it == own || users.contains(&Some(*it)) || is_made(*it))
            .collect()
    }

    /// Puts the default in the place of the sequence.
    fn change(&self, frame: &Frame, source: &Source) -> Result<(), Error> {
        let targets = self.targets(frame);
        if self.identity != 0 {
            // SAFETY: as `alter` asks for. The name is that of a column that exists.
            unsafe {
                alter(self.table, true, |command| {
                    command.subtype = pg_sys::AlterTableType::AT_DropIdentity;
                    command.name = pg_sys::get_attname(self.table, self.column, false);
                });
            }
        }
        for (table, column) in targets {
            // SAFETY: as `alter` asks for; the expression is of the type of the column.
            unsafe {
                alter(table, false, |command| {
                    command.subtype = pg_sys::AlterTableType::AT_CookedColumnDefault;
                    command.num = column;
                    command.def = source.expression();
                });
            }
        }
        if self.identity == 0
            && let Some(sequence) = self.sequence
        {
            let sequence = pg_sys::ObjectAddress {
                classId: pg_sys::RelationRelationId,
                objectId: sequence,
                objectSubId: 0,
            };
            // SAFETY: in a transaction. Whatever else uses the sequence stops this.
            unsafe {
                pg_sys::performDeletion(
                    &raw const sequence,
                    pg_sys::DropBehavior::DROP_RESTRICT,
                    0,
                );
                pg_sys::CommandCounterIncrement();
            }
        }
        Ok(())
    }
}

/// Changes a table, by its OID. Where an event trigger of somebody else runs, PostgreSQL keeps a
/// list of the commands in it, and needs to be told that this is one.
///
/// # Safety
/// In a transaction; `fill` makes a command of ALTER TABLE.
unsafe fn alter(table: pg_sys::Oid, recurses: bool, fill: impl FnOnce(&mut pg_sys::AlterTableCmd)) {
    // SAFETY: as the caller guarantees; names of a relation that exists.
    unsafe {
        let mut command =
            PgBox::<pg_sys::AlterTableCmd>::alloc_node(pg_sys::NodeTag::T_AlterTableCmd);
        fill(&mut command);
        let mut commands = PgList::<pg_sys::AlterTableCmd>::new();
        commands.push(command.into_pg());
        let commands = commands.into_pg();
        let statement =
            PgBox::<pg_sys::AlterTableStmt>::alloc_node(pg_sys::NodeTag::T_AlterTableStmt);
        let statement = statement.into_pg();
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(table));
        (*statement).relation = pg_sys::makeRangeVar(schema, pg_sys::get_rel_name(table), -1);
        (*statement).cmds = commands;
        (*statement).objtype = pg_sys::ObjectType::OBJECT_TABLE;
        pg_sys::EventTriggerAlterTableStart(statement.cast());
        pg_sys::AlterTableInternal(table, commands, recurses);
        pg_sys::EventTriggerAlterTableEnd();
        pg_sys::CommandCounterIncrement();
    }
}

/// Where keys get their IDs from.
struct Source {
    function: pg_sys::Oid,
    entry: &'static SessionGenerator,
    is_default: bool,
}

impl Source {
    fn find(wanted: &NewKeys, extension: pg_sys::Oid) -> Result<Self, messages::Why> {
        let missing = || messages::Why::NoGenerator(wanted.to_string());
        let (generator, is_default) = match wanted {
            NewKeys::Default => (catalog::default_relation(), true),
            NewKeys::Named(schema, name) => (sequence(schema, name), false),
        };
        let generator = generator.filter(|it| session::is_generator(*it));
        let generator = generator.ok_or_else(missing)?;
        let is_default = is_default || catalog::default_relation() == Some(generator);
        let function = keys::issuer(extension, is_default);
        Ok(Self {
            function: function.ok_or_else(missing)?,
            entry: session::of_sequence(generator),
            is_default,
        })
    }

    /// Why the keys of this role's tables cannot draw from the generator, if they cannot.
    fn obstacle(&self, owner_of_table: pg_sys::Oid) -> Option<messages::Why> {
        use messages::Why;
        let generator = self.entry.relation();
        let owner = catalog::owner_of(generator).unwrap_or(pg_sys::InvalidOid);
        // A superuser has all rights, and trusts nobody for that.
        // SAFETY: catalog look-ups, in a transaction.
        let is_trusted = owner == owner_of_table
            || unsafe {
                pg_sys::superuser_arg(owner)
                    || !pg_sys::superuser_arg(owner_of_table)
                        && pg_sys::has_privs_of_role(owner_of_table, owner)
            };
        if !is_trusted {
            let generator = catalog::qualified_name(generator);
            return Some(Why::ForeignGenerator(generator, catalog::role_name(owner)));
        }
        let mut schemas = vec![
            keys::schema_of_function(self.function),
            // SAFETY: a catalog look-up, in a transaction.
            unsafe { pg_sys::get_rel_namespace(generator) },
        ];
        schemas.dedup();
        schemas.retain(|schema| !compat::may_use_schema(*schema));
        let schemas = schemas.into_iter().map(keys::schema_name);
        let mut missing: Vec<_> = schemas.map(|name| format!("schema {name}")).collect();
        if !catalog::has_privilege(generator, pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE) {
            missing.push(format!("sequence {}", catalog::qualified_name(generator)));
        }
        let role = catalog::role_name(compat::user());
        (!missing.is_empty()).then_some(Why::NoPrivilege(role, missing))
    }

    /// The call of the function, as an expression.
    ///
    /// # Safety
    /// In a transaction.
    unsafe fn expression(&self) -> *mut pg_sys::Node {
        use pg_sys::CoercionForm::COERCE_EXPLICIT_CALL;
        // SAFETY: as the caller guarantees; a regclass is four bytes, passed by value.
        unsafe {
            let mut arguments = PgList::<pg_sys::Const>::new();
            if !self.is_default {
                arguments.push(pg_sys::makeConst(
                    pg_sys::REGCLASSOID,
                    -1,
                    pg_sys::InvalidOid,
                    4,
                    self.entry.relation().into(),
                    false,
                    true,
                ));
            }
            let none = pg_sys::InvalidOid;
            let arguments = arguments.into_pg();
            let kind = COERCE_EXPLICIT_CALL;
            pg_sys::makeFuncExpr(self.function, pg_sys::INT8OID, arguments, none, none, kind).cast()
        }
    }

    /// The name of the generator, if it is not the default one.
    fn name(&self) -> Option<String> {
        (!self.is_default).then(|| catalog::qualified_name(self.entry.relation()))
    }

    /// The call, for messages.
    fn text(&self) -> String {
        let schema = keys::schema_name(keys::schema_of_function(self.function));
        let argument = self.name().map(quote_literal).unwrap_or_default();
        format!("{schema}.snowflake_nextval({argument})")
    }
}

/// A sequence by its name, if there is one.
fn sequence(schema: &CStr, name: &CStr) -> Option<pg_sys::Oid> {
    // SAFETY: catalog look-ups of NUL-terminated names, in a transaction.
    let found = unsafe {
        let schema = catalog::valid(pg_sys::get_namespace_oid(schema.as_ptr(), true))?;
        catalog::valid(pg_sys::get_relname_relid(name.as_ptr(), schema))?
    };
    (catalog::kind(found) == pg_sys::RELKIND_SEQUENCE).then_some(found)
}

/// Warns of columns that refer to keys with IDs, by foreign keys that a command has made, and cannot
/// hold them.
fn warn_of_small_references(frame: &Frame, extension: pg_sys::Oid) {
    let constraints = frame.constraints.iter();
    let references = constraints.flat_map(|constraint| keys::foreign_key(*constraint));
    let small = references.filter_map(|((table, column), (referred, key))| {
        let type_ = keys::attribute(table, column)?.atttypid;
        let is_small = [pg_sys::INT4OID, pg_sys::INT2OID].contains(&type_);
        let function = keys::default_function(referred, key);
        let has_ids = function.is_some_and(|it| keys::is_issuer(extension, it));
        // One that gets numbers of a sequence can get IDs later. A change of its type makes the
        // foreign keys of other tables again, whose columns may follow.
        let is_made_again = frame.alters
            && table != referred
            && frame.constraints.contains(&keys::primary_key(referred).1);
        let can_have = keys::type_but_bigint(referred, key).is_none()
            && keys::numbers_from(referred, key).is_some();
        let (name, column) = (
            catalog::qualified_name(table),
            keys::column_name(table, column),
        );
        (is_small && (has_ids || can_have && !is_made_again)).then(|| {
            (
                name,
                column,
                type_ == pg_sys::INT2OID,
                name_of((referred, key)),
            )
        })
    });
    for (table, column, is_smallint, refers_to) in small.collect::<BTreeSet<_>>() {
        messages::small_reference(&table, &column, is_smallint, &refers_to).warning();
    }
}

/// A column with its table, as SQL.
fn name_of((table, column): Column) -> String {
    let (table, column) = (
        catalog::qualified_name(table),
        keys::column_name(table, column),
    );
    format!("{table}.{column}")
}
