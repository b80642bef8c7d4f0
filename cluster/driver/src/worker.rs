//! What a node does with its pool that may take long, on a thread of its own.
//!
//! *Invariant*: the thread that keeps the lease never waits for the pool. It gives jobs, and is
//! told how they ended. What lies in the pool is listed and freed before bytes are summed up, since
//! a large pool takes minutes for that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use engram_base::error::{Error as StoreError, Kind, Result as StoreResult};
use engram_parts::{Mark, PartName};
use engram_protocol::coordinator::LeaseId;
use engram_protocol::holdings::Held;

use crate::error::{Error, Result};
use crate::node::Shared;

/// Something that may take long.
pub(crate) enum Job {
    /// List the parts, for this member.
    List(LeaseId),
    /// Free a part, or the subtree that it stands for.
    Free(Held),
    /// Look whether a part's bytes are those that were written.
    Check(Held),
}

/// How a job ended.
pub(crate) enum Done {
    /// The parts that there are.
    Listed(LeaseId, StoreResult<Vec<Held>>),
    /// Whether the part is free.
    Freed(StoreResult<()>),
    /// Whether a part's bytes are those that were written.
    Checked(Held, StoreResult<bool>),
}

/// What the pool gave; none where it may give it later: it is tried again. One damaged part, a pool
/// without room, or somebody who has something locked hinder nothing else. An error is what ends
/// serving.
pub(crate) fn borne<T>(got: StoreResult<T>) -> Result<Option<T>> {
    match got {
        Ok(got) => Ok(Some(got)),
        Err(error) if ends_serving(error.kind()) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Whether a pool that says this gives nothing of it, now and later.
fn ends_serving(kind: Kind) -> bool {
    match kind {
        Kind::PoolGone
        | Kind::Format
        | Kind::Unsupported
        | Kind::Unverified
        | Kind::Access
        | Kind::ReadOnly => true,
        Kind::NotFound
        | Kind::Exists
        | Kind::PoolFull
        | Kind::Query
        | Kind::Corrupt
        | Kind::Busy
        | Kind::InvalidName
        | Kind::Argument
        | Kind::Os
        | Kind::CommitUncertain
        | Kind::ClosedNamespace => false,
    }
}

/// The thread. It ends with this value, after the job that it is at.
pub(crate) struct Worker {
    jobs: Option<Sender<Job>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Begins one. It ends by itself where `tell` says that nobody listens.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        tell: impl Fn(Done) -> bool + Send + 'static,
    ) -> Result<Worker> {
        let (jobs, inbox) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let (shared, over) = (Arc::clone(shared), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("engram-pool".to_owned());
        let thread = thread
            .spawn(move || work(&shared, &inbox, &over, &tell))
            .map_err(|error| Error::Store(StoreError::os("starting a thread", &error)))?;
        Ok(Worker { jobs: Some(jobs), is_over, thread: Some(thread) })
    }

    /// Gives it a job.
    pub(crate) fn ask(&self, job: Job) -> Result<()> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if matches!(sent, Some(Ok(()))) {
            return Ok(());
        }
        let why = "the thread that looks after the node pool has ended: start the node again";
        Err(Error::Store(StoreError::new(Kind::Os, why)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, inbox: &Receiver<Job>, is_over: &AtomicBool, tell: &dyn Fn(Done) -> bool) {
    let mut checks: VecDeque<Held> = VecDeque::new();
    let goes_on = || !is_over.load(Ordering::Relaxed);
    while goes_on() {
        let next = if checks.is_empty() { inbox.recv().ok() } else { inbox.try_recv().ok() };
        let done = match next {
            Some(Job::List(member)) => Done::Listed(member, list(shared)),
            Some(Job::Free(held)) => Done::Freed(shared.free(held)),
            Some(Job::Check(held)) => {
                checks.push_back(held);
                continue;
            }
            None => {
                let Some(held) = checks.pop_front() else { return };
                let name = PartName { uuid: held.uuid.clone(), part: held.part };
                let whole = match shared.parts.is_whole(&name, held.checksum, &goes_on) {
                    // Its record is damaged, and not the pool.
                    Err(error) if error.kind() == Kind::Corrupt => Ok(false),
                    whole => whole,
                };
                Done::Checked(held, whole)
            }
        };
        if !tell(done) {
            return;
        }
    }
}

/// The parts of the pool, as the protocol knows them.
fn list(shared: &Shared) -> StoreResult<Vec<Held>> {
    let held = |(PartName { uuid, part }, mark): (PartName, Mark)| {
        let Mark { path, maker, begun, checksum, .. } = mark;
        Held { path, uuid, part, maker, begun, checksum }
    };
    Ok(shared.parts.all()?.into_iter().map(held).collect())
}

#[cfg(test)]
mod tests {
    use engram_base::error::{Error as StoreError, Kind};

    use super::borne;

    #[test]
    fn a_full_pool_or_a_damaged_part_does_not_end_serving_and_a_pool_that_is_gone_does() {
        let failed = |kind| borne::<()>(Err(StoreError::new(kind, "why")));
        for kind in [Kind::PoolFull, Kind::Corrupt, Kind::Busy, Kind::Os, Kind::NotFound] {
            assert!(matches!(failed(kind), Ok(None)), "{kind:?}");
        }
        for kind in [Kind::PoolGone, Kind::Access, Kind::Unsupported] {
            assert!(failed(kind).unwrap_err().to_string().contains("why"), "{kind:?}");
        }
    }
}
