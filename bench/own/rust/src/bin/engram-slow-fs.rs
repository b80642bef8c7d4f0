//! A FUSE file system in memory that is as slow as a parallel one that several nodes share.
//!
//! ```text
//! engram-slow-fs DIR BYTES_PER_SECOND MORE_STREAMS MIXED
//! ```
//!
//! It stands for echofs's Lustre, where there is none. All reads and writes go through one token
//! bucket. One stream gets `BYTES_PER_SECOND`. With `k` streams, which are processes that moved
//! bytes just before, all of them together get that divided by `1 + MORE_STREAMS * (k - 1)`; and
//! divided by `MIXED`, too, while some read and others write. The kernel keeps nothing of its
//! files. They lie in one folder. It says "ready" once it serves, and ends when it is unmounted.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use engram_mount::{Cache, kernel};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow,
    WriteFlags,
};

/// What a request gives, or the number that it fails with.
type Given<T> = Result<T, Errno>;

/// A process is a stream for so long after it has moved bytes.
const RECENT: Duration = Duration::from_millis(50);
/// The bucket's depth, as time: a client of such a file system reads ahead and writes behind, so
/// that a stream of one request after the other does not wait for the way of each.
const DEPTH: Duration = Duration::from_millis(10);
/// The kernel asks again each time.
const KEPT: Duration = Duration::ZERO;
/// So many requests are served at a time: streams wait in the bucket, not before it.
const THREADS: usize = 16;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<f64> = words.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
    let ([place, ..], [rate, more, mixed]) = (&words[..], &numbers[..]) else {
        eprintln!("usage: engram-slow-fs DIR BYTES_PER_SECOND MORE_STREAMS MIXED");
        return ExitCode::FAILURE;
    };
    match serve(place, Bucket::new(*rate, *more, *mixed)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engram-slow-fs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(place: &str, bucket: Bucket) -> std::io::Result<()> {
    let root = node(FileType::Directory, 0o777, INodeNo::ROOT);
    let files = Files { names: HashMap::new(), nodes: HashMap::from([(INodeNo::ROOT, root)]) };
    let slow = Slow { files: Mutex::new(files), bucket: Mutex::new(bucket) };
    let source = format!("engram-slow-fs@{}", std::process::id());
    let session = Session::new(slow, Path::new(place), &kernel::config(source, false, THREADS))?;
    writeln!(std::io::stdout(), "ready")?;
    session.run()
}

/// Who has moved bytes of late, and when the next bytes may move.
struct Bucket {
    rate: f64,
    more: f64,
    mixed: f64,
    free: Instant,
    /// By process: when it read last, and when it wrote.
    streams: HashMap<u32, [Option<Instant>; 2]>,
}

impl Bucket {
    fn new(rate: f64, more: f64, mixed: f64) -> Bucket {
        Bucket { rate, more, mixed, free: Instant::now(), streams: HashMap::new() }
    }

    /// When these bytes have moved.
    #[expect(clippy::cast_precision_loss, reason = "a rate is not counted to the byte")]
    fn take(&mut self, pid: u32, writes: bool, bytes: usize) -> Instant {
        let now = Instant::now();
        self.streams.entry(pid).or_default()[usize::from(writes)] = Some(now);
        let is_recent = |at: &Option<Instant>| at.is_some_and(|at| now - at < RECENT);
        let count = |which: &[usize]| {
            let streams = self.streams.values();
            streams.filter(|ways| which.iter().any(|way| is_recent(&ways[*way]))).count()
        };
        let others = count(&[0, 1]).saturating_sub(1) as f64;
        let mixed = if count(&[0]) > 0 && count(&[1]) > 0 { self.mixed } else { 1.0 };
        let rate = self.rate / (1.0 + self.more * others) / mixed;
        self.free = self.free.max(now.checked_sub(DEPTH).unwrap_or(now))
            + Duration::from_secs_f64(bytes as f64 / rate);
        self.free
    }
}

struct Node {
    attr: FileAttr,
    bytes: Vec<u8>,
}

impl Node {
    fn resize(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.attr.size = size as u64;
        self.attr.blocks = self.attr.size.div_ceil(512);
    }
}

struct Files {
    names: HashMap<OsString, INodeNo>,
    nodes: HashMap<INodeNo, Node>,
}

/// The file system.
struct Slow {
    files: Mutex<Files>,
    bucket: Mutex<Bucket>,
}

fn node(kind: FileType, perm: u16, ino: INodeNo) -> Node {
    let now = SystemTime::now();
    let attr = FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 1 << 20,
        flags: 0,
    };
    Node { attr, bytes: Vec::new() }
}

impl Slow {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, pid: u32, writes: bool, bytes: usize) {
        let moved = {
            let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(pid, writes, bytes)
        };
        std::thread::sleep(moved.saturating_duration_since(Instant::now()));
    }
}

impl Files {
    fn find(&self, name: &OsStr) -> Given<FileAttr> {
        let ino = self.names.get(name).ok_or(Errno::ENOENT)?;
        self.nodes.get(ino).map(|node| node.attr).ok_or(Errno::ENOENT)
    }

    fn make(&mut self, name: &OsStr, mode: u32) -> FileAttr {
        let ino = INodeNo(self.nodes.keys().map(|ino| ino.0).max().unwrap_or(1) + 1);
        let made = node(FileType::RegularFile, (mode & 0o7777) as u16, ino);
        let attr = made.attr;
        self.nodes.insert(ino, made);
        self.names.insert(name.to_owned(), ino);
        attr
    }

    fn node(&mut self, ino: INodeNo) -> Given<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::ENOENT)
    }
}

fn at_time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

impl Filesystem for Slow {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        kernel::negotiate(config, Cache::None);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.files().find(name) {
            Ok(attr) => reply.entry(&KEPT, &attr, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.files().node(ino) {
            Ok(node) => reply.attr(&KEPT, &node.attr),
            Err(error) => reply.error(error),
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
        written: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut files = self.files();
        let Ok(node) = files.node(ino) else { return reply.error(Errno::ENOENT) };
        let attr = &mut node.attr;
        attr.perm = mode.map_or(attr.perm, |mode| (mode & 0o7777) as u16);
        (attr.uid, attr.gid) = (uid.unwrap_or(attr.uid), gid.unwrap_or(attr.gid));
        attr.mtime = written.map_or(attr.mtime, at_time);
        attr.ctime = SystemTime::now();
        if let Some(size) = size {
            node.resize(size as usize);
        }
        reply.attr(&KEPT, &node.attr);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let attr = self.files().make(name, mode);
        let flags = FopenFlags::FOPEN_DIRECT_IO;
        reply.created(&KEPT, &attr, Generation(0), FileHandle(attr.ino.0), flags);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(ino.0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let found = self.files().node(ino).map(|node| {
            let end = node.bytes.len();
            let from = end.min(offset as usize);
            node.bytes[from..end.min(from + size as usize)].to_vec()
        });
        match found {
            Ok(bytes) => {
                self.wait(request.pid(), false, bytes.len());
                reply.data(&bytes);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.wait(request.pid(), true, data.len());
        let mut files = self.files();
        let Ok(node) = files.node(ino) else { return reply.error(Errno::ENOENT) };
        let (from, end) = (offset as usize, offset as usize + data.len());
        if node.bytes.len() < end {
            node.resize(end);
        }
        node.bytes[from..end].copy_from_slice(data);
        node.attr.mtime = SystemTime::now();
        reply.written(data.len() as u32);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut files = self.files();
        let Some(ino) = files.names.remove(name) else { return reply.error(Errno::ENOENT) };
        if let Some(gone) = files.names.insert(new_name.to_owned(), ino) {
            files.nodes.remove(&gone);
        }
        reply.ok();
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut files = self.files();
        let Some(ino) = files.names.remove(name) else { return reply.error(Errno::ENOENT) };
        files.nodes.remove(&ino);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut names: Vec<(OsString, INodeNo)> =
            self.files().names.iter().map(|(name, ino)| (name.clone(), *ino)).collect();
        names.sort();
        for (at, (name, ino)) in (1..).zip(names).skip(offset as usize) {
            if reply.add(ino, at, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
