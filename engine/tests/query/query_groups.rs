//! Queries about groups: many of them, that come, go and move while queries are asked.

use crate::common::Fixture;
use engram::query::parse;
use engram::{NewObject, Placement, QueryOptions, Realm, Value};

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: engram::DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

/// Makes objects in one group after the other, so many in each.
fn fill(realm: &Realm, groups: std::ops::Range<i64>, objects: i64) {
    let batch = realm.batch().unwrap();
    for group in groups {
        let path = format!("run{}/g{group}", group / 10);
        let attrs = [("level".to_owned(), int(group % 3))];
        realm.create_group(realm.root(), &path, &attrs, &[], true).unwrap();
        for object in 0..objects {
            let attrs = vec![("step".to_owned(), int(object))];
            let new = NewObject { attrs, ..NewObject::blob() };
            let path = format!("{path}/o{object}");
            realm.put(realm.root(), &path, &new, b"x", Placement::default()).unwrap();
        }
    }
    batch.commit().unwrap();
}

const QUERIES: [&str; 9] = [
    "under(\"run3\")",
    "under(\"run3/g31\") and step > 3",
    "not under(\"run1\") and step = 2",
    "@group like \"run%1\" or @group = \"run2/g20\"",
    "@path contains \"n4/g4\"",
    "@path startswith \"run5/g5\" and step = 1",
    "group.level = 2 and step = 0",
    "not group.level > 0",
    "under(\"nothing\") or under(\"run0\")",
];

fn check(realm: &Realm) {
    for text in QUERIES {
        let query = parse(text).unwrap();
        let brute = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let expected = realm.query(&query, &brute).unwrap().oids;
        for threads in [1, 3] {
            let options = QueryOptions {
                threads: Some(threads),
                threads_for_little: true,
                ..QueryOptions::default()
            };
            assert_eq!(realm.query(&query, &options).unwrap().oids, expected, "{text}");
            let count = realm.query_count(&query, &options).unwrap();
            assert_eq!(count, expected.len() as u64, "{text}");
        }
    }
}

/// Segments of few rows, and no splits.
fn small(realm: &Realm) {
    let small = engram::IndexSettings {
        segment_rows: Some(64),
        split_threshold: Some(10_000),
        ..Default::default()
    };
    realm.set_index_settings(realm.root(), &small).unwrap();
}

#[test]
fn groups_that_come_go_and_move_are_found_as_a_look_at_each_finds_them() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    small(&realm);
    fill(&realm, 0..60, 12);
    realm.maintain().unwrap();
    check(&realm);
    let root = realm.root();
    realm.rename(root, "run3/g31", root, "run1/g31").unwrap();
    check(&realm);
    realm.rename(root, "run1", root, "run3/within").unwrap();
    check(&realm);
    fill(&realm, 60..64, 3);
    check(&realm);
    realm.delete(root, "run4/g44").unwrap();
    check(&realm);
    // A batch sees what it has done to groups, and objects.
    let batch = realm.batch().unwrap();
    check(&realm);
    let new = NewObject { attrs: vec![("step".to_owned(), int(1))], ..NewObject::blob() };
    realm.put(root, "run3/g33/new", &new, b"x", Placement::default()).unwrap();
    check(&realm);
    realm.rename(root, "run5", root, "run3/g5").unwrap();
    check(&realm);
    batch.commit().unwrap();
    check(&realm);
    realm.maintain().unwrap();
    check(&realm);
}

#[test]
fn segments_of_groups_that_all_pass_are_not_opened_nor_those_of_which_none_does() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    small(&realm);
    // Groups whose ids are close to each other look the same to zones, so there are many.
    fill(&realm, 0..6000, 4);
    realm.maintain().unwrap();
    let all = realm.index_stats().unwrap().segments;
    assert!(all > 300, "{all}");
    realm.create_group(realm.root(), "half", &[], &[], true).unwrap();
    for run in 0..300 {
        let (from, to) = (format!("run{run}"), format!("half/run{run}"));
        realm.rename(realm.root(), &from, realm.root(), &to).unwrap();
    }
    let query = parse("under(\"half\")").unwrap();
    let explained = realm.explain(&query, &QueryOptions::default()).unwrap();
    assert_eq!(explained.hits, 12_000);
    let open = explained.segments.iter().filter(|segment| segment.read).count();
    let whole = explained.segments.iter().filter(|s| !s.read && s.hits > 0).count();
    assert!(whole > 10 && open * 4 < explained.segments.len(), "{open} open, {whole} whole");
}

#[test]
fn another_handle_sees_groups_that_change() {
    let fixture = Fixture::new(16 << 20);
    let (realm, peer) = (fixture.realm(), fixture.realm());
    small(&realm);
    fill(&realm, 0..60, 4);
    realm.maintain().unwrap();
    check(&peer);
    let root = realm.root();
    realm.rename(root, "run2", root, "run3/run2").unwrap();
    check(&peer);
}
