//! Files that a stage is to bring, and that a program which opens one before waits for.
//!
//! A stage whose job begins early writes a list of the names that it will make, and notes the list
//! in each folder that it brings them to. A lookup that finds nothing in such a folder asks the
//! list; where the name is on it and still on its way, a front waits and looks again.
//!
//! *Format*: N hashes of a folder's number and a name, 8 bytes each, in ascending order, and then N
//! bytes: 0 while the name is on its way, 1 once it is there or cannot come. Two names of the same
//! hash are one entry, which is on its way until the first of them is there: of the second, an open
//! in between finds nothing.
//!
//! *Protocol*. The stage has its list locked while it works, and the kernel lets go of the lock
//! with the process. So a name is on its way only as long as somebody brings it. A folder that
//! still names the list of a stage which has died costs the lookups that find nothing there a look
//! at that list, and no more. Where two stages bring files to one folder, the one that came later
//! is waited for.

use std::num::NonZero;

use engram::{GroupInfo, LockMode, Member, Properties};

use crate::errno::{Result, gone_is_stale};
use crate::fs::{Fs, Ino, Node};
use crate::handle::{Handle, OpenFlags};
use crate::locks::{ByteRange, Locks, Taker};
use crate::properties::PosixProperties;
use crate::stat::NodeKind;

const ALL: ByteRange = ByteRange { from: 0, len: 0 };
const TAKER: Taker = Taker { owner: 1, description: 1 };
const HASH: u64 = 8;

/// The number of a list, as a folder has noted it.
pub(crate) type List = NonZero<Ino>;

/// What stands for a name in a folder: FNV-1a of both.
fn hash_of(folder: Ino, name: &[u8]) -> u64 {
    let folder = folder.to_le_bytes();
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    folder.iter().chain(name).fold(0xcbf2_9ce4_8422_2325, step)
}

/// The list of a stage that is at work.
pub struct Expected {
    list: Handle,
    hashes: Vec<u64>,
    _locks: Locks,
}

impl Expected {
    /// Writes the list of a stage into an empty file, and locks it.
    pub fn write<'n>(
        list: Handle,
        names: impl IntoIterator<Item = (Ino, &'n [u8])>,
    ) -> Result<Expected> {
        let mut hashes: Vec<u64> =
            names.into_iter().map(|(folder, name)| hash_of(folder, name)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let mut bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        bytes.resize(hashes.len() * (HASH as usize + 1), 0);
        let locks = Locks::default();
        // Nobody else knows the file.
        locks.try_lock(&list, TAKER, LockMode::Write, ALL)?;
        list.write(0, &bytes)?;
        Ok(Expected { list, hashes, _locks: locks })
    }

    /// The list's number, for [`Fs::expect_in`].
    pub fn ino(&self) -> Ino {
        self.list.ino()
    }

    /// A name is there, or will not come: nobody waits for it any more.
    pub fn arrived(&self, folder: Ino, name: &[u8]) -> Result<()> {
        if let Ok(place) = self.hashes.binary_search(&hash_of(folder, name)) {
            self.list.write(self.hashes.len() as u64 * HASH + place as u64, &[1])?;
        }
        Ok(())
    }
}

impl Fs {
    /// Notes the list of what is brought to a folder; `None`: nothing is, any more.
    pub fn expect_in(&self, folder: Ino, list: Option<Ino>) -> Result<()> {
        self.check_writable()?;
        let stat = self.stat(folder)?;
        let gid = self.real_folder(folder)?;
        let set = |_: u32, section: &[u8]| {
            let kept = Properties::parse(section)?;
            let posix = kept.and_then(|kept| PosixProperties::parse(kept.rest).ok());
            let (mode, gid) = posix.map_or((stat.mode, stat.gid), |was| (was.mode, was.gid));
            let rdev = list.unwrap_or(0);
            let (written, accessed) =
                kept.map_or((stat.written, stat.accessed), |kept| (kept.written, kept.accessed));
            Ok(PosixProperties { kind: NodeKind::Folder, mode, gid, rdev }
                .section(written, accessed))
        };
        self.namespace().set_properties(Member::Group(gid), None, &set).map_err(gone_is_stale)
    }

    /// Whether a name that is not in a folder is on its way there.
    pub fn is_expected(&self, folder: Ino, name: &[u8]) -> bool {
        // What cannot be told is not waited for: the lookup has its own answer.
        let noted = self.moment().and_then(|mut moment| self.known_folder(folder, &mut moment));
        noted.is_ok_and(|known| known.expected.is_some_and(|list| self.has(list, folder, name)))
    }

    /// Whether a list has a name, which is on its way.
    pub(crate) fn has(&self, list: List, folder: Ino, name: &[u8]) -> bool {
        self.look_up(list.get(), hash_of(folder, name)).unwrap_or(false)
    }

    fn look_up(&self, list: Ino, hash: u64) -> Result<bool> {
        if !matches!(self.node(list)?, Node::Member(Member::Object(_))) {
            return Ok(false);
        }
        let list = self.open(list, OpenFlags { read: true, ..OpenFlags::default() })?;
        let count = list.stat()?.size / (HASH + 1);
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from + (to - from) / 2;
            let mut found = [0; HASH as usize];
            list.read(middle * HASH, &mut found)?;
            match u64::from_le_bytes(found).cmp(&hash) {
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
                std::cmp::Ordering::Equal => {
                    let mut state = [1];
                    list.read(count * HASH + middle, &mut state)?;
                    return Ok(state == [0] && is_locked(&list)?);
                }
            }
        }
        Ok(false)
    }
}

/// The list that a folder has noted.
pub(crate) fn list_of(folder: &GroupInfo) -> Result<Option<List>> {
    let Some(kept) = Properties::parse(&folder.properties)? else { return Ok(None) };
    Ok(List::new(PosixProperties::parse(kept.rest)?.rdev))
}

/// Whether the stage of a list is at work.
fn is_locked(list: &Handle) -> Result<bool> {
    let other = Locks::default().in_the_way(list, TAKER.owner, LockMode::Read, ALL)?;
    Ok(other.is_some())
}
