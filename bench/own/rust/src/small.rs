//! Small arrays: one commit each, in batches, and read, beside bare LMDB by turns.

use std::path::Path;

use crate::bare::{Bare, Rows};
use crate::store::{BATCH, Made, Store, scramble, timed};
use crate::{Result, json};

/// Who takes part, in the order of the turns; after Engram's stores bare LMDB.
const NAMES: [&str; 4] = ["engram", "engram, one realm alone", "engram, checksums", "bare LMDB"];
const MADE: [Made; 3] = [
    Made { one_realm: false, checksums: false },
    Made { one_realm: true, checksums: false },
    Made { one_realm: false, checksums: true },
];

/// The rounds of all, for one kind of work.
#[derive(Default)]
struct Rounds([Vec<f64>; 4]);

impl Rounds {
    fn json(&self) -> String {
        let named = std::array::from_fn::<_, 4, _>(|n| (NAMES[n], &self.0[n][..]));
        json(&named)
    }
}

/// Measures in `folder`: `count` arrays a round, `rounds` rounds after one to warm up.
pub fn measure(folder: &Path, count: u64, rounds: u64) -> Result<String> {
    let mut stores = Vec::new();
    for (number, made) in MADE.into_iter().enumerate() {
        let mut store = Store::create(&folder.join(format!("rust-{number}.pool")), made)?;
        store.put(false)?;
        stores.push(store);
    }
    let mut bare = Bare::create(&folder.join("rust.lmdb"), Rows::of(&stores[0].catalog())?)?;
    let (mut single, mut batched, mut read) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    let batches = count.div_ceil(BATCH);
    let units = batches * BATCH;
    for round in 0..=rounds {
        let pick = |turn: u64, there: u64| scramble(turn + round * count) % there;
        let keep = |rounds: &mut Rounds, who: usize, taken_s: f64| {
            if round > 0 {
                rounds.0[who].push(taken_s);
            }
        };
        for (who, store) in stores.iter_mut().enumerate() {
            let one = || (0..count).try_for_each(|_| store.put(false));
            keep(&mut single, who, timed(count, one)?);
        }
        let one = || (0..count).try_for_each(|_| bare.put(1, false));
        keep(&mut single, stores.len(), timed(count, one)?);
        for (who, store) in stores.iter_mut().enumerate() {
            let many = || (0..batches).try_for_each(|_| store.put_batch(BATCH, false));
            keep(&mut batched, who, timed(units, many)?);
        }
        let many = || (0..batches).try_for_each(|_| bare.put(BATCH, false));
        keep(&mut batched, stores.len(), timed(units, many)?);
        for (who, store) in stores.iter().enumerate() {
            let all =
                || (0..count).try_for_each(|turn| store.read(pick(turn, store.count)).map(drop));
            keep(&mut read, who, timed(count, all)?);
        }
        let all = || (0..count).try_for_each(|turn| bare.read(pick(turn, bare.count)).map(drop));
        keep(&mut read, stores.len(), timed(count, all)?);
    }
    drop(bare);
    stores.into_iter().try_for_each(Store::destroy)?;
    std::fs::remove_dir_all(folder.join("rust.lmdb"))?;
    let parts = [("single", single), ("batched", batched), ("read", read)];
    let parts = parts.map(|(name, rounds)| format!("\"{name}\": {}", rounds.json()));
    Ok(format!("{{{}}}", parts.join(", ")))
}
