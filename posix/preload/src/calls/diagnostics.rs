//! Messages that libc writes to number 2 by hidden functions. Most go through `stderr`.

use std::ffi::{c_char, c_int};

use libc::siginfo_t;

use crate::calls::streams::Values;
use crate::descriptors;
use crate::inside::is_inside;
use crate::real::{interpose, real, variadic};
use crate::streams;

/// Has libc write its message, and writes it to what number 2 stands for.
fn told(writes: impl FnOnce()) {
    let fd: c_int = 2;
    if is_inside() || !descriptors::is_ours(fd) {
        return writes();
    }
    streams::write_all(fd, &descriptors::caught(fd, writes));
}

interpose! {
    /// Says why the last look-up of a host failed.
    [herror](before: *const c_char) -> () {
        told(|| real!(herror(before: *const c_char) -> ()));
    }

    /// Says what a signal tells.
    [psiginfo](what: *const siginfo_t, before: *const c_char) -> () {
        told(|| real!(psiginfo(what: *const siginfo_t, before: *const c_char) -> ()));
    }

    /// Writes to the system's log, and to number 2 if `openlog` was told so.
    [vsyslog](priority: c_int, format: *const c_char, values: Values) -> () {
        told(|| real!(vsyslog(priority: c_int, format: *const c_char, values: Values) -> ()));
    }

    /// The same, with a look at the format.
    [__vsyslog_chk](priority: c_int, flag: c_int, format: *const c_char, values: Values) -> () {
        told(|| {
            real!(
                __vsyslog_chk(priority: c_int, flag: c_int, format: *const c_char,
                    values: Values) -> ()
            );
        });
    }
}

variadic! {
    syslog => engram_syslog,
    __syslog_chk => engram_syslog_chk,
}
