//! What a DBA looks at: the state of each generator, and its statistics.

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern, pg_sys};

use super::super::entry::{self, Entry};
use super::super::error::Error;
use super::super::label::{self, Described};
use super::super::shmem::{self, View};
use super::super::{mark, os_clock, time};
use crate::snowflake::id::{Position, Tick, UnixMillis};

/// The generators of this database, the default one first.
fn generators() -> Result<Vec<&'static Entry>, Error> {
    let mut all = vec![entry::default_relation()?];
    all.extend(label::all()?);
    Ok(all.into_iter().map(entry::of).collect())
}

fn view(entry: &Entry) -> Option<View> {
    // Our own share included.
    entry.flush_stats();
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId };
    shmem::shared().ok()?.view(database, entry.relation())
}

fn interval(millis: i64) -> Interval {
    Interval::from_micros(millis.saturating_mul(1000))
}

/// What only those see who may use the generator, as with `pg_sequences`.
#[derive(Default)]
struct Progress {
    last_id_at: Option<UnixMillis>,
    reserved_until: Option<UnixMillis>,
    ahead_millis: i64,
    gap_at: Option<UnixMillis>,
    refused_at: Option<UnixMillis>,
}

fn progress(entry: &Entry, readable: bool) -> Progress {
    let layout = entry.generator().layout;
    let wall = os_clock::read().wall.millis();
    let shown = view(entry);
    // What cannot be read is shown as unknown; generating says what is wrong.
    let mark = || {
        readable
            .then(|| mark::stored(entry, layout).ok().flatten())
            .flatten()
    };
    let reserved_until = shown
        .as_ref()
        .filter(|shown| shown.reserved != Position::ZERO)
        .map(|shown| layout.instant_of(layout.tick_of(shown.reserved)));
    let settled = reserved_until.is_some();
    let reserved_until = reserved_until.or_else(mark);
    // It goes on from its word or its clock, whichever is later, or starts at
    // its mark. Where nothing is issued, clock and word say nothing.
    // SAFETY: reads shared memory.
    let in_recovery = unsafe { pg_sys::RecoveryInProgress() };
    let counting = entry
        .running_at()
        .filter(|_| !in_recovery)
        .map(|position| layout.instant_of(layout.tick_of(position)));
    let next = counting.max(reserved_until.filter(|_| !settled));
    Progress {
        last_id_at: shown
            .as_ref()
            .and_then(|shown| shown.counts.last_tick)
            .map(|tick: Tick| layout.instant_of(tick)),
        reserved_until,
        ahead_millis: next.map_or(0, |next| next.get().saturating_sub(wall.get()).max(0)),
        gap_at: shown.as_ref().and_then(|shown| shown.gap_at),
        refused_at: shown.and_then(|shown| shown.refused_at),
    }
}

/// The view `snowflake_generators`.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn snowflake_generators() -> Result<
    TableIterator<
        'static,
        (
            name!(generator, pg_sys::Oid),
            name!(worker_id, Option<i32>),
            name!(last_id_at, Option<TimestampWithTimeZone>),
            name!(reserved_until, Option<TimestampWithTimeZone>),
            name!(ahead_by, Option<Interval>),
            name!(refused_since, Option<TimestampWithTimeZone>),
            name!(gap_applied_at, Option<TimestampWithTimeZone>),
            name!(ids_per_second, Option<i64>),
            name!(ends_at, Option<TimestampWithTimeZone>),
            name!(problem, Option<String>),
            name!(layout, Option<String>),
            name!(epoch, Option<TimestampWithTimeZone>),
            name!(tick, Option<Interval>),
            name!(policy, Option<String>),
            name!(label, Option<&'static str>),
        ),
    >,
    ErrorReport,
> {
    let worker = shmem::shared()
        .ok()
        .and_then(|shared| shared.worker_id())
        .and_then(|worker| i32::try_from(worker.get()).ok());
    // One lock at a time, however many generators there are; `None` is one that
    // was dropped since the list was made.
    let row = |entry: &'static Entry| {
        let described = entry.learn_label();
        let visible = entry.may_watch();
        let shown = if visible && described.is_ok() {
            progress(entry, entry.is_permanent())
        } else {
            Progress::default()
        };
        let problem = problem(entry, &described);
        let text = described
            .as_ref()
            .ok()
            .map(|described| described.text.as_str());
        let label = described.ok().map(|described| &described.label);
        let layout = label.map(|label| label.layout());
        Some((
            entry.relation(),
            worker.filter(|_| layout.is_none_or(|layout| layout.has_worker())),
            shown.last_id_at.map(time::to_datum),
            shown.reserved_until.map(time::to_datum),
            visible.then(|| interval(shown.ahead_millis)),
            shown.refused_at.map(time::to_datum),
            shown.gap_at.map(time::to_datum),
            label.map(|label| label.generator().layout.ids_per_second().cast_signed()),
            layout.map(|layout| time::to_datum(layout.instant_of(layout.last_tick()))),
            problem,
            label.map(|label| label.layout_text()),
            layout.map(|layout| time::to_datum(layout.epoch())),
            layout.map(|layout| interval(layout.tick_millis())),
            label.map(|label| label.policy_text()),
            text,
        ))
    };
    let rows = generators()?
        .into_iter()
        .filter_map(|entry| entry.with_share_lock(|| row(entry)));
    Ok(TableIterator::new(rows.collect::<Vec<_>>()))
}

/// Why this server can issue no IDs, whatever becomes of its clock.
fn problem(entry: &Entry, described: &Result<&'static Described, Error>) -> Option<String> {
    let layout = match described {
        Ok(described) => described.generator.layout,
        Err(error) => return Some(error.in_a_line()),
    };
    let can_issue = shmem::shared().and_then(|shared| entry.check_can_issue(shared));
    let now = layout.tick_number(os_clock::read().wall.millis());
    let name = entry.name();
    let error = match can_issue {
        Err(error) => error,
        Ok(()) if now < 0 => Error::ClockBeforeEpoch {
            name,
            epoch: layout.epoch(),
        },
        Ok(()) if now >= layout.last_tick().get().cast_signed() => Error::TimeUsedUp {
            name,
            last: layout.instant_of(layout.last_tick()),
        },
        Ok(()) => return None,
    };
    Some(error.in_a_line())
}

/// The view `pg_stat_snowflake`.
#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn pg_stat_snowflake() -> Result<
    TableIterator<
        'static,
        (
            name!(generator, pg_sys::Oid),
            name!(issued, i64),
            name!(batches, i64),
            name!(waits, i64),
            name!(wait_time, f64),
            name!(borrowed, i64),
            name!(refusals, i64),
            name!(clock_rollbacks, i64),
            name!(largest_rollback, Option<Interval>),
            name!(reservations, i64),
            name!(reservation_time, f64),
            name!(stats_reset, TimestampWithTimeZone),
        ),
    >,
    ErrorReport,
> {
    shmem::shared()?;
    let mut rows = Vec::new();
    for entry in generators()? {
        // Without a slot there is nothing to tell.
        let Some(View { counts, .. }) = view(entry) else {
            continue;
        };
        let largest = counts.largest_rollback_millis;
        rows.push((
            entry.relation(),
            counts.issued.cast_signed(),
            counts.batches.cast_signed(),
            counts.waits.cast_signed(),
            millis(counts.wait_nanos),
            counts.borrowed.cast_signed(),
            counts.refusals.cast_signed(),
            counts.rollbacks.cast_signed(),
            (largest > 0).then(|| interval(largest)),
            counts.reservations.cast_signed(),
            millis(counts.reservation_nanos),
            time::micros_to_datum(counts.reset_at),
        ));
    }
    Ok(TableIterator::new(rows))
}

/// As PostgreSQL's own views give times.
fn millis(nanos: u64) -> f64 {
    // Exact up to 2^53 ns, 104 days.
    #[allow(clippy::cast_precision_loss)]
    let nanos = nanos as f64;
    nanos / 1e6
}

/// `snowflake_stat_reset()`.
#[pg_extern(sql = false)]
fn snowflake_stat_reset() -> Result<(), ErrorReport> {
    for entry in generators()? {
        entry.flush_stats();
    }
    reset(None)
}

/// `snowflake_stat_reset(generator)`.
#[pg_extern(sql = false)]
fn snowflake_stat_reset_of(generator: pg_sys::Oid) -> Result<(), ErrorReport> {
    let entry = entry::of(generator);
    entry.describe()?;
    entry.flush_stats();
    reset(Some(generator))
}

fn reset(generator: Option<pg_sys::Oid>) -> Result<(), ErrorReport> {
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId };
    shmem::shared()?.reset_stats(database, generator);
    Ok(())
}
