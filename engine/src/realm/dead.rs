//! What the dead have left: their reservations come back, their leases go.

use crate::catalog::Headroom;
use crate::error::Result;
use crate::extent::{reserving, take_back};
use crate::faults::step;
use crate::realm::core::{Core, Inside, lock};

impl Core {
    /// Takes back what dead processes had reserved, and removes their leases. In a poisoned realm,
    /// which may not be written to, they stay as they are.
    pub(crate) fn take_back_dead(&self, inside: &Inside<'_>) -> Result<()> {
        if inside.catalog().poisoned() || self.setup.immutable {
            return Ok(());
        }
        let dead = {
            let mut peers = lock(&self.peers);
            let epoch = inside.catalog().growth().lease_epoch();
            peers.refresh(&self.setup.leases(), epoch, inside.lease().id())?;
            peers.dead()
        };
        self.take_back_lost(inside)?;
        if dead.is_empty() {
            return Ok(());
        }
        step!("dead.locked");
        for lease in dead {
            let taken =
                self.commit(inside, Headroom::Relief, |rows| take_back(rows.txn(), lease.id));
            step!("dead.committed");
            match taken {
                Ok(_) => lease.bury(),
                Err(error) => {
                    lock(&self.peers).forget();
                    return Err(error);
                }
            }
        }
        step!("dead.buried");
        // Listing the folder anew removes the spares of the dead.
        let mut peers = lock(&self.peers);
        peers.forget();
        peers.refresh(
            &self.setup.leases(),
            inside.catalog().growth().lease_epoch(),
            inside.lease().id(),
        )
    }

    /// Takes back what leases had reserved whose files a loss of power has taken away: a lease is
    /// never synced, what it has reserved is. The folder is read after the rows, and a lease has
    /// its name before it reserves, so one that is not there then is nobody's.
    fn take_back_lost(&self, inside: &Inside<'_>) -> Result<()> {
        let mut lost = reserving(&inside.read()?)?;
        let own: Vec<u64> = inside.own_leases().map(crate::lease::Lease::id).collect();
        lost.retain(|lease| !own.contains(lease));
        if lost.is_empty() {
            return Ok(());
        }
        let mut peers = lock(&self.peers);
        peers.forget();
        let epoch = inside.catalog().growth().lease_epoch();
        peers.refresh(&self.setup.leases(), epoch, inside.lease().id())?;
        lost.retain(|lease| !peers.knows(*lease));
        drop(peers);
        for lease in lost {
            self.commit(inside, Headroom::Relief, |rows| take_back(rows.txn(), lease))?;
        }
        Ok(())
    }

    /// The pids of the other processes that have the realm open.
    pub(crate) fn others_of(&self, inside: &Inside<'_>) -> Result<Vec<u32>> {
        if self.setup.immutable {
            return Ok(Vec::new());
        }
        let mut peers = lock(&self.peers);
        let epoch = inside.catalog().growth().lease_epoch();
        peers.refresh(&self.setup.leases(), epoch, inside.lease().id())?;
        let frozen: Vec<u64> = inside.own_leases().map(crate::lease::Lease::id).collect();
        let others = peers.alive().into_iter().filter(|(id, _)| !frozen.contains(id));
        Ok(others.map(|(_, owner)| owner.pid).collect())
    }
}
