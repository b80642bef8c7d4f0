//! Real persistent memory: `make test-pmem` runs these in a machine that has some.
//!
//! `ENGRAM_TEST_FSDAX` is a folder on ext4 with DAX, `ENGRAM_TEST_DEVDAX` a devdax node. Without
//! them a test says that it is skipped.
#![cfg(feature = "faults")]

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::common::{KEEP, OVER, Random, alone, attach, check, filled, floats, fork, sound, view};
use engram::media::Medium;
use engram::{CreateOptions, Durability, Mode, Placement, Pool, Realm};

const WORDS: usize = 1 << 20;

/// A folder on fsdax, if there is such.
fn fsdax(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("ENGRAM_TEST_FSDAX").map(PathBuf::from);
    if folder.is_none() {
        println!("{test} is skipped: ENGRAM_TEST_FSDAX names no folder on fsdax");
    }
    folder
}

fn devdax() -> Vec<PathBuf> {
    std::env::var_os("ENGRAM_TEST_DEVDAX").map(PathBuf::from).into_iter().collect()
}

fn on(device: u32) -> Placement {
    Placement { device: Some(device), ..OVER }
}

/// The flags of the mapping that an address lies in, as /proc/self/smaps has them.
fn flags_at(address: usize) -> String {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut within = false;
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or("");
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) =
                (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            within = (start..end).contains(&address);
        }
        if within && line.starts_with("VmFlags:") {
            return line.to_owned();
        }
    }
    panic!("{address:#x} is not mapped");
}

/// Whether the filesystem calls any block of a file unwritten (FIEMAP).
fn has_unwritten_blocks(path: &Path) -> bool {
    const FS_IOC_FIEMAP: u64 = 0xC020_660B;
    const UNWRITTEN: u32 = 0x800;
    const EXTENTS: usize = 512;
    // A head of 32 bytes, then extents of 56; flags are at byte 40 of each.
    let mut request = vec![0_u64; 4 + 7 * EXTENTS];
    request[1] = u64::MAX;
    request[3] = EXTENTS as u64;
    let file = std::fs::File::open(path).unwrap();
    // SAFETY: the buffer has the head and room for as many extents as it says.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, request.as_mut_ptr()) };
    assert_eq!(asked, 0, "FIEMAP: {}", std::io::Error::last_os_error());
    let mapped = (request[2] >> 32) as usize;
    assert!((1..EXTENTS).contains(&mapped), "{mapped} extents");
    (0..mapped).any(|n| request[4 + 7 * n + 5] as u32 & UNWRITTEN != 0)
}

#[test]
fn arenas_on_fsdax_are_mapped_with_map_sync_and_written_once_before_use() {
    let test = "arenas_on_fsdax_are_mapped_with_map_sync_and_written_once_before_use";
    alone(test, || {
        let Some(folder) = fsdax(test) else { return };
        let dir = tempfile::tempdir_in(folder).unwrap();
        let path = dir.path().join("pool");
        let options = CreateOptions { size: 64 << 20, ..CreateOptions::default() };
        let pool = Pool::create(&path, &options).unwrap();
        assert_eq!(pool.durability(), Durability::System);
        assert_eq!(pool.devices().unwrap()[0].medium, Medium::Dax);
        let realm = pool.realm("default").unwrap();
        crate::common::put(&realm, "a", &filled(1, 1, WORDS));
        let seen = view(&realm, "a");
        let flags = flags_at(seen.as_ptr() as usize);
        assert!(flags.contains(" sf"), "MAP_SYNC: {flags}");
        let spans = path.join(pool.uuid()).join("default/shared");
        for span in std::fs::read_dir(spans).unwrap() {
            assert!(!has_unwritten_blocks(&span.unwrap().path()));
        }
        // In place, and flushed.
        let oid = crate::common::lookup(&realm, "a").unwrap();
        realm.flush(oid).unwrap();
        assert_eq!(check(&seen), (1, 1));
        drop((seen, realm));
        pool.close();
        sound(&path);
    });
}

#[test]
fn one_pool_has_two_kinds_of_persistent_memory() {
    let test = "one_pool_has_two_kinds_of_persistent_memory";
    alone(test, || {
        let Some(folder) = fsdax(test) else { return };
        let devices = devdax();
        if devices.is_empty() {
            return println!("{test} is skipped: ENGRAM_TEST_DEVDAX names no node");
        }
        let dir = tempfile::tempdir_in(folder).unwrap();
        let path = dir.path().join("pool");
        let size = 96 << 20;
        let options = CreateOptions { size, devices, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&path, &options).unwrap();
        assert_eq!(pool.durability(), Durability::System);
        let media = pool.devices().unwrap();
        assert_eq!([media[0].medium, media[1].medium], [Medium::Dax; 2]);
        assert_eq!(media[1].filesystem, "devdax");
        let realm = pool.realm("default").unwrap();
        // Spans of both, alternating; and one array that lies on both.
        for device in [0, 1, 0, 1] {
            let new = floats(&[WORDS as u64 / 2]);
            let name = format!("on{device}");
            let data = filled(u64::from(device), 7, WORDS / 2);
            realm.put(realm.root(), &name, &new, &data, on(device)).unwrap();
        }
        let across = 7 * WORDS;
        let new = floats(&[across as u64]);
        realm.put(realm.root(), "across", &new, &filled(9, 9, across), KEEP).unwrap();
        let fork_path = path.clone();
        fork(move |_| {
            let (_pool, realm) = attach(&fork_path, Mode::Read);
            for (name, seen) in [("on0", (0, 7)), ("on1", (1, 7)), ("across", (9, 9))] {
                assert_eq!(check(&view(&realm, name)), seen, "{name}");
            }
        })
        .finish();
        realm.flush(crate::common::lookup(&realm, "across").unwrap()).unwrap();
        drop(realm);
        pool.close();
        sound(&path);
        Pool::destroy(&path).unwrap();
    });
}

/// What a writer's group has: a name, and whose array stands there.
type Model = BTreeMap<String, (u64, u64)>;

const WRITERS: u64 = 2;
const NAMES: u64 = 12;
/// Arrays in records, of a page or so, and larger than what passes the cache by.
const SIZES: [usize; 4] = [16, 700, 20_000, 530_000];

/// The words of version `version` of any array.
fn words(version: u64) -> usize {
    let mut random = Random(version);
    // Most are small, so that many commits fit into a second.
    SIZES[[0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3][random.below(16) as usize]]
}

/// One step of a writer. Each is one commit; `realm` is `None` when the model alone takes it.
fn step(writer: u64, number: u64, model: &mut Model, realm: Option<&Realm>) {
    let mut random = Random(writer << 32 | number);
    let tag = |name: &str| name.bytes().fold(writer, |sum, byte| sum * 31 + u64::from(byte));
    let put = |model: &mut Model, random: &mut Random| {
        let name = format!("w{writer}/x{}", random.below(NAMES));
        let (device, through_view) = (random.below(2) as u32, random.below(3) == 0);
        if let Some(realm) = realm {
            let data = filled(tag(&name), number, words(number));
            let new = floats(&[words(number) as u64]);
            let place = if devdax().is_empty() { OVER } else { on(device) };
            if through_view && data.len() > 4096 {
                let len = data.len() as u64;
                let space = realm.allocate(realm.root(), &name, &new, len, place).unwrap();
                // SAFETY: the allocation's own memory.
                unsafe { space.view().as_ptr().copy_from(data.as_ptr(), data.len()) };
                space.publish().unwrap();
            } else {
                realm.put(realm.root(), &name, &new, &data, place).unwrap();
            }
        }
        model.insert(name.clone(), (tag(&name), number));
    };
    match random.below(8) {
        0 => {
            let Some(name) = model.keys().next().cloned() else { return };
            if let Some(realm) = realm {
                realm.delete(realm.root(), &name).unwrap();
            }
            model.remove(&name);
        }
        1 => {
            if let Some(realm) = realm {
                realm.begin_batch().unwrap();
            }
            for _ in 0..3 {
                put(model, &mut random);
            }
            if let Some(realm) = realm {
                realm.commit_batch().unwrap();
            }
        }
        _ => put(model, &mut random),
    }
}

/// What a writer's group has on media.
fn found(realm: &Realm, writer: u64) -> Model {
    let mut model = Model::new();
    for x in 0..NAMES {
        let name = format!("w{writer}/x{x}");
        if crate::common::lookup(realm, &name).is_some() {
            let bytes = crate::common::read(realm, &name);
            let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
            let (tag, version) = (word(0), word(1));
            assert_eq!(bytes.len(), words(version) * 8, "{name}");
            assert!(bytes == filled(tag, version, words(version)), "{name} is torn");
            model.insert(name, (tag, version));
        }
    }
    model
}

/// How many steps of a writer the pool has: at least those that were acknowledged. Steps committed
/// and not told may be there too, in order and whole.
fn steps_there(realm: &Realm, writer: u64, acknowledged: u64) -> (u64, Model) {
    const UNTOLD: u64 = 100_000;
    let there = found(realm, writer);
    let mut model = Model::new();
    for number in 0..acknowledged {
        step(writer, number, &mut model, None);
    }
    for number in acknowledged..acknowledged + UNTOLD {
        if model == there {
            return (number, model);
        }
        step(writer, number, &mut model, None);
    }
    panic!("writer {writer}: {acknowledged} steps were acknowledged, the pool has {there:?}");
}

/// Says a line at once, and whole: the machine may have no next moment.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// The machine's power is cut while this runs, and it is run again: `ENGRAM_POWER_CUT` is `new`, or
/// how many steps of each writer were acknowledged, or `<these>/end`, when nothing more is written.
#[test]
fn everything_acknowledged_survives_a_power_cut() {
    let test = "everything_acknowledged_survives_a_power_cut";
    let Ok(said) = std::env::var("ENGRAM_POWER_CUT") else {
        return println!("{test} is skipped: ENGRAM_POWER_CUT is not set");
    };
    let Some(folder) = fsdax(test) else { return };
    let path = folder.join("cut");
    if said == "new" {
        let devices = devdax();
        let size = 192 << 20;
        let options = CreateOptions { size, devices, force: true, ..CreateOptions::default() };
        let pool = Pool::create(&path, &options).unwrap();
        assert_eq!(pool.durability(), Durability::System);
        pool.close();
    }
    let (counts, end) = said.split_once('/').map_or((said.as_str(), false), |(c, _)| (c, true));
    let acknowledged: Vec<u64> = match counts {
        "new" => vec![0; WRITERS as usize],
        counts => counts.split(',').map(|count| count.parse().unwrap()).collect(),
    };
    let (pool, realm) = attach(&path, Mode::ReadWrite);
    say("OPENED #");
    let there: Vec<(u64, Model)> = (0..WRITERS)
        .map(|writer| steps_there(&realm, writer, acknowledged[writer as usize]))
        .collect();
    drop(realm);
    pool.close();
    sound(&path);
    let counts: Vec<String> = there.iter().map(|(count, _)| count.to_string()).collect();
    say(&format!("CHECKED {} #", counts.join(" ")));
    if end {
        return;
    }
    let writers: Vec<_> = (0_u64..)
        .zip(there)
        .map(|(writer, (from, mut model))| {
            let path = path.clone();
            fork(move |_| {
                let (_pool, realm) = attach(&path, Mode::ReadWrite);
                for number in from.. {
                    step(writer, number, &mut model, Some(&realm));
                    say(&format!("ACK {writer} {} #", number + 1));
                }
            })
        })
        .collect();
    for mut writer in writers {
        writer.wait();
    }
}
