//! The queue: objects of mode `async`, from their own commit until they are indexed.
//!
//! A row of `queue` says that the object is to be indexed anew: it may have no place in the index
//! yet, or one that is out of date. Draining takes rows from the front, some in each transaction:
//! the old places go, the records are sealed as they are now, the rows go. A few of them only join
//! the tail. Dying in between leaves rows, not holes.

use super::change::unplace;
use super::directory::Finder;
use super::maintain::first_oids;
use super::seal::{Origin, seal, settings_of};
use crate::catalog::Table;
use crate::error::Result;
use crate::faults::step;
use crate::id::{Gid, id_key};
use crate::realm::Changes;

/// How many objects are drained in one transaction.
pub(crate) const PART: u64 = 1024;

/// Indexes up to `most` queued objects; how many.
pub(crate) fn drain(rows: &mut Changes<'_>, root: Gid, most: u64) -> Result<u64> {
    rows.touch();
    let oids = first_oids(rows.txn(), Table::Queue, most as usize)?;
    let mut finder = Finder::default();
    for oid in &oids {
        rows.txn().delete(Table::Queue, &oid.to_be_bytes())?;
        unplace(rows.txn(), &mut finder, *oid)?;
    }
    step!("queue.taken");
    if oids.len() < settings_of(rows, root, 0)?.tail_rows {
        oids.iter().try_for_each(|oid| rows.txn().put(Table::IndexTail, &id_key(*oid), &[]))?;
    } else {
        seal(rows, root, &oids, Origin::New)?;
    }
    Ok(oids.len() as u64)
}
