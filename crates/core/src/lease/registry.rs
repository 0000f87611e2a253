//! What a registry grants.
//!
//! [`handle`] decides everything, and stores nothing. A host does the same for each request,
//! whatever store it has:
//!
//! 1. It **reads** the stored [`State`], the pool, and [`Rows`]: all of them, or for a renewal that of
//!    its worker ID ([`only_row`]).
//! 2. It calls [`handle`]. If that needs more rows, the host reads all, and calls again.
//! 3. It **writes** the [`Changes`], **before** the reply counts: all or nothing. It writes nothing
//!    if the state, or a row that it writes, is no longer as it was read. Then it begins anew.
//!
//! So two requests that change the state exclude each other, and so do two that change a row. A
//! renewal that is answered from its row alone changes that row alone: it excludes those that change
//! the state or that row, and nobody else.
//!
//! # The rules
//!
//! 1. **Floor and bound.** A grant's floor is at or above the row's bound. The bound only
//!    rises, except by a release, which sets it to the true end. A release does not raise it, unless
//!    a loss may have taken a renewal.
//! 2. **Tokens.** A renewal and a release count only with the row's counter and nonce. A
//!    request that arrives after a later one of its incarnation changes nothing; one that
//!    arrives twice gets the same answer twice. Two different requests with one number are
//!    those of two copies of a running machine: their token ends. A grant whose reply was lost is
//!    not repeated to a later request, since a copy may have got it: the next grant is that of
//!    another worker ID, or begins at its bound.
//! 3. **Who may take over.** Anybody when the holder was silent for the patience and a hold. If
//!    the registry itself has heard nobody for longer than the patience, that says nothing of
//!    anybody: then each that lives has the patience once more ([`super::state::Gap`]). At
//!    once only a later incarnation of the same identity; never an earlier one. So live
//!    copies do not take the worker ID from each other in turn, and a message that was
//!    under way when its sender crashed takes nothing from the successor.
//! 4. **Which worker ID.** One that this server had before, if its bound has passed. Else one
//!    that is free and whose bound has passed: of a holder that has been gone for a day; or that was
//!    never granted; or that has been free for longest. But a server that has worker IDs
//!    of its own leaves a reserve, a quarter of the pool, and takes no further one if three of
//!    its own have bounds that have not passed. Else its own one with the least bound, and
//!    in the end any with the least bound.
//! 5. **The registry's clock goes back.** A patience that would then last longer than a
//!    patience is cut, and so is a grace period: nobody waits longer.
//! 6. **A lead does not grow.** See `State::extended`. A young lease is short, and that of a claim
//!    stays so: who comes next leads by what is left of it. Who leads because of a loss, or of a new
//!    pool, gets a patience past its floor, or a hold if that is less, as no crash has moved it.
//! 7. **A wrong clock.** A server more than a day past the registry's clock and the greatest
//!    time that it has stored is refused, so a server whose clock is wrong is told before it
//!    issues, and no server moves a bound by more. A generator that leads its server's
//!    clock by more gets a bound up to that day, and its server keeps its worker ID.
//! 8. **A loss** begins a new [`Era`]. There are no grants for a hold and the patience, or as much
//!    longer as may be lost, so that the servers that live keep their worker IDs. Then every floor
//!    is at or above what a holder of a lost grant can have been given: see `State::floor`.
//!    Excepted from the wait, but not from the floor, is a later incarnation of the same identity
//!    whose patience and hold had not passed. A lease of which they had is not renewed: a takeover
//!    may be lost. What is lost is short, so a lease that was granted in it is; but a row that
//!    somebody had for long may have been renewed for a whole lease. Such a row rests until that
//!    has passed: see `State::rests`.
//! 9. **What a node remembers** counts: a later change than the registry knows, a token that it
//!    does not know, or a bound past that of the row, each of its present era, shows a loss. So a
//!    holder that lives tells what is lost of it: its grant or its latest renewal counts if
//!    patience and hold had not passed since at the loss, for then nobody else has got the
//!    worker ID. Who remembers another registry is refused once. It is told what to remember from
//!    then on, and gives up what it had. See `State::listen`.
//! 10. **Before the registry.** Who takes any worker ID of a pool that nobody has used
//!     ([`Pool::unused`]) may begin when the pool was made. A claim begins `max_ahead` after that,
//!     since its server may have used the number without a registry. In any other pool, servers
//!     of another registry may have led by a lease, a hold and `max_ahead`.
//! 11. **Back in time.** A server whose clock was set back says which worker ID it has. It gets
//!     another one, whose floor is not after its clock, in the order of rule 4, or none. It has
//!     two until it releases the one of before, which goes to the tail then.
//!
//! # Trust
//!
//! Who may ask a registry is a server, and servers of one registry trust each other, as the
//! members of an etcd do: what one of them says of its lease and of the registry is believed. A
//! reply counts for a server when what it says is stored: of a database, when the transaction has
//! been committed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;

use super::node::FLOOR_LIMIT;
use super::state::{DAY, Loss, RegistryInput, State};
use super::{
    Answer, Cause, Era, EraRelation, Fence, FloorCause, Grant, Holder, HolderName, LastReport,
    Memory, Pool, RegistryError, RegistryMillis, Reply, Request, RequestKind, Row, Stoppage,
};
use crate::id::{Millis, UnixMillis, WorkerId};

/// As much of a lease is granted to an incarnation that leads, before any time has
/// passed, but half a second at most: enough to issue, too little to matter.
const FIRST_PART: i64 = 64;
const FIRST_PART_MAX: Millis = Millis::new(500);
/// A node renews so often, and three times in the patience.
const AGAIN_MAX: Millis = Millis::new(10_000);
/// Requests that are answered at the same time read the clock in any order. So much later is no
/// sign that the clock has gone back.
const CLOCK_SLACK: Millis = Millis::new(1_000);
/// An identity that has so many worker IDs whose bound has not passed gets no further one whose
/// bound has.
const RESTING_MAX: usize = 3;
/// A request cuts no more leases that are too long than a transaction of etcd may change. The next
/// request cuts more of them.
const CUT_MAX: usize = 100;

/// Which rows are free.
#[derive(Clone, Copy)]
struct Free {
    /// A row is free that is released, or has `leased_until` at or before it.
    expired: RegistryMillis,
    /// While a loss is not over: rows of at least this era, and those that were released at or
    /// before this instant.
    known: Option<(u64, RegistryMillis)>,
}

impl Free {
    fn has(&self, row: &Row) -> bool {
        let is_free = row.released || row.leased_until <= self.expired;
        let is_known = self
            .known
            .is_none_or(|(era, at)| row.era >= era || (row.released && row.leased_until <= at));
        is_free && is_known
    }
}

/// What a request changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Rows, which may be new.
    pub rows: BTreeMap<WorkerId, Row>,
    /// The state has changed, and is to be stored.
    pub state: bool,
}

/// The rows that a host has read. A row that was never granted does not exist.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Those of the pool's namespace.
    pub rows: BTreeMap<WorkerId, Row>,
    /// Those of other namespaces.
    pub elsewhere: Vec<Row>,
    /// All were read. Otherwise only that of [`only_row`].
    pub is_all: bool,
}

impl Rows {
    /// Those of the pool's range. Others of the namespace are those of other pools, which may have
    /// been dropped.
    fn of<'a>(&'a self, pool: &'a Pool) -> impl Iterator<Item = &'a Row> {
        let rows = self.rows.values();
        rows.filter(|row| pool.ids.contains(&i64::from(row.worker.get())))
    }

    /// Those of worker IDs that the pool can grant.
    fn grantable<'a>(&'a self, pool: &'a Pool) -> impl Iterator<Item = &'a Row> {
        self.of(pool).filter(|row| pool.has(row.worker))
    }

    fn all(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().chain(&self.elsewhere)
    }

    /// The row that forbids to drop the pool, if there is one: a server may use it.
    #[must_use]
    pub fn in_use<'a>(&'a self, pool: &'a Pool, now: RegistryMillis) -> Option<&'a Row> {
        self.of(pool)
            .filter(|row| !row.released && row.leased_until.plus(pool.hold) > now)
            .max_by_key(|row| row.leased_until)
    }
}

/// The rows that were read, and what a request changes.
struct Draft {
    stored: Rows,
    changes: Changes,
}

impl Draft {
    fn get(&self, worker: WorkerId) -> Option<Row> {
        self.stored.rows.get(&worker).cloned()
    }

    fn put(&mut self, row: Row) {
        self.changes.rows.insert(row.worker, row);
    }

    /// Rule 5: cuts each lease that ends later than this. Returns whether there was one.
    fn cut(&mut self, pool: &Pool, latest: RegistryMillis) -> bool {
        let is_later = |row: &&Row| row.leased_until > latest.plus(CLOCK_SLACK);
        let later = self.stored.of(pool).filter(is_later).cloned();
        let cut = later.map(|row| Row {
            leased_until: latest,
            ..row
        });
        let cut: BTreeMap<_, _> = cut.map(|row| (row.worker, row)).collect();
        let is_any = !cut.is_empty();
        self.stored.rows.extend(cut.clone());
        self.changes.rows.extend(cut.into_iter().take(CUT_MAX));
        is_any
    }

    /// Whether the answer would be the same if all rows had been read, and others may be changed
    /// meanwhile: it changes nothing, or its row, by a later request with the same token.
    fn stands(&self) -> bool {
        let mut rows = self.changes.rows.values();
        let is_next = rows.all(|row| {
            let before = self.stored.rows.get(&row.worker);
            before.is_some_and(|before| {
                let is_same = (before.counter, before.nonce) == (row.counter, row.nonce);
                is_same && before.number < row.number
            })
        });
        self.stored.is_all || (is_next && !self.changes.state)
    }
}

/// The only worker ID of which a row is read for a request; `None` if all rows are read.
#[must_use]
pub const fn only_row(ask: &RequestKind) -> Option<WorkerId> {
    match ask {
        RequestKind::Renew { worker, .. } => Some(*worker),
        RequestKind::Acquire { .. } | RequestKind::Release { .. } => None,
    }
}

/// The answer to a request. `state` and the changes are to be stored before the reply leaves,
/// also if it is a refusal. `None`: all rows are needed, and nothing of this counts.
pub fn handle(
    state: &mut State,
    pool: &Pool,
    rows: Rows,
    request: &Request,
    input: &RegistryInput,
) -> Option<(Reply, Changes)> {
    let rows = &mut Draft {
        stored: rows,
        changes: Changes::default(),
    };
    let before = state.clone();
    let heard = rows.stored.all().map(|row| row.heard).max();
    state.notice_gap(pool, input.now, heard);
    state.longest.hear(&pool.lengths());
    match request.ask {
        RequestKind::Renew { .. } => state.notice(input, heard),
        RequestKind::Acquire { .. } | RequestKind::Release { .. } => state.change(input, heard),
    }
    let desk = Desk {
        pool,
        request,
        input,
    };
    let listened = state.listen(&desk);
    let answer = match listened {
        Err(refused) => Answer::Refused(refused),
        Ok(()) => {
            let latest = input.now.plus(pool.patience());
            if rows.stored.is_all && rows.cut(pool, latest) {
                state.serial += 1;
            }
            desk.answer(state, rows)
        }
    };
    let reply = Reply {
        nonce: request.nonce,
        number: request.number,
        memory: desk.remembered(state, &answer),
        now: input.now,
        answer,
    };
    rows.changes.state = *state != before;
    rows.stands().then(|| (reply, mem::take(&mut rows.changes)))
}

/// Ends the token of a worker ID: it is no longer renewed, and the worker ID is free
/// when the lease has expired and a hold has passed. The row and the state are to be stored. Returns
/// from when the worker ID is free.
pub fn revoke(
    state: &mut State,
    pool: &Pool,
    row: &mut Row,
    input: &RegistryInput,
) -> RegistryMillis {
    state.change(input, None);
    row.revoked = row.revoked.or(Some(input.now));
    state.serial += 1;
    match row.released {
        true => row.leased_until,
        false => row.leased_until.plus(pool.hold),
    }
}

impl State {
    /// Compares what the node remembers. The registry stops, and has stopped for good, if
    /// another one counts.
    ///
    /// What a server remembers of another registry tells this one nothing. But one
    /// that has just been made has taken the place of another, as a rule, and the servers of
    /// the other one ask soon. What they have issued is not known here, and is below what is
    /// granted after a loss. So the first of them shows a loss; later, and a second time,
    /// none does. By then, what was granted elsewhere has ended.
    fn listen(&mut self, desk: &Desk) -> Result<(), RegistryError> {
        let (request, input) = (desk.request, desk.input);
        if let Some(memory) = request.memory {
            if memory.registry != self.registry {
                let most = desk.pool.lease.plus(desk.pool.hold);
                let is_new = self.loss.is_none_or(|loss| loss.cause == Cause::New);
                if is_new && input.now.since(self.made) < most {
                    self.lose(Cause::Foreign, input, None);
                }
                return Err(RegistryError::Foreign);
            }
            if self.stopped.is_none() {
                match self.era.judge(&memory.era) {
                    EraRelation::Before => {}
                    EraRelation::Same if memory.serial > self.serial => {
                        self.lose(Cause::Serial, input, None);
                    }
                    EraRelation::Same => {}
                    EraRelation::After | EraRelation::Rival => {
                        self.stopped = Some(Stoppage {
                            since: input.now,
                            seen: memory.era,
                            by: Box::new(HolderName::from(&request.asker)),
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

    /// The floor of a grant of this row: at or above every bound that a holder can have
    /// got under it.
    ///
    /// What was granted and lost had a bound of at most the holder's clock, plus
    /// `max_ahead` that a generator may lead it, plus what a lease of its age gets:
    /// [`Self::growth`]. The holder's clock at the loss was that of the registry, or that of the
    /// server that now asks, or the clock with which the row was renewed and the time since, if it was
    /// not more than a hold past all of them. Who leads by a floor has a bound of at most the line:
    /// that of the row's grant; or that of a grant that is lost, which began at the row's bound. A
    /// grant in the grace period can be lost by the next loss, so the floors after a grace period are
    /// another hold above it.
    fn floor(&self, desk: &Desk, row: &StoredRow) -> UnixMillis {
        let Some(loss) = self.loss else {
            return row.bound;
        };
        let pool = desk.pool;
        let second = match self.grace(pool, desk.input.now) {
            Some(_) => Millis::ZERO,
            None => pool.hold,
        };
        let mut clocks = loss.top.as_nodes_clock().max(desk.clock_at(&loss));
        let mut floor = row.bound;
        if row.era != self.era.counter {
            let silent = loss.top.since(row.heard).max(Millis::ZERO);
            let mut line = row.bound.plus(loss.lost_in_all.min(silent));
            if !row.is_settled(&loss) {
                clocks = clocks.max(row.clock.plus(silent));
                line = line.max(row.start.plus(loss.top.since(row.granted)));
            }
            floor = floor.max(line.plus(pool.hold).plus(second));
        }
        let margin = self.growth(desk, &loss, row);
        let margin = margin.plus(pool.hold).plus(pool.max_ahead).plus(second);
        floor.max(clocks.plus(margin))
    }

    /// How far a bound of this row can lie ahead of the holder's clock by what is lost. Who had
    /// the row may have had it for long. Everybody else has got it in what is lost, so has a
    /// young lease; and claims have short leases.
    fn growth(&self, desk: &Desk, loss: &Loss, row: &StoredRow) -> Millis {
        let fast = desk.clock_at(loss).since(loss.top.as_nodes_clock());
        let age = match row.since {
            Some(since) if row.era != self.era.counter && !row.is_settled(loss) => {
                loss.top.since(since)
            }
            _ => Millis::ZERO,
        };
        let lengths = desk.pool.lengths();
        let loss = Loss {
            lost: loss.lost.plus(fast.max(Millis::ZERO)),
            ..*loss
        };
        loss.growth(&lengths, age)
    }

    /// Whether the row rests: its holder of before may have a long lease, of which nobody knows
    /// any more. Nobody leads by that.
    fn rests(&self, desk: &Desk, row: &StoredRow) -> bool {
        let Some(loss) = self.loss else { return false };
        let unused = StoredRow::unused(desk, row.worker, false);
        let is_long = self.growth(desk, &loss, row) > self.growth(desk, &loss, &unused);
        is_long && self.floor(desk, row) > desk.request.clock
    }

    /// The bound of a renewal.
    ///
    /// A server that does not lead its clock gets its span. One that leads by its floor
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
        let span = span(pool, row, now);
        let lead = if used <= line {
            used.plus(span).min(line)
        } else {
            used.plus(passed.min(span))
        };
        clock.plus(span).max(lead)
    }

    /// The latest bound that is not taken for an error.
    fn limit(&self, now: RegistryMillis) -> UnixMillis {
        self.top.max(now).as_nodes_clock().plus(DAY)
    }

    /// While a row may rest because of the loss: which rows do not, see [`Free::known`].
    fn known(&self, desk: &Desk, clock: UnixMillis) -> Option<(u64, RegistryMillis)> {
        let pool = desk.pool;
        let is_long = |loss: &Loss| loss.growth(&pool.lengths(), Millis::ZERO) < pool.lease;
        let loss = self.loss.filter(is_long)?;
        let clocks = loss.top.as_nodes_clock().max(desk.clock_at(&loss));
        let end = clocks
            .plus(pool.lease)
            .plus(pool.hold.times(2))
            .plus(pool.max_ahead);
        (end > clock).then_some((self.era.counter, loss.at))
    }

    /// Whether no other server can have got the worker ID of this row, which its holder has not
    /// returned, by a grant that is lost. Either the row was granted or renewed since the loss, or
    /// its patience and hold had not passed then: neither by the registry's clock, nor by that of
    /// the server that asks, which is the row's, nor by what that one has measured. It measures
    /// right also if it is slow.
    fn is_known(&self, desk: &Desk, row: &Row) -> bool {
        let Some(loss) = self.loss else { return true };
        let free_from = row.leased_until.plus(desk.pool.hold);
        let clock = desk.clock_at(&loss);
        let measured = row.heard.plus(clock.since(row.clock));
        let expired = free_from <= loss.at.max(measured) || free_from.as_nodes_clock() <= clock;
        row.era == self.era.counter || !expired
    }
}

/// What is first granted to an incarnation that leads.
fn first_part(pool: &Pool) -> Millis {
    let part = Millis::new(pool.lease.get() / FIRST_PART);
    part.min(FIRST_PART_MAX).max(Millis::new(1))
}

/// How far a bound lies ahead of the holder's clock. A claim has a short lease: who comes next has
/// no other worker ID to take.
fn span(pool: &Pool, row: &Row, now: RegistryMillis) -> Millis {
    if row.claimed {
        return pool.patience();
    }
    pool.lengths().span(now.since(row.since))
}

/// How far a grant's start has come with the time since: a lead by a floor that does not
/// grow.
fn line(pool: &Pool, row: &Row, now: RegistryMillis) -> UnixMillis {
    row.start.plus(now.since(row.since).max(first_part(pool)))
}

/// What is stored of a worker ID, also if there is no row yet.
#[derive(Clone, Debug)]
struct StoredRow {
    worker: WorkerId,
    counter: u64,
    bound: UnixMillis,
    era: u64,
    granted: RegistryMillis,
    start: UnixMillis,
    heard: RegistryMillis,
    clock: UnixMillis,
    /// Since when a lease has grown that may be long.
    since: Option<RegistryMillis>,
    released: bool,
    until: RegistryMillis,
    /// Whose row it was.
    system: Option<u64>,
}

impl StoredRow {
    fn of(row: &Row) -> Self {
        Self {
            worker: row.worker,
            counter: row.counter,
            bound: row.bound,
            era: row.era,
            granted: row.since,
            start: row.start,
            heard: row.heard,
            clock: row.clock,
            since: (!row.claimed).then_some(row.since),
            released: row.released,
            until: row.leased_until,
            system: Some(row.holder.identity.system),
        }
    }

    /// Whether its holder has returned it, so that nothing that is lost can have been that one's.
    fn is_settled(&self, loss: &Loss) -> bool {
        self.released && self.until <= loss.at
    }

    /// Rule 10.
    fn unused(desk: &Desk, worker: WorkerId, is_claim: bool) -> Self {
        let pool = desk.pool;
        let led = match (is_claim, pool.unused) {
            (true, _) => pool.max_ahead,
            (false, true) => Millis::ZERO,
            (false, false) => pool.lease.plus(pool.hold).plus(pool.max_ahead),
        };
        Self {
            worker,
            counter: 0,
            bound: pool.made.plus(led).as_nodes_clock(),
            era: 0,
            granted: pool.made,
            start: pool.made.as_nodes_clock(),
            heard: pool.made,
            clock: pool.made.as_nodes_clock(),
            since: None,
            released: false,
            until: pool.made,
            system: None,
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
    fn answer(&self, state: &mut State, rows: &mut Draft) -> Answer {
        match self.request.ask {
            RequestKind::Acquire {
                fixed,
                last,
                holding,
            } => self.acquire(state, rows, (fixed, last), holding),
            RequestKind::Renew { furthest, .. } => match self.own(state, rows) {
                Err(answer) => answer,
                Ok(row) => self.renew(state, rows, row, furthest),
            },
            RequestKind::Release { end, .. } => match self.own(state, rows) {
                Err(answer) => answer,
                Ok(row) => self.release(state, rows, row, end),
            },
        }
    }

    /// What the node is to remember.
    fn remembered(&self, state: &State, answer: &Answer) -> Memory {
        let clock = self.request.clock;
        let held = match *answer {
            Answer::Granted(Grant { until, .. }) | Answer::Renewed { until, .. } => {
                Some(LastReport { until, clock })
            }
            // The token counts, and what the node knows of it is as it was.
            Answer::Refused(RegistryError::TooFarAhead { .. }) => self.held_in().map(|it| it.1),
            // The registry that counts is the one that the node has asked before. Or it is this
            // one in the end, and what the node knows counts.
            Answer::Refused(RegistryError::Stopped(_)) => match self.request.memory {
                Some(memory) => return memory,
                None => None,
            },
            _ => None,
        };
        state.memory(held)
    }

    /// In which era the registry, or a copy of it, has granted or renewed the token of the request,
    /// with its bound, and what it has noted then.
    fn held_in(&self) -> Option<(Era, LastReport)> {
        let memory = self.request.memory?;
        Some((memory.era, memory.held?))
    }

    /// Whether the node has heard the registry in its present era. Otherwise the request may have
    /// been under way when the registry lost something.
    fn knows_era(&self, state: &State) -> bool {
        let memory = self.request.memory;
        memory.is_some_and(|memory| memory.era == state.era)
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

    /// When the holder was heard.
    fn heard_at(&self, held: LastReport) -> RegistryMillis {
        held.until.plus(Millis::ZERO.minus(self.pool.patience()))
    }

    /// The row of the request's token, if it counts.
    fn own(&self, state: &mut State, rows: &mut Draft) -> Result<Row, Answer> {
        let Some((worker, counter, bound)) = self.request.ask.token() else {
            return Err(Answer::Ignored);
        };
        let nonce = self.request.nonce;
        let row = rows.get(worker);
        let (stored, holder) = row
            .as_ref()
            .map_or((0, nonce), |row| (row.counter, row.nonce));
        let why = match &row {
            Some(row) if counter == stored && nonce == holder => {
                let again = self.request.number == row.number;
                if self.request.number < row.number {
                    return Err(Answer::Ignored);
                }
                match row {
                    row if again && self.request.clock != row.clock => {
                        self.end_copied(rows, row.clone());
                        Fence::Copied
                    }
                    Row { released: true, .. } if again => return Err(Answer::Released),
                    Row { released: true, .. } => Fence::Released,
                    Row {
                        revoked: Some(_), ..
                    } => Fence::Revoked,
                    row if again && row.renewed => return Err(self.renewed(row)),
                    row => return self.confirmed(state, rows, row.clone(), bound),
                }
            }
            _ if counter > stored || (counter == stored && nonce != holder) => {
                // One of an earlier era was lost by a loss that is known already.
                if self.held_in().is_some_and(|(era, _)| era == state.era) {
                    state.lose(Cause::Token, self.input, None);
                }
                if counter > stored
                    && let Some(told) = self.told(state, row.as_ref(), (worker, counter, bound))
                {
                    return Ok(told);
                }
                Fence::Lost
            }
            _ => Fence::TakenOver,
        };
        Err(self.fenced(row, why))
    }

    /// The row, with a token that counts, unless a loss lies between. What the node knows of its
    /// latest renewal is not forgotten, the bound as far as a renewal would go: if the registry does
    /// not know it, that renewal is lost. As long as it lasted, nobody else got the worker ID.
    fn confirmed(
        &self,
        state: &mut State,
        rows: &mut Draft,
        mut row: Row,
        bound: UnixMillis,
    ) -> Result<Row, Answer> {
        if bound > row.bound
            && let Some((era, held)) = self.held_in()
        {
            if era == state.era {
                state.lose(Cause::Serial, self.input, None);
            }
            row.bound = row.bound.max(bound.min(self.farthest(state, &row)));
            if held.until > row.leased_until {
                row.leased_until = held.until;
                row.heard = self.heard_at(held);
                row.clock = held.clock;
            }
            // Kept in any case: the node is told another era, with which it shows nothing.
            rows.put(row.clone());
        }
        match state.is_known(self, &row) {
            true => Ok(row),
            false => Err(self.fenced(Some(row), Fence::Doubtful)),
        }
    }

    /// The row of a grant that is lost, as its holder tells it, if nobody else has got the worker ID
    /// since: neither before the loss nor after it. A bound that no registry grants is not believed.
    fn told(
        &self,
        state: &State,
        before: Option<&Row>,
        (worker, counter, bound): (WorkerId, u64, UnixMillis),
    ) -> Option<Row> {
        let (era, held) = self.held_in()?;
        let heard = self.heard_at(held);
        let row = Row {
            worker,
            counter,
            nonce: self.request.nonce,
            released: false,
            revoked: None,
            holder: Holder::clone(&self.request.asker),
            claimed: before.is_some_and(|row| row.claimed),
            since: heard,
            floor: before.map_or(UnixMillis::new(0), |row| row.bound),
            start: bound.max(held.clock),
            renewed: true,
            heard,
            leased_until: held.until,
            bound: bound.max(before.map_or(bound, |row| row.bound)),
            number: 0,
            clock: held.clock,
            era: era.counter,
        };
        let is_of_before = |row: &Row| row.era != state.era.counter;
        let is_his = before.is_none_or(is_of_before) && self.pool.has(worker);
        let is_granted = bound <= state.limit(self.input.now);
        (is_his && is_granted && state.is_known(self, &row)).then_some(row)
    }

    /// Ends the token of a holder that has a copy.
    fn end_copied(&self, rows: &mut Draft, row: Row) {
        let revoked = Some(self.input.now);
        rows.put(Row { revoked, ..row });
    }

    fn fenced(&self, row: Option<Row>, why: Fence) -> Answer {
        let now = self.input.now;
        let other = row.filter(|row| {
            let is_other = row.holder.identity != self.request.asker.identity;
            let has_it = !row.released && now < row.leased_until;
            is_other && (why == Fence::TakenOver || has_it)
        });
        let since = other.as_ref().map_or(now, |row| row.since);
        let by = other.map(|row| Box::new(HolderName::from(&row.holder)));
        Answer::Refused(RegistryError::Fenced { why, by, since })
    }

    fn renew(
        &self,
        state: &mut State,
        rows: &mut Draft,
        mut row: Row,
        furthest: UnixMillis,
    ) -> Answer {
        let (pool, now, clock) = (self.pool, self.input.now, self.request.clock);
        let line = line(pool, &row, now);
        if let Some(refused) = self.too_far(state, line) {
            return refused;
        }
        // One generator that is further ahead waits. The server keeps its worker ID.
        let limit = state.limit(now).max(line);
        let bound = State::extended(pool, &row, clock, furthest.min(limit), now);
        row.bound = row.bound.max(bound);
        row.renewed = true;
        self.heard(state, &mut row);
        row.leased_until = now.plus(pool.patience());
        let by = row.holder.identity;
        let loss = state.loss.as_mut();
        if loss.is_some_and(|loss| loss.agrees(by, clock, now, pool.hold)) {
            state.top = now;
        }
        let answer = self.renewed(&row);
        rows.put(row);
        answer
    }

    /// The holder of this row has asked.
    fn heard(&self, state: &State, row: &mut Row) {
        row.heard = self.input.now;
        row.number = self.request.number;
        row.clock = self.request.clock;
        if self.knows_era(state) {
            row.era = state.era.counter;
        }
    }

    fn renewed(&self, row: &Row) -> Answer {
        Answer::Renewed {
            bound: row.bound,
            until: row.leased_until,
            again: self.again_after(),
        }
    }

    /// When a node is to renew.
    fn again_after(&self) -> Millis {
        Millis::new(self.pool.patience().get() / 3).min(AGAIN_MAX)
    }

    fn release(
        &self,
        state: &mut State,
        rows: &mut Draft,
        mut row: Row,
        end: UnixMillis,
    ) -> Answer {
        row.bound = end.min(self.farthest(state, &row)).max(row.floor);
        row.leased_until = self.input.now;
        row.released = true;
        self.heard(state, &mut row);
        state.serial += 1;
        rows.put(row);
        Answer::Released
    }

    /// The latest end that is believed: no server issues past its bound. A row from before
    /// a loss may lack renewals, so there it is what a renewal would be given now.
    fn farthest(&self, state: &State, row: &Row) -> UnixMillis {
        if row.era == state.era.counter {
            return row.bound;
        }
        let limit = state.limit(self.input.now);
        let renewable = limit.max(line(self.pool, row, self.input.now));
        state.floor(self, &StoredRow::of(row)).max(renewable)
    }

    /// Refuses a clock that is too far ahead to be believed. What a grant's floor has led
    /// to is no clock error.
    fn too_far(&self, state: &State, line: UnixMillis) -> Option<Answer> {
        let asked = self.request.clock;
        let limit = state.limit(self.input.now);
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
        rows: &mut Draft,
        (fixed, last): (Option<WorkerId>, Option<WorkerId>),
        holding: Option<WorkerId>,
    ) -> Answer {
        let identity = self.request.asker.identity;
        if let Some(worker) = fixed.filter(|worker| !self.pool.has(*worker)) {
            return Answer::Refused(RegistryError::NotInPool { worker });
        }
        let is_own = |row: &&Row| row.holder.identity == identity;
        let mut own: Vec<Row> = match fixed {
            Some(worker) => rows.get(worker).into_iter().collect(),
            None => rows.stored.of(self.pool).filter(is_own).cloned().collect(),
        };
        // The latest first.
        own.sort_by_key(|row| Reverse((row.since, row.holder.started)));
        let mine = |row: &&Row| row.nonce == self.request.nonce && self.is_holder(row);
        if own
            .iter()
            .filter(mine)
            .any(|row| row.number > self.request.number)
        {
            return Answer::Ignored;
        }
        // A grant whose reply was lost may have reached a copy, so it is repeated to the same request
        // only, or if nobody accepts it yet.
        let is_same = |row: &Row| row.number == self.request.number;
        let is_far = |row: &Row| row.floor.since(self.request.clock) > FLOOR_LIMIT;
        let same = |row: &&Row| mine(row) && (is_same(row) || (!row.renewed && is_far(row)));
        if let Some(row) = own.iter().find(same) {
            if is_same(row) && (row.clock != self.request.clock || row.renewed) {
                self.end_copied(rows, row.clone());
                return self.fenced(Some(row.clone()), Fence::Copied);
            }
            let fits = holding.is_none() || row.floor <= self.request.clock;
            let stands = !row.released && row.revoked.is_none() && fits;
            if stands && state.is_known(self, row) {
                return self.granted(rows, row, FloorCause::Used);
            }
        }
        if let Some(refused) = self.too_far(state, UnixMillis::new(i64::MIN)) {
            return refused;
        }
        let chosen = match fixed {
            Some(worker) => self.choose_fixed(state, worker, own.pop()),
            None => self.choose(state, rows, own, last, holding),
        };
        match chosen {
            Ok(stored) => self.grant(state, rows, &stored, fixed.is_some()),
            Err(refused) => Answer::Refused(refused),
        }
    }

    /// Rows are free whose `leased_until` is not after this: a hold has passed since, in which the
    /// registry heard somebody.
    fn expired(&self, state: &State) -> RegistryMillis {
        let (pool, now) = (self.pool, self.input.now);
        let gap = state.gap.filter(|gap| gap.reaches(pool, now));
        let passed = gap.map_or(now, |gap| gap.from);
        passed.plus(Millis::ZERO.minus(pool.hold))
    }

    /// Whether the patience and a hold have passed, or the token was released.
    fn is_free(&self, state: &State, row: &Row) -> bool {
        row.released || row.leased_until <= self.expired(state)
    }

    /// Whether this server may have the row now.
    fn may_have(&self, state: &State, row: &Row) -> bool {
        let asker = &self.request.asker;
        let held = !row.released && row.revoked.is_none();
        let successor = row.holder.identity == asker.identity && row.holder.started < asker.started;
        let at_once = held && successor && state.is_known(self, row);
        let grace = state.grace(self.pool, self.input.now).is_some();
        let mine = held && row.nonce == self.request.nonce && self.is_holder(row);
        // One that was granted since the loss is nobody else's.
        let grace = grace && (row.era != state.era.counter || !mine);
        let may = at_once || (!grace && (mine || self.is_free(state, row)));
        may && !state.rests(self, &StoredRow::of(row))
    }

    fn choose_fixed(
        &self,
        state: &State,
        worker: WorkerId,
        row: Option<Row>,
    ) -> Result<StoredRow, RegistryError> {
        let now = self.input.now;
        let grace = state.grace(self.pool, now);
        match (row, grace) {
            (Some(row), _) if self.may_have(state, &row) => Ok(StoredRow::of(&row)),
            (_, Some((cause, retry))) => Err(RegistryError::Grace { cause, retry }),
            (None, None) => {
                let mut unused = StoredRow::unused(self, worker, true);
                // A lost grant may have been one to a server that claimed nothing.
                if state.loss.is_some() {
                    let other = StoredRow::unused(self, worker, false);
                    unused.bound = unused.bound.max(other.bound);
                }
                Ok(unused)
            }
            (Some(row), None) if self.is_free(state, &row) => Err(self.rest(state, &row)),
            (Some(row), None) => Err(RegistryError::Held {
                worker,
                since: row.since,
                retry: self.retry(state, &row),
                by: Box::new(HolderName::from(&row.holder)),
            }),
        }
    }

    /// When a row becomes free, unless its holder is heard.
    fn retry(&self, state: &State, row: &Row) -> Millis {
        let (pool, now) = (self.pool, self.input.now);
        let until = row.leased_until.plus(pool.hold);
        let gap = state.gap.filter(|gap| gap.reaches(pool, now));
        let end = gap.map(|gap| gap.to.plus(pool.patience()));
        until.max(end.unwrap_or(until)).since(now)
    }

    /// Any worker ID of the pool: rule 4, or 11. `own` has the rows of this identity, the latest
    /// first.
    fn choose(
        &self,
        state: &State,
        rows: &Draft,
        own: Vec<Row>,
        last: Option<WorkerId>,
        holding: Option<WorkerId>,
    ) -> Result<StoredRow, RegistryError> {
        let (pool, now, clock) = (self.pool, self.input.now, self.request.clock);
        let floor = |stored: &StoredRow| state.floor(self, stored);
        let has_passed = |stored: &StoredRow| floor(stored) <= clock;
        let is_other = |row: &Row| Some(row.worker) != holding;
        let resting = own.iter().filter(|row| row.bound > clock).count();
        let lost = last.and_then(|worker| rows.get(worker));
        let own: Vec<_> = own
            .iter()
            .chain(&lost)
            .filter(|row| pool.has(row.worker) && is_other(row) && self.may_have(state, row))
            .map(StoredRow::of)
            .collect();
        if let Some(passed) = own.iter().find(|row| has_passed(row)) {
            return Ok(passed.clone());
        }
        let own = own.into_iter().min_by_key(floor);
        if let Some((cause, retry)) = state.grace(pool, now) {
            let own = own.filter(|_| holding.is_none());
            return own.ok_or(RegistryError::Grace { cause, retry });
        }
        let granted = || rows.stored.grantable(pool);
        let known = state.known(self, clock);
        let free = Free {
            expired: self.expired(state),
            known,
        };
        let free = || granted().filter(move |row| free.has(row));
        let unused = self.unused(&rows.stored);
        let unused = unused.map(|worker| StoredRow::unused(self, worker, false));
        let passed_unused = unused.as_ref().filter(|unused| has_passed(unused));
        let passed = || free().filter(|row| row.bound <= clock);
        let reserve = (pool.size() / 4).max(1);
        let is_ample = || {
            let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let never = passed_unused.map_or(0, |_| pool.size() - number(granted().count()));
            resting < RESTING_MAX && number(passed().count()) + never > reserve
        };
        if own.is_none() || holding.is_some() || is_ample() {
            let long_ago = now.plus(Millis::ZERO.minus(pool.hold.plus(DAY)));
            let long = passed().min_by_key(|row| row.leased_until);
            let long = long.filter(|row| is_other(row) && has_passed(&StoredRow::of(row)));
            let first = long.filter(|row| passed_unused.is_none() || row.leased_until <= long_ago);
            let chosen = first.map(StoredRow::of).or_else(|| passed_unused.cloned());
            if let Some(chosen) = chosen {
                return Ok(chosen);
            }
        }
        if holding.is_some() {
            return Err(RegistryError::NonePassed { latest: clock });
        }
        if let Some(own) = own {
            return Ok(own);
        }
        let least = free().min_by_key(|row| row.bound).map(StoredRow::of);
        let least = least.filter(|row| !state.rests(self, row));
        if let Some(least) = least.into_iter().chain(unused).min_by_key(floor) {
            return Ok(least);
        }
        let soonest = granted().min_by_key(|row| row.leased_until);
        Err(match soonest {
            Some(row) if self.is_free(state, row) => self.rest(state, row),
            Some(row) => RegistryError::NoneFree {
                retry: self.retry(state, row),
            },
            None => RegistryError::NoneFree { retry: pool.hold },
        })
    }

    /// The first worker ID of the pool that has no row.
    fn unused(&self, rows: &Rows) -> Option<WorkerId> {
        let ids = self.pool.ids.clone();
        let mut ids = ids.filter_map(|id| WorkerId::new(i32::try_from(id).ok()?));
        ids.find(|id| self.pool.has(*id) && !rows.rows.contains_key(id))
    }

    /// Refuses a row that rests.
    fn rest(&self, state: &State, row: &Row) -> RegistryError {
        let floor = state.floor(self, &StoredRow::of(row));
        let cause = state.loss.map_or(Cause::Recovery, |loss| loss.cause);
        let retry = floor.since(self.request.clock);
        RegistryError::Grace { cause, retry }
    }

    fn granted(&self, rows: &Draft, row: &Row, because: FloorCause) -> Answer {
        let reached = rows.stored.all().map(|row| row.bound).max();
        Answer::Granted(Grant {
            worker: row.worker,
            counter: row.counter,
            floor: row.floor,
            bound: row.bound,
            reached: reached.map_or(row.floor, |reached| reached.max(row.floor)),
            because,
            until: row.leased_until,
            again: self.again_after(),
            terms: self.pool.terms(),
        })
    }

    fn grant(
        &self,
        state: &mut State,
        rows: &mut Draft,
        stored: &StoredRow,
        claimed: bool,
    ) -> Answer {
        let (pool, now, request) = (self.pool, self.input.now, self.request);
        let floor = state.floor(self, stored);
        let because = match stored.counter {
            _ if floor > stored.bound => FloorCause::Loss,
            0 => FloorCause::NewPool,
            _ if stored.system == Some(request.asker.identity.system) => FloorCause::Own,
            _ => FloorCause::Used,
        };
        // A floor that no crash has moved makes no lead grow. What a second loss adds is enough for
        // that, unless it follows within the grace period.
        let is_settled = state
            .loss
            .is_none_or(|loss| loss.is_over(&pool.lengths(), now));
        let first = match because {
            FloorCause::Loss | FloorCause::NewPool if is_settled => {
                pool.patience().min(pool.hold).max(first_part(pool))
            }
            _ => first_part(pool),
        };
        let ahead = floor.plus(first);
        let row = Row {
            worker: stored.worker,
            counter: stored.counter + 1,
            nonce: request.nonce,
            released: false,
            revoked: None,
            holder: Holder::clone(&request.asker),
            claimed,
            since: now,
            floor,
            start: floor.max(request.clock),
            renewed: false,
            heard: now,
            leased_until: now.plus(pool.patience()),
            bound: request.clock.plus(pool.patience()).max(ahead),
            number: request.number,
            clock: request.clock,
            era: state.era.counter,
        };
        state.serial += 1;
        let answer = self.granted(rows, &row, because);
        rows.put(row);
        answer
    }
}
