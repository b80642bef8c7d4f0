//! The folders and small files of a pool: where each lies, whose it is, and what it says.
//!
//! This crate owns the paths and modes of all that lies in a pool, the descriptions `pool.toml` and
//! `realm.toml`, and the making of folders for the owner whose they are. It does not know what a
//! realm holds. The kernel says what each user may do there.
//!
//! *Invariant*: a description is written whole under another name and renamed, so that a reader
//! sees the old text or the new one; and nothing is followed, given a mode or given away by its
//! name alone, because others may write in the same folder.
//!
//! | module | what it offers |
//! |---|---|
//! | [`paths`] | where the parts of a pool lie, and their modes |
//! | [`folder`] | folders made, checked and given to their owners |
//! | [`toml_file`] | a TOML file, read and written whole |
//! | [`pool_file`] | `pool.toml` and the names that it has while a pool comes and goes; [`pool_file::FORMAT`] |
//! | [`realm_file`] | `realm.toml`, and whether a realm is still the one that was opened |
//! | [`upgrading`] | `upgrading.toml`: what an upgraded pool has to do yet |
//! | [`versions`] | the folders of published versions |

#![deny(missing_docs)]

pub mod folder;
pub mod paths;
pub mod pool_file;
pub mod realm_file;
#[cfg(test)]
mod testing;
pub mod toml_file;
pub mod upgrading;
pub mod versions;
