//! What a commit does to the index: one small row for each object that it touches.
//!
//! A new object of mode `sync` gets a row in `index_tail`, one of mode `async` a row in `queue`;
//! the rows hold nothing, since the record has everything. An object of mode `sync` that was sealed
//! and changes is marked dead there, and is in the tail again; one of mode `async` keeps its place,
//! and a row in the queue says that what the index has of it is out of date. One that goes is gone
//! from the tail and the queue, and dead where it was sealed. So each indexed object is at exactly
//! one place, in the tail or at one live position of one segment, or waits in the queue.

use super::directory::{Finder, mark_dead};
use engram_base::error::Result;
use engram_base::id::{Oid, id_key};
use engram_catalog::{Table, WriteTxn};
use engram_records::index_mode::{IndexMode, Touch};

/// The row of `meta` that counts the objects of mode `none`.
pub const UNINDEXED: &[u8] = b"unindexed";

/// Takes down what a transaction has done to an object; whether a sealed position died.
pub fn touched(
    txn: &mut WriteTxn<'_>,
    finder: &mut Finder,
    oid: Oid,
    touch: Touch,
) -> Result<bool> {
    let key = id_key(oid);
    match touch {
        Touch::New(IndexMode::Sync) => txn.put(Table::IndexTail, &key, &[]).map(|()| false),
        Touch::New(IndexMode::Async) | Touch::Changed(IndexMode::Async) => {
            txn.put(Table::Queue, &key, &[]).map(|()| false)
        }
        Touch::Changed(IndexMode::Sync) => {
            if txn.get(Table::IndexTail, &key)?.is_some() {
                return Ok(false);
            }
            let died = die(txn, finder, oid)?;
            txn.put(Table::IndexTail, &key, &[])?;
            Ok(died)
        }
        Touch::Gone(IndexMode::Sync) => unplace(txn, finder, oid),
        Touch::Gone(IndexMode::Async) => {
            txn.delete(Table::Queue, &key)?;
            unplace(txn, finder, oid)
        }
        Touch::New(IndexMode::None)
        | Touch::Changed(IndexMode::None)
        | Touch::Gone(IndexMode::None) => Ok(false),
    }
}

/// Takes an object from where it is, in the tail or sealed; whether a sealed position died.
pub(crate) fn unplace(txn: &mut WriteTxn<'_>, finder: &mut Finder, oid: Oid) -> Result<bool> {
    if txn.delete(Table::IndexTail, &id_key(oid))? { Ok(false) } else { die(txn, finder, oid) }
}

fn die(txn: &mut WriteTxn<'_>, finder: &mut Finder, oid: Oid) -> Result<bool> {
    match finder.find(txn, oid)? {
        Some(place) => mark_dead(txn, place).map(|()| true),
        None => Ok(false),
    }
}
