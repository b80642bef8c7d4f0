//! Files of a namespace: open ones, their further names, and what POSIX says of a member.

use std::ffi::OsString;
use std::sync::{Mutex, PoisonError};

use engram::{File as EngineFile, LockMode, Member, NewObject, Oid, Seek};
use engram_fs::properties::PosixProperties;
use engram_fs::{Fs, Ino, Maker, NodeKind, Stat};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{Result, argument};
use crate::member::{self, NewMember};
use crate::namespace::Namespace;
use crate::value::{self, Name};
use crate::view;

/// A file that is open.
#[pyclass(frozen, module = "engram._engram")]
pub struct File {
    /// `None` once it is closed.
    file: Mutex<Option<EngineFile>>,
}

impl File {
    fn open(&self) -> Result<EngineFile> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).clone();
        file.ok_or_else(|| argument("the file is closed: open it again"))
    }
}

#[pymethods]
impl File {
    /// Opens an object as a file.
    #[new]
    fn new(py: Python<'_>, namespace: &Namespace, oid: Oid, write: bool) -> Result<Self> {
        let engine = namespace.engine();
        let file = py.detach(|| engine.open_file(oid, write))?;
        Ok(File { file: Mutex::new(Some(file)) })
    }

    /// Fills an array of bytes from an offset on; how many there were.
    fn read_into(
        &self,
        py: Python<'_>,
        offset: u64,
        into: &Bound<'_, PyUntypedArray>,
    ) -> Result<usize> {
        let file = self.open()?;
        view::fill(py, into, |bytes| file.read_at(offset, bytes))
    }

    /// Writes an array of bytes at an offset; behind the end, where that is None. Where it began.
    fn write(
        &self,
        py: Python<'_>,
        offset: Option<u64>,
        data: &Bound<'_, PyUntypedArray>,
    ) -> Result<u64> {
        let file = self.open()?;
        let Some(bytes) = view::bytes_of(data) else {
            return Err(argument("what is written to a file lies in one piece"));
        };
        Ok(py.detach(|| match offset {
            Some(offset) => file.write_at(offset, bytes).map(|()| offset),
            None => file.append(bytes),
        })?)
    }

    /// How many bytes it has.
    fn size(&self) -> Result<u64> {
        Ok(self.open()?.size()?)
    }

    /// Gives it another size.
    fn set_size(&self, py: Python<'_>, size: u64) -> Result<()> {
        let file = self.open()?;
        Ok(py.detach(|| file.set_size(size))?)
    }

    /// Makes what anybody has written to it as durable as the pool is.
    fn sync(&self, py: Python<'_>) -> Result<()> {
        let file = self.open()?;
        Ok(py.detach(|| file.sync())?)
    }

    /// Gives a range space of its own.
    fn allocate(&self, py: Python<'_>, offset: u64, nbytes: u64) -> Result<()> {
        let file = self.open()?;
        Ok(py.detach(|| file.allocate(offset, nbytes, false))?)
    }

    /// Makes a range a hole.
    fn punch(&self, py: Python<'_>, offset: u64, nbytes: u64) -> Result<()> {
        let file = self.open()?;
        Ok(py.detach(|| file.punch(offset, nbytes))?)
    }

    /// Where the next data, or the next hole, begins, at or after an offset; None if the file ends
    /// before.
    fn seek(&self, data: bool, offset: u64) -> Result<Option<u64>> {
        let what = if data { Seek::Data } else { Seek::Hole };
        Ok(self.open()?.seek(what, offset)?)
    }

    /// Its pieces: (offset in the file, bytes) of each.
    fn segments(&self) -> Result<Vec<(u64, u64)>> {
        let segments = self.open()?.segments()?;
        Ok(segments.iter().map(|segment| (segment.at, segment.end() - segment.at)).collect())
    }

    /// Locks of it for one taker, who has none yet.
    fn range_locks(&self) -> Result<RangeLocks> {
        let file = self.open()?;
        Ok(RangeLocks { ranges: Mutex::new(Some((file.range_locks()?, file))) })
    }

    /// Lets go of it; what this process has open of it otherwise stays so.
    fn close(&self, py: Python<'_>) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(file));
    }
}

/// One taker's locks of a file.
#[pyclass(frozen, module = "engram._engram")]
pub struct RangeLocks {
    /// `None` once they are let go of. What they stand for goes with the file.
    ranges: Mutex<Option<(engram::RangeLocks, EngineFile)>>,
}

#[pymethods]
impl RangeLocks {
    /// Locks all of the file; false if others have locked some of it.
    fn try_lock(&self, write: bool) -> Result<bool> {
        let mode = if write { LockMode::Write } else { LockMode::Read };
        match &*self.ranges.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((ranges, _)) => Ok(ranges.try_lock(mode, 0, 0)?),
            None => Err(argument("the lock was let go of: take another")),
        }
    }

    /// Lets go of it.
    fn release(&self) {
        drop(self.ranges.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Creates an empty file with permissions of its own; or, of none, with the namespace's. Its OID.
#[pyfunction]
pub fn create_file(
    py: Python<'_>,
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
    mode: Option<u32>,
    new: &Bound<'_, PyTuple>,
) -> Result<Oid> {
    let new = member::fields(new)?;
    let new = NewMember::of(&new)?;
    let place = new.placement(namespace)?;
    let attrs = value::attributes_of(new.attrs)?;
    let properties = match mode {
        Some(mode) => {
            let now = engram_fs::now()?;
            let Maker { gid, .. } = Maker::this_process()?;
            let mode = mode as u16;
            let posix = PosixProperties { kind: NodeKind::File, mode, gid, rdev: 0 };
            posix.section(now, now)
        }
        None => Vec::new(),
    };
    let object = NewObject { attrs, properties, ..NewObject::blob() };
    let engine = namespace.engine();
    Ok(py.detach(|| engine.put(parent, path.0, &object, b"", place))?)
}

/// Gives an object a further name in a group.
#[pyfunction]
pub fn link(
    py: Python<'_>,
    namespace: &Namespace,
    oid: Oid,
    parent: u64,
    name: Name<'_>,
) -> Result<()> {
    let engine = namespace.engine();
    Ok(py.detach(|| engine.link(oid, parent, name.0))?)
}

/// Makes a symbolic link in a group; its OID.
#[pyfunction]
pub fn symlink(
    py: Python<'_>,
    namespace: &Namespace,
    parent: u64,
    name: Name<'_>,
    target: &str,
) -> Result<Oid> {
    let fs = files_of(namespace)?;
    let parent = fs.ino_of(Member::Group(parent));
    let maker = Maker::this_process()?;
    let made = py.detach(|| fs.symlink(parent, name.0.as_bytes(), target.as_bytes(), maker));
    Ok(made?.ino)
}

/// Follows a path from a group, through symbolic links, to what is not one: its OID, or None if
/// there is nothing; and the group and the name to which the path leads.
#[pyfunction]
pub fn follow(
    namespace: &Namespace,
    parent: u64,
    path: Name<'_>,
) -> Result<(Option<Oid>, u64, String)> {
    let fs = files_of(namespace)?;
    let from = fs.ino_of(Member::Group(parent));
    let found = fs.walk(from, path.0.trim_start_matches('/'))?;
    let oid = match found.stat {
        Some(stat) if stat.kind == NodeKind::Folder => {
            return Err(argument(format!("{:?} is a group, and no file", path.0)));
        }
        Some(stat) => Some(stat.ino),
        None => None,
    };
    let group = if found.parent == engram_fs::ROOT { namespace.root_gid() } else { found.parent };
    Ok((oid, group, found.name))
}

/// What POSIX says of a member.
#[pyclass(frozen, get_all, module = "engram._engram")]
pub struct Posix {
    /// "file", "folder", "symlink", "fifo", "socket", "char device" or "block device".
    kind: &'static str,
    /// The permissions, with set-user-id, set-group-id and sticky bits.
    mode: u16,
    /// The user's number.
    uid: u32,
    /// The group's number.
    gid: u32,
    /// How many names it has.
    nlink: u32,
    /// How many bytes it has.
    size: u64,
    /// When it was written, in ns since 1970.
    mtime_ns: i64,
    /// When it was read, as far as anybody has said so, in ns since 1970.
    atime_ns: i64,
    /// When anything of it changed, in ns since 1970.
    ctime_ns: i64,
    /// The inode's number.
    ino: u64,
}

#[pymethods]
impl Posix {
    fn __repr__(&self) -> String {
        let Posix { kind, mode, uid, gid, nlink, size, ino, .. } = self;
        format!(
            "<engram.Posix {kind} mode=0o{mode:o} uid={uid} gid={gid} nlink={nlink} size={size} \
             ino={ino}>"
        )
    }
}

/// What POSIX says of a member.
#[pyfunction]
pub fn posix_of(namespace: &Namespace, is_group: bool, member: u64) -> Result<Posix> {
    let fs = files_of(namespace)?;
    let member = if is_group { Member::Group(member) } else { Member::Object(member) };
    let ino: Ino = fs.ino_of(member);
    let stat = fs.stat(ino)?;
    Ok(Posix {
        kind: kind_name(stat),
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.nlink,
        size: stat.size,
        mtime_ns: stat.written,
        atime_ns: stat.accessed,
        ctime_ns: stat.changed,
        ino,
    })
}

fn kind_name(stat: Stat) -> &'static str {
    match stat.kind {
        NodeKind::File => "file",
        NodeKind::Folder => "folder",
        NodeKind::Symlink => "symlink",
        NodeKind::Fifo => "fifo",
        NodeKind::Socket => "socket",
        NodeKind::CharDevice => "char device",
        NodeKind::BlockDevice => "block device",
    }
}

/// Mounts as the arguments of `engram-mount` say, and serves until the end.
#[pyfunction]
pub fn serve_mount(py: Python<'_>, arguments: Vec<OsString>) -> Result<()> {
    Ok(py.detach(|| engram_mount::run(arguments.into_iter()))?)
}

fn files_of(namespace: &Namespace) -> Result<&Fs> {
    // What the program should be told is told first.
    namespace.engine();
    namespace.files()
}

impl From<engram_fs::Errno> for crate::error::Failure {
    fn from(error: engram_fs::Errno) -> Self {
        engram::Error::from(error).into()
    }
}
