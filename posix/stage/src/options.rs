//! How a stage is to be done.

/// The part of a large file that is done or not, if nothing else is said.
pub const PART: u64 = 64 << 20;

/// How a copy is looked at before it takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// It has as many bytes as its source.
    Size,
    /// What was handed on to be written sums up to what the copy is said to be, and is durable.
    Written,
    /// The copy is read again, past all caches, and sums up to the same.
    Readback,
}

/// What becomes of a file that has a copy's name and is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the stage says so.
    Refuse,
    /// It is replaced.
    Overwrite,
    /// It is replaced if it was written before the source was.
    Update,
}

/// How a stage is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many files are copied at a time.
    pub workers: usize,
    /// How copies are looked at.
    pub verify: Verify,
    /// Whether files are summed up by SHA-256, too.
    pub sha256: bool,
    /// What becomes of other files of the same names.
    pub existing: Existing,
    /// So many bytes of a large file are copied again at most by who goes on with it.
    pub part: u64,
    /// Whether each copy belongs to whom its source belongs; else to who runs the stage.
    pub keep_owners: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8),
            verify: Verify::Written,
            sha256: false,
            existing: Existing::Refuse,
            part: PART,
            keep_owners: rustix::process::geteuid().is_root(),
        }
    }
}
