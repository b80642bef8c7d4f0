//! A pool's turn: who makes or removes parts of a pool does so alone.
//!
//! Making and destroying a pool, making and removing namespaces, and adding devices take several
//! steps on files each. They hold the turn: a lock on the pool's folder (`flock`: it belongs to the
//! open file, so the kernel drops it with its process). So of two that make the same thing one
//! finds it made; nobody removes spans that have an owner again; and what is found half made or
//! half removed under the turn is a dead process's, and is cleared away. Using a pool takes no
//! turn: who opens it while it is taken away is told by the order of renaming and leases.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::error::{Error, Result};
use crate::fail;

/// The turn, given up when dropped.
pub(crate) struct Turn {
    folder: File,
}

impl Turn {
    /// Waits for the turn of the pool in this folder. `NotFound`: the folder went meanwhile.
    pub(crate) fn take(pool: &Path) -> Result<Self> {
        let refused = |e| Error::os(format!("opening {}", pool.display()), &e);
        let folder = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(pool)
            .map_err(refused)?;
        wait_for(&folder).map_err(|e| Error::os(format!("locking {}", pool.display()), &e))?;
        let turn = Turn { folder };
        let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
        let held = turn.folder.metadata().map(place).map_err(refused)?;
        if std::fs::metadata(pool).map(place).map_err(refused)? != held {
            fail!(NotFound, "{} was removed meanwhile", pool.display());
        }
        Ok(turn)
    }
}

/// Waits for the lock of a file or folder, whatever signals come.
pub(crate) fn wait_for(file: &File) -> std::io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // By name, not by closing: a child forked meanwhile has the same open file.
        let _ = self.folder.unlock();
    }
}
