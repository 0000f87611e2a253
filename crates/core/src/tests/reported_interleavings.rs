//! Sessions that keep to what the server reports, and the one who reports, explored by loom
//! on the production protocol, see [`super::sessions`].

use loom::thread;

use super::super::horizon::PLACES;
use super::sessions::{explore, instant, server, session};

/// By a clock that was set back, the session takes an ID, inserts it, and ends.
#[test]
fn what_is_reported_has_ended_or_lies_before_all_ids_to_come() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                let id = session.take();
                session.end();
                id
            })
        };
        let (report, ended) = s.report(5);
        met.check(writer.join().unwrap(), report, ended[0]);
    });
}

#[test]
fn a_lock_is_found_though_none_was_there_before() {
    explore(3, |met| {
        let s = server();
        // The note of the start is withdrawn.
        let _ = s.report(1);
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                (1..=PLACES as u64).for_each(|other| session.hold_other(other));
                let id = session.take();
                session.end();
                s.unlock();
                id
            })
        };
        let (report, ended) = s.report(5);
        met.check(writer.join().unwrap(), report, ended[0]);
    });
}

#[test]
fn an_id_from_elsewhere_is_reported_or_refused() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                let inserted = session.insert(instant(4));
                session.end();
                // One that is refused does not appear.
                inserted.map_or(instant(99), |()| instant(4))
            })
        };
        let (report, ended) = s.report(5);
        met.check(writer.join().unwrap(), report, ended[0]);
    });
}
