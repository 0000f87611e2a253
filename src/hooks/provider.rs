//! The provider of our security labels: checks a label when it is set.
//!
//! # Changing a label
//!
//! PostgreSQL calls [`check`] before it stores a label. The check takes AccessExclusive
//! on the sequence, which waits for every transaction that has taken IDs (they hold
//! RowExclusive), and sends a relcache invalidation, since labels send none of their
//! own. The next session that takes IDs gets its lock after our commit, receives the
//! invalidation with the lock, and reads the new label. So no two sessions ever issue
//! with different labels.
//!
//! The check refuses nothing because of a clock, a setting or a registry: a dump must restore
//! anywhere. Of a worker field that is too small for this server it warns.
//!
//! # A labelled sequence can hold a mark
//!
//! A plain sequence that has issued nothing is altered to what
//! `snowflake_create_generator()` makes. A sequence that has issued a value is refused:
//! its `nextval()` would raise an error from then on, and its value would be lost. In a
//! dump the label comes after the bounds, which fit, and before or after the mark.

use std::ffi::{CStr, c_char};

use pgrx::pg_sys;

use crate::hooks::error::{self, Error};
use crate::hooks::notice;
#[cfg(feature = "pg19")]
use crate::hooks::subscription;
use crate::postgres::{catalog, encoding, error_report, size_limit};
use crate::server::shmem;
use crate::session::label::{self, PROVIDER};
use crate::session::{self, lease_wait, mark};
use snowflake_core::id::Millis;
use snowflake_core::id::layout::OrderError;
use snowflake_core::label::Label;
use snowflake_core::protocol::slot::Slot;

/// Registers the provider, in every process that loads the library.
pub fn register() {
    // SAFETY: a constant name and a function that live as long as the process.
    unsafe { pg_sys::register_label_provider(PROVIDER.as_ptr(), Some(on_label)) };
}

/// PostgreSQL has checked that the user owns the object, and has locked the object.
unsafe extern "C-unwind" fn on_label(object: *const pg_sys::ObjectAddress, label: *const c_char) {
    // SAFETY: PostgreSQL passes an object, and NULL or a NUL-terminated string. There
    // is nothing to drop.
    unsafe {
        error_report::guard(|| {
            if !label.is_null() {
                size_limit::LABEL.check(CStr::from_ptr(label).count_bytes())?;
            }
            check(*object, encoding::read(label).as_deref())
        });
    };
}

fn check(object: pg_sys::ObjectAddress, text: Option<&str>) -> Result<(), Error> {
    let relation = object.objectId;
    let is_sequence = object.classId == pg_sys::RelationRelationId
        && object.objectSubId == 0
        && catalog::kind(relation) == pg_sys::RELKIND_SEQUENCE;
    if !is_sequence {
        return Err(error::label_not_on_sequence());
    }
    if session::default_relation().is_ok_and(|default| default == relation) {
        return Err(error::label_on_default());
    }
    let label = text.map(label::parse_for_generator).transpose()?;
    // SAFETY: in a transaction, which keeps the lock.
    unsafe { pg_sys::LockRelationOid(relation, pg_sys::AccessExclusiveLock.cast_signed()) };
    let before = label::text_of(relation).and_then(|text| Label::parse(&text).ok());
    if let Some(before) = &before {
        check_change(relation, before, label.as_ref())?;
        session::of_sequence(relation).note_relabelling(before.layout());
    }
    if let (Some(label), Some(text)) = (&label, text) {
        #[cfg(feature = "pg19")]
        subscription::check_not_listed(relation)?;
        fit(relation, before.as_ref(), text)?;
        let name = session::of_sequence(relation).name();
        lease_wait::check_worker_field(&name, label).unwrap_or_else(Error::warning);
        if shmem::shared().is_ok() {
            let can_rotate = lease_wait::check_rotation(|| name, &label.generator());
            can_rotate.unwrap_or_else(Error::warning);
        }
        if label.layout().can_be_negative() {
            let from = match label.layout().disorder() {
                Some(OrderError::NegativeFrom(at)) => Some(at),
                _ => None,
            };
            notice::can_be_negative(from).notice();
        }
    }
    // SAFETY: the relation is locked, so it exists.
    unsafe { pg_sys::CacheInvalidateRelcacheByRelid(relation) };
    Ok(())
}

/// Refuses changes that could issue IDs twice or out of order. The relation is locked.
fn check_change(relation: pg_sys::Oid, before: &Label, after: Option<&Label>) -> Result<(), Error> {
    let entry = session::of_sequence(relation);
    // An unlogged sequence may have been logged before, and may be logged again.
    if entry.is_temporary() {
        return Ok(());
    }
    let shared = shmem::shared().ok();
    let running = shared.and_then(|shared| shared.with_slot(entry.key(), Slot::highest)?);
    // The generator has come no further than this.
    let Some(reached) = mark::stored(entry.relation(), &before.generator())?.max(running) else {
        return Ok(());
    };
    let name = entry.name();
    let Some(after) = after else {
        return Err(error::label_removed(&name));
    };
    let (layout, before_layout) = (after.layout(), before.layout());
    if let Some(change) = layout.change_from(before_layout) {
        let (before, after) = (before.layout_text(), after.layout_text());
        return Err(error::layout_changed(&name, change, &before, &after));
    }
    let last = layout.end();
    if layout != before_layout && reached >= last {
        return Err(error::layout_too_short(&name, reached, last));
    }
    let by = before_layout.epoch().since(layout.epoch());
    if by > Millis::ZERO {
        notice::epoch_moved(&name, by).notice();
    }
    Ok(())
}

/// Makes a sequence fit to hold a mark, or refuses it. `before` is the label that the
/// sequence has, `text` the new one. The relation is locked.
fn fit(relation: pg_sys::Oid, before: Option<&Label>, text: &str) -> Result<(), Error> {
    let entry = session::of_sequence(relation);
    if entry.is_temporary() {
        return catalog::check_fits(relation);
    }
    if let Err(unfit) = catalog::check_bounds(relation) {
        if let Some(value) = mark::last_value(entry.relation())? {
            let generator = before.map(Label::generator);
            let mark = generator
                .map(|it| mark::stored(entry.relation(), &it))
                .transpose()?;
            return Err(match mark.flatten() {
                Some(_) => unfit,
                None => used(relation, value, text),
            });
        }
        // SAFETY: a variable of this process.
        if !unsafe { pg_sys::IsBinaryUpgrade } {
            let name = entry.name();
            catalog::make_fit(relation, true)?;
            notice::made_fit(&name).notice();
        }
    }
    // A sequence without a past, so that a restart of it can be told from that. pg_upgrade copies
    // the files of sequences.
    // SAFETY: a variable of this process.
    let is_copied = unsafe { pg_sys::IsBinaryUpgrade };
    if before.is_none() && !is_copied && mark::row(relation)?.is_restarted() {
        mark::write_none(relation)?;
    }
    // A dump may contain an unlogged sequence that was logged when it got its label.
    catalog::check_fits(relation).unwrap_or_else(Error::warning);
    Ok(())
}

/// The error for a plain sequence that is in use.
fn used(relation: pg_sys::Oid, value: i64, label: &str) -> Error {
    let name = catalog::relation_name(relation);
    let owner = catalog::owning_column(relation);
    let beside = catalog::name_beside(owner.as_ref().map_or(relation, |(table, _)| *table));
    let beside = beside.as_ref().unwrap_or(&name);
    let column = owner.map(|(table, column)| (catalog::relation_name(table), column));
    error::used_sequence(&name, value, label, beside, column)
}
