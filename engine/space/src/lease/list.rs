//! The leases of a realm, as an allocator reads them: its side of P2.
//!
//! A list is read anew whenever the epoch has moved; why a lease that comes after that cannot
//! matter stands above `lease`. Where a lease is read, its age comes first, then its pins.

use super::words::{AtomicU64, Ordering, PINS_MAX, UsedObject, Words, fence, pinned};
use super::{IDLE, LeaseFile};
use crate::extent::Floor;
use engram_base::error::Result;

/// A lease of another process.
pub(crate) trait PeerLease {
    /// What it shows.
    fn words(&self) -> &Words;

    /// Whether its process lives.
    fn is_alive(&self) -> bool;
}

/// The other leases of a realm, and the epoch that was before they were listed.
pub(crate) struct LeaseList<P> {
    epoch: Option<u64>,
    pub leases: Vec<P>,
}

impl<P> Default for LeaseList<P> {
    fn default() -> Self {
        LeaseList { epoch: None, leases: Vec::new() }
    }
}

impl<P: PeerLease> LeaseList<P> {
    /// Lists the leases again if one has come since: `list` turns those that were known into those
    /// that there are.
    pub fn refresh(
        &mut self,
        epoch: u64,
        list: impl FnOnce(&mut Vec<P>) -> Result<Vec<P>>,
    ) -> Result<()> {
        if self.epoch != Some(epoch) {
            self.leases = list(&mut self.leases)?;
            self.epoch = Some(epoch);
        }
        Ok(())
    }

    /// Lists the leases again at the next `refresh`, whatever the epoch.
    pub fn forget(&mut self) {
        self.epoch = None;
    }

    /// What the live leases and this process's `own` ones still look at; the caller holds the
    /// writer lock.
    ///
    /// A fork moves pins: the child's lease is named and the epoch raised before the parent can
    /// drop a pin that both have. So if the epoch has moved while the leases were read, a pin may
    /// have been seen in neither, and they are read again.
    pub fn floor<'a>(
        &mut self,
        epoch: impl Fn() -> u64,
        list: impl Fn(&mut Vec<P>) -> Result<Vec<P>>,
        own: &(impl Iterator<Item = &'a LeaseFile> + Clone),
    ) -> Result<Floor> {
        loop {
            let before = epoch();
            self.refresh(before, &list)?;
            let floor = self.read(own.clone());
            if epoch() == before {
                return Ok(floor);
            }
        }
    }

    /// Reads every age, then every pin, of the live leases in the list and of `own`.
    fn read<'a>(&self, own: impl Iterator<Item = &'a LeaseFile>) -> Floor {
        fence(Ordering::SeqCst);
        let mut floor = Floor { age: IDLE, ..Floor::default() };
        for file in own {
            add(&mut floor, file.words());
        }
        for lease in &self.leases {
            if !is_quiet(lease.words()) && lease.is_alive() {
                add(&mut floor, lease.words());
            }
        }
        floor
    }

    /// Whether a live process, this one among them, has an object open; or may come to, where
    /// `looks` count: one that looks may have found it. The caller holds the writer lock.
    pub fn may_open<'a>(
        &mut self,
        epoch: impl Fn() -> u64,
        list: impl Fn(&mut Vec<P>) -> Result<Vec<P>>,
        own: &(impl Iterator<Item = &'a LeaseFile> + Clone),
        word: UsedObject,
        looks: bool,
    ) -> Result<bool> {
        loop {
            let before = epoch();
            self.refresh(before, &list)?;
            fence(Ordering::SeqCst);
            // The age first, as in a floor: a look that has ended has listed what it opened.
            // A list that is full keeps the age for what it has no room for.
            let looks = |words: &Words| looks || words.used() == PINS_MAX;
            let opens = |words: &Words| (words.age() != IDLE && looks(words)) || opens(words, word);
            let own_opens = own.clone().any(|file| opens(file.words()));
            let mut others = self.leases.iter().filter(|lease| opens(lease.words()));
            if own_opens || others.any(PeerLease::is_alive) {
                return Ok(true);
            }
            if epoch() == before {
                return Ok(false);
            }
        }
    }

    /// Whether another live process may be writing to the extent at `offset`. The caller holds the
    /// writer lock: a process that becomes a writer looks at the record under it, after pinning. A
    /// fork moves pins, as above.
    pub fn others_write(
        &mut self,
        epoch: impl Fn() -> u64,
        list: impl Fn(&mut Vec<P>) -> Result<Vec<P>>,
        offset: u64,
    ) -> Result<bool> {
        loop {
            let before = epoch();
            self.refresh(before, &list)?;
            let mut live = self.leases.iter().filter(|lease| lease.is_alive());
            if live.any(|lease| writes(lease.words(), offset)) {
                return Ok(true);
            }
            if epoch() == before {
                return Ok(false);
            }
        }
    }
}

/// Whether a lease looks at nothing and views nothing: then nobody asks whether its process lives.
fn is_quiet(words: &Words) -> bool {
    words.age() == IDLE && words.used() == 0
}

/// Reads one lease: the age (acquire), then the pins.
fn add(floor: &mut Floor, words: &Words) {
    floor.age = floor.age.min(words.age());
    words.pinned().for_each(|pin| floor.keep(pin));
}

/// Whether a lease pins this extent for writing, or may: one whose list is full keeps an age for
/// what found no slot.
fn writes(words: &Words, offset: u64) -> bool {
    let used = words.used();
    if used == PINS_MAX && words.age() != IDLE {
        return true;
    }
    words.pins()[..used]
        .iter()
        .any(|pin| pinned(pin.load(Ordering::Acquire)).is_some_and(|pin| pin.writes_at(offset)))
}

/// Whether a lease has an object open.
fn opens(words: &Words, word: UsedObject) -> bool {
    let opened = |pin: &AtomicU64| pin.load(Ordering::Acquire) == word.word();
    words.pins()[..words.used()].iter().any(opened)
}
