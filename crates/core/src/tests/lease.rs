//! A world of registries and servers: the host of the lease protocol in miniature.
//!
//! Nothing here decides what the protocol decides: the registries call
//! [`handle`](crate::lease::registry::handle), the servers a [`Node`]. The world loses, delays and repeats
//! messages, crashes and copies servers, and puts old copies in the place of registries.
//! Each server has one generator. A position is a worker ID and a tick, and the world
//! notes who issued it.
//!
//! A second stands for a second; leases, holds and ticks are a few seconds long.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use super::lease_claims;
use super::lease_etcd::Etcd;
use super::lease_table;
pub use super::lease_table::Table;
use crate::id::{BootNanos, Millis, UnixMillis, WorkerId};
use crate::lease::node::{Change, Next, Node, NodeInput};
use crate::lease::state::{RegistryInput, State};
use crate::lease::{
    Answer, Holder, Memory, Nonce, Origin, PATIENCE, Pool, RegistryMillis, Reply, Request,
    RequestKind, Row, ServerKey,
};

/// All times of the world are in milliseconds.
pub const SECOND: i64 = 1000;
/// When the world begins.
pub const EPOCH: i64 = 1_000_000 * SECOND;
/// How far a mark reaches past what is issued, and what a generator may borrow.
const RESERVATION: i64 = 4 * SECOND;
const BORROW: i64 = 2 * SECOND;
/// So many old copies of a registry are kept.
const COPIES: usize = 60;

/// What is on the disk of a registry.
pub type Disk = (State, Table);

#[derive(Clone, Debug, Hash)]
pub struct Registry {
    pub disk: Disk,
    pub etcd: Option<Etcd>,
    pub origin: Origin,
    pub start: u128,
    pub clean_since: u128,
    /// How far its clock is off.
    pub off: i64,
    /// What the disk was before each of the latest changes.
    pub copies: Vec<Disk>,
    /// For so many requests, all rows were read.
    pub whole: u64,
}

impl Registry {
    pub fn registry_input(&self, now: i64) -> RegistryInput {
        RegistryInput {
            now: RegistryMillis::new(now + self.off),
            origin: self.origin,
            clean_since: self.clean_since,
            // Different in each registry, and with each start and change.
            random: self.start << 64 | u128::from(self.disk.0.serial),
        }
    }

    pub fn rows(&self) -> &BTreeMap<WorkerId, Row> {
        &self.disk.1.rows
    }

    /// Answers a request, at this true time.
    pub fn handle(&mut self, request: &Request, now: i64) -> Reply {
        let input = self.registry_input(now);
        let input = match &self.etcd {
            None => input,
            Some(etcd) => etcd.registry_input(&self.disk.0, &input),
        };
        let (state, table) = &mut self.disk;
        let before = state.clone();
        let (reply, is_all) = lease_table::handle(state, table, request, &input);
        self.whole += u64::from(is_all);
        if let Some(etcd) = &mut self.etcd {
            etcd.wrote(*state != before);
        }
        reply
    }

    /// What the disk was this many changes ago.
    fn ago(&self, changes: usize) -> Disk {
        let kept = self.copies.len();
        match kept.checked_sub(changes.min(kept)) {
            Some(at) if at < kept => self.copies[at].clone(),
            _ => self.disk.clone(),
        }
    }
}

/// A server with one generator.
#[derive(Clone, Debug, Hash)]
pub struct Server {
    pub identity: ServerKey,
    pub fixed: Option<WorkerId>,
    /// The registry that it asks.
    pub registry: usize,
    pub off: i64,
    pub up: bool,
    pub frozen: bool,
    /// A standby.
    pub in_recovery: bool,
    /// On disk: no ID whose tick begins at or after it was issued.
    pub mark: i64,
    /// Kept over restarts, if the world's hosts keep it.
    pub memory: Option<Memory>,
    pub node: Node,
    /// The right that the sessions see: generation, worker ID, bound.
    stamp: Option<(u64, WorkerId, i64)>,
    /// The first tick that was not used.
    cursor: Option<i64>,
    /// Where the right began.
    start: i64,
    /// How far the generator's clock has come.
    line: i64,
    /// A session that has read the right and has not issued yet.
    session: Option<(WorkerId, i64)>,
    pub issued_at: Option<i64>,
    pub tick: i64,
}

impl Server {
    pub fn clock(&self, now: i64) -> i64 {
        now + self.off
    }

    /// No tick that begins at or after it was used.
    fn furthest(&self) -> i64 {
        self.cursor.map_or(0, |cursor| cursor * self.tick)
    }

    pub fn awake(&self) -> bool {
        self.up && !self.frozen
    }

    pub fn stamp(&self) -> Option<(u64, WorkerId, i64)> {
        self.stamp
    }

    /// Puts the node's right in force.
    fn publish(&mut self, now: i64) {
        let Some(right) = self.node.right() else {
            self.stamp = None;
            return;
        };
        let known = self.stamp.map(|stamp| stamp.0);
        if known != Some(right.generation) {
            let up = |instant: i64| {
                instant.div_euclid(self.tick) + i64::from(instant.rem_euclid(self.tick) > 0)
            };
            let first = up(right.floor.get()).max(up(self.mark));
            let first = first.max(self.clock(now).div_euclid(self.tick));
            let first = first.max(self.cursor.unwrap_or(0));
            self.cursor = Some(first);
            self.start = first * self.tick;
            self.line = self.line.max(self.start).max(self.clock(now));
        }
        self.stamp = Some((right.generation, right.worker, right.bound.get()));
    }

    /// The next position under a right that a session has read, if there is one.
    pub fn issue(&mut self, right: (WorkerId, i64), now: i64) -> Option<(WorkerId, i64)> {
        let (clock, (worker, bound)) = (self.clock(now), right);
        self.line = self.line.max(clock);
        let tick = self.cursor?.max(clock.div_euclid(self.tick));
        let begin = tick * self.tick;
        let borrowed = if self.start > clock { 0 } else { BORROW };
        if begin > self.line.max(clock + borrowed) {
            return None;
        }
        if begin >= bound {
            self.node.need(UnixMillis::new(begin));
            return None;
        }
        if begin >= self.mark {
            let mark = UnixMillis::new(begin.max(clock) + RESERVATION);
            // The session's bound is the one of its right, which may be an old one.
            let mark = self
                .node
                .right()
                .map_or(mark, |right| mark.min(right.bound));
            self.mark = mark.get().min(bound).max(begin + 1);
        }
        self.cursor = Some(tick + 1);
        self.issued_at = Some(now);
        Some((worker, tick))
    }
}

/// A message under way. A request can be delivered several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
// A model has few of them, and clones them: a box would make that dearer.
#[allow(clippy::large_enum_variant)]
pub enum Flight {
    Request {
        from: usize,
        to: usize,
        request: Request,
    },
    Reply {
        to: usize,
        reply: Reply,
    },
}

#[derive(Clone, Debug)]
pub struct World {
    pub now: i64,
    boot: i64,
    drawn: u128,
    pub registries: Vec<Registry>,
    pub servers: Vec<Server>,
    pub flights: Vec<Flight>,
    /// Who issued what, and when.
    pub issued: BTreeMap<(WorkerId, i64), (usize, i64)>,
    /// The first position that was issued twice.
    pub twice: Option<String>,
    /// Servers remember the registry over restarts.
    pub keep_memory: bool,
    pub grants: u64,
    tell: bool,
    step: i64,
    pub log: Vec<String>,
    pub changes: BTreeSet<&'static str>,
}

/// What is small and differs between worlds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub pool: i64,
    pub servers: usize,
    pub tick: i64,
    pub lease: i64,
    pub hold: i64,
    pub max_ahead: i64,
    /// What [`World::second`] takes.
    pub step: i64,
}

impl Plan {
    /// A lease that is longer than the patience: four times as slow as the default.
    pub fn long() -> Self {
        Self {
            lease: 120 * SECOND,
            hold: 32 * SECOND,
            max_ahead: 80 * SECOND,
            step: 4 * SECOND,
            ..Self::default()
        }
    }

    /// How long a holder may be silent.
    pub fn patience(&self) -> i64 {
        self.lease.min(PATIENCE.get())
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            pool: 1,
            servers: 2,
            tick: SECOND,
            lease: 8 * SECOND,
            hold: 8 * SECOND,
            max_ahead: 20 * SECOND,
            step: SECOND,
        }
    }
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let made = EPOCH - 500 * plan.step;
        let pool = Pool {
            name: "p".to_string(),
            ids: 0..plan.pool,
            except: Vec::new(),
            lease: Millis::new(plan.lease),
            hold: Millis::new(plan.hold),
            max_ahead: Millis::new(plan.max_ahead),
            made: RegistryMillis::new(made),
            unused: false,
        };
        let pool = pool.checked().unwrap();
        let mut world = Self {
            now: EPOCH,
            boot: EPOCH,
            drawn: 0,
            registries: Vec::new(),
            servers: Vec::new(),
            flights: Vec::new(),
            issued: BTreeMap::new(),
            twice: None,
            keep_memory: true,
            grants: 0,
            tell: false,
            step: plan.step,
            log: Vec::new(),
            changes: BTreeSet::new(),
        };
        let origin = match Etcd::of_new_world() {
            None => Origin {
                system: 1,
                timeline: 1,
                database: 1,
            },
            // The cluster's ID.
            Some(_) => Origin {
                system: 1,
                timeline: 0,
                database: 0,
            },
        };
        let input = RegistryInput {
            now: RegistryMillis::new(made),
            origin,
            clean_since: 1,
            random: 1,
        };
        world.registries.push(Registry {
            disk: (State::new(&input), Table::new(pool)),
            origin,
            start: 1,
            clean_since: 1,
            off: 0,
            copies: Vec::new(),
            whole: 0,
            etcd: Etcd::of_new_world(),
        });
        for number in 0..plan.servers {
            let identity = ServerKey {
                system: 100 + number as u64,
                boot: 1,
                device: 1,
                inode: 1,
            };
            world.add(identity, plan.tick);
        }
        world
    }

    /// From now on what happens is written down.
    pub fn tell(mut self) -> Self {
        self.tell = true;
        self
    }

    pub fn say(&mut self, what: impl FnOnce() -> String) {
        if self.tell {
            let at = (self.now - EPOCH) as f64 / SECOND as f64;
            self.log.push(format!("t={at} {}", what()));
        }
    }

    fn draw(&mut self) -> u128 {
        self.drawn += 1;
        self.drawn
    }

    fn new_node(
        &mut self,
        identity: ServerKey,
        fixed: Option<WorkerId>,
        memory: Option<Memory>,
    ) -> Node {
        self.boot += 1;
        let me = Holder {
            identity,
            started: BootNanos::new(self.boot * 1_000_000),
            host: String::new(),
            address: String::new(),
            // Different in each server, as a name would be.
            port: (identity.system << 8 | identity.inode) as u16,
            data_directory: String::new(),
        };
        // Each part tells servers apart.
        let drawn = self.draw();
        let nonce = Nonce(drawn << 64 | drawn);
        Node::new(me, nonce, fixed, memory.filter(|_| self.keep_memory))
    }

    pub fn add(&mut self, identity: ServerKey, tick: i64) -> usize {
        let node = self.new_node(identity, None, None);
        self.servers.push(Server {
            identity,
            fixed: None,
            registry: self.registries.len() - 1,
            off: 0,
            up: true,
            frozen: false,
            in_recovery: false,
            mark: 0,
            memory: None,
            node,
            stamp: None,
            cursor: None,
            start: 0,
            line: 0,
            session: None,
            issued_at: None,
            tick,
        });
        self.servers.len() - 1
    }

    pub fn newest(&mut self) -> &mut Registry {
        self.registries.last_mut().unwrap()
    }

    pub fn node_input(&self, server: usize) -> NodeInput {
        let host = &self.servers[server];
        NodeInput {
            boot: BootNanos::new(self.boot * 1_000_000),
            clock: UnixMillis::new(host.clock(self.now)),
            furthest: UnixMillis::new(host.furthest()),
            in_recovery: host.in_recovery,
        }
    }

    /// The next request of a server, if one is due.
    pub fn ask(&mut self, server: usize) -> Option<Request> {
        if !self.servers[server].awake() {
            return None;
        }
        let node_input = self.node_input(server);
        match self.servers[server].node.next(&node_input) {
            Next::Send(request) => Some(*request),
            Next::Await | Next::Sleep(_) => None,
        }
    }

    /// A registry answers a request.
    pub fn answer(&mut self, registry: usize, from: usize, request: &Request) -> Reply {
        let now = self.now;
        let registry = &mut self.registries[registry];
        let before = registry.disk.clone();
        let reply = registry.handle(request, now);
        lease_claims::an_old_token_changes_nothing(&before, &registry.disk, request);
        if registry.disk != before {
            registry.copies.push(before);
            if registry.copies.len() > COPIES {
                registry.copies.remove(0);
            }
        }
        let asked = match request.ask {
            RequestKind::Acquire { .. } => "acquires",
            RequestKind::Renew { .. } => "renews",
            RequestKind::Release { .. } => "releases",
        };
        self.grants += u64::from(matches!(&reply.answer, Answer::Granted(_)));
        self.say(|| format!("server {from} {asked}: {}", brief(&reply)));
        reply
    }

    /// A server hears a reply; the right is put in force by [`World::publish`].
    pub fn hear(&mut self, server: usize, reply: &Reply) {
        let node_input = self.node_input(server);
        let host = &mut self.servers[server];
        if !host.awake() {
            return;
        }
        let change = host.node.on_reply(reply, &node_input);
        host.memory = host.node.memory();
        let is_renewed = matches!(reply.answer, Answer::Renewed { .. });
        if is_renewed && host.node.has_surplus(&node_input) {
            self.say(|| format!("server {server} returns its lead"));
            self.stop(server);
            self.start(server);
            return;
        }
        let name = match change {
            Change::Nothing => return,
            Change::Acquired { .. } => "acquired",
            Change::Resumed(_) => "resumed",
            Change::Lost(_) => "lost",
            Change::Failed(_) => "troubled",
            Change::Returned => "returned",
            Change::Copied => {
                host.session = None;
                host.stamp = None;
                let (identity, fixed, memory) = (host.identity, host.fixed, host.memory);
                self.servers[server].node = self.new_node(identity, fixed, memory);
                "copied"
            }
        };
        self.changes.insert(name);
    }

    /// A reply does not come.
    pub fn give_up(&mut self, server: usize, number: u64) {
        let node_input = self.node_input(server);
        let host = &mut self.servers[server];
        if host.awake() {
            host.node.failed(number, String::new(), &node_input);
        }
    }

    /// The sessions see the node's right.
    pub fn publish(&mut self, server: usize) {
        let now = self.now;
        if self.servers[server].awake() {
            self.servers[server].publish(now);
        }
    }

    /// A request and its reply, at once.
    pub fn contact(&mut self, server: usize) -> bool {
        // The pauses of the node are short against a second.
        self.boot += 25;
        let Some(request) = self.ask(server) else {
            return false;
        };
        let reply = self.answer(self.servers[server].registry, server, &request);
        self.hear(server, &reply);
        self.publish(server);
        true
    }

    pub fn note(&mut self, server: usize, position: Option<(WorkerId, i64)>) {
        let Some((worker, tick)) = position else {
            return;
        };
        let now = self.now;
        if let Some((first, at)) = self.issued.insert((worker, tick), (server, now)) {
            let begin = (tick * self.servers[server].tick - EPOCH) as f64 / SECOND as f64;
            let at = (at - EPOCH) as f64 / SECOND as f64;
            let text = format!(
                "TWICE: worker {} tick at {begin} by server {server}, first by {first} at {at}",
                worker.get()
            );
            self.say(|| text.clone());
            self.twice.get_or_insert(text);
        }
    }

    /// A session issues an ID at once.
    pub fn issue(&mut self, server: usize) -> bool {
        let now = self.now;
        let host = &mut self.servers[server];
        let Some((_, worker, bound)) = host.stamp.filter(|_| host.awake()) else {
            return false;
        };
        let position = host.issue((worker, bound), now);
        self.note(server, position);
        position.is_some()
    }

    /// A session reads the right, and pauses.
    pub fn begin(&mut self, server: usize) -> bool {
        let host = &mut self.servers[server];
        let begins = host.awake() && host.session.is_none() && host.stamp.is_some();
        if begins {
            host.session = host.stamp.map(|(_, worker, bound)| (worker, bound));
        }
        begins
    }

    /// The session resumes, and issues.
    pub fn finish(&mut self, server: usize) -> bool {
        let now = self.now;
        let host = &mut self.servers[server];
        let awake = host.awake();
        let session = host.session.take_if(|_| awake);
        if let Some(right) = session {
            let position = host.issue(right, now);
            self.note(server, position);
        }
        session.is_some()
    }

    /// Time passes.
    pub fn pass(&mut self, time: i64) {
        self.now += time;
        self.boot = self.boot.max(self.now);
        for server in &mut self.servers {
            server.line = (server.line + time / 2).max(server.clock(self.now));
        }
    }

    pub fn freeze(&mut self, server: usize) {
        self.servers[server].frozen = true;
        self.say(|| format!("server {server} is frozen"));
    }

    pub fn wake(&mut self, server: usize) {
        if self.servers[server].frozen {
            self.servers[server].frozen = false;
            self.say(|| format!("server {server} wakes"));
        }
    }

    /// The server's processes end at once; its disk stays.
    pub fn crash(&mut self, server: usize, starts: bool) {
        let (identity, fixed) = (self.servers[server].identity, self.servers[server].fixed);
        let memory = self.servers[server].memory;
        let node = self.new_node(identity, fixed, memory);
        let host = &mut self.servers[server];
        (host.up, host.frozen) = (starts, false);
        (host.stamp, host.cursor, host.session) = (None, None, None);
        (host.start, host.line) = (0, 0);
        host.node = node;
        self.say(|| {
            format!(
                "server {server} crashes{}",
                if starts { ", starts" } else { "" }
            )
        });
    }

    /// The whole machine starts anew.
    pub fn reboot(&mut self, server: usize) {
        self.servers[server].identity.boot = self.draw();
        self.crash(server, true);
    }

    pub fn start(&mut self, server: usize) {
        if !self.servers[server].up {
            self.crash(server, true);
        }
    }

    /// A clean stop. Returns the release, which may be delivered, or not, or late.
    pub fn close(&mut self, server: usize) -> Option<Request> {
        if !self.servers[server].awake() {
            return None;
        }
        let node_input = self.node_input(server);
        let host = &mut self.servers[server];
        (host.session, host.stamp) = (None, None);
        let end = host.cursor.map_or(node_input.furthest, |cursor| {
            UnixMillis::new(cursor * host.tick)
        });
        let request = host.node.close(end, &node_input);
        self.crash(server, false);
        request
    }

    /// A clean stop that goes well.
    pub fn stop(&mut self, server: usize) {
        let registry = self.servers[server].registry;
        if let Some(request) = self.close(server) {
            self.answer(registry, server, &request);
        }
    }

    /// A second server starts from a copy of this one's disk.
    pub fn clone_disk(&mut self, server: usize, same_identity: bool) -> usize {
        let original = self.servers[server].clone();
        let mut identity = original.identity;
        if !same_identity {
            identity.inode = self.servers.len() as u64 + 100;
        }
        let copy = self.add(identity, original.tick);
        let memory = original.memory;
        let fixed = original.fixed;
        self.servers[copy].node = self.new_node(identity, fixed, memory);
        let host = &mut self.servers[copy];
        (host.mark, host.memory, host.off) = (original.mark, memory, original.off);
        (host.registry, host.fixed) = (original.registry, fixed);
        self.say(|| format!("server {copy} is a copy of {server}'s disk, same: {same_identity}"));
        copy
    }

    /// A copy of a running machine.
    pub fn clone_memory(&mut self, server: usize) -> usize {
        self.servers.push(self.servers[server].clone());
        self.say(|| format!("server {server} is copied as it runs"));
        self.servers.len() - 1
    }

    /// A generator is advanced by `snowflake_advance()`: as far as the pool allows.
    pub fn advance(&mut self, server: usize, by: i64) {
        let now = self.now;
        let host = &mut self.servers[server];
        if !host.awake() || host.stamp.is_none() {
            return;
        }
        let to = (host.clock(now) + by).div_euclid(host.tick);
        host.cursor = host.cursor.max(Some(to));
        host.line = host.line.max(to * host.tick);
        self.say(|| format!("server {server} is advanced by {}", by / SECOND));
        for _ in 0..2 {
            self.issue(server);
            self.contact(server);
        }
        self.issue(server);
    }

    /// Another registry starts from what the newest one had on disk some changes ago.
    /// Returns its number; nobody asks it yet.
    pub fn copy_registry(&mut self, changes: usize, how: How) -> usize {
        let timeline = self.registries.iter().map(|one| one.origin.timeline).max();
        let start = self.draw() + 1;
        let old = self.registries.last().unwrap();
        let mut new = Registry {
            disk: old.ago(changes),
            origin: old.origin,
            start,
            clean_since: match how {
                How::Snapshot => start,
                _ => old.clean_since,
            },
            off: old.off,
            copies: old.copies.clone(),
            whole: 0,
            etcd: old.etcd.clone(),
        };
        if let Some(etcd) = &mut new.etcd
            && how == How::Snapshot
        {
            etcd.lose_raft();
        }
        let kept = new.copies.len();
        new.copies.truncate(kept - changes.min(kept));
        if how == How::Promotion {
            match new.etcd {
                None => new.origin.timeline = timeline.unwrap() + 1,
                Some(_) => new.origin.system = u64::try_from(start).unwrap() + 1,
            }
        }
        self.registries.push(new);
        self.say(|| format!("{how:?} of the registry, {changes} changes are lost"));
        self.registries.len() - 1
    }

    /// The newest registry is replaced for everybody.
    pub fn replace(&mut self, changes: usize, how: How) {
        let new = self.copy_registry(changes, how);
        // The old one no longer answers; what it has answered may still arrive.
        self.flights
            .retain(|flight| matches!(flight, Flight::Reply { .. }));
        for server in &mut self.servers {
            server.registry = new;
        }
    }

    /// A new registry takes the place of the newest one, of which nothing is left.
    pub fn make_anew(&mut self) {
        self.replace(0, How::Promotion);
        let (now, drawn) = (self.now, self.draw());
        let newest = self.registries.last_mut().unwrap();
        let input = newest.registry_input(now);
        let mut pool = newest.disk.1.pool.clone();
        pool.made = input.now;
        let input = RegistryInput {
            random: drawn,
            ..input
        };
        newest.disk = (State::new(&input), Table::new(pool));
        newest.copies.clear();
        self.say(|| "the registry is made anew".to_string());
    }

    /// As [`World::replace`], back to before the first grant to this server.
    pub fn changes_since(&self, has: impl Fn(&BTreeMap<WorkerId, Row>) -> bool) -> usize {
        let registry = self.registries.last().unwrap();
        let last = registry.copies.iter().rposition(|disk| has(&disk.1.rows));
        registry.copies.len() - last.unwrap()
    }

    /// A second in which all goes well.
    pub fn second(&mut self) {
        self.pass(self.step);
        for server in 0..self.servers.len() {
            for _ in 0..3 {
                self.contact(server);
                self.issue(server);
            }
        }
    }

    pub fn seconds(&mut self, count: i64) {
        for _ in 0..count {
            self.second();
        }
    }

    /// The seconds until a server issues, all else being well.
    pub fn until_issues(&mut self, server: usize, most: i64) -> Option<i64> {
        let begin = self.now;
        for second in 1..=most {
            self.second();
            if self.servers[server].issued_at > Some(begin) {
                return Some(second);
            }
        }
        None
    }

    /// How far the greatest bound is ahead of the true time, in seconds.
    pub fn lead(&self) -> i64 {
        let rows = self.registries.last().unwrap().rows().values();
        let bound = rows.map(|row| row.bound.get()).max();
        bound.map_or(0, |bound| (bound - self.now).div_euclid(SECOND))
    }

    pub fn row(&self, worker: i32) -> &Row {
        let rows = self.registries.last().unwrap().rows();
        rows.get(&WorkerId::new(worker).unwrap()).unwrap()
    }

    /// # Panics
    /// Panics if a position was issued twice.
    pub fn check(&self) {
        assert!(self.twice.is_none(), "{}", self.log.join("\n"));
    }

    /// Two worlds with the same hash continue alike, if no more than so many changes of a
    /// registry are lost.
    pub fn hash_into(&self, hasher: &mut impl Hasher, changes: usize) {
        (self.now, self.boot, self.registries.len()).hash(hasher);
        let newest = self.registries.last().unwrap();
        (&newest.disk, newest.origin, newest.start, newest.off).hash(hasher);
        newest.etcd.hash(hasher);
        newest
            .copies
            .iter()
            .rev()
            .take(changes)
            .for_each(|copy| copy.hash(hasher));
        self.servers.hash(hasher);
        self.flights.hash(hasher);
        for position in self.issued.keys() {
            position.hash(hasher);
        }
    }
}

/// How another registry comes to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// A standby is promoted: it is on a new timeline.
    Promotion,
    /// A snapshot is started: it looks like a crash recovery.
    Snapshot,
    /// A backup of a stopped server is started: it looks like a restart.
    Backup,
}

fn brief(reply: &Reply) -> String {
    let at = |instant: UnixMillis| (instant.get() - EPOCH) as f64 / SECOND as f64;
    match &reply.answer {
        Answer::Granted(grant) => format!(
            "granted worker {} token {} floor {} bound {}",
            grant.worker.get(),
            grant.counter,
            at(grant.floor),
            at(grant.bound)
        ),
        Answer::Renewed { bound, .. } => format!("bound {}", at(*bound)),
        answer => format!("{answer:?}"),
    }
}
