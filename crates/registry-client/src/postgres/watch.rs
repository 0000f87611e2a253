//! Looks at the other hosts of a registry, so that two that take writes are found before they do
//! harm: a primary of before that has come back, or a copy.
//!
//! A host that takes writes is asked what changes no lease there: [`RequestKind::look`]. Its reply tells its
//! [`Era`](snowflake_core::lease::Era). What follows:
//!
//! | its era, beside that of the host in use | what is done |
//! |---|---|
//! | it serves nobody | nothing |
//! | the same | nothing: what the server remembers could show a loss there, and then it would be the one that counts |
//! | before, or a rival | it is asked again, with what the server remembers, and stops |
//! | after | it is asked again in the same way. If it knows that memory, the server asks it from then on, and it is the other one that stops |
//!
//! The second request does what any request of this server would do there: a connection that
//! breaks could bring one at any time. It brings no grant, so nothing is issued by it.
//!
//! A server that remembers no registry looks before its first request, and then asks the newest:
//! it gets no worker ID from an old one. The others are looked at in a thread of their own, so
//! that the look-up of a host name that hangs delays no renewal.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::{OpenConnection, PostgresError};
use crate::libpq::Conninfo;
use crate::libpq::wait::{Stop, Thread, Waiter};
use snowflake_core::lease::{
    Answer, EraRelation, Memory, RegistryError, Reply, Request, RequestKind,
};

/// How long a host may take to answer all that it is asked.
const LOOK_MAX: Duration = Duration::from_secs(1);
/// From one look to the next, in the longest times that a request may take: a minute, unless the
/// leases are short.
const REQUESTS_BETWEEN: u32 = 12;

/// What another host is that takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherHost {
    /// An older registry, or one that has stopped: it serves nobody.
    Stopped,
    /// A copy of the registry in use, which serves as well.
    Copy,
    /// A newer one, which is in use from then on.
    Newer,
    /// A registry of its own.
    Foreign,
}

/// Two hosts take writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The hosts, as libpq's messages name them: the one in use at the look, and the other one.
    pub used: String,
    pub other: String,
    pub found: OtherHost,
}

/// One look at all hosts but the one in use.
pub(super) struct Look {
    pub hosts: Vec<Conninfo>,
    /// The host in use: its place, its name, and when its postmaster started.
    pub used: (usize, String, Option<i64>),
    pub pool: String,
    /// The latest request, with what the server remembers since.
    pub request: Request,
    pub stop: Stop,
}

/// Looks now and then.
#[derive(Default)]
pub(super) struct Watch {
    /// When it has looked last; `None`: it is to look at once.
    looked: Option<Instant>,
    /// A look is under way: from it come places of hosts, and what was found there.
    found: Option<Receiver<(usize, Finding)>>,
    /// The place of a newer registry.
    newer: Option<usize>,
    /// What was found by the latest look, and by the one before.
    latest: Vec<Finding>,
    before: Vec<Finding>,
    /// Not told yet.
    news: Vec<Finding>,
}

impl Watch {
    /// Begins a look, if it is time for one; `until`: the request may take so long from now on.
    pub fn start(&mut self, look: Look, until: Instant) {
        let now = Instant::now();
        let pause = until.saturating_duration_since(now) * REQUESTS_BETWEEN;
        let is_soon = self.looked.is_some_and(|at| now.duration_since(at) < pause);
        if self.found.is_some() || is_soon {
            return;
        }
        self.looked = Some(now);
        let (tell, found) = channel();
        let thread = std::thread::Builder::new().name("snowflake_id".to_string());
        // It has the signals blocked, as the thread has that starts it.
        if thread.spawn(move || look.run(&tell)).is_ok() {
            self.found = Some(found);
            self.before = std::mem::take(&mut self.latest);
        }
    }

    /// Hears what was found. Returns the place of a newer registry, once.
    pub fn newer(&mut self) -> Option<usize> {
        while let Some(found) = &self.found {
            match found.try_recv() {
                Ok((at, finding)) => {
                    if finding.found == OtherHost::Newer {
                        self.newer = Some(at);
                        // Then the other one is told.
                        self.looked = None;
                    }
                    if !self.before.contains(&finding) {
                        self.news.push(finding.clone());
                    }
                    self.latest.push(finding);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.found = None,
            }
        }
        self.newer.take()
    }

    /// What was found, and has not been told.
    pub fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.news)
    }
}

impl Look {
    fn run(self, tell: &Sender<(usize, Finding)>) {
        let (used, name, started) = &self.used;
        let known = self.request.memory;
        for (at, host) in self.hosts.iter().enumerate() {
            if at == *used {
                continue;
            }
            let until = Instant::now() + LOOK_MAX;
            let mut waiter = Thread(&self.stop);
            // One that takes no writes, or does not answer, does no harm.
            let Ok(mut there) = OpenConnection::of_host(host, (until, 1), &mut waiter) else {
                continue;
            };
            // Another name of the same server.
            if there.started == *started {
                continue;
            }
            let mut ask = |memory| {
                harmless(
                    &mut there,
                    &self.pool,
                    &self.request,
                    memory,
                    until,
                    &mut waiter,
                )
            };
            if let Ok((found, _)) = compare(&mut ask, known) {
                let finding = Finding {
                    used: name.clone(),
                    other: there.connection.place(),
                    found,
                };
                let _ = tell.send((at, finding));
            }
        }
    }
}

/// The place of the newest registry among the hosts that take writes; or of one that does not
/// answer in its share of half of the time. 0 if there is none.
pub(super) fn newest(
    hosts: &[Conninfo],
    pool: &str,
    request: &Request,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> usize {
    let half = until.saturating_duration_since(Instant::now()) / 2;
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX).max(1);
    let share = LOOK_MAX.min(half / count);
    let (mut best, mut known) = (0, None);
    for (at, host) in hosts.iter().enumerate() {
        let until = Instant::now() + share;
        let Ok(mut there) = OpenConnection::of_host(host, (until, 1), waiter) else {
            continue;
        };
        let mut ask = |memory| harmless(&mut there, pool, request, memory, until, waiter);
        match compare(&mut ask, known) {
            Ok((OtherHost::Newer, memory)) => (best, known) = (at, Some(memory)),
            // It may be the one that counts.
            Err(_) => return at,
            _ => {}
        }
    }
    best
}

/// What a registry is beside one of which this is known, and what it tells to remember. Beside
/// none, each is newer that serves.
fn compare(
    ask: &mut dyn FnMut(Option<Memory>) -> Result<Reply, PostgresError>,
    known: Option<Memory>,
) -> Result<(OtherHost, Memory), PostgresError> {
    let reply = ask(None)?;
    let memory = reply.memory;
    let stopped =
        |reply: &Reply| matches!(reply.answer, Answer::Refused(RegistryError::Stopped(_)));
    if stopped(&reply) {
        return Ok((OtherHost::Stopped, memory));
    }
    let Some(known) = known else {
        return Ok((OtherHost::Newer, memory));
    };
    let seen = memory.era.judge(&known.era);
    if seen == EraRelation::Same {
        return Ok((OtherHost::Copy, memory));
    }
    let reply = ask(Some(known))?;
    let found = match reply.answer {
        _ if stopped(&reply) => OtherHost::Stopped,
        Answer::Refused(RegistryError::Foreign) => OtherHost::Foreign,
        _ if seen == EraRelation::Before => OtherHost::Newer,
        _ => OtherHost::Copy,
    };
    Ok((found, memory))
}

/// Asks what changes no lease.
fn harmless(
    there: &mut OpenConnection,
    pool: &str,
    request: &Request,
    memory: Option<Memory>,
    until: Instant,
    waiter: &mut dyn Waiter,
) -> Result<Reply, PostgresError> {
    let request = Request {
        ask: RequestKind::look(),
        memory,
        ..request.clone()
    };
    there.ask(pool, &request, until, waiter)
}
