//! What a commit does to the index: little or nothing for each object that it touches.
//!
//! A new object of mode `sync` is in the tail, as a rule without a row of its own (`tail`); one of
//! mode `async` gets a row in `queue`, which holds nothing, since the record has everything. An
//! object of mode `sync` that was sealed and changes is marked dead there, and is in the tail
//! again; one of mode `async` keeps its place, and a row in the queue says that what the index has
//! of it is out of date. One that goes is gone from the tail and the queue, and dead where it was
//! sealed. So each indexed object is at exactly one place, in the tail or at one live position of
//! one segment, or waits in the queue.

use super::directory::{Finder, mark_dead};
use super::tail::{self, NewInTail};
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
    new: &mut NewInTail,
    oid: Oid,
    touch: Touch,
) -> Result<bool> {
    let key = id_key(oid);
    match touch {
        Touch::New(IndexMode::Sync) => new.add(txn, oid).map(|()| false),
        Touch::New(IndexMode::Async) | Touch::Changed(IndexMode::Async) => {
            txn.put(Table::Queue, &key, &[]).map(|()| false)
        }
        Touch::Changed(IndexMode::Sync) => {
            if tail::has(txn, oid)? {
                return Ok(false);
            }
            let died = die(txn, finder, oid)?;
            tail::add(txn, oid)?;
            Ok(died)
        }
        Touch::Gone(IndexMode::Sync) => unplace(txn, finder, oid, IndexMode::Sync),
        Touch::Gone(IndexMode::Async) => {
            txn.delete(Table::Queue, &key)?;
            unplace(txn, finder, oid, IndexMode::Async)
        }
        Touch::New(IndexMode::None)
        | Touch::Changed(IndexMode::None)
        | Touch::Gone(IndexMode::None) => Ok(false),
    }
}

/// Takes an object of a mode from where it is, in the tail or sealed; whether a sealed position
/// died.
pub(crate) fn unplace(
    txn: &mut WriteTxn<'_>,
    finder: &mut Finder,
    oid: Oid,
    mode: IndexMode,
) -> Result<bool> {
    if tail::remove(txn, oid, mode)? { Ok(false) } else { die(txn, finder, oid) }
}

fn die(txn: &mut WriteTxn<'_>, finder: &mut Finder, oid: Oid) -> Result<bool> {
    match finder.find(txn, oid)? {
        Some(place) => mark_dead(txn, place).map(|()| true),
        None => Ok(false),
    }
}
