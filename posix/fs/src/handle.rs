//! Bytes of an open file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use engram::{
    Class, File, FilePiece, Kind, Layout, Member, NamedFile, Namespace, ObjectInfo, Payload,
    Permit, Seek, View,
};

use crate::changes::{Changes, Time};
use crate::errno::{Errno, Result, gone_is_stale, refuse};
use crate::fs::{Fs, Ino, now};
use crate::stat::{Defaults, NodeKind, Stat};

/// So much is copied from file to file at a time.
const COPY_PIECE: u64 = 1 << 20;
/// What is mapped begins and ends with one of these.
const PAGE: u64 = 4096;

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "open's own flags, one each")]
pub struct OpenFlags {
    /// To be read.
    pub read: bool,
    /// To be written.
    pub write: bool,
    /// What is written goes behind the end.
    pub append: bool,
    /// It is made empty first.
    pub truncate: bool,
}

impl OpenFlags {
    /// Those of `open`.
    pub fn of(flags: i32) -> OpenFlags {
        let access = flags & libc::O_ACCMODE;
        OpenFlags {
            read: access != libc::O_WRONLY,
            write: access != libc::O_RDONLY,
            append: flags & libc::O_APPEND != 0,
            truncate: flags & libc::O_TRUNC != 0,
        }
    }
}

/// What `seek` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// Data.
    Data,
    /// A hole.
    Hole,
}

/// What an open file's bytes are.
enum Body {
    /// A blob's, or those of an array in one piece.
    File(File),
    /// A chunked array's, in C order; for reading.
    Chunked(Namespace, Box<ObjectInfo>),
    /// Some that stand in no record as they are; for reading.
    Shown(Vec<u8>),
    /// These, and then an array's.
    Prefixed(Vec<u8>, File),
}

/// What all descriptions of a file have in common that are open here.
pub(crate) struct HandleCore {
    fs: Fs,
    pub ino: Ino,
    body: Body,
    writable: bool,
    /// Whether it is taken off the list of open files when it is dropped.
    listed: AtomicBool,
}

/// What opening a file by its name has found.
pub(crate) enum NamedHandle {
    /// The file.
    File(Handle),
    /// No member has the name.
    Absent,
    /// It takes a look to say.
    Unsure,
}

/// A file that is open. Cheap to clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Handle {
    pub(crate) core: Arc<HandleCore>,
    append: bool,
    flags: OpenFlags,
}

impl Fs {
    /// Opens an object's bytes.
    pub(crate) fn open_object(&self, oid: u64, flags: OpenFlags) -> Result<Handle> {
        if let Some(core) = self.open_core(oid)
            && (core.writable || !flags.write)
        {
            return Ok(Handle { core, append: flags.append, flags });
        }
        let namespace = self.namespace();
        let body = match namespace.open_file(oid, flags.write) {
            Ok(file) => Body::File(file),
            Err(error) if error.kind() == Kind::Unsupported && !flags.write => {
                self.body_of_array(oid)?
            }
            Err(error) if error.kind() == Kind::Unsupported => {
                return Err(Errno::new(libc::EPERM, error.message()));
            }
            Err(error) => return Err(gone_is_stale(error)),
        };
        let core = self.listed(oid, body, flags.write);
        Ok(Handle { core, append: flags.append, flags })
    }

    /// A file that was just made.
    pub(crate) fn made_file(&self, file: File, flags: OpenFlags) -> Handle {
        let oid = file.oid();
        self.note(Member::Object(oid));
        let core = self.listed(oid, Body::File(file), flags.write);
        Handle { core, append: flags.append, flags }
    }

    /// Opens the file of a name in a group, if it may be opened.
    pub(crate) fn open_named(
        &self,
        gid: u64,
        name: &str,
        flags: OpenFlags,
        may_open: &Permit<'_>,
    ) -> Result<NamedHandle> {
        let file = match self.namespace().open_named(gid, name, flags.write, may_open) {
            Ok(NamedFile::File(file)) => file,
            Ok(NamedFile::Absent) => return Ok(NamedHandle::Absent),
            Ok(NamedFile::Unsure) => return Ok(NamedHandle::Unsure),
            Err(error) => return Err(gone_is_stale(error)),
        };
        if let Some(core) = self.open_core(file.oid())
            && (core.writable || !flags.write)
        {
            return Ok(NamedHandle::File(Handle { core, append: flags.append, flags }));
        }
        Ok(NamedHandle::File(self.made_file(file, flags)))
    }

    /// The bytes of an array that lies in no piece of its own.
    fn body_of_array(&self, oid: u64) -> Result<Body> {
        let namespace = self.namespace();
        let info = namespace.object(oid).map_err(gone_is_stale)?;
        if let (Class::Array, Layout::Chunked { .. }) = (info.class, &info.layout) {
            return Ok(Body::Chunked(namespace.clone(), Box::new(info)));
        }
        Ok(Body::Shown(match namespace.payload(oid).map_err(gone_is_stale)?.0 {
            Payload::Inline(bytes) => bytes,
            Payload::Extent(view) => {
                let mut bytes = vec![0; view.len()];
                view.copy_out(0, &mut bytes);
                bytes
            }
        }))
    }

    /// Puts a file on the list of those that are open; one that can be written takes the place of
    /// one that cannot.
    fn listed(&self, ino: Ino, body: Body, writable: bool) -> Arc<HandleCore> {
        let listed = AtomicBool::new(true);
        let core = Arc::new(HandleCore { fs: self.clone(), ino, body, writable, listed });
        let mut open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(ino, Arc::downgrade(&core));
        core
    }

    /// A file that no record has.
    pub(crate) fn shown_bytes(&self, ino: Ino, bytes: Vec<u8>, flags: OpenFlags) -> Handle {
        self.unlisted(ino, Body::Shown(bytes), flags)
    }

    /// An array behind bytes that stand before it.
    pub(crate) fn prefixed(
        &self,
        ino: Ino,
        before: Vec<u8>,
        oid: u64,
        flags: OpenFlags,
    ) -> Result<Handle> {
        let body = match self.namespace().open_file(oid, false) {
            Ok(file) => Body::Prefixed(before, file),
            Err(error) => return Err(gone_is_stale(error)),
        };
        Ok(self.unlisted(ino, body, flags))
    }

    fn unlisted(&self, ino: Ino, body: Body, flags: OpenFlags) -> Handle {
        let listed = AtomicBool::new(false);
        let core = HandleCore { fs: self.clone(), ino, body, writable: false, listed };
        Handle { core: Arc::new(core), append: false, flags }
    }
}

impl Drop for HandleCore {
    fn drop(&mut self) {
        if !self.listed.load(Ordering::Relaxed) {
            return;
        }
        let mut open = self.fs.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.get(&self.ino).is_some_and(|core| core.strong_count() == 0) {
            open.remove(&self.ino);
        }
    }
}

impl HandleCore {
    /// Whether it can be written to.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn file(&self) -> Result<&File> {
        match &self.body {
            Body::File(file) => Ok(file),
            _ => refuse!(EPERM, "node {:#x} is shown for reading", self.ino),
        }
    }

    pub fn set_size(&self, size: u64) -> Result<()> {
        if size > engram::FILE_BYTES_MAX {
            refuse!(EFBIG, "a file has at most {} bytes", engram::FILE_BYTES_MAX);
        }
        let file = self.file()?;
        file.set_size(size).map_err(|error| kept_size(file, error))
    }

    /// Says when it was written and read; `false`: its record has to.
    pub fn set_times(&self, written: Option<i64>, accessed: Option<i64>) -> Result<bool> {
        match &self.body {
            Body::File(file) => Ok(file.set_times(written, accessed)?),
            _ => Ok(false),
        }
    }

    /// Says that it was written now, as Linux does of a range that is given space, also where that
    /// changes nothing.
    fn touch(&self) -> Result<()> {
        if self.set_times(Some(now()?), None)? {
            return Ok(());
        }
        let written = Some(Time::Now);
        match self.fs.change(self.ino, Changes { written, ..Changes::default() }) {
            // It has no name any more, and no record that could say so.
            Err(error) if [libc::ENOENT, libc::ESTALE].contains(&error.code) => Ok(()),
            done => done.map(drop),
        }
    }

    /// What is known of it once it has no name.
    pub fn stat_nameless(&self, defaults: Defaults) -> Result<Stat> {
        Stat::of_object(&self.file()?.info().map_err(gone_is_stale)?, 0, defaults)
    }
}

/// An array's size is not to be changed.
fn kept_size(file: &File, error: engram::Error) -> Errno {
    match error.kind() {
        Kind::Argument if file.is_fixed() => Errno::new(libc::EPERM, error.message()),
        Kind::Argument if error.message().contains("do not fit") => {
            Errno::new(libc::EFBIG, error.message())
        }
        _ => gone_is_stale(error),
    }
}

impl Handle {
    /// The node.
    pub fn ino(&self) -> Ino {
        self.core.ino
    }

    /// The engine's file that it is; `None` of what is only shown.
    pub(crate) fn file(&self) -> Option<&File> {
        match &self.core.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    /// Bytes of the file as memory of the pool: at most so many from a page on, and where in the
    /// file it begins, which is that page, or the start of a file without segments. To be written
    /// to, there is space for all of the file. `None` of what has no memory of its own that whole
    /// pages show.
    pub fn view(&self, from: u64, most: u64, write: bool) -> Result<Option<(u64, View)>> {
        let Some(file) = self.file() else { return Ok(None) };
        if write {
            let size = file.size()?;
            if size > 0 && !file.is_fixed() {
                file.allocate(0, size, true).map_err(|error| kept_size(file, error))?;
            }
        }
        file.clear_end()?;
        let (from, shown) = match file.view_part(from, most, write)? {
            Some(shown) => (from, shown),
            None => match self.core.fs.namespace().view(self.core.ino, write) {
                // By its number only what has a name is found.
                Err(error) if error.kind() == Kind::NotFound && file.is_orphan()? => {
                    return Ok(None);
                }
                view => (0, view.map_err(gone_is_stale)?),
            },
        };
        Ok(match shown {
            Payload::Extent(view) => Some((from, view)),
            Payload::Inline(_) => None,
        })
    }

    /// Whether its memory ends with a page that is its alone: behind a value that was put whole
    /// another may begin.
    pub fn has_whole_pages(&self) -> Result<bool> {
        let Some(file) = self.file() else { return Ok(false) };
        Ok(!file.is_in_one_extent()? || file.size()?.is_multiple_of(PAGE))
    }

    /// Gives a file space in pages of its own, however it was opened, unless it has: what is mapped
    /// begins with a page.
    pub fn take_pages(&self) -> Result<()> {
        // What lies in its record, or in one extent, which may begin within a page, has segments
        // once it is given more than that has room for.
        self.take_space(0, |file, size| {
            Ok(if file.is_in_one_extent()? { size + 1 } else { size.next_multiple_of(PAGE) })
        })
    }

    /// Gives a range space, as far as the file goes, however it was opened: what others write into
    /// a hole is not seen where that was mapped.
    pub fn fill_holes(&self, from: u64, len: u64) -> Result<()> {
        self.take_space(from, |_, size| Ok(size.saturating_sub(from).min(len)))
    }

    fn take_space(&self, from: u64, len: impl FnOnce(&File, u64) -> Result<u64>) -> Result<()> {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let handle = self.core.fs.open(self.core.ino, flags)?;
        let file = handle.core.file()?;
        let size = file.size()?;
        let len = len(file, size)?;
        if size == 0 || len == 0 || file.is_fixed() {
            return Ok(());
        }
        file.allocate(from, len, true).map_err(|error| kept_size(file, error))
    }

    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }

    /// What is known of the node, which may have no name any more.
    pub fn stat(&self) -> Result<Stat> {
        self.core.fs.stat(self.core.ino)
    }

    /// Reads from an offset on; fewer bytes where the file ends.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        if !self.flags.read {
            refuse!(EBADF, "the file was opened for writing alone");
        }
        self.read_any(offset, into)
    }

    /// The same, however it was opened: for a kernel that reads pages to write parts of them.
    pub fn read_any(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        match &self.core.body {
            Body::File(file) => file.read_at(offset, into).map_err(gone_is_stale),
            Body::Shown(bytes) => Ok(copied(bytes, offset, into)),
            Body::Prefixed(before, file) => {
                let first = copied(before, offset, into);
                let rest = &mut into[first..];
                let at = (offset + first as u64).saturating_sub(before.len() as u64);
                Ok(first + if rest.is_empty() { 0 } else { file.read_at(at, rest)? })
            }
            Body::Chunked(namespace, info) => read_chunked(namespace, info, offset, into),
        }
    }

    /// Writes at an offset, or, if it was opened so, behind the end; how many bytes.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_where(offset, data).map(|(_, count)| count)
    }

    /// The same; where that was, and how many bytes.
    pub fn write_where(&self, offset: u64, data: &[u8]) -> Result<(u64, usize)> {
        self.write_as(self.append, offset, data)
    }

    /// The same, and whether behind the end, which a program may change of what is open.
    pub fn write_as(&self, append: bool, offset: u64, data: &[u8]) -> Result<(u64, usize)> {
        if !self.flags.write {
            refuse!(EBADF, "the file was opened for reading alone");
        }
        let file = self.core.file()?;
        let written =
            if append { file.append(data) } else { file.write_at(offset, data).map(|()| offset) };
        let at = written.map_err(|error| kept_size(file, error))?;
        Ok((at, data.len()))
    }

    /// Gives it another size.
    pub fn set_size(&self, size: u64) -> Result<()> {
        if !self.flags.write {
            refuse!(EINVAL, "the file was opened for reading alone");
        }
        self.core.set_size(size)
    }

    /// Sees to space for a range, or makes it a hole, by the flags of `fallocate`.
    pub fn fallocate(&self, mode: i32, offset: u64, len: u64) -> Result<()> {
        if !self.flags.write {
            refuse!(EBADF, "the file was opened for reading alone");
        }
        if len == 0 {
            refuse!(EINVAL, "a range of 0 bytes has no space");
        }
        if offset.checked_add(len).is_none_or(|end| end > engram::FILE_BYTES_MAX) {
            refuse!(EFBIG, "a file has at most {} bytes", engram::FILE_BYTES_MAX);
        }
        let file = self.core.file()?;
        let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let done = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => {
                file.allocate(offset, len, keep).map_err(|error| kept_size(file, error))?;
                return self.core.touch();
            }
            libc::FALLOC_FL_PUNCH_HOLE if keep => file.punch(offset, len),
            libc::FALLOC_FL_ZERO_RANGE => zero_range(file, offset, len, keep),
            _ => refuse!(EOPNOTSUPP, "fallocate with the flags {mode:#x} is not offered"),
        };
        done.map_err(|error| kept_size(file, error))
    }

    /// Has the space that this process gives the file from now on come from a device of the pool;
    /// `None`: from wherever there is room.
    pub fn set_device(&self, device: Option<u32>) -> Result<()> {
        self.core.file()?.set_device(device);
        Ok(())
    }

    /// Where the next data, or the next hole, begins.
    pub fn seek(&self, whence: Whence, offset: u64) -> Result<u64> {
        let found = if let Body::File(file) = &self.core.body {
            let what = if whence == Whence::Data { Seek::Data } else { Seek::Hole };
            file.seek(what, offset)?
        } else {
            let size = self.stat()?.size;
            let at = if whence == Whence::Data { offset } else { size };
            (offset < size).then_some(at)
        };
        match found {
            Some(at) => Ok(at),
            None => refuse!(ENXIO, "there is none from {offset} on"),
        }
    }

    /// Copies a range to another file, or elsewhere in the same; how many bytes, which are fewer
    /// where this one ends. The two ranges, as far as there are bytes, must not overlap within a
    /// file.
    pub fn copy_range(&self, from: u64, into: &Handle, to: u64, len: u64) -> Result<u64> {
        let len = len.min(self.stat()?.size.saturating_sub(from));
        let overlap = from < to.saturating_add(len) && to < from.saturating_add(len);
        if self.ino() == into.ino() && overlap {
            refuse!(EINVAL, "a range cannot be copied onto a part of itself");
        }
        if into.append {
            refuse!(EBADF, "what is opened to append to is not copied into");
        }
        let mut piece = vec![0; COPY_PIECE.min(len) as usize];
        let mut done = 0;
        while done < len {
            let most = COPY_PIECE.min(len - done) as usize;
            let copied = match self.read(from + done, &mut piece[..most]) {
                Ok(0) => break,
                Ok(count) => into.write(to + done, &piece[..count]),
                Err(error) => Err(error),
            };
            match copied {
                Ok(count) => done += count as u64,
                Err(error) if done == 0 => return Err(error),
                // The next call meets it again.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Makes what anybody has written to it durable, where the pool promises that.
    pub fn sync(&self) -> Result<()> {
        match &self.core.body {
            Body::File(file) => Ok(file.sync()?),
            _ => Ok(()),
        }
    }

    /// Whether each change of its bytes changes its times: it is a file that has grown, or a small
    /// one, and neither an array or blob as it was put, nor what is only shown.
    pub fn tells_changes(&self) -> bool {
        match &self.core.body {
            Body::File(file) if !file.is_fixed() => file.is_in_one_extent().is_ok_and(|one| !one),
            _ => false,
        }
    }

    /// Where a range lies in this process's memory, piece by piece, as far as the file goes. Bytes
    /// in a record, or of no file, have no piece.
    pub fn pieces(&self, offset: u64, len: u64) -> Result<Vec<FilePiece>> {
        match &self.core.body {
            Body::File(file) => Ok(file.pieces(offset, len)?),
            Body::Prefixed(before, file) => {
                let before = before.len() as u64;
                let from = offset.max(before);
                let len = offset.saturating_add(len).saturating_sub(from);
                let mut pieces = file.pieces(from - before, len)?;
                for piece in &mut pieces {
                    piece.at += before;
                }
                Ok(pieces)
            }
            Body::Chunked(..) | Body::Shown(_) => Ok(Vec::new()),
        }
    }

    /// The pool that it is a file of, as a trace has it.
    pub fn backend(&self) -> String {
        self.core.fs.namespace().pool_path().to_string_lossy().into_owned()
    }

    /// What kind of node it is.
    pub fn kind(&self) -> Result<NodeKind> {
        Ok(self.stat()?.kind)
    }
}

/// Makes a range zeros that have space. Where there is no room for it, its bytes stay.
fn zero_range(file: &File, offset: u64, len: u64, keep: bool) -> engram::Result<()> {
    file.allocate(offset, len, true)?;
    file.zero(offset, len)?;
    // The range has its space: this sets the size.
    if keep { Ok(()) } else { file.allocate(offset, len, false) }
}

/// Copies what bytes there are from an offset on.
fn copied(bytes: &[u8], offset: u64, into: &mut [u8]) -> usize {
    let from = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
    let count = from.len().min(into.len());
    into[..count].copy_from_slice(&from[..count]);
    count
}

/// Reads bytes of a chunked array, in C order: of whole rows of its first dimension.
fn read_chunked(
    namespace: &Namespace,
    info: &ObjectInfo,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let count = info.nbytes.saturating_sub(offset).min(into.len() as u64);
    if count == 0 {
        return Ok(0);
    }
    let row = info.nbytes / info.shape[0];
    let (first, end) = (offset / row, (offset + count).div_ceil(row));
    let mut offsets = vec![0; info.shape.len()];
    let mut counts = info.shape.clone();
    (offsets[0], counts[0]) = (first, end - first);
    let mut rows = vec![0; ((end - first) * row) as usize];
    namespace.load_slab(info.oid, &offsets, &counts, &mut rows).map_err(gone_is_stale)?;
    let from = (offset - first * row) as usize;
    into[..count as usize].copy_from_slice(&rows[from..][..count as usize]);
    Ok(count as usize)
}
