//! A namespace as a file system.
//!
//! This crate owns every rule of POSIX that Engram keeps. Groups are folders, blobs are files,
//! arrays are files that keep their size. The engine knows no modes, symbolic links or errno; here
//! its members get their POSIX meaning. What calls it (the mount, the preload library, Python) has
//! none.
//!
//! *Invariant*: an operation of [`Fs`] is one commit of the engine at most where POSIX asks for
//! atomicity: a name is made, replaced or taken away whole, or not at all. Whatever fails is an
//! [`Errno`], with the engine's sentence.
//!
//! Permissions are kept and shown here. The mount leaves checking them to the kernel, which knows
//! who asks. A front without a kernel before it has all its calls answered by [`Asked`], which
//! follows paths and asks for permission as Linux does. They do not protect the members of a shared
//! realm from each other (the realm's own mode does).
//!
//! | module | what it offers |
//! |---|---|
//! | [`errno`] | errors, as system calls have them |
//! | [`stat`] | what is known of a node: kind, mode, owner, times, size |
//! | [`properties`] | what a record keeps of that, byte by byte |
//! | [`asked`] | [`Asked`]: calls of a program, answered as the system's |
//! | [`caller`] | [`Caller`]: who asks, and what its user and groups allow |
//! | [`fs`] | [`Fs`]: names made, found, changed and taken away |
//! | [`changes`] | [`Changes`]: what is changed of a node |
//! | [`handle`] | [`Handle`]: bytes of an open file |
//! | [`folder`] | [`Folder`]: a folder that is listed |
//! | [`locks`] | locks of ranges that programs take |
//! | [`trace`] | lines of what was done: made, read, written to a file or ring |
//! | [`walk`] | paths that are followed, for callers that have no kernel to do so |
//! | `known` | what protects folders, remembered as long as nobody changes any |
//! | `listed` | what was listed last, remembered as long as nobody commits |
//! | [`expected`] | files that a stage is to bring, which an open waits for |
//! | [`whole`] | files that come whole: bytes, mode, times and attributes in one commit |
//! | [`xattr`] | extended attributes, which are the member's attributes |
//! | [`shown`] | nodes that no record has: `T.npy`, `.engram/query/…` |

#![deny(missing_docs)]

pub mod asked;
pub mod caller;
pub mod changes;
pub mod errno;
pub mod expected;
pub mod folder;
pub mod fs;
pub mod handle;
mod known;
mod listed;
pub mod locks;
pub mod properties;
pub mod shown;
pub mod stat;
pub mod trace;
pub mod walk;
pub mod whole;
pub mod xattr;

pub use asked::{Asked, Opened};
pub use caller::Caller;
pub use changes::{Changes, Time};
pub use engram::LockMode;
pub use errno::{Errno, Result};
pub use expected::Expected;
pub use folder::{Entry, Folder};
pub use fs::{Clash, Fs, Ino, Maker, OpenFiles, Options, ROOT, Statfs, now};
pub use handle::{Handle, OpenFlags, Whence};
pub use locks::{ByteRange, Forking, Locks, Taker};
pub use stat::{NodeKind, Stat};
pub use trace::Tracer;
pub use walk::{Answer, At, Beyond, Leaves, Unanswered, Walked};
pub use whole::{Given, Whole};
