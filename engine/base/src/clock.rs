//! What the machine's clock says, in the form in which times are kept: nanoseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::fail;

/// Nanoseconds from 1970 to this time; less than none before it.
pub fn since_1970(at: SystemTime) -> i128 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => after.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

/// The same in whole microseconds, which is what records keep, or why they cannot keep it.
pub fn kept(at: SystemTime) -> Result<i64> {
    let ns = since_1970(at).div_euclid(1000) * 1000;
    match i64::try_from(ns) {
        Ok(kept) => Ok(kept),
        Err(_) => fail!(
            Unsupported,
            "this machine's clock is {} s from 1970, and times are kept from the year 1678 to \
             2262: set the clock",
            ns / 1_000_000_000
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{kept, since_1970};
    use crate::error::Kind;
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const YEAR: u64 = 31_556_952;

    fn after(seconds: u64, nanos: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, nanos)
    }

    fn before(seconds: u64, nanos: u32) -> SystemTime {
        UNIX_EPOCH - Duration::new(seconds, nanos)
    }

    #[test]
    fn times_before_1970_are_kept_as_they_are() {
        assert_eq!(kept(UNIX_EPOCH).unwrap(), 0);
        assert_eq!(kept(after(5, 1999)).unwrap(), 5_000_001_000);
        assert_eq!(kept(before(5, 0)).unwrap(), -5_000_000_000);
        // Of a part of a microsecond the earlier end.
        assert_eq!(kept(before(0, 1)).unwrap(), -1000);
        assert_eq!(since_1970(before(0, 1)), -1);
        assert_eq!(kept(before(290 * YEAR, 0)).unwrap(), -(290 * YEAR as i64) * 1_000_000_000);
    }

    #[test]
    fn times_that_cannot_be_kept_are_refused_by_their_value() {
        for at in [after(300 * YEAR, 0), before(300 * YEAR, 0), after(8000 * YEAR, 0)] {
            let refused = kept(at).unwrap_err();
            assert_eq!(refused.kind(), Kind::Unsupported);
            assert!(refused.message().contains("2262: set the clock"), "{refused}");
        }
        let told = kept(after(300 * YEAR, 0)).unwrap_err();
        assert!(told.message().contains(&(300 * YEAR).to_string()), "{told}");
    }
}
