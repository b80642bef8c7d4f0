//! Files of a worker's own: their names, bytes, modes and attributes, by a file system's calls.
//!
//! The worker of a slot has a folder `files/w<slot>` with two folders in it, which come, go and
//! change places. A file has any number of names there, or none while it is open. What a call does
//! to names is there wholly or not at all; of bytes that are overwritten each word is the old one
//! or the new; a file that grows has its old size, or the new one and all that was written.

use std::collections::BTreeMap;

use engram::{Error, Kind, Namespace, Realm};
use engram_fs::{
    Changes, Clash, Errno, Fs, Handle, Ino, Maker, NodeKind, OpenFlags, Options, ROOT, Stat,
};

use crate::bytes::file_word;
use crate::data::Random;
use crate::filed::{Filed, Node, Thing};

/// The worker's folder, and those in it.
pub(crate) const FOLDERS: u8 = 3;
/// Names in each.
const NAMES: u8 = 4;
/// Files that a worker keeps open.
pub(crate) const HANDLES: u8 = 3;
/// By so many bytes files grow at least, and at most.
const GROWTH: (u64, u64) = (4096, 1 << 16);
/// The attribute that is set.
pub(crate) const NOTE: &[u8] = b"user.z:u8";
/// The mode of what is made.
pub(crate) const MODE: u16 = 0o640;
/// Who makes everything.
pub(crate) const MAKER: Maker = Maker { uid: 0, gid: 0 };

/// Where a name is: the folder, and which name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub folder: u8,
    pub name: u8,
}

/// A file: the one that is open so, or, if none is, the one of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub handle: u8,
    pub at: Spot,
}

/// What is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Makes an empty file, and keeps it open.
    Create { at: Spot, handle: u8 },
    /// Opens a file, and keeps it so.
    Open { at: Spot, handle: u8 },
    /// Closes it.
    Close { handle: u8 },
    /// Writes words from a place on.
    Write { file: Target, from: u32, words: u32 },
    /// Writes words behind the end.
    Append { file: Target, words: u32 },
    /// Gives it so many words.
    Resize { file: Target, words: u32 },
    /// Makes a range a hole.
    Punch { file: Target, from: u32, words: u32 },
    /// Makes a range zeros, with space.
    Zero { file: Target, from: u32, words: u32, keep: bool },
    /// Gives a range space.
    Allocate { file: Target, from: u32, words: u32, keep: bool },
    /// Makes it durable, where that is promised.
    Sync { file: Target },
    /// Makes a symbolic link.
    Symlink { at: Spot },
    /// Gives something a further name.
    Link { from: Spot, to: Spot },
    /// Takes a name away.
    Unlink { at: Spot },
    /// Gives something another name.
    Rename { from: Spot, to: Spot, clash: Clash },
    /// Makes a folder.
    MakeFolder { folder: u8 },
    /// Removes one that is empty.
    RemoveFolder { folder: u8 },
    /// Gives one the name of the other.
    RenameFolder { from: u8, clash: Clash },
    /// Deletes one with all that is in it, as a group.
    DeleteFolder { folder: u8 },
    /// Sets a file's mode.
    Mode { at: Spot, mode: u16 },
    /// Sets its attribute.
    Note { at: Spot },
}

/// The files that a worker has open.
pub type Open = [Option<Handle>; HANDLES as usize];

/// Makes the workers' folders.
pub(crate) fn make(realm: &Realm, slot: usize) {
    realm.create_group(realm.root(), &path_of(slot), &[], &[], false).expect("a group");
}

pub(crate) fn path_of(slot: usize) -> String {
    format!("files/w{slot}")
}

/// A namespace as a file system whose files grow by small segments.
///
/// # Panics
///
/// If it cannot be shown so.
pub(crate) fn shown(namespace: &Namespace) -> Fs {
    let growth = (namespace.mode() == engram::Mode::ReadWrite).then_some(GROWTH);
    Fs::new(namespace.clone(), Options { growth, ..Options::default() }).expect("a file system")
}

/// What follows from a seed.
pub(crate) fn act(seed: u64) -> Act {
    let mut random = Random(seed);
    let random = &mut random;
    let spot = |random: &mut Random| Spot {
        folder: random.below(u64::from(FOLDERS)) as u8,
        name: random.below(u64::from(NAMES)) as u8,
    };
    let clash = |random: &mut Random| {
        [Clash::Refuse, Clash::Replace, Clash::Exchange][random.below(3) as usize]
    };
    let (at, to) = (spot(random), spot(random));
    let handle = random.below(u64::from(HANDLES)) as u8;
    let folder = 1 + random.below(u64::from(FOLDERS) - 1) as u8;
    let file = Target { handle, at };
    // Within the record, about its end, some segments, and rarely far.
    let most = [100, 140, 1500, 1500, 12_000, 40_000][random.below(6) as usize];
    let (from, words) = (random.below(most) as u32, 1 + random.below(most / 3) as u32);
    let keep = random.percent(50);
    match random.below(60) {
        0..6 => Act::Create { at, handle },
        6..9 => Act::Open { at, handle },
        9..12 => Act::Close { handle },
        12..20 => Act::Write { file, from, words },
        20..25 => Act::Append { file, words },
        25..30 => Act::Resize { file, words: from },
        30..34 => Act::Punch { file, from, words },
        34..36 => Act::Zero { file, from, words, keep },
        36..39 => Act::Allocate { file, from, words, keep },
        39 => Act::Sync { file },
        40 | 41 => Act::Symlink { at },
        42..45 => Act::Link { from: at, to },
        45..48 => Act::Unlink { at },
        48..52 => Act::Rename { from: at, to, clash: clash(random) },
        52 | 53 => Act::MakeFolder { folder },
        54 => Act::RemoveFolder { folder },
        55 => Act::RenameFolder { from: folder, clash: clash(random) },
        56 => Act::DeleteFolder { folder },
        57 => Act::Mode { at, mode: [0o600, 0o644, 0o2755][random.below(3) as usize] },
        _ => Act::Note { at },
    }
}

/// What follows from a seed, for people.
pub(crate) fn told(seed: u64) -> String {
    format!("{:?}", act(seed))
}

pub(crate) fn name_of(name: u8) -> [u8; 1] {
    [b'0' + name]
}

pub(crate) fn folder_name(folder: u8) -> [u8; 1] {
    [b'd' + folder]
}

pub(crate) fn target_of(version: u64) -> String {
    format!("to/{version}")
}

/// What an error means for the model: that nothing was done, or that there was no space.
pub(crate) fn refusal(error: Errno) -> Error {
    match error.code {
        libc::ENOENT | libc::EEXIST | libc::ENOTEMPTY => Error::new(Kind::NotFound, error.message),
        libc::ENOSPC => Error::new(Kind::PoolFull, error.message),
        _ => error.into(),
    }
}

pub(crate) fn refused() -> Errno {
    Errno::new(libc::ENOENT, "there is no such file")
}

/// The folder of a path from the root.
pub(crate) fn folder_at(fs: &Fs, path: &str) -> Result<Ino, Errno> {
    Ok(fs.walk(ROOT, path)?.stat.ok_or_else(refused)?.ino)
}

/// The worker's own folder, as the file system shows it.
struct Home<'f> {
    fs: &'f Fs,
    ino: Ino,
}

impl Home<'_> {
    fn of(fs: &Fs, slot: usize) -> Result<Home<'_>, Errno> {
        Ok(Home { fs, ino: folder_at(fs, &path_of(slot))? })
    }

    fn folder(&self, folder: u8) -> Result<Ino, Errno> {
        match folder {
            0 => Ok(self.ino),
            _ => Ok(self.fs.lookup(self.ino, &folder_name(folder))?.ino),
        }
    }

    fn stat(&self, at: Spot) -> Result<Stat, Errno> {
        self.fs.lookup(self.folder(at.folder)?, &name_of(at.name))
    }

    /// The file of a name.
    fn file(&self, at: Spot) -> Result<Ino, Errno> {
        let stat = self.stat(at)?;
        if stat.kind == NodeKind::File { Ok(stat.ino) } else { Err(refused()) }
    }

    fn open(&self, at: Spot) -> Result<Handle, Errno> {
        self.fs.open(self.file(at)?, READ_WRITE)
    }

    /// A file that is open, or is opened for once.
    fn handle(&self, open: &Open, file: Target) -> Result<Handle, Errno> {
        match &open[usize::from(file.handle)] {
            Some(handle) => Ok(handle.clone()),
            None => self.open(file.at),
        }
    }
}

const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true, append: false, truncate: false };

pub(crate) fn bytes_of(slot: usize, version: u64, from: u32, words: u32) -> Vec<u8> {
    let word = |place: u32| file_word(slot, version, place as usize).to_le_bytes();
    (from..from + words).flat_map(word).collect()
}

/// Does what follows from a seed.
pub(crate) fn perform(
    fs: &Fs,
    open: &mut Open,
    slot: usize,
    seed: u64,
    version: u64,
) -> engram::Result<()> {
    let home = Home::of(fs, slot).map_err(refusal)?;
    let act = act(seed);
    if let Act::DeleteFolder { folder } = act {
        let name = String::from_utf8(folder_name(folder).to_vec()).expect("a letter");
        let namespace = fs.namespace();
        return namespace.delete(namespace.root(), &format!("{}/{name}", path_of(slot)));
    }
    match act {
        Act::Create { at, handle } => {
            let made = home.folder(at.folder).and_then(|folder| {
                let name = name_of(at.name);
                fs.create(folder, &name, u32::from(MODE), READ_WRITE, MAKER)
            });
            made.map(|(_, made)| open[usize::from(handle)] = Some(made))
        }
        Act::Open { at, handle } => {
            home.open(at).map(|opened| open[usize::from(handle)] = Some(opened))
        }
        Act::Close { handle } => open[usize::from(handle)].take().map(drop).ok_or_else(refused),
        Act::Write { file, .. }
        | Act::Append { file, .. }
        | Act::Resize { file, .. }
        | Act::Punch { file, .. }
        | Act::Zero { file, .. }
        | Act::Allocate { file, .. }
        | Act::Sync { file } => {
            home.handle(open, file).and_then(|handle| write(fs, &handle, act, slot, version))
        }
        _ => change(&home, act, version),
    }
    .map_err(refusal)
}

/// Changes a file's bytes, or its size.
fn write(fs: &Fs, handle: &Handle, act: Act, slot: usize, version: u64) -> Result<(), Errno> {
    let at = |words: u32| u64::from(words) * 8;
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let kept = |keep| if keep { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    match act {
        Act::Write { from, words, .. } => {
            let data = bytes_of(slot, version, from, words);
            handle.write(at(from), &data).map(|count| assert_eq!(count, data.len()))
        }
        Act::Append { words, .. } => {
            // Nobody else writes to it.
            let from = (handle.stat()?.size / 8) as u32;
            let data = bytes_of(slot, version, from, words);
            let appending = OpenFlags { write: true, append: true, ..OpenFlags::default() };
            let (written, _) = fs.open(handle.ino(), appending)?.write_where(0, &data)?;
            assert_eq!(written, at(from), "what is appended lies behind the end");
            Ok(())
        }
        Act::Resize { words, .. } => handle.set_size(at(words)),
        Act::Punch { from, words, .. } => handle.fallocate(punch, at(from), at(words)),
        Act::Zero { from, words, keep, .. } => {
            handle.fallocate(libc::FALLOC_FL_ZERO_RANGE | kept(keep), at(from), at(words))
        }
        Act::Allocate { from, words, keep, .. } => {
            handle.fallocate(kept(keep), at(from), at(words))
        }
        _ => handle.sync(),
    }
}

/// Changes names, and what is known of what has them.
fn change(home: &Home<'_>, act: Act, version: u64) -> Result<(), Errno> {
    let fs = home.fs;
    match act {
        Act::Symlink { at } => {
            let folder = home.folder(at.folder)?;
            fs.symlink(folder, &name_of(at.name), target_of(version).as_bytes(), MAKER).map(drop)
        }
        Act::Link { from, to } => {
            let node = home.stat(from)?.ino;
            fs.link(node, home.folder(to.folder)?, &name_of(to.name)).map(drop)
        }
        Act::Unlink { at } => fs.unlink(home.folder(at.folder)?, &name_of(at.name)),
        Act::Rename { from, to, clash } => {
            let (old, new) = (home.folder(from.folder)?, home.folder(to.folder)?);
            fs.rename(old, &name_of(from.name), new, &name_of(to.name), clash)
        }
        Act::MakeFolder { folder } => {
            fs.mkdir(home.ino, &folder_name(folder), 0o755, MAKER).map(drop)
        }
        Act::RemoveFolder { folder } => fs.rmdir(home.ino, &folder_name(folder)),
        Act::RenameFolder { from, clash } => {
            let to = folder_name(FOLDERS - from);
            fs.rename(home.ino, &folder_name(from), home.ino, &to, clash)
        }
        Act::Mode { at, mode } => {
            let changes = Changes { mode: Some(mode), ..Changes::default() };
            fs.change(home.file(at)?, changes).map(drop)
        }
        Act::Note { at } => fs.set_xattr(home.file(at)?, NOTE, version.to_string().as_bytes(), 0),
        _ => unreachable!("{act:?} changes no name"),
    }
}

/// The names in a folder, with what is known of each.
pub(crate) fn list(fs: &Fs, folder: Ino) -> Result<BTreeMap<String, Stat>, Errno> {
    let mut entries = Vec::new();
    fs.open_folder(folder)?.list(0, |entry, _| {
        entries.push(entry.clone());
        true
    })?;
    let others = entries.into_iter().filter(|entry| entry.name != "." && entry.name != "..");
    others.map(|entry| Ok((entry.name.clone(), fs.stat_entry(&entry)?))).collect()
}

/// All bytes of a file.
pub(crate) fn read_all(fs: &Fs, ino: Ino) -> Result<Vec<u8>, Errno> {
    let handle = fs.open(ino, OpenFlags { read: true, ..OpenFlags::default() })?;
    let mut bytes = vec![0; handle.stat()?.size as usize];
    let count = handle.read(0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Compares what a worker has there with its model; how many things were compared.
pub(crate) fn compare(fs: &Fs, slot: usize, model: &Filed) -> Result<u64, String> {
    let told = |error: Errno| format!("{}: {error}", path_of(slot));
    let home = folder_at(fs, &path_of(slot)).map_err(told)?;
    let mut own = list(fs, home).map_err(told)?;
    let mut checks = 0;
    for (folder, names) in (0..FOLDERS).zip(&model.folders) {
        let letter = String::from_utf8(folder_name(folder).to_vec()).expect("a letter");
        let path = format!("{}/{letter}", path_of(slot));
        let found = if folder == 0 { None } else { own.remove(&letter) };
        let mut there = match (found, names) {
            (None, Some(_)) if folder == 0 => continue,
            (None, None) => continue,
            (Some(stat), Some(_)) if stat.kind == NodeKind::Folder => {
                list(fs, stat.ino).map_err(told)?
            }
            (found, _) => {
                let must = names.is_some();
                return Err(format!("{path} is {found:?}, and must be there: {must}"));
            }
        };
        let names = names.as_ref().expect("it is there");
        checks += compare_names(fs, slot, model, &path, names, &mut there)?;
    }
    let names = model.folders[0].as_ref().expect("it is always there");
    Ok(checks + compare_names(fs, slot, model, &path_of(slot), names, &mut own)?)
}

fn compare_names(
    fs: &Fs,
    slot: usize,
    model: &Filed,
    path: &str,
    names: &BTreeMap<u8, u64>,
    there: &mut BTreeMap<String, Stat>,
) -> Result<u64, String> {
    for (name, node) in names {
        let name = char::from(name_of(*name)[0]).to_string();
        let Some(stat) = there.remove(&name) else {
            return Err(format!("{path}/{name} is not there"));
        };
        let all = model.folders.iter().flatten().flat_map(BTreeMap::values);
        let nlink = all.filter(|other| *other == node).count();
        let told = |why: String| format!("{path}/{name}: {why}");
        if stat.nlink as usize != nlink {
            return Err(told(format!("it has {} names, not {nlink}", stat.nlink)));
        }
        compare_node(fs, slot, &model.nodes[node], stat).map_err(told)?;
    }
    match there.keys().next() {
        Some(name) => Err(format!("{path}/{name} is there, and shall not")),
        None => Ok(1 + 4 * names.len() as u64),
    }
}

fn compare_node(fs: &Fs, slot: usize, node: &Node, stat: Stat) -> Result<(), String> {
    let told = |error: Errno| error.to_string();
    if stat.mode != node.mode {
        return Err(format!("its mode is {:o}, not {:o}", stat.mode, node.mode));
    }
    match (&node.thing, stat.kind) {
        (Thing::Symlink(version), NodeKind::Symlink) => {
            let target = fs.readlink(stat.ino).map_err(told)?;
            if target != target_of(*version).as_bytes() {
                return Err(format!("it leads to {:?}", target.escape_ascii().to_string()));
            }
        }
        (Thing::File(words), NodeKind::File) => {
            if stat.size != u64::from(words.len()) * 8 {
                return Err(format!("it has {} bytes, not {}", stat.size, words.len() * 8));
            }
            let bytes = read_all(fs, stat.ino).map_err(told)?;
            words.misfit(slot, &bytes).map_or(Ok(()), Err)?;
        }
        (thing, kind) => return Err(format!("it is of kind {kind:?}, and must be {thing:?}")),
    }
    let note = match fs.get_xattr(stat.ino, NOTE) {
        Ok(text) => Some(String::from_utf8_lossy(&text).into_owned()),
        Err(error) if error.code == libc::ENODATA => None,
        Err(error) => return Err(told(error)),
    };
    let expected = node.note.map(|version| version.to_string());
    if note == expected { Ok(()) } else { Err(format!("its note is {note:?}, not {expected:?}")) }
}
