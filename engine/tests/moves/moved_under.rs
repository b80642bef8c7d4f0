//! What was begun before a move, and is ended after it: writes in place, allocations, batches.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::common::moves::{all as every, homes, names, value_of};
use crate::common::{Fixture, OVER, filled, floats, sound};
use engram::{Kind, LockMode, Member, Mode, Namespace, Payload, Placement, Pool, Scope, Value};

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

fn put_large(namespace: &Namespace, seed: u64) -> engram::Result<u64> {
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
fn is_whole(fixture: &Fixture, namespace: Namespace, scope: Scope) {
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
        is_whole(&fixture, namespace, Scope::Private);
    }
}

#[test]
fn an_allocation_is_published_where_its_name_is_by_now() {
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
        // The object that it replaces has gone to another realm: so does the value, and its space
        // goes back.
        let space = allocate();
        space.write(&filled(3, 3, WORDS));
        let used = |scope| {
            let realm = namespace.realm_of(scope, false).unwrap().expect("a realm");
            realm.space().expect("accounts").used
        };
        moved(&namespace, "run", Scope::Shared, Scope::Private);
        let oid = space.publish().expect("it is where its group is now");
        assert_eq!((oid, used(Scope::Shared)), (large(&namespace), 0));
        assert_eq!(value_of(&namespace, oid), filled(3, 3, WORDS));
        // Nothing can be made in what is published: the space goes back.
        let space = allocate();
        moved(&namespace, "run", Scope::Private, Scope::Published);
        let refused = space.publish().expect_err("it is published");
        assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
        assert_eq!(used(Scope::Private), 0);
        moved(&namespace, "run", Scope::Published, Scope::Private);
        is_whole(&fixture, namespace, Scope::Private);
    }
}

#[test]
fn a_batch_over_a_move_is_not_applied() {
    for private in [false, true] {
        let (fixture, namespace) = with_large(private);
        let seen = every(&namespace);
        let batch = namespace.batch().expect("a batch");
        put_large(&namespace, 2).expect("it is in the list");
        let other = namespace.clone();
        let mover = std::thread::spawn(move || {
            moved(&other, "run", Scope::Shared, Scope::Private);
        });
        mover.join().expect("it has moved");
        let refused = batch.commit().expect_err("it was put where nothing is any more");
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        assert_eq!(every(&namespace), seen);
        is_whole(&fixture, namespace, Scope::Private);
    }
}

/// Runs `does` in another thread, beside the batch of this one.
fn meanwhile(does: impl FnOnce() + Send) {
    std::thread::scope(|threads| threads.spawn(does).join().expect("it is done"));
}

/// A batch relies on what it has touched, and on nothing else that moves.
#[test]
fn a_batch_is_applied_whatever_else_moves() {
    for private in [false, true] {
        let (fixture, namespace) = with_large(private);
        let (root, one) = (namespace.root(), floats(&[1]));
        let put = |path: &str| namespace.put(root, path, &one, &[1; 8], OVER).map(drop);
        for path in ["other/x", "mine/old", "mine/gone", "mine/group/member"] {
            put(path).expect("a put");
        }
        let batch = namespace.batch().expect("a batch");
        put("mine/new").expect("a new name");
        put("mine/old").expect("a replacement");
        let (mut from, mut to) = (Scope::Shared, Scope::Private);
        let changes: [&dyn Fn() -> engram::Result<()>; 6] = [
            &|| put("mine/second"),
            &|| put("mine/old"),
            &|| namespace.delete(root, "mine/gone"),
            &|| namespace.delete(root, "mine/group"),
            &|| namespace.rename(root, "mine/new", root, "mine/renamed"),
            &|| put_large(&namespace, 5).map(drop),
        ];
        for change in changes {
            meanwhile(|| moved(&namespace, "other", from, to));
            (from, to) = (to, from);
            change().expect("nothing of it has moved");
        }
        meanwhile(|| moved(&namespace, "other", from, to));
        batch.commit().expect("nothing of it has moved");
        let mine = namespace.lookup(root, "mine").unwrap().expect("a group").id();
        let there = namespace.list(mine, None, 9).unwrap().into_iter().map(|(name, _)| name);
        assert_eq!(there.collect::<Vec<_>>(), ["old", "renamed", "second"]);
        assert_eq!(value_of(&namespace, large(&namespace)), filled(5, 5, WORDS));
        drop(namespace);
        fixture.pool.close();
        sound(&fixture.path);
    }
}

#[test]
fn batches_go_on_beside_who_moves_something_else_all_the_time() {
    let (fixture, namespace) = with_large(true);
    let (root, one) = (namespace.root(), floats(&[1]));
    namespace.put(root, "theirs/x", &one, &[1; 8], OVER).expect("a put");
    let (done, moves) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|threads| {
        let other = names(&Pool::open(&fixture.path, Mode::ReadWrite, true).expect("the pool"));
        let (done, moves) = (&done, &moves);
        threads.spawn(move || {
            while done.load(Relaxed) == 0 {
                moved(&other, "theirs/x", Scope::Shared, Scope::Private);
                moved(&other, "theirs/x", Scope::Private, Scope::Shared);
                moves.fetch_add(2, Relaxed);
            }
        });
        let (mut round, mut refused) = (0, Vec::new());
        while round < 60 || moves.load(Relaxed) < 60 {
            let batch = namespace.batch().expect("a batch");
            let all = (0..20).try_for_each(|number| {
                let path = format!("mine/{number}");
                match (round + number) % 4 {
                    0 if namespace.lookup(root, &path)?.is_some() => namespace.delete(root, &path),
                    _ => namespace.put(root, &path, &one, &[2; 8], OVER).map(drop),
                }
            });
            refused.extend(all.and_then(|()| batch.commit()).err());
            round += 1;
        }
        done.store(1, Relaxed);
        assert!(refused.is_empty(), "{} of {round} batches: {}", refused.len(), refused[0]);
    });
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

type Change = Box<dyn Fn(&Namespace, u64) -> engram::Result<()>>;

const OWN: Placement = Placement { scope: Some(Scope::Private), ..OVER };

fn member(all: &Namespace, path: &str) -> Member {
    all.lookup(all.root(), path).expect("a look").expect("a member")
}

/// What a batch does, and what moves then, from the shared realm to which.
fn touched() -> Vec<(Change, &'static str, Scope)> {
    fn put(path: &'static str, with: Placement) -> Change {
        let new = floats(&[1]);
        Box::new(move |all, root| all.put(root, path, &new, &[2; 8], with).map(drop))
    }
    fn annotate(path: &'static str) -> Change {
        let attrs = [("k".to_owned(), Value::text("v"))];
        Box::new(move |all, _| all.set_attrs(member(all, path), &attrs))
    }
    fn delete(path: &'static str) -> Change {
        Box::new(move |all, root| all.delete(root, path))
    }
    fn rename(old: &'static str, new: &'static str) -> Change {
        Box::new(move |all, root| all.rename(root, old, root, new))
    }
    let protect: Change = Box::new(|all, _| all.set_read_only(member(all, "run/x"), true));
    let (private, published) = (Scope::Private, Scope::Published);
    vec![
        (put("run/new", OVER), "run", private),
        (put("run/deep/a/new", OVER), "run/deep", private),
        (put("run/new", OVER), "run", published),
        (put("run/x", OVER), "run/x", private),
        (put("run/own", OWN), "run", private),
        (annotate("run/x"), "run/x", published),
        (annotate("run/deep"), "run/deep", private),
        (protect, "run/x", private),
        (delete("run/x"), "run/x", private),
        (delete("run/deep"), "run/deep/y", private),
        (rename("run/x", "other/x"), "run/x", private),
        (rename("run/deep", "elsewhere"), "run/deep/y", published),
        (rename("other", "run/other"), "run", private),
    ]
}

/// Each of these, in a batch, and then a move of what it has touched, is a batch that fails.
#[test]
fn a_batch_is_refused_for_each_thing_that_it_has_touched_and_that_has_moved() {
    // With something of the user's own in the groups mirrors stay behind, or are there before.
    let cases = touched().into_iter().chain(touched()).enumerate();
    for (number, (change, path, to)) in cases {
        let mirrors = number >= touched().len();
        let fixture = Fixture::new(64 << 20);
        let all = names(&fixture.pool);
        let root = all.root();
        for path in ["run/x", "run/deep/y", "other/z"] {
            all.put(root, path, &floats(&[1]), &[1; 8], OVER).expect("a put");
        }
        all.realm_of(Scope::Private, true).expect("a private realm");
        if mirrors {
            for path in ["run/mine", "run/deep/mine"] {
                all.put(root, path, &floats(&[1]), &[1; 8], OWN).expect("a put");
            }
        }
        let before = every(&all);
        let batch = all.batch().expect("a batch");
        if let Err(error) = change(&all, root) {
            // A group with members of two scopes is deleted in no batch.
            assert!(mirrors && error.kind() == Kind::Busy, "case {number}: {error}");
            continue;
        }
        meanwhile(|| moved(&all, path, Scope::Shared, to));
        let refused = batch.commit().expect_err(path);
        assert_eq!(refused.kind(), Kind::Busy, "case {number}: {refused}");
        assert_eq!(every(&all), before, "case {number}");
        drop(all);
        fixture.pool.close();
        sound(&fixture.path);
    }
}

#[test]
fn who_has_a_lock_never_meets_a_move_that_is_refused_for_it() {
    let (fixture, namespace) = with_large(true);
    let oid = large(&namespace);
    let run = namespace.lookup(namespace.root(), "run").unwrap().expect("the group");
    let held = namespace.lock(run, LockMode::Write, None, &mut |_| Ok(())).expect("a lock");
    let data = filled(7, 7, WORDS);
    let tries = AtomicU32::new(0);
    std::thread::scope(|threads| {
        let other = names(&Pool::open(&fixture.path, Mode::ReadWrite, true).expect("the pool"));
        threads.spawn(|| {
            let other = other;
            for _ in 0..20 {
                let root = other.root();
                let refused = other.transfer(root, "run", &[Scope::Shared], Scope::Private);
                assert_eq!(refused.expect_err("it is locked").kind(), Kind::Busy);
                tries.fetch_add(1, Relaxed);
            }
        });
        while tries.load(Relaxed) < 20 {
            let (_, generation) = namespace.payload(oid).expect("a payload");
            namespace.replace_payload(oid, generation, &data).expect("nothing is in the way");
            let place = namespace.view_in_place(oid).expect("a view").1;
            assert_eq!(place.held(), Ok(true));
        }
    });
    drop(held);
    is_whole(&fixture, namespace, Scope::Shared);
}

#[test]
fn a_group_with_published_members_keeps_its_name() {
    let (fixture, namespace) = with_large(false);
    let root = namespace.root();
    moved(&namespace, "run/large", Scope::Shared, Scope::Published);
    for new in ["walk", "other/run"] {
        let refused = namespace.rename(root, "run", root, new).expect_err("it is in use");
        assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    }
    moved(&namespace, "run/large", Scope::Published, Scope::Shared);
    namespace.rename(root, "run", root, "walk").expect("nothing of it is published");
    is_whole(&fixture, namespace, Scope::Shared);
}

#[test]
fn nothing_moves_out_of_a_read_only_group_or_into_it() {
    let (fixture, namespace) = with_large(true);
    let root = namespace.root();
    let run = namespace.lookup(root, "run").unwrap().expect("the group");
    let unshare = |path| namespace.transfer(root, path, &[Scope::Shared], Scope::Private);
    for above in [run, Member::Group(root)] {
        namespace.set_read_only(above, true).expect("it is protected");
        let refused = unshare("run/large").expect_err("it would lose its protection");
        assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
        let new = floats(&[1]);
        let private = Placement { scope: Some(Scope::Private), ..OVER };
        for path in ["new", "run/new"] {
            if path == "new" && above == run {
                continue;
            }
            let refused = namespace.put(root, path, &new, &[0; 8], private).expect_err("new");
            assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
        }
        namespace.set_read_only(above, false).expect("it is not");
    }
    namespace.set_read_only(run, true).expect("it is protected");
    unshare("run").expect("the group with all that is in it");
    assert_eq!(namespace.is_read_only(run), Ok(true), "it takes that along");
    is_whole(&fixture, namespace, Scope::Private);
}
