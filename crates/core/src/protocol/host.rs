//! What a server is to the protocol ([`crate::protocol`]): clocks, a disk, a lock, settings.
//! PostgreSQL is one, and so are the models and threads of the tests. The core decides; the
//! host acts, and makes no decision.

use crate::id::{BootNanos, Millis, Nanos, Tick, UnixMillis, UnixNanos, WorkerId};
use crate::label::generator::{Descent, Generator};
use crate::protocol::clock::Reading;
use crate::protocol::cursor::Clocks;
use crate::protocol::plan::{Author, ReserveError, Settings};
use crate::protocol::slot::{Reserving, Slot};
use crate::protocol::tenure::{Generation, Tenure};

/// What a server knows of its wall clock: shared by all its generators, and changed under the
/// clock lock only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrustedClock {
    /// Wall minus boot clock when the wall clock was last believed.
    pub trusted_offset: Nanos,
    /// Both clocks when a reserver last read them, unless that reading was refused as a
    /// jump. The reserver that sees a step since then notes it.
    pub seen: Reading,
}

impl TrustedClock {
    /// What a server knows at its start.
    pub const fn new(reading: Reading) -> Self {
        Self {
            trusted_offset: reading.offset(),
            seen: reading,
        }
    }

    /// A reading for a generator without a past: no later than was believed last. The
    /// reservation judges a clock that has jumped; a generator that started from such a
    /// clock would stay ahead by the jump after a correction.
    pub fn believable(&self, mut reading: Reading) -> Reading {
        let trusted = reading.boot.get().saturating_add(self.trusted_offset.get());
        reading.wall = reading.wall.min(UnixNanos::new(trusted));
        reading
    }

    /// Believes a reading, and returns how far the wall clock has jumped.
    pub fn accept(&mut self, reading: Reading) -> Millis {
        let jumped = reading.jumped_from(self.trusted_offset);
        self.trusted_offset = reading.offset();
        self.seen = reading;
        jumped
    }
}

/// What the disk has of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDisk {
    /// The value that stands there, unless it says that there is no mark yet.
    pub value: Option<i64>,
    pub author: Author,
}

pub trait Host: Clocks + Sized {
    /// Why a call of the host or of its user fails.
    type Error;

    /// The error for a call that gets no ID.
    fn error(&self, why: IssueError) -> Self::Error;

    /// The generator and the slot with its state; an error if a condition does not hold
    /// that this caller needs to issue.
    fn enter(&self) -> Result<(&Slot, &Generator), Self::Error>;

    /// What [`Self::enter`] returned, if nothing has changed since; otherwise the caller enters
    /// anew.
    fn entered(&self) -> Option<(&Slot, &Generator)>;

    /// The generation of the server for which the caller has entered: what it composes
    /// IDs for.
    fn generation(&self) -> Generation;

    /// Whether the transaction has taken IDs by what it has entered for, so that it holds the
    /// horizon, and [`Self::narrow_hold`] was called.
    fn has_taken(&self) -> bool;

    /// Holds the horizon of the generator, whose slot this is, at this instant or earlier,
    /// until the transaction has ended: [`crate::horizon::SessionHolds::hold`]. An error if the
    /// transaction can hold no more; then it takes no ID.
    fn hold(&self, slot: &Slot, at: UnixMillis) -> Result<(), Self::Error>;

    /// The transaction, which holds the horizon, has taken IDs of this tick and later:
    /// [`crate::horizon::SessionHolds::narrow_hold`].
    fn narrow_hold(&self, at: UnixMillis);

    /// Runs `f` as the only one that reserves for this generator.
    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T;

    /// As [`Self::reserving`]; but a caller that has to wait for others asks `is_done` after
    /// that, and if so does not run `f`.
    fn reserving_unless<T>(
        &self,
        _is_done: impl Fn() -> bool,
        f: impl FnOnce(&Reserving) -> T,
    ) -> Option<T> {
        Some(self.reserving(f))
    }

    /// Runs `f` with what the server knows of its clock, and with the tenure under which it
    /// issues the generator's IDs, one caller at a time.
    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T;

    fn settings(&self) -> Settings;

    /// Reads the mark; an error if it cannot be read.
    fn read_mark(&self) -> Result<OnDisk, Self::Error>;

    /// When the last transaction had committed that this server has replayed since it started;
    /// `None` if it started as a primary.
    fn last_commit(&self) -> Option<UnixMillis>;

    /// Writes the mark, and returns when it is durable; an error if it cannot be written.
    fn write_durably(&self, value: i64) -> Result<(), Self::Error>;

    /// Sleeps for up to this long, outside of any lock; an error if that is cancelled.
    fn nap(&self, nanos: Nanos) -> Result<(), Self::Error>;

    /// An ID is needed of a tick that begins at this instant, which is not before the
    /// bound of the server's tenure. Waits for a while, outside of any lock, until the
    /// bound is later than that, or the tenure is another one; false if neither comes.
    /// An error if the wait is cancelled. Without a registry there is no bound.
    fn more_bound(&self, _needed: UnixMillis) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// A generator that rotates its worker ID needs another worker ID than that of its generation,
    /// for IDs of the time that the wall clock shows. Waits for a while, outside of any
    /// lock; false if none comes. An error if the wait is cancelled.
    fn another_worker(&self) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Tells the administrator something.
    fn note(&self, note: Note);

    /// A reservation that began at this time was made.
    fn reserved(&self, _began: BootNanos) {}

    /// Raises the mark: [`reserve()`](crate::protocol::reserve()), with its errors.
    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error>;
}

/// Why somebody reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// An ID of this tick cannot be issued without a reservation.
    Tick(Tick),
    /// Half of the window is used up, and the caller was elected. If clock and
    /// mark do not go together, a note says so, and the first caller that runs into
    /// the bound gets the error.
    Early(Tick),
    /// From now on, no ID before this instant may be issued.
    AdvanceTo(UnixMillis),
    /// The wall clock was set forward, and the generator's clock is to follow it.
    Clock,
    /// The wall clock was set back: another clock is needed, or another rotation.
    Switch,
    /// The tick is exhausted and continues in further clocks. Takes no mark.
    Widen,
}

/// Why a call gets no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// Nothing more may be reserved.
    Reservation(ReserveError),
    /// The wall clock is behind a reading by which an ID was issued. If the generator
    /// changes clocks: from when on one is free, and how many there are.
    Behind {
        by: Millis,
        latest: UnixMillis,
        since: UnixMillis,
        no_clock: Option<(UnixMillis, u64)>,
    },
    /// The clock has not moved for this long, and the call waits for a tick.
    StandsStill { at: UnixMillis, lasts: Millis },
    /// The tick is exhausted; the next one that may be used comes after `wait`.
    TickUsedUp { wait: Millis },
    /// Others took IDs in between, each time that a block of this size was tried.
    Interleaved { count: u64 },
    /// An ID to observe is this far ahead of the generator's clock, and may be `limit` ahead.
    TooFarAhead { by: Millis, limit: Millis },
    /// An ID cannot be observed, since the generator's IDs do not ascend.
    Descends(Descent),
}

/// What a host may tell its administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The wall clock was stepped; a negative `by` is a rollback.
    Stepped { by: Millis },
    /// The first refusal of a series; with how far IDs are reserved, if they are.
    Refused {
        why: IssueError,
        reserved: Option<UnixMillis>,
    },
    /// IDs are issued again.
    IssuesAgain { since: UnixMillis },
    /// The generator continues in another clock: after a rollback, or at a start before
    /// its mark. `free` further clocks could be taken at the same tick.
    Switched {
        rollback: Option<Millis>,
        clock: u64,
        clocks: u64,
        free: u64,
    },
    /// The generator continues with another worker ID, at the time of the wall clock.
    NextWorker {
        rollback: Option<Millis>,
        worker: Option<WorkerId>,
    },
    /// The generator leaves a gap behind its mark, since IDs may lie behind it.
    LeftGap {
        author: Author,
        gap: Millis,
        start: UnixMillis,
        lead: Millis,
    },
    /// Somebody has changed the mark of the running generator, which writes its own one back.
    PutBack { restarted: bool },
    /// The generator starts ahead of the clock, as a superuser has accepted.
    StartsAhead { lead: Millis },
    /// The layout's time ends soon.
    EndsSoon { left: Millis, end: UnixMillis },
}
