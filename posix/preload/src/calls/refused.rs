//! Calls that only the kernel can answer, of files that it knows: of one of ours they are refused.
//!
//! They belong to several groups of `symbols.toml`, which says what each remedy is. A path is
//! looked at first: one that leads out of the pool is the kernel's.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};

use crate::calls::refused_call;
use crate::calls::walks::begins_here;
use crate::descriptors;
use crate::inside::is_inside;
use crate::places::{by_path, fail};
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

const HERE: c_int = libc::AT_FDCWD;
/// Instead of a call by which the kernel mounts, or reads and writes.
const ELSEWHERE: &str = "use a path outside of the pool";
/// Instead of handles.
const BY_PATH: &str = "use the path below a mount of the pool";
/// Instead of watches.
const BY_TIMES: &str = "look at st_mtime, or use the mount, which tells of its own changes";
/// Instead of another root.
const MOUNTED: &str = "mount the pool below the new root";
/// Instead of `wordexp`.
const BY_GLOB: &str = "use glob, or a shell";

/// Whether a call means a descriptor of ours itself: it gives no path.
unsafe fn is_itself(folder: c_int, path: *const c_char) -> bool {
    // SAFETY: a string, as the program gave it.
    let is_empty = path.is_null() || unsafe { *path } == 0;
    is_empty && !is_inside() && descriptors::is_ours(folder)
}

/// A call that the kernel answers, unless its path leads to a node of ours.
unsafe fn by_kernel(
    name: &str,
    remedy: &str,
    folder: c_int,
    path: *const c_char,
    kernel: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: a string, as the program gave it.
    unsafe {
        if is_itself(folder, path) {
            return fail(&refused_call(name, remedy));
        }
        by_path(
            folder,
            path,
            |_, _, asked, at| {
                asked.stat(at, true)?;
                Err(refused_call(name, remedy).into())
            },
            kernel,
        )
    }
}

/// Whether a path leads to a node of ours.
unsafe fn is_ours(folder: c_int, path: *const c_char) -> bool {
    let before = errno();
    // SAFETY: a string, as the program gave it.
    let is_ours = unsafe {
        is_itself(folder, path)
            || by_path(folder, path, |_, _, asked, at| asked.stat(at, true).map(|_| 1), |_, _| 0)
                == 1
    };
    set_errno(before);
    is_ours
}

/// A call for another root, which changes what all paths mean, unless it is the one there is.
unsafe fn by_root(
    name: &str,
    path: *const c_char,
    kernel: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    // SAFETY: a string, as the program gave it.
    unsafe {
        let is_same = !path.is_null() && CStr::from_ptr(path) == c"/";
        if trees::all().is_empty() || is_same || path.is_null() {
            return kernel(HERE, path);
        }
        by_path(
            HERE,
            path,
            |_, _, asked, at| {
                asked.stat(at, true)?;
                Err(refused_call(name, MOUNTED).into())
            },
            |_, _| fail(&refused_call(name, MOUNTED)),
        )
    }
}

/// Whether one of these words is a pattern of names of ours.
unsafe fn has_patterns(words: *const c_char) -> bool {
    if words.is_null() || trees::all().is_empty() {
        return false;
    }
    // SAFETY: a string, as the program gave it.
    let words = unsafe { CStr::from_ptr(words) }.to_bytes();
    words.split(u8::is_ascii_whitespace).any(|word| {
        let word = std::ffi::CString::new(word).unwrap_or_default();
        let is_pattern = word.to_bytes().iter().any(|byte| b"*?[".contains(byte));
        // SAFETY: a string.
        is_pattern && unsafe { begins_here(word.as_ptr()) }
    })
}

/// What `wordexp` says that it cannot do.
const WRDE_NOSYS: c_int = -1;

interpose! {
    /// A handle of a file, by which the kernel finds it again.
    [name_to_handle_at](
        folder: c_int, path: *const c_char, to: *mut c_void, mount: *mut c_int, flags: c_int
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("name_to_handle_at", BY_PATH, folder, path, |folder, path| {
                real!(
                    name_to_handle_at(folder: c_int, path: *const c_char, to: *mut c_void,
                        mount: *mut c_int, flags: c_int) -> c_int
                )
            })
        }
    }

    /// Opens a file by its handle.
    [open_by_handle_at](mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        if !is_inside() && descriptors::is_ours(mount) {
            return fail(&refused_call("open_by_handle_at", BY_PATH));
        }
        real!(open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int)
    }

    /// Another root.
    [chroot](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe { by_root("chroot", path, |_, path| real!(chroot(path: *const c_char) -> c_int)) }
    }

    /// Another root, by mounts.
    [pivot_root](root: *const c_char, old: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_root("pivot_root", root, |_, root| {
                real!(pivot_root(root: *const c_char, old: *const c_char) -> c_int)
            })
        }
    }

    /// Watches a file.
    [inotify_add_watch](fd: c_int, path: *const c_char, mask: c_uint) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("inotify_add_watch", BY_TIMES, HERE, path, |_, path| {
                real!(inotify_add_watch(fd: c_int, path: *const c_char, mask: c_uint) -> c_int)
            })
        }
    }

    /// Watches a file, a mount or a file system.
    [fanotify_mark](
        fd: c_int, flags: c_uint, mask: u64, folder: c_int, path: *const c_char
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("fanotify_mark", BY_TIMES, folder, path, |folder, path| {
                real!(
                    fanotify_mark(fd: c_int, flags: c_uint, mask: u64, folder: c_int,
                        path: *const c_char) -> c_int
                )
            })
        }
    }

    /// Has the kernel write down which processes end.
    [acct](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("acct", ELSEWHERE, HERE, path, |_, path| {
                real!(acct(path: *const c_char) -> c_int)
            })
        }
    }

    /// Has the kernel swap to a file.
    [swapon](path: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("swapon", ELSEWHERE, HERE, path, |_, path| {
                real!(swapon(path: *const c_char, flags: c_int) -> c_int)
            })
        }
    }

    /// Has the kernel swap to a file no more.
    [swapoff](path: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("swapoff", ELSEWHERE, HERE, path, |_, path| {
                real!(swapoff(path: *const c_char) -> c_int)
            })
        }
    }

    /// Mounts a file system.
    [mount](
        source: *const c_char, target: *const c_char, kind: *const c_char, flags: c_ulong,
        data: *const c_void
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if is_ours(HERE, source) {
                return fail(&refused_call("mount", ELSEWHERE));
            }
            by_kernel("mount", ELSEWHERE, HERE, target, |_, target| {
                real!(
                    mount(source: *const c_char, target: *const c_char, kind: *const c_char,
                        flags: c_ulong, data: *const c_void) -> c_int
                )
            })
        }
    }

    /// Unmounts a file system.
    [umount](target: *const c_char) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("umount", ELSEWHERE, HERE, target, |_, target| {
                real!(umount(target: *const c_char) -> c_int)
            })
        }
    }

    /// Unmounts a file system, by flags.
    [umount2](target: *const c_char, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("umount2", ELSEWHERE, HERE, target, |_, target| {
                real!(umount2(target: *const c_char, flags: c_int) -> c_int)
            })
        }
    }

    /// A mount, to be changed.
    [fspick](folder: c_int, path: *const c_char, flags: c_uint) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("fspick", ELSEWHERE, folder, path, |folder, path| {
                real!(fspick(folder: c_int, path: *const c_char, flags: c_uint) -> c_int)
            })
        }
    }

    /// Changes a mount.
    [mount_setattr](
        folder: c_int, path: *const c_char, flags: c_uint, to: *mut c_void, size: usize
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("mount_setattr", ELSEWHERE, folder, path, |folder, path| {
                real!(
                    mount_setattr(folder: c_int, path: *const c_char, flags: c_uint,
                        to: *mut c_void, size: usize) -> c_int
                )
            })
        }
    }

    /// A mount, or a copy of one.
    [open_tree](folder: c_int, path: *const c_char, flags: c_uint) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            by_kernel("open_tree", ELSEWHERE, folder, path, |folder, path| {
                real!(open_tree(folder: c_int, path: *const c_char, flags: c_uint) -> c_int)
            })
        }
    }

    /// Moves a mount.
    [move_mount](
        from: c_int, path: *const c_char, to: c_int, name: *const c_char, flags: c_uint
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if is_ours(to, name) {
                return fail(&refused_call("move_mount", ELSEWHERE));
            }
            by_kernel("move_mount", ELSEWHERE, from, path, |from, path| {
                real!(
                    move_mount(from: c_int, path: *const c_char, to: c_int, name: *const c_char,
                        flags: c_uint) -> c_int
                )
            })
        }
    }

    /// Words, as a shell expands them.
    [wordexp](words: *const c_char, to: *mut c_void, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        if unsafe { has_patterns(words) } {
            let _: c_int = fail(&refused_call("wordexp", BY_GLOB));
            return WRDE_NOSYS;
        }
        real!(wordexp(words: *const c_char, to: *mut c_void, flags: c_int) -> c_int)
    }

    /// A catalogue of messages, which the C library reads by itself.
    [catopen](name: *const c_char, flags: c_int) -> *mut c_void {
        // SAFETY: the program's promise.
        if unsafe { is_ours(HERE, name) } {
            let _: c_int = fail(&refused_call("catopen", ELSEWHERE));
            return std::ptr::without_provenance_mut(usize::MAX);
        }
        real!(catopen(name: *const c_char, flags: c_int) -> *mut c_void)
    }

    /// Where a program's translations are, which the C library reads by itself.
    [bindtextdomain](domain: *const c_char, folder: *const c_char) -> *mut c_char {
        // SAFETY: the program's promise.
        if !folder.is_null() && unsafe { is_ours(HERE, folder) } {
            return fail(&refused_call("bindtextdomain", ELSEWHERE));
        }
        real!(bindtextdomain(domain: *const c_char, folder: *const c_char) -> *mut c_char)
    }

    /// Other pages of a file, where a map is.
    [remap_file_pages](
        at: *mut c_void, size: usize, protection: c_int, page: usize, flags: c_int
    ) -> c_int {
        if super::memory::is_ours(at, size) {
            return fail(&refused_call("remap_file_pages", "map each part with mmap"));
        }
        real!(
            remap_file_pages(at: *mut c_void, size: usize, protection: c_int, page: usize,
                flags: c_int) -> c_int
        )
    }
}
