//! What C has given, as references and slices; and what C is given to own.
//!
//! The functions here believe what the page of conventions demands of callers: a handle is one that
//! this library made and that has not been freed; a string ends with NUL; a buffer has the length
//! that stands beside it; nothing is changed or freed by another thread meanwhile. What can be
//! checked is: NULL, alignment, UTF-8, lengths.

// Callers are the functions that C calls: their contract says what a pointer is.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use engram_base::error::{Error, Kind, Result};
use engram_base::slab::NDIM_MAX;

/// A refusal of an argument.
pub fn argument(message: impl Into<String>) -> Error {
    Error::new(Kind::Argument, message)
}

fn null(what: &str) -> Error {
    argument(format!("{what} is NULL"))
}

fn string<'a>(what: &str, given: *const c_char) -> Result<&'a CStr> {
    if given.is_null() {
        return Err(null(what));
    }
    // SAFETY: not NULL, and by the conventions a string that ends with NUL and stays.
    Ok(unsafe { CStr::from_ptr(given) })
}

/// A string in UTF-8.
pub fn text<'a>(what: &str, given: *const c_char) -> Result<&'a str> {
    let string = string(what, given)?;
    string.to_str().map_err(|e| argument(format!("{what} {string:?} is not UTF-8: {e}")))
}

/// A string in UTF-8, or what stands for NULL.
pub fn text_or<'a>(what: &str, given: *const c_char, none: &'a str) -> Result<&'a str> {
    if given.is_null() { Ok(none) } else { text(what, given) }
}

/// A path of the filesystem, in whatever bytes.
pub fn path<'a>(what: &str, given: *const c_char) -> Result<&'a Path> {
    Ok(Path::new(OsStr::from_bytes(string(what, given)?.to_bytes())))
}

fn check<T>(what: &str, given: *const T, len: usize) -> Result<()> {
    if given.is_null() {
        return Err(null(what));
    }
    if !given.is_aligned() {
        return Err(argument(format!("{what} at {given:p} is not aligned")));
    }
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(argument(format!("{what} has {len} items, more than memory has")));
    }
    Ok(())
}

/// So many items; NULL will do for none.
pub fn slice<'a, T>(what: &str, given: *const T, len: usize) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(what, given, len)?;
    // SAFETY: not NULL, aligned, not too long; by the conventions so many items are there and stay.
    Ok(unsafe { std::slice::from_raw_parts(given, len) })
}

/// One item for each dimension: no more are read than an array can have.
pub fn lengths<'a, T>(what: &str, given: *const T, ndim: usize) -> Result<&'a [T]> {
    if ndim > NDIM_MAX {
        return Err(argument(format!("{ndim} dimensions were given; at most {NDIM_MAX} fit")));
    }
    slice(what, given, ndim)
}

/// So many bytes; NULL will do for none.
pub fn bytes<'a>(what: &str, given: *const c_void, len: usize) -> Result<&'a [u8]> {
    slice(what, given.cast(), len)
}

/// So many bytes to be written; NULL will do for none.
pub fn bytes_mut<'a>(what: &str, given: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(what, given.cast::<u8>(), len)?;
    // SAFETY: not NULL, not too long; by the conventions so many bytes are the caller's alone.
    Ok(unsafe { std::slice::from_raw_parts_mut(given.cast(), len) })
}

/// What a handle stands for.
pub fn of<'a, T>(what: &str, handle: *const T) -> Result<&'a T> {
    // SAFETY: by the conventions NULL, or a handle that was given out and not freed.
    unsafe { handle.as_ref() }.ok_or_else(|| null(what))
}

/// What a handle stands for, to be changed.
pub fn of_mut<'a, T>(what: &str, handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: by the conventions NULL, or a handle that was given out, not freed, and that no other
    // thread uses now.
    unsafe { handle.as_mut() }.ok_or_else(|| null(what))
}

/// A place for an output.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Sets it.
    pub fn set(self, value: T) {
        // SAFETY: not NULL and aligned (`out`); by the conventions it is the caller's.
        unsafe { self.0.write(value) }
    }
}

/// A place for an output, looked at before anything is done.
pub fn out<T>(what: &str, place: *mut T) -> Result<Out<T>> {
    check(what, place, 1)?;
    Ok(Out(place))
}

/// Gives a new handle to C.
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes a handle back; `None` for NULL.
pub fn take<T>(handle: *mut T) -> Option<Box<T>> {
    // SAFETY: by the conventions NULL, or a handle of `give` that was not freed.
    (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
}

/// Takes a string of `CString::into_raw` back.
pub fn take_string(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: by the conventions a string that this library gave and that was not freed.
        drop(unsafe { std::ffi::CString::from_raw(string) });
    }
}
