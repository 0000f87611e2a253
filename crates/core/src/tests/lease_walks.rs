//! Small worlds of leases, walked exhaustively: every order of events up to a stated
//! length, by [`super::explorer`].
//!
//! A server that does nothing is frozen, so there is no event for that. A message that
//! is never delivered is lost. Each state is checked: no position twice, and from the
//! states of the last step every server that is left alone with the registry issues
//! within a lease, a hold and a few seconds.

use siphasher::sip128::SipHasher13;

use super::explorer::{Explorer, Rules, deeper, with};
use super::lease::{Flight, How, Plan, SECOND, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// So many seconds pass.
    Pass(i64),
    /// A request and its reply, at once; the right is in force.
    Contact(usize),
    /// The request is sent, and is under way.
    Send(usize),
    /// What was sent first arrives at the registry; the reply is under way.
    Arrive,
    /// It arrives at the registry, and will arrive again.
    ArriveTwice,
    /// The reply that was sent first arrives; the right is in force.
    Hear,
    /// The server stops waiting for its reply.
    GiveUp(usize),
    /// A request that nobody gets, and for whose reply the server stops waiting.
    Lost(usize),
    Issue(usize),
    /// A session reads the right, and pauses.
    Begin(usize),
    /// The session issues by what it has read.
    Finish(usize),
    Crash(usize),
    Stop(usize),
    /// The release is under way.
    StopSend(usize),
    /// The registry is replaced by what it was some changes ago.
    Lose(usize, How),
    RegistryClock(i64),
    Clock(usize, i64),
    /// The machine is copied as it runs: one more server.
    Duplicate(usize),
}

use Event::{
    Arrive, ArriveTwice, Begin, Clock, Contact, Crash, Duplicate, Finish, GiveUp, Hear, Issue,
    Lose, Lost, Pass, RegistryClock, Send, Stop, StopSend,
};

fn under_way(world: &World, request: bool) -> Option<usize> {
    let flights = world.flights.iter();
    let mut is = flights.map(|flight| matches!(flight, Flight::Request { .. }));
    is.position(|is| is == request)
}

/// Whether the event can happen and makes a difference.
fn happen(world: &mut World, event: Event) -> bool {
    match event {
        Pass(seconds) => {
            world.pass(seconds * SECOND);
            true
        }
        Contact(server) => world.contact(server),
        Send(server) => {
            // One request under way is enough.
            under_way(world, true).is_none() && {
                let to = world.servers[server].registry;
                let request = world.ask(server);
                let is_due = request.is_some();
                let from = server;
                let flight = request.map(|request| Flight::Request { from, to, request });
                world.flights.extend(flight);
                is_due
            }
        }
        Arrive | ArriveTwice => match under_way(world, true) {
            None => false,
            Some(at) => {
                let flight = world.flights[at].clone();
                if event == Arrive {
                    world.flights.remove(at);
                }
                let Flight::Request { from, to, request } = flight else {
                    return false;
                };
                let reply = world.answer(to, from, &request);
                world
                    .flights
                    .retain(|flight| matches!(flight, Flight::Request { .. }));
                world.flights.push(Flight::Reply { to: from, reply });
                true
            }
        },
        Hear => match under_way(world, false) {
            None => false,
            Some(at) => {
                let Flight::Reply { to, reply } = world.flights.remove(at) else {
                    return false;
                };
                world.hear(to, &reply);
                world.publish(to);
                true
            }
        },
        Lost(server) => {
            let request = world.ask(server);
            let number = world.servers[server].node.latest_number();
            world.give_up(server, number);
            request.is_some()
        }
        GiveUp(server) => {
            let number = world.servers[server].node.latest_number();
            let before = world.servers[server].node.clone();
            world.give_up(server, number);
            before != world.servers[server].node
        }
        Issue(server) => world.issue(server),
        Begin(server) => world.begin(server),
        Finish(server) => world.finish(server),
        Crash(server) => {
            let ran = world.servers[server].stamp().is_some();
            world.crash(server, true);
            ran
        }
        Stop(server) => {
            let ran = world.servers[server].stamp().is_some();
            world.stop(server);
            world.start(server);
            ran
        }
        StopSend(server) => {
            under_way(world, true).is_none() && {
                let to = world.servers[server].registry;
                let request = world.close(server);
                world.start(server);
                let is_due = request.is_some();
                let from = server;
                let flight = request.map(|request| Flight::Request { from, to, request });
                world.flights.extend(flight);
                is_due
            }
        }
        Lose(changes, how) => {
            let kept = world.registries.last().map_or(0, |one| one.copies.len());
            // Two losses are enough.
            changes <= kept && world.registries.len() <= 2 && {
                world.replace(changes, how);
                true
            }
        }
        RegistryClock(off) => {
            let registry = world.newest();
            std::mem::replace(&mut registry.off, off * SECOND) != off * SECOND
        }
        Clock(server, off) => {
            let server = &mut world.servers[server];
            std::mem::replace(&mut server.off, off * SECOND) != off * SECOND
        }
        Duplicate(server) => {
            let copy = world.clone_memory(server);
            // Two clocks never show one instant, to the millisecond, at two requests.
            world.servers[copy].off += 5;
            true
        }
    }
}

/// The rules of these walks, and how many grants there were at most.
#[derive(Clone)]
struct Leases {
    /// How many changes of the registry can be lost. A loss loses what it did not lose before,
    /// too.
    changes: usize,
    granted: u64,
}

impl Rules for Leases {
    type State = World;
    type Event = Event;

    fn step(&mut self, world: &mut World, event: Event) -> Result<bool, String> {
        let happens = happen(world, event);
        self.granted = self.granted.max(world.grants);
        match &world.twice {
            Some(twice) => Err(format!("issued twice: {twice:?}")),
            None => Ok(happens),
        }
    }

    fn hash(&self, world: &World, into: &mut SipHasher13) {
        world.hash_into(into, self.changes);
    }
}

/// Every server, alone with the newest registry, issues soon.
fn resumes(world: &World, plan: Plan) -> Result<(), String> {
    for server in 0..world.servers.len() {
        let mut world = world.clone().tell();
        world.flights.clear();
        for other in 0..world.servers.len() {
            if other != server {
                world.crash(other, false);
            }
        }
        let number = world.servers[server].node.latest_number();
        world.give_up(server, number);
        let most = (plan.lease + plan.hold) / SECOND + 5;
        let mut issues = world.until_issues(server, most);
        let now = world.now;
        let newest = world.newest();
        if issues.is_none() && newest.disk.0.stopped.is_some() {
            let input = newest.registry_input(now);
            newest.disk.0.declare(&input);
            issues = world.until_issues(server, most);
        }
        if issues.is_none() || world.twice.is_some() {
            return Err(format!(
                "server {server} does not resume\n{}",
                world.log.join("\n")
            ));
        }
    }
    Ok(())
}

/// Walks every order of these events, and those that all walks have, after `prelude`.
fn walk(name: &str, plan: Plan, prelude: &[Event], more: &[Event], depth: usize) {
    let events = with(&[Contact(0), Contact(1), Issue(0), Issue(1)], more);
    let lost = events.iter().map(|event| match event {
        Lose(changes, _) => *changes,
        _ => 0,
    });
    let rules = Leases {
        changes: 2 * lost.max().unwrap_or(0),
        granted: 0,
    };
    let explorer = Explorer {
        name,
        prelude,
        events: &events,
        depth: depth + deeper(),
        budget: usize::MAX,
    };
    let first = World::new(plan);
    let found = explorer.run(&rules, &first);
    let every = found.edge.len().div_ceil(300 << (2 * deeper())).max(1);
    for (world, way) in found.edge.iter().step_by(every) {
        if let Err(problem) = resumes(world, plan) {
            explorer.fail(&rules, &first, way, &problem);
        }
    }
    assert!(found.rules.granted > 1);
}

/// A lease and a hold of two seconds.
fn short(pool: i64, servers: usize) -> Plan {
    Plan {
        pool,
        servers,
        lease: 2 * SECOND,
        hold: 2 * SECOND,
        max_ahead: 3 * SECOND,
        ..Plan::default()
    }
}

/// The first server has the worker ID, and has issued.
const HELD: [Event; 3] = [Pass(1), Contact(0), Issue(0)];

#[test]
fn messages_of_two_servers() {
    let events = [
        Pass(2),
        Send(0),
        Arrive,
        ArriveTwice,
        Hear,
        GiveUp(0),
        Crash(0),
        StopSend(0),
    ];
    walk("messages", short(1, 2), &HELD, &events, 6);
}

#[test]
fn pauses_of_sessions() {
    let events = [Pass(2), Begin(0), Finish(0), Stop(0), Crash(1)];
    walk("pauses", short(1, 2), &HELD, &events, 7);
}

#[test]
fn losses() {
    let events = [
        Pass(2),
        Crash(0),
        Stop(0),
        Lose(1, How::Promotion),
        Lose(3, How::Promotion),
        Lose(2, How::Snapshot),
    ];
    walk("losses", short(1, 2), &HELD, &events, 6);
}

/// As in [`losses`], but after a takeover from a server that may wake up.
#[test]
fn losses_after_a_takeover() {
    let before = [
        Pass(1),
        Contact(0),
        Issue(0),
        Pass(4),
        Contact(1),
        Issue(1),
        Issue(1),
    ];
    let events = [
        Pass(2),
        Crash(0),
        Lose(1, How::Promotion),
        Lose(2, How::Snapshot),
    ];
    walk("takeover lost", short(1, 2), &before, &events, 7);
}

#[test]
fn losses_with_messages_under_way() {
    let events = [
        Pass(4),
        Send(0),
        Arrive,
        Hear,
        Lose(1, How::Promotion),
        Lose(0, How::Promotion),
    ];
    walk("loss and messages", short(1, 2), &HELD, &events, 7);
}

#[test]
fn clocks() {
    let events = [
        Pass(2),
        Crash(0),
        Clock(0, 50),
        Clock(0, -50),
        RegistryClock(-50),
        RegistryClock(50),
    ];
    walk("clocks", short(1, 2), &HELD, &events, 6);
}

#[test]
fn two_worker_ids() {
    let events = [
        Pass(4),
        Contact(2),
        Issue(2),
        Stop(0),
        Lose(2, How::Promotion),
    ];
    walk("two worker IDs", short(2, 3), &HELD, &events, 6);
}

/// A copy of a running machine has the nonce of the original and a token of before, which takes
/// nothing from the original's later one: [`World::answer`] looks at that. The copy has asked more
/// often, else its numbers would give it away. It issues nothing here: while a grant was not
/// renewed, a copy that asks for a worker ID is taken for the original, which has not heard the
/// answer.
#[test]
fn a_copy_with_an_old_token() {
    let before = [
        Pass(1),
        Contact(0),
        Issue(0),
        Duplicate(0),
        Pass(2),
        Lost(2),
        Contact(1),
        Pass(1),
        Lost(2),
        Contact(1),
        Pass(1),
        Lost(2),
        Contact(1),
        Pass(1),
        Lost(2),
        Contact(1),
        Stop(1),
        Contact(0),
        Contact(0),
        Pass(1),
        Contact(0),
        Issue(0),
    ];
    let events = [Pass(2), Contact(2), GiveUp(2), Stop(2)];
    walk("old token", short(1, 2), &before, &events, 6);
}
