//! The compaction lock: nobody opens a realm while a process compacts it.
//!
//! It is a file, `compacting`, under a lock that the kernel drops with the process. The process
//! that compacts makes the file first and looks for leases then; a process that opens the realm
//! makes its lease first and looks for the file then. So one of the two sees the other: the first
//! gives up, or the second waits until the lock is free. A file without a lock was left by a
//! process that died: the next process to open the realm clears away what that one left.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::realm::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::pool_lock::wait_for;
use engram_files::folder;

const LOCK_FILE: &str = "compacting";
/// What a catalog is called before it takes the old one's place, and the old one after that.
const NEW_CATALOG: &str = "catalog.new";

/// The compaction lock, given up when dropped.
pub struct CompactionLock {
    file: File,
    /// `None`: what is there now is another's.
    path: Option<PathBuf>,
}

/// Where the new catalog is made.
pub fn new_catalog(realm: &Path) -> PathBuf {
    realm.join(NEW_CATALOG)
}

fn open_file(path: &Path) -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => Error::new(
                Kind::Corrupt,
                format!("{} is no plain file, and not ours: take it away", path.display()),
            ),
            _ => Error::os(format!("opening {}", path.display()), &e),
        })
}

fn is_at(file: &File, path: &Path) -> bool {
    let place = |meta: fs::Metadata| (meta.dev(), meta.ino());
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => place(ours) == place(there),
        _ => false,
    }
}

impl CompactionLock {
    /// Takes the compaction lock of a realm that this process does not have open.
    pub fn take(setup: &Setup) -> Result<CompactionLock> {
        let path = setup.dir.join(LOCK_FILE);
        let refused = |e| Error::os(format!("making {}", path.display()), &e);
        let file = File::create_new(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::AlreadyExists => Error::new(
                Kind::Busy,
                format!("{} is being compacted already: try again later", setup.dir.display()),
            ),
            _ => refused(e),
        })?;
        let lock = CompactionLock { file, path: Some(path.clone()) };
        lock.file.set_permissions(Permissions::from_mode(setup.file_mode)).map_err(refused)?;
        folder::hand_over(&lock.file, &path)?;
        // A process that found the file before this may hold the lock, and take the file away.
        if lock.file.try_lock().is_err() || !is_at(&lock.file, &path) {
            std::mem::forget(lock);
            fail!(Busy, "{} is being opened: try again later", setup.dir.display());
        }
        Ok(lock)
    }

    /// Gives it up when its realm has another path by now: there it goes with the realm.
    pub fn leave(mut self) {
        self.path = None;
    }
}

impl Drop for CompactionLock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
        let _ = self.file.unlock();
    }
}

/// Waits for a realm's compaction lock to be free, in a process that has made its lease there, or
/// has the pool lock; whether its holder has died, and may have left spans that no row knows.
pub fn wait_for_it(realm: &Path) -> Result<bool> {
    let path = realm.join(LOCK_FILE);
    let mut died = false;
    // A link to nothing is there, too.
    while fs::symlink_metadata(&path).is_ok() {
        let file = match open_file(&path) {
            Err(error) if error.kind() == Kind::NotFound => continue,
            opened => opened?,
        };
        wait_for(&file, &path, Duration::MAX)?;
        if is_at(&file, &path) {
            let left = new_catalog(realm);
            match fs::remove_dir_all(&left) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::os(format!("removing {}", left.display()), &e));
                }
                _ => {}
            }
            died = true;
            let _ = fs::remove_file(&path);
        }
        let _ = file.unlock();
    }
    Ok(died)
}
