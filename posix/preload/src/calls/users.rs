//! Who asks: what changes users and groups is noted.

use std::ffi::{c_char, c_int};

use libc::{gid_t, uid_t};

use crate::process;
use crate::real::{interpose, real};

/// Notes who asks from now on, if a call has changed that.
fn noted(done: c_int) -> c_int {
    if done == 0 && !crate::trees::all().is_empty() {
        process::note_caller(None);
    }
    done
}

/// Files are asked for as another user or group, if the kernel has allowed that: it tells by the
/// next call alone. Of the thread only, as the kernel has it, this library knows nothing: all
/// threads ask so.
fn as_user(before: c_int, user: Option<uid_t>, group: Option<gid_t>) -> c_int {
    if !crate::trees::all().is_empty() {
        process::note_files_of(user, group);
    }
    before
}

interpose! {
    /// Sets the user.
    [setuid](user: uid_t) -> c_int {
        noted(real!(setuid(user: uid_t) -> c_int))
    }

    /// Sets the effective user.
    [seteuid](user: uid_t) -> c_int {
        noted(real!(seteuid(user: uid_t) -> c_int))
    }

    /// Sets the real and the effective user.
    [setreuid](own: uid_t, effective: uid_t) -> c_int {
        noted(real!(setreuid(own: uid_t, effective: uid_t) -> c_int))
    }

    /// Sets the real, the effective and the saved user.
    [setresuid](own: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        noted(real!(setresuid(own: uid_t, effective: uid_t, saved: uid_t) -> c_int))
    }

    /// Sets the group.
    [setgid](group: gid_t) -> c_int {
        noted(real!(setgid(group: gid_t) -> c_int))
    }

    /// Sets the effective group.
    [setegid](group: gid_t) -> c_int {
        noted(real!(setegid(group: gid_t) -> c_int))
    }

    /// Sets the real and the effective group.
    [setregid](own: gid_t, effective: gid_t) -> c_int {
        noted(real!(setregid(own: gid_t, effective: gid_t) -> c_int))
    }

    /// Sets the real, the effective and the saved group.
    [setresgid](own: gid_t, effective: gid_t, saved: gid_t) -> c_int {
        noted(real!(setresgid(own: gid_t, effective: gid_t, saved: gid_t) -> c_int))
    }

    /// Sets further groups.
    [setgroups](count: usize, groups: *const gid_t) -> c_int {
        noted(real!(setgroups(count: usize, groups: *const gid_t) -> c_int))
    }

    /// Sets further groups to those of a user.
    [initgroups](user: *const c_char, group: gid_t) -> c_int {
        noted(real!(initgroups(user: *const c_char, group: gid_t) -> c_int))
    }

    /// Goes to another namespace, in which users may have other numbers.
    [setns](fd: c_int, kind: c_int) -> c_int {
        noted(real!(setns(fd: c_int, kind: c_int) -> c_int))
    }

    /// Goes to a new namespace, in which users may have other numbers.
    [unshare](flags: c_int) -> c_int {
        noted(real!(unshare(flags: c_int) -> c_int))
    }

    /// Sets the user as whom files are asked for, of the calling thread.
    [setfsuid](user: uid_t) -> c_int {
        let before = real!(setfsuid(user: uid_t) -> c_int);
        as_user(before, Some(user), None)
    }

    /// Sets the group as which files are asked for, of the calling thread.
    [setfsgid](group: gid_t) -> c_int {
        let before = real!(setfsgid(group: gid_t) -> c_int);
        as_user(before, None, Some(group))
    }
}
