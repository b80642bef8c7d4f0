//! Runs: each live object whose values lie in runs is there once, with the value of its record.
//!
//! Segments come first, and say what runs are to have of them: how many entries, and a sum over
//! cells and positions in which order does not matter. Then the runs are read, and summed likewise.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Walk;
use engram_base::error::Result;
use engram_catalog::ReadTxn;
use engram_columns::cell::Cell;
use engram_columns::column_key::ColumnKey;
use engram_columns::runs;
use engram_columns::segment::bitmap::Bitmap;

/// Entries of one column and segment, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EntrySum {
    entries: u64,
    sum: u64,
}

impl EntrySum {
    fn add(&mut self, position: usize, cell: &Cell<'_>) {
        let mut hasher = DefaultHasher::new();
        (position, Plain::of(cell)).hash(&mut hasher);
        self.entries += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

/// A cell so that cells which are the same value are the same: runs keep numbers as what is
/// shortest.
#[derive(Hash)]
enum Plain<'a> {
    Whole(i128),
    Fraction(u64),
    NaN,
    Text(&'a str),
    Time(i64),
    Other,
}

impl<'a> Plain<'a> {
    fn of(cell: &'a Cell<'_>) -> Self {
        match cell {
            Cell::Int(value) => Plain::Whole(i128::from(*value)),
            Cell::Big(value) => Plain::Whole(i128::from(*value)),
            Cell::Float(value) if value.is_nan() => Plain::NaN,
            Cell::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => {
                Plain::Whole(*value as i128)
            }
            Cell::Float(value) => Plain::Fraction(value.to_bits()),
            Cell::Text(text) => Plain::Text(text),
            Cell::Time(ns) => Plain::Time(*ns),
            Cell::Far(_) | Cell::Other => Plain::Other,
        }
    }
}

/// What the runs are to have.
#[derive(Default)]
pub(super) struct Expected {
    /// Of each column, from each segment that keeps it in runs.
    sums: BTreeMap<ColumnKey, HashMap<u32, EntrySum>>,
    /// The positions of each segment that are compared: those that are dead, or out of date, may
    /// have entries or not.
    compared: HashMap<u32, Bitmap>,
}

impl Expected {
    /// A segment, and its positions that are compared.
    pub(super) fn segment(&mut self, segment: u32, compared: Bitmap) {
        self.compared.insert(segment, compared);
    }

    /// A segment keeps a column in runs, with these cells at positions that are compared.
    pub(super) fn column<'c>(
        &mut self,
        column: ColumnKey,
        segment: u32,
        cells: impl Iterator<Item = (usize, &'c Cell<'c>)>,
    ) {
        let mut sum = EntrySum::default();
        cells.for_each(|(position, cell)| sum.add(position, cell));
        self.sums.entry(column).or_default().insert(segment, sum);
    }
}

impl Walk<'_> {
    /// The runs have what the segments say, and are in order.
    pub(super) fn runs(&mut self, txn: &ReadTxn<'_>, mut expected: Expected) -> Result<()> {
        let mut columns = BTreeSet::from_iter(runs::columns(txn)?);
        columns.extend(expected.sums.keys());
        for column in columns {
            let wanted = expected.sums.remove(&column).unwrap_or_default();
            let mut found: HashMap<u32, EntrySum> = HashMap::new();
            let compared = &expected.compared;
            let read = runs::check(txn, column, |segment, position, cell| {
                let position = usize::from(position);
                if compared.get(&segment).is_some_and(|live| live.contains(position)) {
                    found.entry(segment).or_default().add(position, cell);
                }
            });
            if let Err(error) = read {
                self.problem(format!("the runs of attribute {column}: {error}"));
                continue;
            }
            let mut segments: Vec<u32> = wanted.keys().chain(found.keys()).copied().collect();
            segments.sort_unstable();
            segments.dedup();
            for segment in segments {
                let is = found.get(&segment).copied().unwrap_or_default();
                match wanted.get(&segment) {
                    Some(wanted) if *wanted == is => {}
                    Some(wanted) => self.problem(format!(
                        "attribute {column}: runs have {} entries of segment {segment}, not \
                         {}, or other values",
                        is.entries, wanted.entries
                    )),
                    None => self.problem(format!(
                        "attribute {column}: runs have {} entries of segment {segment}, whose \
                         values are in columns",
                        is.entries
                    )),
                }
            }
        }
        Ok(())
    }
}
