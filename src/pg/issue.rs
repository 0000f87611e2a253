//! Acts on the core's steps until there is an ID.

use pgrx::pg_sys;

use super::compat;
use super::entry::{Entry, Place};
use super::error::Error;
use super::mark::{self, Need};
use super::os_clock;
use crate::snowflake::clock::UnixNanos;
use crate::snowflake::generator::{Generator, Step};
use crate::snowflake::id::{Position, SnowflakeId, Tick, UnixMillis};
use crate::snowflake::layout::Stamp;
use crate::snowflake::policy::{OnExhausted, OnRollback};
use crate::snowflake::shuffle::Shuffle;
use crate::snowflake::watch::{Patience, STANDSTILL_MILLIS};

/// The longest and the shortest nap while waiting for the clock. The wait is
/// over when a tick has passed; a nap is shorter than that, so that a tick is
/// not lost, and long enough to give the core away.
const NAP_MICROS_MAX: i64 = 500;
const NAP_MICROS_MIN: i64 = 50;

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Consecutive positions of this session, and what makes IDs of them.
#[derive(Clone, Copy)]
pub struct Chunk {
    next: Position,
    end: Position,
    generator: &'static Generator,
    is_plain: bool,
    stamp: Stamp,
    shuffle: Option<Shuffle>,
}

impl Iterator for Chunk {
    type Item = SnowflakeId;

    #[inline]
    fn next(&mut self) -> Option<SnowflakeId> {
        if self.next >= self.end {
            return None;
        }
        let layout = self.generator.layout;
        let id = if self.is_plain {
            layout.compose(self.next, self.stamp)
        } else {
            layout.compose_in(self.next, self.stamp, self.shuffle.as_ref())
        };
        self.next = Position::new(self.next.get() + 1);
        Some(id)
    }
}

/// One ID, if that takes no waiting, no reserving and no catalog.
#[inline]
pub fn next_fast(entry: &Entry) -> Option<SnowflakeId> {
    let place = entry.plain_place()?;
    let generator = entry.generator();
    let Step::Issue {
        start,
        end,
        borrowed,
    } = step(generator, place, 1)
    else {
        return None;
    };
    let id = generator.layout.compose(start, entry.stamp());
    entry.set_last_id(id);
    if entry.pending().count_issued(1, borrowed) {
        entry.flush_stats();
    }
    if place.slot.bounds().elect_early(end) {
        early(entry, place, generator, start);
    }
    Some(id)
}

/// The ID is issued already; reserving ahead of need comes on top.
#[cold]
fn early(entry: &Entry, place: Place, generator: &Generator, issued: Position) {
    let tick = generator.layout.tick_of(issued);
    if let Err(error) = mark::reserve(entry, place, Need::Early(tick)) {
        error.raise();
    }
}

// Once, for both callers: compiled apart, it costs each ID four instructions more.
#[inline(never)]
fn step(generator: &Generator, place: Place, count: u64) -> Step {
    place
        .state
        .word()
        .issue(generator, place.slot.bounds(), count, || {
            generator
                .layout
                .tick_number(place.state.clock().now(os_clock::boot()).millis())
        })
}

/// The same, by whatever the policy looks at.
#[inline]
fn step_by_policy(generator: &Generator, place: Place, count: u64) -> Step {
    if !generator.policy.on_rollback.watches() {
        return step(generator, place, count);
    }
    let (state, bounds) = (place.state, place.slot.bounds());
    state.word().issue_watching(
        generator,
        bounds,
        state.watch(),
        count,
        os_clock::wall,
        os_clock::boot,
    )
}

/// `count` IDs, at most [`Generator::max_chunk`] of the entry's generator; or
/// fewer, where so many would hardly ever be free at once. Waits for the clock
/// and reserves as needed; a failed call issues nothing.
#[cold]
pub fn next_chunk(entry: &'static Entry, mut count: u64) -> Result<Chunk, Error> {
    let mut waits = Waits::default();
    loop {
        // After a wait or a reservation everything is looked at again: the
        // sequence may be gone by now, or the transaction read-only.
        let place = match entry.place() {
            Some(place) => place,
            None => entry.fill()?,
        };
        let generator = entry.generator();
        let layout = generator.layout;
        match step_by_policy(generator, place, count) {
            Step::Issue {
                start,
                end,
                borrowed,
            } => {
                let issued = end.get() - start.get();
                if entry.pending().count_issued(issued, borrowed) || waits.counted {
                    entry.flush_stats();
                }
                if place.slot.is_refused_behind() {
                    mark::end_refusal(entry, place);
                }
                if place.slot.bounds().elect_early(end) {
                    let last = Position::new(end.get() - 1);
                    mark::reserve(entry, place, Need::Early(layout.tick_of(last)))?;
                }
                return Ok(Chunk {
                    next: start,
                    end,
                    generator,
                    is_plain: generator.is_plain(),
                    stamp: entry.stamp(),
                    shuffle: entry.shuffle(),
                });
            }
            Step::Reserve { through } => mark::reserve(entry, place, Need::Tick(through))?,
            Step::Widen => mark::reserve(entry, place, Need::Widen)?,
            Step::Wait { ticks } => {
                waits.for_tick(entry, place, ticks)?;
                // With a window of a tick or so, others always have some of it.
                if generator.policy.max_borrow_ticks < 4 {
                    count = (count / 2).max(1);
                }
            }
            Step::RolledBack { by } => waits.for_clock(entry, place, by)?,
            Step::TimeUsedUp => {
                place.slot.stats().count_refusal();
                return Err(Error::TimeUsedUp {
                    name: entry.name(),
                    last: layout.instant_of(layout.last_tick()),
                });
            }
        }
    }
}

/// What one call has waited for.
#[derive(Default)]
struct Waits {
    patience: Patience,
    counted: bool,
    /// No clock is free before.
    no_clock_before: Option<UnixMillis>,
}

impl Waits {
    /// The word is as far ahead as it may be, by some ticks too far.
    fn for_tick(&mut self, entry: &Entry, place: Place, ticks: u64) -> Result<(), Error> {
        let generator = entry.generator();
        let (layout, policy) = (generator.layout, generator.policy);
        let reading = os_clock::read();
        let now = place.state.now(generator, reading);
        // The tick is to begin for which there is room.
        let tick = layout.tick_within(now.millis()).get() + ticks;
        let begins = UnixNanos::from_millis(layout.instant_of(Tick::new(tick)));
        let nanos = begins.get().saturating_sub(now.get());
        if policy.on_exhausted == OnExhausted::Error {
            place.slot.stats().count_refusal();
            return Err(Error::TickUsedUp {
                name: entry.name(),
                ids: 1 << layout.within_bits(),
                tick_millis: layout.tick_millis(),
                borrowed: layout.ticks_as_millis(policy.max_borrow_ticks),
                wait_millis: nanos.max(0) / NANOS_PER_MILLI + 1,
            });
        }
        if self.patience.stands_still(now, reading.boot) {
            place.slot.stats().count_refusal();
            return Err(Error::ClockStandsStill {
                name: entry.name(),
                at: now.millis(),
                millis: STANDSTILL_MILLIS,
            });
        }
        self.nap(entry, nanos);
        Ok(())
    }

    /// The wall clock is `by` nanoseconds behind an earlier reading.
    fn for_clock(&mut self, entry: &Entry, place: Place, by: i64) -> Result<(), Error> {
        let policy = entry.generator().policy;
        let watch = place.state.watch();
        // Somebody may have dealt with it meanwhile: it is not to be counted again.
        if watch.behind(os_clock::wall()).is_none() {
            return Ok(());
        }
        let millis = by / NANOS_PER_MILLI;
        if watch.is_new_rollback() {
            place.slot.stats().count_rollback(millis.max(1));
        }
        let boot = os_clock::boot();
        if millis > policy.max_rollback_millis {
            return Err(behind(entry, place, millis));
        }
        if policy.on_rollback != OnRollback::NextClock {
            if !self.patience.awaits(&policy, by, boot) {
                return Err(behind(entry, place, millis));
            }
            self.nap(entry, by);
            return Ok(());
        }
        let wall = os_clock::wall();
        let error = match self.no_clock_before {
            // The reserver has nothing new to say.
            Some(free_from) if wall.millis() < free_from => Error::NoClockFree {
                name: entry.name(),
                by: millis,
                clocks: entry.generator().layout.clocks(),
                free_from,
                since: None,
            },
            _ => match mark::reserve(entry, place, Need::Switch) {
                Err(error) => error,
                Ok(()) => return Ok(()),
            },
        };
        let Error::NoClockFree {
            name,
            by: millis,
            clocks,
            free_from,
            ..
        } = error
        else {
            return Err(error);
        };
        self.no_clock_before = Some(free_from);
        let free = UnixNanos::from_millis(free_from).get();
        let nanos = free.saturating_sub(wall.get()).clamp(0, by);
        if self.patience.awaits(&policy, nanos, boot) {
            self.nap(entry, nanos);
            return Ok(());
        }
        Err(mark::note_behind(place, millis, |since| {
            Error::NoClockFree {
                name: name.clone(),
                by: millis,
                clocks,
                free_from,
                since: Some(since),
            }
        }))
    }

    /// Sleeps outside any lock; cancelling the query ends it.
    fn nap(&mut self, entry: &Entry, nanos: i64) {
        if !std::mem::replace(&mut self.counted, true) {
            entry.pending().count_wait();
        }
        pgrx::check_for_interrupts!();
        let from = os_clock::boot();
        compat::report_wait(|| {
            // SAFETY: a plain sleep, ended early by a signal.
            unsafe {
                pg_sys::pg_usleep((nanos / 1000).clamp(NAP_MICROS_MIN, NAP_MICROS_MAX));
            }
        });
        entry.pending().add_wait(from, os_clock::boot());
        pgrx::check_for_interrupts!();
    }
}

/// Refuses an ID until the clock is back where it was.
#[cold]
fn behind(entry: &Entry, place: Place, by: i64) -> Error {
    let policy = entry.generator().policy;
    let latest = place.state.watch().latest();
    mark::note_behind(place, by, |since| Error::ClockBehind {
        name: entry.name(),
        by,
        policy,
        latest,
        since,
    })
}

/// One ID, the long way.
#[cold]
pub fn next(entry: &'static Entry) -> Result<SnowflakeId, Error> {
    loop {
        if let Some(id) = next_chunk(entry, 1)?.next() {
            entry.set_last_id(id);
            return Ok(id);
        }
    }
}
