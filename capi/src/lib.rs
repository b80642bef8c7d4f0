//! The C ABI over the engine's pools and namespaces.
//!
//! `docs/c-conventions.md` is the contract of every function here: who owns what, what NULL means,
//! what threads and forks may do. Each function is one call deep: it makes references and slices of
//! what C has given (`engram-edge`), calls the engine, and turns an error into a status and a
//! message (`error`). No rule of the store is here.
//!
//! `capi/include/engram.h` is generated of this crate by cbindgen; `make lint` compares them.

#![deny(missing_docs)]
// The contract of all functions is the page of conventions; it is not told forty times over.
#![allow(clippy::missing_safety_doc)]

mod attrs;
mod batch;
mod dtype;
mod efs;
mod error;
mod group;
mod index;
mod list;
mod lock;
mod namespace;
mod object;
mod options;
mod parts;
mod pool;
mod query;
mod scratch;
mod sharing;
mod slab;
mod view;
mod watch;

pub(crate) use engram_edge::raw;
