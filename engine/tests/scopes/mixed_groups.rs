//! Groups that several realms have members of: renamed, moved and deleted as the one tree has them.
#![cfg(feature = "faults")]

use std::path::Path;

use crate::common::moves::{all, names};
use crate::common::{Fixture, OVER, alone, attach, filled, floats, fork, sound};
use engram::{Member, Mode, Namespace, Placement, Pool, Scope, faults};

use Scope::{Private, Published, Shared};

fn put(namespace: &Namespace, path: &str, scope: Option<Scope>) {
    let new = floats(&[40]);
    let placement = Placement { scope, ..OVER };
    namespace.put(namespace.root(), path, &new, &filled(1, 1, 40), placement).expect("a put");
}

fn group(namespace: &Namespace, path: &str, scope: Scope) {
    let made = namespace.create_group(namespace.root(), path, &[], b"", true, Some(scope));
    made.expect("a group");
}

fn paths(namespace: &Namespace) -> Vec<String> {
    all(namespace).into_iter().map(|(path, ..)| path).collect()
}

fn scope_of(namespace: &Namespace, path: &str) -> Scope {
    let member = namespace.lookup(namespace.root(), path).expect("a look").expect("it is there");
    namespace.scope_of(member).expect("its scope")
}

/// A group `A/o` of one scope with the member `n` of another, which has been moved to `p/o`; and
/// another, `B/o/n`, which stays.
fn moved(outer: Scope, inner: Scope) -> (Fixture, Namespace) {
    let fixture = Fixture::new(64 << 20);
    let namespace = names(&fixture.pool);
    for top in ["A", "B"] {
        group(&namespace, &format!("{top}/o"), outer);
        put(&namespace, &format!("{top}/o/n"), Some(outer.min(inner)));
        if inner != outer.min(inner) {
            let root = namespace.root();
            let moved = namespace.transfer(root, &format!("{top}/o/n"), &[outer], inner);
            assert_eq!(moved.expect("a move").objects, 1);
        }
    }
    namespace.rename(namespace.root(), "A/o", namespace.root(), "p/o").expect("a rename");
    assert_eq!(paths(&namespace), ["A", "B", "B/o", "B/o/n", "p", "p/o", "p/o/n"]);
    (fixture, namespace)
}

fn mixes() -> [(Scope, Scope); 2] {
    [(Private, Shared), (Shared, Private)]
}

fn end(fixture: &Fixture, namespace: Namespace) {
    drop(namespace);
    fixture.pool.close();
    sound(&fixture.path);
}

#[test]
fn what_was_moved_out_of_a_group_is_not_deleted_with_it() {
    for (outer, inner) in mixes() {
        let (fixture, namespace) = moved(outer, inner);
        namespace.delete(namespace.root(), "A").expect("a deletion");
        let left = ["B", "B/o", "B/o/n", "p", "p/o", "p/o/n"];
        assert_eq!(paths(&namespace), left, "{outer:?} {inner:?}");
        end(&fixture, namespace);
    }
}

#[test]
fn what_was_moved_into_a_group_is_deleted_with_it() {
    for (outer, inner) in mixes() {
        let (fixture, namespace) = moved(outer, inner);
        namespace.delete(namespace.root(), "p").expect("a deletion");
        assert_eq!(paths(&namespace), ["A", "B", "B/o", "B/o/n"], "{outer:?} {inner:?}");
        end(&fixture, namespace);
    }
}

#[test]
fn what_was_moved_out_of_a_group_does_not_go_to_another_scope_with_it() {
    for (outer, inner) in mixes() {
        let to = if inner == Shared { Private } else { Shared };
        let (fixture, namespace) = moved(outer, inner);
        let moved = namespace.transfer(namespace.root(), "A", &[inner], to);
        assert_eq!(moved.expect("nothing to move").objects, 0, "{outer:?} {inner:?}");
        assert_eq!(scope_of(&namespace, "p/o/n"), inner, "{outer:?} {inner:?}");
        let moved = namespace.transfer(namespace.root(), "A", &[Private, Shared], Published);
        assert_eq!(moved.expect("it goes").objects, 0, "{outer:?} {inner:?}");
        assert_eq!(scope_of(&namespace, "p/o/n"), inner, "{outer:?} {inner:?}");
        end(&fixture, namespace);
    }
}

#[test]
fn what_was_moved_into_a_group_goes_to_another_scope_with_it() {
    for (outer, inner) in mixes() {
        let (fixture, namespace) = moved(outer, inner);
        let moved = namespace.transfer(namespace.root(), "p", &[Private, Shared], Published);
        assert_eq!(moved.expect("it goes").objects, 1, "{outer:?} {inner:?}");
        assert_eq!(scope_of(&namespace, "p/o/n"), Published, "{outer:?} {inner:?}");
        assert_eq!(scope_of(&namespace, "B/o/n"), inner, "{outer:?} {inner:?}");
        end(&fixture, namespace);
    }
}

/// A group with members of two scopes.
fn mixed(pool: &Pool) {
    let namespace = names(pool);
    group(&namespace, "g/inner", Shared);
    for place in 0..6 {
        put(&namespace, &format!("g/s{place}"), None);
        put(&namespace, &format!("g/inner/p{place}"), Some(Private));
    }
    put(&namespace, "beside", None);
}

fn die_deleting(path: &Path, nth: u64) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let mut peer = fork(|_| {
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        namespace.lookup(namespace.root(), "g").expect("a look");
        faults::on_step(move |_| {
            if STEPS.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                // SAFETY: ends this process, and never returns.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        namespace.delete(namespace.root(), "g").expect("a deletion");
    });
    libc::WIFSIGNALED(peer.wait())
}

#[test]
fn who_dies_deleting_from_two_scopes_deletes_all_or_nothing() {
    alone("who_dies_deleting_from_two_scopes_deletes_all_or_nothing", || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        mixed(&fixture.pool);
        let before = all(&names(&fixture.pool));
        fixture.pool.close();
        let (mut nth, mut stayed, mut went) = (1, 0, 0);
        while die_deleting(path, nth) {
            let (pool, _) = attach(path, Mode::ReadWrite);
            let namespace = names(&pool);
            assert_eq!(namespace.leaving().expect("rows"), 0, "step {nth}");
            let after = all(&namespace);
            if after == before {
                stayed += 1;
            } else {
                assert_eq!(paths(&namespace), ["beside"], "half deleted at step {nth}");
                went += 1;
                namespace.delete(namespace.root(), "beside").expect("a deletion");
                for scope in [Private, Shared] {
                    let realm = namespace.realm_of(scope, false).expect("realms").expect("there");
                    assert_eq!(realm.space().expect("its space").used, 0, "step {nth}");
                }
                mixed(&pool);
            }
            let before_last = after == before;
            drop(namespace);
            pool.close();
            sound(path);
            if !before_last {
                // Made anew, with other ids.
                return finish_deaths(path, nth + 1, stayed, went);
            }
            nth += 1;
        }
        panic!("no step was after the deletion");
    });
}

/// The steps from the first on at which all is gone.
fn finish_deaths(path: &Path, from: u64, stayed: u64, mut went: u64) {
    let mut nth = from;
    while die_deleting(path, nth) {
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        assert_eq!(paths(&namespace), ["beside"], "half deleted at step {nth}");
        drop(namespace);
        mixed(&pool);
        pool.close();
        sound(path);
        (nth, went) = (nth + 1, went + 1);
    }
    println!("{stayed} stayed, {went} went");
    assert!(stayed > 3 && went > 3, "the steps are on both sides: {stayed} {went}");
}

/// A reader that looks, or takes a snapshot, while such groups are deleted and made sees all or
/// nothing.
#[test]
fn no_look_sees_half_of_what_is_deleted_from_two_scopes() {
    alone("no_look_sees_half_of_what_is_deleted_from_two_scopes", || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        mixed(&fixture.pool);
        fixture.pool.close();
        let peer = fork(|line| {
            let (pool, _) = attach(path, Mode::ReadWrite);
            let namespace = names(&pool);
            line.say(1);
            while !line.is_ready() {
                group(&namespace, "new", Shared);
                put(&namespace, "new/s", None);
                put(&namespace, "new/p", Some(Private));
                namespace.rename(namespace.root(), "new", namespace.root(), "h").expect("a rename");
                namespace.delete(namespace.root(), "h").expect("a deletion");
            }
        });
        peer.line.expect(1);
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        let whole = |seen: &[String]| {
            let have = |name: &str| seen.iter().any(|path| path == name);
            (have("h/s"), have("h/p")) != (true, false)
                && (have("h/s"), have("h/p")) != (false, true)
        };
        let (mut with, mut rounds) = (0, 0);
        while (with < 40 || rounds < 400) && rounds < 20_000 {
            let held = namespace.snapshot(None).expect("a snapshot");
            let member = held.lookup(held.root(), "h").expect("a look");
            let names: Vec<String> = match member {
                Some(Member::Group(gid)) => {
                    let listed = held.list(gid, None, 9).expect("a listing").into_iter();
                    listed.map(|(name, _)| format!("h/{name}")).collect()
                }
                _ => Vec::new(),
            };
            assert!(whole(&names), "half of it: {names:?}");
            with += u64::from(!names.is_empty());
            rounds += 1;
        }
        peer.line.say(0);
        peer.finish();
        drop(namespace);
        pool.close();
        sound(path);
    });
}
