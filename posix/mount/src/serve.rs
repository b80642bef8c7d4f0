//! Requests of the kernel, and answers. Each is one call of `Fs`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use engram_fs::trace::{Argument, Operation, Way};
use engram_fs::{
    ByteRange, Changes, Clash, Errno, Folder, Fs, Handle, LockMode, Locks, OpenFlags, Result, Stat,
    Taker, Tracer, Whence,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    KernelConfig, LockOwner, OpenFlags as KernelFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::cached::{self, Cache, Seen};
use crate::convert::{BLOCK, attr_of, errno, give, maker, to_set, type_of};
use crate::handles::Handles;
use crate::kernel;
use crate::replaced::Replaced;
use crate::traced::{Bytes, Open, Place, Traced};
use crate::waits::{Waiting, Waits, Wanted, Wish};

/// The most that is copied from file to file at once: the program asks for the rest.
const COPY_MAX: u64 = 16 << 20;

thread_local! {
    /// What a thread reads into, for the kernel.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A namespace that is served.
pub struct Served {
    fs: Fs,
    cache: Cache,
    seen: Arc<Seen>,
    files: Handles<Handle>,
    folders: Handles<Folder>,
    locks: Arc<Locks>,
    waits: Waits,
    replaced: Arc<Replaced>,
    traced: Traced,
}

/// Answers with what a call gives, or its number.
macro_rules! answer {
    ($reply:ident, $given:expr, |$value:pat_param| $answer:expr) => {
        match $given {
            Ok($value) => $answer,
            Err(error) => $reply.error(errno(&error)),
        }
    };
}

impl Served {
    pub fn new(fs: Fs, cache: Cache, tracer: Arc<Tracer>) -> Self {
        Served {
            fs,
            cache,
            seen: Arc::default(),
            files: Handles::default(),
            folders: Handles::default(),
            locks: Arc::default(),
            waits: Waits::default(),
            replaced: Arc::default(),
            traced: Traced::new(tracer),
        }
    }

    fn file(&self, number: FileHandle) -> Result<Arc<Handle>> {
        self.files.get(number).ok_or_else(|| Errno::new(libc::EBADF, "no such open file"))
    }

    fn folder(&self, number: FileHandle) -> Result<Arc<Folder>> {
        self.folders.get(number).ok_or_else(|| Errno::new(libc::EBADF, "no such open folder"))
    }

    fn entry(&self, given: Result<Stat>, reply: ReplyEntry) {
        answer!(reply, given, |stat| {
            reply.entry(&self.cache.time(), &attr_of(&stat), Generation(0));
        });
    }

    fn attr(&self, given: Result<Stat>, reply: ReplyAttr) {
        answer!(reply, given, |stat| reply.attr(&self.cache.time(), &attr_of(&stat)));
    }

    /// Takes set-user-id off a file whose size somebody changes who may not keep it there: the
    /// kernel says so of writes alone.
    fn drop_suid(&self, request: &Request, ino: INodeNo) -> Result<()> {
        if request.uid() == 0 { Ok(()) } else { self.fs.drop_suid(ino.0) }
    }

    fn wait(&self, request: &Request, wish: Wish) {
        let waiting = Waiting { thread: request.pid(), wish };
        self.waits.add(&self.locks, &self.seen, waiting);
    }

    fn empty(given: Result<()>, reply: ReplyEmpty) {
        answer!(reply, given, |()| reply.ok());
    }

    /// Notes what was done with an extended attribute, and gives what it gave.
    fn noted_key<T>(
        &self,
        request: &Request,
        operation: Operation,
        ino: INodeNo,
        name: &OsStr,
        done: Result<T>,
    ) -> Result<T> {
        let name = || vec![Argument::Text(name.to_string_lossy())];
        self.traced.note_with(&self.fs, request, &done, operation, Place::Node(ino), name);
        done
    }

    /// Notes a request that was done, and gives what it gave.
    #[inline]
    fn noted<T>(
        &self,
        request: &Request,
        operation: Operation,
        place: Place<'_>,
        done: Result<T>,
    ) -> Result<T> {
        self.traced.note(&self.fs, request, &done, operation, place);
        done
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate(config, self.cache);
        Ok(())
    }

    fn destroy(&mut self) {
        self.traced.ended();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        // Before it is looked up: what is not on its way any more is found then.
        if self.fs.is_expected(parent.0, name.as_bytes()) {
            let (fs, time, name) = (self.fs.clone(), self.cache.time(), name.to_owned());
            let wanted = Wanted { fs, time, folder: parent.0, name, reply };
            return self.wait(request, Wish::Name(wanted));
        }
        let found = self.fs.lookup(parent.0, name.as_bytes());
        let place = Place::Name(parent, name);
        self.entry(self.noted(request, Operation::Stat, place, found), reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, _: u64) {
        self.replaced.forget(ino.0);
    }

    fn getattr(
        &self,
        request: &Request,
        ino: INodeNo,
        number: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let place = Place::Either(ino, number);
        self.attr(self.noted(request, Operation::Stat, place, self.fs.stat(ino.0)), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        number: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes {
            mode: mode.map(|mode| (mode & 0o7777) as u16),
            uid,
            gid,
            size,
            accessed: atime.map(to_set),
            written: mtime.map(to_set),
            // The kernel says of writes alone who may keep these bits.
            drop_suid: size.is_some() && request.uid() != 0,
        };
        let operation = if size.is_some() { Operation::Truncate } else { Operation::Setattr };
        let changed = self.fs.change(ino.0, changes);
        self.attr(self.noted(request, operation, Place::Either(ino, number), changed), reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let read = self.fs.readlink(ino.0);
        let read = self.noted(request, Operation::Readlink, Place::Node(ino), read);
        answer!(reply, read, |target| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = self.fs.mknod(parent.0, name.as_bytes(), mode, u64::from(rdev), maker(request));
        self.entry(self.noted(request, Operation::Create, Place::Name(parent, name), made), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.fs.mkdir(parent.0, name.as_bytes(), mode, maker(request));
        let place = Place::Folder(parent, name);
        self.entry(self.noted(request, Operation::Create, place, made), reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.fs.unlink(parent.0, name.as_bytes());
        Self::empty(self.noted(request, Operation::Unlink, Place::Name(parent, name), gone), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.fs.rmdir(parent.0, name.as_bytes());
        let place = Place::Folder(parent, name);
        Self::empty(self.noted(request, Operation::Unlink, place, gone), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let made = self.fs.symlink(parent.0, name.as_bytes(), target, maker(request));
        self.entry(self.noted(request, Operation::Create, Place::Name(parent, name), made), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let clash = if flags.is_empty() {
            Clash::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Clash::Refuse
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Clash::Exchange
        } else {
            return reply.error(fuser::Errno::from_i32(libc::EINVAL));
        };
        let (old, new) = (name.as_bytes(), new_name.as_bytes());
        let rename = || self.fs.rename(parent.0, old, new_parent.0, new, clash);
        let renamed = match clash {
            Clash::Replace => self.replaced.rename_over(&self.fs, new_parent.0, new, rename),
            _ => rename(),
        };
        let exchanged = clash == Clash::Exchange;
        let operation = if exchanged { Operation::Exchange } else { Operation::Rename };
        let (from, to) = (Place::Name(parent, name), Place::Name(new_parent, new_name));
        self.traced.note_two(&self.fs, request, &renamed, operation, from, to);
        Self::empty(renamed, reply);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.fs.link(ino.0, parent.0, name.as_bytes());
        let (from, to) = (Place::Node(ino), Place::Name(parent, name));
        self.traced.note_two(&self.fs, request, &linked, Operation::Link, from, to);
        self.entry(linked, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: KernelFlags, reply: ReplyOpen) {
        let flags = OpenFlags::of(flags.0);
        let dropped = if flags.truncate { self.drop_suid(request, ino) } else { Ok(()) };
        let opened = dropped.and_then(|()| self.fs.open(ino.0, flags));
        let opened = opened.and_then(|handle| handle.stat().map(|stat| (handle, stat)));
        answer!(reply, opened, |(handle, stat)| {
            let truncated = handle.flags().truncate && handle.flags().write;
            let flags = self.seen.opened(self.cache, &stat, &handle);
            if self.cache == Cache::Shared && !flags.contains(FopenFlags::FOPEN_KEEP_CACHE) {
                cached::forget_size(ino.0);
            }
            let number = self.files.add(handle);
            self.seen.opens(self.cache, number, &stat);
            let (open, place) = (Open::File(number), Place::Node(ino));
            self.traced.opened(&self.fs, request, open, Operation::Open, place, truncated);
            reply.opened(number, flags);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (exclusive, flags) = (flags & libc::O_EXCL != 0, OpenFlags::of(flags));
        let mut made = self.fs.create(parent.0, name.as_bytes(), mode, flags, maker(request));
        if made.as_ref().is_err_and(|error| error.code == libc::EEXIST && !exclusive) {
            // Somebody else has made it since the kernel looked. Of what is opened here the kernel
            // would check no mode: it is to look again.
            made = Err(Errno::new(libc::ESTALE, "the name was made meanwhile"));
        }
        answer!(reply, made, |(stat, handle)| {
            let flags = self.seen.opened(self.cache, &stat, &handle);
            let (time, attr) = (self.cache.time(), attr_of(&stat));
            let number = self.files.add(handle);
            let (open, place) = (Open::File(number), Place::Name(parent, name));
            self.traced.opened(&self.fs, request, open, Operation::Create, place, false);
            reply.created(&time, &attr, Generation(0), number, flags);
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: u64,
        size: u32,
        _: KernelFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ.with_borrow_mut(|bytes| {
            let size = size as usize;
            if bytes.len() < size {
                bytes.resize(size, 0);
            }
            // The kernel reads a page of what was opened to be written alone, before it writes a
            // part.
            let read = self.file(number).and_then(|handle| {
                let count = handle.read_any(offset, &mut bytes[..size])?;
                let moved = Bytes { handle: &handle, offset, size: count as u64 };
                self.traced.moved(request, number, Way::Read, moved);
                Ok(count)
            });
            answer!(reply, read, |count| reply.data(&bytes[..count]));
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        number: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        _: KernelFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_suid = how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let dropped = if drop_suid { self.fs.drop_suid(ino.0) } else { Ok(()) };
        let write = |handle: Arc<Handle>| {
            let (at, count) = self.replaced.with_room(|| handle.write_where(offset, data))?;
            let moved = Bytes { handle: &handle, offset: at, size: count as u64 };
            self.traced.moved(request, number, Way::Write, moved);
            Ok((at, count))
        };
        let written = dropped.and_then(|()| self.file(number)).and_then(write);
        answer!(reply, written, |(at, count)| {
            reply.written(count as u32);
            if at != offset {
                // It was appended behind what others have: the kernel thinks it is elsewhere.
                cached::forget_pages(ino.0);
            }
        });
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        if self.cache == Cache::Job {
            // Nothing is to be done when a descriptor is closed: the kernel asks no more.
            return reply.error(fuser::Errno::ENOSYS);
        }
        self.locks.closed(ino.0, owner.0);
        reply.ok();
    }

    fn getlk(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        let range = ByteRange::of(start, end);
        let found = self.file(number).and_then(|handle| {
            let mode = if kind == libc::F_RDLCK { LockMode::Read } else { LockMode::Write };
            self.locks.in_the_way(&handle, owner.0, mode, range)
        });
        let place = Place::Open(Open::File(number));
        let found = self.noted(request, Operation::Getlk, place, found);
        answer!(reply, found, |found| match found {
            None => reply.locked(0, 0, libc::F_UNLCK, 0),
            // Its owner may be a process that this one cannot name.
            Some(found) => {
                let (first, last) = ByteRange { from: found.from, len: found.len }.ends();
                let kind = match found.mode {
                    LockMode::Read => libc::F_RDLCK,
                    LockMode::Write => libc::F_WRLCK,
                };
                reply.locked(first, last, kind, 0);
            }
        });
    }

    fn setlk(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let range = ByteRange::of(start, end);
        let taker = Taker { owner: owner.0, description: number.0 };
        let place = Place::Open(Open::File(number));
        let mode = match kind {
            libc::F_RDLCK => LockMode::Read,
            libc::F_WRLCK => LockMode::Write,
            _ => {
                let unlocked = self.file(number);
                let unlocked =
                    unlocked.and_then(|handle| self.locks.unlock(&handle, owner.0, range));
                return Self::empty(self.noted(request, Operation::Setlk, place, unlocked), reply);
            }
        };
        let locked = self.file(number).and_then(|handle| {
            let locked = self.locks.try_lock(&handle, taker, mode, range)?;
            let good = locked && self.seen.is_good(self.cache, &handle);
            Ok((locked, good, handle))
        });
        let locked = self.noted(request, Operation::Setlk, place, locked);
        answer!(reply, locked, |(locked, good, handle)| {
            if good {
                reply.ok();
            } else if locked || sleep {
                self.wait(request, Wish::Lock { handle, taker, mode, range, locked, reply });
            } else {
                reply.error(fuser::Errno::EAGAIN);
            }
        });
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        number: FileHandle,
        _: KernelFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.files.remove(number));
        self.seen.released(number);
        self.locks.released(ino.0, number.0);
        self.traced.closed(&self.fs, request, Open::File(number), Operation::Close);
        reply.ok();
    }

    fn fsync(&self, request: &Request, _: INodeNo, number: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.file(number).and_then(|handle| handle.sync());
        let place = Place::Open(Open::File(number));
        Self::empty(self.noted(request, Operation::Fsync, place, synced), reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _: KernelFlags, reply: ReplyOpen) {
        let flags = match self.cache {
            Cache::Job => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
            _ => FopenFlags::empty(),
        };
        answer!(reply, self.fs.open_folder(ino.0), |folder| {
            let number = self.folders.add(folder);
            let (open, place) = (Open::Folder(number), Place::Node(ino));
            self.traced.opened(&self.fs, request, open, Operation::Opendir, place, false);
            reply.opened(number, flags);
        });
    }

    fn readdir(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.folder(number).and_then(|folder| {
            folder.list(offset, |entry, behind| {
                !reply.add(INodeNo(entry.ino), behind, type_of(entry.kind), &entry.name)
            })
        });
        let place = Place::Open(Open::Folder(number));
        let listed = self.noted(request, Operation::Readdir, place, listed);
        answer!(reply, listed, |()| reply.ok());
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let time = self.cache.time();
        let listed = self.folder(number).and_then(|folder| {
            folder.list(offset, |entry, behind| {
                // One that is gone since the folder was read is left out.
                let Ok(stat) = self.fs.stat_entry(entry) else { return true };
                let attr = attr_of(&stat);
                let ino = INodeNo(entry.ino);
                !reply.add(ino, behind, &entry.name, &time, &attr, Generation(0))
            })
        });
        let place = Place::Open(Open::Folder(number));
        let listed = self.noted(request, Operation::Readdir, place, listed);
        answer!(reply, listed, |()| reply.ok());
    }

    fn releasedir(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        _: KernelFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.folders.remove(number));
        self.traced.closed(&self.fs, request, Open::Folder(number), Operation::Closedir);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // A name is as durable as any commit.
        let place = Place::Open(Open::Folder(number));
        Self::empty(self.noted(request, Operation::Fsync, place, Ok(())), reply);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let stats = self.noted(request, Operation::Statfs, Place::Node(ino), self.fs.statfs());
        answer!(reply, stats, |stats| {
            let (all, free) = (stats.size / u64::from(BLOCK), stats.free / u64::from(BLOCK));
            // A file takes 64 bytes of the arena at least, and some of the catalog.
            let files = stats.free / 64;
            reply.statfs(all, free, free, files, files, BLOCK, 255, BLOCK);
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let set = self.fs.set_xattr(ino.0, name.as_bytes(), value, flags);
        Self::empty(self.noted_key(request, Operation::Setxattr, ino, name, set), reply);
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = self.fs.get_xattr(ino.0, name.as_bytes());
        let value = self.noted_key(request, Operation::Getxattr, ino, name, value);
        answer!(reply, value, |value| {
            give(reply, &value, size);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.fs.list_xattr(ino.0).map(|names| {
            names.into_iter().fold(Vec::new(), |mut all, name| {
                all.extend_from_slice(name.as_bytes());
                all.push(0);
                all
            })
        });
        let names = self.noted(request, Operation::Listxattr, Place::Node(ino), names);
        answer!(reply, names, |names| give(reply, &names, size));
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.fs.remove_xattr(ino.0, name.as_bytes());
        Self::empty(self.noted_key(request, Operation::Removexattr, ino, name, gone), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        number: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocate =
            |handle: Arc<Handle>| self.replaced.with_room(|| handle.fallocate(mode, offset, len));
        let file = self.drop_suid(request, ino).and_then(|()| self.file(number));
        let allocated = file.and_then(allocate);
        let range = || vec![Argument::Number(offset), Argument::Number(len)];
        let (operation, place) = (Operation::Fallocate, Place::Open(Open::File(number)));
        self.traced.note_with(&self.fs, request, &allocated, operation, place, range);
        Self::empty(allocated, reply);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from_number: FileHandle,
        offset_from: u64,
        ino: INodeNo,
        into_number: FileHandle,
        offset_into: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let dropped = self.drop_suid(request, ino);
        let copied = dropped.and_then(|()| self.file(from_number)).and_then(|from| {
            let into = self.file(into_number)?;
            let len = len.min(COPY_MAX);
            let copy = || from.copy_range(offset_from, &into, offset_into, len);
            let size = self.replaced.with_room(copy)?;
            let read = Bytes { handle: &from, offset: offset_from, size };
            self.traced.moved(request, from_number, Way::Read, read);
            let written = Bytes { handle: &into, offset: offset_into, size };
            self.traced.moved(request, into_number, Way::Write, written);
            Ok(size)
        });
        answer!(reply, copied, |count| reply.written(count as u32));
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(fuser::Errno::from_i32(libc::EINVAL)),
        };
        let Ok(from) = u64::try_from(offset) else {
            return reply.error(fuser::Errno::from_i32(libc::ENXIO));
        };
        let found = self.file(number).and_then(|handle| handle.seek(whence, from));
        let (operation, place) = (Operation::Seek, Place::Open(Open::File(number)));
        let offset = || vec![Argument::Number(from)];
        self.traced.note_with(&self.fs, request, &found, operation, place, offset);
        answer!(reply, found, |at| reply.offset(at as i64));
    }
}
