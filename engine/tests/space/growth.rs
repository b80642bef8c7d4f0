//! Growing: arena and catalog while others write and read (protocol P5), and having no room at all.

use std::path::Path;

use crate::common::{
    Fixture, KEEP, Peer, Random, alone, attach, check, fill_up, filled, floats, fork, lookup, put,
    put_new, read, sound, view,
};
use engram::{CreateOptions, Kind, Mode, Pool, Realm};

const MIB: usize = 1 << 20;

#[test]
fn processes_that_grow_the_arena_at_once_share_it_without_overlap() {
    alone("processes_that_grow_the_arena_at_once_share_it_without_overlap", || {
        let fixture = Fixture::new(96 << 20);
        fixture.pool.close();
        let writers: Vec<Peer> = (0..3)
            .map(|writer| {
                fork(|line| {
                    let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                    let mut random = Random(writer);
                    line.expect(1);
                    for version in 0.. {
                        let words = (1 + random.below(4 * MIB as u64) / 8) as usize + 200;
                        let name = format!("w{writer}/{version}");
                        match put_new(&realm, &name, &filled(writer, version, words)) {
                            Ok(_) => {}
                            Err(error) if error.kind() == Kind::PoolFull => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        writers.iter().map(|writer| &writer.line).for_each(|line| line.say(1));
        writers.into_iter().for_each(Peer::finish);
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        let mut found = 0;
        for writer in 0..3 {
            for version in 0.. {
                let name = format!("w{writer}/{version}");
                if lookup(&realm, &name).is_none() {
                    break;
                }
                assert_eq!(check(&view(&realm, &name)), (writer, version));
                found += 1;
            }
        }
        // A writer stops at the first value that finds no place; smaller ones find what is left.
        while put_new(&realm, &format!("small/{found}"), &filled(9, found, 1000)).is_ok() {
            found += 1;
        }
        let report = sound(&fixture.path);
        assert_eq!(report.objects, found);
        assert_eq!(report.arena, 96 << 20, "every byte of the size could be had");
        assert!(report.used > 95 << 20, "{}", report.used);
    });
}

/// Killed while they make spans: a span without a row is nobody's, and the next grower's.
#[test]
fn spans_of_growers_that_were_killed_are_made_anew() {
    alone("spans_of_growers_that_were_killed_are_made_anew", || {
        let mut random = Random(crate::common::seed());
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        for round in 0..8 {
            let path = dir.path().join(format!("pool{round}"));
            let options = CreateOptions { size: 1 << 30, ..CreateOptions::default() };
            Pool::create(&path, &options).unwrap().close();
            let grower = fork(|line| {
                let (_pool, realm) = attach(&path, Mode::ReadWrite);
                for version in 0_u64.. {
                    line.say(version);
                    // Every second one needs a span more.
                    let kept = realm.scratch(10 << 20, None).unwrap();
                    put(&realm, &format!("{version}"), &filled(1, version, 3000));
                    std::mem::forget(kept);
                }
            });
            for version in 0..=random.below(4) {
                grower.line.expect(version);
            }
            (0..random.below(300_000)).for_each(|_| std::hint::spin_loop());
            grower.kill();
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            let arena = realm.space().unwrap().arena;
            let more = realm.scratch(arena + (2 << 20), None).unwrap();
            drop(more);
            // As many files as spans, and as many bytes.
            let spans = path.join(pool.uuid()).join("default/shared");
            let files = std::fs::read_dir(spans).unwrap().map(|e| e.unwrap().metadata().unwrap());
            assert_eq!(files.map(|m| m.len()).sum::<u64>(), realm.space().unwrap().arena);
            drop(realm);
            pool.close();
            sound(&path);
            Pool::destroy(&path).unwrap();
        }
    });
}

/// Reads random objects of the first `many` until the line breaks.
fn read_at_random(realm: &Realm, seed: u64, many: u64, line: &crate::common::Line) {
    let mut random = Random(seed);
    let mut rounds = 0_u64;
    while !line.is_ready() {
        let tag = random.below(many);
        assert_eq!(read(realm, &format!("base/{tag}")), filled(tag, 1, 16));
        rounds += 1;
    }
    line.say(rounds);
}

#[test]
fn the_catalog_grows_while_others_read_and_write() {
    alone("the_catalog_grows_while_others_read_and_write", || {
        const BASE: u64 = 200;
        let fixture = Fixture::new(32 << 20);
        let realm = fixture.realm();
        for tag in 0..BASE {
            put(&realm, &format!("base/{tag}"), &filled(tag, 1, 16));
        }
        let before = realm.space().unwrap().catalog;
        let readers = [1, 2].map(|seed| {
            fork(|line| {
                fixture.pool.close();
                let (_pool, realm) = attach(&fixture.path, Mode::Read);
                read_at_random(&realm, seed, BASE, line);
            })
        });
        let write = |realm: &Realm, writer: u64| {
            for batch in 0..12 {
                realm.begin_batch().unwrap();
                for index in 0..400 {
                    put(realm, &format!("w{writer}/{batch}/{index}"), &filled(index, batch, 100));
                }
                realm.commit_batch().unwrap();
                for index in 0..20 {
                    put(realm, &format!("s{writer}/{batch}/{index}"), &filled(index, batch, 100));
                }
            }
        };
        let other = fork(|_| write(&realm, 1));
        write(&realm, 2);
        other.finish();
        for reader in readers {
            reader.line.say(0);
            assert!(reader.line.hear() > 0);
            reader.finish();
        }
        assert!(realm.space().unwrap().catalog > before + (4 << 20));
        for writer in [1, 2] {
            assert_eq!(read(&realm, &format!("w{writer}/11/399")), filled(399, 11, 100));
        }
        assert_eq!(sound(&fixture.path).objects, BASE + 2 * 12 * 420);
    });
}

/// Everything that takes room is refused by name, and everything that makes room goes on.
/// Leaves nothing free in the arena that could go back to the mount.
fn use_up_the_arena(realm: &engram::Realm) {
    let mut rest = 0;
    while realm.space().unwrap().largest_free >= 64 << 10 {
        put(realm, &format!("rest/{rest}"), &filled(rest, 5, 8 << 10));
        rest += 1;
    }
}

#[test]
fn a_full_mount_refuses_by_name_and_deleting_makes_room() {
    let test = "a_full_mount_refuses_by_name_and_deleting_makes_room";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 48 << 20) else { return };
        let (realm, root) = (fixture.realm(), fixture.realm().root());
        for index in 0..3 {
            put(&realm, &format!("large/{index}"), &filled(1, index, MIB / 2));
        }
        put(&realm, "small", &filled(2, 2, 16));
        use_up_the_arena(&realm);
        fill_up(&mount);
        let full = |what: &str, error: engram::Error| {
            assert_eq!(error.kind(), Kind::PoolFull, "{what}: {error}");
        };
        let new = floats(&[4 * MIB as u64]);
        let most = 32 * MIB as u64;
        full("put", put_new(&realm, "x", &filled(3, 3, 4 * MIB)).unwrap_err());
        full("allocate", realm.allocate(root, "x", &new, most, KEEP).err().unwrap());
        full("zeroed", realm.create_zeroed(root, "x", &new, KEEP).unwrap_err());
        full("scratch", realm.scratch(most, None).err().unwrap());
        let made = fixture.pool.create_namespace("x", 0o700, None, None);
        full("namespace", made.err().unwrap());
        assert_eq!(fixture.pool.namespaces().unwrap().len(), 1);
        let options = CreateOptions { size: 1 << 20, ..CreateOptions::default() };
        let second = mount.join("second");
        full("pool", Pool::create(&second, &options).err().unwrap());
        assert!(!second.exists());
        // Small objects go on until the catalog's own blocks are used up; then they are refused.
        let mut small = 0;
        loop {
            match put_new(&realm, &format!("small{small}"), &filled(small, 1, 100)) {
                Ok(_) => small += 1,
                Err(error) => break full("small", error),
            }
        }
        assert!(small > 0);
        realm.begin_batch().unwrap();
        let put_all = (0..300).try_for_each(|index| {
            put_new(&realm, &format!("batch/{index}"), &filled(index, 1, 100)).map(drop)
        });
        full("batch", put_all.and(realm.commit_batch()).unwrap_err());
        let _ = realm.abort_batch();
        assert_eq!(lookup(&realm, "batch"), None);
        // Another process opens it all the same, reads, and deletes; so does a forked child.
        fork(|_| {
            assert_eq!(read(&realm, "large/1"), filled(1, 1, MIB / 2));
            realm.delete(root, "large/1").unwrap();
        })
        .finish();
        fork(|_| {
            fixture.pool.close();
            let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            assert_eq!(read(&realm, "large/2"), filled(1, 2, MIB / 2));
            realm.delete(root, "large/2").unwrap();
        })
        .finish();
        for index in 0..small {
            // What was deleted is room, for values and for rows.
            realm.delete(root, &format!("small{index}")).unwrap();
        }
        put(&realm, "again", &filled(4, 4, MIB / 2));
        for index in 0..small / 2 {
            put(&realm, &format!("small{index}"), &filled(index, 2, 100));
        }
        assert_eq!(read(&realm, "again"), filled(4, 4, MIB / 2));
        sound(&fixture.path);
    });
}

/// On a full mount a process can be opened again and again, since the realm's spare stands ready.
#[test]
fn a_full_mount_can_be_opened_closed_and_emptied() {
    let test = "a_full_mount_can_be_opened_closed_and_emptied";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        put(&fixture.realm(), "x", &filled(1, 1, MIB / 2));
        put(&fixture.realm(), "y", &filled(1, 1, MIB / 8));
        fixture.pool.close();
        let filler = fill_up(&mount);
        for _ in 0..5 {
            let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
            assert_eq!(check(&view(&realm, "x")), (1, 1));
            drop(realm);
            pool.close();
            // What closing has given up of the mount is taken at once.
            refill(&filler);
        }
        // Nor does it take one that is closed: of the dead, the lease is there.
        for _ in 0..3 {
            let dying = fork(|line| {
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                let reserved = realm.scratch(1 << 10, None).unwrap();
                line.say(1);
                line.hear();
                drop(reserved);
            });
            dying.line.expect(1);
            dying.kill();
        }
        let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
        realm.delete(realm.root(), "x").unwrap();
        put(&realm, "z", &filled(2, 2, MIB / 2));
        assert_eq!(check(&view(&realm, "z")), (2, 2));
        sound(&fixture.path);
    });
}

/// Takes what room a mount has got since it was filled up.
fn refill(filler: &Path) {
    let mut file = std::fs::File::options().append(true).open(filler).unwrap();
    while std::io::Write::write_all(&mut file, &[0xff; 512]).is_ok() {}
}

/// Each has a lease of its own, in which the view is pinned, and finds one when it opens the pool.
#[test]
fn children_open_a_pool_on_a_full_mount_again_and_again() {
    let test = "children_open_a_pool_on_a_full_mount_again_and_again";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 2));
        let seen = view(&realm, "x");
        let filler = fill_up(&mount);
        for _ in 0..6 {
            fork(|_| {
                assert_eq!(check(&seen), (1, 1));
                fixture.pool.close();
                refill(&filler);
                let (_pool, realm) = attach(&fixture.path, Mode::ReadWrite);
                assert_eq!(check(&view(&realm, "x")), (1, 1));
            })
            .finish();
            realm.space().unwrap(); // sweeps up after the dead
            refill(&filler);
        }
        assert_eq!(check(&seen), (1, 1));
        drop(seen);
        realm.delete(realm.root(), "x").unwrap();
        sound(&fixture.path);
    });
}

/// Of four children that live on a full mount, two find a lease; the parent loses nothing.
#[test]
fn children_on_a_full_mount_do_not_take_the_pool_from_their_parent() {
    let test = "children_on_a_full_mount_do_not_take_the_pool_from_their_parent";
    alone(test, || {
        let Some((fixture, mount)) = Fixture::on_small_mount(test, 24 << 20) else { return };
        let realm = fixture.realm();
        put(&realm, "x", &filled(1, 1, MIB / 2));
        put(&realm, "small", &filled(1, 1, 16));
        let seen = view(&realm, "x");
        let filler = fill_up(&mount);
        let children: Vec<_> = (0..4)
            .map(|_| {
                let child = fork(|line| {
                    line.expect(1);
                    let found = realm.lookup(realm.root(), "small");
                    let refused = found.err().is_some_and(|error| {
                        assert_eq!(error.kind(), Kind::PoolFull, "{error}");
                        true
                    });
                    line.say(2 + u64::from(refused));
                    line.expect(4);
                    assert_eq!(check(&seen), (1, 1));
                });
                refill(&filler);
                child
            })
            .collect();
        let answers = children.iter().map(|child| {
            child.line.say(1);
            child.line.hear()
        });
        assert_eq!(answers.collect::<Vec<_>>(), [2, 2, 3, 3]);
        assert_eq!(read(&realm, "small"), filled(1, 1, 16));
        drop(seen);
        realm.delete(realm.root(), "x").unwrap();
        put(&realm, "y", &filled(2, 2, MIB / 4));
        assert_eq!(read(&realm, "y"), filled(2, 2, MIB / 4));
        for child in children {
            child.line.say(4);
            child.finish();
        }
        sound(&fixture.path);
    });
}
