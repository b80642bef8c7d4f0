//! Runs have what the segments' records say, in order; and names have one number each.
//!
//! Checked: the runs of a column have exactly the cells of the live positions that are kept there,
//! each once (but for objects in the queue). There may be millions, in another order than the
//! records: what is compared is how many there are for each segment and the sum of their hashes.
//! Every run is sorted, and its head says what its blocks have; there are no rows beside these. Every
//! name has a number of its own, and is found by it where names lie in that order too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Walk;
use crate::catalog::{ReadTxn, Table};
use crate::error::Result;
use crate::index::cell::Cell;
use crate::index::column_key::ColumnKey;
use crate::index::directory::Entry;
use crate::index::names;
use crate::index::range::Range;
use crate::index::runs::{Runs, next_column};
use crate::index::segment::Bitmap;

/// What runs should have.
#[derive(Default)]
pub(super) struct Expected {
    /// By segment: the positions whose records were asked.
    asked: HashMap<u32, Bitmap>,
    sums: Sums,
}

/// By column and segment: how many cells, and the sum of their hashes.
type Sums = BTreeMap<(ColumnKey, u32), (u64, u64)>;

fn add(sums: &mut Sums, column: ColumnKey, segment: u32, position: usize, cell: &Cell<'_>) {
    let mut hasher = DefaultHasher::new();
    position.hash(&mut hasher);
    match cell {
        Cell::Int(value) => (0, value).hash(&mut hasher),
        Cell::Big(value) => (1, value).hash(&mut hasher),
        Cell::Float(value) if value.is_nan() => 2.hash(&mut hasher),
        Cell::Float(value) => (3, value.to_bits()).hash(&mut hasher),
        Cell::Text(text) => (4, text).hash(&mut hasher),
        Cell::Time(value) => (5, value).hash(&mut hasher),
        Cell::Other => 6.hash(&mut hasher),
    }
    let (count, sum) = sums.entry((column, segment)).or_default();
    *count += 1;
    *sum = sum.wrapping_add(hasher.finish());
}

impl Expected {
    /// Takes down what a segment's rows have of a column.
    pub(super) fn segment<'r>(
        &mut self,
        column: ColumnKey,
        entry: &Entry,
        cells: impl Iterator<Item = (usize, Option<&'r Option<Cell<'r>>>)>,
    ) {
        let rows = entry.rows as usize;
        let asked = self.asked.entry(entry.segment).or_insert_with(|| Bitmap::new(rows));
        for (position, cell) in cells {
            asked.insert(position);
            if let Some(Some(cell)) = cell {
                add(&mut self.sums, column, entry.segment, position, cell);
            }
        }
    }
}

impl Walk<'_> {
    /// The runs have what they should, in order.
    pub(super) fn runs(&mut self, txn: &ReadTxn<'_>, expected: &Expected) -> Result<()> {
        let (mut found, mut rows) = (Sums::new(), 0);
        let mut from = Some(0);
        while let Some(least) = from
            && let Some(column) = next_column(txn, least)?
        {
            from = column.checked_add(1);
            let read = Runs::read(txn, column).and_then(|runs| {
                rows += (runs.len() + runs.blocks()) as u64;
                runs.check()?;
                let alive = |segment| expected.asked.contains_key(&segment);
                runs.visit(&Range::default(), &alive, |segment, position, cell| {
                    let position = usize::from(position);
                    let asked = &expected.asked[&segment];
                    if position >= asked.len() || asked.contains(position) {
                        add(&mut found, column, segment, position, cell);
                    }
                })
            });
            if let Err(error) = read {
                self.problem(format!("the runs of column {column}: {error}"));
                found.retain(|(of, _), _| *of != column);
                let said = expected.sums.iter().filter(|((of, _), _)| *of == column);
                found.extend(said.map(|(key, sum)| (*key, *sum)));
            }
        }
        let known = txn.entries(Table::IndexRuns)?;
        if known != rows {
            self.problem(format!("`index_runs` has {known} rows, of which {rows} are of runs"));
        }
        let keys: HashSet<_> = expected.sums.keys().chain(found.keys()).collect();
        for key in keys {
            let (has, should) = (found.get(key), expected.sums.get(key));
            if has != should {
                let count = |sum: Option<&(u64, u64)>| sum.map_or(0, |(count, _)| *count);
                self.problem(format!(
                    "the runs of attribute {} have {} cells of segment {}, which are not the {} \
                     that its records have",
                    key.0,
                    count(has),
                    key.1,
                    count(should)
                ));
            }
        }
        Ok(())
    }

    /// Names have numbers, each its own.
    pub(super) fn numbered(&mut self, txn: &ReadTxn<'_>) -> Result<()> {
        let count = names::count(txn)?;
        let mut numbers = HashSet::new();
        names::each(txn, "", None, |name, number| {
            if u64::from(number) >= count || !numbers.insert(number) {
                self.problem(format!("name {name:?} has number {number}, which is another's"));
            }
            Ok(())
        })?;
        let mut again = 0;
        names::each_with(txn, &[], |name, number| {
            again += 1;
            if names::number(txn, name)? != Some(number) {
                self.problem(format!("number {number} is that of {name:?}, which has another"));
            }
            Ok(())
        })?;
        if numbers.len() as u64 != count || again != count {
            let named = numbers.len();
            self.problem(format!(
                "{count} names are numbered, {named} have a number, and {again} are found by it"
            ));
        }
        Ok(())
    }
}
