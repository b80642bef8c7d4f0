//! The kernel's clocks that the standard library does not show.

/// The time since some moment, in ns, as of the kernel's last tick, some milliseconds ago at most.
pub fn coarse_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a valid place; Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}
