//! Random queries on random objects, against answers worked out the plain way.

use crate::common::Fixture;
use crate::naive::{
    Known, Op, ast_query, everything, hits, is_figure, op, perform, totals, totals_query,
};
use engram::query::ast::{Literal, Query};
use engram::{Gid, IndexSettings, Kind, Member, Policy, QueryOptions, Realm, TotalsAnswer};
use proptest::prelude::*;

/// The groups that queries are asked of: the root, and one below it.
fn roots(realm: &Realm) -> Vec<(Gid, String)> {
    let mut roots = vec![(realm.root(), String::new())];
    for path in ["a", "a/b"] {
        if let Some(Member::Group(gid)) = realm.lookup(realm.root(), path).unwrap() {
            roots.push((gid, path.to_owned()));
        }
    }
    roots
}

/// Asks everything that can be asked of a query.
fn check(realm: &Realm, query: &Query, options: &QueryOptions, all: &[Known], from: &str) {
    let hits = hits(all, query, from);
    let oids: Vec<_> = hits.iter().map(|hit| hit.oid).collect();
    let answer = realm.query(query, options).unwrap();
    assert_eq!(answer.oids, oids, "{query:?} with {options:?} from {from:?}");
    assert_eq!(realm.query_count(query, options).unwrap(), oids.len() as u64, "{query:?}");
    let attrs: usize = hits.iter().map(|hit| hit.attrs.len()).sum();
    assert_eq!(realm.query_count_attributes(query, options).unwrap(), attrs as u64, "{query:?}");
    let mut keys = std::collections::BTreeMap::new();
    for key in hits.iter().flat_map(|hit| hit.attrs.keys()) {
        *keys.entry(key.clone()).or_insert(0) += 1;
    }
    let known = realm.query_attribute_keys(query, options).unwrap();
    assert_eq!(known, keys.into_iter().collect::<Vec<_>>(), "{query:?}");
    let paths: Vec<_> = hits.iter().map(|hit| hit.path.clone()).collect();
    assert_eq!(realm.query_paths(query, options).unwrap(), paths);
    let names: Vec<_> = hits.iter().map(|hit| hit.info.name.clone()).collect();
    assert_eq!(realm.query_names(query, options).unwrap(), names);
    assert_eq!(realm.explain(query, options).unwrap().hits, oids.len() as u64);
}

/// Asks for figures.
fn check_totals(realm: &Realm, query: &Query, root: Gid, all: &[Known], from: &str) {
    let expected = totals(all, query, from);
    let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
    let threads =
        QueryOptions { threads: Some(3), threads_for_little: true, ..QueryOptions::default() };
    let mut first: Option<TotalsAnswer> = None;
    for options in [brute_force, QueryOptions::default(), threads] {
        let options = QueryOptions { root: Some(root), ..options };
        let found = realm.query_totals(query, &options);
        let Ok(expected) = &expected else {
            let error = found.expect_err("unlike values");
            assert_eq!(error.kind(), Kind::Query, "{query}: {error}");
            assert!(error.message().contains('^'), "{error}");
            continue;
        };
        let found = found.unwrap_or_else(|error| panic!("{query}\n{error}"));
        assert_eq!(found.rows.len(), expected.len(), "{query}");
        for (row, wanted) in found.rows.iter().zip(expected) {
            let same = row.iter().zip(wanted).all(|(a, b)| is_figure(a.as_ref(), b.as_ref()));
            assert!(same && row.len() == wanted.len(), "{query}: {row:?} for {wanted:?}");
        }
        // The index changes no digit.
        let before = first.get_or_insert_with(|| found.clone());
        assert_eq!(format!("{:?}", before.rows), format!("{:?}", found.rows), "{query}");
    }
}

fn check_all(realm: &Realm, queries: &[Query]) {
    for (root, from) in roots(realm) {
        let all = everything(realm, root);
        for (number, query) in queries.iter().enumerate() {
            if query.totals.is_some() {
                check_totals(realm, query, root, &all, &from);
                continue;
            }
            let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let threads = QueryOptions {
                threads: Some(1 + number % 3),
                threads_for_little: true,
                ..QueryOptions::default()
            };
            for options in [brute_force, threads] {
                check(
                    realm,
                    query,
                    &QueryOptions { root: Some(root), ..options.clone() },
                    &all,
                    &from,
                );
            }
        }
    }
}

/// What happens between queries.
#[derive(Clone, Debug)]
enum Step {
    Ops(Vec<Op>),
    /// With queries within the batch.
    Batch(Vec<Op>),
    Maintain,
    Drain(u64),
    Reindex,
    Settings(IndexSettings),
}

fn step() -> impl Strategy<Value = Step> {
    let ops = |most| prop::collection::vec(op(), 1..most);
    let policy = prop_oneof![Just(Policy::Fixed), Just(Policy::Dynamic)];
    let split_on = prop_oneof![
        2 => Just(None),
        1 => (-2_i64..3).prop_map(|at| Some(("k1".to_owned(), Literal::Int(at)))),
    ];
    let settings = (2_u32..9, 1_u32..7, 0_u32..4, 2_u32..5, policy, split_on).prop_map(
        |(segment_rows, tail_rows, per_group, threshold, policy, split_on)| IndexSettings {
            attributes_per_group: Some(per_group),
            policy: Some(policy),
            split_threshold: Some(threshold),
            split_on,
            segment_rows: Some(segment_rows),
            tail_rows: Some(tail_rows),
            merge_sf: Some(2),
            queue_max: Some(9),
            ..IndexSettings::default()
        },
    );
    prop_oneof![
        6 => ops(24).prop_map(Step::Ops),
        2 => ops(12).prop_map(Step::Batch),
        2 => Just(Step::Maintain),
        1 => (1_u64..9).prop_map(Step::Drain),
        1 => Just(Step::Reindex),
        2 => settings.prop_map(Step::Settings),
    ]
}

/// Takes each step, with queries within and after it.
fn run(steps: &[Step], queries: &[Query]) {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for (place, step) in steps.iter().enumerate() {
        let queries = &queries[place % queries.len()..];
        match step {
            Step::Ops(ops) => {
                for op in ops {
                    let _ = perform(&realm, op);
                }
            }
            Step::Batch(ops) => {
                realm.begin_batch().unwrap();
                for op in ops {
                    let _ = perform(&realm, op);
                }
                check_all(&realm, queries);
                realm.commit_batch().unwrap();
            }
            Step::Maintain => drop(realm.maintain().unwrap()),
            Step::Drain(most) => drop(realm.drain_queue(*most).unwrap()),
            Step::Reindex => drop(realm.reindex(realm.root(), None).unwrap()),
            Step::Settings(settings) => {
                realm.set_index_settings(realm.root(), settings).unwrap();
            }
        }
        check_all(&realm, queries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_query_finds_what_a_plain_look_at_everything_finds(
        steps in prop::collection::vec(step(), 1..16),
        queries in prop::collection::vec(prop_oneof![2 => ast_query(), 1 => totals_query()], 12),
    ) {
        let ran = std::thread::scope(|scope| scope.spawn(|| run(&steps, &queries)).join());
        prop_assert!(ran.is_ok(), "see the panic above");
    }
}
