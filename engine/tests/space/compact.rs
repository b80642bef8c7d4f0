//! Compaction: what it gives back, whom it refuses, and that no death on the way loses anything.

use std::path::Path;

use crate::common::{
    Fixture, Random, alone, attach, check, die_at_step, filled, fork, lookup, map_of, put, read,
    seed, sound, view,
};
use engram::{CreateOptions, Kind, Mode, NewObject, Placement, Pool, Realm, faults};

fn span_bytes(pool: &Path, uuid: &str) -> u64 {
    let folder = pool.join(uuid).join("default/shared");
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// In how many segments the files lie.
fn pieces(realm: &Realm) -> [usize; 2] {
    ["files/even", "files/odd"].map(|path| {
        realm.open_file(lookup(realm, path).unwrap(), false).unwrap().segments().unwrap().len()
    })
}

/// A pool with holes: spans of 16 MiB at least, of which some hold nothing, and a large catalog.
fn with_holes(path: &Path, random: &mut Random) -> String {
    let options = CreateOptions { size: 1 << 30, force: true, ..CreateOptions::default() };
    let pool = Pool::create(path, &options).unwrap();
    let realm = pool.realm("default").unwrap();
    // Four spans of 16 MiB, each filled by scratch space and three values.
    let mut kept = Vec::new();
    for at in 0..12 {
        if at % 3 == 0 {
            kept.push(realm.scratch(15 << 20, None).unwrap());
        }
        put(&realm, &format!("large/{at}"), &filled(at, 1, 20_000));
    }
    drop(kept);
    realm.begin_batch().unwrap();
    for at in 0..1500 {
        put(&realm, &format!("small/{at}"), &filled(at, 1, 100));
    }
    realm.commit_batch().unwrap();
    // Two spans in four hold nothing, whichever they are.
    let empty = random.below(2);
    for at in 0..12 {
        if at / 3 % 2 == empty || random.below(3) == 0 {
            realm.delete(realm.root(), &format!("large/{at}")).unwrap();
        }
    }
    realm.begin_batch().unwrap();
    for at in 10..1500 {
        realm.delete(realm.root(), &format!("small/{at}")).unwrap();
    }
    realm.commit_batch().unwrap();
    with_fragments(&realm);
    pool.uuid().to_owned()
}

/// Two files that grew by turns, one of them with a hole.
fn with_fragments(realm: &Realm) {
    realm.set_file_growth(4096, 4096).unwrap();
    let made = |name: &str| {
        let made = realm.put(realm.root(), name, &NewObject::blob(), b"", Placement::default());
        realm.open_file(made.unwrap(), true).unwrap()
    };
    let files = [made("files/even"), made("files/odd")];
    for round in 0..40_u8 {
        for file in &files {
            file.append(&filled(u64::from(round), 1, 4096)).unwrap();
        }
    }
    files[0].punch(4096 * 100, 4096 * 5).unwrap();
}

#[test]
fn holes_are_given_back_and_all_is_there() {
    alone("holes_are_given_back_and_all_is_there", || {
        let mut random = Random(seed());
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for round in 0..3 {
            let path = dir.path().join(format!("pool{round}"));
            let uuid = with_holes(&path, &mut random);
            let (pool, realm) = attach(&path, Mode::Read);
            let there = map_of(&realm, "");
            let oids: Vec<_> = there.keys().map(|path| lookup(&realm, path)).collect();
            assert_eq!(pieces(&realm), [40, 40], "files in fragments");
            pool.close();
            let before = sound(&path);
            let report = engram::compact(&path).unwrap();
            assert_eq!(report.joined, 2);
            assert_eq!(report.arena[0], before.arena);
            assert!(report.arena[1] < report.arena[0], "{report:?}");
            assert!(report.catalog[1] < report.catalog[0], "{report:?}");
            assert_eq!(span_bytes(&path, &uuid), report.arena[1]);
            let after = sound(&path);
            assert_eq!((after.used, after.objects), (before.used, before.objects));
            assert_eq!((after.arena, after.pending), (report.arena[1], 0));
            // A second time there is nothing to do.
            let again = engram::compact(&path).unwrap();
            assert_eq!((again.arena[1], again.joined), (report.arena[1], 0));
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            assert_eq!(pieces(&realm), [2, 1], "one piece each, but for the hole");
            assert!(map_of(&realm, "") == there);
            assert!(there.keys().map(|path| lookup(&realm, path)).eq(oids));
            // The arena grows again, with numbers of files that nobody has.
            let kept = realm.scratch(40 << 20, None).unwrap();
            for at in 0..3 {
                put(&realm, &format!("more/{at}"), &filled(at, 2, 130_000));
            }
            drop(kept);
            for at in 0..3 {
                assert_eq!(check(&view(&realm, &format!("more/{at}"))), (at, 2));
            }
            drop(realm);
            pool.close();
            sound(&path);
            engram::compact(&path).unwrap();
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            realm.delete(realm.root(), "more").unwrap();
            assert!(map_of(&realm, "") == there);
            drop(realm);
            pool.close();
            Pool::destroy(&path).unwrap();
            assert!(!path.exists());
        }
    });
}

#[test]
fn an_open_pool_is_not_compacted() {
    alone("an_open_pool_is_not_compacted", || {
        let fixture = Fixture::new(64 << 20);
        put(&fixture.realm(), "x", &filled(1, 1, 5000));
        let refused = engram::compact(&fixture.path).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy);
        assert!(refused.message().contains(&std::process::id().to_string()), "{refused}");
        assert!(refused.message().contains("this process itself"), "{refused}");
        let kept = view(&fixture.realm(), "x");
        fixture.pool.close();
        assert_eq!(
            engram::compact(&fixture.path).unwrap_err().kind(),
            Kind::Busy,
            "a view is there"
        );
        drop(kept);
        let other = fork(|line| {
            let (_pool, _realm) = attach(&fixture.path, Mode::Read);
            line.say(1);
            line.hear();
        });
        other.line.expect(1);
        let refused = engram::compact(&fixture.path).unwrap_err();
        assert_eq!(refused.kind(), Kind::Busy);
        assert!(refused.message().contains(&other.pid.to_string()), "{refused}");
        other.line.say(0);
        other.finish();
        engram::compact(&fixture.path).unwrap();
        sound(&fixture.path);
    });
}

fn of_compaction(step: &str) -> bool {
    step.starts_with("compact.") || step.starts_with("join.")
}

/// Killed at every step: the old realm or the new one is there, whole, and nothing is left over.
#[test]
fn who_dies_compacting_leaves_the_old_realm_or_the_new_one() {
    alone("who_dies_compacting_leaves_the_old_realm_or_the_new_one", || {
        let mut random = Random(seed());
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut kills = 0;
        for &step in faults::ALL.iter().filter(|step| of_compaction(step)) {
            for mode in [Mode::ReadWrite, Mode::Read] {
                let path = dir.path().join(format!("{step}{mode:?}"));
                let uuid = with_holes(&path, &mut random);
                let (pool, realm) = attach(&path, Mode::Read);
                let there = map_of(&realm, "");
                drop(realm);
                pool.close();
                let mut dying = fork(|_| {
                    die_at_step(step);
                    let _ = engram::compact(&path);
                });
                assert!(libc::WIFSIGNALED(dying.wait()), "{step} is not reached");
                kills += 1;
                let (pool, realm) = attach(&path, mode);
                assert!(map_of(&realm, "") == there, "{step}");
                drop(realm);
                pool.close();
                let report = sound(&path);
                assert_eq!(span_bytes(&path, &uuid), report.arena, "{step}: a span is left over");
                let realm = path.join("ns/default/shared");
                assert!(!realm.join("catalog.new").exists() && !realm.join("compacting").exists());
                engram::compact(&path).unwrap();
                let (pool, realm) = attach(&path, Mode::ReadWrite);
                assert!(map_of(&realm, "") == there, "{step}");
                put(&realm, "more", &filled(7, 7, 130_000));
                assert_eq!(read(&realm, "more"), filled(7, 7, 130_000));
                drop(realm);
                pool.close();
                sound(&path);
                Pool::destroy(&path).unwrap();
            }
        }
        println!("{kills} kills");
    });
}

/// A process that opens the pool meanwhile waits, or is seen: never two catalogs at once.
#[test]
fn who_opens_meanwhile_waits_or_is_seen() {
    alone("who_opens_meanwhile_waits_or_is_seen", || {
        let fixture = Fixture::new(64 << 20);
        put(&fixture.realm(), "n", &filled(0, 0, 100));
        fixture.pool.close();
        let writers = [0, 1].map(|writer| {
            fork(|line| {
                for version in 1_u64.. {
                    if line.is_ready() {
                        line.say(version - 1);
                        return;
                    }
                    let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                    put(&realm, &format!("w{writer}"), &filled(writer, version, 5000));
                    drop(realm);
                    pool.close();
                }
            })
        });
        let (mut done, mut busy) = (0, 0);
        while done < 10 && busy < 20_000 {
            match engram::compact(&fixture.path) {
                Ok(_) => done += 1,
                Err(error) => {
                    assert_eq!(error.kind(), Kind::Busy, "{error}");
                    busy += 1;
                }
            }
        }
        println!("{done} compacted, {busy} refused");
        for (writer, peer) in writers.into_iter().enumerate() {
            peer.line.say(0);
            let version = peer.line.hear();
            peer.finish();
            let (_pool, realm) = attach(&fixture.path, Mode::Read);
            assert_eq!(check(&view(&realm, &format!("w{writer}"))), (writer as u64, version));
        }
        engram::compact(&fixture.path).unwrap();
        sound(&fixture.path);
    });
}
