//! Registries in etcd, as hosts of the protocol in miniature: the searches of
//! [`super::lease_search`], whose worlds have them there, and what only etcd has, its
//! leases and its position in raft's log.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::super::id::{UnixMillis, WorkerId};
use super::super::lease::registry::Changes;
use super::super::lease::state::State;
use super::super::lease::{
    Answer, Cause, Fence, Pool, RegistryError, RegistryMillis, Reply, Request, Row, etcd,
};
use super::lease::{EPOCH, How, Plan, Registry, SECOND, Table, World};
use super::lease_search::{runs, search};

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
    /// When the key of each worker ID goes, by the true time.
    pub keys: BTreeMap<WorkerId, i64>,
    /// Raft's index now.
    index: u64,
    /// The revision now.
    revision: u64,
    /// Raft's index and the revision when the state was stored last.
    stored: (u64, u64),
    /// So many renewals wrote no more than one small key.
    pub small: u64,
    /// For so many requests, all rows and servers were read.
    pub whole: u64,
}

impl Etcd {
    /// The etcd of a new world, if its registry is in etcd.
    pub fn of_new_world() -> Option<Self> {
        IN_ETCD.get().then(|| Self {
            keys: BTreeMap::new(),
            index: 2,
            revision: 1,
            stored: (2, 1),
            small: 0,
            whole: 0,
        })
    }

    /// A snapshot is restored: raft's log begins anew.
    pub fn lose_raft(&mut self) {
        self.index = 0;
    }

    /// All keys begin anew, as with a new leader; also those that had gone in the meantime.
    pub fn begin_anew(&mut self, table: &Table, now: i64) {
        let held = table.rows.values().filter(|row| !row.released);
        let until = now + etcd_lease(&table.pool);
        self.keys = held.map(|row| (row.worker, until)).collect();
    }
}

/// The patience and a hold.
fn etcd_lease(pool: &Pool) -> i64 {
    pool.patience().plus(pool.hold).get()
}

impl Registry {
    /// Answers as a server does that asks etcd; the stored state and rows are its keys.
    pub fn answer_in_etcd(&mut self, request: &Request, now: i64) -> Option<Reply> {
        let input = self.registry_input(now);
        let (state, table) = &mut self.disk;
        let etcd = self.etcd.as_mut()?;
        etcd.keys.retain(|_, until| *until > now);
        let position = |index| etcd::Position { term: 1, index };
        let stored = etcd::Stored {
            state: state.clone(),
            position: position(etcd.stored.0),
        };
        let etcd_input = etcd::EtcdInput {
            now: input.now,
            cluster: input.origin.system,
            revision: etcd.revision,
            stored_at: etcd.stored.1,
            position: position(etcd.index),
            random: input.random,
        };
        let pool = etcd::StoredPool {
            namespace: NAMESPACE.to_string(),
            pool: table.pool.clone(),
        };
        let found = |only: Option<WorkerId>, is_all: bool| {
            let rows = table.rows.values();
            let rows = rows.filter(|row| only.is_none_or(|only| only == row.worker));
            etcd::EtcdRows {
                rows: rows.cloned().collect(),
                is_all,
                elsewhere: Vec::new(),
                live: etcd.keys.keys().copied().collect(),
                reached: table.reached.clone(),
            }
        };
        let answer = |found| etcd::answer(&stored, &pool, &found, request, &etcd_input);
        let own = etcd::only_row(&request.ask).map(|only| answer(found(Some(only), false)));
        let own = own.filter(|own| own.stands(request, &etcd_input));
        etcd.whole += u64::from(own.is_none());
        let outcome = match own {
            Some(own) => {
                // What others have does not change it.
                assert_eq!(own, answer(found(None, false)), "of {request:?}");
                own
            }
            None => answer(found(None, true)),
        };
        (etcd.index, etcd.revision) = (etcd.index + 1, etcd.revision + 1);
        if let Some(row) = &outcome.row {
            match etcd::key_of(row, &outcome.reply) {
                etcd::EtcdKey::Stays => {}
                etcd::EtcdKey::Goes => drop(etcd.keys.remove(&row.worker)),
                etcd::EtcdKey::Lasts => {
                    let until = now + etcd_lease(&table.pool);
                    etcd.keys.insert(row.worker, until);
                }
            }
        }
        if let (Some(renewal), Some(row)) = (&outcome.renewal, &outcome.row) {
            etcd.small += 1;
            // The row is what a reader makes of the renewal.
            let was = table.rows[&row.worker].clone();
            assert_eq!(renewal.row(was), *row);
        }
        if let Some(stored) = outcome.state {
            *state = stored;
            etcd.stored = (etcd.index - 1, etcd.revision);
        }
        table.store(Changes {
            reached: outcome.reached,
            state: false,
            row: outcome.row,
        });
        Some(outcome.reply)
    }
}

const NAMESPACE: &str = "n";

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

/// A clock of the registry that is days ahead would end all leases at once; the lease of
/// etcd continues.
#[test]
fn no_clock_takes_a_worker_id_from_a_holder() {
    for off in [-3600 * SECOND, 60 * SECOND, 48 * 3600 * SECOND] {
        let mut world = one_of_two();
        world.newest().off = off;
        let refused = refusal(&mut world, 1);
        assert!(
            matches!(refused, RegistryError::NoneFree { .. }),
            "{refused:?}"
        );
        world.servers[1].off = off;
        world.seconds(30);
        assert!(world.servers[0].node.holds());
        assert!(world.servers[1].issued_at.is_none());
        world.check();
    }
}

/// The holder is gone. Its lease ends by etcd's clock, whatever the registry's time does,
/// and whatever the holder's own clock was.
#[test]
fn no_clock_keeps_a_worker_id_for_ever() {
    for off in [-3600 * SECOND, 0, 3600 * SECOND] {
        let mut world = one_of_two();
        world.servers[0].off = off;
        world.seconds(3);
        world.crash(0, false);
        world.newest().off = -off;
        world.pass(12 * SECOND);
        world.contact(1);
        assert!(!world.servers[1].node.holds());
        world.pass(5 * SECOND);
        let waited = world.until_issues(1, 3 + off.max(0) / SECOND);
        assert!(world.servers[1].node.holds(), "{off}: {waited:?}");
        world.check();
    }
}

/// A new leader begins all leases anew. The worker ID is kept for longer, but not without an end.
#[test]
fn a_new_leader_keeps_leases_for_longer() {
    let mut world = one_of_two();
    world.crash(0, false);
    for _ in 0..3 {
        world.pass(10 * SECOND);
        let now = world.now;
        let newest = world.newest();
        newest
            .etcd
            .as_mut()
            .unwrap()
            .begin_anew(&newest.disk.1, now);
        assert!(matches!(
            refusal(&mut world, 1),
            RegistryError::NoneFree { .. }
        ));
    }
    world.pass(16 * SECOND);
    assert!(world.until_issues(1, 11).is_some());
    world.check();
}

/// The snapshot has the lease of a holder that froze after it. Another server took over,
/// which is lost; and the restored lease begins anew.
#[test]
fn a_lease_that_a_restored_snapshot_begins_anew_proves_nothing() {
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

/// New leaders keep the lease of a frozen holder, which another server claims meanwhile:
/// that does not prolong what is stored. Otherwise, a snapshot that is restored would have
/// a lease that seems to have lasted until the loss, and the takeover is lost.
#[test]
fn a_claim_that_is_refused_prolongs_no_lease() {
    let mut world = one_of_two();
    world.freeze(0);
    world.servers[1].fixed = WorkerId::new(0);
    world.crash(1, true);
    let row = world.row(0).clone();
    world.pass(12 * SECOND);
    let now = world.now;
    let newest = world.newest();
    let etcd = newest.etcd.as_mut().unwrap();
    etcd.begin_anew(&newest.disk.1, now);
    world.pass(12 * SECOND);
    assert!(matches!(refusal(&mut world, 1), RegistryError::Held { .. }));
    assert_eq!(world.row(0).leased_until, row.leased_until);
    let noted = world.newest().disk.clone();
    assert!(world.until_issues(1, 10).is_some());
    let lost = world.changes_since(|rows| *rows == noted.1.rows);
    world.replace(lost, How::Snapshot);
    world.wake(0);
    world.pass(SECOND);
    let refused = refusal(&mut world, 0);
    let RegistryError::Fenced { why, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(why, Fence::Doubtful);
    world.seconds(40);
    world.check();
}

/// Marks are those of a server, whatever namespace its worker ID is from.
#[test]
fn a_grant_tells_what_the_system_has_reached_in_other_namespaces() {
    let mut world = world(2, 2);
    let request = world.ask(0).unwrap();
    let input = world.registries[0].registry_input(world.now);
    let (state, table) = world.registries[0].disk.clone();
    // Nobody answers that one.
    world.crash(0, true);
    world.second();
    let row = world.row(0).clone();
    assert_eq!(row.holder.identity, request.asker.identity);
    let position = etcd::Position { term: 1, index: 1 };
    let stored = etcd::Stored { state, position };
    let etcd_input = etcd::EtcdInput {
        now: input.now,
        cluster: input.origin.system,
        revision: 1,
        stored_at: 1,
        position,
        random: 1,
    };
    let ahead = UnixMillis::new(world.now + 3600 * SECOND);
    let mut other = row.clone();
    other.holder.identity.system += 1;
    other.bound = ahead.plus(table.pool.lease);
    let pool = etcd::StoredPool {
        namespace: NAMESPACE.to_string(),
        pool: table.pool,
    };
    let elsewhere = vec![
        other,
        Row {
            bound: ahead,
            ..row
        },
    ];
    let found = etcd::EtcdRows {
        elsewhere,
        ..etcd::EtcdRows::default()
    };
    let outcome = etcd::answer(&stored, &pool, &found, &request, &etcd_input);
    let Answer::Granted(grant) = outcome.reply.answer else {
        panic!("{:?}", outcome.reply.answer)
    };
    assert!(grant.floor < ahead);
    assert_eq!((grant.worker.get(), grant.reached), (0, ahead));
    assert!(outcome.row.is_some());
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
        newest.etcd.as_mut().unwrap().keys.clear();
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
    // Nearly all requests were renewals of which no more than that was stored.
    let etcd = world.newest().etcd.clone().unwrap();
    let stored = etcd.revision - 1;
    assert!(etcd.small > 10 && stored - etcd.small < 5, "{etcd:?}");
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
    let is_loss = |input: etcd::EtcdInput| input.era(&stored).is_none();
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
