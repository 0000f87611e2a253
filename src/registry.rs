//! PostgreSQL as the host of a registry of worker IDs: reads the tables of
//! `sql/registry.sql` for the core, which decides, and stores what it says.
//!
//! Each function takes the [`Guard`] first: statements run as the owner of the tables, whose
//! names are the extension's own from there on. Then it locks the registry, until the transaction
//! ends. Under READ COMMITTED, which is required, each statement after the lock sees what the
//! holders before have committed.
//!
//! # Who excludes whom
//!
//! A renewal changes the row of its worker ID, which the identity has that asks, and not the
//! state. All servers renew all the time. So a renewal shares the registry
//! with other renewals ([`Lock::Shared`]), and excludes only those of the same identity: one
//! flush to disk serves many. Everything else, and a renewal that would change more, has the
//! registry to itself ([`Lock::Alone`]). Then the clock is read after the lock, so that
//! registry time does not go back from one holder to the next.
//!
//! A renewal learns what it would change when it is answered. If that is too much, it has stored
//! nothing, gives its lock back, waits for the other one, and is answered anew from what is stored
//! then. Nobody waits for one lock with the other one in hand, so there is no deadlock.
//!
//! These are locks of PostgreSQL's lock manager, on the table of the state as an object, and not
//! locks of its row. They are granted in the order in which they are asked for. Rows that are
//! locked for share are not: a grant would wait as long as renewals overlap. And each row lock
//! that is shared writes WAL, and uses up a multixact.
//!
//! A renewal runs two statements: [`READ`] reads all that it needs, and [`WRITE`] stores what has
//! changed. What [`RegistryTable`] has read by then is as it was stored: the core keeps what it
//! changes.
//!
//! While the registry is locked, no server can get a worker ID. So no function that locks it
//! runs inside a transaction block, which somebody could leave open.
//!
//! A reply counts when the transaction is durable. So `synchronous_commit` is raised to
//! `on` for the rest of the transaction: a server that has crashed, or a synchronous
//! standby that is promoted, has the grant.

mod place;
mod pools;
mod witness;

pub use place::{Place, ask_hosts, read_elsewhere, read_here};
pub use pools::{WantedPool, create_pool, create_registry, drop_pool};

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::pg_sys;
use serde::Deserialize;

use self::witness::Note;
use super::error::{self, Error};
use super::guard::{Guard, Purpose};
use super::{server_key, session_generator, time};
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::registry::{self, Changes, Free, Rows, Vouchers, vouchers_of};
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    Answer, Ask, Origin, Pool, RegistryError, RegistryMillis, Request, Row, ServerKey,
};
use snowflake_registry_client::wire::{self, MessageError};

/// Reads the state, a pool, and the row of a worker ID. `leasable` are the worker IDs that are
/// not excepted; `latest`: when the registry stops to wait for the last holder of the
/// pool; `heard`: when it has heard any holder last. Each index is read from its end.
/// A row may be that of a worker ID that is no longer in the pool: its holder is not unknown.
const READ: &str = "SELECT (SELECT r.state FROM _snowflake.state AS r WHERE r.id = 1) AS state, \
        p.pool, l.lease, \
        int8multirange(p.worker_ids) - p.except_ids AS leasable, \
        (SELECT o.leased_until FROM _snowflake.leases AS o \
            WHERE o.namespace = p.namespace AND o.worker_id::bigint <@ p.worker_ids \
            ORDER BY o.leased_until DESC LIMIT 1) AS latest, \
        (SELECT max(o.heard) FROM _snowflake.leases AS o) AS heard, \
        pg_catalog.host(pg_catalog.inet_client_addr()) AS address \
    FROM _snowflake.pools AS p \
    LEFT JOIN _snowflake.leases AS l ON l.namespace = p.namespace AND l.worker_id = $2::integer \
    WHERE p.name = $1";

/// Stores the state and a row. The JSON `null` stands for what has not changed. Returns how often
/// the state was stored.
const WRITE: &str = "WITH put_row AS ( \
        INSERT INTO _snowflake.leases (namespace, lease) SELECT $2, $3::jsonb WHERE $3 <> 'null' \
        ON CONFLICT (namespace, worker_id) DO UPDATE SET lease = excluded.lease) \
    UPDATE _snowflake.state SET state = $1::jsonb, written = written + 1 \
    WHERE id = 1 AND $1 <> 'null' RETURNING written";

/// Keeps what a system has reached. What has passed goes, and so does what comes last, if there is too
/// much: a role can make up systems.
const KEEP_REACHED: &str = "WITH passed AS ( \
        DELETE FROM _snowflake.reached AS r WHERE r.system_identifier <> $1::numeric \
        AND r.reached <= extract(epoch FROM clock_timestamp()) * 1000), \
    most AS (DELETE FROM _snowflake.reached AS r WHERE r.system_identifier <> $1::numeric AND r.system_identifier IN ( \
        SELECT o.system_identifier FROM _snowflake.reached AS o ORDER BY o.reached DESC OFFSET 4096)) \
    INSERT INTO _snowflake.reached AS r VALUES ($1::numeric, $2::bigint) \
    ON CONFLICT (system_identifier) DO UPDATE SET reached = greatest(r.reached, excluded.reached)";

/// The statement that searches the free row with the least of a column. Each half reads an index
/// from where its rows begin: rows that are in use are in neither.
macro_rules! free_rows {
    ($least:literal) => {
        concat!(
            "SELECT f.lease FROM (",
            free_rows!($least, "leased_until <= $3::bigint"),
            " UNION ALL ",
            free_rows!($least, "released"),
            ") AS f ORDER BY f.",
            $least,
            ", f.worker_id LIMIT 1"
        )
    };
    ($least:literal, $free:literal) => {
        concat!(
            "(SELECT lease, worker_id, ",
            $least,
            " FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange \
             AND bound <= $4::bigint AND ",
            $free,
            " AND ((lease -> 'era')::numeric >= $5::numeric OR released AND leased_until <= $6::bigint) \
             ORDER BY ",
            $least,
            ", worker_id LIMIT 1)"
        )
    };
}

/// How a transaction has locked the registry: see the head of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    /// Beside others that share it, but not beside one of the same server: its number.
    Shared(u16),
    Alone,
}

impl Lock {
    /// Two servers of one number wait for each other, and nothing else.
    fn shared(identity: ServerKey) -> Self {
        let mut hasher = DefaultHasher::new();
        identity.text().hash(&mut hasher);
        Self::Shared(u16::try_from(hasher.finish() % u64::from(u16::MAX)).unwrap_or(0) + 1)
    }
}

/// Answers the request of a server; both are JSON.
pub fn lease(pool: &str, request: &str) -> Result<String, Error> {
    let mut request: Request = wire::decode(request).map_err(|why| match why {
        MessageError::Format(format) => error::other_format(format),
        MessageError::Content(why) => error::request_not_read(&why),
    })?;
    request.asker.fits().map_err(error::request_not_fit)?;
    let registry = Registry::enter(c"_snowflake.lease()")?;
    let shared = Lock::shared(request.asker.identity);
    if matches!(request.ask, Ask::Renew { .. })
        && let Some(reply) = registry.answer(pool, &mut request, shared)?
    {
        return Ok(reply);
    }
    let reply = registry.answer(pool, &mut request, Lock::Alone)?;
    // Alone, no change is too much.
    Ok(reply.unwrap_or_default())
}

/// Revokes the lease of a worker ID. Returns from when another server can have it.
pub fn revoke(pool: &str, worker: i32) -> Result<UnixMillis, Error> {
    let registry = Registry::alone(c"snowflake_revoke_worker()")?;
    let input = registry_input()?;
    let id = WorkerId::new(worker);
    let (mut state, mut table, _) = registry.read(pool, id)?;
    registry.recover(&mut state, &input)?;
    let id = id.filter(|id| table.pool.has(*id));
    let id = id.ok_or_else(|| error::not_in_pool(pool, worker))?;
    let row = registry::revoke(&mut state, &mut table, id, &input);
    let row = row.ok_or_else(|| error::never_leased(pool, worker))?;
    let free = if row.released {
        row.leased_until
    } else {
        row.leased_until.plus(table.pool.hold)
    };
    let changes = Changes {
        row: Some(row),
        state: true,
        ..Changes::default()
    };
    registry.write(&state, Lock::Alone, &table.namespace, &changes)?;
    Ok(free.as_nodes_clock())
}

/// Ends the grace period, or declares that this registry counts.
pub fn change(function: &CStr, f: fn(&mut State, &RegistryInput)) -> Result<(), Error> {
    let registry = Registry::alone(function)?;
    let (mut state, input) = registry.state()?;
    f(&mut state, &input);
    registry.write(&state, Lock::Alone, "", &Changes::default())
}

/// Strong random bytes.
fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut random = [0; N];
    // SAFETY: as many bytes as there are.
    let filled = unsafe { pg_sys::pg_strong_random(random.as_mut_ptr().cast(), N as pg_sys::Size) };
    filled
        .then_some(random)
        .ok_or_else(error::no_random_numbers)
}

/// What is around the registry. Its lock is held.
fn registry_input() -> Result<RegistryInput, Error> {
    // SAFETY: not in recovery, so WAL is inserted.
    let (now, timeline, database) = unsafe {
        (
            pg_sys::GetCurrentTimestamp(),
            pg_sys::GetWALInsertionTimeLine(),
            pg_sys::MyDatabaseId,
        )
    };
    Ok(RegistryInput {
        now: RegistryMillis::new(time::unix_millis(now).get()),
        origin: Origin {
            system: server_key::server_key().system,
            timeline: timeline.into(),
            database: database.to_u32().into(),
        },
        clean_since: server_key::clean_since(),
        random: u128::from_ne_bytes(random()?),
    })
}

/// The tables of a registry.
#[derive(Clone, Copy)]
struct Registry {
    guard: Guard,
}

impl Registry {
    /// Checks that the caller's transaction can lock and change the registry, and ends soon.
    fn enter(function: &CStr) -> Result<Self, Error> {
        let registry = Self::to_change(function)?;
        if is_in_block() {
            return Err(error::needs_own_transaction(&function.to_string_lossy()));
        }
        commit_at_once();
        Ok(registry)
    }

    /// Enters, and locks the registry alone.
    fn alone(function: &CStr) -> Result<Self, Error> {
        let registry = Self::enter(function)?;
        registry.lock(Lock::Alone);
        Ok(registry)
    }

    /// Checks that the caller's transaction can change the registry.
    fn to_change(function: &CStr) -> Result<Self, Error> {
        session_generator::prevent_where_nextval_is(function);
        // SAFETY: a variable of this process.
        let isolation = unsafe { pg_sys::XactIsoLevel };
        if isolation >= pg_sys::XACT_REPEATABLE_READ.cast_signed() {
            return Err(error::needs_read_committed(&function.to_string_lossy()));
        }
        commit_durably();
        Self::with(Purpose::Change)
    }

    fn with(purpose: Purpose) -> Result<Self, Error> {
        let guard = Guard::take(purpose)?.ok_or_else(error::no_registry)?;
        Ok(Self { guard })
    }

    /// The locks, in the order in which they are taken: the part of the table's object, and the mode.
    fn locks(lock: Lock) -> [Option<(u16, u32)>; 2] {
        match lock {
            Lock::Alone => [Some((0, pg_sys::ExclusiveLock)), None],
            Lock::Shared(part) => [
                Some((0, pg_sys::ShareLock)),
                Some((part, pg_sys::ExclusiveLock)),
            ],
        }
    }

    /// Locks the registry until the transaction ends.
    fn lock(self, lock: Lock) {
        for (part, mode) in Self::locks(lock).into_iter().flatten() {
            let (class, table) = (pg_sys::RelationRelationId, self.guard.table());
            // SAFETY: in a transaction; the table is locked, so it stays.
            unsafe { pg_sys::LockDatabaseObject(class, table, part, mode.cast_signed()) };
        }
    }

    /// Unlocks the registry. Nothing was stored meanwhile.
    fn unlock(self, lock: Lock) {
        for (part, mode) in Self::locks(lock).into_iter().flatten() {
            let (class, table) = (pg_sys::RelationRelationId, self.guard.table());
            // SAFETY: as in `lock`.
            unsafe { pg_sys::UnlockDatabaseObject(class, table, part, mode.cast_signed()) };
        }
    }

    fn value(self, statement: &'static str, values: &[&str]) -> Result<Option<String>, Error> {
        self.guard.value(statement, values)
    }

    /// Answers a request, and stores what it changes. `None`: it would change more than the lock
    /// allows; then nothing is stored, and the lock is given back.
    fn answer(
        self,
        pool: &str,
        request: &mut Request,
        lock: Lock,
    ) -> Result<Option<String>, Error> {
        self.lock(lock);
        let is_alone = lock == Lock::Alone;
        let input = registry_input()?;
        let worker = match request.ask {
            Ask::Acquire { fixed, .. } => fixed,
            ask => ask.token().map(|(worker, ..)| worker),
        };
        let (mut state, mut table, address) = self.read(pool, worker)?;
        // Nor is this what the request says.
        request.asker.address = address;
        table.is_alone = is_alone;
        if is_alone {
            self.recover(&mut state, &input)?;
        }
        let kept = table.pool.clone();
        let (reply, changes) = registry::handle(&mut state, &kept, &mut table, request, &input);
        if !is_alone && !table.is_renewal(&changes) {
            self.unlock(lock);
            return Ok(None);
        }
        self.write(&state, lock, &table.namespace, &changes)?;
        if matches!(reply.answer, Answer::Refused(RegistryError::Foreign)) {
            error::foreign_memory(&request.asker).log("");
        }
        Ok(Some(wire::encode(&reply)))
    }

    /// The state, and what is around it. The registry is locked.
    fn state(self) -> Result<(State, RegistryInput), Error> {
        let state = self.value("SELECT state FROM _snowflake.state WHERE id = 1", &[])?;
        let mut state = parsed(&state.ok_or_else(error::no_registry)?)?;
        let input = registry_input()?;
        self.recover(&mut state, &input)?;
        Ok((state, input))
    }

    /// Makes the state; `false` if there is one.
    fn make(self) -> Result<bool, Error> {
        let made = self.value(
            "INSERT INTO _snowflake.state VALUES (1, $1::jsonb) ON CONFLICT DO NOTHING \
             RETURNING id",
            &[&json(&State::new(&registry_input()?))],
        )?;
        Ok(made.is_some())
    }

    /// The state, a pool and its leases, with the row of a worker ID. Also returns the address of
    /// the client of this session, which is empty if it is on this machine.
    fn read(
        self,
        pool: &str,
        worker: Option<WorkerId>,
    ) -> Result<(State, RegistryTable, String), Error> {
        let id = worker
            .map_or(-1, |worker| i64::from(worker.get()))
            .to_string();
        let found = self.guard.row(READ, &[pool, &id])?;
        let found = found.ok_or_else(|| error::no_pool(pool))?;
        let state = parsed(&found.text("state"))?;
        let stored: StoredPool = parsed(&found.text("pool"))?;
        let pool = stored.pool.checked();
        let pool = pool.ok_or_else(|| error::registry_not_read("a pool that makes no sense"))?;
        let row = parsed_if(found.get("lease"))?;
        let table = RegistryTable {
            registry: self,
            namespace: stored.namespace,
            all: format!("[{},{})", pool.ids.start, pool.ids.end),
            leasable: found.text("leasable"),
            latest: instant(found.get("latest")),
            heard: instant(found.get("heard")),
            is_alone: false,
            row: worker.map(|worker| (worker, row)),
            pool,
        };
        Ok((state, table, found.text("address")))
    }

    /// Looks whether crash recovery has lost nothing: see [`witness`].
    fn recover(self, state: &mut State, input: &RegistryInput) -> Result<(), Error> {
        if state.clean_since == input.clean_since || state.era.origin != input.origin {
            return Ok(());
        }
        let Some(note) = witness::latest(state.clean_since) else {
            return Ok(());
        };
        let (first, second) = note.version;
        let (first, second) = (first.to_string(), second.to_string());
        let is_there = match &note.key {
            witness::Key::State => self.value(
                "SELECT true FROM _snowflake.state WHERE id = 1 AND written >= $1::bigint",
                &[&first],
            ),
            witness::Key::Row { namespace, worker } => self.value(
                "SELECT true FROM _snowflake.leases WHERE namespace = $1 AND worker_id = $2::integer \
                 AND ((lease -> 'counter')::numeric, (lease -> 'number')::numeric) >= ($3::numeric, $4::numeric)",
                &[namespace, &worker.to_string(), &first, &second],
            ),
        };
        if is_there?.is_some() {
            state.clean_since = input.clean_since;
        }
        Ok(())
    }

    /// Stores what has changed: alone, also the state, even if it has not changed. The row is one of
    /// this namespace.
    fn write(
        self,
        state: &State,
        lock: Lock,
        namespace: &str,
        changes: &Changes,
    ) -> Result<(), Error> {
        let is_alone = lock == Lock::Alone;
        if let Some((system, reached)) = changes.reached {
            let [system, reached] = [system.to_string(), reached.get().to_string()];
            self.value(KEEP_REACHED, &[&system, &reached])?;
        }
        let stored = json(&is_alone.then_some(state));
        let values = [&*stored, namespace, &json(&changes.row)];
        let note = match (self.value(WRITE, &values)?, &changes.row) {
            (Some(written), _) => Note {
                key: witness::Key::State,
                version: (parsed(&written)?, 0),
            },
            (None, Some(row)) => Note {
                key: witness::Key::Row {
                    namespace: namespace.to_string(),
                    worker: row.worker.get(),
                },
                version: version(row),
            },
            (None, None) => return Ok(()),
        };
        // The first pool may be made in a block, without a lock.
        witness::note(note, state.clean_since, is_alone && !is_in_block());
        Ok(())
    }
}

/// Rises with each renewal and with each grant.
const fn version(row: &Row) -> (u64, u64) {
    (row.counter, row.number)
}

/// A pool and its leases.
struct RegistryTable {
    registry: Registry,
    pool: Pool,
    namespace: String,
    /// The range of its worker IDs.
    all: String,
    /// Its worker IDs that are not excepted, as a multirange.
    leasable: String,
    /// The greatest `leased_until` of its rows.
    latest: Option<RegistryMillis>,
    /// The greatest `heard` of all rows.
    heard: Option<RegistryMillis>,
    /// Nobody else is in the registry.
    is_alone: bool,
    /// What was read with the pool.
    row: Option<(WorkerId, Option<Row>)>,
}

impl RegistryTable {
    /// Whether this is what a renewal changes: nothing, or the row that was read, to a later version.
    fn is_renewal(&self, changes: &Changes) -> bool {
        let before = self.row.as_ref().and_then(|(_, row)| row.as_ref());
        if changes.state || changes.reached.is_some() {
            return false;
        }
        match (&changes.row, before) {
            (Some(row), Some(before)) => {
                let is_same = (row.worker, row.counter) == (before.worker, before.counter);
                is_same && version(row) > version(before)
            }
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    /// Runs a statement whose first parameter is the namespace. The core has no errors, so
    /// this one ends the statement.
    fn run(&self, statement: &'static str, values: &[&str]) -> Option<String> {
        let mut all = vec![self.namespace.as_str()];
        all.extend(values);
        or_raise(self.registry.value(statement, &all))
    }

    /// Runs a statement that returns a row.
    fn search(&self, statement: &'static str, values: &[&str]) -> Option<Row> {
        let text = self.run(statement, values);
        or_raise(parsed_if(text.as_deref()))
    }
}

impl Rows for RegistryTable {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        match &self.row {
            Some((known, row)) if *known == worker => row.clone(),
            _ => self.search(
                "SELECT lease FROM _snowflake.leases WHERE namespace = $1 AND worker_id = $2::integer",
                &[&worker.get().to_string()],
            ),
        }
    }

    fn held_by(&mut self, identity: &ServerKey) -> Vec<Row> {
        let rows = self.run(
            "SELECT jsonb_agg(lease) FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND system_identifier = ($3::jsonb -> 'system')::numeric \
             AND lease #> '{holder,identity}' = $3::jsonb",
            &[&self.all, &json(identity)],
        );
        or_raise(parsed_if(rows.as_deref())).unwrap_or_default()
    }

    fn unused(&mut self) -> Option<WorkerId> {
        // Of a range, the first one that the rows, counted in their order, do not reach; else the one
        // after the last row. No row goes, so the next search begins near where this one ends.
        let id = self.run(
            "WITH found AS ( \
                 SELECT min(f.id) AS id FROM _snowflake.pools AS p \
                 CROSS JOIN LATERAL unnest($2::int8multirange * int8multirange(int8range(p.used_below, NULL))) AS u (ids) \
                 CROSS JOIN LATERAL ( \
                     SELECT coalesce((SELECT w.due FROM ( \
                             SELECT l.worker_id, lower(u.ids) - 1 + row_number() OVER (ORDER BY l.worker_id) AS due \
                             FROM _snowflake.leases AS l \
                             WHERE l.namespace = $1 AND l.worker_id >= lower(u.ids) AND l.worker_id < upper(u.ids)) AS w \
                         WHERE w.worker_id > w.due ORDER BY w.worker_id LIMIT 1), \
                         (SELECT max(l.worker_id)::bigint + 1 FROM _snowflake.leases AS l \
                         WHERE l.namespace = $1 AND l.worker_id >= lower(u.ids) AND l.worker_id < upper(u.ids)), \
                         lower(u.ids)) AS id) AS f \
                 WHERE p.name = $3 AND f.id < upper(u.ids)), \
             noted AS ( \
                 UPDATE _snowflake.pools AS p SET used_below = coalesce(f.id, upper($2::int8multirange)) FROM found AS f \
                 WHERE p.name = $3 AND coalesce(f.id, upper($2::int8multirange)) >= p.used_below + 64) \
             SELECT id FROM found",
            &[&self.leasable, &self.pool.name],
        );
        WorkerId::new(id?.parse().ok()?)
    }

    fn longest_free(&mut self, free: &Free) -> Option<Row> {
        let [expired, bound, era, settled] = free_values(free);
        self.search(
            free_rows!("leased_until"),
            &[&self.leasable, &expired, &bound, &era, &settled],
        )
    }

    fn least_bound(&mut self, free: &Free) -> Option<Row> {
        let [expired, bound, era, settled] = free_values(free);
        self.search(
            free_rows!("bound"),
            &[&self.leasable, &expired, &bound, &era, &settled],
        )
    }

    fn count_free(&mut self, free: &Free, with_unused: bool, most: i64) -> i64 {
        let [expired, bound, era, settled] = free_values(free);
        let count = |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
        let rows: i64 = count(self.run(
            "SELECT count(*) FROM (SELECT FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange \
             AND bound <= $4::bigint AND (released OR leased_until <= $3::bigint) \
             AND ((lease -> 'era')::numeric >= $5::numeric OR released AND leased_until <= $6::bigint) \
             LIMIT $7::bigint) AS f",
            &[&self.leasable, &expired, &bound, &era, &settled, &most.to_string()],
        ));
        if !with_unused || rows >= most {
            return rows;
        }
        let known: i64 = count(self.run(
            "SELECT count(*) FROM _snowflake.leases \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8multirange",
            &[&self.leasable],
        ));
        rows.saturating_add(self.pool.size().saturating_sub(known))
    }

    fn latest_heard(&mut self) -> Option<RegistryMillis> {
        self.heard
    }

    fn is_later(&mut self, latest: RegistryMillis) -> bool {
        self.latest.is_some_and(|known| known > latest)
    }

    fn clamp(&mut self, latest: RegistryMillis) {
        // Not yet: the request is answered anew.
        if !self.is_alone {
            return;
        }
        self.run(
            "UPDATE _snowflake.leases \
             SET lease = jsonb_set(lease, '{leased_until}', to_jsonb($3::bigint)) \
             WHERE namespace = $1 AND worker_id::bigint <@ $2::int8range \
             AND leased_until > $3::bigint",
            &[&self.all, &latest.get().to_string()],
        );
        self.latest = Some(latest);
        self.row = None;
    }

    fn vouchers(&mut self, asker: &ServerKey, now: RegistryMillis) -> Vouchers {
        let rows = or_raise(self.registry.value(
            "SELECT jsonb_agg(lease) FROM _snowflake.leases \
             WHERE heard BETWEEN $1::bigint - $2::bigint AND $1::bigint + $2::bigint",
            &[
                &now.get().to_string(),
                &registry::VOUCH_TIME.get().to_string(),
            ],
        ));
        let rows: Vec<Row> = or_raise(parsed_if(rows.as_deref())).unwrap_or_default();
        vouchers_of(rows.iter(), asker, now)
    }

    fn reached_by(&mut self, system: u64) -> Option<UnixMillis> {
        let bound = or_raise(self.registry.value(
            "SELECT max(b.bound) FROM (SELECT max(bound) AS bound FROM _snowflake.leases WHERE system_identifier = $1::numeric \
             UNION ALL SELECT reached FROM _snowflake.reached WHERE system_identifier = $1::numeric) AS b",
            &[&system.to_string()],
        ));
        instant(bound.as_deref()).map(RegistryMillis::as_nodes_clock)
    }
}

/// An instant as a column has it.
fn instant(millis: Option<&str>) -> Option<RegistryMillis> {
    Some(RegistryMillis::new(millis?.parse().ok()?))
}

/// The parameters of a search for free rows.
fn free_values(free: &Free) -> [String; 4] {
    let (era, settled) = match free.known {
        Some((era, settled)) => (era, settled.get()),
        None => (0, i64::MIN),
    };
    [
        free.expired.get().to_string(),
        free.bound.get().to_string(),
        era.to_string(),
        settled.to_string(),
    ]
}

fn or_raise<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| error.raise())
}

/// Whether the transaction continues after this statement.
fn is_in_block() -> bool {
    // SAFETY: reads the state of the transaction.
    unsafe { pg_sys::IsInTransactionBlock(true) }
}

/// Lets the transaction end with this statement. A client that sends statements without a
/// Sync message would leave it open, as in a transaction block.
fn commit_at_once() {
    let flag = pg_sys::XACT_FLAGS_NEEDIMMEDIATECOMMIT.cast_signed();
    // SAFETY: a variable of this process, of the present transaction.
    unsafe { pg_sys::MyXactFlags |= flag };
}

/// Reads what the registry has stored.
fn parsed<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|why| error::registry_not_read(&why.to_string()))
}

fn parsed_if<T: for<'a> Deserialize<'a>>(text: Option<&str>) -> Result<Option<T>, Error> {
    text.map(parsed).transpose()
}

/// What the registry stores.
fn json(value: &impl serde::Serialize) -> String {
    // The core's types have no content that JSON lacks.
    serde_json::to_string(value).unwrap_or_default()
}

/// Makes the commit of this transaction wait until it is durable.
fn commit_durably() {
    let on = pg_sys::SyncCommitLevel::SYNCHRONOUS_COMMIT_REMOTE_FLUSH.cast_signed();
    // SAFETY: NUL-terminated constants, of a setting that each user can set. As SET LOCAL
    // does, it holds until the transaction ends, not only until the function does.
    unsafe {
        if pg_sys::synchronous_commit < on {
            pg_sys::set_config_option(
                c"synchronous_commit".as_ptr(),
                c"on".as_ptr(),
                pg_sys::GucContext::PGC_USERSET,
                pg_sys::GucSource::PGC_S_SESSION,
                pg_sys::GucAction::GUC_ACTION_LOCAL,
                true,
                0,
                false,
            );
        }
    }
}
