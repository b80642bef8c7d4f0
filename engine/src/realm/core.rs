//! The core: what one process has of one realm, and how it comes and goes.
//!
//! There is one core per process and realm, found through `process` by device and inode of the
//! realm's folder, however many handles are open. Its users are open pools and live claims; the
//! last one to leave shuts it down: reservations back, lease unlinked, catalog closed, mappings
//! gone. A handle that outlives its pool finds the core shut, and says so.
//!
//! **Entering.** Every operation enters: it holds `state` for reading while it touches the
//! catalog, the lease or the arena's mappings. Opening, closing and forking hold it for writing,
//! so they and the operations exclude each other, and a child never inherits a lock of ours that
//! somebody held, nor a transaction that somebody ran. No user code runs inside, and copying of
//! bulk data happens outside: a fork waits for short things only.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, Weak};

use hashbrown::DefaultHashBuilder;

use crate::catalog::{self, Catalog, ReadTxn};
use crate::error::{Error, Kind, Result};
use crate::extent::{Arena, Extent};
use crate::folder::{
    check_own, check_real, check_theirs, make_for_namespace, make_for_spans, sync_names_above,
};
use crate::id::{Gid, Oid};
use crate::index::IndexState;
use crate::lease::{self, Hold, Lease, Peers, Spare};
use crate::media::devdax;
use crate::media::emulated::Emulated;
use crate::media::filesystem::Mount;
use crate::namespace::{self, within};
use crate::process;
use crate::query::sealed::DirectoryCache;
use crate::query::table::GroupCache;
use crate::realm::drainer::Drainer;
use crate::realm::locks::Locks;
use crate::realm::notices::Notices;
use crate::realm::snapshot::{At, Snapshots};
use crate::scope::Scope;

/// How many extents this process remembers as touched.
const WARM_MAX: usize = 32;

/// What never changes of a realm.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with another")]
pub(crate) struct Setup {
    /// The realm's folder.
    pub dir: PathBuf,
    /// The pool's folder.
    pub pool: PathBuf,
    /// The pool's uuid.
    pub uuid: String,
    /// The namespace's name.
    pub namespace: String,
    /// The mode of files made in the realm.
    pub file_mode: u32,
    /// Whether every commit survives power loss.
    pub durable: bool,
    /// What the pool lies on.
    pub mount: Mount,
    /// The catalog's map size.
    pub map_size: u64,
    /// The random upper bits of ids born here.
    pub birth: u64,
    /// The namespace's root group: the same GID in each of its realms.
    pub root: Gid,
    /// Who sees what is in the realm.
    pub scope: Scope,
    /// Whether values get checksums.
    pub checksums: bool,
    /// Whether copying takes as long as on persistent memory.
    pub emulated: bool,
    /// A published version: never written again, so there is no lease, no lock and nothing to
    /// reclaim, and whoever may read its files may use it.
    pub immutable: bool,
}

impl Setup {
    /// Where leases are.
    pub(crate) fn leases(&self) -> PathBuf {
        self.dir.join("leases")
    }

    /// The device at whose pace it copies, if it is to keep one.
    pub(crate) fn device_to_emulate(&self) -> Result<Option<Emulated>> {
        self.emulated.then(|| Emulated::open(&self.pool)).transpose()
    }

    /// Where the catalog is.
    pub(crate) fn catalog(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// How the catalog is opened.
    pub(crate) fn catalog_options(&self) -> catalog::Options {
        catalog::Options {
            map_size: self.map_size,
            durable: self.durable,
            file_mode: self.file_mode,
            ..catalog::Options::default()
        }
    }

    /// Whether devdax nodes serve this realm. A node is one file with one owner and one mode.
    pub(crate) fn has_nodes(&self) -> bool {
        self.namespace == namespace::DEFAULT && self.scope == Scope::Shared
    }

    /// What a devdax node that serves this realm carries.
    pub(crate) fn label(&self) -> devdax::Label {
        devdax::Label { pool: self.uuid.clone(), namespace: self.namespace.clone() }
    }

    /// The root group.
    pub(crate) fn root(&self) -> Gid {
        self.root
    }

    /// The user whose private realm it is.
    fn private_user(&self) -> Option<u32> {
        match self.scope {
            Scope::Private => self.dir.file_name()?.to_str()?.parse().ok(),
            _ => None,
        }
    }

    /// Where its spans lie on a device.
    pub(crate) fn spans_on(&self, device: &Path) -> PathBuf {
        let outer = device.join(&self.uuid).join(&self.namespace);
        outer.join(within(self.scope, self.private_user().unwrap_or_default()))
    }

    /// Refuses a folder for spans on a device that is not the pool's, and not the user's own if the
    /// realm is. Others may have made one in its place on a device that was added later.
    pub(crate) fn check_spans(&self, spans: &Path) -> Result<()> {
        let namespace = crate::namespace::place(&self.pool, &self.namespace);
        let (outer, above) = self.around(spans);
        check_theirs(&namespace, above)?;
        check_theirs(&namespace, outer)?;
        check_real(outer, spans)?;
        self.private_user().map_or(Ok(()), |user| check_own(spans, user).map(|_| ()))
    }

    /// Of the folder for spans on a device, what the namespace has there, and what the pool has.
    fn around<'p>(&self, spans: &'p Path) -> (&'p Path, &'p Path) {
        let depth = if self.scope == Scope::Private { 2 } else { 1 };
        let outer = spans.ancestors().nth(depth).expect("<device>/<uuid>/<namespace>");
        (outer, outer.parent().expect("<device>/<uuid>"))
    }

    /// Makes the folder for spans on a device, if it has none there yet.
    pub(crate) fn make_for_spans(&self, spans: &Path) -> Result<()> {
        if spans.is_dir() {
            return sync_names_above(spans);
        }
        let namespace = crate::namespace::place(&self.pool, &self.namespace);
        make_for_namespace(&namespace, self.around(spans).0)?;
        make_for_spans(&self.dir, spans)
    }
}

/// What a fork, an open or a close replaces.
pub(crate) struct State {
    /// `None` in a child that has not used the realm yet, and once shut.
    pub catalog: Option<Catalog>,
    /// `None` once shut, and in the rare child for which no lease could be made.
    pub lease: Option<Lease>,
    /// Leases that a fork could not copy: they keep their pins until this process ends.
    pub frozen: Vec<Lease>,
    /// The lease file for the next fork.
    pub spare: Option<Spare>,
    /// Whether the last user has left.
    pub shut: bool,
}

/// Ids taken and not yet used.
#[derive(Default)]
pub(crate) struct IdBlock {
    pub next: u64,
    pub end: u64,
}

/// Attribute keys and their ids, as far as this process has met them.
#[derive(Default)]
pub(crate) struct KeyCache {
    pub ids: HashMap<String, u32, DefaultHashBuilder>,
    pub names: HashMap<u32, Arc<str>, DefaultHashBuilder>,
}

/// What one process has of one realm.
pub(crate) struct Core {
    pub(crate) setup: Setup,
    pub(crate) state: RwLock<State>,
    pub(crate) arena: Arena,
    pub(crate) peers: Mutex<Peers>,
    pub(crate) ids: Mutex<IdBlock>,
    pub(crate) keys: Mutex<KeyCache>,
    pub(crate) devices: Mutex<Vec<PathBuf>>,
    pub(crate) resume: Mutex<Option<[u8; 17]>>,
    /// Every group's path, as queries last needed it.
    pub(crate) groups: GroupCache,
    /// Every segment, as queries last needed it.
    pub(crate) directories: DirectoryCache,
    /// What is remembered of the index between commits.
    pub(crate) index: IndexState,
    /// Who indexes what is queued.
    pub(crate) drainer: Drainer,
    /// The snapshots that this process holds.
    pub(crate) snapshots: Snapshots,
    /// What this process has locked.
    pub(crate) locks: Locks,
    /// What the program should be told.
    pub(crate) notices: Notices,
    /// This core, once it is shared.
    pub(crate) me: OnceLock<Weak<Core>>,
    warm: Mutex<VecDeque<Extent>>,
    /// Whether the dead may have left something reserved when the realm was opened.
    pub(crate) dead_left: AtomicBool,
    /// What was flushed while writable views were about: offset of the extent → object.
    pub(crate) owed: Mutex<HashMap<u64, Oid>>,
    users: AtomicUsize,
    sessions: AtomicUsize,
    /// The user that opened the realm: the owner of what this process makes.
    pub(crate) user: u32,
}

/// Locks, whatever a panic elsewhere left: what these mutexes guard is whole at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state, held for reading, with a catalog and a lease in it.
pub(crate) struct Inside<'a> {
    state: RwLockReadGuard<'a, State>,
    arena: &'a Arena,
}

impl Inside<'_> {
    /// The catalog.
    pub(crate) fn catalog(&self) -> &Catalog {
        self.state.catalog.as_ref().expect("`enter` has seen to it")
    }

    /// This process's lease.
    ///
    /// # Panics
    ///
    /// In a published realm, which has none: what asks for it begins with a refusal there.
    pub(crate) fn lease(&self) -> &Lease {
        self.state.lease.as_ref().expect("`enter` has seen to it")
    }

    /// The state itself.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// All leases of this process, frozen ones included.
    pub(crate) fn own_leases(&self) -> impl Iterator<Item = &Lease> + Clone {
        self.state.lease.iter().chain(&self.state.frozen)
    }

    /// The arena.
    pub(crate) fn arena(&self) -> &Arena {
        self.arena
    }

    /// Begins a read transaction that may look at rows, but not go after extents.
    pub(crate) fn read(&self) -> Result<ReadTxn<'_>> {
        self.catalog().read()
    }

    /// Begins a look-up (P2) that may pin what it finds.
    pub(crate) fn look(&self) -> Result<Look<'_>> {
        let begin = || {
            let txn = self.catalog().read()?;
            let id = txn.id();
            Ok((txn, id))
        };
        let lease = self.state.lease.as_ref();
        let (txn, age) = lease.map_or_else(begin, |lease| lease.look(begin))?;
        Ok(Look { lease, age, txn: Some(txn) })
    }

    /// The same at a snapshot, if there is one.
    pub(crate) fn read_at(&self, at: Option<&At>) -> Result<ReadTxn<'_>> {
        match at {
            Some(at) => at.read(self),
            None => self.read(),
        }
    }

    /// The same at a snapshot, if there is one.
    pub(crate) fn look_at(&self, at: Option<&At>) -> Result<Look<'_>> {
        let Some(at) = at else { return self.look() };
        let txn = at.read(self)?;
        let age = txn.id();
        // The snapshot holds its age, and cannot end while the transaction is borrowed.
        let lease = self.state.lease.as_ref();
        if let Some(lease) = lease {
            lease.look_again(age);
        }
        Ok(Look { lease, age, txn: Some(txn) })
    }
}

/// A look-up: a snapshot with an age, ended in the right order on drop.
pub(crate) struct Look<'a> {
    /// `None` in a published realm, whose extents nobody ever gives away.
    lease: Option<&'a Lease>,
    age: u64,
    txn: Option<ReadTxn<'a>>,
}

impl<'a> Look<'a> {
    /// Holds what this look-up shows beyond its end; the number that the catalog knows it by.
    /// Writers ask for it once the catalog's last page is this one.
    pub(crate) fn hold(mut self, catalog: &Catalog, ask_at: u64) -> u64 {
        if let Some(lease) = self.lease {
            lease.hold_snapshot(self.age, ask_at);
        }
        catalog.hold(self.txn.take().expect("present until drop"))
    }

    /// The snapshot.
    pub(crate) fn txn(&self) -> &ReadTxn<'a> {
        self.txn.as_ref().expect("present until drop")
    }

    /// Ends the snapshot; what it has shown of extents is kept from reuse still.
    pub(crate) fn rest(&mut self) {
        drop(self.txn.take());
    }

    /// Keeps an extent that this snapshot shows.
    pub(crate) fn pin(&self, extent: Extent) -> Hold {
        self.lease.map_or(Hold::Aged(self.age), |lease| lease.pin(extent.offset, self.age))
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        drop(self.txn.take());
        if let Some(lease) = self.lease {
            lease.end_look(self.age);
        }
    }
}

impl Core {
    /// A core around what `open` has brought up, with one session: the caller's.
    pub(crate) fn new(setup: Setup, state: State, arena: Arena) -> Self {
        Core {
            setup,
            state: RwLock::new(state),
            arena,
            peers: Mutex::default(),
            ids: Mutex::default(),
            keys: Mutex::default(),
            devices: Mutex::default(),
            resume: Mutex::default(),
            groups: GroupCache::default(),
            directories: DirectoryCache::default(),
            index: IndexState::default(),
            drainer: Drainer::default(),
            snapshots: Snapshots::default(),
            locks: Locks::default(),
            notices: Notices::default(),
            me: OnceLock::new(),
            warm: Mutex::default(),
            dead_left: AtomicBool::new(false),
            owed: Mutex::default(),
            users: AtomicUsize::new(1),
            sessions: AtomicUsize::new(1),
            user: lease::user(),
        }
    }

    /// Holds the state for an operation; brings a forked child's catalog and lease up first, and a
    /// catalog that failed to commit up again.
    pub(crate) fn enter(&self) -> Result<Inside<'_>> {
        loop {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if state.shut {
                return Err(self.over());
            }
            let ready = state.catalog.as_ref().is_some_and(|catalog| !catalog.is_spent());
            if ready && (state.lease.is_some() || self.setup.immutable) {
                return Ok(Inside { state, arena: &self.arena });
            }
            drop(state);
            super::open::bring_up(self)?;
        }
    }

    /// What to say when it is shut, though a handle's session is open: either that has just closed,
    /// or the realm was removed.
    #[cold]
    fn over(&self) -> Error {
        let pool = self.setup.pool.display();
        let still = self.setup.immutable || namespace::check_still(&self.setup).is_ok();
        if !still {
            let what = format!(
                "namespace {:?} of {pool} was removed, with all that was in it, and this handle is \
                 of it: look at pool.namespaces for those that there are",
                self.setup.namespace
            );
            return Error::new(Kind::NotFound, what);
        }
        Error::new(Kind::Argument, format!("the pool {pool} is closed: open it again"))
    }

    /// Whether the last user has left.
    pub(crate) fn is_shut(&self) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).shut
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

    /// One more open pool.
    pub(crate) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::AcqRel);
        self.add_user();
    }

    /// One less.
    pub(crate) fn remove_session(self: &Arc<Self>) {
        if self.sessions.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.drainer.stop();
        }
        self.remove_user();
    }

    /// How many open pools it has in this process; without any, it has views at most.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Acquire)
    }

    /// Remembers that this process's page table has this extent.
    pub(crate) fn touched(&self, extent: Extent) {
        if extent.len < 16 * crate::extent::PAGE {
            return;
        }
        let mut warm = lock(&self.warm);
        if let Some(place) = warm.iter().position(|known| known.offset == extent.offset) {
            warm.remove(place);
        }
        warm.push_front(extent);
        warm.truncate(WARM_MAX);
    }

    /// What was touched lately, newest first.
    pub(crate) fn warm(&self, len: u64) -> Vec<Extent> {
        if len < 16 * crate::extent::PAGE {
            return Vec::new();
        }
        lock(&self.warm).iter().copied().collect()
    }

    /// The ids of this process's leases.
    pub(crate) fn leases(&self) -> Vec<u64> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.lease.iter().chain(&state.frozen).map(Lease::id).collect()
    }

    /// Gives up a hold.
    pub(crate) fn unpin(&self, offset: u64, hold: Hold) {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lease) = &state.lease {
            lease.unpin(offset, hold);
        }
    }
}
