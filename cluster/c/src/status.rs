//! Statuses and the last error, as libengram has them.

use std::ffi::{c_char, c_int};

use engram_base::error::Error as StoreError;
use engram_driver::error::{Error, Result};
use engram_edge::error as edge;

/// `engram_status` of engram.h: 0, or the number of an error's kind.
#[repr(transparent)]
pub struct Status(c_int);

/// The error as an edge tells it: the name that Python has for it comes first, where a status says
/// less.
fn of_store(error: &Error) -> StoreError {
    let (kind, name) = (error.kind(), error.class_name());
    let text = error.to_string();
    if name == kind.class_name() {
        return StoreError::new(kind, text);
    }
    StoreError::new(kind, format!("{name}: {text}"))
}

/// Runs the body of a function: its error becomes the status and this thread's last error.
pub(crate) fn guard(body: impl FnOnce() -> Result<()>) -> Status {
    let told = edge::guard(|| body().map_err(|error| of_store(&error)));
    Status(told.map_or(0, |kind| kind as c_int))
}

/// The message of this thread's last call of this library that failed. It stays until the thread's
/// next call that fails; "" if none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn engram_cluster_last_error() -> *const c_char {
    edge::last()
}

/// Frees a string that a function of this library has given to be freed. NULL is allowed, and does
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_cluster_string_free(string: *mut c_char) {
    engram_edge::raw::take_string(string);
}
