//! Orders hits: by the values of the keys asked for, then by OID.
//!
//! An object that lacks a value comes last, whichever the direction. Values of mixed kinds are in
//! the index's total order. With a limit no more than about twice as many hits are kept at a time.

use std::cmp::Ordering;

use super::compile::OrderKey;
use super::record::Judge;
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_columns::cell::{Cell, push_order, total_order};
use engram_records::object::Record;

/// Kept beside the limit before the rest is let go of.
const SLACK: usize = 1024;

/// Hits on their way into order.
pub(crate) struct Sorter<'p> {
    keys: &'p [OrderKey],
    limit: usize,
    oids: Vec<Oid>,
    /// What each hit is ordered by, one hit after another.
    cells: Vec<Option<Cell<'static>>>,
}

impl<'p> Sorter<'p> {
    /// Begins with no object.
    pub(crate) fn new(keys: &'p [OrderKey], limit: Option<usize>) -> Self {
        let limit = limit.unwrap_or(usize::MAX);
        Sorter { keys, limit, oids: Vec::new(), cells: Vec::new() }
    }

    /// Takes a hit.
    pub(crate) fn add(
        &mut self,
        judge: &mut Judge<'_>,
        oid: Oid,
        record: &Record<'_>,
    ) -> Result<()> {
        for key in self.keys {
            self.cells.push(match &key.about {
                Some(about) => judge.order_cell(about, record)?,
                None => None,
            });
        }
        self.oids.push(oid);
        if self.oids.len() >= self.limit.saturating_mul(2).saturating_add(SLACK) {
            let kept = self.first();
            let (mut oids, mut cells) = (Vec::new(), Vec::new());
            for at in kept {
                oids.push(self.oids[at as usize]);
                let from = at as usize * self.keys.len();
                cells.extend(self.cells[from..from + self.keys.len()].iter_mut().map(Option::take));
            }
            (self.oids, self.cells) = (oids, cells);
        }
        Ok(())
    }

    /// The first hits, up to the limit, by their places; in order.
    fn first(&self) -> Vec<u32> {
        let mut places: Vec<u32> = (0..self.oids.len() as u32).collect();
        if self.limit < places.len() {
            places.select_nth_unstable_by(self.limit, |a, b| self.compare(*a, *b));
            places.truncate(self.limit);
        }
        places.sort_unstable_by(|a, b| self.compare(*a, *b));
        places
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
