//! Acts on the core's steps until there is an ID.

use pgrx::pg_sys;

use super::compat;
use super::entry::{Entry, Place};
use super::error::Error;
use super::mark::{self, Need};
use super::os_clock;
use crate::snowflake::generator::{Generator, Step};
use crate::snowflake::layout::{Layout, Position, SnowflakeId, Stamp};

/// The longest and the shortest nap while waiting for the clock. The wait is
/// over when a tick has passed; a nap is shorter than that, so that a tick is
/// not lost, and long enough to give the core away.
const NAP_MICROS_MAX: i64 = 500;
const NAP_MICROS_MIN: i64 = 50;

/// Consecutive positions of this session, and what makes IDs of them.
#[derive(Clone, Copy)]
pub struct Chunk {
    next: Position,
    end: Position,
    stamp: Stamp,
    layout: Layout,
}

impl Iterator for Chunk {
    type Item = SnowflakeId;

    #[inline]
    fn next(&mut self) -> Option<SnowflakeId> {
        if self.next >= self.end {
            return None;
        }
        let id = self.layout.compose(self.next, self.stamp);
        self.next = Position::new(self.next.get() + 1);
        Some(id)
    }
}

/// One ID, if that takes no waiting, no reserving and no catalog.
#[inline]
pub fn next_fast(entry: &Entry) -> Option<SnowflakeId> {
    let place = entry.place()?;
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

#[inline]
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

/// `count` IDs, at most [`Generator::max_chunk`] of the entry's generator; or
/// fewer, where so many would hardly ever be free at once. Waits for the clock
/// and reserves as needed; a failed call issues nothing.
#[cold]
pub fn next_chunk(entry: &'static Entry, mut count: u64) -> Result<Chunk, Error> {
    let mut waited = false;
    loop {
        // After a wait or a reservation everything is looked at again: the
        // sequence may be gone by now, or the transaction read-only.
        let place = match entry.place() {
            Some(place) => place,
            None => entry.fill()?,
        };
        let generator = entry.generator();
        let layout = generator.layout;
        match step(generator, place, count) {
            Step::Issue {
                start,
                end,
                borrowed,
            } => {
                if entry.pending().count_issued(count, borrowed) || waited {
                    entry.flush_stats();
                }
                if place.slot.bounds().elect_early(end) {
                    let last = Position::new(end.get() - 1);
                    mark::reserve(entry, place, Need::Early(layout.tick_of(last)))?;
                }
                return Ok(Chunk {
                    next: start,
                    end,
                    stamp: entry.stamp(),
                    layout,
                });
            }
            Step::Reserve { through } => mark::reserve(entry, place, Need::Tick(through))?,
            Step::Wait { ticks } => {
                if !std::mem::replace(&mut waited, true) {
                    entry.pending().count_wait();
                }
                nap(entry, layout.ticks_as_micros(ticks));
                // With a window of a tick or so, others always have some of it.
                if generator.policy.max_borrow_ticks < 4 {
                    count = (count / 2).max(1);
                }
            }
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

/// Sleeps outside any lock; cancelling the query ends it.
fn nap(entry: &Entry, micros: i64) {
    pgrx::check_for_interrupts!();
    let from = os_clock::boot();
    compat::report_wait(|| {
        // SAFETY: a plain sleep, ended early by a signal.
        unsafe {
            pg_sys::pg_usleep(micros.clamp(NAP_MICROS_MIN, NAP_MICROS_MAX));
        }
    });
    entry.pending().add_wait(from, os_clock::boot());
    pgrx::check_for_interrupts!();
}
