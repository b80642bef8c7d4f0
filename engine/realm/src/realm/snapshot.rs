//! Snapshots that are held: a realm as one commit has left it, for as long as somebody needs it.
//!
//! **What it is.** One read transaction of the catalog, kept live (`catalog::hold`), begun within a
//! look-up whose age the lease goes on holding (P2). So every row that it shows stays, and every
//! extent that such a row points to: objects that others replace and delete meanwhile are there
//! still. A realm's handle with a snapshot looks at nothing else, in a batch neither. It takes no
//! lock but for the thread that looks: two threads take turns.
//!
//! **What it costs.** LMDB reuses no page that was freed since the snapshot began. So each commit
//! makes the catalog longer by the pages it changes, for every process, until the snapshot ends.
//! That is bounded: a snapshot is *given up* once more pages than its bound wait for it alone.
//! (Extents that wait are no loss to others: they are counted as pending, and `PoolFullError` names
//! who holds them.)
//!
//! **Who gives it up.** Only its owner ends a transaction. So:
//!
//! 1. The owner's lease says from which last page of the catalog on it is to be asked.
//! 2. A writer that has to extend the catalog, and only it, looks at the leases, sets `asked` in
//!    those that are due, and waits a moment for the answer (`ask_holders`). It holds no lock.
//! 3. A thread of the owner, there as long as a snapshot is held, sees the word, counts the pages
//!    that were freed since the snapshot began, and ends it, or names a later page; then it
//!    clears the word. It compares the last page also when nobody asks, since others extend the
//!    catalog in large steps: so at half the bound it leaves a notice before that is reached.
//!
//! A mount may be full long before a bound is reached. A deletion that finds no room for its rows
//! then (`call_in_snapshots`) asks for every snapshot for which any page waits, of this process and
//! of others, waits a second, and begins again: deleting works, and the holder of a snapshot takes
//! another. A change that only needs more room ends nobody's snapshot.
//!
//! An owner that does not answer (it was stopped, perhaps) is asked once and waited for no more.
//! Nobody can end its transaction but the kernel, when it dies. The catalog grows then; a notice
//! names its pid.
//!
//! **Ends.** By its last handle's going, by its session's closing, by being given up, and with the
//! catalog's environment, when that is opened anew after a commit that failed. In a forked child it
//! has ended: the child never touches the parent's transaction (P4).

use crate::realm::space;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::batch;
use crate::process::spawn_quietly;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::gate::{Inside, State};
use crate::session::Session;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::mutex::lock;
use engram_catalog::{Catalog, ReadTxn, forks};
use engram_query::sealed::DirectoryCache;
use engram_query::tree::GroupCache;
use engram_space::extent::Span;
use engram_space::lease::{CALLED_IN, Lease, Peers};

/// The bound of a snapshot without one of its own, in bytes: this, or so many times the catalog.
const GROWTH_MIN: u64 = 256 << 20;
const GROWTH_PER_SIZE: u64 = 4;
/// How often the owner of a snapshot looks whether somebody asks for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a writer waits for an answer.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);
/// How long a deletion waits that has no room without it: a reader that looks through one now ends
/// first.
const CALL_WITHIN: Duration = Duration::from_secs(1);
const ANSWER_LOOK: Duration = Duration::from_millis(1);

/// Why a snapshot has ended.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Closed,
    GivenUp { bytes: u64 },
}

/// A held snapshot, as the core knows it.
struct HeldSnapshot {
    /// The catalog's number for it.
    number: u64,
    /// The id of the commit that it shows.
    age: u64,
    /// The session that took it.
    session: usize,
    /// How many pages may wait for it.
    pages_max: u64,
    /// From which last page of the catalog on it is to be asked for.
    ask_at: AtomicU64,
    /// Whether its program was told that it comes near its bound.
    told: AtomicBool,
    ended: OnceLock<Ending>,
}

/// The snapshots that this process holds of a realm.
#[derive(Default)]
pub(crate) struct Snapshots {
    state: Mutex<Keeping>,
}

#[derive(Default)]
struct Keeping {
    held: Vec<Arc<HeldSnapshot>>,
    /// Whether the thread that looks after them runs.
    watched: bool,
    /// How large the catalog was when its growth was last told of.
    told_pages: u64,
}

impl Snapshots {
    /// In a forked child, which has neither the snapshots nor the thread.
    pub(crate) fn forget(&self) {
        *lock(&self.state) = Keeping::default();
    }
}

/// A snapshot, as the handles of a realm have it.
pub(crate) struct SnapshotHandle {
    core: Arc<Core>,
    held: Arc<HeldSnapshot>,
    forks: u64,
    /// Every group's path in it, once queries need them.
    pub groups: GroupCache,
    /// Every segment in it, likewise.
    pub directories: DirectoryCache,
}

impl SnapshotHandle {
    /// The id of the commit that it shows.
    pub(super) fn id(&self) -> u64 {
        self.held.age
    }

    /// Ends it, if this process took it.
    pub(super) fn close(&self) {
        if self.forks == forks() {
            end_snapshot(&self.core, &self.held, Ending::Closed);
        }
    }

    /// Refuses once it has ended.
    pub(crate) fn check(&self) -> Result<()> {
        if self.forks != forks() {
            fail!(
                Busy,
                "this snapshot belongs to the process that forked this one: take one here \
                 (pool.snapshot())"
            );
        }
        match self.held.ended.get() {
            None => Ok(()),
            Some(ended) => Err(self.over(*ended)),
        }
    }

    /// Its transaction, to look through.
    pub(crate) fn read<'a>(&self, inside: &'a Inside<'_>) -> Result<ReadTxn<'a>> {
        self.check()?;
        if let Some(txn) = inside.catalog().held(self.held.number)? {
            return Ok(txn);
        }
        self.check()?;
        fail!(
            Busy,
            "this snapshot ended when the catalog was opened anew, after a commit had failed: take \
             a new one (pool.snapshot())"
        )
    }

    fn over(&self, ended: Ending) -> Error {
        match ended {
            Ending::Closed => Error::new(
                Kind::Argument,
                "this snapshot has ended: take a new one (pool.snapshot())",
            ),
            Ending::GivenUp { bytes } => Error::new(
                Kind::Busy,
                format!(
                    "this snapshot of {:?} was given up: it kept {bytes} bytes of the catalog from \
                     reuse while others wrote; take a new one (pool.snapshot()), hold it for a \
                     shorter time, or raise max_growth",
                    self.core.setup.namespace
                ),
            ),
        }
    }
}

impl Drop for SnapshotHandle {
    fn drop(&mut self) {
        if self.forks == forks() {
            end_snapshot(&self.core, &self.held, Ending::Closed);
        }
        if self.core.setup.immutable {
            self.core.remove_user();
        }
    }
}

/// See [`Realm::snapshot`].
pub(super) fn snapshot(realm: &Realm, max_growth: Option<u64>) -> Result<Realm> {
    let core = realm.readable()?;
    if realm.at.is_some() {
        fail!(Argument, "this is of a snapshot already: take another from the pool itself");
    }
    if batch::runs(core) {
        fail!(
            Busy,
            "snapshots and copies are of what is committed: make them outside of the batch"
        );
    }
    let inside = core.enter()?;
    if core.setup.immutable {
        // Mapped, values stay when a newer version takes the names of their files away.
        let txn = inside.read()?;
        let end = Span::all(&mut txn.rows())?.last().map_or(0, |last| last.range.end());
        space::reach_in(core, &inside, end, &txn)?;
    }
    let catalog = inside.catalog();
    let (page_bytes, last) = (catalog.page_bytes(), catalog.last_page()?);
    let bound = max_growth.unwrap_or(GROWTH_MIN.max(GROWTH_PER_SIZE * last * page_bytes));
    let pages_max = bound.div_ceil(page_bytes).max(1);
    let ask_at = last.saturating_add(pages_max / 2);
    let mut keeping = lock(&core.holdings.snapshots.state);
    if !keeping.watched {
        let weak = Arc::downgrade(core);
        if !spawn_quietly("engram-snapshot", move || watch(&weak)) {
            fail!(Os, "the kernel gives no thread to look after a snapshot: end some");
        }
        keeping.watched = true;
    }
    let look = inside.look()?;
    let age = look.txn().id();
    let held = Arc::new(HeldSnapshot {
        number: look.hold(catalog, ask_at),
        age,
        session: address(&realm.session),
        pages_max,
        ask_at: AtomicU64::new(ask_at),
        told: AtomicBool::new(false),
        ended: OnceLock::new(),
    });
    keeping.held.push(Arc::clone(&held));
    if core.setup.immutable {
        // Its session lets go of a version that is outdated. (It has no lease to hold on to.)
        core.add_user();
    }
    let at = SnapshotHandle {
        core: Arc::clone(core),
        held,
        forks: forks(),
        groups: GroupCache::default(),
        directories: DirectoryCache::default(),
    };
    Ok(Realm { at: Some(Arc::new(at)), ..realm.clone() })
}

fn address(session: &Session) -> usize {
    std::ptr::from_ref(session).addr()
}

/// Ends a snapshot: at once for a reader that comes from now on; a reader that looks through it now
/// ends first.
fn end_snapshot(core: &Core, held: &Arc<HeldSnapshot>, ending: Ending) {
    let state = core.gate.read();
    end_held(core, &state, held, ending);
}

fn end_held(core: &Core, state: &State, held: &Arc<HeldSnapshot>, ending: Ending) {
    let _ = held.ended.set(ending);
    let Some(catalog) = &state.catalog else { return };
    let mut keeping = lock(&core.holdings.snapshots.state);
    // In use: the thread that looks after it tries again.
    if let Some(place) = keeping.held.iter().position(|known| Arc::ptr_eq(known, held))
        && catalog.let_go(held.number).unwrap_or(true)
    {
        if let Some(lease) = &state.lease {
            lease.end_snapshot(held.age, held.ask_at.load(Ordering::Relaxed));
        }
        keeping.held.swap_remove(place);
    }
}

/// Ends every snapshot that a session has taken.
pub(crate) fn end_snapshots_of(core: &Core, session: &Session) {
    let session = address(session);
    let state = core.gate.read();
    for held in held_now(core) {
        if held.session == session {
            end_held(core, &state, &held, Ending::Closed);
        }
    }
}

/// The list as it is. The caller is inside, as is everyone who touches it, so that no child
/// inherits it locked.
fn held_now(core: &Core) -> Vec<Arc<HeldSnapshot>> {
    lock(&core.holdings.snapshots.state).held.clone()
}

/// Ends the snapshots that have reached their bound, and says when to ask for the others.
fn judge_snapshots(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let catalog = inside.catalog();
    let last = catalog.last_page()?;
    for held in held_now(core) {
        let ask_at = held.ask_at.load(Ordering::Relaxed);
        if held.ended.get().is_some() || ask_at > last {
            continue;
        }
        let waiting = catalog.pages_freed_since(held.age, held.pages_max)?;
        let bytes = waiting * catalog.page_bytes();
        if waiting >= held.pages_max {
            give_up(core, inside, &held, bytes);
            continue;
        }
        let half = held.pages_max / 2;
        if waiting >= half && !held.told.swap(true, Ordering::Relaxed) {
            core.holdings.notices.add(format!(
                "a snapshot of {:?} keeps {bytes} bytes of the catalog from reuse, and is \
                 given up at {}: end it soon, or raise max_growth",
                core.setup.namespace,
                held.pages_max * catalog.page_bytes()
            ));
        }
        let next = if waiting < half { half } else { held.pages_max };
        let later = last + (next - waiting).max(1);
        inside.lease().ask_later(held.age, ask_at, later);
        held.ask_at.store(later, Ordering::Relaxed);
    }
    Ok(())
}

fn give_up(core: &Core, inside: &Inside<'_>, held: &Arc<HeldSnapshot>, bytes: u64) {
    core.holdings.notices.add(format!(
        "a snapshot of {:?} was given up: it kept {bytes} bytes of the catalog from reuse",
        core.setup.namespace
    ));
    end_held(core, inside.state(), held, Ending::GivenUp { bytes });
}

/// Gives up every snapshot of this process that keeps pages of the catalog: there is no room.
fn give_up_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let catalog = inside.catalog();
    for held in held_now(core).iter().filter(|held| held.ended.get().is_none()) {
        let bytes = catalog.pages_freed_since(held.age, u64::MAX)? * catalog.page_bytes();
        if bytes > 0 {
            give_up(core, inside, held, bytes);
        }
    }
    Ok(())
}

/// Where a deletion finds no room in the catalog: has every snapshot given up that keeps pages
/// from reuse, here and elsewhere, and waits for that.
pub(crate) fn call_in_snapshots(core: &Core, inside: &Inside<'_>) -> Result<()> {
    give_up_all(core, inside)?;
    let called = {
        let mut peers = lock(&core.space.peers);
        let epoch = inside.catalog().growth().lease_epoch();
        peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
        peers.call_in() > 0
    };
    let until = Instant::now() + CALL_WITHIN;
    let ours = || held_now(core).iter().any(|held| held.ended.get().is_some());
    while (ours() || called && lock(&core.space.peers).are_asked()) && Instant::now() < until {
        thread::sleep(ANSWER_LOOK);
    }
    Ok(())
}

/// Before the catalog is extended: asks for the snapshots that keep it from reusing its pages,
/// and waits a moment for those who have not been asked before.
pub(crate) fn ask_holders(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let catalog = inside.catalog();
    let last = catalog.last_page()?;
    judge_snapshots(core, inside)?;
    let mut peers = lock(&core.space.peers);
    let epoch = catalog.growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    if peers.ask(last) > 0 {
        let until = Instant::now() + ANSWER_WITHIN;
        while peers.are_asked() && Instant::now() < until {
            drop(peers);
            thread::sleep(ANSWER_LOOK);
            peers = lock(&core.space.peers);
        }
    }
    name_oldest(core, catalog, &peers, last)
}

/// Leaves a notice each time that the catalog has doubled while somebody keeps much of it.
fn name_oldest(core: &Core, catalog: &Catalog, peers: &Peers, last: u64) -> Result<()> {
    let page_bytes = catalog.page_bytes();
    let least = GROWTH_MIN / page_bytes;
    if last < least.max(2 * lock(&core.holdings.snapshots.state).told_pages) {
        return Ok(());
    }
    let Some((age, pid)) = peers.oldest() else { return Ok(()) };
    let waiting = catalog.pages_freed_since(age, u64::MAX)?;
    if waiting >= least {
        lock(&core.holdings.snapshots.state).told_pages = last;
        core.holdings.notices.add(format!(
            "process {pid} keeps {} bytes of the catalog of {:?} from reuse: it has looked at \
             it since {} commits ago (a snapshot, or it was stopped); the catalog grows until \
             it goes on or ends",
            waiting * page_bytes,
            core.setup.namespace,
            catalog.last_id()?.saturating_sub(age),
        ));
    }
    Ok(())
}

/// Looks after the snapshots of a core as long as there are any.
fn watch(core: &Weak<Core>) {
    loop {
        thread::sleep(LOOK_EVERY);
        let Some(core) = core.upgrade() else { return };
        let Ok(inside) = core.enter() else {
            if core.is_shut() {
                return;
            }
            continue;
        };
        let lease = inside.state().lease.as_ref();
        let asked = lease.and_then(Lease::was_asked);
        let called_in = asked == Some(CALLED_IN);
        // A damaged catalog is for its readers to report.
        let _ = judge_snapshots(&core, &inside);
        if called_in {
            let _ = give_up_all(&core, &inside);
        }
        for held in held_now(&core) {
            if let Some(ending) = held.ended.get() {
                end_held(&core, inside.state(), &held, *ending);
            }
        }
        // Somebody may look through one still: then a deletion without room waits for that.
        let ending = held_now(&core).iter().any(|held| held.ended.get().is_some());
        if let (Some(lease), Some(asked)) = (lease, asked)
            && (asked != CALLED_IN || !ending)
        {
            lease.answer(asked);
        }
        let mut keeping = lock(&core.holdings.snapshots.state);
        if keeping.held.is_empty() {
            keeping.watched = false;
            return;
        }
    }
}
