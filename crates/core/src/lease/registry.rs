//! What a registry grants.
//!
//! [`handle`] decides everything. A host gives it the stored [`State`], the pool's
//! [`Rows`] and what it finds around it. The host stores what has changed **before** the
//! reply leaves, all in one transaction that excludes every other one of the same registry.
//!
//! # The rules
//!
//! 1. **Floor and bound.** A grant's floor is at or above the row's bound. The bound only
//!    rises, except by a release.
//! 2. **Tokens.** A renewal and a release count only with the row's counter and nonce. A
//!    request that arrives after a later one of its incarnation changes nothing; one that
//!    arrives twice gets the same answer twice. Two different requests with one number are
//!    those of two copies of a running machine: their token ends.
//! 3. **Who may take over.** Anybody when the lease has expired and a hold has passed. At
//!    once only a later incarnation of the same identity; never an earlier one. So live
//!    copies do not take the worker ID from each other in turn, and a message that was
//!    under way when its sender crashed takes nothing from the successor.
//! 4. **Which worker ID.** The one that this server had before; else one whose holder has
//!    been gone for a day; else one that was never granted; else the one that has been
//!    free for longest. One whose bound has passed comes before one whose bound has not.
//! 5. **The registry's clock goes back.** A lease that would then last longer than a
//!    lease is cut, and so is a grace period: nobody waits longer.
//! 6. **A lead does not grow.** See `State::extended`.
//! 7. **A wrong clock.** A server more than a day past the registry's clock and the greatest
//!    time that it has stored is refused, so a server whose clock is wrong is told before it
//!    issues. The clocks of servers that have renewed a lease within [`VOUCH_TIME`] vouch for
//!    later ones: one for a day more, two for up to [`VOUCHED_MAX`] past the registry's. So a
//!    registry whose clock goes wrong stops nobody at once. All servers of one role vouch as
//!    one, for a role can make up servers. Without that limit, servers could vouch each other
//!    a day further with each renewal. A generator that leads its server's clock by more gets
//!    a bound up to that day, and its server keeps its worker ID.
//! 8. **A release** sets the bound to the true end: the only time that a bound goes back.
//!    It does not raise the bound, unless a loss may have taken a renewal.
//! 9. **A loss** begins a new [`Era`]. There are no grants for a lease and a hold, so
//!    that the servers that live keep their worker IDs. Then every floor is at or above
//!    what a holder of a lost grant can have been given: see `State::floor`. Excepted
//!    from the wait, but not from the floor, are a later incarnation of the same identity
//!    whose lease had not expired, and the server that hosts the registry, for a spare.
//!    A lease that had expired at the loss is not renewed: a takeover may be lost.
//! 10. **Before the registry.** The first floor of a worker ID is `max_ahead` after the
//!     pool was made.
//! 11. **Back in time.** A generator that leases worker IDs of its own says how late the
//!     floor may be. It gets a worker ID whose floor is not later, in the order of rule 4,
//!     or none. What it had before goes to the tail when it is released.
//! 12. **Contenders.** A row tells its holder who else claims the worker ID, until the
//!     next grant: see [`contender`](super::contender). That decides nothing.
//! 13. **The horizon of the cluster.** No grant's floor lies before it: see
//!     [`horizon`](super::cluster_horizon). Each server that counts is kept until it leaves, and a role
//!     can make up servers: so only [`horizon::OF_ROLE_MAX`] of one role count, and one more
//!     gets no worker ID.
//! 14. **Roles.** Where servers ask as roles, the role is a part of their [`ServerKey`]. Only
//!     the identity that took a lease renews or returns it.
//! 15. **What a node remembers** counts from any node, but only with the right [`seal`].
//!     A node with another one is refused once. It is told what to remember from then on, and
//!     gives up what it had. See `State::listen`.
//!
//! # The token that nobody knows
//!
//! A token that the registry does not know shows a loss only if the node's memory proves that
//! it was granted in the registry's era. One of an earlier era was lost by a loss that is
//! known already.
//!
//! # What was never stored
//!
//! A caller of a database's function can read its answer and then abort the
//! transaction. So what is sealed may never have been stored, be it a serial or a grant;
//! and what looks like a loss may be nothing. But as long as a server runs, it
//! loses nothing that it has stored, and nor does a clean stop. Hence a memory tells
//! nothing new if the registry's own server has said it, at this start or at one that ended
//! with a clean stop: see `State::is_own`. That is known of the last starts only. What is
//! shown of an earlier start may begin a grace period, once in an era. An era that was
//! never stored would stop the registry, since it would be that of another registry. So nobody is
//! told of an era before it is stored: the request that begins one is answered with
//! [`Answer::Again`].

use super::super::id::{Millis, UnixMillis, WorkerId};
use super::cluster_horizon::{self, Changes, Draft, Servers};
use super::contender::Contender;
use super::seal::{Seal, Token};
use super::state::{DAY, Heard, Loss, RegistryInput, Start, State};
use super::{
    Answer, Ask, Cause, Fence, Grant, Holder, Memory, Named, Pool, RegistryError, RegistryMillis,
    Reply, Request, Row, Seen, ServerKey, Stopped,
};

/// As much of a lease is granted to an incarnation that leads, before any time has
/// passed: enough to issue, too little to matter.
const FIRST_PART: i64 = 64;
/// How many other servers at most vouch for a clock.
const VOUCHERS: usize = 16;
/// For how long a renewal vouches for the clock of its server.
pub const VOUCH_TIME: Millis = Millis::new(30_000);
/// No bound is granted further past the registry's clock, however many vouch.
pub const VOUCHED_MAX: Millis = DAY.times(7);

/// The rows of one pool, and the servers of all, as they are stored. A row that was never granted
/// does not exist.
pub trait Rows: Servers {
    /// The row of a worker ID.
    fn get(&mut self, worker: WorkerId) -> Option<Row>;

    /// The row whose holder has this identity; of several, the one that was granted last
    /// (the greatest `since`; if they are the same, that of the later incarnation).
    fn last_held_by(&mut self, identity: &ServerKey) -> Option<Row>;

    /// The first worker ID of the pool that is not excepted, not spare, and has no row.
    fn unused(&mut self) -> Option<WorkerId>;

    /// Of the rows that are not spare (and not excepted), and are released or leased
    /// until `expired` at the latest, with a bound of at most `bound`: the one with the
    /// least `leased_until`.
    fn longest_free(&mut self, expired: RegistryMillis, bound: UnixMillis) -> Option<Row>;

    /// Lowers `leased_until` of all rows to this at most, in what is stored.
    fn clamp(&mut self, latest: RegistryMillis);

    /// The greatest bound of the rows, also of other pools, whose holder has this system
    /// identifier.
    fn reached_by(&mut self, system: u64) -> Option<UnixMillis>;
}

/// The answer to a request. `state` and the changes are to be stored before the reply leaves,
/// also if it is a refusal.
pub fn handle(
    state: &mut State,
    pool: &Pool,
    rows: &mut impl Rows,
    request: &Request,
    input: &RegistryInput,
) -> (Reply, Changes) {
    let rows = &mut Draft::new(rows);
    let era = state.era;
    let known = state.memory(None);
    state.notice(input);
    cluster_horizon::hear(state, pool);
    let desk = Desk {
        pool,
        request,
        input,
    };
    let listened = state.listen(&desk);
    cluster_horizon::after_loss(state, rows);
    let answer = match listened {
        Err(refused) => Answer::Refused(refused),
        Ok(()) if state.era != era && desk.can_come_again() => Answer::Again,
        Ok(()) => {
            rows.stored.clamp(input.now.plus(pool.lease));
            desk.answer(state, rows)
        }
    };
    let is_told = state.era == era || !input.revocable;
    // Otherwise the node continues with what it had.
    let before = request.memory.filter(|memory| state.key.has_sealed(memory));
    let reply = Reply {
        nonce: request.nonce,
        number: request.number,
        memory: match is_told {
            true => desk.remembered(state, &answer),
            false => before.unwrap_or(known),
        },
        now: input.now,
        answer,
    };
    (reply, std::mem::take(&mut rows.changes))
}

/// Ends the token of a worker ID: it is no longer renewed, and the worker ID is free
/// when the lease has expired and a hold has passed. Returns the row, which is to be stored;
/// `None` if it was never granted.
pub fn revoke(
    state: &mut State,
    rows: &mut impl Rows,
    worker: WorkerId,
    input: &RegistryInput,
) -> Option<Row> {
    state.notice(input);
    let mut row = rows.get(worker)?;
    row.revoked = row.revoked.or(Some(input.now));
    state.serial += 1;
    Some(row)
}

impl<T: Rows> Draft<'_, T> {
    fn get(&mut self, worker: WorkerId) -> Option<Row> {
        let changed = self.changes.row.as_ref();
        let changed = changed.filter(|row| row.worker == worker).cloned();
        changed.or_else(|| self.stored.get(worker))
    }

    /// Nothing is searched afterwards.
    fn put(&mut self, row: Row) {
        self.changes.row = Some(row);
    }
}

impl State {
    /// Compares what the node remembers. The registry stops, and has stopped for good, if
    /// another one counts.
    ///
    /// A seal that is not this registry's tells it nothing: anybody can make one up. But one
    /// that has just been made has taken the place of another, as a rule, and the servers of
    /// the other one ask soon. What they have issued is not known here, and is below what is
    /// granted after a loss. So the first of them shows a loss; later, and a second time,
    /// none does. By then, what was granted elsewhere has ended.
    fn listen(&mut self, desk: &Desk) -> Result<(), RegistryError> {
        let (request, input) = (desk.request, desk.input);
        if let Some(memory) = request.memory {
            if !self.key.has_sealed(&memory) {
                let patience = desk.pool.lease.plus(desk.pool.hold);
                if self.loss.is_none() && input.now.since(self.made) < patience {
                    self.lose(Cause::Foreign, input);
                }
                return Err(RegistryError::Foreign);
            }
            if self.stopped.is_none() && !self.is_own(&memory, input) {
                match self.era.judge(&memory.era) {
                    Seen::Before => {}
                    Seen::Same if memory.serial > self.serial => self.lose(Cause::Serial, input),
                    Seen::Same => {}
                    Seen::After | Seen::Rival => {
                        self.stopped = Some(Stopped {
                            since: input.now,
                            seen: memory.era,
                            by: Box::new(Named::from(&request.asker)),
                        });
                    }
                }
            }
        }
        match &self.stopped {
            Some(stopped) => Err(RegistryError::Stopped(stopped.clone())),
            None => Ok(()),
        }
    }

    /// Whether this very registry has said what a node remembers, and can have lost nothing
    /// since. Where it differs, it was never stored: see the head of the file.
    fn is_own(&self, memory: &Memory, input: &RegistryInput) -> bool {
        let start = memory.start;
        let is_known = start == input.start || self.earlier.contains(&Start(start));
        input.revocable && memory.era.origin == input.origin && is_known
    }

    /// The floor of a grant of this row: at or above every bound that a holder can have
    /// got under it.
    ///
    /// What was granted and lost had a bound of at most the holder's clock, plus
    /// `max_ahead` that a generator may lead it, plus a lease. The holder's clock at the
    /// loss was that of the registry, or that of the server that now asks, if it was not
    /// more than a hold past both. A grant in the grace period can be lost by the next loss,
    /// so the floors after a grace period are another hold above it. A row that is further
    /// ahead may have been renewed for one more lease.
    fn floor(&self, desk: &Desk, row: &StoredRow) -> UnixMillis {
        let pool = desk.pool;
        let mut floor = row.bound;
        if let Some(loss) = self.loss {
            let mut margin = pool.lease.plus(pool.hold).plus(pool.max_ahead);
            if self.grace(pool, desk.input.now).is_none() {
                margin = margin.plus(pool.hold);
            }
            let clocks = loss.top.as_nodes_clock().max(desk.clock_at(&loss));
            floor = floor.max(clocks.plus(margin));
            let far = row.bound > loss.at.as_nodes_clock().plus(pool.max_ahead);
            if row.era != self.era.counter && far {
                floor = floor.max(row.bound.plus(pool.lease));
            }
        }
        floor
    }

    /// The bound of a renewal.
    ///
    /// A server that does not lead its clock gets a lease. One that leads by its floor
    /// gets at most the **line**: the start of the grant plus the time since. A crash
    /// hands the bound on as the next floor, so a bound past the line would let the lead
    /// grow with every crash. A generator that leads by a floor continues at half speed, so
    /// it stays below the line. One that is past the line leads by itself: it was advanced,
    /// has borrowed, or its clock was set back. Its lead has a limit of its own, and it
    /// gets what it has used plus the time since the grant.
    fn extended(
        pool: &Pool,
        row: &Row,
        clock: UnixMillis,
        used: UnixMillis,
        now: RegistryMillis,
    ) -> UnixMillis {
        let line = line(pool, row, now);
        let passed = line.since(row.start);
        let lead = if used <= line {
            used.plus(pool.lease).min(line)
        } else {
            used.plus(passed.min(pool.lease))
        };
        clock.plus(pool.lease).max(lead)
    }

    /// The latest bound that is not taken for an error. The server's own clock does not
    /// vouch for itself. One other clock vouches for a day past what the registry knows,
    /// two for more: two servers with the same wrong clock are told.
    fn limit(&self, desk: &Desk) -> UnixMillis {
        let now = desk.input.now;
        // Nor do generators of the same server vouch for it.
        let asker = desk.request.asker.identity.server();
        let vouching = self
            .heard
            .iter()
            .filter(|heard| heard.by.server() != asker && now.since(heard.at).abs() <= VOUCH_TIME);
        let (mut first, mut second) = (None, None);
        for clock in vouching.map(|heard| Some(heard.clock)) {
            second = second.max(clock.min(first));
            first = first.max(clock);
        }
        let own = self.top.max(now).as_nodes_clock();
        let first = first.map_or(own, |clock| clock.min(own.plus(DAY)));
        let clock = first.max(second.unwrap_or(own)).max(own);
        clock.plus(DAY).min(own.plus(VOUCHED_MAX))
    }

    /// Remembers the clock of a server that renews its lease.
    fn note_clock(&mut self, desk: &Desk) {
        let (now, by) = (desk.input.now, desk.request.asker.identity.server());
        let stale = |heard: &Heard| now.since(heard.at).abs() > VOUCH_TIME;
        self.heard
            .retain(|heard| heard.by.voucher() != by.voucher() && !stale(heard));
        if self.heard.len() >= VOUCHERS {
            self.heard.remove(0);
        }
        let clock = desk.request.clock;
        self.heard.push(Heard { by, clock, at: now });
    }

    /// Whether no other server can have got the worker ID of this row by a grant that is lost.
    /// Either the row was granted or renewed since the loss, or its lease and hold had not passed
    /// then, neither by the registry's clock nor by that of the server that asks.
    fn is_known(&self, desk: &Desk, row: &Row) -> bool {
        let Some(loss) = self.loss else { return true };
        let free_from = row.leased_until.plus(desk.pool.hold);
        let expired = free_from <= loss.at || free_from.as_nodes_clock() <= desk.clock_at(&loss);
        row.era == self.era.counter || (!row.released && !expired)
    }
}

/// What is first granted to an incarnation that leads.
fn first_part(pool: &Pool) -> Millis {
    Millis::new(pool.lease.get() / FIRST_PART).max(Millis::new(1))
}

/// How far a grant's start has come with the time since: a lead by a floor that does not
/// grow.
fn line(pool: &Pool, row: &Row, now: RegistryMillis) -> UnixMillis {
    row.start.plus(now.since(row.since).max(first_part(pool)))
}

/// What is stored of a worker ID, also if there is no row yet.
struct StoredRow {
    worker: WorkerId,
    counter: u64,
    bound: UnixMillis,
    era: u64,
}

impl StoredRow {
    const fn of(row: &Row) -> Self {
        Self {
            worker: row.worker,
            counter: row.counter,
            bound: row.bound,
            era: row.era,
        }
    }

    fn unused(pool: &Pool, worker: WorkerId) -> Self {
        Self {
            worker,
            counter: 0,
            bound: pool.made.plus(pool.max_ahead).as_nodes_clock(),
            era: 0,
        }
    }
}

/// A request and all that does not change while it is answered.
struct Desk<'a> {
    pool: &'a Pool,
    request: &'a Request,
    input: &'a RegistryInput,
}

impl Desk<'_> {
    fn answer(&self, state: &mut State, rows: &mut Draft<impl Rows>) -> Answer {
        match self.request.ask {
            Ask::Acquire {
                fixed,
                last,
                latest,
            } => self.acquire(state, rows, (fixed, last), latest),
            Ask::Renew {
                worker,
                counter,
                furthest,
                horizon,
            } => match self.own(state, rows, worker, counter) {
                Err(answer) => answer,
                Ok(row) => self.renew(state, rows, row, (furthest, horizon)),
            },
            Ask::Release {
                worker,
                counter,
                end,
                held,
            } => match self.own(state, rows, worker, counter) {
                Err(answer) => answer,
                Ok(row) => self.release(state, rows, row, (end, held)),
            },
        }
    }

    /// Whether who asks could undo what is stored for the answer, and would ask once more. A
    /// node that returns its worker ID would not.
    const fn can_come_again(&self) -> bool {
        self.input.revocable && !matches!(self.request.ask, Ask::Release { .. })
    }

    /// What the node is to remember.
    fn remembered(&self, state: &State, answer: &Answer) -> Memory {
        let renews = match self.request.ask {
            Ask::Renew {
                worker, counter, ..
            } => Some((worker, counter)),
            Ask::Acquire { .. } | Ask::Release { .. } => None,
        };
        let token = match answer {
            Answer::Granted(grant) => Some((grant.worker, grant.counter)),
            // These tokens count.
            Answer::Renewed { .. } | Answer::Refused(RegistryError::TooFarAhead { .. }) => renews,
            // The registry that counts is the one that the node has asked before.
            Answer::Refused(RegistryError::Stopped(_)) => {
                let seen = self.request.memory.filter(|memory| {
                    matches!(state.era.judge(&memory.era), Seen::After | Seen::Rival)
                });
                if let Some(memory) = seen {
                    return memory;
                }
                None
            }
            _ => None,
        };
        let token = token.map(|(worker, counter)| self.seal_token(state, worker, counter));
        state.memory(token)
    }

    fn seal_token(&self, state: &State, worker: WorkerId, counter: u64) -> Seal {
        state.key.seal_token(&Token {
            pool: self.pool,
            worker,
            counter,
            nonce: self.request.nonce,
            identity: &self.request.asker.identity,
        })
    }

    /// What the node remembers, if that proves that the registry has granted this token, and
    /// has lost the grant.
    fn proof(&self, state: &State, worker: WorkerId, counter: u64) -> Option<Memory> {
        let memory = self.request.memory?;
        let has_token = memory.token == Some(self.seal_token(state, worker, counter));
        (has_token && !state.is_own(&memory, self.input)).then_some(memory)
    }

    /// Whether the row's holder is who asks.
    fn is_holder(&self, row: &Row) -> bool {
        row.holder.identity == self.request.asker.identity
    }

    /// The clock of the server that asks, at the loss. A clock that is wrong by more than
    /// a day is not believed.
    fn clock_at(&self, loss: &Loss) -> UnixMillis {
        let passed = self.input.now.since(loss.at).max(Millis::ZERO);
        let clock = self.request.clock.plus(Millis::ZERO.minus(passed));
        clock.min(loss.at.as_nodes_clock().plus(DAY))
    }

    /// The row of a token, if it counts.
    fn own(
        &self,
        state: &mut State,
        rows: &mut Draft<impl Rows>,
        worker: WorkerId,
        counter: u64,
    ) -> Result<Row, Answer> {
        let nonce = self.request.nonce;
        let row = rows.get(worker);
        let (stored, holder) = row
            .as_ref()
            .map_or((0, nonce), |row| (row.counter, row.nonce));
        let why = match &row {
            Some(row) if counter == stored && nonce == holder && !self.is_holder(row) => {
                Fence::OtherRole
            }
            Some(row) if counter == stored && nonce == holder => {
                let again = self.request.number == row.number;
                if self.request.number < row.number {
                    return Err(Answer::Ignored);
                }
                match row {
                    row if again && self.request.clock != row.clock => {
                        let revoked = Some(self.input.now);
                        let row = row.clone();
                        rows.put(Row { revoked, ..row });
                        Fence::Copied
                    }
                    Row { released: true, .. } if again => return Err(Answer::Released),
                    Row { released: true, .. } => Fence::Released,
                    Row {
                        revoked: Some(_), ..
                    } => Fence::Revoked,
                    _ if cluster_horizon::is_dropped(rows, self.request) => Fence::Revoked,
                    row if again && row.renewed => return Err(self.renewed(row)),
                    row if state.is_known(self, row) => return Ok(row.clone()),
                    _ => Fence::Doubtful,
                }
            }
            _ if counter > stored || (counter == stored && nonce != holder) => {
                if let Some(memory) = self.proof(state, worker, counter) {
                    if memory.era == state.era {
                        state.lose(Cause::Token, self.input);
                        cluster_horizon::after_loss(state, rows);
                    }
                    cluster_horizon::appeared(rows, self.request, self.input.now);
                }
                Fence::Lost
            }
            _ => Fence::TakenOver,
        };
        let now = self.input.now;
        let other = row.filter(|row| {
            let is_other = row.holder.identity != self.request.asker.identity;
            let has_it = !row.released && now < row.leased_until;
            is_other && (why == Fence::TakenOver || has_it)
        });
        let since = other.as_ref().map_or(now, |row| row.since);
        let by = other.map(|row| Box::new(Named::from(&row.holder)));
        Err(Answer::Refused(RegistryError::Fenced { why, by, since }))
    }

    fn renew(
        &self,
        state: &mut State,
        rows: &mut Draft<impl Rows>,
        mut row: Row,
        (furthest, report): (UnixMillis, Option<UnixMillis>),
    ) -> Answer {
        let (pool, now, clock) = (self.pool, self.input.now, self.request.clock);
        let line = line(pool, &row, now);
        if let Some(refused) = self.too_far(state, line) {
            return refused;
        }
        // One generator that is further ahead waits. The server keeps its worker ID.
        let furthest = furthest.min(state.limit(self).max(line));
        let bound = State::extended(pool, &row, clock, furthest, now);
        row.bound = row.bound.max(bound);
        row.leased_until = now.plus(pool.lease);
        row.renewed = true;
        row.number = self.request.number;
        row.clock = self.request.clock;
        row.era = state.era.counter;
        state.serial += 1;
        let answer = self.renewed(&row);
        cluster_horizon::reported(state, rows, &row, pool, (report, now));
        rows.put(row);
        state.note_clock(self);
        answer
    }

    fn renewed(&self, row: &Row) -> Answer {
        Answer::Renewed {
            bound: row.bound,
            until: row.leased_until,
            contender: Contender::of(row, self.pool, self.input.now),
        }
    }

    fn release(
        &self,
        state: &mut State,
        rows: &mut Draft<impl Rows>,
        mut row: Row,
        (end, held): (UnixMillis, Option<UnixMillis>),
    ) -> Answer {
        row.bound = end.min(self.farthest(state, &row)).max(row.floor);
        row.leased_until = self.input.now;
        row.released = true;
        row.number = self.request.number;
        row.clock = self.request.clock;
        row.era = state.era.counter;
        state.serial += 1;
        cluster_horizon::left(state, rows, &row, held, self.input);
        rows.put(row);
        Answer::Released
    }

    /// The latest end that is believed: no server issues past its bound. A row from before
    /// a loss may lack renewals, so there it is what a renewal would be given now.
    fn farthest(&self, state: &State, row: &Row) -> UnixMillis {
        if row.era == state.era.counter {
            return row.bound;
        }
        let renewable = state.limit(self).max(line(self.pool, row, self.input.now));
        state.floor(self, &StoredRow::of(row)).max(renewable)
    }

    /// Refuses a clock that is too far ahead to be believed. What a grant's floor has led
    /// to is no clock error.
    fn too_far(&self, state: &State, line: UnixMillis) -> Option<Answer> {
        let limit = state.limit(self);
        let asked = self.request.clock;
        let now = self.input.now;
        (asked > line && asked > limit).then_some(Answer::Refused(RegistryError::TooFarAhead {
            asked,
            limit,
            now,
        }))
    }

    fn acquire(
        &self,
        state: &mut State,
        rows: &mut Draft<impl Rows>,
        (fixed, last): (Option<WorkerId>, Option<WorkerId>),
        latest: Option<UnixMillis>,
    ) -> Answer {
        let identity = self.request.asker.identity;
        if let Some(worker) = fixed.filter(|worker| !self.pool.has(*worker)) {
            return Answer::Refused(RegistryError::NotInPool { worker });
        }
        let own = match fixed {
            Some(worker) => rows.get(worker),
            None => rows.stored.last_held_by(&identity),
        };
        let mine = |row: &&Row| row.nonce == self.request.nonce && self.is_holder(row);
        if let Some(row) = own.as_ref().filter(mine) {
            if self.request.number < row.number {
                return Answer::Ignored;
            }
            let fits = latest.is_none_or(|latest| row.floor <= latest);
            let stands = !row.renewed && !row.released && row.revoked.is_none() && fits;
            let stands = stands && !cluster_horizon::is_dropped(rows, self.request);
            if stands && state.is_known(self, row) {
                return self.again(rows, row.clone());
            }
        }
        if let Some(refused) = self.too_far(state, UnixMillis::new(i64::MIN)) {
            return refused;
        }
        if let Some(count) = cluster_horizon::crowd(rows, &identity) {
            return Answer::Refused(RegistryError::ManyServers { count });
        }
        let chosen = match fixed {
            Some(worker) => self.choose_fixed(state, rows, worker, own),
            None => self.choose(state, rows, own, last, latest),
        };
        match chosen {
            Ok(stored) => self.grant(state, rows, &stored),
            Err(refused) => Answer::Refused(refused),
        }
    }

    /// Whether the lease has expired and a hold has passed, or the token was released.
    fn is_free(&self, row: &Row) -> bool {
        row.released || self.input.now >= row.leased_until.plus(self.pool.hold)
    }

    /// Whether this server may have the row now.
    fn may_have(&self, state: &State, row: &Row) -> bool {
        let asker = &self.request.asker;
        let held = !row.released && row.revoked.is_none();
        let successor = row.holder.identity == asker.identity && row.holder.started < asker.started;
        let at_once = held && successor && state.is_known(self, row);
        let grace = state.grace(self.pool, self.input.now).is_some();
        let mine = held && row.nonce == self.request.nonce && self.is_holder(row);
        at_once || (!grace && (mine || self.is_free(row)))
    }

    fn choose_fixed(
        &self,
        state: &State,
        rows: &mut Draft<impl Rows>,
        worker: WorkerId,
        row: Option<Row>,
    ) -> Result<StoredRow, RegistryError> {
        let now = self.input.now;
        let grace = state.grace(self.pool, now);
        match (row, grace) {
            (Some(row), _) if self.may_have(state, &row) => Ok(StoredRow::of(&row)),
            (_, Some((cause, retry))) => Err(RegistryError::Grace { cause, retry }),
            (None, None) => Ok(StoredRow::unused(self.pool, worker)),
            (Some(row), None) => {
                let refused = RegistryError::Held {
                    worker,
                    since: row.since,
                    retry: row.leased_until.plus(self.pool.hold).since(now),
                    by: Box::new(Named::from(&row.holder)),
                };
                let asker = Named::from(&self.request.asker);
                // One whose lease was revoked asks for its own.
                if row.nonce != self.request.nonce
                    && let Some(contender) = Contender::noted(&row, asker, self.pool, now)
                {
                    let contender = Some(Box::new(contender));
                    rows.put(Row { contender, ..row });
                }
                Err(refused)
            }
        }
    }

    /// Any worker ID of the pool.
    fn choose(
        &self,
        state: &State,
        rows: &mut Draft<impl Rows>,
        own: Option<Row>,
        last: Option<WorkerId>,
        latest: Option<UnixMillis>,
    ) -> Result<StoredRow, RegistryError> {
        let (pool, now) = (self.pool, self.input.now);
        let fits = |stored: &StoredRow| latest.is_none_or(|at| state.floor(self, stored) <= at);
        let lost = last.and_then(|worker| rows.get(worker));
        let before = own.into_iter().chain(lost);
        for row in before.filter(|row| pool.has(row.worker)) {
            if self.may_have(state, &row) && fits(&StoredRow::of(&row)) {
                return Ok(StoredRow::of(&row));
            }
        }
        if let Some((cause, retry)) = state.grace(pool, now) {
            let spare = self.spare(state, rows);
            return spare.ok_or(RegistryError::Grace { cause, retry });
        }
        let expired = now.plus(Millis::ZERO.minus(pool.hold));
        let rested = expired.plus(Millis::ZERO.minus(DAY));
        let passed = latest.unwrap_or(now.as_nodes_clock());
        let long = rows.stored.longest_free(expired, passed);
        let long = long.filter(|row| fits(&StoredRow::of(row)));
        if let Some(row) = long.as_ref().filter(|row| row.leased_until <= rested) {
            return Ok(StoredRow::of(row));
        }
        let unused = rows
            .stored
            .unused()
            .map(|worker| StoredRow::unused(pool, worker));
        if let Some(stored) = unused.filter(fits) {
            return Ok(stored);
        }
        if let Some(latest) = latest {
            let long = long.as_ref().map(StoredRow::of);
            return long.ok_or(RegistryError::NonePassed { latest });
        }
        let never = UnixMillis::new(i64::MAX);
        if let Some(row) = long.or_else(|| rows.stored.longest_free(expired, never)) {
            return Ok(StoredRow::of(&row));
        }
        let soonest = rows
            .stored
            .longest_free(RegistryMillis::new(i64::MAX), never);
        let retry = soonest.map_or(pool.hold, |row| row.leased_until.plus(pool.hold).since(now));
        Err(RegistryError::NoneFree { retry })
    }

    /// A spare worker ID for a server that hosts the registry and was just promoted. The
    /// timelines take turns between two groups, so that two promotions in a row, the
    /// first of which is lost, give two different ones.
    fn spare(&self, state: &State, rows: &mut Draft<impl Rows>) -> Option<StoredRow> {
        if !self.input.asker_hosts || state.loss?.cause != Cause::Origin {
            return None;
        }
        let turn = i64::try_from(self.input.origin.timeline % 2).ok()?;
        let spares = self.pool.first_spare()..self.pool.ids.end;
        let mut group = spares
            .filter(|id| (id - self.pool.first_spare()) % 2 == turn)
            .filter_map(|id| WorkerId::new(i32::try_from(id).ok()?))
            .filter(|worker| self.pool.has(*worker));
        let unused = group.find(|worker| rows.get(*worker).is_none());
        unused.map(|worker| StoredRow::unused(self.pool, worker))
    }

    /// The grant whose reply was lost. The incarnation has not used it, for it asks.
    fn again(&self, rows: &mut Draft<impl Rows>, mut row: Row) -> Answer {
        row.number = self.request.number;
        row.clock = self.request.clock;
        let answer = self.granted(rows, &row);
        rows.put(row);
        answer
    }

    fn granted(&self, rows: &mut Draft<impl Rows>, row: &Row) -> Answer {
        let reached = rows.stored.reached_by(self.request.asker.identity.system);
        Answer::Granted(Grant {
            worker: row.worker,
            counter: row.counter,
            floor: row.floor,
            bound: row.bound,
            reached: reached.unwrap_or(row.floor),
            until: row.leased_until,
            terms: self.pool.terms(),
        })
    }

    fn grant(&self, state: &mut State, rows: &mut Draft<impl Rows>, stored: &StoredRow) -> Answer {
        let (pool, now, request) = (self.pool, self.input.now, self.request);
        let reached = cluster_horizon::floor(state, rows, request, self.input);
        let floor = state.floor(self, stored);
        let floor = floor.max(reached.unwrap_or(floor));
        let ahead = floor.plus(first_part(pool));
        let row = Row {
            worker: stored.worker,
            counter: stored.counter + 1,
            nonce: request.nonce,
            released: false,
            revoked: None,
            holder: Holder::clone(&request.asker),
            since: now,
            floor,
            start: floor.max(request.clock),
            renewed: false,
            leased_until: now.plus(pool.lease),
            bound: request.clock.plus(pool.lease).max(ahead),
            number: request.number,
            clock: request.clock,
            era: state.era.counter,
            contender: None,
        };
        state.serial += 1;
        let answer = self.granted(rows, &row);
        cluster_horizon::joined(rows, &row, pool, self.input);
        rows.put(row);
        answer
    }
}
