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
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::{Gid, id_key};
use engram_catalog::Table;
use engram_catalog::WriteTxn;

/// How many objects are drained in one transaction.
pub const PART: u64 = 1024;

/// Indexes up to `most` queued objects; how many.
pub fn drain(txn: &mut WriteTxn<'_>, root: Gid, most: u64) -> Result<u64> {
    let oids = first_oids(txn, Table::Queue, most as usize)?;
    let mut finder = Finder::default();
    for oid in &oids {
        txn.delete(Table::Queue, &oid.to_be_bytes())?;
        unplace(txn, &mut finder, *oid)?;
    }
    step!("queue.taken");
    if oids.len() < settings_of(txn, root, 0)?.tail_rows {
        oids.iter().try_for_each(|oid| txn.put(Table::IndexTail, &id_key(*oid), &[]))?;
    } else {
        seal(txn, root, &oids, Origin::New)?;
    }
    Ok(oids.len() as u64)
}
