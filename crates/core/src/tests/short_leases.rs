//! Pools whose leases are short: calls for IDs hardly wait for the registry, however much
//! a generator reserves, and however far it leads the clock.
//!
//! Here a generator and a node are those of one server, and their host is the keeper in
//! miniature.

use super::lease::{EPOCH, Plan, SECOND, World};
use super::model::{MS, Outcome, Server, settings};
use super::tenures::generator;
use crate::id::{BootNanos, Millis, UnixMillis};
use crate::label::policy::Policy;
use crate::lease::node::{Next, NodeInput};
use crate::lease::{RegistryMillis, Reply};
use crate::protocol::host::IssueError;
use crate::protocol::plan::ReserveError;

/// How often an ID is taken, and how long a request and its reply are under way: a tick.
const STEP: i64 = 10;

/// The shortest time between two renewals that callers ask for, and a round trip: what a
/// call may wait for.
const LONGEST: i64 = 200 + 2 * STEP;

/// Takes IDs for a minute and a half; for how long, in milliseconds, no ID was to be had
/// at most. If `reserved`, the server has had a fixed worker ID before, and its mark is
/// a whole reservation ahead; else the pool has just been made.
fn longest_wait(lease: i64, reserve: i64, max_ahead: i64, reserved: bool) -> i64 {
    let mut world = World::new(Plan {
        pool: 1,
        servers: 1,
        lease,
        hold: SECOND,
        max_ahead,
        ..Plan::default()
    });
    if !reserved {
        world.newest().disk.1.pool.made = RegistryMillis::new(EPOCH);
    }
    let mut generator = generator();
    generator.policy.max_rollback = Policy::DEFAULT.max_rollback;
    let mut server = Server::new(generator, settings(10_000, reserve, 300), EPOCH);
    if reserved {
        assert!(matches!(server.call(1), Outcome::Issued { .. }));
    }
    let (mut reply, mut needed, mut since, mut longest): (Option<Reply>, _, _, _) =
        (None, None, None, 0);
    for now in (EPOCH..EPOCH + 90 * SECOND).step_by(usize::try_from(STEP).unwrap()) {
        world.now = now;
        let node_input = NodeInput {
            boot: BootNanos::new(now * MS),
            clock: UnixMillis::new(now),
            furthest: server
                .slot
                .furthest()
                .max(needed)
                .unwrap_or(UnixMillis::new(0)),
            in_recovery: false,
        };
        let node = &mut world.servers[0].node;
        if let Some(reply) = reply.take() {
            let before = node.right().map(|right| right.generation);
            let _ = node.on_reply(&reply, &node_input);
            let right = node.right().unwrap();
            server.becomes(|identity| {
                if before == Some(right.generation) {
                    identity.renewed(right.bound)
                } else {
                    let max_ahead = Millis::new(max_ahead);
                    identity.granted(
                        right.worker,
                        right.floor,
                        right.bound,
                        right.floor,
                        max_ahead,
                    )
                }
            });
            needed = needed.filter(|needed| *needed >= right.bound);
        }
        if let Next::Send(request) = node.next(&node_input) {
            reply = Some(world.answer(0, 0, &request));
        }
        match server.call(1) {
            Outcome::Issued { .. } => since = None,
            outcome => {
                if let Outcome::Refused(IssueError::Reservation(ReserveError::PastBound {
                    needed: at,
                    ..
                })) = outcome
                {
                    needed = needed.max(Some(at));
                    world.servers[0].node.need(at);
                }
                let since = *since.get_or_insert(now);
                longest = longest.max(now + STEP - since);
            }
        }
        server.pass(STEP * MS);
    }
    longest
}

#[test]
fn a_lease_may_be_shorter_than_a_reservation() {
    for lease in [1, 3, 30] {
        let wait = longest_wait(lease * SECOND, 10 * SECOND, SECOND, true);
        assert!(wait <= LONGEST, "a lease of {lease} s: {wait} ms");
    }
}

#[test]
fn a_lease_may_be_much_shorter_than_the_lead_of_a_new_pool() {
    for lease in [1, 3, 30] {
        let wait = longest_wait(lease * SECOND, SECOND, 60 * SECOND, false);
        assert!(wait <= LONGEST, "a lease of {lease} s: {wait} ms");
    }
}
