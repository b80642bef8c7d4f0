//! Sealed columns of the index, byte by byte.
//!
//! This crate owns cells and their order, zones, segments and runs: what a sealed part of the index
//! holds, how it is searched, and the rows that it lies in. It does not know which objects are
//! sealed when, nor for whom.
//!
//! *Invariant*: a sealed part is never changed; and a zone, a column and a run answer a test as the
//! cells that went into them would.
//!
//! | module | what it offers |
//! |---|---|
//! | [`cell`], [`literal`] | a value as the index compares it; a literal of a query as one |
//! | [`column_key`] | what a column is called, and a row of cells |
//! | [`value_kind`] | what values were before they became cells |
//! | [`range`] | the shape that most tests have |
//! | [`zone`], [`zones`] | 32 bytes for a column of a segment, and the rows of them |
//! | [`segment`] | columns over some thousand objects |
//! | [`runs`] | nearly unique values, sorted |

#![deny(missing_docs)]

pub mod cell;
pub mod column_key;
pub mod literal;
pub mod range;
pub mod runs;
pub mod segment;
pub mod value_kind;
pub mod zone;
pub mod zones;
