//! Packings: one number of 64 bits for each cell of a run, in the order of the cells.
//!
//! A run whose cells are all of one kind keeps their *keys*: ascending numbers that come back as
//! exactly the same cells. The fewer bits two neighbours' keys differ in, the fewer bytes the run
//! takes, so values that were whole multiples, decimals of few digits or single-precision numbers
//! before they became what they are get keys of that. Cells that no packing takes together (text,
//! integers mixed with floating-point numbers) are kept as cells.

use crate::cell::Cell;

/// How a run's cells are kept; the number is on media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PackingKind {
    /// Any cells, one after another.
    Cells = 0,
    /// `Cell::Int`: multiples of a power of ten.
    Int = 1,
    /// `Cell::Int` and `Cell::Big`, none negative.
    Unsigned = 2,
    /// `Cell::Time`: multiples of a power of ten.
    Time = 3,
    /// `Cell::Float`: whole numbers divided by a power of ten.
    Decimal = 4,
    /// `Cell::Float`: of single precision.
    Single = 5,
    /// `Cell::Float`: any.
    Float = 6,
}

/// A kind, and the power of ten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packing {
    pub kind: PackingKind,
    pub exponent: u8,
}

/// The greatest power of ten: 10^9 ns are a second, and nine digits are a degree's millimetre.
const EXPONENT_MAX: u8 = 9;
/// Whole numbers up to here are floating-point numbers exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
const TOP: u64 = 1 << 63;

// Powers of ten, and digits below 2^53, are exact; what else is cast is checked to come back, or is
// a guess.
#[allow(clippy::cast_precision_loss)]
impl Packing {
    /// The packing of cells as they are.
    pub(super) const CELLS: Packing = Packing { kind: PackingKind::Cells, exponent: 0 };

    /// The tightest that takes all these cells.
    pub(super) fn pick<'c, I: Iterator<Item = &'c Cell<'c>> + Clone>(cells: &I) -> Packing {
        let scaled = |kind| (0..=EXPONENT_MAX).rev().step_by(3).map(move |e| (kind, e));
        let candidates: Vec<(PackingKind, u8)> = match cells.clone().next() {
            Some(Cell::Int(_) | Cell::Big(_)) => {
                scaled(PackingKind::Int).chain([(PackingKind::Unsigned, 0)]).collect()
            }
            Some(Cell::Time(_)) => scaled(PackingKind::Time).collect(),
            Some(Cell::Float(_)) => {
                // The first digits that do for every cell so far; usually they do for all.
                let digits = cells.clone().try_fold(0, |from, cell| {
                    (from..=EXPONENT_MAX).find(|e| decimal(*e).key(cell).is_some())
                });
                let decimal = digits.map(|exponent| (PackingKind::Decimal, exponent));
                decimal
                    .into_iter()
                    .chain([(PackingKind::Single, 0), (PackingKind::Float, 0)])
                    .collect()
            }
            _ => Vec::new(),
        };
        let mut packings =
            candidates.into_iter().map(|(kind, exponent)| Packing { kind, exponent });
        let all = |packing: &Packing| cells.clone().all(|cell| packing.key(cell).is_some());
        packings.find(all).unwrap_or(Packing::CELLS)
    }

    /// As it is on media; `None` if it is none.
    pub fn decode(kind: u8, exponent: u8) -> Option<Packing> {
        use PackingKind::{Cells, Decimal, Float, Int, Single, Time, Unsigned};
        let kind = [Cells, Int, Unsigned, Time, Decimal, Single, Float]
            .into_iter()
            .find(|known| *known as u8 == kind)?;
        (exponent <= EXPONENT_MAX).then_some(Packing { kind, exponent })
    }

    /// A cell's key; `None` if another cell would come back.
    pub(super) fn key(self, cell: &Cell<'_>) -> Option<u64> {
        let scale = 10_i64.pow(u32::from(self.exponent));
        let whole = |value: i64| (value % scale == 0).then_some((value / scale) as u64 ^ TOP);
        match (self.kind, cell) {
            (PackingKind::Int, Cell::Int(value)) | (PackingKind::Time, Cell::Time(value)) => {
                whole(*value)
            }
            (PackingKind::Unsigned, Cell::Int(value)) => u64::try_from(*value).ok(),
            (PackingKind::Unsigned, Cell::Big(value)) => Some(*value),
            (PackingKind::Float, Cell::Float(value)) => Some(ordered(*value)),
            (PackingKind::Single, Cell::Float(value)) => {
                let single = *value as f32;
                let same = f64::from(single).to_bits() == value.to_bits() || value.is_nan();
                same.then(|| u64::from(ordered_single(single)))
            }
            (PackingKind::Decimal, Cell::Float(value)) => {
                let digits = (value * scale as f64).round();
                let key = digits as i64 as u64 ^ TOP;
                let Cell::Float(back) = self.cell(key) else { return None };
                // Minus zero comes back as zero, so it takes another packing.
                let same = digits.abs() < EXACT_MAX && back.to_bits() == value.to_bits();
                same.then_some(key)
            }
            _ => None,
        }
    }

    /// The cell of a key.
    pub(super) fn cell(self, key: u64) -> Cell<'static> {
        let scale = 10_i64.pow(u32::from(self.exponent));
        let whole = (key ^ TOP) as i64;
        match self.kind {
            PackingKind::Cells => Cell::Other,
            PackingKind::Int => Cell::Int(whole.saturating_mul(scale)),
            PackingKind::Unsigned => crate::column_key::unsigned(key),
            PackingKind::Time => Cell::Time(whole.saturating_mul(scale)),
            PackingKind::Decimal => Cell::Float(whole as f64 / scale as f64),
            PackingKind::Single => {
                Cell::Float(f64::from(single_of(key.min(u64::from(u32::MAX)) as u32)))
            }
            PackingKind::Float => Cell::Float(float_of(key)),
        }
    }

    /// The whole number of a key, of a packing of whole numbers or instants.
    #[inline]
    pub(super) fn whole(self, key: u64) -> i64 {
        ((key ^ TOP) as i64).saturating_mul(10_i64.pow(u32::from(self.exponent)))
    }

    /// What gives the number of a key, of a packing of decimals.
    pub(super) fn decimal(self) -> Option<impl Fn(u64) -> f64> {
        let scale = 10_i64.pow(u32::from(self.exponent)) as f64;
        let of = move |key: u64| (key ^ TOP) as i64 as f64 / scale;
        (self.kind == PackingKind::Decimal).then_some(of)
    }

    /// The number of a key, of a packing of numbers as they are.
    #[inline]
    pub(super) fn float(self, key: u64) -> f64 {
        match self.kind {
            PackingKind::Single => f64::from(single_of(key.min(u64::from(u32::MAX)) as u32)),
            _ => float_of(key),
        }
    }

    /// Some key near those of the cells that equal this one.
    fn near(self, cell: &Cell<'_>) -> u64 {
        let value = match cell {
            Cell::Int(value) | Cell::Time(value) => *value as f64,
            Cell::Big(value) => *value as f64,
            Cell::Float(value) => *value,
            Cell::Text(_) | Cell::Far(_) | Cell::Other => 0.0,
        };
        let scale = 10_i64.pow(u32::from(self.exponent)) as f64;
        match (self.kind, cell) {
            (PackingKind::Int, Cell::Int(value)) | (PackingKind::Time, Cell::Time(value)) => {
                (*value / scale as i64) as u64 ^ TOP
            }
            (PackingKind::Unsigned, Cell::Big(value)) => *value,
            (PackingKind::Cells | PackingKind::Unsigned, _) => value as u64,
            (PackingKind::Int | PackingKind::Time, _) => (value / scale) as i64 as u64 ^ TOP,
            (PackingKind::Decimal, _) => (value * scale).round() as i64 as u64 ^ TOP,
            (PackingKind::Single, _) => u64::from(ordered_single(value as f32)),
            (PackingKind::Float, _) => ordered(value),
        }
    }

    /// The least key whose cell does not come `before`; `None` if every cell does. `before` is true
    /// of the first cells and of no others, and ends somewhere near this cell.
    pub(super) fn first(
        self,
        near: Option<&Cell<'_>>,
        before: impl Fn(&Cell<'_>) -> bool,
    ) -> Option<u64> {
        let before = |key| before(&self.cell(key));
        let greatest =
            if self.kind == PackingKind::Single { u64::from(u32::MAX) } else { u64::MAX };
        let guess = near.map_or(greatest, |cell| self.near(cell));
        // Away from the guess in growing steps; then the gap is halved.
        let (mut low, mut high, mut step) = (guess, guess, 1_u64);
        if before(guess) {
            while before(high) {
                if high == greatest {
                    return None;
                }
                low = high;
                high = high.saturating_add(step).min(greatest);
                step = step.saturating_mul(2);
            }
        } else {
            while !before(low) {
                if low == 0 {
                    return Some(0);
                }
                high = low;
                low = low.saturating_sub(step);
                step = step.saturating_mul(2);
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if before(middle) { &mut low } else { &mut high }) = middle;
        }
        Some(high)
    }
}

fn decimal(exponent: u8) -> Packing {
    Packing { kind: PackingKind::Decimal, exponent }
}

/// Bits in the order of the numbers; every NaN is one, behind all others.
fn ordered(value: f64) -> u64 {
    let bits = if value.is_nan() { f64::NAN.to_bits() & !TOP } else { value.to_bits() };
    if bits & TOP == 0 { bits | TOP } else { !bits }
}

/// Keys below all that there are stand for the least number, so that the order has no gap.
fn float_of(key: u64) -> f64 {
    let key = key.max(ordered(f64::NEG_INFINITY));
    f64::from_bits(if key & TOP == 0 { !key } else { key & !TOP })
}

fn ordered_single(value: f32) -> u32 {
    let bits = if value.is_nan() { f32::NAN.to_bits() << 1 >> 1 } else { value.to_bits() };
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

fn single_of(key: u32) -> f32 {
    let key = key.max(ordered_single(f32::NEG_INFINITY));
    f32::from_bits(if key >> 31 == 0 { !key } else { key << 1 >> 1 })
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::{Packing, PackingKind};
    use crate::cell::{Cell, total_order};
    use crate::range::{Bound, Range};
    use crate::runs::ranked_range::RankedRange;
    use crate::runs::tests::{cell, same};

    proptest! {
        #[test]
        fn packed_cells_come_back_in_their_order(
            cells in prop::collection::vec(cell(), 1..if cfg!(miri) { 5 } else { 20 }),
        ) {
            for first in &cells {
                let alike = |c: &&Cell<'static>| {
                    Packing::pick(&[first, *c].into_iter()).kind != PackingKind::Cells
                };
                let alike: Vec<&Cell<'_>> = cells.iter().filter(alike).collect();
                let packing = Packing::pick(&alike.iter().copied());
                let mut keyed: Vec<(u64, &Cell<'_>)> = Vec::new();
                for cell in alike {
                    let Some(key) = packing.key(cell) else { continue };
                    prop_assert!(same(&packing.cell(key), cell), "{cell:?} by {packing:?}");
                    keyed.push((key, cell));
                }
                keyed.sort_by_key(|(key, _)| *key);
                let order = |pair: &[(u64, &Cell<'_>)]| total_order(pair[0].1, pair[1].1);
                prop_assert!(keyed.windows(2).all(|pair| order(pair) != Ordering::Greater));
                for end in &cells {
                    let bound = |inclusive| Some(Bound { cell: end.clone(), inclusive });
                    let range = Range { low: bound(true), high: bound(false) };
                    let Some(span) = RankedRange::new(&range) else { continue };
                    for (key, cell) in &keyed {
                        let low = packing.first(Some(end), |c| span.place(c) == Ordering::Less);
                        let above = low.is_some_and(|low| *key >= low);
                        prop_assert_eq!(above, span.place(cell) != Ordering::Less);
                    }
                }
            }
        }
    }

    #[test]
    fn the_tightest_packing_is_picked() {
        let pick = |cells: &[Cell<'_>]| {
            let packing = Packing::pick(&cells.iter());
            (packing.kind, packing.exponent)
        };
        assert_eq!(
            pick(&[Cell::Time(5_000_000_000), Cell::Time(-2_000_000_000)]),
            (PackingKind::Time, 9)
        );
        assert_eq!(pick(&[Cell::Int(3000), Cell::Int(7)]), (PackingKind::Int, 0));
        assert_eq!(pick(&[Cell::Int(3), Cell::Big(u64::MAX)]), (PackingKind::Unsigned, 0));
        assert_eq!(pick(&[Cell::Int(-3), Cell::Big(u64::MAX)]), (PackingKind::Cells, 0));
        assert_eq!(pick(&[Cell::Float(-71.0625), Cell::Float(0.1)]), (PackingKind::Decimal, 4));
        assert_eq!(
            pick(&[Cell::Float(f64::from(0.1_f32)), Cell::Float(-0.0)]),
            (PackingKind::Single, 0)
        );
        assert_eq!(pick(&[Cell::Float(1.0 / 3.0), Cell::Float(f64::NAN)]), (PackingKind::Float, 0));
        assert_eq!(pick(&[Cell::Float(0.5), Cell::Int(1)]), (PackingKind::Cells, 0));
        assert_eq!(pick(&[Cell::Text("a".into())]), (PackingKind::Cells, 0));
    }
}
