//! Looking at the index's rows, in a snapshot or in a write transaction alike.

use crate::catalog::{Cursor, ReadTxn, Table, WriteTxn};
use crate::error::Result;

/// What can be looked at.
pub(crate) trait Look {
    /// The value at `key`.
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>>;
    /// The rows from the first whose key is at least `from`.
    fn rows(&self, table: Table, from: &[u8]) -> Result<Cursor<'_>>;
}

impl Look for ReadTxn<'_> {
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(table, key)
    }

    fn rows(&self, table: Table, from: &[u8]) -> Result<Cursor<'_>> {
        self.seek(table, from)
    }
}

impl Look for WriteTxn<'_> {
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(table, key)
    }

    fn rows(&self, table: Table, from: &[u8]) -> Result<Cursor<'_>> {
        self.seek(table, from)
    }
}
