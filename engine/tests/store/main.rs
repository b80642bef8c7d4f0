//! The store as a program uses it: objects, arrays, batches, views, snapshots, locks.

#[path = "../common/mod.rs"]
mod common;

mod batch;
mod chunked;
mod chunked_many;
mod inplace;
mod locks;
mod model;
mod slab;
mod snapshot;
mod store;
mod views;
