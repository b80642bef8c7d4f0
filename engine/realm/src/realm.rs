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
//! | `sweep` | span files that no row names |
//! | `write` | put, allocate, replace, delete, move, annotate |
//! | `drainer` | the thread that indexes what is queued |
//! | `precondition` | what a change relies on that was seen before |
//! | `holders` | who holds what: for people |
//! | `index` | the index: settings, maintenance, the queue, figures |
//! | `keys` | attribute keys and their numbers |
//! | `link` | an object to be linked, encoded before any lock |
//! | `locks` | locks of objects and groups, between processes and threads |
//! | `look` | look-ups, views, listings |
//! | `mirror` | what other realms of the namespace have this one do |
//! | `notices` | what the program should be told, though nothing has failed |
//! | `delete_batches` | deleting a group in several commits, where there is no room for one |
//! | `query` | queries |
//! | `snapshot` | snapshots that are held, and when they are given up |
//! | `together` | looks at several realms at once |

pub mod checked;
pub mod chunks;
mod commit;
mod core;
pub mod dead;
mod delete_batches;
mod drainer;
mod gate;
pub mod holders;
mod holdings;
pub mod ids;
pub mod index;
mod index_runtime;
pub mod keys;
mod link;
pub mod locks;
pub mod look;
mod mirror;
mod notices;
pub mod open;
mod precondition;
mod query;
mod setup;
pub mod snapshot;
pub mod space;
mod space_state;
pub mod spans;
mod together;
pub mod write;

use std::path::Path;
use std::sync::Arc;

pub use self::commit::Changes;
pub use self::core::Core;
pub use self::gate::{Inside, LookUp, State};
pub use self::holders::{CatalogUse, Holders, LeaseInfo, ReaderInfo};
pub(crate) use self::link::Link;
pub use self::locks::Lock;
pub use self::locks::{Wait, prepare_locks};
pub use self::look::gone_is_busy;
pub use self::look::{Found, Payload};
pub use self::open::{Purpose, open, shut};
pub use self::precondition::Precondition;
pub use self::setup::Setup;
use self::snapshot::At;
pub use self::space::Space;
pub use self::space::{LIMIT, NEXT_ID, USED, read_limit};
pub use self::spans::sweep_spans;
pub use self::together::{look_to_change, look_together, peek_together, snapshot_together};
use crate::batch;
use crate::session::Session;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::id::Gid;
use engram_base::scope::Scope;
pub use engram_media::boot_id;

/// What a handle may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Look only.
    Read,
    /// Look and write.
    ReadWrite,
}

/// A handle on a realm. Cheap to clone; every method may be called from any thread.
#[derive(Clone)]
pub struct Realm {
    core: Arc<Core>,
    session: Arc<Session>,
    /// The snapshot that all looks are at; none: each at the newest.
    at: Option<Arc<At>>,
    /// What its changes rely on; none: nothing but what they find themselves.
    precondition: Option<Precondition>,
}

impl Realm {
    /// A handle that ends with its session.
    pub fn new(core: Arc<Core>, session: Arc<Session>) -> Self {
        Realm { core, session, at: None, precondition: None }
    }

    /// The root group.
    pub fn root(&self) -> Gid {
        self.core.setup.root()
    }

    /// The core, for moves between realms.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Whether the other handle is of the same realm.
    pub fn is(&self, other: &Realm) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Whether this thread runs a batch on it.
    pub fn runs_batch(&self) -> bool {
        batch::undo_abandoned();
        batch::runs(&self.core)
    }

    /// Gives the batch that this thread runs here to another realm; `BusyError` if it has done
    /// something here already.
    pub fn hand_batch_to(&self, other: &Realm) -> Result<()> {
        batch::hand_over(&self.core, &other.core)
    }

    /// Who sees what is in it.
    pub fn scope(&self) -> Scope {
        self.core.setup.scope
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.core.setup.namespace
    }

    /// The pool's uuid.
    pub fn uuid(&self) -> &str {
        &self.core.setup.uuid
    }

    /// The pool's path.
    pub fn pool_path(&self) -> &std::path::Path {
        &self.core.setup.pool
    }

    /// What the handle may do.
    pub fn mode(&self) -> Mode {
        if self.at.is_some() { Mode::Read } else { self.session.mode() }
    }

    /// Whether its pool is open, and its snapshot, if it is of one.
    pub fn is_open(&self) -> bool {
        self.session.is_open() && self.at().is_none_or(|at| at.check().is_ok())
    }

    /// Where the space is. Who may write takes back first what dead processes had reserved; to a
    /// reader that counts as pending.
    pub fn space(&self) -> Result<Space> {
        let core = self.readable()?;
        if self.mode() == Mode::ReadWrite {
            dead::take_back_dead(core, &core.enter()?)?;
        }
        space::space(core)
    }

    /// The bytes of a devdax node that no span has.
    pub fn free_on_node(&self, device: u32, path: &Path) -> Result<u64> {
        spans::free_on_node(self.readable()?, device, path)
    }

    /// Sets the bound of the arena, rounded up to 2 MiB.
    pub fn resize(&self, size: u64) -> Result<()> {
        space::resize(self.writable()?, size, false)
    }

    /// The same, but not below what the arena has.
    pub fn resize_as_can_be(&self, size: u64) -> Result<()> {
        space::resize(self.writable()?, size, true)
    }

    /// Makes the spans now that the realm may have, and maps every page.
    pub fn prefault(&self) -> Result<()> {
        spans::prefault(self.writable()?)
    }

    /// The core, for reading.
    fn readable(&self) -> Result<&Arc<Core>> {
        batch::undo_abandoned();
        if !self.session.is_open() {
            fail!(
                Argument,
                "the pool {} is closed: open it again (views of it stay valid)",
                self.core.setup.pool.display()
            );
        }
        self.at().map_or(Ok(()), At::check)?;
        Ok(&self.core)
    }

    /// The core, for writing.
    fn writable(&self) -> Result<&Arc<Core>> {
        let core = self.readable()?;
        if self.at.is_some() {
            fail!(
                ReadOnly,
                "this is of a snapshot of {:?}, which shows what was: write through the pool \
                 itself",
                core.setup.namespace
            );
        }
        if self.mode() == Mode::Read {
            fail!(
                ReadOnly,
                "the pool {} is open read-only: open it with mode \"r+\" to write",
                core.setup.pool.display()
            );
        }
        if core.setup.immutable {
            fail!(
                ReadOnly,
                "this part of namespace {:?} is published: nothing of it can be changed; unpublish \
                 it first",
                core.setup.namespace
            );
        }
        Ok(core)
    }
}
