//! The catalog: every row of a realm, in one LMDB environment that never remaps.
//!
//! This crate owns transactions, the growth of the catalog's file, the tables and the door through
//! which all layers above read rows ([`rows::Rows`]). It knows no record and no extent: a row is a
//! table, a key and bytes.
//!
//! *Invariant*: a committed row is there for every process that begins a transaction afterwards,
//! and no transaction ever meets a page without a block behind it. The protocols (P5, P6, P7) stand
//! above the module `catalog` and the modules below it.
//!
//! | item | what it offers |
//! |---|---|
//! | [`Catalog`], [`Options`] | one open environment; how it is opened |
//! | [`ReadTxn`], [`WriteTxn`] | a snapshot, and the one write transaction; both read as a [`Txn`] |
//! | [`Headroom`], [`Cursor`] | what a write keeps in reserve; rows in order |
//! | [`Table`] | every table, by name |
//! | [`Filling`], [`CatalogStats`], [`Growth`] | a new catalog filled in order; figures; the shared page |
//! | [`GroupChanges`] | which groups the last commits have changed |
//! | [`rows`] | rows read by the holder of a transaction, a snapshot or a list |
//! | [`meta`] | numbers in the table `meta` |
//! | `testing` | rows in memory, for unit tests: in builds with the feature `testing` alone |
//!
//! A build sets flags for LMDB's C (see the repository's `.cargo/config.toml`), so that LMDB waits
//! for its locks, and knows processes, by functions of this crate.

#![deny(missing_docs)]

mod catalog;
pub mod meta;
pub mod rows;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use catalog::{
    Catalog, CatalogStats, Cursor, Filling, GroupChanges, Growth, Headroom, NotedFailure, Options,
    ReadTxn, Table, TableStats, Txn, WriteTxn, forks, note_fork, page_bytes, raise_lease_epoch,
    roll_back_closed, watch_forks,
};
