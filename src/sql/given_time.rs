//! IDs of given times: those of rows that are older than their insertion, such as an import's.
//!
//! Such an ID lies in a tick that has passed, where this server and others have issued IDs. What
//! makes it unique:
//!
//! 1. Its worker ID is one that no server has had. A superuser vouches for that by
//!    `snowflake_reserve_worker_id()`. What this server knows, it checks: its own worker ID, and
//!    what its registry can lease and has leased. The word is good for ticks before the call:
//!    a server that gets the worker ID later has only later ones.
//! 2. Table `_snowflake.issued_at` has how many of these IDs each tick has: one row for each tick,
//!    which is written in the transaction of the caller. Two transactions that want IDs of one tick
//!    wait for each other, and what is rolled back was not issued.
//! 3. Somebody may have got IDs that the table does not have, since a part of it was lost: after
//!    a restore, after a promotion without the latest transactions, in a copy of the server. So a
//!    reservation is for this server and this life of it, [`server`]. In any other one, calls are
//!    refused until a worker ID is reserved that was not used before, or a superuser says that
//!    nothing was lost. A commit waits for the disk, whatever `synchronous_commit` says: what the
//!    client has been told survives a crash.
//! 4. The label's layout says where an ID has its parts, so a reservation is for one layout. It
//!    begins with a mark: a generator without one could get a layout in which its IDs of now are
//!    equal to these.
//!
//! Rows are locked in this order: the reservation, which [`reserve`] takes for itself; then ticks.

use std::cell::Cell;
use std::sync::OnceLock;

use pgrx::pg_sys;

use super::super::error::{self, Error, given_time};
use super::super::guard::{Guard, Purpose};
use super::super::label::Described;
use super::super::session_generator::{self, SessionGenerator};
use super::super::shmem::Shared;
use super::super::spi::SpiRow;
use super::super::{compat, guc, os_clock, registry, server_key, session, shmem, start_file};
use super::call::{Call, c_function};
use super::{admin, decode};
use snowflake_core::id::Tick;
use snowflake_core::label::Label;

/// The reservation of a generator, which stays as it is until the transaction ends.
const RESERVED: &str = "SELECT worker_id, server, layout, before_tick FROM _snowflake.reserved WHERE generator = $1::oid FOR SHARE";

/// One more ID in a tick; returns how many it had. The tick is named by its first ID.
const COUNT: &str = "INSERT INTO _snowflake.issued_at AS i (generator, first_id, ids) VALUES ($1::oid, $2::bigint, 1) \
     ON CONFLICT (generator, first_id) DO UPDATE SET ids = i.ids + 1 RETURNING i.ids - 1 AS before";

/// The reservation of a generator, for [`reserve`], and whether it has used a worker ID before.
const TO_CHANGE: &str = "SELECT worker_id, server, layout, $2::bigint = ANY (used) AS is_used \
     FROM _snowflake.reserved WHERE generator = $1::oid FOR UPDATE";

const MAKE: &str = "INSERT INTO _snowflake.reserved (generator, worker_id, server, layout, before_tick) \
     VALUES ($1::oid, $2::bigint, $3, $4, $5::bigint)";

const CONFIRM: &str = "UPDATE _snowflake.reserved SET server = $2, before_tick = $3::bigint WHERE generator = $1::oid";

const REPLACE: &str = "UPDATE _snowflake.reserved SET worker_id = $2::bigint, server = $3, layout = $4, \
     before_tick = $5::bigint, used = used || worker_id WHERE generator = $1::oid";

/// No ID has the worker ID of before any more. OIDs of generators that are gone can come again.
const FORGET: &str = "DELETE FROM _snowflake.issued_at AS i WHERE i.generator = $1::oid OR NOT EXISTS \
     (SELECT FROM pg_class AS c WHERE c.oid = i.generator)";

const FORGET_DROPPED: &str = "DELETE FROM _snowflake.reserved AS r WHERE NOT EXISTS \
     (SELECT FROM pg_class AS c WHERE c.oid = r.generator)";

/// Whether the registry of this server can be seen, which of its pools can lease a worker ID, and
/// whether it has leased it before: in the namespace of the pool that is named, or in all of them if
/// no pool has that name.
const POOLS: &str = "SELECT count(u.now) AS registries, string_agg(p.name, ', ') AS pools, bool_or(EXISTS ( \
         SELECT FROM unnest(u.namespaces, u.leases) AS l (namespace, lease) \
         WHERE (l.lease -> 'worker')::bigint = $1::bigint AND coalesce(l.namespace = n.namespace, true))) AS was_leased \
     FROM _snowflake.used AS u \
     LEFT JOIN LATERAL ( \
         SELECT o.pool ->> 'namespace' AS namespace FROM unnest(u.pools) AS o (pool) WHERE o.pool ->> 'name' = $2) AS n ON true \
     LEFT JOIN LATERAL ( \
         SELECT s.pool ->> 'name' AS name FROM unnest(u.pools) AS s (pool) \
         WHERE int8range((s.pool #> '{ids,start}')::bigint, (s.pool #> '{ids,end}')::bigint) @> $1::bigint \
           AND NOT _snowflake.ranges(s.pool -> 'except') @> $1::bigint \
           AND coalesce(s.pool ->> 'namespace' = n.namespace, true)) AS p ON true";

/// This database of this server, and since when nothing may have been lost of what was stored before:
/// [`server_key::clean_since`]. A promotion begins a timeline. A server that was stopped and then
/// copied or restored is at another place, unless its disk was copied as a whole.
fn server() -> &'static str {
    static SERVER: OnceLock<String> = OnceLock::new();
    SERVER.get_or_init(|| {
        let place = start_file::place();
        // SAFETY: as many bytes as there are; variables of this process, which is not in recovery.
        unsafe {
            let length = i32::try_from(place.len()).unwrap_or(i32::MAX);
            let place = pg_sys::hash_bytes_extended(place.as_ptr(), length, 0);
            let (system, timeline) = (
                pg_sys::GetSystemIdentifier(),
                pg_sys::GetWALInsertionTimeLine(),
            );
            let (database, clean) = (pg_sys::MyDatabaseId.to_u32(), server_key::clean_since());
            format!("{system:x}-{database:x}-{timeline:x}-{place:x}-{clean:x}")
        }
    })
}

/// A generator that gives IDs of given times, to a role that may set its mark, as `setval()`.
struct Given {
    described: &'static Described,
    /// Its OID, as a parameter.
    oid: String,
    guard: Guard,
}

impl Given {
    fn new(entry: &'static SessionGenerator) -> Result<Self, Error> {
        entry.lock_for(pg_sys::ACL_UPDATE)?;
        let described = entry.learn()?.described;
        let layout = described.label.layout();
        if !layout.has_worker() || layout.sequence_bits() == 0 {
            return Err(given_time::no_field(
                &entry.name(),
                &described.label.layout_text(),
            ));
        }
        // This lock is of the weakest mode: requests to a registry in this database continue.
        let guard = Guard::take(Purpose::Read)?.ok_or_else(error::no_default_generator)?;
        let oid = entry.relation().to_u32().to_string();
        Ok(Self {
            described,
            oid,
            guard,
        })
    }

    const fn label(&self) -> &Label {
        &self.described.label
    }

    /// Where an ID of this generator has its parts, as text.
    fn layout(&self) -> String {
        let values = self.label().values().into_iter();
        let layout = values.filter(|(key, _)| ["layout", "epoch", "tick"].contains(key));
        layout.map(|(_, value)| value).collect::<Vec<_>>().join(" ")
    }
}

/// A reservation that this session has read and locked.
#[derive(Clone, Copy)]
struct Held {
    /// The generator, and what the locks and the reading are good for: this part of this
    /// transaction, until PostgreSQL tells of a change.
    holds_for: (pg_sys::Oid, u32, pg_sys::SubTransactionId, u64),
    guard: Guard,
    worker: i64,
    /// IDs are of ticks before this one.
    before: Tick,
}

thread_local! {
    /// What the latest call has found: to find it again takes longer than all else.
    static HELD: Cell<Option<Held>> = const { Cell::new(None) };
}

impl Held {
    fn of(entry: &'static SessionGenerator) -> Result<Self, Error> {
        entry.lock_for(pg_sys::ACL_UPDATE)?;
        // SAFETY: in a transaction.
        let part = unsafe { pg_sys::GetCurrentSubTransactionId() };
        let transaction = compat::transaction();
        let holds_for = (entry.relation(), transaction, part, session::changes());
        if let Some(known) = HELD.get().filter(|it| it.holds_for == holds_for) {
            return Ok(known);
        }
        let given = Given::new(entry)?;
        let reserved = given.guard.row(RESERVED, &[&given.oid])?;
        let reserved = reserved.ok_or_else(|| given_time::not_reserved(&entry.name()))?;
        let worker = number(reserved.get("worker_id"))?;
        if reserved.get("server") != Some(server()) {
            return Err(given_time::may_have_lost(&entry.name(), worker));
        }
        if reserved.get("layout") != Some(&given.layout()) {
            return Err(given_time::other_layout(&entry.name(), worker));
        }
        let held = Self {
            holds_for,
            guard: given.guard,
            worker,
            before: Tick::new(number(reserved.get("before_tick"))?.unsigned_abs()),
        };
        HELD.set(Some(held));
        Ok(held)
    }
}

// `snowflake_nextval_at(created_at [, generator]) -> bigint`.
c_function!(snowflake_nextval_at, |call| {
    let shared = shmem::shared()?;
    let entry = call.entry(1)?;
    session_generator::prevent_where_nextval_is(c"snowflake_nextval_at()");
    let held = Held::of(entry)?;
    let described = entry.learn()?.described;
    check_not_own(entry, described, held.worker, shared)?;
    let layout = described.label.layout();
    let tick = decode::tick(call, &layout)?;
    if tick >= held.before {
        let before = layout.instant_of(held.before);
        return Err(given_time::not_before(&entry.name(), held.worker, before));
    }
    let compose = |sequence| decode::compose(&described.label, tick, held.worker, sequence);
    let (oid, first) = (
        entry.relation().to_u32().to_string(),
        compose(0)?.to_string(),
    );
    let before = number(held.guard.value(COUNT, &[&oid, &first])?.as_deref())?;
    if before.unsigned_abs() > layout.max_sequence() {
        return Err(given_time::full(
            &entry.name(),
            layout.instant_of(tick),
            before,
        ));
    }
    // SAFETY: sets a flag of this transaction.
    unsafe { pg_sys::ForceSyncCommit() };
    compose(before)
});

// `snowflake_reserve_worker_id(generator, worker_id, nothing_lost)`.
c_function!(snowflake_reserve_worker_id, reserve);

fn reserve(call: &Call) -> Result<(), Error> {
    HELD.set(None);
    let shared = shmem::shared()?;
    session_generator::prevent_where_nextval_is(c"snowflake_reserve_worker_id()");
    let entry = session::of_named(call.get(0).unwrap_or(pg_sys::InvalidOid))?;
    let now = os_clock::wall().millis();
    let given = Given::new(entry)?;
    let (name, worker) = (entry.name(), call.number(1));
    let _ = decode::compose(given.label(), Tick::new(0), worker, 0)?;
    check_not_own(entry, given.described, worker, shared)?;
    check_not_leased(&given, worker)?;
    let (number, layout) = (worker.to_string(), given.layout());
    let reserved = given.guard.row(TO_CHANGE, &[&given.oid, &number])?;
    let is_same = |row: &SpiRow| row.get("worker_id") == Some(&number);
    if let Some(reserved) = &reserved {
        if reserved.is("is_used") {
            return Err(given_time::used(&name, worker));
        }
        if is_same(reserved) && reserved.get("layout") != Some(&layout) {
            return Err(given_time::other_layout(&name, worker));
        }
        let is_here = reserved.get("server") == Some(server());
        if is_same(reserved) && !is_here && !call.get(2).unwrap_or(false) {
            return Err(given_time::may_have_lost(&name, worker));
        }
    }
    admin::raise(entry, |_| Ok(now))?;
    let before = given.label().layout().tick_at(now, 0)?.get().to_string();
    let values = [&*given.oid, &number, server(), &layout, &before];
    match &reserved {
        None => {
            given.guard.row(FORGET_DROPPED, &[])?;
            given.guard.row(MAKE, &values)?;
        }
        Some(reserved) if is_same(reserved) => {
            given.guard.row(CONFIRM, &[&given.oid, server(), &before])?;
        }
        Some(_) => {
            given.guard.row(FORGET, &[&given.oid])?;
            given.guard.row(REPLACE, &values)?;
        }
    }
    Ok(())
}

/// Refuses the worker ID with which this server issues IDs of the present.
fn check_not_own(
    entry: &SessionGenerator,
    described: &Described,
    worker: i64,
    shared: &Shared,
) -> Result<(), Error> {
    let own = entry.worker_id(described, shared);
    match own {
        Some(own) if i64::from(own.get()) == worker => {
            Err(given_time::own_worker(&entry.name(), worker))
        }
        _ => Ok(()),
    }
}

/// Refuses a worker ID that the registry of this server can lease to a server or a generator, or has
/// leased.
fn check_not_leased(given: &Given, worker: i64) -> Result<(), Error> {
    if registry::is_not_the_setting()? {
        return Err(given_time::two_registries());
    }
    let server_pool = guc::pool();
    let pool = if given.described.generator.rotates_worker() {
        given.label().pool()
    } else {
        &server_pool
    };
    let found = given.guard.row(POOLS, &[&worker.to_string(), pool])?;
    let get = |column| found.as_ref().and_then(|row| row.get(column));
    match (get("pools"), get("was_leased")) {
        (Some(pools), _) => Err(given_time::can_be_leased(worker, pools)),
        (None, Some("t")) => Err(given_time::was_leased(worker)),
        _ if guc::registry().is_empty() || get("registries") != Some("0") => Ok(()),
        _ => Err(given_time::no_registry(worker)),
    }
}

/// A number that a statement of ours has returned.
fn number(text: Option<&str>) -> Result<i64, Error> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(error::no_query)
}
