//! The words of a lease: where they lie in its file, and what they are made of.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `ENGRLEAS` |
//! | 8 | 8 | the lease's id, which its name and its reservations carry |
//! | 16 | 8 | inode of the owner's PID namespace |
//! | 24 | 8 | start time of the owner, in clock ticks since boot |
//! | 32 | 4 | the owner's pid, for messages only: no pid decides anything |
//! | 36 | 4 | 1 once somebody has the lock because the owner is dead |
//! | 40 | 8 | since when the owner has it, in ns since 1970 |
//! | 48 | 4 | the number of the owner's copy of the engine (`engram_base::guest`) |
//! | 64 | 8 | age |
//! | 128 | 8 | pin slots in use: only this many need be read |
//! | 192 | 8 | page of the catalog from which on to ask for its snapshots; all ones: it has none |
//! | 200 | 4 | 1 once a writer has asked, until the owner has looked; 2: it has no room at all |
//! | 1024 | 16 x 192 | locks: an id, and a mode (1 reads, 2 writes, 0 none); for messages only |
//! | 4096 | 8 x 8192 | pins: offsets plus one, and two more of what may be written; ids of objects that are open, times four, and two more of those that are viewed; or zero |
//!
//! The words are std's atomics, at their places in the mapped file. In a model (`--cfg loom`) they
//! are loom's, which have no place, so that a lease is memory of the process there, with room for
//! two pins. What stores and loads them is the same code, and takes fences and mutexes from here,
//! too. `tests/model.rs` says what is modelled.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence},
};

use std::fs::File;

use engram_base::error::Result;
use engram_base::id::Oid;
#[cfg(not(loom))]
use engram_media::map::MappedFile;

/// The pins that one lease holds; beyond them a view keeps the age instead.
pub const PINS_MAX: usize = if cfg!(loom) { 2 } else { 8192 };
#[cfg(not(loom))]
const PINS_AT: usize = 4096;
/// The locks that one lease lists; more are held all the same.
pub(crate) const LOCKS_LISTED: usize = if cfg!(loom) { 1 } else { 192 };
/// The size of a lease file.
pub(crate) const LEASE_BYTES: u64 = 4096 + 8192 * 8;
/// A writer that extends the catalog asks whether a snapshot has reached its bound.
pub(crate) const ASKED: u32 = 1;
/// One that finds no room at all asks for every snapshot that keeps pages.
pub const CALLED_IN: u32 = 2;
/// What is added to a pin whose owner may write to the extent. Offsets are multiples of 64.
const WRITING: u64 = 2;

/// A pin, as it stands in a slot.
pub(crate) fn pin_word(offset: u64, writing: bool) -> u64 {
    offset + 1 + if writing { WRITING } else { 0 }
}

/// How a process uses a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectUse {
    /// It has it open: it may not go.
    Open,
    /// It views its memory: neither that nor any part of it may go.
    View,
}

/// An object that is used, as a slot says it: its id without the upper two bits, so that ids that
/// differ in nothing else are one. That keeps too much at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UsedObject(u64);

impl UsedObject {
    /// What a slot says of this object.
    pub(crate) fn of(oid: Oid, how: ObjectUse) -> Self {
        UsedObject(oid << 2 | if how == ObjectUse::View { 2 } else { 0 })
    }

    /// As it stands in a slot.
    pub(crate) fn word(self) -> u64 {
        self.0
    }
}

/// What a slot keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// The extent at this offset, which the owner may write to or not.
    Extent { offset: u64, writing: bool },
    /// An object, with all its extents.
    Object(UsedObject),
}

/// What a slot keeps; `None` for a free one.
pub(crate) fn pinned(word: u64) -> Option<Pin> {
    match word {
        0 => None,
        word if word & 1 == 0 => Some(Pin::Object(UsedObject(word))),
        word => {
            let pin = word - 1;
            Some(Pin::Extent { offset: pin & !WRITING, writing: pin & WRITING != 0 })
        }
    }
}

/// The first page of a lease file.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct LeaseHead {
    pub magic: AtomicU64,
    pub id: AtomicU64,
    pub pid_namespace: AtomicU64,
    pub start_time: AtomicU64,
    pub pid: AtomicU32,
    /// Whether the holder of the lock only reaps the owner.
    pub dead: AtomicU32,
    pub since: AtomicI64,
    pub copy: AtomicU32,
    _pad_owner: [u32; 3],
    pub age: AtomicU64,
    _pad_age: [u64; 7],
    pub pins_used: AtomicU64,
    _pad_pins: [u64; 7],
    /// Beyond this last page of the catalog, writers ask for the owner's snapshots.
    pub ask_at: AtomicU64,
    /// Whether one has asked, and how ([`ASKED`], [`CALLED_IN`]): the only word that others than
    /// the owner write.
    pub asked: AtomicU32,
    #[cfg(not(loom))]
    _pad_asked: [u32; 205],
    /// What the owner has locked.
    pub locks: [LockedWords; LOCKS_LISTED],
}

/// A lock in the list: the id is whole while the mode is not zero.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub(crate) struct LockedWords {
    pub id: AtomicU64,
    pub mode: AtomicU64,
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(offset_of!(LeaseHead, age) == 64);
    assert!(offset_of!(LeaseHead, pins_used) == 128);
    assert!(offset_of!(LeaseHead, ask_at) == 192);
    assert!(offset_of!(LeaseHead, asked) == 200);
    assert!(offset_of!(LeaseHead, locks) == 1024);
    assert!(size_of::<LeaseHead>() <= PINS_AT);
    assert!(LEASE_BYTES as usize == PINS_AT + PINS_MAX * 8);
};

/// The words of one lease.
#[cfg_attr(loom, derive(Clone))]
pub(crate) struct Words {
    #[cfg(not(loom))]
    map: MappedFile,
    #[cfg(loom)]
    shared: std::sync::Arc<(LeaseHead, [AtomicU64; PINS_MAX])>,
}

#[cfg(not(loom))]
#[allow(clippy::cast_ptr_alignment)] // a mapping begins at a page
impl Words {
    /// Maps a lease file. All of its blocks are allocated (P3), so touching it cannot raise SIGBUS.
    pub fn map(file: &File) -> Result<Self> {
        Ok(Words { map: MappedFile::map(file, LEASE_BYTES)? })
    }

    /// The head.
    pub fn head(&self) -> &LeaseHead {
        // SAFETY: the mapping is page-aligned, larger than `LeaseHead`, made of atomics, and lives
        // as long as `self`.
        unsafe { &*self.map.as_ptr().cast::<LeaseHead>() }
    }

    /// The pin slots.
    pub fn pins(&self) -> &[AtomicU64] {
        // SAFETY: `PINS_MAX` words at a page boundary inside the mapping, all atomics.
        unsafe {
            std::slice::from_raw_parts(self.map.as_ptr().add(PINS_AT).cast::<AtomicU64>(), PINS_MAX)
        }
    }
}

#[cfg(loom)]
impl Words {
    /// A model maps no file.
    pub fn map(_file: &File) -> Result<Self> {
        engram_base::fail!(Unsupported, "loom's atomics have no place in a file")
    }

    /// A lease that nobody has used; a clone of it is the same lease, in another process.
    #[cfg(test)]
    pub fn modelled() -> Self {
        let words = Words { shared: std::sync::Arc::default() };
        words.clear();
        words
    }

    /// The head.
    pub fn head(&self) -> &LeaseHead {
        &self.shared.0
    }

    /// The pin slots.
    pub fn pins(&self) -> &[AtomicU64] {
        &self.shared.1
    }
}

impl Words {
    /// Empties what a new owner begins with: no look-up, view, snapshot or lock.
    pub fn clear(&self) {
        let head = self.head();
        head.pins_used.store(0, Ordering::Relaxed);
        head.age.store(super::IDLE, Ordering::Relaxed);
        head.ask_at.store(u64::MAX, Ordering::Relaxed);
        head.asked.store(0, Ordering::Relaxed);
        head.dead.store(0, Ordering::Relaxed);
        for lock in &head.locks {
            lock.mode.store(0, Ordering::Relaxed);
        }
    }

    /// The age: `PIN`, `IDLE`, or the oldest snapshot in use.
    pub fn age(&self) -> u64 {
        self.head().age.load(Ordering::Acquire)
    }

    /// Whether somebody has the lock only because the owner is dead.
    pub fn is_reaped(&self) -> bool {
        self.head().dead.load(Ordering::Acquire) != 0
    }

    /// How many pin slots were ever used.
    pub fn used(&self) -> usize {
        self.head().pins_used.load(Ordering::Acquire).min(PINS_MAX as u64) as usize
    }

    /// Every pin.
    pub fn pinned(&self) -> impl Iterator<Item = Pin> + '_ {
        self.pins()[..self.used()].iter().filter_map(|pin| pinned(pin.load(Ordering::Acquire)))
    }
}
