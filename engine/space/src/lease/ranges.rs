//! One taker's locks of ranges of a file: the kernel's, on a file without bytes that stands for it.
//!
//! The taker has the stand-in open for itself, and its locks are those of its open file
//! description. So takers exclude each other wherever they are, and the kernel drops their locks
//! with them, however they end. A stand-in that several processes share has a name, and each taker
//! has it under a shared `flock`; the last one removes it. The two kinds of locks do not meet.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::LockMode;
use super::locks::{kind, range};
use engram_base::error::{Error, Result};
use engram_base::fail;
use engram_catalog::forks;

/// So often, in such steps, a taker waits for the last one to be gone.
const LOOKS: u32 = 100;
const STEP: Duration = Duration::from_millis(1);

/// A range that somebody else has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedRange {
    /// How it is locked.
    pub mode: LockMode,
    /// Where it begins.
    pub from: u64,
    /// How many bytes it has; 0: all from there on.
    pub len: u64,
}

/// One taker's locks of a file's ranges. Dropping it lets go of them all.
#[derive(Debug)]
pub struct RangeLocks {
    file: File,
    /// `None`: the stand-in has no name.
    path: Option<PathBuf>,
    forks: u64,
    /// Whether another process goes on with them.
    is_left: AtomicBool,
}

impl RangeLocks {
    /// The locks of a taker that has opened a stand-in for itself. `None` where the stand-in has
    /// lost its name since: there may be another.
    pub fn of_shared(file: File, path: PathBuf) -> Result<Option<RangeLocks>> {
        // The last taker has it for itself for a moment only. Anybody who has it longer is none.
        for look in 0.. {
            match file.try_lock_shared() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if look < LOOKS => std::thread::sleep(STEP),
                Err(TryLockError::WouldBlock) => {
                    fail!(Busy, "somebody keeps {} locked: find out who", path.display())
                }
                Err(TryLockError::Error(e)) => {
                    return Err(Error::os(format!("opening {} for locks", path.display()), &e));
                }
            }
        }
        let locks = RangeLocks::of(file, Some(path));
        Ok(locks.is_linked().then_some(locks))
    }

    /// The same of a stand-in without a name.
    pub fn of_own(own: &File) -> Result<RangeLocks> {
        // Opened anew: a description of its own.
        let path = format!("/proc/self/fd/{}", own.as_raw_fd());
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(|e| Error::os("opening a file to lock ranges of", &e))?;
        Ok(RangeLocks::of(file, None))
    }

    /// The locks of a taker that another process has, too: it has handed its descriptor over.
    /// `path` is the stand-in's name, if it has one.
    pub fn of_handed(file: File, path: Option<PathBuf>) -> RangeLocks {
        RangeLocks::of(file, path)
    }

    fn of(file: File, path: Option<PathBuf>) -> RangeLocks {
        RangeLocks { file, path, forks: forks(), is_left: AtomicBool::new(false) }
    }

    /// The taker's descriptor: whoever has a copy of it is the same taker.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Leaves the locks to a forked process that has the taker's descriptor, too: dropping this
    /// closes it alone.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Locks a range, or changes how it is locked; `false` if others have some of it. A length of 0
    /// is all from there on.
    pub fn try_lock(&self, mode: LockMode, from: u64, len: u64) -> Result<bool> {
        match self.control(libc::F_OFD_SETLK, kind(mode), from, len)? {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) => Err(Error::os("locking a range of a file", &e)),
        }
    }

    /// Lets go of what is locked of a range.
    pub fn unlock(&self, from: u64, len: u64) -> Result<()> {
        match self.control(libc::F_OFD_SETLK, libc::F_UNLCK, from, len)? {
            Ok(_) => Ok(()),
            Err(e) => Err(Error::os("unlocking a range of a file", &e)),
        }
    }

    /// What another taker has locked that is in the way of such a lock, if anything is.
    pub fn in_the_way(&self, mode: LockMode, from: u64, len: u64) -> Result<Option<LockedRange>> {
        let found = self
            .control(libc::F_OFD_GETLK, kind(mode), from, len)?
            .map_err(|e| Error::os("looking for locks of a file", &e))?;
        let mode = match libc::c_int::from(found.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockMode::Read,
            _ => LockMode::Write,
        };
        let (from, len) = (found.l_start.cast_unsigned(), found.l_len.cast_unsigned());
        Ok(Some(LockedRange { mode, from, len }))
    }

    fn control(
        &self,
        command: libc::c_int,
        kind: libc::c_int,
        from: u64,
        len: u64,
    ) -> Result<io::Result<libc::flock>> {
        let (Ok(start), Ok(bytes)) = (i64::try_from(from), i64::try_from(len)) else {
            fail!(Argument, "{len} bytes from {from} on are beyond what can be locked")
        };
        let mut lock = range(kind, start, bytes);
        loop {
            // SAFETY: our own descriptor, and a struct that lives as long as the call.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut lock) } == 0 {
                return Ok(Ok(lock));
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EINTR) {
                return Ok(Err(error));
            }
        }
    }

    fn is_linked(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.nlink() > 0)
    }
}

impl Drop for RangeLocks {
    fn drop(&mut self) {
        // A child's descriptor is the parent's: it closes, and takes nothing from the parent.
        if self.forks != forks() || self.is_left.load(Ordering::Relaxed) {
            return;
        }
        // By name, for a child may have the descriptor still.
        let _ = self.unlock(0, 0);
        if let Some(path) = &self.path
            && self.file.try_lock().is_ok()
            && self.is_linked()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Makes a stand-in without a name, which this process alone has.
pub fn own_stand_in() -> Result<File> {
    // SAFETY: a name that ends, and flags; the result is checked.
    let fd = unsafe { libc::memfd_create(c"engram-locks".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::os("making a file to lock ranges of", &io::Error::last_os_error()));
    }
    // SAFETY: a descriptor that was just made, and is nobody else's.
    Ok(unsafe { File::from_raw_fd(fd) })
}
