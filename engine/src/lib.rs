//! Engram's engine: persistent-memory pools that many processes map at once.
//!
//! The engine knows no Python, POSIX view, MPI or network. `ARCHITECTURE.md` shows where what is.

#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("Engram's engine is for 64-bit Linux: it needs OFD locks, fallocate and big maps");

pub mod catalog;
pub mod error;

pub use error::{Error, Kind, Result};
