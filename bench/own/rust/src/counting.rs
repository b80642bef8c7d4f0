//! Counts the bytes that are allocated, for structures that live in memory alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counting what it was asked for; what it adds itself is not counted.
pub struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Bytes that are allocated now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// The most that was allocated at once since `forget_peak`.
pub fn peak() -> usize {
    PEAK.load(Ordering::Relaxed)
}

/// Begins to look for the most anew.
pub fn forget_peak() {
    PEAK.store(held(), Ordering::Relaxed);
}

fn count(size: usize) {
    let now = HELD.fetch_add(size, Ordering::Relaxed) + size;
    if now > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(now, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: the caller keeps what `GlobalAlloc::alloc` asks, and so what `System.alloc` asks.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: the caller keeps what `GlobalAlloc::dealloc` asks: `System` gave this block.
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    // SAFETY: the caller keeps what `GlobalAlloc::realloc` asks: `System` gave this block.
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
