//! Scattering runs: the numbers of a column in the order of rows, not of values.
//!
//! A look at every entry, so for many rows only: each is written to the place that its segment has
//! in one list of all.

use super::SortedRuns;
use super::ascending::NumberPosition;
use super::block::BlockValues;
use super::packing::PackingKind;
use super::read::SortedRun;
use crate::segment::Numbers;
use engram_base::error::Result;
use engram_base::fail;

/// Where a segment's rows begin in the list, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan {
    /// The place of its first row.
    pub start: usize,
    /// How many rows it has.
    pub rows: usize,
}

impl SortedRuns<'_> {
    /// The cells of the segments that have a span in a list of so many rows, each at its place;
    /// zeros where there is none. `None` where not all are numbers of one kind, or instants.
    pub fn scatter(
        &self,
        span: &dyn Fn(u32) -> Option<RowSpan>,
        len: usize,
    ) -> Result<Option<Numbers>> {
        use PackingKind::{Decimal, Float, Int, Single, Time};
        let all = |kinds: &[PackingKind]| {
            self.runs.iter().all(|run| kinds.contains(&run.head.packing.kind))
        };
        if all(&[Decimal, Single, Float]) {
            return self.floats(span, len).map(|items| Some(Numbers::Floats(items)));
        }
        if !all(&[Int]) && !all(&[Time]) {
            return Ok(None);
        }
        let mut items = vec![0_i64; len];
        for run in &self.runs {
            let packing = run.head.packing;
            run.each_at(span, len, |at, key| items[at] = packing.whole(key))?;
        }
        Ok(Some(if all(&[Int]) { Numbers::Ints(items) } else { Numbers::Times(items) }))
    }

    fn floats(&self, span: &dyn Fn(u32) -> Option<RowSpan>, len: usize) -> Result<Vec<f64>> {
        let mut items = vec![0.0; len];
        for run in &self.runs {
            let packing = run.head.packing;
            match packing.decimal() {
                Some(of) => run.each_at(span, len, |at, key| items[at] = of(key))?,
                None => run.each_at(span, len, |at, key| items[at] = packing.float(key))?,
            }
        }
        Ok(items)
    }
}

impl SortedRun<'_> {
    /// Calls with the place of each entry in the list, and its key.
    fn each_at(
        &self,
        span: &dyn Fn(u32) -> Option<RowSpan>,
        len: usize,
        mut each: impl FnMut(usize, u64),
    ) -> Result<()> {
        let spans: Vec<_> = self.head.segments().map(|(segment, _)| span(segment)).collect();
        let mut words = Vec::new();
        for number in 0..self.head.blocks() {
            let block = self.block(number)?;
            let BlockValues::Keys(keys) = block.values else {
                fail!(Corrupt, "block {number} of a run has cells instead of keys");
            };
            words.clear();
            let push = |_, key| {
                words.push(key);
                Ok(())
            };
            if keys.each(NumberPosition::default(), None, push)?.is_none() {
                fail!(Corrupt, "block {number} of a run has too few keys");
            }
            for (index, key) in words.iter().enumerate() {
                let (segment, position) = self.head.resolve(block.references.get(index));
                let Some(span) = spans.get(segment) else {
                    fail!(Corrupt, "an entry of a run is of segment {segment} of those it has");
                };
                let Some(RowSpan { start, rows }) = *span else { continue };
                let at = start + usize::from(position);
                if usize::from(position) >= rows || at >= len {
                    fail!(Corrupt, "a run names position {position} of {rows}: run verify");
                }
                each(at, *key);
            }
        }
        Ok(())
    }
}
