//! Ranges: the shape that most tests have, and that zones, columns and runs can answer fast.

use std::cmp::Ordering;

use super::cell::{Cell, compare};

/// One end of a range.
#[derive(Clone, Debug)]
pub struct Bound<'a> {
    /// The value.
    pub cell: Cell<'a>,
    /// Whether the value itself is in.
    pub inclusive: bool,
}

/// The cells that compare with each end, and lie between them. Without ends: every cell, NaN and
/// what equals nothing included.
#[derive(Clone, Debug, Default)]
pub struct Range<'a> {
    /// The lower end.
    pub low: Option<Bound<'a>>,
    /// The upper end.
    pub high: Option<Bound<'a>>,
}

impl Range<'_> {
    /// Whether the cell is in.
    pub(crate) fn holds(&self, cell: &Cell<'_>) -> bool {
        self.not_below(cell) && self.not_above(cell)
    }

    /// Whether the cell is where the lower end lets it be.
    pub(crate) fn not_below(&self, cell: &Cell<'_>) -> bool {
        self.low.as_ref().is_none_or(|bound| match compare(cell, &bound.cell) {
            Some(Ordering::Greater) => true,
            Some(Ordering::Equal) => bound.inclusive,
            Some(Ordering::Less) | None => false,
        })
    }

    /// Whether the cell is where the upper end lets it be.
    pub(crate) fn not_above(&self, cell: &Cell<'_>) -> bool {
        self.high.as_ref().is_none_or(|bound| match compare(cell, &bound.cell) {
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => bound.inclusive,
            Some(Ordering::Greater) | None => false,
        })
    }
}

#[cfg(test)]
impl<'a> Range<'a> {
    /// What equals this.
    pub(crate) fn equal(cell: &Cell<'a>) -> Self {
        let bound = || Some(Bound { cell: cell.clone(), inclusive: true });
        Range { low: bound(), high: bound() }
    }

    /// What lies above this.
    pub(crate) fn above(cell: Cell<'a>, inclusive: bool) -> Self {
        Range { low: Some(Bound { cell, inclusive }), high: None }
    }

    /// What lies below this.
    pub(crate) fn below(cell: Cell<'a>, inclusive: bool) -> Self {
        Range { low: None, high: Some(Bound { cell, inclusive }) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Range};
    use crate::cell::Cell;

    #[test]
    fn unlike_types_and_nan_are_in_no_range_with_ends() {
        let range = Range::above(Cell::Int(3), false);
        assert!(range.holds(&Cell::Float(3.5)));
        assert!(!range.holds(&Cell::Int(3)));
        assert!(!range.holds(&Cell::Text("4".into())));
        assert!(!range.holds(&Cell::Float(f64::NAN)));
        let low = Some(Bound { cell: Cell::Int(1), inclusive: true });
        let high = Some(Bound { cell: Cell::Text("z".into()), inclusive: true });
        assert!(!Range { low, high }.holds(&Cell::Int(2)));
        assert!(Range::default().holds(&Cell::Other));
        assert!(Range::equal(&Cell::Int(1)).holds(&Cell::Float(1.0)));
    }
}
