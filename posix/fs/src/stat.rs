//! What is known of a node.

use engram::{GroupInfo, GroupTimes, ObjectInfo, Properties};

use crate::errno::Result;
use crate::fs::Ino;
use crate::properties::PosixProperties;

/// What kind of node something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NodeKind {
    /// Bytes.
    File = 1,
    /// Names.
    Folder = 2,
    /// A path.
    Symlink = 3,
    /// A FIFO.
    Fifo = 4,
    /// A socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

impl NodeKind {
    /// The kind that a byte on media stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        use NodeKind::{BlockDevice, CharDevice, Fifo, File, Folder, Socket, Symlink};
        [File, Folder, Symlink, Fifo, Socket, CharDevice, BlockDevice]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// The kind that the upper bits of a mode say, as `mknod` is given it.
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            0 | libc::S_IFREG => NodeKind::File,
            libc::S_IFDIR => NodeKind::Folder,
            libc::S_IFLNK => NodeKind::Symlink,
            libc::S_IFIFO => NodeKind::Fifo,
            libc::S_IFSOCK => NodeKind::Socket,
            libc::S_IFCHR => NodeKind::CharDevice,
            libc::S_IFBLK => NodeKind::BlockDevice,
            _ => return None,
        })
    }
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its number: an OID, a GID, or [`crate::ROOT`].
    pub ino: Ino,
    /// What kind of node it is.
    pub kind: NodeKind,
    /// The permissions, with set-user-id, set-group-id and sticky bits.
    pub mode: u16,
    /// How many names it has; of a folder two, and one for each folder in it.
    pub nlink: u32,
    /// Whose it is.
    pub uid: u32,
    /// Which group's.
    pub gid: u32,
    /// The device, of a special file.
    pub rdev: u64,
    /// How many bytes it has.
    pub size: u64,
    /// How many units of 512 bytes it takes.
    pub blocks: u64,
    /// When it was read, as far as anybody has said so, in ns since 1970.
    pub accessed: i64,
    /// When it was written.
    pub written: i64,
    /// When anything of it changed.
    pub changed: i64,
    /// When it was made.
    pub created: i64,
}

/// What holds where a record says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// The namespace's mode.
    pub mode: u16,
    /// The namespace's group.
    pub gid: u32,
}

/// The kind of an object.
pub(crate) fn kind_of(info: &ObjectInfo) -> Result<NodeKind> {
    match Properties::parse(&info.properties)? {
        Some(kept) => PosixProperties::parse(kept.rest).map(|posix| posix.kind),
        None => Ok(NodeKind::File),
    }
}

impl Defaults {
    /// What a file system keeps of an object, or what holds where it keeps nothing.
    pub(crate) fn of_object(self, properties: &[u8]) -> Result<PosixProperties> {
        match Properties::parse(properties)? {
            Some(kept) => PosixProperties::parse(kept.rest),
            None => Ok(self.of_bare_object()),
        }
    }

    fn of_bare_object(self) -> PosixProperties {
        let (mode, gid) = (self.mode & 0o666, self.gid);
        PosixProperties { kind: NodeKind::File, mode, gid, rdev: 0 }
    }

    /// The mode and the group of a group.
    pub(crate) fn of_group(self, info: &GroupInfo) -> Result<(u16, u32)> {
        match Properties::parse(&info.properties)? {
            Some(kept) => PosixProperties::parse(kept.rest).map(|posix| (posix.mode, posix.gid)),
            None => Ok((self.mode & 0o7777, self.gid)),
        }
    }
}

impl Stat {
    /// Of an object, with this many names.
    pub(crate) fn of_object(info: &ObjectInfo, nlink: u32, defaults: Defaults) -> Result<Stat> {
        let kept = Properties::parse(&info.properties)?;
        let posix = match kept {
            Some(kept) => PosixProperties::parse(kept.rest)?,
            None => defaults.of_bare_object(),
        };
        let mut stat = Stat {
            ino: info.oid,
            kind: posix.kind,
            mode: posix.mode,
            nlink,
            uid: info.owner,
            gid: posix.gid,
            rdev: posix.rdev,
            size: info.nbytes,
            blocks: info.nbytes.div_ceil(512),
            accessed: info.modified,
            written: info.modified,
            changed: info.modified,
            created: info.created,
        };
        if let Some(head) = info.head {
            stat.blocks = head.space / 512;
            stat.accessed = head.accessed;
            stat.written = head.written;
            stat.changed = head.changed.max(info.modified);
        } else if let Some(kept) = kept {
            (stat.accessed, stat.written) = (kept.accessed, kept.written);
        }
        Ok(stat)
    }

    /// Of a group. Where no file system has had to do with it, `groups` are counted in it.
    pub(crate) fn of_group(
        info: &GroupInfo,
        ino: Ino,
        times: Option<GroupTimes>,
        groups: impl FnOnce() -> Result<u32>,
        defaults: Defaults,
    ) -> Result<Stat> {
        let kept = Properties::parse(&info.properties)?;
        let (mode, gid) = defaults.of_group(info)?;
        let groups = match times {
            Some(times) => times.groups,
            None => groups()?,
        };
        Ok(Stat {
            ino,
            kind: NodeKind::Folder,
            mode,
            nlink: groups.saturating_add(2),
            uid: info.owner,
            gid,
            rdev: 0,
            size: 4096,
            blocks: 8,
            accessed: kept.map_or(info.modified, |kept| kept.accessed),
            written: times.map_or(info.modified, |times| times.written),
            changed: times.map_or(info.modified, |times| times.changed.max(info.modified)),
            created: info.created,
        })
    }

    /// The mode with the bits of the kind, as `stat` gives it.
    pub fn full_mode(&self) -> u32 {
        let kind = match self.kind {
            NodeKind::File => libc::S_IFREG,
            NodeKind::Folder => libc::S_IFDIR,
            NodeKind::Symlink => libc::S_IFLNK,
            NodeKind::Fifo => libc::S_IFIFO,
            NodeKind::Socket => libc::S_IFSOCK,
            NodeKind::CharDevice => libc::S_IFCHR,
            NodeKind::BlockDevice => libc::S_IFBLK,
        };
        kind | u32::from(self.mode)
    }
}
