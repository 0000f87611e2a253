//! Watermarks: messages in WAL that say how far the IDs of a generator are complete there. A
//! process for each database of `snowflake_id.watermark_databases` writes them, which the keeper
//! starts. It is connected to its database, since decoding passes on the messages of one database.
//!
//! **Each transaction that inserts IDs below a watermark, which it has taken itself, has its
//! record before the watermark in WAL**: of its commit, its abort or, if it is prepared, of that
//! end of it. A server that has the watermark in its WAL issues no ID below it.
//!
//! # Why
//!
//! Let a transaction have taken an ID below the horizon H of a message. By the argument in
//! `snowflake_core::horizon`, the reader of H has seen that the transaction's hold was withdrawn,
//! or that its lock was freed: what the session did before that happens before the read of H.
//! Before both, the session has written the record of the transaction's end:
//!
//! | end | order in 15 to 18 |
//! |---|---|
//! | COMMIT | the record; `ProcArrayEndTransaction()`; PostgreSQL frees the locks; the callback of resource owners, which withdraws |
//! | ROLLBACK | the record, if it has a number; the same |
//! | PREPARE | XACT_EVENT_PRE_PREPARE takes the lock; it goes over to the prepared transaction; XACT_EVENT_PREPARE withdraws the place |
//! | COMMIT PREPARED, ROLLBACK PREPARED | the record; then PostgreSQL frees the locks |
//! | restart, promotion | locks of prepared transactions are taken again before any of our processes starts |
//!
//! This process reserves the room of its message in WAL after it has read H. Room is given out
//! under one spinlock, and always behind what was given out before. So the record comes first.
//! Decoding passes on a transaction where the record of its end stands, and the message where it
//! stands. Each beginning of WAL, as a crash or a promotion leaves it, that has the message has
//! the record as well.
//!
//! H is at most the position that the cursor had, which is at most the bound, which is at most a
//! mark that was durable before: so the mark stands before the message in WAL. A server that
//! starts or is promoted with both starts at the mark.
//!
//! So nothing that is read after H may enter a message. Two processes that write for one database
//! at a time, as while the keeper is started anew, may write a lower watermark after a higher one;
//! each of them is true.
//!
//! # When
//!
//! Each generator that was used since its last watermark has one in each round. When nobody uses it
//! any more, it gets watermarks until one is above its last ID. Then it is idle, and gets one in
//! [`IDLE`]: who merges the streams of several servers waits for the least watermark. For that it
//! IDs have to be reserved, which costs a flush: those of idle generators come last, and the rest of
//! them waits if the round has taken too long. The process waits for no registry: a generator that
//! lacks a worker ID, or a later bound, would delay all others.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::time::{Duration, Instant};

use pgrx::bgworkers::{BackgroundWorker, SignalWakeFlags};
use pgrx::{PgMemoryContexts, PgSqlErrorCode, pg_sys};

use super::error::{self, Error};
use super::session_generator::{Purpose, SessionGenerator};
use super::shmem::{self, Shared, SlotKey};
use super::{catalog, compat, generator_horizon, guc, label, mark, report, session, time};
use snowflake_core::id::{Position, UnixMillis};

/// The name in `pg_stat_activity`.
pub const NAME: &str = "snowflake_id watermarks";

/// What consumers know the messages by.
const PREFIX: &CStr = c"snowflake_watermark";

/// How long an idle generator goes without a watermark.
const IDLE: Duration = Duration::from_secs(60);

/// How long a generator rests whose watermark has failed. As long, the log says nothing of one
/// that lacks what the keeper has yet to get from the registry: the next round tries again.
const RETRY: Duration = Duration::from_secs(5);

/// Names in watermarks have their schemas, times are in UTC, and a reservation waits for no
/// standby. These also take the place of what is set for the database: its owner may not choose
/// whose functions and operators this process finds, which runs as a superuser.
const SETTINGS: [(&CStr, &CStr); 5] = [
    (c"search_path", c"pg_catalog, pg_temp"),
    (c"TimeZone", c"UTC"),
    (c"synchronous_commit", c"local"),
    (c"quote_all_identifiers", c"off"),
    (c"lock_timeout", c"0"),
];

/// The main function of the background worker. Its argument is the database.
#[pgrx::pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn write_watermarks(database: pg_sys::Datum) {
    compat::end_at_interrupts();
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP);
    let database = u32::try_from(database.value()).unwrap_or(0);
    BackgroundWorker::connect_worker_to_spi_by_oid(Some(database.into()), None);
    let Ok(shared) = shmem::shared() else {
        return;
    };
    for (name, value) in SETTINGS {
        let (superuser, over_all) = (
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_OVERRIDE,
        );
        // SAFETY: NUL-terminated constants.
        unsafe { pg_sys::SetConfigOption(name.as_ptr(), value.as_ptr(), superuser, over_all) };
    }
    let mut writer = Writer {
        shared,
        database: in_transaction(|| Ok(catalog::database_name())).unwrap_or_default(),
        known: BTreeMap::new(),
        is_seeded: false,
        obstacle: None,
    };
    let mut context = PgMemoryContexts::new(NAME);
    let mut next = Instant::now();
    loop {
        pgrx::check_for_interrupts!();
        if BackgroundWorker::sighup_received() {
            // SAFETY: in the main loop of a background worker.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            // It may have become shorter.
            next = next.min(Instant::now() + guc::watermark_interval());
        }
        let now = Instant::now();
        let interval = guc::watermark_interval();
        if now >= next {
            next = now + interval;
            // SAFETY: switched to for each round, and emptied after it: texts of messages.
            unsafe {
                context.switch_to(|_| writer.round(interval));
                context.reset();
                pg_sys::pgstat_report_stat(false);
            }
            // A round that takes long, with many locks, rests as long as it took.
            let took = now.elapsed();
            next = next.max(now + 2 * took);
        }
        let left = next.saturating_duration_since(Instant::now());
        compat::wait_watermark(i64::try_from(left.as_millis()).unwrap_or(0) + 1);
    }
}

/// What the process knows of a generator.
#[derive(Default)]
struct Known {
    /// The greatest watermark that was written.
    sent: Option<UnixMillis>,
    /// The next position, if all IDs before it lie below the watermark.
    closed: Option<Position>,
    /// Nothing is done before this; for an idle generator, nor before [`IDLE`] has passed.
    rests_until: Option<Instant>,
    /// Since when it has failed, of one that lacks something.
    lacks_since: Option<Instant>,
    /// What the log has told last.
    told: Option<PgSqlErrorCode>,
}

/// What keeps the process from writing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    NotLogical,
    NoExtension,
}

struct Writer {
    shared: &'static Shared,
    database: String,
    /// By the bits of their keys.
    known: BTreeMap<u64, Known>,
    /// Generators that were used before the server started are known.
    is_seeded: bool,
    /// Of which the log has told.
    obstacle: Option<Obstacle>,
}

impl Writer {
    fn round(&mut self, interval: Duration) {
        let began = Instant::now();
        // SAFETY: a variable of this process.
        let is_logical =
            unsafe { pg_sys::wal_level } >= pg_sys::WalLevel::WAL_LEVEL_LOGICAL.cast_signed();
        let is_here = || in_transaction(|| Ok(session::is_extension_here())).unwrap_or(false);
        let obstacle = match is_logical {
            false => Some(Obstacle::NotLogical),
            true => (!is_here()).then_some(Obstacle::NoExtension),
        };
        if self.obstacle != obstacle {
            match obstacle {
                Some(Obstacle::NotLogical) => error::watermark::not_logical(&self.database).log(""),
                Some(Obstacle::NoExtension) => {
                    error::watermark::no_extension(&self.database).log("");
                }
                None => {}
            }
            self.obstacle = obstacle;
        }
        if obstacle.is_some() {
            return;
        }
        if !self.is_seeded {
            self.is_seeded = self.seed().is_ok();
        }
        let Ok(positions) = in_transaction(|| Ok(self.shared.positions())) else {
            return;
        };
        let (active, idle) = self.due(positions, began);
        for key in active {
            self.visit(key);
        }
        for key in idle {
            if began.elapsed() > interval {
                break;
            }
            self.visit(key);
        }
    }

    /// Gets to know the generators that were used before the server started.
    fn seed(&mut self) -> Result<(), Error> {
        let default = in_transaction(session::default_relation)?;
        let labelled = in_transaction(|| Ok(label::all()))?;
        for relation in std::iter::once(default).chain(labelled) {
            // One that is locked may be in use. Of one that fails, the log will tell.
            let is_fresh = in_transaction(|| {
                let entry = SessionGenerator::new(relation);
                Ok(entry.with_share_lock(false, |is_locked| {
                    Some(is_locked && matches!(mark::last_value(relation), Ok(None)))
                }))
            });
            if !matches!(is_fresh, Ok(None | Some(true))) {
                let key = SlotKey::of_generator(relation, relation == default);
                self.known.entry(key.bits()).or_default();
            }
        }
        Ok(())
    }

    /// The generators whose turn it is: those that were used, and those that are idle.
    fn due(&mut self, positions: Vec<(SlotKey, Position)>, now: Instant) -> (Vec<u64>, Vec<u64>) {
        let positions: BTreeMap<u64, Position> = positions
            .into_iter()
            .filter(|(_, position)| *position != Position::ZERO)
            .map(|(key, position)| (key.bits(), position))
            .collect();
        for key in positions.keys() {
            self.known.entry(*key).or_default();
        }
        let (mut active, mut idle) = (Vec::new(), Vec::new());
        for (key, known) in &self.known {
            let rests = known.rests_until.is_some_and(|until| now < until);
            // A slot that was given to another generator is one in which nothing was going on.
            let is_closed = known.closed.is_some_and(|closed| {
                positions
                    .get(key)
                    .is_none_or(|position| *position == closed)
            });
            match (is_closed, rests) {
                (true, true) => {}
                (true, false) => idle.push(*key),
                (false, true) if known.told.is_some() => {}
                (false, _) => active.push(*key),
            }
        }
        (active, idle)
    }

    /// Writes the watermark of a generator if it has risen.
    fn visit(&mut self, key: u64) {
        let known = self.known.entry(key).or_default();
        let found = in_transaction(|| write(self.shared, SlotKey::from_bits(key), known.sent));
        let now = Instant::now();
        match found {
            Ok(Found::Locked) => {}
            // Its slot may stay for a while.
            Ok(Found::Dropped)
                if self
                    .shared
                    .with_slot(SlotKey::from_bits(key), |_| {})
                    .is_some() =>
            {
                known.told = Some(PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE);
                known.rests_until = Some(now + IDLE);
            }
            Ok(Found::Dropped) => {
                self.known.remove(&key);
            }
            Ok(Found::Read { closed, horizon }) => {
                *known = Known {
                    sent: known.sent.max(Some(horizon)),
                    closed,
                    rests_until: Some(now + IDLE),
                    lacks_since: None,
                    told: None,
                };
            }
            Err(why)
                if why.code == PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE
                    && now < *known.lacks_since.get_or_insert(now) + RETRY => {}
            Err(why) => {
                known.rests_until = Some(now + RETRY);
                if known.told.replace(why.code) != Some(why.code) {
                    let name = in_transaction(|| Ok(catalog::relation_name(relation_of(key)?)));
                    let name = name.unwrap_or_default();
                    error::watermark::failed(&name, &self.database, why).log("");
                }
            }
        }
    }
}

/// What was found of a generator.
enum Found {
    /// Another session changes or drops it: this process waits for nobody.
    Locked,
    Dropped,
    /// See [`Known::closed`].
    Read {
        closed: Option<Position>,
        horizon: UnixMillis,
    },
}

/// A watermark, as it stands in the message.
#[derive(serde::Serialize)]
struct Watermark<'a> {
    generator: &'a str,
    oid: u32,
    /// A string: readers of JSON may know numbers up to 2^53 only.
    horizon: String,
    instant: String,
    server: String,
    worker: Option<u32>,
}

impl Watermark<'_> {
    /// In ASCII, which is the same in each encoding of a database.
    fn text(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        let mut ascii = String::with_capacity(text.len());
        for unit in text.encode_utf16() {
            match char::from_u32(unit.into()).filter(char::is_ascii) {
                Some(character) => ascii.push(character),
                None => ascii.push_str(&format!("\\u{unit:04x}")),
            }
        }
        ascii
    }
}

fn relation_of(key: u64) -> Result<pg_sys::Oid, Error> {
    let key = SlotKey::from_bits(key);
    match key.is_default() {
        true => session::default_relation(),
        false => Ok(key.relation()),
    }
}

/// Reads the horizon of a generator, and writes it if it is past `sent`. In a transaction.
fn write(shared: &Shared, key: SlotKey, sent: Option<UnixMillis>) -> Result<Found, Error> {
    let relation = relation_of(key.bits())?;
    let mode = pg_sys::RowExclusiveLock.cast_signed();
    // SAFETY: in a transaction; a lock on an object that need not exist.
    if !unsafe { pg_sys::ConditionalLockRelationOid(relation, mode) } {
        return Ok(Found::Locked);
    }
    if !catalog::is_there(relation) {
        return Ok(Found::Dropped);
    }
    let entry = session::of_named(relation)?;
    generator_horizon::check_ascends(entry)?;
    let horizon = generator_horizon::read(entry, Purpose::Watermark)?;
    let context = entry.context_or_fill(Purpose::Watermark)?;
    let layout = context.generator.layout;
    let position = context.slot.live().cursor().position();
    // Nothing was taken in the tick of the horizon, nor after it.
    let is_closed = layout.instant_of(layout.tick_of(position)) <= horizon
        && layout.offset(position) == context.generator.fresh(layout.tick_of(position));
    let closed = is_closed.then_some(position);
    if sent >= Some(horizon) {
        return Ok(Found::Read { closed, horizon });
    }
    let worker = entry.worker_id(entry.describe()?, shared);
    let watermark = Watermark {
        generator: &entry.name(),
        oid: relation.to_u32(),
        horizon: generator_horizon::least_id(entry, horizon)?.to_string(),
        instant: time::display(horizon)
            .replacen(' ', "T", 1)
            .replace("+00", "Z"),
        // SAFETY: reads shared memory.
        server: unsafe { pg_sys::GetSystemIdentifier() }.to_string(),
        worker: worker.map(|worker| worker.get()),
    };
    compat::log_message(PREFIX, &watermark.text());
    Ok(Found::Read { closed, horizon })
}

/// Runs `f` in a transaction, which is aborted if `f` fails. Its commit asks for a flush of what it
/// has written: without that, a message would stay in memory for as long as the server is quiet.
/// Isolation and read-only are not those that are set for the database.
fn in_transaction<T>(f: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    // SAFETY: a background worker outside of a transaction, whose memory context stays; variables
    // of this process.
    unsafe {
        let context = pg_sys::CurrentMemoryContext;
        pg_sys::SetCurrentStatementStartTimestamp();
        pg_sys::StartTransactionCommand();
        pg_sys::XactIsoLevel = pg_sys::XACT_READ_COMMITTED.cast_signed();
        pg_sys::XactReadOnly = false;
        let result = report::caught(f);
        match result {
            Ok(_) => pg_sys::CommitTransactionCommand(),
            Err(_) => pg_sys::AbortCurrentTransaction(),
        }
        pg_sys::MemoryContextSwitchTo(context);
        result
    }
}
