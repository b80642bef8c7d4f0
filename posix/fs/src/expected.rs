//! Files that a stage is to bring, and that a program which opens one before waits for.
//!
//! A stage whose job begins early writes a list of the names that it will make, and notes the list
//! in each folder that it brings them to. A lookup that finds nothing in such a folder asks the
//! list; where the name is on it and still on its way, a front waits and looks again.
//!
//! *Format*: how many other lists its folders had noted before, and their numbers; how many names;
//! as many hashes of a folder's number and a name, in ascending order. All of these are numbers of
//! 8 bytes, little-endian. Then a byte for each hash: 0 while the name is on its way, 1 once it is
//! there or cannot come. Two names of the same hash are one entry, on its way until the first of
//! them is there.
//!
//! *Protocol*. The stage has its list locked while it works, and the kernel lets go of the lock
//! with the process. So a name is on its way only as long as somebody brings it. A folder notes the
//! newest list, which leads to those of the stages that were at work there before. At its end a
//! stage has its folders note what they noted before, where they still note its own.
//!
//! A name is on its way also if the folder has an older file of that name, until the stage has been
//! at it. A folder that still notes the list of a stage which has died costs a look at that list.

use std::cmp::Ordering;
use std::collections::BTreeSet;
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
const NUMBER: u64 = 8;
/// So many lists are asked for a name at most.
const LISTS_MOST: usize = 256;

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
    /// Where the states begin.
    states: u64,
    hashes: Vec<u64>,
    _locks: Locks,
}

impl Expected {
    /// Writes the list of a stage into an empty file, and locks it. `others` are lists that its
    /// folders note already.
    pub fn write<'n>(
        list: Handle,
        others: &BTreeSet<Ino>,
        names: impl IntoIterator<Item = (Ino, &'n [u8])>,
    ) -> Result<Expected> {
        let mut hashes: Vec<u64> =
            names.into_iter().map(|(folder, name)| hash_of(folder, name)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let counts = [others.len() as u64, hashes.len() as u64];
        let numbers = counts[..1].iter().chain(others).chain(&counts[1..]).chain(&hashes).copied();
        let mut bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        let states = bytes.len() as u64;
        bytes.resize(bytes.len() + hashes.len(), 0);
        let locks = Locks::default();
        // Nobody else knows the file.
        locks.try_lock(&list, TAKER, LockMode::Write, ALL)?;
        list.write(0, &bytes)?;
        Ok(Expected { list, states, hashes, _locks: locks })
    }

    /// The list's number, for [`Fs::expect_in`].
    pub fn ino(&self) -> Ino {
        self.list.ino()
    }

    /// A name is there, or will not come: nobody waits for it any more.
    pub fn arrived(&self, folder: Ino, name: &[u8]) -> Result<()> {
        if let Ok(place) = self.hashes.binary_search(&hash_of(folder, name)) {
            self.list.write(self.states + place as u64, &[1])?;
        }
        Ok(())
    }
}

/// A list that is read.
struct Listed {
    list: Handle,
    others: Vec<Ino>,
    /// Where the hashes begin, and how many there are.
    hashes: (u64, u64),
}

impl Listed {
    fn number(list: &Handle, at: u64) -> Result<u64> {
        let mut bytes = [0; NUMBER as usize];
        list.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// A list; `None`: it is none any more, or not yet.
    fn open(fs: &Fs, list: Ino) -> Result<Option<Listed>> {
        if !matches!(fs.node(list)?, Node::Member(Member::Object(_))) {
            return Ok(None);
        }
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let list = match fs.open(list, flags) {
            Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code) => return Ok(None),
            list => list?,
        };
        let count = Self::number(&list, 0)?;
        let at = |place: u64| (1 + place) * NUMBER;
        let read = count.min(LISTS_MOST as u64);
        let numbers = (0..read).map(|place| Self::number(&list, at(place)));
        let others: Vec<Ino> = numbers.collect::<Result<_>>()?;
        let counted = at(count);
        let hashes = (counted + NUMBER, Self::number(&list, counted)?);
        Ok(Some(Listed { list, others, hashes }))
    }

    /// Whether a name is on it, on its way.
    fn has(&self, hash: u64) -> Result<bool> {
        let (begin, count) = self.hashes;
        let (mut from, mut to) = (0, count);
        while from < to {
            let middle = from + (to - from) / 2;
            match Self::number(&self.list, begin + middle * NUMBER)?.cmp(&hash) {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => {
                    let mut state = [1];
                    self.list.read(begin + count * NUMBER + middle, &mut state)?;
                    return Ok(state == [0] && is_locked(&self.list)?);
                }
            }
        }
        Ok(false)
    }
}

impl Fs {
    /// The list that a folder notes, if it does.
    pub fn expected_in(&self, folder: Ino) -> Result<Option<Ino>> {
        let group = self.namespace().group(self.real_folder(folder)?).map_err(gone_is_stale)?;
        Ok(list_of(&group)?.map(List::get))
    }

    /// Has a folder note another list, `None` being no list, if it notes `was`.
    pub fn expect_in(&self, folder: Ino, was: Option<Ino>, list: Option<Ino>) -> Result<()> {
        self.check_writable()?;
        let stat = self.stat(folder)?;
        let gid = self.real_folder(folder)?;
        let set = |_: u32, section: &[u8]| {
            let kept = Properties::parse(section)?;
            let posix = kept.and_then(|kept| PosixProperties::parse(kept.rest).ok());
            let posix = posix.unwrap_or(PosixProperties {
                kind: NodeKind::Folder,
                mode: stat.mode,
                gid: stat.gid,
                rdev: 0,
            });
            let noted = was.unwrap_or(0);
            let rdev = if posix.rdev == noted { list.unwrap_or(0) } else { posix.rdev };
            let (written, accessed) =
                kept.map_or((stat.written, stat.accessed), |kept| (kept.written, kept.accessed));
            Ok(PosixProperties { rdev, ..posix }.section(written, accessed))
        };
        self.namespace().set_properties(Member::Group(gid), None, &set).map_err(gone_is_stale)
    }

    /// Whether a name is on its way to a folder.
    pub fn is_expected(&self, folder: Ino, name: &[u8]) -> bool {
        // What cannot be told is not waited for: the lookup has its own answer.
        let noted = self.moment().and_then(|mut moment| self.known_folder(folder, &mut moment));
        noted.is_ok_and(|known| known.expected.is_some_and(|list| self.has(list, folder, name)))
    }

    /// Whether a list, or one that it leads to, has a name that is on its way.
    pub(crate) fn has(&self, list: List, folder: Ino, name: &[u8]) -> bool {
        let hash = hash_of(folder, name);
        self.any_list(list.get(), |listed| listed.has(hash))
    }

    /// Whether a stage is at work of which a list is, or one that it leads to.
    pub fn is_anything_expected(&self, list: Ino) -> bool {
        self.any_list(list, |listed| is_locked(&listed.list))
    }

    /// Whether something is so of a list, or of one that it leads to.
    fn any_list(&self, list: Ino, is_so: impl Fn(&Listed) -> Result<bool>) -> bool {
        let mut lists = vec![list];
        let mut asked = 0;
        while let Some(&list) = lists.get(asked) {
            asked += 1;
            let Ok(Some(listed)) = Listed::open(self, list) else { continue };
            if is_so(&listed).unwrap_or(false) {
                return true;
            }
            for other in listed.others {
                if lists.len() < LISTS_MOST && !lists.contains(&other) {
                    lists.push(other);
                }
            }
        }
        false
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
