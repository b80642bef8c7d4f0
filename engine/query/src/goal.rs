//! What is asked of the objects found: which they are, how many, how many attributes they have.
//!
//! A goal takes in hits one by one, as records, or as positions of a segment all at once; then
//! columns say what records would. Two goals of a kind, reached by two threads, are one.

use std::collections::BTreeMap;

use super::record::{Judge, seen_attrs};
use super::sealed::SearchedSegment;
use super::totals::Tally;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_catalog::ReadTxn;
use engram_columns::cell::Cell;
use engram_columns::column_key::{ColumnKey, NATTRS, is_builtin};
use engram_columns::segment::bitmap::Bitmap;
use engram_index::directory::SegmentEntry;
use engram_records::attrs;
use engram_records::attrs::KeyId;
use engram_records::object::Record;

/// What a query asks for, with the part of the answer that is known so far.
#[derive(Debug)]
pub enum Goal {
    /// The ids of the objects found.
    Oids(Vec<Oid>),
    /// The positions found in each segment. Their objects are looked up afterwards.
    Bits(Vec<Bitmap>),
    /// The number of objects found.
    Count(u64),
    /// The number of attributes that the objects found have.
    Attributes(u64),
    /// The keys of the attributes that the objects found have, and how many of them have each.
    Keys(BTreeMap<KeyId, u64>),
    /// Figures of the objects found.
    Totals(Box<Tally>),
}

impl Goal {
    /// The same, with nothing known yet.
    pub(crate) fn anew(&self) -> Goal {
        match self {
            Goal::Oids(_) => Goal::Oids(Vec::new()),
            Goal::Bits(_) => Goal::Bits(Vec::new()),
            Goal::Count(_) => Goal::Count(0),
            Goal::Attributes(_) => Goal::Attributes(0),
            Goal::Keys(_) => Goal::Keys(BTreeMap::new()),
            Goal::Totals(tally) => Goal::Totals(Box::new(tally.anew())),
        }
    }

    /// Takes in a hit by its record.
    pub fn record(&mut self, judge: &mut Judge<'_>, oid: Oid, record: &Record<'_>) -> Result<()> {
        match self {
            Goal::Oids(oids) => oids.push(oid),
            Goal::Bits(_) => unreachable!("records are not judged by position"),
            Goal::Count(count) => *count += 1,
            Goal::Totals(tally) => tally.record(judge, record)?,
            Goal::Attributes(count) => {
                for entry in attrs::entries(seen_attrs(record)) {
                    entry?;
                    *count += 1;
                }
            }
            Goal::Keys(keys) => {
                for entry in attrs::entries(seen_attrs(record)) {
                    *keys.entry(entry?.key).or_insert(0) += 1;
                }
            }
        }
        Ok(())
    }

    /// The columns that it reads.
    pub(crate) fn columns(&self, piece: &SearchedSegment<'_>) -> Result<Vec<ColumnKey>> {
        match self {
            Goal::Oids(_) | Goal::Bits(_) | Goal::Count(_) => Ok(Vec::new()),
            Goal::Attributes(_) => Ok(vec![NATTRS]),
            Goal::Totals(tally) => Ok(tally.columns()),
            Goal::Keys(_) => {
                let keys = piece.segment.columns().map(|entry| entry.map(|entry| entry.key));
                keys.filter(|key| key.as_ref().map_or(true, |key| !is_builtin(*key))).collect()
            }
        }
    }

    /// Before segments are searched: brings to hand what lies elsewhere in the index.
    pub(crate) fn prepare(
        &mut self,
        txn: &ReadTxn<'_>,
        directory: &[SegmentEntry],
        verdicts: &[u8],
    ) -> Result<()> {
        match self {
            Goal::Totals(tally) => tally.prepare(txn, directory, verdicts),
            _ => Ok(()),
        }
    }

    /// Takes in hits by their positions in a segment; those that only their records tell of are
    /// left.
    pub(crate) fn hits(
        &mut self,
        piece: &mut SearchedSegment<'_>,
        hits: &Bitmap,
    ) -> Result<Option<Bitmap>> {
        let count = hits.count();
        if count == 0 {
            return Ok(None);
        }
        match self {
            Goal::Oids(oids) => piece.segment.oids_at(hits, oids),
            Goal::Bits(bits) => bits.push(hits.clone()),
            Goal::Count(sum) => *sum += count as u64,
            Goal::Totals(tally) => return tally.hits(piece, hits),
            Goal::Attributes(sum) => *sum += attributes(piece, hits)?,
            Goal::Keys(keys) => {
                for entry in piece.segment.columns() {
                    let entry = entry?;
                    if is_builtin(entry.key) {
                        continue;
                    }
                    let mut present = hits.clone();
                    if !entry.all_present() {
                        present.and(&piece.column(entry)?.presence());
                    }
                    match present.count() {
                        0 => {}
                        count => *keys.entry(entry.key).or_insert(0) += count as u64,
                    }
                }
            }
        }
        Ok(None)
    }

    /// Takes in what another of the kind knows.
    pub(crate) fn unite(&mut self, other: Goal) -> Result<()> {
        match (self, other) {
            (Goal::Oids(ours), Goal::Oids(mut theirs)) => ours.append(&mut theirs),
            (Goal::Count(ours), Goal::Count(theirs))
            | (Goal::Attributes(ours), Goal::Attributes(theirs)) => *ours += theirs,
            (Goal::Keys(ours), Goal::Keys(theirs)) => {
                for (key, count) in theirs {
                    *ours.entry(key).or_insert(0) += count;
                }
            }
            (Goal::Totals(ours), Goal::Totals(theirs)) => ours.unite(&theirs)?,
            _ => unreachable!("goals of one search are of one kind"),
        }
        Ok(())
    }
}

/// How many attributes the hits have, by their column of just that.
fn attributes(piece: &mut SearchedSegment<'_>, hits: &Bitmap) -> Result<u64> {
    let Some(entry) = piece.segment.column(NATTRS)? else { return none(piece) };
    let column = piece.column(entry)?;
    let mut sum = 0_u64;
    let number = |cell| match cell {
        Some(Some(Cell::Int(count))) => Some(count as u64),
        _ => None,
    };
    if entry.constant() {
        let Some(each) = number(column.cell(0)?) else { return none(piece) };
        return Ok(each * hits.count() as u64);
    }
    for at in hits.iter() {
        match number(column.cell(at)?) {
            Some(count) => sum += count,
            None => return none(piece),
        }
    }
    Ok(sum)
}

fn none(piece: &SearchedSegment<'_>) -> Result<u64> {
    fail!(Corrupt, "segment {} does not say how many attributes there are", piece.entry.segment)
}
