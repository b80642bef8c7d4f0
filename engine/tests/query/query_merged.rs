//! Hits of several pools, merged by the bytes that order them, against one pool that has all.

use engram::query::ast::Query;
use engram::{CreateOptions, DType, Namespace, NewObject, Placement, Pool, QueryOptions, Value};
use engram::{Scope, query};
use proptest::prelude::*;

/// What an object has: an attribute of some type, or none, and a text.
#[derive(Clone, Debug)]
struct Made {
    value: Option<Value>,
    text: String,
    pool: usize,
}

fn number(dtype: DType, data: Vec<u8>) -> Value {
    Value { dtype, shape: Vec::new(), data }
}

fn value() -> impl Strategy<Value = Value> {
    let float = prop_oneof![any::<f64>(), (-4..4_i8).prop_map(f64::from), Just(f64::NAN)];
    prop_oneof![
        any::<i64>().prop_map(|n| number(DType::scalar(b'i', b'<', 8), n.to_le_bytes().into())),
        (-4..4_i64).prop_map(|n| number(DType::scalar(b'i', b'<', 8), n.to_le_bytes().into())),
        any::<u64>().prop_map(|n| number(DType::scalar(b'u', b'<', 8), n.to_le_bytes().into())),
        float.prop_map(|x| number(DType::scalar(b'f', b'<', 8), x.to_le_bytes().into())),
        "[a\\x00é]{0,3}".prop_map(|text| Value::text(&text)),
    ]
}

fn made() -> impl Strategy<Value = Made> {
    (prop::option::weighted(0.8, value()), "[ab]{0,2}", 0..3_usize)
        .prop_map(|(value, text, pool)| Made { value, text, pool })
}

fn put(to: &Namespace, name: &str, made: &Made) {
    let mut attrs = vec![("s".to_owned(), Value::text(&made.text))];
    attrs.extend(made.value.clone().map(|value| ("x".to_owned(), value)));
    let new = NewObject { attrs, ..NewObject::blob() };
    to.put(to.root(), name, &new, b"", Placement::default()).unwrap();
}

fn keyed(of: &Namespace, query: &Query) -> Vec<(Vec<u8>, String)> {
    let found = of.query_keyed(query, &QueryOptions::default()).unwrap();
    found.into_iter().map(|hit| (hit.key, hit.path)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn hits_of_several_pools_are_merged_as_one_pool_has_them(
        all in prop::collection::vec(made(), 1..40),
        limit in prop::option::of(0..12_u64),
        private in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let options = CreateOptions { size: 16 << 20, force: true, ..CreateOptions::default() };
        let pools: Vec<Pool> = (0..4)
            .map(|number| Pool::create(&folder.path().join(number.to_string()), &options).unwrap())
            .collect();
        let spaces: Vec<Namespace> =
            pools.iter().map(|pool| pool.namespace("default").unwrap()).collect();
        for (number, made) in all.iter().enumerate() {
            // The last has all of them.
            put(&spaces[made.pool], &format!("o{number:02}"), made);
            put(&spaces[3], &format!("o{number:02}"), made);
        }
        if private {
            // A pool whose hits come of two realms.
            let from = [Scope::Shared];
            if let Some(first) = all.iter().position(|made| made.pool == 0) {
                let path = format!("o{first:02}");
                spaces[0].transfer(spaces[0].root(), &path, &from, Scope::Private).unwrap();
            }
        }
        let orders =
            ["order by x", "order by x desc, s", "order by s desc, x", "s = 'a' order by x"];
        for text in orders {
            // The name decides where all else is equal: so there is one order.
            let query = Query { limit, ..query::parse(&format!("{text}, @name")).unwrap() };
            let mut merged: Vec<_> =
                spaces[..3].iter().flat_map(|space| keyed(space, &query)).collect();
            merged.sort();
            merged.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
            let expected = spaces[3].query_paths(&query, &QueryOptions::default()).unwrap();
            let paths: Vec<String> = merged.into_iter().map(|(_, path)| path).collect();
            prop_assert_eq!(paths, expected, "{}", text);
        }
    }
}
