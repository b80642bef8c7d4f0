//! Reading runs: how many entries a range has, and which.
//!
//! Entries of segments that are gone, and at dead positions, are still there until a merge; counts
//! have them, and visits pass over the former. Nothing is copied but text that is put together.

use engram_catalog::Txn;
use std::cmp::Ordering;
use std::ops::Range as StdRange;

use memchr::memmem::Finder;

use super::ascending::{Ascending, NumberPosition};
use super::block::{Block, BlockValues, each_cell};
use super::head::RunHead;
use super::packing::PackingKind;
use super::ranked_range::RankedRange;
use super::texts::BlockTexts;
use super::{Number, block_key, heads};
use crate::cell::Cell;
use crate::column_key::ColumnKey;
use crate::range::Range;
use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::Table;

/// So few references are looked up one by one.
const ENTRIES_FEW: usize = 8;
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

    /// How many entries lie in a range, as far as the runs' heads tell: those of all blocks that
    /// have some of it.
    pub fn count_by_blocks(&self, range: &Range<'_>) -> Result<u64> {
        let Some(span) = RankedRange::new(range) else { return Ok(0) };
        self.runs.iter().try_fold(0, |sum, run| {
            let (blocks, _) = run.blocks(&span)?;
            let most = run.head.before(blocks.end).saturating_sub(run.head.before(blocks.start));
            Ok(sum + u64::from(most))
        })
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
        let named = |segment| alive(segment).then_some(segment);
        self.pieces(range)?.iter().try_for_each(|piece| piece.visit(&named, &mut each))
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

/// A test of the cells of runs.
pub struct RunTest<'q> {
    /// Whether a cell passes; all do if nothing is said.
    passes: Option<&'q (dyn Fn(&Cell<'_>) -> bool + Sync)>,
    /// What the texts contain that pass, and no others.
    part: Option<Finder<'q>>,
}

impl<'q> RunTest<'q> {
    /// One that every cell passes.
    pub fn all() -> Self {
        RunTest { passes: None, part: None }
    }

    /// Makes a test ready. With a `part`, which is not empty, a text passes if it contains that.
    pub fn new(passes: &'q (dyn Fn(&Cell<'_>) -> bool + Sync), part: Option<&'q str>) -> Self {
        let part = part.filter(|part| !part.is_empty()).map(Finder::new);
        RunTest { passes: Some(passes), part }
    }

    fn passes(&self, cell: &Cell<'_>) -> bool {
        self.passes.is_none_or(|passes| passes(cell))
    }
}

#[cfg(feature = "faults")]
impl<'t, 'r> RunPiece<'t, 'r> {
    /// A piece of these blocks, the first ones of a run.
    pub(super) fn of_bytes(head: &RunHead<'t>, blocks: &[&'t [u8]], span: RankedRange<'r>) -> Self {
        let blocks = blocks.to_vec();
        RunPiece { column: 0, head: *head, span, first: 0, blocks, low: None, high: None }
    }
}

impl RunPiece<'_, '_> {
    /// Calls `each` with segment, position and cell of each entry in the range, in the order of the
    /// cells: with what `named` calls the segment, but for those that it has no name for.
    pub fn visit<T: Copy>(
        &self,
        named: &dyn Fn(u32) -> Option<T>,
        each: &mut impl FnMut(T, u16, &Cell<'_>),
    ) -> Result<()> {
        let mut texts = BlockTexts::default();
        self.each_block(named, |number, block, names| match block.values {
            BlockValues::Keys(keys) => self.keys(number, &keys, |index, key| {
                if let Some((segment, position)) = names.of(block.references.get(index))? {
                    each(segment, position, &self.head.packing.cell(key));
                }
                Ok(())
            }),
            BlockValues::Cells(cells) => {
                self.cells(cells, block.len, &mut texts, |entries, cell| {
                    names.tell(block, entries, &mut |segment, at| each(segment, at, cell))
                })
            }
        })
    }

    /// Calls `found` with segment and position of each entry in the range whose cell passes a test,
    /// by whatever order: with what `named` calls the segment, but for those that it has no name
    /// for. Texts that are the same are tested once. Cells that need no test are not read, so a
    /// block of damaged ones goes unnoticed.
    pub fn find<T: Copy>(
        &self,
        named: &dyn Fn(u32) -> Option<T>,
        test: &RunTest<'_>,
        found: &mut impl FnMut(T, u16),
    ) -> Result<()> {
        let mut texts = BlockTexts::default();
        // The part does not tell whether a text is in the range.
        let part = test.part.as_ref().filter(|_| self.span.has_all_texts());
        self.each_block(named, |number, block, names| match (block.values, part) {
            (BlockValues::Keys(keys), _) if test.passes.is_none() => {
                let (low, high) = self.ends(number);
                let from = low.map_or(0, |low| keys.first_from(low).index);
                let to = high.map_or(block.len, |high| keys.first_from(high).index);
                names.tell(block, from..to, found)?;
                Ok(true)
            }
            (BlockValues::Keys(keys), _) => self.keys(number, &keys, |index, key| {
                if let Some((segment, position)) = names.of(block.references.get(index))?
                    && test.passes(&self.head.packing.cell(key))
                {
                    found(segment, position);
                }
                Ok(())
            }),
            (BlockValues::Cells(cells), Some(part)) if texts.read(cells, block.len) => {
                texts.each_with(part, |entries| names.tell(block, entries, found))?;
                Ok(true)
            }
            (BlockValues::Cells(cells), _) => {
                self.cells(cells, block.len, &mut texts, |entries, cell| {
                    if test.passes(cell) { names.tell(block, entries, found) } else { Ok(()) }
                })
            }
        })
    }

    /// Calls with each block and its number, until it is told `false`.
    fn each_block<T: Copy>(
        &self,
        named: &dyn Fn(u32) -> Option<T>,
        mut each: impl FnMut(usize, &Block<'_>, &SegmentNames<'_, '_, T>) -> Result<bool>,
    ) -> Result<()> {
        let names = SegmentNames::new(&self.head, named, self.blocks.len());
        for (number, bytes) in (self.first..).zip(&self.blocks) {
            if !each(number, &Block::parse(&self.head, number, bytes)?, &names)? {
                break;
            }
        }
        Ok(())
    }

    /// The key that the range begins with in a block, and the one before which it ends there, if it
    /// does so there.
    fn ends(&self, number: usize) -> (Option<u64>, Option<u64>) {
        let last = self.first + self.blocks.len() - 1;
        (self.low.filter(|_| number == self.first), self.high.filter(|_| number == last))
    }

    /// Calls with each key of a block in the range, and which entry has it.
    fn keys(
        &self,
        number: usize,
        keys: &Ascending<'_>,
        each: impl FnMut(usize, u64) -> Result<()>,
    ) -> Result<bool> {
        let (low, until) = self.ends(number);
        let place = low.map_or_else(NumberPosition::default, |low| keys.first_from(low));
        if keys.each(place, until, each)?.is_none() {
            fail!(Corrupt, "block {number} of a run of column {} has too few keys", self.column);
        }
        Ok(true)
    }

    /// Calls with cells of a block in the range, and which entries have them; whether the next
    /// block may have more.
    fn cells(
        &self,
        cells: &[u8],
        len: usize,
        texts: &mut BlockTexts,
        mut each: impl FnMut(StdRange<usize>, &Cell<'_>) -> Result<()>,
    ) -> Result<bool> {
        let mut each = |entries, cell: &Cell<'_>| {
            let place = self.span.place(cell);
            if place == Ordering::Equal {
                each(entries, cell)?;
            }
            Ok(place != Ordering::Greater)
        };
        if texts.read(cells, len) {
            return texts.each(each);
        }
        each_cell(cells, len, |index, cell| each(index..index + 1, cell))
    }
}

/// What a run's segments are called by a visitor.
struct SegmentNames<'a, 't, T> {
    head: &'a RunHead<'t>,
    named: &'a dyn Fn(u32) -> Option<T>,
    /// The names of all, if many entries ask.
    known: Vec<Option<T>>,
}

impl<'a, 't, T: Copy> SegmentNames<'a, 't, T> {
    fn new(head: &'a RunHead<'t>, named: &'a dyn Fn(u32) -> Option<T>, blocks: usize) -> Self {
        let many = blocks >= BLOCKS_MANY;
        let all = head.segments().map(|(segment, _)| named(segment));
        let known = if many { all.collect() } else { Vec::new() };
        SegmentNames { head, named, known }
    }

    /// Segment and position of a reference; `None` if the segment has no name.
    #[inline]
    fn of(&self, reference: u64) -> Result<Option<(T, u16)>> {
        let (index, position) = self.head.resolve(reference);
        if let Some(known) = self.known.get(index) {
            return Ok(known.map(|segment| (segment, position)));
        }
        match self.head.segment(index) {
            Some(segment) => Ok((self.named)(segment).map(|segment| (segment, position))),
            None => fail!(Corrupt, "an entry of a run is of segment {index} of those it has"),
        }
    }

    /// Calls with segment and position of entries of a block, but those of segments without a name.
    fn tell(
        &self,
        block: &Block<'_>,
        entries: StdRange<usize>,
        each: &mut impl FnMut(T, u16),
    ) -> Result<()> {
        let mut one = |reference| {
            if let Some((segment, position)) = self.of(reference)? {
                each(segment, position);
            }
            Ok(())
        };
        if entries.len() <= ENTRIES_FEW {
            return entries.map(|index| block.references.get(index)).try_for_each(one);
        }
        block.references.each(entries, &mut one)
    }
}
