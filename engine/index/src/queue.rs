//! The queue: objects of mode `async`, from their own commit until they are indexed.
//!
//! A row of `queue` says that the object is to be indexed anew: it may have no place in the index
//! yet, or one that is out of date. Draining takes rows from the front, some in each transaction:
//! the old places go, the records are sealed as they are now, the rows go. A few of them only join
//! the tail. Dying in between leaves rows, not holes.

use super::change::unplace;
use super::directory::Finder;
use super::seal::{Origin, seal, settings_of};
use super::tail;
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::{Gid, Oid, id_of_key};
use engram_catalog::Table;
use engram_catalog::{Txn, WriteTxn};
use engram_records::index_mode::IndexMode;

/// How many objects are drained in one transaction.
pub const PART: u64 = 1024;

/// Every object in the queue, ascending.
pub fn all(txn: &Txn<'_>) -> Result<Vec<Oid>> {
    first_oids(txn, usize::MAX)
}

fn first_oids(txn: &Txn<'_>, most: usize) -> Result<Vec<Oid>> {
    let mut oids = Vec::new();
    let mut cursor = txn.seek(Table::Queue, &[])?;
    while let Some((key, _)) = cursor.next()?.filter(|_| oids.len() < most) {
        oids.push(id_of_key(key)?);
    }
    Ok(oids)
}

/// Indexes up to `most` queued objects; how many.
pub fn drain(txn: &mut WriteTxn<'_>, root: Gid, most: u64) -> Result<u64> {
    let oids = first_oids(txn, most as usize)?;
    let mut finder = Finder::default();
    for oid in &oids {
        txn.delete(Table::Queue, &oid.to_be_bytes())?;
        unplace(txn, &mut finder, *oid, IndexMode::Async)?;
    }
    step!("queue.taken");
    if oids.len() < settings_of(txn, root, 0)?.tail_rows {
        oids.iter().try_for_each(|oid| tail::add(txn, *oid))?;
    } else {
        seal(txn, root, &oids, Origin::New)?;
    }
    Ok(oids.len() as u64)
}
