//! A lease: of the server's worker ID, or of one of a generator that leases worker IDs of its
//! own. [`snowflake_core::lease::node`] says what to ask and what follows; a lease gives its
//! [`Node`] the clocks, and publishes in its place in shared memory ([`LeaseSlot`]) what may be
//! issued ([`snowflake_core::tenure`]).
//!
//! | | the server | a generator |
//! |---|---|---|
//! | which worker ID | the one of the settings, or else any | any whose floor is near ([`FloorPolicy::Soon`]) |
//! | what is closed | all slots | its slot |
//! | it is told | who else claims its worker ID | |
//! | after a clock rollback | | a candidate asks for another worker ID |
//!
//! # In which order things are stored
//!
//! - The number of a request, and all else of the node, before the request is sent. A
//!   candidate and a release need nothing stored: another keeper does not take them over.
//! - What a reply brings, and the tenure that follows, under one lock.
//! - For a release: the tenure is closed, then the slots, then the end is computed.
//!
//! # A clock rollback of a generator
//!
//! A session tells that the worker ID is used up for the time that the clock shows. Then a
//! second node of the generator, the **candidate**, asks for a worker ID whose floor has
//! passed. The first node keeps its own meanwhile: if the clock is corrected, or no session
//! asks again, the generator keeps it. When the candidate is granted one, in this order:
//!
//! 1. the generator's tenure is closed, then its slot, and the end of the old worker ID is
//!    computed, as for a release of the server's;
//! 2. the candidate takes the place of the first node, and its grant becomes the generator's
//!    tenure;
//! 3. the first node returns the old worker ID with that end. If that fails, the lease
//!    expires, and the worker ID is free from its bound on.
//!
//! A keeper that ends leaves the first node for the next keeper, and forgets the candidate,
//! whose worker ID is free when its lease has expired.

use std::ffi::CStr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use pgrx::pg_sys;

use super::super::encoding::from_server;
use super::super::error::client::ReplyWait;
use super::super::error::keeper::{LeaseTexts, etcd_grown, reason, remedy};
use super::super::lease_state::{
    Blocked, KeptLease, LeaseSlot, LeaseState, SERVER, Short, Shown, ShownFailure,
};
use super::super::shmem::{Shared, SlotKey};
use super::super::{guc, os_clock, server_key, start_file};
use super::target::Target;
use snowflake_core::clock::Reading;
use snowflake_core::id::{BootNanos, Millis, NANOS_PER_MILLI, UnixMillis, WorkerId};
use snowflake_core::lease::node::{
    Change, FloorPolicy, HeldLease, LeaseError, LeaseFailure, Next, Node, NodeInput,
};
use snowflake_core::lease::{
    Answer, FloorCause, Holder, Nonce, RegistryError, Reply, Request, ServerKey, Terms,
};
use snowflake_core::slot::Slot;

/// How long the keeper waits for a reply: a third of a lease, within these limits. In the least one,
/// a connection and a request go over a line on which each reply is late by 150 ms. In the greatest
/// one, so that the next try is soon, however long the lease.
const REPLY_WAIT_MIN: Millis = Millis::new(1000);
const REPLY_WAIT_MAX: Millis = Millis::new(5000);

/// How long a need counts after a caller has told it; one that still waits tells it again.
/// So a need that the registry does not meet ends with its caller.
const NEED_LASTS: Duration = Duration::from_secs(3);

/// What became of a request.
pub struct Outcome {
    /// The error is a sentence, or several.
    pub reply: Result<Reply, String>,
    /// Which host has replied, if there are several, and what others have said: a sentence, or
    /// several.
    pub from: String,
    /// Why etcd takes no writes, or soon will not: a sentence, or nothing. `None`: not known.
    pub grown: Option<String>,
}

impl Outcome {
    pub const fn failed(why: String) -> Self {
        Self {
            reply: Err(why),
            from: String::new(),
            grown: None,
        }
    }
}

/// Why a lease ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server stops.
    Stop,
    /// The settings name another registry or pool.
    OtherRegistry,
    /// The settings no longer name a [`Target`].
    NoRegistry,
}

/// An instant past which a caller needs a bound.
struct Needed {
    instant: UnixMillis,
    told: Instant,
}

/// A node that asks for another worker ID.
struct Candidate {
    node: Node,
    /// When a session has told last that it needs one.
    told: Instant,
    /// Both clocks then.
    reading: Reading,
}

/// See the head of the file.
pub struct Lease {
    slot: &'static LeaseSlot,
    target: Rc<Target>,
    texts: Rc<LeaseTexts>,
    /// `None`: the server.
    generator: Option<SlotKey>,
    node: Node,
    candidate: Option<Candidate>,
    /// The latest instant that a caller needs, until the bound is past it, or no session
    /// tells it again.
    needed: Option<Needed>,
}

/// A worker ID on its way back.
pub struct Release {
    pub node: Node,
    texts: Rc<LeaseTexts>,
    right: HeldLease,
    end: UnixMillis,
    /// Until it is sent.
    pub request: Option<Request>,
}

impl Lease {
    /// Begins with this registry, or continues where another keeper ended.
    pub fn new(slot: &'static LeaseSlot, target: &Rc<Target>, shared: &Shared) -> Self {
        let (hash, key) = (target.hash(), slot.key());
        let generator = (key != SERVER).then(|| SlotKey::from_bits(key));
        let (kept, name) = shared.with_lease(slot, |_, state| {
            let kept = state.link.clone().filter(|kept| kept.target == hash);
            // The other keeper may have ended while it closed.
            let is_good = |kept: &KeptLease| kept.node.right().is_none() || state.is_in_force();
            (kept.filter(is_good), state.name)
        });
        let fixed = guc::worker_id().filter(|_| generator.is_none());
        let node = match kept {
            Some(kept) => Node::resumed(holder(kept.started, generator), fixed, kept.node),
            None => Node::new(holder(os_clock::boot(), generator), nonce(), fixed, None),
        };
        let is_resumed = node.latest_number() > 0;
        let floor_policy = generator.map_or(FloorPolicy::Any, |_| FloorPolicy::Soon);
        let texts = LeaseTexts {
            generator: generator.map(|_| name.get()),
            registry: target.described(),
            from: String::new(),
            pool: target.pool.clone(),
        };
        let lease = Self {
            slot,
            target: Rc::clone(target),
            texts: Rc::new(texts),
            generator,
            node: node.reaching(floor_policy),
            candidate: None,
            needed: None,
        };
        if let Some(key) = generator.filter(|_| !is_resumed) {
            let _ = shared.with_slot(key, Slot::start_rotations_at_mark);
        }
        let kept = lease.kept();
        let LeaseTexts { registry, pool, .. } = &*lease.texts;
        shared.with_lease(slot, |_, state| {
            let tenure = state.tenure;
            if !is_resumed {
                // A grant of which nothing is known any more, or a server without a worker
                // ID of its own.
                if tenure.not_after.is_some() == tenure.generation.worker().is_some() {
                    state.tenure = tenure.closed();
                }
                state.shown = Shown::default();
            }
            if state.tenure.generation.worker().is_none() {
                state.shown.waits_since = Some(os_clock::boot());
            }
            state.blocked = None;
            state.shown.registry = Short::new(registry);
            state.shown.pool = Short::new(pool);
            state.link = Some(kept);
        });
        lease
    }

    /// Whether this is the lease of a place.
    pub fn is_of(&self, slot: &LeaseSlot) -> bool {
        std::ptr::eq(self.slot, slot)
    }

    /// Whether the node or the candidate has this nonce.
    pub fn has_nonce(&self, nonce: Nonce) -> bool {
        let candidate = self.candidate.as_ref();
        self.node.nonce() == nonce || candidate.is_some_and(|it| it.node.nonce() == nonce)
    }

    fn kept(&self) -> KeptLease {
        KeptLease {
            target: self.target.hash(),
            started: self.node.started(),
            node: self.node.kept(),
        }
    }

    fn moment(&self, shared: &Shared) -> NodeInput {
        // Before the clocks: what is issued from here on is not told.
        let furthest = match self.generator {
            None => shared.furthest(),
            Some(key) => shared.with_slot(key, Slot::furthest_in_rotation).flatten(),
        };
        let needed = self.needed.as_ref().map(|needed| needed.instant);
        moment(furthest.max(needed))
    }

    /// Takes what sessions need, and forgets what no session tells again.
    pub fn hear_sessions(&mut self, shared: &Shared) {
        // A session has closed the tenure of a generator, as CREATE DATABASE does with those
        // of a dropped database whose OID it uses again ([`Shared::forget`]). Then the generator
        // gets a worker ID anew: the same one, from its bound on.
        let is_closed = !shared.with_lease(self.slot, |_, state| state.is_in_force());
        if is_closed && self.node.right().is_some() {
            *self = Self::new(self.slot, &self.target, shared);
        }
        let now = Instant::now();
        let is_old = |told: Instant| now.duration_since(told) >= NEED_LASTS;
        if self.needed.take_if(|it| is_old(it.told)).is_some() {
            self.node.need_no_more();
        }
        self.know_need();
        if let Some(instant) = self.slot.take_need() {
            self.node.need(instant);
            if self.needed.as_ref().is_none_or(|it| instant >= it.instant) {
                self.needed = Some(Needed { instant, told: now });
            }
            self.know_need();
        }
        let present = self.slot.generation();
        let is_asked = self.slot.take_used() == Some(present) && present.worker().is_some();
        // A session that still needs one after a step of the clock tells it again.
        let reading = os_clock::read();
        let is_over = |it: &mut Candidate| {
            let is_stepped = reading.stepped_since(it.reading) != Millis::ZERO;
            is_stepped || (!is_asked && is_old(it.told))
        };
        if self.candidate.take_if(is_over).is_some() {
            shared.with_lease(self.slot, |_, state| state.blocked = None);
        }
        if is_asked {
            let generator = self.generator;
            let candidate = self.candidate.get_or_insert_with(|| {
                let node = Node::new(holder(os_clock::boot(), generator), nonce(), None, None);
                let node = node.reaching(FloorPolicy::Passed);
                Candidate {
                    node,
                    told: now,
                    reading,
                }
            });
            (candidate.told, candidate.reading) = (now, reading);
        }
    }

    fn know_need(&self) {
        let needed = self.needed.as_ref();
        self.slot.know_need(needed.map(|needed| needed.instant));
    }

    /// The request that is due, if one is; else for how many milliseconds to wait.
    pub fn due(&mut self, shared: &Shared) -> Result<Request, Option<i64>> {
        let now = self.moment(shared);
        let mut wait = None;
        if let Some(candidate) = &mut self.candidate {
            match candidate.node.next(&now) {
                Next::Send(request) => return Ok(*request),
                Next::Sleep(nanos) => wait = Some(millis_of(nanos.get())),
                Next::Await => {}
            }
        }
        match self.node.next(&now) {
            Next::Send(request) => {
                let kept = self.kept();
                shared.with_lease(self.slot, |_, state| state.link = Some(kept));
                Ok(*request)
            }
            Next::Sleep(nanos) => {
                let millis = millis_of(nanos.get());
                Err(Some(wait.map_or(millis, |wait| wait.min(millis))))
            }
            Next::Await => Err(wait),
        }
    }

    /// How long to wait for a reply.
    pub fn reply_wait(&self) -> ReplyWait {
        reply_wait(self.node.terms())
    }

    /// Takes what became of a request of the node, or of the candidate. Returns the worker ID
    /// that the generator returns, if the candidate has another one.
    pub fn take(
        &mut self,
        shared: &Shared,
        (nonce, number): (Nonce, u64),
        outcome: &Outcome,
    ) -> Option<Release> {
        let now = self.moment(shared);
        if self.texts.from != outcome.from {
            let from = outcome.from.clone();
            self.texts = Rc::new(LeaseTexts {
                from,
                ..LeaseTexts::clone(&self.texts)
            });
        }
        if let Some(grown) = &outcome.grown {
            self.tell_of_growth(shared, grown);
        }
        let outcome = &outcome.reply;
        if self.node.nonce() == nonce {
            let change = hear(&mut self.node, number, outcome, &now);
            self.apply(shared, &change, outcome.as_ref().ok());
            let is_reply = outcome.is_ok() && self.generator.is_none();
            return match is_reply && self.node.has_surplus(&now) {
                true => self.return_lead(shared),
                false => None,
            };
        }
        let mut candidate = self.candidate.take_if(|it| it.node.nonce() == nonce)?;
        match (hear(&mut candidate.node, number, outcome, &now), outcome) {
            (Change::Acquired { reached, .. }, Ok(reply)) => {
                return self.change_over(shared, candidate.node, reply, reached);
            }
            (Change::Copied, _) => return None,
            (Change::Failed(failure), _) => {
                let right = self.node.right();
                let right = (right.as_ref(), false);
                let texts = &self.texts;
                texts
                    .troubled(right, None, None, &failure, now.clock)
                    .warning();
            }
            _ => {}
        }
        if let Some(failure) = candidate.node.failure() {
            let reading = os_clock::read();
            let obstacle = obstacle_of(failure, &self.texts.from, reading);
            let blocked = Blocked { obstacle, reading };
            shared.with_lease(self.slot, |_, state| state.blocked = Some(blocked));
            shared.tell_waiters();
        }
        self.candidate = Some(candidate);
        None
    }

    /// The candidate has a worker ID: the generator continues with that one.
    fn change_over(
        &mut self,
        shared: &Shared,
        candidate: Node,
        reply: &Reply,
        reached: UnixMillis,
    ) -> Option<Release> {
        let (now, end) = (self.moment(shared), self.close(shared));
        let node = std::mem::replace(&mut self.node, candidate.reaching(FloorPolicy::Soon));
        let before = node.right().map(|right| right.worker);
        shared.with_lease(self.slot, |_, state| state.blocked = None);
        let because = match &reply.answer {
            Answer::Granted(grant) => grant.because,
            _ => FloorCause::Used,
        };
        let change = Change::Acquired {
            before,
            reached,
            because,
        };
        self.apply(shared, &change, Some(reply));
        self.release(node, end, &now)
    }

    /// The server has a lead that it does not use: it returns its worker ID, and asks anew.
    fn return_lead(&mut self, shared: &Shared) -> Option<Release> {
        let end = self.close(shared);
        let release = self.releases(shared, end).pop();
        shared.with_lease(self.slot, |_, state| state.link = None);
        *self = Self::new(self.slot, &self.target, shared);
        release
    }

    /// Publishes what the node has come to, and tells the log.
    fn apply(&mut self, shared: &Shared, change: &Change, reply: Option<&Reply>) {
        let reading = os_clock::read();
        let now = reading.wall.millis();
        let right = self.node.right();
        self.needed
            .take_if(|needed| right.is_some_and(|right| right.not_after > needed.instant));
        self.know_need();
        let max_ahead = self.node.terms().map(|terms| terms.max_ahead);
        let until = reply.and_then(|reply| match &reply.answer {
            Answer::Granted(grant) => Some(grant.until),
            Answer::Renewed { until, .. } => Some(*until),
            _ => None,
        });
        let (kept, nonce) = (self.kept(), self.node.nonce());
        let from = &self.texts.from;
        let obstacle = self.node.failure().map(|it| obstacle_of(it, from, reading));
        let is_held = obstacle.as_ref().is_some_and(|it| it.held.is_some());
        // The worker ID of the settings, for which the server has no claim.
        let mut unclaimed = None;
        shared.with_lease(self.slot, |_, state| {
            let (tenure, is_in_force) = (state.tenure, state.is_in_force());
            let shown = &mut state.shown;
            if let (Some(right), Some(max_ahead)) = (right, max_ahead) {
                if let Change::Acquired {
                    reached, because, ..
                } = change
                {
                    let (worker, floor) = (right.worker, right.not_before);
                    let granted =
                        tenure.granted(worker, floor, right.not_after, *reached, max_ahead);
                    state.tenure = granted;
                    state.granted = granted.generation;
                    shown.since = Some(now);
                    shown.because = (right.not_before > now).then_some(*because);
                    shown.waits_since = None;
                } else if is_in_force {
                    state.tenure = tenure.renewed(right.not_after);
                }
                shown.counter = right.counter;
                shown.nonce = Some(nonce);
            }
            if tenure.not_after.is_none() && right.is_none() {
                unclaimed = tenure.generation.worker();
            }
            shown.leased_until = until.or(shown.leased_until);
            if reply.is_some() {
                shown.last_contact = Some(now);
            }
            let began = shown.failure.as_ref().map(|before| before.began);
            shown.failure = obstacle.map(|obstacle| ShownFailure {
                began: began.unwrap_or(obstacle.began),
                ..obstacle
            });
            state.link = Some(kept);
        });
        if is_held && unclaimed.take().is_some() {
            let _ = self.close(shared);
            let waits_since = Some(reading.boot);
            shared.with_lease(self.slot, |_, state| state.shown.waits_since = waits_since);
        }
        self.log_change(change, unclaimed, now);
        if *change == Change::Copied {
            let _ = self.close(shared);
            shared.with_lease(self.slot, |_, state| state.link = None);
            *self = Self::new(self.slot, &self.target, shared);
        }
    }

    /// One line in the log for each change.
    fn log_change(&self, change: &Change, unclaimed: Option<WorkerId>, now: UnixMillis) {
        let right = self.node.right();
        let (right, texts) = (right.as_ref(), &self.texts);
        match change {
            Change::Nothing | Change::Returned => {}
            Change::Acquired {
                before, because, ..
            } => {
                if let Some(right) = right {
                    texts.log_acquired(right, self.node.terms(), (*before, *because), now);
                }
            }
            Change::Resumed(failure) => texts.resumed(right, failure, now).log(""),
            Change::Lost(failure) => {
                if let Some(right) = right {
                    texts.lost(right, failure, true).warning();
                }
            }
            Change::Failed(failure) => {
                let fixed = guc::worker_id().filter(|_| self.generator.is_none());
                let right = (right, self.node.holds());
                let warning = texts.troubled(right, fixed, unclaimed, failure, now);
                warning.warning();
            }
            Change::Copied => texts.copied().warning(),
        }
    }

    /// Tells the log once that the database of etcd is too large. The server's lease does.
    fn tell_of_growth(&self, shared: &Shared, grown: &str) {
        if self.generator.is_some() {
            return;
        }
        let new = Short::new(grown);
        let before = shared.with_lease(self.slot, |_, state| {
            std::mem::replace(&mut state.shown.grown, new)
        });
        if new != Short::default() && before == Short::default() {
            etcd_grown(grown).warning();
        }
    }

    /// Nothing is issued under the tenure from here on. Returns where its IDs end: at the
    /// bound, if the slot of a generator does not know that, as after DROP or a new label.
    fn close(&self, shared: &Shared) -> UnixMillis {
        let before = shared.with_lease(self.slot, |_, state| {
            let before = state.tenure;
            state.tenure = before.closed();
            before
        });
        let Some(key) = self.generator else {
            let slots = shared.close_slots();
            return before.end(slots, os_clock::wall().millis());
        };
        let close = |slot: &Slot| slot.close_rotation(before.generation);
        let slot = shared.with_slot(key, close).flatten();
        before.end_of_rotation(slot, os_clock::wall().millis())
    }

    /// Has a node return what it has, which was closed.
    fn release(&self, mut node: Node, end: UnixMillis, now: &NodeInput) -> Option<Release> {
        let right = node.right()?;
        let end = end.max(right.not_before);
        let request = Some(node.close(end, now)?);
        let texts = Rc::clone(&self.texts);
        Some(Release {
            node,
            texts,
            right,
            end,
            request,
        })
    }

    /// The lease ends: closes. Returns where the IDs end. A worker ID of the settings that is
    /// not claimed yet stays in use, unless the server stops. Without a registry from now on,
    /// the server continues with the worker ID of its settings at once, if there is one.
    pub fn stop(&self, shared: &Shared, why: End) -> UnixMillis {
        let is_in_force = shared.with_lease(self.slot, |_, state| state.is_in_force());
        let is_granted = is_in_force && self.node.right().is_some();
        let end = if is_granted || why == End::Stop {
            self.close(shared)
        } else {
            let now = self.moment(shared);
            now.clock.max(now.furthest)
        };
        shared.with_lease(self.slot, |_, state| {
            // Another keeper begins anew.
            state.link = None;
            state.blocked = None;
            if why == End::NoRegistry && self.generator.is_none() {
                leave_registry(state);
            }
        });
        end
    }

    /// Takes what became of the last request after [`Self::stop`]: nothing of it is
    /// published.
    pub fn take_last(
        &mut self,
        shared: &Shared,
        (nonce, number): (Nonce, u64),
        Outcome { reply: outcome, .. }: &Outcome,
    ) {
        let now = self.moment(shared);
        let candidate = self.candidate.as_mut().map(|candidate| &mut candidate.node);
        let nodes = [Some(&mut self.node), candidate].into_iter().flatten();
        for node in nodes.filter(|node| node.nonce() == nonce) {
            let change = hear(node, number, outcome, &now);
            match (change, node.right()) {
                (Change::Copied, _) => self.texts.copied().warning(),
                (Change::Lost(failure), Some(right)) => {
                    self.texts.lost(&right, &failure, false).warning();
                }
                _ => {}
            }
        }
    }

    /// What there is to return after [`Self::stop`].
    pub fn releases(&mut self, shared: &Shared, end: UnixMillis) -> Vec<Release> {
        let now = self.moment(shared);
        let candidate = self.candidate.take().map(|candidate| candidate.node);
        let nodes = [Some(self.node.clone()), candidate].into_iter().flatten();
        let releases = nodes.filter_map(|node| self.release(node, end, &now));
        releases.collect()
    }

    /// The server stops, and its registry with it: the worker ID is not returned.
    pub fn keep(&self) {
        if let Some(right) = self.node.right() {
            self.texts.kept(right.worker).log("");
        }
    }
}

impl Release {
    /// How long to wait for a reply.
    pub fn reply_wait(&self) -> ReplyWait {
        reply_wait(self.node.terms())
    }

    /// Tells the log what became of the request; `None` if no reply came in time.
    pub fn log_change(mut self, outcome: Option<Outcome>) {
        let (texts, right) = (self.texts, self.right);
        let why = match outcome.map(|outcome| outcome.reply) {
            None => None,
            Some(Err(why)) => Some(why),
            Some(Ok(reply)) => match self.node.on_reply(&reply, &moment(None)) {
                Change::Returned => return texts.returned(right.worker, self.end).log(""),
                Change::Lost(failure) => return texts.lost(&right, &failure, false).warning(),
                Change::Copied => return texts.copied().warning(),
                _ => self.node.failure().map(|failure| reason(&failure.why)),
            },
        };
        let why = why.unwrap_or_else(|| "The registry did not confirm it in time.".to_string());
        texts.not_returned(right.worker, &why).warning();
    }
}

/// Without a registry the server has the worker ID of its settings, at once.
pub fn leave_registry(state: &mut LeaseState) {
    let mut tenure = state.tenure;
    let since = state.shown.since.filter(|_| tenure.not_after.is_none());
    if tenure.not_after.is_some() {
        tenure = tenure.unregistered(guc::worker_id());
    }
    *state = LeaseState::new(tenure, since.or_else(|| Some(os_clock::wall().millis())));
}

/// Tells a node what became of its request.
fn hear(node: &mut Node, number: u64, outcome: &Result<Reply, String>, now: &NodeInput) -> Change {
    match outcome {
        Ok(reply) => node.on_reply(reply, now),
        Err(why) => node.failed(number, why.clone(), now),
    }
}

fn nonce() -> Nonce {
    let mut random = [0; size_of::<u128>()];
    // SAFETY: as many bytes as there are.
    let filled = unsafe {
        pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len() as pg_sys::Size)
    };
    if !filled {
        pgrx::error!("snowflake_id: could not generate a random nonce");
    }
    Nonce(u128::from_ne_bytes(random))
}

/// Why the registry does not give what a node asks for.
fn obstacle_of(failure: &LeaseFailure, from: &str, now: Reading) -> ShownFailure {
    ShownFailure {
        since: failure.since,
        began: now.boot,
        held: match &failure.why {
            LeaseError::Refused(RegistryError::Held { worker, .. }) => Some(*worker),
            _ => None,
        },
        is_unreachable: matches!(failure.why, LeaseError::Unreachable(_)),
        text: Short::new(&reason(&failure.why)),
        from: Short::new(from),
        remedy: Short::new(remedy(&failure.why)),
    }
}

fn reply_wait(terms: Option<&Terms>) -> ReplyWait {
    let third = terms.map_or(REPLY_WAIT_MAX, |terms| Millis::new(terms.lease.get() / 3));
    let time = third.clamp(REPLY_WAIT_MIN, REPLY_WAIT_MAX);
    ReplyWait {
        time,
        is_third: terms.is_some() && time == third,
    }
}

/// Milliseconds, rounded up.
fn millis_of(nanos: i64) -> i64 {
    (nanos / NANOS_PER_MILLI + 1).max(1)
}

/// This server, or a generator of it, for the registry.
fn holder(started: BootNanos, generator: Option<SlotKey>) -> Holder {
    // SAFETY: settings of the server; the directory is NUL-terminated.
    let (port, directory) = unsafe {
        let directory = CStr::from_ptr(pg_sys::DataDir);
        (pg_sys::PostPortNumber, from_server(directory))
    };
    Holder {
        identity: ServerKey {
            generator: generator.map_or(0, SlotKey::bits),
            ..server_key::server_key()
        },
        started,
        host: start_file::host_name(),
        // The registry's server sees it, and fills it in.
        address: String::new(),
        port: u16::try_from(port).unwrap_or_default(),
        data_directory: directory,
    }
}

/// What a node finds around it. `furthest` is of what was issued, or what a caller needs
/// next, from a generator that leads the clock: that is told as if it were used.
fn moment(furthest: Option<UnixMillis>) -> NodeInput {
    NodeInput {
        boot: os_clock::boot(),
        clock: os_clock::wall().millis(),
        furthest: furthest.unwrap_or(UnixMillis::new(0)),
        // SAFETY: reads shared memory.
        in_recovery: unsafe { pg_sys::RecoveryInProgress() },
    }
}
