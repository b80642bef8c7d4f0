//! Operations on names and records, written once, against rows.
//!
//! This crate owns what the rows of members, names, chunks, mirrors and marks of moves say
//! together, how each operation changes them, and the list of changes that a batch makes.
//!
//! An operation of this crate reads through `Rows` and changes through [`rows_mut::RowsMut`]. Run
//! on a write transaction it changes the catalog; run on an [`overlay`] it makes a batch's list. It
//! knows no transaction, no lock and no process.
//!
//! *Invariant*: an operation keeps no state outside the rows, so that it can be run again; and each
//! refusal comes before the first change.
//!
//! | module | what it offers |
//! |---|---|
//! | [`rows_mut`] | changes of rows, and reservations as rows know them |
//! | [`group`] | names, members, deletion |
//! | [`links`] | further names of an object, and what becomes of one without a name |
//! | [`group_times`] | when names in a group last changed |
//! | [`chunk_rows`] | the rows of a chunked array |
//! | [`mirror`], [`marks`] | what a realm holds of others: groups, and moves that are under way |
//! | [`protect`] | read-only members |
//! | [`index_modes`] | how new objects are to be indexed, asked of the layer above |
//! | [`overlay`] | the list that a batch makes, and what it relies on |

#![deny(missing_docs)]

pub mod chunk_rows;
pub mod group;
pub mod group_times;
pub mod index_modes;
pub mod links;
pub mod marks;
pub mod mirror;
pub mod overlay;
pub mod protect;
pub mod rows_mut;

#[cfg(test)]
mod testing;
