//! What a query sees: one snapshot, and above it the changes of the batch that asks.
//!
//! Nothing is copied and nothing becomes a guard. What the batch has merely read does not count:
//! below its own changes, all that a query sees is of the one snapshot.

use super::Overlay;
use super::layer::Change;
use crate::catalog::{ReadTxn, Table};
use crate::error::Result;
use crate::fail;
use crate::id::Oid;

/// The id that a row is of, and the row; none where it is removed.
type ChangedRow<'a> = (Oid, Option<&'a [u8]>);

/// A snapshot with a batch's changes above it, if a batch runs.
#[derive(Clone, Copy)]
pub(crate) struct Peek<'a> {
    over: Option<&'a Overlay>,
    txn: &'a ReadTxn<'a>,
}

impl<'a> Peek<'a> {
    /// This snapshot, below these changes.
    pub(crate) fn new(txn: &'a ReadTxn<'a>, over: Option<&'a Overlay>) -> Self {
        Peek { over, txn }
    }

    /// The snapshot alone.
    pub(crate) fn txn(&self) -> &'a ReadTxn<'a> {
        self.txn
    }

    /// Whether a batch runs.
    pub(crate) fn in_batch(&self) -> bool {
        self.over.is_some()
    }

    /// The value at `key`.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<&'a [u8]>> {
        match self.over.and_then(|over| over.layers[table as usize].change(key)) {
            Some(Change::Put(row)) => Ok(Some(row)),
            Some(Change::Remove) => Ok(None),
            None => self.txn.get(table, key),
        }
    }

    /// The rows of a table, keyed by ids, that the batch changes, in order; `None` where it removes
    /// one.
    pub(crate) fn changed(&self, table: Table) -> Result<Vec<ChangedRow<'a>>> {
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
