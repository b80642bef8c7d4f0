//! Orders hits: by the values of the keys asked for, then by OID.
//!
//! What lacks a value comes last, whichever the direction. Values of mixed kinds are in the
//! index's total order. With a limit no more than about twice as many hits are kept at a time.

use std::cmp::Ordering;

use super::compile::OrderKey;
use super::record::Judge;
use crate::error::Result;
use crate::id::Oid;
use crate::index::cell::{Cell, total_order};
use crate::object::Record;

/// Kept beside the limit before the rest is let go of.
const SLACK: usize = 1024;

/// The values that a hit is ordered by, and the hit.
type Hit = (Vec<Option<Cell<'static>>>, Oid);

/// Hits on their way into order.
pub(crate) struct Sorter<'p> {
    keys: &'p [OrderKey],
    limit: usize,
    hits: Vec<Hit>,
}

impl<'p> Sorter<'p> {
    /// None yet.
    pub(crate) fn new(keys: &'p [OrderKey], limit: Option<usize>) -> Self {
        Sorter { keys, limit: limit.unwrap_or(usize::MAX), hits: Vec::new() }
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
        self.hits.push((cells, oid));
        if self.hits.len() >= self.limit.saturating_mul(2).saturating_add(SLACK) {
            self.trim();
        }
        Ok(())
    }

    fn trim(&mut self) {
        let keys = self.keys;
        if self.limit < self.hits.len() {
            self.hits.select_nth_unstable_by(self.limit, |a, b| compare(keys, a, b));
            self.hits.truncate(self.limit);
        }
    }

    /// The hits in order.
    pub(crate) fn finish(mut self) -> Vec<Oid> {
        self.trim();
        let keys = self.keys;
        self.hits.sort_unstable_by(|a, b| compare(keys, a, b));
        self.hits.into_iter().map(|(_, oid)| oid).collect()
    }
}

fn compare(keys: &[OrderKey], a: &Hit, b: &Hit) -> Ordering {
    for ((key, a), b) in keys.iter().zip(&a.0).zip(&b.0) {
        let order = match (a, b) {
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
    a.1.cmp(&b.1)
}
