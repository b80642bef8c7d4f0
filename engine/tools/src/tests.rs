//! What takes a whole pool to test: a few members, and rows that are wrong.

use crate::rewrite::{backup, compact};
use crate::salvage::{Loss, Salvage, Witness};
use crate::verify::{Report, verify};
use engram_base::error::Kind;
use engram_base::id::{ID_BLOCK, id_key};
use engram_base::scope::Scope;
use engram_catalog::{Headroom, Table};
use engram_columns::segment::Bitmap;
use engram_ops::rows_mut::RowsMut;
use engram_pool::namespace::Namespace;
use engram_pool::{CreateOptions, Pool};
use engram_realm::{Changes, HasCore as _, Mode, Payload, Realm, USED};
use engram_records::object::{NewObject, Placement};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const LARGE: [u8; 5000] = [3; 5000];

fn put(namespace: &Namespace, path: &str, data: &[u8], scope: Scope) -> u64 {
    let new = NewObject::blob();
    let placement = Placement { scope: Some(scope), ..Placement::default() };
    namespace.put(namespace.root(), path, &new, data, placement).unwrap()
}

/// A pool with two shared objects, and a private one.
fn filled_pool() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let options =
        CreateOptions { size: 16 << 20, force: true, checksums: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).unwrap();
    let all = pool.namespace("default").unwrap();
    put(&all, "g/large", &LARGE, Scope::Shared);
    put(&all, "g/small", b"small", Scope::Shared);
    put(&all, "own", &LARGE, Scope::Private);
    pool.close();
    (dir, path)
}

/// Runs a change of rows on the shared realm that no operation would make.
fn plant(path: &Path, change: impl Fn(&mut Changes<'_>, &Realm) -> engram_base::error::Result<()>) {
    let pool = Pool::open(path, Mode::ReadWrite, true).unwrap();
    let realm = pool.realm("default").unwrap();
    let inside = realm.core().enter().unwrap();
    realm.core().commit(&inside, Headroom::Normal, |rows| change(rows, &realm)).unwrap();
    drop(inside);
    pool.close();
}

/// The problems of a pool in which this was changed.
fn problems(
    change: impl Fn(&mut Changes<'_>, &Realm) -> engram_base::error::Result<()>,
) -> Vec<String> {
    let (_dir, path) = filled_pool();
    plant(&path, change);
    verify(&path).unwrap().problems
}

#[test]
fn a_sound_pool_is_counted_and_has_no_problem() {
    let (_dir, path) = filled_pool();
    let report = verify(&path).unwrap();
    let Report { problems, skipped, namespaces, groups, objects, .. } = &report;
    assert_eq!((problems.len(), skipped.len()), (0, 0), "{report:?}");
    assert_eq!((*namespaces, *objects), (1, 3));
    assert!(*groups >= 2, "the roots, and `g`: {report:?}");
    assert_eq!((report.checked, report.checked_bytes, report.unchecked), (2, 10_000, 0));
    assert_eq!(report.used + report.free + report.pending, report.arena, "{report:?}");
}

#[test]
fn each_wrong_row_is_a_problem_that_says_what_is_wrong() {
    assert!(problems(|_, _| Ok(())).is_empty());
    let large = |realm: &Realm| match realm.lookup(realm.root(), "g/large") {
        Ok(Some(member)) => id_key(member.id()),
        other => panic!("{other:?}"),
    };
    let says = |told: Vec<String>, wanted: &[&str]| {
        for part in wanted {
            assert!(told.iter().any(|what| what.contains(part)), "no {part:?} in {told:?}");
        }
    };
    let account = problems(|rows, _| rows.put(Table::Meta, USED, &1_u64.to_le_bytes()));
    says(account, &["the account says 1"]);
    let gone = problems(|rows, realm| rows.remove(Table::Objects, &large(realm)));
    says(gone, &["\"large\" stands for a missing", "is not the arena's"]);
    let damaged = problems(|rows, realm| rows.put(Table::Objects, &large(realm), b"none"));
    says(damaged, &["a record has 4 bytes", "\"large\" stands for a missing"]);
    let empty = 64_u64.to_be_bytes();
    let free = problems(|rows, _| rows.put(Table::ExtentsByOffset, &empty, &[0; 8]));
    says(free, &["an extent at 64 of 0 bytes cannot be"]);
    let stray = problems(|rows, _| rows.put(Table::IndexTail, &id_key(77), &[]));
    says(stray, &["the index has object 0x4d, which is not there"]);
    let block = |realm: &Realm| {
        let oid = u64::from_be_bytes(large(realm));
        id_key(oid - oid % ID_BLOCK)
    };
    let twice = problems(|rows, realm| {
        let from = u64::from_be_bytes(large(realm)).to_le_bytes();
        rows.put(Table::IndexTailRanges, &block(realm), &from)?;
        rows.put(Table::IndexTail, &large(realm), &[])
    });
    says(twice, &["is in the tail twice", "is sealed 1 times; in the tail: true"]);
    let dead = Bitmap::full(2).to_bytes();
    let nowhere = problems(|rows, _| rows.put(Table::IndexDead, &1_u32.to_be_bytes(), &dead));
    says(nowhere, &["is sealed 0 times; in the tail: false"]);
    let beyond = problems(|rows, realm| rows.put(Table::IndexTailRanges, &block(realm), &[0; 8]));
    says(beyond, &["a row of `index_tail_ranges` has 0x0 in the block of"]);
}

#[test]
fn a_backup_has_the_same_members_and_none_of_the_space_between_them() {
    let (dir, path) = filled_pool();
    let pool = Pool::open(&path, Mode::ReadWrite, true).unwrap();
    let all = pool.namespace("default").unwrap();
    put(&all, "gone", &vec![1; 1 << 20], Scope::Shared);
    all.delete(all.root(), "gone").unwrap();
    let copy = dir.path().join("copy");
    let report = backup(&pool, &copy, true).unwrap();
    assert_eq!((report.realms, report.objects, report.skipped.len()), (2, 3, 0), "{report:?}");
    assert_eq!(backup(&pool, &copy, true).unwrap_err().kind(), Kind::Exists);
    let (before, after) = (verify(&path).unwrap(), verify(&copy).unwrap());
    assert!(after.problems.is_empty(), "{after:?}");
    assert_eq!((after.objects, after.used), (before.objects, before.used));
    assert_eq!(after.pending, 0, "what waits in the pool has no place in the copy");
    let copied = Pool::open(&copy, Mode::Read, true).unwrap();
    assert_ne!(copied.uuid(), pool.uuid());
    let there = copied.namespace("default").unwrap();
    for (name, scope) in [("own", Scope::Private), ("g/large", Scope::Shared)] {
        let member = there.lookup(there.root(), name).unwrap().expect(name);
        assert_eq!(there.scope_of(member).unwrap(), scope);
        let Payload::Extent(view) = there.payload(member.id()).unwrap().0 else { panic!("{name}") };
        let mut bytes = [0; LARGE.len()];
        view.copy_out(0, &mut bytes);
        assert_eq!(bytes, LARGE, "{name}");
    }
}

#[test]
fn a_pool_that_is_open_is_not_compacted() {
    let (_dir, path) = filled_pool();
    let pool = Pool::open(&path, Mode::ReadWrite, true).unwrap();
    let all = pool.namespace("default").unwrap();
    assert_eq!(compact(&path).unwrap_err().kind(), Kind::Busy);
    assert_eq!(all.count(all.root()).unwrap(), 2);
    drop(all);
    pool.close();
    compact(&path).unwrap();
    let report = verify(&path).unwrap();
    assert_eq!((report.problems.len(), report.objects), (0, 3), "{report:?}");
}

#[derive(Default)]
struct Heard {
    paths: Vec<String>,
    lost: Vec<Loss>,
}

impl Witness for Heard {
    fn begin(&mut self, _: u64, path: &str) -> bool {
        self.paths.push(path.to_owned());
        true
    }

    fn lose(&mut self, loss: Loss) {
        self.lost.push(loss);
    }

    fn pulse(&mut self) {}
}

#[test]
fn a_pool_without_its_description_is_salvaged_whole_and_one_record_is_lost_alone() {
    let (dir, path) = filled_pool();
    plant(&path, |rows, realm| {
        let small = realm.lookup(realm.root(), "g/small")?.unwrap();
        rows.put(Table::Objects, &id_key(small.id()), b"none")
    });
    std::fs::write(path.join("pool.toml"), "damaged").unwrap();
    let salvage = Salvage::open(&path, &mut || ()).unwrap();
    assert_eq!(salvage.checksums(), None, "nothing tells whether it kept any");
    assert!(salvage.losses().iter().any(|loss| loss.what.contains("pool's own folder")));
    assert!(
        salvage.losses().iter().any(|loss| loss.what.contains("\"small\": its record is lost"))
    );
    assert_eq!(salvage.namespaces().len(), 1);

    let options = CreateOptions { size: 16 << 20, force: true, ..CreateOptions::default() };
    let new = Pool::create(&dir.path().join("new"), &options).unwrap();
    let realm = new.realm("default").unwrap();
    let mut heard = Heard::default();
    salvage.copy("default", &realm, 0, &mut heard).unwrap();
    assert!(heard.paths.iter().any(|path| path == "g/large"), "{:?}", heard.paths);
    assert!(realm.lookup(realm.root(), "own").unwrap().is_some());
    assert!(realm.lookup(realm.root(), "g/small").unwrap().is_none());
    assert!(heard.lost.is_empty(), "{:?}", heard.lost);
}
