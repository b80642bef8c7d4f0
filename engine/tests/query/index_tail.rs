//! The tail: what queries keep of it, when it is sealed, and how much a step does. And what a low
//! threshold makes of families.

use crate::common::{Fixture, KEEP, attach, deadline, floats, fork, sound};
use engram::query::ast::Literal;
use engram::query::parse;
use engram::{DType, IndexSettings, IndexStats, Mode, NewObject, QueryOptions, Realm, Value};

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

/// An array value, which no column keeps.
fn ints(values: &[i64]) -> Value {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: vec![values.len() as u64], data }
}

fn put(realm: &Realm, path: &str, attrs: &[(&str, Value)]) {
    let attrs = attrs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let new = NewObject { attrs, ..floats(&[1]) };
    realm.put(realm.root(), path, &new, &[7; 8], KEEP).unwrap();
}

fn put_some(realm: &Realm, range: std::ops::Range<i64>) {
    for index in range {
        let attrs = [("t", int(index)), ("a", int(index % 7))];
        put(realm, &format!("o{index}"), &attrs);
    }
}

/// How many objects a query finds, how many of the tail it judges, and how many records of these it
/// reads; brute force finds as many.
fn ask(realm: &Realm, text: &str) -> (u64, u64, u64) {
    let query = parse(text).unwrap();
    let why = realm.explain(&query, &QueryOptions::default()).unwrap();
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let plain = realm.query(&query, &brute_force).unwrap().oids;
    assert_eq!(realm.query(&query, &QueryOptions::default()).unwrap().oids, plain, "{text}");
    assert_eq!(why.hits, plain.len() as u64, "{text}");
    (why.hits, why.records.tail, why.records.tail_read)
}

fn tail_of(realm: &Realm) -> u64 {
    realm.index_stats().unwrap().tail
}

#[test]
fn a_record_of_the_tail_is_read_once_and_its_cells_are_judged_from_then_on() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put_some(&realm, 0..60);
    assert_eq!(ask(&realm, "t < 10"), (10, 60, 60));
    assert_eq!(ask(&realm, "t < 20"), (20, 60, 0));
    assert_eq!(
        ask(&realm, "t < 10 and a = 3"),
        (1, 60, 60),
        "another key is read for the first time"
    );
    assert_eq!(ask(&realm, "not t < 10 or a = 3"), (51, 60, 0));
    // What comes is read, and nothing else; what goes and changes is known.
    put_some(&realm, 60..63);
    assert_eq!(ask(&realm, "t < 100 and exists(a)"), (63, 63, 3));
    realm.delete(realm.root(), "o5").unwrap();
    assert_eq!(ask(&realm, "t < 10"), (9, 62, 0));
    put(&realm, "o70", &[("t", int(3)), ("a", int(1))]);
    let object = realm.lookup(realm.root(), "o7").unwrap().unwrap();
    realm.set_attrs(object, &[("t".to_owned(), int(1000))]).unwrap();
    assert_eq!(ask(&realm, "t < 10"), (9, 63, 2));
    assert_eq!(ask(&realm, "t = 1000"), (1, 63, 0));
    sound(&fixture.path);
}

#[test]
fn what_no_cell_keeps_is_asked_of_records_each_time() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put_some(&realm, 0..20);
    let long = "x".repeat(2000);
    put(&realm, "long", &[("t", Value::text(&long))]);
    put(&realm, "many", &[("t", ints(&[1, 2, 3]))]);
    ask(&realm, "t contains 2");
    assert_eq!(ask(&realm, "t contains 2"), (2, 22, 2));
    assert_eq!(ask(&realm, &format!("t = \"{long}\"")), (1, 22, 2));
    assert_eq!(ask(&realm, "t contains 2 and a = 2"), (1, 22, 22), "a is read for the first time");
    sound(&fixture.path);
}

#[test]
fn names_paths_groups_and_built_in_fields_of_the_tail_are_kept_too() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let inner = realm.create_group(realm.root(), "g/h", &[], &[], true).unwrap();
    let units = [("units".to_owned(), Value::text("K"))];
    realm.set_attrs(engram::Member::Group(inner), &units).unwrap();
    for index in 0..30 {
        let place = if index % 3 == 0 { "g/h/" } else { "" };
        put(&realm, &format!("{place}o{index}"), &[("t", int(index))]);
    }
    let texts = [
        "@name = \"o3\"",
        "@path startswith \"g/h/o1\"",
        "@path contains \"/o2\" and t > 3",
        "under(\"g\") and t < 12",
        "group.units = \"K\" or t = 1",
        "@group = \"g/h\" and not @name endswith \"0\"",
        "@nbytes = 8 and @ndim = 1",
        "@owner = \"nobody-of-this-name\"",
        "@modified > \"2001\"",
    ];
    for text in texts {
        ask(&realm, text);
        let (_, judged, read) = ask(&realm, text);
        assert_eq!((judged, read), (30, 0), "{text}");
    }
    // A group that moves is no news of objects: everything is looked at again.
    realm.rename(realm.root(), "g", realm.root(), "k").unwrap();
    assert_eq!(ask(&realm, "under(\"k/h\")").0, 10);
    assert_eq!(ask(&realm, "@path startswith \"g\"").0, 0);
    sound(&fixture.path);
}

#[test]
fn an_older_snapshot_and_a_batch_are_judged_as_they_are() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put_some(&realm, 0..20);
    ask(&realm, "t < 10");
    realm.begin_batch().unwrap();
    put(&realm, "new", &[("t", int(1)), ("a", int(1))]);
    realm.delete(realm.root(), "o3").unwrap();
    assert_eq!(ask(&realm, "t < 10").0, 10);
    realm.abort_batch().unwrap();
    assert_eq!(ask(&realm, "t < 10"), (10, 20, 0));
    sound(&fixture.path);
}

#[test]
fn what_another_process_puts_changes_and_seals_is_seen() {
    crate::common::alone("what_another_process_puts_changes_and_seals_is_seen", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put_some(&realm, 0..20);
        assert_eq!(ask(&realm, "t < 10").0, 10);
        fork(|_| put_some(&realm, 20..25)).finish();
        assert_eq!(ask(&realm, "t >= 10"), (15, 25, 5));
        fork(|_| realm.delete(realm.root(), "o1").unwrap()).finish();
        assert_eq!(ask(&realm, "t < 10"), (9, 24, 0));
        fork(|_| {
            realm.maintain().unwrap();
        })
        .finish();
        assert_eq!(ask(&realm, "t < 10"), (9, 0, 0));
        sound(&fixture.path);
    });
}

#[test]
fn maintenance_seals_a_few_objects_too_and_few_segments_come_of_it() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for round in 0..100 {
        put_some(&realm, round..round + 1);
        realm.maintain().unwrap();
        assert_eq!(tail_of(&realm), 0);
    }
    let stats = realm.index_stats().unwrap();
    assert_eq!((stats.sealed, stats.dead), (100, 0));
    assert!(stats.segments <= 8, "{} segments", stats.segments);
    assert_eq!(ask(&realm, "t < 10"), (10, 0, 0));
    sound(&fixture.path);
}

#[test]
fn the_last_to_close_seals_and_many_that_come_and_go_make_few_segments() {
    crate::common::alone(
        "the_last_to_close_seals_and_many_that_come_and_go_make_few_segments",
        || {
            let fixture = Fixture::new(16 << 20);
            let Fixture { dir, path, pool } = fixture;
            drop(pool);
            for round in 0..40 {
                let (pool, realm) = attach(&path, Mode::ReadWrite);
                put_some(&realm, round..round + 1);
                assert_eq!(tail_of(&realm), 1);
                drop((realm, pool));
            }
            let (pool, realm) = attach(&path, Mode::Read);
            let stats = realm.index_stats().unwrap();
            assert_eq!((stats.tail, stats.sealed), (0, 40));
            assert!(stats.segments <= 8, "{} segments", stats.segments);
            drop((realm, pool));
            // Where another has it open, that one sees to it.
            let (pool, realm) = attach(&path, Mode::ReadWrite);
            fork(|_| {
                let (pool, realm) = attach(&path, Mode::ReadWrite);
                put_some(&realm, 40..41);
                drop((realm, pool));
            })
            .finish();
            let until = deadline();
            while tail_of(&realm) > 0 {
                assert!(std::time::Instant::now() < until, "nobody seals the tail");
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            drop((realm, pool));
            sound(&path);
            drop(dir);
        },
    );
}

#[test]
fn an_idle_realm_is_sealed_and_maintained() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let split_on = Some(("t".to_owned(), Literal::Int(300)));
    for round in 0..5 {
        realm.begin_batch().unwrap();
        put_some(&realm, round * 200..(round + 1) * 200);
        realm.commit_batch().unwrap();
    }
    let options = QueryOptions { split_on, ..QueryOptions::default() };
    realm.query(&parse("t < 300").unwrap(), &options).unwrap();
    let until = deadline();
    loop {
        let stats = realm.index_stats().unwrap();
        if stats.tail == 0 && stats.splits == 1 && stats.families == 2 {
            break;
        }
        assert!(std::time::Instant::now() < until, "nobody maintains the index: {stats:?}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(ask(&realm, "t < 300").0, 300);
    sound(&fixture.path);
}

#[test]
fn one_step_seals_no_more_than_a_segment_and_so_many_bytes() {
    let fixture = Fixture::new(256 << 20);
    let realm = fixture.realm();
    let long = IndexSettings { tail_rows: Some(1 << 20), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &long).unwrap();
    let text = Value::text(&"y".repeat(8000));
    realm.begin_batch().unwrap();
    put_some(&realm, 0..10_000);
    for index in 0..1000 {
        put(&realm, &format!("wide{index}"), &[("text", text.clone())]);
    }
    realm.commit_batch().unwrap();
    assert_eq!(tail_of(&realm), 11_000);
    // From now on it is due, and what waits was put before: each commit takes one step.
    let short = IndexSettings { segment_rows: Some(1024), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &short).unwrap();
    let mut before = tail_of(&realm);
    let mut steps = 0;
    while before > 300 {
        put_some(&realm, 20_000 + steps..20_001 + steps);
        let after = tail_of(&realm);
        assert!(before + 1 - after <= 1024, "one step sealed {} objects", before + 1 - after);
        (before, steps) = (after, steps + 1);
    }
    // The wide ones, of 8 MB in all, take four steps at least.
    assert!(steps >= 12, "{steps} steps");
    sound(&fixture.path);
}

/// Settings of small segments, so that a few thousand objects are many.
fn tiny(threshold: u32) -> IndexSettings {
    IndexSettings {
        segment_rows: Some(64),
        tail_rows: Some(16),
        split_threshold: Some(threshold),
        ..IndexSettings::default()
    }
}

fn shuffled(realm: &Realm, objects: i64) -> IndexStats {
    for index in 0..objects {
        let attrs = [("t", int(index * 7919 % 10_007)), ("a", int(index % 7))];
        put(realm, &format!("s{index}"), &attrs);
    }
    realm.index_stats().unwrap()
}

#[test]
fn a_low_threshold_splits_by_objects_and_starts_no_storm() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    realm.set_index_settings(realm.root(), &tiny(2)).unwrap();
    let stats = shuffled(&realm, 4000);
    // 4000 objects are 63 full segments: as many leaves at most, and some small segments of each.
    assert!(stats.splits > 8 && stats.families <= 125, "{} families", stats.families);
    let leaves = stats.families;
    assert!(stats.segments <= 5 * leaves.max(63), "{} segments, {leaves} leaves", stats.segments);
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    assert_eq!((stats.tail, stats.sealed - stats.dead), (0, 4000));
    ask(&realm, "t < 500");
    ask(&realm, "t = 77 and a = 3");
    sound(&fixture.path);
}

#[test]
fn a_value_hint_on_a_group_splits_what_is_there_already() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    realm.set_index_settings(realm.root(), &tiny(100)).unwrap();
    let group = realm.create_group(realm.root(), "g", &[], &[], true).unwrap();
    for index in 0..300 {
        put(&realm, &format!("g/o{index}"), &[("t", int(index))]);
        put(&realm, &format!("o{index}"), &[("t", int(index))]);
    }
    realm.maintain().unwrap();
    assert_eq!(realm.index_stats().unwrap().splits, 0);
    let on = |at: i64| Some(("t".to_owned(), Literal::Int(at)));
    let own = IndexSettings { split_on: on(100), ..IndexSettings::default() };
    realm.set_index_settings(group, &own).unwrap();
    realm.maintain().unwrap();
    let apart = |tag: Option<&str>, bound: &str| {
        let stats = realm.index_stats().unwrap();
        let of = |group: &&engram::AttributeGroupStats| {
            group.group == 0 && group.tag.as_deref() == tag && group.bounds == [bound]
        };
        stats.groups.iter().filter(of).map(|group| group.objects).sum::<u64>()
    };
    assert_eq!((apart(Some("g"), "t < 100"), apart(Some("g"), "t >= 100")), (100, 200));
    assert_eq!(apart(None, "t < 100"), 0, "the others are as they were");
    // The root's objects are of no other tag.
    let all = IndexSettings { split_on: on(250), ..tiny(100) };
    realm.set_index_settings(realm.root(), &all).unwrap();
    realm.maintain().unwrap();
    assert_eq!((apart(None, "t < 250"), apart(None, "t >= 250")), (250, 50));
    for text in ["t < 100", "t >= 250", "under(\"g\") and t < 20"] {
        ask(&realm, text);
    }
    sound(&fixture.path);
}

#[test]
fn what_queries_ask_for_is_bounded_and_changes_no_setting() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    realm.set_index_settings(realm.root(), &tiny(100)).unwrap();
    let before = shuffled(&realm, 3000);
    realm.maintain().unwrap();
    for at in 0..200 {
        let options = QueryOptions {
            split_on: Some(("t".to_owned(), Literal::Int(at * 50))),
            split_threshold: Some(2),
            ..QueryOptions::default()
        };
        realm.query(&parse("a = 3").unwrap(), &options).unwrap();
        realm.maintain().unwrap();
    }
    let after = realm.index_stats().unwrap();
    assert!(after.splits > before.splits);
    assert!(after.splits - before.splits <= 16, "{} splits", after.splits);
    assert_eq!(realm.index_settings(realm.root()).unwrap(), tiny(100));
    // A part too small to pay is none.
    let another = Fixture::new(64 << 20);
    let realm = another.realm();
    realm.set_index_settings(realm.root(), &tiny(100)).unwrap();
    shuffled(&realm, 1000);
    let split_on = Some(("t".to_owned(), Literal::Int(-5)));
    let options = QueryOptions { split_on, ..QueryOptions::default() };
    realm.query(&parse("t < -5").unwrap(), &options).unwrap();
    realm.maintain().unwrap();
    assert_eq!(realm.index_stats().unwrap().splits, 0);
    sound(&fixture.path);
    sound(&another.path);
}
