//! The other leases of a realm, from its folder.
//!
//! Files are kept open and mapped, so that reading ages and pins (`list`) costs a few loads, and
//! asking whether an owner lives costs one system call.

use std::path::{Path, PathBuf};

use crate::extent::Floor;
use crate::lease::list::{LeaseList, PeerLease};
use crate::lease::words::{ASKED, ObjectUse, Ordering, UsedObject, Words};
use crate::lease::{CALLED_IN, IDLE, LeaseFile, LeaseStatus, Owner};
use engram_base::error::{Error, Kind, Result};
use engram_base::id::Oid;

struct Peer {
    id: u64,
    path: PathBuf,
    file: LeaseFile,
}

/// The leases in the folder, without this process's own.
#[derive(Default)]
pub struct Peers {
    list: LeaseList<Peer>,
}

impl PeerLease for Peer {
    fn words(&self) -> &Words {
        self.file.words()
    }

    fn is_alive(&self) -> bool {
        self.file.is_alive()
    }
}

/// A dead process's lease, locked by us: ours to take back and to unlink.
pub struct Dead {
    /// The id that its reservations carry.
    pub id: u64,
    path: PathBuf,
    _lock: LeaseFile,
}

impl Dead {
    /// Removes the file; the reservations are taken back already.
    pub fn reap(self) {
        super::give_up(&self.path);
    }
}

impl Peers {
    /// Reads the folder again if a lease has come since.
    pub fn refresh(&mut self, dir: &Path, epoch: u64, own: u64) -> Result<()> {
        self.list.refresh(epoch, |known| listed(dir, own, known))
    }

    /// What the live leases and this process's `own` ones still look at (the allocator's side of
    /// P2; the caller holds the writer lock).
    pub fn floor<'a>(
        &mut self,
        dir: &Path,
        epoch: impl Fn() -> u64,
        own_id: u64,
        own: &(impl Iterator<Item = &'a LeaseFile> + Clone),
    ) -> Result<Floor> {
        self.list.floor(epoch, |known| listed(dir, own_id, known), own)
    }

    /// Whether a live process has an object open; or may come to, where `looks` count: one that
    /// looks may have found it. The caller holds the writer lock.
    pub fn may_open<'a>(
        &mut self,
        dir: &Path,
        epoch: impl Fn() -> u64,
        own_id: u64,
        own: &(impl Iterator<Item = &'a LeaseFile> + Clone),
        oid: Oid,
        looks: bool,
    ) -> Result<bool> {
        let list = |known: &mut Vec<Peer>| listed(dir, own_id, known);
        self.list.may_open(epoch, list, own, UsedObject::of(oid, ObjectUse::Open), looks)
    }

    /// Whether another live process may be writing to the extent at `offset`. The caller holds the
    /// writer lock.
    pub fn others_write(
        &mut self,
        dir: &Path,
        epoch: impl Fn() -> u64,
        own: u64,
        offset: u64,
    ) -> Result<bool> {
        self.list.others_write(epoch, |known| listed(dir, own, known), offset)
    }

    /// The leases whose process is gone, each locked now by us.
    pub fn dead(&mut self) -> Vec<Dead> {
        let mut dead = Vec::new();
        for place in (0..self.list.leases.len()).rev() {
            let peer = &self.list.leases[place];
            if !peer.file.is_locked_elsewhere() && peer.file.try_lock().unwrap_or(false) {
                let peer = self.list.leases.swap_remove(place);
                // It may take a while to reap it, and nobody is to take that for life.
                peer.file.head().dead.store(1, Ordering::Release);
                // Somebody may have reaped it before, and another taken the file for its own.
                if peer.file.is_at(&peer.path) {
                    dead.push(Dead { id: peer.id, path: peer.path, _lock: peer.file });
                }
            }
        }
        dead
    }

    /// Every known lease, the dead ones' too.
    pub fn all(&self) -> impl Iterator<Item = (LeaseStatus, &LeaseFile)> {
        let seen = |peer: &Peer| LeaseStatus::of(peer.id, &peer.file, peer.file.is_alive());
        self.list.leases.iter().map(move |peer| (seen(peer), &peer.file))
    }

    /// How many leases there are, the dead ones' too.
    pub fn count(&self) -> usize {
        self.list.leases.len()
    }

    /// Whether a lease was in the folder, whole, when it was last read.
    pub fn knows(&self, id: u64) -> bool {
        self.list.leases.iter().any(|peer| peer.id == id)
    }

    /// Asks every holder of a snapshot that is to be asked for at this last page of the catalog;
    /// the number of those that had not been asked.
    pub fn ask(&self, last_page: u64) -> usize {
        let due = |peer: &&Peer| peer.file.head().ask_at.load(Ordering::Acquire) <= last_page;
        self.ask_those(due, ASKED)
    }

    /// Asks for every snapshot that keeps pages of the catalog; the number of processes that had
    /// not been asked for that.
    pub fn call_in(&self) -> usize {
        let due = |peer: &&Peer| peer.file.head().ask_at.load(Ordering::Acquire) != u64::MAX;
        self.ask_those(due, CALLED_IN)
    }

    fn ask_those(&self, due: impl FnMut(&&Peer) -> bool, word: u32) -> usize {
        let asked = |peer: &&Peer| peer.file.head().asked.fetch_max(word, Ordering::AcqRel) < word;
        self.list
            .leases
            .iter()
            .filter(due)
            .filter(|peer| peer.file.is_alive())
            .filter(asked)
            .count()
    }

    /// Whether anybody who was asked has not answered.
    pub fn are_asked(&self) -> bool {
        let unanswered = |peer: &Peer| peer.file.head().asked.load(Ordering::Acquire) != 0;
        self.list.leases.iter().any(|peer| unanswered(peer) && peer.file.is_alive())
    }

    /// The oldest snapshot that another process looks at, and its pid: of look-ups and of
    /// snapshots that are held.
    pub fn oldest(&self) -> Option<(u64, u32)> {
        let aged = self.list.leases.iter().filter_map(|peer| {
            let age = peer.file.head().age.load(Ordering::Acquire);
            let live = age != IDLE && age != super::PIN && peer.file.is_alive();
            live.then(|| (age, Owner::of(&peer.file).pid))
        });
        aged.min()
    }

    /// The pids of other processes that list a lock of this id, in this mode at least.
    pub fn lockers(&self, id: u64, least: u64) -> Vec<u32> {
        let lists = |peer: &&Peer| {
            peer.file.head().locks.iter().any(|lock| {
                lock.mode.load(Ordering::Acquire) >= least && lock.id.load(Ordering::Relaxed) == id
            })
        };
        let live = self.list.leases.iter().filter(lists).filter(|peer| peer.file.is_alive());
        live.map(|peer| Owner::of(&peer.file).pid).collect()
    }

    /// Reads the folder again at the next `refresh`, whatever the epoch.
    pub fn forget(&mut self) {
        self.list.forget();
    }

    /// The live leases' ids and owners.
    pub fn alive(&self) -> Vec<(u64, Owner)> {
        let live = self.list.leases.iter().filter(|peer| peer.file.is_alive());
        live.map(|peer| (peer.id, Owner::of(&peer.file))).collect()
    }
}

/// The leases in the folder but the one of this id; those that are known stay open.
fn listed(dir: &Path, own: u64, known: &mut Vec<Peer>) -> Result<Vec<Peer>> {
    let entries = std::fs::read_dir(dir)
        .map_err(|e| Error::os(format!("listing the leases in {}", dir.display()), &e))?;
    let mut list = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::os("listing the leases", &e))?;
        let path = entry.path();
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|n| u64::from_str_radix(n, 16).ok()) else {
            sweep(&path);
            continue;
        };
        if id == own {
            continue;
        }
        if let Some(place) = known.iter().position(|peer| peer.id == id) {
            list.push(known.swap_remove(place));
            continue;
        }
        match LeaseFile::open(&path) {
            Ok(file) => list.push(Peer { id, path, file }),
            Err(error) if error.kind() == Kind::NotFound => {}
            // Never one, since a lease is whole before it gets its name; or what a loss of
            // power has left of one.
            Err(error) if error.kind() == Kind::Corrupt => LeaseFile::remove_unnamed(&path),
            // A lease that cannot be read may pin anything: nothing may be taken.
            Err(error) => return Err(error),
        }
    }
    Ok(list)
}

/// Removes a file that a process made for a lease and did not live to name.
fn sweep(path: &Path) {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    if name.starts_with("new-") || name.starts_with("spare-") {
        LeaseFile::remove_unnamed(path);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Peers;
    use engram_records::extent::Extent;

    use crate::lease::{Hold, Lease, LeaseFile, Spare};

    #[test]
    fn a_process_that_is_being_reaped_is_dead() {
        let dir = tempfile::tempdir().unwrap();
        // It goes without giving its lease up, like a process that was killed.
        drop(Lease::create(dir.path(), 0o600).unwrap());
        let [mut one, mut other] = [Peers::default(), Peers::default()];
        for peers in [&mut one, &mut other] {
            peers.refresh(dir.path(), 1, 0).unwrap();
        }
        let reaping = one.dead();
        assert_eq!((reaping.len(), other.alive().len()), (1, 0));
        assert!(other.dead().is_empty(), "it is reaped once");
    }

    #[test]
    fn a_pin_that_a_fork_moves_while_leases_are_read_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let parent = Lease::create(dir.path(), 0o600).unwrap();
        let page = Extent { offset: 4096, len: 4096 };
        assert_eq!(parent.pin(page, 7), Hold::Pinned);
        let (epoch, child) = (Cell::new(1), Cell::new(None));
        // The parent forks and drops its pin after the folder was listed, before it is read.
        let meanwhile = |_| -> Option<&LeaseFile> {
            if epoch.replace(2) == 1 {
                let spare = Spare::create(dir.path(), 0o600).unwrap();
                child.set(Some(parent.fork(spare, dir.path()).unwrap()));
                parent.unpin(page, Hold::Pinned);
            }
            None
        };
        let own = (0..1).filter_map(meanwhile);
        let mut peers = Peers::default();
        let floor = peers.floor(dir.path(), || epoch.get(), 0, &own).unwrap();
        assert_eq!(floor.pages.outside(page), []);
    }
}
