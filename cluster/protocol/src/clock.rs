//! Moments of one machine's own clock.
//!
//! A moment is compared with moments of the same clock alone: no two clocks of a cluster need to
//! agree. The clock is the one that goes on while a machine is suspended (`CLOCK_BOOTTIME`), so
//! that a member that slept notices that its lease has ended.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of one machine's own clock, in nanoseconds since some moment before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, later: Duration) -> Moment {
        Moment(self.0.saturating_add(later.as_nanos() as u64))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// How long after the other this moment is; none where it is before.
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
