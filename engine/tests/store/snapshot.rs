//! Snapshots that are held: one commit, whatever others do; and what bounds their cost.

use crate::common::{
    Fixture, OVER, alone, attach, blob, churn, contents, deadline, filled, fork, lookup, map_of,
    put, read, sound, view,
};
use engram::query::parse;
use engram::{Kind, Member, Mode, Payload, QueryOptions, Realm, Scope};

const WORDS: usize = 1 << 14;

/// What the root and all below is, by every way of looking.
fn seen(realm: &Realm) -> String {
    let query = parse("order by @path").unwrap();
    let options = QueryOptions::default();
    let found = realm.query(&query, &options).unwrap();
    let paths = realm.query_paths(&query, &options).unwrap();
    assert_eq!(realm.query_count(&query, &options).unwrap(), paths.len() as u64);
    let listed: Vec<_> = realm.list_found(realm.root(), None, 100).unwrap();
    let names = realm.names_of(&found.oids).unwrap();
    let attrs: Vec<_> = listed
        .iter()
        .map(|(name, _)| {
            let member = realm.lookup(realm.root(), name).unwrap().unwrap();
            (realm.attrs(member).unwrap(), realm.path_of(member).unwrap())
        })
        .collect();
    format!("{:?} {paths:?} {names:?} {listed:?} {attrs:?} {:?}", found.oids, map_of(realm, ""))
}

fn fill(realm: &Realm) {
    put(realm, "large", &filled(1, 1, WORDS));
    put(realm, "gone", &filled(2, 1, WORDS));
    put(realm, "small", &filled(3, 1, 9));
    put(realm, "run/inner", &filled(4, 1, WORDS));
    let run = realm.lookup(realm.root(), "run").unwrap().unwrap();
    realm.set_attrs(run, &[("before".to_owned(), int(1))]).unwrap();
}

fn int(value: i64) -> engram::Value {
    let dtype = engram::DType::scalar(b'i', b'<', 8);
    engram::Value { dtype, shape: Vec::new(), data: value.to_le_bytes().to_vec() }
}

/// Changes all that `fill` has made.
fn change(realm: &Realm) {
    put(realm, "large", &filled(1, 2, WORDS));
    put(realm, "small", &filled(3, 2, 9));
    realm.delete(realm.root(), "gone").unwrap();
    realm.rename(realm.root(), "run", realm.root(), "walk").unwrap();
    let walk = realm.lookup(realm.root(), "walk").unwrap().unwrap();
    realm.set_attrs(walk, &[("after".to_owned(), int(2))]).unwrap();
    realm.delete(realm.root(), "walk/inner").unwrap();
    put(realm, "new", &filled(5, 1, WORDS));
}

/// Writes so much that the catalog grows by `bytes`, if it cannot reuse what it frees.
fn write_much(realm: &Realm, commits: u32) {
    for round in 0..commits {
        let data = filled(9, u64::from(round), 100);
        realm.put(realm.root(), "hot", &blob(), &data, OVER).unwrap();
    }
}

#[test]
fn all_that_a_snapshot_shows_is_of_one_commit() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    fill(&realm);
    let before = seen(&realm);
    let at = realm.snapshot(None).unwrap();
    assert!(at.is_newest().unwrap());
    change(&realm);
    churn(&realm, 1);
    assert_ne!(seen(&realm), before);
    assert_eq!(seen(&at), before);
    assert!(!at.is_newest().unwrap());
    // Views outlive it, and keep what they show.
    let kept = view(&at, "gone");
    at.end_snapshot();
    churn(&realm, 2);
    assert_eq!(contents(&kept), filled(2, 1, WORDS));
    let refused = at.lookup(at.root(), "gone").unwrap_err();
    assert!(refused.kind() == Kind::Argument && !at.is_open(), "{refused}");
    assert!(realm.is_open());
    drop(kept);
    sound(&fixture.path);
}

#[test]
fn what_a_snapshot_kept_is_free_once_it_ends() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put(&realm, "old", &filled(1, 1, WORDS));
    let at = realm.snapshot(None).unwrap();
    realm.delete(realm.root(), "old").unwrap();
    churn(&realm, 1);
    assert!(realm.space().unwrap().pending >= (WORDS * 8) as u64);
    assert_eq!(read(&at, "old"), filled(1, 1, WORDS));
    drop(at);
    churn(&realm, 1);
    put(&realm, "trigger", &filled(1, 1, WORDS));
    realm.delete(realm.root(), "trigger").unwrap();
    put(&realm, "trigger", &filled(1, 1, WORDS));
    let space = realm.space().unwrap();
    assert!(space.pending < (2 * WORDS * 8) as u64, "{space:?}");
}

#[test]
fn nothing_is_written_through_a_snapshot() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    fill(&realm);
    let at = realm.snapshot(None).unwrap();
    let root = at.root();
    let oid = lookup(&at, "large").unwrap();
    let member = at.lookup(root, "large").unwrap().unwrap();
    let refused = [
        at.put(root, "x", &blob(), b"x", OVER).err(),
        at.delete(root, "large").err(),
        at.rename(root, "large", root, "other").err(),
        at.create_group(root, "g", &[], b"", false).err(),
        at.set_attrs(member, &[("k".to_owned(), int(1))]).err(),
        at.delete_attr(member, "k").err(),
        at.view(oid, true).err(),
        at.flush(oid).err(),
        at.begin_batch().err(),
        at.resize(32 << 20).err(),
        at.maintain().err(),
    ];
    for refused in refused {
        assert_eq!(refused.map(|error| error.kind()), Some(Kind::ReadOnly));
    }
    assert_eq!(at.mode(), Mode::Read);
    assert_eq!(at.snapshot(None).err().map(|error| error.kind()), Some(Kind::Argument));
}

#[test]
fn a_batch_neither_changes_a_snapshot_nor_takes_one() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put(&realm, "a", &filled(1, 1, 9));
    let at = realm.snapshot(None).unwrap();
    realm.begin_batch().unwrap();
    put(&realm, "a", &filled(1, 2, 9));
    assert_eq!((read(&realm, "a"), read(&at, "a")), (filled(1, 2, 9), filled(1, 1, 9)));
    assert_eq!(realm.snapshot(None).err().map(|error| error.kind()), Some(Kind::Busy));
    realm.commit_batch().unwrap();
    assert_eq!((read(&realm, "a"), read(&at, "a")), (filled(1, 2, 9), filled(1, 1, 9)));
}

#[test]
fn threads_share_a_snapshot() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    fill(&realm);
    let (before, at) = (seen(&realm), realm.snapshot(None).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| change_and_back(&realm)));
        for _ in 0..3 {
            scope.spawn(|| (0..50).for_each(|_| assert_eq!(seen(&at), before)));
        }
    });
}

fn change_and_back(realm: &Realm) {
    put(realm, "large", &filled(1, 7, WORDS));
    realm.rename(realm.root(), "run", realm.root(), "walk").unwrap();
    realm.rename(realm.root(), "walk", realm.root(), "run").unwrap();
}

#[test]
fn a_snapshot_ends_with_the_opening_that_took_it() {
    let fixture = Fixture::new(16 << 20);
    put(&fixture.realm(), "a", &filled(1, 1, WORDS));
    let (pool, realm) = attach(&fixture.path, Mode::Read);
    let at = realm.snapshot(None).unwrap();
    assert_eq!(read(&at, "a"), filled(1, 1, WORDS));
    pool.close();
    assert_eq!(at.lookup(at.root(), "a").err().map(|error| error.kind()), Some(Kind::Argument));
    // Nothing of it is left for those who go on.
    let ours = fixture.realm();
    ours.delete(ours.root(), "a").unwrap();
    churn(&ours, 2);
    drop(at);
    sound(&fixture.path);
}

#[test]
fn a_forked_child_has_no_part_in_a_snapshot() {
    alone("a_forked_child_has_no_part_in_a_snapshot", || {
        let fixture = Fixture::new(8 << 20);
        let realm = fixture.realm();
        put(&realm, "a", &filled(1, 1, WORDS));
        let mut at = Some(realm.snapshot(None).unwrap());
        let child = fork(|line| {
            let at = at.take().unwrap();
            let refused = at.lookup(at.root(), "a").unwrap_err();
            assert_eq!(refused.kind(), Kind::Busy, "{refused}");
            let own = realm.snapshot(None).unwrap();
            assert_eq!(read(&own, "a"), filled(1, 1, WORDS));
            drop((own, at));
            line.say(1);
            line.expect(2);
        });
        child.line.expect(1);
        // The parent's is as it was, though the child has dropped its handles.
        realm.delete(realm.root(), "a").unwrap();
        churn(&realm, 1);
        let at = at.unwrap();
        assert_eq!(read(&at, "a"), filled(1, 1, WORDS));
        // And the child's lease keeps nothing of it.
        drop(at);
        churn(&realm, 2);
        assert_eq!(realm.space().unwrap().used, 0);
        put(&realm, "b", &filled(1, 1, (7 << 20) / 8));
        child.line.say(2);
        child.finish();
    });
}

/// How many bytes the catalog of a fixture has blocks for.
fn catalog_bytes(realm: &Realm) -> u64 {
    realm.space().unwrap().catalog
}

#[test]
fn a_snapshot_is_given_up_at_its_bound() {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    put(&realm, "a", &filled(1, 1, WORDS));
    let at = realm.snapshot(Some(8 << 20)).unwrap();
    let patient = realm.snapshot(Some(1 << 40)).unwrap();
    let until = deadline();
    while at.is_open() {
        write_much(&realm, 200);
        assert!(std::time::Instant::now() < until, "it was never given up");
    }
    let refused = at.lookup(at.root(), "a").unwrap_err();
    assert!(refused.kind() == Kind::Busy && refused.message().contains("given up"), "{refused}");
    let told = realm.take_notices();
    assert!(told[0].contains("keeps") && told[1].contains("given up"), "{told:?}");
    assert_eq!(realm.take_notices(), Vec::<String>::new());
    assert_eq!(read(&patient, "a"), filled(1, 1, WORDS));
    drop(patient);
    // From here on pages are reused.
    write_much(&realm, 50);
    let grown = catalog_bytes(&realm);
    write_much(&realm, 5000);
    assert!(catalog_bytes(&realm) <= grown + (1 << 20), "{grown}, {}", catalog_bytes(&realm));
}

#[test]
fn a_snapshot_of_another_process_is_given_up_when_asked() {
    alone("a_snapshot_of_another_process_is_given_up_when_asked", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "a", &filled(1, 1, WORDS));
        let child = fork(|line| {
            let (_pool, own) = attach(&fixture.path, Mode::Read);
            let at = own.snapshot(Some(8 << 20)).unwrap();
            line.say(1);
            line.expect(2);
            let refused = at.lookup(at.root(), "a").unwrap_err();
            assert_eq!(refused.kind(), Kind::Busy, "{refused}");
            assert_eq!(own.take_notices().len(), 2);
            line.say(3);
            line.expect(4);
        });
        child.line.expect(1);
        write_much(&realm, 8000);
        assert!(catalog_bytes(&realm) < 64 << 20, "{}", catalog_bytes(&realm));
        child.line.say(2);
        child.line.expect(3);
        child.line.say(4);
        child.finish();
    });
}

#[test]
fn a_stopped_holder_is_named_and_a_dead_one_cleared() {
    alone("a_stopped_holder_is_named_and_a_dead_one_cleared", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        put(&realm, "a", &filled(1, 1, WORDS));
        let child = fork(|line| {
            let (_pool, own) = attach(&fixture.path, Mode::Read);
            let _at = own.snapshot(Some(8 << 20)).unwrap();
            line.say(1);
            line.expect(2);
        });
        child.line.expect(1);
        child.stop();
        let (until, mut told) = (deadline(), Vec::new());
        while told.is_empty() {
            write_much(&realm, 1000);
            told = realm.take_notices();
            assert!(std::time::Instant::now() < until, "nobody was named");
        }
        assert!(told[0].contains(&format!("process {} keeps", child.pid)), "{told:?}");
        child.kill();
        // A dead reader's slot and lease keep nothing: the catalog goes on with what it has.
        write_much(&realm, 500);
        let grown = catalog_bytes(&realm);
        write_much(&realm, 10_000);
        assert!(catalog_bytes(&realm) <= grown + (64 << 20), "{grown}, {}", catalog_bytes(&realm));
        realm.delete(realm.root(), "a").unwrap();
        churn(&realm, 2);
        sound(&fixture.path);
    });
}

/// Replaces two values and a group's members in one batch, again and again.
fn pairs(realm: &Realm, tag: u64, rounds: u64) {
    for round in 0..rounds {
        realm.begin_batch().unwrap();
        let version = tag << 32 | round;
        put(realm, "left", &filled(1, version, 9));
        put(realm, "right", &filled(1, version, WORDS / 8));
        let _ = realm.delete(realm.root(), "members");
        for member in 0..round % 7 {
            put(realm, &format!("members/{member}"), &filled(2, version, 3));
        }
        put(realm, "count", &filled(3, round % 7, 3));
        match realm.commit_batch() {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), Kind::Busy, "{error}"),
        }
    }
}

fn version_at(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[8..16].try_into().unwrap())
}

#[test]
fn a_snapshot_never_mixes_two_commits() {
    alone("a_snapshot_never_mixes_two_commits", || {
        let fixture = Fixture::new(64 << 20);
        let realm = fixture.realm();
        pairs(&realm, 0, 1);
        let writers: Vec<_> = (1..3)
            .map(|tag| {
                fork(|line| {
                    let (_pool, own) = attach(&fixture.path, Mode::ReadWrite);
                    line.say(0);
                    pairs(&own, tag, 400);
                    line.say(1);
                })
            })
            .collect();
        for writer in &writers {
            writer.line.expect(0);
        }
        let mut versions = std::collections::BTreeSet::new();
        while !writers.iter().all(|writer| writer.line.is_ready()) {
            let at = realm.snapshot(None).unwrap();
            let left = version_at(&read(&at, "left"));
            let count = version_at(&read(&at, "count"));
            std::thread::yield_now();
            let right = version_at(&read(&at, "right"));
            let query = parse("under(\"members\")").unwrap();
            let members = at.lookup(at.root(), "members").unwrap();
            let listed = members.map_or(0, |group| at.count(group.id()).unwrap());
            let found = at.query_count(&query, &QueryOptions::default());
            assert_eq!((left, count), (right, listed));
            if members.is_some() {
                assert_eq!(found.unwrap(), listed);
            }
            versions.insert(left);
        }
        assert!(versions.len() > 1, "nobody wrote while others read");
        for writer in writers {
            writer.line.expect(1);
            writer.finish();
        }
        sound(&fixture.path);
    });
}

#[test]
fn a_snapshot_shows_what_was_published_though_it_is_withdrawn() {
    let fixture = Fixture::new(64 << 20);
    let namespace = fixture.pool.namespace("default").unwrap();
    let (root, shared, published) = (namespace.root(), [Scope::Shared], [Scope::Published]);
    for name in ["shown", "other"] {
        put(&fixture.realm(), name, &filled(1, 1, WORDS));
    }
    namespace.transfer(root, "shown", &shared, Scope::Published).unwrap();
    fixture.pool.close();
    let (pool, _) = attach(&fixture.path, Mode::ReadWrite);
    let namespace = pool.namespace("default").unwrap();
    let snapshot = namespace.snapshot(None).unwrap();
    // No version that is kept open has it any more, and its space is given back.
    namespace.transfer(root, "shown", &published, Scope::Shared).unwrap();
    namespace.delete(root, "shown").unwrap();
    for _ in 0..4 {
        namespace.transfer(root, "other", &shared, Scope::Published).unwrap();
        assert!(namespace.lookup(root, "shown").unwrap().is_none());
        namespace.transfer(root, "other", &published, Scope::Shared).unwrap();
    }
    let Some(Member::Object(oid)) = snapshot.lookup(snapshot.root(), "shown").unwrap() else {
        panic!("the snapshot has lost it");
    };
    let Payload::Extent(view) = snapshot.payload(oid).unwrap().0 else { panic!("it is large") };
    assert_eq!(contents(&view), filled(1, 1, WORDS));
}
