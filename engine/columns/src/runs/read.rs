//! Reading runs: how many entries a range has, and which.
//!
//! Entries of segments that are gone, and at dead positions, are still there until a merge; counts
//! have them, and visits pass over the former. Nothing is copied but text that is put together.

use engram_catalog::Txn;
use std::cmp::Ordering;
use std::ops::Range as StdRange;

use super::ascending::NumberPosition;
use super::block::{Block, BlockValues, each_cell};
use super::head::RunHead;
use super::packing::PackingKind;
use super::ranked_range::RankedRange;
use super::{Number, block_key, heads};
use crate::cell::Cell;
use crate::column_key::ColumnKey;
use crate::range::Range;
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::Table;

/// From so many blocks on, each segment is asked for once, not for each of its entries.
const BLOCKS_MANY: usize = 4;
/// So many blocks at most are one piece: some ten thousand entries.
const PIECE_BLOCKS: usize = 32;

/// The runs of a column.
pub struct SortedRuns<'t> {
    pub(super) runs: Vec<SortedRun<'t>>,
}

impl<'t> SortedRuns<'t> {
    /// Finds a column's runs.
    pub fn read(txn: &'t Txn<'t>, column: ColumnKey) -> Result<Self> {
        let run = |(number, head)| SortedRun { txn, column, number, head };
        let runs = heads(txn, column)?.into_iter().map(run).collect();
        Ok(SortedRuns { runs })
    }

    /// How many entries lie in a range, those of segments that are gone and of dead positions
    /// included: no fewer than a visit finds.
    pub fn count(&self, range: &Range<'_>) -> Result<u64> {
        let Some(span) = RankedRange::new(range) else { return Ok(0) };
        self.runs.iter().try_fold(0, |sum, run| Ok(sum + run.count(&span)?))
    }

    /// Brings to hand what has the entries in a range, in pieces that need the catalog no more: any
    /// thread may look through one.
    pub fn pieces<'r>(&self, range: &'r Range<'r>) -> Result<Vec<RunPiece<'t, 'r>>> {
        let mut pieces = Vec::new();
        if let Some(span) = RankedRange::new(range) {
            self.runs.iter().try_for_each(|run| run.pieces(&span, &mut pieces))?;
        }
        Ok(pieces)
    }

    /// Calls `each` with segment, position and cell of each entry in a range, but those of segments
    /// that are not `alive`; run by run, and in each in the order of the cells.
    #[cfg(test)]
    pub(super) fn visit(
        &self,
        range: &Range<'_>,
        alive: &dyn Fn(u32) -> bool,
        mut each: impl FnMut(u32, u16, &Cell<'_>),
    ) -> Result<()> {
        self.pieces(range)?.iter().try_for_each(|piece| piece.visit(alive, &mut each))
    }
}

#[cfg(test)]
impl SortedRuns<'_> {
    /// How many runs there are, and how many entries.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.runs.len(), self.runs.iter().map(|run| u64::from(run.head.entries)).sum())
    }

    /// How many bytes the blocks take.
    pub(super) fn bytes(&self) -> Result<usize> {
        let mut bytes = 0;
        for run in &self.runs {
            for block in 0..run.head.blocks() as u32 {
                let key = block_key(run.column, run.number, block);
                bytes += run.txn.get(Table::IndexRuns, &key)?.map_or(0, <[u8]>::len);
            }
        }
        Ok(bytes)
    }
}

/// One run.
pub(super) struct SortedRun<'t> {
    txn: &'t Txn<'t>,
    column: ColumnKey,
    number: Number,
    pub(super) head: RunHead<'t>,
}

/// The first of the numbers up to `len` that `before` is not true of; it is true of none later.
fn first_not(len: usize, mut before: impl FnMut(usize) -> Result<bool>) -> Result<usize> {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

impl<'t> SortedRun<'t> {
    pub(super) fn new(
        txn: &'t Txn<'t>,
        column: ColumnKey,
        number: Number,
        head: RunHead<'t>,
    ) -> Self {
        SortedRun { txn, column, number, head }
    }

    /// One of its blocks.
    pub(super) fn block(&self, number: usize) -> Result<Block<'t>> {
        Block::parse(&self.head, number, self.bytes(number)?)
    }

    fn bytes(&self, number: usize) -> Result<&'t [u8]> {
        let key = block_key(self.column, self.number, number as u32);
        match self.txn.get(Table::IndexRuns, &key)? {
            Some(bytes) => Ok(bytes),
            None => fail!(Corrupt, "block {number} of a run of column {} is missing", self.column),
        }
    }

    /// The keys that a span begins with, and ends before; `None` is beyond all.
    fn keys(&self, span: &RankedRange<'_>) -> (Option<u64>, Option<u64>) {
        if span.is_all() {
            return (Some(0), None);
        }
        let packing = self.head.packing;
        let low = packing.first(span.low(), |cell| span.place(cell) == Ordering::Less);
        (low, packing.first(span.high(), |cell| span.place(cell) != Ordering::Greater))
    }

    fn count(&self, span: &RankedRange<'_>) -> Result<u64> {
        if self.head.packing.kind == PackingKind::Cells {
            let low = self.cells_before(|cell| span.place(cell) == Ordering::Less)?;
            let high = self.cells_before(|cell| span.place(cell) != Ordering::Greater)?;
            return Ok(high.saturating_sub(low));
        }
        let (low, high) = self.keys(span);
        Ok(self.keys_before(high)?.saturating_sub(self.keys_before(low)?))
    }

    /// How many entries have a key below this one.
    fn keys_before(&self, key: Option<u64>) -> Result<u64> {
        let Some(key) = key.filter(|key| *key <= self.head.last_key()) else {
            return Ok(u64::from(self.head.entries));
        };
        let block = first_not(self.head.blocks(), |at| Ok(self.head.key(at) < key))?;
        let Some(block) = block.checked_sub(1) else { return Ok(0) };
        let BlockValues::Keys(keys) = self.block(block)?.values else { return Ok(0) };
        Ok(u64::from(self.head.before(block)) + keys.first_from(key).index as u64)
    }

    /// How many entries have a cell that `before` is true of; it is true of the first ones.
    fn cells_before(&self, before: impl Fn(&Cell<'_>) -> bool) -> Result<u64> {
        let block = first_not(self.head.blocks(), |at| Ok(before(&self.head.cell(at)?)))?;
        let Some(block) = block.checked_sub(1) else { return Ok(0) };
        let mut count = u64::from(self.head.before(block));
        let found = self.block(block)?;
        if let BlockValues::Cells(cells) = found.values {
            each_cell(cells, found.len, |_, cell| {
                let is = before(cell);
                count += u64::from(is);
                Ok(is)
            })?;
        }
        Ok(count)
    }

    /// The blocks that have a span, and the keys that it begins with, and ends before.
    fn blocks(&self, span: &RankedRange<'_>) -> Result<(StdRange<usize>, [Option<u64>; 2])> {
        let head = &self.head;
        if head.packing.kind == PackingKind::Cells {
            let place = |at| Ok(span.place(&head.cell(at)?));
            let start = first_not(head.blocks(), |at| Ok(place(at)? == Ordering::Less))?;
            let end = first_not(head.blocks(), |at| Ok(place(at)? != Ordering::Greater))?;
            return Ok((start.saturating_sub(1)..end, [None; 2]));
        }
        let (Some(low), high) = self.keys(span) else { return Ok((0..0, [None; 2])) };
        if low > head.last_key() || high.is_some_and(|high| high <= low) {
            return Ok((0..0, [None; 2]));
        }
        let start = first_not(head.blocks(), |at| Ok(head.key(at) < low))?.saturating_sub(1);
        let end = match high {
            Some(high) => first_not(head.blocks(), |at| Ok(head.key(at) < high))?,
            None => head.blocks(),
        };
        Ok((start..end, [Some(low), high]))
    }

    fn pieces<'r>(&self, span: &RankedRange<'r>, pieces: &mut Vec<RunPiece<'t, 'r>>) -> Result<()> {
        let (all, [low, high]) = self.blocks(span)?;
        for first in all.clone().step_by(PIECE_BLOCKS) {
            let end = all.end.min(first + PIECE_BLOCKS);
            let blocks = (first..end).map(|number| self.bytes(number)).collect::<Result<_>>()?;
            pieces.push(RunPiece {
                column: self.column,
                head: self.head,
                span: *span,
                first,
                blocks,
                low: low.filter(|_| first == all.start),
                high: high.filter(|_| end == all.end),
            });
        }
        Ok(())
    }
}

/// Some blocks of a run, one after another, in which a range is looked for.
pub struct RunPiece<'t, 'r> {
    column: ColumnKey,
    head: RunHead<'t>,
    span: RankedRange<'r>,
    /// The number of the first block.
    first: usize,
    blocks: Vec<&'t [u8]>,
    /// Where the range begins in the first block, and before which key it ends in the last one, if
    /// it does so there.
    low: Option<u64>,
    high: Option<u64>,
}

impl RunPiece<'_, '_> {
    /// Calls `each` with segment, position and cell of each entry in the range, but those of
    /// segments that are not `alive`, in the order of the cells.
    pub fn visit(
        &self,
        alive: &dyn Fn(u32) -> bool,
        each: &mut impl FnMut(u32, u16, &Cell<'_>),
    ) -> Result<()> {
        let living = Living::new(&self.head, alive, self.blocks.len());
        for (number, bytes) in (self.first..).zip(&self.blocks) {
            let block = Block::parse(&self.head, number, bytes)?;
            let more = match block.values {
                BlockValues::Keys(_) => self.visit_keys(number, &block, &living, each)?,
                BlockValues::Cells(_) => self.visit_cells(&block, &living, each)?,
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    fn visit_keys(
        &self,
        number: usize,
        block: &Block<'_>,
        living: &Living<'_, '_>,
        each: &mut impl FnMut(u32, u16, &Cell<'_>),
    ) -> Result<bool> {
        let BlockValues::Keys(keys) = block.values else { return Ok(true) };
        let place = match self.low.filter(|_| number == self.first) {
            Some(low) => keys.first_from(low),
            None => NumberPosition::default(),
        };
        let until = self.high.filter(|_| number + 1 == self.first + self.blocks.len());
        let whole = keys.each(place, until, |index, key| {
            if let Some((segment, position)) = living.of(block.references.get(index))? {
                each(segment, position, &self.head.packing.cell(key));
            }
            Ok(())
        })?;
        if whole.is_none() {
            fail!(Corrupt, "block {number} of a run of column {} has too few keys", self.column);
        }
        Ok(true)
    }

    fn visit_cells(
        &self,
        block: &Block<'_>,
        living: &Living<'_, '_>,
        each: &mut impl FnMut(u32, u16, &Cell<'_>),
    ) -> Result<bool> {
        let BlockValues::Cells(cells) = block.values else { return Ok(true) };
        each_cell(cells, block.len, |index, cell| {
            let place = self.span.place(cell);
            if place == Ordering::Equal
                && let Some((segment, at)) = living.of(block.references.get(index))?
            {
                each(segment, at, cell);
            }
            Ok(place != Ordering::Greater)
        })
    }
}

/// Which of a run's segments are alive.
struct Living<'a, 't> {
    head: &'a RunHead<'t>,
    alive: &'a dyn Fn(u32) -> bool,
    /// The answers for all, if many entries ask.
    known: Vec<Option<u32>>,
}

impl<'a, 't> Living<'a, 't> {
    fn new(head: &'a RunHead<'t>, alive: &'a dyn Fn(u32) -> bool, blocks: usize) -> Self {
        let ask = |(segment, _)| Some(segment).filter(|segment| alive(*segment));
        let many = blocks >= BLOCKS_MANY;
        let known = if many { head.segments().map(ask).collect() } else { Vec::new() };
        Living { head, alive, known }
    }

    /// Segment and position of a reference; `None` if the segment is gone.
    #[inline]
    fn of(&self, reference: u64) -> Result<Option<(u32, u16)>> {
        let (index, position) = self.head.resolve(reference);
        if let Some(known) = self.known.get(index) {
            return Ok(known.map(|segment| (segment, position)));
        }
        match self.head.segment(index) {
            Some(segment) => Ok((self.alive)(segment).then_some((segment, position))),
            None => fail!(Corrupt, "an entry of a run is of segment {index} of those it has"),
        }
    }
}
