//! Pools and namespaces: several realms seen as one tree.
//!
//! This crate owns the making and removing of pools and namespaces, the view of a namespace as one
//! tree, moves between its realms, and published versions. It reads and changes rows only through
//! the realms below it.
//!
//! *Invariant*: a member is in one realm, or on its way with marks that say so; nobody sees it
//! twice or not at all, wherever a process dies (T).
//!
//! | module | what it offers |
//! |---|---|
//! | `pool` | [`Pool`]: creating, opening, destroying, devices |
//! | [`namespace`] | [`namespace::Namespace`]: the view, reading and writing through it |
//! | [`transfer`] | moves: share, unshare, publish, unpublish |
//! | [`published`] | versions that nobody writes again |

#![deny(missing_docs)]

pub mod namespace;
mod pool;
pub mod published;
pub mod transfer;

pub use pool::{CreateOptions, DeviceInfo, Durability, Pool, check_devices, check_mounted};

#[cfg(test)]
mod tests;
