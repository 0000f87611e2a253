//! Leases of generators that go back in time with another worker ID: which one the registry
//! grants them, and what their nodes ask.

use super::super::id::{BootNanos, Millis, UnixMillis, WorkerId};
use super::super::lease::node::{Change, FloorPolicy, LeaseError, Next, Node, NodeInput};
use super::super::lease::state::{RegistryInput, State};
use super::super::lease::{
    Answer, Ask, Holder, Nonce, Origin, Pool, RegistryError, RegistryMillis, Request, ServerKey,
};
use super::lease_table::{Table, handle};

const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const LEASE: i64 = 10 * SECOND;

/// A registry with three worker IDs, an hour old, whose clock runs with that of the server.
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

    fn node(&mut self, generator: u64, reach: FloorPolicy) -> Node {
        self.nonces += 1;
        let me = Holder {
            identity: ServerKey {
                system: 1,
                boot: 1,
                device: 1,
                inode: 1,
                generator,
            },
            started: BootNanos::new(i64::try_from(self.nonces).unwrap()),
            host: String::new(),
            address: String::new(),
            port: 1,
            data_directory: String::new(),
        };
        Node::new(me, Nonce(self.nonces), None, None).reaching(reach)
    }

    /// The server's clock is behind the registry's by this much.
    fn node_input(&self, behind: i64) -> NodeInput {
        NodeInput {
            boot: BootNanos::new(self.now * 1_000_000),
            clock: UnixMillis::new(self.now - behind),
            furthest: UnixMillis::new(0),
            in_recovery: false,
        }
    }

    fn carry(&mut self, node: &mut Node, request: &Request, behind: i64) -> Change {
        let input = registry_input(self.now);
        let reply = handle(&mut self.state, &mut self.table, request, &input);
        node.on_reply(&reply, &self.node_input(behind))
    }

    /// A node asks what it has to ask.
    fn ask(&mut self, node: &mut Node, behind: i64) -> Change {
        let Next::Send(request) = node.next(&self.node_input(behind)) else {
            panic!("{node:?}");
        };
        self.carry(node, &request, behind)
    }

    fn release(&mut self, node: &mut Node, behind: i64, end: i64) {
        let (end, node_input) = (UnixMillis::new(end), self.node_input(behind));
        let request = node.close(end, &node_input).unwrap();
        assert_eq!(self.carry(node, &request, behind), Change::Returned);
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

#[test]
fn a_generator_takes_the_head_of_the_queue_and_returns_to_the_tail() {
    let mut world = World::new();
    let mut one = world.node(1, FloorPolicy::Soon);
    world.ask(&mut one, 0);
    assert_eq!(worker(&one), Some(0));
    // The clock goes back by a minute: not its own one, whose bound has not passed.
    let minute = 60 * SECOND;
    let mut next = world.node(1, FloorPolicy::Passed);
    world.ask(&mut next, minute);
    assert_eq!(worker(&next), Some(1));
    let floor = next.right().unwrap().not_before;
    assert!(floor <= UnixMillis::new(world.now - minute));
    let now = world.now;
    world.release(&mut one, minute, now);
    // Another generator of the same server gets another one.
    let mut two = world.node(2, FloorPolicy::Soon);
    world.ask(&mut two, 0);
    assert_eq!(worker(&two), Some(2));
    // Back again: the one of before was used until the hour, so there is none.
    let mut third = world.node(1, FloorPolicy::Passed);
    let refused = world.ask(&mut third, minute + SECOND);
    let Change::Failed(failure) = refused else {
        panic!("{refused:?}");
    };
    let latest = UnixMillis::new(world.now - minute - SECOND);
    assert_eq!(
        failure.why,
        LeaseError::Refused(RegistryError::NonePassed { latest })
    );
    assert_eq!(worker(&third), None);
    // From its end on it serves again, as the first one that is free.
    world.now += minute + 2 * SECOND;
    world.ask(&mut next, minute);
    world.ask(&mut third, minute);
    assert_eq!(worker(&third), Some(0));
    assert_eq!(third.right().unwrap().not_before, UnixMillis::new(HOUR));
}

#[test]
fn a_start_gets_its_own_worker_id_or_else_one_that_is_not_far_ahead() {
    let mut world = World::new();
    let mut one = world.node(1, FloorPolicy::Soon);
    world.ask(&mut one, 0);
    // A crash: at the bound.
    let mut again = world.node(1, FloorPolicy::Soon);
    world.ask(&mut again, 0);
    assert_eq!(worker(&again), Some(0));
    let bound = again.right().unwrap().not_before;
    assert_eq!(bound, UnixMillis::new(HOUR + LEASE));
    // A crash, and the clock is half an hour back: its own one would lead by as much.
    let mut back = world.node(1, FloorPolicy::Soon);
    world.ask(&mut back, HOUR / 2);
    assert_eq!(worker(&back), Some(1));
    // All others are taken: better its own one than none.
    let mut two = world.node(2, FloorPolicy::Soon);
    world.ask(&mut two, 0);
    assert_eq!(worker(&two), Some(2));
    let further = HOUR / 2 + 120 * SECOND;
    let mut last = world.node(1, FloorPolicy::Soon);
    assert_eq!(world.ask(&mut last, further), Change::Nothing);
    world.ask(&mut last, further);
    assert_eq!(worker(&last), Some(1));
    // But never after a rollback.
    let mut passed = world.node(1, FloorPolicy::Passed);
    world.ask(&mut passed, further);
    assert_eq!(worker(&passed), None);
}

#[test]
fn a_worker_id_of_a_new_pool_is_not_of_an_earlier_time() {
    let mut world = World::new();
    world.table.pool.made = RegistryMillis::new(HOUR);
    let mut one = world.node(1, FloorPolicy::Passed);
    world.ask(&mut one, SECOND);
    assert_eq!(worker(&one), None);
    world.now += SECOND;
    let mut one = world.node(1, FloorPolicy::Passed);
    world.ask(&mut one, 0);
    assert_eq!(worker(&one), Some(0));
}

#[test]
fn a_grant_that_is_later_than_asked_is_not_accepted() {
    // The registry is not told of the instant.
    let mut world = World::new();
    world.table.pool.made = RegistryMillis::new(HOUR + SECOND);
    let mut one = world.node(1, FloorPolicy::Passed);
    let Next::Send(mut request) = one.next(&world.node_input(0)) else {
        panic!();
    };
    if let Ask::Acquire { latest, .. } = &mut request.ask {
        assert_eq!(latest.take(), Some(UnixMillis::new(HOUR)));
    }
    let change = world.carry(&mut one, &request, 0);
    assert!(matches!(change, Change::Failed(_)), "{change:?}");
    assert_eq!(one.right(), None);
}

#[test]
fn generators_of_a_server_do_not_vouch_for_its_clock() {
    let day = 24 * HOUR;
    let mut world = World::new();
    let ahead = -(day + HOUR);
    for generator in [0, 1, 2] {
        let mut node = world.node(generator, FloorPolicy::Any);
        let change = world.ask(&mut node, ahead);
        let Change::Failed(failure) = change else {
            panic!("{generator}: {change:?}");
        };
        let refused = matches!(
            failure.why,
            LeaseError::Refused(RegistryError::TooFarAhead { .. })
        );
        assert!(refused, "{failure:?}");
    }
}

#[test]
fn each_generator_and_the_server_have_worker_ids_of_their_own() {
    let mut world = World::new();
    let mut nodes = [0, 7, 8].map(|generator| world.node(generator, FloorPolicy::Soon));
    for (expected, node) in (0..).zip(&mut nodes) {
        world.ask(node, 0);
        assert_eq!(worker(node), Some(expected));
    }
    // After a crash, each gets its own one again.
    for (expected, generator) in (0..).zip([0, 7, 8]) {
        let mut node = world.node(generator, FloorPolicy::Soon);
        world.ask(&mut node, 0);
        assert_eq!(worker(&node), Some(expected));
        let row = &world.table.rows[&WorkerId::new(expected.cast_signed()).unwrap()];
        assert_eq!(row.holder.identity.generator, generator);
    }
}

#[test]
fn a_grant_that_was_lost_is_not_repeated_for_a_clock_that_it_is_too_late_for() {
    let mut world = World::new();
    // Worker IDs that were never leased serve from here on.
    let from = HOUR - 30 * SECOND;
    world.table.pool.made = RegistryMillis::new(from - SECOND);
    let mut one = world.node(1, FloorPolicy::Passed);
    let now = world.node_input(0);
    let Next::Send(lost) = one.next(&now) else {
        panic!();
    };
    let input = registry_input(world.now);
    let reply = handle(&mut world.state, &mut world.table, &lost, &input);
    assert!(matches!(reply.answer, Answer::Granted(_)));
    one.failed(lost.number, String::new(), &now);
    world.now += SECOND;
    // The clock goes back once more.
    let minute = 60 * SECOND;
    let Change::Failed(failure) = world.ask(&mut one, minute) else {
        panic!();
    };
    let latest = UnixMillis::new(world.now - minute);
    assert_eq!(
        failure.why,
        LeaseError::Refused(RegistryError::NonePassed { latest })
    );
    // Nor for a clock that it serves: it may have reached a copy.
    world.now += SECOND;
    world.ask(&mut one, 0);
    assert_eq!(worker(&one), Some(1));
}

#[test]
fn nodes_that_have_no_reply_at_one_moment_do_not_ask_again_at_one_moment() {
    let mut world = World::new();
    let mut asked = std::collections::BTreeMap::new();
    for _ in 0..100 {
        let mut node = world.node(0, FloorPolicy::Any);
        let mut now = world.node_input(0);
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
