//! The core: what one process has of one realm, and how it comes and goes.
//!
//! There is one core per process and realm, found through `process` by device and inode of the
//! realm's folder, however many handles are open. Its users are open pools and live claims; the
//! last one to leave shuts it down: reservations back, lease unlinked, catalog closed, mappings
//! gone. A handle that outlives its pool finds the core shut, and says so.
//!
//! | part | what it is, and where it can be read whole |
//! |---|---|
//! | [`Setup`] | what never changes (`setup`) |
//! | `write`, `commit`, `prepare` | how the realm changes (`commit`) |
//! | [`Gate`] | catalog and lease, as operations enter them (`gate`) |
//! | [`SpaceState`] | the arena, and who may still look at what (`space_state`) |
//! | [`IdBlock`], [`KeyCache`] | numbers that are given once (`ids`, `keys`) |
//! | [`IndexRuntime`] | the index between commits (`index_runtime`) |
//! | [`Recent`] | what the last commit has left behind (`recent`) |
//! | [`RealmPresence`] | whether its files still have their names (`presence`) |
//! | [`OpenFiles`] | the files that are open (`files`) |
//! | [`Holdings`] | snapshots, locks, notices, checksums that are owed (`holdings`) |

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::caretaker;
use crate::process;
use crate::realm::dead;
use crate::realm::files::OpenFiles;
use crate::realm::gate::{Gate, Inside, State};
use crate::realm::holdings::Holdings;
use crate::realm::ids::IdBlock;
use crate::realm::index;
use crate::realm::index_runtime::IndexRuntime;
use crate::realm::keys::KeyCache;
use crate::realm::open;
use crate::realm::presence::{self, RealmPresence};
use crate::realm::recent::Recent;
use crate::realm::setup::Setup;
use crate::realm::space_state::SpaceState;
use engram_base::error::{Error, Kind, Result};
use engram_base::mutex::lock;
use engram_base::user;
use engram_files::realm_file::check_same;
use engram_space::extent::Arena;

/// What one process has of one realm. Its parts are dropped in this order.
pub struct Core {
    /// What never changes.
    pub setup: Setup,
    /// The catalog and the lease, as operations enter them.
    pub(crate) gate: Gate,
    /// The arena, and what is remembered of its users.
    pub space: SpaceState,
    /// Ids taken and not yet used.
    pub(crate) ids: Mutex<IdBlock>,
    /// Attribute keys and their numbers, as far as this process has met them.
    pub(crate) keys: Mutex<KeyCache>,
    /// What is remembered of the index between commits, and by queries.
    pub index: IndexRuntime,
    /// What this process's last commit has left behind.
    pub(crate) recent: Recent,
    /// Whether its files still have their names.
    pub(crate) presence: RealmPresence,
    /// The files that this process has open.
    pub(crate) files: OpenFiles,
    /// What this process holds of the realm: snapshots, locks, what it owes.
    pub(crate) holdings: Holdings,
    /// This core, once it is shared.
    pub(crate) me: OnceLock<Weak<Core>>,
    users: AtomicUsize,
    sessions: AtomicUsize,
    /// The user that opened the realm: the owner of what this process makes.
    pub(crate) user: u32,
}

impl Core {
    /// A core around what `open` has brought up, with one session: the caller's.
    pub(crate) fn new(setup: Setup, state: State, arena: Arena) -> Self {
        Core {
            setup,
            gate: Gate::new(state),
            space: SpaceState::new(arena),
            ids: Mutex::default(),
            keys: Mutex::default(),
            index: IndexRuntime::default(),
            recent: Recent::default(),
            presence: RealmPresence::default(),
            files: OpenFiles::default(),
            holdings: Holdings::default(),
            me: OnceLock::new(),
            users: AtomicUsize::new(1),
            sessions: AtomicUsize::new(1),
            user: user::current(),
        }
    }

    /// Holds the state for an operation; brings a forked child's catalog and lease up first, and a
    /// catalog that failed to commit up again.
    pub fn enter(&self) -> Result<Inside<'_>> {
        loop {
            let state = self.gate.read();
            if state.shut {
                return Err(self.over());
            }
            if self.presence.is_gone() {
                return Err(presence::gone(&self.setup));
            }
            let ready = state.catalog.as_ref().is_some_and(|catalog| !catalog.is_spent());
            if ready && (state.lease.is_some() || self.setup.immutable) {
                return Ok(Inside { state, arena: &self.space.arena });
            }
            drop(state);
            let some_dead = open::bring_up(self).map_err(|error| match error.kind() {
                Kind::NotFound if !self.setup.dir.is_dir() => presence::gone(&self.setup),
                _ => error,
            })?;
            self.begin_after_fork(some_dead);
        }
    }

    /// What a forked child does at its first use: the leases of dead siblings go, if there are
    /// any, and it has a caretaker of its own.
    fn begin_after_fork(&self, some_dead: bool) {
        let state = self.gate.read();
        if some_dead && state.catalog.is_some() && state.lease.is_some() {
            let _ = dead::reap_dead(self, &Inside { state, arena: &self.space.arena });
        }
        if self.index.used.load(Ordering::Relaxed) {
            caretaker::ensure();
        }
    }

    /// What to say when it is shut, though a handle's session is open: either that has just closed,
    /// or the realm was removed.
    #[cold]
    fn over(&self) -> Error {
        let pool = self.setup.pool.display();
        let same = self.setup.immutable || check_same(&self.setup.identity()).is_ok();
        if !same {
            let what = format!(
                "namespace {:?} of {pool} was removed, with all that was in it, and this handle is \
                 of it: look at pool.namespaces for those that there are",
                self.setup.namespace
            );
            return Error::new(Kind::NotFound, what);
        }
        Error::new(Kind::Argument, format!("the pool {pool} is closed: open it again"))
    }

    /// What a forked child begins with: nothing of what the parent held, took or remembered.
    pub(crate) fn forget(&self) {
        *lock(&self.ids) = IdBlock::default();
        self.index.forget();
        self.holdings.forget();
        self.space.forget();
    }

    /// Looks whether the realm's files still have their names.
    pub(crate) fn check_present(&self) -> Result<()> {
        let inside = self.enter()?;
        self.presence.check_at_end(self, &inside)
    }

    /// Whether the last user has left.
    pub fn is_shut(&self) -> bool {
        self.gate.is_shut()
    }

    /// One more open pool or claim.
    pub(crate) fn add_user(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// One less; the last shuts the core.
    pub(crate) fn remove_user(self: &Arc<Self>) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            process::retire(self);
        }
    }

    /// Whether anybody uses it; asked while holding the registry.
    pub(crate) fn in_use(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Whether one session uses it, and nothing else; asked while holding the registry.
    pub(crate) fn is_used_once(&self) -> bool {
        self.users.load(Ordering::Acquire) == 1
    }

    /// One more open pool.
    pub(crate) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::AcqRel);
        self.add_user();
    }

    /// One less. Before the last of them goes, what it has left in the index's tail is sealed.
    pub fn remove_session(self: &Arc<Self>) {
        if self.sessions() == 1 {
            index::at_close(self);
        }
        if self.sessions.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.index.drainer.stop();
        }
        self.remove_user();
    }

    /// How many open pools it has in this process; without any, it has views at most.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }
}
