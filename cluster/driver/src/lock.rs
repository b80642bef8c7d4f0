//! The lock of a node pool: of a host's processes, the one that has it serves.
//!
//! *Which lock*. The lock is to go with its process, and with nothing else. A record lock of
//! `fcntl` goes as soon as its process closes *any* descriptor of the file: whoever copies the
//! pool's folder within the process would end it, and nobody would know. A lock of the open file
//! (`flock`'s, or an OFD lock) does not; but a child that was forked has the same open file, and
//! would keep the lock for as long as it lives. Descriptors close where another program is run,
//! and a child of Python's `fork` runs none. So the lock is the open file's, and a handler of
//! `fork` closes the descriptor in the child, which takes nothing from the parent.
//!
//! *Invariant*: a fork finds every descriptor of a lock in [`OPEN`]. They are opened and closed
//! under its mutex, which a fork has, too. A child that is made past libc (a bare `clone`) would
//! keep a lock; nothing here makes one.

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};

use engram_base::error::Error as StoreError;
use engram_base::mutex::lock;

use crate::error::{Error, Result};

/// The descriptors of all locks of this process.
static OPEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

thread_local! {
    static FORKING: RefCell<Option<MutexGuard<'static, Vec<RawFd>>>> = const { RefCell::new(None) };
}

/// A file that can be locked. The lock goes with this value, and with its process.
pub(crate) struct LockFile {
    path: PathBuf,
    /// Closed by hand, under the mutex.
    file: ManuallyDrop<File>,
}

impl LockFile {
    /// Opens the file, and makes it where there is none.
    pub(crate) fn open(path: &Path) -> Result<LockFile> {
        let failed = |error: std::io::Error| Error::Store(StoreError::os(path.display(), &error));
        watch_forks().map_err(failed)?;
        let mut open = lock(&OPEN);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed)?;
        open.push(file.as_raw_fd());
        Ok(LockFile { path: path.to_owned(), file: ManuallyDrop::new(file) })
    }

    /// Takes the lock; false where another has it.
    pub(crate) fn take(&self) -> Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => {
                Err(Error::Store(StoreError::os(self.path.display(), &error)))
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let mut open = lock(&OPEN);
        let descriptor = self.file.as_raw_fd();
        // In a forked child it is closed already, and the number may be another file's.
        if let Some(at) = open.iter().position(|other| *other == descriptor) {
            open.swap_remove(at);
            // SAFETY: the file is not used after this.
            unsafe { ManuallyDrop::drop(&mut self.file) }
        }
    }
}

/// Sees to it, once, that children close what is in [`OPEN`].
fn watch_forks() -> std::io::Result<()> {
    static WATCHED: OnceLock<i32> = OnceLock::new();
    let failed = *WATCHED.get_or_init(|| {
        // SAFETY: the handlers are functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) }
    });
    if failed == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(failed)) }
}

extern "C" fn prepare() {
    let _ = FORKING.try_with(|forking| *forking.borrow_mut() = Some(lock(&OPEN)));
}

extern "C" fn parent() {
    let _ = FORKING.try_with(|forking| drop(forking.borrow_mut().take()));
}

extern "C" fn child() {
    let _ = FORKING.try_with(|forking| {
        let Some(mut open) = forking.borrow_mut().take() else { return };
        for descriptor in open.drain(..) {
            // SAFETY: it is open, and whoever had it in the parent is no thread of this process.
            unsafe { libc::close(descriptor) };
        }
    });
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
    use std::path::{Path, PathBuf};

    use super::LockFile;

    fn own_path(name: &str) -> PathBuf {
        let name = format!("engram-lock-{}-{name}", std::process::id());
        Path::new("/dev/shm").join(name)
    }

    #[test]
    fn a_lock_stays_where_its_process_closes_the_file_elsewhere() {
        let path = own_path("closed");
        let own = LockFile::open(&path).unwrap();
        assert!(own.take().unwrap());
        drop(File::open(&path).unwrap());
        let other = LockFile::open(&path).unwrap();
        assert!(!other.take().unwrap());
        drop(own);
        assert!(other.take().unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    /// Locks the file, begins a child that says so and lives until it is told to end, and dies.
    fn lock_fork_and_die(path: &Path, mut says: PipeWriter, mut ends: PipeReader) -> ! {
        let own = LockFile::open(path).expect("a file");
        assert!(own.take().expect("a lock"));
        // SAFETY: what follows in the child waits for no lock of another thread.
        if unsafe { libc::fork() } == 0 {
            says.write_all(b"x").expect("a reader");
            let _ = ends.read(&mut [0]);
        }
        // SAFETY: ends the process at once, without what the test has left to do.
        unsafe { libc::_exit(0) }
    }

    #[test]
    fn a_lock_goes_with_its_process_even_if_a_child_of_it_lives_on() {
        let path = own_path("forked");
        let ((mut said, says), (ends, end)) = (pipe().unwrap(), pipe().unwrap());
        // SAFETY: what follows in the child waits for no lock of another thread.
        let process = unsafe { libc::fork() };
        if process == 0 {
            drop(end);
            lock_fork_and_die(&path, says, ends);
        }
        drop((says, ends));
        // SAFETY: the process was begun above, and no status is written.
        assert_eq!(unsafe { libc::waitpid(process, std::ptr::null_mut(), 0) }, process);
        said.read_exact(&mut [0]).expect("the child lives");
        let own = LockFile::open(&path).unwrap();
        assert!(own.take().unwrap(), "a child of the process that has died has the lock");
        // It lived until now: only now it is told to end.
        drop(end);
        assert_eq!(said.read(&mut [0]).unwrap(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
