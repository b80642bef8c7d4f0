//! The caretaker: a thread that looks now and then for what nobody sees to.
//!
//! A process has one from its first opening for writing on, until it has no realm open so. Once in
//! [`LOOK_EVERY`] it looks at each of these realms:
//!
//! * **The queue.** A process drains what it has queued itself, as long as it lives. Nobody rings
//!   for the rest when it closes or dies. Where there was a commit, and the queue begins with the
//!   same object as at the last look, nobody drains it. Then this process does.
//! * **The index.** Where nobody has committed since the last look, it seals what is left in the
//!   tail, and does the maintenance that commits have left, a step at a time, until somebody does.
//! * **Files without a name** whose last process has closed them, or died (`realm::files`).
//! * **Freed space** that was not yet given back to a full filesystem (`realm::vacant`).
//!
//! It costs an opening nothing but the first. It holds cores only while it looks. Threads do not
//! survive a fork: the child starts its own at its first use of a realm.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::process::{registry, spawn_quietly};
use crate::realm::{Core, files, index, vacant};
use engram_base::id::Oid;
use engram_base::mutex::lock;

/// How long it sleeps between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether this process has the thread.
static RUNS: AtomicBool = AtomicBool::new(false);

/// Sees to it that there is one. The caller has a realm open for writing, and says so in the core.
pub(crate) fn ensure() {
    if !RUNS.swap(true, Ordering::AcqRel) && !spawn_quietly("engram-caretaker", run) {
        // Without it what others leave waits for them, or for a commit of this process.
        RUNS.store(false, Ordering::Release);
    }
}

/// In a forked child, which has no such thread.
pub(crate) fn forget() {
    RUNS.store(false, Ordering::Release);
}

fn run() {
    loop {
        std::thread::sleep(LOOK_EVERY);
        let mut cores = used_cores();
        if cores.is_empty() {
            RUNS.store(false, Ordering::Release);
            // A realm that was opened meanwhile has found this thread, or starts another.
            cores = used_cores();
            if cores.is_empty() || RUNS.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        // Each is let go of without the registry: dropping the last of one takes it.
        for core in cores {
            look(&core);
        }
    }
}

fn used_cores() -> Vec<Arc<Core>> {
    let slot = registry();
    let cores = slot.iter().flat_map(|registry| registry.values());
    let used = |core: &&Arc<Core>| core.index.used.load(Ordering::Acquire) && core.sessions() > 0;
    cores.filter(used).cloned().collect()
}

/// What was seen of a realm.
#[derive(Default)]
pub(crate) struct LastLook {
    commit: u64,
    /// The first object of the queue.
    first: Option<Oid>,
    /// The commit as of which nothing is left to do to the index.
    settled: u64,
}

fn look(core: &Arc<Core>) {
    // A forked child may never use what it has inherited.
    if !core.gate.is_up() {
        return;
    }
    // One that was shut, or whose files are gone, is for others to report; so is damage.
    let Ok(inside) = core.enter() else { return };
    vacant::after_freeing(core, &inside);
    let _ = files::sweep_orphans(core, &inside);
    let Ok(commit) = inside.catalog().last_id() else { return };
    let mut last = lock(&core.index.last_look);
    let idle = commit == last.commit;
    let settled = idle && commit == last.settled && !core.index.asks();
    if settled && last.first.is_none() {
        return;
    }
    let first = index::first_queued(&inside).unwrap_or(None);
    let left = first.is_some() && first == last.first;
    (last.commit, last.first) = (commit, first);
    drop(last);
    if left {
        index::ring(core);
    }
    if !idle || settled || first.is_some() {
        return;
    }
    drop(inside);
    let done = index::settle(core, commit);
    // The lock is taken inside: a forked child finds it free.
    let Ok(_inside) = core.enter() else { return };
    let mut last = lock(&core.index.last_look);
    last.commit = done.commit;
    last.settled = if done.whole { done.commit } else { 0 };
}
