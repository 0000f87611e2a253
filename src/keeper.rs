//! The keeper: a background worker that leases the server's worker ID from a registry.
//!
//! [`snowflake_core::lease::node`] says what to ask and what follows; this file gives
//! it the clocks, carries its requests ([`snowflake_registry_client::request`] has the thread that does), and publishes
//! what it may do as the server's identity ([`snowflake_core::identity`]).
//!
//! There is one keeper for each server that has preloaded the library. Without a
//! registry it waits on its latch for a reload and does nothing else.
//!
//! | what ends the keeper | what follows |
//! |---|---|
//! | a stop of the server | it closes all slots, returns the worker ID within [`RELEASE_WAIT`], then those of generators within the same time, and ends |
//! | `pg_terminate_backend()`, an error | the next keeper, a second later, goes on with what is in shared memory: same incarnation, next request. IDs are issued meanwhile |
//! | SIGKILL | a crash of the server: shared memory is made anew, and a new incarnation takes over its own worker ID |
//!
//! # In which order things are stored
//!
//! - The number of a request, and all else of the node, before the request is sent.
//! - What a reply brings, and the identity that follows, under one lock.
//! - For a release: the identity is closed, then the slots, then the end is computed.
//!
//! # A fixed worker ID
//!
//! It is claimed: a server that starts with a registry issues nothing before the grant.
//! A server that is given a registry by a reload goes on under its worker ID as before,
//! without a promise of the registry, until the registry grants it, or says that another
//! server holds it. So servers can be moved to a registry one by one, without a stop,
//! and back: without the registry the fixed worker ID holds at once.

mod queue;
mod report;

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pgrx::bgworkers::{
    BackgroundWorker, BackgroundWorkerBuilder, BgWorkerStartTime, SignalWakeFlags,
};
use pgrx::{PgMemoryContexts, pg_sys};

use self::queue::Queue;
use super::encoding::from_server;
use super::error;
use super::lease_state::{KeptLink, LeaseState, Obstacle, Short, Shown};
use super::shmem::{self, Shared};
use super::{compat, guc, identity, os_clock, start_file};
use snowflake_core::host::Beliefs;
use snowflake_core::id::{BootNanos, Millis, NANOS_PER_MILLI, UnixMillis, WorkerId};
use snowflake_core::lease::ServerKey as Identified;
use snowflake_core::lease::contender::Contenders;
use snowflake_core::lease::node::{Change, Moment, Next, Node, Trouble, Why};
use snowflake_core::lease::{Answer, Ask, Holder, LeaseRefused, Nonce, Reply, Request, Terms};
use snowflake_registry_client::etcd;
use snowflake_registry_client::libpq::Conninfo;
use snowflake_registry_client::request::{RegistryClient, RequestOutcome};

/// The name in `pg_stat_activity`.
const NAME: &str = "snowflake_id keeper";

/// A keeper that ended is started anew after this time.
const RESTART: Duration = Duration::from_secs(1);

/// How long the keeper waits for a reply: a third of a lease, within these limits.
const TIMEOUT_MIN: Duration = Duration::from_millis(500);
const TIMEOUT_MAX: Duration = Duration::from_secs(5);

/// A look-up of a name may take longer than the time-out; this much later the request is
/// given up, and its thread is left alone.
const LOOKUP_GRACE: Duration = Duration::from_secs(1);

/// How long a need counts after a caller has told it; one that still waits tells it again.
/// So a need that the registry does not meet ends with its caller.
const NEED_LASTS: Duration = Duration::from_secs(3);

/// How long the keeper tries to return the worker ID.
const RELEASE_WAIT: Duration = Duration::from_secs(2);

/// The line of postmaster.pid that tells what the server does, and what it says there
/// once it stops: LOCK_FILE_LINE_PM_STATUS and PM_STATUS_STOPPING of miscadmin.h.
const PID_FILE: &str = "postmaster.pid";
const STATUS_LINE: usize = 8;
const STOPPING: &str = "stopping";

/// Registers the keeper. Called only in the postmaster, while it preloads.
pub fn register() {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    BackgroundWorkerBuilder::new(NAME)
        .set_type(NAME)
        .set_library("snowflake_id")
        .set_function("keep_worker_id")
        .enable_spi_access()
        .set_start_time(BgWorkerStartTime::RecoveryFinished)
        .set_restart_time(Some(RESTART))
        .load();
}

/// The main function of the background worker.
#[pgrx::pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn keep_worker_id(_argument: pg_sys::Datum) {
    // SAFETY: in a background worker that starts. Callbacks run in reverse order, so this
    // one, after those of shared memory: on_proc_exit comes after before_shmem_exit.
    unsafe { pg_sys::on_proc_exit(Some(end_at_once), pg_sys::Datum::from(0)) };
    BackgroundWorker::attach_signal_handlers(SignalWakeFlags::SIGHUP | SignalWakeFlags::SIGTERM);
    // A connection to no database: pg_stat_activity shows the process.
    BackgroundWorker::connect_worker_to_spi_by_oid(None, None);
    let Ok(shared) = shmem::shared() else {
        return;
    };
    // SAFETY: as above.
    unsafe {
        pg_sys::before_shmem_exit(Some(leave), pg_sys::Datum::from(0));
        shared.set_keeper(pg_sys::MyLatch);
    }
    let mut context = PgMemoryContexts::new(NAME);
    let mut keeper = Keeper {
        shared,
        link: None,
        queue: None,
    };
    // SAFETY: switched to for each round, and emptied after it: texts of messages.
    unsafe { context.switch_to(|_| keeper.configure()) };
    loop {
        // SAFETY: as above.
        let (socket, millis) = unsafe { context.switch_to(|_| keeper.round()) };
        // SAFETY: nothing in it is used any more.
        unsafe { context.reset() };
        compat::wait_keeper(socket, millis);
    }
}

/// Ends the process without the handlers of exit(3): those of libpq and OpenSSL free what
/// the thread may be using.
unsafe extern "C-unwind" fn end_at_once(code: c_int, _: pg_sys::Datum) {
    // SAFETY: all callbacks that matter have run.
    unsafe { libc::_exit(code) };
}

/// The latch is another process's from now on.
unsafe extern "C-unwind" fn leave(_: c_int, _: pg_sys::Datum) {
    if let Ok(shared) = shmem::shared() {
        shared.set_keeper(std::ptr::null_mut());
    }
}

/// What the settings say.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Target {
    registry: String,
    pool: String,
}

impl Target {
    /// That of generators with worker IDs of their own.
    fn of_queue() -> Option<Self> {
        let (registry, pool) = (guc::registry(), guc::queue_pool());
        (!registry.is_empty() && !pool.is_empty()).then_some(Self { registry, pool })
    }

    fn configured() -> Option<Self> {
        let registry = guc::registry();
        (!registry.is_empty()).then(|| Self {
            registry,
            pool: guc::pool(),
        })
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// The registry without secrets.
    fn described(&self) -> String {
        if etcd::url::is_etcd(&self.registry) {
            let url = etcd::url::Url::parse(&self.registry);
            return url.map_or_else(|_| "etcd".to_string(), |url| url.describe());
        }
        let server = Conninfo::parse(&self.registry);
        let described = server.map(|server| server.describe()).unwrap_or_default();
        if described.is_empty() {
            return "libpq's default server".to_string();
        }
        described
    }
}

/// The registry of the settings, without secrets, and the pool; for who asks before a
/// keeper has run, as on a standby.
pub fn configured() -> Option<(String, String)> {
    Target::configured().map(|target| (target.described(), target.pool))
}

/// Why a node ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The server stops.
    Stop,
    /// The settings name another registry or pool.
    OtherRegistry,
    /// The settings name none any more.
    NoRegistry,
}

/// A request that was sent.
struct Asked {
    number: u64,
    until: Instant,
}

/// An instant past which a caller needs a bound.
struct Needed {
    instant: UnixMillis,
    told: Instant,
}

/// The server's node, towards one registry.
struct Link {
    target: Target,
    started: BootNanos,
    nonce: Nonce,
    node: Node,
    /// Who else claims the worker ID. Another keeper tells of them anew.
    contenders: Contenders,
    /// The latest instant that a caller needs, until the bound is past it, or nobody
    /// tells it any more.
    needed: Option<Needed>,
    client: Option<RegistryClient>,
    asked: Option<Asked>,
    /// What [`Shared::furthest`], which goes through all slots, has said in this round.
    furthest: Cell<Option<Option<UnixMillis>>>,
    /// The registry is on this server itself.
    here: Arc<AtomicBool>,
}

struct Keeper {
    shared: &'static Shared,
    link: Option<Link>,
    /// For generators with worker IDs of their own.
    queue: Option<Queue>,
}

/// How long to wait at most while the server and a generator wait for replies: there is one
/// socket that the latch can be waited for with.
const BOTH_WAIT_MILLIS: i64 = 20;

impl Keeper {
    /// Does all that can be done now. Returns what to wait for: a socket, and for how
    /// many milliseconds; without an end if there are none.
    fn round(&mut self) -> (Option<c_int>, Option<i64>) {
        // Barriers of PostgreSQL's; SIGTERM only sets a flag.
        pgrx::check_for_interrupts!();
        catch_up();
        if BackgroundWorker::sigterm_received() {
            self.end();
        }
        if BackgroundWorker::sighup_received() {
            // SAFETY: in the main loop of a background worker.
            unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
            self.configure();
        }
        let shared = self.shared;
        let own = self.link.as_mut().map(|link| link.round(shared));
        let queue = self.queue.as_mut().map(|queue| {
            if queue.is_here() && is_stopping() {
                queue.disconnect();
                return (None, None);
            }
            queue.round(shared)
        });
        let (own, own_millis) = own.unwrap_or((None, None));
        let (other, other_millis) = queue.unwrap_or((None, None));
        let millis = own_millis.into_iter().chain(other_millis).min();
        let both = own.is_some() && other.is_some();
        let limit = both.then_some(BOTH_WAIT_MILLIS);
        (other.or(own), millis.into_iter().chain(limit).min())
    }

    /// Follows the settings.
    fn configure(&mut self) {
        self.configure_own();
        let target = Target::of_queue();
        if self.queue.as_ref().map(|queue| &queue.target) != target.as_ref() {
            if let Some(queue) = self.queue.take() {
                queue.end(self.shared, false);
            }
            self.queue = target.map(Queue::new);
        }
    }

    fn configure_own(&mut self) {
        let target = Target::configured();
        if self.link.as_ref().map(|link| &link.target) == target.as_ref() {
            if self.link.is_none() {
                // The settings were changed while there was no keeper.
                self.shared.with_keeper(leave_registry);
            }
            return;
        }
        if let Some(link) = self.link.take() {
            let why = if target.is_none() {
                End::NoRegistry
            } else {
                End::OtherRegistry
            };
            link.end(self.shared, why);
        }
        let Some(target) = target else {
            self.shared.with_keeper(leave_registry);
            let message = "the worker ID comes from the settings, without a registry";
            error::keeper::follows(message.to_string()).log("");
            return;
        };
        self.link = Some(Link::new(target, self.shared));
    }

    /// SIGTERM has come: the server stops, or somebody has ended this process.
    fn end(&mut self) -> ! {
        let code = match (self.link.take(), is_stopping()) {
            (Some(link), true) => {
                link.end(self.shared, End::Stop);
                1
            }
            // PostgreSQL does not start another keeper after this code, and logs nothing.
            (None, true) => 0,
            (_, false) => 1,
        };
        if let Some(queue) = self.queue.take().filter(|_| is_stopping()) {
            queue.end(self.shared, true);
        }
        compat::exit(code)
    }
}

/// Reads the messages that tell of changed catalogs, if PostgreSQL asks for that. It asks one
/// process after the other, and each passes that on when it has read. The keeper may run no
/// transaction for as long as the server does: who waits behind it would be asked late, and
/// lose all that it knows of the catalogs.
fn catch_up() {
    // SAFETY: between two transactions, each of which leaves another memory context.
    unsafe {
        if pg_sys::catchupInterruptPending != 0 {
            let context = pg_sys::CurrentMemoryContext;
            pg_sys::ProcessCatchupInterrupt();
            pg_sys::MemoryContextSwitchTo(context);
        }
    }
}

/// Whether the server stops; not if that cannot be read, since the worker ID stays then.
fn is_stopping() -> bool {
    // A server's working directory is its data directory.
    let text = std::fs::read_to_string(PID_FILE).unwrap_or_default();
    text.lines()
        .nth(STATUS_LINE - 1)
        .is_some_and(|line| line.trim() == STOPPING)
}

/// Without a registry the server has the worker ID of its settings, at once.
fn leave_registry(beliefs: &mut Beliefs, state: &mut LeaseState) {
    let identity = beliefs.identity;
    let since = state.shown.since.filter(|_| identity.bound.is_none());
    *state = LeaseState::default();
    state.shown.since = since.or_else(|| Some(os_clock::wall().millis()));
    if identity.bound.is_some() {
        beliefs.identity = identity.unregistered(guc::worker_id());
    }
}

/// Nothing is issued from here on. Returns where the IDs of the identity before end.
fn close(shared: &Shared) -> UnixMillis {
    let before = shared.with_beliefs(|beliefs| {
        let before = beliefs.identity;
        beliefs.identity = before.closed();
        before
    });
    let slots = shared.close_slots();
    before.end(slots, os_clock::wall().millis())
}

fn nonce() -> Nonce {
    let mut random = [0; size_of::<u128>()];
    // SAFETY: as many bytes as there are.
    let filled = unsafe {
        pg_sys::pg_strong_random(random.as_mut_ptr().cast(), random.len() as pg_sys::Size)
    };
    if !filled {
        pgrx::error!("snowflake_id: could not generate a random nonce");
    }
    Nonce(u128::from_ne_bytes(random))
}

/// Why the registry does not give what a node asks for.
fn obstacle_of(trouble: &Trouble, boot: BootNanos) -> Obstacle {
    Obstacle {
        since: trouble.since,
        began: boot,
        held: match &trouble.why {
            Why::Refused(LeaseRefused::Held { worker, .. }) => Some(*worker),
            _ => None,
        },
        is_refusal: matches!(trouble.why, Why::Refused(_)),
        text: Short::new(&error::keeper::reason(&trouble.why)),
    }
}

/// How long the keeper waits for a reply.
fn timeout_of(terms: Option<&Terms>) -> Duration {
    let lease = terms.map_or(Millis::ZERO, |terms| terms.lease);
    let third = u64::try_from(lease.get() / 3).unwrap_or_default();
    match third {
        0 => TIMEOUT_MAX,
        third => Duration::from_millis(third).clamp(TIMEOUT_MIN, TIMEOUT_MAX),
    }
}

/// This server, or a generator of it, for the registry.
fn holder(started: BootNanos, generator: u64) -> Holder {
    // SAFETY: settings of the server; the directory is NUL-terminated.
    let (port, directory) = unsafe {
        let directory = CStr::from_ptr(pg_sys::DataDir);
        (pg_sys::PostPortNumber, from_server(directory))
    };
    Holder {
        identity: Identified {
            generator,
            ..identity::identity()
        },
        started,
        host: start_file::host_name(),
        // The registry's server sees it, and fills it in.
        address: String::new(),
        port: u16::try_from(port).unwrap_or_default(),
        data_directory: directory,
    }
}

/// What a node finds around it. `furthest` is of what was issued, or what a caller needs
/// next, from a generator that leads the clock: that is told as if it were used.
fn moment(furthest: Option<UnixMillis>) -> Moment {
    Moment {
        boot: os_clock::boot(),
        clock: os_clock::wall().millis(),
        furthest: furthest.unwrap_or(UnixMillis::new(0)),
        // SAFETY: reads shared memory.
        in_recovery: unsafe { pg_sys::RecoveryInProgress() },
    }
}

impl Link {
    /// Begins with this registry, or goes on where another keeper ended.
    fn new(target: Target, shared: &Shared) -> Self {
        let hash = target.hash();
        let kept = shared.with_keeper(|beliefs, state| {
            let kept = state.link.clone().filter(|kept| kept.target == hash)?;
            // The other keeper may have ended while it closed.
            let is_in_force =
                kept.node.right().is_none() || state.granted == beliefs.identity.generation;
            is_in_force.then_some(kept)
        });
        let fixed = guc::worker_id();
        let (started, nonce, node) = match kept {
            Some(kept) => {
                let me = holder(kept.started, 0);
                let nonce = kept.node.nonce();
                (kept.started, nonce, Node::resumed(me, fixed, kept.node))
            }
            None => {
                let (started, nonce) = (os_clock::boot(), nonce());
                (
                    started,
                    nonce,
                    Node::new(holder(started, 0), nonce, fixed, None),
                )
            }
        };
        let link = Self {
            target,
            started,
            nonce,
            node,
            contenders: Contenders::default(),
            needed: None,
            client: None,
            asked: None,
            furthest: Cell::new(None),
            here: Arc::default(),
        };
        let kept = link.kept();
        let (registry, pool) = (link.target.described(), link.target.pool.clone());
        let is_resumed = link.node.latest_number() > 0;
        shared.with_keeper(|beliefs, state| {
            let identity = beliefs.identity;
            // A grant of which nothing is known any more, and a server without a worker
            // ID of its own.
            let is_foreign = identity.bound.is_some() && identity.generation.worker().is_some();
            let has_none = identity.bound.is_none() && identity.generation.worker().is_none();
            if !is_resumed && (is_foreign || has_none) {
                beliefs.identity = identity.closed();
            }
            if !is_resumed {
                state.shown = Shown::default();
            }
            if beliefs.identity.generation.worker().is_none() {
                state.shown.waits_since = Some(os_clock::boot());
            }
            state.shown.registry = Short::new(&registry);
            state.shown.pool = Short::new(&pool);
            state.link = Some(kept);
        });
        link
    }

    fn kept(&self) -> KeptLink {
        KeptLink {
            target: self.target.hash(),
            started: self.started,
            node: self.node.kept(),
        }
    }

    fn is_here(&self) -> bool {
        self.here.load(Ordering::Relaxed)
    }

    /// As [`Queue::round`].
    fn round(&mut self, shared: &Shared) -> (Option<c_int>, Option<i64>) {
        if self.is_here() && is_stopping() {
            // The keeper's session is a client's, and a smart stop waits for clients. IDs
            // go on to the bound.
            self.client = None;
            self.asked = None;
            return (None, None);
        }
        self.furthest.set(None);
        self.hear_needs(shared);
        self.listen(shared);
        let millis = self.go_on(shared);
        (self.client.as_ref().map(RegistryClient::socket), millis)
    }

    /// The client, made if there is none.
    fn client(&mut self) -> Result<&mut RegistryClient, String> {
        let client = match self.client.take() {
            Some(client) => client,
            None => RegistryClient::new(
                &self.target.registry,
                &self.target.pool,
                identity::postmaster_start(),
                &self.here,
            )
            .map_err(|error| format!("Could not start a thread: {error}."))?,
        };
        Ok(self.client.insert(client))
    }

    /// Takes what callers need, and forgets what nobody tells any more.
    fn hear_needs(&mut self, shared: &Shared) {
        let now = Instant::now();
        let is_old = |needed: &mut Needed| now.duration_since(needed.told) >= NEED_LASTS;
        if self.needed.take_if(is_old).is_some() {
            self.node.need_no_more();
        }
        shared.know_need(self.needed.as_ref().map(|needed| needed.instant));
        let Some(instant) = shared.take_need() else {
            return;
        };
        self.node.need(instant);
        let is_latest = |needed: &Needed| instant >= needed.instant;
        if self.needed.as_ref().is_none_or(is_latest) {
            self.needed = Some(Needed { instant, told: now });
        }
        shared.know_need(self.needed.as_ref().map(|needed| needed.instant));
    }

    fn moment(&self, shared: &Shared) -> Moment {
        // Before the clocks: what is issued from here on is not told.
        let furthest = self.furthest.get().unwrap_or_else(|| shared.furthest());
        self.furthest.set(Some(furthest));
        let needed = self.needed.as_ref().map(|needed| needed.instant);
        moment(furthest.max(needed))
    }

    /// Sends what is due. Returns for how many milliseconds to wait.
    fn go_on(&mut self, shared: &Shared) -> Option<i64> {
        loop {
            let now = self.moment(shared);
            match self.node.next(&now) {
                Next::Sleep(nanos) => {
                    let millis = nanos.get() / NANOS_PER_MILLI + 1;
                    return Some(millis.max(1));
                }
                Next::Await => {
                    let left = self.asked.as_ref().map_or(Duration::ZERO, |asked| {
                        asked.until.saturating_duration_since(Instant::now())
                    });
                    return i64::try_from(left.as_millis() + 1).ok();
                }
                Next::Send(mut request) => {
                    let number = request.number;
                    if matches!(request.ask, Ask::Renew { .. }) {
                        request.ask = request.ask.reporting(report::report(shared));
                    }
                    if let Err(why) = self.send(shared, number, *request) {
                        self.failed(shared, number, why);
                    }
                }
            }
        }
    }

    /// Sends a request, which is stored before.
    fn send(&mut self, shared: &Shared, number: u64, request: Request) -> Result<(), String> {
        let kept = self.kept();
        shared.with_keeper(|_, state| state.link = Some(kept));
        let timeout = timeout_of(self.node.terms());
        self.asked = Some(Asked {
            number,
            until: Instant::now() + timeout + LOOKUP_GRACE,
        });
        self.client()?.send(number, request, timeout);
        Ok(())
    }

    /// Takes what the thread has brought, and gives up what it has not.
    fn listen(&mut self, shared: &Shared) {
        while let Some(RequestOutcome { number, reply }) =
            self.client.as_mut().and_then(RegistryClient::take)
        {
            self.asked.take_if(|asked| asked.number == number);
            match reply {
                Ok(reply) if (reply.nonce, reply.number) == (self.nonce, number) => {
                    self.heard(shared, &reply);
                }
                Ok(_) => {
                    let why = "The reply of the registry answers another request.";
                    self.failed(shared, number, why.to_string());
                }
                Err(why) => {
                    let why = error::client::sentence(&why, &self.target.pool);
                    self.failed(shared, number, why);
                }
            }
        }
        if self.client.take_if(|client| client.has_ended()).is_some()
            && let Some(Asked { number, .. }) = self.asked.take()
        {
            let why = "The thread that asks the registry has ended.";
            self.failed(shared, number, why.to_string());
        }
        let is_late = |asked: &mut Asked| Instant::now() >= asked.until;
        if let Some(Asked { number, .. }) = self.asked.take_if(is_late) {
            self.client = None;
            let why = "The registry did not answer in time; the look-up of its host name may hang.";
            self.failed(shared, number, why.to_string());
        }
    }

    fn failed(&mut self, shared: &Shared, number: u64, why: String) {
        self.asked.take_if(|asked| asked.number == number);
        let now = self.moment(shared);
        let change = self.node.failed(number, why, &now);
        self.follow(shared, &change, None);
    }

    fn heard(&mut self, shared: &Shared, reply: &Reply) {
        let now = self.moment(shared);
        let change = self.node.heard(reply, &now);
        self.follow(shared, &change, Some(reply));
        if matches!(change, Change::Acquired { .. }) {
            self.contenders = Contenders::default();
        }
        self.tell_of_contender(reply);
    }

    /// Tells the log who else claims the worker ID, once.
    fn tell_of_contender(&mut self, reply: &Reply) {
        let Answer::Renewed {
            contender: Some(contender),
            ..
        } = &reply.answer
        else {
            return;
        };
        let (Some(right), Some(terms)) = (self.node.right(), self.node.terms()) else {
            return;
        };
        if self.contenders.hear(contender, terms) {
            let is_fixed = guc::worker_id().is_some();
            error::keeper::contested(right.worker, contender, is_fixed, &self.target.pool)
                .warning();
        }
    }

    /// Publishes what the node has come to, and tells the log.
    fn follow(&mut self, shared: &Shared, change: &Change, reply: Option<&Reply>) {
        let now = os_clock::wall().millis();
        let boot = os_clock::boot();
        let right = self.node.right();
        self.needed
            .take_if(|needed| right.is_some_and(|right| right.bound > needed.instant));
        shared.know_need(self.needed.as_ref().map(|needed| needed.instant));
        let max_ahead = self.node.terms().map(|terms| terms.max_ahead);
        let until = reply.and_then(|reply| match &reply.answer {
            Answer::Granted(grant) => Some(grant.until),
            Answer::Renewed { until, .. } => Some(*until),
            _ => None,
        });
        let (kept, nonce) = (self.kept(), self.nonce);
        let obstacle = self.node.trouble().map(|it| obstacle_of(it, boot));
        let reached = match change {
            Change::Acquired { reached, .. } => Some(*reached),
            _ => None,
        };
        let is_held = obstacle.as_ref().is_some_and(|it| it.held.is_some());
        // The worker ID of the settings, for which the server has no claim.
        let mut unclaimed = None;
        shared.with_keeper(|beliefs, state| {
            let identity = beliefs.identity;
            let shown = &mut state.shown;
            if let (Some(right), Some(max_ahead)) = (right, max_ahead) {
                if let Some(reached) = reached {
                    let granted = identity.granted(
                        right.worker,
                        right.floor,
                        right.bound,
                        reached,
                        max_ahead,
                    );
                    beliefs.identity = granted;
                    state.granted = granted.generation;
                    shown.since = Some(now);
                    shown.waits_since = None;
                } else if state.granted == identity.generation {
                    beliefs.identity = identity.renewed(right.bound);
                }
                shown.counter = right.counter;
                shown.nonce = Some(nonce);
            }
            if identity.bound.is_none() && right.is_none() {
                unclaimed = identity.generation.worker();
            }
            shown.leased_until = until.or(shown.leased_until);
            if reply.is_some() {
                shown.last_contact = Some(now);
            }
            let began = shown.trouble.as_ref().map(|before| before.began);
            shown.trouble = obstacle.map(|obstacle| Obstacle {
                began: began.unwrap_or(boot),
                ..obstacle
            });
            state.link = Some(kept);
        });
        if is_held && unclaimed.take().is_some() {
            let _ = close(shared);
            shared.with_keeper(|_, state| state.shown.waits_since = Some(boot));
        }
        self.tell(shared, change, unclaimed, now);
        if *change == Change::Copied {
            let _ = close(shared);
            shared.with_keeper(|_, state| state.link = None);
            *self = Self::new(self.target.clone(), shared);
        }
    }

    /// One line in the log for each change.
    fn tell(&self, shared: &Shared, change: &Change, unclaimed: Option<WorkerId>, now: UnixMillis) {
        let right = self.node.right();
        let right = right.as_ref();
        let shown = || shared.with_keeper(|_, state| state.shown.clone());
        match change {
            Change::Nothing | Change::Returned => {}
            Change::Acquired { before, .. } => {
                if let Some(right) = right {
                    error::keeper::acquired(&shown(), right, *before, now).log("");
                }
            }
            Change::Resumed(trouble) => error::keeper::resumed(right, trouble, now).log(""),
            Change::Lost(trouble) => {
                if let Some(right) = right {
                    error::keeper::lost(right, trouble, true).warning();
                }
            }
            Change::Troubled(trouble) => {
                let right = (right, self.node.holds());
                let fixed = guc::worker_id();
                error::keeper::troubled(&shown(), right, fixed, unclaimed, trouble).warning();
            }
            Change::Copied => error::keeper::copied().warning(),
        }
    }

    /// Returns the worker ID. Without a registry from now on, the server goes on with
    /// the worker ID of its settings at once, if there is one.
    fn end(mut self, shared: &Shared, why: End) {
        let deadline = Instant::now() + RELEASE_WAIT;
        let is_granted = shared.with_keeper(|beliefs, state| {
            self.node.right().is_some() && state.granted == beliefs.identity.generation
        });
        if !is_granted && self.asked.is_none() {
            return;
        }
        // A worker ID of the settings that is not claimed yet stays in use.
        let end = if is_granted || why == End::Stop {
            close(shared)
        } else {
            let now = self.moment(shared);
            now.clock.max(now.furthest)
        };
        if why == End::NoRegistry {
            shared.with_keeper(leave_registry);
        }
        if why == End::Stop && self.is_here() {
            // A server that stops lets nobody in.
            if let Some(right) = self.node.right() {
                error::keeper::kept(right.worker, &self.target.pool).log("");
            }
            return;
        }
        let before = self.await_outcome(shared, Instant::now() + RELEASE_WAIT / 2);
        if let Some(Ok(Change::Copied)) = before {
            error::keeper::copied().warning();
        }
        let Some(right) = self.node.right() else {
            return;
        };
        if let Some(Ok(Change::Lost(trouble))) = before {
            error::keeper::lost(&right, &trouble, false).warning();
        }
        let now = self.moment(shared);
        let Some(mut request) = self.node.close(end.max(right.floor), &now) else {
            return;
        };
        let held = report::held(shared, why == End::Stop);
        request.ask = request.ask.holding(held);
        let number = request.number;
        let pool = self.target.pool.clone();
        let sent = self.send(shared, number, request);
        let outcome = match sent {
            Ok(()) => self.await_outcome(shared, deadline),
            Err(why) => Some(Err(why)),
        };
        match outcome {
            Some(Ok(Change::Returned)) => {
                error::keeper::returned(right.worker, &pool).log("");
            }
            Some(Ok(Change::Lost(trouble))) => {
                error::keeper::lost(&right, &trouble, false).warning();
            }
            Some(Ok(Change::Copied)) => error::keeper::copied().warning(),
            Some(Err(why)) => error::keeper::not_returned(right.worker, &pool, &why).warning(),
            answered => {
                let trouble = answered.and(self.node.trouble());
                let why = trouble.map_or_else(
                    || "The registry did not confirm it in time.".to_string(),
                    |trouble| error::keeper::reason(&trouble.why),
                );
                error::keeper::not_returned(right.worker, &pool, &why).warning();
            }
        }
        shared.with_keeper(|_, state| state.link = None);
    }

    /// Waits for the outcome of the request that is under way; what the node makes of it
    /// is not published, since the server has closed. `None` if none comes.
    fn await_outcome(
        &mut self,
        shared: &Shared,
        deadline: Instant,
    ) -> Option<Result<Change, String>> {
        let asked = self.asked.take()?;
        let client = self.client.as_mut()?;
        loop {
            while let Some(RequestOutcome { number, reply }) = client.take() {
                if number != asked.number {
                    continue;
                }
                let now = self.moment(shared);
                return Some(match reply {
                    Ok(reply) => Ok(self.node.heard(&reply, &now)),
                    Err(why) => {
                        let why = error::client::sentence(&why, &self.target.pool);
                        let _ = self.node.failed(number, why.clone(), &now);
                        Err(why)
                    }
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || client.has_ended() {
                // The thread may be busy still: the release gets another one.
                self.client = None;
                return None;
            }
            let millis = i64::try_from(left.as_millis() + 1).unwrap_or(1);
            compat::wait_keeper(Some(client.socket()), Some(millis));
        }
    }
}
