//! Space that a batch reserves ahead.
//!
//! A reservation is a commit of its own. A batch that stores many values of one length would make
//! as many commits as it has values, besides its last. So it reserves for one value at a time at
//! first, and then for as many as it has stored of that length, up to a bound. What it has not used
//! goes back when it ends, when lengths were used since that are more than it keeps, and when the
//! realm is full for something else that its thread stores.
//!
//! *Invariant*. Each extent here is reserved for the lease that the run notes, and nothing refers
//! to it. It is pinned when it is used.

use std::sync::Arc;

use engram_base::error::Result;
use engram_base::faults::step;
use engram_ops::rows_mut::Reserved;
use engram_records::extent::{Extent, SIZE_MAX, extent_len};

use crate::batch;
use crate::realm::core::Core;
use crate::realm::dead;
use crate::realm::space::{self, Attempt};
use crate::view::Claim;

/// So many values of a length are stored before more is reserved than is used at once.
const ALONE: u64 = 4;
/// So much at most lies ready of one length.
const BYTES_MAX: u64 = 512 << 10;
/// Of so many lengths, those used last, something lies ready.
const LENGTHS_MAX: usize = 4;

/// Extents of one length that lie ready.
struct OneLength {
    len: u64,
    device: Option<u32>,
    /// How many of this length the batch has asked for.
    asked: u64,
    ready: Vec<ReadyExtent>,
}

/// An extent that is reserved.
#[derive(Clone, Copy)]
struct ReadyExtent {
    reserved: Reserved,
    /// The age of the reservation.
    age: u64,
}

/// What a batch has reserved ahead.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The one used last is the last.
    lengths: Vec<OneLength>,
}

/// What a batch says when it is asked for an extent.
struct Offer {
    /// One that lay ready.
    ready: Option<ReadyExtent>,
    /// If none did, so many are to be reserved.
    count: u64,
    /// What is to go back: it was ready of a length that is not used any more.
    left: Vec<Reserved>,
}

impl Ahead {
    fn ask(&mut self, len: u64, device: Option<u32>) -> Offer {
        let known = self.lengths.iter().position(|one| (one.len, one.device) == (len, device));
        let mut one = match known {
            Some(place) => self.lengths.remove(place),
            None => OneLength { len, device, asked: 0, ready: Vec::new() },
        };
        let mut left = Vec::new();
        if self.lengths.len() == LENGTHS_MAX {
            left.extend(self.lengths.remove(0).ready.iter().map(|ready| ready.reserved));
        }
        let most = (BYTES_MAX / len).max(1);
        let count = if one.asked < ALONE { 1 } else { one.asked.min(most) };
        let ready = one.ready.pop();
        one.asked += 1;
        self.lengths.push(one);
        Offer { ready, count, left }
    }

    /// Keeps what was reserved for the length that was asked for last.
    fn keep(&mut self, more: impl DoubleEndedIterator<Item = ReadyExtent>) {
        if let Some(one) = self.lengths.last_mut() {
            // The first is used first: what is left lies at the end, beside what is free.
            one.ready.extend(more.rev());
        }
    }

    /// Takes all that lies ready, so that it goes back.
    pub(crate) fn empty(&mut self) -> Vec<Reserved> {
        let ready = self.lengths.iter_mut().flat_map(|one| one.ready.drain(..));
        ready.map(|ready| ready.reserved).collect()
    }
}

/// Reserves space for a value and claims it: of what this thread's batch has ready, if it runs one.
/// On error nothing is reserved for it.
pub(super) fn reserve(
    core: &Arc<Core>,
    nbytes: u64,
    device: Option<u32>,
) -> Result<(Reserved, Claim)> {
    if nbytes > SIZE_MAX {
        return space::reserve(core, nbytes, device);
    }
    let len = extent_len(nbytes);
    let Some(offer) = batch::ahead(core, |ahead| ahead.ask(len, device)) else {
        return space::reserve(core, nbytes, device);
    };
    space::give_all_back(core, &offer.left);
    let ready = match offer.ready {
        None if offer.count > 1 => reserve_run(core, len, device, offer.count)?,
        ready => ready,
    };
    if let Some(ready) = ready
        && let Some(claim) = claim(core, ready)?
    {
        return Ok((ready.reserved, claim));
    }
    space::reserve(core, nbytes, device)
}

/// Gives back what this thread's batch has ready; `false`: there is nothing.
pub(super) fn give_up(core: &Arc<Core>) -> bool {
    let left = batch::ahead(core, Ahead::empty).unwrap_or_default();
    space::give_all_back(core, &left);
    !left.is_empty()
}

/// Reserves up to so many extents in one commit, and keeps all but the first ready; `None`: there
/// is no space without looking further.
fn reserve_run(
    core: &Arc<Core>,
    len: u64,
    device: Option<u32>,
    count: u64,
) -> Result<Option<ReadyExtent>> {
    let inside = core.enter()?;
    dead::take_back_left(core, &inside)?;
    let lens = vec![len; count as usize];
    let Attempt::Reserved(extents, age) = space::try_reserve(core, &inside, &lens, device)? else {
        return Ok(None);
    };
    step!("batch.reserved");
    let lease = inside.lease().id();
    let ready = |extent: Extent| ReadyExtent { reserved: Reserved { extent, lease }, age };
    let mut all = extents.into_iter().map(ready);
    let first = all.next();
    batch::ahead(core, |ahead| ahead.keep(all));
    Ok(first)
}

/// Claims what lay ready; `None`: it was another lease's, and went back with that.
fn claim(core: &Arc<Core>, ready: ReadyExtent) -> Result<Option<Claim>> {
    let ReadyExtent { reserved, age } = ready;
    let inside = core.enter()?;
    if inside.lease().id() != reserved.lease {
        return Ok(None);
    }
    match space::hold(core, &inside, reserved.extent, age) {
        Ok(claim) => Ok(Some(claim)),
        Err(error) => {
            drop(inside);
            space::give_back(core, reserved);
            Err(error)
        }
    }
}
