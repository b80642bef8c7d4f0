//! Moves and copies between users: anything that one may not open is named, left alone, or ended by
//! root.
#![cfg(feature = "faults")]

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::common::moves::{homes, value_of};
use crate::common::{
    ALICE, BOB, CAROL, KEEP, TEAM, alone, become_user, die_at_step, filled, floats, folder_of,
    fork, is_root, put, sound,
};
use engram::{CreateOptions, Kind, Mode, Namespace, Placement, Pool, Result, Scope, Value};

const WORDS: usize = 20_000;

/// A pool of Alice's with a namespace that her group writes and others enter, and something of each
/// scope in it.
fn begin(path: &Path) {
    fork(|_| {
        become_user(ALICE, TEAM);
        let options = CreateOptions { size: 32 << 20, ..CreateOptions::default() };
        let pool = Pool::create(path, &options).unwrap();
        let realm = pool.create_namespace("team", 0o775, Some(TEAM), None).unwrap();
        for (at, name) in ["shown", "ours", "mine", "moving"].into_iter().enumerate() {
            put(&realm, name, &filled(at as u64, 1, WORDS));
        }
        let team = pool.namespace("team").unwrap();
        let root = team.root();
        team.transfer(root, "shown", &[Scope::Shared], Scope::Published).unwrap();
        team.transfer(root, "mine", &[Scope::Shared], Scope::Private).unwrap();
    })
    .finish();
}

fn open(path: &Path, mode: Mode) -> (Pool, Namespace) {
    let pool = Pool::open(path, mode, true).unwrap();
    let team = pool.namespace("team").unwrap();
    (pool, team)
}

/// The value of a name, if it is seen.
fn value(team: &Namespace, name: &str) -> Option<Vec<u8>> {
    let member = team.lookup(team.root(), name).unwrap()?;
    Some(value_of(team, member.id()))
}

/// Everything below a folder: path, owner, group, mode.
fn files(root: &Path) -> BTreeSet<(String, u32, u32, u32)> {
    let (mut found, mut open) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let meta = entry.path().symlink_metadata().unwrap();
            let path = entry.path().strip_prefix(root).unwrap().display().to_string();
            found.insert((path, meta.uid(), meta.gid(), meta.mode() & 0o7777));
            if meta.is_dir() {
                open.push(entry.path());
            }
        }
    }
    found
}

/// A copy that root makes belongs to whom the pool belongs, and each of them goes on in it; one
/// that another makes has what that one may read, and names the rest.
#[test]
fn a_copy_belongs_to_its_owners_and_names_what_it_left_out() {
    let test = "a_copy_belongs_to_its_owners_and_names_what_it_left_out";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        begin(&path);
        let (pool, _) = open(&path, Mode::Read);
        let report = engram::backup(&pool, &copy, true).unwrap();
        assert_eq!((report.objects, report.skipped.len()), (4, 0), "{report:?}");
        pool.close();
        sound(&copy);
        for (file, owner, group, mode) in files(&copy.join("ns/team")) {
            assert_eq!(owner, ALICE, "{file} {mode:o}");
            assert!(group == TEAM || file.contains("private") || group == ALICE, "{file}");
        }
        fork(|_| {
            become_user(ALICE, TEAM);
            let (pool, team) = open(&copy, Mode::ReadWrite);
            for (at, name) in ["shown", "ours", "mine"].into_iter().enumerate() {
                assert!(value(&team, name) == Some(filled(at as u64, 1, WORDS)), "{name}");
            }
            assert_eq!(homes(&team).len(), 4);
            let root = team.root();
            team.transfer(root, "ours", &[Scope::Shared], Scope::Published).unwrap();
            team.transfer(root, "shown", &[Scope::Published], Scope::Private).unwrap();
            drop(team);
            pool.close();
        })
        .finish();
        fork(|_| {
            become_user(CAROL, CAROL);
            let (_pool, team) = open(&copy, Mode::Read);
            assert!(value(&team, "ours") == Some(filled(1, 1, WORDS)), "read by strangers");
            assert_eq!((value(&team, "mine"), value(&team, "shown")), (None, None));
        })
        .finish();
        sound(&copy);
        Pool::destroy(&copy).unwrap();
        // A stranger copies what is published, and is told of the rest.
        let theirs = folder_of(CAROL);
        let copy = theirs.path().join("copy");
        fork(|_| {
            become_user(CAROL, CAROL);
            let (pool, _) = open(&path, Mode::Read);
            let report = engram::backup(&pool, &copy, true).unwrap();
            let skipped = [format!("team (private of user {ALICE})"), "team".to_owned()];
            assert_eq!((report.realms, report.objects), (1, 1), "{report:?}");
            for name in skipped.iter().map(String::as_str).chain(["default"]) {
                assert!(report.skipped.iter().any(|one| one == name), "{name}: {report:?}");
            }
            pool.close();
            let (pool, team) = open(&copy, Mode::ReadWrite);
            assert!(value(&team, "shown") == Some(filled(0, 1, WORDS)));
            // It is a pool of the stranger's own: an object published there is withdrawn, and kept.
            let root = team.root();
            team.transfer(root, "shown", &[Scope::Published], Scope::Shared).unwrap();
            let own = Placement { scope: Some(Scope::Private), ..KEEP };
            team.put(root, "new", &floats(&[9]), &filled(7, 1, 9), own).unwrap();
            assert_eq!(homes(&team).len(), 2);
            drop(team);
            pool.close();
            sound(&copy);
            Pool::destroy(&copy).unwrap();
        })
        .finish();
    });
}

/// Alice moves a member, and dies as she reaches a step.
fn die_moving(path: &Path, name: &str, from: Scope, to: Scope, step: &'static str) {
    let mut alice = fork(|_| {
        become_user(ALICE, TEAM);
        let (_pool, team) = open(path, Mode::ReadWrite);
        die_at_step(step);
        let _ = team.transfer(team.root(), name, &[from], to);
    });
    assert!(libc::WIFSIGNALED(alice.wait()), "{step} is not reached");
}

/// A move that a user's own realm has part in is ended by that user, or root. The others read it
/// meanwhile, and are told whom to ask.
#[test]
fn a_move_to_anothers_own_realm_is_ended_by_that_user_or_root() {
    let test = "a_move_to_anothers_own_realm_is_ended_by_that_user_or_root";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        for (step, ends) in [("transfer.copied", ALICE), ("transfer.arrived", 0)] {
            let dir = folder_of(ALICE);
            let path = dir.path().join("pool");
            begin(&path);
            die_moving(&path, "moving", Scope::Shared, Scope::Private, step);
            let arrived = step == "transfer.arrived";
            let bob = fork(|line| {
                become_user(BOB, TEAM);
                let (_pool, team) = open(&path, Mode::ReadWrite);
                let root = team.root();
                let change = || -> Result<()> {
                    let member = team.lookup(root, "moving")?.expect("it is seen");
                    team.set_attrs(member, &[("by".to_owned(), Value::text("bob"))])
                };
                for refused in [change(), team.delete(root, "moving")] {
                    let refused = refused.unwrap_err();
                    assert_eq!(refused.kind(), Kind::Busy, "{refused}");
                    let told = format!("user {ALICE} or root");
                    assert!(refused.message().contains(&told), "{refused}");
                }
                assert!(value(&team, "moving") == Some(filled(3, 1, WORDS)));
                // Everything else goes on.
                team.delete(root, "ours").unwrap();
                line.say(1);
                line.expect(2);
                assert_eq!(value(&team, "moving").is_none(), arrived);
                if !arrived {
                    change().unwrap();
                }
            });
            bob.line.expect(1);
            fork(|_| {
                if ends != 0 {
                    become_user(ends, TEAM);
                }
                let (pool, team) = open(&path, Mode::ReadWrite);
                assert_eq!(team.leaving().unwrap(), 0);
                drop(team);
                pool.close();
            })
            .finish();
            bob.line.say(2);
            bob.finish();
            fork(|_| {
                become_user(ALICE, TEAM);
                let (_pool, team) = open(&path, Mode::ReadWrite);
                assert!(value(&team, "moving") == Some(filled(3, 1, WORDS)));
                assert_eq!(homes(&team).len(), 3);
            })
            .finish();
            sound(&path);
        }
    });
}

/// One user died withdrawing an object to their own realm; another withdraws it to the shared one:
/// it is there, once, also for the first, whose part in it is over.
#[test]
fn what_another_has_withdrawn_is_not_kept_twice() {
    let test = "what_another_has_withdrawn_is_not_kept_twice";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = dir.path().join("pool");
        begin(&path);
        die_moving(&path, "shown", Scope::Published, Scope::Private, "unpublish.arrived");
        fork(|_| {
            become_user(BOB, TEAM);
            let (_pool, team) = open(&path, Mode::ReadWrite);
            let root = team.root();
            team.transfer(root, "shown", &[Scope::Published], Scope::Shared).unwrap();
            let member = team.lookup(root, "shown").unwrap().unwrap();
            team.set_attrs(member, &[("by".to_owned(), Value::text("bob"))]).unwrap();
        })
        .finish();
        fork(|_| {
            become_user(ALICE, TEAM);
            let (_pool, team) = open(&path, Mode::ReadWrite);
            let member = team.lookup(team.root(), "shown").unwrap().unwrap();
            assert_eq!(team.scope_of(member).unwrap(), Scope::Shared);
            assert_eq!(team.attrs(member).unwrap().len(), 1, "as Bob has it");
            assert_eq!((homes(&team).len(), team.leaving().unwrap()), (4, 0));
        })
        .finish();
        sound(&path);
    });
}
