//! Shared memory: the slots of all generators of the server.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `Shared::server` | the place of the server's lease, with its tenure, see [`crate::server::lease_state`] |
//! | `Shared::secret` | made by the postmaster at its start and after a crash; the orders of `sequence_start=random` are derived from this secret. Never leaves shared memory |
//! | `Shared::trusted` | what the server knows about its wall clock, see `snowflake_core::protocol::host`; under the clock lock |
//! | `Shared::keeper_latch` | the latch of the keeper's process, null if there is none; an old one may be another process's by now, which does no harm |
//! | `Shared::tenure_changed` | sessions that wait for another tenure, or a later bound, sleep on it; broadcast by the process that has changed one, or has heard that there is none, after the clock lock |
//! | `Shared::mark_raised` | sessions that wait for a reservation lock sleep on it, see [`crate::session::mark`]; broadcast by the session that has released one |
//! | `Shared::layers` | the number of tables in dynamic shared memory; stored with Release after the handle of the last table, under the table lock |
//! | `Shared::handles` | the handle of each of these tables in dynamic shared memory; same rule as `layers` |
//! | `Shared::holders`, `holders_used` | who holds back which horizon, see `snowflake_core::horizon`: a place for each process; and how many of the places were ever used |
//! | `Shared::lock_list`, `noted` | by which locks generators are held, see `snowflake_core::horizon::lock_list`; the list is under `HOLDS_LOCK` |
//! | `Shared::defaults`, `others`, `locks` | the addresses, in every process, of the slots of the two fixed tables, and of the locks; written by the postmaster before any backend starts |
//! | a slot | see `snowflake_core::protocol::slot` |
//!
//! # The tables
//!
//! A generator's slot is one of the [`WINDOW`] slots that follow the hash of its key.
//! Default generators have a table of their own with one slot per possible backend: a
//! backend is in one database, so transactions never use all of these slots. All other
//! generators share a table of 1024 slots. If no slot of a
//! window is free, because transactions use the slots or their generators are ahead of
//! the clock, the next table is searched. If there is none, one is made in dynamic
//! shared memory: the first as large as the shared table and with at least
//! [`LAYER_MIN`] slots, each further one twice as large as the one before. So nobody
//! can use up the slots of others. The price is memory that stays in use until the
//! server stops: a slot takes 640 bytes, and its generator at least 8 kB of disk.
//!
//! # Locks
//!
//! Locks are taken in this order: the relation, the reservation lock (both
//! heavyweight), then one of the three lightweight locks here. the table lock is taken
//! exclusively to evict and to add a table, and shared to go through all slots; finding
//! and pinning a slot takes none. Code under these three never calls PostgreSQL.
//!
//! After a crash of any backend the postmaster initialises all of this anew.

use std::cell::{RefCell, UnsafeCell};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use pgrx::pg_sys;

use crate::postgres::compat::{self, WaitsFor};
use crate::postgres::{catalog, time};
use crate::server::error::{self, Error};
use crate::server::lease_state::{LeaseSlot, LeaseState};
use crate::server::{guc, os_clock, start_file};
use snowflake_core::horizon::lock_list::{LockFlag, LockList};
use snowflake_core::horizon::{PlaceCount, ProcessHolds, Processes};
use snowflake_core::id::layout::Layout;
use snowflake_core::id::shuffle::Shuffle;
use snowflake_core::id::{Millis, NANOS_PER_MILLI, Nanos, UnixMillis, WorkerId};
use snowflake_core::protocol::clock::Reading;
use snowflake_core::protocol::host::TrustedClock;
use snowflake_core::protocol::slot::{self, Slot};
use snowflake_core::protocol::tenure::{Generation, Tenure};

/// How many slots a generator can have in a table.
const WINDOW: usize = 16;

/// The first table in dynamic shared memory has at least this many slots.
const LAYER_MIN: usize = 64;

/// With this many slots in dynamic shared memory, no table is added: 640 MB.
const SLOTS_MAX: usize = 1 << 20;

const LAYERS_MAX: usize = 16;

#[repr(C)]
pub struct Shared {
    server: LeaseSlot,
    layers: AtomicU32,
    handles: [AtomicU32; LAYERS_MAX],
    secret: (u64, u64),
    trusted: UnsafeCell<TrustedClock>,
    keeper_latch: AtomicPtr<pg_sys::Latch>,
    tenure_changed: UnsafeCell<pg_sys::ConditionVariable>,
    mark_raised: UnsafeCell<pg_sys::ConditionVariable>,
    holders: &'static [ProcessHolds],
    holders_used: PlaceCount,
    lock_list: UnsafeCell<LockList>,
    noted: LockFlag,
    defaults: &'static [Slot],
    others: &'static [Slot],
    locks: [*mut pg_sys::LWLockPadded; 3],
}

// The core's own tests use a closer layout of slots.
#[cfg(not(test))]
const _: () = assert!(size_of::<Slot>() == 5 * 128 && align_of::<Slot>() == 128);

/// A database and a generator in it, two OIDs, as a slot holds them. The default
/// generator has OID 0, as no other relation has. So its slot depends on its database
/// only: after DROP EXTENSION and CREATE EXTENSION, the slot still remembers the IDs
/// issued before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotKey(u64);

impl SlotKey {
    pub fn of_generator(relation: pg_sys::Oid, is_default: bool) -> Self {
        let relation = if is_default { 0 } else { relation.to_u32() };
        Self(u64::from(this_database().to_u32()) << 32 | u64::from(relation))
    }

    pub fn is_default(self) -> bool {
        self.relation() == pg_sys::InvalidOid
    }

    #[allow(clippy::cast_possible_truncation)]
    pub fn relation(self) -> pg_sys::Oid {
        pg_sys::Oid::from(self.0 as u32)
    }

    /// From its stored form.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The stored form.
    pub const fn bits(self) -> u64 {
        self.0
    }

    fn database(self) -> u64 {
        self.0 >> 32
    }

    /// The OID of its database.
    #[allow(clippy::cast_possible_truncation)]
    pub fn database_oid(self) -> u32 {
        self.database() as u32
    }
}

fn this_database() -> pg_sys::Oid {
    // SAFETY: a variable of this process.
    unsafe { pg_sys::MyDatabaseId }
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The tables in dynamic shared memory that this process has mapped.
    static LAYERS: RefCell<Vec<&'static [Slot]>> = const { RefCell::new(Vec::new()) };
}

/// The server's state, if the library was preloaded.
#[inline]
pub fn shared() -> Result<&'static Shared, Error> {
    // SAFETY: set by on_startup() to shared memory that stays mapped as long as this
    // process lives, aligned and initialised.
    unsafe { SHARED.load(Ordering::Relaxed).as_ref() }.ok_or_else(error::not_preloaded)
}

const NAME: &CStr = c"snowflake_id";

/// One of our three lightweight locks. Each has a tranche of its own, whose name is the wait
/// event of those that wait for it.
#[derive(Clone, Copy)]
enum Lock {
    Table,
    Clock,
    Holds,
}

const LOCK_NAMES: [&CStr; 3] = [
    c"SnowflakeSlotTable",
    c"SnowflakeClockState",
    c"SnowflakeHoldList",
];

/// The place of AddinShmemInitLock among PostgreSQL's own locks, the same from 15 to 19.
const ADDIN_SHMEM_INIT_LOCK: usize = 21;

/// How long a session sleeps at most before it looks again at a tenure: what it waits for
/// may also end by the clock, and another keeper may have started.
const LOOK_MILLIS: i64 = 1000;

/// How many default generators can be in use at one time.
fn defaults_count() -> usize {
    // SAFETY: a variable that the postmaster sets before it calls the libraries' hooks.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(1)
}

/// How many slots there are in fixed shared memory.
fn slots_count() -> usize {
    defaults_count() + guc::slots()
}

/// How many slots the next table has; `None` if there may be no further table.
fn layer_size(layers: usize) -> Option<usize> {
    let first = guc::slots().max(LAYER_MIN);
    let before = first * ((1 << layers) - 1);
    (layers < LAYERS_MAX && before < SLOTS_MAX).then_some(first << layers)
}

/// The slots of a table that can hold a generator, starting where its hash points.
fn window(
    slots: &'static [Slot],
    key: SlotKey,
    size: usize,
) -> impl Iterator<Item = &'static Slot> + Clone {
    // The golden ratio spreads keys that differ in their low bits.
    let hash = key.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let count = u64::try_from(slots.len()).unwrap_or(1).max(1);
    let (before, from) = slots.split_at(usize::try_from(hash % count).unwrap_or(0));
    from.iter().chain(before).take(size)
}

fn mapped_layers() -> impl Iterator<Item = &'static [Slot]> {
    (0..).map_while(|layer| LAYERS.with_borrow(|layers| layers.get(layer).copied()))
}

impl Processes for Shared {
    fn holders(&self) -> &[ProcessHolds] {
        self.holders_used.of(self.holders)
    }
}

impl Shared {
    /// The lease of the server, which has a tenure also without a registry.
    #[inline]
    pub const fn server(&self) -> &LeaseSlot {
        &self.server
    }

    /// The place in which this process holds back horizons.
    pub fn holder(&self, index: usize) -> Option<&'static ProcessHolds> {
        let holder = self.holders.get(index)?;
        self.holders_used.come(u32::try_from(index).ok()?);
        Some(holder)
    }

    /// Whether there may be locks that hold generators.
    pub const fn noted(&self) -> &LockFlag {
        &self.noted
    }

    /// Runs `f` with the list of the locks that hold generators. `f` must not call PostgreSQL.
    pub fn with_lock_list<T>(&self, f: impl FnOnce(&mut LockList) -> T) -> T {
        self.locked(Lock::Holds, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            // SAFETY: the lock excludes all others who look at it.
            f(unsafe { &mut *self.lock_list.get() })
        })
    }

    /// The order of a generator's random sequence numbers.
    pub fn shuffle(&self, key: SlotKey) -> Shuffle {
        Shuffle::new(self.secret, key.0)
    }

    /// Runs `f` under one of our three lightweight locks. `f` must not call PostgreSQL:
    /// an error would keep the lock held until the end of the transaction.
    fn locked<T>(&self, lock: Lock, mode: pg_sys::LWLockMode::Type, f: impl FnOnce() -> T) -> T {
        let [table, clock, holds] = self.locks;
        let lock = match lock {
            Lock::Table => table,
            Lock::Clock => clock,
            Lock::Holds => holds,
        };
        // SAFETY: the tranches of all locks were requested by on_request().
        unsafe {
            let lock = &raw mut (*lock).lock;
            pg_sys::LWLockAcquire(lock, mode);
            let result = f();
            pg_sys::LWLockRelease(lock);
            result
        }
    }

    /// The slots that can hold a generator, in each mapped table.
    fn windows(
        &self,
        key: SlotKey,
    ) -> impl Iterator<Item = impl Iterator<Item = &'static Slot> + Clone> {
        let own = if key.is_default() {
            window(self.defaults, key, self.defaults.len())
        } else {
            window(self.others, key, WINDOW)
        };
        std::iter::once(own).chain(mapped_layers().map(move |slots| window(slots, key, WINDOW)))
    }

    /// The slot of a generator, pinned, if it has one in a mapped table.
    fn find(&self, key: SlotKey) -> Option<&'static Slot> {
        self.windows(key).flatten().find(|slot| slot.pin(key.0))
    }

    /// Runs `f` with what is known about the wall clock, which `f` may change in place. `f`
    /// must not call PostgreSQL.
    pub fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock) -> T) -> T {
        self.locked(Lock::Clock, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            // SAFETY: the lock excludes all others who look at it.
            f(unsafe { &mut *self.trusted.get() })
        })
    }

    /// As [`Self::with_trusted_clock`], with the lease and the tenure of the server.
    pub fn with_lease<T>(&self, f: impl FnOnce(&mut TrustedClock, &mut LeaseState) -> T) -> T {
        let (result, is_news) = self.with_trusted_clock(|trusted| {
            // SAFETY: this process has the clock lock.
            unsafe { self.server.with(|state| f(trusted, state)) }
        });
        if is_news {
            self.tell_waiters();
        }
        result
    }

    /// Wakes the sessions that wait for another tenure, or for a later bound.
    pub fn tell_waiters(&self) {
        // SAFETY: initialised before any process could look at it.
        unsafe { pg_sys::ConditionVariableBroadcast(self.tenure_changed.get()) };
    }

    /// Sleeps until a tenure or a bound has changed, or for this long, in a loop that
    /// looks for that before each call, and calls [`compat::end_sleep`] afterwards. A
    /// cancelled query ends the sleep.
    pub fn sleep_until_told(&self, left: Nanos) {
        let millis = (left.get() / NANOS_PER_MILLI + 1).clamp(1, LOOK_MILLIS);
        // SAFETY: initialised before any process could look at it.
        unsafe { compat::sleep_on(self.tenure_changed.get(), millis, WaitsFor::Lease) };
    }

    /// Wakes the sessions that wait for a reservation lock: this one has released one.
    pub fn tell_reservers(&self) {
        // SAFETY: as above.
        unsafe { pg_sys::ConditionVariableBroadcast(self.mark_raised.get()) };
    }

    /// Sleeps until somebody has released a reservation lock, as [`Self::sleep_until_told`].
    pub fn sleep_until_reserved(&self) {
        // SAFETY: as above.
        unsafe { compat::sleep_on(self.mark_raised.get(), LOOK_MILLIS, WaitsFor::Mark) };
    }

    /// Says which latch wakes the keeper; null if there is no keeper.
    pub fn set_keeper(&self, latch: *mut pg_sys::Latch) {
        self.keeper_latch.store(latch, Ordering::Release);
    }

    /// Whether there is a keeper. A keeper that ended is started anew a second later.
    pub fn has_keeper(&self) -> bool {
        !self.keeper_latch.load(Ordering::Acquire).is_null()
    }

    /// Wakes the keeper, if there is one.
    pub fn wake_keeper(&self) {
        let latch = self.keeper_latch.load(Ordering::Acquire);
        if !latch.is_null() {
            // SAFETY: a latch in shared memory, which stays one.
            unsafe { pg_sys::SetLatch(latch) };
        }
    }

    pub fn reading_to_start_from(&self) -> Reading {
        self.with_trusted_clock(|trusted| trusted.believable(os_clock::read()))
    }

    /// Runs `f` with the slot of a generator, if it has one. The slot stays the
    /// generator's meanwhile. `f` must not call PostgreSQL.
    pub fn with_slot<T>(&self, key: SlotKey, f: impl FnOnce(&'static Slot) -> T) -> Option<T> {
        self.attach();
        let slot = self.find(key)?;
        let result = f(slot);
        slot.unpin();
        Some(result)
    }

    /// The slot of a generator, pinned: the slot stays this generator's until
    /// [`Slot::unpin`]. `hint` is the slot that was found last.
    #[inline]
    pub fn pin(&self, key: SlotKey, hint: Option<&'static Slot>) -> Result<&'static Slot, Error> {
        let slot = hint.filter(|slot| slot.pin(key.0));
        slot.map_or_else(|| self.find_or_evict(key), Ok)
    }

    #[cold]
    fn find_or_evict(&self, key: SlotKey) -> Result<&'static Slot, Error> {
        loop {
            let layers = self.attach();
            if let Some(slot) = self.find(key) {
                return Ok(slot);
            }
            let reading = self.reading_to_start_from();
            let now = time::timestamptz(reading.wall.millis());
            let pinned = self.locked(Lock::Table, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
                // Another session may have been faster, or have added a table.
                if self.layer_count() != layers {
                    return None;
                }
                let evict = |slot: &&'static Slot| slot.evict(key.0, reading, now);
                self.find(key).or_else(|| {
                    self.windows(key).find_map(|mut slots| {
                        // A generator has to give way only if no slot is free.
                        let free = slots.clone().find(|slot| slot.key() == 0 && evict(slot));
                        free.or_else(|| slots.find(evict))
                    })
                })
            });
            if let Some(slot) = pinned {
                return Ok(slot);
            }
            if self.layer_count() == layers && !self.abandon_dropped(key) {
                self.grow(layers, reading, now)?;
            }
        }
    }

    fn layer_count(&self) -> usize {
        // Acquire: the handles of this many tables were stored before the count.
        self.layers.load(Ordering::Acquire) as usize
    }

    /// Maps the tables that other processes have made. Returns the number of tables.
    fn attach(&self) -> usize {
        let count = self.layer_count();
        let mapped = LAYERS.with_borrow(Vec::len);
        for (layer, handle) in self.handles.iter().enumerate().take(count).skip(mapped) {
            let size = layer_size(layer).unwrap_or(0);
            // SAFETY: a segment of that many slots, pinned until the server stops; the
            // slots were initialised before the handle was stored. A process maps the
            // segment at most once, and keeps it mapped.
            let slots = unsafe {
                let segment = pg_sys::dsm_attach(handle.load(Ordering::Relaxed));
                if segment.is_null() {
                    // Without the table, a generator in it would get a second slot.
                    pgrx::error!("snowflake_id: could not attach to dynamic shared memory");
                }
                pg_sys::dsm_pin_mapping(segment);
                let address = pg_sys::dsm_segment_address(segment).cast::<Slot>();
                std::slice::from_raw_parts(address, size)
            };
            LAYERS.with_borrow_mut(|layers| layers.push(slots));
        }
        count
    }

    /// Among the slots that this generator can have, gives up those of this database's
    /// dropped generators, and of dropped databases; false if there are none. Without this, a role
    /// could use up memory with generators that it moves ahead of the clock and drops.
    fn abandon_dropped(&self, key: SlotKey) -> bool {
        let mut found = false;
        for slot in self.windows(key).flatten() {
            let its = SlotKey(slot.key());
            // A running transaction's new relation is not seen, but its slot is pinned.
            let is_dropped = match its.database() == key.database() {
                true => !its.is_default() && catalog::kind(its.relation()) == 0,
                // Nobody is in a database that is gone.
                false => its.0 != 0 && !catalog::is_database(its.database_oid()),
            };
            found |= is_dropped && slot.abandon_unpinned(its.0);
        }
        found
    }

    /// Makes another table, unless another session has done so.
    fn grow(&self, layers: usize, reading: Reading, now: i64) -> Result<(), Error> {
        let exhausted = || error::slots_exhausted(SLOTS_MAX);
        let size = layer_size(layers).ok_or_else(exhausted)?;
        // SAFETY: in a transaction. The segment has room for its slots and starts on a
        // page. Until its handle is stored, only this process knows the segment.
        let (segment, handle) = unsafe {
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS.cast_signed();
            let segment = pg_sys::dsm_create(size * size_of::<Slot>(), flags);
            if segment.is_null() {
                return Err(exhausted());
            }
            let address = pg_sys::dsm_segment_address(segment).cast::<Slot>();
            for index in 0..size {
                address.add(index).write(Slot::new(reading, now));
            }
            pg_sys::dsm_pin_segment(segment);
            (segment, pg_sys::dsm_segment_handle(segment))
        };
        let stored = self.locked(Lock::Table, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            // There is a place for every layer that has a size.
            let place = self.handles.get(layers)?;
            (self.layer_count() == layers).then(|| {
                place.store(handle, Ordering::Relaxed);
                self.layers.fetch_add(1, Ordering::Release);
            })
        });
        // SAFETY: our own segment. If its handle was stored, attach() maps it again. If
        // not, nobody else knows it, and it is freed with this mapping.
        unsafe {
            if stored.is_none() {
                pg_sys::dsm_unpin_segment(handle);
            }
            pg_sys::dsm_detach(segment);
        }
        if stored.is_some() {
            pgrx::log!("snowflake_id: made room for {size} more generators in shared memory");
        }
        Ok(())
    }

    /// Goes through all slots; no generator is evicted meanwhile. `f` must not call
    /// PostgreSQL.
    fn with_all<T>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &'static Slot>) -> T) -> T {
        self.attach();
        self.locked(Lock::Table, pg_sys::LWLockMode::LW_SHARED, || {
            let fixed = self.defaults.iter().chain(self.others);
            f(&mut fixed.chain(mapped_layers().flatten()))
        })
    }

    /// Goes through the slots of a database in the same way.
    fn for_each_of(&self, database: pg_sys::Oid, mut f: impl FnMut(&'static Slot, SlotKey)) {
        self.with_all(|slots| {
            for slot in slots {
                let key = SlotKey(slot.key());
                if key.database() == u64::from(database.to_u32()) {
                    f(slot, key);
                }
            }
        });
    }

    /// No ID of a tick that begins at or after this instant was issued under this tenure; `None`
    /// if none was issued.
    pub fn furthest(&self, tenure: Generation) -> Option<UnixMillis> {
        self.with_all(|slots| slots.filter_map(|slot| slot.furthest_under(tenure)).max())
    }

    /// See [`Slot::start_rotations_at_mark`].
    pub fn start_rotations_at_marks(&self) {
        self.with_all(|slots| slots.for_each(Slot::start_rotations_at_mark));
    }

    /// Closes all slots, after the tenure. Returns the latest end of them.
    pub fn close_slots(&self) -> Option<UnixMillis> {
        self.with_all(|slots| slot::close_all(slots))
    }

    /// Resets the counters of the generators of this database, or of one of them.
    pub fn reset_stats(&self, generator: Option<SlotKey>) {
        let now = time::timestamptz(os_clock::read().wall.millis());
        self.for_each_of(this_database(), |slot, key| {
            if generator.is_none_or(|generator| generator == key) {
                slot.stats().reset(now);
            }
        });
    }

    /// Believes the wall clock, and accepts the refused leads of this database's
    /// generators. Returns how far the clock has jumped, and the largest lead.
    pub fn accept_clock(&self) -> (Millis, Millis) {
        let reading = os_clock::read();
        let jumped = self.with_trusted_clock(|trusted| trusted.accept(reading));
        let mut largest = Millis::ZERO;
        self.for_each_of(this_database(), |slot, _| {
            largest = largest.max(slot.accept(reading));
        });
        (jumped, largest)
    }

    /// Gives up the slots of a database to which nobody can be connected: a later database with
    /// this OID is another one.
    pub fn forget(&self, database: pg_sys::Oid) {
        self.for_each_of(database, |slot, _| slot.abandon());
    }
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Asks for shared memory. Called only in the postmaster, while it preloads.
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

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_request() {
    // SAFETY: called by the postmaster when it sizes shared memory.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Shared>());
        pg_sys::RequestAddinShmemSpace(slots_count() * size_of::<Slot>());
        pg_sys::RequestAddinShmemSpace(defaults_count() * size_of::<ProcessHolds>());
        for name in LOCK_NAMES {
            pg_sys::RequestNamedLWLockTranche(name.as_ptr(), 1);
        }
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_startup() {
    // SAFETY: called by the postmaster when shared memory exists and no backend exists,
    // also after a crash; the areas are as large as requested. PostgreSQL aligns them
    // to 128 bytes, as slots are.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let init_lock = &raw mut (*pg_sys::MainLWLockArray.add(ADDIN_SHMEM_INIT_LOCK)).lock;
        pg_sys::LWLockAcquire(init_lock, pg_sys::LWLockMode::LW_EXCLUSIVE);
        let mut found = false;
        let shared = pg_sys::ShmemInitStruct(NAME.as_ptr(), size_of::<Shared>(), &raw mut found);
        let name = c"snowflake_id generators".as_ptr();
        let size = slots_count() * size_of::<Slot>();
        let slots = pg_sys::ShmemInitStruct(name, size, &raw mut found);
        let (shared, slots) = (shared.cast::<Shared>(), slots.cast::<Slot>());
        let name = c"snowflake_id holders".as_ptr();
        let size = defaults_count() * size_of::<ProcessHolds>();
        let holders = pg_sys::ShmemInitStruct(name, size, &raw mut found).cast::<ProcessHolds>();
        if !slots.is_aligned() || !holders.is_aligned() {
            pgrx::error!("snowflake_id: shared memory is not aligned to 128 bytes");
        }
        // Either all areas are found or none.
        if !found {
            initialise(shared, slots, holders);
            start_file::note_start(guc::worker_id(), crate::server::server_key::clean_since());
        }
        SHARED.store(shared, Ordering::Relaxed);
        pg_sys::LWLockRelease(init_lock);
    }
}

/// A secret from the system's random source; without one the server does not start.
fn secret() -> (u64, u64) {
    let mut secret = [0u64; 2];
    // SAFETY: the buffer has that many bytes.
    if !unsafe { pg_sys::pg_strong_random(secret.as_mut_ptr().cast(), size_of_val(&secret)) } {
        pgrx::error!("snowflake_id: could not generate a random secret");
    }
    secret.into()
}

/// # Safety
/// The pointers are to aligned areas of the requested size that nobody else uses.
unsafe fn initialise(shared: *mut Shared, slots: *mut Slot, holders: *mut ProcessHolds) {
    let reading = os_clock::read();
    let now = time::timestamptz(reading.wall.millis());
    let tenure = first_tenure();
    // SAFETY: as the caller guarantees.
    unsafe {
        for index in 0..slots_count() {
            slots.add(index).write(Slot::new(reading, now));
        }
        for index in 0..defaults_count() {
            holders.add(index).write(ProcessHolds::default());
        }
        let holders = std::slice::from_raw_parts(holders, defaults_count());
        let slots = std::slice::from_raw_parts(slots, slots_count());
        let (defaults, others) = slots.split_at(defaults_count());
        shared.write(Shared {
            server: LeaseSlot::new(LeaseState::new(tenure, Some(reading.wall.millis()))),
            layers: AtomicU32::new(0),
            handles: [const { AtomicU32::new(0) }; LAYERS_MAX],
            secret: secret(),
            trusted: UnsafeCell::new(TrustedClock::new(reading)),
            keeper_latch: AtomicPtr::new(std::ptr::null_mut()),
            tenure_changed: UnsafeCell::default(),
            mark_raised: UnsafeCell::default(),
            holders,
            holders_used: PlaceCount::default(),
            lock_list: UnsafeCell::default(),
            noted: LockFlag::default(),
            defaults,
            others,
            locks: LOCK_NAMES.map(|name| pg_sys::GetNamedLWLockTranche(name.as_ptr())),
        });
        pg_sys::ConditionVariableInit((*shared).tenure_changed.get());
        pg_sys::ConditionVariableInit((*shared).mark_raised.get());
    }
    let worker = guc::worker_id().map(WorkerId::get);
    let Some(worker) = worker else {
        if tenure.bound.is_none() {
            error::started_without_worker_id().warning();
        }
        return;
    };
    let until = match tenure.bound {
        Some(_) => ", once the registry has granted it",
        None => "",
    };
    pgrx::log!("snowflake_id: worker ID is {worker}{until}");
    let max = Layout::DEFAULT.max_worker();
    if u64::from(worker) > max {
        pgrx::warning!("snowflake_id: the default generator needs a worker ID from 0 to {max}");
    }
}

/// What the tenure of a server is when it starts: under a registry it has no right to
/// issue anything before the registry has granted it.
fn first_tenure() -> Tenure {
    if guc::registry().is_empty() {
        Tenure::NONE.unregistered(guc::worker_id())
    } else {
        Tenure::NONE.closed()
    }
}
