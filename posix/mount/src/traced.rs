//! What a mount notes in its trace: each request that was answered well, by the path that it is
//! about.
//!
//! A request has the number of a node or of an open file, and no path. That of a node is asked of
//! the namespace, by its first name; that of an open file is kept from when it was opened, whatever
//! is renamed since. Of what has no name any more the path is empty.
//!
//! The kernel tells the thread that asks. Its process is looked up, and remembered for a second.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use engram_fs::trace::{Argument, Lines, Operation, Way};
use engram_fs::{Fs, Handle, Result, Tracer};
use fuser::{FileHandle, INodeNo, Request};

/// So long a thread is taken for one of the same process.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Of so many threads is remembered whose they are.
const THREADS: usize = 1024;

thread_local! {
    static PROCESSES: RefCell<HashMap<u32, (u32, Instant)>> = RefCell::default();
}

/// What is open, by its number: the path, and the thread that opened it.
type Paths = RwLock<HashMap<u64, (Arc<str>, u32)>>;

/// The trace of a mount.
pub struct Traced {
    tracer: Arc<Tracer>,
    files: Paths,
    folders: Paths,
}

/// What is open, of which kind.
#[derive(Clone, Copy)]
pub enum Open {
    File(FileHandle),
    Folder(FileHandle),
}

/// What a request is about.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// A name in a folder.
    Name(INodeNo, &'a OsStr),
    /// The name of a folder in a folder.
    Folder(INodeNo, &'a OsStr),
    /// A node.
    Node(INodeNo),
    /// A node, and the number by which it is open, if it is.
    Either(INodeNo, Option<FileHandle>),
    /// What is open.
    Open(Open),
}

impl Traced {
    pub fn new(tracer: Arc<Tracer>) -> Self {
        Traced { tracer, files: Paths::default(), folders: Paths::default() }
    }

    /// Notes a request that was done.
    #[inline]
    pub fn note<T>(
        &self,
        fs: &Fs,
        request: &Request,
        done: &Result<T>,
        operation: Operation,
        place: Place<'_>,
    ) {
        self.note_with(fs, request, done, operation, place, Vec::new);
    }

    /// The same, with arguments.
    #[inline]
    pub fn note_with<'a, T>(
        &self,
        fs: &Fs,
        request: &Request,
        done: &Result<T>,
        operation: Operation,
        place: Place<'_>,
        arguments: impl FnOnce() -> Vec<Argument<'a>>,
    ) {
        if self.tracer.is_on() && done.is_ok() {
            self.tracer.note_all(self.asker(request, place), |lines| {
                lines.add(operation, &self.path(fs, place), &arguments());
            });
        }
    }

    /// Notes a request that gives one path another, or exchanges two.
    #[inline]
    pub fn note_two<T>(
        &self,
        fs: &Fs,
        request: &Request,
        done: &Result<T>,
        operation: Operation,
        from: Place<'_>,
        to: Place<'_>,
    ) {
        let to = || vec![Argument::Text(Cow::Owned(self.path(fs, to)))];
        self.note_with(fs, request, done, operation, from, to);
    }

    /// Notes that a file or folder was opened, and keeps its path.
    #[inline]
    pub fn opened(
        &self,
        fs: &Fs,
        request: &Request,
        open: Open,
        operation: Operation,
        place: Place<'_>,
        truncated: bool,
    ) {
        if !self.tracer.is_on() {
            return;
        }
        let path: Arc<str> = self.path(fs, place).into();
        let (paths, number) = self.paths(open);
        let mut paths = paths.write().unwrap_or_else(PoisonError::into_inner);
        paths.insert(number, (Arc::clone(&path), request.pid()));
        drop(paths);
        self.tracer.note_all(process_of(request.pid()), |lines| {
            lines.add(operation, &path, &[]);
            if truncated {
                lines.add(Operation::Truncate, &path, &[]);
            }
        });
    }

    /// Notes that a file or folder was closed.
    #[inline]
    pub fn closed(&self, fs: &Fs, request: &Request, open: Open, operation: Operation) {
        if !self.tracer.is_on() {
            return;
        }
        self.note(fs, request, &Ok(()), operation, Place::Open(open));
        let (paths, number) = self.paths(open);
        paths.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Notes that what is still open is closed, as the mount ends: where a program closes a file
    /// and the mount is taken away at once, the kernel may end the request that says so itself.
    pub fn ended(&self) {
        self.end(&self.files, Operation::Close);
        self.end(&self.folders, Operation::Closedir);
    }

    fn end(&self, paths: &Paths, operation: Operation) {
        let open = std::mem::take(&mut *paths.write().unwrap_or_else(PoisonError::into_inner));
        let mut open: Vec<_> = open.into_iter().collect();
        open.sort_unstable_by_key(|(number, _)| *number);
        for (_, (path, thread)) in open {
            self.tracer.note_all(process_of(thread), |lines| lines.add(operation, &path, &[]));
        }
    }

    /// Notes what was read or written, with the pieces of memory that it lies in.
    #[inline]
    pub fn moved(&self, request: &Request, of: FileHandle, way: Way, bytes: Bytes<'_>) {
        if self.tracer.is_on() {
            let asker = self.asker(request, Place::Open(Open::File(of)));
            self.tracer.note_all(asker, |lines| self.tell_moved(lines, of, way, bytes));
        }
    }

    fn tell_moved(&self, lines: &mut Lines<'_>, of: FileHandle, way: Way, bytes: Bytes<'_>) {
        let path = self.opened_as(Open::File(of)).map(|(path, _)| path);
        let path = path.as_deref().unwrap_or_default();
        lines.transfer(way, path, bytes.handle, bytes.offset, bytes.size);
    }

    fn paths(&self, open: Open) -> (&Paths, u64) {
        match open {
            Open::File(number) => (&self.files, number.0),
            Open::Folder(number) => (&self.folders, number.0),
        }
    }

    fn opened_as(&self, open: Open) -> Option<(Arc<str>, u32)> {
        let (paths, number) = self.paths(open);
        paths.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    fn path(&self, fs: &Fs, place: Place<'_>) -> String {
        let open = match place {
            Place::Name(parent, name) => {
                return fs.path_in(parent.0, &name.to_string_lossy()).unwrap_or_default();
            }
            Place::Folder(parent, name) => {
                let path = fs.path_in(parent.0, &name.to_string_lossy());
                return path.map(|path| path + "/").unwrap_or_default();
            }
            Place::Node(ino) | Place::Either(ino, None) => {
                return fs.path_of(ino.0).unwrap_or_default();
            }
            Place::Either(_, Some(number)) => Open::File(number),
            Place::Open(open) => open,
        };
        match (self.opened_as(open), place) {
            (Some((path, _)), _) => path.as_ref().to_owned(),
            (None, Place::Either(ino, _)) => fs.path_of(ino.0).unwrap_or_default(),
            (None, _) => String::new(),
        }
    }

    /// The process that asks. When a file is closed the kernel says none: it is the one that opened
    /// it.
    fn asker(&self, request: &Request, place: Place<'_>) -> u32 {
        match (request.pid(), place) {
            (0, Place::Open(open)) => {
                self.opened_as(open).map_or(0, |(_, thread)| process_of(thread))
            }
            (thread, _) => process_of(thread),
        }
    }
}

/// Bytes of a file that is open.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    pub handle: &'a Handle,
    pub offset: u64,
    pub size: u64,
}

/// The process of a thread; the thread itself if it has ended.
fn process_of(thread: u32) -> u32 {
    PROCESSES.with_borrow_mut(|known| {
        if let Some((process, at)) = known.get(&thread)
            && at.elapsed() < KNOWN_FOR
        {
            return *process;
        }
        if known.len() >= THREADS {
            known.clear();
        }
        let process = look_up(thread).unwrap_or(thread);
        known.insert(thread, (process, Instant::now()));
        process
    })
}

fn look_up(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::process_of;

    #[test]
    fn a_thread_is_one_of_its_process() {
        let asked = std::thread::spawn(|| {
            let link = std::fs::read_link("/proc/thread-self").expect("this thread");
            let thread = link.file_name().and_then(|name| name.to_str()?.parse().ok());
            let thread = thread.expect("a number");
            (thread, process_of(thread), process_of(thread))
        });
        let (thread, first, again): (u32, u32, u32) = asked.join().expect("it ends");
        assert_ne!(thread, std::process::id());
        assert_eq!((first, again), (std::process::id(), std::process::id()));
        // The number of no thread.
        assert_eq!(process_of(u32::MAX), u32::MAX);
    }
}
