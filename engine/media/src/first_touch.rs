//! What a process stores into pages that it has not come to yet.
//!
//! A store into a mapped page for the first time costs the process a fault. Where nobody has stored
//! before, the kernel also fills the page with zeros, which the copy then overwrites. For a large
//! value that is more than the copy itself. There are two better ways:
//!
//! - *A call*: `pwrite`, or `copy_file_range` for bytes of another file, takes no fault and writes
//!   no zeros, as the kernel copies into its own mapping of the page. The page stays out of the
//!   process's page table, though, so a second store is made through memory and takes the fault.
//!   The kernel lets one caller at a time write to a file: where many ranks of a job fill one, each
//!   waits for the others.
//! - *Populated*: `madvise(MADV_POPULATE_WRITE)` maps and zeroes a piece of pages at once, and the
//!   copy follows while the zeros are still in the processor's cache; `pread` is the copy of bytes
//!   of another file. Any number of ranks do so side by side.
//!
//! Which one is quicker depends on the machine and on what the other ranks do. So both are timed as
//! they are used, and the one that was quicker of late is taken ([`FillTimes`]).
//!
//! Huge pages take one fault each, and then memory is faster by far; so it is for pages that are in
//! the page table already. No call says which pages a file is made of. So a few are touched, and
//! the faults of that are counted (a *sample*).
//!
//! *Invariant*: the bytes are the same in any way, at once and for everybody, as memory is a file's
//! page cache. What is noted here (units that this process has come to, samples, times) decides on
//! speed alone: threads that come at once may both find a unit new, and a child of a fork takes the
//! notes of its parent over.
//!
//! Only files in memory are kept here (above a disk, pages come in folios, and faults are few), and
//! only large ones: each takes a descriptor. `pwrite` to them meets no hole, as their space is
//! allocated (see `span`); if it fails all the same, memory is there, as it is on kernels before
//! Linux 5.14, which populate nothing. `copy_file_range` fails between two filesystems.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::process;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::map::{PAGE, touch};
use super::persist;
use super::span::file_limit;

/// What is noted as one.
const UNIT: u64 = 64 << 10;
/// Values of fewer bytes go through memory.
pub(super) const LEAST: usize = 128 << 10;
/// Files of fewer bytes are not kept.
const FILE_LEAST: u64 = 4 << 20;
/// So many files are kept in a process.
const FILES_MOST: u32 = 64;
/// So much is stored at a time: by one call a signal waits for its end, and so do others.
const PIECE: u64 = 4 << 20;
/// So much is populated at a time: it is in the cache still when the copy comes to it.
const POPULATED: usize = 256 << 10;
/// Of so many pieces one goes the slower way, whose time may have changed: of more, the slower it
/// was.
const TRIED_AGAIN: (u64, u64) = (16, 1024);
/// A time is taken in as so many times the one before at most: a process may be stopped for a day.
const LATER: u64 = 4;
/// For what a sample is taken, from a multiple of it in the piece on.
const SAMPLED: u64 = 4 << 20;
/// Pages that are touched as a sample.
const SAMPLE: usize = 16;
/// What a sample has said of its pages: nothing yet.
const UNKNOWN: u8 = 0;
/// They took no faults.
const MAPPED: u8 = 1;
/// They took a fault each.
const NEW: u8 = 2;
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
    /// What each sample has said.
    samples: Box<[AtomicU8]>,
    /// The process whose descriptor `file` is. A child of a fork may have closed it, and opened
    /// another file by the same number.
    process: u32,
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
        let samples = (0..len.div_ceil(SAMPLED)).map(|_| AtomicU8::new(UNKNOWN)).collect();
        Some(FirstTouch { file, place, piece, touched, samples, process: process::id() })
    }

    /// The piece of the range that it is mapped to.
    pub(super) fn piece(&self) -> Range<u64> {
        self.piece.clone()
    }

    /// Stores bytes at an offset of the range, which is in the piece and at the address `to`.
    /// Returns how many: fewer where the piece ends, or the file that they come from.
    ///
    /// # Errors
    ///
    /// That file cannot be read.
    ///
    /// # Safety
    ///
    /// The piece is attached for writing, in whole pages as every piece is, and `to` is in it.
    /// Memory that bytes come from is readable for `len` of them, and the two do not overlap.
    pub(super) unsafe fn store(
        &self,
        offset: u64,
        to: *mut u8,
        from: Incoming<'_>,
        len: usize,
    ) -> io::Result<usize> {
        let len = len.min((self.piece.end - offset) as usize);
        let mut done = 0;
        while done < len {
            let (at, rest) = (offset + done as u64, len - done);
            // SAFETY: the caller's promise, for a part of the bytes.
            unsafe {
                let (to, from) = (to.add(done), from.skip(done));
                let is_untouched = self.is_untouched(at);
                let (is_new, is_sampled) =
                    if is_untouched { self.costs_faults(at, to, rest) } else { (false, false) };
                let most = match (is_new, is_untouched) {
                    (true, _) => PIECE,
                    (false, true) => SAMPLED - (at - self.piece.start) % SAMPLED,
                    // A long copy passes the cache by: it is not cut.
                    (false, false) => rest as u64,
                };
                let run = self.run(at, most.min(rest as u64)) as usize;
                let stored = if is_new {
                    let (began, times) = (Instant::now(), from.times());
                    let way = times.choose();
                    let stored = self.fill(way, at, to, from, run)?;
                    // Pages of a sample are mapped: a short run on them says nothing.
                    let least =
                        if is_sampled { 16 * SAMPLE * PAGE as usize } else { UNIT as usize };
                    // So does a file that ends.
                    if stored == run && run >= least {
                        times.took(way, run as u64, began.elapsed());
                    }
                    stored
                } else {
                    from.copy(to, run)?
                };
                done += stored;
                if stored < run {
                    break;
                }
            }
        }
        Ok(done)
    }

    /// Whether so many bytes, stored at an offset of the range, which is in the piece and at this
    /// address, would come to new pages. What lies there stays as it is.
    pub(super) fn is_new(&self, offset: u64, to: *mut u8, len: usize) -> bool {
        self.is_untouched(offset) && self.costs_faults(offset, to, len).0
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

    /// Whether pages at an offset, which is at this address, take a fault each, and whether some
    /// were touched just now to find out.
    fn costs_faults(&self, offset: u64, to: *mut u8, len: usize) -> (bool, bool) {
        let sample = &self.samples[((offset - self.piece.start) / SAMPLED) as usize];
        let known = sample.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return (known == NEW, false);
        }
        let pages = SAMPLE.min(len / PAGE as usize);
        if pages < SAMPLE / 4 {
            // The last bytes of a value say nothing of the pages behind them.
            return (false, false);
        }
        let before = faults_so_far();
        // Within the bytes that the caller has for itself.
        touch(to, pages * PAGE as usize, false);
        let costs = (faults_so_far() - before) * 2 > pages as i64;
        sample.store(if costs { NEW } else { MAPPED }, Ordering::Relaxed);
        (costs, true)
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
        end.max((at / UNIT + 1) * UNIT).min(at + most) - at
    }

    /// Stores bytes to new pages in this way, as [`FirstTouch::store`] does.
    ///
    /// # Safety
    ///
    /// That of [`FirstTouch::store`], for bytes that are all in the piece.
    unsafe fn fill(
        &self,
        way: FillBy,
        offset: u64,
        to: *mut u8,
        from: Incoming<'_>,
        len: usize,
    ) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        unsafe {
            let written = match way {
                FillBy::Call => self.write(offset, from, len),
                FillBy::Populated => 0,
            };
            let (to, from, rest) = (to.add(written), from.skip(written), len - written);
            let copied = match (way, from) {
                (FillBy::Call, Incoming::Memory(_)) => from.copy(to, rest)?,
                _ => copy_populated(to, from, rest)?,
            };
            Ok(written + copied)
        }
    }

    /// Has the kernel write; how many bytes it has written.
    ///
    /// # Safety
    ///
    /// Memory that bytes come from is readable for `len` of them.
    unsafe fn write(&self, offset: u64, from: Incoming<'_>, len: usize) -> usize {
        let place = self.place + (offset - self.piece.start);
        let is_beyond = file_limit().is_some_and(|limit| place + len as u64 > limit);
        if is_beyond || process::id() != self.process {
            return 0;
        }
        let (file, place) = (self.file.as_raw_fd(), place as libc::off_t);
        let written = match from {
            // SAFETY: the caller's promise; the descriptor is this value's own.
            Incoming::Memory(from) => unsafe { libc::pwrite(file, from.cast(), len, place) },
            Incoming::File(from, at) => {
                let (mut at, mut place) = (at as libc::off_t, place);
                // SAFETY: the descriptors are open, and the places are this call's own.
                unsafe {
                    let (from, at, place) = (from.as_raw_fd(), &raw mut at, &raw mut place);
                    libc::copy_file_range(from, at, file, place, len, 0)
                }
            }
        };
        usize::try_from(written).unwrap_or(0)
    }
}

impl Drop for FirstTouch {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are stored: those in memory from an address on, or of a file from a byte on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incoming<'f> {
    Memory(*const u8),
    File(BorrowedFd<'f>, u64),
}

impl Incoming<'_> {
    /// What comes after so many bytes.
    ///
    /// # Safety
    ///
    /// So many of them are there.
    pub(super) unsafe fn skip(self, count: usize) -> Self {
        match self {
            // SAFETY: the caller's promise.
            Incoming::Memory(from) => Incoming::Memory(unsafe { from.add(count) }),
            Incoming::File(file, at) => Incoming::File(file, at + count as u64),
        }
    }

    /// Copies so many bytes to memory; fewer, where a file ends.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    ///
    /// # Safety
    ///
    /// `to` is writable for `len` bytes, and where these are in memory, they are readable, and the
    /// two do not overlap.
    pub(super) unsafe fn copy(self, to: *mut u8, len: usize) -> io::Result<usize> {
        let (file, at) = match self {
            Incoming::Memory(from) => {
                // SAFETY: the caller's promise.
                unsafe { persist::copy(to, from, len) };
                return Ok(len);
            }
            Incoming::File(file, at) => (file, at),
        };
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            // SAFETY: the caller's promise, for the rest of the bytes.
            let count = unsafe {
                let to = to.add(done).cast();
                libc::pread(file.as_raw_fd(), to, len - done, place as libc::off_t)
            };
            match usize::try_from(count) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
        Ok(done)
    }

    /// How long the ways take with bytes of this kind.
    fn times(self) -> &'static FillTimes {
        match self {
            Incoming::Memory(_) => &TIMES,
            Incoming::File(..) => &FILE_TIMES,
        }
    }
}

/// How new pages are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FillBy {
    Call,
    Populated,
}

/// How long each way took of late, in nanoseconds a MiB. Zero, with which each begins, is quickest:
/// so both are tried. Threads that come at once may lose one another's times, which are estimates.
#[derive(Debug)]
struct FillTimes {
    call: AtomicU64,
    populated: AtomicU64,
    /// How many pieces go before the slower way is tried again.
    before_trial: AtomicU64,
}

/// Those of this process, as what they depend on are the machine and the other processes.
static TIMES: FillTimes = FillTimes::new();
/// The same of bytes of files.
static FILE_TIMES: FillTimes = FillTimes::new();

impl FillTimes {
    const fn new() -> Self {
        FillTimes {
            call: AtomicU64::new(0),
            populated: AtomicU64::new(0),
            before_trial: AtomicU64::new(TRIED_AGAIN.0 - 1),
        }
    }

    /// The way of the next piece.
    fn choose(&self) -> FillBy {
        let call = self.call.load(Ordering::Relaxed);
        let populated = self.populated.load(Ordering::Relaxed);
        let (quicker, slower) = if call <= populated {
            (FillBy::Call, FillBy::Populated)
        } else {
            (FillBy::Populated, FillBy::Call)
        };
        let one_less = |left: u64| left.checked_sub(1);
        let left = self.before_trial.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if left.is_ok() {
            return quicker;
        }
        let (least, most) = TRIED_AGAIN;
        let (quick, slow) = (call.min(populated).max(1), call.max(populated));
        let loss = slow.saturating_add(quick / 2) / quick;
        let pieces = least.saturating_mul(loss).clamp(least, most);
        self.before_trial.store(pieces - 1, Ordering::Relaxed);
        slower
    }

    /// Takes in how long a piece took.
    fn took(&self, way: FillBy, bytes: u64, time: Duration) {
        let (kept, other) = match way {
            FillBy::Call => (&self.call, &self.populated),
            FillBy::Populated => (&self.populated, &self.call),
        };
        let now = (time.as_nanos() * (1 << 20) / u128::from(bytes)).clamp(1, 1 << 60) as u64;
        let (before, other) = (kept.load(Ordering::Relaxed), other.load(Ordering::Relaxed));
        let mean = match (before, other) {
            (0, 0) => now,
            (0, other) => now.min(other.saturating_mul(LATER)),
            (before, _) => before - before / 4 + now.min(before.saturating_mul(LATER)) / 4,
        };
        kept.store(mean.max(1), Ordering::Relaxed);
    }
}

/// Copies as [`Incoming::copy`] does, to pages of a mapping, each piece of which is populated just
/// before.
///
/// # Safety
///
/// That of [`Incoming::copy`], and `to` is in a mapping of whole pages.
unsafe fn copy_populated(to: *mut u8, from: Incoming<'_>, len: usize) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        let run = POPULATED.min(len - done);
        // SAFETY: the caller's promise, for a part of the bytes.
        let copied = unsafe {
            // Where the kernel refuses, the copy takes the faults.
            let _ = populate(to.add(done), run);
            from.skip(done).copy(to.add(done), run)?
        };
        done += copied;
        if copied < run {
            break;
        }
    }
    Ok(done)
}

/// Maps the pages that have these bytes, with room for what is stored next. It changes no byte.
///
/// # Safety
///
/// The bytes are in a mapping of whole pages.
unsafe fn populate(at: *mut u8, len: usize) -> io::Result<()> {
    let before = at as usize % PAGE as usize;
    // SAFETY: the caller's promise.
    let said =
        unsafe { libc::madvise(at.sub(before).cast(), before + len, libc::MADV_POPULATE_WRITE) };
    if said == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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
