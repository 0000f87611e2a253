//! Blocks beside other callers, which follow a script: consecutive IDs, none twice.

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};

use super::one_call::OneCall;
use super::scripted::{MS, ScriptError, Server};
use crate::id::{BootNanos, Nanos, Position, UnixMillis, UnixNanos};
use crate::label::generator::Generator;
use crate::protocol;
use crate::protocol::block::issue_block;
use crate::protocol::clock::Reading;
use crate::protocol::cursor::{Clocks, IssuedRange};
use crate::protocol::host::{Host, IssueError, Need, Note, OnDisk, TrustedClock};
use crate::protocol::plan::{ReserveError, Settings};
use crate::protocol::slot::{Reserving, Slot};
use crate::protocol::tenure::{Generation, Tenure};

/// A session beside others: whenever it enters, they first take as many IDs as are next
/// in the script.
struct Busy<'a> {
    server: &'a Server,
    others: RefCell<VecDeque<u64>>,
    /// The IDs that the others got.
    theirs: RefCell<Vec<IssuedRange>>,
    held: OneCall,
}

impl Clocks for Busy<'_> {
    fn wall(&self) -> UnixNanos {
        self.server.wall()
    }

    fn boot(&self) -> BootNanos {
        self.server.boot()
    }

    fn read(&self) -> Reading {
        self.server.read()
    }
}

impl Host for Busy<'_> {
    type Error = ScriptError;

    fn error(&self, why: IssueError) -> ScriptError {
        ScriptError::Why(why)
    }

    fn enter(&self) -> Result<(&Slot, &Generator), ScriptError> {
        let next = self.others.borrow_mut().pop_front();
        if let Some(count) = next.filter(|count| *count > 0) {
            let issued = protocol::issue(self.server, count)?;
            self.theirs.borrow_mut().push(issued);
        }
        self.server.enter()
    }

    fn entered(&self) -> Option<(&Slot, &Generator)> {
        self.server.entered()
    }

    fn generation(&self) -> Generation {
        self.server.generation()
    }

    fn has_taken(&self) -> bool {
        self.server.has_taken()
    }

    fn hold(&self, slot: &Slot, at: UnixMillis) -> Result<(), ScriptError> {
        self.held.hold(&self.server.generator, slot, at);
        Ok(())
    }

    fn narrow_hold(&self, at: UnixMillis) {
        self.held.narrow_hold(&self.server.slot, at);
    }

    fn reserving<T>(&self, f: impl FnOnce(&Reserving) -> T) -> T {
        self.server.reserving(f)
    }

    fn with_trusted_clock<T>(&self, f: impl FnOnce(&mut TrustedClock, Tenure) -> T) -> T {
        self.server.with_trusted_clock(f)
    }

    fn settings(&self) -> Settings {
        self.server.settings()
    }

    fn read_mark(&self) -> Result<OnDisk, ScriptError> {
        self.server.read_mark()
    }

    fn last_commit(&self) -> Option<UnixMillis> {
        self.server.last_commit()
    }

    fn write_durably(&self, value: i64) -> Result<(), ScriptError> {
        self.server.write_durably(value)
    }

    fn nap(&self, nanos: Nanos) -> Result<(), ScriptError> {
        self.server.nap(nanos)
    }

    fn reserve(&self, need: Need) -> Result<Option<ReserveError>, Self::Error> {
        protocol::reserve(self, need)
    }

    fn note(&self, note: Note) {
        self.server.note(note);
    }

    fn reserved(&self, began: BootNanos) {
        self.server.reserved(began);
    }
}

/// Ticks of eight sequence numbers.
const TINY: &str = "layout='time:41 worker:4 sequence:3' epoch=0";

fn server(label: &str) -> Server {
    let mut server = Server::new(label, 1, (1, 2), 1_000_000_000_000);
    server.runs = true;
    server
}

fn positions(issued: &IssuedRange) -> std::ops::Range<u64> {
    issued.start.get()..issued.end.get()
}

/// The positions of a block of `count` beside others; none belongs to the others.
fn block(server: &Server, count: u64, others: &[u64]) -> Result<IssuedRange, ScriptError> {
    let busy = Busy {
        server,
        others: RefCell::new(others.iter().copied().collect()),
        theirs: RefCell::new(vec![]),
        held: OneCall::default(),
    };
    let taken = issue_block(&busy, count)?;
    let theirs = busy.theirs.borrow();
    let theirs: HashSet<u64> = theirs.iter().flat_map(positions).collect();
    assert!(positions(&taken).all(|position| !theirs.contains(&position)));
    assert_eq!(taken.end.get() - taken.start.get(), count);
    Ok(taken)
}

/// Wherever in a tick a block is asked for, with other calls in between.
#[test]
fn blocks_are_consecutive_ids_of_a_tick() {
    for policy in [
        "max_borrow=0 sequence_start=zero",
        "max_borrow='1 ms' sequence_start='vibrate 1'",
        "max_borrow='100 ms' sequence_start='vibrate 2'",
        "on_rollback=wait max_borrow='20 ms' sequence_start='vibrate 3'",
    ] {
        let mut server = server(&format!("{TINY} {policy}"));
        let max = server.generator.max_block().unwrap();
        let mut seen = HashSet::new();
        let mut last = 0;
        for others in 0..5u64.pow(4) {
            let script: Vec<u64> = (0..4).map(|at| others / 5u64.pow(at) % 5).collect();
            for count in 1..=max {
                let taken = block(&server, count, &script).unwrap();
                assert!(taken.start.get() >= last, "they ascend");
                last = taken.end.get();
                for position in positions(&taken) {
                    assert!(seen.insert(position), "twice");
                }
                let layout = server.generator.layout;
                let ends = Position::new(last - 1);
                assert_eq!(layout.tick_of(taken.start), layout.tick_of(ends));
            }
            // Now and then a block starts in a fresh tick.
            if others % 3 == 0 {
                server.pass(150 * MS);
                server.naps.set(0);
            }
        }
    }
}

#[test]
fn a_block_is_what_a_fresh_tick_holds_wherever_it_starts() {
    for (start, max) in [("zero", 8), ("'vibrate 1'", 7), ("'vibrate 2'", 6)] {
        let mut server = server(&format!("{TINY} max_borrow=0 sequence_start={start}"));
        assert_eq!(server.generator.max_block(), Some(max));
        for _ in 0..10 {
            server.pass(MS);
            let naps = server.naps.get();
            block(&server, max, &[]).unwrap();
            assert_eq!(server.naps.get(), naps, "the first of its tick");
        }
        // There is no room for another one in the tick.
        assert!(block(&server, max, &[]).unwrap().waited);
    }
    assert_eq!(Generator::DEFAULT.max_block(), Some(4096 - 63));
    let random = server(&format!("{TINY} sequence_start=random"));
    assert_eq!(random.generator.max_block(), None);
    let above = server("layout='time:41 sequence:3 worker:4' epoch=0");
    assert_eq!(above.generator.max_block(), None);
}

/// Only what lies before the tick that the block comes to is lost: the part that was
/// already taken there counts.
#[test]
fn a_block_goes_on_where_its_first_part_ends() {
    let server = server(&format!("{TINY} max_borrow='100 ms' sequence_start=zero"));
    let first = block(&server, 6, &[]).unwrap().start.get();
    let second = block(&server, 6, &[]).unwrap();
    assert_eq!((second.start.get(), second.borrowed), (first + 8, 6));
    let third = block(&server, 2, &[]).unwrap();
    assert_eq!(third.start, second.end);
}

/// Another session between the parts costs a third take. The block comes from that one
/// wherever it starts.
#[test]
fn others_in_between_cost_one_more_take() {
    for theirs in 1..8 {
        let server = server(&format!("{TINY} max_borrow='100 ms' sequence_start=zero"));
        let first = block(&server, 3, &[]).unwrap().start.get();
        // At the entry of the call, of its first take, and of its second one.
        let taken = block(&server, 8, &[0, 0, theirs]).unwrap();
        assert!(
            taken.start.get() <= first + 3 + 8 + 8 + theirs + 8,
            "{taken:?}"
        );
        assert_eq!(taken.start.get() % 8, first % 8);
    }
}

/// So a block is found also if others take IDs before each take.
#[test]
fn the_third_take_has_room_for_a_block_wherever_it_starts() {
    let server = server(&format!("{TINY} max_borrow='100 ms' sequence_start=zero"));
    for count in 1..=8 {
        block(&server, count, &[1; 1000]).unwrap();
    }
}

#[test]
fn a_block_is_not_tried_for_ever() {
    let server = server(&format!("{TINY} max_borrow='1 ms' sequence_start=zero"));
    let refused = block(&server, 8, &[1; 1000]).unwrap_err();
    assert_eq!(
        refused,
        ScriptError::Why(IssueError::Interleaved { count: 8 })
    );
    block(&server, 8, &[]).unwrap();
}
