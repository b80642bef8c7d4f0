//! A file's descriptor that Python code holds.

use std::os::fd::BorrowedFd;

use crate::error::{Result, argument};

/// Does work with a descriptor, which Python keeps open meanwhile. If it is closed all the same,
/// the kernel refuses it, or takes another file for it: what reads gets an error, or other bytes.
pub fn borrowed<T>(number: i32, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<T> {
    if number < 0 {
        return Err(argument(format!("{number} is no file's descriptor: pass an open one")));
    }
    // SAFETY: it is no negative number, and its owner keeps it open, as said above.
    Ok(work(unsafe { BorrowedFd::borrow_raw(number) }))
}
