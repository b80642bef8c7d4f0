//! Locks of ranges of a file, between threads and processes: the kernel's, on a stand-in.
//!
//! The stand-in is a file without bytes, `file-locks/OID` in the realm's folder. A taker opens it
//! for itself, and locks its ranges as an open file description does. So takers exclude each other
//! wherever they are, and the kernel drops their locks with them, however they end.
//!
//! The stand-in is made by the first taker and removed by the last. Each taker has it under a
//! shared `flock`; one that goes removes it if it can have that for itself alone, and one that
//! comes looks then whether the file has its name still. The two kinds of the kernel's locks do not
//! meet.
//!
//! A process that may not make files in the realm (it may only read there, or the realm is
//! published) has a stand-in of its own, in memory: its locks hold within the process.

use std::fs::File as StdFile;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::OpenFile;
use crate::realm::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_catalog::forks;
use engram_files::folder;
use engram_space::lease::LockMode;

/// The folder of a realm's stand-ins.
const STAND_INS: &str = "file-locks";

/// A stand-in that only this process has.
pub(super) type OwnStandIn = OnceLock<StdFile>;

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
pub struct RangeLocks {
    file: StdFile,
    /// `None`: it is this process's own.
    path: Option<PathBuf>,
    forks: u64,
}

impl RangeLocks {
    pub(super) fn open(open: &OpenFile) -> Result<RangeLocks> {
        let setup = &open.core.setup;
        let folder = setup.dir.join(STAND_INS);
        let path = folder.join(format!("{:016x}", open.oid));
        let shared = if setup.immutable {
            None
        } else {
            match open_shared(setup, &folder, &path) {
                Err(error) if matches!(error.kind(), Kind::Access | Kind::ReadOnly) => None,
                opened => Some(opened?),
            }
        };
        let (file, path) = match shared {
            Some(file) => (file, Some(path)),
            None => (open_own(&open.stand_in)?, None),
        };
        Ok(RangeLocks { file, path, forks: forks() })
    }

    /// Locks a range, or changes how it is locked; `false` if others have some of it. A length of 0
    /// is all from there on.
    pub fn try_lock(&self, mode: LockMode, from: u64, len: u64) -> Result<bool> {
        let mut lock = range(kind(mode), from, len)?;
        match control(&self.file, libc::F_OFD_SETLK, &mut lock) {
            Ok(()) => Ok(true),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(e) => Err(Error::os("locking a range of a file", &e)),
        }
    }

    /// Lets go of what is locked of a range.
    pub fn unlock(&self, from: u64, len: u64) -> Result<()> {
        let mut lock = range(libc::F_UNLCK, from, len)?;
        control(&self.file, libc::F_OFD_SETLK, &mut lock)
            .map_err(|e| Error::os("unlocking a range of a file", &e))
    }

    /// What another taker has locked that is in the way of such a lock, if anything is.
    pub fn in_the_way(&self, mode: LockMode, from: u64, len: u64) -> Result<Option<LockedRange>> {
        let mut lock = range(kind(mode), from, len)?;
        control(&self.file, libc::F_OFD_GETLK, &mut lock)
            .map_err(|e| Error::os("looking for locks of a file", &e))?;
        let mode = match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockMode::Read,
            _ => LockMode::Write,
        };
        let (from, len) = (lock.l_start.cast_unsigned(), lock.l_len.cast_unsigned());
        Ok(Some(LockedRange { mode, from, len }))
    }
}

impl Drop for RangeLocks {
    fn drop(&mut self) {
        // A child's descriptor is the parent's: it closes, and takes nothing from the parent.
        if self.forks != forks() {
            return;
        }
        // By name, for a child may have the descriptor still.
        let _ = self.unlock(0, 0);
        if let Some(path) = &self.path
            && flock(&self.file, libc::LOCK_EX | libc::LOCK_NB).is_ok()
            && is_linked(&self.file)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens the stand-in that all processes share.
fn open_shared(setup: &Setup, folder: &Path, path: &Path) -> Result<StdFile> {
    let refused = |e: io::Error| Error::os(format!("opening {}", path.display()), &e);
    let mode = setup.file_mode;
    loop {
        if folder.exists() {
            folder::check_real(&setup.pool, folder)?;
        }
        let mut options = StdFile::options();
        options.read(true).write(true).mode(mode);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
        let file = match options.open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let made = options.create_new(true).open(path);
                match made {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        make_folder(&setup.leases(), folder)?;
                        continue;
                    }
                    Err(e) => return Err(refused(e)),
                    Ok(file) => {
                        let allowed = std::fs::Permissions::from_mode(mode);
                        file.set_permissions(allowed).map_err(refused)?;
                        folder::hand_over(&file, path)?;
                        file
                    }
                }
            }
            opened => opened.map_err(refused)?,
        };
        flock(&file, libc::LOCK_SH).map_err(refused)?;
        if is_linked(&file) {
            return Ok(file);
        }
    }
}

/// Removes stand-ins that takers have left which died; nobody may have the realm open.
pub(super) fn clear_stand_ins(setup: &Setup) {
    // What stays is in nobody's way.
    let _ = std::fs::remove_dir_all(setup.dir.join(STAND_INS));
}

/// Makes the folder of stand-ins, as open to others as the one of leases.
fn make_folder(like: &Path, folder: &Path) -> Result<()> {
    let mode = std::fs::metadata(like)
        .map_err(|e| Error::os(format!("looking at {}", like.display()), &e))?
        .mode();
    match folder::make_folder(folder, mode & 0o7777) {
        Err(error) if error.kind() == Kind::Exists => Ok(()),
        made => made.and_then(|()| folder::like_another(folder, like)),
    }
}

/// Opens the stand-in that only this process has.
fn open_own(own: &OwnStandIn) -> Result<StdFile> {
    let refused = |e: io::Error| Error::os("making a file to lock ranges of", &e);
    if own.get().is_none() {
        // SAFETY: a name that ends, and flags; the result is checked.
        let fd = unsafe { libc::memfd_create(c"engram-locks".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: a descriptor that was just made, and is nobody else's.
        let _ = own.set(unsafe { StdFile::from_raw_fd(fd) });
    }
    let path = own.get().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let path = path.expect("it has been set");
    StdFile::options().read(true).write(true).open(path).map_err(refused)
}

fn kind(mode: LockMode) -> libc::c_int {
    match mode {
        LockMode::Read => libc::F_RDLCK,
        LockMode::Write => libc::F_WRLCK,
    }
}

fn range(kind: libc::c_int, from: u64, len: u64) -> Result<libc::flock> {
    let (Ok(from), Ok(len)) = (i64::try_from(from), i64::try_from(len)) else {
        return Err(Error::new(
            Kind::Argument,
            format!("{len} bytes from {from} on are beyond what can be locked"),
        ));
    };
    // SAFETY: `flock` is plain numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (from, len);
    Ok(lock)
}

fn control(file: &StdFile, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: our own descriptor, and a struct that lives as long as the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

fn flock(file: &StdFile, how: libc::c_int) -> io::Result<()> {
    loop {
        // SAFETY: our own descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), how) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Whether the file has its name still.
fn is_linked(file: &StdFile) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() > 0)
}
