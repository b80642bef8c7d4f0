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
/// Sealed objects after which it does: a look reads the whole directory.
const SEALED: u64 = 768;
/// How many a seal counts for at least: few objects make a segment, too.
const SEAL: u64 = SEALED / 4;
/// How many objects a commit brings for each step of maintenance that follows it, beside the first.
/// With a handful of nearly unique keys these come to about a step before they lie in a full
/// segment and in long runs.
const OBJECTS_A_STEP: u64 = 256;

/// Hints of one process.
pub struct IndexState {
    /// Objects of the tail with rows of their own, after this process's last commit that touched
    /// it.
    tail: AtomicU64,
    /// Ids in the range that this process's last new object is in, up to that.
    own_span: AtomicU64,
    /// Ids in all other ranges, when they were last counted.
    other_spans: AtomicU64,
    /// Rows that the tail may have.
    tail_rows: AtomicU64,
    /// After a failure, rows from which sealing is tried again.
    again_at: AtomicU64,
    /// Rows of the queue, after this process's last commit that touched it.
    queued: AtomicU64,
    /// Rows that the queue may have.
    queue_max: AtomicU64,
    /// Positions that this process has marked dead since the last look at the segments.
    marks: AtomicU64,
    /// Objects that it has sealed since that look.
    sealed: AtomicU64,
    /// Objects that it has put or changed since it last did maintenance.
    touched: AtomicU64,
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
            own_span: AtomicU64::new(0),
            other_spans: AtomicU64::new(0),
            tail_rows: AtomicU64::new(256),
            again_at: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            touched: AtomicU64::new(0),
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

/// What waits to be sealed or indexed after a commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waiting {
    /// Objects of the tail with rows of their own.
    pub tail: u64,
    /// Ids of the range that the newest object is in, if one came.
    pub own_span: Option<u64>,
    /// Ids of all ranges, if they were counted.
    pub spans: Option<u64>,
    /// Rows of the queue.
    pub queued: u64,
    /// Objects that the commit has put, changed or removed.
    pub touched: u64,
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
    pub fn note(&self, waiting: Option<Waiting>, marks: u64) {
        if let Some(waiting) = waiting {
            self.tail.store(waiting.tail, Ordering::Relaxed);
            self.queued.store(waiting.queued, Ordering::Relaxed);
            self.touched.fetch_add(waiting.touched, Ordering::Relaxed);
            if let Some(own) = waiting.own_span {
                self.own_span.store(own, Ordering::Relaxed);
            }
            if let Some(spans) = waiting.spans {
                let own = self.own_span.load(Ordering::Relaxed);
                self.other_spans.store(spans.saturating_sub(own), Ordering::Relaxed);
            }
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
        self.tail_len() >= least
            || self.marks.load(Ordering::Relaxed) >= MARKS
            || self.sealed.load(Ordering::Relaxed) >= SEALED
            || self.asked.load(Ordering::Relaxed)
            || self.left.load(Ordering::Relaxed)
    }

    /// Takes down that so many objects of the tail were sealed.
    pub fn note_sealed(&self, objects: usize) {
        self.again_at.store(0, Ordering::Relaxed);
        self.sealed.fetch_add((objects as u64).max(SEAL), Ordering::Relaxed);
    }

    /// How many steps this process takes now: as many as keep pace with what it has put and changed
    /// since it asked last.
    pub fn steps(&self) -> u64 {
        1 + self.touched.swap(0, Ordering::Relaxed) / OBJECTS_A_STEP
    }

    /// Whether the tail may have any objects, as far as this process knows.
    pub fn has_tail(&self) -> bool {
        self.tail_len() > 0
    }

    /// How long the tail is, as far as this process knows: never less than what it has added
    /// itself.
    fn tail_len(&self) -> u64 {
        let parts = [&self.tail, &self.own_span, &self.other_spans];
        parts.into_iter().map(|part| part.load(Ordering::Relaxed)).sum()
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
        self.sealed.store(0, Ordering::Relaxed);
        let again = if failed { 2 * self.tail_len() } else { 0 };
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

    /// Whether a query has asked for something.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
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

    /// What a forked child begins with: it has put nothing yet.
    pub fn forget(&self) {
        self.busy.store(false, Ordering::Release);
        for count in [&self.tail, &self.own_span, &self.other_spans, &self.touched] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IndexState, MARKS, SEALED, Waiting};

    #[test]
    fn the_segments_are_looked_at_after_many_sealed_objects_or_when_there_is_a_reason() {
        let state = IndexState::default();
        assert!(state.is_due(), "there was no look yet");
        state.looked(false, false);
        for _ in 0..SEALED.div_ceil(256) {
            assert!(!state.is_due());
            state.note_sealed(256);
        }
        assert!(state.is_due());
        state.looked(false, false);
        assert!(!state.is_due());
        state.note(None, MARKS);
        assert!(state.is_due());
        state.looked(false, true);
        assert!(state.is_due(), "the last look left work");
    }

    #[test]
    fn a_few_small_seals_are_a_reason_to_look() {
        let state = IndexState::default();
        state.looked(false, false);
        for _ in 0..4 {
            assert!(!state.is_due());
            state.note_sealed(1);
        }
        assert!(state.is_due());
    }

    #[test]
    fn a_large_commit_is_followed_by_more_steps_and_a_small_one_by_one() {
        let state = IndexState::default();
        let touch = |touched| state.note(Some(Waiting { touched, ..Waiting::default() }), 0);
        assert_eq!(state.steps(), 1);
        touch(1);
        assert_eq!(state.steps(), 1);
        touch(600);
        touch(1000);
        assert_eq!((state.steps(), state.steps()), (7, 1));
    }
}
