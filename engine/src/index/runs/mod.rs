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
//! a million entries runs are left as they are: a merge is one transaction, and holds up others.
//!
//! A run is never changed once written. Rewriting a segment gives its rows a new number, and new
//! entries in a new run; entries of segments that are *gone* stay where they are, and readers pass
//! over them, until a merge leaves them out, as it does those at dead positions. A reader sees
//! runs, segments and dead positions of one snapshot, so it cannot tell when that happens.
//!
//! A run is a head and blocks, rows of `index_runs` by (column, run, part): part 0 is the head
//! (`head.rs`), and each part from 1 on a block of at most a page (`block.rs`). The head has the
//! first cell of each block and how many entries come before it, so that a search reads the head
//! and one block for each end of the range, in place, and counting reads no more. Cells of one kind
//! are kept as ascending numbers (`packing.rs`, `ascending.rs`), other cells as they are.

mod ascending;
mod block;
mod head;
mod merge;
mod packing;
mod read;
mod span;
mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;

use std::borrow::Borrow;

pub(crate) use self::merge::merge_some;
pub(crate) use self::read::Runs;
use self::write::{Entries, Reference};
use super::cell::Cell;
use super::column_key::ColumnKey;
use super::look::Look;
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;
use crate::fail;

/// The number of a run within its column.
type Number = u32;

/// The key of a part of a run: 0 is its head.
fn part_key(column: ColumnKey, run: Number, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&column.to_be_bytes());
    key[4..8].copy_from_slice(&run.to_be_bytes());
    key[8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// The first run from a column's run `from` on, of this column or another, and its head.
fn next_head(
    look: &impl Look,
    column: ColumnKey,
    from: Number,
) -> Result<Option<(ColumnKey, Number, &[u8])>> {
    let mut cursor = look.rows(Table::IndexRuns, &part_key(column, from, 0))?;
    let Some((key, value)) = cursor.next()? else { return Ok(None) };
    let (words, rest) = key.as_chunks::<4>();
    let ([column, run, [0, 0, 0, 0]], []) = (words, rest) else {
        fail!(Corrupt, "a run in `index_runs` has no head: its first key is {key:02x?}");
    };
    Ok(Some((u32::from_be_bytes(*column), u32::from_be_bytes(*run), value)))
}

/// Adds a segment's entries: its cells of a column, in any order, and the position of each.
pub(crate) fn append<'c, C: Borrow<Cell<'c>>>(
    txn: &mut WriteTxn<'_>,
    column: ColumnKey,
    segment: u32,
    entries: &[(C, u16)],
) -> Result<()> {
    let run = next_number(txn, column)?;
    let entry = |(cell, position): &(C, u16)| (cell.borrow().clone(), Reference::from(*position));
    let entries = Entries::Cells(entries.iter().map(entry).collect());
    write::write(txn, column, run, 0, &[segment], entries)
}

/// A number greater than those of the column's runs.
fn next_number(txn: &WriteTxn<'_>, column: ColumnKey) -> Result<Number> {
    let last = txn.before(Table::IndexRuns, &part_key(column, u32::MAX, u32::MAX))?;
    match last.as_ref().map(|(key, _)| key.as_chunks::<4>()) {
        Some(([of, run, _], [])) if *of == column.to_be_bytes() => {
            match u32::from_be_bytes(*run).checked_add(1) {
                Some(next) => Ok(next),
                None => fail!(Corrupt, "column {column} of `index_runs` has no number left"),
            }
        }
        _ => Ok(0),
    }
}
