//! Changes of rows: what an operation may do, whatever it runs against.

use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::{Gid, Oid};
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
    /// Says that no row points to this extent any more, which was of this object. It is free once
    /// nobody can look at it, nor has the object open.
    fn release(&mut self, extent: Extent, of: Oid) -> Result<()>;
    /// The same of what is cut from a file that stays. It is free once nobody can look at it by
    /// what was known of the file before, nor views the file.
    fn cut(&mut self, extent: Extent, of: Oid) -> Result<()> {
        self.release(extent, of)
    }
    /// Says that a row points to this extent, which a reservation held until now.
    fn adopt(&mut self, reserved: Reserved) -> Result<()>;
    /// Says that names in a group have changed, and by how many there are more groups in it.
    fn names_changed(&mut self, gid: Gid, groups: i32) -> Result<()>;
    /// Whether a process may have an object open whose record goes, under the writer lock. A list,
    /// which is applied later, says so of what cannot be told apart then, and notes the others.
    fn is_open(&mut self, _: Oid, _: &Record<'_>) -> Result<bool> {
        Ok(false)
    }
    /// Keeps the record of a file that is open and has no name any more.
    fn orphan(&mut self, _: Oid, record: &Record<'_>) -> Result<()> {
        fail!(Corrupt, "{record:?} cannot be an orphan of a list")
    }
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
