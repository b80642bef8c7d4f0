//! Ranked ranges: where a range begins and ends in the order of a run.

use std::cmp::Ordering;

use crate::cell::{Cell, rank};
use crate::range::{Bound, Range};

/// A range that cells can be placed before, in, or behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankedRange<'r> {
    range: &'r Range<'r>,
    /// The rank of the only cells that can be in it; `None` if it has no ends.
    rank: Option<u8>,
}

impl<'r> RankedRange<'r> {
    /// `None` if the range holds nothing.
    pub(super) fn new(range: &'r Range<'r>) -> Option<Self> {
        let ends = || [&range.low, &range.high].into_iter().flatten();
        let rank = ends().next().map(|end| rank(&end.cell));
        // NaN and what equals nothing compare with no cell.
        let comparable = |cell: &Cell<'_>| match cell {
            Cell::Float(value) => !value.is_nan(),
            Cell::Other => false,
            _ => true,
        };
        let held = ends().all(|end| comparable(&end.cell) && Some(self::rank(&end.cell)) == rank);
        held.then_some(RankedRange { range, rank })
    }

    /// Where a cell is, seen from the range, by `total_order`.
    pub(super) fn place(&self, cell: &Cell<'_>) -> Ordering {
        let Some(wanted) = self.rank else { return Ordering::Equal };
        rank(cell).cmp(&wanted).then_with(|| {
            if !self.range.not_below(cell) {
                Ordering::Less
            } else if self.range.not_above(cell) {
                Ordering::Equal
            } else {
                Ordering::Greater
            }
        })
    }

    /// The lower end.
    pub(super) fn low(&self) -> Option<&Cell<'r>> {
        self.range.low.as_ref().map(|end| &end.cell)
    }

    /// The upper end.
    pub(super) fn high(&self) -> Option<&Cell<'r>> {
        self.range.high.as_ref().map(|end| &end.cell)
    }

    /// Whether every text is in it.
    pub(super) fn has_all_texts(&self) -> bool {
        let from_the_first = |low: &Bound<'_>| {
            low.inclusive && matches!(&low.cell, Cell::Text(text) if text.is_empty())
        };
        self.range.high.is_none() && self.range.low.as_ref().is_none_or(from_the_first)
    }

    /// Whether it has no ends: then every cell is in it.
    pub(super) fn is_all(&self) -> bool {
        self.rank.is_none()
    }
}
