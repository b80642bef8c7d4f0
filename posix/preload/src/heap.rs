//! The program's memory, as its own `malloc` gives it: for what the program is to free.

use std::ffi::c_void;

unsafe extern "C" {
    fn engram_program_malloc(size: usize) -> *mut c_void;
}

/// So many bytes, which the program frees; null: there are none.
pub fn allocated(size: usize) -> *mut c_void {
    // SAFETY: of this library (`memory.c`); any size may be asked for.
    unsafe { engram_program_malloc(size) }
}
