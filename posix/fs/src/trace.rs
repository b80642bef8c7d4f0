//! A trace: a line for each operation on files, as the white paper of `NEXTGenIO` has
//! them.
//!
//! `timestamp:operation:pid:tid:path|backend:argument[:argument]` ([`record`]). A front (the mount,
//! the preload library) opens a [`Tracer`] and tells it of each operation that was done, and of
//! the pieces of memory that a read or write touched. What failed has no line.
//!
//! *Invariant*: nothing that is shown of a trace was put together of two records. When tracing is
//! off, an operation pays one relaxed load.
//!
//! **When.** A line is made when its operation is done, and that is its time. It is written before
//! the program has its answer: whoever reads a trace after an answer finds the line.
//!
//! **File.** The lines of one operation are one `write` to a file that is opened to append to. The
//! kernel puts each such write behind the others whole, so many threads and processes may share
//! one file. Nothing is kept back in the process: a kill -9 takes the operation that is being
//! written, and no other; there is nothing to be flushed by a program that ends, or by a child that
//! it has forked.
//!
//! **Torn lines.** A write that meets a full disk, or a kill -9 between two pages of the file, may
//! leave a part of a line. What this process writes next begins with an end of line. What another
//! one writes stands right behind the part. The two together are no line: they have too many
//! fields, or too long a time. But the second is whole, and where it begins can be told
//! ([`Record::behind_damage`]), since nothing within a line looks like a time and an operation.
//!
//! **Ring.** See [`ring`]: lines of the past are overwritten, and the file keeps its size.
//!
//! **Loss.** What cannot be written is counted and does not stop the program. The next line that
//! can be written is preceded by one that says how many were lost.
//!
//! **Threads and forks.** What a thread needs it has for itself, by its process's number: a child
//! finds another number and begins anew. No lock is held while a line is made.
//!
//! **Paths** are asked for when a line is made, and not before: [`Fs::path_of`] reads the records
//! above a node. A front keeps the path of what it has open.

pub mod record;
pub mod ring;

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::record::{Argument, Operation, Record};
use self::ring::{Pen, Ring};
use crate::errno::{Errno, Result, refuse};
use crate::handle::Handle;

#[cfg(doc)]
use crate::fs::Fs;

/// A first line that is longer is none of a trace.
const LINE_MAX: u64 = 64 << 10;
/// A thread remembers its parts of so many rings.
const PENS: usize = 4;

/// Where a trace is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spec {
    /// To a file, behind what is there.
    File(PathBuf),
    /// Into a ring of so many bytes; of [`ring::RING_SIZE`], if it is new and nobody says.
    Ring(PathBuf, Option<u64>),
}

impl Spec {
    /// Reads `FILE`, or `ring:FILE[:SIZE]`.
    pub fn parse(text: &OsStr) -> Result<Spec> {
        match text.as_bytes().strip_prefix(b"ring:") {
            Some(ring) => Spec::parse_ring(OsStr::from_bytes(ring)),
            None if text.is_empty() => refuse!(EINVAL, "a trace needs the name of a file"),
            None => Ok(Spec::File(PathBuf::from(text))),
        }
    }

    /// Reads `FILE[:SIZE]`, as of a ring; sizes are such as 1048576, 16MiB or 1GiB.
    pub fn parse_ring(text: &OsStr) -> Result<Spec> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().rposition(|byte| *byte == b':');
        let sized = colon.and_then(|colon| Some((colon, size_of(&bytes[colon + 1..])?)));
        let (path, size) = match sized {
            Some((colon, size)) => (&bytes[..colon], Some(size)),
            None => (bytes, None),
        };
        if path.is_empty() {
            refuse!(EINVAL, "a ring needs the name of a file, such as ring:64MiB");
        }
        Ok(Spec::Ring(PathBuf::from(OsStr::from_bytes(path)), size))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Spec::File(path) | Spec::Ring(path, _) => path,
        }
    }
}

fn size_of(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

enum Sink {
    File {
        file: File,
        /// Whether it ends within a line.
        torn: AtomicBool,
    },
    Ring(Ring),
}

/// Writes a trace. Every method may be called from any thread.
pub struct Tracer {
    on: AtomicBool,
    number: u64,
    sink: Option<Sink>,
    lost: AtomicU64,
    untold: AtomicU64,
}

/// What a thread has of its own.
#[derive(Default)]
struct Desk {
    /// The process, which a fork changes.
    process: u32,
    thread: u32,
    text: String,
    pens: Vec<(u64, Pen)>,
}

thread_local! {
    static DESK: Cell<Option<Box<Desk>>> = const { Cell::new(None) };
}

/// The lines of one operation.
pub struct Lines<'a> {
    text: &'a mut String,
    at: u64,
    pid: u32,
    tid: u32,
    count: u64,
}

impl Default for Tracer {
    fn default() -> Self {
        Tracer::off()
    }
}

impl Tracer {
    /// One that writes nothing.
    pub fn off() -> Tracer {
        Tracer::to(None)
    }

    /// One that writes to a file or ring, which is made if it is not there.
    pub fn open(spec: &Spec) -> Result<Tracer> {
        Ok(Tracer::to(Some(match spec {
            Spec::File(path) => open_file(path)?,
            Spec::Ring(path, size) => Sink::Ring(Ring::open(path, *size)?),
        })))
    }

    fn to(sink: Option<Sink>) -> Tracer {
        static TRACERS: AtomicU64 = AtomicU64::new(0);
        Tracer {
            on: AtomicBool::new(sink.is_some()),
            number: TRACERS.fetch_add(1, Ordering::Relaxed),
            sink,
            lost: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        }
    }

    /// Whether anything is written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Writes nothing any more.
    pub fn stop(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    /// How many lines could not be written.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Notes an operation that a process has asked for: its path, and its arguments. The path is
    /// asked for only if tracing is on.
    #[inline]
    pub fn note<'a>(
        &self,
        operation: Operation,
        pid: u32,
        path: impl FnOnce() -> Cow<'a, str>,
        arguments: &[Argument<'_>],
    ) {
        self.note_all(pid, |lines| lines.add(operation, &path(), arguments));
    }

    /// Notes all that belongs to one operation.
    #[inline]
    pub fn note_all(&self, pid: u32, tell: impl FnOnce(&mut Lines<'_>)) {
        if self.is_on() {
            self.written(pid, tell);
        }
    }

    #[cold]
    fn written(&self, pid: u32, tell: impl FnOnce(&mut Lines<'_>)) {
        let Some(sink) = &self.sink else { return };
        // A thread that ends has none any more.
        let mut desk = DESK.try_with(Cell::take).ok().flatten().unwrap_or_default();
        desk.begin();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = (now.as_micros() as u64).min(record::TIME_END - 1);
        let mut text = std::mem::take(&mut desk.text);
        text.clear();
        let tid = desk.thread;
        let untold = self.take_untold();
        let mut lines = Lines { text: &mut text, at, pid, tid, count: 0 };
        if untold > 0 {
            lines.add(Operation::Lost, "", &[Argument::Number(untold)]);
        }
        tell(&mut lines);
        let count = lines.count - u64::from(untold > 0);
        let lost = match sink {
            _ if count == 0 => 0,
            Sink::File { file, torn } => append(file, torn, &mut text, count),
            Sink::Ring(ring) => {
                let written = desk.pen(self.number, ring).map(|pen| ring.write(pen, &text));
                written.map_or(count, |lost| lost.min(count))
            }
        };
        self.lost.fetch_add(lost, Ordering::Relaxed);
        // That some were lost is told again if no line of these was written.
        let again = if lost == count { untold } else { 0 };
        self.untold.fetch_add(lost + again, Ordering::Relaxed);
        desk.text = text;
        let _ = DESK.try_with(|place| place.set(Some(desk)));
    }

    fn take_untold(&self) -> u64 {
        match self.untold.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.untold.swap(0, Ordering::Relaxed),
        }
    }
}

impl Lines<'_> {
    /// Adds a line: a path from the root on, or a backend, and the operation's own arguments.
    pub fn add(&mut self, operation: Operation, place: &str, arguments: &[Argument<'_>]) {
        let matches = arguments.iter().map(Argument::field).eq(operation.fields().iter().copied());
        debug_assert!(matches, "{} has other arguments", operation.name());
        let Lines { at, pid, tid, .. } = *self;
        let place = Cow::Borrowed(place);
        let arguments = arguments.to_vec();
        let record = Record { at, operation, pid, tid, place, arguments };
        record::write(self.text, &record);
        self.text.push('\n');
        self.count += 1;
    }

    /// Adds the line of what was read or written of a file, and one for each piece of memory, or
    /// hole, that was touched. Bytes in a record, and those that are only shown, have no piece.
    pub fn transfer(&mut self, way: Way, path: &str, handle: &Handle, offset: u64, size: u64) {
        let (high, low) = match way {
            Way::Read => (Operation::Read, Operation::NvmlRead),
            Way::Write => (Operation::Write, Operation::NvmlWrite),
        };
        self.add(high, path, &[Argument::Number(offset), Argument::Number(size)]);
        // The file may be gone, or shorter, by now.
        let Ok(pieces) = handle.pieces(offset, size) else { return };
        if pieces.is_empty() {
            return;
        }
        let backend = handle.backend();
        for piece in pieces {
            let address = Argument::Address(piece.address.unwrap_or(0));
            self.add(low, &backend, &[address, Argument::Number(piece.len)]);
        }
    }
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of a file.
    Read,
    /// Into one.
    Write,
}

impl Desk {
    /// Sees whose it is.
    fn begin(&mut self) {
        let process = std::process::id();
        if self.process != process {
            // A child has its parent's memory: what is in it is told by the parent.
            *self = Desk { process, thread: thread().unwrap_or(process), ..Desk::default() };
        }
    }

    fn pen(&mut self, number: u64, ring: &Ring) -> io::Result<&mut Pen> {
        let known = self.pens.iter().position(|(of, _)| *of == number);
        let pen = match known {
            Some(place) => self.pens.remove(place),
            None => (number, ring.pen()?),
        };
        self.pens.truncate(PENS - 1);
        self.pens.insert(0, pen);
        Ok(&mut self.pens[0].1)
    }
}

/// The number of this thread.
fn thread() -> Option<u32> {
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Appends lines with one call; how many were lost.
fn append(mut file: &File, torn: &AtomicBool, text: &mut String, count: u64) -> u64 {
    if torn.swap(false, Ordering::Relaxed) {
        text.insert(0, '\n');
    }
    loop {
        match file.write(text.as_bytes()) {
            Ok(written) if written == text.len() => return 0,
            Ok(written) => {
                torn.store(true, Ordering::Relaxed);
                return ring::count(&text.as_bytes()[written..]).min(count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return count,
        }
    }
}

fn open_file(path: &Path) -> Result<Sink> {
    let failed = |error: &io::Error| {
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        Errno::new(code, format!("the trace {}: {error}", path.display()))
    };
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        refuse!(EINVAL, "{} is no regular file, as a trace is", path.display());
    }
    let file = OpenOptions::new().read(true).append(true).create(true).open(path);
    let file = file.map_err(|error| failed(&error))?;
    let size = file.metadata().map_err(|error| failed(&error))?.len();
    let mut torn = false;
    if size > 0 {
        check_trace(&file, path).map_err(|error| failed(&error))??;
        let mut last = [0];
        file.read_exact_at(&mut last, size - 1).map_err(|error| failed(&error))?;
        torn = last != *b"\n";
    }
    Ok(Sink::File { file, torn: AtomicBool::new(torn) })
}

/// Refuses to append to what is no trace.
fn check_trace(file: &File, path: &Path) -> io::Result<Result<()>> {
    let mut first = Vec::new();
    BufReader::new(file).take(LINE_MAX).read_until(b'\n', &mut first)?;
    if !first.is_empty() && ring::MAGIC.starts_with(&first) {
        let what = format!("{} is a ring, and no file to append to", path.display());
        return Ok(Err(Errno::new(libc::EINVAL, what)));
    }
    let line = first.strip_suffix(b"\n").unwrap_or(&first);
    Ok(Record::parse(line).map(drop).map_err(|_| {
        let what = format!("{} is there, and is no trace: name another file", path.display());
        Errno::new(libc::EINVAL, what)
    }))
}
