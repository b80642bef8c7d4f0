//! Counts the bytes that are allocated, for structures that live in memory alone.
//!
//! It counts only when asked to, so that nothing else is slowed by it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};

/// The system's allocator, counting what it is asked for; what it adds itself is not counted.
pub struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static HELD: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// What `work` gives; the bytes that it still holds when it returns; the most that it held.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, usize, usize) {
    HELD.store(0, Ordering::Relaxed);
    PEAK.store(0, Ordering::Relaxed);
    ON.store(true, Ordering::Relaxed);
    let done = work();
    ON.store(false, Ordering::Relaxed);
    let [held, peak] = [&HELD, &PEAK].map(|bytes| bytes.load(Ordering::Relaxed).max(0) as usize);
    (done, held, peak)
}

fn count(bytes: isize) {
    if ON.load(Ordering::Relaxed) {
        let now = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps what `GlobalAlloc::alloc` asks, and so what `System.alloc` asks.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps what `GlobalAlloc::dealloc` asks: `System` gave this block.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    // SAFETY: the caller keeps what `GlobalAlloc::realloc` asks: `System` gave this block.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
