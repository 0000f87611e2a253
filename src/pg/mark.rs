//! The durable mark: the value of the generator's sequence.
//!
//! The mark is an instant in Unix milliseconds; no ID of a tick that begins at
//! or after it has been issued. To raise it, in this order:
//!
//! 1. take the reservation lock, a heavyweight lock of our own on the sequence:
//!    interruptible, seen by the deadlock detector, and in nobody's way;
//! 2. look again, read both clocks, let the core plan;
//! 3. write the mark with `setval()`;
//! 4. flush WAL up to that record;
//! 5. then raise clock and word, and only then publish the bound.
//!
//! A crash between any two steps leaves a mark that is at most too high.

use pgrx::pg_sys;

use super::compat::{self, SequenceData, TimeLineHistoryEntry};
use super::entry::{Entry, NO_MARK, Place};
use super::error::Error;
use super::shmem::Note;
use super::{guc, os_clock, reservation_lock};
use crate::snowflake::account::Account;
use crate::snowflake::clock::{Reading, UnixNanos};
use crate::snowflake::duration::{measured_text, rounded_text};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Position, Tick, UnixMillis};
use crate::snowflake::layout::Layout;
use crate::snowflake::reservation::{Failover, Plan, Refusal, Situation};

/// Why somebody reserves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// An ID of this tick cannot be issued without.
    Tick(Tick),
    /// Half of the window is used up, and the caller was elected. If clock and
    /// mark do not go together, the log says so, and whoever runs into the
    /// bound gets the error.
    Early(Tick),
    /// No ID before this instant shall be issued any more.
    Floor(UnixMillis),
    /// The wall clock was set back: another clock is needed.
    Switch,
    /// The tick is used up, and goes on in further clocks. Takes no mark.
    Widen,
}

const NANOS_PER_MILLI: i64 = 1_000_000;

/// Raises the mark, or finds that somebody else has. Afterwards the entry may
/// be void: the caller looks again.
#[cold]
pub fn reserve(entry: &Entry, place: Place, need: Need) -> Result<(), Error> {
    let result = reservation_lock::with(entry.relation(), || reserve_locked(entry, place, need));
    match (result, need) {
        // The log has it; whoever runs into the bound gets the error.
        (Err(Failure::Refused(_)), Need::Early(_)) => Ok(()),
        (Err(Failure::Refused(refusal)), _) => {
            // The caller may want to wait.
            if !matches!(refusal, Refusal::NoClockFree { .. }) {
                place.slot.stats().count_refusal();
            }
            Err(refused(entry, refusal))
        }
        (Err(Failure::Error(error)), _) => Err(error),
        (Ok(()), _) => Ok(()),
    }
}

enum Failure {
    Refused(Refusal),
    Error(Error),
}

fn reserve_locked(entry: &Entry, place: Place, need: Need) -> Result<(), Failure> {
    let generator = entry.generator();
    if entry.place().is_none() {
        return Ok(());
    }
    let reserved = place.slot.bounds().reserved();
    let (through, floor) = match need {
        Need::Tick(tick) => {
            let layout = generator.layout;
            let clock = layout.clock_of(place.state.word().position());
            if layout.clock_of(reserved) == clock
                && reserved > layout.in_clock(clock, layout.position_of(tick))
            {
                return Ok(());
            }
            (tick, None)
        }
        Need::Early(tick) => {
            if !place.slot.bounds().early_is_claimed() {
                return Ok(());
            }
            (tick, None)
        }
        Need::Floor(at) => (Tick::new(0), Some(at)),
        Need::Switch => {
            // Of many who meet a rollback, one has dealt with it.
            if place.state.watch().behind(os_clock::wall()).is_none() {
                return Ok(());
            }
            (Tick::new(0), None)
        }
        Need::Widen => {
            let (slot, word) = (place.slot, place.state.word());
            if let Some(account) = generator.widen(word, slot.bounds(), slot.account()) {
                slot.set_account(account);
            }
            return Ok(());
        }
    };

    let mut stored = read(entry, generator.layout).map_err(Failure::Error)?;
    // What was written here and is not there any more was taken away since; of
    // clocks something else may have been written under the same mark.
    if stored.mark < place.slot.highest() || place.slot.is_undone() {
        stored.mark = stored.mark.max(place.slot.highest());
        stored.account = None;
    }
    let nothing_known = |mark| Account::unknown(0, generator.layout.tick_from(mark));
    let stored_account = stored
        .account
        .or(stored.mark.map(nothing_known))
        .unwrap_or(Account::FRESH);
    // Only a start can meet a mark from another timeline, and only the first one
    // since the switch.
    let switch = if reserved == Position::ZERO && !place.slot.gap_was_left() {
        switch(&stored, generator)
    } else {
        None
    };
    let note = place.slot.note();
    let watches = generator.policy.on_rollback.watches();
    let policy_lead = generator.policy.max_rollback_millis;
    // On top of an accepted lead, a rollback is forgiven as ever.
    let accepted = place.slot.accepted_lead();
    let behind = |reading: Reading| {
        (need == Need::Switch)
            .then(|| place.state.watch().behind(reading.wall))
            .flatten()
    };
    let began = os_clock::boot();
    let (reading, stepped, before, failover, planned) = place.shared.with_clocks(|believed| {
        let reading = os_clock::read();
        let wall = reading.wall.millis();
        let failover = switch.map(|switch| Failover {
            gap_millis: switch.gap_millis,
            mark_is_older: switch.mark_is_older,
            promoted_at: believed.promoted_at.unwrap_or(wall),
            last_commit: switch.last_commit,
        });
        let before = place.state.now(generator, reading);
        let stepped = reading.stepped_since(believed.seen);
        let planned = generator.plan(&Situation {
            reading,
            generator_now: before,
            trusted_offset: believed.trusted_offset,
            max_clock_jump_millis: guc::max_clock_jump_millis(),
            max_lead_millis: policy_lead.saturating_add(accepted),
            word: place.state.word().position(),
            reserved,
            stored: stored.mark,
            failover,
            floor,
            account: if reserved == Position::ZERO {
                stored_account
            } else {
                place.slot.account()
            },
            behind: behind(reading),
            through,
            full_window_millis: guc::reserve_millis(),
            last_window_millis: note.window_millis,
        });
        if planned.is_ok() {
            believed.trusted_offset = reading.offset();
            // Not of a clock that was refused.
            if let Some(failover) = failover {
                believed.promoted_at = Some(failover.promoted_at);
            }
            if watches {
                place.state.watch().end_lead(reading.boot, reading.wall);
            } else {
                place.state.clock().anchor(reading);
            }
        }
        // Whoever corrects a jump that was refused sets no clock back.
        if !matches!(planned, Err(Refusal::ClockJumped { .. })) {
            believed.seen = reading;
        }
        (reading, stepped, before, failover, planned)
    });
    let rolled_back = reading.stepped_since(place.slot.seen()).saturating_neg();
    // Who watches the clock has counted it.
    if rolled_back > 0 && !watches {
        place.slot.stats().count_rollback(rolled_back);
    }
    if !matches!(planned, Err(Refusal::ClockJumped { .. })) {
        place.slot.set_seen(reading);
    }
    // What is refused is logged as that, and so is a change of clocks.
    if stepped != 0 && planned.as_ref().is_ok_and(|plan| !plan.switches) {
        log_step(stepped);
    }
    let plan = planned.map_err(|refusal| {
        if let Refusal::ClockRolledBack { by, .. } | Refusal::MarkAhead { by, .. } = refusal {
            place.slot.set_refused_lead(by);
        }
        // Somebody's wish to go too far says nothing about the clock; and who finds
        // no clock may want to wait.
        if !matches!(
            refusal,
            Refusal::AdvanceTooFar { .. } | Refusal::NoClockFree { .. }
        ) {
            note_refusal(entry, place, refusal, reading);
        }
        Failure::Refused(refusal)
    })?;
    // One because of a rollback ends with the next ID.
    if !place.slot.is_refused_behind() {
        end_refusal(entry, place);
    }
    if accepted > 0 && plan.starts {
        pgrx::log!(
            "snowflake_id: generator {} starts {} ahead of the clock, as was accepted",
            entry.name(),
            measured_text(plan.lead_millis),
        );
    }
    if plan.switches {
        log_switch(entry, &plan, behind(reading));
    }
    // Where it makes no difference there is nothing to tell.
    let otherwise = stored.mark.max(Some(before.millis()));
    if let Some(failover) = failover
        && (failover.mark_is_older || Some(plan.clock_from.millis()) > otherwise)
    {
        log_failover(entry, &plan, &reading, failover);
    }
    warn_of_the_end(entry, place, plan.clock_from);
    write(entry, plan.value);
    place.slot.set_highest(plan.mark);
    place.slot.set_undone(false);
    if !watches {
        place.shared.with_clocks(|_| {
            place
                .state
                .clock()
                .lead_to(os_clock::boot(), plan.clock_from);
        });
    } else {
        let watch = place.state.watch();
        if plan.clock_from > reading.wall {
            watch.lead_to(os_clock::boot(), plan.clock_from);
        }
        if plan.starts {
            watch.started_by(reading.wall);
        }
    }
    move_word(generator, place, &plan);
    if need == Need::Switch {
        place.state.watch().believe(reading.wall);
    }
    // Not before the mark that leaves it is durable.
    if failover.is_some() {
        place.slot.set_gap_at(reading.wall.millis());
    }
    place.slot.set_note(Note {
        file_number: entry.file_number(),
        window_millis: plan.window_millis,
    });
    let lead = plan.lead_millis;
    place
        .slot
        .set_accepted_lead(if accepted > 0 && lead > policy_lead {
            lead
        } else {
            0
        });
    place.slot.bounds().publish(plan.reserved, plan.early);
    entry.pending().count_reservation(began, os_clock::boot());
    entry.flush_stats();
    Ok(())
}

/// The mark on disk, if there is one, as a generator of this layout wrote it. The
/// relation is locked.
pub fn stored(entry: &Entry, layout: Layout) -> Result<Option<UnixMillis>, Error> {
    Ok(read(entry, layout)?.mark)
}

/// Moves the word to where the plan has it, and settles the account. The mark is
/// durable, the bound not published yet.
fn move_word(generator: &Generator, place: Place, plan: &Plan) {
    let account = generator.move_word(place.state.word(), place.slot.bounds(), plan);
    if generator.changes_clocks() {
        place.slot.set_account(account);
    }
}

struct Stored {
    mark: Option<UnixMillis>,
    /// What it says of clocks; of a layout that has some.
    account: Option<Account>,
    /// Where in WAL the page that holds it was last written.
    lsn: pg_sys::XLogRecPtr,
}

/// Reads the one row of the sequence, and the LSN of its page.
fn read(entry: &Entry, layout: Layout) -> Result<Stored, Error> {
    // SAFETY: the relation is locked, so it exists and its file stays.
    // The buffer is pinned and share-locked while we read it; the row is the
    // first item of the first page, as in sequence.c.
    let (data, lsn) = unsafe {
        #[allow(clippy::cast_possible_wrap)]
        let no_lock = pg_sys::NoLock as i32;
        let relation = pg_sys::relation_open(entry.relation(), no_lock);
        let buffer = pg_sys::ReadBuffer(relation, 0);
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::LockBuffer(buffer, pg_sys::BUFFER_LOCK_SHARE as i32);
        let page = pg_sys::BufferGetPage(buffer);
        if !is_sequence_page(page) {
            pg_sys::UnlockReleaseBuffer(buffer);
            pg_sys::relation_close(relation, no_lock);
            return Err(Error::DamagedSequence { name: entry.name() });
        }
        let item = pg_sys::PageGetItemId(page, 1);
        let row = pg_sys::PageGetItem(page, item).cast::<pg_sys::HeapTupleHeaderData>();
        let data = std::ptr::read(
            row.cast::<u8>()
                .add(usize::from((*row).t_hoff))
                .cast::<SequenceData>(),
        );
        let lsn = (*page.cast::<pg_sys::PageHeaderData>()).pd_lsn;
        let lsn = u64::from(lsn.xlogid) << 32 | u64::from(lsn.xrecoff);
        pg_sys::UnlockReleaseBuffer(buffer);
        pg_sys::relation_close(relation, no_lock);
        (data, lsn)
    };
    if data.last_value < 1 {
        return Err(Error::ImpossibleMark {
            name: entry.name(),
            value: data.last_value,
        });
    }
    // What CREATE SEQUENCE leaves, whatever START it was given, is no mark either.
    let is_mark = data.is_called && data.last_value != NO_MARK;
    let mark = is_mark.then(|| {
        // A value that no generator has written is an instant, most likely one that
        // will be refused.
        (layout.clock_bits() > 0)
            .then(|| Account::of_mark(data.last_value, layout))
            .flatten()
            .map_or(
                (UnixMillis::new(data.last_value), None),
                |(mark, account)| (mark, Some(account)),
            )
    });
    Ok(Stored {
        mark: mark.map(|(mark, _)| mark),
        account: mark.and_then(|(_, account)| account),
        lsn,
    })
}

/// The magic number of sequence.c, in the special space of its page.
const SEQUENCE_MAGIC: u32 = 0x1717;

/// # Safety
/// `page` is a page in a pinned and locked buffer.
unsafe fn is_sequence_page(page: pg_sys::Page) -> bool {
    // SAFETY: the caller's; the offset is checked to lie within the page.
    unsafe {
        let special = usize::from((*page.cast::<pg_sys::PageHeaderData>()).pd_special);
        if special == 0 || special + size_of::<u32>() > pg_sys::BLCKSZ as usize {
            return false;
        }
        std::ptr::read_unaligned(page.cast::<u8>().add(special).cast::<u32>()) == SEQUENCE_MAGIC
    }
}

/// Writes a mark and makes it durable: an instant, or one with what is known of
/// clocks.
///
/// As the bootstrap superuser, around this one call: users need USAGE to get
/// IDs, not UPDATE. If `setval()` raises an error, the abort puts the user back.
pub fn write(entry: &Entry, value: i64) {
    // SAFETY: in a transaction that may write; WAL is flushed up to the last
    // record of this backend, which is the one of setval().
    unsafe {
        let mut user = pg_sys::InvalidOid;
        let mut context = 0;
        pg_sys::GetUserIdAndSecContext(&raw mut user, &raw mut context);
        #[allow(clippy::cast_possible_wrap)]
        pg_sys::SetUserIdAndSecContext(
            pg_sys::BOOTSTRAP_SUPERUSERID.into(),
            context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32,
        );
        pg_sys::OidFunctionCall2Coll(
            pg_sys::F_SETVAL_REGCLASS_INT8.into(),
            pg_sys::InvalidOid,
            pg_sys::Datum::from(entry.relation()),
            pg_sys::Datum::from(value),
        );
        pg_sys::SetUserIdAndSecContext(user, context);
        pg_sys::XLogFlush(pg_sys::XactLastRecEnd);
    }
}

/// A switch of timelines that a start has to take into account.
#[derive(Clone, Copy)]
struct Switch {
    gap_millis: i64,
    mark_is_older: bool,
    last_commit: Option<UnixMillis>,
}

/// Whether the mark is from before a switch of timelines, and how much to leave
/// out then: one gap for each switch since.
///
/// A `setval()` after the promotion moves the page's LSN past the switch, and
/// ALTER SEQUENCE ... RESTART leaves no mark at all. So a generator that starts
/// in the life of a server that was itself promoted leaves out a gap whatever it
/// finds: once as long as it keeps its slot, and from the promotion, not the
/// mark, since it may not be the first time.
fn switch(stored: &Stored, generator: &Generator) -> Option<Switch> {
    // SAFETY: reads shared memory of the recovery that has ended.
    let promoted = unsafe { pg_sys::PromoteIsTriggered() };
    let since_mark = switches_since(stored.lsn);
    let switches = since_mark.max(i64::from(promoted));
    if switches == 0 {
        return None;
    }
    // SAFETY: reads shared memory of the recovery that has ended.
    let last_commit = unsafe { pg_sys::GetLatestXTime() };
    // The lost primary may have been ahead of its clock by what it could borrow.
    let borrow = generator
        .layout
        .ticks_as_millis(generator.policy.max_borrow_ticks);
    let gap = guc::failover_gap_millis().saturating_add(borrow);
    Some(Switch {
        gap_millis: gap.saturating_mul(switches),
        mark_is_older: since_mark > 0,
        last_commit: (last_commit != 0).then(|| super::time::unix_millis(last_commit)),
    })
}

/// How many timelines began at or after a WAL location. A mark written right at
/// the switch was written before it, hence "at".
fn switches_since(lsn: pg_sys::XLogRecPtr) -> i64 {
    // SAFETY: not in recovery, or PreventCommandIfReadOnly had stopped us. The
    // list holds pointers to entries, allocated in this memory context.
    unsafe {
        let current = pg_sys::GetWALInsertionTimeLine();
        if current <= 1 {
            return 0;
        }
        let list = compat::read_timeline_history(current);
        let mut switches = 0;
        let length = if list.is_null() {
            0
        } else {
            usize::try_from((*list).length).unwrap_or(0)
        };
        for index in 0..length {
            let entry = *(*(*list).elements.add(index))
                .ptr_value
                .cast::<TimeLineHistoryEntry>();
            // The oldest timeline has no beginning. A current one without is one
            // whose history file is missing: that counts as a switch.
            let begins = entry.begin != 0 || entry.tli == current;
            if begins && (entry.begin == 0 || lsn <= entry.begin) {
                switches += 1;
            }
        }
        switches
    }
}

/// A line in the server's log.
fn log_line(message: String, detail: String) {
    pgrx::ereport!(
        pgrx::PgLogLevel::LOG_SERVER_ONLY,
        pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        format!("snowflake_id: {message}"),
        detail
    );
}

/// Logs the first of a series of refusals, and how long IDs last.
fn note_refusal(entry: &Entry, place: Place, refusal: Refusal, reading: Reading) {
    if !place.slot.begin_refusal(reading.wall.millis(), false) {
        return;
    }
    let layout = entry.generator().layout;
    let reserved = place.slot.bounds().reserved();
    let left = if reserved == Position::ZERO {
        format!(
            "Generator {} issues no IDs until that is solved.",
            entry.name()
        )
    } else {
        format!(
            "Generator {} issues IDs up to {}, and none then until that is solved.",
            entry.name(),
            super::time::display(layout.instant_of(layout.tick_of(reserved)))
        )
    };
    refused(entry, refusal).log(Some(left));
}

/// A call gets no ID because the clock was set back; the first of a series is
/// logged. Makes the error from the instant since when that is so.
pub fn note_behind(place: Place, by: i64, error: impl Fn(UnixMillis) -> Error) -> Error {
    let now = os_clock::read().wall.millis();
    place.slot.stats().count_refusal();
    place.slot.set_refused_lead(by);
    let first = place.slot.begin_refusal(now, true);
    let since = place.slot.refused_at().unwrap_or(now);
    if first {
        error(since).log(None);
    }
    error(since)
}

/// There are IDs again; the log says so if there were none.
pub fn end_refusal(entry: &Entry, place: Place) {
    if let Some(since) = place.slot.end_refusal() {
        log_line(
            format!("generator {} issues IDs again", entry.name()),
            format!("They were refused since {}.", super::time::display(since)),
        );
    }
}

/// Says what the clock did. Once: all generators share what was seen last.
fn log_step(millis: i64) {
    let by = measured_text(millis.saturating_abs());
    if millis < 0 {
        log_line(
            format!("clock moved backwards by {by}"),
            format!(
                "Generators with on_rollback=continue go on, up to {by} ahead of it; they run at half speed until it has caught up."
            ),
        );
    } else {
        log_line(
            format!("clock moved forward by {by}"),
            "Generators follow it.".to_string(),
        );
    }
}

/// How long before the end of a layout's time the log says so.
const END_IS_NEAR_MILLIS: i64 = 365 * 24 * 60 * 60 * 1000;

/// Once per generator and server start.
fn warn_of_the_end(entry: &Entry, place: Place, now: UnixNanos) {
    let layout = entry.generator().layout;
    let end = layout.instant_of(layout.last_tick());
    let left = end.get().saturating_sub(now.millis().get());
    if left < END_IS_NEAR_MILLIS && !place.slot.end_was_near() {
        log_line(
            format!(
                "generator {} has used up the time of its layout in {}",
                entry.name(),
                rounded_text(left.unsigned_abs())
            ),
            format!("It ends at {}.", super::time::display(end)),
        );
    }
}

/// A generator goes on in another clock: after a rollback, or at a start before its
/// mark.
fn log_switch(entry: &Entry, plan: &Plan, behind: Option<i64>) {
    let layout = entry.generator().layout;
    // Of those that a rollback to the same time would find.
    let from = plan.word_from.unwrap_or(plan.reserved);
    let free = plan.account.free(layout.tick_of(from), layout.clocks());
    let message = match behind {
        Some(nanos) => {
            let by = measured_text((nanos / NANOS_PER_MILLI).max(1));
            format!("clock moved backwards by {by}")
        }
        None => format!("generator {} starts before its mark", entry.name()),
    };
    log_line(
        message,
        format!(
            "Generator {} goes on in clock {} of 0 to {}; {free} more are free.",
            entry.name(),
            plan.account.clock(),
            layout.clocks() - 1,
        ),
    );
}

fn log_failover(entry: &Entry, plan: &Plan, reading: &Reading, failover: Failover) {
    log_line(
        format!(
            "generator {} was promoted with this server and leaves out {} ms",
            entry.name(),
            failover.gap_millis
        ),
        format!(
            "IDs start at {}, {} after the clock.",
            super::time::display(plan.clock_from.millis()),
            measured_text(plan.clock_from.millis_after(reading.wall)),
        ),
    );
}

fn refused(entry: &Entry, refusal: Refusal) -> Error {
    let name = entry.name();
    let layout = entry.generator().layout;
    match refusal {
        Refusal::ClockJumped { by, limit } => Error::ClockJumped { by, limit },
        Refusal::MarkAhead { by, limit, start } => Error::MarkAhead {
            name,
            by,
            limit,
            start,
        },
        Refusal::AdvanceTooFar { by, limit } => Error::AdvanceTooFar { by, limit },
        Refusal::ClockRolledBack { by, limit } => Error::ClockRolledBack { name, by, limit },
        Refusal::BeforeEpoch { epoch } => Error::ClockBeforeEpoch { name, epoch },
        Refusal::TimeUsedUp => Error::TimeUsedUp {
            name,
            last: layout.instant_of(layout.last_tick()),
        },
        Refusal::NoClockFree {
            by,
            clocks,
            free_from,
        } => Error::NoClockFree {
            name,
            by,
            clocks,
            free_from,
            since: None,
        },
    }
}
