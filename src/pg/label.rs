//! Labels of sequences: read and interned.
//!
//! A label is a security label of our provider. That makes it schema metadata:
//! the sequence's owner sets it, it goes with the sequence, and dumps, upgrades
//! and standbys have it. What happens when one is set is in [`super::provider`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::rc::Rc;
use std::sync::OnceLock;

use pgrx::pg_sys;

use super::encoding::from_server;
use super::error::{self, Error};
use super::spi;
use crate::snowflake::generator::Generator;
use crate::snowflake::label::{Label, LabelError};

/// The provider's name: SECURITY LABEL FOR snowflake_id.
pub const PROVIDER: &CStr = c"snowflake_id";

/// A label and what was made of it.
#[derive(Clone, Debug)]
pub struct Described {
    /// As it was set.
    pub text: String,
    /// For people: names of fields.
    pub label: Label,
    /// For issuing and decoding.
    pub generator: Generator,
}

impl Described {
    fn new(text: &str, label: Label) -> Self {
        Self {
            text: text.to_string(),
            generator: label.generator(),
            label,
        }
    }
}

thread_local! {
    /// The labels of generators that this session has met, by their text. Never
    /// freed, so that entries can point to them: there are few.
    static KNOWN: RefCell<BTreeMap<String, &'static Described>> =
        const { RefCell::new(BTreeMap::new()) };
    /// The text that was given to a function last, which most often is the next.
    static GIVEN: RefCell<Option<Rc<Described>>> = const { RefCell::new(None) };
}

/// The default generator's, which has no label.
pub fn of_default() -> &'static Described {
    static DEFAULT: OnceLock<Described> = OnceLock::new();
    DEFAULT.get_or_init(|| Described::new("preset=default", Label::of_default()))
}

/// The text of a label, and what is wrong with it: it was set without the provider, or
/// by a later version.
pub type Unreadable = (String, LabelError);

/// The label of a sequence, if it has one, for good. The sequence is locked.
pub fn of_sequence(relation: pg_sys::Oid) -> Result<Option<&'static Described>, Unreadable> {
    let Some(text) = text_of(relation) else {
        return Ok(None);
    };
    if let Some(known) = KNOWN.with_borrow(|known| known.get(&text).copied()) {
        return Ok(Some(known));
    }
    let label = Label::parse(&text).map_err(|error| (text.clone(), error))?;
    let described: &'static Described = Box::leak(Box::new(Described::new(&text, label)));
    KNOWN.with_borrow_mut(|known| known.insert(text, described));
    Ok(Some(described))
}

/// The same for a caller that looks again and again: nothing is kept.
pub fn read(relation: pg_sys::Oid) -> Result<Option<Rc<Described>>, Unreadable> {
    text_of(relation)
        .map(|text| last_given(&text).map_err(|error| (text, error)))
        .transpose()
}

/// A label that a user wrote.
pub fn given(text: &str) -> Result<Rc<Described>, Error> {
    last_given(text).map_err(|error| error::bad_label(text, &error))
}

fn last_given(text: &str) -> Result<Rc<Described>, LabelError> {
    GIVEN.with_borrow_mut(|last| {
        if let Some(described) = last.as_ref().filter(|last| last.text == text) {
            return Ok(described.clone());
        }
        let described = Rc::new(Described::new(text, Label::parse(text)?));
        *last = Some(described.clone());
        Ok(described)
    })
}

/// A label that a generator can have.
pub fn parse_for_generator(text: &str) -> Result<Label, Error> {
    let label = Label::parse(text).map_err(|error| error::bad_label(text, &error))?;
    label
        .check_generates()
        .map_err(|(problem, help)| error::label_only_decodes(&problem, &help))?;
    Ok(label)
}

/// The text of a relation's label.
pub fn text_of(relation: pg_sys::Oid) -> Option<String> {
    let object = pg_sys::ObjectAddress {
        classId: pg_sys::RelationRelationId,
        objectId: relation,
        objectSubId: 0,
    };
    // SAFETY: scans pg_seclabel; returns NULL or a NUL-terminated copy.
    unsafe {
        let text = pg_sys::GetSecurityLabel(&raw const object, PROVIDER.as_ptr());
        (!text.is_null()).then(|| from_server(CStr::from_ptr(text)))
    }
}

/// The labelled sequences of this database, in the order of their OIDs.
pub fn all() -> Result<Vec<pg_sys::Oid>, Error> {
    let rows = spi::read(
        "SELECT l.objoid AS sequence FROM pg_catalog.pg_seclabel AS l
         JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.objoid
         WHERE l.provider OPERATOR(pg_catalog.=) 'snowflake_id'
           AND l.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
           AND l.objsubid OPERATOR(pg_catalog.=) 0
           AND c.relkind OPERATOR(pg_catalog.=) 'S'
         ORDER BY l.objoid",
    )?;
    Ok(rows.iter().map(|row| row.oid("sequence")).collect())
}
