//! What each event costs with the terms of a pool that is made without arguments: the table of
//! docs/worker-ids.md, a line of which each of these tests must find there.

use super::lease::{How, Plan, SECOND, World};
use super::lease_traces::{down, held};
use crate::id::WorkerId;

const PAGE: &str = include_str!("../../../../docs/worker-ids.md");

/// Three servers and eight worker IDs. Two servers have run for ten minutes; the third is down.
fn world() -> World {
    let plan = Plan {
        pool: 8,
        servers: 3,
        lease: 600 * SECOND,
        hold: 30 * SECOND,
        max_ahead: 60 * SECOND,
        ..Plan::default()
    };
    let mut world = World::new(plan).tell();
    world.newest().disk.1.pool.unused = true;
    down(&mut world, 2);
    world.seconds(900);
    world
}

/// For so many seconds, nobody reaches the registry.
fn away(world: &mut World, seconds: i64) {
    for _ in 0..seconds {
        world.pass(SECOND);
        for server in 0..2 {
            if let Some(request) = world.ask(server) {
                world.give_up(server, request.number);
            }
            world.issue(server);
        }
    }
}

/// How long this server waits for its first ID, and how far that is ahead of the clock, in seconds.
/// The others issue in each second, if they are to go on.
fn costs(world: &mut World, server: usize, others: &[usize]) -> (i64, i64) {
    let begin = world.now;
    while world.servers[server].issued_at <= Some(begin) {
        world.second();
        for other in others {
            let issued = world.servers[*other].issued_at;
            assert!(
                issued >= Some(world.now - SECOND),
                "{}",
                world.log.join("\n")
            );
        }
        assert!(world.now - begin < 900 * SECOND, "{}", world.log.join("\n"));
    }
    let worker = i32::try_from(held(world, server).unwrap()).unwrap();
    let ahead = world.row(worker).floor.get() - world.now;
    world.check();
    ((world.now - begin) / SECOND - 1, ahead.max(0) / SECOND)
}

/// A new server after a loss, while the others go on.
fn new(world: &mut World) -> (i64, i64) {
    world.reboot(2);
    costs(world, 2, &[0, 1])
}

fn text(seconds: i64, none: &str) -> String {
    match (seconds / 60, seconds % 60) {
        (0, 0) => none.to_string(),
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// The page has this line.
fn says(event: &str, running: &str, (waits, leads): (i64, i64)) {
    let (waits, leads) = (text(waits, "at once"), text(leads, "at the clock"));
    let line = format!("| {event} | {running} | {waits} | {leads} |");
    assert!(PAGE.contains(&line), "docs/worker-ids.md lacks: {line}");
}

const ON: &str = "go on";

#[test]
fn a_server_is_killed() {
    let mut world = world();
    world.crash(0, true);
    let costs = costs(&mut world, 0, &[1]);
    says("A server is killed, and starts again", ON, costs);
}

#[test]
fn a_claimed_number_moves() {
    let mut world = world();
    for server in [1, 2] {
        world.servers[server].fixed = WorkerId::new(7);
    }
    world.crash(1, true);
    world.seconds(60);
    world.crash(1, false);
    world.reboot(2);
    let costs = costs(&mut world, 2, &[0]);
    says(
        "A claimed number moves to another machine after a crash",
        ON,
        costs,
    );
}

#[test]
fn the_registry_is_away() {
    let mut world = world();
    away(&mut world, 540);
    world.replace(0, How::Backup);
    let costs = new(&mut world);
    says(
        "The registry is away for 9 min, and has lost nothing",
        ON,
        costs,
    );
}

#[test]
fn the_registry_has_crashed() {
    let mut world = world();
    away(&mut world, 20);
    world.replace(0, How::Snapshot);
    let costs = new(&mut world);
    says(
        "The registry's machine crashes, and is back after 20 s",
        ON,
        costs,
    );
}

#[test]
fn a_switchover() {
    let mut world = world();
    let mut all = Vec::new();
    for _ in 0..2 {
        away(&mut world, 6);
        world.replace(0, How::Promotion);
        all.push(new(&mut world));
    }
    assert_eq!(all[0], all[1]);
    says(
        "A planned switchover of the registry, 6 s; and a second one after it",
        ON,
        all[0],
    );
}

#[test]
fn a_server_is_killed_after_a_switchover() {
    let mut world = world();
    away(&mut world, 6);
    world.replace(0, How::Promotion);
    // It has renewed its lease since.
    world.seconds(15);
    world.crash(0, true);
    let costs = costs(&mut world, 0, &[1]);
    says(
        "A server is killed 15 s after that, and starts again",
        ON,
        costs,
    );
}

#[test]
fn a_failover() {
    let mut world = world();
    away(&mut world, 40);
    world.replace(4, How::Promotion);
    let costs = new(&mut world);
    says(
        "A standby of the registry is promoted after 40 s",
        ON,
        costs,
    );
}

#[test]
fn a_backup_is_restored() {
    let mut world = world();
    let disk = world.newest().disk.clone();
    world.seconds(3600);
    world.replace(0, How::Promotion);
    world.newest().disk = disk;
    let costs = new(&mut world);
    says(
        "The registry is restored from a backup of an hour ago",
        ON,
        costs,
    );
}

#[test]
fn a_power_cut() {
    let mut world = world();
    for server in 0..3 {
        down(&mut world, server);
    }
    world.pass(90 * SECOND);
    world.replace(0, How::Snapshot);
    for server in 0..3 {
        world.reboot(server);
    }
    let costs = costs(&mut world, 0, &[]);
    for server in 0..3 {
        assert!(world.servers[server].issued_at >= Some(world.now - SECOND));
    }
    says(
        "All machines lose power for 90 s, that of the registry, too",
        "start anew",
        costs,
    );
}
