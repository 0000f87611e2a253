//! The horizon of a cluster: an instant before which no ID can appear any more on any of
//! the servers that lease worker IDs from a registry.
//!
//! A consumer that reads new rows of all servers in the order of their IDs reads up to
//! here, and misses none. One server's horizon is [`super::super::horizon`]; this file has
//! the rules for all of them.
//!
//! # What a server reports
//!
//! With each renewal a server reports an instant: no ID of a tick that ends at or before it
//! can still appear there, of those that are taken by the transactions that insert them. That
//! does not become false later, so a report may arrive late or twice. It is of the databases that
//! an administrator has named, and of the generators that have the server's worker ID. A
//! generator with worker IDs of its own goes back in time, so it has no part in this.
//!
//! # The rules
//!
//! 1. **Servers count, not worker IDs.** A [`Server`] is stored for each [`ServerKey`], from
//!    its first grant on. Who takes over the worker ID of a server that is gone does not
//!    speak for it: it may live on, and its transactions commit.
//! 2. **The horizon** is the least of what all servers have reported. As long as one of
//!    them has reported nothing, it stays where it was.
//! 3. **The greatest one that was returned** lies at or before [`KeptHorizon::greatest`] or the
//!    least report. Before the servers that count change, the least report is kept there.
//!    So a reader need not write, and takes no lock.
//! 4. **A grant's floor** is at or above the horizon of that moment. So the IDs of a server
//!    that joins, or comes back, lie above all that was returned.
//! 5. **A grant to an incarnation that counts** leaves its report, but for this: if the
//!    floor lies before it, the report is lowered to the floor, above which it issues. As the
//!    horizon is not past the floor, it does not go back. A new incarnation of a server that
//!    counts has reported nothing: its directory may have been a standby meanwhile, or have
//!    been rewound, and have prepared transactions of another server.
//! 6. **Who is heard.** A report counts with a token that counts, and raises the report of
//!    its own incarnation only. No token counts of an incarnation whose server counts by another
//!    one, or no longer. It gets a new one with a floor of then. A report never goes back. One that is past the bound of the row,
//!    or more than a hold past all that the registry's clock has shown, counts as that: so
//!    a wrong clock takes nobody's floor along.
//! 7. **Leaving.** A server that returns its worker ID no longer counts, unless it says that
//!    transactions hold IDs: those that were prepared, as a rule. Then it counts with the
//!    least of them, until it is back and reports.
//! 8. **A server that is lost** counts until an administrator drops it, see [`drop_server`].
//!    Nothing in the registry can tell whether it runs. Its token ends with that.
//! 9. **A loss of the registry** may have taken a server that has joined, with a floor at
//!    or above the least report that is still known. Until the grace period is over the
//!    horizon does not go past that one. By then each server that lives has asked, and
//!    one whose token is not known counts from then on.
//!
//! # What is outside the promise
//!
//! - Servers that issue without the registry, and what a server has taken before it had
//!   its first grant.
//! - A server that was dropped and runs, and one of which a later incarnation has a worker ID, until
//!   it is told.
//! - A server whose first grant the registry has lost, and that asks later than the grace period
//!   after that lasts; or that waits for a grace period which an administrator has ended.
//! - The losses that [`super`] leaves out.

use serde::{Deserialize, Serialize};

use super::super::id::{UnixMillis, WorkerId};
use super::role::Role;
use super::state::{KeptHorizon, RegistryInput, State};
use super::{Fence, Holder, Nonce, Pool, RegistryMillis, Request, Row, ServerKey, Stopped};

/// How many servers may count that ask as one role. An administrator decides how many roles there
/// are. Each server has up to 3 kB.
pub const OF_ROLE_MAX: usize = 1_024;

/// A server that counts, or that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Server {
    pub holder: Holder,
    /// The incarnation that has got a worker ID last.
    pub nonce: Nonce,
    /// The worker ID that it has got.
    pub worker: WorkerId,
    /// Since when it counts.
    pub since: RegistryMillis,
    /// What it has reported; `None` if nothing yet.
    pub horizon: Option<UnixMillis>,
    /// When it has reported last.
    pub reported: Option<RegistryMillis>,
    /// The end of its lease and of the hold after it: until then it may run.
    pub until: RegistryMillis,
    /// The server has returned its worker ID, and transactions hold IDs.
    pub stopped: bool,
    /// An administrator has dropped it. Kept to know its token.
    pub dropped: Option<RegistryMillis>,
}

/// The servers of a registry, of all of its pools, as they are stored.
pub trait Servers {
    fn server(&mut self, identity: &ServerKey) -> Option<Server>;

    /// What the servers that count have reported, without this one.
    fn reports(&mut self, without: Option<&ServerKey>) -> Reports;

    /// How many servers of this role count. Need not count further than to [`OF_ROLE_MAX`].
    fn count(&mut self, role: &Role) -> usize;
}

/// What the servers that count have reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reports {
    /// The least report.
    pub least: Option<UnixMillis>,
    /// At least one of them has reported nothing.
    pub is_silent: bool,
}

impl Reports {
    /// What these servers have reported.
    pub fn of<'a>(servers: impl Iterator<Item = &'a Server>) -> Self {
        servers.fold(Self::default(), Self::and)
    }

    /// With one server more, if it counts.
    fn and(mut self, server: &Server) -> Self {
        if server.dropped.is_none() {
            self.is_silent |= server.horizon.is_none();
            let reports = self.least.into_iter().chain(server.horizon);
            self.least = reports.min();
        }
        self
    }

    /// The least report; `None` if one is missing, or there is no server.
    fn all(self) -> Option<UnixMillis> {
        self.least.filter(|_| !self.is_silent)
    }
}

/// What a request changes beside the state.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// A row, which may be new.
    pub row: Option<Row>,
    pub server: Option<ChangedServer>,
    /// The row was that of a server with this system identifier, and is no longer: keep that the
    /// system has reached this instant, see [`registry::Rows::reached_by`].
    pub reached: Option<(u64, UnixMillis)>,
    /// The state has changed, and is to be stored.
    pub state: bool,
}

/// What becomes of a server, which may be new; `None`: it goes.
pub type ChangedServer = (ServerKey, Option<Server>);

/// What is stored, and what a request changes of it.
pub(super) struct Draft<'a, T> {
    pub(super) stored: &'a mut T,
    pub(super) changes: Changes,
}

impl<'a, T> Draft<'a, T> {
    pub(super) fn new(stored: &'a mut T) -> Self {
        let changes = Changes::default();
        Self { stored, changes }
    }
}

impl<T: Servers> Draft<'_, T> {
    fn server(&mut self, identity: &ServerKey) -> Option<Server> {
        match &self.changes.server {
            Some((changed, server)) if changed == identity => server.clone(),
            _ => self.stored.server(identity),
        }
    }

    fn reports(&mut self) -> Reports {
        match &self.changes.server {
            None => self.stored.reports(None),
            Some((changed, server)) => {
                let others = self.stored.reports(Some(changed));
                server.iter().fold(others, Reports::and)
            }
        }
    }

    fn put_server(&mut self, server: Server) {
        self.changes.server = Some((server.holder.identity, Some(server)));
    }

    fn remove_server(&mut self, identity: &ServerKey) {
        self.changes.server = Some((*identity, None));
    }
}

impl KeptHorizon {
    /// Rule 3: the servers are about to change.
    fn keep(&mut self, reports: Reports) {
        self.greatest = self.greatest.max(reports.all());
        self.due = false;
    }
}

/// Why there is no horizon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HorizonError {
    /// No server counts, and none has counted before.
    NoServer,
    /// This server has reported nothing, and there was no horizon before it joined.
    Report(Box<Server>),
    /// Another registry has taken over from this one.
    Stopped(Box<Stopped>),
}

fn counting(servers: &[Server]) -> impl Iterator<Item = &Server> {
    servers.iter().filter(|server| server.dropped.is_none())
}

/// A server that counts and has reported nothing.
#[must_use]
pub fn silent(servers: &[Server]) -> Option<&Server> {
    counting(servers).find(|server| server.horizon.is_none())
}

/// The horizon of the cluster. `silent` is what [`silent`] returns for the servers of the reports.
///
/// # Errors
/// Why there is none.
pub fn read(
    state: &State,
    reports: Reports,
    silent: Option<&Server>,
    input: &RegistryInput,
) -> Result<UnixMillis, HorizonError> {
    if let Some(stopped) = &state.stopped {
        return Err(HorizonError::Stopped(Box::new(stopped.clone())));
    }
    let mut state = state.clone();
    state.notice(input, None);
    if state.horizon.due {
        state.horizon.keep(reports);
    }
    if let Some(horizon) = reached(&state, reports, input.now) {
        return Ok(horizon);
    }
    Err(silent.map_or(HorizonError::NoServer, |server| {
        HorizonError::Report(Box::new(server.clone()))
    }))
}

/// The horizon, if there is one.
fn reached(state: &State, reports: Reports, now: RegistryMillis) -> Option<UnixMillis> {
    let kept = state.horizon;
    let grace_end = state.loss.and_then(|loss| {
        let quiet = loss.quiet(&state.longest);
        Some(loss.grace_from?.plus(quiet))
    });
    let is_grace = grace_end.is_some_and(|end| now < end);
    kept.greatest.max(reports.all().filter(|_| !is_grace))
}

/// Called before the servers change, and after a loss may have been noticed.
pub(super) fn after_loss(state: &mut State, servers: &mut Draft<impl Servers>) {
    if state.horizon.due {
        state.horizon.keep(servers.reports());
    }
}

/// Keeps the horizon of this moment, and returns it.
fn keep(
    state: &mut State,
    servers: &mut Draft<impl Servers>,
    input: &RegistryInput,
) -> Option<UnixMillis> {
    let reached = reached(state, servers.reports(), input.now);
    state.horizon.greatest = reached;
    reached
}

/// The horizon of this moment, which is at or below the floor of a grant.
pub(super) fn floor(
    state: &mut State,
    servers: &mut Draft<impl Servers>,
    request: &Request,
    input: &RegistryInput,
) -> Option<UnixMillis> {
    if request.asker.identity.generator != 0 {
        return None;
    }
    keep(state, servers, input)
}

/// How many servers of its role count, if they are too many for this one to count too. Where there
/// are no roles, and for who counts already or never does, they are not.
pub(super) fn crowd(servers: &mut Draft<impl Servers>, asker: &ServerKey) -> Option<u32> {
    if asker.generator != 0 || asker.role == Role::NONE {
        return None;
    }
    let known = servers.server(asker);
    if known.is_some_and(|server| server.dropped.is_none()) {
        return None;
    }
    let count = servers.stored.count(&asker.role);
    u32::try_from(count).ok().filter(|_| count >= OF_ROLE_MAX)
}

/// A worker ID is granted.
pub(super) fn joined(
    servers: &mut Draft<impl Servers>,
    row: &Row,
    pool: &Pool,
    input: &RegistryInput,
) {
    let identity = row.holder.identity;
    if identity.generator != 0 {
        return;
    }
    let known = servers.server(&identity);
    let counts = known.filter(|server| server.dropped.is_none());
    let since = counts.as_ref().map_or(input.now, |server| server.since);
    // See rule 5.
    let goes_on = counts.filter(|server| server.nonce == row.nonce);
    let reported = goes_on.as_ref().and_then(|server| server.reported);
    let horizon = goes_on.and_then(|server| server.horizon);
    servers.put_server(Server {
        holder: row.holder.clone(),
        nonce: row.nonce,
        worker: row.worker,
        since,
        horizon: horizon.map(|horizon| horizon.min(row.floor)),
        reported,
        until: row.leased_until.plus(pool.hold),
        stopped: false,
        dropped: None,
    });
}

/// Whether a later incarnation of the server counts, and may run.
pub(super) fn successor(
    servers: &mut Draft<impl Servers>,
    asker: &Holder,
    now: RegistryMillis,
) -> bool {
    let server = servers.server(&asker.identity);
    server.is_some_and(|server| {
        // What transactions hold that a stop has left is known by the next start only.
        let may_run = server.dropped.is_none() && (server.stopped || now < server.until);
        server.holder.started > asker.started && may_run
    })
}

/// Why the token of who asks has ended, though a row has it: another incarnation of the server has
/// got a worker ID since, and may have returned it; or an administrator has dropped the server.
pub(super) fn ended(servers: &mut Draft<impl Servers>, request: &Request) -> Option<Fence> {
    let asker = &request.asker;
    if asker.identity.generator != 0 {
        return None;
    }
    match servers.server(&asker.identity) {
        Some(server) if server.nonce == request.nonce => {
            server.dropped.is_some().then_some(Fence::Revoked)
        }
        // An earlier one was heard while this one was silent. This one need not stop.
        Some(server) if server.holder.started < asker.started => Some(Fence::TakenOver),
        _ => Some(Fence::Succeeded),
    }
}

/// Whether an administrator has dropped the server that asks: its token has ended.
pub(super) fn is_dropped(servers: &mut Draft<impl Servers>, request: &Request) -> bool {
    let server = servers.server(&request.asker.identity);
    server.is_some_and(|server| server.nonce == request.nonce && server.dropped.is_some())
}

/// A renewal has stored this row, and reports a horizon, if it does.
pub(super) fn reported(
    state: &State,
    servers: &mut Draft<impl Servers>,
    row: &Row,
    pool: &Pool,
    (report, now): (Option<UnixMillis>, RegistryMillis),
) {
    if row.holder.identity.generator != 0 {
        return;
    }
    let known = servers.server(&row.holder.identity);
    let Some(mut server) = known.filter(|server| server.nonce == row.nonce) else {
        return;
    };
    let latest = state.top.max(now).plus(pool.hold);
    let latest = latest.as_nodes_clock().min(row.bound);
    if let Some(report) = report {
        server.horizon = server.horizon.max(Some(report.min(latest)));
        server.reported = Some(now);
    }
    server.until = row.leased_until.plus(pool.hold);
    server.stopped = false;
    servers.put_server(server);
}

/// A worker ID is returned. `held`: transactions hold IDs from this instant on.
pub(super) fn left(
    state: &mut State,
    servers: &mut Draft<impl Servers>,
    row: &Row,
    held: Option<UnixMillis>,
    input: &RegistryInput,
) {
    let identity = row.holder.identity;
    let known = servers.server(&identity);
    let Some(mut server) = known.filter(|server| server.nonce == row.nonce) else {
        return;
    };
    // All that it has issued lies before the bound, and has ended but for this.
    let ended = held.unwrap_or(row.bound).min(row.bound);
    let is_known = held.is_some() || server.horizon.is_some();
    server.horizon = server.horizon.max(is_known.then_some(ended));
    server.stopped = true;
    server.until = input.now;
    servers.put_server(server);
    if held.is_none() {
        keep(state, servers, input);
        servers.remove_server(&identity);
    }
}

/// A server asks with a token that the registry does not know.
pub(super) fn appeared(servers: &mut Draft<impl Servers>, request: &Request, now: RegistryMillis) {
    let (asker, worker) = (&request.asker, request.ask.worker());
    let Some(worker) = worker.filter(|_| asker.identity.generator == 0) else {
        return;
    };
    if servers.server(&asker.identity).is_none() && crowd(servers, &asker.identity).is_none() {
        servers.put_server(Server {
            holder: Holder::clone(asker),
            nonce: request.nonce,
            worker,
            since: now,
            horizon: None,
            reported: None,
            until: now,
            stopped: false,
            dropped: None,
        });
    }
}

/// Why a server is not dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropServerError {
    /// No server that counts has this name.
    Unknown,
    /// The server may run until its lease and the hold have passed.
    MayRun(Box<Server>),
}

/// Drops a server that is lost: it no longer counts, and its token ends. `name` is what
/// [`Server::name`] shows, so one that was started since has another one. `servers` are all, or
/// at least that one and those that decide what [`Reports::of`] returns. Returns what is to be
/// stored of the server.
///
/// # Errors
/// If there is no such server, or it may run.
pub fn drop_server(
    state: &mut State,
    servers: &[Server],
    name: &str,
    input: &RegistryInput,
) -> Result<Server, DropServerError> {
    state.change(input, None);
    let reports = Reports::of(servers.iter());
    if state.horizon.due {
        state.horizon.keep(reports);
    }
    let found = counting(servers).find(|server| server.name() == name);
    let Some(mut server) = found.cloned() else {
        return Err(DropServerError::Unknown);
    };
    let silence = state.longest.patience.plus(state.longest.hold);
    let until = server.until.min(input.now.plus(silence));
    if !server.stopped && input.now < until {
        return Err(DropServerError::MayRun(Box::new(server)));
    }
    state.horizon.greatest = reached(state, reports, input.now);
    server.dropped = Some(input.now);
    // It is kept for good, to know its token.
    server.holder.host.clear();
    server.holder.data_directory.clear();
    state.serial += 1;
    Ok(server)
}

impl Server {
    /// A name for this incarnation of the server: 16 hexadecimal digits.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = format!("{:032x}", self.nonce.0);
        name.truncate(16);
        name
    }
}
