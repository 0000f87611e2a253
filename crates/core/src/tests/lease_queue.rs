//! The next worker ID of a server whose clock was set back: which one the registry grants, when
//! the node asks for one, and what it keeps meanwhile.

use super::lease_table::{Table, handle};
use crate::id::{BootNanos, Millis, UnixMillis, WorkerId};
use crate::lease::node::{Change, HeldLease, LeaseError, Next, Node, NodeInput};
use crate::lease::state::{RegistryInput, State};
use crate::lease::{
    Answer, Holder, Nonce, Origin, Pool, RegistryError, RegistryMillis, Reply, Request,
    RequestKind, ServerKey,
};

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 3600 * SECOND;
const LEASE: i64 = 10 * SECOND;

/// A registry with three worker IDs, an hour old, whose clock runs with that of the servers.
struct World {
    now: i64,
    state: State,
    table: Table,
    nonces: u128,
}

impl World {
    fn new() -> Self {
        let pool = Pool {
            name: "queue".to_string(),
            ids: 0..3,
            except: vec![],
            lease: Millis::new(LEASE),
            hold: Millis::new(5 * SECOND),
            max_ahead: Millis::new(SECOND),
            made: RegistryMillis::new(0),
            unused: true,
        };
        Self {
            now: HOUR,
            state: State::new(&registry_input(HOUR)),
            table: Table::new(pool),
            nonces: 0,
        }
    }

    /// An incarnation of the server with this number.
    fn node(&mut self, server: u64) -> Node {
        self.claim(server, None)
    }

    fn claim(&mut self, server: u64, fixed: Option<WorkerId>) -> Node {
        self.nonces += 1;
        let me = Holder {
            identity: ServerKey {
                system: server,
                boot: 1,
                device: 1,
                inode: 1,
            },
            started: BootNanos::new(i64::try_from(self.nonces).unwrap()),
            host: String::new(),
            address: String::new(),
            port: 1,
            data_directory: String::new(),
        };
        Node::new(me, Nonce(self.nonces), fixed, None)
    }

    /// The server's clock is behind the registry's by this much.
    fn input(&self, behind: i64) -> NodeInput {
        NodeInput {
            boot: BootNanos::new(self.now * 1_000_000),
            clock: UnixMillis::new(self.now - behind),
            furthest: UnixMillis::new(0),
            in_recovery: false,
        }
    }

    fn reply(&mut self, request: &Request) -> Reply {
        let input = registry_input(self.now);
        handle(&mut self.state, &mut self.table, request, &input).0
    }

    fn carry(&mut self, node: &mut Node, request: &Request, behind: i64) -> Change {
        let reply = self.reply(request);
        node.on_reply(&reply, &self.input(behind))
    }

    fn next(&self, node: &mut Node, behind: i64) -> Request {
        match node.next(&self.input(behind)) {
            Next::Send(request) => *request,
            next => panic!("{next:?}: {node:?}"),
        }
    }

    /// A node asks what it has to ask.
    fn ask(&mut self, node: &mut Node, behind: i64) -> Change {
        let request = self.next(node, behind);
        self.carry(node, &request, behind)
    }

    /// Each of these nodes renews, if it is time to. Seconds pass.
    fn renew_for(&mut self, seconds: i64, nodes: &mut [(&mut Node, i64)]) {
        for _ in 0..seconds {
            self.now += SECOND;
            for (node, behind) in &mut *nodes {
                if let Next::Send(request) = node.next(&self.input(*behind)) {
                    self.carry(node, &request, *behind);
                }
            }
        }
    }

    /// A session needs another worker ID, and the node asks for one. What it had before is
    /// returned with this end, if it gets one.
    fn ask_for_another(&mut self, node: &mut Node, behind: i64, end: i64) -> Change {
        node.need_another(&self.input(behind));
        let request = self.next(node, behind);
        assert_eq!(holding(&request), worker(node), "{request:?}");
        let mut before = node.clone();
        let change = self.carry(node, &request, behind);
        if matches!(change, Change::Acquired { .. }) {
            let (end, now) = (UnixMillis::new(end), self.input(behind));
            let request = before.close_before(node, end, &now).unwrap();
            assert_eq!(self.carry(&mut before, &request, behind), Change::Returned);
        }
        change
    }

    fn seconds(&mut self, seconds: i64) {
        self.now += seconds * SECOND;
    }
}

fn registry_input(now: i64) -> RegistryInput {
    RegistryInput {
        now: RegistryMillis::new(now),
        origin: Origin {
            system: 1,
            timeline: 1,
            database: 1,
        },
        clean_since: 1,
        random: 1,
    }
}

fn worker(node: &Node) -> Option<u32> {
    node.right().map(|right| right.worker.get())
}

/// What a request for another worker ID says that the server has.
fn holding(request: &Request) -> Option<u32> {
    match request.ask {
        RequestKind::Acquire { holding, .. } => holding.map(WorkerId::get),
        _ => None,
    }
}

fn is_renewal(next: &Next) -> bool {
    matches!(next, Next::Send(request) if matches!(request.ask, RequestKind::Renew { .. }))
}

/// There is no worker ID for a time so far behind.
fn assert_none_passed(world: &World, change: &Change, behind: i64) {
    let Change::Failed(failure) = change else {
        panic!("{change:?}");
    };
    let latest = UnixMillis::new(world.now - behind);
    let none = LeaseError::Refused(RegistryError::NonePassed { latest });
    assert_eq!(failure.why, none);
}

#[test]
fn a_server_takes_the_head_of_the_queue_and_what_it_had_goes_to_the_tail() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    assert_eq!(worker(&one), Some(0));
    // The clock goes back by a minute: another one, whose floor has passed.
    let now = world.now;
    world.ask_for_another(&mut one, MINUTE, now);
    assert_eq!(worker(&one), Some(1));
    assert!(one.right().unwrap().floor <= UnixMillis::new(now - MINUTE));
    // Another server gets the last one.
    let mut two = world.node(2);
    world.ask(&mut two, 0);
    assert_eq!(worker(&two), Some(2));
    // Back again: the one of before was used until the hour, so there is none.
    let change = world.ask_for_another(&mut one, MINUTE + SECOND, 0);
    assert_none_passed(&world, &change, MINUTE + SECOND);
    assert_eq!(worker(&one), Some(1));
    // From its end on it serves again.
    world.renew_for(62, &mut [(&mut one, MINUTE), (&mut two, 0)]);
    let now = world.now;
    world.ask_for_another(&mut one, MINUTE + SECOND, now);
    assert_eq!(worker(&one), Some(0));
    assert_eq!(one.right().unwrap().floor, UnixMillis::new(HOUR));
}

#[test]
fn only_a_clock_that_went_back_starts_the_search() {
    let mut world = World::new();
    let mut one = world.node(1);
    // Not before there is a worker ID.
    one.need_another(&world.input(0));
    world.ask(&mut one, 0);
    // Nothing was set back; somebody has advanced a generator.
    let told = |world: &World, one: &mut Node, behind| {
        world.input(behind);
        one.need_another(&world.input(behind));
        one.next(&world.input(behind))
    };
    for behind in [0, 1, -MINUTE] {
        let next = told(&world, &mut one, behind);
        assert!(matches!(next, Next::Sleep(_)), "{behind}: {next:?}");
    }
    // It was set forward by a minute meanwhile, and is right again.
    let request = match told(&world, &mut one, 0) {
        Next::Send(request) => request,
        next => panic!("{next:?}"),
    };
    assert_eq!(holding(&request), Some(0));
    one.failed(request.number, String::new(), &world.input(0));
    // The clock is corrected: the search is over, though a session has just told.
    world.seconds(2);
    let next = one.next(&world.input(-MINUTE));
    assert!(
        !matches!(&next, Next::Send(request) if holding(request).is_some()),
        "{next:?}"
    );
    // So it is if no session tells again.
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    one.need_another(&world.input(MINUTE));
    world.seconds(3);
    assert!(
        !matches!(one.next(&world.input(MINUTE)), Next::Send(request) if holding(&request).is_some())
    );
    // A server with a number of its own keeps that.
    let mut world = World::new();
    let mut one = world.claim(1, WorkerId::new(2));
    world.ask(&mut one, 0);
    one.need_another(&world.input(MINUTE));
    assert!(matches!(one.next(&world.input(MINUTE)), Next::Sleep(_)));
    // The next worker ID begins with the clock as it is then.
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    world.ask_for_another(&mut one, MINUTE, HOUR);
    one.need_another(&world.input(MINUTE));
    assert!(matches!(one.next(&world.input(MINUTE)), Next::Sleep(_)));
}

/// A keeper that takes over knows how the clocks differed before.
#[test]
fn the_next_keeper_sees_that_the_clock_went_back() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    let mut copy = one.clone();
    copy.need_another(&world.input(MINUTE));
    let me = world.next(&mut copy, MINUTE).asker;
    let mut resumed = Node::resumed(me, None, one.kept());
    resumed.need_another(&world.input(MINUTE));
    assert_eq!(holding(&world.next(&mut resumed, MINUTE)), Some(0));
}

#[test]
fn the_worker_id_is_renewed_until_there_is_another_one() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    let mut others = [world.node(2), world.node(3)];
    for other in &mut others {
        world.ask(other, 0);
    }
    let bound = one.right().unwrap().bound;
    let change = world.ask_for_another(&mut one, MINUTE, 0);
    assert_none_passed(&world, &change, MINUTE);
    let (mut renewals, mut searches) = (0, 0);
    for _ in 0..200 {
        world.now += SECOND / 10;
        one.need_another(&world.input(MINUTE));
        let next = one.next(&world.input(MINUTE));
        let Next::Send(request) = &next else { continue };
        match is_renewal(&next) {
            true => renewals += 1,
            false => searches += 1,
        }
        // The refusal is no news, and no failure of the lease.
        assert_eq!(world.carry(&mut one, request, MINUTE), Change::Nothing);
        assert_eq!(one.failure(), None);
        assert!(one.holds() && one.search_failure().is_some());
    }
    assert!(renewals >= 5 && searches >= 15, "{renewals} {searches}");
    assert_eq!(worker(&one), Some(0));
    assert!(one.right().unwrap().bound >= bound);
    // The registry is unreachable: so is the renewal.
    world.seconds(1);
    one.need_another(&world.input(MINUTE));
    let request = world.next(&mut one, MINUTE);
    assert!(holding(&request).is_some());
    one.failed(request.number, String::new(), &world.input(MINUTE));
    assert_eq!(one.failure(), None);
}

/// The worker ID that a server has is never handed to it once more, even if its bound has
/// passed: its own generators may be past that.
#[test]
fn the_same_worker_id_is_not_handed_again() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    // All others belong to other servers, and its own one was not renewed for a minute.
    let mut others = [world.node(2), world.node(3)];
    for other in &mut others {
        world.ask(other, 0);
    }
    let [two, three] = &mut others;
    world.renew_for(60, &mut [(two, 0), (three, 0)]);
    let change = world.ask_for_another(&mut one, SECOND, 0);
    assert_none_passed(&world, &change, SECOND);
    assert_eq!(worker(&one), Some(0));
    // Nor in the place of one that is free.
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    world.seconds(60);
    let now = world.now;
    world.ask_for_another(&mut one, SECOND, now);
    assert_eq!(worker(&one), Some(1));
}

/// The number of a release is one of its incarnation: what is asked next has a later one.
#[test]
fn a_release_and_what_follows_it_are_no_copies_of_each_other() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    let now = world.now;
    world.ask_for_another(&mut one, MINUTE, now);
    world.ask_for_another(&mut one, 2 * MINUTE, now - MINUTE);
    assert_eq!(worker(&one), Some(2));
    world.seconds(4);
    assert_eq!(world.ask(&mut one, 2 * MINUTE), Change::Nothing);
    let released = |worker| world.table.rows[&WorkerId::new(worker).unwrap()].released;
    assert!(released(0) && released(1) && !released(2));
}

#[test]
fn a_worker_id_of_a_new_pool_is_not_of_an_earlier_time() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    world.table.pool.made = RegistryMillis::new(HOUR - MINUTE / 2);
    let change = world.ask_for_another(&mut one, MINUTE, 0);
    assert_none_passed(&world, &change, MINUTE);
    world.seconds(2);
    world.ask_for_another(&mut one, MINUTE / 2, HOUR);
    assert_eq!(worker(&one), Some(1));
}

#[test]
fn a_grant_that_is_later_than_the_clock_is_not_accepted() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    let kept: Option<HeldLease> = one.right();
    one.need_another(&world.input(SECOND));
    let request = world.next(&mut one, SECOND);
    let mut reply = world.reply(&request);
    let Answer::Granted(grant) = &mut reply.answer else {
        panic!("{reply:?}");
    };
    // The clock was set back once more, or the registry does not keep to what was asked.
    grant.floor = UnixMillis::new(HOUR - SECOND + 1);
    let change = one.on_reply(&reply, &world.input(SECOND));
    assert!(matches!(change, Change::Failed(_)), "{change:?}");
    assert_eq!(one.right(), kept);
}

#[test]
fn a_grant_that_was_lost_is_not_repeated() {
    let mut world = World::new();
    let mut one = world.node(1);
    world.ask(&mut one, 0);
    one.need_another(&world.input(MINUTE));
    let lost = world.next(&mut one, MINUTE);
    let reply = world.reply(&lost);
    assert!(matches!(reply.answer, Answer::Granted(_)));
    one.failed(lost.number, String::new(), &world.input(MINUTE));
    // It may have reached a copy. Its renewals count meanwhile.
    world.seconds(1);
    let change = world.ask_for_another(&mut one, MINUTE, HOUR);
    assert!(matches!(change, Change::Acquired { .. }), "{change:?}");
    assert_eq!(worker(&one), Some(2));
}

#[test]
fn nodes_that_have_no_reply_at_one_moment_do_not_ask_again_at_one_moment() {
    let mut world = World::new();
    let mut asked = std::collections::BTreeMap::new();
    for _ in 0..100 {
        let mut node = world.node(1);
        let mut now = world.input(0);
        // By the eighth time, the pause is as long as it gets.
        for _ in 0..8 {
            let next = node.next(&now);
            let Next::Send(request) = next else {
                panic!("{next:?}");
            };
            node.failed(request.number, String::new(), &now);
            let Next::Sleep(pause) = node.next(&now) else {
                panic!();
            };
            now.boot = BootNanos::new(now.boot.get() + pause.get());
        }
        let passed = (now.boot.get() / 1_000_000) - HOUR;
        *asked.entry(passed / 20).or_insert(0) += 1;
    }
    let most = asked.values().max();
    assert!(most < Some(&20), "within 20 ms: {asked:?}");
}
