//! `stdin`, `stdout` and `stderr`, which follow the numbers 0, 1 and 2.
//!
//! The C library's own three streams read and write by its hidden functions. So while one of the
//! numbers is of ours, the variable points to a stream of ours: functions such as `printf` use what
//! it points to. What the one had in its buffer goes to the other, and with it how it is buffered.
//! When the number becomes the kernel's again, the C library's own stream comes back.
//!
//! Each of the three is made once and stays, since a program may have kept its address: it goes on
//! by its number, whatever that is of.
//!
//! *Limit*: a program that has kept the address of the C library's own stream, and writes there
//! while the number is of ours, gets `EPERM`. C++'s `cout` and the like keep it, too: they are told
//! ([`iostreams`]).

mod iostreams;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::FILE;

use crate::descriptors;
use crate::inside::is_inside;
use crate::process::Spin;
use crate::real::{errno, real, set_errno};
use crate::streams::mode::Mode;

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    static mut _IO_2_1_stdin_: FILE;
    static mut _IO_2_1_stdout_: FILE;
    static mut _IO_2_1_stderr_: FILE;
}

/// Those of ours, by number.
static OURS: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 3];
static FOLLOWING: Spin<()> = Spin::new(());

thread_local! {
    /// Whether a number has changed while this thread was inside.
    static IS_DUE: Cell<bool> = const { Cell::new(false) };
}

/// The program's variable of a number.
fn variable(number: usize) -> *mut *mut FILE {
    match number {
        0 => &raw mut stdin,
        1 => &raw mut stdout,
        _ => &raw mut stderr,
    }
}

/// The C library's own stream of a number.
pub fn own(number: usize) -> *mut FILE {
    match number {
        0 => &raw mut _IO_2_1_stdin_,
        1 => &raw mut _IO_2_1_stdout_,
        _ => &raw mut _IO_2_1_stderr_,
    }
}

/// The number whose stream of the C library's this is.
pub fn number_of_own(stream: *mut FILE) -> Option<usize> {
    (0..3).find(|number| own(*number) == stream)
}

/// What a number's variable points to.
pub fn current(number: usize) -> *mut FILE {
    // SAFETY: the C library's variable.
    unsafe { *variable(number) }
}

/// The stream of ours of a number, which is made at the beginning.
pub fn ours(number: usize) -> *mut FILE {
    OURS[number].load(Ordering::Acquire)
}

/// Whether a stream is one of the three.
pub fn is_one(stream: *mut FILE) -> bool {
    OURS.iter().any(|one| one.load(Ordering::Relaxed) == stream)
}

/// Makes the three, and has them take their places where a number is of ours already.
pub fn begin() {
    for (number, stream) in OURS.iter().enumerate() {
        let mode = Mode::plain(if number == 0 { b'r' } else { b'w' });
        stream.store(super::make(number as c_int, &mode, true), Ordering::Release);
        follow(number as c_int);
    }
}

/// A number has come to be of ours, or of the kernel's again: its stream follows.
pub fn follow(fd: c_int) {
    if !(0..3).contains(&fd) || ours(fd as usize).is_null() {
        return;
    }
    if is_inside() {
        IS_DUE.set(true);
        return;
    }
    let before = errno();
    let following = FOLLOWING.lock();
    let number = fd as usize;
    let (mut old, mut new) = (ours(number), own(number));
    if descriptors::is_ours(fd) {
        std::mem::swap(&mut old, &mut new);
    }
    // A program may have given the variable a stream of its own.
    if current(number) == old {
        carry(number, old, new);
        // SAFETY: the C library's variable, which programs may set, too.
        unsafe { *variable(number) = new };
        iostreams::replace(number, old, new);
    }
    drop(following);
    set_errno(before);
}

/// What has changed while the thread was inside.
pub fn catch_up() {
    if IS_DUE.replace(false) {
        (0..3).for_each(follow);
    }
}

fn carry(number: usize, old: *mut FILE, new: *mut FILE) {
    let (fd, none) = (number as c_int, 0);
    let is_wide = match super::get(old) {
        // SAFETY: nobody else turns a standard stream meanwhile.
        Some(behind) => unsafe { behind.wide() }.orientation > 0,
        None => real!(fwide(old: *mut FILE, none: c_int) -> c_int) > 0,
    };
    if !is_wide {
        // SAFETY: both are streams that stay.
        unsafe { super::engram_stream_carry(old, new) };
        return;
    }
    // Characters that are not bytes yet cannot be moved: they are written.
    if super::get(old).is_some() {
        super::write_all(fd, &super::take_pending(old));
        let one = 1;
        real!(fwide(new: *mut FILE, one: c_int) -> c_int);
    } else {
        let bytes = descriptors::caught(fd, || {
            real!(fflush(old: *mut FILE) -> c_int);
        });
        super::write_all(fd, &bytes);
        if let Some(behind) = super::get(new) {
            // SAFETY: nobody else turns a standard stream meanwhile.
            unsafe { behind.wide() }.orientation = 1;
        }
    }
}

/// The program closes a standard stream of ours: with it the C library's own, in whose place it is.
pub fn close(stream: *mut FILE, fd: c_int) -> c_int {
    let number = fd as usize;
    // SAFETY: a stream that stays.
    let flushed = unsafe { libc::fflush(stream) };
    super::take_pending(stream);
    if current(number) != stream {
        // SAFETY: always sound.
        return flushed | unsafe { libc::close(fd) };
    }
    let own = own(number);
    // SAFETY: the C library's variable.
    unsafe { *variable(number) = own };
    iostreams::replace(number, stream, own);
    descriptors::close(fd);
    flushed | real!(fclose(own: *mut FILE) -> c_int)
}

/// For a fork: nobody else is at it.
pub fn hold() {
    FOLLOWING.acquire();
}

/// For a fork: on with it.
pub fn resume() {
    FOLLOWING.release();
}
