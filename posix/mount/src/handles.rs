//! Open files and folders, by the numbers that the kernel has for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fuser::FileHandle;

/// Threads rarely meet in one of so many.
const SHARDS: usize = 16;

/// What is open.
pub struct Handles<T> {
    next: AtomicU64,
    shards: [RwLock<HashMap<u64, Arc<T>>>; SHARDS],
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        let shards = std::array::from_fn(|_| RwLock::default());
        Handles { next: AtomicU64::new(1), shards }
    }
}

impl<T> Handles<T> {
    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<T>>> {
        &self.shards[number as usize % SHARDS]
    }

    /// Gives something a number.
    pub fn add(&self, open: T) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut shard = self.shard(number).write().unwrap_or_else(PoisonError::into_inner);
        shard.insert(number, Arc::new(open));
        FileHandle(number)
    }

    /// What has a number.
    pub fn get(&self, number: FileHandle) -> Option<Arc<T>> {
        let shard = self.shard(number.0).read().unwrap_or_else(PoisonError::into_inner);
        shard.get(&number.0).cloned()
    }

    /// Closes what has a number.
    pub fn remove(&self, number: FileHandle) -> Option<Arc<T>> {
        self.shard(number.0).write().unwrap_or_else(PoisonError::into_inner).remove(&number.0)
    }
}
