//! Opening and shutting a core.
//!
//! **Order of opening**: (1) the lease, so that any process that looks can see us; (2) look at the
//! other leases: one of another PID namespace, or one of this very process that our registry does
//! not know (a second copy of the engine), refuses; then wait while somebody compacts the realm
//! (`compaction_lock`); (3) LMDB, whose locks such a copy would break by closing; (4) raise the
//! epoch: from here on look-ups may begin; (5) reap the dead, as far as that waits for nobody
//! (`dead`).
//!
//! All of this goes by names, and the pool may be removed and another made in its place meanwhile.
//! A core that is half of the one and half of the other would look to this process's next opening
//! like a second copy of the engine. So after the lease, and after LMDB, what is there is compared
//! with what was to be opened (`check_same`).
//!
//! **Order of shutting**: reservations back, the synced-close mark (under the writer lock, and
//! only if no other lease lives), LMDB closed, lease and spare unlinked.

use crate::realm::dead;
use crate::realm::space;
use crate::realm::spans;
use crate::realm::vacant;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use crate::compaction_lock;
use crate::realm::core::Core;
use crate::realm::gate::{Inside, State};
use crate::realm::setup::Setup;
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_catalog::{Catalog, Headroom};
use engram_files::realm_file::check_same;
use engram_media::boot_id;
use engram_records::extent::SIZE_MAX;
use engram_space::extent::{Arena, Span, has_reserved, take_back};
use engram_space::lease::{Lease, Owner, Peers, Spare};

/// The least address space of an arena, and how many times the pool's size it is. A process has
/// 128 TiB, and may have some hundred namespaces open.
const RANGE_BYTES_MIN: u64 = 1 << 39;
const RANGE_PER_SIZE: u64 = 16;

/// Why a realm is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To look at it; that waits for no writer (P6), so the reservations of the dead are left to
    /// others.
    Look,
    /// To work with it.
    Use,
    /// To verify it, which may look at what `Use` refuses.
    Verify,
}

/// Opens the realm; the caller holds the registry, and has found no core in it.
pub fn open(setup: Setup, purpose: Purpose) -> Result<Core> {
    if setup.immutable {
        return open_published(setup);
    }
    let BroughtUp { lease, catalog, compacter_died, some_dead } =
        bring_up_lease_and_catalog(&setup)?;
    let opened = admit(&setup, &catalog, purpose).and_then(|()| reserve_arena(&setup, &catalog));
    let arena = match opened {
        Ok(arena) => arena,
        Err(error) => {
            drop(catalog);
            lease.end();
            return Err(error);
        }
    };
    let spare = Spare::create(&setup.leases(), setup.file_mode).ok();
    let state = State::opened(catalog, Some(lease), spare);
    let core = Core::new(setup, state, arena);
    if compacter_died {
        spans::sweep_left(&core)?;
    }
    step!("open.made");
    if purpose == Purpose::Use {
        core.enter().and_then(|inside| {
            // A lease taken over on a full mount may have reservations already.
            if !inside.catalog().poisoned() {
                give_all_back(&core, &inside)?;
            }
            dead::reap_dead(&core, &inside)
        })?;
        step!("open.ready");
    } else if purpose == Purpose::Look && some_dead {
        // A process that only reads sweeps up as well; what hinders it there hinders no reading.
        let _ = core.enter().and_then(|inside| dead::reap_dead(&core, &inside));
    }
    Ok(core)
}

/// Opens a published version: its catalog without locks, and addresses for its spans.
fn open_published(setup: Setup) -> Result<Core> {
    let catalog = Catalog::open_published(&setup.catalog())?;
    let end = Span::all(&mut catalog.read()?.rows())?.last().map_or(0, |s| s.range.end());
    if end > SIZE_MAX {
        fail!(Corrupt, "{} says that its arena has {end} bytes", setup.dir.display());
    }
    let arena = Arena::reserve(end, end, false)?.emulating(setup.device_to_emulate()?);
    Ok(Core::new(setup, State::opened(catalog, None, None), arena))
}

/// A lease and the catalog, and what was seen on the way to them.
struct BroughtUp {
    lease: Lease,
    catalog: Catalog,
    /// Whether a process died compacting the realm.
    compacter_died: bool,
    /// Whether there are leases of the dead.
    some_dead: bool,
}

/// Makes a lease and opens the catalog, in the order that the essay above explains.
fn bring_up_lease_and_catalog(setup: &Setup) -> Result<BroughtUp> {
    let leases = setup.leases();
    let lease = Lease::create(&leases, setup.file_mode).map_err(|error| match error.kind() {
        Kind::ReadOnly => Error::new(
            Kind::ReadOnly,
            format!(
                "{} lies on a filesystem that is mounted read-only, where nothing can tell \
                 others of a reader: mount it for writing, or copy the pool's folder to one that \
                 is, and open the copy ({error})",
                setup.pool.display()
            ),
        ),
        _ => error,
    })?;
    let open = || {
        check_same(&setup.identity())?;
        let some_dead = refuse_strangers(setup, &[lease.id()])?;
        let compacter_died = compaction_lock::wait_for_it(&setup.dir)?;
        let catalog = Catalog::open(&setup.catalog(), &setup.catalog_options())?;
        check_same(&setup.identity())?;
        Ok((catalog, compacter_died, some_dead))
    };
    let opened = open();
    match opened {
        Ok((catalog, compacter_died, some_dead)) => {
            step!("open.catalog");
            catalog.growth().raise_lease_epoch();
            step!("open.announced");
            Ok(BroughtUp { lease, catalog, compacter_died, some_dead })
        }
        Err(error) => {
            lease.end();
            Err(error)
        }
    }
}

/// Refuses where a live lease, other than those in `ours`, is of another PID namespace or of
/// another copy of the engine in this process. Says whether there are leases of the dead.
fn refuse_strangers(setup: &Setup, ours: &[u64]) -> Result<bool> {
    let mut peers = Peers::default();
    peers.refresh(&setup.leases(), 0, 0)?;
    let (own, alive) = (Owner::current(), peers.alive());
    let some_dead = alive.len() < peers.count();
    // It has each of their files open.
    drop(peers);
    for (id, owner) in alive {
        if ours.contains(&id) {
            continue;
        }
        if owner.pid_namespace != own.pid_namespace {
            fail!(
                Unsupported,
                "{} is open in PID namespace {} (process {} there), this process is in {}: equal \
                 pids of two namespaces would break the catalog's reader table; share one PID \
                 namespace (docker run --pid=container:…), or wait until the other has closed it",
                setup.dir.display(),
                owner.pid_namespace,
                owner.pid,
                own.pid_namespace
            );
        }
        if owner == own && is_open_here(&setup.leases().join(format!("{id:016x}"))) {
            fail!(
                Busy,
                "{} is open already in this process, through another copy of the engine: use one \
                 of them, or close the pool there first",
                setup.dir.display()
            );
        }
    }
    Ok(some_dead)
}

/// Whether this process has a file open. Of its lease another may have the descriptor still: one
/// that forked this process has it for a moment longer, when this has become another program
/// already.
fn is_open_here(path: &Path) -> bool {
    let Ok(named) = std::fs::metadata(path) else { return false };
    // Where the kernel does not say what is open, it may be.
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return true };
    let is_named = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == (named.dev(), named.ino());
    open.flatten().any(|fd| std::fs::metadata(fd.path()).is_ok_and(is_named))
}

/// Refuses a `process` pool on a disk after a reboot without a synced close: it may be anything
/// then.
pub(crate) fn admit(setup: &Setup, catalog: &Catalog, purpose: Purpose) -> Result<()> {
    if setup.durable || !setup.mount.durable {
        return Ok(());
    }
    let growth = catalog.growth();
    let boot = boot_id();
    if growth.boot_id() == boot {
        return Ok(());
    }
    if !growth.clean() && purpose != Purpose::Verify {
        fail!(
            Unverified,
            "{} has durability \"process\" on a disk, and the machine was restarted without a \
             close: what was not written back is lost; run `engram verify {}` to check the rest",
            setup.dir.display(),
            setup.pool.display()
        );
    }
    if growth.clean() {
        growth.set_boot_id(boot);
        growth.sync()?;
    }
    Ok(())
}

fn reserve_arena(setup: &Setup, catalog: &Catalog) -> Result<Arena> {
    let limit = super::space::read_limit(&catalog.read()?)?;
    if limit > SIZE_MAX {
        fail!(Corrupt, "the realm's size cannot be {limit} bytes: restore the pool from a copy");
    }
    let bytes = RANGE_BYTES_MIN.max(limit.saturating_mul(RANGE_PER_SIZE));
    Ok(Arena::reserve(bytes, limit, true)?.emulating(setup.device_to_emulate()?))
}

/// In a forked child, on first use: a catalog of its own, and a lease if the fork could not make
/// one. Says whether there are leases of the dead.
pub(crate) fn bring_up(core: &Core) -> Result<bool> {
    let mut state = core.gate.write();
    let setup = &core.setup;
    if state.shut || setup.immutable {
        // A published realm goes on with what was inherited.
        return Ok(false);
    }
    let mut some_dead = false;
    if state.catalog.as_ref().is_some_and(Catalog::is_spent) {
        // Closed before it is opened again: one environment at a time.
        drop(state.catalog.take());
    }
    if state.catalog.is_none() {
        // A child may have been born into another PID namespace.
        let ours: Vec<u64> = state.lease.iter().chain(&state.inherited).map(Lease::id).collect();
        some_dead = refuse_strangers(setup, &ours)?;
        state.catalog = Some(Catalog::open(&setup.catalog(), &setup.catalog_options())?);
        step!("fork.opened");
    }
    if state.lease.is_none() {
        let lease = lease_after_fork(setup)?;
        state.catalog.as_ref().expect("just set").growth().raise_lease_epoch();
        state.lease = Some(lease);
    }
    if state.spare.is_none() {
        state.spare = Spare::create(&setup.leases(), setup.file_mode).ok();
    }
    Ok(some_dead)
}

/// The lease of a child that got none when it was forked.
fn lease_after_fork(setup: &Setup) -> Result<Lease> {
    Lease::create(&setup.leases(), setup.file_mode).map_err(|error| {
        let what = format!(
            "process {} was forked from one that has {} open, and no lease of its own could be \
             made, then or now; the parent is not touched: make room on that filesystem, end \
             another child, or fork before it is full ({error})",
            std::process::id(),
            setup.pool.display()
        );
        Error::new(error.kind(), what)
    })
}

/// Shuts the core; the caller holds the registry, and nobody uses it.
pub fn shut(core: &Arc<Core>) {
    let mut returned = false;
    if !core.setup.immutable
        && let Ok(inside) = core.enter()
    {
        vacant::at_end(core, &inside);
        returned = give_all_back(core, &inside).is_ok();
        step!("close.given-back");
        let _ = mark_synced_close(core, &inside);
        step!("close.marked");
        if !inside.state().children.is_empty() {
            let _ = dead::reap_dead(core, &inside);
        }
    }
    let mut state = core.gate.write();
    state.shut = true;
    drop(state.catalog.take());
    step!("close.catalog");
    match state.lease.take() {
        Some(lease) if returned => lease.end(),
        // Its reservations stand: unlocked and with its name, it is a dead one's, for others.
        lease => drop(lease),
    }
    step!("close.lease");
    if let Some(spare) = state.spare.take() {
        spare.end();
    }
    state.inherited.clear();
    // A handle may keep the core; the leases of others are files that it has no use for.
    core.space.forget();
}

/// Gives back what this process has reserved. A process that has nothing reserved waits for no
/// writer.
///
/// In a poisoned realm nobody knows what is reserved: a commit that failed may yet be seen.
fn give_all_back(core: &Core, inside: &Inside<'_>) -> Result<()> {
    if inside.catalog().poisoned() {
        fail!(Corrupt, "{} is poisoned: what is reserved in it stays so", core.setup.dir.display());
    }
    let lease = inside.lease().id();
    if has_reserved(&inside.read()?, lease)? {
        core.commit(inside, Headroom::Relief, |rows| take_back(rows.txn(), lease))?;
    }
    Ok(())
}

/// Says on media that everything was written back, if this was the last process.
fn mark_synced_close(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let catalog = inside.catalog();
    let growth = catalog.growth();
    if core.setup.durable || !core.setup.mount.durable || growth.clean() {
        return Ok(());
    }
    // One that was opened to be verified, and was not found sound, is to be refused as before.
    if growth.boot_id() != boot_id() {
        return Ok(());
    }
    // A process that opens from here on commits after us, and takes the mark away again.
    if dead::others_of(core, inside)?.is_empty() {
        catalog.close_clean(|| space::sync_spans(core, inside))?;
    }
    Ok(())
}
