//! The space of a realm, as this process knows it between commits.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64};

use engram_base::mutex::lock;
use engram_records::extent::{Extent, PAGE};
use engram_space::extent::Arena;
use engram_space::lease::Peers;

/// How many extents this process remembers as touched.
const WARM_MAX: usize = 32;

/// The arena, and what is remembered of its users.
pub struct SpaceState {
    /// The arena's addresses, and the spans that are mapped there.
    pub arena: Arena,
    /// The leases of other processes.
    pub peers: Mutex<Peers>,
    /// The pool's devices, as `pool.toml` last said.
    pub(crate) devices: Mutex<Vec<PathBuf>>,
    /// Where the next look for freed extents goes on.
    pub(crate) resume: Mutex<Option<[u8; 17]>>,
    /// Extents that this process's page table has, newest first.
    warm: Mutex<VecDeque<Extent>>,
    /// Whether the dead may have left something reserved when the realm was opened.
    pub(crate) dead_left: AtomicBool,
    /// Whether a commit of this process has freed something since anybody looked.
    pub(crate) freed: AtomicBool,
    /// When it is looked next whether a device is full, by the coarse clock.
    pub(crate) full_look_ns: AtomicI64,
}

impl SpaceState {
    /// Makes the state around an arena in which nothing is mapped yet.
    pub(crate) fn new(arena: Arena) -> Self {
        SpaceState {
            arena,
            peers: Mutex::default(),
            devices: Mutex::default(),
            resume: Mutex::default(),
            warm: Mutex::default(),
            dead_left: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            full_look_ns: AtomicI64::new(0),
        }
    }

    /// Remembers that this process's page table has this extent.
    pub(crate) fn touched(&self, extent: Extent) {
        if extent.len < 16 * PAGE {
            return;
        }
        let mut warm = lock(&self.warm);
        if let Some(place) = warm.iter().position(|known| known.offset == extent.offset) {
            warm.remove(place);
        }
        warm.push_front(extent);
        warm.truncate(WARM_MAX);
    }

    /// What was touched lately, newest first.
    pub(crate) fn warm(&self, len: u64) -> Vec<Extent> {
        if len < 16 * PAGE {
            return Vec::new();
        }
        lock(&self.warm).iter().copied().collect()
    }

    /// What a forked child begins with: other leases have others as peers.
    pub(crate) fn forget(&self) {
        *lock(&self.peers) = Peers::default();
    }
}
