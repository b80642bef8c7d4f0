//! Settings: which hold where, after groups move and settings change, in batches and beside other
//! processes; and what is tagged by them.

use crate::common::{Fixture, KEEP, alone, floats, fork, lookup, sound};
use engram::query::parse;
use engram::{
    DType, IndexMode, IndexSettings, Kind, Member, NewObject, Oid, QueryOptions, Realm, Value,
};

fn of_mode(mode: IndexMode) -> IndexSettings {
    IndexSettings { mode: Some(mode), ..IndexSettings::default() }
}

fn make(realm: &Realm, path: &str) -> u64 {
    realm.create_group(realm.root(), path, &[], &[], true).unwrap()
}

fn set(realm: &Realm, group: &str, mode: IndexMode) {
    realm.set_index_settings(lookup(realm, group).unwrap(), &of_mode(mode)).unwrap();
}

fn put(realm: &Realm, path: &str) -> Oid {
    let data = 7_i64.to_le_bytes().to_vec();
    let value = Value { dtype: DType::scalar(b'i', b'<', 8), shape: Vec::new(), data };
    let new = NewObject { attrs: vec![("a".into(), value)], ..floats(&[1]) };
    realm.put(realm.root(), path, &new, &[7; 8], KEEP).unwrap()
}

/// Whether an object put now is indexed.
fn indexes(realm: &Realm, path: &str) -> bool {
    let before = realm.index_stats().unwrap().unindexed;
    put(realm, path);
    realm.index_stats().unwrap().unindexed == before
}

#[test]
fn what_is_set_or_moved_counts_from_then_on() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    make(&realm, "plain");
    make(&realm, "bare/inner");
    assert!(indexes(&realm, "bare/inner/0"));
    set(&realm, "bare", IndexMode::None);
    assert!(!indexes(&realm, "bare/inner/1") && indexes(&realm, "plain/1"));
    realm.rename(realm.root(), "bare/inner", realm.root(), "plain/inner").unwrap();
    assert!(indexes(&realm, "plain/inner/2") && !indexes(&realm, "bare/2"));
    realm.rename(realm.root(), "plain", realm.root(), "bare/plain").unwrap();
    assert!(!indexes(&realm, "bare/plain/inner/3"));
    set(&realm, "bare/plain/inner", IndexMode::Sync);
    assert!(indexes(&realm, "bare/plain/inner/4") && !indexes(&realm, "bare/plain/4"));
    let inner = lookup(&realm, "bare/plain/inner").unwrap();
    realm.set_index_settings(inner, &IndexSettings::default()).unwrap();
    assert!(!indexes(&realm, "bare/plain/inner/5"));
    // A group made anew at the same path has none of the old one's.
    realm.delete(realm.root(), "bare").unwrap();
    assert!(indexes(&realm, "bare/plain/6"));
    sound(&fixture.path);
}

#[test]
fn a_batch_sees_its_own_settings_and_nobody_else_does_until_it_ends() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    make(&realm, "g/inner");
    set(&realm, "g", IndexMode::Sync);
    assert!(indexes(&realm, "g/inner/0"));
    let unindexed = || realm.index_stats().unwrap().unindexed;
    for (keep, expected) in [(false, 0), (true, 2)] {
        realm.begin_batch().unwrap();
        set(&realm, "g", IndexMode::None);
        put(&realm, "g/inner/1");
        put(&realm, "g/inner/2");
        let other = |path: String| std::thread::scope(|s| s.spawn(|| put(&realm, &path)).join());
        let indexed = other(format!("g/inner/meanwhile-{keep}")).unwrap();
        assert!(realm.object(indexed).is_ok());
        assert_eq!(unindexed(), 0, "what another thread puts is indexed");
        if keep { realm.commit_batch() } else { realm.abort_batch() }.unwrap();
        assert_eq!(unindexed(), expected);
    }
    assert!(!indexes(&realm, "g/inner/3"));
    sound(&fixture.path);
}

#[test]
fn batches_conflict_with_who_moves_groups_or_sets_but_not_with_who_annotates() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    make(&realm, "a/b/c");
    make(&realm, "other");
    set(&realm, "a", IndexMode::Async);
    let root = realm.root();
    let during = |path: &str, meanwhile: &(dyn Fn() + Sync)| {
        realm.begin_batch().unwrap();
        put(&realm, path);
        std::thread::scope(|scope| scope.spawn(meanwhile).join().unwrap());
        realm.commit_batch().map_err(|error| error.kind())
    };
    let units = [("units".to_owned(), Value::text("K"))];
    for (round, path) in ["a", "a/b", "other"].into_iter().enumerate() {
        let group = Member::Group(lookup(&realm, path).unwrap());
        let annotate = || realm.set_attrs(group, &units).unwrap();
        assert_eq!(during(&format!("a/b/c/{round}"), &annotate), Ok(()), "{path} is annotated");
    }
    let moved = || realm.rename(root, "a/b", root, "other/b").unwrap();
    assert_eq!(during("a/b/c/3", &moved), Err(Kind::Busy));
    let changed = || set(&realm, "a", IndexMode::None);
    assert_eq!(during("other/b/c/4", &changed), Err(Kind::Busy));
    assert_eq!(during("other/b/c/5", &|| ()), Ok(()));
    sound(&fixture.path);
}

#[test]
fn what_another_process_sets_counts_here() {
    alone("what_another_process_sets_counts_here", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        make(&realm, "g/inner");
        make(&realm, "bare");
        set(&realm, "g", IndexMode::Sync);
        set(&realm, "bare", IndexMode::None);
        assert!(indexes(&realm, "g/inner/0"));
        fork(|_| set(&realm, "g", IndexMode::None)).finish();
        assert!(!indexes(&realm, "g/inner/1"));
        fork(|_| set(&realm, "g", IndexMode::Sync)).finish();
        assert!(indexes(&realm, "g/inner/2"));
        fork(|_| realm.rename(realm.root(), "g", realm.root(), "bare/g").unwrap()).finish();
        assert!(indexes(&realm, "bare/g/inner/3"), "its own settings come along");
        fork(|_| realm.rename(realm.root(), "bare/g/inner", realm.root(), "bare/inner").unwrap())
            .finish();
        assert!(!indexes(&realm, "bare/inner/4"));
        sound(&fixture.path);
    });
}

/// How many live objects are sealed under each tag.
fn sealed(realm: &Realm) -> Vec<(Option<String>, u64)> {
    while realm.maintain().unwrap() > 0 {}
    let stats = realm.index_stats().unwrap();
    let mut tags: Vec<_> = stats
        .groups
        .iter()
        .filter(|group| group.group == 0 && group.objects > 0)
        .map(|group| (group.tag.clone(), group.objects))
        .collect();
    tags.sort();
    tags
}

#[test]
fn objects_and_groups_move_between_tagged_groups_and_are_found_where_they_are() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let tiny =
        IndexSettings { tail_rows: Some(1), segment_rows: Some(8), ..IndexSettings::default() };
    realm.set_index_settings(root, &tiny).unwrap();
    for (tag, most) in [("x", 2), ("y", 3)] {
        let own = IndexSettings { attributes_per_group: Some(most), ..IndexSettings::default() };
        realm.set_index_settings(make(&realm, tag), &own).unwrap();
    }
    make(&realm, "x/sub");
    for index in 0..4 {
        put(&realm, &format!("x/o{index}"));
    }
    for index in 0..4 {
        put(&realm, &format!("x/sub/o{index}"));
    }
    let count = |text: &str| {
        let query = parse(text).unwrap();
        let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let plain = realm.query_count(&query, &brute_force).unwrap();
        assert_eq!(realm.query_count(&query, &QueryOptions::default()).unwrap(), plain, "{text}");
        plain
    };
    let (x, y) = (Some("x".to_owned()), Some("y".to_owned()));
    assert_eq!(sealed(&realm), [(x.clone(), 8)]);
    // An object that moves is indexed anew, with those of its new tag.
    realm.rename(root, "x/o0", root, "y/o0").unwrap();
    realm.rename(root, "x/o1", root, "o1").unwrap();
    let tags = sealed(&realm);
    assert!(tags.contains(&(y.clone(), 1)) && tags.contains(&(None, 1)), "{tags:?}");
    assert_eq!((count("a = 7 and under(\"y\")"), count("a = 7 and under(\"x\")")), (1, 6));
    // What is in a group that moves stays where it is sealed, and is found all the same.
    realm.rename(root, "x/sub", root, "y/sub").unwrap();
    put(&realm, "y/sub/new");
    assert_eq!(
        (count("a = 7 and under(\"y\")"), count("a = 7 and @path startswith \"y/sub\"")),
        (6, 5)
    );
    assert_eq!(sealed(&realm).iter().find(|(tag, _)| *tag == y), Some(&(y.clone(), 2)));
    // Indexing it anew brings it to its tag.
    assert_eq!(realm.reindex(lookup(&realm, "y").unwrap(), None).unwrap(), 6);
    assert_eq!(sealed(&realm).iter().find(|(tag, _)| *tag == y), Some(&(y.clone(), 6)));
    sound(&fixture.path);
    // A tag that is deleted takes its families along.
    realm.delete(root, "x").unwrap();
    realm.delete(root, "y").unwrap();
    assert_eq!(sealed(&realm), [(None, 1)]);
    assert_eq!(realm.index_stats().unwrap().families, 1);
    assert_eq!(count("a = 7"), 1);
    sound(&fixture.path);
}

#[test]
fn tags_share_segments_until_one_has_its_objects_laid_out_in_another_way() {
    let fixture = Fixture::new(64 << 20);
    let realm = fixture.realm();
    let root = realm.root();
    let own = IndexSettings { attributes_per_group: Some(2), ..IndexSettings::default() };
    for tag in 0..200 {
        realm.set_index_settings(make(&realm, &format!("g{tag}")), &own).unwrap();
    }
    for object in 0..600 {
        put(&realm, &format!("g{}/o{object}", object % 200));
    }
    assert_eq!(sealed_in(&realm), [(Some("g0".to_owned()), 600)]);
    let stats = realm.index_stats().unwrap();
    assert!((1..=8).contains(&stats.segments), "{} segments", stats.segments);
    // Another layout is another tag, for what comes then.
    let other = IndexSettings { attributes_per_group: Some(3), ..IndexSettings::default() };
    realm.set_index_settings(lookup(&realm, "g7").unwrap(), &other).unwrap();
    put(&realm, "g7/new");
    put(&realm, "g8/new");
    let (g0, g1, g7) = (Some("g0".to_owned()), Some("g1".to_owned()), Some("g7".to_owned()));
    assert_eq!(sealed_in(&realm), [(g0.clone(), 601), (g7.clone(), 1)]);
    // So is what the first one's settings were before.
    realm.set_index_settings(lookup(&realm, "g0").unwrap(), &other).unwrap();
    put(&realm, "g0/newer");
    put(&realm, "g7/newer");
    put(&realm, "g1/newer");
    assert_eq!(sealed_in(&realm), [(g0.clone(), 603), (g1.clone(), 1), (g7.clone(), 1)]);
    // Where the first one goes with its settings, the others stay.
    realm.delete(root, "g0").unwrap();
    put(&realm, "g7/newest");
    let all = sealed_in(&realm);
    assert!(all.contains(&(g1, 1)) && all.contains(&(g7, 2)), "{all:?}");
    for text in ["a = 7", "under(\"g7\")", "a = 7 and under(\"g1\")"] {
        let query = parse(text).unwrap();
        let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
        let plain = realm.query(&query, &brute_force).unwrap();
        assert_eq!(realm.query(&query, &QueryOptions::default()).unwrap(), plain, "{text}");
    }
    sound(&fixture.path);
}

/// The same, with everything sealed.
fn sealed_in(realm: &Realm) -> Vec<(Option<String>, u64)> {
    let few = IndexSettings { tail_rows: Some(1), ..IndexSettings::default() };
    realm.set_index_settings(realm.root(), &few).unwrap();
    sealed(realm)
}
