//! One lock of one object: an open-file-description lock on two bytes of the file `locks`.
//!
//! Byte 2 x id is the lock itself: shared by those who read, or one writer's. Byte 2 x id + 1 is
//! the *gate*: every process that wants the lock passes it first, readers together, a writer alone,
//! and a writer keeps it until it has the lock. So a writer that waits lets no new readers in, and
//! cannot be kept waiting by readers that come and go. (Of an id's 64 bits the upper two do not
//! count: two objects of which all else is alike would share a lock, and wait for each other.)
//!
//! Whether anybody has one of many locks is asked of the kernel in a few calls ([`held`]): it tells
//! one range that is locked, and is asked again beside that. Most often none is.
//!
//! Each lock has an open file description of its own. So threads of one process exclude each other
//! as processes do, and the kernel drops it with its last descriptor, however its holder ends. A
//! forked child inherits a descriptor; it closes it (`fork`), which takes nothing from the parent.

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use engram_base::error::{Error, Result};
use engram_catalog::forks;

/// What a lock allows: others that read, or nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Any number may have it, if nobody has it for writing.
    Read,
    /// One has it.
    Write,
}

impl LockMode {
    /// As leases list it.
    pub fn number(self) -> u64 {
        match self {
            LockMode::Read => 1,
            LockMode::Write => 2,
        }
    }
}

/// The locks' file, open for one lock.
#[derive(Debug)]
pub struct LockFile {
    /// Ours in the process that opened it, and closed in a child at once.
    fd: RawFd,
    forks: u64,
    at: i64,
}

impl LockFile {
    /// Opens the file for a lock of this id.
    pub fn open(path: &Path, id: u64) -> Result<Self> {
        Ok(LockFile { fd: open(path)?.into_raw_fd(), forks: forks(), at: place(id) })
    }

    /// In a forked child, once: closes the descriptor, which it will never use.
    pub fn close_inherited(&self) {
        // SAFETY: the parent's descriptor, copied by the fork; dropping closes nothing in a child.
        unsafe { libc::close(self.fd) };
    }

    /// Tries to pass the gate; for a writer it is shut behind it.
    pub fn try_gate(&self, mode: LockMode) -> Result<bool> {
        self.set(self.at + 1, kind(mode))
    }

    /// Opens the gate to others.
    pub fn leave_gate(&self) -> Result<bool> {
        self.set(self.at + 1, libc::F_UNLCK)
    }

    /// Tries to take the lock.
    pub fn try_lock(&self, mode: LockMode) -> Result<bool> {
        self.set(self.at, kind(mode))
    }

    /// Lets go of the lock: by name, since a child that is just being made may have a descriptor.
    pub fn unlock(&self) {
        let _ = self.set(self.at, libc::F_UNLCK);
        let _ = self.leave_gate();
    }

    fn set(&self, at: i64, kind: libc::c_int) -> Result<bool> {
        let lock = range(kind, at, 1);
        loop {
            // SAFETY: a plain fcntl on our own descriptor with a valid struct.
            let done = unsafe { libc::fcntl(self.fd, libc::F_OFD_SETLK, &raw const lock) };
            if done == 0 {
                return Ok(true);
            }
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
                Some(libc::EINTR) => {}
                _ => return Err(Error::os("locking an object", &error)),
            }
        }
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if self.forks == forks() {
            // SAFETY: our own descriptor, not used again.
            unsafe { libc::close(self.fd) };
        }
    }
}

pub(super) fn kind(mode: LockMode) -> libc::c_int {
    match mode {
        LockMode::Read => libc::F_RDLCK,
        LockMode::Write => libc::F_WRLCK,
    }
}

/// The byte that is the lock of this id.
pub fn place(id: u64) -> i64 {
    (id << 1 & !(1 << 63)).cast_signed()
}

/// The byte that is its gate.
pub fn gate(id: u64) -> i64 {
    place(id) + 1
}

/// Which of these processes have this byte of the file locked in this mode at least, as far as the
/// kernel tells: for a lock of an open file description it names no pid, but shows at each
/// descriptor of this user's processes what is locked by it. For messages.
pub fn holders_by_files(path: &Path, at: i64, least: LockMode, pids: &[u32]) -> Vec<u32> {
    let Ok(inode) = std::fs::metadata(path).map(|meta| meta.ino()) else { return Vec::new() };
    let has_it = |pid: &u32| {
        let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
        files.flatten().any(|file| {
            let shown = std::fs::read_to_string(file.path()).unwrap_or_default();
            shown.lines().any(|line| locks_byte(line, inode, at, least))
        })
    };
    let mut holders: Vec<u32> = pids.iter().copied().filter(has_it).collect();
    holders.sort_unstable();
    holders.dedup();
    holders
}

/// Whether a line of a descriptor's `fdinfo` is of a lock on this byte:
/// `lock: 1: OFDLCK ADVISORY WRITE -1 00:1b:<inode> <first> <last>`.
fn locks_byte(line: &str, inode: u64, at: i64, least: LockMode) -> bool {
    let Some(lock) = line.strip_prefix("lock:") else { return false };
    let words: Vec<&str> = lock.split_whitespace().collect();
    if least == LockMode::Write && !words.contains(&"WRITE") {
        return false;
    }
    let [.., file, first, last] = words[..] else { return false };
    let of_it = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
    let last = if last == "EOF" { Some(i64::MAX) } else { last.parse().ok() };
    of_it && first.parse().is_ok_and(|first: i64| first <= at) && last.is_some_and(|l| at <= l)
}

fn open(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| Error::os(format!("opening {} for a lock", path.display()), &e))
}

/// What is asked of the kernel; a length of zero is all from there on.
pub(super) fn range(kind: libc::c_int, start: i64, len: i64) -> libc::flock {
    // SAFETY: `flock` is plain data, for which zeros are valid (OFD locks ask for pid zero).
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = start;
    range.l_len = len;
    range
}

/// The ranges of the file that are locked by anybody, in this process or another, in any order.
/// They may overlap, and gates are among them.
pub fn held(path: &Path) -> Result<Vec<RangeInclusive<i64>>> {
    let file = open(path)?;
    let (mut held, mut unknown) = (Vec::new(), vec![0..=i64::MAX]);
    while let Some(within) = unknown.pop() {
        let Some(found) = one_held(&file, &within)? else { continue };
        if within.start() < found.start() {
            unknown.push(*within.start()..=found.start() - 1);
        }
        if found.end() < within.end() {
            unknown.push(found.end() + 1..=*within.end());
        }
        held.push(found);
    }
    Ok(held)
}

/// A range that is locked within another, if there is any.
fn one_held(file: &File, within: &RangeInclusive<i64>) -> Result<Option<RangeInclusive<i64>>> {
    let len = match *within.end() {
        i64::MAX => 0,
        end => end - within.start() + 1,
    };
    let mut lock = range(libc::F_WRLCK, *within.start(), len);
    // SAFETY: a plain fcntl on an open file with a valid struct, which it writes to.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        let error = std::io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(Error::os("asking who has locked an object", &error));
        }
    }
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        return Ok(None);
    }
    let end = match lock.l_len {
        0 => i64::MAX,
        len => lock.l_start + (len - 1),
    };
    // What it tells has a byte in common with what was asked.
    Ok(Some(lock.l_start.max(*within.start())..=end.min(*within.end())))
}
