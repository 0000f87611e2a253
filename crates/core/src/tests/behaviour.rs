//! What the systems behind the presets do when their clocks misbehave, taken from their
//! own tests and sources (`tests/vectors/behaviour.json`) and played to ours. Where an
//! original issues IDs twice, or an ID below the last one, ours must not.

use std::collections::HashSet;

use serde_json::Value;

use super::scripted::{MS, NAP, ScriptError, Server};
use crate::id::layout::Fields;
use crate::id::{Tick, WorkerId};
use crate::label::Label;
use crate::protocol::host::IssueError;
use crate::protocol::wait::STANDSTILL;

fn entries() -> Vec<Value> {
    let text = include_str!("../../../../tests/vectors/behaviour.json");
    serde_json::from_str(text).unwrap()
}

fn is(entry: &Value, system: &str, scenario: &str) -> bool {
    let name = entry["scenario"].as_str().unwrap();
    entry["system"] == system && name.starts_with(scenario)
}

/// A test for each entry, by its system and by how its scenario begins.
macro_rules! scripts {
    ($($name:ident($system:literal, $scenario:literal);)*) => {
        mod each {
            $(#[test]
            fn $name() {
                let entries = super::entries();
                let mut found = entries.iter().filter(|it| super::is(it, $system, $scenario));
                super::$name(found.next().unwrap());
                assert_eq!(found.next(), None);
            })*
        }
        const USED: &[(&str, &str)] = &[$(($system, $scenario)),*];
    };
}

scripts! {
    a_tick_passes_now_and_then("shardingsphere", "normal");
    behind_within_the_tolerance("shardingsphere", "clock callback");
    a_tick_is_used_up("shardingsphere", "sequence exhausted");
    behind_beyond_the_tolerance("shardingsphere", "rollback beyond");
    starts_of_five_ticks("shardingsphere", "vibration 3");
    refused_and_back_again("twitter", "rollback then recovery");
    one_wait_for_one_tick("twitter", "rollover twice");
    a_clock_that_stands_still("java-uniqueid", "clock frozen");
    no_id_twice("java-uniqueid", "rollback");
    behind_up_to_five_milliseconds("meituan leaf", "rollback <=5 ms");
}

#[test]
fn each_entry_is_used_by_one_test() {
    let entries = entries();
    for entry in &entries {
        let tests = USED
            .iter()
            .filter(|(system, scenario)| is(entry, system, scenario));
        assert_eq!(
            tests.count(),
            1,
            "{}: {}",
            entry["system"],
            entry["scenario"]
        );
    }
    assert_eq!(USED.len(), entries.len());
}

/// How many milliseconds the clock is behind, if that is why there is no ID.
fn behind_by<T>(result: Result<T, ScriptError>) -> Option<i64> {
    result.err().and_then(ScriptError::behind)
}

/// Tick and sequence number.
type At = (u64, u64);

fn at(fields: Fields) -> At {
    (fields.tick.get(), fields.sequence)
}

fn steps(entry: &Value) -> &[Value] {
    entry["steps"].as_array().unwrap()
}

/// A step that is an ID.
fn id(step: &Value) -> At {
    let at = (
        step["tick"].as_u64().unwrap(),
        step["seq"].as_u64().unwrap(),
    );
    if let Some(id) = step["id"].as_u64() {
        assert_eq!(id, at.0 << 22 | at.1, "worker 0");
    }
    at
}

/// The numbers in a text.
fn numbers(step: &Value) -> Vec<i64> {
    let text = step.as_str().unwrap();
    text.split(|c: char| !c.is_ascii_digit() && c != '-')
        .filter_map(|cursor| cursor.parse().ok())
        .collect()
}

/// ShardingSphere's `FixedTimeService(times)`: a reading is given this many times; then
/// the next one is given, which does not count as one of its own times.
fn fixed_time_service(times: usize) -> impl Iterator<Item = i64> {
    let first = std::iter::repeat_n(0, times);
    first.chain((1..20).flat_map(move |at| std::iter::repeat_n(at, times + 1)))
}

fn shardingsphere(entry: &Value) -> Server {
    let config = &entry["config"];
    let mut label = "preset=shardingsphere".to_string();
    if let Some(last) = config["max-vibration-offset"].as_u64() {
        label.push_str(&format!(" sequence_start='vibrate {last}'"));
    }
    if let Some(wait) = config["max-tolerate"].as_u64() {
        label.push_str(&format!(" max_wait='{wait} ms'"));
    }
    Server::new(&label, 0, (0, 0), 0)
}

fn all(server: &mut Server, count: usize) -> Vec<At> {
    (0..count).map(|_| at(server.next().unwrap())).collect()
}

/// The same ticks, equally often; but ours starts each at `tick % 2`, where the
/// original starts every second tick that it uses at 1.
fn with_our_starts(originals: &[At]) -> Vec<At> {
    let mut ours: Vec<At> = vec![];
    for (tick, _) in originals {
        let number = match ours.last() {
            Some((before, number)) if before == tick => number + 1,
            _ => tick % 2,
        };
        ours.push((*tick, number));
    }
    ours
}

fn a_tick_passes_now_and_then(entry: &Value) {
    let mut server = shardingsphere(entry);
    let preset = Label::parse("preset=shardingsphere").unwrap();
    assert_eq!(server.generator, preset.generator());
    assert_eq!(numbers(&entry["scenario"]), [1]);
    server.reads(fixed_time_service(1));
    // Each tick is used, and the first is 0: both systems start the ticks alike.
    let originals: Vec<_> = steps(entry).iter().map(id).collect();
    assert_eq!(all(&mut server, originals.len()), originals);
    assert_eq!(server.naps.get(), 0);
}

fn behind_within_the_tolerance(entry: &Value) {
    assert_eq!(entry["config"]["lastMillis"], "epoch+2");
    let mut server = shardingsphere(entry);
    server.reads([2]);
    let before = at(server.next().unwrap());
    assert_eq!(before, (2, 0));
    // The test of the original took the first reading to set its last time.
    server.reads(fixed_time_service(1).skip(1));
    let originals: Vec<_> = steps(entry).iter().map(id).collect();
    // Its first ID is behind the last: it waited for 1 ms, and did not look again.
    let (wrong, originals) = originals.split_first().unwrap();
    assert!(*wrong < before);
    let ours = all(&mut server, originals.len());
    let expected = [&[before], originals].concat();
    assert_eq!(ours, with_our_starts(&expected)[1..]);
    // Ours read 1 twice, and looked again.
    assert_eq!(server.naps.get(), 2);
}

fn a_tick_is_used_up(entry: &Value) {
    assert_eq!(entry["config"]["clock"], "FixedTimeService(2)");
    let mut server = shardingsphere(entry);
    assert_eq!(server.issue(4096).unwrap().len(), 4096);
    // One reading is spent on setting the last time, as above.
    server.reads(fixed_time_service(2).skip(1));
    let originals: Vec<_> = steps(entry).iter().map(id).collect();
    let ours = all(&mut server, originals.len());
    // The tick that ours waited for also starts at `tick % 2`, here 1; the original's
    // starts at 0.
    assert_eq!(originals[0], (1, 0));
    assert_eq!(ours[0], (1, 1));
    assert_eq!(ours, with_our_starts(&originals));
    assert_eq!(server.naps.get(), 1);
}

fn behind_beyond_the_tolerance(entry: &Value) {
    assert_eq!(entry["config"]["lastMillis"], "now+2");
    assert!(steps(entry)[0].as_str().unwrap().starts_with("error"));
    let mut server = shardingsphere(entry);
    server.reads([2]);
    assert_eq!(at(server.next().unwrap()), (2, 0));
    server.reads([0]);
    let before = server.state();
    assert_eq!(behind_by(server.next()), Some(2));
    assert_eq!((server.state(), server.naps.get()), (before, 0));
    server.reads([2]);
    assert_eq!(at(server.next().unwrap()), (2, 1));

    // Ours waits up to and including the tolerance. With a tolerance of 10, the
    // original waits for 9 and not for 10. With 0, neither waits.
    let waits = |tolerance: i64, nanos: i64| {
        let label = format!("preset=shardingsphere max_wait='{tolerance} ms'");
        let mut server = Server::new(&label, 0, (0, 0), 100);
        server.next().unwrap();
        server.runs = true;
        server.step_by(-nanos);
        let result = server.next();
        assert_eq!(result.is_ok(), server.naps.get() > 0);
        match result {
            Ok(fields) => assert_eq!(at(fields), (100, 1)),
            Err(refused) => assert_eq!(refused.behind(), Some(nanos / MS)),
        }
        server.naps.get() > 0
    };
    assert!(waits(10, 9 * MS) && waits(10, 10 * MS) && !waits(10, 10 * MS + 1));
    assert!(!waits(0, 1) && waits(1, 1));
}

fn starts_of_five_ticks(entry: &Value) {
    let expected: Vec<_> = steps(entry).iter().map(|it| it.as_u64().unwrap()).collect();
    let mut server = shardingsphere(entry);
    server.reads(0..5);
    let ours = all(&mut server, 5);
    assert_eq!(ours.iter().map(|it| it.1).collect::<Vec<_>>(), expected);
    // The original counts the ticks that it uses. Ours starts at `tick % 4`, also
    // after a pause.
    server.reads([8, 9, 11, 15]);
    assert_eq!(all(&mut server, 4), [(8, 0), (9, 1), (11, 3), (15, 3)]);
    // Both refuse these values when they are set up.
    for bad in [
        "sequence_start='vibrate -1'",
        "sequence_start='vibrate 4096'",
        "max_wait='-1 ms'",
    ] {
        let text = format!("preset=shardingsphere {bad}");
        assert!(Label::parse(&text).is_err(), "{text}");
    }
}

fn refused_and_back_again(entry: &Value) {
    assert_eq!(entry["config"]["time"], "1,1,0,1 after epoch");
    let mut server = Server::new("preset=twitter", 0, (0, 0), 0);
    server.reads([1, 1, 0, 1]);
    for step in steps(entry) {
        let before = server.state();
        if step.is_object() {
            assert_eq!(at(server.next().unwrap()), id(step));
        } else {
            assert_eq!(behind_by(server.next()), Some(1));
            assert_eq!(server.state(), before);
        }
    }
    assert_eq!(server.naps.get(), 0);
    assert!(server.has_read_all());
}

fn one_wait_for_one_tick(entry: &Value) {
    let clock = entry["config"]["clock"].as_array().unwrap();
    let clock: Vec<_> = clock.iter().map(|at| at.as_i64().unwrap()).collect();
    let mut server = Server::new("preset=twitter", 0, (0, 0), 1);
    // The tick before is exhausted, which does not affect the next one.
    assert_eq!(server.issue(4096).unwrap().len(), 4096);
    server.reads([clock[0]]);
    let number = *numbers(&steps(entry)[0]).last().unwrap();
    assert_eq!(at(server.next().unwrap()), (2, number.unsigned_abs()));
    assert_eq!(server.issue(4095).unwrap().len(), 4095);
    assert_eq!(server.naps.get(), 0);
    server.reads(clock[1..].iter().copied());
    let tick = *numbers(&steps(entry)[1]).last().unwrap();
    assert_eq!(at(server.next().unwrap()), (tick.unsigned_abs(), 0));
    assert_eq!(server.naps.get(), 1);
    assert!(server.has_read_all());
}

fn a_clock_that_stands_still(entry: &Value) {
    let generator = entry["config"]["generator"].as_i64().unwrap();
    let cluster = entry["config"]["cluster"].as_i64().unwrap();
    let worker = i32::try_from(generator << 4 | cluster).unwrap();
    let [count, _, tick, number, of_generator, of_cluster] = numbers(&steps(entry)[0])[..] else {
        panic!("{entry}");
    };
    assert_eq!((of_generator, of_cluster), (generator, cluster));
    let last = Fields {
        tick: Tick::new(tick.unsigned_abs()),
        worker: u64::from(WorkerId::new(worker).unwrap().get()),
        sequence: number.unsigned_abs(),
        clock: 0,
    };
    for preset in ["uniqueid_time", "uniqueid_spread"] {
        let until_used_up = |policy: &str| {
            let label = format!("preset={preset} {policy}");
            let mut server = Server::new(&label, worker, (0, 0), tick);
            let mut fields = None;
            for _ in 0..count {
                fields = Some(server.next().unwrap());
            }
            assert_eq!((fields, server.naps.get()), (Some(last), 0));
            server
        };
        // The generator's clock is not the wall clock, and moves in the meantime.
        let mut server = until_used_up("");
        assert_eq!(at(server.next().unwrap()), (2, 0));
        assert_eq!(i64::from(server.naps.get()), (MS + NAP - 1) / NAP);
        // With this policy the wait is bounded: the original gives up after 11 tries.
        let mut server = until_used_up("on_rollback=wait");
        let before = (server.state(), server.boot.get());
        let stands = server.next().unwrap_err();
        assert!(matches!(
            stands,
            ScriptError::Why(IssueError::StandsStill { .. })
        ));
        assert_eq!(server.state(), before.0);
        let waited = server.boot.get() - before.1;
        assert!(
            (0..2 * NAP).contains(&(waited - STANDSTILL.get() * MS)),
            "{waited}"
        );
        // The next call waits anew, and gets its ID as soon as the clock moves.
        server.reads([1, 1, 1, 2]);
        assert_eq!(at(server.next().unwrap()), (2, 0));
    }
}

fn no_id_twice(entry: &Value) {
    let clock = entry["config"]["clock"].as_array().unwrap();
    let clock: Vec<_> = clock.iter().map(|at| at.as_i64().unwrap()).collect();
    let originals: Vec<At> = steps(entry)
        .iter()
        .map(|step| {
            let at = numbers(step);
            (at[0].unsigned_abs(), at[1].unsigned_abs())
        })
        .collect();
    assert_eq!(originals.len(), clock.len());
    let distinct: HashSet<_> = originals.iter().collect();
    assert!(distinct.len() < originals.len(), "the original repeats");

    // The preset as it is: it reads the wall clock before each ID here, and never goes
    // back.
    for preset in ["uniqueid_time", "uniqueid_spread"] {
        let mut server = Server::new(&format!("preset={preset}"), 1, (0, 0), clock[0]);
        server.reads(clock.iter().copied());
        let mut ours = vec![];
        for _ in &clock {
            server.look_at_the_wall();
            ours.push(at(server.next().unwrap()));
        }
        assert!(server.has_read_all());
        assert_eq!(ours[..2], originals[..2]);
        assert_eq!(ours, [(5, 0), (5, 1), (5, 2), (5, 3)]);
    }
    // And with any other policy.
    let layout = "layout='time:42 clock:2 sequence:6 worker:13' epoch=0 max_borrow=0";
    for (policy, expected) in [
        ("wait", &[(5, 0), (5, 1), (5, 2)][..]),
        ("error", &[(5, 0), (5, 1), (5, 2)]),
        ("next_clock", &[(5, 0), (5, 1), (4, 0), (5, 0)]),
    ] {
        for start in ["zero", "random"] {
            let label = format!("{layout} on_rollback={policy} sequence_start={start}");
            let mut server = Server::new(&label, 1, (3, 4), clock[0]);
            server.reads(clock.iter().copied());
            let mut ids = vec![];
            while ids.len() < expected.len() {
                match server.issue(1) {
                    Ok(issued) => ids.extend(issued),
                    Err(refused) => assert_eq!((policy, refused.behind()), ("error", Some(1))),
                }
            }
            assert!(server.has_read_all());
            let decoded = |it: &_| server.generator.layout.decode(*it).unwrap();
            let ours: Vec<_> = ids.iter().map(|id| at(decoded(id))).collect();
            if start == "zero" {
                assert_eq!(ours, expected, "{label}");
            }
            let distinct: HashSet<_> = ids.iter().map(|id| id.get()).collect();
            assert_eq!(distinct.len(), ids.len(), "{label}: {ours:?}");
        }
    }
}

fn behind_up_to_five_milliseconds(entry: &Value) {
    let behind = |millis: i64| {
        let mut server = Server::new("preset=leaf", 1, (1, 2), 100);
        server.next().unwrap();
        server.reads([100 - millis]);
        server
    };
    // The results of the original.
    for step in steps(entry) {
        match numbers(step).last() {
            // Still behind after a wait: the original doubles the wait, once. Ours
            // gives up if the clock, running on from here, would be there too late.
            Some(-1) => {
                let mut server = behind(3);
                let before = (server.state(), server.boot.get());
                assert_eq!(behind_by(server.next()), Some(3));
                assert_eq!(server.state(), before.0);
                let waited = server.boot.get() - before.1;
                assert!((2 * MS..=3 * MS + NAP).contains(&waited), "{waited}");
            }
            // Interrupted: the host notices that in a nap. Nothing has changed.
            Some(-2) => {
                let mut server = behind(3);
                let before = server.state();
                server.interrupted = true;
                assert_eq!(server.next(), Err(ScriptError::Interrupted));
                assert_eq!((server.state(), server.naps.get()), (before, 1));
                server.interrupted = false;
                server.reads([100]);
                assert_eq!(server.next().unwrap().tick.get(), 100);
            }
            // Further behind: refused at once.
            Some(-3) => {
                let mut server = behind(6);
                let before = server.state();
                assert_eq!(behind_by(server.next()), Some(6));
                assert_eq!((server.state(), server.naps.get()), (before, 0));
            }
            _ => panic!("{step}"),
        }
    }
    assert_eq!(steps(entry).len(), 3);
    // A clock that runs has caught up when it is where it was before.
    let mut server = behind(5);
    server.runs = true;
    assert_eq!(server.next().unwrap().tick.get(), 100);
    assert_eq!(i64::from(server.naps.get()), (5 * MS + NAP - 1) / NAP);

    // The original starts at 0 to 99 and counts up. Ours starts and continues anywhere,
    // and uses the whole tick.
    let starts: Vec<_> = (101..200)
        .map(|tick| {
            server.reads([tick]);
            server.next().unwrap().sequence
        })
        .collect();
    let low = starts.iter().filter(|start| **start < 100).count();
    assert!(low < 10, "{starts:?}");
    server.reads([200]);
    let ids = server.issue(4096).unwrap();
    let numbers: HashSet<_> = ids.iter().map(|id| id.get() & 4095).collect();
    assert_eq!(numbers.len(), 4096);
}

/// A call that meets a rollback reads the clock once. What it waits for, and what it is
/// refused for, is that reading.
#[test]
fn a_rollback_is_read_once() {
    for (rollback, behind) in [("error", 6), ("wait", 60_000)] {
        let label = format!("preset=leaf on_rollback={rollback}");
        let mut server = Server::new(&label, 1, (1, 2), 100_000);
        server.next().unwrap();
        let at = 100_000 - behind;
        server.reads([at, at + 1, at + 2]);
        let refused = server.fast_then_slow().unwrap_err();
        assert_eq!(refused.behind(), Some(behind), "{label}");
        assert_eq!(server.readings_left(), 2, "{label}");
        assert_eq!(server.naps.get(), 0, "{label}");
    }
    // A call that waits looks again after each nap.
    let mut server = Server::new("preset=leaf on_rollback=wait", 1, (1, 2), 100);
    server.next().unwrap();
    server.reads([99, 100, 101]);
    server.fast_then_slow().unwrap();
    assert_eq!((server.readings_left(), server.naps.get()), (1, 1));
}
