//! Leases that are longer than the patience: one test for each rule that only they have, and for
//! each way in which an earlier form of the rules was broken.

use super::lease::{Disk, EPOCH, How, Plan, SECOND, World};
use super::lease_traces::{down, held, why};
use crate::id::{BootNanos, Millis, UnixMillis, WorkerId};
use crate::lease::node::{Next, NodeInput};
use crate::lease::state::{DAY, Loss};
use crate::lease::{
    Answer, Cause, FloorCause, HolderName, RegistryError, RegistryMillis, RequestKind, Stoppage,
};

/// Lease 120 s, patience 30 s, hold 32 s, max_ahead 80 s; a step is 4 s.
fn world(pool: i64, servers: usize) -> World {
    let plan = Plan {
        pool,
        servers,
        ..Plan::long()
    };
    let mut world = World::new(plan).tell();
    world.newest().disk.1.pool.unused = true;
    world
}

const STEP: i64 = 4 * SECOND;

/// How far ahead of the world's time the bound of a worker ID lies, in seconds.
fn ahead(world: &World, worker: i32) -> i64 {
    (world.row(worker).bound.get() - world.now) / SECOND
}

/// The server asks at once, whatever its pauses.
fn floor_of_next(world: &mut World, server: usize) -> i64 {
    world.second();
    let worker = held(world, server).unwrap();
    let row = world.row(i32::try_from(worker).unwrap());
    (row.floor.get() - world.now) / SECOND
}

#[test]
fn a_young_lease_is_short() {
    let mut world = world(8, 1);
    world.second();
    let mut most = 0;
    for steps in 1..100 {
        world.second();
        let age = steps * STEP / SECOND;
        let far = ahead(&world, 0);
        assert!(far <= age.clamp(30, 120), "age {age}: {far}");
        most = most.max(far);
    }
    assert!(most >= 110, "{most}");
}

/// How long until the next renewal, if the answer to one takes so long, in milliseconds.
fn pause_after(took: i64) -> i64 {
    let mut world = world(8, 1);
    world.seconds(40);
    let now = world.node_input(0);
    let node = &mut world.servers[0].node;
    let at = BootNanos::new(now.boot.get() + 60_000_000_000);
    let Next::Send(request) = node.next(&NodeInput { boot: at, ..now }) else {
        panic!("no renewal is due after a minute");
    };
    let reply = world.answer(0, 0, &request);
    let later = BootNanos::new(at.get() + took * 1_000_000);
    let then = NodeInput { boot: later, ..now };
    let node = &mut world.servers[0].node;
    node.on_reply(&reply, &then);
    match node.next(&then) {
        Next::Sleep(pause) => pause.millis().get() + took,
        other => panic!("{other:?}"),
    }
}

/// A storm on a registry ends sooner if those whom it answers late come back later.
#[test]
fn a_slow_registry_is_asked_less_often() {
    let [quick, slow, slowest] = [0, 500, 5000].map(pause_after);
    assert!((8_000..=12_000).contains(&quick), "{quick}");
    assert!((12_000..=18_000).contains(&slow), "{slow}");
    assert!((16_000..=24_000).contains(&slowest), "{slowest}");
}

/// What the lease is for: no contact, and IDs for two minutes.
#[test]
fn an_outage_within_the_lease_stops_nobody() {
    let mut world = world(8, 1);
    world.seconds(40);
    for _ in 0..25 {
        world.pass(STEP);
        assert!(world.issue(0));
    }
    for _ in 0..8 {
        world.pass(STEP);
        world.issue(0);
    }
    assert!(!world.issue(0));
    world.seconds(3);
    assert_eq!(world.grants, 1);
    world.check();
}

#[test]
fn patience_and_hold_say_who_takes_over() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(40);
    world.freeze(0);
    world.start(1);
    let begin = world.now;
    while held(&world, 1).is_none() {
        world.second();
        assert!(world.now - begin < 80 * SECOND, "{}", world.log.join("\n"));
    }
    let waited = (world.now - begin) / SECOND;
    assert!(waited >= 50, "{waited}");
    world.wake(0);
    world.seconds(40);
    world.check();
}

/// The registry heard nobody for longer than patience and hold. The first one that reaches it
/// gets no worker ID of those that live.
#[test]
fn nobody_is_missed_while_nobody_was_heard() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(40);
    for first in [1, 0] {
        world.start(1);
        for _ in 0..25 {
            world.pass(STEP);
            world.issue(0);
        }
        for server in [first, 1 - first] {
            let number = world.servers[server].node.latest_number();
            world.give_up(server, number);
            world.pass(2 * SECOND);
            world.contact(server);
            world.contact(server);
        }
        world.seconds(30);
        assert_eq!((world.grants, held(&world, 0)), (1, Some(0)));
        world.check();
    }
}

/// A clock that has gone on and back makes nobody wait for it.
#[test]
fn a_gap_of_a_wrong_clock_ends() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(10);
    world.newest().off = 7200 * SECOND;
    world.seconds(3);
    world.newest().off = 0;
    down(&mut world, 0);
    world.start(1);
    assert!(world.until_issues(1, 25).is_some());
}

#[test]
fn a_crash_takes_an_id_whose_bound_has_passed() {
    let mut world = world(8, 1);
    world.seconds(60);
    world.crash(0, true);
    assert!(floor_of_next(&mut world, 0) <= 0);
    assert_eq!(held(&world, 0), Some(1));
    // Its own one, when the bound has passed.
    world.seconds(60);
    world.crash(0, true);
    assert!(floor_of_next(&mut world, 0) <= 0);
    assert_eq!(held(&world, 0), Some(0));
    world.check();
}

/// A reserve remains for servers that have none: a quarter of the pool, or one.
#[test]
fn a_crash_leaves_a_reserve() {
    for (pool, taken) in [(2, 1), (3, 2), (4, 3), (12, 3)] {
        let mut world = world(pool, 1);
        world.seconds(60);
        let mut ids = std::collections::BTreeSet::from([held(&world, 0)]);
        for _ in 0..8 {
            world.crash(0, true);
            world.second();
            ids.insert(held(&world, 0));
            world.seconds(2);
        }
        // Of twelve, more would do: but an identity has three whose bounds have not passed.
        assert_eq!(ids.len(), taken, "{pool}: {ids:?}");
        world.check();
    }
}

/// Of those that lead, the one that leads least, though the other one has been free for longer.
#[test]
fn the_least_bound_comes_first() {
    the_one_that_leads_least_is_taken();
    super::lease_etcd::in_etcd(the_one_that_leads_least_is_taken);
}

fn the_one_that_leads_least_is_taken() {
    for stops in [true, false] {
        // The last one lives, so that the registry hears somebody.
        let mut world = world(3, 4);
        down(&mut world, 2);
        (world.servers[0].off, world.servers[1].off) = (3000 * SECOND, 400 * SECOND);
        world.seconds(20);
        for server in [0, 1] {
            match stops {
                true => world.stop(server),
                false => down(&mut world, server),
            }
            world.second();
        }
        world.seconds(20);
        world.start(2);
        world.second();
        assert_eq!(held(&world, 2), Some(1), "{}", world.log.join("\n"));
        let lead = (world.row(1).floor.get() - world.now) / SECOND;
        assert!((200..500).contains(&lead), "{lead}");
        world.check();
    }
}

/// The claim of a worker ID is taken over by who has no other one.
#[test]
fn claims_keep_short_leases() {
    let mut world = world(8, 1);
    world.servers[0].fixed = WorkerId::new(3);
    world.crash(0, true);
    world.seconds(60);
    assert!(world.row(3).claimed && ahead(&world, 3) <= 30);
}

/// Two servers on one data directory: each has a worker ID of its own.
#[test]
fn an_earlier_incarnation_keeps_its_worker_id() {
    let mut world = world(8, 1);
    world.seconds(60);
    let copy = world.clone_disk(0, true);
    world.seconds(30);
    let (earlier, later) = (held(&world, 0), held(&world, copy));
    assert!(earlier.is_some() && later.is_some() && earlier != later);
    let issues = |server: usize| world.servers[server].issued_at > Some(world.now - 10 * SECOND);
    assert!(issues(0) && issues(copy));
    world.check();
}

/// A crash loop leads by no more than what a lease of its age gets.
#[test]
fn a_crash_loop_does_not_lead_by_a_lease() {
    for (pool, life) in [(1, 1), (1, 5), (1, 9), (1, 40), (10, 5)] {
        let plan = Plan {
            pool,
            servers: 1,
            lease: 640 * SECOND,
            ..Plan::default()
        };
        let mut world = World::new(plan).tell();
        world.newest().disk.1.pool.unused = true;
        for second in 1..=900 {
            world.second();
            if second % life == 0 {
                world.crash(0, true);
                world.log.clear();
            }
            let lead = world.lead();
            assert!(lead <= 33.max(life + 3), "life {life}, {second}: {lead}");
        }
        world.check();
    }
}

/// Renewals change neither the state nor what others have.
#[test]
fn a_renewal_changes_its_row_only() {
    let mut world = world(8, 3);
    world.seconds(2);
    let state = world.newest().disk.0.clone();
    for _ in 0..60 {
        let mut rows = world.newest().disk.1.rows.clone();
        world.pass(STEP);
        if world.contact(1) {
            let worker = WorkerId::new(1).unwrap();
            let now = &world.newest().disk.1.rows;
            rows.insert(worker, now[&worker].clone());
            assert_eq!(rows, *now);
        }
        world.contact(0);
        world.contact(2);
        let now = world.newest().disk.0.clone();
        assert_eq!(
            (now.serial, now.gap, now.loss),
            (state.serial, state.gap, None)
        );
        assert!(world.now - now.top.get() <= 300 * SECOND + STEP);
    }
}

/// A renewal that is lost shows by the row, since the node tells the bound that it has.
#[test]
fn a_lost_renewal_shows_a_loss() {
    let mut world = world(8, 2);
    world.seconds(40);
    let bound = world.row(0).bound;
    world.replace(1, How::Backup);
    let lost = (0..2)
        .find(|row| world.registries[0].rows()[&WorkerId::new(*row).unwrap()] != *world.row(*row));
    assert!(lost.is_some() && bound >= world.row(0).bound);
    world.seconds(5);
    assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Serial);
}

/// The registry comes back as it was long before, when all leases that it knows have ended, and one
/// server had none. Servers that live tell what they have got since: they keep their worker IDs
/// without a pause, and lead by no more than before.
#[test]
fn servers_that_live_continue_after_a_restore() {
    restored();
    super::lease_etcd::in_etcd(restored);
}

fn restored() {
    for how in [How::Promotion, How::Backup, How::Snapshot] {
        let mut world = world(9, 3);
        down(&mut world, 2);
        world.seconds(40);
        let disk = world.newest().disk.clone();
        world.start(2);
        world.seconds(500);
        let had = [0, 1, 2].map(|server| held(&world, server));
        world.replace(0, how);
        world.newest().disk = disk;
        for _ in 0..200 {
            world.second();
            for server in &world.servers {
                assert!(server.issued_at > Some(world.now - STEP), "{how:?}");
            }
            assert!((0..2).all(|worker| ahead(&world, worker) <= 120 + STEP / SECOND));
        }
        assert_eq!([0, 1, 2].map(|server| held(&world, server)), had);
        assert!(world.newest().disk.0.loss.is_some());
        world.check();
    }
}

/// A server that has gone wrong moves its own bound by a day at most.
#[test]
fn a_wrong_bound_is_not_believed_for_more_than_a_day() {
    wrong_bound();
    super::lease_etcd::in_etcd(wrong_bound);
}

fn wrong_bound() {
    let mut world = world(8, 1);
    world.seconds(40);
    world.pass(40 * SECOND);
    let mut request = world.ask(0).unwrap();
    let RequestKind::Renew { bound, .. } = &mut request.ask else {
        panic!("{request:?}")
    };
    *bound = UnixMillis::new(bound.get() + 365 * DAY.get());
    let reply = world.answer(0, 0, &request);
    assert!(matches!(reply.answer, Answer::Renewed { .. }));
    assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Serial);
    let ahead = world.row(0).bound.get() - world.now;
    assert!(
        ahead > DAY.get() / 2 && ahead <= DAY.get() + 10 * SECOND,
        "{ahead}"
    );
}

/// A clean stop after a renewal that was lost keeps what was proven.
#[test]
fn a_bound_that_is_proven_is_stored() {
    let mut world = world(8, 1);
    world.seconds(40);
    let bound = world.row(0).bound;
    let lost = world.changes_since(|rows| rows.values().any(|row| row.bound < bound));
    world.replace(lost, How::Promotion);
    assert!(world.row(0).bound < bound);
    // Its clock is set back: the next bound would be an earlier one.
    world.servers[0].off = -100 * SECOND;
    world.seconds(4);
    assert!(world.row(0).bound >= bound, "{}", world.log.join("\n"));
}

/// What a system has reached is known though another one has the row.
#[test]
fn what_a_system_has_reached_is_kept() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = 3000 * SECOND;
    world.seconds(5);
    let reached = world.row(0).bound;
    down(&mut world, 0);
    world.servers[0].off = 0;
    world.start(1);
    world.seconds(30);
    assert_eq!(world.row(0).holder.identity, world.servers[1].identity);
    world.stop(1);
    world.start(0);
    assert!(super::lease_claims::reached(&mut world, 0) >= reached);
}

/// Who takes any ID of a pool that nobody used needs no lead; a claim does, since the server may
/// have had its number before, and so does a pool of which that is not known.
#[test]
fn the_first_floor_of_a_pool() {
    for (unused, fixed, floor) in [
        (true, None, 0),
        (true, WorkerId::new(0), 80),
        (false, WorkerId::new(0), 80),
        (false, None, 120 + 32 + 80),
    ] {
        let mut world = world(1, 1);
        let table = &mut world.newest().disk.1;
        table.pool.unused = unused;
        table.pool.made = crate::lease::RegistryMillis::new(EPOCH);
        world.servers[0].fixed = fixed;
        world.crash(0, true);
        world.pass(SECOND);
        let request = world.ask(0).unwrap();
        let Answer::Granted(grant) = world.answer(0, 0, &request).answer else {
            panic!()
        };
        let floor = UnixMillis::new(EPOCH + floor * SECOND);
        assert_eq!((grant.floor, grant.because), (floor, FloorCause::NewPool));
    }
}

/// A loss that took little time: who has the worker ID of nobody waits for patience and hold, and
/// leads by little. A row that was held rests, since its holder may have a long lease.
#[test]
fn a_row_that_was_held_rests_after_a_loss() {
    let mut world = world(2, 3);
    down(&mut world, 1);
    down(&mut world, 2);
    world.seconds(60);
    world.freeze(0);
    world.replace(1, How::Promotion);
    let begin = world.now;
    world.start(1);
    while held(&world, 1).is_none() {
        world.second();
        assert!(world.now - begin < 90 * SECOND, "{}", world.log.join("\n"));
    }
    assert!(world.now - begin >= 60 * SECOND);
    assert_eq!(held(&world, 1), Some(1));
    let lead = (world.row(1).floor.get() - begin) / SECOND;
    // It heard somebody a few seconds before.
    assert!(lead <= 60 + 32 + 80 + 32, "{lead}");
    // The other row: not before its long floor has passed, which is no lead then.
    world.start(2);
    while held(&world, 2).is_none() {
        world.second();
        assert!(world.now - begin < 300 * SECOND, "{}", world.log.join("\n"));
    }
    assert!(world.now - begin >= (120 + 32 + 80) * SECOND);
    assert!(world.row(0).floor.get() <= world.now);
    assert!(world.row(0).floor.get() >= begin + (120 + 32 + 80 + 32) * SECOND);
    world.wake(0);
    world.seconds(40);
    world.check();
}

/// The registry's clock was 50 minutes ahead once, and it has lost something since. New leases lead
/// by that until two holders have renewed with clocks that agree with the registry's of now.
#[test]
fn a_clock_that_was_wrong_once_counts_no_longer_than_it_must() {
    for holders in [1, 2] {
        let mut world = world(4, 3);
        (holders..3).for_each(|server| down(&mut world, server));
        world.newest().off = 3000 * SECOND;
        world.seconds(5);
        world.newest().off = 0;
        world.seconds(40);
        world.replace(1, How::Promotion);
        world.seconds(60);
        world.start(2);
        world.seconds(60);
        let lead = match held(&world, 2) {
            Some(worker) => {
                (world.row(i32::try_from(worker).unwrap()).floor.get() - world.now) / SECOND
            }
            None => 9999,
        };
        assert_eq!(lead > 300, holders == 1, "{lead}\n{}", world.log.join("\n"));
        world.check();
    }
}

/// A registry whose clock was ahead before the loss cannot tell how much it has lost.
#[test]
fn a_clock_that_goes_back_at_a_loss_does_not_measure_it() {
    let mut world = world(8, 1);
    world.seconds(60);
    world.newest().off = 100 * SECOND;
    world.seconds(9);
    world.replace(1, How::Promotion);
    world.newest().off = 0;
    world.seconds(4);
    let loss = world.newest().disk.0.loss.unwrap();
    assert!(loss.lost > crate::id::Millis::new(120 * SECOND), "{loss:?}");
}

/// A server whose clock was 50 minutes ahead for a while returns what it does not use of its bound,
/// so that the next holder does not begin there. One that leads by what it has issued keeps it.
#[test]
fn a_lead_that_is_not_used_is_returned() {
    for issues in [false, true] {
        let mut world = world(1, 2);
        down(&mut world, 1);
        world.seconds(5);
        world.servers[0].off = 3000 * SECOND;
        for _ in 0..4 {
            world.pass(STEP);
            world.contact(0);
            if issues {
                world.issue(0);
            }
        }
        world.servers[0].off = 0;
        assert!(world.lead() > 2900);
        world.seconds(30);
        assert_eq!(world.lead() > 2000, issues, "{}", world.log.join("\n"));
        let grants = world.grants;
        world.seconds(60);
        assert_eq!(world.grants, grants);
        world.check();
    }
}

/// The holder borrows and has a renewal that is lost: its bound lies a lease ahead of the loss.
#[test]
fn a_lost_renewal_of_an_old_lease_is_below_the_next_floor() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(60);
    world.advance(0, 79 * SECOND);
    world.replace(2, How::Promotion);
    let loss = world.now;
    world.freeze(0);
    world.start(1);
    while held(&world, 1).is_none() {
        world.second();
        assert!(world.now - loss < 400 * SECOND, "{}", world.log.join("\n"));
    }
    world.wake(0);
    for _ in 0..100 {
        world.issue(0);
        world.pass(SECOND);
        world.issue(1);
    }
    world.seconds(10);
    world.check();
}

/// Nor does its holder of before lead by that, if it starts anew.
#[test]
fn a_restart_after_a_loss_does_not_lead_by_a_lease() {
    let mut world = world(2, 1);
    world.seconds(60);
    world.replace(1, How::Promotion);
    world.crash(0, true);
    let begin = world.now;
    while held(&world, 0).is_none() {
        world.second();
        assert!(world.now - begin < 90 * SECOND, "{}", world.log.join("\n"));
    }
    assert_eq!(held(&world, 0), Some(1));
}

/// Nobody was heard for 70 s before the loss: as much may be lost, and a hold more, by which the
/// clocks that measure it may be slow.
#[test]
fn what_may_be_lost_is_measured() {
    let mut world = world(2, 2);
    down(&mut world, 1);
    world.seconds(10);
    world.freeze(0);
    world.pass(70 * SECOND);
    world.replace(0, How::Promotion);
    let begin = world.now;
    world.start(1);
    // Nobody gets a worker ID before who had a lost grant has none any more.
    world.seconds((70 + 2 * 32) * SECOND / STEP);
    assert_eq!(held(&world, 1), None);
    world.seconds(17);
    let floor = (world.row(1).floor.get() - begin) / SECOND;
    assert!(floor >= 70 + 32 + 32 + 80 + 32, "{floor}");
    world.check();
}

/// The holder leads by a clock that is wrong, and its renewals are lost, but not its grant. It cannot
/// reach the registry that has lost them, and issues up to its bound. That has grown by the time that
/// is lost, and the lease has become longer, too.
#[test]
fn a_holder_far_ahead_whose_renewals_are_lost() {
    for off in [100, 160, 200, 3000] {
        for lost in [8, 60, 100, 200] {
            let mut world = world(1, 2);
            down(&mut world, 1);
            world.servers[0].off = off * SECOND;
            world.seconds(2);
            world.newest().copies.clear();
            world.seconds(lost * SECOND / STEP);
            let (_, _, bound) = world.servers[0].stamp().unwrap();
            world.replace(60, How::Promotion);
            world.start(1);
            for _ in 0..400 {
                world.pass(SECOND);
                world.issue(0);
                world.contact(1);
                world.issue(1);
            }
            let row = world.row(0);
            assert_eq!(row.holder.identity, world.servers[1].identity);
            assert!(row.floor.get() >= bound, "{off} {lost}");
            // Nor is it higher than twice what is lost, a lease and the margins.
            let most = 2 * lost + 120 + 2 * 32 + 80 + 32;
            assert!(row.floor.get() <= bound + most * SECOND, "{off} {lost}");
            world.check();
        }
    }
}

/// The same, but the holder was silent for long, and what is lost is that it came back: its clock has
/// come as far as that. Or it was advanced in what is lost.
#[test]
fn a_holder_far_ahead_that_was_silent_or_advanced() {
    for off in [70, 79, 500] {
        for (silent, advanced) in [(0, 79), (100, 0), (400, 0), (400, 79)] {
            let mut world = world(2, 3);
            down(&mut world, 2);
            world.servers[0].off = off * SECOND;
            world.seconds(8);
            world.freeze(0);
            world.seconds(silent * SECOND / STEP);
            world.wake(0);
            world.newest().copies.clear();
            world.seconds(2);
            if advanced > 0 {
                world.advance(0, advanced * SECOND);
            }
            world.second();
            let (_, worker, bound) = world.servers[0].stamp().unwrap();
            world.replace(60, How::Promotion);
            down(&mut world, 1);
            world.start(2);
            world.servers[2].fixed = Some(worker);
            world.crash(2, true);
            for _ in 0..1200 {
                world.pass(SECOND);
                world.issue(0);
                world.contact(2);
                world.issue(2);
            }
            let row = world.row(i32::try_from(worker.get()).unwrap());
            assert_eq!(row.holder.identity, world.servers[2].identity);
            world.check();
            assert!(row.floor.get() >= bound, "{off} {silent} {advanced}");
        }
    }
}

/// A server that has got the only worker ID two minutes before the loss and leads as far as it may;
/// another one of the pool has been in use before, so the registry knows of that time, and of no
/// later one. It has lost the grant.
fn a_grant_of_two_minutes_is_lost() -> World {
    let mut world = world(2, 3);
    down(&mut world, 0);
    down(&mut world, 2);
    world.seconds(2);
    world.start(0);
    let granted = world.newest().copies.len();
    world.seconds(30);
    for _ in 0..4 {
        world.pass(STEP);
        world.advance(0, 79 * SECOND);
        world.contact(1);
    }
    assert_eq!(held(&world, 0), Some(1));
    let lost = world.newest().copies.len() - granted;
    assert!(lost < 60);
    world.replace(lost, How::Promotion);
    assert_eq!(world.newest().rows().len(), 1);
    down(&mut world, 1);
    world
}

/// The next server takes the worker ID that it does not know of, and both issue.
fn nothing_is_issued_twice(mut world: World) {
    world.servers[2].fixed = WorkerId::new(1);
    world.crash(2, true);
    for _ in 0..500 {
        world.pass(SECOND);
        world.issue(0);
        world.contact(2);
        world.issue(2);
    }
    assert_eq!(world.row(1).holder.identity, world.servers[2].identity);
    assert!(world.servers[2].issued_at.is_some());
    world.check();
}

/// The promoted registry's clock is slow, so it measures too little. That of who asks tells.
#[test]
fn what_is_lost_is_measured_by_the_clock_of_who_asks_too() {
    let mut world = a_grant_of_two_minutes_is_lost();
    world.newest().off = -140 * SECOND;
    nothing_is_issued_twice(world);
}

/// The second loss takes nothing. What the first one has taken is in use still.
#[test]
fn a_second_loss_does_not_hide_the_first_one() {
    for after in [4, 60, 200] {
        let mut world = a_grant_of_two_minutes_is_lost();
        let newest = world.registries.len() - 1;
        // Somebody asks, so the loss is noticed.
        world.pass(SECOND);
        world.start(1);
        world.contact(1);
        assert!(world.registries[newest].disk.0.loss.is_some());
        for _ in 0..after {
            world.pass(SECOND);
            world.issue(0);
            world.contact(1);
        }
        let at = world.newest().disk.0.loss.unwrap().at;
        world.replace(0, How::Promotion);
        for _ in 0..15 {
            world.pass(SECOND);
            world.issue(0);
            world.contact(1);
        }
        assert_ne!(world.newest().disk.0.loss.unwrap().at, at);
        let Some(Loss { lost, .. }) = world.newest().disk.0.loss else {
            panic!()
        };
        // When a lease and a hold have passed, it is over.
        let is_over = lost < crate::id::Millis::new(60 * SECOND);
        assert_eq!(is_over, after == 200, "{lost:?}");
        down(&mut world, 1);
        nothing_is_issued_twice(world);
    }
}

/// How long a new server waits for its first worker ID, in seconds.
fn waits(world: &mut World, server: usize) -> i64 {
    world.crash(server, true);
    world.reboot(server);
    let begin = world.now;
    while held(world, server).is_none() {
        world.second();
        assert!(world.now - begin < 200 * SECOND, "{}", world.log.join("\n"));
    }
    (world.now - begin) / SECOND
}

/// Two promotions that lose nothing, one soon after the grace period of the other.
#[test]
fn a_second_switchover_costs_what_one_costs() {
    let mut world = world(8, 2);
    world.seconds(10);
    world.replace(0, How::Promotion);
    let first = waits(&mut world, 1);
    world.seconds(2);
    world.replace(0, How::Promotion);
    assert_eq!(waits(&mut world, 1), first);
    // Within the grace period, the losses are one.
    world.replace(0, How::Promotion);
    world.second();
    let at = world.now;
    world.seconds(5);
    world.replace(0, How::Promotion);
    world.second();
    let lost = world.newest().disk.0.loss.unwrap().lost.get();
    assert!(lost >= world.now - at, "{lost}");
    world.check();
}

/// A grant that leads by what a loss adds is lost by a second loss, which takes little itself.
#[test]
fn a_second_loss_knows_how_far_grants_led_since_the_first_one() {
    let mut world = world(2, 3);
    down(&mut world, 1);
    down(&mut world, 2);
    world.seconds(10);
    world.replace(1, How::Promotion);
    assert!(waits(&mut world, 0) >= 50);
    assert_eq!(held(&world, 0), Some(1));
    // Renewals of it are lost, too.
    world.seconds(5);
    let lost = world.changes_since(|rows| rows.len() == 1);
    world.replace(lost, How::Promotion);
    nothing_is_issued_twice(world);
}

/// The same within seconds: an administrator ends both grace periods.
#[test]
fn grace_periods_that_are_ended_leave_no_id_to_two_servers() {
    let mut world = world(2, 2);
    down(&mut world, 1);
    world.seconds(10);
    let end = |world: &mut World| {
        world.second();
        let now = world.now;
        let registry = world.newest();
        let input = registry.registry_input(now);
        registry.disk.0.end_grace(&input);
        world.seconds(2);
    };
    world.replace(1, How::Promotion);
    world.reboot(0);
    end(&mut world);
    assert_eq!(held(&world, 0), Some(1));
    let lost = world.changes_since(|rows| rows.len() == 1);
    world.replace(lost, How::Promotion);
    world.servers[1].fixed = WorkerId::new(1);
    world.crash(1, true);
    world.freeze(0);
    end(&mut world);
    world.wake(0);
    for _ in 0..300 {
        world.issue(0);
        world.pass(SECOND);
        world.contact(1);
        world.issue(1);
    }
    assert_eq!(held(&world, 1), Some(1));
    world.check();
}

/// Who leads by what a loss adds, or a new pool, has as long without the registry as others have.
#[test]
fn the_first_bound_after_a_loss_is_past_the_floor() {
    let mut world = world(2, 1);
    world.seconds(10);
    world.replace(1, How::Promotion);
    waits(&mut world, 0);
    let row = world.row(1);
    let first = row.bound.since(row.floor).get();
    assert!(
        row.floor.get() > world.now + 32 * SECOND && first >= 30 * SECOND,
        "{row:?}"
    );
    // A crash hands no more than that on.
    let (mut bound, mut most) = (row.bound.get(), 0);
    for _ in 0..8 {
        world.crash(0, true);
        world.second();
        let row = world.row(1);
        most = most.max(row.bound.get() - bound);
        bound = row.bound.get();
    }
    assert!(most <= STEP, "{most}");
    world.check();
}

/// A registry's clock that was wrong once makes no pool begin there that nobody has used.
#[test]
fn a_new_pool_begins_by_the_clock() {
    let mut world = world(1, 1);
    world.second();
    let now = RegistryMillis::new(world.now);
    let mut state = world.newest().disk.0.clone();
    state.top = now.plus(DAY);
    assert_eq!(state.making(true, now), now);
    assert_eq!(state.making(false, now), state.top);
}

/// A pool that others have used before leads by more than a loss: so does a claim after it.
#[test]
fn a_claim_after_a_loss_may_be_of_a_worker_id_that_was_granted() {
    for steps in [2, 8] {
        let mut world = world(2, 3);
        down(&mut world, 0);
        down(&mut world, 2);
        let made = RegistryMillis::new(world.now);
        let pool = &mut world.newest().disk.1.pool;
        (pool.unused, pool.made) = (false, made);
        world.second();
        world.start(0);
        let granted = world.newest().copies.len();
        world.seconds(steps);
        assert_eq!(held(&world, 0), Some(1));
        let lost = world.newest().copies.len() - granted;
        world.replace(lost, How::Promotion);
        assert_eq!(world.newest().rows().len(), 1);
        down(&mut world, 1);
        nothing_is_issued_twice(world);
    }
}

/// A server whose floor is 50 minutes ahead of its clock, since that of the one before it was.
fn a_floor_is_far_ahead() -> World {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = 3000 * SECOND;
    world.second();
    world.stop(0);
    world.start(1);
    world.contact(1);
    assert_eq!(held(&world, 1), Some(0));
    assert!(world.row(0).floor.get() > world.now + 2900 * SECOND);
    world.newest().copies.clear();
    world
}

/// A grant that begins far ahead is lost, and has come as far as the line. The grace period ends,
/// and a second loss takes little: what the first one has taken counts for the line.
#[test]
fn a_lead_that_an_earlier_loss_has_taken_counts() {
    let mut world = world(1, 3);
    down(&mut world, 1);
    down(&mut world, 2);
    world.servers[0].off = 3000 * SECOND;
    world.second();
    world.stop(0);
    let released = world.newest().disk.clone();
    world.start(1);
    for _ in 0..21 {
        world.pass(STEP);
        for _ in 0..60 {
            world.contact(1);
            world.issue(1);
        }
    }
    assert_eq!(held(&world, 1), Some(0));
    let bound = world.row(0).bound;
    let again = |world: &mut World, disk: Disk| {
        world.replace(0, How::Promotion);
        world.newest().disk = disk;
    };
    again(&mut world, released);
    let led = bound.since(world.row(0).bound).get();
    assert!(led > 70 * SECOND, "{led}");
    world.servers[2].fixed = WorkerId::new(0);
    world.crash(2, true);
    let loss = loop {
        world.pass(SECOND);
        world.contact(2);
        let state = &world.newest().disk.0;
        let Some(loss) = state.loss else { continue };
        let (now, state) = (
            RegistryMillis::new(world.now),
            world.newest().disk.0.clone(),
        );
        let pool = world.newest().disk.1.pool.clone();
        let left = state.grace(&pool, now).map(|grace| grace.1);
        if left < Some(Millis::new(2 * SECOND)) {
            break loss;
        }
    };
    world.pass(3 * SECOND);
    let disk = world.newest().disk.clone();
    again(&mut world, disk);
    for _ in 0..300 {
        world.pass(SECOND);
        world.contact(2);
        world.issue(2);
    }
    let second = world.newest().disk.0.loss.unwrap();
    assert!(second.lost < loss.lost && second.lost_in_all > loss.lost);
    assert_eq!(held(&world, 2), Some(0));
    assert!(world.row(0).floor >= bound, "{:?} {bound:?}", world.row(0));
    world.check();
}

/// It has issued little for long, and catches up in what is lost.
#[test]
fn who_leads_by_its_floor_goes_as_far_as_the_line() {
    let mut world = a_floor_is_far_ahead();
    for _ in 0..50 {
        world.pass(STEP);
        world.contact(1);
    }
    world.newest().copies.clear();
    for _ in 0..4 {
        world.pass(STEP);
        for _ in 0..100 {
            world.issue(1);
            world.contact(1);
        }
    }
    let (_, _, bound) = world.servers[1].stamp().unwrap();
    world.replace(60, How::Promotion);
    assert!(bound > world.row(0).bound.get() + 80 * SECOND);
    world.servers[0].off = 0;
    world.start(0);
    world.servers[0].fixed = WorkerId::new(0);
    world.crash(0, true);
    for _ in 0..3800 {
        world.pass(SECOND);
        world.issue(1);
        world.contact(0);
        world.issue(0);
    }
    assert_eq!(world.row(0).holder.identity, world.servers[0].identity);
    assert!(world.row(0).floor.get() >= bound);
    world.check();
}

/// It crashes, and the clock of the promoted registry is slow: the line is a hold higher. Where the
/// server's own mark is lost, too, nothing else keeps it from issuing twice.
#[test]
fn a_slow_registry_does_not_lower_the_line() {
    let mut world = a_floor_is_far_ahead();
    world.seconds(5);
    world.replace(60, How::Promotion);
    world.newest().off = -31 * SECOND;
    world.crash(1, true);
    world.servers[1].mark = 0;
    for _ in 0..10 {
        world.pass(SECOND);
        world.contact(1);
        world.issue(1);
    }
    assert_eq!(world.row(0).counter, 3, "{}", world.log.join("\n"));
    world.check();
}

/// A row that was returned before the loss does not rest, and its holder's wrong clock is over.
#[test]
fn a_row_that_was_returned_is_granted_soon_after_a_loss() {
    for (off, silent) in [(0, 0), (300, 400)] {
        let mut world = world(2, 2);
        world.servers[0].off = off * SECOND;
        world.seconds(60);
        world.stop(0);
        world.seconds(silent * SECOND / STEP);
        world.replace(0, How::Promotion);
        let begin = world.now;
        world.servers[0].off = 0;
        world.start(0);
        world.servers[0].fixed = WorkerId::new(0);
        world.crash(0, true);
        world.seconds(25);
        assert_eq!(held(&world, 0), Some(0), "{}", world.log.join("\n"));
        let floor = (world.row(0).floor.get() - begin) / SECOND;
        assert!(floor <= 60 + 32 + 80 + 32, "{floor}");
        world.check();
    }
}

/// A row rests for as long as its floor is ahead, though that is longer than others rest.
#[test]
fn a_row_that_is_far_ahead_rests_for_longer() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = 3000 * SECOND;
    world.seconds(60);
    world.freeze(0);
    world.replace(1, How::Promotion);
    world.start(1);
    world.seconds(200);
    assert_eq!(held(&world, 1), None);
    world.seconds(700);
    assert_eq!(held(&world, 1), Some(0));
    world.check();
}

/// Nothing of a lease is lost that was renewed since the loss.
#[test]
fn a_row_of_the_present_era_adds_no_margin() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(10);
    world.replace(0, How::Promotion);
    world.seconds(60);
    world.servers[0].off = 3000 * SECOND;
    world.seconds(6);
    world.servers[0].off = 0;
    down(&mut world, 0);
    let bound = world.row(0).bound;
    world.start(1);
    world.seconds(30);
    assert_eq!(held(&world, 1), Some(0));
    assert_eq!(world.row(0).floor, bound);
    world.check();
}

/// A restart in the grace period gets its worker ID, and the reply is lost. It asks once more.
#[test]
fn a_grant_in_the_grace_period_is_asked_for_twice() {
    let mut world = world(1, 1);
    world.seconds(10);
    world.replace(0, How::Promotion);
    world.crash(0, true);
    let grants = world.grants;
    while world.grants == grants {
        world.pass(SECOND);
        let request = world.ask(0).unwrap();
        world.answer(1, 0, &request);
        world.give_up(0, request.number);
    }
    for _ in 0..5 {
        world.pass(SECOND);
        world.contact(0);
    }
    let state = &world.newest().disk.0;
    let until = state.loss.unwrap().at.get() + 60 * SECOND;
    assert!(world.now < until);
    assert_eq!(held(&world, 0), Some(0), "{}", world.log.join("\n"));
    world.check();
}

/// Of its own worker IDs that lead, a server takes the one that leads least, not the one that it
/// had last; and of those of nobody, one that was never granted if that leads less, and else not.
#[test]
fn the_least_lead_is_taken_of_all() {
    let mut world = world(3, 1);
    world.servers[0].off = 400 * SECOND;
    world.seconds(4);
    world.crash(0, true);
    world.servers[0].off = 100 * SECOND;
    world.second();
    assert_eq!(held(&world, 0), Some(1));
    world.servers[0].off = 3000 * SECOND;
    world.seconds(4);
    world.crash(0, true);
    world.servers[0].off = 0;
    world.second();
    assert_eq!(held(&world, 0), Some(0), "{}", world.log.join("\n"));
    world.check();
    for (off, taken) in [(100, 0), (3000, 1)] {
        let mut world = self::world(2, 2);
        down(&mut world, 1);
        let made = RegistryMillis::new(world.now);
        let pool = &mut world.newest().disk.1.pool;
        (pool.unused, pool.made) = (false, made);
        world.servers[0].fixed = WorkerId::new(0);
        world.servers[0].off = off * SECOND;
        world.crash(0, true);
        world.seconds(2);
        world.stop(0);
        world.start(1);
        world.second();
        assert_eq!(held(&world, 1), Some(taken), "{}", world.log.join("\n"));
        world.check();
    }
}

/// A young lease, of which little is lost, puts nobody ahead by a whole one.
#[test]
fn a_small_loss_adds_no_lease_to_a_young_one() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.servers[0].off = 79 * SECOND;
    world.seconds(4);
    let begin = world.now;
    world.freeze(0);
    world.replace(0, How::Promotion);
    world.start(1);
    world.seconds(80);
    assert_eq!(world.row(0).counter, 2, "{}", world.log.join("\n"));
    let floor = (world.row(0).floor.get() - begin) / SECOND;
    // The clock, what is lost, and the margins.
    assert!((250..=280).contains(&floor), "{floor}");
    world.wake(0);
    world.seconds(40);
    world.check();
}

/// Two losses to one snapshot, with a grant in between that neither has.
#[test]
fn two_losses_to_one_snapshot() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(2);
    let changes = world.registries[0].copies.len();
    world.crash(0, true);
    world.replace(changes, How::Snapshot);
    world.seconds(3);
    let changes = world.newest().copies.len();
    world.replace(changes, How::Snapshot);
    world.freeze(0);
    world.start(1);
    world.seconds(80);
    assert!(world.servers[1].issued_at.is_some());
    world.wake(0);
    for _ in 0..100 {
        world.issue(0);
        world.pass(SECOND);
        world.issue(1);
    }
    world.check();
}

/// A message of before the loss is no sign that its sender has lived since: its successor's grant
/// may be what is lost.
#[test]
fn a_late_renewal_does_not_vouch_for_its_sender() {
    let mut world = world(1, 2);
    down(&mut world, 1);
    world.seconds(60);
    let late = loop {
        world.pass(STEP);
        if let Some(request) = world.ask(0) {
            break request;
        }
    };
    world.give_up(0, late.number);
    world.seconds(3);
    world.crash(0, true);
    let changes = world.registries[0].copies.len();
    world.seconds(3);
    let lost = world.registries[0].copies.len() - changes + 3;
    world.freeze(0);
    world.replace(lost, How::Promotion);
    let from = world.registries.len() - 1;
    for _ in 0..2 {
        world.answer(from, 0, &late);
    }
    let era = world.newest().disk.0.era.counter;
    assert_ne!(world.row(0).era, era);
    world.start(1);
    world.seconds(100);
    assert!(
        world.servers[1].issued_at.is_some(),
        "{}",
        world.log.join("\n")
    );
    world.wake(0);
    for _ in 0..150 {
        world.issue(0);
        world.pass(SECOND);
        world.issue(1);
    }
    world.check();
}

/// A copy of a running machine has the numbers of its original. A grant that was not renewed yet is
/// not repeated to it.
#[test]
fn a_grant_is_not_repeated_to_a_copy() {
    for more in 0..3 {
        let plan = Plan {
            pool: 1,
            lease: 2 * SECOND,
            hold: 2 * SECOND,
            max_ahead: 3 * SECOND,
            ..Plan::default()
        };
        let mut world = World::new(plan).tell();
        down(&mut world, 1);
        world.second();
        world.pass(SECOND);
        let copy = world.clone_memory(0);
        world.servers[copy].off = 5;
        world.start(1);
        for _ in 0..5 {
            world.pass(SECOND);
            world.contact(1);
        }
        assert_eq!(held(&world, 1), Some(0), "{}", world.log.join("\n"));
        world.stop(1);
        // The copy may have asked more often.
        for _ in 0..more {
            world.ask(copy);
            let number = world.servers[copy].node.latest_number();
            world.give_up(copy, number);
            world.pass(SECOND);
        }
        let from = world.now;
        for server in [0, copy, 0, copy] {
            world.contact(server);
        }
        for _ in 0..8 {
            world.issue(0);
            world.issue(copy);
            world.pass(SECOND);
        }
        let twice = world.log.iter().filter(|line| line.contains("TWICE"));
        let twice: Vec<_> = twice.collect();
        assert!(
            twice.is_empty(),
            "{more} {from} {twice:?}\n{}",
            world.log.join("\n")
        );
    }
}

/// Nobody could reach the registry for longer than patience and hold. Then one holder renews before
/// a server asks that has no worker ID: the other holder has its patience once more.
#[test]
fn a_renewal_after_silence_hides_it_from_nobody() {
    a_holder_is_heard_before_a_newcomer();
    super::lease_etcd::in_etcd(a_holder_is_heard_before_a_newcomer);
}

fn a_holder_is_heard_before_a_newcomer() {
    let mut world = world(2, 3);
    down(&mut world, 2);
    world.seconds(40);
    for _ in 0..25 {
        world.pass(STEP);
        world.issue(0);
        world.issue(1);
    }
    world.start(2);
    assert!(world.contact(0));
    world.pass(SECOND);
    assert!(world.contact(2));
    assert_eq!(world.grants, 2, "{}", world.log.join("\n"));
    world.seconds(30);
    assert_eq!((world.grants, held(&world, 1)), (2, Some(1)));
    world.check();
}

/// Only the first one who renews after a silence has all rows read.
#[test]
fn a_silence_is_noticed_once() {
    let mut world = world(3, 3);
    world.seconds(40);
    world.pass(100 * SECOND);
    let whole = [0, 1, 2].map(|server| {
        world.pass(SECOND);
        assert!(world.contact(server));
        world.newest().whole
    });
    assert_eq!([whole[1] - whole[0], whole[2] - whole[1]], [0, 0]);
    assert!(world.newest().disk.0.gap.is_some());
    world.check();
}

/// A node that waits asks once in a second. That it was the only one who asked in between is no
/// silence of the registry, however short the patience is.
#[test]
fn who_waits_for_a_short_lease_gets_it() {
    let plan = Plan {
        lease: SECOND,
        hold: SECOND,
        ..Plan::default()
    };
    let mut world = World::new(plan).tell();
    down(&mut world, 1);
    for _ in 0..40 {
        world.pass(200);
        world.contact(0);
    }
    down(&mut world, 0);
    world.start(1);
    for _ in 0..20 {
        world.pass(SECOND + 5);
        world.contact(1);
    }
    assert_eq!(held(&world, 1), Some(0), "{}", world.log.join("\n"));
    world.check();
}

/// A renewal is lost, which its holder proves. The registry refuses it for another reason then, and
/// does not forget the bound.
#[test]
fn a_bound_that_was_proven_once_is_kept() {
    let mut world = world(2, 2);
    down(&mut world, 1);
    world.seconds(60);
    let bound = world.row(0).bound;
    let lost = world.changes_since(|rows| rows.values().any(|row| row.bound < bound));
    world.replace(lost, How::Backup);
    assert!(world.row(0).bound < bound);
    // Its clock is two days ahead for a moment.
    world.pass(12 * SECOND);
    world.servers[0].off = 2 * 86_400 * SECOND;
    for _ in 0..3 {
        world.pass(SECOND);
        world.contact(0);
    }
    let RegistryError::TooFarAhead { .. } = why(&world, 0) else {
        panic!("{:?}", why(&world, 0))
    };
    world.servers[0].off = -60 * SECOND;
    for _ in 0..3 {
        world.pass(SECOND);
        world.contact(0);
    }
    assert!(world.row(0).bound >= bound, "{}", world.log.join("\n"));
    world.check();
}

/// All that the registry has stored was deleted, and an administrator makes it anew, and says that
/// servers have used its worker IDs. A newcomer asks first, and the holder's lease is in force still.
#[test]
fn a_registry_that_is_made_by_hand_knows_that_others_have_led() {
    let mut world = world(8, 2);
    world.newest().disk.1.pool.unused = false;
    down(&mut world, 1);
    world.seconds(60);
    world.make_anew();
    world.start(1);
    assert!(world.contact(1));
    for _ in 0..300 {
        world.pass(SECOND);
        for server in 0..2 {
            world.contact(server);
            world.issue(server);
        }
    }
    assert_eq!(held(&world, 1), Some(0));
    assert!(world.servers[1].issued_at.is_some());
    world.check();
}

/// The same, but the registry has stopped meanwhile, until an administrator declares it.
#[test]
fn a_registry_that_has_stopped_takes_no_proof_away() {
    let mut world = world(2, 2);
    down(&mut world, 1);
    world.seconds(60);
    let bound = world.row(0).bound;
    let lost = world.changes_since(|rows| rows.values().any(|row| row.bound < bound));
    world.replace(lost, How::Backup);
    let (now, era) = (world.now, world.newest().disk.0.era);
    let by = Box::new(HolderName::from(&world.row(0).holder));
    world.newest().disk.0.stopped = Some(Stoppage {
        since: RegistryMillis::new(now),
        seen: era,
        by,
    });
    for _ in 0..4 {
        world.pass(STEP);
        world.contact(0);
    }
    let RegistryError::Stopped(_) = why(&world, 0) else {
        panic!("{:?}", why(&world, 0))
    };
    let now = world.now;
    let registry = world.newest();
    let input = registry.registry_input(now);
    registry.disk.0.declare(&input);
    world.servers[0].off = -60 * SECOND;
    for _ in 0..3 {
        world.pass(SECOND);
        world.contact(0);
    }
    assert!(world.row(0).bound >= bound, "{}", world.log.join("\n"));
    world.check();
}

/// The registry's clock is set back by an hour. Each request cuts some of the leases that are too
/// long since then, and who asks waits for none of them.
#[test]
fn leases_that_are_too_long_are_cut() {
    let mut world = world(250, 2);
    down(&mut world, 1);
    world.seconds(4);
    let row = world.row(0).clone();
    for worker in 1..250 {
        let mut row = row.clone();
        row.worker = WorkerId::new(worker).unwrap();
        row.holder.identity.inode = u64::from(row.worker.get()) + 1000;
        world.newest().disk.1.rows.insert(row.worker, row);
    }
    down(&mut world, 0);
    world.newest().off = -3600 * SECOND;
    let mut left = Vec::new();
    world.start(1);
    for _ in 0..4 {
        world.pass(STEP);
        assert!(world.contact(1));
        let now = RegistryMillis::new(world.now - 3600 * SECOND);
        let patience = crate::lease::PATIENCE;
        let rows = world.newest().rows().values();
        let too_long = rows.filter(|row| row.leased_until.since(now) > patience);
        left.push(too_long.count());
    }
    assert_eq!(left, [150, 50, 0, 0]);
    assert!(world.until_issues(1, 20).is_some());
    world.check();
}
