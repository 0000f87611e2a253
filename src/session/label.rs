//! Labels of sequences: read and interned.
//!
//! A label is a security label of our provider. That makes it schema metadata: the
//! sequence's owner sets it, it goes with the sequence, and dumps, upgrades and
//! standbys have it. [`crate::hooks::provider`] says what happens when a label is set.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::rc::Rc;
use std::sync::OnceLock;

use pgrx::pg_sys;

use crate::postgres::{catalog, encoding};
use crate::session::error::{self, Error};
use snowflake_core::label::generator::Generator;
use snowflake_core::label::{Label, LabelError};

/// The provider's name: SECURITY LABEL FOR snowflake_id.
pub const PROVIDER: &CStr = c"snowflake_id";

/// A label, as text and as parsed.
#[derive(Clone, Debug)]
pub struct ParsedLabel {
    pub text: String,
    /// For people: the names of fields.
    pub label: Label,
    /// For issuing and decoding.
    pub generator: Generator,
}

impl ParsedLabel {
    fn new(text: &str, label: Label) -> Self {
        Self {
            text: text.to_string(),
            generator: label.generator(),
            label,
        }
    }
}

thread_local! {
    /// The labels of generators that this session has met, by their text. Entries point
    /// to them; [`forget_others`] frees those that none points to.
    static KNOWN: RefCell<BTreeMap<&'static str, &'static ParsedLabel>> =
        const { RefCell::new(BTreeMap::new()) };
    /// With more labels than this, [`forget_others`] frees the unused ones.
    static CROWDED: Cell<usize> = const { Cell::new(CROWDED_MIN) };
    /// The text that was read last; most often it is the next one again.
    static GIVEN: RefCell<Option<Rc<ParsedLabel>>> = const { RefCell::new(None) };
}

/// With fewer labels, a search for unused ones is not worth its cost.
const CROWDED_MIN: usize = 64;

/// Frees the labels that are not in use, if there are many: a session may outlive any
/// number of labels. Called at the end of a transaction, when no function has a pointer
/// to a label. The next search runs at twice the number of labels that are left.
pub fn forget_others(in_use: impl FnOnce() -> BTreeSet<*const ParsedLabel>) {
    if KNOWN.with_borrow(BTreeMap::len) <= CROWDED.get() {
        return;
    }
    let in_use = in_use();
    let mut unused = Vec::new();
    let left = KNOWN.with_borrow_mut(|known| {
        known.retain(|_, described| {
            let stays = in_use.contains(&std::ptr::from_ref(*described));
            if !stays {
                unused.push(std::ptr::from_ref(*described).cast_mut());
            }
            stays
        });
        known.len()
    });
    CROWDED.set(CROWDED_MIN.max(left.saturating_mul(2)));
    for described in unused {
        // SAFETY: made by `of_sequence` as a box; nothing points to it now, not even the
        // key.
        drop(unsafe { Box::from_raw(described) });
    }
}

/// The description of the default generator, which has no label.
pub fn of_default() -> &'static ParsedLabel {
    static DEFAULT: OnceLock<ParsedLabel> = OnceLock::new();
    DEFAULT.get_or_init(|| ParsedLabel::new("preset=default", Label::of_default()))
}

/// The text of a label that cannot be read, and the reason: it was set without the
/// provider, or by a later version.
pub type Unreadable = (String, LabelError);

/// The label of a sequence, if it has one; valid as long as an entry points to the
/// label. The sequence is locked.
pub fn of_sequence(relation: pg_sys::Oid) -> Result<Option<&'static ParsedLabel>, Unreadable> {
    let Some(text) = text_of(relation) else {
        return Ok(None);
    };
    if let Some(known) = KNOWN.with_borrow(|known| known.get(text.as_str()).copied()) {
        return Ok(Some(known));
    }
    let label = Label::parse(&text).and_then(|label| {
        // The provider takes no label that only decodes. A sequence with such a label
        // got it without the provider, and no generator may use its layout.
        label.check_generates()?;
        Ok(label)
    });
    let label = label.map_err(|error| (text.clone(), error))?;
    let described: &'static ParsedLabel = Box::leak(Box::new(ParsedLabel::new(&text, label)));
    KNOWN.with_borrow_mut(|known| known.insert(&described.text, described));
    Ok(Some(described))
}

/// As [`of_sequence`], for a caller that looks repeatedly: only the last one is kept.
pub fn read(relation: pg_sys::Oid) -> Result<Option<Rc<ParsedLabel>>, Unreadable> {
    let Some(text) = text_of(relation) else {
        return Ok(None);
    };
    let described = last_given(&text).and_then(|described| {
        described.label.check_generates()?;
        Ok(Some(described))
    });
    described.map_err(|error| (text, error))
}

/// Reads a label that a user wrote.
pub fn given(text: &str) -> Result<Rc<ParsedLabel>, Error> {
    last_given(text).map_err(|error| error::bad_label(text, &error))
}

fn last_given(text: &str) -> Result<Rc<ParsedLabel>, LabelError> {
    GIVEN.with_borrow_mut(|last| {
        if let Some(described) = last.as_ref().filter(|last| last.text == text) {
            return Ok(described.clone());
        }
        let described = Rc::new(ParsedLabel::new(text, Label::parse(text)?));
        *last = Some(described.clone());
        Ok(described)
    })
}

/// A label that a generator can have.
pub fn parse_for_generator(text: &str) -> Result<Label, Error> {
    let label = Label::parse(text).map_err(|error| error::bad_label(text, &error))?;
    let checked = label.check_generates();
    checked.map_err(|error| error::label_only_decodes(&error))?;
    Ok(label)
}

pub fn text_of(relation: pg_sys::Oid) -> Option<String> {
    let object = pg_sys::ObjectAddress {
        classId: pg_sys::RelationRelationId,
        objectId: relation,
        objectSubId: 0,
    };
    // SAFETY: scans pg_seclabel; returns NULL or a NUL-terminated copy.
    unsafe {
        let text = pg_sys::GetSecurityLabel(&raw const object, PROVIDER.as_ptr());
        encoding::read(text)
    }
}

/// The labelled sequences of this database, in the order of their OIDs. The catalog is
/// scanned without SQL, since SQL takes a snapshot, and none can be taken while
/// parallel workers run.
pub fn all() -> Vec<pg_sys::Oid> {
    let lock = pg_sys::AccessShareLock.cast_signed();
    let mut keys = [pg_sys::ScanKeyData::default(); 3];
    let mut found = Vec::new();
    // SAFETY: in a transaction. The conditions are of the columns' types; rows of
    // pg_seclabel are of this form, and stay until the next one is asked for. An error
    // ends the transaction, which closes the catalog.
    unsafe {
        use pg_sys::{Anum_pg_seclabel_classoid, Anum_pg_seclabel_objsubid};
        let class = pg_sys::Datum::from(pg_sys::RelationRelationId);
        let name = pg_sys::cstring_to_text(PROVIDER.as_ptr()).into();
        let conditions = [
            (Anum_pg_seclabel_classoid, pg_sys::F_OIDEQ, class),
            (Anum_pg_seclabel_objsubid, pg_sys::F_INT4EQ, 0.into()),
            (pg_sys::Anum_pg_seclabel_provider, pg_sys::F_TEXTEQ, name),
        ];
        for (key, (column, by, value)) in keys.iter_mut().zip(conditions) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
            let (column, strategy) = (column as i16, pg_sys::BTEqualStrategyNumber as u16);
            pg_sys::ScanKeyInit(key, column, strategy, by.into(), value);
        }
        let catalog = pg_sys::table_open(pg_sys::SecLabelRelationId, lock);
        let (no_index, now) = (pg_sys::InvalidOid, std::ptr::null_mut());
        let scan = pg_sys::systable_beginscan(catalog, no_index, false, now, 3, keys.as_mut_ptr());
        loop {
            let row = pg_sys::systable_getnext(scan);
            if row.is_null() {
                break;
            }
            found.push((*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_seclabel>()).objoid);
        }
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, lock);
    }
    found.retain(|relation| catalog::kind(*relation) == pg_sys::RELKIND_SEQUENCE);
    found.sort_unstable_by_key(|relation| relation.to_u32());
    found
}
