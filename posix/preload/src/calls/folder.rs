//! The working folder, and whole paths.

use std::ffi::{c_char, c_int};

use engram::Member;
use engram_fs::{At, Ino, ROOT};

use crate::descriptors;
use crate::places::{by_path, inside};
use crate::process;
use crate::real::{errno, interpose, real, set_errno};
use crate::trees::{Opened, Tree};

/// The absolute path of a folder of ours, as the program names it. The thread is inside.
pub fn path_of(tree: &Tree, opened: &Opened, folder: Ino) -> engram_fs::Result<Vec<u8>> {
    told(tree, opened, &path_in_pool(opened, folder)?)
}

fn path_in_pool(opened: &Opened, folder: Ino) -> engram_fs::Result<String> {
    let path = || opened.fs.namespace().path_of(Member::Group(folder));
    Ok(if folder == ROOT { String::new() } else { path()? })
}

/// The absolute path, as the program names it, of what has a path in the pool.
fn told(tree: &Tree, opened: &Opened, whole: &str) -> engram_fs::Result<Vec<u8>> {
    let top = path_in_pool(opened, opened.root)?;
    let below = whole.strip_prefix(&top).unwrap_or(whole).trim_start_matches('/');
    let mut told = tree.prefix.clone();
    if !below.is_empty() {
        told.push(b'/');
        told.extend_from_slice(below.as_bytes());
    }
    Ok(told)
}

/// Hands C a path: into its buffer, or into one that `malloc` gives.
unsafe fn hand(path: &[u8], to: *mut c_char, size: usize) -> *mut c_char {
    let to = if to.is_null() {
        let size = if size == 0 { path.len() + 1 } else { size };
        if size <= path.len() {
            set_errno(libc::ERANGE);
            return std::ptr::null_mut();
        }
        crate::heap::allocated(size).cast::<c_char>()
    } else if size == 0 {
        set_errno(libc::EINVAL);
        return std::ptr::null_mut();
    } else if size <= path.len() {
        set_errno(libc::ERANGE);
        return std::ptr::null_mut();
    } else {
        to
    };
    if !to.is_null() {
        // SAFETY: there is room for the path and its end.
        unsafe {
            std::ptr::copy_nonoverlapping(path.as_ptr(), to.cast::<u8>(), path.len());
            *to.add(path.len()) = 0;
        }
    }
    to
}

unsafe fn folder_path(to: *mut c_char, size: usize) -> Option<*mut c_char> {
    let (tree, folder) = process::folder()?;
    let mut path = None;
    let found: c_int = inside(|| {
        path = Some(path_of(tree, tree.open()?, folder)?);
        Ok(0)
    });
    if found != 0 {
        return Some(std::ptr::null_mut());
    }
    // SAFETY: the program's buffer.
    path.map(|path| unsafe { hand(&path, to, size) })
}

interpose! {
    /// Goes to a folder.
    [chdir](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_path(
                libc::AT_FDCWD,
                path,
                |tree, opened, asked, at| {
                    let folder = asked.chdir(at)?;
                    process::go_to(tree, folder, opened.fs.folder_above(folder)?);
                    Ok(0)
                },
                |_, path| {
                    let done = real!(chdir(path: *const c_char) -> c_int);
                    if done == 0 {
                        process::went_to_kernels();
                    }
                    done
                },
            )
        }
    }

    /// Goes to a folder that is open.
    [fchdir](fd: c_int) -> c_int {
        match descriptors::get(fd) {
            Some(held) => inside(|| {
                let found = held.asked()?.chdir(At::node(held.description().node()));
                let folder = found.map_err(crate::calls::of_node)?;
                let above = held.opened()?.fs.folder_above(folder)?;
                held.tree().into_iter().for_each(|tree| process::go_to(tree, folder, above));
                Ok(0)
            }),
            None => {
                let done = real!(fchdir(fd: c_int) -> c_int);
                if done == 0 {
                    process::went_to_kernels();
                }
                done
            }
        }
    }

    /// The working folder's path.
    [getcwd](to: *mut c_char, size: usize) -> *mut c_char {
        // SAFETY: the program's promise.
        match unsafe { folder_path(to, size) } {
            Some(path) => path,
            None => real!(getcwd(to: *mut c_char, size: usize) -> *mut c_char),
        }
    }

    /// The working folder's path, into memory of a known size.
    [__getcwd_chk](to: *mut c_char, size: usize, room: usize) -> *mut c_char {
        if size > room {
            return real!(__getcwd_chk(to: *mut c_char, size: usize, room: usize) -> *mut c_char);
        }
        // SAFETY: the program's promise.
        match unsafe { folder_path(to, size) } {
            Some(path) => path,
            None => real!(getcwd(to: *mut c_char, size: usize) -> *mut c_char),
        }
    }

    /// The working folder's path, in memory of its own.
    [get_current_dir_name]() -> *mut c_char {
        // SAFETY: no buffer is given.
        match unsafe { folder_path(std::ptr::null_mut(), 0) } {
            Some(path) => path,
            None => real!(get_current_dir_name() -> *mut c_char),
        }
    }

    /// The working folder's path, into memory of unknown size.
    [getwd](to: *mut c_char) -> *mut c_char {
        // SAFETY: the program's promise: there is room for any path.
        match unsafe { folder_path(to, libc::PATH_MAX as usize) } {
            Some(path) => path,
            None => real!(getwd(to: *mut c_char) -> *mut c_char),
        }
    }

    /// The working folder's path, into memory of a known size.
    [__getwd_chk](to: *mut c_char, room: usize) -> *mut c_char {
        // SAFETY: the program's promise.
        match unsafe { folder_path(to, room) } {
            Some(path) if path.is_null() && errno() == libc::ERANGE => {
                real!(__chk_fail() -> *mut c_char)
            }
            Some(path) => path,
            None => real!(__getwd_chk(to: *mut c_char, room: usize) -> *mut c_char),
        }
    }

    /// A path without links.
    [realpath](path: *const c_char, to: *mut c_char) -> *mut c_char {
        // SAFETY: the program's promise.
        unsafe { real_path(path, to) }
    }

    /// A path without links, into memory of a known size.
    [__realpath_chk](path: *const c_char, to: *mut c_char, room: usize) -> *mut c_char {
        if room < libc::PATH_MAX as usize {
            return real!(
                __realpath_chk(path: *const c_char, to: *mut c_char, room: usize) -> *mut c_char
            );
        }
        // SAFETY: the program's promise.
        unsafe { real_path(path, to) }
    }

    /// A path without links, in memory of its own.
    [canonicalize_file_name](path: *const c_char) -> *mut c_char {
        // SAFETY: the program's promise.
        unsafe { real_path(path, std::ptr::null_mut()) }
    }
}

unsafe fn real_path(path: *const c_char, to: *mut c_char) -> *mut c_char {
    // SAFETY: the program's promise.
    unsafe {
        by_path(
            libc::AT_FDCWD,
            path,
            |tree, opened, asked, at| {
                let stat = asked.stat(at, true)?;
                let path = whole_path(tree, opened, &stat)?;
                let room = if to.is_null() { 0 } else { libc::PATH_MAX as usize };
                Ok(hand(&path, to, room))
            },
            |_, path| real!(realpath(path: *const c_char, to: *mut c_char) -> *mut c_char),
        )
    }
}

/// The absolute path of a node.
pub fn whole_path(
    tree: &Tree,
    opened: &Opened,
    stat: &engram_fs::Stat,
) -> engram_fs::Result<Vec<u8>> {
    if stat.kind == engram_fs::NodeKind::Folder {
        return path_of(tree, opened, stat.ino);
    }
    let whole = opened.fs.namespace().path_of(Member::Object(stat.ino))?;
    told(tree, opened, &whole)
}
