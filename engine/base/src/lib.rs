//! The words that every layer above uses.
//!
//! This crate owns errors and their kinds, ids, names, dtypes, boxes of arrays, checksums, the
//! numbers of users, random numbers, the pool lock, and the threads that copy and encode. It knows
//! no pool, no catalog and no file but the one that the pool lock lies on.
//!
//! *Invariant*: nothing here keeps state between two calls, but for the hook of the test steps, the
//! threads, the number of each lock's holder, and whether this copy is a guest. Everything decoded
//! here is checked before it is believed.
//!
//! | module | what it offers |
//! |---|---|
//! | [`error`] | [`error::Error`], its [`error::Kind`]s, and `fail!` |
//! | [`faults`] | `step!`: the named places at which tests let a process die |
//! | [`telemetry`] | `operation!` and `event!`: what a program that listens is told |
//! | [`id`], [`name`], [`scope`] | what a member is called, and who sees it |
//! | [`dtype`], [`slab`] | types of elements, and boxes of arrays |
//! | [`checksum`], [`varint`] | bytes on media that every layer has |
//! | [`mutex`], [`threads`] | locks and threads of this process |
//! | [`pool_lock`] | the lock of every process that makes or removes parts of a pool |
//! | [`node_files`] | what a cluster's node keeps beside its pool |
//! | [`process`] | whether a process or thread runs |
//! | [`guest`] | two copies of the engine in one process |
//! | [`user`], [`random`], [`clock`] | what the kernel is asked for |

#![deny(missing_docs)]

pub mod checksum;
pub mod clock;
pub mod dtype;
pub mod error;
pub mod faults;
pub mod guest;
pub mod id;
pub mod mutex;
pub mod name;
pub mod node_files;
pub mod pool_lock;
pub mod process;
pub mod random;
pub mod scope;
pub mod size;
pub mod slab;
pub mod telemetry;
pub mod threads;
pub mod user;
pub mod varint;
