//! What one process remembers of a realm's index between commits: when to look for work.
//!
//! All of it is a hint. A search for work looks at the rows, under the writer lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::hints::{Hint, Hints};
use super::mode_cache::ModeCache;
use engram_base::mutex::lock;
use engram_columns::column_key::ColumnKey;

/// Dead positions after which maintenance looks at the segments.
const MARKS: u64 = 256;

/// Hints of one process.
pub struct IndexState {
    /// Rows of the tail, after this process's last commit that touched it.
    tail: AtomicU64,
    /// Rows that the tail may have.
    tail_rows: AtomicU64,
    /// After a failure, rows from which sealing is tried again.
    again_at: AtomicU64,
    /// Positions that this process has marked dead since the last look.
    marks: AtomicU64,
    /// Rows of the queue, likewise, and how many it may have.
    queued: AtomicU64,
    queue_max: AtomicU64,
    /// Whether somebody of this process is at it.
    busy: AtomicBool,
    /// The modes of new objects.
    pub modes: ModeCache,
    /// What queries would have done, and whether one has asked for something.
    hints: Mutex<Hints>,
    asked: AtomicBool,
    /// Whether the last look left work, or there has been none yet.
    left: AtomicBool,
}

impl Default for IndexState {
    fn default() -> Self {
        IndexState {
            tail: AtomicU64::new(0),
            tail_rows: AtomicU64::new(256),
            again_at: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            queue_max: AtomicU64::new(65_536),
            busy: AtomicBool::new(false),
            modes: ModeCache::default(),
            hints: Mutex::default(),
            asked: AtomicBool::new(false),
            left: AtomicBool::new(true),
        }
    }
}

/// Maintenance by this process, ended when dropped. One thread at a time is enough.
pub struct AtWork<'a>(&'a IndexState);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

impl IndexState {
    /// Takes down what a commit has left.
    pub fn note(&self, waiting: Option<[u64; 2]>, marks: u64) {
        if let Some([tail, queued]) = waiting {
            self.tail.store(tail, Ordering::Relaxed);
            self.queued.store(queued, Ordering::Relaxed);
        }
        if marks > 0 {
            self.marks.fetch_add(marks, Ordering::Relaxed);
        }
    }

    /// Takes down how long tail and queue may be.
    pub fn set_limits(&self, tail_rows: usize, queue_max: usize) {
        self.tail_rows.store(tail_rows as u64, Ordering::Relaxed);
        self.queue_max.store(queue_max as u64, Ordering::Relaxed);
    }

    /// Whether there may be something to do.
    pub fn is_due(&self) -> bool {
        let least = self.tail_rows.load(Ordering::Relaxed);
        let least = least.max(self.again_at.load(Ordering::Relaxed));
        self.tail.load(Ordering::Relaxed) >= least
            || self.marks.load(Ordering::Relaxed) >= MARKS
            || self.asked.load(Ordering::Relaxed)
            || self.left.load(Ordering::Relaxed)
    }

    /// Whether the queue is full.
    pub fn is_queue_full(&self) -> bool {
        self.queued.load(Ordering::Relaxed) >= self.queue_max.load(Ordering::Relaxed)
    }

    /// Whether the queue will be full soon.
    pub fn is_queue_nearly_full(&self) -> bool {
        self.queued() * 2 >= self.queue_max.load(Ordering::Relaxed)
    }

    /// Rows of the queue, as far as this process knows.
    pub fn queued(&self) -> u64 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Begins maintenance, unless another thread is at it.
    pub fn begin(&self) -> Option<AtWork<'_>> {
        (!self.busy.swap(true, Ordering::AcqRel)).then_some(AtWork(self))
    }

    /// Ends a look for work, which may have `left` some: dead positions are counted anew, and after
    /// a failure the tail may double before the next.
    pub fn looked(&self, failed: bool, left: bool) {
        self.left.store(left, Ordering::Relaxed);
        self.marks.store(0, Ordering::Relaxed);
        let again = if failed { 2 * self.tail.load(Ordering::Relaxed) } else { 0 };
        self.again_at.store(again, Ordering::Relaxed);
    }

    /// Takes down what a query tells: the keys that it names, and what it asks for.
    pub fn told(&self, mut keys: Vec<ColumnKey>, asked: impl IntoIterator<Item = Hint>) {
        let mut asked = asked.into_iter().peekable();
        if keys.len() < 2 && asked.peek().is_none() {
            return;
        }
        keys.sort_unstable();
        keys.dedup();
        let mut hints = lock(&self.hints);
        if keys.len() > 1 {
            hints.count(keys);
        }
        asked.for_each(|hint| hints.ask(hint));
        self.asked.store(hints.any_asked(), Ordering::Relaxed);
    }

    /// What queries would have done.
    pub fn hints(&self) -> Vec<Hint> {
        lock(&self.hints).due()
    }

    /// Forgets these hints: nothing is left to do for them.
    pub fn mark_done(&self, done: &[Hint]) {
        if !done.is_empty() {
            let mut hints = lock(&self.hints);
            hints.mark_done(done);
            self.asked.store(hints.any_asked(), Ordering::Relaxed);
        }
    }

    /// What a forked child begins with.
    pub fn forget(&self) {
        self.busy.store(false, Ordering::Release);
    }
}
