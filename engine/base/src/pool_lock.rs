//! The pool lock: a process that makes or removes parts of a pool does so alone.
//!
//! Making and destroying a pool, making and removing namespaces, and adding devices take several
//! steps on files each. They hold the pool lock, which lies on the pool's folder (`flock`: it
//! belongs to the open file, so the kernel drops it with its process). So of two that make the same
//! thing one finds it made; nobody removes spans that have an owner again; and a part found half
//! made or half removed under the pool lock is a dead process's, and is cleared away. Using a pool
//! does not take it: a process that opens a pool while it is taken away is told by the order of
//! renaming and leases.
//!
//! A process waits for the pool lock as long as `pool_lock/watch.rs` says, and is then told who has
//! it.

mod wait;
mod watch;

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

pub use self::wait::wait_for;
pub use self::watch::{LockHolder, Watch};
use crate::error::{Error, Result};
use crate::fail;

/// Every user who may list a pool's folder can lock it, and need not be trusted: this is the most
/// that anybody is kept waiting by that.
const FOLDER_MOST: Duration = Duration::from_secs(60);

/// The pool lock, given up when dropped.
pub struct PoolLock {
    folder: File,
}

impl PoolLock {
    /// Waits for the lock of the pool in this folder. `NotFound`: the folder went meanwhile;
    /// `Busy`: somebody has it and does not give it up.
    pub fn take(pool: &Path) -> Result<Self> {
        let refused = |e| Error::os(format!("opening {}", pool.display()), &e);
        let folder = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(pool)
            .map_err(refused)?;
        wait_for(&folder, pool, FOLDER_MOST)?;
        let lock = PoolLock { folder };
        let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let held = lock.folder.metadata().map(place).map_err(refused)?;
        if std::fs::metadata(pool).map(place).map_err(refused)? != held {
            fail!(NotFound, "{} was removed meanwhile", pool.display());
        }
        Ok(lock)
    }
}

impl Drop for PoolLock {
    fn drop(&mut self) {
        // By name, not by closing: a child forked meanwhile has the same open file.
        let _ = self.folder.unlock();
    }
}
