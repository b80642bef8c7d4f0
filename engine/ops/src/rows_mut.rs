//! Changes of rows: what an operation may do, whatever it runs against.

use engram_base::error::Result;
use engram_base::id::Oid;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_records::extent::Extent;
use engram_records::index_mode::Touch;
use engram_records::object::Record;

/// What can be changed.
pub trait RowsMut: Rows {
    /// Sets a row.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()>;
    /// Sets a row, unless there is one with its key: that stays, and is returned.
    fn put_new(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        put_if_absent(self, table, key, value)
    }
    /// Sets a row to a record.
    fn put_record(&mut self, table: Table, key: &[u8], record: &Record<'_>) -> Result<()> {
        self.put(table, key, &record.encode())
    }
    /// Removes a row that is known to exist.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result<()>;
    /// Says that no row points to this extent any more. It is free once nobody can look at it.
    fn release(&mut self, extent: Extent) -> Result<()>;
    /// Says that a row points to this extent, which a reservation held until now.
    fn adopt(&mut self, reserved: Reserved) -> Result<()>;
    /// Notes for the index that this object is new, has changed, or is gone.
    fn index(&mut self, oid: Oid, touch: Touch) -> Result<()>;
}

/// Looks for a row, and puts it where there is none.
pub(crate) fn put_if_absent<R: RowsMut + ?Sized>(
    rows: &mut R,
    table: Table,
    key: &[u8],
    value: &[u8],
) -> Result<Option<Vec<u8>>> {
    if let Some(there) = rows.get(table, key)? {
        return Ok(Some(there.into_owned()));
    }
    rows.put(table, key, value).map(|()| None)
}

/// A reservation, as rows know it: the extent, and the lease that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The space.
    pub extent: Extent,
    /// The lease whose row in `extents_pending` keeps it.
    pub lease: u64,
}
