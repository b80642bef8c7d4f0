//! Objects with very many keys of their own, groups with nothing but a mode, what dies in
//! thousands: the index stays right, and no larger than it must be.

use crate::common::{Fixture, KEEP, OVER, floats, sound};
use engram::query::parse;
use engram::{DType, IndexMode, IndexSettings, NewObject, Placement, QueryOptions, Realm, Value};

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

/// Puts an object with `keys` keys of its own, and one that all have.
fn put_own(realm: &Realm, object: u64, keys: u64, placement: Placement) {
    let own = (0..keys).map(|key| (format!("s{object}_{key}"), int(key as i64)));
    let attrs = own.chain([("all".to_owned(), int(object as i64))]).collect();
    let new = NewObject { attrs, ..floats(&[1]) };
    realm.put(realm.root(), &format!("o{object}"), &new, &[7; 8], placement).unwrap();
}

fn ask(realm: &Realm, text: &str) -> usize {
    let query = parse(text).unwrap();
    let found = realm.query(&query, &QueryOptions::default()).unwrap().oids;
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    assert_eq!(found, realm.query(&query, &brute_force).unwrap().oids, "{text}");
    found.len()
}

#[test]
fn objects_with_keys_of_their_own_are_cut_into_segments_of_few_columns() {
    let fixture = Fixture::new(256 << 20);
    let realm = fixture.realm();
    let batch = realm.batch().unwrap();
    (0..4000).for_each(|object| put_own(&realm, object, 20, KEEP));
    batch.commit().unwrap();
    (4000..4600).for_each(|object| put_own(&realm, object, 20, KEEP));
    let batch = realm.batch().unwrap();
    (4600..4900).for_each(|object| put_own(&realm, object, 300, KEEP));
    batch.commit().unwrap();
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    assert!(stats.tail < 256 && stats.segments > 10, "{} in the tail", stats.tail);
    assert_eq!(ask(&realm, "s17_3 = 3"), 1);
    assert_eq!(ask(&realm, "s4300_19 = 19"), 1);
    assert_eq!(ask(&realm, "s4700_299 >= 299"), 1);
    assert_eq!(ask(&realm, "all < 4100"), 4100);
    assert_eq!(sound(&fixture.path).objects, 4900);
}

#[test]
fn queued_objects_with_keys_of_their_own_are_drained() {
    let fixture = Fixture::new(256 << 20);
    let realm = fixture.realm();
    let later = Placement { index: Some(IndexMode::Async), ..OVER };
    let batch = realm.batch().unwrap();
    (0..300).for_each(|object| put_own(&realm, object, 300, later));
    batch.commit().unwrap();
    while realm.drain_queue(1024).unwrap() > 0 {}
    assert_eq!(realm.index_stats().unwrap().queued, 0);
    assert_eq!(ask(&realm, "s299_299 = 299"), 1);
    assert_eq!(sound(&fixture.path).objects, 300);
}

#[test]
fn a_mode_alone_makes_no_families() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let mode = IndexSettings { mode: Some(IndexMode::Sync), ..IndexSettings::default() };
    for group in 0..40 {
        let gid = realm.create_group(realm.root(), &format!("g{group}"), &[], &[], false).unwrap();
        realm.set_index_settings(gid, &mode).unwrap();
    }
    for object in 0..1024 {
        let new = NewObject { attrs: vec![("x".to_owned(), int(object))], ..floats(&[1]) };
        let path = format!("g{}/o{object}", object % 40);
        realm.put(realm.root(), &path, &new, &[7; 8], KEEP).unwrap();
    }
    realm.maintain().unwrap();
    let segments = realm.index_stats().unwrap().segments;
    assert!((1..=8).contains(&segments), "{segments} segments");
    assert_eq!(ask(&realm, "x >= 1000"), 24);
    sound(&fixture.path);
}

#[test]
fn tiny_segments_of_many_tags_are_united() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    for group in 0..50 {
        let gid = realm.create_group(realm.root(), &format!("g{group}"), &[], &[], false).unwrap();
        let own = IndexSettings { split_threshold: Some(50 + group), ..IndexSettings::default() };
        realm.set_index_settings(gid, &own).unwrap();
    }
    let root = IndexSettings { tail_rows: Some(50), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &root).unwrap();
    for object in 0..500 {
        let new = NewObject { attrs: vec![("x".to_owned(), int(object))], ..floats(&[1]) };
        let path = format!("g{}/o{object}", object % 50);
        realm.put(realm.root(), &path, &new, &[7; 8], KEEP).unwrap();
    }
    realm.maintain().unwrap();
    let segments = realm.index_stats().unwrap().segments;
    assert!((50..=200).contains(&segments), "{segments} segments");
    assert_eq!(ask(&realm, "x >= 450"), 50);
    sound(&fixture.path);
}

#[test]
fn what_died_in_one_batch_is_gone_after_a_few_puts() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let settings =
        IndexSettings { segment_rows: Some(64), tail_rows: Some(64), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    (0..1280).for_each(|object| put_own(&realm, object, 0, KEEP));
    realm.maintain().unwrap();
    let batch = realm.batch().unwrap();
    let doomed = (0..1280).filter(|object| object % 5 != 0);
    doomed.for_each(|object| realm.delete(realm.root(), &format!("o{object}")).unwrap());
    batch.commit().unwrap();
    (2000..2030).for_each(|object| put_own(&realm, object, 0, KEEP));
    let stats = realm.index_stats().unwrap();
    assert!(stats.dead * 2 <= stats.sealed, "{} of {} are dead", stats.dead, stats.sealed);
    assert_eq!(ask(&realm, "all < 2000"), 256);
    sound(&fixture.path);
}
