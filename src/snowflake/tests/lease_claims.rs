//! What a registry or a node does not believe: clocks, bounds and floors that are wrong,
//! or that somebody has made up.

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::node::{FLOOR_LIMIT, Why};
use super::super::lease::registry::DAY;
use super::super::lease::{Answer, Ask, Refused};
use super::lease::{How, SECOND};
use super::lease_traces::{PATIENCE, held, one_of_two, why, world};

/// Nothing is issued at or after a bound, so a later end is wrong. The next holder would
/// have it as its floor.
#[test]
fn a_release_does_not_raise_the_bound() {
    let mut world = one_of_two();
    let row = world.row(0).clone();
    let mut release = world.close(0).unwrap();
    if let Ask::Release { end, .. } = &mut release.ask {
        *end = UnixMillis::new(i64::MAX);
    }
    assert_eq!(world.answer(0, 0, &release).answer, Answer::Released);
    assert_eq!(world.row(0).bound, row.bound);
    world.start(1);
    world.second();
    assert_eq!(world.row(0).floor, row.bound);
    world.check();
}

/// The registry has lost the last renewals, and learns of them by the release only.
#[test]
fn a_release_tells_what_a_lost_renewal_had_allowed() {
    let mut world = one_of_two();
    world.advance(0, 15 * SECOND);
    let bound = world.row(0).bound;
    let lost = world.changes_since(|rows| rows.values().any(|row| row.bound < bound));
    world.replace(lost, How::Promotion);
    assert!(world.row(0).bound < bound);
    let release = world.close(0).unwrap();
    let Ask::Release { end, .. } = release.ask else {
        panic!("{release:?}")
    };
    assert!(end > world.row(0).bound, "{end:?}");
    let answer = world.answer(1, 0, &release).answer;
    assert_eq!(answer, Answer::Released);
    assert_eq!(world.row(0).bound, end);
    world.start(1);
    world.seconds(PATIENCE);
    world.check();
}

/// What the registry stores of the worker ID is wrong.
#[test]
fn a_floor_far_ahead_is_not_accepted() {
    let mut world = one_of_two();
    world.stop(0);
    let floor = UnixMillis::new(world.now + FLOOR_LIMIT.get() + 60 * SECOND);
    let table = &mut world.newest().disk.1;
    for row in table.rows.values_mut() {
        row.bound = floor;
    }
    world.start(1);
    world.seconds(10);
    let worker = WorkerId::new(0).unwrap();
    let trouble = world.servers[1].node.trouble().unwrap();
    assert_eq!(trouble.why, Why::FloorTooFar { worker, floor });
    assert!(held(&world, 1).is_none());
    // It takes the same grant as soon as its clock has come near enough.
    assert!(world.until_issues(1, 60).is_some());
    assert_eq!((world.row(0).floor, world.row(0).counter), (floor, 2));
    world.check();
}

/// One generator wants more than the registry gives. The server's others go on.
#[test]
fn a_need_that_is_not_met_costs_no_worker_id() {
    let mut world = world(1, 1);
    world.seconds(3);
    let row = world.row(0).clone();
    for _ in 0..3 {
        world.pass(SECOND);
        let mut request = world.ask(0).unwrap();
        if let Ask::Renew { furthest, .. } = &mut request.ask {
            *furthest = UnixMillis::new(world.now + 2 * DAY.get());
        }
        let reply = world.answer(0, 0, &request);
        let Answer::Renewed { bound, until } = reply.answer else {
            panic!("{:?}", reply.answer)
        };
        assert!(until > row.leased_until);
        assert!(bound.get() < world.now + DAY.get() + 10 * SECOND);
        world.hear(0, &reply);
        world.servers[0].node.need(bound);
    }
    assert!(world.servers[0].node.trouble().is_none());
    world.check();
}

/// A clock that was refused vouches for another one, but not alone.
#[test]
fn two_servers_with_the_same_wrong_clock_are_told() {
    let mut world = world(3, 3);
    for server in [1, 2] {
        world.servers[server].off = 3 * DAY.get();
    }
    world.seconds(30);
    for server in [1, 2] {
        assert!(matches!(why(&world, server), Refused::TooFarAhead { .. }));
        assert!(world.servers[server].issued_at.is_none());
    }
    assert!(world.servers[0].issued_at > Some(world.now - 3 * SECOND));
    assert!(world.lead() < 100);
}

/// A node can say that its registry was declared any number of times.
#[test]
fn a_registry_is_declared_whatever_a_node_has_said() {
    let mut world = world(1, 1);
    world.second();
    world.pass(4 * SECOND);
    let mut request = world.ask(0).unwrap();
    let mut memory = request.memory.unwrap();
    memory.era.declared = u64::MAX;
    request.memory = Some(memory);
    let reply = world.answer(0, 0, &request);
    assert!(matches!(reply.answer, Answer::Refused(Refused::Stopped(_))));
    let scene = world.registries[0].scene(world.now, false);
    let state = &mut world.newest().disk.0;
    state.declare(&scene);
    assert_eq!((state.era.declared, &state.stopped), (u64::MAX, &None));
}
