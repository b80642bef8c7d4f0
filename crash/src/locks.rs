//! Locks of objects: no two have one for writing at once, and none outlives its holder.
//!
//! Who has a lock for writing leaves a number on the board, and finds it again as long as it has
//! the lock; who has it for reading finds no other than at first. So two that have one at once meet
//! a strange number, and nobody has to know who of them is dead.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use engram::{Kind, Lock, LockMode, Member, Namespace, Realm};

use crate::board::{Board, LOCKS};
use crate::data::Random;
use crate::machine::rest;
use crate::operation::index_mode;
use crate::pool::{array, over};

/// How long a living holder may take to let go.
const PATIENCE: Duration = Duration::from_secs(20);

fn path_of(place: usize) -> String {
    format!("common/lock/{place}")
}

/// Makes what is locked.
pub(crate) fn make(realm: &Realm) {
    for place in 0..LOCKS {
        let new = array(1, Vec::new());
        let placement = over(index_mode(0));
        let made = realm.put(realm.root(), &path_of(place), &new, &[0; 8], placement);
        made.expect("an object");
    }
}

fn member(namespace: &Namespace, place: usize) -> Member {
    let found = namespace.lookup(namespace.root(), &path_of(place)).expect("a look-up");
    found.expect("nobody deletes it")
}

fn take(namespace: &Namespace, place: usize, mode: LockMode, within: Duration) -> Option<Lock> {
    let mut pause = |time| {
        rest(time);
        Ok(())
    };
    match namespace.lock(member(namespace, place), mode, Some(within), &mut pause) {
        Ok(lock) => Some(lock),
        Err(error) if error.kind() == Kind::Busy => None,
        Err(error) => panic!("locking {}: {error}", path_of(place)),
    }
}

/// A lock that is held.
pub struct Locked {
    lock: Lock,
    place: usize,
    number: u64,
    /// The number of the operation before which it was taken.
    pub since: u64,
}

impl Locked {
    /// Takes a lock, if it is to be had within a moment.
    pub fn take(namespace: &Namespace, board: &Board, seed: u64, since: u64) -> Option<Self> {
        let mut random = Random(seed);
        let place = random.below(LOCKS as u64) as usize;
        let mode = if random.percent(60) { LockMode::Write } else { LockMode::Read };
        let lock = take(namespace, place, mode, Duration::from_micros(random.below(2000)))?;
        let number = match mode {
            LockMode::Read => board.locks[place].load(SeqCst),
            LockMode::Write => {
                let number = random.any();
                board.locks[place].store(number, SeqCst);
                number
            }
        };
        Some(Locked { lock, place, number, since })
    }

    /// Looks whether nobody else has written since.
    ///
    /// # Panics
    ///
    /// If somebody has, or the lock is gone.
    pub fn check(&self, board: &Board) {
        let (path, mode) = (path_of(self.place), self.lock.mode());
        assert!(self.lock.is_held(), "the lock of {path} is gone");
        let found = board.locks[self.place].load(SeqCst);
        assert_eq!(found, self.number, "another has {path} for writing, who has it for {mode:?}");
    }

    /// Looks a last time, and lets go.
    pub fn let_go(self, board: &Board) {
        self.check(board);
    }

    /// After its pool was closed, or in a forked child: it is held no more.
    ///
    /// # Panics
    ///
    /// If it is.
    pub fn is_over(self) {
        assert!(!self.lock.is_held(), "the lock of {} outlives its session", path_of(self.place));
    }
}

/// Takes every lock for writing: whoever lives lets go soon, and the dead hold none.
///
/// # Panics
///
/// If one is not to be had.
pub(crate) fn check_all(namespace: &Namespace) -> u64 {
    for place in 0..LOCKS {
        let lock = take(namespace, place, LockMode::Write, PATIENCE);
        assert!(lock.is_some(), "{} is locked, and nobody has it who lives", path_of(place));
    }
    LOCKS as u64
}
