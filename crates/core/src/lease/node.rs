//! What a node asks and concludes.
//!
//! [`Node`] belongs to one incarnation of a server: a restart makes a new one, with a new
//! nonce. Its host, the keeper, calls [`Node::next`] whenever something may be due, sends
//! what it is told, and reports the reply by [`Node::on_reply`] or the lack of one by
//! [`Node::failed`]. After each call [`Node::right`] says what the server may do.
//!
//! # The rules
//!
//! 1. **The bound.** No ID whose tick begins at or after [`HeldLease::bound`] is issued, and
//!    no mark is written past it: [`crate::protocol::plan`]. A bound counts once the registry has
//!    confirmed it, and has no end: it counts also when the lease has expired, the registry
//!    cannot be reached, or another server has taken over, since that one starts at the bound.
//! 2. **The floor.** With each grant, which makes a tenure of its own, every generator starts at the first
//!    tick that begins at or after [`HeldLease::floor`], but not before the tick of now, its
//!    own mark, and the tick after its cursor.
//! 3. **Numbers.** A reply counts only if it answers the latest request, and that request
//!    was not given up. So a reply that is late cannot bring back what is past. A copy of a running
//!    machine has the same nonce and numbers: the node that is told that a later request than its
//!    latest was answered, or another one with its number, stops at once.
//! 4. **Lost.** A node whose token no longer counts acquires a worker ID anew, and says what
//!    it had. Until then its server continues to issue below its bound. A token does not count
//!    with another registry than the node remembers either: [`RegistryError::Foreign`].
//! 5. **A clean stop.** The server closes first: it issues nothing from then on, and no
//!    reservation is under way. Then [`Node::close`] gives the worker ID back.
//! 6. **A floor far ahead** of the node's clock is not accepted, see [`FLOOR_LIMIT`]: the
//!    clock of the server or of the registry is wrong, or what the registry stores is. The
//!    node asks again, and takes the grant when its clock has come near enough.
//! 7. **The next worker ID.** A session that finds its clock behind may want another worker ID
//!    ([`Node::need_another`]). The node searches for one if it sees by itself that the wall
//!    clock was set back against the boot clock since the grant. So a clock starts that, and
//!    not a generator that somebody has advanced. Meanwhile it keeps and renews what it has. It
//!    accepts a grant whose floor is not after its clock, and no other. Then the host closes,
//!    publishes the grant, and returns the worker ID of before with its true end
//!    ([`Node::close_before`]). A node with a fixed worker ID searches for none.
//!
//! # Pace
//!
//! A node renews when the registry has said, or when a third of what the bound leaves is used up,
//! a fifth sooner or later, so that servers do not ask all at once; and at once when a caller needs
//! more: [`Node::need`]. A registry that is slow to answer is asked later than it has said, by ten
//! times what the answer took, but by its pause at most. One that does not answer is asked again
//! until it does: after 20 ms at first, at most a second apart, or ten while more than half of the
//! bound is left. A standby makes no contact, see [`NodeInput::in_recovery`].

use std::hash::{DefaultHasher, Hash, Hasher};

use super::state::DAY;
use super::{
    Answer, Fence, FloorCause, Grant, Holder, Memory, Nonce, RegistryError, Reply, Request,
    RequestKind, Terms,
};
use crate::id::{BootNanos, Millis, Nanos, UnixMillis, WorkerId};

/// The shortest time between two requests.
const LEAST_PAUSE: Millis = Millis::new(20);
/// The shortest time between two renewals for callers who need more than the registry
/// gives yet, as it does to a server that leads its clock.
const UNMET_PAUSE: Millis = Millis::new(200);
/// The longest time between two requests that were not answered as the node hopes.
const LONGEST_PAUSE: Millis = Millis::new(1000);

/// The longest time between two requests while more than half of the bound is left.
const AMPLE_PAUSE: Millis = Millis::new(10_000);

/// How far a floor may be ahead of the node's clock. A holder's clock may have been wrong
/// by a day, and another day is left for the clock of the registry.
pub const FLOOR_LIMIT: Millis = DAY.times(2);

/// How long a need counts after a caller has told it; one that still waits tells it again.
/// So a need that the registry does not meet ends with its caller.
pub const NEED_LASTS: Nanos = Millis::new(3000).nanos();

/// A clock that is behind by less was not set back: the two clocks are read one after the other,
/// and the wall clock in whole milliseconds.
const SET_BACK_MIN: Nanos = Millis::new(2).nanos();

/// What the server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldLease {
    pub worker: WorkerId,
    /// With the node's nonce, the token.
    pub counter: u64,
    /// One more with each grant, from 1.
    pub generation: u64,
    /// The first tick of this right is the first one that begins at or after it.
    pub floor: UnixMillis,
    /// No tick that begins at or after it.
    pub bound: UnixMillis,
}

/// What the node's host finds around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeInput {
    /// Runs on whatever becomes of the wall clock.
    pub boot: BootNanos,
    /// The server's wall clock.
    pub clock: UnixMillis,
    /// No generator has issued an ID whose tick begins at or after it since the server
    /// started.
    pub furthest: UnixMillis,
    /// The server is a standby, or has not finished recovery.
    pub in_recovery: bool,
}

impl NodeInput {
    /// Wall clock minus boot clock: constant except for steps of the wall clock.
    const fn offset(&self) -> Nanos {
        Nanos::new(self.clock.nanos().get().saturating_sub(self.boot.get()))
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// Carry this to the registry, then report.
    Send(Box<Request>),
    /// A request is under way.
    Await,
    /// Ask again after this time, or when somebody calls [`Node::need`].
    Sleep(Nanos),
}

/// What a log line is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Nothing,
    /// A worker ID was granted; `before` is the one that the server had.
    Acquired {
        before: Option<WorkerId>,
        /// See [`Grant::reached`].
        reached: UnixMillis,
        /// Why the floor is where it is.
        because: FloorCause,
    },
    /// The registry answers as it should again, after this failure.
    Resumed(LeaseFailure),
    /// The token no longer counts.
    Lost(LeaseFailure),
    /// The registry refuses, or cannot be reached, for a new reason.
    Failed(LeaseFailure),
    /// The worker ID is given back.
    Returned,
    /// The server is one of two copies of a running machine. It no longer has a right;
    /// the host continues with a new [`Node`], a new nonce and a later start.
    Copied,
}

/// Why the node does not have what it wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseFailure {
    /// Since when, by the server's clock; the reason may have changed since.
    pub since: UnixMillis,
    pub why: LeaseError,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeaseError {
    /// Nothing has been heard yet.
    Starting,
    /// The registry cannot be reached, in the words of the host.
    Unreachable(String),
    Refused(RegistryError),
    /// The registry grants a worker ID, and its floor is further ahead of the server's clock than
    /// the node accepts.
    FloorTooFar {
        worker: WorkerId,
        floor: UnixMillis,
    },
}

impl LeaseError {
    const fn too_far(grant: &Grant) -> Self {
        Self::FloorTooFar {
            worker: grant.worker,
            floor: grant.floor,
        }
    }

    /// Whether two reasons read the same but for the time that is left.
    fn is_like(&self, other: &Self) -> bool {
        use std::mem::discriminant;
        match (self, other) {
            (Self::Refused(one), Self::Refused(two)) => discriminant(one) == discriminant(two),
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// A request that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sent {
    number: u64,
    at: BootNanos,
    /// It asks for another worker ID.
    searches: bool,
}

/// The search for another worker ID: rule 7.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Search {
    /// When a session has told last that it needs one.
    told: BootNanos,
    /// When to ask next.
    due: BootNanos,
    /// What is in the way, if something is.
    failure: Option<LeaseFailure>,
}

/// What a node must not forget as long as its incarnation lives, whichever process hosts it. Has
/// no pointers, so that it can lie in shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptNode {
    nonce: Nonce,
    number: u64,
    memory: Option<Memory>,
    right: Option<HeldLease>,
    generation: u64,
    holds: bool,
    terms: Option<Terms>,
    offset: Option<Nanos>,
}

impl KeptNode {
    /// See [`Node::right`].
    #[must_use]
    pub const fn right(&self) -> Option<HeldLease> {
        self.right
    }

    /// See [`Node::terms`].
    #[must_use]
    pub const fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }
}

/// One incarnation of a server, towards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    me: Holder,
    nonce: Nonce,
    fixed: Option<WorkerId>,
    number: u64,
    memory: Option<Memory>,
    right: Option<HeldLease>,
    /// How often it was granted a worker ID.
    generation: u64,
    /// The right's token counts as far as the node knows.
    holds: bool,
    terms: Option<Terms>,
    /// The greatest difference of both clocks since the grant, as far as the node has looked.
    offset: Option<Nanos>,
    search: Option<Search>,
    sent: Option<Sent>,
    /// Since when the bound leads by more than anything explains.
    surplus: Option<BootNanos>,
    /// When to ask next.
    due: Option<BootNanos>,
    /// When to ask next if somebody needs more.
    soonest: Option<BootNanos>,
    pause: Millis,
    /// Until then, more than half is left of what the bound left at the latest renewal.
    ample: Option<BootNanos>,
    needed: Option<UnixMillis>,
    failure: Option<LeaseFailure>,
    closed: bool,
}

impl Node {
    /// A server that has just started. `fixed` is the worker ID that it claims; without
    /// it the registry chooses. `memory` is what the server knows of this registry from
    /// an earlier incarnation, if the host keeps it.
    #[must_use]
    pub fn new(me: Holder, nonce: Nonce, fixed: Option<WorkerId>, memory: Option<Memory>) -> Self {
        Self {
            me,
            nonce,
            fixed,
            number: 0,
            memory,
            right: None,
            generation: 0,
            holds: false,
            terms: None,
            offset: None,
            search: None,
            sent: None,
            surplus: None,
            due: None,
            soonest: None,
            pause: LEAST_PAUSE,
            ample: None,
            needed: None,
            failure: None,
            closed: false,
        }
    }

    /// The same incarnation of a server, whose host was replaced. `kept` is what the
    /// host before kept last; it kept that before it sent anything.
    #[must_use]
    pub fn resumed(me: Holder, fixed: Option<WorkerId>, kept: KeptNode) -> Self {
        Self {
            number: kept.number,
            right: kept.right,
            generation: kept.generation,
            holds: kept.holds,
            terms: kept.terms,
            offset: kept.offset,
            ..Self::new(me, kept.nonce, fixed, kept.memory)
        }
    }

    /// What a host must keep for the one that replaces it.
    #[must_use]
    pub fn kept(&self) -> KeptNode {
        KeptNode {
            nonce: self.nonce,
            number: self.number,
            memory: self.memory,
            right: self.right,
            generation: self.generation,
            holds: self.holds,
            terms: self.terms.clone(),
            offset: self.offset,
        }
    }

    /// What the server may do; `None` until the first grant, and after [`Node::close`].
    #[must_use]
    pub fn right(&self) -> Option<HeldLease> {
        self.right.filter(|_| !self.closed)
    }

    /// Whether the right's token counts, as far as the node knows. Otherwise it is good
    /// for what is below its bound, and is not renewed.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.holds
    }

    #[must_use]
    pub const fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// When the incarnation began.
    pub const fn started(&self) -> BootNanos {
        self.me.started
    }

    /// The number of the latest request; 0 before the first one.
    #[must_use]
    pub const fn latest_number(&self) -> u64 {
        self.number
    }

    /// What the pool demands of the server, as of the latest grant.
    #[must_use]
    pub const fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// What is in the way, if something is.
    #[must_use]
    pub const fn failure(&self) -> Option<&LeaseFailure> {
        self.failure.as_ref()
    }

    /// What the node knows of the registry.
    #[must_use]
    pub const fn memory(&self) -> Option<Memory> {
        self.memory
    }

    /// A caller waits for a bound past this instant. The caller wakes the host.
    pub fn need(&mut self, instant: UnixMillis) {
        self.needed = self.needed.max(Some(instant));
    }

    /// No session still waits for a later bound.
    pub const fn need_no_more(&mut self) {
        self.needed = None;
    }

    /// A session finds its clock behind, and IDs of that time may have been issued under the
    /// worker ID: rule 7. A session that waits tells it again. The caller wakes the host.
    pub fn need_another(&mut self, now: &NodeInput) {
        self.look_at_clock(now);
        if self.may_search(now) {
            let (told, due) = (now.boot, now.boot);
            let failure = None;
            let search = Search { told, due, failure };
            self.search.get_or_insert(search).told = now.boot;
        }
    }

    /// Whether the request that is under way is for another worker ID.
    #[must_use]
    pub fn asks_for_another(&self) -> bool {
        self.sent.is_some_and(|sent| sent.searches)
    }

    /// What is in the way of another worker ID that is searched for.
    #[must_use]
    pub fn search_failure(&self) -> Option<&LeaseFailure> {
        self.search.as_ref()?.failure.as_ref()
    }

    fn look_at_clock(&mut self, now: &NodeInput) {
        self.offset = self.offset.max(Some(now.offset()));
    }

    /// Whether the wall clock was set back since the grant, and the worker ID may be another one.
    fn may_search(&self, now: &NodeInput) -> bool {
        let is_behind = |offset: Nanos| now.offset().plus(SET_BACK_MIN) <= offset;
        self.holds && self.fixed.is_none() && self.offset.is_some_and(is_behind)
    }

    /// Whether the server has a lead that it does not use, for longer than a hold: its clock was
    /// wrong. The next holder would begin there. So the host closes, returns the worker ID with its
    /// true end, and continues with a new node, a new nonce and a later start. Called at each
    /// renewal.
    pub fn has_surplus(&mut self, now: &NodeInput) -> bool {
        let (Some(right), Some(terms)) = (self.right.filter(|_| self.holds), &self.terms) else {
            return false;
        };
        let used = now.clock.max(now.furthest).max(right.floor);
        let most = terms.lease.plus(terms.hold).plus(terms.max_ahead);
        if right.bound <= used.plus(most) {
            self.surplus = None;
            return false;
        }
        let since = *self.surplus.get_or_insert(now.boot);
        now.boot > after(since, terms.hold)
    }

    /// What to do now.
    pub fn next(&mut self, now: &NodeInput) -> Next {
        if now.in_recovery || self.closed {
            return Next::Sleep(LONGEST_PAUSE.nanos());
        }
        if self.sent.is_some() {
            return Next::Await;
        }
        if self.failure.is_none() && self.right.is_none() {
            let why = LeaseError::Starting;
            let since = now.clock;
            self.failure = Some(LeaseFailure { since, why });
        }
        self.look_at_clock(now);
        let may_search = self.may_search(now);
        let is_over = |it: &mut Search| !may_search || now.boot.since(it.told) >= NEED_LASTS;
        self.search.take_if(is_over);
        let search_due = self.search.as_ref().map(|search| search.due);
        if search_due.is_some_and(|due| now.boot >= due) {
            return Next::Send(Box::new(self.ask_for_another(now)));
        }
        let bound = self.right.map(|right| right.bound);
        let wanting = self.needed.is_some_and(|needed| bound <= Some(needed));
        let due = if wanting { self.soonest } else { self.due };
        match due {
            Some(due) if now.boot < due => {
                let due = search_due.map_or(due, |search_due| due.min(search_due));
                Next::Sleep(due.since(now.boot))
            }
            _ => Next::Send(Box::new(self.ask(now))),
        }
    }

    /// The next request: to keep what the node has, or to get something.
    fn ask(&mut self, now: &NodeInput) -> Request {
        let ask = match self.right {
            Some(HeldLease {
                worker, counter, ..
            }) if self.holds => RequestKind::Renew {
                worker,
                counter,
                bound: self.right.map_or(now.furthest, |right| right.bound),
                furthest: now.furthest,
            },
            lost => RequestKind::Acquire {
                fixed: self.fixed,
                last: lost.map(|right| right.worker),
                holding: None,
            },
        };
        self.request(ask, now)
    }

    fn ask_for_another(&mut self, now: &NodeInput) -> Request {
        let ask = RequestKind::Acquire {
            fixed: None,
            last: None,
            holding: self.right.map(|right| right.worker),
        };
        self.request(ask, now)
    }

    fn request(&mut self, ask: RequestKind, now: &NodeInput) -> Request {
        self.number += 1;
        let holding = |ask| {
            matches!(
                ask,
                RequestKind::Acquire {
                    holding: Some(_),
                    ..
                }
            )
        };
        self.sent = Some(Sent {
            number: self.number,
            at: now.boot,
            searches: holding(ask),
        });
        Request {
            asker: self.me.clone(),
            nonce: self.nonce,
            number: self.number,
            clock: now.clock,
            memory: self.memory,
            ask,
        }
    }

    /// A reply has arrived.
    pub fn on_reply(&mut self, reply: &Reply, now: &NodeInput) -> Change {
        let nonce = self.nonce;
        let mine = |sent: &mut Sent| (nonce, sent.number) == (reply.nonce, reply.number);
        let Some(sent) = self.sent.take_if(mine) else {
            return Change::Nothing;
        };
        if sent.searches
            && let Some(why) = refusal_of_another(&reply.answer, now)
        {
            // The reply has no proof of the token that the node keeps. It counts as a lost one.
            return self.search_fails(why, now);
        }
        self.memory = Some(reply.memory);
        match &reply.answer {
            Answer::Granted(grant) if grant.floor.since(now.clock) > FLOOR_LIMIT => {
                self.sleep(LONGEST_PAUSE, now);
                self.troubled(LeaseError::too_far(grant), now)
            }
            Answer::Granted(grant) => self.granted(grant, sent, now),
            Answer::Renewed { bound, again, .. } => self.renewed((*bound, *again), sent, now),
            Answer::Released => Change::Returned,
            Answer::Ignored => self.copied(),
            Answer::Refused(RegistryError::Fenced {
                why: Fence::Copied, ..
            }) => self.copied(),
            Answer::Refused(refused) => self.refused(refused, now),
        }
    }

    /// The host has no reply to the request with this number, and waits for it no more.
    pub fn failed(&mut self, number: u64, why: String, now: &NodeInput) -> Change {
        let Some(sent) = self.sent.take_if(|sent| sent.number == number) else {
            return Change::Nothing;
        };
        if sent.searches {
            return self.search_fails(LeaseError::Unreachable(why), now);
        }
        let is_ample = self.ample.is_some_and(|until| now.boot < until) && self.holds;
        let pause = match is_ample {
            true => self.pause.max(LONGEST_PAUSE),
            false => self.pause.min(LONGEST_PAUSE),
        };
        self.sleep(self.spread(pause), now);
        self.soonest = Some(after(now.boot, pause.min(LONGEST_PAUSE)));
        self.pause = pause.times(2).min(self.ample_pause());
        self.troubled(LeaseError::Unreachable(why), now)
    }

    /// The server stops, and has closed: it issues no more IDs. `end` is at or after
    /// all ticks that were used. The request gives the worker ID back; `None` if there is
    /// nothing to give back. It may be sent several times.
    pub fn close(&mut self, end: UnixMillis, now: &NodeInput) -> Option<Request> {
        self.closed = true;
        let right = self.right.filter(|_| self.holds)?;
        let ask = RequestKind::Release {
            worker: right.worker,
            counter: right.counter,
            bound: right.bound,
            end,
        };
        Some(self.request(ask, now))
    }

    /// As [`Self::close`], of a node as it was before the grant that `successor` has got in the
    /// place of its worker ID. Both are one incarnation, and count their requests together.
    pub fn close_before(
        &mut self,
        successor: &mut Self,
        end: UnixMillis,
        now: &NodeInput,
    ) -> Option<Request> {
        let request = self.close(end, now);
        successor.number = successor.number.max(self.number);
        request
    }

    /// Another one uses this nonce.
    fn copied(&mut self) -> Change {
        self.closed = true;
        self.holds = false;
        Change::Copied
    }

    fn granted(&mut self, grant: &Grant, sent: Sent, now: &NodeInput) -> Change {
        let before = self.right.map(|right| right.worker);
        self.generation += 1;
        self.right = Some(HeldLease {
            worker: grant.worker,
            counter: grant.counter,
            generation: self.generation,
            floor: grant.floor,
            bound: grant.bound,
        });
        self.holds = true;
        self.terms = Some(grant.terms.clone());
        (self.offset, self.search, self.surplus) = (Some(now.offset()), None, None);
        self.failure = None;
        self.plan(grant.again, sent, now);
        let (reached, because) = (grant.reached, grant.because);
        Change::Acquired {
            before,
            reached,
            because,
        }
    }

    fn renewed(
        &mut self,
        (bound, again): (UnixMillis, Millis),
        sent: Sent,
        now: &NodeInput,
    ) -> Change {
        if let Some(right) = &mut self.right {
            right.bound = right.bound.max(bound);
        }
        self.plan(again, sent, now);
        self.failure.take().map_or(Change::Nothing, Change::Resumed)
    }

    fn refused(&mut self, refused: &RegistryError, now: &NodeInput) -> Change {
        let is_lost = match refused {
            RegistryError::Fenced { .. } => true,
            RegistryError::Foreign => self.holds,
            _ => false,
        };
        let pause = match refused {
            _ if is_lost => Millis::ZERO,
            RegistryError::Held { retry, .. }
            | RegistryError::NoneFree { retry }
            | RegistryError::Grace { retry, .. } => (*retry).clamp(LEAST_PAUSE, LONGEST_PAUSE),
            _ => LONGEST_PAUSE,
        };
        self.sleep(pause, now);
        let why = LeaseError::Refused(refused.clone());
        if is_lost {
            self.holds = false;
            let failure = LeaseFailure {
                since: now.clock,
                why,
            };
            self.failure = Some(failure.clone());
            return Change::Lost(failure);
        }
        self.troubled(why, now)
    }

    /// Notes a failure, and says whether it is a new one.
    fn troubled(&mut self, why: LeaseError, now: &NodeInput) -> Change {
        note_failure(&mut self.failure, why, now)
    }

    /// Notes that another worker ID is not to be had, and says whether that is new.
    fn search_fails(&mut self, why: LeaseError, now: &NodeInput) -> Change {
        let Some(search) = &mut self.search else {
            return Change::Nothing;
        };
        search.due = after(now.boot, LONGEST_PAUSE);
        note_failure(&mut search.failure, why, now)
    }

    /// Asks no sooner than after this time.
    fn sleep(&mut self, pause: Millis, now: &NodeInput) {
        self.due = Some(after(now.boot, pause));
        self.soonest = self.due;
    }

    /// When to renew: when the registry says, or a third of what the bound leaves is used up. Nodes
    /// that were answered at the same time do not ask at the same time again.
    fn plan(&mut self, again: Millis, sent: Sent, now: &NodeInput) {
        let Some(right) = self.right else {
            return;
        };
        let left = right.bound.since(now.clock.max(now.furthest));
        let took = now.boot.since(sent.at).millis();
        let again = again.plus(took.times(10).min(again));
        let third = Millis::new(left.get() / 3).min(again);
        self.due = Some(after(sent.at, self.spread(third).max(LEAST_PAUSE)));
        self.ample = Some(after(sent.at, Millis::new(left.get() / 2)));
        self.needed = self.needed.filter(|needed| *needed >= right.bound);
        let pause = self.needed.map_or(LEAST_PAUSE, |_| UNMET_PAUSE);
        self.soonest = Some(after(sent.at, pause));
        self.pause = LEAST_PAUSE;
    }
}

impl Node {
    /// See [`AMPLE_PAUSE`]. Half the patience at most.
    fn ample_pause(&self) -> Millis {
        let patience = self
            .terms
            .as_ref()
            .map_or(AMPLE_PAUSE, |terms| terms.patience);
        AMPLE_PAUSE.min(Millis::new(patience.get() / 2).max(LONGEST_PAUSE))
    }

    /// A pause that is up to a fifth shorter or longer, different for each node and request.
    fn spread(&self, pause: Millis) -> Millis {
        let mut hasher = DefaultHasher::new();
        (self.nonce, self.number).hash(&mut hasher);
        let percent = 80 + i64::try_from(hasher.finish() % 41).unwrap_or_default();
        Millis::new(pause.get() * percent / 100)
    }
}

/// Why a node does not take an answer to the request for another worker ID; `None` for what it
/// takes as any other answer.
fn refusal_of_another(answer: &Answer, now: &NodeInput) -> Option<LeaseError> {
    match answer {
        Answer::Granted(grant) if grant.floor > now.clock => Some(LeaseError::too_far(grant)),
        Answer::Refused(RegistryError::Fenced { .. } | RegistryError::Foreign) => None,
        Answer::Refused(refused) => Some(LeaseError::Refused(refused.clone())),
        _ => None,
    }
}

/// Notes a failure, and says whether it is a new one.
fn note_failure(noted: &mut Option<LeaseFailure>, why: LeaseError, now: &NodeInput) -> Change {
    let before = noted.take();
    let since = before.as_ref().map_or(now.clock, |failure| failure.since);
    let known = before.is_some_and(|failure| failure.why.is_like(&why));
    let failure = LeaseFailure { since, why };
    *noted = Some(failure.clone());
    if known {
        Change::Nothing
    } else {
        Change::Failed(failure)
    }
}

/// The boot clock, this much later.
fn after(boot: BootNanos, time: Millis) -> BootNanos {
    BootNanos::new(boot.get().saturating_add(time.nanos().get()))
}
