//! Address ranges, and files mapped into them.
//!
//! An arena is one [`AddressRange`]: addresses that are reserved once, without memory behind them,
//! and into which span files are mapped one after the other. Since the range never moves, a pointer
//! into it stays good as long as the range lives, however much the arena grows meanwhile.
//!
//! Who does what: `attach` is called by one thread at a time (the realm's own lock); everything
//! else by any thread at any time. `attach` maps first and then advances `attached` (release), so a
//! thread that reads `attached` (acquire) may touch every byte below it. Two processes attach the
//! same files to different addresses; nothing in the arena is an address.
//!
//! After `fork` the child has the same mappings of the same files at the same addresses; dropping
//! a range in one process unmaps nothing in the other.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::emulated::Emulated;
use super::first_touch::{self, FirstTouch, Incoming};
use super::{Medium, devdax, persist};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::size::ByteSize;

/// A range starts at a multiple of this, as spans do, so that huge pages can map them.
pub(super) const HUGE: u64 = 2 << 20;
/// Linux's number for "make huge pages of this, now", which the libc crate may lack.
const MADV_COLLAPSE: i32 = 25;
/// The page, which is what mapping, flushing and prefaulting round to.
pub(super) const PAGE: u64 = 4096;

/// Three quarters of the addresses that a process has (catalogs are mapped into the others), and
/// the share of those it has left that a range may take beyond what it needs: so hundreds of pools
/// can be open, whatever their sizes.
const ADDRESSES: u64 = 96 << 40;
const SHARE: u64 = 64;

/// What the ranges of this process have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// One reserved range of addresses, filled from its start by attached files.
#[derive(Debug)]
pub struct AddressRange {
    base: NonNull<u8>,
    reserved: u64,
    attached: AtomicU64,
    /// The media of all that is attached, as a set of [`Medium::bit`].
    media: AtomicU8,
    /// Every piece that was attached, and its medium. Looked at where there are several media.
    pieces: RwLock<Vec<AttachedFile>>,
    /// Whether any of it was attached for reading alone.
    read_only: AtomicBool,
    /// Whose pace copying keeps.
    emulated: OnceLock<Emulated>,
    /// Files whose new pages are filled in a way of their own. Nobody waits for the lock, which a
    /// fork may leave locked for ever: memory is always there.
    first_touches: RwLock<Vec<Arc<FirstTouch>>>,
    /// Whether all goes through memory, since nobody can tell any more what is kept.
    through_memory: AtomicBool,
}

/// A part of a range, as it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AttachedFile {
    start: u64,
    end: u64,
    medium: Medium,
}

// SAFETY: a range is an address and numbers; a read or write through the address is the caller's to
// justify, at each access.
unsafe impl Send for AddressRange {}
// SAFETY: as above; the counters are atomic and `attach` orders its mapping before them.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Reserves `bytes` of addresses, or what is left for one range of many, or half as many, and
    /// again, as far as the process's limit (`RLIMIT_AS`) allows; but no fewer than `least`. No
    /// memory is taken.
    ///
    /// On error nothing is reserved.
    pub fn reserve(bytes: u64, least: u64) -> Result<AddressRange> {
        let least = round_up(least.max(HUGE), HUGE);
        let left = ADDRESSES.saturating_sub(RESERVED.load(Ordering::Relaxed));
        let mut want = round_up(bytes.min(left / SHARE), HUGE).max(least);
        loop {
            match Self::reserve_exactly(want) {
                Ok(range) => return Ok(range),
                Err(_) if want > least => want = round_up(want / 2, HUGE).max(least),
                Err(error) => fail!(
                    PoolFull,
                    "cannot reserve {} of addresses for an arena ({error}): either this \
                     process has used up its 128 TiB (each namespace that it has open takes as \
                     much as its pool's size or more, and as much again for what is private \
                     there: close pools that it does not need), or `ulimit -v` limits it, or it \
                     takes a pool of smaller size",
                    ByteSize(want)
                ),
            }
        }
    }

    fn reserve_exactly(bytes: u64) -> io::Result<AddressRange> {
        let padded = bytes.checked_add(HUGE).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                padded as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        let before = round_up(start as u64, HUGE) - start as u64;
        let after = HUGE - before;
        // SAFETY: all three pieces lie in the mapping just made, which nobody else knows of.
        let base = unsafe {
            let base = start.add(before as usize);
            if before > 0 {
                libc::munmap(start.cast(), before as usize);
            }
            if after > 0 {
                libc::munmap(base.add(bytes as usize).cast(), after as usize);
            }
            base
        };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        RESERVED.fetch_add(bytes, Ordering::Relaxed);
        Ok(AddressRange {
            base,
            reserved: bytes,
            attached: AtomicU64::new(0),
            media: AtomicU8::new(0),
            pieces: RwLock::default(),
            read_only: AtomicBool::new(false),
            emulated: OnceLock::new(),
            first_touches: RwLock::default(),
            through_memory: AtomicBool::new(false),
        })
    }

    /// Makes copying take as long as it would on this device, from now on.
    pub fn emulate(&self, device: Emulated) {
        let _ = self.emulated.set(device);
    }

    /// The device whose pace copying keeps, if it keeps any.
    #[inline]
    pub(super) fn emulated(&self) -> Option<&Emulated> {
        self.emulated.get()
    }

    /// Maps `len` bytes of `file` from its byte `place` on at `offset`, which is where the last
    /// attached file ended, or within what is attached (which maps that piece anew, for writing,
    /// say).
    ///
    /// All of that piece of `file` has allocated blocks: see `span`. On error nothing has changed.
    pub fn attach(
        &self,
        offset: u64,
        len: u64,
        file: &File,
        place: u64,
        writable: bool,
    ) -> Result<()> {
        let end = offset.saturating_add(len);
        let attached = self.attached();
        let whole = [offset, len, place].iter().all(|number| number.is_multiple_of(PAGE));
        if len == 0 || !whole || offset > attached {
            fail!(
                Corrupt,
                "a span of {len} bytes at {offset} does not continue an arena of {attached} bytes"
            );
        }
        if end > self.reserved {
            fail!(
                PoolFull,
                "the arena would grow to {}, and this process reserved {} of addresses for it: \
                 close the pool and open it again",
                ByteSize(end),
                ByteSize(self.reserved)
            );
        }
        let meta = file.metadata().map_err(|e| Error::os("cannot look at a span (fstat)", &e))?;
        let size = if devdax::is_device(&meta) { devdax::facts_of(&meta)?.len } else { meta.len() };
        if size < place.saturating_add(len) {
            fail!(
                Corrupt,
                "a span file of {size} bytes should have {len} from byte {place} on: it was \
                 truncated"
            );
        }
        self.map(offset, len, file, place, writable, Medium::of(file)?)?;
        self.read_only.fetch_or(!writable, Ordering::Relaxed);
        self.attached.fetch_max(end, Ordering::Release);
        Ok(())
    }

    /// Maps a file, which is kept on this medium, over `[offset, offset + len)`.
    fn map(
        &self,
        offset: u64,
        len: u64,
        file: &File,
        place: u64,
        writable: bool,
        medium: Medium,
    ) -> Result<()> {
        let prot = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let shared = match medium {
            Medium::Dax => libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            Medium::Memory | Medium::PageCache => libc::MAP_SHARED,
        };
        // SAFETY: `[offset, offset + len)` lies in this range's own reservation, so MAP_FIXED
        // replaces only reserved addresses, or an older mapping of the same piece of the arena.
        let at = unsafe {
            libc::mmap(
                self.base.as_ptr().add(offset as usize).cast(),
                len as usize,
                prot,
                shared | libc::MAP_FIXED,
                file.as_raw_fd(),
                place as i64,
            )
        };
        if at == libc::MAP_FAILED {
            let error = Error::last_os(format_args!("cannot map {len} bytes of a span"));
            self.keep(offset, len);
            return Err(error);
        }
        // Above a disk, with large folios in the page cache, this is worth a factor of three to
        // five (ext4: 2.4 to 11 GB/s copying into pages that are cached). On tmpfs it changes
        // nothing: there `span` has made the pages already. Neither adds a byte to the file.
        // SAFETY: the advice concerns the mapping just made. A kernel without huge pages refuses
        // it, and nothing depends on it.
        unsafe { libc::madvise(at, len as usize, libc::MADV_HUGEPAGE) };
        self.note(AttachedFile { start: offset, end: offset + len, medium });
        if writable && medium == Medium::Memory {
            let piece = offset..offset + len;
            match self.first_touches.try_write() {
                Ok(mut kept) => {
                    kept.retain(|it| {
                        it.piece().end <= piece.start || piece.end <= it.piece().start
                    });
                    kept.extend(FirstTouch::keep(file, place, piece).map(Arc::new));
                }
                // What is kept may be of a file that was there before.
                Err(_) => self.through_memory.store(true, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    /// Stores bytes at an offset: through memory, or as new pages are filled. Says how many, which
    /// are fewer where a file that they come from ends.
    ///
    /// # Errors
    ///
    /// That file cannot be read.
    ///
    /// # Safety
    ///
    /// `[offset, offset + len)` is attached for writing; memory that bytes come from is readable
    /// for `len` of them, and the two do not overlap.
    pub(super) unsafe fn store(
        &self,
        offset: u64,
        from: Incoming<'_>,
        len: usize,
    ) -> io::Result<usize> {
        let mut done = 0;
        while len >= first_touch::LEAST && done < len {
            let at = offset + done as u64;
            let Some(file) = self.first_touch(at) else { break };
            // SAFETY: the caller's promise, for the rest of the bytes.
            let stored = unsafe { file.store(at, self.at(at), from.skip(done), len - done)? };
            if stored == 0 {
                return Ok(done);
            }
            done += stored;
        }
        // SAFETY: as above.
        let copied = unsafe { from.skip(done).copy(self.at(offset + done as u64), len - done)? };
        Ok(done + copied)
    }

    /// Whether so many bytes, stored at an offset at once, would begin with new pages. They
    /// are attached for writing, and stay as they are.
    pub(super) fn is_new(&self, offset: u64, len: usize) -> bool {
        let kept = self.first_touch(offset).filter(|_| len >= first_touch::LEAST);
        kept.is_some_and(|file| file.is_new(offset, self.at(offset), len))
    }

    /// What is kept of the file at an offset, if anything is.
    fn first_touch(&self, offset: u64) -> Option<Arc<FirstTouch>> {
        let kept = self.first_touches.try_read().ok()?;
        if self.through_memory.load(Ordering::Relaxed) {
            return None;
        }
        kept.iter().find(|file| file.piece().contains(&offset)).cloned()
    }

    /// Reserves addresses of this range anew that a mapping which failed may have given up: kernels
    /// before Linux 6.12 take away what lies there before they find out. Anything else that the
    /// process maps could come to lie there then, and the next span over it.
    fn keep(&self, offset: u64, len: u64) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: addresses of this range; a mapping that is still there stays as it is.
        unsafe {
            libc::mmap(
                self.at(offset).cast(),
                len as usize,
                libc::PROT_NONE,
                flags | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            );
        }
    }

    /// A range of its own that shows pieces of this one side by side: where each begins here, and
    /// its length, whole pages both; `None` is zeros. What is written to one is written to both.
    pub fn stitched(&self, pieces: &[(Option<u64>, u64)]) -> Result<AddressRange> {
        let len = pieces.iter().map(|(_, len)| len).sum::<u64>();
        let whole = |(at, len): &(Option<u64>, u64)| (at.unwrap_or(0) | len).is_multiple_of(PAGE);
        if len == 0 || !pieces.iter().all(whole) {
            fail!(Argument, "pieces of {len} bytes in all cannot be mapped side by side");
        }
        let refused = |e: &io::Error| {
            Error::os(format!("mapping {} pieces of {len} bytes side by side", pieces.len()), e)
        };
        let new = Self::reserve_exactly(len).map_err(|e| refused(&e))?;
        let mut at = 0;
        for (from, len) in &self.by_file(pieces) {
            let medium = match from {
                None => Some(Medium::Memory),
                Some(from) => self.medium(*from, *len)?,
            };
            // SAFETY: the piece is attached here (`medium` has looked), and mapped shared: with an
            // old length of 0 it is mapped once more. It replaces addresses that `new` alone has.
            let mapped = unsafe {
                let to = new.at(at).cast();
                match from {
                    Some(from) => libc::mremap(
                        self.at(*from).cast(),
                        0,
                        *len as usize,
                        libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                        to,
                    ),
                    None => libc::mmap(
                        to,
                        *len as usize,
                        libc::PROT_READ,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                        -1,
                        0,
                    ),
                }
            };
            if mapped == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                new.keep(at, *len);
                return Err(refused(&error));
            }
            // Of a piece on two media each half is flushed as both are.
            for medium in Medium::ALL.into_iter().filter(|one| medium.is_none_or(|it| it == *one)) {
                new.note(AttachedFile { start: at, end: at + len, medium });
            }
            at += len;
        }
        new.attached.store(at, Ordering::Release);
        Ok(new)
    }

    /// Maps a part of this range once more, at `to`: whole pages all. What is written to one is
    /// written to both. A part that is no file's, as a hole in a stitched range, is zeros there.
    ///
    /// # Safety
    ///
    /// The caller owns the addresses at `to`, whatever is mapped there: it is replaced.
    pub unsafe fn map_again(
        &self,
        offset: u64,
        len: u64,
        to: *mut u8,
        protection: i32,
    ) -> Result<()> {
        let mut at = to;
        for (from, len) in self.by_file(&[(Some(offset), len)]) {
            let Some(from) = from else { unreachable!("each has a place in the range") };
            let len = len as usize;
            // SAFETY: the part is attached; with an old length of 0 it is mapped once more. It
            // replaces what the caller owns, by its promise.
            let mapped = unsafe {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                match libc::mremap(self.at(from).cast(), 0, len, flags, at.cast::<libc::c_void>()) {
                    libc::MAP_FAILED if last_code() == Some(libc::EINVAL) => libc::mmap(
                        at.cast(),
                        len,
                        libc::PROT_READ,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                        -1,
                        0,
                    ),
                    again => again,
                }
            };
            // SAFETY: what was just mapped.
            if mapped == libc::MAP_FAILED || unsafe { libc::mprotect(mapped, len, protection) } != 0
            {
                return Err(Error::last_os(format_args!("mapping {len} bytes once more")));
            }
            at = at.wrapping_add(len);
        }
        Ok(())
    }

    /// The same pieces, each in one file alone: what is mapped once more is of one mapping.
    fn by_file(&self, pieces: &[(Option<u64>, u64)]) -> Vec<(Option<u64>, u64)> {
        let attached = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mut bounds: Vec<u64> = attached.iter().flat_map(|one| [one.start, one.end]).collect();
        drop(attached);
        bounds.sort_unstable();
        let mut all = Vec::with_capacity(pieces.len());
        for (from, len) in pieces {
            let Some(from) = *from else {
                all.push((None, *len));
                continue;
            };
            let (mut at, end) = (from, from + len);
            for bound in bounds[bounds.partition_point(|bound| *bound <= from)..].iter().copied() {
                if bound >= end {
                    break;
                }
                if bound > at {
                    all.push((Some(at), bound - at));
                    at = bound;
                }
            }
            all.push((Some(at), end - at));
        }
        all
    }

    /// Remembers what a piece is kept on. One that is attached anew keeps its old entry too: to
    /// flush a piece in two ways costs time, and does no harm.
    fn note(&self, piece: AttachedFile) {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        if !pieces.contains(&piece) {
            pieces.push(piece);
        }
        self.media.fetch_or(piece.medium.bit(), Ordering::Relaxed);
    }

    /// Goes past addresses that stay without memory, as if a file had been attached there.
    pub fn skip(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        if offset != self.attached() || end > self.reserved {
            fail!(
                Corrupt,
                "{len} bytes without a file at {offset} do not continue an arena of {} bytes",
                self.attached()
            );
        }
        self.attached.fetch_max(end, Ordering::Release);
        Ok(())
    }

    /// The first address. Bytes `[0, attached())` from here are mapped.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Lets go of every file, so that removed ones give their memory back. The addresses stay
    /// reserved, and nothing can be attached any more.
    ///
    /// Only for a caller that has the range alone: it takes `Arc`'s word for that.
    pub fn release(this: &Arc<AddressRange>) {
        if Arc::strong_count(this) > 1 {
            return;
        }
        // SAFETY: nobody else holds the range, so nobody has a pointer into it; the mapping
        // replaces pages of the range itself by addresses without memory.
        let at = unsafe {
            libc::mmap(
                this.base.as_ptr().cast(),
                this.reserved as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            this.keep(0, this.reserved);
        }
        this.attached.store(0, Ordering::Release);
        if let Ok(mut kept) = this.first_touches.try_write() {
            kept.clear();
        }
        if let Some(device) = this.emulated() {
            device.let_go();
        }
    }

    /// How many bytes are mapped, from the start on.
    pub fn attached(&self) -> u64 {
        self.attached.load(Ordering::Acquire)
    }

    /// How many bytes of addresses there are.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Puts `[offset, offset + len)` into this process's page tables at once, for writing if all of
    /// the range is attached so.
    ///
    /// Contents do not change, whoever else writes them meanwhile. On error some of it is done.
    pub fn prefault(&self, offset: u64, len: u64) -> Result<()> {
        let (at, len) = self.pages(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let read_only = self.read_only.load(Ordering::Relaxed);
        let advice = if read_only { libc::MADV_POPULATE_READ } else { libc::MADV_POPULATE_WRITE };
        loop {
            // SAFETY: `pages` gave whole pages of what is attached; populating changes no contents.
            if unsafe { libc::madvise(at.cast(), len, advice) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Older than Linux 5.14.
                Some(libc::EINVAL | libc::ENOSYS) => {
                    touch(at, len, read_only);
                    return Ok(());
                }
                _ => return Err(Error::os(format_args!("cannot prefault {len} bytes"), &error)),
            }
        }
    }

    /// Makes `[offset, offset + len)` durable, each piece of it as its medium needs: on return,
    /// what this thread wrote there before survives power loss, as far as the medium can.
    ///
    /// After an error nobody can know what is on the disk: the kernel calls the pages clean all the
    /// same. The realm is then poisoned by the caller.
    pub fn flush(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        self.for_each_piece(offset, len, |start, end, medium| match medium {
            Medium::Memory => Ok(()),
            Medium::PageCache => {
                let (at, len) = self.pages(start, end - start)?;
                sync(at, len)
            }
            Medium::Dax => {
                // SAFETY: a piece of what is attached.
                unsafe { persist::flush_lines(self.at(start), (end - start) as usize) };
                persist::fence();
                Ok(())
            }
        })
    }

    /// What `[offset, offset + len)` is kept on; `None` if its pieces differ.
    pub fn medium(&self, offset: u64, len: u64) -> Result<Option<Medium>> {
        self.check(offset, len)?;
        let mut media = 0;
        self.for_each_piece(offset, len, |_, _, medium| {
            media |= medium.bit();
            Ok(())
        })?;
        Ok(Medium::ALL.into_iter().find(|medium| medium.bit() == media))
    }

    /// Calls `work` with the start, the end and the medium of each piece of `[offset, offset +
    /// len)`: once for all of it where there is one medium.
    fn for_each_piece(
        &self,
        offset: u64,
        len: u64,
        mut work: impl FnMut(u64, u64, Medium) -> Result<()>,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = offset + len;
        let media = self.media.load(Ordering::Relaxed);
        if let Some(only) = Medium::ALL.into_iter().find(|medium| medium.bit() == media) {
            return work(offset, end, only);
        }
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        for piece in pieces.iter().filter(|piece| piece.start < end && offset < piece.end) {
            work(piece.start.max(offset), piece.end.min(end), piece.medium)?;
        }
        Ok(())
    }

    /// The address of an offset that is attached.
    fn at(&self, offset: u64) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset as usize)
    }

    /// Refuses what is not attached.
    fn check(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset.saturating_add(len);
        if end > self.attached() {
            fail!(
                Argument,
                "bytes {offset} to {end} lie outside an arena of {} bytes",
                self.attached()
            );
        }
        Ok(())
    }

    /// The whole pages that cover `[offset, offset + len)`, which must be attached.
    fn pages(&self, offset: u64, len: u64) -> Result<(*mut u8, usize)> {
        self.check(offset, len)?;
        let first = offset - offset % PAGE;
        let pages = if len == 0 { 0 } else { round_up(offset + len, PAGE) - first };
        Ok((self.at(first), pages as usize))
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: the range is this value's own, and every holder of a pointer into it holds it
        // too.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.reserved as usize) };
        RESERVED.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

/// Gives the whole units of 2 MiB in `[offset, offset + len)` of a tmpfs file one huge page each,
/// whatever the mount's `huge=` says, as far as the kernel has such pages and the call
/// (Linux 6.1). A unit needs a page to begin with; the missing bytes are filled with zeros.
///
/// On error some units may have been done; the file's contents are the same in any case.
pub(super) fn collapse(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = AddressRange::reserve_exactly(len)?;
    // SAFETY: the mapping replaces the addresses of `range`, which nobody else knows, and goes with
    // it. The advice changes where the kernel keeps the bytes, not what they are.
    unsafe {
        let at = libc::mmap(
            range.base().cast(),
            len as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            file.as_raw_fd(),
            offset as i64,
        );
        if at == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            range.keep(0, len);
            return Err(error);
        }
        if libc::madvise(at, len as usize, MADV_COLLAPSE) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Whether the kernel lets this file be mapped so that cache lines written back to it are durable
/// (`MAP_SYNC`). Asked of one page anywhere: a refusal within a range would leave a hole in it.
pub(super) fn grants_sync(file: &File) -> bool {
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing; nobody touches
    // it, and it goes again.
    unsafe {
        let at = libc::mmap(
            ptr::null_mut(),
            PAGE as usize,
            libc::PROT_READ,
            libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            file.as_raw_fd(),
            0,
        );
        at != libc::MAP_FAILED && libc::munmap(at, PAGE as usize) == 0
    }
}

/// A whole file, mapped shared, for reading and writing: a lease, a growth page.
#[derive(Debug)]
pub struct MappedFile {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; accesses through the address are the caller's to justify.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// Maps all of `file`, which has at least `least` bytes, all of them allocated.
    pub fn map(file: &File, least: u64) -> Result<MappedFile> {
        let meta = file.metadata().map_err(|e| Error::os("cannot look at a file (fstat)", &e))?;
        let len = meta.len();
        if len == 0 || len < least {
            fail!(Corrupt, "a file of {len} bytes should have {least}: it was truncated");
        }
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os(format_args!("cannot map a file of {len} bytes")));
        }
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| Error::new(Kind::Os, "a file was mapped at address 0"))?;
        Ok(MappedFile { base, len: len as usize })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// How many bytes are mapped.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes the whole file's contents durable, as far as its filesystem can.
    pub fn flush(&self) -> Result<()> {
        sync(self.base.as_ptr(), self.len)
    }

    /// Lets go of the file; in its place there is memory of this process's own from now on, which
    /// begins with this number, and is zero else. In one step: a reader sees the one or the other.
    /// `false` if the kernel has no memory for it: then nothing has changed.
    pub fn exchange(&self, number: u64) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which nobody else knows, is filled, and takes the place of this
        // value's own: every user of its address touches it by atomic operations, or holds a lock.
        // If the move fails when what was there has gone already, the addresses are taken again.
        unsafe {
            let own = libc::mmap(ptr::null_mut(), self.len, prot, flags, -1, 0);
            if own == libc::MAP_FAILED {
                return false;
            }
            own.cast::<u64>().write(number);
            let at = self.base.as_ptr().cast::<libc::c_void>();
            let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            if libc::mremap(own, self.len, self.len, how, at) != libc::MAP_FAILED {
                return true;
            }
            libc::munmap(own, self.len);
            let fixed = flags | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(at, self.len, prot, fixed, -1, 0);
        }
        false
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and every user of its address holds it too.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Writes whole pages to their files and waits.
fn sync(at: *mut u8, len: usize) -> Result<()> {
    // SAFETY: msync reads the page tables of `[at, at + len)`; unmapped pages are an error.
    if unsafe { libc::msync(at.cast(), len, libc::MS_SYNC) } != 0 {
        return Err(Error::last_os(format_args!("cannot make {len} bytes durable (msync)")));
    }
    Ok(())
}

/// Reads or writes each page of `[at, at + len)`, which is attached for that, without changing it:
/// a zero is exchanged for a zero, which is a write to the processor also where none is there. (An
/// atomic "or" with nothing is made a read by the compiler. And if a page is read first, that fault
/// maps those around it, too.)
pub(super) fn touch(at: *mut u8, len: usize, read_only: bool) {
    for page in (0..len).step_by(PAGE as usize) {
        // SAFETY: the caller names attached pages, whose first byte this is.
        let byte = unsafe { AtomicU8::from_ptr(at.add(page)) };
        if read_only {
            std::hint::black_box(byte.load(Ordering::Relaxed));
        } else {
            let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// The next multiple of `to`, which is a power of two.
fn round_up(n: u64, to: u64) -> u64 {
    n.saturating_add(to - 1) & !(to - 1)
}

/// The number that the last call failed with.
fn last_code() -> Option<i32> {
    io::Error::last_os_error().raw_os_error()
}

#[cfg(test)]
mod tests;
