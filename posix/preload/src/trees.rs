//! Prefixes, and the pools that are opened for them.
//!
//! `ENGRAM_RUN` has one entry a line, `POOL[:PATH]=PREFIX`: below the prefix the program finds what
//! is in the pool (below the group at that path). A pool is opened when a path below its prefix is
//! named first: a program that names none costs no pool. A child that is forked goes on with it; a
//! program that is started opens it anew.

use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use engram::{Mode, Pool};
use engram_fs::{Errno, Fs, Ino, Locks, NodeKind, Options, ROOT, Result};

use crate::process::{self, Spin};
use crate::traced;

/// A prefix, and what is below it.
pub struct Tree {
    /// The absolute path at which the program finds it, without a slash at its end.
    pub prefix: Vec<u8>,
    /// Its number, by which descriptions name it.
    pub number: u32,
    pool: PathBuf,
    within: String,
    opened: AtomicPtr<Opened>,
    opening: Spin<()>,
}

/// A pool that is open.
pub struct Opened {
    /// Its namespace.
    pub fs: Fs,
    /// The folder that stands at the prefix.
    pub root: Ino,
    /// The locks that this process has.
    pub locks: Locks,
}

/// All prefixes of this program; none, where nobody has named any.
pub fn all() -> &'static [Tree] {
    static TREES: OnceLock<Vec<Tree>> = OnceLock::new();
    TREES.get_or_init(|| variable(c"ENGRAM_RUN").map(|text| parse(&text)).unwrap_or_default())
}

/// What the environment says; it is read once, at the beginning.
pub fn variable(name: &CStr) -> Option<Vec<u8>> {
    // SAFETY: a string, and what the C library has of its name.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a value of the environment is a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes().to_vec())
}

fn parse(text: &[u8]) -> Vec<Tree> {
    let entries = text.split(|byte| *byte == b'\n').filter(|entry| !entry.is_empty());
    entries.enumerate().filter_map(|(number, entry)| Tree::parse(entry, number as u32)).collect()
}

/// Whether the environment names any prefix, right or wrong.
pub fn is_asked() -> bool {
    variable(c"ENGRAM_RUN").is_some_and(|text| !text.is_empty())
}

/// Says what of `ENGRAM_RUN` names no prefix: what it was meant to show is not there.
pub fn say_what_is_wrong() {
    let text = variable(c"ENGRAM_RUN").unwrap_or_default();
    let entries = text.split(|byte| *byte == b'\n').filter(|entry| !entry.is_empty());
    for entry in entries.filter(|entry| Tree::parse(entry, 0).is_none()) {
        let what = format!(
            "ENGRAM_RUN has the entry {:?}, which shows nothing: write POOL[:PATH]=PREFIX, with \
             paths from the root on",
            String::from_utf8_lossy(entry)
        );
        traced::refused("open", &what);
        traced::tell(&what);
    }
}

impl Tree {
    fn parse(entry: &[u8], number: u32) -> Option<Tree> {
        let at = entry.iter().rposition(|byte| *byte == b'=')?;
        let (source, prefix) = (&entry[..at], &entry[at + 1..]);
        let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix).to_vec();
        if prefix.first() != Some(&b'/') {
            return None;
        }
        let cut = source.windows(2).rposition(|two| two == b":/");
        let (pool, within) = match cut {
            Some(at) => (&source[..at], String::from_utf8(source[at + 2..].to_vec()).ok()?),
            None => (source, String::new()),
        };
        Some(Tree {
            prefix,
            number,
            pool: Path::new(std::ffi::OsStr::from_bytes(pool)).to_owned(),
            within,
            opened: AtomicPtr::new(std::ptr::null_mut()),
            opening: Spin::new(()),
        })
    }

    /// The pool, which is opened if it is not. The thread is inside.
    pub fn open(&'static self) -> Result<&'static Opened> {
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let _opening = self.opening.lock();
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let mut opened = self.open_now();
        let is_full = opened.as_ref().is_err_and(|why| why.code == libc::ENOSPC);
        let gives_way = is_full && crate::handing::let_go();
        if gives_way {
            opened = self.open_now();
        }
        let opened = opened.inspect_err(|why| {
            let pool = self.pool.display();
            let what = format!("the pool {pool} does not open: {why}");
            traced::refused("open", &what);
            if matches!(why.code, libc::ENOENT | libc::ENOTDIR) {
                traced::tell(&what);
            }
        })?;
        // It may be gone by now: to the file system any node that is gone is a file.
        if let Some((_, folder)) = process::folder().filter(|(tree, _)| std::ptr::eq(*tree, self)) {
            opened.fs.note_folder(folder);
        }
        let opened = Box::leak(Box::new(opened));
        self.opened.store(opened, Ordering::Release);
        if gives_way {
            crate::handing::open_handed();
        } else {
            crate::handing::settle();
        }
        Ok(opened)
    }

    /// The pool, if it is open.
    pub fn opened(&self) -> Option<&'static Opened> {
        // SAFETY: null, or a box that is never freed.
        unsafe { self.opened.load(Ordering::Acquire).as_ref() }
    }

    fn open_now(&self) -> Result<Opened> {
        process::note_opener();
        let read_only = variable(c"ENGRAM_RUN_READ_ONLY").is_some_and(|value| value == b"1");
        let namespace = variable(c"ENGRAM_RUN_NAMESPACE").unwrap_or_else(|| b"default".to_vec());
        let Ok(namespace) = String::from_utf8(namespace) else {
            return Err(Errno::new(libc::EILSEQ, "ENGRAM_RUN_NAMESPACE is not UTF-8"));
        };
        let mode = if read_only { Mode::Read } else { Mode::ReadWrite };
        let pool = Pool::open(&self.pool, mode, false)?;
        let fs = Fs::new(pool.namespace(&namespace)?, Options { read_only, growth: None })?;
        let root = self.root_in(&fs)?;
        // The program never closes it.
        std::mem::forget(pool);
        Ok(Opened { fs, root, locks: Locks::default() })
    }

    /// The folder that stands at the prefix.
    fn root_in(&self, fs: &Fs) -> Result<Ino> {
        if self.within.is_empty() {
            return Ok(ROOT);
        }
        match fs.walk(ROOT, &self.within)?.stat {
            Some(stat) if stat.kind == NodeKind::Folder => Ok(stat.ino),
            Some(_) => Err(Errno::new(libc::ENOTDIR, self.names("an object, and no group"))),
            None => Err(Errno::new(libc::ENOENT, self.names("nothing in the pool"))),
        }
    }

    /// What is wrong with the path of the group.
    fn names(&self, what: &str) -> String {
        let within = &self.within;
        format!("{within:?} in ENGRAM_RUN names {what}: make that group, or name another")
    }

    /// For a fork: nobody else is opening it.
    pub fn hold(&self) {
        self.opening.acquire();
    }

    /// For a fork: on with it.
    pub fn resume(&self) {
        self.opening.release();
    }
}
