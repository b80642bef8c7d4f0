//! The last steps before a process is another program, and what is undone where that fails.
//!
//! What the program inherits is made ready when nothing is left but the kernel's own call: numbers
//! are made real, leases and locks are left to it.
//!
//! *Other threads* go on until the kernel has ended them, or for good, where the call fails. A
//! number that is ours may be another thread's kernel file a moment later, and is not to be
//! replaced then. So where there are several threads, one more does this for the caller. It has a
//! copy of the process's descriptors for itself (`unshare`), as the kernel makes one for `exec`
//! anyway: what it replaces there nobody else sees, and it ends with the thread.
//!
//! *Limit*: with its copy the thread would leave the process's record locks of the kernel's files
//! behind (`F_SETLK`), which `exec` keeps. A process that has some replaces its numbers where they
//! are, each right after it was seen to be one of ours.
//!
//! *The engine* is held still, as for a fork, before its leases are left: what a thread holds under
//! a lease when it is ended, nobody would let go of as long as the new program keeps the lease.
//!
//! *Signals* are blocked meanwhile: a handler could neither be answered here, nor leave by
//! `siglongjmp`. One that has come is let in, and all begins anew. After some turns it does not:
//! the handler runs at the last moment, and gets `EDEADLK` for files of ours.

use std::ffi::{c_int, c_ulong};
use std::mem::MaybeUninit;
use std::thread;

use libc::sigset_t;

use super::{Handing, LEFT, close_on_exec, locks};
use crate::descriptors::{self, Held};
use crate::handlers;
use crate::inside::{self, Inside};
use crate::process;
use crate::real::{errno, real};
use crate::trees::{self, Tree};

/// So often a signal that has come is let in first.
const TURNS: u32 = 8;
/// The stack of the thread that becomes the program.
const STACK: usize = 1 << 20;

/// An environment, as C has it.
pub type List = *const *const std::ffi::c_char;

/// What is to be done.
struct Becoming<'a> {
    environment: List,
    /// The kernel's call, which is given the environment.
    call: &'a dyn Fn(List),
    /// The signals that the program is to have blocked.
    mask: sigset_t,
    /// Whether signals that have come go first.
    waits: bool,
}

/// What is the caller's, who waits meanwhile.
struct Lent<'a>(&'a Becoming<'a>);

// SAFETY: the caller waits until the other thread is done with it.
unsafe impl Sync for Lent<'_> {}

/// Why the process is what it was, and what the caller lets go of then: the other thread could
/// close nothing of the process's.
enum Ended {
    Failed(c_int, Vec<Held>),
    /// A signal is to be let in first.
    Signalled(Vec<Held>),
}

/// Becomes another program by a call that is given the environment; the number of the error where
/// that fails.
///
/// # Safety
///
/// `environment` is a list of strings that ends with null, and outlives this.
pub unsafe fn become_by(environment: List, call: &dyn Fn(List)) -> c_int {
    let mut all = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: a place for a set, which is filled.
    let all = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        all.assume_init()
    };
    let before = set_mask(&all);
    let mut becoming = Becoming { environment, call, mask: before, waits: true };
    let mut turns = 0;
    let why = loop {
        becoming.waits = turns < TURNS;
        let ended = if is_watched() { becoming.run_beside() } else { becoming.run(false) };
        match ended {
            Ended::Failed(why, held) => {
                drop(held);
                break why;
            }
            Ended::Signalled(held) => {
                drop(held);
                set_mask(&before);
                set_mask(&all);
            }
        }
        turns += 1;
    };
    set_mask(&before);
    why
}

/// Whether other threads see which numbers are replaced, and a copy of all of them loses nothing.
fn is_watched() -> bool {
    if process::is_alone() || descriptors::inherited().next().is_none() {
        return false;
    }
    let _inside = Inside::nested();
    let own = std::process::id().to_string();
    let is_own = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next() == Some("POSIX") && words.nth(2) == Some(&own)
    };
    std::fs::read_to_string("/proc/locks").is_ok_and(|all| !all.lines().any(is_own))
}

/// Sets the thread's mask; what it was.
fn set_mask(mask: &sigset_t) -> sigset_t {
    let mut before = MaybeUninit::<sigset_t>::uninit();
    let (how, new, old) = (libc::SIG_SETMASK, std::ptr::from_ref(mask), before.as_mut_ptr());
    real!(pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int);
    // SAFETY: it was written there.
    unsafe { before.assume_init() }
}

/// Whether a signal has come that this mask lets in.
fn is_signalled(mask: &sigset_t) -> bool {
    let mut come = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: a place for a set, and sets.
    unsafe {
        libc::sigpending(come.as_mut_ptr()) == 0
            && (1..=libc::SIGRTMAX()).any(|signal| {
                libc::sigismember(come.as_ptr(), signal) == 1
                    && libc::sigismember(mask, signal) == 0
            })
    }
}

/// Which signal the thread gets when its parent ends; a thread does not inherit that.
fn parents_end() -> c_int {
    let mut signal = 0;
    // SAFETY: a place for a number.
    unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut signal) };
    signal
}

impl Becoming<'_> {
    /// In a thread with descriptors of its own; where there is none, in this one.
    fn run_beside(&self) -> Ended {
        let (lent, signal) = (Lent(self), parents_end());
        let (state, mut cancel) = (1_i32, 0_i32); // PTHREAD_CANCEL_DISABLE
        let old = &raw mut cancel;
        real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int);
        let ended = thread::scope(|scope| {
            let lent = &lent;
            let work = move || {
                // SAFETY: a number alone.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as c_ulong) };
                lent.0.run(true)
            };
            let begun = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
            begun.ok()?.join().ok()
        });
        let (state, old) = (cancel, std::ptr::null_mut());
        real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int);
        ended.unwrap_or_else(|| self.run(false))
    }

    /// Makes all ready, and calls the kernel.
    fn run(&self, has_others: bool) -> Ended {
        let is_any = descriptors::inherited().next().is_some();
        let locks = if is_any { locks::Handed::on() } else { locks::Handed::default() };
        trees::all().iter().for_each(Tree::hold);
        let is_still = is_any && trees::all().iter().any(|tree| tree.opened().is_some());
        let mut leases = if is_any { LEFT.lock().clone() } else { Vec::new() };
        if is_still {
            let _inside = Inside::nested();
            leases.extend(engram::leave_leases());
        }
        if has_others {
            // SAFETY: a number alone. Where the kernel refuses, no number is replaced but ours.
            unsafe { libc::unshare(libc::CLONE_FILES) };
        }
        let held = if is_any { descriptors::make_real() } else { Vec::new() };
        let kept = || leases.iter().chain(locks.descriptors());
        kept().for_each(|fd| close_on_exec(*fd, false));
        // SAFETY: the caller's promise.
        let handing = unsafe { Handing::new(self.environment, &leases, &locks) };
        let ended = if self.waits && is_signalled(&self.mask) {
            Ended::Signalled(held)
        } else {
            Ended::Failed(self.call(handing.environment()), held)
        };
        kept().for_each(|fd| close_on_exec(*fd, true));
        if is_still {
            let _inside = Inside::nested();
            engram::keep_leases();
        }
        trees::all().iter().for_each(Tree::resume);
        ended
    }

    fn call(&self, environment: List) -> c_int {
        inside::stay();
        handlers::run_at_once(true);
        let blocked = set_mask(&self.mask);
        (self.call)(environment);
        let why = errno();
        set_mask(&blocked);
        handlers::run_at_once(false);
        inside::stay_no_more();
        why
    }
}
