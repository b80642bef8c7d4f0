//! The drainer: a thread that indexes what is queued, a little later.
//!
//! There is one for each realm that this process has open for writing. It sleeps until somebody
//! rings, waits a moment for more to come, and drains in parts. After each part it leaves the
//! writer lock to others for twice as long as the part took, unless the queue is about to be full.
//!
//! **What others have queued.** A process drains what it has queued itself, as long as it lives.
//! Nobody rings for what it leaves when it closes or dies. So each such thread looks now and then
//! whether there was a commit; and if the queue begins with the same object as at its last look,
//! nobody drains it, and this thread does.
//!
//! It keeps nothing open: it holds the core weakly, and enters it like any operation, so closing
//! and forking wait for a part at most. It is told to stop when the last session closes. Threads do
//! not survive a fork: the child forgets it, and has its own once it rings. Signals are for other
//! threads.

use crate::realm::index;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::process::{between_forks, spawn_quietly};
use crate::realm::core::Core;
use engram_base::error::Kind;
use engram_base::id::Oid;
use engram_base::mutex::lock;
use engram_index::queue;

/// How long it waits for more to come.
const GATHER: Duration = Duration::from_millis(100);
/// The longest that it rests between two parts.
const REST_MAX: Duration = Duration::from_millis(100);
/// How long it sleeps before it looks for what others have left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long it rests when a process that stands still has the catalog.
const REST_BUSY: Duration = Duration::from_secs(1);

/// What rings the thread.
#[derive(Default)]
struct Bell {
    /// Whether to stop.
    stop: Mutex<bool>,
    changed: Condvar,
    /// Whether somebody has rung since it last began.
    rung: AtomicBool,
    /// Whether the thread has ended.
    ended: AtomicBool,
}

/// What ends the thread's sleep.
enum Woken {
    /// This process has queued something.
    Rung,
    /// It is time to look for what others have left.
    Time,
}

/// Sets the bell's `ended` when the thread ends, even by a panic.
struct EndedOnDrop<'a>(&'a Bell);

impl Drop for EndedOnDrop<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

impl Bell {
    fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Under the lock: it is waiting, or has not looked yet.
            let _stop = lock(&self.stop);
            self.changed.notify_all();
        }
    }

    /// Waits until somebody rings or it is time to look, and says which; `None`: to stop.
    fn wait(&self) -> Option<Woken> {
        let until = Instant::now() + LOOK_EVERY;
        let mut stop = lock(&self.stop);
        while !*stop {
            if self.rung.load(Ordering::Acquire) {
                return Some(Woken::Rung);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(Woken::Time);
            }
            let waited = self.changed.wait_timeout(stop, left);
            stop = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        None
    }

    /// Waits as long; whether to go on.
    fn rest(&self, time: Duration) -> bool {
        let (stop, until) = (lock(&self.stop), Instant::now() + time);
        let mut stop = stop;
        while !*stop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(stop, left);
            stop = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
        !*stop
    }
}

/// A realm's drainer in this process, if it has one.
#[derive(Default)]
pub(crate) struct Drainer {
    bell: Mutex<Option<Arc<Bell>>>,
}

impl Drainer {
    /// Starts the thread if there is none. Called inside the core.
    pub(super) fn start(&self, core: &Weak<Core>) {
        self.bell(core);
    }

    /// Wakes the thread; starts it if there is none. Called inside the core.
    pub(super) fn ring(&self, core: &Weak<Core>) {
        if let Some(bell) = self.bell(core) {
            bell.ring();
        }
    }

    /// The bell of a thread that runs. Without a thread the queue waits for somebody else, or until
    /// it is full.
    fn bell(&self, core: &Weak<Core>) -> Option<Arc<Bell>> {
        let mut slot = lock(&self.bell);
        if let Some(bell) = slot.as_ref().filter(|bell| !bell.ended.load(Ordering::Acquire)) {
            return Some(Arc::clone(bell));
        }
        let bell = Arc::new(Bell::default());
        let (core, own) = (Weak::clone(core), Arc::clone(&bell));
        if !spawn_quietly("engram-drain", move || run(&core, &own)) {
            return None;
        }
        *slot = Some(Arc::clone(&bell));
        Some(bell)
    }

    /// Ends the thread, after the part that it is at.
    pub(super) fn stop(&self) {
        let bell = between_forks(|| lock(&self.bell).take());
        if let Some(bell) = bell {
            *lock(&bell.stop) = true;
            bell.changed.notify_all();
        }
    }

    /// In a forked child, which has no such thread.
    pub(crate) fn forget(&self) {
        // The bell's own lock may be held by a thread that is not here: nobody looks at it again.
        std::mem::forget(lock(&self.bell).take());
    }
}

fn run(core: &Weak<Core>, bell: &Bell) {
    let _ending = EndedOnDrop(bell);
    let mut last_look = LastLook::default();
    // What is there already is of processes that have gone, or does no harm twice.
    let _ = last_look.finds_left(core);
    if last_look.first.is_some() && !drain_all(core, bell) {
        return;
    }
    while let Some(woken) = bell.wait() {
        let go_on = match woken {
            Woken::Rung => bell.rest(GATHER) && drain_all(core, bell),
            Woken::Time => match last_look.finds_left(core) {
                None => return,
                Some(false) => true,
                Some(true) => drain_all(core, bell),
            },
        };
        if !go_on {
            return;
        }
    }
}

/// What the thread saw when it last looked.
#[derive(Default)]
struct LastLook {
    commit: u64,
    first: Option<Oid>,
}

impl LastLook {
    /// Looks whether others have left something in the queue; `None`: the core is shut.
    fn finds_left(&mut self, core: &Weak<Core>) -> Option<bool> {
        let core = core.upgrade()?;
        let Ok(inside) = core.enter() else { return None };
        // What cannot be read is for others to report.
        let Ok(commit) = inside.catalog().last_id() else { return Some(false) };
        if commit == self.commit && self.first.is_none() {
            return Some(false);
        }
        let first = index::first_queued(&inside).unwrap_or(None);
        let left = first.is_some() && first == self.first;
        *self = LastLook { commit, first };
        Some(left)
    }
}

/// Drains until nothing is left; whether to go on.
fn drain_all(core: &Weak<Core>, bell: &Bell) -> bool {
    bell.rung.store(false, Ordering::Release);
    loop {
        let Some(core) = core.upgrade() else { return false };
        let began = Instant::now();
        let Ok(inside) = core.enter() else { return false };
        let drained = index::drain_quietly(&core, &inside);
        index::after_commit(&core, &inside);
        let hurry = core.index.state.is_queue_nearly_full();
        drop(inside);
        drop(core);
        let busy = drained.as_ref().is_err_and(|error| error.kind() == Kind::Busy);
        let rest = if hurry { Duration::ZERO } else { 2 * began.elapsed() };
        if !bell.rest(if busy { REST_BUSY } else { rest.min(REST_MAX) }) {
            return false;
        }
        // After an error (a full pool, perhaps) it waits for the next ring, or the next look.
        if !busy && drained.unwrap_or(0) < queue::PART {
            return true;
        }
    }
}
