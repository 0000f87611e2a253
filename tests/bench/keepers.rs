//! Plays the keepers of many servers that lease worker IDs of one registry, with the client and
//! the rules of the real ones. Says when a phase begins, and at the end what was seen in each:
//! answers, their times in milliseconds (median, 99th percentile, greatest), servers without an
//! answer, and requests that were refused or failed, with the words of the last one.
//!
//! Arguments: how many servers, how many connections, for how many seconds they renew, the name of
//! the pool, and one or several registries, as `snowflake_id.registry` names them. Connections take
//! the registries in turn, and servers the connections. A request that is due waits until
//! its connection is free; that counts.
//!
//! 1. **Acquire:** all servers ask for a worker ID at the same moment.
//! 2. **Renew:** they renew when their keepers would.
//! 3. **Outage:** for 20 seconds nobody can ask. Then the registry answers again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use snowflake_core::id::{BootNanos, UnixMillis};
use snowflake_core::lease::node::{Next, Node, NodeInput};
use snowflake_core::lease::{Holder, Nonce, Reply, Request, ServerKey};
use snowflake_registry_client::etcd::host::EtcdRegistry;
use snowflake_registry_client::etcd::url::{Url, is_etcd};
use snowflake_registry_client::libpq::wait::Stop;
use snowflake_registry_client::postgres::PostgresRegistry;

/// How long the keeper of the default pool waits for a reply.
const REPLY_WAIT: Duration = Duration::from_secs(5);
const OUTAGE: Duration = Duration::from_secs(20);
/// What was late in the first phase is not counted in the second one.
const SETTLING: Duration = Duration::from_secs(8);
/// So long the first phase may take, and what follows the outage.
const STORM_MAX: Duration = Duration::from_secs(100);
/// So soon a thread sees that a storm is over.
const SLEEP_MAX: Duration = Duration::from_millis(20);

enum Connection {
    Postgres(Box<PostgresRegistry>),
    Etcd(Box<EtcdRegistry>),
}

impl Connection {
    fn new(registry: &str, pool: &str, stop: &Stop) -> Self {
        if is_etcd(registry) {
            return Self::Etcd(Box::new(EtcdRegistry::new(Url::parse(registry).unwrap())));
        }
        let here = Arc::new(AtomicBool::new(false));
        let pool = pool.to_string();
        Self::Postgres(Box::new(PostgresRegistry::new(
            registry,
            pool,
            stop.clone(),
            here,
            0,
        )))
    }

    fn ask(&mut self, pool: &str, request: &Request) -> Result<Reply, String> {
        let until = Instant::now() + REPLY_WAIT;
        match self {
            Self::Postgres(it) => it
                .ask(request, until)
                .0
                .reply
                .map_err(|why| format!("{why:?}")),
            Self::Etcd(it) => it
                .ask(pool, request, until)
                .map_err(|why| format!("{why:?}")),
        }
    }
}

/// Runs on as the boot clock of a server does.
fn input(began: Instant) -> NodeInput {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let clock = UnixMillis::new(i64::try_from(wall.as_millis()).unwrap());
    let boot = i64::try_from(began.elapsed().as_nanos()).unwrap();
    NodeInput {
        boot: BootNanos::new(boot + 1),
        clock,
        furthest: clock,
        in_recovery: false,
    }
}

fn node(number: u64, draw: u128) -> Node {
    let identity = ServerKey {
        system: 7_000_000_000_000_000_000 + number,
        boot: draw,
        device: 64_769,
        inode: number,
    };
    let holder = Holder {
        identity,
        started: BootNanos::new(1),
        host: format!("server-{number}.example.com"),
        address: String::new(),
        port: 5432,
        data_directory: "/var/lib/postgresql/15/main".to_string(),
    };
    Node::new(holder, Nonce(draw + u128::from(number)), None, None)
}

/// What a thread has seen in a phase.
#[derive(Default)]
struct Seen {
    /// From when a request was due, or from when the storm began, until its answer was there.
    waits: Vec<Duration>,
    /// Servers that do not have it at the end of the phase.
    without: usize,
    /// Requests that were refused, or not answered.
    refused: usize,
    failed: usize,
    /// The words of a failure.
    why: String,
}

impl Seen {
    fn and(mut self, other: Self) -> Self {
        self.waits.extend(other.waits);
        self.without += other.without;
        self.refused += other.refused;
        self.failed += other.failed;
        if self.why.is_empty() {
            self.why = other.why;
        }
        self
    }

    fn print(mut self, phase: &str) {
        self.waits.sort();
        let at = |part: usize| {
            let last = self.waits.len().saturating_sub(1);
            let wait = self.waits.get(last * part / 1000);
            wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
        };
        println!(
            "{phase}\t{}\t{:.1}\t{:.1}\t{:.1}\t{}\t{}\t{}\t{}",
            self.waits.len(),
            at(500),
            at(990),
            at(1000),
            self.without,
            self.refused,
            self.failed,
            self.why,
        );
    }
}

/// The servers of a connection.
struct Keepers {
    nodes: Vec<Node>,
    connection: Connection,
    pool: String,
    began: Instant,
    /// When each of them is due.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Keepers {
    /// Plays until the instant; in a storm, until no server of any connection is left that has
    /// not been answered as it hopes since the phase began.
    fn play(&mut self, until: Instant, left: Option<&AtomicUsize>, is_away: bool) -> Seen {
        let (mut seen, start) = (Seen::default(), Instant::now());
        let mut served = vec![false; self.nodes.len()];
        loop {
            let now = Instant::now();
            let is_done = left.is_some_and(|left| left.load(Relaxed) == 0);
            if is_done || now >= until {
                break;
            }
            let (at, number) = self.due.peek().expect("a server is always due").0;
            if at > now {
                thread::sleep((at - now).min(SLEEP_MAX));
                continue;
            }
            self.due.pop();
            let node = &mut self.nodes[number];
            let request = match node.next(&input(self.began)) {
                Next::Send(request) => *request,
                Next::Sleep(nanos) => {
                    let nanos = u64::try_from(nanos.get()).unwrap();
                    self.due
                        .push(Reverse((now + Duration::from_nanos(nanos), number)));
                    continue;
                }
                Next::Await => panic!("a request without an outcome"),
            };
            let reply = match is_away {
                true => Err("away".to_string()),
                false => self.connection.ask(&self.pool, &request),
            };
            let moment = input(self.began);
            let mut is_served = false;
            match reply {
                Ok(reply) => {
                    let change = node.on_reply(&reply, &moment);
                    is_served = node.holds() && node.failure().is_none();
                    if !is_served {
                        seen.refused += 1;
                        seen.why = format!("{change:?}").replace(['\n', '\t'], " ");
                    }
                }
                Err(why) => {
                    seen.failed += 1;
                    seen.why = why.replace(['\n', '\t'], " ");
                    node.failed(request.number, why, &moment);
                }
            }
            let now = Instant::now();
            if is_served {
                let is_first = !std::mem::replace(&mut served[number], true);
                match left {
                    None => seen.waits.push(now - at.max(start)),
                    Some(left) if is_first => {
                        seen.waits.push(now - start);
                        left.fetch_sub(1, Relaxed);
                    }
                    Some(_) => {}
                }
            }
            self.due.push(Reverse((now, number)));
        }
        seen.without = served.iter().filter(|served| !**served).count();
        seen
    }
}

/// The first thread says which phase begins.
fn tell(thread: u64, phase: &str) {
    if thread == 0 {
        println!("begins\t{phase}");
    }
}

fn main() {
    // Cargo adds its own word.
    let words: Vec<String> = env::args()
        .skip(1)
        .filter(|word| word != "--bench")
        .collect();
    let [servers, connections, seconds, pool, registries @ ..] = &words[..] else {
        panic!("servers, connections, seconds, pool and registries are needed");
    };
    let number = |word: &String| word.parse::<u64>().unwrap();
    let (servers, connections) = (number(servers), number(connections));
    let steady = Duration::from_secs(number(seconds));
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let draw = wall.as_nanos() << 64;
    // Nobody closes the other end.
    let (_end, stop) = UnixStream::pair().unwrap();
    let stop = Stop::new(stop);
    let (barrier, began) = (
        Barrier::new(usize::try_from(connections).unwrap()),
        Instant::now(),
    );
    let count = usize::try_from(servers).unwrap();
    let storms = [AtomicUsize::new(count), AtomicUsize::new(count)];
    let all: Vec<[Seen; 3]> = thread::scope(|scope| {
        let threads = (0..connections).map(|at| {
            let place = usize::try_from(at).unwrap() % registries.len();
            let (registry, stop, barrier, storms) = (&registries[place], &stop, &barrier, &storms);
            let play = move || {
                let mine = (0..servers).filter(|server| server % connections == at);
                let nodes: Vec<Node> = mine.map(|server| node(server, draw)).collect();
                let connection = Connection::new(registry, pool, stop);
                barrier.wait();
                let now = Instant::now();
                let due = (0..nodes.len()).map(|node| Reverse((now, node))).collect();
                let pool = pool.clone();
                let mut keepers = Keepers {
                    nodes,
                    connection,
                    pool,
                    began,
                    due,
                };
                tell(at, "acquire");
                let first = keepers.play(now + STORM_MAX, Some(&storms[0]), false);
                tell(at, "settle");
                keepers.play(Instant::now() + SETTLING, None, false);
                tell(at, "renew");
                let renewed = keepers.play(Instant::now() + steady, None, false);
                barrier.wait();
                tell(at, "outage");
                keepers.play(Instant::now() + OUTAGE, None, true);
                barrier.wait();
                let until = Instant::now() + STORM_MAX;
                [first, renewed, keepers.play(until, Some(&storms[1]), false)]
            };
            thread::Builder::new()
                .stack_size(1 << 20)
                .spawn_scoped(scope, play)
                .unwrap()
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut phases = [Seen::default(), Seen::default(), Seen::default()];
    for seen in all {
        let [one, two, three] = seen;
        let [first, second, third] = phases;
        phases = [first.and(one), second.and(two), third.and(three)];
    }
    for (phase, seen) in ["acquire", "renew", "resume"].into_iter().zip(phases) {
        seen.print(phase);
    }
}
