//! Sessions that hold the horizon and readers of it, explored by loom on the production
//! protocol, see [`super::sessions`].

use std::sync::atomic::{AtomicBool as Flag, Ordering::SeqCst as Always};

use loom::thread;

use super::super::horizon::PLACES;
use super::super::id::UnixMillis;
use super::sessions::{Server, explore, instant, server, session};

/// A transaction that inserts the ID that it takes.
fn write(s: &Server, mine: usize, now: i64) -> UnixMillis {
    let session = session(s, mine, now);
    let id = session.take();
    session.end();
    id
}

#[test]
fn a_reader_sees_all_rows_before_the_horizon() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || write(&s, 0, 3))
        };
        let (horizon, seen) = s.read(5);
        met.check(writer.join().unwrap(), horizon, seen[0]);
    });
}

/// The reader loads the word as one writer has left it, and must see the other one.
#[test]
fn a_reader_sees_the_rows_of_two_writers() {
    explore(2, |met| {
        let s = server();
        let writers: Vec<_> = [3, 4]
            .into_iter()
            .enumerate()
            .map(|(mine, now)| {
                let s = s.clone();
                thread::spawn(move || write(&s, mine, now))
            })
            .collect();
        let (horizon, seen) = s.read(5);
        for (writer, seen) in writers.into_iter().zip(seen) {
            met.check(writer.join().unwrap(), horizon, seen);
        }
    });
}

/// The second transaction of a session takes the place of the first.
#[test]
fn a_session_goes_on_to_its_next_transaction() {
    explore(2, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let first = write(&s, 0, 3);
                let session = session(&s, 0, 4);
                let second = session.take();
                s.note_end(1);
                session.end();
                [first, second]
            })
        };
        let (horizon, seen) = s.read(5);
        for (id, seen) in writer.join().unwrap().into_iter().zip(seen) {
            met.check(id, horizon, seen);
        }
    });
}

/// A reader may return what another one has found.
#[test]
fn two_readers_and_a_writer() {
    explore(1, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || write(&s, 0, 3))
        };
        let other = {
            let s = s.clone();
            thread::spawn(move || s.read(5))
        };
        let (horizon, seen) = s.read(4);
        let id = writer.join().unwrap();
        met.check(id, horizon, seen[0]);
        let (horizon, seen) = other.join().unwrap();
        met.check(id, horizon, seen[0]);
    });
}

/// An ID of tick 4 comes from elsewhere, while the horizon moves past it.
#[test]
fn an_id_from_elsewhere_is_seen_or_refused() {
    let refused = std::sync::Arc::new(Flag::new(false));
    let all = refused.clone();
    explore(3, move |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                let inserted = session.insert(instant(4));
                session.end();
                inserted.is_ok()
            })
        };
        let (horizon, seen) = s.read(5);
        if writer.join().unwrap() {
            met.check(instant(4), horizon, seen[0]);
        } else {
            all.store(true, Always);
        }
    });
    assert!(refused.load(Always));
}

/// As above, of a session that has taken a later ID before, and inserts that one as well.
#[test]
fn an_id_from_elsewhere_beside_ones_own() {
    explore(3, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 5);
                let own = session.take();
                let other = session.insert(instant(4));
                assert_eq!(session.insert(own), Ok(()), "its own ID is refused");
                session.end();
                (own, other.is_ok())
            })
        };
        let (horizon, seen) = s.read(6);
        let (own, other) = writer.join().unwrap();
        met.check(own, horizon, seen[0]);
        if other {
            met.check(instant(4), horizon, seen[0]);
        }
    });
}

/// A transaction is prepared, and commits later.
#[test]
fn a_prepared_transaction_holds_the_horizon() {
    explore(2, |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                let id = session.take();
                session.prepare();
                // COMMIT PREPARED
                s.note_end(0);
                s.unlock();
                id
            })
        };
        // The first one may find that nothing is prepared.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

/// A transaction holds more generators than it has places, and this one by a lock.
#[test]
fn a_generator_without_a_place_is_held_by_a_lock() {
    explore(2, |met| {
        let s = server();
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
        // The first one may find that there is no lock.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

/// An ID from elsewhere, held by a lock.
#[test]
fn an_id_from_elsewhere_without_a_place_is_seen_or_refused() {
    let refused = std::sync::Arc::new(Flag::new(false));
    let all = refused.clone();
    explore(2, move |met| {
        let s = server();
        let writer = {
            let s = s.clone();
            thread::spawn(move || {
                let session = session(&s, 0, 3);
                (1..=PLACES as u64).for_each(|other| session.hold_other(other));
                let inserted = session.insert(instant(4));
                session.end();
                s.unlock();
                inserted.is_ok()
            })
        };
        let (horizon, seen) = s.read(5);
        if writer.join().unwrap() {
            met.check(instant(4), horizon, seen[0]);
        } else {
            all.store(true, Always);
        }
    });
    assert!(refused.load(Always));
}
