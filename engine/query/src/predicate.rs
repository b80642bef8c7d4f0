//! What a comparison means: the one place that says which cells a test is true of.
//!
//! - Numbers compare as numbers whatever their width, exactly; strings as Unicode, by code points.
//! - A comparison of unlike types is false, and `!=` of them too.
//! - NaN is equal to nothing and in no order (IEEE 754): only `!=` with a number is true of it.
//! - A string beside a time is what it names (`literal.rs`): one instant, or the whole of a year, a
//!   month or a day. A time equals that if it lies in it, is less before it, greater after it. If
//!   the string names none, they are unlike.
//! - A value of several items, or none, is only there, and `contains` what one of its items equals.
//!   On one item `contains` looks for a part if both are strings, and else for an equal.
//!
//! [`Predicate::ranges`] tells the same of whole ranges of cells, so that what a zone or a run says
//! can decide without its cells; a property test holds the two together.

use std::cmp::Ordering;
use std::ops::Bound;

use super::like::Like;
use crate::ast::{Comparison, Test};
use engram_columns::cell::{Cell, Cells, compare, total_order};
use engram_columns::literal::Literal;
use engram_columns::literal::{cell_of, times_of};

/// A test, made ready to be asked of many cells.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// A comparison with one value.
    Compare(Comparison, Operand),
    /// Both ends included.
    Between(Operand, Operand),
    /// Equal to any of these: in `total_order`, each once, with the instants that strings name; or
    /// in one of these periods of time, first and last, ascending and apart.
    In(Vec<Cell<'static>>, Vec<Period>),
    /// A part of a string; an equal.
    Contains(Operand),
    /// The start of a string.
    StartsWith(String),
    /// The end of a string.
    EndsWith(String),
    /// A pattern of a string.
    Like(Like),
    /// There is a value.
    Exists,
}

/// A first and a last cell, which may be the same.
type Period = (Cell<'static>, Cell<'static>);

/// A literal as cells: itself, and the first and the last instant that it names.
#[derive(Clone, Debug)]
pub struct Operand {
    cell: Cell<'static>,
    times: Option<Period>,
}

/// Cells that compare with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CellClass {
    /// Integers and floating-point numbers.
    Number,
    /// Instants.
    Time,
    /// Strings.
    Text,
    /// What equals nothing.
    Other,
}

impl CellClass {
    /// Every one.
    pub(crate) const ALL: [CellClass; 4] =
        [CellClass::Number, CellClass::Time, CellClass::Text, CellClass::Other];

    /// The class of a cell.
    pub(crate) fn of(cell: &Cell<'_>) -> Self {
        match cell {
            Cell::Int(_) | Cell::Big(_) | Cell::Float(_) => CellClass::Number,
            Cell::Time(_) | Cell::Far(_) => CellClass::Time,
            Cell::Text(_) => CellClass::Text,
            Cell::Other => CellClass::Other,
        }
    }
}

/// A range of cells of one class, NaN apart.
#[derive(Clone, Debug)]
pub(crate) struct ClassRange {
    /// From here.
    pub(crate) low: Bound<Cell<'static>>,
    /// To here.
    pub(crate) high: Bound<Cell<'static>>,
    /// Whether the test is true of all in it; if not, it may be false of some.
    pub(crate) exact: bool,
}

impl ClassRange {
    fn new(low: Bound<Cell<'static>>, high: Bound<Cell<'static>>) -> Self {
        ClassRange { low, high, exact: true }
    }

    fn all(exact: bool) -> Self {
        ClassRange { low: Bound::Unbounded, high: Bound::Unbounded, exact }
    }

    /// From the first to the last, both included.
    fn period(first: &Cell<'static>, last: &Cell<'static>) -> Self {
        ClassRange::new(Bound::Included(first.clone()), Bound::Included(last.clone()))
    }

    /// The part of the range that is made of cells which the index keeps (see `Cells::indexed`);
    /// `None` where there is none.
    fn kept(mut self) -> Option<Self> {
        if let Bound::Included(Cell::Far(far)) | Bound::Excluded(Cell::Far(far)) = self.low {
            self.low = far.is_before().then_some(Bound::Unbounded)?;
        }
        if let Bound::Included(Cell::Far(far)) | Bound::Excluded(Cell::Far(far)) = self.high {
            self.high = (!far.is_before()).then_some(Bound::Unbounded)?;
        }
        Some(self)
    }

    /// Whether a cell of the range's class, not NaN, lies in it.
    #[cfg(test)]
    pub(crate) fn holds(&self, cell: &Cell<'_>) -> bool {
        let above = match &self.low {
            Bound::Included(low) => compare(cell, low).is_some_and(Ordering::is_ge),
            Bound::Excluded(low) => compare(cell, low).is_some_and(Ordering::is_gt),
            Bound::Unbounded => true,
        };
        above
            && match &self.high {
                Bound::Included(high) => compare(cell, high).is_some_and(Ordering::is_le),
                Bound::Excluded(high) => compare(cell, high).is_some_and(Ordering::is_lt),
                Bound::Unbounded => true,
            }
    }
}

impl Operand {
    fn new(literal: &Literal) -> Self {
        Operand { cell: cell_of(literal), times: times_of(literal) }
    }

    /// The operand among cells of this class, first and last; `None` where it is unlike them all.
    fn among(&self, class: CellClass) -> Option<(&Cell<'static>, &Cell<'static>)> {
        if CellClass::of(&self.cell) == class {
            return Some((&self.cell, &self.cell));
        }
        let times = self.times.as_ref().filter(|_| class == CellClass::Time);
        times.map(|(first, last)| (first, last))
    }

    /// How a cell compares with the operand.
    fn order(&self, cell: &Cell<'_>) -> Option<Ordering> {
        match (&self.times, cell) {
            (Some((first, last)), Cell::Time(_) | Cell::Far(_)) => match compare(cell, last)? {
                Ordering::Less => Some(compare(cell, first)?.min(Ordering::Equal)),
                order => Some(order),
            },
            _ => compare(cell, &self.cell),
        }
    }

    fn equals(&self, cell: &Cell<'_>) -> bool {
        self.order(cell) == Some(Ordering::Equal)
    }
}

impl Predicate {
    /// Makes a test ready.
    pub(crate) fn new(test: &Test) -> Self {
        match test {
            Test::Compare(comparison, value) => Self::Compare(*comparison, Operand::new(value)),
            Test::Between(low, high) => Self::Between(Operand::new(low), Operand::new(high)),
            Test::In(values) => {
                let times = values.iter().filter_map(times_of);
                let (instants, periods): (Vec<_>, Vec<_>) =
                    times.partition(|(first, last)| total_order(first, last).is_eq());
                let instants = instants.into_iter().map(|(instant, _)| instant);
                let mut cells = values.iter().map(cell_of).chain(instants).collect::<Vec<_>>();
                cells.sort_unstable_by(total_order);
                cells.dedup_by(|a, b| total_order(a, b).is_eq());
                Self::In(cells, apart(periods))
            }
            Test::Contains(value) => Self::Contains(Operand::new(value)),
            Test::StartsWith(start) => Self::StartsWith(start.clone()),
            Test::EndsWith(end) => Self::EndsWith(end.clone()),
            Test::Like(pattern) => Self::Like(Like::new(pattern)),
            Test::Exists => Self::Exists,
        }
    }

    /// Whether the test is true of a value.
    pub(crate) fn cells(&self, cells: &Cells<'_>) -> bool {
        match (cells, self) {
            (Cells::Item(item), Self::Contains(wanted)) => wanted.equals(item),
            (Cells::One(cell) | Cells::Item(cell), _) => self.cell(cell),
            (Cells::Many(_), Self::Exists) => true,
            (Cells::Many(items), Self::Contains(wanted)) => items.iter().any(|i| wanted.equals(i)),
            (Cells::Many(_), _) => false,
        }
    }

    /// Whether the test is true of a value of one item.
    pub(crate) fn cell(&self, cell: &Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Compare(comparison, value), _) => match value.order(cell) {
                Some(order) => comparison.allows(order),
                None => {
                    *comparison == Comparison::Ne
                        && is_nan(cell)
                        && CellClass::of(&value.cell) == CellClass::Number
                }
            },
            (Self::Between(low, high), _) => {
                low.order(cell).is_some_and(Ordering::is_ge)
                    && high.order(cell).is_some_and(Ordering::is_le)
            }
            (Self::In(values, periods), _) => {
                !is_nan(cell)
                    && (values.binary_search_by(|value| total_order(value, cell)).is_ok()
                        || among(periods, cell))
            }
            (Self::Contains(Operand { cell: Cell::Text(part), .. }), Cell::Text(text)) => {
                text.contains(part.as_ref())
            }
            (Self::Contains(value), _) => value.equals(cell),
            (Self::StartsWith(start), Cell::Text(text)) => text.starts_with(start.as_str()),
            (Self::EndsWith(end), Cell::Text(text)) => text.ends_with(end.as_str()),
            (Self::Like(pattern), Cell::Text(text)) => pattern.matches(text),
            (Self::Exists, _) => true,
            (Self::StartsWith(_) | Self::EndsWith(_) | Self::Like(_), _) => false,
        }
    }

    /// The only string that the test is true of, if it is one and no pattern.
    pub(crate) fn only_text(&self) -> Option<&str> {
        match self {
            Self::Compare(Comparison::Eq, Operand { cell: Cell::Text(text), .. }) => Some(text),
            _ => None,
        }
    }

    /// The only strings that the test is true of, where they can be told.
    pub(crate) fn only_texts(&self) -> Option<Vec<String>> {
        let ranges = self.ranges(CellClass::Text);
        let only = ranges.into_iter().map(|range| match (range.low, range.high) {
            (Bound::Included(Cell::Text(low)), Bound::Included(Cell::Text(high))) => {
                (low == high).then(|| low.into_owned())
            }
            _ => None,
        });
        only.collect()
    }

    /// What the strings contain that the test is true of, and no others, if it is one part of them.
    pub(crate) fn only_part(&self) -> Option<&str> {
        match self {
            Self::Contains(Operand { cell: Cell::Text(part), .. }) => Some(part),
            Self::Like(pattern) => pattern.only_part(),
            _ => None,
        }
    }

    /// What each string contains that the test is true of.
    pub(crate) fn parts(&self) -> Vec<&str> {
        match self {
            Self::Contains(Operand { cell: Cell::Text(part), .. }) => vec![part],
            Self::StartsWith(text) | Self::EndsWith(text) => vec![text],
            Self::Like(pattern) => pattern.parts(),
            _ => Vec::new(),
        }
    }

    /// Whether the test is true of NaN, which no range holds.
    pub(crate) fn takes_nan(&self) -> bool {
        self.cell(&Cell::Float(f64::NAN))
    }

    /// The ranges of a class, ascending and apart, outside of which the test is false of every cell
    /// but NaN. Values of several items are not told of, nor what else the index does not keep.
    pub(crate) fn ranges(&self, class: CellClass) -> Vec<ClassRange> {
        self.whole_ranges(class).into_iter().filter_map(ClassRange::kept).collect()
    }

    fn whole_ranges(&self, class: CellClass) -> Vec<ClassRange> {
        let ranges = match self {
            Self::Compare(comparison, value) => match value.among(class) {
                Some((first, last)) => comparison.ranges(first, last),
                None => Vec::new(),
            },
            Self::Between(low, high) => match (low.among(class), high.among(class)) {
                (Some((low, _)), Some((_, high)))
                    if compare(low, high).is_some_and(Ordering::is_le) =>
                {
                    vec![ClassRange::period(low, high)]
                }
                _ => Vec::new(),
            },
            Self::In(values, periods) => {
                let of_class = values.iter().filter(|value| CellClass::of(value) == class);
                let points = of_class.map(|value| (value.clone(), value.clone()));
                let all = match class {
                    CellClass::Time => apart(points.chain(periods.iter().cloned()).collect()),
                    _ => points.collect(),
                };
                all.iter().map(|(first, last)| ClassRange::period(first, last)).collect()
            }
            Self::Contains(value) => match (class, value.among(class)) {
                (CellClass::Text, Some((Cell::Text(part), _))) => {
                    vec![ClassRange::all(part.is_empty())]
                }
                (_, Some((first, last))) => vec![ClassRange::period(first, last)],
                _ => Vec::new(),
            },
            Self::Exists => vec![ClassRange::all(true)],
            _ if class != CellClass::Text => Vec::new(),
            Self::StartsWith(start) => vec![starting(start, true)],
            Self::EndsWith(end) => vec![ClassRange::all(end.is_empty())],
            Self::Like(pattern) => {
                if let Some(only) = pattern.exact() {
                    let only = Cell::Text(only.to_owned().into());
                    return vec![ClassRange::period(&only, &only)];
                }
                let (prefix, decides) = pattern.prefix();
                vec![starting(&prefix, decides)]
            }
        };
        debug_assert!(
            class != CellClass::Other || matches!(self, Self::Exists) || ranges.is_empty()
        );
        ranges
    }
}

impl Comparison {
    /// Whether it is true where the value compares so with the literal.
    fn allows(self, order: Ordering) -> bool {
        match self {
            Comparison::Eq => order.is_eq(),
            Comparison::Ne => order.is_ne(),
            Comparison::Lt => order.is_lt(),
            Comparison::Le => order.is_le(),
            Comparison::Gt => order.is_gt(),
            Comparison::Ge => order.is_ge(),
        }
    }

    fn ranges(self, first: &Cell<'static>, last: &Cell<'static>) -> Vec<ClassRange> {
        use Bound::{Excluded, Included, Unbounded};
        let below = || ClassRange::new(Unbounded, Excluded(first.clone()));
        let above = || ClassRange::new(Excluded(last.clone()), Unbounded);
        match self {
            Comparison::Eq => vec![ClassRange::period(first, last)],
            Comparison::Ne => vec![below(), above()],
            Comparison::Lt => vec![below()],
            Comparison::Le => vec![ClassRange::new(Unbounded, Included(last.clone()))],
            Comparison::Gt => vec![above()],
            Comparison::Ge => vec![ClassRange::new(Included(first.clone()), Unbounded)],
        }
    }
}

/// The same instants, in periods that ascend and do not overlap.
fn apart(mut periods: Vec<Period>) -> Vec<Period> {
    periods.sort_unstable_by(|(a, _), (b, _)| total_order(a, b));
    periods.dedup_by(|(first, last), (_, known)| {
        let overlap = total_order(first, known).is_le();
        if overlap && total_order(last, known).is_gt() {
            *known = last.clone();
        }
        overlap
    });
    periods
}

/// Whether a cell lies in one of the periods of time, which ascend and are apart.
fn among(periods: &[Period], cell: &Cell<'_>) -> bool {
    let beside = |(first, last): &Period| match total_order(last, cell) {
        Ordering::Less => Ordering::Less,
        _ => total_order(first, cell).max(Ordering::Equal),
    };
    CellClass::of(cell) == CellClass::Time && periods.binary_search_by(beside).is_ok()
}

fn is_nan(cell: &Cell<'_>) -> bool {
    matches!(cell, Cell::Float(value) if value.is_nan())
}

/// The strings that start so.
fn starting(start: &str, exact: bool) -> ClassRange {
    let low = Cell::Text(start.to_owned().into());
    let high = match after(start) {
        Some(next) => Bound::Excluded(Cell::Text(next.into())),
        None => Bound::Unbounded,
    };
    ClassRange { low: Bound::Included(low), high, exact }
}

/// The least string above all that start so; `None` where there is none.
pub(crate) fn after(start: &str) -> Option<String> {
    let mut next = start.to_owned();
    while let Some(last) = next.pop() {
        // Above the surrogates, which are no characters.
        let above = if last == '\u{d7ff}' { 0xe000 } else { last as u32 + 1 };
        if let Some(above) = char::from_u32(above) {
            next.push(above);
            return Some(next);
        }
    }
    None
}

#[cfg(test)]
mod tests;
