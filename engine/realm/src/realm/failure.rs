//! Failures of maintenance: work that is nobody's errand, and fails without anybody being told.
//!
//! The last failure stands in the growth page until the same work is done, so that every process
//! can tell of it: what failed, how, where and when. The process in which it failed knows the
//! message, too, and tells its program once (`notices`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use engram_base::error::{Error, Kind};
use engram_base::mutex::lock;
use engram_catalog::NotedFailure;

/// The work that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MaintenanceTask {
    /// Indexing what is queued.
    Drain = 1,
    /// Sealing and rearranging the index.
    Arrange = 2,
}

impl MaintenanceTask {
    /// In words, as an object of "failed".
    pub const fn words(self) -> &'static str {
        match self {
            MaintenanceTask::Drain => "indexing what is queued",
            MaintenanceTask::Arrange => "sealing the index",
        }
    }
}

/// A failure of maintenance that was not made good since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceFailure {
    /// What failed.
    pub task: MaintenanceTask,
    /// How.
    pub kind: Kind,
    /// The process in which it did.
    pub pid: u32,
    /// When, in ns since 1970.
    pub at: u64,
    /// What was wrong; known in that process alone.
    pub message: Option<String>,
}

impl MaintenanceFailure {
    fn word(&self) -> u64 {
        u64::from(self.pid) << 32 | u64::from(self.kind as u8) << 8 | u64::from(self.task as u8)
    }

    /// `None` for a word that no engine has written.
    fn of(noted: NotedFailure) -> Option<Self> {
        let (word, at) = (noted.word, noted.at);
        let task = match word as u8 {
            1 => MaintenanceTask::Drain,
            2 => MaintenanceTask::Arrange,
            _ => return None,
        };
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == (word >> 8) as u8)?;
        Some(MaintenanceFailure { task, kind, pid: (word >> 32) as u32, at, message: None })
    }
}

/// What this process knows of failures in a realm.
#[derive(Debug, Default)]
pub(crate) struct KnownFailure {
    last: Mutex<Option<MaintenanceFailure>>,
    told: AtomicBool,
}

impl KnownFailure {
    /// What a forked child begins with.
    pub(crate) fn forget(&self) {
        *lock(&self.last) = None;
    }
}

/// Notes how maintenance has ended. A process that stands still in the catalog is no failure: those
/// who wait for it are told.
pub(super) fn note<T>(
    core: &Core,
    inside: &Inside<'_>,
    task: MaintenanceTask,
    ended: Result<&T, &Error>,
) {
    let growth = inside.catalog().growth();
    match ended {
        Ok(_) => {
            let failed = growth.failure().and_then(MaintenanceFailure::of);
            if failed.is_some_and(|failed| failed.task == task) {
                growth.set_failure(NotedFailure::default());
            }
        }
        Err(error) if error.kind() == Kind::Busy => {}
        Err(error) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let failure = MaintenanceFailure {
                task,
                kind: error.kind(),
                pid: std::process::id(),
                at: now.map_or(0, |now| now.as_nanos() as u64),
                message: Some(error.to_string()),
            };
            growth.set_failure(NotedFailure { word: failure.word(), at: failure.at });
            *lock(&core.index.failure.last) = Some(failure);
            if !core.index.failure.told.swap(true, Ordering::Relaxed) {
                core.holdings.notices.add(notice(core, task, error));
            }
        }
    }
}

fn notice(core: &Core, task: MaintenanceTask, error: &Error) -> String {
    format!(
        "{} failed in namespace {:?} of {}: {error}; nothing is lost, and it is tried again, but \
         queries become slower meanwhile (this is told once: see pool.stats()[\"maintenance\"])",
        task.words(),
        core.setup.namespace,
        core.setup.pool.display()
    )
}

/// The last failure, of whichever process, if it was not made good since.
pub(super) fn last(core: &Core, inside: &Inside<'_>) -> Option<MaintenanceFailure> {
    let failed = inside.catalog().growth().failure().and_then(MaintenanceFailure::of)?;
    let known = lock(&core.index.failure.last).clone();
    let same = |known: &MaintenanceFailure| (known.word(), known.at) == (failed.word(), failed.at);
    Some(known.filter(same).unwrap_or(failed))
}
