//! Reservations: how far IDs may be issued before the next durable mark.
//!
//! The **mark** is an instant: no ID whose tick begins at or after it has been
//! issued. It is an instant and not a tick so that it means the same whatever
//! becomes of the layout's epoch, and so that a person can read it.
//!
//! Everything here is arithmetic on a [`Situation`]; the caller holds the locks,
//! writes the mark, and only then publishes what the [`Plan`] allows.

use super::account::Account;
use super::clock::{Reading, UnixNanos};
use super::generator::{Bounds, Clocks, Generator, Word};
use super::id::{Position, Tick, UnixMillis};

/// The gap after a promotion: the stored mark is from before the switch to this
/// timeline, and the lost primary may have gone on past it. One gap for each
/// switch since: a primary that had just been promoted ran a gap ahead.
///
/// If the mark was written since the switch, by this generator or by a foreign
/// `setval()`, which cannot be told apart, the gap counts from the promotion. On
/// top of the mark it would be left anew at each start in the life of this
/// server and the lead would grow without end; from the clock it would never
/// shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// `snowflake_id.failover_gap` and what the generator may borrow, in
    /// milliseconds, times the switches.
    pub gap_millis: i64,
    /// The mark was last written before the switch.
    pub mark_is_older: bool,
    /// The wall clock when this server first started a generator since the
    /// promotion.
    pub promoted_at: UnixMillis,
    /// When the last transaction that was replayed had committed.
    pub last_commit: Option<UnixMillis>,
}

/// What a reserver finds, read under the reservation lock.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Both clocks, now.
    pub reading: Reading,
    /// The generator's clock, now.
    pub generator_now: UnixNanos,
    /// Wall minus boot clock (nanoseconds) when the wall clock was last trusted.
    pub trusted_offset: i64,
    /// How far, in milliseconds, the wall clock may have jumped since.
    pub max_clock_jump_millis: i64,
    /// How far, in milliseconds, the generator may be ahead of the wall clock.
    pub max_lead_millis: i64,
    /// The next free position.
    pub word: Position,
    /// The bound in force; zero at a start.
    pub reserved: Position,
    /// The mark on disk, if there is one.
    pub stored: Option<UnixMillis>,
    /// Set if the mark is from before a promotion.
    pub failover: Option<Failover>,
    /// Whoever advances a generator wants no ID before this instant.
    pub floor: Option<UnixMillis>,
    /// Of a generator that changes clocks: the account that came with the stored
    /// mark at a start, the one in force later.
    pub account: Account,
    /// By how many nanoseconds the wall clock is behind an earlier reading, where
    /// that is to be dealt with.
    pub behind: Option<i64>,
    /// The tick that is to be issued.
    pub through: Tick,
    /// `snowflake_id.reserve`, in milliseconds.
    pub full_window_millis: i64,
    /// What the last reservation of this slot took; zero at a start.
    pub last_window_millis: i64,
}

/// What to do: in the order of the fields, each before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Make this mark durable.
    pub mark: UnixMillis,
    /// Let the generator's clock show at least this.
    pub clock_from: UnixNanos,
    /// Move the word to here.
    pub word_from: Option<Position>,
    /// Then publish this bound,
    pub reserved: Position,
    /// and from here on reserve ahead of need.
    pub early: Position,
    /// Remember what this reservation took, in milliseconds.
    pub window_millis: i64,
    /// The generator starts here, at the mark, instead of going on.
    pub starts: bool,
    /// How far, in milliseconds, it is ahead of the wall clock.
    pub lead_millis: i64,
    /// The mark as it is written, with what it keeps of the account.
    pub value: i64,
    /// The account from now on.
    pub account: Account,
    /// It goes on in another clock.
    pub switches: bool,
}

/// Why nothing may be reserved. All amounts in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The wall clock is this far ahead of where the boot clock says it is.
    ClockJumped { by: i64, limit: i64 },
    /// The wall clock is this far behind the generator's clock, or behind where
    /// the boot clock says it is.
    ClockRolledBack { by: i64, limit: i64 },
    /// The start is this far ahead of the wall clock.
    MarkAhead {
        by: i64,
        limit: i64,
        start: UnixMillis,
    },
    /// Somebody wants to advance it to this far ahead of the wall clock.
    AdvanceTooFar { by: i64, limit: i64 },
    /// The wall clock is before the layout's epoch.
    BeforeEpoch { epoch: UnixMillis },
    /// The layout's time is used up.
    TimeUsedUp,
    /// The wall clock is this far behind an earlier reading, and no other clock is
    /// known to be free before the instant.
    NoClockFree {
        by: i64,
        clocks: u64,
        free_from: UnixMillis,
    },
}

/// The first reservation of a start ahead of the wall clock takes this part of
/// the window, each further one twice as much as the one before. A start at the
/// mark takes the mark up by what it reserves: with the whole window each time,
/// a server that is restarted every second, or a generator that is evicted and
/// loaded again and again, would run away from the clock. The price is some ten
/// more records in the first seconds after such a start.
const SLOW_START: i64 = 1024;

impl Generator {
    /// Plans a reservation.
    ///
    /// # Errors
    /// A [`Refusal`], when clocks, mark and layout do not go together.
    pub fn plan(&self, s: &Situation) -> Result<Plan, Refusal> {
        let layout = self.layout;
        let wall = s.reading.wall;

        let jumped =
            UnixNanos::new(s.reading.offset()).millis_after(UnixNanos::new(s.trusted_offset));
        if jumped > s.max_clock_jump_millis {
            return Err(Refusal::ClockJumped {
                by: jumped,
                limit: s.max_clock_jump_millis,
            });
        }

        // Forward at once; backward, the generator's clock is the later one.
        let clock = s.generator_now.max(wall);
        let now = layout.tick_number(clock.millis());

        // The mark that this slot itself wrote says nothing new, and a lower
        // one was set by somebody else and is healed. A higher one is news.
        let known = layout.instant_of(layout.tick_of(s.reserved));
        let adopted = s
            .stored
            .filter(|stored| s.reserved == Position::ZERO || *stored > known);
        let gap = s.failover.map(|f| {
            // The wall clock, not the generator's: that may lead already because
            // another database has left its gap, and gaps would add up.
            let (mark, since) = if f.mark_is_older {
                (s.stored, wall.millis())
            } else {
                (None, f.promoted_at)
            };
            let latest = mark.max(f.last_commit).map_or(since, |at| at.max(since));
            UnixMillis::new(latest.get().saturating_add(f.gap_millis))
        });
        let limit = self.policy.max_advance().get();
        if let Some(floor) = s.floor
            && let by = floor.get().saturating_sub(wall.millis().get())
            && by > limit
        {
            return Err(Refusal::AdvanceTooFar { by, limit });
        }
        let starts = s.reserved == Position::ZERO || adopted.is_some() || s.floor.is_some();
        let target = adopted.max(gap).max(s.floor).map(|at| layout.tick_from(at));

        let start = match (target, u64::try_from(now)) {
            (Some(target), Ok(now)) => target.max(Tick::new(now)),
            (Some(target), Err(_)) => target,
            (None, Ok(now)) => Tick::new(now),
            (None, Err(_)) => {
                return Err(Refusal::BeforeEpoch {
                    epoch: layout.instant_of(Tick::new(0)),
                });
            }
        };
        let (start, account, switches) = self.choose_clock(s, target, now, start)?;
        let start_at = layout.instant_of(start);
        let lead = start_at.get().saturating_sub(wall.millis().get());
        if lead > s.max_lead_millis {
            let (by, limit) = (lead, s.max_lead_millis);
            return Err(if target == Some(start) {
                Refusal::MarkAhead {
                    by,
                    limit,
                    start: start_at,
                }
            } else {
                Refusal::ClockRolledBack { by, limit }
            });
        }
        // Who has no mark and no past does not lead. If it believed this clock,
        // the server would, and refuse the right one as a jump.
        let rolled_back = jumped.saturating_neg();
        if rolled_back > s.max_lead_millis {
            return Err(Refusal::ClockRolledBack {
                by: rolled_back,
                limit: s.max_lead_millis,
            });
        }
        // A mark past the end is above all a mark too far ahead.
        if start >= layout.last_tick() {
            return Err(Refusal::TimeUsedUp);
        }

        let slow = s.full_window_millis / SLOW_START;
        let window_millis = if s.last_window_millis > 0 {
            s.last_window_millis
                .saturating_mul(2)
                .min(s.full_window_millis)
        } else if lead > slow {
            slow
        } else {
            s.full_window_millis
        }
        .max(1);
        let window = layout.ticks_in(window_millis);

        // A word that is ahead of the clock (it borrowed) needs its bound there.
        // One of another clock says nothing.
        let first = if switches {
            start
        } else {
            start.max(s.through).max(layout.tick_of(s.word))
        };
        if first >= layout.last_tick() {
            return Err(Refusal::TimeUsedUp);
        }
        // A mark further ahead than a start may be would be refused after a crash.
        let farthest = wall.millis().get().saturating_add(s.max_lead_millis);
        let farthest = layout.tick_from(UnixMillis::new(farthest));
        let bound = Tick::new((first.get() + 1).saturating_add(window))
            .min(farthest.max(Tick::new(first.get() + 1)))
            .max(layout.tick_of(s.reserved))
            // Where it starts in another clock, this one has been used up to there.
            .max(target.unwrap_or(start))
            .min(layout.last_tick());
        // Half of what was in fact reserved: a capped bound leaves less than the
        // window, and every ID would be past the half of that.
        let left = bound.get().saturating_sub(first.get()).min(window);
        let early = Tick::new(bound.get() - left / 2);
        let mark = layout.instant_of(bound);
        let clock = account.clock();
        let value = if self.changes_clocks() {
            let kept = if switches {
                account
            } else {
                account.renewed(layout.clocks())
            };
            kept.with_mark(mark, layout).ok_or(Refusal::TimeUsedUp)?
        } else {
            mark.get()
        };
        Ok(Plan {
            mark,
            clock_from: UnixNanos::from_millis(start_at),
            word_from: (starts || switches).then(|| layout.in_clock(clock, self.fresh(start))),
            reserved: layout.in_clock(clock, layout.position_of(bound)),
            early: layout.in_clock(clock, layout.position_of(early)),
            window_millis,
            starts,
            lead_millis: lead,
            value,
            account,
            switches,
        })
    }

    /// Where a generator that changes clocks goes on, and in which: at `start` in
    /// the same clock, or at `now` in the next one.
    fn choose_clock(
        &self,
        s: &Situation,
        target: Option<Tick>,
        now: i64,
        start: Tick,
    ) -> Result<(Tick, Account, bool), Refusal> {
        let layout = self.layout;
        if !self.changes_clocks() {
            return Ok((start, Account::FRESH, false));
        }
        let at_start = s.reserved == Position::ZERO;
        let now = Tick::new(now.max(0).cast_unsigned());
        let same = |account| Ok((start, account, false));
        if s.failover.is_some() {
            // Whatever was used before, it is behind.
            return same(Account::unknown(s.account.clock(), start));
        }
        if s.floor.is_some() || !at_start && target.is_some() {
            return same(s.account.forget_before(start));
        }
        if let Some(target) = target {
            let at = layout.instant_of(target);
            let by = at.get().saturating_sub(s.reading.wall.millis().get());
            if by > s.max_lead_millis {
                return Err(Refusal::MarkAhead {
                    by,
                    limit: s.max_lead_millis,
                    start: at,
                });
            }
            if now >= target {
                return same(s.account);
            }
            // With no clock free, it starts ahead like any other.
            return Ok(match s.account.switch(now, target, layout.clocks()) {
                Some(account) => (now, account, true),
                None => (start, s.account, false),
            });
        }
        let Some(behind) = s.behind else {
            return same(s.account);
        };
        let by = behind / NANOS_PER_MILLI;
        if by > s.max_lead_millis {
            return Err(Refusal::ClockRolledBack {
                by,
                limit: s.max_lead_millis,
            });
        }
        let reached = layout.tick_of(s.word);
        if now >= reached {
            return same(s.account);
        }
        let reached = Tick::new(reached.get() + 1);
        match s.account.switch(now, reached, layout.clocks()) {
            Some(account) => Ok((now, account, true)),
            None => {
                let free_from = s.account.free_from(layout.clocks());
                Err(Refusal::NoClockFree {
                    by,
                    clocks: layout.clocks(),
                    free_from: layout.instant_of(free_from.map_or(reached, |at| at.min(reached))),
                })
            }
        }
    }
}

impl Generator {
    /// Moves the word to where a plan has it, and settles the account, which it
    /// returns: the mark is durable, the bound not published yet. Holders of the
    /// reservation lock only, as for the next.
    pub fn move_word(&self, word: &Word, bounds: &Bounds, plan: &Plan) -> Account {
        let layout = self.layout;
        if !self.changes_clocks() {
            if let Some(from) = plan.word_from {
                word.raise(from);
            }
            return plan.account;
        }
        let mut account = plan.account;
        if let Some(from) = plan.word_from {
            let before = word.go_to(from, layout);
            if layout.clock_of(before) != account.clock() {
                let reached = Tick::new(layout.tick_of(before).get() + 1);
                account = account.others_reached(reached);
            }
        }
        if self.shares_clocks() {
            // What a burst took is given back here.
            if account.together() > 1 {
                bounds.set_clocks(Clocks {
                    together: 1,
                    widest: 1,
                });
                account = account.narrow(word.leave_clocks(layout));
            }
            bounds.set_clocks(self.clocks(word, account));
        }
        account
    }

    /// In how many clocks a tick may be used, and could be.
    fn clocks(&self, word: &Word, account: Account) -> Clocks {
        let at = self.layout.tick_of(word.position());
        Clocks {
            together: account.together(),
            widest: account.widest(at, self.layout.clocks()),
        }
    }

    /// Lets a tick be used in further clocks, and returns the account then; unless
    /// somebody else has just done so. The mark of such a generator says that any
    /// clock may have been used before it, so that this need not be durable.
    pub fn widen(&self, word: &Word, bounds: &Bounds, account: Account) -> Option<Account> {
        let layout = self.layout;
        let position = word.position();
        let at = layout.tick_of(position);
        let now = bounds.clocks();
        if layout.within(position) < now.together << layout.sequence_bits()
            || now.together >= now.widest
        {
            return None;
        }
        let account = account.widen(at, layout.clocks());
        bounds.set_clocks(self.clocks(word, account));
        Some(account)
    }
}

const NANOS_PER_MILLI: i64 = 1_000_000;
