//! Sessions that hold the horizon, and those that read it, explored by loom on the production
//! protocol, see [`super::sessions`].

use super::scaffold::{self, spawn};
use super::sessions::{Server, explore, instant, server, session};
use crate::id::UnixMillis;

/// A transaction that inserts the ID that it takes.
fn write(s: &Server, mine: usize, now: i64) -> UnixMillis {
    let session = session(s, mine, now);
    let id = session.take();
    session.end();
    id
}

/// A transaction that is prepared, and commits later.
fn prepare_and_commit(s: &Server) -> UnixMillis {
    let session = session(s, 0, 3);
    let id = session.take();
    session.prepare();
    // COMMIT PREPARED
    s.note_end(0);
    s.unlock(0);
    id
}

/// A transaction that holds more generators than it has places, and this one by a lock.
fn write_by_lock(s: &Server) -> UnixMillis {
    let session = session(s, 0, 3);
    session.fill_places();
    let id = session.take();
    session.end();
    s.unlock(0);
    id
}

/// A transaction that inserts an ID of tick 4, which comes from elsewhere, while the horizon moves
/// past it; by a lock if it has no place. Whether it may.
fn insert(s: &Server, by_lock: bool) -> bool {
    let session = session(s, 0, 3);
    if by_lock {
        session.fill_places();
    }
    let inserted = session.insert(instant(4));
    session.end();
    if by_lock {
        s.unlock(0);
    }
    inserted.is_ok()
}

#[test]
fn a_reader_sees_all_rows_before_the_horizon() {
    explore(3, |met| {
        let s = server();
        let writer = spawn(&s, |s| write(s, 0, 3));
        let (horizon, seen) = s.read(5);
        met.check(writer.join().unwrap(), horizon, seen[0]);
    });
}

/// The reader loads the cursor as one writer has left it, and must see the other one.
#[test]
fn a_reader_sees_the_rows_of_two_writers() {
    // Two interruptions take three minutes.
    explore(1, |met| {
        let s = server();
        let writers: Vec<_> = [3, 4]
            .into_iter()
            .enumerate()
            .map(|(mine, now)| spawn(&s, move |s| write(s, mine, now)))
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
        let writer = spawn(&s, |s| {
            let first = write(s, 0, 3);
            let session = session(s, 0, 4);
            let second = session.take();
            s.note_end(1);
            session.end();
            [first, second]
        });
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
        let writer = spawn(&s, |s| write(s, 0, 3));
        let other = spawn(&s, |s| s.read(5));
        let (horizon, seen) = s.read(4);
        let id = writer.join().unwrap();
        met.check(id, horizon, seen[0]);
        let (horizon, seen) = other.join().unwrap();
        met.check(id, horizon, seen[0]);
    });
}

#[test]
fn an_id_from_elsewhere_is_seen_or_refused() {
    for (by_lock, interruptions) in [(false, 3), (true, 2)] {
        let refuses = explore(interruptions, move |met| {
            let s = server();
            let writer = spawn(&s, move |s| insert(s, by_lock));
            let (horizon, seen) = s.read(5);
            met.check_inserted(writer.join().unwrap(), instant(4), horizon, seen[0]);
        });
        assert!(refuses, "by a lock: {by_lock}");
    }
}

/// A session inserts an ID from elsewhere, and a later one that it has taken before.
#[test]
fn an_id_from_elsewhere_beside_ones_own() {
    explore(3, |met| {
        let s = server();
        let writer = spawn(&s, |s| {
            let session = session(s, 0, 5);
            let own = session.take();
            let other = session.insert(instant(4));
            assert_eq!(session.insert(own), Ok(()), "its own ID is refused");
            session.end();
            (own, other.is_ok())
        });
        let (horizon, seen) = s.read(6);
        let (own, other) = writer.join().unwrap();
        met.check(own, horizon, seen[0]);
        met.check_inserted(other, instant(4), horizon, seen[0]);
    });
}

#[test]
fn a_prepared_transaction_holds_the_horizon() {
    explore(2, |met| {
        let s = server();
        let writer = spawn(&s, prepare_and_commit);
        // The first one may find that nothing is prepared.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

#[test]
fn a_generator_without_a_place_is_held_by_a_lock() {
    explore(2, |met| {
        let s = server();
        let writer = spawn(&s, write_by_lock);
        // The first one may find that there is no lock.
        let first = s.read(4);
        let second = s.read(5);
        let id = writer.join().unwrap();
        for (horizon, seen) in [first, second] {
            met.check(id, horizon, seen[0]);
        }
    });
}

/// Two prepared transactions, whose IDs are of one tick: one ends, and the other one's lock looks
/// the same. The list has room for two, and a reader finds one gone.
#[test]
fn a_lock_that_looks_like_one_that_is_gone() {
    for locks in [1, 2] {
        let found = scaffold::explore(2, move || {
            let s = server();
            // The list lacks nothing from here on.
            let _ = s.read(1);
            for mine in 0..locks {
                let session = session(&s, mine, 3);
                let _ = session.take();
                session.prepare();
            }
            let writer = spawn(&s, |s| {
                s.note_end(0);
                s.unlock(0);
                let session = session(s, 0, 3);
                let id = session.take();
                session.prepare();
                id
            });
            let found = [s.read(4).0, s.read(5).0];
            let id = writer.join().unwrap();
            // The second one of two holds as well.
            let least = if locks == 2 { instant(3) } else { id };
            assert!(found.iter().all(|horizon| *horizon <= least), "{found:?}");
            found
        });
        assert!(locks == 2 || found.len() > 1, "{found:?}");
    }
}

#[test]
fn a_lock_is_found_though_none_was_there_before() {
    explore(3, |met| {
        let s = server();
        // The note of the start is withdrawn.
        let _ = s.read(1);
        let writer = spawn(&s, write_by_lock);
        let (horizon, seen) = s.read(5);
        met.check(writer.join().unwrap(), horizon, seen[0]);
    });
}

/// A reader on a standby, or of the change stream, reads the end of WAL after the horizon: each
/// transaction with an ID below that has its record before this. Two readings: the first one may
/// find that there is no hold, or no lock.
fn explore_wal(interruptions: usize, transaction: fn(&Server) -> UnixMillis) {
    explore(interruptions, move |met| {
        let s = server();
        let writer = spawn(&s, transaction);
        let readings = [4, 5].map(|now| s.read_with_wal(now));
        let id = writer.join().unwrap();
        for (horizon, at) in readings {
            met.check(id, horizon, s.end_of(0) < at);
        }
    });
}

#[test]
fn the_records_of_transactions_below_the_horizon_come_first() {
    explore_wal(2, |s| write(s, 0, 3));
}

#[test]
fn so_does_that_of_a_prepared_transaction() {
    explore_wal(2, prepare_and_commit);
}

#[test]
fn so_does_that_of_a_transaction_that_holds_by_a_lock() {
    explore_wal(2, write_by_lock);
}

/// One may have what the other one has found.
#[test]
fn two_read_the_end_of_wal() {
    explore(1, |met| {
        let s = server();
        let writer = spawn(&s, |s| write(s, 0, 3));
        let other = spawn(&s, |s| s.read_with_wal(5));
        let mine = s.read_with_wal(4);
        let id = writer.join().unwrap();
        for (horizon, at) in [mine, other.join().unwrap()] {
            met.check(id, horizon, s.end_of(0) < at);
        }
    });
}

/// Another session changes the label as soon as PostgreSQL has freed the lock, while the session
/// still holds the generator.
#[test]
fn a_horizon_does_not_go_back_where_the_label_changes() {
    for takes in [false, true] {
        let went = scaffold::explore(2, move || {
            let s = server();
            let writer = spawn(&s, move |s| {
                session(s, 0, 3).locked(|session| {
                    if takes {
                        let _ = session.take();
                    } else {
                        session.fail();
                    }
                });
            });
            let (before, _) = s.read(5);
            s.relabel();
            let (after, _) = s.read(6);
            assert!(before <= after, "{before:?}, then {after:?}");
            writer.join().unwrap();
            (before, after)
        });
        assert!(went.len() > 1, "{went:?}");
    }
}

#[test]
fn a_slot_that_somebody_holds_is_not_emptied() {
    let evicted = scaffold::explore(3, || {
        let s = server();
        let writer = spawn(&s, |s| {
            session(s, 0, 3).locked(|session| {
                let _ = session.take();
            });
        });
        let is_free = s.evict();
        writer.join().unwrap();
        is_free
    });
    assert_eq!(evicted.len(), 2);
}
