//! What signals do: the program's handlers are called by ours ([`crate::handlers`]).

use std::ffi::c_int;

use crate::handlers;
use crate::real::{interpose, real};

interpose! {
    /// Sets what a signal does, or asks for it.
    [sigaction, __sigaction](
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int {
        // SAFETY: the program's promise.
        unsafe { handlers::set(signal, new, old) }
    }

    /// Sets what a signal does.
    [signal, bsd_signal, ssignal](number: c_int, handler: usize) -> usize {
        let kernel = |handler: usize| {
            real!(signal(number: c_int, handler: usize) -> usize)
        };
        handlers::set_by(number, handler, kernel, false)
    }

    /// Sets what a signal does once.
    [sysv_signal, __sysv_signal](number: c_int, handler: usize) -> usize {
        let kernel = |handler: usize| {
            real!(sysv_signal(number: c_int, handler: usize) -> usize)
        };
        handlers::set_by(number, handler, kernel, true)
    }

    /// Sets what a signal does, or holds it back.
    [sigset](number: c_int, handler: usize) -> usize {
        let kernel = |handler: usize| {
            real!(sigset(number: c_int, handler: usize) -> usize)
        };
        handlers::set_by(number, handler, kernel, false)
    }
}
