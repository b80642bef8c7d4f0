//! Rows in memory, for unit tests of the crates above: a sorted map for each table.
//!
//! An operation that runs against these rows sees what it would see in a catalog that nobody else
//! writes to. There is no transaction: a changed row stays changed, so a test that compares two
//! states of the rows sees whatever a refused operation has left behind.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::catalog::{ReadTxn, Table, WriteTxn};
use crate::rows::{Row, Rows};
use engram_base::error::Result;

/// Every table of a catalog, in memory. Two are equal if they have the same rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryRows {
    tables: [BTreeMap<Vec<u8>, Vec<u8>>; Table::COUNT],
}

impl MemoryRows {
    /// A copy of all rows that a snapshot shows.
    pub fn of(txn: &ReadTxn<'_>) -> Result<Self> {
        let mut rows = Self::default();
        for table in Table::ALL {
            let mut cursor = txn.seek(table, &[])?;
            while let Some((key, value)) = cursor.next()? {
                rows.put(table, key, value);
            }
        }
        Ok(rows)
    }

    /// Makes a catalog's rows these ones: whatever else is in its tables goes.
    pub fn write_to(&self, txn: &mut WriteTxn<'_>) -> Result<()> {
        for table in Table::ALL {
            let mut from = Vec::new();
            while let Some((key, _)) = txn.rows().first_from(table, &from)? {
                if !self.tables[table as usize].contains_key(&key) {
                    txn.delete(table, &key)?;
                }
                from = key;
                from.push(0);
            }
            for (key, value) in self.in_order(table) {
                txn.put(table, key, value)?;
            }
        }
        Ok(())
    }

    /// Sets a row.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.tables[table as usize].insert(key.to_vec(), value.to_vec());
    }

    /// Removes a row; whether there was one.
    pub fn remove(&mut self, table: Table, key: &[u8]) -> bool {
        self.tables[table as usize].remove(key).is_some()
    }

    /// The rows of a table, in the order of their keys.
    pub fn in_order(&self, table: Table) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.tables[table as usize].iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// How many rows a table has.
    pub fn entries(&self, table: Table) -> usize {
        self.tables[table as usize].len()
    }
}

impl Rows for MemoryRows {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.tables[table as usize].get(key).map(|row| Cow::Borrowed(row.as_slice())))
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(self.tables[table as usize].contains_key(key))
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        let mut range = self.tables[table as usize].range(from.to_vec()..);
        Ok(range.next().map(|(key, row)| (key.clone(), row.clone())))
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        Ok(self.entries(Table::IndexSettings) > 0)
    }

    fn has_read_only(&mut self) -> Result<bool> {
        Ok(self.entries(Table::ReadOnly) > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryRows;
    use crate::rows::Rows;
    use crate::{Catalog, Headroom, Options, Table};

    /// What a look at every door of `Rows` gives, for keys that are there and keys that are not.
    fn seen(rows: &mut impl Rows) -> Vec<String> {
        let mut seen =
            vec![format!("{:?}", rows.has_index_settings()), format!("{:?}", rows.has_read_only())];
        for table in [Table::Names, Table::Meta, Table::ReadOnly] {
            for key in [&b"a"[..], b"b", b"b\0", b"c", b"zz"] {
                seen.push(format!("{:?}", rows.get(table, key)));
                seen.push(format!("{:?}", rows.has(table, key)));
                seen.push(format!("{:?}", rows.first_from(table, key)));
            }
        }
        seen
    }

    #[test]
    fn rows_in_memory_are_seen_as_those_of_a_catalog_are() {
        let dir = tempfile::tempdir().unwrap();
        Catalog::create(dir.path(), &Options::default()).unwrap();
        let catalog = Catalog::open(dir.path(), &Options::default()).unwrap();
        let mut rows = MemoryRows::default();
        for step in 0..4 {
            match step {
                0 => {}
                1 => rows.put(Table::Names, b"b", b"one"),
                2 => {
                    rows.put(Table::Names, b"c", b"two");
                    rows.put(Table::ReadOnly, b"zz", b"three");
                }
                _ => assert!(rows.remove(Table::Names, b"b") && !rows.remove(Table::Meta, b"b")),
            }
            let mut txn = catalog.write(Headroom::Normal).unwrap();
            rows.write_to(&mut txn).unwrap();
            assert_eq!(seen(&mut txn.rows()), seen(&mut rows), "step {step}");
            txn.commit().unwrap();
            let txn = catalog.read().unwrap();
            assert_eq!(MemoryRows::of(&txn).unwrap(), rows, "step {step}");
            assert_eq!(seen(&mut txn.rows()), seen(&mut rows), "step {step}");
        }
    }
}
