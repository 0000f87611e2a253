//! Observing IDs of other servers: what is issued afterwards sorts after them, and nothing
//! else changes.

use super::super::cursor::{CLOSED, Clocks};
use super::super::generator::{Descent, Generator};
use super::super::id::{Millis, Position, Tick, UnixMillis, WorkerId};
use super::super::label::Label;
use super::super::layout::{FieldRole, Layout, OrderError};
use super::super::plan::ReserveError;
use super::super::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use super::super::protocol::host::IssueError;
use super::super::protocol::observe;
use super::model::{MS, Naps, Outcome, Server, Stop, settings};

/// 9 bits of time, 2 of worker, 2 of sequence: four IDs a tick. Borrows two ticks.
fn tiny(on_rollback: OnRollback) -> Generator {
    let fields = [
        (FieldRole::Time, 9),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    Generator {
        layout: Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap(),
        policy: Policy {
            on_rollback,
            max_borrow_ticks: 2,
            max_rollback: Millis::new(60),
            max_wait: Millis::new(1),
            sequence_start: SequenceStart::vibrate(1),
            ..Policy::DEFAULT
        },
    }
}

/// At 100 ms. Reserves 10 ms; a failover gap is 8 ms.
fn server_of(generator: Generator) -> Server {
    Server::new(generator, settings(40, 10, 8), 100)
}

fn server() -> Server {
    server_of(tiny(OnRollback::Continue))
}

fn observes(server: &Server, tick: u64) -> Result<(), Stop> {
    observe(server, Tick::new(tick))
}

/// Tick and sequence number of the next ID.
fn next(server: &Server) -> (u64, u64) {
    let Outcome::Issued { start, .. } = server.call(1) else {
        panic!("{:?}", server.call(1));
    };
    (start.get() >> 2, start.get() & 3)
}

/// What a call that changes nothing leaves as it was.
fn state(server: &Server) -> (Position, Position, Option<UnixMillis>, u32) {
    (
        server.cursor(),
        server.reserved(),
        server.mark(),
        server.marks.get(),
    )
}

fn too_far(by: i64, limit: i64) -> Result<(), Stop> {
    let [by, limit] = [by, limit].map(Millis::new);
    Err(Stop::Refused(IssueError::TooFarAhead { by, limit }))
}

#[test]
fn ids_go_on_after_what_was_observed() {
    let server = server();
    assert_eq!(next(&server).0, 100);
    // Of the tick of now, ahead, and as far ahead as may be.
    for ahead in 0..=2 {
        assert_eq!(observes(&server, 100 + ahead), Ok(()));
        // Another observer of it, or of an earlier one, changes nothing.
        let before = state(&server);
        for earlier in [0, 99, 100, 100 + ahead] {
            assert_eq!(observes(&server, earlier), Ok(()));
        }
        assert_eq!(state(&server), before);
        if ahead < 2 {
            assert_eq!(next(&server).0, 101 + ahead);
        }
    }
    assert_eq!(server.marks.get(), 1);
    // That is where a burst ends, too.
    assert_eq!(server.cursor(), Position::new(103 << 2));
    assert_eq!(server.call(1), Outcome::WaitsForTick(1));
}

#[test]
fn what_is_too_far_ahead_changes_nothing() {
    for on_rollback in [OnRollback::Continue, OnRollback::Wait, OnRollback::Error] {
        let server = server_of(tiny(on_rollback));
        for starts in [true, false] {
            let before = state(&server);
            assert_eq!(observes(&server, 103), too_far(3, 2));
            assert_eq!(observes(&server, 511), too_far(411, 2));
            assert_eq!(state(&server), before);
            if starts {
                next(&server);
            }
        }
        // It is the clock of the generator that counts.
        assert_eq!(server.slot.live().cursor().position().get() >> 2, 100);
    }
    // With a lead, the clock of the generator is the later one.
    let mut server = server();
    next(&server);
    server.restart();
    let (first, _) = next(&server);
    assert!(first > 105, "{first}");
    assert_eq!(observes(&server, first + 2), Ok(()));
    assert_eq!(observes(&server, first + 3), too_far(3, 2));
}

/// Who only observes does not raise the mark, which is when the generator looks at the wall
/// clock otherwise.
#[test]
fn an_id_of_now_is_observed_after_the_clock_was_set_forward() {
    let mut server = server();
    assert_eq!(next(&server).0, 100);
    server.step(5 * MS);
    assert_eq!(observes(&server, 105), Ok(()));
    assert_eq!(server.marks.get(), 2);
    assert_eq!(next(&server).0, 106);
    // What is too far ahead is so by the wall clock, and the clock is looked at once.
    server.step(5 * MS);
    assert_eq!(observes(&server, 113), too_far(3, 2));
    assert_eq!(server.marks.get(), 3);
    assert_eq!(observes(&server, 113), too_far(3, 2));
    assert_eq!(server.marks.get(), 3);
    assert_eq!(observes(&server, 112), Ok(()));
    // A jump that is not believed is the reason.
    server.step((settings(40, 10, 8).max_clock_jump.get() + 1) * MS);
    let before = state(&server);
    let refused = observes(&server, 200);
    assert!(
        matches!(
            refused,
            Err(Stop::Refused(IssueError::Reservation(
                ReserveError::ClockJumped { .. }
            )))
        ),
        "{refused:?}"
    );
    assert_eq!(state(&server), before);
}

/// All is reserved up to the bound of the worker ID: the clock follows all the same.
#[test]
fn at_the_bound_the_clock_follows_too() {
    let mut server = server();
    server.becomes(|tenure| {
        let [floor, bound] = [100, 105].map(UnixMillis::new);
        tenure.granted(
            WorkerId::new(1).unwrap(),
            floor,
            bound,
            floor,
            Millis::new(60),
        )
    });
    assert_eq!(next(&server).0, 100);
    assert_eq!(server.reserved(), Position::new(105 << 2));
    server.step(3 * MS);
    assert_eq!(observes(&server, 103), Ok(()));
    assert_eq!(next(&server).0, 104);
}

#[test]
fn max_observe_is_a_limit_besides() {
    let with = |mut generator: Generator, most| {
        generator.policy.max_observe = Some(Millis::new(most));
        server_of(generator)
    };
    let within = |ahead: u64, most| observes(&with(tiny(OnRollback::Continue), most), 100 + ahead);
    assert_eq!(within(1, 0), too_far(1, 0));
    assert_eq!(within(0, 0), Ok(()));
    assert_eq!(within(2, 1), too_far(2, 1));
    assert_eq!(within(1, 1), Ok(()));
    // Whole ticks count.
    let fields = [
        (FieldRole::Time, 9),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    let slow = Generator {
        layout: Layout::new(UnixMillis::new(0), Millis::new(10), &fields).unwrap(),
        ..tiny(OnRollback::Continue)
    };
    let within = |tick, most| observes(&with(slow, most), tick);
    assert_eq!(within(11, 9), too_far(10, 0));
    assert_eq!(within(11, 19), Ok(()));
    assert_eq!(within(12, 19), too_far(20, 10));
}

/// A server whose clock is behind gives a reply for each message: were these the first
/// ones of their ticks by number, all replies would fall on one shard.
#[test]
fn sequence_numbers_stay_even() {
    let generator = Generator::DEFAULT;
    let now = generator.layout.instant_of(Tick::new(1 << 40)).get();
    let mut server = Server::new(generator, settings(40, 10_000, 8), now);
    let mut seen = [0; 64];
    for tick in 0..640 {
        server.pass(MS);
        assert_eq!(observes(&server, (1 << 40) + tick + 50), Ok(()));
        let Outcome::Issued { start, .. } = server.call(1) else {
            panic!();
        };
        assert_eq!(start.get() >> 12, (1 << 40) + tick + 51);
        seen[usize::try_from(start.get() % 64).unwrap()] += 1;
    }
    assert_eq!(seen, [10; 64]);
}

#[test]
fn marks_are_as_many_as_for_ids() {
    let run = |call: &dyn Fn(&Server, u64)| {
        let mut server = server_of(Generator {
            layout: Layout::DEFAULT,
            ..tiny(OnRollback::Continue)
        });
        let epoch = server.generator.layout.epoch().get();
        server.step(epoch * MS);
        server.restart();
        for tick in 100..1100 {
            call(&server, tick);
            call(&server, tick);
            server.pass(MS);
        }
        server.marks.get()
    };
    let issued = run(&|server, _| assert!(next(server).0 > 0));
    let observed = run(&|server, tick| observes(server, tick + 2).unwrap());
    assert!(issued > 50, "{issued}");
    assert!(observed <= issued, "{observed} {issued}");
    // And a caller is elected to reserve ahead of need.
    let mut server = server();
    assert_eq!(observes(&server, 100), Ok(()));
    let bound = server.reserved();
    server.pass(6 * MS);
    server.apart = true;
    assert_eq!(observes(&server, 106), Ok(()));
    assert!(server.under_way.get().is_some(), "nobody reserves");
    assert_eq!(server.reserved(), bound);
}

#[test]
fn a_crash_does_not_undo_it() {
    for on_rollback in [OnRollback::Continue, OnRollback::Wait] {
        for ahead in 0..=2 {
            let mut server = server_of(tiny(on_rollback));
            assert_eq!(observes(&server, 100 + ahead), Ok(()));
            server.step(-20 * MS);
            server.restart();
            assert!(next(&server).0 > 100 + ahead);
        }
    }
}

#[test]
fn a_clock_that_is_set_back_is_noticed_afterwards() {
    let mut server = server_of(tiny(OnRollback::Wait));
    assert_eq!(next(&server).0, 100);
    server.pass(3 * MS);
    assert_eq!(observes(&server, 104), Ok(()));
    // Behind the reading by which the cursor was moved, and not behind that of the ID.
    server.step(-3 * MS);
    let refused = server.call(1);
    let Outcome::Refused(IssueError::Behind { by, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(by, Millis::new(3));
    // Nothing is observed then either, unless that needs nothing.
    assert!(matches!(
        observes(&server, 105),
        Err(Stop::Refused(IssueError::Behind { .. }))
    ));
    assert_eq!(observes(&server, 104), Ok(()));
    // A shorter rollback is waited for.
    server.step(2 * MS);
    assert!(matches!(observes(&server, 105), Err(Stop::Sleeps(_))));
    server.naps = Naps::Pass;
    assert_eq!(observes(&server, 105), Ok(()));
    assert_eq!(next(&server).0, 106);
}

/// Ends the slewed line that a start has left, as an ID does.
#[test]
fn a_line_that_was_met_ends() {
    let mut server = server_of(tiny(OnRollback::Wait));
    next(&server);
    server.restart();
    let (first, _) = next(&server);
    let line = |server: &Server| server.slot.clock().line(|| server.boot());
    assert!(line(&server).is_some());
    server.pass(40 * MS);
    assert_eq!(observes(&server, first + 20), Ok(()));
    assert!(line(&server).is_none());
}

#[test]
fn a_bound_that_is_gone_is_written_anew() {
    let server = server();
    assert_eq!(observes(&server, 101), Ok(()));
    assert_eq!(server.marks.get(), 1);
    // A rewrite of the sequence ended: the mark may be gone.
    server.slot.unsettle();
    assert_eq!(observes(&server, 101), Ok(()));
    assert_eq!(server.marks.get(), 2);
    assert!(server.reserved().get() > server.cursor().get());
    // The cursor has gone past the bound, as by additions that met there.
    server.slot.live().cursor().raise(server.reserved());
    let past = server.reserved().get() >> 2;
    server
        .slot
        .live()
        .cursor()
        .raise(Position::new((past + 2) << 2));
    let mut server = server;
    server.pass(10 * MS);
    let marks = server.marks.get();
    assert_eq!(observes(&server, past - 1), Ok(()));
    assert_eq!(server.marks.get(), marks);
    assert_eq!(observes(&server, past), Ok(()));
    assert_eq!(server.marks.get(), marks + 1);
}

#[test]
fn a_worker_id_from_a_registry() {
    let mut server = server();
    let [floor, bound] = [50, 102].map(UnixMillis::new);
    let (worker, ahead) = (WorkerId::new(1).unwrap(), Millis::new(1000));
    server.becomes(|it| it.granted(worker, floor, bound, floor, ahead));
    assert_eq!(observes(&server, 101), Ok(()));
    assert_eq!(server.reserved(), Position::new(102 << 2));
    // The cursor is at the bound: the next tick is another one's.
    server.pass(MS);
    assert!(matches!(observes(&server, 102), Err(Stop::Sleeps(_))));
    server.pass(2 * MS);
    let refused = observes(&server, 102);
    assert!(
        matches!(refused, Err(Stop::Refused(IssueError::Reservation(_)))),
        "{refused:?}"
    );
    server.renews = Some(Millis::new(20));
    assert_eq!(observes(&server, 102), Ok(()));
    assert_eq!(next(&server).0, 103);
    // A slot that was closed: the next tenure continues after what was observed.
    assert_eq!(observes(&server, 104), Ok(()));
    let _ = server.close();
    assert_eq!(server.slot.live().bounds().reserved(), CLOSED);
    assert_eq!(observes(&server, 104), Err(Stop::NoWorker));
    let bound = UnixMillis::new(500);
    server.becomes(|it| it.granted(worker, floor, bound, floor, ahead));
    let before = server.marks.get();
    assert_eq!(observes(&server, 104), Ok(()));
    assert_eq!(server.marks.get(), before + 1);
    assert!(next(&server).0 > 104);
}

#[test]
fn the_end_of_the_layout() {
    let mut server = server();
    server.step((510 - 100) * MS);
    server.restart();
    // The last tick is never issued.
    assert_eq!(observes(&server, 509), Ok(()));
    for tick in [510, 511] {
        let refused = observes(&server, tick);
        assert!(
            matches!(refused, Err(Stop::Refused(IssueError::Reservation(_)))),
            "{refused:?}"
        );
    }
    assert_eq!(next(&server).0, 510);
}

#[test]
fn only_generators_whose_ids_ascend() {
    let of = |label: &str| {
        let label = Label::parse(label).unwrap_or_else(|error| panic!("{label}: {error:?}"));
        label.generator().descends()
    };
    let fields = "epoch=2025-01-01Z layout=";
    for (layout, policy, expected) in [
        ("time:41 worker:10 sequence:12", "", None),
        ("time:41 worker:10 sequence:12", "on_rollback=wait", None),
        ("time:41 worker:10 sequence:12", "on_rollback=error", None),
        (
            "time:41 worker:10 sequence:12",
            "sequence_start=random",
            None,
        ),
        ("time:41 sequence:12 worker:10", "", None),
        ("shard:5=3 time:41 worker:5 sequence:12", "", None),
        ("time:41 tenant:10=caller worker:4 sequence:8", "", None),
        (
            "time:41 worker:8 clock:2 sequence:12",
            "on_exhausted=next_clock",
            None,
        ),
        (
            "tenant:5=caller time:41 worker:5 sequence:12",
            "",
            Some(Descent::Layout(OrderError::TimeBelow)),
        ),
        (
            "worker:10 time:41 sequence:12",
            "",
            Some(Descent::Layout(OrderError::TimeBelow)),
        ),
        (
            "clock:2 time:41 worker:8 sequence:12",
            "on_exhausted=next_clock",
            Some(Descent::Layout(OrderError::TimeBelow)),
        ),
        (
            "time_reversed:41 worker:10 sequence:12",
            "",
            Some(Descent::Layout(OrderError::Reversed)),
        ),
        (
            "time:41 worker:8 clock:2 sequence:12",
            "on_rollback=next_clock",
            Some(Descent::Rollback),
        ),
        (
            "time:41 worker:10 sequence:12",
            "on_rollback=next_worker",
            Some(Descent::Rollback),
        ),
    ] {
        assert_eq!(
            of(&format!("{fields}'{layout}' {policy}")),
            expected,
            "{layout} {policy}"
        );
    }
    let mut generator = tiny(OnRollback::Continue);
    let fields = [
        (FieldRole::TimeReversed, 9),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    generator.layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
    let server = server_of(generator);
    next(&server);
    let before = state(&server);
    let reversed = Descent::Layout(OrderError::Reversed);
    for tick in [0, 100, 400] {
        assert_eq!(
            observes(&server, tick),
            Err(Stop::Refused(IssueError::Descends(reversed)))
        );
    }
    assert_eq!(state(&server), before);
}

/// IDs of all 64 bits turn negative half-way, and then sort before the others.
#[test]
fn ids_ascend_until_they_turn_negative() {
    let fields = [
        (FieldRole::Time, 9),
        (FieldRole::Fixed(0), 51),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    let mut generator = tiny(OnRollback::Continue);
    generator.layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
    let at = UnixMillis::new(256);
    let negative = Descent::Layout(OrderError::NegativeFrom(at));
    assert_eq!(generator.descends(), None);
    let refused = Err(Stop::Refused(IssueError::Descends(negative)));
    let mut server = server_of(generator);
    assert_eq!(observes(&server, 102), Ok(()));
    server.step((254 - 100) * MS);
    server.restart();
    assert_eq!(observes(&server, 254), Ok(()));
    assert_eq!(observes(&server, 255), refused);
    server.pass(2 * MS);
    for tick in [100, 254, 255, 256] {
        assert_eq!(observes(&server, tick), refused);
    }
}

/// What a call waits for, it gets as a caller who takes IDs would.
#[test]
fn an_exhausted_tick_is_no_obstacle() {
    let mut generator = tiny(OnRollback::Continue);
    generator.policy.on_exhausted = OnExhausted::Error;
    let server = server_of(generator);
    while let Outcome::Issued { .. } = server.call(1) {}
    let before = state(&server);
    for tick in [100, 102] {
        assert_eq!(observes(&server, tick), Ok(()));
    }
    assert_eq!(observes(&server, 103), too_far(3, 2));
    assert_eq!(state(&server), before);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    One,
    Four,
    /// An ID is observed whose tick is this far ahead of the generator's clock.
    Observe(i64),
    Pass,
    Step(i64),
    Crash,
    Promote,
    /// A reservation under way takes its next step.
    GoOn,
}

/// Walks all sequences of events of this length. Returns how many IDs were issued, and how
/// many observed.
fn walk(generator: Generator, apart: bool, events: &[Event], length: u32) -> (u64, u64) {
    let (mut issued, mut observed) = (0, 0);
    let count = events.len();
    for number in 0..count.pow(length) {
        let walk: Vec<_> = (0..length)
            .map(|at| events[number / count.pow(at) % count])
            .collect();
        let mut server = server_of(generator);
        server.apart = apart;
        let (mut last, mut passed) = (None, None);
        for &event in &walk {
            let call = match event {
                Event::One => server.call(1),
                Event::Four => server.call(4),
                Event::Observe(ahead) => {
                    let now = server.now().millis().get();
                    let tick = (now + ahead).cast_unsigned();
                    let before = state(&server);
                    let result = observes(&server, tick);
                    if result.is_ok() {
                        observed += 1;
                        passed = passed.max(Some(tick));
                        // A start may have moved the generator's clock.
                        let now = server.now().millis().get();
                        let farthest = Position::new((now + 3).cast_unsigned() << 2);
                        assert!(
                            server.cursor().get() <= before.0.get().max(farthest.get()),
                            "past the borrow window: {walk:?}"
                        );
                        // The mark on disk is past it, whatever becomes of the server.
                        let mark = server.mark().unwrap();
                        assert!(mark > UnixMillis::new(tick.cast_signed()), "{walk:?}");
                        assert!(server.cursor().get() >= (tick + 1) << 2, "{walk:?}");
                    }
                    if ahead > 2 {
                        // Unless the cursor is past it, as before a rollback.
                        assert_eq!(state(&server), before, "too far: {walk:?}");
                    }
                    continue;
                }
                Event::Pass => {
                    server.pass(MS);
                    continue;
                }
                Event::Step(by) => {
                    server.step(by * MS);
                    continue;
                }
                Event::Crash => {
                    server.pass(MS);
                    server.restart();
                    continue;
                }
                Event::Promote => {
                    server.promote(-2 * MS);
                    continue;
                }
                Event::GoOn => {
                    server.go_on();
                    continue;
                }
            };
            let Outcome::Issued { start, end } = call else {
                continue;
            };
            for at in start.get()..end.get() {
                assert!(last < Some(at), "{at} after {last:?}: {walk:?}");
                assert!(
                    passed < Some(at >> 2),
                    "{at} after tick {passed:?}: {walk:?}"
                );
                last = Some(at);
                issued += 1;
            }
        }
    }
    (issued, observed)
}

#[test]
fn every_walk_of_ids_and_observed_ids() {
    use Event::{Crash, Four, Observe, One, Pass, Promote, Step};
    for on_rollback in [OnRollback::Continue, OnRollback::Wait, OnRollback::Error] {
        let generator = tiny(on_rollback);
        let events = [
            One,
            Four,
            Observe(0),
            Observe(2),
            Observe(3),
            Pass,
            Step(-3),
            Crash,
        ];
        let (issued, observed) = walk(generator, false, &events, 5);
        assert!(issued > 30_000 && observed > 20_000, "{issued} {observed}");
        let events = [
            One,
            Observe(1),
            Observe(-1),
            Pass,
            Step(-1),
            Step(4),
            Promote,
        ];
        let (issued, observed) = walk(generator, false, &events, 5);
        assert!(issued > 5_000 && observed > 10_000, "{issued} {observed}");
    }
}

#[test]
fn every_walk_while_a_reserver_is_under_way() {
    use Event::{Crash, Four, GoOn, Observe, One, Pass};
    for on_rollback in [OnRollback::Continue, OnRollback::Wait] {
        let events = [One, Four, Observe(0), Observe(2), Pass, GoOn, Crash];
        let (issued, observed) = walk(tiny(on_rollback), true, &events, 6);
        assert!(issued > 400 && observed > 200, "{issued} {observed}");
    }
}
