//! The queue: what is put with mode `async` is indexed a little later, by this process or another.

use crate::common::{Fixture, alone, attach, deadline, floats, fork, sound};
use engram::{IndexMode, IndexSettings, Mode, Placement, Realm};

const LATER: Placement = Placement { index: Some(IndexMode::Async), ..crate::common::OVER };

fn put_later(realm: &Realm, from: u64, count: u64) {
    for index in from..from + count {
        let name = format!("object-{index}");
        realm.put(realm.root(), &name, &floats(&[1]), &[7; 8], LATER).unwrap();
    }
}

/// Looks until nothing is queued any more.
fn until_drained(realm: &Realm) {
    let until = deadline();
    while realm.index_stats().unwrap().queued > 0 {
        assert!(std::time::Instant::now() < until, "the queue was not drained in time");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_queued_is_indexed_by_itself() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put_later(&realm, 0, 3000);
    until_drained(&realm);
    let stats = realm.index_stats().unwrap();
    assert_eq!(stats.tail + stats.sealed - stats.dead, 3000);
    assert_eq!(sound(&fixture.path).objects, 3000);
}

#[test]
fn a_full_queue_is_drained_by_who_puts() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let settings = IndexSettings { queue_max: Some(10), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    for index in 0..200 {
        put_later(&realm, index, 1);
        assert!(realm.index_stats().unwrap().queued <= 10);
    }
    sound(&fixture.path);
}

#[test]
fn a_queue_left_by_the_dead_is_drained_by_who_opens() {
    alone("a_queue_left_by_the_dead_is_drained_by_who_opens", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let path = fixture.path.clone();
        let child = fork(|line| {
            put_later(&realm, 0, 50);
            line.say(1);
            line.hear_if_any();
        });
        child.line.expect(1);
        child.kill();
        drop(realm);
        drop(fixture.pool);
        let (_pool, realm) = attach(&path, Mode::ReadWrite);
        until_drained(&realm);
        let stats = realm.index_stats().unwrap();
        assert_eq!((stats.tail + stats.sealed - stats.dead, stats.unindexed), (50, 0));
        sound(&path);
    });
}

#[test]
fn a_forked_child_has_a_drainer_of_its_own() {
    alone("a_forked_child_has_a_drainer_of_its_own", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put_later(&realm, 0, 10);
        let child = fork(|_| {
            put_later(&realm, 1000, 10);
            until_drained(&realm);
        });
        child.finish();
        put_later(&realm, 2000, 10);
        until_drained(&realm);
        assert_eq!(sound(&fixture.path).objects, 30);
    });
}

/// A process that has the pool open for writing and does nothing indexes what another leaves.
#[test]
fn what_a_writer_leaves_is_indexed_by_those_who_have_the_pool_open() {
    alone("what_a_writer_leaves_is_indexed_by_those_who_have_the_pool_open", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        for how in 0..3 {
            let writer = fork(|line| {
                let (pool, theirs) = attach(&fixture.path, Mode::ReadWrite);
                put_later(&theirs, how * 1000, 50);
                assert!(theirs.index_stats().unwrap().queued > 0);
                drop(theirs);
                match how {
                    0 => pool.close(),
                    // It ends without closing.
                    1 => std::mem::forget(pool),
                    _ => {
                        line.say(1);
                        line.hear();
                    }
                }
            });
            if how == 2 {
                writer.line.expect(1);
                writer.kill();
            } else {
                writer.finish();
            }
            until_drained(&realm);
        }
        let stats = realm.index_stats().unwrap();
        assert_eq!((stats.tail + stats.sealed - stats.dead, stats.unindexed), (150, 0));
        sound(&fixture.path);
    });
}

/// So does a forked child that has only read, when its parent is gone.
#[test]
fn a_forked_child_indexes_what_its_parent_leaves() {
    alone("a_forked_child_indexes_what_its_parent_leaves", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        let child = fork(|line| {
            assert_eq!(realm.index_stats().unwrap().queued, 0);
            line.say(1);
            line.expect(2);
            until_drained(&realm);
        });
        child.line.expect(1);
        let path = fixture.path.clone();
        put_later(&realm, 0, 50);
        drop(realm);
        fixture.pool.close();
        // The child's own handle is another process's: nobody else has the pool open.
        child.line.say(2);
        child.finish();
        let (_pool, realm) = attach(&path, Mode::Read);
        assert_eq!(realm.index_stats().unwrap().queued, 0);
    });
}
