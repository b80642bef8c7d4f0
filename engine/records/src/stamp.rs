//! Stamps: the maker of a record, and the time.

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
    pub fn now(owner: u32, checksums: bool) -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = since.map_or(0, |d| d.as_micros() as i64 * 1000);
        Stamp { owner, now, checksums }
    }
}
