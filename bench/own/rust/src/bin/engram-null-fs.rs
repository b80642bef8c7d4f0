//! A FUSE file system that does nothing: what FUSE alone takes, to compare mounts with.
//!
//! ```text
//! engram-null-fs DIR [FOLDER COUNT]
//! ```
//!
//! Names and attributes are in its memory. Bytes that are written are dropped, and those that are
//! read are zeros. It is served as the mount of a pool with `--cache job` is, by the same threads,
//! and answers as it does. With `FOLDER COUNT` it has a folder of that many files when it begins.
//! It says "ready" once it serves, and ends when it is unmounted.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime};

use engram_mount::{Cache, kernel};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, Session, TimeOrNow, WriteFlags,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// What a request gives, or the number that it fails with.
type Given<T> = std::result::Result<T, Errno>;

const BLOCK: u32 = 4096;
/// More is never read at once.
static ZEROS: [u8; 1 << 20] = [0; 1 << 20];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        [place] => serve(place, None),
        [place, folder, count] => count
            .parse()
            .map_err(|_| format!("{count} is not a number").into())
            .and_then(|count| serve(place, Some((folder, count)))),
        _ => Err("usage: engram-null-fs DIR [FOLDER COUNT]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engram-null-fs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(place: &str, full: Option<(&str, u64)>) -> Result<()> {
    let nothing = Null::default();
    if let Some((folder, count)) = full {
        let missing = |_| format!("{folder} cannot be made");
        let above = nothing.make(INodeNo::ROOT, folder.as_ref(), FileType::Directory, 0o755);
        let above = above.map_err(missing)?.ino;
        for number in 0..count {
            let name = format!("file-{number:08}");
            nothing.make(above, name.as_ref(), FileType::RegularFile, 0o644).map_err(missing)?;
        }
    }
    let source = format!("engram-null-fs@{}", std::process::id());
    let config = kernel::config(source, false, kernel::threads());
    let session = Session::new(nothing, Path::new(place), &config)?;
    writeln!(std::io::stdout(), "ready")?;
    Ok(session.run()?)
}

/// A folder's entries as they were when it was opened.
type Listing = Arc<Vec<(OsString, FileAttr)>>;

struct Tree {
    attrs: HashMap<INodeNo, FileAttr>,
    folders: HashMap<INodeNo, HashMap<OsString, INodeNo>>,
}

/// The file system.
struct Null {
    tree: RwLock<Tree>,
    next: AtomicU64,
    open: RwLock<HashMap<u64, Listing>>,
}

impl Default for Null {
    fn default() -> Self {
        let root = attr(INodeNo::ROOT, FileType::Directory, 0o755);
        let tree = Tree {
            attrs: HashMap::from([(INodeNo::ROOT, root)]),
            folders: HashMap::from([(INodeNo::ROOT, HashMap::new())]),
        };
        let open = RwLock::default();
        Null { tree: RwLock::new(tree), next: AtomicU64::new(2), open }
    }
}

fn attr(ino: INodeNo, kind: FileType, perm: u16) -> FileAttr {
    let now = SystemTime::now();
    let folder = kind == FileType::Directory;
    FileAttr {
        ino,
        size: if folder { u64::from(BLOCK) } else { 0 },
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink: if folder { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

impl Tree {
    fn folder(&mut self, ino: INodeNo) -> Given<&mut HashMap<OsString, INodeNo>> {
        self.folders.get_mut(&ino).ok_or(Errno::ENOTDIR)
    }
}

impl Null {
    fn look(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Given<FileAttr> {
        let tree = self.look();
        let ino = tree.folders.get(&parent).and_then(|names| names.get(name));
        ino.and_then(|ino| tree.attrs.get(ino)).copied().ok_or(Errno::ENOENT)
    }

    fn make(&self, parent: INodeNo, name: &OsStr, kind: FileType, perm: u32) -> Given<FileAttr> {
        let made =
            attr(INodeNo(self.next.fetch_add(1, Ordering::Relaxed)), kind, (perm & 0o7777) as u16);
        let mut tree = self.change();
        let names = tree.folder(parent)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), made.ino);
        tree.attrs.insert(made.ino, made);
        if kind == FileType::Directory {
            tree.folders.insert(made.ino, HashMap::new());
        }
        Ok(made)
    }

    fn remove(&self, parent: INodeNo, name: &OsStr) -> Given<()> {
        let mut tree = self.change();
        let ino = *tree.folder(parent)?.get(name).ok_or(Errno::ENOENT)?;
        if tree.folders.get(&ino).is_some_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        tree.folder(parent)?.remove(name);
        tree.folders.remove(&ino);
        tree.attrs.remove(&ino);
        Ok(())
    }

    fn listing(&self, ino: INodeNo) -> Given<Listing> {
        let tree = self.look();
        let names = tree.folders.get(&ino).ok_or(Errno::ENOTDIR)?;
        let dot = |name: &str| (OsString::from(name), attr(ino, FileType::Directory, 0o755));
        let mut entries = vec![dot("."), dot("..")];
        entries.extend(names.iter().map(|(name, ino)| (name.clone(), tree.attrs[ino])));
        Ok(Arc::new(entries))
    }

    fn opened(&self, number: FileHandle) -> Listing {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number.0).cloned().unwrap_or_default()
    }
}

fn entry(given: Given<FileAttr>, reply: ReplyEntry) {
    match given {
        Ok(attr) => reply.entry(&kept(), &attr, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(given: Given<()>, reply: ReplyEmpty) {
    match given {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// How long the kernel may keep names and attributes.
fn kept() -> Duration {
    Cache::Job.time()
}

impl Filesystem for Null {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate(config, Cache::Job);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(self.find(parent, name), reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.look().attrs.get(&ino) {
            Some(attr) => reply.attr(&kept(), attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.change();
        let Some(attr) = tree.attrs.get_mut(&ino) else { return reply.error(Errno::ENOENT) };
        attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
        attr.uid = uid.unwrap_or(attr.uid);
        attr.gid = gid.unwrap_or(attr.gid);
        attr.size = size.unwrap_or(attr.size);
        attr.ctime = SystemTime::now();
        reply.attr(&kept(), attr);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        entry(self.make(parent, name, FileType::Directory, mode), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(self.remove(parent, name), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.change();
        let renamed = tree.folder(parent).and_then(|names| names.remove(name).ok_or(Errno::ENOENT));
        let renamed = renamed.and_then(|ino| {
            tree.folder(new_parent)?.insert(new_name.to_owned(), ino);
            Ok(())
        });
        empty(renamed, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(parent, name, FileType::RegularFile, mode) {
            Ok(attr) => {
                let (number, flags) = (FileHandle(attr.ino.0), FopenFlags::FOPEN_KEEP_CACHE);
                reply.created(&kept(), &attr, Generation(0), number, flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let end = self.look().attrs.get(&ino).map_or(0, |attr| attr.size);
        let count = end.saturating_sub(offset).min(u64::from(size));
        reply.data(&ZEROS[..(count as usize).min(ZEROS.len())]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if let Some(attr) = self.change().attrs.get_mut(&ino) {
            attr.size = attr.size.max(offset + data.len() as u64);
        }
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.listing(ino) {
            Ok(listing) => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
                open.insert(number, listing);
                let flags = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                reply.opened(FileHandle(number), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listing = self.opened(number);
        for (at, (name, attr)) in (1..).zip(listing.iter()).skip(offset as usize) {
            if reply.add(attr.ino, at, attr.kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        number: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listing = self.opened(number);
        for (at, (name, attr)) in (1..).zip(listing.iter()).skip(offset as usize) {
            if reply.add(attr.ino, at, name, &kept(), attr, Generation(0)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        number: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let (blocks, files) = (1 << 24, 1 << 32);
        reply.statfs(blocks, blocks, blocks, files, files, BLOCK, 255, BLOCK);
    }

    /// There is none, but there might be: the kernel goes on asking, as it does on a pool's mount.
    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }
}
