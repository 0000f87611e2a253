//! Shared memory: the slots of all generators of the server.
//!
//! # Shared fields
//!
//! | field | rule |
//! |---|---|
//! | `Header::worker_id` | written by the postmaster before any backend starts; IDs are composed from here only |
//! | `Header::secret` | made by the postmaster at its start and after a crash; orders of `sequence_start=random` are derived from it. Never leaves shared memory |
//! | `Header::beliefs` | what the server knows of its wall clock, see `snowflake::server`; under `CLOCK_LOCK` |
//! | `Header::layers` | how many further tables there are; stored with Release after the handle of the last, under `TABLE_LOCK` |
//! | `Header::handles` | the dynamic shared memory of each of them; as `layers` |
//! | a slot | see `snowflake::slot` |
//!
//! # The tables
//!
//! A generator's slot is found by a hash of its key, within the [`WINDOW`] slots that
//! follow. Default generators have a table of their own, with a slot for each backend
//! that there can be: a backend is in one database, so that transactions never use
//! all of them. All others share a table of `snowflake_id.max_generators` slots. Where
//! no slot of a window is free, because transactions use them or their generators
//! are ahead of the clock, the next table is looked at; if there is none, one is made
//! in dynamic shared memory: the first as large as the shared table, and at least
//! [`LAYER_MIN`], each further one twice as large as the one before. So nobody can
//! use up the slots of others. The price is memory that is not given back before the
//! server stops: a slot takes 512 bytes, and its generator at least 8 kB of disk.
//!
//! # Locks
//!
//! Locks are taken in this order: the relation, the reservation lock (both
//! heavyweight), then one of the two lightweight locks here. `TABLE_LOCK` is taken
//! exclusively to evict and to add a table, and shared to go through all slots; to
//! find and pin a slot takes none. What runs under them does not call PostgreSQL.
//!
//! After a crash of any backend the postmaster initialises all of this anew.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use pgrx::pg_sys;

use super::error::{self, Error};
use super::{catalog, guc, os_clock, time};
use crate::snowflake::clock::Reading;
use crate::snowflake::id::{Millis, WorkerId};
use crate::snowflake::layout::Layout;
use crate::snowflake::server::Beliefs;
use crate::snowflake::shuffle::Shuffle;
use crate::snowflake::slot::Slot;

/// How many slots a generator can have in a table.
const WINDOW: usize = 16;

/// The first table in dynamic shared memory has at least so many slots.
const LAYER_MIN: usize = 64;

/// As many as the largest tables together have slots: half a gigabyte.
const SLOTS_MAX: usize = 1 << 20;

const LAYERS_MAX: usize = 16;

/// The server's.
#[repr(C)]
pub struct Header {
    worker_id: AtomicI32,
    layers: AtomicU32,
    handles: [AtomicU32; LAYERS_MAX],
    secret: (u64, u64),
    beliefs: UnsafeCell<Beliefs>,
}

// The core lays its slots out closely for its own tests.
#[cfg(not(test))]
const _: () = assert!(size_of::<Slot>() == 4 * 128 && align_of::<Slot>() == 128);

/// This process's view of shared memory.
#[derive(Clone, Copy)]
pub struct Shared {
    header: &'static Header,
}

/// A database and a generator of it. The default generator of a database has one
/// place, whatever sequence it is: IDs that were issued before DROP EXTENSION and
/// CREATE EXTENSION are remembered there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    raw: u64,
    is_default: bool,
}

impl Key {
    /// The key of a generator of this database.
    pub fn of_generator(relation: pg_sys::Oid, is_default: bool) -> Self {
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        // No other relation has OID 0, and no database.
        let relation = if is_default { 0 } else { relation.to_u32() };
        Self {
            raw: u64::from(database.to_u32()) << 32 | u64::from(relation),
            is_default,
        }
    }

    /// Whether it is the default generator's.
    pub fn is_default(self) -> bool {
        self.is_default
    }
}

/// The relation of a key, as a slot has it.
fn relation_of(key: u64) -> pg_sys::Oid {
    #[allow(clippy::cast_possible_truncation)]
    pg_sys::Oid::from(key as u32)
}

static HEADER: AtomicPtr<Header> = AtomicPtr::new(std::ptr::null_mut());
/// The slots of the default generators, and behind them those of the first table.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(std::ptr::null_mut());
static LOCKS: AtomicPtr<pg_sys::LWLockPadded> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The tables in dynamic shared memory that this process has mapped.
    static LAYERS: RefCell<Vec<&'static [Slot]>> = const { RefCell::new(Vec::new()) };
}

/// The state's home, if the library was preloaded.
#[inline]
pub fn shared() -> Result<Shared, Error> {
    // SAFETY: set by on_startup() to shared memory that stays mapped as long as this
    // process lives, aligned and initialised.
    unsafe { HEADER.load(Ordering::Relaxed).as_ref() }
        .map(|header| Shared { header })
        .ok_or_else(error::not_preloaded)
}

const TRANCHE: &std::ffi::CStr = c"snowflake_id";
const TABLE_LOCK: usize = 0;
const CLOCK_LOCK: usize = 1;

/// Runs `f` under one of our two lightweight locks. `f` must not call
/// PostgreSQL: an error would leave the lock to the end of the transaction.
fn locked<T>(index: usize, mode: pg_sys::LWLockMode::Type, f: impl FnOnce() -> T) -> T {
    // SAFETY: the tranche with both locks was requested by on_request(), and its
    // address stored by on_startup().
    unsafe {
        let lock = &raw mut (*LOCKS.load(Ordering::Relaxed).add(index)).lock;
        pg_sys::LWLockAcquire(lock, mode);
        let result = f();
        pg_sys::LWLockRelease(lock);
        result
    }
}

/// As many default generators can be in use at a time.
fn defaults_size() -> usize {
    // SAFETY: a variable that the postmaster has set before it loads libraries' hooks.
    usize::try_from(unsafe { pg_sys::MaxBackends }).unwrap_or(1)
}

/// How many slots the next table has, if there may be one.
fn layer_size(layers: usize) -> Option<usize> {
    let first = guc::max_generators().max(LAYER_MIN);
    let before = first * ((1 << layers) - 1);
    (layers < LAYERS_MAX && before < SLOTS_MAX).then_some(first << layers)
}

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
    pub fn shuffle(&self, key: Key) -> Shuffle {
        Shuffle::new(self.header.secret, key.raw)
    }

    /// Runs `f` with what is known of the wall clock, to be changed in place.
    /// `f` must not call PostgreSQL.
    pub fn with_beliefs<T>(&self, f: impl FnOnce(&mut Beliefs) -> T) -> T {
        locked(CLOCK_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            // SAFETY: the lock excludes all others who look at it.
            f(unsafe { &mut *self.header.beliefs.get() })
        })
    }

    /// A reading for a generator that starts.
    pub fn reading_to_start_from(&self) -> Reading {
        self.with_beliefs(|beliefs| beliefs.believable(os_clock::read()))
    }

    /// Runs `f` with the slot of a generator, if it has one; it stays the generator's
    /// meanwhile. `f` must not call PostgreSQL.
    pub fn with_slot<T>(&self, key: Key, f: impl FnOnce(&'static Slot) -> T) -> Option<T> {
        self.attach();
        let slot = self.find(key)?;
        let result = f(slot);
        slot.unpin();
        Some(result)
    }

    /// The slot of a generator, pinned: until [`Slot::unpin`] it is this
    /// generator's. `hint` is where it was the last time.
    #[inline]
    pub fn pin(&self, key: Key, hint: Option<&'static Slot>) -> Result<&'static Slot, Error> {
        match hint {
            Some(slot) if slot.pin(key.raw) => Ok(slot),
            _ => self.find_or_evict(key),
        }
    }

    #[cold]
    fn find_or_evict(&self, key: Key) -> Result<&'static Slot, Error> {
        loop {
            let layers = self.attach();
            if let Some(slot) = self.find(key) {
                return Ok(slot);
            }
            let reading = self.reading_to_start_from();
            let now = time::timestamptz(reading.wall.millis());
            let pinned = locked(TABLE_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
                // Somebody may have been faster, or added a table.
                if self.header.layers.load(Ordering::Acquire) as usize != layers {
                    return None;
                }
                let evict = |slot: &&'static Slot| slot.evict(key.raw, reading, now);
                self.find(key).or_else(|| {
                    self.each(key, |mut slots| {
                        // Before a generator has to give way, what is free.
                        let free = slots.clone().find(|slot| slot.key() == 0 && evict(slot));
                        free.or_else(|| slots.find(evict))
                    })
                })
            });
            if let Some(slot) = pinned {
                return Ok(slot);
            }
            if self.header.layers.load(Ordering::Acquire) as usize == layers
                && !self.abandon_dropped(key)
            {
                self.grow(layers, reading, now)?;
            }
        }
    }

    /// The slot of a generator, pinned, if it has one in a table that is mapped.
    fn find(&self, key: Key) -> Option<&'static Slot> {
        self.each(key, |mut slots| slots.find(|slot| slot.pin(key.raw)))
    }

    /// Looks for a slot in each table where a generator can have one.
    fn each(
        &self,
        key: Key,
        look: impl Fn(Window) -> Option<&'static Slot>,
    ) -> Option<&'static Slot> {
        let (defaults, first) = self.fixed();
        let own = if key.is_default {
            look(Window::new(defaults, key.raw, defaults.len()))
        } else {
            look(Window::new(first, key.raw, WINDOW))
        };
        own.or_else(|| {
            LAYERS.with_borrow(|layers| {
                layers
                    .iter()
                    .find_map(|slots| look(Window::new(slots, key.raw, WINDOW)))
            })
        })
    }

    /// The tables that are always there: for default generators, and for all others.
    fn fixed(&self) -> (&'static [Slot], &'static [Slot]) {
        let count = defaults_size() + guc::max_generators();
        // SAFETY: set by on_startup() to so many slots, that are never unmapped.
        let all = unsafe { std::slice::from_raw_parts(SLOTS.load(Ordering::Relaxed), count) };
        all.split_at(defaults_size().min(count))
    }

    /// Maps the tables that others have made. Returns how many there are.
    fn attach(&self) -> usize {
        // Acquire: the handles of as many tables were stored before.
        let count = self.header.layers.load(Ordering::Acquire) as usize;
        let mapped = LAYERS.with_borrow(Vec::len);
        for (layer, handle) in self.header.handles.iter().enumerate().take(count) {
            let Some(size) = layer_size(layer).filter(|_| layer >= mapped) else {
                continue;
            };
            // SAFETY: a segment that is pinned until the server stops, of so many slots,
            // which were initialised before the handle was stored. It is mapped at most
            // once in a process, and stays so.
            let slots = unsafe {
                let segment = pg_sys::dsm_attach(handle.load(Ordering::Relaxed));
                pg_sys::dsm_pin_mapping(segment);
                let address = pg_sys::dsm_segment_address(segment).cast::<Slot>();
                std::slice::from_raw_parts(address, size)
            };
            LAYERS.with_borrow_mut(|layers| layers.push(slots));
        }
        count
    }

    /// Gives up the slots, where this generator can have one, of generators of this
    /// database that were dropped; false if there are none. Without this, a role could
    /// use up memory with generators that it moves ahead of the clock and drops.
    fn abandon_dropped(&self, key: Key) -> bool {
        let found = Cell::new(false);
        let _ = self.each(key, |slots| {
            for slot in slots {
                let its = slot.key();
                let relation = relation_of(its);
                if its >> 32 == key.raw >> 32
                    && relation != pg_sys::InvalidOid
                    // What a running transaction has made is not seen here, but pinned.
                    && catalog::kind(relation) == 0
                    && slot.abandon_unpinned(its)
                {
                    found.set(true);
                }
            }
            None
        });
        found.get()
    }

    /// Makes another table, unless somebody else has done so.
    fn grow(&self, layers: usize, reading: Reading, now: i64) -> Result<(), Error> {
        let exhausted = || error::slots_exhausted(SLOTS_MAX);
        let size = layer_size(layers).ok_or_else(exhausted)?;
        // SAFETY: in a transaction. The segment is as large as its slots, at the start of
        // a page. Only this process knows of it until its handle is stored.
        let (segment, handle) = unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let flags = pg_sys::DSM_CREATE_NULL_IF_MAXSEGMENTS as i32;
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
        let stored = locked(TABLE_LOCK, pg_sys::LWLockMode::LW_EXCLUSIVE, || {
            let count = &self.header.layers;
            if count.load(Ordering::Relaxed) as usize != layers {
                return false;
            }
            if let Some(place) = self.header.handles.get(layers) {
                place.store(handle, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Release);
            }
            true
        });
        // SAFETY: ours; attach() maps it again, if it was stored. If not, nobody else
        // knows of it, and it goes with this mapping.
        unsafe {
            if !stored {
                pg_sys::dsm_unpin_segment(handle);
            }
            pg_sys::dsm_detach(segment);
        }
        if stored {
            pgrx::log!("snowflake_id: made room for {size} more generators in shared memory");
        }
        Ok(())
    }

    /// Goes through all slots of a database; nobody is evicted meanwhile. `f` must not
    /// call PostgreSQL.
    fn for_each_of(&self, database: pg_sys::Oid, mut f: impl FnMut(&'static Slot, u64)) {
        self.attach();
        let (defaults, first) = self.fixed();
        locked(TABLE_LOCK, pg_sys::LWLockMode::LW_SHARED, || {
            LAYERS.with_borrow(|layers| {
                let all = layers.iter().flat_map(|slots| slots.iter());
                for slot in defaults.iter().chain(first).chain(all) {
                    let key = slot.key();
                    if key >> 32 == u64::from(database.to_u32()) {
                        f(slot, key);
                    }
                }
            });
        });
    }

    /// Resets the counters of the generators of this database, or of one of them.
    pub fn reset_stats(&self, generator: Option<Key>) {
        let now = time::timestamptz(os_clock::read().wall.millis());
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        self.for_each_of(database, |slot, key| {
            if generator.is_none_or(|generator| generator.raw == key) {
                slot.stats().reset(now);
            }
        });
    }

    /// Believes the wall clock, and accepts the leads that the generators of this
    /// database were refused. Returns how far the clock has jumped, and the largest lead.
    pub fn accept_clock(&self) -> (Millis, Millis) {
        let reading = os_clock::read();
        let jumped = self.with_beliefs(|beliefs| beliefs.accept(reading));
        let mut largest = Millis::ZERO;
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        self.for_each_of(database, |slot, _| {
            largest = largest.max(slot.accept(reading));
        });
        (jumped, largest)
    }

    /// Gives up the slots of a database in which nobody can be.
    pub fn forget(&self, database: pg_sys::Oid) {
        self.for_each_of(database, |slot, _| slot.abandon());
    }
}

/// The slots where a generator can be in a table: from where its hash points to.
#[derive(Clone)]
struct Window {
    slots: &'static [Slot],
    next: usize,
    left: usize,
}

impl Window {
    fn new(slots: &'static [Slot], key: u64, size: usize) -> Self {
        // The golden ratio spreads keys that differ in their low bits.
        let hash = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let count = u64::try_from(slots.len()).unwrap_or(1).max(1);
        Self {
            slots,
            next: usize::try_from(hash % count).unwrap_or(0),
            left: size.min(slots.len()),
        }
    }
}

impl Iterator for Window {
    type Item = &'static Slot;

    fn next(&mut self) -> Option<&'static Slot> {
        self.left = self.left.checked_sub(1)?;
        let slot = self.slots.get(self.next)?;
        self.next += 1;
        if self.next == self.slots.len() {
            self.next = 0;
        }
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

fn slots_size() -> usize {
    (defaults_size() + guc::max_generators()) * size_of::<Slot>()
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_request() {
    // SAFETY: called by the postmaster when it sizes shared memory.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        pg_sys::RequestAddinShmemSpace(size_of::<Header>());
        pg_sys::RequestAddinShmemSpace(slots_size());
        pg_sys::RequestNamedLWLockTranche(TRANCHE.as_ptr(), 2);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_startup() {
    // SAFETY: called by the postmaster when shared memory exists and no backend
    // does, also after a crash; the areas are as large as requested. PostgreSQL
    // aligns them to 128 bytes, as slots are.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
        let area = |name: &std::ffi::CStr, size: usize| {
            let mut found = false;
            let raw = pg_sys::ShmemInitStruct(name.as_ptr(), size, &raw mut found);
            (raw, found)
        };
        let (header, found) = area(c"snowflake_id", size_of::<Header>());
        let (slots, _) = area(c"snowflake_id generators", slots_size());
        let (header, slots) = (header.cast::<Header>(), slots.cast::<Slot>());
        if !slots.is_aligned() {
            pgrx::error!("snowflake_id: shared memory is not aligned to 128 bytes");
        }
        if !found {
            initialise(header, slots);
        }
        HEADER.store(header, Ordering::Relaxed);
        SLOTS.store(slots, Ordering::Relaxed);
        let locks = pg_sys::GetNamedLWLockTranche(TRANCHE.as_ptr());
        LOCKS.store(locks, Ordering::Relaxed);
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
    let now = time::timestamptz(reading.wall.millis());
    let worker = guc::worker_id();
    let number = worker.and_then(|worker| i32::try_from(worker.get()).ok());
    // SAFETY: the caller's.
    unsafe {
        header.write(Header {
            worker_id: AtomicI32::new(number.unwrap_or(-1)),
            layers: AtomicU32::new(0),
            handles: [const { AtomicU32::new(0) }; LAYERS_MAX],
            secret: secret(),
            beliefs: UnsafeCell::new(Beliefs::new(reading)),
        });
        for index in 0..defaults_size() + guc::max_generators() {
            slots.add(index).write(Slot::new(reading, now));
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
