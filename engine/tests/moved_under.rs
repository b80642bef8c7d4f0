//! What was begun before a move, and is ended after it: writes in place, allocations, batches.

mod common;

use common::moves::{all, homes, names, value_of};
use common::{Fixture, OVER, filled, floats, sound};
use engram_engine::{Kind, Member, Namespace, Payload, Scope};

const WORDS: usize = 9000;

/// A pool with `run/large`, of which somebody has a realm in private already, or not.
fn with_large(private: bool) -> (Fixture, Namespace) {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    if private {
        namespace.realm_of(Scope::Private, true).expect("a private realm");
    }
    put_large(&namespace, 1).expect("a put");
    (fixture, namespace)
}

fn put_large(namespace: &Namespace, seed: u64) -> engram_engine::Result<u64> {
    let data = filled(seed, seed, WORDS);
    namespace.put(namespace.root(), "run/large", &floats(&[WORDS as u64]), &data, OVER)
}

fn moved(namespace: &Namespace, path: &str, from: Scope, to: Scope) {
    namespace.transfer(namespace.root(), path, &[from], to).expect("a move");
}

fn large(namespace: &Namespace) -> u64 {
    match namespace.lookup(namespace.root(), "run/large").expect("a look") {
        Some(Member::Object(oid)) => oid,
        other => panic!("there is {other:?}"),
    }
}

/// One object, in one realm, and nothing wrong.
fn is_whole(fixture: Fixture, namespace: Namespace, scope: Scope) {
    assert_eq!(homes(&namespace).into_values().collect::<Vec<_>>(), [scope]);
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn a_write_in_place_is_not_held_where_the_value_has_moved_meanwhile() {
    for private in [false, true] {
        let (fixture, namespace) = with_large(private);
        let oid = large(&namespace);
        let (before, place) = namespace.view_in_place(oid).expect("a view");
        assert_eq!(place.held(), Ok(true));
        moved(&namespace, "run", Scope::Shared, Scope::Private);
        // What is written here now is written into what was.
        assert!(matches!(before, Payload::Extent(_)));
        assert_eq!(place.held(), Ok(false), "with a private realm before: {private}");
        let (_again, place) = namespace.view_in_place(oid).expect("a view");
        assert_eq!(place.held(), Ok(true));
        is_whole(fixture, namespace, Scope::Private);
    }
}

#[test]
fn an_allocation_is_published_where_its_name_is_by_now_or_refused() {
    for private in [false, true] {
        let (fixture, namespace) = with_large(private);
        let allocate = || {
            let new = floats(&[WORDS as u64]);
            let nbytes = 8 * WORDS as u64;
            namespace.allocate(namespace.root(), "run/large", &new, nbytes, OVER).expect("space")
        };
        // Something else has moved: it goes where it was to go.
        namespace.create_group(namespace.root(), "other", &[], b"", false, None).expect("a group");
        let space = allocate();
        space.write(&filled(2, 2, WORDS));
        moved(&namespace, "other", Scope::Shared, Scope::Private);
        let oid = space.publish().expect("it is where it was");
        assert_eq!(value_of(&namespace, oid), filled(2, 2, WORDS));
        // What it replaces has gone to another realm, and the space is of this one.
        let space = allocate();
        space.write(&filled(3, 3, WORDS));
        let used = |scope| {
            let realm = namespace.realm_of(scope, false).unwrap().expect("a realm");
            realm.space().expect("accounts").used
        };
        moved(&namespace, "run", Scope::Shared, Scope::Private);
        let refused = space.publish().expect_err("another realm's");
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        assert!(refused.message().contains("allocate it again"), "{refused}");
        assert_eq!(used(Scope::Shared), 0, "the space has gone back");
        assert_eq!(value_of(&namespace, large(&namespace)), filled(2, 2, WORDS));
        is_whole(fixture, namespace, Scope::Private);
    }
}

#[test]
fn a_batch_over_a_move_is_not_applied() {
    for private in [false, true] {
        let (fixture, namespace) = with_large(private);
        let seen = all(&namespace);
        let batch = namespace.batch().expect("a batch");
        put_large(&namespace, 2).expect("it is in the list");
        let other = namespace.clone();
        let mover = std::thread::spawn(move || {
            moved(&other, "run", Scope::Shared, Scope::Private);
        });
        mover.join().expect("it has moved");
        let refused = batch.commit().expect_err("it was put where nothing is any more");
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        assert_eq!(all(&namespace), seen);
        is_whole(fixture, namespace, Scope::Private);
    }
}
