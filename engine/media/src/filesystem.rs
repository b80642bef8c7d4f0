//! Which filesystems may carry a device, and what they promise.
//!
//! By allow-list: tmpfs, ext4 and xfs keep what the engine needs, which is `fallocate` that gives
//! real blocks, shared mappings that every process sees at once, and `msync` that reaches the
//! disk. A filesystem that is not known to keep it can be forced, by someone who knows; one over a
//! network cannot, because its shared mappings are not shared between nodes, and a lock or a map
//! that seems to work destroys the pool later. Every refusal says why.
//!
//! The kernel's magic number is not enough: ext2, ext3 and ext4 share one, devtmpfs has tmpfs's,
//! and every FUSE filesystem has the same. So the type's name is read from the row of
//! the thread's mountinfo that has the file's mount id; the magic serves where there is no /proc.

use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::cgroup::Limit;
use engram_base::error::{Error, Result};
use engram_base::fail;

/// tmpfs's magic number (devtmpfs has it too).
const TMPFS: u64 = 0x0102_1994;
/// ramfs's magic number.
const RAMFS: u64 = 0x8584_58F6;
/// hugetlbfs's magic number.
const HUGETLBFS: u64 = 0x9584_58F6;
/// The magic number that ext2, ext3 and ext4 share.
const EXT: u64 = 0xEF53;
/// xfs's magic number.
const XFS: u64 = 0x5846_5342;

/// A filesystem, as far as the engine treats it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsKind {
    /// Memory that looks like files.
    Tmpfs,
    /// The fourth extended filesystem.
    Ext4,
    /// XFS.
    Xfs,
    /// Any other, used by force.
    Other,
}

/// What a path is mounted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The filesystem, as far as it matters here.
    pub kind: FsKind,
    /// The filesystem's name as the kernel gives it, such as `ext4`.
    pub name: String,
    /// Whether what is flushed survives power loss.
    pub durable: bool,
}

/// What the engine thinks of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It carries a pool.
    Allowed(FsKind),
    /// Only with force; the reason.
    Forced(&'static str),
    /// Never; the reason.
    Refused(&'static str),
}

/// What a path is on, whether that may carry a device or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The filesystem's name as the kernel gives it.
    pub name: String,
    /// Whether it may carry a device, and why not.
    pub verdict: Verdict,
    /// Whether what is flushed survives power loss, as far as the filesystem decides it.
    pub durable: bool,
    /// Where it is mounted, and its own options; `None` where there is no /proc.
    pub mounted: Option<(String, String)>,
}

const NO_SHARING: &str = "its shared mappings are not shared between nodes, so two processes \
                          could each see a pool that the other does not";
const USER_SPACE: &str = "a program in user space decides what its mappings, locks and flushes \
                          do, often over a network, and the engine cannot tell which";
const UNTESTED: &str = "nobody has tested that it gives allocated space that stays allocated";
const COPY_ON_WRITE: &str = "it writes in a new place each time, so space that was allocated can \
                             still run out, and that is a SIGBUS instead of an error";
const LAYERED: &str = "what it promises depends on the filesystem below it, which cannot be seen; \
                       put the pool on a volume of that filesystem instead";
const OLD_EXT: &str = "it has no fallocate; convert it to ext4";
const KERNEL_OWN: &str = "it holds the kernel's own files";

/// Filesystems by name, with the magic number that serves where the name cannot be had (0: none).
const KNOWN: &[(&str, u64, Verdict)] = &[
    ("tmpfs", TMPFS, Verdict::Allowed(FsKind::Tmpfs)),
    ("ext4", 0, Verdict::Allowed(FsKind::Ext4)),
    ("xfs", XFS, Verdict::Allowed(FsKind::Xfs)),
    ("ext2", 0, Verdict::Forced(OLD_EXT)),
    ("ext3", 0, Verdict::Forced(OLD_EXT)),
    ("ext2/ext3/ext4", EXT, Verdict::Forced("without /proc ext4 cannot be told from ext2 and 3")),
    ("devtmpfs", 0, Verdict::Forced(KERNEL_OWN)),
    ("ramfs", RAMFS, Verdict::Forced("it has no fallocate and no bound; mount a tmpfs instead")),
    ("hugetlbfs", HUGETLBFS, Verdict::Forced(UNTESTED)),
    ("btrfs", 0x9123_683E, Verdict::Forced(COPY_ON_WRITE)),
    ("zfs", 0x2FC1_2FC1, Verdict::Forced(COPY_ON_WRITE)),
    ("bcachefs", 0xCA45_1A4E, Verdict::Forced(COPY_ON_WRITE)),
    ("f2fs", 0xF2F5_2010, Verdict::Forced(COPY_ON_WRITE)),
    ("nilfs2", 0x3434, Verdict::Forced(COPY_ON_WRITE)),
    ("overlay", 0x794C_7630, Verdict::Forced(LAYERED)),
    ("ecryptfs", 0xF15F, Verdict::Forced(LAYERED)),
    ("nfs", 0x6969, Verdict::Refused(NO_SHARING)),
    ("nfs4", 0, Verdict::Refused(NO_SHARING)),
    ("cifs", 0xFF53_4D42, Verdict::Refused(NO_SHARING)),
    ("smb3", 0xFE53_4D42, Verdict::Refused(NO_SHARING)),
    ("smbfs", 0x517B, Verdict::Refused(NO_SHARING)),
    ("lustre", 0x0BD0_0BD0, Verdict::Refused(NO_SHARING)),
    ("gpfs", 0x4750_4653, Verdict::Refused(NO_SHARING)),
    ("9p", 0x0102_1997, Verdict::Refused(NO_SHARING)),
    ("ceph", 0x00C3_6400, Verdict::Refused(NO_SHARING)),
    ("beegfs", 0x1983_0326, Verdict::Refused(NO_SHARING)),
    ("afs", 0x5346_414F, Verdict::Refused(NO_SHARING)),
    ("kafs", 0x6B41_4653, Verdict::Refused(NO_SHARING)),
    ("coda", 0x7375_7245, Verdict::Refused(NO_SHARING)),
    ("orangefs", 0x2003_0528, Verdict::Refused(NO_SHARING)),
    ("pvfs2", 0, Verdict::Refused(NO_SHARING)),
    ("panfs", 0xAAD7_AAEA, Verdict::Refused(NO_SHARING)),
    ("ocfs2", 0x7461_636F, Verdict::Refused(NO_SHARING)),
    ("gfs2", 0x0116_1970, Verdict::Refused(NO_SHARING)),
    ("wekafs", 0, Verdict::Refused(NO_SHARING)),
    ("virtiofs", 0, Verdict::Refused(NO_SHARING)),
    ("fuse", 0x6573_5546, Verdict::Refused(USER_SPACE)),
    ("fuseblk", 0, Verdict::Refused(USER_SPACE)),
];

/// Asks whether a device may lie at `path`, which exists, and what its filesystem promises.
///
/// On error nothing has changed: `Unsupported` names the filesystem and the reason; where it says
/// so, `force` overrides it.
pub fn admit(path: &Path, force: bool) -> Result<Mount> {
    let shown = path.display();
    let Standing { name, verdict, durable, .. } = look(path)?;
    let kind = match verdict {
        Verdict::Allowed(kind) => kind,
        Verdict::Forced(_) if force => FsKind::Other,
        Verdict::Forced(reason) => fail!(
            Unsupported,
            "{shown} is on {name}, which is not known to carry a pool: {reason}; use tmpfs, ext4 \
             or xfs, or force it (force=True)"
        ),
        Verdict::Refused(reason) => fail!(
            Unsupported,
            "{shown} is on {name}, which cannot carry a pool: {reason}; use tmpfs, ext4 or xfs on \
             this node"
        ),
    };
    Ok(Mount { kind, name, durable })
}

/// Says what `path`, which exists, is on.
pub fn look(path: &Path) -> Result<Standing> {
    let shown = path.display();
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
        .map_err(|e| Error::os(format_args!("cannot look at {shown}"), &e))?;
    let magic = magic(file.as_raw_fd())
        .map_err(|e| Error::os(format_args!("cannot ask what filesystem {shown} is on"), &e))?;
    let row = mounted(file.as_raw_fd());
    let (name, verdict) = classify(magic, row.as_ref().map(|(fstype, ..)| fstype.as_str()));
    let durable = !matches!(name.as_str(), "tmpfs" | "devtmpfs" | "ramfs" | "hugetlbfs");
    let mounted = row.map(|(_, point, options)| (point, options));
    Ok(Standing { name, verdict, durable, mounted })
}

/// What can still be allocated on a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    /// So many bytes.
    pub bytes: u64,
    /// What keeps it from being more, where that is not the filesystem but a limit of memory.
    pub bound: Option<Limit>,
}

impl Free {
    /// What this has, of a filesystem that has so many bytes free.
    fn within(filesystem: u64, limit: Option<Limit>) -> Self {
        let bound = limit.filter(|limit| limit.headroom() < filesystem);
        let bytes = bound.as_ref().map_or(filesystem, Limit::headroom);
        Free { bytes, bound }
    }

    /// What to do where there is no room: about the limit that binds, which is named, or about what
    /// lies on the filesystem.
    pub fn remedy(&self) -> String {
        match &self.bound {
            Some(limit) => format!(
                "{limit}: raise that limit, free memory, or add a device on a disk \
                 (pool.add_device)"
            ),
            None => "delete files there, or add a device (pool.add_device)".to_owned(),
        }
    }
}

/// The bytes that this user can still allocate on the filesystem at `path`; in memory, no more than
/// there is and than the memory cgroups allow.
pub fn free_bytes(path: &Path) -> Result<u64> {
    free(path).map(|free| free.bytes)
}

/// Whether the filesystem at `path` has less than so many bytes free, whatever memory there is: one
/// system call.
pub fn is_short_of(path: &Path, bytes: u64) -> Result<bool> {
    Ok(free_of(&statfs(path)?) < bytes)
}

/// The same as [`free_bytes`], with what bounds it.
pub fn free(path: &Path) -> Result<Free> {
    let stat = statfs(path)?;
    let limit = if in_memory(stat.f_type as u64) { super::cgroup::least() } else { None };
    Ok(Free::within(free_of(&stat), limit))
}

fn statfs(path: &Path) -> Result<libc::statfs> {
    let shown = path.display();
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| {
        Error::new(
            engram_base::error::Kind::InvalidName,
            format!("the path {shown} contains a NUL byte"),
        )
    })?;
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `name` ends in NUL and `stat` has the size that the call writes.
    let rc = unsafe { libc::statfs(name.as_ptr(), stat.as_mut_ptr()) };
    if rc != 0 {
        return Err(Error::last_os(format_args!("cannot ask for free space at {shown} (statfs)")));
    }
    // SAFETY: the call succeeded, so it has filled `stat`.
    Ok(unsafe { stat.assume_init() })
}

fn free_of(stat: &libc::statfs) -> u64 {
    // A tmpfs with size=0 has no bound at all.
    if in_memory(stat.f_type as u64) && stat.f_blocks == 0 {
        return u64::MAX;
    }
    // They are signed in glibc, and unsigned in musl.
    let block = if stat.f_frsize > 0 { stat.f_frsize } else { stat.f_bsize };
    stat.f_bavail.saturating_mul(block as u64)
}

/// Whether a filesystem with this magic number keeps its files in memory alone.
pub(super) const fn in_memory(magic: u64) -> bool {
    // Magic numbers are 32 bits; some of them arrive sign-extended.
    matches!(magic & 0xFFFF_FFFF, TMPFS | RAMFS | HUGETLBFS)
}

/// The magic number of the filesystem that an open file is on.
pub(super) fn magic(fd: RawFd) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: `stat` has the size that the call writes; a bad `fd` is an error.
    if unsafe { libc::fstatfs(fd, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it has filled `stat`.
    let stat = unsafe { stat.assume_init() };
    // Magic numbers are 32 bits; some of them arrive sign-extended.
    Ok(stat.f_type as u64 & 0xFFFF_FFFF)
}

/// The name and the verdict for a filesystem, by its type's name where that is known.
fn classify(magic: u64, type_name: Option<&str>) -> (String, Verdict) {
    if let Some(full) = type_name {
        // "fuse.sshfs" is a "fuse".
        let base = full.split('.').next().unwrap_or(full);
        let known = KNOWN.iter().find(|(name, ..)| *name == full || *name == base);
        return (full.to_owned(), known.map_or(Verdict::Forced(UNTESTED), |(.., v)| *v));
    }
    match KNOWN.iter().find(|(_, m, _)| *m != 0 && *m == magic) {
        Some((name, _, verdict)) => ((*name).to_owned(), *verdict),
        None => (format!("a filesystem of type {magic:#x}"), Verdict::Forced(UNTESTED)),
    }
}

/// The type, the place and the options of the mount that an open file is on, if /proc tells.
fn mounted(fd: RawFd) -> Option<(String, String, String)> {
    let info = fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let row = mounts.lines().filter_map(MountRow::parse).find(|row| row.id == id)?;
    Some((row.fstype.to_owned(), row.point, row.options.to_owned()))
}

/// One row of /proc/self/mountinfo: the fields that the engine reads.
pub(super) struct MountRow<'a> {
    pub id: &'a str,
    /// The part of the filesystem that the mount shows.
    pub root: String,
    /// Where it is mounted.
    pub point: String,
    pub fstype: &'a str,
    /// The filesystem's own options.
    pub options: &'a str,
}

impl<'a> MountRow<'a> {
    /// Reads `id parent major:minor root point options [tags…] - fstype source options`.
    pub fn parse(line: &'a str) -> Option<MountRow<'a>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ');
        let id = before.next()?;
        let root = unescape(before.nth(2)?);
        let point = unescape(before.next()?);
        let mut after = after.split(' ');
        let fstype = after.next()?;
        let options = after.nth(1).unwrap_or("");
        Some(MountRow { id, root, point, fstype, options })
    }
}

/// Undoes the kernel's `\040` for blanks and the like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match code.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
