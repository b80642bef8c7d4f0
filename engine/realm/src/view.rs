//! Views and allocations: memory of the pool in somebody's hands.
//!
//! A claim keeps one extent from reuse, or what it shows of a file, by pins or an age of this
//! process's lease, and keeps the realm's mappings alive. It knows nothing of the object: that may
//! be replaced, moved or deleted, by anyone, and the pool's handles may be closed; the memory stays
//! until the last claim on it, in any process, is gone.

use crate::realm::checked;
use crate::realm::look;
use crate::realm::space;
use crate::realm::spans;
use crate::realm::write;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::realm::{Core, HasCore, Link, Realm};
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::{Gid, Oid};
use engram_base::threads;
use engram_media::memory::Memory;
use engram_ops::rows_mut::Reserved;
use engram_records::extent::Extent;
use engram_records::object::Stored;
use engram_space::extent::Span;
use engram_space::lease::{Hold, ViewHold};

/// One hold on one extent, or on what is shown of a file, given up on drop.
pub struct Claim {
    core: Arc<Core>,
    extent: Extent,
    kept: Kept,
    /// `None` only while it is dropped.
    memory: Option<Memory>,
    /// A scratch extent: the reservation ends with the claim.
    scratch: Option<Reserved>,
    /// Whether others know it as one that may write (see `checksum`).
    writing: bool,
}

/// How a claim keeps what it has.
enum Kept {
    Extent(Hold),
    File(FileClaim),
}

/// What a claim shows of a file.
pub(crate) struct FileClaim {
    /// The file.
    pub oid: Oid,
    /// How it is kept.
    pub kept: ViewHold,
    /// Whether it has no holes.
    pub whole: bool,
}

impl Claim {
    /// Takes over a hold that the lease has just given, and becomes a user of the core.
    pub(crate) fn new(core: &Arc<Core>, extent: Extent, hold: Hold, memory: Memory) -> Self {
        core.space.touched(extent);
        Self::with(core, extent, Kept::Extent(hold), memory)
    }

    /// The same of what the lease keeps of a file, as this memory.
    pub(crate) fn of_file(core: &Arc<Core>, file: FileClaim, memory: Memory) -> Self {
        let extent = Extent { offset: 0, len: memory.len() };
        Self::with(core, extent, Kept::File(file), memory)
    }

    fn with(core: &Arc<Core>, extent: Extent, kept: Kept, memory: Memory) -> Self {
        core.add_user();
        Claim {
            core: Arc::clone(core),
            extent,
            kept,
            memory: Some(memory),
            scratch: None,
            writing: false,
        }
    }

    /// Notes that the lease knows it as one that may write.
    pub(crate) fn writing(mut self) -> Self {
        self.writing = true;
        self
    }

    /// The extent.
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// The extent's memory.
    pub(crate) fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("present until drop")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.writing {
            checked::end_writing(&self.core, self.extent);
        }
        match &self.kept {
            Kept::File(file) => self.core.gate.leave_shown(file.oid, &file.kept),
            Kept::Extent(hold) => self.core.gate.unpin(self.extent, *hold),
        }
        if let Some(reserved) = self.scratch {
            space::give_back(&self.core, reserved);
        }
        // Before the last user leaves: the arena lets go of what nobody holds.
        drop(self.memory.take());
        self.core.remove_user();
    }
}

/// Memory of the pool. Cloning it adds a reference to the same claim.
#[derive(Clone)]
pub struct View {
    claim: Arc<Claim>,
    nbytes: usize,
    writable: bool,
}

impl View {
    pub(crate) fn new(claim: Arc<Claim>, nbytes: u64, writable: bool) -> Self {
        debug_assert!(nbytes <= claim.extent.len);
        View { claim, nbytes: nbytes as usize, writable }
    }

    /// A view of reserved space that is given back with the last reference.
    pub(crate) fn scratch(mut claim: Claim, reserved: Reserved, nbytes: u64) -> Self {
        claim.scratch = Some(reserved);
        Self::new(Arc::new(claim), nbytes, true)
    }

    /// The first byte; valid for `len()` bytes as long as this view or a clone of it lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.claim.memory().as_ptr()
    }

    /// The checksum of what it shows now.
    pub(crate) fn checksum(&self) -> u64 {
        self.claim.memory().checksum(self.nbytes as u64)
    }

    /// Whether it is of a file, and if so, whether that has no holes, which cannot be written to.
    pub(crate) fn of_file(&self) -> Option<bool> {
        match &self.claim.kept {
            Kept::File(file) => Some(file.whole),
            Kept::Extent(_) => None,
        }
    }

    /// Makes all of it durable, as far as the medium can.
    pub(crate) fn flush_memory(&self) -> Result<()> {
        self.memory().flush(std::iter::once((0, self.nbytes as u64)))
    }

    /// The extent behind it.
    pub(crate) fn extent(&self) -> Extent {
        self.claim.extent
    }

    /// Copies bytes out, from an offset on.
    ///
    /// # Panics
    ///
    /// If the view does not have them.
    pub fn copy_out(&self, offset: u64, to: &mut [u8]) {
        self.check_within(offset, to.len());
        self.memory().copy_out(offset, to);
    }

    /// Writes bytes in place, at an offset.
    ///
    /// # Panics
    ///
    /// If the view is not for writing, or does not have them.
    pub fn write_at(&self, offset: u64, data: &[u8]) {
        assert!(self.writable, "the view is for reading");
        self.check_within(offset, data.len());
        self.memory().write_at(offset, data);
    }

    fn check_within(&self, offset: u64, len: usize) {
        let end = offset.checked_add(len as u64);
        assert!(
            end.is_some_and(|end| end <= self.nbytes as u64),
            "{len} bytes from {offset} on of a view of {}",
            self.nbytes
        );
    }

    /// The memory behind it.
    fn memory(&self) -> &Memory {
        self.claim.memory()
    }

    /// Makes these pieces of it durable, where the pool promises that; in ascending order.
    pub fn flush(&self, pieces: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        look::flush_pieces(&self.claim.core, self.memory(), pieces)
    }

    /// Does work that reads so many bytes of it, at the pace of the device that is emulated, if
    /// one is.
    pub fn reading<T>(&self, bytes: usize, work: impl FnOnce() -> T) -> T {
        self.memory().reading(bytes, work)
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.nbytes
    }

    /// Whether there is nothing to see.
    pub fn is_empty(&self) -> bool {
        self.nbytes == 0
    }

    /// Maps a part of it once more, at `to`, with this protection of memory: whole pages all, of
    /// which the last may have bytes that are not the view's.
    ///
    /// # Safety
    ///
    /// The caller owns the addresses at `to`, and keeps this view or a clone of it as long as it
    /// uses them.
    pub unsafe fn map_again(
        &self,
        offset: u64,
        len: u64,
        to: *mut u8,
        protection: i32,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory().map_again(offset, len, to, protection) }
    }

    /// The file of a device in which its bytes lie, and where they begin there: for calls of the
    /// kernel that send bytes of a file. The view keeps them as long as it lives. `None` where they
    /// are no bytes of one file that can be sent: on a devdax node, or of a file in segments.
    pub fn source(&self) -> Result<Option<(File, u64)>> {
        let (core, extent) = (&self.claim.core, self.extent());
        if self.of_file().is_some() || extent.len == 0 {
            return Ok(None);
        }
        let attached = core.enter()?.arena().attached();
        let has =
            |span: &Span| span.range.offset <= extent.offset && extent.end() <= span.range.end();
        let Some(span) = attached.into_iter().find(has) else { return Ok(None) };
        if span.place != 0 || !span.has_file() {
            return Ok(None);
        }
        let file = spans::open_span(core, span, None)?;
        Ok(Some((file, extent.offset - span.range.offset)))
    }

    /// Whether the owner of the view may write through it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
}

/// Space that is being filled, and becomes an object on `publish`, or not at all.
pub struct RealmAllocation {
    core: Arc<Core>,
    claim: Arc<Claim>,
    reserved: Reserved,
    link: Link<'static>,
    /// What the record will say of the value, once that is durable.
    stored: Option<(u64, u64)>,
    nbytes: u64,
    published: bool,
    /// Whether somebody was given the memory, to write there when it pleases them.
    shown: AtomicBool,
    /// Whether all of it was made durable as it was written.
    written_through: AtomicBool,
    /// Whether some of it was written in another way, at any time: a note that is never taken back,
    /// as several threads may write.
    left_to_flush: AtomicBool,
}

impl RealmAllocation {
    pub(crate) fn new(
        core: Arc<Core>,
        claim: Claim,
        reserved: Reserved,
        link: Link<'static>,
        nbytes: u64,
    ) -> Self {
        RealmAllocation {
            core,
            claim: Arc::new(claim),
            reserved,
            link,
            stored: None,
            nbytes,
            published: false,
            shown: AtomicBool::new(false),
            written_through: AtomicBool::new(false),
            left_to_flush: AtomicBool::new(false),
        }
    }

    /// Fills the memory from its start.
    ///
    /// # Panics
    ///
    /// If `data` is longer than what was allocated.
    pub fn write(&self, data: &[u8]) {
        let memory = self.claim.memory();
        if self.core.setup.durable && data.len() as u64 == self.nbytes {
            if memory.write_through(data) {
                self.written_through.store(true, Ordering::Relaxed);
            } else {
                self.left_to_flush.store(true, Ordering::Relaxed);
            }
        } else {
            self.left_to_flush.store(true, Ordering::Relaxed);
            threads::copy_from(data, |at, part| memory.write_at(at, part));
        }
    }

    /// Fills the memory from an offset on.
    ///
    /// # Panics
    ///
    /// If `data` goes beyond what was allocated.
    pub fn write_at(&self, offset: u64, data: &[u8]) {
        self.left_to_flush.store(true, Ordering::Relaxed);
        self.claim.memory().write_at(offset, data);
    }

    /// Fills the memory from an offset on with `len` bytes of a file, from its byte `at` on; says
    /// how many, which are fewer where the file ends.
    ///
    /// # Errors
    ///
    /// The file cannot be read. The memory holds anything then.
    ///
    /// # Panics
    ///
    /// If they would go beyond what was allocated.
    pub fn read_from(
        &self,
        offset: u64,
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> io::Result<usize> {
        self.left_to_flush.store(true, Ordering::Relaxed);
        threads::copy_parts(len, |start, part| {
            self.claim.memory().read_from(offset + start, file, at + start, part)
        })
    }

    /// Whether so many bytes are better copied to an offset from elsewhere, by `write_at`, than
    /// made there: this process has not come to its pages yet, and each would cost it a fault.
    pub fn is_new(&self, offset: u64, len: usize) -> bool {
        self.claim.memory().is_new(offset, len)
    }

    /// Zeroes the memory.
    pub fn zero(&self) {
        self.left_to_flush.store(true, Ordering::Relaxed);
        self.claim.memory().zero(self.nbytes);
    }

    /// The memory to fill; it stays valid after `publish`, and after the allocation is dropped.
    pub fn view(&self) -> View {
        self.shown.store(true, Ordering::Relaxed);
        View::new(Arc::clone(&self.claim), self.nbytes, true)
    }

    /// Makes the memory durable, and the object visible to everyone, in one commit.
    ///
    /// On error nothing is visible, and the space goes back.
    pub fn publish(mut self) -> Result<Oid> {
        self.make_durable()?;
        self.link()
    }

    /// Makes what the memory holds by now durable, where the realm promises that (P1), and takes
    /// its checksum.
    #[doc(hidden)]
    pub fn make_durable(&mut self) -> Result<()> {
        let is_durable = *self.written_through.get_mut() && !*self.left_to_flush.get_mut();
        if *self.shown.get_mut() || !is_durable {
            space::flush_extent(&self.core, self.claim.extent(), self.nbytes)?;
        }
        step!("put.flushed");
        let checksum = checked::checksum_of(&self.core, self.claim.memory(), self.nbytes);
        self.stored = Some((self.nbytes, checksum));
        Ok(())
    }

    /// Makes the object visible, with the value that was made durable. On error it can be called
    /// again.
    ///
    /// # Panics
    ///
    /// If nothing was made durable.
    #[doc(hidden)]
    pub fn link(&mut self) -> Result<Oid> {
        let (nbytes, checksum) = self.stored.expect("a value is made durable before it is linked");
        let stored = Stored::Contiguous { extent: self.reserved.extent, nbytes, checksum };
        let oid =
            write::link_object(&self.core, &self.link, stored, Some(self.reserved), |_, _| Ok(()))?;
        step!("put.linked");
        self.published = true;
        Ok(oid)
    }

    /// Has it linked at another place of its realm, relying on what this handle relies on.
    #[doc(hidden)]
    pub fn aim(&mut self, realm: &Realm, group: Gid, path: &str) {
        self.link.aim(realm, group, path.to_owned());
    }

    /// Whether the space lies in this realm.
    pub fn is_in(&self, realm: &Realm) -> bool {
        Arc::ptr_eq(realm.core(), &self.core)
    }

    /// Copies the value into another realm's space.
    #[doc(hidden)]
    pub fn copy_to(&self, other: &RealmAllocation) -> Result<()> {
        space::copy_in(&other.core, &self.core, self.reserved.extent, other.reserved, self.nbytes)
    }
}

impl Drop for RealmAllocation {
    fn drop(&mut self) {
        if !self.published {
            space::give_back(&self.core, self.reserved);
        }
    }
}
