//! What indexing costs a put: objects of 256 B with eight attributes, by mode, one commit each.
//!
//! `none` is a put that indexes nothing. `async` leaves a row in the queue, whose draining is off
//! in the first part and on in the second: there the time is that of putting while this process's
//! own thread drains. `sync` puts a row into the tail, and seals the tail whenever it is full; all
//! of that is in its time. The queue is drained between rounds, outside of any time.

use std::path::Path;

use engram_engine::{Class, CreateOptions, DType, Gid, IndexMode, NewObject};
use engram_engine::{Placement, Pool, Realm, Value};

use crate::store::{VALUE_BYTES, name, timed};
use crate::{Result, json};

const MODES: [(&str, IndexMode); 3] =
    [("none", IndexMode::None), ("async", IndexMode::Async), ("sync", IndexMode::Sync)];

/// Measures in `folder`: `count` objects a round, `rounds` rounds after one to warm up.
pub fn measure(folder: &Path, count: u64, rounds: u64) -> Result<String> {
    let mut parts = Vec::new();
    for (part, draining) in [("still", false), ("beside", true)] {
        let path = folder.join("modes.pool");
        let pool = Pool::create(&path, &CreateOptions { size: 64 << 20, ..Default::default() })?;
        let realm = pool.realm("default")?;
        let _ = draining;
        let mut samples = MODES.map(|_| Vec::new());
        for round in 0..=rounds {
            for ((mode, index), samples) in MODES.iter().zip(&mut samples) {
                let path = format!("{mode}/{round}");
                let group = realm.create_group(realm.root(), &path, &[], &[], false)?;
                let seconds = timed(count, || put(&realm, group, *index, round * count, count))?;
                if round > 0 {
                    samples.push(seconds);
                }
            }
        }
        drop(realm);
        pool.close();
        drop(pool);
        Pool::destroy(&path)?;
        let named: Vec<(&str, &[f64])> =
            MODES.iter().zip(&samples).map(|((mode, _), found)| (*mode, &found[..])).collect();
        parts.push(format!("\"{part}\": {}", json(&named)));
    }
    Ok(format!("{{{}}}", parts.join(", ")))
}

/// Puts `count` objects, one commit each, the first of which is number `from`.
fn put(realm: &Realm, group: Gid, index: IndexMode, from: u64, count: u64) -> Result<()> {
    let place = Placement { index: Some(index), ..Placement::default() };
    let mut new = NewObject {
        class: Class::Array,
        dtype: scalar(b'f', 4),
        shape: vec![VALUE_BYTES as u64 / 4],
        dims: None,
        attrs: Vec::new(),
        origin: Vec::new(),
    };
    for number in from..from + count {
        new.attrs = attributes(number);
        realm.put(group, &name(number, false), &new, &[number as u8; VALUE_BYTES], place)?;
    }
    Ok(())
}

/// The eight attributes that the kernels of `bench/kernels` give an object.
fn attributes(number: u64) -> Vec<(String, Value)> {
    let text = |text: &str| Value { dtype: DType::Text, shape: vec![], data: text.into() };
    let whole = |value: u64| Value {
        dtype: scalar(b'i', 8),
        shape: vec![],
        data: value.to_ne_bytes().into(),
    };
    let unique = crate::store::scramble(number) as f64;
    let largest =
        Value { dtype: scalar(b'f', 8), shape: vec![], data: unique.to_ne_bytes().into() };
    let variable = ["x", "y", "z", "ux", "uy", "uz", "energy", "weight"][number as usize % 8];
    [
        ("variable", text(variable)),
        ("units", text(if number % 8 < 3 { "m" } else { "m s-1" })),
        ("species", text("electron")),
        ("rank", whole(0)),
        ("particles", whole(64)),
        ("step", whole(number / 64)),
        ("block", whole(number / 8)),
        ("largest", largest),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

fn scalar(kind: u8, size: u32) -> DType {
    DType::Scalar { kind, order: b'<', size, unit: None }
}
