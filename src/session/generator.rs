//! What this session knows about a generator, and when that becomes invalid.
//!
//! The session makes one entry per generator and never frees it, so that a plan may
//! keep a pointer to it (`fn_extra`). A dropped generator's entry is used again for
//! another one, so a plan compares the relation. What an entry holds ends at five times:
//!
//! | cells | end |
//! |---|---|
//! | [`KnownLabel`]: the label, and [`Facts`] of the catalog (that the sequence can hold a mark, and in which file) | a relcache invalidation of the sequence |
//! | [`Contexts`]: the [`IssueContext`] to issue (lock held, slot pinned, USAGE checked for this user) | the same, or the end of the transaction |
//! | [`OpenUse`]: the pin, and what is undone or settled | the end of the transaction |
//! | [`TransactionNotes`]: numbers of transactions | none: another transaction has another number |
//! | [`RelationHints`]: the last ID, hints | the entry is used for another relation |
//!
//! The path of each ID compares a few fields of the context and then uses shared memory.
//! [`SessionGenerator::fill`] does everything else, once per transaction, and again for another user,
//! tenure or label.
//!
//! The fields are cells without a lock: a backend is one thread, and the callbacks
//! of [`crate::session`] run in that thread, between our own statements but never inside one.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use pgrx::pg_sys;

use crate::postgres::{catalog, compat};
use crate::server::shmem::{self, Shared, SlotKey};
use crate::server::{guc, os_clock};
use crate::session::error::{self, Error};
use crate::session::label::{self, ParsedLabel};
use crate::session::{lease_wait, mark};
use snowflake_core::id::layout::{Layout, Stamp};
use snowflake_core::id::shuffle::Shuffle;
use snowflake_core::id::{Millis, Position, SnowflakeId, UnixMillis, WorkerId};
use snowflake_core::label::generator::Generator;
use snowflake_core::protocol::slot::{Scale, Slot};
use snowflake_core::protocol::stats::{Pending, Stats};
use snowflake_core::protocol::tenure::Generation;

/// A group of cells that end together: by one `take()`.
macro_rules! lifetime {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $cell:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Default)]
        struct $name { $($(#[$doc])* $cell: Cell<$type>,)* }

        impl $name {
            fn take(&self) { $(self.$cell.take();)* }
        }
    };
}

lifetime! {
    /// What the catalogs say: until the relation changes.
    KnownLabel {
        /// The label, and whether this is the default generator.
        label: Option<(&'static ParsedLabel, bool)>,
        facts: Option<Facts>,
    }
}

lifetime! {
    /// What issuing needs: until the transaction ends, or the relation changes.
    Contexts {
        issue: Option<IssueContext>,
        /// As `issue`, of a session that only moves the cursor to now, and may not issue.
        read: Option<IssueContext>,
    }
}

lifetime! {
    /// What this transaction has, and gives back or settles when it ends.
    OpenUse {
        /// The slot that it has pinned, if any, and its key at that time.
        pinned: Option<(SlotKey, &'static Slot)>,
        /// It has created or rewritten the sequence.
        unsettled: bool,
        /// The subtransaction that created the sequence; 0 if there is none.
        created_in: pg_sys::SubTransactionId,
    }
}

lifetime! {
    /// What holds in the transaction with this number, and means nothing in any other one; 0 is
    /// none.
    TransactionNotes {
        /// It has locked the sequence until it ends.
        locked: u32,
        /// It has read the label.
        described: u32,
        /// It has got a context.
        filled: u32,
        /// In it, this session has heard of a change of the sequence.
        changed: u32,
        /// It has changed the label, and the layout before the change.
        relabelled: Option<(u32, Layout)>,
    }
}

lifetime! {
    /// What stays for as long as the entry is this relation's.
    RelationHints {
        /// The user who had which of the privileges, see [`SessionGenerator::lock_for`], and as
        /// of which change.
        checked: Option<(pg_sys::Oid, u32, u64)>,
        /// The slot that was found last.
        hint: Option<&'static Slot>,
        last_id: Option<SnowflakeId>,
    }
}

/// See the head of the file.
#[derive(Default)]
pub struct SessionGenerator {
    relation: Cell<pg_sys::Oid>,
    known: KnownLabel,
    contexts: Contexts,
    open: OpenUse,
    noted: TransactionNotes,
    kept: RelationHints,
    pending: Pending,
    /// This entry is, or was, the default generator's. Plans that name no generator
    /// keep the entry and compare no relation, so no other generator ever gets it.
    was_default: Cell<bool>,
}

#[derive(Clone, Copy)]
pub struct Facts {
    pub described: &'static ParsedLabel,
    key: SlotKey,
    /// The file that holds the mark.
    file: u32,
    scale: Scale,
    /// What turns positions into IDs, and the generation of the server that this is for.
    /// Made once, since every transaction needs it.
    made: Option<GenerationFacts>,
}

#[derive(Clone, Copy)]
struct GenerationFacts {
    generation: Generation,
    /// The label's generator, within the limits of this generation.
    generator: &'static Generator,
    stamp: Stamp,
    shuffle: Option<Shuffle>,
}

/// All that issuing needs.
#[derive(Clone, Copy)]
pub struct IssueContext {
    /// The generator's slot, pinned.
    pub slot: &'static Slot,
    pub generator: &'static Generator,
    /// What an ID contains besides its position.
    pub stamp: Stamp,
    /// The order of the sequence numbers, if it is random.
    shuffle: Option<Shuffle>,
    pub path: Path,
    /// The generation of the server whose worker ID is in `stamp`.
    pub generation: Generation,
    transaction: u32,
    user: pg_sys::Oid,
}

/// What a session enters a generator for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To take IDs, for which it needs the privilege.
    Issue,
    /// To move the cursor, and take none.
    Advance,
}

/// How a session takes its next ID. A generator is plain if it works like the default one:
/// [`Generator::is_plain`] holds, and callers give no fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By the steps of the default generator.
    Plain,
    /// By the steps of other generators.
    Other,
    /// The first ID of a plain generator: by the protocol, which holds the horizon.
    FirstPlain,
    /// The first ID of another generator: by the protocol, too.
    FirstOther,
}

impl Path {
    /// The path of the first ID.
    const fn first(is_plain: bool) -> Self {
        if is_plain {
            Self::FirstPlain
        } else {
            Self::FirstOther
        }
    }

    pub const fn is_first(self) -> bool {
        matches!(self, Self::FirstPlain | Self::FirstOther)
    }

    const fn is_plain(self) -> bool {
        matches!(self, Self::FirstPlain | Self::Plain)
    }
}

/// The lock on a sequence of [`SessionGenerator::lock`].
const LOCK_MODE: pg_sys::LOCKMODE = pg_sys::RowExclusiveLock.cast_signed();

thread_local! {
    /// Entries that hold a pin, which is given back at the end of the transaction.
    static PINNED: RefCell<Vec<&'static SessionGenerator>> = const { RefCell::new(Vec::new()) };
    static DEFAULT_RELATION: Cell<pg_sys::Oid> = const { Cell::new(pg_sys::InvalidOid) };
    /// The default generator was not found, and nothing has changed since.
    static NO_DEFAULT: Cell<bool> = const { Cell::new(false) };
    /// How often this session has heard that a relation or a role has changed.
    static CHANGES: Cell<u64> = const { Cell::new(0) };
    /// The generators that may lead by less than their labels say, each once.
    static LIMITED: RefCell<Vec<&'static Generator>> = const { RefCell::new(Vec::new()) };
}

impl SessionGenerator {
    /// An entry of this relation, which knows nothing yet.
    pub fn new(relation: pg_sys::Oid) -> Self {
        let entry = Self::default();
        entry.relation.set(relation);
        entry
    }

    /// Takes an entry that is not used for another relation.
    pub fn reuse(&self, relation: pg_sys::Oid) {
        self.relation.set(relation);
    }

    /// The relation has changed, or may have.
    pub fn forget(&self) {
        self.noted.changed.set(compat::transaction());
        self.known.take();
        self.contexts.take();
    }

    /// Forgets the last ID.
    pub fn forget_last_id(&self) {
        self.flush_stats();
        self.kept.last_id.set(None);
    }

    pub fn relation(&self) -> pg_sys::Oid {
        self.relation.get()
    }

    /// Whether neither this transaction nor a plan relies on the entry: a function that
    /// is running has locked the relation, or has read its label. A drop by this transaction may be undone,
    /// and then `snowflake_currval()` has its value again.
    pub fn is_idle(&self) -> bool {
        let transaction = compat::transaction();
        !self.is_pinned()
            && self.noted.locked.get() != transaction
            && self.noted.described.get() != transaction
            && self.noted.changed.get() != transaction
            && self.committed_layout().is_none()
            && !self.was_default.get()
    }

    pub fn clear(&self) {
        self.relation.take();
        self.known.take();
        self.contexts.take();
        self.open.take();
        self.noted.take();
        self.kept.take();
        // There is no slot to which the counts could be added.
        self.pending.flush(&Stats::default(), None);
    }

    pub fn last_id(&self) -> Option<SnowflakeId> {
        self.kept.last_id.get()
    }

    /// Remembers an ID for `snowflake_currval()`.
    pub fn set_last_id(&self, id: SnowflakeId) {
        self.kept.last_id.set(Some(id));
    }

    /// The counts that this session has not yet added to the slot's.
    pub fn pending(&self) -> &Pending {
        &self.pending
    }

    /// Adds this session's counts to the shared counters. Without a slot, nothing is
    /// added.
    #[cold]
    pub fn flush_stats(&self) {
        if let Some((_, slot)) = self.open.pinned.get() {
            let last = self.kept.last_id.get().zip(self.known.label.get());
            let last = last.map(|(id, (described, _))| described.generator.layout.tick_of_id(id));
            self.pending.flush(slot.stats(), last);
        }
    }

    /// All that issuing needs, if this session may issue now: same transaction, same
    /// user (one plan can run under two), nothing invalidated, not read-only (a
    /// transaction can become read-only half-way), not in parallel mode. Its worker ID
    /// may be an earlier one: the slot tells, with each ID.
    #[inline]
    pub fn context(&self) -> Option<IssueContext> {
        self.context_for(Purpose::Issue)
    }

    /// As [`Self::context`], for either purpose.
    #[inline]
    pub fn context_for(&self, purpose: Purpose) -> Option<IssueContext> {
        self.context_cell(purpose).get().filter(IssueContext::holds)
    }

    /// As [`Self::context_for`], if its worker ID is the server's.
    pub fn present_context(&self, purpose: Purpose, shared: &Shared) -> Option<IssueContext> {
        let present = shared.server().generation();
        self.context_for(purpose)
            .filter(|context| context.generation == present)
    }

    /// As [`Self::present_context`]; the session gets one now if it has none. For
    /// other purposes than [`Purpose::Issue`], the caller has checked its privilege.
    pub fn context_or_fill(&'static self, purpose: Purpose) -> Result<IssueContext, Error> {
        let present = self.present_context(purpose, shmem::shared()?);
        present.map_or_else(|| self.fill(purpose), Ok)
    }

    #[inline]
    const fn context_cell(&self, purpose: Purpose) -> &Cell<Option<IssueContext>> {
        match purpose {
            Purpose::Issue => &self.contexts.issue,
            Purpose::Advance => &self.contexts.read,
        }
    }

    /// Checks everything that must hold before this session may issue, as
    /// `nextval()` does, and pins the slot. With that, the session enters the protocol,
    /// which holds the horizon: the fast path begins after the first IDs.
    #[cold]
    fn fill(&'static self, purpose: Purpose) -> Result<IssueContext, Error> {
        let issues = purpose == Purpose::Issue;
        let shared = shmem::shared()?;
        prevent_where_nextval_is(c"snowflake_nextval()");
        let any_of = pg_sys::ACL_USAGE | pg_sys::ACL_UPDATE;
        match issues {
            true => self.lock_for(any_of)?,
            false => self.lock(),
        }
        // Invalidations that came with a lock have run by now and cleared the facts.
        // Each pass takes locks, so the facts are checked again after each, and the privilege.
        let context = loop {
            pgrx::check_for_interrupts!();
            if let Some(context) = self.context_now(shared)? {
                break context;
            }
            if issues {
                self.check_user(any_of, false)?;
            }
        };
        self.noted.filled.set(context.transaction);
        self.context_cell(purpose).set(Some(context));
        Ok(context)
    }

    /// One pass of [`Self::fill`]; `None` if the sequence has changed, or the worker ID has been
    /// waited for, meanwhile.
    #[inline]
    fn context_now(&'static self, shared: &'static Shared) -> Result<Option<IssueContext>, Error> {
        let facts = self.learn()?;
        let generator = &facts.described.generator;
        self.check_committed(generator.layout)?;
        let generation = shared.server().generation();
        let needs_worker = generation.worker().is_none() && generator.layout.has_worker();
        if needs_worker && lease_wait::await_worker_id(shared) {
            return Ok(None);
        }
        let known = facts.made.filter(|made| made.generation == generation);
        let made = known.map_or_else(|| self.make(&facts, generation, shared), Ok)?;
        let slot = self.settled_slot(&facts, shared)?;
        if self.known.facts.get().is_none() {
            return Ok(None);
        }
        if known.is_none() {
            let made = Some(made);
            self.known.facts.set(Some(Facts { made, ..facts }));
        }
        Ok(Some(IssueContext {
            slot,
            generator: made.generator,
            stamp: made.stamp,
            shuffle: made.shuffle,
            path: Path::first(generator.is_plain() && !generator.layout.takes_fields()),
            generation,
            transaction: compat::transaction(),
            user: compat::user(),
        }))
    }

    /// What turns positions into IDs, in this generation.
    fn make(
        &self,
        facts: &Facts,
        generation: Generation,
        shared: &Shared,
    ) -> Result<GenerationFacts, Error> {
        let generator = &facts.described.generator;
        lease_wait::check_rotation(|| self.name(), generator)?;
        Ok(GenerationFacts {
            generation,
            generator: limited(generator, shared.server().max_ahead()),
            stamp: self.stamp(facts.described, generation.worker())?,
            shuffle: generator.is_random().then(|| shared.shuffle(facts.key)),
        })
    }

    /// The slot, pinned, with what it has to know of the file.
    #[inline]
    fn settled_slot(&'static self, facts: &Facts, shared: &Shared) -> Result<&'static Slot, Error> {
        let slot = self.pin(facts.key, shared)?;
        if !slot.is_settled(facts.file, facts.scale) {
            let reading = shared.reading_to_start_from();
            let is_settled = || slot.is_settled(facts.file, facts.scale);
            mark::reserving_unless(shared, self.relation(), is_settled, |token| {
                slot.settle(token, facts.file, facts.scale, reading);
            });
        }
        Ok(slot)
    }

    /// The session has taken IDs by the protocol, and need not for further ones.
    pub fn set_path(&self) {
        if let Some(mut context) = self.contexts.issue.get() {
            context.path = match context.path.is_plain() {
                true => Path::Plain,
                false => Path::Other,
            };
            self.contexts.issue.set(Some(context));
        }
    }

    /// Takes RowExclusive for the rest of the transaction, as `nextval()` does: a drop,
    /// restart or relabelling of the sequence waits for us, and we wait for such a one.
    pub fn lock(&self) {
        let transaction = compat::transaction();
        if self.noted.locked.get() != transaction {
            // SAFETY: in a transaction; a lock on an object that need not exist.
            with_top_owner(|| unsafe { pg_sys::LockRelationOid(self.relation(), LOCK_MODE) });
            self.note_lock(transaction);
        }
    }

    fn note_lock(&self, transaction: u32) {
        self.noted.locked.set(transaction);
        // A view may have learned, before this lock, that the sequence is new.
        if self.open.unsettled.take() {
            self.known.facts.set(None);
        }
    }

    /// As [`Self::lock`], for a user with one of these privileges. Nobody else has the lock
    /// afterwards: a session that drops or relabels the sequence would wait for the end of a
    /// stranger's transaction.
    ///
    /// The lock brings in what other sessions have changed. If that was no relation and no role,
    /// the answer is the one of the transaction before: GRANT and REVOKE change the relation, or a
    /// role.
    pub fn lock_for(&self, any_of: u32) -> Result<(), Error> {
        let transaction = compat::transaction();
        let is_new = self.noted.locked.get() != transaction;
        if is_new {
            let relation = self.relation();
            let may = with_top_owner(|| {
                compat::lock_and_check(relation, LOCK_MODE, any_of, |check| {
                    // Loaded before the check, during which more changes may come in.
                    let asked = Some((compat::user(), any_of, CHANGES.get()));
                    let may = self.kept.checked.get() == asked || check();
                    self.kept.checked.set(asked.filter(|_| may));
                    may
                })
            });
            self.note_lock(transaction);
            if may {
                return Ok(());
            }
        }
        self.check_user(any_of, is_new)
    }

    /// Refuses a user without any of these privileges. A lock that is new is released then;
    /// nothing relies on it yet.
    fn check_user(&self, any_of: u32, is_new: bool) -> Result<(), Error> {
        catalog::check_privilege(self.relation(), any_of).inspect_err(|_| {
            if is_new {
                // SAFETY: `lock_for` has taken it, with this owner.
                with_top_owner(|| unsafe {
                    pg_sys::UnlockRelationOid(self.relation(), LOCK_MODE);
                });
                self.noted.locked.set(0);
            }
        })
    }

    /// The label, as of now. No lock is left: a session that decodes an ID needs no privilege on
    /// the generator, and must not hold up its owner. So the label may change until the next
    /// call, in the ways that leave existing IDs as they are. This works without preloading,
    /// in recovery, and in parallel workers.
    pub fn describe(&self) -> Result<&'static ParsedLabel, Error> {
        let transaction = compat::transaction();
        if self.noted.locked.get() == transaction {
            return Ok(self.learn_label()?.0);
        }
        // Forgotten with the first invalidation, which comes with a lock of this or another
        // relation. One lock for each call would cost more than the call.
        if let Some((described, _)) = self.known.label.get()
            && self.noted.described.get() == transaction
        {
            return Ok(described);
        }
        let learned = self.with_share_lock(true, |_| Some(self.learn_label()));
        let (described, _) = learned.ok_or_else(|| error::no_such_relation(self.relation()))??;
        self.noted.described.set(transaction);
        Ok(described)
    }

    /// The label, and whether this is the default generator. The relation is locked.
    pub fn learn_label(&self) -> Result<(&'static ParsedLabel, bool), Error> {
        if let Some(known) = self.known.label.get() {
            return Ok(known);
        }
        let is_default = self.is_default();
        if is_default {
            self.was_default.set(true);
        }
        let described = self.read_label(is_default, label::of_sequence)?;
        let known = (described.unwrap_or_else(label::of_default), is_default);
        self.known.label.set(Some(known));
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
            // If this was the default generator, it was dropped during the look-up.
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
        // One with a generator's bounds may have lost its label where Citus has copied it.
        let has_bounds = catalog::sequence_form(self.relation())
            .is_ok_and(|form| form.seqincrement == catalog::STEP);
        let is_of_citus = has_bounds && catalog::has_extension(c"citus");
        Err(error::unlabelled(&self.name(), is_of_citus))
    }

    /// Runs `f` under a lock that excludes drops and rewrites of the relation, and is
    /// released at once; `None` if the relation is gone. If `waits` is false, `f` is
    /// told whether the lock is held. If not, the relation may be dropped at any time.
    pub fn with_share_lock<T>(&self, waits: bool, f: impl FnOnce(bool) -> Option<T>) -> Option<T> {
        let (relation, mode) = (self.relation(), pg_sys::AccessShareLock.cast_signed());
        // SAFETY: in a transaction; an error in `f` ends it, and with it the lock.
        unsafe {
            let is_held = if waits {
                pg_sys::LockRelationOid(relation, mode);
                true
            } else {
                pg_sys::ConditionalLockRelationOid(relation, mode)
            };
            let is_there = if is_held {
                catalog::is_there(relation)
            } else {
                catalog::kind(relation) != 0
            };
            let result = is_there.then(|| f(is_held)).flatten();
            if is_held {
                pg_sys::UnlockRelationOid(relation, mode);
            }
            result
        }
    }

    /// Whether only its own session can read the sequence. The relation is locked.
    pub fn is_temporary(&self) -> bool {
        catalog::persistence(self.relation()) == pg_sys::RELPERSISTENCE_TEMP
    }

    /// The latest mark that was written, if this session has pinned the slot.
    pub fn highest_mark(&self) -> Option<UnixMillis> {
        self.open.pinned.get()?.1.highest()
    }

    /// Refuses a mark that does not lie between the bounds of the sequence.
    pub fn check_takes(&self, mark: UnixMillis) -> Result<(), Error> {
        let form = catalog::sequence_form(self.relation())?;
        if form.seqmin <= mark.get() && mark.get() <= form.seqmax {
            return Ok(());
        }
        Err(error::mark_does_not_fit(&self.name(), mark))
    }

    /// The facts of the catalog, as known or read now. The relation is locked; if facts
    /// are returned, it is a generator.
    pub fn learn(&self) -> Result<Facts, Error> {
        if let Some(facts) = self.known.facts.get() {
            return Ok(facts);
        }
        let (described, is_default) = self.learn_label()?;
        let file = catalog::file(self.relation())?;
        catalog::check_fits(self.relation())?;
        if file.created_in != 0 || file.rewritten_in != 0 {
            self.open.unsettled.set(true);
        }
        self.open.created_in.set(file.created_in);
        let facts = Facts {
            described,
            key: SlotKey::of_generator(self.relation(), is_default),
            file: file.number,
            scale: Scale::of_generator(&described.generator),
            made: None,
        };
        // The facts hold even if an invalidation ran meanwhile: our lock excludes
        // changes of what was read.
        self.known.label.set(Some((described, is_default)));
        self.known.facts.set(Some(facts));
        Ok(facts)
    }

    /// Whether the user in force may see how far the generator is: may use it, as with
    /// `pg_sequences`, or read all statistics. The relation need not be locked.
    pub fn may_watch(&self) -> bool {
        // SAFETY: looks up the catalogs.
        let reads_all = || unsafe {
            pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_READ_ALL_STATS.into())
        };
        let any_of = pg_sys::ACL_SELECT | pg_sys::ACL_USAGE;
        catalog::has_privilege(self.relation(), any_of) || reads_all()
    }

    pub fn key(&self) -> SlotKey {
        SlotKey::of_generator(self.relation(), self.is_default())
    }

    /// The generator's next position, by its cursor or its clock, whichever is later.
    /// `None` if the generator has not issued since it got a slot in shared memory, or is about to
    /// begin its next rotation.
    pub fn running_at(&self, generator: &Generator) -> Option<Position> {
        let (reading, shared) = (os_clock::read(), shmem::shared().ok()?);
        let present = shared.server().generation();
        shared.with_slot(self.key(), |slot| {
            let runs = slot.live().cursor().position() != Position::ZERO
                && slot.scale() == Scale::of_generator(generator)
                && (!generator.rotates_worker() || slot.live().bounds().generation() == present);
            runs.then(|| slot.live().next(generator, reading))
        })?
    }

    /// Notes that this transaction changes the label. The relation is locked.
    pub fn note_relabelling(&self, before: Layout) {
        // SAFETY: in a transaction.
        let part = unsafe { pg_sys::GetCurrentSubTransactionId() };
        // Other changes by the subtransaction that made the relation are undone
        // together with the relation.
        let is_made_here = catalog::file(self.relation()).is_ok_and(|file| file.created_in == part);
        if !is_made_here && self.committed_layout().is_none() {
            self.noted
                .relabelled
                .set(Some((compat::transaction(), before)));
        }
    }

    /// The layout before the change, if this transaction has changed the label.
    fn committed_layout(&self) -> Option<Layout> {
        let (transaction, before) = self.noted.relabelled.get()?;
        (transaction == compat::transaction()).then_some(before)
    }

    /// Refuses a layout that may be rolled back: IDs that it has issued would be issued
    /// twice, by the layout before it. If the new epoch is an hour earlier than the old
    /// one, this happens an hour later.
    fn check_committed(&self, layout: Layout) -> Result<(), Error> {
        let differs = |before: Layout| {
            layout.epoch() != before.epoch() || layout.change_from(before).is_some()
        };
        if self.committed_layout().is_some_and(differs) {
            return Err(error::label_not_committed(&self.name()));
        }
        Ok(())
    }

    /// What every ID contains, besides its position, that this server issues for this
    /// label. If IDs carry the worker ID, refuses a server without one or with one that does not
    /// fit.
    fn stamp(&self, described: &ParsedLabel, worker: Option<WorkerId>) -> Result<Stamp, Error> {
        let layout = described.generator.layout;
        let max = layout.max_worker();
        let worker = match worker {
            Some(worker) => worker,
            None if layout.has_worker() => return Err(lease_wait::no_worker_id(max)),
            None => WorkerId::NONE,
        };
        layout.stamp(worker).map_err(|_| {
            let text = described.label.layout_text();
            let is_leased = guc::worker_id().is_none();
            error::worker_id_range(worker.get(), max, is_leased, &self.name(), &text)
        })
    }

    /// Why this server would issue no ID with this label: what [`Self::fill`] would
    /// find, except for privileges. The relation is locked.
    pub fn check_can_issue(&self, described: &ParsedLabel, shared: &Shared) -> Result<(), Error> {
        catalog::check_fits(self.relation())?;
        let worker = shared.server().generation().worker();
        self.stamp(described, worker).map(drop)
    }

    /// Warns if this server would issue no ID now. Without preloading, no setting can be wrong
    /// yet.
    pub fn warn_if_not_ready(&self) -> Result<(), Error> {
        self.lock_for(catalog::ANY_USE)?;
        let described = self.learn()?.described;
        if let Ok(shared) = shmem::shared() {
            let can = lease_wait::check_rotation(|| self.name(), &described.generator);
            can.and_then(|()| self.check_can_issue(described, shared))
                .unwrap_or_else(Error::warning);
        }
        Ok(())
    }

    /// Keeps the slot this generator's until the transaction ends.
    pub fn pin(&'static self, key: SlotKey, shared: &Shared) -> Result<&'static Slot, Error> {
        if let Some((_, slot)) = self.open.pinned.get() {
            return Ok(slot);
        }
        let slot = shared.pin(key, self.kept.hint.get())?;
        self.kept.hint.set(Some(slot));
        self.open.pinned.set(Some((key, slot)));
        PINNED.with_borrow_mut(|pinned| pinned.push(self));
        Ok(slot)
    }

    /// The generator whose slot this transaction has pinned.
    pub fn pinned_key(&self) -> Option<SlotKey> {
        self.open.pinned.get().map(|(key, _)| key)
    }

    pub fn is_pinned(&self) -> bool {
        self.open.pinned.get().is_some()
    }

    /// Gives the slot back early, unless this session issues from it.
    pub fn unpin_unused(&self) {
        if self.noted.filled.get() != compat::transaction()
            && let Some((_, slot)) = self.open.pinned.take()
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

    /// The labels to which this entry points.
    pub fn labels(&self) -> impl Iterator<Item = &'static ParsedLabel> {
        let label = self.known.label.get().map(|(described, _)| described);
        label
            .into_iter()
            .chain(self.known.facts.get().map(|facts| facts.described))
    }

    fn end(&self, committed: bool, aborted: bool) {
        self.flush_stats();
        let unsettled = self.open.unsettled.take();
        let created = self.open.created_in.take() != 0;
        if unsettled {
            self.known.facts.set(None);
        }
        self.contexts.take();
        if let Some((key, slot)) = self.open.pinned.get() {
            if created && aborted && !key.is_default() {
                // No generator will ever have both this OID and this past.
                slot.abandon();
            } else if created && !committed && key.is_default() {
                // Another sequence is the default generator again, or may be.
                slot.forget_mark();
            } else if unsettled {
                slot.end_rewrite(committed);
            }
        }
    }

    /// Called when a subtransaction is rolled back, with its changes to the sequence.
    fn end_part(&self, mine: pg_sys::SubTransactionId) {
        if !self.open.unsettled.get() {
            return;
        }
        self.known.facts.set(None);
        self.contexts.take();
        match self.open.pinned.get() {
            Some((key, slot)) if self.open.created_in.get() == mine && !key.is_default() => {
                self.open.created_in.set(0);
                self.open.pinned.set(None);
                slot.abandon();
                slot.unpin();
            }
            Some((_, slot)) if self.open.created_in.get() == mine => slot.forget_mark(),
            Some((_, slot)) => slot.end_rewrite(false),
            None => {}
        }
    }
}

impl IssueContext {
    #[inline]
    fn holds(&self) -> bool {
        // SAFETY: a variable of this process.
        let read_only = unsafe { pg_sys::XactReadOnly };
        self.transaction == compat::transaction()
            && self.user == compat::user()
            && !read_only
            && !compat::in_parallel_mode()
    }

    #[inline]
    pub fn compose(&self, position: Position) -> SnowflakeId {
        let layout = &self.generator.layout;
        if self.path.is_plain() {
            layout.compose(position, self.stamp)
        } else {
            layout.compose_in(position, self.stamp, self.shuffle.as_ref())
        }
    }
}

/// The generator, if it may lead the server's clock by no more than `max_ahead`. Never
/// freed: there are as many as labels with such a `max_borrow`, and limits.
fn limited(generator: &'static Generator, max_ahead: Option<Millis>) -> &'static Generator {
    let wanted = generator.within(max_ahead);
    if wanted == *generator {
        return generator;
    }
    LIMITED.with_borrow_mut(|known| {
        if let Some(known) = known.iter().find(|known| ***known == wanted) {
            return *known;
        }
        let new: &'static Generator = Box::leak(Box::new(wanted));
        known.push(new);
        new
    })
}

/// The transaction ends, and has its locks: what it has changed is kept or forgotten before
/// another session can have them.
pub fn end_transaction(committed: bool, aborted: bool) {
    PINNED.with_borrow(|pinned| {
        pinned
            .iter()
            .for_each(|entry| entry.end(committed, aborted))
    });
}

/// Gives all pins back.
pub fn unpin() {
    PINNED.with_borrow_mut(|pinned| {
        for (_, slot) in pinned
            .drain(..)
            .filter_map(|entry| entry.open.pinned.take())
        {
            slot.unpin();
        }
    });
}

/// A subtransaction is rolled back, with its changes to sequences.
pub fn end_part(mine: pg_sys::SubTransactionId) {
    PINNED.with_borrow_mut(|pinned| {
        pinned.iter().for_each(|entry| entry.end_part(mine));
        pinned.retain(|entry| entry.is_pinned());
    });
}

/// A subtransaction commits: its parent gets what it has created.
pub fn hand_over(mine: pg_sys::SubTransactionId, parent: pg_sys::SubTransactionId) {
    PINNED.with_borrow(|pinned| {
        for entry in pinned
            .iter()
            .filter(|entry| entry.open.created_in.get() == mine)
        {
            entry.open.created_in.set(parent);
        }
    });
}

/// How often this session has heard that a relation or a role has changed: what it knows of
/// both holds as long as this number.
pub fn changes() -> u64 {
    CHANGES.get()
}

/// A relation or a role has changed.
pub fn note_change() {
    CHANGES.set(CHANGES.get().wrapping_add(1));
}

/// A relation has changed, or all may have: the default generator is looked up anew.
pub fn forget_default(relation: pg_sys::Oid) {
    NO_DEFAULT.set(false);
    if relation == pg_sys::InvalidOid || relation == DEFAULT_RELATION.get() {
        DEFAULT_RELATION.set(pg_sys::InvalidOid);
    }
}

/// Whether the default generator was not found, and nothing has changed since.
pub fn has_no_default() -> bool {
    NO_DEFAULT.get()
}

/// Runs `f`, which locks or unlocks for the whole transaction: a savepoint that is rolled
/// back changes nothing.
fn with_top_owner<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: resource owners are valid inside a transaction. If `f` raises an error, aborting
    // the transaction puts the owner back.
    unsafe {
        let owner = pg_sys::CurrentResourceOwner;
        pg_sys::CurrentResourceOwner = pg_sys::TopTransactionResourceOwner;
        let result = f();
        pg_sys::CurrentResourceOwner = owner;
        result
    }
}

/// Raises the same errors in the same places as `nextval()`.
pub fn prevent_where_nextval_is(name: &CStr) {
    // SAFETY: a variable of this process; a NUL-terminated name.
    unsafe {
        if pg_sys::XactReadOnly || compat::in_parallel_mode() {
            pg_sys::PreventCommandIfReadOnly(name.as_ptr());
            pg_sys::PreventCommandIfParallelMode(name.as_ptr());
        }
    }
}

/// The default generator. Known until an invalidation: [`crate::session::default_relation`] sees to
/// it that the session hears of one.
pub(super) fn default_relation() -> Result<pg_sys::Oid, Error> {
    if let Some(known) = catalog::valid(DEFAULT_RELATION.get()) {
        return Ok(known);
    }
    let found = catalog::default_relation();
    NO_DEFAULT.set(found.is_none());
    let found = found.ok_or_else(error::no_default_generator)?;
    DEFAULT_RELATION.set(found);
    Ok(found)
}
