//! Waiting for a clock: for the next tick, or for a clock that was set back.

use super::generator::Generator;
use super::id::{BootNanos, Millis, Nanos, Tick, UnixMillis, UnixNanos};
use super::policy::{OnExhausted, OnRollback, Policy};
use super::reservation::Refusal;
use super::server::{Host, Need, Note, Refused, refused};
use super::slot::Slot;

/// How long one call has waited, and whether it may go on waiting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// Since when it waits for a clock that was set back.
    since: Option<BootNanos>,
    /// What the clock showed when it was last seen to move.
    moved: Option<(UnixNanos, BootNanos)>,
}

/// What two readings of two clocks may differ by, if the wait goes as expected.
const READING_NANOS: Nanos = Millis::new(1).nanos();

/// A clock that has not moved for so long stands still: a call that waits for it
/// would wait for ever.
pub const STANDSTILL: Millis = Millis::new(1000);

impl Patience {
    /// Whether to wait for a clock that is so far behind, rather than refuse: if the
    /// wait can be over within `max_wait`.
    pub fn awaits(&mut self, policy: &Policy, by: Nanos, boot: BootNanos) -> bool {
        let limit = policy.max_wait.nanos();
        let may = match self.since {
            // Two clocks have been read more than once by now.
            Some(since) => boot.since(since).plus(by) <= limit.plus(READING_NANOS),
            None => by <= limit,
        };
        self.since.get_or_insert(boot);
        policy.on_rollback.waits() && may
    }

    /// Whether a call that waits for the next tick of this clock would wait for
    /// ever.
    pub fn stands_still(&mut self, clock: UnixNanos, boot: BootNanos) -> bool {
        match self.moved {
            // What was set back has moved, too.
            Some((before, since)) if clock == before => boot.since(since) >= STANDSTILL.nanos(),
            _ => {
                self.moved = Some((clock, boot));
                false
            }
        }
    }
}

/// What one call has waited for.
#[derive(Default)]
pub(super) struct Waits {
    patience: Patience,
    waited: bool,
    /// No clock is free before.
    no_clock_before: Option<(UnixMillis, u64)>,
}

impl Waits {
    /// The word is as far ahead as it may be, by some ticks too far.
    pub(super) fn for_tick<H: Host>(
        &mut self,
        host: &H,
        slot: &Slot,
        generator: &Generator,
        ticks: u64,
    ) -> Result<(), H::Error> {
        let layout = generator.layout;
        let reading = host.read();
        let now = slot.live().now(generator, reading);
        // The tick is to begin for which there is room.
        let tick = Tick::new(layout.tick_within(now.millis()).get() + ticks);
        let left = layout.instant_of(tick).nanos().since(now);
        if generator.policy.on_exhausted == OnExhausted::Error {
            slot.stats().count_refusal();
            let wait = left.millis().max(Millis::ZERO).plus(Millis::new(1));
            return Err(Refused::TickUsedUp { wait }.into());
        }
        if self.patience.stands_still(now, reading.boot) {
            slot.stats().count_refusal();
            let (at, lasts) = (now.millis(), STANDSTILL);
            return Err(Refused::StandsStill { at, lasts }.into());
        }
        self.nap(host, left)
    }

    /// The wall clock showed `wall`, which is so far behind an earlier reading.
    pub(super) fn for_clock<H: Host>(
        &mut self,
        host: &H,
        slot: &Slot,
        generator: &Generator,
        wall: UnixNanos,
        by: Nanos,
    ) -> Result<(), H::Error> {
        let policy = &generator.policy;
        // Somebody may have dealt with it meanwhile: it is not to be counted again.
        if slot.clock().rollback(wall).is_none() {
            return Ok(());
        }
        let millis = by.millis();
        if slot.clock().is_new_rollback() {
            slot.stats().count_rollback(millis.max(Millis::new(1)));
        }
        let refuse = |why: &dyn Fn(UnixMillis) -> Refused| {
            Err(refuse_behind(host, slot, wall.millis(), millis, why).into())
        };
        let behind = |since| Refused::Behind {
            by: millis,
            latest: slot.clock().latest(),
            since,
        };
        if millis > policy.max_rollback {
            return refuse(&behind);
        }
        if policy.on_rollback != OnRollback::NextClock {
            if !self.patience.awaits(policy, by, host.boot()) {
                return refuse(&behind);
            }
            return self.nap(host, by);
        }
        // Unless the reserver has nothing new to say.
        if self
            .no_clock_before
            .is_none_or(|(at, _)| wall.millis() >= at)
        {
            match host.reserve(Need::Switch)? {
                None => return Ok(()),
                Some(Refusal::NoClockFree {
                    clocks, free_from, ..
                }) => self.no_clock_before = Some((free_from, clocks)),
                Some(refusal) => return Err(refused(slot, refusal).into()),
            }
        }
        let (free_from, clocks) = self.no_clock_before.unwrap_or((wall.millis(), 0));
        let nanos = free_from.nanos().since(wall).clamp(Nanos::ZERO, by);
        if self.patience.awaits(policy, nanos, host.boot()) {
            return self.nap(host, nanos);
        }
        refuse(&|since| Refused::NoClockFree {
            by: millis,
            clocks,
            free_from,
            since,
        })
    }

    /// Whether the call has waited.
    pub(super) fn waited(&self) -> bool {
        self.waited
    }

    fn nap<H: Host>(&mut self, host: &H, nanos: Nanos) -> Result<(), H::Error> {
        self.waited = true;
        host.nap(nanos)
    }
}

/// A call gets no ID because the clock was set back; the first of a series is noted.
#[cold]
fn refuse_behind<H: Host>(
    host: &H,
    slot: &Slot,
    now: UnixMillis,
    by: Millis,
    why: &dyn Fn(UnixMillis) -> Refused,
) -> Refused {
    slot.stats().count_refusal();
    slot.set_refused_lead(by);
    let first = slot.begin_refusal(now, true);
    let why = why(slot.refused_at().unwrap_or(now));
    if first {
        let reserved = None;
        host.note(Note::Refused { why, reserved });
    }
    why
}
