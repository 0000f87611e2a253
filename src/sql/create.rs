//! Making generators, and the presets for them.

use std::collections::BTreeMap;
use std::ffi::CStr;

use pgrx::spi::quote_literal;
use pgrx::{IntoDatum, pg_sys};
use serde_json::Value;

use crate::postgres::encoding::{DatabaseText, from_server};
use crate::postgres::size_limit::{self, Limit};
use crate::postgres::{catalog, compat, spi, time};
use crate::server::{os_clock, shmem};
use crate::session::{self, generator, label, lease_wait, mark};
use crate::sql::call::{Call, c_function, columns};
use crate::sql::error::{self, Error};
use snowflake_core::id::layout::OrderError;
use snowflake_core::label::excerpt::excerpt;
use snowflake_core::label::presets;
use snowflake_core::label::{KEYS, Label, edit};

/// A text with what the named arguments from `first` on say, and the label that this makes. The
/// scripts declare the arguments in the order of [`KEYS`]; behind them comes `fields`.
fn changed(call: &Call, text: &str, first: usize) -> Result<(String, Label), Error> {
    let mut changes = Vec::new();
    for (index, key) in (first..).zip(KEYS) {
        if !call.is_null(index) {
            let value = call.text(index, &Limit::of_key(key));
            changes.push((key.to_string(), value.into_owned()));
        }
    }
    let fields = first + KEYS.len();
    if !call.is_null(fields) {
        for (name, value) in call.object(fields)? {
            let value = match value {
                Value::Null => continue,
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => return Err(error::field_not_number(&name)),
            };
            edit::check_field_name(&name)
                .map_err(|error| error::bad_argument(&of_fields(&name), &value, &error))?;
            changes.push((name, value));
        }
    }
    let pairs = changes
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs: Vec<_> = pairs.collect();
    let change = |key: &str| pairs.iter().find(|(name, _)| *name == key);
    let made = edit::edit(text, &pairs).map_err(|error| error::bad_label(text, &error))?;
    let (change, error) = match Label::parse(&made) {
        Err(error) => {
            let key = edit::key_at(&made, error.at);
            (key.and_then(|key| change(&key)), error)
        }
        Ok(label) => match label.check_generates() {
            Ok(()) => return Ok((made, label)),
            Err(error) if pairs.is_empty() => return Err(error::label_only_decodes(&error)),
            Err(error) => (change("layout").or_else(|| change("preset")), error),
        },
    };
    Err(match change {
        Some((key, value)) if KEYS.contains(key) => error::bad_argument(key, value, &error),
        Some((field, value)) => error::bad_argument(&of_fields(field), value, &error),
        None if pairs.is_empty() => error::bad_label(&made, &error),
        // Several are to blame together, or one is missing.
        None => error::bad_arguments(&made, &error),
    })
}

/// How an error names a value of argument `fields`.
fn of_fields(field: &str) -> String {
    format!("fields, \"{}\"", excerpt(field))
}

// `snowflake_create_generator(name, label, KEYS, fields) -> regclass`.
c_function!(snowflake_create_generator, |call| {
    if call.is_null(0) {
        return Ok(None);
    }
    let name = call.measured(0, &size_limit::NAME).cast_mut_ptr();
    let text = match call.is_null(1) {
        true => "".into(),
        false => call.text(1, &size_limit::LABEL),
    };
    generator::prevent_where_nextval_is(c"snowflake_create_generator()");
    let (label, described) = changed(call, &text, 2)?;
    let layout = described.layout();
    // Checked here and not with the label: a dump must restore at any time.
    if os_clock::wall().millis() >= layout.end() {
        let layout_text = described.layout_text();
        return Err(error::layout_is_over(&layout_text, layout.end()));
    }
    lease_wait::check_worker_field(&call.name(0), &described)?;
    // SAFETY: a text; its parts live as long as this call. CREATE SEQUENCE checks
    // privileges on the schema.
    let (schema, relation_name, statement) = unsafe {
        let names = pg_sys::textToQualifiedNameList(name);
        let variable = pg_sys::makeRangeVarFromNameList(names);
        let schema = pg_sys::RangeVarGetCreationNamespace(variable);
        let relation = (*variable).relname;
        let quoted =
            pg_sys::quote_qualified_identifier(pg_sys::get_namespace_name(schema), relation);
        (schema, relation, from_server(CStr::from_ptr(quoted)))
    };
    spi::run(&format!("CREATE SEQUENCE {statement} {}", catalog::FIT))?;
    // SAFETY: looks up the catalogs; the name is NUL-terminated.
    let relation = unsafe { pg_sys::get_relname_relid(relation_name, schema) };
    let entry = session::of_sequence(relation);
    set_label(&statement, &label)?;
    entry.lock();
    // A temporary schema makes a temporary sequence.
    let facts = entry.learn()?;
    if let Ok(shared) = shmem::shared()
        && let Err(error) = entry.check_can_issue(facts.described, shared)
    {
        error.warning();
    }
    Ok(Some(relation))
});

// `_snowflake.begin(generator)`, while CREATE EXTENSION runs: the default generator has no mark yet.
c_function!(snowflake_internal_begin, |call| {
    if let Some(relation) = call.get(0) {
        mark::write_none(relation)?;
    }
    Ok(())
});

// `snowflake_alter_generator(generator, KEYS, fields)`. SECURITY LABEL checks all that concerns
// the new label, and asks for the same lock and the same owner. The label is read under that
// lock, so that no change of another session is lost; and only the owner gets the lock.
c_function!(snowflake_alter_generator, |call| {
    let Some(relation) = call.get(0) else {
        return Ok(());
    };
    generator::prevent_where_nextval_is(c"snowflake_alter_generator()");
    let entry = session::of_named(relation)?;
    let owner = catalog::owner_of(relation).ok_or_else(|| error::no_such_relation(relation))?;
    // SAFETY: looks up the catalogs.
    if !unsafe { pg_sys::has_privs_of_role(compat::user(), owner) } {
        return Err(error::not_the_owner(&entry.name()));
    }
    // SAFETY: in a transaction, which keeps the lock.
    unsafe { pg_sys::LockRelationOid(relation, pg_sys::ShareUpdateExclusiveLock.cast_signed()) };
    let text = entry.read_label(entry.is_default(), |relation| Ok(label::text_of(relation)))?;
    let (label, _) = changed(call, text.as_deref().unwrap_or_default(), 1)?;
    set_label(&catalog::qualified_name(relation), &label)
});

fn set_label(sequence: &str, label: &str) -> Result<(), Error> {
    let label = quote_literal(label);
    spi::run(&format!(
        "SECURITY LABEL FOR snowflake_id ON SEQUENCE {sequence} IS {label}"
    ))
}

/// What a generator with a label is told, by the names of the arguments: the values in force,
/// without keys that have no meaning, and the preset that the text names.
pub fn told(label: &Label, text: &str) -> BTreeMap<String, String> {
    let given = edit::given(text).unwrap_or_default();
    let preset = given.into_iter().filter(|(key, _)| key == "preset");
    let values = label.values().into_iter();
    preset
        .chain(values.map(|(key, value)| (key.to_string(), value)))
        .collect()
}

/// A row of a view: the columns before, those that show what a generator is told, in the order
/// of the arguments, and the columns behind.
pub fn told_row<const N: usize>(
    before: impl IntoIterator<Item = Option<pg_sys::Datum>>,
    told: &BTreeMap<String, String>,
    behind: impl IntoIterator<Item = Option<pg_sys::Datum>>,
) -> [Option<pg_sys::Datum>; N] {
    let told = KEYS
        .iter()
        .map(|key| told.get(*key).map(DatabaseText).into_datum());
    let mut columns = before.into_iter().chain(told).chain(behind);
    std::array::from_fn(|_| columns.next().flatten())
}

// The view `snowflake_presets`.
c_function!(snowflake_presets, |call| {
    let rows = presets::ALL.iter().filter_map(|preset| {
        let own = Label::parse(preset.text).ok();
        // The preset has no epoch of its own; the rest is the same with any epoch.
        let label = own
            .clone()
            .or_else(|| Label::parse(&format!("{} epoch=0", preset.text)).ok())?;
        let layout = label.layout();
        let mut told = told(&label, &format!("preset={}", preset.name));
        if own.is_none() {
            told.remove("epoch");
        }
        let with_epoch = |at| own.is_some().then(|| time::to_datum(at));
        let behind = columns![
            layout.ids_per_second().cast_signed(),
            layout.max_worker().cast_signed() + 1,
            with_epoch(layout.end()),
            layout.can_be_negative(),
            match layout.disorder() {
                Some(OrderError::NegativeFrom(at)) => with_epoch(at),
                _ => None,
            },
            DatabaseText(preset.text),
            DatabaseText(preset.origin),
        ];
        Some(told_row::<{ KEYS.len() + 7 }>([], &told, behind))
    });
    call.rows(rows);
    Ok(())
});
