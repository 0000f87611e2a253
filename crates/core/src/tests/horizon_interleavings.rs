//! Sessions that hold the horizon and readers of it, explored by loom on the production
//! steps: [`Held`], [`Live::issue`], [`Horizon`].
//!
//! A transaction that has ended says so in a flag with no ordering of its own: a reader that
//! must see its rows has to see the flag by what the holds order.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool as Flag, Ordering::SeqCst as Always};

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::super::clocks::Ledger;
use super::super::horizon::{Held, Holder, Horizon, PLACES, Processes, Session, Used};
use super::super::id::{Position, Tick, UnixMillis};
use super::super::identity::Generation;
use super::super::reservation::Planned;
use super::super::sync::{AtomicBool, Ordering::Relaxed};
use super::super::word::{Live, Step};
use super::interleavings::plain::{At, G, TICK};
use super::interleavings::{plan, zero};
use super::places::Places;

const KEY: u64 = 7 << 32 | 1;

struct Server {
    live: Live,
    holders: [Holder; 2],
    used: Used,
    horizon: Horizon,
    /// Whether the transaction of each session has ended.
    ended: [AtomicBool; 2],
    /// The hold by a lock, in PostgreSQL's table of locks.
    lock: Mutex<Option<UnixMillis>>,
}

fn instant(tick: u64) -> UnixMillis {
    G.layout.instant_of(Tick::new(tick))
}

/// A session without places.
struct Locks<'a>(&'a Server, &'a Holder);

impl Session for Locks<'_> {
    type Error = Infallible;

    fn holder(&self) -> &Holder {
        self.1
    }

    fn lock(&self, key: u64, at: UnixMillis) -> Result<(), Infallible> {
        if key == KEY {
            let mut lock = self.0.lock.lock().unwrap();
            *lock = Some(lock.map_or(at, |before| before.min(at)));
        }
        Ok(())
    }
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
        ended: Default::default(),
        lock: Mutex::new(None),
    })
}

impl Processes for Server {
    fn holders(&self) -> &[Holder] {
        self.used.of(&self.holders)
    }
}

impl Server {
    /// The places of a session, which may be the first one there.
    fn session(&self, mine: usize) -> Places<'_> {
        self.used.come(u32::try_from(mine).unwrap());
        Places(&self.holders[mine])
    }

    fn step(&self, now: i64, count: u64) -> UnixMillis {
        match self
            .live
            .issue::<false>(&G, Generation::NONE, count, &At(now))
        {
            Step::Issue(issued) => G.layout.instant_of(G.layout.tick_of(issued.start)),
            step => panic!("{step:?}"),
        }
    }

    /// Takes an ID, and returns its instant.
    fn take(&self, mine: usize, held: &mut Held, now: i64) -> UnixMillis {
        let word = self.live.word().position();
        let at = G.layout.instant_of(G.layout.tick_of(word));
        let session = self.session(mine);
        held.hold(&session, &self.horizon, KEY, at).unwrap();
        let id = self.step(now, 1);
        held.took(&self.holders[mine], KEY, id);
        id
    }

    fn end(&self, mine: usize, held: &mut Held) {
        self.ended[mine].store(true, Relaxed);
        held.withdraw(&self.holders[mine]);
    }

    /// A transaction that inserts the ID that it takes.
    fn write(&self, mine: usize, now: i64) -> UnixMillis {
        let mut held = Held::default();
        let id = self.take(mine, &mut held, now);
        self.end(mine, &mut held);
        id
    }

    /// Reads the horizon, and which transactions have ended by the snapshot after it.
    fn read(&self, now: i64) -> (UnixMillis, [bool; 2]) {
        let reached = self.step(now, 0);
        let search = || *self.lock.lock().unwrap();
        let horizon = self.horizon.read(reached, self, KEY, search);
        (
            horizon,
            self.ended.each_ref().map(|ended| ended.load(Relaxed)),
        )
    }
}

/// Remembers which of both cases have been met: a test that meets one only proves nothing.
#[derive(Default)]
struct Met {
    seen: Flag,
    held_back: Flag,
}

impl Met {
    /// An ID before the horizon is one that the reader sees.
    fn check(&self, id: UnixMillis, horizon: UnixMillis, is_seen: bool) {
        if id < horizon {
            assert!(is_seen, "missed {id:?} before {horizon:?}");
            self.seen.store(true, Always);
        } else {
            self.held_back.store(true, Always);
        }
    }

    fn assert_both(&self) {
        assert!(self.seen.load(Always) && self.held_back.load(Always));
    }
}

/// Explores all interleavings in which threads are interrupted up to this often, or as
/// LOOM_MAX_PREEMPTIONS says.
fn explore(interruptions: usize, f: impl Fn(&Met) + Sync + Send + 'static) {
    let met = std::sync::Arc::new(Met::default());
    let all = met.clone();
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(interruptions));
    model.check(move || f(&all));
    met.assert_both();
}

#[test]
fn a_reader_sees_all_rows_before_the_horizon() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || s.write(0, 3))
        };
        let (horizon, seen) = s.read(5);
        met.check(writer.join().unwrap(), horizon, seen[0]);
    });
}

/// The reader loads the word as one writer has left it, and must see the other one.
#[test]
fn a_reader_sees_the_rows_of_two_writers() {
    explore(2, |met| {
        let s = server();
        let writers: Vec<_> = [3, 4]
            .into_iter()
            .enumerate()
            .map(|(mine, now)| {
                let s = s.clone();
                thread::spawn(move || s.write(mine, now))
            })
            .collect();
        let (horizon, seen) = s.read(5);
        for (writer, seen) in writers.into_iter().zip(seen) {
            met.check(writer.join().unwrap(), horizon, seen);
        }
    });
}

/// The second transaction of a session takes the place of the first.
#[test]
fn a_session_goes_on_to_its_next_transaction() {
    explore(2, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let mut held = Held::default();
                let first = s.take(0, &mut held, 3);
                s.end(0, &mut held);
                let second = s.take(0, &mut held, 4);
                s.ended[1].store(true, Relaxed);
                held.withdraw(&s.holders[0]);
                [first, second]
            })
        };
        let (horizon, seen) = s.read(5);
        for (id, seen) in writer.join().unwrap().into_iter().zip(seen) {
            met.check(id, horizon, seen);
        }
    });
}

/// A reader may return what another one has found.
#[test]
fn two_readers_and_a_writer() {
    explore(1, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || s.write(0, 3))
        };
        let other = {
            let s = s.clone();
            thread::spawn(move || s.read(5))
        };
        let (horizon, seen) = s.read(4);
        let id = writer.join().unwrap();
        met.check(id, horizon, seen[0]);
        let (horizon, seen) = other.join().unwrap();
        met.check(id, horizon, seen[0]);
    });
}

/// An ID of tick 4 comes from elsewhere, while the horizon moves past it.
#[test]
fn an_id_from_elsewhere_is_seen_or_refused() {
    let refused = std::sync::Arc::new(Flag::new(false));
    let all = refused.clone();
    explore(3, move |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let mut held = Held::default();
                let inserted = held.insert(&s.session(0), KEY, instant(4), &s.horizon);
                s.end(0, &mut held);
                inserted.is_ok()
            })
        };
        let (horizon, seen) = s.read(5);
        if writer.join().unwrap() {
            met.check(instant(4), horizon, seen[0]);
        } else {
            all.store(true, Always);
        }
    });
    assert!(refused.load(Always));
}

/// The same of a session that has taken a later ID before, and inserts that one as well.
#[test]
fn an_id_from_elsewhere_beside_ones_own() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let mut held = Held::default();
                let own = s.take(0, &mut held, 5);
                let other = held.insert(&s.session(0), KEY, instant(4), &s.horizon);
                let again = held.insert(&s.session(0), KEY, own, &s.horizon);
                assert_eq!(again, Ok(()), "its own ID is refused");
                s.end(0, &mut held);
                (own, other.is_ok())
            })
        };
        let (horizon, seen) = s.read(6);
        let (own, other) = writer.join().unwrap();
        met.check(own, horizon, seen[0]);
        if other {
            met.check(instant(4), horizon, seen[0]);
        }
    });
}

/// A transaction is prepared, and commits later.
#[test]
fn a_prepared_transaction_holds_the_horizon() {
    explore(2, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let mut held = Held::default();
                let id = s.take(0, &mut held, 3);
                for (key, at) in held.iter() {
                    assert_eq!(key, KEY);
                    *s.lock.lock().unwrap() = Some(at);
                    s.horizon.lock();
                }
                held.withdraw(&s.holders[0]);
                // COMMIT PREPARED
                s.ended[0].store(true, Relaxed);
                *s.lock.lock().unwrap() = None;
                id
            })
        };
        // The first one may find that nothing is prepared.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

/// A transaction holds more generators than it has places, and this one by a lock.
#[test]
fn a_generator_without_a_place_is_held_by_a_lock() {
    explore(2, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let (mut held, session) = (Held::default(), Locks(&s, s.session(0).0));
                for other in 1..=PLACES as u64 {
                    let key = KEY + other;
                    held.hold(&session, &s.horizon, key, instant(1)).unwrap();
                }
                let word = s.live.word().position();
                let at = G.layout.instant_of(G.layout.tick_of(word));
                held.hold(&session, &s.horizon, KEY, at).unwrap();
                let id = s.step(3, 1);
                held.took(&s.holders[0], KEY, id);
                s.ended[0].store(true, Relaxed);
                held.withdraw(&s.holders[0]);
                *s.lock.lock().unwrap() = None;
                id
            })
        };
        // The first one may find that there is no lock.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

/// An ID from elsewhere, held by a lock.
#[test]
fn an_id_from_elsewhere_without_a_place_is_seen_or_refused() {
    let refused = std::sync::Arc::new(Flag::new(false));
    let all = refused.clone();
    explore(2, move |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let (mut held, session) = (Held::default(), Locks(&s, s.session(0).0));
                for other in 1..=PLACES as u64 {
                    let key = KEY + other;
                    held.hold(&session, &s.horizon, key, instant(1)).unwrap();
                }
                let inserted = held.insert(&session, KEY, instant(4), &s.horizon);
                s.ended[0].store(true, Relaxed);
                held.withdraw(&s.holders[0]);
                *s.lock.lock().unwrap() = None;
                inserted.is_ok()
            })
        };
        let (horizon, seen) = s.read(5);
        if writer.join().unwrap() {
            met.check(instant(4), horizon, seen[0]);
        } else {
            all.store(true, Always);
        }
    });
    assert!(refused.load(Always));
}
