//! What a process holds of a realm, beside memory: it ends with the process, or with what took it.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::realm::locks::Locks;
use crate::realm::notices::Notices;
use crate::realm::snapshot::Snapshots;
use engram_base::id::Oid;

/// Snapshots, locks, notices, and what this process owes to others.
#[derive(Default)]
pub(crate) struct Holdings {
    /// The snapshots that it holds.
    pub(crate) snapshots: Snapshots,
    /// What it has locked.
    pub(crate) locks: Locks,
    /// What the program should be told.
    pub(crate) notices: Notices,
    /// Checksums that are owed: what was flushed while writable views were about, by the offset of
    /// its extent.
    pub(crate) owed: Mutex<HashMap<u64, Oid>>,
}

impl Holdings {
    /// What a forked child begins with: the snapshots and locks are its parent's.
    pub(crate) fn forget(&self) {
        self.snapshots.forget();
        self.locks.forget();
    }
}
