//! Backups while members move between scopes: each copy has every object once, and nothing in it is
//! on its way.
#![cfg(feature = "faults")]

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::moves::{
    OBJECTS, all, begin, die_at, homes, move_run, names, play, steps, toys, ways, whole,
};
use crate::common::{Fixture, Random, alone, attach, fork, seed, sound};
use engram::{CreateOptions, Durability, Mode, Pool, Scope};

/// A mover that dies at any step leaves a pool whose copy has ended the move: before anybody has
/// opened it, and as a process that opens the pool itself would end it. So has the pool, compacted.
#[test]
fn a_move_that_died_half_way_has_ended_in_the_copy() {
    alone("a_move_that_died_half_way_has_ended_in_the_copy", || {
        let mut died = BTreeMap::new();
        for (from, to) in ways() {
            let fixture = Fixture::new(64 << 20);
            fixture.pool.close();
            let path = &fixture.path;
            let there = begin(path, from);
            let dest = fixture.dir.path().join("copy");
            for step in steps() {
                let way = format!("{from:?} to {to:?}, {step}");
                if !die_at(path, from, to, step) {
                    let (pool, _) = attach(path, Mode::ReadWrite);
                    move_run(&names(&pool), to, from);
                    pool.close();
                    continue;
                }
                *died.entry(step).or_insert(0) += 1;
                let (pool, _) = attach(path, Mode::Read);
                let report = engram::backup(&pool, &dest, true).unwrap();
                pool.close();
                let copied = ended(&dest, &way, &there);
                assert_eq!(report.objects, 3, "{way}");
                assert_eq!(sound(&dest).used, report.bytes, "{way}");
                Pool::destroy(&dest).unwrap();
                engram::compact(path).unwrap();
                let (pool, _) = attach(path, Mode::ReadWrite);
                let namespace = names(&pool);
                assert_eq!((namespace.leaving().unwrap(), all(&namespace)), (0, there.clone()));
                let at = *homes(&namespace).values().next().unwrap();
                // A withdrawal that had come and not gone is undone in the copy: no new version is
                // made for it.
                if from != Scope::Published || at == from {
                    assert_eq!(at, copied, "{way}");
                }
                if at == to {
                    move_run(&namespace, to, from);
                }
                drop(namespace);
                pool.close();
            }
            sound(path);
        }
        println!("{} kills: {died:?}", died.values().sum::<u64>());
        assert_eq!(died.len(), steps().count(), "every step was reached: {died:?}");
    });
}

/// On a disk, a pool that promises to survive processes alone is marked as closed in good order,
/// its values synced; so is a copy of it, while it is half made.
#[test]
fn a_move_has_ended_in_the_copy_on_a_disk_too() {
    alone("a_move_has_ended_in_the_copy_on_a_disk_too", || {
        crate::syscalls::pretend_disk(true);
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (path, dest) = (dir.path().join("pool"), dir.path().join("copy"));
        let durability = Some(Durability::Process);
        let options = CreateOptions { size: 64 << 20, durability, ..CreateOptions::default() };
        Pool::create(&path, &options).unwrap().close();
        let there = begin(&path, Scope::Private);
        assert!(die_at(&path, Scope::Private, Scope::Shared, "transfer.arrived"));
        let (pool, _) = attach(&path, Mode::Read);
        engram::backup(&pool, &dest, true).unwrap();
        pool.close();
        assert_eq!(ended(&dest, "on a disk", &there), Scope::Shared);
        sound(&dest);
    });
}

/// The scope of all objects of a copy, in which nothing is on its way.
fn ended(dest: &Path, way: &str, there: &[crate::common::moves::Seen]) -> Scope {
    let (pool, _) = attach(dest, Mode::Read);
    let namespace = names(&pool);
    assert_eq!(namespace.leaving().unwrap(), 0, "{way}");
    assert_eq!(all(&namespace), there, "{way}");
    let homes = homes(&namespace);
    assert_eq!(homes.len(), 3, "{way}: {homes:?}");
    let at = *homes.values().next().unwrap();
    assert!(homes.values().all(|home| *home == at), "{way}: {homes:?}");
    drop(namespace);
    pool.close();
    at
}

#[test]
fn each_copy_has_every_object_once_whatever_moves_meanwhile() {
    alone("each_copy_has_every_object_once_whatever_moves_meanwhile", || {
        let fixture = Fixture::new(64 << 20);
        let path = &fixture.path;
        let mut random = Random(seed());
        let oids = toys(&fixture.pool);
        let start = |seed: u64| {
            let mover = fork(|line| {
                fixture.pool.close();
                play(path, line, Random(seed));
            });
            mover.line.expect(0);
            mover
        };
        let mut movers: Vec<_> = (0..3).map(|_| start(random.next())).collect();
        let mut seen = BTreeMap::new();
        let dest = fixture.dir.path().join("copy");
        for round in 0..12 {
            if round % 3 == 2 {
                movers.remove(random.below(3) as usize).kill();
            }
            let report = engram::backup(&fixture.pool, &dest, true).unwrap();
            assert_eq!((report.objects, report.skipped.len()), (OBJECTS, 0));
            assert_eq!(sound(&dest).used, report.bytes);
            for mode in [Mode::Read, Mode::ReadWrite] {
                let pool = Pool::open(&dest, mode, true).unwrap();
                let copy = names(&pool);
                for scope in whole(&copy, &oids).into_values() {
                    *seen.entry(scope).or_insert(0) += 1;
                }
                assert_eq!(copy.leaving().unwrap(), 0);
                drop(copy);
                pool.close();
            }
            Pool::destroy(&dest).unwrap();
            if movers.len() < 3 {
                movers.push(start(random.next()));
            }
        }
        println!("{seen:?}");
        assert_eq!(seen.len(), 3, "objects were in every scope: {seen:?}");
        for mover in movers {
            mover.line.say(0);
            mover.finish();
        }
        let namespace = names(&fixture.pool);
        whole(&namespace, &oids);
        drop(namespace);
        fixture.pool.close();
        sound(path);
    });
}
