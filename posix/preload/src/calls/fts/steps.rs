//! Steps: from what is met to what is met next.

use std::ffi::{c_char, c_int, c_ushort, c_void};
use std::ptr::null_mut;

use libc::stat;

use super::entries::free_all;
use super::{
    AGAIN, D, DONTCHDIR, DP, ERR, Entry, FOLLOW, For, INIT, NAMES_ALONE, NOCHDIR, NOINSTR, SKIP,
    SL, SLNONE, STOP, SYMFOLLOW, TOP, Walk, XDEV,
};
use crate::real::{errno, set_errno};

/// A number for the folder that the program is in.
pub(super) fn here() -> c_int {
    // SAFETY: a string.
    unsafe { libc::open(c".".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
}

impl Walk {
    /// Goes to a folder, if it is the one that was met; `fd` is its number, or `path` leads there.
    pub(super) unsafe fn go_to(&self, entry: *const Entry, fd: c_int, path: *const c_char) -> bool {
        if self.has(NOCHDIR) {
            return true;
        }
        // SAFETY: an entry of this walk, and a string.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let new = if fd < 0 { libc::open(path, flags) } else { fd };
            if new < 0 {
                return false;
            }
            let mut stat = std::mem::zeroed::<stat>();
            let mut is_done = libc::fstat(new, &raw mut stat) == 0;
            if is_done {
                if ((*entry).dev, (*entry).ino) == (stat.st_dev, stat.st_ino) {
                    is_done = libc::fchdir(new) == 0;
                } else {
                    set_errno(libc::ENOENT);
                    is_done = false;
                }
            }
            let code = errno();
            if fd < 0 {
                libc::close(new);
            }
            set_errno(code);
            is_done
        }
    }

    /// Goes back to where the program was.
    pub(super) fn go_back(&self, fd: c_int) -> bool {
        // SAFETY: a number.
        self.has(NOCHDIR) || unsafe { libc::fchdir(fd) } == 0
    }

    /// Goes to the folder above one.
    pub(super) unsafe fn go_up(&self, from: *const Entry) -> bool {
        // SAFETY: an entry of this walk.
        unsafe {
            if (*from).level == TOP {
                return self.go_back(self.rfd);
            }
            self.go_to((*from).parent, -1, c"..".as_ptr())
        }
    }

    /// Begins with a path that the program gave.
    unsafe fn load(&mut self, top: *mut Entry) {
        // SAFETY: an entry of this walk; its name fits where the path stands.
        unsafe {
            let name = (&raw mut (*top).name).cast::<c_char>();
            let len = usize::from((*top).namelen);
            (*top).pathlen = (*top).namelen;
            std::ptr::copy_nonoverlapping(name, self.path, len + 1);
            let bytes = std::slice::from_raw_parts(name.cast::<u8>(), len);
            if let Some(slash) = bytes.iter().rposition(|byte| *byte == b'/')
                && (slash > 0 || len > 1)
            {
                let kept = len - slash - 1;
                std::ptr::copy(name.add(slash + 1), name, kept + 1);
                (*top).namelen = kept as c_ushort;
            }
            ((*top).accpath, (*top).path) = (self.path, self.path);
            self.dev = (*top).dev;
        }
    }

    /// Looks through a link, as the program has asked for.
    unsafe fn follow(&self, entry: *mut Entry) {
        // SAFETY: an entry of this walk.
        unsafe {
            (*entry).info = self.look(entry, true);
            if (*entry).info == D && !self.has(NOCHDIR) {
                (*entry).symfd = here();
                if (*entry).symfd < 0 {
                    ((*entry).errno, (*entry).info) = (errno(), ERR);
                } else {
                    (*entry).flags |= SYMFOLLOW;
                }
            }
        }
    }

    /// What the walk meets next; null at its end.
    pub(super) unsafe fn read(&mut self) -> *mut Entry {
        if self.cur.is_null() || self.has(STOP) {
            return null_mut();
        }
        // SAFETY: entries of this walk.
        unsafe {
            let cur = self.cur;
            let asked = c_int::from((*cur).instr);
            (*cur).instr = NOINSTR as c_ushort;
            if asked == AGAIN {
                (*cur).info = self.look(cur, false);
                return cur;
            }
            if asked == FOLLOW && matches!((*cur).info, SL | SLNONE) {
                self.follow(cur);
                return cur;
            }
            if (*cur).info == D {
                return self.enter(asked);
            }
            self.go_on(cur)
        }
    }

    /// Goes into the folder that the walk is at.
    unsafe fn enter(&mut self, asked: c_int) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe {
            let cur = self.cur;
            if asked == SKIP || self.has(XDEV) && (*cur).dev != self.dev {
                if (*cur).flags & SYMFOLLOW != 0 {
                    libc::close((*cur).symfd);
                }
                free_all(std::mem::replace(&mut self.child, null_mut()));
                (*cur).info = DP;
                return cur;
            }
            if !self.child.is_null() && self.has(NAMES_ALONE) {
                self.options &= !NAMES_ALONE;
                free_all(std::mem::replace(&mut self.child, null_mut()));
            }
            if self.child.is_null() {
                self.child = self.build(For::Read);
                if self.child.is_null() {
                    return if self.has(STOP) { null_mut() } else { cur };
                }
            } else if !self.go_to(cur, -1, (*cur).accpath) {
                (*cur).errno = errno();
                (*cur).flags |= DONTCHDIR;
                let mut child = self.child;
                while !child.is_null() {
                    (*child).accpath = (*(*child).parent).accpath;
                    child = (*child).link;
                }
            }
            let first = std::mem::replace(&mut self.child, null_mut());
            self.arrive(first)
        }
    }

    /// The walk is at an entry of a folder.
    unsafe fn arrive(&mut self, entry: *mut Entry) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe { self.put(self.end_of((*entry).parent), entry) };
        self.cur = entry;
        entry
    }

    /// Goes on behind an entry, which is freed.
    unsafe fn go_on(&mut self, mut left: *mut Entry) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe {
            loop {
                let next = (*left).link;
                if next.is_null() {
                    return self.go_above(left);
                }
                self.cur = next;
                libc::free(left.cast::<c_void>());
                if (*next).level == TOP {
                    if !self.go_back(self.rfd) {
                        return self.stop();
                    }
                    self.load(next);
                    return next;
                }
                match c_int::from((*next).instr) {
                    SKIP => left = next,
                    FOLLOW => {
                        self.arrive(next);
                        self.follow(next);
                        (*next).instr = NOINSTR as c_ushort;
                        return next;
                    }
                    _ => return self.arrive(next),
                }
            }
        }
    }

    /// Comes out of a folder, of which the last entry is freed.
    unsafe fn go_above(&mut self, left: *mut Entry) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe {
            let above = (*left).parent;
            self.cur = above;
            libc::free(left.cast::<c_void>());
            if (*above).level < TOP {
                libc::free(above.cast::<c_void>());
                // By which a program tells the end from an error.
                set_errno(0);
                self.cur = null_mut();
                return null_mut();
            }
            *self.path.add((*above).pathlen as usize) = 0;
            let is_back = if (*above).level == TOP {
                self.go_back(self.rfd)
            } else if (*above).flags & SYMFOLLOW != 0 {
                let is_back = self.go_back((*above).symfd);
                let code = errno();
                libc::close((*above).symfd);
                set_errno(code);
                is_back
            } else {
                (*above).flags & DONTCHDIR != 0 || self.go_up(above)
            };
            if !is_back {
                return self.stop();
            }
            (*above).info = if (*above).errno == 0 { DP } else { ERR };
            above
        }
    }

    /// The entries of the folder that the walk is at.
    pub(super) unsafe fn children(&mut self, why: For) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe {
            let cur = self.cur;
            set_errno(0);
            if self.has(STOP) || cur.is_null() {
                return null_mut();
            }
            match (*cur).info {
                INIT => return (*cur).link,
                D => {}
                _ => return null_mut(),
            }
            free_all(std::mem::replace(&mut self.child, null_mut()));
            if why == For::Names {
                self.options |= NAMES_ALONE;
            }
            let is_whole = *(*cur).accpath as u8 == b'/';
            if (*cur).level != TOP || is_whole || self.has(NOCHDIR) {
                self.child = self.build(why);
                return self.child;
            }
            // Reading a folder by a relative path leaves the one that the path begins in.
            let before = here();
            if before < 0 {
                return null_mut();
            }
            self.child = self.build(why);
            let is_back = libc::fchdir(before) == 0;
            libc::close(before);
            if is_back { self.child } else { null_mut() }
        }
    }
}
