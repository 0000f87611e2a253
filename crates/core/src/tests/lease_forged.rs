//! What somebody can do who may ask a registry, and makes the requests up: servers that do
//! not exist, clocks, memories, and the answers of transactions that he has aborted. None of
//! it moves a bound by more than an honest server does, and none begins a grace period or stops the
//! registry.

use super::super::id::{BootNanos, Millis, UnixMillis, WorkerId};
use super::super::lease::registry::VOUCHED_MAX;
use super::super::lease::seal::{Seal, SealKey};
use super::super::lease::state::{DAY, Start};
use super::super::lease::{
    Answer, Ask, Cause, Fence, Holder, HolderError, Memory, Nonce, RegistryError, Reply, Request,
    ServerKey,
};
use super::lease::{How, Registry, SECOND, World};
use super::lease_traces::{PATIENCE, down, held, one_of_two, world};

/// Somebody who makes requests up.
struct Forger {
    drawn: u128,
}

impl Forger {
    const fn new() -> Self {
        Self { drawn: 1000 }
    }

    fn acquire() -> Ask {
        Ask::Acquire {
            fixed: None,
            last: None,
            holding: None,
        }
    }

    /// A request of a server that does not exist, at this clock.
    fn request(&mut self, ask: Ask, clock: i64, memory: Option<Memory>) -> Request {
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

/// The transaction of the answer is aborted.
fn aborted(world: &mut World, request: &Request) -> Reply {
    let (now, mut copy) = (world.now, world.newest().clone());
    // The world draws random numbers by the serial, and each transaction has its own.
    copy.disk.0.serial += 7;
    copy.handle(request, now)
}

fn renewal(request: &Request, reply: &Reply) -> Ask {
    match (&reply.answer, request.ask) {
        (Answer::Granted(grant), _) => Ask::Renew {
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
    let mut honest = Forger { drawn: 7 };
    let request = honest.request(Forger::acquire(), clock, None);
    match aborted(world, &request).answer {
        Answer::Refused(RegistryError::TooFarAhead { limit, .. }) => limit.get() - world.now,
        answer => panic!("{answer:?}"),
    }
}

fn is_served(registry: &Registry) -> bool {
    let state = &registry.disk.0;
    state.loss.is_none() && state.stopped.is_none()
}

/// Servers that hold nothing vouch for nobody, whether they were refused or granted.
#[test]
fn servers_that_were_made_up_do_not_vouch() {
    let mut world = world(30, 1);
    world.second();
    assert_eq!(limit(&mut world), DAY.get());
    let mut forger = Forger::new();
    for ahead in [365, 365, 2, 2, 1, 1, 1] {
        let clock = world.now + ahead * DAY.get();
        let request = forger.request(Forger::acquire(), clock, None);
        answer(&mut world, &request);
        assert_eq!(limit(&mut world), DAY.get());
    }
    let bounds = world.registries[0].rows().values().map(|row| row.bound);
    let most = bounds.max().unwrap().get() - world.now;
    assert!(most <= DAY.get() + 10 * SECOND, "{most}");
}

/// Three leases of servers whose clocks go a day further with each renewal.
fn ratchet(world: &mut World) -> i64 {
    let mut forgers = Vec::new();
    for _ in 0..3 {
        let mut forger = Forger::new();
        forger.drawn = 1000 * (1 + forgers.len() as u128);
        let request = forger.request(Forger::acquire(), world.now, None);
        let reply = answer(world, &request);
        assert!(matches!(reply.answer, Answer::Granted(_)));
        forgers.push((request, reply));
    }
    let mut furthest = 0;
    for round in 0..40 {
        for (request, reply) in &mut forgers {
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
        assert!(limit(world) <= VOUCHED_MAX.get(), "round {round}");
        world.pass(SECOND);
    }
    furthest
}

#[test]
fn servers_do_not_vouch_each_other_further_and_further() {
    let most = ratchet(&mut world(10, 1));
    assert!(most > 5 * DAY.get() && most <= VOUCHED_MAX.get() + 10 * SECOND);
}

/// Eras and serials that nobody has said. The registry is as it was.
#[test]
fn a_memory_without_the_right_seal_is_not_believed() {
    let mut world = world(3, 1);
    world.seconds(20);
    let mut forger = Forger::new();
    let request = forger.request(Forger::acquire(), world.now, None);
    let honest = answer(&mut world, &request).memory;
    let changes: [fn(&mut Memory); 6] = [
        |memory| memory.serial += 1_000_000,
        |memory| memory.era.counter += 1,
        |memory| memory.era.declared += 1,
        |memory| memory.era.origin.timeline += 1,
        |memory| memory.era.random += 1,
        |memory| *memory = SealKey::new([7; 32]).seal(*memory),
    ];
    let before = world.registries[0].disk.clone();
    for (number, change) in changes.iter().enumerate() {
        let mut memory = honest;
        // What another start has said tells of a loss.
        memory.start += 1;
        change(&mut memory);
        let request = forger.request(Forger::acquire(), world.now, Some(memory));
        let reply = answer(&mut world, &request);
        assert_eq!(
            reply.answer,
            Answer::Refused(RegistryError::Foreign),
            "change {number}"
        );
        assert_eq!(world.registries[0].disk, before, "change {number}");
        // The next request has what the registry has just said.
        let next = Request {
            number: 2,
            memory: Some(reply.memory),
            ..request
        };
        let answer = aborted(&mut world, &next).answer;
        assert!(!matches!(answer, Answer::Refused(RegistryError::Foreign)));
    }
    assert!(world.until_issues(0, 4).is_some());
}

/// Tokens that the registry does not know, with a memory that it has sealed.
#[test]
fn a_token_that_was_made_up_shows_no_loss() {
    let mut world = world(3, 1);
    world.seconds(3);
    let row = world.row(0).clone();
    let mut forger = Forger::new();
    let request = forger.request(Forger::acquire(), world.now, None);
    let memory = answer(&mut world, &request).memory;
    // As if another start had said it.
    let key = world.registries[0].disk.0.key;
    let start = memory.start + 1;
    for token in [memory.token, None, Some(Seal::NONE)] {
        let memory = Memory {
            start,
            token,
            ..memory
        };
        for (worker, counter) in [(row.worker, row.counter), (row.worker, 99), (id(2), 1)] {
            let ask = Ask::Renew {
                worker,
                counter,
                bound: UnixMillis::new(0),
                furthest: UnixMillis::new(0),
            };
            let request = forger.request(ask, world.now, Some(key.seal(memory)));
            let reply = answer(&mut world, &request);
            assert!(
                matches!(
                    reply.answer,
                    Answer::Refused(RegistryError::Fenced {
                        why: Fence::Lost,
                        ..
                    })
                ),
                "{:?}",
                reply.answer
            );
            assert!(is_served(&world.registries[0]));
        }
    }
}

fn id(worker: i32) -> WorkerId {
    WorkerId::new(worker).unwrap()
}

/// Shows the registry what it has answered.
fn show_all(world: &mut World, shown: &[(Request, Reply)]) {
    for (request, reply) in shown {
        let next = renews(request, reply, world.now);
        answer(world, &next);
        let state = &world.newest().disk.0;
        assert!(state.stopped.is_none(), "{:?}", state.stopped);
    }
}

/// What the registry has sealed in transactions that were aborted: later serials and tokens.
/// Each is shown at once, and after clean restarts. A token of an earlier start than the
/// registry remembers may be a lost one: it begins a grace period, once. Nothing stops the
/// registry, and of an era that was never stored nobody is told.
#[test]
fn what_was_never_stored_shows_no_loss() {
    let mut world = world(6, 1);
    world.seconds(3);
    // A crash: the era is a new one, with the first request. The first one is aborted.
    world.replace(0, How::Snapshot);
    let mut forger = Forger::new();
    let first = forger.request(Forger::acquire(), world.now, None);
    let before = world.newest().disk.0.era;
    let reply = aborted(&mut world, &first);
    assert_eq!((&reply.answer, reply.memory.era), (&Answer::Again, before));
    world.seconds(30);
    assert!(world.until_issues(0, PATIENCE).is_some());
    assert_ne!(world.newest().disk.0.era, before);
    let mut shown = vec![(first, reply)];
    let before = world.newest().disk.0.era;
    for restarts in 0..9 {
        for _ in 0..3 {
            let request = forger.request(Forger::acquire(), world.now, None);
            let reply = aborted(&mut world, &request);
            assert!(matches!(reply.answer, Answer::Granted(_)));
            assert!(reply.memory.serial > world.newest().disk.0.serial);
            shown.push((request, reply));
        }
        show_all(&mut world, &shown);
        let state = &world.newest().disk.0;
        assert_eq!(state.era, before, "{restarts}: {:?}", state.loss);
        // A clean stop and start of the registry's server.
        let registry = world.newest();
        registry.start += 1;
        world.seconds(4);
        let started = world.newest().start;
        assert_eq!(world.newest().disk.0.start, started);
    }
    for _ in 0..3 {
        show_all(&mut world, &shown);
    }
    assert_eq!(world.newest().disk.0.era.counter, before.counter + 1);
    world.check();
}

/// A snapshot is restored, and started twice before any server asks. The second start was clean,
/// and what the first one may have lost is known all the same.
#[test]
fn a_clean_restart_hides_no_loss() {
    let mut world = one_of_two();
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Snapshot);
    world.newest().start += 1;
    world.pass(4 * SECOND);
    assert!(world.contact(0));
    assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Recovery);
    down(&mut world, 0);
    world.start(1);
    assert!(world.until_issues(1, PATIENCE).is_some());
    world.seconds(20);
    world.check();
}

/// As many starts as are remembered, and no more.
#[test]
fn the_latest_starts_are_remembered() {
    let mut world = world(1, 1);
    world.seconds(3);
    for _ in 0..20 {
        world.newest().start += 1;
        world.seconds(4);
    }
    let state = &world.newest().disk.0;
    assert_eq!((state.earlier.len(), state.start), (8, 21));
    let last: Start = serde_json::from_str(&format!("\"{:032x}\"", 20)).unwrap();
    assert_eq!(state.earlier.last(), Some(&last));
    world.newest().start += 1;
    world.newest().clean_since = 22;
    world.seconds(4);
    // At a start that was ended by a crash, something may be lost.
    assert_eq!(world.newest().disk.0.earlier.last(), Some(&last));
}

/// Only who lost a grant knows that it is lost, and is no holder: the registry's disk was set
/// back to before the grant, which nothing else shows. Its memory counts.
#[test]
fn the_memory_of_who_holds_nothing_shows_a_loss() {
    let mut world = one_of_two();
    world.advance(0, 15 * SECOND);
    let changes = world.registries[0].copies.len();
    world.replace(changes, How::Backup);
    assert!(world.newest().rows().is_empty());
    // It asks first. What it has issued lies ahead of the clock of the next one. The registry
    // stores the loss, and then it answers.
    world.pass(4 * SECOND);
    assert!(world.contact(0));
    assert!(world.newest().disk.0.loss.is_some());
    world.pass(SECOND);
    assert!(world.contact(0));
    assert!(!world.servers[0].node.holds());
    down(&mut world, 0);
    world.start(1);
    assert!(world.until_issues(1, PATIENCE).is_some());
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
    // The loss is stored first. Until then, the server remembers what it did.
    assert_eq!(Some(reply.memory), request.memory);
    // The same again; and with a token in what it is told then.
    let era = world.newest().disk.0.era;
    let again = Request {
        number: request.number + 1,
        ..request.clone()
    };
    let reply = answer(&mut world, &again);
    assert_eq!((reply.memory.token, reply.memory.era), (None, era));
    let again = Request {
        number: request.number + 2,
        memory: Some(Memory {
            token: request.memory.unwrap().token,
            ..reply.memory
        }),
        ..request.clone()
    };
    let reply = answer(&mut world, &again);
    assert_eq!(reply.answer, Answer::Refused(RegistryError::Foreign));
    answer(&mut world, &request);
    assert_eq!(world.newest().disk.0.era, era);
}

/// The registry is emptied, and made anew with another key. The first server that knows the
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
    let mut forger = Forger::new();
    let request = forger.request(Forger::acquire(), world.now, None);
    let mut memory = answer(&mut world, &request).memory;
    memory.serial += 1;
    let mut eras = Vec::new();
    for _ in 0..20 {
        let request = forger.request(Forger::acquire(), world.now, Some(memory));
        answer(&mut world, &request);
        eras.push(world.newest().disk.0.era.counter);
        world.pass(SECOND);
    }
    assert_eq!(eras, [2; 20]);
    assert!(world.until_issues(0, 4).is_some());
    // Nor later, if it has never been told.
    world.make_anew();
    world.pass(Millis::new(16 * SECOND).get());
    let request = forger.request(Forger::acquire(), world.now, Some(memory));
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
    let mut forger = Forger::new();
    let asker = forger.request(Forger::acquire(), 0, None).asker;
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
