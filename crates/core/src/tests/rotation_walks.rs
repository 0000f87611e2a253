//! A server that goes back in time with its next worker ID, through every walk of events up to a
//! stated length.
//!
//! Each ID is a worker ID and a position of a small layout. No ID is issued twice. Each
//! lies between the floor and the bound of its worker ID. Within a rotation they increase. A
//! call that another worker ID can serve gets an ID of the time that the wall clock
//! shows. Beside that generator there is one of another policy, whose IDs ascend in time
//! whatever worker ID the server has.

// Numbers are small here.
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use siphasher::sip128::SipHasher13;

use super::explorer::{Explorer, Rules, with};
use super::model::{MS, Outcome, QUEUE, Queue, Server, settings};
use crate::id::layout::{FieldRole, Layout};
use crate::id::{Millis, Position, SnowflakeId, UnixMillis, WorkerId};
use crate::label::generator::Generator;
use crate::label::policy::{OnRollback, Policy, SequenceStart};
use crate::protocol::cursor::{Clocks, IssuedRange, Step};
use crate::protocol::host::{Host, IssueError, Need, Note};
use crate::protocol::slot::{Reserving, Scale};
use crate::protocol::tenure::{Generation, Tenure};

/// Milliseconds of a tick.
const TICK: i64 = 10;
const LEASE: i64 = 4 * TICK;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    One,
    Batch,
    Pass,
    /// The wall clock is stepped by this many ticks.
    Step(i64),
    /// The wall clock is stepped back by less than a call waits for.
    Little,
    /// The registry stores a later bound.
    Renew,
    /// The lease is lost without a rollback: the registry grants the next worker ID.
    Lose,
    /// Shared memory is lost. The generator gets its own worker ID back.
    Crash,
    /// Shared memory is lost, and the clock is set back meanwhile.
    CrashBack,
    /// The server closes, and tells where the IDs of the worker ID end.
    Close,
    /// From now on, the registry is not told where IDs end.
    Deaf,
    /// The other generator issues an ID.
    Beside,
    /// A session that has entered before the latest grant takes an ID.
    Old,
    Evict,
    Restart,
    Commit,
    Rollback,
    Advance,
    Setval(i64),
    Accept,
    /// A reservation under way takes its next step.
    GoOn,
}

#[derive(Clone)]
struct State {
    server: Server,
    issued: HashSet<i64>,
    issued_beside: HashSet<i64>,
    /// The latest position of the other generator, and its generation.
    latest_beside: Option<(Position, Generation)>,
    /// The latest ID of each generation.
    latest: HashMap<Generation, i64>,
    /// The floors and the latest bounds of all generations, with their lives.
    grants: HashMap<(u64, Generation), (UnixMillis, UnixMillis)>,
    before: Option<Generation>,
    /// The latest tick of both generators under each worker ID.
    reached: HashMap<WorkerId, UnixMillis>,
    /// Somebody has set the mark or advanced, or the generator leads since a start: then
    /// IDs need not be of the time that the clock shows.
    leads: bool,
}

fn generator() -> Generator {
    let fields = [
        (FieldRole::Time, 6),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 1),
    ];
    Generator {
        layout: Layout::new(UnixMillis::new(0), Millis::new(TICK), &fields).unwrap(),
        policy: Policy {
            on_rollback: OnRollback::NextWorker,
            max_rollback: Millis::new(30 * TICK),
            max_wait: Millis::new(5),
            max_borrow_ticks: 1,
            sequence_start: SequenceStart::Masked(0),
            ..Policy::DEFAULT
        },
    }
}

fn first(apart: bool) -> State {
    let mut server = Server::new(generator(), settings(40 * TICK, 3 * TICK, 0), 20 * TICK);
    server.apart = apart;
    server.becomes(Tenure::closed);
    let worker = |id| (WorkerId::new(id).unwrap(), UnixMillis::new(0));
    server.queue.set(Some(Queue {
        waits: [worker(0), worker(1), worker(2)],
        taken: None,
        lease: Millis::new(LEASE),
        is_deaf: false,
    }));
    let mut state = State {
        server,
        issued: HashSet::new(),
        issued_beside: HashSet::new(),
        latest_beside: None,
        latest: HashMap::new(),
        grants: HashMap::new(),
        before: None,
        reached: HashMap::new(),
        leads: false,
    };
    assert!(state.server.takes_from_queue(None));
    state.note_grant();
    state
}

impl State {
    /// From now on there is another generator, of the policy of the default one.
    fn put_beside(&mut self) {
        let own = &self.server;
        let other = plain(&own.generator);
        let beside = Server::new(other, own.settings, own.wall.get() / MS);
        self.server.beside = Some(Box::new(beside));
        self.server.becomes(|tenure| tenure);
    }

    fn note_grant(&mut self) {
        let tenure = self.server.tenure();
        let Some((floor, bound)) = tenure.floor.zip(tenure.bound) else {
            return;
        };
        let key = (self.server.life, tenure.generation);
        let (_, known) = self.grants.entry(key).or_insert((floor, bound));
        *known = bound.max(*known);
    }

    fn note_reached(&mut self, generation: Generation, begins: UnixMillis) {
        let worker = generation.worker().unwrap();
        let known = self.reached.entry(worker).or_insert(begins);
        *known = begins.max(*known);
    }

    /// Who gets a worker ID next, on whatever server, begins past all IDs of both generators.
    fn check_ends(&self) {
        let queue = self.server.queue.get().unwrap();
        for (worker, bound) in queue.waits {
            let reached = self.reached.get(&worker);
            assert!(reached.is_none_or(|at| *at < bound), "{worker:?} {queue:?}");
        }
    }

    /// Notes an ID that was issued for a generation.
    fn note(&mut self, generation: Generation, issued: IssuedRange) {
        self.note_grant();
        let layout = self.server.generator.layout;
        for position in issued.start.get()..issued.end.get() {
            let id = self.server.id_for(generation, Position::new(position));
            assert!(
                self.issued.insert(id.get()),
                "issued twice: {}",
                show(layout, id)
            );
            let begins = layout.instant_of(layout.tick_of_id(id));
            let key = (self.server.life, generation);
            let (floor, bound) = self.grants[&key];
            assert!(
                begins >= floor && begins < bound,
                "{floor:?} {bound:?} {}",
                show(layout, id)
            );
            self.note_reached(generation, begins);
            let before = self.latest.insert(generation, id.get());
            let time = |id: i64| {
                layout
                    .decode(SnowflakeId::new(id))
                    .map(|it| (it.tick, it.sequence))
            };
            assert!(before.is_none_or(|it| time(it).unwrap() < time(id.get()).unwrap()));
            // What the disk says lies past it.
            let mark = self.server.mark();
            let was_set = self.server.before_rewrite.is_some() || self.leads;
            assert!(
                was_set || mark > Some(begins),
                "{mark:?} {}",
                show(layout, id)
            );
        }
    }

    fn call(&mut self, count: u64) {
        let layout = self.server.generator.layout;
        let (wall, before) = (self.server.wall.get() / MS, self.server.generation());
        let expects = self.expects();
        let outcome = self.server.call(count);
        self.note_change(before);
        // The clock was set back before the first ID of a grant.
        self.leads |= self.server.tenure().floor > Some(UnixMillis::new(wall));
        match outcome {
            Outcome::Issued { start, end } => {
                let generation = self.server.generation();
                let tick = layout.instant_of(layout.tick_of(start)).get();
                let issued = IssuedRange {
                    start,
                    end,
                    borrowed: 0,
                    waited: false,
                };
                // A borrowed tick at most.
                let is_near = tick <= wall + TICK && tick > wall - TICK;
                assert!(self.leads || is_near, "at {wall} an ID of {tick}");
                self.note(generation, issued);
            }
            Outcome::Refused(why @ IssueError::Behind { .. }) => {
                assert!(
                    !expects,
                    "{why:?}, and a worker ID is free: {:?}",
                    self.server.queue
                );
            }
            _ => {}
        }
    }

    fn call_beside(&mut self) {
        let Some(Outcome::Issued { start, .. }) = self.server.call_beside(1) else {
            return;
        };
        let (generation, layout) = (self.server.generation(), self.server.generator.layout);
        let id = self.server.id_for(generation, start);
        assert!(self.issued_beside.insert(id.get()), "{}", show(layout, id));
        let begins = layout.instant_of(layout.tick_of(start));
        let (floor, bound) = self.grants[&(self.server.life, generation)];
        assert!(begins >= floor && begins < bound, "{}", show(layout, id));
        self.note_reached(generation, begins);
        let before = self.latest_beside.replace((start, generation));
        let ascends = |(before, of): (Position, Generation)| match of == generation {
            true => before.get() < start.get(),
            false => layout.tick_of(before) < layout.tick_of(start),
        };
        assert!(before.is_none_or(ascends), "{}", show(layout, id));
    }

    /// Whether a call that meets a rollback gets an ID: a worker ID of the queue is free for
    /// the time that the clock shows.
    fn expects(&self) -> bool {
        let queue = self.server.queue.get().unwrap();
        let now = self.server.wall.get() / MS;
        queue.waits[..QUEUE - 1]
            .iter()
            .any(|(_, bound)| bound.get() <= now)
    }

    fn note_change(&mut self, before: Generation) {
        if self.server.generation() != before {
            self.before = Some(before);
        }
        self.note_grant();
    }

    fn apply(&mut self, event: Event) {
        let before = self.server.generation();
        let now = self.server.wall.get() / MS;
        match event {
            Event::One => self.call(1),
            Event::Batch => self.call(2),
            Event::Pass => self.server.pass(TICK * MS),
            Event::Step(ticks) => self.server.step(ticks * TICK * MS),
            Event::Little => self.server.step(-4 * MS),
            Event::Renew => self.server.renews_from_queue(),
            Event::Lose => {
                let _ = self.server.takes_from_queue(None);
                self.leads |= self.server.tenure().floor > Some(UnixMillis::new(now));
            }
            Event::Crash | Event::CrashBack => {
                if event == Event::CrashBack {
                    self.server.step(-5 * TICK * MS);
                }
                self.server.restart();
                self.latest.clear();
                // Its bound is its floor now.
                let mut queue = self.server.queue.get().unwrap();
                queue.waits.rotate_right(1);
                queue.taken = None;
                self.server.queue.set(Some(queue));
                assert!(self.server.takes_from_queue(None));
                self.before = None;
                self.note_grant();
                // It starts at its floor or its mark.
                self.leads = true;
                return;
            }
            Event::Close => {
                let end = self.server.close();
                let mut queue = self.server.queue.get().unwrap();
                queue.ends(QUEUE - 1, end);
                queue.taken = None;
                queue.waits.rotate_right(1);
                self.server.queue.set(Some(queue));
                assert!(self.server.takes_from_queue(None));
                self.leads |= self.server.tenure().floor > Some(UnixMillis::new(now));
            }
            Event::Deaf => {
                let mut queue = self.server.queue.get().unwrap();
                queue.is_deaf = true;
                self.server.queue.set(Some(queue));
            }
            Event::Beside => self.call_beside(),
            Event::Old => {
                if let Some(old) = self.before.filter(|old| old.worker().is_some())
                    && let Step::Issue(issued) = self.server.step_of(old, 1)
                {
                    self.note(old, issued);
                }
            }
            Event::Evict => self.server.evict(),
            Event::Restart if self.server.before_rewrite.is_none() => self.server.rewrite(),
            Event::Restart => {}
            Event::Commit => self.server.end_rewrite(true),
            Event::Rollback => self.server.end_rewrite(false),
            Event::Advance => {
                let to = UnixMillis::new(now + 2 * TICK);
                let _ = self.server.reserve(Need::AdvanceTo(to));
                self.leads = true;
            }
            Event::Setval(ticks) => {
                self.server.set_mark(Some(now + ticks * TICK));
                self.leads = true;
            }
            Event::Accept => {
                self.server.accept();
                self.leads = true;
            }
            Event::GoOn => self.server.go_on(),
        }
        self.note_change(before);
        self.check_ends();
    }
}

fn show(layout: Layout, id: SnowflakeId) -> String {
    let fields = layout.decode(id).unwrap();
    format!(
        "worker {}, {:?}, {}",
        fields.worker, fields.tick, fields.sequence
    )
}

/// How many rotations the generator has come to at most.
#[derive(Clone)]
struct Turns(u64);

impl Rules for Turns {
    type State = State;
    type Event = Event;

    fn step(&mut self, state: &mut State, event: Event) -> Result<bool, String> {
        state.apply(event);
        let cursor = state.server.cursor();
        self.0 = self.0.max(state.server.generator.layout.clock_of(cursor));
        Ok(true)
    }

    fn hash(&self, state: &State, into: &mut SipHasher13) {
        state.server.hash(into);
        let mut issued: Vec<_> = state.issued.iter().collect();
        issued.sort_unstable();
        issued.hash(into);
        (state.before, state.leads, state.latest_beside).hash(into);
        let mut beside: Vec<_> = state.issued_beside.iter().collect();
        beside.sort_unstable();
        beside.hash(into);
    }
}

/// All walks of [`CLOCKS`] and more events; returns how many rotations the generator has come to at
/// most.
fn walk(name: &str, apart: bool, more: &[Event], depth: usize) -> u64 {
    let mut first = first(apart);
    if more.contains(&Event::Beside) {
        first.put_beside();
    }
    // The first reservation in all its steps.
    let prelude = [
        Event::One,
        Event::GoOn,
        Event::GoOn,
        Event::GoOn,
        Event::One,
    ];
    let explorer = Explorer {
        name,
        prelude: if apart { &prelude } else { &[] },
        events: &with(&CLOCKS, more),
        // Miri is slow.
        depth: if cfg!(miri) { 2 } else { depth },
        budget: usize::MAX,
    };
    let found = explorer.run(&Turns(0), &first);
    assert!(!apart || found.edge.iter().all(|(state, _)| !state.issued.is_empty()));
    found.rules.0
}

const CLOCKS: [Event; 6] = [
    Event::One,
    Event::Batch,
    Event::Pass,
    Event::Step(-3),
    Event::Step(3),
    Event::Renew,
];

#[test]
fn rotation_walk_of_clocks() {
    assert!(walk("clocks", false, &[Event::Little, Event::Step(-9)], 7) >= 2);
}

#[test]
fn rotation_walk_of_lost_leases_and_old_sessions() {
    let events = [Event::Lose, Event::Old, Event::Close];
    assert!(walk("leases", false, &events, 7) >= 2);
}

#[test]
fn rotation_walk_of_a_generator_beside() {
    let events = [Event::Beside, Event::Old, Event::Lose];
    assert!(walk("beside", false, &events, 7) >= 2);
    let events = [Event::Beside, Event::Close, Event::Deaf, Event::Crash];
    assert!(walk("beside, and returns", false, &events, 6) >= 2);
}

#[test]
fn rotation_walk_of_restarts() {
    let events = [Event::Crash, Event::CrashBack, Event::Close];
    assert!(walk("restarts", false, &events, 6) >= 2);
}

#[test]
fn rotation_walk_of_rewrites() {
    let events = [
        Event::Restart,
        Event::Commit,
        Event::Rollback,
        Event::Evict,
        Event::Old,
    ];
    assert!(walk("rewrites", false, &events, 6) >= 2);
}

#[test]
fn rotation_walk_of_marks_that_are_set() {
    let events = [
        Event::Setval(2),
        Event::Setval(-4),
        Event::Advance,
        Event::Accept,
    ];
    assert!(walk("marks", false, &events, 6) >= 1);
}

#[test]
fn rotation_walk_of_reservations_apart() {
    let events = [Event::GoOn, Event::Lose, Event::Old, Event::Close];
    assert!(walk("apart", true, &events, 7) >= 1);
}

/// At 200 ms, with IDs of that tick issued.
fn issued() -> State {
    let mut state = first(false);
    state.apply(Event::One);
    state
}

#[test]
fn a_generator_goes_back_with_the_next_worker_id_and_forward_with_the_same() {
    let mut state = issued();
    state.apply(Event::Step(-3));
    state.apply(Event::One);
    let worker = |state: &State| state.server.generation().worker().unwrap().get();
    assert_eq!(worker(&state), 1);
    let rollback = Some(Millis::new(30));
    let note = Note::NextWorker {
        rollback,
        worker: WorkerId::new(1),
    };
    assert!(state.server.notes.borrow().contains(&note));
    // Forward again: nothing changes.
    state.apply(Event::Step(3));
    state.apply(Event::One);
    assert_eq!(worker(&state), 1);
    // The first one is used up to its bound, the last one is not.
    state.apply(Event::Step(-3));
    state.apply(Event::One);
    assert_eq!(worker(&state), 2);
    // None is left now.
    state.apply(Event::Pass);
    state.apply(Event::One);
    state.apply(Event::Step(-3));
    let outcome = state.server.call(1);
    assert!(
        matches!(outcome, Outcome::Refused(IssueError::Behind { .. })),
        "{outcome:?}"
    );
    assert_eq!(worker(&state), 2);
    // The clock is right again.
    state.apply(Event::Step(3));
    state.apply(Event::One);
    assert_eq!(worker(&state), 2);
}

#[test]
fn a_call_waits_for_a_small_rollback() {
    let mut state = issued();
    state.apply(Event::Little);
    assert!(matches!(state.server.call(1), Outcome::WaitsForClock(_)));
    assert_eq!(state.server.generation().worker(), WorkerId::new(0));
}

#[test]
fn marks_do_not_go_back_and_hold_no_rotation_up() {
    let mut state = issued();
    let mark = state.server.mark();
    state.apply(Event::Step(-9));
    state.apply(Event::One);
    assert_eq!(state.server.mark(), mark);
    // Nor does the file that a rewrite makes.
    state.apply(Event::Restart);
    state.apply(Event::One);
    state.apply(Event::Commit);
    state.apply(Event::Pass);
    state.apply(Event::One);
    assert!(!state.leads && state.server.mark() == mark);
}

#[test]
fn no_rotation_starts_before_what_somebody_has_advanced_to() {
    // What somebody sets the mark to does not concern a generator that runs.
    for (sets, least) in [(Event::Advance, 220), (Event::Setval(6), 190)] {
        let mut state = issued();
        state.apply(sets);
        state.apply(Event::Pass);
        state.apply(Event::Pass);
        state.server.pass(60 * TICK * MS / 10);
        state.apply(Event::Renew);
        state.apply(Event::One);
        state.apply(Event::Step(-9));
        state.server.renews = Some(Millis::new(LEASE));
        let Outcome::Issued { start, .. } = state.server.call(1) else {
            panic!("{sets:?}");
        };
        let layout = state.server.generator.layout;
        assert!(layout.clock_of(start) == 1, "{sets:?}");
        let at = layout.instant_of(layout.tick_of(start));
        assert_eq!(at.get(), least, "{sets:?}");
    }
}

#[test]
fn a_generator_without_a_rotation_left_goes_on_ahead_of_the_clock() {
    let fields = [
        (FieldRole::Time, 58),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 4),
    ];
    let layout = Layout::new(UnixMillis::new(0), Millis::new(TICK), &fields).unwrap();
    let rotations: Vec<_> =
        std::iter::successors(Some(0), |rotation| layout.rotation_after(*rotation)).collect();
    assert_eq!(rotations, [0, 1, 2, 3]);
    let default = Layout::DEFAULT;
    let rotations = std::iter::successors(Some(0), |rotation| default.rotation_after(*rotation));
    assert_eq!(rotations.count(), 2048);
    let mut state = first(false);
    state.server.generator.layout = layout;
    state.apply(Event::One);
    for rotation in 1..6 {
        let mut queue = state.server.queue.get().unwrap();
        queue.waits[0].1 = UnixMillis::new(0);
        state.reached.clear();
        state.server.queue.set(Some(queue));
        let mark = state.server.slot.highest().unwrap();
        state.apply(Event::Step(-1));
        state.server.renews = Some(Millis::new(LEASE));
        let Outcome::Issued { start, .. } = state.server.call(1) else {
            panic!("{rotation}");
        };
        assert_eq!(layout.clock_of(start), rotation.min(3));
        let at = layout.instant_of(layout.tick_of(start));
        if rotation < 4 {
            assert_eq!(at.get(), state.server.wall.get() / MS);
        } else if rotation == 4 {
            assert_eq!(at, mark);
        }
    }
}

#[test]
fn a_generator_that_is_gone_counts_for_the_end_of_the_worker_id() {
    let end = issued().server.close();
    assert_eq!(end, UnixMillis::new(21 * TICK));
    // The sequence was dropped, or its creation was rolled back.
    let state = issued();
    let slot = &state.server.slot;
    slot.abandon();
    assert!(slot.evict(2, state.server.read(), 0));
    assert_eq!(state.server.close(), end);
    // It has another label, and no ID under that one yet.
    let state = issued();
    settle(&state.server, &plain(&state.server.generator));
    assert_eq!(state.server.close(), end);
}

#[test]
fn the_worker_id_of_before_ends_at_the_latest_position_of_all_generators() {
    for (ahead, end) in [(None, 21), (Some(22), 23)] {
        let mut state = issued();
        state.put_beside();
        if let Some(ahead) = ahead {
            let to = UnixMillis::new(ahead * TICK);
            let beside = state.server.beside.as_ref().unwrap();
            assert!(matches!(beside.call(1), Outcome::Issued { .. }));
            assert_eq!(beside.reserve(Need::AdvanceTo(to)), Ok(None));
            let outcome = beside.call(1);
            assert!(matches!(outcome, Outcome::Issued { .. }), "{outcome:?}");
        }
        state.apply(Event::Step(-3));
        state.apply(Event::One);
        let queue = state.server.queue.get().unwrap();
        let ended = queue.waits.iter().find(|(worker, _)| worker.get() == 0);
        assert_eq!(ended.unwrap().1, UnixMillis::new(end * TICK));
    }
}

/// A slot that was closed before its first reservation has a cursor, and obeys the mark still.
#[test]
fn a_start_obeys_the_mark_after_the_slot_was_closed() {
    let mut state = first(false);
    state.server.set_mark(Some(23 * TICK));
    state.server.claim_mark();
    assert!(state.server.enter().is_ok());
    state.apply(Event::Close);
    assert_ne!(state.server.cursor(), Position::ZERO);
    let Outcome::Issued { start, .. } = state.server.call(1) else {
        panic!();
    };
    let layout = state.server.generator.layout;
    assert_eq!(layout.tick_of(start).get(), 23);
}

/// A renewal does not tell how far a generator was in a rotation of before.
#[test]
fn a_rotation_of_before_holds_no_bound_up() {
    let mut state = issued();
    let furthest = |state: &State| {
        let slot = &state.server.slot;
        (
            slot.furthest_under(state.server.generation()),
            slot.furthest(),
        )
    };
    let reached = Some(UnixMillis::new(21 * TICK));
    assert_eq!(furthest(&state), (reached, reached));
    state.apply(Event::Step(-5));
    assert!(state.server.takes_from_queue(None));
    assert_eq!(furthest(&state), (None, reached));
    assert!(matches!(state.server.call(1), Outcome::Issued { .. }));
    let reached = Some(UnixMillis::new(16 * TICK));
    assert_eq!(furthest(&state), (reached, reached));
}

fn plain(generator: &Generator) -> Generator {
    Generator {
        policy: Policy {
            on_rollback: OnRollback::Continue,
            ..generator.policy
        },
        ..*generator
    }
}

#[test]
fn a_new_label_hides_no_id_of_the_worker_id_of_the_server() {
    let turning = generator();
    let mut server = Server::new(plain(&turning), settings(40 * TICK, 3 * TICK, 0), 20 * TICK);
    let [floor, bound] = [0, 40 * TICK].map(UnixMillis::new);
    let worker = WorkerId::new(0).unwrap();
    let ahead = Millis::new(10 * LEASE);
    server.becomes(|tenure| tenure.granted(worker, floor, bound, floor, ahead));
    assert!(matches!(server.call(1), Outcome::Issued { .. }));
    let end = server.slot.furthest();
    assert_eq!(end, Some(UnixMillis::new(21 * TICK)));
    server.step(-5 * TICK * MS);
    settle(&server, &turning);
    assert_eq!(Some(server.close()), end);
}

/// The next ID is for a generator with another label.
fn settle(server: &Server, other: &Generator) {
    let (reserving, scale) = (Reserving::the_lock_is_held(), Scale::of_generator(other));
    server.slot.settle(&reserving, 0, scale, server.read());
}

#[test]
fn no_rotation_starts_before_the_marks_of_worker_ids_from_elsewhere() {
    let first = |comes_from_elsewhere: bool| {
        let mut state = issued();
        let mark = state.server.slot.highest().unwrap();
        if comes_from_elsewhere {
            state.server.slot.start_rotations_at_mark();
        }
        state.apply(Event::Step(-9));
        assert!(state.server.takes_from_queue(None));
        let Outcome::Issued { start, .. } = state.server.call(1) else {
            return (mark, None);
        };
        let layout = state.server.generator.layout;
        let tick = layout.decode(state.server.id(start)).unwrap().tick;
        (mark, Some(layout.instant_of(tick)))
    };
    let (mark, issued) = first(false);
    assert!(issued.unwrap() < mark);
    let (mark, issued) = first(true);
    assert!(issued.is_none_or(|at| at >= mark));
}
