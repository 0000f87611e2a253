//! Making generators, and the presets for them.

use std::ffi::CStr;

use pgrx::pg_sys;
use pgrx::spi::quote_literal;

use super::super::encoding::{DatabaseText, from_server};
use super::super::{
    catalog, error, label, lease_wait, mark, os_clock, report, session, session_generator, shmem,
    spi, time,
};
use super::call::{c_function, columns};
use super::limit;
use snowflake_core::label::Label;
use snowflake_core::layout::OrderError;
use snowflake_core::presets;

// `snowflake_create_generator(name, label) -> regclass`.
c_function!(snowflake_create_generator, |call| {
    let label = call.text(1, &limit::LABEL);
    session_generator::prevent_where_nextval_is(c"snowflake_create_generator()");
    let described = label::parse_for_generator(&label)?;
    let layout = described.layout();
    // Checked here and not with the label: a dump must restore at any time.
    if os_clock::wall().millis() >= layout.end() {
        let layout_text = described.layout_text();
        return Err(error::layout_is_over(&layout_text, layout.end()));
    }
    lease_wait::check_worker_field(&call.name(0), &described, None)?;
    let name = call.measured(0, &limit::NAME).cast_mut_ptr();
    // SAFETY: a text; its parts live as long as this call. CREATE SEQUENCE checks
    // privileges on the schema.
    let (schema, relation_name, statement) = report::keeping_errors(|| unsafe {
        let names = pg_sys::textToQualifiedNameList(name);
        let variable = pg_sys::makeRangeVarFromNameList(names);
        let schema = pg_sys::RangeVarGetCreationNamespace(variable);
        let relation = (*variable).relname;
        let quoted =
            pg_sys::quote_qualified_identifier(pg_sys::get_namespace_name(schema), relation);
        (schema, relation, from_server(CStr::from_ptr(quoted)))
    });
    spi::run(&format!("CREATE SEQUENCE {statement} {}", catalog::FIT))?;
    // SAFETY: looks up the catalogs; the name is NUL-terminated.
    let relation = unsafe { pg_sys::get_relname_relid(relation_name, schema) };
    let entry = session::of_sequence(relation);
    mark::write_none(entry.relation());
    let quoted = quote_literal(&label);
    spi::run(&format!(
        "SECURITY LABEL FOR snowflake_id ON SEQUENCE {statement} IS {quoted}"
    ))?;
    entry.lock();
    // A temporary schema makes a temporary sequence.
    let facts = entry.learn()?;
    if let Ok(shared) = shmem::shared()
        && let Err(error) = entry.check_can_issue(facts.described, shared)
    {
        error.warning();
    }
    Ok(relation)
});

// The view `snowflake_presets`.
c_function!(snowflake_presets, |call| {
    let rows = presets::ALL.iter().filter_map(|preset| {
        let own = Label::parse(preset.text).ok();
        // The preset has no epoch of its own; the rest is the same with any epoch.
        let label = own
            .clone()
            .or_else(|| Label::parse(&format!("{} epoch=0", preset.text)).ok())?;
        let layout = label.layout();
        let with_epoch = |at| own.is_some().then(|| time::to_datum(at));
        Some(columns![
            DatabaseText(preset.name),
            DatabaseText(label.layout_text()),
            with_epoch(layout.epoch()),
            time::interval(layout.tick()),
            layout.ids_per_second().cast_signed(),
            layout.max_worker().cast_signed() + 1,
            with_epoch(layout.end()),
            layout.can_be_negative(),
            match layout.disorder() {
                Some(OrderError::NegativeFrom(at)) => with_epoch(at),
                _ => None,
            },
            DatabaseText(label.policy_text()),
            DatabaseText(preset.text),
            DatabaseText(preset.origin),
        ])
    });
    call.rows(rows);
    Ok(())
});
