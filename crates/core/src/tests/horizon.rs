//! What a transaction holds, and what a reader gets: one thread.

use std::cell::{Cell, RefCell};

use super::places::Places;
use super::scripted::{MS, Server};
use crate::horizon::{
    Announced, BEGINNING, Horizon, InsertError, PLACES, ProcessHolds, Session, SessionHolds,
    ShownHold, least,
};
use crate::id::layout::OrderError;
use crate::id::{BootNanos, UnixMillis, UnixNanos};
use crate::label::Label;
use crate::label::generator::{Descent, Generator};
use crate::label::policy::SequenceStart;
use crate::protocol::advance_to_now;
use crate::protocol::clock::Reading;
use crate::protocol::slot::{Reserving, Scale, Slot};

const DATABASE: u64 = 5 << 32;

fn at(millis: i64) -> UnixMillis {
    UnixMillis::new(millis)
}

const NOBODY: &[ProcessHolds] = &[];

fn none() -> Option<UnixMillis> {
    None
}

#[test]
fn a_hold_is_raised_to_the_first_id_and_then_stays() {
    let (holder, mut held) = (ProcessHolds::default(), SessionHolds::default());
    let holders = std::slice::from_ref(&holder);
    assert_eq!(least(holders, DATABASE), None);
    held.hold(&Places(&holder), DATABASE, at(10)).unwrap();
    assert_eq!(least(holders, DATABASE), Some(at(10)));
    held.narrow_hold(&holder, DATABASE, at(20));
    held.narrow_hold(&holder, DATABASE, at(30));
    held.hold(&Places(&holder), DATABASE, at(40)).unwrap();
    assert_eq!(least(holders, DATABASE), Some(at(20)));
    assert_eq!(least(holders, DATABASE | 1), None, "another generator");
    held.withdraw(&holder);
    assert_eq!(least(holders, DATABASE), None);
    assert!(held.is_empty());
}

/// A session with places and locks; there is room for `room` locks.
struct Both<'a> {
    holder: &'a ProcessHolds,
    locks: RefCell<Vec<(u64, UnixMillis)>>,
    room: usize,
}

impl<'a> Both<'a> {
    fn new(holder: &'a ProcessHolds, room: usize) -> Self {
        let locks = RefCell::default();
        Self {
            holder,
            locks,
            room,
        }
    }

    fn least(&self, key: u64) -> Option<UnixMillis> {
        let locks = self.locks.borrow();
        let its = locks.iter().filter(|(held, _)| *held == key);
        its.map(|(_, at)| *at).min()
    }
}

impl Session for Both<'_> {
    type Error = &'static str;

    fn holder(&self) -> &ProcessHolds {
        self.holder
    }

    fn lock(&self, key: u64, at: UnixMillis) -> Result<(), &'static str> {
        let mut locks = self.locks.borrow_mut();
        if locks.len() == self.room {
            return Err("no room");
        }
        locks.push((key, at));
        Ok(())
    }
}

/// A session that uses more generators than it has places holds each of them, and no other.
#[test]
fn generators_without_a_place_are_held_by_locks() {
    let (holder, mut held) = (ProcessHolds::default(), SessionHolds::default());
    let (session, holders) = (Both::new(&holder, 2), std::slice::from_ref(&holder));
    let count = u64::try_from(PLACES).unwrap() + 2;
    let horizons: Vec<_> = (0..=count + 1).map(|_| Horizon::default()).collect();
    let of = |generator: u64| &horizons[usize::try_from(generator).unwrap()];
    let read = |generator: u64| {
        let key = DATABASE | generator;
        of(generator).read(at(200), &holders, key, || session.least(key))
    };
    for generator in 1..=count + 1 {
        assert_eq!(read(generator), at(200), "no lock is noted from now on");
    }
    for generator in 1..=count {
        let (key, first) = (DATABASE | generator, at(300 + generator.cast_signed()));
        held.hold(&session, key, first).unwrap();
        held.narrow_hold(&holder, key, at(400 + generator.cast_signed()));
    }
    let later = |generator: u64| {
        let key = DATABASE | generator;
        of(generator).read(at(999), &holders, key, || session.least(key))
    };
    for generator in 1..=count {
        let by = if generator > count - 2 { 300 } else { 400 };
        assert_eq!(later(generator), at(by + generator.cast_signed()));
    }
    assert_eq!(later(count + 1), at(999), "one that it has not used");
    let refused = held.hold(&session, DATABASE | (count + 1), at(5));
    assert_eq!(refused, Err("no room"));
    // All of them are known to the session, which a prepared transaction needs, and which
    // holds none twice.
    assert_eq!(held.iter().count(), PLACES + 2);
    held.hold(&session, DATABASE | count, at(999)).unwrap();
    held.withdraw(&holder);
    assert_eq!(holder.shown().count(), 0);
    session.locks.take();
    assert_eq!(later(count), at(999));
}

#[test]
fn what_is_held_is_shown() {
    let (holder, mut held) = (ProcessHolds::default(), SessionHolds::default());
    holder.set_process(77);
    held.hold(&Places(&holder), DATABASE | 3, at(8)).unwrap();
    let shown = ShownHold {
        process: 77,
        key: DATABASE | 3,
        at: at(8),
    };
    assert_eq!(holder.shown().collect::<Vec<_>>(), [shown]);
}

#[test]
fn a_process_that_ends_holds_nothing() {
    let (holder, mut held) = (ProcessHolds::default(), SessionHolds::default());
    for generator in 1..=u64::try_from(PLACES).unwrap() {
        let key = DATABASE | generator;
        held.hold(&Places(&holder), key, at(1)).unwrap();
    }
    holder.withdraw_all();
    assert_eq!(holder.shown().count(), 0);
}

#[test]
fn the_horizon_is_the_least_and_does_not_go_back() {
    let (holder, horizon) = (ProcessHolds::default(), Horizon::default());
    let (mut held, holders) = (SessionHolds::default(), std::slice::from_ref(&holder));
    assert_eq!(horizon.read(at(50), &holders, DATABASE, none), at(50));
    // A hold that was published before a first ID, by a session that was stopped in
    // between: the ID will be later.
    held.hold(&Places(&holder), DATABASE, at(10)).unwrap();
    assert_eq!(horizon.peek(at(60), &holders, DATABASE, None), at(50));
    assert_eq!(horizon.read(at(60), &holders, DATABASE, none), at(50));
    held.narrow_hold(&holder, DATABASE, at(55));
    assert_eq!(horizon.read(at(60), &holders, DATABASE, none), at(55));
    held.withdraw(&holder);
    assert_eq!(horizon.read(at(60), &holders, DATABASE, none), at(60));
}

#[test]
fn an_id_from_elsewhere_is_held_or_refused() {
    let (holder, horizon) = (ProcessHolds::default(), Horizon::default());
    let (mut held, holders) = (SessionHolds::default(), std::slice::from_ref(&holder));
    let read = |reached| horizon.read(reached, &holders, DATABASE, none);
    assert_eq!(read(at(50)), at(50));
    let refused = held.insert(&Places(&holder), DATABASE, at(49), &horizon);
    assert_eq!(refused, Err(InsertError::Past(at(50))));
    assert!(held.is_empty());
    assert_eq!(read(at(51)), at(51), "a refused ID holds nothing");
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(60), &horizon),
        Ok(())
    );
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(55), &horizon),
        Ok(())
    );
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(70), &horizon),
        Ok(())
    );
    assert_eq!(read(at(80)), at(55));
    // The reader has announced no more than it returned.
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(54), &horizon),
        Err(InsertError::Past(at(55)))
    );
    assert_eq!(read(at(80)), at(55), "the hold is as before");
    // An ID of its own that comes before the one from elsewhere.
    held.withdraw(&holder);
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(90), &horizon),
        Ok(())
    );
    held.hold(&Places(&holder), DATABASE, at(85)).unwrap();
    held.narrow_hold(&holder, DATABASE, at(86));
    assert_eq!(read(at(99)), at(85));
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(86), &horizon),
        Ok(())
    );
    // It is not even looked at.
    let passed = Overtaken(Cell::new(at(999)), at(999));
    let again = held.insert(&Places(&holder), DATABASE, at(86), &passed);
    assert_eq!(again, Ok(()));
}

/// A call that has taken nothing has held the generator; then an ID from elsewhere comes.
#[test]
fn a_hold_before_the_first_id_vouches_for_nothing() {
    let (holder, horizon) = (ProcessHolds::default(), Horizon::default());
    let (mut held, holders) = (SessionHolds::default(), std::slice::from_ref(&holder));
    let read = |reached| horizon.read(reached, &holders, DATABASE, none);
    assert_eq!(read(at(50)), at(50));
    held.hold(&Places(&holder), DATABASE, at(40)).unwrap();
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(45), &horizon),
        Err(InsertError::Past(at(50)))
    );
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(60), &horizon),
        Ok(())
    );
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(45), &horizon),
        Err(InsertError::Past(at(50)))
    );
    // The ID that it takes now may lie before the one from elsewhere.
    held.narrow_hold(&holder, DATABASE, at(70));
    assert_eq!(read(at(80)), at(50));
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(60), &horizon),
        Ok(())
    );
}

/// Readers announce `then` between the two looks of an insertion.
struct Overtaken(Cell<UnixMillis>, UnixMillis);

impl Announced for Overtaken {
    fn announced(&self) -> UnixMillis {
        self.0.replace(self.1)
    }
}

/// An ID that a reader passes while it is inserted is refused, and holds nothing.
#[test]
fn an_id_from_elsewhere_that_is_overtaken_is_refused() {
    let (holder, mut held) = (ProcessHolds::default(), SessionHolds::default());
    let holders = std::slice::from_ref(&holder);
    let overtaken = || Overtaken(Cell::new(at(10)), at(50));
    let mut insert = |millis| held.insert(&Places(&holder), DATABASE, at(millis), &overtaken());
    assert_eq!(insert(49), Err(InsertError::Past(at(50))));
    assert_eq!(least(holders, DATABASE), None);
    assert_eq!(insert(60), Ok(()));
    assert_eq!(insert(49), Err(InsertError::Past(at(50))));
    assert_eq!(least(holders, DATABASE), Some(at(60)));
    // What could not be inserted is not safe.
    assert_eq!(insert(49), Err(InsertError::Past(at(50))));
}

#[test]
fn a_new_slot_announces_its_start() {
    let (holder, horizon) = (ProcessHolds::default(), Horizon::default());
    let mut held = SessionHolds::default();
    assert_eq!(horizon.announced(), BEGINNING);
    horizon.start_at(at(30));
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(29), &horizon),
        Err(InsertError::Past(at(30)))
    );
    assert_eq!(
        held.insert(&Places(&holder), DATABASE, at(30), &horizon),
        Ok(())
    );
    // What is announced was not returned.
    assert_eq!(horizon.peek(at(20), &NOBODY, DATABASE, None), at(20));
}

/// A slot whose cursor is reset knows nothing of the horizons before: its generator may be
/// another one with the same OID.
#[test]
fn a_cursor_that_is_reset_forgets_the_horizon() {
    let reading = Reading {
        boot: BootNanos::new(0),
        wall: UnixNanos::new(0),
    };
    let (slot, token) = (Slot::new(reading, 0), Reserving::the_lock_is_held());
    let scale = Scale::of_generator(&Generator::DEFAULT);
    slot.settle(&token, 1, scale, reading);
    assert_eq!(slot.horizon().read(at(50), &NOBODY, DATABASE, none), at(50));
    // Another file of the same generator.
    slot.settle(&token, 2, scale, reading);
    assert_eq!(slot.horizon().peek(at(20), &NOBODY, DATABASE, None), at(50));
    let mut random = Generator::DEFAULT;
    random.policy.sequence_start = SequenceStart::Random;
    slot.settle(&token, 3, Scale::of_generator(&random), reading);
    assert_eq!(slot.horizon().peek(at(20), &NOBODY, DATABASE, None), at(20));
    assert_eq!(slot.horizon().announced(), BEGINNING);
}

#[test]
fn generators_that_go_back_have_no_horizon() {
    let of = |text: &str| Label::parse(text).unwrap().generator().descends();
    assert_eq!(Generator::DEFAULT.descends(), None);
    let wait = "layout='time:41 worker:10 sequence:12' epoch=2025-01-01Z on_rollback=wait";
    assert_eq!(of(wait), None);
    let clocks = "layout='time:41 clock:2 worker:8 sequence:12' epoch=2025-01-01Z \
                  on_rollback=next_clock";
    assert_eq!(of(clocks), Some(Descent::Rollback));
    let worker = "layout='worker:10 time:41 sequence:12' epoch=2025-01-01Z";
    assert_eq!(of(worker), Some(Descent::Layout(OrderError::TimeBelow)));
}

/// Labels whose IDs ascend, one for each way to look at the clock.
const ASCENDING: [&str; 4] = [
    "preset=default",
    "preset=default on_rollback=wait",
    "preset=default on_rollback=error max_borrow=0",
    "preset=default sequence_start=random",
];

fn instant_after_epoch(server: &Server, at: UnixMillis) -> i64 {
    at.since(server.generator.layout.epoch()).get()
}

/// Where readers find that no ID can be any more, in milliseconds after the epoch.
fn reached(server: &Server) -> i64 {
    instant_after_epoch(server, advance_to_now(server).unwrap())
}

#[test]
fn a_reader_moves_the_cursor_to_now_and_issues_nothing() {
    for label in ASCENDING {
        let mut server = Server::new(label, 1, (1, 2), 1000);
        assert_eq!(reached(&server), 1000, "{label}");
        server.pass(500 * MS);
        assert_eq!(reached(&server), 1500, "{label}");
        let again = server.state();
        assert_eq!(reached(&server), 1500, "{label}");
        assert_eq!(
            server.state(),
            again,
            "{label}: a second reader changes nothing"
        );
        // All sequence numbers of the tick are there.
        let first = server.next().unwrap();
        assert_eq!(server.generator.layout.tick().get(), 1);
        assert_eq!(first.tick.get(), 1500, "{label}");
        let fresh = server.generator.policy.sequence_start.first_in(first.tick);
        assert!(
            server.generator.is_random() || first.sequence == fresh,
            "{label}"
        );
    }
}

/// A generator that issues nothing reserves nothing, and looks at no wall clock.
#[test]
fn a_reader_follows_a_clock_that_was_set_forward() {
    for label in ASCENDING {
        let server = Server::new(label, 1, (1, 2), 1000);
        assert_eq!(reached(&server), 1000, "{label}");
        server.step_by(3000 * MS);
        assert_eq!(reached(&server), 4000, "{label}");
        // A correction that is no step takes no mark.
        let mark = server.mark();
        server.step_by(9 * MS);
        let _ = reached(&server);
        assert_eq!(server.mark(), mark, "{label}");
    }
}

/// A generator that has started at the epoch, whose first position is zero, and a clock that
/// was set back to before that: a reader is told so.
#[test]
fn a_reader_at_the_epoch() {
    for label in ASCENDING {
        let server = Server::new(label, 1, (1, 2), 0);
        assert_eq!(reached(&server), 0, "{label}");
        server.step_by(-3 * MS);
        assert_eq!(reached(&server), 0, "{label}");
    }
}

/// The clock is set back after a reader: no ID comes below what it was told, whatever the
/// policy does.
#[test]
fn no_id_comes_below_what_a_reader_was_told() {
    for label in ASCENDING {
        let mut server = Server::new(label, 1, (1, 2), 5000);
        assert_eq!(reached(&server), 5000, "{label}");
        server.step_by(-8 * MS);
        let told = reached(&server);
        assert!(told >= 5000, "{label}: {told}");
        server.runs = true;
        if let Ok(fields) = server.next() {
            assert!(
                fields.tick.get().cast_signed() >= told,
                "{label}: {fields:?}"
            );
        }
        server.pass(100 * MS);
        assert!(reached(&server) >= told, "{label}");
    }
}

/// Past the bound, a reader reserves: so no horizon is past the mark.
#[test]
fn a_reader_does_not_pass_the_mark() {
    for label in ASCENDING {
        let mut server = Server::new(label, 1, (1, 2), 1000);
        for _ in 0..10 {
            server.pass(7000 * MS);
            let at = advance_to_now(&server).unwrap();
            let (mark, _) = server.generator.read_mark(server.mark(), at).unwrap();
            assert!(at <= mark, "{label}: {at:?} {mark:?}");
        }
    }
}

/// The clock is refused: readers learn where the cursor is, and that moves no further.
#[test]
fn a_reader_goes_on_while_the_clock_is_refused() {
    let mut server = Server::new("preset=default", 1, (1, 2), 1000);
    assert_eq!(reached(&server), 1000);
    // Two days ahead, past the bound.
    server.step_by(2 * 86_400_000 * MS);
    server.boot.set(60_000 * MS);
    assert_eq!(reached(&server), 1000);
    assert!(server.next().is_err());
}
