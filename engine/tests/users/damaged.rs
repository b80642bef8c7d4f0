//! One user's damaged realm keeps nobody else's from being copied and compacted: it is left out, by
//! name. The caller's own is an error, unless the caller asks for less.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::moves::value_of;
use crate::common::{
    ALICE, BOB, KEEP, OVER, TEAM, alone, become_user, filled, floats, folder_of, fork, is_root,
    put, report_of, sound,
};
use engram::catalog::{Catalog, Headroom, Options, Table};
use engram::{
    BackupOptions, BackupReport, CreateOptions, Kind, LeftOut, Mode, Namespace, Placement, Pool,
    Scope,
};

use Scope::{Private, Published, Shared};

const WORDS: usize = 20_000;

/// A pool of Alice's with a namespace `team` in which she has published and shared something, and
/// she and Bob have something private.
fn begin(path: &Path) {
    fork(|_| {
        become_user(ALICE, TEAM);
        let options = CreateOptions { size: 32 << 20, checksums: true, ..CreateOptions::default() };
        let pool = Pool::create(path, &options).unwrap();
        let realm = pool.create_namespace("team", 0o775, Some(TEAM), None).unwrap();
        put(&realm, "shown", &filled(1, 1, WORDS));
        put(&realm, "ours", &filled(2, 1, WORDS));
        drop(realm);
        let team = pool.namespace("team").unwrap();
        team.transfer(team.root(), "shown", &[Shared], Published).unwrap();
        drop((team, pool));
        keep(path, "alices", 3);
    })
    .finish();
    fork(|_| {
        become_user(BOB, TEAM);
        keep(path, "bobs", 4);
    })
    .finish();
}

/// Keeps something in private, in a group, in an extent and in a record.
fn keep(path: &Path, name: &str, number: u64) {
    let (_pool, team) = open(path, Mode::ReadWrite);
    let own = Placement { scope: Some(Private), ..KEEP };
    let value = filled(number, 1, WORDS);
    team.put(team.root(), name, &floats(&[WORDS as u64]), &value, own).unwrap();
    let small = filled(number, 2, 4);
    team.put(team.root(), &format!("{name}-in/small"), &floats(&[4]), &small, own).unwrap();
}

fn open(path: &Path, mode: Mode) -> (Pool, Namespace) {
    let pool = Pool::open(path, mode, true).unwrap();
    let team = pool.namespace("team").unwrap();
    (pool, team)
}

fn has(team: &Namespace, name: &str, number: u64) -> bool {
    let member = team.lookup(team.root(), name).unwrap();
    member.is_some_and(|member| value_of(team, member.id()) == filled(number, 1, WORDS))
}

/// The folder of a scope's realm, and of its spans.
struct Place {
    realm: PathBuf,
    spans: PathBuf,
}

impl Place {
    fn of(pool: &Path, within: &str) -> Place {
        let uuid = fs::read_dir(pool).unwrap().find_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            (name.len() == 32).then_some(name)
        });
        let spans = pool.join(uuid.unwrap()).join("team").join(within);
        Place { realm: pool.join("ns/team").join(within), spans }
    }

    fn data(&self) -> PathBuf {
        self.realm.join("catalog/data.mdb")
    }

    fn span(&self) -> PathBuf {
        fs::read_dir(&self.spans).unwrap().next().expect("a span").unwrap().path()
    }

    /// Spoils a row of a table that has one: its first, or one that is put there.
    fn spoil(&self, table: Table) {
        let catalog = Catalog::open(&self.realm.join("catalog"), &Options::default()).unwrap();
        let mut txn = catalog.write(Headroom::Relief).unwrap();
        let key = txn.seek(table, &[]).unwrap().next().unwrap().map(|(key, _)| key.to_vec());
        txn.put(table, &key.unwrap_or_else(|| vec![7; 8]), b"no record").unwrap();
        txn.commit().unwrap();
    }
}

fn scribble(file: &Path, from: u64, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options().write(true).open(file).unwrap();
    file.write_all_at(bytes, from).unwrap();
}

fn cut(file: &Path, len: u64) {
    fs::File::options().write(true).open(file).unwrap().set_len(len).unwrap();
}

/// Ways in which a realm is damaged, and whether compacting meets them.
type Damage = (&'static str, fn(&Place), bool);

const DAMAGES: [Damage; 14] = [
    ("realm.toml is no such file", |at| fs::write(at.realm.join("realm.toml"), "?").unwrap(), true),
    ("realm.toml is gone", |at| fs::remove_file(at.realm.join("realm.toml")).unwrap(), true),
    ("the catalog is gone", |at| fs::remove_file(at.data()).unwrap(), true),
    ("the catalog is empty", |at| cut(&at.data(), 0), true),
    ("the catalog is cut short", |at| cut(&at.data(), 3 * 4096), true),
    ("both meta pages are zeros", |at| scribble(&at.data(), 0, &[0; 8192]), true),
    ("pages are garbage", |at| scribble(&at.data(), 8192, &[0xab; 40960]), true),
    ("the catalog's folder is a link", link_catalog, true),
    ("the span is gone", |at| fs::remove_file(at.span()).unwrap(), false),
    ("the span is cut short", |at| cut(&at.span(), 4096), false),
    ("a value is not what it was", |at| scribble(&at.span(), 0, &[9; 400_000]), false),
    ("an object does not decode", |at| at.spoil(Table::Objects), true),
    ("a group does not decode", |at| at.spoil(Table::Groups), true),
    ("a chunk does not decode", |at| at.spoil(Table::Chunks), true),
];

fn link_catalog(at: &Place) {
    let (there, away) = (at.realm.join("catalog"), at.realm.join("elsewhere"));
    fs::rename(&there, &away).unwrap();
    symlink(&away, &there).unwrap();
}

/// Damages a realm in one way after the other, each time anew, and looks what comes of it.
fn each(test: &str, within: &'static str, look: impl Fn(&str, &Path, bool)) {
    if !is_root(test) {
        return;
    }
    alone(test, || {
        for (what, damage, compacting) in DAMAGES {
            // The spans of versions lie in one folder, and no version is opened for writing.
            let of_files = what.contains("catalog") || what.contains("realm.toml");
            if within.starts_with("published") && !(of_files || what.contains("pages")) {
                continue;
            }
            let dir = folder_of(ALICE);
            let path = dir.path().join("pool");
            begin(&path);
            let version =
                path.join("ns/team/published").read_dir().unwrap().next().unwrap().unwrap();
            damage(&Place::of(
                &path,
                &within.replace("VERSION", version.file_name().to_str().unwrap()),
            ));
            look(what, &path, compacting);
        }
    });
}

fn backup(path: &Path, dest: &Path) -> engram::Result<BackupReport> {
    let pool = Pool::open(path, Mode::Read, true)?;
    engram::backup(&pool, dest, true)
}

fn named(left: &[LeftOut]) -> Vec<(&str, Option<Scope>, Option<u32>)> {
    left.iter().map(|one| (one.namespace.as_str(), one.scope, one.user)).collect()
}

#[test]
fn roots_backup_leaves_a_damaged_private_realm_out_by_name() {
    let test = "roots_backup_leaves_a_damaged_private_realm_out_by_name";
    each(test, &format!("private/{BOB}").leak()[..], |what, path, _| {
        let copy = path.with_file_name("copy");
        let report = backup(path, &copy).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(named(&report.left_out), [("team", Some(Private), Some(BOB))], "{what}");
        assert!(!report.left_out[0].why.is_empty());
        // default, what is shared and published in team, what Alice has there in private.
        assert_eq!((report.realms, report.objects), (4, 4), "{what}: {report:?}");
        sound(&copy);
        assert!(!copy.join(format!("ns/team/private/{BOB}")).exists(), "{what}");
        fork(|_| {
            become_user(ALICE, TEAM);
            let (_pool, team) = open(&copy, Mode::ReadWrite);
            assert!(has(&team, "shown", 1) && has(&team, "ours", 2) && has(&team, "alices", 3));
        })
        .finish();
        fork(|_| {
            become_user(BOB, TEAM);
            keep(&copy, "again", 5);
        })
        .finish();
        sound(&copy);
    });
}

#[test]
fn roots_backup_leaves_a_damaged_shared_realm_out_by_name() {
    each("roots_backup_leaves_a_damaged_shared_realm_out_by_name", "shared", |what, path, _| {
        let copy = path.with_file_name("copy");
        let report = backup(path, &copy).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(named(&report.left_out), [("team", Some(Shared), Some(ALICE))], "{what}");
        sound(&copy);
        for (user, own, number) in [(ALICE, "alices", 3), (BOB, "bobs", 4)] {
            fork(|_| {
                become_user(user, TEAM);
                let (_pool, team) = open(&copy, Mode::ReadWrite);
                assert!(has(&team, "shown", 1) && has(&team, own, number), "{what}");
                assert_eq!(team.lookup(team.root(), "ours").unwrap(), None);
                // What is shared begins anew, with ids of its own.
                let shared = Placement { scope: Some(Shared), ..OVER };
                let new = floats(&[WORDS as u64]);
                team.put(team.root(), "anew", &new, &filled(9, 1, WORDS), shared).unwrap();
            })
            .finish();
        }
        sound(&copy);
    });
}

#[test]
fn roots_backup_leaves_what_is_damaged_of_the_published_out_by_name() {
    let test = "roots_backup_leaves_what_is_damaged_of_the_published_out_by_name";
    each(test, "published/VERSION", |what, path, _| {
        let copy = path.with_file_name("copy");
        let report = backup(path, &copy).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(named(&report.left_out), [("team", Some(Published), Some(ALICE))], "{what}");
        assert_eq!(report.realms, 4, "{what}: {report:?}");
        sound(&copy);
    });
}

#[test]
fn roots_compacting_leaves_a_damaged_private_realm_as_it_is() {
    let test = "roots_compacting_leaves_a_damaged_private_realm_as_it_is";
    each(test, &format!("private/{BOB}").leak()[..], |what, path, met| {
        let report = engram::compact(path).unwrap_or_else(|e| panic!("{what}: {e}"));
        let bobs = ("team", Some(Private), Some(BOB));
        assert_eq!(named(&report.left_out), if met { vec![bobs] } else { Vec::new() }, "{what}");
        assert_eq!(report.realms, if met { 3 } else { 4 }, "{what}");
        let after = report_of(path);
        let of_bob = format!("private of user {BOB}");
        assert!(!after.problems.is_empty(), "{what}: verify names it still");
        assert!(after.problems.iter().all(|one| one.contains(&of_bob)), "{after:?}");
    });
}

/// A namespace whose own description is damaged.
#[test]
fn roots_backup_leaves_a_damaged_namespace_out_by_name() {
    let test = "roots_backup_leaves_a_damaged_namespace_out_by_name";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        begin(&path);
        fs::write(path.join("ns/team/namespace.toml"), "mode = ?").unwrap();
        let report = backup(&path, &copy).unwrap();
        assert_eq!(named(&report.left_out), [("team", None, Some(ALICE))]);
        assert_eq!(report.realms, 1);
        sound(&copy);
        // The pool's other namespaces are listed, and so is this one.
        let pool = Pool::open(&path, Mode::Read, true).unwrap();
        let names = pool.namespaces().unwrap().into_iter().map(|info| (info.name, info.owner));
        let alices = ["default", "team"].map(|name| (name.to_owned(), ALICE));
        assert_eq!(names.collect::<Vec<_>>(), alices);
    });
}

/// What is the caller's own stays an error, unless the caller asks for less; and where nothing at
/// all could be copied, that is an error for root, too.
#[test]
fn a_damaged_realm_of_the_callers_own_is_an_error() {
    let test = "a_damaged_realm_of_the_callers_own_is_an_error";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let (path, copy) = (dir.path().join("pool"), dir.path().join("copy"));
        begin(&path);
        let (alices, bobs) = (format!("private/{ALICE}"), format!("private/{BOB}"));
        Place::of(&path, &alices).spoil(Table::Objects);
        Place::of(&path, &bobs).spoil(Table::Objects);
        fork(|_| {
            become_user(ALICE, TEAM);
            let pool = Pool::open(&path, Mode::Read, true).unwrap();
            let refused = engram::backup(&pool, &copy, true).unwrap_err();
            assert_eq!(refused.kind(), Kind::Corrupt);
            let told = refused.message();
            assert!(told.contains("--salvage") && told.contains("yours"), "{told}");
            assert!(!copy.exists(), "nothing is left behind");
            let options = BackupOptions { force: true, allow_partial: true };
            let report = engram::backup_with(&pool, &copy, options).unwrap();
            assert_eq!(named(&report.left_out), [("team", Some(Private), Some(ALICE))]);
            assert_eq!(report.skipped, [format!("team (private of user {BOB})")]);
            sound(&copy);
            drop(pool);
            assert_eq!(engram::compact(&path).unwrap_err().kind(), Kind::Corrupt);
            let report = engram::compact_with(&path, true).unwrap();
            assert_eq!(named(&report.left_out), [("team", Some(Private), Some(ALICE))]);
        })
        .finish();
        Pool::destroy(&copy).unwrap();
        for within in ["team/shared", "default/shared"] {
            Place { realm: path.join("ns").join(within), spans: PathBuf::new() }
                .spoil(Table::Objects);
        }
        fs::remove_dir_all(path.join("ns/team/published")).unwrap();
        let refused = backup(&path, &copy).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt, "{refused}");
        assert!(refused.message().contains("nothing could be copied"), "{refused}");
        assert!(!copy.exists());
        let refused = engram::compact(&path).unwrap_err();
        assert!(refused.message().contains("nothing could be compacted"), "{refused}");
    });
}
