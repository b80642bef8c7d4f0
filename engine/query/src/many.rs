//! Many objects, known by their OIDs: what they have of some columns, segment by segment.
//!
//! *Invariant*: of each object that is there somebody is told once: of its row in the one segment
//! that it lives in, if no other place has something newer, or of its record. An object that waits
//! in the queue, lies in the tail or was changed by the batch that asks is told of by its record.

use super::fields::{FieldCells, Scattered};
use super::record::Judge;
use super::run::Search;
use super::sealed::{PartSource, SearchedSegment, within};
use engram_base::error::Result;
use engram_base::id::{Oid, id_key};
use engram_catalog::Table;
use engram_columns::column_key::ColumnKey;
use engram_columns::runs::SortedRuns;
use engram_columns::segment::Bitmap;
use engram_index::{queue, tail};
use engram_records::object::Record;

/// So many rows of a segment are decoded in the time that one record takes to be read.
const ROWS_PER_RECORD: usize = 64;
/// The same of entries of runs.
const ENTRIES_PER_RECORD: u64 = 16;

/// One row: which of the objects it is, and its position in the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowAt {
    /// The place among the OIDs.
    pub place: usize,
    /// The position in the segment.
    pub at: usize,
}

/// Who is told.
pub(crate) trait Told {
    /// Takes rows of a segment, by what they have of each column. The places of those that only
    /// their records tell of are added to `left`.
    fn rows(
        &mut self,
        judge: &mut Judge<'_>,
        rows: &[RowAt],
        fields: &[FieldCells<'_>],
        left: &mut Vec<usize>,
    ) -> Result<()>;

    /// Takes an object by its record.
    fn record(&mut self, judge: &mut Judge<'_>, place: usize, record: &Record<'_>) -> Result<()>;

    /// Takes note that an object is gone.
    fn gone(&mut self, place: usize);
}

impl Search<'_> {
    /// Tells of these objects, ascending, what they have of these columns.
    pub(crate) fn tell(
        &mut self,
        oids: &[Oid],
        keys: &[ColumnKey],
        told: &mut dyn Told,
    ) -> Result<()> {
        let mut left = Vec::new();
        let mut seen = Bitmap::new(oids.len());
        if !keys.is_empty() && !self.options.brute_force {
            self.tell_sealed(oids, keys, told, &mut seen, &mut left)?;
        }
        seen.negate();
        left.extend(seen.iter());
        left.sort_unstable();
        for place in left {
            match self.peek.get(Table::Objects, &id_key(oids[place]))? {
                Some(row) => {
                    self.counts.ordered += 1;
                    told.record(&mut self.judge, place, &Record::parse(row)?)?;
                }
                None => told.gone(place),
            }
        }
        Ok(())
    }

    fn tell_sealed(
        &mut self,
        oids: &[Oid],
        keys: &[ColumnKey],
        told: &mut dyn Told,
        seen: &mut Bitmap,
        left: &mut Vec<usize>,
    ) -> Result<()> {
        let txn = self.peek.txn();
        let directory = self.directories.of(txn)?;
        let elsewhere = self.elsewhere()?;
        let dead = txn.entries(Table::IndexDead)? > 0;
        let mut scattered: Vec<Option<Scattered>> = Vec::with_capacity(keys.len());
        let wanted = |place: usize| !within(oids, directory[place]).is_empty();
        for key in keys {
            let entries = SortedRuns::read(txn, *key)?.entries();
            let worth = entries > 0 && oids.len() as u64 * ENTRIES_PER_RECORD > entries;
            let read = worth.then(|| Scattered::new(txn, *key, &directory, &wanted));
            scattered.push(read.transpose()?);
        }
        let mut rows = Vec::new();
        for (place, entry) in directory.iter().enumerate() {
            let here = within(oids, *entry);
            if here.is_empty() {
                continue;
            }
            let mut piece = SearchedSegment::open(txn, *entry, place)?;
            let number = entry.segment.to_be_bytes();
            let bytes = if dead { txn.get(Table::IndexDead, &number)? } else { None };
            piece.hide(bytes, &elsewhere)?;
            let first = oids.partition_point(|oid| *oid < entry.min);
            rows.clear();
            place_rows(&piece, here, first, &mut rows);
            if rows.len() * ROWS_PER_RECORD < piece.segment.len() {
                continue;
            }
            let mut fields = Vec::with_capacity(keys.len());
            for (key, scattered) in keys.iter().zip(&scattered) {
                if let Some(column) = piece.segment.column(*key)? {
                    piece.fetch(PartSource(txn), &column)?;
                }
                fields.push(FieldCells::read(&piece, *key, scattered.as_ref(), false)?);
            }
            for row in &rows {
                seen.insert(row.place);
            }
            told.rows(&mut self.judge, &rows, &fields, left)?;
        }
        Ok(())
    }

    /// The objects, ascending, of which something newer than a segment may be known.
    fn elsewhere(&self) -> Result<Vec<Oid>> {
        let changed = self.peek.changed(Table::Objects)?;
        let mut oids: Vec<Oid> = changed.into_iter().map(|(oid, _)| oid).collect();
        oids.extend(queue::all(self.peek.txn())?);
        oids.extend(tail::all(self.peek.txn())?);
        oids.sort_unstable();
        oids.dedup();
        Ok(oids)
    }
}

/// Which of some ascending OIDs live in a segment, and where; the first of them has this place.
fn place_rows(piece: &SearchedSegment<'_>, oids: &[Oid], first: usize, rows: &mut Vec<RowAt>) {
    let hidden = |at: usize| piece.hidden.as_ref().is_some_and(|hidden| hidden.contains(at));
    if oids.len() * 8 < piece.segment.len() {
        for (nth, oid) in oids.iter().enumerate() {
            let at = piece.segment.position(*oid).filter(|at| !hidden(*at));
            rows.extend(at.map(|at| RowAt { place: first + nth, at }));
        }
        return;
    }
    let mut nth = 0;
    for (at, oid) in piece.segment.oids().into_iter().enumerate() {
        // Mostly the next one is meant; where segments overlap it may be far.
        if oids.get(nth).is_some_and(|known| *known < oid) {
            nth += oids[nth..].iter().take(8).take_while(|known| **known < oid).count();
            if oids.get(nth).is_some_and(|known| *known < oid) {
                nth += oids[nth..].partition_point(|known| *known < oid);
            }
        }
        if oids.get(nth) == Some(&oid) {
            if !hidden(at) {
                rows.push(RowAt { place: first + nth, at });
            }
            nth += 1;
        }
    }
}
