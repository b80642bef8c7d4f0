//! What protects folders, and where their names lead, remembered as long as nobody commits.
//!
//! A walk looks up the folder of each name on its way, and asks it whether the caller may search
//! it. What it found is remembered with the id of a commit that looks saw before. *Invariant*:
//! while that commit is one as of which all groups are as they are by now
//! ([`Namespace::same_groups`]), what is remembered is so; with any other it is looked up again.
//! (The newest commit may be one that no look sees yet: what is found then is remembered with the
//! one before, which is used only if the newest is this process's and changed no group.) A
//! namespace of several realms has no one id, and the thread of a batch sees what nobody has
//! committed: both look each time.
//!
//! [`Namespace::same_groups`]: engram::Namespace::same_groups

use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, TryLockError};

use engram::Member;

use crate::caller::Protection;
use crate::errno::{Result, gone_is_stale, name_of, refuse};
use crate::expected::{List, list_of};
use crate::fs::{Fs, Ino, Node, ROOT};
use crate::stat::{NodeKind, Stat};

/// So many folders, and so many names, are remembered at most.
const PLACES: usize = 1 << 9;

/// A folder on the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownFolder {
    pub ino: Ino,
    /// The folder that it is in; of the root, itself.
    pub above: Ino,
    pub protection: Protection,
    /// The list of what is brought to it, if something is ([`crate::expected`]).
    pub expected: Option<List>,
}

/// The commits that matter to one walk.
pub(crate) struct Moment {
    /// One of those with which what is remembered has to be; `None`: nothing is.
    same: Option<RangeInclusive<u64>>,
    /// The one with which what is found is remembered, once something is.
    seen: Option<u64>,
}

impl Moment {
    /// Whether what was found as of a commit is so.
    fn has(&self, commit: u64) -> bool {
        self.same.as_ref().is_some_and(|same| same.contains(&commit))
    }
}

/// A name that led to a folder.
struct KnownName {
    commit: u64,
    parent: Ino,
    name: Box<[u8]>,
    folder: KnownFolder,
}

/// What was found last, each in one of many places.
pub(crate) struct Known {
    folders: Vec<Mutex<Option<(u64, KnownFolder)>>>,
    names: Vec<Mutex<Option<KnownName>>>,
}

impl Default for Known {
    fn default() -> Self {
        Known {
            folders: (0..PLACES).map(|_| Mutex::new(None)).collect(),
            names: (0..PLACES).map(|_| Mutex::new(None)).collect(),
        }
    }
}

impl Known {
    fn folder(&self, ino: Ino) -> &Mutex<Option<(u64, KnownFolder)>> {
        &self.folders[(ino ^ ino >> 20) as usize % PLACES]
    }

    fn name(&self, parent: Ino, name: &[u8]) -> &Mutex<Option<KnownName>> {
        // FNV-1a: names are short, and a place that two share costs a look.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = name.iter().fold(parent ^ 0xcbf2_9ce4_8422_2325, step);
        &self.names[(hash ^ hash >> 32) as usize % PLACES]
    }
}

impl Fs {
    /// The moment at which a walk begins.
    pub(crate) fn moment(&self) -> Result<Moment> {
        let same = if engram::in_batch() { None } else { self.namespace().same_groups()? };
        Ok(Moment { same, seen: None })
    }

    /// The commit with which is remembered what is looked up from now on, if anything is.
    pub(crate) fn seen_now(&self) -> Result<Option<u64>> {
        if engram::in_batch() { Ok(None) } else { Ok(self.namespace().last_commit()?) }
    }

    /// What was listed of a name in a folder, if that is so at this moment.
    pub(crate) fn known_entry(&self, folder: Ino, name: &[u8], moment: &Moment) -> Option<Stat> {
        let newest = *moment.same.as_ref()?.end();
        self.inner.listed.get(folder, newest, name_of(name).ok()?)
    }

    /// The same within a walk.
    fn seen(&self, moment: &mut Moment) -> Result<Option<u64>> {
        if moment.same.is_some() && moment.seen.is_none() {
            moment.seen = self.namespace().last_commit()?;
        }
        Ok(moment.seen)
    }

    /// A folder, as it was at this moment or is by now; `ENOTDIR` of what is none, `ESTALE` of what
    /// is gone.
    pub(crate) fn known_folder(&self, ino: Ino, moment: &mut Moment) -> Result<KnownFolder> {
        let place = self.inner.known.folder(ino);
        let known = lock(place).and_then(|known| *known);
        if let Some((commit, folder)) = known
            && moment.has(commit)
            && folder.ino == ino
        {
            return Ok(folder);
        }
        let gid = match self.node(ino)? {
            Node::Member(Member::Group(gid)) => gid,
            Node::Member(Member::Object(_)) => refuse!(ENOTDIR, "node {ino:#x} is no folder"),
            Node::Shown(_) => return self.known_shown(ino),
        };
        let seen = self.seen(moment)?;
        let folder = self.read_folder(ino, gid)?;
        if let (Some(seen), Some(mut known)) = (seen, lock(place)) {
            *known = Some((seen, folder));
        }
        Ok(folder)
    }

    /// The folder of a name, if it is remembered.
    pub(crate) fn known_name(
        &self,
        parent: Ino,
        name: &[u8],
        moment: &Moment,
    ) -> Option<KnownFolder> {
        let place = lock(self.inner.known.name(parent, name))?;
        let known = place.as_ref().filter(|known| {
            moment.has(known.commit) && known.parent == parent && *known.name == *name
        });
        known.map(|known| known.folder)
    }

    /// Has `look` find the folder of a name, and remembers it.
    pub(crate) fn find_folder(
        &self,
        parent: Ino,
        name: &[u8],
        moment: &mut Moment,
        look: impl FnOnce(&mut Moment) -> Result<Option<KnownFolder>>,
    ) -> Result<Option<KnownFolder>> {
        let seen = self.seen(moment)?;
        let found = look(moment)?;
        if let (Some(commit), Some(folder)) = (seen, found) {
            let known = KnownName { commit, parent, name: name.into(), folder };
            if let Some(mut place) = lock(self.inner.known.name(parent, name)) {
                *place = Some(known);
            }
        }
        Ok(found)
    }

    fn read_folder(&self, ino: Ino, gid: u64) -> Result<KnownFolder> {
        let info = self.namespace().group(gid).map_err(gone_is_stale)?;
        let (mode, gid) = self.inner.defaults.of_group(&info)?;
        let above = match info.parent {
            0 => ROOT,
            above => self.ino_of(Member::Group(above)),
        };
        let protection = Protection { kind: NodeKind::Folder, mode, uid: info.owner, gid };
        Ok(KnownFolder { ino, above, protection, expected: list_of(&info)? })
    }

    /// A folder that is only shown.
    fn known_shown(&self, ino: Ino) -> Result<KnownFolder> {
        let stat = self.stat_shown(ino)?;
        if stat.kind != NodeKind::Folder {
            refuse!(ENOTDIR, "node {ino:#x} is no folder");
        }
        let above = self.parent_of_shown(ino)?;
        Ok(KnownFolder { ino, above, protection: (&stat).into(), expected: None })
    }
}

/// A place, unless another thread is at it: what it has is not worth waiting for, and in a child
/// that was forked amid that it would be for ever.
pub(crate) fn lock<T>(place: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match place.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(locked)) => Some(locked.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
