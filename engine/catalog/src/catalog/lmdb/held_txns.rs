//! Read transactions that outlive the operation that began them: what a snapshot is made of.
//!
//! A held transaction stays live in its reader slot. LMDB lets one thread at a time use it, so a
//! thread that looks through it takes it out of the table here and puts it back; others wait for
//! that. The thread that has it may take it again: one thread with two cursors is no news to LMDB.
//! It ends when it is let go of while nobody has it, and with the environment.
//!
//! Its number is never given out again in this process or in its children, so an environment that
//! was opened anew, or by a child for itself, knows that it does not have it.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use lmdb_master_sys as ffi;

use super::{Env, FREE_TABLE, Read, ReaderSlot, this_thread, word};
use engram_base::error::Result;
use engram_base::fail;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A held transaction, and the thread that looks through it now.
struct HeldTxn {
    slot: ReaderSlot,
    thread: usize,
    depth: u32,
}

/// The held transactions of an environment.
#[derive(Default)]
pub(super) struct HeldTxns {
    held: Mutex<HashMap<u64, HeldTxn>>,
    returned: Condvar,
}

impl HeldTxns {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, HeldTxn>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all out: for the closing of the environment.
    pub(super) fn take(&mut self) -> Vec<ReaderSlot> {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(held).into_values().map(|held| held.slot).collect()
    }

    /// Forgets all of them, as they are: in a child they are the parent's.
    pub(super) fn forget(&mut self) {
        let held = self.held.get_mut().unwrap_or_else(PoisonError::into_inner);
        std::mem::forget(std::mem::take(held));
    }

    /// Puts back what [`Env::held`] gave.
    pub(super) fn give_back(&self, number: u64) {
        let mut table = self.lock();
        let Some(held) = table.get_mut(&number) else { return };
        held.depth -= 1;
        if held.depth == 0 {
            held.thread = 0;
            self.returned.notify_all();
        }
    }
}

impl Env {
    /// Keeps a read transaction live beyond its borrow. Returns the number by which to ask for it.
    pub(in crate::catalog) fn hold(&self, read: Read<'_>) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let read = ManuallyDrop::new(read);
        let held = HeldTxn { slot: ReaderSlot(read.raw()), thread: 0, depth: 0 };
        self.held_table().lock().insert(number, held);
        number
    }

    /// A held transaction, to look through; waits while another thread does. `None` if there is
    /// none of this number.
    pub(in crate::catalog) fn held(&self, number: u64) -> Result<Option<Read<'_>>> {
        self.check_process()?;
        let table = self.held_table();
        let mut held = table.lock();
        loop {
            let Some(found) = held.get_mut(&number) else { return Ok(None) };
            if found.depth == 0 || found.thread == this_thread() {
                found.thread = this_thread();
                found.depth += 1;
                let raw: NonNull<ffi::MDB_txn> = found.slot.0;
                return Ok(Some(Read::of_held(self, raw, number)));
            }
            held = table.returned.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends a held transaction, unless somebody looks through it now. Whether it is gone.
    pub(in crate::catalog) fn let_go(&self, number: u64) -> Result<bool> {
        self.check_process()?;
        let mut table = self.held_table().lock();
        if table.get(&number).is_some_and(|held| held.depth > 0) {
            return Ok(false);
        }
        if let Some(held) = table.remove(&number) {
            self.retire(held.slot);
        }
        Ok(true)
    }

    /// How many pages were freed by the transaction `since` or a later one, which no writer may
    /// take as long as a reader looks at the snapshot of that number; counting stops at `enough`.
    pub(in crate::catalog) fn pages_freed_since(&self, since: u64, enough: u64) -> Result<u64> {
        let read = self.read()?;
        let mut cursor = read.cursor(FREE_TABLE, &since.to_ne_bytes())?;
        let mut pages = 0;
        while pages < enough {
            let Some((_, value)) = cursor.next()? else { break };
            let Some(count) = word(value) else {
                fail!(Corrupt, "the catalog's list of free pages is damaged; run verify");
            };
            pages += count;
        }
        Ok(pages)
    }
}
