//! Backup: a whole pool, of one moment, whoever writes meanwhile and whenever it dies.

use std::path::Path;

use crate::common::{
    Fixture, KEEP, OVER, Random, alone, attach, check, die_at_step, filled, floats, fork, lookup,
    map_of, put, read, report_of, seed, sound, view,
};
use engram::query::parse;
use engram::{
    CreateOptions, Kind, Member, Mode, NewObject, Pool, QueryOptions, Realm, Scope, Value, faults,
};

fn count(realm: &Realm, text: &str) -> u64 {
    realm.query_count(&parse(text).unwrap(), &QueryOptions::default()).unwrap()
}

fn tagged(words: usize, tag: &str) -> NewObject {
    NewObject { attrs: vec![("tag".into(), Value::text(tag))], ..floats(&[words as u64]) }
}

#[test]
fn a_copy_is_a_pool_of_its_own_with_all_that_was_there() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let mut random = Random(seed());
    for at in 0..300_u64 {
        let words = [4, 100, 1000, 20_000][random.below(4) as usize];
        let new = tagged(words, if at % 3 == 0 { "third" } else { "other" });
        realm.put(root, &format!("g{}/o{at}", at % 7), &new, &filled(at, 1, words), OVER).unwrap();
    }
    for at in (0..300_u64).step_by(2) {
        let _ = realm.delete(root, &format!("g{}/o{at}", at % 7));
    }
    realm.set_read_only(Member::Group(lookup(&realm, "g3").unwrap()), true).unwrap();
    let kept = realm.scratch(1 << 20, None).unwrap();
    fixture.pool.create_namespace("second", 0o700, None, None).unwrap();
    let second = fixture.pool.realm("second").unwrap();
    second.put(second.root(), "x", &floats(&[5000]), &filled(9, 9, 5000), KEEP).unwrap();
    let dest = fixture.dir.path().join("copy");
    let report = engram::backup(&fixture.pool, &dest, true).unwrap();
    assert_eq!((report.realms, report.objects), (2, 151));
    assert_eq!(report.skipped, Vec::<String>::new());
    let there = map_of(&realm, "");
    let before = sound(&fixture.path);
    assert_eq!(report.bytes, before.used);
    let copied = sound(&dest);
    assert_eq!((copied.used, copied.objects, copied.groups), (before.used, 151, before.groups));
    assert_eq!(copied.pending, 0, "neither reservations nor what was freed is in it");
    let (pool, copy) = attach(&dest, Mode::ReadWrite);
    assert_ne!(pool.uuid(), fixture.pool.uuid());
    assert!(map_of(&copy, "") == there);
    // Every id is what it was, the index answers, the hints hold, and new ids are new.
    assert_eq!(lookup(&copy, "g1/o1"), lookup(&realm, "g1/o1"));
    assert_eq!(count(&copy, r#"tag = "third""#), count(&realm, r#"tag = "third""#));
    assert_eq!(copy.delete(copy.root(), "g3").unwrap_err().kind(), Kind::ReadOnly);
    let new = put(&copy, "new", &filled(1, 2, 5000));
    assert!(map_of(&copy, "").len() == there.len() + 1 && lookup(&realm, "new") != Some(new));
    let other = pool.realm("second").unwrap();
    assert_eq!(check(&view(&other, "x")), (9, 9));
    sound(&dest);
    drop(kept);
    // An existing one is refused, whatever it is.
    let refused = engram::backup(&fixture.pool, &dest, true).unwrap_err();
    assert_eq!(refused.kind(), Kind::Exists, "{refused}");
    sound(&dest);
}

#[test]
fn pairs_of_one_batch_are_never_torn_in_a_copy() {
    alone("pairs_of_one_batch_are_never_torn_in_a_copy", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        let dest = fixture.dir.path().join("copy");
        put(&realm, "start", &filled(0, 0, 100));
        let writers = [1, 2].map(|writer| {
            fork(|line| {
                fixture.pool.close();
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                let mut random = Random(writer);
                line.say(0);
                for version in 1_u64.. {
                    if line.is_ready() {
                        return;
                    }
                    let words = 200 + random.below(20_000) as usize;
                    realm.begin_batch().unwrap();
                    for name in ["a", "b"] {
                        let path = format!("w{writer}/{name}{}", version % 5);
                        put(&realm, &path, &filled(writer, version, words));
                    }
                    realm.commit_batch().unwrap();
                    if version % 3 == 0 {
                        let _ = realm.delete(realm.root(), &format!("w{writer}"));
                    }
                }
            })
        });
        for writer in &writers {
            writer.line.expect(0);
        }
        for round in 0..12 {
            let report = engram::backup(&fixture.pool, &dest, true).unwrap();
            assert_eq!(sound(&dest).used, report.bytes);
            let (pool, copy) = attach(&dest, Mode::Read);
            let mut pairs = 0;
            for writer in [1, 2] {
                for place in 0..5 {
                    let names = ["a", "b"].map(|name| format!("w{writer}/{name}{place}"));
                    let found = names.each_ref().map(|name| lookup(&copy, name).is_some());
                    assert_eq!(found[0], found[1], "a pair is torn in round {round}");
                    if found[0] {
                        let versions = names.map(|name| check(&view(&copy, &name)));
                        assert_eq!(versions[0], versions[1], "a pair is torn in round {round}");
                        pairs += 1;
                    }
                }
            }
            println!("round {round}: {pairs} pairs");
            drop(copy);
            pool.close();
            Pool::destroy(&dest).unwrap();
        }
        for writer in writers {
            writer.line.say(0);
            writer.finish();
        }
        sound(&fixture.path);
    });
}

/// Values that are written in place meanwhile are copied without their checksum, which could not be
/// that of several moments; damaged values are refused.
#[test]
fn checksums_of_a_copy_are_those_of_its_bytes() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("pool");
    let options =
        CreateOptions { size: 64 << 20, checksums: true, force: true, ..CreateOptions::default() };
    let pool = Pool::create(&path, &options).unwrap();
    let realm = pool.realm("default").unwrap();
    let data = filled(1, 1, 3_000_000);
    let oid = put(&realm, "x", &data);
    put(&realm, "y", &filled(2, 2, 5000));
    let writing = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while writing.load(std::sync::atomic::Ordering::Relaxed) {
                let Ok(engram::Payload::Extent(view)) = realm.view(oid, true) else {
                    unreachable!()
                };
                for at in (0..view.len()).step_by(4096) {
                    // SAFETY: within a live view; racing with the copy is what is tried.
                    unsafe { view.as_ptr().add(at).write_volatile(at as u8) };
                }
                drop(view);
                realm.flush(oid).unwrap();
            }
        });
        for _ in 0..6 {
            let dest = dir.path().join("copy");
            engram::backup(&pool, &dest, true).unwrap();
            sound(&dest);
            Pool::destroy(&dest).unwrap();
        }
        writing.store(false, std::sync::atomic::Ordering::Relaxed);
    });
    // A bit that has changed by itself.
    let y = lookup(&realm, "y").unwrap();
    let at = view(&realm, "y");
    // SAFETY: within a live view that nobody else uses.
    unsafe { at.as_ptr().add(4000).write(7) };
    let refused = engram::backup(&pool, &dir.path().join("copy"), true).unwrap_err();
    assert_eq!(refused.kind(), Kind::Corrupt);
    assert!(refused.message().contains(&format!("{y:#x}")), "{refused}");
    assert!(!dir.path().join("copy").exists(), "nothing is left behind");
}

#[test]
fn private_realms_are_in_the_copy() {
    let fixture = Fixture::new(64 << 20);
    let name = fixture.pool.namespace("default").unwrap();
    let mine = name.realm_of(Scope::Private, true).unwrap().unwrap();
    put(&mine, "secret", &filled(5, 5, 5000));
    put(&fixture.realm(), "known", &filled(6, 6, 5000));
    let dest = fixture.dir.path().join("copy");
    assert_eq!(engram::backup(&fixture.pool, &dest, true).unwrap().realms, 2);
    sound(&dest);
    let pool = Pool::open(&dest, Mode::Read, true).unwrap();
    let view_of = pool.namespace("default").unwrap();
    let mine = view_of.realm_of(Scope::Private, false).unwrap().unwrap();
    assert_eq!(read(&mine, "secret"), filled(5, 5, 5000));
    assert_eq!(lookup(&pool.realm("default").unwrap(), "secret"), None);
    assert_eq!(mine.root(), fixture.realm().root());
}

#[test]
fn what_is_published_is_in_the_copy() {
    let fixture = Fixture::new(64 << 20);
    let shared = fixture.realm();
    for at in 0..6 {
        put(&shared, &format!("g/{at}"), &filled(at, 1, 20_000));
        put(&shared, &format!("small/{at}"), &filled(at, 2, 10));
    }
    let all = fixture.pool.namespace("default").unwrap();
    for path in ["g/1", "g/3", "g/5", "small"] {
        all.transfer(all.root(), path, &[Scope::Shared], Scope::Published).unwrap();
    }
    all.transfer(all.root(), "g/3", &[Scope::Published], Scope::Shared).unwrap();
    let oid = |pool: &Pool, path: &str| {
        let all = pool.namespace("default").unwrap();
        let member = all.lookup(all.root(), path).unwrap().unwrap();
        (member, all.scope_of(member).unwrap())
    };
    let dest = fixture.dir.path().join("copy");
    let report = engram::backup(&fixture.pool, &dest, true).unwrap();
    assert_eq!((report.realms, report.objects, report.skipped.len()), (2, 12, 0));
    // Spans that several versions have are copied once: what is published takes its own bytes.
    assert_eq!(report.bytes, sound(&fixture.path).used);
    assert_eq!(sound(&dest).used, report.bytes);
    let pool = Pool::open(&dest, Mode::ReadWrite, true).unwrap();
    let copy = pool.namespace("default").unwrap();
    for at in 0..6 {
        for (path, version, words) in [("g", 1, 20_000), ("small", 2, 10)] {
            let path = format!("{path}/{at}");
            let (member, scope) = oid(&pool, &path);
            assert_eq!((member, scope), oid(&fixture.pool, &path), "{path}");
            let found = crate::common::moves::value_of(&copy, member.id());
            assert!(found == filled(at, version, words), "{path}");
        }
    }
    assert_eq!(oid(&pool, "g/1").1, Scope::Published);
    assert_eq!(oid(&pool, "g/3").1, Scope::Shared);
    // The copy goes on publishing.
    copy.transfer(copy.root(), "g/0", &[Scope::Shared], Scope::Published).unwrap();
    copy.transfer(copy.root(), "g/1", &[Scope::Published], Scope::Shared).unwrap();
    assert_eq!(oid(&pool, "g/1").1, Scope::Shared);
    sound(&dest);
}

/// Killed at every step: until the last there is no pool there, and nobody takes it for one.
#[test]
fn a_backup_that_is_killed_is_no_pool() {
    alone("a_backup_that_is_killed_is_no_pool", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, 5000));
        let dest = fixture.dir.path().join("copy");
        let steps = faults::ALL.iter().filter(|step| step.starts_with("backup."));
        let mut kills = 0;
        for &step in steps {
            let mut dying = fork(|_| {
                fixture.pool.close();
                let (pool, _realm) = attach(&fixture.path, Mode::Read);
                die_at_step(step);
                let _ = engram::backup(&pool, &dest, true);
            });
            assert!(libc::WIFSIGNALED(dying.wait()), "{step} is not reached");
            kills += 1;
            if step == "backup.named" {
                assert_eq!(sound(&dest).objects, 1);
            } else {
                let refused = Pool::open(&dest, Mode::Read, true).err().unwrap();
                assert_eq!(refused.kind(), Kind::Format, "{step}: {refused}");
                assert!(refused.message().contains("half-created"), "{step}: {refused}");
                // The next copy to the same place takes it away.
                if kills % 2 == 0 {
                    assert_eq!(
                        engram::backup(&fixture.pool, &dest, true).unwrap().objects,
                        1,
                        "{step}"
                    );
                }
            }
            Pool::destroy(&dest).unwrap();
            assert!(!Path::new(&dest).exists());
            put(&realm, "x", &filled(1, kills, 5000));
            sound(&fixture.path);
        }
        println!("{kills} kills");
        engram::backup(&fixture.pool, &dest, true).unwrap();
        assert_eq!(report_of(&dest).objects, 1);
    });
}
