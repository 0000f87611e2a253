//! The keeper's part for generators that lease worker IDs of their own, from the pool that
//! `snowflake_id.queue_pool` names.
//!
//! Each such generator ([`super::super::tenants`]) has a [`Node`], as the server has one. One
//! thread serves all of them, one request at a time.
//!
//! # After a clock rollback
//!
//! A session tells that the worker ID is used up for the time that the clock shows. Then a
//! second node of the generator, the **candidate**, asks for a worker ID whose floor has
//! passed. The first node keeps its own meanwhile: if the clock is corrected, or nobody asks
//! any more, the generator goes on with it. When the candidate is granted one, in this order:
//!
//! 1. the generator's identity is closed, then its slot, and the end of the old worker ID is
//!    computed, as for a release of the server's ([`snowflake_core::identity`]);
//! 2. the candidate takes the place of the first node, and its grant becomes the generator's
//!    identity;
//! 3. the first node returns the old worker ID with that end. If that fails, the lease
//!    expires, and the worker ID is free from its bound on.
//!
//! A keeper that ends leaves the first node for the next keeper, and forgets the candidate,
//! whose worker ID is free when its lease has expired.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::error::{client, tenants as told};
use super::super::lease_state::{KeptLink, Short};
use super::super::shmem::{Shared, SlotKey};
use super::super::tenants::{Blocked, Tenant};
use super::super::{compat, identity, os_clock};
use super::{
    LOOKUP_GRACE, NEED_LASTS, Needed, RELEASE_WAIT, Target, holder, nonce, obstacle_of, timeout_of,
};
use snowflake_core::id::{BootNanos, NANOS_PER_MILLI, UnixMillis, WorkerId};
use snowflake_core::lease::node::{Change, Moment, Next, Node, Reach, Trouble};
use snowflake_core::lease::{Answer, Nonce, Reply, Request};
use snowflake_core::slot::Slot;
use snowflake_registry_client::request::{RegistryClient, RequestOutcome};

/// All generators with worker IDs of their own, towards one pool.
pub struct Queue {
    pub target: Target,
    links: Vec<QueueLink>,
    /// What is returned.
    partings: VecDeque<Parting>,
    client: Option<RegistryClient>,
    asked: Option<QueueRequest>,
    /// Whose turn it is to ask.
    turn: usize,
    /// The registry is on this server itself.
    here: Arc<AtomicBool>,
}

/// The request that is under way.
struct QueueRequest {
    nonce: Nonce,
    number: u64,
    until: Instant,
}

/// A node of a generator, with what makes it.
struct Member {
    node: Node,
    nonce: Nonce,
    started: BootNanos,
}

/// A generator.
struct QueueLink {
    tenant: &'static Tenant,
    key: SlotKey,
    name: String,
    member: Member,
    candidate: Option<Candidate>,
    needed: Option<Needed>,
}

/// A node that asks for another worker ID.
struct Candidate {
    member: Member,
    /// When a session has told last that it needs one.
    told: Instant,
}

/// A worker ID on its way back.
struct Parting {
    node: Node,
    nonce: Nonce,
    name: String,
    worker: WorkerId,
    end: UnixMillis,
    request: Option<Request>,
}

impl Member {
    fn new(key: SlotKey, reach: Reach) -> Self {
        let (started, nonce) = (os_clock::boot(), nonce());
        let node = Node::new(holder(started, key.bits()), nonce, None, None);
        Self {
            node: node.reaching(reach),
            nonce,
            started,
        }
    }
}

impl QueueLink {
    /// Begins with this generator, or goes on where another keeper ended.
    fn new(tenant: &'static Tenant, target: &Target, shared: &Shared) -> Self {
        let (hash, key) = (target.hash(), SlotKey::from_bits(tenant.key()));
        let (kept, name) = shared.with_held(tenant, |_, held| {
            let kept = held.state.link.clone().filter(|kept| kept.target == hash);
            let is_in_force = |kept: &KeptLink| {
                kept.node.right().is_none() || held.state.granted == held.identity.generation
            };
            (kept.filter(is_in_force), held.name)
        });
        let is_resumed = kept.is_some();
        let member = match kept {
            Some(kept) => {
                let nonce = kept.node.nonce();
                let me = holder(kept.started, key.bits());
                let node = Node::resumed(me, None, kept.node).reaching(Reach::Soon);
                let started = kept.started;
                Member {
                    node,
                    nonce,
                    started,
                }
            }
            None => Member::new(key, Reach::Soon),
        };
        let (registry, pool) = (target.described(), target.pool.clone());
        if !is_resumed {
            let _ = shared.with_slot(key, Slot::start_turns_at_mark);
        }
        shared.with_held(tenant, |_, held| {
            if !is_resumed {
                held.identity = held.identity.closed();
                held.state.shown.waits_since = Some(os_clock::boot());
                held.state.shown.trouble = None;
            }
            held.blocked = None;
            held.state.shown.registry = Short::new(&registry);
            held.state.shown.pool = Short::new(&pool);
        });
        Self {
            tenant,
            key,
            name: name.get(),
            member,
            candidate: None,
            needed: None,
        }
    }

    fn moment(&self, shared: &Shared) -> Moment {
        // Before the clocks: what is issued from here on is not told.
        let used = shared.with_slot(self.key, Slot::furthest_in_turn).flatten();
        let needed = self.needed.as_ref().map(|needed| needed.instant);
        Moment {
            boot: os_clock::boot(),
            clock: os_clock::wall().millis(),
            furthest: used.max(needed).unwrap_or(UnixMillis::new(0)),
            in_recovery: false,
        }
    }

    /// Takes what sessions need, and forgets what nobody tells any more.
    fn hear_needs(&mut self, shared: &Shared) {
        let now = Instant::now();
        let is_old = |told: Instant| now.duration_since(told) >= NEED_LASTS;
        if self.needed.take_if(|needed| is_old(needed.told)).is_some() {
            self.member.node.need_no_more();
        }
        let known = |needed: &Option<Needed>| needed.as_ref().map(|needed| needed.instant);
        self.tenant.know_need(known(&self.needed));
        if let Some(instant) = self.tenant.take_need() {
            self.member.node.need(instant);
            if self.needed.as_ref().is_none_or(|it| instant >= it.instant) {
                self.needed = Some(Needed { instant, told: now });
            }
            self.tenant.know_need(known(&self.needed));
        }
        let present = self.tenant.generation();
        let is_used = self.tenant.take_used() == Some(present) && present.worker().is_some();
        if is_used {
            // One that was refused does not wait if the clock was stepped since.
            let reading = os_clock::read();
            let blocked = shared.with_held(self.tenant, |_, held| {
                held.blocked.take_if(|blocked| !blocked.holds(reading))
            });
            self.candidate.take_if(|_| blocked.is_some());
            let key = self.key;
            let candidate = self.candidate.get_or_insert_with(|| Candidate {
                member: Member::new(key, Reach::Passed),
                told: now,
            });
            candidate.told = now;
        } else if self.candidate.take_if(|it| is_old(it.told)).is_some() {
            shared.with_held(self.tenant, |_, held| held.blocked = None);
        }
    }

    /// Publishes what the node has come to, and tells the log.
    fn follow(&mut self, shared: &Shared, change: &Change, reply: Option<&Reply>, pool: &str) {
        let (now, boot) = (os_clock::wall().millis(), os_clock::boot());
        let node = &self.member.node;
        let (right, max_ahead) = (node.right(), node.terms().map(|terms| terms.max_ahead));
        self.needed
            .take_if(|needed| right.is_some_and(|right| right.bound > needed.instant));
        let known = self.needed.as_ref().map(|needed| needed.instant);
        self.tenant.know_need(known);
        let trouble = node.trouble().map(|trouble| obstacle_of(trouble, boot));
        let kept = kept(&self.member, reply.is_some(), shared, self.tenant);
        shared.with_held(self.tenant, |_, held| {
            let (identity, state) = (held.identity, &mut held.state);
            if let (Some(right), Some(max_ahead)) = (right, max_ahead) {
                if let Change::Acquired { reached, .. } = change {
                    let (worker, floor) = (right.worker, right.floor);
                    let granted = identity.granted(worker, floor, right.bound, *reached, max_ahead);
                    held.identity = granted;
                    state.granted = granted.generation;
                    state.shown.since = Some(now);
                    state.shown.waits_since = None;
                } else if state.granted == identity.generation {
                    held.identity = identity.renewed(right.bound);
                }
            }
            if let Some(Answer::Granted(_) | Answer::Renewed { .. }) =
                reply.map(|reply| &reply.answer)
            {
                state.shown.last_contact = Some(now);
            }
            let began = state.shown.trouble.as_ref().map(|before| before.began);
            state.shown.trouble = trouble.map(|mut trouble| {
                trouble.began = began.unwrap_or(boot);
                trouble
            });
            if let Some(kept) = kept {
                state.link = Some(kept);
            }
        });
        let name = self.name.as_str();
        match change {
            Change::Nothing | Change::Returned | Change::Copied => {}
            Change::Acquired { before, .. } => {
                if let Some(right) = &right {
                    told::acquired(name, pool, right, *before, now).log("");
                }
            }
            Change::Resumed(trouble) => {
                told::resumed(name, right.as_ref(), trouble, now).log("");
            }
            Change::Lost(trouble) => {
                if let Some(right) = &right {
                    told::lost(name, right, trouble).warning();
                }
            }
            Change::Troubled(trouble) => told::troubled(name, pool, trouble).warning(),
        }
        if *change == Change::Copied {
            let _ = self.close(shared);
            self.member = Member::new(self.key, Reach::Soon);
        }
    }

    /// The generator issues nothing from here on. Returns where its IDs end: at the bound,
    /// if its slot does not know that, as after DROP or a new label.
    fn close(&self, shared: &Shared) -> UnixMillis {
        let before = shared.with_held(self.tenant, |_, held| {
            let before = held.identity;
            held.identity = before.closed();
            before
        });
        let close = |slot: &Slot| slot.close_turn(before.generation);
        let end = shared.with_slot(self.key, close).flatten();
        before.end_of_turn(end, os_clock::wall().millis())
    }

    /// A session has closed the generator's identity, as CREATE DATABASE does with those of
    /// a dropped database whose OID it uses again ([`Shared::forget`]). Then the generator
    /// gets a worker ID anew: the same one, from its bound on.
    fn begin_anew_if_closed(&mut self, shared: &Shared) {
        let is_closed = shared.with_held(self.tenant, |_, held| {
            held.state.granted != held.identity.generation
        });
        if is_closed && self.member.node.right().is_some() {
            self.member = Member::new(self.key, Reach::Soon);
            self.candidate = None;
        }
    }

    /// Closes, and has the node return what it has.
    fn part(&mut self, shared: &Shared) -> Option<Parting> {
        let (now, end) = (self.moment(shared), self.close(shared));
        let right = self.member.node.right()?;
        let end = end.max(right.floor);
        let request = self.member.node.close(end, &now)?;
        Some(Parting {
            node: self.member.node.clone(),
            nonce: self.member.nonce,
            name: self.name.clone(),
            worker: right.worker,
            end,
            request: Some(request),
        })
    }

    /// The candidate has a worker ID: the generator goes on with that one.
    fn change_over(
        &mut self,
        shared: &Shared,
        reply: &Reply,
        reached: UnixMillis,
        pool: &str,
    ) -> Option<Parting> {
        let candidate = self.candidate.take()?;
        let before = self.member.node.right().map(|right| right.worker);
        let parting = self.part(shared);
        self.member = candidate.member;
        self.member.node = self.member.node.clone().reaching(Reach::Soon);
        shared.with_held(self.tenant, |_, held| held.blocked = None);
        let change = Change::Acquired { before, reached };
        self.follow(shared, &change, Some(reply), pool);
        parting
    }

    /// The candidate has heard, or has not.
    fn follow_candidate(&mut self, shared: &Shared, change: &Change, pool: &str) {
        match change {
            Change::Copied => self.candidate = None,
            Change::Troubled(trouble) => {
                self.block(shared, trouble);
                told::troubled(&self.name, pool, trouble).warning();
            }
            _ => {
                let trouble = self
                    .candidate
                    .as_ref()
                    .and_then(|it| it.member.node.trouble());
                if let Some(trouble) = trouble.cloned() {
                    self.block(shared, &trouble);
                }
            }
        }
    }

    fn block(&self, shared: &Shared, trouble: &Trouble) {
        let reading = os_clock::read();
        let obstacle = obstacle_of(trouble, reading.boot);
        let blocked = Blocked { obstacle, reading };
        shared.with_held(self.tenant, |_, held| held.blocked = Some(blocked));
        shared.tell_waiters();
    }
}

/// What another keeper needs to go on with a node, with the target of before: it is stored
/// with each request.
fn kept(member: &Member, has_heard: bool, shared: &Shared, tenant: &Tenant) -> Option<KeptLink> {
    let target = shared.with_held(tenant, |_, held| {
        held.state.link.as_ref().map(|kept| kept.target)
    })?;
    has_heard.then(|| KeptLink {
        target,
        started: member.started,
        node: member.node.kept(),
    })
}

/// Who asks.
enum Asker {
    Member(usize),
    Candidate(usize),
    Parting(usize),
}

impl Queue {
    pub fn new(target: Target) -> Self {
        Self {
            target,
            links: Vec::new(),
            partings: VecDeque::new(),
            client: None,
            asked: None,
            turn: 0,
            here: Arc::default(),
        }
    }

    /// Does all that can be done now. Returns what to wait for: a socket, and for how many
    /// milliseconds; without an end if there are none.
    pub fn round(&mut self, shared: &Shared) -> (Option<c_int>, Option<i64>) {
        for tenant in shared.tenants() {
            let is_known = |link: &QueueLink| std::ptr::eq(link.tenant, tenant);
            if tenant.key() != 0 && !self.links.iter().any(is_known) {
                self.links
                    .push(QueueLink::new(tenant, &self.target, shared));
            }
        }
        for link in &mut self.links {
            link.begin_anew_if_closed(shared);
            link.hear_needs(shared);
        }
        self.listen(shared);
        let millis = self.go_on(shared);
        let socket = self.client.as_ref().filter(|_| self.asked.is_some());
        (socket.map(RegistryClient::socket), millis)
    }

    pub fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }

    /// Lets go of the connection, for a smart stop.
    pub fn disconnect(&mut self) {
        self.client = None;
        self.asked = None;
    }

    /// Whose request has this nonce.
    fn asker(&self, nonce: Nonce) -> Option<Asker> {
        let is_candidate = |link: &QueueLink| {
            let candidate = link.candidate.as_ref();
            candidate.is_some_and(|candidate| candidate.member.nonce == nonce)
        };
        let parting = self.partings.iter().position(|it| it.nonce == nonce);
        let member = self.links.iter().position(|it| it.member.nonce == nonce);
        let candidate = self.links.iter().position(is_candidate);
        let member = member.map(Asker::Member);
        let of_link = member.or(candidate.map(Asker::Candidate));
        parting.map(Asker::Parting).or(of_link)
    }

    /// Takes what the thread has brought, and gives up what it has not.
    fn listen(&mut self, shared: &Shared) {
        while let Some(RequestOutcome { number, reply }) =
            self.client.as_mut().and_then(RegistryClient::take)
        {
            let Some(asked) = self.asked.take_if(|asked| asked.number == number) else {
                continue;
            };
            let is_mine = |reply: &Reply| (reply.nonce, reply.number) == (asked.nonce, number);
            match reply {
                Ok(reply) if is_mine(&reply) => self.heard(shared, &asked, &reply),
                Ok(_) => {
                    let why = "The reply of the registry answers another request.";
                    self.failed(shared, &asked, why.to_string());
                }
                Err(why) => {
                    let why = client::sentence(&why, &self.target.pool);
                    self.failed(shared, &asked, why);
                }
            }
        }
        if self.client.take_if(|client| client.has_ended()).is_some()
            && let Some(asked) = self.asked.take()
        {
            let why = "The thread that asks the registry has ended.";
            self.failed(shared, &asked, why.to_string());
        }
        let is_late = |asked: &mut QueueRequest| Instant::now() >= asked.until;
        if let Some(asked) = self.asked.take_if(is_late) {
            self.client = None;
            let why = "The registry did not answer in time; the look-up of its host name may hang.";
            self.failed(shared, &asked, why.to_string());
        }
    }

    fn heard(&mut self, shared: &Shared, asked: &QueueRequest, reply: &Reply) {
        let pool = self.target.pool.as_str();
        match self.asker(asked.nonce) {
            Some(Asker::Member(at)) => {
                let Some(link) = self.links.get_mut(at) else {
                    return;
                };
                let now = link.moment(shared);
                let change = link.member.node.heard(reply, &now);
                link.follow(shared, &change, Some(reply), pool);
            }
            Some(Asker::Candidate(at)) => {
                let Some(link) = self.links.get_mut(at) else {
                    return;
                };
                let now = link.moment(shared);
                let Some(candidate) = &mut link.candidate else {
                    return;
                };
                match candidate.member.node.heard(reply, &now) {
                    Change::Acquired { reached, .. } => {
                        let parting = link.change_over(shared, reply, reached, pool);
                        self.partings.extend(parting);
                    }
                    change => link.follow_candidate(shared, &change, pool),
                }
            }
            Some(Asker::Parting(at)) => {
                let Some(mut parting) = self.partings.remove(at) else {
                    return;
                };
                let now = moment_of_parting();
                let is_returned = is_returned(&mut parting.node, reply, &now);
                parting.tell(is_returned, pool);
            }
            None => {}
        }
    }

    fn failed(&mut self, shared: &Shared, asked: &QueueRequest, why: String) {
        let pool = self.target.pool.as_str();
        match self.asker(asked.nonce) {
            Some(Asker::Member(at)) => {
                let Some(link) = self.links.get_mut(at) else {
                    return;
                };
                let now = link.moment(shared);
                let change = link.member.node.failed(asked.number, why, &now);
                link.follow(shared, &change, None, pool);
            }
            Some(Asker::Candidate(at)) => {
                let Some(link) = self.links.get_mut(at) else {
                    return;
                };
                let now = link.moment(shared);
                let Some(candidate) = &mut link.candidate else {
                    return;
                };
                let change = candidate.member.node.failed(asked.number, why, &now);
                link.follow_candidate(shared, &change, pool);
            }
            Some(Asker::Parting(at)) => {
                if let Some(parting) = self.partings.remove(at) {
                    parting.tell(false, pool);
                }
            }
            None => {}
        }
    }

    /// Sends what is due, if nothing is under way. Returns for how many milliseconds to
    /// wait.
    fn go_on(&mut self, shared: &Shared) -> Option<i64> {
        loop {
            if let Some(asked) = &self.asked {
                let left = asked.until.saturating_duration_since(Instant::now());
                return i64::try_from(left.as_millis() + 1).ok();
            }
            let Due { request, wait } = self.due(shared);
            let Some((request, kept, timeout)) = request else {
                return wait;
            };
            if let Some((at, kept)) = kept
                && let Some(link) = self.links.get(at)
            {
                shared.with_held(link.tenant, |_, held| held.state.link = Some(kept));
            }
            let asked = QueueRequest {
                nonce: request.nonce,
                number: request.number,
                until: Instant::now() + timeout + LOOKUP_GRACE,
            };
            match self.client() {
                Ok(client) => {
                    client.send(request.number, request, timeout);
                    self.asked = Some(asked);
                }
                Err(why) => self.failed(shared, &asked, why),
            }
        }
    }

    /// What is to be sent next, or how long to wait.
    fn due(&mut self, shared: &Shared) -> Due {
        let parting = self.partings.iter_mut().find_map(|it| it.request.take());
        if let Some(request) = parting {
            return Due::now(request, None, timeout_of(None));
        }
        let hash = self.target.hash();
        let count = self.links.len();
        let mut wait: Option<i64> = None;
        for step in 0..count {
            let at = (self.turn + step) % count;
            let Some(link) = self.links.get_mut(at) else {
                continue;
            };
            let now = link.moment(shared);
            let timeout = timeout_of(link.member.node.terms());
            let candidate = link.candidate.as_mut().map(|it| it.member.node.next(&now));
            let nexts = match candidate {
                Some(Next::Send(request)) => {
                    self.turn = at + 1;
                    return Due::now(*request, None, timeout);
                }
                candidate => [candidate, Some(link.member.node.next(&now))],
            };
            for next in nexts.into_iter().flatten() {
                match next {
                    Next::Send(request) => {
                        let kept = KeptLink {
                            target: hash,
                            started: link.member.started,
                            node: link.member.node.kept(),
                        };
                        self.turn = at + 1;
                        return Due::now(*request, Some((at, kept)), timeout);
                    }
                    Next::Await => {}
                    Next::Sleep(nanos) => {
                        let millis = (nanos.get() / NANOS_PER_MILLI + 1).max(1);
                        wait = Some(wait.map_or(millis, |wait| wait.min(millis)));
                    }
                }
            }
        }
        Due {
            request: None,
            wait,
        }
    }

    /// The client, made if there is none.
    fn client(&mut self) -> Result<&mut RegistryClient, String> {
        let client = match self.client.take() {
            Some(client) => client,
            None => RegistryClient::new(
                &self.target.registry,
                &self.target.pool,
                identity::postmaster_start(),
                &self.here,
            )
            .map_err(|error| format!("Could not start a thread: {error}."))?,
        };
        Ok(self.client.insert(client))
    }

    /// Returns all worker IDs. `stops`: the server stops.
    pub fn end(mut self, shared: &Shared, stops: bool) {
        let deadline = Instant::now() + RELEASE_WAIT;
        let pool = self.target.pool.clone();
        let is_here = stops && self.is_here();
        // What is under way counts before what follows.
        self.await_outcome(shared, Instant::now() + RELEASE_WAIT / 2);
        let mut partings = std::mem::take(&mut self.partings);
        for link in &mut self.links {
            partings.extend(link.part(shared));
            shared.with_held(link.tenant, |_, held| {
                held.state.link = None;
                held.blocked = None;
                held.state.shown.waits_since = Some(os_clock::boot());
            });
        }
        // A server that stops lets nobody in, not even its own keeper. At the next start the
        // generators get these worker IDs again.
        if is_here {
            return;
        }
        for mut parting in partings {
            let request = parting.request.take();
            let mut has_returned = false;
            if let Some(request) = request
                && Instant::now() < deadline
                && let Ok(client) = self.client()
            {
                let number = request.number;
                client.send(number, request, timeout_of(None));
                let reply = await_reply(client, number, deadline);
                let now = moment_of_parting();
                let heard = |reply: Reply| is_returned(&mut parting.node, &reply, &now);
                has_returned = reply.is_some_and(heard);
            }
            parting.tell(has_returned, &pool);
        }
    }

    fn await_outcome(&mut self, shared: &Shared, deadline: Instant) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        let Some(client) = self.client.as_mut() else {
            return;
        };
        match await_reply(client, asked.number, deadline) {
            Some(reply) if reply.nonce == asked.nonce => self.heard(shared, &asked, &reply),
            // The thread may be busy still: what follows gets another one.
            _ => self.client = None,
        }
    }
}

/// A request, what is to be kept of the link with this index, and the time-out.
type ReadyRequest = (Request, Option<(usize, KeptLink)>, Duration);

/// What [`Queue::due`] finds: a request with what is to be kept for it, and its time-out.
struct Due {
    request: Option<ReadyRequest>,
    wait: Option<i64>,
}

impl Due {
    const fn now(request: Request, kept: Option<(usize, KeptLink)>, timeout: Duration) -> Self {
        Self {
            request: Some((request, kept, timeout)),
            wait: None,
        }
    }
}

impl Parting {
    fn tell(&self, is_returned: bool, pool: &str) {
        if is_returned {
            told::returned(&self.name, pool, self.worker, self.end).log("");
        } else {
            told::not_returned(&self.name, pool, self.worker).warning();
        }
    }
}

/// Whether a reply says that the worker ID is returned.
fn is_returned(node: &mut Node, reply: &Reply, now: &Moment) -> bool {
    node.heard(reply, now) == Change::Returned
}

fn moment_of_parting() -> Moment {
    Moment {
        boot: os_clock::boot(),
        clock: os_clock::wall().millis(),
        furthest: UnixMillis::new(0),
        in_recovery: false,
    }
}

/// Waits for the reply to a request; `None` if none comes.
fn await_reply(client: &mut RegistryClient, number: u64, deadline: Instant) -> Option<Reply> {
    loop {
        while let Some(outcome) = client.take() {
            if outcome.number == number {
                return outcome.reply.ok();
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || client.has_ended() {
            return None;
        }
        let millis = i64::try_from(left.as_millis() + 1).unwrap_or(1);
        compat::wait_keeper(Some(client.socket()), Some(millis));
    }
}
