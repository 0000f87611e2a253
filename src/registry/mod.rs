//! PostgreSQL as the host of a registry of worker IDs: reads the tables of
//! `sql/registry.sql` for the core, which decides, and stores what it says. Locks see to it that what
//! was read is still so when it stores.
//!
//! Each function takes the [`Guard`] first: statements run as the owner of the tables, whose
//! names are the extension's own from there on. Then it locks the registry, until the transaction
//! ends. Under READ COMMITTED, which is required, each statement after the lock sees what the
//! holders before have committed.
//!
//! # Who excludes whom
//!
//! A renewal is answered from the row of its worker ID, which the identity has that asks, and changes
//! that row only. All servers renew all the time. So a renewal shares the registry
//! with other renewals ([`Lock::Shared`]), and excludes only those of the same identity: one
//! flush to disk serves many. Everything else, and a renewal that needs or would change more, has the
//! registry to itself ([`Lock::Alone`]). Then the clock is read after the lock, so that
//! registry time does not go back from one holder to the next.
//!
//! A renewal learns what it would change when it is answered. If that is too much, it has stored
//! nothing, gives its lock back, waits for the other one, and is answered anew from all rows that are
//! stored then. Nobody waits for one lock with the other one in hand, so there is no deadlock.
//!
//! These are locks of PostgreSQL's lock manager, on the table of the state as an object, and not
//! locks of its row. They are granted in the order in which they are asked for. Rows that are
//! locked for share are not: a grant would wait as long as renewals overlap. And each row lock
//! that is shared writes WAL, and uses up a multixact.
//!
//! Each request runs two statements: one reads ([`READ_ONE`] or [`READ_ALL`]), and [`WRITE`] stores
//! what has changed.
//!
//! While the registry is locked, no server can get a worker ID. So no function that locks it
//! runs inside a transaction block, which somebody could leave open.
//!
//! A reply counts when the transaction is durable. So `synchronous_commit` is raised to
//! `on` for the rest of the transaction: a server that has crashed, or a synchronous
//! standby that is promoted, has the grant.

pub mod client_error; // why PostgreSQL has not answered
pub mod error; // the errors of a registry
pub mod etcd_admin; // what administrators do with a registry in etcd
pub mod etcd_error; // the errors of a registry in etcd

mod place;
mod pools;
mod witness;

pub use place::{Place, ask_hosts, read_elsewhere, read_here};
pub use pools::{WantedPool, create_pool, create_registry, drop_pool};

use std::ffi::CStr;
use std::hash::{DefaultHasher, Hash, Hasher};

use pgrx::pg_sys;
use serde::Deserialize;

use crate::postgres::own_tables::{Guard, Purpose};
use crate::postgres::time;
use crate::registry::{error::Error, witness::Note};
use crate::server::server_key;
use crate::session::generator;
use snowflake_core::id::{UnixMillis, WorkerId};
use snowflake_core::lease::etcd::StoredPool;
use snowflake_core::lease::registry::{self, Changes, Rows};
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    Answer, Origin, Pool, RegistryError, RegistryMillis, Request, Row, ServerKey,
};
use snowflake_registry_client::wire::{self, MessageError};

/// The statement that reads the state, a pool, and rows of its namespace and of others.
macro_rules! read {
    ($rows:literal, $elsewhere:literal) => {
        concat!(
            "SELECT (SELECT r.state FROM _snowflake.state AS r WHERE r.id = 1) AS state, p.pool, \
             pg_catalog.host(pg_catalog.inet_client_addr()) AS address, \
             (SELECT json_agg(l.lease) FROM _snowflake.leases AS l WHERE l.namespace = p.namespace",
            $rows,
            ") AS rows, ",
            $elsewhere,
            " AS elsewhere FROM _snowflake.pools AS p WHERE p.name = $1"
        )
    };
}

/// Reads one row. It may be that of a worker ID that is no longer in the pool: its holder is not
/// unknown.
const READ_ONE: &str = read!(" AND l.worker_id = $2::integer", "NULL::json");

const READ_ALL: &str = read!(
    "",
    "(SELECT json_agg(l.lease) FROM _snowflake.leases AS l WHERE l.namespace <> p.namespace)"
);

/// Stores rows and the state. The JSON `null` stands for a state that has not changed. Returns how
/// often the state was stored.
const WRITE: &str = "WITH put_rows AS ( \
        INSERT INTO _snowflake.leases (namespace, lease) \
        SELECT $2, r.lease FROM jsonb_array_elements($3::jsonb) AS r (lease) \
        ON CONFLICT (namespace, worker_id) DO UPDATE SET lease = excluded.lease) \
    UPDATE _snowflake.state SET state = $1::jsonb, written = written + 1 \
    WHERE id = 1 AND $1 <> 'null' RETURNING written";

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
    if registry::only_row(&request.ask).is_some()
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
    let mut found = registry.read(pool, id)?;
    registry.recover(&mut found.state, &input)?;
    let id = id.filter(|id| found.pool.has(*id));
    let id = id.ok_or_else(|| error::not_in_pool(pool, worker))?;
    let row = found.rows.rows.get_mut(&id);
    let row = row.ok_or_else(|| error::never_leased(pool, worker))?;
    let free = registry::revoke(&mut found.state, &found.pool, row, &input);
    let changes = Changes {
        rows: found.rows.rows,
        state: true,
    };
    registry.write(&found.state, Lock::Alone, &found.namespace, &changes)?;
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
        generator::prevent_where_nextval_is(function);
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

    /// Answers a request, and stores what it changes. `None`: it needs or would change more than the
    /// lock allows; then nothing is stored, and the lock is given back.
    fn answer(
        self,
        pool: &str,
        request: &mut Request,
        lock: Lock,
    ) -> Result<Option<String>, Error> {
        self.lock(lock);
        let is_alone = lock == Lock::Alone;
        let input = registry_input()?;
        let only = registry::only_row(&request.ask).filter(|_| !is_alone);
        let mut found = self.read(pool, only)?;
        // Nor is this what the request says.
        request.asker.address = found.address;
        if is_alone {
            self.recover(&mut found.state, &input)?;
        }
        let (state, pool) = (&mut found.state, &found.pool);
        let answer = registry::handle(state, pool, found.rows, request, &input);
        let Some((reply, changes)) = answer else {
            self.unlock(lock);
            return Ok(None);
        };
        self.write(&found.state, lock, &found.namespace, &changes)?;
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

    /// Reads a pool with the row of one worker ID, or with all rows.
    fn read(self, pool: &str, only: Option<WorkerId>) -> Result<Reading, Error> {
        let found = match only {
            Some(worker) => self
                .guard
                .row(READ_ONE, &[pool, &worker.get().to_string()])?,
            None => self.guard.row(READ_ALL, &[pool])?,
        };
        let found = found.ok_or_else(|| error::no_pool(pool))?;
        let stored: StoredPool = parsed(&found.text("pool"))?;
        let pool = stored.pool.checked();
        let rows = |name| -> Result<Vec<Row>, Error> {
            Ok(found.get(name).map(parsed).transpose()?.unwrap_or_default())
        };
        let here = rows("rows")?.into_iter().map(|row| (row.worker, row));
        Ok(Reading {
            state: parsed(&found.text("state"))?,
            pool: pool.ok_or_else(|| error::registry_not_read("a pool that makes no sense"))?,
            namespace: stored.namespace,
            rows: Rows {
                rows: here.collect(),
                elsewhere: rows("elsewhere")?,
                is_all: only.is_none(),
            },
            address: found.text("address"),
        })
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

    /// Stores what has changed: alone, also the state, even if it has not changed. The rows are those
    /// of this namespace.
    fn write(
        self,
        state: &State,
        lock: Lock,
        namespace: &str,
        changes: &Changes,
    ) -> Result<(), Error> {
        let is_alone = lock == Lock::Alone;
        let stored = json(&is_alone.then_some(state));
        let rows: Vec<&Row> = changes.rows.values().collect();
        let values = [&*stored, namespace, &json(&rows)];
        let note = match (self.value(WRITE, &values)?, rows.first()) {
            (Some(written), _) => Note {
                key: witness::Key::State,
                version: (parsed(&written)?, 0),
            },
            (None, Some(row)) => Note {
                key: witness::Key::Row {
                    namespace: namespace.to_string(),
                    worker: row.worker.get(),
                },
                // Rises with each renewal and with each grant.
                version: (row.counter, row.number),
            },
            (None, None) => return Ok(()),
        };
        // The first pool may be made in a block, without a lock.
        witness::note(note, state.clean_since, is_alone && !is_in_block());
        Ok(())
    }
}

/// What was read of a registry.
struct Reading {
    state: State,
    pool: Pool,
    namespace: String,
    rows: Rows,
    /// The address of the client of this session; empty if it is on this machine.
    address: String,
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
