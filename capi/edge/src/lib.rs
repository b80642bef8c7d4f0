//! The edge between C and Rust, for the libraries that C calls.
//!
//! This crate owns what every function of such a library does first and last: it makes references
//! of what C has given, and keeps what was wrong. `docs/c-conventions.md` is the contract of these
//! functions: who owns what, what NULL means, what threads and forks may do.
//!
//! *Invariant*: no panic goes past the edge, and no pointer is used that is NULL or not aligned.
//!
//! | module | what it offers |
//! |---|---|
//! | [`raw`] | what C has given, as references and slices; what C is given to own |
//! | [`error`] | the last error of each thread, as its library has it |

#![deny(missing_docs)]

pub mod error;
pub mod raw;
