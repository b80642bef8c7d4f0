//! The head of a file: words of the arena that every process changes which has the file open.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `ENGRHEAD` |
//! | 8 | 8 | size: how many bytes the file has |
//! | 16 | 8 | written: when bytes or size last changed, in ns since 1970, or what somebody has said |
//! | 24 | 8 | changed: when they did |
//! | 32 | 8 | accessed: what somebody has said of that |
//! | 40 | 8 | tail: the lease that extends or cuts the file; 0 for none |
//! | 48 | 8 | map: the last transaction that changed segments |
//! | 56 | 8 | dirty from: where the first byte is that was written since the last flush |
//! | 64 | 8 | dirty to: behind the last such byte |
//! | 72 | 8 | space: how many bytes the segments take |
//! | 80 | 48 | zeros |
//!
//! The words are atomics. The protocols that give them their meaning stand above `realm::files`.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

use engram_base::error::Result;
use engram_base::fail;
use engram_media::memory::Memory;
use engram_records::segmented::{CLEAN, HEAD_BYTES, HeadFacts, MAGIC};

#[repr(C)]
struct HeadWords {
    magic: AtomicU64,
    size: AtomicU64,
    written: AtomicI64,
    changed: AtomicI64,
    accessed: AtomicI64,
    tail: AtomicU64,
    map: AtomicU64,
    dirty_from: AtomicU64,
    dirty_to: AtomicU64,
    space: AtomicU64,
    _zeros: [u64; 6],
}

const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<HeadWords>() == HEAD_BYTES as usize);
    assert!(offset_of!(HeadWords, tail) == 40);
    assert!(offset_of!(HeadWords, map) == 48);
    assert!(offset_of!(HeadWords, dirty_to) == 64);
};

/// A head, mapped.
#[derive(Clone)]
pub struct FileHead {
    memory: Memory,
}

impl FileHead {
    /// The head in this memory, which has [`HEAD_BYTES`] and is held as long as this value lives.
    ///
    /// # Panics
    ///
    /// If the memory is shorter.
    pub fn new(memory: Memory) -> Result<Self> {
        assert!(memory.len() >= HEAD_BYTES, "a head of {} bytes", memory.len());
        let head = FileHead { memory };
        let magic = head.words().magic.load(Ordering::Acquire);
        if magic != MAGIC {
            fail!(Corrupt, "a file's head begins with {magic:#x}, as none does: run verify");
        }
        Ok(head)
    }

    #[expect(clippy::cast_ptr_alignment, reason = "every extent is aligned to 64 bytes")]
    fn words(&self) -> &HeadWords {
        // SAFETY: an extent begins at a multiple of 64 and has 128 bytes here, which stay mapped as
        // long as `self` lives; every process touches them by atomic operations alone.
        unsafe { &*self.memory.as_ptr().cast::<HeadWords>() }
    }

    /// Size and times.
    pub fn facts(&self) -> HeadFacts {
        let words = self.words();
        HeadFacts {
            size: self.size(),
            written: words.written.load(Ordering::Relaxed),
            changed: words.changed.load(Ordering::Relaxed),
            accessed: words.accessed.load(Ordering::Relaxed),
            space: words.space.load(Ordering::Relaxed),
        }
    }

    /// How many bytes the file has, and with them all that was written before they became so many.
    #[inline]
    pub fn size(&self) -> u64 {
        self.words().size.load(Ordering::Acquire).min(i64::MAX as u64)
    }

    /// Says how many bytes it has. Only for whoever has the tail.
    pub fn set_size(&self, size: u64) {
        self.words().size.store(size, Ordering::Release);
    }

    /// Says how many bytes the segments take.
    pub fn set_space(&self, space: u64) {
        self.words().space.store(space, Ordering::Relaxed);
    }

    /// Says that bytes or size have changed.
    #[inline]
    pub fn touch(&self, now: i64) {
        self.words().written.store(now, Ordering::Relaxed);
        self.words().changed.store(now, Ordering::Relaxed);
    }

    /// Says when it was written and read, as somebody has it; `None` leaves what is there.
    pub fn set_times(&self, written: Option<i64>, accessed: Option<i64>) {
        if let Some(written) = written {
            self.words().written.store(written, Ordering::Relaxed);
        }
        if let Some(accessed) = accessed {
            self.words().accessed.store(accessed, Ordering::Relaxed);
        }
    }

    /// The last transaction that changed segments, if it was committed. What this thread has copied
    /// before, it has copied before it asks.
    #[inline]
    pub fn map(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.words().map.load(Ordering::SeqCst)
    }

    /// Says that a transaction changes segments, before it commits, under the writer lock.
    pub fn set_map(&self, id: u64) {
        self.words().map.store(id, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the tail for a lease if `from` has it (0: nobody). On failure says who has.
    #[inline]
    pub fn take_tail(&self, from: u64, lease: u64) -> std::result::Result<(), u64> {
        let taken =
            self.words().tail.compare_exchange(from, lease, Ordering::SeqCst, Ordering::SeqCst);
        taken.map(drop)
    }

    /// Lets go of the tail.
    #[inline]
    pub fn leave_tail(&self) {
        self.words().tail.store(0, Ordering::Release);
    }

    /// Who has the tail: a lease, or 0.
    pub fn tail(&self) -> u64 {
        self.words().tail.load(Ordering::Acquire)
    }

    /// Notes that bytes were written, once they are.
    pub fn note_dirty(&self, from: u64, to: u64) {
        self.words().dirty_from.fetch_min(from, Ordering::AcqRel);
        self.words().dirty_to.fetch_max(to, Ordering::AcqRel);
    }

    /// What is to be flushed, whoever wrote it; from now on nothing is. A writer that notes more
    /// meanwhile may be noted by half: then what is missing is taken to be as far as it can.
    pub fn take_dirty(&self) -> Option<(u64, u64)> {
        let from = self.words().dirty_from.swap(CLEAN, Ordering::AcqRel);
        let to = self.words().dirty_to.swap(0, Ordering::AcqRel);
        match (from, to) {
            (CLEAN, 0) => None,
            (CLEAN, to) => Some((0, to)),
            (from, 0) => Some((from, u64::MAX)),
            (from, to) => Some((from, to)),
        }
    }

    /// Makes the head itself durable.
    pub fn flush(&self) -> Result<()> {
        self.memory.flush(std::iter::once((0, HEAD_BYTES)))
    }
}
