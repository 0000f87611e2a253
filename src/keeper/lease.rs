//! The lease of the server's worker ID. [`snowflake_core::lease::node`] says what to ask and what
//! follows; a lease gives its [`Node`] the clocks, and publishes in shared memory ([`LeaseSlot`])
//! what may be issued ([`snowflake_core::protocol::tenure`]).
//!
//! # In which order things are stored
//!
//! - The number of a request, and all else of the node, before the request is sent. A release
//!   is not continued by another keeper.
//! - What a reply brings, and the tenure that follows, under one lock.
//! - For a release: the tenure is closed, then the slots, then the end is computed.
//!
//! # A clock rollback
//!
//! A session of a generator with `on_rollback=next_worker` tells that the worker ID is used up for
//! the time that the clock shows. If the clock was set back, the node asks for another worker ID,
//! whose floor has passed. Meanwhile it keeps its own, and renews it: if the clock is corrected, or
//! no session tells again, the server keeps it. When another one is granted, in this order:
//!
//! 1. the tenure is closed, then all slots, and the end of the old worker ID is computed, as for a
//!    release: the greatest of all generators;
//! 2. the grant becomes the new tenure, to which every generator comes by its own policy:
//!    [`snowflake_core::protocol::rotation`] shows that no ID is issued twice;
//! 3. the old worker ID is returned with that end. If that fails, its lease expires, and it is free
//!    from its bound on.

use std::ffi::CStr;
use std::rc::Rc;

use pgrx::pg_sys;

use crate::keeper::error::{LeaseTexts, etcd_grown};
use crate::keeper::{client_error::ReplyWait, target::Target};
use crate::postgres::encoding::from_server;
use crate::server::lease_error::{reason, remedy};
use crate::server::lease_state::{
    KeptLease, LeaseSlot, LeaseState, SearchObstacle, Short, ShownFailure, ShownLease,
};
use crate::server::{guc, os_clock, server_key, shmem::Shared, start_file};
use snowflake_core::id::{BootNanos, Millis, NANOS_PER_MILLI, UnixMillis, WorkerId};
use snowflake_core::lease::node::{
    Change, HeldLease, LeaseError, LeaseFailure, NEED_LASTS, Next, Node, NodeInput,
};
use snowflake_core::lease::{Answer, Holder, Nonce, RegistryError, Reply, Request, Terms};
use snowflake_core::protocol::clock::Reading;

/// How long the keeper waits for a reply: a third of a lease, within these limits. In the least one,
/// a connection and a request go over a line on which each reply is late by 150 ms. In the greatest
/// one, so that the next try is soon, however long the lease.
const REPLY_WAIT_MIN: Millis = Millis::new(1000);
const REPLY_WAIT_MAX: Millis = Millis::new(5000);

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
struct BoundNeed {
    instant: UnixMillis,
    told: BootNanos,
}

/// See the head of the file.
pub struct Lease {
    slot: &'static LeaseSlot,
    target: Rc<Target>,
    texts: Rc<LeaseTexts>,
    node: Node,
    /// The latest instant that a caller needs, until the bound is past it, or no session
    /// tells it again.
    needed: Option<BoundNeed>,
    /// The log has told that the bound was reached.
    has_ended: bool,
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
    pub fn new(target: &Rc<Target>, shared: &'static Shared) -> Self {
        let (slot, hash) = (shared.server(), target.hash());
        let kept = shared.with_lease(|_, state| {
            let kept = state.link.clone().filter(|kept| kept.target == hash);
            // The other keeper may have ended while it closed.
            let is_good = |kept: &KeptLease| kept.node.right().is_none() || state.is_in_force();
            kept.filter(is_good)
        });
        if kept.is_none() {
            shared.start_rotations_at_marks();
        }
        Self::begin(slot, target, kept, shared)
    }

    /// Continues with this registry as a new incarnation, after [`Self::close`].
    fn begin_anew(&mut self, shared: &Shared) {
        *self = Self::begin(self.slot, &self.target, None, shared);
    }

    fn begin(
        slot: &'static LeaseSlot,
        target: &Rc<Target>,
        kept: Option<KeptLease>,
        shared: &Shared,
    ) -> Self {
        let fixed = guc::worker_id();
        let node = match kept {
            Some(kept) => Node::resumed(holder(kept.started), fixed, kept.node),
            None => Node::new(holder(os_clock::boot()), nonce(), fixed, None),
        };
        let is_resumed = node.latest_number() > 0;
        let texts = LeaseTexts {
            registry: target.described(),
            from: String::new(),
            pool: target.pool.clone(),
        };
        let lease = Self {
            slot,
            target: Rc::clone(target),
            texts: Rc::new(texts),
            node,
            needed: None,
            has_ended: false,
        };
        let kept = lease.kept();
        let LeaseTexts { registry, pool, .. } = &*lease.texts;
        shared.with_lease(|_, state| {
            let tenure = state.tenure;
            if !is_resumed {
                // A grant of which nothing is known any more, or a server without a worker
                // ID of its own.
                if tenure.bound.is_some() == tenure.generation.worker().is_some() {
                    state.tenure = tenure.closed();
                }
                state.shown = ShownLease::default();
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

    fn kept(&self) -> KeptLease {
        KeptLease {
            target: self.target.hash(),
            started: self.node.started(),
            node: self.node.kept(),
        }
    }

    fn moment(&self, shared: &Shared) -> NodeInput {
        // Before the clocks: what is issued from here on is not told.
        let furthest = shared.furthest(self.slot.generation());
        let needed = self.needed.as_ref().map(|needed| needed.instant);
        moment(furthest.max(needed))
    }

    /// Takes what sessions need, and forgets what no session tells again.
    pub fn hear_sessions(&mut self) {
        let now = moment(None);
        let is_old = |it: &mut BoundNeed| now.boot.since(it.told) >= NEED_LASTS;
        if self.needed.take_if(is_old).is_some() {
            self.node.need_no_more();
        }
        self.know_need();
        if let Some(instant) = self.slot.take_need() {
            self.node.need(instant);
            if self.needed.as_ref().is_none_or(|it| instant >= it.instant) {
                let told = now.boot;
                self.needed = Some(BoundNeed { instant, told });
            }
            self.know_need();
        }
        let present = self.slot.generation();
        if self.slot.take_used() == Some(present) && present.worker().is_some() {
            self.node.need_another(&now);
        }
    }

    fn know_need(&self) {
        let needed = self.needed.as_ref();
        self.slot.know_need(needed.map(|needed| needed.instant));
    }

    /// The request that is due, if one is; else for how many milliseconds to wait.
    pub fn due(&mut self, shared: &Shared) -> Result<Request, Option<i64>> {
        let now = self.moment(shared);
        let next = self.node.next(&now);
        let kept = self.kept();
        let is_blocked = self.node.search_failure().is_some();
        shared.with_lease(|_, state| {
            state.blocked.take_if(|_| !is_blocked);
            if matches!(next, Next::Send(_)) {
                state.link = Some(kept);
            }
        });
        match next {
            Next::Send(request) => Ok(*request),
            Next::Sleep(nanos) => Err(Some(millis_of(nanos.get()))),
            Next::Await => Err(None),
        }
    }

    /// How long to wait for a reply.
    pub fn reply_wait(&self) -> ReplyWait {
        reply_wait(self.node.terms())
    }

    /// Takes what became of a request. Returns the worker ID that the server returns, if it has
    /// another one.
    pub fn take(&mut self, shared: &Shared, number: u64, outcome: &Outcome) -> Option<Release> {
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
        let before = self.node.clone();
        let change = hear(&mut self.node, number, outcome, &now);
        let searches = before.asks_for_another();
        // In the order of the head of the file.
        let release = match change {
            Change::Acquired { .. } if searches => {
                let end = self.close(shared);
                self.release_before(before, end, &now)
            }
            _ => None,
        };
        self.apply(shared, &change, (outcome.as_ref().ok(), searches));
        self.tell_of_end(now.clock);
        match release {
            None if outcome.is_ok() && self.node.has_surplus(&now) => self.return_lead(shared),
            release => release,
        }
    }

    /// The log tells once that the bound was reached.
    fn tell_of_end(&mut self, now: UnixMillis) {
        let ended = self.node.failure().zip(self.node.right());
        let ended = ended.filter(|(_, right)| right.bound <= now);
        if let Some((failure, right)) = ended.filter(|_| !self.has_ended) {
            self.texts.ended(&right, failure).warning();
        }
        self.has_ended = ended.is_some();
    }

    /// Returns what the node had before the grant that has taken its place.
    fn release_before(
        &mut self,
        mut before: Node,
        end: UnixMillis,
        now: &NodeInput,
    ) -> Option<Release> {
        let right = before.right()?;
        let end = end.max(right.floor);
        let request = Some(before.close_before(&mut self.node, end, now)?);
        Some(Release {
            node: before,
            texts: Rc::clone(&self.texts),
            right,
            end,
            request,
        })
    }

    /// The server has a lead that it does not use: it returns its worker ID, and asks anew.
    fn return_lead(&mut self, shared: &Shared) -> Option<Release> {
        let end = self.close(shared);
        let release = self.release(shared, end);
        self.begin_anew(shared);
        release
    }

    /// Publishes what the node has come to, and tells the log.
    /// `searches`: the request was for another worker ID.
    fn apply(
        &mut self,
        shared: &Shared,
        change: &Change,
        (reply, searches): (Option<&Reply>, bool),
    ) {
        let reading = os_clock::read();
        let now = reading.wall.millis();
        let right = self.node.right();
        self.needed
            .take_if(|needed| right.is_some_and(|right| right.bound > needed.instant));
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
        let blocked = self.node.search_failure().map(|failure| SearchObstacle {
            obstacle: obstacle_of(failure, from, reading),
            reading,
        });
        // The worker ID of the settings, for which the server has no claim.
        let mut unclaimed = None;
        shared.with_lease(|_, state| {
            let (tenure, is_in_force) = (state.tenure, state.is_in_force());
            let shown = &mut state.shown;
            if let (Some(right), Some(max_ahead)) = (right, max_ahead) {
                if let Change::Acquired {
                    reached, because, ..
                } = change
                {
                    let (worker, floor) = (right.worker, right.floor);
                    let granted = tenure.granted(worker, floor, right.bound, *reached, max_ahead);
                    state.tenure = granted;
                    state.granted = granted.generation;
                    shown.since = Some(now);
                    shown.because = (right.floor > now).then_some(*because);
                    shown.waits_since = None;
                } else if is_in_force {
                    state.tenure = tenure.renewed(right.bound);
                }
                shown.counter = right.counter;
                shown.nonce = Some(nonce);
            }
            if tenure.bound.is_none() && right.is_none() {
                unclaimed = tenure.generation.worker();
            }
            shown.leased_until = until.or(shown.leased_until);
            if let Some(reply) = reply {
                shown.last_contact = Some(now);
                shown.clock_ahead = Some(now.since(reply.now.as_nodes_clock()));
            }
            let began = shown.failure.as_ref().map(|before| before.began);
            shown.failure = obstacle.map(|obstacle| ShownFailure {
                began: began.unwrap_or(obstacle.began),
                ..obstacle
            });
            state.link = Some(kept);
            if searches {
                state.blocked = blocked;
            }
        });
        if searches {
            shared.tell_waiters();
        }
        if is_held && unclaimed.take().is_some() {
            let _ = self.close(shared);
            let waits_since = Some(reading.boot);
            shared.with_lease(|_, state| state.shown.waits_since = waits_since);
        }
        self.log_change(change, (unclaimed, searches), now);
        if *change == Change::Copied {
            let _ = self.close(shared);
            self.begin_anew(shared);
        }
    }

    /// One line in the log for each change.
    fn log_change(
        &self,
        change: &Change,
        (unclaimed, searches): (Option<WorkerId>, bool),
        now: UnixMillis,
    ) {
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
                let right = (right, self.node.holds() && !searches);
                let warning = texts.troubled(right, guc::worker_id(), unclaimed, failure, now);
                warning.warning();
            }
            Change::Copied => texts.copied().warning(),
        }
    }

    /// Tells the log once that the database of etcd is too large.
    fn tell_of_growth(&self, shared: &Shared, grown: &str) {
        let new = Short::new(grown);
        let before = shared.with_lease(|_, state| std::mem::replace(&mut state.shown.grown, new));
        if new != Short::default() && before == Short::default() {
            etcd_grown(grown).warning();
        }
    }

    /// Nothing is issued under the tenure from here on. Returns where its IDs end.
    fn close(&self, shared: &Shared) -> UnixMillis {
        let before = shared.with_lease(|_, state| {
            let before = state.tenure;
            state.tenure = before.closed();
            before
        });
        let slots = shared.close_slots();
        before.end(slots, os_clock::wall().millis())
    }

    /// Has the node return what it has, which was closed.
    pub fn release(&mut self, shared: &Shared, end: UnixMillis) -> Option<Release> {
        let now = self.moment(shared);
        self.release_before(self.node.clone(), end, &now)
    }

    /// The lease ends: closes. Returns where the IDs end. A worker ID of the settings that is
    /// not claimed yet stays in use, unless the server stops. Without a registry from now on,
    /// the server continues with the worker ID of its settings at once, if there is one.
    pub fn stop(&self, shared: &Shared, why: End) -> UnixMillis {
        let is_in_force = shared.with_lease(|_, state| state.is_in_force());
        let is_granted = is_in_force && self.node.right().is_some();
        let end = if is_granted || why == End::Stop {
            self.close(shared)
        } else {
            let now = self.moment(shared);
            now.clock.max(now.furthest)
        };
        shared.with_lease(|_, state| {
            // Another keeper begins anew.
            state.link = None;
            state.blocked = None;
            if why == End::NoRegistry {
                leave_registry(state);
            }
        });
        end
    }

    /// Takes what became of the last request after [`Self::stop`], which has returned `end`:
    /// nothing of it is published. Returns as [`Self::take`] does.
    pub fn take_last(
        &mut self,
        shared: &Shared,
        number: u64,
        Outcome { reply: outcome, .. }: &Outcome,
        end: UnixMillis,
    ) -> Option<Release> {
        let now = self.moment(shared);
        let before = self.node.clone();
        let change = hear(&mut self.node, number, outcome, &now);
        match (change, self.node.right()) {
            (Change::Acquired { .. }, _) if before.asks_for_another() => {
                return self.release_before(before, end, &now);
            }
            (Change::Copied, _) => self.texts.copied().warning(),
            (Change::Lost(failure), Some(right)) => {
                self.texts.lost(&right, &failure, false).warning();
            }
            _ => {}
        }
        None
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
    let since = state.shown.since.filter(|_| tenure.bound.is_none());
    if tenure.bound.is_some() {
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
        names_server: matches!(
            failure.why,
            LeaseError::Refused(
                RegistryError::Held { .. }
                    | RegistryError::Fenced { by: Some(_), .. }
                    | RegistryError::Stopped(_)
            )
        ),
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

/// This server, for the registry.
fn holder(started: BootNanos) -> Holder {
    // SAFETY: settings of the server; the directory is NUL-terminated.
    let (port, directory) = unsafe {
        let directory = CStr::from_ptr(pg_sys::DataDir);
        (pg_sys::PostPortNumber, from_server(directory))
    };
    Holder {
        identity: server_key::server_key(),
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
    let reading = os_clock::read();
    NodeInput {
        boot: reading.boot,
        clock: reading.wall.millis(),
        furthest: furthest.unwrap_or(UnixMillis::new(0)),
        // SAFETY: reads shared memory.
        in_recovery: unsafe { pg_sys::RecoveryInProgress() },
    }
}
