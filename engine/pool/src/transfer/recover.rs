//! Ending the moves of processes that are gone.

use std::sync::Arc;

use super::copied::any_there;
use super::{
    RunningMove, clear_receipt, end_arrived, finish, forget, members_of, retreat, undo, withdraw,
};
use crate::published::{Making, sync_name};
use engram_base::error::Result;
use engram_base::id::id_key;
use engram_base::mutex::lock;
use engram_base::scope::Scope;
use engram_catalog::Table;
use engram_catalog::rows::Rows;
use engram_ops::marks::{Stage, Transfer};
use engram_realm::Core;

/// How the other realms of a namespace are come by.
pub(crate) trait Others {
    /// The realm of this scope, and, if it is private, of this user.
    fn realm(&self, scope: Scope, uid: u32) -> Result<Other>;
    /// The right to make a published version, if this process has it.
    fn making(&self) -> Result<Option<Making>>;
    /// Tells all that there is a new published version.
    fn told(&self);
}

/// The realm at the other end of a move.
pub(crate) enum Other {
    /// It is this one.
    Open(Arc<Core>),
    /// There is none: nothing has arrived there.
    Missing,
    /// This process may not open it, and cannot tell how the move ends.
    Closed,
}

/// Ends every move that a dead process has left in this realm, as far as this one may; whether
/// some are left that live.
pub(crate) fn recover(core: &Core, others: &dyn Others) -> Result<()> {
    if core.setup.immutable {
        return Ok(());
    }
    for transfer in left_behind(core)? {
        match transfer.stage {
            Stage::Leaving | Stage::Ending => match others.realm(transfer.other, transfer.uid)? {
                Other::Open(other) if has_received(&other, transfer.number)? => {
                    if other.setup.immutable {
                        sync_name(&other.setup)?;
                        others.told();
                    }
                    finish(core, transfer.number)?;
                    end_receipt(core, &other, transfer.number)?;
                }
                Other::Open(_) | Other::Missing => undo(core, transfer.number)?,
                Other::Closed => {}
            },
            Stage::Gone => match others.realm(transfer.other, transfer.uid)? {
                Other::Open(other) => end_receipt(core, &other, transfer.number)?,
                Other::Missing => forget(core, transfer.number)?,
                Other::Closed => {}
            },
            Stage::Arrived => {
                let Some(making) = others.making()? else { continue };
                let members = {
                    let inside = core.enter()?;
                    let txn = inside.read()?;
                    members_of(&mut txn.rows(), transfer.number)?
                };
                let (withdrawn, there) = {
                    let newest = Arc::clone(making.core());
                    let inside = newest.enter()?;
                    let txn = inside.read()?;
                    let number = id_key(transfer.number);
                    (txn.rows().has(Table::Received, &number)?, any_there(&txn, &members)?)
                };
                if !withdrawn && !there {
                    // Another has taken them meanwhile.
                    drop(making);
                    retreat(core, transfer.number)?;
                    continue;
                }
                if !withdrawn {
                    withdraw(making, core, transfer.number, &members)??;
                }
                end_arrived(core, transfer.number)?;
            }
        }
    }
    Ok(())
}

/// Does T4 and T5: removes the receipt, then the move's row and marks.
fn end_receipt(core: &Core, other: &Core, number: u64) -> Result<()> {
    if !other.setup.immutable {
        clear_receipt(other, number)?;
    }
    forget(core, number)
}

fn has_received(other: &Core, number: u64) -> Result<bool> {
    let inside = other.enter()?;
    let txn = inside.read()?;
    txn.rows().has(Table::Received, &id_key(number))
}

/// The moves whose process is gone, or has given up.
fn left_behind(core: &Core) -> Result<Vec<Transfer>> {
    let inside = core.enter()?;
    let all = {
        let txn = inside.read()?;
        if txn.entries(Table::Transfers)? == 0 {
            return Ok(Vec::new());
        }
        Transfer::all(&txn)?
    };
    let own: Vec<u64> = inside.own_leases().map(engram_space::lease::Lease::id).collect();
    let alive: Vec<u64> = {
        let mut peers = lock(&core.space.peers);
        peers.forget();
        let epoch = inside.catalog().growth().lease_epoch();
        peers.refresh(&core.setup.leases(), epoch, inside.lease().id())?;
        peers.alive().into_iter().map(|(id, _)| id).collect()
    };
    let at_it = |transfer: &Transfer| {
        let ours = own.contains(&transfer.lease);
        if ours { RunningMove::has(transfer.number) } else { alive.contains(&transfer.lease) }
    };
    Ok(all.into_iter().filter(|transfer| !at_it(transfer)).collect())
}
