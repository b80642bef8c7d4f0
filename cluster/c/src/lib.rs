//! The C ABI of clusters: `libengram_cluster`.
//!
//! This crate owns the functions that C calls of a cluster. `docs/c-conventions.md` is their
//! contract, as it is that of the functions of libengram. The library has no engine of its own: a
//! program that has a node pool gives it the engine of libengram. It knows neither Python nor MPI.
//! What several processes publish together passes between them as texts, which the caller carries.
//!
//! *Invariant*: each function is one call deep. It makes references and slices of what C has given,
//! calls the driver, and turns an error into a status and a message.
//!
//! | module | what it offers |
//! |---|---|
//! | `cluster` | clusters, opened by a name, and their names |
//! | `node` | this process's part in serving the node of its host |
//! | `array` | arrays, looked up and read |
//! | `together` | shares in what several processes publish together |
//! | `status` | statuses, and the last error |
//!
//! `capi/include/engram_cluster.h` is generated of this crate by cbindgen; `make lint` compares.

#![deny(missing_docs)]
// The contract of all functions is the page of conventions; it is not told forty times over.
#![allow(clippy::missing_safety_doc)]

mod array;
mod cluster;
mod node;
mod status;
mod together;
