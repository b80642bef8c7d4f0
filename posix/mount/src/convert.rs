//! What the kernel and `Fs` say in different words: attributes, times, kinds of nodes, errors.

use std::time::{Duration, SystemTime};

use engram_fs::{Errno, Maker, NodeKind, Stat, Time};
use fuser::{FileAttr, FileType, INodeNo, ReplyXattr, Request, TimeOrNow};

/// The size by which the kernel is told of space.
pub const BLOCK: u32 = 4096;

/// The number of an error.
pub fn errno(error: &Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.code)
}

/// Whose it is to be what a request makes.
pub fn maker(request: &Request) -> Maker {
    Maker { uid: request.uid(), gid: request.gid() }
}

/// A time before 1970 or after.
fn time_of(at: i64) -> SystemTime {
    let since = Duration::from_nanos(at.unsigned_abs());
    if at < 0 { SystemTime::UNIX_EPOCH - since } else { SystemTime::UNIX_EPOCH + since }
}

/// Nanoseconds since 1970.
fn ns_of(at: SystemTime) -> i64 {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |before| -before)
        }
    }
}

/// A time that is to be set.
pub fn to_set(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::Now => Time::Now,
        TimeOrNow::SpecificTime(at) => Time::At(ns_of(at)),
    }
}

/// The kind of a node.
pub fn type_of(kind: NodeKind) -> FileType {
    match kind {
        NodeKind::File => FileType::RegularFile,
        NodeKind::Folder => FileType::Directory,
        NodeKind::Symlink => FileType::Symlink,
        NodeKind::Fifo => FileType::NamedPipe,
        NodeKind::Socket => FileType::Socket,
        NodeKind::CharDevice => FileType::CharDevice,
        NodeKind::BlockDevice => FileType::BlockDevice,
    }
}

/// What is known of a node.
pub fn attr_of(stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(stat.ino),
        size: stat.size,
        blocks: stat.blocks,
        atime: time_of(stat.accessed),
        mtime: time_of(stat.written),
        ctime: time_of(stat.changed),
        crtime: time_of(stat.created),
        kind: type_of(stat.kind),
        perm: stat.mode,
        nlink: stat.nlink,
        uid: stat.uid,
        gid: stat.gid,
        rdev: stat.rdev as u32,
        blksize: BLOCK,
        flags: 0,
    }
}

/// Gives an attribute, or how long it is.
pub fn give(reply: ReplyXattr, value: &[u8], size: u32) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() <= size as usize {
        reply.data(value);
    } else {
        reply.error(fuser::Errno::from_i32(libc::ERANGE));
    }
}
