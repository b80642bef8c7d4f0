//! What the kernel may keep, and for how long.
//!
//! * `job`: only this mount writes. Names and attributes are kept for an hour, pages for as long as
//!   there is room.
//! * `shared` (the default): others write, too: Python, another mount. Names and attributes are
//!   kept for a second. Pages are kept from one open to the next if the file has not changed
//!   meanwhile.
//! * `none`: each call asks, and bytes go past the kernel's pages.
//!
//! A program that takes a lock in `shared` reads what others have written until then: pages that
//! may be older are forgotten before it has the lock.
//!
//! Where bytes come to lie elsewhere than the kernel thinks, as when two processes append, it is
//! told to forget its pages of the file.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use engram_fs::{Handle, Ino, Stat};
use fuser::{FileHandle, FopenFlags, INodeNo, Notifier};

/// So many files are remembered as they were opened.
const KNOWN_MAX: usize = 1 << 16;

/// What the kernel may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Only this mount writes.
    Job,
    /// Others write, too.
    Shared,
    /// Nothing is kept.
    None,
}

impl Cache {
    /// The one of this name.
    pub fn parse(word: &str) -> Option<Cache> {
        Some(match word {
            "job" => Cache::Job,
            "shared" => Cache::Shared,
            "none" => Cache::None,
            _ => return None,
        })
    }

    /// How long names and attributes are kept.
    pub fn time(self) -> Duration {
        Duration::from_secs(match self {
            Cache::Job => 3600,
            Cache::Shared => 1,
            Cache::None => 0,
        })
    }
}

/// How a file was: its size, and when it changed.
type State = (u64, i64);

/// How files were of which the kernel has pages that are no older.
///
/// A state is noted once the kernel has forgotten older pages, and not before: another program may
/// ask in between.
#[derive(Default)]
pub struct Seen {
    known: Mutex<HashMap<Ino, State>>,
    /// By the numbers of open files: how they were before the kernel forgot its pages of them.
    opening: Mutex<HashMap<FileHandle, (Ino, State)>>,
}

impl Seen {
    /// How the kernel is to treat its pages of a file that is opened.
    ///
    /// What is written in place to an array, or to a blob as it was put, leaves no trace in its
    /// `stat`: pages of these are never kept.
    ///
    /// Where others may append, too, what is appended goes past the kernel's pages: it would come
    /// in parts, cut where the kernel thinks that a page ends.
    pub fn opened(&self, cache: Cache, stat: &Stat, handle: &Handle) -> FopenFlags {
        let past = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        let flags = handle.flags();
        match cache {
            Cache::Shared if flags.append && flags.write => past,
            Cache::Shared if !handle.tells_changes() => FopenFlags::empty(),
            Cache::None => past,
            Cache::Job => FopenFlags::FOPEN_KEEP_CACHE,
            Cache::Shared if self.knows(stat) => FopenFlags::FOPEN_KEEP_CACHE,
            Cache::Shared => FopenFlags::empty(),
        }
    }

    /// Notes how a file was before it is opened by a number.
    pub fn opens(&self, cache: Cache, number: FileHandle, stat: &Stat) {
        if cache == Cache::Shared {
            lock(&self.opening).insert(number, (stat.ino, state(stat)));
        }
    }

    /// A file is closed, so the kernel has long opened it, and forgotten its pages if it was to.
    pub fn released(&self, number: FileHandle) {
        let opened = lock(&self.opening).remove(&number);
        if let Some((ino, state)) = opened {
            self.forgot(ino, state);
        }
    }

    /// Whether the kernel's pages of a file are good that is locked now: a program that locks what
    /// others change reads after that. If not, they are to be forgotten.
    pub fn is_good(&self, cache: Cache, handle: &Handle) -> bool {
        match cache {
            Cache::Job | Cache::None => true,
            Cache::Shared => {
                handle.tells_changes() && handle.stat().is_ok_and(|stat| self.knows(&stat))
            }
        }
    }

    /// Has the kernel forget its pages of a file, and what it knows of its size. For a thread that
    /// serves no requests.
    pub fn forget(&self, handle: &Handle) {
        let before = handle.stat().ok();
        forget_now(handle.ino());
        if let Some(stat) = before {
            self.forgot(stat.ino, state(&stat));
        }
    }

    fn forgot(&self, ino: Ino, state: State) {
        let mut known = lock(&self.known);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(ino, state);
    }

    fn knows(&self, stat: &Stat) -> bool {
        lock(&self.known).get(&stat.ino) == Some(&state(stat))
    }
}

fn state(stat: &Stat) -> State {
    (stat.size, stat.changed)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static KERNEL: OnceLock<Notifier> = OnceLock::new();
static FORGOTTEN: OnceLock<Sender<Ino>> = OnceLock::new();

/// Takes the way by which the kernel is told what to forget.
///
/// A thread of its own tells it: the kernel waits until nobody has a page of the file in work, and
/// that may be a request which the thread that serves has yet to answer.
pub fn tell(notifier: Notifier) -> std::io::Result<()> {
    let (sender, numbers) = channel::<Ino>();
    let _ = KERNEL.set(notifier);
    let forget = move || numbers.into_iter().for_each(forget_now);
    std::thread::Builder::new().name("engram-forget".to_owned()).spawn(forget)?;
    let _ = FORGOTTEN.set(sender);
    Ok(())
}

fn forget_now(ino: Ino) {
    if let Some(kernel) = KERNEL.get() {
        // The kernel may have nothing of it: that is what is wanted.
        let _ = kernel.inval_inode(INodeNo(ino), 0, 0);
    }
}

/// Has the kernel forget how long a file is, and ask anew: it is opened, and has changed. Nothing
/// is waited for.
pub fn forget_size(ino: Ino) {
    if let Some(kernel) = KERNEL.get() {
        let _ = kernel.inval_inode(INodeNo(ino), -1, 0);
    }
}

/// Has the kernel forget its pages of a file, soon.
pub fn forget_pages(ino: Ino) {
    if let Some(sender) = FORGOTTEN.get() {
        let _ = sender.send(ino);
    }
}
