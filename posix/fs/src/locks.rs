//! Locks of ranges that programs take: `fcntl`'s and `flock`'s, between processes and fronts.
//!
//! A front knows whose a lock is by a number, the *owner*: a process, or for `flock` and for locks
//! of open file descriptions the description. Each owner's locks of a file are one taker's of the
//! engine ([`engram::RangeLocks`]). So owners exclude each other wherever they are: in this front,
//! in another one, in Python. `flock` locks all of a file, as on NFS: it meets `fcntl`'s locks.
//!
//! An owner may be several processes' at once: a description that they share. Then its taker is
//! *shared*: each has a copy of the descriptor ([`Locks::share`], [`Locks::adopt`]), and the kernel
//! drops the locks with the last one. A shared taker stays when it has nothing locked any more:
//! another process may lock by its copy.

use std::collections::HashMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engram::{File, LockMode, LockedRange, RangeLocks};

use crate::errno::{Errno, Result, refuse};
use crate::fs::Ino;
use crate::handle::Handle;

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Where it begins.
    pub from: u64,
    /// How many bytes it has; 0: all from there on.
    pub len: u64,
}

impl ByteRange {
    /// From the first to the last byte, both of it; the last that an offset can name stands for
    /// all.
    pub fn of(first: u64, last: u64) -> ByteRange {
        let all = last >= i64::MAX as u64;
        ByteRange { from: first, len: if all { 0 } else { last.saturating_sub(first) + 1 } }
    }

    /// The first and the last byte.
    pub fn ends(self) -> (u64, u64) {
        let last = if self.len == 0 { i64::MAX as u64 } else { self.from + self.len - 1 };
        (self.from, last)
    }
}

/// All of a file.
const ALL: ByteRange = ByteRange { from: 0, len: 0 };

/// Who asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    /// The front's number of the owner.
    pub owner: u64,
    /// The front's number of the description that it came through. With its last descriptor, what
    /// came through it goes.
    pub description: u64,
}

struct Held {
    ranges: Arc<RangeLocks>,
    description: u64,
    /// Whether other processes have the taker's descriptor, too.
    is_shared: bool,
    /// A stand-in of this process's own goes with the file.
    _file: File,
}

/// The locks that a front's programs have.
pub struct Locks {
    held: Mutex<HashMap<(Ino, u64), Held>>,
    /// So many takers there are at most: each has a descriptor of this process's.
    most: usize,
}

/// How many descriptors a process may have; half of them are left to all else.
fn descriptors() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A taker of a file's ranges, who has none.
fn ranges_of(file: &File) -> Result<RangeLocks> {
    file.range_locks().map_err(|error| Errno::new(libc::ENOLCK, error.message()))
}

/// The locks of a process that forks, until this is dropped on both sides.
pub struct Forking<'l>(MutexGuard<'l, HashMap<(Ino, u64), Held>>);

impl Forking<'_> {
    /// What an owner has of a file, which other processes have, too, from now on: its descriptor.
    pub fn share(&mut self, ino: Ino, owner: u64) -> Option<RawFd> {
        self.0.get_mut(&(ino, owner)).map(Held::share)
    }

    /// In the child, which has its parent's locks but for those that are of these owners.
    pub fn drop_of(mut self, is_parents: impl Fn(u64) -> bool) {
        self.0.retain(|(_, owner), _| !is_parents(*owner));
    }
}

impl Held {
    fn seen(&self) -> (Arc<RangeLocks>, bool) {
        (Arc::clone(&self.ranges), self.is_shared)
    }

    fn share(&mut self) -> RawFd {
        self.is_shared = true;
        self.ranges.descriptor()
    }
}

impl Default for Locks {
    fn default() -> Self {
        Locks { held: Mutex::default(), most: descriptors().unwrap_or(1024) / 2 }
    }
}

impl Locks {
    fn held(&self) -> MutexGuard<'_, HashMap<(Ino, u64), Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's locks of a file.
    fn of(&self, handle: &Handle, taker: Taker) -> Result<Option<Arc<RangeLocks>>> {
        let Some(file) = handle.file() else { return Ok(None) };
        let key = (handle.ino(), taker.owner);
        if let Some(known) = self.held().get_mut(&key) {
            known.description = taker.description;
            return Ok(Some(Arc::clone(&known.ranges)));
        }
        // That may take a while: others go on.
        let opened = Arc::new(ranges_of(file)?);
        let mut held = self.held();
        self.check_room(&held)?;
        let new = Held {
            ranges: opened,
            description: taker.description,
            is_shared: false,
            _file: file.clone(),
        };
        let known = held.entry(key).or_insert(new);
        known.description = taker.description;
        Ok(Some(Arc::clone(&known.ranges)))
    }

    fn check_room(&self, held: &HashMap<(Ino, u64), Held>) -> Result<()> {
        if held.len() >= self.most {
            refuse!(ENOLCK, "{} locks are held, and there is no room for more", held.len());
        }
        Ok(())
    }

    /// Whether other processes have what the owner has of a file.
    pub fn is_shared(&self, ino: Ino, owner: u64) -> bool {
        self.held().get(&(ino, owner)).is_some_and(|held| held.is_shared)
    }

    /// What the owner has of a file, or will have, is other processes', too, from now on: `hand` is
    /// given the descriptor for them. Where it fails, all is as before.
    pub fn share(
        &self,
        handle: &Handle,
        taker: Taker,
        hand: impl FnOnce(RawFd) -> Result<()>,
    ) -> Result<()> {
        let key = (handle.ino(), taker.owner);
        loop {
            let Some(ranges) = self.of(handle, taker)? else { return Ok(()) };
            let shared = self.held().get_mut(&key).map(Held::share);
            // Another thread of the owner may have let go of all that it had just before.
            if shared != Some(ranges.descriptor()) {
                continue;
            }
            return hand(ranges.descriptor()).inspect_err(|_| {
                if let Some(known) = self.held().get_mut(&key) {
                    known.is_shared = false;
                }
            });
        }
    }

    /// The owner has of a file what another process has handed over: the descriptor.
    pub fn adopt(
        &self,
        handle: &Handle,
        taker: Taker,
        descriptor: OwnedFd,
        is_shared: bool,
    ) -> Result<()> {
        let Some(file) = handle.file() else { return Ok(()) };
        let ranges = Arc::new(file.range_locks_handed(descriptor)?);
        let description = taker.description;
        let new = Held { ranges, description, is_shared, _file: file.clone() };
        let mut held = self.held();
        self.check_room(&held)?;
        let before = held.insert((handle.ino(), taker.owner), new);
        drop(held);
        drop(before);
        Ok(())
    }

    /// The files of which an owner has locks, each with its descriptor.
    pub fn descriptors(&self, owner: u64) -> Vec<(Ino, RawFd)> {
        let held = self.held();
        let own = held.iter().filter(|((_, whose), _)| *whose == owner);
        own.map(|((ino, _), held)| (*ino, held.ranges.descriptor())).collect()
    }

    /// Locks a range; `false` if another owner has some of it. What is only shown is nobody's to
    /// change, and a lock of it keeps nobody out.
    pub fn try_lock(
        &self,
        handle: &Handle,
        taker: Taker,
        mode: LockMode,
        range: ByteRange,
    ) -> Result<bool> {
        loop {
            let Some(ranges) = self.of(handle, taker)? else { return Ok(true) };
            if !ranges.try_lock(mode, range.from, range.len)? {
                return Ok(false);
            }
            // Another thread of the owner may have let go of all that it had just before.
            let held = self.held();
            let known = held.get(&(handle.ino(), taker.owner));
            if known.is_some_and(|known| Arc::ptr_eq(&known.ranges, &ranges)) {
                return Ok(true);
            }
        }
    }

    /// Lets go of a range.
    pub fn unlock(&self, handle: &Handle, owner: u64, range: ByteRange) -> Result<()> {
        let known = self.held().get(&(handle.ino(), owner)).map(Held::seen);
        let Some((ranges, is_shared)) = known else { return Ok(()) };
        ranges.unlock(range.from, range.len)?;
        if range == ALL && !is_shared {
            self.closed(handle.ino(), owner);
        }
        Ok(())
    }

    /// What another owner has that is in the way of a lock.
    pub fn in_the_way(
        &self,
        handle: &Handle,
        owner: u64,
        mode: LockMode,
        range: ByteRange,
    ) -> Result<Option<LockedRange>> {
        let Some(file) = handle.file() else { return Ok(None) };
        let known = self.held().get(&(handle.ino(), owner)).map(|held| Arc::clone(&held.ranges));
        let ranges = match known {
            Some(ranges) => ranges,
            None => Arc::new(ranges_of(file)?),
        };
        Ok(ranges.in_the_way(mode, range.from, range.len)?)
    }

    /// An owner has closed a descriptor of a file: its locks go, as POSIX says.
    pub fn closed(&self, ino: Ino, owner: u64) {
        let gone = self.held().remove(&(ino, owner));
        drop(gone);
    }

    /// The last descriptor of a description has been closed.
    pub fn released(&self, ino: Ino, description: u64) {
        drop(self.taken_out(ino, description));
    }

    /// The same, but a process that was forked has the description, too, and its locks with it.
    pub fn left(&self, ino: Ino, description: u64) {
        self.taken_out(ino, description).iter().for_each(|held| held.ranges.leave());
    }

    fn taken_out(&self, ino: Ino, description: u64) -> Vec<Held> {
        let mut gone = Vec::new();
        {
            let mut held = self.held();
            if held.is_empty() {
                return gone;
            }
            let through =
                |key: &(Ino, u64), held: &Held| key.0 == ino && held.description == description;
            let keys: Vec<_> = held.iter().filter(|(key, held)| through(key, held)).collect();
            let keys: Vec<(Ino, u64)> = keys.into_iter().map(|(key, _)| *key).collect();
            gone.extend(keys.into_iter().filter_map(|key| held.remove(&key)));
        }
        gone
    }

    /// Before a fork: no other thread is amid a change of them, which the child would wait for.
    pub fn before_fork(&self) -> Forking<'_> {
        Forking(self.held())
    }
}

#[cfg(test)]
mod tests {
    use super::ByteRange;

    #[test]
    fn ranges_have_both_ends_or_none() {
        for (first, last, len) in [(0, 0, 1), (5, 9, 5), (7, i64::MAX as u64, 0)] {
            let range = ByteRange::of(first, last);
            assert_eq!((range.from, range.len), (first, len));
            assert_eq!(range.ends(), (first, last));
        }
        assert_eq!(ByteRange::of(3, u64::MAX).ends(), (3, i64::MAX as u64));
    }
}
