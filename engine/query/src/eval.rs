//! One segment searched: a condition becomes two bitmaps over its positions.
//!
//! *must*: the rows that pass for certain. *may*: those that pass or whose record has to be asked,
//! because a column keeps nothing of a long string or an array, or because no column can tell.
//! *not* turns the two round: what must not pass is what may not. So nothing is ever guessed, and
//! only the rows between the two are looked at one by one.
//!
//! Where a part of *all of* leaves few rows, the parts after it are asked of those rows alone. The
//! parts that let the fewest rows pass come first: how many each one lets pass is learnt from
//! segment to segment.

use std::cell::RefCell;

use super::compile::{Condition, Leaf};
use super::predicate::Predicate;
use super::record::Users;
use super::sealed::{PartSource, SearchedSegment, within};
use super::zones::{EVERY, How, NONE, PreparedLeaf, owner_test};
use engram_base::error::Result;
use engram_columns::cell::Cell;
use engram_columns::column_key::{GROUP, OWNER};
use engram_columns::segment::bitmap::Bitmap;
use engram_columns::segment::{Column, Marks};

fn certain(rows: Bitmap) -> Marks {
    Marks { may: rows.clone(), must: rows }
}

/// Searches segments; each thread has one.
pub(crate) struct Searcher<'s, 't> {
    /// By number of the leaf.
    pub ready: &'s [Option<PreparedLeaf<'s>>],
    /// Where parts come from that are not at hand; nowhere in threads other than the reader's.
    pub source: Option<PartSource<'t>>,
    users: RefCell<Users>,
    /// By number of the leaf: of how many rows it was asked, and how many could pass.
    passed: RefCell<Vec<(u64, u64)>>,
}

/// If at most one row of so many is left, rows are looked up one by one.
const FEW: usize = 24;

impl<'s, 't> Searcher<'s, 't> {
    /// One that knows nobody yet.
    pub(crate) fn new(
        ready: &'s [Option<PreparedLeaf<'s>>],
        source: Option<PartSource<'t>>,
    ) -> Self {
        let passed = RefCell::new(vec![(0, 0); ready.len()]);
        Searcher { ready, source, users: RefCell::default(), passed }
    }

    /// Which rows pass.
    pub(crate) fn marks(&self, node: &Condition, piece: &mut SearchedSegment<'t>) -> Result<Marks> {
        self.marks_among(node, piece, None)
    }

    /// Which of these rows pass. What is said of others is for nobody.
    fn marks_among(
        &self,
        node: &Condition,
        piece: &mut SearchedSegment<'t>,
        among: Option<&Bitmap>,
    ) -> Result<Marks> {
        let rows = piece.segment.len();
        match node {
            Condition::Const(true) => Ok(certain(Bitmap::full(rows))),
            Condition::Const(false) => Ok(certain(Bitmap::new(rows))),
            Condition::Not(inner) => {
                let Marks { mut must, mut may } = self.marks_among(inner, piece, among)?;
                must.negate();
                may.negate();
                Ok(Marks { must: may, may: must })
            }
            Condition::All(parts) => {
                let mut all = certain(among.cloned().unwrap_or_else(|| Bitmap::full(rows)));
                for part in self.fewest_first(parts) {
                    let few = Some(&all.may).filter(|may| may.has_at_most(rows / FEW));
                    let part = self.marks_among(part, piece, few)?;
                    all.must.and(&part.must);
                    all.may.and(&part.may);
                    if all.may.is_empty() {
                        break;
                    }
                }
                Ok(all)
            }
            Condition::Any(parts) => {
                let mut any = certain(Bitmap::new(rows));
                for part in parts {
                    let part = self.marks_among(part, piece, among)?;
                    any.must.or(&part.must);
                    any.may.or(&part.may);
                    if any.must.is_full() {
                        break;
                    }
                }
                Ok(any)
            }
            Condition::Leaf(leaf) => {
                let marks = self.leaf(leaf, piece, among)?;
                if among.is_none() {
                    let (asked, passed) = &mut self.passed.borrow_mut()[leaf.number];
                    (*asked, *passed) = (*asked + rows as u64, *passed + marks.may.count() as u64);
                }
                Ok(marks)
            }
        }
    }

    /// These parts, first those that let the fewest rows pass, as far as is known; parts that are
    /// no single test, or were not asked of all rows of a segment yet, come last.
    fn fewest_first<'n>(&self, parts: &'n [Condition]) -> impl Iterator<Item = &'n Condition> {
        let passed = self.passed.borrow();
        let share = |part: &Condition| match part {
            Condition::Leaf(leaf) => match passed[leaf.number] {
                (asked @ 1.., passed) => passed * 1024 / asked,
                _ => 1024,
            },
            _ => 1024,
        };
        let mut sorted: Vec<_> = parts.iter().map(|part| (share(part), part)).collect();
        sorted.sort_by_key(|(share, _)| *share);
        sorted.into_iter().map(|(_, part)| part)
    }

    /// Which of these rows, or of all, pass a leaf.
    pub(crate) fn leaf(
        &self,
        leaf: &Leaf,
        piece: &mut SearchedSegment<'t>,
        among: Option<&Bitmap>,
    ) -> Result<Marks> {
        let rows = piece.segment.len();
        let nothing_said = || Marks { must: Bitmap::new(rows), may: Bitmap::full(rows) };
        let Some(ready) = &self.ready[leaf.number] else { return Ok(nothing_said()) };
        match ready.verdicts[piece.place] {
            NONE => return Ok(certain(Bitmap::new(rows))),
            EVERY => return Ok(certain(Bitmap::full(rows))),
            _ => {}
        }
        if let Some((_, marks)) = piece.answered.iter().find(|(number, _)| *number == leaf.number) {
            return Ok(marks.clone());
        }
        if let Some(named) = &ready.named {
            let mut rows = Bitmap::new(rows);
            let here = within(named, piece.entry).iter();
            here.filter_map(|oid| piece.segment.position(*oid)).for_each(|at| rows.insert(at));
            return Ok(certain(rows));
        }
        let key = match &ready.how {
            How::Cells(key) => *key,
            How::Owner => OWNER,
            How::Group(_) if ready.passing.is_some() => GROUP,
            // What else segments say of groups is answered before.
            How::Group(_) | How::Record => return Ok(nothing_said()),
        };
        let Some(entry) = piece.segment.column(key)? else {
            return Ok(certain(Bitmap::new(rows)));
        };
        if let Some(source) = self.source {
            piece.fetch(source, &entry)?;
        }
        let column = piece.column(entry)?;
        if let Some(passing) = &ready.passing {
            return column.test(&|cell| passing.has(cell), among);
        }
        if ready.how == How::Owner {
            let users = &self.users;
            let test = |cell: &Cell<'_>| owner_test(&mut users.borrow_mut(), &leaf.predicate, cell);
            return column.test(&test, among);
        }
        cells(ready, &column, piece.place, among)
    }
}

fn cells(
    ready: &PreparedLeaf<'_>,
    column: &Column<'_>,
    place: usize,
    among: Option<&Bitmap>,
) -> Result<Marks> {
    let predicate = &ready.leaf.predicate;
    if matches!(predicate, Predicate::Exists) {
        return Ok(certain(column.presence()));
    }
    if let (Some(runs), true) = (&ready.runs, column.in_runs()) {
        let must = runs[place].clone().unwrap_or_else(|| Bitmap::new(column.len()));
        let mut may = must.clone();
        may.or(&column.unsure());
        return Ok(Marks { must, may });
    }
    match ready.numbers() {
        Some(range) => column.range(range, among),
        None => column.seek(&ready.sought, &|cell| predicate.cell(cell), among),
    }
}
