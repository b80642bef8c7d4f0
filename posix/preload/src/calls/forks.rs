//! Children that are forked, and processes that end.
//!
//! `fork` itself is the C library's: it runs the functions of `pthread_atfork`, and ours are among
//! them. A child that shares its parent's memory would change the parent's numbers as its own: what
//! `vfork` and `clone` begin so, up to `exec`, is a child with memory of its own here. So is any
//! child that is begun without those functions.
//!
//! *Limit*: what such a child writes into a variable, its parent does not see.

use std::ffi::{c_char, c_int, c_long, c_void};

use libc::{pid_t, termios, winsize};

use crate::descriptions;
use crate::inside::is_inside;
use crate::process;
use crate::real::{interpose, real, set_errno};
use crate::trees;

/// A child, by all that is to be done before and after.
fn fork_now() -> pid_t {
    if is_inside() && !trees::all().is_empty() {
        // A signal handler amid a call of the engine, whose locks would stay in the child.
        set_errno(libc::EDEADLK);
        return -1;
    }
    // SAFETY: the program's own promise is the same.
    unsafe { libc::fork() }
}

type Run = extern "C" fn(*mut c_void) -> c_int;

/// Begins a copy of this process by the flags of `clone`.
fn copy_by(flags: c_int, parent_tid: *mut pid_t, tls: *mut c_void, child_tid: *mut pid_t) -> c_int {
    if flags & !0xff == 0 && flags & 0xff == libc::SIGCHLD {
        return fork_now();
    }
    let (number, flags) = (libc::SYS_clone, c_long::from(flags));
    let stack = std::ptr::null_mut::<c_void>();
    process::fork_by(|| {
        #[cfg(target_arch = "x86_64")]
        let (fifth, sixth) = (child_tid.cast::<c_void>(), tls);
        #[cfg(not(target_arch = "x86_64"))]
        let (fifth, sixth) = (tls, child_tid.cast::<c_void>());
        real!(
            syscall(number: c_long, flags: c_long, stack: *mut c_void, parent_tid: *mut pid_t,
                fifth: *mut c_void, sixth: *mut c_void) -> c_long
        ) as c_int
    })
}

/// `clone` as a system call: `None`, where it is the kernel's alone.
pub fn clone_by(arguments: [c_long; 5]) -> Option<c_long> {
    let [flags, stack, parent_tid, fourth, fifth] = arguments;
    #[cfg(target_arch = "x86_64")]
    let (child_tid, tls) = (fourth, fifth);
    #[cfg(not(target_arch = "x86_64"))]
    let (tls, child_tid) = (fourth, fifth);
    let flags = flags as c_int;
    if trees::all().is_empty() || stack != 0 || is_thread(flags) {
        return None;
    }
    let pid = copy_by(
        flags & !(libc::CLONE_VM | libc::CLONE_VFORK),
        std::ptr::with_exposed_provenance_mut(parent_tid as usize),
        std::ptr::with_exposed_provenance_mut(tls as usize),
        std::ptr::with_exposed_provenance_mut(child_tid as usize),
    );
    Some(c_long::from(pid))
}

/// Whether what is begun goes on in this memory, and is not one that waits for `exec`.
fn is_thread(flags: c_int) -> bool {
    flags & libc::CLONE_VM != 0 && flags & libc::CLONE_VFORK == 0
}

/// Puts `/dev/null` on the three streams.
fn silence() -> c_int {
    let (path, flags) = (c"/dev/null".as_ptr(), libc::O_RDWR);
    let fd = real!(open(path: *const c_char, flags: c_int) -> c_int);
    if fd < 0 {
        return -1;
    }
    // SAFETY: numbers alone; these are functions of this library.
    unsafe {
        for stream in 0..3 {
            libc::dup2(fd, stream);
        }
        if fd > 2 {
            libc::close(fd);
        }
    }
    0
}

interpose! {
    /// A child that becomes another program soon.
    [vfork, __vfork]() -> pid_t {
        fork_now()
    }

    /// A child. Functions of `pthread_atfork` are run all the same: the engine has its own there.
    [_Fork]() -> pid_t {
        if trees::all().is_empty() {
            return real!(_Fork() -> pid_t);
        }
        fork_now()
    }

    /// Begins a thread, or a child that runs a function.
    [clone, __clone](
        run: Option<Run>, stack: *mut c_void, flags: c_int, given: *mut c_void,
        parent_tid: *mut pid_t, tls: *mut c_void, child_tid: *mut pid_t
    ) -> c_int {
        let Some(run) = run.filter(|_| !trees::all().is_empty() && !is_thread(flags)) else {
            return real!(
                clone(run: Option<Run>, stack: *mut c_void, flags: c_int, given: *mut c_void,
                    parent_tid: *mut pid_t, tls: *mut c_void, child_tid: *mut pid_t) -> c_int
            );
        };
        if stack.is_null() {
            set_errno(libc::EINVAL);
            return -1;
        }
        let kept = flags & !(libc::CLONE_VM | libc::CLONE_VFORK);
        match copy_by(kept, parent_tid, tls, child_tid) {
            // SAFETY: the child ends with the function, as C has it.
            0 => unsafe { libc::_exit(run(given)) },
            pid => pid,
        }
    }

    /// Goes on in the background.
    [daemon](keep_folder: c_int, keep_streams: c_int) -> c_int {
        if trees::all().is_empty() {
            return real!(daemon(keep_folder: c_int, keep_streams: c_int) -> c_int);
        }
        match fork_now() {
            -1 => return -1,
            0 => {}
            // SAFETY: always sound.
            _ => unsafe { libc::_exit(0) },
        }
        // SAFETY: always sound; the folder is a string.
        unsafe {
            if libc::setsid() == -1 {
                return -1;
            }
            if keep_folder == 0 {
                libc::chdir(c"/".as_ptr());
            }
        }
        if keep_streams == 0 { silence() } else { 0 }
    }

    /// Ends. What the process has of shared descriptions is given back now. Other threads use it
    /// until the kernel has ended them: what they have is found when the process is gone.
    [_exit, _Exit](status: c_int) -> () {
        if let Some(shared) = descriptions::there().filter(|_| process::is_alone()) {
            shared.leave();
        }
        real!(_exit(status: c_int) -> ());
        std::process::abort();
    }

    /// Makes a terminal the one of a new session, on the three streams.
    [login_tty](fd: c_int) -> c_int {
        if trees::all().is_empty() {
            return real!(login_tty(fd: c_int) -> c_int);
        }
        let request = libc::TIOCSCTTY;
        // SAFETY: numbers alone.
        unsafe {
            libc::setsid();
            if libc::ioctl(fd, request, 0) == -1 {
                return -1;
            }
            for stream in 0..3 {
                while libc::dup2(fd, stream) == -1 && crate::real::errno() == libc::EBUSY {}
            }
            if fd > 2 {
                libc::close(fd);
            }
        }
        0
    }

    /// A child in a terminal of its own.
    [forkpty](
        terminal: *mut c_int, name: *mut c_char, settings: *const termios, size: *const winsize
    ) -> pid_t {
        if trees::all().is_empty() {
            return real!(
                forkpty(terminal: *mut c_int, name: *mut c_char, settings: *const termios,
                    size: *const winsize) -> pid_t
            );
        }
        let (mut ours, mut childs) = (-1, -1);
        // SAFETY: places for two numbers, and what the program gives.
        unsafe {
            if libc::openpty(&raw mut ours, &raw mut childs, name, settings, size) == -1 {
                return -1;
            }
            let pid = fork_now();
            match pid {
                -1 => {
                    libc::close(ours);
                    libc::close(childs);
                }
                0 => {
                    libc::close(ours);
                    if libc::login_tty(childs) != 0 {
                        libc::_exit(1);
                    }
                }
                _ => {
                    *terminal = ours;
                    libc::close(childs);
                }
            }
            pid
        }
    }
}
