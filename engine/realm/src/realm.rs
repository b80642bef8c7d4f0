//! Realms: one catalog and one arena under one owner and mode. The unit of storage and quota.
//!
//! | file | what it owns |
//! |---|---|
//! | `checked` | checksums of values that are written in place |
//! | `chunks` | chunked arrays: boxes read and written, other shapes |
//! | `core` | what one process has of a realm; entering it |
//! | `open` | opening, shutting, and a forked child's first use |
//! | `commit` | the write path: the one place where rows change |
//! | `dead` | what dead processes have left |
//! | `space` | reserving, growing, giving back, the accounts |
//! | `spans` | spans made, given back, and files of spans that no row names |
//! | `write` | put, allocate, replace, delete, move, annotate |
//! | `drainer` | the thread that indexes what is queued |
//! | `files` | files: read, written, extended and cut while others have them open |
//! | `failure` | how maintenance failed, for all processes to tell |
//! | `precondition` | what a change relies on that was seen before |
//! | `delete` | deleting, in several commits where there is no room for one |
//! | `handle` | [`Realm`]: every operation on a realm |
//! | `holders` | who holds what: for people |
//! | `index` | the index: settings, maintenance, the queue, figures |
//! | `keys` | attribute keys and their numbers |
//! | `link` | an object to be linked, encoded before any lock |
//! | `locks` | locks of objects and groups, between processes and threads |
//! | `look` | look-ups, views, listings |
//! | `names` | names as a file system gives and takes them |
//! | `notices` | what the program should be told, though nothing has failed |
//! | `query` | queries |
//! | `snapshot` | snapshots that are held, and when they are given up |
//! | `together` | looks at several realms at once |
//! | `vacant` | free pages that go back to a full filesystem, and get blocks again |
//! | `watching` | what commits have changed, for watchers |

pub(crate) mod ahead;
pub mod checked;
pub mod chunks;
mod commit;
mod core;
pub mod dead;
mod delete;
mod drainer;
mod failure;
pub mod files;
mod gate;
mod handle;
pub mod holders;
mod holdings;
pub mod ids;
pub mod index;
mod index_runtime;
pub mod keys;
mod link;
pub mod locks;
pub mod look;
mod names;
mod notices;
pub mod open;
mod precondition;
mod presence;
mod query;
mod recent;
mod setup;
pub mod snapshot;
pub mod space;
mod space_state;
pub mod spans;
mod together;
pub mod vacant;
mod watching;
pub mod write;

pub use self::chunks::StoredChunk;
pub use self::commit::{Changes, after_commit};
pub use self::core::Core;
pub use self::failure::{MaintenanceFailure, MaintenanceTask};
pub use self::files::{File, FilePiece, FileSegment, NamedFile, Seek};
pub use self::gate::{Inside, LookUp, State};
pub use self::handle::{HasCore, Realm};
pub use self::holders::{CatalogUse, Holders, LeaseInfo, ReaderInfo};
pub(crate) use self::link::Link;
pub use self::locks::Lock;
pub use self::locks::{Wait, prepare_locks};
pub use self::look::gone_is_busy;
pub use self::look::{Found, Payload};
pub use self::names::NamesSeen;
pub use self::open::{Purpose, open, shut};
pub use self::precondition::Precondition;
pub use self::setup::Setup;
pub use self::space::Space;
pub use self::space::{LIMIT, NEXT_ID, USED, read_limit};
pub use self::spans::sweep_spans;
pub use self::together::{look_to_change, look_together, peek_together, snapshot_together};
pub use self::watching::Sighting;
pub use engram_media::boot_id;

/// What a handle may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Look only.
    Read,
    /// Look and write.
    ReadWrite,
}
