//! What a lease says of the snapshots that its process holds, and of what it has locked.
//!
//! A snapshot's age counts as a look-up's does, until it ends. Beside it stands from which page of
//! the catalog on writers are to ask for it (`realm::snapshot`). The list of locks is for messages
//! (`realm::locks`).

use super::words::{LockedWords, Ordering};
use super::{Lease, hold_age};

impl Lease {
    /// Within a look-up of this age: holds it for a snapshot, which writers ask for from this page
    /// of the catalog on.
    pub fn hold_snapshot(&self, age: u64, ask_at: u64) {
        self.change_snapshots(|held| {
            if held.is_empty() {
                self.file.head().asked.store(0, Ordering::Relaxed);
            }
            held.push((age, ask_at));
        });
    }

    /// Puts off from which page on a snapshot is asked for.
    pub fn ask_later(&self, age: u64, before: u64, ask_at: u64) {
        self.change_snapshots(|held| {
            if let Some(held) = held.iter_mut().find(|held| **held == (age, before)) {
                held.1 = ask_at;
            }
        });
    }

    /// Ends what `hold_snapshot` began.
    pub fn end_snapshot(&self, age: u64, ask_at: u64) {
        self.change_snapshots(|held| {
            let place = held.iter().position(|held| *held == (age, ask_at));
            if let Some(place) = place.or_else(|| held.iter().position(|held| held.0 == age)) {
                held.swap_remove(place);
            }
        });
    }

    /// Whether a writer has asked for the snapshots here, and how; it waits a moment for an answer.
    pub fn was_asked(&self) -> Option<u32> {
        Some(self.file.head().asked.load(Ordering::Acquire)).filter(|asked| *asked != 0)
    }

    /// Answers a process that has asked so; one that asks for more meanwhile is answered next.
    pub fn answer(&self, asked: u32) {
        let word = &self.file.head().asked;
        let _ = word.compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Lists a lock, for messages; more than the list has room for are not in it.
    pub fn list_lock(&self, id: u64, mode: u64) {
        let _local = self.lock();
        let mut locks = self.file.head().locks.iter();
        if let Some(free) = locks.find(|lock| lock.mode.load(Ordering::Relaxed) == 0) {
            free.id.store(id, Ordering::Relaxed);
            free.mode.store(mode, Ordering::Release);
        }
    }

    /// Takes a lock from the list.
    pub fn unlist_lock(&self, id: u64, mode: u64) {
        let _local = self.lock();
        let mut locks = self.file.head().locks.iter();
        let is_it = |lock: &&LockedWords| {
            lock.id.load(Ordering::Relaxed) == id && lock.mode.load(Ordering::Relaxed) == mode
        };
        if let Some(listed) = locks.find(is_it) {
            listed.mode.store(0, Ordering::Release);
        }
    }

    /// Begins a look-up of an age that is held already.
    pub fn look_again(&self, age: u64) {
        self.change(|local| hold_age(local, age));
    }

    fn change_snapshots(&self, edit: impl FnOnce(&mut Vec<(u64, u64)>)) {
        self.change(|local| {
            edit(&mut local.snapshots);
            let ask_at = local.snapshots.iter().map(|(_, ask_at)| *ask_at).min();
            self.file.head().ask_at.store(ask_at.unwrap_or(u64::MAX), Ordering::Release);
        });
    }
}
