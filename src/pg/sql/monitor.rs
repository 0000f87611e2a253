//! What a DBA looks at: the state of each generator, and its statistics.

use std::rc::Rc;

use pgrx::datum::{Interval, TimestampWithTimeZone};
use pgrx::iter::TableIterator;
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{name, pg_extern, pg_sys};

use super::super::entry::{self, Entry};
use super::super::error::{self, Error};
use super::super::label::{self, Described};
use super::super::shmem::{self, Key};
use super::super::{mark, os_clock, time};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Millis, Position, Tick, UnixMillis};
use crate::snowflake::reservation::{NoMark, Refusal};
use crate::snowflake::server::Refused;
use crate::snowflake::slot::Scale;
use crate::snowflake::stats::Counts;

/// The generators of this database, the default one first.
fn generators() -> Result<Vec<&'static Entry>, Error> {
    let mut all = vec![entry::default_relation()?];
    all.extend(label::all()?);
    Ok(all.into_iter().map(entry::of_sequence).collect())
}

/// What a view shows of a slot, as of one moment.
struct View {
    next: Option<Position>,
    reserved: Position,
    gap_at: Option<UnixMillis>,
    refused_at: Option<UnixMillis>,
    knows_marks: bool,
    counts: Counts,
}

/// What there is to see of a generator that has a slot. Only that of one whose label
/// is known tells where it goes on.
fn view(entry: &Entry, generator: Option<&Generator>) -> Option<View> {
    // Our own share included.
    entry.flush_stats();
    let reading = os_clock::read();
    shmem::shared().ok()?.with_slot(entry.key(), |slot| {
        let runs = |generator: &&Generator| {
            slot.live().word().position() != Position::ZERO
                && slot.scale() == Scale::of_generator(generator)
        };
        View {
            next: generator
                .filter(runs)
                .map(|generator| slot.live().next(generator, reading)),
            reserved: slot.live().bounds().reserved(),
            gap_at: slot.gap_at(),
            refused_at: slot.refused_at(),
            knows_marks: slot.highest().is_some(),
            counts: slot.stats().read(),
        }
    })
}

fn interval(millis: i64) -> Interval {
    Interval::from_micros(millis.saturating_mul(1000))
}

/// What only those see who may use the generator, as with `pg_sequences`.
#[derive(Default)]
struct Progress {
    last_id_at: Option<UnixMillis>,
    reserved_until: Option<UnixMillis>,
    ahead: Millis,
    gap_at: Option<UnixMillis>,
    refused_at: Option<UnixMillis>,
}

fn progress(generator: &Generator, shown: Option<&View>, mark: Option<UnixMillis>) -> Progress {
    let layout = generator.layout;
    let wall = os_clock::read().wall.millis();
    let instant = |position| layout.instant_of(layout.tick_of(position));
    let reserved_until = shown
        .filter(|shown| shown.reserved != Position::ZERO)
        .map(|shown| instant(shown.reserved));
    // It goes on from its word or its clock, whichever is later, or starts at
    // its mark. Where nothing is issued, clock and word say nothing.
    // SAFETY: reads shared memory.
    let in_recovery = unsafe { pg_sys::RecoveryInProgress() };
    let counting = shown
        .filter(|_| !in_recovery)
        .and_then(|shown| shown.next)
        .map(instant);
    let next = counting.max(mark.filter(|_| reserved_until.is_none()));
    Progress {
        last_id_at: shown
            .and_then(|shown| shown.counts.last_tick)
            .map(|tick: Tick| layout.instant_of(tick)),
        reserved_until: reserved_until.or(mark),
        ahead: next.map_or(Millis::ZERO, |next| next.since(wall).max(Millis::ZERO)),
        gap_at: shown.and_then(|shown| shown.gap_at),
        refused_at: shown.and_then(|shown| shown.refused_at),
    }
}

/// What the disk has of a generator: its mark, or what is there instead. What cannot
/// be read is shown as unknown; generating says what is wrong.
fn on_disk(entry: &Entry, generator: &Generator) -> Result<Option<UnixMillis>, NoMark> {
    if !entry.is_permanent() {
        return Ok(None);
    }
    let now = os_clock::wall().millis();
    let value = mark::read(entry).ok().and_then(|on_disk| on_disk.value);
    let read = value.map(|value| generator.read_mark(value, now));
    Ok(read.transpose()?.map(|(mark, _)| mark))
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
            name!(label, Option<String>),
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
        let described = entry
            .read_label(entry.is_default(), label::read)
            .map(|read| read.unwrap_or_else(|| Rc::new(label::of_default().clone())));
        let generator = described.as_ref().ok().map(|it| it.generator);
        let view = view(entry, generator.as_ref());
        let mark = generator.as_ref().map(|it| on_disk(entry, it));
        let visible = entry.may_watch();
        let shown = match &generator {
            Some(generator) if visible => {
                let mark = mark.and_then(Result::ok).flatten();
                progress(generator, view.as_ref(), mark)
            }
            _ => Progress::default(),
        };
        // A generator that knows how far its marks were heals the one on disk.
        let no_mark = mark
            .and_then(Result::err)
            .filter(|_| visible && view.is_none_or(|view| !view.knows_marks));
        let problem = problem(entry, &described, no_mark);
        let described = described.ok();
        let label = described.as_ref().map(|described| &described.label);
        let text = described.as_ref().map(|described| described.text.clone());
        let layout = label.map(|label| label.layout());
        Some((
            entry.relation(),
            worker.filter(|_| layout.is_none_or(|layout| layout.has_worker())),
            shown.last_id_at.map(time::to_datum),
            shown.reserved_until.map(time::to_datum),
            visible.then(|| interval(shown.ahead.get())),
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
fn problem(
    entry: &Entry,
    described: &Result<Rc<Described>, Error>,
    no_mark: Option<NoMark>,
) -> Option<String> {
    let described = match described {
        Ok(described) => described,
        Err(error) => return Some(error.in_a_line()),
    };
    let layout = described.generator.layout;
    let now = layout.tick_number(os_clock::wall().millis());
    let refusal = match no_mark {
        Some(no_mark) => Some(Refusal::NoMark(no_mark)),
        None if now < 0 => Some(Refusal::BeforeEpoch {
            epoch: layout.epoch(),
        }),
        None if now >= layout.last_tick().get().cast_signed() => Some(Refusal::TimeUsedUp {
            last: layout.instant_of(layout.last_tick()),
        }),
        None => None,
    };
    let refused = || {
        let why = Refused::Reservation(refusal?);
        Some(error::refused(&entry.name(), &described.generator, why))
    };
    let can_issue = shmem::shared().and_then(|shared| entry.check_can_issue(described, shared));
    let error = can_issue.err().or_else(refused)?;
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
        let Some(View { counts, .. }) = view(entry, None) else {
            continue;
        };
        let largest = counts.largest_rollback_millis.cast_signed();
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
    let entry = entry::of_sequence(generator);
    entry.describe()?;
    entry.flush_stats();
    reset(Some(entry.key()))
}

fn reset(generator: Option<Key>) -> Result<(), ErrorReport> {
    shmem::shared()?.reset_stats(generator);
    Ok(())
}
