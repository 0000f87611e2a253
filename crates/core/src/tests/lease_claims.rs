//! Fixed worker IDs that several servers claim; and what a registry or a node does not
//! believe: clocks, bounds and floors that are wrong, or that somebody has made up.

use super::lease::{Disk, How, SECOND, World};
use super::lease_traces::{PATIENCE, down, held, one_of_two, taken_over, why, world};
use crate::id::{Millis, UnixMillis, WorkerId};
use crate::lease::node::{FLOOR_LIMIT, LeaseError, Next};
use crate::lease::state::DAY;
use crate::lease::{Answer, Fence, HolderName, RegistryError, Request, RequestKind, Row};

/// Nothing is issued at or after a bound, so a later end is wrong. The next holder would
/// have it as its floor.
#[test]
fn a_release_does_not_raise_the_bound() {
    let mut world = one_of_two();
    let row = world.row(0).clone();
    let mut release = world.close(0).unwrap();
    if let RequestKind::Release { end, .. } = &mut release.ask {
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
    let RequestKind::Release { end, .. } = release.ask else {
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
    let failure = world.servers[1].node.failure().unwrap();
    assert_eq!(failure.why, LeaseError::FloorTooFar { worker, floor });
    assert!(held(&world, 1).is_none());
    // The grant does not move on meanwhile, and is taken when the clock has come near enough.
    assert_eq!((world.row(0).floor, world.row(0).counter), (floor, 2));
    assert!(world.until_issues(1, 60).is_some());
    assert!(world.row(0).floor < floor.plus(Millis::new(SECOND)));
    world.check();
}

/// One generator wants more than the registry gives. The server's others continue.
#[test]
fn a_need_that_is_not_met_costs_no_worker_id() {
    let mut world = world(1, 1);
    world.seconds(3);
    let row = world.row(0).clone();
    for _ in 0..3 {
        world.pass(SECOND);
        let mut request = world.ask(0).unwrap();
        if let RequestKind::Renew { furthest, .. } = &mut request.ask {
            *furthest = UnixMillis::new(world.now + 2 * DAY.get());
        }
        let reply = world.answer(0, 0, &request);
        let Answer::Renewed { bound, until, .. } = reply.answer else {
            panic!("{:?}", reply.answer)
        };
        assert!(until > row.leased_until);
        assert!(bound.get() < world.now + DAY.get() + 10 * SECOND);
        world.hear(0, &reply);
        world.servers[0].node.need(bound);
    }
    assert!(world.servers[0].node.failure().is_none());
    world.check();
}

/// However many agree.
#[test]
fn two_servers_with_the_same_wrong_clock_are_told() {
    let mut world = world(3, 3);
    for server in [1, 2] {
        world.servers[server].off = 3 * DAY.get();
    }
    world.seconds(30);
    for server in [1, 2] {
        assert!(matches!(
            why(&world, server),
            RegistryError::TooFarAhead { .. }
        ));
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
    assert!(matches!(
        reply.answer,
        Answer::Refused(RegistryError::Stopped(_))
    ));
    let input = world.registries[0].registry_input(world.now);
    let state = &mut world.newest().disk.0;
    state.declare(&input);
    assert_eq!((state.era.declared, &state.stopped), (u64::MAX, &None));
}

/// A token that is not the latest of its worker ID neither prolongs nor ends what the latest one
/// has. One that the registry does not know may show a loss; and any request cuts a lease that is
/// too long since the registry's clock went back.
pub fn an_old_token_changes_nothing(before: &Disk, after: &Disk, request: &Request) {
    let (RequestKind::Renew {
        worker, counter, ..
    }
    | RequestKind::Release {
        worker, counter, ..
    }) = request.ask
    else {
        return;
    };
    let (Some(row), Some(left)) = (before.1.rows.get(&worker), after.1.rows.get(&worker)) else {
        return;
    };
    let is_old = counter < row.counter || counter == row.counter && request.nonce != row.nonce;
    let ends = |row: &Row| (row.counter, row.bound, row.released, row.revoked);
    let is_kept = ends(left) == ends(row) && left.leased_until <= row.leased_until;
    assert!(!is_old || is_kept, "{request:?}");
}

/// Why a renewal is refused, and whom the refusal names.
fn refused_for(world: &mut World, server: usize) -> (Fence, Option<u16>) {
    let request = world.ask(server).unwrap();
    match world.answer(0, server, &request).answer {
        Answer::Refused(RegistryError::Fenced { why, by, .. }) => (why, by.map(|by| by.port)),
        answer => panic!("{answer:?}"),
    }
}

#[test]
pub fn a_lost_lease_names_who_took_over_or_else_who_has_the_worker_id_now() {
    let mut world = taken_over();
    let second = HolderName::from(&world.row(0).holder).port;
    world.wake(0);
    let taken = (Fence::TakenOver, Some(second));
    assert_eq!(refused_for(&mut world, 0), taken);
    // It has given it back since.
    let mut world = taken_over();
    world.stop(1);
    world.wake(0);
    assert_eq!(refused_for(&mut world, 0), taken);
    // The server's own lease of before, in a registry that has lost the latest one.
    let mut world = one_of_two();
    world.crash(0, true);
    world.seconds(5);
    let counter = world.row(0).counter;
    world.pass(PATIENCE * SECOND);
    world
        .newest()
        .disk
        .1
        .rows
        .values_mut()
        .for_each(|row| row.counter -= 1);
    assert_eq!(
        (world.row(0).counter, refused_for(&mut world, 0)),
        (counter - 1, (Fence::Lost, None))
    );
}

/// What a grant tells of the bounds of before.
pub fn reached(world: &mut World, server: usize) -> UnixMillis {
    let node_input = world.node_input(server);
    let Next::Send(request) = world.servers[server].node.next(&node_input) else {
        panic!("nothing is asked");
    };
    match world.answer(0, server, &request).answer {
        Answer::Granted(grant) => grant.reached,
        answer => panic!("{answer:?}"),
    }
}

/// A machine that was booted anew gets another worker ID while the bound of its former
/// one lies ahead; and what its generators have reached comes along.
#[test]
pub fn a_grant_tells_what_the_system_has_reached() {
    let mut world = world(3, 2);
    down(&mut world, 1);
    world.seconds(6);
    world.stop(0);
    let hour = 3600 * SECOND;
    let ahead = UnixMillis::new(world.now + hour);
    let table = &mut world.newest().disk.1;
    for row in table.rows.values_mut() {
        row.bound = ahead;
    }
    world.reboot(0);
    assert_eq!(reached(&mut world, 0), ahead);
    let row = world.row(1).clone();
    assert_eq!(row.holder.identity, world.servers[0].identity);
    assert!(row.floor < ahead);
}

/// The pool was dropped and made anew, and leaves out the worker ID.
#[test]
fn a_server_does_not_get_its_former_worker_id_if_the_pool_leaves_it_out() {
    for crashes in [false, true] {
        let mut world = world(2, 1);
        world.seconds(6);
        if crashes {
            world.crash(0, false);
        } else {
            world.stop(0);
        }
        world.newest().disk.1.pool.except.push(0..1);
        world.start(0);
        world.seconds(PATIENCE);
        assert_eq!(held(&world, 0), Some(1), "{crashes}");
        world.check();
    }
}
