//! Calls that the engine itself makes.
//!
//! The engine in this library opens files, maps them and locks them by the same functions of the C
//! library that a program calls, so its calls come here, too. A number of this thread says how deep
//! in the engine it is: a call that comes from there goes on to the C library at once.
//!
//! *Protocol*: a call enters before it touches the engine ([`Inside::enter`]) and leaves when it is
//! answered. The program's signal handlers wait so long ([`crate::handlers`]). That of a signal
//! which cannot wait may come in between, and open a file: the engine may hold a lock then that the
//! handler would wait for in vain. So a call for a path of ours that comes while the thread is
//! inside gets `EDEADLK`. A handler that leaves by `siglongjmp` never comes back to where the
//! thread entered: the place on the stack tells, and the next call enters anew.
//!
//! A thread that the engine makes is inside as long as it lives ([`stay`]).
//!
//! A thread that is inside is not cancelled there (`pthread_cancel`): it would leave the engine's
//! locks behind.
//!
//! *As who opened the pool*: a program may give up its user (`seteuid`). What the engine opens
//! later (leases, spans) is opened as the user that opened the pool, where the kernel lets the
//! thread be that user again; else it is refused. The kernel has this user for each thread
//! (`setfsuid`).

use std::cell::Cell;
use std::ffi::c_int;

use crate::process;
use crate::real::real;

thread_local! {
    /// Where on the stack this thread has entered; 0 while it is outside.
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

/// How far a frame may lie from another one of the same stack.
const STACK: usize = 8 << 20;

/// A thread that is in the engine, until this is dropped.
pub struct Inside {
    before: usize,
    cancel: c_int,
    user: Option<process::User>,
}

/// Whether the calling thread is in the engine, and its call is the engine's own.
pub fn is_inside() -> bool {
    ENTERED.get() != 0
}

/// The calling thread is the engine's, and stays inside.
pub fn stay() {
    // No place on a stack is above that.
    ENTERED.set(usize::MAX);
}

/// The calling thread is the engine's no more.
pub fn stay_no_more() {
    ENTERED.set(0);
}

fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(&mark).addr()
}

impl Inside {
    /// Enters; `None` if the thread is inside already.
    pub fn enter() -> Option<Inside> {
        let (before, here) = (ENTERED.get(), here());
        // A stack grows downwards: what is above the place of entering has returned, or was left
        // by a jump. A handler may have a stack of its own, far away.
        let left = here > before && here - before < STACK;
        if before != 0 && !left {
            return None;
        }
        ENTERED.set(here);
        let mut cancel: c_int = 0;
        let (state, old) = (1_i32, &raw mut cancel); // PTHREAD_CANCEL_DISABLE
        real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int);
        Some(Inside { before: 0, cancel, user: process::as_opener() })
    }

    /// The same for a call of the library itself, which may be inside already.
    pub fn nested() -> Inside {
        Inside::enter().unwrap_or_else(|| Inside { before: ENTERED.get(), cancel: 0, user: None })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(user) = self.user.take() {
            user.resume();
        }
        ENTERED.set(self.before);
        if self.before == 0 {
            let (state, old) = (self.cancel, std::ptr::null_mut());
            real!(pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int);
            crate::streams::standard::catch_up();
            crate::handlers::resume();
        }
    }
}
