//! Space of one realm: taken, given back, and kept for those who look at it.

use super::{SIZE, World, bytes_of};
use crate::Payload;
use engram_base::error::Kind;
use engram_records::object::{NewObject, Placement};

/// A value of this many bytes, all the same.
fn value(byte: u8, len: usize) -> Vec<u8> {
    vec![byte; len]
}

#[test]
fn space_in_use_is_what_objects_take_and_all_of_it_comes_back() {
    let world = World::new();
    for (number, len) in (0..).zip([2000, 70_000, 1 << 20]) {
        world.put(&format!("{number}"), &value(number, len)).unwrap();
    }
    let used = world.realm.space().unwrap().used;
    assert!((2000 + 70_000 + (1 << 20)..2 << 20).contains(&used), "{used}");
    for number in 0..3 {
        world.realm.delete(world.realm.root(), &format!("{number}")).unwrap();
    }
    let space = world.realm.space().unwrap();
    assert_eq!((space.used, space.free + space.pending), (0, space.arena));
    // All of the arena can be taken again, which takes back what was freed.
    world.put("all", &value(9, SIZE as usize)).unwrap();
    assert_eq!(world.realm.space().unwrap().used, SIZE);
}

#[test]
fn a_view_keeps_its_bytes_when_their_object_is_deleted_and_their_space_goes_to_nobody() {
    let world = World::new();
    let half = SIZE as usize / 2;
    let oid = world.put("viewed", &value(1, half)).unwrap();
    let view = world.realm.view(oid, false).unwrap();
    world.realm.delete(world.realm.root(), "viewed").unwrap();
    world.put("other", &value(2, half)).unwrap();
    let full = world.put("third", &value(3, half)).unwrap_err();
    assert_eq!(full.kind(), Kind::PoolFull);
    assert!(bytes_of(view) == value(1, half), "it is the first one's still");
    world.put("third", &value(3, half)).unwrap();
}

#[test]
fn an_allocation_that_is_dropped_goes_back_and_one_that_is_published_is_there_whole() {
    let world = World::new();
    let (realm, root) = (&world.realm, world.realm.root());
    let before = world.rows();
    for _ in 0..3 {
        let placement = Placement::default();
        let allocation = realm.allocate(root, "a", &NewObject::blob(), SIZE, placement).unwrap();
        assert_eq!(world.seen_elsewhere("a"), None);
        drop(allocation);
    }
    assert_eq!((world.rows(), realm.space().unwrap().used), (before, 0));
    let allocation =
        realm.allocate(root, "a", &NewObject::blob(), 5000, Placement::default()).unwrap();
    allocation.write(&value(4, 5000));
    let oid = allocation.publish().unwrap();
    let Payload::Extent(view) = realm.view(oid, false).unwrap() else { panic!("5000 bytes") };
    assert_eq!(view.len(), 5000);
}

#[test]
fn a_realm_that_is_full_takes_small_values_and_new_ones_once_something_is_deleted() {
    let world = World::new();
    world.put("all", &value(1, SIZE as usize)).unwrap();
    assert_eq!(world.put("more", &value(2, 2000)).unwrap_err().kind(), Kind::PoolFull);
    world.put("inline", b"it lies in its record").unwrap();
    world.realm.delete(world.realm.root(), "all").unwrap();
    world.put("more", &value(2, 2000)).unwrap();
}
