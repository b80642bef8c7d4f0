//! Tests of few values: how many segments they open, before and after splits.

use crate::common::{Fixture, KEEP, floats, sound};
use engram::query::parse;
use engram::{DType, IndexSettings, NewObject, QueryOptions, Realm, Value};

fn value(kind: u8, data: &[u8]) -> Value {
    let dtype = DType::scalar(kind, b'<', data.len() as u32);
    Value { dtype, shape: Vec::new(), data: data.to_vec() }
}

fn mixed(at: u32) -> u32 {
    at.wrapping_mul(2_654_435_761) ^ at.wrapping_mul(40_503) >> 7
}

fn put(realm: &Realm, at: u32) {
    let id = mixed(at);
    let odd = match at % 97 {
        0 => value(b'f', &f64::NAN.to_le_bytes()),
        1 => value(b'u', &(u64::MAX - u64::from(id)).to_le_bytes()),
        2 => Value::text(&"long ".repeat(300)),
        3 => value(b'f', &(f64::from(id) / 3.0).to_le_bytes()),
        _ => value(b'i', &i64::from(id).to_le_bytes()),
    };
    let attrs = vec![
        ("id".to_owned(), value(b'i', &i64::from(id).to_le_bytes())),
        ("label".to_owned(), Value::text(&format!("granule {id:08x}"))),
        ("odd".to_owned(), odd),
        ("step".to_owned(), value(b'i', &i64::from(at / 10).to_le_bytes())),
    ];
    let new = NewObject { attrs, ..floats(&[1]) };
    realm.put(realm.root(), &format!("o{at}"), &new, &[7; 8], KEEP).unwrap();
}

fn fill(realm: &Realm, objects: std::ops::Range<u32>) {
    let batch = realm.batch().unwrap();
    objects.for_each(|at| put(realm, at));
    batch.commit().unwrap();
}

/// A pool whose index was split often, and has small segments in each family.
fn split() -> Fixture {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let settings = IndexSettings {
        segment_rows: Some(128),
        tail_rows: Some(64),
        split_threshold: Some(2),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).unwrap();
    for part in 0..30 {
        fill(&realm, part * 100..part * 100 + 100);
    }
    realm.maintain().unwrap();
    fixture
}

fn points(at: u32) -> Vec<String> {
    let id = mixed(at);
    vec![
        format!("id = {id}"),
        format!("id = {id}.0"),
        format!("label = \"granule {id:08x}\""),
        format!("odd = {id}"),
        format!("odd = {}", u64::MAX - u64::from(id)),
        format!("id between {id} and {}", id.saturating_add(2)),
        format!("id in ({id}, 17, {})", mixed(at + 1)),
        format!("id = {id} and step = {}", at / 10),
        format!("id = {id} or label = \"nothing\""),
        format!("not (id != {id})"),
        format!("@name = \"o{at}\""),
    ]
}

fn check(realm: &Realm, text: &str) {
    let query = parse(text).unwrap();
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let plain = realm.query(&query, &brute_force).unwrap();
    for threads in [1, 2] {
        let options = QueryOptions {
            threads: Some(threads),
            threads_for_little: true,
            ..QueryOptions::default()
        };
        assert_eq!(realm.query(&query, &options).unwrap(), plain, "{text}");
    }
}

/// How many segments a query opens, and how many hits it has.
fn opened(realm: &Realm, text: &str) -> (usize, u64) {
    let options = QueryOptions { threads: Some(1), ..QueryOptions::default() };
    let explained = realm.explain(&parse(text).unwrap(), &options).unwrap();
    (explained.segments.iter().filter(|segment| segment.read).count(), explained.hits)
}

#[test]
fn segments_that_were_opened_in_vain_are_not_opened_for_ever() {
    let fixture = split();
    let realm = fixture.realm();
    assert!(realm.index_stats().unwrap().families > 4);
    // Families of their own, each with a small segment, whose values are in no run yet.
    for other in 0..8 {
        let batch = realm.batch().unwrap();
        for at in 0..64_u32 {
            let id = mixed(5000 + other * 64 + at);
            let mut attrs = vec![("id".to_owned(), value(b'i', &i64::from(id).to_le_bytes()))];
            let own = |key: u32| (format!("own_{other}_{key}"), value(b'i', &[1; 8]));
            attrs.extend((0..3).map(own));
            let new = NewObject { attrs, ..floats(&[1]) };
            let name = format!("other/{other}/{at}");
            realm.put(realm.root(), &name, &new, &[7; 8], KEEP).unwrap();
        }
        batch.commit().unwrap();
    }
    let at = |round: u32| mixed(round * 41 % 3000);
    let (first, hits) = opened(&realm, &format!("id = {}", at(7)));
    assert!(first > 4 && hits <= 1, "{first} segments were opened for one value");
    // A query reads a few columns, so it takes some.
    for round in 1..40 {
        opened(&realm, &format!("id = {}", at(round)));
    }
    for round in 40..60 {
        let (open, hits) = opened(&realm, &format!("id = {}", at(round)));
        assert!(open as u64 <= hits, "{open} segments were opened for {hits} hits");
        let range = format!("id between {} and {}", at(round), u64::from(at(round)) + 3);
        let (open, hits) = opened(&realm, &range);
        assert!(open as u64 <= hits, "{open} segments were opened for {hits} hits");
    }
    // What comes then is found, and opened at first.
    fill(&realm, 3000..3100);
    realm.maintain().unwrap();
    (3000..3100).step_by(7).for_each(|at| check(&realm, &format!("id = {}", mixed(at))));
    sound(&fixture.path);
}

#[test]
fn points_are_found_as_a_look_at_each_finds_them_however_often_they_are_asked_for() {
    let fixture = split();
    let realm = fixture.realm();
    for round in 0..4 {
        for at in [0, 1, 2, 3, 97, 98, 99, 100, 777, 1500, 2999] {
            for text in points(at) {
                check(&realm, &text);
            }
        }
        // Some go, and some are there again with other values.
        for at in (round * 7..3000).step_by(31) {
            let _ = realm.delete(realm.root(), &format!("o{at}"));
        }
        fill(&realm, 3000 + round * 100..3100 + round * 100);
        realm.maintain().unwrap();
        for at in [3000 + round * 100, 3050 + round * 100] {
            for text in points(at) {
                check(&realm, &text);
            }
        }
    }
    sound(&fixture.path);
}
