//! Calls of the C library that Rust's own library does not make, as a program makes them.

use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::ptr::NonNull;

use engram_fs::Clash;

unsafe extern "C" {
    /// Drops what a stream has not written yet.
    fn __fpurge(stream: *mut libc::FILE);
}

fn done(answer: c_int) -> Result<()> {
    if answer == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn text(path: &str) -> CString {
    CString::new(path).expect("no zeros in it")
}

/// `umask`: what is made has the mode that it is made with.
pub(crate) fn keep_modes() {
    // SAFETY: sets a number of this process.
    unsafe { libc::umask(0) };
}

/// `renameat2`, or `rename`, which replaces.
pub(crate) fn rename(from: &str, to: &str, clash: Clash) -> Result<()> {
    let (from, to) = (text(from), text(to));
    let flags = match clash {
        // SAFETY: two strings.
        Clash::Replace => return done(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) }),
        Clash::Refuse => libc::RENAME_NOREPLACE,
        Clash::Exchange => libc::RENAME_EXCHANGE,
    };
    let here = libc::AT_FDCWD;
    // SAFETY: two strings.
    done(unsafe { libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), flags) })
}

/// `setxattr`.
pub(crate) fn set_attribute(path: &str, name: &[u8], value: &[u8]) -> Result<()> {
    let (path, name) = (text(path), CString::new(name).expect("no zeros in it"));
    let (at, len) = (value.as_ptr().cast(), value.len());
    // SAFETY: two strings, and so many bytes.
    done(unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), at, len, 0) })
}

/// `truncate`, by a path that must not be a symbolic link's.
pub(crate) fn truncate(path: &str, size: u64) -> Result<()> {
    let path = text(path);
    // SAFETY: a string.
    done(unsafe { libc::truncate(path.as_ptr(), size as libc::off_t) })
}

/// `fallocate`, of a range.
pub(crate) fn allocate(file: &File, mode: c_int, at: u64, len: u64) -> Result<()> {
    let (fd, at, len) = (file.as_raw_fd(), at as libc::off_t, len as libc::off_t);
    // SAFETY: an open file.
    done(unsafe { libc::fallocate(fd, mode, at, len) })
}

/// `posix_fallocate`, which does not set `errno`.
pub(crate) fn allocate_all(file: &File, at: u64, len: u64) -> Result<()> {
    let (fd, at, len) = (file.as_raw_fd(), at as libc::off_t, len as libc::off_t);
    // SAFETY: an open file.
    match unsafe { libc::posix_fallocate(fd, at, len) } {
        0 => Ok(()),
        code => Err(Error::from_raw_os_error(code)),
    }
}

/// `pwritev`, of two parts.
pub(crate) fn write_parts(file: &File, at: u64, parts: [&[u8]; 2]) -> Result<usize> {
    let parts = parts
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: two ranges of bytes, which are only read.
    let count = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr(), 2, at as libc::off_t) };
    usize::try_from(count).map_err(|_| Error::last_os_error())
}

/// Sets or clears `O_APPEND`, for all who share the open file.
pub(crate) fn set_appending(file: &File, appending: bool) -> Result<()> {
    let flags = flags_of(file)?;
    let new = if appending { flags | libc::O_APPEND } else { flags & !libc::O_APPEND };
    // SAFETY: an open file, and flags.
    done(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, new) })
}

/// The flags with which a file was opened.
pub(crate) fn flags_of(file: &File) -> Result<c_int> {
    // SAFETY: an open file.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 { Err(Error::last_os_error()) } else { Ok(flags) }
}

/// Leaves a file open for the program that this one becomes: its number there.
///
/// # Panics
///
/// If that is refused.
pub(crate) fn leave_open(file: File) -> RawFd {
    let fd = file.into_raw_fd();
    // SAFETY: an open file, and no flags.
    done(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) }).expect("a descriptor's flags");
    fd
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// For this process, by `fcntl`.
    Process,
    /// For the open file, by `fcntl`.
    Open,
    /// For the open file, by `flock`.
    Whole,
}

/// Locks a file; if that is to be had at once, or, if `waits`, whenever it is.
pub(crate) fn lock(file: &File, means: Means, waits: bool) -> Result<()> {
    let fd = file.as_raw_fd();
    let command = match (means, waits) {
        (Means::Process, false) => libc::F_SETLK,
        (Means::Process, true) => libc::F_SETLKW,
        (Means::Open, false) => libc::F_OFD_SETLK,
        (Means::Open, true) => libc::F_OFD_SETLKW,
        (Means::Whole, _) => {
            let how = libc::LOCK_EX | if waits { 0 } else { libc::LOCK_NB };
            // SAFETY: an open file.
            return done(unsafe { libc::flock(fd, how) });
        }
    };
    // SAFETY: plain data, for which zeros are valid.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    (range.l_type, range.l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
    // SAFETY: an open file, and a range of it.
    done(unsafe { libc::fcntl(fd, command, &raw const range) })
}

/// A range of a file's memory, which all share who map it.
pub(crate) struct Mapped {
    at: NonNull<c_void>,
    len: usize,
    /// How far from the beginning of the memory the range begins.
    skip: usize,
}

const PAGE: u64 = 4096;

impl Mapped {
    /// `mmap`, of whole words within a file, for reading and writing.
    pub(crate) fn of(file: &File, from: u64, len: u64) -> Result<Mapped> {
        let skip = from % PAGE;
        let (whole, start) = ((len + skip) as usize, (from - skip) as libc::off_t);
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (none, fd) = (std::ptr::null_mut(), file.as_raw_fd());
        // SAFETY: a new mapping at a place of the library's choice.
        let at = unsafe { libc::mmap(none, whole, prot, flags, fd, start) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let at = NonNull::new(at).expect("not null");
        Ok(Mapped { at, len: whole, skip: skip as usize })
    }

    fn word(&self, place: usize) -> *mut u64 {
        assert!(self.skip + (place + 1) * 8 <= self.len);
        // SAFETY: within the mapping, as was just looked at.
        unsafe { self.at.as_ptr().byte_add(self.skip + place * 8).cast() }
    }

    /// Stores a word.
    pub(crate) fn set(&self, place: usize, word: u64) {
        // SAFETY: within the mapping, and aligned: files are of words.
        unsafe { self.word(place).write_volatile(word) };
    }

    /// Loads a word.
    pub(crate) fn get(&self, place: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.word(place).read_volatile() }
    }

    /// `msync`.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: the mapping, as it was made.
        done(unsafe { libc::msync(self.at.as_ptr(), self.len, libc::MS_SYNC) })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping, as it was made, and nobody has a pointer into it any more.
        let gone = done(unsafe { libc::munmap(self.at.as_ptr(), self.len) });
        gone.expect("a mapping that is taken away");
    }
}

/// A stream of a file, which writes all that it is given in one piece when it is flushed.
pub(crate) struct Stream {
    at: NonNull<libc::FILE>,
    /// Where it keeps what it is given.
    _kept: Vec<u8>,
}

impl Stream {
    /// `fdopen` of a file's descriptor, with room for so many bytes.
    pub(crate) fn of(file: File, mode: &str, room: usize) -> Result<Stream> {
        let (fd, mode) = (file.as_raw_fd(), text(mode));
        // SAFETY: an open file, and a string.
        let at = unsafe { libc::fdopen(fd, mode.as_ptr()) };
        let at = NonNull::new(at).ok_or_else(Error::last_os_error)?;
        // It is the stream's now.
        let _ = file.into_raw_fd();
        let mut kept = vec![0_u8; room + 8];
        let (place, len) = (kept.as_mut_ptr().cast(), kept.len());
        // SAFETY: the stream, and memory that stays until the stream is closed.
        let set = unsafe { libc::setvbuf(at.as_ptr(), place, libc::_IOFBF, len) };
        assert_eq!(set, 0, "setvbuf: {}", Error::last_os_error());
        Ok(Stream { at, _kept: kept })
    }

    /// `fseeko`.
    pub(crate) fn seek(&self, to: u64) -> Result<()> {
        // SAFETY: the stream is open.
        done(unsafe { libc::fseeko(self.at.as_ptr(), to as libc::off_t, libc::SEEK_SET) })
    }

    /// `fwrite` and `fflush`. What could not be written is dropped: closing would try again.
    pub(crate) fn write(&self, data: &[u8]) -> Result<()> {
        // SAFETY: the stream is open, and the bytes are as many.
        let count = unsafe { libc::fwrite(data.as_ptr().cast(), 1, data.len(), self.at.as_ptr()) };
        assert_eq!(count, data.len(), "there is room for all of it");
        // SAFETY: the stream is open.
        let flushed = done(unsafe { libc::fflush(self.at.as_ptr()) });
        if flushed.is_err() {
            // SAFETY: the stream is open.
            unsafe { __fpurge(self.at.as_ptr()) };
        }
        flushed
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and closed once.
        let closed = done(unsafe { libc::fclose(self.at.as_ptr()) });
        closed.expect("a stream that is closed");
    }
}
