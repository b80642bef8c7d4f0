//! What queries promise beside the truth: order, limits, modes, one snapshot, and an explanation.

use crate::common::{Fixture, blob, lookup};
use engram::query::parse;
use engram::{
    Consistency, DType, IndexMode, IndexSettings, Member, NewObject, Oid, Placement, QueryOptions,
    Realm, Value,
};

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

fn put(realm: &Realm, path: &str, attrs: &[(&str, Value)], index: IndexMode) -> Oid {
    let attrs = attrs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let new = NewObject { attrs, ..blob() };
    let placement = Placement { overwrite: true, index: Some(index), ..Placement::default() };
    realm.put(realm.root(), path, &new, b"", placement).unwrap()
}

fn names(realm: &Realm, query: &str, options: &QueryOptions) -> Vec<String> {
    realm.query_names(&parse(query).unwrap(), options).unwrap()
}

fn small(realm: &Realm) {
    let settings =
        IndexSettings { segment_rows: Some(8), tail_rows: Some(4), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &settings).unwrap();
}

#[test]
fn what_lacks_the_key_comes_last_in_both_directions() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    small(&realm);
    for (name, value) in [("two", Some(2)), ("none", None), ("one", Some(1)), ("again", Some(1))] {
        let attrs: Vec<_> = value.map(|value| ("k", int(value))).into_iter().collect();
        put(&realm, name, &attrs, IndexMode::Sync);
    }
    let all = QueryOptions::default();
    assert_eq!(names(&realm, "order by k", &all), ["one", "again", "two", "none"]);
    assert_eq!(names(&realm, "order by k desc", &all), ["two", "one", "again", "none"]);
    assert_eq!(names(&realm, "order by k desc, @name limit 2", &all), ["two", "again"]);
}

#[test]
fn a_limit_leaves_the_objects_that_are_oldest() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    small(&realm);
    for number in 0..50 {
        // Two families, in turn: their segments overlap.
        let key = if number % 2 == 0 { "even" } else { "odd" };
        put(&realm, &format!("{number:02}"), &[(key, int(number))], IndexMode::Sync);
    }
    realm.maintain().unwrap();
    for limit in [0, 1, 7, 49, 50, 51] {
        let found = names(&realm, &format!("limit {limit}"), &QueryOptions::default());
        let oldest: Vec<String> = (0..50.min(limit)).map(|number| format!("{number:02}")).collect();
        assert_eq!(found, oldest, "limit {limit}");
    }
}

#[test]
fn an_object_that_is_not_indexed_answers_built_in_fields_alone() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    put(&realm, "seen", &[("k", int(1))], IndexMode::Sync);
    put(&realm, "hidden", &[("k", int(1))], IndexMode::None);
    for brute_force in [false, true] {
        let options = QueryOptions { brute_force, ..QueryOptions::default() };
        assert_eq!(names(&realm, "k = 1", &options), ["seen"]);
        assert_eq!(names(&realm, "not exists(k)", &options), ["hidden"]);
        assert_eq!(names(&realm, "@nbytes = 0", &options), ["seen", "hidden"]);
        let all = parse("").unwrap();
        assert_eq!(realm.query_count(&all, &options).unwrap(), 2);
        assert_eq!(realm.query_count_attributes(&all, &options).unwrap(), 1);
    }
}

#[test]
fn a_deleted_object_never_appears_even_where_the_queue_is_not_read() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    small(&realm);
    for number in 0..40 {
        put(&realm, &format!("{number}"), &[("k", int(number))], IndexMode::Async);
    }
    realm.drain_queue(u64::MAX).unwrap();
    realm.maintain().unwrap();
    realm
        .set_attrs(Member::Object(lookup(&realm, "7").unwrap()), &[("k".into(), int(99))])
        .unwrap();
    realm.delete(realm.root(), "7").unwrap();
    realm.delete(realm.root(), "8").unwrap();
    for consistency in [Consistency::Strong, Consistency::Eventual] {
        let options = QueryOptions { consistency, ..QueryOptions::default() };
        assert_eq!(names(&realm, "k between 6 and 9 or k = 99", &options), ["6", "9"]);
    }
}

#[test]
fn a_query_sees_all_of_a_batch_or_nothing_of_it() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    small(&realm);
    let ends = ["a", "b"].map(|name| put(&realm, name, &[("k", int(0))], IndexMode::Sync));
    let query = parse("k = 1").unwrap();
    let writer = realm.clone();
    let writing = std::thread::spawn(move || {
        for round in 0..400 {
            writer.begin_batch().unwrap();
            for (place, oid) in ends.into_iter().enumerate() {
                let value = int(i64::from((round + place) % 2 == 0));
                writer.set_attrs(Member::Object(oid), &[("k".into(), value)]).unwrap();
            }
            writer.commit_batch().unwrap();
        }
    });
    let mut found = Vec::new();
    while !writing.is_finished() {
        found.push(realm.query_count(&query, &QueryOptions::default()).unwrap());
    }
    writing.join().unwrap();
    let first = found.iter().position(|count| *count > 0).unwrap_or(found.len());
    assert!(found[first..].iter().all(|count| *count == 1), "{found:?}");
    assert_eq!(realm.query_count(&query, &QueryOptions::default()).unwrap(), 1);
}

#[test]
fn an_explanation_tells_what_was_read_and_why_not() {
    let fixture = Fixture::new(4 << 20);
    let realm = fixture.realm();
    small(&realm);
    for number in 0..64 {
        put(&realm, &format!("{number}"), &[("k", int(number))], IndexMode::Sync);
    }
    realm.maintain().unwrap();
    put(&realm, "last", &[("k", int(3))], IndexMode::Sync);
    let query = parse("k = 3 and @name like \"%\"").unwrap();
    let why = realm.explain(&query, &QueryOptions::default()).unwrap();
    assert_eq!(why.hits, 2);
    assert_eq!(why.records.tail, 1);
    let read: Vec<_> = why.segments.iter().filter(|segment| segment.read).collect();
    assert_eq!(read.len(), 1, "{why:?}");
    assert_eq!((read[0].hits, read[0].verified), (1, 0));
    assert!(why.segments.iter().filter(|s| !s.read).all(|s| s.why.contains("zones")), "{why:?}");
    assert!(why.segments.len() > 4);
    assert_eq!(why.leaves.len(), 2);
    assert_eq!(why.leaves[0].test, "k = 3");
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let why = realm.explain(&query, &brute_force).unwrap();
    assert_eq!((why.hits, why.records.scanned, why.segments.len()), (2, 65, 0));
}
