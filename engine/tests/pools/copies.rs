//! Copies of a pool that has further devices: no two pools use what is one pool's on a device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{KEEP, alone, attach, check, filled, floats, fork, put, sound, view};
use engram::{CreateOptions, Error, Kind, Mode, Placement, Pool};

const WORDS: usize = 100_000;
const SECOND: Placement = Placement { device: Some(1), ..KEEP };

/// A folder with a closed pool, `pool`, that has a value on a second device, `device`.
struct Place {
    dir: tempfile::TempDir,
    uuid: String,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(dir.path().join("device")).unwrap();
        let devices = vec![dir.path().join("device")];
        let options = CreateOptions { size: 64 << 20, devices, ..CreateOptions::default() };
        let pool = Pool::create(&dir.path().join("pool"), &options).unwrap();
        let realm = pool.realm("default").unwrap();
        let data = filled(1, 1, WORDS);
        realm.put(realm.root(), "T", &floats(&[WORDS as u64]), &data, SECOND).unwrap();
        let uuid = pool.uuid().to_owned();
        pool.close();
        Place { dir, uuid }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The value in the pool of this name, which is opened as another program would.
    fn value(&self, pool: &str) -> (u64, u64) {
        let (pool, realm) = attach(&self.at(pool), Mode::ReadWrite);
        let found = check(&view(&realm, "T"));
        pool.close();
        found
    }

    fn said(&self) -> PathBuf {
        self.at("device").join(&self.uuid).join(".pool.toml")
    }
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

fn refused<T>(done: engram::Result<T>, kind: Kind, words: &[&str]) -> Error {
    let error = done.err().expect("a refusal");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(words.iter().all(|word| error.message().contains(word)), "{error}");
    error
}

/// Every door of a copy is shut, and removing it takes nothing of the original's away.
#[test]
fn a_copy_does_not_use_the_originals_devices() {
    let place = Place::new();
    let (original, other) = (place.at("pool"), place.at("copy"));
    copy(&original, &other);
    let words = [original.to_str().unwrap(), "copy of the pool", "engram backup"];
    for mode in [Mode::Read, Mode::ReadWrite] {
        refused(Pool::open(&other, mode, true), Kind::Busy, &words);
    }
    refused(engram::verify(&other), Kind::Busy, &words);
    refused(engram::compact(&other), Kind::Busy, &words);
    refused(Pool::adopt(&other), Kind::Busy, &words);
    assert_eq!(place.value("pool"), (1, 1));
    Pool::destroy(&other).unwrap();
    assert!(!other.exists());
    assert_eq!(place.value("pool"), (1, 1));
    sound(&original);
    Pool::destroy(&original).unwrap();
    assert_eq!(fs::read_dir(place.at("device")).unwrap().count(), 0);
}

/// A pool stays itself when it is renamed, and when the filesystem has another number after a
/// restart; moved to another filesystem, or restored, it has to be said which one it is.
#[test]
fn a_pool_that_was_moved_is_itself_or_is_adopted() {
    alone("a_pool_that_was_moved_is_itself_or_is_adopted", || {
        let place = Place::new();
        fs::rename(place.at("pool"), place.at("renamed")).unwrap();
        assert_eq!(place.value("renamed"), (1, 1));
        let said = fs::read_to_string(place.said()).unwrap();
        assert!(said.contains(place.at("renamed").to_str().unwrap()), "{said}");
        // As after a restart: numbers of filesystems come anew, paths and inodes stay.
        let restart = |said: &str| {
            let (_checksum, said) = said.split_once('\n').unwrap();
            let line = |line: &str| match line.split_once(" = ") {
                Some((key @ ("device" | "boot"), _)) => format!("{key} = \"7\"\n"),
                _ => format!("{line}\n"),
            };
            said.lines().map(line).collect::<String>()
        };
        fs::write(place.said(), restart(&said)).unwrap();
        assert_eq!(place.value("renamed"), (1, 1));
        assert_eq!(fs::read_to_string(place.said()).unwrap(), said);

        copy(&place.at("renamed"), &place.at("restored"));
        fs::rename(place.at("renamed"), place.at("kept")).unwrap();
        let words = ["engram adopt", "not there any more"];
        refused(Pool::open(&place.at("restored"), Mode::Read, true), Kind::Format, &words);
        refused(Pool::destroy(&place.at("restored")), Kind::Format, &["adopt", "--force"]);
        Pool::adopt(&place.at("restored")).unwrap();
        assert_eq!(place.value("restored"), (1, 1));
        // The one of before is a copy from now on.
        refused(Pool::open(&place.at("kept"), Mode::Read, true), Kind::Busy, &["copy of"]);
        Pool::destroy(&place.at("kept")).unwrap();
        assert_eq!(place.value("restored"), (1, 1));
        // In the very place of the one of before.
        copy(&place.at("restored"), &place.at("again"));
        fs::remove_dir_all(place.at("restored")).unwrap();
        fs::rename(place.at("again"), place.at("restored")).unwrap();
        refused(Pool::open(&place.at("restored"), Mode::Read, true), Kind::Format, &words);
        Pool::adopt(&place.at("restored")).unwrap();
        assert_eq!(place.value("restored"), (1, 1));
    });
}

/// A user who copies the devices, too, and says so in the description, has another pool.
#[test]
fn a_copy_with_copies_of_its_devices_is_adopted() {
    let place = Place::new();
    copy(&place.at("pool"), &place.at("copy"));
    copy(&place.at("device"), &place.at("device-of-copy"));
    let description = place.at("copy/pool.toml");
    let text = fs::read_to_string(&description).unwrap();
    let text = text.replace(place.at("device").to_str().unwrap(), "DEVICE");
    let text = text.replace("DEVICE", place.at("device-of-copy").to_str().unwrap());
    fs::write(&description, &text).unwrap();
    let copy = Pool::open(&place.at("copy"), Mode::ReadWrite, true);
    refused(copy, Kind::Format, &["checksum", "remove that line"]);
    fs::write(&description, text.split_once('\n').unwrap().1).unwrap();
    refused(Pool::open(&place.at("copy"), Mode::ReadWrite, true), Kind::Format, &["adopt"]);
    Pool::adopt(&place.at("copy")).unwrap();
    {
        let (pool, realm) = attach(&place.at("copy"), Mode::ReadWrite);
        realm.delete(realm.root(), "T").unwrap();
        let new = floats(&[WORDS as u64]);
        realm.put(realm.root(), "T", &new, &filled(2, 2, WORDS), SECOND).unwrap();
        pool.close();
    }
    assert_eq!((place.value("pool"), place.value("copy")), ((1, 1), (2, 2)));
    Pool::destroy(&place.at("copy")).unwrap();
    assert_eq!(place.value("pool"), (1, 1));
}

/// A device that an earlier engine has left says nothing: the pool that is opened first for writing
/// has it.
#[test]
fn a_pool_whose_devices_say_nothing_is_whose_it_is_opened_first() {
    let place = Place::new();
    copy(&place.at("pool"), &place.at("copy"));
    fs::remove_file(place.said()).unwrap();
    Pool::open(&place.at("pool"), Mode::Read, true).unwrap().close();
    assert!(!place.said().exists());
    assert_eq!(place.value("pool"), (1, 1));
    refused(Pool::open(&place.at("copy"), Mode::Read, true), Kind::Busy, &["copy of"]);
    // Of one device alone there is nothing to share: but then neither gets the other's.
    let (one, two) = (place.at("one"), place.at("two"));
    let options = CreateOptions { size: 16 << 20, ..CreateOptions::default() };
    let one_pool = Pool::create(&one, &options).unwrap();
    copy(&one, &two);
    let two_pool = Pool::open(&two, Mode::ReadWrite, true).unwrap();
    one_pool.add_device(&place.at("device"), true).unwrap();
    let added = two_pool.add_device(&place.at("device"), true);
    refused(added, Kind::Exists, &[one.to_str().unwrap()]);
    put(&two_pool.realm("default").unwrap(), "x", &filled(3, 3, WORDS));
}

/// A devdax node tells it beside its label.
#[cfg(feature = "faults")]
#[test]
fn a_copy_does_not_use_the_originals_node() {
    alone("a_copy_does_not_use_the_originals_node", || {
        let dir = tempfile::tempdir().unwrap();
        let (node, one, two) =
            (dir.path().join("n.dax"), dir.path().join("one"), dir.path().join("two"));
        fs::File::create(&node).unwrap().set_len(24 << 20).unwrap();
        let devices = vec![node];
        let options = CreateOptions { size: 16 << 20, devices, force: true, ..Default::default() };
        let pool = Pool::create(&one, &options).unwrap();
        let realm = pool.realm("default").unwrap();
        let data = filled(1, 1, WORDS);
        realm.put(realm.root(), "T", &floats(&[WORDS as u64]), &data, SECOND).unwrap();
        pool.close();
        copy(&one, &two);
        refused(Pool::open(&two, Mode::ReadWrite, true), Kind::Busy, &["copy of", "n.dax"]);
        Pool::destroy(&two).unwrap();
        fork(|_| {
            let (_pool, realm) = attach(&one, Mode::ReadWrite);
            assert_eq!(check(&view(&realm, "T")), (1, 1));
        })
        .finish();
        fs::rename(&one, &two).unwrap();
        copy(&two, &one);
        refused(Pool::open(&one, Mode::Read, true), Kind::Format, &["adopt"]);
        Pool::adopt(&one).unwrap();
        refused(Pool::open(&two, Mode::Read, true), Kind::Busy, &["copy of"]);
        Pool::destroy(&two).unwrap();
        Pool::destroy(&one).unwrap();
    });
}

/// What is made in a pool's folder would stand among its own things.
#[test]
fn no_device_lies_in_a_pool() {
    let place = Place::new();
    let pool = Pool::open(&place.at("pool"), Mode::ReadWrite, true).unwrap();
    let other =
        Pool::create(&place.at("other"), &CreateOptions { size: 1 << 20, ..Default::default() })
            .unwrap();
    let own = place.at("pool");
    fs::create_dir(own.join("inner")).unwrap();
    std::os::unix::fs::symlink(own.join("ns"), place.at("link")).unwrap();
    let on_device = place.at("device").join(&place.uuid);
    let inner = [
        own.join("ns"),
        own.join("ns/default/shared"),
        own.join("inner"),
        own.join(&place.uuid),
        place.at("link"),
        on_device.clone(),
        on_device.join("default"),
    ];
    for device in inner.iter().chain([&own]) {
        refused(other.add_device(device, true), Kind::Argument, &["which is a pool's"]);
        let devices = vec![device.clone()];
        let options = CreateOptions { size: 1 << 20, devices, ..Default::default() };
        refused(Pool::create(&place.at("new"), &options), Kind::Argument, &["which is a pool's"]);
        assert!(!place.at("new").exists());
    }
    for device in inner {
        refused(pool.add_device(&device, true), Kind::Argument, &["which is a pool's"]);
    }
    fs::remove_dir(own.join("inner")).unwrap();
    // A folder that two pools have as their device is in neither.
    other.add_device(&place.at("device"), true).unwrap();
    assert_eq!(pool.namespaces().unwrap().len(), 1);
    other.close();
    pool.close();
    Pool::destroy(&place.at("other")).unwrap();
    assert_eq!(place.value("pool"), (1, 1));
}

/// A device that is not there, or where something is not mounted, is told by name, by all.
#[test]
fn a_missing_device_is_told_before_anything_goes() {
    for bare in [false, true] {
        let place = Place::new();
        let (pool, device) = (place.at("pool"), place.at("device"));
        fs::rename(&device, place.at("away")).unwrap();
        if bare {
            fs::create_dir(&device).unwrap();
        }
        let words = [device.to_str().unwrap(), "mount"];
        refused(Pool::open(&pool, Mode::ReadWrite, true), Kind::NotFound, &words);
        refused(Pool::destroy(&pool), Kind::NotFound, &[words[0], words[1], "--force"]);
        if bare {
            fs::remove_dir(&device).unwrap();
        }
        fs::rename(place.at("away"), &device).unwrap();
        assert_eq!(place.value("pool"), (1, 1), "nothing was removed");
        fs::rename(&device, place.at("away")).unwrap();
        Pool::destroy_with(&pool, true).unwrap();
        assert!(!pool.exists() && place.at("away").join(&place.uuid).is_dir());
    }
    // Half destroyed: what has gone already is not missed, a device is.
    let place = Place::new();
    let (pool, device) = (place.at("pool"), place.at("device"));
    fs::rename(pool.join("pool.toml"), pool.join("destroying.toml")).unwrap();
    fs::rename(&device, place.at("away")).unwrap();
    refused(Pool::destroy(&pool), Kind::NotFound, &["mount"]);
    fs::create_dir(&device).unwrap();
    Pool::destroy(&pool).unwrap();
    assert!(!pool.exists());
}
