//! Threads: those that the engine makes are inside as long as they live.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::inside::{self, is_inside};
use crate::real::{interpose, real};

/// What a thread begins with.
type Begin = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

struct Work {
    begin: Begin,
    argument: *mut c_void,
}

/// The engine's thread begins.
unsafe extern "C" fn begin_inside(work: *mut c_void) -> *mut c_void {
    inside::stay();
    // SAFETY: the box that was handed over; what is called is what the engine asked for.
    unsafe {
        let work = Box::from_raw(work.cast::<Work>());
        (work.begin)(work.argument)
    }
}

interpose! {
    /// Makes a thread.
    [pthread_create](
        thread: *mut pthread_t, how: *const pthread_attr_t, begin: Begin, argument: *mut c_void
    ) -> c_int {
        if !is_inside() {
            return real!(
                pthread_create(thread: *mut pthread_t, how: *const pthread_attr_t, begin: Begin,
                    argument: *mut c_void) -> c_int
            );
        }
        let work = Box::into_raw(Box::new(Work { begin, argument })).cast::<c_void>();
        let begin: Begin = begin_inside;
        let made = real!(
            pthread_create(thread: *mut pthread_t, how: *const pthread_attr_t, begin: Begin,
                work: *mut c_void) -> c_int
        );
        if made != 0 {
            // SAFETY: no thread has it.
            drop(unsafe { Box::from_raw(work.cast::<Work>()) });
        }
        made
    }
}
