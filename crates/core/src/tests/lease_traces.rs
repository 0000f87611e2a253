//! What must happen in stated circumstances: one test for each rule of the leases, and
//! for each hole that was found in them.

use super::lease::{EPOCH, How, Plan, SECOND, World};
use crate::id::{Millis, UnixMillis, WorkerId};
use crate::lease::node::{LeaseError, Next, Node, NodeInput};
use crate::lease::state::DAY;
use crate::lease::{Answer, Fence, HolderName, Pool, RegistryError, RegistryMillis, Terms};

/// A lease, a hold, and what is lost to seconds.
pub const PATIENCE: i64 = 8 + 8 + 5;

pub fn world(pool: i64, servers: usize) -> World {
    let plan = Plan {
        pool,
        servers,
        ..Plan::default()
    };
    World::new(plan).tell()
}

pub fn down(world: &mut World, server: usize) {
    world.crash(server, false);
}

/// A server that is alone for some seconds, and another that has not started.
pub fn one_of_two() -> World {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(6);
    world
}

/// The first server's worker ID is taken over by the second one; the first is frozen.
pub fn taken_over() -> World {
    let mut world = one_of_two();
    world.freeze(0);
    world.seconds(18);
    world.start(1);
    // The registry has heard nobody meanwhile.
    world.seconds(12);
    assert!(world.servers[1].issued_at.is_some());
    world
}

/// How many changes ago the holder of worker ID 0 was another incarnation.
pub fn before_takeover(world: &World) -> usize {
    let holder = world.row(0).nonce;
    let other = WorkerId::new(0).unwrap();
    world.changes_since(|rows| rows.get(&other).is_some_and(|row| row.nonce != holder))
}

pub fn held(world: &World, server: usize) -> Option<u32> {
    world.servers[server]
        .stamp()
        .map(|(_, worker, _)| worker.get())
}

pub fn why(world: &World, server: usize) -> &RegistryError {
    match &world.servers[server].node.failure().unwrap().why {
        LeaseError::Refused(refused) => refused,
        why => panic!("{why:?}"),
    }
}

#[test]
fn two_servers_get_two_worker_ids() {
    let mut world = world(2, 2);
    world.seconds(40);
    world.check();
    assert_eq!((held(&world, 0), held(&world, 1)), (Some(0), Some(1)));
    assert_eq!(world.grants, 2);
}

#[test]
fn a_frozen_holder_stops_at_its_bound() {
    let mut world = taken_over();
    world.wake(0);
    world.seconds(30);
    world.check();
    let RegistryError::NoneFree { .. } = why(&world, 0) else {
        panic!("{:?}", why(&world, 0))
    };
    assert!(world.changes.contains("lost"));
}

#[test]
fn a_session_that_read_the_right_may_pause() {
    let mut world = one_of_two();
    world.begin(0);
    world.freeze(0);
    world.seconds(18);
    world.start(1);
    world.seconds(3);
    world.wake(0);
    world.finish(0);
    world.begin(0);
    world.seconds(3);
    world.finish(0);
    world.check();
}

#[test]
fn nobody_takes_over_before_lease_and_hold_have_passed() {
    let mut world = one_of_two();
    world.freeze(0);
    world.start(1);
    let waited = world.until_issues(1, 40).unwrap();
    assert!((14..=17).contains(&waited), "{waited}");
    world.check();
}

#[test]
fn crashes_do_not_add_up_to_a_lead() {
    for life in [1, 2, 4, 8, 16, 64] {
        let plan = Plan {
            servers: 1,
            lease: 64 * SECOND,
            ..Plan::default()
        };
        let mut world = World::new(plan).tell();
        for second in 1..=1200 {
            world.second();
            world.second();
            if second % life == 0 {
                world.crash(0, true);
                world.log.clear();
            }
            let lead = world.lead();
            assert!(lead <= 66, "life {life}, second {second}: {lead}");
        }
        world.check();
    }
}

/// Its clock is set back by an hour: it continues at half speed, and crashes on top
/// of that let nothing grow.
#[test]
fn a_server_that_leads_by_hours_goes_on() {
    let mut world = world(1, 1);
    world.seconds(60);
    world.servers[0].off = -3600 * SECOND;
    // What it had borrowed comes first.
    assert!(world.until_issues(0, 8).is_some());
    for _ in 0..100 {
        assert!(
            world.until_issues(0, 3).is_some(),
            "{}",
            world.log.join("\n")
        );
    }
    let lead = world.lead();
    for _ in 0..60 {
        world.crash(0, true);
        world.seconds(3);
        assert!(world.lead() <= lead, "{}", world.log.join("\n"));
    }
    assert!(world.until_issues(0, 4).is_some());
    world.check();
}

#[test]
fn a_generator_that_was_advanced_goes_on() {
    let mut world = world(1, 1);
    world.seconds(5);
    world.advance(0, 19 * SECOND);
    for _ in 0..10 {
        assert!(
            world.until_issues(0, 3).is_some(),
            "{}",
            world.log.join("\n")
        );
    }
    world.check();
}

#[test]
fn live_copies_of_one_identity_do_not_steal_in_a_circle() {
    for servers in [2, 3] {
        let mut world = world(1, 1);
        for _ in 1..servers {
            world.clone_disk(0, true);
        }
        world.seconds(200);
        let before = world.grants;
        world.seconds(400);
        world.check();
        assert_eq!(world.grants, before);
        // The one that started last has it.
        assert!(world.servers[servers - 1].issued_at > Some(world.now - 3 * SECOND));
    }
}

#[test]
fn a_restart_gets_its_worker_id_at_once() {
    let mut world = world(1, 1);
    world.seconds(9);
    world.crash(0, true);
    assert!(world.until_issues(0, 9).is_some());
    assert_eq!(held(&world, 0), Some(0));
    let mut stopped = world;
    stopped.stop(0);
    stopped.start(0);
    assert!(stopped.until_issues(0, 2).is_some());
    stopped.check();
}

#[test]
fn another_host_of_a_node_goes_on_with_its_lease() {
    let mut world = world(1, 1);
    // At the grant and at each further request the host ends before it hears the reply.
    for _ in 0..3 {
        let request = loop {
            match world.ask(0) {
                Some(request) => break request,
                None => world.pass(100),
            }
        };
        let kept = world.servers[0].node.kept();
        let _ = world.answer(0, 0, &request);
        world.servers[0].node = Node::resumed(request.asker, None, kept);
        world.seconds(20);
        world.check();
        assert!(world.until_issues(0, 3).is_some());
        // The grant may have reached a copy: the next one begins at its bound.
        assert_eq!((held(&world, 0), world.row(0).counter), (Some(0), 2));
    }
}

/// A copy of the disk on another machine: the configuration says the same worker ID.
#[test]
fn a_restored_copy_does_not_stop_the_original() {
    let mut world = world(1, 1);
    world.servers[0].fixed = WorkerId::new(0);
    world.crash(0, true);
    world.seconds(9);
    world.clone_disk(0, false);
    world.seconds(60);
    world.check();
    assert!(world.servers[0].issued_at > Some(world.now - 3 * SECOND));
    assert!(world.servers[1].issued_at.is_none());
    let RegistryError::Held { by, .. } = why(&world, 1) else {
        panic!("{:?}", why(&world, 1))
    };
    assert_eq!(**by, HolderName::from(&world.row(0).holder));
    // Nobody learns by a refusal how to take the worker ID over.
    let told = serde_json::to_string(why(&world, 1)).unwrap();
    assert!(told.contains("data_directory"), "{told}");
    assert!(
        !told.contains("identity") && !told.contains("started"),
        "{told}"
    );
    down(&mut world, 0);
    let waited = world.until_issues(1, 40).unwrap();
    assert!((14..=18).contains(&waited), "{waited}");
    world.stop(1);
    world.start(0);
    assert!(world.until_issues(0, 3).is_some());
    world.check();
}

/// Messages that were under way when their sender crashed.
#[test]
fn a_late_message_takes_nothing_from_the_successor() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    let late_acquire = world.ask(0).unwrap();
    world.give_up(0, late_acquire.number);
    world.seconds(4);
    world.pass(4 * SECOND);
    let late_renewal = world.ask(0).unwrap();
    let late_release = world.close(0).unwrap();
    world.start(0);
    world.seconds(4);
    let row = world.row(0).clone();
    for late in [&late_acquire, &late_renewal, &late_release] {
        let reply = world.answer(0, 0, late);
        let refused = matches!(reply.answer, Answer::Ignored | Answer::Refused(_));
        assert!(refused, "{:?}", reply.answer);
        let now = world.row(0);
        assert_eq!(
            (row.nonce, row.bound, row.released),
            (now.nonce, now.bound, now.released)
        );
    }
    world.start(1);
    world.seconds(40);
    world.check();
    assert!(world.servers[0].issued_at > Some(world.now - 3 * SECOND));
}

#[test]
fn an_older_request_changes_nothing_and_a_repeated_one_no_more() {
    let mut world = world(1, 1);
    let first = world.ask(0).unwrap();
    let reply = world.answer(0, 0, &first);
    world.hear(0, &reply);
    world.publish(0);
    world.pass(4 * SECOND);
    let renewal = world.ask(0).unwrap();
    let reply = world.answer(0, 0, &renewal);
    let stored = world.row(0).clone();
    world.pass(4 * SECOND);
    let again = world.answer(0, 0, &renewal);
    assert_eq!(again.answer, reply.answer);
    let older = world.answer(0, 0, &first);
    assert_eq!(older.answer, Answer::Ignored);
    assert_eq!(*world.row(0), stored);
}

/// The reply to the first request is lost: the next one gets another worker ID, or begins at the
/// bound of the lost grant, which may have reached a copy.
#[test]
fn a_lost_grant_is_not_granted_again() {
    let mut world = world(1, 1);
    let first = world.ask(0).unwrap();
    let lost = world.answer(0, 0, &first);
    world.give_up(0, first.number);
    world.seconds(3);
    let Answer::Granted(grant) = lost.answer else {
        panic!()
    };
    let row = world.row(0);
    assert_eq!((row.counter, row.floor), (grant.counter + 1, grant.bound));
    world.seconds(5);
    assert!(world.until_issues(0, 3).is_some());
    world.check();
}

#[test]
fn a_reply_that_was_given_up_brings_nothing_back() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    let first = world.ask(0).unwrap();
    let reply = world.answer(0, 0, &first);
    world.give_up(0, first.number);
    world.hear(0, &reply);
    world.publish(0);
    assert!(world.servers[0].stamp().is_none());
    // Nor does one to an earlier incarnation, with the same number.
    world.crash(0, true);
    let other = world.ask(0).unwrap();
    assert_eq!(other.number, first.number);
    world.hear(0, &reply);
    world.publish(0);
    assert!(world.servers[0].stamp().is_none());
}

#[test]
fn a_released_worker_id_is_free_at_once_from_its_true_end() {
    let mut world = one_of_two();
    let bound = world.row(0).bound;
    world.stop(0);
    let end = world.row(0).bound;
    assert!(end < bound);
    world.start(1);
    assert!(world.until_issues(1, 2).is_some());
    assert_eq!(world.row(0).floor, end);
    world.seconds(10);
    world.start(0);
    world.seconds(10);
    world.check();
}

#[test]
fn a_release_of_what_was_taken_over_changes_nothing() {
    let mut world = taken_over();
    let row = world.row(0).clone();
    world.wake(0);
    // It has not heard of the takeover.
    let release = world.close(0).unwrap();
    let reply = world.answer(0, 0, &release);
    let Answer::Refused(RegistryError::Fenced {
        why: Fence::TakenOver,
        by,
        ..
    }) = reply.answer
    else {
        panic!("{:?}", reply.answer)
    };
    assert_eq!(*by.unwrap(), HolderName::from(&world.row(0).holder));
    assert_eq!(*world.row(0), row);
}

#[test]
fn a_clock_of_the_registry_that_is_set_back_stops_nobody() {
    for off in [-100, -100_000] {
        let mut world = one_of_two();
        down(&mut world, 0);
        world.newest().off = off * SECOND;
        world.start(1);
        assert!(
            world.until_issues(1, PATIENCE).is_some(),
            "{}",
            world.log.join("\n")
        );
        // And in a grace period.
        let mut world = one_of_two();
        world.replace(0, How::Promotion);
        world.seconds(2);
        world.newest().off = off * SECOND;
        down(&mut world, 0);
        world.start(1);
        assert!(
            world.until_issues(1, PATIENCE).is_some(),
            "{}",
            world.log.join("\n")
        );
    }
}

#[test]
fn a_server_whose_clock_is_wrong_is_told_before_it_issues() {
    let mut world = world(2, 2);
    world.servers[0].off = 2 * DAY.get();
    world.seconds(3);
    let RegistryError::TooFarAhead { limit, .. } = why(&world, 0) else {
        panic!("{:?}", why(&world, 0))
    };
    assert!(limit.get() < EPOCH + DAY.get() + 10 * SECOND);
    assert!(world.servers[0].issued_at.is_none());
    // Nor does a restart.
    world.crash(0, true);
    world.seconds(3);
    assert!(world.servers[0].issued_at.is_none());
    world.servers[0].off = 0;
    assert!(world.until_issues(0, 3).is_some());
    // One that has a right is told as well.
    world.servers[0].off = 2 * DAY.get();
    world.seconds(12);
    assert!(world.servers[0].issued_at < Some(world.now - 2 * SECOND));
    assert!(world.lead() < 100);
}

#[test]
fn a_registry_whose_clock_is_wrong_stops_nobody() {
    let mut world = world(2, 2);
    world.seconds(5);
    world.newest().off = -DAY.get() - 60 * SECOND;
    world.crash(0, true);
    world.crash(1, true);
    world.seconds(30);
    assert!(
        world
            .servers
            .iter()
            .all(|server| server.issued_at > Some(world.now - 3 * SECOND))
    );
}

/// All are told what the registry's clock is.
#[test]
fn a_new_registry_whose_clock_is_slow_tells_its_clock() {
    for days in [1, 30] {
        let mut world = world(3, 3);
        let off = -days * DAY.get() - 60 * SECOND;
        let registry = world.newest();
        registry.off = off;
        registry.disk.0.top = RegistryMillis::new(EPOCH + off);
        world.seconds(30);
        for server in 0..3 {
            let RegistryError::TooFarAhead { asked, now, .. } = why(&world, server) else {
                panic!("{:?}", why(&world, server))
            };
            assert!(asked.get() - now.get() > days * DAY.get());
        }
        world.newest().off = 0;
        assert!(world.until_issues(0, 3).is_some());
    }
}

#[test]
fn a_copy_of_a_running_machine_is_found() {
    for pool in [1, 2] {
        let mut world = world(pool, 1);
        world.seconds(6);
        let bound = world.row(0).bound.get();
        let copy = world.clone_memory(0);
        world.servers[copy].off = 5;
        world.seconds(60);
        assert!(world.changes.contains("copied"), "{}", world.log.join("\n"));
        let issuing =
            [0, copy].map(|server| world.servers[server].issued_at > Some(world.now - 3 * SECOND));
        let issuing = issuing.iter().filter(|issues| **issues).count();
        // Both have lost the worker ID; each gets one that the other one does not have.
        assert_eq!(
            issuing,
            usize::try_from(pool).unwrap(),
            "{}",
            world.log.join("\n")
        );
        // Each may have issued up to the bound that it had when it was copied.
        for line in world.log.iter().filter(|line| line.contains("TWICE")) {
            let at = line.split("tick at ").nth(1).unwrap().split(' ').next();
            let at: f64 = at.unwrap().parse().unwrap();
            assert!(at * 1000.0 < (bound - EPOCH) as f64, "{line}");
        }
    }
}

#[test]
fn a_revoked_worker_id_is_free_after_the_usual_time() {
    let mut world = one_of_two();
    world.start(1);
    let input = world.registries[0].registry_input(world.now);
    let (state, table) = &mut world.newest().disk;
    super::lease_table::revoke(state, table, WorkerId::new(0).unwrap(), &input);
    world.seconds(4);
    assert!(world.changes.contains("lost"));
    assert!(held(&world, 1).is_none());
    // Not even a restart of the holder gets it before.
    world.crash(0, true);
    world.seconds(3);
    assert!(held(&world, 0).is_none());
    world.seconds(PATIENCE);
    assert_eq!(world.row(0).counter, 2);
    world.check();
}

#[test]
fn ids_of_before_the_registry() {
    let mut world = world(1, 1);
    let made = world.now;
    let table = &mut world.newest().disk.1;
    table.pool.made = crate::lease::RegistryMillis::new(made);
    table.pool.ids = 0..3;
    table.pool.except = vec![0..1, 1..2];
    world.second();
    assert_eq!(held(&world, 0), Some(2));
    // Who had it may have led by a lease, too.
    assert_eq!(world.row(2).floor.get(), made + (8 + 8 + 20) * SECOND);
    let mut claims = self::world(1, 1);
    claims.servers[0].fixed = WorkerId::new(7);
    claims.crash(0, true);
    claims.second();
    assert_eq!(
        *why(&claims, 0),
        RegistryError::NotInPool {
            worker: WorkerId::new(7).unwrap()
        }
    );
}

#[test]
fn which_worker_id() {
    // The previous one, though others were never granted or have been free for longer.
    let mut world = world(3, 2);
    world.seconds(3);
    for server in [0, 1] {
        world.stop(server);
    }
    world.seconds(3);
    world.start(1);
    world.second();
    assert_eq!(held(&world, 1), Some(1));
    // One that was never granted comes before one that was free for less than a day.
    world.reboot(0);
    world.second();
    assert_eq!(held(&world, 0), Some(2));
    world.pass(DAY.get() + 20 * SECOND);
    world.crash(0, false);
    world.crash(1, false);
    let table = &mut world.newest().disk.1;
    table.pool.ids = 0..4;
    let new = world.servers[0].identity;
    let new = world.add(crate::lease::ServerKey { system: 999, ..new }, SECOND);
    world.second();
    assert_eq!(held(&world, new), Some(0));
    world.check();
}

/// One whose bound has passed comes before one that has been free for longer, whose
/// bound has not.
#[test]
fn a_worker_id_that_needs_no_lead_is_preferred() {
    let mut world = world(2, 3);
    down(&mut world, 2);
    world.servers[0].off = 3000 * SECOND;
    world.seconds(5);
    down(&mut world, 0);
    world.seconds(20);
    world.stop(1);
    world.seconds(20);
    world.start(2);
    world.second();
    assert_eq!(held(&world, 2), Some(1));
}

#[test]
fn a_standby_makes_no_contact() {
    let mut world = world(1, 1);
    world.servers[0].in_recovery = true;
    world.seconds(20);
    assert!(world.registries[0].rows().is_empty());
    world.servers[0].in_recovery = false;
    assert!(world.until_issues(0, 2).is_some());
}

/// The registry is away for longer than a lease: IDs end at the bound, and resume.
#[test]
fn out_of_reach() {
    let mut world = world(1, 1);
    world.seconds(5);
    let bound = world.row(0).bound.get();
    for _ in 0..40 {
        world.pass(SECOND);
        if let Some(request) = world.ask(0) {
            world.give_up(0, request.number);
        }
        world.issue(0);
    }
    let issued = world.servers[0].issued_at.unwrap();
    assert!((bound - 4 * SECOND..bound).contains(&issued));
    let failure = world.servers[0].node.failure().unwrap();
    assert!(matches!(failure.why, LeaseError::Unreachable(_)));
    assert!(failure.since.get() < EPOCH + 10 * SECOND);
    assert!(world.until_issues(0, 3).is_some());
    assert!(world.changes.contains("resumed"));
    world.check();
}

/// The machine was suspended, or its clock stepped: the caller's need is renewed for at
/// once, though the lease is not used up.
#[test]
fn a_caller_that_needs_more_does_not_wait() {
    let mut world = world(1, 1);
    world.second();
    world.servers[0].off = 600 * SECOND;
    assert!(!world.issue(0));
    assert!(world.contact(0));
    assert!(world.issue(0));
    world.check();
}

#[test]
fn a_node_renews_every_third_of_a_lease() {
    let mut world = world(1, 1);
    world.second();
    let mut renewals = 0;
    for _ in 0..80 {
        world.pass(SECOND);
        world.issue(0);
        renewals += i64::from(world.contact(0));
    }
    assert!((25..=32).contains(&renewals), "{renewals}");
}

#[test]
fn pools() {
    let terms = Terms {
        ids: 0..1000,
        lease: Millis::new(1),
        patience: Millis::new(1),
        hold: Millis::new(1),
        max_ahead: Millis::new(1),
    };
    assert!(terms.fit(1023) && terms.fit(999) && !terms.fit(998));
    let mut world = world(2, 1);
    let pool = world.newest().disk.1.pool.clone();
    for wrong in [
        Pool {
            ids: -1..2,
            ..pool.clone()
        },
        Pool {
            ids: 0..(1 << 31) + 1,
            ..pool.clone()
        },
        Pool {
            ids: 3..3,
            ..pool.clone()
        },
        Pool {
            lease: Millis::ZERO,
            ..pool.clone()
        },
        Pool {
            hold: Millis::ZERO,
            ..pool.clone()
        },
        Pool {
            max_ahead: Millis::new(-1),
            ..pool.clone()
        },
    ] {
        assert_eq!(wrong.checked(), None);
    }
    assert!(pool.checked().is_some());
}

/// A bound that was stored is not taken back when the clock is.
#[test]
fn the_bound_only_rises() {
    let mut world = world(1, 1);
    world.pass(SECOND);
    world.contact(0);
    let bound = world.row(0).bound;
    world.servers[0].off = -6 * SECOND;
    world.pass(3 * SECOND);
    assert!(world.contact(0));
    assert_eq!(world.row(0).bound, bound);
}

/// A renewal that was overtaken by the next one.
#[test]
fn an_older_renewal_changes_nothing() {
    let mut world = world(1, 1);
    world.seconds(2);
    world.pass(4 * SECOND);
    let older = world.ask(0).unwrap();
    world.give_up(0, older.number);
    world.pass(4 * SECOND);
    let newer = world.ask(0).unwrap();
    let reply = world.answer(0, 0, &newer);
    let stored = world.row(0).clone();
    let late = world.answer(0, 0, &older);
    assert_eq!(late.answer, Answer::Ignored);
    assert_eq!(*world.row(0), stored);
    // And the node takes only the reply to its latest request.
    let before = world.servers[0].node.right();
    let number = reply.number;
    world.hear(
        0,
        &crate::lease::Reply {
            number: number - 1,
            ..reply.clone()
        },
    );
    assert_eq!(world.servers[0].node.right(), before);
    world.hear(0, &reply);
    assert_ne!(world.servers[0].node.right(), before);
}

/// The copy is asked for later than its original, which has used the copy's numbers.
#[test]
fn a_copy_that_lags_stops() {
    let mut world = world(2, 1);
    world.seconds(6);
    let copy = world.clone_memory(0);
    world.freeze(copy);
    world.seconds(12);
    world.wake(copy);
    world.seconds(1);
    assert!(world.changes.contains("copied"));
    let twice = world
        .log
        .iter()
        .filter(|line| line.contains("TWICE"))
        .count();
    world.seconds(30);
    let (original, copied) = (held(&world, 0), held(&world, copy));
    assert!(original.is_some() && copied.is_some() && original != copied);
    let after = world
        .log
        .iter()
        .filter(|line| line.contains("TWICE"))
        .count();
    assert_eq!(twice, after);
}

/// What a closed node says.
#[test]
fn a_right_ends() {
    let world = one_of_two();
    let right = world.servers[0].node.right().unwrap();
    let mut node: Node = world.servers[0].node.clone();
    let node_input = NodeInput {
        boot: crate::id::BootNanos::new(0),
        clock: UnixMillis::new(world.now),
        furthest: right.floor,
        in_recovery: false,
    };
    assert!(node.close(right.floor, &node_input).is_some());
    assert!(node.right().is_none());
    assert!(matches!(node.next(&node_input), Next::Sleep(_)));
}
