//! C++'s `cin`, `cout`, `cerr` and `clog`, each of which keeps the address of its C stream.
//!
//! They are set up before this library can point `stdout` elsewhere, and read the variable once.
//! In libstdc++ each has a buffer of the class `stdio_sync_filebuf`, unless the program has given
//! it another. Behind the fields of its base, that buffer has the address. Where such a buffer is
//! found, the address is exchanged. The layout is part of libstdc++'s binary interface.
//!
//! *Limit*: a program with a libstdc++ of its own inside does not offer their names.

use std::ffi::{CStr, c_void};

use libc::FILE;

/// By number: the streams, of narrow and of wide characters.
const STREAMS: [&[&CStr]; 3] =
    [&[c"_ZSt3cin", c"_ZSt4wcin"], &[c"_ZSt4cout", c"_ZSt5wcout"], &[c"_ZSt4cerr", c"_ZSt5wcerr"]];
/// The tables of functions of the class of their buffers.
const CLASSES: [&CStr; 2] = [
    c"_ZTVN9__gnu_cxx18stdio_sync_filebufIcSt11char_traitsIcEEE",
    c"_ZTVN9__gnu_cxx18stdio_sync_filebufIwSt11char_traitsIwEEE",
];
/// Words of a stream's common part before the address of its buffer.
const BEFORE_BUFFER: usize = 29;
/// Words of a buffer's base.
const BEFORE_STREAM: usize = 8;

fn named(name: &CStr) -> *mut c_void {
    // SAFETY: a string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Has them use another C stream, where they use this one.
pub fn replace(number: usize, old: *mut FILE, new: *mut FILE) {
    if named(CLASSES[0]).is_null() {
        return;
    }
    for (stream, class) in STREAMS[number].iter().zip(CLASSES) {
        let (stream, class) = (named(stream), named(class));
        if !stream.is_null() && !class.is_null() {
            // SAFETY: both are libstdc++'s, by their names.
            unsafe { replace_in(stream.cast(), class.cast(), old, new) };
        }
    }
}

unsafe fn replace_in(
    stream: *mut *mut *mut c_void,
    class: *mut *mut c_void,
    old: *mut FILE,
    new: *mut FILE,
) {
    // SAFETY: an object whose first word is the address of its table, or null before it is made;
    // three words before that is the place of its common part. The buffer's class is looked at.
    unsafe {
        if (*stream).is_null() {
            return;
        }
        let common = (*(*stream).sub(3)).addr();
        let buffer = stream.byte_add(common).add(BEFORE_BUFFER).cast::<*mut *mut c_void>().read();
        if buffer.is_null() || *buffer != class.add(2).cast() {
            return;
        }
        let kept = buffer.add(BEFORE_STREAM).cast::<*mut FILE>();
        if *kept == old {
            *kept = new;
        }
    }
}
