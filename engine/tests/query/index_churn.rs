//! Objects that come and go: what the index and the catalog keep is of those that live.

use std::collections::BTreeSet;

use crate::common::{Fixture, KEEP, attach, catalog_of, floats, report_of, sound};
use engram::catalog::{Headroom, Table};
use engram::query::parse;
use engram::{DType, IndexSettings, Mode, NewObject, QueryOptions, Realm, Value};

/// Objects of one round, and keys that only they have.
const OBJECTS: i64 = 400;
const OWN_KEYS: i64 = 50;

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

fn put(realm: &Realm, round: i64, object: i64) {
    let own = format!("own_{round}_{}", object % OWN_KEYS);
    let attrs = vec![("step".to_owned(), int(object)), (own, int(round))];
    let new = NewObject { attrs, ..floats(&[1]) };
    realm.put(realm.root(), &format!("r{round}-{object}"), &new, &[7; 8], KEEP).unwrap();
}

/// Ten rounds of objects, each with keys of its own; all but the last round's are deleted.
fn rounds(realm: &Realm) {
    for round in 0..10 {
        let batch = realm.batch().unwrap();
        (0..OBJECTS).for_each(|object| put(realm, round, object));
        batch.commit().unwrap();
        realm.maintain().unwrap();
        if round < 9 {
            let batch = realm.batch().unwrap();
            for object in 0..OBJECTS {
                realm.delete(realm.root(), &format!("r{round}-{object}")).unwrap();
            }
            batch.commit().unwrap();
            realm.maintain().unwrap();
        }
    }
}

fn check(realm: &Realm) {
    for text in ["step < 10", "own_9_7 = 9", "exists(step)", "not exists(own_0_1)"] {
        let query = parse(text).unwrap();
        let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let plain = realm.query(&query, &brute_force).unwrap();
        assert_eq!(realm.query(&query, &QueryOptions::default()).unwrap(), plain, "{text}");
    }
}

/// The attribute keys that families name.
fn keys_of_families(realm: &Realm) -> BTreeSet<String> {
    let groups = realm.index_stats().unwrap().groups.into_iter();
    groups.flat_map(|group| group.keys).map(|key| key.key).collect()
}

fn names_of_keys(fixture: &Fixture) -> u64 {
    let catalog = catalog_of(fixture);
    let txn = catalog.read().unwrap();
    txn.entries(Table::Keys).unwrap() / 2
}

#[test]
fn families_forget_what_their_objects_had_that_are_gone() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    rounds(&realm);
    let keys = keys_of_families(&realm);
    let of_last = |key: &String| key == "step" || key.starts_with("own_9_");
    assert!(keys.iter().all(of_last), "{keys:?}");
    assert_eq!(keys.len() as i64, OWN_KEYS + 1);
    let stats = realm.index_stats().unwrap();
    assert!(stats.families <= 64 && stats.segments <= 64, "{stats:?}");
    check(&realm);
    sound(&fixture.path);
}

#[test]
fn a_family_counts_anew_when_most_of_its_objects_have_gone() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let small =
        IndexSettings { segment_rows: Some(64), tail_rows: Some(32), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &small).unwrap();
    let put = |object: i64, key: &str| {
        let attrs = vec![
            ("step".to_owned(), int(object)),
            ("level".to_owned(), int(object % 3)),
            (key.to_owned(), int(1)),
        ];
        let new = NewObject { attrs, ..floats(&[1]) };
        realm.put(realm.root(), &format!("o{object}"), &new, &[7; 8], KEEP).unwrap();
    };
    (0..640).for_each(|object| put(object, "early"));
    (640..896).for_each(|object| put(object, "late"));
    realm.maintain().unwrap();
    assert!(keys_of_families(&realm).contains("early"));
    (0..640).for_each(|object| realm.delete(realm.root(), &format!("o{object}")).unwrap());
    realm.maintain().unwrap();
    let keys: Vec<String> = keys_of_families(&realm).into_iter().collect();
    assert_eq!(keys, ["late", "level", "step"]);
    check(&realm);
    sound(&fixture.path);
}

#[test]
fn where_groups_are_fixed_a_family_stays_what_it_was() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let policy = Some(engram::Policy::Fixed);
    let fixed = IndexSettings { policy, ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &fixed).unwrap();
    rounds(&realm);
    assert!(keys_of_families(&realm).contains("own_0_0"));
    check(&realm);
    sound(&fixture.path);
}

#[test]
fn compaction_leaves_names_of_keys_behind_that_nobody_has() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    rounds(&realm);
    let group = realm.create_group(realm.root(), "g", &[("of a group".into(), int(1))], &[], true);
    group.unwrap();
    drop(realm);
    fixture.pool.close();
    assert_eq!(names_of_keys(&fixture) as i64, 10 * OWN_KEYS + 2);
    engram::compact(&fixture.path).unwrap();
    assert_eq!(names_of_keys(&fixture) as i64, OWN_KEYS + 2);
    sound(&fixture.path);
    let (pool, realm) = attach(&fixture.path, Mode::ReadWrite);
    check(&realm);
    // A key that comes again gets a number that no other has had.
    put(&realm, 0, 3);
    put(&realm, 9, 1000);
    realm.maintain().unwrap();
    check(&realm);
    let copy = fixture.dir.path().join("copy");
    engram::backup(&pool, &copy, true).unwrap();
    drop(realm);
    pool.close();
    assert_eq!(names_of_keys(&fixture) as i64, OWN_KEYS + 3);
    sound(&fixture.path);
    sound(&copy);
}

#[test]
fn verify_finds_a_number_without_a_name_and_one_that_is_yet_to_be_given() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    (0..300).for_each(|object| put(&realm, 0, object));
    realm.maintain().unwrap();
    drop(realm);
    fixture.pool.close();
    sound(&fixture.path);
    let change = |key: &[u8], table: Table, row: Option<&[u8]>| {
        let catalog = catalog_of(&fixture);
        let mut txn = catalog.write(Headroom::Normal).unwrap();
        let before = txn.get(table, key).unwrap().map(<[u8]>::to_vec);
        match row {
            Some(row) => txn.put(table, key, row).unwrap(),
            None => drop(txn.delete(table, key).unwrap()),
        }
        txn.commit().unwrap();
        before
    };
    for (table, key, row, said) in [
        (Table::Meta, &b"keys"[..], Some(&3_u64.to_le_bytes()[..]), "is the next"),
        (Table::Meta, &b"group_changes"[..], Some(&b"none"[..]), "group_changes"),
        (Table::Keys, &b"i\0\0\0\x07"[..], None, "unknown"),
    ] {
        let before = change(key, table, row);
        let report = report_of(&fixture.path);
        assert!(report.problems.iter().any(|problem| problem.contains(said)), "{said}: {report:?}");
        change(key, table, before.as_deref());
        sound(&fixture.path);
    }
}
