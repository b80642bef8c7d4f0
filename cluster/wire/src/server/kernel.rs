//! Two things that the kernel is told and asked, and no safe wrapper has.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Holds SIGPIPE back in this thread, for as long as it lives.
///
/// A client that vanishes makes `sendfile` and `writev` raise it, and no flag of theirs says not
/// to. Rust and Python ignore it; a program in C or Fortran, a rank of MPI say, would be ended.
/// Whether the process ignores a signal is the process's own affair. So each thread of the server
/// holds it back, and sees the error that the call returns as well.
pub(crate) fn hold_back_sigpipe() {
    // SAFETY: the set is made before it is read, and it is this thread's mask alone that changes.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Whether the kernel may send bytes of this connection again: the other side has not acknowledged
/// all of them, and the connection is not reset.
pub(crate) fn may_send_again(socket: &OwnedFd) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel writes one number, and it is there.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    let mut state = [PollFd::new(socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_over = poll(&mut state, Some(&at_once)).is_ok_and(|ready| ready > 0);
    asked == 0 && bytes > 0 && !is_over
}
