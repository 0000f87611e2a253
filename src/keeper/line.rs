//! A line to a pool of the registry: a thread that carries requests, one at a time, for the
//! server's lease and for worker IDs that it returns.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::keeper::client_error::{self, ReplyWait};
use crate::keeper::lease::{End, Lease, Outcome, Release};
use crate::keeper::target::Target;
use crate::postgres::compat;
use crate::server::{server_key, shmem::Shared};
use snowflake_core::id::UnixMillis;
use snowflake_core::lease::node::Node;
use snowflake_core::lease::{Nonce, Reply, Request};
use snowflake_registry_client::mailbox::Bell;
use snowflake_registry_client::request::{RegistryClient, RequestOutcome};

/// A look-up of a name may take longer than the time-out; this much later the request is
/// given up, and its thread is left alone.
const LOOKUP_GRACE: Duration = Duration::from_secs(1);
/// A keeper that looks so much later than it wanted to was stopped meanwhile, as all processes of a
/// machine that is suspended.
const PAUSED: Duration = Duration::from_secs(2);

/// How long the keeper tries to return the worker ID.
pub const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// The line of postmaster.pid that tells what the server does, and what it says there
/// once it stops: LOCK_FILE_LINE_PM_STATUS and PM_STATUS_STOPPING of miscadmin.h.
const PID_FILE: &str = "postmaster.pid";
const STATUS_LINE: usize = 8;
const STOPPING: &str = "stopping";

/// Whether the server stops; not if that cannot be read, since the worker ID stays then.
pub fn is_stopping() -> bool {
    // A server's working directory is its data directory.
    let text = std::fs::read_to_string(PID_FILE).unwrap_or_default();
    text.lines()
        .nth(STATUS_LINE - 1)
        .is_some_and(|line| line.trim() == STOPPING)
}

/// A request that was sent.
struct SentRequest {
    nonce: Nonce,
    number: u64,
    wait: ReplyWait,
    until: Instant,
}

/// See the head of the file.
pub struct Line {
    pub target: Rc<Target>,
    lease: Lease,
    /// What is returned while the line continues.
    releases: VecDeque<Release>,
    bell: Rc<Bell>,
    client: Option<RegistryClient>,
    asked: Option<SentRequest>,
    /// The registry is on this server itself.
    here: Arc<AtomicBool>,
}

impl Line {
    pub fn new(target: Target, bell: &Rc<Bell>, shared: &'static Shared) -> Self {
        let target = Rc::new(target);
        Self {
            lease: Lease::new(&target, shared),
            target,
            releases: VecDeque::new(),
            bell: Rc::clone(bell),
            client: None,
            asked: None,
            here: Arc::default(),
        }
    }

    /// Does all that can be done now, after the bell was silenced. Returns for how many
    /// milliseconds to wait for it; without an end if there are none.
    pub fn round(&mut self, shared: &Shared) -> Option<i64> {
        if self.is_here() && is_stopping() {
            // The keeper's session is a client's, and a smart stop waits for clients. Sessions
            // continue to issue IDs up to the bound.
            self.client = None;
            self.asked = None;
            return None;
        }
        self.lease.hear_sessions();
        while let Some((asked, outcome)) = self.outcome() {
            self.take(shared, &asked, outcome, None);
        }
        self.go_on(shared)
    }

    fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }

    /// What became of the request that is under way, if that is known.
    fn outcome(&mut self) -> Option<(SentRequest, Outcome)> {
        let is_late = |asked: &SentRequest| Instant::now() >= asked.until;
        let pool = &self.target.pool;
        while let Some(RequestOutcome { number, heard }) =
            self.client.as_ref().and_then(RegistryClient::take)
        {
            for finding in &heard.findings {
                client_error::two_take_writes(finding).warning();
            }
            if let Some(asked) = self.asked.take_if(|asked| asked.number == number) {
                let is_mine = |it: &Reply| (it.nonce, it.number) == (asked.nonce, number);
                let other = "The reply of the registry answers another request.";
                let outcome = match &heard.reply {
                    Ok(reply) if is_mine(reply) => Outcome {
                        reply: Ok(reply.clone()),
                        from: client_error::answered(&heard),
                        grown: None,
                    },
                    Ok(_) => Outcome::failed(other.to_string()),
                    Err(why) => {
                        Outcome::failed(client_error::sentence(&heard, why, pool, &asked.wait))
                    }
                };
                let grown = Some(heard.grown);
                return Some((asked, Outcome { grown, ..outcome }));
            }
        }
        let why = if self.client.take_if(|client| client.has_ended()).is_some() {
            "The thread that asks the registry has ended.".to_string()
        } else {
            let asked = self.asked.as_ref().filter(|asked| is_late(asked))?;
            self.client = None;
            let late = asked.wait.not_answered("registry", pool);
            let why = match Instant::now() >= asked.until + PAUSED {
                true => "This server was paused meanwhile.",
                false => "The look-up of its host name may hang.",
            };
            format!("{late} {why}")
        };
        self.asked.take().map(|asked| (asked, Outcome::failed(why)))
    }

    /// Hands over what became of a request. `end`: the lease was stopped, and its IDs end there.
    fn take(
        &mut self,
        shared: &Shared,
        asked: &SentRequest,
        outcome: Outcome,
        end: Option<UnixMillis>,
    ) {
        let SentRequest { nonce, number, .. } = *asked;
        let is_its = |node: &Node| (node.nonce(), node.latest_number()) == (nonce, number);
        let is_release = |release: &Release| release.request.is_none() && is_its(&release.node);
        if let Some(at) = self.releases.iter().position(is_release) {
            if let Some(release) = self.releases.remove(at) {
                release.log_change(Some(outcome));
            }
            return;
        }
        let release = match end {
            Some(end) => self.lease.take_last(shared, number, &outcome, end),
            None => self.lease.take(shared, number, &outcome),
        };
        self.releases.extend(release);
    }

    /// Sends what is due, if nothing is under way. Returns for how many milliseconds to
    /// wait.
    fn go_on(&mut self, shared: &Shared) -> Option<i64> {
        loop {
            if let Some(asked) = &self.asked {
                let left = asked.until.saturating_duration_since(Instant::now());
                return i64::try_from(left.as_millis() + 1).ok();
            }
            let (request, wait) = match self.due(shared) {
                Ok(due) => due,
                Err(wait) => return wait,
            };
            if let Err((asked, why)) = self.send(request, wait) {
                self.take(shared, &asked, Outcome::failed(why), None);
            }
        }
    }

    /// The request that is to be sent next, with its time-out, or how long to wait.
    fn due(&mut self, shared: &Shared) -> Result<(Request, ReplyWait), Option<i64>> {
        for release in &mut self.releases {
            if let Some(request) = release.request.take() {
                return Ok((request, release.reply_wait()));
            }
        }
        let request = self.lease.due(shared)?;
        Ok((request, self.lease.reply_wait()))
    }

    /// Sends a request, for which the thread is started if there is none.
    fn send(&mut self, request: Request, wait: ReplyWait) -> Result<(), (SentRequest, String)> {
        let timeout = wait.duration();
        let asked = SentRequest {
            nonce: request.nonce,
            number: request.number,
            wait,
            until: Instant::now() + timeout + LOOKUP_GRACE,
        };
        let Target { registry, pool } = &*self.target;
        let client = match self.client.take() {
            Some(client) => Ok(client),
            None => {
                let started = server_key::postmaster_start();
                RegistryClient::new(registry, pool, started, &self.here, &self.bell)
            }
        };
        let client = match client {
            Ok(client) => self.client.insert(client),
            Err(why) => return Err((asked, format!("Could not start a thread: {why}."))),
        };
        client.send(request.number, request, timeout);
        self.asked = Some(asked);
        Ok(())
    }

    /// Returns the worker ID, within [`RELEASE_WAIT`].
    pub fn end(mut self, shared: &Shared, why: End) {
        let deadline = Instant::now() + RELEASE_WAIT;
        let end = self.lease.stop(shared, why);
        if why == End::Stop && self.is_here() {
            // A server that stops lets nobody in, not even its own keeper.
            self.lease.keep();
            return;
        }
        // What is under way counts before what follows.
        if let Some((asked, outcome)) = self.await_outcome(deadline - RELEASE_WAIT / 2) {
            self.take(shared, &asked, outcome, Some(end));
        }
        let mut releases = std::mem::take(&mut self.releases);
        releases.extend(self.lease.release(shared, end));
        for mut release in releases {
            let request = release.request.take().filter(|_| Instant::now() < deadline);
            let sent = request.map(|request| self.send(request, release.reply_wait()));
            let outcome = match sent {
                None => None,
                Some(Err((_, why))) => Some(Outcome::failed(why)),
                Some(Ok(())) => self.await_outcome(deadline).map(|(_, outcome)| outcome),
            };
            release.log_change(outcome);
        }
    }

    /// Waits for what becomes of the request that is under way; `None` if that is not known
    /// by the deadline.
    fn await_outcome(&mut self, deadline: Instant) -> Option<(SentRequest, Outcome)> {
        while self.asked.is_some() {
            self.bell.silence();
            let outcome = self.outcome();
            let left = deadline.saturating_duration_since(Instant::now());
            if outcome.is_some() {
                return outcome;
            }
            if left.is_zero() {
                break;
            }
            let millis = i64::try_from(left.as_millis() + 1).unwrap_or(1);
            compat::wait_keeper(Some(self.bell.socket()), Some(millis));
        }
        // The thread may be busy still: what follows gets another one.
        if self.asked.take().is_some() {
            self.client = None;
        }
        None
    }
}
