//! Walks over trees by `ftw` and `nftw`, and patterns of names. [`super::fts`] has the others.
//!
//! A walk that begins outside of all prefixes is libc's. What begins below one goes on here, by the
//! public functions of C, which are those of this library: so whatever is met on the way is asked
//! where it is.

use std::collections::{HashSet, VecDeque};
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;

use libc::{DIR, glob_t, stat};

use crate::places::{Place, locate};
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

/// Whether a path leads below a prefix, by its names.
///
/// # Safety
///
/// `path` is a string, or null.
pub unsafe fn begins_here(path: *const c_char) -> bool {
    if path.is_null() || trees::all().is_empty() {
        return false;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    matches!(locate(libc::AT_FDCWD, path), Place::Ours(..))
}

type EachFtw = unsafe extern "C-unwind" fn(*const c_char, *const stat, c_int) -> c_int;
type EachNftw = unsafe extern "C-unwind" fn(*const c_char, *const stat, c_int, *mut Ftw) -> c_int;

/// The program's function.
#[derive(Clone, Copy)]
enum Each {
    Ftw(EachFtw),
    Nftw(EachNftw),
}

/// Where a walk is, as C has it.
#[repr(C)]
struct Ftw {
    base: c_int,
    level: c_int,
}

/// What is met, as `nftw` calls it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    File = 0,
    Folder = 1,
    Unreadable = 2,
    Unknown = 3,
    Link = 4,
    FolderLeft = 5,
    LinkToNothing = 6,
}

impl Each {
    /// What the function is told; `ftw` has fewer words.
    fn word(self, met: Met) -> c_int {
        match (self, met) {
            (Each::Ftw(_), Met::Link) => Met::File as c_int,
            (Each::Ftw(_), Met::LinkToNothing) => Met::Unknown as c_int,
            (_, met) => met as c_int,
        }
    }
}

const PHYSICAL: c_int = 1;
const MOUNT: c_int = 2;
const CHDIR: c_int = 4;
const DEPTH: c_int = 8;
const ACTIONS: c_int = 16;
const STOP: c_int = 1;
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

/// A folder that the walk is in.
struct Level {
    /// Its stream; null, if its descriptor was needed further down.
    folder: *mut DIR,
    /// The names that were left then.
    rest: VecDeque<(CString, u8)>,
}

impl Level {
    /// The next name, and its kind.
    fn next(&mut self) -> Option<(CString, u8)> {
        if self.folder.is_null() {
            return self.rest.pop_front();
        }
        // SAFETY: an open stream.
        unsafe {
            let entry = libc::readdir(self.folder);
            if entry.is_null() {
                return None;
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr());
            Some((name.to_owned(), (*entry).d_type))
        }
    }

    /// Reads the rest of the names, and closes the stream.
    fn spill(&mut self) {
        while let Some(next) = self.next() {
            self.rest.push_back(next);
        }
        self.close();
    }

    fn close(&mut self) {
        let before = errno();
        if !self.folder.is_null() {
            // SAFETY: an open stream.
            unsafe { libc::closedir(self.folder) };
            self.folder = std::ptr::null_mut();
        }
        set_errno(before);
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.close();
    }
}

struct Walk {
    each: Each,
    flags: c_int,
    /// How many streams may be open.
    most: usize,
    levels: Vec<Level>,
    /// The path so far, with its NUL.
    path: Vec<u8>,
    at: Ftw,
    device: u64,
    /// The folders that were met, where links are followed.
    known: HashSet<(u64, u64)>,
}

fn blank() -> stat {
    // SAFETY: plain data, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

fn is_kind(stat: &stat, kind: libc::mode_t) -> bool {
    stat.st_mode & libc::S_IFMT == kind
}

impl Walk {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    fn cut(&mut self, len: usize) {
        self.path.truncate(len);
        self.path.push(0);
    }

    /// Calls the program's function.
    fn tell(&mut self, stat: &stat, met: Met) -> c_int {
        let (path, word) = (self.path.as_ptr().cast::<c_char>(), self.each.word(met));
        // SAFETY: the program's function, and what it is promised.
        unsafe {
            match self.each {
                Each::Ftw(each) => each(path, stat, word),
                Each::Nftw(each) => each(path, stat, word, &raw mut self.at),
            }
        }
    }

    /// From where the last name is asked, and by which path.
    fn reached(&self) -> (c_int, *const c_char) {
        let path = self.path.as_ptr().cast::<c_char>();
        let base = self.at.base as usize;
        // SAFETY: the base lies in the path; a stream is open.
        unsafe {
            match self.levels.last() {
                Some(level) if !level.folder.is_null() => {
                    (libc::dirfd(level.folder), path.add(base))
                }
                _ if self.has(CHDIR) && *path.add(base) == 0 => (libc::AT_FDCWD, c".".as_ptr()),
                _ if self.has(CHDIR) => (libc::AT_FDCWD, path.add(base)),
                _ => (libc::AT_FDCWD, path),
            }
        }
    }

    fn look(&self, follow: bool, to: &mut stat) -> bool {
        let (folder, path) = self.reached();
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        // SAFETY: a string, and a place for what is known.
        unsafe { libc::fstatat(folder, path, to, flags) == 0 }
    }

    /// Whether a link leads nowhere, whose target could not be looked at.
    fn is_link(&self, to: &mut stat) -> bool {
        self.look(false, to) && is_kind(to, libc::S_IFLNK)
    }

    /// Opens the folder that was met.
    fn open(&mut self) -> bool {
        let open = self.levels.iter().filter(|level| !level.folder.is_null()).count();
        if open >= self.most {
            let first = self.levels.iter_mut().find(|level| !level.folder.is_null());
            first.into_iter().for_each(Level::spill);
        }
        let (folder, path) = self.reached();
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: a string; the descriptor is the stream's from then on.
        let opened = unsafe {
            let fd = libc::openat(folder, path, flags);
            if fd < 0 { std::ptr::null_mut() } else { libc::fdopendir(fd) }
        };
        if opened.is_null() {
            return false;
        }
        self.levels.push(Level { folder: opened, rest: VecDeque::new() });
        true
    }

    /// Goes into a folder.
    fn enter(&mut self, stat: &stat) -> c_int {
        if !self.open() {
            let is_closed = errno() == libc::EACCES;
            return if is_closed { self.tell(stat, Met::Unreadable) } else { -1 };
        }
        if !self.has(DEPTH) {
            let result = self.tell(stat, Met::Folder);
            if result != 0 {
                self.levels.pop();
                return result;
            }
        }
        if self.has(CHDIR) && !self.go_to_last() {
            self.levels.pop();
            return -1;
        }
        let (base, len) = (self.at.base, self.path.len() - 1);
        self.path.truncate(len);
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        self.at.base = self.path.len() as c_int;
        self.at.level += 1;
        let mut result = 0;
        while result == 0
            && let Some((name, kind)) = self.levels.last_mut().and_then(Level::next)
        {
            result = self.visit(&name, kind);
        }
        self.levels.pop();
        if self.has(ACTIONS) && result == SKIP_SIBLINGS {
            result = 0;
        }
        self.cut(len);
        (self.at.base, self.at.level) = (base, self.at.level - 1);
        if result == 0 && self.has(DEPTH) {
            result = self.tell(stat, Met::FolderLeft);
        }
        self.leave(result)
    }

    fn go_to_last(&self) -> bool {
        // SAFETY: an open stream.
        self.levels.last().is_some_and(|level| unsafe {
            !level.folder.is_null() && libc::fchdir(libc::dirfd(level.folder)) == 0
        })
    }

    /// Goes back to the folder above, if the walk goes on there.
    fn leave(&self, result: c_int) -> c_int {
        let goes_on = result == 0 || self.has(ACTIONS) && !matches!(result, -1 | STOP);
        if self.levels.is_empty() || !self.has(CHDIR) || !goes_on || self.go_to_last() {
            return result;
        }
        let up = if self.at.base == 1 { c"/" } else { c".." };
        // SAFETY: a string.
        if unsafe { libc::chdir(up.as_ptr()) } == 0 { result } else { -1 }
    }

    /// Meets an entry of the innermost folder.
    fn visit(&mut self, name: &CStr, kind: u8) -> c_int {
        if matches!(name.to_bytes(), b"." | b"..") {
            return 0;
        }
        self.path.truncate(self.at.base as usize);
        self.path.extend_from_slice(name.to_bytes_with_nul());
        let mut stat = blank();
        let is_physical = self.has(PHYSICAL);
        let met = if self.look(!is_physical, &mut stat) {
            match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => Met::Folder,
                libc::S_IFLNK => Met::Link,
                _ => Met::File,
            }
        } else if !matches!(errno(), libc::EACCES | libc::ENOENT) {
            return -1;
        } else if !is_physical && (kind == libc::DT_LNK || kind == libc::DT_UNKNOWN) {
            if self.is_link(&mut stat) { Met::LinkToNothing } else { Met::Unknown }
        } else {
            Met::Unknown
        };
        let elsewhere = self.has(MOUNT) && stat.st_dev != self.device;
        let result = match met {
            Met::Unknown => self.tell(&stat, met),
            _ if elsewhere => 0,
            Met::Folder if is_physical => self.enter(&stat),
            Met::Folder => {
                if self.known.insert((stat.st_dev, stat.st_ino)) {
                    self.enter(&stat)
                } else {
                    0
                }
            }
            met => self.tell(&stat, met),
        };
        if self.has(ACTIONS) && result == SKIP_SUBTREE { 0 } else { result }
    }

    /// Meets what the walk begins with.
    fn begin(&mut self) -> c_int {
        if self.has(CHDIR) && !self.go_to_begin() {
            return -1;
        }
        let (mut stat, is_physical) = (blank(), self.has(PHYSICAL));
        let result = if self.look(!is_physical, &mut stat) {
            if is_kind(&stat, libc::S_IFDIR) {
                self.device = stat.st_dev;
                self.known.insert((stat.st_dev, stat.st_ino));
                self.enter(&stat)
            } else {
                let met = if is_kind(&stat, libc::S_IFLNK) { Met::Link } else { Met::File };
                self.tell(&stat, met)
            }
        } else if !is_physical && errno() == libc::ENOENT && self.is_link(&mut stat) {
            self.tell(&stat, Met::LinkToNothing)
        } else {
            return -1;
        };
        let skips = self.has(ACTIONS) && matches!(result, SKIP_SUBTREE | SKIP_SIBLINGS);
        if skips { 0 } else { result }
    }

    /// Goes to the folder of the name that the walk begins with.
    fn go_to_begin(&self) -> bool {
        let base = self.at.base as usize;
        let above = match base {
            0 => return true,
            1 => CString::default(),
            _ => CString::new(&self.path[..base - 1]).unwrap_or_default(),
        };
        let above = if above.is_empty() { c"/" } else { &above };
        // SAFETY: a string.
        unsafe { libc::chdir(above.as_ptr()) == 0 }
    }
}

/// The folder in which the program was when a walk began that changes it.
struct Before(Option<c_int>);

impl Before {
    fn note() -> Option<Before> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: a string.
        let fd = unsafe { libc::open(c".".as_ptr(), flags) };
        (fd >= 0).then_some(Before(Some(fd)))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let before = errno();
        if let Some(fd) = self.0 {
            // SAFETY: a number of its own.
            unsafe {
                libc::fchdir(fd);
                libc::close(fd);
            }
        }
        set_errno(before);
    }
}

unsafe fn walk(path: *const c_char, each: Each, folders: c_int, flags: c_int) -> c_int {
    // SAFETY: a string, as the program promises.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes();
    if given.is_empty() {
        set_errno(libc::ENOENT);
        return -1;
    }
    let slashes = given.iter().rev().take_while(|byte| **byte == b'/').count();
    let path = &given[..(given.len() - slashes).max(1)];
    let base = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let mut walk = Walk {
        each,
        flags,
        most: usize::try_from(folders).unwrap_or(1).max(1),
        levels: Vec::new(),
        path: path.to_vec(),
        at: Ftw { base: base as c_int, level: 0 },
        device: 0,
        known: HashSet::new(),
    };
    walk.path.push(0);
    let before = if walk.has(CHDIR) {
        match Before::note() {
            Some(before) => before,
            None => return -1,
        }
    } else {
        Before(None)
    };
    let result = walk.begin();
    drop(before);
    result
}

/// By which functions `glob` reads folders is said by the program, or by this library.
const GIVEN: c_int = libc::GLOB_ALTDIRFUNC;

/// What C calls when `glob` cannot read a folder.
type Failed = Option<unsafe extern "C-unwind" fn(*const c_char, c_int) -> c_int>;

/// C's `glob_t`, with its functions.
#[repr(C)]
struct Found {
    count: usize,
    paths: *mut *mut c_char,
    skipped: usize,
    flags: c_int,
    /// Undefined, unless `GLOB_ALTDIRFUNC` is given.
    by: MaybeUninit<By>,
}

/// The functions by which `glob` reads folders.
#[repr(C)]
#[derive(Clone, Copy)]
struct By {
    close: unsafe extern "C" fn(*mut DIR) -> c_int,
    read: unsafe extern "C" fn(*mut DIR) -> *mut libc::dirent,
    open: unsafe extern "C" fn(*const c_char) -> *mut DIR,
    lstat: unsafe extern "C" fn(*const c_char, *mut stat) -> c_int,
    stat: unsafe extern "C" fn(*const c_char, *mut stat) -> c_int,
}

/// Those of this library, which are C's public ones.
const BY: By = By {
    close: libc::closedir,
    read: libc::readdir,
    open: libc::opendir,
    lstat: libc::lstat,
    stat: libc::stat,
};

interpose! {
    /// Walks over a tree.
    [ftw, ftw64](path: *const c_char, each: EachFtw, folders: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if begins_here(path) {
                return walk(path, Each::Ftw(each), folders, 0);
            }
        }
        real!(ftw(path: *const c_char, each: EachFtw, folders: c_int) -> c_int)
    }

    /// Walks over a tree, by flags.
    [nftw, nftw64](path: *const c_char, each: EachNftw, folders: c_int, flags: c_int) -> c_int {
        // SAFETY: the program's promise.
        unsafe {
            if flags & !(PHYSICAL | MOUNT | CHDIR | DEPTH | ACTIONS) == 0 && begins_here(path) {
                return walk(path, Each::Nftw(each), folders, flags);
            }
        }
        real!(
            nftw(path: *const c_char, each: EachNftw, folders: c_int, flags: c_int) -> c_int
        )
    }

    /// Finds names by a pattern: libc's own, with functions of this library, unless the program
    /// has brought some.
    [glob, glob64](pattern: *const c_char, flags: c_int, failed: Failed, found: *mut glob_t)
        -> c_int
    {
        let call = |flags| {
            real!(
                glob(pattern: *const c_char, flags: c_int, failed: Failed, found: *mut glob_t)
                    -> c_int
            )
        };
        if trees::all().is_empty() || flags & GIVEN != 0 {
            return call(flags);
        }
        let found = found.cast::<Found>();
        // SAFETY: the program's place for what is found, which has these fields.
        unsafe {
            let before = (*found).by;
            (*found).by = MaybeUninit::new(BY);
            let done = call(flags | GIVEN);
            (*found).by = before;
            (*found).flags &= !GIVEN;
            done
        }
    }
}
