//! Stamps: the maker of a record, and the time.

use std::time::SystemTime;

use engram_base::clock;
use engram_base::error::Result;

/// The maker, the time, and whether records have checksums: what new records carry.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// The user.
    pub owner: u32,
    /// Nanoseconds since 1970.
    pub now: i64,
    /// Whether records get checksums.
    pub checksums: bool,
}

impl Stamp {
    /// This user, now: in ns, of whole microseconds, so that what a handle gives is what is there.
    /// A clock that says what no record can hold is an error.
    pub fn now(owner: u32, checksums: bool) -> Result<Self> {
        Ok(Stamp { owner, now: clock::kept(SystemTime::now())?, checksums })
    }
}
