//! Observing IDs of other servers: what is issued afterwards sorts after them, and nothing
//! else changes.

use super::model::{MS, Naps, Outcome, Server, Stop, WORKER, settings};
use crate::id::layout::{FieldRole, Layout, OrderError};
use crate::id::{Millis, Position, SnowflakeId, Tick, UnixMillis, WorkerId};
use crate::label::generator::{Descent, Generator};
use crate::label::policy::{OnExhausted, OnRollback, Policy, SequenceStart};
use crate::protocol::host::IssueError;
use crate::protocol::observe;
use crate::protocol::plan::ReserveError;

const TINY: [(FieldRole, u32); 3] = [
    (FieldRole::Time, 9),
    (FieldRole::Worker, 2),
    (FieldRole::Sequence, 2),
];

fn layout(tick: i64, fields: &[(FieldRole, u32)]) -> Layout {
    Layout::new(UnixMillis::new(0), Millis::new(tick), fields).unwrap()
}

/// Four IDs a tick. Borrows two ticks.
fn tiny(on_rollback: OnRollback) -> Generator {
    Generator {
        layout: layout(1, &TINY),
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

fn id(server: &Server, tick: u64, worker: i64, sequence: i64) -> SnowflakeId {
    let layout = server.generator.layout;
    layout.encode(Tick::new(tick), worker, sequence).unwrap()
}

fn observes_id(server: &Server, id: SnowflakeId) -> Result<(), Stop> {
    observe(server, id, server.generator.layout.tick_of_id(id))
}

/// An ID of a server whose IDs sort after those that this one has for the same tick.
fn observes(server: &Server, tick: u64) -> Result<(), Stop> {
    observes_id(server, id(server, tick, i64::from(WORKER) + 1, 0))
}

fn next_id(server: &Server) -> SnowflakeId {
    let Outcome::Issued { start, .. } = server.call(1) else {
        panic!("{:?}", server.call(1));
    };
    server.id(start)
}

/// The tick of the next ID.
fn next(server: &Server) -> u64 {
    server.generator.layout.tick_of_id(next_id(server)).get()
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

/// A loop over the IDs of the server itself takes, borrows and writes what the IDs alone do.
#[test]
fn own_ids_cost_nothing() {
    for on_rollback in [OnRollback::Continue, OnRollback::Wait, OnRollback::Error] {
        let mut server = server_of(tiny(on_rollback));
        for round in 0..300 {
            let own = next_id(&server);
            let before = state(&server);
            let latest = server.slot.clock().latest();
            assert_eq!(observes_id(&server, own), Ok(()));
            assert_eq!(state(&server), before);
            assert_eq!(server.slot.clock().latest(), latest);
            if round % 3 == 2 {
                server.pass(MS);
            }
        }
        assert_eq!(next(&server), 200, "it has borrowed");
        // The one that comes next does not sort before itself.
        let coming = server.id(server.cursor());
        assert_eq!(observes_id(&server, coming), Ok(()));
        assert!(next_id(&server) > coming);
        assert!(server.marks.get() < 40, "{}", server.marks.get());
    }
}

/// IDs are compared as a whole: by worker ID or by sequence number, as the layout has them.
#[test]
fn what_sorts_before_the_next_id_costs_nothing() {
    let [time, worker, sequence] = TINY;
    for (fields, free) in [
        (TINY, [(1, 3), (2, 1)]),
        ([time, sequence, worker], [(3, 1), (1, 2)]),
    ] {
        let mut generator = tiny(OnRollback::Continue);
        generator.policy.sequence_start = SequenceStart::Masked(0);
        generator.layout = layout(1, &fields);
        let mut server = server_of(generator);
        assert_eq!((next(&server), next(&server)), (100, 100));
        let before = state(&server);
        for (worker, sequence) in free {
            assert_eq!(
                observes_id(&server, id(&server, 100, worker, sequence)),
                Ok(())
            );
            assert_eq!(state(&server), before);
        }
        assert_eq!(observes_id(&server, id(&server, 100, 3, 3)), Ok(()));
        assert_eq!(next(&server), 101);
        // What the clock has left behind lies before it, too.
        server.pass(4 * MS);
        let before = state(&server);
        assert_eq!(observes_id(&server, id(&server, 103, 3, 3)), Ok(()));
        assert_eq!(state(&server), before);
        assert_eq!(next(&server), 104);
    }
}

/// The IDs of a tick are in no order: those of the next one sort after them.
#[test]
fn a_tick_without_an_order_is_left() {
    let mut shuffled = tiny(OnRollback::Continue);
    shuffled.policy.sequence_start = SequenceStart::Random;
    let mut clocks = tiny(OnRollback::Continue);
    clocks.policy.on_exhausted = OnExhausted::NextClock;
    let [time, worker, sequence] = TINY;
    let fields = [time, worker, sequence, (FieldRole::Clock, 2)];
    clocks.layout = layout(1, &fields).through_clocks().unwrap();
    for generator in [shuffled, clocks] {
        let mut server = server_of(generator);
        for tick in 100..103 {
            let own = next_id(&server);
            assert_eq!(server.generator.layout.tick_of_id(own), Tick::new(tick));
            assert_eq!(observes_id(&server, own), Ok(()));
        }
        server.pass(9 * MS);
        assert_eq!(next(&server), 109);
        let before = state(&server);
        assert_eq!(observes_id(&server, id(&server, 108, 3, 3)), Ok(()));
        assert_eq!(state(&server), before);
    }
}

/// Servers whose clocks differ answer each other, in bursts: each ID sorts after all that came
/// before it, and nobody runs away from its clock.
#[test]
fn chains_over_servers() {
    let [_, worker, sequence] = TINY;
    let mut generator = tiny(OnRollback::Continue);
    generator.policy.max_borrow_ticks = 20;
    generator.layout = layout(1, &[(FieldRole::Time, 20), worker, sequence]);
    let mut servers = [(0, 0), (1, 9), (2, 3), (3, 6)].map(|(worker, ahead)| {
        let mut server = server_of(generator);
        server.becomes(|it| it.unregistered(WorkerId::new(worker)));
        server.naps = Naps::Pass;
        server.step(ahead * MS);
        server
    });
    let mut last = SnowflakeId::new(0);
    for round in 0..600 {
        let at = [0, 1, 0, 2, 3, 1][round % 6];
        // An ID that is too far ahead is not for long.
        let waited = (0..=9).find(|_| {
            let is_observed = observes_id(&servers[at], last) == Ok(());
            servers.iter_mut().for_each(|server| server.pass(MS));
            is_observed
        });
        assert!(waited.is_some(), "{round}");
        for _ in 0..=round % 97 {
            let id = next_id(&servers[at]);
            assert!(id > last, "{id:?} after {last:?}");
            last = id;
        }
        // A call that has waited lets time pass for all.
        let boot = servers[at].boot.get();
        for server in &mut servers {
            server.pass((boot - server.boot.get()).max(0));
            let lead = (server.cursor().get() >> 2).cast_signed() - server.wall.get() / MS;
            assert!(lead <= 21, "{lead} ticks ahead");
        }
    }
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
    let first = next(&server);
    assert!(first > 105, "{first}");
    assert_eq!(observes(&server, first + 2), Ok(()));
    assert_eq!(observes(&server, first + 3), too_far(3, 2));
}

/// Who only observes does not raise the mark, which is when the generator looks at the wall
/// clock otherwise.
#[test]
fn an_id_of_now_is_observed_after_the_clock_was_set_forward() {
    let mut server = server();
    assert_eq!(next(&server), 100);
    server.step(5 * MS);
    assert_eq!(observes(&server, 105), Ok(()));
    assert_eq!(server.marks.get(), 2);
    assert_eq!(next(&server), 106);
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
    assert_eq!(next(&server), 100);
    assert_eq!(server.reserved(), Position::new(105 << 2));
    server.step(3 * MS);
    assert_eq!(observes(&server, 103), Ok(()));
    assert_eq!(next(&server), 104);
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
    let slow = Generator {
        layout: layout(10, &TINY),
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
fn a_caller_is_elected_to_reserve_ahead_of_need() {
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
fn a_clock_that_is_set_back_is_noticed_afterwards() {
    let mut server = server_of(tiny(OnRollback::Wait));
    assert_eq!(next(&server), 100);
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
    assert_eq!(next(&server), 106);
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
    assert_eq!(next(&server), 103);
    let _ = server.close();
    assert_eq!(observes(&server, 104), Err(Stop::NoWorker));
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
    assert_eq!(next(&server), 510);
}

#[test]
fn only_generators_whose_ids_ascend() {
    let [time, worker, sequence] = TINY;
    let of = |fields: &[(FieldRole, u32)], on_rollback| {
        let mut generator = tiny(OnRollback::Continue);
        (generator.layout, generator.policy.on_rollback) = (layout(1, fields), on_rollback);
        let server = server_of(generator);
        next(&server);
        let before = state(&server);
        let [past, other] = [0, 400].map(|tick| observes(&server, tick));
        assert_eq!((past, state(&server)), (other, before));
        past
    };
    let refused = |descent| Err(Stop::Refused(IssueError::Descends(descent)));
    let reversed = [(FieldRole::TimeReversed, 9), worker, sequence];
    let reversed = of(&reversed, OnRollback::Continue);
    assert_eq!(reversed, refused(Descent::Layout(OrderError::Reversed)));
    let below = of(&[worker, time, sequence], OnRollback::Wait);
    assert_eq!(below, refused(Descent::Layout(OrderError::TimeBelow)));
    let clocks = [time, worker, (FieldRole::Clock, 1), sequence];
    let clocks = of(&clocks, OnRollback::NextClock);
    assert_eq!(clocks, refused(Descent::Rollback));
}

/// IDs of all 64 bits turn negative half-way, and then sort before the others.
#[test]
fn ids_ascend_until_they_turn_negative() {
    let [time, worker, sequence] = TINY;
    let mut generator = tiny(OnRollback::Continue);
    generator.layout = layout(1, &[time, (FieldRole::Fixed(0), 51), worker, sequence]);
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
