//! The last error of each thread, and where a panic ends.
//!
//! Each library has its own: the crate is linked into both.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use engram_base::error::{Error, Kind, Result};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A message as C has it: what follows a NUL is not lost.
pub fn c_string(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_else(|error| {
        let mut bytes = error.into_vec();
        bytes.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b'?');
        CString::new(bytes).unwrap_or_default()
    })
}

fn keep(error: &Error) -> Kind {
    // While the thread ends there is no place for it any more.
    let _ = LAST.try_with(|last| last.replace(c_string(error.message())));
    error.kind()
}

/// Runs the body of a function: its error becomes this thread's last error, of which the kind is
/// given, and a panic does not go past this edge.
pub fn guard(body: impl FnOnce() -> Result<()>) -> Option<Kind> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(keep(&error)),
        Err(panic) => Some(keep(&of_panic(&*panic))),
    }
}

fn of_panic(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let message = format!("the engine panicked ({text}), which is a defect: please report it");
    Error::new(Kind::Os, message)
}

/// What the last failed call of this thread said; empty where none has.
pub fn last() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
