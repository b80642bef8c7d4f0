//! How LMDB waits for its locks: never for ever for a lock that nobody has.
//!
//! LMDB's two locks are robust mutexes. A thread that unlocks one wakes one of those that wait. If
//! that one is killed before it has the lock, the kernel wakes the next, but only if the lock is
//! still free then. If a third has taken it meanwhile, which has seen nobody wait, nobody is woken
//! when that one unlocks; and who waits then sleeps, beside a free lock, until others contend for
//! it again. Eight processes with a mutex alone, of which some were killed all the time, met it 11
//! times in 4,876 deaths.
//!
//! So nobody sleeps for long: LMDB's C is compiled to call [`engram_mutex_lock`] where it says
//! `pthread_mutex_lock` (a flag that the Makefile and pyproject.toml set). That waits until a
//! deadline, and then looks again. A free lock costs what it did. In a build without the flag, of
//! which `build.rs` warns, LMDB waits as it always does.

use std::mem::MaybeUninit;
use std::time::Duration;

use libc::{c_int, pthread_mutex_t};

/// The longest sleep beside a lock that may be free.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Locks a mutex as `pthread_mutex_lock` does, with the same codes.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
#[unsafe(no_mangle)]
unsafe extern "C" fn engram_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let mut rc = unsafe { libc::pthread_mutex_trylock(mutex) };
    if rc != libc::EBUSY {
        return rc;
    }
    loop {
        let until = deadline();
        // SAFETY: the caller's promise.
        rc = unsafe { libc::pthread_mutex_timedlock(mutex, &raw const until) };
        if rc != libc::ETIMEDOUT {
            return rc;
        }
    }
}

/// So far from now, by the clock that mutexes go by. (One that is set back makes a sleep longer.)
fn deadline() -> libc::timespec {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: a place for the time, which all zeros are too.
    let now = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, now.as_mut_ptr());
        now.assume_init()
    };
    let nanoseconds = now.tv_nsec + libc::c_long::from(LOOK_AGAIN.subsec_nanos() as i32);
    libc::timespec {
        tv_sec: now.tv_sec + nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    }
}

/// Has the linker keep the function, which only C calls.
pub(super) fn keep() {
    std::hint::black_box(engram_mutex_lock as unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int);
}
