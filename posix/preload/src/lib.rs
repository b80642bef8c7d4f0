//! The preload library: a pool's files for unchanged programs, without the kernel.
//!
//! This crate owns what a process has in the kernel's place: descriptors, the working folder, who
//! asks, what goes to a child. The dynamic linker puts the library before the C library
//! (`LD_PRELOAD`; `engram run` sets it).
//! So a program's call of `open` comes here. A call that names a path below a prefix, or a
//! descriptor of a file that was opened there, is answered from the pool. Every other call goes on
//! to the C library. `symbols.toml` has each public symbol of libc, and what becomes of it.
//!
//! *Invariant*: no rule of POSIX stands here: [`engram_fs::Asked`] answers as a kernel would. What
//! stands here is what a process has in the kernel's place: descriptors, the working folder, who
//! asks, what goes to a child.
//!
//! *A descriptor is the kernel's.* For each file that is opened the kernel gives a number, so that
//! numbers, limits, `dup2`, `poll` and `close_range` are right. What the number stands for is known
//! here ([`descriptors`]).
//!
//! | module | what it offers |
//! |---|---|
//! | [`real`] | the C library's functions, and `interpose!`, which defines ours |
//! | [`inside`] | calls of the engine itself, which are not answered here |
//! | [`trees`] | prefixes, and the pools that are opened for them |
//! | [`places`] | where a path leads |
//! | [`descriptions`] | what `open` makes: shared by all processes that have it |
//! | [`descriptors`] | numbers, and the descriptions that they stand for |
//! | [`streams`] | FILEs of ours, and the three standard ones |
//! | [`handing`] | what a program gets that is started |
//! | [`keepers`] | what keeps the locks of descriptions that several processes have |
//! | [`heap`] | memory that the program frees |
//! | [`handlers`] | signal handlers, which run between calls |
//! | [`process`] | who asks, from where, and what a child gets |
//! | [`traced`] | what is noted in a trace |
//! | `steps` | the engine's steps, told to a program that asks: in builds for tests alone |
//! | [`calls`] | the functions that take the place of libc's |

#![expect(
    clippy::single_match_else,
    reason = "what is of ours and what is libc's stand beside each other"
)]

mod calls;
mod descriptions;
mod descriptors;
mod handing;
mod handlers;
mod heap;
mod inside;
mod keepers;
mod places;
mod process;
mod real;
#[cfg(feature = "faults")]
mod steps;
mod streams;
mod traced;
mod trees;
