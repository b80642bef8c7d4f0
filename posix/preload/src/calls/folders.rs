//! Streams of folders, and what reads folders without one.
//!
//! A stream of ours lies in a table of its own, so its place tells it from one of libc's. It has
//! entries as the kernel would write them, of which a call gives the next. The place in the folder
//! is the description's, so a fork shares it: what is read on is behind what either has read.
//!
//! Programs of [`super::walks`], and libc's own `glob`, use these functions by their public names.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use engram_fs::{Entry, Errno, NodeKind, Opened as FsOpened, Result};
use libc::{DIR, dirent, off_t};

use crate::calls::descriptors::refused;
use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::{Inside, is_inside};
use crate::places::{Failing, by_path, inside};
use crate::process::Spin;
use crate::real::{errno, interpose, real, set_errno};

/// How many streams may be open: as many as there are descriptions.
const STREAMS: usize = crate::descriptions::DESCRIPTIONS;
/// So many units of eight bytes are read at once: 32 KiB, as libc does.
const ROOM: usize = 4096;
/// Where the name begins in an entry.
const NAME_AT: usize = std::mem::offset_of!(dirent, d_name);

/// A stream of a folder. One that is closed is zeros, so that the table takes no room in the
/// library's file.
#[repr(align(64))]
struct Stream {
    taken: AtomicBool,
    /// The descriptor and one; 0 when it is closed.
    number: AtomicI32,
    reading: Spin<Option<Box<Reading>>>,
}

/// What a stream has read.
struct Reading {
    /// Entries, as the kernel writes them.
    entries: Vec<u64>,
    /// Where the next one begins, and where the last one ends; in bytes.
    next: usize,
    end: usize,
    /// The place in the folder, behind the last one that was given.
    place: u64,
}

static TABLE: [Stream; STREAMS] = [const {
    Stream { taken: AtomicBool::new(false), number: AtomicI32::new(0), reading: Spin::new(None) }
}; STREAMS];
/// Where a free one is looked for next.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The stream that a program means, if it is one of ours.
fn ours(folder: *mut DIR) -> Option<&'static Stream> {
    let from = folder.addr().checked_sub(TABLE.as_ptr().addr())?;
    TABLE.get(from / size_of::<Stream>())
}

impl Stream {
    /// A stream that reads a descriptor of ours; null: there are too many.
    fn of(fd: c_int, place: u64) -> *mut DIR {
        let from = NEXT.load(Ordering::Relaxed);
        let free = |at: &usize| !TABLE[*at].taken.swap(true, Ordering::Acquire);
        let Some(found) = (0..STREAMS).map(|at| (from + at) % STREAMS).find(free) else {
            set_errno(libc::EMFILE);
            return std::ptr::null_mut();
        };
        NEXT.store(found + 1, Ordering::Relaxed);
        let stream = &TABLE[found];
        stream.number.store(fd + 1, Ordering::Relaxed);
        let reading = Reading { entries: vec![0; ROOM], next: 0, end: 0, place };
        *stream.reading.lock() = Some(Box::new(reading));
        std::ptr::from_ref(stream).cast_mut().cast::<DIR>()
    }

    /// The descriptor that it reads; -1 when it is closed.
    fn fd(&self) -> c_int {
        self.number.load(Ordering::Relaxed) - 1
    }

    fn held(&self) -> Result<Held> {
        let held = descriptors::get(self.fd());
        held.ok_or_else(|| refused(libc::EBADF, "the stream's descriptor was closed"))
    }

    /// Does something with what was read. The thread is inside.
    fn with<T>(&self, act: impl FnOnce(&mut Reading) -> Result<T>) -> Result<T> {
        match &mut *self.reading.lock() {
            Some(reading) => act(reading),
            None => Err(refused(libc::EBADF, "the stream was closed")),
        }
    }

    /// The next entry; null at the end.
    fn read(&self) -> *mut dirent {
        inside(|| {
            self.with(|reading| {
                if reading.next == reading.end {
                    let held = self.held()?;
                    (reading.next, reading.end) = (0, filled(&held, reading.room())?);
                }
                Ok(reading.next_one())
            })
        })
    }

    /// Goes on from another place.
    fn go_to(&self, place: u64) {
        // C has no word for a stream that has no place: its number was closed.
        let _: c_int = inside(|| {
            self.with(|reading| {
                let held = self.held()?;
                held.description().offset().set(place);
                (reading.next, reading.end, reading.place) = (0, 0, place);
                Ok(0)
            })
        });
    }

    fn close(&self) -> c_int {
        let fd = self.number.swap(0, Ordering::Relaxed) - 1;
        // A signal handler is not to wait for the allocator.
        let inside = Inside::nested();
        drop(self.reading.lock().take());
        self.taken.store(false, Ordering::Release);
        drop(inside);
        // SAFETY: a number.
        unsafe { libc::close(fd) }
    }
}

impl Reading {
    fn room(&mut self) -> &mut [u8] {
        let (from, size) = (self.entries.as_mut_ptr().cast::<u8>(), self.entries.len() * 8);
        // SAFETY: the same memory, as bytes.
        unsafe { std::slice::from_raw_parts_mut(from, size) }
    }

    fn next_one(&mut self) -> *mut dirent {
        if self.next == self.end {
            return std::ptr::null_mut();
        }
        let at = self.entries.as_mut_ptr().wrapping_byte_add(self.next).cast::<dirent>();
        // SAFETY: an entry, which was written there; it begins at a multiple of eight.
        let (size, place) = unsafe { ((*at).d_reclen, (*at).d_off) };
        (self.next, self.place) = (self.next + usize::from(size), place as u64);
        at
    }
}

/// What C calls a kind of node.
fn kind(of: NodeKind) -> u8 {
    match of {
        NodeKind::File => libc::DT_REG,
        NodeKind::Folder => libc::DT_DIR,
        NodeKind::Symlink => libc::DT_LNK,
        NodeKind::Fifo => libc::DT_FIFO,
        NodeKind::Socket => libc::DT_SOCK,
        NodeKind::CharDevice => libc::DT_CHR,
        NodeKind::BlockDevice => libc::DT_BLK,
    }
}

/// Writes an entry as the kernel does; its size, or `None`: there is no room.
fn write(entry: &Entry, behind: u64, to: &mut [u8]) -> Option<usize> {
    let name = entry.name.as_bytes();
    let size = (NAME_AT + name.len() + 1).next_multiple_of(8);
    let to = to.get_mut(..size)?;
    to[..8].copy_from_slice(&entry.ino.to_ne_bytes());
    to[8..16].copy_from_slice(&behind.to_ne_bytes());
    to[16..18].copy_from_slice(&(size as u16).to_ne_bytes());
    to[18] = kind(entry.kind);
    to[NAME_AT..NAME_AT + name.len()].copy_from_slice(name);
    to[NAME_AT + name.len()..].fill(0);
    Some(size)
}

/// Reads on in a folder, from the description's place; how many bytes were written. The thread is
/// inside.
fn filled(held: &Held, to: &mut [u8]) -> Result<usize> {
    if held.description().flags() & libc::O_PATH != 0 {
        return Err(refused(libc::EBADF, "it was opened by O_PATH, for its name alone"));
    }
    let folder = held.folder()?;
    let place = held.description().offset();
    let (mut used, mut next, mut is_full) = (0, place.get(), false);
    let done = folder.list(place.get(), |entry, behind| {
        let Some(size) = write(entry, behind, &mut to[used..]) else {
            is_full = true;
            return false;
        };
        (used, next) = (used + size, behind);
        true
    });
    place.set(next);
    crate::traced::held(engram_fs::trace::Operation::Readdir, held);
    match done {
        Err(error) if used == 0 => Err(error),
        _ if used == 0 && is_full => Err(refused(libc::EINVAL, "not even one entry fits")),
        _ => Ok(used),
    }
}

/// Reads on without a stream; the place before goes to `base`, unless that is null.
unsafe fn read_on(held: &Held, to: *mut c_void, size: usize, base: *mut off_t) -> isize {
    let to = match size.min(i32::MAX as usize) {
        0 => &mut [],
        // SAFETY: the program's buffer, which nobody else uses meanwhile.
        size => unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), size) },
    };
    inside(|| {
        let place = held.description().offset().get();
        let count = filled(held, to)?;
        if !base.is_null() {
            // SAFETY: the program's promise.
            unsafe { *base = place as off_t };
        }
        Ok(count as isize)
    })
}

fn held(fd: c_int) -> Option<Held> {
    if is_inside() { None } else { descriptors::get(fd) }
}

/// How a stream's folder is open, beside close-on-exec.
const HOW: c_int = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK;

/// What a path of a folder leads to.
enum Listed {
    /// A stream of ours, or an error.
    Ours(*mut DIR),
    /// What libc has said.
    Libcs(c_int),
}

impl Failing for Listed {
    const FAILED: Self = Listed::Ours(std::ptr::null_mut());
}

/// Opens a folder of ours, or has libc do all.
unsafe fn open_at(
    folder: c_int,
    path: *const c_char,
    libcs: impl Fn(c_int, *const c_char) -> Listed,
) -> Listed {
    // SAFETY: a string, as the program gave it.
    unsafe {
        by_path(
            folder,
            path,
            |tree, _, asked, at| {
                let opened = FsOpened::Folder(asked.open_folder(at)?);
                let fd = descriptors::add(tree, opened, HOW | libc::O_CLOEXEC)?;
                let stream = Stream::of(fd, 0);
                if stream.is_null() {
                    descriptors::close(fd);
                    real!(close(fd: c_int) -> c_int);
                    return Err(Errno::new(libc::EMFILE, "too many streams are open").into());
                }
                Ok(Listed::Ours(stream))
            },
            libcs,
        )
    }
}

type Select = Option<unsafe extern "C-unwind" fn(*const dirent) -> c_int>;
type Compare = Option<unsafe extern "C-unwind" fn(*mut *const dirent, *mut *const dirent) -> c_int>;

/// A copy of an entry, by `malloc`; null: there is no memory.
unsafe fn copied(entry: *const dirent) -> *mut dirent {
    // SAFETY: an entry, of the size that it says.
    unsafe {
        let size = usize::from((*entry).d_reclen);
        let copy = crate::heap::allocated(size);
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast::<u8>(), size);
        }
        copy.cast::<dirent>()
    }
}

/// The entries of a stream that `select` takes; the number of the error that ends it, 0 for none.
unsafe fn selected(folder: *mut DIR, select: Select, found: &mut Vec<*mut dirent>) -> c_int {
    loop {
        set_errno(0);
        // SAFETY: a stream of ours, and the program's function.
        unsafe {
            let entry = libc::readdir(folder);
            if entry.is_null() {
                return errno();
            }
            if select.is_some_and(|select| select(entry) == 0) {
                continue;
            }
            let copy = copied(entry);
            if copy.is_null() {
                return libc::ENOMEM;
            }
            found.push(copy);
        }
    }
}

/// Gives C a list by `malloc`; `None`: there is no memory.
unsafe fn handed(found: &[*mut dirent], compare: Compare) -> Option<*mut *mut dirent> {
    // SAFETY: room for as many as there are, and the program's function.
    unsafe {
        let size = size_of_val(found).max(1);
        let list = crate::heap::allocated(size).cast::<*mut dirent>();
        if list.is_null() {
            return None;
        }
        std::ptr::copy_nonoverlapping(found.as_ptr(), list, found.len());
        if compare.is_some() {
            let (from, count, size) =
                (list.cast::<c_void>(), found.len(), size_of::<*mut dirent>());
            real!(qsort(from: *mut c_void, count: usize, size: usize, compare: Compare) -> ());
        }
        Some(list)
    }
}

/// Lists a folder of ours, and closes it.
unsafe fn scanned(
    folder: *mut DIR,
    list: *mut *mut *mut dirent,
    select: Select,
    compare: Compare,
) -> c_int {
    if folder.is_null() {
        return -1;
    }
    let before = errno();
    let mut found = Vec::new();
    // SAFETY: as the program promises.
    unsafe {
        let mut code = selected(folder, select, &mut found);
        libc::closedir(folder);
        if code == 0 {
            match handed(&found, compare) {
                Some(handed) => {
                    *list = handed;
                    set_errno(before);
                    return found.len() as c_int;
                }
                None => code = libc::ENOMEM,
            }
        }
        for entry in &found {
            libc::free(entry.cast::<c_void>());
        }
        set_errno(code);
        -1
    }
}

interpose! {
    /// Opens a stream of a folder.
    [opendir](path: *const c_char) -> *mut DIR {
        let libcs = |_, path| {
            let opened = real!(opendir(path: *const c_char) -> *mut DIR);
            Listed::Ours(opened)
        };
        // SAFETY: the program's promise.
        match unsafe { open_at(libc::AT_FDCWD, path, libcs) } {
            Listed::Ours(opened) => opened,
            Listed::Libcs(_) => std::ptr::null_mut(),
        }
    }

    /// Makes a stream of a descriptor, which it takes over.
    [fdopendir](fd: c_int) -> *mut DIR {
        let Some(held) = held(fd) else {
            return real!(fdopendir(fd: c_int) -> *mut DIR);
        };
        inside(|| {
            // One that was opened by O_PATH has a stream, too, which cannot be read; one that was
            // removed has no members.
            let node = held.description().node();
            let is_folder = held.description().what() == What::Folder
                || held.opened()?.fs.stat(node)?.kind == NodeKind::Folder;
            if !is_folder {
                return Err(refused(libc::ENOTDIR, "what is open is no folder"));
            }
            let (command, argument) = (libc::F_SETFD, c_long::from(libc::FD_CLOEXEC));
            real!(fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int);
            let place = held.description().offset().get();
            let stream = Stream::of(fd, place);
            if stream.is_null() {
                return Err(refused(libc::EMFILE, "too many streams are open"));
            }
            Ok(stream)
        })
    }

    /// Closes a stream.
    [closedir](folder: *mut DIR) -> c_int {
        let Some(stream) = ours(folder) else {
            return real!(closedir(folder: *mut DIR) -> c_int);
        };
        stream.close()
    }

    /// A stream's descriptor.
    [dirfd](folder: *mut DIR) -> c_int {
        let Some(stream) = ours(folder) else {
            return real!(dirfd(folder: *mut DIR) -> c_int);
        };
        stream.fd()
    }

    /// The next entry.
    [readdir, readdir64](folder: *mut DIR) -> *mut dirent {
        let Some(stream) = ours(folder) else {
            return real!(readdir(folder: *mut DIR) -> *mut dirent);
        };
        let before = errno();
        let entry = stream.read();
        if entry.is_null() && errno() == libc::ENOENT {
            // A folder that was removed has no entries.
            set_errno(before);
        }
        entry
    }

    /// The next entry, in memory of the program's; the number of the error is what it returns.
    [readdir_r, readdir64_r](
        folder: *mut DIR, to: *mut dirent, result: *mut *mut dirent
    ) -> c_int {
        let Some(stream) = ours(folder) else {
            return real!(
                readdir_r(folder: *mut DIR, to: *mut dirent, result: *mut *mut dirent) -> c_int
            );
        };
        let before = errno();
        set_errno(0);
        let entry = stream.read();
        let code = errno();
        set_errno(before);
        // SAFETY: an entry, and the program's promise: there is room for any.
        unsafe {
            *result = std::ptr::null_mut();
            if entry.is_null() {
                return if code == libc::ENOENT { 0 } else { code };
            }
            let size = usize::from((*entry).d_reclen).min(size_of::<dirent>());
            std::ptr::copy_nonoverlapping(entry.cast::<u8>(), to.cast::<u8>(), size);
            *result = to;
        }
        0
    }

    /// Begins again.
    [rewinddir](folder: *mut DIR) -> () {
        let Some(stream) = ours(folder) else {
            return real!(rewinddir(folder: *mut DIR) -> ());
        };
        stream.go_to(0);
    }

    /// Goes on from a place that `telldir` has told.
    [seekdir](folder: *mut DIR, place: c_long) -> () {
        let Some(stream) = ours(folder) else {
            return real!(seekdir(folder: *mut DIR, place: c_long) -> ());
        };
        stream.go_to(place as u64);
    }

    /// The place of the next entry.
    [telldir](folder: *mut DIR) -> c_long {
        let Some(stream) = ours(folder) else {
            return real!(telldir(folder: *mut DIR) -> c_long);
        };
        inside(|| stream.with(|reading| Ok(reading.place as c_long)))
    }

    /// Reads entries as the kernel writes them.
    [getdents64](fd: c_int, to: *mut c_void, size: usize) -> isize {
        let Some(held) = held(fd) else {
            return real!(getdents64(fd: c_int, to: *mut c_void, size: usize) -> isize);
        };
        // SAFETY: the program's promise.
        unsafe { read_on(&held, to, size, std::ptr::null_mut()) }
    }

    /// The same, and the place before.
    [getdirentries, getdirentries64](
        fd: c_int, to: *mut c_char, size: usize, base: *mut off_t
    ) -> isize {
        let Some(held) = held(fd) else {
            return real!(
                getdirentries(fd: c_int, to: *mut c_char, size: usize, base: *mut off_t) -> isize
            );
        };
        // SAFETY: the program's promise.
        unsafe { read_on(&held, to.cast::<c_void>(), size, base) }
    }

    /// Lists a folder.
    [scandir, scandir64](
        path: *const c_char, list: *mut *mut *mut dirent, select: Select, compare: Compare
    ) -> c_int {
        let libcs = |_, path| {
            Listed::Libcs(real!(
                scandir(path: *const c_char, list: *mut *mut *mut dirent, select: Select,
                    compare: Compare) -> c_int
            ))
        };
        // SAFETY: the program's promise.
        match unsafe { open_at(libc::AT_FDCWD, path, libcs) } {
            // SAFETY: the program's promise.
            Listed::Ours(folder) => unsafe { scanned(folder, list, select, compare) },
            Listed::Libcs(count) => count,
        }
    }

    /// Lists a folder, from another one.
    [scandirat, scandirat64](
        folder: c_int, path: *const c_char, list: *mut *mut *mut dirent, select: Select,
        compare: Compare
    ) -> c_int {
        let libcs = |folder, path| {
            Listed::Libcs(real!(
                scandirat(folder: c_int, path: *const c_char, list: *mut *mut *mut dirent,
                    select: Select, compare: Compare) -> c_int
            ))
        };
        // SAFETY: the program's promise.
        match unsafe { open_at(folder, path, libcs) } {
            // SAFETY: the program's promise.
            Listed::Ours(folder) => unsafe { scanned(folder, list, select, compare) },
            Listed::Libcs(count) => count,
        }
    }
}
