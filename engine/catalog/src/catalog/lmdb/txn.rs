//! LMDB's transactions and cursors, with lifetimes. `lmdb.rs` says what LMDB asks for.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use lmdb_master_sys as ffi;

use super::{Env, FREE_TABLE, MAX_KEY_BYTES, ReaderSlot, check, error};
use crate::catalog::Table;
use engram_base::error::Result;
use engram_base::fail;

/// A key and its value.
pub type RowRef<'t> = (&'t [u8], &'t [u8]);

/// The keys before and after a gap.
pub type Neighbours<'t> = (Option<&'t [u8]>, Option<&'t [u8]>);

/// How large a table's tree is: levels, and pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::catalog) struct TreeSize {
    pub(in crate::catalog) depth: u32,
    pub(in crate::catalog) branch: u32,
    pub(in crate::catalog) leaf: u32,
    pub(in crate::catalog) overflow: u32,
}

impl TreeSize {
    /// A place for LMDB to write to.
    pub(super) const fn none() -> ffi::MDB_stat {
        ffi::MDB_stat {
            ms_psize: 0,
            ms_depth: 0,
            ms_branch_pages: 0,
            ms_leaf_pages: 0,
            ms_overflow_pages: 0,
            ms_entries: 0,
        }
    }
}

/// What a snapshot and a write transaction have in common: reading.
pub struct Txn<'e> {
    raw: NonNull<ffi::MDB_txn>,
    env: &'e Env,
}

impl<'e> Txn<'e> {
    /// The rows, for an operation that is written once for whatever it runs against.
    pub fn rows(&self) -> &Txn<'e> {
        self
    }
}

impl Txn<'_> {
    /// The id of the last transaction that the snapshot shows; of a write transaction, the id
    /// that it will have when it is committed.
    pub fn id(&self) -> u64 {
        // SAFETY: the transaction is live as long as `self`.
        unsafe { ffi::mdb_txn_id(self.raw.as_ptr()) as u64 }
    }

    /// The value at `key`.
    pub fn get(&self, table: Table, key: &[u8]) -> Result<Option<&[u8]>> {
        self.env.check_process()?;
        check_key(key)?;
        let mut key = value_of(key);
        let mut value = value_of(&[]);
        // SAFETY: the transaction is live, the table's handle open, `key` valid during the call;
        // LMDB does not write to it.
        let rc = unsafe {
            let table = self.env.tables[table as usize];
            ffi::mdb_get(self.raw.as_ptr(), table, &raw mut key, &raw mut value)
        };
        match rc {
            // SAFETY: LMDB's bytes stay valid while `self` is borrowed.
            0 => Ok(Some(unsafe { bytes_of(value) })),
            ffi::MDB_NOTFOUND => Ok(None),
            rc => Err(error("reading a row", rc)),
        }
    }

    /// The rows of `table` from the first whose key is at least `from`, in ascending order.
    pub fn seek(&self, table: Table, from: &[u8]) -> Result<Cursor<'_>> {
        self.cursor(self.env.tables[table as usize], from)
    }

    pub(super) fn cursor(&self, table: ffi::MDB_dbi, from: &[u8]) -> Result<Cursor<'_>> {
        let mut cursor = self.open_cursor(table)?;
        let op = if from.is_empty() { ffi::MDB_FIRST } else { ffi::MDB_SET_RANGE };
        if !from.is_empty() {
            check_key(from)?;
        }
        cursor.found = cursor.step(from, op)?;
        cursor.at_end = cursor.found.is_none();
        Ok(cursor)
    }

    /// The row with the greatest key.
    pub fn last(&self, table: Table) -> Result<Option<RowRef<'_>>> {
        self.open_cursor(self.env.tables[table as usize])?.step(&[], ffi::MDB_LAST)
    }

    /// The row with the greatest key below `key`.
    pub fn before(&self, table: Table, key: &[u8]) -> Result<Option<RowRef<'_>>> {
        check_key(key)?;
        let mut cursor = self.open_cursor(self.env.tables[table as usize])?;
        match cursor.step(key, ffi::MDB_SET_RANGE)? {
            Some(_) => cursor.step(&[], ffi::MDB_PREV),
            None => cursor.step(&[], ffi::MDB_LAST),
        }
    }

    /// The keys on both sides of an absent `key`: every other key between them is absent too.
    /// `None` where the table ends.
    pub fn around(&self, table: Table, key: &[u8]) -> Result<Neighbours<'_>> {
        check_key(key)?;
        let mut cursor = self.open_cursor(self.env.tables[table as usize])?;
        let after = cursor.step(key, ffi::MDB_SET_RANGE)?;
        let to = if after.is_some() { ffi::MDB_PREV } else { ffi::MDB_LAST };
        let before = cursor.step(&[], to)?;
        Ok((before.map(|(key, _)| key), after.map(|(key, _)| key)))
    }

    fn open_cursor(&self, table: ffi::MDB_dbi) -> Result<Cursor<'_>> {
        self.env.check_process()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the transaction is live, the table's handle open, `raw` a valid place.
        check("opening a cursor", unsafe {
            ffi::mdb_cursor_open(self.raw.as_ptr(), table, &raw mut raw)
        })?;
        let Some(raw) = NonNull::new(raw) else {
            fail!(Os, "LMDB opened no cursor");
        };
        Ok(Cursor { raw, found: None, at_end: true, txn: PhantomData })
    }

    /// How large `table` is in this transaction.
    pub(in crate::catalog) fn tree(&self, table: Table) -> Result<TreeSize> {
        self.stat(self.env.tables[table as usize]).map(|(tree, _)| tree)
    }

    /// How many rows `table` has in this transaction.
    pub fn entries(&self, table: Table) -> Result<u64> {
        self.stat(self.env.tables[table as usize]).map(|(_, entries)| entries)
    }

    /// How large LMDB's own table of free pages is.
    pub(in crate::catalog) fn free_tree(&self) -> Result<TreeSize> {
        self.stat(FREE_TABLE).map(|(tree, _)| tree)
    }

    fn stat(&self, table: ffi::MDB_dbi) -> Result<(TreeSize, u64)> {
        let mut stat = TreeSize::none();
        // SAFETY: the transaction is live, the table's handle open, `stat` a valid place.
        let rc = unsafe { ffi::mdb_stat(self.raw.as_ptr(), table, &raw mut stat) };
        check("asking for a table's size", rc)?;
        let tree = TreeSize {
            depth: stat.ms_depth,
            branch: stat.ms_branch_pages as u32,
            leaf: stat.ms_leaf_pages as u32,
            overflow: stat.ms_overflow_pages as u32,
        };
        Ok((tree, stat.ms_entries as u64))
    }
}

/// A read transaction: a snapshot. Dropping it keeps its reader slot for the next; dropping a held
/// one puts it back.
pub(in crate::catalog) struct Read<'e> {
    txn: Txn<'e>,
    held: Option<u64>,
}

impl<'e> Read<'e> {
    pub(super) fn new(env: &'e Env, raw: NonNull<ffi::MDB_txn>) -> Read<'e> {
        Read { txn: Txn { raw, env }, held: None }
    }

    /// One that the environment's table holds under this number.
    pub(super) fn of_held(env: &'e Env, raw: NonNull<ffi::MDB_txn>, number: u64) -> Read<'e> {
        Read { txn: Txn { raw, env }, held: Some(number) }
    }

    /// LMDB's own.
    pub(super) fn raw(&self) -> NonNull<ffi::MDB_txn> {
        self.txn.raw
    }
}

impl<'e> Deref for Read<'e> {
    type Target = Txn<'e>;

    fn deref(&self) -> &Txn<'e> {
        &self.txn
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        if self.env.is_inherited() {
            return;
        }
        match self.held {
            Some(number) => self.env.held_table().give_back(number),
            None => self.env.retire(ReaderSlot(self.raw)),
        }
    }
}

/// The write transaction: there is one at a time, over all processes. Dropping it undoes it.
pub(in crate::catalog) struct Write<'e>(Txn<'e>);

impl<'e> Write<'e> {
    pub(super) fn new(env: &'e Env, raw: NonNull<ffi::MDB_txn>) -> Write<'e> {
        Write(Txn { raw, env })
    }

    /// Puts a row, replacing the one with its key; whether it was appended as the last.
    pub(in crate::catalog) fn put(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        self.env.check_process()?;
        let (mut key, mut value) = (value_of(key), value_of(value));
        // SAFETY: the transaction is live, the table's handle open, key and value valid during
        // the call; LMDB writes to neither without MDB_RESERVE and MDB_NOOVERWRITE.
        let rc = unsafe {
            let dbi = self.env.tables[table as usize];
            let raw = self.raw.as_ptr();
            // Appended rows fill their pages to the brim. LMDB refuses a key that is not the
            // greatest before it has changed anything.
            if table.grows_at_its_end() {
                let append = ffi::MDB_APPEND;
                match ffi::mdb_put(raw, dbi, &raw mut key, &raw mut value, append) {
                    ffi::MDB_KEYEXIST => {}
                    rc => return check("appending a row", rc).map(|()| true),
                }
            }
            ffi::mdb_put(raw, dbi, &raw mut key, &raw mut value, 0)
        };
        check("writing a row", rc).map(|()| false)
    }

    /// Puts a row, unless there is one with its key: that stays, and is returned.
    pub(in crate::catalog) fn put_new(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.env.check_process()?;
        let (mut key, mut value) = (value_of(key), value_of(value));
        // SAFETY: as in `put`; where there is a row, LMDB points `value` to it, which stays valid
        // until the transaction writes.
        unsafe {
            let dbi = self.env.tables[table as usize];
            let once = ffi::MDB_NOOVERWRITE;
            match ffi::mdb_put(self.raw.as_ptr(), dbi, &raw mut key, &raw mut value, once) {
                ffi::MDB_KEYEXIST => Ok(Some(bytes_of(value).to_vec())),
                rc => check("writing a new row", rc).map(|()| None),
            }
        }
    }

    /// Deletes the row with this key; whether there was one.
    pub(in crate::catalog) fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        self.env.check_process()?;
        let mut key = value_of(key);
        // SAFETY: the transaction is live, the table's handle open, the key valid during the
        // call; data is not looked at, as no table has duplicates.
        let rc = unsafe {
            let table = self.env.tables[table as usize];
            ffi::mdb_del(self.raw.as_ptr(), table, &raw mut key, ptr::null_mut())
        };
        match rc {
            0 => Ok(true),
            ffi::MDB_NOTFOUND => Ok(false),
            rc => Err(error("deleting a row", rc)),
        }
    }

    /// Commits. On error nothing is committed. The caller has checked the process.
    pub(in crate::catalog) fn commit(self) -> Result<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the transaction is live; `this` is not dropped, so it is ended here alone.
        let rc = unsafe { ffi::mdb_txn_commit(this.raw.as_ptr()) };
        this.unmark();
        check("committing to the catalog", rc)
    }

    /// Takes this thread's mark away; another thread may have set its own since the lock went.
    fn unmark(&self) {
        let thread = super::this_thread();
        let writer = &self.env.writer;
        let _ = writer.compare_exchange(thread, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

impl<'e> Deref for Write<'e> {
    type Target = Txn<'e>;

    fn deref(&self) -> &Txn<'e> {
        &self.0
    }
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if self.env.is_inherited() {
            return;
        }
        // SAFETY: the transaction is live and not used again.
        unsafe { ffi::mdb_txn_abort(self.raw.as_ptr()) };
        self.unmark();
    }
}

/// Rows in ascending order of their keys.
pub struct Cursor<'t> {
    raw: NonNull<ffi::MDB_cursor>,
    found: Option<RowRef<'t>>,
    at_end: bool,
    txn: PhantomData<&'t Txn<'t>>,
}

impl<'t> Cursor<'t> {
    /// The next row, or none after the last.
    // Not an iterator: a step can fail.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RowRef<'t>>> {
        if self.found.is_some() {
            return Ok(self.found.take());
        }
        if self.at_end {
            return Ok(None);
        }
        let row = self.step(&[], ffi::MDB_NEXT)?;
        self.at_end = row.is_none();
        Ok(row)
    }

    /// The value at `key`, where the cursor then is. For many keys in their order this is quicker
    /// than looking each up from the root: near ones lie in the page that the cursor is at.
    pub fn find(&mut self, key: &[u8]) -> Result<Option<&'t [u8]>> {
        check_key(key)?;
        self.found = None;
        let row = self.step(key, ffi::MDB_SET_KEY)?;
        self.at_end = row.is_none();
        Ok(row.map(|(_, value)| value))
    }

    fn step(&mut self, from: &[u8], op: ffi::MDB_cursor_op) -> Result<Option<RowRef<'t>>> {
        let (mut key, mut value) = (value_of(from), value_of(&[]));
        // SAFETY: the cursor is open, and its transaction live and unchanged while `'t` lasts.
        let rc =
            unsafe { ffi::mdb_cursor_get(self.raw.as_ptr(), &raw mut key, &raw mut value, op) };
        match rc {
            // SAFETY: LMDB's bytes stay valid while the transaction is borrowed.
            0 => Ok(Some(unsafe { (bytes_of(key), bytes_of(value)) })),
            ffi::MDB_NOTFOUND => Ok(None),
            rc => Err(error("reading rows", rc)),
        }
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: the cursor is open, and its transaction live while `'t` lasts. Closing touches
        // this process's memory alone.
        unsafe { ffi::mdb_cursor_close(self.raw.as_ptr()) };
    }
}

/// Refuses what LMDB cannot take as a key.
pub(in crate::catalog) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES {
        fail!(Argument, "a catalog key of {} bytes; keys have 1 to {MAX_KEY_BYTES}", key.len());
    }
    Ok(())
}

/// Refuses what LMDB cannot take as a value.
pub(in crate::catalog) fn check_value(value: &[u8]) -> Result<()> {
    if u32::try_from(value.len()).is_err() {
        fail!(Argument, "a catalog value of {} bytes; values have less than 4 GiB", value.len());
    }
    Ok(())
}

fn value_of(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// The bytes that LMDB returned.
///
/// # Safety
///
/// `value` comes from a call that succeeded, and `'t` lasts no longer than its transaction does
/// without writing.
unsafe fn bytes_of<'t>(value: ffi::MDB_val) -> &'t [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: LMDB returns a pointer into its map and the length there; see above for how long.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}
