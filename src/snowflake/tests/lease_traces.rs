//! What must happen in stated circumstances: one test for each rule of the leases, and
//! for each hole that was found in them.

use super::super::id::{Millis, UnixMillis, WorkerId};
use super::super::lease::node::{Moment, Next, Node, Why};
use super::super::lease::registry::{self, DAY, Rows};
use super::super::lease::{Answer, Cause, Fence, Pool, Refused, Terms};
use super::lease::{EPOCH, How, Plan, SECOND, World};

/// A lease, a hold, and what is lost to seconds.
const PATIENCE: i64 = 8 + 8 + 5;

fn world(pool: i64, servers: usize) -> World {
    let plan = Plan {
        pool,
        servers,
        ..Plan::default()
    };
    World::new(plan).tell()
}

fn down(world: &mut World, server: usize) {
    world.crash(server, false);
}

/// A server that is alone for some seconds, and another that has not started.
fn one_of_two() -> World {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(6);
    world
}

/// The first server's worker ID is taken over by the second one; the first is frozen.
fn taken_over() -> World {
    let mut world = one_of_two();
    world.freeze(0);
    world.seconds(18);
    world.start(1);
    world.seconds(5);
    assert!(world.servers[1].issued_at.is_some());
    world
}

/// How many changes ago the holder of worker ID 0 was another incarnation.
fn before_takeover(world: &World) -> usize {
    let holder = world.row(0).nonce;
    let other = WorkerId::new(0).unwrap();
    world.changes_since(|rows| rows.get(&other).is_some_and(|row| row.nonce != holder))
}

fn held(world: &World, server: usize) -> Option<u32> {
    world.servers[server]
        .stamp()
        .map(|(_, worker, _)| worker.get())
}

fn why(world: &World, server: usize) -> &Refused {
    match &world.servers[server].node.trouble().unwrap().why {
        Why::Refused(refused) => refused,
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
    let Refused::NoneFree { .. } = why(&world, 0) else {
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

/// The takeover is lost, and the copy knows only the holder that was frozen.
#[test]
fn a_lost_takeover_is_not_undone() {
    // The registry that takes over may be slow: the clock of the holder counts, too.
    for off in [0, -50] {
        let mut world = taken_over();
        let lost = before_takeover(&world);
        world.freeze(1);
        world.replace(lost, How::Promotion);
        world.newest().off = off * SECOND;
        world.wake(0);
        world.seconds(2);
        let Refused::Quiet {
            cause: Cause::Place,
            ..
        } = why(&world, 0)
        else {
            panic!("{:?}", why(&world, 0))
        };
        assert!(world.until_issues(0, PATIENCE).is_some());
        world.wake(1);
        world.seconds(30);
        world.check();
    }
}

/// As before, but the lost holder comes first.
#[test]
fn a_lost_holder_gets_no_floor_below_the_rows_bound() {
    let mut world = taken_over();
    let lost = before_takeover(&world);
    world.freeze(1);
    world.replace(lost, How::Promotion);
    world.wake(1);
    world.seconds(40);
    assert!(world.servers[1].issued_at > Some(world.now - 3 * SECOND));
    world.wake(0);
    world.seconds(30);
    world.check();
}

/// The old holder, known to the copy, has been renewed since: an unknown token of a lost
/// takeover gets nothing of it.
#[test]
fn an_unknown_token_takes_nothing_from_a_live_holder() {
    let mut world = world(2, 3);
    down(&mut world, 2);
    world.seconds(6);
    world.freeze(1);
    world.seconds(18);
    world.start(2);
    world.seconds(2);
    let lost =
        world.changes_since(|rows| rows.len() == 2 && rows.values().all(|row| row.counter == 1));
    world.freeze(2);
    world.replace(lost, How::Promotion);
    let before = world.row(0).counter;
    world.wake(2);
    world.seconds(40);
    world.check();
    assert_eq!(world.row(0).counter, before, "{}", world.log.join("\n"));
    assert!(world.servers[0].issued_at > Some(world.now - 3 * SECOND));
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

/// Its clock is set back by an hour: it goes on, at half speed, and crashes on top of
/// that let nothing grow.
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

/// A copy of the disk on another machine: the configuration says the same worker ID.
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
        assert!(world.issue(0));
        assert_eq!((held(&world, 0), world.row(0).counter), (Some(0), 1));
    }
}

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
    let Refused::Held { by, .. } = why(&world, 1) else {
        panic!("{:?}", why(&world, 1))
    };
    assert_eq!(by.identity, world.servers[0].identity);
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

/// The reply to the first request is lost: the next one gets the same grant.
#[test]
fn a_lost_grant_is_granted_again() {
    let mut world = world(2, 1);
    let first = world.ask(0).unwrap();
    let lost = world.answer(0, 0, &first);
    world.give_up(0, first.number);
    world.seconds(3);
    let Answer::Granted(grant) = lost.answer else {
        panic!()
    };
    let row = world.row(0);
    assert_eq!((row.counter, row.floor), (grant.counter, grant.floor));
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
    let Answer::Refused(Refused::Fenced {
        why: Fence::TakenOver,
        by,
        ..
    }) = reply.answer
    else {
        panic!("{:?}", reply.answer)
    };
    assert_eq!(by.unwrap().identity, world.servers[1].identity);
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
        // And in a quiet time.
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
    let Refused::TooFarAhead { limit, .. } = why(&world, 0) else {
        panic!("{:?}", why(&world, 0))
    };
    assert!(limit.get() < EPOCH + DAY.get() + 10 * SECOND);
    assert!(world.servers[0].issued_at.is_none());
    // A restart does not vouch for the clock of the one before it.
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
    // Also one that has never had another clock: the servers vouch for each other.
    let mut world = self::world(2, 2);
    let off = -DAY.get() - 60 * SECOND;
    let registry = world.newest();
    registry.off = off;
    registry.disk.0.top = super::super::lease::RegistryMillis::new(EPOCH + off);
    world.seconds(30);
    assert!(
        world
            .servers
            .iter()
            .all(|server| server.issued_at > Some(world.now - 3 * SECOND))
    );
    world.check();
}

/// Five holders that are lost come back one by one, and do not make a new one wait.
#[test]
fn lost_tokens_make_nobody_wait_again() {
    let mut world = world(6, 6);
    world.second();
    let all = world.registries[0].copies.len();
    world.seconds(3);
    for server in 1..6 {
        world.freeze(server);
    }
    let lost = world.registries[0].copies.len() - all + 5;
    world.replace(lost, How::Promotion);
    world.reboot(0);
    let (begin, mut woken) = (world.now, 1);
    while world.servers[0].issued_at <= Some(begin) {
        world.second();
        if (world.now - begin) % (12 * SECOND) == 0 && woken < 6 {
            world.wake(woken);
            woken += 1;
        }
        assert!(
            world.now - begin <= PATIENCE * SECOND,
            "{}",
            world.log.join("\n")
        );
    }
    for server in 1..6 {
        world.wake(server);
    }
    world.seconds(40);
    world.check();
}

#[test]
fn a_promoted_host_serves_itself_at_once() {
    let plan = Plan {
        spares: 2,
        ..Plan::default()
    };
    let mut world = World::new(plan).tell();
    world.servers[0].hosts = true;
    world.servers[1].hosts = true;
    world.seconds(5);
    down(&mut world, 0);
    world.crash(1, false);
    // The standby of the first server, promoted.
    world.replace(0, How::Promotion);
    world.reboot(0);
    assert!(world.until_issues(0, 2).is_some());
    assert_eq!(held(&world, 0), Some(1), "{}", world.log.join("\n"));
    // All of that is lost, and the next promotion follows.
    world.freeze(0);
    let changes = world.registries.last().unwrap().copies.len();
    world.replace(changes, How::Promotion);
    world.reboot(1);
    assert!(world.until_issues(1, 2).is_some());
    assert_eq!(held(&world, 1), Some(2));
    world.wake(0);
    world.seconds(60);
    world.check();
}

/// Nobody but the host, not without a promotion, and not what was granted before.
#[test]
fn spares_are_for_a_promoted_host_only() {
    let plan = Plan {
        spares: 2,
        servers: 3,
        ..Plan::default()
    };
    let mut world = World::new(plan).tell();
    world.seconds(40);
    assert_eq!(
        world
            .servers
            .iter()
            .filter(|server| server.stamp().is_some())
            .count(),
        1
    );
    world.replace(0, How::Snapshot);
    world.servers[2].hosts = true;
    world.seconds(5);
    assert!(held(&world, 2).is_none());
    world.seconds(40);
    assert!(held(&world, 2).is_none());
    world.replace(0, How::Promotion);
    world.seconds(2);
    assert_eq!(held(&world, 2), Some(1));
    assert!(held(&world, 1).is_none());
    world.check();
}

#[test]
fn an_old_registry_stops_until_it_is_declared() {
    let mut world = one_of_two();
    world.start(1);
    world.replace(0, How::Promotion);
    world.seconds(5);
    // Back to the old one, on purpose.
    world.servers[0].registry = 0;
    world.servers[1].registry = 0;
    world.seconds(30);
    let Refused::Stopped(stopped) = why(&world, 1) else {
        panic!("{:?}", why(&world, 1))
    };
    assert_eq!(stopped.seen.place.timeline, 2);
    assert!(world.servers[0].issued_at < Some(world.now - 15 * SECOND));
    let scene = world.registries[0].scene(world.now, false);
    world.registries[0].disk.0.declare(&scene);
    assert!(
        world.until_issues(0, PATIENCE).is_some(),
        "{}",
        world.log.join("\n")
    );
    world.check();
    // Now the other one has to stop.
    world.servers[0].registry = 1;
    world.seconds(30);
    assert!(world.registries[1].disk.0.stopped.is_some());
    world.check();
}

#[test]
fn two_copies_that_both_count_stop() {
    let mut world = world(1, 2);
    world.seconds(3);
    let one = world.copy_registry(0, How::Promotion);
    let two = world.copy_registry(0, How::Promotion);
    world.registries[two].place = world.registries[one].place;
    world.servers[0].registry = one;
    world.servers[1].registry = two;
    world.seconds(2);
    world.servers[0].registry = two;
    world.servers[1].registry = one;
    world.seconds(8);
    assert!(world.registries[one].disk.0.stopped.is_some());
    assert!(world.registries[two].disk.0.stopped.is_some());
}

/// A promotion that loses those before it, and what they granted, needs no administrator.
#[test]
fn a_promotion_that_loses_a_promotion_serves() {
    let mut world = one_of_two();
    for _ in 0..3 {
        world.replace(0, How::Promotion);
        world.seconds(3);
    }
    let changes = world.registries.last().unwrap().copies.len();
    world.replace(changes, How::Promotion);
    world.seconds(2 * PATIENCE);
    assert!(
        world.until_issues(0, 4).is_some(),
        "{}",
        world.log.join("\n")
    );
    world.check();
}

/// The holder led by what may be led, its renewals are lost, it is frozen; the registry
/// that takes over is slow.
#[test]
fn a_slow_registry_after_a_loss() {
    for (off, asker) in [(0, 0), (-50, 0), (0, -50)] {
        let mut world = one_of_two();
        world.servers[1].off = asker * SECOND;
        world.advance(0, 19 * SECOND);
        world.seconds(2);
        world.advance(0, 19 * SECOND);
        world.freeze(0);
        let changes = world.registries[0].copies.len();
        world.replace(changes, How::Promotion);
        world.newest().off = off * SECOND;
        world.start(1);
        world.seconds(70);
        assert!(world.servers[1].issued_at.is_some());
        world.wake(0);
        world.seconds(20);
        world.check();
    }
}

/// A server's clock is ahead, by less than `max_ahead`, and its first grant is lost.
#[test]
fn a_fast_server_whose_grant_is_lost() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = 19 * SECOND;
    world.seconds(4);
    world.freeze(0);
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Promotion);
    world.start(1);
    world.seconds(60);
    assert!(world.servers[1].issued_at.is_some());
    world.check();
}

/// A holder far ahead, whose latest renewals are lost.
#[test]
fn a_row_far_ahead_may_have_been_renewed() {
    let mut world = one_of_two();
    world.servers[0].off = 3000 * SECOND;
    world.seconds(2);
    world.newest().copies.clear();
    world.seconds(12);
    world.freeze(0);
    world.replace(60, How::Promotion);
    world.start(1);
    // The next holder follows the clock of the lost one.
    world.servers[1].off = 2950 * SECOND;
    world.seconds(90);
    assert!(world.servers[1].issued_at.is_some());
    world.check();
}

/// A clean stop and the next grant are lost, and the server that had stopped comes back
/// at once: it has the identity, and the row's bound is not enough.
#[test]
fn a_restart_in_the_quiet_time_starts_above_what_may_be_lost() {
    let mut world = one_of_two();
    world.keep_memory = false;
    world.stop(0);
    world.start(1);
    world.seconds(3);
    world.freeze(1);
    let lost = before_takeover(&world);
    // Before the release, too.
    world.replace(lost + 1, How::Snapshot);
    world.start(0);
    assert!(
        world.until_issues(0, 2).is_some(),
        "{}",
        world.log.join("\n")
    );
    world.seconds(20);
    world.wake(1);
    world.seconds(20);
    world.check();
}

/// What is granted in the quiet time is lost as well, and clocks differ.
#[test]
fn two_losses_in_a_row() {
    let mut world = one_of_two();
    world.servers[0].off = 3 * SECOND;
    world.replace(0, How::Promotion);
    world.seconds(2);
    world.reboot(0);
    world.crash(0, true);
    world.servers[0].identity = world.row(0).holder.identity;
    world.crash(0, true);
    world.seconds(1);
    world.freeze(0);
    let changes = world.registries.last().unwrap().copies.len();
    world.replace(changes, How::Promotion);
    world.start(1);
    world.seconds(30);
    assert!(world.servers[1].issued_at.is_some());
    world.check();
}

/// A crash of the registry's server looks like a restored snapshot; those that live go on.
#[test]
fn a_recovered_registry_keeps_its_holders() {
    let mut world = world(2, 2);
    world.seconds(6);
    world.replace(0, How::Snapshot);
    let grants = world.grants;
    for _ in 0..40 {
        for server in [0, 1] {
            assert!(world.until_issues(server, 3).is_some());
        }
    }
    assert_eq!(world.grants, grants);
    world.check();
}

#[test]
fn a_clean_restart_of_the_registry_is_no_loss() {
    let mut world = one_of_two();
    world.replace(0, How::Backup);
    world.stop(0);
    world.start(1);
    assert!(world.until_issues(1, 2).is_some());
    assert!(world.registries[1].disk.0.loss.is_none());
}

/// A backup of the stopped server: only the nodes can know.
#[test]
fn what_nodes_have_seen_shows_a_loss() {
    // More changes than the registry has stored.
    let mut world = one_of_two();
    world.replace(1, How::Backup);
    world.seconds(3);
    assert_eq!(
        world.registries[1].disk.0.loss.unwrap().cause,
        Cause::Serial
    );
    // A token that it has not granted, once it has stored as many.
    let mut world = self::world(2, 2);
    world.keep_memory = false;
    down(&mut world, 1);
    world.seconds(6);
    world.freeze(0);
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Backup);
    world.start(1);
    world.seconds(30);
    assert!(world.registries[1].disk.0.loss.is_none());
    world.wake(0);
    world.seconds(2);
    assert_eq!(world.registries[1].disk.0.loss.unwrap().cause, Cause::Token);
    let at = world.registries[1].disk.0.loss.unwrap().at;
    world.seconds(60);
    assert_eq!(world.registries[1].disk.0.loss.unwrap().at, at);
}

#[test]
fn a_dump_that_is_restored_elsewhere_is_a_loss() {
    let mut world = one_of_two();
    let copy = world.copy_registry(2, How::Backup);
    world.registries[copy].place.system = 2;
    world.servers[0].registry = copy;
    world.seconds(3);
    assert_eq!(
        world.registries[copy].disk.0.loss.unwrap().cause,
        Cause::Place
    );
    // The old one has been replaced.
    world.servers[0].registry = 0;
    world.seconds(30);
    assert!(world.registries[0].disk.0.stopped.is_some());
}

#[test]
fn an_administrator_ends_the_quiet_time() {
    let mut world = one_of_two();
    down(&mut world, 0);
    world.seconds(20);
    world.replace(0, How::Promotion);
    world.start(1);
    world.seconds(2);
    assert!(held(&world, 1).is_none());
    let scene = world.registries[1].scene(world.now, false);
    world.registries[1].disk.0.end_quiet(&scene);
    assert!(world.until_issues(1, 2).is_some());
    // The floor stays.
    assert!(world.row(0).floor.get() > world.now + 20 * SECOND);
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
        assert!(world.twice.is_some());
        assert!(world.changes.contains("copied"), "{}", world.log.join("\n"));
        let issuing =
            [0, copy].map(|server| world.servers[server].issued_at > Some(world.now - 3 * SECOND));
        assert_eq!(
            issuing.iter().filter(|issues| **issues).count() as i64,
            pool
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
    let scene = world.registries[0].scene(world.now, false);
    let (state, table) = &mut world.newest().disk;
    registry::revoke(state, table, WorkerId::new(0).unwrap(), &scene).unwrap();
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
    table.pool.made = super::super::lease::RegistryMillis::new(made);
    table.pool.ids = 0..3;
    table.pool.except = vec![0..2];
    world.second();
    assert_eq!(held(&world, 0), Some(2));
    assert_eq!(world.row(2).floor.get(), made + 20 * SECOND);
    let mut claims = self::world(1, 1);
    claims.servers[0].fixed = WorkerId::new(7);
    claims.crash(0, true);
    claims.second();
    assert_eq!(
        *why(&claims, 0),
        Refused::NotInPool {
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
    let new = world.add(super::super::lease::Identity { system: 999, ..new }, SECOND);
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
    let trouble = world.servers[0].node.trouble().unwrap();
    assert!(matches!(trouble.why, Why::Unreachable(_)));
    assert!(trouble.since.get() < EPOCH + 10 * SECOND);
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
            spares: 2,
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
    // A pool whose worker IDs are in use is not dropped.
    world.second();
    let scene = world.registries[0].scene(world.now, false);
    assert!(registry::forbids_drop(&mut world.newest().disk.1, &scene).is_some());
    world.stop(0);
    world.pass(10 * SECOND);
    let scene = world.registries[0].scene(world.now, false);
    assert!(registry::forbids_drop(&mut world.newest().disk.1, &scene).is_none());
}

/// The holder whose grant is lost led as far as it may, with a clock that was ahead by
/// nearly a hold, for more than a lease. The stop before it is lost as well, and the
/// server that had stopped starts at once.
#[test]
fn the_floor_after_a_loss_is_no_lower_than_it_must_be() {
    let mut world = one_of_two();
    world.keep_memory = false;
    world.stop(0);
    world.servers[1].off = 7 * SECOND;
    world.start(1);
    world.seconds(9);
    world.advance(1, 19 * SECOND);
    world.freeze(1);
    let lost = before_takeover(&world);
    world.replace(lost + 1, How::Snapshot);
    world.start(0);
    world.seconds(3);
    assert!(held(&world, 0).is_some(), "{}", world.log.join("\n"));
    world.wake(1);
    world.seconds(30);
    world.check();
}

/// Both clocks that are asked at the loss are slow, but the registry has stored the time.
#[test]
fn the_time_that_was_stored_counts_at_a_loss() {
    let mut world = one_of_two();
    world.freeze(0);
    world.seconds(14);
    world.start(1);
    world.seconds(10);
    let lost = before_takeover(&world);
    world.freeze(1);
    // The takeover is lost, but the time at which it was refused last is not.
    world.replace(lost, How::Promotion);
    world.newest().off = -50 * SECOND;
    let identity = world.servers[0].identity;
    let identity = super::super::lease::Identity {
        system: 999,
        ..identity
    };
    let third = world.add(identity, SECOND);
    world.servers[third].off = -50 * SECOND;
    world.seconds(60);
    assert!(world.servers[third].issued_at.is_some());
    world.wake(1);
    world.seconds(20);
    world.check();
}

/// A server whose clock is ahead waits once after a loss, then it holds what it has got.
#[test]
fn a_fast_server_holds_its_worker_id_after_a_loss() {
    let mut world = world(1, 1);
    world.servers[0].off = 3000 * SECOND;
    world.seconds(10);
    world.replace(0, How::Promotion);
    world.seconds(40);
    assert_eq!(world.grants, 2);
    world.seconds(100);
    assert_eq!(world.grants, 2);
    assert!(world.until_issues(0, 4).is_some());
    world.check();
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

/// A floor that was legal is no clock error of the incarnation that inherits it.
#[test]
fn a_floor_of_a_day_can_be_used() {
    let mut world = world(1, 1);
    world.servers[0].off = DAY.get() - SECOND;
    world.seconds(6);
    world.crash(0, true);
    world.servers[0].off = 0;
    for _ in 0..10 {
        assert!(
            world.until_issues(0, 3).is_some(),
            "{}",
            world.log.join("\n")
        );
    }
    world.check();
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
        &super::super::lease::Reply {
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
    // It counts as the later incarnation, so it may take over; then the other one moves.
    assert_ne!(held(&world, 0), held(&world, copy));
    assert!(held(&world, 0).is_some() && held(&world, copy).is_some());
    let after = world
        .log
        .iter()
        .filter(|line| line.contains("TWICE"))
        .count();
    assert_eq!(twice, after);
}

/// What is capped by the bound, and what a closed node says.
#[test]
fn a_right_ends() {
    let mut world = one_of_two();
    let right = world.servers[0].node.right().unwrap();
    let past = right.bound.plus(Millis::new(5));
    assert_eq!(right.cap(past), right.bound);
    assert_eq!(right.cap(UnixMillis::new(5)), UnixMillis::new(5));
    let mut node: Node = world.servers[0].node.clone();
    let moment = Moment {
        boot: super::super::id::BootNanos::new(0),
        clock: UnixMillis::new(world.now),
        furthest: right.floor,
        in_recovery: false,
    };
    assert!(node.close(right.floor, &moment).is_some());
    assert!(node.right().is_none());
    assert!(matches!(node.next(&moment), Next::Sleep(_)));
    assert!(world.newest().disk.1.greatest_bound().is_some());
}
