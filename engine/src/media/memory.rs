//! Memory of the pool that somebody holds: a piece of a range, kept mapped as long as it is held.

use std::sync::Arc;

use super::map::Range;
use super::persist;

/// A piece of an attached range. It keeps the range mapped; that nobody else is given the same
/// piece meanwhile is the allocator's promise, not this type's.
#[derive(Clone)]
pub struct Memory {
    range: Arc<Range>,
    offset: u64,
    len: u64,
}

impl Memory {
    /// The piece at `offset`, which is attached.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn new(range: &Arc<Range>, offset: u64, len: u64) -> Self {
        let end = offset.checked_add(len).expect("an extent ends within the address space");
        assert!(end <= range.attached(), "[{offset}, {end}) is not attached");
        Memory { range: Arc::clone(range), offset, len }
    }

    /// The first byte; valid for `len` bytes as long as this value or a clone of it lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.range.base().wrapping_add(self.offset as usize)
    }

    /// Copies `data` to the start.
    ///
    /// # Panics
    ///
    /// If it is longer than the piece.
    pub fn write(&self, data: &[u8]) {
        assert!(data.len() as u64 <= self.len, "{} bytes into {}", data.len(), self.len);
        // SAFETY: the destination is attached and at least as long; `data` is borrowed private
        // memory, so the two do not overlap; other processes' accesses race as documented (P8).
        unsafe { persist::copy(self.as_ptr(), data.as_ptr(), data.len()) };
    }

    /// Copies the first `len` bytes of another piece to the start.
    ///
    /// # Panics
    ///
    /// If either is shorter.
    pub fn copy(&self, from: &Memory, len: u64) {
        assert!(len <= self.len && len <= from.len, "{len} bytes of {} to {}", from.len, self.len);
        // SAFETY: both are attached and long enough; the caller has them of two ranges, so they do
        // not overlap; other processes' accesses race as documented (P8).
        unsafe { persist::copy(self.as_ptr(), from.as_ptr(), len as usize) };
    }

    /// Zeroes the first `len` bytes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn zero(&self, len: u64) {
        assert!(len <= self.len, "{len} zeros into {} bytes", self.len);
        // SAFETY: as in `write`.
        unsafe { persist::zero(self.as_ptr(), len as usize) };
    }
}
