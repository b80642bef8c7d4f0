//! Commands of the shell.
//!
//! The shell is started as `posix_spawn` starts a program here.

use std::ffi::{CStr, c_char, c_int};

use crate::calls::spawned::{Start, spawn};
use crate::handing;
use crate::process::Spin;
use crate::real::{errno, interpose, real, set_errno};
use crate::trees;

pub const SHELL: &CStr = c"/bin/sh";

/// How many calls of `system` go on, and what SIGINT and SIGQUIT did before the first.
struct Running {
    count: u32,
    before: [libc::sigaction; 2],
}

// SAFETY: plain data.
unsafe impl Send for Running {}

static RUNNING: Spin<Option<Running>> = Spin::new(None);
const ASIDE: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Has the two signals be ignored while a command runs.
fn ignore() {
    let mut running = RUNNING.lock();
    // SAFETY: plain data, for which zeros are valid; places for what was set.
    unsafe {
        let running =
            running.get_or_insert_with(|| Running { count: 0, before: [std::mem::zeroed(); 2] });
        running.count += 1;
        if running.count == 1 {
            let mut ignored: libc::sigaction = std::mem::zeroed();
            ignored.sa_sigaction = libc::SIG_IGN;
            for (signal, before) in ASIDE.iter().zip(&mut running.before) {
                libc::sigaction(*signal, &raw const ignored, before);
            }
        }
    }
}

/// Has them do again what they did.
fn resume() {
    let mut running = RUNNING.lock();
    let Some(running) = running.as_mut() else { return };
    running.count -= 1;
    if running.count == 0 {
        for (signal, before) in ASIDE.iter().zip(&running.before) {
            // SAFETY: what was set before.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

/// Which of them were not ignored: these do in the shell what they do by default.
fn defaults() -> libc::sigset_t {
    // SAFETY: plain data, for which zeros are valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    let running = RUNNING.lock();
    let before = running.iter().flat_map(|running| running.before);
    for (signal, before) in ASIDE.iter().zip(before) {
        if before.sa_sigaction != libc::SIG_IGN {
            // SAFETY: a set, and a signal.
            unsafe { libc::sigaddset(&raw mut set, *signal) };
        }
    }
    set
}

/// Starts the shell, and waits for it.
unsafe fn run(command: *const c_char) -> c_int {
    const NOT_STARTED: c_int = 127 << 8;
    // SAFETY: plain data, for which zeros are valid; places, and a child of this process.
    unsafe {
        let mut child: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        ignore();
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const child, &raw mut before);
        let mut attributes: libc::posix_spawnattr_t = std::mem::zeroed();
        libc::posix_spawnattr_init(&raw mut attributes);
        libc::posix_spawnattr_setsigmask(&raw mut attributes, &raw const before);
        let defaults = defaults();
        libc::posix_spawnattr_setsigdefault(&raw mut attributes, &raw const defaults);
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        libc::posix_spawnattr_setflags(&raw mut attributes, flags as libc::c_short);
        let list = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), command, std::ptr::null()];
        let start = Start {
            path: SHELL.as_ptr(),
            searched: false,
            actions: &[],
            attributes: &raw const attributes,
            list: list.as_ptr(),
            environment: handing::environment(),
        };
        let (mut pid, mut status) = (0, NOT_STARTED);
        let why = spawn(&raw mut pid, &start);
        if why == 0 {
            while libc::waitpid(pid, &raw mut status, 0) < 0 {
                if errno() != libc::EINTR {
                    status = -1;
                    break;
                }
            }
        }
        libc::posix_spawnattr_destroy(&raw mut attributes);
        resume();
        let kept = errno();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        set_errno(if why == 0 { kept } else { why });
        status
    }
}

interpose! {
    /// Runs a command, and waits for it.
    [system](command: *const c_char) -> c_int {
        if trees::all().is_empty() {
            return real!(system(command: *const c_char) -> c_int);
        }
        // SAFETY: the program's promise.
        unsafe {
            if command.is_null() {
                return c_int::from(run(c"exit 0".as_ptr()) == 0);
            }
            run(command)
        }
    }
}
