//! The horizon of a generator, and what the triggers that keep to it need.
//!
//! `snowflake_core::horizon` has the protocol, [`crate::session::tx_holds`] what this session holds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use pgrx::pg_sys;

use crate::server::os_clock;
use crate::server::shmem::{self, Shared, SlotKey};
use crate::session::generator::{Purpose, SessionGenerator};
use crate::session::{self, error::Error, horizon_error, issue, tx_holds};
use snowflake_core::horizon::{BEGINNING, InsertError};
use snowflake_core::id::{SnowflakeId, UnixMillis};
use snowflake_core::protocol::slot::Slot;

thread_local! {
    /// What the triggers need that this session has run, by their OIDs: the number of the
    /// column, and the generator.
    static TRIGGERS: RefCell<BTreeMap<u32, (i32, &'static SessionGenerator)>> = const { RefCell::new(BTreeMap::new()) };
    /// The change of any relation until which that holds: a table, its trigger, privileges, a
    /// generator.
    static AS_OF: Cell<u64> = const { Cell::new(0) };
}

/// The horizon of a generator. The caller has checked its privilege, and that the generator
/// never goes back.
pub fn read(entry: &'static SessionGenerator) -> Result<UnixMillis, Error> {
    let shared = shmem::shared()?;
    let (slot, reached) = issue::advance_to_now(entry)?;
    let key = entry.key().bits();
    let search = || tx_holds::least_locked(shared, key);
    Ok(slot.horizon().read(reached, shared, key, search))
}

/// The least ID of a tick that begins at an instant.
pub fn least_id(entry: &SessionGenerator, at: UnixMillis) -> Result<i64, Error> {
    let layout = entry.describe()?.generator.layout;
    let tick = layout.tick_from(at).min(layout.last_tick());
    Ok(layout.range_of(tick)?.0.get())
}

/// The horizon of a generator if its cursor were at `now`, for a view. `locked` are all that is
/// held by locks, by their instants.
pub fn at(
    shared: &Shared,
    key: SlotKey,
    slot: &Slot,
    locked: &[(u64, UnixMillis)],
    now: UnixMillis,
) -> UnixMillis {
    let key = key.bits();
    let locked = locked.iter().find(|(its, _)| *its == key);
    slot.horizon()
        .peek(now, shared, key, locked.map(|(_, at)| *at))
}

/// Inserts an ID that may come from elsewhere, see `snowflake_core::horizon`.
pub fn insert(entry: &'static SessionGenerator, id: i64) -> Result<(), Error> {
    let shared = shmem::shared()?;
    // A change of the label waits for us, and we wait for it.
    entry.lock();
    let described = entry.describe()?;
    let layout = described.generator.layout;
    let fields = described.label.decode(SnowflakeId::new(id))?.fields;
    let at = layout.instant_of(fields.tick);
    let mut slot = entry.context().map_or_else(
        || {
            entry
                .context_or_fill(Purpose::Advance)
                .map(|context| context.slot)
        },
        |context| Ok(context.slot),
    )?;
    if slot.horizon().announced() == BEGINNING {
        // Nobody has used the generator since the server started.
        slot = issue::advance_to_now(entry)?.0;
    }
    // No reader gets a row of the far future. A generator may be ahead of the clock itself.
    let reached = slot.live().cursor().position();
    let reached = layout.instant_of(layout.tick_of(reached));
    let by = at.since(os_clock::wall().millis().max(reached));
    let generator = described.generator;
    let limit = generator.within(generator.policy.max_observe).max_borrow();
    if by > limit {
        return Err(horizon_error::future(&entry.name(), id, by, limit));
    }
    let inserted = tx_holds::insert(shared, entry.key(), at, slot.horizon());
    inserted.map_err(|why| match why {
        InsertError::Past(announced) => horizon_error::past(&entry.name(), id, announced, layout),
        InsertError::Unheld(error) => error,
    })
}

/// What a trigger needs, found by `find` once in a session.
pub fn of_trigger(
    trigger: pg_sys::Oid,
    find: impl FnOnce() -> Result<(i32, &'static SessionGenerator), Error>,
) -> Result<(i32, &'static SessionGenerator), Error> {
    let number = trigger.to_u32();
    let now = session::changes();
    if AS_OF.replace(now) != now {
        TRIGGERS.with_borrow_mut(BTreeMap::clear);
    }
    if let Some(known) = TRIGGERS.with_borrow(|known| known.get(&number).copied()) {
        return Ok(known);
    }
    let found = find()?;
    TRIGGERS.with_borrow_mut(|known| known.insert(number, found));
    Ok(found)
}

/// Refuses a generator that may go back.
pub fn check_ascends(entry: &SessionGenerator) -> Result<(), Error> {
    let generator = &entry.describe()?.generator;
    let descent = generator.descends();
    descent.map_or(Ok(()), |descent| {
        Err(horizon_error::descends(&entry.name(), descent))
    })
}
