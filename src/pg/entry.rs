//! What this session knows of a generator, and when that is void.
//!
//! An entry is made once per session and generator and never freed, so that a
//! plan may keep a pointer to it (`fn_extra`). Those of generators that were dropped are
//! used again for others; a plan compares the relation. What it holds has two lifetimes:
//!
//! - [`Facts`] of the catalog (its label; that it can hold a mark, and in which
//!   file), until a relcache invalidation of the sequence;
//! - the [`Right`] to issue (lock held, slot pinned, USAGE checked for this user),
//!   until the transaction ends, or anything of it is void.
//!
//! The path of each ID compares a handful of fields of the right and goes to shared
//! memory; everything else is [`Entry::fill`], once per transaction.
//!
//! The fields are cells and not behind a lock: a backend is one thread, and the
//! callbacks below run in it, between our own statements but never inside one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::sync::Once;

use pgrx::pg_sys;

use super::error::{self, Error};
use super::label::{self, Described};
use super::shmem::{self, Key, Shared};
use super::{catalog, compat, mark, os_clock};
use crate::snowflake::generator::Generator;
use crate::snowflake::id::{Position, SnowflakeId, UnixMillis, WorkerId};
use crate::snowflake::layout::{Layout, Stamp};
use crate::snowflake::shuffle::Shuffle;
use crate::snowflake::slot::{Scale, Slot};
use crate::snowflake::stats::{Pending, Stats};

/// START, MAXVALUE and INCREMENT of a generator's sequence: plain `nextval()`
/// can never step from a mark to another value. As a value: no mark yet.
pub const NO_MARK: i64 = i64::MAX;

/// See the head of the file. Numbers of transactions and subtransactions are 0 where
/// there is none.
#[derive(Default)]
pub struct Entry {
    relation: Cell<pg_sys::Oid>,
    /// The label, and whether this is the default generator.
    label: Cell<Option<(&'static Described, bool)>>,
    facts: Cell<Option<Facts>>,
    right: Cell<Option<Right>>,
    /// The last transaction that locked the sequence, and its strongest mode.
    locked: Cell<(u32, u32)>,
    /// The last transaction that was given a right.
    filled_in: Cell<u32>,
    /// The slot, if this transaction has pinned it, and as whose.
    pinned: Cell<Option<(Key, &'static Slot)>>,
    /// Where the slot was the last time.
    hint: Cell<Option<&'static Slot>>,
    /// This transaction created or rewrote the sequence.
    unsettled: Cell<bool>,
    /// The subtransaction that created it.
    created_in: Cell<pg_sys::SubTransactionId>,
    /// The last transaction that changed the label, and the layout before.
    relabelled: Cell<Option<(u32, Layout)>>,
    last_id: Cell<Option<SnowflakeId>>,
    pending: Pending,
    /// It is, or was, the default generator's. Plans that name no generator keep it
    /// without comparing the relation, so it is never used again.
    was_default: Cell<bool>,
}

#[derive(Clone, Copy)]
pub struct Facts {
    pub described: &'static Described,
    key: Key,
    /// The file that holds the mark.
    file: u32,
    scale: Scale,
    /// What makes IDs of positions, and the worker number it is for. Made once, since
    /// every transaction asks.
    stamp: Option<(i32, Stamp, Option<Shuffle>)>,
}

/// All that issuing takes.
#[derive(Clone, Copy)]
pub struct Right {
    /// The generator's slot, pinned.
    pub slot: &'static Slot,
    pub generator: &'static Generator,
    /// What IDs get besides their position.
    pub stamp: Stamp,
    /// The order of their sequence numbers, if they are random.
    shuffle: Option<Shuffle>,
    /// Whether the generator is like the default one: [`Generator::is_plain`], and
    /// callers give no fields.
    pub is_plain: bool,
    shared: &'static Shared,
    worker: i32,
    transaction: u32,
    user: pg_sys::Oid,
}

thread_local! {
    static ENTRIES: RefCell<BTreeMap<u32, &'static Entry>> = const { RefCell::new(BTreeMap::new()) };
    /// Entries of generators that were dropped.
    static UNUSED: RefCell<Vec<&'static Entry>> = const { RefCell::new(Vec::new()) };
    /// With so many entries, those of dropped generators are looked for.
    static CROWDED: Cell<usize> = const { Cell::new(CROWDED_MIN) };
    /// Entries that hold a pin, to be given back at the end of the transaction.
    static PINNED: RefCell<Vec<&'static Entry>> = const { RefCell::new(Vec::new()) };
    static DEFAULT_RELATION: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
    /// It was looked for, and nothing has changed since.
    static NO_DEFAULT: Cell<bool> = const { Cell::new(false) };
}

/// The least number of entries among which it is worth to look for unused ones.
const CROWDED_MIN: usize = 64;

/// The entry of a sequence, made if there is none. Says nothing about it yet.
pub fn of_sequence(relation: pg_sys::Oid) -> &'static Entry {
    known(relation).unwrap_or_else(|| make(relation))
}

/// The entry of a relation that a user has named. Whatever is no generator gets none.
pub fn of_named(relation: pg_sys::Oid) -> Result<&'static Entry, Error> {
    known(relation).map_or_else(|| look_and_make(relation), Ok)
}

fn known(relation: pg_sys::Oid) -> Option<&'static Entry> {
    ENTRIES.with_borrow(|entries| entries.get(&relation.to_u32()).copied())
}

#[cold]
fn look_and_make(relation: pg_sys::Oid) -> Result<&'static Entry, Error> {
    register_callbacks();
    let entry = Entry::default();
    entry.relation.set(relation);
    let text = |relation| Ok(label::text_of(relation));
    let mode = pg_sys::AccessShareLock.cast_signed();
    // Whoever makes a generator of it right now holds a lock.
    // SAFETY: in a transaction; an error ends it, and with it the lock.
    let looked = unsafe {
        pg_sys::LockRelationOid(relation, mode);
        let is_there = catalog::is_there(relation);
        let looked = is_there.then(|| entry.read_label(entry.is_default(), text).map(drop));
        pg_sys::UnlockRelationOid(relation, mode);
        looked
    };
    looked.unwrap_or_else(|| Err(error::no_such_relation(relation)))?;
    Ok(make(relation))
}

#[cold]
fn make(relation: pg_sys::Oid) -> &'static Entry {
    register_callbacks();
    if ENTRIES.with_borrow(BTreeMap::len) >= CROWDED.get() {
        find_unused();
    }
    let unused = UNUSED.with_borrow_mut(Vec::pop);
    let entry = unused.unwrap_or_else(|| Box::leak(Box::default()));
    entry.relation.set(relation);
    ENTRIES.with_borrow_mut(|entries| entries.insert(relation.to_u32(), entry));
    entry
}

/// Takes away the entries of generators that are gone. Until there are twice as many as
/// are left then, it is not done again: that costs a look-up of each.
fn find_unused() {
    // Looking up catalogs calls the call-backs below.
    let all: Vec<_> = ENTRIES.with_borrow(|entries| entries.values().copied().collect());
    for entry in all {
        let relation = entry.relation();
        if entry.is_idle() && catalog::kind(relation) == 0 {
            ENTRIES.with_borrow_mut(|entries| entries.remove(&relation.to_u32()));
            entry.clear();
            UNUSED.with_borrow_mut(|unused| unused.push(entry));
        }
    }
    let left = ENTRIES.with_borrow(BTreeMap::len);
    CROWDED.set(CROWDED_MIN.max(left.saturating_mul(2)));
}

impl Entry {
    #[inline]
    pub fn relation(&self) -> pg_sys::Oid {
        self.relation.get()
    }

    /// Whether neither this transaction nor a plan relies on it: a function that is
    /// running has locked the relation. A drop by this transaction may be undone, with
    /// which `snowflake_currval()` has its value again.
    fn is_idle(&self) -> bool {
        // SAFETY: a variable of this process.
        let may_undo =
            unsafe { pg_sys::GetTopTransactionIdIfAny() } != pg_sys::InvalidTransactionId;
        !self.is_pinned()
            && self.locked.get().0 != compat::transaction()
            && self.committed_layout().is_none()
            && !(may_undo && self.last_id.get().is_some())
            && !self.was_default.get()
    }

    /// As a new one.
    fn clear(&self) {
        let Self {
            relation,
            label,
            facts,
            right,
            locked,
            filled_in,
            pinned,
            hint,
            unsettled,
            created_in,
            relabelled,
            last_id,
            pending,
            was_default: _,
        } = self;
        relation.take();
        label.take();
        facts.take();
        right.take();
        locked.take();
        filled_in.take();
        pinned.take();
        hint.take();
        unsettled.take();
        created_in.take();
        relabelled.take();
        last_id.take();
        // There is no slot to add it to.
        pending.flush(&Stats::default(), None);
    }

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

    /// Adds what this session has done to the shared counters. Without a slot there is
    /// nothing to add.
    #[cold]
    pub fn flush_stats(&self) {
        if let Some((_, slot)) = self.pinned.get() {
            let last = self.last_id.get().zip(self.label.get());
            let last = last.map(|(id, (described, _))| described.generator.layout.tick_of_id(id));
            self.pending.flush(slot.stats(), last);
        }
    }

    /// All that issuing takes, if this session may do so now: same transaction, same
    /// user (one plan can run under two), nothing invalidated, not read-only
    /// (a transaction can be made so half-way), not in parallel mode.
    #[inline]
    pub fn right(&self) -> Option<Right> {
        self.right.get().filter(Right::holds)
    }

    /// Checks everything that must hold before this session may issue, as
    /// `nextval()` does, and pins the slot.
    #[cold]
    pub fn fill(&'static self) -> Result<Right, Error> {
        let shared = shmem::shared()?;
        prevent_where_nextval_is(c"snowflake_nextval()");
        self.lock();
        // Invalidations that came with a lock have run by now and made the
        // facts void; each pass takes locks, so look again after it.
        loop {
            pgrx::check_for_interrupts!();
            let mut facts = self.learn()?;
            let generator = &facts.described.generator;
            catalog::check_privilege(self.relation(), pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE)?;
            self.check_committed(generator.layout)?;
            let worker = shared.worker_number();
            let (_, stamp, shuffle) = match facts.stamp {
                Some(known) if known.0 == worker => known,
                _ => {
                    let shuffle = generator.is_random().then(|| shared.shuffle(facts.key));
                    (worker, self.stamp(facts.described, shared)?, shuffle)
                }
            };
            let slot = self.pin(facts.key, shared)?;
            if !slot.is_settled(facts.file, facts.scale) {
                let reading = shared.reading_to_start_from();
                mark::reserving(self.relation(), |token| {
                    slot.settle(token, facts.file, facts.scale, reading);
                });
            }
            if self.facts.get().is_none() {
                continue;
            }
            facts.stamp = Some((worker, stamp, shuffle));
            self.facts.set(Some(facts));
            let right = Right {
                slot,
                generator,
                stamp,
                shuffle,
                is_plain: generator.is_plain() && !generator.layout.takes_fields(),
                shared,
                worker,
                transaction: compat::transaction(),
                user: compat::user(),
            };
            self.filled_in.set(right.transaction);
            self.right.set(Some(right));
            return Ok(right);
        }
    }

    /// Takes RowExclusive for the rest of the transaction, as `nextval()` does: whoever
    /// drops, restarts or relabels the sequence waits for us, and we for them.
    pub fn lock(&self) {
        let is_new = self.lock_for_transaction(pg_sys::RowExclusiveLock);
        // A view may have learned before that the sequence is new.
        if is_new && self.unsettled.take() {
            self.facts.set(None);
        }
    }

    /// Locks the sequence, unless this transaction has done so; true if it had not.
    fn lock_for_transaction(&self, mode: u32) -> bool {
        let transaction = compat::transaction();
        let (locked_in, held) = self.locked.get();
        if locked_in == transaction && held >= mode {
            return false;
        }
        // SAFETY: resource owners are valid inside a transaction. If the lock is
        // refused, aborting the transaction puts the owner back.
        unsafe {
            let owner = pg_sys::CurrentResourceOwner;
            pg_sys::CurrentResourceOwner = pg_sys::TopTransactionResourceOwner;
            pg_sys::LockRelationOid(self.relation(), mode.cast_signed());
            pg_sys::CurrentResourceOwner = owner;
        }
        self.locked.set((transaction, mode));
        true
    }

    /// The label, under a lock that keeps it until the transaction ends. Works
    /// without preloading, in recovery, and in parallel workers.
    pub fn describe(&self) -> Result<&'static Described, Error> {
        self.lock_for_transaction(pg_sys::AccessShareLock);
        Ok(self.learn_label()?.0)
    }

    /// The label, and whether this is the default generator. The relation is locked.
    pub fn learn_label(&self) -> Result<(&'static Described, bool), Error> {
        if let Some(known) = self.label.get() {
            return Ok(known);
        }
        let is_default = self.is_default();
        if is_default {
            self.was_default.set(true);
        }
        let described = self.read_label(is_default, label::of_sequence)?;
        let known = (described.unwrap_or_else(label::of_default), is_default);
        self.label.set(Some(known));
        Ok(known)
    }

    pub fn is_default(&self) -> bool {
        default_relation().is_ok_and(|relation| relation == self.relation())
    }

    /// Reads the label by `read`; `None` for the default generator, which has none.
    pub fn read_label<T>(
        &self,
        is_default: bool,
        read: impl FnOnce(pg_sys::Oid) -> Result<Option<T>, label::Unreadable>,
    ) -> Result<Option<T>, Error> {
        let kind = catalog::kind(self.relation());
        if kind == 0 {
            // Should it be the default one: dropped while it was looked for.
            DEFAULT_RELATION.set(pg_sys::InvalidOid);
            return Err(error::no_such_relation(self.relation()));
        }
        if is_default {
            return Ok(None);
        }
        if kind != pg_sys::RELKIND_SEQUENCE {
            return Err(error::not_a_generator(&self.name()));
        }
        let label = read(self.relation())
            .map_err(|(text, error)| error::stored_label(&self.name(), &text, &error))?;
        if label.is_some() {
            return Ok(label);
        }
        // A sequence with a generator's bounds has lost its label.
        Err(match catalog::sequence_form(self.relation()) {
            Ok(form) if form.seqincrement == NO_MARK => error::unlabelled(&self.name()),
            _ => error::not_a_generator(&self.name()),
        })
    }

    /// Runs `f` while nobody drops or rewrites the relation; the lock is given
    /// back at once. `None` if it is not there.
    pub fn with_share_lock<T>(&self, f: impl FnOnce() -> Option<T>) -> Option<T> {
        let mode = pg_sys::AccessShareLock.cast_signed();
        // SAFETY: in a transaction; an error in `f` ends it, and with it the lock.
        unsafe {
            pg_sys::LockRelationOid(self.relation(), mode);
            let result = (catalog::kind(self.relation()) != 0).then(f).flatten();
            pg_sys::UnlockRelationOid(self.relation(), mode);
            result
        }
    }

    /// The same without a wait: `f` is told whether the lock is held. If somebody else's
    /// excludes it, the relation may be dropped at any time.
    pub fn with_share_lock_if_free<T>(&self, f: impl FnOnce(bool) -> Option<T>) -> Option<T> {
        let mode = pg_sys::AccessShareLock.cast_signed();
        // SAFETY: in a transaction; an error in `f` ends it, and with it the lock.
        unsafe {
            let is_held = pg_sys::ConditionalLockRelationOid(self.relation(), mode);
            let is_there = catalog::kind(self.relation()) != 0;
            let result = is_there.then(|| f(is_held)).flatten();
            if is_held {
                pg_sys::UnlockRelationOid(self.relation(), mode);
            }
            result
        }
    }

    /// Whether only its session could read it. The relation is locked.
    pub fn is_temporary(&self) -> bool {
        catalog::persistence(self.relation()) == pg_sys::RELPERSISTENCE_TEMP
    }

    /// Whether it has a file also in recovery. The relation is locked.
    pub fn is_permanent(&self) -> bool {
        catalog::persistence(self.relation()) == pg_sys::RELPERSISTENCE_PERMANENT
    }

    /// The latest mark that was written, if this session has pinned the slot.
    pub fn highest_mark(&self) -> Option<UnixMillis> {
        self.pinned.get()?.1.highest()
    }

    /// Refuses bounds of the sequence between which a mark does not lie.
    pub fn check_takes(&self, mark: UnixMillis) -> Result<(), Error> {
        let form = catalog::sequence_form(self.relation())?;
        if form.seqmin <= mark.get() && mark.get() <= form.seqmax {
            return Ok(());
        }
        Err(error::mark_does_not_fit(&self.name(), mark))
    }

    /// The facts of the catalog: as they are known, or read now. The relation, which
    /// is locked, is a generator then.
    pub fn learn(&self) -> Result<Facts, Error> {
        if let Some(facts) = self.facts.get() {
            return Ok(facts);
        }
        let (described, is_default) = self.learn_label()?;
        let file = catalog::file(self.relation())?;
        catalog::check_fits(self.relation())?;
        if file.created_in != 0 || file.rewritten_in != 0 {
            self.unsettled.set(true);
        }
        self.created_in.set(file.created_in);
        let facts = Facts {
            described,
            key: Key::of_generator(self.relation(), is_default),
            file: file.number,
            scale: Scale::of_generator(&described.generator),
            stamp: None,
        };
        // Whatever was invalidated while we looked: our lock excludes changes of
        // what we looked at.
        self.label.set(Some((described, is_default)));
        self.facts.set(Some(facts));
        Ok(facts)
    }

    /// Whether the user in force may know how far it is: may use it, as with
    /// `pg_sequences`, or read all statistics. The relation need not be locked.
    pub fn may_watch(&self) -> bool {
        // SAFETY: looks up the catalogs.
        let reads_all = || unsafe {
            pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into())
        };
        let any_of = pg_sys::ACL_SELECT | pg_sys::ACL_USAGE;
        catalog::has_privilege(self.relation(), any_of) || reads_all()
    }

    /// Where its slot is in shared memory.
    pub fn key(&self) -> Key {
        Key::of_generator(self.relation(), self.is_default())
    }

    /// Where the generator goes on, at its word or its clock, whichever is later; if
    /// it has issued since it has a place in shared memory.
    pub fn running_at(&self, generator: &Generator) -> Option<Position> {
        let reading = os_clock::read();
        shmem::shared().ok()?.with_slot(self.key(), |slot| {
            let runs = slot.live().word().position() != Position::ZERO
                && slot.scale() == Scale::of_generator(generator);
            runs.then(|| slot.live().next(generator, reading))
        })?
    }

    /// This transaction changes the label; the relation is locked.
    pub fn note_relabelling(&self, before: Layout) {
        // SAFETY: in a transaction.
        let part = unsafe { pg_sys::GetCurrentSubTransactionId() };
        // What the subtransaction that made the relation does to it besides is undone
        // together with it.
        let is_made_here = catalog::file(self.relation()).is_ok_and(|file| file.created_in == part);
        if !is_made_here && self.committed_layout().is_none() {
            self.relabelled.set(Some((compat::transaction(), before)));
        }
    }

    /// The layout as it was, if this transaction has changed the label.
    fn committed_layout(&self) -> Option<Layout> {
        let (transaction, before) = self.relabelled.get()?;
        (transaction == compat::transaction()).then_some(before)
    }

    /// Refuses a layout that may be rolled back. The one before would come to
    /// IDs that this one has issued: an epoch that was an hour earlier, an hour
    /// later.
    fn check_committed(&self, layout: Layout) -> Result<(), Error> {
        let differs = |before: Layout| {
            layout.epoch() != before.epoch() || layout.change_from(before).is_some()
        };
        if self.committed_layout().is_some_and(differs) {
            return Err(error::label_not_committed(&self.name()));
        }
        Ok(())
    }

    /// What all IDs of a generator with this label get that this server issues.
    /// Refuses a policy that is not there yet; and a server that has no worker ID, or
    /// one that does not fit, unless IDs do not carry it.
    fn stamp(&self, described: &Described, shared: &Shared) -> Result<Stamp, Error> {
        if !described.generator.policy.is_supported() {
            return Err(error::unsupported(&self.name()));
        }
        let layout = described.generator.layout;
        let max = layout.max_worker();
        let worker = match shared.worker_id() {
            Some(worker) => worker,
            None if layout.has_worker() => return Err(error::no_worker_id(max)),
            None => WorkerId::NONE,
        };
        layout.stamp(worker).map_err(|_| {
            let text = described.label.layout_text();
            error::worker_id_range(worker.get(), max, &self.name(), &text)
        })
    }

    /// Why this server would issue no ID for it, with this label: what [`Self::fill`]
    /// would find, but for privileges. The relation is locked.
    pub fn check_can_issue(&self, described: &Described, shared: &Shared) -> Result<(), Error> {
        catalog::check_fits(self.relation())?;
        self.stamp(described, shared).map(drop)
    }

    /// Keeps the slot this generator's until the transaction ends.
    pub fn pin(&'static self, key: Key, shared: &Shared) -> Result<&'static Slot, Error> {
        if let Some((_, slot)) = self.pinned.get() {
            return Ok(slot);
        }
        let slot = shared.pin(key, self.hint.get())?;
        self.hint.set(Some(slot));
        self.pinned.set(Some((key, slot)));
        PINNED.with_borrow_mut(|pinned| pinned.push(self));
        Ok(slot)
    }

    pub fn is_pinned(&self) -> bool {
        self.pinned.get().is_some()
    }

    /// Gives the slot back before that, unless this session issues from it.
    pub fn unpin_unused(&self) {
        if self.filled_in.get() != compat::transaction()
            && let Some((_, slot)) = self.pinned.take()
        {
            PINNED.with_borrow_mut(|pinned| {
                pinned.retain(|entry| entry.relation() != self.relation())
            });
            slot.unpin();
        }
    }

    /// The generator's name, quoted and qualified where needed.
    pub fn name(&self) -> String {
        catalog::relation_name(self.relation())
    }

    /// The labels that it points to.
    fn labels(&self) -> impl Iterator<Item = &'static Described> {
        let label = self.label.get().map(|(described, _)| described);
        label
            .into_iter()
            .chain(self.facts.get().map(|facts| facts.described))
    }

    fn end(&self, committed: bool, aborted: bool) {
        self.flush_stats();
        let unsettled = self.unsettled.take();
        let created = self.created_in.take() != 0;
        if unsettled {
            self.facts.set(None);
        }
        self.right.set(None);
        if let Some((key, slot)) = self.pinned.take() {
            if created && aborted && !key.is_default() {
                // No generator will ever have this OID and this past.
                slot.abandon();
            } else if unsettled {
                slot.end_rewrite(committed);
            }
            slot.unpin();
        }
    }

    /// A subtransaction was rolled back: what it did to the sequence is undone.
    fn end_part(&self, mine: pg_sys::SubTransactionId) {
        if !self.unsettled.get() {
            return;
        }
        self.facts.set(None);
        self.right.set(None);
        match self.pinned.get() {
            Some((key, slot)) if self.created_in.get() == mine && !key.is_default() => {
                self.created_in.set(0);
                self.pinned.set(None);
                slot.abandon();
                slot.unpin();
            }
            Some((_, slot)) => slot.end_rewrite(false),
            None => {}
        }
    }
}

impl Right {
    #[inline]
    fn holds(&self) -> bool {
        // SAFETY: a variable of this process.
        let read_only = unsafe { pg_sys::XactReadOnly };
        self.worker == self.shared.worker_number()
            && self.transaction == compat::transaction()
            && self.user == compat::user()
            && !read_only
            && !compat::in_parallel_mode()
    }

    #[inline]
    pub fn compose(&self, position: Position) -> SnowflakeId {
        let layout = self.generator.layout;
        if self.is_plain {
            layout.compose(position, self.stamp)
        } else {
            layout.compose_in(position, self.stamp, self.shuffle.as_ref())
        }
    }
}

/// Forgets the last ID of every generator.
pub fn discard_last() {
    ENTRIES.with_borrow(|entries| {
        for entry in entries.values() {
            entry.flush_stats();
            entry.last_id.set(None);
        }
    });
}

/// The same errors in the same places as `nextval()`.
pub fn prevent_where_nextval_is(name: &CStr) {
    // SAFETY: a variable of this process.
    if !unsafe { pg_sys::XactReadOnly } && !compat::in_parallel_mode() {
        return;
    }
    // SAFETY: a NUL-terminated name.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(name.as_ptr());
        pg_sys::PreventCommandIfParallelMode(name.as_ptr());
    }
}

/// The default generator. Found once per session, and again after an invalidation.
pub fn default_relation() -> Result<pg_sys::Oid, Error> {
    register_callbacks();
    if let Some(known) = catalog::valid(DEFAULT_RELATION.get()) {
        return Ok(known);
    }
    let found = catalog::default_relation();
    NO_DEFAULT.set(found.is_none());
    let found = found.ok_or_else(error::no_default_generator)?;
    DEFAULT_RELATION.set(found);
    Ok(found)
}

/// Whether this database has the extension. Where it has not, that is known until any
/// relation changes: CREATE EXTENSION makes some.
pub fn is_extension_here() -> bool {
    !NO_DEFAULT.get() && default_relation().is_ok()
}

fn register_callbacks() {
    static ONCE: Once = Once::new();
    // SAFETY: functions that live as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::CacheRegisterRelcacheCallback(Some(on_invalidation), pg_sys::Datum::from(0));
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
        pg_sys::RegisterSubXactCallback(Some(on_subtransaction), std::ptr::null_mut());
    });
}

/// A relation changed, or all may have.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_invalidation(_arg: pg_sys::Datum, relation: pg_sys::Oid) {
    let all = relation == pg_sys::InvalidOid;
    NO_DEFAULT.set(false);
    if all || relation == DEFAULT_RELATION.get() {
        DEFAULT_RELATION.set(pg_sys::InvalidOid);
    }
    let forget = |entry: &Entry| {
        entry.label.set(None);
        entry.facts.set(None);
        entry.right.set(None);
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
    use pg_sys::XactEvent::*;
    let (committed, aborted) = match event {
        XACT_EVENT_COMMIT => (true, false),
        XACT_EVENT_ABORT => (false, true),
        XACT_EVENT_PARALLEL_ABORT | XACT_EVENT_PARALLEL_COMMIT | XACT_EVENT_PREPARE => {
            (false, false)
        }
        _ => return,
    };
    PINNED.with_borrow_mut(|pinned| {
        for entry in pinned.drain(..) {
            entry.end(committed, aborted);
        }
    });
    // No function runs, and no right is left.
    label::forget_others(|| {
        ENTRIES.with_borrow(|entries| {
            let known = entries.values().flat_map(|entry| entry.labels());
            known.map(std::ptr::from_ref).collect()
        })
    });
}

/// A subtransaction ends. What it created is its parent's if it is committed.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn on_subtransaction(
    event: pg_sys::SubXactEvent::Type,
    mine: pg_sys::SubTransactionId,
    parent: pg_sys::SubTransactionId,
    _arg: *mut std::ffi::c_void,
) {
    use pg_sys::SubXactEvent::{SUBXACT_EVENT_ABORT_SUB, SUBXACT_EVENT_COMMIT_SUB};
    PINNED.with_borrow_mut(|pinned| match event {
        SUBXACT_EVENT_ABORT_SUB => {
            pinned.iter().for_each(|entry| entry.end_part(mine));
            pinned.retain(|entry| entry.is_pinned());
        }
        SUBXACT_EVENT_COMMIT_SUB => {
            for entry in pinned.iter() {
                if entry.created_in.get() == mine {
                    entry.created_in.set(parent);
                }
            }
        }
        _ => {}
    });
}
