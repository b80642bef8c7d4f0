//! Modes: every file and folder has the one that `docs/format.md` says, whatever the umask of its
//! maker, and the group of its realm.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engram::{CreateOptions, Mode, Placement, Pool, Scope};

use super::world::all_below;
use crate::common::{
    ALICE, CAROL, KEEP, TEAM, alone, become_user, filled, floats, folder_of, fork, is_root,
};

/// Works in the namespace so that every kind of file is made; leaves the pool open in a child that
/// is gone, so that its leases are there.
fn work(path: &Path, tag: u64) {
    let pool = Pool::open(path, Mode::ReadWrite, false).unwrap();
    let team = pool.namespace("team").unwrap();
    for (scope, words) in [(Scope::Shared, 4 << 20), (Scope::Shared, 5), (Scope::Private, 50_000)] {
        let placement = Placement { scope: Some(scope), ..KEEP };
        let name = format!("{}-{words}-{tag}", scope.as_str());
        let (new, data) = (floats(&[words as u64]), filled(tag, 1, words));
        team.put(team.root(), &name, &new, &data, placement).unwrap();
    }
    let name = format!("shared-5-{tag}");
    team.transfer(team.root(), &name, &[Scope::Shared], Scope::Published).unwrap();
    // As a process that dies: its leases stay.
    std::mem::forget((team, pool));
}

/// The mode that a path of the pool is to have, and whether its group is the namespace's.
fn expected(path: &str, is_dir: bool) -> (u32, bool) {
    let parts: Vec<&str> = path.split('/').collect();
    let of = |dir: u32, file: u32| if is_dir { dir } else { file };
    match parts.as_slice() {
        [] | ["" | "ns"] => (0o755, false),
        ["pool.toml"] | [_, ".pool.toml"] | [_, _, "namespace.toml"] => (0o644, false),
        [uuid] if uuid.len() == 32 => (0o755, false),
        ["ns", name] => (if *name == "team" { 0o3775 } else { 0o700 }, *name == "team"),
        [_, "team"] => (0o3775, true),
        [_, _] => (0o700, false),
        [_, name, "shared", ..] if *name == "team" => (of(0o2770, 0o660), true),
        [_, _, "private" | "births"] => (0o1777, false),
        [_, _, "shared" | "private", ..] => (of(0o700, 0o600), false),
        [_, "team", "published"] => (0o2775, true),
        [_, _, "published"] => (0o755, false),
        [_, "team", "published", ..] => (of(0o2775, 0o444), true),
        [_, _, "births", _] => (0o600, false),
        [_, name, "scopes"] => (if *name == "team" { 0o660 } else { 0o600 }, *name == "team"),
        other => panic!("a path that nobody has told of: {other:?}"),
    }
}

/// Every file and folder has the mode and the group that it is to have.
#[test]
fn modes_do_not_depend_on_the_umask() {
    let test = "modes::modes_do_not_depend_on_the_umask";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        for mask in [0o000, 0o077, 0o027] {
            let dir = folder_of(ALICE);
            let path = dir.path().join("pool");
            let second = folder_of(ALICE);
            let become_them = |uid: u32| {
                if uid != 0 {
                    become_user(uid, TEAM);
                }
                // SAFETY: a number of this process.
                unsafe { libc::umask(mask) };
            };
            fork(|_| {
                become_them(ALICE);
                let devices = vec![second.path().to_owned()];
                let options =
                    CreateOptions { size: 256 << 20, devices, ..CreateOptions::default() };
                let pool = Pool::create(&path, &options).unwrap();
                drop(pool.create_namespace("team", 0o775, Some(TEAM), None).unwrap());
                drop(pool);
                work(&path, 1);
            })
            .finish();
            for (tag, uid) in [(2, CAROL), (3, 0)] {
                fork(|_| {
                    become_them(uid);
                    work(&path, tag);
                })
                .finish();
            }
            // Root's own private realm is root's; all else that root has made is the owner's.
            let mut seen = 0;
            for top in [path.as_path(), second.path()] {
                for file in all_below(top).into_iter().filter(|file| file != second.path()) {
                    let meta = std::fs::symlink_metadata(&file).unwrap();
                    let below = file.strip_prefix(top).unwrap().to_str().unwrap();
                    let (mode, team) = expected(below, meta.is_dir());
                    let shown = format!("umask {mask:o}: {below}");
                    assert_eq!(meta.mode() & 0o7777, mode, "{shown}: {:o}", meta.mode());
                    assert!(!team || meta.gid() == TEAM, "{shown}: group {}", meta.gid());
                    let roots = below.contains("/private/0") || below.contains("/births/");
                    assert!(roots || meta.uid() != 0, "{shown}: root's");
                    seen += 1;
                }
            }
            assert!(seen > 60, "{seen} files");
        }
        println!("forbidden: 3 umasks by 3 users, no mode depends on them");
    });
}
