//! Rows: the one door through which operations read and change the catalog.
//!
//! An operation (put, move, delete, annotate …) is written once, against these two traits. Run
//! against a write transaction it changes the catalog at once; run against a batch's overlay it
//! changes a list, which one transaction applies later. Either way the operation can run again:
//! it keeps no state outside the rows.

use std::borrow::Cow;

use crate::catalog::{Table, Txn};
use engram_base::error::Result;

/// A key and its value, copied out.
pub type Row = (Vec<u8>, Vec<u8>);

/// What is told of rows, one after the other: the key and the value. `false`: no more is needed.
pub type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool> + 'a;

/// What can be read.
pub trait Rows {
    /// The value at `key`.
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>>;
    /// The same, of a row that nothing done here relies on.
    fn glance(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        self.get(table, key)
    }
    /// Whether `key` has a row; cheaper to guard than its value.
    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool>;
    /// The first row at or after `from`.
    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>>;
    /// Calls `each` with the rows at and after `from`, in the order of their keys, until it says
    /// that it has enough.
    fn each_from(&mut self, table: Table, from: &[u8], each: &mut RowVisitor<'_>) -> Result<()> {
        let mut from = from.to_vec();
        while let Some((mut key, row)) = self.first_from(table, &from)? {
            if !each(&key, &row)? {
                break;
            }
            key.push(0);
            from = key;
        }
        Ok(())
    }
    /// Whether a table has any rows.
    fn has_rows(&mut self, table: Table) -> Result<bool> {
        Ok(self.first_from(table, &[])?.is_some())
    }
    /// Whether there are any settings of the index: most realms have none, and look no further.
    fn has_index_settings(&mut self) -> Result<bool>;
    /// Whether anything is read-only: in most realms nothing is.
    fn has_read_only(&mut self) -> Result<bool>;
    /// Whether changes go into a list for later, and what is read becomes a guard of it.
    fn is_list(&self) -> bool {
        false
    }
}

impl<R: Rows + ?Sized> Rows for &mut R {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        (**self).get(table, key)
    }

    fn glance(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        (**self).glance(table, key)
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        (**self).has(table, key)
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        (**self).first_from(table, from)
    }

    fn each_from(&mut self, table: Table, from: &[u8], each: &mut RowVisitor<'_>) -> Result<()> {
        (**self).each_from(table, from, each)
    }

    fn has_rows(&mut self, table: Table) -> Result<bool> {
        (**self).has_rows(table)
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        (**self).has_index_settings()
    }

    fn has_read_only(&mut self) -> Result<bool> {
        (**self).has_read_only()
    }

    fn is_list(&self) -> bool {
        (**self).is_list()
    }
}

/// A transaction's rows, as it sees them: a snapshot's, or as a write transaction has left them.
impl Rows for &Txn<'_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(Txn::get(self, table, key)?.map(Cow::Borrowed))
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(Txn::get(self, table, key)?.is_some())
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        let mut cursor = self.seek(table, from)?;
        Ok(cursor.next()?.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }

    fn each_from(&mut self, table: Table, from: &[u8], each: &mut RowVisitor<'_>) -> Result<()> {
        let mut cursor = self.seek(table, from)?;
        while let Some((key, row)) = cursor.next()? {
            if !each(key, row)? {
                break;
            }
        }
        Ok(())
    }

    fn has_index_settings(&mut self) -> Result<bool> {
        Ok(self.entries(Table::IndexSettings)? > 0)
    }

    fn has_read_only(&mut self) -> Result<bool> {
        Ok(self.entries(Table::ReadOnly)? > 0)
    }
}
