//! What a program does with files, by the C library's calls: with its own, and with those that
//! everybody writes. What follows from a seed is what follows from it for other workers.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::{fs, io};

use engram_fs::{Clash, Errno};

use crate::bytes::file_word;
use crate::calls::{self, Mapped, Stream};
use crate::crowd::{
    LOG, MAPPED, NAMES, STORM, WORDS, check_words, is_passing, record, record_for, word_at,
};
use crate::data::Random;
use crate::files::{
    Act, FOLDERS, HANDLES, MODE, NOTE, Spot, Target, act, bytes_of, folder_name, name_of, path_of,
    refusal, refused, target_of,
};

/// The files that a program has open.
pub(crate) type Open = [Option<File>; HANDLES as usize];

/// What a call has answered, as a file system's error.
fn errno(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        // A symbolic link where a file was asked for.
        Some(libc::ELOOP) => refused(),
        Some(code) => Errno::new(code, error.to_string()),
        None => panic!("a call ended with {error:?}"),
    }
}

/// Whether a program does what follows from a seed: no call of the C library deletes a folder with
/// all that is in it, and what sets a group's bit for whom is a matter of users.
pub(crate) fn is_a_programs(seed: u64) -> bool {
    !matches!(act(seed), Act::DeleteFolder { .. } | Act::Mode { mode: 0o2000.., .. })
}

/// Where a program finds its files.
#[derive(Clone)]
pub(crate) struct Home {
    /// The folder that all is in, or nothing, if the program is there.
    root: String,
    slot: usize,
}

impl Home {
    /// Below a prefix, or, if the program works there, without one. The pool is open from then on.
    ///
    /// # Panics
    ///
    /// If it cannot go there.
    pub(crate) fn new(prefix: &str, slot: usize, within: bool) -> Home {
        assert!(fs::metadata(prefix).expect("the prefix").is_dir());
        if within {
            std::env::set_current_dir(prefix).expect("the prefix is a folder");
            let here = std::env::current_dir().expect("the working folder");
            assert_eq!(here.to_str(), Some(prefix));
        }
        let root = if within { String::new() } else { format!("{prefix}/") };
        Home { root, slot }
    }

    /// The path of something in the pool.
    pub(crate) fn path(&self, within: &str) -> String {
        format!("{}{within}", self.root)
    }

    fn folder(&self, folder: u8) -> String {
        let name = String::from_utf8(folder_name(folder).to_vec()).expect("a letter");
        self.path(&format!("{}/{name}", path_of(self.slot)))
    }

    fn spot(&self, at: Spot) -> String {
        let name = char::from(name_of(at.name)[0]);
        match at.folder {
            0 => self.path(&format!("{}/{name}", path_of(self.slot))),
            folder => format!("{}/{name}", self.folder(folder)),
        }
    }

    fn open(&self, at: Spot) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(self.spot(at))
    }

    /// A file that is open, by another descriptor, or is opened for once.
    fn file(&self, open: &Open, file: Target) -> io::Result<File> {
        match &open[usize::from(file.handle)] {
            Some(file) => file.try_clone(),
            None => self.open(file.at),
        }
    }

    /// The log, to append to.
    ///
    /// # Panics
    ///
    /// If it is not there.
    pub(crate) fn log(&self) -> File {
        OpenOptions::new().append(true).open(self.path(LOG)).expect("the log is always there")
    }
}

/// Does to files of the program's own what follows from a seed.
pub(crate) fn perform(home: &Home, open: &mut Open, seed: u64, version: u64) -> engram::Result<()> {
    let act = act(seed);
    match act {
        Act::Create { at, handle } => {
            let mut how = OpenOptions::new();
            how.read(true).write(true).create_new(true).mode(u32::from(MODE));
            how.open(home.spot(at)).map(|made| open[usize::from(handle)] = Some(made))
        }
        Act::Open { at, handle } => {
            home.open(at).map(|opened| open[usize::from(handle)] = Some(opened))
        }
        Act::Close { handle } => {
            let closed = open[usize::from(handle)].take().map(drop);
            closed.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
        }
        Act::Write { file, .. }
        | Act::Append { file, .. }
        | Act::Resize { file, .. }
        | Act::Punch { file, .. }
        | Act::Zero { file, .. }
        | Act::Allocate { file, .. }
        | Act::Sync { file } => {
            home.file(open, file).and_then(|file| write(file, act, home.slot, version))
        }
        _ => change(home, act, version),
    }
    .map_err(|error| refusal(errno(&error)))
}

/// Changes a file's bytes, or its size.
fn write(file: File, act: Act, slot: usize, version: u64) -> io::Result<()> {
    let at = |words: u32| u64::from(words) * 8;
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let kept = |keep| if keep { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
    match act {
        Act::Write { from, words, .. } => overwrite(file, slot, version, from, words),
        Act::Append { words, .. } => append(file, slot, version, words),
        Act::Resize { words, .. } => file.set_len(at(words)),
        Act::Punch { from, words, .. } => calls::allocate(&file, punch, at(from), at(words)),
        Act::Zero { from, words, keep, .. } => {
            let mode = libc::FALLOC_FL_ZERO_RANGE | kept(keep);
            calls::allocate(&file, mode, at(from), at(words))
        }
        Act::Allocate { from, words, keep: false, .. } if version.is_multiple_of(2) => {
            calls::allocate_all(&file, at(from), at(words))
        }
        Act::Allocate { from, words, keep, .. } => {
            calls::allocate(&file, kept(keep), at(from), at(words))
        }
        _ if version.is_multiple_of(2) => file.sync_data(),
        _ => file.sync_all(),
    }
}

fn all_of(count: usize, data: &[u8]) {
    assert_eq!(count, data.len(), "a call writes all that it is given, or nothing");
}

/// Writes words at a place, by one of the ways that there are.
fn overwrite(mut file: File, slot: usize, version: u64, from: u32, words: u32) -> io::Result<()> {
    let (at, data) = (u64::from(from) * 8, bytes_of(slot, version, from, words));
    let end = at + data.len() as u64;
    match version % 6 {
        0 | 1 if end <= file.metadata()?.len() => {
            let mapped = Mapped::of(&file, at, data.len() as u64)?;
            for place in 0..words as usize {
                mapped.set(place, file_word(slot, version, from as usize + place));
            }
            if version.is_multiple_of(4) { mapped.sync() } else { Ok(()) }
        }
        2 => {
            file.seek(SeekFrom::Start(at))?;
            file.write(&data).map(|count| all_of(count, &data))
        }
        // A stream that has sought begins in the middle of its buffer, and writes in two calls: a
        // death between them leaves a size that no single call leaves.
        3 if end <= file.metadata()?.len() => {
            let stream = Stream::of(file, "r+", data.len())?;
            stream.seek(at)?;
            stream.write(&data)
        }
        4 => {
            let (one, other) = data.split_at(data.len() / 2);
            calls::write_parts(&file, at, [one, other]).map(|count| all_of(count, &data))
        }
        _ => file.write_at(&data, at).map(|count| all_of(count, &data)),
    }
}

/// Writes words behind the end, where nobody else writes.
fn append(mut file: File, slot: usize, version: u64, words: u32) -> io::Result<()> {
    let end = file.metadata()?.len();
    let data = bytes_of(slot, version, (end / 8) as u32, words);
    match version % 3 {
        0 => {
            assert_eq!(file.seek(SeekFrom::End(0))?, end);
            file.write(&data).map(|count| all_of(count, &data))
        }
        1 => {
            calls::set_appending(&file, true)?;
            let written = file.write(&data);
            calls::set_appending(&file, false)?;
            written.map(|count| all_of(count, &data))
        }
        _ => {
            let same = file.try_clone()?;
            let written = Stream::of(file, "a", data.len())?.write(&data);
            // The stream has set it for all who share the open file.
            calls::set_appending(&same, false)?;
            written
        }
    }
}

/// Changes names, and what is known of what has them.
fn change(home: &Home, act: Act, version: u64) -> io::Result<()> {
    match act {
        Act::Symlink { at } => symlink(target_of(version), home.spot(at)),
        Act::Link { from, to } => fs::hard_link(home.spot(from), home.spot(to)),
        Act::Unlink { at } => fs::remove_file(home.spot(at)),
        Act::Rename { from, to, clash } => calls::rename(&home.spot(from), &home.spot(to), clash),
        Act::MakeFolder { folder } => DirBuilder::new().mode(0o755).create(home.folder(folder)),
        Act::RemoveFolder { folder } => fs::remove_dir(home.folder(folder)),
        Act::RenameFolder { from, clash } => {
            calls::rename(&home.folder(from), &home.folder(FOLDERS - from), clash)
        }
        Act::Mode { at, mode } => {
            fs::set_permissions(home.spot(at), Permissions::from_mode(u32::from(mode)))
        }
        Act::Note { at } => {
            calls::set_attribute(&home.spot(at), NOTE, version.to_string().as_bytes())
        }
        _ => unreachable!("{act:?} changes no name"),
    }
}

/// Does to files that everybody writes what follows from a seed.
pub(crate) fn crowd(home: &Home, log: &File, seed: u64, version: u64) -> engram::Result<()> {
    let failed = |error: io::Error| refusal(errno(&error));
    if let Some(words) = record(seed) {
        let size = log.metadata().map_err(failed)?.len();
        let data = record_for(size, home.slot, version, words)?;
        return add(log, &data, version).map_err(failed);
    }
    match storm(home, &mut Random(seed ^ 1)) {
        Err(error) if !is_passing(&errno(&error)) => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Looks whether a file is open as it was opened, and to append only if that was asked for.
fn check_flags(file: &File, as_opened: i32) -> io::Result<()> {
    let flags = calls::flags_of(file)? & (libc::O_ACCMODE | libc::O_APPEND);
    assert_eq!(flags, as_opened, "a file is open otherwise than it was opened");
    Ok(())
}

/// Appends a record in one call, by a descriptor that others may share.
fn add(mut log: &File, data: &[u8], version: u64) -> io::Result<()> {
    check_flags(log, libc::O_WRONLY | libc::O_APPEND)?;
    match version % 4 {
        0 => Stream::of(log.try_clone()?, "a", data.len())?.write(data),
        // The place is of no account where the end is.
        1 => log.write_at(data, 0).map(|count| all_of(count, data)),
        _ => log.write(data).map(|count| all_of(count, data)),
    }
}

/// Does anything to any of the files that are everybody's.
fn storm(home: &Home, random: &mut Random) -> io::Result<()> {
    let any = |random: &mut Random| home.path(&format!("{STORM}/{}", random.below(NAMES)));
    let (path, other) = (any(random), any(random));
    match random.below(14) {
        0 | 1 => {
            let mut how = OpenOptions::new();
            how.write(true).create(true).truncate(random.percent(10)).mode(0o600);
            how.open(path).map(drop)
        }
        2 => fs::remove_file(path),
        3 => {
            let clash = [Clash::Refuse, Clash::Replace, Clash::Exchange];
            calls::rename(&path, &other, clash[random.below(3) as usize])
        }
        4 => fs::hard_link(path, other),
        5 => calls::truncate(&path, random.below(WORDS) * 8),
        6 => fs::read(path).map(|bytes| check_words(&bytes, 0)),
        7 => {
            let mapped = home.path(MAPPED);
            store(&OpenOptions::new().read(true).write(true).open(mapped)?, random)
        }
        _ => disturb(&OpenOptions::new().read(true).write(true).open(path)?, random),
    }
}

/// Changes a file that others may be taking away, once or twice.
fn disturb(file: &File, random: &mut Random) -> io::Result<()> {
    check_flags(file, libc::O_RDWR)?;
    for _ in 0..=random.below(2) {
        let (place, many) = (random.below(WORDS), 1 + random.below(3000));
        let (at, len) = (place * 8, many * 8);
        match random.below(6) {
            0 | 1 => {
                let words = (place..place + many).flat_map(|place| word_at(place).to_le_bytes());
                file.write_at(&words.collect::<Vec<u8>>(), at)?;
            }
            2 => file.set_len(at)?,
            3 => {
                let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                calls::allocate(file, punch, at, len)?;
            }
            4 => calls::allocate(file, 0, at, len)?,
            _ => {
                let mut bytes = vec![0xEE; len as usize];
                let count = file.read_at(&mut bytes, at)?;
                check_words(&bytes[..count], place);
            }
        }
    }
    Ok(())
}

/// Stores words to a file's memory, where others do, too.
fn store(file: &File, random: &mut Random) -> io::Result<()> {
    let (from, many) = (random.below(WORDS / 2), 1 + random.below(WORDS / 2));
    let mapped = Mapped::of(file, from * 8, many * 8)?;
    for _ in 0..4 {
        let place = random.below(many);
        let word = mapped.get(place as usize);
        let is_own = word == 0 || word == word_at(from + place);
        assert!(is_own, "word {} of a map is {word:#x}", from + place);
        mapped.set(place as usize, word_at(from + place));
    }
    mapped.sync()
}
