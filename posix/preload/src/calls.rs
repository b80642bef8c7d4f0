//! The functions that take the place of libc's: a file for each group of `symbols.toml`.
//!
//! Each is a few lines: whose the call is, what the file system is asked, and how C has the answer.
//! Callers are programs, so what C asks of them is taken for granted: strings end, and buffers are
//! as long as is said.

mod contents;
mod descriptors;
mod folder;
mod locks;
pub mod memory;
mod metadata;
mod names;
mod threads;
mod transfer;
mod users;
