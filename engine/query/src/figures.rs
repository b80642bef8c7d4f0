//! Figures of groups on their way: counts, sums, ends, and what differs.
//!
//! *Invariant*: values may be taken in in any order, and figures of two parts united: what comes
//! out is the same.

use std::collections::HashSet;

use super::answer::Figure;
use super::ast::Function;
use super::exact::ExactSum;
use super::predicate::CellClass;
use engram_columns::cell::{Cell, push_order, total_order};
use engram_columns::segment::Numbers;

/// The figures of one measure, by group.
#[derive(Clone, Debug)]
pub(crate) enum GroupFigures {
    /// How many there are.
    Counts(Vec<u64>),
    /// Their sums.
    Sums(Vec<NumberSum>),
    /// The least.
    Least(Vec<Option<Cell<'static>>>),
    /// The greatest.
    Greatest(Vec<Option<Cell<'static>>>),
    /// All that differ, as bytes.
    Distinct(Vec<HashSet<Vec<u8>>>),
}

/// A sum of numbers, and how many they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct NumberSum {
    count: u64,
    whole: i128,
    floats: ExactSum,
    any_float: bool,
}

/// Which group each of some rows is of.
pub(crate) enum GroupOf {
    /// All of one.
    One(u32),
    /// Each of its own.
    Each(Vec<u32>),
}

impl GroupOf {
    /// The group of a row.
    #[inline]
    pub(crate) fn of(&self, nth: usize) -> usize {
        match self {
            GroupOf::One(group) => *group as usize,
            GroupOf::Each(groups) => groups[nth] as usize,
        }
    }
}

impl GroupFigures {
    /// Of no group yet.
    pub(crate) fn new(function: Function) -> Self {
        match function {
            Function::Count => GroupFigures::Counts(Vec::new()),
            Function::Sum | Function::Mean => GroupFigures::Sums(Vec::new()),
            Function::Min => GroupFigures::Least(Vec::new()),
            Function::Max => GroupFigures::Greatest(Vec::new()),
            Function::Distinct => GroupFigures::Distinct(Vec::new()),
        }
    }

    /// Begins the next group.
    pub(crate) fn begin(&mut self) {
        match self {
            GroupFigures::Counts(counts) => counts.push(0),
            GroupFigures::Sums(sums) => sums.push(NumberSum::default()),
            GroupFigures::Least(best) | GroupFigures::Greatest(best) => best.push(None),
            GroupFigures::Distinct(all) => all.push(HashSet::new()),
        }
    }

    /// Counts so many more, if it is counted.
    pub(crate) fn count(&mut self, group: usize, more: u64) {
        if let GroupFigures::Counts(counts) = self {
            counts[group] += more;
        }
    }

    /// Counts the rows that have something.
    pub(crate) fn count_rows(
        &mut self,
        rows: &[usize],
        groups: &GroupOf,
        has: impl Fn(usize) -> bool,
    ) {
        let GroupFigures::Counts(counts) = self else { return };
        match groups {
            GroupOf::One(group) => {
                counts[*group as usize] += rows.iter().filter(|at| has(**at)).count() as u64;
            }
            GroupOf::Each(groups) => {
                for (_, group) in rows.iter().zip(groups).filter(|(at, _)| has(**at)) {
                    counts[*group as usize] += 1;
                }
            }
        }
    }

    /// Takes in one value.
    pub(crate) fn take(&mut self, group: usize, cell: &Cell<'_>) -> Result<(), Unlike> {
        match self {
            GroupFigures::Counts(counts) => {
                counts[group] += 1;
                Ok(())
            }
            GroupFigures::Sums(sums) => sums[group].add(cell),
            GroupFigures::Least(best) => better(&mut best[group], cell, false),
            GroupFigures::Greatest(best) => better(&mut best[group], cell, true),
            GroupFigures::Distinct(all) => match cell {
                Cell::Other => Err(Unlike::Nothing),
                cell => {
                    let mut bytes = Vec::new();
                    push_order(cell, &mut bytes);
                    all[group].insert(bytes);
                    Ok(())
                }
            },
        }
    }

    /// Adds the numbers of the rows that have one, if sums are asked for.
    pub(crate) fn add_rows(
        &mut self,
        numbers: &Numbers,
        rows: &[usize],
        groups: &GroupOf,
        has: impl Fn(usize) -> bool,
    ) -> Result<(), Unlike> {
        let GroupFigures::Sums(sums) = self else { return Ok(()) };
        match numbers {
            Numbers::Floats(items) => add_rows(sums, rows, groups, has, |sum, at| {
                sum.add_float(items[at]);
            }),
            Numbers::Ints(items) => add_rows(sums, rows, groups, has, |sum, at| {
                sum.add_whole(i128::from(items[at]));
            }),
            Numbers::Times(_) if rows.iter().any(|at| has(*at)) => {
                return Err(Unlike::NoNumber("times"));
            }
            Numbers::Times(_) => {}
        }
        Ok(())
    }

    /// Takes in what another knows of one of its groups.
    pub(crate) fn unite(
        &mut self,
        group: usize,
        other: &GroupFigures,
        from: usize,
    ) -> Result<(), Unlike> {
        match (self, other) {
            (GroupFigures::Counts(ours), GroupFigures::Counts(theirs)) => {
                ours[group] += theirs[from];
            }
            (GroupFigures::Sums(ours), GroupFigures::Sums(theirs)) => {
                ours[group].unite(&theirs[from]);
            }
            (GroupFigures::Distinct(ours), GroupFigures::Distinct(theirs)) => {
                ours[group].extend(theirs[from].iter().cloned());
            }
            (ours, GroupFigures::Least(theirs) | GroupFigures::Greatest(theirs)) => {
                if let Some(theirs) = &theirs[from] {
                    ours.take(group, theirs)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What came out for a group.
    pub(crate) fn figure(&self, group: usize, function: Function) -> Option<Figure> {
        match self {
            GroupFigures::Counts(counts) => Some(Figure::Int(i128::from(counts[group]))),
            GroupFigures::Distinct(all) => Some(Figure::Int(all[group].len() as i128)),
            GroupFigures::Least(best) | GroupFigures::Greatest(best) => {
                best[group].as_ref().and_then(Figure::of)
            }
            GroupFigures::Sums(sums) => sums[group].figure(function),
        }
    }
}

/// Adds to the sum of each row's group what a row has that has something.
#[inline]
fn add_rows(
    sums: &mut [NumberSum],
    rows: &[usize],
    groups: &GroupOf,
    has: impl Fn(usize) -> bool,
    add: impl Fn(&mut NumberSum, usize),
) {
    match groups {
        GroupOf::One(group) => {
            let sum = &mut sums[*group as usize];
            rows.iter().filter(|at| has(**at)).for_each(|at| add(sum, *at));
        }
        GroupOf::Each(groups) => {
            for (at, group) in rows.iter().zip(groups).filter(|(at, _)| has(**at)) {
                add(&mut sums[*group as usize], *at);
            }
        }
    }
}

/// The equal of a cell that stands for all of them.
pub(crate) fn face(cell: &Cell<'_>) -> Cell<'static> {
    match cell {
        Cell::Float(value) if value.is_nan() => Cell::Float(f64::NAN),
        Cell::Float(value) => Cell::Float(value + 0.0),
        cell => cell.clone().into_owned(),
    }
}

/// What a value cannot be in a measure.
pub(crate) enum Unlike {
    /// A number; it is one of these.
    NoNumber(&'static str),
    /// One of these beside one of those.
    Classes(&'static str, &'static str),
    /// Anything.
    Nothing,
}

fn class_name(cell: &Cell<'_>) -> &'static str {
    match CellClass::of(cell) {
        CellClass::Number => "numbers",
        CellClass::Time => "times",
        CellClass::Text => "text",
        CellClass::Other => "arrays",
    }
}

impl NumberSum {
    #[inline]
    fn add_float(&mut self, value: f64) {
        self.count += 1;
        self.any_float = true;
        self.floats.add(value);
    }

    #[inline]
    fn add_whole(&mut self, value: i128) {
        self.count += 1;
        self.whole += value;
    }

    fn add(&mut self, cell: &Cell<'_>) -> Result<(), Unlike> {
        match cell {
            Cell::Int(value) => self.add_whole(i128::from(*value)),
            Cell::Big(value) => self.add_whole(i128::from(*value)),
            Cell::Float(value) => self.add_float(*value),
            Cell::Other => return Err(Unlike::Nothing),
            other => return Err(Unlike::NoNumber(class_name(other))),
        }
        Ok(())
    }

    fn unite(&mut self, other: &NumberSum) {
        self.count += other.count;
        self.whole += other.whole;
        self.any_float |= other.any_float;
        self.floats.unite(&other.floats);
    }

    fn figure(&self, function: Function) -> Option<Figure> {
        if self.count == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a mean is rounded")]
        Some(match function {
            Function::Mean => Figure::Float(self.total() / self.count as f64),
            _ if self.any_float => Figure::Float(self.total()),
            _ => Figure::Int(self.whole),
        })
    }

    fn total(&self) -> f64 {
        let mut sum = self.floats.clone();
        sum.add_whole(self.whole);
        sum.value()
    }
}

/// Takes in a value that may be the least or the greatest.
fn better(best: &mut Option<Cell<'static>>, cell: &Cell<'_>, greatest: bool) -> Result<(), Unlike> {
    if matches!(cell, Cell::Other) {
        return Err(Unlike::Nothing);
    }
    let Some(known) = best else {
        *best = Some(face(cell));
        return Ok(());
    };
    if CellClass::of(known) != CellClass::of(cell) {
        let (one, other) = (class_name(known), class_name(cell));
        return Err(Unlike::Classes(one.min(other), one.max(other)));
    }
    let order = total_order(cell, known);
    let is_face = order.is_eq() && matches!((cell, &known), (Cell::Int(_), Cell::Float(_)));
    if is_face || if greatest { order.is_gt() } else { order.is_lt() } {
        *known = face(cell);
    }
    Ok(())
}
