//! What splits and merges groups: sizes, sharing frequencies, what is queried together, and hints.
//! Each is seen to happen, and no answer changes for it; fixed groups stay as they were formed.

use crate::common::{Fixture, KEEP, floats, sound};
use engram::dtype::Unit;
use engram::query::ast::Literal;
use engram::query::parse;
use engram::{
    AttributeGroupStats, DType, IndexSettings, IndexStats, NewObject, Policy, QueryOptions, Realm,
    Value,
};

/// Small segments, so that a few hundred objects are many.
fn small(policy: Policy) -> IndexSettings {
    IndexSettings {
        attributes_per_group: Some(2),
        policy: Some(policy),
        segment_rows: Some(16),
        tail_rows: Some(16),
        ..IndexSettings::default()
    }
}

fn int(value: i64) -> Value {
    let data = value.to_le_bytes().to_vec();
    Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data }
}

fn realm_with(fixture: &Fixture, settings: &IndexSettings) -> Realm {
    let realm = fixture.realm();
    realm.set_index_settings(realm.root(), settings).unwrap();
    realm
}

/// Puts objects with these attributes: `a`, `b`, … from a few values each, `t` ascending.
fn put_some(realm: &Realm, range: std::ops::Range<i64>, keys: &[&str]) {
    for index in range {
        let value = |key: &&str| match *key {
            "t" => index - 100,
            key => index % (2 + i64::from(key.as_bytes()[0] - b'a')),
        };
        let attrs = keys.iter().map(|key| ((*key).to_owned(), int(value(key)))).collect();
        let new = NewObject { attrs, ..floats(&[1]) };
        let name = format!("o{index}-{}", keys.concat());
        realm.put(realm.root(), &name, &new, &[7; 8], KEEP).unwrap();
    }
}

fn ask(realm: &Realm, text: &str, options: &QueryOptions) -> Vec<u64> {
    let query = parse(text).unwrap();
    let found = realm.query(&query, options).unwrap().oids;
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    assert_eq!(found, realm.query(&query, &brute_force).unwrap().oids, "{text}");
    found
}

fn keys_of(group: &AttributeGroupStats) -> Vec<&str> {
    let mut keys: Vec<&str> = group.keys.iter().map(|key| key.key.as_str()).collect();
    keys.sort_unstable();
    keys
}

/// The attribute groups that have blocks or no segments to have them in.
fn groups(stats: &IndexStats) -> Vec<Vec<&str>> {
    let mut groups: Vec<_> = stats.groups.iter().map(keys_of).filter(|k| !k.is_empty()).collect();
    groups.sort();
    groups
}

fn together(stats: &IndexStats, keys: &[&str]) -> bool {
    groups(stats).iter().any(|group| keys.iter().all(|key| group.contains(key)))
}

/// Two keys that lie in two groups.
fn apart(stats: &IndexStats) -> (&str, &str) {
    let groups = groups(stats);
    assert!(groups.len() > 1, "{groups:?}");
    (groups[0][0], groups[1][0])
}

/// Every segment is laid out as its family's groups say: each group has a block in each.
fn rewritten(stats: &IndexStats) -> bool {
    let of = |family| stats.groups.iter().filter(move |group| group.family == family);
    stats.groups.iter().all(|group| of(group.family).all(|other| other.blocks == group.blocks))
}

#[test]
fn keys_that_a_query_hints_at_are_brought_together() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..64, &["a", "b", "c", "d"]);
    realm.maintain().unwrap();
    let before = realm.index_stats().unwrap();
    let (one, other) = apart(&before);
    let text = format!("{one} = 1 and {other} = 1");
    let options = QueryOptions { merge: true, ..QueryOptions::default() };
    let found = ask(&realm, &text, &options);
    assert_eq!(realm.index_stats().unwrap().merges, before.merges, "a query changes nothing");
    realm.maintain().unwrap();
    let after = realm.index_stats().unwrap();
    assert!(together(&after, &[one, other]) && rewritten(&after), "{:?}", groups(&after));
    assert!(after.merges > before.merges);
    assert_eq!(ask(&realm, &text, &options), found);
    assert_eq!(realm.maintain().unwrap(), 0, "the same hint again has nothing left to do");
    sound(&fixture.path);
}

#[test]
fn keys_that_are_often_queried_together_are_brought_together() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..64, &["a", "b", "c", "d"]);
    realm.maintain().unwrap();
    let before = realm.index_stats().unwrap();
    let (one, other) = apart(&before);
    let query = parse(&format!("{one} = 1 and {other} = 1")).unwrap();
    for round in 0..16 {
        assert!(!together(&realm.index_stats().unwrap(), &[one, other]), "round {round}");
        realm.query(&query, &QueryOptions::default()).unwrap();
        realm.maintain().unwrap();
    }
    let after = realm.index_stats().unwrap();
    assert!(together(&after, &[one, other]) && rewritten(&after), "{:?}", groups(&after));
    assert!(after.merges > before.merges);
    sound(&fixture.path);
}

#[test]
fn queries_that_want_a_key_in_two_groups_come_to_rest() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..64, &["a", "b", "c", "d"]);
    let options = QueryOptions { merge: true, ..QueryOptions::default() };
    for _ in 0..20 {
        for text in ["a = 1 and b = 1", "a = 1 and c = 1", "a = 1 and d = 1"] {
            ask(&realm, text, &options);
        }
    }
    // Without rest this would not end.
    realm.maintain().unwrap();
    assert!(rewritten(&realm.index_stats().unwrap()));
    sound(&fixture.path);
}

#[test]
fn a_hint_splits_by_value_and_the_halves_stay() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..200, &["a", "t"]);
    realm.maintain().unwrap();
    assert_eq!(realm.index_stats().unwrap().splits, 0);
    let split_on = Some(("t".to_owned(), Literal::Int(0)));
    let options = QueryOptions { split_on, ..QueryOptions::default() };
    let found = ask(&realm, "t < 0", &options);
    assert_eq!(found.len(), 100);
    // The next commits take it up, and what is left is done at leisure.
    put_some(&realm, 200..201, &["a", "t"]);
    assert_eq!(realm.index_stats().unwrap().splits, 1);
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    let bounds = |bound: &str| stats.groups.iter().any(|g| g.bounds == [bound] && g.blocks > 0);
    assert!(bounds("t < 0") && bounds("t >= 0"), "{stats:?}");
    assert_eq!((stats.splits, stats.families), (1, 2));
    assert_eq!(ask(&realm, "t < 0", &options), found);
    assert_eq!(realm.maintain().unwrap(), 0, "it is split there already");
    // One that parts nothing is none; one within a half splits that.
    let split_on = Some(("t".to_owned(), Literal::Int(50)));
    ask(&realm, "t < 0", &QueryOptions { split_on, ..QueryOptions::default() });
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    assert_eq!((stats.splits, stats.families), (2, 3));
    sound(&fixture.path);
}

/// Puts objects that have a time and a date in text: each a day after the one before.
fn put_days(realm: &Realm, days: std::ops::Range<i64>) {
    let dtype = DType::Scalar { kind: b'M', order: b'<', size: 8, unit: Some((Unit::Day, 1)) };
    for day in days {
        let data = day.to_le_bytes().to_vec();
        let time = Value { dtype: dtype.clone(), shape: Vec::new(), data };
        let text = Value::text(&format!("1970-{:02}-{:02}", 1 + day / 28, 1 + day % 28));
        let attrs = vec![("time".to_owned(), time), ("text".to_owned(), text)];
        let new = NewObject { attrs, ..floats(&[1]) };
        realm.put(realm.root(), &format!("d{day}"), &new, &[7; 8], KEEP).unwrap();
    }
}

#[test]
fn a_date_splits_times_and_texts_alike() {
    for (key, bound) in [("time", "time < \"1970-02-01\""), ("text", "text < \"1970-02-01\"")] {
        let at = Some((key.to_owned(), Literal::Text("1970-02-01".to_owned())));
        let is_split = |realm: &Realm| {
            realm.maintain().unwrap();
            let stats = realm.index_stats().unwrap();
            assert_eq!((stats.splits, stats.families), (1, 2), "{key}");
            assert!(stats.groups.iter().any(|group| group.bounds == [bound]), "{stats:?}");
            for text in [bound, "time >= \"1970-02\"", "text = \"1970-01-07\""] {
                assert!(!ask(realm, text, &QueryOptions::default()).is_empty());
            }
        };
        // Where a query asks for it.
        let fixture = Fixture::new(32 << 20);
        let realm = realm_with(&fixture, &small(Policy::Dynamic));
        put_days(&realm, 0..64);
        realm.maintain().unwrap();
        ask(&realm, bound, &QueryOptions { split_on: at.clone(), ..QueryOptions::default() });
        is_split(&realm);
        // Where settings say so of what is there, and of what comes.
        let settings = IndexSettings { split_on: at, ..small(Policy::Dynamic) };
        for first in [true, false] {
            let fixture = Fixture::new(32 << 20);
            let realm = realm_with(&fixture, &small(Policy::Dynamic));
            if first {
                realm.set_index_settings(realm.root(), &settings).unwrap();
            }
            put_days(&realm, 0..64);
            realm.maintain().unwrap();
            realm.set_index_settings(realm.root(), &settings).unwrap();
            is_split(&realm);
            sound(&fixture.path);
        }
    }
}

#[test]
fn a_hint_lowers_the_threshold_for_the_keys_of_its_query() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..200, &["a", "t"]);
    put_some(&realm, 0..200, &["b", "c", "d"]);
    realm.maintain().unwrap();
    let options = QueryOptions { split_threshold: Some(4), ..QueryOptions::default() };
    let found = ask(&realm, "t >= -20 and t < 3", &options);
    realm.maintain().unwrap();
    let stats = realm.index_stats().unwrap();
    assert!(stats.splits > 1, "{stats:?}");
    let with_t = stats.groups.iter().filter(|group| keys_of(group).contains(&"t"));
    assert!(with_t.clone().count() > 2 && with_t.clone().all(|group| group.blocks <= 4));
    assert_eq!(with_t.map(|group| group.objects).sum::<u64>(), 200);
    let others = stats.groups.iter().filter(|group| keys_of(group).contains(&"b"));
    assert_eq!(others.count(), 1, "the query did not name the keys of these");
    assert_eq!(ask(&realm, "t >= -20 and t < 3", &options), found);
    assert_eq!(realm.maintain().unwrap(), 0);
    sound(&fixture.path);
}

#[test]
fn halves_that_shrink_are_merged() {
    let fixture = Fixture::new(32 << 20);
    let settings = IndexSettings { split_threshold: Some(8), ..small(Policy::Dynamic) };
    let realm = realm_with(&fixture, &settings);
    put_some(&realm, 0..200, &["a", "t"]);
    realm.maintain().unwrap();
    let before = realm.index_stats().unwrap();
    assert!(before.splits > 0 && before.families > 1);
    for index in 10..200 {
        realm.delete(realm.root(), &format!("o{index}-at")).unwrap();
    }
    realm.maintain().unwrap();
    let after = realm.index_stats().unwrap();
    assert!(after.merges > before.merges && after.families < before.families, "{after:?}");
    assert!(after.splits >= before.splits && after.seals >= before.seals, "{after:?}");
    assert_eq!(ask(&realm, "t < 0", &QueryOptions::default()).len(), 10);
    sound(&fixture.path);
}

#[test]
fn what_was_done_to_the_objects_of_a_deleted_group_stays_counted() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    let group = realm.create_group(realm.root(), "g", &[], &[], false).unwrap();
    let settings = IndexSettings { split_threshold: Some(2), ..small(Policy::Dynamic) };
    realm.set_index_settings(group, &settings).unwrap();
    for index in 0..200 {
        let attrs = vec![("t".to_owned(), int(index))];
        let new = NewObject { attrs, ..floats(&[1]) };
        realm.put(group, &format!("o{index}"), &new, &[7; 8], KEEP).unwrap();
    }
    realm.maintain().unwrap();
    let before = realm.index_stats().unwrap();
    assert!(before.splits > 0 && before.seals > 0, "{before:?}");
    realm.delete(realm.root(), "g").unwrap();
    realm.maintain().unwrap();
    let after = realm.index_stats().unwrap();
    assert_eq!(after.families, 0, "{after:?}");
    assert!(after.splits >= before.splits && after.seals >= before.seals, "{after:?}");
    sound(&fixture.path);
}

#[test]
fn a_family_is_told_to_lie_between_the_nearest_bounds() {
    let fixture = Fixture::new(32 << 20);
    let realm = realm_with(&fixture, &small(Policy::Dynamic));
    put_some(&realm, 0..200, &["a", "t"]);
    realm.maintain().unwrap();
    for at in [0, 50, 25, 75] {
        let split_on = Some(("t".to_owned(), Literal::Int(at)));
        ask(&realm, "t < 0", &QueryOptions { split_on, ..QueryOptions::default() });
        realm.maintain().unwrap();
    }
    let stats = realm.index_stats().unwrap();
    assert_eq!((stats.splits, stats.families), (4, 5));
    let mut bounds: Vec<String> = stats.groups.iter().map(|g| g.bounds.join(" and ")).collect();
    bounds.sort_unstable();
    bounds.dedup();
    assert_eq!(
        bounds,
        ["t < 0", "t < 50 and t >= 25", "t >= 0 and t < 25", "t >= 50 and t < 75", "t >= 75"]
    );
}

/// What happens to two attribute groups when a setting says that they fit.
fn united_by(change: impl FnOnce(&mut IndexSettings), keys: [&str; 2]) {
    let fixture = Fixture::new(32 << 20);
    let apart =
        IndexSettings { merge_sf: Some(0), merge_overlap: Some(100), ..small(Policy::Dynamic) };
    let realm = realm_with(&fixture, &apart);
    // Objects with one of the two keys, or both: apart while all of them must have both.
    let put = |round: i64| {
        for index in (round * 24..(round + 1) * 24).step_by(4) {
            put_some(&realm, index..index + 2, &["f", "g", "a", "b"]);
            put_some(&realm, index + 2..index + 3, &["f", "g", "a"]);
            put_some(&realm, index + 3..index + 4, &["f", "g", "b"]);
        }
    };
    (0..4).for_each(put);
    realm.maintain().unwrap();
    let before = realm.index_stats().unwrap();
    assert!(!together(&before, &keys), "{:?}", groups(&before));
    let mut settings = apart.clone();
    change(&mut settings);
    realm.set_index_settings(realm.root(), &settings).unwrap();
    (4..8).for_each(put);
    realm.maintain().unwrap();
    let after = realm.index_stats().unwrap();
    assert!(together(&after, &keys), "{:?}", groups(&after));
    assert!(after.merges > before.merges);
    ask(&realm, "a = 1 and not exists(b)", &QueryOptions::default());
    sound(&fixture.path);
}

#[test]
fn groups_of_few_objects_are_merged() {
    united_by(|settings| settings.merge_sf = Some(16), ["a", "b"]);
}

#[test]
fn groups_of_nearly_the_same_objects_are_merged() {
    united_by(|settings| settings.merge_overlap = Some(50), ["a", "b"]);
}

#[test]
fn fixed_groups_stay_whatever_is_asked() {
    let fixture = Fixture::new(32 << 20);
    let settings = IndexSettings { split_threshold: Some(2), ..small(Policy::Fixed) };
    let realm = realm_with(&fixture, &settings);
    let keys = ["a", "b", "c", "t"];
    put_some(&realm, 0..40, &keys);
    realm.maintain().unwrap();
    let formed = realm.index_stats().unwrap();
    put_some(&realm, 40..200, &keys);
    let options = QueryOptions {
        merge: true,
        split_on: Some(("t".to_owned(), Literal::Int(0))),
        split_threshold: Some(2),
        ..QueryOptions::default()
    };
    for _ in 0..20 {
        ask(&realm, "a = 1 and c = 1 and t < 9", &options);
    }
    realm.maintain().unwrap();
    let after = realm.index_stats().unwrap();
    assert_eq!(groups(&after), groups(&formed));
    assert_eq!((after.splits, after.merges, after.families), (0, 0, 1));
    sound(&fixture.path);
}

#[test]
fn a_hint_that_cannot_be_is_refused() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let options = QueryOptions { split_threshold: Some(1), ..QueryOptions::default() };
    let error = realm.query(&parse("a = 1").unwrap(), &options).unwrap_err();
    assert!(error.message().contains("split_threshold is 1"), "{error}");
}
