//! A process that changes what a dead mover has left half moved ends the move first, and goes on,
//! as a reader does. A process that meets a mover that lives is refused, in whatever realm the
//! member is by now.
#![cfg(feature = "faults")]

use crate::common::moves::{all, begin, die_at, homes, move_run, names, steps, value_of};
use crate::common::{
    Fixture, KEEP, OVER, alone, attach, deadline, filled, floats, fork, sound, wait_for,
};
use engram::{Kind, Member, Mode, Namespace, Result, Scope, faults};

/// A change of what moves, or of its names.
struct Change {
    name: &'static str,
    work: fn(&Namespace) -> Result<()>,
    /// What it leaves of the tree, by name: what is there, and what is not.
    leaves: (&'static [&'static str], &'static [&'static str]),
}

const NEW: usize = 700;

fn put_over(namespace: &Namespace) -> Result<()> {
    let (root, data) = (namespace.root(), filled(5, 5, NEW));
    namespace.put(root, "run/large", &floats(&[NEW as u64]), &data, OVER).map(drop)
}

fn allocate_over(namespace: &Namespace) -> Result<()> {
    let root = namespace.root();
    let new = floats(&[NEW as u64]);
    let space = namespace.allocate(root, "run/large", &new, 8 * NEW as u64, OVER)?;
    space.write(&filled(5, 5, NEW));
    space.publish().map(drop)
}

const CHANGES: [Change; 8] = [
    Change {
        name: "put over",
        work: put_over,
        leaves: (&["run/large", "run/inline", "run/deep/huge"], &[]),
    },
    Change {
        name: "allocate over",
        work: allocate_over,
        leaves: (&["run/large", "run/inline", "run/deep/huge"], &[]),
    },
    Change {
        name: "put beside",
        work: |namespace| {
            let (root, data) = (namespace.root(), filled(5, 5, NEW));
            namespace.put(root, "run/new", &floats(&[NEW as u64]), &data, KEEP).map(drop)
        },
        leaves: (&["run/large", "run/new", "run/inline", "run/deep/huge"], &[]),
    },
    Change {
        name: "make a group",
        work: |namespace| {
            let root = namespace.root();
            namespace.create_group(root, "run/deep/new", &[], b"", false, None).map(drop)
        },
        leaves: (&["run/large", "run/deep/new", "run/deep/huge"], &[]),
    },
    Change {
        name: "delete an object",
        work: |namespace| namespace.delete(namespace.root(), "run/large"),
        leaves: (&["run/inline", "run/deep/huge"], &["run/large"]),
    },
    Change {
        name: "delete the group",
        work: |namespace| namespace.delete(namespace.root(), "run"),
        leaves: (&[], &["run", "run/large", "run/deep"]),
    },
    Change {
        name: "rename an object",
        work: |namespace| {
            namespace.rename(namespace.root(), "run/large", namespace.root(), "run/other")
        },
        leaves: (&["run/other", "run/inline"], &["run/large"]),
    },
    Change {
        name: "rename the group",
        work: |namespace| namespace.rename(namespace.root(), "run", namespace.root(), "walk"),
        leaves: (&["walk/large", "walk/deep/huge"], &["run"]),
    },
];

fn there(namespace: &Namespace, path: &str) -> bool {
    namespace.lookup(namespace.root(), path).unwrap().is_some()
}

/// Takes away all there is.
fn clear(namespace: &Namespace) {
    let root = namespace.root();
    for (name, _) in namespace.list(root, None, usize::MAX).unwrap() {
        let withdrawn = namespace.transfer(root, &name, &[Scope::Published], Scope::Shared);
        if let Err(error) = withdrawn {
            assert_eq!(error.kind(), Kind::Argument, "nothing of it is published: {error}");
        }
        namespace.delete(root, &name).unwrap();
    }
    assert_eq!(homes(namespace).len(), 0);
}

/// Kills a mover at every step of a way; each time, every change is made by a process that had the
/// pool open before.
fn changed_after_every_step(from: Scope, to: Scope) {
    let fixture = Fixture::new(64 << 20);
    let path = &fixture.path;
    let namespace = names(&fixture.pool);
    let (mut kills, mut refused) = (0, 0);
    for step in steps() {
        for change in &CHANGES {
            begin(path, from);
            let met = die_at(path, from, to, step);
            if !met {
                clear(&namespace);
                break;
            }
            kills += 1;
            let what = format!("{} after {step}, {from:?} to {to:?}", change.name);
            let done = (change.work)(&namespace);
            let homes = homes(&namespace);
            match done {
                Ok(()) => {
                    let (kept, gone) = change.leaves;
                    assert!(kept.iter().all(|path| there(&namespace, path)), "{what}");
                    assert!(!gone.iter().any(|path| there(&namespace, path)), "{what}");
                }
                // It is published now, and then nobody changes it.
                Err(error) => {
                    assert_eq!(error.kind(), Kind::ReadOnly, "{what}: {error}");
                    assert!(homes.values().all(|home| *home == Scope::Published), "{what}");
                    refused += 1;
                }
            }
            let seen = all(&namespace);
            let (pool, _) = attach(path, Mode::ReadWrite);
            assert_eq!(all(&names(&pool)), seen, "{what}: who comes next sees the same");
            assert_eq!(namespace.leaving().unwrap(), 0, "{what}");
            pool.close();
            let objects = seen.iter().filter(|(.., digest)| *digest != 0).count();
            assert_eq!(homes.len(), objects, "{what}: {homes:?}, {seen:?}");
            clear(&namespace);
        }
    }
    println!("{from:?} to {to:?}: {kills} kills, {refused} refused");
    assert!(kills >= 5 * CHANGES.len());
    drop(namespace);
    fixture.pool.close();
    assert_eq!(sound(path).used, 0);
}

#[test]
fn who_changes_what_a_dead_share_left_ends_it() {
    alone("who_changes_what_a_dead_share_left_ends_it", || {
        changed_after_every_step(Scope::Private, Scope::Shared);
    });
}

#[test]
fn who_changes_what_a_dead_unshare_left_ends_it() {
    alone("who_changes_what_a_dead_unshare_left_ends_it", || {
        changed_after_every_step(Scope::Shared, Scope::Private);
    });
}

#[test]
fn who_changes_what_a_dead_publisher_left_ends_it() {
    alone("who_changes_what_a_dead_publisher_left_ends_it", || {
        changed_after_every_step(Scope::Private, Scope::Published);
    });
}

#[test]
fn who_changes_what_a_dead_withdrawal_left_ends_it() {
    alone("who_changes_what_a_dead_withdrawal_left_ends_it", || {
        changed_after_every_step(Scope::Published, Scope::Shared);
    });
}

/// A member has come to its user's own realm, and is not gone from the shared one yet: deleted in
/// the one it would be seen in the other.
#[test]
fn what_a_living_mover_has_in_two_realms_is_not_changed_in_one() {
    alone("what_a_living_mover_has_in_two_realms_is_not_changed_in_one", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let before = begin(path, Scope::Shared);
        let (at, go) = (fixture.dir.path().join("at"), fixture.dir.path().join("go"));
        let mover = fork(|_| {
            let (at, go) = (at.clone(), go.clone());
            faults::on_step(move |step| {
                if step == "transfer.arrived" {
                    std::fs::write(&at, b"").unwrap();
                    wait_for(&go);
                }
            });
            let (pool, _) = attach(path, Mode::ReadWrite);
            move_run(&names(&pool), Scope::Shared, Scope::Private);
        });
        wait_for(&at);
        let (pool, _) = attach(path, Mode::ReadWrite);
        let namespace = names(&pool);
        for change in CHANGES.iter().filter(|change| !change.name.contains("group")) {
            if change.name == "put beside" {
                continue;
            }
            let refused = (change.work)(&namespace).expect_err(change.name);
            assert_eq!(refused.kind(), Kind::Busy, "{}: {refused}", change.name);
            assert_eq!(all(&namespace), before, "{}", change.name);
        }
        let refused = namespace.delete(namespace.root(), "run").unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy, "{refused}");
        assert_eq!(all(&namespace), before, "all of a group stays, or nothing");
        std::fs::write(&go, b"").unwrap();
        mover.finish();
        put_over(&namespace).unwrap();
        let large = namespace.lookup(namespace.root(), "run/large").unwrap().unwrap();
        assert_eq!(namespace.scope_of(large).unwrap(), Scope::Private);
        let Member::Object(oid) = large else { unreachable!() };
        assert!(value_of(&namespace, oid) == filled(5, 5, NEW));
        namespace.delete(namespace.root(), "run").unwrap();
        assert_eq!(homes(&namespace).len(), 0);
        drop(namespace);
        pool.close();
        assert_eq!(sound(path).used, 0);
    });
}

/// Whether a process waits for a lock of a file.
fn waits(pid: i32) -> bool {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut open = files.filter_map(|file| std::fs::read_link(file.path()).ok());
    open.any(|file| file.ends_with("default/shared"))
}

/// Of two processes that withdraw the same, one dies having the publish lock, when the members have
/// come to the one realm and are published still; the other has waited, and takes them to another.
#[test]
fn what_two_withdraw_of_whom_one_dies_is_there_once() {
    alone("what_two_withdraw_of_whom_one_dies_is_there_once", || {
        let fixture = Fixture::new(64 << 20);
        fixture.pool.close();
        let path = &fixture.path;
        let before = begin(path, Scope::Published);
        for step in ["unpublish.arrived", "unpublish.removed", "publish.copied"] {
            let at = fixture.dir.path().join(step);
            let dying = fork(|_| {
                let at = at.clone();
                faults::on_step(move |now| {
                    if now == step {
                        std::fs::write(&at, b"").unwrap();
                        std::thread::sleep(deadline() - std::time::Instant::now());
                    }
                });
                let (pool, _) = attach(path, Mode::ReadWrite);
                move_run(&names(&pool), Scope::Published, Scope::Private);
            });
            wait_for(&at);
            let waiting = fork(|_| {
                let (pool, _) = attach(path, Mode::ReadWrite);
                let namespace = names(&pool);
                let root = namespace.root();
                let moved = namespace.transfer(root, "run", &[Scope::Published], Scope::Shared);
                // The first withdrawal has been ended: it is private, and stays so.
                assert_eq!(moved.unwrap_err().kind(), Kind::Argument);
            });
            while !waits(waiting.pid) {
                std::thread::yield_now();
            }
            dying.kill();
            waiting.finish();
            let (pool, _) = attach(path, Mode::ReadWrite);
            let namespace = names(&pool);
            assert_eq!((namespace.leaving().unwrap(), all(&namespace)), (0, before.clone()));
            let homes = homes(&namespace);
            assert!(homes.values().all(|home| *home == Scope::Private), "{step}: {homes:?}");
            move_run(&namespace, Scope::Private, Scope::Published);
            drop(namespace);
            pool.close();
        }
        sound(path);
    });
}
