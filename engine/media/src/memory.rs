//! Memory of the pool that somebody holds: a piece of a range, kept mapped as long as it is held.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::emulated::Access;
use super::first_touch::Incoming;
use super::map::AddressRange;
use super::{Medium, persist};
use engram_base::checksum::RunningChecksum;
use engram_base::error::Result;

/// So much is copied out at once to be summed: it stays in the nearest cache.
const PIECE: usize = 16 << 10;

/// A piece of an attached range. It keeps the range mapped; that nobody else is given the same
/// piece meanwhile is the allocator's promise, not this type's.
#[derive(Clone)]
pub struct Memory {
    range: Arc<AddressRange>,
    offset: u64,
    len: u64,
    /// What all of it is kept on, if that is one medium.
    medium: Option<Medium>,
}

impl Memory {
    /// The piece at `offset`, which is attached.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn new(range: &Arc<AddressRange>, offset: u64, len: u64) -> Self {
        let medium = range.medium(offset, len).expect("an extent that is attached");
        Memory { range: Arc::clone(range), offset, len, medium }
    }

    /// How many bytes it has.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte; valid for `len` bytes as long as this value or a clone of it lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.range.base().wrapping_add(self.offset as usize)
    }

    /// Maps a part of it once more, at `to`: whole pages all.
    ///
    /// # Safety
    ///
    /// The caller owns the addresses at `to`, and keeps this value or a clone of it as long as it
    /// uses them.
    pub unsafe fn map_again(
        &self,
        offset: u64,
        len: u64,
        to: *mut u8,
        protection: i32,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.range.map_again(self.offset + offset, len, to, protection) }
    }

    /// Does work that copies so many bytes, at the pace of the device that is emulated, if one is.
    #[inline]
    fn paced<T>(&self, access: Access, bytes: usize, work: impl FnOnce() -> T) -> T {
        match self.range.emulated() {
            None => work(),
            Some(device) => device.paced(access, bytes as u64, work),
        }
    }

    /// Does work that reads so many bytes of it, at the pace of the device that is emulated, if
    /// one is.
    #[inline]
    pub fn reading<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.paced(Access::Read, bytes, work)
    }

    /// A copy of the first `len` bytes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn read(&self, len: usize) -> Vec<u8> {
        assert!(len as u64 <= self.len, "{len} bytes of {}", self.len);
        let mut bytes = vec![0; len];
        self.reading(len, || {
            // SAFETY: the source is attached and at least as long, and the vector is this call's
            // own; other processes' accesses race as documented (P8).
            unsafe { persist::copy(bytes.as_mut_ptr(), self.as_ptr(), len) };
        });
        bytes
    }

    /// Copies `data` to the start.
    ///
    /// # Panics
    ///
    /// If it is longer than the piece.
    pub fn write(&self, data: &[u8]) {
        self.write_at(0, data);
    }

    /// Copies `data` to an offset.
    ///
    /// # Panics
    ///
    /// If it goes beyond the piece.
    pub fn write_at(&self, offset: u64, data: &[u8]) {
        let room = self.len.checked_sub(offset);
        let fits = room.is_some_and(|room| data.len() as u64 <= room);
        assert!(fits, "{} bytes at {offset} into {}", data.len(), self.len);
        self.paced(Access::Write, data.len(), || {
            // SAFETY: the destination is attached and at least as long; `data` is borrowed private
            // memory, so the two do not overlap; other processes' accesses race as documented (P8).
            unsafe { self.store(offset, data.as_ptr(), data.len()) };
        });
    }

    /// Copies `len` bytes of a file, from its byte `at` on, to an offset; how many, which are fewer
    /// where the file ends.
    ///
    /// # Errors
    ///
    /// The file cannot be read. Some of the bytes may be there.
    ///
    /// # Panics
    ///
    /// If they would go beyond the piece.
    pub fn read_from(
        &self,
        offset: u64,
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> io::Result<usize> {
        let room = self.len.checked_sub(offset);
        let fits = room.is_some_and(|room| len as u64 <= room);
        assert!(fits, "{len} bytes at {offset} into {}", self.len);
        if at.checked_add(len as u64).is_none_or(|end| end > i64::MAX as u64) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL)); // as the kernel would say
        }
        self.paced(Access::Write, len, || {
            // SAFETY: the destination is attached and at least as long; other processes' accesses
            // race as documented (P8).
            unsafe { self.range.store(self.offset + offset, Incoming::File(file, at), len) }
        })
    }

    /// Whether so many bytes are better copied to an offset from elsewhere than made there: this
    /// process has not come to its pages yet.
    ///
    /// # Panics
    ///
    /// If they go beyond the piece.
    pub fn is_new(&self, offset: u64, len: usize) -> bool {
        let room = self.len.checked_sub(offset);
        assert!(room.is_some_and(|room| len as u64 <= room), "{len} bytes at {offset}");
        self.range.is_new(self.offset + offset, len)
    }

    /// Copies the first `len` bytes of another piece to the start.
    ///
    /// # Panics
    ///
    /// If either is shorter.
    pub fn copy(&self, from: &Memory, len: u64) {
        assert!(len <= self.len && len <= from.len, "{len} bytes of {} to {}", from.len, self.len);
        self.paced(Access::Write, len as usize, || {
            // SAFETY: both are attached and long enough; the caller has them of two ranges, so they
            // do not overlap; other processes' accesses race as documented (P8).
            unsafe { self.store(0, from.as_ptr(), len as usize) };
        });
    }

    /// Copies bytes in memory to an offset.
    ///
    /// # Safety
    ///
    /// They fit there and are readable, and the two do not overlap.
    unsafe fn store(&self, offset: u64, from: *const u8, len: usize) {
        // SAFETY: the caller's promise.
        let stored = unsafe { self.range.store(self.offset + offset, Incoming::Memory(from), len) };
        debug_assert!(matches!(stored, Ok(all) if all == len), "memory can be read");
    }

    /// Copies what stands `at` bytes from the start, which others may be writing to meanwhile.
    ///
    /// # Panics
    ///
    /// If there are fewer bytes.
    pub fn copy_out(&self, at: u64, into: &mut [u8]) {
        let end = at.checked_add(into.len() as u64).expect("an extent is not that long");
        assert!(end <= self.len, "{end} of {} bytes", self.len);
        self.reading(into.len(), || {
            // SAFETY: the source is attached and that long; `into` is borrowed private memory.
            // Bytes that another process writes meanwhile come as they are.
            unsafe {
                let from = self.as_ptr().wrapping_add(at as usize);
                persist::copy(into.as_mut_ptr(), from, into.len());
            }
        });
    }

    /// Makes these pieces durable, each `(offset from the start, length)`, in ascending order.
    ///
    /// The kernel writes dirty pages alone, so where it does the work one call covers all; lines of
    /// persistent memory are written back one by one, and only those that are asked for.
    pub fn flush(&self, pieces: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        let mut pieces = pieces.filter(|piece| piece.1 > 0);
        if self.medium == Some(Medium::PageCache) {
            let Some((start, len)) = pieces.next() else { return Ok(()) };
            let end = pieces.last().map_or(start + len, |(at, len)| at + len);
            return self.range.flush(self.offset + start, end - start);
        }
        pieces.try_for_each(|(at, len)| self.range.flush(self.offset + at, len))
    }

    /// The checksum of the first `len` bytes, which others may be writing to meanwhile.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn checksum(&self, len: u64) -> u64 {
        assert!(len <= self.len, "{len} of {} bytes", self.len);
        let mut piece = [0; PIECE];
        let mut running = RunningChecksum::new();
        let mut done = 0;
        while done < len as usize {
            let count = PIECE.min(len as usize - done);
            // SAFETY: the source is attached and ends at or before `len`; `piece` is this
            // function's own. Bytes that another process writes meanwhile come as they are.
            unsafe {
                let from = self.as_ptr().wrapping_add(done);
                std::ptr::copy_nonoverlapping(from, piece.as_mut_ptr(), count);
            }
            running.add(&piece[..count]);
            done += count;
        }
        running.word()
    }

    /// Copies `data` to the start, on persistent memory so that it is durable on return; says
    /// whether it is. Where it is not, [`AddressRange::flush`] makes it so.
    ///
    /// # Panics
    ///
    /// If it is longer than the piece.
    pub fn write_through(&self, data: &[u8]) -> bool {
        if self.medium != Some(Medium::Dax) {
            self.write(data);
            return false;
        }
        assert!(data.len() as u64 <= self.len, "{} bytes into {}", data.len(), self.len);
        self.paced(Access::Write, data.len(), || {
            // SAFETY: as in `write`.
            unsafe { persist::copy_through(self.as_ptr(), data.as_ptr(), data.len()) };
            persist::fence();
        });
        true
    }

    /// Zeroes `len` bytes from an offset on.
    ///
    /// # Panics
    ///
    /// If it goes beyond the piece.
    pub fn zero_part(&self, offset: u64, len: u64) {
        let room = self.len.checked_sub(offset);
        assert!(room.is_some_and(|room| len <= room), "{len} zeros at {offset} of {}", self.len);
        let to = self.as_ptr().wrapping_add(offset as usize);
        self.paced(Access::Write, len as usize, || {
            // SAFETY: as in `write_at`.
            unsafe { persist::zero(to, len as usize) };
        });
    }

    /// Zeroes the first `len` bytes.
    ///
    /// # Panics
    ///
    /// If there are fewer.
    pub fn zero(&self, len: u64) {
        assert!(len <= self.len, "{len} zeros into {} bytes", self.len);
        self.paced(Access::Write, len as usize, || {
            // SAFETY: as in `write`.
            unsafe { persist::zero(self.as_ptr(), len as usize) };
        });
    }
}
