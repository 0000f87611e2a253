//! What servers say of the registry that they have asked, and of their clocks: what they remember
//! shows losses, and how far wrong clocks can move a bound.

use super::lease::{How, Registry, SECOND, World};
use super::lease_traces::{PATIENCE, down, held, one_of_two, world};
use crate::id::{BootNanos, Millis, UnixMillis};
use crate::lease::state::DAY;
use crate::lease::{
    Answer, Cause, Holder, HolderError, Memory, Nonce, RegistryError, Reply, Request, RequestKind,
    ServerKey,
};

/// Servers that come and go.
struct Strangers {
    drawn: u128,
}

impl Strangers {
    const fn new() -> Self {
        Self { drawn: 1000 }
    }

    fn acquire() -> RequestKind {
        RequestKind::Acquire {
            fixed: None,
            last: None,
            holding: None,
        }
    }

    /// A request of a server that does not exist, at this clock.
    fn request(&mut self, ask: RequestKind, clock: i64, memory: Option<Memory>) -> Request {
        self.drawn += 1;
        Request {
            asker: Holder {
                identity: ServerKey {
                    system: 9,
                    boot: self.drawn,
                    device: 1,
                    inode: 1,
                },
                started: BootNanos::new(1),
                host: String::new(),
                address: String::new(),
                port: 1,
                data_directory: String::new(),
            },
            nonce: Nonce(self.drawn << 64),
            number: 1,
            clock: UnixMillis::new(clock),
            memory,
            ask,
        }
    }
}

/// A registry answers at the world's time.
fn answer(world: &mut World, request: &Request) -> Reply {
    let now = world.now;
    world.newest().handle(request, now)
}

/// What the registry would answer.
fn would_answer(world: &mut World, request: &Request) -> Reply {
    let (now, mut copy) = (world.now, world.newest().clone());
    copy.handle(request, now)
}

fn renewal(request: &Request, reply: &Reply) -> RequestKind {
    match (&reply.answer, request.ask) {
        (Answer::Granted(grant), _) => RequestKind::Renew {
            worker: grant.worker,
            counter: grant.counter,
            bound: grant.bound,
            furthest: UnixMillis::new(0),
        },
        (_, ask) => ask,
    }
}

/// The next request of the same server: it renews.
fn renews(request: &Request, reply: &Reply, clock: i64) -> Request {
    Request {
        number: request.number + 1,
        clock: UnixMillis::new(clock),
        memory: Some(reply.memory),
        ask: renewal(request, reply),
        ..request.clone()
    }
}

/// The limit that an honest server is told, whose clock is wrong by a year.
fn limit(world: &mut World) -> i64 {
    let clock = world.now + 365 * DAY.get();
    let mut honest = Strangers { drawn: 7 };
    let request = honest.request(Strangers::acquire(), clock, None);
    match would_answer(world, &request).answer {
        Answer::Refused(RegistryError::TooFarAhead { limit, .. }) => limit.get() - world.now,
        answer => panic!("{answer:?}"),
    }
}

fn is_served(registry: &Registry) -> bool {
    let state = &registry.disk.0;
    state.loss.is_none() && state.stopped.is_none()
}

/// Refused or granted, who asks for a lease moves the limit for nobody.
#[test]
fn who_asks_moves_no_limit() {
    let mut world = world(30, 1);
    world.second();
    assert_eq!(limit(&mut world), DAY.get());
    let mut strangers = Strangers::new();
    for ahead in [365, 365, 2, 2, 1, 1, 1] {
        let clock = world.now + ahead * DAY.get();
        let request = strangers.request(Strangers::acquire(), clock, None);
        answer(&mut world, &request);
        assert_eq!(limit(&mut world), DAY.get());
    }
    let bounds = world.registries[0].rows().values().map(|row| row.bound);
    let most = bounds.max().unwrap().get() - world.now;
    assert!(most <= DAY.get() + 10 * SECOND, "{most}");
}

/// Three leases of servers whose clocks go a day further with each renewal.
fn ratchet(world: &mut World) -> i64 {
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut strangers = Strangers::new();
        strangers.drawn = 1000 * (1 + held.len() as u128);
        let request = strangers.request(Strangers::acquire(), world.now, None);
        let reply = answer(world, &request);
        assert!(matches!(reply.answer, Answer::Granted(_)));
        held.push((request, reply));
    }
    let mut furthest = 0;
    for round in 0..40 {
        for (request, reply) in &mut held {
            let ask = renewal(request, reply);
            for days in (0..10).rev() {
                let next = Request {
                    ask,
                    ..renews(request, reply, world.now + days * DAY.get())
                };
                *reply = answer(world, &next);
                *request = next;
                if let Answer::Renewed { bound, .. } = reply.answer {
                    furthest = furthest.max(bound.get() - world.now);
                    break;
                }
            }
        }
        assert_eq!(limit(world), DAY.get(), "round {round}");
        world.pass(SECOND);
    }
    furthest
}

#[test]
fn servers_whose_clocks_agree_go_no_further_than_one() {
    let most = ratchet(&mut world(10, 1));
    assert!(most > DAY.get() / 2 && most <= DAY.get() + 10 * SECOND);
}

/// Only who has got a grant knows that it is lost: the registry's disk was set back to before the
/// grant, which nothing else shows. Its memory counts, and it keeps what it had.
#[test]
fn the_memory_of_a_grant_that_is_lost_brings_it_back() {
    let mut world = one_of_two();
    world.advance(0, 15 * SECOND);
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Backup);
    assert!(world.newest().rows().is_empty());
    // It asks first. What it has issued lies ahead of the clock of the next one.
    world.pass(4 * SECOND);
    assert!(world.contact(0));
    assert!(world.newest().disk.0.loss.is_some());
    assert!(world.servers[0].node.holds());
    assert_eq!(world.row(0).nonce, world.servers[0].node.nonce());
    down(&mut world, 0);
    world.start(1);
    assert!(world.until_issues(1, 2 * PATIENCE).is_some());
    world.seconds(20);
    world.check();
}

/// A server that has gone wrong names a bound of a year ahead for a grant that is lost.
#[test]
fn a_wrong_bound_brings_no_grant_back() {
    for (wrong, comes_back) in [(0, true), (365, false)] {
        let mut world = one_of_two();
        let changes = world.registries[0].copies.len();
        world.replace(changes, How::Backup);
        world.pass(4 * SECOND);
        let mut request = world.ask(0).unwrap();
        let RequestKind::Renew { bound, .. } = &mut request.ask else {
            panic!("{request:?}")
        };
        *bound = UnixMillis::new(bound.get() + wrong * DAY.get());
        let reply = answer(&mut world, &request);
        assert!(world.newest().disk.0.loss.is_some());
        let is_back = matches!(reply.answer, Answer::Renewed { .. });
        assert_eq!(
            (is_back, world.newest().rows().is_empty()),
            (comes_back, !comes_back)
        );
    }
}

/// Somebody else has got the worker ID of a lost grant since the loss, with a lower counter: an
/// administrator has ended the wait. The former holder does not get it back.
#[test]
fn a_lost_grant_does_not_come_back_over_a_later_one() {
    let mut world = one_of_two();
    let disk = world.newest().disk.clone();
    for _ in 0..4 {
        down(&mut world, 0);
        world.start(0);
        world.seconds(4);
    }
    let lost = world.row(0).counter;
    world.freeze(0);
    world.replace(0, How::Promotion);
    world.newest().disk = disk;
    world.start(1);
    world.second();
    assert!(world.newest().disk.0.loss.is_some());
    let now = world.now;
    let registry = world.newest();
    let input = registry.registry_input(now);
    registry.disk.0.end_grace(&input);
    assert!(world.until_issues(1, 2 * PATIENCE).is_some());
    assert!(world.row(0).counter < lost);
    world.wake(0);
    world.seconds(2);
    assert_eq!(world.row(0).nonce, world.servers[1].node.nonce());
    world.seconds(20);
    world.check();
}

/// A registry that has lost a grant, and has stored as many changes since: only the token
/// tells.
#[test]
fn a_token_that_was_granted_shows_a_loss_once() {
    let mut world = world(4, 4);
    for server in 1..4 {
        down(&mut world, server);
    }
    world.seconds(6);
    world.freeze(0);
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Backup);
    for server in 1..4 {
        world.start(server);
    }
    world.seconds(30);
    assert!(world.newest().disk.0.loss.is_none());
    world.wake(0);
    let request = world.ask(0).unwrap();
    let reply = answer(&mut world, &request);
    assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Token);
    let era = world.newest().disk.0.era;
    assert_eq!((reply.memory.held, reply.memory.era), (None, era));
    // The same again, once with what it is told now.
    for memory in [request.memory, Some(reply.memory)] {
        let again = Request {
            number: request.number + 1,
            memory,
            ..request.clone()
        };
        let reply = answer(&mut world, &again);
        assert_eq!((reply.memory.held, reply.memory.era), (None, era));
    }
    assert_eq!(world.newest().disk.0.era, era);
}

/// The registry is emptied, and made anew. The first server that knows the
/// old one shows that; nobody need do anything, and nothing is issued twice.
#[test]
fn a_registry_that_is_made_anew_waits_for_the_servers_of_the_old_one() {
    for advance in [0, 19] {
        let mut world = one_of_two();
        world.advance(0, advance * SECOND);
        let old = world.row(0).bound;
        world.make_anew();
        world.pass(8 * SECOND);
        assert!(world.contact(0));
        assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Foreign);
        world.start(1);
        world.seconds(2);
        assert!(world.newest().rows().is_empty());
        // The other one is granted the worker ID.
        down(&mut world, 0);
        assert!(world.until_issues(1, PATIENCE).is_some());
        assert!(world.row(0).floor > old);
        world.start(0);
        world.seconds(30);
        world.check();
        assert!(world.newest().disk.0.stopped.is_none());
    }
}

/// A server that comes back later is refused once, and then served.
#[test]
fn a_server_that_has_asked_another_registry_is_served() {
    let mut world = world(2, 2);
    world.seconds(5);
    world.freeze(0);
    world.make_anew();
    down(&mut world, 1);
    world.seconds(40);
    world.start(1);
    assert!(world.until_issues(1, PATIENCE).is_some());
    let era = world.newest().disk.0.era;
    let row = world.row(0).clone();
    world.wake(0);
    world.contact(0);
    assert!(!world.servers[0].node.holds());
    assert!(world.changes.contains("lost"));
    world.second();
    assert!(
        world.until_issues(0, PATIENCE).is_some(),
        "{}",
        world.log.join("\n")
    );
    assert_eq!(held(&world, 0), Some(1));
    assert_eq!(world.newest().disk.0.era, era, "no loss");
    assert_eq!(world.row(0).nonce, row.nonce);
    world.check();
}

/// A registry that was just made may be told so by anybody, but once only.
#[test]
fn a_new_registry_waits_once() {
    let mut world = world(2, 1);
    world.make_anew();
    let mut strangers = Strangers::new();
    let request = strangers.request(Strangers::acquire(), world.now, None);
    let mut memory = answer(&mut world, &request).memory;
    memory.registry += 1;
    let mut eras = Vec::new();
    for _ in 0..20 {
        let request = strangers.request(Strangers::acquire(), world.now, Some(memory));
        answer(&mut world, &request);
        eras.push(world.newest().disk.0.era.counter);
        world.pass(SECOND);
    }
    assert_eq!(eras, [2; 20]);
    assert!(world.until_issues(0, 4).is_some());
    // Nor later, if it has never been told.
    world.make_anew();
    world.pass(Millis::new(16 * SECOND).get());
    let request = strangers.request(Strangers::acquire(), world.now, Some(memory));
    answer(&mut world, &request);
    assert!(is_served(world.newest()));
}

/// A node that is told to stop keeps what it knows of the registry that counts.
#[test]
fn a_registry_that_has_stopped_takes_no_memory_away() {
    let mut world = one_of_two();
    world.replace(0, How::Promotion);
    world.seconds(5);
    world.servers[0].registry = 0;
    let memory = world.servers[0].node.memory();
    world.seconds(5);
    assert!(world.registries[0].disk.0.stopped.is_some());
    assert_eq!(world.servers[0].node.memory(), memory);
    // One that has asked this one only has nothing to keep.
    world.start(1);
    world.servers[1].registry = 0;
    world.seconds(2);
    let known = world.servers[1].node.memory().unwrap();
    assert_eq!(known.era, world.registries[0].disk.0.era);
}

#[test]
fn texts_that_people_cannot_be_shown_do_not_fit() {
    let mut strangers = Strangers::new();
    let asker = strangers.request(Strangers::acquire(), 0, None).asker;
    let with = |host: &str, address: &str, directory: &str| Holder {
        host: host.to_string(),
        address: address.to_string(),
        data_directory: directory.to_string(),
        ..asker.clone()
    };
    let long = |length| "x".repeat(length);
    assert_eq!(with("höst", "::1", "/srv/a b").fits(), Ok(()));
    let cases = [
        (with("a\nb", "", ""), HolderError::Control("host")),
        (with("", "\u{9b}31m", ""), HolderError::Control("address")),
        (
            with("", "", "/\u{1b}[2J"),
            HolderError::Control("data_directory"),
        ),
        (
            with("", "", "/\u{7f}"),
            HolderError::Control("data_directory"),
        ),
        (with(&long(256), "", ""), HolderError::Long("host", 255)),
        (with("", &long(256), ""), HolderError::Long("address", 255)),
        (
            with("", "", &long(1024)),
            HolderError::Long("data_directory", 1023),
        ),
    ];
    for (asker, why) in cases {
        assert_eq!(asker.fits(), Err(why));
    }
    assert_eq!(with(&long(255), &long(255), &long(1023)).fits(), Ok(()));
}
