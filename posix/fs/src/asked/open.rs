//! Files and folders opened.

use super::Asked;
use crate::caller::{READ, SEARCH, WRITE};
use crate::errno::{Result, refuse, refuse_at, shown_name};
use crate::folder::Folder;
use crate::handle::{Handle, OpenFlags};
use crate::stat::{NodeKind, Stat};
use crate::walk::{Answer, At, Last, Reached, Way};

/// What `open` has opened.
pub enum Opened {
    /// A file.
    File(Handle),
    /// A folder, to be listed.
    Folder(Folder),
    /// No more than the node, by `O_PATH`.
    Node(Stat),
}

/// How something is to be opened.
#[derive(Clone, Copy)]
struct How {
    flags: i32,
    mode: u32,
}

impl How {
    fn of(flags: i32, mode: u32) -> Result<How> {
        let flags = if flags & libc::O_PATH != 0 {
            flags & (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        } else {
            flags
        };
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            refuse!(EOPNOTSUPP, "files without a name are not made: make one, and unlink it");
        }
        if flags & libc::O_CREAT != 0 && flags & libc::O_DIRECTORY != 0 {
            refuse!(EINVAL, "open makes no folder: mkdir does");
        }
        Ok(How { flags, mode })
    }

    fn has(self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    /// Whether a symbolic link of the last name is followed.
    fn follows(self) -> bool {
        let is_new = self.has(libc::O_CREAT) && self.has(libc::O_EXCL);
        !is_new && !self.has(libc::O_NOFOLLOW)
    }

    /// What one must be allowed to do with what is opened.
    fn rights(self) -> u16 {
        let rights = match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => READ,
            libc::O_WRONLY => WRITE,
            _ => READ | WRITE,
        };
        if self.has(libc::O_TRUNC) { rights | WRITE } else { rights }
    }

    /// The flags of a file that is not to be cut again.
    fn opened(self) -> OpenFlags {
        OpenFlags { truncate: false, ..OpenFlags::of(self.flags) }
    }
}

impl Asked<'_> {
    /// `open`, by its flags; what it makes gets this mode.
    pub fn open(&self, at: At<'_>, flags: i32, mode: u32) -> Answer<Opened> {
        let how = How::of(flags, mode)?;
        if let Some(ino) = at.number() {
            return Ok(self.open_found(&self.fs.stat(ino)?, how)?);
        }
        // Somebody else makes the name between the look and the making of it, or what was found is
        // gone before it is opened.
        let made = how.has(libc::O_CREAT);
        let changed: &[i32] = if made && !how.has(libc::O_EXCL) {
            &[libc::ESTALE, libc::EEXIST]
        } else {
            &[libc::ESTALE]
        };
        let look = || self.reach_by(self.way(&at)?, how.follows(), made);
        Self::again(changed, look, |Reached { way, stat }| match stat {
            None => self.create(&way, how),
            Some(stat) => Ok(self.open_reached(&way, &stat, how)?),
        })
    }

    /// `opendir`.
    pub fn open_folder(&self, at: At<'_>) -> Answer<Folder> {
        match self.open(at, libc::O_RDONLY | libc::O_DIRECTORY, 0)? {
            Opened::Folder(folder) => Ok(folder),
            _ => refuse_at!(ENOTDIR, "what has this name is no folder"),
        }
    }

    /// Makes a file, and opens it however that is asked, whatever its mode; by `lookup_open`.
    fn create(&self, way: &Way<'_>, how: How) -> Answer<Opened> {
        if !how.has(libc::O_CREAT) {
            refuse_at!(ENOENT, "there is no {:?}", shown_name(way.name()));
        }
        self.check_writable()?;
        let folder = &way.folder;
        self.caller.check(WRITE | SEARCH, &folder.protection)?;
        let mode = self.caller.mode_in(&folder.protection, NodeKind::File, how.mode & 0o7777);
        let maker = self.caller.maker();
        let (_, handle) = self.fs.create(folder.ino, way.name(), mode, how.opened(), maker)?;
        Ok(Opened::File(handle))
    }

    /// Opens what a path leads to; by `do_open`.
    fn open_reached(&self, way: &Way<'_>, stat: &Stat, how: How) -> Result<Opened> {
        if how.has(libc::O_CREAT) && how.has(libc::O_EXCL) {
            refuse!(EEXIST, "the name is there already, and was to be new");
        }
        if how.has(libc::O_CREAT) && stat.kind == NodeKind::Folder {
            refuse!(EISDIR, "what has this name is a folder");
        }
        if way.slash && way.last == Last::Name && stat.kind != NodeKind::Folder {
            refuse!(ENOTDIR, "{:?} is no folder", shown_name(way.name()));
        }
        self.open_found(stat, how)
    }

    /// Opens a node; by `may_open`.
    fn open_found(&self, stat: &Stat, how: How) -> Result<Opened> {
        let rights = how.rights();
        if how.has(libc::O_DIRECTORY) && stat.kind != NodeKind::Folder {
            refuse!(ENOTDIR, "what has this name is no folder");
        }
        if how.has(libc::O_PATH) {
            return Ok(Opened::Node(*stat));
        }
        match stat.kind {
            NodeKind::Symlink => refuse!(ELOOP, "a symbolic link was not to be followed"),
            NodeKind::Folder if rights & WRITE != 0 => refuse!(EISDIR, "a folder has no bytes"),
            _ => {}
        }
        self.check(rights, stat)?;
        if how.has(libc::O_NOATIME) {
            self.caller.check_owns(&stat.into(), "keep a read secret")?;
        }
        match stat.kind {
            NodeKind::Folder => Ok(Opened::Folder(self.fs.open_folder(stat.ino)?)),
            NodeKind::File => {
                let handle = self.fs.open(stat.ino, how.opened())?;
                if how.has(libc::O_TRUNC) {
                    self.cut(stat, 0)?;
                }
                Ok(Opened::File(handle))
            }
            kind => refuse!(ENXIO, "a {kind:?} in a pool has nobody at its other end"),
        }
    }
}
