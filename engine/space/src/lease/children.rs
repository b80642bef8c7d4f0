//! The leases that forks of this process have handed to children.
//!
//! A child that dies without closing the pool, as those of `multiprocessing` do, leaves its lease
//! behind. A process that only reads sweeps up after nobody; so each fork looks at a few of the
//! children before it, and the lease of one that is dead becomes the spare for the next. However
//! often a process forks, there are about as many leases as children that live.

use std::collections::VecDeque;
use std::path::Path;

use super::{LeaseFile, Spare, give_up};
use engram_base::random;

/// How many children are looked at in one fork: more than one, so that those that are dead become
/// fewer although each fork adds a child.
const LOOKS: usize = 4;

/// The children of this process that got a lease, as far as they are not known to be dead; the one
/// that was looked at longest ago first.
#[derive(Default)]
pub struct Children(VecDeque<u64>);

impl Children {
    /// A fork has given a child the lease of this id.
    pub fn add(&mut self, id: u64) {
        self.0.push_back(id);
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A spare that is the lease of a dead child, if one of the next few is dead. The leases of the
    /// other dead ones among them are given up.
    ///
    /// What a dead one had reserved carries the id of a lease that is gone, as after a loss of
    /// power: it is anybody's to take back.
    pub fn spare(&mut self, dir: &Path) -> Option<Spare> {
        let mut spare = None;
        for _ in 0..LOOKS.min(self.0.len()) {
            let Some(id) = self.0.pop_front() else { break };
            let path = dir.join(format!("{id:016x}"));
            // One that cannot be opened was swept up; what is damaged there is for others.
            let Ok(file) = LeaseFile::open(&path) else { continue };
            match file.try_lock() {
                Ok(true) if !file.is_at(&path) => {}
                Ok(true) if spare.is_none() => spare = Spare::of_child(dir, file, &path),
                Ok(true) => give_up(&path),
                _ => self.0.push_back(id),
            }
        }
        spare
    }
}

impl Spare {
    /// The lease of a dead child, locked by the caller, under a spare's name.
    fn of_child(dir: &Path, file: LeaseFile, path: &Path) -> Option<Self> {
        let spare = dir.join(format!("spare-{:016x}", random::id().ok()?));
        file.words().clear();
        std::fs::rename(path, &spare).ok()?;
        Some(Spare { file, path: spare })
    }
}
