//! Copying and zeroing at the speed of the memory.

/// Copies `len` bytes. Complete, for every thread that learns of it, when it returns.
///
/// # Safety
/// As `ptr::copy_nonoverlapping`: `src` is readable and `dst` writable for `len` bytes, and the two
/// do not overlap.
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract is this call's.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Zeroes `len` bytes. Complete, for every thread that learns of it, when it returns.
///
/// # Safety
/// As `ptr::write_bytes`: `dst` is writable for `len` bytes.
pub unsafe fn zero(dst: *mut u8, len: usize) {
    // SAFETY: the caller's contract is this call's.
    unsafe { std::ptr::write_bytes(dst, 0, len) }
}
