//! Manifests that somebody wrote who means no good: an error, and never a panic.

use engram_protocol::manifest::{Boxes, Content, Holder, Manifest, Part};
use proptest::prelude::*;
use serde_json::{Value, json};

fn manifest(kind: u8) -> Value {
    let holders: Vec<Holder> =
        (0..3).map(|n| Holder { node: format!("n{n}"), member: n }).collect();
    let part = |number: u64| Part {
        offsets: vec![number * 10, 0],
        counts: vec![10, 7],
        holders: vec![number as u32 % 3, (number as u32 + 1) % 3],
        checksum: Some(number),
    };
    let (parts, shape) = ((0..4).map(part).collect(), vec![40, 7]);
    let boxes = Boxes { dtype: "<f8".into(), shape, parts, sealed: true, ..Boxes::default() };
    let content = match kind {
        0 => Content::Node,
        1 => Content::Hash { weights: vec![1.0, 2.0, 0.5] },
        _ => Content::Array(boxes),
    };
    let holders = if kind == 0 { holders[..1].to_vec() } else { holders };
    let all = Manifest { uuid: "ab".repeat(16), generation: 3, holders, content };
    assert_eq!(all.check(), Ok(()));
    serde_json::to_value(all).expect("JSON")
}

/// What a value is replaced by, beside those that are there.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(|number| json!(number)),
        prop::sample::select(vec![
            json!(u64::MAX),
            json!(u64::MAX - 5),
            json!(1_u64 << 63),
            json!(1_u64 << 32),
            json!(0),
            json!(-1),
            json!(1e300),
            json!(null),
            json!(""),
            json!([]),
            json!({}),
            json!([[], [0]]),
            json!([u64::MAX, 2]),
        ]),
    ]
}

/// Goes down into a value as these numbers say, and changes what it finds there.
fn mutate(value: &mut Value, steps: &[usize], change: usize, odd: &Value) {
    let (first, rest) = steps.split_first().map_or((0, steps), |(first, rest)| (*first, rest));
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = first % items.len();
            match (rest.is_empty(), change % 3) {
                (true, 0) => drop(items.remove(at)),
                (true, 1) => items.push(items[at].clone()),
                (true, _) => items[at] = odd.clone(),
                (false, _) => mutate(&mut items[at], rest, change, odd),
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let key = members.keys().nth(first % members.len()).expect("one").clone();
            match (rest.is_empty(), change % 3) {
                (true, 0) => drop(members.remove(&key)),
                (true, _) => drop(members.insert(key, odd.clone())),
                (false, _) => mutate(&mut members[&key], rest, change, odd),
            }
        }
        other => *other = odd.clone(),
    }
}

/// Does with a manifest what those do who were given it.
fn use_it(manifest: &Manifest) {
    let parts = manifest.array().map_or(1, |boxes| boxes.parts.len() as u32);
    for part in (0..parts).chain([u32::MAX]) {
        let _ = manifest.checksum_of(part);
        if part < parts {
            assert!(!manifest.holders_of(part).is_empty(), "{part} of {manifest:?}");
        }
    }
    for part in manifest.array().map_or(&[][..], |boxes| &boxes.parts) {
        let _ = part.overlaps(&[u64::MAX, 3], &[u64::MAX, u64::MAX]);
    }
    let all: Vec<u32> = (0..parts).collect();
    let mut entered = manifest.clone();
    for node in ["n0", "n1", "n2", "n7"] {
        entered.enter(&all, node, 99);
        assert_eq!(entered.check(), Ok(()), "after {node} of {manifest:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn what_was_changed_at_random_is_refused_or_can_be_used(
        kind in 0_u8..4,
        changes in prop::collection::vec(
            (prop::collection::vec(0_usize..12, 1..6), 0_usize..3, odd()), 1..4),
    ) {
        let mut value = manifest(kind);
        for (steps, change, odd) in &changes {
            mutate(&mut value, steps, *change, odd);
        }
        let bytes = serde_json::to_vec(&value).expect("JSON");
        if let Ok(manifest) = Manifest::decode(&bytes) {
            use_it(&manifest);
            prop_assert!(Manifest::decode(&manifest.encode()).is_ok());
        }
    }

    #[test]
    fn bytes_that_are_cut_or_flipped_are_refused_or_can_be_used(
        kind in 0_u8..4,
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = serde_json::to_vec(&manifest(kind)).expect("JSON");
        let at = at.index(bytes.len());
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= byte;
        }
        if let Ok(manifest) = Manifest::decode(&bytes) {
            use_it(&manifest);
        }
    }
}
