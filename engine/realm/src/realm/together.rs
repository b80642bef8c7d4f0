//! Looks at several realms of a namespace at once: one snapshot of each.
//!
//! **What moves is seen once.** Nothing can be read of two catalogs at the very same instant. A
//! member that moves from one realm to another is in the target before it goes from the source; so
//! a reader that sees the source without it sees it in the target, if the target is looked at
//! later. Snapshots are begun in the order in which the names of realms win. Against that order a
//! move could be missed: begun before it arrived in the one, after it was gone from the other. So
//! every move raises `arrived` in the commit with which it arrives (and, for those who change
//! something, in the one with which it goes: see `precondition`), and a reader that has begun all
//! snapshots looks whether a newer commit of an earlier realm has another number; then it begins
//! again.
//!
//! **What is deleted of two realms at once** is gone from one of them an instant before it goes
//! from the other (`transfer::delete_in_both`). A reader that has begun its snapshots in between
//! begins again. Where the one that deletes stands still there, or is gone, looks go on after a
//! tenth of a second, and see what is left; a snapshot that is held is refused.
//!
//! **Locks.** Entering a core waits for a fork, and a fork waits for those who are inside. So
//! several are entered in one order, that of their addresses, in which a fork takes them too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::batch;
use crate::realm::Realm;
use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::precondition::{Precondition, arrived_of};
use engram_base::error::Result;
use engram_base::fail;
use engram_base::scope::Scope;
use engram_catalog::ReadTxn;
use engram_catalog::rows::Rows;
use engram_ops::marks::half_deleted;
use engram_ops::overlay::Overlay;
use engram_ops::overlay::peek::Peek;

/// How often snapshots are begun again because something has moved meanwhile.
const AGAIN_MAX: u32 = 1000;
const AGAIN_AT_ONCE: u32 = 100;
/// How often, and how long each time, one waits for a group that is deleted in one realm only.
const HALF_MAX: u32 = 100;
const HALF_MAX_HELD: u32 = 1000;
const HALF_WAIT: Duration = Duration::from_millis(1);
/// The deletion that was waited for in vain: its process stands still, or is gone.
static STUCK: AtomicU64 = AtomicU64::new(0);

/// Runs `look` on the rows of each realm, as of one commit of each; a batch of this thread is seen.
pub fn look_together<T>(
    realms: &[Realm],
    look: impl FnOnce(&mut [&mut dyn Rows]) -> Result<T>,
) -> Result<T> {
    look_at(realms, |_, rows| look(rows))
}

/// The same for a caller that is about to change something, with handles that rely on what was
/// seen.
pub fn look_to_change<T>(
    realms: &[Realm],
    look: impl FnOnce(&mut [&mut dyn Rows]) -> Result<T>,
) -> Result<(T, Vec<Realm>)> {
    look_at(realms, |txns, rows| {
        let seen = look(rows)?;
        let both = realms.iter().zip(txns);
        let relying = both
            .map(|(realm, txn)| Ok(realm.with_precondition(Precondition::Arrived(arrived(txn)?))));
        Ok((seen, relying.collect::<Result<_>>()?))
    })
}

fn look_at<T>(
    realms: &[Realm],
    look: impl FnOnce(&[ReadTxn<'_>], &mut [&mut dyn Rows]) -> Result<T>,
) -> Result<T> {
    let insides = enter_all(realms)?;
    let txns = begin_all(realms, &insides)?;
    let mut snapshots: Vec<_> = txns.iter().map(|txn| txn.rows()).collect();
    let Some(at) = in_batch(realms) else {
        return look(&txns, &mut all(&mut snapshots));
    };
    let done = batch::with(&realms[at].core, |overlay| {
        let mut above = overlay.look_at(&txns[at]);
        let mut rows = all(&mut snapshots);
        rows[at] = &mut above;
        look(&txns, &mut rows)
    })?;
    done.map_or_else(|| fail!(Busy, "the batch ended in another thread"), Ok)
}

fn all<'r, R: Rows + 'r>(snapshots: &'r mut [R]) -> Vec<&'r mut dyn Rows> {
    let each = |snapshot: &'r mut R| -> &'r mut dyn Rows { snapshot };
    snapshots.iter_mut().map(each).collect()
}

/// The same for queries.
pub fn peek_together<T>(
    realms: &[Realm],
    look: impl FnOnce(&[Peek<'_>]) -> Result<T>,
) -> Result<T> {
    let insides = enter_all(realms)?;
    let txns = begin_all(realms, &insides)?;
    let Some(at) = in_batch(realms) else { return look(&peeks(&txns, None)) };
    let done = batch::with(&realms[at].core, |overlay| look(&peeks(&txns, Some((at, overlay)))))?;
    done.map_or_else(|| fail!(Busy, "the batch ended in another thread"), Ok)
}

fn peeks<'p>(txns: &'p [ReadTxn<'p>], over: Option<(usize, &'p Overlay)>) -> Vec<Peek<'p>> {
    let above = |at| over.filter(|(place, _)| *place == at).map(|(_, overlay)| overlay);
    txns.iter().enumerate().map(|(at, txn)| Peek::new(txn, above(at))).collect()
}

/// The realm in which this thread runs a batch.
fn in_batch(realms: &[Realm]) -> Option<usize> {
    realms.iter().position(|realm| realm.at().is_none() && batch::runs(&realm.core))
}

fn enter_all(realms: &[Realm]) -> Result<Vec<Inside<'_>>> {
    let mut order: Vec<(usize, &Arc<Core>)> = Vec::with_capacity(realms.len());
    for (place, realm) in realms.iter().enumerate() {
        order.push((place, realm.readable()?));
    }
    order.sort_by_key(|(_, core)| Arc::as_ptr(core));
    let mut insides = Vec::with_capacity(order.len());
    for (place, core) in order {
        insides.push((place, core.enter()?));
    }
    insides.sort_by_key(|(place, _)| *place);
    Ok(insides.into_iter().map(|(_, inside)| inside).collect())
}

fn begin_all<'i>(realms: &[Realm], insides: &'i [Inside<'_>]) -> Result<Vec<ReadTxn<'i>>> {
    let (mut again, mut waited) = (0, 0);
    loop {
        let both = insides.iter().zip(realms);
        let txns: Vec<_> =
            both.map(|(inside, realm)| inside.read_at(realm.at())).collect::<Result<_>>()?;
        if realms.iter().any(|realm| realm.at().is_some()) {
            // Snapshots that were taken together.
            return Ok(txns);
        }
        let earlier = txns.len().saturating_sub(1);
        let mut moved = false;
        for (inside, txn) in insides.iter().zip(&txns).take(earlier) {
            let newest = inside.read()?;
            moved |= newest.id() != txn.id() && arrived(&newest)? != arrived(txn)?;
        }
        if !moved || again >= AGAIN_MAX {
            match half_deleted(&scopes(realms), &txns)? {
                Some(number) if waited < HALF_MAX && STUCK.load(Relaxed) != number => {
                    waited += 1;
                    if waited == HALF_MAX {
                        STUCK.store(number, Relaxed);
                    }
                    drop(txns);
                    thread::sleep(HALF_WAIT);
                }
                _ => return Ok(txns),
            }
        }
        again += 1;
    }
}

/// A snapshot of each realm, all of one moment: that at which the last was begun. The others were
/// the newest of their realms then, since they are still.
pub fn snapshot_together(realms: &[Realm], max_growth: Option<u64>) -> Result<Vec<Realm>> {
    let (mut again, mut waited) = (0, 0);
    loop {
        let held: Vec<Realm> =
            realms.iter().map(|realm| realm.snapshot(max_growth)).collect::<Result<_>>()?;
        let mut newer = false;
        for (realm, held) in realms.iter().zip(&held).take(held.len().saturating_sub(1)) {
            let inside = realm.readable()?.enter()?;
            newer |= inside.read()?.id() != inside.read_at(held.at())?.id();
        }
        if newer {
            again += 1;
            if again == AGAIN_MAX {
                fail!(
                    Busy,
                    "a snapshot of several scopes is of one moment, and others committed each time \
                     that it was begun: try again"
                );
            }
        } else if is_half_deleted(&held)? {
            waited += 1;
            if waited == HALF_MAX_HELD {
                fail!(
                    Busy,
                    "a group is half deleted by a process that does not go on: who opens the pool \
                     for writing ends that, if it is gone"
                );
            }
        } else {
            return Ok(held);
        }
        drop(held);
        if waited > 0 || again > AGAIN_AT_ONCE {
            thread::sleep(HALF_WAIT);
        }
    }
}

fn is_half_deleted(held: &[Realm]) -> Result<bool> {
    let insides = enter_all(held)?;
    let both = insides.iter().zip(held);
    let txns: Vec<_> =
        both.map(|(inside, realm)| inside.read_at(realm.at())).collect::<Result<_>>()?;
    Ok(half_deleted(&scopes(held), &txns)?.is_some())
}

fn arrived(txn: &ReadTxn<'_>) -> Result<u64> {
    arrived_of(&mut txn.rows())
}

/// Which scopes these are.
fn scopes(realms: &[Realm]) -> Vec<Scope> {
    realms.iter().map(Realm::scope).collect()
}
