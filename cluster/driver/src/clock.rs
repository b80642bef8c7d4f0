//! This machine's own clock.

use engram_protocol::clock::Moment;
use rustix::time::{ClockId, clock_gettime};

/// The moment now. The clock goes on while the machine is suspended.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Seconds since 1970, for people.
pub fn wall() -> u64 {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
