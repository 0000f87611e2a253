//! What a DBA looks at: the state of each generator, and its statistics.

use std::cell::OnceCell;
use std::rc::Rc;

use pgrx::pg_sys;

use crate::keeper;
use crate::postgres::{catalog, compat, encoding::DatabaseText, time};
use crate::server::{guc, lease_error, os_clock, shmem};
use crate::session;
use crate::session::label::{self, ParsedLabel};
use crate::session::{generator::SessionGenerator, lease_wait, mark, tx_holds};
use crate::sql::call::{c_function, columns};
use crate::sql::create::{told, told_row};
use crate::sql::error::{self, Error};
use snowflake_core::id::{Millis, Position, UnixMillis};
use snowflake_core::label::KEYS;
use snowflake_core::label::generator::Generator;
use snowflake_core::protocol::host::IssueError;
use snowflake_core::protocol::plan::{Author, MarkError, ReserveError};
use snowflake_core::protocol::stats::Counts;

/// The generators of this database, the default one first.
fn generators() -> Result<impl Iterator<Item = &'static SessionGenerator>, Error> {
    let all = std::iter::once(session::default_relation()?).chain(label::all());
    Ok(all.map(session::of_sequence))
}

#[derive(Clone, Copy)]
struct View {
    reserved: Position,
    gap_at: Option<UnixMillis>,
    put_back_at: Option<UnixMillis>,
    refused_at: Option<UnixMillis>,
    knows_marks: bool,
    counts: Counts,
}

fn view(entry: &SessionGenerator) -> Option<View> {
    // After this, the slot's counts include those of this session.
    entry.flush_stats();
    shmem::shared().ok()?.with_slot(entry.key(), |slot| View {
        reserved: slot.live().bounds().in_force(),
        gap_at: slot.gap_at(),
        put_back_at: slot.put_back_at(),
        refused_at: slot.refused_at(),
        knows_marks: slot.highest().is_some(),
        counts: slot.stats().read(),
    })
}

/// The instant of a generator's next ID, by its cursor or its clock, whichever is later,
/// or by its mark if nothing is reserved; `None` if there is neither.
fn next(
    entry: &SessionGenerator,
    generator: &Generator,
    mark: Option<UnixMillis>,
) -> Option<UnixMillis> {
    let layout = generator.layout;
    // In recovery nothing is issued, so there is no word.
    let running = entry.running_at(generator);
    let next = running.map(|position| layout.instant_of(layout.tick_of(position)));
    next.max(mark)
}

/// What is on disk for a generator: its mark, or what is there instead. A file that
/// cannot be read is shown as unknown; generating raises the error.
fn on_disk(
    entry: &SessionGenerator,
    generator: &Generator,
) -> Result<Option<UnixMillis>, MarkError> {
    // Others have no file in recovery.
    if catalog::persistence(entry.relation()) != pg_sys::RELPERSISTENCE_PERMANENT {
        return Ok(None);
    }
    let now = os_clock::wall().millis();
    let Ok(on_disk) = mark::read(entry.relation()) else {
        return Ok(None);
    };
    if on_disk.author == Author::Restart {
        return Err(MarkError::Restart);
    }
    let read = on_disk.value.map(|value| generator.read_mark(value, now));
    Ok(read.transpose()?.map(|(mark, _)| mark))
}

/// Up to this, a lead is ordinary: a tick was exhausted, or an ID was observed.
const ORDINARY_LEAD: Millis = Millis::new(1000);

/// A cause explains a lead if it made half of it, and all but this: what marks, gaps and
/// borrowing add.
const ADDED_LEAD: Millis = Millis::new(60_000);

/// What can put generators ahead of the wall clock.
struct Causes {
    /// What is left of the lead with which the lease of this server began, and why it did. A
    /// lead shrinks by half a second per second.
    lease: Option<(Millis, &'static str)>,
    /// [`largest_rollback`]: any generator may have found it first. Read when needed.
    rollback: OnceCell<Millis>,
}

impl Causes {
    fn at(now: UnixMillis) -> Self {
        let began = shmem::shared().ok().and_then(|shared| {
            shared.with_lease(|_, state| {
                Some((
                    state.tenure.floor?,
                    state.shown.since?,
                    state.shown.because?,
                ))
            })
        });
        Self {
            lease: began.map(|(floor, since, because)| {
                let left = floor.since(since).minus(now.since(since).half());
                (left, lease_error::because(because))
            }),
            rollback: OnceCell::new(),
        }
    }

    /// Why the next ID of a generator is ahead of the wall clock by this: a clause.
    fn of(&self, lead: Millis) -> Option<&'static str> {
        if lead <= ORDINARY_LEAD {
            return None;
        }
        let explains = |by: Millis| by >= lead.half().max(lead.minus(ADDED_LEAD));
        Some(match self.lease.filter(|(left, _)| explains(*left)) {
            Some((_, because)) => because,
            None if explains(*self.rollback.get_or_init(largest_rollback)) => {
                "the clock was set back"
            }
            None => "it was advanced, or its mark was ahead",
        })
    }
}

/// The most by which generators of this database have found the clock set back.
fn largest_rollback() -> Millis {
    let of = |entry| view(entry).map(|view| view.counts.largest_rollback_millis.cast_signed());
    let most = generators().ok().and_then(|all| all.filter_map(of).max());
    most.map_or(Millis::ZERO, Millis::new)
}

// The view `snowflake_generators`.
c_function!(snowflake_generators, |call| {
    let shared = shmem::shared().ok();
    let causes = Causes::at(os_clock::wall().millis());
    // One lock at a time, however many generators there are, and without waiting: a
    // view that hangs shows nothing about the others. `None` is a generator that was
    // dropped after the list was made.
    let row = |entry: &'static SessionGenerator, is_held: bool| {
        let described = entry
            .read_label(entry.is_default(), label::read)
            .map(|read| read.unwrap_or_else(|| Rc::new(label::of_default().clone())));
        let view = view(entry);
        let it = described.as_ref().ok();
        // The file may be read under a lock only; labels and shared memory need none.
        let readable = it.filter(|_| is_held);
        let mark = readable.map_or(Ok(None), |it| on_disk(entry, &it.generator));
        // Shown only to users who may use the generator, as with `pg_sequences`.
        let visible = entry.may_watch();
        // A generator whose slot knows its marks repairs the one on disk.
        let heals = view.is_some_and(|view| view.knows_marks);
        let no_mark = mark.err().filter(|_| visible && !heals);
        let problem = match &described {
            _ if !is_held => Some(error::locked(&entry.name()).in_a_line()),
            Ok(it) => problem(entry, it, no_mark).map(|error| error.in_a_line()),
            Err(error) => Some(error.in_a_line()),
        };
        // The generator's layout, in which positions count.
        let layout = it.map(|it| it.generator.layout);
        let worker = shared.and_then(|shared| match it {
            Some(it) if !it.generator.layout.has_worker() => None,
            _ => shared.server().generation().worker(),
        });
        let shown = view.filter(|_| visible).zip(layout);
        let mark = mark.ok().flatten().filter(|_| visible);
        let reserved = shown
            .filter(|(view, _)| view.reserved != Position::ZERO)
            .map(|(view, layout)| layout.instant_of(layout.tick_of(view.reserved)));
        // The next rotation starts at the clock.
        let rotates = it.is_some_and(|it| it.generator.rotates_worker());
        let may_go_back = rotates && view.is_some_and(|view| view.knows_marks);
        let start = mark.filter(|_| reserved.is_none() && !may_go_back);
        let wall = os_clock::wall().millis();
        let next = it.and_then(|it| next(entry, &it.generator, start));
        // Without a cursor and a mark, the generator starts at the wall clock.
        let next = next.or(is_held.then_some(wall)).filter(|_| visible);
        let lead = next.map(|next| next.since(wall).max(Millis::ZERO));
        let state = columns![
            entry.relation(),
            worker.map(|worker| worker.get().cast_signed()),
            shown
                .and_then(|(view, layout)| Some(layout.instant_of(view.counts.last_tick?)))
                .map(time::to_datum),
            reserved.or(mark).map(time::to_datum),
            lead.map(time::interval),
            lead.and_then(|lead| causes.of(lead)).map(DatabaseText),
            shown
                .and_then(|(view, _)| view.refused_at)
                .map(time::to_datum),
            shown.and_then(|(view, _)| view.gap_at).map(time::to_datum),
            shown
                .and_then(|(view, _)| view.put_back_at)
                .map(time::to_datum),
            layout.map(|layout| layout.ids_per_second().cast_signed()),
            layout.map(|layout| time::to_datum(layout.end())),
            problem.map(DatabaseText),
        ];
        let told = it.map(|it| told(&it.label, &it.text)).unwrap_or_default();
        let label = columns![it.map(|it| DatabaseText(&it.text))];
        Some(told_row::<{ 12 + KEYS.len() + 1 }>(state, &told, label))
    };
    let all = generators()?;
    call.rows(all.filter_map(|entry| entry.with_share_lock(false, |is_held| row(entry, is_held))));
    Ok(())
});

/// Why this server can issue no IDs, whatever its clock does.
fn problem(
    entry: &SessionGenerator,
    described: &ParsedLabel,
    no_mark: Option<MarkError>,
) -> Option<Error> {
    let (name, generator) = (entry.name(), &described.generator);
    let can_issue = lease_wait::check_rotation(|| name.clone(), generator)
        .and_then(|()| entry.check_can_issue(described, shmem::shared()?))
        .and_then(|()| lease_wait::check_worker_field(&name, &described.label));
    if let Err(error) = can_issue {
        return Some(error);
    }
    let (epoch, last) = (generator.layout.epoch(), generator.layout.end());
    let now = os_clock::wall().millis();
    let refusal = match no_mark {
        Some(no_mark) => ReserveError::NoMark(no_mark),
        None if now < epoch => ReserveError::BeforeEpoch { epoch },
        None if now >= last => ReserveError::TimeUsedUp { last },
        None => return None,
    };
    let why = IssueError::Reservation(refusal);
    Some(lease_wait::refused(&name, generator, why))
}

// The view `snowflake_worker`.
c_function!(snowflake_worker, |call| {
    let shared = shmem::shared()?;
    let (tenure, shown) = shared.with_lease(|_, state| (state.tenure, state.shown.clone()));
    let worker = tenure.generation.worker();
    let is_granted = tenure.floor.is_some();
    let source = match (worker, guc::worker()) {
        (None, _) => "none",
        (Some(_), (Some(_), guc::Source::Setting)) => "setting",
        (Some(_), (Some(_), guc::Source::Hostname)) => "hostname",
        (Some(_), (Some(_), guc::Source::Env)) => "env",
        _ => "registry",
    };
    // SAFETY: looks up the catalogs.
    let reads_all =
        unsafe { pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into()) };
    let text = |text: String| (!text.is_empty()).then_some(DatabaseText(text));
    let token = shown.nonce.filter(|_| is_granted).map(|nonce| {
        let nonce = format!("{:032x}", nonce.0);
        let start: String = nonce.chars().take(8).collect();
        DatabaseText(format!("{}-{start}", shown.counter))
    });
    let failure = shown.failure.filter(|_| reads_all);
    let (registry, pool) = match shown.registry.get() {
        // A standby has no keeper, and follows the settings once it is promoted.
        registry if registry.is_empty() => keeper::configured().unwrap_or_default(),
        registry => (registry, shown.pool.get()),
    };
    Ok(call.row(columns![
        worker.map(|worker| worker.get().cast_signed()),
        DatabaseText(source),
        text(registry).filter(|_| reads_all),
        text(pool),
        token.filter(|_| reads_all),
        tenure.bound.filter(|_| is_granted).map(time::to_datum),
        shown
            .leased_until
            .filter(|_| is_granted)
            .map(|until| time::to_datum(until.as_nodes_clock())),
        shown.last_contact.map(time::to_datum),
        shown.clock_ahead.map(time::interval),
        failure.map(|obstacle| DatabaseText(lease_error::with_host(&obstacle))),
        shown.since.filter(|_| worker.is_some()).map(time::to_datum),
    ]))
});

// The view `pg_stat_snowflake`.
c_function!(pg_stat_snowflake, |call| {
    let locked = tx_holds::locked(shmem::shared()?);
    let now = os_clock::wall().millis();
    let rows = generators()?.filter_map(|entry| {
        // A generator without a slot has no counts.
        let counts = view(entry)?.counts;
        let largest = Millis::new(counts.largest_rollback_millis.cast_signed());
        Some(columns![
            entry.relation(),
            counts.issued.cast_signed(),
            counts.batches.cast_signed(),
            counts.waits.cast_signed(),
            millis(counts.wait_nanos),
            counts.borrowed.cast_signed(),
            counts.refusals.cast_signed(),
            counts.rollbacks.cast_signed(),
            (largest > Millis::ZERO).then(|| time::interval(largest)),
            counts.reservations.cast_signed(),
            millis(counts.reservation_nanos),
            // Already a timestamptz.
            counts.reset_at,
            crate::sql::horizon_functions::lag(entry, &locked, now),
        ])
    });
    call.rows(rows);
    Ok(())
});

/// A duration in milliseconds, as PostgreSQL's own views give it.
fn millis(nanos: u64) -> f64 {
    // Exact up to 2^53 ns, 104 days.
    #[allow(clippy::cast_precision_loss)]
    let nanos = nanos as f64;
    nanos / 1e6
}

// `snowflake_stat_reset([generator])`.
c_function!(snowflake_stat_reset, |call| {
    let generator = call.generator(0).map(session::of_named).transpose()?;
    match generator {
        Some(entry) => {
            entry.describe()?;
            entry.flush_stats();
        }
        None => generators()?.for_each(SessionGenerator::flush_stats),
    }
    shmem::shared()?.reset_stats(generator.map(SessionGenerator::key));
    Ok(())
});
