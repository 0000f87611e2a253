//! A whole server in miniature, walked through every sequence of events up to a
//! stated length: calls, clock steps of either sign, crashes, promotions of a
//! standby that missed the last marks. No ID twice, and always increasing.

use std::hash::Hash;

use siphasher::sip128::SipHasher13;

use super::explorer::{Explorer, Rules};
use super::model::{Disk, MS, Outcome, Server, settings};
use crate::id::layout::{FieldRole, Layout};
use crate::id::{BootNanos, Millis, Nanos, Position, Tick, UnixMillis, UnixNanos, WorkerId};
use crate::label::Label;
use crate::label::generator::Generator;
use crate::label::policy::{OnRollback, Policy, SequenceStart};
use crate::protocol;
use crate::protocol::clock::Reading;
use crate::protocol::clock_seq::ClockSeqHistory;
use crate::protocol::cursor::Step;
use crate::protocol::host::{Host, IssueError, Need, Note};
use crate::protocol::plan::Settings;
use crate::protocol::plan::{Author, Gap, MarkError, Plan, PlanInput, ReserveError};
use crate::protocol::tenure::Tenure;

/// How far a standby's marks may lag plus how far its clock may differ, in ms.
const GAP: i64 = 8;

/// 9 bits of time, 2 of worker, 2 of sequence: four IDs a tick.
fn layout(epoch: i64, time_bits: u32) -> Layout {
    let fields = [
        (FieldRole::Time, time_bits),
        (FieldRole::Worker, 2),
        (FieldRole::Sequence, 2),
    ];
    Layout::new(UnixMillis::new(epoch), Millis::new(1), &fields).unwrap()
}

fn tiny() -> Generator {
    Generator {
        layout: layout(0, 9),
        policy: Policy {
            max_borrow_ticks: 1,
            max_rollback: Millis::new(60),
            sequence_start: SequenceStart::vibrate(1),
            ..Policy::DEFAULT
        },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// One ID.
    One,
    /// A batch as large as a chunk may be: one tick.
    Four,
    /// A millisecond passes.
    Pass,
    /// The wall clock is stepped by this many milliseconds.
    Step(i64),
    /// Shared memory is lost, the disk is not. A millisecond passes.
    Crash,
    /// A standby takes over that has only seen marks up to the one before the
    /// last. Its clock is 2 ms behind.
    Promote,
}

const SETTINGS: Settings = settings(40, 4, GAP);

fn server(generator: Generator, wall_ms: i64) -> Server {
    Server::new(generator, SETTINGS, wall_ms)
}

impl Server {
    /// Positions, or nothing if the call was refused or would have waited.
    fn issue(&mut self, count: u64) -> Vec<u64> {
        match self.call(count) {
            Outcome::Issued { start, end } => (start.get()..end.get()).collect(),
            _ => vec![],
        }
    }

    fn apply(&mut self, event: Event) -> Vec<u64> {
        match event {
            Event::One => return self.issue(1),
            Event::Four => return self.issue(4),
            Event::Pass => self.pass(MS),
            Event::Step(ms) => self.step(ms * MS),
            Event::Crash => {
                self.pass(MS);
                self.restart();
            }
            Event::Promote => self.promote(-2 * MS),
        }
        vec![]
    }

    /// Reserves ahead of need.
    fn reserve_for(&mut self, tick: u64) -> Result<Plan, ReserveError> {
        let plan = self.generator.plan(&self.situation_for(tick));
        if plan.is_ok() {
            self.enter().unwrap();
            let bounds = self.slot.live().bounds();
            assert!(bounds.claim_prefetch(Position::new(u64::MAX)));
            self.reserve(Need::Early(Tick::new(tick))).unwrap();
            assert!(!bounds.early_is_claimed());
        }
        plan
    }

    fn situation_for(&self, tick: u64) -> PlanInput {
        self.situation(Need::Tick(Tick::new(tick))).unwrap()
    }
}

/// A server, and the last position that was issued.
type State = (Server, Option<u64>);

/// No ID twice, always increasing, and within a promised bound. Counts the IDs.
#[derive(Clone)]
struct Increasing(usize);

impl Rules for Increasing {
    type State = State;
    type Event = Event;

    fn step(&mut self, (server, last): &mut State, event: Event) -> Result<bool, String> {
        for position in server.apply(event) {
            assert!(*last < Some(position), "{position} after {last:?}");
            // Promised bound: the borrow window and the lead of the clock.
            let tick = (position >> 2).cast_signed();
            let now = server.now().millis().get();
            assert!(tick <= now + 1, "{tick} issued at {now}");
            *last = Some(position);
            self.0 += 1;
        }
        Ok(true)
    }

    fn hash(&self, (server, last): &State, into: &mut SipHasher13) {
        server.hash(into);
        last.hash(into);
    }
}

/// Walks all sequences of `depth` events.
fn walk(name: &str, events: &[Event], depth: usize) {
    let explorer = Explorer {
        name,
        prelude: &[],
        events,
        depth,
        budget: usize::MAX,
    };
    let found = explorer.run(&Increasing(0), &(server(tiny(), 100), None));
    let ids = found.rules.0;
    assert!(ids * 4 > found.steps, "{ids} IDs: too few for a test");
}

#[test]
fn every_walk_of_clock_steps_and_crashes() {
    use Event::{Crash, Four, One, Pass, Step};
    let events = [One, Four, Pass, Step(-3), Step(5), Crash];
    walk("clock steps and crashes", &events, 10);
}

#[test]
fn every_walk_with_promotions_inside_the_gap() {
    use Event::{Four, One, Pass, Promote, Step};
    let events = [One, Four, Pass, Step(-1), Promote];
    // One event more, and a clock can be set back by more than the gap.
    walk("promotions inside the gap", &events, 9);
}

#[test]
fn a_promotion_without_a_gap_would_repeat_ids() {
    // The walk can fail: the same promotion without the gap issues IDs twice.
    let mut server = server(tiny(), 100);
    let before = server.issue(1);
    server.apply(Event::Promote);
    server.claim_mark();
    assert!(server.issue(1)[0] <= before[0]);
}

#[test]
fn a_restart_starts_at_the_mark_and_at_once() {
    let mut server = server(tiny(), 100);
    server.issue(4);
    let mark = server.mark().unwrap();
    server.apply(Event::Step(-10));
    server.apply(Event::Crash);
    let first = server.issue(1)[0];
    assert_eq!(UnixMillis::new((first >> 2).cast_signed()), mark);
}

#[test]
fn a_clock_set_back_neither_waits_nor_stays_ahead() {
    let mut server = server(tiny(), 300);
    server.issue(1);
    server.apply(Event::Step(-50));
    let mut leads = vec![];
    for _ in 0..110 {
        server.apply(Event::Pass);
        let issued = server.issue(1);
        assert_eq!(issued.len(), 1, "refused or waited");
        leads.push((issued[0] >> 2).cast_signed() - server.wall.get() / MS);
    }
    assert!(leads[5] > 40);
    assert!(leads.is_sorted_by(|a, b| a >= b), "{leads:?}");
    assert!(leads[105] <= 1, "{leads:?}");
}

#[test]
fn restarts_in_a_row_do_not_run_away_from_the_clock() {
    let generator = Generator::DEFAULT;
    let mut server = server(
        generator,
        Layout::DEFAULT.instant_of(Tick::new(1 << 40)).get(),
    );
    for _ in 0..1000 {
        for _ in 0..20 {
            server.apply(Event::Pass);
        }
        server.apply(Event::Crash);
        assert_eq!(server.issue(1).len(), 1);
    }
    let lead = server.mark().unwrap().get() - server.wall.get() / MS;
    assert!(lead < 10, "{lead} ms");
}

#[test]
fn refusals() {
    // max_clock_jump 40 ms, max_rollback 60 ms.
    let reserved = |wall_step: i64, restart: bool| {
        let mut server = server(tiny(), 200);
        server.reserve_for(200).unwrap();
        let before = (server.mark(), server.cursor(), server.reserved());
        server.apply(Event::Step(wall_step));
        if restart {
            server.restart();
        }
        let result = server.generator.plan(&server.situation_for(200));
        if result.is_err() && !restart {
            let after = (server.mark(), server.cursor(), server.reserved());
            assert_eq!(before, after, "a refusal changes nothing");
        }
        result
    };
    assert!(reserved(40, false).is_ok());
    assert_eq!(
        reserved(41, false),
        Err(ReserveError::ClockJumped {
            by: Millis::new(41),
            limit: Millis::new(40)
        })
    );
    assert!(reserved(-60, false).is_ok());
    assert_eq!(
        reserved(-61, false),
        Err(ReserveError::ClockRolledBack {
            by: Millis::new(61),
            limit: Millis::new(60)
        })
    );
    // Both clocks count while the machine sleeps, so that is no jump, however long.
    let mut slept = server(tiny(), 200);
    slept.reserve_for(200).unwrap();
    slept.pass(300 * MS);
    slept.generator.plan(&slept.situation_for(200)).unwrap();
    // After a restart the mark is known, not the jump. The mark is 5 ms ahead.
    assert!(reserved(41, true).is_ok());
    assert!(reserved(-55, true).is_ok());
    assert_eq!(
        reserved(-56, true),
        Err(ReserveError::MarkAhead {
            by: Millis::new(61),
            limit: Millis::new(60),
            start: UnixMillis::new(205)
        })
    );
}

#[test]
fn a_lead_at_its_limit_can_be_started_from() {
    // 60 ms is the limit. The mark must not lie past that, or the restart of a server
    // within the limit would be refused.
    for lead in 50..=60 {
        let mut server = server(tiny(), 200);
        server.reserve_for(200).unwrap();
        server.apply(Event::Step(-lead));
        let through = server.generator.layout.tick_of(server.reserved());
        for _ in 0..6 {
            server.apply(Event::Pass);
        }
        server.reserve_for(through.get()).unwrap();
        server.apply(Event::Crash);
        assert_eq!(server.issue(1).len(), 1, "lead {lead}");
    }
}

#[test]
fn a_capped_bound_is_reserved_ahead_of_at_its_own_half() {
    // Ten seconds are asked for, two ticks are allowed: 60 ms is the limit.
    let mut server = server(tiny(), 200);
    server.reserve_for(200).unwrap();
    server.apply(Event::Step(-58));
    let mut situation = server.situation_for(200);
    let window = Millis::new(10_000);
    (situation.settings.reserve, situation.last_window) = (window, window);
    let plan = server.generator.plan(&situation).unwrap();
    let layout = server.generator.layout;
    assert!(layout.tick_of(plan.reserved) <= Tick::new(206));
    assert!(layout.tick_of(plan.early) > Tick::new(200), "{plan:?}");
}

#[test]
fn an_advance_leaves_room_for_a_rollback() {
    let server = server(tiny(), 200);
    let plan = |floor| {
        let mut situation = server.situation_for(0);
        situation.advance_to = Some(UnixMillis::new(floor));
        server.generator.plan(&situation)
    };
    assert_eq!(
        server
            .generator
            .layout
            .tick_of(plan(230).unwrap().cursor_from.unwrap()),
        Tick::new(230)
    );
    assert_eq!(
        plan(231),
        Err(ReserveError::AdvanceTooFar {
            by: Millis::new(31),
            limit: Millis::new(30)
        })
    );
}

#[test]
fn a_generator_without_a_past_does_not_believe_a_clock_that_is_far_back() {
    let server = server(tiny(), 200);
    let plan = |rolled_back| {
        let mut situation = server.situation_for(0);
        let offset = situation.reading.offset();
        situation.trusted_offset = offset.plus(Nanos::new(rolled_back * MS));
        server.generator.plan(&situation).err()
    };
    assert_eq!(plan(60), None);
    let refused = ReserveError::ClockRolledBack {
        by: Millis::new(61),
        limit: Millis::new(60),
    };
    assert_eq!(plan(61), Some(refused));
}

#[test]
fn the_ends_of_the_layouts_time() {
    let generator = Generator {
        layout: layout(1000, 4),
        ..tiny()
    };
    let plan = |wall| {
        let server = server(generator, wall);
        generator.plan(&server.situation_for(0))
    };
    assert_eq!(
        plan(999),
        Err(ReserveError::BeforeEpoch {
            epoch: UnixMillis::new(1000)
        })
    );
    // A gap is no place to start from.
    let early_server = server(generator, 999);
    early_server.unstamp();
    let epoch = UnixMillis::new(1000);
    let early = ReserveError::BeforeEpoch { epoch };
    assert_eq!(generator.plan(&early_server.situation_for(0)), Err(early));
    // 15 is the last tick: never issued, and the bound stops there.
    assert_eq!(
        plan(1014).unwrap().reserved,
        generator
            .layout
            .at(0, generator.layout.offset_of(Tick::new(15)))
    );
    let used_up = ReserveError::TimeUsedUp {
        last: UnixMillis::new(1015),
    };
    assert_eq!(plan(1015), Err(used_up));
    assert_eq!(plan(900_000), Err(used_up));
}

#[test]
fn readers_get_the_rows_of_the_last_tick() {
    for idles in [0, 3] {
        let generator = Generator {
            layout: layout(1000, 4),
            ..tiny()
        };
        let mut server = server(generator, 1009 - idles);
        let mut last = None;
        while let Some(issued) = server.issue(4).pop() {
            last = Some(issued);
            server.pass(MS);
            if idles > 0 {
                break;
            }
        }
        server.pass(idles * 5 * MS);
        let used_up = ReserveError::TimeUsedUp {
            last: UnixMillis::new(1015),
        };
        assert_eq!(server.call(1), refused(used_up));
        let at = protocol::advance_to_now(&server).unwrap();
        let tick = generator.layout.tick_of(Position::new(last.unwrap()));
        assert!(at > generator.layout.instant_of(tick), "{at:?}");
        assert_eq!(Some(at), server.mark());
        // Nor does a session get an ID that has read the clock before that.
        let late = server.clone();
        late.boot.set(late.boot.get() - idles * 5 * MS);
        late.wall.set(late.wall.get() - idles * 5 * MS);
        let step = late.step_of(late.generation(), 1);
        assert!(!matches!(step, Step::Issue(_)), "{step:?}");
        // The clock was wrong: no ID comes before what readers have passed, nor after a crash.
        for _ in 0..2 {
            server.step(-9 * MS);
            if let Some(first) = server.issue(1).first() {
                let tick = generator.layout.tick_of(Position::new(*first));
                assert!(generator.layout.instant_of(tick) >= at);
            }
            server.restart();
        }
    }
}

#[test]
fn a_mark_set_by_others() {
    let mut server = server(tiny(), 100);
    server.issue(1);
    let mine = server.mark().unwrap();
    // A generator that runs writes its own mark back, and says so once.
    for set in [Some(3), Some(130), None] {
        server.set_mark(set);
        let plan = server.reserve_for(101).unwrap();
        assert!(plan.mark >= mine && plan.cursor_from.is_none());
        assert_eq!(server.mark(), Some(plan.mark));
        assert_eq!(server.issue(1)[0] >> 2, 100);
    }
    let told = Note::PutBack { restarted: false };
    let notes: Vec<_> = server.notes.take();
    assert_eq!(
        notes
            .into_iter()
            .filter(|note| matches!(note, Note::PutBack { .. }))
            .collect::<Vec<_>>(),
        [told]
    );
    // One that starts does so a gap and what it may borrow behind a raised mark, once.
    let next = |server: &mut Server| server.issue(1)[0] >> 2;
    let gap = (GAP + 1) as u64;
    server.set_mark(Some(130));
    server.restart();
    assert_eq!(next(&mut server), 130 + gap);
    let mark = server.mark().unwrap().get().cast_unsigned();
    server.restart();
    assert_eq!(next(&mut server), mark);
    // Behind a lowered one, it counts from the clock.
    server.set_mark(Some(3));
    server.step(30 * MS);
    server.restart();
    assert_eq!(next(&mut server), 130 + gap);
    // A mark that is further ahead than a clock may jump was raised.
    server.set_mark(Some(171));
    server.restart();
    let raised = ReserveError::Raised {
        by: Millis::new(41),
        limit: Millis::new(40),
        mark: UnixMillis::new(171),
    };
    assert_eq!(server.call(1), refused(raised));
    server.accept();
    assert_eq!(next(&mut server), 171 + gap);
}

#[test]
fn a_restart_that_nobody_saw() {
    let mut server = server(tiny(), 100);
    server.issue(1);
    server.set_mark(None);
    server.restart();
    let unknown = ReserveError::NoMark(MarkError::Restart);
    assert_eq!(server.call(1), refused(unknown));
    assert_eq!(server.call(1), refused(unknown));
    // Somebody knows how far the generator was.
    let to = Need::AdvanceTo(UnixMillis::new(120));
    assert_eq!(server.reserve(to), Ok(None));
    assert_eq!(server.issue(1)[0] >> 2, 120);
    // So does a registry.
    server.set_mark(None);
    server.restart();
    let ahead = Millis::new(1000);
    let floor = UnixMillis::new(125);
    server.becomes(|it| {
        it.granted(
            WorkerId::new(1).unwrap(),
            floor,
            UnixMillis::new(200),
            floor,
            ahead,
        )
    });
    assert_eq!(server.issue(1)[0] >> 2, 125);
}

fn refused(why: ReserveError) -> Outcome {
    Outcome::Refused(IssueError::Reservation(why))
}

#[test]
fn a_generator_that_tolerates_less_than_a_gap_is_promoted_and_goes_on() {
    let mut generator = tiny();
    generator.policy.max_rollback = Millis::new(2);
    let mut server = server(generator, 100);
    server.issue(1);
    server.apply(Event::Promote);
    for _ in 0..60 {
        assert_eq!(server.issue(1).len(), 1, "{:?}", server.call(1));
        server.apply(Event::Pass);
    }
    // The lead is gone: a rollback beyond the limit is refused again.
    assert!(server.now().millis().get() - server.wall.get() / MS <= 1);
    server.apply(Event::Step(-20));
    for _ in 0..8 {
        server.apply(Event::Pass);
        server.issue(1);
    }
    assert_eq!(server.issue(1), Vec::<u64>::new());
}

#[test]
fn two_promotions_from_one_mark_start_apart() {
    // A dies with both standbys caught up; its mark is ahead of the clock.
    for lives in 4..40 {
        let mut server = server(tiny(), 100);
        server.issue(1);
        let caught_up = |server: &mut Server| {
            server.lagging.set(super::model::Replica {
                disk: server.disk.get(),
                last_commit: server.committed.get(),
            });
        };
        caught_up(&mut server);
        server.promote(0);
        let mut of_b = vec![];
        for _ in 0..lives {
            for _ in 0..20 {
                of_b.extend(server.issue(1));
            }
            server.apply(Event::Pass);
        }
        server.promote_blind(0);
        let first = server.issue(1)[0];
        assert!(of_b.iter().all(|id| *id < first), "after {lives} ms");
    }
}

#[test]
fn a_value_that_no_clock_can_mean_is_no_mark() {
    let generator = Generator::DEFAULT;
    let wall = Layout::DEFAULT.instant_of(Tick::new(1 << 35));
    let id = generator
        .layout
        .encode(Tick::new(1 << 34), 5, 7)
        .unwrap()
        .get();
    for (value, no_mark) in [
        (1, MarkError::Number { value: 1 }),
        (1234, MarkError::Number { value: 1234 }),
        // In seconds.
        (
            1_763_779_212,
            MarkError::Number {
                value: 1_763_779_212,
            },
        ),
        (
            id,
            MarkError::Id {
                value: id,
                ends: Layout::DEFAULT.instant_of(Tick::new((1 << 34) + 1)),
            },
        ),
    ] {
        let mut server = server(generator, wall.get());
        server.set_mark(Some(value));
        // A start refuses the value, and says what it is.
        let refused = ReserveError::NoMark(no_mark);
        assert_eq!(server.situation(Need::Switch).err(), Some(refused));
        assert_eq!(server.issue(1), Vec::<u64>::new());
        assert_eq!(server.disk.get().value, Some(value));
        // A running generator heals it.
        server.clear_mark();
        let before = server.issue(1)[0];
        server.set_mark(Some(value));
        server.reserve_for(0).unwrap();
        assert!(server.mark() > Some(wall));
        assert!(server.issue(1)[0] > before);
        // So does a generator whose mark was taken away.
        server.slot.end_rewrite(true);
        server.set_mark(Some(value));
        assert!(server.issue(1)[0] > before);
    }
}

/// The IDs of this layout would be instants, if marks could be that late.
#[test]
fn an_id_is_no_mark_where_the_time_outlives_all_clocks() {
    for text in [
        "preset=yitter",
        "preset=mastodon layout='time:48 worker:4 sequence:10' sequence_start=zero",
        "layout='time:55 worker:2 sequence:7' epoch=1735689600000",
    ] {
        let label = Label::parse(text).unwrap();
        let (generator, layout) = (label.generator(), label.layout());
        let wall = UnixMillis::new(1_795_000_000_000);
        let tick = layout.tick_at(wall, 0).unwrap();
        let value = layout.encode(tick, 3, 1).unwrap().get();
        let ends = layout.instant_of(tick.next());
        let no_mark = ReserveError::NoMark(MarkError::Id { value, ends });
        let mut server = server(generator, wall.get());
        server.set_mark(Some(value));
        let refused = server.situation(Need::Switch).err();
        assert_eq!(refused, Some(no_mark), "{text}");
        assert_eq!(server.issue(1), Vec::<u64>::new(), "{text}");
        server.clear_mark();
        let before = server.issue(1)[0];
        assert!(server.mark() > Some(wall), "{text}");
        server.set_mark(Some(value));
        server.reserve_for(0).unwrap();
        assert!(server.issue(1)[0] > before, "{text}");
    }
}

#[test]
fn a_generator_that_is_ahead_of_the_clock_keeps_its_slot() {
    let mut server = server(tiny(), 100);
    server.issue(1);
    assert!(
        server
            .reserve(Need::AdvanceTo(UnixMillis::new(120)))
            .unwrap()
            .is_none()
    );
    let before = server.issue(4);
    // Somebody lowers the mark, and others ask for the slot.
    server.set_mark(Some(100));
    server.evict();
    assert!(server.has_place());
    assert!(server.issue(1)[0] > before[3]);
    // Once the clock has passed its IDs, nothing is lost.
    server.set_mark(Some(100));
    server.pass(40 * MS);
    server.evict();
    assert!(!server.has_place());
    assert!(server.issue(1)[0] > before[3]);
}

#[test]
fn a_generator_that_loses_its_slot_again_and_again_stays_near_the_clock() {
    let reserve = Millis::new(40);
    for pause in [1, 2, 3, 7, 30, 90] {
        let generator = Generator {
            layout: layout(0, 20),
            ..tiny()
        };
        let mut server = Server::new(generator, settings(40, reserve.get(), GAP), 100);
        let layout = generator.layout;
        // One start at the mark, and what an issuer may borrow then.
        let most = reserve.plus(layout.lasting(2 * generator.policy.max_borrow_ticks + 2));
        let (mut evicted, mut farthest) = (0, Millis::ZERO);
        for _ in 0..500 {
            if let Some(last) = server.issue(1).last() {
                let at = layout.instant_of(layout.tick_of(Position::new(*last)));
                farthest = farthest.max(at.since(UnixMillis::new(server.wall.get() / MS)));
            }
            server.pass(pause * MS);
            server.evict();
            evicted += u32::from(!server.has_place());
        }
        assert!(evicted > 1, "every {pause} ms");
        assert!(farthest <= most, "every {pause} ms: {farthest:?}");
        assert!(
            pause > 30 || farthest >= Millis::new(reserve.get() - pause),
            "{farthest:?}"
        );
    }
}

#[test]
fn after_a_promotion_the_gap_counts_from_the_latest_of_three() {
    let begin = |mark: Option<i64>, wall: i64, commit: Option<i64>, author: Author| {
        let server = server(tiny(), wall);
        server.disk.set(Disk {
            value: mark,
            ..server.disk.get()
        });
        let mut situation = server.situation_for(0);
        situation.gap = Some(Gap {
            author,
            length: Millis::new(GAP),
            last_commit: commit.map(UnixMillis::new),
        });
        server.generator.layout.tick_of(
            server
                .generator
                .plan(&situation)
                .unwrap()
                .cursor_from
                .unwrap(),
        )
    };
    let promotions = 1;
    let start = |mark, wall, commit| begin(mark, wall, commit, Author::Earlier { promotions });
    // The mark, and what has passed since the last commit.
    assert_eq!(start(Some(120), 100, Some(90)), Tick::new(138));
    assert_eq!(start(Some(120), 100, Some(100)), Tick::new(128));
    assert_eq!(start(Some(120), 100, None), Tick::new(128));
    assert_eq!(start(Some(70), 100, Some(80)), Tick::new(108));
    assert_eq!(start(Some(90), 100, Some(80)), Tick::new(118));
    assert_eq!(start(Some(90), 100, Some(130)), Tick::new(138));
    assert_eq!(start(None, 100, None), Tick::new(108));
    // No time is added to a mark of an unknown author.
    let unknown = |mark, wall| begin(mark, wall, None, Author::Unknown);
    assert_eq!(unknown(Some(120), 100), Tick::new(128));
    assert_eq!(unknown(Some(70), 100), Tick::new(108));
    assert_eq!(unknown(None, 100), Tick::new(108));
}

#[test]
fn clocks_that_were_used_up_are_not_kept_for_ever() {
    let fields = [
        (FieldRole::Time, 41),
        (FieldRole::Clock, 2),
        (FieldRole::Worker, 1),
        (FieldRole::Sequence, 10),
    ];
    let layout = Layout::new(UnixMillis::new(0), Millis::new(1), &fields).unwrap();
    let generator = Generator {
        layout,
        policy: Policy {
            on_rollback: OnRollback::NextClock,
            ..Policy::DEFAULT
        },
    };
    let at = |millis: i64| Reading {
        boot: BootNanos::new(millis * 1_000_000),
        wall: UnixNanos::new(millis * 1_000_000),
    };
    // A restart at an instant, or a reservation if `running`.
    let plan = |millis: i64, stored: Option<i64>, running: Option<&Plan>| {
        let stored = stored.map(|value| ClockSeqHistory::read_mark(value, layout).unwrap());
        let clock_history =
            stored.map_or(ClockSeqHistory::FRESH, |(_, clock_history)| clock_history);
        let reserved = running.map_or(Position::ZERO, |plan| plan.reserved);
        generator
            .plan(&PlanInput {
                reading: at(millis),
                settings: settings(1000, 1000, 0),
                generator_now: at(millis).wall,
                trusted_offset: Nanos::ZERO,
                forgiven_lead: Millis::ZERO,
                cursor: layout.at(
                    running.map_or(0, |plan| plan.clock_history.clock),
                    layout.offset_of(Tick::new(millis.cast_unsigned())),
                ),
                reserved,
                tenure: Tenure::NONE,
                is_new: running.is_none(),
                stored: stored.map(|(mark, _)| mark),
                written: None,
                least: None,
                author: Author::Present,
                gap: None,
                advance_to: None,
                clock_history: running.map_or(clock_history, |plan| plan.clock_history),
                rollback: None,
                through: Tick::new(0),
                last_window: Millis::new(i64::from(running.is_some()) * 1000),
            })
            .unwrap()
    };
    let mut last = plan(100_000, None, None);
    for restart in 1..4 {
        last = plan(100_000 + restart, Some(last.value), None);
        assert_eq!(last.clock_history.clock, restart.cast_unsigned());
        assert!(last.switches);
    }
    let fifth = plan(100_004, Some(last.value), None);
    assert!(
        !fifth.switches && fifth.lead > Millis::new(900),
        "all are used"
    );
    // Time has passed the other clocks.
    let later = plan(110_000, Some(fifth.value), Some(&fifth));
    let restart = plan(110_500, Some(later.value), None);
    assert!(restart.switches);
    assert_eq!(restart.lead, Millis::ZERO);
}
