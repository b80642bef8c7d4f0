//! Making, finding, changing and taking names.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint};

use engram_fs::trace::Operation;
use engram_fs::{Clash, NodeKind};
use libc::{dev_t, key_t, mode_t};

use crate::descriptions::What;
use crate::descriptors;
use crate::inside::is_inside;
use crate::places::{by_path, by_path_of, by_two_paths, inside, is_nowhere, own};
use crate::process;
use crate::real::{interpose, real, set_errno};
use crate::traced;

unsafe fn access_at(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    let effective = flags & libc::AT_EACCESS != 0;
    let caller = || {
        if effective { process::caller().clone() } else { process::real_caller() }
    };
    // SAFETY: a string, as the program gave it.
    let done = unsafe {
        by_path_of(
            caller,
            folder,
            path,
            |_, _, asked, at| asked.access(at, mode, follow).map(|()| 0),
            |folder, path| {
                real!(
                    faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int)
                        -> c_int
                )
            },
        )
    };
    traced::done(done, Operation::Access, folder, path)
}

unsafe fn make_folder(folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: a string, as the program gave it.
    let done = unsafe {
        by_path(
            folder,
            path,
            |_, _, asked, at| asked.mkdir(at, mode).map(|_| 0),
            |from, path| real!(mkdirat(from: c_int, path: *const c_char, mode: mode_t) -> c_int),
        )
    };
    if done == 0 {
        traced::named_folder(Operation::Create, folder, path);
    }
    done
}

unsafe fn make_node(folder: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: a string, as the program gave it.
    let done = unsafe {
        by_path(
            folder,
            path,
            |_, _, asked, at| asked.mknod(at, mode, device).map(|_| 0),
            |folder, path| {
                real!(
                    mknodat(folder: c_int, path: *const c_char, mode: mode_t, device: dev_t)
                        -> c_int
                )
            },
        )
    };
    traced::done(done, Operation::Create, folder, path)
}

unsafe fn make_link(target: *const c_char, folder: c_int, path: *const c_char) -> c_int {
    if is_nowhere(target) {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: strings, as the program gave them.
    let done = unsafe {
        by_path(
            folder,
            path,
            |_, _, asked, at| asked.symlink(CStr::from_ptr(target).to_bytes(), at).map(|_| 0),
            |folder, path| {
                real!(
                    symlinkat(target: *const c_char, folder: c_int, path: *const c_char) -> c_int
                )
            },
        )
    };
    traced::done(done, Operation::Create, folder, path)
}

unsafe fn read_link(folder: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize {
    if size == 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: a string and a buffer, as the program gave them.
    unsafe {
        let tell = |target: &[u8]| {
            let count = target.len().min(size);
            std::ptr::copy_nonoverlapping(target.as_ptr(), to.cast::<u8>(), count);
            count as isize
        };
        by_path(
            folder,
            path,
            |_, _, asked, at| Ok(tell(&asked.readlink(at)?)),
            |folder, path| {
                if !is_nowhere(path)
                    && let Some((tree, ino)) = own::target(CStr::from_ptr(path))
                {
                    return inside(|| Ok(tell(&own::written(tree, ino)?)));
                }
                real!(
                    readlinkat(folder: c_int, path: *const c_char, to: *mut c_char, size: usize)
                        -> isize
                )
            },
        )
    }
}

unsafe fn unlink_at(folder: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: a string, as the program gave it.
    let done = unsafe {
        by_path(
            folder,
            path,
            |_, _, asked, at| match flags {
                0 => asked.unlink(at).map(|()| 0),
                libc::AT_REMOVEDIR => asked.rmdir(at).map(|()| 0),
                _ => Err(crate::calls::descriptors::refused(
                    libc::EINVAL,
                    "unlinkat has no such flags",
                )
                .into()),
            },
            |from, path| real!(unlinkat(from: c_int, path: *const c_char, flags: c_int) -> c_int),
        )
    };
    match flags {
        _ if done != 0 => {}
        0 => traced::named(Operation::Unlink, folder, path),
        _ => traced::named_folder(Operation::Unlink, folder, path),
    }
    done
}

/// Instead of a mark that renaming leaves.
const BY_MARK: &str = "rename, and make the mark by mknod: a character device of the number 0";

unsafe fn rename_at(
    old: (c_int, *const c_char),
    new: (c_int, *const c_char),
    flags: c_uint,
) -> c_int {
    let clash = match flags {
        0 => Some(Clash::Replace),
        libc::RENAME_NOREPLACE => Some(Clash::Refuse),
        libc::RENAME_EXCHANGE => Some(Clash::Exchange),
        _ => None,
    };
    // SAFETY: strings, as the program gave them.
    let done = unsafe {
        by_two_paths(
            old,
            new,
            |asked, old, new| match clash {
                Some(clash) => asked.rename(old, new, clash),
                None => {
                    if flags & libc::RENAME_WHITEOUT != 0 {
                        traced::refused("renameat2", BY_MARK);
                    }
                    let what = "renameat2 has no such flags";
                    Err(crate::calls::descriptors::refused(libc::EINVAL, what).into())
                }
            },
            |(from, old), (to, new)| {
                if flags == 0 {
                    return real!(
                        renameat(from: c_int, old: *const c_char, to: c_int, new: *const c_char)
                            -> c_int
                    );
                }
                real!(
                    renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char,
                        flags: c_uint) -> c_int
                )
            },
        )
    };
    if done == 0 {
        let exchanged = flags == libc::RENAME_EXCHANGE;
        let what = if exchanged { Operation::Exchange } else { Operation::Rename };
        traced::named_two(what, old, new);
    }
    done
}

unsafe fn link_at(old: (c_int, *const c_char), new: (c_int, *const c_char), flags: c_int) -> c_int {
    // SAFETY: strings, as the program gave them.
    let done = unsafe {
        by_two_paths(
            old,
            new,
            |asked, old, new| {
                let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
                asked.link(old, new, follow).map(drop)
            },
            |(from, old), (to, new)| {
                real!(
                    linkat(from: c_int, old: *const c_char, to: c_int, new: *const c_char,
                        flags: c_int) -> c_int
                )
            },
        )
    };
    if done == 0 {
        traced::named_two(Operation::Link, old, new);
    }
    done
}

/// What the file system allows; `None`: what it is does not depend on the file system.
fn limit(name: c_int, is_file: bool) -> Option<c_long> {
    match name {
        libc::_PC_LINK_MAX => Some(c_long::from(i32::MAX)),
        libc::_PC_NAME_MAX => Some(255),
        libc::_PC_FILESIZEBITS => Some(64),
        libc::_PC_2_SYMLINKS => Some(1),
        libc::_PC_ASYNC_IO => Some(if is_file { 1 } else { -1 }),
        _ => None,
    }
}

/// A limit that is the same everywhere, as libc has it.
fn everywhere(name: c_int) -> engram_fs::Result<c_long> {
    let path = c"/".as_ptr();
    set_errno(0);
    let limit = real!(pathconf(path: *const c_char, name: c_int) -> c_long);
    match crate::real::errno() {
        code if limit == -1 && code != 0 => {
            Err(crate::calls::descriptors::refused(code, "pathconf knows no such limit"))
        }
        _ => Ok(limit),
    }
}

const HERE: c_int = libc::AT_FDCWD;

interpose! {
    /// What is allowed of a file, by its path.
    [pathconf](path: *const c_char, name: c_int) -> c_long {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                HERE,
                path,
                |_, _, asked, at| {
                    let is_file = asked.stat(at, true)?.kind == NodeKind::File;
                    Ok(limit(name, is_file).map_or_else(|| everywhere(name), Ok)?)
                },
                |_, path| real!(pathconf(path: *const c_char, name: c_int) -> c_long),
            )
        }
    }

    /// What is allowed of an open file.
    [fpathconf](fd: c_int, name: c_int) -> c_long {
        let held = if is_inside() { None } else { descriptors::get(fd) };
        let Some(held) = held else { return real!(fpathconf(fd: c_int, name: c_int) -> c_long) };
        inside(|| {
            let is_file = held.description().what() == What::File;
            limit(name, is_file).map_or_else(|| everywhere(name), Ok)
        })
    }

    /// A key for what processes share, of a file and a number.
    [ftok](path: *const c_char, project: c_int) -> key_t {
        // SAFETY: the program's promise, and a place for what is known.
        unsafe {
            let mut stat = std::mem::zeroed::<libc::stat>();
            if libc::stat(path, &raw mut stat) != 0 {
                return -1;
            }
            let (file, device) = (stat.st_ino & 0xffff, (stat.st_dev & 0xff) << 16);
            (file | device) as key_t | (project & 0xff) << 24
        }
    }

    /// Whether the real user may do something.
    [access](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { access_at(HERE, path, mode, 0) }
    }

    /// Whether the effective user may do something.
    [euidaccess, eaccess](path: *const c_char, mode: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { access_at(HERE, path, mode, libc::AT_EACCESS) }
    }

    /// Whether a user may do something, from a folder.
    [faccessat](folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { access_at(folder, path, mode, flags) }
    }

    /// A further name.
    [link](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { link_at((HERE, old), (HERE, new), 0) }
    }

    /// A further name, from folders.
    [linkat](from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_int)
        -> c_int
    {
        // SAFETY: the program's promise.
        unsafe { link_at((from, old), (to, new), flags) }
    }

    /// Makes a symbolic link.
    [symlink](target: *const c_char, path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_link(target, HERE, path) }
    }

    /// Makes a symbolic link, from a folder.
    [symlinkat](target: *const c_char, folder: c_int, path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_link(target, folder, path) }
    }

    /// Where a symbolic link leads.
    [readlink](path: *const c_char, to: *mut c_char, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe { read_link(HERE, path, to, size) }
    }

    /// Where a symbolic link leads, from a folder.
    [readlinkat](folder: c_int, path: *const c_char, to: *mut c_char, size: usize) -> isize {
        // SAFETY: the program's promise.
        unsafe { read_link(folder, path, to, size) }
    }

    /// Where a symbolic link leads, into memory of a known size.
    [__readlink_chk](path: *const c_char, to: *mut c_char, size: usize, room: usize) -> isize {
        if size > room {
            return real!(
                __readlink_chk(path: *const c_char, to: *mut c_char, size: usize, room: usize)
                    -> isize
            );
        }
        // SAFETY: the program's promise.
        unsafe { read_link(HERE, path, to, size) }
    }

    /// Where a symbolic link leads, from a folder, into memory of a known size.
    [__readlinkat_chk](
        folder: c_int, path: *const c_char, to: *mut c_char, size: usize, room: usize
    ) -> isize {
        if size > room {
            return real!(
                __readlinkat_chk(folder: c_int, path: *const c_char, to: *mut c_char,
                    size: usize, room: usize) -> isize
            );
        }
        // SAFETY: the program's promise.
        unsafe { read_link(folder, path, to, size) }
    }

    /// Takes a name away.
    [unlink](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { unlink_at(HERE, path, 0) }
    }

    /// Takes a name away, from a folder.
    [unlinkat](folder: c_int, path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe { unlink_at(folder, path, flags) }
    }

    /// Removes an empty folder.
    [rmdir](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { unlink_at(HERE, path, libc::AT_REMOVEDIR) }
    }

    /// Removes whatever has a name.
    [remove](path: *const c_char) -> c_int {
        let before = crate::real::errno();
        // SAFETY: the program's promise.
        let done = unsafe { unlink_at(HERE, path, 0) };
        if done == 0 || !matches!(crate::real::errno(), libc::EISDIR | libc::EPERM) {
            return done;
        }
        let why = crate::real::errno();
        // SAFETY: the program's promise.
        let done = unsafe { unlink_at(HERE, path, libc::AT_REMOVEDIR) };
        if done == 0 {
            set_errno(before);
        } else if crate::real::errno() == libc::ENOTDIR {
            set_errno(why);
        }
        done
    }

    /// Gives another name.
    [rename](old: *const c_char, new: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { rename_at((HERE, old), (HERE, new), 0) }
    }

    /// Gives another name, from folders.
    [renameat](from: c_int, old: *const c_char, to: c_int, new: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { rename_at((from, old), (to, new), 0) }
    }

    /// The same, by flags.
    [renameat2](from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint)
        -> c_int
    {
        // SAFETY: the program's promise.
        unsafe { rename_at((from, old), (to, new), flags) }
    }

    /// Makes a folder.
    [mkdir](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_folder(HERE, path, mode) }
    }

    /// Makes a folder, from another one.
    [mkdirat](folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_folder(folder, path, mode) }
    }

    /// Makes a FIFO.
    [mkfifo](path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_node(HERE, path, mode & 0o7777 | libc::S_IFIFO, 0) }
    }

    /// Makes a FIFO, from a folder.
    [mkfifoat](folder: c_int, path: *const c_char, mode: mode_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_node(folder, path, mode & 0o7777 | libc::S_IFIFO, 0) }
    }

    /// Makes a special file.
    [mknod](path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_node(HERE, path, mode, device) }
    }

    /// Makes a special file, from a folder.
    [mknodat](folder: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        // SAFETY: the program's promise.
        unsafe { make_node(folder, path, mode, device) }
    }

    /// As programs made it until 2.32.
    [__xmknod](version: c_int, path: *const c_char, mode: mode_t, device: *const dev_t) -> c_int {
        if version != 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        // SAFETY: the program's promise.
        unsafe { make_node(HERE, path, mode, *device) }
    }

    /// The same, from a folder.
    [__xmknodat](
        version: c_int, folder: c_int, path: *const c_char, mode: mode_t, device: *const dev_t
    ) -> c_int {
        if version != 0 {
            set_errno(libc::EINVAL);
            return -1;
        }
        // SAFETY: the program's promise.
        unsafe { make_node(folder, path, mode, *device) }
    }
}
