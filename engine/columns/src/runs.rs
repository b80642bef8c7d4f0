//! Runs: the values of nearly unique keys, sorted, and where each of them is.
//!
//! A column whose values are hardly ever the same is no use as a column: each segment's zone is as
//! wide as all, and every segment would have to be looked through. Such a key has *runs* instead:
//! pairs of cell and position (of a segment), in the order of the cells. A query finds the ends of
//! its range in each run, and reads what lies between.
//!
//! Sealing a segment appends a run of level 0, the segment's own entries. Once there are
//! [`merge::FAN_OUT`] runs of a level, maintenance merges them into one of the next, so that there
//! are few runs for a query to search, and each entry is rewritten a few times in all. Beyond about
//! a million entries runs are left as they are. A merge of many entries takes several transactions,
//! so that it holds up nobody for long (`unfinished.rs`).
//!
//! A run is never changed once written. Rewriting a segment gives its rows a new number, and new
//! entries in a new run; entries of segments that are *gone* stay where they are, and readers pass
//! over them, until a merge leaves them out, as it does those at dead positions. A reader sees
//! runs, segments and dead positions of one snapshot, so it cannot tell when that happens.
//!
//! A run is a head (`head.rs`) and blocks of at most a page (`block.rs`), rows of `index_runs`. The
//! heads of a column lie side by side, so that a query finds them at one place. The head has the
//! first cell of each block and how many entries come before it, so that a search reads the head
//! and one block for each end of the range, in place, and counting reads no more. Cells of one kind
//! are kept as ascending numbers (`packing.rs`, `ascending.rs`), other cells as they are.

mod ascending;
mod block;
pub mod check;
mod head;
mod merge;
mod packing;
mod ranked_range;
mod read;
mod scatter;
mod texts;
mod unfinished;
mod walk;
mod write;

#[cfg(all(test, feature = "faults"))]
mod kills;
#[cfg(test)]
mod tests;

use engram_catalog::Txn;
use std::borrow::Borrow;

#[cfg(feature = "faults")]
pub use self::check::decode;
pub use self::check::{check, columns};
use self::head::RunHead;
pub use self::merge::merge_some;
pub use self::read::{RunPiece, RunTest, SortedRuns};
pub use self::scatter::RowSpan;
pub use self::unfinished::UNFINISHED;
pub use self::walk::{RunEntry, RunWalk};
use self::write::{Entries, Reference};
use super::cell::Cell;
use super::column_key::ColumnKey;
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::{Table, WriteTxn};

/// The number of a run within its column.
type Number = u32;

fn key(words: [u32; 3]) -> [u8; 12] {
    let mut key = [0; 12];
    for (bytes, word) in key.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    key
}

/// The key of a run's head. A column's heads lie side by side, before all of its blocks.
fn head_key(column: ColumnKey, run: Number) -> [u8; 12] {
    key([column, 0, run])
}

/// The key of a block of a run.
fn block_key(column: ColumnKey, run: Number, block: u32) -> [u8; 12] {
    key([column, run, block])
}

/// The runs of a column, in the order of their numbers, and their heads.
fn heads<'t>(txn: &'t Txn<'_>, column: ColumnKey) -> Result<Vec<(Number, RunHead<'t>)>> {
    let mut heads = Vec::new();
    let before = head_key(column, 0);
    let mut cursor = txn.seek(Table::IndexRuns, &before)?;
    while let Some((key, value)) = cursor.next()?
        && let Some(run) = key.strip_prefix(&before[..8])
    {
        let Ok(run) = run.try_into() else {
            fail!(Corrupt, "a key of `index_runs` has {} bytes, not 12", key.len());
        };
        heads.push((u32::from_be_bytes(run), RunHead::parse(value)?));
    }
    Ok(heads)
}

/// The first column from this one on that has runs.
fn next_column(txn: &Txn<'_>, from: ColumnKey) -> Result<Option<ColumnKey>> {
    let row = txn.seek(Table::IndexRuns, &head_key(from, 0))?.next()?;
    match row.map(|(key, _)| key.first_chunk()) {
        None => Ok(None),
        Some(Some(column)) => Ok(Some(u32::from_be_bytes(*column))),
        Some(None) => fail!(Corrupt, "a key of `index_runs` is no column"),
    }
}

/// Adds a segment's entries: its cells of a column, in any order, and the position of each.
pub fn append<'c, C: Borrow<Cell<'c>>>(
    txn: &mut WriteTxn<'_>,
    column: ColumnKey,
    segment: u32,
    entries: &[(C, u16)],
) -> Result<()> {
    let run = next_number(txn, column, &heads(txn, column)?)?;
    let entry = |(cell, position): &(C, u16)| (cell.borrow().clone(), Reference::from(*position));
    let entries = Entries::Cells(entries.iter().map(entry).collect());
    write::write(txn, column, run, 0, &[segment], entries)
}

/// The number of the next run of a column that has these; the first is 1.
fn next_number(
    txn: &Txn<'_>,
    column: ColumnKey,
    heads: &[(Number, RunHead<'_>)],
) -> Result<Number> {
    let last = heads.last().map_or(0, |(last, _)| *last);
    match last.max(unfinished::number_in_use(txn, column)?).checked_add(1) {
        Some(number) => Ok(number),
        None => fail!(Corrupt, "column {column} of `index_runs` has no number left"),
    }
}
