//! What a commit does to the index: one small row for each object that it touches.
//!
//! A new object of mode `sync` gets a row in `index_tail`, one of mode `async` a row in `queue`;
//! the rows hold nothing, since the record has everything. An object that was sealed into a
//! segment and changes is marked dead there, and is in the tail again; one that goes is marked
//! dead. So each indexed object is at exactly one place: in the tail, or at one live position of
//! one segment; a row in the queue says that whatever it has at that place is out of date.

use super::mode::{IndexMode, Touch};
use crate::catalog::{Table, WriteTxn};
use crate::error::Result;
use crate::id::{Oid, id_key};

/// The row of `meta` that counts the objects of mode `none`.
pub(crate) const UNINDEXED: &[u8] = b"unindexed";

/// Takes down what a transaction has done to an object.
pub(crate) fn touched(txn: &mut WriteTxn<'_>, oid: Oid, touch: Touch) -> Result<()> {
    let key = id_key(oid);
    match touch {
        Touch::New(IndexMode::Sync) => txn.put(Table::IndexTail, &key, &[]),
        Touch::New(IndexMode::Async) | Touch::Changed(IndexMode::Async) => {
            txn.put(Table::Queue, &key, &[])
        }
        Touch::Changed(IndexMode::Sync) => {
            if txn.get(Table::IndexTail, &key)?.is_none() {
                txn.put(Table::IndexTail, &key, &[])?;
            }
            Ok(())
        }
        Touch::Gone(IndexMode::Sync) => {
            txn.delete(Table::IndexTail, &key)?;
            Ok(())
        }
        Touch::Gone(IndexMode::Async) => {
            txn.delete(Table::Queue, &key)?;
            txn.delete(Table::IndexTail, &key)?;
            Ok(())
        }
        Touch::New(IndexMode::None)
        | Touch::Changed(IndexMode::None)
        | Touch::Gone(IndexMode::None) => Ok(()),
    }
}
