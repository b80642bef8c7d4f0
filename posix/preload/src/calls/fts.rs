//! Walks over trees by `fts`. Those by `ftw` are [`super::walks`]'s.
//!
//! A walk of which a path begins below a prefix goes on here, by the public functions of C, which
//! are those of this library. All others are libc's. A bit of the walk's options, which libc does
//! not know, tells ours from libc's.
//!
//! What C shows of a walk are entries that are linked: up to the folder, and on to the next of it.
//! A folder's entries are built when it is entered, or by `fts_children`. The path lies in one
//! buffer, of the longest size that an entry can tell, so it never moves.

mod entries;
mod steps;

use std::ffi::{CStr, c_char, c_int, c_long, c_short, c_ushort, c_void};
use std::ptr::null_mut;

use libc::stat;

use crate::calls::walks::begins_here;
use crate::real::{errno, interpose, real, set_errno};
use entries::free_all;
use steps::here;

const COMFOLLOW: c_int = 0x0001;
const LOGICAL: c_int = 0x0002;
const NOCHDIR: c_int = 0x0004;
const NOSTAT: c_int = 0x0008;
const PHYSICAL: c_int = 0x0010;
const SEEDOT: c_int = 0x0020;
const XDEV: c_int = 0x0040;
/// What a program may ask for.
const OPTIONS: c_int = 0x00ff;
/// The children that are there have names alone.
const NAMES_ALONE: c_int = 0x0100;
/// The walk has failed, and is over.
const STOP: c_int = 0x0200;
/// The walk is one of ours.
const OURS: c_int = 0x4000_0000;

const D: c_ushort = 1;
const DC: c_ushort = 2;
const DEFAULT: c_ushort = 3;
const DNR: c_ushort = 4;
const DOT: c_ushort = 5;
const DP: c_ushort = 6;
const ERR: c_ushort = 7;
const F: c_ushort = 8;
const INIT: c_ushort = 9;
const NS: c_ushort = 10;
const NSOK: c_ushort = 11;
const SL: c_ushort = 12;
const SLNONE: c_ushort = 13;

const AGAIN: c_int = 1;
const FOLLOW: c_int = 2;
const NOINSTR: c_int = 3;
const SKIP: c_int = 4;

/// The walk did not go into the folder, so it need not come out.
const DONTCHDIR: c_ushort = 1;
/// The walk came there by a link, and goes back by a descriptor.
const SYMFOLLOW: c_ushort = 2;

/// The level of what the walk begins with; that of what stands above it is one less.
const TOP: c_short = 0;
/// The longest path that an entry can tell, and its NUL.
const PATH: usize = c_ushort::MAX as usize + 1;

type Compare = Option<unsafe extern "C-unwind" fn(*mut *const Entry, *mut *const Entry) -> c_int>;

/// A walk, as C shows it: `FTS`.
#[repr(C)]
struct Walk {
    cur: *mut Entry,
    child: *mut Entry,
    array: *mut *mut Entry,
    dev: u64,
    path: *mut c_char,
    rfd: c_int,
    pathlen: c_int,
    nitems: c_int,
    compare: Compare,
    options: c_int,
}

/// What a walk meets, as C shows it: `FTSENT`.
#[repr(C)]
struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    accpath: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    symfd: c_int,
    pathlen: c_ushort,
    namelen: c_ushort,
    ino: u64,
    dev: u64,
    nlink: libc::nlink_t,
    level: c_short,
    info: c_ushort,
    flags: c_ushort,
    instr: c_ushort,
    statp: *mut stat,
    name: [c_char; 1],
}

/// For which of its calls a folder is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// The walk enters it.
    Read,
    /// `fts_children`.
    Children,
    /// `fts_children`, of names alone.
    Names,
}

impl Walk {
    fn has(&self, option: c_int) -> bool {
        self.options & option != 0
    }

    fn stop<T>(&mut self) -> *mut T {
        self.options |= STOP;
        null_mut()
    }

    /// A walk that begins with these paths; null: there is no memory, or a path that cannot be.
    unsafe fn open(paths: *const *mut c_char, options: c_int, compare: Compare) -> *mut Walk {
        // SAFETY: memory of its own, zeros, which are valid; and the program's list of strings.
        unsafe {
            let walk = libc::calloc(1, size_of::<Walk>()).cast::<Walk>();
            let path = libc::malloc(PATH).cast::<c_char>();
            if walk.is_null() || path.is_null() {
                libc::free(walk.cast::<c_void>());
                libc::free(path.cast::<c_void>());
                set_errno(libc::ENOMEM);
                return null_mut();
            }
            let logical = if options & LOGICAL != 0 { NOCHDIR } else { 0 };
            (*walk).options = options | logical | OURS;
            ((*walk).path, (*walk).pathlen) = (path, PATH as c_int);
            ((*walk).compare, (*walk).rfd) = (compare, -1);
            if let Err(code) = (*walk).begin(paths) {
                (*walk).free();
                set_errno(code);
                return null_mut();
            }
            walk
        }
    }

    /// Makes the entries of the paths, and one that stands before them.
    unsafe fn begin(&mut self, paths: *const *mut c_char) -> Result<(), c_int> {
        // SAFETY: the program's list of strings, which a null ends; entries of this walk.
        unsafe {
            let above = self.entry(b"");
            let before = self.entry(b"");
            self.cur = before;
            if above.is_null() || before.is_null() {
                libc::free(above.cast::<c_void>());
                return Err(libc::ENOMEM);
            }
            (*above).level = TOP - 1;
            ((*before).info, (*before).level, (*before).parent) = (INIT, TOP, above);
            let (mut tail, mut count) = (&raw mut (*before).link, 0);
            while !(*paths.add(count)).is_null() {
                let name = CStr::from_ptr(*paths.add(count)).to_bytes();
                match name.len() {
                    0 => return Err(libc::ENOENT),
                    PATH.. => return Err(libc::ENAMETOOLONG),
                    _ => {}
                }
                let new = self.entry(name);
                if new.is_null() {
                    return Err(libc::ENOMEM);
                }
                ((*new).level, (*new).parent) = (TOP, above);
                (*new).accpath = (&raw mut (*new).name).cast::<c_char>();
                let info = self.look(new, self.has(COMFOLLOW));
                (*new).info = if info == DOT { D } else { info };
                *tail = new;
                tail = &raw mut (*new).link;
                count += 1;
            }
            (*before).link = self.sorted((*before).link, count);
            if !self.has(NOCHDIR) {
                self.rfd = here();
                if self.rfd < 0 {
                    self.options |= NOCHDIR;
                }
            }
            Ok(())
        }
    }

    /// Frees all of the walk.
    unsafe fn free(&mut self) {
        // SAFETY: entries of this walk, which nobody has any more.
        unsafe {
            let mut entry = self.cur;
            while !entry.is_null() {
                let next = if (*entry).link.is_null() { (*entry).parent } else { (*entry).link };
                libc::free(entry.cast::<c_void>());
                entry = next;
            }
            free_all(self.child);
            libc::free(self.path.cast::<c_void>());
            libc::free(std::ptr::from_mut(self).cast::<c_void>());
        }
    }

    /// Ends the walk, and goes back to where the program was.
    unsafe fn close(&mut self) -> c_int {
        let (is_away, fd) = (!self.has(NOCHDIR), self.rfd);
        // SAFETY: a walk of ours, which the program has no more.
        unsafe {
            self.free();
            if !is_away {
                return 0;
            }
            let done = libc::fchdir(fd);
            let code = errno();
            libc::close(fd);
            if done != 0 {
                set_errno(code);
            }
            done
        }
    }
}

/// The walk, if it is one of ours.
unsafe fn ours<'w>(walk: *mut Walk) -> Option<&'w mut Walk> {
    // SAFETY: a walk, of ours or of libc's, which begin alike.
    unsafe { walk.as_mut().filter(|walk| walk.has(OURS)) }
}

interpose! {
    /// Begins a walk.
    [fts_open, fts64_open](paths: *const *mut c_char, options: c_int, compare: Compare)
        -> *mut Walk
    {
        // SAFETY: the program's promise.
        unsafe {
            let mut at = paths;
            while options & !OPTIONS == 0 && !at.is_null() && !(*at).is_null() {
                if begins_here(*at) {
                    return Walk::open(paths, options, compare);
                }
                at = at.add(1);
            }
        }
        real!(
            fts_open(paths: *const *mut c_char, options: c_int, compare: Compare) -> *mut Walk
        )
    }

    /// What the walk meets next.
    [fts_read, fts64_read](walk: *mut Walk) -> *mut Entry {
        // SAFETY: the program's promise.
        unsafe {
            if let Some(walk) = ours(walk) {
                return walk.read();
            }
        }
        real!(fts_read(walk: *mut Walk) -> *mut Entry)
    }

    /// What is in the folder that the walk is at.
    [fts_children, fts64_children](walk: *mut Walk, options: c_int) -> *mut Entry {
        // SAFETY: the program's promise.
        unsafe {
            if let Some(walk) = ours(walk) {
                return match options {
                    0 => walk.children(For::Children),
                    NAMES_ALONE => walk.children(For::Names),
                    _ => {
                        set_errno(libc::EINVAL);
                        null_mut()
                    }
                };
            }
        }
        real!(fts_children(walk: *mut Walk, options: c_int) -> *mut Entry)
    }

    /// Says what the walk is to do with an entry.
    [fts_set, fts64_set](walk: *mut Walk, entry: *mut Entry, option: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if ours(walk).is_some() {
                if !(0..=SKIP).contains(&option) {
                    set_errno(libc::EINVAL);
                    return 1;
                }
                (*entry).instr = option as c_ushort;
                return 0;
            }
        }
        real!(fts_set(walk: *mut Walk, entry: *mut Entry, option: c_int) -> c_int)
    }

    /// Ends a walk.
    [fts_close, fts64_close](walk: *mut Walk) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if let Some(walk) = ours(walk) {
                return walk.close();
            }
        }
        real!(fts_close(walk: *mut Walk) -> c_int)
    }
}
