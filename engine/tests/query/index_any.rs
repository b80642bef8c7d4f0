//! Random changes to indexed objects, with a tail and segments so small that every kind of
//! maintenance happens: the index agrees with the records all the time.

use crate::common::{Fixture, sound};
use crate::naive::{Op, ast_query, op, perform};
use engram::query::ast::Literal;
use engram::{IndexMode, IndexSettings, Policy, QueryOptions, Realm};
use proptest::prelude::*;

/// What happens to a realm.
#[derive(Clone, Debug)]
enum Event {
    One(Op),
    Batch(Vec<Op>, bool),
    Maintain,
    Drain(u64),
    Settings(IndexSettings),
    Reindex(Option<IndexMode>),
}

/// Settings that split, merge and rewrite at every turn.
fn settings() -> impl Strategy<Value = IndexSettings> {
    let policy = prop_oneof![Just(Policy::Fixed), Just(Policy::Dynamic)];
    let split_on = prop_oneof![
        3 => Just(None),
        1 => (0_u8..4, -2_i64..3).prop_map(|(key, at)| Some((format!("k{key}"), Literal::Int(at)))),
    ];
    (2_u32..9, 1_u32..7, 0_u32..4, 2_u32..5, policy, split_on).prop_map(
        |(segment_rows, tail_rows, per_group, split_threshold, policy, split_on)| IndexSettings {
            attributes_per_group: Some(per_group),
            policy: Some(policy),
            split_threshold: Some(split_threshold),
            split_on,
            segment_rows: Some(segment_rows),
            tail_rows: Some(tail_rows),
            merge_sf: Some(2),
            queue_max: Some(5),
            ..IndexSettings::default()
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let mode = prop_oneof![
        Just(None),
        Just(Some(IndexMode::Sync)),
        Just(Some(IndexMode::Async)),
        Just(Some(IndexMode::None))
    ];
    prop_oneof![
        30 => op().prop_map(Event::One),
        3 => (prop::collection::vec(op(), 1..12), any::<bool>())
            .prop_map(|(ops, keep)| Event::Batch(ops, keep)),
        2 => Just(Event::Maintain),
        2 => (1_u64..9).prop_map(Event::Drain),
        1 => settings().prop_map(Event::Settings),
        1 => mode.prop_map(Event::Reindex),
    ]
}

fn happen(realm: &Realm, event: &Event) {
    match event {
        Event::One(op) => drop(perform(realm, op)),
        Event::Batch(ops, keep) => {
            realm.begin_batch().unwrap();
            for op in ops {
                let _ = perform(realm, op);
            }
            if *keep { realm.commit_batch() } else { realm.abort_batch() }.unwrap();
        }
        Event::Maintain => drop(realm.maintain().unwrap()),
        Event::Drain(most) => drop(realm.drain_queue(*most).unwrap()),
        Event::Settings(settings) => realm.set_index_settings(realm.root(), settings).unwrap(),
        Event::Reindex(mode) => drop(realm.reindex(realm.root(), *mode).unwrap()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_index_agrees_with_the_records_whatever_happens(
        first in settings(),
        events in prop::collection::vec(event(), 20..160),
        queries in prop::collection::vec(ast_query(), 1..12),
    ) {
        let fixture = Fixture::new(16 << 20);
        let realm = fixture.realm();
        realm.set_index_settings(realm.root(), &first).unwrap();
        for part in events.chunks(20) {
            for event in part {
                happen(&realm, event);
            }
            sound(&fixture.path);
            for query in &queries {
                let indexed = realm.query(query, &QueryOptions::default()).unwrap().oids;
                let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
                let plain = realm.query(query, &brute_force).unwrap().oids;
                prop_assert_eq!(indexed, plain, "{:?}", query);
            }
        }
        realm.maintain().unwrap();
        sound(&fixture.path);
        while realm.drain_queue(64).unwrap() > 0 {}
        realm.maintain().unwrap();
        let stats = realm.index_stats().unwrap();
        prop_assert_eq!(stats.queued, 0);
        let objects = sound(&fixture.path).objects;
        prop_assert_eq!(stats.tail + stats.sealed - stats.dead + stats.unindexed, objects);
    }
}
