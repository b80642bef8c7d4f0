//! Commands of the shell that run beside this process, with a pipe.
//!
//! Libc's own `popen` starts its shell unseen, in this process's memory. The numbers that the shell
//! inherits would have to be made real before, in a process whose other threads close and open
//! numbers meanwhile. So the shell is started as `posix_spawn` starts a program here, and the
//! stream is a plain one of the pipe. Which shell it leads to is kept here: who closes the stream
//! waits for the shell, as with libc's own.

use std::ffi::{c_char, c_int};

use libc::{FILE, pid_t};

use crate::calls::shells::SHELL;
use crate::calls::spawned::{Action, Start, spawn};
use crate::handing;
use crate::inside::is_inside;
use crate::process::Spin;
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

/// A stream that leads to a shell.
struct Open {
    stream: usize,
    /// Its number.
    fd: c_int,
    shell: pid_t,
}

static OPEN: Spin<Vec<Open>> = Spin::new(Vec::new());

/// How a stream is to be opened.
struct Mode {
    reads: bool,
    closes_on_exec: bool,
}

impl Mode {
    /// What libc takes.
    fn of(text: &[u8]) -> Option<Mode> {
        let has = |letter: u8| text.contains(&letter);
        let is_known = text.iter().all(|letter| b"rwe".contains(letter));
        let is_one = is_known && has(b'r') != has(b'w');
        is_one.then(|| Mode { reads: has(b'r'), closes_on_exec: has(b'e') })
    }
}

/// What the shell is to do with its numbers: the pipe's end becomes its input or output, and it has
/// none of the streams that are open.
fn actions(mode: &Mode, end: c_int) -> Vec<Action> {
    let to = c_int::from(mode.reads);
    let mut actions = vec![Action::Duplicate(end, to)];
    let open = OPEN.lock();
    let others = open.iter().map(|open| open.fd).filter(|fd| *fd != to);
    actions.extend(others.map(Action::Close));
    actions
}

fn close_plain(fd: c_int) {
    real!(close(fd: c_int) -> c_int);
}

/// Starts the shell, and gives the stream that leads to it; null, with the number of the error.
unsafe fn begin(command: *const c_char, mode: &Mode) -> *mut FILE {
    let mut ends = [-1_i32; 2];
    let (to, flags) = (ends.as_mut_ptr(), libc::O_CLOEXEC);
    if real!(pipe2(to: *mut c_int, flags: c_int) -> c_int) != 0 {
        return std::ptr::null_mut();
    }
    let [own, other] = if mode.reads { ends } else { [ends[1], ends[0]] };
    let named = if mode.reads { c"r" } else { c"w" }.as_ptr();
    let stream = real!(fdopen(own: c_int, named: *const c_char) -> *mut FILE);
    if stream.is_null() {
        let why = errno();
        close_plain(own);
        close_plain(other);
        set_errno(why);
        return stream;
    }
    let list = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), command, std::ptr::null()];
    let start = Start {
        path: SHELL.as_ptr(),
        searched: false,
        actions: &actions(mode, other),
        attributes: std::ptr::null(),
        list: list.as_ptr(),
        environment: handing::environment(),
    };
    let mut shell: pid_t = 0;
    // SAFETY: strings, lists of them, and a place for a number.
    let why = unsafe { spawn(&raw mut shell, &start) };
    close_plain(other);
    if why != 0 {
        real!(fclose(stream: *mut FILE) -> c_int);
        set_errno(why);
        return std::ptr::null_mut();
    }
    if !mode.closes_on_exec {
        handing::close_on_exec(own, false);
    }
    OPEN.lock().push(Open { stream: stream.addr(), fd: own, shell });
    stream
}

/// The shell that a stream leads to, which is about to be closed.
pub fn taken_out(stream: *mut FILE) -> Option<pid_t> {
    let mut open = OPEN.lock();
    let at = open.iter().position(|open| open.stream == stream.addr())?;
    Some(open.swap_remove(at).shell)
}

/// Waits for a shell whose stream is closed; how it ended, or -1.
pub fn wait_for(shell: pid_t) -> c_int {
    let mut status = 0;
    loop {
        // SAFETY: a place for the status.
        let done = unsafe { libc::waitpid(shell, &raw mut status, 0) };
        if done >= 0 || errno() != libc::EINTR {
            return if done < 0 { -1 } else { status };
        }
    }
}

/// For a fork: nobody else is at the list.
pub fn before_fork() {
    OPEN.acquire();
}

/// For a fork: on with it.
pub fn after_fork() {
    OPEN.release();
}

interpose! {
    /// Runs a command beside this process, with a pipe.
    [popen, _IO_popen](command: *const c_char, mode: *const c_char) -> *mut FILE {
        if trees::all().is_empty() {
            return real!(popen(command: *const c_char, mode: *const c_char) -> *mut FILE);
        }
        // SAFETY: the program's promise.
        unsafe {
            let why = match Mode::of(std::ffi::CStr::from_ptr(mode).to_bytes()) {
                // A signal handler amid a call of the engine.
                Some(_) if is_inside() => libc::EDEADLK,
                Some(mode) => return begin(command, &mode),
                None => libc::EINVAL,
            };
            set_errno(why);
            std::ptr::null_mut()
        }
    }

    /// Closes such a stream, and waits for the shell.
    [pclose](stream: *mut FILE) -> c_int {
        if trees::all().is_empty() {
            return real!(pclose(stream: *mut FILE) -> c_int);
        }
        // SAFETY: the program's promise.
        unsafe { libc::fclose(stream) }
    }
}
