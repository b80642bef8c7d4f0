//! Files and folders opened.

use super::Asked;
use crate::caller::{Protection, READ, SEARCH, WRITE};
use crate::errno::{Result, refuse, refuse_at, shown_name};
use crate::folder::Folder;
use crate::handle::{Handle, NamedHandle, OpenFlags};
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

/// What a look of `open` has come to.
enum Looked<'p> {
    Opened(Handle),
    Reached(Reached<'p>),
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

    /// Refuses to open a folder as what would be made if it were not there.
    fn check_made(self, stat: &Stat) -> Result<()> {
        if self.has(libc::O_CREAT) && stat.kind == NodeKind::Folder {
            refuse!(EISDIR, "what has this name is a folder");
        }
        Ok(())
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
        if let Some(ino) = at.followed(how.follows())? {
            let stat = self.fs.stat(ino)?;
            how.check_made(&stat)?;
            return Ok(self.open_found(&stat, how)?);
        }
        // Somebody else makes the name between the look and the making of it, or what was found is
        // gone before it is opened.
        let made = how.has(libc::O_CREAT);
        let changed: &[i32] = if made && !how.has(libc::O_EXCL) {
            &[libc::ESTALE, libc::EEXIST]
        } else {
            &[libc::ESTALE]
        };
        let look = || {
            let way = self.way(&at)?;
            match self.open_at_once(&way, how)? {
                NamedHandle::File(handle) => Ok(Looked::Opened(handle)),
                NamedHandle::Absent => Ok(Looked::Reached(Reached { way, stat: None })),
                NamedHandle::Unsure => self.reach_by(way, how.follows(), made).map(Looked::Reached),
            }
        };
        Self::again(changed, look, |looked| match looked {
            Looked::Opened(handle) => Ok(Opened::File(handle)),
            Looked::Reached(Reached { way, stat: None }) => self.create(&way, how),
            Looked::Reached(Reached { way, stat: Some(stat) }) => {
                Ok(self.open_reached(&way, &stat, how)?)
            }
        })
    }

    /// Opens what most calls open, in one look: a file that the caller may open so, by its name.
    /// Whatever else it is, the way is followed to it.
    fn open_at_once(&self, way: &Way<'_>, how: How) -> Answer<NamedHandle> {
        const USUAL: i32 = libc::O_ACCMODE
            | libc::O_APPEND
            | libc::O_CLOEXEC
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_NOFOLLOW
            | libc::O_NONBLOCK
            | libc::O_LARGEFILE
            | libc::O_TRUNC;
        let is_usual = how.flags & !USUAL == 0 && way.last == Last::Name && !way.slash;
        let rights = how.rights();
        if !is_usual || rights & WRITE != 0 && self.fs.is_read_only() || engram::in_batch() {
            return Ok(NamedHandle::Unsure);
        }
        let Some((gid, name)) = self.fs.member_place(way.folder.ino, way.name()) else {
            return Ok(NamedHandle::Unsure);
        };
        let may_make = || {
            self.check_writable().is_ok() && self.caller.may(WRITE | SEARCH, &way.folder.protection)
        };
        // What is to be new is made: it refuses if it is there, as a look would.
        let is_new = how.has(libc::O_CREAT) && how.has(libc::O_EXCL);
        let found = if is_new {
            if may_make() { NamedHandle::Absent } else { NamedHandle::Unsure }
        } else {
            let may_open = |_, owner, properties: &[u8]| {
                let node = self.fs.protection_of(owner, properties);
                let may = |node: Protection| {
                    node.kind == NodeKind::File && self.caller.may(rights, &node)
                };
                !how.has(libc::O_TRUNC) && node.is_some_and(may)
            };
            let found = self.fs.open_named(gid, name, how.opened(), &may_open);
            found.unwrap_or(NamedHandle::Unsure)
        };
        match found {
            NamedHandle::Absent if self.fs.find_shown(way.folder.ino, gid, name)?.is_some() => {
                Ok(NamedHandle::Unsure)
            }
            found => Ok(found),
        }
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
        let (maker, above) = (self.caller.maker(), (folder.protection.mode, folder.protection.gid));
        let handle = self.fs.create_in(folder.ino, above, way.name(), mode, how.opened(), maker)?;
        Ok(Opened::File(handle))
    }

    /// Opens what a path leads to; by `do_open`.
    fn open_reached(&self, way: &Way<'_>, stat: &Stat, how: How) -> Result<Opened> {
        if how.has(libc::O_CREAT) && how.has(libc::O_EXCL) {
            refuse!(EEXIST, "the name is there already, and was to be new");
        }
        how.check_made(stat)?;
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
            kind => refuse!(
                ENXIO,
                "a {kind:?} in a pool has nobody at its other end: make it elsewhere, or open it \
                 on a mount"
            ),
        }
    }
}
