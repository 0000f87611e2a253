//! Waiting for a clock: for the next tick, or for a clock that was set back.

use crate::id::{BootNanos, Millis, Nanos, Tick, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::label::policy::{OnExhausted, OnRollback, Policy};
use crate::protocol::host::{Host, IssueError, Need, Note};
use crate::protocol::plan::ReserveError;
use crate::protocol::slot::Slot;

/// What one call has waited for, and whether it may continue to wait.
#[derive(Default)]
pub(crate) struct Waits {
    /// Since when the call waits for a clock that was set back.
    since: Option<BootNanos>,
    /// What the clock showed when it was last seen to move.
    moved: Option<(UnixNanos, BootNanos)>,
    pub(crate) waited: bool,
    /// How often the call has rested, see [`rest`].
    rests: u32,
    /// No clock is free before this instant, and how many clocks there are.
    no_clock_before: Option<(UnixMillis, u64)>,
}

/// How much readings of two clocks may differ if the wait goes as expected.
const READING_NANOS: Nanos = Millis::new(1).nanos();

/// A clock that has not moved for this long stands still: a call that waits for it
/// would wait as long as the clock stands.
pub const STANDSTILL: Millis = Millis::new(1000);

/// Which part of `max_borrow` is to be free again when a session returns that rests at the limit of
/// borrowing, one in so many; and the longest rest.
const REST_PART: i64 = 10;
const REST_MAX: Millis = Millis::new(10);

/// How much longer than needed a session waits at the limit of borrowing, the first time in a call.
///
/// Sessions that ask for more than the layout holds meet the limit again in each tick, and naps
/// for single ticks take more processor time than the IDs do. A rest takes no ID away from
/// anybody: while all sessions rest, the cursor is ahead of the clock by most of `max_borrow`. A
/// generator that borrows nothing has no such reserve, and its sessions do not rest.
///
/// Sessions meet the limit together, and disturb each other if they return together. So each
/// rests for a different time, from half of the longest to all of it.
fn rest(generator: &Generator, boot: BootNanos) -> Nanos {
    let most = generator.max_borrow().nanos().get() / REST_PART;
    let half = most.min(REST_MAX.nanos().get()) / 2;
    // A hash of 16 bits.
    let hash = boot
        .get()
        .cast_unsigned()
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        >> 48;
    Nanos::new(half + ((half * hash.cast_signed()) >> 16))
}

impl Waits {
    /// Whether to wait for a clock that is behind by `by`, rather than refuse: only if
    /// the wait can be over within `max_wait`.
    pub(crate) fn awaits(&mut self, policy: &Policy, by: Nanos, boot: BootNanos) -> bool {
        let limit = policy.max_wait.nanos();
        let may = match self.since {
            // By now, both clocks have been read more than once.
            Some(since) => boot.since(since).plus(by) <= limit.plus(READING_NANOS),
            None => by <= limit,
        };
        self.since.get_or_insert(boot);
        policy.on_rollback.waits() && may
    }

    /// Whether this clock stands still, so that a wait for its next tick would have no end.
    pub(crate) fn stands_still(&mut self, clock: UnixNanos, boot: BootNanos) -> bool {
        match self.moved {
            // A clock that was set back has moved, too.
            Some((before, since)) if clock == before => boot.since(since) >= STANDSTILL.nanos(),
            _ => {
                self.moved = Some((clock, boot));
                false
            }
        }
    }

    /// The cursor is as far ahead as it may be: the clock must move on by `ticks` first.
    /// `rests`: the session waits longer than needed, see [`rest`]. If others have taken all
    /// meanwhile, it rests half as long the next time: never more than twice [`REST_MAX`] in all.
    pub(crate) fn for_tick<H: Host>(
        &mut self,
        host: &H,
        slot: &Slot,
        generator: &Generator,
        ticks: u64,
        rests: bool,
    ) -> Result<(), H::Error> {
        let layout = generator.layout;
        let reading = host.read();
        let now = slot.live().now(generator, reading);
        // The tick in which there is room must begin.
        let tick = Tick::new(layout.tick_within(now.millis()).get() + ticks);
        let left = layout.instant_of(tick).nanos().since(now);
        let refusal = if generator.policy.on_exhausted == OnExhausted::Error {
            let wait = left.millis().max(Millis::ZERO).plus(Millis::new(1));
            IssueError::TickUsedUp { wait }
        } else if self.stands_still(now, reading.boot) {
            let (at, lasts) = (now.millis(), STANDSTILL);
            IssueError::StandsStill { at, lasts }
        } else {
            let mut nap = left;
            if rests {
                let rest = rest(generator, reading.boot).get();
                nap = left.plus(Nanos::new(rest >> self.rests.min(32)));
                self.rests += 1;
            }
            return self.nap(host, nap);
        };
        slot.stats().count_refusal();
        Err(host.error(refusal))
    }

    /// The wall clock showed `wall`, which is behind an earlier reading by this much.
    pub(crate) fn for_clock<H: Host>(
        &mut self,
        host: &H,
        slot: &Slot,
        generator: &Generator,
        wall: UnixNanos,
        by: Nanos,
    ) -> Result<(), H::Error> {
        let policy = &generator.policy;
        // Somebody may have dealt with the rollback meanwhile: it is not counted again.
        if slot.clock().rollback(wall).is_none() {
            return Ok(());
        }
        let (now, millis) = (wall.millis(), by.millis());
        if slot.clock().is_new_rollback() {
            slot.stats().count_rollback(millis.max(Millis::new(1)));
        }
        if millis > policy.max_rollback {
            return Err(refuse_behind(host, slot, now, millis, None));
        }
        let (mut left, mut no_clock) = (by, None);
        if policy.on_rollback == OnRollback::NextClock {
            let (free_from, clocks) = match self.no_clock_before {
                // A reserver would find nothing new.
                Some(known) if now < known.0 => known,
                _ => match host.reserve(Need::Switch)? {
                    None => return Ok(()),
                    Some(ReserveError::NoClockFree {
                        clocks, free_from, ..
                    }) => (free_from, clocks),
                    Some(refusal) => return await_bound(host, refusal),
                },
            };
            no_clock = Some((free_from, clocks));
            self.no_clock_before = no_clock;
            left = free_from.nanos().since(wall).clamp(Nanos::ZERO, by);
        }
        if self.awaits(policy, left, host.boot()) {
            return self.nap(host, left);
        }
        if policy.on_rollback == OnRollback::NextWorker {
            match host.reserve(Need::Switch)? {
                None => return Ok(()),
                Some(ReserveError::WorkerUsed { .. }) if host.another_worker()? => return Ok(()),
                Some(ReserveError::WorkerUsed { .. }) => {}
                Some(refusal) => return await_bound(host, refusal),
            }
        }
        Err(refuse_behind(host, slot, now, millis, no_clock))
    }

    fn nap<H: Host>(&mut self, host: &H, nanos: Nanos) -> Result<(), H::Error> {
        self.waited = true;
        host.nap(nanos)
    }
}

/// A call gets no ID because the clock was set back; the first refusal of a series is
/// noted. `no_clock`: from when on a clock is free, and how many there are.
#[cold]
fn refuse_behind<H: Host>(
    host: &H,
    slot: &Slot,
    now: UnixMillis,
    by: Millis,
    no_clock: Option<(UnixMillis, u64)>,
) -> H::Error {
    slot.stats().count_refusal();
    slot.set_refused_lead(by);
    let first = slot.begin_refusal(now, true);
    let since = slot.refused_at().unwrap_or(now);
    let why = IssueError::Behind {
        by,
        latest: slot.clock().latest(),
        since,
        no_clock,
    };
    if first {
        let reserved = None;
        host.note(Note::Refused { why, reserved });
    }
    host.error(why)
}

/// A caller cannot continue without what was refused: waits for a later bound, if that is
/// what it needs.
///
/// # Errors
/// The host's error, or the refusal.
pub(crate) fn await_bound<H: Host>(host: &H, refusal: ReserveError) -> Result<(), H::Error> {
    if let ReserveError::PastBound { needed, .. } = refusal
        && host.more_bound(needed)?
    {
        return Ok(());
    }
    if let Some((slot, _)) = host.entered() {
        slot.stats().count_refusal();
    }
    Err(host.error(IssueError::Reservation(refusal)))
}
