//! What the rows of a segment have of a field, all at once: columns instead of records.
//!
//! *Invariant*: a row's slot says what its record would, or that its record alone says it. Cells of
//! a column in runs are scattered first: each entry of the runs goes to its segment and position,
//! which costs a look at every entry, and is done for many rows only.

use engram_base::error::Result;
use engram_base::fail;
use engram_catalog::ReadTxn;
use engram_columns::cell::Cell;
use engram_columns::column_key::ColumnKey;
use engram_columns::range::Range;
use engram_columns::runs::{RowSpan, SortedRuns};
use engram_columns::segment::{Bitmap, NO_CELL, Numbers, Slot, UNSURE_CELL};
use engram_columns::value_kind::ValueKind;
use engram_index::directory::SegmentEntry;

use super::sealed::SearchedSegment;
use super::zones::DirectoryPlaces;

/// What the rows of a segment have of one field.
pub(crate) struct FieldCells<'t> {
    /// Which rows have a cell; all if none is said.
    pub sure: Option<Bitmap>,
    /// Which rows have something that their records alone say.
    pub unsure: Option<Bitmap>,
    /// What the values of the cells were, if they were all of one kind.
    pub kind: Option<ValueKind>,
    /// The cells, by position.
    pub cells: RowCells<'t>,
}

/// Cells by position.
pub(crate) enum RowCells<'t> {
    /// No row has one.
    Nothing,
    /// Each is one of these, by its number; where there is none, the number is of no cell.
    Coded(Vec<Cell<'t>>, Vec<u32>),
    /// Numbers or instants; zero where there is none.
    Numbers(Numbers),
    /// Whatever they are.
    Loose(Vec<Cell<'static>>),
}

impl<'t> FieldCells<'t> {
    /// Reads a column of a segment, whose part is at hand; by codes if that is asked for and the
    /// column has cells.
    pub(crate) fn read(
        piece: &SearchedSegment<'t>,
        key: ColumnKey,
        runs: Option<&Scattered>,
        coded: bool,
    ) -> Result<Self> {
        let nothing = Bitmap::new(piece.segment.len());
        let Some(entry) = piece.segment.column(key)? else {
            let (unsure, kind, cells) = (None, None, RowCells::Nothing);
            return Ok(FieldCells { sure: Some(nothing), unsure, kind, cells });
        };
        let column = piece.column(entry)?;
        let whole = entry.all_present() && !entry.has_unsure();
        let mut sure = (!whole).then(|| column.sure());
        let mut unsure = entry.has_unsure().then(|| column.unsure());
        let cells = if column.in_runs() {
            if let Some(runs) = runs {
                runs.of(piece.place, piece.segment.len())?
            } else {
                // Nobody has scattered them: records tell.
                (sure, unsure) = (Some(nothing), Some(column.presence()));
                RowCells::Nothing
            }
        } else if let Some(numbers) = if coded { None } else { column.numbers()? } {
            RowCells::Numbers(match &sure {
                None => numbers,
                Some(sure) => spread(&numbers, sure, piece.segment.len()),
            })
        } else {
            let (cells, codes) = column.take_apart()?;
            RowCells::Coded(cells, codes)
        };
        Ok(FieldCells { sure, unsure, kind: entry.kind(), cells })
    }

    /// What a row has.
    pub(crate) fn slot(&self, at: usize) -> Slot<'t> {
        if self.unsure.as_ref().is_some_and(|unsure| unsure.contains(at)) {
            return Some(None);
        }
        if self.sure.as_ref().is_some_and(|sure| !sure.contains(at)) {
            return None;
        }
        match &self.cells {
            RowCells::Nothing => None,
            RowCells::Coded(cells, codes) => match codes[at] {
                NO_CELL => None,
                UNSURE_CELL => Some(None),
                code => Some(Some(cells[code as usize].clone())),
            },
            RowCells::Numbers(numbers) => Some(Some(numbers.cell(at))),
            RowCells::Loose(cells) => Some(Some(cells[at].clone())),
        }
    }
}

/// Numbers of the sure rows by position.
fn spread(numbers: &Numbers, sure: &Bitmap, rows: usize) -> Numbers {
    fn all<T: Copy>(items: &[T], zero: T, sure: &Bitmap, rows: usize) -> Vec<T> {
        let mut spread = vec![zero; rows];
        sure.iter().zip(items).for_each(|(at, item)| spread[at] = *item);
        spread
    }
    match numbers {
        Numbers::Ints(items) => Numbers::Ints(all(items, 0, sure, rows)),
        Numbers::Floats(items) => Numbers::Floats(all(items, 0.0, sure, rows)),
        Numbers::Times(items) => Numbers::Times(all(items, 0, sure, rows)),
    }
}

/// The cells of a column's runs, row by row of the segments that are wanted.
#[derive(Debug)]
pub(crate) struct Scattered {
    /// By the segment's place in the directory: where its rows begin.
    spans: Vec<Option<RowSpan>>,
    cells: ScatteredCells,
}

#[derive(Debug)]
enum ScatteredCells {
    Numbers(Numbers),
    Loose(Vec<Cell<'static>>),
}

impl Scattered {
    /// Scatters a column's runs to the segments that are wanted.
    pub(crate) fn new(
        txn: &ReadTxn<'_>,
        key: ColumnKey,
        directory: &[SegmentEntry],
        wanted: &dyn Fn(usize) -> bool,
    ) -> Result<Self> {
        let runs = SortedRuns::read(txn, key)?;
        let (mut spans, mut len) = (Vec::with_capacity(directory.len()), 0);
        for (place, entry) in directory.iter().enumerate() {
            let rows = entry.rows as usize;
            spans.push(wanted(place).then_some(RowSpan { start: len, rows }));
            len += if wanted(place) { rows } else { 0 };
        }
        let places = DirectoryPlaces::new(directory, runs.entries());
        let span = |segment: u32| places.of(segment).and_then(|place| spans[place]);
        let cells = match runs.scatter(&span, len)? {
            Some(numbers) => ScatteredCells::Numbers(numbers),
            None => ScatteredCells::Loose(loose(&runs, &span, len)?),
        };
        Ok(Scattered { spans, cells })
    }

    fn of(&self, place: usize, rows: usize) -> Result<RowCells<'static>> {
        let Some(RowSpan { start, rows: known }) = self.spans[place] else {
            return Ok(RowCells::Nothing);
        };
        if known != rows {
            fail!(Corrupt, "a segment has not the rows of its directory: run verify");
        }
        let here = start..start + rows;
        Ok(match &self.cells {
            ScatteredCells::Numbers(numbers) => RowCells::Numbers(match numbers {
                Numbers::Ints(items) => Numbers::Ints(items[here].to_vec()),
                Numbers::Floats(items) => Numbers::Floats(items[here].to_vec()),
                Numbers::Times(items) => Numbers::Times(items[here].to_vec()),
            }),
            ScatteredCells::Loose(cells) => RowCells::Loose(cells[here].to_vec()),
        })
    }
}

/// Cells of whatever kinds.
fn loose(
    runs: &SortedRuns<'_>,
    span: &dyn Fn(u32) -> Option<RowSpan>,
    len: usize,
) -> Result<Vec<Cell<'static>>> {
    let mut cells = vec![Cell::Other; len];
    let mut beyond = None;
    let named = |segment: u32| span(segment).map(|span| (segment, span));
    let mut place = |named: (u32, RowSpan), position, cell: &Cell<'_>| {
        let (segment, RowSpan { start, rows }) = named;
        if usize::from(position) < rows {
            cells[start + usize::from(position)] = cell.clone().into_owned();
        } else {
            beyond = Some((segment, position));
        }
    };
    let all = Range::default();
    runs.pieces(&all)?.iter().try_for_each(|piece| piece.visit(&named, &mut place))?;
    if let Some((segment, position)) = beyond {
        fail!(Corrupt, "a run names position {position} of segment {segment}: run verify");
    }
    Ok(cells)
}
