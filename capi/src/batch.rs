//! Batches: many operations, one commit.

use engram::Batch as Engine;

use crate::error::{Status, guard};
use crate::group::Group;
use crate::raw;

/// A batch that runs in the thread that began it.
pub struct Batch {
    engine: Engine,
}

/// Begins a batch on a group's namespace, in this thread; within another, joins that. What the
/// thread does there until the end becomes visible at once, or never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_begin(group: *const Group, batch: *mut *mut Batch) -> Status {
    guard(|| {
        let out = raw::out("batch", batch)?;
        let engine = raw::of("group", group)?.namespace.batch()?;
        out.set(raw::give(Batch { engine }));
        Ok(())
    })
}

/// Ends a batch, and commits if it is the outermost. The handle is freed whatever comes of it; on
/// an error nothing of the batch is kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_commit(batch: *mut Batch) -> Status {
    guard(|| {
        raw::of("batch", batch)?;
        raw::take(batch).map_or(Ok(()), |batch| batch.engine.commit())
    })
}

/// Ends a batch, and the one that it has joined, with nothing kept. The handle is freed. NULL is
/// nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_batch_abort(batch: *mut Batch) -> Status {
    guard(|| raw::take(batch).map_or(Ok(()), |batch| batch.engine.abort()))
}
