//! What this session knows of a generator, and when that is void.
//!
//! An entry is made once per session and generator and never freed, so that a
//! plan may keep a pointer to it (`fn_extra`). What it holds has two lifetimes:
//!
//! - **facts of the catalog** (its label; and that it can hold a mark, and in
//!   which file), until a relcache invalidation of the sequence;
//! - **the right to issue** (lock held, slot pinned, USAGE checked for this
//!   user), until the transaction ends.
//!
//! The path of each ID compares a handful of fields here and goes to shared
//! memory; everything else is [`Entry::fill`], once per transaction.
//!
//! The fields are cells and not behind a lock: a backend is one thread, and the
//! callbacks below run in it, between our own statements but never inside one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;

use pgrx::pg_sys;

use super::compat::{self, SequenceForm};
use super::error::Error;
use super::label::{self, Described};
use super::reservation_lock;
use super::shmem::{self, Note, Scale, Shared, Slot, State};
use super::stats::Pending;
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Position, SnowflakeId, UnixMillis, WorkerId};
use crate::snowflake::label::Label;
use crate::snowflake::layout::{Layout, Stamp};
use crate::snowflake::policy::{Policy, SequenceStart};
use crate::snowflake::shuffle::Shuffle;

/// The name of the default generator's sequence in the extension's schema.
pub const DEFAULT_NAME: &CStr = c"snowflake_default";

/// START, MAXVALUE and INCREMENT of a generator's sequence: plain `nextval()`
/// can never step from a mark to another value. As a value: no mark yet.
pub const NO_MARK: i64 = i64::MAX;

/// See the head of the file.
pub struct Entry {
    relation: pg_sys::Oid,
    /// The label has been read.
    described: Cell<Option<&'static Described>>,
    /// Nothing was invalidated since. If it was, what was read last still counts
    /// until it is read again: a GRANT elsewhere, which takes no lock, may void
    /// everything in the middle of a look-up, while our own lock keeps the label
    /// as it is.
    label_known: Cell<bool>,
    /// What it says; the default generator's as long as nothing is known.
    generator: Cell<&'static Generator>,
    is_default: Cell<bool>,
    /// All else that issuing needs to know has been read, too.
    known: Cell<bool>,
    file_number: Cell<u32>,
    /// This transaction created or rewrote the sequence.
    unsettled: Cell<bool>,
    /// The last transaction that changed the label, and the layout before.
    relabelled_in: Cell<u32>,
    layout_before: Cell<Layout>,

    usable: Cell<bool>,
    /// As `usable`, of a generator that [`Generator::is_plain`].
    plainly_usable: Cell<bool>,
    locked_in: Cell<u32>,
    read_locked_in: Cell<u32>,
    filled_in: Cell<u32>,
    user: Cell<pg_sys::Oid>,
    place: Cell<Option<Place>>,
    pinned: Cell<bool>,
    /// What all IDs get that this server issues, and the worker ID it is for.
    stamp: Cell<Stamp>,
    stamped_for: Cell<i32>,
    /// It is made from the label that was read last.
    stamped: Cell<bool>,
    /// The order of its sequence numbers, if they are random.
    shuffle: Cell<Option<Shuffle>>,

    last_id: Cell<Option<SnowflakeId>>,
    pending: Pending,
}

/// Where a generator's shared state is.
#[derive(Clone, Copy)]
pub struct Place {
    /// All of it.
    pub shared: Shared,
    /// The bounds of this database and generator.
    pub slot: &'static Slot,
    /// The word and the clock.
    pub state: &'static State,
}

thread_local! {
    static ENTRIES: RefCell<BTreeMap<u32, &'static Entry>> = const { RefCell::new(BTreeMap::new()) };
    /// Entries that hold a pin, to be given back at the end of the transaction.
    static PINNED: RefCell<Vec<&'static Entry>> = const { RefCell::new(Vec::new()) };
    static DEFAULT_RELATION: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
    static CALLBACKS: Cell<bool> = const { Cell::new(false) };
}

/// The entry of a sequence, made if there is none. Says nothing about it yet.
pub fn of(relation: pg_sys::Oid) -> &'static Entry {
    register_callbacks();
    ENTRIES.with_borrow_mut(|entries| {
        *entries.entry(relation.to_u32()).or_insert_with(|| {
            Box::leak(Box::new(Entry {
                relation,
                described: Cell::new(None),
                label_known: Cell::new(false),
                generator: Cell::new(&Generator::DEFAULT),
                is_default: Cell::new(false),
                relabelled_in: Cell::new(pg_sys::InvalidLocalTransactionId),
                layout_before: Cell::new(Layout::DEFAULT),
                known: Cell::new(false),
                file_number: Cell::new(0),
                unsettled: Cell::new(false),
                usable: Cell::new(false),
                plainly_usable: Cell::new(false),
                locked_in: Cell::new(pg_sys::InvalidLocalTransactionId),
                read_locked_in: Cell::new(pg_sys::InvalidLocalTransactionId),
                filled_in: Cell::new(pg_sys::InvalidLocalTransactionId),
                user: Cell::new(pg_sys::InvalidOid),
                place: Cell::new(None),
                pinned: Cell::new(false),
                stamp: Cell::new(Stamp::new(0)),
                stamped_for: Cell::new(-1),
                stamped: Cell::new(false),
                shuffle: Cell::new(None),
                last_id: Cell::new(None),
                pending: Pending::default(),
            }))
        })
    })
}

impl Entry {
    /// The sequence.
    pub fn relation(&self) -> pg_sys::Oid {
        self.relation
    }

    /// Layout and policy. Meaningful once [`Self::describe`] succeeded.
    #[inline]
    pub fn generator(&self) -> &'static Generator {
        self.generator.get()
    }

    /// What IDs get besides their position. Meaningful while [`Self::place`] is.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp.get()
    }

    /// The order of sequence numbers; meaningful as [`Self::stamp`].
    pub fn shuffle(&self) -> Option<Shuffle> {
        self.shuffle.get()
    }

    fn set_unusable(&self) {
        self.usable.set(false);
        self.plainly_usable.set(false);
    }

    /// The file that holds the mark.
    pub fn file_number(&self) -> u32 {
        self.file_number.get()
    }

    /// The last ID this session got from this generator.
    pub fn last_id(&self) -> Option<SnowflakeId> {
        self.last_id.get()
    }

    /// Remembers an ID for `snowflake_currval()`.
    #[inline]
    pub fn set_last_id(&self, id: SnowflakeId) {
        self.last_id.set(Some(id));
    }

    /// What this session has done since it last added up.
    #[inline]
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Adds what this session has done to the shared counters, if it holds a
    /// slot; else there is nothing to add.
    #[cold]
    pub fn flush_stats(&self) {
        if self.pinned.get()
            && let Some(place) = self.place.get()
        {
            let layout = self.described.get().map(|it| it.generator.layout);
            let last = self
                .last_id
                .get()
                .zip(layout)
                .map(|(id, layout)| layout.tick_of_id(id));
            self.pending.flush(place.slot.stats(), last);
        }
    }

    /// The shared state, if this session may issue now: same transaction, same
    /// user (one plan can run under two), nothing invalidated, not read-only
    /// (a transaction can be made so half-way), not in parallel mode.
    #[inline]
    pub fn place(&self) -> Option<Place> {
        self.place_if(&self.usable)
    }

    /// As [`Self::place`], if the generator is like the default one, so that the
    /// path of each ID asks no more than it has to.
    #[inline]
    pub fn plain_place(&self) -> Option<Place> {
        self.place_if(&self.plainly_usable)
    }

    #[inline]
    fn place_if(&self, usable: &Cell<bool>) -> Option<Place> {
        // SAFETY: a variable of this process.
        let read_only = unsafe { pg_sys::XactReadOnly };
        let place = self.place.get()?;
        let usable = usable.get()
            && self.stamped_for.get() == place.shared.worker_number()
            && self.filled_in.get() == compat::transaction()
            && self.user.get() == compat::user()
            && !read_only
            && !compat::in_parallel_mode();
        usable.then_some(place)
    }

    /// Checks everything that must hold before this session may issue, as
    /// `nextval()` does, and pins the slot.
    #[cold]
    pub fn fill(&'static self) -> Result<Place, Error> {
        let shared = shmem::shared()?;
        Self::prevent_where_nextval_is(c"snowflake_nextval()");
        self.lock();
        // Invalidations that came with a lock have run by now and made the
        // entry unknown; each pass takes locks, so look again after it.
        let place = loop {
            pgrx::check_for_interrupts!();
            if !self.known.get() {
                self.learn()?;
            }
            self.check_privilege(pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE)?;
            self.check_committed()?;
            self.set_stamp(shared)?;
            let place = self.pin(shared)?;
            if place.slot.file_number() != self.file_number.get()
                || place.slot.scale() != self.scale()
            {
                self.settle(place);
            }
            if self.known.get() {
                break place;
            }
        };
        self.user.set(compat::user());
        self.filled_in.set(compat::transaction());
        self.usable.set(true);
        self.plainly_usable.set(self.generator().is_plain());
        Ok(place)
    }

    /// The same errors in the same places as `nextval()`.
    pub fn prevent_where_nextval_is(name: &CStr) {
        // SAFETY: a NUL-terminated name.
        unsafe {
            pg_sys::PreventCommandIfReadOnly(name.as_ptr());
            pg_sys::PreventCommandIfParallelMode(name.as_ptr());
        }
    }

    /// Takes RowExclusive for the rest of the transaction, as `nextval()` does:
    /// whoever drops, restarts or relabels the sequence waits for us, and we
    /// for them.
    pub fn lock(&self) {
        let transaction = compat::transaction();
        if self.locked_in.get() == transaction {
            return;
        }
        self.lock_for_transaction(pg_sys::RowExclusiveLock);
        self.locked_in.set(transaction);
        // A view may have learned before that it is new.
        if self.unsettled.replace(false) {
            self.known.set(false);
        }
    }

    fn lock_for_transaction(&self, mode: u32) {
        // SAFETY: resource owners are valid inside a transaction. If the lock is
        // refused, aborting the transaction puts the owner back.
        unsafe {
            let owner = pg_sys::CurrentResourceOwner;
            pg_sys::CurrentResourceOwner = pg_sys::TopTransactionResourceOwner;
            #[allow(clippy::cast_possible_wrap)]
            pg_sys::LockRelationOid(self.relation, mode as i32);
            pg_sys::CurrentResourceOwner = owner;
        }
    }

    /// Its label, under a lock that keeps it until the transaction ends. Works
    /// without preloading, in recovery, and in parallel workers.
    pub fn describe(&self) -> Result<&'static Described, Error> {
        let transaction = compat::transaction();
        if self.locked_in.get() != transaction && self.read_locked_in.get() != transaction {
            self.lock_for_transaction(pg_sys::AccessShareLock);
            self.read_locked_in.set(transaction);
        }
        match self.described.get().filter(|_| self.label_known.get()) {
            Some(described) => Ok(described),
            None => self.learn_label(),
        }
    }

    /// Reads the label. The relation is locked.
    pub fn learn_label(&self) -> Result<&'static Described, Error> {
        let default = default_relation();
        let is_default = matches!(&default, Ok(relation) if *relation == self.relation);
        // SAFETY: looks up the catalogs.
        let kind = unsafe { pg_sys::get_rel_relkind(self.relation) }.cast_unsigned();
        if kind == 0 {
            // Should it be the default one: dropped while it was looked for.
            DEFAULT_RELATION.set(pg_sys::InvalidOid);
            return Err(Error::NoSuchRelation { oid: self.relation });
        }
        let described = if is_default {
            label::of_default()
        } else if kind == pg_sys::RELKIND_SEQUENCE {
            label::of(self.relation)
                .map_err(|(text, error)| Error::StoredLabel {
                    name: self.name(),
                    text,
                    error,
                })?
                .ok_or_else(|| self.unlabelled())?
        } else {
            return Err(Error::NotAGenerator { name: self.name() });
        };
        self.is_default.set(is_default);
        self.described.set(Some(described));
        self.label_known.set(true);
        self.generator.set(&described.generator);
        self.stamped.set(false);
        Ok(described)
    }

    /// A sequence without a label; one of a generator's bounds has lost it.
    fn unlabelled(&self) -> Error {
        let name = self.name();
        match self.sequence_form() {
            Ok(form) if form.seqincrement == NO_MARK => Error::Unlabelled { name },
            _ => Error::NotAGenerator { name },
        }
    }

    /// Runs `f` while nobody drops or rewrites the relation; the lock is given
    /// back at once. `None` if it is not there.
    pub fn with_share_lock<T>(&self, f: impl FnOnce() -> Option<T>) -> Option<T> {
        #[allow(clippy::cast_possible_wrap)]
        let mode = pg_sys::AccessShareLock as i32;
        // SAFETY: in a transaction; an error in `f` ends it, and with it the lock.
        unsafe {
            pg_sys::LockRelationOid(self.relation, mode);
            let result = if pg_sys::get_rel_relkind(self.relation) == 0 {
                None
            } else {
                f()
            };
            pg_sys::UnlockRelationOid(self.relation, mode);
            result
        }
    }

    /// Whether it is a temporary one, which only its session could read. The
    /// relation is locked.
    pub fn is_temporary(&self) -> bool {
        // SAFETY: looks up the catalogs.
        let persistence = unsafe { pg_sys::get_rel_persistence(self.relation) };
        persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_TEMP
    }

    /// Whether it has a file also in recovery. The relation is locked.
    pub fn is_permanent(&self) -> bool {
        // SAFETY: looks up the catalogs.
        let persistence = unsafe { pg_sys::get_rel_persistence(self.relation) };
        persistence.cast_unsigned() == pg_sys::RELPERSISTENCE_PERMANENT
    }

    /// The number of its file as of now; 0 if it is gone. The relation is locked.
    pub fn current_file_number(&self) -> u32 {
        // SAFETY: we hold a lock; the relation is closed again, or by an abort.
        unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let none = pg_sys::NoLock as i32;
            let relation = pg_sys::try_relation_open(self.relation, none);
            if relation.is_null() {
                return 0;
            }
            let number = compat::file_number(relation);
            pg_sys::relation_close(relation, none);
            number
        }
    }

    /// The latest mark that was written while this session has its slot pinned,
    /// and before that.
    pub fn highest_mark(&self) -> Option<UnixMillis> {
        let place = self.place.get().filter(|_| self.pinned.get())?;
        place.slot.highest()
    }

    /// Refuses bounds of the sequence between which a mark does not lie.
    pub fn check_takes(&self, mark: UnixMillis) -> Result<(), Error> {
        let form = self.sequence_form()?;
        if form.seqmin <= mark.get() && mark.get() <= form.seqmax {
            return Ok(());
        }
        Err(Error::MarkDoesNotFit {
            name: self.name(),
            mark,
        })
    }

    /// Reads the facts of the catalog. The relation is locked.
    fn learn(&self) -> Result<(), Error> {
        self.learn_label()?;
        // SAFETY: we hold a lock; the relation is closed again, or by the abort.
        let (persistence, file_number, new) = unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let relation = pg_sys::try_relation_open(self.relation, pg_sys::NoLock as i32);
            if relation.is_null() {
                return Err(Error::NoSuchRelation { oid: self.relation });
            }
            let form = (*relation).rd_rel;
            let facts = (
                (*form).relpersistence.cast_unsigned(),
                compat::file_number(relation),
                compat::is_new_in_transaction(relation),
            );
            #[allow(clippy::cast_possible_wrap)]
            pg_sys::relation_close(relation, pg_sys::NoLock as i32);
            facts
        };
        self.check_sequence(persistence)?;
        self.file_number.set(file_number);
        if new {
            self.unsettled.set(true);
        }
        // Whatever was invalidated while we looked: our lock excludes changes of
        // what we looked at.
        self.known.set(true);
        Ok(())
    }

    /// Whether its sequence can hold a mark. The relation is locked.
    pub fn check_fits(&self) -> Result<(), Error> {
        // SAFETY: looks up the catalogs.
        let persistence = unsafe { pg_sys::get_rel_persistence(self.relation) };
        self.check_sequence(persistence.cast_unsigned())
    }

    /// A mark is safe only in a sequence that is bigint and logged and that
    /// `nextval()` cannot move.
    fn check_sequence(&self, persistence: u8) -> Result<(), Error> {
        let bad = |reason: &str| {
            Err(Error::UnfitSequence {
                name: self.name(),
                reason: reason.to_string(),
            })
        };
        if persistence != pg_sys::RELPERSISTENCE_PERMANENT {
            return bad("It is temporary or unlogged: its mark would not survive a crash.");
        }
        let form = self.sequence_form()?;
        if form.seqtypid != pg_sys::INT8OID {
            return bad("Its type is not bigint.");
        }
        if form.seqincrement != NO_MARK || form.seqstart != NO_MARK || form.seqmax != NO_MARK {
            return bad("Its INCREMENT, START and MAXVALUE are not all 9223372036854775807.");
        }
        if form.seqmin != 1 || form.seqcycle {
            return bad("Its MINVALUE is not 1, or it may CYCLE.");
        }
        Ok(())
    }

    fn sequence_form(&self) -> Result<SequenceForm, Error> {
        // SAFETY: pg_sequence has a row for every sequence, of this form.
        unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let tuple = pg_sys::SearchSysCache1(
                pg_sys::SysCacheIdentifier::SEQRELID as i32,
                pg_sys::Datum::from(self.relation),
            );
            if tuple.is_null() {
                return Err(Error::NoSuchRelation { oid: self.relation });
            }
            let form = std::ptr::read(pg_sys::GETSTRUCT(tuple).cast::<SequenceForm>());
            pg_sys::ReleaseSysCache(tuple);
            Ok(form)
        }
    }

    /// Whether the user in force may know how far it is: may use it, as with
    /// `pg_sequences`, or read all statistics.
    pub fn may_watch(&self) -> bool {
        // SAFETY: looks up the catalogs.
        let reads_all = || unsafe {
            pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into())
        };
        self.check_privilege(pg_sys::ACL_SELECT | pg_sys::ACL_USAGE)
            .is_ok()
            || reads_all()
    }

    /// Checks that the user in force has one of the privileges.
    pub fn check_privilege(&self, any_of: u32) -> Result<(), Error> {
        // SAFETY: looks up the catalogs.
        let result = unsafe {
            pg_sys::pg_class_aclcheck(self.relation, compat::user(), compat::acl_mode(any_of))
        };
        if result == pg_sys::AclResult::ACLCHECK_OK {
            Ok(())
        } else {
            Err(Error::NoPrivilege {
                name: self.name(),
                owner: self.owner(),
                update: any_of == pg_sys::ACL_UPDATE,
            })
        }
    }

    /// Where it goes on, if it has issued since it has a place in shared memory:
    /// at its word or its clock, whichever is later.
    pub fn running_at(&self) -> Option<Position> {
        let shared = shmem::shared().ok()?;
        let generator = self.generator();
        if self.is_default.get() {
            let state = shared.default_state();
            return (state.word().position() != Position::ZERO).then(|| state.next(generator));
        }
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        shared.view(database, self.relation)?.next(generator)
    }

    /// Checks that the relation, which is locked, is a generator.
    pub fn check_is_generator(&self) -> Result<(), Error> {
        if !self.known.get() {
            self.learn()?;
        }
        Ok(())
    }

    /// What the positions of its word mean.
    pub fn scale(&self) -> Scale {
        Scale::of(self.generator())
    }

    /// Refuses a policy that is not there yet.
    pub fn check_supported(&self, policy: &Policy) -> Result<(), Error> {
        if policy.is_supported() {
            return Ok(());
        }
        Err(Error::Unsupported { name: self.name() })
    }

    /// This transaction changes the label; the relation is locked.
    pub fn note_relabelling(&self, before: Layout) {
        // SAFETY: the lock is ours; the relation is closed again.
        let made_here = unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let none = pg_sys::NoLock as i32;
            let relation = pg_sys::relation_open(self.relation, none);
            let made_here = compat::is_made_here(relation);
            pg_sys::relation_close(relation, none);
            made_here
        };
        let transaction = compat::transaction();
        if !made_here && self.relabelled_in.get() != transaction {
            self.relabelled_in.set(transaction);
            self.layout_before.set(before);
        }
    }

    /// Refuses a layout that may be rolled back. The one before would come to
    /// IDs that this one has issued: an epoch that was an hour earlier, an hour
    /// later.
    fn check_committed(&self) -> Result<(), Error> {
        if self.relabelled_in.get() != compat::transaction() {
            return Ok(());
        }
        let (layout, before) = (self.generator().layout, self.layout_before.get());
        if layout.epoch() == before.epoch() && layout.change_from(before).is_none() {
            return Ok(());
        }
        Err(Error::LabelNotCommitted { name: self.name() })
    }

    /// Refuses a policy that is not there yet; and a server that has no worker ID,
    /// or one that does not fit, unless IDs do not carry it. Once per label and
    /// worker ID, since every transaction asks.
    fn set_stamp(&self, shared: Shared) -> Result<(), Error> {
        let number = shared.worker_number();
        if self.stamped.get() && self.stamped_for.get() == number {
            return Ok(());
        }
        self.check_supported(&self.generator().policy)?;
        let layout = self.generator().layout;
        let max = layout.max_worker();
        let worker = match WorkerId::new(number) {
            Some(worker) => worker,
            None if layout.has_worker() => return Err(Error::NoWorkerId { max }),
            None => WorkerId::NONE,
        };
        let stamp = layout.stamp(worker).map_err(|_| Error::WorkerIdRange {
            worker: worker.get(),
            max,
            generator: self.name(),
            layout: self.label().map_or_else(String::new, Label::layout_text),
        })?;
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        let is_random = self.generator().policy.sequence_start == SequenceStart::Random;
        self.shuffle
            .set(is_random.then(|| shared.shuffle(database, self.relation)));
        self.stamp.set(stamp);
        self.stamped_for.set(number);
        self.stamped.set(true);
        Ok(())
    }

    /// Its label, if that is known.
    pub fn label(&self) -> Option<&'static Label> {
        self.described.get().map(|described| &described.label)
    }

    /// Why this server would issue no ID for it: what [`Self::fill`] would find,
    /// but for privileges. The relation is locked.
    pub fn check_can_issue(&self, shared: Shared) -> Result<(), Error> {
        if !self.known.get() {
            self.learn()?;
        }
        self.set_stamp(shared)
    }

    /// Keeps the slot this generator's until the transaction ends.
    pub fn pin(&'static self, shared: Shared) -> Result<Place, Error> {
        if self.pinned.get()
            && let Some(place) = self.place.get()
        {
            return Ok(place);
        }
        // SAFETY: a variable of this process.
        let database = unsafe { pg_sys::MyDatabaseId };
        let hint = self.place.get().map(|place| place.slot);
        let slot = shared.pin(database, self.relation, hint)?;
        let place = Place {
            shared,
            slot,
            state: if self.is_default.get() {
                shared.default_state()
            } else {
                slot.own_state()
            },
        };
        self.place.set(Some(place));
        self.pinned.set(true);
        PINNED.with_borrow_mut(|pinned| pinned.push(self));
        Ok(place)
    }

    /// Whether the slot is this generator's until the transaction ends.
    pub fn is_pinned(&self) -> bool {
        self.pinned.get()
    }

    /// Gives the slot back before that, unless this session issues from it.
    pub fn unpin_unused(&self) {
        if self.pinned.get() && self.filled_in.get() != compat::transaction() {
            PINNED.with_borrow_mut(|pinned| pinned.retain(|entry| entry.relation != self.relation));
            if let Some(place) = self.place.get() {
                place.slot.unpin();
            }
            self.pinned.set(false);
        }
    }

    /// The slot's bound belongs to another file than the sequence has now: it
    /// was rewritten, or the slot is new. Forgets the bound, once. If positions
    /// mean something else by now, the word too: it goes on from the mark.
    #[cold]
    fn settle(&self, place: Place) {
        reservation_lock::with(self.relation, || {
            let (slot, file_number) = (place.slot, self.file_number.get());
            let rescaled = slot.scale() != self.scale();
            if slot.file_number() != file_number || rescaled {
                slot.unsettle();
                if rescaled {
                    place.shared.reset(slot.own_state());
                    slot.stats().forget_last_tick();
                    slot.set_scale(self.scale());
                }
                slot.set_note(Note {
                    file_number,
                    ..slot.note()
                });
            }
        });
    }

    /// The name of the role that owns it.
    fn owner(&self) -> String {
        // SAFETY: the relation is locked, so its row is there; names are
        // NUL-terminated.
        unsafe {
            #[allow(clippy::cast_possible_wrap)]
            let tuple = pg_sys::SearchSysCache1(
                pg_sys::SysCacheIdentifier::RELOID as i32,
                pg_sys::Datum::from(self.relation),
            );
            if tuple.is_null() {
                return String::from("?");
            }
            let owner = (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_class>()).relowner;
            pg_sys::ReleaseSysCache(tuple);
            let name = pg_sys::GetUserNameFromId(owner, true);
            if name.is_null() {
                return owner.to_u32().to_string();
            }
            CStr::from_ptr(name).to_string_lossy().into_owned()
        }
    }

    /// The generator's name, quoted and qualified where needed.
    pub fn name(&self) -> String {
        relation_name(self.relation)
    }
}

/// A relation's name as a user would write it.
pub fn relation_name(oid: pg_sys::Oid) -> String {
    // SAFETY: regclassout takes an OID and returns a NUL-terminated string.
    unsafe {
        let text = pg_sys::OidOutputFunctionCall(
            pg_sys::Oid::from(pg_sys::F_REGCLASSOUT),
            pg_sys::Datum::from(oid),
        );
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// The default generator: the extension's own sequence of that name. Found once
/// per session, and again after an invalidation.
pub fn default_relation() -> Result<pg_sys::Oid, Error> {
    register_callbacks();
    let cached = DEFAULT_RELATION.get();
    if cached != pg_sys::InvalidOid {
        return Ok(cached);
    }
    // SAFETY: catalog look-ups with constant names, in a transaction.
    let found = unsafe {
        let extension = pg_sys::get_extension_oid(c"snowflake_id".as_ptr(), true);
        let schema = extension_schema(extension);
        let relation = pg_sys::get_relname_relid(DEFAULT_NAME.as_ptr(), schema);
        // In a schema where others may create, one of the same name that is not
        // the extension's is not the default generator.
        let owner = pg_sys::getExtensionOfObject(pg_sys::RelationRelationId, relation);
        if extension == pg_sys::InvalidOid || relation == pg_sys::InvalidOid || owner != extension {
            return Err(Error::NoDefaultGenerator);
        }
        relation
    };
    DEFAULT_RELATION.set(found);
    Ok(found)
}

/// The schema of an extension; `get_extension_schema` is not exported before 16.
///
/// # Safety
/// In a transaction.
unsafe fn extension_schema(extension: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a scan of pg_extension by its OID index, closed again; the key
    // outlives the scan.
    unsafe {
        #[allow(clippy::cast_possible_wrap)]
        let lock = pg_sys::AccessShareLock as i32;
        let catalog = pg_sys::table_open(pg_sys::ExtensionRelationId, lock);
        let mut key = pg_sys::ScanKeyData::default();
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
        pg_sys::ScanKeyInit(
            &raw mut key,
            pg_sys::Anum_pg_extension_oid as i16,
            pg_sys::BTEqualStrategyNumber as u16,
            pg_sys::F_OIDEQ.into(),
            pg_sys::Datum::from(extension),
        );
        let scan = pg_sys::systable_beginscan(
            catalog,
            pg_sys::ExtensionOidIndexId.into(),
            true,
            std::ptr::null_mut(),
            1,
            &raw mut key,
        );
        let tuple = pg_sys::systable_getnext(scan);
        let schema = if tuple.is_null() {
            pg_sys::InvalidOid
        } else {
            (*pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_extension>()).extnamespace
        };
        pg_sys::systable_endscan(scan);
        pg_sys::table_close(catalog, lock);
        schema
    }
}

fn register_callbacks() {
    if CALLBACKS.get() {
        return;
    }
    CALLBACKS.set(true);
    // SAFETY: functions that live as long as the process.
    unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::from(0));
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
    }
}

/// A relation changed, or all may have.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let all = relation == pg_sys::InvalidOid;
    if all || relation == DEFAULT_RELATION.get() {
        DEFAULT_RELATION.set(pg_sys::InvalidOid);
    }
    let forget = |entry: &Entry| {
        entry.label_known.set(false);
        entry.known.set(false);
        entry.set_unusable();
    };
    ENTRIES.with_borrow(|entries| {
        if all {
            entries.values().copied().for_each(forget);
        } else if let Some(entry) = entries.get(&relation.to_u32()) {
            forget(entry);
        }
    });
}

/// The transaction ends; its locks are still held.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_transaction(
    event: pg_sys::XactEvent::Type,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::XactEvent::{
        XACT_EVENT_ABORT, XACT_EVENT_COMMIT, XACT_EVENT_PARALLEL_ABORT, XACT_EVENT_PARALLEL_COMMIT,
        XACT_EVENT_PREPARE,
    };
    let ends = [
        XACT_EVENT_ABORT,
        XACT_EVENT_COMMIT,
        XACT_EVENT_PARALLEL_ABORT,
        XACT_EVENT_PARALLEL_COMMIT,
        XACT_EVENT_PREPARE,
    ];
    if !ends.contains(&event) {
        return;
    }
    PINNED.with_borrow_mut(|pinned| {
        for entry in pinned.drain(..) {
            entry.flush_stats();
            if let Some(place) = entry.place.get() {
                if entry.unsettled.get() {
                    place.slot.unsettle();
                    if event != XACT_EVENT_COMMIT {
                        place.slot.set_undone(true);
                    }
                }
                place.slot.unpin();
            }
            entry.pinned.set(false);
            entry.set_unusable();
            if entry.unsettled.replace(false) {
                entry.known.set(false);
            }
        }
    });
}

/// A subtransaction was rolled back: what it did to a sequence is undone.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    _mine: pg_sys::SubTransactionId,
    _parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    if event != pg_sys::SubXactEvent::SUBXACT_EVENT_ABORT_SUB {
        return;
    }
    PINNED.with_borrow(|pinned| {
        for entry in pinned {
            if entry.unsettled.get() {
                if let Some(place) = entry.place.get() {
                    place.slot.unsettle();
                    place.slot.set_undone(true);
                }
                entry.known.set(false);
                entry.set_unusable();
            }
        }
    });
}
