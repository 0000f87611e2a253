//! Registries of several hosts, which are servers of a few messages of PostgreSQL's protocol.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::*;
use crate::wire::FORMAT;
use snowflake_core::id::{BootNanos, UnixMillis};
use snowflake_core::lease::state::{RegistryInput, State};
use snowflake_core::lease::{
    EraRelation, Fence, Holder, HolderName, Nonce, Origin, RegistryMillis, RequestKind, ServerKey,
    Stoppage,
};

const LONG: Duration = Duration::from_secs(20);

/// A host that takes writes.
struct Host {
    port: u16,
    /// What it was asked.
    asked: Mutex<Vec<Request>>,
    /// Its registry; without one it has no extension.
    state: Option<Mutex<State>>,
    /// It refuses each request with an error.
    fails: AtomicBool,
    /// It answers in the next format.
    is_next: AtomicBool,
}

fn input(timeline: u64, random: u128) -> RegistryInput {
    RegistryInput {
        now: RegistryMillis::new(1000),
        origin: Origin {
            system: 1,
            timeline,
            database: 2,
        },
        clean_since: 0,
        random,
    }
}

impl Host {
    /// Starts one, whose registry is of this timeline and is this one.
    fn start(timeline: u64, registry: u8) -> Arc<Self> {
        let mut state = State::new(&input(timeline, timeline.into()));
        state.registry = registry.into();
        Self::serve(Some(Mutex::new(state)))
    }

    fn serve(state: Option<Mutex<State>>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = Arc::new(Self {
            port: listener.local_addr().unwrap().port(),
            asked: Mutex::default(),
            state,
            fails: AtomicBool::new(false),
            is_next: AtomicBool::new(false),
        });
        let serving = Arc::clone(&host);
        thread::spawn(move || {
            for client in listener.incoming() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.talk(client.unwrap()));
            }
        });
        host
    }

    /// `None` when the client has gone.
    fn talk(&self, mut client: TcpStream) -> Option<()> {
        read_message(&mut client)?;
        let mut hello = message(b'R', &[0; 4]);
        for (name, value) in [
            ("server_version", "15.0"),
            ("in_hot_standby", "off"),
            ("default_transaction_read_only", "off"),
        ] {
            hello.extend(message(b'S', format!("{name}\0{value}\0").as_bytes()));
        }
        hello.extend(message(b'Z', b"I"));
        client.write_all(&hello).ok()?;
        let mut parameters = Vec::new();
        loop {
            let mut kind = [0];
            client.read_exact(&mut kind).ok()?;
            let content = read_message(&mut client)?;
            match kind {
                [b'B'] => parameters = content,
                [b'S'] => client.write_all(&self.result(&parameters)).ok()?,
                _ => {}
            }
        }
    }

    fn result(&self, parameters: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(parameters);
        let Some(from) = text.find('{') else {
            let extension = self.state.as_ref().map(|_| "snowflake_id".to_string());
            return result(&[extension, Some(self.port.to_string())]);
        };
        if self.fails.load(Ordering::Relaxed) {
            let error = message(b'E', b"SERROR\0VERROR\0C42501\0Mpermission denied\0\0");
            return [error, message(b'Z', b"I")].concat();
        }
        let request: Request = wire::decode(&text[from..=text.rfind('}').unwrap()]).unwrap();
        let mut reply = wire::encode(&self.answer(&request));
        if self.is_next.load(Ordering::Relaxed) {
            let format = |number| format!("\"format\":{number},");
            reply = reply.replace(&format(FORMAT), &format(FORMAT + 1));
        }
        result(&[Some(reply)])
    }

    /// Stops as a registry does, and grants nothing.
    fn answer(&self, request: &Request) -> Reply {
        self.asked.lock().unwrap().push(request.clone());
        let mut state = self.state.as_ref().unwrap().lock().unwrap();
        let now = RegistryMillis::new(1000);
        let is_known = request.memory.is_none_or(|memory| {
            let seen = state.era.judge(&memory.era);
            if matches!(seen, EraRelation::After | EraRelation::Rival) {
                state.stopped = Some(Stoppage {
                    since: now,
                    seen: memory.era,
                    by: Box::new(HolderName::from(&request.asker)),
                });
            }
            memory.registry == state.registry
        });
        let answer = match &state.stopped {
            _ if !is_known => {
                state.stopped = None;
                Answer::Refused(RegistryError::Foreign)
            }
            Some(stopped) => Answer::Refused(RegistryError::Stopped(stopped.clone())),
            None if request.ask == RequestKind::look() => Answer::Refused(RegistryError::Fenced {
                why: Fence::TakenOver,
                by: None,
                since: now,
            }),
            None => Answer::Released,
        };
        Reply {
            nonce: request.nonce,
            number: request.number,
            memory: state.memory(None),
            now,
            answer,
        }
    }

    /// How often it was asked for more than a look.
    fn requests(&self) -> usize {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|it| it.ask != RequestKind::look())
            .count()
    }

    fn is_stopped(&self) -> bool {
        let state = self.state.as_ref().unwrap().lock().unwrap();
        state.stopped.is_some()
    }

    fn memory(&self) -> Option<snowflake_core::lease::Memory> {
        Some(self.state.as_ref()?.lock().unwrap().memory(None))
    }
}

/// A message of PostgreSQL's protocol.
fn message(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len() + 4).unwrap().to_be_bytes();
    [&[kind], &length[..], content].concat()
}

/// The content of a message, after its kind.
fn read_message(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    client.read_exact(&mut length).ok()?;
    let mut content = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
    client.read_exact(&mut content).ok()?;
    Some(content)
}

/// The messages that answer a statement with one row.
fn result(values: &[Option<String>]) -> Vec<u8> {
    let count = u16::try_from(values.len()).unwrap().to_be_bytes();
    let (mut columns, mut row) = (count.to_vec(), count.to_vec());
    for value in values {
        columns.extend(b"c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0");
        let text = value.as_ref().map_or("", |text| text);
        let length = value
            .as_ref()
            .map_or(-1, |_| i32::try_from(text.len()).unwrap());
        row.extend(length.to_be_bytes());
        row.extend(text.as_bytes());
    }
    [
        message(b'1', b""),
        message(b'2', b""),
        message(b'T', &columns),
        message(b'D', &row),
        message(b'C', b"SELECT 1\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

fn request(memory: Option<snowflake_core::lease::Memory>) -> Request {
    let identity = ServerKey {
        system: 1,
        boot: 2,
        device: 3,
        inode: 4,
    };
    Request {
        asker: Holder {
            identity,
            started: BootNanos::new(5),
            host: "a".to_string(),
            address: String::new(),
            port: 6,
            data_directory: "/b".to_string(),
        },
        nonce: Nonce(7),
        number: 8,
        clock: UnixMillis::new(9),
        memory,
        ask: RequestKind::Acquire {
            fixed: None,
            last: None,
            holding: None,
        },
    }
}

/// A registry of these hosts; it can be asked as long as the second value lives.
fn registry(ports: &[u16]) -> (PostgresRegistry, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    let server = format!(
        "hostaddr={} port={} user=x dbname=x sslmode=disable gssencmode=disable",
        vec!["127.0.0.1"; ports.len()].join(","),
        ports.join(",")
    );
    let stop = Stop::new(theirs);
    let registry = PostgresRegistry::new(&server, "main".to_string(), stop, Arc::default(), 0);
    (registry, ours)
}

/// Asks, and returns the port of the host that has answered, which grants what it can.
fn ask(
    registry: &mut PostgresRegistry,
    request: &Request,
    time: Duration,
) -> (HostReply, Vec<HostReply>) {
    registry.ask(request, Instant::now() + time)
}

fn is_from(said: &HostReply, host: &Host) -> bool {
    said.host == format!("server at \"127.0.0.1\", port {}", host.port)
}

fn is_good(said: &HostReply) -> bool {
    matches!(&said.reply, Ok(reply) if reply.answer == Answer::Released)
}

#[test]
fn a_host_that_serves_nobody_is_passed_over() {
    let (old, new) = (Host::start(1, 1), Host::start(2, 1));
    let (mut registry, _client) = registry(&[old.port, new.port]);
    let known = request(new.memory());
    let (said, others) = ask(&mut registry, &known, LONG);
    assert!(is_good(&said) && is_from(&said, &new), "{said:?}");
    assert!(is_from(&others[0], &old) && others[0].reply.is_ok());
    assert!(old.is_stopped());
    // From then on, the other one is asked first.
    let (said, others) = ask(&mut registry, &known, LONG);
    assert!(is_from(&said, &new) && others.is_empty());
    registry.session = None;
    let (said, others) = ask(&mut registry, &known, LONG);
    assert!(is_from(&said, &new) && others.is_empty());
    assert_eq!((old.requests(), new.requests()), (1, 3));
}

#[test]
fn if_no_host_serves_the_registry_says_why() {
    let (one, two) = (Host::start(1, 1), Host::start(2, 1));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = closed.local_addr().unwrap().port();
    drop(closed);
    let newest = Host::start(3, 1);
    let (mut registry, _client) = registry(&[one.port, nobody, two.port]);
    let (said, others) = ask(&mut registry, &request(newest.memory()), LONG);
    let refused = said.reply.unwrap().answer;
    assert!(matches!(
        refused,
        Answer::Refused(RegistryError::Stopped(_))
    ));
    assert_eq!(others.len(), 2);
    let (said, _) = ask(&mut registry, &request(two.memory()), LONG);
    assert!(said.reply.is_ok(), "it comes around: {said:?}");
}

#[test]
fn another_registry_and_a_database_without_one_are_passed_over() {
    let (foreign, none, own) = (Host::start(1, 9), Host::serve(None), Host::start(1, 1));
    let (mut registry, _client) = registry(&[foreign.port, none.port, own.port]);
    let (said, others) = ask(&mut registry, &request(own.memory()), LONG);
    assert!(is_good(&said) && is_from(&said, &own), "{said:?}");
    assert!(is_from(&others[0], &foreign));
    assert!(matches!(others[1].reply, Err(PostgresError::NoExtension)));
    assert!(is_from(&others[1], &none));
}

/// One that fails may be the one that counts: who remembers nothing asks no other.
#[test]
fn a_registry_that_fails_is_passed_over_by_who_remembers_one() {
    for order in [[0, 1], [1, 0]] {
        let hosts = [Host::start(1, 1), Host::start(1, 1)];
        hosts[0].fails.store(true, Ordering::Relaxed);
        let ports = order.map(|at: usize| hosts[at].port);
        let (mut registry, _client) = registry(&ports);
        let (said, _) = ask(&mut registry, &request(None), LONG);
        assert!(said.reply.is_err() && is_from(&said, &hosts[0]), "{said:?}");
        assert_eq!(hosts[1].requests(), 0);
        let (said, _) = ask(&mut registry, &request(hosts[1].memory()), LONG);
        assert!(is_good(&said) && is_from(&said, &hosts[1]), "{said:?}");
    }
}

#[test]
fn a_reply_of_another_format_is_not_taken_for_one() {
    let (next, own) = (Host::start(1, 1), Host::start(1, 1));
    next.is_next.store(true, Ordering::Relaxed);
    let (mut registry, _client) = registry(&[next.port, own.port]);
    let (said, _) = ask(&mut registry, &request(None), LONG);
    let Err(PostgresError::Unreadable(MessageError::Format(format))) = said.reply else {
        panic!("{said:?}");
    };
    assert_eq!(format, FORMAT + 1);
}

/// One that knows what the server remembers says more than one that does not.
#[test]
fn a_server_does_not_leave_its_registry_for_another() {
    let (own, foreign, newest) = (Host::start(1, 1), Host::start(1, 9), Host::start(2, 1));
    for ports in [[own.port, foreign.port], [foreign.port, own.port]] {
        let (mut registry, _client) = registry(&ports);
        let (said, others) = ask(&mut registry, &request(newest.memory()), LONG);
        assert!(is_from(&said, &own) && is_from(&others[0], &foreign));
    }
}

#[test]
fn a_host_that_hangs_is_named() {
    let (silent, own) = (TcpListener::bind("127.0.0.1:0").unwrap(), Host::start(1, 1));
    let port = silent.local_addr().unwrap().port();
    let (mut registry, _client) = registry(&[port, own.port]);
    let (said, others) = ask(
        &mut registry,
        &request(own.memory()),
        Duration::from_secs(2),
    );
    assert!(is_good(&said) && is_from(&said, &own), "{said:?}");
    let Err(PostgresError::Libpq(LibpqError::Connect(why))) = &others[0].reply else {
        panic!("{others:?}");
    };
    let named = format!("connection to server at \"127.0.0.1\", port {port} failed: no answer");
    assert!(why.starts_with(&named), "{why}");
}

/// Who remembers nothing gets nothing of an old registry that would serve.
#[test]
fn the_newest_registry_is_asked_first() {
    for order in [[0, 1], [1, 0]] {
        let hosts = [Host::start(1, 1), Host::start(2, 1)];
        let ports = order.map(|at: usize| hosts[at].port);
        let (mut registry, _client) = registry(&ports);
        let (said, _) = ask(&mut registry, &request(None), LONG);
        assert!(is_good(&said) && is_from(&said, &hosts[1]), "{said:?}");
        assert_eq!(hosts[0].requests(), 0);
        assert_eq!(findings(&mut registry, &hosts[1]), [(OtherHost::Stopped)]);
        assert!(hosts[0].is_stopped() && !hosts[1].is_stopped());
    }
}

/// Asks until something is found.
fn findings(registry: &mut PostgresRegistry, host: &Host) -> Vec<OtherHost> {
    let late = Instant::now() + LONG;
    while Instant::now() < late {
        ask(registry, &request(host.memory()), LONG);
        let found: Vec<_> = registry.findings();
        if !found.is_empty() {
            return found.iter().map(|finding| finding.found).collect();
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing is found");
}

#[test]
fn a_newer_registry_is_found_and_a_copy_is_told() {
    let (own, newer) = (Host::start(1, 1), Host::start(2, 1));
    let (mut registry, _client) = registry(&[own.port, newer.port]);
    assert_eq!(findings(&mut registry, &own), [OtherHost::Newer]);
    let (said, _) = ask(&mut registry, &request(own.memory()), LONG);
    assert!(is_from(&said, &newer), "{said:?}");
    // The other one hears of it.
    assert_eq!(findings(&mut registry, &newer), [OtherHost::Stopped]);
    assert!(own.is_stopped());
}

#[test]
fn a_copy_and_another_registry_are_told_and_not_asked() {
    for (key, found) in [(1, OtherHost::Copy), (9, OtherHost::Foreign)] {
        let own = Host::start(1, 1);
        let other = Host::start(if found == OtherHost::Copy { 1 } else { 7 }, key);
        let (mut registry, _client) = registry(&[own.port, other.port]);
        assert_eq!(findings(&mut registry, &own), [found]);
        let (said, _) = ask(&mut registry, &request(own.memory()), LONG);
        assert!(is_from(&said, &own), "{said:?}");
        assert_eq!(other.requests(), 0);
        let looks = other.asked.lock().unwrap();
        // A copy is not told what the server remembers.
        let told = looks.iter().filter(|look| look.memory.is_some()).count();
        assert_eq!(told, usize::from(found == OtherHost::Foreign));
        assert!(!own.is_stopped());
    }
}
