//! Sessions that keep to what the server reports, and the one who reports, explored by loom
//! on the production steps: [`Held`], [`Reported`], [`Live::issue`], and the step of a
//! reservation that moves the word. As in [`super::horizon_interleavings`], a flag without
//! an ordering of its own says that a transaction has ended.

use std::sync::atomic::{AtomicBool as Flag, Ordering::SeqCst as Always};

use loom::sync::Arc;
use loom::thread;

use super::super::clocks::Ledger;
use super::super::horizon::{Held, Holder, Horizon, Processes, Used};
use super::super::id::{Position, Tick, UnixMillis};
use super::super::identity::Generation;
use super::super::reported::{Found, Reported};
use super::super::reservation::Planned;
use super::super::sync::{
    AtomicBool, AtomicI64,
    Ordering::{Acquire, Relaxed, Release},
};
use super::super::word::{Live, Step};
use super::interleavings::plain::{At, G, TICK};
use super::interleavings::{plan, zero};
use super::places::Places;

const KEY: u64 = 7 << 32 | 1;
const DATABASE: u64 = 7 << 32;

struct Server {
    live: Live,
    holders: [Holder; 1],
    used: Used,
    horizon: Horizon,
    reported: Reported,
    ended: AtomicBool,
    /// The table of locks: an instant, 0 if there is none.
    lock: AtomicI64,
}

fn instant(tick: u64) -> UnixMillis {
    G.layout.instant_of(Tick::new(tick))
}

/// The word is in tick 3, and the bound far away.
fn server() -> Arc<Server> {
    let live = Live::new(zero());
    let (from, to) = (Position::new(3 * TICK), Position::new(50 * TICK));
    let plan = plan(Some(from), Position::ZERO, to, to, Ledger::FRESH);
    let written = Planned::new(plan).write(|_| Ok::<(), ()>(()));
    assert!(written.unwrap().move_word(&G, &live).publish(&live));
    Arc::new(Server {
        live,
        holders: Default::default(),
        used: Used::default(),
        horizon: Horizon::default(),
        reported: Reported::default(),
        ended: AtomicBool::new(false),
        lock: AtomicI64::new(0),
    })
}

impl Processes for Server {
    fn holders(&self) -> &[Holder] {
        self.used.of(&self.holders)
    }
}

impl Server {
    /// The places of a session, the first one there.
    fn session(&self) -> Places<'_> {
        self.used.come(0);
        Places(&self.holders[0])
    }

    /// A transaction takes an ID by a clock that was set back, inserts it, and ends.
    fn write(&self, now: i64) -> UnixMillis {
        let mut held = Held::default();
        let layout = G.layout;
        let word = layout.tick_of(self.live.word().position());
        let session = self.session();
        let held_at = layout.instant_of(word);
        held.hold(&session, &self.horizon, KEY, held_at).unwrap();
        let id = self.take(now);
        held.took(&self.holders[0], KEY, id);
        self.end(&mut held);
        id
    }

    /// The same, of a transaction that holds by a lock.
    fn write_locked(&self, now: i64) -> UnixMillis {
        let word = G.layout.tick_of(self.live.word().position());
        self.lock.store(G.layout.instant_of(word).get(), Release);
        self.reported.locks().note();
        let id = self.take(now);
        self.ended.store(true, Relaxed);
        self.lock.store(0, Release);
        id
    }

    /// Takes an ID by this clock, not before what was reported.
    fn take(&self, now: i64) -> UnixMillis {
        let layout = G.layout;
        let word = layout.tick_of(self.live.word().position());
        let at = self.reported.announced();
        if layout.instant_of(word) < at {
            let (from, to) = (layout.tick_within(at), Position::new(50 * TICK));
            let from = layout.at(0, layout.place_of(from));
            let plan = plan(Some(from), to, to, to, Ledger::FRESH);
            let written = Planned::new(plan).write(|_| Ok::<(), ()>(()));
            let _ = written.unwrap().move_word(&G, &self.live);
        }
        let step = self.live.issue::<false>(&G, Generation::NONE, 1, &At(now));
        let Step::Issue(issued) = step else {
            panic!("{step:?}")
        };
        layout.instant_of(layout.tick_of(issued.start))
    }

    fn search(&self) -> Found {
        let at = UnixMillis::new(self.lock.load(Acquire));
        let least = (at != UnixMillis::new(0)).then_some(at);
        let any = least.is_some();
        Found { any, least }
    }

    fn end(&self, held: &mut Held) {
        self.ended.store(true, Relaxed);
        held.withdraw(&self.holders[0]);
    }

    /// What is reported, and whether the transaction has ended by then.
    fn report(&self, now: u64) -> (UnixMillis, bool) {
        let counts = |database| database == DATABASE;
        let report = self
            .reported
            .report(instant(now), self, counts, || self.search());
        (report, self.ended.load(Relaxed))
    }
}

/// Explores all interleavings, and counts that IDs were met on both sides of the report.
fn explore(f: impl Fn() -> (UnixMillis, UnixMillis, bool) + Sync + Send + 'static) {
    let met = std::sync::Arc::new([Flag::new(false), Flag::new(false)]);
    let all = met.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(move || {
        let (id, report, has_ended) = f();
        let is_before = id < report;
        assert!(!is_before || has_ended, "missed {id:?} before {report:?}");
        met[usize::from(is_before)].store(true, Always);
    });
    assert!(all.iter().all(|met| met.load(Always)));
}

#[test]
fn what_is_reported_has_ended_or_lies_before_all_ids_to_come() {
    explore(|| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || s.write(3))
        };
        let (report, has_ended) = s.report(5);
        (writer.join().unwrap(), report, has_ended)
    });
}

#[test]
fn a_lock_is_found_though_none_was_there_before() {
    explore(|| {
        let s = server();
        // The note of the start is withdrawn.
        let _ = s.report(1);
        let writer = {
            let s = s.clone();
            thread::spawn(move || s.write_locked(3))
        };
        let (report, has_ended) = s.report(5);
        (writer.join().unwrap(), report, has_ended)
    });
}

#[test]
fn an_id_from_elsewhere_is_reported_or_refused() {
    explore(|| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let mut held = Held::default();
                let announced = (&s.horizon, &s.reported, G.layout);
                let inserted = held.insert(&s.session(), KEY, instant(4), &announced);
                s.end(&mut held);
                // One that is refused does not appear.
                inserted.map_or(instant(99), |()| instant(4))
            })
        };
        let (report, has_ended) = s.report(5);
        (writer.join().unwrap(), report, has_ended)
    });
}
