//! Ids of new objects and groups: a block at a time, each given once.

use std::ops::Range;

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::space::NEXT_ID;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{COUNTER_BITS, ID_BLOCK};
use engram_base::mutex::lock;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Headroom, Table};

/// Ids taken and not yet used.
#[derive(Default)]
pub struct IdBlock {
    /// The next one that is given.
    pub next: u64,
    /// Behind the last one.
    pub end: u64,
}

/// Ids taken for one operation, which may run again with the same.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    next: u64,
    left: u64,
}

impl Ids {
    /// The first one that `take` will give.
    pub(super) fn first(&self) -> u64 {
        self.next
    }

    /// The next one; there is one for each component of the path.
    pub(super) fn take(&mut self) -> u64 {
        assert!(self.left > 0, "an operation takes no more ids than its path has components");
        self.left -= 1;
        self.next += 1;
        self.next - 1
    }
}

/// Takes so many ids that follow each other.
pub fn take_range(core: &Core, count: u64) -> Result<Range<u64>> {
    let ids = take_ids(core, &core.enter()?, count)?;
    Ok(ids.next..ids.next + ids.left)
}

/// Takes ids from this process's block; a new block takes a commit of its own.
pub(super) fn take_ids(core: &Core, inside: &Inside<'_>, count: u64) -> Result<Ids> {
    let mut block = lock(&core.ids);
    if block.end - block.next < count {
        let (next, end) = core.prepare(inside, Headroom::Normal, |rows| {
            let next = meta_u64(rows.txn().get(Table::Meta, NEXT_ID)?)?;
            // Blocks end where those of the index's tail do.
            let end = (next + count).next_multiple_of(ID_BLOCK);
            rows.txn().put(Table::Meta, NEXT_ID, &end.to_le_bytes())?;
            Ok((next, end))
        })?;
        if end >> COUNTER_BITS != 0 {
            fail!(PoolFull, "this realm has given out all of its 2^40 ids: make a new namespace");
        }
        step!("ids.committed");
        block.next = next;
        block.end = end;
    }
    let first = block.next;
    block.next += count;
    let id_prefix = core.setup.id_prefix << COUNTER_BITS;
    Ok(Ids { next: id_prefix | first, left: count })
}
