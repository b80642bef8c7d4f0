//! Rows: the one door through which operations read and change the catalog.
//!
//! An operation (put, move, delete, annotate …) is written once, against these two traits. Run
//! against a write transaction it changes the catalog at once; run against a batch's overlay it
//! changes a list, which one transaction applies later. Either way the operation can run again:
//! it keeps no state outside the rows.

use std::borrow::Cow;

use crate::catalog::{ReadTxn, Table};
use crate::error::Result;
use crate::extent::Extent;
use crate::id::Oid;
use crate::index::Touch;
use crate::object::Record;

/// A key and its value, copied out.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// What can be read.
pub(crate) trait Rows {
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

/// What can be changed.
pub(crate) trait RowsMut: Rows {
    /// Sets a row.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets a row to a record.
    fn put_record(&mut self, table: Table, key: &[u8], record: &Record<'_>) -> Result<()> {
        self.put(table, key, &record.encode())
    }
    /// Removes a row that is known to exist.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// No row points to this extent any more: it is free once nobody can look at it.
    fn release(&mut self, extent: Extent) -> Result<()>;
    /// A row points to this extent, which a reservation held until now.
    fn adopt(&mut self, reserved: Reserved) -> Result<()>;
    /// What the index holds of this object is there anew, other, or gone.
    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()>;
}

/// A reservation, as rows know it: the extent, and the lease that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// The space.
    pub extent: Extent,
    /// The lease whose row in `extents_pending` keeps it.
    pub lease: u64,
}

/// A snapshot's rows.
pub(crate) struct Snapshot<'a, 'env>(pub &'a ReadTxn<'env>);

impl Rows for Snapshot<'_, '_> {
    fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        Ok(self.0.get(table, key)?.map(Cow::Borrowed))
    }

    fn has(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        Ok(self.0.get(table, key)?.is_some())
    }

    fn first_from(&mut self, table: Table, from: &[u8]) -> Result<Option<Row>> {
        let mut cursor = self.0.seek(table, from)?;
        Ok(cursor.next()?.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
    fn has_index_settings(&mut self) -> Result<bool> {
        Ok(self.0.entries(Table::IndexSettings)? > 0)
    }

    fn has_read_only(&mut self) -> Result<bool> {
        Ok(self.0.entries(Table::ReadOnly)? > 0)
    }
}
