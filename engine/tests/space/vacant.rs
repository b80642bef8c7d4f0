//! Deleting gives space back to a full filesystem, and no store ever meets a page without a block:
//! pages whose blocks went back are vacant, and get blocks again before they are free.

use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::common::{
    Fixture, OVER, Random, alone, attach, die_at_step, fill_up, filled, floats, fork, lookup, put,
    put_new, read, seed, sound, span_files,
};
use engram::{Kind, Mode, Realm};

const MIB: usize = 1 << 20;

fn free(mount: &Path) -> u64 {
    engram::media::filesystem::free_bytes(mount).unwrap()
}

/// Waits until a mount has so many free bytes, and gives how many: a process looks at a full one a
/// hundred times a second at most, and its caretaker after the last of its commits.
fn given_back(mount: &Path, least: u64) -> u64 {
    for _ in 0..1000 {
        if free(mount) >= least {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let bytes = free(mount);
    assert!(bytes >= least, "{bytes} bytes are free");
    bytes
}

/// Puts small objects until one is refused; how many there are.
fn small_ones(realm: &Realm, prefix: &str) -> u64 {
    let mut put = 0;
    while put_new(realm, &format!("{prefix}{put}"), &filled(put, 1, 100)).is_ok() {
        put += 1;
    }
    put
}

#[test]
fn what_is_deleted_on_a_full_mount_goes_back_to_it() {
    let test = "what_is_deleted_on_a_full_mount_goes_back_to_it";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 64 << 20) else { return };
        let realm = fixture.realm();
        let root = realm.root();
        let large = filled(1, 1, 22 * MIB / 8);
        put(&realm, "large", &large);
        put(&realm, "other", &filled(2, 2, MIB));
        let filler = fill_up(&mount);
        let small = small_ones(&realm, "small");
        realm.delete(root, "large").unwrap();
        given_back(&mount, 21 << 20);
        let space = realm.space().unwrap();
        assert!(space.vacant >= 21 << 20 && space.largest_free < 21 << 20, "{space:?}");
        sound(&fixture.path);
        // Small ones have room again, and so has a large one, where it lay.
        for at in 0..500 {
            put(&realm, &format!("more/{at}"), &filled(at, 2, 100));
        }
        // Others open it as it is.
        fork(|_| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            assert_eq!(read(&realm, "other"), filled(2, 2, MIB));
            put(&realm, "theirs", &filled(3, 3, MIB / 8));
        })
        .finish();
        assert!(realm.space().unwrap().vacant > 0);
        put(&realm, "again", &filled(4, 4, 18 * MIB / 8));
        assert_eq!(read(&realm, "again"), filled(4, 4, 18 * MIB / 8));
        assert!(small > 0);
        sound(&fixture.path);
        // Where others have taken the room, it is refused by name.
        realm.delete(root, "again").unwrap();
        let second = mount.join("second");
        std::fs::create_dir(&second).unwrap();
        fill_up(&second);
        let refused = put_new(&realm, "again", &large).unwrap_err();
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        std::fs::remove_dir_all(&second).unwrap();
        std::fs::remove_file(filler).unwrap();
        put(&realm, "again", &large);
        assert_eq!(read(&realm, "again"), large);
        assert_eq!(sound(&fixture.path).objects, small + 500 + 3);
    });
}

/// Free pieces that are too small for an array make room for it on their filesystem.
#[test]
fn pieces_make_room_for_what_is_larger_than_each() {
    let test = "pieces_make_room_for_what_is_larger_than_each";
    alone(test, || {
        let Some((fixture, _)) = Fixture::on_small_mount(test, 64 << 20) else { return };
        let realm = fixture.realm();
        let mut pieces = 0;
        while put_new(&realm, &format!("p{pieces}"), &filled(pieces, 1, MIB / 2)).is_ok() {
            pieces += 1;
        }
        assert!(pieces >= 10, "{pieces}");
        for at in (0..pieces).step_by(2) {
            realm.delete(realm.root(), &format!("p{at}")).unwrap();
        }
        put(&realm, "large", &filled(9, 9, 14 * MIB / 8));
        assert_eq!(read(&realm, "large"), filled(9, 9, 14 * MIB / 8));
        for at in (1..pieces).step_by(2) {
            assert_eq!(read(&realm, &format!("p{at}")), filled(at, 1, MIB / 2));
        }
        sound(&fixture.path);
    });
}

#[test]
fn a_full_mount_can_be_compacted() {
    let test = "a_full_mount_can_be_compacted";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 48 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "before", &filled(1, 1, MIB / 8));
        put(&realm, "large", &filled(1, 1, 22 * MIB / 8));
        put(&realm, "behind", &filled(2, 2, MIB / 8));
        for at in 0..200 {
            put(&realm, &format!("s{at}"), &filled(at, 1, 100));
        }
        fill_up(&mount);
        realm.delete(realm.root(), "large").unwrap();
        // What came back is taken by others, but for a little.
        let second = mount.join("second");
        std::fs::create_dir(&second).unwrap();
        fill_up(&second);
        std::fs::remove_file(second.join("filler")).unwrap();
        drop(realm);
        fixture.pool.close();
        engram::compact(&fixture.path).unwrap();
        sound(&fixture.path);
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        assert_eq!(read(&realm, "behind"), filled(2, 2, MIB / 8));
        put(&realm, "again", &filled(5, 5, 15 * MIB / 8));
        assert_eq!(read(&realm, "again"), filled(5, 5, 15 * MIB / 8));
        assert_eq!(sound(&fixture.path).objects, 203);
    });
}

/// Several processes put, replace and delete on a mount that others fill and empty, and some are
/// killed: nothing is lost, nothing is stored where no block is (that would be a SIGBUS), and what
/// is told is sound.
#[test]
fn no_store_meets_a_hole_whoever_takes_the_room_of_a_full_mount() {
    let test = "no_store_meets_a_hole_whoever_takes_the_room_of_a_full_mount";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 48 << 20) else { return };
        let path = fixture.path.clone();
        drop(fixture.realm());
        fixture.pool.close();
        let mut random = Random(seed());
        let room = Room { mount: &mount, filler: mount.join("others") };
        for round in 0..6 {
            let killed = random.below(3);
            let workers: Vec<_> = (0..3)
                .map(|tag| {
                    let seed = random.next();
                    let path = &path;
                    // One is killed wherever it is; the others end.
                    let rounds = if tag == killed { u64::MAX } else { 300 };
                    fork(move |_| work(path, tag, Random(seed), rounds))
                })
                .collect();
            for _ in 0..30 {
                room.change(&mut random);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            for (tag, worker) in (0..).zip(workers) {
                if tag == killed {
                    worker.kill();
                } else {
                    worker.finish();
                }
            }
            room.leave();
            sound(&path);
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            for tag in 0..3 {
                check_all(&realm, tag, round);
            }
            pool.close();
        }
    });
}

/// What others have of a mount.
struct Room<'a> {
    mount: &'a Path,
    filler: std::path::PathBuf,
}

impl Room<'_> {
    fn change(&self, random: &mut Random) {
        if random.below(3) == 0 {
            return self.leave();
        }
        let take = free(self.mount).saturating_sub(random.below(4 << 20));
        let file = std::fs::File::options().append(true).create(true).open(&self.filler);
        let data = vec![0xff; take as usize];
        let _ = std::io::Write::write_all(&mut file.unwrap(), &data);
    }

    fn leave(&self) {
        let _ = std::fs::remove_file(&self.filler);
    }
}

const NAMES: u64 = 12;

/// Puts and deletes under names of its own. A value says what it is.
fn work(path: &Path, tag: u64, mut random: Random, rounds: u64) {
    let (_pool, realm) = attach(path, Mode::ReadWrite);
    let refused = |done: engram::Result<()>| {
        if let Err(error) = done {
            assert_eq!(error.kind(), Kind::PoolFull, "{error}");
        }
    };
    for _ in 0..rounds {
        let at = random.below(NAMES);
        let name = format!("t{tag}/{at}");
        match random.below(4) {
            0 => match realm.delete(realm.root(), &name) {
                Err(error) if error.kind() == Kind::NotFound => {}
                done => refused(done.map(drop)),
            },
            1 => refused(put_as(&realm, &name, 10, random.next())),
            _ => refused(put_as(&realm, &name, 3 + random.below(MIB as u64 / 4), random.next())),
        }
    }
}

fn put_as(realm: &Realm, name: &str, words: u64, tag: u64) -> engram::Result<()> {
    let data = filled(tag, 1, words as usize);
    let new = floats(&[words]);
    realm.put(realm.root(), name, &new, &data, OVER).map(drop)
}

/// Every value is whole: all that `filled` gives for its tag and length.
fn check_all(realm: &Realm, tag: u64, round: u32) {
    for at in 0..NAMES {
        let name = format!("t{tag}/{at}");
        if lookup(realm, &name).is_none() {
            continue;
        }
        let data = read(realm, &name);
        let tag = u64::from_le_bytes(*data.first_chunk().unwrap());
        assert!(data == filled(tag, 1, data.len() / 8), "{name} in round {round} is not whole");
    }
}

/// A process that dies while pages go back, or come again, leaves nothing to repair.
#[test]
#[cfg(feature = "faults")]
fn a_process_that_dies_vacating_or_occupying_leaves_a_sound_pool() {
    let test = "a_process_that_dies_vacating_or_occupying_leaves_a_sound_pool";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 48 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "large", &filled(1, 1, 20 * MIB / 8));
        put(&realm, "other", &filled(2, 2, MIB / 8));
        let filler = fill_up(&mount);
        let ours = |step: &&&str| step.starts_with("vacate.") || step.starts_with("occupy.");
        for &step in engram::faults::ALL.iter().filter(ours) {
            let mut dying = fork(|_| {
                die_at_step(step);
                realm.delete(realm.root(), "large").unwrap();
                put(&realm, "large", &filled(3, 3, 20 * MIB / 8));
            });
            assert!(libc::WIFSIGNALED(dying.wait()), "{step} is not reached");
            sound(&fixture.path);
            put(&realm, "large", &filled(4, 4, 20 * MIB / 8));
            assert_eq!(read(&realm, "large"), filled(4, 4, 20 * MIB / 8));
            assert_eq!(read(&realm, "other"), filled(2, 2, MIB / 8));
            // Nothing is taken twice: the mount is as full as before.
            assert!(free(&mount) < 4 << 20, "{step}: {} bytes are free", free(&mount));
        }
        std::fs::remove_file(filler).unwrap();
        sound(&fixture.path);
    });
}

/// A process that comes to a span with an old snapshot takes no block back that has gone since.
#[test]
fn a_reader_of_a_snapshot_takes_no_block_from_the_mount() {
    let test = "a_reader_of_a_snapshot_takes_no_block_from_the_mount";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 64 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "large", &filled(1, 1, 22 * MIB / 8));
        put(&realm, "other", &filled(2, 2, MIB));
        put(&realm, "bit", &filled(2, 2, MIB / 8));
        realm.delete(realm.root(), "large").unwrap();
        let child = fork(|line| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            let snapshot = realm.snapshot(None).unwrap();
            line.say(1);
            line.expect(2);
            assert_eq!(read(&snapshot, "other"), filled(2, 2, MIB));
            line.say(3);
        });
        child.line.expect(1);
        fill_up(&mount);
        realm.delete(realm.root(), "bit").unwrap();
        let before = given_back(&mount, 20 << 20);
        child.line.say(2);
        child.line.expect(3);
        assert!(free(&mount) + (1 << 20) >= before, "{} of {before} are free", free(&mount));
        child.finish();
    });
}

/// A put that finds too few blocks leaves those that it got to the mount.
#[test]
fn a_refused_put_takes_no_blocks() {
    let test = "a_refused_put_takes_no_blocks";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 320 << 20) else { return };
        let realm = fixture.realm();
        let large = filled(1, 1, 144 * MIB / 8);
        put(&realm, "large", &large);
        fill_up(&mount);
        realm.delete(realm.root(), "large").unwrap();
        let others = vec![0xff; (free(&mount) - (80 << 20)) as usize];
        std::fs::write(mount.join("others"), others).unwrap();
        let before = free(&mount);
        let refused = put_new(&realm, "again", &large).unwrap_err();
        assert_eq!(refused.kind(), Kind::PoolFull, "{refused}");
        assert!(free(&mount) + (2 << 20) >= before, "{} of {before} are free", free(&mount));
        put(&realm, "half", &filled(1, 1, 72 * MIB / 8));
        sound(&fixture.path);
    });
}

/// A link in the place of a span's file is not followed to what it leads to.
#[test]
fn no_blocks_go_to_what_lies_in_a_spans_place() {
    let test = "no_blocks_go_to_what_lies_in_a_spans_place";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 64 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "large", &filled(1, 1, 22 * MIB / 8));
        let filler = fill_up(&mount);
        realm.delete(realm.root(), "large").unwrap();
        std::fs::remove_file(filler).unwrap();
        let victim = mount.join("victim");
        std::fs::write(&victim, "secret").unwrap();
        let spans = span_files(&fixture.path);
        assert!(!spans.is_empty());
        for span in spans {
            std::fs::rename(&span, span.with_extension("moved")).unwrap();
            std::os::unix::fs::symlink(&victim, &span).unwrap();
        }
        assert!(put_new(&realm, "again", &filled(4, 4, 18 * MIB / 8)).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"secret");
    });
}

/// Thousands of extents go back in commits of which each has room, and no snapshot is ended for it.
#[test]
fn many_small_extents_go_back_and_end_no_snapshot() {
    let test = "many_small_extents_go_back_and_end_no_snapshot";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 200 << 20) else { return };
        let realm = fixture.realm();
        for at in 0..20_000 {
            put(&realm, &format!("p{at}"), &filled(at, 1, 512));
        }
        for at in (0..20_000).step_by(2) {
            realm.delete(realm.root(), &format!("p{at}")).unwrap();
        }
        let snapshot = realm.snapshot(Some(1 << 40)).unwrap();
        fill_up(&mount);
        small_ones(&realm, "small");
        assert!(lookup(&snapshot, "p1").is_some(), "the snapshot is there");
        drop(snapshot);
        realm.delete(realm.root(), "p1").unwrap();
        realm.delete(realm.root(), "p3").unwrap();
        let space = realm.space().unwrap();
        assert!(space.vacant >= 30 << 20, "{space:?}");
        assert!(small_ones(&realm, "more") > 10_000);
        sound(&fixture.path);
    });
}
