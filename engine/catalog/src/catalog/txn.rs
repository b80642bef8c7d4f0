//! Transactions on the catalog.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use super::bound::{Overflow, PageBound, Passed};
use super::empty::EmptyTables;
use super::group_changes::GroupNotes;
use super::lmdb::{self, Txn, check_key, check_value};
use super::news::Changed;
use super::{Catalog, Table};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;

/// What a write transaction may use of the blocks that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headroom {
    /// All but the reserve.
    Normal,
    /// The reserve too: for deletions and take-backs, so that a full pool can be emptied.
    Relief,
}

/// A snapshot of the catalog. It waits for no writer, and no writer waits for it.
///
/// One thread uses it at a time:
///
/// ```compile_fail,E0277
/// fn share<T: Sync>() {}
/// share::<engram_catalog::ReadTxn<'static>>();
/// ```
///
/// ```
/// fn named<T>() {}
/// named::<engram_catalog::ReadTxn<'static>>();
/// ```
pub struct ReadTxn<'c> {
    raw: lmdb::Read<'c>,
}

impl<'c> ReadTxn<'c> {
    pub(super) fn new(raw: lmdb::Read<'c>) -> Self {
        ReadTxn { raw }
    }

    pub(super) fn into_raw(self) -> lmdb::Read<'c> {
        self.raw
    }
}

impl<'c> Deref for ReadTxn<'c> {
    type Target = Txn<'c>;

    fn deref(&self) -> &Txn<'c> {
        &self.raw
    }
}

/// The one write transaction at a time. Dropping it undoes it.
///
/// It stays on its thread, which the writer lock knows:
///
/// ```compile_fail,E0277
/// fn send<T: Send>() {}
/// send::<engram_catalog::WriteTxn<'static>>();
/// ```
///
/// ```
/// fn named<T>() {}
/// named::<engram_catalog::WriteTxn<'static>>();
/// ```
pub struct WriteTxn<'c> {
    // Dropped in this order: the thread lock is given up last.
    raw: lmdb::Write<'c>,
    bound: PageBound,
    short: Option<u64>,
    /// The tables that were changed, a bit each.
    changed: u32,
    empty: Cell<EmptyTables>,
    news: Changed,
    pub(super) groups: GroupNotes,
    catalog: &'c Catalog,
    _thread_lock: Option<MutexGuard<'c, ()>>,
}

impl<'c> Deref for WriteTxn<'c> {
    type Target = Txn<'c>;

    fn deref(&self) -> &Txn<'c> {
        &self.raw
    }
}

impl<'c> WriteTxn<'c> {
    pub(super) fn new(
        catalog: &'c Catalog,
        raw: lmdb::Write<'c>,
        bound: PageBound,
        thread_lock: Option<MutexGuard<'c, ()>>,
    ) -> Self {
        let id = raw.id();
        // Of an id without a predecessor nothing is known.
        let empty = catalog.growth.empty().after(id.wrapping_sub(1)).as_of(id);
        WriteTxn {
            raw,
            bound,
            short: None,
            changed: 0,
            empty: Cell::new(empty),
            news: Changed::default(),
            groups: GroupNotes::default(),
            catalog,
            _thread_lock: thread_lock,
        }
    }

    /// Whether a table has no rows: of the tables that most realms never use, without a look.
    pub fn is_empty(&self, table: Table) -> Result<bool> {
        let mut empty = self.empty.get();
        debug_assert!(!empty.has(table) || self.raw.entries(table) == Ok(0), "{table:?} has rows");
        if empty.has(table) {
            return Ok(true);
        }
        if self.raw.entries(table)? > 0 {
            return Ok(false);
        }
        empty.add(table);
        self.empty.set(empty);
        Ok(true)
    }

    /// Whether a table is known to have no rows, without a look.
    pub fn knows_empty(&self, table: Table) -> bool {
        self.empty.get().has(table)
    }

    /// Whether any row was changed; if not, committing uses up no id.
    pub fn is_changed(&self) -> bool {
        self.changed != 0
    }

    /// Whether any row of a table was put or deleted.
    pub fn has_changed(&self, table: Table) -> bool {
        self.changed & 1 << table as u32 != 0
    }

    /// Puts a row, replacing the one with its key. On error the transaction can only be dropped.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        let overflow = self.admit_put(table, key, value)?;
        if table == Table::Groups && self.raw.get(table, key)?.is_some() {
            self.news.note_whole();
        }
        let appended = self.raw.put(table, key, value)?;
        self.news.note(table, key);
        let passed = if appended { Passed::Last } else { Passed::Any };
        self.did_put(table, overflow, passed)?;
        if table == Table::Groups { self.note_group(key) } else { Ok(()) }
    }

    /// Puts a row, unless there is one with its key: that stays, and is returned. On error the
    /// transaction can only be dropped.
    pub fn put_new(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        let overflow = match self.admit_put(table, key, value) {
            Ok(overflow) => overflow,
            // What is there needs no room.
            Err(error) => {
                let Some(there) = self.raw.get(table, key)?.map(<[u8]>::to_vec) else {
                    return Err(error);
                };
                self.short = None;
                return Ok(Some(there));
            }
        };
        let there = self.raw.put_new(table, key, value)?;
        if there.is_none() {
            self.news.note(table, key);
            self.did_put(table, overflow, Passed::Any)?;
            if table == Table::Groups {
                self.note_group(key)?;
            }
        }
        Ok(there)
    }

    /// Sees that a row can be put, and what it takes outside its leaf.
    fn admit_put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<Overflow> {
        check_key(key)?;
        check_value(value)?;
        self.meet(table)?;
        let overflow = self.bound.overflow(key.len(), value.len());
        self.admit(self.bound.refuses_put(table, overflow))?;
        Ok(overflow)
    }

    fn did_put(&mut self, table: Table, overflow: Overflow, passed: Passed) -> Result<()> {
        self.changed |= 1 << table as u32;
        self.empty.get_mut().remove(table);
        self.bound.did_put(table, overflow, passed, self.raw.tree(table)?);
        Ok(())
    }

    /// Deletes the row with this key; whether there was one. On error the transaction can only
    /// be dropped.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.meet(table)?;
        self.admit(self.bound.refuses_delete(table))?;
        let found = self.raw.delete(table, key)?;
        if found {
            self.changed |= 1 << table as u32;
            self.news.note(table, key);
            let now = self.raw.tree(table)?;
            self.bound.did_delete(table, now);
            // How many overflow pages the row had is known only now.
            self.admit(self.bound.refuses())?;
            if table == Table::Groups {
                self.note_group(key)?;
            }
        }
        Ok(found)
    }

    fn meet(&mut self, table: Table) -> Result<()> {
        if !self.bound.knows(table) {
            let tree = self.raw.tree(table)?;
            self.bound.meet(table, tree);
        }
        Ok(())
    }

    fn admit(&mut self, short: Option<u64>) -> Result<()> {
        let Some(pages) = short else { return Ok(()) };
        self.short = Some(pages);
        fail!(PoolFull, "the catalog has no blocks for {pages} pages more; delete objects");
    }

    /// After a refusal for want of blocks: the pages to ask [`Catalog::extend`] for, once the
    /// transaction is dropped; then begin it again.
    pub fn short_of(&self) -> Option<u64> {
        self.short
    }

    /// Commits, and returns the transaction's id. If nothing was changed, nothing is committed,
    /// and the next transaction gets the same id.
    ///
    /// On error nothing is committed, but for [`Kind::CommitUncertain`]: LMDB writes the new id
    /// into its map before its last sync, and leaves it there when that fails. The commit page may
    /// get to the medium all the same, and a process that is the first to open the catalog takes it
    /// for committed. In a durable catalog the realm is poisoned after either, since the kernel may
    /// have given up pages that it could not write.
    pub fn commit(self) -> Result<u64> {
        if self.short.is_some() {
            fail!(PoolFull, "a row of the transaction found no room; extend and begin it again");
        }
        self.catalog.env.check_process()?;
        let WriteTxn { raw, catalog, _thread_lock, changed, empty, news, .. } = self;
        let id = raw.id();
        if !catalog.durable && catalog.growth.clean() {
            catalog.growth.set_clean(false);
            catalog.growth.sync()?;
        }
        if changed != 0 {
            catalog.growth.set_empty(empty.into_inner());
            catalog.growth.tell(id, &news);
        }
        if let Err(error) = raw.commit() {
            // What may be there all the same may be seen.
            catalog.growth.bell().ring();
            catalog.spent.store(true, Ordering::Release);
            if catalog.durable {
                catalog.poison();
            }
            // LMDB has given up the writer lock, so the id may be that of another process's commit.
            // Then ours is not there, and saying less than one knows does no harm.
            return Err(match catalog.env.last_id() {
                Ok(last) if last < id => error,
                _ => uncertain(id, &error),
            });
        }
        if changed != 0 && catalog.growth.is_persistent() {
            catalog.growth.seal(id);
        }
        if news.is_any() {
            step!("commit.made");
            catalog.growth.bell().ring();
        }
        Ok(id)
    }

    /// The bound on the fresh pages that committing now would have taken.
    #[cfg(test)]
    pub(super) fn bound_pages(&self) -> u64 {
        self.bound.fresh_pages(0, 0)
    }
}

/// The error of a commit that may be durable.
fn uncertain(id: u64, error: &Error) -> Error {
    Error::new(Kind::CommitUncertain, format!("the last sync of commit {id} failed: {error}"))
}
