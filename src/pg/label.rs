//! Labels of sequences: read, interned, and checked when they are set.
//!
//! A label is a security label of our provider. That makes it schema metadata:
//! the sequence's owner sets it, it goes with the sequence, and dumps, upgrades
//! and standbys have it.
//!
//! # Changing a label
//!
//! PostgreSQL calls [`check`] before it stores a label. The check takes
//! AccessExclusive on the sequence, which waits for every transaction that has
//! taken IDs (they hold RowExclusive), and sends a relcache invalidation, since
//! labels send none of their own. Whoever takes IDs next gets the lock after our
//! commit, hears of the invalidation with it, and reads the new label. So no two
//! sessions ever issue by different labels.
//!
//! The check looks at no clock and no setting: a dump must restore anywhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use pgrx::pg_sys;

use super::entry;
use super::error::Error;
use super::{mark, shmem, spi};
use crate::snowflake::generator::Generator;
use crate::snowflake::label::Label;
use crate::snowflake::layout::{Disorder, UnixMillis};

/// The provider's name: SECURITY LABEL FOR snowflake_id.
const PROVIDER: &CStr = c"snowflake_id";

/// A label and what was made of it.
#[derive(Debug)]
pub struct Described {
    /// For people: names of fields.
    pub label: Label,
    /// For issuing and decoding.
    pub generator: Generator,
}

impl Described {
    fn new(label: Label) -> Self {
        let generator = label.generator();
        Self { label, generator }
    }
}

thread_local! {
    /// The labels of generators that this session has met, by their text. Never
    /// freed, so that entries can point to them: there are few.
    static KNOWN: RefCell<BTreeMap<String, &'static Described>> =
        const { RefCell::new(BTreeMap::new()) };
    /// The text that was given to a function last, which most often is the next.
    static GIVEN: RefCell<Option<(String, std::rc::Rc<Described>)>> = const { RefCell::new(None) };
}

/// The default generator's, which has no label.
pub fn of_default() -> &'static Described {
    static DEFAULT: OnceLock<Described> = OnceLock::new();
    DEFAULT.get_or_init(|| Described::new(Label::of_default()))
}

/// The label of a sequence, if it has one. It is locked.
pub fn of(relation: pg_sys::Oid) -> Result<Option<&'static Described>, Error> {
    let Some(text) = text_of(relation) else {
        return Ok(None);
    };
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&text).copied()) {
        return Ok(Some(known));
    }
    // A label that was set without this provider, or by a later version of it.
    let label = Label::parse(&text).map_err(|error| Error::StoredLabel {
        name: entry::relation_name(relation),
        text: text.clone(),
        error,
    })?;
    let described: &'static Described = Box::leak(Box::new(Described::new(label)));
    KNOWN.with_borrow_mut(|known| known.insert(text, described));
    Ok(Some(described))
}

/// A label that a user wrote.
pub fn given(text: &str) -> Result<std::rc::Rc<Described>, Error> {
    GIVEN.with_borrow_mut(|last| {
        if let Some((known, described)) = last
            && known == text
        {
            return Ok(described.clone());
        }
        let described = std::rc::Rc::new(Described::new(parse(text)?));
        *last = Some((text.to_string(), described.clone()));
        Ok(described)
    })
}

fn parse(text: &str) -> Result<Label, Error> {
    Label::parse(text).map_err(|error| Error::BadLabel {
        text: text.to_string(),
        error,
    })
}

/// A label that a generator can have.
pub fn parse_for_generator(text: &str) -> Result<Label, Error> {
    let label = parse(text)?;
    label
        .check_generates()
        .map_err(|(problem, help)| Error::LabelOnlyDecodes { problem, help })?;
    Ok(label)
}

fn address(relation: pg_sys::Oid) -> pg_sys::ObjectAddress {
    pg_sys::ObjectAddress {
        classId: pg_sys::RelationRelationId,
        objectId: relation,
        objectSubId: 0,
    }
}

/// The text of a relation's label.
fn text_of(relation: pg_sys::Oid) -> Option<String> {
    let object = address(relation);
    // SAFETY: scans pg_seclabel; returns NULL or a NUL-terminated copy.
    unsafe {
        let text = pg_sys::GetSecurityLabel(&raw const object, PROVIDER.as_ptr());
        (!text.is_null()).then(|| spi::from_server(CStr::from_ptr(text)))
    }
}

/// The labelled sequences of this database, in the order of their OIDs.
pub fn all() -> Result<Vec<pg_sys::Oid>, Error> {
    let rows = spi::read(
        "SELECT l.objoid FROM pg_catalog.pg_seclabel AS l
         JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.objoid
         WHERE l.provider OPERATOR(pg_catalog.=) 'snowflake_id'
           AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
           AND l.objsubid OPERATOR(pg_catalog.=) 0
           AND c.relkind OPERATOR(pg_catalog.=) 'S'
         ORDER BY l.objoid",
    )?;
    Ok(rows.iter().map(|row| row.oid(0)).collect())
}

/// Registers the provider, in every process that loads the library.
pub fn register() {
    // SAFETY: a constant name and a function that live as long as the process.
    unsafe { pg_sys::register_label_provider(PROVIDER.as_ptr(), Some(on_label)) };
}

/// PostgreSQL has checked that the user owns the object, and locked it.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_label(object: *const pg_sys::ObjectAddress, label: *const c_char) {
    // SAFETY: PostgreSQL's: an object, and NULL or a NUL-terminated string.
    let (object, label) = unsafe {
        let label = (!label.is_null()).then(|| spi::from_server(CStr::from_ptr(label)));
        (*object, label)
    };
    if let Err(error) = check(object, label.as_deref()) {
        error.raise();
    }
}

fn check(object: pg_sys::ObjectAddress, text: Option<&str>) -> Result<(), Error> {
    let relation = object.objectId;
    let is_sequence = object.classId == pg_sys::RelationRelationId
        && object.objectSubId == 0
        // SAFETY: looks up the catalogs.
        && unsafe { pg_sys::get_rel_relkind(relation) }.cast_unsigned() == pg_sys::RELKIND_SEQUENCE;
    if !is_sequence {
        return Err(Error::LabelNotOnSequence);
    }
    if entry::default_relation().is_ok_and(|default| default == relation) {
        return Err(Error::LabelOnDefault);
    }
    let label = text.map(parse_for_generator).transpose()?;
    // SAFETY: in a transaction, which keeps the lock.
    unsafe {
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::LockRelationOid(relation, pg_sys::AccessExclusiveLock as i32);
    }
    if let Some(before) = text_of(relation).and_then(|text| Label::parse(&text).ok()) {
        check_change(relation, &before, label.as_ref())?;
    }
    if let Some(label) = &label
        && label.layout().can_be_negative()
    {
        let from = match label.layout().disorder() {
            Some(Disorder::NegativeFrom(at)) => Some(at),
            _ => None,
        };
        Error::CanBeNegative { from }.notice();
    }
    // SAFETY: the relation is locked, so it exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(relation) };
    Ok(())
}

/// Refuses what could repeat IDs that exist, or sort before them.
fn check_change(relation: pg_sys::Oid, before: &Label, after: Option<&Label>) -> Result<(), Error> {
    let entry = entry::of(relation);
    let Some(reached) = reached(relation)? else {
        return Ok(());
    };
    let name = entry.name();
    let Some(after) = after else {
        return Err(Error::LabelRemoved { name });
    };
    let (layout, before_layout) = (after.layout(), before.layout());
    if let Some(change) = layout.change_from(before_layout) {
        return Err(Error::LayoutChanged {
            name,
            change,
            before: before.layout_text(),
            after: after.layout_text(),
        });
    }
    let last = layout.instant_of(layout.last_tick());
    if layout != before_layout && reached >= last {
        return Err(Error::LayoutTooShort {
            name,
            reached,
            last,
        });
    }
    Ok(())
}

/// How far a generator has come: no later than its mark; `None` if it has not
/// issued anything. The relation is locked.
fn reached(relation: pg_sys::Oid) -> Result<Option<UnixMillis>, Error> {
    let entry = entry::of(relation);
    if !entry.is_permanent() {
        return Ok(None);
    }
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId };
    let running = shmem::shared()
        .ok()
        .and_then(|shared| shared.view(database, relation))
        .and_then(|view| view.highest);
    Ok(mark::stored(entry)?.max(running))
}
