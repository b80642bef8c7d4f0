//! What a query sees: one snapshot, and above it the changes of the batch that asks.
//!
//! Nothing is copied and nothing becomes a guard. A row that the batch has merely read does not
//! count: below its own changes, all that a query sees is of the one snapshot.

use std::borrow::Cow;

use super::layer::Change;
use crate::overlay::Overlay;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Oid;
use engram_catalog::rows::{Row, Rows};
use engram_catalog::{ReadTxn, Table};

/// What is called with a key and its row.
type EachRow<'e> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'e;

/// The id that a row is of, and the row; none where it is removed.
type ChangedRow<'a> = (Oid, Option<&'a [u8]>);

/// A snapshot with a batch's changes above it, if a batch runs.
#[derive(Clone, Copy)]
pub struct Peek<'a> {
    over: Option<&'a Overlay>,
    txn: &'a ReadTxn<'a>,
}

impl<'a> Peek<'a> {
    /// This snapshot, below these changes.
    pub fn new(txn: &'a ReadTxn<'a>, over: Option<&'a Overlay>) -> Self {
        Peek { over, txn }
    }

    /// The snapshot alone.
    pub fn txn(&self) -> &'a ReadTxn<'a> {
        self.txn
    }

    /// Whether a batch runs.
    pub fn in_batch(&self) -> bool {
        self.over.is_some()
    }

    /// The value at `key`.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<&'a [u8]>> {
        match self.over.and_then(|over| over.layers[table as usize].change(key)) {
            Some(Change::Put(row)) => Ok(Some(row)),
            Some(Change::Remove) => Ok(None),
            None => self.txn.get(table, key),
        }
    }

    /// Runs `each` on every row of a table, those that the batch sets among them.
    pub fn each(&self, table: Table, each: &mut EachRow<'_>) -> Result<()> {
        let mut cursor = self.txn.seek(table, &[])?;
        while let Some((key, row)) = cursor.next()? {
            if self.over.and_then(|over| over.layers[table as usize].change(key)).is_none() {
                each(key, row)?;
            }
        }
        let Some(over) = self.over else { return Ok(()) };
        for row in over.layers[table as usize].in_order() {
            if let Some(Change::Put(value)) = row.change {
                each(row.key, value)?;
            }
        }
        Ok(())
    }

    /// The rows of a table, keyed by ids, that the batch changes, in order; `None` where it removes
    /// one.
    pub fn changed(&self, table: Table) -> Result<Vec<ChangedRow<'a>>> {
        let Some(over) = self.over else { return Ok(Vec::new()) };
        let mut changed = Vec::new();
        for row in over.layers[table as usize].in_order() {
            let row_now = match row.change {
                Some(Change::Put(value)) => Some(value),
                Some(Change::Remove) => None,
                None => continue,
            };
            let Ok(id) = <[u8; 8]>::try_from(row.key) else {
                fail!(Corrupt, "a key of `{}` has {} bytes", table.name(), row.key.len())
            };
            changed.push((u64::from_be_bytes(id), row_now));
        }
        Ok(changed)
    }
}

impl Rows for Peek<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(Peek::get(self, table, key)?.map(Cow::Borrowed))
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(Peek::get(self, table, key)?.is_some())
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        let Some(over) = self.over else {
            let mut cursor = self.txn.seek(table, from)?;
            return Ok(cursor.next()?.map(|(key, row)| (key.to_vec(), row.to_vec())));
        };
        let layer = &over.layers[table as usize];
        let mut cursor = self.txn.seek(table, from)?;
        let below = loop {
            match cursor.next()? {
                Some((key, _)) if layer.change(key).is_some() => {}
                row => break row.map(|(key, row)| (key.to_vec(), row.to_vec())),
            }
        };
        let above =
            layer.in_order().filter(|row| row.key >= from).find_map(|row| match row.change {
                Some(Change::Put(value)) => Some((row.key.to_vec(), value.to_vec())),
                _ => None,
            });
        Ok(match (above, below) {
            (Some(above), Some(below)) => Some(if above.0 < below.0 { above } else { below }),
            (above, below) => above.or(below),
        })
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        let above = |over: &Overlay| {
            let mut rows = over.layers[Table::IndexSettings as usize].in_order();
            rows.any(|row| matches!(row.change, Some(Change::Put(_))))
        };
        Ok(self.txn.entries(Table::IndexSettings)? > 0 || self.over.is_some_and(above))
    }

    fn has_read_only(&mut self) -> Result<bool> {
        let above = |over: &Overlay| over.layers[Table::ReadOnly as usize].in_order().count() > 0;
        Ok(self.txn.entries(Table::ReadOnly)? > 0 || self.over.is_some_and(above))
    }
}
