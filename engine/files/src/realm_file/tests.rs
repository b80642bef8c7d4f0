//! Whether a realm is still the one that was opened.

use std::fs;
use std::path::Path;

use super::{Identity, RealmFile, check_same, realm_file};
use crate::paths::{REALM_FILE, SHARED};
use crate::pool_file::{DESTROYING, FORMAT, POOL_FILE};
use crate::testing::{UUID, pool};
use crate::toml_file::write_toml;
use engram_base::error::Kind;
use engram_base::scope::Scope;

fn write(dir: &Path, id_prefix: u64, format: u32, incompatible: &[&str]) {
    let incompatible = incompatible.iter().map(|name| (*name).to_owned()).collect();
    let file = RealmFile { format, map_size: 1 << 20, id_prefix, root: 1, incompatible };
    write_toml(&dir.join(REALM_FILE), &file, 0o600).unwrap();
}

#[test]
fn a_realm_of_another_format_or_with_unknown_features_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 7, FORMAT, &[]);
    let read = realm_file(dir.path(), FORMAT).unwrap();
    assert_eq!((read.id_prefix, read.root, read.map_size), (7, 1, 1 << 20));
    for (format, features) in [(FORMAT + 1, &[][..]), (FORMAT - 1, &[]), (FORMAT, &["new"])] {
        write(dir.path(), 7, format, features);
        assert_eq!(realm_file(dir.path(), FORMAT).err().unwrap().kind(), Kind::Format, "{format}");
    }
}

#[test]
fn a_realm_is_the_one_that_was_opened_while_its_birth_and_its_pool_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    fs::create_dir(&path).unwrap();
    let realm = pool(&path).join(SHARED);
    fs::create_dir(&realm).unwrap();
    write(&realm, 7, FORMAT, &[]);
    let other = "0".repeat(32);
    let same = |id_prefix, uuid, scope| {
        let of = Identity { dir: &realm, pool: &path, uuid, id_prefix, scope };
        check_same(&of).map_err(|error| error.kind())
    };
    let shared = Scope::Shared;
    assert_eq!(same(7, UUID, shared), Ok(()));
    assert_eq!(same(8, UUID, shared), Err(Kind::Busy), "a realm made anew");
    assert_eq!(same(7, &other, shared), Err(Kind::Busy), "a pool made anew");

    // The process that destroys the pool renames its description first; it is still the same one.
    fs::rename(path.join(POOL_FILE), path.join(DESTROYING)).unwrap();
    assert_eq!(same(7, UUID, shared), Ok(()));
    fs::rename(path.join(DESTROYING), path.join(POOL_FILE)).unwrap();

    fs::write(realm.join(REALM_FILE), "birth = ").unwrap();
    assert_eq!(same(7, UUID, shared), Err(Kind::Format), "damage is told as damage");
    fs::remove_file(realm.join(REALM_FILE)).unwrap();
    assert_eq!(same(7, UUID, shared), Err(Kind::Busy));
    assert_eq!(same(7, UUID, Scope::Published), Ok(()), "one that is not published yet");
    fs::remove_file(path.join(POOL_FILE)).unwrap();
    assert_eq!(same(7, UUID, Scope::Published), Err(Kind::Busy));
}
