//! Checking runs: every entry of them, and all that a search relies on.
//!
//! A search believes the order of the entries, the fences, the last key and the counts, and looks
//! no further. So `verify` reads everything, and believes nothing.

use super::ascending::NumberPosition;
#[cfg(feature = "faults")]
use super::block::Block;
use super::block::{BlockValues, each_cell};
use super::head::RunHead;
use super::packing::PackingKind;
#[cfg(feature = "faults")]
use super::ranked_range::RankedRange;
use super::read::SortedRun;
#[cfg(feature = "faults")]
use super::read::{RunPiece, RunTest};
use super::{Number, block_key, heads, next_column};
use crate::cell::{Cell, total_order};
use crate::column_key::ColumnKey;
#[cfg(feature = "faults")]
use crate::range::Range;
#[cfg(feature = "faults")]
use engram_base::error::Error;
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::{ReadTxn, Table};

/// Calls `each` with segment, position and cell of every entry of a column's runs, those of
/// segments that are gone included. An error says what is wrong with a run.
pub fn check(
    txn: &ReadTxn<'_>,
    column: ColumnKey,
    mut each: impl FnMut(u32, u16, &Cell<'_>),
) -> Result<()> {
    for (number, head) in heads(txn, column)? {
        check_run(txn, column, number, &head, &mut each)?;
    }
    Ok(())
}

/// The columns that have runs, ascending.
pub fn columns(txn: &ReadTxn<'_>) -> Result<Vec<ColumnKey>> {
    let (mut columns, mut from) = (Vec::new(), Some(0));
    while let Some(least) = from
        && let Some(column) = next_column(txn, least)?
    {
        columns.push(column);
        from = column.checked_add(1);
    }
    Ok(columns)
}

fn check_run(
    txn: &ReadTxn<'_>,
    column: ColumnKey,
    number: Number,
    head: &RunHead<'_>,
    each: &mut impl FnMut(u32, u16, &Cell<'_>),
) -> Result<()> {
    let blocks = head.blocks();
    if txn.get(Table::IndexRuns, &block_key(column, number, blocks as u32))?.is_some() {
        fail!(Corrupt, "run {number} has more than the {blocks} blocks that its head says");
    }
    if !head.segments().map(|(segment, _)| segment).is_sorted_by(|a, b| a < b) {
        fail!(Corrupt, "the segments of run {number} do not ascend");
    }
    let run = SortedRun::new(txn, column, number, *head);
    let mut counts = vec![0_u64; head.segments().len()];
    let mut entry = |reference: u64, cell: &Cell<'_>| {
        let (index, position) = head.resolve(reference);
        match (head.segment(index), counts.get_mut(index)) {
            (Some(segment), Some(count)) => {
                *count += 1;
                each(segment, position, cell);
                Ok(())
            }
            _ => fail!(Corrupt, "an entry of run {number} is of segment {index} of those it has"),
        }
    };
    if head.packing.kind == PackingKind::Cells {
        cells(&run, number, head, &mut entry)?;
    } else {
        keys(&run, number, head, &mut entry)?;
    }
    let claimed = head.segments().map(|(_, count)| u64::from(count));
    if !claimed.eq(counts.iter().copied()) {
        fail!(Corrupt, "run {number} has other numbers of entries than its head says");
    }
    Ok(())
}

/// The entries of a run of numbers.
fn keys(
    run: &SortedRun<'_>,
    number: Number,
    head: &RunHead<'_>,
    entry: &mut impl FnMut(u64, &Cell<'_>) -> Result<()>,
) -> Result<()> {
    let mut last = None;
    for at in 0..head.blocks() {
        let block = run.block(at)?;
        let BlockValues::Keys(keys) = block.values else { continue };
        let mut first = None;
        let whole = keys.each(NumberPosition::default(), None, |index, key| {
            first.get_or_insert(key);
            if last.is_some_and(|last| key < last) {
                fail!(Corrupt, "block {at} of run {number} is not in order");
            }
            last = Some(key);
            entry(block.references.get(index), &head.packing.cell(key))
        })?;
        if whole.is_none() || first != Some(head.key(at)) {
            fail!(Corrupt, "block {at} of run {number} has other keys than its fence says");
        }
    }
    if last != Some(head.last_key()) {
        fail!(Corrupt, "run {number} ends with another key than its head says");
    }
    Ok(())
}

/// The entries of a run of cells.
fn cells(
    run: &SortedRun<'_>,
    number: Number,
    head: &RunHead<'_>,
    entry: &mut impl FnMut(u64, &Cell<'_>) -> Result<()>,
) -> Result<()> {
    let mut last: Option<Cell<'static>> = None;
    for at in 0..head.blocks() {
        let block = run.block(at)?;
        let fence = head.cell(at)?;
        let BlockValues::Cells(bytes) = block.values else { continue };
        each_cell(bytes, block.len, |index, cell| {
            let falls = |last: &Cell<'_>| total_order(last, cell).is_gt();
            let misled = |last: &Cell<'_>| total_order(last, &fence).is_gt();
            let first = index == 0;
            if last.as_ref().is_some_and(|last| falls(last) || first && misled(last))
                || first && total_order(&fence, cell).is_gt()
            {
                fail!(Corrupt, "block {at} of run {number} is not in order");
            }
            last = Some(cell.clone().into_owned());
            entry(block.references.get(index), cell)?;
            Ok(true)
        })?;
    }
    Ok(())
}

/// Reads a head, and one block as each of its blocks.
#[cfg(feature = "faults")]
pub fn decode(head: &[u8], bytes: &[u8]) -> Result<()> {
    /// So many blocks are as good as all.
    const BLOCKS: usize = 16;
    let head = RunHead::parse(head)?;
    let _ = head.segments().map(|(segment, _)| segment).is_sorted();
    let blocks = head.blocks().min(BLOCKS);
    let (all, passes) = (Range::default(), |_: &Cell<'_>| true);
    if let Some(span) = RankedRange::new(&all) {
        let piece = RunPiece::of_bytes(&head, &vec![bytes; blocks], span);
        for part in [None, Some("a")] {
            let _ = piece.find(&Some, &RunTest::new(&passes, part), &mut |_, _| ());
        }
        let _ = piece.find(&Some, &RunTest::all(), &mut |_, _| ());
    }
    for number in 0..blocks {
        let block = Block::parse(&head, number, bytes)?;
        for index in 0..block.len {
            let (segment, _) = head.resolve(block.references.get(index));
            let _ = head.segment(segment);
        }
        match block.values {
            BlockValues::Keys(keys) => {
                let whole = keys.each(NumberPosition::default(), None, |_, key| {
                    let _ = head.packing.cell(key);
                    Ok(())
                })?;
                let _ = (whole, keys.first_from(head.key(number)), keys.unpack(&mut Vec::new()));
                let middle = block.len / 2;
                let _ = keys.part(middle..middle + 3, |_, _| Ok::<_, Error>(()))?;
            }
            BlockValues::Cells(cells) => {
                let _ = head.cell(number);
                each_cell(cells, block.len, |_, _| Ok(true))?;
            }
        }
    }
    Ok(())
}
