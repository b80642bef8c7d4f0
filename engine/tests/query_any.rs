//! Random queries on random objects, against answers worked out the plain way.

mod common;
mod naive;

use common::Fixture;
use engram_engine::query::ast::Query;
use engram_engine::{Gid, Member, QueryOptions, Realm};
use naive::{Known, Op, ast_query, everything, hits, op, perform};
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

fn check_all(realm: &Realm, queries: &[Query]) {
    for (root, from) in roots(realm) {
        let all = everything(realm, root);
        for (number, query) in queries.iter().enumerate() {
            let brute_force = QueryOptions { brute_force: true, ..QueryOptions::default() };
            let threads = Some(1 + number % 3);
            for options in [brute_force, QueryOptions { threads, ..QueryOptions::default() }] {
                check(realm, query, &QueryOptions { root: Some(root), ..options }, &all, &from);
            }
        }
    }
}

/// Some operations on their own, then some in a batch, with queries before, within and after it.
fn run(before: &[Op], within: &[Op], queries: &[Query]) {
    let fixture = Fixture::new(16 << 20);
    let realm = fixture.realm();
    for op in before {
        let _ = perform(&realm, op);
    }
    check_all(&realm, queries);
    realm.begin_batch().unwrap();
    for op in within {
        let _ = perform(&realm, op);
    }
    check_all(&realm, queries);
    realm.commit_batch().unwrap();
    check_all(&realm, queries);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn a_query_finds_what_a_plain_look_at_everything_finds(
        before in prop::collection::vec(op(), 0..40),
        within in prop::collection::vec(op(), 0..12),
        queries in prop::collection::vec(ast_query(), 12),
    ) {
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| run(&before, &within, &queries)).join()
        });
        prop_assert!(ran.is_ok(), "see the panic above");
    }
}
