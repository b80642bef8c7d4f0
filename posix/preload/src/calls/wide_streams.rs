//! Streams of wide characters.

use std::ffi::c_int;
use std::ptr::null_mut;

use libc::{FILE, wchar_t};

use crate::calls::streams::Values;
use crate::inside::is_inside;
use crate::real::{interpose, real, set_errno, variadic};
use crate::streams::wide::{NONE, Wide};
use crate::streams::{self, standard::current};

#[expect(non_camel_case_types, reason = "C's")]
type wint_t = u32;

/// The wide side of a stream, if it is of ours, for one call that takes the stream's lock.
fn locked<T>(stream: *mut FILE, work: impl FnOnce(&mut Wide) -> T) -> Option<T> {
    Some(streams::get(stream)?.locked(stream, work))
}

/// The same for a call that takes no lock.
fn unlocked<T>(stream: *mut FILE, work: impl FnOnce(&mut Wide) -> T) -> Option<T> {
    // SAFETY: the program sees to it that it is alone.
    streams::get(stream).map(|behind| work(unsafe { behind.wide() }))
}

fn put(wide: &mut Wide, stream: *mut FILE, character: wchar_t) -> wint_t {
    if wide.put(stream, character as u32) { character as wint_t } else { NONE }
}

fn put_all(wide: &mut Wide, stream: *mut FILE, characters: &[wchar_t]) -> bool {
    wide.orient(stream, 1) > 0
        && characters.iter().all(|character| wide.put(stream, *character as u32))
}

unsafe fn put_string(wide: &mut Wide, stream: *mut FILE, from: *const wchar_t) -> c_int {
    // SAFETY: a string, as the program gave it.
    let all = unsafe { std::slice::from_raw_parts(from, libc::wcslen(from)) };
    if put_all(wide, stream, all) { 1 } else { -1 }
}

/// Reads a line, as far as there is room.
unsafe fn get_line(
    wide: &mut Wide,
    stream: *mut FILE,
    to: *mut wchar_t,
    size: c_int,
) -> *mut wchar_t {
    const NEWLINE: u32 = 10;
    let Some(room) = usize::try_from(size).ok().filter(|size| *size > 0) else {
        return null_mut();
    };
    // SAFETY: the program's buffer; and a stream.
    unsafe {
        let had_failed = libc::ferror(stream) != 0;
        let mut count = 0;
        while count + 1 < room {
            let character = wide.get(stream);
            if character == NONE {
                break;
            }
            to.add(count).write(character as wchar_t);
            count += 1;
            if character == NEWLINE {
                break;
            }
        }
        if count == 0 && room > 1 || !had_failed && libc::ferror(stream) != 0 {
            return null_mut();
        }
        to.add(count).write(0);
        to
    }
}

/// Writes what libc makes of a format.
fn print(stream: *mut FILE, made: impl FnOnce(*mut FILE) -> c_int) -> c_int {
    unsafe extern "C" {
        fn open_wmemstream(to: *mut *mut wchar_t, size: *mut usize) -> *mut FILE;
    }
    let (mut text, mut size) = (null_mut(), 0);
    // SAFETY: places that outlive the stream, and what it has made there.
    unsafe {
        let memory = open_wmemstream(&raw mut text, &raw mut size);
        if memory.is_null() {
            return -1;
        }
        let count = made(memory);
        real!(fclose(memory: *mut FILE) -> c_int);
        let all = std::slice::from_raw_parts(text, size);
        let done = count >= 0 && locked(stream, |wide| put_all(wide, stream, all)) == Some(true);
        libc::free(text.cast());
        if done { count } else { -1 }
    }
}

/// A scan of a stream of ours is refused.
fn refused() -> c_int {
    set_errno(libc::ENOTSUP);
    libc::EOF
}

fn is_ours(stream: *mut FILE) -> bool {
    !is_inside() && streams::get(stream).is_some()
}

interpose! {
    /// What a stream is for: wide characters or bytes.
    [fwide](stream: *mut FILE, mode: c_int) -> c_int {
        locked(stream, |wide| wide.orient(stream, mode)).unwrap_or_else(|| {
            real!(fwide(stream: *mut FILE, mode: c_int) -> c_int)
        })
    }

    /// Reads a character.
    [fgetwc, getwc](stream: *mut FILE) -> wint_t {
        locked(stream, |wide| wide.get(stream))
            .unwrap_or_else(|| real!(fgetwc(stream: *mut FILE) -> wint_t))
    }

    /// Reads a character, without the lock.
    [fgetwc_unlocked, getwc_unlocked](stream: *mut FILE) -> wint_t {
        unlocked(stream, |wide| wide.get(stream))
            .unwrap_or_else(|| real!(fgetwc_unlocked(stream: *mut FILE) -> wint_t))
    }

    /// Reads a character of standard input.
    [getwchar]() -> wint_t {
        let stream = current(0);
        locked(stream, |wide| wide.get(stream)).unwrap_or_else(|| real!(getwchar() -> wint_t))
    }

    /// Reads a character of standard input, without the lock.
    [getwchar_unlocked]() -> wint_t {
        let stream = current(0);
        unlocked(stream, |wide| wide.get(stream))
            .unwrap_or_else(|| real!(getwchar_unlocked() -> wint_t))
    }

    /// Writes a character.
    [fputwc, putwc](character: wchar_t, stream: *mut FILE) -> wint_t {
        locked(stream, |wide| put(wide, stream, character))
            .unwrap_or_else(|| real!(fputwc(character: wchar_t, stream: *mut FILE) -> wint_t))
    }

    /// Writes a character, without the lock.
    [fputwc_unlocked, putwc_unlocked](character: wchar_t, stream: *mut FILE) -> wint_t {
        unlocked(stream, |wide| put(wide, stream, character)).unwrap_or_else(|| {
            real!(fputwc_unlocked(character: wchar_t, stream: *mut FILE) -> wint_t)
        })
    }

    /// Writes a character to standard output.
    [putwchar](character: wchar_t) -> wint_t {
        let stream = current(1);
        locked(stream, |wide| put(wide, stream, character))
            .unwrap_or_else(|| real!(putwchar(character: wchar_t) -> wint_t))
    }

    /// Writes a character to standard output, without the lock.
    [putwchar_unlocked](character: wchar_t) -> wint_t {
        let stream = current(1);
        unlocked(stream, |wide| put(wide, stream, character))
            .unwrap_or_else(|| real!(putwchar_unlocked(character: wchar_t) -> wint_t))
    }

    /// Has a character be read next.
    [ungetwc](character: wint_t, stream: *mut FILE) -> wint_t {
        let done = locked(stream, |wide| {
            if wide.unget(stream, character) { character } else { NONE }
        });
        done.unwrap_or_else(|| real!(ungetwc(character: wint_t, stream: *mut FILE) -> wint_t))
    }

    /// Reads a line.
    [fgetws](to: *mut wchar_t, size: c_int, stream: *mut FILE) -> *mut wchar_t {
        // SAFETY: the program's promise.
        locked(stream, |wide| unsafe { get_line(wide, stream, to, size) }).unwrap_or_else(|| {
            real!(fgetws(to: *mut wchar_t, size: c_int, stream: *mut FILE) -> *mut wchar_t)
        })
    }

    /// Reads a line, without the lock.
    [fgetws_unlocked](to: *mut wchar_t, size: c_int, stream: *mut FILE) -> *mut wchar_t {
        // SAFETY: the program's promise.
        unlocked(stream, |wide| unsafe { get_line(wide, stream, to, size) }).unwrap_or_else(|| {
            real!(
                fgetws_unlocked(to: *mut wchar_t, size: c_int, stream: *mut FILE) -> *mut wchar_t
            )
        })
    }

    /// Reads a line into memory of a known size.
    [__fgetws_chk](to: *mut wchar_t, room: usize, size: c_int, stream: *mut FILE)
        -> *mut wchar_t
    {
        if is_ours(stream) && usize::try_from(size).is_ok_and(|size| size <= room) {
            // SAFETY: the program's promise.
            return unsafe { fgetws(to, size, stream) };
        }
        real!(
            __fgetws_chk(to: *mut wchar_t, room: usize, size: c_int, stream: *mut FILE)
                -> *mut wchar_t
        )
    }

    /// Reads a line into memory of a known size, without the lock.
    [__fgetws_unlocked_chk](to: *mut wchar_t, room: usize, size: c_int, stream: *mut FILE)
        -> *mut wchar_t
    {
        if is_ours(stream) && usize::try_from(size).is_ok_and(|size| size <= room) {
            // SAFETY: the program's promise.
            return unsafe { fgetws_unlocked(to, size, stream) };
        }
        real!(
            __fgetws_unlocked_chk(to: *mut wchar_t, room: usize, size: c_int, stream: *mut FILE)
                -> *mut wchar_t
        )
    }

    /// Writes a string.
    [fputws](from: *const wchar_t, stream: *mut FILE) -> c_int {
        // SAFETY: the program's promise.
        locked(stream, |wide| unsafe { put_string(wide, stream, from) })
            .unwrap_or_else(|| real!(fputws(from: *const wchar_t, stream: *mut FILE) -> c_int))
    }

    /// Writes a string, without the lock.
    [fputws_unlocked](from: *const wchar_t, stream: *mut FILE) -> c_int {
        // SAFETY: the program's promise.
        unlocked(stream, |wide| unsafe { put_string(wide, stream, from) }).unwrap_or_else(|| {
            real!(fputws_unlocked(from: *const wchar_t, stream: *mut FILE) -> c_int)
        })
    }

    /// Writes what a format makes.
    [vfwprintf](stream: *mut FILE, format: *const wchar_t, values: Values) -> c_int {
        let made = |stream: *mut FILE| {
            real!(
                vfwprintf(stream: *mut FILE, format: *const wchar_t, values: Values) -> c_int
            )
        };
        if is_ours(stream) { print(stream, made) } else { made(stream) }
    }

    /// The same, with a look at the format.
    [__vfwprintf_chk](stream: *mut FILE, flag: c_int, format: *const wchar_t, values: Values)
        -> c_int
    {
        let made = |stream: *mut FILE| {
            real!(
                __vfwprintf_chk(stream: *mut FILE, flag: c_int, format: *const wchar_t,
                    values: Values) -> c_int
            )
        };
        if is_ours(stream) { print(stream, made) } else { made(stream) }
    }

    /// Writes what a format makes to standard output.
    [vwprintf](format: *const wchar_t, values: Values) -> c_int {
        // SAFETY: the program's promise.
        unsafe { vfwprintf(current(1), format, values) }
    }

    /// The same, with a look at the format.
    [__vwprintf_chk](flag: c_int, format: *const wchar_t, values: Values) -> c_int {
        // SAFETY: the program's promise.
        unsafe { __vfwprintf_chk(current(1), flag, format, values) }
    }

    /// Reads by a format.
    [vfwscanf](stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int {
        if is_ours(stream) {
            return refused();
        }
        real!(vfwscanf(stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int)
    }

    /// Reads standard input by a format.
    [vwscanf](format: *const wchar_t, to: Values) -> c_int {
        if is_ours(current(0)) {
            return refused();
        }
        real!(vwscanf(format: *const wchar_t, to: Values) -> c_int)
    }

    /// Reads by a format of C99.
    [__isoc99_vfwscanf](stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int {
        if is_ours(stream) {
            return refused();
        }
        real!(__isoc99_vfwscanf(stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int)
    }

    /// Reads standard input by a format of C99.
    [__isoc99_vwscanf](format: *const wchar_t, to: Values) -> c_int {
        if is_ours(current(0)) {
            return refused();
        }
        real!(__isoc99_vwscanf(format: *const wchar_t, to: Values) -> c_int)
    }

    /// Reads by a format of C23.
    [__isoc23_vfwscanf](stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int {
        if is_ours(stream) {
            return refused();
        }
        real!(__isoc23_vfwscanf(stream: *mut FILE, format: *const wchar_t, to: Values) -> c_int)
    }

    /// Reads standard input by a format of C23.
    [__isoc23_vwscanf](format: *const wchar_t, to: Values) -> c_int {
        if is_ours(current(0)) {
            return refused();
        }
        real!(__isoc23_vwscanf(format: *const wchar_t, to: Values) -> c_int)
    }
}

variadic! {
    fwprintf => engram_fwprintf,
    __fwprintf_chk => engram_fwprintf_chk,
    wprintf => engram_wprintf,
    __wprintf_chk => engram_wprintf_chk,
    fwscanf => engram_fwscanf,
    wscanf => engram_wscanf,
    __isoc99_fwscanf => engram_isoc99_fwscanf,
    __isoc99_wscanf => engram_isoc99_wscanf,
    __isoc23_fwscanf => engram_isoc23_fwscanf,
    __isoc23_wscanf => engram_isoc23_wscanf,
}
