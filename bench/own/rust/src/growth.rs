//! How the time of a put grows with the number of arrays, and how much the catalog takes.

use std::path::Path;

use crate::bare::{self, Bare, Rows};
use crate::store::{Made, NAME_BYTES, Store, VALUE_BYTES, timed};
use crate::{Result, json};

/// What to measure: `puts` arrays a round where there are `few`, and where there are `many`.
pub struct Plan {
    /// Arrays in the small pool.
    pub few: u64,
    /// Arrays in the large pool.
    pub many: u64,
    /// Arrays put in a round.
    pub puts: u64,
    /// Rounds after one to warm up.
    pub rounds: u64,
    /// Whether names come without order.
    pub random: bool,
}

/// One number of arrays, on both sides.
struct Stage {
    store: Store,
    bare: Bare,
    engram: Vec<f64>,
    lmdb: Vec<f64>,
}

impl Stage {
    fn new(folder: &Path, number: u64, plan: &Plan) -> Result<Self> {
        let mut store =
            Store::create(&folder.join(format!("growth-{number}.pool")), Made::default())?;
        store.fill(number, plan.random)?;
        let rows = Rows::of(&store.catalog())?;
        let mut bare = Bare::create(&folder.join(format!("growth-{number}.lmdb")), rows)?;
        bare.fill(number, plan.random)?;
        Ok(Stage { store, bare, engram: Vec::new(), lmdb: Vec::new() })
    }

    fn round(&mut self, plan: &Plan) -> Result<()> {
        let store = &mut self.store;
        let one_by_one = || (0..plan.puts).try_for_each(|_| store.put(plan.random));
        self.engram.push(timed(plan.puts, one_by_one)?);
        let bare = &mut self.bare;
        let one_by_one = || (0..plan.puts).try_for_each(|_| bare.put(1, plan.random));
        self.lmdb.push(timed(plan.puts, one_by_one)?);
        Ok(())
    }

    fn remove(self, folder: &Path, number: u64) -> Result<()> {
        drop(self.bare);
        std::fs::remove_dir_all(folder.join(format!("growth-{number}.lmdb")))?;
        self.store.destroy()
    }
}

/// Measures in `folder`, with small and large by turns.
pub fn measure(folder: &Path, plan: &Plan) -> Result<String> {
    let mut few = Stage::new(folder, plan.few, plan)?;
    let mut many = Stage::new(folder, plan.many, plan)?;
    let (in_tables, to_last_page) = bare::catalog_bytes(&many.store.catalog())?;
    let beyond = |bytes: f64| bytes / plan.many as f64 - (VALUE_BYTES + NAME_BYTES) as f64;
    for _ in 0..=plan.rounds {
        few.round(plan)?;
        many.round(plan)?;
    }
    let samples = json(&[
        ("engram, few", &few.engram[1..]),
        ("engram, many", &many.engram[1..]),
        ("bare LMDB, few", &few.lmdb[1..]),
        ("bare LMDB, many", &many.lmdb[1..]),
    ]);
    let catalog = json(&[
        ("engram", &[beyond(to_last_page)]),
        ("engram, pages in use", &[beyond(in_tables)]),
    ]);
    few.remove(folder, plan.few)?;
    many.remove(folder, plan.many)?;
    Ok(format!("{{\"samples\": {samples}, \"catalog\": {catalog}}}"))
}
