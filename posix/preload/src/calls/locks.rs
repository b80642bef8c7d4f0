//! Locks of files: `fcntl`'s, `flock`'s and `lockf`'s.
//!
//! The file system has them by owner: of `fcntl`'s the process, of the others the description
//! ([`engram_fs::Locks`]).
//!
//! A lock of the process goes with any descriptor of the file that it closes; a child has none of
//! its parent's. One of the description goes with its last descriptor, in whichever process, and
//! each process that has the description may take it and let go of it ([`crate::keepers`]). Both go
//! on in the program that a process becomes by `exec`.

use std::ffi::{c_int, c_long, c_short};
use std::os::fd::OwnedFd;

use engram_fs::{ByteRange, Handle, LockMode, Locks, Result, Taker};
use libc::off_t;

use crate::calls::descriptors::refused;
use crate::descriptors::{self, Held};
use crate::handlers::Waiting;
use crate::inside::{Inside, is_inside};
use crate::keepers;
use crate::places::inside;
use crate::real::{interpose, real, set_errno};
use crate::trees::Tree;

/// From here on owners are descriptions; below, processes.
const DESCRIPTIONS: u64 = 1 << 40;

/// Whose a lock is: the process's, or the description's.
pub fn taker(held: &Held, by_process: bool) -> Taker {
    let owner = if by_process { process() } else { owner_of(held.number()) };
    Taker { owner, description: held.number() as u64 }
}

/// This process, as an owner of locks.
pub fn process() -> u64 {
    std::process::id().into()
}

/// A description, as an owner of locks.
pub fn owner_of(description: usize) -> u64 {
    DESCRIPTIONS | description as u64
}

/// The process has the locks that it had as another program. The thread is inside.
pub fn adopt(held: &Held, descriptor: OwnedFd) -> Result<()> {
    held.opened()?.locks.adopt(held.file()?, taker(held, true), descriptor, false)
}

/// The locks of a file, with what other processes have taken for its description. The thread is
/// inside.
fn joined(held: &Held, taker: Taker, locks: bool) -> Result<&'static Locks> {
    if !is_a_process(taker.owner) {
        keepers::join(held, taker, locks)?;
    }
    Ok(&held.opened()?.locks)
}

/// Whether locks are a process's, and no child has them.
pub fn is_a_process(owner: u64) -> bool {
    owner < DESCRIPTIONS
}

/// A descriptor was closed: what the process has locked of the file goes.
pub fn closed(held: &Held) {
    if let Some(opened) = held.tree().and_then(Tree::opened) {
        let _inside = Inside::nested();
        opened.locks.closed(held.description().node(), taker(held, true).owner);
    }
}

/// The last descriptor of this process was closed; another process may have the description. The
/// thread is inside.
pub fn given_up(held: &Held, is_last: bool) {
    drop(keepers::taken_out(held.number()));
    let Some(opened) = held.tree().and_then(Tree::opened) else { return };
    let (node, number) = (held.description().node(), held.number() as u64);
    if is_last {
        opened.locks.released(node, number);
    } else {
        opened.locks.left(node, number);
    }
}

/// The range that a program's `flock` names.
fn range(held: &Held, lock: &libc::flock) -> Result<ByteRange> {
    let from = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => held.description().offset().get() as off_t,
        libc::SEEK_END => held.file()?.stat()?.size as off_t,
        _ => return Err(refused(libc::EINVAL, "a lock does not go from there")),
    };
    let start = from.checked_add(lock.l_start);
    // A negative length goes backwards.
    let (start, len) = match (start, lock.l_len) {
        (Some(start), len) if len < 0 => (start.checked_add(len), len.checked_neg()),
        (start, len) => (start, Some(len)),
    };
    match (start, len) {
        (Some(start), Some(len)) if start >= 0 => {
            Ok(ByteRange { from: start as u64, len: len as u64 })
        }
        _ => Err(refused(libc::EINVAL, "a lock begins at the beginning, or behind it")),
    }
}

/// Takes a lock, or says that another has it.
fn try_lock(held: &Held, taker: Taker, mode: LockMode, range: ByteRange) -> c_int {
    inside(|| {
        let file = held.file()?;
        let got = joined(held, taker, true)?.try_lock(file, taker, mode, range)?;
        if got { Ok(0) } else { Err(refused(libc::EAGAIN, "another has a lock there")) }
    })
}

/// Takes a lock, and waits for it.
fn wait(held: &Held, taker: Taker, mode: LockMode, range: ByteRange) -> c_int {
    let mut waiting = Waiting::default();
    loop {
        let done = try_lock(held, taker, mode, range);
        if done == 0 || crate::real::errno() != libc::EAGAIN {
            return done;
        }
        if !waiting.goes_on() {
            return -1;
        }
    }
}

fn unlock(held: &Held, taker: Taker, range: ByteRange) -> c_int {
    inside(|| {
        joined(held, taker, false)?.unlock(held.file()?, taker.owner, range)?;
        Ok(0)
    })
}

/// The mode of a lock that this description may take.
fn mode_for(held: &Held, kind: c_int) -> Result<Option<LockMode>> {
    let access = held.description().flags() & libc::O_ACCMODE;
    match kind {
        libc::F_UNLCK => Ok(None),
        libc::F_RDLCK if access != libc::O_WRONLY => Ok(Some(LockMode::Read)),
        libc::F_WRLCK if access != libc::O_RDONLY => Ok(Some(LockMode::Write)),
        libc::F_RDLCK | libc::F_WRLCK => {
            Err(refused(libc::EBADF, "the file was not opened for such a lock"))
        }
        _ => Err(refused(libc::EINVAL, "there is no such lock")),
    }
}

/// `fcntl` with a command of locks, or another.
pub fn control(held: &Held, command: c_int, argument: c_long) -> c_int {
    let by_process = matches!(command, libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW);
    let by_description =
        matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
    if !by_process && !by_description {
        return super::descriptors::asked_of(command, argument);
    }
    // SAFETY: the program's promise.
    let lock = unsafe { &mut *(argument as *mut libc::flock) };
    let taker = taker(held, by_process);
    let mut asked = None;
    let known: c_int = inside(|| {
        let mode = if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
            let writes = c_int::from(lock.l_type) == libc::F_WRLCK;
            Some(if writes { LockMode::Write } else { LockMode::Read })
        } else {
            mode_for(held, lock.l_type.into())?
        };
        asked = Some((mode, range(held, lock)?));
        Ok(0)
    });
    let Some((mode, range)) = asked.filter(|_| known == 0) else { return -1 };
    match (command, mode) {
        (libc::F_GETLK | libc::F_OFD_GETLK, Some(mode)) => tell(held, taker, mode, range, lock),
        (_, None) => unlock(held, taker, range),
        (libc::F_SETLK | libc::F_OFD_SETLK, Some(mode)) => try_lock(held, taker, mode, range),
        (_, Some(mode)) => wait(held, taker, mode, range),
    }
}

/// Says which lock is in the way.
fn tell(
    held: &Held,
    taker: Taker,
    mode: LockMode,
    range: ByteRange,
    lock: &mut libc::flock,
) -> c_int {
    inside(|| {
        let file: &Handle = held.file()?;
        let found = joined(held, taker, false)?.in_the_way(file, taker.owner, mode, range)?;
        match found {
            None => lock.l_type = libc::F_UNLCK as c_short,
            Some(found) => {
                let writes = found.mode == LockMode::Write;
                lock.l_type = if writes { libc::F_WRLCK } else { libc::F_RDLCK } as c_short;
                lock.l_whence = libc::SEEK_SET as c_short;
                (lock.l_start, lock.l_len) = (found.from as off_t, found.len as off_t);
                // The kernel has it, and says of no process that it is whose.
                lock.l_pid = -1;
            }
        }
        Ok(0)
    })
}

const ALL: ByteRange = ByteRange { from: 0, len: 0 };

interpose! {
    /// Locks a file as a whole.
    [flock](fd: c_int, operation: c_int) -> c_int {
        let held = if is_inside() { None } else { descriptors::get(fd) };
        let Some(held) = held else {
            return real!(flock(fd: c_int, operation: c_int) -> c_int);
        };
        let taker = taker(&held, false);
        match operation & !libc::LOCK_NB {
            libc::LOCK_UN => unlock(&held, taker, ALL),
            libc::LOCK_SH if operation & libc::LOCK_NB == 0 => {
                wait(&held, taker, LockMode::Read, ALL)
            }
            libc::LOCK_EX if operation & libc::LOCK_NB == 0 => {
                wait(&held, taker, LockMode::Write, ALL)
            }
            libc::LOCK_SH => try_lock(&held, taker, LockMode::Read, ALL),
            libc::LOCK_EX => try_lock(&held, taker, LockMode::Write, ALL),
            _ => {
                set_errno(libc::EINVAL);
                -1
            }
        }
    }

    /// Locks from the offset on.
    [lockf, lockf64](fd: c_int, command: c_int, size: off_t) -> c_int {
        let held = if is_inside() { None } else { descriptors::get(fd) };
        let Some(held) = held else {
            return real!(lockf(fd: c_int, command: c_int, size: off_t) -> c_int);
        };
        // SAFETY: plain data, for which zeros are valid.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_whence = libc::SEEK_CUR as c_short;
        lock.l_len = size;
        lock.l_type = libc::F_WRLCK as c_short;
        let command = match command {
            libc::F_LOCK => libc::F_SETLKW,
            libc::F_TLOCK => libc::F_SETLK,
            libc::F_ULOCK => {
                lock.l_type = libc::F_UNLCK as c_short;
                libc::F_SETLK
            }
            libc::F_TEST => {
                let at = &raw mut lock as c_long;
                if control(&held, libc::F_GETLK, at) != 0 {
                    return -1;
                }
                if lock.l_type == libc::F_UNLCK as c_short {
                    return 0;
                }
                set_errno(libc::EACCES);
                return -1;
            }
            _ => {
                set_errno(libc::EINVAL);
                return -1;
            }
        };
        control(&held, command, &raw mut lock as c_long)
    }
}
