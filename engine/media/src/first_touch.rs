//! What a process stores into pages that it has not come to yet: by the kernel's hand.
//!
//! A store into a mapped page for the first time costs the process a fault. Where nobody has stored
//! before, the kernel also fills the page with zeros, which are then overwritten. For a large value
//! that is more than the copy itself. `pwrite` costs neither: the kernel copies into its own
//! mapping of the page. The page stays out of the process's page table, though, so a second store
//! is made through memory and takes the fault, and from the third on there is none.
//!
//! Huge pages take one fault each, and then memory is faster by far; so it is for pages that are in
//! the page table already. Nobody says which pages a file is made of. So a few are touched, and the
//! faults of that are counted (a *sample*).
//!
//! *Invariant*: within one process the kernel's hand goes to each unit of a file once at most. The
//! bytes are the same by either way, at once and for everybody: memory is a file's page cache.
//!
//! The kernel writes to one file for one caller at a time. Where many ranks of a job fill one, each
//! waits for the others, while faults are taken side by side. So a process that finds the kernel's
//! hand slow leaves it alone for the next bytes.
//!
//! Only files in memory are kept here (above a disk, pages come in folios, and faults are few), and
//! only large ones: each takes a descriptor. `pwrite` to them meets no hole, as their space is
//! allocated (see `span`); if it fails all the same, memory is there.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::map::{PAGE, touch};
use super::persist;
use super::span::file_limit;

/// What is noted as one.
const UNIT: u64 = 256 << 10;
/// Values of fewer bytes go through memory.
pub(super) const LEAST: usize = 1 << 20;
/// Files of fewer bytes are not kept.
const FILE_LEAST: u64 = 4 << 20;
/// So many files are kept in a process.
const FILES_MOST: u32 = 64;
/// So much is written by one call: a signal waits for its end, and so do others.
const CALL_MOST: u64 = 4 << 20;
/// A call that writes fewer bytes in a microsecond is slow: faults allow about as many.
const SPEED_LEAST: u64 = 1000;
/// After a slow call so many are not made.
const CALLS_LEFT_OUT: u32 = 8;
/// What goes through memory after one sample.
const THROUGH_MEMORY: u64 = 32 << 20;
/// Pages that are touched as a sample.
const SAMPLE: usize = 16;
/// How many are kept.
static FILES: AtomicU32 = AtomicU32::new(0);

/// A file that is mapped into a range, and to which units of it this process has come.
#[derive(Debug)]
pub(super) struct FirstTouch {
    file: File,
    /// The file's byte at which the piece begins.
    place: u64,
    /// The piece of the range.
    piece: Range<u64>,
    /// A bit for each unit.
    touched: Box<[AtomicU64]>,
    /// How many calls are not to be made, since one was slow.
    left_out: AtomicU32,
    /// The last sample: one more than the unit, and whether there were faults, in the lowest bit.
    sampled: AtomicU64,
}

impl FirstTouch {
    /// Keeps a file, from its byte `place` on at this piece of a range. `None`: it is small, or
    /// many are kept already.
    pub(super) fn keep(file: &File, place: u64, piece: Range<u64>) -> Option<FirstTouch> {
        let len = piece.end - piece.start;
        if len < FILE_LEAST {
            return None;
        }
        let room = |kept: u32| (kept < FILES_MOST).then_some(kept + 1);
        FILES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        let Ok(file) = file.try_clone() else {
            FILES.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let words = len.div_ceil(UNIT).div_ceil(u64::from(u64::BITS));
        let touched = (0..words).map(|_| AtomicU64::new(0)).collect();
        let (left_out, sampled) = (AtomicU32::new(0), AtomicU64::new(0));
        Some(FirstTouch { file, place, piece, touched, left_out, sampled })
    }

    /// The piece of the range that it is mapped to.
    pub(super) fn piece(&self) -> Range<u64> {
        self.piece.clone()
    }

    /// Stores bytes at an offset of the range, which is in the piece, as far as that reaches; how
    /// many. `to` is the address of that offset.
    ///
    /// # Safety
    ///
    /// `from` is readable and `to` writable for `len` bytes, and the two do not overlap.
    pub(super) unsafe fn store(
        &self,
        offset: u64,
        to: *mut u8,
        from: *const u8,
        len: usize,
    ) -> usize {
        let len = len.min((self.piece.end - offset) as usize);
        let mut done = 0;
        while done < len {
            let (at, rest) = (offset + done as u64, len - done);
            // SAFETY: the caller's promise, for a part of the bytes.
            unsafe {
                let (to, from) = (to.add(done), from.add(done));
                let by_kernel = self.is_untouched(at) && self.costs_faults(at, to, rest);
                let most = if by_kernel { CALL_MOST } else { THROUGH_MEMORY };
                let run = self.run(at, most.min(rest as u64)) as usize;
                let copied = if by_kernel { self.write(at, from, run) } else { 0 };
                persist::copy(to.add(copied), from.add(copied), run - copied);
                done += run;
            }
        }
        len
    }

    /// Whether the kernel's hand would go to an offset of the range, which is in the piece and at
    /// this address, if so many bytes were stored there. What lies there stays as it is.
    pub(super) fn is_new(&self, offset: u64, to: *mut u8, len: usize) -> bool {
        self.is_untouched(offset) && self.costs_faults(offset, to, len)
    }

    /// Whether this process has not come to the unit of an offset yet.
    fn is_untouched(&self, offset: u64) -> bool {
        let (word, bit) = self.bit((offset - self.piece.start) / UNIT);
        word.load(Ordering::Relaxed) & bit == 0
    }

    /// Where it is noted that this process has come to a unit.
    fn bit(&self, unit: u64) -> (&AtomicU64, u64) {
        let word = &self.touched[(unit / u64::from(u64::BITS)) as usize];
        (word, 1 << (unit % u64::from(u64::BITS)))
    }

    /// Whether pages at an offset, which is at this address, take a fault each.
    fn costs_faults(&self, offset: u64, to: *mut u8, len: usize) -> bool {
        let unit = (offset - self.piece.start) / UNIT + 1;
        let last = self.sampled.load(Ordering::Relaxed);
        if last >> 1 == unit {
            return last & 1 == 1;
        }
        let pages = SAMPLE.min(len / PAGE as usize);
        let before = faults_so_far();
        // Within the bytes that the caller has for itself.
        touch(to, pages * PAGE as usize, false);
        let costs = (faults_so_far() - before) * 2 > pages as i64;
        self.sampled.store(unit << 1 | u64::from(costs), Ordering::Relaxed);
        costs
    }

    /// How many bytes from an offset on are in units that this process has all come to, or has
    /// come to none of. From now on it has.
    fn run(&self, offset: u64, most: u64) -> u64 {
        let at = offset - self.piece.start;
        let is_new = self.is_untouched(offset);
        let mut end = at;
        while end < at + most {
            let unit = end / UNIT;
            let (word, bit) = self.bit(unit);
            if (word.load(Ordering::Relaxed) & bit == 0) != is_new {
                break;
            }
            if is_new {
                word.fetch_or(bit, Ordering::Relaxed);
            }
            end = (unit + 1) * UNIT;
        }
        // Another thread may have been first.
        end.max(at + 1).min(at + most) - at
    }

    /// Has the kernel write, if that is quick; how many bytes it has written.
    ///
    /// # Safety
    ///
    /// `from` is readable for `len` bytes.
    unsafe fn write(&self, offset: u64, from: *const u8, len: usize) -> usize {
        let place = self.place + (offset - self.piece.start);
        let is_allowed = file_limit().is_none_or(|limit| place + len as u64 <= limit);
        if !is_allowed || !self.is_quick() {
            return 0;
        }
        let began = Instant::now();
        // SAFETY: the caller's promise; the descriptor is this value's own.
        let written =
            unsafe { libc::pwrite(self.file.as_raw_fd(), from.cast(), len, place as libc::off_t) };
        let Ok(written) = usize::try_from(written) else { return 0 };
        self.took(written as u64, began.elapsed());
        written
    }

    /// Whether to make a call; if not, that is one of those that are left out.
    fn is_quick(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.left_out.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }

    /// Takes in how long a call took.
    fn took(&self, bytes: u64, time: Duration) {
        if time.as_micros() as u64 * SPEED_LEAST > bytes {
            self.left_out.store(CALLS_LEFT_OUT, Ordering::Relaxed);
        }
    }
}

impl Drop for FirstTouch {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The faults that this thread has taken.
fn faults_so_far() -> i64 {
    // SAFETY: an all-zero `rusage` is valid, and the kernel is given its address alone.
    unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut used);
        used.ru_minflt
    }
}

#[cfg(test)]
mod tests;
