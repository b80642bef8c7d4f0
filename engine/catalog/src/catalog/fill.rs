//! Filling a new catalog with the rows of another: in parts, since a transaction's pages are all
//! kept until it commits.
//!
//! For catalogs that nobody else knows yet: the rows that a part has put are there though a later
//! one fails.

use super::{Catalog, Headroom, Table, WriteTxn};
use engram_base::error::{Error, Result};

/// A part ends at so many rows, or bytes.
const PART_ROWS: usize = 8192;
const PART_BYTES: u64 = 16 << 20;

/// See [`Catalog::run`].
pub(super) fn run<T>(
    catalog: &Catalog,
    mut change: impl FnMut(&mut WriteTxn<'_>) -> Result<T>,
) -> Result<T> {
    loop {
        let mut txn = catalog.write(Headroom::Relief)?;
        let changed = change(&mut txn);
        match (changed, txn.short_of()) {
            (_, Some(pages)) => {
                drop(txn);
                catalog.extend(pages)?;
            }
            (Err(error), None) => return Err(error),
            // The catalog goes with the failure, so that it is certain what is there: nothing.
            (Ok(value), None) => return txn.commit().map(|_| value).map_err(Error::certain),
        }
    }
}

/// Rows on their way into a catalog.
pub struct Filling<'c> {
    catalog: &'c Catalog,
    part: Vec<(Table, Vec<u8>, Vec<u8>)>,
    bytes: u64,
}

impl<'c> Filling<'c> {
    /// Begins to fill a catalog.
    pub fn new(catalog: &'c Catalog) -> Self {
        Filling { catalog, part: Vec::new(), bytes: 0 }
    }

    /// Puts a row; those of a table come fastest in the order of their keys.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.bytes += (key.len() + value.len()) as u64;
        self.part.push((table, key.to_vec(), value.to_vec()));
        if self.part.len() >= PART_ROWS || self.bytes >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    /// Commits what was put.
    pub fn flush(&mut self) -> Result<()> {
        self.catalog.expect(self.bytes, [])?;
        let part = std::mem::take(&mut self.part);
        self.bytes = 0;
        self.catalog
            .run(|txn| part.iter().try_for_each(|(table, key, value)| txn.put(*table, key, value)))
    }
}
