//! What is noted in a trace: each call that was answered here, by the path that it is about.
//!
//! `ENGRAM_TRACE` names a file, `ENGRAM_TRACE_RING` one of fixed size, which all processes of a job
//! write to. A path is told as the program named it, from the pool's root on; that of an open file
//! is its first name by now. A call that is refused stands there, too, with what to do instead.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use engram_fs::trace::{Argument, Operation, Spec, Way};
use engram_fs::{Asked, At, Handle, Tracer};

use crate::descriptions::What;
use crate::descriptors::{self, Held};
use crate::inside::Inside;
use crate::places::{Place, locate};
use crate::trees;

static IS_ON: AtomicBool = AtomicBool::new(false);
static TRACER: OnceLock<Tracer> = OnceLock::new();

/// Whether there is a trace.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Opens the trace that the environment names. The program cannot be told what is wrong with it:
/// that goes to the standard error output.
pub fn begin() {
    let file = trees::variable(c"ENGRAM_TRACE").filter(|file| !file.is_empty());
    let ring = trees::variable(c"ENGRAM_TRACE_RING").filter(|ring| !ring.is_empty());
    let spec = match (file, ring) {
        (Some(file), _) => Ok(Spec::File(OsStr::from_bytes(&file).into())),
        (None, Some(ring)) => Spec::parse_ring(OsStr::from_bytes(&ring)),
        (None, None) => return,
    };
    let _inside = Inside::nested();
    match spec.and_then(|spec| Tracer::open(&spec)) {
        Ok(tracer) => IS_ON.store(TRACER.set(tracer).is_ok(), Ordering::Relaxed),
        Err(error) => eprintln!("engram: nothing is traced: {error}"),
    }
}

fn add(operation: Operation, path: &str, arguments: &[Argument<'_>]) {
    if let Some(tracer) = TRACER.get() {
        tracer.note(operation, std::process::id(), || Cow::Borrowed(path), arguments);
    }
}

/// The path that a call names, from the pool's root on; `None`: it is none of ours.
fn path_of(folder: c_int, path: *const c_char) -> Option<String> {
    if crate::places::is_nowhere(path) {
        return None;
    }
    // SAFETY: a string, as the program gave it.
    let Place::Ours(tree, start, rest) = locate(folder, unsafe { CStr::from_ptr(path) }) else {
        return None;
    };
    let _inside = Inside::nested();
    let opened = tree.opened()?;
    let mut whole = opened.fs.path_of(start.node().unwrap_or(opened.root)).ok()?;
    if start.is_link() {
        return Some(whole);
    }
    let rest = String::from_utf8_lossy(&rest).into_owned();
    for name in rest.split('/').filter(|name| !matches!(*name, "" | ".")) {
        if name == ".." {
            whole.truncate(whole.rfind('/').unwrap_or(0));
        } else {
            if whole != "/" {
                whole.push('/');
            }
            whole.push_str(name);
        }
    }
    Some(if whole.is_empty() { "/".to_owned() } else { whole })
}

/// Notes a call that names a path.
pub fn named(operation: Operation, folder: c_int, path: *const c_char) {
    if !is_on() || crate::inside::is_inside() {
        return;
    }
    if let Some(path) = path_of(folder, path) {
        let _inside = Inside::nested();
        add(operation, &path, &[]);
    }
}

/// Notes a call that names a path, if it was done; what it returns.
pub fn done(code: c_int, operation: Operation, folder: c_int, path: *const c_char) -> c_int {
    if code == 0 {
        named(operation, folder, path);
    }
    code
}

/// The same of a folder, which is told by a slash behind its path.
pub fn named_folder(operation: Operation, folder: c_int, path: *const c_char) {
    if !is_on() || crate::inside::is_inside() {
        return;
    }
    if let Some(path) = path_of(folder, path) {
        let _inside = Inside::nested();
        add(operation, &format!("{path}/"), &[]);
    }
}

/// Notes a call that names two paths.
pub fn named_two(operation: Operation, old: (c_int, *const c_char), new: (c_int, *const c_char)) {
    if !is_on() || crate::inside::is_inside() {
        return;
    }
    if let (Some(old), Some(new)) = (path_of(old.0, old.1), path_of(new.0, new.1)) {
        let _inside = Inside::nested();
        add(operation, &old, &[Argument::text(&new)]);
    }
}

/// The path of an open file by now; empty, if it has none.
fn path_held(held: &Held) -> String {
    let path = held.opened().and_then(|opened| opened.fs.path_of(held.description().node()));
    path.unwrap_or_default()
}

/// Notes a call that names an open file.
pub fn held(operation: Operation, held: &Held) {
    if is_on() {
        let _inside = Inside::nested();
        add(operation, &path_held(held), &[]);
    }
}

thread_local! {
    /// Whether this thread is about to make what it opens.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// Looks whether what is about to be opened is there yet. The thread is inside.
pub fn opens(asked: Asked<'_>, at: At<'_>, flags: c_int) {
    if is_on() {
        MAKES.set(flags & libc::O_CREAT != 0 && asked.stat(at, true).is_err());
    }
}

/// Notes what was opened, or made. The thread is inside.
pub fn opened(fd: c_int) {
    if let Some(open) = is_on().then(|| descriptors::get(fd)).flatten() {
        held(if MAKES.take() { Operation::Create } else { opening(&open) }, &open);
    }
}

fn opening(held: &Held) -> Operation {
    match held.description().what() {
        What::Folder => Operation::Opendir,
        What::File | What::Node => Operation::Open,
    }
}

/// Notes what is about to be closed.
pub fn closes(fd: c_int) {
    if let Some(open) = is_on().then(|| descriptors::get(fd)).flatten() {
        let is_folder = open.description().what() == What::Folder;
        held(if is_folder { Operation::Closedir } else { Operation::Close }, &open);
    }
}

/// Notes bytes that were read or written.
pub fn transfer(way: Way, held: &Held, file: &Handle, offset: u64, count: usize) {
    if is_on()
        && let Some(tracer) = TRACER.get()
    {
        let path = path_held(held);
        tracer.note_all(std::process::id(), |lines| {
            lines.transfer(way, &path, file, offset, count as u64);
        });
    }
}

/// Notes a call that is refused, and what to do instead.
pub fn refused(name: &str, remedy: &str) {
    if is_on() {
        let _inside = Inside::nested();
        add(Operation::Refused, "", &[Argument::text(name), Argument::text(remedy)]);
    }
}

/// Says on the standard error output, once for each process, what is wrong with all of a prefix,
/// and what to do. Of a pool that is another user's, each call says that it is denied.
pub fn tell(what: &str) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let _inside = Inside::nested();
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        // It may be closed, or be of that prefix itself.
        let _ = writeln!(std::io::stderr(), "engram: {what}");
    }
}
