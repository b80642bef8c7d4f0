//! The C library's functions, and the definition of those that stand before them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library. All of them are found when the library is loaded
/// ([`find_all`]): what finds one takes locks of the C library, and frees memory, and so is nothing
/// that a signal's handler may do, nor a child between its fork and its next program.
pub struct Real {
    name: &'static str,
    at: AtomicPtr<c_void>,
}

impl Real {
    /// The function of this name, which ends with NUL.
    pub const fn new(name: &'static str) -> Real {
        Real { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; of one that this C library lacks, that of a function that fails with `ENOSYS`.
    pub fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name ends with NUL.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) };
        let found = if found.is_null() { missing as *mut c_void } else { found };
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

unsafe extern "C" {
    /// The first entry of the linker's section `engram_real`, and what follows the last one.
    fn engram_entries() -> *const *const c_void;
    fn engram_entries_end() -> *const *const c_void;
}

/// Where a call of a function of the C library keeps it.
#[repr(transparent)]
pub struct Entry(pub &'static Real);

/// Finds all functions that are called anywhere in this library.
pub fn find_all() {
    for Entry(real) in entries() {
        real.get();
    }
}

fn entries() -> &'static [Entry] {
    // SAFETY: both only give an address.
    let (first, end) = unsafe { (engram_entries(), engram_entries_end()) };
    let (first, end) = (first.cast::<Entry>(), end.cast::<Entry>());
    // SAFETY: the linker has put the entries, and nothing else, between these two.
    unsafe { std::slice::from_raw_parts(first, end.offset_from_unsigned(first)) }
}

extern "C" fn missing() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// The number that the last call failed with.
pub fn errno() -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() }
}

/// Says with which number a call fails.
pub fn set_errno(code: c_int) {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = code }
}

/// Calls a function of the C library, whatever is defined here under its name:
/// `real!(open(path: *const c_char, flags: c_int) -> c_int)`. It may unwind: a thread is cancelled
/// in it (`pthread_cancel`), or a function of the program's that it calls throws.
macro_rules! real {
    ($name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty) => {{
        static REAL: $crate::real::Real =
            $crate::real::Real::new(concat!(stringify!($name), "\0"));
        #[used]
        #[unsafe(link_section = "engram_real")]
        static ENTRY: $crate::real::Entry = $crate::real::Entry(&REAL);
        // SAFETY: the C library's function of this name has this type; the caller keeps what it
        // asks for.
        #[allow(unused_unsafe, reason = "some callers are in an unsafe block anyway")]
        unsafe {
            std::mem::transmute::<
                *mut std::ffi::c_void,
                unsafe extern "C-unwind" fn($($type),*) -> $ret,
            >(REAL.get())($($arg),*)
        }
    }};
}
pub(crate) use real;

/// Defines functions of the C library, each under all of its names:
///
/// ```text
/// interpose! {
///     /// Opens a file.
///     [open, open64](path: *const c_char, flags: c_int, mode: mode_t) -> c_int { ... }
/// }
/// ```
///
/// The body is that of an `unsafe` function: its callers are programs, which keep what C asks for.
macro_rules! interpose {
    ($($(#[$meta:meta])* [$($name:ident),+] $args:tt -> $ret:ty $body:block)*) => {$(
        $crate::real::interpose!(@each [$($name),+] [$(#[$meta])*] $args $ret $body);
    )*};
    (@each [$name:ident $(, $more:ident)*] $meta:tt $args:tt $ret:ty $body:block) => {
        $crate::real::interpose!(@one $name $meta $args $ret $body);
        $($crate::real::interpose!(@one $more $meta $args $ret $body);)*
    };
    (@one $name:ident [$($meta:tt)*] ($($arg:ident: $type:ty),* $(,)?) $ret:ty $body:block) => {
        $($meta)*
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret $body
    };
}
pub(crate) use interpose;

/// Exports functions of any number of arguments, which C defines (`variadic.c`), under their names:
/// `variadic! { dprintf => engram_dprintf }`.
macro_rules! variadic {
    ($($name:ident => $packs:ident),* $(,)?) => {$(
        unsafe extern "C" {
            fn $packs();
        }

        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!("jmp {}", sym $packs);
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!("b {}", sym $packs);
        }
    )*};
}
pub(crate) use variadic;

#[cfg(test)]
mod tests {
    use super::{Entry, Ordering, entries, find_all};

    #[test]
    fn whatever_is_called_has_been_found() {
        find_all();
        assert!(entries().len() > 100, "{} calls", entries().len());
        for Entry(real) in entries() {
            assert!(!real.at.load(Ordering::Relaxed).is_null(), "{}", real.name);
        }
    }
}
