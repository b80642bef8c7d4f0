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
