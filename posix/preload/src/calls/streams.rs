//! Opening and closing streams of bytes. What works on a stream that is there is libc's.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use engram_fs::At;
use libc::FILE;

use crate::calls::descriptors::refused;
use crate::calls::pipes;
use crate::descriptors;
use crate::inside::is_inside;
use crate::places::{by_path, inside};
use crate::real::{errno, interpose, real, set_errno, variadic};
use crate::streams::mode::Mode;
use crate::streams::wide::Wide;
use crate::streams::{self, Stream, standard};
use crate::trees;

/// A packed list of arguments, which C hands on as an address.
pub type Values = *mut c_void;

unsafe extern "C" {
    fn __fsetlocking(stream: *mut FILE, kind: c_int) -> c_int;
}

/// Opens a path, if it is one of ours; else what the kernel's answer makes.
unsafe fn number_or(
    path: *const c_char,
    flags: c_int,
    kernel: impl Fn(*const c_char) -> *mut FILE,
) -> Result<c_int, *mut FILE> {
    let found = Cell::new(None);
    let answer = |done: c_int| {
        found.set(Some(done));
        NonNull::<FILE>::dangling().as_ptr()
    };
    found.set(Some(-1));
    // SAFETY: a string, as the program gave it.
    let made = unsafe {
        by_path(
            libc::AT_FDCWD,
            path,
            |tree, _, asked, at| {
                crate::traced::opens(asked, at, flags);
                Ok(answer(descriptors::add(tree, asked.open(at, flags, 0o666)?, flags)?))
            },
            |_, path| {
                found.set(None);
                kernel(path)
            },
        )
    };
    found.get().ok_or(made)
}

/// Makes a stream of a number of ours; it is closed if there is none.
fn stream_of(fd: c_int, mode: &Mode) -> *mut FILE {
    let wide = match &mode.encoding {
        None => None,
        Some(encoding) => match Wide::of(encoding) {
            None => return closed(fd, libc::EINVAL),
            wide => wide,
        },
    };
    let stream = streams::make(fd, mode, false);
    if stream.is_null() {
        return closed(fd, libc::ENOMEM);
    }
    if let (Some(wide), Some(behind)) = (wide, streams::get(stream)) {
        // SAFETY: nobody else has the stream yet.
        unsafe { *behind.wide() = wide };
    }
    if mode.begins_at_end() {
        // SAFETY: always sound.
        unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
    }
    stream
}

fn closed(fd: c_int, code: c_int) -> *mut FILE {
    // SAFETY: always sound.
    unsafe { libc::close(fd) };
    set_errno(code);
    null_mut()
}

unsafe fn parsed(mode: *const c_char) -> Option<Mode> {
    // SAFETY: a string, as the program gave it.
    (!mode.is_null() && !trees::all().is_empty())
        .then(|| unsafe { CStr::from_ptr(mode) })
        .and_then(Mode::parse)
}

unsafe fn open_stream(
    path: *const c_char,
    mode: *const c_char,
    kernel: impl Fn(*const c_char) -> *mut FILE,
) -> *mut FILE {
    // SAFETY: strings, as the program gave them.
    unsafe {
        let Some(mode) = parsed(mode) else { return kernel(path) };
        match number_or(path, mode.flags(), kernel) {
            Ok(fd) if fd >= 0 => stream_of(fd, &mode),
            Ok(_) => null_mut(),
            Err(made) => made,
        }
    }
}

/// The number of any stream; the last error stays.
fn number_of(stream: *mut FILE) -> c_int {
    let before = errno();
    // SAFETY: a stream of the program's.
    let fd = unsafe { libc::fileno(stream) };
    set_errno(before);
    fd
}

/// A stream of libc's leaves a number of ours: what it has yet to write is written.
fn leave(stream: *mut FILE, fd: c_int) -> bool {
    let pending = streams::take_pending(stream);
    streams::write_all(fd, &pending) == pending.len()
}

unsafe fn close_stream(stream: *mut FILE) -> c_int {
    if let Some(behind) = streams::get(stream) {
        if behind.is_standard() {
            return standard::close(stream, behind.fd());
        }
        streams::forget(stream);
        return real!(fclose(stream: *mut FILE) -> c_int);
    }
    if is_inside() || trees::all().is_empty() {
        return real!(fclose(stream: *mut FILE) -> c_int);
    }
    let fd = number_of(stream);
    let written = !descriptors::is_ours(fd) || leave(stream, fd);
    let code = errno();
    descriptors::close(fd);
    let shell = pipes::taken_out(stream);
    let mut done = real!(fclose(stream: *mut FILE) -> c_int);
    if let Some(shell) = shell {
        let ended = pipes::wait_for(shell);
        done = if ended == 0 { done } else { ended };
    }
    if written {
        return done;
    }
    set_errno(code);
    libc::EOF
}

unsafe fn stream_on(fd: c_int, mode: *const c_char) -> *mut FILE {
    let kernel = || real!(fdopen(fd: c_int, mode: *const c_char) -> *mut FILE);
    // SAFETY: the program's promise.
    let parsed = unsafe { parsed(mode) };
    let Some(held) = (if is_inside() { None } else { descriptors::get(fd) }) else {
        if !is_inside() && descriptors::is_hidden(fd) {
            descriptors::bad_number();
            return null_mut();
        }
        return kernel();
    };
    let Some(mode) = parsed else {
        set_errno(libc::EINVAL);
        return null_mut();
    };
    let description = held.description();
    let access = description.flags() & libc::O_ACCMODE;
    let is_more =
        access == libc::O_RDONLY && mode.writes() || access == libc::O_WRONLY && mode.reads();
    if is_more {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    if mode.appends() {
        description.set_flags(description.flags() | libc::O_APPEND);
    }
    drop(held);
    let stream = streams::make(fd, &mode, false);
    if stream.is_null() {
        set_errno(libc::ENOMEM);
    }
    stream
}

/// Opens anew what a number of ours stands for.
fn opened_again(fd: c_int, flags: c_int) -> c_int {
    let Some(held) = descriptors::get(fd) else { return descriptors::bad_number() };
    let node = held.description().node();
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL);
    inside(|| {
        let tree = held.tree().ok_or_else(|| refused(libc::ESTALE, "its prefix is another's"))?;
        match held.asked()?.open(At::node(node), flags, 0) {
            Ok(opened) => descriptors::add(tree, opened, flags),
            Err(engram_fs::Unanswered::Refused(error)) => Err(error),
            Err(_) => Err(refused(libc::ELOOP, "a node leads nowhere else")),
        }
    })
}

/// Puts what was opened at a stream's number.
fn moved_to(new: c_int, fd: c_int, mode: &Mode) -> bool {
    if new == fd {
        return true;
    }
    // SAFETY: always sound.
    unsafe {
        let done = libc::dup3(new, fd, mode.flags() & libc::O_CLOEXEC);
        libc::close(new);
        done >= 0
    }
}

type Reopens = fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;

/// A stream of libc's that could not be opened anew is closed, as if its file were not there.
fn ended(stream: *mut FILE, reopens: Reopens) -> *mut FILE {
    let code = errno();
    reopens(c"".as_ptr(), c"r".as_ptr(), stream);
    set_errno(code);
    null_mut()
}

/// A stream of ours goes on with another file, of ours or the kernel's.
unsafe fn reopen_ours(
    path: *const c_char,
    mode: &Mode,
    stream: *mut FILE,
    behind: &Stream,
) -> *mut FILE {
    let fd = behind.fd();
    // SAFETY: a stream and a string, as the program gave them.
    unsafe {
        libc::fflush(stream);
        let flags = mode.flags();
        let new = if !path.is_null() {
            libc::open(path, flags, 0o666)
        } else if descriptors::is_ours(fd) {
            opened_again(fd, flags)
        } else {
            let own = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
            libc::open(own.as_ptr(), flags & !libc::O_EXCL, 0o666)
        };
        if new < 0 || !moved_to(new, fd, mode) {
            let code = errno();
            libc::close(fd);
            set_errno(code);
            return null_mut();
        }
    }
    streams::reset(stream, mode);
    stream
}

/// A standard stream goes on with another file: the variable follows the number.
unsafe fn reopen_standard(
    path: *const c_char,
    text: *const c_char,
    mode: &Mode,
    stream: *mut FILE,
    number: usize,
    reopens: Reopens,
) -> *mut FILE {
    let (fd, own) = (number as c_int, standard::own(number));
    let is_ours = stream != own;
    let kernel = |path: *const c_char| {
        if is_ours {
            // SAFETY: a stream that stays.
            unsafe { libc::fflush(stream) };
            streams::take_pending(stream);
        }
        let done = reopens(path, text, own);
        descriptors::close(fd);
        done
    };
    // SAFETY: a stream and strings, as the program gave them.
    unsafe {
        if path.is_null() && !descriptors::is_ours(fd) {
            return kernel(path);
        }
        libc::fflush(stream);
        let new = if path.is_null() {
            opened_again(fd, mode.flags())
        } else {
            match number_or(path, mode.flags(), kernel) {
                Ok(new) => new,
                Err(made) => return made,
            }
        };
        streams::purge(stream);
        if new < 0 || !moved_to(new, fd, mode) {
            let code = errno();
            libc::close(fd);
            set_errno(code);
            return ended(own, reopens);
        }
    }
    let stream = standard::ours(number);
    streams::reset(stream, mode);
    stream
}

unsafe fn reopen(
    path: *const c_char,
    text: *const c_char,
    stream: *mut FILE,
    reopens: Reopens,
) -> *mut FILE {
    // SAFETY: the program's promise.
    let Some(mode) = (unsafe { parsed(text) }) else { return reopens(path, text, stream) };
    if mode.encoding.as_deref().is_some_and(|encoding| Wide::of(encoding).is_none()) {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let fd = number_of(stream);
    // SAFETY: the program's promise.
    unsafe {
        match streams::get(stream) {
            Some(behind) if !behind.is_standard() => {
                return reopen_ours(path, &mode, stream, behind);
            }
            Some(behind) => {
                let number = behind.fd() as usize;
                return reopen_standard(path, text, &mode, stream, number, reopens);
            }
            None => {}
        }
        match standard::number_of_own(stream) {
            Some(number) if fd == number as c_int => {
                return reopen_standard(path, text, &mode, stream, number, reopens);
            }
            _ => {}
        }
        let is_ours = descriptors::is_ours(fd);
        if path.is_null() {
            if !is_ours {
                return reopens(path, text, stream);
            }
            set_errno(libc::ENOTSUP);
            return ended(stream, reopens);
        }
        let answered = Cell::new(true);
        let made = by_path(
            libc::AT_FDCWD,
            path,
            |_, _, _, _| Err(refused(libc::ENOTSUP, NOT_LIBCS).into()),
            |_, path| {
                answered.set(false);
                if is_ours {
                    leave(stream, fd);
                }
                let made = reopens(path, text, stream);
                descriptors::close(fd);
                made
            },
        );
        if answered.get() { ended(stream, reopens) } else { made }
    }
}

const NOT_LIBCS: &str =
    "a stream of the C library's cannot lead to a pool: close it and call fopen";

/// Writes what a format makes.
unsafe fn print(fd: c_int, made: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = null_mut();
    let count = made(&raw mut text);
    if count < 0 {
        return count;
    }
    // SAFETY: the memory that asprintf has made.
    unsafe {
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), count as usize);
        let done = streams::write_all(fd, bytes);
        let code = errno();
        libc::free(text.cast());
        set_errno(code);
        if done == bytes.len() { count } else { -1 }
    }
}

interpose! {
    /// Opens a file as a stream.
    [fopen, _IO_fopen](path: *const c_char, mode: *const c_char) -> *mut FILE {
        let kernel = |path: *const c_char| {
            real!(fopen(path: *const c_char, mode: *const c_char) -> *mut FILE)
        };
        // SAFETY: the program's promise.
        unsafe { open_stream(path, mode, kernel) }
    }

    /// Opens a file of any size as a stream.
    [fopen64](path: *const c_char, mode: *const c_char) -> *mut FILE {
        let kernel = |path: *const c_char| {
            real!(fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE)
        };
        // SAFETY: the program's promise.
        unsafe { open_stream(path, mode, kernel) }
    }

    /// Makes a stream of an open file.
    [fdopen, _IO_fdopen](fd: c_int, mode: *const c_char) -> *mut FILE {
        // SAFETY: the program's promise.
        unsafe { stream_on(fd, mode) }
    }

    /// Has a stream go on with another file.
    [freopen](path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        fn kernel(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            real!(
                freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE
            )
        }
        // SAFETY: the program's promise.
        unsafe { reopen(path, mode, stream, kernel) }
    }

    /// Has a stream go on with another file, of any size.
    [freopen64](path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
        fn kernel(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            real!(
                freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE)
                    -> *mut FILE
            )
        }
        // SAFETY: the program's promise.
        unsafe { reopen(path, mode, stream, kernel) }
    }

    /// Closes a stream.
    [fclose, _IO_fclose](stream: *mut FILE) -> c_int {
        // SAFETY: the program's promise.
        unsafe { close_stream(stream) }
    }

    /// Opens a table of mounts.
    [setmntent, __setmntent](path: *const c_char, mode: *const c_char) -> *mut FILE {
        const BYCALLER: c_int = 2;
        let kernel = |path: *const c_char| {
            real!(setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE)
        };
        // SAFETY: the program's promise.
        unsafe {
            let Some(parsed) = parsed(mode) else { return kernel(path) };
            let parsed = parsed.with(libc::O_CLOEXEC);
            let stream = match number_or(path, parsed.flags(), kernel) {
                Ok(fd) if fd >= 0 => stream_of(fd, &parsed),
                Ok(_) => null_mut(),
                Err(made) => return made,
            };
            if !stream.is_null() {
                __fsetlocking(stream, BYCALLER);
            }
            stream
        }
    }

    /// Writes what a format makes to a number.
    [vdprintf](fd: c_int, format: *const c_char, values: Values) -> c_int {
        if is_inside() || !descriptors::is_ours(fd) {
            return real!(vdprintf(fd: c_int, format: *const c_char, values: Values) -> c_int);
        }
        // SAFETY: the program's promise.
        unsafe {
            print(fd, |text| {
                real!(
                    vasprintf(text: *mut *mut c_char, format: *const c_char, values: Values)
                        -> c_int
                )
            })
        }
    }

    /// The same, with a look at the format.
    [__vdprintf_chk](fd: c_int, flag: c_int, format: *const c_char, values: Values) -> c_int {
        if is_inside() || !descriptors::is_ours(fd) {
            return real!(
                __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, values: Values)
                    -> c_int
            );
        }
        // SAFETY: the program's promise.
        unsafe {
            print(fd, |text| {
                real!(
                    __vasprintf_chk(text: *mut *mut c_char, flag: c_int, format: *const c_char,
                        values: Values) -> c_int
                )
            })
        }
    }

    /// Writes the names of addresses to a number.
    [backtrace_symbols_fd, __backtrace_symbols_fd](
        addresses: *const *mut c_void, count: c_int, fd: c_int
    ) -> () {
        let written = || {
            real!(
                backtrace_symbols_fd(addresses: *const *mut c_void, count: c_int, fd: c_int) -> ()
            );
        };
        if is_inside() || !descriptors::is_ours(fd) {
            return written();
        }
        streams::write_all(fd, &descriptors::caught(fd, written));
    }
}

variadic! {
    dprintf => engram_dprintf,
    __dprintf_chk => engram_dprintf_chk,
}
