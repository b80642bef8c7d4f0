//! What the dead have left: their reservations come back, their leases go.
//!
//! Most have nothing reserved when they die: a reservation lives as long as one put. Their leases
//! go without a commit. For the others one commit takes back all; it waits for the writer lock like
//! any commit, so an opening does not begin with it: it is done before the first reservation of
//! this process, and when somebody asks where the space is.

use std::sync::atomic::Ordering;

use crate::realm::core::Core;
use crate::realm::files;
use crate::realm::gate::Inside;
use engram_base::error::Result;
use engram_base::faults::step;
use engram_base::id::Oid;
use engram_base::mutex::lock;
use engram_base::telemetry::event;
use engram_catalog::Headroom;
use engram_space::extent::{has_reserved, reserving, take_back};
use engram_space::lease::{Dead, Lease};

/// Takes back what dead processes had reserved, and removes their leases. In a poisoned realm,
/// which may not be written to, they stay as they are.
pub fn take_back_dead(core: &Core, inside: &Inside<'_>) -> Result<()> {
    core.space.dead_left.store(false, Ordering::Relaxed);
    let Some(dead) = find_dead(core, inside)? else { return Ok(()) };
    take_back_lost(core, inside)?;
    let left = reap_idle(core, inside, dead)?;
    files::sweep_orphans(core, inside)?;
    if left.is_empty() {
        return Ok(());
    }
    let taken = core.prepare(inside, Headroom::Relief, |rows| {
        left.iter().try_for_each(|lease| take_back(rows.txn(), lease.id).map(drop))
    });
    step!("dead.committed");
    if let Err(error) = taken {
        lock(&core.space.peers).forget();
        return Err(error);
    }
    reap(core, inside, left)
}

/// Removes the leases of dead processes, as far as that needs no writer lock: an opening waits for
/// nobody. What they had reserved is taken back when this process first needs space.
pub(crate) fn reap_dead(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let Some(dead) = find_dead(core, inside)? else { return Ok(()) };
    let left = reap_idle(core, inside, dead)?;
    if !left.is_empty() {
        // Unlocked again, they are the dead ones that they were.
        lock(&core.space.peers).forget();
    }
    let some = !left.is_empty() || !reserving(&inside.read()?)?.is_empty();
    core.space.dead_left.store(some, Ordering::Relaxed);
    Ok(())
}

/// Takes back what was left when the realm was opened.
pub(crate) fn take_back_left(core: &Core, inside: &Inside<'_>) -> Result<()> {
    if core.space.dead_left.load(Ordering::Relaxed) { take_back_dead(core, inside) } else { Ok(()) }
}

/// Finds the leases of dead processes, and locks each of them. `None` says that nothing may be
/// written here.
fn find_dead(core: &Core, inside: &Inside<'_>) -> Result<Option<Vec<Dead>>> {
    if inside.catalog().poisoned() || core.setup.immutable {
        return Ok(None);
    }
    let mut peers = lock(&core.space.peers);
    let epoch = inside.catalog().growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    Ok(Some(peers.dead()))
}

/// Reaps those that have nothing reserved, which takes no commit; gives the others.
///
/// A process that died between writing a commit and showing it has left one that snapshots do
/// not see before the next writer has begun. Then nobody knows what it has reserved.
fn reap_idle(core: &Core, inside: &Inside<'_>, dead: Vec<Dead>) -> Result<Vec<Dead>> {
    if dead.is_empty() {
        return Ok(dead);
    }
    step!("dead.locked");
    let txn = inside.read()?;
    if inside.catalog().last_id()? != txn.id() {
        return Ok(dead);
    }
    let (mut idle, mut left) = (Vec::new(), Vec::new());
    for lease in dead {
        let reserved = has_reserved(&txn, lease.id)?;
        if reserved { &mut left } else { &mut idle }.push(lease);
    }
    drop(txn);
    reap(core, inside, idle)?;
    Ok(left)
}

fn reap(core: &Core, inside: &Inside<'_>, dead: Vec<Dead>) -> Result<()> {
    if dead.is_empty() {
        return Ok(());
    }
    event!(INFO, "processes have died with the realm open", leases = dead.len());
    dead.into_iter().for_each(Dead::reap);
    step!("dead.reaped");
    // Listing the folder anew removes the spares of the dead.
    let mut peers = lock(&core.space.peers);
    peers.forget();
    peers.refresh(
        &core.setup.leases(),
        inside.catalog().growth().lease_epoch(),
        inside.lease().id(),
    )
}

/// Takes back what leases had reserved whose files a loss of power has taken away: a lease is never
/// synced, its reservations are. The folder is read after the rows, and a lease has its name before
/// it reserves, so one that is not there then is nobody's.
fn take_back_lost(core: &Core, inside: &Inside<'_>) -> Result<()> {
    let mut lost = reserving(&inside.read()?)?;
    let own: Vec<u64> = inside.own_leases().map(Lease::id).collect();
    lost.retain(|lease| !own.contains(lease));
    if lost.is_empty() {
        return Ok(());
    }
    let mut peers = lock(&core.space.peers);
    peers.forget();
    let epoch = inside.catalog().growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    lost.retain(|lease| !peers.knows(*lease));
    drop(peers);
    for lease in lost {
        core.prepare(inside, Headroom::Relief, |rows| take_back(rows.txn(), lease))?;
    }
    Ok(())
}

/// Whether the process of a lease lives, this one or another.
pub(crate) fn is_alive(core: &Core, inside: &Inside<'_>, lease: u64) -> Result<bool> {
    if inside.own_leases().any(|own| own.id() == lease) {
        return Ok(true);
    }
    let mut peers = lock(&core.space.peers);
    peers.forget();
    let epoch = inside.catalog().growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    Ok(peers.alive().iter().any(|(id, _)| *id == lease))
}

/// Whether another process may have an object open, or come to. The caller holds the writer lock.
pub(crate) fn others_open(core: &Core, inside: &Inside<'_>, oid: Oid) -> Result<bool> {
    let epoch = || inside.catalog().growth().lease_epoch();
    let nobody = std::iter::empty();
    lock(&core.space.peers).may_open(
        &core.setup.leases(),
        epoch,
        inside.lease().id(),
        &nobody,
        oid,
        true,
    )
}

/// The pids of the other processes that have the realm open.
pub fn others_of(core: &Core, inside: &Inside<'_>) -> Result<Vec<u32>> {
    if core.setup.immutable {
        return Ok(Vec::new());
    }
    let mut peers = lock(&core.space.peers);
    let epoch = inside.catalog().growth().lease_epoch();
    peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
    // A lease that its owner has ended keeps what children of that process view.
    let others = peers.alive().into_iter().filter(|(_, owner)| !Lease::is_left(*owner));
    Ok(others.map(|(_, owner)| owner.pid).collect())
}
