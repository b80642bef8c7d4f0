//! Upgrade: kept pools of earlier formats, made anew in this one, whoever dies and whatever is in
//! the way.
//!
//! What an upgraded pool says is compared with what it said before in `tests/test_upgrade.py`.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    ALICE, BOB, Peer, Random, alone, attach, become_user, filled, folder_of, fork, is_root, map_of,
    put, report_of, seed, small_tmpfs, sound,
};
use crate::halfway::killed_at;
use crate::syscalls::pretend_disk;
use engram::{FORMAT, Kind, Mode, Pool, faults};

const POOLS: [&str; 6] = ["whole", "killed", "leaving", "arrived", "spread", "durable"];

/// Formats of which pools are kept.
const FORMATS: [u32; 2] = [5, 6];

/// The kept pools of a format, unpacked into a folder of their own.
fn kept(format: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    unpack(dir.path(), format);
    dir
}

fn unpack(into: &Path, format: u32) {
    let tests = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests"));
    let python = std::env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let status = Command::new(python)
        .args([
            tests.join("kept.py"),
            "unpack".into(),
            tests.join(format!("kept_format{format}.pack")),
        ])
        .arg(into)
        .status();
    assert!(status.unwrap().success());
}

/// What is in a folder beside its pools.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The bytes of every file of a pool, but for its locks, and what the dead have kept ready.
fn bytes_of(pool: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![pool.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            match entry.file_name().to_str().unwrap() {
                _ if path.is_dir() => folders.push(path),
                name if name == "lock.mdb" || name == "compacting" => {}
                name if name.starts_with("spare-") => {}
                // Its first MiBs: it says that it has gigabytes.
                _ => {
                    let mut bytes = Vec::new();
                    let file = std::fs::File::open(&path).unwrap();
                    std::io::Read::read_to_end(&mut std::io::Read::take(file, 1 << 22), &mut bytes)
                        .unwrap();
                    found.push((path, bytes));
                }
            }
        }
    }
    found.sort();
    found
}

/// Asserts that no file of a pool has changed since.
fn same_bytes(pool: &Path, before: &[(PathBuf, Vec<u8>)], when: &str) {
    let after = bytes_of(pool);
    let alone = after.iter().filter(|one| !before.contains(one));
    let changed: Vec<_> = alone.chain(before.iter().filter(|one| !after.contains(one))).collect();
    let changed: Vec<_> = changed.into_iter().map(|(path, _)| path).collect();
    assert!(changed.is_empty(), "{when}: {changed:?}");
}

#[test]
fn every_kept_pool_is_upgraded_and_nothing_is_left_beside_it() {
    let test = "every_kept_pool_is_upgraded_and_nothing_is_left_beside_it";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        // On a disk there is more to sync, and a mark of a close in good order.
        for disk in [false, true] {
            pretend_disk(disk);
            FORMATS.into_iter().for_each(every_pool_is_upgraded);
        }
    });
}

fn every_pool_is_upgraded(format: u32) {
    let dir = kept(format);
    let before = names_in(dir.path());
    for name in POOLS {
        let path = dir.path().join(name);
        let uuid = {
            let (kind, message) = refused(&path);
            assert!(kind == Kind::Format && message.contains("engram upgrade"), "{message}");
            std::fs::read_to_string(path.join("pool.toml")).unwrap()
        };
        std::fs::write(path.join("notes.txt"), name).unwrap();
        let report = engram::upgrade(&path, None, false).unwrap();
        assert_eq!((report.from, report.path.as_path()), (format, path.as_path()));
        assert!(report.skipped.is_empty() && !report.resumed, "{report:?}");
        assert_eq!(std::fs::read_to_string(path.join("notes.txt")).unwrap(), name);
        assert_eq!(names_in(dir.path()), before, "{name}");
        let after = sound(&path);
        assert_eq!((after.objects, after.used), (report.objects, report.bytes), "{name}");
        let (pool, _) = attach(&path, Mode::ReadWrite);
        assert!(uuid.contains(pool.uuid()), "references from other pools say it");
        assert_eq!(pool.devices().unwrap().len(), if name == "spread" { 2 } else { 1 });
        pool.close();
        let again = engram::upgrade(&path, None, false).unwrap();
        assert_eq!((again.from, again.realms), (FORMAT, 0), "there is nothing to do");
        Pool::destroy(&path).unwrap();
    }
    assert_eq!(names_in(&dir.path().join("disk")), Vec::<String>::new());
}

fn refused(path: &Path) -> (Kind, String) {
    let error = Pool::open(path, Mode::ReadWrite, true).err().expect("a refusal");
    (error.kind(), error.message().to_owned())
}

#[test]
fn a_copy_leaves_the_earlier_pool_to_the_byte() {
    if !is_root("a_copy_leaves_the_earlier_pool_to_the_byte") {
        return;
    }
    for format in FORMATS {
        let dir = kept(format);
        for name in POOLS {
            let (path, to) = (dir.path().join(name), dir.path().join("new"));
            let before = bytes_of(&path);
            let report = engram::upgrade(&path, Some(&to), false).unwrap();
            assert_eq!(report.path, to);
            same_bytes(&path, &before, name);
            assert_eq!(refused(&path).0, Kind::Format);
            assert_eq!(sound(&to).objects, report.objects);
            let exists = engram::upgrade(&path, Some(&to), false).unwrap_err();
            assert_eq!(exists.kind(), Kind::Exists, "{exists}");
            let refused = engram::upgrade(&to, Some(&dir.path().join("other")), false).unwrap_err();
            assert!(
                refused.kind() == Kind::Argument && refused.message().contains("engram backup")
            );
            Pool::destroy(&to).unwrap();
        }
    }
}

/// Upgrades in another process, which dies at a step; whether it came there.
fn dies_at(path: &Path, step: &'static str) -> bool {
    let mut child: Peer = fork(|_| {
        faults::on_step(move |name| {
            if name == step {
                // SAFETY: this process dies.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        });
        engram::upgrade(path, None, false).unwrap();
    });
    libc::WIFSIGNALED(child.wait())
}

#[test]
fn an_upgrade_that_dies_at_any_step_is_brought_to_its_end_by_the_next() {
    let test = "an_upgrade_that_dies_at_any_step_is_brought_to_its_end_by_the_next";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let steps = faults::ALL.iter().filter(|step| step.starts_with("upgrade."));
        let ours = ["index.segment-put", "index.sealed", "queue.taken"];
        let mut expected = None;
        let mut died = Vec::new();
        for &step in steps.chain(faults::ALL.iter().filter(|step| ours.contains(step))) {
            for name in ["spread", "arrived", "whole"] {
                if name == "whole" && !step.starts_with("index.") {
                    continue;
                }
                let folder = dir.path().join("kept");
                unpack(&folder, 5);
                let path = folder.join(name);
                let before = bytes_of(&path);
                if !dies_at(&path, step) {
                    std::fs::remove_dir_all(&folder).unwrap();
                    continue;
                }
                died.push((step, name));
                if FORMAT != format_of(&path) {
                    same_bytes(&path, &before, step);
                }
                let report = engram::upgrade(&path, None, false).unwrap();
                assert!(report.skipped.is_empty(), "{step}: {report:?}");
                let left = names_in(&folder).into_iter().filter(|one| one.contains("upgrading"));
                assert_eq!(left.count(), 0, "{name} at {step}");
                sound(&path);
                let (pool, realm) = attach(&path, Mode::ReadWrite);
                assert_eq!(pool.devices().unwrap().len(), if name == "spread" { 2 } else { 1 });
                if name == "spread" {
                    let there = map_of(&realm, "");
                    assert!(*expected.get_or_insert_with(|| there.clone()) == there);
                }
                pool.close();
                std::fs::remove_dir_all(&folder).unwrap();
            }
        }
        println!("died at {died:?}");
        let missed: Vec<_> = faults::ALL
            .iter()
            .filter(|step| step.starts_with("upgrade.") && **step != "upgrade.renamed")
            .filter(|step| !died.iter().any(|(at, _)| at == *step))
            .collect();
        assert!(missed.is_empty(), "nobody died at {missed:?}");
    });
}

/// As many system calls lie between two at which an upgrade is killed.
const STRIDE: u64 = 53;

#[test]
fn an_upgrade_that_dies_at_any_system_call_is_brought_to_its_end_by_the_next() {
    let test = "an_upgrade_that_dies_at_any_system_call_is_brought_to_its_end_by_the_next";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (folder, mut kills) = (dir.path().join("kept"), [0, 0]);
        let first = 1 + Random(seed()).below(STRIDE);
        for name in ["spread", "arrived"] {
            for nth in (first..).step_by(STRIDE as usize) {
                unpack(&folder, 5);
                let path = folder.join(name);
                let before = bytes_of(&path);
                let died = killed_at(nth, &folder, || {
                    engram::upgrade(&path, None, false).unwrap();
                });
                let is_new = format_of(&path) == FORMAT;
                if died {
                    kills[usize::from(is_new)] += 1;
                }
                if !is_new {
                    same_bytes(&path, &before, &format!("{name} at {nth}"));
                }
                engram::upgrade(&path, None, false).unwrap();
                let left = names_in(&folder).into_iter().filter(|one| one.contains("upgrading"));
                assert_eq!(left.count(), 0, "{name} at {nth}");
                sound(&path);
                let (pool, _) = attach(&path, Mode::Read);
                let devices = pool.devices().unwrap().len();
                assert_eq!(devices, if name == "spread" { 2 } else { 1 }, "{name} at {nth}");
                pool.close();
                std::fs::remove_dir_all(&folder).unwrap();
                if !died {
                    break;
                }
            }
        }
        println!("killed {} times before the exchange, {} times after it", kills[0], kills[1]);
        assert!(kills[0] > 5 && kills[1] > 1, "{kills:?}");
    });
}

fn format_of(pool: &Path) -> u32 {
    let text = std::fs::read_to_string(pool.join("pool.toml")).unwrap();
    let earlier = FORMATS.into_iter().find(|format| text.contains(&format!("format = {format}")));
    earlier.unwrap_or(FORMAT)
}

#[test]
fn what_is_in_the_way_is_told_and_nothing_is_lost() {
    if !is_root("what_is_in_the_way_is_told_and_nothing_is_lost") {
        return;
    }
    let dir = kept(6);
    let path = dir.path().join("killed");
    let beside = dir.path().join("killed.upgrading");
    // A pool of its own there, a copy of this one, a folder with somebody's files.
    for what in ["durable", "killed"] {
        let copied = Command::new("cp").arg("-a").arg(dir.path().join(what)).arg(&beside).status();
        assert!(copied.unwrap().success());
        let before = bytes_of(&beside);
        let refused = engram::upgrade(&path, None, false).unwrap_err();
        assert!(refused.kind() == Kind::Exists && refused.message().contains("in the way"));
        same_bytes(&beside, &before, what);
        std::fs::remove_dir_all(&beside).unwrap();
    }
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("mine"), "").unwrap();
    assert_eq!(engram::upgrade(&path, None, false).unwrap_err().kind(), Kind::Exists);
    std::fs::remove_dir_all(&beside).unwrap();
    engram::upgrade(&path, None, false).unwrap();
    sound(&path);
}

#[test]
fn damage_is_told_before_anything_is_made_and_salvage_reads_the_earlier_format() {
    if !is_root("damage_is_told_before_anything_is_made") {
        return;
    }
    let dir = kept(5);
    let [path, whole] = ["killed", "whole"].map(|name| dir.path().join(name));
    let [data, other] = [&path, &whole].map(|p| p.join("ns/default/shared/catalog/data.mdb"));
    let (span, value) = (private_spans(&path).join("0/span-0"), 8.0_f64.to_le_bytes());
    let sound_bytes = std::fs::read(path.join("pool.toml")).unwrap();
    // A record, a value, pages, what a name stands for.
    let cases: [(_, _, &[u8], _); 4] = [
        (&path, &data, b"small", 0),
        (&path, &span, &value, 0),
        (&path, &data, b"a\0\0", 0),
        (&whole, &other, b"renamedO", 7),
    ];
    for (path, file, find, at) in cases {
        let before = damage(file, find, at);
        let refused = engram::upgrade(path, None, false).unwrap_err();
        assert_eq!(refused.kind(), Kind::Corrupt, "{refused}");
        let message = refused.message();
        assert!(message.contains("left as it is") && message.contains("--salvage"), "{message}");
        let left = names_in(dir.path()).into_iter().filter(|one| one.contains("upgrading"));
        assert_eq!(left.count(), 0);
        let salvage = engram::Salvage::open(path, &mut || ()).unwrap();
        let (_, members) = salvage.namespaces().remove(0);
        assert!(members > 0, "{members} members, {:?}", salvage.losses());
        put_back(file, &before);
    }
    assert_eq!(std::fs::read(path.join("pool.toml")).unwrap(), sound_bytes);
    let salvage = engram::Salvage::open(&path, &mut || ()).unwrap();
    assert!(salvage.losses().is_empty(), "{:?}", salvage.losses());
    assert_eq!(salvage.namespaces(), [("default".to_owned(), 32)]);
    engram::upgrade(&path, None, false).unwrap();
}

/// What a pool has in its own folder for its default namespace's private realms.
fn private_spans(pool: &Path) -> PathBuf {
    let mut folders = std::fs::read_dir(pool).unwrap().flatten().map(|entry| entry.path());
    folders.find(|f| f.file_name().unwrap().len() == 32).unwrap().join("default/private")
}

/// Turns a bit of the byte `place` of these, wherever a file has them; what was there.
fn damage(file: &Path, find: &[u8], place: usize) -> Vec<(u64, u8)> {
    let opened = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut bytes = vec![0; 1 << 21];
    opened.read_at(&mut bytes, 0).unwrap();
    let found: Vec<_> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(find))
        .map(|at| ((at + place) as u64, bytes[at + place]))
        .collect();
    assert!(!found.is_empty());
    for (at, byte) in &found {
        opened.write_all_at(&[byte ^ 1], *at).unwrap();
    }
    found
}

fn put_back(file: &Path, before: &[(u64, u8)]) {
    let opened = std::fs::File::options().write(true).open(file).unwrap();
    for (at, byte) in before {
        opened.write_all_at(&[*byte], *at).unwrap();
    }
}

#[test]
fn without_room_the_bytes_are_told_and_a_copy_elsewhere_is_made() {
    let test = "without_room_the_bytes_are_told_and_a_copy_elsewhere_is_made";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = kept(6);
        let Some(small) = small_tmpfs(test, 12 << 20) else { return };
        let path = small.path().join("pool");
        let copied = Command::new("cp").arg("-a").arg(dir.path().join("whole")).arg(&path).status();
        assert!(copied.unwrap().success());
        let before = bytes_of(&path);
        let refused = engram::upgrade(&path, None, false).unwrap_err();
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        let message = refused.message();
        assert!(message.contains("are needed") && message.contains("--to"), "{message}");
        same_bytes(&path, &before, "no room");
        assert_eq!(names_in(small.path()), ["pool"]);
        let to = dir.path().join("elsewhere");
        engram::upgrade(&path, Some(&to), false).unwrap();
        sound(&to);
    });
}

#[test]
fn a_pool_that_is_a_mount_of_its_own_is_upgraded_elsewhere() {
    let test = "a_pool_that_is_a_mount_of_its_own_is_upgraded_elsewhere";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = kept(5);
        let Some(mount) = small_tmpfs(test, 64 << 20) else { return };
        let pool = dir.path().join("killed/.");
        let copied = Command::new("cp").arg("-a").arg(pool).arg(mount.path()).status();
        assert!(copied.unwrap().success());
        let refused = engram::upgrade(mount.path(), None, false).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unsupported, "{refused}");
        assert!(refused.message().contains("--to"), "{refused}");
        let to = dir.path().join("elsewhere");
        engram::upgrade(mount.path(), Some(&to), false).unwrap();
        sound(&to);
    });
}

#[test]
fn a_pool_that_others_have_open_is_not_upgraded() {
    if !is_root("a_pool_that_others_have_open_is_not_upgraded") {
        return;
    }
    let dir = kept(6);
    let path = dir.path().join("killed");
    // The lease of an earlier engine's process lies where this engine's would, and looks the same.
    let other = dir.path().join("other");
    let options = engram::CreateOptions { size: 1 << 20, ..engram::CreateOptions::default() };
    Pool::create(&other, &options).unwrap().close();
    let holder = fork(|line| {
        let (_pool, _realm) = attach(&other, Mode::Read);
        line.say(0);
        line.hear_if_any();
    });
    holder.line.expect(0);
    let leases = |pool: &Path| pool.join("ns/default/shared/leases");
    std::fs::remove_dir_all(leases(&path)).unwrap();
    std::fs::rename(leases(&other), leases(&path)).unwrap();
    for to in [None, Some(dir.path().join("new"))] {
        let refused = engram::upgrade(&path, to.as_deref(), false).unwrap_err();
        let pid = holder.pid.to_string();
        assert!(refused.kind() == Kind::Busy && refused.message().contains(&pid), "{refused}");
    }
    holder.kill();
    engram::upgrade(&path, None, false).unwrap();
    assert!(report_of(&path).problems.is_empty());
}

/// The kept pool `killed`, as a user's own.
fn users_own(dir: &Path, uid: u32) -> PathBuf {
    unpack(dir, 6);
    let path = dir.join("killed");
    for place in [path.join("ns/default/private"), private_spans(&path)] {
        std::fs::rename(place.join("0"), place.join(uid.to_string())).unwrap();
    }
    let owner = format!("{uid}:{uid}");
    assert!(Command::new("chown").args(["-R", &owner]).arg(dir).status().unwrap().success());
    path
}

/// Asserts that all in a folder is a user's.
fn is_all_of(folder: &Path, uid: u32) {
    use std::os::unix::fs::MetadataExt;
    let listed = Command::new("find").arg(folder).output().unwrap();
    for path in String::from_utf8(listed.stdout).unwrap().lines() {
        assert_eq!(std::fs::symlink_metadata(path).unwrap().uid(), uid, "{path}");
    }
}

#[test]
fn a_users_pool_stays_the_users_whoever_may_upgrade_it() {
    let test = "a_users_pool_stays_the_users_whoever_may_upgrade_it";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        for by in [0, ALICE] {
            let dir = folder_of(ALICE);
            let path = users_own(dir.path(), ALICE);
            let stranger = fork(|_| {
                become_user(BOB, BOB);
                for to in [None, Some(Path::new("/dev/shm/engram-bobs-copy"))] {
                    let refused = engram::upgrade(&path, to, false).unwrap_err();
                    assert_eq!(refused.kind(), Kind::Access, "{refused}");
                }
            });
            stranger.finish();
            let upgrader = fork(|_| {
                if by != 0 {
                    become_user(by, by);
                }
                let report = engram::upgrade(&path, None, false).unwrap();
                assert_eq!((report.realms, report.skipped), (2, Vec::new()));
            });
            upgrader.finish();
            is_all_of(&path, ALICE);
            let user = fork(|_| {
                become_user(ALICE, ALICE);
                let (_pool, realm) = attach(&path, Mode::ReadWrite);
                put(&realm, "new", &filled(1, 2, 5000));
            });
            user.finish();
            sound(&path);
        }
    });
}

#[test]
fn root_alone_replaces_a_pool_in_which_others_keep_something() {
    let test = "root_alone_replaces_a_pool_in_which_others_keep_something";
    if !is_root(test) {
        return;
    }
    alone(test, || {
        let dir = folder_of(ALICE);
        let path = users_own(dir.path(), ALICE);
        for place in [path.join("ns/default/private"), private_spans(&path)] {
            let bobs = place.join(BOB.to_string());
            std::fs::rename(place.join(ALICE.to_string()), &bobs).unwrap();
            let owner = format!("{BOB}:{BOB}");
            assert!(
                Command::new("chown").args(["-R", &owner]).arg(bobs).status().unwrap().success()
            );
        }
        let (before, to) = (bytes_of(&path), dir.path().join("new"));
        let alice = fork(|_| {
            become_user(ALICE, ALICE);
            let refused = engram::upgrade(&path, None, false).unwrap_err();
            let message = refused.message();
            assert!(refused.kind() == Kind::Access && message.contains("--to"), "{message}");
            let report = engram::upgrade(&path, Some(&to), false).unwrap();
            assert_eq!(report.skipped, [format!("default (private of user {BOB})")]);
        });
        alice.finish();
        same_bytes(&path, &before, "refused");
        let report = engram::upgrade(&path, None, false).unwrap();
        assert_eq!((report.realms, report.skipped), (2, Vec::new()));
        is_all_of(&path.join("ns/default/private").join(BOB.to_string()), BOB);
        is_all_of(&path.join("ns/default/shared"), ALICE);
        sound(&path);
    });
}
