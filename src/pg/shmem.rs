//! Shared memory: the state of all generators of the server.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `Header::worker_id` | written by the postmaster before any backend starts; IDs are composed from here only |
//! | `Header::trusted_offset` | wall minus boot clock when the wall clock was last believed; under `clock_lock` |
//! | `Header::seen` | both clocks when a reserver last read them, unless that was refused as a jump; under `clock_lock`. Its step since then is logged by the one who sees it |
//! | `Header::promoted_at` | the wall clock (Unix milliseconds) when a generator was first started after this server was promoted, 0 before; under `clock_lock` |
//! | `Header::default_state` | the word and clock that the default generators of all databases share, so that tables in two databases differ too |
//! | `State::word` | see `snowflake::generator`; on a cache line of its own, since every ID writes it |
//! | `State::clock` | see `snowflake::clock`; written under `clock_lock`, read without |
//! | `State::watch` | see `snowflake::watch` |
//! | `Header::secret` | made by the postmaster at its start and after a crash; orders of `sequence_start=random` are derived from it. Never leaves shared memory |
//! | `Slot::bounds` | see `snowflake::generator`; written under the generator's reservation lock |
//! | `Slot::file_number`, `window_millis` | under the generator's reservation lock; plain loads and stores, Relaxed because the lock orders them. Cleared also at the end of a transaction that rewrote the sequence |
//! | `Slot::seen` | as `Header::seen`, for the statistics of this generator; under the reservation lock |
//! | `Slot::scale`, `epoch` | what the positions of this generator's word mean; as `window_millis`. Another layout now means that the word is void: it is reset by whoever finds that, and nobody else can use it then, since relabelling waits for all users |
//! | `Slot::highest` | the latest mark that was written since the generator has this slot (Unix milliseconds); under the reservation lock. What ALTER SEQUENCE ... RESTART may have taken away is known from here |
//! | `Slot::undone` | a mark up to `highest` was rolled back, so that the slot alone knows of IDs that were given; until the next reservation. Set at the end of the transaction, before its pin is given back; read by reservers and by whoever evicts |
//! | `Slot::gap_at`, `end_is_near` | when a failover gap was left last (Unix milliseconds, 0: never), and whether the end of the layout's time has been logged; stored under the reservation lock, read by views without |
//! | `Slot::account` | which clocks have been used, see `snowflake::account`; under the reservation lock |
//! | `Slot::refused_at` | since when IDs are refused (Unix milliseconds, 0: they are not); set by compare-and-swap from 0 and cleared by anyone, the winner logs it |
//! | `Slot::refused_behind` | that is because the clock was set back, so that whoever gets an ID ends it; stored after `refused_at`, a hint |
//! | `Slot::stats` | see `stats`; by anyone |
//! | `Slot::refused_lead` | the lead over the wall clock that was refused last, in milliseconds; a plain store by whoever refuses, read by `snowflake_accept_clock()` |
//! | `Slot::accepted_lead` | the part of it that a superuser has accepted since; written by both, each a plain store: at worst an acceptance is lost and asked for again |
//! | `Slot::key` | who the slot belongs to: database and relation OID in one word, 0 if nobody; written under `slot_lock` exclusive, while `pins` is 0 |
//! | `Slot::pins` | how many transactions use the slot; taken under `slot_lock` shared, so never while somebody holds it exclusive to evict; given back without it |
//!
//! Locks are taken in this order: the relation, the reservation lock (both
//! heavyweight), then `slot_lock` or `clock_lock`, never both. The two
//! lightweight ones are held for a few loads and stores, and for two clock
//! readings.
//!
//! After a crash of any backend the postmaster initialises all of this anew.

use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, Ordering,
};

use pgrx::pg_sys;

use super::stats::{Counts, Stats};
use super::{error::Error, guc, os_clock, time};
use crate::snowflake::account::Account;
use crate::snowflake::clock::{BootNanos, Clock, Reading, UnixNanos};
use crate::snowflake::generator::{Bounds, Generator, Word};
use crate::snowflake::id::{Position, UnixMillis, WorkerId};
use crate::snowflake::layout::Layout;
use crate::snowflake::policy::SequenceStart;
use crate::snowflake::shuffle::Shuffle;
use crate::snowflake::watch::Watch;

/// Two lines of 64 bytes: processors fetch pairs.
#[repr(C, align(128))]
struct Line<T>(T);

/// What a generator's IDs come from.
#[repr(C)]
pub struct State {
    word: Line<Word>,
    clock: Line<(Clock, Watch)>,
}

impl State {
    /// The next free position.
    #[inline]
    pub fn word(&self) -> &Word {
        &self.word.0
    }

    /// The clock it follows.
    #[inline]
    pub fn clock(&self) -> &Clock {
        &self.clock.0.0
    }

    /// What it knows of the wall clock, if its policy watches that.
    #[inline]
    pub fn watch(&self) -> &Watch {
        &self.clock.0.1
    }

    /// What the clock shows that IDs come from.
    pub fn now(&self, generator: &Generator, reading: Reading) -> UnixNanos {
        if generator.policy.on_rollback.watches() {
            self.watch().now(reading.wall, || reading.boot)
        } else {
            self.clock().now(reading.boot)
        }
    }

    /// Where it goes on: at its word or its clock, whichever is later.
    pub fn next(&self, generator: &Generator) -> Position {
        let layout = generator.layout;
        let word = self.word().position();
        let now = self.now(generator, os_clock::read()).millis();
        let now = layout.position_of(layout.tick_within(now));
        layout.in_clock(layout.clock_of(word), layout.in_clock(0, word).max(now))
    }
}

/// The server's.
#[repr(C)]
pub struct Header {
    worker_id: AtomicI32,
    slots: u32,
    trusted_offset: AtomicI64,
    seen: Seen,
    promoted_at: AtomicI64,
    secret: (u64, u64),
    default_state: State,
}

/// A reading of both clocks. Two plain fields: a lock orders them.
#[repr(C)]
struct Seen {
    boot: AtomicI64,
    wall: AtomicI64,
}

impl Seen {
    fn new(reading: Reading) -> Self {
        Self {
            boot: AtomicI64::new(reading.boot.get()),
            wall: AtomicI64::new(reading.wall.get()),
        }
    }

    fn get(&self) -> Reading {
        Reading {
            boot: BootNanos::new(self.boot.load(Ordering::Relaxed)),
            wall: UnixNanos::new(self.wall.load(Ordering::Relaxed)),
        }
    }

    fn set(&self, reading: Reading) {
        self.boot.store(reading.boot.get(), Ordering::Relaxed);
        self.wall.store(reading.wall.get(), Ordering::Relaxed);
    }
}

/// What the server knows of its wall clock.
#[derive(Clone, Copy)]
pub struct Believed {
    /// Wall minus boot clock, in nanoseconds, when it was last believed.
    pub trusted_offset: i64,
    /// The last reading, unless it was refused as a jump.
    pub seen: Reading,
    /// When a generator was first started after a promotion in the life of this
    /// server.
    pub promoted_at: Option<UnixMillis>,
}

/// One generator of one database.
#[repr(C)]
pub struct Slot {
    bounds: Line<Bounds>,
    own_state: State,
    rest: Line<Rest>,
    stats: Line<Stats>,
}

#[repr(C)]
struct Rest {
    key: AtomicU64,
    pins: AtomicU32,
    file_number: AtomicU32,
    window_millis: AtomicI64,
    refused_lead: AtomicI64,
    accepted_lead: AtomicI64,
    seen: Seen,
    gap_at: AtomicI64,
    refused_at: AtomicI64,
    end_is_near: AtomicBool,
    undone: AtomicBool,
    refused_behind: AtomicBool,
    epoch: AtomicI64,
    scale: AtomicU64,
    highest: AtomicI64,
    account: [AtomicU64; 3],
}

/// What positions mean: two layouts that agree in this can share a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    epoch: i64,
    /// From bit 0: bits below the tick, bits of the clock, bits of the time if
    /// clocks change (they are above it then), which of the policies that make a
    /// difference; from bit 32 the tick in milliseconds. Never 0.
    packed: u64,
}

impl Scale {
    /// Of a generator.
    pub fn of(generator: &Generator) -> Self {
        let (layout, policy) = (generator.layout, generator.policy);
        let flags = [
            policy.on_rollback.watches(),
            generator.changes_clocks(),
            policy.sequence_start == SequenceStart::Random,
        ];
        let flags = flags
            .iter()
            .fold(0, |all, flag| all << 1 | u64::from(*flag));
        let time = if generator.changes_clocks() {
            layout.last_tick().get().count_ones()
        } else {
            0
        };
        Self {
            epoch: layout.epoch().get(),
            packed: u64::from(layout.within_bits())
                | u64::from(layout.clock_bits()) << 8
                | u64::from(time) << 16
                | flags << 24
                | layout.tick_millis().unsigned_abs() << 32,
        }
    }

    /// When the tick of a position begins.
    fn instant_of(self, position: Position) -> UnixMillis {
        let time = self.packed >> 16 & 0xff;
        let tick = position.get() >> (self.packed & 0xff);
        let tick = if time == 0 {
            tick
        } else {
            tick & ((1 << time) - 1)
        };
        let tick_millis = (self.packed >> 32).cast_signed();
        let since = tick.cast_signed().saturating_mul(tick_millis);
        UnixMillis::new(self.epoch.saturating_add(since))
    }
}

const _: () = assert!(size_of::<Slot>() == 5 * 128 && align_of::<Slot>() == 128);
const _: () = assert!(size_of::<Header>() == 3 * 128);

/// What a reserver notes for the next one.
#[derive(Clone, Copy)]
pub struct Note {
    /// The file that held the mark; another one now means that the mark may not
    /// be the one that the bound was published for.
    pub file_number: u32,
    /// What the last reservation took; 0 at a start.
    pub window_millis: i64,
}

/// What a view shows of a slot.
pub struct View {
    /// What its positions mean; `None` if it has not been used.
    scale: Option<Scale>,
    /// The state of the generator, if it is not the default one's.
    state: &'static State,
    /// Whether it has issued from there, as above.
    has_issued: bool,
    /// The bound in force; zero if it has to be reserved anew.
    pub reserved: Position,
    /// The latest mark that was written since the generator has this slot.
    pub highest: Option<UnixMillis>,
    /// When a failover gap was left.
    pub gap_at: Option<UnixMillis>,
    /// Since when reservations are refused.
    pub refused_at: Option<UnixMillis>,
    /// The counters.
    pub counts: Counts,
}

impl View {
    /// Where a generator goes on, as [`State::next`]; `None` if it has issued
    /// nothing from this slot, or nothing in this layout.
    pub fn next(&self, generator: &Generator) -> Option<Position> {
        let runs = self.has_issued && self.scale == Some(Scale::of(generator));
        runs.then(|| self.state.next(generator))
    }
}

impl Slot {
    /// The counters.
    #[inline]
    pub fn stats(&self) -> &Stats {
        &self.stats.0
    }

    /// What this generator last saw of the clocks. Holders of the reservation
    /// lock only, as for the next.
    pub fn seen(&self) -> Reading {
        self.rest.0.seen.get()
    }

    /// Remembers a reading.
    pub fn set_seen(&self, reading: Reading) {
        self.rest.0.seen.set(reading);
    }

    /// Since when reservations are refused.
    pub fn refused_at(&self) -> Option<UnixMillis> {
        let at = self.rest.0.refused_at.load(Ordering::Relaxed);
        (at != 0).then_some(UnixMillis::new(at))
    }

    /// Remembers it; true if they were not refused before. `behind`: whoever gets
    /// an ID ends it.
    pub fn begin_refusal(&self, at: UnixMillis, behind: bool) -> bool {
        let rest = &self.rest.0;
        let first = rest
            .refused_at
            .compare_exchange(0, at.get(), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if first {
            rest.refused_behind.store(behind, Ordering::Relaxed);
        }
        first
    }

    /// IDs are not refused any more; since when they were, for the one who says so.
    pub fn end_refusal(&self) -> Option<UnixMillis> {
        self.rest.0.refused_behind.store(false, Ordering::Relaxed);
        let at = self.rest.0.refused_at.swap(0, Ordering::Relaxed);
        (at != 0).then_some(UnixMillis::new(at))
    }

    /// Whether they are refused because the clock was set back.
    #[inline]
    pub fn is_refused_behind(&self) -> bool {
        self.rest.0.refused_behind.load(Ordering::Relaxed)
    }

    /// Which clocks have been used. Holders of the reservation lock only, as for
    /// the next.
    pub fn account(&self) -> Account {
        let [a, b, c] = &self.rest.0.account;
        Account::from_parts([a, b, c].map(|part| part.load(Ordering::Relaxed)))
    }

    /// Remembers it.
    pub fn set_account(&self, account: Account) {
        for (part, value) in self.rest.0.account.iter().zip(account.parts()) {
            part.store(value, Ordering::Relaxed);
        }
    }

    /// Remembers that a failover gap was left. Holders of the reservation lock
    /// only.
    pub fn set_gap_at(&self, at: UnixMillis) {
        self.rest.0.gap_at.store(at.get(), Ordering::Relaxed);
    }

    /// Whether one was, in the life of this server and of this slot.
    pub fn gap_was_left(&self) -> bool {
        self.rest.0.gap_at.load(Ordering::Relaxed) != 0
    }

    /// Whether it has been said that the layout's time ends soon; from now on
    /// it has.
    pub fn end_was_near(&self) -> bool {
        self.rest.0.end_is_near.swap(true, Ordering::Relaxed)
    }

    fn view(&'static self) -> View {
        let gap_at = self.rest.0.gap_at.load(Ordering::Relaxed);
        let scale = self.scale();
        View {
            scale: (scale.packed != 0).then_some(scale),
            state: &self.own_state,
            has_issued: self.own_state.word().position() != Position::ZERO,
            reserved: self.bounds().reserved(),
            highest: self.highest(),
            gap_at: (gap_at != 0).then_some(UnixMillis::new(gap_at)),
            refused_at: self.refused_at(),
            counts: self.stats().read(),
        }
    }

    /// The word and the clock of a generator that shares them with nobody.
    #[inline]
    pub fn own_state(&self) -> &State {
        &self.own_state
    }

    /// What the positions of its word mean. Racy as [`Self::file_number`].
    pub fn scale(&self) -> Scale {
        Scale {
            epoch: self.rest.0.epoch.load(Ordering::Relaxed),
            packed: self.rest.0.scale.load(Ordering::Relaxed),
        }
    }

    /// From now on positions mean this. Holders of the reservation lock only.
    pub fn set_scale(&self, scale: Scale) {
        self.rest.0.epoch.store(scale.epoch, Ordering::Relaxed);
        self.rest.0.scale.store(scale.packed, Ordering::Relaxed);
    }

    /// The latest mark that was written since the generator has this slot.
    pub fn highest(&self) -> Option<UnixMillis> {
        let highest = self.rest.0.highest.load(Ordering::Relaxed);
        (highest != 0).then_some(UnixMillis::new(highest))
    }

    /// Remembers a mark that is durable. Holders of the reservation lock only.
    pub fn set_highest(&self, mark: UnixMillis) {
        self.rest.0.highest.fetch_max(mark.get(), Ordering::Relaxed);
    }

    /// Whether what was written since the generator has this slot was undone.
    pub fn is_undone(&self) -> bool {
        self.rest.0.undone.load(Ordering::Relaxed)
    }

    /// Whether what was written may be undone: the slot is not given away then
    /// before the clock has reached it.
    pub fn set_undone(&self, undone: bool) {
        self.rest.0.undone.store(undone, Ordering::Relaxed);
    }

    /// Whether a generator may take the slot from another, for which a mark that
    /// was undone is not later than `now`.
    fn is_idle(&self, now: UnixMillis) -> bool {
        // Acquire pairs with unpin().
        self.rest.0.pins.load(Ordering::Acquire) == 0
            && (!self.is_undone() || self.highest() <= Some(now))
    }

    /// How far IDs may be issued.
    #[inline]
    pub fn bounds(&self) -> &Bounds {
        &self.bounds.0
    }

    /// What the last reserver noted. Holders of the reservation lock only.
    pub fn note(&self) -> Note {
        let rest = &self.rest.0;
        Note {
            file_number: rest.file_number.load(Ordering::Relaxed),
            window_millis: rest.window_millis.load(Ordering::Relaxed),
        }
    }

    /// Notes for the next reserver. Holders of the reservation lock only.
    pub fn set_note(&self, note: Note) {
        let rest = &self.rest.0;
        rest.file_number.store(note.file_number, Ordering::Relaxed);
        rest.window_millis
            .store(note.window_millis, Ordering::Relaxed);
    }

    /// A lead over the wall clock, in milliseconds, that a superuser has
    /// accepted; 0 if none.
    pub fn accepted_lead(&self) -> i64 {
        self.rest.0.accepted_lead.load(Ordering::Relaxed)
    }

    /// What is left of the accepted lead: it shrinks with the lead itself.
    pub fn set_accepted_lead(&self, millis: i64) {
        self.rest.0.accepted_lead.store(millis, Ordering::Relaxed);
        self.rest.0.refused_lead.store(0, Ordering::Relaxed);
    }

    /// Remembers what was refused: only that can be accepted.
    pub fn set_refused_lead(&self, millis: i64) {
        self.rest.0.refused_lead.store(millis, Ordering::Relaxed);
    }

    /// The file that held the mark when the bound was published. Racy by one
    /// transaction at most: whoever rewrites the sequence excludes all users.
    pub fn file_number(&self) -> u32 {
        self.rest.0.file_number.load(Ordering::Relaxed)
    }

    /// The bound is void, the word stays: the mark that allowed it may be gone.
    /// Others may be issuing where the rewrite itself was undone by a savepoint;
    /// they reserve anew, which is safe and costs a start at the mark.
    pub fn unsettle(&self) {
        self.bounds().clear();
        self.rest.0.file_number.store(0, Ordering::Relaxed);
        self.rest.0.window_millis.store(0, Ordering::Relaxed);
    }

    /// Pins the slot if it is this generator's. Holders of `slot_lock` only.
    fn pin_if(&'static self, key: u64) -> Option<&'static Self> {
        let rest = &self.rest.0;
        if rest.key.load(Ordering::Relaxed) != key {
            return None;
        }
        rest.pins.fetch_add(1, Ordering::Relaxed);
        Some(self)
    }

    /// Gives a pin back.
    pub fn unpin(&self) {
        // Release: what we did to the slot is seen by whoever evicts it next.
        self.rest.0.pins.fetch_sub(1, Ordering::Release);
    }
}

/// This process's view of shared memory.
#[derive(Clone, Copy)]
pub struct Shared {
    header: &'static Header,
    slots: &'static [Slot],
}

static HEADER: AtomicPtr<Header> = AtomicPtr::new(std::ptr::null_mut());
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());

/// The state's home, if the library was preloaded.
#[inline]
pub fn shared() -> Result<Shared, Error> {
    let header = HEADER.load(Ordering::Relaxed);
    let slots = SLOTS.load(Ordering::Relaxed);
    if header.is_null() || slots.is_null() {
        return Err(Error::NotPreloaded);
    }
    // SAFETY: set by startup() to shared memory that stays mapped as long as
    // this process lives, aligned and initialised, with `slots` slots.
    unsafe {
        let header = &*header;
        Ok(Shared {
            header,
            slots: std::slice::from_raw_parts(slots, header.slots as usize),
        })
    }
}

/// Runs `f` under one of our two lightweight locks. `f` must not call
/// PostgreSQL: an error would leave the lock to the end of the transaction.
fn locked<T>(index: usize, mode: pg_sys::LWLockMode::Type, f: impl FnOnce() -> T) -> T {
    // SAFETY: the tranche with both locks was requested by request().
    unsafe {
        let tranche = pg_sys::GetNamedLWLockTranche(TRANCHE.as_ptr());
        let lock = &raw mut (*tranche.add(index)).lock;
        pg_sys::LWLockAcquire(lock, mode);
        let result = f();
        pg_sys::LWLockRelease(lock);
        result
    }
}

/// A slot's key; never 0, since no relation has OID 0.
fn key(database: pg_sys::Oid, relation: pg_sys::Oid) -> u64 {
    u64::from(database.to_u32()) << 32 | u64::from(relation.to_u32())
}

const TRANCHE: &std::ffi::CStr = c"snowflake_id";
const SLOT_LOCK: usize = 0;
const CLOCK_LOCK: usize = 1;

impl Shared {
    /// The worker ID in force.
    #[inline]
    pub fn worker_id(&self) -> Option<WorkerId> {
        WorkerId::new(self.worker_number())
    }

    /// As a number that is compared on the path of each ID; -1 if there is none.
    #[inline]
    pub fn worker_number(&self) -> i32 {
        // Relaxed: set before this process was started.
        self.header.worker_id.load(Ordering::Relaxed)
    }

    /// The order of random sequence numbers of a generator.
    pub fn shuffle(&self, database: pg_sys::Oid, relation: pg_sys::Oid) -> Shuffle {
        Shuffle::new(self.header.secret, key(database, relation))
    }

    /// The state that all default generators of the server share.
    #[inline]
    pub fn default_state(&self) -> &'static State {
        &self.header.default_state
    }

    /// Runs `f` with what is known of the wall clock, to be changed in place;
    /// nobody else anchors a clock meanwhile. `f` must not call PostgreSQL.
    pub fn with_clocks<T>(&self, f: impl FnOnce(&mut Believed) -> T) -> T {
        let header = self.header;
        locked(CLOCK_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            let mut believed = Believed {
                trusted_offset: header.trusted_offset.load(Ordering::Relaxed),
                seen: header.seen.get(),
                promoted_at: match header.promoted_at.load(Ordering::Relaxed) {
                    0 => None,
                    at => Some(UnixMillis::new(at)),
                },
            };
            let result = f(&mut believed);
            header
                .trusted_offset
                .store(believed.trusted_offset, Ordering::Relaxed);
            header.seen.set(believed.seen);
            header.promoted_at.store(
                believed.promoted_at.map_or(0, UnixMillis::get),
                Ordering::Relaxed,
            );
            result
        })
    }

    /// What is to be shown of a generator, if it has a slot.
    pub fn view(&self, database: pg_sys::Oid, relation: pg_sys::Oid) -> Option<View> {
        let key = key(database, relation);
        locked(SLOT_LOCK, pg_sys::LWLockMode::LW_SHARED, || {
            let rest = |slot: &&Slot| slot.rest.0.key.load(Ordering::Relaxed) == key;
            self.probe(key).find(rest).map(Slot::view)
        })
    }

    /// Resets the counters of the generators of a database, or of one of them.
    pub fn reset_stats(&self, database: pg_sys::Oid, relation: Option<pg_sys::Oid>) {
        let now = time::timestamptz(os_clock::read().wall.millis());
        locked(SLOT_LOCK, pg_sys::LWLockMode::LW_SHARED, || {
            for slot in self.slots {
                let its = slot.rest.0.key.load(Ordering::Relaxed);
                if relation.map_or(its >> 32 == u64::from(database.to_u32()), |relation| {
                    its == key(database, relation)
                }) {
                    slot.stats().reset(now);
                }
            }
        });
    }

    /// Accepts, for the generators of one database, the leads that were refused
    /// last; returns the largest, in milliseconds. One that was refused because it
    /// watches the wall clock goes on from where it is.
    pub fn accept_leads(&self, database: pg_sys::Oid) -> i64 {
        let reading = os_clock::read();
        locked(SLOT_LOCK, pg_sys::LWLockMode::LW_SHARED, || {
            let mut largest = 0;
            for slot in self.slots {
                let rest = &slot.rest.0;
                if rest.key.load(Ordering::Relaxed) >> 32 == u64::from(database.to_u32()) {
                    let refused = rest.refused_lead.load(Ordering::Relaxed);
                    if refused > 0 {
                        rest.accepted_lead.store(refused, Ordering::Relaxed);
                        largest = refused.max(largest);
                    }
                    let state = slot.own_state();
                    // One that was not refused may have a clock to change to.
                    if slot.is_refused_behind() && state.watch().behind(reading.wall).is_some() {
                        let at = slot.scale().instant_of(state.word().position());
                        state
                            .watch()
                            .lead_to(reading.boot, UnixNanos::from_millis(at));
                        state.watch().believe(reading.wall);
                    }
                }
            }
            largest
        })
    }

    /// The slot of a generator, pinned: until [`Slot::unpin`] it is this
    /// generator's. Evicts an idle one if all are taken. `hint` is where it was
    /// the last time, which saves the search.
    pub fn pin(
        &self,
        database: pg_sys::Oid,
        relation: pg_sys::Oid,
        hint: Option<&'static Slot>,
    ) -> Result<&'static Slot, Error> {
        let key = key(database, relation);
        let found = locked(SLOT_LOCK, pg_sys::LWLockMode::LW_SHARED, || {
            hint.and_then(|slot| slot.pin_if(key))
                .or_else(|| self.pin_existing(key))
        });
        if let Some(slot) = found {
            return Ok(slot);
        }
        let reading = self.believable();
        locked(SLOT_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            // Somebody may have been faster.
            self.pin_existing(key)
                .or_else(|| self.pin_evicted(key, reading))
        })
        .ok_or(Error::SlotsExhausted {
            max: self.slots.len(),
        })
    }

    /// Gives up the slots of a database in which nobody can be.
    pub fn forget(&self, database: pg_sys::Oid) {
        locked(SLOT_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            for slot in self.slots {
                let key = &slot.rest.0.key;
                if key.load(Ordering::Relaxed) >> 32 == u64::from(database.to_u32()) {
                    key.store(0, Ordering::Relaxed);
                }
            }
        });
    }

    fn pin_existing(&self, key: u64) -> Option<&'static Slot> {
        self.probe(key).find_map(|slot| slot.pin_if(key))
    }

    /// Forgets where a generator is and what it knows of the clock, which under
    /// another policy may be of long ago: its mark says where it goes on. Only
    /// where nobody issues.
    pub fn reset(&self, state: &State) {
        state.word().reset();
        state.watch().reset();
        let reading = self.believable();
        self.with_clocks(|_| state.clock().set(reading));
    }

    /// Both clocks, for a generator without a past: no later than was believed
    /// last. A clock that has jumped is the reservation's to judge; one that
    /// started from it would be ahead for as long as that after a correction.
    fn believable(&self) -> Reading {
        self.with_clocks(|believed| {
            let reading = os_clock::read();
            let trusted = reading.boot.get().saturating_add(believed.trusted_offset);
            Reading {
                wall: reading.wall.min(UnixNanos::new(trusted)),
                ..reading
            }
        })
    }

    /// All slots, from where a key is looked for first: so that it is found
    /// soon, and that generators which do not all fit take turns in giving way.
    fn probe(&self, key: u64) -> impl Iterator<Item = &'static Slot> {
        // The golden ratio spreads keys that differ in their low bits.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let count = u64::try_from(self.slots.len()).unwrap_or(1).max(1);
        let first = usize::try_from(hash % count).unwrap_or(0);
        let (before, from) = self.slots.split_at(first.min(self.slots.len()));
        from.iter().chain(before)
    }

    /// Takes a free slot, or one that no transaction uses: its mark is durable,
    /// so nothing is lost but a reservation.
    fn pin_evicted(&self, key: u64, reading: Reading) -> Option<&'static Slot> {
        let free = |s: &&Slot| s.rest.0.key.load(Ordering::Relaxed) == 0;
        let idle = |s: &&Slot| s.is_idle(reading.wall.millis());
        let slot = self
            .probe(key)
            .find(free)
            .or_else(|| self.probe(key).find(idle))?;
        slot.bounds().clear();
        slot.own_state.word().reset();
        slot.own_state.clock().set(reading);
        slot.own_state.watch().reset();
        slot.set_account(Account::FRESH);
        slot.rest.0.seen.set(reading);
        slot.set_gap_at(UnixMillis::new(0));
        let _ = slot.end_refusal();
        slot.rest.0.end_is_near.store(false, Ordering::Relaxed);
        slot.set_undone(false);
        slot.set_scale(Scale {
            epoch: 0,
            packed: 0,
        });
        slot.rest.0.highest.store(0, Ordering::Relaxed);
        slot.stats()
            .start_over(time::timestamptz(reading.wall.millis()));
        slot.set_note(Note {
            file_number: 0,
            window_millis: 0,
        });
        slot.set_accepted_lead(0);
        slot.rest.0.key.store(key, Ordering::Relaxed);
        slot.rest.0.pins.store(1, Ordering::Relaxed);
        Some(slot)
    }
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Asks for shared memory. Only in the postmaster, while it preloads.
pub fn request() {
    // SAFETY: the postmaster has one thread, and hooks are chained as PostgreSQL
    // documents it.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(on_request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(on_startup);
    }
}

/// Slack to align a structure: PostgreSQL aligns to its own cache line size.
const ALIGNMENT: usize = 128;

fn slots_size() -> usize {
    guc::max_generators() * size_of::<Slot>() + ALIGNMENT
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_request() {
    // SAFETY: called by the postmaster when it sizes shared memory.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Header>() + ALIGNMENT);
        pg_sys::RequestAddinShmemSpace(slots_size());
        pg_sys::RequestNamedLWLockTranche(TRANCHE.as_ptr(), 2);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_startup() {
    // SAFETY: called by the postmaster when shared memory exists and no backend
    // does, also after a crash; the areas are as large as requested.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let area = |name: &std::ffi::CStr, size: usize| {
            let mut found = false;
            let raw = pg_sys::ShmemInitStruct(name.as_ptr(), size, &raw mut found).cast::<u8>();
            (raw.add(raw.align_offset(ALIGNMENT)), found)
        };
        let (header, found) = area(c"snowflake_id", size_of::<Header>() + ALIGNMENT);
        let (slots, _) = area(c"snowflake_id generators", slots_size());
        let (header, slots) = (header.cast::<Header>(), slots.cast::<Slot>());
        if !found {
            initialise(header, slots);
        }
        HEADER.store(header, Ordering::Relaxed);
        SLOTS.store(slots, Ordering::Relaxed);
    }
}

/// From the system's source of randomness; without one the server does not start.
fn secret() -> (u64, u64) {
    let mut bytes = [0u8; 16];
    // SAFETY: as many bytes as there are.
    let filled = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    if !filled {
        pgrx::error!("snowflake_id: could not generate a random secret");
    }
    let secret = u128::from_ne_bytes(bytes);
    let half = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
    (half(secret), half(secret >> 64))
}

/// # Safety
/// Both point to aligned areas of the requested size that nobody else uses.
unsafe fn initialise(header: *mut Header, slots: *mut Slot) {
    let reading = os_clock::read();
    let count = guc::max_generators();
    let worker = guc::worker_id();
    let state = || State {
        word: Line(Word::default()),
        clock: Line((Clock::new(reading), Watch::default())),
    };
    // SAFETY: the caller's.
    unsafe {
        header.write(Header {
            worker_id: AtomicI32::new(
                worker
                    .and_then(|w| i32::try_from(w.get()).ok())
                    .unwrap_or(-1),
            ),
            slots: u32::try_from(count).unwrap_or(1),
            trusted_offset: AtomicI64::new(reading.offset()),
            seen: Seen::new(reading),
            promoted_at: AtomicI64::new(0),
            secret: secret(),
            default_state: state(),
        });
        for index in 0..count {
            slots.add(index).write(Slot {
                bounds: Line(Bounds::default()),
                own_state: state(),
                rest: Line(Rest {
                    key: AtomicU64::new(0),
                    pins: AtomicU32::new(0),
                    file_number: AtomicU32::new(0),
                    window_millis: AtomicI64::new(0),
                    refused_lead: AtomicI64::new(0),
                    accepted_lead: AtomicI64::new(0),
                    seen: Seen::new(reading),
                    gap_at: AtomicI64::new(0),
                    refused_at: AtomicI64::new(0),
                    end_is_near: AtomicBool::new(false),
                    undone: AtomicBool::new(false),
                    refused_behind: AtomicBool::new(false),
                    epoch: AtomicI64::new(0),
                    scale: AtomicU64::new(0),
                    highest: AtomicI64::new(0),
                    account: Account::FRESH.parts().map(AtomicU64::new),
                }),
                stats: Line(Stats::new(time::timestamptz(reading.wall.millis()))),
            });
        }
    }
    match worker {
        Some(worker) => {
            pgrx::log!("snowflake_id: worker ID is {}", worker.get());
            let max = Layout::DEFAULT.max_worker();
            if u64::from(worker.get()) > max {
                pgrx::warning!(
                    "snowflake_id: the default generator needs a worker ID from 0 to {max}"
                );
            }
        }
        None => pgrx::log!(
            "snowflake_id: no worker ID: set \"snowflake_id.worker_id\" to generate IDs on this server"
        ),
    }
}
