//! Libraries that a program loads while it runs.
//!
//! Where the dynamic linker looks for a library depends on who calls. So these go on to it by a
//! jump, as if there were nothing between, with another path where the program's is of ours: that
//! of a copy in memory. The same file is given the same copy, for the linker knows a library again
//! by its inode.
//!
//! *Limit*: libraries that are named without a slash, and those that a library itself needs, are
//! looked for by the linker alone, in the kernel's folders.

use std::arch::naked_asm;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use engram_fs::{Ino, NodeKind, OpenFlags};

use crate::calls::descriptors::refused;
use crate::calls::programs::copy_of;
use crate::inside::is_inside;
use crate::places::by_path;
use crate::process::Spin;
use crate::real::{Real, errno, set_errno};
use crate::trees;

/// A file that was copied: its tree, its number, and when and how long it was.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    tree: u32,
    ino: Ino,
    size: u64,
    written: i64,
}

static COPIES: Spin<Vec<(Version, CString)>> = Spin::new(Vec::new());

/// How the call goes on.
#[repr(C)]
struct On {
    path: *const c_char,
    to: *mut c_void,
}

/// The path by which the linker finds a library.
unsafe fn found(path: *const c_char) -> *const c_char {
    if path.is_null() || trees::all().is_empty() || is_inside() {
        return path;
    }
    // SAFETY: a string, as the program gave it.
    let name = unsafe { CStr::from_ptr(path) };
    if !name.to_bytes().contains(&b'/') {
        return path;
    }
    let before = errno();
    // SAFETY: a string, as the program gave it.
    let copy = unsafe {
        by_path(
            libc::AT_FDCWD,
            path,
            |tree, opened, asked, at| {
                let stat = asked.stat(at, true)?;
                if stat.kind != NodeKind::File {
                    return Err(refused(libc::EACCES, "a library is a file").into());
                }
                asked.access(at, libc::R_OK, true)?;
                let (ino, size) = (stat.ino, stat.size);
                let version = Version { tree: tree.number, ino, size, written: stat.written };
                let mut copies = COPIES.lock();
                if let Some((_, copy)) = copies.iter().find(|(known, _)| *known == version) {
                    return Ok(copy.as_ptr().cast_mut());
                }
                let flags = OpenFlags { read: true, ..OpenFlags::default() };
                let last = name.to_bytes().rsplit(|byte| *byte == b'/').next();
                let named = CString::new(last.unwrap_or_default()).unwrap_or_default();
                let fd = copy_of(&opened.fs.open(ino, flags)?, &named)?;
                let copy = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
                let at = copy.as_ptr().cast_mut();
                copies.push((version, copy));
                Ok(at)
            },
            |_, _| std::ptr::null_mut(),
        )
    };
    set_errno(before);
    // What cannot be had is left for the linker to say.
    if copy.is_null() { path } else { copy }
}

unsafe extern "C" fn on_from_open(path: *const c_char) -> On {
    static REAL: Real = Real::new("dlopen\0");
    // SAFETY: the program's promise.
    On { path: unsafe { found(path) }, to: REAL.get() }
}

unsafe extern "C" fn on_from_open_in(path: *const c_char) -> On {
    static REAL: Real = Real::new("dlmopen\0");
    // SAFETY: the program's promise.
    On { path: unsafe { found(path) }, to: REAL.get() }
}

/// Loads a library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "push rsi",
        "call {on}",
        "pop rsi",
        "mov rdi, rax",
        "jmp rdx",
        on = sym on_from_open,
    )
}

/// Loads a library into a namespace.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlmopen(
    namespace: libc::c_long,
    path: *const c_char,
    flags: c_int,
) -> *mut c_void {
    naked_asm!(
        "push rdi",
        "push rdx",
        "sub rsp, 8",
        "mov rdi, rsi",
        "call {on}",
        "mov rsi, rax",
        "mov rax, rdx",
        "add rsp, 8",
        "pop rdx",
        "pop rdi",
        "jmp rax",
        on = sym on_from_open_in,
    )
}

/// Loads a library.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "str x1, [sp, #16]",
        "bl {on}",
        "mov x16, x1",
        "ldr x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        on = sym on_from_open,
    )
}

/// Loads a library into a namespace.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlmopen(
    namespace: libc::c_long,
    path: *const c_char,
    flags: c_int,
) -> *mut c_void {
    naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x2, [sp, #16]",
        "mov x0, x1",
        "bl {on}",
        "mov x16, x1",
        "mov x1, x0",
        "ldp x0, x2, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        on = sym on_from_open_in,
    )
}
