//! Locks of members, for those who ask.

use std::ffi::c_char;
use std::thread;
use std::time::Duration;

use engram::{Lock as Engine, LockMode};

use crate::error::{Status, guard};
use crate::group::Group;
use crate::raw::{self, argument};

/// A lock that is held.
pub struct Lock {
    _engine: Engine,
}

/// Locks a member, or the group itself if `path` is NULL or "". With `exclusive`, nobody else can
/// lock it meanwhile. Without, others can lock it too, but not exclusively. Only those who ask for
/// the lock are kept out. The call waits for so many seconds, or for ever if the number is
/// negative; after that the status is `ENGRAM_STATUS_BUSY`. The lock belongs to this thread. It
/// ends with the process at the latest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_lock_take(
    group: *const Group,
    path: *const c_char,
    exclusive: bool,
    seconds: f64,
    lock: *mut *mut Lock,
) -> Status {
    guard(|| {
        let out = raw::out("lock", lock)?;
        let group = raw::of("group", group)?;
        let member = group.member(path)?;
        let within = if seconds < 0.0 {
            None
        } else {
            let within = Duration::try_from_secs_f64(seconds);
            Some(within.map_err(|_| argument(format!("{seconds} seconds are no time to wait")))?)
        };
        let mode = if exclusive { LockMode::Write } else { LockMode::Read };
        let mut pause = |time| {
            thread::sleep(time);
            Ok(())
        };
        let engine = group.namespace.lock(member, mode, within, &mut pause)?;
        out.set(raw::give(Lock { _engine: engine }));
        Ok(())
    })
}

/// Releases a lock. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_lock_free(lock: *mut Lock) {
    drop(raw::take(lock));
}
