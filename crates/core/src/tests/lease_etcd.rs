//! Registries in etcd: the searches of [`super::lease_search`], whose worlds have them there, and
//! what only etcd has, its position in raft's log.

use std::cell::Cell;

use super::lease::{EPOCH, How, Plan, SECOND, Table, World};
use super::lease_search::{runs, search};
use crate::lease::state::{RegistryInput, State};
use crate::lease::{Answer, Cause, Fence, Pool, RegistryError, RegistryMillis, etcd};

thread_local! {
    /// New worlds of this thread have their registries in etcd.
    static IN_ETCD: Cell<bool> = const { Cell::new(false) };
}

/// Runs a test whose worlds have their registries in etcd.
pub fn in_etcd(test: impl FnOnce()) {
    IN_ETCD.set(true);
    test();
    IN_ETCD.set(false);
}

/// What an etcd has beside state and rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etcd {
    /// Raft's index now.
    index: u64,
    /// The revision now.
    revision: u64,
    /// Raft's index and the revision when the state was stored last.
    stored: (u64, u64),
}

const fn position(index: u64) -> etcd::Position {
    etcd::Position { term: 1, index }
}

impl Etcd {
    /// The etcd of a new world, if its registry is in etcd.
    pub fn of_new_world() -> Option<Self> {
        IN_ETCD.get().then_some(Self {
            index: 2,
            revision: 1,
            stored: (2, 1),
        })
    }

    /// A snapshot is restored: raft's log begins anew.
    pub fn lose_raft(&mut self) {
        self.index = 0;
    }

    /// What a server finds that asks.
    pub fn registry_input(&self, state: &State, input: &RegistryInput) -> RegistryInput {
        let stored = etcd::StoredState {
            state: state.clone(),
            position: position(self.stored.0),
        };
        let etcd_input = etcd::EtcdInput {
            now: input.now,
            cluster: input.origin.system,
            revision: self.revision,
            stored_at: self.stored.1,
            position: position(self.index),
            random: input.random,
        };
        etcd_input.registry_input(Some(&stored))
    }

    /// A request was answered, and has changed the state or not.
    pub fn wrote(&mut self, state: bool) {
        (self.index, self.revision) = (self.index + 1, self.revision + 1);
        if state {
            self.stored = (self.index - 1, self.revision);
        }
    }
}

macro_rules! searches {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            in_etcd(|| search($name, runs()));
        })*
    };
}

searches! {
    promote "promote";
    leads "leads";
    slow "slow";
    snapshots "snapshots";
    losses "losses";
    renewals "renewals";
    clones "clones";
    backups "backups";
    clocks "clocks";
    crashes "crashes";
    away "away";
    mixed "mixed";
}

macro_rules! claims {
    ($($test:ident $name:ident;)*) => {
        $(#[test]
        fn $test() {
            in_etcd(super::lease_claims::$name);
        })*
    };
}

claims! {
    names a_lost_lease_names_who_took_over_or_else_who_has_the_worker_id_now;
    reached a_grant_tells_what_the_system_has_reached;
}

fn world(pool: i64, servers: usize) -> World {
    let plan = Plan {
        pool,
        servers,
        ..Plan::default()
    };
    let mut world = None;
    in_etcd(|| world = Some(World::new(plan).tell()));
    world.unwrap()
}

/// A server that has the only worker ID, and another one that waits for it.
fn one_of_two() -> World {
    let mut world = world(1, 2);
    world.crash(1, false);
    world.seconds(3);
    assert!(world.servers[0].node.holds());
    world.start(1);
    world
}

fn refusal(world: &mut World, server: usize) -> RegistryError {
    world.pass(SECOND);
    let request = world.ask(server).unwrap();
    let registry = world.servers[server].registry;
    let reply = world.answer(registry, server, &request);
    world.hear(server, &reply);
    match reply.answer {
        Answer::Refused(refused) => refused,
        answer => panic!("{answer:?}"),
    }
}

/// The snapshot has the lease of a holder that froze after it. Another server took over,
/// which is lost.
#[test]
fn a_lease_of_a_restored_snapshot_proves_nothing() {
    let mut world = one_of_two();
    world.freeze(0);
    world.pass(20 * SECOND);
    assert!(world.until_issues(1, 11).is_some());
    let lost = world.changes_since(|rows| rows.values().all(|row| row.counter == 1));
    world.replace(lost, How::Snapshot);
    world.wake(0);
    world.pass(SECOND);
    let request = world.ask(0).unwrap();
    let registry = world.servers[0].registry;
    let reply = world.answer(registry, 0, &request);
    let Answer::Refused(RegistryError::Fenced { why, .. }) = reply.answer else {
        panic!("{:?}", reply.answer)
    };
    assert_eq!(why, Fence::Doubtful);
    assert_eq!(world.newest().disk.0.loss.unwrap().cause, Cause::Recovery);
    world.hear(0, &reply);
    world.seconds(40);
    world.check();
}

/// What servers of a new cluster find.
fn new_etcd(now: i64, random: u128) -> etcd::EtcdInput {
    etcd::EtcdInput {
        now: RegistryMillis::new(now),
        cluster: 1,
        revision: 1,
        stored_at: 0,
        position: etcd::Position { term: 1, index: 1 },
        random,
    }
}

/// etcd compares the prefix with none: so of two servers that have read it empty, in any order,
/// one stores its registry, and the other one reads that, terms included.
#[test]
fn servers_that_come_first_make_one_pool() {
    // Who does what next; each reads, and then stores what follows.
    for order in [[0_u8, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]] {
        let mut stored = None;
        let mut read = [None, None];
        let mut used = [None, None];
        for server in order {
            let at = usize::from(server);
            match read[at].take() {
                None => {
                    let input = new_etcd(EPOCH + i64::from(server), server.into());
                    read[at] = Some(match &stored {
                        None => Err(etcd::first("default", true, &input).unwrap()),
                        Some(found) => Ok(Clone::clone(found)),
                    });
                }
                Some(Ok(found)) => used[at] = Some(found),
                Some(Err(first)) => used[at] = Some(stored.get_or_insert(first).clone()),
            }
        }
        assert_eq!(used[0], used[1]);
        let (found, pool) = used[0].clone().unwrap();
        assert_eq!(found.state.loss.unwrap().cause, Cause::New);
        assert_eq!(pool.pool, Pool::default_at(found.state.made));
        assert!(pool.pool.checked().is_some());
    }
}

/// A slip of the pen in a setting makes no second registry.
#[test]
fn another_prefix_or_pool_is_an_administrators() {
    for (pool, is_default) in [("default", false), ("defautl", true), ("", true)] {
        assert!(etcd::first(pool, is_default, &new_etcd(EPOCH, 1)).is_none());
    }
}

/// All keys are deleted, and the next server makes the registry anew. The holder of before
/// reaches nobody, and issues up to its bound; its clock may be off by a hold, and it may lead
/// as far as its pool allows.
#[test]
fn an_emptied_prefix_begins_as_a_loss() {
    for (off, leads, since) in [(0, 0, 0), (29, 0, 1), (-29, 0, 9), (0, 60, 0), (29, 60, 5)] {
        let terms = Pool::default_at(RegistryMillis::new(0));
        let plan = Plan {
            lease: terms.lease.get(),
            hold: terms.hold.get(),
            max_ahead: terms.max_ahead.get(),
            ..Plan::default()
        };
        let mut world = None;
        in_etcd(|| world = Some(World::new(plan).tell()));
        let mut world = world.unwrap();
        world.newest().disk.1.pool.unused = true;
        world.crash(1, false);
        world.servers[0].off = off * SECOND;
        world.seconds(30);
        world.advance(0, leads * SECOND);
        let bound = world.row(0).bound;
        world.pass(since * SECOND);
        world.make_anew();
        let input = new_etcd(world.now, 77);
        let (stored, pool) = etcd::first("default", true, &input).unwrap();
        let newest = world.newest();
        newest.origin.system = 1;
        newest.disk = (stored.state, Table::new(pool.pool));
        world.start(1);
        let refused = refusal(&mut world, 1);
        let RegistryError::Grace { cause, .. } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(cause, Cause::New);
        for _ in 0..400 {
            world.pass(SECOND);
            for _ in 0..3 {
                world.issue(0);
                world.contact(1);
                world.issue(1);
            }
        }
        let row = world.row(0);
        assert_eq!(row.holder.identity, world.servers[1].identity);
        assert!(world.servers[1].issued_at.is_some());
        assert!(row.floor >= bound, "{off} {leads} {since}");
        world.check();
    }
}

/// A leader that changes, a member that crashes: raft continues, so nobody has to wait.
#[test]
fn no_loss_is_seen_where_none_is() {
    let mut world = world(2, 2);
    world.seconds(20);
    let state = &world.newest().disk.0;
    assert!(state.loss.is_none() && state.stopped.is_none());
    // Nearly all requests were renewals, for which no more than their row was read.
    let (revision, whole) = (
        world.newest().etcd.clone().unwrap().revision,
        world.newest().whole,
    );
    assert!(revision > 15 && whole < 5, "{revision} {whole}");
    world.check();
}

/// What a renewal stores has no position in raft's log. Still a snapshot shows that is restored
/// long after the state was stored, when the new log has come further than the old one was then.
#[test]
fn a_log_that_begins_anew_shows_by_the_revision() {
    let found = |index, revision| etcd::EtcdInput {
        position: etcd::Position { term: 2, index },
        revision,
        stored_at: 11,
        ..new_etcd(EPOCH, 1)
    };
    let input = found(12, 10).registry_input(None);
    let state = State::new(&input);
    let stored = found(12, 10).stored(state);
    let is_loss = |input: etcd::EtcdInput| {
        input.registry_input(Some(&stored)).clean_since != stored.state.clean_since
    };
    // The state itself was stored as revision 11, and the log was further by one or more.
    assert!(!is_loss(found(12, 11)));
    // A thousand renewals, each with entries of the log that store nothing.
    for (index, revision) in [(1012, 1011), (1500, 1011), (3012, 1011)] {
        assert!(!is_loss(found(index, revision)), "{index}");
    }
    // The log has begun anew after that, and has already come as far as when the state was stored.
    for index in [4, 12, 500, 1011] {
        assert!(is_loss(found(index, 1011)), "{index}");
    }
}
