//! How far a stage is, and how it ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::manifest::Line;

/// What could not be done, and why; the rest of the stage went on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The source, as it was given; a name that is not UTF-8 with escapes.
    pub path: String,
    /// What was wrong, and what to do.
    pub why: String,
}

/// How far a stage is. Anybody may look, at any time.
#[derive(Debug, Default)]
pub struct Progress {
    pub(crate) files: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) files_done: AtomicU64,
    pub(crate) bytes_done: AtomicU64,
    files_reused: AtomicU64,
    bytes_reused: AtomicU64,
    ended: AtomicBool,
    found: Mutex<Found>,
}

/// How far a stage is, at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many files there are to copy, as far as is known.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many of them are there, copied or found so.
    pub files_done: u64,
    /// How many bytes of them are.
    pub bytes_done: u64,
    /// How many files were found to be there already.
    pub files_reused: u64,
    /// How many bytes were.
    pub bytes_reused: u64,
}

#[derive(Debug, Default)]
struct Found {
    lines: Vec<Line>,
    changed: Vec<String>,
    troubles: Vec<Trouble>,
    fatal: Option<engram::Error>,
}

impl Progress {
    /// How far it is now.
    pub fn counts(&self) -> Counts {
        Counts {
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            files_done: self.files_done.load(Relaxed),
            bytes_done: self.bytes_done.load(Relaxed),
            files_reused: self.files_reused.load(Relaxed),
            bytes_reused: self.bytes_reused.load(Relaxed),
        }
    }

    /// Asks the workers to stop: what is half done is there when the stage is resumed.
    pub fn stop(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Whether nobody is to go on.
    pub fn is_stopped(&self) -> bool {
        self.ended.load(Relaxed)
    }

    fn found(&self) -> std::sync::MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is there.
    pub(crate) fn done(&self, line: Line) {
        self.files_done.fetch_add(1, Relaxed);
        self.found().lines.push(line);
    }

    /// A file was there.
    pub(crate) fn reused(&self, line: Line) {
        self.files_reused.fetch_add(1, Relaxed);
        self.bytes_reused.fetch_add(line.size, Relaxed);
        self.bytes_done.fetch_add(line.size, Relaxed);
        self.done(line);
    }

    /// So much is to be looked at.
    pub(crate) fn expect(&self, lines: &[Line]) {
        self.files.fetch_add(lines.len() as u64, Relaxed);
        self.bytes.fetch_add(lines.iter().map(|line| line.size).sum(), Relaxed);
    }

    /// A file was looked at, and is as it must be.
    pub(crate) fn looked(&self, bytes: u64) {
        self.files_done.fetch_add(1, Relaxed);
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    /// What went wrong so far, by path.
    pub(crate) fn take_troubles(&self) -> Vec<Trouble> {
        let mut troubles = std::mem::take(&mut self.found().troubles);
        troubles.sort_by(|one, other| one.path.cmp(&other.path));
        troubles
    }

    /// So many bytes were there.
    pub(crate) fn reused_bytes(&self, bytes: u64) {
        self.files_reused.fetch_add(1, Relaxed);
        self.bytes_reused.fetch_add(bytes, Relaxed);
        self.bytes_done.fetch_add(bytes, Relaxed);
    }

    /// A source has changed while it was read, from one size to another, and is read again.
    pub(crate) fn changed(&self, path: impl Into<String>, [was, is]: [u64; 2]) {
        self.bytes.fetch_add(is.wrapping_sub(was), Relaxed);
        self.found().changed.push(path.into());
    }

    /// Whether everything was done so far that was begun.
    pub(crate) fn is_whole(&self) -> bool {
        !self.is_stopped() && self.found().troubles.is_empty()
    }

    /// Something could not be done.
    pub(crate) fn trouble(&self, path: impl Into<String>, why: impl Into<String>) {
        self.found().troubles.push(Trouble { path: path.into(), why: why.into() });
    }

    /// Nothing can be done any more.
    pub(crate) fn fail(&self, error: engram::Error) {
        self.found().fatal.get_or_insert(error);
        self.stop();
    }

    /// What came of it, once nobody works any more.
    pub(crate) fn report(&self, took: Duration) -> (Report, Option<engram::Error>) {
        let troubles = self.take_troubles();
        let mut found = self.found();
        let report = Report {
            files: self.files_done.load(Relaxed),
            bytes: self.bytes_done.load(Relaxed),
            files_reused: self.files_reused.load(Relaxed),
            bytes_reused: self.bytes_reused.load(Relaxed),
            lines: std::mem::take(&mut found.lines),
            changed: {
                let mut changed = std::mem::take(&mut found.changed);
                changed.sort();
                changed.dedup();
                changed
            },
            whole: troubles.is_empty() && !self.is_stopped(),
            troubles,
            took,
        };
        (report, found.fatal.take())
    }
}

/// How a stage ended.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many files, symbolic links and special files are there.
    pub files: u64,
    /// How many bytes they have.
    pub bytes: u64,
    /// How many of the files were there before.
    pub files_reused: u64,
    /// How many of the bytes were.
    pub bytes_reused: u64,
    /// What is there: for a manifest.
    pub lines: Vec<Line>,
    /// The sources that changed while they were read, and were read again.
    pub changed: Vec<String>,
    /// What could not be done, by path.
    pub troubles: Vec<Trouble>,
    /// Whether all of it was done.
    pub whole: bool,
    /// How long it took.
    pub took: Duration,
}
