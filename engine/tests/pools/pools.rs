//! What stands where a pool should: half of one, another version of one, a damaged one, a copy.

use std::path::{Path, PathBuf};

use crate::common::{
    Fixture, KEEP, OVER, alone, attach, blob, check, churn, filled, floats, fork, put, read, sound,
    view,
};
use engram::{CreateOptions, Kind, Mode, Pool};

/// A closed pool with one large and one small array.
fn closed() -> Fixture {
    let fixture = Fixture::new(16 << 20);
    put(&fixture.realm(), "large", &filled(1, 1, 50_000));
    put(&fixture.realm(), "small", &filled(2, 2, 10));
    fixture.pool.close();
    fixture
}

/// Opens and uses all of it; every error on the way is returned.
fn use_all(path: &Path, mode: Mode) -> engram::Result<()> {
    let pool = Pool::open(path, mode, false)?;
    let realm = pool.realm("default")?;
    for name in ["large", "small"] {
        let Some(member) = realm.lookup(realm.root(), name)? else { continue };
        realm.payload(member.id())?;
    }
    realm.list(realm.root(), None, 10)?;
    if mode == Mode::ReadWrite {
        realm.put(realm.root(), "new", &floats(&[5000]), &filled(3, 3, 5000), OVER)?;
    }
    Ok(())
}

/// What opening and using it says, in both modes alike.
fn refusal(path: &Path) -> (Kind, String) {
    let [read, write] = [Mode::Read, Mode::ReadWrite].map(|mode| {
        let error = use_all(path, mode).expect_err("a refusal");
        (error.kind(), error.message().to_owned())
    });
    assert_eq!(read.0, write.0, "{read:?} {write:?}");
    read
}

/// Replaces `from` in a file.
/// Edits a description on purpose: without the line of its checksum.
fn edit(path: PathBuf, from: &str, to: &str) {
    let text = std::fs::read_to_string(&path).unwrap();
    let (_checksum, text) = text.split_once('\n').unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn what_is_no_pool_is_refused_by_what_it_is() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = |name: &str| dir.path().join(name);
    assert_eq!(refusal(&at("missing")).0, Kind::NotFound);
    std::fs::create_dir(at("folder")).unwrap();
    assert_eq!(refusal(&at("folder")).0, Kind::Format);
    std::fs::write(at("file"), b"\x89HDF\r\n").unwrap();
    let (kind, message) = refusal(&at("file"));
    assert!(kind == Kind::Format && message.contains("import"), "{message}");
    let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
    assert_eq!(Pool::create(&at("file"), &options).err().unwrap().kind(), Kind::Exists);
    std::fs::write(at("folder/other"), b"").unwrap();
    assert_eq!(Pool::create(&at("folder"), &options).err().unwrap().kind(), Kind::Exists);
    assert_eq!(Pool::create(&at("no/parent"), &options).err().unwrap().kind(), Kind::NotFound);
    for (path, kind) in [("missing", Kind::NotFound), ("folder", Kind::Format)] {
        assert_eq!(Pool::destroy(&at(path)).unwrap_err().kind(), kind);
    }
    assert!(at("folder/other").exists());
    for size in [0, u64::MAX, 1 << 60] {
        let options = CreateOptions { size, ..CreateOptions::default() };
        let error = Pool::create(&at("sized"), &options).err().unwrap();
        assert_eq!(error.kind(), Kind::Argument, "{error}");
        assert!(!at("sized").exists());
    }
}

#[test]
fn no_pool_is_made_in_the_folder_of_another() {
    let fixture = closed();
    let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
    let link = tempfile::tempdir_in("/dev/shm").unwrap();
    std::os::unix::fs::symlink(&fixture.path, link.path().join("link")).unwrap();
    std::fs::create_dir(fixture.path.join("empty")).unwrap();
    for marker in ["pool.toml", "creating.toml", "destroying.toml"] {
        let at = |name: &str| fixture.path.join(name);
        if marker != "pool.toml" {
            std::fs::rename(at("pool.toml"), at(marker)).unwrap();
        }
        for inner in [at("inner"), at("empty"), at("ns/inner"), link.path().join("link/inner")] {
            let error = Pool::create(&inner, &options).err().expect("a refusal");
            assert_eq!(error.kind(), Kind::Argument, "{error}");
            assert!(error.message().contains("in the folder of the pool"), "{error}");
            assert_eq!(inner.exists(), inner.ends_with("empty"));
        }
        if marker != "pool.toml" {
            std::fs::rename(at(marker), at("pool.toml")).unwrap();
        }
    }
    std::fs::remove_dir(fixture.path.join("empty")).unwrap();
    Pool::destroy(&fixture.path).unwrap();
    assert!(!fixture.path.exists());
}

#[test]
fn a_half_created_pool_is_refused_and_cleared_away() {
    for half in ["creating.toml", "destroying.toml"] {
        let fixture = closed();
        let path = &fixture.path;
        std::fs::rename(path.join("pool.toml"), path.join(half)).unwrap();
        let (kind, message) = refusal(path);
        assert!(kind == Kind::Format && message.contains("destroy"), "{message}");
        let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
        if half == "destroying.toml" {
            assert_eq!(Pool::create(path, &options).err().unwrap().kind(), Kind::Format);
        } else {
            // Made anew: nothing of what was there is there still.
            let pool = Pool::create(path, &options).unwrap();
            assert_eq!(pool.realm("default").unwrap().space().unwrap().used, 0);
            pool.close();
        }
        Pool::destroy(path).unwrap();
        assert!(!path.exists());
    }
    // Killed before the first word of it was written.
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::write(dir.path().join("creating.toml.new"), b"").unwrap();
    let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
    Pool::create(dir.path(), &options).unwrap().close();
    Pool::destroy(dir.path()).unwrap();
}

/// A pool that an older engine has left can be taken away; a newer one may have kept things
/// elsewhere.
#[test]
fn a_pool_of_an_earlier_format_can_be_removed() {
    let fixture = closed();
    edit(fixture.path.join("pool.toml"), "format = 7", "format = 4");
    edit(fixture.path.join("ns/default/shared/realm.toml"), "format = 7", "format = 4");
    let (kind, message) = refusal(&fixture.path);
    assert!(kind == Kind::Format && message.contains("engram destroy"), "{message}");
    Pool::destroy(&fixture.path).unwrap();
    assert!(!fixture.path.exists());
    let fixture = closed();
    edit(fixture.path.join("pool.toml"), "format = 7", "format = 8");
    assert_eq!(Pool::destroy(&fixture.path).unwrap_err().kind(), Kind::Format);
}

/// A description that somebody has planted leads `destroy` to no folder outside the pool.
#[test]
fn nothing_outside_a_pool_is_removed_with_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, victim) = (dir.path().join("pool"), dir.path().join("victim"));
    for marker in ["creating.toml", "destroying.toml", "pool.toml"] {
        for uuid in ["../victim".to_owned(), victim.display().to_string(), String::new()] {
            std::fs::create_dir_all(&path).unwrap();
            std::fs::create_dir_all(&victim).unwrap();
            let text = format!(
                "format = 7\nuuid = \"{uuid}\"\ndurability = \"process\"\nsize = 1048576\n\
                 devices = [\".\"]\n"
            );
            std::fs::write(path.join(marker), text).unwrap();
            assert_eq!(Pool::destroy(&path).unwrap_err().kind(), Kind::Format, "{marker}");
            assert!(victim.is_dir() && path.join(marker).exists(), "{marker} {uuid:?}");
            let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
            Pool::create(&path, &options).err().expect("a refusal");
            assert!(victim.is_dir(), "{marker} {uuid:?}");
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
}

#[test]
fn another_version_is_refused_by_name() {
    type Edit = (&'static str, &'static str, &'static str, Kind, &'static str);
    let realm = "ns/default/shared/realm.toml";
    let edits: [Edit; 10] = [
        ("pool.toml", "format = 7", "format = 8", Kind::Format, "upgrade"),
        ("pool.toml", "format = 7", "format = 0", Kind::Format, "format 0"),
        ("pool.toml", "format = 7", "format = \"x\"", Kind::Format, "damaged"),
        ("pool.toml", "incompatible = []", "incompatible = [\"warp\"]", Kind::Format, "warp"),
        ("pool.toml", "durability = \"process\"", "durability = \"\"", Kind::Format, "damaged"),
        ("pool.toml", "uuid = \"", "uuid = \"../", Kind::Format, "damaged"),
        ("pool.toml", "devices = [\".\"]", "devices = []", Kind::Format, "device"),
        (realm, "format = 7", "format = 8", Kind::Format, "upgrade"),
        (realm, "incompatible = []", "incompatible = [\"warp\"]", Kind::Format, "warp"),
        (realm, "birth = ", "birth = -", Kind::Format, "damaged"),
    ];
    for (file, from, to, kind, word) in edits {
        let fixture = closed();
        edit(fixture.path.join(file), from, to);
        let refused = refusal(&fixture.path);
        assert_eq!(refused.0, kind, "{to}: {}", refused.1);
        assert!(refused.1.contains(word), "{to}: {}", refused.1);
    }
    // A feature that older engines may read: they read.
    let fixture = closed();
    edit(fixture.path.join("pool.toml"), "read_only = []", "read_only = [\"trails\"]");
    use_all(&fixture.path, Mode::Read).unwrap();
    assert_eq!(use_all(&fixture.path, Mode::ReadWrite).unwrap_err().kind(), Kind::ReadOnly);
}

/// Damages one file of a pool in one way; using it must be refused, never crash.
#[test]
fn damaged_files_are_refused_by_name() {
    alone("damaged_files_are_refused_by_name", || {
        let files = [
            "pool.toml",
            "ns/default/shared/realm.toml",
            "ns/default/shared/catalog/data.mdb",
            "ns/default/shared/catalog/lock.mdb",
            "ns/default/shared/catalog/growth",
            "span-0",
        ];
        // A missing part is damage: the pool is there, and says what it misses.
        for file in ["ns/default", "ns/default/shared/leases", "ns/default/shared/catalog"] {
            let fixture = closed();
            std::fs::remove_dir_all(fixture.path.join(file)).unwrap();
            let (kind, message) = refusal(&fixture.path);
            assert_eq!(kind, Kind::Corrupt, "{file}: {message}");
            assert!(message.contains("--salvage"), "{file}: {message}");
        }
        for (file, damage) in files
            .into_iter()
            .flat_map(|file| ["gone", "empty", "short", "noise"].map(|d| (file, d)))
        {
            let fixture = closed();
            let path = match file {
                "span-0" => fixture.path.join(fixture.pool.uuid()).join("default/shared/span-0"),
                _ => fixture.path.join(file),
            };
            let len = std::fs::metadata(&path).unwrap().len();
            match damage {
                "gone" => std::fs::remove_file(&path).unwrap(),
                "empty" => std::fs::write(&path, b"").unwrap(),
                "short" => {
                    let file = std::fs::File::options().write(true).open(&path).unwrap();
                    file.set_len(len / 2 + 1).unwrap();
                }
                // LMDB's lock file and the values in a span have no form that could be broken.
                _ if file.contains("span") || file.contains("lock") => continue,
                _ => {
                    use std::os::unix::fs::FileExt;
                    let noise = filled(13, 13, 2048);
                    let file = std::fs::File::options().write(true).open(&path).unwrap();
                    file.write_all_at(&noise[..noise.len().min(len as usize)], 0).unwrap();
                }
            }
            // In a process of its own: LMDB may die of noise, but for its first pages.
            fork(|_| {
                let (kind, message) = refusal(&fixture.path);
                let named = [Kind::Corrupt, Kind::Format];
                assert!(named.contains(&kind), "{file} {damage}: {kind:?} {message}");
                let name = file.rsplit('/').next().unwrap();
                let told = message.contains(name) && message.contains("--salvage");
                assert!(damage != "gone" || told, "{file} is gone: {kind:?} {message}");
            })
            .finish();
        }
    });
}

/// A pool is where it is: moved or copied with all its files it is a pool of its own.
#[test]
fn a_pool_that_was_moved_or_copied_uses_its_own_files() {
    alone("a_pool_that_was_moved_or_copied_uses_its_own_files", || {
        let fixture = closed();
        let copy = fixture.dir.path().join("copy");
        let moved = fixture.dir.path().join("moved");
        let status = std::process::Command::new("cp")
            .arg("-r")
            .args([&fixture.path, &copy])
            .status()
            .unwrap();
        assert!(status.success());
        {
            let (pool, realm) = attach(&copy, Mode::ReadWrite);
            assert_eq!(check(&view(&realm, "large")), (1, 1));
            put(&realm, "large", &filled(9, 9, 50_000));
            put(&realm, "more", &filled(9, 9, 700_000));
            churn(&realm, 1);
            pool.close();
        }
        std::fs::rename(&fixture.path, &moved).unwrap();
        let (pool, realm) = attach(&moved, Mode::ReadWrite);
        assert_eq!(check(&view(&realm, "large")), (1, 1));
        put(&realm, "more", &filled(1, 2, 700_000));
        assert_eq!(pool.devices().unwrap()[0].path, moved);
        drop(realm);
        pool.close();
        let (pool, realm) = attach(&copy, Mode::Read);
        assert_eq!(check(&view(&realm, "large")), (9, 9));
        drop(realm);
        pool.close();
        sound(&moved);
        Pool::destroy(&copy).unwrap();
        sound(&moved);
        let (_pool, realm) = attach(&moved, Mode::Read);
        assert_eq!(check(&view(&realm, "more")), (1, 2));
        assert_eq!(read(&realm, "small"), filled(2, 2, 10));
    });
}

/// Numbers that no arena can have are refused, in whatever they come.
/// While a process opens a pool, others may destroy it and make another at the same path.
#[test]
fn a_pool_made_in_the_place_of_another_is_no_part_of_that() {
    let fixture = Fixture::new(4 << 20);
    put(&fixture.realm(), "first", &filled(1, 1, 10));
    let aside = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::rename(&fixture.path, aside.path().join("old")).unwrap();
    let options = CreateOptions { size: 4 << 20, ..CreateOptions::default() };
    Pool::create(&fixture.path, &options).unwrap().close();
    // The old session opens nothing of the new pool: that would look like another engine's.
    let late = fixture.pool.realm("default").err().expect("a refusal");
    assert!(late.kind() == Kind::Busy && late.message().contains("removed"), "{late}");
    let (_pool, new) = attach(&fixture.path, Mode::ReadWrite);
    assert!(new.lookup(new.root(), "first").unwrap().is_none());
    put(&new, "second", &filled(2, 2, 10));
    assert!(new.lookup(new.root(), "second").unwrap().is_some());
}

#[test]
fn sizes_beyond_all_bounds_are_refused() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    for nbytes in [u64::MAX, u64::MAX - 4095, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 50] {
        let refused = realm.scratch(nbytes, None).err().expect("a refusal");
        assert_eq!(refused.kind(), Kind::PoolFull, "{nbytes}: {refused}");
        let refused = realm.allocate(root, "x", &blob(), nbytes, KEEP).err().expect("a refusal");
        assert_eq!(refused.kind(), Kind::PoolFull, "{nbytes}: {refused}");
        assert_eq!(realm.resize(nbytes).expect_err("a refusal").kind(), Kind::Argument);
    }
    for shape in [vec![u64::MAX], vec![1 << 32, 1 << 32], vec![1 << 60, 0, 1 << 60]] {
        let refused = realm.create_zeroed(root, "x", &floats(&shape), KEEP).expect_err("a refusal");
        assert_eq!(refused.kind(), Kind::Argument, "{shape:?}: {refused}");
    }
    assert_eq!(realm.resize(0).unwrap_err().kind(), Kind::Argument);
    put(&realm, "x", &filled(1, 1, 5));
    churn(&Fixture::new(4 << 20).realm(), 1);
    sound(&fixture.path);
}

/// Files of this process, open or mapped, whose paths begin so.
fn held_below(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter_map(|line| Some(line[line.find('/')?..].to_owned()));
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = links.filter_map(|link| Some(link.path().read_link().ok()?.to_str()?.to_owned()));
    mapped.chain(open).filter(|path| path.starts_with(folder)).collect()
}

/// A mount could not be unmounted else.
#[test]
fn a_closed_pool_holds_no_file_while_a_handle_lives_and_others_have_it_open() {
    let test = "a_closed_pool_holds_no_file_while_a_handle_lives_and_others_have_it_open";
    alone(test, || {
        let fixture = closed();
        let path = fixture.path.clone();
        let peer = fork(|line| {
            let (_pool, realm) = attach(&path, Mode::ReadWrite);
            put(&realm, "of the peer", &filled(3, 3, 5000));
            line.say(1);
            line.hear();
        });
        peer.line.expect(1);
        let (pool, realm) = attach(&path, Mode::ReadWrite);
        put(&realm, "large", &filled(4, 4, 50_000));
        // Whose space may be used again, is asked of the others' leases.
        realm.delete(realm.root(), "of the peer").unwrap();
        put(&realm, "another", &filled(5, 5, 50_000));
        assert!(held_below(&path).iter().any(|path| path.contains("/leases/")));
        pool.close();
        assert_eq!(held_below(&path), Vec::<String>::new());
        assert_eq!(realm.lookup(realm.root(), "large").unwrap_err().kind(), Kind::Argument);
        peer.line.say(2);
        peer.finish();
    });
}
