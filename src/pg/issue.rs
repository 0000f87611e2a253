//! PostgreSQL as a host of the protocol, and the path of each ID.

use std::cell::Cell;

use pgrx::pg_sys;

use super::entry::{Entry, Right};
use super::error::{self, Error};
use super::shmem::{self, Shared};
use super::{compat, guc, log, mark, os_clock, reservation_lock};
use crate::snowflake::clock::Reading;
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{
    BootNanos, NANOS_PER_MILLI, Nanos, Position, SnowflakeId, UnixMillis, UnixNanos,
};
use crate::snowflake::layout::Stamp;
use crate::snowflake::server::{
    self, Beliefs, History, Host, Issued, Need, Note, OnDisk, Refused, Settings,
};
use crate::snowflake::shuffle::Shuffle;
use crate::snowflake::slot::{Reserving, Slot};
use crate::snowflake::word::{Clocks, Step};

/// The shortest and the longest nap on a plain sleep, in microseconds. Long enough to
/// give the core away, and shorter than a tick, so that none is lost.
const NAP_MICROS_MIN: i64 = 50;
const NAP_MICROS_MAX: i64 = 500;

/// The longest nap on the latch, in milliseconds: a clock that is corrected in the
/// meantime is seen soon.
const NAP_MILLIS_MAX: i64 = 10;

/// The clocks of the operating system.
struct OsClocks;

impl Clocks for OsClocks {
    #[inline]
    fn wall(&self) -> UnixNanos {
        os_clock::wall()
    }

    #[inline]
    fn boot(&self) -> BootNanos {
        os_clock::boot()
    }

    fn read(&self) -> Reading {
        os_clock::read()
    }
}

/// A generator as this session uses it.
struct Session {
    entry: &'static Entry,
    shared: Shared,
    /// By which right it has issued, if it has.
    right: Cell<Option<Right>>,
    /// A wait was counted.
    waited: Cell<bool>,
}

/// Why the host stops a call.
enum Stop {
    Refused(Refused),
    Error(Error),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Stop {
    fn error(self, entry: &'static Entry) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Refused(why) => match entry.describe() {
                Ok(described) => error::refused(&entry.name(), &described.generator, why),
                Err(error) => error,
            },
        }
    }
}

impl Clocks for Session {
    fn wall(&self) -> UnixNanos {
        os_clock::wall()
    }

    fn boot(&self) -> BootNanos {
        os_clock::boot()
    }

    fn read(&self) -> Reading {
        os_clock::read()
    }
}

impl Host for Session {
    type Error = Stop;

    fn enter(&self) -> Result<(&Slot, &Generator), Stop> {
        let right = match self.entry.right() {
            Some(right) => right,
            None => self.entry.fill()?,
        };
        self.right.set(Some(right));
        Ok((right.slot, right.generator))
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        self.entry.right().map(|it| (it.slot, it.generator))
    }

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        reservation_lock::with(self.entry.relation(), f)
    }

    fn with_beliefs<T>(&self, f: impl FnOnce(&mut Beliefs) -> T) -> T {
        self.shared.with_beliefs(f)
    }

    fn settings(&self) -> Settings {
        guc::settings()
    }

    fn read_mark(&self) -> Result<OnDisk, Stop> {
        Ok(mark::read(self.entry)?)
    }

    fn history(&self, lsn: u64) -> History {
        mark::history(lsn)
    }

    fn write_durably(&self, value: i64) -> Result<(), Stop> {
        mark::write(self.entry, value);
        Ok(())
    }

    /// Cancelling the query ends it, and so does the end of the postmaster.
    fn nap(&self, nanos: Nanos) -> Result<(), Stop> {
        if !self.waited.replace(true) {
            self.entry.pending().count_wait();
        }
        pgrx::check_for_interrupts!();
        let from = os_clock::boot();
        match nanos.get() / NANOS_PER_MILLI {
            ..=0 => compat::report_wait(|| {
                let micros = (nanos.get() / 1000).clamp(NAP_MICROS_MIN, NAP_MICROS_MAX);
                // SAFETY: a plain sleep, ended early by a signal.
                unsafe { pg_sys::pg_usleep(micros) };
            }),
            millis => compat::wait_latch(millis.min(NAP_MILLIS_MAX)),
        }
        self.entry.pending().add_wait(from, os_clock::boot());
        pgrx::check_for_interrupts!();
        Ok(())
    }

    fn note(&self, note: Note) {
        if let Ok(described) = self.entry.describe() {
            log::note(&self.entry.name(), &described.generator, note);
        }
    }

    fn reserved(&self, began: BootNanos) {
        self.entry
            .pending()
            .count_reservation(began, os_clock::boot());
        self.entry.flush_stats();
    }
}

fn session(entry: &'static Entry) -> Result<Session, Error> {
    Ok(Session {
        entry,
        shared: shmem::shared()?,
        right: Cell::new(None),
        waited: Cell::new(false),
    })
}

/// Consecutive positions of this session, and what makes IDs of them.
#[derive(Clone, Copy)]
pub struct Chunk {
    next: u64,
    end: u64,
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
        let position = Position::new(self.next);
        self.next += 1;
        let layout = self.generator.layout;
        Some(if self.is_plain {
            layout.compose(position, self.stamp)
        } else {
            layout.compose_in(position, self.stamp, self.shuffle.as_ref())
        })
    }
}

/// One ID, if that takes no waiting, no reserving and no catalog.
#[inline]
pub fn next_fast(entry: &'static Entry) -> Option<SnowflakeId> {
    let right = entry.plain_right()?;
    let Step::Issue {
        start,
        end,
        borrowed,
    } = step(&right)
    else {
        return None;
    };
    let id = right.generator.layout.compose(start, right.stamp);
    entry.set_last_id(id);
    if entry.pending().count_issued(1, borrowed) {
        entry.flush_stats();
    }
    if right.slot.live().bounds().elect_early(end) {
        early(entry, &right, start);
    }
    Some(id)
}

/// The ID is issued already; reserving ahead of need comes on top.
#[cold]
fn early(entry: &'static Entry, right: &Right, issued: Position) {
    let tick = right.generator.layout.tick_of(issued);
    let result = session(entry).and_then(|session| {
        server::reserve(&session, Need::Early(tick)).map_err(|stop| stop.error(entry))
    });
    if let Err(error) = result {
        error.raise();
    }
}

#[inline]
fn step(right: &Right) -> Step {
    right
        .slot
        .live()
        .issue::<false>(right.generator, 1, &OsClocks)
}

/// Up to `count` IDs, at most [`Generator::max_chunk`] of the entry's generator; fewer
/// where there is no room for more. Waits for the clock and reserves as needed; a
/// failed call issues nothing.
#[cold]
pub fn next_chunk(entry: &'static Entry, count: u64) -> Result<Chunk, Error> {
    let session = session(entry)?;
    loop {
        let Issued {
            start,
            end,
            borrowed,
            waited,
        } = server::issue(&session, count).map_err(|stop| stop.error(entry))?;
        let issued = end.get() - start.get();
        if entry.pending().count_issued(issued, borrowed) || waited {
            entry.flush_stats();
        }
        if let Some(right) = session.right.get() {
            return Ok(Chunk {
                next: start.get(),
                end: end.get(),
                generator: right.generator,
                is_plain: right.is_plain,
                stamp: right.stamp,
                shuffle: right.shuffle,
            });
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

/// Makes all further IDs start at an instant or later. The entry was filled. Returns
/// the instant from which they come; `None` if the caller has to look again.
pub fn advance(entry: &'static Entry, to: UnixMillis) -> Result<Option<UnixMillis>, Error> {
    server::demand(&session(entry)?, Need::Floor(to)).map_err(|stop| stop.error(entry))?;
    Ok(entry.right().map(|right| {
        let layout = right.generator.layout;
        let word = right.slot.live().word().position();
        layout.instant_of(layout.tick_of(word)).max(to)
    }))
}
