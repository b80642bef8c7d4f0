//! The drainer: a thread that indexes what is queued, a little later.
//!
//! There is one for each realm that this process has open for writing and in which something was
//! queued. It sleeps until somebody rings, waits a moment for more to come, and drains in parts.
//! After each part it leaves the writer lock to others for twice as long as the part took, unless
//! the queue is about to be full. What other processes have left in the queue is found by the
//! caretaker, which rings then (`caretaker`).
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
use engram_base::mutex::lock;
use engram_index::queue;

/// How long it waits for more to come.
const GATHER: Duration = Duration::from_millis(100);
/// The longest that it rests between two parts.
const REST_MAX: Duration = Duration::from_millis(100);
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

    /// Waits until somebody rings; whether to go on.
    fn wait(&self) -> bool {
        let mut stop = lock(&self.stop);
        while !*stop && !self.rung.load(Ordering::Acquire) {
            stop = self.changed.wait(stop).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        !*stop
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
    /// Wakes the thread; starts it if there is none. Called inside the core.
    pub(super) fn ring(&self, core: &Weak<Core>) {
        let mut slot = lock(&self.bell);
        if let Some(bell) = slot.as_ref().filter(|bell| !bell.ended.load(Ordering::Acquire)) {
            return bell.ring();
        }
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), ..Bell::default() });
        let (core, own) = (Weak::clone(core), Arc::clone(&bell));
        // Without a thread the queue waits for somebody else, or until it is full.
        if spawn_quietly("engram-drain", move || run(&core, &own)) {
            *slot = Some(bell);
        }
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
    while bell.wait() && bell.rest(GATHER) {
        bell.rung.store(false, Ordering::Release);
        loop {
            let Some(core) = core.upgrade() else { return };
            let began = Instant::now();
            let Ok(inside) = core.enter() else { return };
            let drained = index::drain_quietly(&core, &inside);
            index::after_commit(&core, &inside);
            let hurry = core.index.state.is_queue_nearly_full();
            drop(inside);
            drop(core);
            let busy = drained.as_ref().is_err_and(|error| error.kind() == Kind::Busy);
            let rest = if hurry { Duration::ZERO } else { 2 * began.elapsed() };
            if !bell.rest(if busy { REST_BUSY } else { rest.min(REST_MAX) }) {
                return;
            }
            if busy {
                continue;
            }
            // After an error (a full pool, perhaps) it waits for the next ring, or the caretaker's.
            if drained.unwrap_or(0) < queue::PART {
                break;
            }
        }
    }
}
