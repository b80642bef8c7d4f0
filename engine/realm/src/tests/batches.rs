//! Batches of one thread: all or nothing, and none of it seen before.

use super::World;
use crate::batch::{in_batch, when_ended};
use engram_base::error::Kind;
use engram_base::id::Member;

#[test]
fn a_batch_is_seen_by_its_thread_alone_until_it_is_committed_whole() {
    let world = World::new();
    let (realm, root) = (&world.realm, world.realm.root());
    world.put("old", b"value").unwrap();
    let before = world.rows();
    let batch = realm.batch().unwrap();
    assert!(in_batch() && realm.runs_batch());
    let small = world.put("a/small", b"value").unwrap();
    world.put("a/large", &vec![1; 10_000]).unwrap();
    realm.rename(root, "old", root, "a/new").unwrap();
    assert_eq!(realm.lookup(root, "a/small").unwrap(), Some(Member::Object(small)));
    assert_eq!((world.seen_elsewhere("a"), world.rows()), (None, before));
    batch.commit().unwrap();
    assert!(!in_batch());
    for path in ["a/small", "a/large", "a/new"] {
        assert!(world.seen_elsewhere(path).is_some(), "{path}");
    }
    assert_eq!(world.seen_elsewhere("old"), None);
}

#[test]
fn a_batch_that_is_undone_or_dropped_leaves_no_row_and_no_space() {
    let world = World::new();
    world.put("old", &vec![1; 10_000]).unwrap();
    let (before, space) = (world.rows(), world.realm.space().unwrap());
    for dropped in [false, true] {
        let batch = world.realm.batch().unwrap();
        world.put("a/large", &vec![1; 20_000]).unwrap();
        world.realm.delete(world.realm.root(), "old").unwrap();
        if dropped {
            drop(batch);
        } else {
            batch.abort().unwrap();
        }
        assert!(!in_batch());
        assert_eq!(world.rows(), before, "dropped: {dropped}");
        let after = world.realm.space().unwrap();
        assert_eq!((after.used, after.pids.len()), (space.used, 1));
    }
}

#[test]
fn a_refused_operation_of_a_batch_leaves_the_others() {
    let world = World::new();
    let batch = world.realm.batch().unwrap();
    world.put("a", b"value").unwrap();
    assert_eq!(world.put("a", b"again").unwrap_err().kind(), Kind::Exists);
    world.put("b", b"value").unwrap();
    batch.commit().unwrap();
    assert!(world.seen_elsewhere("a").is_some() && world.seen_elsewhere("b").is_some());
}

#[test]
fn a_batch_is_refused_whole_where_somebody_has_changed_what_it_relied_on() {
    let world = World::new();
    world.put("object", b"value").unwrap();
    let batch = world.realm.batch().unwrap();
    world.put("new", b"value").unwrap();
    world.realm.rename(world.realm.root(), "object", world.realm.root(), "renamed").unwrap();
    std::thread::scope(|scope| {
        let others = || world.realm.delete(world.realm.root(), "object").unwrap();
        scope.spawn(others).join().unwrap();
    });
    let before = world.rows();
    assert_eq!(batch.commit().unwrap_err().kind(), Kind::Busy);
    assert_eq!(world.rows(), before);
    assert!(!in_batch());
}

#[test]
fn what_others_change_beside_a_batch_is_kept_with_it() {
    let world = World::new();
    let batch = world.realm.batch().unwrap();
    world.put("a/mine", b"value").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| world.put("theirs", b"value").unwrap()).join().unwrap();
    });
    batch.commit().unwrap();
    assert!(world.seen_elsewhere("a/mine").is_some() && world.seen_elsewhere("theirs").is_some());
}

#[test]
fn inner_batches_are_part_of_the_outermost_and_each_end_is_told_once() {
    use std::cell::RefCell;
    use std::rc::Rc;
    let world = World::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    for inner_fails in [false, true] {
        let outer = world.realm.batch().unwrap();
        let told_to = Rc::clone(&told);
        when_ended(move |committed| told_to.borrow_mut().push(committed));
        let inner = world.realm.batch().unwrap();
        let _ = world.put(&format!("of {inner_fails}"), b"value");
        if inner_fails { inner.abort() } else { inner.commit() }.unwrap();
        assert!(in_batch(), "the outermost goes on");
        assert_eq!(outer.commit().is_err(), inner_fails);
        assert_eq!(world.seen_elsewhere(&format!("of {inner_fails}")).is_some(), !inner_fails);
    }
    assert_eq!(*told.borrow(), [true, false]);
}
