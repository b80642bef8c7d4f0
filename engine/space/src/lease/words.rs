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
//! | 4096 | 8 x 8192 | pins, or zero |
//!
//! A pin of an extent is odd, and has bit 1 if the owner may write there. A pin of whole pages has
//! bit 2, too, and says which these are: the bits from 29 on are the page that they begin with, and
//! the 25 from bit 4 on their number, or with bit 3 that of units of 512 pages, rounded up. Such a
//! pin keeps any part of them. Nobody cuts another extent: its pin is its offset, plus these bits.
//! A pin of an object is its id times four, and two more where it is viewed.
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
use engram_records::extent::{Extent, HUGE, PAGE};

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
/// What an extent's pin has, and an object's has not.
const OF_EXTENT: u64 = 1;
/// What is added to a pin whose owner may write to the extent.
const WRITING: u64 = 1 << 1;
/// What is added to a pin that says how many pages it keeps. Offsets are multiples of 64.
const OF_PAGES: u64 = 1 << 2;
/// What is added where these are counted in units of [`HUGE`].
const IN_HUGE: u64 = 1 << 3;
const COUNT_AT: u32 = 4;
const FIRST_AT: u32 = 29;
const COUNT_MAX: u64 = (1 << (FIRST_AT - COUNT_AT)) - 1;
/// No process maps an arena as long as this.
const FIRST_MAX: u64 = (1 << (u64::BITS - FIRST_AT)) - 1;

/// A pin, as it stands in a slot.
pub(crate) fn pin_word(extent: Extent, writing: bool) -> u64 {
    let writing = if writing { WRITING } else { 0 };
    OF_EXTENT | writing | pages_word(extent).unwrap_or(extent.offset)
}

/// What a pin says of an extent of whole pages.
fn pages_word(extent: Extent) -> Option<u64> {
    let first = extent.offset / PAGE;
    if !(extent.offset | extent.len).is_multiple_of(PAGE) || first > FIRST_MAX {
        return None;
    }
    let (count, unit) = match extent.len / PAGE {
        count if count <= COUNT_MAX => (count, 0),
        _ => (extent.len.div_ceil(HUGE).min(COUNT_MAX), IN_HUGE),
    };
    Some(first << FIRST_AT | count << COUNT_AT | unit | OF_PAGES)
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
    /// The extent at this offset, which nobody cuts, and which the owner may write to or not.
    Extent { offset: u64, writing: bool },
    /// These pages, and each part of them.
    Pages { pages: Extent, writing: bool },
    /// An object, with all its extents.
    Object(UsedObject),
}

impl Pin {
    /// Whether the owner may write to the extent that begins at this offset.
    pub fn writes_at(self, at: u64) -> bool {
        match self {
            Pin::Extent { offset, writing } => writing && offset == at,
            Pin::Pages { pages, writing } => writing && pages.offset == at,
            Pin::Object(_) => false,
        }
    }
}

/// What a slot keeps; `None` for a free one.
pub(crate) fn pinned(word: u64) -> Option<Pin> {
    let has = |bit: u64| word & bit != 0;
    if word == 0 {
        return None;
    }
    if !has(OF_EXTENT) {
        return Some(Pin::Object(UsedObject(word)));
    }
    let writing = has(WRITING);
    if !has(OF_PAGES) {
        return Some(Pin::Extent { offset: word & !(OF_EXTENT | WRITING), writing });
    }
    let unit = if has(IN_HUGE) { HUGE } else { PAGE };
    let offset = (word >> FIRST_AT) * PAGE;
    let pages = Extent { offset, len: (word >> COUNT_AT & COUNT_MAX) * unit };
    Some(Pin::Pages { pages, writing })
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
    /// the owner write while the owner lives.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Extent, HUGE, PAGE, Pin, pin_word, pinned};

    proptest! {
        /// A slot says what it keeps: pages as they are, or rounded up where there are very many.
        #[test]
        fn a_pin_is_read_as_it_was_written(
            first in prop_oneof![0..1u64 << 10, 0..1u64 << 35],
            count in prop_oneof![1..1u64 << 10, 1..1u64 << 33],
            writing: bool,
        ) {
            let extent = Extent { offset: first * PAGE, len: count * PAGE };
            let Some(Pin::Pages { pages, writing: said }) = pinned(pin_word(extent, writing)) else {
                panic!("{extent:?}")
            };
            prop_assert_eq!((pages.offset, said), (extent.offset, writing));
            prop_assert!(pages.len >= extent.len && pages.len - extent.len < HUGE);
            prop_assert!(pages.len == extent.len || count >= 1 << 25);
            let line = Extent { offset: extent.offset + 64, len: extent.len };
            let pin = Pin::Extent { offset: line.offset, writing };
            prop_assert_eq!(pinned(pin_word(line, writing)), Some(pin));
        }
    }
}
