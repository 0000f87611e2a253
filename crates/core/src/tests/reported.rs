//! A session that keeps to what its server has reported: one thread.

use super::super::id::UnixMillis;
use super::scripted::{MS, Server};

/// Labels whose IDs ascend, one for each way to look at the clock.
const ASCENDING: [&str; 4] = [
    "preset=default",
    "preset=default on_rollback=wait",
    "preset=default on_rollback=error max_borrow=0",
    "layout='time:31 worker:20 sequence:12' tick=1s epoch=2025-01-01Z",
];

/// An instant, in milliseconds after the epoch.
fn at(server: &Server, millis: i64) -> UnixMillis {
    UnixMillis::new(server.generator.layout.epoch().get() + millis)
}

fn next_tick(server: &mut Server) -> i64 {
    let tick = server.generator.layout.tick().get();
    server.next().unwrap().tick.get().cast_signed() * tick
}

/// The clock is set back after the report, to before the generator's last ID, or of one that
/// has issued none.
#[test]
fn no_id_lies_before_what_was_reported() {
    for label in ASCENDING {
        for has_issued in [true, false] {
            let mut server = Server::new(label, 1, (1, 2), 5000);
            server.runs = true;
            if has_issued {
                server.next().unwrap();
            }
            let reported = at(&server, 9500);
            server.pass(4500 * MS);
            server.step_by(-40 * MS);
            server.reported.set(reported);
            let tick = server.generator.layout.tick().get();
            let first = next_tick(&mut server);
            assert!(first + tick > 9500, "{label}: {first}");
            let marks = server.marks();
            let second = next_tick(&mut server);
            assert!(second >= first, "{label}: {second}");
            assert_eq!(server.marks(), marks, "{label}: it is there");
        }
    }
}

/// A tick that began before the report and ends after it continues.
#[test]
fn a_long_tick_is_not_left_out() {
    let mut server = Server::new(ASCENDING[3], 1, (1, 2), 5000);
    assert_eq!(next_tick(&mut server), 5000);
    server.pass(400 * MS);
    let marks = server.marks();
    server.reported.set(at(&server, 5400));
    assert_eq!(next_tick(&mut server), 5000);
    assert_eq!(server.marks(), marks);
}

/// The clock was set back by more than the generator bears: as if it had issued there.
#[test]
fn a_clock_that_is_too_far_back_is_refused() {
    let mut server = Server::new("preset=default max_rollback=10s", 1, (1, 2), 5000);
    server.pass(60_000 * MS);
    let reported = at(&server, 65_000);
    server.step_by(-30_000 * MS);
    let before = server.state();
    server.reported.set(reported);
    assert!(server.next().is_err());
    assert_eq!(server.state(), before);
}
