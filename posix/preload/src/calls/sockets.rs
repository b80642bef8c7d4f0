//! Descriptors that go through sockets, and sockets that have paths.
//!
//! A descriptor of ours is made real before it goes. Who receives it knows it again, if it has
//! the same table of descriptions: it was started, however far back, by one that has it. To any
//! other it can be neither read nor written.
//!
//! *Limit*: on its way nobody has it. If its sender closes it meanwhile, and others then open
//! 65,536 files, it has become another, and is refused; a file without a name is gone when it
//! arrives.

use std::ffi::{c_int, c_long, c_uint, c_void};

use libc::{cmsghdr, mmsghdr, msghdr, sockaddr, socklen_t, timespec};

use crate::calls::refused_call;
use crate::descriptors;
use crate::inside::is_inside;
use crate::places::{Place, fail, locate};
use crate::real::{interpose, real, set_errno};
use crate::trees;

#[allow(clippy::unnecessary_cast, reason = "musl's has another type")]
fn length(head: &cmsghdr) -> usize {
    head.cmsg_len as usize
}

/// Does something with each descriptor that a message has.
unsafe fn each_descriptor(message: *const msghdr, mut work: impl FnMut(c_int)) {
    // SAFETY: a message, as the program or the kernel has made it: its parts lie within.
    unsafe {
        if message.is_null() || (*message).msg_control.is_null() {
            return;
        }
        let mut part: *const cmsghdr = libc::CMSG_FIRSTHDR(message);
        while let Some(head) = part.as_ref() {
            if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
                let before = libc::CMSG_LEN(0) as usize;
                let count = length(head).saturating_sub(before) / size_of::<c_int>();
                let first = libc::CMSG_DATA(part);
                for at in 0..count {
                    let mut fd: c_int = 0;
                    let from = first.add(at * size_of::<c_int>());
                    let into = (&raw mut fd).cast::<u8>();
                    std::ptr::copy_nonoverlapping(from, into, size_of::<c_int>());
                    work(fd);
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

fn is_kernels() -> bool {
    trees::all().is_empty() || is_inside()
}

/// Makes what is about to go real, with the close-on-exec that it has.
unsafe fn before_sending(message: *const msghdr) {
    if is_kernels() {
        return;
    }
    let make_real = |fd| {
        if descriptors::is_ours(fd) {
            let command = libc::F_GETFD;
            let flags = real!(fcntl(fd: c_int, command: c_int) -> c_int);
            let closes = flags & libc::FD_CLOEXEC != 0;
            descriptors::make_one_real(fd, if closes { libc::O_CLOEXEC } else { 0 });
        }
    };
    // SAFETY: the program's message.
    unsafe { each_descriptor(message, make_real) };
}

/// Knows again what has come.
unsafe fn after_receiving(message: *const msghdr) {
    if !is_kernels() {
        // SAFETY: the message that the kernel has filled.
        unsafe { each_descriptor(message, descriptors::take_in) };
    }
}

/// Instead of a path of the pool.
const ELSEWHERE: &str = "name the socket by a path outside of the pool";

/// Whether an address is a path of ours, at which the kernel has no socket.
unsafe fn is_ours(address: *const sockaddr, size: socklen_t) -> bool {
    if is_kernels() || address.is_null() || size <= 2 {
        return false;
    }
    // SAFETY: the program's address, of this size.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), size as usize) };
    let family = u16::from_ne_bytes([bytes[0], bytes[1]]);
    if c_int::from(family) != libc::AF_UNIX || bytes[2] == 0 {
        return false;
    }
    let end = bytes[2..].iter().position(|byte| *byte == 0).unwrap_or(bytes.len() - 2);
    let Ok(path) = std::ffi::CString::new(&bytes[2..2 + end]) else { return false };
    matches!(locate(libc::AT_FDCWD, &path), Place::Ours(..))
}

interpose! {
    /// Sends a message.
    [sendmsg](fd: c_int, message: *const msghdr, flags: c_int) -> isize {
        // SAFETY: the program's promise.
        unsafe {
            if !message.is_null() && is_ours((*message).msg_name.cast(), (*message).msg_namelen) {
                return fail(&refused_call("sendmsg", ELSEWHERE));
            }
            before_sending(message);
        }
        real!(sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize)
    }

    /// Sends bytes to an address, which cannot be a path of ours.
    [sendto](
        fd: c_int, from: *const c_void, size: usize, flags: c_int, address: *const sockaddr,
        room: socklen_t
    ) -> isize {
        // SAFETY: the program's promise.
        if unsafe { is_ours(address, room) } {
            return fail(&refused_call("sendto", ELSEWHERE));
        }
        real!(
            sendto(fd: c_int, from: *const c_void, size: usize, flags: c_int,
                address: *const sockaddr, room: socklen_t) -> isize
        )
    }

    /// Sends messages.
    [sendmmsg](fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int)
        -> c_int
    {
        for at in 0..count as usize {
            // SAFETY: the program's promise.
            unsafe { before_sending(&raw const (*messages.add(at)).msg_hdr) };
        }
        real!(sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int)
    }

    /// Receives a message.
    [recvmsg](fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
        let size = real!(recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize);
        if size >= 0 {
            // SAFETY: the program's promise.
            unsafe { after_receiving(message) };
        }
        size
    }

    /// Receives messages.
    [recvmmsg](
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, wait: *mut timespec
    ) -> c_int {
        let done = real!(
            recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int,
                wait: *mut timespec) -> c_int
        );
        for at in 0..done.max(0) as usize {
            // SAFETY: the program's promise.
            unsafe { after_receiving(&raw const (*messages.add(at)).msg_hdr) };
        }
        done
    }

    /// Gives a socket a name, which cannot be a path of ours.
    [bind](fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int {
        // SAFETY: the program's promise.
        if unsafe { is_ours(address, size) } {
            return fail(&refused_call("bind", ELSEWHERE));
        }
        real!(bind(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int)
    }

    /// Connects a socket, which has no path of ours.
    [connect, __connect](fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int {
        // SAFETY: the program's promise.
        if unsafe { is_ours(address, size) } {
            return fail(&refused_call("connect", ELSEWHERE));
        }
        real!(connect(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int)
    }

    /// Copies another process's descriptor, which is not known here if it is one of ours there.
    [pidfd_getfd](process: c_int, fd: c_int, flags: c_uint) -> c_int {
        let number = libc::SYS_pidfd_getfd;
        let new = real!(
            syscall(number: c_long, process: c_int, fd: c_int, flags: c_uint) -> c_long
        ) as c_int;
        let is_marker = |fd| {
            crate::descriptions::there().is_some_and(|shared| shared.is_marker(fd))
        };
        if new >= 0 && !is_kernels() && is_marker(new) {
            real!(close(new: c_int) -> c_int);
            set_errno(libc::ENOTSUP);
            return -1;
        }
        new
    }
}
