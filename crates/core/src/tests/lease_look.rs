//! A look at a registry changes none of its leases, and what it says of a newer one stops an old
//! one.

use super::lease::{How, World};
use super::lease_traces::one_of_two;
use crate::lease::{
    Answer, Cause, EraRelation, Fence, Memory, RegistryError, Reply, Request, RequestKind,
};

/// The server looks at a registry.
fn look(world: &mut World, registry: usize, memory: Option<Memory>) -> Reply {
    let input = world.node_input(0);
    let mut node = world.servers[0].node.clone();
    let request = node.close(input.clock, &input).unwrap();
    let request = Request {
        memory,
        ask: RequestKind::look(),
        ..request
    };
    let now = world.now;
    world.registries[registry].handle(&request, now)
}

fn is_refused(reply: &Reply) -> bool {
    matches!(
        reply.answer,
        Answer::Refused(RegistryError::Fenced {
            why: Fence::TakenOver,
            ..
        })
    )
}

#[test]
fn a_look_changes_no_lease() {
    let mut world = one_of_two();
    let before = world.registries[0].clone();
    let known = world.servers[0].node.memory();
    for memory in [None, known] {
        let reply = look(&mut world, 0, memory);
        assert!(is_refused(&reply), "{reply:?}");
        assert_eq!(reply.memory.era, before.disk.0.era);
        assert!(world.registries[0].disk == before.disk);
    }
}

#[test]
fn a_look_stops_the_older_of_two_registries() {
    let mut world = one_of_two();
    let older = world.servers[0].node.memory();
    world.replace(0, How::Promotion);
    let newer = look(&mut world, 1, None);
    assert!(is_refused(&newer), "{newer:?}");
    assert_eq!(
        world.registries[1].disk.0.loss.unwrap().cause,
        Cause::Origin
    );
    let eras = newer.memory.era.judge(&older.unwrap().era);
    assert_eq!(eras, EraRelation::Before);
    // What is older says nothing new, and what it has granted is still there.
    let (old, new) = (world.registries[0].clone(), world.registries[1].clone());
    assert!(is_refused(&look(&mut world, 1, older)));
    assert!(world.registries[1].disk == new.disk);
    assert!(is_refused(&look(&mut world, 0, older)));
    assert!(world.registries[0].disk == old.disk);
    let reply = look(&mut world, 0, Some(newer.memory));
    assert!(matches!(
        reply.answer,
        Answer::Refused(RegistryError::Stopped(_))
    ));
    assert_eq!(world.registries[0].rows(), old.rows());
    assert!(is_refused(&look(&mut world, 1, Some(newer.memory))));
}
