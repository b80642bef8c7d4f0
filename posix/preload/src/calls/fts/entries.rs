//! Entries: made of names, looked at, and sorted.

use std::ffi::{CStr, c_char, c_int, c_ushort, c_void};
use std::ptr::null_mut;

use libc::{DIR, stat};

use super::{
    Compare, D, DC, DEFAULT, DNR, DONTCHDIR, DOT, DP, ERR, Entry, F, For, LOGICAL, NOCHDIR,
    NOINSTR, NOSTAT, NS, NSOK, PATH, PHYSICAL, SEEDOT, SL, SLNONE, TOP, Walk,
};
use crate::real::{errno, real, set_errno};

/// Frees entries that are linked.
pub(super) unsafe fn free_all(mut entry: *mut Entry) {
    while !entry.is_null() {
        // SAFETY: entries of `Walk::entry`, which nobody has any more.
        unsafe {
            let next = (*entry).link;
            libc::free(entry.cast::<c_void>());
            entry = next;
        }
    }
}

impl Walk {
    /// A new entry of a name; null: there is no memory.
    pub(super) unsafe fn entry(&self, name: &[u8]) -> *mut Entry {
        let name_at = std::mem::offset_of!(Entry, name);
        let stat_at = (name_at + name.len() + 1).next_multiple_of(align_of::<stat>());
        let size = (stat_at + size_of::<stat>()).max(size_of::<Entry>());
        // SAFETY: memory of this size, zeros, of which each field has its own.
        unsafe {
            let new = libc::calloc(1, size).cast::<Entry>();
            if new.is_null() {
                return new;
            }
            let to = new.cast::<u8>().add(name_at);
            std::ptr::copy_nonoverlapping(name.as_ptr(), to, name.len());
            (*new).namelen = name.len() as c_ushort;
            (*new).path = self.path;
            (*new).instr = NOINSTR as c_ushort;
            if !self.has(NOSTAT) {
                (*new).statp = new.byte_add(stat_at).cast::<stat>();
            }
            new
        }
    }

    /// Looks at an entry; what it is.
    pub(super) unsafe fn look(&self, entry: *mut Entry, follow: bool) -> c_ushort {
        // SAFETY: an entry of this walk, and its path.
        unsafe {
            let mut own = std::mem::zeroed::<stat>();
            let to = if self.has(NOSTAT) { &raw mut own } else { (*entry).statp };
            let path = (*entry).accpath;
            if self.has(LOGICAL) || follow {
                if libc::stat(path, to) != 0 {
                    let code = errno();
                    if libc::lstat(path, to) == 0 {
                        set_errno(0);
                        return SLNONE;
                    }
                    return unknown(entry, to, code);
                }
            } else if libc::lstat(path, to) != 0 {
                return unknown(entry, to, errno());
            }
            match (*to).st_mode & libc::S_IFMT {
                libc::S_IFDIR => folder(entry, &*to),
                libc::S_IFLNK => SL,
                libc::S_IFREG => F,
                _ => DEFAULT,
            }
        }
    }

    /// Where a name stands behind the path of a folder, and its slash.
    pub(super) unsafe fn end_of(&self, folder: *const Entry) -> usize {
        // SAFETY: the path of an entry.
        unsafe {
            let len = usize::from((*folder).pathlen);
            let slash = len > 0 && *self.path.add(len - 1) as u8 == b'/';
            if slash { len } else { len + 1 }
        }
    }

    /// Puts an entry's name into the path, behind its folder.
    pub(super) unsafe fn put(&self, end: usize, entry: *const Entry) {
        // SAFETY: the path has room for the longest.
        unsafe {
            *self.path.add(end - 1) = b'/' as c_char;
            let name = (&raw const (*entry).name).cast::<c_char>();
            std::ptr::copy_nonoverlapping(name, self.path.add(end), (*entry).namelen as usize + 1);
        }
    }

    /// Sorts entries that are linked.
    pub(super) unsafe fn sorted(&self, mut entry: *mut Entry, count: usize) -> *mut Entry {
        if count < 2 || self.compare.is_none() {
            return entry;
        }
        let mut all: Vec<*mut Entry> = Vec::with_capacity(count);
        // SAFETY: entries of this walk, and the program's function.
        unsafe {
            while !entry.is_null() {
                all.push(entry);
                entry = (*entry).link;
            }
            let (from, size, compare) = (all.as_mut_ptr(), size_of::<*mut Entry>(), self.compare);
            real!(qsort(from: *mut *mut Entry, count: usize, size: usize, compare: Compare) -> ());
            for pair in all.windows(2) {
                (*pair[0]).link = pair[1];
            }
            if let Some(last) = all.last() {
                (**last).link = null_mut();
            }
        }
        all[0]
    }

    /// Reads a folder's names into entries that are linked, and looks at them; how many there are.
    unsafe fn read_names(&mut self, folder: *mut DIR, why: For) -> Option<(*mut Entry, usize)> {
        let (mut head, mut count) = (null_mut::<Entry>(), 0);
        let mut tail: *mut *mut Entry = &raw mut head;
        // SAFETY: entries of this walk, and an open stream.
        unsafe {
            let cur = self.cur;
            let end = self.end_of(cur);
            let cheap = self.has(NOSTAT) && self.has(PHYSICAL);
            loop {
                let found = libc::readdir(folder);
                if found.is_null() {
                    return Some((head, count));
                }
                let name = CStr::from_ptr((*found).d_name.as_ptr()).to_bytes();
                if matches!(name, b"." | b"..") && !self.has(SEEDOT) {
                    continue;
                }
                let new = self.entry(name);
                if new.is_null() || end + name.len() >= PATH {
                    let code = if new.is_null() { libc::ENOMEM } else { libc::ENAMETOOLONG };
                    libc::free(new.cast::<c_void>());
                    free_all(head);
                    set_errno(code);
                    return None;
                }
                ((*new).level, (*new).parent) = ((*cur).level + 1, cur);
                (*new).pathlen = (end + name.len()) as c_ushort;
                (*new).accpath = if self.has(NOCHDIR) {
                    self.path
                } else {
                    (&raw mut (*new).name).cast::<c_char>()
                };
                let kind = (*found).d_type;
                let is_other = kind != libc::DT_DIR && kind != libc::DT_UNKNOWN;
                if why == For::Names || cheap && is_other {
                    (*new).info = NSOK;
                } else {
                    self.put(end, new);
                    (*new).info = self.look(new, false);
                }
                *tail = new;
                tail = &raw mut (*new).link;
                count += 1;
            }
        }
    }

    /// Builds the entries of the folder that the walk is at; null, if there are none.
    pub(super) unsafe fn build(&mut self, why: For) -> *mut Entry {
        // SAFETY: entries of this walk.
        unsafe {
            let cur = self.cur;
            let folder = libc::opendir((*cur).accpath);
            if folder.is_null() {
                if why == For::Read {
                    ((*cur).info, (*cur).errno) = (DNR, errno());
                }
                return null_mut();
            }
            let mut is_down = false;
            if why != For::Names {
                is_down = self.go_to(cur, libc::dirfd(folder), std::ptr::null());
                if !is_down {
                    let code = errno();
                    if why == For::Read {
                        (*cur).errno = code;
                    }
                    (*cur).flags |= DONTCHDIR;
                    libc::closedir(folder);
                    set_errno(code);
                    return self.nothing(why);
                }
            }
            let read = self.read_names(folder, why);
            let code = errno();
            libc::closedir(folder);
            *self.path.add((*cur).pathlen as usize) = 0;
            let Some((head, count)) = read else {
                (*cur).info = ERR;
                set_errno(code);
                return self.stop();
            };
            if is_down && (why == For::Children || count == 0) && !self.go_up(cur) {
                free_all(head);
                (*cur).info = ERR;
                return self.stop();
            }
            if count == 0 { self.nothing(why) } else { self.sorted(head, count) }
        }
    }

    /// There is nothing in the folder that the walk is at.
    unsafe fn nothing(&self, why: For) -> *mut Entry {
        if why == For::Read {
            // SAFETY: an entry of this walk.
            unsafe { (*self.cur).info = DP };
        }
        null_mut()
    }
}

/// Notes that an entry could not be looked at.
unsafe fn unknown(entry: *mut Entry, to: *mut stat, code: c_int) -> c_ushort {
    // SAFETY: an entry, and what is known of it.
    unsafe {
        (*entry).errno = code;
        to.write_bytes(0, 1);
    }
    NS
}

/// Notes which folder an entry is, and whether the walk is in it already.
unsafe fn folder(entry: *mut Entry, stat: &stat) -> c_ushort {
    // SAFETY: an entry, and those above it.
    unsafe {
        ((*entry).dev, (*entry).ino, (*entry).nlink) = (stat.st_dev, stat.st_ino, stat.st_nlink);
        let name = CStr::from_ptr((&raw const (*entry).name).cast::<c_char>());
        if matches!(name.to_bytes(), b"." | b"..") {
            return DOT;
        }
        let mut above = (*entry).parent;
        while (*above).level >= TOP {
            if ((*above).dev, (*above).ino) == (stat.st_dev, stat.st_ino) {
                (*entry).cycle = above;
                return DC;
            }
            above = (*above).parent;
        }
        D
    }
}
