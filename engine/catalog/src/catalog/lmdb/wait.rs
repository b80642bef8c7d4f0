//! How LMDB waits for its locks: never for ever for one that nobody has, or whose holder stands
//! still.
//!
//! LMDB's two locks are robust mutexes. A thread that unlocks one wakes one of those that wait. If
//! that one is killed before it has the lock, the kernel wakes the next, but only if the lock is
//! still free then. If a third has taken it meanwhile, which has seen nobody wait, nobody is woken
//! when that one unlocks; and the waiting thread then sleeps, beside a free lock, until others
//! contend for it again. Eight processes with a mutex alone, of which some were killed all the
//! time, met it 11 times in 4,876 deaths.
//!
//! So nobody sleeps for long: LMDB's C is compiled to call [`engram_mutex_lock`] where it says
//! `pthread_mutex_lock` (a flag that `.cargo/config.toml` sets). That waits until a
//! deadline, and then looks again. A free lock costs what it did. In a build without the flag, of
//! which `build.rs` warns, LMDB waits as it always does.
//!
//! Before it sleeps, a thread looks some times whether the lock has come free. A small commit is
//! over before a sleeping thread would have been woken, so two processes that commit at once hand
//! the lock over without the kernel. A thread that has looked in vain sleeps, and takes the
//! processor from nobody.
//!
//! # Who stands still
//!
//! A process that is stopped inside a commit keeps the writer lock. The word of a robust mutex says
//! which thread has it (futex(2)), so a thread that has slept looks what that thread does, as
//! `pool_lock/watch.rs` has it: one at work is waited for, one that stands still is given up, with
//! `EBUSY`, which LMDB hands to its caller. (No two PID namespaces share a catalog.) A lock that
//! was given up was not taken, and nothing has changed:
//!
//! - Beginning a transaction: before the writer lock nothing is touched; what was made for a reader
//!   is freed again.
//! - Looking for dead readers: those found before are cleared, the others stay.
//! - Copying the catalog: that begins as a reader does. (The plain mutexes between its threads are
//!   no robust ones, and are waited for.)
//! - Nothing else takes a lock: renewing, committing, resetting, ending and closing do not.
//! - A call that only *tries* gives up a lock that somebody has, at once.
//! - *Not so* while LMDB puts in order what a process that died with the writer lock has left. It
//!   takes the readers' lock then, and if that failed, the writer lock could never be had again. So
//!   a thread that was told of a death gives nothing up until its call returns.

use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{c_int, pthread_mutex_t};

use engram_base::pool_lock::{LockHolder, Watch};

/// The longest sleep beside a lock that may be free.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How often a thread looks for a free lock before it sleeps, and how long it rests between looks:
/// some microseconds in all, a few small commits.
const LOOKS: u32 = 100;
const RESTS: u32 = 4;
/// The part of a robust mutex's word that is its owner's number (`FUTEX_TID_MASK`).
const OWNER: u32 = (1 << 30) - 1;
/// What of its kind says that it is robust (`PTHREAD_MUTEX_ROBUST_NORMAL_NP`).
const ROBUST: u32 = 16;

thread_local! {
    /// Whether this thread is in a call that may give a lock up.
    static MAY_GIVE_UP: Cell<bool> = const { Cell::new(false) };
    /// Whether that call gives up at once.
    static TRIES: Cell<bool> = const { Cell::new(false) };
    /// The holder of the lock that it gave up.
    static GIVEN_UP: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

/// The holder of the lock that this process gave up last: as long as that one does nothing, nobody
/// here waits for it as long again. A thread that finds this locked does without.
static LAST: Mutex<Option<Watch>> = Mutex::new(None);
/// The address of that lock, until somebody here has it; 0 for none.
static LAST_AT: AtomicUsize = AtomicUsize::new(0);

/// Makes a call of LMDB's that may give up a lock, with `EBUSY`: [`given_up`] has its holder.
pub(super) fn giving_up(call: impl FnOnce() -> c_int) -> c_int {
    drop(given_up());
    MAY_GIVE_UP.set(true);
    let rc = call();
    MAY_GIVE_UP.set(false);
    rc
}

/// Makes such a call that gives up, with `EBUSY`, whatever lock somebody has.
pub(super) fn trying(call: impl FnOnce() -> c_int) -> c_int {
    TRIES.set(true);
    let rc = giving_up(call);
    TRIES.set(false);
    rc
}

/// The holder of the lock that the last such call of this thread gave up.
pub(super) fn given_up() -> Option<Watch> {
    // A thread that ends may commit still, when this is gone: what its batch had goes back.
    GIVEN_UP.try_with(|slot| slot.borrow_mut().take()).ok().flatten()
}

/// Locks a mutex as `pthread_mutex_lock` does, with the same codes; `EBUSY`: given up.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
#[unsafe(no_mangle)]
unsafe extern "C" fn engram_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    let mut rc = unsafe { libc::pthread_mutex_trylock(mutex) };
    let mut watch = None;
    if rc == libc::EBUSY && TRIES.get() && MAY_GIVE_UP.get() {
        return rc;
    }
    for _ in 0..LOOKS {
        if rc != libc::EBUSY {
            break;
        }
        (0..RESTS).for_each(|_| std::hint::spin_loop());
        // SAFETY: the caller's promise.
        if unsafe { is_free(mutex) } {
            // SAFETY: the caller's promise.
            rc = unsafe { libc::pthread_mutex_trylock(mutex) };
        }
    }
    while matches!(rc, libc::EBUSY | libc::ETIMEDOUT) {
        // SAFETY: the caller's promise.
        if rc == libc::ETIMEDOUT && MAY_GIVE_UP.get() && unsafe { is_vain(mutex, &mut watch) } {
            return libc::EBUSY;
        }
        let until = deadline();
        // SAFETY: the caller's promise.
        rc = unsafe { libc::pthread_mutex_timedlock(mutex, &raw const until) };
    }
    if LAST_AT.load(Ordering::Relaxed) == mutex.addr() {
        LAST_AT.store(0, Ordering::Relaxed);
    }
    if rc == libc::EOWNERDEAD {
        MAY_GIVE_UP.set(false);
    }
    rc
}

/// Whether of this library it is known where a mutex has its words.
const WORDS_ARE_KNOWN: bool =
    cfg!(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"));

/// Whether nobody seems to have the lock: by a look that disturbs its holder less than trying does.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
unsafe fn is_free(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the mutex's first word, aligned, touched by atomic operations alone.
    !WORDS_ARE_KNOWN || unsafe { AtomicU32::from_ptr(mutex.cast()) }.load(Ordering::Relaxed) == 0
}

/// Whether to give the lock up, since its holder stands still.
///
/// # Safety
///
/// `mutex` points to an initialised mutex.
unsafe fn is_vain(mutex: *mut pthread_mutex_t, watch: &mut Option<Watch>) -> bool {
    if !WORDS_ARE_KNOWN {
        return false;
    }
    // SAFETY: the mutex's first word and its fifth, aligned, mapped as long as the mutex is; the
    // first is touched by atomic operations alone, the other not since it was initialised.
    let [word, kind] = [0, 4].map(|at| unsafe { AtomicU32::from_ptr(mutex.cast::<u32>().add(at)) });
    if kind.load(Ordering::Relaxed) & ROBUST == 0 {
        return false;
    }
    let word = word.load(Ordering::Relaxed);
    let watch = watch.get_or_insert_with(|| known(mutex.addr()).unwrap_or_else(Watch::begin));
    if word & OWNER == 0 {
        watch.was_free();
        return false;
    }
    if !watch.is_vain(|| LockHolder::thread(word & OWNER).into_iter().collect()) {
        return false;
    }
    if let Ok(mut last) = LAST.try_lock() {
        *last = Some(watch.clone());
        LAST_AT.store(mutex.addr(), Ordering::Relaxed);
    }
    let _ = GIVEN_UP.try_with(|slot| slot.borrow_mut().replace(watch.clone()));
    true
}

/// A watch that goes on from where this lock was given up, if it was the last.
fn known(at: usize) -> Option<Watch> {
    let last = LAST.try_lock().ok()?;
    let here = LAST_AT.load(Ordering::Relaxed) == at;
    last.as_ref().filter(|_| here).map(Watch::again)
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
