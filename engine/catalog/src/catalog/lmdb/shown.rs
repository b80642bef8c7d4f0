//! The number of the commit that LMDB shows to readers: a word of `lock.mdb`.
//!
//! LMDB has no call for it. A writer sets it when its commit is whole, so it can be behind the
//! newest header: while a commit is synced, and where its process died before it set the word.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use super::process::ReaderLock;
use engram_base::error::{Error, Result};

/// Where it stands: behind two words of four bytes each.
const AT: usize = 8;
const MAPPED_BYTES: usize = 4096;

/// The word, mapped for reading.
pub(super) struct ShownCommit(NonNull<c_void>);

impl ShownCommit {
    /// Maps the word of an environment's lock file.
    pub(super) fn map(file: ReaderLock) -> Result<Self> {
        // SAFETY: a new mapping of an open file, at an address of the system's choice.
        let at = unsafe {
            let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
            libc::mmap(ptr::null_mut(), MAPPED_BYTES, protection, flags, file.descriptor(), 0)
        };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(ShownCommit(at)),
            _ => Err(Error::last_os("mapping lock.mdb")),
        }
    }

    pub(super) fn id(&self) -> u64 {
        // SAFETY: the mapping has a page, and its words are aligned. LMDB writes the word whole,
        // from any process.
        let word = unsafe { &*self.0.as_ptr().byte_add(AT).cast::<AtomicU64>() };
        word.load(Ordering::Acquire)
    }
}

impl Drop for ShownCommit {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nobody uses it any more.
        unsafe { libc::munmap(self.0.as_ptr(), MAPPED_BYTES) };
    }
}
