//! Files whose last name a rename has taken, until the kernel forgets them.
//!
//! A program that opens a name has the kernel look it up first, and open what it found then. On a
//! file system of the kernel's own nothing is lost between the two. Here a rename may come between
//! and take the last name of what was found: nobody has it open, so it would be gone, and opening
//! it an error, for a name that is there at each moment. So what a rename replaces stays open here
//! until the kernel says that it knows the file no more, which is at once if nobody is about to
//! open it. What goes with `unlink` need not stay: there the name itself is gone.
//!
//! The kernel may never have known a file that is kept: another mount may have made it just before
//! the rename. So a file is kept for some seconds at most, which a program takes never between the
//! two.
//!
//! Another process of the pool knows nothing of who is about to open what: see the guide.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engram_fs::{Errno, Fs, Handle, Ino, NodeKind, OpenFlags, Result};

/// So many are kept at most. The kernel forgets each that nobody is about to open at once.
const KEPT_MAX: usize = 1024;

/// A file is kept no longer.
const KEPT_FOR: Duration = Duration::from_secs(4);

/// What renames have replaced.
#[derive(Default)]
pub struct Replaced {
    kept: Mutex<HashMap<Ino, (Handle, Instant)>>,
    /// Whether a thread sees to what is kept too long.
    watched: AtomicBool,
    /// Whether there ever was anything.
    used: AtomicBool,
}

impl Replaced {
    /// Renames over what has a name, and keeps that if the name was its last one.
    pub fn rename_over(
        self: &Arc<Self>,
        fs: &Fs,
        parent: Ino,
        name: &[u8],
        rename: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let there = fs.lookup(parent, name).ok();
        let last = there.filter(|stat| stat.kind == NodeKind::File && stat.nlink == 1);
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        let open = last.and_then(|stat| fs.open(stat.ino, flags).ok());
        rename()?;
        if let Some(open) = open {
            self.used.store(true, Ordering::Release);
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_MAX {
                kept.insert(open.ino(), (open, Instant::now()));
            }
            drop(kept);
            self.watch();
        }
        Ok(())
    }

    /// Has a thread let go of what is kept too long, until nothing is kept.
    fn watch(self: &Arc<Self>) {
        if self.watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let replaced = Arc::downgrade(self);
        let watch = move || {
            loop {
                std::thread::sleep(KEPT_FOR / 2);
                let Some(replaced) = replaced.upgrade() else { return };
                let mut kept = replaced.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.retain(|_, (_, since)| since.elapsed() < KEPT_FOR);
                if kept.is_empty() {
                    // Under the lock: what is kept from now on begins another thread.
                    replaced.watched.store(false, Ordering::Release);
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("engram-replaced".to_owned()).spawn(watch);
        if spawned.is_err() {
            self.watched.store(false, Ordering::Release);
        }
    }

    /// Lets go of what the kernel has forgotten.
    pub fn forget(&self, ino: Ino) {
        if self.used.load(Ordering::Acquire) {
            // It is dropped under the lock: whoever needs its space waits for that.
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&ino);
        }
    }

    /// Does what takes space; where there is none, once more without what is kept.
    pub fn with_room<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(Errno { code: libc::ENOSPC, .. }) if self.used.load(Ordering::Acquire) => {
                self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
                act()
            }
            done => done,
        }
    }
}
