//! Batches: many operations, one commit.

use engram::Batch as Engine;

use crate::error::{Status, guard};
use crate::group::Group;
use crate::raw;

/// A batch, which runs in the thread that began it.
pub struct Batch {
    engine: Engine,
}

/// Begins a batch on a group's namespace, in this thread. If the thread has a batch there already,
/// this joins it. What the thread changes until the end becomes visible all at once, or not at all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_begin(group: *const Group, batch: *mut *mut Batch) -> Status {
    guard(|| {
        let out = raw::out("batch", batch)?;
        let engine = raw::of("group", group)?.namespace.batch()?;
        out.set(raw::give(Batch { engine }));
        Ok(())
    })
}

/// Ends a batch, and commits it unless it has joined another batch. The handle is freed, whether
/// this succeeds or not. After an error, nothing of the batch is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_commit(batch: *mut Batch) -> Status {
    guard(|| {
        raw::of("batch", batch)?;
        raw::take(batch).map_or(Ok(()), |batch| batch.engine.commit())
    })
}

/// Ends a batch, and the batch that it has joined, and keeps nothing of either. The handle is
/// freed. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_abort(batch: *mut Batch) -> Status {
    guard(|| raw::take(batch).map_or(Ok(()), |batch| batch.engine.abort()))
}
