//! The horizon of a cluster: consumers that read up to it, and what they miss.
//!
//! A transaction of the world takes an ID, and commits later: then the ID appears. One
//! whose tick ends at or before a horizon that was returned is missed.
//!
//! `WALK_DEEPER=n` walks more.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::collections::BTreeSet;

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::cluster_horizon::{self, DropServerError, HorizonError, Reports, Server};
use super::super::lease::state::RegistryInput;
use super::super::lease::{Answer, Ask, Fence, RegistryError, ServerKey};
use super::explorer::Random;
use super::lease::{EPOCH, How, Plan, SECOND, World};
use super::lease_etcd::in_etcd;
use super::lease_search::runs;
use super::lease_traces::PATIENCE;

/// A transaction that has taken an ID.
#[derive(Clone, Debug)]
struct Open {
    server: usize,
    /// The beginning of the ID's tick.
    begin: i64,
    is_prepared: bool,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    /// The servers that report a horizon.
    reporting: BTreeSet<usize>,
    open: Vec<Open>,
    /// The greatest horizon that was returned.
    pub returned: Option<i64>,
    /// The first ID that was missed.
    pub missed: Option<String>,
}

impl Orders {
    /// The server's processes end.
    pub fn crash(&mut self, server: usize) {
        self.open.retain(|it| it.server != server || it.is_prepared);
    }

    /// What transactions of a server hold.
    pub fn held(&self, server: usize) -> Option<UnixMillis> {
        let open = self.open.iter().filter(|it| it.server == server);
        open.map(|it| UnixMillis::new(it.begin)).min()
    }
}

impl World {
    /// What a server reports with a renewal.
    pub fn report(&mut self, server: usize) -> Option<UnixMillis> {
        let now = self.now;
        let host = &mut self.servers[server];
        let (_, _, bound) = host.stamp()?;
        if !self.orders.reporting.contains(&server) {
            return None;
        }
        // Announced before it looks at the transactions.
        host.reported = host.reported.max(host.clock(now).min(bound));
        let reached = UnixMillis::new(host.reported);
        let held = self.orders.held(server);
        Some(held.map_or(reached, |held| held.min(reached)))
    }

    /// An ID that its transaction has just taken and committed.
    pub fn appear(&mut self, server: usize, position: Option<(WorkerId, i64)>) {
        if let Some((_, tick)) = position {
            self.show(server, tick * self.servers[server].tick);
        }
    }

    fn show(&mut self, server: usize, begin: i64) {
        let tick = self.servers[server].tick;
        let returned = self.orders.returned;
        if returned.is_some_and(|at| begin + tick <= at) {
            let at = (begin - EPOCH) as f64 / SECOND as f64;
            let text = format!("MISSED: an ID of {at} appears on server {server}");
            self.say(|| text.clone());
            self.orders.missed.get_or_insert(text);
        }
    }

    /// A transaction takes an ID.
    fn take(&mut self, server: usize) -> Option<i64> {
        let now = self.now;
        let host = &mut self.servers[server];
        let (_, worker, bound) = host.stamp().filter(|_| host.awake())?;
        let position = host.issue((worker, bound), now);
        self.note(server, position);
        let begin = position?.1 * self.servers[server].tick;
        let is_prepared = false;
        self.orders.open.push(Open {
            server,
            begin,
            is_prepared,
        });
        self.say(|| format!("server {server}: a transaction takes an ID"));
        Some(begin)
    }

    /// A transaction takes an ID a second later: then there is one for it.
    fn taken(&mut self, server: usize) -> i64 {
        self.pass(SECOND);
        self.take(server).unwrap()
    }

    fn prepare(&mut self, server: usize) {
        let is_awake = self.servers[server].awake();
        let open = self.orders.open.iter_mut();
        for it in open.filter(|it| it.server == server && is_awake) {
            it.is_prepared = true;
        }
    }

    /// All transactions of a server commit.
    fn commit(&mut self, server: usize) {
        if !self.servers[server].awake() || self.servers[server].in_recovery {
            return;
        }
        let open = std::mem::take(&mut self.orders.open);
        let (ours, others): (Vec<_>, Vec<_>) = open.into_iter().partition(|it| it.server == server);
        self.orders.open = others;
        for it in ours {
            self.show(server, it.begin);
        }
    }

    /// A consumer asks for the horizon, and reads the rows before it.
    fn consume(&mut self) -> Result<i64, HorizonError> {
        let now = self.now;
        let registry = self.newest();
        let input = registry.registry_input(now, false);
        let (state, table) = &registry.disk;
        let servers: Vec<Server> = table.servers.values().cloned().collect();
        let (reports, silent) = (
            Reports::of(servers.iter()),
            cluster_horizon::silent(&servers),
        );
        let horizon = cluster_horizon::read(state, reports, silent, &input)?.get();
        self.orders.returned = self.orders.returned.max(Some(horizon));
        self.say(|| {
            format!(
                "the horizon is {}",
                (horizon - EPOCH) as f64 / SECOND as f64
            )
        });
        Ok(horizon)
    }

    /// An administrator drops a server, by the name that it has.
    fn drop_server(&mut self, name: &str) -> Result<Server, DropServerError> {
        let now = self.now;
        let registry = self.newest();
        let input = registry.registry_input(now, false);
        let (state, table) = &mut registry.disk;
        let servers: Vec<Server> = table.servers.values().cloned().collect();
        let dropped = cluster_horizon::drop_server(state, &servers, name, &input);
        if let Ok(server) = &dropped {
            table.put_server(server.clone());
        }
        self.say(|| format!("drop of {name}: {}", dropped.is_ok()));
        dropped
    }

    /// The server as the registry has stored it.
    fn known(&self, server: usize) -> Option<Server> {
        let key = self.servers[server].identity.text();
        self.registries
            .last()
            .unwrap()
            .disk
            .1
            .servers
            .get(&key)
            .cloned()
    }

    fn ordered(mut self) -> Self {
        self.orders.reporting = (0..self.servers.len()).collect();
        self
    }

    /// How far the horizon is behind the true time, in seconds.
    fn lag(&mut self) -> i64 {
        (self.now - self.consume().unwrap()).div_euclid(SECOND)
    }
}

fn world(pool: i64, servers: usize) -> World {
    let plan = Plan {
        pool,
        servers,
        ..Plan::default()
    };
    World::new(plan).tell().ordered()
}

/// Two servers with a worker ID each, and a third one that has not started.
fn two_of_three(pool: i64) -> World {
    let mut world = world(pool, 3);
    world.crash(2, false);
    world.seconds(12);
    assert!(world.lag() <= 3);
    world
}

#[test]
fn the_horizon_follows_servers_that_issue_and_servers_that_do_not() {
    let mut world = world(3, 3);
    for _ in 0..12 {
        world.pass(SECOND);
        for server in 0..3 {
            world.contact(server);
        }
    }
    // None has issued anything.
    assert!(world.lag() <= 3);
    world.seconds(40);
    assert!(world.lag() <= 3);
    world.check();
}

#[test]
fn an_open_transaction_holds_it_back() {
    let mut world = two_of_three(2);
    let begin = world.taken(1);
    world.seconds(30);
    assert_eq!(world.consume(), Ok(begin));
    world.commit(1);
    world.seconds(6);
    assert!(world.lag() <= 3);
    world.check();
}

/// Nothing is returned before all have reported; later, one that has not holds it where
/// it is, and is named.
#[test]
fn a_server_that_reports_nothing_holds_it_back() {
    let mut world = world(3, 3);
    world.orders.reporting.remove(&1);
    world.crash(2, false);
    world.seconds(12);
    let Err(HorizonError::Report(server)) = world.consume() else {
        panic!("{:?}", world.consume())
    };
    assert_eq!(server.holder.identity, world.servers[1].identity);
    world.orders.reporting.insert(1);
    world.seconds(6);
    let before = world.consume().unwrap();
    world.orders.reporting.remove(&2);
    world.start(2);
    world.seconds(20);
    let after = world.consume().unwrap();
    assert!(after >= before && after < world.now - 10 * SECOND);
    let earlier = world.known(2).unwrap();
    assert_eq!((earlier.horizon, earlier.reported), (None, None));
    world.check();
}

#[test]
fn there_is_no_horizon_without_a_server() {
    let mut world = world(1, 1);
    world.crash(0, false);
    assert_eq!(world.consume(), Err(HorizonError::NoServer));
    world.start(0);
    world.seconds(12);
    world.stop(0);
    // What the last one has issued lies before it.
    let last = *world.issued.keys().map(|(_, tick)| tick).max().unwrap();
    assert!(world.consume().unwrap() > last * SECOND);
    world.seconds(100);
    world.start(0);
    world.seconds(12);
    assert!(world.lag() <= 3);
    world.check();
}

/// A new era that begins without a look at the servers leaves their least report as it was.
#[test]
fn an_era_that_an_administrator_begins_keeps_the_horizon() {
    for is_revoked in [false, true] {
        let mut world = two_of_three(2);
        world.seconds(10);
        let before = world.consume().unwrap();
        let now = world.now;
        let registry = world.newest();
        let input = registry.registry_input(now, false);
        registry.clean_since += u128::from(is_revoked);
        let (state, table) = &mut registry.disk;
        match is_revoked {
            true => {
                let input = RegistryInput {
                    start: input.start + 1,
                    clean_since: input.clean_since + 1,
                    ..input
                };
                let worker = table.rows.keys().next().copied().unwrap();
                super::lease_table::revoke(state, table, worker, &input);
            }
            false => state.declare(&input),
        }
        let after = world.consume().unwrap();
        assert!(after >= before, "{after}");
    }
}

/// Its worker ID is another server's since long, and its transactions are still open.
#[test]
fn a_lost_server_counts_until_it_is_dropped() {
    let mut world = two_of_three(2);
    let begin = world.taken(0);
    world.seconds(4);
    world.freeze(0);
    world.start(2);
    world.seconds(PATIENCE + 10);
    assert!(world.servers[2].issued_at.is_some());
    assert_eq!(world.consume(), Ok(begin));
    // It wakes, and commits.
    world.wake(0);
    world.commit(0);
    assert_eq!(world.orders.missed, None);
    world.crash(0, false);
    let held_back = world.consume().unwrap();
    world.seconds(20);
    assert_eq!(world.consume(), Ok(held_back));
    let lost = world.known(0).unwrap();
    world.drop_server(&lost.name()).unwrap();
    assert!(world.lag() <= 6);
    assert_eq!(
        world.drop_server(&lost.name()),
        Err(DropServerError::Unknown)
    );
    world.check();
}

#[test]
fn a_server_that_may_run_is_not_dropped() {
    let mut world = two_of_three(2);
    let name = world.known(0).unwrap().name();
    let Err(DropServerError::MayRun(server)) = world.drop_server(&name) else {
        panic!("dropped")
    };
    assert_eq!(server.holder.identity, world.servers[0].identity);
    world.freeze(0);
    world.pass(17 * SECOND);
    world.drop_server(&name).unwrap();
    // Its token has ended, though nobody has taken its worker ID over.
    world.wake(0);
    let request = world.ask(0).unwrap();
    assert!(matches!(request.ask, Ask::Renew { .. }));
    let reply = world.answer(0, 0, &request);
    let why = Fence::Revoked;
    let Answer::Refused(RegistryError::Fenced { why: found, .. }) = reply.answer else {
        panic!("{:?}", reply.answer)
    };
    assert_eq!(found, why);
    world.hear(0, &reply);
    // It gets another one, above the horizon, and counts again.
    world.seconds(PATIENCE);
    let back = world.known(0).unwrap();
    assert!(back.dropped.is_none() && back.since > server.since);
    assert!(world.until_issues(0, 60).is_some());
    assert!(world.lag() <= 12);
    world.check();
}

/// The grant was not heard, and its server is dropped before it asks again.
#[test]
fn a_dropped_server_does_not_get_its_last_grant_again() {
    let mut world = two_of_three(3);
    world.start(2);
    let request = world.ask(2).unwrap();
    let reply = world.answer(0, 2, &request);
    let Answer::Granted(grant) = reply.answer else {
        panic!("{:?}", reply.answer)
    };
    world.give_up(2, request.number);
    world.pass(17 * SECOND);
    let name = world.known(2).unwrap().name();
    world.drop_server(&name).unwrap();
    world.seconds(6);
    let request = world.ask(2);
    assert!(request.is_none_or(|request| matches!(request.ask, Ask::Renew { .. })));
    assert!(world.known(2).unwrap().dropped.is_none());
    let row = world.row(2);
    assert!(
        row.counter > grant.counter,
        "{grant:?} {row:?} {:#?}",
        world.log
    );
    world.check();
}

/// The clock of the server that joins is slow, and so was that of the one before it.
#[test]
fn a_new_server_starts_above_the_horizon() {
    let mut world = two_of_three(3);
    world.servers[2].off = -10 * SECOND;
    let horizon = world.consume().unwrap();
    world.start(2);
    world.contact(2);
    assert!(world.row(2).floor.get() >= horizon);
    world.seconds(40);
    world.check();
}

/// A clean stop lowers the bound to where IDs have ended. The clock was set back since the
/// report.
#[test]
fn a_worker_id_that_was_returned_starts_above_the_horizon() {
    let mut world = world(1, 2);
    world.crash(1, false);
    for _ in 0..12 {
        world.pass(SECOND);
        world.contact(0);
    }
    let horizon = world.consume().unwrap();
    world.servers[0].off = -5 * SECOND;
    world.stop(0);
    world.servers[1].off = -5 * SECOND;
    world.start(1);
    world.contact(1);
    assert!(world.row(0).floor.get() >= horizon);
    world.seconds(30);
    world.check();
}

/// A server whose clock was set back issues above what it has reported.
#[test]
fn a_clock_that_is_set_back_after_a_report() {
    let mut world = two_of_three(2);
    for off in [-3, -8, 0, -6] {
        world.servers[0].off = off * SECOND;
        world.seconds(9);
        world.consume().unwrap();
    }
    world.check();
}

#[test]
fn a_crash_ends_transactions_and_leaves_prepared_ones() {
    let mut world = two_of_three(2);
    world.taken(0);
    world.seconds(4);
    world.crash(0, true);
    world.seconds(20);
    assert!(world.lag() <= 12);
    let begin = world.taken(0);
    world.prepare(0);
    world.seconds(4);
    world.crash(0, true);
    world.seconds(20);
    assert_eq!(world.consume(), Ok(begin));
    world.commit(0);
    world.seconds(6);
    assert!(world.lag() <= 12);
    world.check();
}

#[test]
fn a_prepared_transaction_counts_over_a_clean_stop() {
    let mut world = two_of_three(2);
    let begin = world.taken(0);
    world.prepare(0);
    world.seconds(4);
    world.stop(0);
    world.seconds(40);
    assert_eq!(world.consume(), Ok(begin));
    assert!(world.known(0).unwrap().stopped);
    world.start(0);
    world.seconds(20);
    assert_eq!(world.consume(), Ok(begin));
    assert!(!world.known(0).unwrap().stopped);
    world.commit(0);
    world.seconds(6);
    assert!(world.lag() <= 3);
    world.stop(0);
    assert_eq!(world.known(0), None);
    world.check();
}

/// The directory may have been a standby meanwhile: then it has what another server has
/// prepared, before its own last report.
#[test]
fn a_server_that_comes_back_has_reported_nothing() {
    let mut world = world(2, 2);
    world.seconds(12);
    let begin = world.taken(1);
    world.prepare(1);
    world.seconds(9);
    world.stop(1);
    let known = world.known(1).unwrap();
    assert_eq!(known.horizon, Some(UnixMillis::new(begin)));
    let key = known.holder.identity.text();
    let far = UnixMillis::new(world.now + 60 * SECOND);
    let registry = world.newest();
    registry.disk.1.servers.get_mut(&key).unwrap().horizon = Some(far);
    world.start(1);
    world.contact(1);
    assert_eq!(world.known(1).unwrap().horizon, None);
    world.seconds(20);
    let reported = world.known(1).unwrap().horizon;
    assert_eq!(reported, Some(UnixMillis::new(begin)));
}

/// Messages of an incarnation that has crashed arrive when the next one has a worker ID.
#[test]
fn an_incarnation_that_is_gone_is_not_heard() {
    let mut world = two_of_three(3);
    world.pass(4 * SECOND);
    let renewal = world.ask(0).unwrap();
    let mut release = renewal.clone();
    let Ask::Renew {
        worker, counter, ..
    } = renewal.ask
    else {
        panic!("{renewal:?}")
    };
    release.ask = Ask::Release {
        worker,
        counter,
        bound: UnixMillis::new(world.now),
        end: UnixMillis::new(world.now),
        held: None,
    };
    // The next one has another worker ID, since this one was revoked.
    let (now, registry) = (world.now, world.newest());
    let input = registry.registry_input(now, false);
    let (state, table) = &mut registry.disk;
    super::lease_table::revoke(state, table, worker, &input).unwrap();
    world.crash(0, true);
    world.seconds(3);
    let before = world.known(0).unwrap();
    let row = world.newest().disk.1.rows.get_mut(&worker).unwrap();
    (row.revoked, row.number) = (None, renewal.number - 1);
    assert_ne!(before.worker, worker);
    for (mut late, later) in [(renewal, 0), (release, 1)] {
        late.number += later;
        late.ask = late.ask.reporting(Some(UnixMillis::new(now + 7 * SECOND)));
        let answer = world.answer(0, 0, &late).answer;
        let Answer::Refused(RegistryError::Fenced { why, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(why, Fence::Succeeded);
        assert_eq!(world.known(0).as_ref(), Some(&before));
    }
    world.check();
}

/// Late, repeated, or from a wrong clock.
#[test]
fn a_report_never_goes_back_and_not_far_ahead() {
    let mut world = two_of_three(2);
    world.seconds(3);
    let report = |world: &mut World, at: i64| {
        world.pass(4 * SECOND);
        let mut request = world.ask(0).unwrap();
        request.ask = request.ask.reporting(Some(UnixMillis::new(at)));
        let reply = world.answer(0, 0, &request);
        assert!(matches!(reply.answer, Answer::Renewed { .. }));
        world.hear(0, &reply);
        world.known(0).unwrap().horizon.unwrap().get()
    };
    let before = world.known(0).unwrap().horizon.unwrap().get();
    assert_eq!(report(&mut world, before - 1), before);
    let far = report(&mut world, i64::MAX);
    assert!(far > before && far <= world.row(0).bound.get());
    // The bound itself may be hours ahead.
    world.servers[0].off = 7200 * SECOND;
    let far = report(&mut world, i64::MAX);
    let top = world.now + 8 * SECOND;
    assert!(
        far <= top && world.row(0).bound.get() > top + SECOND,
        "{far} {top}"
    );
    world.check();
}

/// Generators that lease worker IDs of their own go back in time.
#[test]
fn a_generator_with_worker_ids_of_its_own_does_not_count() {
    let mut world = two_of_three(3);
    let horizon = world.consume().unwrap();
    let mut identity = world.servers[2].identity;
    identity.generator = 7;
    let tick = world.servers[2].tick;
    let queue = world.add(identity, tick);
    world.seconds(9);
    assert!(world.servers[queue].issued_at.is_some());
    assert_eq!(world.known(queue), None);
    assert!(world.consume().unwrap() > horizon);
    let table = &world.newest().disk.1;
    assert_eq!(table.servers.len(), 2);
}

/// A standby is promoted that lacks the grant of a server; the others continue at once.
#[test]
fn a_server_that_a_loss_has_taken_is_not_missed() {
    let mut world = two_of_three(3);
    world.start(2);
    world.seconds(1);
    let begin = world.taken(2);
    let joined = WorkerId::new(2).unwrap();
    let lost = world.changes_since(|rows| !rows.contains_key(&joined));
    world.replace(lost, How::Promotion);
    assert_eq!(world.known(2), None);
    for _ in 0..(8 + 8) {
        world.second();
        assert!(world.consume().unwrap() <= begin);
    }
    world.commit(2);
    world.seconds(PATIENCE + 20);
    assert!(world.servers[2].issued_at.is_some());
    assert!(world.lag() <= 12);
    world.check();
}

/// A standby is promoted that lacks the grant of a server. That server is frozen, and asks only
/// when the others have long reported again.
#[test]
fn nothing_new_is_returned_until_all_who_live_have_asked() {
    let mut world = two_of_three(3);
    world.start(2);
    world.seconds(1);
    let begin = world.taken(2);
    let joined = WorkerId::new(2).unwrap();
    let lost = world.changes_since(|rows| !rows.contains_key(&joined));
    world.freeze(2);
    world.replace(lost, How::Promotion);
    for _ in 0..12 {
        world.second();
        assert!(world.consume().unwrap() <= begin);
    }
    // It hears that its token is lost, and hangs again for longer than the grace period.
    world.wake(2);
    while world.known(2).is_none() {
        assert!(world.contact(2));
    }
    world.freeze(2);
    world.seconds(12);
    assert!(world.consume().unwrap() <= begin);
    world.wake(2);
    world.commit(2);
    world.check();
}

/// The server's clock is slow: its bound lies before that of others.
#[test]
fn a_report_past_the_bound_counts_as_the_bound() {
    let mut world = world(1, 1);
    world.servers[0].off = -5 * SECOND;
    world.seconds(3);
    world.pass(4 * SECOND);
    let mut request = world.ask(0).unwrap();
    let far = UnixMillis::new(world.now + 6 * SECOND);
    request.ask = request.ask.reporting(Some(far));
    world.answer(0, 0, &request);
    assert!(world.row(0).bound < far);
    assert_eq!(world.known(0).unwrap().horizon, Some(world.row(0).bound));
}

/// A registry that has stopped no longer knows anything.
#[test]
fn a_registry_that_has_stopped_tells_no_horizon() {
    let mut world = two_of_three(2);
    let now = world.now;
    let registry = world.newest();
    let mut input = registry.registry_input(now, false);
    let mut other = registry.disk.clone();
    // A copy of it.
    input.start += 1;
    other.0.declare(&input);
    let memory = other.0.memory(None);
    world.pass(4 * SECOND);
    let mut request = world.ask(0).unwrap();
    request.memory = Some(memory);
    world.answer(0, 0, &request);
    assert!(matches!(world.consume(), Err(HorizonError::Stopped(_))));
}

/// The entries of servers are lost, and their leases are not. Each gets a new lease, and counts.
#[test]
fn servers_without_an_entry_count_from_their_next_grant_on() {
    let mut world = two_of_three(2);
    world.newest().disk.1.servers.clear();
    world.seconds(12);
    assert!(world.known(0).is_some() && world.known(1).is_some());
    assert!(world.lag() <= 3);
    world.check();
}

/// The entry of a server is that of its earlier start, which has been dropped, or not.
#[test]
fn a_later_start_counts_in_place_of_the_entry_of_an_earlier_one() {
    for dropped in [false, true] {
        let mut world = two_of_three(2);
        world.seconds(2);
        let mut before = world.newest().disk.1.servers.clone();
        let earlier = world.known(0).unwrap();
        world.crash(0, false);
        world.start(0);
        world.seconds(2);
        assert_ne!(world.row(0).nonce, earlier.nonce);
        if dropped {
            let now = world.known(0).unwrap().until;
            let key = earlier.holder.identity.text();
            before.get_mut(&key).unwrap().dropped = Some(now);
        }
        world.newest().disk.1.servers = before;
        world.pass(4 * SECOND);
        world.contact(0);
        // It is told to ask anew, and need not stop.
        assert!(!world.servers[0].node.holds() && world.servers[0].stamp().is_some());
        world.seconds(8);
        assert_eq!(world.known(0).unwrap().nonce, world.row(0).nonce);
        assert!(world.known(0).unwrap().reported.is_some());
        assert!(world.lag() <= 3);
        world.check();
    }
}

/// A second server on the data directory of the first one, which is frozen.
fn later_incarnation(world: &mut World) -> usize {
    world.seconds(4);
    world.freeze(0);
    let later = world.clone_disk(0, true);
    world.orders.reporting.insert(later);
    world.seconds(10);
    assert!(world.servers[later].issued_at.is_some());
    later
}

/// The later incarnation has returned its worker ID, so nothing tells of it any more. The token of
/// the earlier one has ended all the same: the horizon does not go back for it.
#[test]
fn an_earlier_incarnation_does_not_come_back_below_the_horizon() {
    let mut world = two_of_three(4);
    let begin = world.taken(0);
    let later = later_incarnation(&mut world);
    world.stop(later);
    world.seconds(4);
    let before = world.consume().unwrap();
    assert!(before > begin);
    world.wake(0);
    world.contact(0);
    assert!(
        world.servers[0].stamp().is_none(),
        "{}",
        world.log.join("\n")
    );
    assert!(world.consume().unwrap() >= before);
    world.orders.crash(0);
    world.seconds(20);
    assert!(world.servers[0].issued_at > Some(before));
    assert!(world.lag() <= 3);
    world.check();
}

/// The later incarnation has left a prepared transaction, of which the earlier one does not know. So
/// that one gets no worker ID, unless the later one is dropped.
#[test]
fn an_earlier_incarnation_does_not_hide_what_a_later_one_has_prepared() {
    let mut world = two_of_three(4);
    let later = later_incarnation(&mut world);
    let begin = world.taken(later);
    world.prepare(later);
    world.stop(later);
    world.wake(0);
    world.seconds(PATIENCE + 20);
    assert!(world.servers[0].stamp().is_none());
    assert!(world.consume().unwrap() <= begin);
    let name = world.known(0).unwrap().name();
    world.drop_server(&name).unwrap();
    world.seconds(12);
    assert!(world.servers[0].stamp().is_some());
    assert!(world.lag() <= 3);
}

/// The later incarnation is lost. The earlier one gets a worker ID again, and counts, also if the
/// later one is dropped.
#[test]
fn an_earlier_incarnation_that_continues_counts() {
    for is_told in [false, true] {
        let mut world = two_of_three(4);
        let later = later_incarnation(&mut world);
        if is_told {
            world.wake(0);
        }
        world.crash(later, false);
        let lost = world.known(0).unwrap();
        world.seconds(PATIENCE + 10);
        world.wake(0);
        world.seconds(12);
        let begin = world.taken(0);
        let _ = world.drop_server(&lost.name());
        world.seconds(20);
        assert!(
            world.consume().unwrap() <= begin,
            "{}",
            world.log.join("\n")
        );
        world.commit(0);
        world.seconds(4);
        assert!(world.lag() <= 3, "{}", world.log.join("\n"));
        world.check();
    }
}

/// A random walk without losses of the registry: every commit appears above what was
/// returned, and at the end the horizon is near the clock.
fn walk(seed: u64, tell: bool) -> World {
    let mut random = Random(seed.wrapping_mul(6_364_136_223_846_793_005) ^ 77);
    let plan = Plan {
        pool: random.pick(&[2, 3, 3]),
        servers: 3,
        tick: random.pick(&[SECOND, 4 * SECOND, 700]),
        ..Plan::default()
    };
    let mut world = World::new(plan).ordered();
    if tell {
        world = world.tell();
    }
    world.keep_memory = random.percent(50);
    let steps = random.below(60) + 20;
    let mut late = Vec::new();
    for _ in 0..steps {
        let server = random.below(3) as usize;
        match random.below(20) {
            0 => world.freeze(server),
            1 | 2 => world.wake(server),
            3 => world.crash(server, random.percent(80)),
            4 => world.reboot(server),
            5 => {
                world.stop(server);
                if random.percent(70) {
                    world.start(server);
                }
            }
            6 => world.start(server),
            7 => {
                let off = random.pick(&[-8, -3, 0, 0, 3, 8]) * SECOND;
                world.servers[server].off = off;
                world.say(|| format!("server {server}: clock {off:+}"));
            }
            8 => world.newest().off = random.pick(&[-20, 0, 0, 20]) * SECOND,
            9 => world.prepare(server),
            10 => world.advance(server, random.below(15) * SECOND),
            11 => {
                let (now, registry) = (world.now, world.newest());
                let input = registry.registry_input(now, false);
                let (state, table) = &mut registry.disk;
                let worker = WorkerId::new(random.below(2) as i32).unwrap();
                super::lease_table::revoke(state, table, worker, &input);
            }
            12 => {
                let pause = random.below(25) * SECOND;
                world.pass(pause);
            }
            13 => drop_lost(&mut world),
            14 => {
                if let Some(release) = world.close(server) {
                    late.push((server, release));
                }
            }
            15 if !late.is_empty() => {
                let (server, request) = late.swap_remove(0);
                world.answer(0, server, &request);
            }
            16 => {
                if let Some(request) = world.ask(server) {
                    world.give_up(server, request.number);
                    late.push((server, request));
                }
            }
            _ => {
                let busy = random.percent(70);
                world.pass(SECOND);
                for server in 0..3 {
                    world.contact(server);
                    if busy {
                        world.issue(server);
                    }
                }
            }
        }
        for server in 0..3 {
            match random.below(6) {
                0 => drop(world.take(server)),
                1 => world.commit(server),
                2 => drop(world.contact(server)),
                3 => drop(world.issue(server)),
                _ => {}
            }
        }
        if random.percent(70) {
            let _ = world.consume();
        }
    }
    // Calm: all are up, what was lost is dropped, and what is open ends.
    for server in 0..3 {
        world.servers[server].off = 0;
        world.start(server);
        world.wake(server);
    }
    world.newest().off = 0;
    world.crash(2, false);
    for _ in 0..4 {
        world.seconds(PATIENCE);
        drop_lost(&mut world);
        world.commit(0);
        world.commit(1);
    }
    // What a lead and a registry's clock of before have left.
    world.seconds(60);
    world
}

/// An administrator drops the servers that no longer run. One that may come back with
/// prepared transactions is left until it has reported.
fn drop_lost(world: &mut World) {
    let names: Vec<_> = {
        let servers = world.newest().disk.1.servers.values();
        servers.map(|it| (it.name(), it.holder.identity)).collect()
    };
    for (name, identity) in names {
        let same = |other: &ServerKey| {
            (other.system, other.device, other.inode)
                == (identity.system, identity.device, identity.inode)
        };
        let server = world
            .servers
            .iter()
            .position(|it| same(&it.identity))
            .unwrap();
        let is_rebooted = world.servers[server].identity != identity;
        let has_reported = world.known(server).is_some_and(|it| it.horizon.is_some());
        let is_up = world.servers[server].up;
        if is_up && is_rebooted && has_reported {
            let _ = world.drop_server(&name);
        } else if !is_up && world.drop_server(&name).is_ok() {
            world.orders.open.retain(|it| it.server != server);
        }
    }
}

fn search(count: u64) {
    let mut failed = Vec::new();
    let mut horizons = 0;
    for seed in 0..count {
        let mut world = walk(seed, false);
        horizons += u64::from(world.orders.returned.is_some());
        let lag = world
            .consume()
            .map_or(i64::MAX, |at| (world.now - at).div_euclid(SECOND));
        let is_stuck = lag > 20;
        if world.orders.missed.is_some() || world.twice.is_some() || is_stuck {
            let world = walk(seed, true);
            failed.push((world.log.len(), seed, lag, world.log));
        }
    }
    println!(
        "{count} walks, {horizons} with a horizon, {} failed",
        failed.len()
    );
    failed.sort();
    if let Some((_, seed, lag, log)) = failed.first() {
        panic!("seed {seed}: lag {lag}\n{}", log.join("\n"));
    }
}

#[test]
fn no_consumer_misses_a_row() {
    search(4 * runs());
}

#[test]
fn no_consumer_misses_a_row_in_etcd() {
    in_etcd(|| search(2 * runs()));
}

macro_rules! in_etcd_too {
    ($($test:ident $name:ident;)*) => {
        $(#[test]
        fn $test() {
            in_etcd($name);
        })*
    };
}

in_etcd_too! {
    follows the_horizon_follows_servers_that_issue_and_servers_that_do_not;
    lost a_lost_server_counts_until_it_is_dropped;
    returned a_worker_id_that_was_returned_starts_above_the_horizon;
    prepared a_prepared_transaction_counts_over_a_clean_stop;
    gone an_incarnation_that_is_gone_is_not_heard;
    taken a_server_that_a_loss_has_taken_is_not_missed;
}
