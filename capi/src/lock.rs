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

/// Locks a member, or the group itself at NULL or "": with `exclusive` from all others who lock it,
/// else from those who lock it exclusively. It keeps out nobody who does not ask. Waits for so many
/// seconds, then that is `ENGRAM_STATUS_BUSY`; for ever, if the number is negative. It belongs to
/// this thread, and ends with the process, however that ends.
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

/// Lets go of a lock. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_lock_free(lock: *mut Lock) {
    drop(raw::take(lock));
}
