//! What must happen when a registry has lost something: one test for each part of the
//! rule, and for each hole that was found in it.

use super::lease::{How, SECOND};
use crate::lease::state::DAY;
use crate::lease::{Cause, RegistryError};

use super::lease_traces::{
    PATIENCE, before_takeover, down, held, one_of_two, taken_over, why, world,
};

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
        let RegistryError::Grace {
            cause: Cause::Origin,
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
fn an_old_registry_stops_until_it_is_declared() {
    let mut world = one_of_two();
    world.start(1);
    world.replace(0, How::Promotion);
    world.seconds(5);
    // Back to the old one, on purpose.
    world.servers[0].registry = 0;
    world.servers[1].registry = 0;
    world.seconds(30);
    let RegistryError::Stopped(stopped) = why(&world, 1) else {
        panic!("{:?}", why(&world, 1))
    };
    assert_eq!(stopped.seen.origin.timeline, 2);
    assert!(world.servers[0].issued_at < Some(world.now - 15 * SECOND));
    let input = world.registries[0].registry_input(world.now);
    world.registries[0].disk.0.declare(&input);
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
    world.registries[two].origin = world.registries[one].origin;
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
fn a_restart_in_the_grace_period_starts_above_what_may_be_lost() {
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

/// What is granted in the grace period is lost as well, and clocks differ.
#[test]
fn two_losses_in_a_row() {
    let mut world = one_of_two();
    world.servers[0].off = 3 * SECOND;
    world.seconds(2);
    world.replace(0, How::Promotion);
    world.crash(0, true);
    // It gets a floor that its own clock has raised, at once.
    world.seconds(2);
    assert!(world.row(0).counter == 2 && world.servers[0].issued_at > Some(world.now - 2 * SECOND));
    world.freeze(0);
    let changes = world.registries.last().unwrap().copies.len();
    world.replace(changes, How::Promotion);
    world.start(1);
    world.seconds(30);
    assert!(world.servers[1].issued_at.is_some());
    world.check();
}

/// A crash of the registry's server looks like a restored snapshot; holders that live keep their
/// worker IDs.
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
    world.registries[copy].origin.system = 2;
    world.servers[0].registry = copy;
    world.seconds(3);
    assert_eq!(
        world.registries[copy].disk.0.loss.unwrap().cause,
        Cause::Origin
    );
    // The old one has been replaced.
    world.servers[0].registry = 0;
    world.seconds(30);
    assert!(world.registries[0].disk.0.stopped.is_some());
}

#[test]
fn an_administrator_ends_the_grace_period() {
    let mut world = one_of_two();
    down(&mut world, 0);
    world.seconds(20);
    world.replace(0, How::Promotion);
    world.start(1);
    world.seconds(2);
    assert!(held(&world, 1).is_none());
    let input = world.registries[1].registry_input(world.now);
    world.registries[1].disk.0.end_grace(&input);
    assert!(world.until_issues(1, 2).is_some());
    // The floor stays.
    assert!(world.row(0).floor.get() > world.now + 20 * SECOND);
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
    let identity = crate::lease::ServerKey {
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

/// A floor is no clock error, also if it is more than a day ahead: that of a server whose
/// clock is wrong, after a loss.
#[test]
fn a_floor_of_more_than_a_day_can_be_used() {
    let mut world = world(1, 1);
    world.servers[0].off = DAY.get() - 10 * SECOND;
    world.seconds(6);
    world.replace(0, How::Promotion);
    world.seconds(20);
    assert_eq!(world.grants, 2);
    for _ in 0..10 {
        assert!(
            world.until_issues(0, 4).is_some(),
            "{}",
            world.log.join("\n")
        );
    }
    world.check();
}

/// The clocks of the promoted registry and of the former holder are slow, by less than a hold.
#[test]
fn clocks_that_are_a_little_slow_at_a_lost_takeover() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = -5 * SECOND;
    world.seconds(6);
    world.freeze(0);
    world.start(1);
    assert!(world.until_issues(1, 40).is_some());
    let lost = before_takeover(&world);
    world.replace(lost, How::Promotion);
    world.newest().off = -5 * SECOND;
    world.wake(0);
    world.contact(0);
    world.seconds(60);
    assert!(world.servers[1].issued_at > Some(world.now - 30 * SECOND));
    world.check();
}
