//! Making, closing, duplicating and steering descriptors.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong};

use engram_fs::Whence;
use libc::{mode_t, off_t};

use crate::calls::{offered, refused_call};
use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::is_inside;
use crate::places::{by_path, fail, inside, own};
use crate::real::{interpose, real, set_errno};
use crate::traced;

/// `O_TMPFILE` without the bits of `O_DIRECTORY`: a mode follows it, too.
const TMPFILE: c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Instead of the links to what another process has open.
const BY_PATH: &str = "open the file by its own path";
/// Instead of leases, and of signals that tell of changes.
const BY_LOCKS: &str = "take a lock: nobody is told of who else opens a file of a pool";
const BY_TIMES: &str = "look at st_mtime, or use the mount, which tells of its own changes";

/// Opens a path from a folder.
unsafe fn open_at(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: a string, as the program gave it.
    unsafe {
        by_path(
            folder,
            path,
            |tree, _, asked, at| {
                traced::opens(asked, at, flags);
                let opened = offered("open", asked.open(at, flags, mode))?;
                Ok(descriptors::add(tree, opened, flags)?)
            },
            |folder, path| {
                let fd = real!(
                    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int
                );
                if is_inside() {
                    return descriptors::hide(fd);
                }
                if own::is_unknown(path, fd) {
                    real!(close(fd: c_int) -> c_int);
                    return fail(&refused_call("open", BY_PATH));
                }
                fd
            },
        )
    }
}

fn close_one(fd: c_int) -> c_int {
    if is_inside() {
        descriptors::forget(fd);
    } else {
        traced::closes(fd);
        if !descriptors::close(fd) {
            return descriptors::bad_number();
        }
    }
    real!(close(fd: c_int) -> c_int)
}

/// Closes numbers, but for the engine's own.
pub fn close_numbers(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let closes = flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    let mut from = first;
    let numbers: Vec<(c_int, bool)> = descriptors::in_range(first, last).collect();
    for (fd, hidden) in numbers {
        if hidden {
            let before = fd as c_uint;
            if before > from && close_plain(from, before - 1, flags) != 0 {
                return -1;
            }
            from = before + 1;
        } else if closes {
            descriptors::close(fd);
        }
    }
    if from > last { 0 } else { close_plain(from, last, flags) }
}

fn close_plain(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    real!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int)
}

/// Has a number stand for what another one does.
fn copy_to(fd: c_int, to: c_int, flags: c_int) -> c_int {
    if !is_inside() && (descriptors::is_hidden(fd) || descriptors::is_hidden(to)) {
        return descriptors::bad_number();
    }
    let done = real!(dup3(fd: c_int, to: c_int, flags: c_int) -> c_int);
    if done >= 0 && (descriptors::is_ours(fd) || descriptors::is_ours(to)) {
        descriptors::copy(fd, to);
    }
    done
}

fn noted_copy(fd: c_int, new: c_int) -> c_int {
    if new >= 0 && descriptors::is_ours(fd) {
        descriptors::copy(fd, new);
    }
    new
}

/// Moves the offset of an open file.
fn seek(held: &Held, offset: off_t, whence: c_int) -> off_t {
    inside(|| {
        let description = held.description();
        let place = description.offset();
        if description.what() == What::Folder {
            // A place is what telldir has told.
            return match (whence, u64::try_from(offset)) {
                (libc::SEEK_SET, Ok(to)) => {
                    place.set(to);
                    Ok(offset)
                }
                (libc::SEEK_CUR, Ok(0)) => Ok(place.get() as off_t),
                _ => Err(refused(libc::EINVAL, "a folder has no such place")),
            };
        }
        let file = held.file()?;
        let from = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => place.get(),
            libc::SEEK_END => file.stat()?.size,
            libc::SEEK_DATA | libc::SEEK_HOLE => {
                let what = if whence == libc::SEEK_DATA { Whence::Data } else { Whence::Hole };
                let Ok(from) = u64::try_from(offset) else {
                    return Err(refused(libc::ENXIO, "there is nothing before the beginning"));
                };
                let found = file.seek(what, from)?;
                place.set(found);
                return Ok(found as off_t);
            }
            _ => return Err(refused(libc::EINVAL, "lseek does not go from there")),
        };
        match from.checked_add_signed(offset).and_then(|to| off_t::try_from(to).ok()) {
            Some(to) => {
                place.set(to as u64);
                Ok(to)
            }
            None => Err(refused(libc::EINVAL, "there is nothing before the beginning")),
        }
    })
}

/// An error of this library's own.
pub fn refused(code: c_int, what: &str) -> engram_fs::Errno {
    engram_fs::Errno::new(code, what)
}

/// The flags that `F_SETFL` changes.
const SETTABLE: c_int =
    libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;

fn control(fd: c_int, command: c_int, argument: c_long) -> c_int {
    let held = if is_inside() { None } else { descriptors::get(fd) };
    if held.is_none() && !is_inside() && descriptors::is_hidden(fd) {
        return descriptors::bad_number();
    }
    let kernel = || real!(fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int);
    let Some(held) = held else { return kernel() };
    let description = held.description();
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => noted_copy(fd, kernel()),
        libc::F_GETFL => description.flags(),
        libc::F_SETFL => {
            let kept = description.flags() & !SETTABLE;
            description.set_flags(kept | argument as c_int & SETTABLE);
            0
        }
        libc::F_GETFD | libc::F_SETFD => kernel(),
        _ => super::locks::control(&held, command, argument),
    }
}

/// What is asked of the kernel alone: who is told of changes, and who holds leases. Nobody is, and
/// nobody does.
pub fn asked_of(command: c_int, argument: c_long) -> c_int {
    const GET_HINT: c_int = 1035;
    const GET_SIGNAL: c_int = 11;
    match command {
        libc::F_GETOWN | GET_SIGNAL => 0,
        libc::F_GETLEASE => libc::F_UNLCK,
        GET_HINT => {
            // SAFETY: room for a hint, as the program promises.
            unsafe { (argument as *mut u64).write(0) };
            0
        }
        _ => {
            match command {
                libc::F_SETLEASE => traced::refused("fcntl", BY_LOCKS),
                libc::F_NOTIFY => traced::refused("fcntl", BY_TIMES),
                _ => {}
            }
            set_errno(libc::EINVAL);
            -1
        }
    }
}

/// Answers what may be asked of files that are on no device. `None`: they know no such request.
fn answered(held: &Held, request: c_ulong, argument: c_long) -> Option<c_int> {
    const FIONREAD: c_ulong = 0x541b;
    const FIONBIO: c_ulong = 0x5421;
    let description = held.description();
    match (request, description.what()) {
        (_, What::Node) => {
            set_errno(libc::EBADF);
            Some(-1)
        }
        (FIONBIO, _) => {
            // SAFETY: the program's word.
            let is_on = unsafe { *(argument as *const c_int) } != 0;
            let flags = description.flags() & !libc::O_NONBLOCK;
            description.set_flags(if is_on { flags | libc::O_NONBLOCK } else { flags });
            Some(0)
        }
        (FIONREAD, What::File) => Some(inside(|| {
            let left = held.file()?.stat()?.size as i64 - description.offset().get() as i64;
            // SAFETY: room for a word, as the program promises.
            unsafe { (argument as *mut c_int).write(left as c_int) };
            Ok(0)
        })),
        _ => None,
    }
}

/// What `openat2` is given.
#[repr(C)]
#[derive(Clone, Copy)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

interpose! {
    /// Opens a file.
    [open, open64, __open, __open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { open_at(libc::AT_FDCWD, path, flags, mode_of(flags, mode)) }
    }

    /// Opens a file from a folder.
    [openat, openat64](folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { open_at(folder, path, flags, mode_of(flags, mode)) }
    }

    /// Opens a file, and says how the path is to be followed: of that, a path of ours knows
    /// nothing.
    [openat2](folder: c_int, path: *const c_char, how: *const OpenHow, size: usize) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                folder,
                path,
                |tree, _, asked, at| {
                    if size < size_of::<OpenHow>() {
                        return Err(refused(libc::EINVAL, "openat2 is given too little").into());
                    }
                    let OpenHow { flags, mode, resolve } = *how;
                    if resolve != 0 {
                        let what = "below a prefix openat2 follows paths as openat does";
                        return Err(refused(libc::EOPNOTSUPP, what).into());
                    }
                    let flags = flags as c_int;
                    traced::opens(asked, at, flags);
                    let opened = offered("openat2", asked.open(at, flags, mode as mode_t))?;
                    Ok(descriptors::add(tree, opened, flags)?)
                },
                |folder, path| {
                    real!(
                        openat2(folder: c_int, path: *const c_char, how: *const OpenHow,
                            size: usize) -> c_int
                    )
                },
            )
        }
    }

    /// Opens a file that is there.
    [__open_2, __open64_2](path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { open_at(libc::AT_FDCWD, path, flags, 0) }
    }

    /// Opens a file that is there, from a folder.
    [__openat_2, __openat64_2](folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { open_at(folder, path, flags, 0) }
    }

    /// Makes a file, or makes one empty.
    [creat, creat64](path: *const c_char, mode: mode_t) -> c_int {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
        // SAFETY: the program's promise.
        unsafe { open_at(libc::AT_FDCWD, path, flags, mode) }
    }

    /// Closes a number.
    [close, __close](fd: c_int) -> c_int {
        close_one(fd)
    }

    /// Closes numbers.
    [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if first > last {
            set_errno(libc::EINVAL);
            return -1;
        }
        close_numbers(first, last, flags)
    }

    /// Closes all numbers from one on.
    [closefrom](first: c_int) -> () {
        close_numbers(first.max(0) as c_uint, c_uint::MAX, 0);
    }

    /// A further number for an open file.
    [dup](fd: c_int) -> c_int {
        if !is_inside() && descriptors::is_hidden(fd) {
            return descriptors::bad_number();
        }
        noted_copy(fd, real!(dup(fd: c_int) -> c_int))
    }

    /// A certain number for an open file.
    [dup2, __dup2](fd: c_int, to: c_int) -> c_int {
        if fd == to {
            return real!(dup2(fd: c_int, to: c_int) -> c_int);
        }
        copy_to(fd, to, 0)
    }

    /// The same, by flags.
    [dup3](fd: c_int, to: c_int, flags: c_int) -> c_int {
        copy_to(fd, to, flags)
    }

    /// Asks and changes how a file is open.
    [fcntl, fcntl64, __fcntl](fd: c_int, command: c_int, argument: c_long) -> c_int {
        control(fd, command, argument)
    }

    /// Controls a device, which no file of ours is; little is asked of all files.
    [ioctl](fd: c_int, request: c_ulong, argument: c_long) -> c_int {
        const FIOCLEX: c_ulong = 0x5451;
        const FIONCLEX: c_ulong = 0x5450;
        let held = if is_inside() { None } else { descriptors::get(fd) };
        let held = held.filter(|_| !matches!(request, FIOCLEX | FIONCLEX));
        let Some(held) = held else {
            return real!(ioctl(fd: c_int, request: c_ulong, argument: c_long) -> c_int);
        };
        answered(&held, request, argument).unwrap_or_else(|| {
            set_errno(libc::ENOTTY);
            -1
        })
    }

    /// Moves the offset of an open file.
    [lseek, lseek64, llseek, __lseek](fd: c_int, offset: off_t, whence: c_int) -> off_t {
        let held = if is_inside() { None } else { descriptors::get(fd) };
        match held {
            Some(held) => seek(&held, offset, whence),
            None => real!(lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t),
        }
    }
}

/// The mode, where one is given.
fn mode_of(flags: c_int, mode: mode_t) -> mode_t {
    if flags & (libc::O_CREAT | TMPFILE) == 0 { 0 } else { mode }
}
