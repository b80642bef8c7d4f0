//! Span files: every byte allocated before anybody maps one.
//!
//! A write into a mapped page that has no block is a SIGBUS when the filesystem is full. So a span
//! is never made by `ftruncate`, which leaves holes, but by `fallocate`, which takes the blocks or
//! says that there are none. The order in [`create`]:
//!
//! 1. create, exclusively, so that no other's file is ever taken over;
//! 2. look at the memory that may be taken (tmpfs: beyond it the kernel kills, see `cgroup`);
//! 3. allocate; on any error remove the file, so that a refusal leaves nothing behind;
//! 4. on a durable mount: sync the file, then its directory.
//!
//! Only then may a row point to it. A process that dies in between leaves a file that no row points
//! to: bytes that are free, which the next taker of that name removes.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use super::filesystem::{FsKind, Mount};
use super::{Medium, cgroup};
use crate::error::{Error, Kind, Result};
use crate::fail;

/// Memory is allocated in steps, so that a signal costs at most one step: tmpfs gives back all of
/// an interrupted `fallocate`.
const STEP: u64 = 64 << 20;
/// Signals that come faster than steps complete make the steps smaller, down to this.
const STEP_LEAST: u64 = 1 << 20;

/// Creates the file `path` of `len` allocated, zero bytes with exactly the permissions `mode`.
///
/// On error there is no such file (if one was there before, it is untouched and the error is
/// `Exists`): `PoolFull` names the mount or the memory limit; make room and call again.
pub fn create(path: &Path, len: u64, mode: u32, mount: &Mount) -> Result<File> {
    check_length(path, len)?;
    let shown = path.display();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(path)
        .map_err(|e| Error::os(format_args!("cannot create {shown}"), &e))?;
    fill(&file, path, len, mode, mount).inspect_err(|_| drop(fs::remove_file(path)))?;
    Ok(file)
}

/// Steps 2 to 4 of [`create`].
fn fill(file: &File, path: &Path, len: u64, mode: u32, mount: &Mount) -> Result<()> {
    let shown = path.display();
    let memory = Medium::of(file)? == Medium::Memory;
    if memory {
        cgroup::admit(len, &format!("allocating {shown}"))?;
    }
    // The process's umask has no say in who shares a realm.
    file.set_permissions(fs::Permissions::from_mode(mode))
        .map_err(|e| Error::os(format_args!("cannot set mode {mode:o} of {shown}"), &e))?;
    if mount.kind == FsKind::Tmpfs {
        // The last page first: huge=within_size gives huge pages only below the file's end.
        allocate(file, path, len - len.min(4096), len.min(4096), len)?;
    }
    allocate(file, path, 0, len, if memory { STEP } else { len })?;
    if mount.durable {
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        file.sync_all()
            .and_then(|()| File::open(parent)?.sync_all())
            .map_err(|e| Error::os(format_args!("cannot sync {shown} and its directory"), &e))?;
    }
    Ok(())
}

/// Opens the span file `path`, which must be a plain file of exactly `len` bytes.
///
/// With `writable`, space that is missing (a copy that left out the zeros) is allocated again.
/// On error nothing has changed: `Corrupt` says what stands there instead.
pub fn open(path: &Path, len: u64, writable: bool) -> Result<File> {
    check_length(path, len)?;
    let shown = path.display();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(writable)
        // A FIFO that somebody put here must not make the open wait.
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => {
                Error::new(Kind::Corrupt, format!("{shown} is a symbolic link, not a span file"))
            }
            Some(libc::ENXIO | libc::EISDIR) => {
                Error::new(Kind::Corrupt, format!("{shown} is not a plain file"))
            }
            _ => Error::os(format_args!("cannot open {shown}"), &e),
        })?;
    let meta = file
        .metadata()
        .map_err(|e| Error::os(format_args!("cannot look at {shown} (fstat)"), &e))?;
    if !meta.is_file() {
        fail!(Corrupt, "{shown} is not a plain file");
    }
    if meta.len() != len {
        fail!(
            Corrupt,
            "{shown} is {} bytes long and should be {len}: it was truncated or replaced; restore \
             it from a copy of the whole pool",
            meta.len()
        );
    }
    let missing = len.saturating_sub(meta.blocks().saturating_mul(512));
    if writable && missing > 0 {
        if Medium::of(&file)? == Medium::Memory {
            cgroup::admit(missing, &format!("allocating what {shown} lacks"))?;
        }
        allocate(&file, path, 0, len, STEP)?;
    }
    Ok(file)
}

/// A span has bytes, and no more than a file can have.
fn check_length(path: &Path, len: u64) -> Result<()> {
    if len == 0 || i64::try_from(len).is_err() {
        fail!(Argument, "a span of {len} bytes cannot be: {}", path.display());
    }
    Ok(())
}

/// Allocates `[offset, offset + len)` of `file`, in steps, whatever signals come.
fn allocate(file: &File, path: &Path, offset: u64, len: u64, step: u64) -> Result<()> {
    check_file_limit(path, offset + len)?;
    let (mut done, mut step) = (0, step);
    while done < len {
        let now = step.min(len - done);
        // SAFETY: the call takes numbers alone.
        let rc =
            unsafe { libc::fallocate(file.as_raw_fd(), 0, (offset + done) as i64, now as i64) };
        if rc == 0 {
            done += now;
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => step = (step / 2).max(STEP_LEAST),
            _ => return Err(refusal(&error, path, len)),
        }
    }
    Ok(())
}

/// What a failed `fallocate` means.
fn refusal(error: &io::Error, path: &Path, len: u64) -> Error {
    let shown = path.display();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Error::new(
            Kind::Unsupported,
            format!(
                "the filesystem of {shown} cannot allocate space ahead (fallocate): use tmpfs, ext4 or xfs"
            ),
        ),
        Some(libc::ENOSPC | libc::EDQUOT | libc::ENOMEM) => {
            let dir = path.parent().unwrap_or(path);
            let free = super::filesystem::free_bytes(dir).unwrap_or(0);
            Error::new(
                Kind::PoolFull,
                format!(
                    "{shown} needs {len} bytes and the filesystem has {free} free ({error}): make \
                     room there, or add a device"
                ),
            )
        }
        _ => Error::os(format_args!("cannot allocate {len} bytes for {shown}"), error),
    }
}

/// Growing a file beyond `RLIMIT_FSIZE` is a signal that kills, not an error: so ask first.
fn check_file_limit(path: &Path, len: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    // SAFETY: `limit` is what the call fills; on failure it says "no limit" still.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if limit.rlim_cur != libc::RLIM_INFINITY && len > limit.rlim_cur {
        fail!(
            PoolFull,
            "{} needs a file of {len} bytes and this process may write files of {} bytes at most \
             (RLIMIT_FSIZE): raise it with `ulimit -f`",
            path.display(),
            limit.rlim_cur
        );
    }
    Ok(())
}
