//! Walking runs from one end: every entry of a column, in the order of the cells.
//!
//! Each run is read piece by piece from that end, and the runs are merged as they are read. A run's
//! head tells the cell at its end, so a run is not touched before it may have the next entry: the
//! first few entries of a column are a few pieces of the runs that have them.

use std::ops::Range;

use super::SortedRuns;
use super::block::{BlockValues, each_cell};
use super::packing::PackingKind;
use super::read::SortedRun;
use crate::cell::{Cell, total_order};
use engram_base::error::Result;
use engram_base::fail;

/// An entry of a run.
#[derive(Clone, Debug)]
pub struct RunEntry {
    /// The segment; it may be gone.
    pub segment: u32,
    /// The position in it; it may be dead.
    pub position: u16,
    /// The cell.
    pub cell: Cell<'static>,
}

/// So many entries of keys are read at once. Cells build on the ones before: these are read by
/// blocks.
const PIECE: usize = 64;

/// A run, and how far it was read.
struct Reading<'r, 't> {
    run: &'r SortedRun<'t>,
    /// The block that has the next entry that was not read yet.
    block: usize,
    /// The entries of the run that were not read yet.
    left: Range<usize>,
    /// The entries at hand, the next one last.
    entries: Vec<RunEntry>,
    /// A cell that no entry comes before, while none is at hand.
    bound: Option<Cell<'static>>,
}

/// The entries of a column's runs in the order of their cells, entries of segments that are gone
/// and of dead positions included.
pub struct RunWalk<'r, 't> {
    runs: Vec<Reading<'r, 't>>,
    descending: bool,
}

impl<'t> SortedRuns<'t> {
    /// How many entries there are, those of segments that are gone and of dead positions included.
    pub fn entries(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.head.entries)).sum()
    }

    /// Walks from the least cell on, or from the greatest.
    pub fn walk(&self, descending: bool) -> Result<RunWalk<'_, 't>> {
        let readings = self.runs.iter().map(|run| Reading::new(run, descending));
        Ok(RunWalk { runs: readings.collect::<Result<_>>()?, descending })
    }
}

impl<'r, 't> Reading<'r, 't> {
    fn new(run: &'r SortedRun<'t>, descending: bool) -> Result<Self> {
        let head = &run.head;
        let bound = match (head.packing.kind, descending) {
            (PackingKind::Cells, false) => Some(head.cell(0)?.into_owned()),
            (PackingKind::Cells, true) => None,
            (_, false) => Some(head.packing.cell(head.key(0))),
            (_, true) => Some(head.packing.cell(head.last_key())),
        };
        let block = if descending { head.blocks() - 1 } else { 0 };
        let (left, entries) = (0..head.entries as usize, Vec::new());
        let mut reading = Reading { run, block, left, entries, bound };
        if reading.bound.is_none() {
            reading.fill(descending)?;
        }
        Ok(reading)
    }

    /// The next cell, or one that none comes before; `None` at the end.
    fn next_cell(&self) -> Option<&Cell<'static>> {
        self.entries.last().map(|entry| &entry.cell).or(self.bound.as_ref())
    }

    /// Reads on, unless entries are at hand or there are no more.
    fn fill(&mut self, descending: bool) -> Result<()> {
        self.bound = None;
        if !self.entries.is_empty() || self.left.is_empty() {
            return Ok(());
        }
        let head = &self.run.head;
        let block = head.before(self.block) as usize..head.before(self.block + 1) as usize;
        let most = if head.packing.kind == PackingKind::Cells { usize::MAX } else { PIECE };
        let piece = if descending {
            self.left.end.saturating_sub(most).max(block.start)..self.left.end
        } else {
            self.left.start..self.left.start.saturating_add(most).min(block.end)
        };
        if piece.is_empty() || piece.start < block.start || piece.end > block.end {
            fail!(Corrupt, "block {} of a run has not the entries that it should", self.block);
        }
        self.read(piece.start - block.start..piece.end - block.start)?;
        if descending {
            self.left.end = piece.start;
            self.block = self.block.saturating_sub(usize::from(piece.start == block.start));
        } else {
            self.entries.reverse();
            self.left.start = piece.end;
            self.block += usize::from(piece.end == block.end);
        }
        Ok(())
    }

    /// Reads some entries of the block.
    fn read(&mut self, part: Range<usize>) -> Result<()> {
        let (run, number, entries) = (self.run, self.block, &mut self.entries);
        let head = &run.head;
        let block = run.block(number)?;
        let mut push = |index: usize, cell: Cell<'static>| {
            let (at, position) = head.resolve(block.references.get(index));
            match head.segment(at) {
                Some(segment) => entries.push(RunEntry { segment, position, cell }),
                None => fail!(Corrupt, "an entry of a run is of segment {at} of those it has"),
            }
            Ok(())
        };
        match block.values {
            BlockValues::Keys(keys) => {
                let each = |index, key| push(index, head.packing.cell(key));
                if keys.part(part, each)?.is_none() {
                    fail!(Corrupt, "block {number} of a run has too few keys");
                }
            }
            BlockValues::Cells(cells) => {
                each_cell(cells, block.len, |index, cell| {
                    push(index, cell.clone().into_owned()).map(|()| true)
                })?;
            }
        }
        Ok(())
    }
}

impl RunWalk<'_, '_> {
    /// The next entry. Those with equal cells come in whatever order.
    pub fn next_entry(&mut self) -> Result<Option<RunEntry>> {
        loop {
            let mut best: Option<(usize, &Cell<'_>)> = None;
            for (at, reading) in self.runs.iter().enumerate() {
                let Some(cell) = reading.next_cell() else { continue };
                let before = |(_, other): (usize, &Cell<'_>)| {
                    let order = total_order(cell, other);
                    if self.descending { order.is_gt() } else { order.is_lt() }
                };
                if best.is_none_or(before) {
                    best = Some((at, cell));
                }
            }
            let Some((best, _)) = best else { return Ok(None) };
            let reading = &mut self.runs[best];
            let entry = reading.entries.pop();
            reading.fill(self.descending)?;
            if entry.is_some() {
                return Ok(entry);
            }
        }
    }
}
