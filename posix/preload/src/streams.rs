//! Streams: a FILE of ours is one of `fopencookie`, with four functions of ours.
//!
//! The functions read, write, seek and close the stream's number, as a program does. So a stream
//! follows `dup2` onto its number, as one of the C library does, and may lead to the kernel later.
//! All that works on any FILE is left to the C library.
//!
//! | module | what it offers |
//! |---|---|
//! | [`mode`] | what the second argument of `fopen` says |
//! | [`wide`] | wide characters on a stream of ours |
//! | [`standard`] | `stdin`, `stdout` and `stderr`, which follow the numbers 0, 1 and 2 |

pub mod mode;
pub mod standard;
pub mod wide;

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::FILE;

use crate::process::Spin;
use crate::streams::mode::Mode;
use crate::streams::wide::Wide;

/// What stands behind a stream of ours.
pub struct Stream {
    fd: c_int,
    /// Whether it is for 0, 1 or 2, and stays when it is closed.
    stays: bool,
    wide: UnsafeCell<Wide>,
}

/// The four functions of a stream, as `fopencookie` takes them.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn engram_stream_set_number(stream: *mut FILE, fd: c_int);
    fn engram_stream_set_failed(stream: *mut FILE);
    fn engram_stream_is_used(stream: *mut FILE) -> c_int;
    fn engram_stream_pending(stream: *mut FILE, from: *mut *const c_char) -> usize;
    fn engram_stream_reset(stream: *mut FILE, reads: c_int, writes: c_int, appends: c_int);
    fn engram_stream_carry(from: *mut FILE, to: *mut FILE);
    fn __fpurge(stream: *mut FILE);
    fn flockfile(stream: *mut FILE);
    fn funlockfile(stream: *mut FILE);
}

/// Streams of ours, by the address of the FILE.
static STREAMS: Spin<BTreeMap<usize, usize>> = Spin::new(BTreeMap::new());
/// How many there are besides the standard ones.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What stands behind a stream, if it is of ours; it is the program's to not close it meanwhile.
pub fn get(stream: *mut FILE) -> Option<&'static Stream> {
    if COUNT.load(Ordering::Relaxed) == 0 && !standard::is_one(stream) {
        return None;
    }
    let found = STREAMS.lock().get(&stream.addr()).copied()?;
    // SAFETY: it is freed when the program closes the stream, after which it may not name it.
    unsafe { std::ptr::with_exposed_provenance::<Stream>(found).as_ref() }
}

/// Makes a stream for a number; null: there is no memory.
pub fn make(fd: c_int, mode: &Mode, stays: bool) -> *mut FILE {
    let wide = UnsafeCell::new(Wide::new());
    let behind = Box::into_raw(Box::new(Stream { fd, stays, wide }));
    let functions = Functions { read, write, seek, close };
    // SAFETY: a string, and functions that take what is behind.
    let stream = unsafe { fopencookie(behind.cast(), mode.kind().as_ptr(), functions) };
    if stream.is_null() {
        // SAFETY: it was just made, and nobody has it.
        drop(unsafe { Box::from_raw(behind) });
        return stream;
    }
    // SAFETY: a stream that was just made.
    unsafe { engram_stream_set_number(stream, fd) };
    STREAMS.lock().insert(stream.addr(), behind.expose_provenance());
    COUNT.fetch_add(usize::from(!stays), Ordering::Relaxed);
    stream
}

/// The stream is about to be closed.
pub fn forget(stream: *mut FILE) {
    if STREAMS.lock().remove(&stream.addr()).is_some() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream {
    /// The number that it reads and writes.
    pub fn fd(&self) -> c_int {
        self.fd
    }

    /// Whether it is one of those for 0, 1 and 2.
    pub fn is_standard(&self) -> bool {
        self.stays
    }

    /// Does something with its wide side, under the stream's lock.
    pub fn locked<T>(&self, stream: *mut FILE, work: impl FnOnce(&mut Wide) -> T) -> T {
        // SAFETY: a stream of the program's, whose lock this thread has meanwhile.
        unsafe {
            flockfile(stream);
            let done = work(self.wide());
            funlockfile(stream);
            done
        }
    }

    /// Its wide side.
    ///
    /// # Safety
    ///
    /// The caller has the stream's lock, or is one who needs none.
    #[expect(clippy::mut_from_ref, reason = "the stream's lock is C's")]
    pub unsafe fn wide(&self) -> &mut Wide {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.wide.get() }
    }
}

/// Empties a stream's buffer, and has it go by another mode, without orientation.
pub fn reset(stream: *mut FILE, mode: &Mode) {
    let (reads, writes) = (c_int::from(mode.reads()), c_int::from(mode.writes()));
    // SAFETY: a stream of ours, of which the program calls freopen.
    unsafe {
        engram_stream_reset(stream, reads, writes, c_int::from(mode.appends()));
        if let Some(behind) = get(stream) {
            let named = mode.encoding.as_deref().and_then(Wide::of);
            *behind.wide() = named.unwrap_or_else(Wide::new);
        }
    }
}

/// Empties the buffer of a standard stream, of ours or libc's: none of it goes on elsewhere.
pub fn purge(stream: *mut FILE) {
    // SAFETY: a stream, of which the program calls freopen.
    unsafe { __fpurge(stream) };
}

/// The bytes that a stream has yet to write; it has none afterwards.
pub fn take_pending(stream: *mut FILE) -> Vec<u8> {
    let mut from = std::ptr::null();
    // SAFETY: a stream, which tells where its bytes are.
    unsafe {
        flockfile(stream);
        let count = engram_stream_pending(stream, &raw mut from);
        let mut pending = Vec::new();
        if count > 0 {
            pending.extend_from_slice(std::slice::from_raw_parts(from.cast::<u8>(), count));
            __fpurge(stream);
        }
        funlockfile(stream);
        pending
    }
}

/// Marks a stream as one that has failed.
pub fn set_failed(stream: *mut FILE) {
    // SAFETY: a stream of the program's.
    unsafe { engram_stream_set_failed(stream) };
}

/// Writes all of it to a number; how many bytes were written before it failed.
pub fn write_all(fd: c_int, bytes: &[u8]) -> usize {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &bytes[done..];
        // SAFETY: memory of this length.
        let count = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => done += count,
            _ => break,
        }
    }
    done
}

unsafe fn behind<'a>(cookie: *mut c_void) -> &'a Stream {
    // SAFETY: what was given to fopencookie.
    unsafe { &*cookie.cast::<Stream>() }
}

unsafe extern "C" fn read(cookie: *mut c_void, to: *mut c_char, size: usize) -> isize {
    // SAFETY: the C library's buffer.
    unsafe { libc::read(behind(cookie).fd, to.cast(), size) }
}

unsafe extern "C" fn write(cookie: *mut c_void, from: *const c_char, size: usize) -> isize {
    // SAFETY: the C library's buffer.
    unsafe {
        write_all(behind(cookie).fd, std::slice::from_raw_parts(from.cast::<u8>(), size)) as isize
    }
}

unsafe extern "C" fn seek(cookie: *mut c_void, place: *mut i64, whence: c_int) -> c_int {
    // SAFETY: a place of the C library's.
    unsafe {
        let found = libc::lseek(behind(cookie).fd, *place, whence);
        if found < 0 {
            return -1;
        }
        *place = found;
        0
    }
}

unsafe extern "C" fn close(cookie: *mut c_void) -> c_int {
    // SAFETY: the C library calls this last, and once.
    let behind = unsafe { Box::from_raw(cookie.cast::<Stream>()) };
    // SAFETY: always sound.
    unsafe { libc::close(behind.fd) }
}

/// For a fork: nobody else is at the tables.
pub fn before_fork() {
    standard::hold();
    STREAMS.acquire();
}

/// For a fork: on with it.
pub fn after_fork() {
    STREAMS.release();
    standard::resume();
}
