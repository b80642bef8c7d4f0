//! Scattering runs: the numbers of a column in the order of rows, not of values.
//!
//! A look at every entry, so for many rows only: each is written to the place that its segment has
//! in one list of all. Keys and references of a block are unpacked first, each in a loop of its
//! own, so that little is left to be done for each entry.

use super::SortedRuns;
use super::block::{Block, BlockValues};
use super::head::RunHead;
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

/// What a run has in the place of the span of a segment that has none: no position is in it.
const NO_SPAN: RowSpan = RowSpan { start: 0, rows: 0 };

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
            run.scatter(span, &mut items, |key| packing.whole(key))?;
        }
        Ok(Some(if all(&[Int]) { Numbers::Ints(items) } else { Numbers::Times(items) }))
    }

    fn floats(&self, span: &dyn Fn(u32) -> Option<RowSpan>, len: usize) -> Result<Vec<f64>> {
        let mut items = vec![0.0; len];
        for run in &self.runs {
            let packing = run.head.packing;
            match packing.decimal() {
                Some(of) => run.scatter(span, &mut items, of)?,
                None => run.scatter(span, &mut items, |key| packing.float(key))?,
            }
        }
        Ok(items)
    }
}

impl SortedRun<'_> {
    /// Puts the item of each entry in its place.
    fn scatter<T>(
        &self,
        span: &dyn Fn(u32) -> Option<RowSpan>,
        items: &mut [T],
        of: impl Fn(u64) -> T,
    ) -> Result<()> {
        let spans = self.head.segments().map(|(segment, _)| span(segment).unwrap_or(NO_SPAN));
        let spans: Vec<_> = spans.collect();
        if spans.iter().any(|span| items.len() < span.start + span.rows) {
            fail!(Corrupt, "segments have more rows than the list that they are to be put in");
        }
        let mut keys = Vec::new();
        for number in 0..self.head.blocks() {
            let block = self.block(number)?;
            let BlockValues::Keys(ascending) = block.values else {
                fail!(Corrupt, "block {number} of a run has cells instead of keys");
            };
            if ascending.unpack(&mut keys).is_none() {
                fail!(Corrupt, "block {number} of a run has too few keys");
            }
            scatter_block(&self.head, &block, &spans, &keys, |at, key| items[at] = of(key))?;
        }
        Ok(())
    }
}

/// Calls with the place of each entry of a block that has one, and its key.
fn scatter_block(
    head: &RunHead<'_>,
    block: &Block<'_>,
    spans: &[RowSpan],
    keys: &[u64],
    mut put: impl FnMut(usize, u64),
) -> Result<()> {
    let mut references = [0; 64];
    for (nth, keys) in keys.chunks(64).enumerate() {
        block.references.unpack(nth, &mut references);
        for (key, reference) in keys.iter().zip(&references) {
            let (segment, position) = head.resolve(*reference);
            match spans.get(segment) {
                Some(span) if usize::from(position) < span.rows => {
                    put(span.start + usize::from(position), *key);
                }
                Some(&NO_SPAN) => {}
                span => return misplaced(segment, position, span.copied()),
            }
        }
    }
    Ok(())
}

/// Refuses an entry that should have a place, and has none.
#[cold]
fn misplaced(segment: usize, position: u16, span: Option<RowSpan>) -> Result<()> {
    match span {
        Some(RowSpan { rows, .. }) => {
            fail!(Corrupt, "a run names position {position} of {rows}: run verify")
        }
        None => fail!(Corrupt, "an entry of a run is of segment {segment} of those it has"),
    }
}
