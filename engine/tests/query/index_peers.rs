//! Processes that put, change and delete indexed objects at once, and die at it: the index agrees
//! with the records, whoever dies when.

use crate::common::{Fixture, Line, Random, alone, floats, fork, seed, sound};
use engram::{DType, IndexMode, IndexSettings, Member, NewObject, Placement, Realm, Value};

/// A tail and segments so small that there is always something to seal, unite or split.
fn prepare(realm: &Realm) {
    let settings = IndexSettings {
        segment_rows: Some(24),
        tail_rows: Some(5),
        split_threshold: Some(4),
        attributes_per_group: Some(2),
        ..IndexSettings::default()
    };
    realm.set_index_settings(realm.root(), &settings).unwrap();
}

fn number(value: i64) -> Value {
    let dtype = DType::scalar(b'i', b'<', 8);
    Value { dtype, shape: Vec::new(), data: value.to_le_bytes().to_vec() }
}

/// One random change below a group of one's own.
fn change(realm: &Realm, random: &mut Random, own: &str) {
    let name = format!("{own}/object-{}", random.below(60));
    let value = |random: &mut Random| number(random.below(100) as i64);
    match random.below(10) {
        0 => drop(realm.delete(realm.root(), &name)),
        1 | 2 => {
            if let Some(member @ Member::Object(_)) = realm.lookup(realm.root(), &name).unwrap() {
                let attr = (format!("k{}", random.below(5)), value(random));
                realm.set_attrs(member, &[attr]).unwrap();
            }
        }
        _ => {
            let count = random.below(5);
            let attrs = (0..count).map(|key| (format!("k{key}"), value(random))).collect();
            let mode = [IndexMode::Sync, IndexMode::Async][usize::from(random.below(4) == 0)];
            let place = Placement { overwrite: true, index: Some(mode), ..Placement::default() };
            let new = NewObject { attrs, ..floats(&[1]) };
            realm.put(realm.root(), &name, &new, &[1; 8], place).unwrap();
        }
    }
}

fn work(realm: &Realm, line: &Line, own: &str, seed: u64, changes: u64) {
    let mut random = Random(seed);
    line.say(1);
    for _ in 0..changes {
        change(realm, &mut random, own);
    }
    line.say(2);
}

#[test]
fn processes_that_write_at_once_leave_a_whole_index() {
    alone("processes_that_write_at_once_leave_a_whole_index", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        prepare(&realm);
        let seed = seed();
        let peers: Vec<_> = (0..2)
            .map(|n| fork(|line| work(&realm, line, &format!("own-{n}"), seed ^ n, 800)))
            .collect();
        let mut random = Random(!seed);
        for _ in 0..400 {
            change(&realm, &mut random, "own-parent");
        }
        for peer in peers {
            peer.line.expect(1);
            peer.line.expect(2);
            peer.finish();
        }
        sound(&fixture.path);
        let stats = realm.index_stats().unwrap();
        assert!(stats.seals > 100 && stats.segments > 3, "{stats:?}");
    });
}

#[test]
fn who_dies_while_sealing_or_merging_leaves_a_whole_index() {
    alone("who_dies_while_sealing_or_merging_leaves_a_whole_index", || {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        prepare(&realm);
        let seed = seed();
        let mut random = Random(seed);
        for round in 0..25 {
            let peer = fork(|line| work(&realm, line, "own", seed ^ round, u64::MAX));
            peer.line.expect(1);
            // So many looks at the pool from here it dies, wherever it is.
            for _ in 0..random.below(5000) {
                realm.lookup(realm.root(), "own").unwrap();
            }
            peer.kill();
            sound(&fixture.path);
        }
        realm.maintain().unwrap();
        while realm.drain_queue(100).unwrap() > 0 {}
        sound(&fixture.path);
    });
}
