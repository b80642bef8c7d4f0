//! What a view of a file shows, kept from reuse.
//!
//! A view that lives long, as a map that a program forgets, keeps what it shows and no more: what
//! the file is given later and gives up again is free.

use super::{Hold, Lease, ObjectUse};
use crate::extent::joined;
use engram_base::id::Oid;
use engram_records::extent::Extent;

/// The most pins of one view; where it shows more runs of pages, a pin of the object serves.
const RUNS_MAX: usize = if cfg!(loom) { 2 } else { 256 };

/// How a view of a file keeps what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViewHold {
    /// By a hold on each run of pages.
    Runs(Vec<(Extent, Hold)>),
    /// By a hold on the object: what it gives up meanwhile stays, too.
    Whole(Hold),
}

impl Lease {
    /// Keeps extents of whole pages that a view of a file shows. The caller is within a look-up of
    /// this age that shows them.
    pub fn keep_shown(&self, oid: Oid, extents: Vec<Extent>, age: u64) -> ViewHold {
        let runs = joined(extents);
        if runs.len() > RUNS_MAX || !self.has_room(runs.len()) {
            return ViewHold::Whole(self.use_object(oid, ObjectUse::View, age));
        }
        ViewHold::Runs(runs.into_iter().map(|run| (run, self.pin(run, age))).collect())
    }

    /// Gives up what a view of a file kept.
    pub fn leave_shown(&self, oid: Oid, shown: &ViewHold) {
        match shown {
            ViewHold::Runs(runs) => runs.iter().for_each(|(run, hold)| self.unpin(*run, *hold)),
            ViewHold::Whole(hold) => self.leave_object(oid, ObjectUse::View, *hold),
        }
    }
}
