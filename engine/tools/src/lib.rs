//! Work on a pool as a whole: checked, copied, compacted, upgraded, saved from damage.
//!
//! This crate owns `verify`, `backup`, compaction, upgrades and salvage. It does not know how
//! damage came about, and keeps nothing between two calls.
//!
//! *Invariant*: nothing here is on the path of a put or a look. `verify` and `salvage` believe
//! nothing that they read; `backup`, `compact` and `upgrade` leave a pool that `verify` passes.
//!
//! | module | what it offers |
//! |---|---|
//! | [`verify`] | every invariant, checked against what is on media |
//! | [`rewrite`] | a realm's rows into a new catalog: backup, compaction, upgrade |
//! | [`salvage`] | what is sound of a damaged pool, copied into another |
//! | `decode` | rows of media, one by one, for tests and fuzzing; with the feature `faults` alone |

#![deny(missing_docs)]

#[cfg(feature = "faults")]
pub mod decode;
pub mod rewrite;
pub mod salvage;
#[cfg(test)]
mod tests;
pub mod verify;
