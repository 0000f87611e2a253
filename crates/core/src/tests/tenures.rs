//! A server whose worker ID comes from a registry: where IDs start, where they end, who
//! waits.

use super::model::{MS, Naps, Outcome, Server, Stop, settings};
use crate::horizon::BEGINNING;
use crate::id::layout::{FieldRole, Layout};
use crate::id::{Millis, Position, Tick, UnixMillis, WorkerId};
use crate::label::generator::Generator;
use crate::label::policy::{OnRollback, Policy, SequenceStart};
use crate::protocol::cursor::Step;
use crate::protocol::demand;
use crate::protocol::host::{Host, IssueError, Need};
use crate::protocol::plan::ReserveError;
use crate::protocol::tenure::{Generation, Tenure};

/// Ticks of 10 ms, four IDs each; half a second of rollback is forgiven.
pub fn generator() -> Generator {
    let fields = [
        (FieldRole::Time, 30),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    Generator {
        layout: Layout::new(UnixMillis::new(0), Millis::new(10), &fields).unwrap(),
        policy: Policy {
            max_borrow_ticks: 2,
            max_rollback: Millis::new(500),
            sequence_start: SequenceStart::Masked(0),
            ..Policy::DEFAULT
        },
    }
}

/// At 1000 ms. Reserves 100 ms; a failover gap is 300 ms.
fn server() -> Server {
    Server::new(generator(), settings(10_000, 100, 300), 1000)
}

fn grant(server: &Server, worker: i32, floor: i64, bound: i64) {
    grant_to(server, worker, floor, bound, floor);
}

/// A grant to a server that had a bound before, up to `reached`.
fn grant_to(server: &Server, worker: i32, floor: i64, bound: i64, reached: i64) {
    let [floor, bound, reached] = [floor, bound, reached].map(UnixMillis::new);
    let (worker, ahead) = (WorkerId::new(worker).unwrap(), Millis::new(200));
    server.becomes(|tenure| tenure.granted(worker, floor, bound, reached, ahead));
}

/// The worker ID and the beginning of the tick of the next ID.
fn next(server: &Server) -> (u64, i64) {
    let Outcome::Issued { start, .. } = server.call(1) else {
        panic!("{:?}", server.call(1));
    };
    let fields = server.generator.layout.decode(server.id(start)).unwrap();
    let begins = server.generator.layout.instant_of(fields.tick);
    (fields.worker, begins.get())
}

fn refusal(server: &Server) -> ReserveError {
    match server.call(1) {
        Outcome::Refused(IssueError::Reservation(refusal)) => refusal,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_grant_starts_at_its_floor_and_ends_at_its_bound() {
    let mut server = server();
    // Both lie within a tick.
    grant(&server, 1, 1043, 1056);
    assert_eq!(next(&server), (1, 1050));
    assert_eq!(server.mark(), Some(UnixMillis::new(1060)));
    // An early reservation would write the same mark again.
    let bounds = server.slot.live().bounds();
    assert!(bounds.claim_prefetch(Position::new(u64::MAX)));
    assert_eq!(server.reserve(Need::Early(Tick::new(105))), Ok(None));
    assert_eq!(server.marks.get(), 1);
    for _ in 1..4 {
        assert_eq!(next(&server), (1, 1050));
    }
    // The clock, which leads, has to come to the end first.
    assert_eq!(server.call(1), Outcome::WaitsAtBound);
    server.pass(20 * MS);
    let past = ReserveError::PastBound {
        needed: UnixMillis::new(1060),
        bound: UnixMillis::new(1056),
        ahead: 0,
    };
    assert_eq!(refusal(&server), past);
    assert_eq!(server.marks.get(), 1);
    server.becomes(|tenure| tenure.renewed(UnixMillis::new(1100)));
    assert_eq!(next(&server), (1, 1060));
}

#[test]
fn a_call_waits_for_a_later_bound() {
    let mut server = server();
    grant(&server, 1, 1000, 1050);
    assert_eq!(next(&server), (1, 1000));
    server.pass(60 * MS);
    server.renews = Some(Millis::new(100));
    assert_eq!(next(&server), (1, 1060));
    let bound = server.tenure().bound;
    assert_eq!(bound, Some(UnixMillis::new(1160)));
    // So does one who advances the generator.
    demand(&server, Need::AdvanceTo(UnixMillis::new(1230))).unwrap();
    assert_eq!(server.tenure().bound, Some(UnixMillis::new(1330)));
    demand(&server, Need::AdvanceTo(UnixMillis::new(1230))).unwrap();
    assert_eq!(next(&server), (1, 1230));
}

#[test]
fn a_burst_on_top_of_a_lead_waits_for_the_clock_and_not_for_the_registry() {
    let mut server = server();
    grant(&server, 1, 5000, 5010);
    server.naps = Naps::Pass;
    for _ in 0..4 {
        assert_eq!(next(&server), (1, 5000));
    }
    // Two more ticks could be borrowed. The clock leads, and runs at half speed.
    let wall = server.wall.get();
    assert!(matches!(
        refusal(&server),
        ReserveError::PastBound { ahead: 0, .. }
    ));
    assert!((19 * MS..22 * MS).contains(&(server.wall.get() - wall)));
}

#[test]
fn a_floor_is_no_clock_error() {
    // Ten times what is forgiven ahead, again and again.
    let mut server = server();
    for lead in [5_000, 5_200, 5_400] {
        grant(&server, 1, 1000 + lead, 1000 + lead + 150);
        assert_eq!(next(&server), (1, 1000 + lead));
        // The generator continues from there.
        server.pass(40 * MS);
        for _ in 0..4 {
            let _ = next(&server);
        }
        server.restart();
        assert_eq!(server.call(1), Outcome::NoWorker);
    }
    // A mark beyond the floor is one.
    server.set_mark(Some(9_000));
    grant(&server, 1, 1000, 20_000);
    assert!(matches!(
        refusal(&server),
        ReserveError::MarkPastPool { .. }
    ));
}

/// What the pool allows, 200 ms, and what a generator reserves and borrows.
const FOREIGN: i64 = 200 + 100 + 20;

/// Whether a mark this far ahead of the clock is refused, by which limit; if not, IDs
/// start there.
fn limit_of(server: &Server, ahead: i64) -> Option<i64> {
    let at = server.wall.get() / MS + ahead;
    server.set_mark(Some(at));
    match server.call(1) {
        Outcome::Refused(IssueError::Reservation(ReserveError::MarkPastPool {
            by,
            limit,
            mark,
        })) => {
            assert_eq!((by.get(), mark.get()), (ahead, at));
            Some(limit.get())
        }
        Outcome::Issued { .. } => {
            assert!(server.now().millis() >= UnixMillis::new(at));
            None
        }
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_mark_that_somebody_sets_ahead_does_not_move_the_bound() {
    let mut server = server();
    server.generator.policy = Policy {
        max_rollback: Policy::DEFAULT.max_rollback,
        ..server.generator.policy
    };
    grant(&server, 1, 0, 1250);
    server.renews = Some(Millis::new(10));
    let mut running = server.clone();
    let day = 23 * 60 * 60 * 1000;
    for ahead in [FOREIGN + 1, day] {
        assert_eq!(limit_of(&server, ahead), Some(FOREIGN));
    }
    assert_eq!(server.tenure().bound, Some(UnixMillis::new(1250)));
    assert!(server.slot.furthest() < Some(UnixMillis::new(1200)));
    assert!(server.slot.refused_at().is_some());
    // Nor does it by an advance.
    let near = UnixMillis::new(server.wall.get() / MS + 1);
    assert!(demand(&server, Need::AdvanceTo(near)).is_err());
    let mut accepting = server.clone();
    // Set back by its owner, or accepted by a superuser.
    assert_eq!(limit_of(&server, FOREIGN), None);
    assert_eq!(
        accepting.mark(),
        Some(UnixMillis::new(server.wall.get() / MS + day))
    );
    accepting.accept();
    for _ in 0..100 {
        accepting.pass(20 * MS);
        let _ = next(&accepting);
    }
    assert!(next(&accepting).1 > day);
    // A generator that runs writes its own mark back, once all that was reserved is used up.
    assert_eq!(next(&running), (1, 1000));
    running.set_mark(Some(1000 + day));
    running.pass(200 * MS);
    assert_eq!(next(&running), (1, 1200));
    assert!(running.mark() < Some(UnixMillis::new(1400)));
}

#[test]
fn a_mark_of_this_server_is_never_past_the_pool() {
    // The clock is set back while generators run, and they lead it. The server gets
    // another worker ID then, at a restart too: after a boot of its machine, for example.
    for ends_cleanly in [false, true] {
        let mut server = server();
        server.generator.policy.max_rollback = Millis::new(20_000);
        server.step(5000 * MS);
        server.accept();
        grant(&server, 1, 0, 9000);
        assert_eq!(next(&server), (1, 6000));
        server.step(-5000 * MS);
        assert_eq!(next(&server), (1, 6000));
        let end = server.slot.furthest().unwrap();
        assert!(server.mark() > Some(end));
        let reached = if ends_cleanly { end.get() } else { 9000 };
        server.restart();
        grant_to(&server, 2, 0, 2000, reached);
        server.renews = Some(Millis::new(10_000));
        assert!(next(&server).1 >= 6000, "{ends_cleanly}");
    }
    // The slot knows its own mark, under whatever worker ID.
    let mut server = server();
    server.generator.policy.max_rollback = Millis::new(20_000);
    grant(&server, 1, 9000, 9500);
    assert_eq!(next(&server), (1, 9000));
    assert!(server.mark() > Some(UnixMillis::new(9000)));
    grant(&server, 2, 0, 20_000);
    assert!(next(&server).1 > 9000);
    // The limit is what was reached, and what was reserved past a clean end; or the
    // floor. A later bound allows no more: it moves with the generators.
    for (floor, bound, reached, latest) in [
        (0, 1100, 5000, 5100),
        (6000, 7000, 0, 6000),
        (0, 1100, 0, 1000 + FOREIGN),
        (0, 9000, 0, 1000 + FOREIGN),
    ] {
        let mut server = self::server();
        server.generator.policy.max_rollback = Millis::new(20_000);
        grant_to(&server, 1, floor, bound, reached);
        let ahead = latest - 1000;
        assert_eq!(limit_of(&server, ahead + 1), Some(ahead));
        server.renews = Some(Millis::new(10_000));
        assert_eq!(limit_of(&server, ahead), None);
    }
}

#[test]
fn a_mark_that_came_with_a_promotion_is_as_far_ahead_as_it_is() {
    let mut server = server();
    grant(&server, 1, 0, 2000);
    assert_eq!(next(&server), (1, 1000));
    // The standby lacks the latest mark. The clock of the lost primary was ahead.
    server.pass(200 * MS);
    assert_eq!(next(&server), (1, 1200));
    server.promote(-580 * MS);
    let mark = server.mark().unwrap();
    assert!(mark.since(UnixMillis::new(620)) > Millis::new(FOREIGN));
    grant(&server, 2, 0, 700);
    server.renews = Some(Millis::new(10));
    assert_eq!(next(&server), (2, mark.get()));
    // One that is set since did not come with it.
    server.pass(2000 * MS);
    let now = server.wall.get() / MS;
    server.set_mark(Some(now + FOREIGN + 1));
    server.restart();
    grant(&server, 2, 0, now + 100);
    assert!(matches!(
        refusal(&server),
        ReserveError::MarkPastPool { .. }
    ));
}

#[test]
fn without_a_registry_a_mark_may_be_ahead() {
    let mut server = server();
    server.set_mark(Some(1450));
    server.claim_mark();
    assert_eq!(next(&server), (2, 1450));
    grant(&server, 1, 0, 2000);
    server.becomes(Tenure::closed);
    server.becomes(|tenure| tenure.unregistered(WorkerId::new(3)));
    server.restart();
    server.set_mark(Some(1480));
    server.claim_mark();
    assert_eq!(next(&server), (2, 1480));
}

#[test]
fn a_promoted_server_with_a_grant_leaves_no_gap() {
    let mut server = server();
    grant(&server, 1, 1000, 1500);
    assert_eq!(next(&server), (1, 1000));
    server.promote(0);
    grant(&server, 2, 0, 1500);
    assert_eq!(next(&server), (2, 1000));
}

#[test]
fn ids_without_a_worker_id_need_the_gap_under_a_grant_too() {
    let fields = [
        (FieldRole::Time, 30),
        (FieldRole::Fixed(3), 2),
        (FieldRole::Sequence, 2),
    ];
    let mut generator = generator();
    generator.layout = Layout::new(UnixMillis::new(0), Millis::new(10), &fields).unwrap();
    let mut server = Server::new(generator, settings(10_000, 100, 300), 1000);
    grant(&server, 1, 1000, 1500);
    assert_eq!(next(&server), (0, 1000));
    server.promote(0);
    grant(&server, 2, 0, 1500);
    // A failover gap and what the generator may borrow.
    assert_eq!(next(&server), (0, 1320));
}

#[test]
fn a_new_tenure_starts_past_what_was_reserved_before() {
    for policy in [OnRollback::Continue, OnRollback::Wait, OnRollback::Error] {
        let mut server = server();
        server.generator.policy.on_rollback = policy;
        let old = server.generation();
        assert_eq!(next(&server), (2, 1000));
        let reserved = server.mark().unwrap();
        assert_eq!(reserved, UnixMillis::new(1110));
        // From a setting to a registry, and back; nobody waits.
        grant(&server, 1, 0, 1500);
        assert!(matches!(server.step_of(old, 1), Step::Issue(_)));
        let mine = server.generation();
        assert!(matches!(server.step_of(mine, 1), Step::Reserve { .. }));
        assert_eq!(next(&server), (1, 1110));
        assert!(matches!(server.step_of(old, 1), Step::Reserve { .. }));
        server.becomes(|tenure| tenure.unregistered(WorkerId::new(3)));
        let (worker, at) = next(&server);
        // Slow start.
        assert!(worker == 3 && (1120..1200).contains(&at), "{at}");
    }
}

#[test]
fn no_generator_is_advanced_beyond_the_limit_of_the_pool() {
    let server = server();
    grant(&server, 1, 0, 2000);
    assert_eq!(next(&server), (1, 1000));
    let to = |at| server.reserve(Need::AdvanceTo(UnixMillis::new(at)));
    let limit = Millis::new(200);
    let by = Millis::new(201);
    assert_eq!(
        to(1201),
        Ok(Some(ReserveError::AdvancePastPool { by, limit }))
    );
    assert_eq!(to(1200), Ok(None));
    let limit = Millis::new(250);
    let by = Millis::new(251);
    assert_eq!(
        to(1251),
        Ok(Some(ReserveError::AdvanceTooFar { by, limit }))
    );
}

#[test]
fn no_generator_borrows_more_than_the_limit_of_the_pool() {
    let borrows = |most: Option<i64>| {
        let generator = generator().within(most.map(Millis::new));
        generator.policy.max_borrow_ticks
    };
    let limits = [None, Some(1000), Some(20), Some(19), Some(9), Some(0)];
    assert_eq!(limits.map(borrows), [2, 2, 2, 1, 0, 0]);
}

#[test]
fn a_closed_slot_tells_where_its_ids_end() {
    let mut server = server();
    grant(&server, 1, 0, 1500);
    assert_eq!(next(&server), (1, 1000));
    assert_eq!(server.slot.furthest(), Some(UnixMillis::new(1010)));
    let old = server.generation();
    server.step(-200 * MS);
    assert_eq!(server.close(), UnixMillis::new(1010));
    assert!(!matches!(server.step_of(old, 1), Step::Issue(_)));
    assert_eq!(server.call(1), Outcome::NoWorker);
    assert_eq!(server.slot.live().bounds().in_force(), Position::ZERO);
    // A new grant opens the slot. The mark was written before.
    grant(&server, 1, 1010, 1500);
    assert_eq!(next(&server), (1, 1110));
    assert_eq!(server.close(), UnixMillis::new(1120));
    // Another generator has the slot since, and its clock is behind.
    server.pass(1000 * MS);
    server.evict();
    server.step(-890 * MS);
    assert!(!server.has_place());
    assert!(server.slot.furthest() >= Some(UnixMillis::new(1120)));
}

#[test]
fn the_first_position_of_all_is_not_issued_from_a_closed_slot() {
    let mut server = server();
    server.wall.set(0);
    server.restart();
    grant(&server, 1, 0, 1500);
    let _ = server.enter();
    let _ = server.slot.close();
    let none = Generation::NONE;
    assert!(matches!(server.step_of(none, 1), Step::Reserve { .. }));
}

/// So no ID from elsewhere is accepted that lies before its start, see [`super::horizon`].
#[test]
fn a_slot_that_was_closed_before_it_started_starts_later() {
    let server = server();
    grant(&server, 1, 0, 1500);
    let _ = server.enter();
    assert_eq!(server.close(), UnixMillis::new(1000));
    assert_ne!(server.slot.live().cursor().position(), Position::ZERO);
    assert_eq!(server.slot.horizon().announced(), BEGINNING);
    grant(&server, 1, 1043, 1500);
    assert_eq!(next(&server), (1, 1050));
    assert_eq!(server.slot.horizon().announced(), UnixMillis::new(1050));
}

#[test]
fn a_generator_waits_until_the_server_has_a_worker_id() {
    let server = server();
    server.becomes(Tenure::closed);
    assert!(matches!(server.enter(), Err(Stop::NoWorker)));
    // One whose IDs carry none does not get past the bound, either.
    assert!(matches!(
        server.reserve(Need::Tick(Tick::new(100))),
        Ok(Some(ReserveError::PastBound { .. }))
    ));
}
