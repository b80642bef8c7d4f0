//! Walking runs from one end: every entry of a column, in the order of the cells.
//!
//! Each run is read block by block from that end, and the runs are merged as they are read: who
//! wants the first few reads the first block of each run, and no more.

use std::cmp::Ordering;

use super::SortedRuns;
use super::ascending::NumberPosition;
use super::block::{BlockValues, each_cell};
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

/// A run, and how far it was read.
struct Reading<'r, 't> {
    run: &'r SortedRun<'t>,
    /// The blocks that were not read yet.
    blocks: std::ops::Range<usize>,
    /// The entries at hand, the next one last.
    entries: Vec<RunEntry>,
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
        let mut runs = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let mut reading = Reading { run, blocks: 0..run.head.blocks(), entries: Vec::new() };
            reading.fill(descending)?;
            runs.push(reading);
        }
        Ok(RunWalk { runs, descending })
    }
}

impl Reading<'_, '_> {
    /// Reads the next block, unless entries are at hand or there is none.
    fn fill(&mut self, descending: bool) -> Result<()> {
        while self.entries.is_empty() {
            let next = if descending { self.blocks.next_back() } else { self.blocks.next() };
            let Some(number) = next else { return Ok(()) };
            self.read(number)?;
            if !descending {
                self.entries.reverse();
            }
        }
        Ok(())
    }

    fn read(&mut self, number: usize) -> Result<()> {
        let (run, entries) = (self.run, &mut self.entries);
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
                let start = NumberPosition::default();
                let each = |index, key| push(index, head.packing.cell(key));
                if keys.each(start, None, each)?.is_none() {
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
        let mut best: Option<usize> = None;
        for (at, reading) in self.runs.iter().enumerate() {
            let Some(entry) = reading.entries.last() else { continue };
            let before = |best: usize| {
                let order = self.runs[best]
                    .entries
                    .last()
                    .map_or(Ordering::Greater, |other| total_order(&entry.cell, &other.cell));
                if self.descending { order.is_gt() } else { order.is_lt() }
            };
            if best.is_none_or(before) {
                best = Some(at);
            }
        }
        let Some(best) = best else { return Ok(None) };
        let reading = &mut self.runs[best];
        let entry = reading.entries.pop();
        reading.fill(self.descending)?;
        Ok(entry)
    }
}
