//! A process becomes another program, whose arguments are the call's own.
//!
//! Rust has no function with arguments of an unknown number. So these few instructions put those
//! that came in registers before those that are on the stack already: there they are the list that
//! `execv` takes, in either machine's order. A C file would need a compiler, and functions like
//! these all the same: what a C file defines is not exported from a library of Rust's.

use std::arch::naked_asm;
use std::ffi::c_int;

use crate::calls::programs::{List, Text, execute, search};
use crate::handing;

/// Calls a function with the first argument, and the list of all others.
#[cfg(target_arch = "x86_64")]
macro_rules! with_list {
    ($name:ident, $doc:literal, $run:ident) => {
        #[doc = $doc]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: Text, argument: Text) -> c_int {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {run}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                run = sym $run,
            )
        }
    };
}

/// Calls a function with the first argument, and the list of all others.
#[cfg(target_arch = "aarch64")]
macro_rules! with_list {
    ($name:ident, $doc:literal, $run:ident) => {
        #[doc = $doc]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: Text, argument: Text) -> c_int {
            naked_asm!(
                "sub sp, sp, #80",
                "stp x29, x30, [sp]",
                "mov x29, sp",
                "str x1, [sp, #24]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "add x1, sp, #24",
                "bl {run}",
                "ldp x29, x30, [sp]",
                "add sp, sp, #80",
                "ret",
                run = sym $run,
            )
        }
    };
}

with_list!(execl, "Becomes a program.", run_list);
with_list!(execlp, "Becomes a program that is looked for.", search_list);
with_list!(execle, "Becomes a program, with the environment that follows the list.", run_list_in);

unsafe extern "C" fn run_list(path: Text, list: List) -> c_int {
    // SAFETY: the program's promise.
    unsafe { execute(libc::AT_FDCWD, path, list, handing::environment(), 0) }
}

unsafe extern "C" fn search_list(file: Text, list: List) -> c_int {
    // SAFETY: the program's promise.
    unsafe { search(file, list, handing::environment(), true) }
}

unsafe extern "C" fn run_list_in(path: Text, list: List) -> c_int {
    // SAFETY: the program's promise: an environment stands behind the list's null.
    unsafe {
        let behind = list.add(handing::strings(list).len() + 1);
        execute(libc::AT_FDCWD, path, list, (*behind).cast(), 0)
    }
}
