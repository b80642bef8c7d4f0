//! What indexing costs a put: objects of 256 B with eight attributes, by mode, one commit each.
//!
//! `none` is a put that indexes nothing. `async` leaves a row in the queue: in the first part
//! nobody takes it out, in the second another thread drains the queue as fast as it can. `sync`
//! puts a row into the tail, and seals the tail whenever it is full; all of that is in its time.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use engram::{Class, CreateOptions, DType, Gid, IndexMode, Mode, NewObject};
use engram::{Placement, Pool, Realm, Value};

use crate::store::{VALUE_BYTES, name, timed};
use crate::{Result, json};

const MODES: [(&str, IndexMode); 3] =
    [("none", IndexMode::None), ("async", IndexMode::Async), ("sync", IndexMode::Sync)];

/// Objects that the draining thread takes at once.
const PART: u64 = 1024;
/// How long it waits where there is nothing to take.
const PAUSE: Duration = Duration::from_millis(1);

/// Measures in `folder`: `count` objects a round, `rounds` rounds after one to warm up.
pub fn measure(folder: &Path, count: u64, rounds: u64) -> Result<String> {
    let still = part(folder, count, rounds, false)?;
    let beside = part(folder, count, rounds, true)?;
    Ok(format!("{{\"still\": {still}, \"beside\": {beside}}}"))
}

/// Every mode by turns; with `draining`, a thread drains while `async` has its turn.
fn part(folder: &Path, count: u64, rounds: u64, draining: bool) -> Result<String> {
    let path = folder.join("modes.pool");
    let pool = Pool::create(&path, &CreateOptions { size: 64 << 20, ..Default::default() })?;
    let realm = pool.realm("default")?;
    let mut samples = MODES.map(|_| Vec::new());
    for round in 0..=rounds {
        for ((mode, index), samples) in MODES.iter().zip(&mut samples) {
            let group = format!("{mode}/{round}");
            let group = realm.create_group(realm.root(), &group, &[], &[], false)?;
            let work = || timed(count, || put(&realm, group, *index, round * count, count));
            let seconds = if draining && *index == IndexMode::Async {
                beside(&realm, work)?
            } else {
                work()?
            };
            if round > 0 {
                samples.push(seconds);
            }
            while realm.drain_queue(PART)? > 0 {}
        }
    }
    drop(realm);
    pool.close();
    drop(pool);
    Pool::destroy(&path)?;
    let named: Vec<(&str, &[f64])> =
        MODES.iter().zip(&samples).map(|((mode, _), found)| (*mode, &found[..])).collect();
    Ok(json(&named))
}

/// Does `work` while a thread drains the queue.
fn beside<T>(realm: &Realm, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let drainer = scope.spawn(|| {
            while !stop.load(Relaxed) {
                if realm.drain_queue(PART)? == 0 {
                    std::thread::sleep(PAUSE);
                }
            }
            Ok::<(), engram::Error>(())
        });
        let done = work();
        stop.store(true, Relaxed);
        drainer.join().map_err(|_| "the draining thread panicked")??;
        done
    })
}

/// Drains a pool's queue from a process of its own, until its input ends.
pub fn drain(pool: &Path) -> Result<String> {
    let pool = Pool::open(pool, Mode::ReadWrite, false)?;
    let realm = pool.realm("default")?;
    beside(&realm, || {
        println!("draining");
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(())
    })?;
    while realm.drain_queue(PART)? > 0 {}
    Ok("{}".to_owned())
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
        properties: Vec::new(),
        layout: engram::Layout::default(),
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
