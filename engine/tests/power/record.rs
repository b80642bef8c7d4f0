//! A trace of what a program does to the files below a folder, as a medium sees it.
//!
//! Bytes change by stores into mappings, by LMDB's and by the engine's, which no call announces.
//! So before each call that means something to a medium, and at each named step of the engine,
//! every file is compared with what it was before ([`Recorder::look`]), and what has changed is
//! noted. Names are compared likewise after each call that changes some. The trace is all that
//! `replay` needs: nothing of it depends on where power fails.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::common::Random;
use super::syscalls::{Call, Hook};

/// What is compared, and noted, at once.
pub const PAGE: usize = 4096;
/// What is compared first.
const STRIDE: usize = 64 * PAGE;

/// A file or a folder, by its place in [`Trace::nodes`].
pub type NodeId = usize;
/// A name in a folder.
pub type Name = (NodeId, String);

/// What a name can stand for.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its first path below the folder; for messages, and to know kinds of files by.
    pub path: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// Its permissions.
    pub mode: u32,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A page of a file has other bytes.
    Bytes { file: NodeId, page: usize, bytes: Arc<[u8]> },
    /// A file has another length.
    Size { file: NodeId, size: u64 },
    /// Names went and came, at once.
    Names { gone: Vec<Name>, come: Vec<(Name, NodeId)> },
    /// Pages of a file, and its length, are on the medium.
    Sync { file: NodeId, pages: Range<usize> },
    /// The names in a folder are on the medium.
    SyncNames { folder: NodeId },
    /// Lines of a file will be on the medium at the next fence, as they are now.
    WriteBack { file: NodeId, bytes: Range<usize> },
    /// What was written back is on the medium.
    Fence,
    /// The operation of this number has begun.
    Begun(usize),
    /// It has ended well, and the caller knows.
    Done(usize),
    /// A moment at which power may fail: what is about to happen.
    Point(&'static str),
}

/// All that happened.
#[derive(Default)]
pub struct Trace {
    /// Files and folders; the first is the folder that holds all.
    pub nodes: Vec<Node>,
    /// In order.
    pub events: Vec<Event>,
}

/// A file that is watched: what it was when it was last looked at.
struct Watched {
    node: NodeId,
    file: File,
    seen: Vec<u8>,
    size: u64,
    /// Where it is mapped, and how much of it.
    map: (usize, usize),
}

/// A mapping of a watched file.
struct Mapping {
    at: Range<usize>,
    file: NodeId,
    offset: usize,
}

/// The writer of the trace.
pub struct Recorder {
    root: PathBuf,
    trace: Trace,
    /// By device and inode.
    known: HashMap<(u64, u64), NodeId>,
    watched: Vec<Watched>,
    mappings: Vec<Mapping>,
    names: BTreeMap<Name, NodeId>,
    random: Random,
}

/// The one recorder, for hooks; `None` when nothing is recorded.
pub static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);

/// Runs `work` with the recorder, if there is one.
pub fn with(work: impl FnOnce(&mut Recorder)) {
    if let Some(recorder) = RECORDER.lock().expect("a recorder").as_mut() {
        super::syscalls::unmet(|| work(recorder));
    }
}

impl Recorder {
    /// Begins with what is in `root`, which is taken to be on the medium.
    pub fn new(root: &Path, seed: u64) -> Recorder {
        let mut recorder = Recorder {
            root: root.to_owned(),
            trace: Trace::default(),
            known: HashMap::new(),
            watched: Vec::new(),
            mappings: Vec::new(),
            names: BTreeMap::new(),
            random: Random(seed),
        };
        recorder.node_of(root, "");
        recorder.scan();
        recorder.note(Event::SyncNames { folder: 0 });
        recorder
    }

    /// Ends recording.
    pub fn end(mut self) -> Trace {
        self.point("the end");
        self.trace
    }

    /// Notes an event.
    pub fn note(&mut self, event: Event) {
        self.trace.events.push(event);
    }

    /// Notes a moment at which power may fail, with everything as it is now.
    pub fn point(&mut self, what: &'static str) {
        self.look();
        if !matches!(self.trace.events.last(), Some(Event::Point(_))) {
            self.note(Event::Point(what));
        }
    }

    /// The node of a file or folder, met for the first time or again.
    fn node_of(&mut self, path: &Path, shown: &str) -> NodeId {
        let meta = fs::symlink_metadata(path).expect("a file that was listed");
        let place = (meta.dev(), meta.ino());
        let known = self.known.get(&place).copied();
        let node = known.unwrap_or_else(|| {
            let node = self.trace.nodes.len();
            let folder = meta.is_dir();
            self.trace.nodes.push(Node { path: shown.to_owned(), folder, mode: 0 });
            self.known.insert(place, node);
            if !folder {
                let file = File::open(path).expect("a file to watch");
                let (seen, map) = (Vec::new(), (0, 0));
                self.watched.push(Watched { node, file, seen, size: 0, map });
            }
            node
        });
        self.trace.nodes[node].mode = meta.mode() & 0o7777;
        node
    }

    /// Compares the names with what they were, and notes what changed.
    fn scan(&mut self) {
        let mut names = BTreeMap::new();
        let mut folders = vec![(self.root.clone(), String::new(), 0)];
        while let Some((path, shown, folder)) = folders.pop() {
            for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
                let name = entry.file_name().into_string().expect("a plain name");
                let shown = format!("{shown}/{name}");
                let node = self.node_of(&entry.path(), &shown);
                if self.trace.nodes[node].folder {
                    folders.push((entry.path(), shown, node));
                }
                names.insert((folder, name), node);
            }
        }
        let differ = |a: &BTreeMap<Name, NodeId>, b: &BTreeMap<Name, NodeId>| -> Vec<_> {
            let new = a.iter().filter(|(name, node)| b.get(*name) != Some(*node));
            new.map(|(name, node)| (name.clone(), *node)).collect()
        };
        let gone = differ(&self.names, &names).into_iter().map(|(name, _)| name).collect();
        let come = differ(&names, &self.names);
        self.names = names;
        let named: std::collections::BTreeSet<NodeId> = self.names.values().copied().collect();
        self.watched.retain(|watched| named.contains(&watched.node));
        let event = Event::Names { gone, come };
        if !matches!(&event, Event::Names { gone, come } if gone.is_empty() && come.is_empty()) {
            self.note(event);
        }
    }

    /// Compares every file with what it was, and notes what changed.
    pub fn look(&mut self) {
        let events = &mut self.trace.events;
        for watched in &mut self.watched {
            let meta = watched.file.metadata().expect("an open file");
            if meta.len() != watched.size {
                watched.size = meta.len();
                events.push(Event::Size { file: watched.node, size: meta.len() });
            }
            // Every file has its blocks from its start on; what has none was never written to.
            let blocks = meta.blocks() as usize * 512;
            let len = (meta.len() as usize).min(blocks).next_multiple_of(PAGE);
            watched.seen.resize(len.max(watched.seen.len()), 0);
            compare(watched, len, events);
        }
    }

    fn file_of(&self, fd: i32) -> Option<NodeId> {
        let place = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        self.known.get(&(place.dev(), place.ino())).copied()
    }

    /// The pieces of watched files that lie at these addresses: the file, and its bytes.
    fn files_at(&self, at: Range<usize>) -> Vec<(NodeId, Range<usize>)> {
        let mut left = vec![at];
        let mut found = Vec::new();
        // The newest first: it may lie over older ones.
        for mapping in self.mappings.iter().rev() {
            for piece in std::mem::take(&mut left) {
                let (start, end) =
                    (piece.start.max(mapping.at.start), piece.end.min(mapping.at.end));
                if start >= end {
                    left.push(piece);
                    continue;
                }
                let from = start - mapping.at.start + mapping.offset;
                found.push((mapping.file, from..from + (end - start)));
                left.extend(
                    [piece.start..start, end..piece.end].into_iter().filter(|r| !r.is_empty()),
                );
            }
        }
        found
    }

    /// Lines at these addresses are being written back.
    pub fn write_back(&mut self, at: usize, len: usize) {
        self.point("write back");
        for (file, bytes) in self.files_at(at / 64 * 64..(at + len).next_multiple_of(64)) {
            self.note(Event::WriteBack { file, bytes });
        }
    }

    /// What was written back is there.
    pub fn fence(&mut self) {
        self.point("fence");
        self.note(Event::Fence);
    }

    fn synced(&mut self, call: &Call<'_>) {
        if call.name == "msync" {
            for (file, bytes) in self.files_at(call.at..call.at + call.len) {
                let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
                self.note(Event::Sync { file, pages });
            }
        } else if let Some(node) = self.file_of(call.fd) {
            let folder = self.trace.nodes[node].folder;
            self.note(if folder {
                Event::SyncNames { folder: node }
            } else {
                Event::Sync { file: node, pages: 0..usize::MAX }
            });
        }
    }
}

/// Notes the pages of the first `len` bytes that are not what they were.
fn compare(watched: &mut Watched, len: usize, events: &mut Vec<Event>) {
    if len == 0 {
        return;
    }
    let now = watched.now(len);
    for at in (0..len).step_by(STRIDE) {
        let end = len.min(at + STRIDE);
        if now[at..end] == watched.seen[at..end] {
            continue;
        }
        for page in at / PAGE..end / PAGE {
            let place = page * PAGE..(page + 1) * PAGE;
            if now[place.clone()] != watched.seen[place.clone()] {
                let bytes: Arc<[u8]> = now[place.clone()].into();
                watched.seen[place].copy_from_slice(&bytes);
                events.push(Event::Bytes { file: watched.node, page, bytes });
            }
        }
    }
}

impl Watched {
    /// The first `len` bytes, as they are now.
    fn now(&mut self, len: usize) -> &'static [u8] {
        if self.map.1 < len {
            // SAFETY: a new mapping for reading; the file has blocks for all of it.
            let at = unsafe {
                let fd = self.file.as_raw_fd();
                libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
            };
            assert_ne!(at, libc::MAP_FAILED, "no mapping of {len} bytes");
            self.map = (at as usize, len);
        }
        // SAFETY: the mapping stays as long as the process. The writer meanwhile is a thread of the
        // engine's: what is seen of its bytes is what a medium might see.
        unsafe { std::slice::from_raw_parts(self.map.0 as *const u8, len) }
    }
}

/// The hook that keeps the recorder informed.
pub struct Informer;

/// Whether a call changes names.
fn names(call: &Call<'_>) -> bool {
    match call.name {
        "open" => call.flags & libc::O_CREAT != 0,
        name => matches!(name, "rename" | "link" | "unlink" | "rmdir" | "mkdir"),
    }
}

impl Hook for Informer {
    fn before(&self, call: &Call<'_>) -> Option<i32> {
        let below = |recorder: &Recorder, path: &Path| {
            path.is_relative() || path.starts_with(&recorder.root)
        };
        with(|recorder| match call.name {
            "msync" | "fsync" | "fdatasync" | "fallocate" | "ftruncate" => {
                recorder.point(call.name);
            }
            _ if names(call) => {
                let path = Path::new(OsStr::from_bytes(call.path.expect("a path").to_bytes()));
                if below(recorder, path) {
                    recorder.point(call.name);
                }
            }
            _ => {}
        });
        None
    }

    fn after(&self, call: &Call<'_>, result: i64) {
        if result == -1 {
            return;
        }
        with(|recorder| match call.name {
            "msync" | "fsync" | "fdatasync" => recorder.synced(call),
            "mmap" if call.fd >= 0 && call.flags & libc::MAP_SHARED != 0 => {
                let at = result as usize..result as usize + call.len;
                match recorder.file_of(call.fd) {
                    Some(file) => recorder.mappings.push(Mapping { at, file, offset: call.at }),
                    None => recorder.mappings.retain(|old| old.at != at),
                }
            }
            _ if names(call) => recorder.scan(),
            _ => {}
        });
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        let mut recorder = RECORDER.lock().expect("a recorder");
        let Some(recorder) = recorder.as_mut() else { return false };
        for byte in bytes {
            *byte = recorder.random.next() as u8;
        }
        true
    }
}
