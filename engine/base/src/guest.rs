//! Two copies of the engine in one process.
//!
//! A process has the engine twice where one copy is preloaded, and serves the program's files, and
//! another belongs to what the program itself uses: the Python package, the C library. The
//! preloaded copy is the *guest*. Both may have one realm open: to the pool they are two processes
//! that share a pid.
//!
//! *Protocol*: the guest says so before it opens anything ([`become_one`]). From then on it has a
//! number of its own ([`number`]) wherever the engine tells processes apart by a pid: in LMDB's
//! table of readers and the byte that LMDB locks for it, in leases, in names of files that are
//! being made. Locks of files are of open file descriptions everywhere, since a process's own locks
//! go with the first descriptor that any copy closes. What people read shows the pid ([`pid_of`]).

use std::sync::atomic::{AtomicBool, Ordering};

/// Set in a guest's number. Linux gives no pid beyond `2^22 - 1` (`PID_MAX_LIMIT`).
const GUEST: u32 = 1 << 22;

static IS_GUEST: AtomicBool = AtomicBool::new(false);

/// Says that this copy is the guest. Nothing may be open yet.
pub fn become_one() {
    IS_GUEST.store(true, Ordering::Relaxed);
}

/// Whether this copy is the guest.
pub fn is_one() -> bool {
    IS_GUEST.load(Ordering::Relaxed)
}

/// The number of this copy, among all that the processes of this machine have.
pub fn number() -> u32 {
    std::process::id() | if is_one() { GUEST } else { 0 }
}

/// The pid of the process that has the copy of this number.
pub fn pid_of(number: u32) -> u32 {
    number & !GUEST
}
