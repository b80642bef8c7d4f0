//! A cluster with the engine of its own process, for programs in Rust and C.
//!
//! This crate owns nothing but the meeting of the two: what drives a cluster (`engram-driver`), and
//! the engine's functions that it calls (`engram-holding`).
//!
//! *Invariant*: a process has one engine, and this is it.
//!
//! | item | what it offers |
//! |---|---|
//! | [`driver`] | clusters, nodes, etcd |
//! | [`TABLE`] | the engine, as clusters and nodes are given it |

#![deny(missing_docs)]

pub use engram_driver as driver;
pub use engram_holding::TABLE;
