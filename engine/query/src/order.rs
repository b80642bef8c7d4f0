//! Orders hits: by the values of the keys asked for, then by OID.
//!
//! An object that lacks a value comes last, whichever the direction. Values of mixed kinds are in
//! the index's total order. With a limit no more than about twice as many hits are kept at a time.

use std::cmp::Ordering;

use super::compile::{About, OrderKey};
use super::fields::FieldCells;
use super::many::{RowAt, Told};
use super::record::Judge;
use super::top::Spot;
use super::zones::How;
use crate::ast::Builtin;
use engram_base::error::Result;
use engram_base::id::{Gid, Oid};
use engram_columns::cell::{Cell, push_order, total_order};
use engram_columns::column_key::{ColumnKey, GROUP, NAME};
use engram_columns::segment::Slot;
use engram_records::object::Record;

/// Kept beside the limit before the rest is let go of.
const SLACK: usize = 1024;

/// Hits on their way into order.
pub(crate) struct Sorter<'p> {
    keys: &'p [OrderKey],
    limit: usize,
    /// Those that hits are told of by their places among.
    among: &'p [Oid],
    oids: Vec<Oid>,
    /// What each hit is ordered by, one hit after another.
    cells: Vec<Option<Cell<'static>>>,
    /// Whether they are in order, and no more than the limit.
    is_settled: bool,
}

impl<'p> Sorter<'p> {
    /// Begins with no object.
    pub(crate) fn new(keys: &'p [OrderKey], limit: Option<usize>) -> Self {
        let limit = limit.unwrap_or(usize::MAX);
        Sorter { keys, limit, among: &[], oids: Vec::new(), cells: Vec::new(), is_settled: true }
    }

    /// Says among which OIDs hits are told of.
    pub(crate) fn among(self, oids: &'p [Oid]) -> Self {
        Sorter { among: oids, ..self }
    }

    /// Takes a hit.
    pub(crate) fn add(
        &mut self,
        judge: &mut Judge<'_>,
        oid: Oid,
        record: &Record<'_>,
    ) -> Result<()> {
        let mut cells = Vec::with_capacity(self.keys.len());
        for key in self.keys {
            cells.push(match &key.about {
                Some(about) => judge.order_cell(about, record)?,
                None => None,
            });
        }
        self.add_cells(oid, cells);
        Ok(())
    }

    /// Takes a hit by what it is ordered by.
    pub(crate) fn add_cells(&mut self, oid: Oid, cells: Vec<Option<Cell<'static>>>) {
        debug_assert_eq!(cells.len(), self.keys.len());
        self.cells.extend(cells);
        self.took(oid);
    }

    /// Takes note of a hit whose cells were taken.
    fn took(&mut self, oid: Oid) {
        self.oids.push(oid);
        self.is_settled = false;
        if self.oids.len() >= self.limit.saturating_mul(2).saturating_add(SLACK) {
            self.settle();
        }
    }

    /// Leaves the first hits, up to the limit, in order.
    fn settle(&mut self) {
        let (mut oids, mut cells) = (Vec::new(), Vec::new());
        for at in self.first() {
            oids.push(self.oids[at as usize]);
            let from = at as usize * self.keys.len();
            cells.extend(self.cells[from..from + self.keys.len()].iter_mut().map(Option::take));
        }
        (self.oids, self.cells) = (oids, cells);
        self.is_settled = true;
    }

    /// Once there are as many hits as the limit: the last of the first so many, by what it has of
    /// the first key, and its OID.
    pub(crate) fn worst(&mut self) -> Option<(Option<&Cell<'static>>, Oid)> {
        if self.oids.len() < self.limit {
            return None;
        }
        if !self.is_settled {
            self.settle();
        }
        let last = self.oids.len().checked_sub(1)?;
        Some((self.cells[last * self.keys.len()].as_ref(), self.oids[last]))
    }

    /// The first hits, up to the limit, by their places; in order.
    fn first(&self) -> Vec<u32> {
        if let Some(places) = self.first_by_spots() {
            return places;
        }
        let mut places: Vec<u32> = (0..self.oids.len() as u32).collect();
        if self.limit < places.len() {
            places.select_nth_unstable_by(self.limit, |a, b| self.compare(*a, *b));
            places.truncate(self.limit);
        }
        places.sort_unstable_by(|a, b| self.compare(*a, *b));
        places
    }

    /// The same where spots tell all there is to tell of many hits: these are compared fast.
    fn first_by_spots(&self) -> Option<Vec<u32>> {
        let [key] = self.keys else { return None };
        if self.oids.len() < SLACK {
            return None;
        }
        let mut spots = Vec::with_capacity(self.oids.len());
        for ((cell, oid), at) in self.cells.iter().zip(&self.oids).zip(0..) {
            let (spot, exact) = Spot::of(cell.as_ref(), key.descending);
            if !exact {
                return None;
            }
            spots.push((spot, *oid, at));
        }
        if self.limit < spots.len() {
            spots.select_nth_unstable(self.limit);
            spots.truncate(self.limit);
        }
        spots.sort_unstable();
        Some(spots.into_iter().map(|(_, _, at): (Spot, Oid, u32)| at).collect())
    }

    /// The hits in order.
    pub(crate) fn finish(self) -> Vec<Oid> {
        self.first().into_iter().map(|at| self.oids[at as usize]).collect()
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let (a, b) = (a as usize, b as usize);
        let cells = |hit: usize| &self.cells[hit * self.keys.len()..][..self.keys.len()];
        let order = compare_cells(self.keys, cells(a), cells(b));
        order.then_with(|| self.oids[a].cmp(&self.oids[b]))
    }
}

/// The columns that say what hits are ordered by, if columns do; those of the n-th key follow those
/// of the keys before it.
pub(crate) fn columns(keys: &[OrderKey]) -> Option<Vec<ColumnKey>> {
    let mut columns = Vec::new();
    for about in keys.iter().filter_map(|key| key.about.as_ref()) {
        columns.extend_from_slice(&fields_of(about)?);
    }
    Some(columns)
}

/// The columns that say what an object has, if columns do.
pub(crate) fn fields_of(about: &About) -> Option<Vec<ColumnKey>> {
    match about {
        About::Path(_) => Some(vec![GROUP, NAME]),
        _ => How::of(about).column().map(|column| vec![column]),
    }
}

/// What a row has, by the columns of [`fields_of`].
pub(crate) fn row_cell<'t>(
    judge: &mut Judge<'_>,
    about: &About,
    fields: &[FieldCells<'t>],
    at: usize,
) -> Result<Slot<'t>> {
    let slot = fields[0].slot(at);
    Ok(match (about, &slot) {
        (About::Attr(_) | About::Name | About::Builtin(_), _) if !is_owner(about) => slot,
        (_, None | Some(None)) => Some(None),
        (About::Path(_), Some(Some(gid))) => match fields[1].slot(at) {
            Some(Some(Cell::Text(name))) => Some(judge.path_cell(group_number(gid), &name)?),
            _ => Some(None),
        },
        (About::Group(field), Some(Some(gid))) => {
            judge.group_cell(field, group_number(gid))?.map(Some)
        }
        (_, Some(Some(uid))) => Some(judge.owner_cell(uid)),
    })
}

fn is_owner(about: &About) -> bool {
    matches!(about, About::Builtin(Builtin::Owner))
}

pub(crate) fn group_number(cell: &Cell<'_>) -> Gid {
    match cell {
        Cell::Int(gid) => *gid as u64,
        Cell::Big(gid) => *gid,
        _ => 0,
    }
}

impl Told for Sorter<'_> {
    fn rows(
        &mut self,
        judge: &mut Judge<'_>,
        rows: &[RowAt],
        fields: &[FieldCells<'_>],
        left: &mut Vec<usize>,
    ) -> Result<()> {
        'rows: for row in rows {
            let (begin, mut fields) = (self.cells.len(), fields);
            for key in self.keys {
                let Some(about) = &key.about else {
                    self.cells.push(None);
                    continue;
                };
                let count = if matches!(about, About::Path(_)) { 2 } else { 1 };
                match row_cell(judge, about, &fields[..count], row.at)? {
                    Some(None) => {
                        left.push(row.place);
                        self.cells.truncate(begin);
                        continue 'rows;
                    }
                    found => self.cells.push(found.flatten().map(Cell::into_owned)),
                }
                fields = &fields[count..];
            }
            self.took(self.among[row.place]);
        }
        Ok(())
    }

    fn record(&mut self, judge: &mut Judge<'_>, place: usize, record: &Record<'_>) -> Result<()> {
        self.add(judge, self.among[place], record)
    }

    fn gone(&mut self, _place: usize) {}
}

/// Bytes in the order of hits by what each has of each key: those of two hits compare as
/// [`compare_cells`] compares the hits, also where these are of different pools.
pub fn order_bytes(keys: &[OrderKey], cells: &[Option<Cell<'static>>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, cell) in keys.iter().zip(cells) {
        // What lacks a value comes last, whichever the direction.
        out.push(u8::from(cell.is_none()));
        let begin = out.len();
        if let Some(cell) = cell {
            push_order(cell, &mut out);
        }
        if key.descending {
            for byte in &mut out[begin..] {
                *byte = !*byte;
            }
        }
    }
    out
}

/// The order of two hits by what they have of each key.
pub fn compare_cells(
    keys: &[OrderKey],
    a: &[Option<Cell<'static>>],
    b: &[Option<Cell<'static>>],
) -> Ordering {
    for (key, both) in keys.iter().zip(a.iter().zip(b)) {
        let order = match both {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if key.descending => total_order(b, a),
            (Some(a), Some(b)) => total_order(a, b),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}
