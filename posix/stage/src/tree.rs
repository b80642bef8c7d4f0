//! Trees of the kernel's file systems, as a stage finds them.
//!
//! A tree is walked once, before anything is copied: the plan says what there is, and in which
//! order it is done. A name that leads elsewhere meanwhile is found out when it is opened: what was
//! seen of a file ([`Seen`]) has to be so then, and when it has been read.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use engram_fs::NodeKind;
use rustix::fs::{
    fgetxattr, fgetxattr_query, flistxattr, flistxattr_query, lgetxattr, lgetxattr_query,
    llistxattr, llistxattr_query,
};
use rustix::io::Errno;

/// What tells a file's present state from any other: if all of it is the same, the bytes are. The
/// file system is left out: after a reboot, or when it is mounted anew, it may have another number.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Seen {
    /// The file system, as long as it is mounted.
    pub dev: u64,
    /// The file.
    pub ino: u64,
    /// How many bytes it has.
    pub size: u64,
    /// When its bytes were written, in ns since 1970.
    pub written: i64,
    /// When anything of it changed, in ns since 1970.
    pub changed: i64,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Seen) -> bool {
        let state = |seen: &Seen| (seen.ino, seen.size, seen.written, seen.changed);
        state(self) == state(other)
    }
}

impl Seen {
    /// What a file's metadata say.
    pub fn of(meta: &Metadata) -> Seen {
        Seen {
            dev: meta.dev(),
            ino: meta.ino(),
            size: meta.size(),
            written: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            changed: nanoseconds(meta.ctime(), meta.ctime_nsec()),
        }
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// What is known of a node outside.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    /// What kind of node it is.
    pub kind: NodeKind,
    /// What tells its state.
    pub seen: Seen,
    /// The permissions, with set-user-id, set-group-id and sticky bits.
    pub mode: u16,
    /// Whose it is.
    pub uid: u32,
    /// Which group's.
    pub gid: u32,
    /// The device, of a special file.
    pub rdev: u64,
    /// When it was read, in ns since 1970.
    pub accessed: i64,
    /// How many names it has.
    pub names: u64,
    /// Whether it has holes: it takes less space than it has bytes.
    pub sparse: bool,
}

impl Outside {
    /// What a node's metadata say; `None` of what no file system here can have.
    pub fn of(meta: &Metadata) -> Option<Outside> {
        Some(Outside {
            kind: NodeKind::of_mode(meta.mode())?,
            seen: Seen::of(meta),
            mode: (meta.mode() & 0o7777) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            rdev: meta.rdev(),
            accessed: nanoseconds(meta.atime(), meta.atime_nsec()),
            names: meta.nlink(),
            sparse: meta.blocks().saturating_mul(512) < meta.size(),
        })
    }
}

/// A folder of a tree.
#[derive(Debug)]
pub struct TreeFolder {
    /// Where it is, below the tree's root; empty for the root.
    pub path: PathBuf,
    /// The folder that it is in; of the root, itself.
    pub above: u32,
    /// What is known of it.
    pub outside: Outside,
}

/// Anything else of a tree.
#[derive(Debug)]
pub struct TreeEntry {
    /// The folder that it is in, by its number.
    pub folder: u32,
    /// Its name there.
    pub name: Box<OsStr>,
    /// What is known of it.
    pub outside: Outside,
}

/// What could not be looked at, and why.
#[derive(Debug)]
pub struct Unseen {
    /// Where it is, below the tree's root.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// A tree, as it was found.
#[derive(Debug, Default)]
pub struct Tree {
    /// Its folders, each behind the one that it is in; the first is the root.
    pub folders: Vec<TreeFolder>,
    /// What else there is, folder by folder, in byte order of names.
    pub entries: Vec<TreeEntry>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

impl Tree {
    /// Walks a folder; symbolic links are not followed. `each` is told of every entry's name, and
    /// says whether it belongs to the tree.
    pub fn walk(root: &Path, mut each: impl FnMut(&Path) -> bool) -> io::Result<Tree> {
        let meta = fs::metadata(root)?;
        let Some(outside) = Outside::of(&meta).filter(|known| known.kind == NodeKind::Folder)
        else {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        };
        let first = TreeFolder { path: PathBuf::new(), above: 0, outside };
        let mut tree = Tree { folders: vec![first], ..Tree::default() };
        let mut next = 0;
        while next < tree.folders.len() {
            tree.list(root, next as u32, &mut each);
            next += 1;
        }
        Ok(tree)
    }

    /// A tree of one node that is no folder: its root is the folder that it is in.
    pub fn of_one(path: &Path) -> io::Result<Tree> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        };
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let folder = Outside::of(&fs::metadata(above)?);
        let found = Outside::of(&fs::symlink_metadata(path)?);
        let (Some(folder), Some(outside)) = (folder, found) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        Ok(Tree {
            folders: vec![TreeFolder { path: PathBuf::new(), above: 0, outside: folder }],
            entries: vec![TreeEntry { folder: 0, name: name.into(), outside }],
            unseen: Vec::new(),
        })
    }

    /// Where an entry is, below the root.
    pub fn path_of(&self, entry: &TreeEntry) -> PathBuf {
        self.folders[entry.folder as usize].path.join(&*entry.name)
    }

    /// How many bytes its files have.
    pub fn bytes(&self) -> u64 {
        let files = self.entries.iter().filter(|entry| entry.outside.kind == NodeKind::File);
        files.map(|entry| entry.outside.seen.size).sum()
    }

    fn list(&mut self, root: &Path, folder: u32, each: &mut impl FnMut(&Path) -> bool) {
        let below = self.folders[folder as usize].path.clone();
        let mut found: Vec<(OsString, io::Result<Metadata>)> = Vec::new();
        let listed = fs::read_dir(root.join(&below)).and_then(|entries| {
            for entry in entries {
                let entry = entry?;
                // Of the entry itself, also of a link.
                found.push((entry.file_name(), entry.metadata()));
            }
            Ok(())
        });
        if let Err(error) = listed {
            self.unseen.push(Unseen { path: below.clone(), why: error.to_string() });
        }
        found.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, meta) in found {
            let path = below.join(&name);
            if !each(&path) {
                continue;
            }
            match meta {
                // It has gone since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.unseen.push(Unseen { path, why: error.to_string() }),
                Ok(meta) => match Outside::of(&meta) {
                    Some(outside) if outside.kind == NodeKind::Folder => {
                        self.folders.push(TreeFolder { path, above: folder, outside });
                    }
                    Some(outside) => {
                        let name = name.into_boxed_os_str();
                        self.entries.push(TreeEntry { folder, name, outside });
                    }
                    None => {
                        let why = "is of a kind that no file system here has".to_owned();
                        self.unseen.push(Unseen { path, why });
                    }
                },
            }
        }
    }
}

/// Opens a file of a tree to read it: itself, not what a link leads to. It is not noted as read,
/// where this user may ask for that.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let open = |flags: i32| {
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
    };
    match open(libc::O_NOATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(0),
        opened => opened,
    }
}

/// The extended attributes of users that a node outside has: each name behind `user.`, and its
/// value. None, where the file system keeps none.
pub fn attributes(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let names = grown(|| llistxattr_query(path), |into| llistxattr(path, into));
    told(names, |name| grown(|| lgetxattr_query(path, name), |into| lgetxattr(path, name, into)))
}

/// The same of a file that is open.
pub fn attributes_of(file: &File) -> io::Result<Vec<(String, Vec<u8>)>> {
    let names = grown(|| flistxattr_query(file), |into| flistxattr(file, into));
    told(names, |name| grown(|| fgetxattr_query(file, name), |into| fgetxattr(file, name, into)))
}

fn told(
    names: rustix::io::Result<Vec<u8>>,
    value: impl Fn(&[u8]) -> rustix::io::Result<Vec<u8>>,
) -> io::Result<Vec<(String, Vec<u8>)>> {
    let names = match names {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut all = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let Some(key) = name.strip_prefix(b"user.").and_then(|key| std::str::from_utf8(key).ok())
        else {
            continue;
        };
        match value(name) {
            // It has been removed since.
            Err(Errno::NODATA) => {}
            value => all.push((key.to_owned(), value?)),
        }
    }
    Ok(all)
}

/// What a call fills in, with room for as many bytes as another says.
fn grown(
    size: impl Fn() -> rustix::io::Result<usize>,
    mut call: impl FnMut(&mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Vec<u8>> {
    loop {
        let mut into = vec![0; size()?];
        if into.is_empty() {
            return Ok(into);
        }
        match call(&mut into) {
            // It has grown in between.
            Err(Errno::RANGE) => {}
            Ok(count) => {
                into.truncate(count);
                return Ok(into);
            }
            Err(error) => return Err(error),
        }
    }
}
