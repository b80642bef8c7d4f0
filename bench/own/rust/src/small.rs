//! Small arrays: one commit each, in batches, and read, beside bare LMDB by turns.

use std::path::Path;

use crate::bare::{Bare, Rows};
use crate::store::{BATCH, Store, scramble, timed};
use crate::{Result, json};

/// The rounds of both sides, for one kind of work.
#[derive(Default)]
struct Rounds {
    engram: Vec<f64>,
    bare: Vec<f64>,
}

impl Rounds {
    fn json(&self) -> String {
        json(&[("engram", &self.engram), ("bare LMDB", &self.bare)])
    }
}

/// Measures in `folder`: `count` arrays a round, `rounds` rounds after one to warm up.
pub fn measure(folder: &Path, count: u64, rounds: u64) -> Result<String> {
    let mut store = Store::create(&folder.join("rust.pool"))?;
    store.put(false)?;
    let mut bare = Bare::create(&folder.join("rust.lmdb"), Rows::of(&store.catalog())?)?;
    let (mut single, mut batched, mut read) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    for round in 0..=rounds {
        let ours = timed(count, || (0..count).try_for_each(|_| store.put(false)))?;
        let theirs = timed(count, || (0..count).try_for_each(|_| bare.put(1, false)))?;
        keep(&mut single, round, ours, theirs);
        let batches = count.div_ceil(BATCH);
        let units = batches * BATCH;
        let ours = timed(units, || (0..batches).try_for_each(|_| store.put_batch(BATCH, false)))?;
        let theirs = timed(units, || (0..batches).try_for_each(|_| bare.put(BATCH, false)))?;
        keep(&mut batched, round, ours, theirs);
        let pick = |turn: u64, there: u64| scramble(turn + round * count) % there;
        let ours = timed(count, || {
            (0..count).try_for_each(|turn| store.read(pick(turn, store.count)).map(drop))
        })?;
        let theirs = timed(count, || {
            (0..count).try_for_each(|turn| bare.read(pick(turn, bare.count)).map(drop))
        })?;
        keep(&mut read, round, ours, theirs);
    }
    drop(bare);
    store.destroy()?;
    std::fs::remove_dir_all(folder.join("rust.lmdb"))?;
    let parts = [("single", single), ("batched", batched), ("read", read)];
    let parts = parts.map(|(name, rounds)| format!("\"{name}\": {}", rounds.json()));
    Ok(format!("{{{}}}", parts.join(", ")))
}

fn keep(rounds: &mut Rounds, round: u64, ours: f64, theirs: f64) {
    if round > 0 {
        rounds.engram.push(ours);
        rounds.bare.push(theirs);
    }
}
