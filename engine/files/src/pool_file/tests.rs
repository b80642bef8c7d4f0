//! What a folder is said to be while a pool comes there, is there, and goes.

use std::fs;
use std::path::Path;
use std::slice;
use std::thread;

use super::{
    CREATING, DESTROYING, FORMAT, POOL_FILE, PoolFile, is_unbegun, missing, real_path,
    remove_unfinished, what_is_there,
};
use crate::paths;
use crate::testing::{UUID, pool, pool_file};
use engram_base::error::{Error, Kind};
use engram_media::filesystem::{FsKind, Mount};

/// The kind of a folder's refusal to be read as a pool, and whether it says this.
fn refused_with(path: &Path, kind: Kind, part: &str) {
    let error = PoolFile::read(path).unwrap_err();
    assert!(error.kind() == kind && error.message().contains(part), "{kind:?} {part:?}: {error}");
}

#[test]
fn a_pool_comes_and_goes_by_the_names_of_its_description() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    refused_with(&path, Kind::NotFound, "there is no pool");
    assert_eq!(real_path(&path).unwrap_err().kind(), Kind::NotFound);
    fs::create_dir(&path).unwrap();
    refused_with(&path, Kind::Format, "empty folder");

    pool_file(&path).begin(&path).unwrap();
    refused_with(&path, Kind::Format, "half-created");
    assert!(path.join(CREATING).is_file() && paths::folder(&path).is_dir());
    assert_eq!(PoolFile::is_of(&path, UUID), Ok(true));

    assert_eq!(PoolFile::read_in_making(&path).unwrap().uuid, UUID);
    PoolFile::finish(&path).unwrap();
    assert_eq!(PoolFile::read_in_making(&path).unwrap().uuid, UUID);
    let read = PoolFile::read(&path).unwrap();
    assert_eq!((read.uuid.as_str(), read.size, read.format), (UUID, 1 << 20, FORMAT));
    assert_eq!(read.devices, slice::from_ref(&path));
    assert!(!path.join(CREATING).exists());
    assert_eq!(PoolFile::is_of(&path, UUID), Ok(true));
    assert_eq!(PoolFile::is_of(&path, &"0".repeat(32)), Ok(false));

    fs::rename(path.join(POOL_FILE), path.join(DESTROYING)).unwrap();
    refused_with(&path, Kind::Format, "half-destroyed");
    assert_eq!(PoolFile::is_of(&path, UUID), Ok(true));
    assert_eq!(PoolFile::load(&path, DESTROYING).unwrap().uuid, UUID);
    fs::remove_file(path.join(DESTROYING)).unwrap();
    assert_eq!(PoolFile::is_of(&path, UUID), Ok(false));
}

#[test]
fn a_pool_that_is_finished_while_it_is_looked_at_is_half_created_or_there() {
    for _ in 0..200 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool");
        fs::create_dir(&path).unwrap();
        pool_file(&path).begin(&path).unwrap();
        // What tells a pool whose description is gone from any other folder.
        fs::create_dir_all(paths::place(&path, paths::DEFAULT)).unwrap();
        thread::scope(|scope| {
            let looking = scope.spawn(|| {
                while let Err(error) = PoolFile::read(&path) {
                    assert_eq!(error.kind(), Kind::Format, "{error}");
                }
            });
            PoolFile::finish(&path).unwrap();
            looking.join().unwrap();
        });
    }
}

#[test]
fn a_folder_with_nothing_but_what_somebody_died_writing_is_as_good_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["pool.toml.new", "creating.toml.new", "destroying.toml.new"] {
        fs::write(dir.path().join(name), "uu").unwrap();
        assert!(is_unbegun(dir.path()), "{name}");
        refused_with(dir.path(), Kind::Format, "empty folder");
    }
    fs::write(dir.path().join("data"), "").unwrap();
    assert!(!is_unbegun(dir.path()));
    refused_with(dir.path(), Kind::Format, "not a pool");
    remove_unfinished(dir.path());
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["data"], "nothing of anybody else's goes");
    assert!(!is_unbegun(&dir.path().join("none")));
    let file = dir.path().join("data");
    refused_with(&file, Kind::Format, "is a file");
}

#[test]
fn a_description_moves_with_its_pool_and_one_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("pool"), dir.path().join("moved"));
    fs::create_dir(&path).unwrap();
    pool(&path);
    fs::rename(&path, &moved).unwrap();
    assert_eq!(PoolFile::read(&moved).unwrap().devices, slice::from_ref(&moved));

    let written = fs::read_to_string(moved.join(POOL_FILE)).unwrap();
    let (_checksum, sound) = written.split_once('\n').unwrap();
    let format = format!("format = {FORMAT}");
    for (from, to, part) in [
        (UUID, "../../../../../../../../etc/pass", "uuid"),
        (UUID, "0123", "uuid"),
        ("\"process\"", "\"never\"", "durability"),
        ("[\".\"]", "[]", "lists no device"),
        ("incompatible = []", "incompatible = [\"x\"]", "[\"x\"]"),
        (&format, "format = 1", "use the engram that made it"),
        (&format, "format = 5", "engram upgrade"),
        (&format, "format = 99", "newer engram"),
        (&format, "format = -1", "damaged"),
    ] {
        let text = sound.replace(from, to);
        assert_ne!(text, sound, "{from}");
        fs::write(moved.join(POOL_FILE), text).unwrap();
        refused_with(&moved, Kind::Format, part);
        let readable = PoolFile::read_to_destroy(&moved).is_ok();
        let old = matches!(to, "format = 1" | "format = 5");
        assert_eq!(readable, old, "an old pool can be taken away: {to}");
    }
}

#[test]
fn what_is_gone_of_a_pool_that_is_there_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool");
    fs::create_dir(&path).unwrap();
    let namespace = pool(&path);
    let not_found = || Error::new(Kind::NotFound, "data.mdb");
    let damage = missing(&path, &namespace, not_found());
    assert_eq!(damage.kind(), Kind::Corrupt);
    assert!(damage.message().contains("--salvage"), "{damage}");
    let busy = Error::new(Kind::Busy, "data.mdb");
    assert_eq!(missing(&path, &namespace, busy.clone()), busy);
    let elsewhere = path.join("ns/other");
    assert_eq!(missing(&path, &elsewhere, not_found()), not_found(), "a name that was wrong");

    fs::remove_file(path.join(POOL_FILE)).unwrap();
    assert_eq!(missing(&path, &namespace, not_found()), not_found());
    refused_with(&path, Kind::Corrupt, "pool.toml is gone");
    assert_eq!(what_is_there(&path).kind(), Kind::Corrupt);
}

#[test]
fn a_copy_has_a_uuid_of_its_own_and_promises_what_its_device_keeps() {
    let here = Path::new("/pool");
    let mount = |durable| Mount { kind: FsKind::Ext4, name: "ext4".to_owned(), durable };
    for (promised, durable, kept) in
        [("system", true, "system"), ("system", false, "process"), ("process", true, "process")]
    {
        let mut of = pool_file(here);
        (of.durability, of.emulated) = (promised.to_owned(), true);
        of.devices.push("/other".into());
        let copy = of.like(Path::new("/copy"), &mount(durable)).unwrap();
        assert_eq!(copy.durability, kept, "{promised}, {durable}");
        assert_eq!(copy.devices, [Path::new("/copy")]);
        assert!(copy.uuid != of.uuid && copy.uuid.len() == 32 && !copy.emulated);
    }
}
