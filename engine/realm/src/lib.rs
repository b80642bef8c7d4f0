//! One catalog and one arena in a process, and everything that a process does with them.
//!
//! This crate owns the commit, look-ups, views, space, locks, snapshots, maintenance after commits,
//! batches that run in a thread, forks, and the registry of what the process has open. It knows one
//! realm at a time: namespaces, moves and pools are above it.
//!
//! *Invariant*: a realm changes in one place, the commit; an error leaves it as it was; and
//! whatever this process dies at, the next one that opens the realm finds it whole.
//!
//! | module | what it offers |
//! |---|---|
//! | `realm` | [`Realm`], a handle; [`Core`], what the process has of the realm behind it |
//! | [`batch`] | many operations, one commit |
//! | [`view`] | memory of the pool in somebody's hands |
//! | [`process`], [`session`] | the registry of open realms; one open of a pool |
//! | [`compaction_lock`] | a realm locked while it is compacted |
//! | `fork` | what happens around a fork (P4) |
//! | `caretaker` | a thread that looks for what other processes have left |

#![deny(missing_docs)]

pub mod batch;
mod caretaker;
pub mod compaction_lock;
pub mod fork;
pub mod process;
mod realm;
pub mod session;
pub mod view;

pub use realm::{
    CatalogUse, Changes, Core, File, FilePiece, FileSegment, Found, HasCore, Holders, Inside,
    LIMIT, LeaseInfo, Lock, LookUp, MaintenanceFailure, MaintenanceTask, Mode, NEXT_ID, NamedFile,
    NamesSeen, Payload, Precondition, Purpose, ReaderInfo, Realm, Seek, Setup, Sighting, Space,
    StoredChunk, USED, Wait, after_commit, boot_id, gone_is_busy, look_to_change, look_together,
    open, peek_together, prepare_locks, read_limit, shut, snapshot_together, sweep_spans,
};
pub use realm::{
    chunks, dead, files, holders, ids, index, keys, locks, look, snapshot, space, spans, vacant,
    write,
};

#[cfg(test)]
mod tests;
