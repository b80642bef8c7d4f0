//! Changes of one realm, each a commit; and those that are refused.

use super::{World, bytes_of};
use crate::HasCore;
use crate::realm::Precondition;
use engram_base::error::Kind::{Argument, Exists, NotFound, ReadOnly};
use engram_base::id::Member;
use engram_catalog::Headroom;
use engram_ops::marks;
use engram_records::attrs::Value;
use engram_records::object::{NewObject, Placement};

#[test]
fn what_is_put_is_found_by_everybody_with_its_bytes() {
    let world = World::new();
    for (path, len) in [("inline", 5), ("extent", 5000), ("a/b/deep", 300_000), ("empty", 0)] {
        let value: Vec<u8> = (0..len).map(|place: u32| (place % 251) as u8).collect();
        let oid = world.put(path, &value).unwrap();
        assert_eq!(world.seen_elsewhere(path), Some(Member::Object(oid)));
        assert_eq!(bytes_of(world.looking().view(oid, false).unwrap()), value, "{path}");
        assert_eq!(world.realm.path_of(Member::Object(oid)).unwrap(), path);
    }
    assert_eq!(world.realm.count(world.realm.root()).unwrap(), 4);
}

#[test]
fn a_refused_change_leaves_every_row_as_it_was() {
    let world = World::new();
    let oid = world.put("a/object", b"value").unwrap();
    world.put("other", b"value").unwrap();
    let (realm, root) = (&world.realm, world.realm.root());
    let before = world.rows();
    let large = vec![1; 100_000];
    let kinds = [
        world.put("a/object", b"new").map(drop),
        world.put("a/object", &large).map(drop),
        world.put("a/object/below", b"new").map(drop),
        realm.create_group(root, "a", &[], &[], false).map(drop),
        realm.delete(root, "none"),
        realm.rename(root, "a", root, "a/inner"),
        realm.rename(root, "a/object", root, "other"),
        realm.delete_attr(Member::Object(oid), "none"),
        realm.set_attrs(Member::Object(99), &[("key".to_owned(), Value::text("one"))]),
        world.looking().delete(root, "a"),
    ]
    .map(|done| done.map_err(|error| error.kind()));
    let expected =
        [Exists, Exists, Exists, Exists, NotFound, Argument, Exists, NotFound, NotFound, ReadOnly];
    assert_eq!(kinds, expected.map(Err));
    let after = world.rows();
    assert_eq!(before, after);
    assert_eq!(world.realm.space().unwrap().used, 0, "both values lie in their records");
}

#[test]
fn a_value_is_replaced_only_if_it_is_still_of_the_generation_that_was_seen() {
    let world = World::new();
    let oid = world.put("a", b"one").unwrap();
    let (_, generation) = world.realm.payload(oid).unwrap();
    assert_eq!(world.realm.replace_payload(oid, generation, b"two"), Ok(true));
    let before = world.rows();
    assert_eq!(world.realm.replace_payload(oid, generation, b"three"), Ok(false));
    assert_eq!(world.rows(), before);
    assert_eq!(bytes_of(world.realm.view(oid, false).unwrap()), b"two");
}

/// Has a move come to the realm, or go from it.
fn pass(world: &World) {
    let core = world.realm.core();
    let inside = core.enter().unwrap();
    core.commit(&inside, Headroom::Normal, |rows| marks::pass(rows)).unwrap();
}

#[test]
fn a_change_that_relies_on_a_look_is_refused_where_a_move_has_come_since() {
    let world = World::new();
    world.put("there", b"value").unwrap();
    let realm = world.realm.with_precondition(Precondition::Arrived(0));
    let root = realm.root();
    realm.create_group(root, "before", &[], &[], false).unwrap();
    pass(&world);
    let before = world.rows();
    let large = vec![1; 10_000];
    for value in [&b"small"[..], &large] {
        let refused =
            realm.put(root, "new", &NewObject::blob(), value, Placement::default()).unwrap_err();
        assert!(refused.is_moved(), "{refused}");
    }
    assert!(realm.delete(root, "there").unwrap_err().is_moved());
    assert!(realm.rename(root, "there", root, "elsewhere").unwrap_err().is_moved());
    assert_eq!(world.rows(), before);
    let again = world.realm.with_precondition(Precondition::Arrived(1));
    again.delete(root, "there").unwrap();
}

#[test]
fn a_realm_that_is_closed_and_opened_again_has_what_was_put() {
    let world = World::new();
    let value = vec![7; 100_000];
    let oid = world.put("a", &value).unwrap();
    let before = world.rows();
    crate::process::detach(&world.setup.dir);
    let core = crate::process::core_of(world.setup.clone(), crate::Purpose::Use).unwrap();
    let session = crate::session::Session::new(crate::Mode::ReadWrite);
    let realm = crate::Realm::new(core, session);
    let world = World { realm, ..world };
    assert_eq!(world.rows(), before);
    assert_eq!(bytes_of(world.realm.view(oid, false).unwrap()), value);
    let new = world.put("b", b"").unwrap();
    assert!(new != oid, "no id is given out twice");
}
